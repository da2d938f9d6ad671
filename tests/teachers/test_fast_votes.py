"""The fast ways to train teachers and to count votes agree with the slow one: a copy a shard, asked one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts.domains import Datetimes, Floats
from reticent.concepts.thresholds import Thresholds
from reticent.data.tables import dense
from reticent.teachers import LogisticTeacher, Teachers, linear
from reticent.teachers.linear_voters import LinearVoters
from reticent.teachers.models import ModelVoters
from reticent.teachers.thresholds import ConceptTeacher, ThresholdVoters
from reticent.teachers.trees import TreeVoters

Array = NDArray[Any]


class SlowLogistic(LogisticRegression):  # type: ignore[misc]
    """The same, but of a type for which no fast way is known."""


class SlowTeacher(LogisticTeacher):
    """The same, but of a type for which no fast way is known."""


class SlowRidge(RidgeClassifier):  # type: ignore[misc]
    """The same, but of a type for which no fast way is known."""


class SlowGradient(SGDClassifier):  # type: ignore[misc]
    """The same, but of a type for which no fast way is known."""


class SlowVectors(LinearSVC):  # type: ignore[misc]
    """The same, but of a type for which no fast way is known."""


class SlowTree(DecisionTreeClassifier):  # type: ignore[misc]
    """The same, but of a type for which no fast way is known."""


def data(rows: int, columns: int, classes: int = 2, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, columns)) + 0.5
    scores = X @ np.sin(np.arange(columns) + 1) / np.sqrt(columns) + generator.normal(size=rows) / 3
    return X, np.digitize(scores, np.quantile(scores, np.arange(1, classes) / classes))


def disagreement(fast: Teachers, slow: Teachers, queries: Any) -> float:
    """The share of votes that differ."""
    shift = fast.votes(queries) - slow.votes(queries)
    return float(np.abs(shift).sum() / 2 / queries.shape[0] / fast.n_teachers_)


@pytest.mark.parametrize("shape", [(20, 5), (10, 30)], ids=["primal", "dual"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("options", [{}, {"C": 30}, {"fit_intercept": False}], ids=str)
def test_logistic_regression_finds_the_minimum_that_scikit_learn_finds(
    shape: tuple[int, int], kind: str, options: dict[str, Any]
) -> None:
    X, y = data(shape[0] * 12, shape[1])
    X[:, 1:3] *= np.abs(X[:, 1:3]) > 0.7
    rows = X if kind == "dense" else sparse.csr_matrix(X)
    asked = {"tol": 1e-9, "solver": "newton-cholesky" if kind == "dense" else "newton-cg"} | options
    fast = Teachers(LogisticRegression(**asked), shards=12, classes=(0, 1)).fit(rows, y)
    slow = Teachers(SlowLogistic(**asked), shards=12, classes=(0, 1)).fit(rows, y)
    voters, peers = fast._voters, slow._voters
    assert isinstance(voters, LinearVoters)
    assert isinstance(peers, ModelVoters)
    weights = dense(voters.weights)
    for place, model in enumerate(peers.models):
        assert np.allclose(weights[place], model.coef_[0], atol=2e-5)
        assert np.allclose(voters.bias[place], model.intercept_, atol=2e-5)
    queries = data(500, shape[1], seed=5)[0]
    for asks in (queries, sparse.csr_matrix(queries)):
        assert disagreement(fast, slow, asks) < 1e-3


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("columns", [4, 40])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_default_is_the_teacher_alone(classes: int, columns: int, kind: str) -> None:
    X, y = data(400, columns, classes)
    rows = X if kind == "dense" else sparse.csr_matrix(X)
    fast = Teachers(shards=20, classes=range(classes)).fit(rows, y)
    slow = Teachers(SlowTeacher(), shards=20, classes=range(classes)).fit(rows, y)
    assert disagreement(fast, slow, data(500, columns, seed=5)[0]) < 1e-3


@pytest.mark.parametrize("last", [LogisticRegression(C=5, tol=1e-9), LogisticTeacher()])
@pytest.mark.parametrize("columns", [4, 40])
def test_teachers_that_scale_their_own_rows(last: Any, columns: int) -> None:
    X, y = data(403, columns)
    X = X * np.logspace(0, 6, columns) + 1e3
    X[:, 2] = 7.0
    fast = Teachers(make_pipeline(StandardScaler(), last), shards=20, classes=(0, 1)).fit(X, y)
    slow = Teachers(Pipeline([("a", StandardScaler()), ("b", "passthrough"), ("c", last)]), shards=20, classes=(0, 1))
    assert isinstance(fast._voters, LinearVoters)
    assert isinstance(slow.fit(X, y)._voters, ModelVoters)
    assert disagreement(fast, slow, data(500, columns, seed=5)[0] * np.logspace(0, 6, columns) + 1e3) < 1e-3


@pytest.mark.parametrize(
    ("quick", "slow"),
    [
        (RidgeClassifier(), SlowRidge()),
        (SGDClassifier(random_state=1), SlowGradient(random_state=1)),
        (LinearSVC(random_state=1), SlowVectors(random_state=1)),
        (LogisticRegression(class_weight="balanced"), SlowLogistic(class_weight="balanced")),
    ],
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 2), (2, 0, 1)])
def test_linear_models_of_other_kinds_vote_by_one_product(quick: Any, slow: Any, order: tuple[int, ...]) -> None:
    X, y = data(300, 4, len(order))
    fast, peers = (Teachers(one, shards=15, classes=order).fit(X, y) for one in (quick, slow))
    assert isinstance(fast._voters, LinearVoters)
    assert isinstance(peers._voters, ModelVoters)
    assert disagreement(fast, peers, data(500, 4, seed=5)[0]) < 1e-3


@pytest.mark.parametrize("depth", [1, 2, None])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 0, 1)])
@pytest.mark.parametrize("kind", ["dense", "sparse", "missing"])
def test_flattened_trees_vote_as_the_trees_do(depth: int | None, order: tuple[int, ...], kind: str) -> None:
    X, y = data(600, 3, len(order))
    queries = np.vstack([data(200, 3, seed=5)[0], X[:50]])  # on the rows themselves, cuts are near
    X, queries = np.round(X, 1), np.round(queries, 1)
    if kind == "missing":
        X[::7, 1] = queries[::5, 1] = np.nan
    convert = sparse.csr_matrix if kind == "sparse" else np.asarray
    options = {"max_depth": depth, "random_state": 3}
    fast = Teachers(DecisionTreeClassifier(**options), shards=30, classes=order).fit(convert(X), y)
    slow = Teachers(SlowTree(**options), shards=30, classes=order).fit(convert(X), y)
    assert isinstance(fast._voters, TreeVoters)
    assert isinstance(slow._voters, ModelVoters)
    assert np.array_equal(fast.votes(convert(queries)), slow.votes(convert(queries)))


@pytest.mark.filterwarnings("ignore::reticent.errors.ClassOrderWarning")
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["whole", "floats", "datetimes"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("seed", range(5))
def test_thresholds_of_all_shards_are_those_of_each(both: bool, kind: str, order: tuple[int, int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    X: Array = generator.integers(0, 12, size=(83, 1))
    y = ((X[:, 0] < generator.integers(3, 9)) ^ (generator.random(83) < 0.3) ^ (seed % 2 == 1)).astype(int)
    queries: Array = np.arange(-1, 14)[:, None]
    domain: Any = None
    if kind == "floats":
        X, queries, domain = X / 3, np.sort(np.vstack([queries / 3, np.nextafter(queries / 3, 9)]), axis=0), Floats()
    elif kind == "datetimes":
        X, queries, domain = X.astype("datetime64[D]"), queries.astype("datetime64[D]"), Datetimes("D")
    concepts = Thresholds(domain=domain, both_orientations=both)
    fast = Teachers(concepts, shards=9, classes=order).fit(X, y)
    assert isinstance(fast._voters, ThresholdVoters)
    slow = Teachers(ConceptTeacher(concepts, np.sort(order)), shards=9, classes=order).fit(X, y)
    assert isinstance(slow._voters, ModelVoters)
    assert np.array_equal(fast.votes(queries), slow.votes(queries))


def test_thresholds_on_whole_numbers_wider_than_the_machines() -> None:
    X = np.array([2**100 * value for value in range(40)], dtype=object)[:, None]
    y = np.arange(40) < 25
    teachers = Teachers(Thresholds(bits=128), shards=4, classes=(0, 1)).fit(X, y)
    assert teachers.votes(np.array([[0], [2**106]], dtype=object)).tolist() == [[0, 4], [4, 0]]
    edges = np.array([[np.iinfo(np.int64).max], [np.iinfo(np.int64).min]] * 4)
    constant = Teachers(Thresholds(), shards=2, classes=(0, 1)).fit(edges, [1, 0] * 4)
    assert constant.votes(edges[:1]).tolist() == [[1, 1]]


@pytest.mark.parametrize("estimator", [None, DecisionTreeClassifier(), SlowTree(), Thresholds()])
def test_asking_everyone_is_counting(estimator: Any) -> None:
    X, y = data(100, 1)
    teachers = Teachers(estimator, shards=7, classes=(0, 1)).fit(X, y)
    queries = data(30, 1, seed=4)[0]
    said = teachers.ask(queries, np.tile(np.arange(7), (30, 1)))
    assert np.array_equal(said.sum(axis=1), teachers.votes(queries)[:, 1])
    few = np.random.default_rng(1).integers(7, size=(30, 3))
    assert np.array_equal(teachers.ask(queries, few), np.take_along_axis(said, few, axis=1))


# ── numbers at the edge ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_score_of_zero_is_a_vote_for_the_first_class() -> None:
    voters = LinearVoters(np.zeros((3, 2)), np.zeros(3), teachers=3, classes=2)
    assert voters.count(np.ones((2, 2))).tolist() == [[3, 0], [3, 0]]
    several = LinearVoters(np.zeros((6, 2)), np.repeat([0.0, 1.0, 1.0], 2), teachers=2, classes=3)
    assert several.count(np.ones((1, 2))).tolist() == [[0, 2, 0]]


def test_scores_that_overflow_are_counted_in_double_precision_and_never_lost() -> None:
    voters = LinearVoters(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([1.0, 1.0]), teachers=2, classes=2)
    assert voters.count(np.array([[1e300, 1e300], [1e300, 1e299], [1e7, 1e7 - 3]])).tolist() == [[0, 2], [1, 1], [1, 1]]
    broken = LinearVoters(np.full((4, 1), 1e308), np.zeros(4), teachers=4, classes=2)
    assert broken.count(np.array([[1e300], [-1e300]])).sum(axis=1).tolist() == [4, 4]


def test_the_votes_on_a_query_do_not_depend_on_its_company() -> None:
    X, y = data(2000, 6)
    teachers = Teachers(LogisticRegression(), shards=40, classes=(0, 1)).fit(X, y)
    queries = data(64, 6, seed=4)[0]
    votes = teachers.votes(queries)
    for other in (1e300, -5.0, 0.0):
        company = np.where(np.arange(64)[:, None] % 2, queries, other)
        assert np.array_equal(teachers.votes(company)[1::2], votes[1::2])


def test_votes_of_more_teachers_than_fit_into_a_byte() -> None:
    voters = LinearVoters(np.ones((1000, 1)), np.linspace(-1, 1, 1000), teachers=1000, classes=2)
    assert voters.count(np.array([[2.0], [0.0], [-2.0]])).tolist() == [[0, 1000], [500, 500], [1000, 0]]


def test_a_system_without_a_solution_does_not_keep_others_from_theirs() -> None:
    systems = np.array([np.eye(2), np.zeros((2, 2)), 2 * np.eye(2)])
    solved = linear._solve(systems, np.ones((3, 2)))
    assert solved[[0, 2]].tolist() == [[1, 1], [0.5, 0.5]]
    assert np.isnan(solved[1]).all()


def test_steps_are_shortened_where_a_full_one_leads_uphill() -> None:
    generator = np.random.default_rng(2)
    X = generator.standard_cauchy(size=(400, 3)) * 100
    y = (X[:, 0] > 0) ^ (generator.random(400) < 0.1)
    asked = {"C": 1e4, "tol": 1e-10, "max_iter": 100_000}
    fast = Teachers(LogisticRegression(**asked), shards=8, classes=(0, 1)).fit(X, y)
    slow = Teachers(SlowLogistic(solver="newton-cholesky", **asked), shards=8, classes=(0, 1)).fit(X, y)
    assert disagreement(fast, slow, generator.normal(size=(400, 3)) * 100) < 1e-2


@pytest.mark.parametrize("kind", [int, float])
def test_thresholds_stand_in_the_middle_of_the_gap(kind: type) -> None:
    x: NDArray[Any] = np.array([[2], [10]]).astype(kind)
    y = np.array([1, 0])
    questions: NDArray[Any] = np.array([[-9], [2], [5], [7], [10]]).astype(kind)
    thresholds = Thresholds() if kind is int else Thresholds(domain=Floats())
    votes = Teachers(thresholds, shards=1, classes=[0, 1]).fit(x, y).votes(questions)
    assert votes[:, 1].tolist() == [1, 1, 1, 0, 0]
    assert ConceptTeacher(thresholds, [0, 1]).fit(x, y).predict(questions).tolist() == [1, 1, 1, 0, 0]
    lowest = np.array([[-np.finfo(float).max], [1.0]])
    Teachers(Thresholds(domain=Floats()), shards=2, classes=[0, 1]).fit(lowest, y)  # no rank below the least float
