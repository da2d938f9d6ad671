"""Plans for private copies."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from reticent.concepts import Floats, Intervals, Points, Thresholds
from reticent.plan.plan import Plan
from reticent.plan.sanitizers import mwem_rows, net_sanitizer, point_sanitizer, sanpoints_rows
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer

APPROXIMATE: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
PLANS: dict[str, tuple[Callable[..., Plan], dict[str, Any]]] = {
    "points": (point_sanitizer, {"bits": 64} | APPROXIMATE),
    "sets of three floats": (point_sanitizer, {"domain": Floats(), "k": 3} | APPROXIMATE),
    "SanPoints": (point_sanitizer, {"bits": 64, "method": "choosing"} | APPROXIMATE),
    "net, exact": (net_sanitizer, {"concept_class": Intervals(bits=2), "epsilon": 1, "method": "exact"}),
    "net, weights": (net_sanitizer, {"concept_class": Thresholds(bits=9), "epsilon": 1}),
    "net, given points": (net_sanitizer, {"concept_class": Intervals(), "points": range(50)} | APPROXIMATE),
}
every_plan = pytest.mark.parametrize(("make", "public"), PLANS.values(), ids=PLANS.keys())


@pytest.mark.slow
@every_plan
@pytest.mark.parametrize("rows", [50_000, 2_000_000])
def test_there_and_back(make: Callable[..., Plan], public: dict[str, Any], rows: int) -> None:
    """The error found for some rows takes no more rows, and one a thousandth smaller takes more."""
    error = make(**public, rows=rows).error
    assert error is not None
    assert make(**public, error=error).rows <= rows
    assert make(**public, error=error * 0.998).rows > rows or public.get("method") == "exact"


@every_plan
def test_less_error_and_less_failure_take_more_rows(make: Callable[..., Plan], public: dict[str, Any]) -> None:
    needed = [make(**public, error=error).rows for error in (0.6, 0.4, 0.2)]
    assert all(less < more for less, more in pairwise(needed))
    assert make(**public, error=0.4, failure=0.001).rows > needed[1]
    assert make(**{**public, "epsilon": 0.1}, error=0.4).rows > 5 * needed[1]


def test_the_rows_are_those_of_the_estimators() -> None:
    points = PointSanitizer(bits=8, **APPROXIMATE)
    assert point_sanitizer(bits=8, error=0.2, k=2, **APPROXIMATE).rows == points.n_required(0.1)
    concepts = Points(bits=2)
    assert net_sanitizer(concepts, error=0.2, epsilon=1).rows == NetSanitizer(concepts, epsilon=1).n_required(0.2)


def test_the_numbers_of_the_papers() -> None:
    plan = point_sanitizer(bits=64, error=0.1, **APPROXIMATE)
    own = 1 / math.sqrt(320 * math.log(5e6))
    choices = 16 / (0.05 * own) * math.log(16 / (0.05 * 0.1 * 0.05 / 4 * own * 2e-8))
    assert plan.paper_rows == pytest.approx(choices, abs=2)
    assert plan.paper_rows == sanpoints_rows(0.1, failure=0.05, epsilon=1, delta=1e-6) > 1000 * plan.rows
    assert "with the constants of the paper" in str(plan)
    many = point_sanitizer(bits=64, error=0.3, k=3, **APPROXIMATE)
    assert (many.rows, many.paper_rows) == (plan.rows, plan.paper_rows)
    best = min(
        10 * T * math.log(10**6) / (0.3 - 2 * math.sqrt(math.log(1000) / T)) for T in range(310, 2000)
    )
    assert mwem_rows(0.3, points=1000, queries=10**6, failure=0.05, epsilon=1) == pytest.approx(best, rel=1e-3)
    with pytest.raises(ValueError, match="no number of rounds"):
        mwem_rows(0.3, points=1000, queries=1001, failure=0.05, epsilon=1)
    assert net_sanitizer(Thresholds(bits=9), error=0.3, epsilon=1).paper_rows is None


def test_rows_that_promise_nothing() -> None:
    assert point_sanitizer(bits=64, rows=10, **APPROXIMATE).error is None
    assert net_sanitizer(Thresholds(bits=9), rows=10, epsilon=1).error is None


@pytest.mark.parametrize("wrong", [{}, {"error": 0.1, "rows": 5}, {"rows": 0}, {"error": 0}, {"error": Fraction(3, 2)}])
def test_bad_questions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"error|rows"):
        point_sanitizer(bits=8, **APPROXIMATE, **wrong)
    with pytest.raises((TypeError, ValueError), match=r"error|rows"):
        net_sanitizer(Thresholds(bits=2), epsilon=1, **wrong)


def test_bad_parameters_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        point_sanitizer(bits=8, epsilon=0, delta=1e-6, rows=5)
    with pytest.raises(ValueError, match="k must be"):
        point_sanitizer(bits=8, **APPROXIMATE, rows=5, k=0)
    with pytest.raises(ValueError, match="points"):
        net_sanitizer(Thresholds(), epsilon=1, rows=5)
