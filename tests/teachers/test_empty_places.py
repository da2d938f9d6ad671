"""Shards with empty places, rows without a label: to empty, fill or change a place changes one teacher, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Intervals, Thresholds
from reticent.data import shards as shards_module
from reticent.data.shards import Shards, deal
from reticent.data.tables import dense
from reticent.teachers import LogisticTeacher, Teachers, linear, thresholds
from reticent.teachers.linear_voters import LinearVoters
from reticent.teachers.models import ModelVoters
from reticent.teachers.saving import from_arrays, to_arrays
from reticent.teachers.thresholds import ThresholdVoters
from reticent.teachers.trees import CutVoters, TreeVoters

Array = NDArray[Any]

SHARDS, PLACES = 40, 387  # shards of 9 and of 10 places
BARE = (0, 17, SHARDS - 1)  # shards without any label: the first, one in the middle, the last
GROUPS = np.random.default_rng(3).permutation(np.arange(PLACES) % 130)  # of two or three places each


class Path(NamedTuple):
    """One way in which teachers learn: of what kind they are, and from what kind of rows."""

    estimator: Any
    columns: int = 3
    classes: int = 2
    kind: str = "floats"


SCALED = make_pipeline(StandardScaler(), LogisticRegression())
LINEAR = {
    "primal": Path(LogisticTeacher()),
    "primal, three classes": Path(LogisticTeacher(), classes=3),
    "primal, converged": Path(LogisticRegression()),
    "primal without intercept": Path(LogisticRegression(fit_intercept=False)),
    "primal, scaled": Path(SCALED),
    "dual": Path(LogisticTeacher(), columns=24),
    "dual, converged": Path(LogisticRegression(), columns=24),
    "dual, scaled": Path(SCALED, columns=24),
    "sparse primal": Path(LogisticRegression(), kind="sparse"),
    "sparse dual": Path(LogisticRegression(), columns=24, kind="sparse"),
    "sparse dual, three classes": Path(LogisticTeacher(), columns=24, classes=3, kind="sparse"),
}
THRESHOLDS = {
    "thresholds": Path(Thresholds(), columns=1),
    "thresholds, both orientations": Path(Thresholds(bits=7, both_orientations=True), columns=1, kind="whole"),
}
MODELS = {
    "thresholds, one by one": Path(Thresholds(bits=70), columns=1, kind="whole"),
    "intervals": Path(Intervals(bits=7), columns=1, kind="whole"),
    "ridge": Path(RidgeClassifier()),
    "several classes of scikit-learn": Path(LogisticRegression(max_iter=20), classes=3),
    "stumps": Path(DecisionTreeClassifier(max_depth=1)),
    "trees": Path(DecisionTreeClassifier(max_features=2), classes=3),
    "naive": Path(GaussianNB(), classes=3),
}
PATHS = LINEAR | THRESHOLDS | MODELS
every_path = pytest.mark.parametrize("name", PATHS)
every_way = pytest.mark.parametrize(
    "way", ["in memory", *(pytest.param(way, marks=pytest.mark.slow) for way in ("groups", "in tasks", "out of core"))]
)


def homes(way: str) -> Array:
    """The shard of each place."""
    return deal(PLACES, SHARDS, GROUPS if way == "groups" else None)


def data(path: Path, way: str = "in memory") -> tuple[Array, Array]:
    """Rows with the indices of their classes. A third of the places are empty, and all those of `BARE` shards."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(PLACES, path.columns))
    scores = X.sum(axis=1) / np.sqrt(path.columns) + generator.normal(size=PLACES) / 2
    y = np.digitize(-scores, [0] if path.classes == 2 else [-0.5, 0.5])
    y[(generator.random(PLACES) < 1 / 3) | np.isin(homes(way), BARE)] = -1
    if path.kind == "whole":
        return np.clip(64 + 30 * X, 0, 127).astype(np.int64), y
    return np.where(X > 0, X, 0) if path.kind == "sparse" else X, y


