"""What is public about a table: its columns, their ranges and categories, the classes; and rows of numbers by it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_number, as_numbers, as_text, each
from reticent.data.classes import sorted_classes
from reticent.data.labels import class_indices_of_any

Array = NDArray[Any]
Rows = NDArray[np.float64]
Indices = NDArray[np.int64]
Kind = Literal["number", "category"]

TRUTHS = {1.0: True, 0.0: False}
LARGEST = 1e300  # of the ends of a range: their difference is still finite
ENDS = np.array(-1.0), np.array(1.0)  # of what ranges are laid onto; as arrays, since NumPy would convert numbers
OWN_COLUMN = "column"  # as `missing` of a number: what is missing is marked in a column of its own


class SchemaError(ValueError):
    """A schema that cannot be used as it stands; the message says what is missing."""


@dataclass(frozen=True)
class Column:
    """A column that is learned from.

    A number has a range, and what stands for a missing one, by default the middle of it; with `missing="column"` a
    missing one is also marked by 1 in a column of its own. A category has categories; what is none of them is nothing,
    or with `other` a category of its own.
    """

    name: str
    kind: Kind
    range: tuple[float, float] | None = None
    missing: float | str | None = None
    categories: tuple[Any, ...] = ()
    other: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name, "name")
        if self.kind == "number":
            self._check_number()
        elif self.kind == "category":
            self._check_category()
        else:
            raise SchemaError(f"column {self.name!r}: kind must be \"number\" or \"category\"")

    def _check_number(self) -> None:
        if self.categories or self.other:
            raise SchemaError(f"column {self.name!r}: a number has a range, not categories")
        ends: tuple[Any, ...] = self.range or ()
        if self.range is None or len(self.range) != 2 or not all(map(_is_number, self.range)):
            raise SchemaError(
                f"column {self.name!r}: range must be two numbers, as in range = [0, 120]"
                + ("; write a date as days since a fixed date" if any(isinstance(one, date) for one in ends) else "")
            )
        low, high = self.range
        if not high / 2 - low / 2 > 0:
            raise SchemaError(f"column {self.name!r}: range must have the lesser end first, and ends further apart")
        if self.missing in (None, OWN_COLUMN):
            return
        if isinstance(self.missing, str) or not (_is_number(self.missing) and low <= self.missing <= high):
            raise SchemaError(f"column {self.name!r}: missing must be a number of the range, or {OWN_COLUMN!r}")

    def _check_category(self) -> None:
        if self.range is not None or self.missing is not None:
            raise SchemaError(f"column {self.name!r}: a category has categories, neither range nor missing")
        if not self.categories:
            raise SchemaError(f'column {self.name!r}: categories must be listed, as in categories = ["a", "b"]')
        if not isinstance(self.other, bool):
            raise SchemaError(f"column {self.name!r}: other must be true or false")
        _DeclaredValues(self.categories, f"column {self.name!r}: categories")

    @property
    def marks_missing(self) -> bool:
        """Whether missing numbers have a column of their own."""
        return self.kind == "number" and self.missing == OWN_COLUMN

    @property
    def features(self) -> list[str]:
        """The names of the numbers that it becomes."""
        if self.kind == "number":
            return [self.name, f"{self.name}=?"] if self.marks_missing else [self.name]
        names = [*map(as_text, self.categories)]
        if self.other:
            marks = ("?" * times for times in range(1, len(names) + 2))
            names.append(next(mark for mark in marks if mark not in names))
        return [f"{self.name}={one}" for one in names]


@dataclass(frozen=True)
class Schema:
    """The public description of a table, by which every row becomes numbers, whatever it holds.

    Nothing in it may come from the rows, unless it was released privately (`PrivateSchema`): who writes it writes down
    what is known of the columns without looking. Each row is encoded by itself, and none is refused:

    - a **number** is clipped to its range, which is then laid onto [-1, 1]. What is missing or is no number is taken
      for `missing`, by default the middle of the range; with `missing="column"` it is the middle, and marked by 1 in a
      column of its own;
    - a **category** is one column of 0 and 1 for each that is declared. What is missing or was not declared has 0 in
      all of them, or with `other` a column of its own;
    - a **label** that is missing or none of the classes counts as the first class.

    So the encoded table has as many rows as the table, and they differ in one row if those do.

    >>> schema = Schema(
    ...     columns=(Column("age", "number", range=(0, 100)), Column("ward", "category", categories=("a", "b"))),
    ...     target="readmitted",
    ...     classes=("no", "yes"),
    ... )
    >>> schema.encode({"age": [25, 400, None], "ward": ["b", "a", "?"]}).tolist()
    [[-0.5, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    >>> schema.class_indices(["yes", "no", "perhaps"]).tolist()
    [1, 0, 0]
    >>> Schema.from_toml(schema.to_toml()) == schema
    True

    In TOML, `kind` may be left out: what has categories is a category. A schema without target and classes describes
    columns only.
    """

    columns: tuple[Column, ...]
    target: str = ""
    classes: tuple[Any, ...] = ()
    group: str | None = None

    def __post_init__(self) -> None:
        if self.target or self.classes:
            _check_name(self.target, "target")
            if len(self.classes) < 2:
                raise SchemaError("classes must be at least two labels, as in classes = [\"no\", \"yes\"]")
            _DeclaredValues(self.classes, "classes")
        if self.group is not None:
            _check_name(self.group, "group")
        names = [one.name for one in self.columns]
        if not names:
            raise SchemaError("there must be at least one column to learn from")
        if len(set(names)) < len(names):
            raise SchemaError("two columns have the same name")
        for which, name in (("target", self.target), ("group", self.group)):
            if name in names:
                raise SchemaError(f"the {which} {name!r} must not be learned from: remove it from the columns")
        if self.group == self.target:
            raise SchemaError("group and target must be different columns")

    # ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def features(self) -> list[str]:
        """The names of the numbers of an encoded row: all numbers, then marks of missing ones, then categories."""
        numbers = [*(one.features[0] for one in self._numbers), *(one.features[1] for one in self._marked)]
        return numbers + [name for column in self._categories for name in column.features]

    @property
    def width(self) -> int:
        """How many numbers an encoded row has."""
        return len(self.features)

    @property
    def row_norm(self) -> float:
        """How long an encoded row can be: every column adds at most 1 to its square. Rounded up to hundredths."""
        return (math.isqrt(10_000 * len(self.columns) - 1) + 1) / 100

    def encode(self, table: Mapping[str, Any], /) -> Rows:
        """Columns by name as rows of numbers, all of them finite; other columns are not looked at."""
        size = len(table[self.columns[0].name])

        def cells_of(column: Column) -> Any:
            found = table[column.name]
            if len(found) != size:
                raise ValueError("the columns must have the same number of rows")
            return found

        rows = np.zeros((size, self.width))
        numbers = rows[:, : len(self._numbers)]
        for index, column in enumerate(self._numbers):
            numbers[:, index] = as_numbers(cells_of(column))
        self._mark(rows)
        self._scale(numbers)
        start, cells = len(self._numbers) + len(self._marked), rows.reshape(-1)
        first = np.arange(0, cells.size, self.width)
        for column, declared in zip(self._categories, self._declared, strict=True):
            found = declared.of(cells_of(column))
            if column.other:
                found[found < 0] = len(column.categories)
            cells[(first + start + found)[found >= 0]] = 1
            start += len(column.categories) + column.other
        return rows

    @cached_property
    def only_numbers(self) -> bool:
        """Whether no column is a category."""
        return not self._categories

    def encode_numbers(self, numbers: Rows, /) -> Rows:
        """As `encode` of the columns of an array, where all columns are numbers; the array may be used for the result.

        Parameters
        ----------
        numbers : array of shape (rows, columns)
            The cells, NaN for missing ones.
        """
        if self._categories or numbers.ndim != 2 or numbers.shape[1] != len(self._numbers):
            raise ValueError(f"numbers must have {len(self._numbers)} columns, and the schema no categories")
        if self._marked:
            rows = np.hstack([np.asarray(numbers, np.float64), np.zeros((len(numbers), len(self._marked)))])
            self._mark(rows)
        else:
            rows = numbers if numbers.dtype == np.float64 and numbers.flags.carray else np.array(numbers, np.float64)
        self._scale(rows[:, : len(self._numbers)])
        return rows

    def _mark(self, rows: Rows) -> None:
        """Mark the missing ones of the numbers that have a column for it, in place, before the ranges are laid."""
        if self._marked:
            marks = rows[:, len(self._numbers) : len(self._numbers) + len(self._marked)]
            marks[:] = np.isnan(rows[:, [self._numbers.index(one) for one in self._marked]])

    def _scale(self, numbers: Rows) -> None:
        """Lay the ranges onto [-1, 1], in place."""
        middle, half, low, high, missing = self._scales
        np.copyto(numbers, missing, where=np.isnan(numbers))
        _clip(numbers, low, high)
        numbers -= middle
        numbers /= half
        _clip(numbers, *ENDS)  # rounding may lead past the ends

    def class_indices(self, labels: Any) -> Indices:
        """The index of each label in `ascending_classes`; that of the first declared class for any other label."""
        declared = np.maximum(self._labels.of(labels), 0)
        return self._ascending_index[declared]

    def later_class_indices(self, labels: Any) -> Indices:
        """As `class_indices`, but −1 for any other label, as later labels have it."""
        declared = self._labels.of(labels)
        return np.where(declared < 0, -1, self._ascending_index[declared])

    def other_labels(self, labels: Any) -> NDArray[np.bool_]:
        """Whether each label is none of the classes, so that it counts as the first of them."""
        return self._labels.of(labels) < 0

    @cached_property
    def ascending_classes(self) -> Array:
        """The classes in the order that estimators give them."""
        return sorted_classes(self.classes)

    @cached_property
    def _ascending_index(self) -> Indices:
        return class_indices_of_any(np.asarray(self.classes), self.ascending_classes)

    @cached_property
    def _numbers(self) -> tuple[Column, ...]:
        return tuple(one for one in self.columns if one.kind == "number")

    @cached_property
    def _marked(self) -> tuple[Column, ...]:
        return tuple(one for one in self._numbers if one.marks_missing)

    @cached_property
    def _categories(self) -> tuple[Column, ...]:
        return tuple(one for one in self.columns if one.kind == "category")

    @cached_property
    def _scales(self) -> tuple[Array, Array, Array, Array, Array]:
        ranges = [one.range or (0, 1) for one in self._numbers]
        low, high = (np.array([one[end] for one in ranges], dtype=np.float64) for end in (0, 1))
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        missing = middle.copy()
        for index, one in enumerate(self._numbers):
            if one.missing is not None and not one.marks_missing:
                missing[index] = one.missing
        # As rows: NumPy takes half the time for a single row if both arrays have the same shape.
        return middle[None], half[None], low[None], high[None], missing[None]

    @cached_property
    def _declared(self) -> list[_DeclaredValues]:
        return [_DeclaredValues(one.categories, one.name) for one in self._categories]

    @cached_property
    def _labels(self) -> _DeclaredValues:
        return _DeclaredValues(self.classes, "classes")

    # ── TOML ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The schema that a text describes; a table `model`, of which a schema knows nothing, may stand beside it."""
        try:
            page = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"this is no TOML: {error}") from None
        _check_keys(page, {"target", "classes", "group", "columns", "model"}, "the schema")
        tables = page.get("columns", [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise SchemaError("every column must be a table of its own, under [[columns]]")
        if empty := unfilled(page):
            raise SchemaError(f"these are still to be filled in: {', '.join(empty)}")
        return cls(
            columns=tuple(_column(one) for one in tables),
            target=page.get("target", ""),
            classes=_listed(page.get("classes", []), "classes"),
            group=page.get("group"),
        )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The schema in a file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "it must be in UTF-8"
            raise SchemaError(f"{path} cannot be read: {what}") from None
        try:
            return cls.from_toml(text)
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from None

    def to_toml(self) -> str:
        """The schema as text."""
        lines = [f"target = {toml(self.target)}", f"classes = {toml(self.classes)}"] if self.target else []
        if self.group is not None:
            lines.append(f"group = {toml(self.group)}")
        for column in self.columns:
            lines += ["", "[[columns]]", f"name = {toml(column.name)}", f"kind = {toml(column.kind)}"]
            if column.kind == "number":
                lines.append(f"range = {toml(column.range)}")
                lines += [] if column.missing is None else [f"missing = {toml(column.missing)}"]
            else:
                lines.append(f"categories = {toml(column.categories)}")
                lines += ["other = true"] if column.other else []
        return "\n".join(lines) + "\n"


def unfilled(page: Mapping[str, Any]) -> list[str]:
    """What a draft has that is still empty."""
    empty = [key for key in ("target", "classes") if page.get(key, 0 if _of_columns(page) else "") in ("", [])]
    for index, column in enumerate(page.get("columns", []), start=1):
        keys = [key for key in ("range", "categories") if key in column]
        if keys and all(column[key] == [] for key in keys):
            empty.append(f"{' or '.join(keys)} of {column.get('name') or f'column {index}'}")
    return empty


def _of_columns(page: Mapping[str, Any]) -> bool:
    """Whether a text describes columns only: it has neither target nor classes."""
    return "target" not in page and "classes" not in page


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _clip(numbers: Array, low: Any, high: Any) -> None:
    """In place; np.clip takes longer to start than a row takes."""
    np.maximum(numbers, low, out=numbers)
    np.minimum(numbers, high, out=numbers)


class _DeclaredValues:
    """Finds values among those that were declared, which are all strings, all numbers or all truths.

    Strings are compared without the spaces around them, numbers by their value, whether or not they are written as
    text; so a table means the same in a CSV file, which knows only text, and in others.
    """

    def __init__(self, declared: Sequence[Any], name: str) -> None:
        kinds = {float if _is_number(one) else type(one) if isinstance(one, (bool, str)) else None for one in declared}
        if len(kinds) != 1 or None in kinds:
            raise SchemaError(f"{name} must be all text, all finite numbers, or all true or false")
        self.kind = kinds.pop()
        self.indices = {self.key(one): index for index, one in enumerate(declared)}
        if len(self.indices) < len(declared):
            raise SchemaError(f"{name} must be different from each other")

    def key(self, value: object) -> object:
        """What is compared of a value; None if it is missing, or of no use."""
        if self.kind is str:
            return as_text(value)
        number = as_number(value)
        if self.kind is bool:
            return TRUTHS.get(number)
        return number if math.isfinite(number) else None

    def of(self, values: Any) -> Indices:
        """The index of each value; -1 for values that were not declared."""
        some = values.tolist() if isinstance(values, np.ndarray) else list(values)
        found = each(some, lambda one: self.indices.get(self.key(one), -1))
        return np.fromiter(found, dtype=np.int64, count=len(some))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


# ── reading and writing TOML ──────────────────────────────────────────────────────────────────────────────────────


def _column(page: Mapping[str, Any]) -> Column:
    name = page.get("name", "")
    _check_name(name, "name of a column")
    _check_keys(page, {"name", "kind", "range", "missing", "categories", "other"}, f"column {name!r}")
    ends = _listed(page.get("range", []), f"column {name!r}: range")
    categories = _listed(page.get("categories", []), f"column {name!r}: categories")
    return Column(
        name=name,
        kind=page.get("kind", "category" if categories else "number"),
        range=ends or None,
        missing=page.get("missing"),
        categories=categories,
        other=page.get("other", False),
    )


def _listed(value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise SchemaError(f"{name} must be a list, in brackets")
    return tuple(value)


def _check_keys(page: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(page.keys() - known):
        raise SchemaError(f"{where} has {unknown[0]!r}, which is not known; there may be: {', '.join(sorted(known))}")


def _check_name(name: object, which: str) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise SchemaError(f"{which} must be the name of a column")


def toml(value: Any) -> str:
    """A value as TOML: text, numbers, truths and lists of these.

    >>> print(toml(["a\\"b", 1, 2.5, True]))
    ["a\\"b", 1, 2.5, true]
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(
            f"\\{one}" if one in '"\\' else one if one.isprintable() else f"\\U{ord(one):08x}" for one in value
        )
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, (int, float)) and math.isfinite(value):
        return repr(value)
    raise TypeError(f"there is no TOML for {type(value).__name__}")
