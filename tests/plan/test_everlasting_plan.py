from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from reticent import labellers
from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.labellers.ballots import Ballots
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.everlasting import everlasting
from reticent.plan.planned_phases import Everlasting
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import Phase

BUDGET: dict[str, Any] = {"epsilon": 8, "delta": 1e-6}
LEARNERS: dict[str, Any] = {
    "linear": None,
    "thresholds": Thresholds(),
    "other": DecisionTreeClassifier(max_depth=2),
    "private": ThresholdLearner(bits=8, epsilon=1),
}


def fitted(rows: int, features: int, learner: str, classes: int = 2, **options: Any) -> EverlastingPredictor:
    generator = np.random.default_rng(0)
    X = generator.integers(0, 256, (rows, features))
    model = EverlastingPredictor(LEARNERS[learner], classes=range(classes), unsafe_seed=0, **{**BUDGET, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, X[:, 0] * classes // 256)


def lived_through(model: EverlastingPredictor, phases: int) -> list[Phase]:
    """The phases that a predictor really has, as it is asked on and on."""
    generator, found = np.random.default_rng(1), [model.phase]
    trusted = model.training_stream == "trusted"
    columns = model.n_features_in_
    while len(found) < phases:
        if trusted:
            model.add_unlabelled(generator.integers(0, 256, (model.phase.stream, columns)))
        try:
            model.predict(generator.integers(0, 256, (model.answers_left_in_phase_, columns)))
        except BudgetExhausted:
            break
        if model.phase is found[-1]:
            break
        found.append(model.phase)
    return found


def planned(plan: Everlasting) -> list[tuple[int, ...]]:
    return [(one.number, one.rows, one.teachers, one.answers, one.queries, one.handed_on) for one in plan.phases]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "features", "learner", "options"),
    [
        (6_000, 20, "linear", {}),
        (3_000, 2, "linear", {"growth": 1.5, "held_back": 0.2}),
        (3_000, 1, "thresholds", {}),
        (3_000, 1, "thresholds", {"max_rows": 3_500}),
        (3_000, 1, "thresholds", {"training_stream": "trusted"}),
        (3_000, 1, "thresholds", {"answers": 20_000}),
        (1_500, 1, "thresholds", {"growth": 1}),
        (1_000, 2, "linear", {"classes": 3, "epsilon": 16}),
        (700, 2, "other", {"epsilon": 16}),
        (2_000, 2, "other", {"epsilon": 16, "rows_per_teacher": 7, "answers": 5_000}),
        (500, 1, "private", {}),
        (500, 1, "private", {"answers": 5_000}),
    ],
)
def test_a_plan_is_what_the_predictor_does(rows: int, features: int, learner: Any, options: dict[str, Any]) -> None:
    """Phase after phase, number by number; and where the plan sees no end of it, there is none within these phases."""
    parameters = {**BUDGET, **options}
    plan = everlasting(rows, features, learner=learner, phases=4, **parameters)
    model = fitted(rows, features, learner, **options)
    found = lived_through(model, 4)
    real = [(one.number, one.rows, one.teachers, one.answers, one.queries, one.handed_on) for one in found]
    assert planned(plan) == real
    assert len(real) > 1
    if learner != "private":
        factory: Any = model._machine.factory
        specs = [factory.chosen(one)[0] for one in found]
        assert [(one.labeller, one.options) for one in plan.phases] == [(s.kind.name, s.options) for s in specs]


