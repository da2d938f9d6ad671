"""What teachers take and what they refuse; one class, failures, frames."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from reticent.concepts.thresholds import Thresholds
from reticent.teachers import LogisticTeacher, Teachers

Array = NDArray[Any]

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X.sum(axis=1) > 0).astype(int)


class Fragile(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fails where its rows hold a large number: to learn, or to answer."""

    def __init__(self, when: str = "fit", error: type[BaseException] = RuntimeError) -> None:
        self.when = when
        self.error = error

    def fit(self, X: Array, y: Array) -> Fragile:
        self.large_ = bool((np.abs(X) > 100).any())
        self.classes_ = np.unique(y)
        if self.large_ and self.when == "fit":
            raise self.error(f"secret row: {X[0]}")
        return self

    def predict(self, X: Array) -> Array:
        if self.large_ and self.when == "predict":
            raise self.error("secret")
        if self.large_ and self.when == "nonsense":
            return np.full(len(X), 17)
        return np.full(len(X), self.classes_[-1])


# ── what goes wrong with one teacher ──────────────────────────────────────────────────────────────────────────────


class Odd(BaseException):
    """No exception of the usual kind."""


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, GeneratorExit, Odd])
@pytest.mark.parametrize("when", ["fit", "predict", "nonsense"])
def test_a_teacher_that_fails_votes_for_the_first_class_and_only_the_log_knows(
    when: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    rows = X.copy()
    rows[[7, 13]] = 1000
    log = logging.getLogger("reticent.teachers")
    log.addHandler(caplog.handler)  # as a data holder does; no other logger sees what it says
    try:
        teachers = Teachers(Fragile(when, error), shards=6, classes=(0, 1)).fit(rows, Y)
        assert teachers.votes(X[:2]).tolist() == [[1, 5], [1, 5]]
    finally:
        log.removeHandler(caplog.handler)
    assert teachers.ask(X[:1], [[0, 1, 1]]).tolist() == [[1, 0, 0]]
    reports = [record.getMessage() for record in caplog.records]
    if when == "nonsense":
        assert reports == []
    else:
        assert len(reports) == 1
        assert "1 of 6 teachers failed" in reports[0]
        assert error.__name__ in reports[0]
        assert "secret" not in reports[0]


@pytest.mark.parametrize("when", ["fit", "predict"])
def test_who_interrupts_is_heard_and_told_nothing(when: str) -> None:
    rows = X.copy()
    rows[7] = 1000
    with pytest.raises(KeyboardInterrupt) as interrupt:
        Teachers(Fragile(when, KeyboardInterrupt), shards=6, classes=(0, 1)).fit(rows, Y).votes(X[:1])
    assert interrupt.value.args == ()
    assert interrupt.value.__suppress_context__


def test_neighbours_too_many_for_a_shard_are_a_failure_to_answer() -> None:
    teachers = Teachers(KNeighborsClassifier(50), shards=6, classes=(0, 1)).fit(X, Y)
    assert teachers.votes(X[:1]).tolist() == [[6, 0]]


@pytest.mark.parametrize(
    "estimator",
    [None, LogisticRegression(), DecisionTreeClassifier(), GaussianNB(), make_pipeline(StandardScaler(), GaussianNB())],
)
@pytest.mark.parametrize("classes", [(0, 1), (1, 0), (0, 1, 2)])
def test_a_shard_with_one_class_votes_for_it(estimator: Any, classes: tuple[int, ...]) -> None:
    labels = Y.copy()
    labels[2::6] = 1
    labels[3::6] = 0
    teachers = Teachers(estimator, shards=6, classes=classes).fit(X, labels)
    said = teachers.ask(X, np.tile([2, 3], (60, 1)))
    assert (teachers.classes_[said] == [1, 0]).all()
    alone = Teachers(estimator, shards=6, classes=classes).fit(X, np.ones(60, dtype=int))
    assert (alone.votes(X)[:, sorted(classes).index(1)] == 6).all()


def test_thresholds_with_one_class_vote_for_it() -> None:
    teachers = Teachers(Thresholds(), shards=3, classes=("no", "yes")).fit(np.arange(9)[:, None], ["no"] * 9)
    assert teachers.votes([[-100], [100]]).tolist() == [[3, 0], [3, 0]]


def test_no_votes_for_a_class_that_a_shard_never_saw() -> None:
    labels = np.where(np.arange(60) % 6 == 0, 2 * Y, Y)
    teachers = Teachers(shards=6, classes=(0, 1, 2)).fit(X, labels)
    said = teachers.ask(X, np.tile(np.arange(6), (60, 1)))
    assert set(said[:, 0].tolist()) == {0, 2}
    assert set(said[:, 1:].ravel().tolist()) == {0, 1}


# ── frames, sparse matrices, strings ──────────────────────────────────────────────────────────────────────────────


class Frame:
    """A frame in the manner of polars: rows are taken by indexing."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.shape = values.shape
        self.columns = [f"c{place}" for place in range(values.shape[1])]

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.asarray(self.values, dtype=dtype)

    def __getitem__(self, rows: Any) -> Any:
        return type(self)(self.values[rows])


class Located(Frame):
    """A frame in the manner of pandas: indexing takes columns, and `iloc` rows."""

    @property
    def iloc(self) -> Any:
        return Frame(self.values)

    def __getitem__(self, rows: Any) -> Any:
        raise KeyError(rows)


def frames() -> list[Any]:
    """Makers of frames: the two above, and the real ones where they are installed."""
    makers: list[Any] = [Frame, Located]
    for name in ("pandas", "polars"):
        if find_spec(name) is not None:
            makers.append(__import__(name).DataFrame)
    return makers


@pytest.mark.parametrize("make", frames())
@pytest.mark.parametrize("estimator", [None, LogisticRegression(), GaussianNB(), DecisionTreeClassifier()])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_frames_give_the_votes_of_arrays(make: Any, estimator: Any) -> None:
    plain = Teachers(estimator, shards=6, classes=(0, 1)).fit(X, Y)
    framed = Teachers(estimator, shards=6, classes=(0, 1)).fit(make(X), Y)
    assert np.array_equal(plain.votes(X), framed.votes(make(X)))


def test_strings_are_encoded_by_each_teacher() -> None:
    colours = np.array(["red", "green", "blue"], dtype=object)[np.arange(60) % 7 % 3][:, None]
    teacher = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    labels = np.where(colours[:, 0] == "red", "warm", "cold")
    teachers = Teachers(teacher, shards=4, classes=("warm", "cold")).fit(colours, labels)
    assert teachers.votes(np.array([["red"], ["green"]], dtype=object)).tolist() == [[0, 4], [4, 0]]


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_matrix"])
def test_sparse_matrices_of_every_form(form: str) -> None:
    dense = Teachers(shards=6, classes=(0, 1)).fit(X, Y)
    rows = getattr(sparse, form)(X)
    thin = Teachers(shards=6, classes=(0, 1)).fit(rows, Y)
    assert np.array_equal(dense.votes(X), thin.votes(rows))


def test_missing_numbers_are_taken_where_the_teachers_take_them() -> None:
    rows = X.copy()
    rows[3, 1] = np.nan
    for estimator in (DecisionTreeClassifier(), make_pipeline(StandardScaler(), SimpleImputer(), LogisticRegression())):
        assert Teachers(estimator, shards=6, classes=(0, 1)).fit(rows, Y).votes(rows).sum() == 360
    for estimator in (None, GaussianNB(), make_pipeline(StandardScaler(), LogisticRegression()), Thresholds()):
        columns = slice(1, 2) if isinstance(estimator, Thresholds) else slice(None)
        with pytest.raises(ValueError, match="X must be finite: it holds NaN or inf"):
            Teachers(estimator, shards=6, classes=(0, 1)).fit(rows[:, columns], Y)


def test_no_queries_have_no_votes() -> None:
    assert Teachers(shards=6, classes=(0, 1)).fit(X, Y).votes(np.zeros((0, 3))).shape == (0, 2)


def test_threads_and_processes_give_the_same_votes() -> None:
    alone = Teachers(GaussianNB(), shards=6, classes=(0, 1)).fit(X, Y)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        threads = Teachers(GaussianNB(), shards=6, classes=(0, 1)).fit(X, Y).votes(X)
    assert np.array_equal(alone.votes(X), threads)


# ── refused, before any teacher is trained ────────────────────────────────────────────────────────────────────────


class Untrained(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Must never be fitted."""

    def fit(self, X: Array, y: Array) -> Any:
        raise AssertionError("trained")

    def predict(self, X: Array) -> Array:
        raise AssertionError("asked")


SECRET = 987654

BAD: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ({"shards": 0}, {}, ValueError, "shards must be at least 1, got 0"),
    ({"shards": 2.5}, {}, TypeError, "shards must be a whole number of at least 1, got 2.5"),
    ({"shards": "many"}, {}, TypeError, "shards must be a whole number of at least 1, got 'many'"),
    ({"shards": np.full(60, SECRET)}, {}, TypeError, "shards must be a whole number of at least 1, got ndarray"),
    ({"n_jobs": "a"}, {}, TypeError, "n_jobs must be a whole number or an Executor, got 'a'"),
    ({"n_jobs": 0}, {}, ValueError, "n_jobs must be None, 1 or more, or below 0"),
    ({}, {"X": X[:0], "y": Y[:0]}, ValueError, "X must have at least one row, got 0"),
    ({}, {"X": X[:0], "y": Y[:0], "groups": Y[:0]}, ValueError, "X must have at least one row, got 0"),
    ({"shards": 61}, {}, ValueError, "shards=61 is more than there are rows: with 60 rows at most 60"),
    ({}, {"groups": np.arange(60) % 5}, ValueError, "shards=6 is more than there are groups"),
    (
        {},
        {"groups": np.where(np.arange(60) < 21, SECRET, np.arange(60))},
        ValueError,
        r"groups must have at most 20 rows each.*the largest has 21: cap the rows of a group at 20, or take at most 5",
    ),
    ({}, {"groups": [1, 2, 3]}, ValueError, "groups must have one value per row"),
    ({}, {"groups": np.where(np.arange(60) < 3, np.nan, np.arange(60))}, ValueError, "groups must name the group"),
    ({}, {"groups": np.array([None, "a"] * 30, dtype=object)}, ValueError, "groups must name the group of every row"),
    ({}, {"groups": np.array([7, "a"] * 30, dtype=object)}, TypeError, "groups must be all numbers or all strings"),
    ({"classes": None}, {}, ValueError, 'set classes="public"'),
    ({"classes": "all"}, {}, ValueError, 'classes must be a sequence of classes or "public"'),
    ({"classes": 2}, {}, TypeError, 'classes must be a sequence of classes or "public", got int'),
    ({"classes": (0,)}, {}, ValueError, r"classes must be at least 2 different labels, got \(0,\)"),
    ({"classes": (0, 0)}, {}, ValueError, r"classes must be at least 2 different labels, got \(0, 0\)"),
    ({"classes": [SECRET, 1, 1]}, {}, ValueError, "at least 2 different labels, got 3, of which 2 differ"),
    ({"classes": [[0, 1], [2, 3]]}, {}, ValueError, "classes must be a sequence of labels, got one of 2 dimensions"),
    ({"classes": (0, "a")}, {}, TypeError, "all strings or all numbers"),
    ({"classes": (0.0, np.nan)}, {}, ValueError, "must not hold NaN"),
    ({"classes": "public"}, {"y": np.zeros(60)}, ValueError, "at least 2 different"),
    ({"classes": "public"}, {"y": X[:, 0]}, ValueError, "Unknown label type: continuous"),
    ({"classes": "public"}, {"y": np.where(Y, np.nan, 1)}, ValueError, "y must hold labels only"),
    ({}, {"y": np.where(np.arange(60) == 3, SECRET, Y)}, ValueError, "it holds another label"),
    ({}, {"y": np.where(np.arange(60) == 3, 0.5, Y)}, ValueError, "it holds another label"),
    ({}, {"y": np.where(np.arange(60) == 3, np.nan, Y)}, ValueError, "it holds another label"),
    ({}, {"y": Y.astype(str)}, ValueError, "it holds another label"),
    ({}, {"y": np.array([0.5, 1] * 30, dtype=object)}, ValueError, "it holds another label"),
    ({}, {"y": [[0]] * 59}, ValueError, "y must have one value per row"),
    ({}, {"y": None}, ValueError, "y must have one value per row"),
    ({}, {"X": X[:, 0]}, ValueError, "X must have two dimensions, rows and columns, got 1$"),
    ({}, {"X": [f"word {SECRET}"] * 60}, ValueError, r"got 1\. Texts make one column.*ColumnTransformer"),
    ({}, {"X": X[:, :0]}, ValueError, "at least one column"),
    ({}, {"X": [[1], [1, 2]]}, ValueError, "rows of equal length"),
    ({}, {"X": X + 1j}, TypeError, "complex"),
    ({}, {"X": np.ma.masked_array(X, X > 0)}, TypeError, "masked"),
    ({}, {"X": np.where(X > 2, np.inf, X)}, ValueError, "X must be finite"),
    ({}, {"X": np.array([[None, 1, "a"]] * 60, dtype=object)}, ValueError, "X must be finite"),
    ({}, {"X": sparse.csr_matrix(np.where(X > 2, np.nan, X))}, ValueError, "X must be finite"),
    ({"estimator": None}, {"X": np.array([["a", "b", "c"]] * 60)}, TypeError, "X must hold numbers only"),
    ({"estimator": Thresholds()}, {"X": X}, ValueError, "single column"),
    ({"estimator": Thresholds(), "classes": (0, 1, 2)}, {"X": X[:, :1]}, ValueError, "classes must be 2"),
    ({"estimator": Thresholds()}, {"X": sparse.csr_matrix(X[:, :1])}, TypeError, "dense"),
    ({"estimator": LinearRegression()}, {}, TypeError, "estimator must be a classifier"),
    ({"estimator": LogisticRegression}, {}, TypeError, "estimator must be None, a scikit-learn classifier"),
    ({"estimator": "forest"}, {}, TypeError, "got str"),
    ({"estimator": LogisticTeacher(ridge=0)}, {}, ValueError, "ridge must be positive"),
    ({"estimator": LogisticTeacher(steps=0)}, {}, ValueError, "steps must be at least 1"),
    ({"random_state": -1}, {}, ValueError, "random_state must be at least 0"),
]


