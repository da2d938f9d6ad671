"""Reading queries: refused by their shape alone. One that cannot be taken as it is counts, as a fixed point.

Whether a query is counted, and kept for the next phase, must not depend on what it holds: who comes after it would see
the clock of the phase shifted. So nothing here refuses a batch because of a value in it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reticent.data.cells import as_matrix, as_number
from reticent.data.points import points_of
from reticent.data.tables import as_table
from reticent.silence import silent

Array = NDArray[Any]


@silent()
def as_queries(X: Any) -> Array:
    """A dense table of numbers, NaN for what is none; its rows and columns are what was given, or it is refused."""
    if isinstance(X, (list, tuple)):
        X = _of_rows(X)
    table = as_table(X.astype(object) if isinstance(X, np.ndarray) and X.dtype.kind == "c" else X)
    values: Array = table.toarray() if sparse.issparse(table) else np.asarray(table)
    if values.dtype.kind in "biuf":
        return values
    return np.fromiter(map(as_number, values.flat), dtype=np.float64, count=values.size).reshape(values.shape)


def _of_rows(X: Any) -> Any:
    """Rows in lists as an array: of numbers if all cells are, else of objects. A list within a row is a cell."""
    with suppress(Exception):  # a cell may be a list, or an object that raises what it likes
        if (table := np.asarray(X)).dtype.kind in "biuf" and table.ndim <= 2:
            return table
    cells = as_matrix(X)
    return X if cells is None else cells


class PointSpace(Protocol):
    """What is known of the points that concepts label; a `concepts.ConceptClass` is one."""

    @property
    def columns(self) -> int:
        """The number of columns of a point."""

    def example_points(self) -> Array:
        """A few points of the domain."""

    def accepts(self, points: Array, *, example: Array) -> bool:
        """Whether the concepts label all of these points, as they label the example."""


@dataclass(frozen=True, eq=False)
class Reader:
    """Turns numbers into queries: of the type that was learned from, and in the domain of the concepts, if any.

    Parameters
    ----------
    dtype : numpy.dtype
        The type of the rows that were learned from.
    point : array of shape (1, columns)
        Stands for a query that is of another type or outside of the domain. It is public.
    concepts : PointSpace or None, default=None
        The concepts whose domain queries must be in.
    """

    dtype: np.dtype[Any]
    point: Array
    concepts: PointSpace | None = None

    @classmethod
    def of(cls, rows: Array, concepts: PointSpace | None) -> Reader:
        """For queries like these rows: only their type and the number of their columns are looked at."""
        if concepts is None:
            point = np.zeros((1, rows.shape[1]), dtype=rows.dtype)
        else:
            point = np.ascontiguousarray(concepts.example_points()[:1], dtype=rows.dtype).reshape(1, -1)
        return cls(rows.dtype, point, concepts)

    @silent()
    def read(self, rows: Array) -> Array:
        """The queries; the fixed point for a row that is not finite, would be rounded, or is not of the domain."""
        cast: Array = np.ascontiguousarray(rows, dtype=self.dtype)
        bad = np.zeros(len(rows), dtype=bool)
        if self.dtype.kind == "f":  # one sum a row finds all that may be bad, and is much faster
            some = np.flatnonzero(~np.isfinite(cast @ np.ones(cast.shape[1], dtype=cast.dtype)))
            bad[some] = ~np.isfinite(cast[some]).all(axis=1)
        else:
            bad |= (cast != rows).any(axis=1)  # rounded, or wrapped around
        if not self._accepted(cast[~bad]):
            for one in np.flatnonzero(~bad):
                bad[one] = not self._accepted(cast[one : one + 1])
        if bad.any():
            cast = cast.copy()
            cast[bad] = self.point
        return cast

    def _accepted(self, rows: Array) -> bool:
        """Whether the concepts label all of these rows."""
        if self.concepts is None or not len(rows):
            return True
        columns = self.concepts.columns
        return self.concepts.accepts(points_of(rows, columns), example=points_of(self.point, columns))
