"""How long an answer takes does not show the votes: whole requests, through the routes and a durable service.

With the same noise, a request about a unanimous vote and one about a split vote run through the same lines of Python
and the same calls of compiled functions in the same order, and draw the same numbers of random bytes. That is exact,
and finds a single branch that depends on votes. It does not see how long a compiled function takes:
`benchmarks/answer_time.py` compares times.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from shop import new_home
from stand_in import Batcher as InTheLoop
from stand_in import Column, Rules

from reticent.noise import Noise, Seeded
from reticent.service.answering import AnsweringService
from reticent.service.http import routes
from reticent.service.http import service as service_module
from reticent.service.http.routes import make_app
from reticent.service.http.service import Service
from reticent.service.requests import Answered, Request

YES, NO, SPLIT = "0.05", "0.95", "0.50"  # all teachers say yes, all say no, and half of them each
ROWS = 80_000


class Telltale:
    """A twin: an answering service that thinks some microseconds longer about every split vote."""

    needs_maintenance = False

    def __init__(self, answering: AnsweringService) -> None:
        self.answering = answering

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        for one in requests:
            if one.rows[0, 0] == float(SPLIT):
                self.think()
        return self.answering.answer(requests)

    def think(self) -> None:
        sum(range(1500))

    def maintain(self) -> None:
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


@pytest.mark.slow
def test_the_same_steps_whatever_the_votes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_steps(tmp_path, lambda answering: answering, monkeypatch)


@pytest.mark.parametrize("twin", [Telltale, Wink, Blush])
def test_a_step_that_depends_on_votes_is_seen(
    tmp_path: Path, twin: type[Telltale], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not same_steps(tmp_path, twin, monkeypatch)
