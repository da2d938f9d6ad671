"""The life of a predictor, step by step: run by test_every_write under the shim, which writes down all it does.

python recording.py ROOT          all STEPS, each told in ROOT/told when it is done
python recording.py ROOT full     some answers on a disk that is full after n operations, for every n
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
from shop import MODEL, predictor

from reticent.service import backup
from reticent.service.answering import AnsweringService
from reticent.service.home import KEYS, Home
from reticent.service.keys import KeyTable, make_key
from reticent.service.requests import Answered, Halted, Request, digest
from reticent.service.store import verification

Step = tuple[str, ...]


def asks(folder: str, *sizes: int) -> list[Step]:
    return [("ask", folder, str(size), f"{folder} {place}") for place, size in enumerate(sizes)]


STEPS: list[Step] = [
    ("create", "clinic"),
    ("add", "ann"),
    ("add", "bob"),
    ("revoke", "bob"),
    ("rotate", "ann"),
    *asks("clinic", 1, 3, 2, 300, 1, 2, 300, 150),
    ("backup", "monday.backup"),
    *asks("clinic again", 40, 3),
    ("tidy", "clinic"),  # the end of the phase was at 800
    *asks("clinic later", 5, 1),
    ("close", "clinic"),
    ("final", "last.backup"),
    ("restore", "moved"),
    *asks("moved", 2, 3),
    ("close", "moved"),
    *asks("older", 2, 4),  # a folder of an older version is there from the start
    ("close", "older"),
]


def request(key: str, size: int) -> Request:
    seed = int.from_bytes(key.encode()[-4:], "big")
    return Request("ann", np.random.default_rng(seed).random((size, 1)), key, digest(key.encode()))


def opened(folder: Path) -> AnsweringService:
    answering = AnsweringService(Home(folder), elsewhere=False)
    answering.home.store._db.execute("PRAGMA wal_autocheckpoint = 30")  # small, so that there are many
    return answering


class Life:
    """What is done, and what is told of it."""

    def __init__(self, root: Path) -> None:
        self.homes, self.backups = root / "homes", root / "backups"
        self._open: dict[str, AnsweringService] = {}
        self._tokens: dict[str, str] = {}

    def do(self, step: Step) -> dict[str, Any]:
        what, name, *more = step
        return {"step": what, "name": name, **(getattr(self, f"_{what}")(name, *more) or {})}

    def _create(self, name: str) -> None:
        Home.create(self.homes / name, predictor(), MODEL, now=0).close()

    def _keys(self) -> KeyTable:
        return KeyTable(self.homes / "clinic" / KEYS)

    def _add(self, name: str) -> dict[str, Any]:
        table = self._keys()
        self._tokens[name], key = make_key(name)
        table.add(key)
        table.close()
        return {"good": self._tokens[name]}

    def _revoke(self, name: str) -> dict[str, Any]:
        table = self._keys()
        table.revoke(name)
        table.close()
        return {"bad": self._tokens[name]}

    def _rotate(self, name: str) -> dict[str, Any]:
        table = self._keys()
        token, _ = table.rotate(name)
        table.close()
        return {"bad": self._tokens[name], "good": token}

    def _ask(self, name: str, size: str, key: str) -> dict[str, Any]:
        folder = name.split(maxsplit=1)[0]
        if folder not in self._open:
            self._open[folder] = opened(self.homes / folder)
        (one,) = self._open[folder].answer([request(key, int(size))])
        assert isinstance(one, Answered), one
        return {"name": folder, "key": key, "size": int(size), "labels": one.labels}

    def _tidy(self, name: str) -> None:
        self._open[name].maintain()

    def _close(self, name: str) -> None:
        self._open.pop(name).close()

    def _backup(self, name: str) -> None:
        backup.write(self.homes / "clinic", self.backups / name)

    def _final(self, name: str) -> None:
        backup.write(self.homes / "clinic", self.backups / name, final=True)

    def _restore(self, name: str) -> None:
        backup.restore(self.backups / "last.backup", self.homes / name)


def live(root: Path) -> None:
    life = Life(root)
    told = os.open(root / "told", os.O_WRONLY | os.O_APPEND)
    for step in STEPS:
        os.write(told, json.dumps(life.do(step)).encode() + b"\n")


# ── a disk that is full, and then larger ──────────────────────────────────────────────────────────────────────────


def fill(root: Path) -> None:
    """For every n: what is told to the client before the disk is full, and what is wrong when it is larger again."""
    disk = ctypes.CDLL(os.environ["LD_PRELOAD"])
    disk.disk_count.restype = ctypes.c_long
    disk.disk_full.argtypes = [ctypes.c_long]
    start, folder = root / "start", root / "clinic"
    Home.create(start, predictor(), MODEL, now=0).close()
    answering = opened(start)
    for number, size in enumerate((1, 300)):
        answering.answer([request(f"before {number}", size)])
    answering.close()
    halts, wrong, room = 0, [], 0
    while True:
        room += 1
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        asked, halted = full_after(disk, folder, room)
        count = disk.disk_count()
        disk.disk_full(0)
        halts += halted
        try:
            wrong += [f"{room}: {one}" for one in larger(folder, asked)]
        except Exception as error:
            wrong.append(f"{room}: {type(error).__name__}: {error}")
        if count < room:
            break
    print(json.dumps({"rooms": room, "halts": halts, "wrong": wrong}))


def full_after(disk: Any, folder: Path, room: int) -> tuple[dict[str, list[str]], bool]:
    """Answers that were given until the disk was full, over the end of a phase; whether it came to that."""
    asked: dict[str, list[str]] = {}
    disk.disk_full(room)
    for _ in range(2):  # once more, as a supervisor would, while the disk is still full
        try:
            answering = opened(folder)
        except (OSError, sqlite3.OperationalError):
            continue
        try:
            for number, size in enumerate((2, 200, 1, 280, 30, 1)):
                (one,) = answering.answer([request(f"during {number}", size)])
                if isinstance(one, Halted):
                    break
                assert isinstance(one, Answered), one
                asked[f"during {number}"] = one.labels
                answering.maintain()
            else:
                return asked, False
        finally:
            answering.close()
    return asked, True


def larger(folder: Path, asked: dict[str, list[str]]) -> list[str]:
    """What is wrong after the disk was enlarged: nothing."""
    verification.verify(folder / "store.sqlite")
    answering = opened(folder)
    wrong = []
    for key, labels in asked.items():
        (one,) = answering.answer([request(key, len(labels))])
        if not isinstance(one, Answered) or not one.replayed or one.labels != labels:
            wrong.append(f"{key} was answered, and is not known")
    (one,) = answering.answer([request("after", 2)])
    if not isinstance(one, Answered):
        wrong.append(f"nothing is answered: {one}")
    answering.verify()
    answering.close()
    return wrong


if __name__ == "__main__":
    (fill if sys.argv[2:] == ["full"] else live)(Path(sys.argv[1]))
