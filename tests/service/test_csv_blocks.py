"""Many lines of CSV at once: the same cells as line by line, whatever a file holds and wherever blocks end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent.data.cells import as_number, parsed_numbers
from reticent.service import csv_blocks
from reticent.service.tables import Csv, TableError

CELLS = st.sampled_from(
    ["", "1", "2.5", " 3 ", "x", '"', '"a,b"', '"a\nb"', "é", "1_0", "\0", "nan", "true", '""', "a;b"]
)
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r", "\n,\n"])
FILES = st.lists(st.tuples(st.lists(CELLS, min_size=1, max_size=4), ENDS), max_size=12)
HEADERS = st.sampled_from(["a,b,c\n", "a\n", "\n\na;b\r\n", '"a",b\n', "\ufeffa,b\n", "a,b,c\r\n"])


def read(table: Csv, rows: int, **options: Any) -> list[dict[str, list[Any]]]:
    found = table.chunks(table.names, rows=rows, **options)
    return [{name: list(cells) for name, cells in one.items()} for one in found]


def in_both_ways(body: bytes, block: int, rows: int) -> tuple[Any, Any, Csv]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_blocks, "BLOCK", block)
        table, slow = Csv("t.csv", body), Csv("t.csv", body)
        slow._in_blocks = False
        assert table.count() == slow.count()
        return read(table, rows), read(slow, rows), table


@given(header=HEADERS, lines=FILES, tail=st.sampled_from(["", "1", '"', "1,2,3"]), block=st.integers(1, 40))
@settings(deadline=None, max_examples=300)
@example(header="a,b\n", lines=[(['"a\nb"', "x"], "\n"), (["1", "2"], "\n")], tail="", block=1)
@example(header="a\n", lines=[([""], "\n\n")], tail="", block=2)
def test_blocks_and_lines_are_the_same_cells(
    header: str, lines: Sequence[tuple[list[str], str]], tail: str, block: int
) -> None:
    text = header + "".join(("," if len(cells) % 2 else ";").join(cells) + end for cells, end in lines) + tail
    fast, slow, table = in_both_ways(text.encode(), block, rows=3)
    assert fast == slow
    assert sum(len(one[table.names[0]]) for one in fast) == table.count()
    assert all(len(one[table.names[0]]) == 3 for one in fast[:-1])


@given(st.binary(max_size=80), st.integers(1, 20))
@settings(deadline=None, max_examples=300)
def test_any_bytes_at_all(body: bytes, block: int) -> None:
    fast, slow, _ = in_both_ways(b"a,b\n" + body, block, rows=2)
    assert fast == slow


def test_a_twin_that_splits_quoted_cells_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'a,b\n"1,2",3\n4,5\n'
    fast, slow, _ = in_both_ways(body, 1 << 17, rows=5)
    assert fast == slow
    monkeypatch.setattr(csv_blocks, "_without_quotes", lambda block: block.replace(b'"', b""))
    fast, slow, _ = in_both_ways(body, 8, rows=5)
    assert fast != slow


def test_a_twin_that_fills_ragged_lines_from_the_next_one_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that lacks a cell must not move the cells of others."""

    def split(self: Any, block: bytes, indices: Sequence[int]) -> csv_blocks.Block:
        cells = block.decode().replace("\n", ",").split(",")[:-1]
        rows = len(cells) // self._width
        return csv_blocks.Block(rows, [cells[index :: self._width][:rows] for index in indices], plain=True)

    body = b"a,b\n1\n2,3,4\n5,6\n"
    fast, slow, _ = in_both_ways(body, 1 << 17, rows=5)
    assert fast == slow == [{"a": ["1", "2", "5"], "b": ["", "3", "6"]}]
    monkeypatch.setattr(csv_blocks.BlockReader, "_split", split)
    fast, slow, _ = in_both_ways(body, 1 << 17, rows=5)
    assert fast != slow


@given(st.lists(st.one_of(CELLS, st.floats().map(str), st.text(max_size=4)), max_size=8))
def test_numbers_that_are_parsed_at_once_are_those_of_each_cell(cells: list[str]) -> None:
    found = parsed_numbers(cells)
    assert np.array_equal(found, [as_number(one) for one in cells], equal_nan=True)


def test_numbers_come_as_floats_and_with_a_decimal_comma() -> None:
    (part,) = Csv("t.csv", b"a;b\n1,5;x\n;y\n2.5;z\n").chunks(["a", "b"], numbers={"a"}, as_floats=True)
    assert part["b"] == ["x", "y", "z"]
    assert part["a"].dtype == np.float64
    assert (part["a"][0], math.isnan(part["a"][1]), part["a"][2]) == (1.5, True, 2.5)


def test_plain_lines_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a large file would take five times as long."""
    body = b"a,b\n" + b"1,2\r\n" * 100_000
    table = Csv("t.csv", body)
    monkeypatch.setattr(csv_blocks.BlockReader, "_records", None)
    assert table.count() == sum(len(one["a"]) for one in table.chunks(["a"])) == 100_000


def test_a_cell_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1," + b"x" * ((1 << 24) + 1) + b"\n")
    with pytest.raises(TableError, match="longer than 16777216 characters"):
        Csv(path).count()
    with pytest.raises(TableError, match="longer than 16777216 characters"):
        list(Csv(path).chunks(["b"]))
