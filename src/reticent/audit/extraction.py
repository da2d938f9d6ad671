"""Asking until the model is known: why one fixed predictor cannot answer for ever and be private.

A predictor that draws on its training rows alone can be asked about every point. What comes back is a hypothesis, that
is, a learner; so it needs as many rows as a private learner, however little each single answer tells. And if only
single answers were made private, with noise for each, the noise averages out and the hypothesis gives rows away. Both
are shown here by programs that take any object with a `predict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.errors import BudgetExhausted
from reticent.exact import integer
from reticent.mechanisms.release import noise_or_system
from reticent.noise import Noise
from reticent.promises import check_share

Array = NDArray[Any]
S = TypeVar("S")


class Predictor(Protocol):
    """Whatever answers queries, one label a row."""

    def predict(self, X: Any, /) -> Any:
        """The labels."""


@dataclass(frozen=True)
class Extracted:
    """A hypothesis on given points: a label for each, and how the answers that it was read off were spread."""

    points: Array
    labels: NDArray[np.int64]
    answers: NDArray[np.int64]  # how often each point was answered
    ones: NDArray[np.int64]  # and how often by 1
    complete: bool  # whether every point was answered; the labels of others are 0

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The label of each row of `X`, all of which must be among the points."""
        rows = np.asarray(X)
        place = {key: index for index, key in enumerate(_keys(self.points))}
        try:
            return self.labels[[place[key] for key in _keys(rows)]]
        except KeyError:
            raise ValueError("X must hold points of which the hypothesis was extracted, and no others") from None

    @property
    def majority(self) -> NDArray[np.int64]:
        """The label that each point was given most often: noise that is fresh for each answer averages out."""
        return (2 * self.ones > self.answers).astype(np.int64)


class HypothesisLearner:
    """Algorithm HypothesisLearner: a hypothesis out of the answers of a predictor, by asking about random points.

    Each of `queries` rounds asks about a point drawn uniformly from `points`, the whole domain. Of the answers to a
    point one is drawn at random to be its label. With the default number of queries every point is asked about, but
    for a probability of `failure`.

    Claim. If the hypotheses by which the predictor answers err with probability at most α each, whatever the
    distribution of the points is, then the expected error of the result is at most α, and at most 8α but for a
    probability of 1/8 + `failure`.

    Why. A point is asked about in rounds that do not depend on the answers, and given these rounds each is equally
    likely to give the label. So P(label of x is wrong) is the average over rounds of P(answer to x is wrong), whose
    average over x is at most α; then Markov. A point is missed with probability (1 − 1/|X|)^R ≤ e^(−R/|X|), and some
    is with |X| times that.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Algorithm HypothesisLearner and Claim B.1
    (Theorem 3.3, Theorem 1.3). Repaired: R = |X|·ln(|X|/β) in place of |X|·log|X|·log(1/β), which is too few where
    log(1/β) or log|X| is below 2; the answers are kept with their multiplicity, as the proof needs, not as a set.

    Parameters
    ----------
    predictor : any object with a `predict`; refusals (`BudgetExhausted`) end the attack early.
    points : the domain, one point a row.
    failure : the probability that some point is never asked about.
    queries : how many to ask; by default as many as that takes.
    batch : how many to ask at a time.

    >>> from reticent.concepts import Thresholds
    >>> from reticent.learners.thresholds import ThresholdLearner
    >>> x = np.arange(64)[:, None]
    >>> model = ThresholdLearner(bits=6, epsilon=1).fit(np.tile(x, (50, 1)), np.tile(x[:, 0] < 20, 50))
    >>> stolen = HypothesisLearner(model, x).hypothesis()
    >>> bool((stolen.labels == model.predict(x)).all()), stolen.complete
    (True, True)
    """

    def __init__(
        self,
        predictor: Predictor,
        points: ArrayLike,
        *,
        failure: object = 0.001,
        queries: int | None = None,
        batch: int = 4096,
        unsafe_noise: Noise | None = None,
    ) -> None:
        if not callable(getattr(predictor, "predict", None)):
            raise TypeError(f"predictor must have a method predict, got {type(predictor).__name__}")
        self.predictor = predictor
        self.points = np.array(points)
        if self.points.ndim != 2 or not len(self.points):
            raise ValueError("points must have two dimensions, rows and columns, and at least one row")
        self.failure = float(check_share(failure, "failure"))
        needed = math.ceil(len(self.points) * math.log(len(self.points) / self.failure))
        self.queries = needed if queries is None else integer(queries, "queries", least=1)
        self.batch = integer(batch, "batch", least=1)
        self._noise = noise_or_system(unsafe_noise)

    def hypothesis(self) -> Extracted:
        """Ask, and read off the hypothesis. Every call asks anew."""
        size = len(self.points)
        asked: list[Array] = []
        answered: list[Array] = []
        for start in range(0, self.queries, self.batch):
            places = self._noise.uniform(size, min(self.batch, self.queries - start))
            try:
                answered.append(np.asarray(self.predictor.predict(self.points[places])).astype(np.int64))
            except BudgetExhausted:
                break
            asked.append(places)
        places = np.concatenate(asked) if asked else np.empty(0, dtype=np.int64)
        labels = np.concatenate(answered) if answered else np.empty(0, dtype=np.int64)
        answers = np.bincount(places, minlength=size)
        ones = np.bincount(places[labels == 1], minlength=size)
        chosen = np.zeros(size, dtype=np.int64)
        order = self._noise.permutation(len(places))
        chosen[places[order]] = labels[order]  # the last of the answers to a point, in random order
        return Extracted(self.points, chosen, answers, ones, complete=bool((answers > 0).all()))


