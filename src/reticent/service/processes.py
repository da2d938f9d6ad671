"""Starting processes that end with the one that started them, however that ends, and folders that go with them.

A process that is killed cleans nothing up. So each process that we start holds the end of a pipe whose other end only
its parent has: the system closes that when the parent is gone, whatever ended it, and the child sees it.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Self

PATIENCE = 45.0  # seconds that a process has to end in good order, before it is killed
TERMINATED = 128 + signal.SIGTERM  # what a shell says of a process that was


# ── in the process that starts others ─────────────────────────────────────────────────────────────────────────────


class Child:
    """Python in a process of its own, which ends with this block, or with this process if that ends first.

    It is sent SIGTERM, and killed if it has not ended some time after. Ctrl-C at the terminal is for this process
    alone, which then lets the child end in good order.

    Parameters
    ----------
    command : what to run and its arguments: a module, as in `python -m`, or a script, by a path that ends in .py.
    environment, stdout : as for `subprocess.Popen`.
    folder : a folder that is not removed before the child has ended.
    """

    def __init__(
        self,
        *command: str,
        environment: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] | None = None,
        folder: Folder | None = None,
    ) -> None:
        watched, self._alive = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(watched), *command],
                start_new_session=True,
                pass_fds=(watched,) if folder is None else (watched, folder.held),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
            )
        except BaseException:
            os.close(self._alive)
            raise
        finally:
            os.close(watched)

    def end(self, patience: float = PATIENCE) -> int:
        """Let the child end, and wait until it has; its exit code."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            if self._alive >= 0:
                os.close(self._alive)
                self._alive = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Folder:
    """A temporary folder, which is removed when this process and all children that hold it have ended, however they do.

    A small process of its own waits for that, so the folder goes even if everybody else is killed.
    """

    def __init__(self, prefix: str, where: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        waiting, self.held = os.pipe()
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEPER, str(self.path)], start_new_session=True, stdin=waiting
            )
        except BaseException:
            os.close(self.held)
            self.path.rmdir()
            raise
        finally:
            os.close(waiting)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        os.close(self.held)
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(PATIENCE)
        shutil.rmtree(self.path, ignore_errors=True)  # if someone has ended the keeper


_KEEPER = """
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range(100):  # a process that is about to end may still write
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@contextmanager
def ending_in_good_order(code: int = TERMINATED) -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a closed terminal, end this process by an exception, so that all is cleaned up.

    Only the first SIGTERM counts, so that cleaning up is not cut short. What is ignored stays ignored, as under nohup.
    Outside of the main thread, which receives no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(code)

    def hang_up(*_: object) -> None:  # a server that waits for SIGTERM receives it
        os.kill(os.getpid(), signal.SIGTERM)

    before = {}
    for number, handler in ((signal.SIGTERM, terminate), (signal.SIGHUP, hang_up)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


# ── in the process that is started ────────────────────────────────────────────────────────────────────────────────


def end_with_parent() -> None:
    """For a process of multiprocessing: end as soon as its parent has. Signals of a terminal are for the parent."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _run(watched: int, what: str, arguments: list[str]) -> None:
    """Run a module or a script in this process, until it ends or the parent does."""
    threading.Thread(target=_terminate_after, args=(watched,), daemon=True).start()
    sys.argv = [what, *arguments]
    if what.endswith(".py"):
        sys.path[0] = str(Path(what).parent)
        runpy.run_path(what, run_name="__main__")
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _terminate_after(watched: int) -> None:
    os.read(watched, 1)  # nothing is ever written: it returns when nobody can write any more
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)


if __name__ == "__main__":
    _run(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
