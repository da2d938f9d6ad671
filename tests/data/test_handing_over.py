"""Rows reach teachers in one way: what fails does not depend on how many workers there are, nor on private labels."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from reticent.data.tables import pack_rows, unpack_rows
from reticent.teachers import Teachers, models

ROWS, SHARDS = 40, 4
TEACHER = make_pipeline(make_column_transformer(("passthrough", ["x"])), LogisticRegression(C=100))


class Broken:
    """A cell that can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return int, ("a secret",)


def frame(**cells: Any) -> pd.DataFrame:
    """Numbers, and notes of any kind, some of which are given by the number of their row."""
    notes = [cells.get(f"row_{row}", f"note {row}") for row in range(ROWS)]
    return pd.DataFrame({"x": np.arange(ROWS) % 10 * 1.0, "note": pd.Series(notes, dtype=object)})


def labels(constant: int | None = None) -> NDArray[np.int64]:
    """Two classes in every shard, but for one whose rows have a single class."""
    y = (np.arange(ROWS) % 10 > 4).astype(np.int64)
    if constant is not None:
        y[constant::SHARDS] = 1
    return y


def ended(action: Callable[[], Any]) -> str:
    try:
        return str(action())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def fitted(X: pd.DataFrame, y: NDArray[np.int64], n_jobs: int, estimator: Any = TEACHER) -> Teachers:
    return Teachers(estimator, shards=SHARDS, classes=(0, 1), n_jobs=n_jobs).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [threading.Lock(), Broken()], ids=["not pickled", "not unpickled"])
@pytest.mark.parametrize("constant", [None, 3])
def test_a_cell_that_cannot_be_sent_fails_its_teacher_for_any_number_of_workers(
    cell: object, constant: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    X, y, queries = frame(row_3=cell), labels(constant), frame()[:10]
    caplog.set_level(logging.WARNING, logger="reticent")
    votes, lines = [], []
    for n_jobs in (1, 2):
        caplog.clear()
        votes.append(fitted(X, y, n_jobs).votes(queries).tolist())
        lines.append([record.getMessage() for record in caplog.records])
    assert votes[0] == votes[1]
    assert lines[0] == lines[1]
    fine = fitted(frame(), y, 1).votes(queries)
    assert np.abs(fine - np.array(votes[0])).max() <= 1  # only the vote of one teacher


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_query_that_cannot_be_sent_is_answered_by_the_first_class_and_changes_no_other(n_jobs: int) -> None:
    teachers = fitted(frame(), labels(), n_jobs)
    fine, votes = teachers.votes(frame()[:10]), teachers.votes(frame(row_7=threading.Lock())[:10])
    assert votes[7].tolist() == [SHARDS, 0] != fine[7].tolist()
    assert np.array_equal(np.delete(votes, 7, axis=0), np.delete(fine, 7, axis=0))
    asked = np.tile(np.arange(SHARDS), (10, 1))
    assert np.array_equal((teachers.ask(frame(row_7=threading.Lock())[:10], asked) == 1).sum(axis=1), votes[:, 1])


@pytest.mark.slow
def test_rows_left_to_joblib_would_fail_by_private_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The must-fail twin: it sends rows as they are."""
    monkeypatch.setattr(models, "pack_rows", lambda rows: rows)
    monkeypatch.setattr(models, "unpack_rows", lambda rows: rows)
    X = frame(row_3=threading.Lock())
    assert "PicklingError" in ended(lambda: fitted(X, labels(), 2))
    assert "PicklingError" not in ended(lambda: fitted(X, labels(), 1))
    assert "PicklingError" not in ended(lambda: fitted(X, labels(constant=3), 2))  # neighbours, up to one group


class Locked(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def fit(self, X: Any, y: Any) -> Locked:
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.classes_[0])


def test_an_estimator_that_cannot_be_sent_is_refused_whatever_the_rows_are() -> None:
    each = [labels(), labels(3), np.arange(ROWS) % SHARDS // 2]  # in the last, every shard has a single class
    found = {ended(lambda y=y: fitted(frame(), y, 2, Locked())) for y in each}  # type: ignore[misc]
    (only,) = found
    assert only.startswith("TypeError: estimator must be one that can be pickled for n_jobs above 1")


def test_a_copy_shares_nothing() -> None:
    cell = [1, 2]
    X = frame(row_0=cell)
    unpack_rows(pack_rows(X)).at[0, "note"].append(3)
    assert cell == [1, 2]
    numbers = np.zeros((2, 2))
    unpack_rows(pack_rows(numbers))[0] = 1
    assert not numbers.any()
