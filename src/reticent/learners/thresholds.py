"""A private threshold on a line of integers of any width, floats or datetimes: LearnThresholds."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from scipy.stats import binom

from reticent.concepts.domains import Domain
from reticent.concepts.order import Line
from reticent.concepts.thresholds import Sign, Threshold, Thresholds, check_sign
from reticent.data.points import Array, Labels
from reticent.exact import Number, integer
from reticent.learners.base import ConceptLearner
from reticent.mechanisms.exponential import exponential_over_pieces
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import SMALL, choose_depth, quasi_concave_maximum, required_promise
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach


class ThresholdLearner(ConceptLearner):
    """A threshold t that labels the rows well: 1 for every x < t, 0 from t on (or the reverse, by `sign`).

    At depth 1 the exponential mechanism draws t out of all thresholds of the domain, by the number of rows it labels
    correctly; the data may be labelled in any way, and t does nearly as well as the best threshold. At depth 2 and more
    `quasi_concave_maximum` (RecConcave) looks for t. It needs far fewer rows where a value has many hundred bits, but
    it counts on data that some threshold labels without error. `depth="auto"` takes the depth that needs the fewest
    rows for such data, which is 1 below some 250 bits and wherever δ = 0.

    Guarantee. (ε, δ)-differential privacy for a replaced row, value and label, for the published threshold; at depth 1
    ε-differential privacy, with a privacy loss of bounded range ε. Public are the number of rows and every parameter,
    the domain among them; the depth and the accuracy of the search are functions of these.

    Why. For a threshold t let e0(t) be the number of rows below t labelled 0, and e1(t) that of the rows from t on
    labelled 1: the two kinds of error. A replaced row moves either by at most 1. It moves the number of correct rows
    n − e0(t) − e1(t) by at most 1 too, since a row is labelled correctly or is not: this is the score at depth 1. The
    score of the deeper search is Q(t) = n − max(e0(t), e1(t)), the lesser of n − e0 and n − e1, so its sensitivity is 1
    as well. With t rising, n − e0(t) never rises and n − e1(t) never falls: Q is quasi-concave *whatever the data*.
    Where some threshold t* makes no error, e0 vanishes up to t* and e1 from t* on; then Q(t) is the number of correct
    rows, and Q(t*) = n is the promise. The rest is the proof of the mechanism, for all thresholds of the public domain.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by a threshold
    t*, then with probability 1 − failure a fresh row is mislabelled with probability at most α = `error`. For of all
    regions [t*, t) that are hit with probability above α, the least lies in all others. So if any t with such a region
    makes at most k errors on the sample, at most k rows fell into the least one. The same holds to the left of t*: with
    probability 1 − 2·P(Bin(n, α) ≤ k), *every* threshold with at most k errors on the sample is good. The search has to
    find one of these.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm LearnThresholds, Example 3.8, Theorem 3.18 and Remark 3.19. Repaired: RecConcave itself (see
    `quasi_concave_maximum`); the printed score, the number of correct rows, is quasi-concave only on data that a
    threshold fits (Remark 3.9), the one here always. Sharpened: binomial tails
    in place of (200/α²)·ln(4/(αβ)) rows for generalisation. New: depth 1 with δ = 0, for labels of any kind.

    Parameters
    ----------
    bits : values are the integers of [0, 2^bits).
    domain : in place of bits, `concepts.Floats()` or `concepts.Datetimes(unit)`.
    epsilon, delta : the privacy of the threshold; δ = 0 is allowed and means depth 1.
    depth : "auto" or a whole number from 1 on.
    sign : "<" for the label 1 below the threshold, ">=" for the label 1 from it on.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released `concepts.Threshold`.
    depth_ : the depth that was used.

    >>> import numpy as np
    >>> ages = np.arange(20_000)[:, None] % 128
    >>> learner = ThresholdLearner(bits=7, epsilon=1).fit(ages, ages[:, 0] < 65)
    >>> learner.hypothesis_, learner.guarantee_.delta
    (Threshold(at=65, sign='<'), 0.0)
    >>> ThresholdLearner(bits=64, epsilon=1).n_required(error=0.05)
    2418
    """

    def __init__(
        self,
        *,
        bits: int | None = None,
        domain: Domain | None = None,
        epsilon: Number,
        delta: Number = 0,
        depth: int | Literal["auto"] = "auto",
        sign: Sign = "<",
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.bits = bits
        self.domain = domain
        self.epsilon = epsilon
        self.delta = delta
        self.depth = depth
        self.sign = sign
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None, *, agnostic: bool = False) -> int:
        """The rows with which a fresh row is mislabelled with probability at most `error`, but for a `failure`.

        The learner is one made with this `failure`; None means its own. The rows are drawn from any distribution and
        labelled by a threshold. With `agnostic=True` they are labelled in any way, and the error is what comes on top
        of that of the best threshold; this needs depth 1. Then e0/n and e1/n are everywhere within u of their
        probabilities, except with probability 4·e^(−2nu²), by the inequality of Dvoretzky, Kiefer, Wolfowitz and
        Massart for either; so 4u and the share of errors that the search adds must fit into `error`.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(check_share(self.failure if failure is None else failure, "failure"))
        if agnostic and self.search_depth() > 1:
            raise ValueError(f"agnostic=True needs depth=1, got depth={self.search_depth()}: set depth=1")

        def spare(rows: int) -> int:
            """How many errors on the sample are allowed, half of the failure being kept for the search."""
            if agnostic:
                return math.floor(rows * (alpha - 4 * math.sqrt(math.log(8 / beta) / (2 * rows))))
            return int(binom.ppf(beta / 4, rows, alpha)) - 1

        needed = fewest_rows(lambda rows: 0 < spare(rows) < rows and self._finds(spare(rows), rows, beta / 2))
        return in_reach(needed, self.check_size)

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The most errors on this many rows that a threshold fits, but for a probability of failure/2."""
        beta = check_share(self.failure, "failure") / 2
        return bisect_left(range(rows), True, lo=1, key=lambda errors: self._finds(errors, rows, beta))

    # ── the search ────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Threshold]:
        ranks, domain = self.hypothesis_class().ranks(rows)
        starts, false_ones, false_zeros = error_counts(ranks, labels if self.sign == "<" else 1 - labels, domain)

        def pieces(scores: Array) -> Pieces:
            return Pieces.from_breakpoints(starts, scores, last=_last(domain) + 1)

        self.depth_ = self.search_depth()
        if self.depth_ == 1:
            correct = pieces(len(rows) - false_ones - false_zeros)
            rank, event = exponential_over_pieces(correct, epsilon=self.epsilon, unsafe_noise=unsafe_noise)
        else:
            check_delta(self.delta, rows=len(rows))
            rank, event = quasi_concave_maximum(
                pieces(len(rows) - np.maximum(false_ones, false_zeros)),
                promise=len(rows),
                accuracy=self._accuracy(len(rows)),
                epsilon=self.epsilon,
                delta=self.delta,
                depth=self.depth_,
                failure=check_share(self.failure, "failure") / 2,
                unsafe_noise=unsafe_noise,
            )
        return Release(Threshold(domain.value(rank), self.sign), event)

    def _accuracy(self, rows: int) -> Fraction:
        """The least share of errors that the search can promise with this many rows; 1/2 where it can promise none."""
        spare = self.sample_errors(rows)
        return Fraction(spare, rows) if spare < rows else Fraction(1, 2)

    def _finds(self, errors: int, rows: int, beta: Number) -> bool:
        """Whether the search makes at most so many errors on rows that a threshold fits, except with probability β."""
        return self._promise(Fraction(errors, rows), beta) <= rows

    def _promise(self, accuracy: Fraction, beta: Number) -> int:
        return required_promise(
            self.n_thresholds(),
            accuracy=accuracy,
            epsilon=self.epsilon,
            delta=self.delta,
            failure=beta,
            depth=self.search_depth(),
        )

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_sign(self.sign)
        self._promise(Fraction(1, 2), Fraction(1, 20))  # refuses a depth that needs a positive δ

    def hypothesis_class(self) -> Thresholds:
        """The concept class that the hypothesis belongs to."""
        return Thresholds(self.bits, domain=self.domain)

    def n_thresholds(self) -> int:
        """How many thresholds there are: one more than values."""
        size = self.hypothesis_class().size
        if size is None:
            raise ValueError("give bits, or a finite domain such as Floats(): a private threshold needs a known range")
        return size

    def search_depth(self) -> int:
        """The depth of the search: `depth`, or with "auto" the one that needs the fewest rows."""
        size, failure = self.n_thresholds(), check_share(self.failure, "failure") / 2
        if self.depth == "auto":
            # The promises of all depths are inversely proportional to the accuracy, so any one compares them.
            tenth = Fraction(1, 10)
            return choose_depth(size, accuracy=tenth, epsilon=self.epsilon, delta=self.delta, failure=failure)
        if isinstance(self.depth, str):
            raise ValueError(f'depth must be "auto" or a whole number ≥ 1, got {self.depth!r}')
        return integer(self.depth, "depth", least=1) if size > SMALL + 1 else 1


def error_counts(ranks: Array, labels: Labels, domain: Domain) -> tuple[Array, Array, Array]:
    """The ranks from which on the errors of a threshold differ, and how many of either kind it makes from there on.

    The kinds are rows below the threshold labelled 0, and rows from it on labelled 1. They change right after a value.
    """
    line = Line(ranks)
    kind: Any = np.int64 if _last(domain) + 1 < 1 << 63 else object  # the last threshold lies above all values
    starts = np.append(np.array([domain.first], dtype=kind), line.points.astype(kind) + 1)
    return starts, line.prefixes(1 - labels), labels.sum() - line.prefixes(labels)


def _last(domain: Domain) -> int:
    assert domain.last is not None
    return domain.last
