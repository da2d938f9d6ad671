"""Teachers that were saved vote as before, to the last bit; and nothing that is loaded runs unless it is trusted."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts.domains import Floats
from reticent.concepts.stumps import Stumps
from reticent.concepts.thresholds import Thresholds
from reticent.predictors import state_file as files
from reticent.teachers import LogisticTeacher, Teachers
from reticent.teachers import saving as module
from reticent.teachers.saving import from_arrays, to_arrays

Array = NDArray[Any]


def data(rows: int, columns: int, classes: int = 2) -> tuple[Array, Array]:
    generator = np.random.default_rng(rows)
    X = generator.normal(size=(rows, columns))
    scores = X.sum(axis=1) + generator.normal(size=rows) / 2
    return X, np.digitize(scores, np.quantile(scores, np.arange(1, classes) / classes))


def there_and_back(teachers: Teachers, path: Path, **more: Any) -> Teachers:
    """Through a file."""
    header, arrays = to_arrays(teachers)
    files.write(path / "state", header, arrays)
    state = files.load(path / "state")
    return from_arrays(state.header, state.arrays, teachers.estimator, **more)


def check_same(mine: Teachers, theirs: Teachers, queries: Any) -> None:
    assert np.array_equal(mine.votes(queries), theirs.votes(queries))
    named = np.random.default_rng(0).integers(theirs.n_teachers_, size=(queries.shape[0], 5))
    assert np.array_equal(mine.ask(queries, named), theirs.ask(queries, named))
    assert np.array_equal(mine.classes_, theirs.classes_)
    assert mine.classes_.dtype == theirs.classes_.dtype
    assert (mine.n_teachers_, mine.n_features_in_) == (theirs.n_teachers_, theirs.n_features_in_)


@pytest.mark.parametrize(
    "estimator",
    [
        None,
        LogisticTeacher(ridge=0.5),
        LogisticRegression(),
        RidgeClassifier(),
        DecisionTreeClassifier(max_depth=1, random_state=0),
        DecisionTreeClassifier(max_depth=4, random_state=0),
    ],
    ids=str,
)
@pytest.mark.parametrize("classes", [(0, 1), (1, 0), ("a", "b", "dd"), (2.5, -1.0, 7.0)], ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_plain_numbers_give_the_same_votes(estimator: Any, classes: Any, kind: str, tmp_path: Path) -> None:
    X, y = data(300, 4, len(classes))
    y[:30:10] = 0
    X, queries = X[:270], X
    if kind == "sparse":
        X, queries = sparse.csr_matrix(X), sparse.csr_matrix(queries)
    teachers = Teachers(estimator, shards=10, classes=classes).fit(X, np.array(classes)[y[:270]])
    header, arrays = to_arrays(teachers)
    assert header["kind"] in ("linear", "trees")
    json.dumps(header)
    assert all(array.dtype != object for array in arrays.values())
    check_same(there_and_back(teachers, tmp_path), teachers, queries)


def test_sparse_weights(tmp_path: Path) -> None:
    X, y = data(60, 200)
    rows = sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0))
    teachers = Teachers(shards=6, classes=(0, 1)).fit(rows, y)
    assert sparse.issparse(teachers._voters.weights)  # type: ignore[attr-defined]
    check_same(there_and_back(teachers, tmp_path), teachers, rows)


@pytest.mark.parametrize("kind", ["whole", "floats", "datetimes", "declared"])
@pytest.mark.parametrize("both", [False, True])
def test_thresholds(kind: str, both: bool, tmp_path: Path) -> None:
    X: Array = np.random.default_rng(0).integers(0, 50, size=(200, 1))
    y = (X[:, 0] < 20).astype(int)
    if kind in ("floats", "declared"):
        X = X / 4
    elif kind == "datetimes":
        X = X.astype("datetime64[h]")
    concepts = Thresholds(domain=Floats() if kind == "declared" else None, both_orientations=both)
    teachers = Teachers(concepts, shards=8, classes=("above", "below")).fit(X, np.array(["above", "below"])[y])
    assert to_arrays(teachers)[0]["kind"] == "thresholds"
    check_same(there_and_back(teachers, tmp_path), teachers, X)


def test_shards_of_one_class_and_missing_values(tmp_path: Path) -> None:
    X, y = data(120, 3)
    X[::7, 1] = np.nan
    y[::12] = 1
    teachers = Teachers(DecisionTreeClassifier(max_depth=2), shards=12, classes=(0, 1)).fit(X, y)
    check_same(there_and_back(teachers, tmp_path), teachers, X)


def test_names_of_columns_are_kept(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data(120, 3)
    frame = pandas.DataFrame(X, columns=["a", "b", "ç"])
    teachers = Teachers(shards=12, classes=(0, 1)).fit(frame, y)
    again = there_and_back(teachers, tmp_path)
    check_same(again, teachers, frame)
    with pytest.raises(ValueError, match="feature names"):
        again.votes(frame.rename(columns={"a": "z"}))


def test_the_number_of_columns_is_kept(tmp_path: Path) -> None:
    teachers = Teachers(shards=12, classes=(0, 1)).fit(*data(120, 3))
    with pytest.raises(ValueError, match="features"):
        there_and_back(teachers, tmp_path).votes(np.ones((2, 4)))


# ── teachers of other kinds ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("estimator", [GaussianNB(), Stumps(3)], ids=["model", "concept"])
def test_others_are_loaded_only_if_they_are_trusted_and_loudly(
    estimator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    X, y = data(120, 3)
    teachers = Teachers(estimator, shards=12, classes=(0, 1)).fit(X, y)
    assert to_arrays(teachers)[0]["kind"] == "joblib"
    with pytest.raises(ValueError, match="can run code"):
        there_and_back(teachers, tmp_path)
    with pytest.warns(UserWarning, match="a file from others can run code"):
        again = there_and_back(teachers, tmp_path, trust_models=True)
    check_same(again, teachers, X)


RAN: list[str] = []


def explode() -> None:
    RAN.append("boom")


class Bomb:
    def __reduce__(self) -> Any:
        return explode, ()


def test_nothing_runs_without_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    teachers = Teachers(GaussianNB(), shards=12, classes=(0, 1)).fit(*data(120, 3))
    header, arrays = to_arrays(teachers)
    arrays["models"] = np.frombuffer(pickle.dumps([Bomb()]), dtype=np.uint8)
    with pytest.raises(ValueError, match="can run code"):
        from_arrays(header, arrays, GaussianNB())
    assert RAN == []
    with pytest.warns(UserWarning, match="can run code"), pytest.raises(ValueError, match="damaged"):
        from_arrays(header, arrays, GaussianNB(), trust_models=True)
    assert RAN == ["boom"]  # so the refusal above was needed


@pytest.mark.parametrize("unknown", [[], ["evil.Model"]], ids=["known", "unknown"])
def test_skops_is_used_where_it_is(unknown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("skops.io")
    fake.dumps, fake.get_untrusted_types = pickle.dumps, lambda data: unknown
    fake.loads = lambda saved, trusted: pickle.loads(saved) if trusted == unknown else None
    monkeypatch.setitem(sys.modules, "skops", ModuleType("skops"))
    monkeypatch.setitem(sys.modules, "skops.io", fake)
    monkeypatch.setattr(module, "find_spec", lambda name: True)
    X, y = data(120, 3)
    teachers = Teachers(GaussianNB(), shards=12, classes=(0, 1)).fit(X, y)
    assert to_arrays(teachers)[0]["kind"] == "skops"
    if unknown:
        with pytest.raises(ValueError, match=r"trust_models=True.*evil\.Model"):
            there_and_back(teachers, tmp_path)
        with pytest.warns(UserWarning, match="can run code"):
            check_same(there_and_back(teachers, tmp_path, trust_models=True), teachers, X)
    else:
        check_same(there_and_back(teachers, tmp_path), teachers, X)
    header, arrays = to_arrays(teachers)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="install it"):
        from_arrays(header, arrays, GaussianNB())


# ── what does not fit ─────────────────────────────────────────────────────────────────────────────────────────────


def test_another_estimator_is_refused(tmp_path: Path) -> None:
    header, arrays = to_arrays(Teachers(shards=12, classes=(0, 1)).fit(*data(120, 3)))
    with pytest.raises(ValueError, match="LogisticTeacher that the teachers were made with"):
        from_arrays(header, arrays, LogisticRegression())


def test_classes_that_are_objects_are_refused() -> None:
    X, y = data(120, 3)
    classes = np.array([2**70, 2**71], dtype=object)
    teachers = Teachers(shards=12, classes=(2**70, 2**71)).fit(X, classes[y])
    with pytest.raises(TypeError, match="classes"):
        to_arrays(teachers)


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    [
        (None, "bias", np.zeros(3)),
        (None, "weights", np.zeros((12, 4))),
        (None, "classes", np.arange(5)),
        (DecisionTreeClassifier(max_depth=3), "children", np.zeros(2, dtype=int)),
        (DecisionTreeClassifier(max_depth=3), "vote", None),
        (DecisionTreeClassifier(max_depth=3), "feature", None),
        (DecisionTreeClassifier(max_depth=3), "roots", None),
        (DecisionTreeClassifier(max_depth=3), "threshold", np.zeros(2)),
        (DecisionTreeClassifier(max_depth=1), "column", None),
        (DecisionTreeClassifier(max_depth=1), "below", None),
        (Thresholds(), "above", None),
        (Thresholds(), "cut", np.zeros(2)),
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_refused(estimator: Any, name: str, value: Any) -> None:
    X, y = data(240, 1 if isinstance(estimator, Thresholds) else 3)
    header, arrays = to_arrays(Teachers(estimator, shards=12, classes=(0, 1)).fit(X, y))
    arrays[name] = arrays[name] + 10**6 if value is None else value
    with pytest.raises(ValueError, match="damaged"):
        from_arrays(header, arrays, estimator)
    del arrays[name]
    with pytest.raises(ValueError, match="damaged"):
        from_arrays(header, arrays, estimator)
