"""How a chain goes on from a released model, and how many rows a phase has."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from reticent.concepts import Thresholds
from reticent.learners import (
    ExponentialLearner,
    PointLearner,
    PrivateLogisticRegression,
    RectangleLearner,
    ThresholdLearner,
)
from reticent.learners.linear import Linear
from reticent.learners.phase_rules import continuation, phase_rows
from reticent.learners.public_rows import Directions, turned_start
from reticent.predictors.engines.private_model import model_state, restored_model

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


def drawn(rows: int, columns: int, *, seed: int = 0) -> tuple[Array, Array]:
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    return X, (X[:, 0] - X[:, 1] + 0.5 > 0).astype(int)


def learner(**changed: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**DP | {"row_norm": 7, "classes": [0, 1]} | changed)


def following(model: PrivateLogisticRegression, rows: int = 3000, *, phase: int = 2) -> dict[str, Any]:
    plain: PrivateLogisticRegression = clone(model)
    return continuation(plain, model, phase=phase, rows=rows, columns=model.n_features_in_)


# ── the next model ────────────────────────────────────────────────────────────────────────────────────────────────


def test_few_columns_buy_a_map_in_every_phase_and_many_use_the_last_again() -> None:
    for columns, again in ((6, False), (31, False), (32, True), (60, True)):
        X, y = drawn(4000, columns)
        model = learner().fit(X, y)
        changed = following(model)
        assert model.whitening_ is not None
        assert changed["start"] is model.hypothesis_
        assert changed["level"] == Fraction(2, 3)
        assert "rounds" not in changed
        assert (changed.get("whitening") is model.whitening_) == again
        following_model = clone(model).set_params(**changed).fit(X, y)
        assert following_model.whitening_ is not None
        assert np.array_equal(following_model.whitening_.matrix, model.whitening_.matrix) == again


def test_many_columns_buy_a_map_from_time_to_time() -> None:
    X, y = drawn(3000, 40)
    model = learner().fit(X, y)
    bought = [phase for phase in range(2, 60) if "whitening" not in following(model, phase=phase)]
    assert bought == [17, 33, 49]
    assert following(model, rows=300, phase=17)["whitening"] is model.whitening_  # too few rows


def test_too_few_rows_for_a_map_use_the_last_one() -> None:
    X, y = drawn(4000, 6)
    model = learner().fit(X, y)
    assert following(model, rows=150)["whitening"] is model.whitening_
    small = learner().fit(X[:60], y[:60])  # too few for a map
    assert small.whitening_ is None
    assert following(small, rows=60)["whitening"] is None
    assert clone(small).set_params(**following(small)).fit(X, y).whitening_ is not None  # as soon as there are enough


def test_what_the_caller_chose_is_kept() -> None:
    X, y = drawn(4000, 40)
    for rounds in (0, 4):
        changed = following(learner(rounds=rounds).fit(X, y))
        assert "rounds" not in changed
        assert "whitening" not in changed
    given = learner().fit(X, y).whitening_
    assert "whitening" not in following(learner(whitening=given).fit(X, y))
    assert following(learner(level=6).fit(X, y))["level"] == 2
    seeded = learner(fourier_features=20).fit(X, y)
    assert following(seeded)["fourier_seed"] == seeded.fourier_seed_


@pytest.mark.parametrize("columns", [6, 40])
def test_a_restored_model_is_continued_alike(columns: int) -> None:
    X, y = drawn(3000, columns)
    model = learner().fit(X, y)
    again = restored_model(learner(), *model_state(model))
    first, second = following(model), following(again)
    assert first.keys() == second.keys()
    assert np.array_equal(first["start"].coef, second["start"].coef)
    assert first["level"] == second["level"]


@pytest.mark.parametrize("columns", [6, 40])
def test_a_chain_follows_labels_that_turn(columns: int) -> None:
    X, y = drawn(21_000, columns)
    y = np.where(np.arange(21_000) < 10_000, y, 1 - y)
    first = model = learner().fit_class_indices(X[:3000], y[:3000], None)
    for at in range(3000, 18_000, 3000):
        changed = continuation(learner(), model, phase=2, rows=3000, columns=columns)
        model = learner().set_params(**changed).fit_class_indices(X[at : at + 3000], y[at : at + 3000], None)
    assert model.score(X[18_000:], y[18_000:]) > 0.7
    assert first.score(X[18_000:], y[18_000:]) < 0.2


# ── public rows ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_weights_for_public_directions_are_turned_with_them() -> None:
    X, y = drawn(6000, 30)
    model = learner(row_norm=None, public=drawn(400, 30, seed=1)[0]).fit(X[:600], y[:600])
    same, more = following(model, rows=600), following(model, rows=6000)
    assert same["start"] is model.hypothesis_
    assert "whitening" not in same
    before = model.feature_map_.directions
    assert before is not None
    assert more["start"].coef.shape[0] > before.matrix.shape[1]
    after = clone(model).set_params(**more).fit(X, y)
    assert after.feature_map_.directions is not None
    rows = X / 100  # so short that no row is shortened
    scores = _scores(more["start"], after.feature_map_.directions, rows)
    assert np.allclose(_scores(model.hypothesis_, before, rows), scores, rtol=1e-9, atol=1e-9)
    assert after.score(X, y) > 0.8
    mapped = learner(row_norm=None, public=drawn(400, 30, seed=1)[0], fourier_features=8).fit(X[:600], y[:600])
    assert following(mapped, rows=600)["start"] is mapped.hypothesis_
    assert following(mapped, rows=6000)["start"] is None  # features of other columns


def _scores(model: Linear, directions: Directions, rows: Array) -> Array:
    return np.asarray((rows @ directions.matrix - directions.centre) / directions.length @ model.coef + model.intercept)


def test_fewer_directions_keep_what_they_can() -> None:
    generator = np.random.default_rng(0)
    many = Directions(generator.normal(size=(9, 5)), generator.normal(size=5), 2.0)
    few = Directions(many.matrix[:, :3], many.centre[:3], 0.5)
    start = Linear(np.array([[1.0], [2.0], [-1.0], [0.0], [0.0]]), np.array([0.3]))
    rows = generator.normal(size=(20, 9))
    assert np.allclose(_scores(start, many, rows), _scores(turned_start(start, many, few), few, rows))


# ── the size of a phase ───────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_a_phase_of_linear_models() -> None:
    sizes = [[phase_rows(learner(epsilon=epsilon), columns) for epsilon in (0.5, 1, 2, 4)] for columns in (6, 54)]
    assert sizes == [[2585, 1377, 710, 386], [5743, 2999, 1577, 840]]
    assert phase_rows(learner(), 54, 7) == learner(rounds=0).n_required(0.2, columns=54, classes=7)
    assert phase_rows(learner(), 54, early=True) == learner(rounds=0).n_required(0.5, columns=54)
    assert phase_rows(learner(rounds=8), 54) == learner(rounds=8).n_required(0.2, columns=54) > 2999  # bought each time
    assert phase_rows(learner(row_norm=None, public=drawn(200, 54)[0]), 54) < 2999


@pytest.mark.parametrize(
    ("concept", "columns", "options"),
    [
        (ThresholdLearner(bits=8, epsilon=1), 1, {}),
        (PointLearner(bits=8, epsilon=1, delta=1e-6), 1, {}),
        (RectangleLearner(bits=8, epsilon=1), 3, {"dimensions": 3}),
        (ExponentialLearner(Thresholds(bits=4), epsilon=1), 1, {}),
    ],
)
def test_rows_of_a_phase_of_concepts(concept: Any, columns: int, options: dict[str, int]) -> None:
    assert phase_rows(concept, columns) == concept.n_required(0.1, **options)
    assert phase_rows(concept, columns, early=True) == concept.n_required(0.25, **options)
    promised = clone(concept).set_params(error=0.05)
    assert phase_rows(promised, columns) == concept.n_required(0.05, **options)
    assert continuation(concept, concept, phase=2, rows=100, columns=columns) == {}
