"""A public map that is used again: nothing is bought, and an earlier model's weights are carried over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from reticent.learners import PrivateLogisticRegression, logistic_fit
from reticent.learners.linear import Linear
from reticent.learners.whitening import Whitening, moderate_start
from reticent.predictors.engines.private_model import model_state, restored_model
from reticent.privacy import fits
from reticent.privacy.events import Composed, Repeated

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
LEARNERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "Fourier features": {"fourier_features": 12, "fourier_seed": 3},
    "bounds": {"row_norm": None, "bounds": (-5e5, 5e5)},
}


def badly_scaled(rows: int, classes: int = 2, *, seed: int = 0) -> tuple[Array, Array]:
    """Seven columns of scales from 1 to 10⁶, all of which matter."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 7)) + 1
    y = (X @ [1, -1, 1, -1, 1, -1, 1] > 1).astype(int)
    return X * 10.0 ** np.arange(7), y + (X[:, 0] > 2) if classes == 3 else y


def learner(name: str, classes: int = 2) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**DP | {"row_norm": 3e6} | LEARNERS[name], classes=list(range(classes)))


def continued(model: PrivateLogisticRegression, **changed: Any) -> PrivateLogisticRegression:
    known: dict[str, Any] = {"start": model.hypothesis_, "whitening": model.whitening_}
    following: PrivateLogisticRegression = clone(model).set_params(**known | changed)
    return following


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_start_in_the_map_has_the_scores_of_the_earlier_model(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = badly_scaled(5000, classes)
    model = learner(name, classes).fit(X, y)
    assert model.whitening_ is not None
    monkeypatch.setattr(logistic_fit, "descend", lambda rows, targets, plan, noise, first, **_: first)
    same = continued(model).fit(X, y)
    scores = model.decision_function(X)
    assert np.abs(same.decision_function(X) - scores).max() <= 1e-9 * max(1.0, float(np.abs(scores).max()))
    # As for a twin that takes the weights as they are, or those of the plain descent.
    monkeypatch.setattr(Whitening, "carried_over", lambda self, weights: weights)
    assert np.abs(continued(model).fit(X, y).decision_function(X) - scores).max() > 0.1


def test_weights_are_carried_over_and_back() -> None:
    generator = np.random.default_rng(0)
    for constant in (True, False):
        scales = 10.0 ** generator.integers(-6, 7, (9, 1))
        found = Whitening(generator.normal(size=(9, 9)) * scales, 2.3, constant)
        weights = generator.normal(size=(9, 2)) * scales
        assert np.allclose(found.pulled_back(found.carried_over(weights)), weights, rtol=1e-9, atol=0)


@pytest.mark.parametrize("classes", [2, 3])
def test_all_of_the_budget_is_for_the_descent(classes: int) -> None:
    X, y = badly_scaled(4000, classes)
    model = learner("plain", classes).fit(X, y)
    again = continued(model).fit(X, y)
    assert isinstance(model.event_, Composed)
    assert isinstance(again.event_, Repeated)
    assert fits(again.event_, **DP)
    assert not fits(again.event_, epsilon=0.98, delta=1e-6)
    assert again.whitening_ is model.whitening_
    counted = continued(model, class_weight="balanced").fit(X, y)
    assert isinstance(counted.event_, Composed)
    assert len(counted.event_.events) == 2
    assert continued(model).n_required(0.2, columns=7) < model.n_required(0.2, columns=7)


def test_a_descent_in_the_map_learns_from_few_rows_what_plain_rows_do_not_teach() -> None:
    X, y = badly_scaled(20_000)
    model = learner("plain").fit(X[:9000], y[:9000])
    flipped = 1 - y
    again = continued(model, start=None).fit(X[9000:12_000], flipped[9000:12_000])
    assert again.score(X[12_000:], flipped[12_000:]) > 0.9
    plain = clone(model).set_params(rounds=0).fit(X[9000:12_000], flipped[9000:12_000])
    assert plain.score(X[12_000:], flipped[12_000:]) < 0.8


def test_a_start_in_a_new_map_is_moderate() -> None:
    usual = np.random.default_rng(0).normal(size=(9, 3))
    assert np.array_equal(moderate_start(usual), usual)
    assert np.array_equal(moderate_start(np.zeros((4, 2))), np.zeros((4, 2)))
    for far in (usual * 1e100, usual * np.where(np.arange(9) == 4, 1e300, 1)[:, None], usual * 1e9):
        found = moderate_start(far)
        assert np.linalg.norm(found, axis=0).max() <= 10 + 1e-9
        assert np.array_equal(np.sign(found), np.sign(usual))
    assert np.allclose(moderate_start(usual * 1e6) / moderate_start(usual * 1e9), 1)


def test_a_model_of_tiny_values_can_be_continued() -> None:
    X, y = badly_scaled(3000)
    X[:, 0] /= 300
    model = learner("plain").fit(X, y)
    assert np.abs(model.hypothesis_.coef * 3e6).max() > 1e9  # the weights of unit rows
    for changed in ({}, {"whitening": None}):
        assert continued(model, **changed).fit(X, y).score(X, y) > 0.8
    with pytest.raises(ValueError, match="start must give rows of full length"):
        continued(model, whitening=None, rounds=0).fit(X, y)


@pytest.mark.parametrize(("limited", "followed"), [(moderate_start, True), (np.asarray, False)])
def test_a_column_that_begins_to_vary_does_not_drown_the_others(
    limited: Any, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic_fit, "moderate_start", limited)
    X, y = badly_scaled(6000)
    still = X * [0, 1, 1, 1, 1, 1, 1]
    model = learner("plain").fit(still[:3000], y[:3000])
    assert model.whitening_ is not None
    model.hypothesis_.coef[0] = 100.0  # a weight that no row has told anything about
    again = continued(model, whitening=None).fit(X[3000:], y[3000:])
    assert (again.score(X, y) > 0.85) == followed


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_in_a_known_map_is_saved_and_restored(name: str) -> None:
    X, y = badly_scaled(3000)
    model = continued(learner(name).fit(X, y)).fit(X, y)
    header, arrays = model_state(model)
    again = restored_model(learner(name), header, arrays)
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    assert again.event_ == model.event_
    assert np.array_equal(arrays["whitening"], again.whitening_.matrix)


def test_rows_without_a_label_add_nothing_in_a_known_map(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = badly_scaled(3000)
    model = learner("plain").fit(X, y)
    following = continued(model).set_params(unsafe_seed=1)
    kept = np.arange(3000) % 3 > 0
    found = []
    for rest in (X, np.full_like(X, np.nan)):
        rows = np.where(kept[:, None], X, rest)
        found.append(clone(following).fit_class_indices(rows, np.where(kept, y, -1), None, labelled_rows=2000))
    assert found[0].event_ == found[1].event_
    monkeypatch.setattr(logistic_fit, "descend", lambda rows, *_, row_weights, **__: row_weights[: rows.shape[1], None])
    assert not clone(following).fit_class_indices(X, np.full(3000, -1), None, labelled_rows=2000).coef_.any()


def test_maps_that_do_not_fit_are_refused() -> None:
    X, y = badly_scaled(3000)
    model = learner("plain").fit(X, y)
    found = model.whitening_
    assert found is not None
    broken: list[tuple[Any, str]] = [
        ("map", "whitening must be"),
        (found.matrix, "whitening must be"),
        (replace(found, matrix=found.matrix[:, 1:]), "square matrix"),
        (replace(found, matrix=found.matrix * np.nan), "square matrix of finite"),
        (replace(found, matrix=found.matrix * 0), "inverted"),
        (replace(found, matrix=np.ones_like(found.matrix)), "inverted"),
        (replace(found, length=0.0), "length > 0"),
        (replace(found, constant=False), "fit_intercept=True"),
        (replace(found, matrix=np.eye(5)), "whitening must map 8 columns"),
    ]
    for wrong, words in broken:
        with pytest.raises((TypeError, ValueError), match=words):
            clone(model).set_params(whitening=wrong).fit(X, y)
    with pytest.raises(ValueError, match="rounds must be 'auto' or 0 with whitening"):
        clone(model).set_params(whitening=found, rounds=4).fit(X, y)
    with pytest.raises(ValueError, match="start must be Linear"):
        continued(model, start=Linear(np.zeros((3, 1)), np.zeros(1))).fit(X, y)
