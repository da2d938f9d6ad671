"""Later labels and the engines: what a chain and votes learn, what they reserve, and when they refuse."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from truth_models import linear, next_rows, rows_for, spread, votes

from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted, EndingWarning, InsufficientData
from reticent.learners import PrivateLogisticRegression
from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.engines.votes import VotesFactory
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.privacy.events import Parallel, PureDP
from reticent.teachers.linear import LogisticTeacher

# ── a chain ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", ["rows", "feedback", "both"])
def test_a_chain_follows_labels_that_turn_over(source: str) -> None:
    """The meaning of labels flips after day one; own answers would never show it."""
    model = linear(2000, truth=source, phase_rows=1500, epsilon=8)
    rng = np.random.default_rng(1)
    for _ in range(3):
        X = rng.random((1500, 2))
        y = (X[:, 0] >= 0.5).astype(np.int64)
        if source != "feedback":
            model.add_labelled(X, y)
        if source != "rows":
            found = model.answer(X)
            model.feedback(found.tickets, y)
    X = rng.random((1000, 2))
    assert (model.predict(X) == (X[:, 0] >= 0.5)).mean() > 0.9
    assert model.phase_ == 4
    first, *_, last = model.quality_
    assert first.right is not None
    assert first.right < 0.2
    assert last.right is not None
    assert last.right > 0.8
    assert [number for number, _ in model.models_] == [1, 2, 3, 4]
    assert isinstance(model.event_, Parallel)
    assert model.event_.events[1] == PureDP(Fraction(8))


def test_slots_without_labels_pull_nothing() -> None:
    """One slot in four gets its label; the model learns from those."""
    model = linear(2000, truth="feedback", phase_rows=6000, feedback_share=0.25)
    X = np.random.default_rng(1).random((6000, 2))
    y = (X[:, 0] >= 0.5).astype(np.int64)
    found = model.answer(X)
    assert found.tickets is not None
    model.feedback(found.tickets[::4], y[::4])
    model.turn_over()
    assert model.phase.labels == math.ceil(Fraction(1, 4) * 5400)
    assert (model.predict(X[:1000]) == y[:1000]).mean() > 0.9


def test_a_chain_without_any_label_trains_a_model_all_the_same() -> None:
    model = linear(truth="feedback", phase_rows=100)
    model.answer(np.random.default_rng(1).random((100, 2)))
    model.turn_over()
    assert model.phase_ == 2
    assert len(model.models_) == 2
    assert model.quality_[0].right is None
    assert model.quality_[0].rows == 10


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"fourier_features": 8}, {"class_weight": {"a": 0.5}}], ids=["plain", "fourier", "weights"]
)
def test_fourier_features_classes_and_class_weights(classes: int, options: dict[str, Any]) -> None:
    labels = ["a", "b", "c"][:classes]
    given = {**options, "classes": labels} if "class_weight" in options else options
    learner = PrivateLogisticRegression(epsilon=8, delta=1e-5, row_norm=2, **given)
    rng = np.random.default_rng(0)
    X = rng.random((600, 2))
    y = np.array(labels)[(X[:, 0] * classes).astype(int)]
    model = EverlastingPredictor(
        learner, epsilon=8, delta=1e-5, classes=labels, truth="rows", phase_rows=300
    ).fit(X, y)
    seed = getattr(model.model_, "fourier_seed_", None)
    wrong = y[:300].astype(object)
    wrong[5] = None
    model.add_labelled(X[:300], wrong)
    model.predict(X[:1])
    assert model.phase_ == 2
    assert getattr(model.model_, "fourier_seed_", None) == seed
    assert np.array(model.quality_[0].confusion).shape == (classes, classes)
    assert ("fourier_features" in options) == (seed is not None)
    if "class_weight" in given:
        weights = model.model_.class_weights_
        assert weights[0] == 0.5
        assert weights[1:].tolist() == [1.0] * (classes - 1)


def test_the_size_of_a_phase_follows_from_public_numbers() -> None:
    small, large = (linear(phase_rows="auto", epsilon=epsilon) for epsilon in (8, 1))
    assert small.phase_rows_ is not None
    assert large.phase_rows_ is not None
    assert small.phase_rows_ < large.phase_rows_
    shared = linear(phase_rows="auto", truth="feedback", feedback_share=0.1)
    assert shared.phase_rows_ == 10 * small.phase_rows_
    assert linear(phase_rows="auto", truth="both", feedback_share=0.1).phase_rows_ == small.phase_rows_


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_votes_refuse_and_say_how_many_rows_are_missing() -> None:
    model = votes()
    X, y = rows_for(model, 25)
    model.add_labelled(X[:13], y[:13])
    answers = model.answer(X)
    assert len(answers.class_indices) == 20
    assert isinstance(answers.refused, BudgetExhausted)
    assert "needs 7 more rows by add_labelled" in str(answers.refused)
    with pytest.raises(BudgetExhausted, match="needs 7 more rows"):
        model.predict(X[:1])
    model.add_labelled(X[:7], y[:7])
    assert len(model.predict(X[:5])) == 5
    assert model.phase_ == 2


def test_answers_for_rows_that_judge_are_reserved() -> None:
    model = votes(gauge_share=0.25, growth=0.5)
    assert (model.phase.answers, model.phase.reserved, model.phase.queries) == (25, 5, 20)
    labeller = model.engine_.labeller  # type: ignore[attr-defined]
    X, y = rows_for(model, 20)
    model.answer(X)
    model.add_labelled(X, y)
    assert labeller.answers_left == 5
    model.turn_over()
    assert labeller.answers_left == 0
    assert model.quality_[0].rows == 5
    assert model.phase.rows == 15
    assert model.phase.answers == 15


def test_rows_that_judge_beyond_those_reserved_train() -> None:
    """With both sources a phase has more labelled rows than `phase_rows` if they come."""
    model = votes(truth="both", growth=1, gauge_share=0.5)
    assert model.phase.reserved == 10
    X, y = rows_for(model, 60)
    model.add_labelled(X[:50], y[:50])
    model.answer(X[:4])
    rows = next_rows(model)
    assert rows.gauge is not None
    assert (rows.gauge.answers >= 0).sum() == 2
    assert (rows.gauge.answers < 0).sum() == 10
    assert len(rows.training.X) == 54 - 12


@pytest.mark.parametrize("learner", [Thresholds(), LogisticTeacher()])
def test_votes_with_empty_places(learner: Any) -> None:
    model = votes(truth="feedback", growth=1, phase_rows=40, learner=learner)
    X, y = spread(40, 1)
    found = model.answer(X)
    assert found.tickets is not None
    model.feedback(found.tickets[:15], y[:15])
    model.turn_over()
    assert model.phase.rows == 36
    assert model.phase.teachers == 36
    assert set(model.predict(X[:30]).tolist()) <= {0, 1}


def test_one_label_more_changes_one_teacher() -> None:
    """Bit for bit: whether a slot has a label moves the vote of its own teacher only."""
    found = []
    for labelled in (15, 16):
        model = votes(truth="feedback", growth=1, phase_rows=40, gauge_share=0, rows_per_teacher=2)
        X, y = spread(40, 1)
        tickets = model.answer(X).tickets
        assert tickets is not None
        model.feedback(tickets[:labelled], y[:labelled])
        model.turn_over()
        teachers = model.engine_.teachers  # type: ignore[attr-defined]
        grid = np.linspace(0, 1, 200)[:, None]
        everyone = np.tile(np.arange(model.phase.teachers), (len(grid), 1))
        found.append(teachers.ask_rows(grid, everyone))
    assert ((found[0] != found[1]).any(axis=0)).sum() <= 1


def test_growth_may_be_below_one_where_labels_come_from_outside() -> None:
    model = votes(growth=0.1)
    assert model.answers_left_in_phase_ == 4
    with pytest.raises(ValueError, match="growth must be from 1"):
        votes(truth=None, phase_rows="auto", growth=0.5)
    with pytest.raises(ValueError, match="growth must be positive"):
        votes(growth=0)


def test_phases_of_feedback_that_shrink_are_warned_of() -> None:
    with pytest.warns(EndingWarning, match="growth=0.5 with truth='feedback'"):
        votes(truth="feedback", growth=0.5)


@pytest.mark.filterwarnings("ignore::reticent.errors.EndingWarning")
def test_a_phase_in_which_all_rows_judge_is_refused() -> None:
    model = votes(truth="feedback", growth=0.02)
    X, _ = rows_for(model, 2)
    model.answer(X[:1])
    with pytest.raises(BudgetExhausted, match="too few for another phase"):
        model.predict(X[:1])


def test_the_rows_of_a_phase_of_votes() -> None:
    """m = 285.6·(g + 1/s)·λ²/(1 − 1/s)² at ε = 1, δ = 1e-6."""
    for growth, expected in ((0.1, 7052), (2, 74037)):
        factory = VotesFactory(
            learner=Thresholds(), classes=2, columns=1, epsilon=Fraction(1), delta=Fraction(1, 10**6),
            rows_per_teacher=10,
        )  # fmt: skip
        schedule = votes(growth=growth)._machine.schedule
        assert factory.phase_rows(schedule) == pytest.approx(expected, rel=5e-3)


def test_a_phase_that_is_too_noisy_is_refused_by_public_numbers() -> None:
    with pytest.raises(InsufficientData, match="can be sustained"):
        votes(most_noise=0.05)


# ── two-coin ──────────────────────────────────────────────────────────────────────────────────────────────────────


def two_coin(**given: Any) -> EverlastingPredictor:
    X, y = spread(2000)
    options: dict[str, Any] = {
        "epsilon": 8, "delta": 1e-4, "classes": (0, 1), "labeller": "two-coin", "rows_per_teacher": 2,
        "most_noise": 1e9, "growth": 0.2, "truth": "rows", "phase_rows": 1000, **given,
    }  # fmt: skip
    return EverlastingPredictor(Thresholds(), **options).fit(X, y)


def test_with_two_coins_rows_that_judge_have_three_quarters_of_epsilon() -> None:
    model = two_coin()
    X, y = spread(1000, 1)
    model.add_labelled(X, y)
    model.turn_over()
    assert isinstance(model.event_, Parallel)
    assert model.event_.events[1] == PureDP(Fraction(6))
    assert model.quality_[0].variance == pytest.approx(2 * math.exp(-3) / (1 - math.exp(-3)) ** 2)


def test_with_two_coins_a_phase_that_closed_is_not_judged() -> None:
    model = two_coin()
    X, y = spread(1000, 1)
    model.add_labelled(X, y)
    labeller = model.engine_.labeller  # type: ignore[attr-defined]
    labeller.resume({**labeller.state(), "closed": True})
    model.turn_over()
    assert model.phase_ == 2
    assert model.quality_ == []


def test_with_two_coins_the_test_of_old_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="alarm needs truth with a labeller that closes"):
        two_coin(truth=None, phase_rows="auto", growth=2, alarm=QualityAlarm(accuracy=0.8))
