"""An executor that runs each task in a new process, which can be stopped from outside."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from reticent.service import traces
from reticent.service.halting import Interrupted
from reticent.service.processes import end_with_parent

R = TypeVar("R")

# Signals of a system that is out of memory, of a supervisor that stops all processes of a service, and of a terminal
# that is closed. A process that ends by any other has crashed.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class WorkerLost(ChildProcessError):
    """Something outside of the program killed the process of a task. The task may be tried again."""


class WorkerCrashed(RuntimeError):
    """The process of a task ended by itself: an error in a learner, or in a library that it uses."""


class ProcessExecutor:
    """Runs tasks one after another, each in a new process that starts with a fresh interpreter.

    It is an `Executor` (see docs/extending/executor.md). A process ends with the one that started it, however that
    ends. Its log of errors and warnings names types and locations, never data.

    Attributes
    ----------
    process : SpawnProcess or None
        The process of the current task.
    """

    workers = 1

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.process: SpawnProcess | None = None

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]) -> list[R]:
        """Call `function(*task)` for each task; the results in order.

        Raises the exception of a task, `WorkerLost` or `WorkerCrashed` if its process ends before it has a result, and
        `Interrupted` after `interrupt`.
        """
        return [self._run(function, task) for task in tasks]

    def interrupt(self) -> None:
        """Run nothing more, and stop the current task. From any thread."""
        self._stopped.set()
        if (process := self.process) is not None:
            process.terminate()

    def _run(self, function: Callable[..., R], task: tuple[Any, ...]) -> R:
        self._check_running()
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_work, args=(theirs, function, task), daemon=True)
        with ours:
            process.start()
            theirs.close()
            self.process = process
            if self._stopped.is_set():
                process.terminate()
            try:
                result, error = ours.recv()
            except EOFError:
                process.join()
                self._check_running()
                if -(process.exitcode or 0) in FROM_OUTSIDE:
                    raise WorkerLost("the process of a task was killed") from None
                raise WorkerCrashed(f"the process of a task ended with {process.exitcode}") from None
            finally:
                process.join()
                self.process = None
        if error is not None:
            raise error
        found: R = result
        return found

    def _check_running(self) -> None:
        if self._stopped.is_set():
            raise Interrupted("the service stops")


def _work(results: Connection, function: Callable[..., Any], task: tuple[Any, ...]) -> None:
    """Runs in the other process: sends the result of the task and its exception, one of them None."""
    end_with_parent()  # or it would continue, and leave files behind, after the server was killed
    with traces.by_location():
        try:
            outcome: tuple[Any, Exception | None] = function(*task), None
        except Exception as error:
            outcome = None, _that_pickles(error)
        results.send(outcome)


def _that_pickles(error: Exception) -> Exception:
    """The error, with its types and locations in this process; another error in its place if it cannot be sent."""
    trace = traces.rendered(error)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # not every error can be sent
        error = WorkerCrashed("the process of a task could not report why it failed")
    setattr(error, traces.ELSEWHERE, trace)
    return error
