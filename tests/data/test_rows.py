"""Rows keep their order and their bits, wherever they live, and training on them takes bounded memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts.thresholds import Thresholds
from reticent.data import rows as rows_module
from reticent.data import shards as shards_module
from reticent.data.rows import RowStore
from reticent.teachers import LogisticTeacher, Teachers

Array = NDArray[Any]


def data(rows: int, columns: int, classes: int = 2, dtype: Any = np.float32) -> tuple[Array, Array]:
    generator = np.random.default_rng(rows)
    X = generator.normal(size=(rows, columns)) + 0.2
    scores = X.sum(axis=1) + generator.normal(size=rows)
    return X.astype(dtype), np.digitize(scores, np.quantile(scores, np.arange(1, classes) / classes))


def filled(X: Array, y: Array, folder: Path, groups: Array | None = None, classes: int = 2) -> RowStore:
    how: dict[str, Any] = {"grouped": groups is not None, "memory_limit": 0, "folder": folder}
    store = RowStore(2 * len(X), X.shape[1], dtype=X.dtype, classes=classes, **how)
    for part in np.array_split(np.arange(len(X)), 5):
        store.append(X[part], y[part], None if groups is None else groups[part])
    return store


# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, "datetime64[s]"])
@given(sizes=st.lists(st.integers(0, 40), max_size=6))
def test_rows_come_out_as_they_went_in(limit: int | None, dtype: Any, sizes: list[int]) -> None:
    store = RowStore(300, 3, dtype=dtype, classes=400, grouped=True, memory_limit=limit)
    assert store.on_disk == (limit is not None)
    X = np.random.default_rng(1).integers(0, 100, size=(sum(sizes), 3)).astype(dtype)
    codes, groups = np.arange(len(X)) % 400, np.arange(len(X)) * 10**15
    for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
        store.append(X[stop - size : stop], codes[stop - size : stop], groups[stop - size : stop])
        store.release()
    rows = store.rows()
    assert len(store) == len(X)
    assert rows.groups is not None
    assert rows.X.dtype == X.dtype
    assert rows.class_indices.dtype == np.uint16
    for mine, theirs in ((rows.X, X), (rows.class_indices, codes), (rows.groups, groups)):
        assert np.array_equal(mine, theirs)
        with pytest.raises(ValueError, match="read-only"):
            mine[:1] = mine[:1]


def test_parts_larger_than_what_is_copied_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rows_module, "CHUNK", 100)
    X, y = data(1001, 7)
    calls: list[int] = []
    for limit in (None, 0):
        store = RowStore(1001, 7, dtype=X.dtype, classes=2, memory_limit=limit, folder=tmp_path)
        store.append(X[::-1], y[::-1], release=lambda: calls.append(1))
        assert np.array_equal(store.rows().X, X[::-1])
        assert np.array_equal(store.rows().class_indices, y[::-1])
    assert len(calls) > 600


def test_views_share_memory_and_see_no_later_rows() -> None:
    store = RowStore(10, 2, dtype=np.float64, classes=2, memory_limit=0)
    store.append(np.ones((2, 2)), np.array([0, 1]))
    first = store.rows()
    store.append(2 * np.ones((3, 2)), np.array([1, 1, 1]))
    assert np.shares_memory(first.X, store.rows().X)
    assert first.X.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("limit", [None, 0])
def test_a_huge_capacity_costs_nothing(limit: int | None, tmp_path: Path) -> None:
    store = RowStore(10**9, 100, dtype=np.float32, classes=2, memory_limit=limit, folder=tmp_path)
    free = os.statvfs(tmp_path).f_bavail
    store.append(np.ones((3, 100), dtype=np.float32), np.array([0, 1, 0]))
    assert store.rows().X.sum() == 300
    assert free - os.statvfs(tmp_path).f_bavail < 10**5


@pytest.mark.parametrize("limit", [None, 0])
def test_what_is_deleted_is_gone(limit: int | None, tmp_path: Path) -> None:
    X, y = data(1000, 5)
    store = RowStore(1000, 5, dtype=X.dtype, classes=2, memory_limit=limit, folder=tmp_path)
    store.append(X, y)
    held = store.rows()
    store.delete()
    store.delete()
    assert not held.X.any()  # also for one who still holds a view
    assert len(store) == 0
    for use in (store.rows, lambda: store.append(X, y)):
        with pytest.raises(ValueError, match="deleted"):
            use()


def open_files(folder: Path) -> list[str]:
    links = (f"/proc/self/fd/{one}" for one in os.listdir("/proc/self/fd"))
    return [target for link in links if os.path.islink(link) and (target := os.readlink(link)).startswith(str(folder))]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at the process as Linux shows it")
def test_files_have_no_name_are_the_owners_and_go_with_the_last_reference(tmp_path: Path) -> None:
    X, y = data(1000, 5)
    store = filled(X, y, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert open_files(tmp_path)
    assert all(os.fstat(column._file.fileno()).st_mode & 0o777 == 0o600 for column in store._columns if column._file)
    held = store.rows()
    del store
    gc.collect()
    assert np.array_equal(held.X, X)  # a view is a reference
    del held
    gc.collect()
    assert open_files(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to write to")
def test_a_full_disk_is_an_error_and_not_a_crash() -> None:
    store = RowStore(10, 2, dtype=np.float64, classes=2, memory_limit=0)
    store.append(np.ones((2, 2)), np.array([0, 1]))
    with open("/dev/full", "wb", buffering=0) as full:
        whole, store._columns[0]._file = store._columns[0]._file, full
        with pytest.raises(OSError, match="space"):
            store.append(np.ones((2, 2)), np.array([0, 1]))
        store._columns[0]._file = whole
    assert len(store) == 2
    store.append(3 * np.ones((1, 2)), np.array([1]))
    assert store.rows().X.tolist() == [[1, 1], [1, 1], [3, 3]]


def test_what_will_not_fit_is_refused_and_nothing_is_added() -> None:
    store = RowStore(3, 2, dtype=np.float32, classes=2)
    rows, codes = np.ones((2, 2), dtype=np.float32), np.array([0, 1])
    store.append(rows, codes)
    wrong: list[tuple[Callable[[], None], type[Exception], str]] = [
        (lambda: store.append(rows, codes), ValueError, "space for 1 of 3 rows, got 2"),
        (lambda: store.append(rows[:1].astype(float), codes[:1]), TypeError, "float32"),
        (lambda: store.append(rows[:1, :1], codes[:1]), ValueError, "2 columns"),
        (lambda: store.append(rows[0], codes[:1]), ValueError, "two dimensions"),
        (lambda: store.append(rows[:1], codes), ValueError, "one per row"),
        (lambda: store.append(rows[:1], np.array([0.5])), ValueError, "whole numbers"),
        (lambda: store.append(rows[:1], np.array([2])), ValueError, "2 classes"),
        (lambda: store.append(rows[:1], np.array([-1])), ValueError, "2 classes"),
        (lambda: store.append(rows[:1], codes[:1], codes[:1]), ValueError, "grouped"),
    ]
    for use, kind, message in wrong:
        with pytest.raises(kind, match=message):
            use()
    assert len(store) == 2
    grouped = RowStore(3, 2, dtype=np.float32, classes=2, grouped=True)
    with pytest.raises(ValueError, match="grouped"):
        grouped.append(rows, codes)
    with pytest.raises(ValueError, match="groups"):
        grouped.append(rows, codes, np.array([2**63, 1], dtype=np.uint64))


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": 0},
        {"capacity": 1.5},
        {"columns": 0},
        {"dtype": object},
        {"dtype": "U3"},
        {"dtype": complex},
        {"classes": 1},
        {"memory_limit": -1},
        {"folder": "no such folder"},
    ],
    ids=str,
)
def test_a_store_that_cannot_be_is_refused_by_name(wrong: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"capacity": 3, "columns": 2, "dtype": float, "classes": 2} | wrong
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        RowStore(asked.pop("capacity"), asked.pop("columns"), **asked)


@pytest.fixture
def small(load: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So few bytes are held at a time that small tests have many parts."""
    monkeypatch.setattr(shards_module, "LOAD", load)
    monkeypatch.setattr(shards_module, "RESIDENT", load)


