"""The one reader of cells: of tables that are learned from and of queries, in every form.

A cell can hold anything: a number, text, bytes, a boolean, nothing, a list, an object. Each is read by itself, and
none is refused: what is not a value counts as missing. Whether a row is used, or a query counts, must not depend on its
content. So every form of a table and of a query reads its cells here, by the same rules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TRUTHS = {"true": 1.0, "false": 0.0}
ABSENT = frozenset({"", "?", "na", "n/a", "nan", "nat", "null", "none", "."})  # what stands for no value, in any case
PLAIN = frozenset({str, float, int, bool, type(None)})
FLOATS = frozenset({float, bool, type(None)})  # of which NumPy makes the numbers that `as_number` makes
COPIES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__), (float, float.__float__), (int, int.__int__)
)  # fmt: skip
NO_NUMBERS = (complex, np.complexfloating, np.ndarray)
BITS = 13_000  # of a whole number that is written out: Python refuses to write more than 4,300 digits


def as_number(cell: object) -> float:
    """A cell as a number; NaN if it is missing or not a number, and an infinity if it is beyond all floats.

    >>> [as_number(one) for one in (1, " 2.5 ", True, "false", 10**400, b"3")]
    [1.0, 2.5, 1.0, 0.0, inf, 3.0]
    >>> [as_number(one) for one in ("", None, "1_0", "x", [1], {"a": 1}, 1j)]
    [nan, nan, nan, nan, nan, nan, nan]
    """
    cell = _plain(cell)
    if type(cell) is str:
        return _parsed(cell)
    if issubclass(type(cell), NO_NUMBERS) or not hasattr(type(cell), "__float__"):
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:
        return (math.inf if cell > 0 else -math.inf) if type(cell) is int else math.nan
    except Exception:  # an object may raise what it likes
        return math.nan


def as_text(cell: object) -> str:
    """A cell as a CSV file would write it, without the spaces around it; empty if it is missing or not a value.

    >>> [as_text(one) for one in (" a ", b"b", True, 3.0, 0.5, None, [1])]
    ['a', 'b', 'true', '3', '0.5', '', '']
    """
    cell = _plain(cell)
    if type(cell) is str:
        return cell.strip()
    if type(cell) is bool:
        return "true" if cell else "false"
    if type(cell) is float:
        return "" if math.isnan(cell) else str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else str(cell)
    return str(cell) if type(cell) is int and cell.bit_length() < BITS else ""


def _plain(cell: object) -> object:
    """A cell as a value of Python, if it is one: a class that inherits from str, float or int may print what it likes.

    Dates and durations of NumPy are no values, as in a column that has their type: beside one odd cell, a frame holds
    them as they are.
    """
    kind = type(cell)
    if kind in PLAIN:
        return cell
    if issubclass(kind, (np.datetime64, np.timedelta64)):
        return None
    if issubclass(kind, np.generic):
        wide = issubclass(kind, (np.longdouble, np.clongdouble))  # which Python does not have
        cell = (float if issubclass(kind, np.floating) else complex)(cell) if wide else cell.item()  # type: ignore
        kind = type(cell)
    if issubclass(kind, complex):  # beside one complex number, a frame holds all numbers as such
        real, imaginary = complex.real.__get__(cell), complex.imag.__get__(cell)
        return real if imaginary == 0 else None
    if issubclass(kind, bytes):
        return bytes.decode(cell, "utf-8", "replace")  # type: ignore[arg-type]
    for plain, copied in COPIES:
        if issubclass(kind, plain) and kind is not bool:
            return copied(cell)
    return cell


def as_numbers(cells: Any) -> NDArray[np.float64]:
    """Cells as numbers, each by itself, as `as_number` reads them.

    An array of dates, durations or complex numbers is refused, by its type.
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # of numbers that are wider than floats
            return np.asarray(cells, dtype=np.float64)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "cmMV":
        raise TypeError("a column of numbers must hold numbers")
    some = cells.tolist() if isinstance(cells, np.ndarray) else list(cells)
    kinds = set(map(type, some))
    if kinds <= FLOATS:  # as in most queries; the time does not depend on which of them are equal
        return np.array(some, dtype=np.float64)
    if kinds == {str}:
        return parsed_numbers(some)
    return np.fromiter(each(some, as_number), dtype=np.float64, count=len(some))


