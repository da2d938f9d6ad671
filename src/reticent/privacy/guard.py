"""One guard for all that must not be used twice: budgets, noise of several answers, files with one writer.

Two copies of a budget spend it twice, and two copies of threshold noise give an attacker two looks at one draw. Copies
come about by `copy`, `deepcopy`, `pickle` (so by joblib and multiprocessing) and by `fork`. A class that holds such a
thing derives from `Guarded` and makes its `Guard` at the moment at which it makes the budget. From then on

- the object cannot be copied or pickled, by any way that asks the object (`__reduce_ex__`);
- it can be used in the process that made it, and in no process forked from that one. The check comes first, before
  data are looked at, noise is drawn or a lock is waited for, which a fork may have left locked for ever.

The process that made it goes on as if nothing had happened. An estimator has no budget before `fit`: until then it can
be copied, pickled and taken along into other processes, and `sklearn.base.clone` makes an unfitted one at any time.

Why a fork is always noticed. Python runs `_count_fork` in every child that it forks, so a process that descends from
the one that made the guard by k forks has a count larger by k. It does not matter whether ids of processes are used
again. The id of the process is compared as well, for children that a library forks behind Python's back.

What no guard can see: a virtual machine or a container that is duplicated while it runs, files that are copied, and
attributes that are moved by hand from one object to another (`vars(a).update(vars(b))`). Nor does it stop a child that
was forked *within* a call, by an estimator of yours say: it ends that call with noise of its own.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

_forks = 0  # between the process that started Python and this one


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # the process is what it counts for
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Guard:
    """The process in which an object may be used, and the lock that keeps its threads apart."""

    def __init__(self, kind: type[Guarded]) -> None:
        self.kind = kind
        self._process = os.getpid(), _forks
        self._lock = threading.Lock()

    @property
    def elsewhere(self) -> bool:
        """Whether this is another process than the one that made the guard."""
        return self._process != (os.getpid(), _forks)

    def check(self) -> None:
        """Raise `RuntimeError` in a forked process."""
        if self._process != (os.getpid(), _forks):  # and not by `elsewhere`: this is called at every use
            raise RuntimeError(
                f"{self.kind.__name__} cannot be used in a forked process: {self.kind._twice}. {self.kind._instead}"
            )

    def claim(self) -> AbstractContextManager[object]:
        """Check the process and return the lock: `with guard.claim():` is how a guarded object is used."""
        self.check()
        return self._lock

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise _uncopied(self.kind)


class Guarded:
    """An object with a `Guard`, once it holds what must not be used twice: see the module.

    Derived classes set `self._guard = Guard(type(self))` together with the budget, and use the budget only within
    `with self._guard.claim():`, or after `self._guard.check()` where something else keeps threads apart.
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
