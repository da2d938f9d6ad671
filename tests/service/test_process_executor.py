"""The executor that runs each task in a new process, and learning a phase through any executor."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from shop import labels, new_answering, request, started

from reticent.data import checking
from reticent.data.checking import check_executor
from reticent.data.rows import Rows
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import traces
from reticent.service.halting import Interrupted
from reticent.service.learning import PhaseLearner, learn_from_files
from reticent.service.process_executor import ProcessExecutor, WorkerCrashed, WorkerLost


class Unsendable(Exception):
    def __init__(self) -> None:
        super().__init__("a secret", lambda: None)


def fail_unsendably() -> None:
    raise Unsendable


@pytest.mark.slow
def test_an_error_that_cannot_be_sent_is_reported_by_its_type_and_location() -> None:
    with pytest.raises(WorkerCrashed, match="could not report why it failed") as failed:
        ProcessExecutor().map(fail_unsendably, [()])
    trace = traces.rendered(failed.value)
    assert "Unsendable" in trace
    assert "in fail_unsendably" in trace
    assert "a secret" not in trace


@pytest.mark.slow
def test_it_is_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "TASKS", 3)  # each task starts an interpreter
    assert check_executor(ProcessExecutor()).workers == 1


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGKILL, WorkerLost), (signal.SIGTERM, WorkerLost), (signal.SIGSEGV, WorkerCrashed)]
)
def test_a_process_that_ends_without_a_result(number: signal.Signals, error: type[Exception]) -> None:
    with pytest.raises(error):
        ProcessExecutor().map(signal.raise_signal, [(number,)])


def test_interrupted_it_stops_the_current_task_and_runs_no_other() -> None:
    executor = ProcessExecutor()
    with started(lambda _: threading.Timer(0.1, executor.interrupt).start()), pytest.raises(Interrupted):
        executor.map(signal.pause, [()])
    assert executor.process is None
    with pytest.raises(Interrupted):
        executor.map(abs, [(-1,)])


# ── learning through an executor of one's own ─────────────────────────────────────────────────────────────────────


class Recorder:
    """Runs tasks in this process; loses its worker the first `lost` times."""

    workers = 1

    def __init__(self, lost: int = 0) -> None:
        self.lost, self.interrupted = lost, False
        self.phases: list[int] = []

    def map(self, function: Any, tasks: Any) -> list[Any]:
        found: list[Any] = []
        for task in tasks:
            assert function is learn_from_files
            self.phases.append(task[1].number)
            if len(self.phases) <= self.lost:
                raise ChildProcessError("a node is gone")
            found.append(function(*task))
        return found

    def interrupt(self) -> None:
        self.interrupted = True


@pytest.mark.parametrize(("lost", "phases"), [(0, [2]), (1, [2, 2])])
def test_a_phase_is_learned_by_the_executor_that_is_given(tmp_path: Path, lost: int, phases: list[int]) -> None:
    executor = Recorder(lost)
    answering = new_answering(tmp_path / "clinic", elsewhere=executor)
    with started() as processes:
        labels(answering.answer([request(answering.status().answers_left_in_phase)]))
        answering.maintain()
    assert (answering.status().phase, answering.halted) == (2, None)
    assert (executor.phases, processes) == (phases, [])
    assert list((tmp_path / "clinic").glob("next-*")) == []
    answering.close()
    assert executor.interrupted


@pytest.mark.parametrize("missing", ["X", "class_indices", "groups"])
def test_a_worker_that_does_not_find_a_file_learns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """A phase learned without its groups would protect rows alone, and nobody would know."""
    learned: list[Rows] = []

    def learn(state: Path, phase: Any, rows: Rows, **options: Any) -> Any:
        learned.append(rows)
        return {}, {}

    monkeypatch.setattr(EverlastingPredictor, "learned", learn)
    arrays = {"X": np.zeros((4, 1)), "class_indices": np.zeros(4, dtype=np.int64), "groups": np.arange(4)}

    class Elsewhere(Recorder):
        """Runs tasks where the files of this folder are not all seen yet, as on a file system of a network."""

        def map(self, function: Any, tasks: Any) -> list[Any]:
            def without(state: Path, phase: Any, paths: Any, options: Any) -> Any:
                paths[missing].unlink(missing_ok=True)
                return function(state, phase, paths, options)

            return [without(*task) for task in tasks]

    class Folder:
        state = tmp_path / "state"

        def next_rows(self, phase: int, what: str) -> Path:
            return tmp_path / f"next-{phase}.{what}"

    learner = PhaseLearner(cast(Any, Folder()), Elsewhere())
    with pytest.raises(FileNotFoundError):
        learner.learn(cast(Any, SimpleNamespace(number=2)), Rows(**cast(Any, arrays)))
    assert learned == []
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_is_lost_each_time_is_a_fault_of_the_system(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", elsewhere=Recorder(lost=9))
    labels(answering.answer([request(answering.status().answers_left_in_phase)]))
    answering.maintain()
    assert answering.halt is not None
    assert (answering.halt.kind, answering.halt.type) == ("system", "ChildProcessError")
    answering.close()
