"""Processes that start at once: forks of one that has loaded the package and all that it uses.

A new interpreter takes two seconds of processor time to load scikit-learn and its own dependencies. Tests start dozens
of processes, and few of those tests are about how a process starts. So one process for each worker of pytest loads
everything, and then forks whenever a test needs a process. It has drawn no noise, opened no store and started no
thread before.

    run("-m", "reticent.cli", "status")     as `subprocess.run`, with captured text
    with Process("script.py", "a", "b"):    as `subprocess.Popen`; killed at the end of the block if it still runs
    commands()                              a folder to put first in PATH: its `reticent` is such a process, too

The words after the name are those of `python`: `-m MODULE`, `-c CODE`, or a script.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

LONGEST = 1 << 17  # bytes of a message: the words, the environment
PATHS = (str(Path(__file__).parent), str(Path(__file__).with_name("service")))


# ── in a test ─────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def address() -> str:
    """Where the process that forks listens. It is started when it is first needed, and ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    path = f"{folder.name}/socket"
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, __file__, path],
        env=os.environ | {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,  # which nobody writes to: its end is the end of this process
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"

    def end() -> None:
        process.terminate()
        process.wait()
        folder.cleanup()

    owner = os.getpid()
    atexit.register(lambda: end() if os.getpid() == owner else None)
    return path


class Process:
    """A fork that runs a module, a script or code, as `subprocess.Popen` runs an interpreter.

    Parameters
    ----------
    words : what to run, in the words of `python`.
    environment : instead of that of this process.
    cwd : where to run it.
    stdout, stderr : None for those of this process, `subprocess.PIPE`, or `subprocess.DEVNULL`.
    """

    def __init__(
        self,
        *words: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._ended = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(os.devnull, "r+b") as nothing:
            self.stdout, output = _end(stdout, 1, nothing.fileno())
            self.stderr, errors = _end(stderr, 2, nothing.fileno())
            self._socket.connect(address())
            job = {
                "words": words,
                "environment": dict(os.environ if environment is None else environment),
                "cwd": str(cwd or Path.cwd()),
            }
            socket.send_fds(self._socket, [json.dumps(job).encode()], [nothing.fileno(), output, errors])
        for made, pipe in ((output, self.stdout), (errors, self.stderr)):
            if pipe is not None:
                os.close(made)
        self.pid = int(self._socket.recv(LONGEST))

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        found = self._wait(timeout)
        if found is None:
            raise subprocess.TimeoutExpired("a warm process", timeout or 0)
        return found

    def _wait(self, timeout: float | None) -> int | None:
        with self._ended:
            if self.returncode is None:
                self._socket.settimeout(timeout)
                try:
                    self.returncode = int(self._socket.recv(LONGEST))
                except (BlockingIOError, TimeoutError):
                    return None
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it runs."""
        self.send_signal(signal.SIGKILL)

    def end(self, timeout: float) -> int:
        """Let it end in good order, and wait until it has; its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it still writes, until it has ended."""
        found = {1: "", 2: ""}

        def read(place: int, pipe: IO[bytes]) -> None:
            with pipe:
                found[place] = pipe.read().decode()

        pipes = [(place, pipe) for place, pipe in ((1, self.stdout), (2, self.stderr)) if pipe and not pipe.closed]
        readers = [threading.Thread(target=read, args=one, daemon=True) for one in pipes]
        for one in readers:
            one.start()
        self.wait(timeout)
        for one in readers:
            one.join(timeout)
        return found[1], found[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self._socket.close()
        for pipe in (self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


def _end(wanted: int | None, usual: int, nothing: int) -> tuple[IO[bytes] | None, int]:
    """What we read from, if anything, and the descriptor that the process writes to."""
    if wanted == subprocess.PIPE:
        reader, writer = os.pipe()
        return os.fdopen(reader, "rb"), writer
    return None, nothing if wanted == subprocess.DEVNULL else usual


class Done(NamedTuple):
    """How a process ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
    """Run a process to its end."""
    pipe = subprocess.PIPE
    with Process(*words, environment=environment, cwd=cwd, stdout=pipe, stderr=pipe) as process:
        out, err = process.communicate()
        return Done(process.wait(), out, err)


@cache
def commands() -> Path:
    """A folder with a `reticent` that is a fork."""
    folder = Path(address()).with_name("bin")
    folder.mkdir()
    command = folder / "reticent"
    command.write_text(f"#!{sys.executable} -IS\n{_COMMAND.format(address=address())}")
    command.chmod(0o700)
    return folder


# It is quick, since it loads nothing. Signals that it gets go to the fork; if it is killed, so is the fork.
_COMMAND = """\
import array, json, os, signal, socket, sys
forward = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, forward)
warm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
warm.connect({address!r})
job = {{"words": ["-m", "reticent", *sys.argv[1:]], "environment": dict(os.environ), "cwd": os.getcwd()}}
socket.send_fds(warm, [json.dumps(job).encode()], [0, 1, 2])
pid = int(warm.recv(100))
for one in forward:
    signal.signal(one, lambda number, _: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, forward)
code = int(warm.recv(100))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


# ── in the process that forks ─────────────────────────────────────────────────────────────────────────────────────


def load() -> None:
    """Import the package, and what it imports where it needs it."""
    import gc
    import importlib
    import pkgutil

    import reticent

    for one in pkgutil.walk_packages(reticent.__path__, "reticent."):
        if not one.name.endswith("__main__"):
            importlib.import_module(one.name)
    for name in ALSO:
        importlib.import_module(name)
    gc.freeze()


ALSO = (
    "uvicorn.lifespan.on", "uvicorn.lifespan.off", "uvicorn.loops.auto", "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto",
    "multiprocessing.popen_spawn_posix", "encodings.idna", "sklearn.tree", "pyarrow.csv", "pyarrow.parquet",
)  # fmt: skip


class Forks:
    """Forks for everyone who asks, until standard input ends or SIGTERM comes. A fork ends with who asked for it."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen()
        self._woken, self._wake = socket.socketpair()
        self._asking: dict[socket.socket, int] = {}  # and the process of each; 0 before there is one
        self._chosen = selectors.DefaultSelector()
        for one in (self._listener, self._woken, sys.stdin):
            self._chosen.register(one, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """In a fork, what it is to run; None in this process, when it is to end."""
        self._wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        print("ready", flush=True)
        owner = os.getpid()
        try:
            while True:
                for event, _ in self._chosen.select():
                    if event.fileobj is sys.stdin:
                        return None
                    if (job := self._take(event.fileobj)) is not None:
                        return job
        finally:
            if os.getpid() == owner:
                for pid in filter(None, self._asking.values()):
                    os.kill(pid, signal.SIGKILL)

    def _take(self, ready: Any) -> dict[str, Any] | None:
        if ready is self._listener:
            made, _ = ready.accept()
            self._asking[made] = 0
            self._chosen.register(made, selectors.EVENT_READ)
        elif ready is self._woken:
            ready.recv(LONGEST)
            self._reap()
        elif self._asking.get(ready):  # nobody waits for it any more
            os.kill(self._asking[ready], signal.SIGKILL)
            self._chosen.unregister(ready)
        elif ready in self._asking:
            return self._fork(ready)
        return None

    def _fork(self, ready: socket.socket) -> dict[str, Any] | None:
        message, given, _, _ = socket.recv_fds(ready, LONGEST, 3)
        if not message:
            self._forget(ready)
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._chosen.close()
            for held in (self._listener, self._woken, self._wake, *self._asking):
                held.close()
            for place, file in enumerate(given):
                os.dup2(file, place)
                os.close(file)
            job: dict[str, Any] = json.loads(message)
            return job
        for file in given:
            os.close(file)
        self._asking[ready] = pid
        ready.send(str(pid).encode())
        return None

    def _reap(self) -> None:
        """Tell how forks have ended."""
        for one, pid in list(self._asking.items()):
            found, status = os.waitpid(pid, os.WNOHANG) if pid else (0, 0)
            if found:
                with suppress(OSError):  # nobody waits for it any more
                    one.send(str(os.waitstatus_to_exitcode(status)).encode())
                self._forget(one)

    def _forget(self, one: socket.socket) -> None:
        if one in self._chosen.get_map():
            self._chosen.unregister(one)
        del self._asking[one]
        one.close()


def become(job: dict[str, Any]) -> None:
    """Run what a fork is for, as an interpreter that has just started does."""
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    sys.path[:] = [one for one in sys.path if one not in PATHS]
    for one in reversed(job["environment"].get("PYTHONPATH", "").split(os.pathsep)):
        if one and one not in sys.path:
            sys.path.insert(0, one)
    first, *rest = job["words"]
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, job["cwd"])
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    load()
    if (wanted := Forks(sys.argv[1]).serve()) is not None:
        become(wanted)
