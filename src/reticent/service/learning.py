"""Learning the next phase elsewhere, while this process continues to answer."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.executor import Executor
from reticent.data.rows import Rows
from reticent.predictors import state_file
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.phases import Phase
from reticent.service.files import private
from reticent.service.halting import Interrupted
from reticent.service.home import Home
from reticent.service.process_executor import ProcessExecutor

Array = NDArray[Any]

PARTS = tuple(name for name in Rows._fields if name != "release")  # of rows, each in a file of its own
LEARNED = "learned"
TRIES = 2  # to learn a phase, if a worker is lost


class PhaseLearner:
    """Learns phases through an executor, one at a time. Rows are passed in files, and so is what was learned.

    The files are in the folder of the predictor. They hold private rows, and are removed when a phase is learned.

    Parameters
    ----------
    home : Home
        The folder of the predictor. The workers of the executor must be able to read and write it.
    executor : Executor
        Runs the learning. Its method `interrupt`, if it has one, must stop what it runs.
    **options
        Those of `EverlastingPredictor.learned`.
    """

    def __init__(self, home: Home, executor: Executor | None = None, **options: Any) -> None:
        self._home, self._options = home, options
        self._executor: Executor = ProcessExecutor() if executor is None else executor
        self._closed = threading.Event()
        self._busy = threading.Lock()

    def learn(self, phase: Phase, rows: Rows) -> tuple[dict[str, Any], dict[str, Array]]:
        """Learn the next phase from these rows: for `EverlastingPredictor.learn_elsewhere`."""
        token = secrets.token_hex(4)
        parts = {name: array for name in PARTS if (array := getattr(rows, name)) is not None}
        paths = {one: self._home.next_rows(phase.number, f"{token}.{one}") for one in (*parts, LEARNED)}
        with self._busy:
            try:
                for name, array in parts.items():
                    with open(paths[name], "wb", opener=private) as file:
                        np.save(file, array, allow_pickle=False)
                self._learn((self._home.state, phase, paths, self._options))
                learned = state_file.read(paths[LEARNED])
                return learned.header, learned.arrays
            finally:
                for path in paths.values():
                    with suppress(OSError):
                        path.unlink()

    def _learn(self, task: tuple[Any, ...]) -> None:
        for _ in range(TRIES):
            if self._closed.is_set():
                raise Interrupted("the service stops")
            try:
                list(self._executor.map(learn_from_files, [task]))
                return
            except Interrupted:
                raise
            except ChildProcessError:  # lost, through no fault of the task
                continue
        raise ChildProcessError("the worker that learns the next phase was lost, and then lost again")

    def interrupt(self) -> None:
        """Learn nothing more, and stop what is being learned if the executor can do that. From any thread."""
        self._closed.set()
        if callable(stop := getattr(self._executor, "interrupt", None)):
            stop()

    def close(self) -> None:
        """Interrupt, and return when the files of what was being learned are removed."""
        self.interrupt()
        with self._busy:
            pass


def learn_from_files(state: Path, phase: Phase, paths: Mapping[str, Path], options: Mapping[str, Any]) -> None:
    """Learn a phase: read the state and the rows, and write what was learned. A task for an executor.

    Parameters
    ----------
    state : Path
        The saved state of the phase before.
    phase : Phase
        The phase to learn.
    paths : mapping of str to Path
        The files of the rows, by the names of `Rows`, and the file to write, as "learned". All of them must be found:
        without its groups, a phase would protect rows only.
    options : mapping
        Those of `EverlastingPredictor.learned`.
    """
    rows: dict[str, Any] = {
        name: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        for name, path in paths.items()
        if name != LEARNED
    }
    header, arrays = EverlastingPredictor.learned(state, phase, Rows(**rows), **options)
    state_file.write(paths[LEARNED], header, arrays)
