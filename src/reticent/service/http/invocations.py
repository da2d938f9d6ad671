"""MLflow's invocations: a table as JSON in one of four forms, or as CSV."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from reticent.service.http.json_bodies import decode_loosely, decoding_error
from reticent.service.http.open_inference import DeclaredColumn, Rows, Rules, encoded, in_one_column, listed
from reticent.service.http.problems import Problem
from reticent.service.tables import Csv, TableError

FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")

Columns = dict[str, list[Any]]


class SplitTable(msgspec.Struct):
    """A table as pandas' orient="split" writes it."""

    data: list[list[Any]]
    columns: list[str | int] | None = None
    index: list[Any] | None = None


class Invocation(msgspec.Struct):
    """A JSON body: one of the four forms."""

    dataframe_split: SplitTable | None = None
    dataframe_records: list[dict[str, Any]] | None = None
    instances: list[Any] | None = None
    inputs: list[Any] | dict[str, list[Any]] | None = None
    params: dict[str, Any] | None = None


_invocation = msgspec.json.Decoder(Invocation)


def read_json(body: bytes, rules: Rules, most_rows: int) -> Rows:
    """The rows of a JSON body; refused by form, names and sizes, never for what a cell holds."""
    try:
        asked = _invocation.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            asked = msgspec.convert(decode_loosely(body, error), Invocation)
        except msgspec.ValidationError as wrong:
            raise Problem("malformed", decoding_error(wrong)) from None
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
        table = {name: [in_one_column(entry) for entry in entries] for name, entries in asked.inputs.items()}
    else:
        rows: list[Any] = (asked.instances if asked.instances is not None else asked.inputs) or []
        named = bool(rows) and len(rules.columns) > 1 and isinstance(rows[0], dict)
        table = _from_records(rows, rules.columns) if named else _from_rows(rows, rules.columns)
    return _encoded(table, rules, most_rows)


def read_csv(body: bytes, rules: Rules, most_rows: int) -> Rows:
    """The rows of a CSV body, by the rules of a CSV file; refused by its header and the number of its rows alone."""
    try:
        table = Csv("the body", body)
    except TableError as error:
        raise Problem("wrong-table", str(error)) from None
    _check_columns(table.names, rules.columns)
    names = [column.name for column in rules.columns]
    numbers = [column.name for column in rules.columns if column.kind == "number"]
    first: Columns = next(table.chunks(names, rows=most_rows + 1, numbers=numbers), {})
    return _encoded(first, rules, most_rows)


def written(
    predictions: Sequence[Any],
    probabilities: Rows | None = None,
    answer_ids: Sequence[str] | None = None,
    quality: str | None = None,
) -> bytes:
    """The answer, with members that MLflow's clients ignore.

    These are the probabilities of all classes and the answer ids, if they are offered, and a warning of quality.
    """
    found = {
        "predictions": predictions,
        "probabilities": None if probabilities is None else probabilities.tolist(),
        "answer_ids": answer_ids,
        "quality": quality,
    }
    return msgspec.json.encode({name: value for name, value in found.items() if value is not None})


def _from_split(split: SplitTable, columns: Sequence[DeclaredColumn]) -> Columns:
    names = [str(name) for name in split.columns] if split.columns is not None else None
    if names is None or names == [str(place) for place in range(len(columns))]:
        return _from_rows(split.data, columns)
    if len(set(names)) != len(names):
        raise Problem("wrong-table", "two columns have the same name")
    if any(len(row) != len(names) for row in split.data):
        raise Problem("wrong-table", "every row must have a cell for every name")
    return dict(zip(names, map(list, zip(*split.data, strict=True)), strict=False)) if split.data else {}


def _from_records(records: Sequence[Any], columns: Sequence[DeclaredColumn]) -> Columns:
    if not all(isinstance(record, dict) for record in records):
        raise Problem("wrong-table", "either all rows or none must be objects")
    if missing := [column for column in columns if any(column.name not in record for record in records)]:
        raise Problem("wrong-table", f"every row must have {listed(missing)}, null where nothing is known")
    return {column.name: [record[column.name] for record in records] for column in columns}


def _from_rows(rows: Sequence[Any], columns: Sequence[DeclaredColumn]) -> Columns:
    """Cells by index: the columns in the order of the schema."""
    if len(columns) == 1:
        return {columns[0].name: [_alone(row, columns[0]) for row in rows]}
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise Problem("wrong-table", f"every row must be a list of {len(columns)} cells: {listed(columns)}")
    return {column.name: [row[place] for row in rows] for place, column in enumerate(columns)}


def _alone(row: Any, column: DeclaredColumn) -> Any:
    """The cell of a row of one column: it stands alone, in a list, or under its name."""
    if not isinstance(row, dict):
        return in_one_column(row)
    if column.name not in row:
        raise Problem("wrong-table", f"every row must have {listed([column])}, null where nothing is known")
    return row[column.name]


def _check_columns(names: Collection[str], columns: Sequence[DeclaredColumn]) -> None:
    if missing := [column for column in columns if column.name not in names]:
        raise Problem("wrong-table", f"there is no column {listed(missing)}; the columns must be {listed(columns)}")


def _encoded(table: Columns, rules: Rules, most_rows: int) -> Rows:
    if not table:
        raise Problem("wrong-table", "there must be at least one row")
    _check_columns(table, rules.columns)
    sizes = {len(table[column.name]) for column in rules.columns}  # those of other columns are not looked at
    if sizes == {0}:
        raise Problem("wrong-table", "there must be at least one row")
    if len(sizes) != 1:
        raise Problem("wrong-table", "the columns must have the same number of rows")
    if max(sizes) > most_rows:
        raise Problem("too-large", f"there may be at most {most_rows} rows in a request")
    return encoded(rules, table)