# ── training on it ────────────────────────────────────────────────────────────────────────────────────────────────


def same(one: Any, other: Any) -> bool:
    """Whether two ensembles are the same to the last bit."""
    mine, theirs = (vars(getattr(voters, "cuts", None) or voters) for voters in (one._voters, other._voters))
    arrays = [name for name, value in mine.items() if isinstance(value, np.ndarray)]
    return bool(arrays) and all(np.array_equal(mine[name], theirs[name], equal_nan=True) for name in arrays)


@pytest.mark.parametrize("load", [1, 3000, 1 << 26])
@pytest.mark.parametrize("shape", [(1003, 4, 37), (1000, 4, 37), (999, 4, 37), (700, 30, 50), (41, 4, 40), (40, 3, 1)])
@pytest.mark.parametrize(
    ("estimator", "classes"),
    [
        (None, 2),
        (None, 3),
        (make_pipeline(StandardScaler(), LogisticTeacher()), 2),
        (LogisticRegression(), 2),
        (DecisionTreeClassifier(max_depth=3), 3),
    ],
    ids=["default", "three classes", "scaled", "logistic", "trees"],
)
@pytest.mark.usefixtures("small")
def test_teachers_of_rows_on_disk_are_those_of_rows_in_memory(
    shape: tuple[int, int, int], estimator: Any, classes: int, tmp_path: Path
) -> None:
    rows, columns, count = shape
    X, y = data(rows, columns, classes)
    plain = Teachers(estimator, shards=count, classes=range(classes)).fit(X, y)
    store = filled(X, y, tmp_path, classes=classes)
    held = store.rows()
    for release in (None, store.release):
        mine = Teachers(estimator, shards=count).fit_rows(
            held.X, held.class_indices, classes=range(classes), release=release
        )
        assert same(mine, plain)
    assert np.array_equal(mine.votes(X[:50]), plain.votes(X[:50]))


