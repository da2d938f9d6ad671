"""Kills an answering service at work, again and again, and checks what is left: test_faults runs it as a process.

    python killing.py FOLDER MODE KILLS SEED

A service is killed when something has happened a certain number of times, never after some time: so it is the same on
every machine, however busy that is. What is counted is whatever reaches the disk, and each answer that is delivered.

Python and its libraries are loaded once. Every service is a fork of this process. It asks in batches, each request
under a key of its own, and writes each answer that it receives into a pipe. What the pipe holds was delivered. The
next service asks again under the keys whose answers were not, as a client would. All modes but `answering` are broken
on purpose.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shop import new_home

from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http.batching import Batcher, Stopping
from reticent.service.requests import Answered, Request, digest, hashed_key
from reticent.service.store.protocol import Transaction
from reticent.service.store.sqlite import SQLiteStore
from reticent.service.store.verification import verify

CLIENTS, REQUESTS = ("ann", "bob"), 6  # with 12 rows in all
NEARLY = 780  # of the 800 answers of the first phase
MOST_POINTS = 250  # what happens in a start and some batches
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


def serve(folder: Path, first: int, tell: Callable[[str], None], mode: str, answers: int | None = None) -> None:
    """Answer as fast as can be, for ever or until so many answers were given."""
    if mode == "hasty":  # tells before it has stored
        real = SQLiteStore.write

        def early(self: SQLiteStore, batch: Transaction) -> Any:
            for _, key, stored in batch.answers:
                if stored.rest is None:
                    tell(f"{key} {stored.class_indices.hex()}")
            return real(self, batch)

        SQLiteStore.write = early  # type: ignore[method-assign]
    if mode == "forgetful":  # knows no repeats
        SQLiteStore.stored_answer = lambda *_: None  # type: ignore[method-assign]
    answering = AnsweringService(Home(folder), elsewhere=False)
    while True:
        keys = [str(first + one) for one in range(REQUESTS)]
        for key, answer in zip(keys, answering.answer([ask(key) for key in keys]), strict=True):
            if isinstance(answer, Exception):
                tell(f"error {type(answer).__name__} {answer}")
                os._exit(1)
            if mode != "hasty":
                tell(f"{key} {told(answer)}")
        answering.maintain()
        first += REQUESTS
        if answers is not None and answering.status().answered >= answers:
            os.kill(os.getpid(), signal.SIGKILL)


def at_point(point: int) -> Callable[..., None]:
    """End this process, as `kill -9` would, at a certain one of all the places where something reaches the disk.

    What is returned counts one more such place.
    """
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
    return count


# ── what is left ──────────────────────────────────────────────────────────────────────────────────────────────────


def faults(folder: Path, delivered: Delivered) -> list[str]:
    """What is wrong: answers delivered that are not on record, and costs that do not add up. Empty if all is well."""
    try:
        found = verify(folder / "store.sqlite")
    except ValueError as error:
        return [f"damaged: {error}"]
    db = sqlite3.connect(folder / "store.sqlite")
    stored = {key: codes.hex() for key, codes in db.execute("SELECT key, codes FROM answers WHERE rest IS NULL")}
    cut_off = db.execute("SELECT length(codes) - length(rest) / 8 FROM answers WHERE rest IS NOT NULL").fetchall()
    spent, given = db.execute("SELECT SUM(cost), SUM(answers) FROM ledger").fetchone()
    db.close()
    delivered = {hashed_key(key): codes for key, codes in delivered.items()}
    wrong = [f"delivered without a record: {key}" for key in delivered.keys() - stored.keys()]
    wrong += [
        f"on record is another answer: {key}" for key in delivered.keys() & stored if delivered[key] != stored[key]
    ]
    rows = sum(len(codes) // 2 for codes in stored.values())
    # A request that was cut off between two phases has spent what it was not given yet.
    partly = sum(many for (many,) in cut_off)
    if not ((spent or 0) == sum(found.counted.values()) == rows + partly and (given or 0) == rows):
        counted = sum(found.counted.values())
        wrong.append(f"spent {spent}, given {given}, stored {rows} and {partly} in part, counted {counted}")
    return wrong


def forked(run: Callable[[Callable[[str], None]], None]) -> list[str]:
    """Run something in a fork until it ends, and return the lines that it told."""
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
    """Kill so many times, each after a random number of writes and answers; stops at the first fault."""
    rng = random.Random(seed)
    delivered: Delivered = {}
    phases, working = set(), 0
    for kill in range(1, kills + 1):
        before, first, point = len(delivered), unasked(delivered), rng.randint(1, MOST_POINTS)

        def run(tell: Callable[[str], None], first: int = first, point: int = point) -> None:
            count = at_point(point)

            def tell_counted(line: str) -> None:
                count()
                tell(line)

            serve(folder, first, tell_counted, mode)

        lines = forked(run)
        if wrong := noted(lines, delivered) or faults(folder, delivered):
            return {"kills": kill, "faults": wrong[:3]}
        phases.add(sqlite3_value(folder, "SELECT phase FROM position"))
        working += len(delivered) > before
    return {"kills": kills, "faults": [], "delivered": len(delivered), "phases": len(phases), "working": working}


def killed_at_points(folder: Path, mode: str, points: int) -> dict[str, Any]:
    """Kill at each of the places, one after the other, where something reaches the disk around the end of a phase."""
    kept: Delivered = {}
    wrong = noted(forked(lambda tell: serve(folder, 0, tell, mode, answers=NEARLY)), kept)
    assert sqlite3_value(folder, "SELECT phase FROM position") == 1
    turned = 0
    for point in range(1, points + 1):
        copy, delivered = folder.with_name(f"{folder.name}-{point}"), dict(kept)
        shutil.copytree(folder, copy)

        def run(tell: Callable[[str], None], copy: Path = copy, point: int = point) -> None:
            at_point(point)
            serve(copy, unasked(kept), tell, mode)

        wrong = wrong or noted(forked(run), delivered) or faults(copy, delivered)
        turned += sqlite3_value(copy, "SELECT phase FROM position") == 2
        rest = unasked(delivered)
        again = forked(lambda tell, copy=copy, rest=rest: serve(copy, rest, tell, mode, answers=1))  # type: ignore[misc]
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


def killed_within(folder: Path) -> dict[str, Any]:
    """Kill at each place where something reaches the disk in one request over three phases, and repeat it."""
    faulty: list[str] = []
    point = cut_off = 0
    asked = Request("ann", np.random.default_rng(0).random((400, 1)), "1", digest(b"1"))

    def run(tell: Callable[[str], None], copy: Path, point: int | None) -> None:
        if point is not None:
            at_point(point)
        answering = AnsweringService(Home(copy), elsewhere=False)
        answering._predictor.background = False  # the same places each time
        (answer,) = answering.answer([asked])
        tell(f"error {answer}" if isinstance(answer, Exception) else f"1 {told(answer)}")

    while not faulty:
        point += 1
        copy, delivered = folder.with_name(f"{folder.name}-{point}"), Delivered()
        shutil.copytree(folder, copy)
        lines = forked(lambda tell: run(tell, copy, point))  # noqa: B023
        faulty = noted(lines, delivered) or faults(copy, delivered)
        cut_off += sqlite3_value(copy, "SELECT COUNT(*) FROM answers WHERE rest IS NOT NULL")
        again = forked(lambda tell: run(tell, copy, None))  # noqa: B023
        faulty = faulty or noted(again, delivered) or faults(copy, delivered)
        if sqlite3_value(copy, "SELECT SUM(cost) FROM ledger") != 400 or len(delivered) != 1:
            faulty.append(f"spent {sqlite3_value(copy, 'SELECT SUM(cost) FROM ledger')}")
        shutil.rmtree(copy)
        if lines:  # it came to its end
            break
    return {"kills": point - 1, "faults": faulty[:3], "cut off": cut_off}


# ── SIGTERM ───────────────────────────────────────────────────────────────────────────────────────────────────────


def drained(folder: Path, mode: str) -> dict[str, Any]:
    """Send SIGTERM under load: what was taken is answered, and the process ends by itself."""

    async def clients(tell: Callable[[str], None]) -> None:
        answers = 0
        answering = AnsweringService(Home(folder), elsewhere=False)
        batcher = Batcher(answering, max_rows=8)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

        async def client(number: int) -> None:
            for one in range(10**6):
                key = str(number + 1000 * one)
                tell(f"taken {key}")
                try:
                    tell(f"answered {key} {told(await batcher.ask(ask(key)))}")
                except Stopping:
                    tell(f"refused {key}")
                    return
                nonlocal answers
                answers += 1
                if answers == 500:
                    os.kill(os.getpid(), signal.SIGTERM)

        running = [asyncio.create_task(client(one)) for one in range(32)]
        await stop.wait()
        if mode == "abrupt":
            os._exit(0)
        await batcher.close()
        await asyncio.gather(*running)
        answering.close()

    lines = [line.split(" ") for line in forked(lambda tell: asyncio.run(clients(tell)))]
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
    new_home(place, **({"rows": 60, "rows_per_teacher": 2} if mode == "long" else {})).close()
    if mode in ("drain", "abrupt"):
        result = drained(place, mode)
    elif mode == "long":
        result = killed_within(place)
    elif mode == "points":
        result = killed_at_points(place, "answering", int(kills))
    else:
        result = killed(place, mode, int(kills), int(seed))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
