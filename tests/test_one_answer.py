"""One answer for everybody is told, as a function of what is released and of nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

import reticent as rt
from reticent.concepts import Threshold, Thresholds
from reticent.learners.features import FeatureMap
from reticent.learners.linear import Linear
from reticent.predictors.engines.private_model import constant_answer

Array = NDArray[Any]

KNOWN: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "classes": ("ill", "well"), "unsafe_seed": 0}


def rare(share: float, rows: int = 6_000, seed: int = 0) -> tuple[Array, Array]:
    """Rows of which a share is ill, in a corner of their own."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 3))
    ill = X[:, 0] > np.quantile(X[:, 0], 1 - share) if share else np.zeros(rows, dtype=bool)
    return X, np.where(ill, "ill", "well")


def caught(call: Any) -> tuple[Any, list[str]]:
    """What a call gives, and what it warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = call()
    assert all(one.category is rt.OneAnswerWarning for one in found)
    return result, [str(one.message) for one in found]


# ── PATE ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rare_classes_are_told_of() -> None:
    X, y = rare(0.005)
    model = rt.PATEClassifier(**KNOWN, queries="passive", n_queries=50)
    with pytest.warns(rt.OneAnswerWarning, match=r"all 50 released labels are 'well', and so is every answer") as found:
        model.fit(X, y, public=X[:300])
    assert found[0].filename == __file__
    assert (model.predict(X) == "well").all()
    assert "more public rows" in str(found[0].message)


def test_classes_that_are_not_rare_are_not() -> None:
    X, y = rare(0.4)
    assert caught(lambda: rt.PATEClassifier(**KNOWN).fit(X, y, public=X[:300]))[1] == []


def test_a_student_that_makes_one_answer_of_several_labels_is_told_of() -> None:
    X, y = rare(0.1)
    student = DecisionTreeClassifier(max_depth=1, min_samples_leaf=145)
    model, told = caught(
        lambda: rt.PATEClassifier(student=student, **KNOWN, queries="passive").fit(X, y, public=X[:300])
    )
    assert len(np.unique(model.labels_)) == 2
    assert told[0].startswith("labels of 2 classes were released, but the student answers 'well' to all public rows")


def test_a_third_class_that_is_never_given_is_not_told_of_and_can_be_seen() -> None:
    """As the documentation says."""
    X, y = rare(0.4)
    known = {**KNOWN, "classes": ("ill", "none", "well")}
    model, told = caught(lambda: rt.PATEClassifier(**known, queries="passive").fit(X, y, public=X[:300]))
    assert told == []
    assert model.settings_.n_queries == 300  # a passive fit asks all public rows
    assert set(model.classes_) - set(model.predict(X[:300])) == {"none"}


def test_no_label_at_all_is_told_of() -> None:
    X, y = rare(0.4, rows=2_000)
    y = np.random.default_rng(0).choice(["ill", "well"], size=2_000)
    options: dict[str, Any] = {"labeller": "confident", "labeller_options": {"threshold": 10_000}}
    model, told = caught(lambda: rt.PATEClassifier(**KNOWN, **options, n_queries=20).fit(X, y, public=X[:300]))
    assert (model.labels_ == -1).all()
    assert told[0].startswith("no label was released")


def test_where_warnings_are_errors_nothing_that_was_paid_for_is_lost() -> None:
    X, y = rare(0)
    model = rt.PATEClassifier(**KNOWN, queries="passive", n_queries=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(rt.OneAnswerWarning):
            model.fit(X, y, public=X[:300])
    assert len(model.labels_) == 50
    assert (model.predict(X[:10]) == "well").all()


@pytest.mark.parametrize("queries", ["passive", "active"])
def test_the_warning_is_a_function_of_what_is_released(queries: str) -> None:
    """It is made here again from the released labels, the student and the public rows, whatever private rows were."""

    def expected(model: Any, public: Array) -> str | None:
        labels, answers = model.labels_[model.labels_ >= 0], model.predict(public)
        if len(set(answers)) > 1:
            return None
        if len(set(labels)) == 1:
            return f"all {len(labels)} released labels are '{answers[0]}', and so is every answer of the student. What"
        return f"labels of {len(set(labels))} classes were released, but the student answers '{answers[0]}' to"

    seen = set()
    public = rare(0.1, rows=200, seed=9)[0]
    for share in (0, 0.002, 0.01, 0.1, 0.5):
        for seed in range(2):
            X, y = rare(share, rows=3_000, seed=seed)
            model = rt.PATEClassifier(**KNOWN, queries=queries, n_queries=30)
            fitted, told = caught(lambda model=model, X=X, y=y: model.fit(X, y, public=public))
            words = expected(fitted, public)
            assert len(told) == (words is not None)
            assert words is None or told[0].startswith(words)
            seen.add(words)
    assert len(seen) >= 2  # both with and without


# ── a chain ───────────────────────────────────────────────────────────────────────────────────────────────────────


def model_of(coef: Array, intercept: Array, row_norm: float) -> rt.PrivateLogisticRegression:
    """A released linear model."""
    kinds = list(range(max(2, coef.shape[1])))
    model = rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=row_norm, classes=kinds)
    model.hypothesis_, model.feature_map_ = Linear(coef, intercept), FeatureMap(row_norm)
    model.classes_, model.n_features_in_, model.whitening_ = np.array(kinds), len(coef), None
    model.seen_classes_ = None
    return model


@pytest.mark.parametrize("scores", [1, 3, 4])
def test_one_answer_is_what_a_linear_model_gives_to_every_row(scores: int) -> None:
    generator, seen = np.random.default_rng(0), set()
    for _ in range(200):
        coef, intercept = generator.normal(size=(2, scores)), 3 * generator.normal(size=scores)
        model = model_of(coef, intercept, row_norm=0.7)
        # All directions in which one class can gain on another, to the end, and a hundred others.
        every = np.hstack([coef, np.zeros((2, 1))])
        gains = np.array([every[:, i] - every[:, j] for i in range(scores + 1) for j in range(scores + 1) if i != j])
        rows = np.vstack([gains, generator.normal(size=(100, 2))])
        rows *= 0.7 / np.linalg.norm(rows, axis=1, keepdims=True)
        answers = set(model.predict(rows).tolist())
        found = constant_answer(model)
        assert answers == {found} if found is not None else len(answers) > 1
        seen.add(found)
    assert {None, 0, 1} <= seen


@pytest.mark.parametrize(("at", "found"), [(0, 0), (1, None), (15, None), (16, 1)])
def test_one_answer_of_a_threshold(at: int, found: int | None) -> None:
    learner = rt.ThresholdLearner(bits=4, epsilon=1)
    learner.hypothesis_ = Threshold(at)
    assert constant_answer(learner) == found


def test_a_chain_whose_model_gives_one_answer_says_so() -> None:
    X, y = rare(0)
    learner = rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1)
    model = rt.EverlastingPredictor(learner, **KNOWN)
    told = "the private model gives the class 'well' to nearly every row"
    with pytest.warns(rt.OneAnswerWarning, match=told) as found:
        model.fit(X, y)
    assert found[0].filename == __file__
    assert model.one_answer_ == "well"
    assert (model.predict(X[:100]) == "well").all()


@pytest.mark.parametrize("kind", ["all alike", "many scales", "a category"])
def test_labels_of_one_class_are_told_of_whatever_the_rows_are(kind: str) -> None:
    """With rounds of second moments, some possible row nearly always gets another class; no row of the table does."""
    told = 0
    for seed in range(12):
        generator = np.random.default_rng(seed)
        X = np.zeros((3_000, 8))
        if kind == "many scales":
            X = generator.normal(size=X.shape) * np.logspace(0, -2, 8)
        elif kind == "a category":
            X[np.arange(3_000), generator.integers(0, 8, 3_000)] = 1
        model = rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3, classes=[0, 1])
        found = constant_answer(model.fit(X, np.ones(3_000, dtype=np.int64)))
        told += found is not None
        assert found in (1, None)
        assert (model.predict(X) == 1).mean() > 0.97
    assert told >= 11, "it may be missed in one of 700 fits"


def test_a_class_that_counts_show_is_not_overlooked() -> None:
    """A rare class that the noisy counts show is no reason to warn, whatever the model says; nor is a common one."""
    for share in (0.1, 0.4):
        X, y = rare(share)
        learner = rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3).fit(X, y)
        assert learner.seen_classes_ is not None
        assert learner.seen_classes_.all()


def test_coarse_counts_show_nothing() -> None:
    """Noise that hides a class of one row in ten does not say that there is only one class."""
    X, y = rare(0.4, rows=600)
    assert rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=3).fit(X, y).seen_classes_ is None


def test_a_chain_whose_model_does_not_is_silent() -> None:
    X, y = rare(0.4)
    learner = rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1)
    model, told = caught(lambda: rt.EverlastingPredictor(learner, **KNOWN).fit(X, y))
    assert (model.one_answer_, told) == (None, [])


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_votes_nothing_is_said_that_would_tell_the_answer_to_one_query() -> None:
    """All queries but one are an adversary's, and are answered alike. A word about all answers tells him the other."""
    X = np.linspace(0, 1, 400)[:, None]
    y = np.where(X[:, 0] < 0.5, "well", "ill")

    def seen(challenge: float) -> tuple[Any, bool]:
        known = {**KNOWN, "epsilon": 20, "delta": 1e-5}
        model = rt.EverlastingPredictor(Thresholds(), **known).fit(X, y)
        queries = np.full((900, 1), 0.1)
        queries[7] = challenge
        codes, told = caught(lambda: model.answer(queries).class_indices)
        shown = model.phase_, model.answered_, model.answers_left_in_phase_, model.rows_gathered_, model.one_answer_
        return (shown, told), len(set(codes.tolist())) == 1  # the second is the twin: it looks at all answers

    alike, other = seen(0.1), seen(0.9)
    assert alike[0] == other[0]
    assert alike[0][0][-1] is None
    assert alike[1] != other[1]