@pytest.mark.parametrize(("options", "arguments", "kind", "message"), BAD, ids=[bad[3][:40] for bad in BAD])
def test_bad_input_is_refused_before_training(
    options: dict[str, Any], arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"estimator": Untrained(), "shards": 6, "classes": (0, 1)} | options
    teachers = Teachers(**given)
    with pytest.raises(kind, match=message) as refusal:
        teachers.fit(**({"X": X, "y": Y} | arguments))
    assert str(SECRET) not in str(refusal.value)
    assert not hasattr(teachers, "classes_")


@pytest.mark.parametrize("queries", [X[:, :2], np.column_stack([X, X]), sparse.csr_matrix(X[:, :1])])
def test_queries_with_other_columns_are_refused(queries: Any) -> None:
    with pytest.raises(ValueError, match="features, but Teachers is expecting 3 features"):
        Teachers(shards=6, classes=(0, 1)).fit(X, Y).votes(queries)


def test_queries_that_cannot_be_answered_are_refused() -> None:
    teachers = Teachers(shards=6, classes=(0, 1)).fit(X, Y)
    with pytest.raises(ValueError, match="X must be finite"):
        teachers.votes([[0, np.nan, 0]])
    with pytest.raises(TypeError, match="X must hold numbers"):
        teachers.votes([["a", "b", "c"]])
    for named in ([[0.5]], [0], [[0], [1]]):
        with pytest.raises(ValueError, match="teachers must be whole numbers with a row"):
            teachers.ask([[0, 0, 0]], named)
    for number in (-1, 6):
        with pytest.raises(ValueError, match="teachers must be numbered from 0 to 5"):
            teachers.ask([[0, 0, 0]], [[number]])
    whole = Teachers(Thresholds(), shards=3, classes=(0, 1)).fit(np.arange(9)[:, None], np.arange(9) < 4)
    with pytest.raises(TypeError, match="the kind of numbers the teachers learned from"):
        whole.votes([[0.5]])


