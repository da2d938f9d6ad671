"""A good point of a quasi-concave score on an enormous range: RecConcave, repaired, on big integers."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from reticent.exact import Number, integer, rational
from reticent.mechanisms.exponential import draw
from reticent.mechanisms.pieces import Pieces, whole_units, window_minima
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.mechanisms.stable_argmax import release_gap, release_table
from reticent.noise import Noise
from reticent.noise.reading import Array
from reticent.privacy.events import ApproximateDP, BoundedRange, Event
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive

SMALL = 32  # ranges [0, T] with T ≤ SMALL go to the exponential mechanism at once


def quasi_concave_maximum(
    pieces: Pieces,
    *,
    promise: Number,
    accuracy: Number,
    epsilon: Number,
    delta: Number = 0,
    depth: int | Literal["auto"] = "auto",
    failure: Number = 0.05,
    unsafe_noise: Noise | None = None,
) -> Release[int]:
    """A point of the range whose score is at least (1 − accuracy)·promise, if the score reaches `promise`.

    The score Q is quasi-concave (it rises, then falls) and moves by at most 1 anywhere when one row is replaced. The
    exponential mechanism would need a promise of order ln(size of the range); this one replaces the logarithm by an
    iterated one. At depth N it looks, by a recursion of depth N − 1 on a range of log2(size) integers, for the width
    of the region of good points; cuts the range into intervals a little wider than that, in two ways, one shifted by
    half an interval; releases the best interval of either cut if it stands out; and runs the exponential mechanism
    inside. Depth 1 is the exponential mechanism itself. `depth="auto"` takes the depth that needs the least promise
    (`choose_depth`); `required_promise` says which promise makes the answer good with probability 1 − `failure`. With
    a smaller promise, or a score that is not quasi-concave, the answer may be poor but is just as private.

    Guarantee. (ε, δ)-differential privacy for a replaced row. At depth 1 a privacy loss of bounded range ε, and δ is
    not used. The range, the promise, the accuracy, `depth` and `failure` are public; the pieces are not.

    Why. N is a function of the public range and depth. Each of the N − 1 upper levels makes two releases of an
    interval, (ε_d, δ_d) each, and one draw by the exponential mechanism, ε_e; the lowest makes one draw, ε_b. ε and δ
    are split so that the sums are exactly ε and δ (basic composition; each call sees the results of earlier ones).
    What each call needs is a score of sensitivity 1. Maxima, minima and added constants keep the sensitivity, so
    L(j) = max over windows of 2^j points of the least score in the window, q(j) = min(L(j) − (1 − α)r, r − L(j + 1)),
    and the score max Q of an interval all have sensitivity 1, whatever Q is. Which candidates there are (the range of
    j, the intervals, the union of the released ones) depends only on the public range and on earlier results. A cut
    that consists of one interval, which shows from its length and the range alone, gives that interval for nothing.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 5 (Algorithm RecConcave), for the problems of Definitions 3.6 and 3.7; Observation 3.11, Lemma 3.12 and
    Theorem 3.15 on its privacy. Repaired: A_dist is the repaired one (`stable_argmax`; as printed
    it is not private, so neither was RecConcave); the range is not padded to a power of two, where the printed
    algorithm could return a padding point; with no interval released, which the paper leaves open, the answer is the
    first integer of the range. Sharpened: the cost is that of 3N − 2 calls, not 3N, and each call gets a share of ε in
    proportion to what it needs, which halves the promise needed at 10^6 bits.

    >>> from reticent.mechanisms.pieces import median_pieces
    >>> rows = range(10**30, 10**30 + 8000)
    >>> score = median_pieces(rows, bits=1000)
    >>> value, event = quasi_concave_maximum(score, promise=4000, accuracy=0.5, epsilon=1, delta=1e-6)
    >>> score(value) >= 2000, event
    (True, ApproximateDP(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000)))
    """
    if not isinstance(pieces, Pieces):
        raise TypeError(f"pieces must be Pieces, got {type(pieces).__name__}")
    goal = Goal(check_positive(promise, "promise"), _share(accuracy, "accuracy"))
    if depth == "auto":
        depth = choose_depth(pieces.size, accuracy=accuracy, epsilon=epsilon, delta=delta, failure=failure)
    needs = _needs(pieces.size, accuracy=accuracy, delta=delta, failure=failure, depth=depth)
    budgets = _budgets(needs, epsilon=epsilon, delta=delta)
    event: Event = BoundedRange(check_epsilon(epsilon))
    if len(budgets) > 1:
        event = ApproximateDP(check_epsilon(epsilon), check_delta(delta))
        _prepare_tables(budgets[:-1], epsilon)
    scores, unit = whole_units(pieces.values)
    point = _search(replace(pieces, values=scores), unit, goal, budgets, noise=noise_or_system(unsafe_noise))
    return release(point, event, unsafe_noise)


# ── the recursion ─────────────────────────────────────────────────────────────────────────────────────────────────


class Goal(NamedTuple):
    """Find a point with a score of at least (1 − accuracy)·promise; some point has at least `promise`."""

    promise: Fraction
    accuracy: Fraction

    def below(self) -> Goal:
        """What the search for the right window width has to achieve."""
        return Goal(self.promise * self.accuracy / 2, Fraction(1, 4))


class Budget(NamedTuple):
    """What one level may spend: ε on its draw, and (ε, δ) on either of its two interval releases (none at the last)."""

    draw: Fraction
    interval: Fraction
    delta: Fraction


def _search(pieces: Pieces, unit: int, goal: Goal, budgets: list[Budget], *, noise: Noise) -> int:
    """One level of the recursion. Scores are whole multiples of 1/unit, so that they stay exact integers."""
    budget, *deeper = budgets
    parts = [pieces]
    if deeper:
        quality, finer = window_quality(pieces, unit, goal)
        exponent = _search(quality, finer, goal.below(), deeper, noise=noise)
        cuts = [
            _released(pieces, unit, shift=shift, width=exponent + 3, budget=budget, noise=noise)
            for shift in (0, 4 << exponent)
        ]
        found = [interval for interval in cuts if interval is not None]
        if not found:
            return pieces.first
        parts = [pieces.within(low, high) for low, high in _union(found)]
    return draw(parts, rate=budget.draw / (2 * unit), noise=noise)


def window_quality(pieces: Pieces, unit: int, goal: Goal) -> tuple[Pieces, int]:
    """q(j) = min(L(j) − (1 − α)r, r − L(j + 1)) over 0 ≤ j ≤ J, with the unit of its values.

    A high q(j) says that some window of 2^j points is good throughout and none of 2^(j+1) points is nearly perfect.
    L(J + 1) = min(0, L(J)). q is quasi-concave whatever the score is, since L does not increase.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Claim 3.13; by Remark 3.17 only the outermost call is large.
    """
    enough, plenty = (1 - goal.accuracy) * goal.promise, goal.promise
    finer = math.lcm(unit, enough.denominator, plenty.denominator)
    least = _scaled(window_minima(pieces), finer // unit, room=int(plenty * finer))
    following = np.append(least[1:], np.minimum(least[-1:], 0))
    quality = np.minimum(least - int(enough * finer), int(plenty * finer) - following)
    starts = np.append(0, 1 + np.flatnonzero(quality[1:] != quality[:-1]))
    return Pieces(0, len(quality) - 1, starts.astype(np.uint64), quality[starts]), finer


def _released(
    pieces: Pieces, unit: int, *, shift: int, width: int, budget: Budget, noise: Noise
) -> tuple[int, int] | None:
    """The best interval [low, high] of the cut of [shift, T] into intervals of 2^width points, if it is released."""
    top = pieces.size - 1
    if shift > top:
        return None
    if top - shift < 1 << width:
        return shift, top
    best, gap = best_interval(pieces, shift, width)
    if not release_gap(Fraction(gap, unit), epsilon=budget.interval, delta=budget.delta, noise=noise):
        return None
    low = shift + (best << width)
    return low, min(low + (1 << width) - 1, top)


def best_interval(pieces: Pieces, shift: int, width: int) -> tuple[int, int]:
    """Of the intervals of 2^width points that [shift, T] is cut into: the index of the best, and its lead.

    An interval scores as its best point does. The first of several best intervals counts as the best; its lead is 0.
    """
    begin, values = pieces.locate(shift), pieces.values
    winner = begin + int(np.argmax(values[begin:]))
    index = max(int(pieces.offsets[winner]) - shift, 0) >> width
    low, high = shift + (index << width), shift + ((index + 1) << width) - 1
    # The pieces that reach out of the interval on either side, the winning one perhaps among them.
    before = values[begin : pieces.locate(low - 1) + 1] if low > shift else values[:0]
    after = values[pieces.locate(high + 1) :] if high < pieces.size - 1 else values[:0]
    return index, int(values[winner]) - max(int(side.max()) for side in (before, after) if len(side))


def _union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same points as disjoint intervals, for at most two intervals."""
    (low, high), (other_low, other_high) = intervals[0], intervals[-1]
    if max(low, other_low) <= min(high, other_high):
        return [(min(low, other_low), max(high, other_high))]
    return intervals


