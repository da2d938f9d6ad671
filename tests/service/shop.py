"""A small predictor behind an answering service, for tests: thresholds on one column, quick to fit and to start."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.concepts import Thresholds
from reticent.data.executor import Executor
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import learning, process_executor
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.requests import Answered, Request, digest

if TYPE_CHECKING:
    import pytest

MODEL = 'name = "clinic"\n'
WITHOUT_LATER_LABELS = """
ALTER TABLE answers DROP COLUMN tickets;
ALTER TABLE journal DROP COLUMN tickets;
ALTER TABLE position DROP COLUMN labelled;
ALTER TABLE position DROP COLUMN slots;
ALTER TABLE position DROP COLUMN closed_slots;
DROP TABLE labels;
DROP TABLE labelled;
PRAGMA user_version = 2;
"""  # turns a store of version 3 into one of version 2


def predictor(rows: int = 400, learner: Any = None, **options: Any) -> EverlastingPredictor:
    X = np.random.default_rng(0).random((rows, 1))
    y = np.where(X[:, 0] < 0.5, "yes", "no")
    settings: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "classes": ("no", "yes"), "client_share": 1, **options}
    return EverlastingPredictor(learner or Thresholds(), **settings).fit(X, y)


def new_home(folder: Path, **options: Any) -> Home:
    return Home.create(folder, predictor(**options), MODEL)


def new_answering(folder: Path, *, elsewhere: bool | Executor = False, **options: Any) -> AnsweringService:
    return AnsweringService(new_home(folder, **options), elsewhere=elsewhere)


def request(rows: int = 1, key: str | None = None, client: str = "ann", seed: int = 0, body: bytes = b"") -> Request:
    return Request(client, np.random.default_rng(seed).random((rows, 1)), key, digest(body))


def learning_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixture: phases learn in forks of a process that has loaded the package.

    For tests that are not about how a process is started or killed: a new interpreter takes two seconds to load it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([learning.__name__])
    monkeypatch.setattr(process_executor, "multiprocessing", SimpleNamespace(get_context=lambda _: context))


@contextmanager
def started(then: Callable[[SpawnProcess], None] = lambda _: None) -> Iterator[list[SpawnProcess]]:
    """The processes that were started meanwhile; something may be done to each before anyone else knows of it."""
    found: list[SpawnProcess] = []
    usual = SpawnProcess.start

    def start(process: SpawnProcess) -> None:
        usual(process)
        then(process)
        found.append(process)

    SpawnProcess.start = start  # type: ignore[assignment, method-assign]
    try:
        yield found
    finally:
        SpawnProcess.start = usual  # type: ignore[method-assign]


def labels(results: Sequence[Answered | Exception]) -> list[Any]:
    found = []
    for one in results:
        if isinstance(one, Exception):
            raise one
        found.append(one.labels)
    return found
