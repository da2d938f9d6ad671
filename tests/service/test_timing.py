"""How long an answer takes does not tell what the votes were: whole requests, through the routes and a durable desk."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import wilcoxon
from shop import new_desk
from stand_in import Column, Rules

from reticent.service.app import Service, make_app
from reticent.service.batching import Batcher
from reticent.service.desk import Answered, Desk, Request

TOGETHER = 16  # requests at a time: batches are of the same sizes in both kinds
UNANIMOUS, SPLIT = 0.05, 0.5
ROWS = 80_000
PAIRS = 3125  # for both tests: what is looked for would be found


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where there is such a place: the disk's own unrest would drown what is looked for."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    yield path
    shutil.rmtree(path)


class Telltale:
    """The negative control: a desk that thinks for some microseconds longer about every split vote."""

    untidy = False

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        split = sum(bool(one.rows[0, 0] == SPLIT) for one in requests)
        until = time.perf_counter() + split * 20e-6
        while time.perf_counter() < until:
            pass
        return self.desk.answer(requests)

    def tidy(self) -> None:
        self.desk.tidy()


def bodies(value: float) -> bytes:
    tensor = {"name": "rows", "shape": [1, 1], "datatype": "FP64", "data": [value]}
    return json.dumps({"inputs": [tensor]}).encode()


async def rounds(service: Service, pairs: int, warm: int = 30) -> tuple[np.ndarray[Any, Any], int]:
    """The time of a round of split queries less that of one of unanimous queries, the two in random order."""
    app = make_app(service)
    path = "/v2/models/clinic/infer"
    headers = [(b"host", b"127.0.0.1")]
    base = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope: dict[str, Any] = {**base, "root_path": "", "headers": headers, "http_version": "1.1", "scheme": "http"}
    asked = 0

    async def ask(body: bytes) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            assert message.get("status", 200) == 200

        await app(dict(scope), receive, send)

    async def one_round(body: bytes) -> float:
        nonlocal asked
        started = time.perf_counter()
        await asyncio.gather(*(ask(body) for _ in range(TOGETHER)))
        asked += TOGETHER
        return time.perf_counter() - started

    kinds = bodies(UNANIMOUS), bodies(SPLIT)
    for _ in range(warm):
        await one_round(kinds[0])
    found = np.empty(pairs)
    for pair, order in enumerate(np.random.default_rng(0).integers(0, 2, pairs)):
        first = await one_round(kinds[order])
        second = await one_round(kinds[1 - order])
        found[pair] = second - first if order == 0 else first - second
    await service.batcher.close()
    return found, asked


def measured(folder: Path, pairs: int, *, telltale: bool) -> tuple[float, int]:
    """How likely differences as these are if times do not tell, and how many requests were made."""
    desk = new_desk(folder / "clinic", rows=ROWS, classes=("no", "yes"))
    rules = Rules((Column("x"),), ("no", "yes"))

    async def run() -> tuple[np.ndarray[Any, Any], int]:
        batcher = Batcher(Telltale(desk) if telltale else desk)
        return await rounds(Service("clinic", rules, desk, batcher, dashboard=False), pairs)

    try:
        differences, asked = asyncio.run(run())
    finally:
        desk.close()
    chance = float(wilcoxon(differences).pvalue)
    print(f"{chance=:.3g}, median difference {np.median(differences) * 1e6:.1f} µs of a round, {asked} requests")
    return chance, asked


@pytest.mark.slow
def test_time_does_not_tell_votes(folder: Path) -> None:
    chance, asked = measured(folder, PAIRS, telltale=False)
    assert asked >= 100_000
    assert chance > 1e-3


@pytest.mark.slow
def test_a_desk_that_thinks_longer_about_split_votes_is_caught(folder: Path) -> None:
    chance, _ = measured(folder, PAIRS, telltale=True)
    assert chance < 1e-3