@pytest.mark.slow
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=5, unique=True), st.randoms())
def test_classes_ascend_whatever_order_they_are_given_in(classes: list[int], generator: Any) -> None:
    labels = [generator.choice(classes) for _ in range(60)]
    teachers = Teachers(DecisionTreeClassifier(), shards=5, classes=classes).fit(X, labels)
    assert teachers.classes_.tolist() == sorted(classes)
    votes = teachers.votes(X)
    assert votes.dtype == np.int64
    assert (votes.sum(axis=1) == 5).all()
    assert (votes[:, [place for place, one in enumerate(sorted(classes)) if one not in labels]] == 0).all()


def test_classes_declared_public_are_those_that_occur() -> None:
    assert Teachers(shards=6, classes="public").fit(X, np.where(Y, "b", "a")).classes_.tolist() == ["a", "b"]


def test_teachers_are_copied_as_estimators_are() -> None:
    teachers = Teachers(LogisticRegression(C=3), shards=6, classes=(0, 1))
    copy = clone(teachers).set_params(estimator__C=5, shards=3)
    assert copy.estimator.C == 5
    assert copy.fit(X, Y).n_teachers_ == 3
    assert teachers.estimator.C == 3


def test_the_logistic_teacher_is_a_classifier_of_scikit_learn() -> None:
    check_estimator(LogisticTeacher(), on_skip=None)
