"""What a plan says, and how the error that rows can promise is found."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import OutOfReach
from reticent.plan.plan import Plan, least_error, make_plan
from reticent.privacy import Guarantee

KNOWN: dict[str, Any] = {"failure": 0.05, "guarantee": Guarantee(epsilon=1, delta=1e-6), "why": "Because."}
PUBLIC: dict[str, Any] = {**KNOWN, "reach": lambda rows, error: None}


def hundredth(error: Fraction) -> int:
    """100/error² rows; none will do for an error of a millionth or less."""
    if error <= Fraction(1, 10**6):
        raise ValueError("no number of rows would do")
    return math.ceil(100 / error**2)


def ten_times(error: Fraction) -> int:
    return 10 * hundredth(error)


# ── the least error ───────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(101, 10**15))
def test_the_least_error_of_four_digits(rows: int) -> None:
    """What is found suffices, and the next smaller number of four digits does not."""
    error = least_error(hundredth, rows)
    assert error is not None
    assert hundredth(error) <= rows
    assert error == Fraction(f"{float(error):.4g}"), "four digits, so that it prints as it is"
    step = Fraction(1, 10 ** (3 - math.floor(math.log10(float(error) * (1 - 1e-9)))))
    assert error <= Fraction(1001, 10**9) or hundredth(error - step) > rows


def test_too_few_rows_promise_nothing() -> None:
    assert least_error(hundredth, 100) is None
    assert least_error(hundredth, 101) == Fraction(9951, 10_000)


def test_a_need_that_does_not_grow_still_ends() -> None:
    assert least_error(lambda _: 5, 5) == Fraction(1, 10**19)
    assert least_error(lambda _: 5, 4) is None


# ── a plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_for_an_error() -> None:
    plan = make_plan("Learner", hundredth, error=0.1, rows=None, paper=ten_times, labels=lambda _: 7, **PUBLIC)
    assert plan == Plan(
        estimator="Learner", rows=10_000, error=0.1, paper_rows=100_000, paper_error=None, labels=7, **KNOWN
    )


def test_a_plan_that_cannot_be_run_says_so() -> None:
    def reach(rows: int, error: Fraction | None) -> None:
        if rows > 10_000:
            raise OutOfReach(f"{rows} rows are too many")

    public = {**PUBLIC, "reach": reach}
    small, large = (make_plan("Learner", hundredth, error=error, rows=None, **public) for error in (0.1, 0.05))
    assert (small.rows, small.feasible, small.obstacle) == (10_000, True, None)
    assert (large.rows, large.feasible, large.obstacle) == (40_000, False, "40000 rows are too many")
    assert "40000 rows are too many" in str(large)
    assert "too many" not in str(small)


def test_a_plan_for_rows() -> None:
    plan = make_plan("Learner", hundredth, error=None, rows=10_000, paper=ten_times, labels=lambda _: 7, **PUBLIC)
    assert plan == Plan(
        estimator="Learner", rows=10_000, error=0.1, paper_rows=100_000, paper_error=0.3163, labels=7, **KNOWN
    )


def test_a_plan_for_too_few_rows() -> None:
    plan = make_plan("Learner", hundredth, error=None, rows=5, paper=ten_times, labels=lambda _: 7, **PUBLIC)
    assert (plan.rows, plan.error, plan.paper_rows, plan.paper_error, plan.labels) == (5, None, None, None, None)


def test_where_the_paper_has_no_number() -> None:
    def nothing(error: Fraction) -> int:
        raise ValueError("the paper asks for more bits")

    for given_ in ({"error": 0.1, "rows": None}, {"error": None, "rows": 10_000}):
        plan = make_plan("Learner", hundredth, paper=nothing, **given_, **PUBLIC)
        assert (plan.rows, plan.error, plan.paper_rows, plan.paper_error) == (10_000, 0.1, None, None)


def test_in_words() -> None:
    words = str(make_plan("Learner", hundredth, error=None, rows=10_000, paper=ten_times, labels=lambda _: 7, **PUBLIC))
    assert words.splitlines() == [
        "Learner: 10,000 rows promise an error of at most 0.1 with probability 0.95, at ε = 1, δ = 1e-06 for rows",
        "labels needed: 7",
        "with the constants of the paper: 100,000 rows for the same error",
        "with the constants of the paper, the same rows promise an error of at most 0.3163",
        "Because.",
    ]
    assert "5 rows promise no error below 1" in str(make_plan("Learner", hundredth, error=None, rows=5, **PUBLIC))


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "give either error"),
        ({"error": 0.1, "rows": 3}, "give either error"),
        ({"error": 0}, r"error must be in \(0, 1\), got 0"),
        ({"error": 1}, "error"),
        ({"error": math.nan}, "error must be finite"),
        ({"error": "small"}, "error must be a real number, got str"),
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"rows": 2.5}, "rows must be a whole number, got float"),
        ({"rows": 10, "failure": 0}, r"failure must be in \(0, 1\), got 0"),
        ({"rows": 10, "failure": 2}, "failure"),
        ({"error": 0.1, "failure": -0.1}, "failure"),
        ({"error": 1e-6}, "no number of rows would do"),
    ],
)
def test_bad_input(changed: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_plan("Learner", hundredth, **{"error": None, "rows": None} | PUBLIC | changed)


@pytest.mark.parametrize("asked", [{"error": 0.1, "rows": None}, {"error": None, "rows": 10}])
def test_a_refused_parameter_is_not_taken_for_an_error_out_of_reach(asked: dict[str, Any]) -> None:
    def refuses(error: Fraction) -> int:
        raise ValueError("bits must be at least 1, got 0")

    with pytest.raises(ValueError, match="bits must be at least 1, got 0"):
        make_plan("Learner", refuses, **asked, **PUBLIC)
