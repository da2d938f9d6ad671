"""Whatever a cell holds, in every form: it is read alike, its query counts, and nothing is refused."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shop import predictor
from stand_in import FakeAnswering, connect, make_service

from reticent.data.queries import as_queries
from reticent.data.schema import Column, Schema
from reticent.service import client_messages
from reticent.service.http import invocations, open_inference
from reticent.service.http.problems import Problem
from reticent.service.tables import open_table

NUMBER = Column("x", "number", range=(0, 100), missing=30)
CATEGORY = Column("c", "category", categories=("a", "é", "1", "true"), other=True)
TRUTH = Column("t", "category", categories=(False, True), other=True)
LEVEL = Column("l", "category", categories=(0, 1, 2.5), other=True)
SCHEMA = Schema((NUMBER, CATEGORY, TRUTH, LEVEL), target="y", classes=(0, 1))
ALONE = Schema((NUMBER,), target="y", classes=(0, 1))
PAIR = Schema((NUMBER, Column("z", "number", range=(-1, 1), missing=0.5)), target="y", classes=(0, 1))


class Cell(NamedTuple):
    """A cell as JSON and as CSV write it; what it is as a number, and which of the categories. None is missing."""

    json: str | bytes
    csv: str | bytes
    number: float | None = None
    category: int | None = None
    truth: int | None = None
    level: int | None = None

    @property
    def in_json(self) -> bytes:
        return self.json if isinstance(self.json, bytes) else self.json.encode()

    @property
    def in_csv(self) -> bytes:
        return self.csv if isinstance(self.csv, bytes) else self.csv.encode()

    @property
    def text(self) -> bytes:
        """The text of the cell, without the quotes of CSV."""
        raw = self.in_csv.decode("utf-8", "surrogateescape")
        found = next(csv.reader(io.StringIO(raw, newline="")), [""])
        return found[0].encode("utf-8", "surrogateescape")

    def rows(self, schema: Schema) -> list[list[float]]:
        """The encoding of this cell in every column, and of a row beside it."""
        row: list[float] = []
        for column in schema.columns:
            if column.kind == "number":
                low, high = column.range or (0, 0)
                assert not isinstance(column.missing, str)
                value = column.missing if self.number is None else min(max(self.number, low), high)
                row.append(((value or 0) - (low + high) / 2) / ((high - low) / 2))
            else:
                place = {"c": self.category, "t": self.truth, "l": self.level}[column.name]
                width = len(column.categories)
                row += [float(one == (width if place is None else place)) for one in range(width + 1)]
        return [row, schema.encode({one.name: ["1"] for one in schema.columns})[0].tolist()]


DEEP = "[" * 100_000 + "]" * 100_000
CELLS = {
    "number": Cell("12.5", "12.5", 12.5),
    "whole": Cell("1", "1", 1, 2, 1, 1),
    "as text": Cell('"1"', "1", 1, 2, 1, 1),
    "with blanks": Cell('" 1 "', " 1 ", 1, 2, 1, 1),
    "float": Cell("2.5", "2.5", 2.5, level=2),
    "minus": Cell("-1e-400", "-1e-400", -0.0, truth=0, level=0),
    "true": Cell("true", "true", 1, 3, 1, 1),
    "false": Cell("false", "false", 0, truth=0, level=0),
    "null": Cell("null", ""),
    "empty": Cell('""', '""'),
    "blank": Cell('" "', '" "'),
    "nan": Cell("NaN", "nan"),
    "nan as text": Cell('"NaN"', "NaN"),
    "infinite": Cell("Infinity", "Infinity", math.inf),
    "infinitely little": Cell("-Infinity", "-inf", -math.inf),
    "beyond floats": Cell("1e309", "1e309", math.inf),
    "400 digits": Cell("1" + "0" * 400, "1" + "0" * 400, math.inf),
    "-5,000 digits": Cell("-1" + "0" * 5_000, "-1" + "0" * 5_000, -math.inf),
    "category": Cell('"a"', "a", category=0),
    "category with blanks": Cell('" a\\t"', '" a\t"', category=0),
    "category in UTF-8": Cell('"é"', "é", category=1),
    "category escaped": Cell('"\\u00e9"', "é", category=1),
    "category in Latin-1": Cell(b'"\xe9"', b"\xe9"),
    "not UTF-8": Cell(b'"caf\xe9 \xff"', b"caf\xe9 \xff"),
    "unknown": Cell('"z"', "z"),
    "semicolon": Cell('"a;b"', '"a;b"'),
    "comma": Cell('"a,b"', '"a,b"'),
    "tab": Cell('"a\\tb"', '"a\tb"'),
    "lines": Cell('"a\\r\\nb\\n"', '"a\r\nb\n"'),
    "quote": Cell('"a\\"b"', '"a""b"'),
    "brackets": Cell('"][}{"', "][}{"),
    "NUL": Cell('"a\\u0000"', b'"a\x00"'),
    "raw NUL": Cell(b'"a\x00"', b'"a\x00"'),
    "raw tab": Cell(b'"a\tb"', b'"a\tb"'),
    "raw lines": Cell(b'"a\r\nb\n"', b'"a\r\nb\n"'),
    "half a character": Cell('"\\ud800"', b"\xed\xa0\x80"),
    "underscore": Cell('"1_0"', "1_0"),
    "other digits": Cell('"٣"', "٣"),
    "hexadecimal": Cell('"0x10"', "0x10"),
    "list": Cell("[1, 2]", '"[1, 2]"'),
    "empty list": Cell("[]", "[]"),
    "list of lists": Cell('[["1"]]', '"[[""1""]]"'),
    "object": Cell('{"x": 1}', '"{""x"": 1}"'),
    "deep": Cell(DEEP, f'"{DEEP}"'),
    "long": Cell('"' + "a" * 200_000 + '"', "a" * 200_000),
}
NAMES = [column.name for column in SCHEMA.columns]
JSON = {"Content-Type": "application/json"}
OTHER = b"1"  # the cells of the row beside it


class Form(NamedTuple):
    schema: Schema
    path: str
    headers: dict[str, str]
    body: Callable[[Cell], bytes]


def tensors(cells: tuple[bytes, bytes], names: list[str], datatype: str, form: bytes, shape: str = "[2]") -> bytes:
    """One tensor per column; `form` has places for both cells."""
    made = [
        b'{"name": "%s", "shape": %s, "datatype": "%s", "data": %s}'
        % (name.encode(), shape.encode(), datatype.encode(), form % cells)
        for name in names
    ]
    return b'{"inputs": [%s]}' % b", ".join(made)


def packed(cell: Cell, names: list[str], shape: list[int] | None = None) -> bytes:
    """Columns as binary strings, or all cells in one tensor."""
    words, many = [cell.text] * (len(NAMES) if shape else 1), [b"1"] * (len(NAMES) if shape else 1)
    if shape:
        words, many = words[: shape[1]], many[: shape[1]]
    data = b"".join(struct.pack("<I", len(one)) + one for one in (*words, *many))
    inputs = [
        {"name": name, "shape": shape or [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}
        for name in names
    ]
    head = json.dumps({"inputs": inputs}).encode()
    return b"%d %b" % (len(head), head + data * len(names))


def lines(cell: Cell, names: list[str], separator: str = ",", end: str = "\n") -> bytes:
    between = separator.encode()
    raw = cell.in_csv
    if between in raw and not raw.startswith(b'"'):
        raw = b'"%b"' % raw
    rows = (separator.join(names).encode(), between.join([raw] * len(names)), between.join([b"1"] * len(names)))
    return end.encode().join(rows) + end.encode()


def row(cell: bytes, columns: int) -> bytes:
    return b"[%b]" % b", ".join([cell] * columns)


def record(cell: bytes, names: list[str]) -> bytes:
    return b"{%b}" % b", ".join(b'"%b": %b' % (name.encode(), cell) for name in names)


INFER, INVOKE, CSV = "/v2/models/clinic/infer", "/invocations", {"Content-Type": "text/csv"}
FORMS = {
    "split": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"dataframe_split": {"columns": %b, "data": [%b, %b]}}'
                  % (json.dumps(NAMES).encode(), row(one.in_json, 4), row(OTHER, 4))),
    "split by place": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"dataframe_split": {"data": [%b, %b]}}'
                           % (row(one.in_json, 4), row(OTHER, 4))),
    "records": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"dataframe_records": [%b, %b]}'
                    % (record(one.in_json, NAMES), record(OTHER, NAMES))),
    "instances": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"instances": [%b, %b]}'
                      % (row(one.in_json, 4), row(OTHER, 4))),
    "instances by name": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"instances": [%b, %b]}'
                              % (record(one.in_json, NAMES), record(OTHER, NAMES))),
    "inputs": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"inputs": [%b, %b]}' % (row(one.in_json, 4), row(OTHER, 4))),
    "inputs by column": Form(SCHEMA, INVOKE, JSON, lambda one: b'{"inputs": {%b}}' % b", ".join(
        b'"%b": [[%b], %b]' % (name.encode(), one.in_json, OTHER) for name in NAMES)),
    "comma": Form(SCHEMA, INVOKE, CSV, lambda one: lines(one, NAMES)),
    "semicolon": Form(SCHEMA, INVOKE, CSV, lambda one: lines(one, NAMES, ";")),
    "tab, CRLF": Form(SCHEMA, INVOKE, CSV, lambda one: lines(one, NAMES, "\t", "\r\n")),
    "BOM, CR": Form(SCHEMA, INVOKE, CSV, lambda one: b"\xef\xbb\xbf" + lines(one, NAMES, ",", "\r")),
    "UTF-16": Form(SCHEMA, INVOKE, CSV, lambda one: lines(one, NAMES).decode("utf-8", "replace").encode("utf-16")),
    "tensors of text": Form(SCHEMA, INFER, JSON, lambda one: tensors(
        (one.in_json, OTHER), NAMES, "BYTES", b"[%b, %b]")),
    "tensors of numbers": Form(SCHEMA, INFER, JSON, lambda one: tensors(
        (one.in_json, OTHER), NAMES, "FP64", b"[[%b], [%b]]", "[2, 1]")),
    "binary": Form(SCHEMA, INFER, {}, lambda one: packed(one, NAMES)),
    "matrix": Form(PAIR, INFER, JSON, lambda one: tensors(
        (b"%b, %b" % (one.in_json, one.in_json), b"1, 1"), ["rows"], "FP64", b"[%b, %b]", "[2, 2]")),
    "matrix of rows": Form(PAIR, INFER, JSON, lambda one: tensors(
        (row(one.in_json, 2), b"[1, 1]"), ["rows"], "INT64", b"[%b, %b]", "[2, 2]")),
    "binary matrix": Form(PAIR, INFER, {}, lambda one: packed(one, ["rows"], [2, 2])),
    "alone": Form(ALONE, INVOKE, JSON, lambda one: b'{"instances": [%b, %b]}'
                  % (one.in_json if one.json[0] != "{" else row(one.in_json, 1), OTHER)),  # an object names its cells
    "alone in lists": Form(ALONE, INVOKE, JSON, lambda one: b'{"inputs": [[%b], [%b]]}' % (one.in_json, OTHER)),
    "alone by column": Form(ALONE, INVOKE, JSON, lambda one: b'{"inputs": {"x": [%b, %b]}}' % (one.in_json, OTHER)),
    "alone in CSV": Form(ALONE, INVOKE, CSV, lambda one: lines(one, ["x"])),
    "alone as tensor": Form(ALONE, INFER, JSON, lambda one: tensors((one.in_json, OTHER), ["x"], "FP32", b"[%b, %b]")),
}  # fmt: skip


def ask(form: Form) -> Iterator[tuple[str, int, int, Any]]:
    """Each cell in a form: its name, the status, how much was counted, and the rows that were answered."""

    async def run() -> list[tuple[str, int, int, Any]]:
        found = []
        service = make_service(form.schema)  # type: ignore[arg-type]
        answering = service.answering
        assert isinstance(answering, FakeAnswering)
        async with connect(service) as http:
            for name, cell in CELLS.items():
                before, headers, body = answering.spent, dict(form.headers), form.body(cell)
                if not headers:
                    length, _, body = body.partition(b" ")
                    headers = {open_inference.HEADER_LENGTH: length.decode()}
                reply = await http.post(form.path, content=body, headers=headers)
                rows = answering.asked[-1].rows.tolist() if answering.spent > before else None
                found.append((name, reply.status_code, answering.spent - before, rows))
        return found

    yield from asyncio.run(run())


def check(form: Form) -> None:
    for name, status, counted, rows in ask(form):
        assert (name, status, counted) == (name, 200, 2)
        assert (name, rows) == (name, [pytest.approx(one) for one in CELLS[name].rows(form.schema)])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_cell_counts_and_is_read_alike_in_every_form(form: Form) -> None:
    check(form)


# ── the twins: the rules as they were ─────────────────────────────────────────────────────────────────────────────


def strict_csv(body: bytes, rules: Any, most_rows: int) -> Any:
    """A body that must be text, with as many cells in a line as there are names."""
    try:
        lines = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error):
        raise Problem("malformed") from None
    if any(len(line) != len(lines[0]) for line in lines):
        raise Problem("wrong-table")
    return rules.encode(dict(zip(lines[0], zip(*lines[1:], strict=True), strict=True)))


def strict_types(rules: Any, table: Any) -> Any:
    """Cells that must be of the type of their column."""
    kinds: dict[str, Any] = {"number": list[float | bool | None], "category": list[bool | float | str | None]}
    try:
        return rules.encode({one.name: msgspec.convert(table[one.name], kinds[one.kind]) for one in rules.columns})
    except (msgspec.ValidationError, ValueError):
        raise Problem("wrong-table") from None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "twin", "form"),
    [("read_csv", strict_csv, "comma"), ("encoded", strict_types, "split"), ("encoded", strict_types, "records")],
)
def test_the_old_rules_are_rejected(monkeypatch: pytest.MonkeyPatch, place: str, twin: Any, form: str) -> None:
    monkeypatch.setattr(invocations, place, twin)
    refused = {name for name, status, *_ in ask(FORMS[form]) if status == 400}
    assert refused >= ({"not UTF-8"} if place == "read_csv" else {"list", "object"})
    assert not refused & {"number", "null", "nan"}  # so the test can pass
    with pytest.raises(AssertionError):
        check(FORMS[form])


def test_a_semicolon_in_a_value_does_not_decide() -> None:
    """The line has a cell too many, by the separator that the header says."""
    rules: Any = ALONE
    for body in (b"x;u\n7;a;b\n", b"x,u\n7,a,b\n", b"x;u\n7\n", "x;u\n7;é\n".encode("latin-1")):
        assert invocations.read_csv(body, rules, 10).tolist() == ALONE.encode({"x": [7]}).tolist()


# ── tables, and our own client ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_file_is_read_as_a_body_is(tmp_path: Path, separator: str) -> None:
    for name, cell in CELLS.items():
        (tmp_path / "t.csv").write_bytes(lines(cell, NAMES, separator))
        table = open_table(tmp_path / "t.csv")
        (part,) = table.chunks(NAMES, numbers=["x"])
        assert (name, SCHEMA.encode(part).tolist()) == (name, [pytest.approx(one) for one in cell.rows(SCHEMA)])
        assert table.count() == 2


def test_a_typed_file_is_read_as_a_body_is(tmp_path: Path) -> None:
    for name, cell in CELLS.items():
        raw = pa.array([cell.text, b"1"])
        words = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
        columns: list[Any] = [words]
        if name in ("number", "whole", "float", "true", "false", "null", "nan", "infinite", "infinitely little"):
            value = json.loads(cell.in_json)
            columns.append(pa.array([value, True if isinstance(value, bool) else 1]))
        for column in columns:
            pq.write_table(pa.table([column] * len(NAMES), names=NAMES), tmp_path / "t.parquet")
            (part,) = open_table(tmp_path / "t.parquet").chunks(NAMES)
            first, second = cell.rows(SCHEMA)
            found = SCHEMA.encode(part).tolist()
            assert (name, found[0]) == (name, pytest.approx(first))
            assert pa.types.is_boolean(column.type) or found[1] == pytest.approx(second)


@pytest.mark.parametrize("sent", ["objects", "text"])
def test_our_client_asks_what_it_was_given(sent: str) -> None:
    rules: Any = SCHEMA
    for name, cell in CELLS.items():
        if sent == "objects" and name not in ("not UTF-8", "category in Latin-1", "deep"):  # they are no Python
            value = json.loads(
                cell.in_json, parse_int=lambda word: int(word) if len(word) < 4_000 else float(word), strict=False
            )
        else:
            value = cell.text
        head, data = client_messages.encode_request(client_messages.tensors_of({one: [value, 1] for one in NAMES})[0])
        found = open_inference.read(head + data, str(len(head)), rules, 10).rows.tolist()
        assert (name, found) == (name, [pytest.approx(one) for one in cell.rows(SCHEMA)])
        head, data = client_messages.encode_request(client_messages.tensors_of([[value, value], [1, "1"]])[0])
        pair: Any = PAIR
        found = open_inference.read(head + data, str(len(head)), pair, 10).rows.tolist()
        assert (name, found) == (name, [pytest.approx(one) for one in cell.rows(PAIR)])


def test_truths_stay_truths() -> None:
    """True is the category "true", not "1", however it is sent."""
    rules: Any = SCHEMA
    expected = CELLS["true"].rows(SCHEMA)[0]
    for column in ([True], np.array([True]), [True, 1.5], [True, "x"], [True, [1]], np.array([True, None])):
        head, data = client_messages.encode_request(client_messages.tensors_of(dict.fromkeys(NAMES, column))[0])
        assert open_inference.read(head + data, str(len(head)), rules, 10).rows[0].tolist() == pytest.approx(expected)


# ── queries of a predictor ────────────────────────────────────────────────────────────────────────────────────────


class Hostile:
    def __float__(self) -> float:
        raise RuntimeError("secret")

    def __len__(self) -> int:
        raise RuntimeError("secret")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("secret")


def test_no_cell_of_a_query_refuses_a_batch() -> None:
    odd: list[Any] = [
        json.loads(one.in_json.decode("utf-8", "replace"), parse_int=float, strict=False)
        for name, one in CELLS.items()
        if name != "deep"
    ]
    odd += [Hostile(), np.zeros(3), np.zeros((1, 1)), 1j, b"0.5", np.float64(0.5), (1, 2)]
    for cell in odd:
        found = as_queries([[0.1], [cell], [0.9]])
        assert found.shape == (3, 1)
        assert found[[0, 2], 0].tolist() == [0.1, 0.9]
        assert as_queries([[cell, 1.0]]).shape == (1, 2)
    numbers = {name: as_queries([[json.loads(one.in_json)]])[0, 0] for name, one in CELLS.items()
               if name in ("number", "whole", "as text", "with blanks", "true", "infinite")}  # fmt: skip
    assert numbers == {name: CELLS[name].number for name in numbers}
    assert np.isnan(as_queries([["1_0"]])).all()


def test_a_nested_cell_counts() -> None:
    asked = predictor(answers=100)
    before = asked.answers_left_in_phase_
    assert len(asked.predict([[0.1], [[1, 2]]])) == 2
    assert before - asked.answers_left_in_phase_ == 2
    for shape in ([[0.1], [1, 2]], [0.1, [1]], [[[1, 2]], 3], [0.1, 0.2]):
        with pytest.raises(ValueError, match=r"rows of equal length|two dimensions"):
            asked.predict(shape)