class AccuracyBoost(Generic[S]):
    """Algorithm AccuracyBoost: the majority of hypotheses, each extracted from a predictor with a sample of its own.

    `train(sample)` must return a predictor. There should be `copies` samples or more: ⌈104·ln(1/failure)⌉.

    Claim. Let each predictor, but for a probability of β ≤ 1/36, err with probability at most α in all its answers.
    Then the majority errs with probability at most 24α, but for a probability of `failure`. If for any one sample the
    *whole* stream of answers is (ε, δ)-differentially private, so is the majority: a private learner.

    Why. A hypothesis has an error above 8α with probability at most 1/8 + 1/36 + 1/36 = 13/72 (HypothesisLearner with
    failure ≤ 1/36). By Hoeffding's inequality more than a quarter of R = 104·ln(1/failure) have one with probability
    at most e^(−2R·(5/72)²) ≤ failure, as 208·25/5184 > 1. Where the majority is wrong, so is a quarter of
    all that is 8α-good: at most (3/4)·8α/(1/4) = 24α of the points. Samples are disjoint: a replaced row meets one
    predictor, and what is computed from answers costs nothing.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Algorithm AccuracyBoost, Claim B.2 and Theorem
    3.3. Repaired: the printed proof has hypotheses that are bad with probability up to 3/8 and concludes that at most
    1/8 of them are bad. With β ≤ 1/36 in place of 1/8, and a quarter in place of an eighth, 24α and 104·ln(1/β) stand.
    """

    def __init__(
        self,
        train: Callable[[S], Predictor],
        points: ArrayLike,
        *,
        failure: object = 0.05,
        queries: int | None = None,
        unsafe_noise: Noise | None = None,
    ) -> None:
        if not callable(train):
            raise TypeError(f"train must be a function from a sample to a predictor, got {type(train).__name__}")
        self.train = train
        self.points = points
        self.queries = queries
        self.copies = math.ceil(104 * math.log(1 / float(check_share(failure, "failure"))))
        self._unsafe_noise = unsafe_noise

    def hypothesis(self, samples: Sequence[S]) -> Extracted:
        """The majority of the hypotheses extracted from a predictor for each of the samples."""
        if not len(samples):
            raise ValueError("samples must hold at least one sample")
        found = [self._extracted(sample) for sample in samples]
        ones = np.sum([one.labels for one in found], axis=0)
        answers = np.full(len(ones), len(found))
        labels = (2 * ones > answers).astype(np.int64)
        return Extracted(found[0].points, labels, answers, ones, complete=all(one.complete for one in found))

    def _extracted(self, sample: S) -> Extracted:
        public: dict[str, Any] = {"failure": Fraction(1, 36), "queries": self.queries}
        return HypothesisLearner(
            self.train(sample), self.points, **public, unsafe_noise=self._unsafe_noise
        ).hypothesis()


# ── what an extracted hypothesis gives away ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Membership:
    """How well an attacker tells which of two data sets a predictor was trained on."""

    advantage: float  # P(says first | first) − P(says first | second), on runs that it was not tuned on
    runs: int
    spread: float  # standard deviation of that number, at most

    def exceeds(self, bound: float, *, deviations: float = 4) -> bool:
        """Whether the advantage is above a bound by more than chance explains."""
        return self.advantage - deviations * self.spread > bound


def membership(
    train: Callable[[S], Predictor],
    first: S,
    second: S,
    *,
    points: ArrayLike,
    runs: int = 100,
    queries: int | None = None,
    unsafe_noise: Noise | None = None,
) -> Membership:
    """Train, extract, and guess whether it was the first or the second data set; half of the runs to learn how.

    The attacker sees the share of answers 1 at each point, and weighs it by the difference of its means between the two
    data sets in the first half of the runs. `train` must draw fresh noise in every call.

    No (ε, δ)-differentially private predictor has an expected advantage above (e^ε − 1 + 2δ)/(e^ε + 1): see
    `inference.most_advantage`.
    """
    half = integer(runs, "runs", least=2) // 2
    shares = np.array([
        [_shares(train(data), points, queries, unsafe_noise) for _ in range(2 * half)] for data in (first, second)
    ])
    means = shares[:, :half].mean(axis=1)
    weights = means[0] - means[1]
    middle = weights @ means.sum(axis=0) / 2
    says_first = shares[:, half:] @ weights > middle
    hit, false = says_first.mean(axis=1)
    return Membership(float(hit - false), half, math.sqrt(0.5 / half))


def _shares(predictor: Predictor, points: ArrayLike, queries: int | None, unsafe_noise: Noise | None) -> Array:
    found = HypothesisLearner(predictor, points, queries=queries, unsafe_noise=unsafe_noise).hypothesis()
    return np.asarray(np.where(found.answers > 0, found.ones / np.maximum(found.answers, 1), 0.5))


def _keys(rows: Array) -> list[tuple[Any, ...]]:
    return [tuple(np.atleast_1d(row).tolist()) for row in rows]
