"""What the labellers need of teachers: a replaced row, or group, changes what one teacher says, and no other."""

from __future__ import annotations

import copy
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts.thresholds import Thresholds
from reticent.data import tables
from reticent.data.groups import most_shards
from reticent.data.shards import Shards, deal
from reticent.data.tables import dense
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.teachers import PATEClassifier, Teachers, linear, models
from reticent.teachers.linear_voters import LinearVoters

Array = NDArray[Any]

SHARDS, ROWS, COLUMNS = 12, 240, 4

ESTIMATORS: dict[str, Any] = {
    "default": None,
    "logistic": LogisticRegression(),
    "logistic without intercept": LogisticRegression(fit_intercept=False, C=10),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "stochastic gradient": SGDClassifier(loss="log_loss", max_iter=5, tol=None),
    "stump": DecisionTreeClassifier(max_depth=1),
    "tree": DecisionTreeClassifier(max_features=2),
    "forest": RandomForestClassifier(3, max_depth=2),
    "naive": GaussianNB(),
}


def data(seed: int, classes: int = 2) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(ROWS, COLUMNS))
    scores = X @ np.arange(1, COLUMNS + 1) + generator.normal(size=ROWS)
    return X, np.digitize(scores, np.linspace(-3, 3, classes + 1)[1:-1])


def neighbours(X: Array, y: Array) -> list[tuple[int, Array, Array]]:
    """Data with one row replaced: by another label, by a row far away, or by a huge one."""
    found = []
    for row, factor in ((5, 1), (20, 1), (43, -3), (77, -20), (101, 0), (130, 1e3), (205, 1e7)):
        other, labels = X.copy(), y.copy()
        other[row], labels[row] = factor * X[row], (y[row] + 1) % (y.max() + 1)
        found.append((row, other, labels))
    return found


def says(teachers: Teachers, queries: Any) -> Array:
    """What every teacher says to every query."""
    voters: Any = teachers._voters
    if isinstance(voters, models.ModelVoters):  # `ask` would go through all pairs one by one
        answers = [
            np.full(len(queries), known) if model is None else models._answer(model, queries, voters.classes, [])
            for model, known in zip(voters.models, voters.constant, strict=True)
        ]
        return np.array(answers).T
    return teachers.ask(queries, np.tile(np.arange(teachers.n_teachers_), (queries.shape[0], 1)))


def bits(teachers: Teachers) -> Array | None:
    """The weights of linear teachers, a row a teacher: these must not move in the last bit."""
    voters: Any = teachers._voters
    if not isinstance(voters, LinearVoters):
        return None
    table = np.column_stack([dense(voters.weights), voters.bias])
    return np.hstack(np.split(table, voters.scored))


QUERIES = np.random.default_rng(9).normal(size=(300, COLUMNS)) * 2


