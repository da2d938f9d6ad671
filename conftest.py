"""Settings for all tests, and noise that is the same in every run.

No test may pass by luck. So while tests run, the bytes of the operating system's noise are replaced by a stream that
follows from the name of the test alone: not from the order of the tests, the worker that runs them, or the clock.
The package knows nothing of it: the replacement is made from here, and a process that a test starts draws real noise.

`--noise NUMBER` chooses other streams, `--noise system` leaves the operating system's in place: a test must not need
the stream that it got. A test of the operating system's bytes themselves has the mark `system_noise`.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import shutil
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# There are as many workers as processors. Where each starts threads of its own for products of small matrices, these
# wait for one another most of the time. It must be set before numpy is imported; processes of tests inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from reticent.noise import Noise

# How long an example takes, or the search for one, says nothing on a machine that is busy with others. The examples are
# the same in every run, so that a run tells about the code and not about luck; HYPOTHESIS_PROFILE=explore looks for
# new ones.
patient = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("reticent", derandomize=True, **patient)  # type: ignore[arg-type]
settings.register_profile("explore", **patient)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reticent"))


class Stream:
    """Bytes that a name determines. A fork goes on with a stream of its own, which its place among the forks names."""

    def __init__(self, name: str) -> None:
        self._name, self._forks = name, 0
        self._restart()

    def _restart(self) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed_of(self._name)))
        self._lock = threading.Lock()

    def bytes(self, count: int) -> bytes:
        """The next bytes."""
        with self._lock:
            return self._generator.bytes(count)

    def before_fork(self) -> None:
        """Count a fork."""
        self._forks += 1

    def after_fork(self) -> None:
        """In the child: draw nothing that the parent draws, and do not wait for a thread that was left behind."""
        self._name, self._forks = f"{self._name} fork {self._forks}", 0
        self._restart()


class Streams:
    """The stream of what runs now: a test, or a fixture that several tests share."""

    def __init__(self, choice: str) -> None:
        self._choice = choice
        self._open = [Stream(f"{choice} outside of tests")]

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Draw from the stream of this name; from the one before afterwards."""
        self._open.append(Stream(f"{self._choice} {name}"))
        try:
            yield
        finally:
            self._open.pop()

    def bytes(self, count: int) -> bytes:
        """The next bytes of the stream of what runs now."""
        return self._open[-1].bytes(count)

    def before_fork(self) -> None:
        """Count a fork of what runs now."""
        self._open[-1].before_fork()

    def after_fork(self) -> None:
        """In the child: part from the streams of the parent."""
        for stream in self._open:
            stream.after_fork()


def seed_of(name: str) -> int:
    """A seed that follows from a name on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "little")


SLOW_EXAMPLES = {
    "docs/answers.md", "docs/extending/labeller.md", "docs/guides/drifting-inputs.md", "docs/learners/comparison.md",
    "docs/learners/logistic.md", "docs/ledger.md", "docs/pate.md", "docs/plan_everlasting.md",
    "docs/predictors/everlasting.md", "src/reticent/learners/comparison.py", "src/reticent/plan/everlasting.py",
    "src/reticent/plan/pate.py", "src/reticent/predictors/everlasting.py",
}  # fmt: skip

STREAMS = pytest.StashKey[Streams]()

# Stores force each write to the disk, and tests write thousands. In memory that takes no time. It shows the same: what
# a process that is killed leaves is the same in both, and a loss of power is not tried on the machine's own disk.
MEMORY = Path("/dev/shm")


def roomy(folder: Path) -> bool:
    """Whether a folder can hold the files of all tests, and programs that they compile."""
    if not os.access(folder, os.W_OK):
        return False
    return shutil.disk_usage(folder).free > 1 << 30 and not os.statvfs(folder).f_flag & os.ST_NOEXEC


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which noise the tests draw."""
    parser.addoption(
        "--noise", default="0", help='a number: other noise, the same in every run; or "system": the real one'
    )


def pytest_configure(config: pytest.Config) -> None:
    """Put a stream in the place of the operating system; let signals reach what tests start; write into memory.

    A run that is started under nohup ignores SIGHUP, and so would every process of its tests, which send it one.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if roomy(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    choice = config.getoption("--noise")
    if choice == "system":
        return
    if not choice.isdecimal():
        raise pytest.UsageError(f'--noise must be a number or "system", got {choice!r}')
    streams = config.stash[STREAMS] = Streams(choice)
    os.register_at_fork(before=streams.before_fork, after_in_child=streams.after_fork)
    usual = np.random.default_rng

    def seeded(seed: Any = None) -> np.random.Generator:
        return usual(int.from_bytes(streams.bytes(16), "little") if seed is None else seed)

    patch = pytest.MonkeyPatch()
    patch.setattr(Noise, "random_bytes", lambda _, count: streams.bytes(count))
    patch.setattr(np.random, "default_rng", seeded)
    config.add_cleanup(patch.undo)


@contextmanager
def drawing(config: pytest.Config, name: str) -> Iterator[None]:
    """Run something with noise that its name determines."""
    if STREAMS not in config.stash:
        yield
        return
    with config.stash[STREAMS].of(name):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage while thousands of tests are made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    """Look for examples in docstrings of the package and its experiments, not in those of tests, which have none."""
    found = yield
    tests = Path(__file__).with_name("tests")
    return [one for one in found if type(one) is pytest.Module] if tests in file_path.parents else found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the pages and docstrings whose examples take long: they cannot carry a mark of their own."""
    root = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(root) and item.path.relative_to(root).as_posix() in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """What a module draws while it is imported."""
    with drawing(collector.config, collector.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """What a test draws."""
    with drawing(item.config, item.nodeid), pytest.MonkeyPatch.context() as patch:
        if STREAMS in item.config.stash:
            random.seed(seed_of(item.nodeid))
            np.random.seed(seed_of(item.nodeid) % 2**32)  # noqa: NPY002  (scikit-learn's, where it is given no state)
        if item.get_closest_marker("system_noise"):
            patch.setattr(Noise, "random_bytes", lambda _, count: os.urandom(count))  # steady: it is about these
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """What a fixture draws that several tests share: not by the test that comes first."""
    if fixturedef.scope == "function":
        return (yield)
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    with drawing(request.config, name):
        return (yield)
