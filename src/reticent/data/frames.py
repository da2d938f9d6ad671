"""Tables with named columns, as a caller has them in memory: frames, dicts of columns, arrays. Names are public.

The type of a column in a frame is seldom public. Where a file is read without declared types, one odd cell turns a
column of numbers into one of text. So cells are handed out one by one, and read by `reticent.data.cells` in the same
way whatever the type of their column is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reticent.data.tables import is_frame

Array = NDArray[Any]
NUMBERS = ("int", "uint", "float", "double", "half", "decimal", "bool")  # how types of polars and pyarrow begin
MOST_LISTED = 10  # names in a message


class Columns(Mapping[str, Any]):
    """The columns of a table by name: an array of numbers each, or a list of cells of any kind.

    Parameters
    ----------
    X : frame, mapping of columns, or array of two dimensions
        The table. Frames are those of pandas, polars and pyarrow, or any with `shape` and `columns`. The columns of an
        array are called x0, x1, ….
    name : str, default "X"
        What messages call the table.

    Examples
    --------
    >>> columns = Columns({"age": [31, None], "ward": ["a", "b"]})
    >>> list(columns), columns.rows, columns["age"]
    (['age', 'ward'], 2, [31, None])
    >>> list(Columns(np.zeros((3, 2))))
    ['x0', 'x1']
    """

    def __init__(self, X: Any, name: str = "X") -> None:
        self._table, names = _read(X, name)
        self._place = column_places(names, name)
        self.rows = _rows(self._table, name)

    def __getitem__(self, name: str) -> Any:
        return _cells(_column(self._table, self._place[name]))

    def __contains__(self, name: object) -> bool:
        return name in self._place

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def declares_number(self, name: str) -> bool:
        """Whether the type of a column can hold nothing but numbers, truths and missing values; False for a list.

        Parameters
        ----------
        name : str
            The column.
        """
        column = _column(self._table, self._place[name])
        type_ = getattr(column, "dtype", None) or getattr(column, "type", None)
        return getattr(type_, "kind", None) in ("b", "i", "u", "f") or str(type_).lower().startswith(NUMBERS)


def _read(X: Any, name: str) -> tuple[Any, Sequence[Any]]:
    """The table in a form that `_cells` reads, and the names of its columns."""
    if isinstance(X, Mapping):
        return [_one_column(cells, name) for cells in X.values()], list(X)
    if hasattr(X, "column_names") and hasattr(X, "column"):  # as of pyarrow
        return X, list(X.column_names)
    if is_frame(X):
        return X, list(X.columns)
    if sparse.issparse(X):
        raise TypeError(f"{name} must be a frame, a dict of columns or an array, got a sparse matrix")
    if hasattr(X, "collect_schema"):
        raise TypeError(f"{name} must be a frame in memory, got a {type(X).__name__}: call its .collect()")
    if not isinstance(X, np.ndarray) or isinstance(X, np.ma.MaskedArray) or X.ndim != 2:
        raise TypeError(f"{name} must be a frame, a dict of columns, or a plain array of two dimensions")
    return X, [f"x{place}" for place in range(X.shape[1])]


def _one_column(cells: Any, name: str) -> Any:
    if isinstance(cells, (str, bytes)) or not hasattr(cells, "__len__") or len(getattr(cells, "shape", (1,))) != 1:
        raise TypeError(f"{name} must hold one column of cells under each name")
    return cells


def column_places(names: Sequence[Any], table: str) -> dict[str, int]:
    """Where each column stands; refuse names that are empty or repeat."""
    written = [str(one) for one in names]
    if not written:
        raise ValueError(f"{table} must have at least one column")
    if nameless := [str(place) for place, one in enumerate(written) if not one.strip() or not one.isprintable()]:
        listed = ", ".join(nameless[:MOST_LISTED])
        raise ValueError(f"{table} must have a printable name for every column: name or drop those at index {listed}")
    places = {one: place for place, one in enumerate(written)}
    if len(places) < len(written):
        repeated = sorted({one for place, one in enumerate(written) if places[one] != place})
        listed = ", ".join(map(repr, repeated[:MOST_LISTED]))
        raise ValueError(f"{table} must have different names for its columns: {listed} occurs more than once")
    return places


def _rows(table: Any, name: str) -> int:
    if not isinstance(table, list):
        return int(table.shape[0])
    sizes = {len(cells) for cells in table}
    if len(sizes) != 1:
        raise ValueError(f"{name} must have columns of one length")
    return sizes.pop()


def _column(table: Any, place: int) -> Any:
    if isinstance(table, list):
        return table[place]
    if isinstance(table, np.ndarray):
        return table[:, place]
    if hasattr(table, "iloc"):
        return table.iloc[:, place]
    return table.column(place) if hasattr(table, "column_names") else table[:, place]


def _cells(column: Any) -> Any:
    """The cells of one column. Whether some are missing changes how fast they are read, and nothing else.

    A column whose type holds neither numbers nor text is not read: of dates, libraries refuse those that are too far.
    """
    type_: Any = getattr(column, "dtype", None)
    if isinstance(type_, np.dtype):
        cells = np.asarray(column)
        return cells if type_.kind in "biuf" else cells.tolist() if type_.kind == "O" else _texts(cells)
    if hasattr(column, "null_count") and hasattr(column, "to_list"):  # as of polars
        return _polars_cells(column)
    if hasattr(column, "to_pylist"):
        return _arrow_cells(column)
    if hasattr(type_, "pyarrow_dtype"):  # as of pandas, of columns that pyarrow keeps
        return _arrow_cells(column.array.__arrow_array__())
    try:
        return list(column)
    except UnicodeDecodeError:  # text of pandas that pyarrow keeps
        return _arrow_cells(column.array.__arrow_array__())


def _texts(cells: Array) -> list[Any]:
    """Cells of text, and of complex numbers that may be real, as such. Those of dates and durations are no values."""
    return cells.tolist() if cells.dtype.kind in "USVTc" else [None] * len(cells)


def _polars_cells(column: Any) -> Any:
    type_ = column.dtype
    if type_.is_temporal() or type_.is_nested():
        return [None] * len(column)
    narrow = type_.is_integer() and not str(type_).endswith("128")  # NumPy has no wider ones
    fast = type_.is_float() or (narrow and not column.null_count())
    return np.asarray(column.to_numpy()) if fast else column.to_list()


def _arrow_cells(column: Any) -> list[Any]:
    import pyarrow
    from pyarrow import types

    packed = types.is_dictionary(column.type) or types.is_run_end_encoded(column.type)
    type_ = column.type.value_type if packed else column.type
    if not any(holds(type_) for holds in (
        types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_string,
        types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary, types.is_binary_view,
        types.is_fixed_size_binary,
    )):  # fmt: skip
        return [None] * len(column)
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # nothing sees to it that text is text: its cells are read by themselves
        found = (column.cast(type_) if packed else column).cast(pyarrow.large_binary()).to_pylist()
    return found
