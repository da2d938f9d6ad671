"""What formats of models need to know of the columns of a schema."""

from __future__ import annotations

from typing import NamedTuple

from reticent.data.cells import as_text
from reticent.data.schema import Column, Schema


class Scale(NamedTuple):
    """How a number is clipped, filled in where it is missing, and laid onto [-1, 1]: (cell − middle) / half."""

    low: float
    high: float
    middle: float
    half: float
    missing: float

    @classmethod
    def of(cls, column: Column) -> Scale | None:
        """The scale of a column of numbers; None for a category."""
        if column.range is None:
            return None
        low, high = (float(end) for end in column.range)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        return cls(low, high, middle, half, middle if column.missing is None else float(column.missing))


def is_text(column: Column) -> bool:
    """Whether a column is a category of text. Others are read as numbers."""
    return column.kind == "category" and isinstance(column.categories[0], str)


def known_values(column: Column) -> list[str] | list[float]:
    """The categories of a column as cells are compared with them: text without spaces around it, or numbers."""
    return [as_text(one) for one in column.categories] if is_text(column) else [float(one) for one in column.categories]


def positions(schema: Schema, column: Column) -> list[int]:
    """Where the numbers of a column are in an encoded row: numbers come first, then categories."""
    start = 0
    for one in sorted(schema.columns, key=lambda one: one.kind != "number"):
        if one is column:
            return list(range(start, start + len(one.features)))
        start += len(one.features)
    raise ValueError(f"{column.name!r} is no column of the schema")
