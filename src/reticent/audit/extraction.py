"""Asking until the model is known: why one fixed predictor cannot answer indefinitely and be private.

A predictor that draws on its training rows alone can be asked about every point. The answers form a hypothesis, so the
predictor is a learner, and it needs as many rows as a private learner, however little each answer reveals. If only
single answers are private, each by its own noise, the noise averages out and the hypothesis reveals rows. The programs
here show both, for any object with a `predict`.
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
from reticent.exact import Number, integer
from reticent.mechanisms.release import noise_or_system
from reticent.noise import Noise
from reticent.promises import check_share

Array = NDArray[Any]
S = TypeVar("S")


class Predictor(Protocol):
    """Anything that answers queries, with one label per row."""

    def predict(self, X: Any, /) -> Any:
        """Return the labels."""


@dataclass(frozen=True)
class Extracted:
    """A hypothesis on given points, and the answers that it was extracted from.

    Parameters
    ----------
    points : ndarray
        The points.
    labels : ndarray of int
        The label of each point; 0 if it was never answered.
    answers : ndarray of int
        How often each point was answered.
    ones : ndarray of int
        How often each point was answered by 1.
    complete : bool
        Whether every point was answered.
    """

    points: Array
    labels: NDArray[np.int64]
    answers: NDArray[np.int64]
    ones: NDArray[np.int64]
    complete: bool

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the label of each row of `X`, all of which must be among the points."""
        rows = np.asarray(X)
        indices = {key: index for index, key in enumerate(_keys(self.points))}
        try:
            return self.labels[[indices[key] for key in _keys(rows)]]
        except KeyError:
            raise ValueError("X must hold points of which the hypothesis was extracted, and no others") from None

    @property
    def majority(self) -> NDArray[np.int64]:
        """The most frequent label of each point: noise that is fresh for each answer averages out."""
        return (2 * self.ones > self.answers).astype(np.int64)