def _scaled(numbers: Array, factor: int, *, room: int) -> Array:
    """numbers·factor, as Python ints unless sums with anything up to `room` fit a machine integer too."""
    reach = max(abs(int(numbers.max())), abs(int(numbers.min()))) * factor + abs(room)
    return (numbers if reach < 1 << 62 else numbers.astype(object)) * factor


# ── what a promise must be, and how the budget is split ───────────────────────────────────────────────────────────


def required_promise(
    size: int, *, accuracy: Number, epsilon: Number, delta: Number = 0, failure: Number = 0.05, depth: int
) -> int:
    """The least whole promise with which a search of this depth fails with probability at most `failure`.

    `size` is the number of integers in the range. Each of the 2N − 1 calls that have to succeed may fail with
    probability β = failure/(2N − 1). At a level with accuracy α and promise r (then 1/4 and αr/2 one level below):

    - the draw inside the released intervals is good if r ≥ (16/(3αε_e))·ln(16/β), for a sixteenth of the points have
      scores of at least (1 − 5α/8)r;
    - the good interval leads by 3αr/8, and is released if that is at least 2 + (2/ε_d)·ln(1/(4βδ_d));
    - the lowest level, on [0, T], is good if r ≥ (2/(αε_b))·ln((T + 1)/β).

    The logarithms are floating-point numbers, for planning; no privacy rests on them.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 3.14, Theorem 3.15 and Remark 3.16, with what each call needs in place of one bound for all of them.

    >>> required_promise(2**64, accuracy=0.1, epsilon=1, depth=1)
    948
    >>> required_promise(2**1000, accuracy=0.1, epsilon=1, delta=1e-6, depth=2)
    4016
    """
    needs = _needs(size, accuracy=accuracy, delta=delta, failure=failure, depth=depth)
    budgets = _budgets(needs, epsilon=epsilon, delta=delta)
    promises = [Fraction(need.draw) / budget.draw for need, budget in zip(needs, budgets, strict=True)]
    for need, budget in zip(needs[:-1], budgets[:-1], strict=True):
        promises.append(Fraction(need.interval) / budget.interval + Fraction(need.slack))
    return math.ceil(max(promises) * Fraction(1.000000001))