def moved(first: Teachers, second: Teachers, queries: Any = QUERIES) -> set[int]:
    """The teachers that differ: in their weights, where they have some, else in what they say."""
    said = (says(first, queries) != says(second, queries)).any(axis=0)
    mine, theirs = bits(first), bits(second)
    if mine is not None and theirs is not None:
        said |= (mine != theirs).any(axis=1)
    return set(np.flatnonzero(said).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_replaced_row_moves_the_vote_of_its_teacher_only(name: str, classes: int) -> None:
    X, y = data(1, classes)
    teachers = Teachers(ESTIMATORS[name], shards=SHARDS, classes=range(classes))
    first, some = clone(teachers).fit(X, y), set[int]()
    for row, other, labels in neighbours(X, y)[::-1 if classes == 2 else 3]:
        second = clone(teachers).fit(other, labels)
        found = moved(first, second)
        assert found <= {row % SHARDS}
        some |= found
        shift = second.votes(QUERIES) - first.votes(QUERIES)
        assert (shift.sum(axis=1) == 0).all()
        assert np.abs(shift).sum(axis=1).max() <= 2
    assert some  # the test has power: some teachers did change their minds


@pytest.mark.parametrize("columns", [COLUMNS, 60])
def test_a_replaced_row_of_a_sparse_matrix_moves_one_vote(columns: int) -> None:
    generator = np.random.default_rng(3)
    X = sparse.random(ROWS, columns, density=0.3, format="csr", random_state=generator)
    y = (np.asarray(X.sum(axis=1)).ravel() > X.sum() / ROWS).astype(int)
    other = X.tolil()
    other[7] = 50
    teachers = Teachers(LogisticRegression(), shards=SHARDS, classes=(0, 1))
    labels = np.where(np.arange(ROWS) == 7, 1 - y, y)
    first, second = clone(teachers).fit(X, y), clone(teachers).fit(other.tocsr(), labels)
    assert moved(first, second, sparse.random(99, columns, density=0.3, format="csr", random_state=generator)) == {7}


def test_a_replaced_row_moves_one_threshold() -> None:
    X, y = np.arange(ROWS)[:, None] * 37 % 101, (np.arange(ROWS) * 37 % 101 < 50).astype(int)

    def fit(X: Array, y: Array) -> Teachers:
        return Teachers(Thresholds(bits=7, both_orientations=True), shards=SHARDS, classes=(0, 1)).fit(X, y)

    queries = np.arange(128)[:, None]
    labels = y.copy()
    labels[max(range(4, ROWS, SHARDS), key=lambda row: X[row, 0] * y[row])] = 0  # the last 1 below the threshold
    assert np.flatnonzero((says(fit(X, y), queries) != says(fit(X, labels), queries)).any(axis=0)).tolist() == [4]


def test_replaced_rows_of_a_group_move_one_vote() -> None:
    X, y = data(4)
    groups = np.random.default_rng(5).integers(30, size=ROWS)
    shard = deal(ROWS, SHARDS, groups)
    rows = np.flatnonzero(groups == 11)
    assert len(rows) > 3
    other, labels = X.copy(), y.copy()
    other[rows], labels[rows] = -30 * X[rows], 1 - y[rows]
    for estimator in (None, LogisticRegression(), GaussianNB()):
        teachers = Teachers(estimator, shards=SHARDS, classes=(0, 1))
        first, second = (clone(teachers).fit(*one, groups=groups) for one in ((X, y), (other, labels)))
        assert moved(first, second) == {int(shard[rows[0]])}
    ungrouped = moved(clone(teachers).fit(X, y), clone(teachers).fit(other, labels))
    assert len(ungrouped) > 1  # what is lost without groups


# ── the rule of dealing ───────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 40), st.data())
def test_no_group_is_in_two_shards_and_shards_have_like_numbers_of_groups(shards: int, draw: st.DataObject) -> None:
    names = draw.draw(st.lists(st.integers(-5, 100), min_size=shards, max_size=200))
    groups = np.array(names)
    if len(set(names)) < shards:
        with pytest.raises(ValueError, match="more than there are groups"):
            deal(len(groups), shards, groups)
        return
    if max(Counter(names).values()) > 2 * math.ceil(len(names) / shards):
        with pytest.raises(ValueError, match="groups must have at most"):
            deal(len(groups), shards, groups)
        return
    shard = deal(len(groups), shards, groups)
    homes = {name: set(shard[groups == name].tolist()) for name in set(names)}
    assert all(len(home) == 1 for home in homes.values())
    sizes = np.bincount([home.pop() for home in homes.values()], minlength=shards)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    # The names themselves play no part: other names for the same groups are dealt alike.
    assert deal(len(groups), shards, np.array([f"person {-name}" for name in names])).tolist() == shard.tolist()


@given(st.integers(1, 50), st.integers(0, 500))
def test_rows_are_dealt_evenly_by_place(shards: int, more: int) -> None:
    sizes = np.bincount(deal(shards + more, shards), minlength=shards)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data())