class HypothesisLearner:
    """Algorithm HypothesisLearner: extract a hypothesis from a predictor by asking about random points.

    Each of `queries` rounds asks about a point drawn uniformly from `points`, the whole domain. One of the answers to a
    point, drawn at random, becomes its label. With the default number of queries every point is asked about, except
    with probability `failure`.

    Claim. If the hypotheses by which the predictor answers err with probability at most α each, whatever the
    distribution of the points is, then the expected error of the result is at most α, and at most 8α except with
    probability 1/8 + `failure`.

    Why. A point is asked about in rounds that do not depend on the answers, and given these rounds each is equally
    likely to give the label. So P(label of x is wrong) is the average over rounds of P(answer to x is wrong), whose
    average over x is at most α; then Markov. A point is missed with probability (1 − 1/|X|)^R ≤ e^(−R/|X|), and some
    is with |X| times that.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Algorithm HypothesisLearner and Claim B.1
    (Theorem 3.3, Theorem 1.3). Repaired: R = |X|·ln(|X|/β) in place of |X|·log|X|·log(1/β), which is too few where
    log(1/β) or log|X| is below 2; the answers are kept with their multiplicity, as the proof needs, not as a set.

    Parameters
    ----------
    predictor : Predictor
        Any object with a `predict`. A refusal (`BudgetExhausted`) ends the attack early.
    points : array-like
        The domain, one point per row.
    failure : float or Fraction, default 0.001
        Probability that some point is never asked about.
    queries : int, optional
        How many to ask; by default as many as `failure` needs.
    batch : int, default 4096
        How many to ask at a time.
    unsafe_noise : Noise, optional
        Noise to draw from, for tests.

    Examples
    --------
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
        failure: Number = 0.001,
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
        """Ask, and return the hypothesis. Every call asks again."""
        size = len(self.points)
        asked: list[Array] = []
        answered: list[Array] = []
        for start in range(0, self.queries, self.batch):
            drawn = self._noise.uniform(size, min(self.batch, self.queries - start))
            try:
                answered.append(np.asarray(self.predictor.predict(self.points[drawn])).astype(np.int64))
            except BudgetExhausted:
                break
            asked.append(drawn)
        indices = np.concatenate(asked) if asked else np.empty(0, dtype=np.int64)
        labels = np.concatenate(answered) if answered else np.empty(0, dtype=np.int64)
        answers = np.bincount(indices, minlength=size)
        ones = np.bincount(indices[labels == 1], minlength=size)
        chosen = np.zeros(size, dtype=np.int64)
        order = self._noise.permutation(len(indices))
        chosen[indices[order]] = labels[order]  # the last of the answers to a point, in random order
        return Extracted(self.points, chosen, answers, ones, complete=bool((answers > 0).all()))


class AccuracyBoost(Generic[S]):
    """Algorithm AccuracyBoost: the majority of hypotheses, each extracted from a predictor with a sample of its own.

    There should be at least `copies` = ⌈104·ln(1/failure)⌉ samples.

    Claim. Let each predictor, except with probability β ≤ 1/36, err with probability at most α in all its answers.
    Then the majority errs with probability at most 24α, except with probability `failure`. If for every sample the
    *whole* stream of answers is (ε, δ)-differentially private, so is the majority: a private learner.

    Why. A hypothesis has an error above 8α with probability at most 1/8 + 1/36 + 1/36 = 13/72 (HypothesisLearner with
    failure ≤ 1/36). By Hoeffding's inequality more than a quarter of R = 104·ln(1/failure) have one with probability
    at most e^(−2R·(5/72)²) ≤ failure, as 208·25/5184 > 1. Where the majority is wrong, so is a quarter of
    all that is 8α-good: at most (3/4)·8α/(1/4) = 24α of the points. Samples are disjoint: a replaced row meets one
    predictor, and what is computed from answers costs nothing.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Algorithm AccuracyBoost, Claim B.2 and Theorem
    3.3. Repaired: the printed proof has hypotheses that are bad with probability up to 3/8 and concludes that at most
    1/8 of them are bad. With β ≤ 1/36 in place of 1/8, and a quarter in place of an eighth, 24α and 104·ln(1/β) stand.

    Parameters
    ----------
    train : callable
        From a sample to a predictor.
    points : array-like
        The domain, one point per row.
    failure : float or Fraction, default 0.05
        Probability with which the claim may fail.
    queries : int, optional
        How many to ask each predictor; by default as many as `HypothesisLearner` needs.
    unsafe_noise : Noise, optional
        Noise to draw from, for tests.
    """

    def __init__(
        self,
        train: Callable[[S], Predictor],
        points: ArrayLike,
        *,
        failure: Number = 0.05,
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
        """Return the majority of the hypotheses, one per sample."""
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
    """How well an attacker finds out which of two data sets a predictor was trained on.

    Parameters
    ----------
    advantage : float
        P(says first | first) − P(says first | second), on runs that it was not tuned on.
    runs : int
        Number of these runs on each data set.
    spread : float
        Upper bound on the standard deviation of the advantage.
    """

    advantage: float
    runs: int
    spread: float

    def exceeds(self, bound: float, *, deviations: float = 4) -> bool:
        """Return whether the advantage is above a bound by more than this many standard deviations."""
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
    """Train, extract, and guess which of two data sets was used. Half of the runs teach the attacker how.

    The attacker sees the share of answers 1 at each point, and weighs it by the difference of its means between the two
    data sets in the first half of the runs.

    No (ε, δ)-differentially private predictor has an expected advantage above (e^ε − 1 + 2δ)/(e^ε + 1): see
    `inference.most_advantage`.

    Parameters
    ----------
    train : callable
        From a data set to a predictor. It must draw fresh noise in every call.
    first, second : object
        The data sets.
    points : array-like
        The domain, one point per row.
    runs : int, default 100
        Runs on each data set.
    queries : int, optional
        How many to ask in each run; by default as many as `HypothesisLearner` needs.
    unsafe_noise : Noise, optional
        Noise to draw from, for tests.

    Returns
    -------
    Membership
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