@pytest.mark.parametrize("load", [1, 3000, 1 << 26])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("dtype", [np.int64, np.float64, "datetime64[D]"])
@pytest.mark.usefixtures("small")
def test_thresholds_of_rows_on_disk(both: bool, dtype: Any, tmp_path: Path) -> None:
    X, _ = data(1003, 1)
    values: Array = np.round(10 * X).astype(np.int64)
    y = ((values[:, 0] < 3) ^ (np.random.default_rng(1).random(1003) < 0.2)).astype(int)
    values = values.astype(dtype)
    concepts = Thresholds(both_orientations=both)
    plain = Teachers(concepts, shards=37, classes=(0, 1)).fit(values, y)
    store = filled(values, y, tmp_path)
    held = store.rows()
    mine = Teachers(concepts, shards=37).fit_rows(held.X, held.class_indices, classes=(0, 1), release=store.release)
    assert same(mine, plain)
    assert np.array_equal(mine.votes(values), plain.votes(values))


@pytest.mark.parametrize("load", [1, 3000, 1 << 26])
@pytest.mark.parametrize("estimator", [None, Thresholds(), DecisionTreeClassifier(max_depth=2)], ids=str)
@pytest.mark.usefixtures("small")
def test_groups_on_disk_stay_together(estimator: Any, tmp_path: Path) -> None:
    X, y = data(603, 1 if isinstance(estimator, Thresholds) else 4)
    groups = np.random.default_rng(1).integers(0, 90, size=603)
    plain = Teachers(estimator, shards=20, classes=(0, 1)).fit(X, y, groups)
    store = filled(X, y, tmp_path, groups)
    held = store.rows()
    for release in (None, store.release):
        mine = Teachers(estimator, shards=20).fit_rows(
            held.X, held.class_indices, classes=(0, 1), groups=held.groups, release=release
        )
        assert same(mine, plain)


