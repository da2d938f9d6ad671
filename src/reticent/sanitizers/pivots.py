"""Medians of medians: the line is cut where the rows are, and the rows between the cuts are counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from reticent.data.points import Array
from reticent.mechanisms.exponential import exponential_over_pieces
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import quasi_concave_maximum, required_promise
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ApproximateDP, BoundedRange, Composed, Event, Repeated
from reticent.sanitizers.cells import BAND, CountNoise, Level, as_offsets, concentrated, counts_in, short_decimal

SHARES = {1: 0.6, 2: 0.8}  # of the budget, for the medians at either depth of the search; best in measurements
PARTS = {1: 3, 2: 8}  # by which part of the bound's noise the levels are chosen; best in measurements
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class MedianSearch:
    """How a median is found: by the exponential mechanism (depth 1), or by RecConcave of depth 2.

    Parameters
    ----------
    epsilon, delta : Fraction
        The privacy of one search.
    depth : int
        1 or 2.
    """

    epsilon: Fraction
    delta: Fraction
    depth: int

    def event(self, levels: int) -> Event:
        """The event of the searches of all levels."""
        if self.depth == 1:
            return Repeated(BoundedRange(self.epsilon), levels)
        return Repeated(ApproximateDP(self.epsilon, self.delta), 2 * levels)


@dataclass(frozen=True)
class Pivots:
    """A plan to cut the line at a private median of all rows, both sides at their medians, and so on.

    A range is cut into what lies below a *pivot* a, the single value a, and what lies above. The pivot has a high score
    Q(a) = min(#{x ≤ a}, #{x ≥ a}), counted among the rows of the range. So neither side holds much more than half of
    them, and a frequent value becomes a part of its own. The three parts are counted, with noise; those with more than
    rows/2^levels rows are cut again.

    Guarantee. ε-differential privacy for a replaced row if noise and search are pure, else (ε, δ). Public are the
    number of rows, the size of the domain and every parameter.

    Why. Which ranges of a level are cut is a function of the pivots and noisy counts above, and they are disjoint. At
    depth 1 all pivots of a level are one exponential mechanism with the score ΣQ, which a replaced row moves by at most
    1: a level costs as much as a single median. At depth 2 the scores of at most two ranges move, so a level costs two
    calls of `quasi_concave_maximum`. The counts cost what those of `Tree` cost. The proof is in
    `docs/sanitizers/thresholds.md`.

    Promise. Except with probability `failure`, every prefix is correct up to `bound` rows.

    Source. Kaplan, Schnapp, Stemmer, *Differentially Private Approximate Quantiles*, for recursive medians under
    added and removed rows. New: the cost of a level under replaced rows, single values as cells, counts in place of
    ranks (without which a frequent value has no weight), and RecConcave for the search. Beimel, Nissim, Stemmer,
    *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*, Theorem 3.15 (RecConcave).

    Parameters
    ----------
    size : int
        The number of values of the domain.
    rows : int
        The number of rows.
    search : MedianSearch
        How a pivot is found.
    counting : CountNoise
        The noise of the counts.
    failure : Fraction
        The probability with which the promise may fail.
    """

    size: int
    rows: int
    search: MedianSearch
    counting: CountNoise
    failure: Fraction

    @property
    def event(self) -> Event:
        """The event of a release."""
        return Composed((self.search.event(self.counting.levels), self.counting.event))

    @cached_property
    def _tails(self) -> tuple[float, float]:
        """t₁ of a single count, and t₂ of a two-sided estimate."""
        share = float(self.failure) / 3 / (3 << self.counting.levels)
        return self.counting.reach(share), self.counting.reach(share / 2, (2 * self.counting.levels + 1) / 4)

    @cached_property
    def lost(self) -> int:
        """r: how much of the best score a search may lose."""
        return _lost(self.size, self.search, self.failure / 3 / (1 << self.counting.levels))

    @property
    def band(self) -> float:
        """How far the published estimates may be from the two-sided ones, in rows."""
        return BAND * self._tails[1]

    @property
    def least(self) -> int:
        """A range with a noisy count of no more than this is not cut."""
        return self.rows >> self.counting.levels

    @property
    def bound(self) -> float:
        """The error of a prefix that is promised, in rows."""
        own, prefix = self._tails
        whole = self.rows / (1 << self.counting.levels) + 1
        if self.search.depth == 1:
            cell = whole + max(2 * self.lost, own)
        else:
            cell = max(whole + 2 * (self.lost + own), 4 * self.lost + 2 * own)
        return cell / 2 + (1 + BAND) * prefix

    @property
    def expected(self) -> float:
        """The error of a prefix that was measured, roughly, in rows: searches lose less than they may."""
        return self.likely(8)

    def likely(self, part: int) -> float:
        """Half of a cell, plus the rest of the bound divided by `part`."""
        cell = self.rows / (2 << self.counting.levels)
        return cell + (self.bound - cell) / part

    def calibrated(self, epsilon: Fraction, delta: Fraction) -> Pivots:
        """The same plan with the least noise that fits (ε, δ)."""
        if not delta:
            return self
        search, counting = _least_noise(self.search, self.counting, epsilon, delta)
        return replace(self, search=search, counting=counting)

    def release(self, data: Array, noise: Noise) -> list[Level]:
        """Release the pivots and the noisy counts.

        Parameters
        ----------
        data : array
            The rows as offsets in the domain, ascending.
        noise : Noise
            Where the noise is drawn from.

        Returns
        -------
        list of Level
            The counted ranges, level by level.
        """
        ranges = [(0, 0, self.size - 1, self.rows)]  # number, least, greatest, noisy count of what is cut next
        found: list[Level] = []
        while ranges and len(found) < self.counting.levels:
            parts: list[tuple[int, int, int]] = []
            for number, low, high, count in ranges:
                ends = as_offsets([low, high], self.size)
                begin, end = np.searchsorted(data, ends[0]), np.searchsorted(data, ends[1], side="right")
                pivot = self._pivot(data[begin:end], low, high, count, noise)
                sides = ((low, pivot - 1), (pivot, pivot), (pivot + 1, high))
                parts += [(number, least, greatest) for least, greatest in sides if least <= greatest]
            parents, lows, highs = zip(*parts, strict=True)
            starts, stops = as_offsets(lows, self.size), as_offsets(highs, self.size)
            counts = self.counting.added(counts_in(data, starts, stops), noise)
            found.append(Level(starts, stops, np.array(parents, dtype=np.int64), counts))
            listed = zip(range(len(parts)), lows, highs, counts.tolist(), strict=True)
            ranges = [part for part in listed if part[1] < part[2] and part[3] > self.least]
        return found

    def _pivot(self, data: Array, low: int, high: int, count: int, noise: Noise) -> int:
        own, search = math.ceil(self._tails[0]), self.search
        if search.depth == 1:
            # Scores so far below those of a median are almost never drawn: one floor for all of them saves time.
            score = median_score(data, low, high, count // 2 - self.lost - own)
            return exponential_over_pieces(score, epsilon=search.epsilon, unsafe_noise=noise).value
        promise = max(1, (count - own) // 2)
        accuracy = min(HALF, Fraction(self.lost, promise))
        return quasi_concave_maximum(
            median_score(data, low, high, 0),
            promise=promise,
            accuracy=accuracy,
            epsilon=search.epsilon,
            delta=search.delta,
            depth=search.depth,
            failure=self.failure / 3 / (1 << self.counting.levels),
            unsafe_noise=noise,
        ).value


def median_score(data: Array, low: int, high: int, floor: int) -> Pieces:
    """Q(a) = max(floor, min(#{x ≤ a}, #{x ≥ a})) for a in [low, high].

    Only rows at which Q exceeds the floor are read. Up to a median m, Q(a) = #{x ≤ a}; beyond it, Q(a) = #{x ≥ a}.

    Parameters
    ----------
    data : array
        The rows of the range, ascending.
    low, high : int
        The ends of the range.
    floor : int
        The least score.

    >>> list(median_score(np.array([3, 5, 9], dtype=np.uint64), 0, 15, 0).triples())
    [(0, 2, 0), (3, 4, 1), (5, 5, 2), (6, 9, 1), (10, 15, 0)]
    """
    size, floor = len(data), max(floor, 0)
    if size == 0:
        return Pieces.from_triples([(low, high, floor)])
    middle = data[(size - 1) // 2]
    below, upto = int(np.searchsorted(data, middle)), int(np.searchsorted(data, middle, side="right"))
    rising = data[min(floor, below) : below]
    ends = data[upto - 1 : max(upto, size - floor)]  # the median, and the rows after each of which Q falls
    number = int if data.dtype == object else data.dtype.type
    ends = ends[ends != number(high)]
    first = np.empty(1, dtype=data.dtype)
    first[0] = number(low)
    starts = np.concatenate([first, rising, data[below : below + 1], ends + number(1)])
    scores = np.concatenate(
        [
            [floor],
            np.arange(below - len(rising), below) + 1,
            [max(floor, min(upto, size - below))],
            np.maximum(floor, size - upto - np.arange(len(ends))),
        ]
    )
    final = np.append(starts[1:] != starts[:-1], True)  # where several steps fall on one point, the last one counts
    return Pieces.from_breakpoints(starts[final], scores[final], last=high)


# ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────────


def best_pivots(size: int, rows: int, *, epsilon: Fraction, delta: Fraction, failure: Fraction) -> list[Pivots]:
    """The plan with the least bound, and one with a small expected error; not calibrated.

    Among plans of one depth, the measured error was least, or close to it, for the plan with the least sum of half a
    cell and a third of the rest of the bound (an eighth for RecConcave).

    Parameters
    ----------
    size, rows : int
        The number of values of the domain, and of rows.
    epsilon, delta : Fraction
        The privacy of searches and counts.
    failure : Fraction
        The probability with which the bound may fail.
    """
    plans = [
        Pivots(size, rows, *_noise(epsilon, delta, levels, depth), failure)
        for depth in ((1, 2) if delta else (1,))
        for levels in range(1, max(2, rows.bit_length()))
    ]
    each = [[plan for plan in plans if plan.search.depth == depth] for depth in {plan.search.depth for plan in plans}]
    likely = [min(same, key=lambda plan: plan.likely(PARTS[plan.search.depth])) for same in each]
    return [min(plans, key=lambda plan: plan.bound), min(likely, key=lambda plan: plan.expected)]


@lru_cache(maxsize=1024)
def _noise(epsilon: Fraction, delta: Fraction, levels: int, depth: int) -> tuple[MedianSearch, CountNoise]:
    """How the budget is divided: in equal parts if δ = 0, else by `SHARES`."""
    if not delta:
        each = epsilon / (2 * levels)
        return MedianSearch(each, delta, 1), CountNoise(levels, 2 / each, gaussian=False)
    rho, share = float(concentrated(epsilon, delta)), SHARES[depth]
    # One level of depth 1 has ρ = ε₁²/8, one of depth 2 about ρ = 2·ε₁²/2, and its counts have ρ = 1/σ².
    own = math.sqrt(rho * share / levels * (8 if depth == 1 else 1))
    search = MedianSearch(short_decimal(own), delta / (4 * levels) if depth > 1 else Fraction(0), depth)
    return search, CountNoise(levels, short_decimal(math.sqrt(levels / (rho * (1 - share)))), gaussian=True)


@lru_cache(maxsize=1024)
def _lost(size: int, search: MedianSearch, failure: Fraction) -> int:
    promise = required_promise(
        size, accuracy=HALF, epsilon=search.epsilon, delta=search.delta, failure=failure, depth=search.depth
    )
    return -(-promise // 2)


@lru_cache(maxsize=256)
def _least_noise(
    search: MedianSearch, counting: CountNoise, epsilon: Fraction, delta: Fraction
) -> tuple[MedianSearch, CountNoise]:
    """All noise scaled by one factor, down to the least that fits (ε, δ)."""

    def scaled(factor: Fraction) -> tuple[MedianSearch, CountNoise]:
        return replace(search, epsilon=search.epsilon / factor), replace(counting, scale=counting.scale * factor)

    def event(factor: Fraction) -> Event:
        searching, noisy = scaled(factor)
        return Composed((searching.event(counting.levels), noisy.event))

    return scaled(calibrate.noise(event, epsilon=epsilon, delta=delta, digits=3))