def parsed_numbers(texts: list[str], *, plain: bool = False) -> NDArray[np.float64]:
    """Cells that are text as numbers, each by itself, as `as_number` reads them.

    Parameters
    ----------
    texts : list of str
        The cells.
    plain : bool, default False
        Whether it is known that they have only ASCII characters, and no underscore.

    >>> parsed_numbers(["1", "", " 2.5 ", "true", "1_0"]).tolist()
    [1.0, nan, 2.5, 1.0, nan]
    """
    count = len(texts)
    if plain or _is_plain("".join(texts)):  # then `float` makes the same numbers, and faster
        with suppress(ValueError):
            return np.fromiter(map(float, texts), dtype=np.float64, count=count)
        with suppress(ValueError):
            return np.fromiter(map(float, [one or "nan" for one in texts]), dtype=np.float64, count=count)
    return np.fromiter(each(texts, as_number), dtype=np.float64, count=count)


def distinct(cells: Any) -> tuple[Any, NDArray[np.int64]]:
    """The different cells and how often each occurs, or all cells and 1 for each; the same counts in the end.

    >>> [each.tolist() if isinstance(each, np.ndarray) else each for each in distinct(["a", None, "a"])]
    [['a', None], [2, 1]]
    """
    some = cells.tolist() if isinstance(cells, np.ndarray) and cells.dtype.kind not in "biuf" else cells
    if isinstance(some, np.ndarray) or not _one_cell_per_key(some):
        return some, np.ones(len(some), dtype=np.int64)
    times = Counter(some)
    return list(times), np.fromiter(times.values(), dtype=np.int64, count=len(times))


def each(cells: Sequence[Any], read: Callable[[Any], Any]) -> Iterable[Any]:
    """What `read` makes of each cell; it is called once for equal ones, where equal ones are alike.

    Parameters
    ----------
    cells : sequence
        The cells.
    read : callable
        A function of a cell alone.
    """
    if not _one_cell_per_key(cells):
        return map(read, cells)
    known = {one: read(one) for one in set(cells)}
    return map(known.__getitem__, cells)


def _one_cell_per_key(cells: Sequence[Any]) -> bool:
    """Whether cells that are one key of a dict are alike: 1, 1.0 and True are one key, and not alike."""
    return set(map(type, cells)) - {str, type(None)} in (set(), {int}, {float}, {bool})


def is_absent(cell: object) -> bool:
    """Whether a cell that is no number stands for a missing one: it is empty, no value, or a word for that.

    >>> [is_absent(one) for one in ("", " NA ", "?", None, [1], "12 kg")]
    [True, True, True, True, True, False]
    """
    return as_text(cell).lower() in ABSENT


def as_matrix(rows: Sequence[Any]) -> Array | None:
    """Rows of cells as an array of objects; None unless they are rows, of one length. Cells are not looked at.

    >>> as_matrix([[0.1, "x"], [[1, 2], None]]).shape
    (2, 2)
    >>> as_matrix([[1], [1, 2]]) is as_matrix([1, 2]) is None
    True
    """
    if not all(isinstance(row, (list, tuple)) or (isinstance(row, np.ndarray) and row.ndim == 1) for row in rows):
        return None
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        return None
    cells = np.empty((len(rows), widths.pop()), dtype=object)
    for place, row in enumerate(rows):
        for column, cell in enumerate(row):
            cells[place, column] = cell
    return cells


def is_missing(value: object) -> bool:
    """Whether a value stands for none: None, NaN, NaT, NA, or a tuple that holds one."""
    if isinstance(value, tuple):
        return any(map(is_missing, value))
    try:
        return value is None or not bool(value == value)  # noqa: PLR0124  # only what is missing differs from itself
    except Exception:  # pandas.NA is neither equal to itself nor not; other values compare by code that fails
        return True


def _is_plain(text: str) -> bool:
    """Whether text has no digits of other scripts and no underscores: float() takes them, and no table means them."""
    return text.isascii() and "_" not in text


def _parsed(text: str) -> float:
    try:
        return float(text) if _is_plain(text) else math.nan
    except ValueError:
        return TRUTHS.get(text.strip().lower(), math.nan)
