"""Columns with public bounds: values are clipped to them and mapped to [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from reticent.data.tables import as_csr
from reticent.learners.lattice import MOST_ENTRIES, Floats, Matrix
from reticent.silence import silent

LARGEST = 1e100  # of a bound


@dataclass(frozen=True, eq=False)
class Bounds:
    """Public bounds of columns: a value is clipped to them, and mapped to [0, 1].

    A row is mapped by itself. Clipping is not linear, so a linear model of mapped rows is not one of the rows.

    Parameters
    ----------
    lower, upper : array of shape (columns,) or (1,)
        The bounds of each column, or of all.
    """

    lower: Floats
    upper: Floats

    def norm(self, columns: int) -> float:
        """The greatest length of a mapped row: √columns.

        Parameters
        ----------
        columns : int
            The number of columns; ValueError if bounds are given for another number.
        """
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if len(bound) not in (1, columns):
                raise ValueError(
                    f"bounds must have one {name} bound, or one for each of {columns} columns, got {len(bound)}"
                )
        return math.sqrt(columns)

    @silent()
    def mapped(self, X: Matrix) -> Matrix:
        """Rows with entries from 0 to 1. Sparse rows become dense if a lower bound is below 0.

        Parameters
        ----------
        X : array or CSR matrix of float64, of shape (rows, columns)
            The rows. They are not changed.
        """
        if sparse.issparse(X):
            X = as_csr(X)
            if bool((self.lower >= 0).all()):  # an entry that is not stored is 0, and becomes 0
                low, high = (np.broadcast_to(bound, X.shape[1])[X.indices] for bound in (self.lower, self.upper))
                return sparse.csr_array((_mapped(X.data, low, high), X.indices, X.indptr), shape=X.shape)
            if math.prod(X.shape) > MOST_ENTRIES:
                raise ValueError(
                    f"bounds must not be below 0 for {X.shape[0]} sparse rows of {X.shape[1]} columns, which would "
                    "become dense"
                )
            X = X.toarray()
        return _mapped(X, self.lower, self.upper)


def _mapped(values: Floats, lower: Floats, upper: Floats) -> Floats:
    return np.asarray((np.clip(values, lower, upper) - lower) / (upper - lower))


def checked_bounds(bounds: Any) -> Bounds:
    """`bounds=(lower, upper)` as arrays, of one number or one per column; ValueError if they are anything else."""
    try:
        lower, upper = (np.atleast_1d(np.asarray(bound)) for bound in bounds)
        if not all(bound.ndim == 1 and len(bound) and bound.dtype.kind in "iuf" for bound in (lower, upper)):
            raise TypeError
        lower, upper = lower.astype(np.float64), upper.astype(np.float64)
        below = lower < upper
    except Exception:
        raise ValueError(
            "bounds must be (lower, upper), each a number or one number per column, and both for the same columns"
        ) from None
    if not bool(np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError("bounds must be finite: a bound is NaN or infinite")
    if max(np.abs(lower).max(), np.abs(upper).max()) > LARGEST:
        raise ValueError(f"bounds must be between -{LARGEST:g} and {LARGEST:g}")
    if not bool(below.all()):
        where = "" if len(below) == 1 else f" in column {int(np.argmin(below))}"
        raise ValueError(
            f"bounds must have lower < upper in every column, but{where} they are reversed or equal; drop a column of "
            "one value"
        )
    return Bounds(lower, upper)
