"""Kills and losses of power at every operation on the files of budgets: no charge is forgotten whose work went on.

The charges are made once, in recording_budgets.py, above a shim that writes down each operation on files. Then the
operations are done again in memory, one at a time, and the registry is opened as each of them leaves it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from disk import Disk, Operation, library, operations
from recording_budgets import STEPS, charge, charges

import reticent
from reticent.privacy import LedgerFile
from reticent.service.datasets.registry import Registry
from reticent.service.store.protocol import Damaged

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


class Recorded(NamedTuple):
    start: Path
    operations: list[Operation]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where forcing costs nothing; it is the order that matters here."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path_factory.mktemp("work").resolve()
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def record(work: Path, what: str) -> Recorded:
    root, start, log = work / what, work / f"{what}-start", work / f"{what}-log"
    (root / "home").mkdir(parents=True)
    (root / "told").touch()
    shutil.copytree(root, start)
    environment = os.environ | {
        "LD_PRELOAD": str(library(work)), "DISK_ROOT": str(root), "DISK_LOG": str(log),
        "PYTHONPATH": os.pathsep.join([str(Path(reticent.__file__).parents[1]), str(HERE)]),
    }  # fmt: skip
    command = [sys.executable, "-W", "error", str(HERE / "recording_budgets.py"), str(root), what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Recorded(start, list(operations(log, root)))


@pytest.fixture(scope="module")
def recorded(work: Path) -> Recorded:
    return record(work, "registry")


def check(place: Path, told: list[str]) -> None:
    """What must be true after a restart: all that was told is charged, and at most the next step besides."""
    folder = place / "home" / "_data"
    if told:
        assert folder.exists(), "the registry is gone"
    with Registry(folder, create=True) as registry:
        registry.verify()
        found = Counter(charges(registry))
        assert not Counter(told) - found, "a charge is forgotten"
        assert not found - Counter(STEPS[: len(told) + 1]), "something is charged twice"
        charge(registry, "a")  # and it goes on
        assert Counter(charges(registry)) == found + Counter("a")


def check_ledger(place: Path, told: list[str]) -> None:
    """The same of a ledger in a file. One that was never finished is refused."""
    path = place / "home" / "ledger"
    try:
        charged = sum(LedgerFile(str(path)).events.values())
    except (FileNotFoundError, ValueError):
        assert not told, "the ledger is gone"
        return
    assert len(told) <= charged, "a charge is forgotten"
    assert charged <= len(told) + 1, "something is charged twice"


def check_at_each(
    recorded: Recorded,
    place: Path,
    leave: Callable[[Disk, Path, int], None],
    check: Callable[[Path, list[str]], None] = check,
) -> int:
    """Open what is left before each operation; how many there were."""
    disk, told, points = Disk(recorded.start), list[str](), 0
    for number, one in enumerate(recorded.operations):
        if one.name == "told":
            told += one.data.decode()
        leave(disk, place, number)
        try:
            check(place, told)
        except Exception as error:
            error.add_note(f"before operation {number}: {one.what} {one.name}, after {len(told)} steps")
            raise
        points += 1
        if one.name != "told":
            disk.do(one)
    return points


def test_killed_before_every_operation(recorded: Recorded, work: Path) -> None:
    assert check_at_each(recorded, work / "killed", lambda disk, place, _: disk.killed(place)) > 100


def test_killed_in_the_middle_of_every_write(recorded: Recorded, work: Path) -> None:
    def half(disk: Disk, place: Path, number: int) -> None:
        one = recorded.operations[number]
        if one.what != "w" or one.name == "told":
            disk.killed(place)
            return
        found = disk.found(one.name)
        before = bytes(found.content)  # type: ignore[union-attr]
        disk.do(one, share=0.5)
        disk.killed(place)
        found.content[:] = before  # type: ignore[union-attr]
        found.since.pop()  # type: ignore[union-attr]

    assert check_at_each(recorded, work / "half", half) > 100


@pytest.mark.parametrize("seed", [None, 1])
def test_without_power_before_every_operation(recorded: Recorded, work: Path, seed: int | None) -> None:
    """What was told is forced to the disk, whatever else is lost."""
    points = check_at_each(
        recorded,
        work / "unpowered",
        lambda disk, place, number: disk.unpowered(place, None if seed is None else 1000 * seed + number),
    )
    assert points > 100


@pytest.mark.parametrize(
    ("file", "lost"),
    [("home", "the registry is gone"), ("home/_data/records.sqlite-wal", "a charge is forgotten")],
)
def test_what_is_not_forced_to_the_disk_is_found(recorded: Recorded, work: Path, file: str, lost: str) -> None:
    """The control: the same steps on a disk that does not force this file or folder when it is told to."""
    lazy = [one for one in recorded.operations if (one.what, one.name) != ("s", file)]
    with pytest.raises((AssertionError, Damaged), match=lost):
        check_at_each(
            recorded._replace(operations=lazy), work / "lazy", lambda disk, place, _: disk.unpowered(place, None)
        )


def test_a_charge_after_the_rows_are_used_is_found(recorded: Recorded, work: Path) -> None:
    """The twin: a step is told, and so its rows are used, before the charge is written."""
    steps = [one for one in recorded.operations if one.name == "told"]
    rest = [one for one in recorded.operations if one.name != "told"]
    made = next(number for number, one in enumerate(rest) if one.what == "r")  # the registry is there
    early = [*rest[: made + 2], steps[0], *rest[made + 2 :]]
    with pytest.raises((AssertionError, Damaged), match=r"a charge is forgotten|the registry is gone"):
        check_at_each(Recorded(recorded.start, early), work / "early", lambda disk, place, _: disk.killed(place))


def test_a_ledger_in_a_file(work: Path) -> None:
    """Killed, and without power, before every operation; and the control, on a disk that forces nothing."""
    recorded = record(work, "ledger")
    leaving: list[Callable[[Disk, Path, int], None]] = [
        lambda disk, place, _: disk.killed(place),
        lambda disk, place, _: disk.unpowered(place, None),
        lambda disk, place, number: disk.unpowered(place, number),
    ]
    for leave in leaving:
        assert check_at_each(recorded, work / "again", leave, check_ledger) > 50
    lazy = [one for one in recorded.operations if one.what != "s"]
    with pytest.raises(AssertionError, match="the ledger is gone"):
        check_at_each(recorded._replace(operations=lazy), work / "lazy", leaving[1], check_ledger)