def test_a_group_larger_than_two_average_shards_is_refused_with_advice_that_helps(
    sizes: list[int], draw: st.DataObject
) -> None:
    shards = draw.draw(st.integers(1, len(sizes)))

    def fits(sizes: list[int], shards: int) -> bool:
        return max(sizes) <= 2 * math.ceil(sum(sizes) / shards)

    def numbers(text: str) -> list[int]:
        return [int(found) for found in re.findall(r"at (?:most )?(\d+)(?: rows each|, or| teachers)", text)]

    def capped(cap: int) -> list[int]:
        return [min(size, cap) for size in sizes]

    groups = np.repeat(np.arange(len(sizes)), sizes)
    if fits(sizes, shards):
        deal(len(groups), shards, groups)
        return
    with pytest.raises(ValueError, match=rf"the largest has {max(sizes)}: ") as refusal:
        deal(len(groups), shards, groups)
    limit, cap, fewer = numbers(str(refusal.value))
    assert limit < max(sizes)
    assert fewer == most_shards(np.array(sizes))
    assert fits(capped(cap), shards)
    assert not any(fits(capped(more), shards) for more in range(cap + 1, max(sizes)))
    assert fits(sizes, fewer)
    assert not fits(sizes, fewer + 1)


@pytest.mark.slow
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_the_most_shards_are_as_many_as_are_dealt_to_without_refusal(sizes: list[int]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)

    def dealt(shards: int) -> bool:
        try:
            deal(len(groups), shards, groups)
        except ValueError:
            return False
        return True

    assert most_shards(np.array(sizes)) == max(shards for shards in range(1, len(groups) + 1) if dealt(shards))


class Counted(GaussianNB):  # type: ignore[misc]
    """Counts how often any of its kind was fitted."""

    fits = 0

    def fit(self, X: Array, y: Array) -> Any:
        type(self).fits += 1
        return super().fit(X, y)


def test_a_group_that_is_too_large_for_pate_is_refused_before_anything_is_learned() -> None:
    X, y = data(6)
    person = np.where(np.arange(ROWS) < 50, "a secret name", np.arange(ROWS).astype(str))
    model = PATEClassifier(Counted(), GaussianNB(), epsilon=1, delta=1e-4, classes=(0, 1), n_teachers=10)
    with pytest.raises(ValueError, match=r"groups must have at most 48 rows each.*the largest has 50: cap") as refusal:
        model.fit(X, y, public=QUERIES, groups=person)
    assert "secret" not in str(refusal.value)
    assert Counted.fits == 0
    model.set_params(n_teachers=9).fit(X, y, public=QUERIES, groups=person)
    assert Counted.fits >= 9


# ── what a teacher writes into its rows, no other sees ────────────────────────────────────────────────────────────


def numbers(X: Any) -> Array:
    """The first number of each row."""
    if sparse.issparse(X):
        X = X.toarray()
    column: Array = np.asarray(X)[:, 0]
    return np.array([cell[0] for cell in column]) if column.dtype == object else column


def shift(X: Any, by: float) -> None:
    """Subtract a number from all others, in place."""
    if sparse.issparse(X):
        X.data -= by
    elif isinstance(X, pl.DataFrame):
        for place, column in enumerate(X.get_columns()):
            X.replace_column(place, column - by)
    elif isinstance(X, pd.DataFrame):
        X.loc[:, :] = X - by
    elif X.dtype == object:
        for cell in X.flat:
            cell[0] -= by
    else:
        X -= by


