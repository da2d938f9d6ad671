"""Axes cut into cells by private copies, with noisy counts of the cells: the partition method for rectangles."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from reticent.concepts.domains import Domain
from reticent.data.points import Array
from reticent.learners.ranks import first_and_last, rank_type
from reticent.mechanisms.counts import laplace_tail
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ApproximateDP, Composed, Event, PureDP, Repeated
from reticent.privacy.parameters import check_epsilon
from reticent.promises import fewest_rows, rows_needed
from reticent.sanitizers.thresholds import ThresholdSanitizer


class Grid(NamedTuple):
    """A partition of an axis into cells.

    Parameters
    ----------
    size : int
        Cells have a weight of at most 1/size.
    noise : int
        The level that the noise in the count of a cell does not reach.
    cut : float
        The number of rows that may be cut off, apart from the error of the sanitizer.
    """

    size: int
    noise: int
    cut: float


def finest_grid(rows: int, columns: int, epsilon: Fraction, failure: Fraction) -> Grid:
    """The grid that cuts off the fewest rows, among sizes that are powers of two.

    Parameters
    ----------
    rows, columns : int
        The size of the data.
    epsilon : Fraction
        ε of the histogram of one axis.
    failure : Fraction
        The probability with which the noise of any cell may be larger than `noise`.
    """
    grids = []
    for exponent in range(1, rows.bit_length() + 1):
        size, most = 1 << exponent, 2 * (1 << exponent) + 1
        level = laplace_tail(rate=epsilon / 2, probability=failure / (2 * columns * most))
        grids.append(Grid(size, level, 2 * level * most + rows / size))
    return min(grids, key=lambda grid: grid.cut)


def plan_partition(
    sanitizer: ThresholdSanitizer, columns: int, alpha: float, failure: Fraction
) -> tuple[int, float]:
    """The number of rows needed, and the error that the copies may then have.

    Parameters
    ----------
    sanitizer : ThresholdSanitizer
        The sanitizer of one axis.
    columns : int
        The number of columns.
    alpha : float
        The error to promise.
    failure : Fraction
        The probability with which the promise may fail.
    """
    parameters = sanitizer.get_params()
    return _plan_partition(tuple(sorted(parameters.items())), columns, alpha, failure)


@lru_cache(maxsize=256)
def _plan_partition(
    parameters: tuple[tuple[str, Any], ...], columns: int, alpha: float, failure: Fraction
) -> tuple[int, float]:
    sanitizer, slab = ThresholdSanitizer(**dict(parameters)), alpha / (2 * columns)
    epsilon = check_epsilon(sanitizer.epsilon)

    def rows_for(off: float) -> int:
        def suffices(rows: int) -> bool:
            cut = finest_grid(rows, columns, epsilon, failure / 3).cut / rows + 2 * off
            return cut < slab and 2 * columns * math.exp(-rows * _divergence(cut, slab)) <= failure / 3

        return max(rows_needed(sanitizer.n_required, off), fewest_rows(suffices))

    return min((rows_for(part * slab), part * slab) for part in (0.0625, 0.125, 0.25))


def axis_cells(points: list[int], weights: list[float], most: float, domain: Domain) -> list[tuple[int, int]]:
    """Cut a domain into cells: single points, or of weight at most `most`.

    The weights of two consecutive cells, of which the second is not the last, sum to more than `most`. So there are at
    most 2/most + 1 cells if all weights sum to at most 1.

    Parameters
    ----------
    points : list of int
        Ascending ranks.
    weights : list of float
        The weight of each point.
    most : float
        The largest weight of a cell of several points.
    domain : Domain
        The domain that the cells fill.

    Returns
    -------
    list of (int, int)
        The ranges [low, high], in order.
    """
    start, last = first_and_last(domain)
    cells, held = [], 0.0
    for point, weight in zip(points, weights, strict=True):
        if held + weight > most:
            if start < point:
                cells.append((start, point - 1))
            start, held = point, 0.0
            if weight > most:
                cells.append((point, point))
                start, weight = point + 1, 0.0  # noqa: PLW2901
        held += weight
    return [*cells, (start, last)] if start <= last else cells


def cell_counts(ranks: Array, cells: list[tuple[int, int]], domain: Domain) -> list[int]:
    """The number of ranks in each cell.

    Parameters
    ----------
    ranks : array of int
        The ranks.
    cells : list of (int, int)
        The cells of the axis, from `axis_cells`.
    domain : Domain
        The domain.
    """
    kind = rank_type(domain)
    highs = np.array([high for _, high in cells], dtype=kind)
    cell_indices = np.searchsorted(highs, ranks.astype(kind))
    return [int(count) for count in np.bincount(cell_indices, minlength=len(cells))]


def outermost_cells(
    cells: list[tuple[int, int]], counts: list[int], level: int, scale: Fraction, noise: Noise
) -> tuple[int, int] | None:
    """The inner ends of the first and the last cell whose noisy count reaches the level; None if none does.

    Parameters
    ----------
    cells : list of (int, int)
        The cells of the axis.
    counts : list of int
        Their counts.
    level : int
        The level.
    scale : Fraction
        The scale of the discrete Laplace noise.
    noise : Noise
        Where the noise is drawn from.
    """

    def reaches(index: int) -> bool:
        return noise.laplace_cell(scale, [level - counts[index]]) == 1

    # The cells between the two do not matter, so their noise is not drawn.
    left = next((index for index in range(len(cells)) if reaches(index)), None)
    if left is None:
        return None
    right = next((index for index in range(len(cells) - 1, left, -1) if reaches(index)), left)
    return cells[left][1], cells[right][0]


@lru_cache(maxsize=256)
def partition_share(columns: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ε that every sanitizer and every histogram may have within (ε, δ)."""
    if delta == 0:
        return epsilon / (2 * columns)
    divisor = calibrate.noise(lambda x: partition_event(epsilon / x, columns, delta), epsilon=epsilon, delta=delta)
    return epsilon / min(divisor, Fraction(2 * columns))


def partition_event(share: Fraction, columns: int, delta: Fraction) -> Event:
    """The event of the sanitizers, which use half of δ, and of the histograms; `share` is the ε of each."""
    copies = Repeated(ApproximateDP(share, delta / (2 * columns)), columns)
    return Composed((copies, Repeated(PureDP(share), columns)))


def _divergence(share: float, probability: float) -> float:
    """The exponent of Chernoff's bound: P(Bin(n, probability) ≤ share·n) ≤ e^(−n·divergence)."""
    return share * math.log(share / probability) + (1 - share) * math.log((1 - share) / (1 - probability))