def choose_depth(
    size: int, *, accuracy: Number, epsilon: Number, delta: Number = 0, failure: Number = 0.05
) -> int:
    """The depth with the least `required_promise` on a range of `size` integers; 1 where δ = 0.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Observation 3.10: there are at most log* of the size to choose from. The paper takes the deepest.

    >>> [choose_depth(2**bits, accuracy=0.1, epsilon=1, delta=1e-6) for bits in (64, 200, 1000, 10**6)]
    [1, 1, 2, 2]
    """
    deepest = len(_ranges(size)) if check_delta(delta) else 1
    promises = [
        required_promise(size, accuracy=accuracy, epsilon=epsilon, delta=delta, failure=failure, depth=depth)
        for depth in range(1, deepest + 1)
    ]
    return 1 + promises.index(min(promises))


class _Need(NamedTuple):
    """The promise that a level needs: draw/ε_e for its draw, interval/ε_d + slack for its interval releases."""

    draw: float
    interval: float = 0.0
    slack: float = 0.0


def _needs(size: int, *, accuracy: Number, delta: Number, failure: Number, depth: object) -> list[_Need]:
    """What the levels need, from the top one down. Their number N is a function of the range and `depth` alone."""
    if isinstance(depth, str):
        raise ValueError(f'depth must be "auto" or a whole number ≥ 1, got {depth!r}')
    ranges = _ranges(size)[: integer(depth, "depth", least=1)]
    uppers = len(ranges) - 1
    # The floors keep absurd requests within the reach of floating-point numbers.
    alpha = max(float(_share(accuracy, "accuracy")), 1e-30)
    beta = max(float(_share(failure, "failure")), 1e-300) / (2 * uppers + 1)
    total = check_delta(delta, positive=uppers > 0)
    needs, scale = [], 1.0  # the promise of the level is `scale` times the promise at the top
    for _ in range(uppers):
        log_delta = math.log(total.numerator) - math.log(total.denominator * 2 * uppers)
        unit = 16 / (3 * alpha * scale)
        needs.append(_Need(unit * math.log(16 / beta), unit * (-math.log(4 * beta) - log_delta), unit))
        alpha, scale = 0.25, scale * alpha / 2
    return [*needs, _Need(2 / (alpha * scale) * (math.log(ranges[-1]) - math.log(beta)))]


def _budgets(needs: list[_Need], *, epsilon: Number, delta: Number) -> list[Budget]:
    """ε in proportion to what each call needs (so that one promise suits all), δ in equal parts.

    Any split that adds up is private; this one all but minimises the promise needed.
    """
    shares = [(math.ceil(need.draw), math.ceil(need.interval)) for need in needs]
    unit = check_epsilon(epsilon) / sum(draw + 2 * interval for draw, interval in shares)
    each = check_delta(delta) / max(1, 2 * (len(needs) - 1))
    return [Budget(draw * unit, interval * unit, each) for draw, interval in shares]


def _ranges(size: int) -> list[int]:
    """The sizes of the ranges of the recursion, down to the first that is small: size, ⌊log2 size⌋ + 1, …"""
    sizes = [integer(size, "size", least=1)]
    while sizes[-1] > SMALL + 1:
        sizes.append(sizes[-1].bit_length())
    return sizes


def _share(value: object, name: str) -> Fraction:
    number = rational(value, name)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
    return number


def _prepare_tables(budgets: list[Budget], epsilon: Number) -> None:
    """Build the tables of release probabilities before the scores are read, so that the time tells nothing of them."""
    try:
        for budget in budgets:
            release_table(epsilon=budget.interval, delta=budget.delta)
    except ValueError as error:
        raise ValueError(f"epsilon={epsilon} is too small to release intervals: raise it, or set depth=1") from error
