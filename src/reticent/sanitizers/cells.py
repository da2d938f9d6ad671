"""A line cut into cells with noisy counts, level by level, and the copy of the rows that these amount to.

What is done to the counts once they are released costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.points import Array
from reticent.mechanisms.counts import add_noise
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ZCDP, DiscreteGaussian, Event, PureDP, Repeated

Floats = NDArray[np.float64]
_GRID = np.linspace(0.004, 0.996, 249)
_LOGS = np.log1p(-_GRID * _GRID)
BAND = 0.5  # how far, in shares of the error promised for it, an estimate may stray from the one that has the promise


@dataclass(frozen=True)
class Level:
    """Ranges [lows[i], highs[i]] with noisy counts; range i is a part of range parents[i] of the level above.

    The parts of a range are all listed, one after the other. A range that has no parts in the level below is a cell.
    """

    lows: Array
    highs: Array
    parents: NDArray[np.int64]
    counts: NDArray[np.int64]


# ── noise ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class CountNoise:
    """Integer noise for the counts of `levels` partitions of the rows: discrete Laplace, or discrete Gaussian.

    A replaced row leaves one part of a partition and enters another: over all levels it moves 2·levels counts by 1.
    """

    levels: int
    scale: Fraction
    gaussian: bool

    @property
    def event(self) -> Event:
        """What the counts of all levels amount to."""
        if self.gaussian:
            return Repeated(DiscreteGaussian(self.scale, 2), self.levels)
        return Repeated(PureDP(2 / self.scale), self.levels)

    def added(self, counts: Array, noise: Noise) -> NDArray[np.int64]:
        """The counts with noise."""
        draw = noise.discrete_gaussian if self.gaussian else noise.discrete_laplace
        return np.asarray(add_noise(counts.astype(np.int64), draw, self.scale))

    def reach(self, probability: float, variance: float = 1.0) -> float:
        """What a sum of noise exceeds with at most this probability, to either side with at most twice as much.

        The sum has weights of at most 1, whose squares sum to `variance`. By Chernoff's bound: discrete Gaussian noise
        has E e^(λZ) ≤ e^(λ²σ²/2), discrete Laplace noise E e^(λZ) ≤ 1/(1 − λ²s²), and −ln(1 − w²y) ≤ −w²·ln(1 − y).
        """
        scale, log = float(self.scale), -math.log(probability)
        if self.gaussian:
            return scale * math.sqrt(2 * log * variance)
        # The best λ = x/s makes (log − V·ln(1 − x²))/x least; any λ gives a bound.
        return scale * float(np.min((log - variance * _LOGS) / _GRID))


@lru_cache(maxsize=256)
def concentrated(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Nearly the largest ρ for which ρ-zCDP is (ε, δ)-DP; for planning, from which a calibration then starts."""
    return 1 / calibrate.noise(lambda inverse: ZCDP(1 / inverse), epsilon=epsilon, delta=delta, digits=3)


def short(value: float, digits: int = 4) -> Fraction:
    """A short decimal close to a positive number, so that exact arithmetic with it stays cheap."""
    return Fraction(f"{value:.{digits - 1}e}")


# ── estimates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def adjusted(levels: list[Level], rows: int) -> list[Floats]:
    """The best linear unbiased estimates of all counts, given that parts add up to their whole and all to `rows`.

    Of every whole, its own count and the sum of its parts are averaged by their variances, from the lowest level
    upwards; then what the parts fail to add up to is dealt out among them, in proportion to their variances.
    """
    values: list[Floats] = [level.counts.astype(np.float64) for level in levels]
    spreads = [np.ones(len(level.counts)) for level in levels]
    sums: list[tuple[Floats, Floats]] = []
    for depth in range(len(levels) - 1, -1, -1):
        parents, size = levels[depth].parents, len(values[depth - 1]) if depth else 1
        total: Floats = np.bincount(parents, weights=values[depth], minlength=size).astype(np.float64)
        spread: Floats = np.bincount(parents, weights=spreads[depth], minlength=size).astype(np.float64)
        sums.append((total, spread))
        if depth:
            own = np.where(spread > 0, spread / (spread + 1), 1.0)  # the weight of a range's own count
            values[depth - 1] = own * values[depth - 1] + (1 - own) * total
            spreads[depth - 1] = own
    wholes = np.array([float(rows)])
    for depth, (whole, together) in enumerate(reversed(sums)):
        parents = levels[depth].parents
        values[depth] += (wholes - whole)[parents] * spreads[depth] / together[parents]
        wholes = values[depth]
    return values


