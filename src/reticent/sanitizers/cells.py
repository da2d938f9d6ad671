"""A line cut into cells with noisy counts, level by level, and the private copy that is computed from them.

All that is computed from released counts costs no privacy.
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
BAND = 0.5  # how far an estimate may be from the one that has the promise, as a share of the error promised for that


@dataclass(frozen=True)
class Level:
    """Ranges with noisy counts; range i is a part of range parents[i] of the level above.

    All parts of a range are listed, one after the other. A range without parts in the level below is a cell.

    Parameters
    ----------
    lows, highs : array
        The ends of the ranges, both included.
    parents : array of int
        The index of the range above.
    counts : array of int
        The noisy counts.
    """

    lows: Array
    highs: Array
    parents: NDArray[np.int64]
    counts: NDArray[np.int64]


# ── noise ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class CountNoise:
    """Integer noise for the counts of several partitions of the rows.

    A replaced row leaves one part of a partition and enters another: over all levels it moves 2·levels counts by 1.

    Parameters
    ----------
    levels : int
        The number of partitions.
    scale : Fraction
        The scale of the noise.
    gaussian : bool
        Whether the noise is discrete Gaussian, or else discrete Laplace.
    """

    levels: int
    scale: Fraction
    gaussian: bool

    @property
    def event(self) -> Event:
        """The event of the counts of all levels."""
        if self.gaussian:
            return Repeated(DiscreteGaussian(self.scale, 2), self.levels)
        return Repeated(PureDP(2 / self.scale), self.levels)

    def added(self, counts: Array, noise: Noise) -> NDArray[np.int64]:
        """The counts with noise."""
        draw = noise.discrete_gaussian if self.gaussian else noise.discrete_laplace
        return np.asarray(add_noise(counts.astype(np.int64), draw, self.scale))

    def reach(self, probability: float, variance: float = 1.0) -> float:
        """A level that a weighted sum of noise exceeds with at most the given probability, on one side.

        Why. By Chernoff's bound: discrete Gaussian noise has E e^(λZ) ≤ e^(λ²σ²/2), discrete Laplace noise
        E e^(λZ) ≤ 1/(1 − λ²s²), and −ln(1 − w²y) ≤ −w²·ln(1 − y).

        Parameters
        ----------
        probability : float
            The probability.
        variance : float, default 1
            The sum of the squares of the weights, which are at most 1 each.
        """
        scale, log = float(self.scale), -math.log(probability)
        if self.gaussian:
            return scale * math.sqrt(2 * log * variance)
        # The best λ = x/s makes (log − V·ln(1 − x²))/x least; any λ gives a bound.
        return scale * float(np.min((log - variance * _LOGS) / _GRID))


@lru_cache(maxsize=256)
def concentrated(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Nearly the largest ρ for which ρ-zCDP is (ε, δ)-DP; for plans that are calibrated later."""
    return 1 / calibrate.noise(lambda inverse: ZCDP(1 / inverse), epsilon=epsilon, delta=delta, digits=3)


def short_decimal(value: float, digits: int = 4) -> Fraction:
    """A short decimal close to a positive number, so that exact arithmetic with it stays cheap."""
    return Fraction(f"{value:.{digits - 1}e}")


# ── estimates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def adjusted(levels: list[Level], rows: int) -> list[Floats]:
    """The best linear unbiased estimates of all counts, given that parts sum to their whole and all to `rows`.

    From the lowest level upwards, the count of every whole and the sum of its parts are averaged by their variances.
    Then the difference between a whole and its parts is distributed among them, in proportion to their variances.

    Parameters
    ----------
    levels : list of Level
        The noisy counts.
    rows : int
        The number of rows.
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
    """Estimate how many rows lie below each range, from its own count and those of ranges that do not contain it.

    One estimate is the sum of the K counts to the left of it and of the ranges that contain it, within the same whole.
    The other is `rows` less the sum of the R such counts to the right, its own included. They are averaged with the
    weights R/(K + R) and K/(K + R): the variance is KR/(K + R) ≤ (K + R)/4 times that of a count.

    Parameters
    ----------
    levels : list of Level
        The noisy counts.
    rows : int
        The number of rows.
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
    """The cells, and how many rows lie below each of them.

    Parameters
    ----------
    levels : list of Level
        The noisy counts.
    rows : int
        The number of rows.

    Returns
    -------
    lows, highs : array
        The ends of the cells, ascending.
    below, anchors : array of float
        The rows below each cell, by least squares and by the two-sided estimate.
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
    """The points and weights of a copy: half of the rows of a cell are put at each end of it.

    So a cell of s rows adds at most s/2 to the error of a prefix, wherever its rows are. The estimates are made
    ascending by the mean of the running maximum and of the running minimum from above. Neither moves an estimate
    further from the truth than the worst one was.

    Parameters
    ----------
    levels : list of Level
        The noisy counts.
    rows : int
        The number of rows.
    band : float or None, default None
        How far an estimate of the rows below a cell may be from the two-sided one.

    Returns
    -------
    points : array
        Offsets in the domain, ascending.
    weights : array of float
        The share of rows of each point.
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
