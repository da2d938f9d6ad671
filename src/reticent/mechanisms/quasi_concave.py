"""RecConcave, repaired: a good point of a quasi-concave score, on ranges of up to 2^(10^6) integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from reticent.exact import Number, integer
from reticent.mechanisms.exponential import draw_integer
from reticent.mechanisms.pieces import Pieces, check_pieces, whole_units, window_minima
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.mechanisms.stable_argmax import release_gap, release_table
from reticent.noise import Noise
from reticent.noise.reading import Array
from reticent.privacy.events import ApproximateDP, BoundedRange, Event
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive
from reticent.promises import check_share

SMALL = 32  # for ranges [0, T] with T ≤ SMALL, the exponential mechanism is used directly


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
    """Return a point whose score is at least (1 − accuracy)·promise, if the score reaches `promise` somewhere.

    The score Q is quasi-concave (it rises, then falls) and moves by at most 1 anywhere when one row is replaced. The
    exponential mechanism would need a promise of order ln(size of the range); here the logarithm is an iterated one. At
    depth N, a recursion of depth N − 1 on a range of log2(size) integers finds the width of the region of good points.
    The range is cut into intervals a little wider than that, twice, the second time shifted by half an interval. The
    best interval of each cut is released if it stands out, and the exponential mechanism chooses a point inside. Depth
    1 is the exponential mechanism alone.

    Guarantee. (ε, δ)-differential privacy for a replaced row. At depth 1, a privacy loss of bounded range ε, and δ is
    not used. All parameters and the range are public; the pieces are not.

    Why. Every call is private for a score of sensitivity 1; maxima, minima and added constants keep the sensitivity,
    whatever Q is. The candidates of each call depend only on the public range and on earlier results. The shares of ε
    and δ add up to ε and δ. The proof is in docs/mechanisms/quasi_concave.md.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 5 (Algorithm RecConcave), for the problems of Definitions 3.6 and 3.7; Observation 3.11, Lemma 3.12 and
    Theorem 3.15 on its privacy. Repaired: A_dist (`stable_argmax`; as printed it is not private, so neither was
    RecConcave); no padding of the range; a defined answer, the first integer of the range, if no interval is released.
    The cost is that of 3N − 2 calls, not 3N.

    Parameters
    ----------
    pieces : Pieces
        The score Q on its range.
    promise : int, float, Fraction or Decimal
        A value that Q reaches. If it does not, or if Q is not quasi-concave, the answer may be poor but is as private.
        `required_promise` returns the promise that is needed for a good answer with probability 1 − `failure`.
    accuracy : int, float, Fraction or Decimal
        The share of the promise that may be lost, in (0, 1).
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    delta : int, float, Fraction or Decimal, default 0
        Failure probability δ of the guarantee; above 0 for depths above 1.
    depth : int or "auto", default "auto"
        Depth N of the recursion. "auto" takes the depth that needs the least promise (`choose_depth`).
    failure : int, float, Fraction or Decimal, default 0.05
        The probability of a poor answer that depth and shares of ε are chosen for.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int
        The point, and the event `BoundedRange(epsilon)` at depth 1, else `ApproximateDP(epsilon, delta)`.

    Examples
    --------
    >>> from reticent.mechanisms.pieces import median_pieces
    >>> rows = range(10**30, 10**30 + 8000)
    >>> score = median_pieces(rows, bits=1000)
    >>> value, event = quasi_concave_maximum(score, promise=4000, accuracy=0.5, epsilon=1, delta=1e-6)
    >>> score(value) >= 2000, event
    (True, ApproximateDP(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000)))
    """
    check_pieces(pieces)
    goal = SearchGoal(check_positive(promise, "promise"), check_share(accuracy, "accuracy"))
    exact, rest, share = check_epsilon(epsilon), check_delta(delta), check_share(failure, "failure")
    if depth == "auto":
        depth = choose_depth(pieces.size, accuracy=goal.accuracy, epsilon=exact, delta=rest, failure=share)
    needs = _needs(pieces.size, accuracy=goal.accuracy, delta=rest, failure=share, depth=depth)
    budgets = _budgets(needs, epsilon=exact, delta=rest)
    event: Event = BoundedRange(exact)
    if len(budgets) > 1:
        event = ApproximateDP(exact, rest)
        _prepare_tables(budgets[:-1], epsilon)
    scores, unit = whole_units(pieces.values)
    point = _search(replace(pieces, values=scores), unit, goal, budgets, noise=noise_or_system(unsafe_noise))
    return release(point, event, unsafe_noise)


# ── the recursion ─────────────────────────────────────────────────────────────────────────────────────────────────


class SearchGoal(NamedTuple):
    """Find a point with a score of at least (1 − accuracy)·promise, given that some point has at least `promise`."""

    promise: Fraction
    accuracy: Fraction

    def below(self) -> SearchGoal:
        """Return the goal of the recursive search for the width of the intervals."""
        return SearchGoal(self.promise * self.accuracy / 2, Fraction(1, 4))


class LevelBudget(NamedTuple):
    """What one level may spend: ε on its draw, and (ε, δ) on each of its two interval releases (none at the lowest)."""

    draw: Fraction
    interval: Fraction
    delta: Fraction


def _search(pieces: Pieces, unit: int, goal: SearchGoal, budgets: Sequence[LevelBudget], *, noise: Noise) -> int:
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
    return draw_integer(parts, rate=budget.draw / (2 * unit), noise=noise)


def window_quality(pieces: Pieces, unit: int, goal: SearchGoal) -> tuple[Pieces, int]:
    """Return q(j) = min(L(j) − (1 − α)r, r − L(j + 1)) over 0 ≤ j ≤ J, with the unit of its values.

    A high q(j) means that some window of 2^j points is good throughout and none of 2^(j+1) points is nearly perfect.
    L(J + 1) = min(0, L(J)). q is quasi-concave for every score, since L does not increase.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Claim 3.13; by Remark 3.17 only the outermost call is large.
    """
    enough, plenty = (1 - goal.accuracy) * goal.promise, goal.promise
    finer = math.lcm(unit, enough.denominator, plenty.denominator)
    least = _scaled(window_minima(pieces), finer // unit, headroom=int(plenty * finer))
    following = np.concatenate((least[1:], np.minimum(least[-1:], 0)))
    quality = np.minimum(least - int(enough * finer), int(plenty * finer) - following)
    starts = np.concatenate(([0], 1 + np.flatnonzero(quality[1:] != quality[:-1])))
    return Pieces(0, len(quality) - 1, starts.astype(np.uint64), quality[starts]), finer


def _released(
    pieces: Pieces, unit: int, *, shift: int, width: int, budget: LevelBudget, noise: Noise
) -> tuple[int, int] | None:
    """The best interval [low, high] of the cut of [shift, T] into intervals of 2^width points, if released."""
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
    """Return the index and the lead of the best of the intervals of 2^width points that [shift, T] is cut into.

    The score of an interval is that of its best point. The first of several best intervals counts as the best, with a
    lead of 0.
    """
    begin, values = pieces.locate(shift), pieces.values
    winner = begin + int(np.argmax(values[begin:]))
    index = max(int(pieces.offsets[winner]) - shift, 0) >> width
    low, high = shift + (index << width), shift + ((index + 1) << width) - 1
    # The pieces that reach outside of the interval on either side; the winning one may be among them.
    before = values[begin : pieces.locate(low - 1) + 1] if low > shift else values[:0]
    after = values[pieces.locate(high + 1) :] if high < pieces.size - 1 else values[:0]
    return index, int(values[winner]) - max(int(side.max()) for side in (before, after) if len(side))


def _union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same points as disjoint intervals, for at most two intervals."""
    (low, high), (other_low, other_high) = intervals[0], intervals[-1]
    if max(low, other_low) <= min(high, other_high):
        return [(min(low, other_low), max(high, other_high))]
    return intervals


