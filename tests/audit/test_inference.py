"""Attacks on rows and labels through `predict`: within (ε, δ) on the private predictor, far beyond it without noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from experiments import datasets
from reticent.audit.inference import (
    Array,
    InferenceResult,
    label_inference,
    membership_inference,
    most_advantage,
    telling_queries,
)
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.teachers import Teachers

EPSILON, DELTA, ANSWERS, TEACHERS = 1, 1e-6, 100, 800


class Majority:
    """The teachers of the private predictor, without noise."""

    def __init__(self, teachers: Any) -> None:
        self.teachers = teachers

    def predict(self, X: Any) -> Any:
        return self.teachers.votes(X).argmax(axis=1)


def ensemble(X: Array, y: Array) -> Any:
    return Teachers(shards=TEACHERS, classes=(0, 1)).fit(X, y)


def majority(X: Array, y: Array) -> Majority:
    return Majority(ensemble(X, y))


def everlasting(X: Array, y: Array) -> Any:
    return EverlastingPredictor(
        epsilon=EPSILON, delta=DELTA, answers=ANSWERS, classes=(0, 1), rows_per_teacher=len(X) // TEACHERS
    ).fit(X, y)


def noisy(epsilon: float) -> Any:
    """A single answer by randomised response to "is the first label 1": its ε is known, and all of it shows."""
    generator = np.random.default_rng(0)

    class Told:
        def __init__(self, label: int) -> None:
            lie = generator.random() < 1 / (1 + np.exp(epsilon))
            self.label = label ^ int(lie)

        def predict(self, X: Array) -> Array:
            return np.full(len(X), self.label)

    return lambda X, y: Told(int(y[0]))


def test_the_bound_is_what_randomised_response_attains() -> None:
    X, y = np.zeros((4, 1)), np.array([1, 0, 1, 0])
    common: dict[str, Any] = {"index": 0, "label": 0, "queries": X[:1], "runs": 4000, "delta": 0, "confidence": 0.9999}
    found = label_inference(noisy(1.0), X, y, **common)
    allowed = most_advantage(epsilon=1, delta=0)
    assert found.advantage == pytest.approx(allowed, abs=0.06)
    assert 0.7 < found.epsilon_lower <= 1
    assert found.within(1)
    assert not label_inference(noisy(2.0), X, y, **common).within(1)


def test_the_greatest_advantage() -> None:
    assert most_advantage(epsilon=1, delta=0) == pytest.approx((np.e - 1) / (np.e + 1))
    assert most_advantage(epsilon=1000, delta=0.1) == 1
    assert most_advantage(epsilon=2, delta=0.1) == pytest.approx((np.exp(2) - 1 + 0.2) / (np.exp(2) + 1))


def test_a_tree_gives_a_label_away() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 3)), rng.integers(2, size=200)
    found = label_inference(
        lambda X, y: DecisionTreeClassifier(random_state=0).fit(X, y),
        X, y, index=7, label=1 - y[7], queries=X[7:8], runs=40, delta=DELTA, refit=False,
    )  # fmt: skip
    assert found.advantage == 1
    assert not found.within(EPSILON)


@pytest.mark.slow
def test_private_answers_give_little_away_and_a_majority_without_noise_gives_all() -> None:
    table, labels = datasets.synthetic("a9a", seed=0)
    rows = table.toarray()
    X, y, pool = rows[:40_000], labels[:40_000], rows[40_000:43_000]
    attacked: dict[str, list[InferenceResult]] = {"private": [], "majority": []}
    allowed = most_advantage(epsilon=EPSILON, delta=DELTA)
    truth = ensemble(X, y)
    for index in range(20):  # the attacker picks a victim whose label decides some majority
        flipped = y.copy()
        flipped[index] ^= 1
        changed = ensemble(X, flipped)
        queries = telling_queries(truth, changed, pool, ANSWERS)
        if Majority(truth).predict(queries[:1]) != Majority(changed).predict(queries[:1]):
            break
    common: dict[str, Any] = {"index": index, "delta": DELTA, "refit": False}
    for name, train, asked, runs in (("private", everlasting, queries, 60), ("majority", majority, queries[:1], 40)):
        attacked[name].append(
            label_inference(train, X, y, label=flipped[index], queries=asked, runs=runs, **common)
        )
    other = X[17], y[17]
    attacked["private"].append(
        membership_inference(everlasting, X, y, other=other, queries=queries, runs=60, **common)
    )
    for found in attacked["private"]:
        assert found.within(EPSILON)
        assert found.advantage_lower <= allowed
    assert attacked["majority"][0].advantage == 1
    assert not attacked["majority"][0].within(EPSILON)


@pytest.mark.parametrize(
    ("changed", "message"), [({"index": 9}, "index"), ({"runs": 3}, "runs"), ({"confidence": 1.5}, "confidence")]
)
def test_bad_arguments_are_refused(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"index": 0, "label": 0, "runs": 8, "delta": 0, **changed}
    X = np.zeros((4, 1))
    with pytest.raises(ValueError, match=message):
        label_inference(noisy(1.0), X, np.array([1, 0, 1, 0]), queries=X[:1], **given)
