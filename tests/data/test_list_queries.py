"""Each query is read by itself: no other query of its list changes what it becomes."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray

from reticent.concepts import Thresholds
from reticent.data.queries import Reader, as_queries

LARGE = 2**53 + 1
ODD: list[Any] = [LARGE, -LARGE, 2**63, 2**64 + 1, 10**400, 2**24 + 1, 0.5, -0.0, 1e300, float("nan"), float("inf")]
ODD += [True, None, "x", "7", b"7", np.float32(0.1), np.int8(3), np.uint64(2**63), Decimal("0.5"), [1], 1j]
ODD += [datetime.date(2026, 1, 1), np.array(3), np.array(LARGE), np.longdouble("0.1")]
READERS = {kind: Reader(np.dtype(kind), np.zeros((1, 1), dtype=kind)) for kind in ("int64", "float32", "float64")}
READERS["object"] = Reader.of(np.dtype(object), 1, Thresholds(bits=100))


def read(kind: str, cells: list[Any]) -> list[Any]:
    return READERS[kind].read(as_queries([[cell] for cell in cells])).ravel().tolist()


def alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other)


@pytest.mark.parametrize("kind", READERS)
@given(cells=st.lists(st.sampled_from(ODD) | st.integers() | st.floats(), min_size=1, max_size=5))
@settings(max_examples=200)
def test_each_query_of_a_list_is_read_by_itself(kind: str, cells: list[Any]) -> None:
    together, alone = read(kind, cells), [read(kind, [cell])[0] for cell in cells]
    assert all(map(alike, together, alone)), (together, alone)


@pytest.mark.parametrize("cell", [np.array(3), np.array(2.5), np.longdouble("0.1")])
@pytest.mark.parametrize("other", [2**60, "x", None])
def test_a_number_that_only_numpy_takes_for_one_does_not_depend_on_the_others(cell: Any, other: Any) -> None:
    alone, together = as_queries([[cell]]), as_queries([[cell], [other]])
    assert alone.dtype.itemsize <= 8
    assert alone[0, 0] == together[0, 0]


def test_whole_numbers_beyond_floats_stay_as_they_are() -> None:
    for other in (0.5, "x", 2**63, 2**70, None):
        assert read("int64", [LARGE, other])[0] == LARGE
    assert read("object", [2**80 + 1, 0.5]) == [2**80 + 1, 0]
    assert read("int64", [2**63, 3]) == [0, 3]  # the fixed point


def test_a_twin_that_reads_all_queries_in_one_type_is_told_apart() -> None:
    """The must-fail twin: NumPy reads a type off all cells together."""

    def shared(kind: DTypeLike, cells: list[Any]) -> NDArray[Any]:
        return READERS[str(kind)].read(np.asarray([[cell] for cell in cells])).ravel()

    assert shared("int64", [LARGE])[0] == LARGE != shared("int64", [LARGE, 0.5])[0]


def test_arrays_keep_the_type_that_they_declare() -> None:
    assert as_queries(np.array([[LARGE]])).dtype == np.int64
    assert as_queries(np.array([[LARGE], [0.5]], dtype=object)).tolist() == [[LARGE], [0.5]]
    assert as_queries([[1, 2]]).dtype == np.int64
    assert as_queries([[1.5, 2]]).dtype == np.float64