def _scaled(numbers: Array, factor: int, *, headroom: int) -> Array:
    """numbers·factor, as Python ints unless sums with numbers up to `headroom` fit a machine integer."""
    reach = max(abs(int(numbers.max())), abs(int(numbers.min()))) * factor + abs(headroom)
    return (numbers if reach < 1 << 62 else numbers.astype(object)) * factor


# ── the required promise, and the split of the budget ────────────────────────────────────────────────────────────


def required_promise(
    size: int, *, accuracy: Number, epsilon: Number, delta: Number = 0, failure: Number = 0.05, depth: int
) -> int:
    """Return the least whole promise for which a search of this depth fails with probability at most `failure`.

    Each of the 2N − 1 calls that must succeed may fail with probability β = failure/(2N − 1). At a level with accuracy
    α and promise r (then 1/4 and αr/2 one level below):

    - the draw inside the released intervals is good if r ≥ (16/(3αε_e))·ln(16/β), as a sixteenth of the points have
      scores of at least (1 − 5α/8)r;
    - the good interval leads by 3αr/8, and is released if that is at least 2 + (2/ε_d)·ln(1/(4βδ_d));
    - the lowest level, on [0, T], is good if r ≥ (2/(αε_b))·ln((T + 1)/β).

    The logarithms are floating-point numbers, for planning only; privacy does not depend on them.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 3.14, Theorem 3.15 and Remark 3.16, with what each call needs in place of one bound for all of them.

    Parameters
    ----------
    size : int
        The number of integers in the range.
    accuracy, epsilon, delta, failure, depth
        As in `quasi_concave_maximum`; `depth` is a number.

    Examples
    --------
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


def check_depth(depth: object) -> int:
    """Return a depth that is not "auto": a whole number from 1 on."""
    if isinstance(depth, str):
        raise ValueError(f'depth must be "auto" or a whole number ≥ 1, got {depth!r}')
    return integer(depth, "depth", least=1)


def choose_depth(
    size: int, *, accuracy: Number, epsilon: Number, delta: Number = 0, failure: Number = 0.05
) -> int:
    """Return the depth with the least `required_promise` on a range of `size` integers; 1 if δ = 0.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Observation 3.10: there are at most log* of the size to choose from. The paper takes the deepest.

    Parameters
    ----------
    size : int
        The number of integers in the range.
    accuracy, epsilon, delta, failure
        As in `quasi_concave_maximum`.

    Examples
    --------
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


