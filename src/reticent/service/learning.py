"""Learning the next phase in another process, while this one continues to answer."""

from __future__ import annotations

import multiprocessing
import pickle
import secrets
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.rows import Rows
from reticent.predictors import state_file
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import Phase
from reticent.service import traces
from reticent.service.files import private
from reticent.service.halting import Interrupted
from reticent.service.home import Home
from reticent.service.processes import end_with_parent

Array = NDArray[Any]

FILES = ("X", "class_indices", "groups")  # of rows
TRIES = 2  # to learn a phase, if the process that learns is killed
# Signals of a system that is out of memory, of a supervisor that stops all processes of a service, and of a terminal
# that is closed. A process that ends by any other has crashed.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Crashed(RuntimeError):
    """The process that learns ended by itself: an error in a learner, or in a library that it uses."""


class Learning:
    """Learns phases in another process, one at a time. Rows are passed in files, and so is what was learned.

    `options` are those of `EverlastingPredictor.learned`. `process` is the one that learns now, or None.
    """

    def __init__(self, home: Home, **options: Any) -> None:
        self._home, self._options = home, options
        self._closed = threading.Event()
        self._busy = threading.Lock()
        self.process: SpawnProcess | None = None

    def learn(self, phase: Phase, rows: Rows) -> tuple[dict[str, Any], dict[str, Array]]:
        """Learn the next phase from these rows: for `EverlastingPredictor.learn_elsewhere`."""
        token = secrets.token_hex(4)
        paths = {one: self._home.next_rows(phase.number, f"{token}.{one}") for one in (*FILES, "learned")}
        with self._busy:
            try:
                for name in FILES:
                    if (array := getattr(rows, name)) is not None:
                        with open(paths[name], "wb", opener=private) as file:
                            np.save(file, array, allow_pickle=False)
                for _ in range(TRIES):
                    if self.run(phase, paths):
                        learned = state_file.read(paths["learned"])
                        return learned.header, learned.arrays
                raise ChildProcessError("the process in which the next phase learns was killed, and then killed again")
            finally:
                for path in paths.values():
                    with suppress(OSError):
                        path.unlink()

    def run(self, phase: Phase, paths: dict[str, Path]) -> bool:
        """Run the other process; return whether it finished. Its errors are raised here."""
        if self._closed.is_set():
            raise Interrupted("the service stops")
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe(duplex=False)
        given = theirs, self._home.state, phase, paths, self._options
        process = spawn.Process(target=_learn, args=given, daemon=True)
        with ours:
            process.start()
            theirs.close()
            self.process = process
            if self._closed.is_set():
                process.terminate()
            try:
                error, trace = ours.recv()
            except EOFError:
                process.join()
                if self._closed.is_set():
                    raise Interrupted("the service stops") from None
                if -(process.exitcode or 0) in FROM_OUTSIDE:
                    return False
                raise Crashed(f"the process in which the next phase learns ended with {process.exitcode}") from None
            finally:
                process.join()
                self.process = None
        if trace is not None:
            error = error or Crashed("the process in which the next phase learns could not report why it failed")
            setattr(error, traces.ELSEWHERE, trace)
            raise error
        return True

    def interrupt(self) -> None:
        """Learn nothing more, and stop waiting for what is being learned. From any thread."""
        self._closed.set()
        if (process := self.process) is not None:
            process.terminate()

    def close(self) -> None:
        """Interrupt, and return when the files of what was being learned are removed."""
        self.interrupt()
        with self._busy:
            pass


def _learn(results: Connection, state: Path, phase: Phase, paths: dict[str, Path], options: dict[str, Any]) -> None:
    """Runs in the other process: reads the state and the rows, learns, and writes what it has learned."""
    end_with_parent()  # or it would continue to learn, and leave a file behind, after the server was killed
    with traces.by_place():
        results.send(_tried(state, phase, paths, options))


def _tried(
    state: Path, phase: Phase, paths: dict[str, Path], options: dict[str, Any]
) -> tuple[Exception | None, str | None]:
    """The error, if there was one that another process can read, and its types and locations."""
    try:
        X, codes, groups = (
            np.load(paths[name], mmap_mode="r", allow_pickle=False) if paths[name].exists() else None for name in FILES
        )
        header, arrays = EverlastingPredictor.learned(
            state, phase, Rows(np.asarray(X), np.asarray(codes), groups), **options
        )
        state_file.write(paths["learned"], header, arrays)
    except Exception as error:
        trace = traces.rendered(error)
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # not every error can be sent
            return None, trace
        return error, trace
    return None, None
