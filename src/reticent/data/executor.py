"""Executors: who does the work on shards. One function is mapped over tasks, in this process or elsewhere.

Training, counting votes and learning from the rows of a phase are tasks that need nothing of each other. They all go
through an `Executor`: joblib or threads today, a cluster of yours tomorrow. Every parameter `n_jobs` takes one.
`check_executor` tests whether an executor keeps what is promised here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from joblib import Parallel, delayed, effective_n_jobs

from reticent.exact import as_count, integer

R = TypeVar("R")


@runtime_checkable
class Executor(Protocol):
    """Maps a function over tasks.

    Tasks hold private rows. So an executor must not log them, write them to a disk that others can read, or let the
    result of one task depend on another.
    """

    @property
    def workers(self) -> int:
        """How many tasks can run at the same time. Work is cut into tasks by this number, which is public."""

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]) -> Iterable[R]:
        """Call `function(*task)` for each task.

        Parameters
        ----------
        function : callable
            A function at the top level of a module, or a method of an object that can be pickled. It shares no state.
        tasks : iterable of tuples
            The arguments of each call. Take them one by one, as workers become free: all of them together may be
            larger than memory.

        Returns
        -------
        results : iterable
            One result per task, in the order of the tasks. An exception of a task is raised here, with its type and
            arguments.
        """


class JoblibExecutor:
    """Runs tasks through joblib: in this process, in others, or wherever `joblib.parallel_config` says.

    Parameters
    ----------
    n_jobs : int or None, default None
        As for joblib: None is 1 unless `joblib.parallel_config` says otherwise, −1 is all processors.

    >>> list(JoblibExecutor().map(divmod, [(7, 2), (9, 4)]))
    [(3, 1), (2, 1)]
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        if n_jobs is not None and as_count(n_jobs, "n_jobs", otherwise="an Executor") == 0:
            raise ValueError("n_jobs must be None, 1 or more, or below 0 to count back from all processors, got 0")
        self.n_jobs = n_jobs

    @property
    def workers(self) -> int:
        """How many tasks can run at the same time."""
        return int(effective_n_jobs(self.n_jobs))

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]) -> list[R]:
        """Call `function(*task)` for each task; the results in order. A single task runs in this process."""
        if self.workers == 1:
            return [function(*task) for task in tasks]
        waiting = iter(tasks)
        first = list(islice(waiting, 2))
        if len(first) < 2:
            return [function(*task) for task in first]
        found: list[R] = Parallel(n_jobs=self.n_jobs)(delayed(function)(*task) for task in chain(first, waiting))
        return found


class ThreadExecutor:
    """Runs tasks in threads of this process, the first of them in the thread that asks.

    For work in NumPy, which releases Python's lock. The threads are kept, since to start one takes as long as a part of
    the counting. All tasks are taken at once.

    Parameters
    ----------
    threads : int or None, default None
        How many; None for one per processor.

    >>> ThreadExecutor(2).map(pow, [(2, 3), (2, 4), (2, 5)])
    [8, 16, 32]
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = None if threads is None else integer(threads, "threads", least=1)

    @property
    def workers(self) -> int:
        """How many tasks can run at the same time."""
        return self.threads or os.cpu_count() or 1

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]) -> list[R]:
        """Call `function(*task)` for each task; the results in order."""
        waiting = list(tasks)
        pending = [_threads(self.workers).submit(function, *task) for task in waiting[1:]]
        return [function(*task) for task in waiting[:1]] + [one.result() for one in pending]


@lru_cache(maxsize=8)
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="reticent-votes")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads


def as_executor(n_jobs: int | Executor | None, *, in_threads: bool = False) -> Executor:
    """The executor that a parameter `n_jobs` names: itself if it is one, else joblib with that number of jobs.

    With `in_threads`, for work in NumPy that gains nothing from other processes, threads take the place of joblib.

    Parameters
    ----------
    n_jobs : int, Executor or None
        As for joblib, or an executor.
    in_threads : bool, default False
        Whether threads take the place of joblib, for work in NumPy.
    """
    if n_jobs is not None and isinstance(n_jobs, Executor):  # None first: to ask a protocol takes long
        return n_jobs
    joblib = JoblibExecutor(n_jobs)
    return ThreadExecutor() if in_threads else joblib
