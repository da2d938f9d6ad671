"""How long an answer takes does not show the votes: whole requests, through the routes and a durable service.

Two tests, since neither shows all:

- *The same steps.* With the same noise, a request about a unanimous vote and one about a split vote run through the
  same lines of Python and the same calls of compiled functions in the same order, and draw the same numbers of random
  bytes. It is exact, and finds a single branch that depends on votes. It does not see how long a compiled function
  takes.
- *The same time.* The processor time of many requests of the two kinds is compared. It includes compiled code, and
  finds a difference of more than two microseconds in a request. It does not look for a smaller one, which the caches of
  some processor may make. Time that others take on the same machine is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import wilcoxon
from shop import new_home
from stand_in import Batcher as InTheLoop
from stand_in import Column, Rules

from reticent.noise import Noise, Seeded
from reticent.service.answering import AnsweringService
from reticent.service.http import routes
from reticent.service.http import service as service_module
from reticent.service.http.batching import Batcher
from reticent.service.http.routes import make_app
from reticent.service.http.service import Service
from reticent.service.requests import Answered, Request

TOGETHER = 16  # requests at a time: batches are of the same sizes in both kinds
YES, NO, SPLIT = "0.05", "0.95", "0.50"  # all teachers say yes, all say no, and half of them each
ROWS = 80_000
PAIRS = 3125  # so that the twin is found beyond doubt on a busy machine, too
MARGIN = 2e-6  # seconds of a request: a tenth of what the twin takes
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where there is such a place with some room: it is quicker, and there is less unrest."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 1 << 30
    path = Path(tempfile.mkdtemp(dir=MEMORY if roomy else None))
    yield path
    shutil.rmtree(path)


class Telltale:
    """A twin: an answering service that thinks some microseconds longer about every split vote."""

    untidy = False

    def __init__(self, answering: AnsweringService) -> None:
        self.answering = answering

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        for one in requests:
            if one.rows[0, 0] == float(SPLIT):
                self.think()
        return self.answering.answer(requests)

    def think(self) -> None:
        sum(range(1500))

    def tidy(self) -> None:
        self.answering.maintain()


class Wink(Telltale):
    """A twin that does nothing but look."""

    def think(self) -> None:
        pass


class Blush(Telltale):
    """A twin that draws noise which it does not need."""

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        split = sum(bool(one.rows[0, 0] == float(SPLIT)) for one in requests)
        Noise().random_bytes(1 + split)
        return self.answering.answer(requests)


def body_of(value: str) -> bytes:
    tensor = {"name": "rows", "shape": [1, 1], "datatype": "FP64", "data": ["value"]}
    return json.dumps({"inputs": [tensor]}).replace('"value"', value).encode()


def bodies(value: str) -> list[bytes]:
    """Requests of one kind; with half of the answers yes and half no in either, so that only votes differ."""
    return TOGETHER * [body_of(SPLIT)] if value == SPLIT else TOGETHER // 2 * [body_of(YES), body_of(NO)]


def asking(service: Service) -> Callable[[bytes], Any]:
    """A way to ask the whole application, without a server."""
    made = make_app(service)
    path = "/v2/models/clinic/infer"
    headers = [(b"host", b"127.0.0.1")]
    base = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope: dict[str, Any] = {**base, "root_path": "", "headers": headers, "http_version": "1.1", "scheme": "http"}

    async def ask(body: bytes) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            assert message.get("status", 200) == 200

        await made(dict(scope), receive, send)

    return ask


def clinic(folder: Path, **options: Any) -> tuple[AnsweringService, Rules]:
    answering = AnsweringService(
        new_home(folder / "clinic", rows=ROWS, classes=("no", "yes")), elsewhere=False, **options
    )
    return answering, Rules((Column("x"),), ("no", "yes"))


# ── the same steps ────────────────────────────────────────────────────────────────────────────────────────────────

Step = tuple[str, str, int, object]


def steps_of(service: Service, body: bytes, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Step], list[int]]:
    """Every line that answering runs, every compiled function that it calls, and how many random bytes it draws."""
    steps: list[Step] = []
    drawn: list[int] = []
    source, ask = Seeded(unsafe_seed=seed), asking(service)

    def random_bytes(_: Noise, count: int) -> bytes:
        drawn.append(count)
        return source.random_bytes(count)

    def line(frame: FrameType, event: str, _: Any) -> Any:
        steps.append((event, frame.f_code.co_qualname, frame.f_lineno, None))
        return line

    def call(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            steps.append((event, frame.f_code.co_qualname, frame.f_lineno, getattr(function, "__qualname__", None)))

    async def run() -> None:
        before = sys.gettrace(), sys.getprofile()
        gc.disable()  # it comes when it comes
        sys.settrace(line)
        sys.setprofile(call)
        try:
            await ask(body)
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])
            gc.enable()

    monkeypatch.setattr(Noise, "random_bytes", random_bytes)
    asyncio.run(run())
    return steps, drawn


def same_steps(folder: Path, answering_of: Callable[[AnsweringService], Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether requests about votes of both kinds take the same steps, for some streams of noise."""
    # What is counted and kept by time is left out: clocks stand still.
    for module in (service_module, routes):
        stopped = SimpleNamespace(monotonic=lambda: 1000.0, perf_counter=lambda: 1000.0)
        monkeypatch.setattr(module, "time", stopped)
    answering, rules = clinic(folder, clock=lambda: 2_000_000_000_000)
    made = answering_of(answering)
    service = Service("clinic", rules, answering, InTheLoop(made), dashboard=False)
    try:
        for _ in range(3):  # whatever is made once is made now
            steps_of(service, body_of(YES), 0, monkeypatch)
        kinds = [body_of(value) for value in (YES, NO, SPLIT)]
        found = [[steps_of(service, body, seed, monkeypatch) for body in kinds] for seed in range(20)]
    finally:
        answering.close()
    assert all(len(steps) > 100 and drawn for three in found for steps, drawn in three)
    return all(yes == no == split for yes, no, split in found)


