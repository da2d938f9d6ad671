"""Kills a desk under load, again and again, and looks at what is left: run by test_faults in a process of its own.

    python killing.py FOLDER MODE KILLS SEED

Python and its libraries are loaded once; every desk is a fork of this process. It asks in batches, each request under a
key of its own, and writes each answer that it gets into a pipe. What the pipe holds was delivered. A key whose answer
was not is asked again by the next desk, as a client would. The modes that are no `desk` are broken on purpose.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shop import new_home

from reticent.service import desk as desks
from reticent.service.batching import Batcher, Closing
from reticent.service.desk import Answered, Desk, Request, digest
from reticent.service.home import Home
from reticent.service.store import Store, Transaction, verify

CLIENTS, REQUESTS = ("ann", "bob"), 6
CLASSES = ("no", "yes")

Delivered = dict[str, str]  # key: codes


def ask(key: str) -> Request:
    """The request under this key: its rows follow from it."""
    rng = np.random.default_rng(int(key))
    return Request(CLIENTS[int(key) % 2], rng.random((1 + int(key) % 3, 1)), key, digest(key.encode()))


def told(answer: Answered) -> str:
    """The codes of an answer, in hexadecimal."""
    return bytes(CLASSES.index(one) for one in answer.labels).hex()


# ── what is killed ────────────────────────────────────────────────────────────────────────────────────────────────


def serve(folder: Path, first: int, tell: Callable[[str], None], mode: str) -> None:
    """Answer as fast as can be, for ever."""
    if mode == "hasty":  # tells before it has stored
        real = Store.write

        def early(self: Store, batch: Transaction) -> Any:
            for _, key, stored in batch.answers:
                tell(f"{key} {stored.codes.hex()}")
            return real(self, batch)

        Store.write = early  # type: ignore[method-assign]
    if mode == "forgetful":  # knows no repeats
        Store.stored = lambda *_: None  # type: ignore[method-assign]
    desk = Desk(Home(folder), elsewhere=False)
    while True:
        keys = [str(first + one) for one in range(REQUESTS)]
        for key, answer in zip(keys, desk.answer([ask(key) for key in keys]), strict=True):
            if isinstance(answer, Exception):
                tell(f"error {type(answer).__name__} {answer}")
                os._exit(1)
            if mode != "hasty":
                tell(f"{key} {told(answer)}")
        desk.tidy()
        first += REQUESTS
        if mode == "slow":
            time.sleep(0.005)


def at_point(point: int) -> None:
    """End this process, as `kill -9` would, at a certain one of all the places where something reaches the disk."""
    left = [point]

    def count(*_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("fsync", "replace", "pwrite", "unlink"):
        real = getattr(os, name)

        def counted(*args: Any, _real: Any = real, **options: Any) -> Any:
            count()
            return _real(*args, **options)

        setattr(os, name, counted)
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.set_trace_callback(count)
        return db

    sqlite3.connect = traced  # type: ignore[assignment]


# ── what is left ──────────────────────────────────────────────────────────────────────────────────────────────────


def faults(folder: Path, delivered: Delivered) -> list[str]:
    """What is wrong: answers delivered that are not on record, and costs that do not add up. Empty if all is well."""
    try:
        found = verify(folder / "store.sqlite")
    except ValueError as error:
        return [f"damaged: {error}"]
    db = sqlite3.connect(folder / "store.sqlite")
    stored = {key: codes.hex() for key, codes in db.execute("SELECT key, codes FROM answers")}
    spent, given = db.execute("SELECT SUM(cost), SUM(answers) FROM ledger").fetchone()
    db.close()
    delivered = {desks._hidden(key): codes for key, codes in delivered.items()}
    wrong = [f"delivered without a record: {key}" for key in delivered.keys() - stored.keys()]
    wrong += [
        f"on record is another answer: {key}" for key in delivered.keys() & stored if delivered[key] != stored[key]
    ]
    rows = sum(len(codes) // 2 for codes in stored.values())
    # A request that was killed between two phases has spent what it was not given.
    if not ((spent or 0) == sum(found.counted.values()) and (given or 0) == rows <= (spent or 0)):
        wrong.append(f"spent {spent}, given {given}, stored {rows}, counted {sum(found.counted.values())}")
    return wrong


def forked(run: Callable[[Callable[[str], None]], None], end: Callable[[int, int], None]) -> list[str]:
    """Run something in a fork, end it, and return the lines that it told."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            run(lambda line: void(os.write(writer, line.encode() + b"\n")))
        except BaseException as error:
            os.write(writer, f"error {type(error).__name__} {error}\n".encode())
        os._exit(0)
    os.close(writer)
    end(pid, reader)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().decode().split("\n")[:-1]  # what has no end of line was not delivered
    os.waitpid(pid, 0)
    return lines


def void(_: object) -> None:
    """Nothing."""


def noted(lines: list[str], delivered: Delivered) -> list[str]:
    """Take down what was delivered; what is wrong with it by itself."""
    wrong = []
    for line in lines:
        key, codes = line.split(" ", 1)
        if key == "error":
            wrong.append(line)
        elif delivered.setdefault(key, codes) != codes:
            wrong.append(f"answered twice, and not alike: {key}")
    return wrong


