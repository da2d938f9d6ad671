"""MLflow's way to ask: a table as JSON in one of four forms, or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from reticent.service.problems import Problem
from reticent.service.protocol import Array, Column, Rows, Rules, as_floats, encoded, listed, loosely, said

FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")

Cell = bool | int | float | str | None
Table = dict[str, list[Any]]


class Split(msgspec.Struct):
    """A table as pandas' orient="split" writes it."""

    data: list[list[Cell]]
    columns: list[str | int] | None = None
    index: list[Any] | None = None


class Invocation(msgspec.Struct):
    """A JSON body: one of the four forms."""

    dataframe_split: Split | None = None
    dataframe_records: list[dict[str, Cell]] | None = None
    instances: list[Any] | None = None
    inputs: list[Any] | dict[str, list[Any]] | None = None
    params: dict[str, Any] | None = None


_invocation = msgspec.json.Decoder(Invocation)
_numbers = list[float | bool | None]
_words = list[Cell]


def read_json(body: bytes, rules: Rules, most_rows: int) -> Rows:
    """The rows of a JSON body; refused by form and types, never by the values of its rows."""
    try:
        asked = _invocation.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            asked = msgspec.convert(loosely(body, error), Invocation)
        except (msgspec.ValidationError, RecursionError) as wrong:
            raise Problem("malformed", said(wrong)) from None
    given = [form for form in FORMS if getattr(asked, form) is not None]
    if len(given) != 1:
        raise Problem("malformed", f"the body must have exactly one of {', '.join(FORMS)}")
    if asked.params:
        raise Problem("malformed", "there are no params to be set")
    if asked.dataframe_split is not None:
        table = _from_split(asked.dataframe_split, rules.columns)
    elif asked.dataframe_records is not None:
        table = _from_records(asked.dataframe_records, rules.columns)
    elif isinstance(asked.inputs, dict):
        table = asked.inputs
    else:
        rows: list[Any] = (asked.instances if asked.instances is not None else asked.inputs) or []
        named = bool(rows) and isinstance(rows[0], dict)
        table = _from_records(rows, rules.columns) if named else _from_rows(rows, rules.columns)
    return _encoded(table, rules, most_rows)


def read_csv(body: bytes, rules: Rules, most_rows: int) -> Rows:
    """The rows of a CSV body, whose first line names the columns. What is no number is taken for a missing one."""
    try:
        lines = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error):
        longest = csv.field_size_limit()
        raise Problem("malformed", f"the body must be CSV in UTF-8, of cells up to {longest} characters") from None
    names = next(filter(None, lines), [])
    # Where there is one column, an empty line is a row whose cell is missing.
    lines = [line or [""] for line in lines[lines.index(names) :]] if len(names) == 1 else [*filter(None, lines)]
    if len(lines) - 1 > most_rows:
        raise Problem("too-large", f"there may be at most {most_rows} rows in a request")
    if len(lines) < 2:
        raise Problem("wrong-table", "there must be a line of names and at least one row")
    if any(len(line) != len(names) for line in lines):
        raise Problem("wrong-table", "every row must have a cell for every name")
    cells = dict(zip(names, zip(*lines[1:], strict=True), strict=False))
    if len(cells) != len(names):
        raise Problem("wrong-table", "two columns have the same name")
    _check_columns(cells, rules.columns)
    table: dict[str, Any] = {}
    for column in rules.columns:
        words = cells[column.name]
        table[column.name] = [_number(word) for word in words] if column.kind == "number" else list(words)
    return _encoded(table, rules, most_rows)


def written(predictions: Sequence[Any]) -> bytes:
    """The answer."""
    return msgspec.json.encode({"predictions": predictions})


def _number(word: str) -> float:
    try:
        # float() also takes digits of other scripts and underscores, which no table means.
        return float(word) if word.isascii() and "_" not in word else np.nan
    except ValueError:
        return np.nan


def _from_split(split: Split, columns: Sequence[Column]) -> Table:
    names = [str(name) for name in split.columns] if split.columns is not None else None
    if names is None or names == [str(place) for place in range(len(columns))]:
        return _from_rows(split.data, columns)
    if len(set(names)) != len(names):
        raise Problem("wrong-table", "two columns have the same name")
    if any(len(row) != len(names) for row in split.data):
        raise Problem("wrong-table", "every row must have a cell for every name")
    return dict(zip(names, map(list, zip(*split.data, strict=True)), strict=False)) if split.data else {}


def _from_records(records: Sequence[Any], columns: Sequence[Column]) -> Table:
    if not all(isinstance(record, dict) for record in records):
        raise Problem("wrong-table", "either all rows or none must be objects")
    for column in columns:
        if any(column.name not in record for record in records):
            raise Problem("wrong-table", f"every row must have the columns {listed(columns)}")
    return {column.name: [record[column.name] for record in records] for column in columns}


def _from_rows(rows: Sequence[Any], columns: Sequence[Column]) -> Table:
    """Cells by place: the columns in the order of the schema."""
    if len(columns) == 1 and not any(isinstance(row, (list, dict)) for row in rows):
        return {columns[0].name: list(rows)}
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise Problem("wrong-table", f"every row must be a list of {len(columns)} cells: {listed(columns)}")
    return {column.name: [row[place] for row in rows] for place, column in enumerate(columns)}


def _check_columns(table: Mapping[str, Any], columns: Sequence[Column]) -> None:
    if any(column.name not in table for column in columns):
        raise Problem("wrong-table", f"the columns must be {listed(columns)}; others are not looked at")


def _encoded(table: Table, rules: Rules, most_rows: int) -> Rows:
    sizes = {len(values) for values in table.values()}
    if not table or sizes == {0}:
        raise Problem("wrong-table", "there must be at least one row")
    if len(sizes) != 1:
        raise Problem("wrong-table", "the columns must have the same number of rows")
    if max(sizes) > most_rows:
        raise Problem("too-large", f"there may be at most {most_rows} rows in a request")
    _check_columns(table, rules.columns)
    typed = {column.name: _typed(table[column.name], column) for column in rules.columns}
    return encoded(rules, typed, "wrong-table")


def _typed(values: list[Any], column: Column) -> Array:
    """A column of numbers, or of categories; a value of another type is refused, as the schema is public."""
    if values and all(isinstance(one, list) and len(one) == 1 for one in values):
        values = [one[0] for one in values]
    try:
        if column.kind == "number":
            try:
                return np.array(msgspec.convert(values, _numbers), dtype=np.float64)
            except msgspec.ValidationError:
                return np.array(msgspec.convert(as_floats(values), _numbers), dtype=np.float64)
        result = np.empty(len(values), dtype=object)
        result[:] = msgspec.convert(values, _words)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError):
        kind = "numbers" if column.kind == "number" else "categories"
        raise Problem("wrong-table", f"the column {column.name!r} must hold {kind}, or null for none") from None
    return result
