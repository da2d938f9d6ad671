"""Rows as integer vectors of bounded length, for dense and sparse matrices.

Sums of such vectors are exact, and so is the check of their length. No rounding can make a row longer than the noise
was calibrated for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reticent.data.tables import as_csr
from reticent.silence import silent

Floats = NDArray[np.float64]
Matrix = Any  # a two-dimensional array of float64, or a CSR matrix of them

MOST_ENTRIES = 1 << 29  # of rows that become dense
WHOLE = 1 << 53  # up to here floating point adds and multiplies whole numbers without rounding


@silent()
def on_lattice(vectors: Matrix, limit: int) -> Matrix:
    """Round each row to an integer vector whose squared length is at most `limit`.

    The row becomes the nearest integer vector. If that is too long, it is rounded towards zero. If that is too long as
    well, or not a number, it becomes zero.

    Why the check is exact in floating point: squares of whole numbers are added. Such sums are exact up to 2⁵³. A sum
    that has passed 2⁵³ never falls below it again, because rounding is monotone.

    Parameters
    ----------
    vectors : array or CSR matrix of float64, of shape (rows, columns)
        The vectors.
    limit : int
        The largest squared length, below 2⁵³.

    Returns
    -------
    array or CSR matrix
        Whole numbers, stored as float64.
    """
    whole = _map(np.rint, vectors)
    for rounding in (np.trunc, np.zeros_like):
        outside = ~(squared_lengths(whole) <= limit)  # written so that NaN is outside
        if not outside.any():
            break
        if sparse.issparse(whole):
            entries = np.repeat(outside, np.diff(whole.indptr))
            whole.data[entries] = rounding(vectors.data[entries])
        else:
            whole[outside] = rounding(vectors[outside])
    return whole


@silent()
def shortened(X: Matrix, bound: float) -> Matrix:
    """Divide rows by `bound`, and scale those that are longer than it down to length 1.

    Parameters
    ----------
    X : array or CSR matrix of float64, of shape (rows, columns)
        The rows, of any magnitude. They are not changed.
    bound : float
        The length above which rows are scaled down.

    Returns
    -------
    array or CSR matrix
        Rows of length at most 1, up to rounding.
    """
    if sparse.issparse(X):
        X = as_csr(X)
        largest = np.zeros(X.shape[0])
        np.maximum.at(largest, row_of_entry(X), np.abs(X.data))
    else:
        largest = np.abs(X).max(axis=1)
    largest[largest < 1e-300] = 1.0
    scaled = _scaled(X, 1 / largest)  # so that squares neither overflow nor vanish
    return _scaled(scaled, 1 / np.maximum(bound / largest, np.sqrt(squared_lengths(scaled))))


def emptied(X: Matrix, empty: NDArray[np.bool_]) -> Matrix:
    """Rows with zeros in place of some of them, whatever these hold. A sparse matrix keeps the entries that it stores.

    Parameters
    ----------
    X : array or CSR matrix of float64, of shape (rows, columns)
        The rows. They are not changed.
    empty : array of bool, of shape (rows,)
        Which rows become zero.

    >>> emptied(np.array([[1.0, 2.0], [np.nan, 4.0]]), np.array([False, True])).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    if sparse.issparse(X):
        data = np.where(np.repeat(empty, np.diff(X.indptr)), 0.0, X.data)
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    return np.where(empty[:, None], 0.0, X)


def row_of_entry(X: Matrix) -> NDArray[np.int64]:
    """The row of each stored entry of a CSR matrix."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def squared_lengths(X: Matrix) -> Floats:
    """The squared length of each row."""
    if sparse.issparse(X):
        return np.bincount(row_of_entry(X), weights=X.data * X.data, minlength=X.shape[0]).astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _map(function: Callable[[Floats], Floats], X: Matrix) -> Matrix:
    """Apply a function that keeps 0 to every entry."""
    if sparse.issparse(X):
        return sparse.csr_array((function(X.data), X.indices, X.indptr), shape=X.shape)
    return function(X)


def _scaled(X: Matrix, factors: Floats) -> Matrix:
    """Multiply each row by its factor."""
    if sparse.issparse(X):
        return _map(lambda data: data * np.repeat(factors, np.diff(X.indptr)), X)
    return X * factors[:, None]
