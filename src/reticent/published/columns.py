"""What formats of models need to know of the columns of a schema."""

from __future__ import annotations

import math
from typing import NamedTuple

from reticent.data.cells import as_text
from reticent.data.schema import Column, Schema


class Scale(NamedTuple):
    """How a number is clipped, filled in where it is missing, and laid onto [-1, 1]: (cell − middle) / half.

    With `marked`, a second number is 1 where the cell is missing.
    """

    low: float
    high: float
    middle: float
    half: float
    missing: float
    marked: bool

    @classmethod
    def of(cls, column: Column) -> Scale | None:
        """The scale of a column of numbers; None for a category."""
        if column.range is None:
            return None
        low, high = (float(end) for end in column.range)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        missing = float(column.missing) if isinstance(column.missing, (int, float)) else middle
        return cls(low, high, middle, half, missing, marked=len(column.features) > 1)


def is_text(column: Column) -> bool:
    """Whether a column is a category of text. Others are read as numbers."""
    return column.kind == "category" and isinstance(column.categories[0], str)


def known_values(column: Column) -> list[str] | list[float]:
    """The categories of a column as cells are compared with them: text without spaces around it, or numbers."""
    return [as_text(one) for one in column.categories] if is_text(column) else [float(one) for one in column.categories]


def positions(schema: Schema, column: Column) -> list[int]:
    """Where the numbers of a column are in an encoded row: numbers come first, then their marks, then categories."""
    numbers = [one for one in schema.columns if one.kind == "number"]
    owners = [
        *numbers,
        *(one for one in numbers for _ in one.features[1:]),
        *(one for one in schema.columns if one.kind != "number" for _ in one.features),
    ]
    return [index for index, one in enumerate(owners) if one is column]


def encoded_bound(schema: Schema) -> float:
    """The greatest length of an encoded row: every column adds at most 1 to its square."""
    return math.sqrt(len(schema.columns))
