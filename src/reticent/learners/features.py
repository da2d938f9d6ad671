"""From the caller's rows to the rows of length at most 1 that a private descent sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from reticent.data.tables import as_csr
from reticent.learners.bounded import Bounds
from reticent.learners.lattice import Floats, Matrix, shortened
from reticent.learners.products import product
from reticent.learners.public_rows import Directions


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """How rows become unit rows, in this order, where each part but the second may be missing.

    1. Values are clipped to public bounds and mapped to [0, 1].
    2. Rows are divided by `row_norm`, and longer ones are scaled down to it.
    3. They are projected onto directions that were found in public rows.
    4. They are mapped to random Fourier features.

    The map is public. It does not depend on the rows, and a row is mapped by itself, to the last bit.

    Parameters
    ----------
    row_norm : float
        The length to which longer rows are scaled down.
    frequencies : array of shape (columns, features / 2) or None, default None
        The frequencies of random Fourier features; None for none.
    seed : int or None, default None
        The seed that the frequencies were drawn with.
    bounds : Bounds or None, default None
        The bounds of columns; None for values as they are.
    directions : Directions or None, default None
        The directions of public rows; None for all columns.
    """

    row_norm: float
    frequencies: Floats | None = None
    seed: int | None = None
    bounds: Bounds | None = None
    directions: Directions | None = None

    @property
    def length(self) -> float:
        """The length of the longest row that released weights apply to.

        It is `row_norm`, or 1 for rows that are projected or mapped to Fourier features.
        """
        return self.row_norm if self.frequencies is None and self.directions is None else 1.0

    def unit_rows(self, X: Matrix) -> Matrix:
        """The rows as the descent sees them, of length at most 1 up to rounding.

        Parameters
        ----------
        X : array or CSR matrix of float64, of shape (rows, columns)
            The rows.
        """
        rows = self.short_rows(X)
        if self.frequencies is None:
            return rows
        phases = product(rows, self.frequencies * (self.row_norm if self.directions is None else 1.0))
        return np.hstack([np.cos(phases), np.sin(phases)]) / math.sqrt(phases.shape[1])

    def short_rows(self, X: Matrix) -> Matrix:
        """The rows before they are mapped to Fourier features, of length at most 1 up to rounding.

        Parameters
        ----------
        X : array or CSR matrix of float64, of shape (rows, columns)
            The rows.
        """
        rows = shortened(X if self.bounds is None else self.bounds.mapped(X), self.row_norm)
        return rows if self.directions is None else self.directions.unit_rows(rows)

    def mapped_rows(self, X: Matrix) -> Matrix:
        """The rows that `hypothesis_` is a linear model of: unit rows times `length`.

        Parameters
        ----------
        X : array or CSR matrix of float64, of shape (rows, columns)
            The rows.
        """
        return self.unit_rows(X) * self.length


def training_rows(estimator: Any, X: Matrix, target: Any) -> tuple[Matrix, Any]:
    """Rows and labels that `fit` is given, checked by scikit-learn: rows as float64, in one layout.

    A sum over the entries of a row is rounded by the order in which they are added, and that depends on the layout of
    the table. One row can change the layout of all: a frame of whole numbers becomes an array in another order if one
    cell has a fraction, and SciPy adds entries that are stored twice in another order if one row is unsorted. So an
    array is in C order, and a CSR matrix is as `as_csr` makes it.

    Parameters
    ----------
    estimator : estimator
        What is fitted; it gets the number and the names of the columns.
    X : array-like or sparse matrix of shape (rows, columns)
        The rows.
    target : array-like of shape (rows,)
        The labels.
    """
    return _checked(estimator, X, target)  # type: ignore[no-any-return]


def checked_rows(estimator: Any, X: Matrix) -> Matrix:
    """As `training_rows`, for rows whose labels were read before.

    Parameters
    ----------
    estimator : estimator
        What is fitted; it gets the number and the names of the columns.
    X : array-like or sparse matrix of shape (rows, columns)
        The rows.
    """
    return _checked(estimator, X, "no_validation")


def _checked(estimator: Any, X: Matrix, target: Any) -> Any:
    rows = as_csr(X) if sparse.issparse(X) else X
    return validate_data(
        estimator, rows, target, accept_sparse="csr", dtype=np.float64, order="C", ensure_all_finite=False
    )


def fourier_frequencies(
    *, row_norm: Fraction, columns: int, features: int, gamma: Fraction | None, seed: int
) -> Floats:
    """Draw the frequencies of random Fourier features of the kernel exp(−gamma·|x − x'|²).

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
    return np.asarray(math.sqrt(2 * width) * public.standard_normal((columns, features // 2)))