def two_sided(levels: list[Level], rows: int) -> list[Floats]:
    """How many rows lie below each range, estimated from counts of ranges that do not hold it, and its own.

    One estimate is the sum of the counts of all ranges to the left of it and of the ranges that hold it, within the
    same whole; the other is `rows` less such a sum to the right, with its own count. Of K and R counts, these are
    averaged with the weights R/(K + R) and K/(K + R): the variance is KR/(K + R) ≤ (K + R)/4 times that of a count.
    """
    left, lefts, right, rights = (np.zeros(1) for _ in range(4))
    found = []
    for level in levels:
        counts, parents = level.counts.astype(np.float64), level.parents
        first = np.flatnonzero(np.append(True, parents[1:] != parents[:-1]))
        sizes = np.diff(np.append(first, len(counts)))
        begin = np.repeat(first, sizes)
        before = np.cumsum(counts) - counts
        before -= before[begin]
        onwards = np.repeat(np.add.reduceat(counts, first), sizes) - before
        position = np.arange(len(counts)) - begin
        left, lefts = left[parents] + before, lefts[parents] + position
        right, rights = right[parents] + onwards, rights[parents] + np.repeat(sizes, sizes) - position
        found.append((left * rights + (rows - right) * lefts) / (lefts + rights))
        right, rights = right - counts, rights - 1
    return found


def estimates(levels: list[Level], rows: int) -> tuple[Array, Array, Floats, Floats]:
    """The cells in ascending order, least and greatest value of each, and how many rows lie below it: by least squares
    and two-sided.
    """
    counts, anchors = adjusted(levels, rows), two_sided(levels, rows)
    cells = [np.ones(len(level.lows), dtype=bool) for level in levels]
    for cell, level in zip(cells, levels[1:], strict=False):
        cell[level.parents] = False
    lows, highs, count, anchor = (
        np.concatenate([column[cell] for column, cell in zip(columns, cells, strict=True)])
        for columns in ([level.lows for level in levels], [level.highs for level in levels], counts, anchors)
    )
    order = np.argsort(lows)
    return lows[order], highs[order], np.cumsum(count[order]) - count[order], anchor[order]


def copy_of_cells(levels: list[Level], rows: int, *, band: float | None = None) -> tuple[Array, Floats]:
    """The points and weights of a copy: one half of what lies in a cell is put at either end of it.

    So wherever the rows of a cell of s rows are, no prefix of the line is off by more than s/2 for it. With a `band`,
    no estimate of the rows below a cell is more than that from the two-sided one. The estimates are made ascending by
    the mean of the running maximum and of the running minimum from above; neither moves an estimate further from the
    truth than the worst one was.
    """
    lows, highs, below, anchors = estimates(levels, rows)
    if band is not None:
        below = np.clip(below, anchors - band, anchors + band)
    below[0] = 0
    below = np.append(np.clip(below, 0, rows), rows)
    rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
    points = np.stack([lows, highs], axis=1).reshape(-1)
    weights = np.repeat(np.diff(rising) / (2 * rows), 2)
    single = 2 * np.flatnonzero(lows == highs)
    weights[single] *= 2
    weights[single + 1] = 0
    return points[weights > 0], weights[weights > 0]


# ── offsets of a domain ───────────────────────────────────────────────────────────────────────────────────────────


def as_offsets(numbers: Any, size: int) -> Array:
    """Numbers of [0, size) as uint64 where that fits, else as Python ints."""
    if size <= 1 << 64:
        return np.asarray(numbers, dtype=np.uint64)
    array = np.empty(len(numbers), dtype=object)
    array[:] = [int(number) for number in numbers]
    return array


def counts_in(data: Array, lows: Array, highs: Array) -> NDArray[np.int64]:
    """How many of the ascending data lie in each range."""
    return np.asarray(np.searchsorted(data, highs, side="right") - np.searchsorted(data, lows, side="left"))
