"""The command line of reticent with faults in it: run by test_halting in a process of its own.

    FAULTS=… python faulty.py serve NAME --port PORT

Every error has the marker in its message, in what caused it, and in what it is a group of. With TWIN set, errors are
written down as Python and its libraries do by themselves.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import logging.config
import os
import signal
import sys
import threading
import traceback
import warnings
from contextlib import nullcontext
from typing import Any

import uvicorn

from reticent import cli
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import answering, traces
from reticent.service.http import routes, service
from reticent.service.http.batching import Batcher
from reticent.service.http.calls import Call
from reticent.service.store import protocol, sqlite

MARKER = "m4rk3r"
FAULTS = os.environ.get("FAULTS", "").split(",")


def fail(*_: Any, **__: Any) -> Any:
    try:
        raise KeyError(MARKER)
    except KeyError as error:
        raise ExceptionGroup(MARKER, [ValueError(MARKER), Odd(MARKER, error)]) from error


class Odd(Exception):
    """One that cannot be sent to another process."""

    def __init__(self, message: str, cause: Exception) -> None:
        super().__init__(message)
        self.__cause__ = cause


class Dying:
    def __del__(self) -> None:
        fail()


async def in_task() -> None:
    fail()


def in_thread() -> None:
    fail()


def in_callback() -> None:
    fail()


async def everywhere(self: service.Service, call: Call) -> Any:
    """Fail wherever nobody catches it, and then here."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(in_task())
    await asyncio.wait([task])
    del task  # nobody has looked at its error
    loop.call_soon(in_callback)
    thread = threading.Thread(target=in_thread)
    thread.start()
    await asyncio.to_thread(thread.join)
    Dying()
    warnings.warn(MARKER, stacklevel=1)
    logging.getLogger("someone.else").error("about %s", MARKER, exc_info=ValueError(MARKER))
    logging.getLogger("someone.else").error("too few %s %s", MARKER)  # noqa: PLE1206  # which logging itself complains of
    logging.getLogger("reticent.service").error("ours", exc_info=ValueError(MARKER))
    return fail()


def full(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"/{MARKER}")


def no_descriptors(*_: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), f"/{MARKER}")


def torn(*_: Any) -> Any:
    raise protocol.Damaged(MARKER)


def end_by(number: int) -> Any:
    return lambda *_, **__: os.kill(os.getpid(), number)


def put_in() -> None:
    """At the top of this file, so that the process that learns has them too."""
    places: dict[str, tuple[Any, str, Any]] = {
        "app": (service.Service, "server", everywhere),
        "asgi": (routes.Endpoint, "__call__", fail),
        "answering": (EverlastingPredictor, "answer", fail),
        "lifespan": (Batcher, "close", fail),
        "open": (answering.AnsweringService, "__init__", fail),
        "full": (sqlite.SQLiteStore, "write", full),
        "descriptors": (answering, "save_phase", no_descriptors),
        "torn": (sqlite.SQLiteStore, "stored_answer", torn),
        "learner": (EverlastingPredictor, "learned", fail),
        "crash": (EverlastingPredictor, "learned", end_by(signal.SIGSEGV)),
        "killed": (EverlastingPredictor, "learned", end_by(signal.SIGKILL)),
    }
    real = routes.Endpoint.__call__

    async def only_live(self: Any, *args: Any) -> None:
        if self._name == "live":
            fail()
        await real(self, *args)

    places["asgi"] = (routes.Endpoint, "__call__", only_live)
    for name in filter(None, FAULTS):
        setattr(*places[name])
    if os.environ.get("TWIN"):
        twin: Any = traces
        twin.rendered = lambda error: "".join(traceback.format_exception(error))
        twin.by_location, twin.watch = nullcontext, lambda loop: None
        twin.log_by_location = lambda: logging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)


put_in()

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
