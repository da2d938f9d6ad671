"""A private threshold on a line of integers of any width, floats or datetimes: LearnThresholds."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy.stats import binom

from reticent.concepts.domains import Domain
from reticent.concepts.order import Line
from reticent.concepts.thresholds import Sign, Threshold, Thresholds, check_sign
from reticent.data.points import Array, Labels
from reticent.exact import Number
from reticent.learners.base import ConceptLearner
from reticent.learners.ranks import first_and_last, rank_type
from reticent.mechanisms.exponential import exponential_over_pieces
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import SMALL, check_depth, choose_depth, quasi_concave_maximum, required_promise
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, fewest_rows, in_reach


class ThresholdLearner(ConceptLearner):
    """A threshold t that labels the rows well: 1 for every x < t, 0 from t on (or the reverse, by `sign`).

    At depth 1 the exponential mechanism draws t from all thresholds of the domain, by the number of rows that it labels
    correctly. The data may be labelled in any way, and t does nearly as well as the best threshold. At depth 2 and
    more, `quasi_concave_maximum` (RecConcave) searches for t. It needs far fewer rows if a value has many hundred bits,
    but it assumes data that some threshold labels without error. `depth="auto"` takes the depth that needs the fewest
    rows for such data, which is 1 below about 250 bits and whenever δ = 0.

    Guarantee. (ε, δ)-differential privacy for a replaced row, value and label, for the published threshold; at depth 1
    ε-differential privacy, with a privacy loss of bounded range ε. Public are the number of rows and every parameter,
    including the domain; the depth and the accuracy of the search are functions of these.

    Why. Let e0(t) be the number of rows below t labelled 0, and e1(t) that of rows from t on labelled 1. A replaced row
    moves either, and their sum, by at most 1. So both scores, n − e0 − e1 at depth 1 and Q = n − max(e0, e1) at larger
    depths, have sensitivity 1; and Q is quasi-concave whatever the data. The proof is in `docs/learners/thresholds.md`.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by a threshold,
    then with probability 1 − failure a fresh row is mislabelled with probability at most `error`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm LearnThresholds, Example 3.8, Theorem 3.18 and Remark 3.19. Repaired: RecConcave itself (see
    `quasi_concave_maximum`); the printed score, the number of correct rows, is quasi-concave only on data that a
    threshold fits (Remark 3.9), the one here always. Sharpened: binomial tails
    in place of (200/α²)·ln(4/(αβ)) rows for generalisation. New: depth 1 with δ = 0, for labels of any kind.

    Parameters
    ----------
    bits : int or None, default None
        Values are the integers of [0, 2^bits).
    domain : Domain or None, default None
        Given in place of bits: `concepts.Floats()` or `concepts.Datetimes(unit)`.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released threshold.
    delta : float or Fraction, default 0
        Failure probability δ of the privacy bound; 0 implies depth 1.
    depth : int or "auto", default "auto"
        The depth of the search, from 1 on.
    sign : {"<", ">="}, default "<"
        "<" for the label 1 below the threshold, ">=" for the label 1 from it on.
    error : float, Fraction or None, default None
        The error that `fit` must be able to promise; otherwise it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    hypothesis_ : Threshold
        The released threshold.
    depth_ : int
        The depth that was used.

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
        """The number of rows with which a fresh row is mislabelled with probability at most `error`.

        With `agnostic=True`, e0/n and e1/n are everywhere within u of their probabilities, except with probability
        4·e^(−2nu²), by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart. So 4u and the share of errors that
        the search adds must be at most `error`.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        agnostic : bool, default False
            False: the rows are labelled by a threshold. True: they are labelled in any way, and `error` is the excess
            over the best threshold's; this needs depth 1.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(self._failure(failure))
        if agnostic and self.search_depth() > 1:
            raise ValueError(f"agnostic=True needs depth=1, got depth={self.search_depth()}: set depth=1")

        def spare(rows: int) -> int:
            """How many errors on the sample are allowed; half of the failure is kept for the search."""
            if agnostic:
                return math.floor(rows * (alpha - 4 * math.sqrt(math.log(8 / beta) / (2 * rows))))
            return int(binom.ppf(beta / 4, rows, alpha)) - 1

        needed = fewest_rows(lambda rows: 0 < spare(rows) < rows and self._finds(spare(rows), rows, beta / 2))
        return in_reach(needed, self.check_size)

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The number of errors that is exceeded with probability at most failure/2; see `ConceptLearner`."""
        beta = self._failure() / 2
        return bisect_left(range(rows), True, lo=1, key=lambda errors: self._finds(errors, rows, beta))

    # ── the search ────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Threshold]:
        ranks, domain = self.hypothesis_class().ranks(rows)
        starts, false_ones, false_zeros = error_counts(ranks, labels if self.sign == "<" else 1 - labels, domain)

        def pieces(scores: Array) -> Pieces:
            return Pieces.from_breakpoints(starts, scores, last=first_and_last(domain)[1] + 1)

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
                failure=self._failure() / 2,
                unsafe_noise=unsafe_noise,
            )
        return Release(Threshold(domain.value(rank), self.sign), event)

    def _accuracy(self, rows: int) -> Fraction:
        """The least share of errors that the search can promise with this many rows; 1/2 if it can promise none."""
        spare = self.sample_errors(rows)
        return Fraction(spare, rows) if spare < rows else Fraction(1, 2)

    def _finds(self, errors: int, rows: int, beta: Number) -> bool:
        """Whether the search makes at most this many errors on rows that some threshold fits; it may fail by β."""
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
        """The number of thresholds, one more than values; ValueError if the domain is not finite."""
        size = self.hypothesis_class().size
        if size is None:
            raise ValueError("give bits, or a finite domain such as Floats(): a private threshold needs a known range")
        return size

    def search_depth(self) -> int:
        """The depth of the search: `depth`, or with "auto" the one that needs the fewest rows."""
        size, failure = self.n_thresholds(), self._failure() / 2
        if self.depth == "auto":
            # The promises of all depths are inversely proportional to the accuracy, so any one compares them.
            tenth = Fraction(1, 10)
            return choose_depth(size, accuracy=tenth, epsilon=self.epsilon, delta=self.delta, failure=failure)
        depth = check_depth(self.depth)
        return depth if size > SMALL + 1 else 1


def error_counts(ranks: Array, labels: Labels, domain: Domain) -> tuple[Array, Array, Array]:
    """The errors of all thresholds.

    Parameters
    ----------
    ranks : array of int
        The ranks of the rows in the domain.
    labels : array of int
        Their labels, 0 or 1.
    domain : Domain
        The domain, finite.

    Returns
    -------
    starts : array
        The ranks from which on the errors of a threshold change: right after a value.
    false_ones, false_zeros : array
        From there on, the number of rows below the threshold labelled 0, and of rows from it on labelled 1.
    """
    line = Line(ranks)
    kind = rank_type(domain)  # the last threshold lies above all values
    starts = np.append(np.array([domain.first], dtype=kind), line.points.astype(kind) + 1)
    return starts, line.prefixes(1 - labels), labels.sum() - line.prefixes(labels)