@pytest.mark.parametrize(
    ("features", "learner", "options"),
    [
        (20, "linear", {}),
        (1, "thresholds", {}),
        (3, "linear", {"classes": 3}),
        (1, "thresholds", {"answers": 700}),
        (1, "thresholds", {"answers": 10**9}),
        (2, "other", {"rows_per_teacher": 5}),
        (2, "linear", {"most_noise": 0.1}),
    ],
)
def test_rows_and_epsilon_required_are_those_of_fit(features: int, learner: Any, options: dict[str, Any]) -> None:
    few = 200
    plan = everlasting(few, features, learner=learner, **{**BUDGET, **options})
    assert not plan.sustained
    assert not plan.phases
    with pytest.raises(InsufficientData) as refused:
        fitted(few, features, learner, **options)
    assert refused.value.required == plan.rows_required
    enough = plan.rows_required
    accepted = everlasting(enough, features, learner=learner, phases=1, **{**BUDGET, **options})
    assert accepted.sustained
    assert planned(accepted)[0][2] == fitted(enough, features, learner, **options).phase.teachers
    spent = {**BUDGET, **options, "epsilon": plan.epsilon_required * 1.001}
    assert everlasting(few, features, learner=learner, phases=1, **spent).phases
    less = {**BUDGET, **options, "epsilon": plan.epsilon_required * 0.99}
    assert not everlasting(few, features, learner=learner, **less).phases


def test_finite_answers_are_the_most_that_fit_gives_in_one_phase() -> None:
    shape: dict[str, Any] = {"rows": 1_000, "features": 1, "learner": "thresholds", "epsilon": 1, "delta": 1e-6}
    plan = everlasting(**shape)
    assert plan.finite is not None
    assert everlasting(**shape, answers=plan.finite).sustained
    assert not everlasting(**shape, answers=plan.finite + 1).sustained
    fitted(1_000, 1, "thresholds", epsilon=1, answers=plan.finite)
    with pytest.raises(InsufficientData):
        fitted(1_000, 1, "thresholds", epsilon=1, answers=plan.finite + 1)


def test_phases_that_shrink_end_and_the_plan_says_when() -> None:
    plan = everlasting(3_000, 1, learner="thresholds", growth=1, **BUDGET)
    assert plan.phases
    assert not plan.sustained
    ends = int(plan.why.split()[1])
    found = lived_through(fitted(3_000, 1, "thresholds", growth=1), 1_000)
    assert found[-1].number == ends - 1


def test_phases_held_to_too_few_rows_end() -> None:
    assert everlasting(50_000, 1, learner="thresholds", max_rows=50_000, **BUDGET).sustained
    assert not everlasting(50_000, 1, learner="thresholds", max_rows=500, **BUDGET).sustained


@pytest.mark.parametrize("labeller", ["greedy", "gaussian", "poll", "two-coin"])
def test_the_loss_is_that_of_the_labeller_for_votes_as_guessed(labeller: str) -> None:
    plan = everlasting(20_000, 20, labeller=labeller, disagreement=0.3, phases=1, most_noise=10, **BUDGET)
    one = plan.phases[0]
    assert one.labeller == labeller
    made = labellers.make(
        labeller, teachers=one.teachers, answers=one.answers if labeller != "poll" else None,
        **{**BUDGET, **one.options},
    )  # fmt: skip
    ballots = Ballots.guess(one.teachers, disagreement=0.3)
    times = np.rint(ballots.weights * 40_000).astype(int)
    right = made.accuracy(np.repeat(ballots.counts, times, axis=0), np.repeat(ballots.truth, times))
    assert one.loss == pytest.approx(ballots.majority - right, abs=1e-3)


def test_many_teachers_lose_as_few_of_the_same_shares_do() -> None:
    """The loss of many teachers is computed with fewer, and as much noise."""
    small = everlasting(20_000, 20, phases=1, answers=10_000, labeller="greedy", most_noise=10, **BUDGET).phases[0]
    large = everlasting(80_000, 20, phases=1, answers=160_000, labeller="greedy", most_noise=10, **BUDGET).phases[0]
    assert small.noise == pytest.approx(large.noise, rel=0.01)
    assert small.loss == pytest.approx(large.loss, abs=5e-4)


def test_two_coin_is_named_where_it_buys_more() -> None:
    plan = everlasting(300_000, 20, epsilon=1, delta=1e-6, phases=1)
    assert plan.two_coin is not None
    assert plan.two_coin.answers > plan.phases[0].answers
    assert plan.two_coin.loss <= 0.01
    assert "two-coin labeller" in str(plan)
    assert everlasting(300_000, 20, epsilon=1, delta=1e-6, phases=1, disagreement=0.99).two_coin is None


