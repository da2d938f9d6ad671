from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from reticent.concepts import Points
from reticent.errors import InsufficientData
from reticent.learners.active import ActiveLearner
from reticent.learners.sanitized import SanitizedLearner
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.active import active
from reticent.plan.plan import Plan
from reticent.plan.sanitized import sanitized
from reticent.sanitizers.points import PointSanitizer


def thresholds(transcript: Literal["hidden", "private"] = "hidden", **asked: Any) -> Plan:
    learner = ThresholdLearner(bits=16, epsilon=1)
    return active(learner, **{"epsilon": 0.1, "transcript": transcript, **asked})


def points(**asked: Any) -> Plan:
    sanitizer = PointSanitizer(bits=40, epsilon=1, delta=1e-6)
    return sanitized(sanitizer, Points(bits=40), **{"epsilon": 0.5, "delta": 1e-6, "realizable": True, **asked})


@pytest.mark.slow
@pytest.mark.parametrize("transcript", ["hidden", "private"])
def test_from_error_to_rows_and_back(transcript: Literal["hidden", "private"]) -> None:
    plan = thresholds(transcript, error=0.1)
    back = thresholds(transcript, rows=plan.rows)
    assert back.error is not None
    assert 0.095 < back.error <= 0.1
    assert thresholds(transcript, error=back.error).rows <= plan.rows
    assert thresholds(transcript, error=0.05).rows > plan.rows


@pytest.mark.slow
def test_labels_do_not_grow_as_epsilon_falls_unless_the_transcript_is_private() -> None:
    hidden = [thresholds(error=0.1, epsilon=epsilon) for epsilon in (1, 0.1, 0.01)]
    assert len({plan.labels for plan in hidden}) == 1
    private = [thresholds("private", error=0.1, epsilon=epsilon) for epsilon in (1, 0.1, 0.01)]
    assert [plan.labels for plan in private] == [plan.rows for plan in private]
    assert private[2].rows > 9 * private[1].rows > 9 * private[0].rows
    assert private[0].rows == private[0].paper_rows


def test_the_paper_asks_for_a_larger_pool() -> None:
    plan = thresholds(error=0.1)
    inside = ThresholdLearner(bits=16, epsilon=1).n_required(0.1)
    assert plan.paper_rows == math.ceil(inside * (3 + math.exp(2)) / 0.1)
    assert plan.paper_rows > 6 * plan.rows
    assert plan.rows == ActiveLearner(ThresholdLearner(bits=16, epsilon=9), epsilon=0.1).n_required(Fraction(1, 10))


@pytest.mark.slow
def test_sanitized() -> None:
    plan = points(error=0.1)
    back = points(rows=plan.rows)
    assert back.error == pytest.approx(0.1, rel=0.02)
    assert back.error <= 0.1  # type: ignore[operator]
    assert points(error=0.05).rows > plan.rows > points(error=0.2).rows
    assert points(error=0.1, realizable=False).rows > plan.rows
    assert points(error=0.1, epsilon=0.05).rows > 5 * plan.rows
    assert plan.paper_rows > 10**6 * plan.rows  # type: ignore[operator]
    assert points(error=0.1, epsilon=1).paper_rows is None  # it is stated for 6ε' ≤ 6/8 only
    assert points(error=0.1, realizable=False).paper_rows is None


def test_a_plan_of_a_sanitized_learner_is_what_its_fit_asks_for() -> None:
    settings: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6}
    sanitizer = PointSanitizer(bits=40, **settings)
    plan = sanitized(sanitizer, Points(bits=40), error=0.2, **settings)
    learner = SanitizedLearner(sanitizer, Points(bits=40), error=0.2, **settings)
    x = np.zeros((plan.rows, 1), dtype=int)
    learner.fit(x, x[:, 0])
    with pytest.raises(InsufficientData):
        learner.fit(x[1:], x[1:, 0])


@pytest.mark.parametrize("plan", [thresholds, points])
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("either error", {}),
        ("either error", {"error": 0.1, "rows": 9}),
        ("error", {"error": 0}),
        ("error", {"error": math.nan}),
        ("rows", {"rows": 0}),
        ("rows", {"rows": 1.5}),
        ("failure", {"error": 0.1, "failure": 1}),
        ("epsilon", {"error": 0.1, "epsilon": -1}),
        ("delta", {"error": 0.1, "delta": 1}),
    ],
)
def test_bad_parameters_are_refused_by_name(plan: Any, words: str, asked: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        plan(**asked)


@pytest.mark.slow
def test_few_rows_promise_nothing() -> None:
    assert thresholds(rows=2).error is None
    assert points(rows=2).error is None