def test_the_same_steps_whatever_the_votes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_steps(tmp_path, lambda answering: answering, monkeypatch)


@pytest.mark.parametrize("twin", [Telltale, Wink, Blush])
def test_a_step_that_depends_on_votes_is_seen(
    tmp_path: Path, twin: type[Telltale], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not same_steps(tmp_path, twin, monkeypatch)


# ── the same time ─────────────────────────────────────────────────────────────────────────────────────────────────


async def rounds(service: Service, pairs: int, warm: int = 30) -> tuple[np.ndarray[Any, Any], int]:
    """The processor time of a round of split queries less that of one of unanimous queries, in random order."""
    ask = asking(service)
    asked = 0

    async def one_round(bodies: list[bytes]) -> float:
        nonlocal asked
        started = time.process_time()
        await asyncio.gather(*map(ask, bodies))
        asked += TOGETHER
        return time.process_time() - started

    kinds = bodies(YES), bodies(SPLIT)
    for _ in range(warm):
        await one_round(kinds[0])
    found = np.empty(pairs)
    for pair, order in enumerate(np.random.default_rng(0).integers(0, 2, pairs)):
        first = await one_round(kinds[order])
        second = await one_round(kinds[1 - order])
        found[pair] = second - first if order == 0 else first - second
    await service.batcher.close()
    return found, asked


def chance(folder: Path, answering_of: Callable[[AnsweringService], Any]) -> float:
    """How likely differences as these are, at most, if times of the two kinds differ by the margin or less."""
    answering, rules = clinic(folder)

    async def run() -> tuple[np.ndarray[Any, Any], int]:
        return await rounds(
            Service("clinic", rules, answering, Batcher(answering_of(answering)), dashboard=False), PAIRS
        )

    try:
        differences, asked = asyncio.run(run())
    finally:
        answering.close()
    assert asked >= 100_000
    margin = TOGETHER * MARGIN
    longer = wilcoxon(differences - margin, alternative="greater")
    shorter = wilcoxon(differences + margin, alternative="less")
    found = 2 * float(min(longer.pvalue, shorter.pvalue))
    print(f"chance={found:.3g}, median difference {np.median(differences) * 1e6:.1f} µs of a round, {asked} requests")
    return found


def times_tell(folder: Path, answering_of: Callable[[AnsweringService], Any]) -> bool:
    """Whether three measurements one after the other say so; by chance that happens once in 10⁹ times."""
    return all(chance(folder / str(one), answering_of) < 1e-3 for one in range(3))


@pytest.mark.slow
def test_time_does_not_tell_votes(folder: Path) -> None:
    assert not times_tell(folder, lambda answering: answering)


@pytest.mark.slow
def test_a_answering_that_thinks_longer_about_split_votes_is_caught(folder: Path) -> None:
    assert chance(folder, Telltale) < 1e-3