def test_teachers_of_any_kind_learn_from_rows_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shards_module, "LOAD", 3000)
    X, y = data(603, 4)
    store = filled(X, y, tmp_path)
    held = store.rows()
    mine = Teachers(GaussianNB(), shards=20).fit_rows(
        held.X, held.class_indices, classes=["a", "b"], release=store.release
    )
    plain = Teachers(GaussianNB(), shards=20, classes=["a", "b"]).fit(X, np.array(["a", "b"])[y])
    assert np.array_equal(mine.votes(X), plain.votes(X))


def test_rows_of_thresholds_beyond_63_bits_are_not_wrapped() -> None:
    X = np.array([[2**64 - 1 - one] for one in range(20)], dtype=np.uint64)
    y = (X[:, 0] < 2**64 - 10).astype(int)
    teachers = Teachers(Thresholds(bits=64), shards=1, classes=(0, 1)).fit(X, y)
    assert np.array_equal(teachers.votes(X)[:, 1], y)


def test_a_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What training reads is every row once, from the first to the last, in runs of consecutive rows."""
    X, y = data(20_000, 4)
    touched: list[Array] = []

    class Watched(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            touched.append(key)
            return super().__getitem__(key)

    monkeypatch.setattr(shards_module, "LOAD", 5_000 * (64 + X[:1].nbytes))
    Teachers(shards=500).fit_rows(X.view(Watched), y, classes=(0, 1))
    assert len(touched) == 2  # loads
    assert np.array_equal(np.sort(np.concatenate(touched)), np.arange(20_000))
    for rows in touched:
        assert (np.diff(rows) > 0).all()
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        assert min(map(len, runs)) >= 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [[1.0]]}, "X must be an array"),
        ({"X": np.ones(9)}, "X must be an array"),
        ({"X": np.full((9, 2), "a")}, "X must be an array"),
        ({"codes": np.zeros(8, dtype=int)}, "class_indices must be an array"),
        ({"codes": np.zeros(9)}, "class_indices must be an array"),
        ({"codes": np.arange(9)}, "2 classes"),
        ({"codes": np.full(9, -2)}, "2 classes"),
        ({"classes": "public"}, "classes"),
        ({"classes": None}, "classes"),
        ({"shards": 10}, "more than there are rows"),
        ({"estimator": Thresholds(), "classes": (0, 1, 2)}, "classes must be 2"),
    ],
    ids=str,
)
def test_rows_that_were_not_read_well_are_refused(change: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"X": np.ones((9, 2)), "codes": np.zeros(9, dtype=int)}
    asked |= {"classes": (0, 1), "shards": 3, "estimator": None} | change
    teachers = Teachers(asked["estimator"], shards=asked["shards"])
    with pytest.raises((TypeError, ValueError), match=message):
        teachers.fit_rows(asked["X"], asked["codes"], classes=asked["classes"])


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads resident memory as Linux shows it")
@pytest.mark.parametrize("releases", [True, False])
def test_memory_stays_bounded_only_if_pages_are_let_go(releases: bool, tmp_path: Path) -> None:
    """A phase of 400 MB in a process that may grow by 300; without `release` it grows by more than the phase."""
    script = f"""
import numpy as np
from reticent.data.rows import RowStore
from reticent.teachers import LogisticTeacher, Teachers
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(one for one in lines if one.startswith("VmHWM")).split()[1]) / 1024
generator = np.random.default_rng(0)
store = RowStore(2_000_000, 50, dtype=np.float32, classes=2, memory_limit=10**6, folder={str(tmp_path)!r})
before = peak()
for _ in range(40):
    X = generator.random((50_000, 50), dtype=np.float32)
    store.append(X, (X[:, 0] > 0.5).astype(int))
rows = store.rows()
teachers = Teachers(LogisticTeacher(steps=1), shards=2_000)
teachers.fit_rows(rows.X, rows.class_indices, classes=(0, 1), release=store.release if {releases} else None)
print(peak() - before)
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert (float(done.stdout) < 300) == releases
