"""Noisy second moments of the rows, and the map that whitens them before a private descent.

A round releases Σ w·wᵀ of the rows as mapped so far. Directions that stand out of the noise are whitened; all others
get one common scale. A few such rounds make a descent independent of how columns are scaled. Privacy follows from the
length of integer rows, which is checked in integers, and from the calibrated noise; all constants below only affect how
well the map whitens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.exact import integer
from reticent.learners.descent import release_variance, row_bits
from reticent.learners.lattice import MOST_ENTRIES, WHOLE, Floats, Matrix, emptied, on_lattice
from reticent.learners.whitening import (
    CLEAR,
    Whitening,
    factor_inside,
    limited,
    mapped_blocks,
    partly_whitened,
)
from reticent.mechanisms.counts import WIDEST, gaussian_count
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.calibrate import sigma_of
from reticent.privacy.events import DiscreteGaussian, Event

DIAGONAL, OFF_DIAGONAL = 5, 7  # about 1 : √2, as Frobenius's norm counts each entry off the diagonal twice; 7² ≤ 2·5²
WIDE = 2000  # columns above which moments cost more than they tell
NARROW = 32  # columns up to which many rounds are worth their share
BROAD = 512  # columns above which column scales are not sought
MOST_ROUNDS = 32
MARGIN = 1.4  # the length to which mapped rows are shortened for the descent, in units of their root mean square length
SHORTEST = 1e-9  # the least mean squared length of mapped rows
NEAR, FAR = 10.0, 1000.0  # how far directions are stretched in which nothing is seen


# ── the plan: all that is fixed before the rows are read ──────────────────────────────────────────────────────────


class Round(NamedTuple):
    """One release of second moments.

    Parameters
    ----------
    share : Fraction
        Its share of the budget, as a share of μ².
    stretch : int
        The length to which mapped rows are shortened, in units of their estimated root mean square length.
    """

    share: Fraction
    stretch: int


@dataclass(frozen=True)
class MomentsPlan:
    """The rounds of second moments, their lattice and their noise. All of it is public.

    Parameters
    ----------
    rows, columns : int
        The number of rows (if labels may be missing, how many are expected to have one), and of columns with the
        constant one.
    rounds : tuple of Round
        The rounds; empty for none.
    sigmas : tuple of Fraction
        The noise of each round.
    radius : int
        R, the largest length of an integer row.
    mu : float
        μ, sensitivity over noise of a single release that uses up the whole (ε, δ).
    """

    rows: int
    columns: int
    rounds: tuple[Round, ...]
    sigmas: tuple[Fraction, ...]
    radius: int
    mu: float

    @property
    def share(self) -> Fraction:
        """The share of μ² that all rounds use."""
        return sum((each.share for each in self.rounds), Fraction(0))

    @property
    def squared_sensitivity(self) -> int:
        """50·R⁴: the squared distance by which one replaced row can move the released vector."""
        return 2 * DIAGONAL**2 * self.radius**4

    @property
    def events(self) -> tuple[Event, ...]:
        """One event per round."""
        return tuple(DiscreteGaussian(sigma, self.squared_sensitivity) for sigma in self.sigmas)


class ReleaseSchedule(NamedTuple):
    """What is released before the descent.

    Parameters
    ----------
    scales : Fraction
        The share of μ² for column scales; 0 for none.
    rounds : tuple of Round
        The rounds of second moments; empty for none.
    """

    scales: Fraction
    rounds: tuple[Round, ...]


def schedule(rows: int, columns: int, mu: float, *, places: int | None = None) -> ReleaseSchedule:
    """What is released of this many rows and columns, by a fixed rule of public numbers.

    With all directions whitened, rows have the squared length D, and noise is to be paid for in each of them. So rounds
    are fewer where columns are many, and there are none where rows are too few for them.

    Parameters
    ----------
    rows, columns : int
        n, and D: the number of columns with the constant one.
    mu : float
        μ, sensitivity over noise of a single release that uses up (ε, δ).
    places : int or None, default None
        The number of all rows, with and without a label; None is n.

    >>> [len(schedule(rows, 7, 0.22).rounds) for rows in (100, 180, 5000)]
    [0, 4, 10]
    """
    few, many = strengths(columns)
    if columns > WIDE or (places or rows) * columns > MOST_ENTRIES or rows * mu < few:
        return ReleaseSchedule(Fraction(0), ())
    if rows * mu < many:
        return ReleaseSchedule(Fraction(0), (Round(Fraction(1, 40), 1),) * 4)
    return chosen_rounds(10 if columns <= NARROW else 6, columns)


def strengths(columns: int) -> tuple[float, float]:
    """The values of n·μ from which on `schedule` has four rounds, and column scales and more rounds.

    Parameters
    ----------
    columns : int
        The number of columns with the constant one.
    """
    few = 12.6 * math.sqrt(columns)
    if columns > BROAD:
        return few, math.inf
    return few, max(few, (6 if columns <= NARROW else 3.2) * columns)


def chosen_rounds(count: int, columns: int) -> ReleaseSchedule:
    """Column scales, then this many rounds: 2 % of μ² each, but 30 % at most together.

    The last rounds, a third of them or a sixth, shorten rows less.

    Parameters
    ----------
    count : int
        The number of rounds.
    columns : int
        The number of columns with the constant one.

    >>> [float(sum(each.share for each in chosen_rounds(count, 7).rounds)) for count in (0, 4, 15, 20)]
    [0.0, 0.08, 0.3, 0.3]
    """
    if not count:
        return ReleaseSchedule(Fraction(0), ())
    narrow = columns <= NARROW
    share, late = min(Fraction(2, 100), Fraction(3, 10) / count), count // (3 if narrow else 6)
    rounds = (Round(share, 1),) * (count - late) + (Round(share, 2),) * late
    return ReleaseSchedule(Fraction(6 if narrow else 8, 100), rounds)


def check_rounds(rounds: object) -> str | int:
    """`rounds` as it is: "auto" or a number of rounds; ValueError or TypeError for anything else."""
    if isinstance(rounds, str):
        if rounds != "auto":
            raise ValueError(f"rounds must be 'auto' or a whole number, got {rounds!r}")
        return rounds
    return integer(rounds, "rounds", least=0, most=MOST_ROUNDS)


def plan_moments(
    *,
    rows: int,
    columns: int,
    epsilon: Fraction,
    delta: Fraction,
    rounds: tuple[Round, ...],
    places: int | None = None,
) -> MomentsPlan:
    """Plan rounds of second moments from public numbers.

    Parameters
    ----------
    rows, columns : int
        The number of rows, and of columns with the constant one.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of the whole: of these rounds and of the descent after them.
    rounds : tuple of Round
        The rounds.
    places : int or None, default None
        The number of all rows, with and without a label; None is `rows`.

    Returns
    -------
    MomentsPlan
        A plan that uses `plan.share` of μ².
    """
    if not rounds:
        return MomentsPlan(rows, columns, (), (), 1, 0.0)
    variance = release_variance(epsilon, delta)
    # All sums stay below 2^53, and the noise within 64 bits: a coarser lattice where they would not.
    bits, summed = row_bits(columns), places or rows
    least = min(each.share for each in rounds)
    while bits and (
        OFF_DIAGONAL * summed << 2 * bits >= WHOLE or 2 * DIAGONAL**2 * (variance / least) * 16**bits > WIDEST**2
    ):
        bits -= 1
    squared = 2 * DIAGONAL**2 * 16**bits
    sigmas = tuple(sigma_of(squared, variance / each.share) for each in rounds)
    return MomentsPlan(rows, columns, rounds, sigmas, 1 << bits, 1 / math.sqrt(variance))


# ── the release ───────────────────────────────────────────────────────────────────────────────────────────────────


def moment_sum(rows: Floats) -> NDArray[np.int64]:
    """What is released of integer rows W: 5·Mᵢᵢ and 7·Mᵢⱼ for i < j, of M = Σ W Wᵀ, row after row of the triangle.

    Exact, because absolute values of all terms sum to less than 2⁵³.

    >>> moment_sum(np.array([[2.0, 0.0], [1.0, 3.0]])).tolist()
    [25, 21, 45]
    """
    moments = (rows.T @ rows).astype(np.int64)
    return np.asarray((moments * _weights(len(moments)))[np.triu_indices(len(moments))])


def _weights(columns: int) -> NDArray[np.int64]:
    return np.where(np.eye(columns, dtype=bool), DIAGONAL, OFF_DIAGONAL).astype(np.int64)


def release_moments(
    rows: Matrix,
    matrix: Floats,
    bound: float,
    *,
    constant: bool,
    radius: int,
    sigma: Fraction,
    empty: NDArray[np.bool_] | None = None,
    unsafe_noise: Noise | None = None,
) -> Release[NDArray[np.int64]]:
    """Release `moment_sum` of the rows as mapped, shortened to `bound`, and rounded to a lattice.

    Guarantee. `DiscreteGaussian(sigma, 50·radius⁴)`, for one replaced row, and whether it is empty.

    Why. A row becomes an integer vector W with |W| ≤ R, which depends on this row alone. For W in place of Z,
    Δ = WWᵀ − ZZᵀ has the squared Frobenius norm |W|⁴ + |Z|⁴ − 2(W·Z)² ≤ 2R⁴. The released vector moves by
    25·Σ Δᵢᵢ² + 49·Σ_{i<j} Δᵢⱼ² ≤ 25·‖Δ‖² ≤ 50·R⁴. An empty row is W = 0. See `docs/learners/second_moments.md`.

    Parameters
    ----------
    rows, matrix, bound, constant
        As for `mapped_blocks`.
    radius : int
        R, with 7·rows·R² < 2⁵³.
    sigma : Fraction
        The noise.
    empty : array of bool, of shape (rows,), or None, default None
        Which rows count for nothing, the constant column included; None for none.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.
    """
    columns = len(matrix)
    total, first = np.zeros(columns * (columns + 1) // 2, dtype=np.int64), 0
    for block in mapped_blocks(rows, matrix, bound, constant=constant):
        counted = block if empty is None else emptied(block, empty[first : first + len(block)])
        total += moment_sum(on_lattice(counted * radius, radius**2))
        first += len(block)
    return gaussian_count(
        total, sigma=sigma, squared_sensitivity=2 * DIAGONAL**2 * radius**4, unsafe_noise=unsafe_noise
    )


def symmetric(released: NDArray[np.int64], columns: int) -> Floats:
    """The matrix M that `moment_sum` wrote as a vector.

    >>> symmetric(np.array([25, 21, 45]), 2).tolist()
    [[5.0, 3.0], [3.0, 9.0]]
    """
    found = np.zeros((columns, columns))
    found[np.triu_indices(columns)] = released
    found /= _weights(columns)
    return np.asarray(found + np.triu(found, 1).T)


def whiten(
    rows: Matrix,
    plan: MomentsPlan,
    *,
    constant: bool,
    factors: Floats | None = None,
    power: float = 1.0,
    margin: float = MARGIN,
    start: Floats | None = None,
    empty: NDArray[np.bool_] | None = None,
    unsafe_noise: Noise | None = None,
) -> tuple[Whitening, Floats | None]:
    """Run the rounds of a plan.

    Guarantee. `Composed(plan.events)`, for one replaced row, and whether it is empty.

    Why. The rounds and their noise are fixed beforehand. What a round maps rows by is computed from the releases
    before it and from public numbers; given these, the round is one `release_moments`. See
    `docs/learners/second_moments.md`.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns without the constant one)
        Rows of length at most 1.
    plan : MomentsPlan
        The plan, of at least one round.
    constant : bool
        Whether rows get a constant column.
    factors : array of shape (columns,) or None, default None
        By what columns are multiplied before the first round; None is 1. They are functions of releases.
    power : float, default 1
        How far the map whitens: the power of the second moments. It is a function of releases.
    margin : float, default 1.4
        The length to which mapped rows are shortened for the descent, in units of their root mean square length.
    start : array of shape (columns, outputs) or None, default None
        Public weights for unit rows, and for the constant 1.
    empty : array of bool, of shape (rows,), or None, default None
        Which rows count for nothing; None for none.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.

    Returns
    -------
    Whitening, array of shape (columns, outputs) or None
        The map that the last round leads to, and the weights for mapped rows that have the scores of `start`.
    """
    first = np.ones(plan.columns) if factors is None else factors
    matrix, inverse, length = np.diag(first), np.diag(1 / first), 1.0
    for number, (each, sigma) in enumerate(zip(plan.rounds, plan.sigmas, strict=True)):
        bound = each.stretch * length if number else 1.0
        released, _ = release_moments(
            rows,
            matrix,
            bound,
            constant=constant,
            radius=plan.radius,
            sigma=sigma,
            empty=empty,
            unsafe_noise=unsafe_noise,
        )
        moments = symmetric(released, plan.columns) * (bound**2 / (plan.rows * plan.radius**2))
        values, vectors = np.linalg.eigh(moments)
        # About half of the largest eigenvalue of the noise alone.
        floor = bound**2 * math.sqrt(plan.columns / each.share) / (plan.rows * plan.mu)
        scales = np.sqrt(np.maximum(values, floor))
        before = inverse
        matrix = matrix @ (vectors / scales) @ vectors.T
        inverse = (vectors * scales) @ (vectors.T @ inverse)
        # Eigenvalues below 0 count with their sign: otherwise the noise would seem to lengthen rows.
        length = math.sqrt(min(max(float((values / scales**2).sum()), 1.0), bound**2 / floor))
    noise = math.sqrt(2 / each.share) * bound**2 / (plan.rows * plan.mu)
    # Whitened rows have the second moment 1. Where the last round would see that, what it does not see is nothing.
    most = NEAR if plan.columns <= NARROW and CLEAR * noise < 1 else FAR
    matrix, inverse = limited(matrix, first, before @ matrix, moments, noise, most=most)
    if power < 1:
        matrix, inverse = partly_whitened(matrix, first, power, constant=constant)
        turned = before @ matrix  # from the rows of the last round to those that are mapped partly
        length = math.sqrt(max(float((turned * (moments @ turned)).sum()), SHORTEST))
    # No row with a constant column gets shorter than that. To shorten rows further would only make weights larger.
    least = float(np.linalg.svd(matrix, compute_uv=False)[-1]) * factor_inside(constant) if constant else 0.0
    found_map = Whitening(matrix, max(margin * length, least), constant)
    weights = None if start is None else inverse @ start * (found_map.length / factor_inside(constant))
    return found_map, weights
