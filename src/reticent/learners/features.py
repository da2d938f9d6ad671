"""From the caller's rows to the rows of length at most 1 that a private descent sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reticent.learners.lattice import Floats, Matrix, shortened


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """How rows become unit rows: scaled down to `row_norm`, then perhaps mapped to random Fourier features.

    The map is public. It does not depend on the rows, and a row is mapped by itself.

    Parameters
    ----------
    row_norm : float
        The length to which longer rows are scaled down.
    frequencies : array of shape (columns, features / 2) or None, default None
        The frequencies of random Fourier features; None for the rows themselves.
    seed : int or None, default None
        The seed that the frequencies were drawn with.
    """

    row_norm: float
    frequencies: Floats | None = None
    seed: int | None = None

    @property
    def length(self) -> float:
        """The length of the longest row that released weights apply to: `row_norm`, or 1 for Fourier features."""
        return self.row_norm if self.frequencies is None else 1.0

    def unit_rows(self, X: Matrix) -> Matrix:
        """The rows as the descent sees them, of length at most 1 up to rounding.

        Parameters
        ----------
        X : array or CSR matrix of float64, of shape (rows, columns)
            The rows.
        """
        rows = shortened(X, self.row_norm)
        if self.frequencies is None:
            return rows
        phases = np.asarray(rows @ (self.frequencies * self.row_norm))
        return np.hstack([np.cos(phases), np.sin(phases)]) / math.sqrt(phases.shape[1])


def fourier_map(*, row_norm: Fraction, columns: int, features: int, gamma: Fraction | None, seed: int) -> FeatureMap:
    """Draw a map to random Fourier features of the kernel exp(−gamma·|x − x'|²).

    Parameters
    ----------
    row_norm : Fraction
        The length to which longer rows are scaled down first.
    columns : int
        The number of columns of the rows.
    features : int
        The number of features, even: one cosine and one sine per frequency.
    gamma : Fraction or None
        The width of the kernel; None is 2 / row_norm².
    seed : int
        The public seed of the frequencies.
    """
    width = float(2 / row_norm**2 if gamma is None else gamma)
    # The frequencies are public: they are drawn without looking at the data, and protect nobody.
    public = np.random.default_rng(seed)
    frequencies = math.sqrt(2 * width) * public.standard_normal((columns, features // 2))
    return FeatureMap(float(row_norm), frequencies, seed)
