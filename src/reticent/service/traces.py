"""How errors are logged: by type and location in the program. A message may hold data, and is left out."""

from __future__ import annotations

import dis
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("reticent.service")

OURS = "reticent"  # loggers of this name, and below it, write messages that were written here
RAISE = dis.opmap["RAISE_VARARGS"]  # the instruction of a `raise`
ELSEWHERE = "reticent_trace"  # the attribute of an error with what `rendered` returned in the process it comes from


def rendered(error: BaseException) -> str:
    """An error, what it was caused by and what it is a group of: each by its type and location, none by its message.

    >>> try:
    ...     {}["a secret"]
    ... except KeyError as error:
    ...     print(rendered(error).splitlines()[0])
    KeyError
    """
    return "\n".join(_lines(error, set()))


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    yield type(error).__qualname__
    yield from (f"  at {place}" for place in locations(error.__traceback__))
    if isinstance(there := getattr(error, ELSEWHERE, None), str):
        yield from ("  in another process:", *(f"    {line}" for line in there.splitlines()))
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            if id(one) not in seen:
                yield from (f"  | {line}" for line in _lines(one, seen))
    before = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    if before is not None and id(before) not in seen:
        how = "caused by" if before is error.__cause__ else "while handling"
        first, *others = _lines(before, seen)
        yield from (f"{how} {first}", *others)


def locations(trace: TracebackType | None) -> list[str]:
    """Where an error passed, the outermost location first: module, line and function."""
    found = []
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_globals.get("__name__", "?")
        found.append(f"{module}:{trace.tb_lineno} in {frame.f_code.co_qualname}")
        trace = trace.tb_next
    return found


def message_of(error: BaseException) -> str:
    """The message of an error that was raised here, on purpose; of any other its types and locations.

    Messages of this package repeat no data. Those of Python and of other libraries may: `float("a secret")`.

    >>> try:
    ...     float("a secret")
    ... except ValueError as error:
    ...     print(message_of(error).splitlines()[0])
    ValueError
    """
    return str(error) if _ours(error.__traceback__) else rendered(error)


def _ours(trace: TracebackType | None) -> bool:
    """Whether an error comes from a `raise` in this package."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] == OURS and frame.f_code.co_code[trace.tb_lasti] == RAISE


class LocationFormatter(logging.Formatter):
    """Formats records: ours with their message, all others by where they were logged; errors as `rendered`.

    Other libraries put errors into their messages: asyncio the error of a task, uvicorn the report of a lifespan.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        ours = record.name == OURS or record.name.startswith(f"{OURS}.")
        what = record.getMessage() if ours else f"{record.module}:{record.lineno} in {record.funcName}"
        text = f"{record.levelname}: {record.name}: {what}"
        error = record.exc_info[1] if record.exc_info else None
        return text if error is None else f"{text}\n{rendered(error)}"


def log_by_location() -> None:
    """Make the loggers of a server write locations, not messages, whatever the rest of the process does.

    Only these loggers change. `logging.config` would close every other handler of the process as well, and some
    handlers close the stream that they write to.
    """
    for name in ("uvicorn", "asyncio"):
        handler = logging.StreamHandler()
        handler.setFormatter(LocationFormatter())
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.WARNING)
        logger.propagate = False


@contextmanager
def by_location() -> Iterator[None]:
    """Log errors and warnings of this process by type and location, on standard error.

    It sets the handler of the root logger, and the hooks of Python for errors that nobody caught, and restores both at
    the end. It is for a process of our own, such as a server or a process that learns.
    """
    root, handler = logging.getLogger(), logging.StreamHandler()
    handler.setFormatter(LocationFormatter())
    handlers, level, loud = root.handlers[:], root.level, logging.raiseExceptions
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.raiseExceptions = False  # else an error in logging prints the message that it could not format
    sys.excepthook, sys.unraisablehook, threading.excepthook = _uncaught, _unraisable, _uncaught_in_thread
    warnings.showwarning = _warned
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.raiseExceptions = loud
        sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning = hooks


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Make an event loop log errors in tasks and callbacks by type and location."""
    loop.set_exception_handler(_uncaught_in_loop)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("an error that was not expected ends this process\n%s", rendered(error.with_traceback(trace)))


def _unraisable(what: Any) -> None:
    if what.exc_value is not None:
        log.error("an error that nobody can catch\n%s", rendered(what.exc_value))


def _uncaught_in_thread(what: Any) -> None:
    if what.exc_value is not None and not isinstance(what.exc_value, SystemExit):
        log.error("an error that was not expected ends a thread\n%s", rendered(what.exc_value))


def _uncaught_in_loop(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    shown = rendered(error) if isinstance(error, BaseException) else "without an error"
    log.error("an error that was not expected in the event loop\n%s", shown)


def _warned(  # noqa: PLR0917  # as Python calls it
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    log.warning("%s at %s:%s", category.__qualname__, filename, lineno)
