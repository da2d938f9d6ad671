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
from reticent.data.labels import as_column
from reticent.data.points import points_of
from reticent.data.tables import as_table
from reticent.silence import silent

Array = NDArray[Any]


EXACT = 1 << 53  # below this, floats hold every whole number
EIGHT_BYTES = 8  # a longer float is read as one of this length, as it is in a cell


@silent()
def as_queries(X: Any) -> Array:
    """Read queries as a dense table of numbers, with NaN for every cell that is not a number.

    Cells that declare no type, as those of a list, are read one by one: no query changes how another is read. If one of
    them is a whole number that a float may not hold, the table is one of objects, floats and such whole numbers.

    >>> as_queries([[1], [0.5]]).tolist(), as_queries([[2**53 + 1], ["x"]]).tolist()
    ([[1.0], [0.5]], [[9007199254740993], [nan]])
    """
    if isinstance(X, (list, tuple)):
        X = _of_rows(X)
    table = as_table(X.astype(object) if isinstance(X, np.ndarray) and X.dtype.kind == "c" else X)
    values: Array = table.toarray() if sparse.issparse(table) else np.asarray(table)
    if values.dtype.kind in "biuf":
        return values if values.dtype.itemsize <= EIGHT_BYTES else values.astype(np.float64)
    cells = [_exactly(cell) for cell in values.flat]
    kind = object if any(type(cell) is int for cell in cells) else np.float64
    return np.fromiter(cells, dtype=kind, count=len(cells)).reshape(values.shape)


def _exactly(cell: object) -> float | int:
    """A cell as `as_number` reads it; a whole number that a float may not hold stays that number."""
    if isinstance(cell, np.ndarray) and cell.ndim == 0:  # NumPy takes it for a number if all others are numbers
        cell = cell[()]
    if isinstance(cell, (int, np.integer)) and not -EXACT < cell < EXACT:
        return int(cell)
    return as_number(cell)


def _whole(number: float | int) -> float | int:
    """A whole number as an integer, however it is written; any other number as it is."""
    return number if isinstance(number, float) and not number.is_integer() else int(number)


def _of_rows(X: Any) -> Any:
    """Rows in lists as an array: of numbers if all cells are that floats hold, else of objects.

    A list within a row is a cell.
    """
    with suppress(Exception):  # a cell may be a list, or an object that raises what it likes
        table = np.asarray(X)
        if table.dtype.kind in "biuf" and table.ndim <= 2 and not bool(((table >= EXACT) | (table <= -EXACT)).any()):
            return table
    cells = as_matrix(X)
    return X if cells is None else cells


def client_names(clients: Any, rows: int) -> Array | None:
    """Who asks each query, as strings: a number and its string are one client."""
    if clients is None:
        return None
    column = as_column(clients, rows, "clients")
    if column.dtype.kind not in "iuU":
        raise TypeError("clients must be strings or whole numbers")
    return column.astype(str)


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
    concepts : PointSpace or None, default None
        The concepts whose domain queries must be in.
    """

    dtype: np.dtype[Any]
    point: Array
    concepts: PointSpace | None = None

    @classmethod
    def of(cls, dtype: np.dtype[Any], columns: int, concepts: PointSpace | None) -> Reader:
        """For queries of the type and the number of columns of the rows that were learned from."""
        if concepts is None:
            point = np.zeros((1, columns), dtype=dtype)
        else:
            point = np.ascontiguousarray(concepts.example_points()[:1], dtype=dtype).reshape(1, -1)
        return cls(dtype, point, concepts)

    @silent()
    def read(self, rows: Array) -> Array:
        """The queries; the fixed point for a row that is not finite, would be rounded, or is not of the domain."""
        cast = self._cast(rows)
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

    def _cast(self, rows: Array) -> Array:
        """The numbers in the type that was learned from; what does not fit becomes another number."""
        if self.dtype == object:  # whole numbers of any size
            cells = [_whole(cell) for cell in rows.astype(object).flat]
            return np.fromiter(cells, dtype=object, count=len(cells)).reshape(rows.shape)
        if rows.dtype != object:
            return np.ascontiguousarray(rows, dtype=self.dtype)
        if self.dtype.kind not in "iu":
            floats = np.fromiter(map(as_number, rows.flat), dtype=np.float64, count=rows.size)
            return np.ascontiguousarray(floats.reshape(rows.shape), dtype=self.dtype)
        limits = np.iinfo(self.dtype)
        whole = [int(cell) if limits.min <= cell <= limits.max else 0 for cell in rows.flat]  # NaN is not
        return np.array(whole, dtype=self.dtype).reshape(rows.shape)

    def _accepted(self, rows: Array) -> bool:
        """Whether the concepts label all of these rows."""
        if self.concepts is None or not len(rows):
            return True
        columns = self.concepts.columns
        return self.concepts.accepts(points_of(rows, columns), example=points_of(self.point, columns))
