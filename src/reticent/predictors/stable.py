"""Predictions that no single row can sway by more than γ: a net of random rows, and the exponential mechanism."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np

from reticent.concepts.input import check_concept_class
from reticent.concepts.interface import ConceptClass
from reticent.data.points import Array, Labels
from reticent.errors import InsufficientData
from reticent.exact import Number, exp_fractions, log_bounds, upward
from reticent.learners.base import ConceptLearner
from reticent.learners.sample_bounds import log_bad_excess, log_growth
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy.events import BoundedRange
from reticent.promises import check_share, fewest_rows, in_reach

SHARE = Fraction(3, 5)  # of γ goes to the net: 1/q + 1/(2(γ − q)) is least at q = (2 − √2)γ
_BITS = 48  # rates are multiples of 2^-48


class NetDraw(NamedTuple):
    """How many rows the net is made of, and at which rate a concept is drawn: ∝ e^(−rate·errors)."""

    subset: int
    rate: Fraction


def stability_of(rows: int, draw: NetDraw) -> Fraction:
    """γ = q + (1 − q)·tanh(rate/2) with q = subset/rows, from above.

    The rate is ε_e/2 for an exponential mechanism of ε_e.

    >>> round(float(stability_of(100, NetDraw(5, Fraction(1, 10)))), 6)
    0.09746
    """
    share = Fraction(draw.subset, rows)
    high = exp_fractions(draw.rate, 96)[1]
    return share + (1 - share) * (high - 1) / (high + 1)


def net_draw(rows: int, stability: Fraction) -> NetDraw:
    """How `stability` is spent on this many rows: three fifths of it on the net, the rest on the draw.

    >>> net_draw(1000, Fraction(1, 10))
    NetDraw(subset=60, rate=Fraction(23969792119317, 281474976710656))
    """
    subset = math.floor(SHARE * stability * rows)
    if subset < 1:
        required = math.ceil(1 / (SHARE * stability))
        raise InsufficientData(
            f"stability={float(stability):g} takes {required} rows at least, got {rows}: one row of a net must not "
            "weigh more; give more rows, or ask for less stability",
            required=required,
        )
    share = Fraction(subset, rows)
    left = (stability - share) / (1 - share)
    low = log_bounds((1 + left) / (1 - left), 2 * _BITS)[0]
    return NetDraw(subset, Fraction(math.floor(low * 2**_BITS) - 1, 2**_BITS))  # a unit less, which certifies γ


def draw_concept(concept_class: ConceptClass[Any], points: Array, labels: Labels, draw: NetDraw, noise: Noise) -> Any:
    """A concept out of those that stand for the labellings of some random rows, drawn by its errors on all rows.

    The candidates depend on the *set* of points drawn and on nothing else: neither on labels nor on other rows.
    """
    drawn = noise.subset(len(points), draw.subset)
    candidates = concept_class.dichotomies(points[np.sort(drawn)])
    return candidates.concept(noise.choose(-candidates.errors(labels, at=points), rate=draw.rate))


def check_net(concept_class: ConceptClass[Any], subset: int) -> None:
    """Refuse, by public numbers alone, a net that may have more labellings than can be scored."""
    concept_class.check_points(
        subset, what="rows of the net", remedy="take a class of a smaller VC dimension, or fewer rows"
    )


class StablePredictor(ConceptLearner):
    """A classifier of which no prediction depends much on any one row.

    `fit` draws n' of the n rows at random, lists one concept for each labelling that the class gives to *their points*,
    and draws one of these concepts by its errors on *all* rows: with probability ∝ e^(−ε_e·errors/2). `predict` returns
    the labels of that concept. Both n' and ε_e follow from the number of rows and the stability asked for.

    Guarantee. γ-uniform stability, γ ≤ `stability`: for every x, the probability that x is given the label 1 moves by
    at most γ when a row, value and label, is replaced. So does the probability of any set of hypotheses, hence of any
    answers to any number of questions. This is (0, γ)-differential privacy: *not* a promise of privacy, as a
    mechanism that shows a share of γ of the rows has it too. See `PrivatePredictor`.

    Why. Draw the same indices in both worlds. The replaced row is among them with probability q = n'/n; then nothing is
    claimed. If not, the candidates are the same, and the privacy loss of the draw has range ε_e. So
    γ = q + (1 − q)·tanh(ε_e/4), which is `stability_`. The proof is in docs/predictors/stable.md.

    Promise. With n ≥ `n_required(error)` independent rows from any distribution, with any labels, the error is at
    most `error` above that of the best concept of the class, with probability 1 − failure. The same page has the proof.

    Source. Dagan, Feldman, *PAC Learning with Stable and Private Predictions*, Theorem 1, restated as Theorem 3, by the
    algorithm of Section 3.1; stability and error as in Lemma 7, with the nets of Lemma 1, the labellings counted by
    Lemma 2, the deviations of Lemma 3 and the exponential mechanism of Lemma 4. Repaired: γ = q + (1 − q)·tanh(ε_e/4)
    where the paper has q + 2ε_e; in the definition of a net, concepts that *agree* on it; (en/d)^d in Lemma 2; and all
    that the O(·) of Theorem 1 leaves open. That many answers are as stable as one, if they come from one draw, is new.

    Parameters
    ----------
    concept_class : ConceptClass
        The concepts to choose from.
    stability : float or Fraction
        The most, in (0, 1), by which a replaced row may move the probability of a prediction.
    error : float, Fraction or None, default None
        The error above that of the best concept that `fit` must be able to promise; if it cannot, it raises
        `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the draw repeatable, and the stability void.

    Attributes
    ----------
    stability_ : float
        The stability attained, rounded up.
    subset_, draw_epsilon_ : int, float
        n' and ε_e.
    hypothesis_ : Concept
        The concept drawn.

    >>> import numpy as np
    >>> from reticent.concepts import Thresholds
    >>> x = np.arange(2000)[:, None]
    >>> predictor = StablePredictor(Thresholds(), stability=0.1).fit(x, x[:, 0] < 700)
    >>> predictor.subset_, predictor.stability_ <= 0.1, bool(predictor.score(x, x[:, 0] < 700) > 0.9)
    (120, True, True)
    """

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        stability: Number,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.stability = stability
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The rows with which the error is at most `error` above that of the best concept.

        `failure` is the predictor's own unless it is given. Raises `OutOfReach` if `fit` cannot run on that many.
        Planning, in floating point.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the predictor's own.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        beta = float(check_share(self.failure if failure is None else failure, "failure"))
        gamma = check_share(self.stability, "stability")
        needed = fewest_rows(
            lambda rows: (
                SHARE * gamma * rows >= 1
                and keeps(self.concept_class, rows, net_draw(rows, gamma), error=alpha, failure=beta)
            )
        )
        return in_reach(needed, self.check_size)

    def check_size(self, rows: int) -> None:
        """The labellings of the net are listed."""
        super().check_size(rows)
        check_net(self.concept_class, net_draw(rows, check_share(self.stability, "stability")).subset)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_share(self.stability, "stability")
        check_concept_class(self.concept_class)

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        self.refuse_bad_rows(rows)
        draw = net_draw(len(rows), check_share(self.stability, "stability"))
        self.subset_, self.draw_epsilon_ = draw.subset, float(2 * draw.rate)
        self.stability_ = upward(stability_of(len(rows), draw))
        concept = draw_concept(self.concept_class, rows, labels, draw, noise_or_system(unsafe_noise))
        return release(concept, BoundedRange(2 * draw.rate), unsafe_noise)

    def adopt_release(self, found: Release[Any]) -> Self:
        """Become fitted with a drawn concept; without `guarantee_` or `event_`, as a stable draw has no ε."""
        self.hypothesis_: Any = found.value
        self.classes_ = np.array([0, 1])
        return self

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.concept_class


# ── what the draw is good for; planning, in floating point ────────────────────────────────────────────────────────


def net_excess(concept_class: ConceptClass[Any], rows: int, subset: int, failure: float) -> float:
    """The η with τ(n)(1 − η)^n' = failure: what the best candidate may lose on the rows by being one of a net."""
    return -math.expm1((math.log(failure) - log_growth(concept_class, rows)) / subset)


def keeps(concept_class: ConceptClass[Any], rows: int, draw: NetDraw, *, error: float, failure: float) -> bool:
    """Whether the concept drawn is within `error` of the best one, half of the `failure` going to net and draw each."""
    left = error - net_excess(concept_class, rows, draw.subset, failure / 2)
    return left > 0 and log_bad_excess(concept_class, rows, left, rate=float(draw.rate)) <= math.log(failure / 2)
