"""Numbers are read without rounding, and refused without telling the rest."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from reticent.noise.reading import exact_numbers, whole_numbers


@pytest.mark.parametrize(
    ("given_values", "dtype", "expected"),
    [
        ([1, 2, 3], np.int64, [1, 2, 3]),
        ([2**53 + 1, 0.5], object, [2**53 + 1, Fraction(1, 2)]),  # numpy would round the first to 2^53
        ([2**63, -1], object, [2**63, -1]),  # numpy would make floats of them
        ([0.1, 0.2], np.float64, [0.1, 0.2]),
        ([Fraction(1, 3), 2], object, [Fraction(1, 3), 2]),
        ([Decimal("0.1"), 2], object, [Fraction(1, 10), 2]),
        ([np.int8(-3), np.float32(0.1)], object, [-3, Fraction(float(np.float32(0.1)))]),
        (np.array([1, 2], dtype=np.uint8), np.int64, [1, 2]),
        (np.array([2**64 - 1, 0], dtype=np.uint64), object, [2**64 - 1, 0]),
        (np.array([0.1], dtype=np.float32), np.float64, [float(np.float32(0.1))]),
        (np.array([0.5], dtype=np.longdouble), object, [Fraction(1, 2)]),
        (np.array([1, 0.5], dtype=object), object, [1, Fraction(1, 2)]),
        (range(3), np.int64, [0, 1, 2]),
        ((x for x in (1.5, 2.5)), np.float64, [1.5, 2.5]),
    ],
)
def test_numbers_are_kept_exactly(given_values: Any, dtype: Any, expected: list[Any]) -> None:
    numbers = exact_numbers(given_values, "scores")
    assert numbers.dtype == dtype
    assert numbers.tolist() == expected


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "scores must not be empty"),
        (np.empty(0), "scores must not be empty"),
        ([[1, 2], [3, 4]], "scores must be one-dimensional, got 2 dimensions"),
        (np.float64(3), "scores must be one-dimensional, got 0 dimensions"),
        ([1, [2]], "scores must be real numbers"),
        (5, "scores must be a one-dimensional sequence of numbers, got int"),
        (None, "scores must be a one-dimensional sequence of numbers, got NoneType"),
        ("123456789", "scores must be a one-dimensional sequence of numbers, got str"),
        ({1: 2}, "scores must be a one-dimensional sequence of numbers, got dict"),
        ([123456789, "x"], "scores must be real numbers, got str"),
        ([123456789, None], "scores must be real numbers, got NoneType"),
        ([123456789, True], "scores must be real numbers, got bool"),
        ([1j], "scores must be real numbers, got complex"),
        (np.array([1j]), "scores must be real numbers"),
        (np.array([True]), "scores must be real numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "scores must be real numbers"),
        ([123456789.5, float("nan")], "scores must be finite"),
        ([123456789, float("inf")], "scores must be finite"),
        ([123456789, Decimal("NaN")], "scores must be finite"),
        (np.array([123456789, np.inf]), "scores must be finite"),
        (np.array([123456789, np.nan], dtype=np.longdouble), "scores must be finite"),
    ],
)
def test_what_is_not_a_number_is_refused_without_telling_the_rest(bad: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        exact_numbers(bad, "scores")
    assert "123456789" not in str(caught.value)


def test_whole_numbers_keep_machine_types() -> None:
    assert whole_numbers(np.array([1, 2], dtype=np.int8), "x").dtype == np.int64
    assert whole_numbers(np.array([2**64 - 1], dtype=np.uint64), "x").dtype == np.uint64
    assert whole_numbers([1, np.int64(2)], "x").tolist() == [1, 2]
    assert whole_numbers([], "x").dtype == np.int64
