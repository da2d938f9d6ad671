"""A test of any executor: whether it keeps what `Executor` promises."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.executor import Executor
from reticent.silence import silent

TASKS = 24
PATIENCE = 0.02  # seconds by which earlier tasks take longer than later ones


class ExecutorCheckFailed(AssertionError):
    """An executor breaks a promise; the message says which."""


class ExecutorChecked(NamedTuple):
    """What a check has gone through."""

    workers: int
    tasks: int


def check_executor(executor: Executor) -> ExecutorChecked:
    """Test an executor, and raise `ExecutorCheckFailed` if it breaks a promise.

    It checks that

    - `workers` is a whole number of at least 1, the same each time;
    - there is one result per task, in the order of the tasks, also when later tasks finish first, when there is one
      task, and when there is none;
    - functions and tasks are those of a module, and `executor.map` is called with them alone: no closure is needed;
    - an exception of a task is raised for the caller, with its type and arguments, and the executor works afterwards;
    - no state is shared: a task that writes into its arguments changes those of no other task, and two equal tasks
      give two results that share no memory;
    - `silent()` holds in workers: private work warns nobody, not even where warnings are errors.

    >>> from reticent.data.executor import ThreadExecutor
    >>> check_executor(ThreadExecutor(2)).workers
    2
    """
    if not isinstance(executor, Executor):
        raise ExecutorCheckFailed(f"an executor has workers and map, {type(executor).__name__} does not")
    ran = sum(check(executor) for check in (_workers, _order, _exceptions, _state, _silence))
    return ExecutorChecked(executor.workers, ran)


# ── what tasks do: functions of a module, which pickle by their name ──────────────────────────────────────────────


def _late_square(number: int, delay: float) -> int:
    time.sleep(delay)
    return number * number


def _fails_at(number: int, bad: int) -> int:
    if number == bad:
        raise LookupError("task", number)
    return number


def _filled(array: NDArray[Any], number: int) -> NDArray[Any]:
    """Writes into its argument, as an estimator that works in place does."""
    seen = array.copy()
    array[:] = number
    return np.stack([seen, array])


@silent()
def _complains(number: int) -> float:
    warnings.warn(f"row {number} is odd", UserWarning, stacklevel=1)
    return float(np.float64(number) / np.float64(0) if number else 0.0)


# ── what is checked ───────────────────────────────────────────────────────────────────────────────────────────────


def _workers(executor: Executor) -> int:
    found = [executor.workers, executor.workers]
    _insist(
        all(isinstance(one, int) and one >= 1 for one in found) and found[0] == found[1],
        "workers must be a whole number of at least 1, and stay the same",
    )
    return 0


def _order(executor: Executor) -> int:
    for count in (0, 1, TASKS):
        tasks = [(number, PATIENCE * (count - number) / TASKS) for number in range(count)]
        found = list(executor.map(_late_square, iter(tasks)))
        _insist(len(found) == count, f"map must give one result per task: {count} tasks gave {len(found)} results")
        _insist(
            found == [number * number for number in range(count)], "map must give results in the order of the tasks"
        )
    return TASKS + 1


def _exceptions(executor: Executor) -> int:
    raised = _raised(lambda: list(executor.map(_fails_at, ((number, 3) for number in range(6)))))
    _insist(
        type(raised) is LookupError and raised.args == ("task", 3),
        f"map must raise the exception of a task, of its type and with its arguments; got {type(raised).__name__}",
    )
    found = list(executor.map(_fails_at, ((number, -1) for number in range(6))))
    _insist(found == list(range(6)), "map must work after a task has failed")
    return 12


def _state(executor: Executor) -> int:
    found = list(executor.map(_filled, _fresh_arrays()))
    for number, (before, after) in enumerate(found):
        _insist(
            not before.any() and bool((after == number + 1).all()),
            "tasks must share no state: one found in its arguments what another wrote",
        )
    alike = list(executor.map(_filled, ((np.zeros(3), 1) for _ in range(TASKS))))
    apart = all(
        not np.shares_memory(one, other) for place, one in enumerate(alike) for other in alike[place + 1 :]
    )
    _insist(apart, "tasks must share no state: two equal tasks gave results that share memory")
    return 2 * TASKS


def _fresh_arrays() -> Iterator[tuple[Any, ...]]:
    return ((np.zeros(3), number + 1) for number in range(TASKS))


def _silence(executor: Executor) -> int:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        found = list(executor.map(_complains, ((number,) for number in range(TASKS))))
    _insist(not shown, "silent() must hold in workers: a warning of private work was shown")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        raised = _raised(lambda: list(executor.map(_complains, ((number,) for number in range(TASKS)))))
    _insist(raised is None, "silent() must hold in workers: a warning of private work became an error")
    _insist(found == [0.0, *[float("inf")] * (TASKS - 1)], "map must give the results of silent functions")
    return 2 * TASKS


def _raised(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def _insist(kept: bool, promise: str) -> None:
    if not kept:
        raise ExecutorCheckFailed(promise)
