"""Tables: the same rows from CSV, Parquet and Arrow, in parts of any size; nothing is refused for what it holds."""

from __future__ import annotations

import csv
import datetime
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.data.schema import Column, Schema
from reticent.service import tables
from reticent.service.tables import TableError, open_table

SCHEMA = Schema(
    (
        Column("age", "number", range=(0, 100)),
        Column("visits", "number", range=(0, 10)),
        Column("ward", "category", categories=("a", "b")),
        Column("smokes", "category", categories=(False, True)),
    ),
    target="y",
    classes=(0, 1),
)
TABLE = pa.table(
    {
        "age": pa.array([20.5, None, 70.0, float("nan")]),
        "visits": pa.array([1, None, 3, 20], type=pa.int32()),
        "ward": pa.array(["a", None, "z", "b"]).dictionary_encode(),
        "smokes": pa.array([True, False, None, True]),
        "y": pa.array([1, 0, None, 7], type=pa.int8()),
        "when": pa.array([datetime.datetime(2020, 1, 1)] * 4),
    }
)
CSV = "age,visits,ward,smokes,y,when\n20.5,1,a,true,1,x\n,,,false,0,x\n70.0,3,z,,,x\nnan,20,b,true,7,x\n"


def write(folder: Path, ending: str) -> Path:
    path = folder / f"table{ending}"
    if ending == ".csv":
        path.write_text(CSV)
    elif ending == ".parquet":
        pq.write_table(TABLE, path, row_group_size=3)
    else:
        make = pa.ipc.new_file if ending == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, make(sink, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=3)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow", ".arrows"])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_all_kinds_hold_the_same_rows(tmp_path: Path, ending: str, size: int) -> None:
    table = open_table(write(tmp_path, ending))
    assert table.names == ["age", "visits", "ward", "smokes", "y", "when"]
    assert table.count() == 4
    counted: list[int] = []
    columns = ["y", "ward", "age", "smokes", "visits"]
    parts = list(table.chunks(columns, counted.append, rows=size))
    assert sum(counted) == 4
    assert max(counted) <= size
    encoded = np.concatenate([SCHEMA.encode(one) for one in parts])
    assert encoded.tolist() == [
        [-0.59, -0.8, 1, 0, 0, 1],
        [0.0, 0.0, 0, 0, 1, 0],
        [pytest.approx(0.4), pytest.approx(-0.4), 0, 0, 0, 0],
        [0.0, 1.0, 0, 1, 0, 1],
    ]
    assert np.concatenate([SCHEMA.class_indices(one["y"]) for one in parts]).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".arrows"])
def test_types_that_a_file_declares(tmp_path: Path, ending: str) -> None:
    table = open_table(write(tmp_path, ending))
    assert table.types == {
        "age": "number", "visits": "number", "ward": "category", "smokes": "category", "y": "number",
    }  # fmt: skip
    words = r"the column 'when' is of type timestamp.*: make it a number or text.*; write a date as days since a fixed"
    with pytest.raises(TableError, match=words):
        list(table.chunks(["when"]))


