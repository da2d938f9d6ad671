"""Column scales from a noisy histogram of binary exponents: how large the values of a column get.

A value |x| = m·2^e with ½ ≤ m < 1 falls into the bin −e of its column. The first bin of a column that stands out of the
noise says how large its values get, up to a factor of 2. Columns of small values are then raised to the scale of others
before second moments are released. Columns of one scale, such as one-hot columns, stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reticent.learners.descent import release_variance
from reticent.learners.lattice import Floats, Matrix
from reticent.mechanisms.counts import gaussian_count
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.calibrate import sigma_of
from reticent.privacy.events import DiscreteGaussian, Event

BINS = 32  # exponents 0, −1, …, −31; a smaller value is not counted
SEEN = 4  # a count is seen from this many standard deviations of its noise on
NEAR = 1  # columns whose exponents are this near to the largest are left alone


@dataclass(frozen=True)
class ScalesPlan:
    """The release of a histogram of exponents for each column. All of it is public.

    Parameters
    ----------
    rows, columns : int
        The numbers of rows and of columns, without the constant one.
    share : Fraction
        Its share of the budget, as a share of μ².
    sigma : Fraction
        The noise of each count.
    """

    rows: int
    columns: int
    share: Fraction
    sigma: Fraction

    @property
    def event(self) -> Event:
        """The release."""
        return DiscreteGaussian(self.sigma, squared_sensitivity(self.columns))


def squared_sensitivity(columns: int) -> int:
    """2·columns: in each column, a replaced row leaves one bin and enters another."""
    return 2 * columns


def plan_scales(*, rows: int, columns: int, share: Fraction, epsilon: Fraction, delta: Fraction) -> ScalesPlan:
    """Plan the release of exponents at a share of μ².

    Parameters
    ----------
    rows, columns : int
        The numbers of rows and of columns, without the constant one.
    share : Fraction
        The share of μ².
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of the whole: of this release and of all that follows.
    """
    sigma = sigma_of(squared_sensitivity(columns), release_variance(epsilon, delta) / share)
    return ScalesPlan(rows, columns, share, sigma)


def exponent_counts(rows: Matrix) -> NDArray[np.int64]:
    """How many values of each column have each exponent, from 0 down to −31. Zeros are not counted.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns)
        Rows of length at most 1; larger values fall into the first bin.

    Returns
    -------
    array of shape (columns, 32)

    >>> exponent_counts(np.array([[1.0, 0.0], [0.3, -0.01]]))[:, :8].tolist()
    [[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 0]]
    """
    columns = rows.shape[1]
    if sparse.issparse(rows):
        values, at = rows.data, rows.indices
    else:
        values, at = np.ravel(rows), np.tile(np.arange(columns), rows.shape[0])
    _, exponents = np.frexp(values)
    bins = np.maximum(-exponents, 0)
    counted = (values != 0) & (bins < BINS) & np.isfinite(values)
    flat = at[counted].astype(np.int64) * BINS + bins[counted]
    return np.bincount(flat, minlength=columns * BINS).reshape(columns, BINS).astype(np.int64)


def release_exponents(
    rows: Matrix, *, sigma: Fraction, unsafe_noise: Noise | None = None
) -> Release[NDArray[np.int64]]:
    """Release `exponent_counts`, as one vector.

    Guarantee. `DiscreteGaussian(sigma, 2·columns)`, for one replaced row.

    Why. Within the bins of one column a row adds 1 to one bin, or nothing. Replacing it moves these bins by the
    difference of two such vectors, of squared length at most 2. The exponent of a value is exact, and depends on this
    value alone. See `docs/learners/second_moments.md`.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns)
        Rows of length at most 1. Those of a CSR matrix have each index once, as `shortened` leaves them.
    sigma : Fraction
        The noise.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.
    """
    return gaussian_count(
        exponent_counts(rows).ravel(),
        sigma=sigma,
        squared_sensitivity=squared_sensitivity(rows.shape[1]),
        unsafe_noise=unsafe_noise,
    )


def column_factors(released: NDArray[np.int64], plan: ScalesPlan) -> Floats:
    """The factors that bring columns to about one scale, and rows to a length of about 1.

    Parameters
    ----------
    released : array of int
        What `release_exponents` released.
    plan : ScalesPlan
        The plan of the release.

    >>> rows = np.array([[1.0, 0.0], [0.0, 2.0**-10]]).repeat(500, axis=0)
    >>> factors = column_factors(exponent_counts(rows).ravel(), ScalesPlan(1000, 2, Fraction(1), Fraction(1)))
    >>> float(factors[1] / factors[0])
    256.0
    """
    counts = released.reshape(plan.columns, BINS).astype(np.float64)
    seen = counts >= SEEN * float(plan.sigma)
    known = seen.any(axis=1)
    if not known.any():
        return np.ones(plan.columns)
    first = seen.argmax(axis=1)
    exponents = np.where(known, first, first[known].min())
    exponents = exponents.min() + np.maximum(exponents - exponents.min() - NEAR, 0)
    # The squared length of rows with these factors, by the upper ends of their bins.
    beyond = exponents[:, None] - np.arange(BINS)
    square = float((np.where(seen, counts, 0.0) * 4.0**beyond).sum()) / plan.rows
    rest = float((np.where(beyond <= 0, counts, 0.0) * 4.0 ** np.minimum(beyond, 0)).sum()) / plan.rows
    factors = 2.0**exponents
    return np.asarray(factors / min(math.sqrt(max(square, rest) / 2), float(factors.max())))
