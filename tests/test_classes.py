"""The order in which a caller names classes never matters: `classes_` ascend, and scores and columns follow them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.tree import DecisionTreeClassifier

import reticent as rt
from reticent.concepts import Halfspaces, Thresholds
from reticent.data.classes import sorted_classes
from reticent.learners.base import ConceptLearner
from reticent.teachers import LogisticTeacher, NoiseAware, VotingStudents
from reticent.teachers import saving as teachers_saving

Array = NDArray[Any]

KNOWN: dict[str, Any] = {"epsilon": 4, "delta": 1e-6, "unsafe_seed": 0}


def made(name: str, **more: Any) -> Any:
    """The classifier of this name, ready for `fit`; what comes after a comma says what it learns by."""
    kind, _, learner = name.partition(", ")
    known: dict[str, Any] = {**KNOWN, **more}
    if kind == "PATEClassifier":
        return rt.PATEClassifier(**known, queries="passive")
    if kind == "PrivatePredictor":
        return rt.PrivatePredictor(**known, queries=100)
    if kind == "PrivateLogisticRegression":
        return rt.PrivateLogisticRegression(**known, row_norm=4)
    if kind == "PrivateComparison":
        pair = [rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=4, rounds=each) for each in (0, 4)]
        return rt.PrivateComparison(pair, **known)
    if kind == "PrivatePipeline":
        return rt.PrivatePipeline(**known)
    if learner == "trees":
        return rt.EverlastingPredictor(DecisionTreeClassifier(), **known, answers=100, rows_per_teacher=20)
    private = rt.PrivateLogisticRegression(epsilon=4, delta=1e-6, row_norm=4) if learner == "chain" else None
    return rt.EverlastingPredictor(private, **known, answers=100)


NAMES = (
    "PATEClassifier", "EverlastingPredictor", "EverlastingPredictor, trees", "EverlastingPredictor, chain",
    "PrivatePredictor", "PrivateLogisticRegression", "PrivateComparison", "PrivatePipeline",
)  # fmt: skip
LABELS: dict[str, list[Any]] = {
    "strings": ["no", "yes"],
    "bools": [False, True],
    "numbers": [-1, 1],
    "floats": [1.0, 2.0],
    "three strings": ["high", "low", "middle"],
    "three numbers": [1, 2, 10],
}


def data(labels: list[Any], rows: int = 3_000) -> tuple[Array, Array]:
    """Rows whose label is plain to see."""
    generator = np.random.default_rng(0)
    codes = generator.integers(len(labels), size=rows)
    angle = 2 * np.pi * codes / len(labels)
    X = 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.2 * generator.normal(size=(rows, 2))
    return X, np.asarray(labels)[codes]


def fitted(model: Any, X: Array, y: Array) -> Any:
    more = {"public": X[:300]} if isinstance(model, rt.PATEClassifier) else {}
    return model.fit(X, y, **more)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [["no", "yes"], [-1, 1], [False, True], ["high", "low", "middle"]], ids=str)
def test_the_order_of_classes_changes_nothing(name: str, labels: list[Any]) -> None:
    X, y = data(labels)
    orders = [labels, labels[::-1], [*labels[1:], *labels[:1]]][:len(labels)]
    answers = []
    for order in orders:
        model = fitted(made(name, classes=order), X, y)
        assert model.classes_.tolist() == np.unique(y).tolist() == sorted(labels)
        assert model.classes_.dtype == np.unique(y).dtype
        answers.append(model.predict(X[:100]))
    for other in answers:
        assert (other == answers[0]).all()
        assert (other == y[:100]).mean() > 0.9


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(made(name, classes=(0, 1)), "predict_proba")])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_scorers_of_scikit_learn_are_right(name: str, labels: list[Any]) -> None:
    X, y = data(labels)
    model = fitted(made(name, classes=labels[::-1]), X, y)
    shares = model.predict_proba(X)
    assert (model.classes_[shares.argmax(axis=1)] == model.predict(X)).all()
    assert get_scorer("roc_auc" if len(labels) == 2 else "roc_auc_ovr")(model, X, y) > 0.95
    assert get_scorer("neg_log_loss")(model, X, y) > -0.5
    if hasattr(model, "decision_function"):
        scores = model.decision_function(X)
        winners = (scores > 0).astype(int) if len(labels) == 2 else scores.argmax(axis=1)
        assert (model.classes_[winners] == model.predict(X)).all()


@pytest.mark.parametrize("model", [LogisticTeacher(), NoiseAware(), VotingStudents(LogisticRegression())])
def test_teachers_and_students_are_scored_alike(model: Any) -> None:
    X, y = data(["yes", "no"], rows=300)
    model.fit(X, y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert get_scorer("roc_auc")(model, X, y) > 0.95


def test_every_public_classifier_that_takes_classes_is_here() -> None:
    public = [getattr(rt, name) for name in rt.__all__ if isinstance(getattr(rt, name), type)]
    takes = {one.__name__ for one in public if issubclass(one, ClassifierMixin) and "classes" in one._get_param_names()}
    assert takes == {name.partition(",")[0] for name in NAMES}
    for one in public:
        if issubclass(one, ClassifierMixin) and one.__name__ not in takes:
            assert issubclass(one, (ConceptLearner, rt.GenericBBL)), "its classes are 0 and 1"
    assert all(is_classifier(made(name, classes=(0, 1))) for name in NAMES)


@pytest.mark.parametrize("estimator", [None, LogisticRegression(), DecisionTreeClassifier()])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_columns_of_votes_ascend(estimator: Any, labels: list[Any]) -> None:
    X, y = data(labels, rows=2_000)
    teachers = rt.Teachers(estimator, shards=20, classes=labels[::-1]).fit(X, y)
    assert teachers.classes_.tolist() == sorted(labels)
    votes = teachers.votes(X[:50])
    assert (teachers.classes_[votes.argmax(axis=1)] == y[:50]).all()
    assert (teachers.classes_[teachers.ask(X[:50], np.tile([3, 17], (50, 1)))] == y[:50, None]).all()


def nothing_said() -> AbstractContextManager[Any]:
    """Pytest makes errors of warnings."""
    return nullcontext()


def order_said() -> AbstractContextManager[Any]:
    return pytest.warns(rt.ClassOrderWarning, match="label 1 of a concept is 'yes', although 'no' was named last")


EVERLASTING: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "answers": 50, "unsafe_seed": 0}


def test_the_label_1_of_a_concept_is_the_larger_class() -> None:
    X = np.linspace(0, 1, 2_000)[:, None]
    y = np.where(X[:, 0] < 0.3, "yes", "no")
    for order, said in ((("no", "yes"), nothing_said), (("yes", "no"), order_said)):
        with said():
            teachers = rt.Teachers(Thresholds(), shards=20, classes=order).fit(X, y)
        assert teachers.votes([[0.1], [0.9]]).tolist() == [[0, 20], [20, 0]]
        with said():
            predictor = rt.PrivatePredictor(Thresholds(), epsilon=4, unsafe_seed=0, queries=2, classes=order).fit(X, y)
        assert predictor.predict([[0.1], [0.9]]).tolist() == ["yes", "no"]
        with said():
            rt.EverlastingPredictor(Thresholds(), **EVERLASTING, classes=order).fit(X, y)


@pytest.mark.parametrize(
    "learner", [Thresholds(both_orientations=True), Halfspaces(1), DecisionTreeClassifier()], ids=str
)
def test_what_labels_both_ways_does_not_warn_of_the_order(learner: Any) -> None:
    """With it, the order does not matter: whichever class lies below is learned."""
    X = np.linspace(0, 1, 2_000)[:, None]
    y = np.where(X[:, 0] < 0.3, "no", "yes")
    for order in (("no", "yes"), ("yes", "no")):
        with nothing_said():
            teachers = rt.Teachers(learner, shards=20, classes=order).fit(X, y)
        assert teachers.votes([[0.1], [0.9]]).tolist() == [[20, 0], [0, 20]]


@pytest.mark.parametrize("classes", ["public", {"yes", "no"}, np.array(["no", "yes"])], ids=["public", "set", "array"])
def test_classes_in_no_order_or_in_sorted_order_give_no_warning(classes: Any) -> None:
    X = np.linspace(0, 1, 2_000)[:, None]
    with nothing_said():
        rt.Teachers(Thresholds(), shards=20, classes=classes).fit(X, np.where(X[:, 0] < 0.3, "yes", "no"))


def test_rows_that_were_read_before_name_classes_in_order() -> None:
    """Their codes are places among the classes: another order would relabel them."""
    X, codes = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="classes must be in ascending order"):
        rt.Teachers(shards=1).fit_rows(X, codes, classes=("yes", "no"))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("b", "a"), ["a", "b"]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (np.array(["b", "a"], dtype=object), ["a", "b"]),
        (np.array([2, 1], dtype=object), [1, 2]),
        ([True, False], [False, True]),
        ([True, 3, 0], [0, 1, 3]),
        ([2.5, 1], [1.0, 2.5]),
        ((b"b", b"a"), [b"a", b"b"]),
        ([Decimal(2), Decimal(1)], [Decimal(1), Decimal(2)]),
        (("10", "9", "é", "a"), ["10", "9", "a", "é"]),
        ({"no": 0, "yes": 1}.keys(), ["no", "yes"]),
    ],
)
def test_classes_are_sorted_as_numpy_sorts_labels(given: Any, found: list[Any]) -> None:
    assert sorted_classes(given).tolist() == found == np.unique(np.array(list(given))).tolist()


BAD = [
    ((1, "a"), TypeError, "all strings or all numbers"),
    ((b"a", "a"), TypeError, "all strings or all numbers"),
    ((None, 1), TypeError, "cannot be sorted"),
    ((1j, None), TypeError, "cannot be sorted"),
    ((float("nan"), 1.0), ValueError, "NaN"),
    ((float("inf"), 1.0), ValueError, "NaN or inf"),
    ((np.datetime64("NaT"), np.datetime64("2020-01-01")), ValueError, "NaN"),
    ((Decimal("nan"), Decimal(1)), (TypeError, ValueError), "classes must"),
    (([1, 2], [3]), ValueError, "sequence of labels"),
    ((True, 1), ValueError, "at least 2 different labels"),
    (("a",), ValueError, "at least 2 different labels"),
    ((one for one in ("a", "b")), TypeError, "sequence"),
    (3, TypeError, "sequence"),
]


@pytest.mark.parametrize(("classes", "error", "match"), BAD, ids=[str(place) for place in range(len(BAD))])
@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_sorted_is_refused_before_data_are_read(name: str, classes: Any, error: Any, match: str) -> None:
    class Untouched:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("the data were touched")

        def __getitem__(self, place: Any) -> Any:
            return self

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("the data were touched")

    with pytest.raises(error, match=match):
        fitted(made(name, classes=classes), Untouched(), Untouched())  # type: ignore[arg-type]


def test_a_saved_state_of_an_earlier_version_keeps_its_order(tmp_path: Path) -> None:
    """Codes in a state, a store and a backup are places among its own classes: another order would relabel them."""
    X, y = data(["no", "yes"])
    model = made("EverlastingPredictor", classes=("no", "yes")).fit(X, y)
    model.classes_ = model.classes_[::-1]  # as an earlier version had them, for classes=("yes", "no")
    model.save(tmp_path / "state")
    loaded = rt.EverlastingPredictor.load(tmp_path / "state")
    assert loaded.classes_.tolist() == ["yes", "no"]
    codes = loaded.answer(X[:50]).class_indices
    assert (loaded.classes_[codes] != y[:50]).mean() > 0.9  # by the order that was stored, whatever it should be
    assert (loaded.predict(X[:50]) != y[:50]).mean() > 0.9


def test_saved_teachers_of_an_earlier_version_keep_their_order() -> None:
    """Their columns were in the order that the caller gave; the labels must not change."""
    X, y = data(["no", "yes"], rows=1_000)
    teachers = rt.Teachers(shards=10, classes=("no", "yes")).fit(X, y)
    header, arrays = teachers_saving.to_arrays(teachers)
    older = arrays | {"classes": np.array(["yes", "no"]), "weights": -arrays["weights"], "bias": -arrays["bias"]}
    loaded = teachers_saving.from_arrays(header, older, None)
    assert loaded.classes_.tolist() == ["yes", "no"]
    assert (loaded.votes(X)[:, ::-1] == teachers.votes(X)).all()
