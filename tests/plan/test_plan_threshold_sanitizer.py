from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from reticent.concepts import Datetimes, Floats, Integers
from reticent.plan.threshold_sanitizer import printed_prefix_rows, threshold_sanitizer
from reticent.sanitizers.thresholds import ThresholdSanitizer

PUBLIC: dict[str, Any] = {"bits": 64, "epsilon": 1, "delta": 1e-6}


@pytest.mark.parametrize("public", [PUBLIC, {"bits": 16, "epsilon": 0.5}, {"domain": Floats(), "epsilon": 2}])
@pytest.mark.parametrize("rows", [20_000, 1_000_000])
def test_there_and_back(public: dict[str, Any], rows: int) -> None:
    found = threshold_sanitizer(rows=rows, **public)
    assert found.error is not None
    again = threshold_sanitizer(error=found.error, **public)
    assert again.rows <= rows
    assert threshold_sanitizer(error=found.error * 0.99, **public).rows > rows


def test_it_is_what_the_sanitizer_asks_for() -> None:
    plan = threshold_sanitizer(error=0.05, **PUBLIC)
    assert plan.rows == ThresholdSanitizer(**PUBLIC).n_required(0.05)
    assert plan.paper_rows is not None
    assert plan.paper_rows > 1000 * plan.rows
    assert "intervals" in str(plan)


@pytest.mark.slow
def test_rows_fall_with_the_error_and_grow_with_the_bits() -> None:
    rows = [threshold_sanitizer(error=error, **PUBLIC).rows for error in (0.3, 0.1, 0.03, 0.01)]
    assert rows == sorted(rows)
    rows = [threshold_sanitizer(error=0.1, **{**PUBLIC, "bits": bits}).rows for bits in (4, 16, 64, 256)]
    assert rows == sorted(rows)
    errors = [threshold_sanitizer(rows=n, **PUBLIC).error or 1.0 for n in (1000, 10_000, 100_000)]
    assert errors == sorted(errors, reverse=True)


def test_the_numbers_of_the_paper() -> None:
    public: dict[str, Any] = {"beta": 0.05, "bits": 64, "epsilon": 1.0, "delta": 1e-6}
    assert printed_prefix_rows(Fraction(1, 10), **public) > 5 * printed_prefix_rows(Fraction(1, 5), **public)
    assert threshold_sanitizer(bits=16, error=0.1, epsilon=1).paper_rows is None
    few = threshold_sanitizer(rows=10**6, **PUBLIC)
    assert few.paper_error is None


def test_bad_parameters_are_refused_by_name() -> None:
    for name, value in [("epsilon", 0), ("delta", 1), ("failure", 2), ("error", 1), ("rows", 0), ("method", "no")]:
        given: dict[str, Any] = {**PUBLIC, name: value}
        if name not in ("error", "rows"):
            given["error"] = 0.1
        with pytest.raises(ValueError, match=name):
            threshold_sanitizer(**given)
    with pytest.raises(ValueError, match="bits"):
        threshold_sanitizer(domain=Integers(), error=0.1, epsilon=1)
    with pytest.raises(ValueError, match="either error"):
        threshold_sanitizer(**PUBLIC)
    assert threshold_sanitizer(domain=Datetimes("s"), error=0.1, epsilon=1).rows > 1000
