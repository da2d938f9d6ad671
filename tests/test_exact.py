"""Parameters mean what they spell; bounds on exp and log hold, against mpmath at a far higher precision."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from reticent.exact import ceiling, exp_bounds, exp_fractions, integer, log_bounds, rational, upward

PRECISIONS = st.sampled_from([1, 8, 64, 128, 256, 700])
MIXED = st.fractions(max_denominator=10**9) | st.fractions(-40, 40, max_denominator=10**30)


def real(value: Fraction | int) -> mpf:
    return mpf(Fraction(value).numerator) / Fraction(value).denominator


def near_multiple_of_ln2(k: int, bits: int, offset: int) -> Fraction:
    """A fraction within 2^−bits of k·ln 2, where the reduction of the exponent is hardest."""
    with mp.workprec(bits + 64):
        return Fraction(int(mp.floor(k * mp.ln(2) * mpf(2) ** bits)) + offset, 1 << bits)


# ── what a parameter means ────────────────────────────────────────────────────────────────────────────────────────

def test_floats_are_read_as_the_decimals_they_print() -> None:
    assert rational(0.1, "epsilon") == Fraction(1, 10)
    assert sum(rational(0.1, "epsilon") for _ in range(10)) == 1
    assert rational(np.float64(0.3), "epsilon") == Fraction(3, 10)
    assert rational(Decimal("1e-400"), "delta") == Fraction(1, 10**400)
    assert rational(np.int64(7), "k") == 7
    assert rational(Fraction(2, 6), "k") == Fraction(1, 3)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_rational_is_within_half_a_unit_of_its_float(value: float) -> None:
    assert float(rational(value, "x")) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("inf"), np.float64("nan")])
def test_what_is_not_finite_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match="epsilon must be finite"):
        rational(value, "epsilon")


@pytest.mark.parametrize("value", [None, "1", True, 1j, [1]])
def test_what_is_not_a_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        rational(value, "epsilon")


def test_integer() -> None:
    assert integer(np.uint8(3), "k", least=3, most=3) == 3
    for wrong in (1.0, True, "1", None, Fraction(1)):
        with pytest.raises(TypeError, match="k must be a whole number"):
            integer(wrong, "k")
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        integer(0, "k", least=1)
    with pytest.raises(ValueError, match="k must be at most 5, got 6"):
        integer(6, "k", most=5)


@given(st.fractions(-(10**30), 10**30))
def test_upward_is_the_least_float_that_is_not_below(value: Fraction) -> None:
    above = upward(value)
    assert Fraction(above) >= value > Fraction(math.nextafter(above, -math.inf))


# ── exp and log ───────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(MIXED, PRECISIONS)
@example(Fraction(0), 64)
@example(Fraction(10**6), 64)
@example(Fraction(-(10**6), 3), 256)
@example(Fraction(-1, 10**60), 128)
@example(near_multiple_of_ln2(-3, 80, 0), 64)
@example(near_multiple_of_ln2(-3, 80, 1), 64)
@example(near_multiple_of_ln2(1000, 2000, 0), 128)
@example(near_multiple_of_ln2(1000, 2000, 1), 128)
@example(near_multiple_of_ln2(1, 5000, 0), 8)
def test_exp_lies_within_its_bounds(x: Fraction, bits: int) -> None:
    low, high, k = exp_bounds(x, bits)
    with mp.workprec(2 * bits + 5200):
        value = mp.exp(real(x)) * mpf(2) ** (bits - k)
        assert low <= value <= high
    assert high - low <= 3
    assert bits <= low.bit_length() <= bits + 1


def test_exp_of_huge_numbers() -> None:
    low, high, k = exp_bounds(Fraction(-(10**40)), 64)
    assert high - low <= 3
    with mp.workprec(300):
        assert abs(k + mpf(10) ** 40 / mp.ln(2)) < 2


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.fractions(Fraction(1, 10**20), 10**20), PRECISIONS)
@example(Fraction(1), 64)
@example(Fraction(1, 1024), 64)
@example(Fraction(2**200 + 1, 2**200), 64)
@example(Fraction(2**200 - 1, 2**200), 256)
@example(Fraction(1, 3**300), 128)
def test_log_lies_within_its_bounds(x: Fraction, bits: int) -> None:
    low, high = log_bounds(x, bits)
    with mp.workprec(2 * bits + 500):
        assert real(low) <= mp.log(real(x)) <= real(high)
    assert high - low < Fraction(1, 2**bits)


@pytest.mark.parametrize("x", [0, -1])
def test_log_needs_a_positive_number(x: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        log_bounds(Fraction(x), 64)


@given(st.fractions(-50, 50, max_denominator=1000))
def test_exp_and_log_are_inverse(x: Fraction) -> None:
    low, high = exp_fractions(x, 128)
    assert log_bounds(low, 100)[0] <= x <= log_bounds(high, 100)[1]


# ── ceilings ──────────────────────────────────────────────────────────────────────────────────────────────────────

def test_a_ceiling_is_refined_until_it_is_certain() -> None:
    asked: list[int] = []

    def bounds(bits: int) -> tuple[Fraction, Fraction]:
        asked.append(bits)
        value = 7 + Fraction(1, 2**100)
        return value - Fraction(1, 2**bits), value + Fraction(1, 2**bits)

    assert ceiling(bounds) == 8
    assert asked == [64, 256]


def test_a_ceiling_that_stays_open_is_rounded_up() -> None:
    assert ceiling(lambda bits: (5 - Fraction(1, 2**bits), 5 + Fraction(1, 2**bits))) == 6