def unasked(delivered: Delivered) -> int:
    """The first key of the first batch that was not delivered whole: it is asked again."""
    return next(one for one in range(10**9) if str(one) not in delivered) // REQUESTS * REQUESTS


def killed(folder: Path, mode: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill so many times, at random; stops at the first fault."""
    rng = random.Random(seed)
    delivered: Delivered = {}
    phases, working = set(), 0

    def end(pid: int, reader: int) -> None:
        if rng.random() < 0.8:  # at work; the others as they start
            select.select([reader], [], [], 20)
        time.sleep(rng.uniform(0.0, 0.08))
        os.kill(pid, signal.SIGKILL)

    for kill in range(1, kills + 1):
        before, first = len(delivered), unasked(delivered)
        lines = forked(lambda tell, first=first: serve(folder, first, tell, mode), end)  # type: ignore[misc]
        if wrong := noted(lines, delivered) or faults(folder, delivered):
            return {"kills": kill, "faults": wrong[:3]}
        phases.add(sqlite3_value(folder, "SELECT phase FROM position"))
        working += len(delivered) > before
    return {"kills": kills, "faults": [], "delivered": len(delivered), "phases": len(phases), "working": working}


def killed_at_points(folder: Path, mode: str, points: int) -> dict[str, Any]:
    """Kill at each of the places, one after the other, where something reaches the disk around the end of a phase."""
    kept: Delivered = {}

    def nearly(pid: int, _: int) -> None:
        while sqlite3_value(folder, "SELECT counted FROM phases WHERE number = 1") < 785:
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)

    wrong = noted(forked(lambda tell: serve(folder, 0, tell, "slow"), nearly), kept)
    turned = 0
    for point in range(1, points + 1):
        copy, delivered = folder.with_name(f"{folder.name}-{point}"), dict(kept)
        shutil.copytree(folder, copy)

        def run(tell: Callable[[str], None], copy: Path = copy, point: int = point) -> None:
            at_point(point)
            serve(copy, unasked(kept), tell, mode)

        def soon(pid: int, reader: int) -> None:
            select.select([reader], [], [], 20)
            os.kill(pid, signal.SIGKILL)

        wrong = wrong or noted(forked(run, lambda *_: None), delivered) or faults(copy, delivered)
        turned += sqlite3_value(copy, "SELECT phase FROM position") == 2
        rest = unasked(delivered)
        again = forked(lambda tell, copy=copy, rest=rest: serve(copy, rest, tell, mode), soon)  # type: ignore[misc]
        wrong = wrong or noted(again, delivered) or faults(copy, delivered)
        if wrong:
            return {"kills": point, "faults": wrong[:3]}
        shutil.rmtree(copy)
    return {"kills": points, "faults": [], "turned": turned}


def sqlite3_value(folder: Path, query: str) -> Any:
    """One value of the store."""
    db = sqlite3.connect(folder / "store.sqlite")
    (value,) = db.execute(query).fetchone()
    db.close()
    return value


# ── SIGTERM ───────────────────────────────────────────────────────────────────────────────────────────────────────


def drained(folder: Path, mode: str) -> dict[str, Any]:
    """Send SIGTERM under load: what was taken is answered, and the process ends by itself."""

    async def clients(tell: Callable[[str], None]) -> None:
        desk = Desk(Home(folder), elsewhere=False)
        batcher = Batcher(desk, max_rows=8)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

        async def client(number: int) -> None:
            for one in range(10**6):
                key = str(number + 1000 * one)
                tell(f"taken {key}")
                try:
                    tell(f"answered {key} {told(await batcher.ask(ask(key)))}")
                except Closing:
                    tell(f"refused {key}")
                    return

        running = [asyncio.create_task(client(one)) for one in range(32)]
        await stop.wait()
        if mode == "abrupt":
            os._exit(0)
        await batcher.close()
        await asyncio.gather(*running)
        desk.close()

    def end(pid: int, reader: int) -> None:
        time.sleep(0.8)
        os.kill(pid, signal.SIGTERM)

    lines = [line.split(" ") for line in forked(lambda tell: asyncio.run(clients(tell)), end)]
    taken = {key for what, key, *_ in lines if what == "taken"}
    answered = {key: codes[0] for what, key, *codes in lines if what == "answered"}
    refused = {key for what, key, *_ in lines if what == "refused"}
    return {
        "errors": [line for line in lines if line[0] == "error"],
        "answered": len(answered),
        "lost": len(taken - answered.keys() - refused),
        "faults": faults(folder, answered),
    }


def main(folder: str, mode: str, kills: str = "0", seed: str = "0") -> None:
    """Print what was found, as JSON."""
    place = Path(folder)
    new_home(place).close()
    if mode in ("drain", "abrupt"):
        result = drained(place, mode)
    elif mode == "points":
        result = killed_at_points(place, "desk", int(kills))
    else:
        result = killed(place, mode, int(kills), int(seed))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
