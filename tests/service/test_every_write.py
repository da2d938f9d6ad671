"""Kills and losses of power at every write, sync, truncation and renaming of a predictor's life; and a full disk.

The life is lived once, in recording.py, and each operation on its files is written down by a shim under the C library.
Then it is done again in memory, one operation at a time. After each, the files as they are then are opened, as after a
restart. Nothing depends on luck: the points are all that there are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from disk import Disk, Operation, library, operations
from recording import STEPS, request
from shop import MODEL, predictor

from reticent.service import backup
from reticent.service.answering import AnsweringService
from reticent.service.home import KEYS, STORE, Home, is_abandoned
from reticent.service.http.access import Keyring
from reticent.service.http.problems import Problem
from reticent.service.keys import KeyTable
from reticent.service.requests import Answered
from reticent.service.store import verification
from reticent.service.store.protocol import Damaged
from reticent.service.store.sqlite import SQLiteStore

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
OLDER = HERE.parent / "compatibility" / "0.1.0.tar.xz"
BEFORE = 126  # answers in the older folder


class Recorded(NamedTuple):
    start: Path
    end: Path
    operations: list[Operation]


def run(shim: Path, root: Path, *mode: str, log: Path | None = None) -> str:
    source = Path(backup.__file__).parents[2]
    environment = os.environ | {
        "LD_PRELOAD": str(shim), "DISK_ROOT": str(root), "DISK_LOG": "" if log is None else str(log),
        "PYTHONPATH": os.pathsep.join([str(source), str(HERE)]),
    }  # fmt: skip
    command = [sys.executable, "-W", "error", str(HERE / "recording.py"), str(root), *mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where forcing costs nothing; it is the order that matters here."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path_factory.mktemp("work").resolve()
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def recorded(work: Path) -> Recorded:
    shim, root, start = library(work), work / "root", work / "start"
    for one in ("homes", "backups"):
        (root / one).mkdir(parents=True)
    (root / "told").touch()
    shutil.unpack_archive(OLDER, work / "older", filter="data")
    shutil.copytree(work / "older" / "folders" / "killed", root / "homes" / "older")
    shutil.copytree(root, start)
    run(shim, root, log=work / "log")
    return Recorded(start, root, list(operations(work / "log", root)))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in folder.rglob("*") if one.is_file() and not one.name.endswith("-shm")
    }  # fmt: skip


def test_what_is_done_again_is_what_was_done(recorded: Recorded, work: Path) -> None:
    """The control of all that follows: all operations together give the files that the process left."""
    disk = Disk(recorded.start)
    for one in recorded.operations:
        disk.do(one)
    disk.killed(work / "again")
    assert contents(work / "again") == contents(recorded.end)
    kinds = Counter(one.what for one in recorded.operations)
    assert kinds["w"] > 500, kinds
    assert kinds["s"] > 50, kinds
    assert all(kinds[one] for one in "ctrlumd"), kinds
    checkpoints = [one for one in recorded.operations if one.what == "w" and one.name == "homes/clinic/store.sqlite"]
    assert len(checkpoints) > 30


# ── what must be true at any point ────────────────────────────────────────────────────────────────────────────────


def opens(ring: Keyring, token: str) -> bool:
    try:
        ring.authenticate(f"Bearer {token}")
    except Problem:
        return False
    return True


@cache
def fitted() -> Any:
    return predictor()


class World:
    """The files after a restart at some point, and what had been told to the outside by then."""

    def __init__(self, root: Path, told: list[dict[str, Any]]) -> None:
        self.homes, self.backups, self.told = root / "homes", root / "backups", told
        self.begun = STEPS[len(told)] if len(told) < len(STEPS) else None

    def check(self, area: str, thoroughly: bool) -> None:
        if area == "backups":
            self.check_backups()
            return
        name = Path(area).name.lstrip(".").split(".")[0]
        if area.startswith("homes/."):  # a folder that has no name yet
            assert not any(one["step"] in ("create", "restore") and one["name"] == name for one in self.told)
            if thoroughly:
                self.make_again(name)
            return
        self.check_folder(name, thoroughly)
        if name == "clinic":
            self.check_keys()

    def check_folder(self, name: str, thoroughly: bool) -> None:
        folder = self.homes / name
        made = any(one["step"] in ("create", "restore") and one["name"] == name for one in self.told)
        if not folder.exists():
            assert not made, f"{name} was made, and is gone"
            return
        asked = [one for one in self.told if one["step"] == "ask" and one["name"] == name]
        counted = sum(verification.verify(folder / STORE).counted.values()) - self.before(name)
        sure = sum(one["size"] for one in asked)
        begun = int(self.begun[2]) if self.begun and self.begun[0] == "ask" and self.begun[1].split()[0] == name else 0
        assert sure <= counted, "answers that were told are lost"
        assert counted <= sure + begun, "answers are counted twice"
        if not thoroughly:
            opened = SQLiteStore(folder / STORE)
            assert opened.position.progress["answered"] == counted + self.before(name)
            opened.close()
            return
        home = Home(folder, records=True)
        retired = home.store.retired
        answering = AnsweringService(home, elsewhere=False)
        for one in asked[-2:]:
            (again,) = answering.answer([request(one["key"], one["size"])])
            assert isinstance(again, Answered)
            assert (again.labels, again.replayed) == (one["labels"], True)
        if begun and retired is None and self.begun:
            (first,) = answering.answer([request(self.begun[3], begun)])
            assert isinstance(first, Answered), first
            assert answering.status().answered - self.before(name) == sure + begun  # it is counted once
        answering.close()
        verification.verify(folder / STORE)

    def before(self, name: str) -> int:
        """Answers that were given before the first step."""
        first = sum(one["size"] for one in self.told if one["step"] == "ask" and one["name"] == "clinic")
        return BEFORE if name == "older" else int(first) if name == "moved" else 0

    def check_keys(self) -> None:
        bad = {one["bad"] for one in self.told if "bad" in one}
        good = {one["good"] for one in self.told if "good" in one} - bad
        if not bad | good:
            return
        table = KeyTable(self.homes / "clinic" / KEYS)
        ring = Keyring(table)
        try:
            assert not any(opens(ring, token) for token in bad), "what was revoked opens again"
            if self.begun not in (("revoke", "bob"), ("rotate", "ann")):  # which may have been done
                assert all(opens(ring, token) for token in good)
        finally:
            table.close()

    def check_backups(self) -> None:
        """Each backup that was told of is there, whole. The one that was begun can be made once more; one goes on."""
        for one in self.told:
            if one["step"] in ("backup", "final"):
                assert (self.backups / one["name"]).exists()
        if self.begun and self.begun[0] in ("backup", "final"):
            file, final = self.backups / self.begun[1], self.begun[0] == "final"
            if not file.exists():
                backup.write(self.homes / "clinic", file, final=final)
            left = [one.name for one in self.backups.iterdir() if one.name.startswith(f".{file.name}")]
            assert left == []
        for file in self.backups.glob("*.backup"):
            place = self.homes / f"from-{file.stem}"
            if file.stem == "last" and self.begun and self.begun[0] == "restore":
                self.make_again("moved")
            elif not file.with_name(f"{file.name}.restored").exists():
                _, goes_on = backup.restore(file, place)
                assert goes_on == (file.stem == "last")
        if self.begun is None or self.begun[0] != "create":
            assert self.going_on() <= 1

    def make_again(self, name: str) -> None:
        """Do the step that was cut off."""
        if not (self.homes / name).exists():
            if name == "clinic":
                Home.create(self.homes / name, fitted(), MODEL, now=0).close()
            else:
                assert backup.restore(self.backups / "last.backup", self.homes / name)[1]
        assert not any(is_abandoned(one) for one in self.homes.glob(".*"))
        assert self.going_on() == 1

    def going_on(self) -> int:
        """How many predictors of this origin may answer."""
        folders = [one.parent for one in self.homes.glob(f"[!.]*/{STORE}") if one.parent.name != "older"]
        return sum(verification.origin(one / STORE)[1] is None for one in folders)


def area_of(one: Operation) -> str:
    """What an operation concerns: a folder of a predictor, or the backups."""
    name = one.other or one.name
    first, *rest = Path(name).parts
    return "backups" if first == "backups" else "/".join([first, *rest[:1]])


def check_at_each(
    recorded: Recorded,
    place: Path,
    leave: Callable[[Disk, Path, int], None],
    chosen: Callable[[int, Operation], bool],
) -> int:
    """Open what is left at each point that is chosen; how many there were."""
    disk, told, points = Disk(recorded.start), list[dict[str, Any]](), 0
    for number, one in enumerate(recorded.operations):
        if one.name == "told":
            told.append(json.loads(one.data))
            continue
        if chosen(number, one):
            leave(disk, place, number)
            thoroughly = one.what != "w" or number % 10 == 0
            try:
                World(place, told).check(area_of(one), thoroughly)
            except Exception as error:
                error.add_note(f"before operation {number}: {one.what} {one.name}, while {STEPS[len(told)]}")
                raise
            points += 1
        disk.do(one)
    return points


def test_killed_before_every_operation(recorded: Recorded, work: Path) -> None:
    points = check_at_each(
        recorded, work / "killed", lambda disk, place, _: disk.killed(place), lambda _, one: one.what != "s"
    )
    assert points > 600


def test_killed_in_the_middle_of_a_write(recorded: Recorded, work: Path) -> None:
    def half(disk: Disk, place: Path, number: int) -> None:
        one = recorded.operations[number]
        found: Any = disk.found(one.name)
        before = bytes(found.content)
        disk.do(one, share=0.5)
        disk.killed(place)
        found.content[:] = before
        found.since.pop()

    points = check_at_each(
        recorded, work / "half", half,
        lambda number, one: one.what == "w" and (number % 3 == 0 or len(one.data) < 100),
    )  # fmt: skip
    assert points > 200


def check_without_power(recorded: Recorded, place: Path, seed: int | None) -> int:
    """Around everything but plain writes, and after every step."""
    afterwards = {number + 1 for number, one in enumerate(recorded.operations) if one.name == "told"}
    return check_at_each(
        recorded, place,
        lambda disk, place, number: disk.unpowered(place, None if seed is None else 1000 * seed + number),
        lambda number, one: number in afterwards or one.what != "w" or number % 4 == 0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_without_power_before_an_operation(recorded: Recorded, work: Path, seed: int | None) -> None:
    """What was told is forced to the disk, whatever else is lost."""
    assert check_without_power(recorded, work / "unpowered", seed) > 400


@pytest.mark.parametrize(
    ("file", "lost"),
    [
        ("homes", "clinic was made, and is gone"),
        ("homes/clinic", "what was revoked opens again"),
        ("homes/clinic/store.sqlite-wal", "answers that were told are lost"),
    ],
)
def test_a_step_that_is_not_forced_to_the_disk_is_found(recorded: Recorded, work: Path, file: str, lost: str) -> None:
    """The control: the same life on a disk that does not force this file or folder when it is told to."""
    kept = [one for one in recorded.operations if (one.what, one.name) != ("s", file)]
    with pytest.raises((AssertionError, Damaged), match=lost):
        check_without_power(recorded._replace(operations=kept), work / "lazy", None)


def test_some_points_are_in_the_middle_of_a_checkpoint(recorded: Recorded) -> None:
    """The control: there are points at which the file is shorter than its header says, and the log has the rest."""
    disk, shorter = Disk(recorded.start), 0
    for one in recorded.operations:
        disk.do(one)
        if one.what == "w" and one.name.endswith("/store.sqlite"):
            file: Any = disk.found(one.name)
            shorter += 4096 * int.from_bytes(file.content[28:32], "big") > len(file.content)
    assert shorter > 10


def test_a_disk_that_was_full_and_is_larger(work: Path) -> None:
    """It halts, or does not start; when there is room it starts by itself, and nothing that was told is lost."""
    root = work / "full"
    root.mkdir()
    found = json.loads(run(library(work), root, "full"))
    assert found["wrong"] == []
    assert found["halts"] > 30