@pytest.mark.parametrize("answers", ["endless", 5_000])
def test_a_single_model_has_the_only_phase_of_its_predictor(answers: int | str) -> None:
    plan = everlasting(500, 1, learner="private-model", answers=answers, **BUDGET)
    model = EverlastingPredictor(
        ThresholdLearner(bits=8, epsilon=BUDGET["epsilon"]), **BUDGET, classes=(0, 1), answers=answers, engine="model"
    )
    X = np.arange(500)[:, None] % 256
    phase = model.fit(X, X[:, 0] < 100).phase
    assert planned(plan) == [(1, 500, 0, phase.answers, phase.queries, 0)]
    assert (plan.sustained, plan.phases[0].endless, plan.guarantee) == (True, answers == "endless", model.guarantee_)
    assert ("no end of queries" in str(plan), "5,000 queries" in str(plan)) == (answers == "endless", answers == 5_000)


@pytest.mark.parametrize("learner", ["linear", "thresholds", "private", "private-model"])
def test_a_plan_reads_well_and_goes_into_json(learner: Any) -> None:
    for rows in (100, 100_000):
        plan = everlasting(rows, 1, learner=learner, phases=2, **BUDGET)
        text = str(plan)
        assert f"{rows:,} rows of 1 column, " in text
        assert ("It can be sustained" in text) == plan.sustained
        assert (f"{plan.rows_required:,} rows are needed, or ε" in text) == (not plan.phases)
        assert json.loads(json.dumps(asdict(plan)))["rows"] == rows


@pytest.mark.slow
@given(
    rows=st.integers(1, 10**7),
    features=st.integers(1, 1000),
    epsilon=st.floats(0.01, 20),
    classes=st.integers(2, 5),
    answers=st.one_of(st.just("endless"), st.integers(1, 10**8)),
)
@settings(max_examples=10, deadline=None)
def test_what_a_plan_requires_is_accepted(
    rows: int, features: int, epsilon: float, classes: int, answers: int | str
) -> None:
    shape: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "classes": classes, "answers": answers, "phases": 1}
    plan = everlasting(rows, features, labeller="gumbel", **shape)
    again = everlasting(plan.rows_required, features, labeller="gumbel", **shape)
    assert again.sustained
    assert rows < again.rows_required or plan.phases


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"rows": 0}, ValueError, "rows"),
        ({"rows": 1.5}, TypeError, "rows"),
        ({"features": 0}, ValueError, "features"),
        ({"epsilon": 0}, ValueError, "epsilon"),
        ({"epsilon": float("nan")}, ValueError, "epsilon"),
        ({"epsilon": float("inf")}, ValueError, "epsilon"),
        ({"delta": 0}, ValueError, "delta"),
        ({"delta": 1}, ValueError, "delta"),
        ({"classes": 1}, ValueError, "classes"),
        ({"answers": "many"}, ValueError, "answers"),
        ({"answers": 0}, ValueError, "answers"),
        ({"learner": "trees"}, ValueError, "learner"),
        ({"growth": 0.5}, ValueError, "growth"),
        ({"held_back": 1}, ValueError, "held_back"),
        ({"rows_per_teacher": 0}, ValueError, "rows_per_teacher"),
        ({"labeller": "sparse-vector"}, ValueError, "labeller"),
        ({"most_noise": 0}, ValueError, "most_noise"),
        ({"disagreement": 2}, ValueError, "disagreement"),
        ({"phases": 0}, ValueError, "phases"),
        ({"max_rows": 0}, ValueError, "max_rows"),
        ({"training_stream": "none"}, ValueError, "training_stream"),
        ({"training_stream": "trusted", "learner": "private-model"}, ValueError, "training_stream"),
    ],
)
def test_bad_input_is_refused_by_name(changes: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        everlasting(**{"rows": 1000, "features": 5, "epsilon": 1, "delta": 1e-6, **changes})
