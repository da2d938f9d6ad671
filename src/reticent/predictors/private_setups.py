"""How private predictions are made, in public numbers: by votes, by a flipped stable draw, or by a private net."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from reticent.concepts.interface import ConceptClass
from reticent.concepts.labellings import sauer
from reticent.data.points import Array
from reticent.errors import InsufficientData
from reticent.exact import exp_fractions, log_bounds
from reticent.learners.sample_bounds import log_bad, log_bad_excess, log_growth
from reticent.noise import Noise
from reticent.predictors.stable import NetDraw, keeps, net_draw, net_excess, stability_of
from reticent.privacy import calibrate
from reticent.privacy.events import ApproximateDP, BoundedRange, Event, PureDP, Repeated
from reticent.promises import fewest_rows

_LARGEST = Fraction(64)  # the most ε that a flip makes use of: its probability would be below e^-64
_WIDEST = Fraction(9, 10)  # the most stability that a flip is asked to cover
_BITS = 96
_FLIP_BITS = 40  # flips are multiples of 2^-40


class Setup(Protocol):
    """Everything that decides how a question is answered; a function of public numbers alone."""

    @property
    def event(self) -> Event:
        """What one answer costs a replaced row."""

    def keeps(self, concept_class: ConceptClass[Any], rows: int, *, error: float, failure: float) -> bool:
        """Whether an error can be promised from this many rows. Planning, in floating point."""


# ── by votes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Votes:
    """Class j with probability ∝ e^(ε·votes_j/2), of teachers with disjoint rows."""

    teachers: int
    epsilon: Fraction

    @property
    def event(self) -> Event:
        """One vote moves one count down and another up: a loss of range ε."""
        return BoundedRange(self.epsilon)

    def keeps(self, concept_class: ConceptClass[Any], rows: int, *, error: float, failure: float) -> bool:
        """Where some concept makes no error: 4·(error of a teacher) + 1/(1 + e^(εK/4)), see `PrivatePredictor`."""
        each = (error - _logistic(-float(self.epsilon) * self.teachers / 4)) / 4
        return each > 0 and _consistent(concept_class, rows // self.teachers, each, pairs=False) <= (
            math.log(failure) - math.log(self.teachers)
        )


def votes_setup(rows: int, epsilon: Fraction, teachers: int | None) -> Votes:
    """(4/ε)·ln n teachers, unless these would have fewer than ten rows each."""
    if teachers is None:
        wanted = 4 * math.log(max(rows, 2)) / float(epsilon)
        teachers = max(1, min(math.ceil(wanted), rows // 10))
    if teachers > rows:
        raise InsufficientData(
            f"teachers={teachers} take a row or a group each, got {rows}: give more of them, or ask for fewer teachers",
            required=teachers,
        )
    return Votes(teachers, epsilon)


def vote(counts: Array, rate: Fraction, noise: Noise) -> int:
    """A class with probability exactly ∝ e^(rate·count)."""
    return noise.choose(counts, rate=rate)


# ── by a flip of a stable prediction ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Flip:
    """The prediction of a stable draw, flipped with probability `flip`."""

    draw: NetDraw
    flip: Fraction
    epsilon: Fraction

    @property
    def event(self) -> Event:
        """ε = ln(1 + γ(1 − 2α)/α), which is no more than this."""
        return PureDP(self.epsilon)

    def keeps(self, concept_class: ConceptClass[Any], rows: int, *, error: float, failure: float) -> bool:
        """The error of the stable draw, and the flip."""
        left = error - float(self.flip)
        return left > 0 and keeps(concept_class, rows, self.draw, error=left, failure=failure)


def flip_cost(stability: Fraction, flip: Fraction) -> Fraction:
    """e^ε = 1 + γ(1 − 2α)/α: what a flip with probability α makes of γ-stability, and no less would be true.

    >>> float(flip_cost(Fraction(1, 10), Fraction(1, 10)))
    1.8
    """
    return 1 + stability * (1 - 2 * flip) / flip


def flip_setup(concept_class: ConceptClass[Any], rows: int, epsilon: Fraction, flip: Fraction | None) -> Flip:
    """γ = √(3·ln τ(n)·(e^ε − 1)/n), which makes the flip and the error of the draw about equal; or what `flip` allows.

    Whichever γ is taken, n' and ε_e follow, and α is the least with 1 + γ(1 − 2α)/α ≤ e^ε.
    """
    epsilon = min(epsilon, _LARGEST)
    least = exp_fractions(epsilon, _BITS)[0]
    if flip is None:
        wanted = math.sqrt(3 * max(log_growth(concept_class, rows), 1.0) * math.expm1(float(epsilon)) / rows)
        stability = min(Fraction(math.ceil(wanted * 2**20), 2**20), _WIDEST)
    else:
        stability = flip * (least - 1) / (1 - 2 * flip)
        if stability >= 1:
            raise ValueError(
                f"flip must be below 1/(1 + e^ε) for the ε of one answer, which is {float(epsilon):g}: nothing need be "
                f"stable with as large a flip as {float(flip):g}"
            )
    draw = net_draw(rows, stability)
    attained = stability_of(rows, draw)
    if flip is None:
        flip = Fraction(math.ceil(attained / (least - 1 + 2 * attained) * 2**_FLIP_BITS), 2**_FLIP_BITS)
    assert flip_cost(attained, flip) <= least  # γ is attained or not reached, and α was rounded up
    return Flip(draw, flip, epsilon)


# ── by a private net ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Net:
    """A concept of a net drawn at rate 1/k; teachers learn from the rows as it labels them, and vote with ε = 1/k."""

    subset: int  # n'
    apart: int  # k: on how many rows concepts that agree on the net may differ
    teachers: int
    flip: Fraction  # of the answer; 0 where δ is allowed
    epsilon: Fraction
    delta: Fraction

    @property
    def event(self) -> Event:
        """What is proved of these numbers in `net_cost` is no more than this."""
        return ApproximateDP(self.epsilon, self.delta) if self.delta else PureDP(self.epsilon)

    @property
    def draw(self) -> NetDraw:
        """How the concept is drawn."""
        return NetDraw(self.subset, Fraction(1, self.apart))

    def keeps(self, concept_class: ConceptClass[Any], rows: int, *, error: float, failure: float) -> bool:
        """What net, draw, teachers, votes and flip lose in turn; the first three have a third of the failure each."""
        size, share = rows // self.teachers, math.log(failure / 3) - math.log(self.teachers)
        each = _least(lambda taught: _consistent(concept_class, size, taught, pairs=True) <= share)
        left = error - float(self.flip) - net_excess(concept_class, rows, self.subset, failure / 3)
        left -= 4 * each + _logistic(-self.teachers / self.apart / 4)
        return left > 0 and log_bad_excess(concept_class, rows, left, rate=1 / self.apart) <= math.log(failure / 3)


class NetCost(NamedTuple):
    """(ε₀, δ₀) of an answer before it is flipped; ε₀ as bounds on e^ε₀ from above."""

    exp_epsilon: Fraction
    delta: Fraction


def net_cost(concept_class: ConceptClass[Any], rows: int, subset: int, apart: int) -> NetCost:
    """ε₀ = 3/k + ln(1 + q(4e³ − 1)) and δ₀ = q·β with β = ½τ(n−1)²(1 − k/(n−1))^(n'−1), from above.

    With η = k/n this is no more than 3/(ηn) + ln(1 + q(4e^(3a) − 1)), a = (η(n−1) + 1)/(ηn), and β ≤ ½τ(n)²(1 − η)^N:
    as η(n−1) < k, concepts that agree on the net differ on k − 1 of the other rows at most, so that a is 1.

    >>> from reticent.concepts import Thresholds
    >>> cost = net_cost(Thresholds(), 200_000, 20_115, 400)
    >>> round(math.log(cost.exp_epsilon), 3), float(cost.delta) < 1e-6
    (2.202, True)
    """
    share = Fraction(subset, rows)
    inner = 1 + share * (4 * exp_fractions(Fraction(3), _BITS)[1] - 1)
    missed = _net_failure(concept_class, rows, subset, apart)
    return NetCost(exp_fractions(Fraction(3, apart), _BITS)[1] * inner, share * missed)


def _net_failure(concept_class: ConceptClass[Any], rows: int, subset: int, apart: int) -> Fraction:
    """β from above; 0 where k is all the other rows, which no draw misses."""
    if apart >= rows - 1:
        return Fraction(0 if subset > 1 else 1)
    exponent = _log_pairs(concept_class, rows) + (subset - 1) * _log_missed(rows, apart)
    return min(Fraction(1), exp_fractions(_rounded_up(exponent), _BITS)[1])


def _log_pairs(concept_class: ConceptClass[Any], rows: int) -> Fraction:
    """ln(½τ(n−1)²), from above."""
    most = sauer(concept_class.vc_dimension, rows - 1)
    return log_bounds(Fraction(min(most, concept_class.size or most) ** 2, 2), _BITS)[1]


def _log_missed(rows: int, apart: int) -> Fraction:
    """ln(1 − k/(n−1)), from above."""
    return log_bounds(1 - Fraction(apart, rows - 1), _BITS)[1]


def _rounded_up(value: Fraction) -> Fraction:
    return Fraction(math.ceil(value * 2**_BITS), 2**_BITS)


def flipped_cost(cost: NetCost, flip: Fraction) -> Fraction:
    """e^ε of an (ε₀, δ₀)-private bit that is flipped with probability α: the most that the two numbers allow.

    The extremes are P(1) = δ₀ against 0, and (e^ε₀ + δ₀)/(1 + e^ε₀) against (1 − δ₀)/(1 + e^ε₀).

    >>> float(flipped_cost(NetCost(Fraction(1), Fraction(1, 10)), Fraction(1, 10)))  # 0.1-stable
    1.8
    """
    factor, delta = cost
    base, kept = flip * (1 + factor), 1 - 2 * flip
    return max(1 + kept * delta / flip, (base + kept * (factor + delta)) / (base + kept * (1 - delta)))


def net_setup(
    concept_class: ConceptClass[Any],
    rows: int,
    epsilon: Fraction,
    delta: Fraction,
    *,
    flip: Fraction | None,
    teachers: int | None,
) -> Net:
    """The least k, and for it the least n', with which an answer is (ε, δ)-private; 4k·ln(n/k) teachers.

    If δ = 0 the answer is flipped, with probability 1/√n unless `flip` is given.
    """
    epsilon = min(epsilon, _LARGEST)
    least = exp_fractions(epsilon, _BITS)[0]
    if delta:
        flip, spared = Fraction(0), delta
    else:
        flip = Fraction(1, max(4, math.isqrt(rows))) if flip is None else flip
        spared = flip * min(epsilon, Fraction(1)) / 10

    def found(count: int, apart: int) -> int | None:
        subset = _net_subset(concept_class, count, apart, spared)
        if subset > count:
            return None
        cost = net_cost(concept_class, count, subset, apart)
        good = cost.delta <= spared and (flipped_cost(cost, flip) if flip else cost.exp_epsilon) <= least
        return subset if good else None

    if rows < 3 or found(rows, rows - 1) is None:
        required = fewest_rows(lambda count: count >= 3 and found(count, count - 1) is not None)
        raise InsufficientData(
            f"epsilon={float(epsilon):g} for an answer takes {required} rows at least by method='net', got {rows}; "
            "give more rows, a larger epsilon, or take another method",
            required=required,
        )
    apart = _first(lambda k: found(rows, k) is not None, rows - 1)
    subset = found(rows, apart)
    assert subset is not None
    if teachers is None:
        teachers = max(1, min(math.ceil(4 * apart * max(math.log(rows / apart), 1.0)), rows // 2))
    if teachers > rows:
        raise InsufficientData(f"teachers={teachers} take a row each, got {rows}", required=teachers)
    return Net(subset, apart, teachers, flip, epsilon, delta)


def _net_subset(concept_class: ConceptClass[Any], rows: int, apart: int, delta: Fraction) -> int:
    """The least n', nearly, with q·β ≤ δ."""
    if apart >= rows - 1:
        return 2
    pairs, missed = _log_pairs(concept_class, rows), -_log_missed(rows, apart)
    subset = rows
    for _ in range(3):  # q is at most what it was before, each time
        wanted = pairs + log_bounds(Fraction(min(subset, rows), rows) / delta, _BITS)[1]
        subset = max(2, 1 + math.ceil(wanted / missed))
    return subset


def _first(good: Callable[[int], bool], most: int) -> int:
    """The least number in [1, most] that is good, for a condition that goes on to hold once it does, as at `most`."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


# ── what teachers learn; planning, in floating point ──────────────────────────────────────────────────────────────


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _consistent(concept_class: ConceptClass[Any], rows: int, error: float, *, pairs: bool) -> float:
    """ln of a bound on the chance that a teacher which makes no error on its rows errs elsewhere by more than `error`.

    It is a concept or a constant. With `pairs`, whichever concept labelled the rows: then (τ + 2)² pairs of labellings
    of the rows and of m more are counted, as in `learners.sample_bounds`.
    """
    if rows < 1 or error >= 1:
        return 0.0 if rows < 1 else -math.inf
    if not pairs:
        constant = math.log(2) + rows * math.log1p(-error)
        return float(np.logaddexp(log_bad(concept_class, rows, error, rate=math.inf), constant))
    least = math.inf
    for power in range(max(0, rows.bit_length() - 3), rows.bit_length() + 11):
        more = 1 << power
        tail = math.floor(more * error) * math.log1p(rows / more)
        least = min(least, 2 * float(np.logaddexp(log_growth(concept_class, rows + more), math.log(2))) - tail)
    return least


def _least(good: Callable[[float], bool]) -> float:
    """The least share that is good, to nine digits; 1 where none is."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


# ── what each of several answers may cost ─────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def answer_epsilon(event: Callable[[Fraction], Event], epsilon: Fraction, delta: Fraction, queries: int) -> Fraction:
    """The largest ε we find for which `event(ε)`, repeated for each answer, is within (ε, δ).

    >>> answer_epsilon(PureDP, Fraction(1), Fraction(0), 10)
    Fraction(1, 10)
    >>> float(answer_epsilon(BoundedRange, Fraction(1), Fraction(1, 10**6), 1000)) > 0.01
    True
    """
    basic = epsilon / queries
    if delta == 0 or (queries == 1 and event is not BoundedRange):
        return basic
    sigma = calibrate.noise(lambda scale: Repeated(event(1 / scale), queries), epsilon=epsilon, delta=delta)
    return max(basic, 1 / sigma)


def answer_pair(epsilon: Fraction, delta: Fraction, queries: int) -> tuple[Fraction, Fraction]:
    """(ε, δ) of one answer by a net: shares of both, or of half of δ where that leaves more ε for each."""
    if delta == 0 or queries == 1:
        return epsilon / queries, delta
    half = delta / (2 * queries)
    most = answer_epsilon(lambda each: ApproximateDP(each, half), epsilon, delta, queries)
    return (most, half) if most > epsilon / queries else (epsilon / queries, delta / queries)
