"""Tables of the tail of the discrete Gaussian, one per scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_LARGEST = 100_000  # for larger scales a table saves too little privacy for its memory
_DEEPEST = 1300.0  # tables end where the mass is about e^−650, far above the least float


@dataclass(frozen=True, slots=True)
class Survival:
    """P(noise = z) and P(noise ≥ z) for z = 0 … reach, each with a relative error of at most `error`.

    All sums are of positive terms, so the only errors are one rounding per term.

    Attributes
    ----------
    sigma : float
        The scale σ.
    mass, above : array
        P(noise = z) and P(noise ≥ z).
    """

    sigma: float
    mass: NDArray[np.float64]
    above: NDArray[np.float64]

    @property
    def reach(self) -> int:
        """The largest z in the table."""
        return len(self.mass) - 1

    @property
    def error(self) -> float:
        """A bound on the relative error: 10⁻⁹ for the longest table, 10⁻¹² at σ = 100."""
        return (2 * len(self.mass) + 2000) * 2.0**-52


@lru_cache(maxsize=8)
def survival(sigma: Fraction) -> Survival | None:
    """Return the table for discrete Gaussian noise of the given scale, or None if it would be too long."""
    if sigma > _LARGEST:
        return None
    scale = float(sigma)
    reach = max(1, math.floor(scale * math.sqrt(_DEEPEST)))
    points = np.arange(reach + math.ceil(3 * scale) + 2, dtype=np.float64)
    with np.errstate(under="ignore"):
        weights = np.exp(-((points / scale) ** 2) / 2)
    sums = np.cumsum(weights[::-1])[::-1]
    total = 2 * sums[0] - weights[0]
    above = sums / total
    return Survival(scale, weights[: reach + 1] / total, above[: reach + 1])
