from __future__ import annotations

import math
from typing import Any

import pytest

from reticent.concepts import Intervals, Points, Stumps, Thresholds
from reticent.plan.label_private import label_private, semi_private
from reticent.plan.plan import Plan
from reticent.plan.semi_supervised import semi_supervised


def labels(**changed: Any) -> Plan:
    return label_private(**{"concept_class": Thresholds(bits=64), "epsilon": 1, **changed})


def rows_secret(**changed: Any) -> Plan:
    return semi_private(**{"concept_class": Thresholds(bits=64), "epsilon": 1, **changed})


def few_labels(**changed: Any) -> Plan:
    return semi_supervised(**{"concept_class": Points(bits=64), "epsilon": 1, "delta": 1e-6, **changed})


PLANS = pytest.mark.parametrize("plan", [labels, rows_secret, few_labels])


@pytest.mark.slow
@PLANS
def test_there_and_back(plan: Any) -> None:
    for error in (0.3, 0.1):
        there = plan(error=error)
        back = plan(rows=there.rows)
        assert 0.97 * error < back.error <= error
        assert plan(error=back.error).rows <= there.rows
        assert plan(rows=there.rows - 1).error > back.error * 0.999
    assert plan(rows=1).error is None
    assert plan(error=0.1).guarantee == plan(rows=10_000).guarantee


@PLANS
def test_monotone(plan: Any) -> None:
    needed = [plan(error=error).rows for error in (0.5, 0.2, 0.1, 0.05)]
    assert needed == sorted(needed)
    assert plan(error=0.1, epsilon=0.2).rows > plan(error=0.1).rows
    assert plan(error=0.1, failure=1e-4).rows > plan(error=0.1).rows


def test_the_paper_side_by_side() -> None:
    plan = labels(error=0.1)
    printed = 768 / 0.1**2 * (math.log(640) + 2 * math.log(160))
    assert plan.paper_rows == math.ceil(printed)
    assert plan.guarantee.protects == "labels"
    semi = rows_secret(error=0.1)
    assert semi.paper_rows == plan.paper_rows - math.ceil(320 * (math.log(640) + math.log(160)))
    assert semi.paper_rows > 1000 * semi.rows
    assert "public points" in semi.why
    assert labels(rows=plan.paper_rows).paper_error == pytest.approx(0.1, rel=1e-3)
    assert few_labels(error=0.1).paper_rows is None


def test_bits_do_not_matter_for_labels() -> None:
    def labels_for(bits: int) -> int | None:
        return few_labels(concept_class=Points(bits=bits), error=0.1).labels

    assert labels_for(64) == labels_for(4096) == few_labels(error=0.1).labels
    assert labels(error=0.1).rows == labels(concept_class=Thresholds(bits=4096), error=0.1).rows
    assert rows_secret(error=0.1).rows == rows_secret(concept_class=Thresholds(), error=0.1).rows
    assert labels(concept_class=Intervals(), error=0.1).rows > labels(error=0.1).rows


@PLANS
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in [0, -1, math.nan, math.inf, None, "1"]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None]],
        *[("concept_class", bad) for bad in [None, Thresholds, 5]],
    ],
)
def test_bad_parameters_are_refused_by_name(plan: Any, name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        plan(error=0.1, **{name: value})


@PLANS
def test_one_of_error_and_rows(plan: Any) -> None:
    for given in ({}, {"error": 0.1, "rows": 100}):
        with pytest.raises(ValueError, match="give either error"):
            plan(**given)
    for bad in (0, 1, -1, math.nan):
        with pytest.raises(ValueError, match="error"):
            plan(error=bad)
    with pytest.raises(ValueError, match="rows"):
        plan(rows=0)


def test_a_class_without_a_sanitizer() -> None:
    with pytest.raises(ValueError, match="sanitizer must be given"):
        semi_supervised(Stumps(2), error=0.1, epsilon=1)
