"""Plans for learners that label most of their rows themselves."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from reticent.concepts import Intervals, Thresholds
from reticent.learners.exponential import ExponentialLearner
from reticent.learners.label_boost import LabelBoost
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.label_boost import label_boost, printed_labels
from reticent.plan.plan import Plan
from reticent.privacy import Guarantee

LEARNER, CLASS = ThresholdLearner(bits=16, epsilon=1), Thresholds(16)


def plan(**given: Any) -> Plan:
    return label_boost(LEARNER, CLASS, **{"epsilon": 1, **given})


@pytest.mark.slow
@pytest.mark.parametrize(
    "public", [{"rounds": 1}, {"rounds": 2}, {"rounds": 1, "variant": "printed"}, {"rounds": 1, "agnostic": True}]
)
def test_there_and_back(public: dict[str, Any]) -> None:
    for rows in (9_000, 400_000):
        found = plan(rows=rows, **public)
        if found.error is None:
            assert plan(error=0.9999, **public).rows > rows
            continue
        again = plan(error=found.error, **public)
        assert again.rows <= rows == found.rows
        assert again.labels == found.labels
        assert plan(error=Fraction(found.error) * Fraction(99, 100), **public).rows > rows


@pytest.mark.slow
def test_a_smaller_error_takes_more_rows_and_more_labels() -> None:
    plans = [plan(error=error) for error in (0.4, 0.2, 0.1, 0.05, 0.01)]
    for one, next_one in pairwise(plans):
        assert one.rows < next_one.rows
        assert (one.labels or 0) < (next_one.labels or 0)
        assert (one.paper_rows or 0) < (next_one.paper_rows or 0)
    errors = [plan(rows=rows).error for rows in (5_000, 500_000)]
    assert [error or 1 for error in errors] == sorted([error or 1 for error in errors], reverse=True)


def test_the_plan_is_what_the_learner_asks_for() -> None:
    found = plan(error=0.2, delta=1e-6, failure=0.01)
    boost = LabelBoost(LEARNER, CLASS, epsilon=1, delta=1e-6, failure=0.01)
    assert (found.rows, found.labels) == (boost.n_required(0.2), boost.labels_required(0.2))
    assert found.guarantee == Guarantee(epsilon=1.0, delta=1e-6)
    assert "labels needed" in str(found)
    intervals = label_boost(ExponentialLearner(Intervals(8), epsilon=1), Intervals(8), error=0.3, epsilon=2)
    assert intervals.labels is not None
    assert intervals.labels < intervals.rows


def test_printed_constants() -> None:
    found = plan(error=0.2)
    base = ThresholdLearner(bits=16, epsilon=1).n_required(Fraction(1, 55), Fraction(1, 40))
    printed = printed_labels(1, Fraction(1, 55), Fraction(1, 40))
    assert printed > 5e7
    assert found.paper_rows == pytest.approx(printed + 90_000 * base, rel=0.01)
    assert (plan(error=0.2, epsilon=0.1).paper_rows or 0) > 50 * (found.paper_rows or 0)
    assert plan(error=0.2, agnostic=True).paper_rows is None


@pytest.mark.parametrize("bad", [{"epsilon": 0}, {"failure": 0}, {"rounds": 0}, {"variant": "min"}, {"delta": 1}])
def test_bad_parameters_are_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
        plan(error=0.1, **bad)


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(ValueError, match="either error"):
        plan()
    net = ExponentialLearner(Thresholds(4), epsilon=1, net=[3, 5])  # no candidate need fit
    with pytest.raises(ValueError, match="no number of rows"):
        label_boost(net, Thresholds(4), error=0.1, epsilon=1, delta=1e-6)
