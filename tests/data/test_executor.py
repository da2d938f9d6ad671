"""Every executor keeps its promises, and each twin that breaks one is found."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Thresholds
from reticent.data import checking, shards
from reticent.data.checking import ExecutorCheckFailed, check_executor
from reticent.data.executor import Executor, JoblibExecutor, ThreadExecutor, as_executor
from reticent.teachers import PATEClassifier, Teachers

Tasks = Iterable[tuple[Any, ...]]


class Plain:
    """The smallest executor: a loop."""

    workers = 3

    def __init__(self) -> None:
        self.functions: list[str] = []

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        self.functions.append(function.__name__)
        return [function(*task) for task in tasks]

    def __sklearn_clone__(self) -> Plain:
        return self


class Pickling(Plain):
    """As a cluster does: everything goes through a pickle, and nothing comes back by reference."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        self.functions.append(function.__name__)
        sent = (pickle.dumps((function, task)) for task in tasks)
        return [pickle.loads(pickle.dumps(called(*task))) for called, task in map(pickle.loads, sent)]


@pytest.mark.slow
@pytest.mark.parametrize("executor", [JoblibExecutor(), JoblibExecutor(1), ThreadExecutor(), ThreadExecutor(1)])
def test_executors_of_the_package_conform(executor: Executor) -> None:
    assert check_executor(executor).workers == executor.workers


@pytest.mark.slow
def test_processes_conform() -> None:
    assert check_executor(JoblibExecutor(2)).workers == 2


@pytest.mark.slow
def test_threads_of_joblib_conform() -> None:
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert check_executor(JoblibExecutor()).workers == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Plain, Pickling])
def test_an_executor_of_ones_own_conforms(kind: type[Plain]) -> None:
    assert check_executor(kind()).workers == 3


# ── twins that must fail ──────────────────────────────────────────────────────────────────────────────────────────


class AsCompleted(Plain):
    """Gives results as tasks finish."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        with ThreadPoolExecutor(8) as pool:
            return [one.result() for one in as_completed([pool.submit(function, *task) for task in tasks])]


class Lossy(Plain):
    """Drops a task that fails, and goes on."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        found = []
        for task in tasks:
            try:
                found.append(function(*task))
            except Exception:
                continue
        return found


class Wrapping(Plain):
    """Raises an error of its own."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        try:
            return super().map(function, tasks)
        except Exception as error:
            raise RuntimeError(str(error)) from error


class Remembering(Plain):
    """Gives the same result for equal tasks."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        known: dict[bytes, Any] = {}
        keyed = ((pickle.dumps(task), task) for task in tasks)
        return [known[key] if key in known else known.setdefault(key, function(*task)) for key, task in keyed]


class OneBuffer(Plain):
    """Copies the arguments of each task into one buffer."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        buffer: list[Any] = []
        found = []
        for task in tasks:
            if not buffer:
                buffer[:] = [copy.copy(one) if isinstance(one, np.ndarray) else one for one in task]
            now = [mine if isinstance(mine, np.ndarray) else one for mine, one in zip(buffer, task, strict=True)]
            found.append(function(*now))
        return found


class Loud(Plain):
    """Calls what is below the decorator, and so leaves out the silence."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        inner = getattr(function, "__wrapped__", function)
        return [inner(*task) for task in tasks]


class Twice(Plain):
    """Retries a task although it did not fail."""

    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        return [[function(*task), function(*task)][1] for task in tasks]


class Idle(Plain):
    workers = 0


class WithoutWorkers:
    def map(self, function: Callable[..., Any], tasks: Tasks) -> list[Any]:
        return [function(*task) for task in tasks]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(("twin", "why"), [
    (AsCompleted, "in the order of the tasks"),
    (Lossy, "must raise the exception"),
    (Wrapping, "must raise the exception"),
    (Remembering, "share memory"),
    (OneBuffer, "what another wrote"),
    (Twice, "what another wrote"),
    (Loud, "must hold in workers"),
    (Idle, "at least 1"),
    (WithoutWorkers, "has workers and map"),
])  # fmt: skip
def test_a_twin_that_breaks_a_promise_is_found(twin: type[Any], why: str) -> None:
    with pytest.raises(ExecutorCheckFailed, match=why):
        check_executor(twin())


# ── where executors are used ──────────────────────────────────────────────────────────────────────────────────────

X = np.random.default_rng(0).normal(size=(240, 3))
Y = np.where(X.sum(axis=1) > 0, "yes", "no")


@pytest.mark.parametrize("kind", [Plain, Pickling])
@pytest.mark.parametrize(("estimator", "functions"), [
    (None, {"_train_some", "_count"}),
    (LogisticRegression(), {"_train_some", "_count"}),
    (DecisionTreeClassifier(max_depth=2), {"_fit_some"}),
    (GaussianNB(), {"_fit_some", "_count"}),
    (Thresholds(), {"_fit_some"}),
])  # fmt: skip
def test_all_teachers_go_through_the_executor_and_vote_alike(
    estimator: Any, functions: set[str], kind: type[Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = X[:, :1] if isinstance(estimator, Thresholds) else X
    monkeypatch.setattr(shards, "WORTH", 1)  # several loads of few rows
    monkeypatch.setattr(shards, "BLOCK", 100)
    executor = kind()
    mine = Teachers(estimator, shards=12, classes=("no", "yes"), n_jobs=executor).fit(rows, Y)
    theirs = Teachers(estimator, shards=12, classes=("no", "yes")).fit(rows, Y)
    assert np.array_equal(mine.votes(rows), theirs.votes(rows))
    assert set(executor.functions) == functions


def test_loads_for_several_workers_hold_every_shard_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "WORTH", 1)
    monkeypatch.setattr(shards, "BLOCK", 100)
    dealt = shards.Shards(X, np.zeros(len(X), dtype=np.int64), None, 12, np.array([0, 1]))
    loads = list(dealt.loads(4, workers=3))
    assert len(list(dealt.loads(4))) == 1 < len(loads)
    assert sorted(np.concatenate([names for names, _, _ in loads]).tolist()) == list(range(12))


def test_pate_takes_an_executor_and_clones_with_it() -> None:
    executor = Plain()
    model = PATEClassifier(epsilon=4, delta=1e-5, classes=("no", "yes"), n_teachers=10, n_jobs=executor)
    assert clone(model).n_jobs is executor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, Y, public=X[:20])
    assert "_train_some" in executor.functions


def test_a_single_task_starts_no_process() -> None:
    assert JoblibExecutor(2).map(os.getpid, [()]) == [os.getpid()]


def test_n_jobs_is_read_as_joblib_does() -> None:
    assert as_executor(None).workers == 1
    assert as_executor(2).workers == 2
    assert isinstance(as_executor(2, in_threads=True), ThreadExecutor)
    plain = Plain()
    assert as_executor(plain) is as_executor(plain, in_threads=True) is plain
    bads: list[Any] = [0, "a", 1.5, True]
    for bad in bads:
        with pytest.raises((TypeError, ValueError), match="n_jobs must be"):
            as_executor(bad)
        with pytest.raises((TypeError, ValueError), match="n_jobs must be"):
            as_executor(bad, in_threads=True)


def test_functions_of_the_check_can_be_sent_anywhere() -> None:
    for function in (checking._late_square, checking._fails_at, checking._filled, checking._complains):
        assert pickle.loads(pickle.dumps(function)) is function
