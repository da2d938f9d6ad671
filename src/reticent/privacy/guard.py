"""A guard for objects that must not be used twice: budgets, noise of several answers, files with one writer.

Two copies of a budget spend it twice, and two copies of threshold noise let an attacker see one draw twice. Copies are
made by `copy`, `deepcopy`, `pickle` (so by joblib and multiprocessing) and by `fork`. A class with such a state derives
from `Guarded` and makes its `Guard` when it makes the budget. From then on

- the object cannot be copied or pickled by any method that asks the object (`__reduce_ex__`);
- it can be used in the process that made it, and in no process forked from that one. The check comes first, before
  data are read, noise is drawn or a lock is waited for, since a fork may leave a lock locked indefinitely.

The process that made the object is not affected. An estimator has no budget before `fit`: until then it can be copied,
pickled and used in other processes, and `sklearn.base.clone` makes an unfitted one at any time.

Why a fork is always noticed. Python runs `_count_fork` in every child that it forks, so a process that descends by k
forks from the one that made the guard has a count larger by k. It does not matter whether process ids are reused. The
process id is compared as well, for children that a library forks without Python's `os.fork`.

What a guard cannot detect: a virtual machine or container that is duplicated while it runs, copied files, and
attributes that are moved by hand from one object to another (`vars(a).update(vars(b))`). Nor does it stop a child that
is forked *within* a call, for example by an estimator of yours: the child finishes that call with its own noise.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

_forks = 0  # number of forks between the process that started Python and this one


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # the count belongs to the process
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Guard:
    """The process in which an object may be used, and the lock that serializes its threads.

    Parameters
    ----------
    kind : type
        The class of the guarded object, for messages.
    """

    def __init__(self, kind: type[Guarded]) -> None:
        self.kind = kind
        self._process = os.getpid(), _forks
        self._lock = threading.Lock()

    @property
    def elsewhere(self) -> bool:
        """Whether this process is not the one that made the guard."""
        return self._process != (os.getpid(), _forks)

    def check(self) -> None:
        """Raise `RuntimeError` in a forked process."""
        if self._process != (os.getpid(), _forks):  # not by `elsewhere`, for speed
            raise RuntimeError(
                f"{self.kind.__name__} cannot be used in a forked process: {self.kind._twice}. {self.kind._instead}"
            )

    def claim(self) -> AbstractContextManager[object]:
        """Check the process and return the lock. Use a guarded object within `with guard.claim():`."""
        self.check()
        return self._lock

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise _uncopied(self.kind)


class Guarded:
    """The base of objects that must not be used twice: see the module.

    Derived classes set `self._guard = Guard(type(self))` when they make the budget, and use the budget only within
    `with self._guard.claim():`, or after `self._guard.check()` if something else serializes threads.
    """

    _guard: Guard
    _twice: ClassVar[str] = "its budget would be spent twice"
    _instead: ClassVar[str] = "Make it in the process that uses it"

    def __reduce_ex__(self, protocol: Any) -> Any:
        if "_guard" in vars(self):
            raise _uncopied(type(self))
        return super().__reduce_ex__(protocol)


def _uncopied(kind: type[Guarded]) -> TypeError:
    return TypeError(f"{kind.__name__} cannot be copied or pickled: {kind._twice}. {kind._instead}")
