from __future__ import annotations

import math
from typing import Any

import pytest

from reticent.concepts import Floats
from reticent.learners.rectangles import RectangleLearner
from reticent.plan.rectangles import printed_rectangle_rows, rectangle
from reticent.privacy import Guarantee

PUBLIC: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "dimensions": 2, "bits": 16}


def test_a_plan_is_what_the_learner_asks_for() -> None:
    plan = rectangle(error=0.1, **PUBLIC)
    learner = RectangleLearner(bits=16, epsilon=1, delta=1e-6)
    assert plan.rows == learner.n_required(0.1, dimensions=2)
    assert plan.guarantee == Guarantee(epsilon=1, delta=1e-6)
    assert plan.paper_rows == printed_rectangle_rows(0.1, failure=0.05, epsilon=1, delta=1e-6, dimensions=2, bits=16)
    assert plan.paper_rows is not None
    assert plan.paper_rows > 1000 * plan.rows
    assert "4 sides" in plan.why
    assert "rows promise" in str(plan)


@pytest.mark.parametrize("error", [0.01, 0.1, 0.3])
def test_rows_to_error_and_back(error: float) -> None:
    rows = rectangle(error=error, **PUBLIC).rows
    back = rectangle(rows=rows, **PUBLIC)
    assert back.error is not None
    assert back.error <= error
    assert rectangle(error=back.error, **PUBLIC).rows <= rows
    assert back.error > 0.99 * error


def test_more_rows_promise_less_error_and_too_few_promise_none() -> None:
    errors = [rectangle(rows=rows, **PUBLIC).error for rows in (3000, 30_000, 300_000)]
    assert all(error is not None for error in errors)
    assert errors == sorted(errors, reverse=True)  # type: ignore[type-var]
    assert rectangle(rows=10, **PUBLIC).error is None


def test_harder_problems_need_more_rows() -> None:
    def rows(**changed: Any) -> int:
        return rectangle(error=0.1, **PUBLIC | changed).rows

    assert rows() < rows(dimensions=3) < rows(dimensions=3, bits=64)
    assert rows() < rows(epsilon=0.5)
    assert rows() < rows(failure=0.001)
    assert rows() <= rows(delta=0)
    assert rows(bits=None, domain=Floats()) > rows()


def test_a_partition_needs_more_rows_than_the_sides() -> None:
    plan = rectangle(error=0.4, **PUBLIC | {"dimensions": 1, "epsilon": 10, "method": "partition"})
    assert plan.rows > 10 * rectangle(error=0.4, **PUBLIC | {"dimensions": 1, "epsilon": 10}).rows
    assert "sanitizer" in plan.why


def test_the_printed_bound_is_for_a_positive_delta() -> None:
    assert rectangle(error=0.1, **PUBLIC | {"delta": 0}).paper_rows is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in (0, -1, math.nan, math.inf, None, "1")],
        *[("delta", bad) for bad in (-1, 1, math.nan, None)],
        *[("failure", bad) for bad in (0, 1, math.nan, None)],
        *[("dimensions", bad) for bad in (0, -1, 1.5, None, True)],
        *[("bits", bad) for bad in (0, -1, 1.5, None)],
        *[("error", bad) for bad in (0, 1, math.nan, None)],
        ("method", "side"),
    ],
)
def test_bad_parameters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        rectangle(**PUBLIC | {"error": 0.1, name: value})