class Change(NamedTuple):
    """A neighbour: a place, and the data after something happened to it."""

    place: int
    X: Array
    y: Array


def changes(path: Path, X: Array, y: Array, way: str = "in memory", each: int = 3) -> list[Change]:
    """Neighbours by a place that was emptied, filled or replaced; some filled places are the first of their shard."""
    generator = np.random.default_rng(1)
    full, empty = np.flatnonzero(y >= 0), np.flatnonzero((y < 0) & ~np.isin(homes(way), BARE))
    emptied, filled, replaced = (generator.choice(places, each, replace=False) for places in (full, empty, full))
    first = [int(np.flatnonzero(homes(way) == shard)[0]) for shard in BARE]
    found = []
    for place in [*emptied, *filled, *first, *replaced]:
        rows, labels = X.copy(), y.copy()
        if place in emptied:
            labels[place] = -1
        else:
            rows[place] = X[place - 1] if path.kind == "whole" else 5 * X[place - 1]
            labels[place] = path.classes - 1 if y[place] < 0 else (y[place] + 1) % path.classes
        found.append(Change(int(place), rows, labels))
    return found


# ── training, in four ways ────────────────────────────────────────────────────────────────────────────────────────


class InTasks:
    """An executor that notes which shards and blocks, of which sizes, each task is about, or how many shards."""

    workers = 3

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call the function for each task."""
        found = []
        for task in tasks:
            names = [one.tolist() for one in task if isinstance(one, np.ndarray)]
            sizes = [one.sizes.tolist() for one in task if isinstance(one, Shards)]
            blocks = [block.tolist() for one in task if sizes and isinstance(one, list) for block in one]
            self.tasks.append((function.__name__, names, sizes, blocks))
            found.append(function(*task))
        return found


@contextmanager
def small_parts(path: Path) -> Iterator[None]:
    """Few shards are worth a task, fit into memory, or make a block."""
    with ExitStack() as stack:
        for name, value in {"LOAD": 4000, "WORTH": 2000, "COPY": 1000, "BLOCK": 64 * (path.columns + 1)}.items():
            stack.enter_context(mock.patch.object(shards_module, name, value))
        yield


def fit(path: Path, X: Array, y: Array, way: str = "in memory", n_jobs: Any = None) -> Teachers:
    """Train teachers as engines do. Sparse rows have no public way in with empty places: they go in behind it."""
    if way == "in tasks" and n_jobs is None:
        n_jobs = InTasks()
    teachers = Teachers(path.estimator, shards=SHARDS, classes=range(path.classes), n_jobs=n_jobs)
    groups, classes, released = GROUPS if way == "groups" else None, np.arange(path.classes), list[int]()
    release = (lambda: released.append(1)) if way == "out of core" else None
    with nullcontext() if way == "in memory" else small_parts(path):
        if path.kind == "sparse":
            shards = Shards(sparse.csr_matrix(X), y, None if groups is None else homes(way), SHARDS, classes, release)
            voters = teachers._train(path.estimator, shards, 0)
            teachers.restore(voters, classes=classes, columns=path.columns)
        else:
            teachers.fit_rows(X, y, classes=classes, groups=groups, release=release)
    assert bool(released) == (way == "out of core")
    return teachers


# ── comparing what was learned ────────────────────────────────────────────────────────────────────────────────────


def internals(teachers: Teachers) -> list[Any]:
    """All that each teacher has learned, to the last bit."""
    voters: Any = teachers.voters
    if isinstance(voters, LinearVoters):
        table = np.column_stack([dense(voters.weights), voters.bias])
        return [one.tobytes() for one in np.hstack(np.split(table, voters.scored))]
    if isinstance(voters, ThresholdVoters):
        return _cuts(voters.cuts)
    if isinstance(voters, TreeVoters):
        ends = [*voters.roots[1:], len(voters.vote)]
        return [_tree(voters, int(root), int(end)) for root, end in zip(voters.roots, ends, strict=True)]
    assert isinstance(voters, ModelVoters)
    return [(joblib.hash(model), int(known)) for model, known in zip(voters.models, voters.constant, strict=True)]


def _cuts(cuts: CutVoters) -> list[Any]:
    return list(zip(*(getattr(cuts, name).tolist() for name in ("column", "cut", "below", "above")), strict=True))


def _tree(voters: TreeVoters, root: int, end: int) -> tuple[bytes, ...]:
    nodes = [getattr(voters, name)[root:end] for name in ("feature", "threshold", "missing_left", "vote")]
    return tuple(one.tobytes() for one in [*nodes, voters.children[2 * root : 2 * end] - root])


def moved(first: Teachers, second: Teachers) -> set[int]:
    """The teachers that differ in anything that they have learned."""
    pairs = zip(internals(first), internals(second), strict=True)
    return {number for number, (mine, theirs) in enumerate(pairs) if mine != theirs}


def most_moved(
    path: Path, fit: Callable[..., Teachers] = fit, way: str = "in memory", each: int = 3
) -> tuple[int, int]:
    """The most teachers that a changed place moves beside that of its shard, and how many changes move some teacher."""
    X, y = data(path, way)
    first, others, seen = fit(path, X, y, way), [0], 0
    for place, rows, labels in changes(path, X, y, way, each):
        found = moved(first, fit(path, rows, labels, way))
        others.append(len(found - {int(homes(way)[place])}))
        seen += bool(found)
    return max(others), seen


# ── one vote ──────────────────────────────────────────────────────────────────────────────────────────────────────


@every_way
@every_path
def test_an_emptied_filled_or_replaced_place_changes_one_teacher(name: str, way: str) -> None:
    others, seen = most_moved(PATHS[name], way=way)
    assert others == 0
    assert seen >= 4  # the test has power: teachers did learn from the places that were changed


@every_path
def test_a_shard_that_is_emptied_altogether_changes_one_teacher(name: str) -> None:
    path = PATHS[name]
    X, y = data(path)
    filled = np.where((y < 0) & np.isin(homes(""), BARE), np.arange(PLACES) // SHARDS % path.classes, y)
    first = fit(path, X, filled)
    for shard in BARE:
        found = fit(path, X, np.where(homes("") == shard, -1, filled))
        assert moved(first, found) == {shard}
    assert moved(first, fit(path, X, y)) == set(BARE)


def asked(teachers: Teachers, X: Array) -> Array:
    """What every teacher says to each of some rows."""
    return teachers.ask_rows(X, np.tile(np.arange(SHARDS), (len(X), 1)))


@every_path
def test_a_shard_without_labels_votes_for_the_first_class_and_one_of_one_class_for_that(name: str) -> None:
    path = PATHS[name]
    X, y = data(path)
    y[(homes("") == 5) & (y >= 0)] = path.classes - 1
    queries = X[:30]
    said = asked(fit(path, X, y), queries)
    assert (said[:, BARE] == 0).all()
    assert (said[:, 5] == path.classes - 1).all()
    assert len(np.unique(said)) == path.classes
    teachers = fit(path, X, np.full(PLACES, -1))
    assert (asked(teachers, queries) == 0).all()
    assert teachers.count_rows(queries).tolist() == [[SHARDS] + [0] * (path.classes - 1)] * 30


@pytest.mark.parametrize("name", LINEAR)
def test_a_shard_without_labels_is_not_trained(name: str) -> None:
    path = LINEAR[name]
    X, y = data(path)
    rows = sparse.csr_matrix(X) if path.kind == "sparse" else X
    shards = Shards(rows, y, None, SHARDS, np.arange(path.classes))
    how = linear.newton(path.estimator, shards)
    assert how is not None
    weights, bias = linear.train(shards, **how)
    learned = np.column_stack([dense(weights), bias]).reshape(-1, SHARDS, path.columns + 1)
    assert (learned[:, BARE] == 0).all()
    assert (learned[:, 1:17] != 0).any(axis=(0, 2)).all()


@every_path
def test_it_does_not_matter_what_an_empty_place_holds(name: str) -> None:
    path = PATHS[name]
    X, y = data(path)
    other = X.copy()
    other[y < 0] = 127 if path.kind == "whole" else 1e200  # whose square is no number
    assert moved(fit(path, X, y), fit(path, other, y)) == set()


@every_path
def test_a_teacher_learns_what_its_labelled_rows_teach(name: str) -> None:
    """Compared with as many labelled rows in a table of their own, up to the rounding of sums."""
    path = PATHS[name]
    X, y = data(path)
    teachers, queries = fit(path, X, y), X[:30]
    said = asked(teachers, queries)
    voters: Any = teachers.voters
    for shard in (1, 8, 23):
        rows = (homes("") == shard) & (y >= 0)
        assert len(np.unique(y[rows])) > 1
        if path.kind == "sparse":
            held = Shards(sparse.csr_matrix(X[rows]), y[rows], None, 1, np.arange(path.classes))
            alone: Any = Teachers(path.estimator, shards=1)._train(path.estimator, held, 0)
        else:
            one = Teachers(path.estimator, shards=1, classes=range(path.classes))
            alone = one.fit_rows(X[rows], y[rows], classes=np.arange(path.classes)).voters
        if name in LINEAR:
            mine = slice(shard, None, SHARDS)
            assert np.allclose(dense(voters.weights[mine]), dense(alone.weights), rtol=1e-6, atol=1e-9)
            assert np.allclose(voters.bias[mine], alone.bias, rtol=1e-6, atol=1e-9)
        elif name != "trees":  # whose seeds differ by shard
            assert said[:, shard].tolist() == alone.ask(queries, np.zeros((30, 1), dtype=np.int64))[:, 0].tolist()


def test_empty_places_of_a_group_change_one_teacher() -> None:
    path = PATHS["primal"]
    X, y = data(path, "groups")
    y = np.where(y < 0, np.arange(PLACES) % 2, y)
    for group in (0, 60, 129):
        found = fit(path, X, np.where(group == GROUPS, -1, y), "groups")
        assert moved(fit(path, X, y, "groups"), found) == {int(homes("groups")[group == GROUPS][0])}


# ── what is done does not depend on labels ────────────────────────────────────────────────────────────────────────


def tasks(path: Path, X: Array, y: Array, fit: Callable[..., Teachers] = fit) -> list[Any]:
    """The tasks that training is split into."""
    executor = InTasks()
    fit(path, X, y, "in tasks", executor)
    return executor.tasks


@every_path
def test_tasks_and_blocks_follow_from_places(name: str) -> None:
    path = PATHS[name]
    X, y = data(path)
    expected = tasks(path, X, y)
    assert len(expected) >= InTasks.workers
    for labels in (np.full(PLACES, -1), np.zeros_like(y), np.arange(PLACES) // SHARDS % 2, changes(path, X, y)[0].y):
        assert tasks(path, X, labels) == expected


@every_path
@pytest.mark.parametrize("way", ["in tasks", "out of core"])
def test_all_ways_teach_the_same(name: str, way: str) -> None:
    path = PATHS[name]
    X, y = data(path)
    with mock.patch.object(shards_module, "BLOCK", 64 * (path.columns + 1)):  # sums are padded, and rounded, by block
        expected = fit(path, X, y)
    assert moved(expected, fit(path, X, y, way)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["primal", "thresholds", "naive"])
def test_processes_teach_the_same(name: str) -> None:
    X, y = data(PATHS[name])
    assert moved(fit(PATHS[name], X, y), fit(PATHS[name], X, y, n_jobs=2)) == set()


@pytest.mark.filterwarnings("ignore:loading teachers that are not plain numbers")
@pytest.mark.parametrize("name", ["primal, three classes", "sparse dual", "thresholds", "stumps", "trees", "naive"])
def test_saved_teachers_are_the_same(name: str) -> None:
    path = PATHS[name]
    teachers = fit(path, *data(path))
    header, arrays = to_arrays(teachers)
    loaded = from_arrays(header, arrays, path.estimator, trust_models=True)
    assert moved(teachers, loaded) == set()


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────


def test_only_fit_rows_takes_empty_places() -> None:
    X, y = data(PATHS["primal"])
    teachers = Teachers(shards=SHARDS, classes=(0, 1))
    with pytest.raises(ValueError, match="y must hold"):
        teachers.fit(X, y)
    with pytest.raises(ValueError, match="indices among the 2 classes, or -1 for an empty place"):
        teachers.fit_rows(X, y - 1, classes=(0, 1))
    teachers.fit_rows(X, y, classes=(0, 1))


# ── twins: the same tests reject each of them ─────────────────────────────────────────────────────────────────────


def deals_labelled_rows(path: Path, X: Array, y: Array, way: str = "in memory", n_jobs: Any = None) -> Teachers:
    """Deals labelled rows, not places: all rows after an emptied place move to another shard."""
    return fit(path, X[y >= 0], y[y >= 0], way, n_jobs)


@pytest.mark.slow
@every_path
def test_twin_that_deals_by_labelled_rows_moves_many(name: str) -> None:
    others, _ = most_moved(PATHS[name], deals_labelled_rows)
    assert others > 10


def pads_by_labelled_rows(path: Path, X: Array, y: Array, way: str = "in memory", n_jobs: Any = None) -> Teachers:
    """Deals places, but leaves empty ones out of the shards, whose sizes then count labels."""
    honest = Teachers._train

    def train(self: Teachers, estimator: Any, shards: Shards, seed: int) -> Any:
        kept = np.flatnonzero(shards.class_indices >= 0)
        shard = shards._dealt(0, PLACES)[kept]
        less = Shards(shards.X[kept], shards.class_indices[kept], shard, SHARDS, shards.classes, shards.release)
        return honest(self, estimator, less, seed)

    y = np.where(np.isin(homes(way), BARE) & (np.arange(PLACES) < SHARDS), 0, y)  # it cannot do without any label
    with mock.patch.object(Teachers, "_train", train):
        return fit(path, X, y, way, n_jobs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR)
def test_twin_that_pads_by_labelled_rows_moves_others(name: str) -> None:
    others, _ = most_moved(LINEAR[name], pads_by_labelled_rows, way="out of core", each=12)
    assert others > 0


@pytest.mark.parametrize("name", LINEAR | THRESHOLDS)
def test_twin_that_pads_by_labelled_rows_has_other_tasks(name: str) -> None:
    path = PATHS[name]
    X, y = data(path)
    first, second = (tasks(path, X, labels, pads_by_labelled_rows) for labels in (y, changes(path, X, y)[0].y))
    assert first != second


@pytest.mark.parametrize("name", THRESHOLDS)
def test_twin_that_reads_a_cut_off_the_shard_before_moves_others(name: str) -> None:
    honest = thresholds._best_cuts

    def reads_on(ranks: Array, shards: Shards, *how: Any) -> tuple[Array, Array]:
        cut, below = honest(ranks, shards, *how)
        labelled = shards.class_indices >= 0
        last = [ranks[labelled & (shards.shard == shard - 1)].max(initial=0) for shard in range(shards.count)]
        return np.where(shards.seen.sum(axis=1) == 0, last, cut), below

    path = THRESHOLDS[name]
    X, y = data(path)
    bare = BARE[1]
    before = np.flatnonzero((homes("") == bare - 1) & (y >= 0))
    emptied = np.where(np.arange(PLACES) == before[X[before, 0].argmax()], -1, y)
    assert moved(fit(path, X, y), fit(path, X, emptied)) <= {bare - 1}
    with mock.patch.object(thresholds, "_best_cuts", reads_on):
        assert bare in moved(fit(path, X, y), fit(path, X, emptied))