class InPlace(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Writes into whatever it is given, and what it writes tells of its private rows."""

    def fit(self, X: Any, y: Array) -> Any:
        self.mean_, self.classes_ = float(numbers(X).mean()), np.unique(y)
        shift(X, self.mean_)
        y[:] = 0
        return self

    def predict(self, X: Any) -> Array:
        shift(X, self.mean_)
        return (numbers(X) > 0).astype(int)


def objects(X: Array) -> Array:
    """A list in every cell; rows with the same number, in whatever shard, share it."""
    lists: dict[float, list[float]] = {}
    cells = np.empty(X.shape, dtype=object)
    for place, number in np.ndenumerate(X):
        cells[place] = lists.setdefault(round(float(number), 1), [round(float(number), 1)])
    return cells


def sealed(X: Array) -> Array:
    """As joblib hands large arrays to its workers: not to be written into."""
    X = X.copy()
    X.setflags(write=False)
    return X


def framed(X: Array) -> pd.DataFrame:
    return pd.DataFrame(X.copy(), columns=list("abcd"))


def in_polars(X: Array) -> pl.DataFrame:
    return pl.DataFrame(X.copy(), schema=list("abcd"))


WRITERS: dict[str, tuple[Callable[[Array], Any], Any]] = {
    "dense": (np.copy, InPlace()),
    "dense, scaled": (np.copy, make_pipeline(StandardScaler(copy=False), GaussianNB())),
    "sparse": (sparse.csr_matrix, InPlace()),
    "sparse, scaled": (sparse.csr_matrix, make_pipeline(MaxAbsScaler(copy=False), KNeighborsClassifier(1))),
    "pandas": (framed, InPlace()),
    "pandas, scaled": (framed, make_pipeline(StandardScaler(copy=False), GaussianNB())),
    "polars": (in_polars, InPlace()),
    "objects": (objects, InPlace()),
}
every_writer = pytest.mark.parametrize(("make", "writer"), WRITERS.values(), ids=WRITERS)
FEW = QUERIES[:25] / 4


def beside(X: Array) -> Array:
    """A row of the first shard replaced by a huge one."""
    other = X.copy()
    other[0] = 1e6
    return other


def votes_moved(make: Callable[[Array], Any], writer: Any) -> tuple[int, int]:
    """By how much a replaced row moves a count of `votes`, and how many teachers `ask` finds changed; the most."""
    X, y = data(1)
    everyone = np.tile(np.arange(SHARDS), (len(FEW), 1))
    teachers = [Teachers(writer, shards=SHARDS, classes=(0, 1)).fit(make(rows), y) for rows in (X, beside(X))]
    first, second = (one.votes(make(FEW)) for one in teachers)
    asked, again = (one.ask(make(FEW), everyone) for one in teachers)
    return int(np.abs(first - second).max()), int((asked != again).any(axis=0).sum())


@pytest.mark.slow
@every_writer
def test_a_replaced_row_moves_one_vote_where_teachers_work_in_place(make: Any, writer: Any) -> None:
    counts, changed = votes_moved(make, writer)
    assert counts <= 1
    assert changed <= 1


@pytest.mark.slow
@every_writer
def test_twin_that_shows_all_teachers_the_same_queries_moves_many(make: Any, writer: Any) -> None:
    with mock.patch.multiple(models, pack_rows=lambda rows: rows, unpack_rows=lambda rows: rows):
        counts, changed = votes_moved(make, writer)
    assert counts > 1
    assert changed > 1


def test_threads_and_tasks_of_several_teachers_have_copies_too() -> None:
    X, y = data(1)
    alone = Teachers(InPlace(), shards=SHARDS, classes=(0, 1)).fit(sealed(X), y)
    assert np.array_equal(alone.votes(sealed(FEW)), alone.votes(FEW))
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert np.array_equal(alone.votes(FEW), clone(alone).fit(X, y).votes(FEW))


@every_writer
def test_what_the_caller_gave_stays_as_it_was(make: Any, writer: Any) -> None:
    X, y = data(1)
    rows, labels, queries = make(X), y.copy(), make(FEW)
    teachers = Teachers(writer, shards=SHARDS, classes=(0, 1)).fit(rows, labels)
    teachers.votes(queries)
    teachers.ask(queries[:2], [[0, 1], [2, 3]])
    assert np.array_equal(labels, y)
    for used, fresh in ((rows, make(X)), (queries, make(FEW))):
        assert np.array_equal(numbers(used), numbers(fresh))


def test_twin_that_hands_out_cells_of_the_caller_is_told_apart() -> None:
    X, y = data(1)
    rows = objects(X)
    with mock.patch.multiple(models, pack_rows=lambda rows: rows, unpack_rows=lambda rows: rows):
        Teachers(InPlace(), shards=SHARDS, classes=(0, 1)).fit(rows, y)
    assert not np.array_equal(numbers(rows), numbers(objects(X)))


IN_PLACE: Pipeline = make_pipeline(StandardScaler(copy=False), GaussianNB())


def counted(method: str, work: Callable[..., Any], *given: Any, **named: Any) -> Array:
    """The votes that teachers gave during some work."""
    honest, found = getattr(Teachers, method), list[Array]()

    def record(*arguments: Any) -> Any:
        found.append(honest(*arguments))
        return found[-1]

    with mock.patch.object(Teachers, method, record):
        work(*given, **named)
    return np.concatenate(found)


def moved_in_pate() -> tuple[int, float]:
    """By how much a replaced row moves a count that the labeller sees, and how far it moves the public rows."""
    X, y = data(1)
    public = FEW.copy()
    model = PATEClassifier(
        IN_PLACE,
        GaussianNB(),
        epsilon=1,
        delta=1e-4,
        classes=(0, 1),
        n_teachers=SHARDS,
        queries="passive",
        keep_margins=True,
        unsafe_seed=0,
    )
    seen = [counted("votes", model.fit, rows, y, public=public) for rows in (X, beside(X))]
    return int(np.abs(seen[0] - seen[1]).max()), float(np.abs(public - FEW).max())


def moved_in_everlasting() -> tuple[int, int]:
    """By how much a replaced row moves a count that the labeller sees, and how many teachers change when asked."""
    X, y = (np.concatenate([part] * 3) for part in data(1))
    fitted = []
    for rows in (X, beside(X)):
        model = EverlastingPredictor(
            IN_PLACE, epsilon=50, delta=1e-4, classes=(0, 1), answers=100, rows_per_teacher=20, labeller="greedy"
        )
        fitted.append(model.fit(rows, y))
    seen = [counted("count_rows", model.predict, FEW.copy()) for model in fitted]
    engines: list[Any] = [model.engine_ for model in fitted]
    trained = [engine.teachers for engine in engines]
    everyone = np.tile(np.arange(trained[0].n_teachers_), (len(FEW), 1))
    asked = [one.ask_rows(FEW.copy(), everyone) for one in trained]
    return int(np.abs(seen[0] - seen[1]).max()), int((asked[0] != asked[1]).any(axis=0).sum())


@pytest.mark.slow
def test_a_replaced_row_moves_one_vote_that_a_labeller_sees() -> None:
    assert moved_in_pate() == (1, 0)
    assert moved_in_everlasting() == (1, 1)


@pytest.mark.slow
def test_twin_of_shared_queries_moves_many_votes_that_a_labeller_sees() -> None:
    with mock.patch.multiple(models, pack_rows=lambda rows: rows, unpack_rows=lambda rows: rows):
        counts, public = moved_in_pate()
        assert counts > 1
        assert public > 0  # and what the scalers learned would be in the rows that the student learns from
        assert min(moved_in_everlasting()) > 1


# ── what else two teachers could share ────────────────────────────────────────────────────────────────────────────


class Following(StandardScaler):  # type: ignore[misc]
    """Centres what it is shown by what it was shown before."""

    def transform(self, X: Array, copy: Any = None) -> Array:
        moved: Array = super().transform(X, copy=copy)
        self.mean_ = X.mean(axis=0)
        return moved


def searched() -> GridSearchCV:
    """Parts its rows by class, at random: how much it draws is told by the labels."""
    trees = DecisionTreeClassifier(random_state=0)
    return GridSearchCV(trees, {"max_depth": [1, 2, 3, 4]}, cv=StratifiedKFold(2, shuffle=True))


SHARED: dict[str, Any] = {
    "frozen": make_pipeline(FrozenEstimator(Following().fit(QUERIES)), GaussianNB()),
    "splitter": searched(),
}


def changed_by_a_shard(estimator: Any) -> set[int]:
    """The teachers that differ when half of the labels of the first shard become 0, and its first row is huge."""
    X, y = data(1)
    labels = y.copy()
    labels[:: 2 * SHARDS] = 0
    found = []
    for rows, some in ((X, y), (beside(X), labels)):
        np.random.seed(0)  # noqa: NPY002  # what scikit-learn draws from where it is given no seed
        found.append(Teachers(copy.deepcopy(estimator), shards=SHARDS, classes=(0, 1)).fit(rows, some))
    return moved(found[0], found[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_parameters_are_not_shared(name: str) -> None:
    assert changed_by_a_shard(SHARED[name]) <= {0}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_twin_that_only_clones_shares_parameters(name: str) -> None:
    with mock.patch.object(models, "seeded", lambda estimator, *seed: clone(estimator)):
        assert changed_by_a_shard(SHARED[name]) > {0}


def test_caches_are_left_out(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    inner = Pipeline([("scale", StandardScaler()), ("same", "passthrough")], memory=joblib.Memory(tmp_path / "inner"))
    outer = Pipeline([("inner", inner), ("bayes", GaussianNB())], memory=str(tmp_path / "outer"))
    Teachers(outer, shards=SHARDS, classes=(0, 1)).fit(*data(1)).votes(FEW)
    assert list(tmp_path.rglob("*.pkl")) == []
    assert capsys.readouterr().out == ""
    assert outer.memory is not None
    clone(outer).fit(*data(1))
    assert list(tmp_path.rglob("*.pkl"))  # so there was something to leave out


# ── twins: the same test rejects each of them ─────────────────────────────────────────────────────────────────────


def worst(fit: Callable[[Any, Array], Teachers]) -> int:
    """The most teachers that one replaced row moves."""
    X, y = data(1)
    first = fit(X, y)
    return max(len(moved(first, fit(other, labels))) for _, other, labels in neighbours(X, y))


def test_twin_that_scales_all_rows_together_moves_many() -> None:
    def fit(X: Array, y: Array) -> Teachers:
        return Teachers(LogisticRegression(), shards=SHARDS, classes=(0, 1)).fit(StandardScaler().fit_transform(X), y)

    assert worst(fit) > 1


def test_twin_that_deals_by_content_moves_many() -> None:
    def fit(X: Array, y: Array) -> Teachers:
        def by_order(rows: int, shards: int, groups: Any = None) -> Array:
            return np.argsort(np.argsort(X[:, 0])) % shards

        with mock.patch.object(Teachers, "_dealt", staticmethod(by_order)):
            return Teachers(shards=SHARDS, classes=(0, 1)).fit(X, y)

    assert worst(fit) > 1


def test_twin_that_stops_when_all_are_done_moves_many() -> None:
    """To go on until the slowest is done moves the weights of the others, if only in their last digits."""
    alone = linear._minimise

    def together(*shards: Array, steps: int, **how: Any) -> Array:
        with mock.patch.object(linear, "TOLERANCE", 0):
            found = alone(*shards, steps=1, **how)
            for count in range(2, steps):
                before, found = found, alone(*shards, steps=count, **how)
                if np.abs(found - before).max() < 1e-8:
                    break
        return found

    def fit(X: Array, y: Array) -> Teachers:
        return Teachers(LogisticRegression(), shards=SHARDS, classes=(0, 1)).fit(X, y)

    assert worst(fit) == 1
    with mock.patch.object(linear, "_minimise", together):
        assert worst(fit) > 1


def test_twin_that_draws_seeds_as_teachers_come_moves_many() -> None:
    class Greedy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """Draws as many numbers as its data say, from a generator that it shares unless it is given a seed."""

        shared = np.random.RandomState(0)

        def __init__(self, random_state: Any = None) -> None:
            self.random_state = random_state

        def fit(self, X: Array, y: Array) -> Any:
            generator = self.shared if self.random_state is None else np.random.RandomState(self.random_state)
            generator.normal(size=int(np.abs(X).max()))
            self.coef_ = generator.normal(size=X.shape[1])
            return self

        def predict(self, X: Array) -> Array:
            return (X @ self.coef_ > 0).astype(int)

    def fit(X: Array, y: Array) -> Teachers:
        Greedy.shared = np.random.RandomState(0)
        return Teachers(Greedy(), shards=SHARDS, classes=(0, 1)).fit(np.clip(X, -1000, 1000), y)

    assert worst(fit) == 1
    with mock.patch.object(models, "seeded", lambda estimator, *seed: clone(estimator)):
        assert worst(fit) > 1


def test_twin_that_pads_by_what_others_hold_is_told_apart() -> None:
    """Blocks are made by size alone; were shards of one class left out of them, others would be padded anew."""
    shards = Shards(np.zeros((6, 1)), np.array([0, 0, 1, 0, 1, 1]), deal(6, 3), 3, np.array([0, 1]))
    others = Shards(np.zeros((6, 1)), np.array([0, 0, 1, 1, 1, 1]), deal(6, 3), 3, np.array([0, 1]))
    assert shards.constant.tolist() != others.constant.tolist()
    assert [one.tolist() for one in shards.blocks(5)] == [one.tolist() for one in others.blocks(5)]


# ── a list declares no type ───────────────────────────────────────────────────────────────────────────────────────


def answers_of_neighbours_in_lists() -> tuple[list[Any], list[Any]]:
    """What a predictor learns of whole numbers in a list, and of the same list with one fraction in it."""
    whole: list[list[float]] = [[int(one)] for one in np.random.default_rng(1).integers(0, 1000, size=2000)]
    other = [list(row) for row in whole]
    other[17] = [17.5]
    labels = [int(row[0] < 500) for row in whole]
    queries = np.array([[900.5], [100.5], [900.0]])
    found = []
    for rows in (whole, other):
        teachers = Teachers(Thresholds(), shards=40, classes=(0, 1)).fit(rows, labels)
        model = EverlastingPredictor(Thresholds(), epsilon=8, delta=1e-6, classes=(0, 1), answers=20, unsafe_seed=1)
        found.append([teachers.votes(queries).tolist(), model.fit(rows, labels).predict(queries).tolist()])
    return found[0], found[1]


def test_a_fraction_among_whole_numbers_of_a_list_moves_one_vote() -> None:
    (votes, answers), (others, others_answers) = answers_of_neighbours_in_lists()
    assert np.abs(np.subtract(votes, others)).max() <= 1
    assert answers == others_answers


def test_twin_that_reads_a_type_off_the_cells_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "as_floats", lambda X, name: np.asarray(X))
    with pytest.raises((AssertionError, TypeError)):
        test_a_fraction_among_whole_numbers_of_a_list_moves_one_vote()


@pytest.mark.parametrize("odd", [2**53 + 1, 2**70 + 1, 10**400, "7", b"7", [7], object()])
def test_a_list_refuses_a_cell_whatever_the_others_are(odd: Any) -> None:
    said = set()
    for others in (1, 0.5, True, None):
        with pytest.raises(TypeError, match="X must hold numbers") as refused:
            Teachers(LogisticRegression(), shards=2, classes=(0, 1)).fit([[others], [odd]] * 4, [0, 1] * 4)
        said.add(str(refused.value))
    assert len(said) == 1


# ── models that cannot be sent ────────────────────────────────────────────────────────────────────────────────────


class Unsendable(LogisticRegression):  # type: ignore[misc]
    """Keeps what cannot be pickled, once it has learned."""

    def fit(self, X: Any, y: Any) -> Unsendable:
        super().fit(X, y)
        self.lock_ = threading.Lock()
        return self


@pytest.mark.parametrize("ones", [0, 1])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_whether_a_model_can_be_sent_does_not_decide_whether_fit_fails(ones: int, n_jobs: int | None) -> None:
    labels = [1] * ones + [0] * (48 - ones)
    rows = np.random.default_rng(0).normal(size=(48, 2))
    teachers = Teachers(Unsendable(), shards=6, classes=(0, 1), n_jobs=n_jobs).fit(rows, labels)
    assert teachers.votes(rows[:2]).sum(axis=1).tolist() == [6, 6]