def _needs(size: int, *, accuracy: Number, delta: Number, failure: Number, depth: int | str) -> tuple[_Need, ...]:
    """What the levels need, from the top one down. Their number N is a function of the range and `depth` alone."""
    if isinstance(depth, str):
        raise ValueError(f'depth must be "auto" or a whole number ≥ 1, got {depth!r}')
    ranges = _ranges(size)[: integer(depth, "depth", least=1)]
    shares = check_share(accuracy, "accuracy"), check_share(failure, "failure")
    return _needs_of_levels(len(ranges), ranges[-1], *shares, check_delta(delta, positive=len(ranges) > 1))


@lru_cache(maxsize=256)  # parameters are public, and the same in every run
def _needs_of_levels(
    levels: int, lowest: int, accuracy: Fraction, failure: Fraction, delta: Fraction
) -> tuple[_Need, ...]:
    """What the levels need, if the range of the lowest has this size."""
    uppers = levels - 1
    # The lower limits keep extreme parameters within the range of floating-point numbers.
    alpha, beta = max(float(accuracy), 1e-30), max(float(failure), 1e-300) / (2 * uppers + 1)
    needs, scale = [], 1.0  # the promise of the level is `scale` times the promise at the top
    for _ in range(uppers):
        log_delta = math.log(delta.numerator) - math.log(delta.denominator * 2 * uppers)
        unit = 16 / (3 * alpha * scale)
        needs.append(_Need(unit * math.log(16 / beta), unit * (-math.log(4 * beta) - log_delta), unit))
        alpha, scale = 0.25, scale * alpha / 2
    return (*needs, _Need(2 / (alpha * scale) * (math.log(lowest) - math.log(beta))))


def _budgets(needs: tuple[_Need, ...], *, epsilon: Number, delta: Number) -> Sequence[LevelBudget]:
    """ε in proportion to what each call needs (so that one promise suits all), δ in equal parts.

    Any split that adds up is private; this one almost minimises the promise needed.
    """
    return _split(needs, check_epsilon(epsilon), check_delta(delta))


@lru_cache(maxsize=256)
def _split(needs: tuple[_Need, ...], epsilon: Fraction, delta: Fraction) -> tuple[LevelBudget, ...]:
    shares = [(math.ceil(need.draw), math.ceil(need.interval)) for need in needs]
    unit = epsilon / sum(draw + 2 * interval for draw, interval in shares)
    each = delta / max(1, 2 * (len(needs) - 1))
    return tuple(LevelBudget(draw * unit, interval * unit, each) for draw, interval in shares)


def _ranges(size: int) -> list[int]:
    """The sizes of the ranges of the recursion, down to the first that is small: size, ⌊log2 size⌋ + 1, …"""
    sizes = [integer(size, "size", least=1)]
    while sizes[-1] > SMALL + 1:
        sizes.append(sizes[-1].bit_length())
    return sizes


def _prepare_tables(budgets: Sequence[LevelBudget], epsilon: Number) -> None:
    """Build the tables of release probabilities before the scores are read, so that run time does not reveal scores."""
    try:
        for budget in budgets:
            release_table(epsilon=budget.interval, delta=budget.delta)
    except ValueError as error:
        raise ValueError(f"epsilon={epsilon} is too small to release intervals: raise it, or set depth=1") from error