def test_whole_numbers_and_decimals_are_not_rounded(tmp_path: Path) -> None:
    large = 2**53 + 1
    table = pa.table({"n": [large, None, 1], "d": [Decimal("1.5"), None, Decimal("2.5")]})
    pq.write_table(table, tmp_path / "t.parquet")
    (part,) = open_table(tmp_path / "t.parquet").chunks(["n", "d"])
    assert list(part["n"]) == [large, None, 1]
    assert list(part["d"]) == [1.5, None, 2.5]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_that_is_no_text_is_read_as_marks(tmp_path: Path, type_: pa.DataType) -> None:
    raw = pa.array([b"a", b"\xff", None, b"b"])
    words = pa.Array.from_buffers(pa.string(), 4, raw.buffers())  # nothing checks it, neither here nor in a file
    if pa.types.is_dictionary(type_):
        words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], type=pa.int32()), words)
    elif type_ != pa.string():
        words = pa.Array.from_buffers(type_, 4, raw.cast(pa.large_binary()).buffers())
    schema = pa.schema([("ward", type_)])
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        file.write_batch(pa.record_batch([words], names=["ward"]))
    (part,) = open_table(tmp_path / "t.arrow").chunks(["ward"])
    rules = Schema((Column("ward", "category", categories=("a", "b"), other=True),), target="y", classes=(0, 1))
    assert rules.encode(part).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0]]


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path, content: bytes, **options: Any) -> list[Any]:
    path.write_bytes(content)
    table = open_table(path)
    found = list(table.chunks(table.names, **options))
    rows = [list(one) for part in found for one in zip(*part.values(), strict=True)]
    assert table.count() == len(rows)
    return rows


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\n1,2\n", [["1", "2"]]),
        (b"a,b\r\n1,2\r\n", [["1", "2"]]),
        (b"\xef\xbb\xbfa,b\n1,2", [["1", "2"]]),
        (b"a,b\n1\n\n1,2,3\n,\n", [["1", ""], ["1", "2"], ["", ""]]),
        (b'a,b\n"x\ny","z, ""q"""\n', [["x\ny", 'z, "q"']]),
        (b"a,b\n\xff,\x00\n", [["\ufffd", "\ufffd"]]),
        (b" a , b\n", []),
        (b"\n\r\na,b\n1,2\n", [["1", "2"]]),
        (b",a,,b\n0,1,x,2\n", [["1", "2"]]),  # columns without a name, as pandas writes its index
        (b"a\n1\n\n2\n\n", [["1"], [""], ["2"], [""]]),  # of one column, an empty line is an empty cell
        (b"a;b\n1,5;x\n", [["1,5", "x"]]),
        (b'a,b\n1,"2\n3,4\n', [["1", "2\n3,4\n"]]),  # a quote that is not closed
        (b'a,b\n1,2"\n3,4\n', [["1", '2"'], ["3", "4"]]),  # a quote within a cell is text
    ],
)
def test_csv(tmp_path: Path, content: bytes, rows: list[list[str]]) -> None:
    assert read(tmp_path / "t.csv", content) == rows
    assert read(tmp_path / "t.csv", content, rows=1) == rows


@given(st.binary(max_size=200))
def test_any_bytes_after_the_header_are_rows(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    rows = read(tmp_path_factory.mktemp("csv") / "t.csv", b"a,b\n" + content)
    assert all(len(row) == 2 for row in rows)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "must start with a line that names the columns"),
        ("t.csv", b",,\n1,2,3\n", "must start with a line that names the columns"),
        ("t.csv", b"a,b,a\n", "two columns have the same name, columns 1 and 3; rename or drop one"),
        ("t.csv", b",a,b,a\n", "columns 2 and 4"),
        ("t.xlsx", b"", "must end in one of .csv"),
        ("t.parquet", b"secret", "damaged, or of another kind"),
        ("t.arrow", b"secret", "damaged, or of another kind"),
        ("t.arrow", b"", "damaged, or of another kind|cannot be read"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message) as caught:
        open_table(tmp_path / name)
    assert "secret" not in str(caught.value)


def test_no_file_and_no_column(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no file"):
        open_table(tmp_path / "t.csv")
    table = open_table(write(tmp_path, ".csv"))
    with pytest.raises(TableError, match="has no column 'x', 'z'; there are: age, visits"):
        list(table.chunks(["age", "x", "z"]))


def test_a_cell_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONGEST", 100)
    (tmp_path / "t.csv").write_text("a\n" + "secret" * 100)
    before = csv.field_size_limit(100)
    try:
        with pytest.raises(TableError, match="a cell is longer than 100 characters") as caught:
            open_table(tmp_path / "t.csv").count()
    finally:
        csv.field_size_limit(before)
    assert "secret" not in str(caught.value)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = write(tmp_path, ".parquet"), write(tmp_path, ".csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'reticent\[arrow\]'.*; or write the table as CSV"):
        open_table(path)
    assert open_table(plain).count() == 4
