"""The votes on a query do not depend on what the other queries of its batch hold, not even in their last digit."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Thresholds
from reticent.data.labels import class_indices
from reticent.teachers import LogisticTeacher, Teachers, linear_voters, models

Array = np.ndarray[Any, Any]


def rows(count: int, columns: int, seed: int = 0) -> tuple[Array, Array]:
    X = np.random.default_rng(seed).normal(size=(count, columns))
    return X, (X[:, 0] + X[:, -1] > 0).astype(np.int64)


def votes_in_company(teachers: Teachers, queries: Array, company: list[Array]) -> list[Array]:
    """The votes on some queries, beside each of these others."""
    return [teachers.votes(np.vstack([queries, other]))[: len(queries)] for other in company]


def same(found: list[Array]) -> bool:
    return all(np.array_equal(found[0], other) for other in found)


def torn(teachers: Teachers, columns: int, count: int) -> Array:
    """Queries on which rounding decides: far out, where the scores of all teachers are next to nothing."""
    voters = teachers._voters
    assert isinstance(voters, linear_voters.LinearVoters)
    rng = np.random.default_rng(1)
    centre = np.linalg.lstsq(voters.weights, -voters.bias, rcond=None)[0]
    null = np.linalg.svd(voters.weights)[2][len(voters.weights) :]
    assert null.shape[1] == columns
    far = 10.0 ** rng.uniform(5, 12, size=(count, 1))
    return np.asarray(centre + far * (rng.normal(size=(count, len(null))) @ null))


WIDE = [np.zeros((3, 60)), np.full((3, 60), 1e5), np.vstack([np.zeros((2, 60)), np.full((1, 60), 1e300)])]


def test_a_query_with_large_numbers_does_not_round_the_votes_on_others() -> None:
    teachers = Teachers(LogisticTeacher(), shards=50, classes=(0, 1)).fit(*rows(3000, 60))
    assert same(votes_in_company(teachers, torn(teachers, 60, 40), WIDE))


def test_twin_that_votes_on_all_large_queries_by_one_product_is_told_apart() -> None:
    teachers = Teachers(LogisticTeacher(), shards=50, classes=(0, 1)).fit(*rows(3000, 60))
    with mock.patch.object(linear_voters, "_product", lambda weights, rows, out: weights @ rows.T):
        alone = [teachers.votes(query[None]) for query in torn(teachers, 60, 40)]
        together = teachers.votes(torn(teachers, 60, 40))
    assert not np.array_equal(np.concatenate(alone), together)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticTeacher(),
        LogisticRegression(),
        DecisionTreeClassifier(max_depth=2),
        RandomForestClassifier(n_estimators=2, max_depth=2),
        SVC(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("other", [1e300, -1e39, 1e-300, 1e10])
def test_a_query_that_no_teacher_can_answer_leaves_the_others_alone(estimator: Any, other: float) -> None:
    teachers = Teachers(estimator, shards=20, classes=(0, 1)).fit(*rows(600, 3))
    queries, _ = rows(30, 3, seed=2)
    assert same(votes_in_company(teachers, queries, [np.zeros((1, 3)), np.full((1, 3), other)]))


@pytest.mark.slow
def test_a_category_that_some_teachers_never_saw_leaves_the_others_alone() -> None:
    X = np.random.default_rng(0).integers(3, size=(400, 2)).astype(np.float64)
    teachers = Teachers(make_pipeline(OneHotEncoder(), LogisticRegression()), shards=20, classes=(0, 1))
    teachers.fit(X, X[:, 0] > 0)
    queries = X[:50]
    with mock.patch("reticent.teachers.teachers.log"):
        found = votes_in_company(teachers, queries, [np.zeros((1, 2)), np.array([[7.0, 7.0]])])
        assert same(found)
        assert teachers.votes([[7.0, 7.0]]).tolist() == [[20, 0]]  # none knows it


def test_twin_that_fails_on_the_whole_batch_is_told_apart() -> None:
    def whole(model: Any, X: Array, classes: Array, failures: list[str]) -> Array:
        try:
            return np.maximum(class_indices(np.asarray(model.predict(X)), classes), 0)
        except ValueError:
            return np.zeros(len(X), dtype=np.int64)

    teachers = Teachers(RandomForestClassifier(n_estimators=2), shards=20, classes=(0, 1)).fit(*rows(600, 3))
    queries, _ = rows(30, 3, seed=2)
    with mock.patch.object(models, "_answer", whole):
        assert not same(votes_in_company(teachers, queries, [np.zeros((1, 3)), np.full((1, 3), 1e300)]))


def test_thresholds() -> None:
    X, y = rows(600, 1)
    teachers = Teachers(Thresholds(both_orientations=True), shards=20, classes=(0, 1)).fit(X, y)
    assert same(votes_in_company(teachers, X[:30], [np.zeros((1, 1)), np.full((1, 1), 1e300)]))
