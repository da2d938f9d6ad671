"""Work on private data gives no warnings, and logs only to the data holder: both would reveal the data."""

from __future__ import annotations

import copyreg
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from reticent.errors import PrivacyWarning

_working: dict[int, int] = {}  # threads in private work, and how deep; each changes its own entry only


@contextmanager
def silent() -> Iterator[None]:
    """No warnings, of Python or of NumPy, while private work is done: for a `with` block, or as a decorator.

    An estimator that warns about some of its rows reveals them; under `-W error` it even fails. What is
    said on purpose, from public numbers, is a `PrivacyWarning`, which is let through, or said outside of private work.

    Any number of threads may be at it. `warnings.catch_warnings` would not do: it swaps the filters of all threads.
    Here one filter is put in front of all others, and it stays there. At each warning it asks whether private work is
    being done, either by the thread that warns or, if that is not the main thread, by any: work is handed on to threads
    that know nothing of it, such as those of a random forest. A function that runs in another process enters
    `silent` there. An estimator may set filters of its own in `fit`, such as `warnings.simplefilter("always")`. So
    `warnings.showwarning` asks the same before a warning is shown.

    Not covered: a thread of the caller's that changes the filters or `warnings.showwarning` meanwhile, and an estimator
    that speaks by other means. It may print, write to a log, replace `warnings.showwarning`, start threads that raise
    errors, or kill the process in which it runs, which joblib reports as a `TerminatedWorkerError`. Such an estimator
    can reveal its rows.

    >>> with silent():
    ...     warnings.warn("the third row is odd")
    ...     bool(np.isnan(np.float64(np.inf) - np.inf))
    True
    """
    if not warnings.filters or warnings.filters[0][2] is not _FromPrivateWork:
        warnings.simplefilter("ignore", _FromPrivateWork)
    if not isinstance(warnings.showwarning, _Showing):
        warnings.showwarning = _Showing(warnings.showwarning)
    thread = threading.get_ident()
    _working[thread] = _working.get(thread, 0) + 1
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _working[thread] -= 1
        if not _working[thread]:
            del _working[thread]


def _in_private_work() -> bool:
    thread = threading.get_ident()
    return thread in _working or (bool(_working) and thread != threading.main_thread().ident)


def _in_a_child() -> None:
    """Of the threads of its parent, a child has the one that forked it."""
    thread = threading.get_ident()
    others = [one for one in _working if one != thread]
    for one in others:
        del _working[one]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_child)


class _Asking(type):
    """The type of a category to which warnings belong while private work is done, and none at other times."""

    def __subclasscheck__(cls, category: type) -> bool:
        return _in_private_work() and not issubclass(category, PrivacyWarning)


class _FromPrivateWork(Warning, metaclass=_Asking):
    """What the filter matches."""


class _Showing:
    """A `warnings.showwarning` that shows what the one before it shows, but nothing from private work."""

    def __init__(self, before: Callable[..., None]) -> None:
        self.before = before

    def __call__(self, message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, _FromPrivateWork):
            self.before(message, category, *where, **more)


def _any_warning() -> type[Warning]:
    return Warning


def _as_sent(category: type) -> tuple[Any, ...]:
    return _any_warning, ()


# Scikit-learn hands its filters on to the processes that it starts. They are sent out of private work only, and are in
# it for as long as they have these filters: there, every warning is meant.
copyreg.pickle(_Asking, _as_sent)


def holders_log(name: str) -> logging.Logger:
    """A log about private data. Its lines go to the handlers that are added to this very logger, and nowhere else.

    Lines of other loggers are passed on to those above, and if there is no handler Python prints them. So a program
    that merely logs, or does nothing, would publish these.
    """
    log = logging.getLogger(name)
    log.propagate = False
    log.addHandler(logging.NullHandler())
    return log
