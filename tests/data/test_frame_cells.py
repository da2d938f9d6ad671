"""Cells of frames: one odd cell changes neither how others are read nor whether the table can be read."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from reticent.data.cells import as_number, as_text
from reticent.data.frames import Columns
from reticent.data.schema_release import number_bins

FAR = 1 << 60  # as milliseconds since 1970: beyond all dates that Python knows


def bins(table: Any) -> dict[int, int]:
    """The bins of the first column that are not empty."""
    columns = Columns(table)
    counts = number_bins(columns[next(iter(columns))])
    return {int(place): int(counts[place]) for place in np.flatnonzero(counts)}


@pytest.mark.parametrize("cell", [np.datetime64("2020-01-01T00:00:00.000000001", "ns"), np.timedelta64(5, "ns")])
def test_one_odd_cell_beside_dates_moves_two_counts(cell: Any) -> None:
    pandas = pytest.importorskip("pandas")
    dates = pandas.DataFrame({"a": pandas.Series([cell] * 4)})
    odd = pandas.DataFrame({"a": pandas.Series([cell] * 3 + ["x"])})
    one, other = bins(dates), bins(odd)
    assert sum(abs(one.get(place, 0) - other.get(place, 0)) for place in one | other) == 2
    assert as_text(cell) == ""
    assert np.isnan(as_number(cell))


def test_one_complex_number_moves_two_counts() -> None:
    pandas = pytest.importorskip("pandas")
    whole, odd = (pandas.DataFrame({"a": [1, 2.5, None, last]}) for last in (4, 4j))
    assert odd["a"].dtype.kind == "c"
    one, other = bins(whole), bins(odd)
    assert sum(abs(one.get(place, 0) - other.get(place, 0)) for place in one | other) == 2
    assert [as_text(cell) for cell in Columns(odd)["a"]] == ["1", "2.5", "", ""]


def test_dates_beyond_all_calendars_are_read_as_others_are_in_polars() -> None:
    polars = pytest.importorskip("polars")
    for type_, far in ((polars.Date, 10**7), (polars.Datetime("ms"), FAR), (polars.Duration("ms"), FAR * 4)):
        one, other = (polars.Series("a", [0, last]).cast(type_).to_frame() for last in (1, far))
        assert bins(one) == bins(other)


def test_wide_whole_numbers_of_polars_are_read_with_and_without_a_missing_one() -> None:
    polars = pytest.importorskip("polars")
    whole, missing = (polars.DataFrame({"a": polars.Series([1, last], dtype=polars.Int128)}) for last in (2, None))
    assert Columns(whole)["a"] == [1, 2]
    assert Columns(missing)["a"] == [1, None]


@pytest.mark.parametrize("in_pandas", [False, True])
def test_dates_beyond_all_calendars_are_read_as_others_are_in_arrow(in_pandas: bool) -> None:
    pyarrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    for type_ in (pyarrow.timestamp("ms"), pyarrow.duration("s"), pyarrow.date64()):
        arrays = [pyarrow.array([0, last], pyarrow.int64()).cast(type_) for last in (1, FAR)]
        one, other = (
            pandas.DataFrame({"a": pandas.Series(pandas.arrays.ArrowExtensionArray(each))})
            if in_pandas
            else pyarrow.table({"a": each})
            for each in arrays
        )
        assert bins(one) == bins(other)


def test_bytes_that_are_no_text_are_read_by_themselves() -> None:
    pyarrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    bytes_ = pyarrow.array([b"\xff", b"7"], pyarrow.large_binary())
    text = pyarrow.Array.from_buffers(pyarrow.large_string(), 2, bytes_.buffers())
    kept = pandas.arrays.ArrowStringArray(pyarrow.chunked_array([text]))
    for table in (
        pyarrow.table({"a": text}),
        pandas.DataFrame({"a": pandas.Series(pandas.arrays.ArrowExtensionArray(text))}),
        pandas.DataFrame({"a": pandas.Series(kept)}),
    ):
        assert [as_text(cell) for cell in Columns(table)["a"]] == ["\ufffd", "7"]


class Loud(float):
    def __str__(self) -> str:
        raise RuntimeError("a cell")

    __repr__ = is_integer = __str__  # type: ignore[assignment]


class Shout(str):
    __slots__ = ()

    def strip(self, *_: Any) -> str:
        raise RuntimeError("a cell")

    isascii = strip  # type: ignore[assignment]


class Nameless:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("a cell")


def test_cells_whose_own_code_fails_are_read() -> None:
    assert [as_text(cell) for cell in (Loud(1.5), Shout(" q "), Nameless())] == ["1.5", "q", ""]
    assert [as_number(cell) for cell in (Loud(1.5), Shout(" 2 "))] == [1.5, 2]
    assert np.isnan(as_number(Nameless()))


def test_a_number_wider_than_floats_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = np.finfo(np.longdouble).max
        assert sum(bins({"a": np.array([wide, 1])}).values()) == 2
        assert [as_text(cell) for cell in (wide, np.longdouble(1.5))] == [as_text(float(wide)), "1.5"]
