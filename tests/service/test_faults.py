"""Faults: whatever is killed, full, read-only or set back, nothing leaves that is not on record. Each has a control."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from killing import Delivered, faults
from shop import labels, new_answering, request

import warm
from reticent.service import answering as answering_module
from reticent.service.answering import AnsweringService
from reticent.service.clock import Clock
from reticent.service.home import Home
from reticent.service.requests import Answered, Halted, Request
from reticent.service.store.protocol import NotStored, Transaction
from waiting import wait_until

KILLS = 220


def run(folder: Path, *arguments: object) -> dict[str, Any]:
    """What killing.py found."""
    script = Path(__file__).with_name("killing.py")
    done = warm.run(str(script), str(folder / "clinic"), *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_killed_anywhere_nothing_was_delivered_that_is_not_on_record(tmp_path: Path) -> None:
    found = run(tmp_path, "answering", KILLS, 1)
    assert (found["kills"], found["faults"]) == (KILLS, [])
    assert found["working"] > KILLS / 2, "most were killed at work"
    assert found["phases"] > 1, "also while phases turned over"


@pytest.mark.slow
def test_killed_at_each_point_around_the_end_of_a_phase(tmp_path: Path) -> None:
    found = run(tmp_path, "points", 110)
    assert (found["kills"], found["faults"]) == (110, [])
    assert 0 < found["turned"] < 110, "points before and after the new phase"


@pytest.mark.slow
@pytest.mark.parametrize(("twin", "fault"), [("hasty", "delivered without a record"), ("forgetful", "Superseded")])
def test_a_service_that_answers_too_early_or_forgets_repeats_is_caught(tmp_path: Path, twin: str, fault: str) -> None:
    found = run(tmp_path, twin, KILLS, 1)
    assert found["kills"] < KILLS
    assert all(fault in one for one in found["faults"])  # "Superseded": the store refuses a second answer to one key
    assert found["faults"]


LEARNING = """
import os, queue, signal, sys
from pathlib import Path
from shop import labels, new_answering, request, started

def hold(process):
    os.kill(process.pid, signal.SIGSTOP)
    held.put(process.pid)

if __name__ == "__main__":
    held = queue.Queue()
    answering = new_answering(Path(sys.argv[1]), elsewhere=True)
    with started(hold):
        labels(answering.answer([request(answering.status().rows_wanted)]))
        print(held.get(), flush=True)  # it learns, and the answers are on the disk
        signal.pause()
"""


@pytest.mark.slow
def test_killed_while_another_process_learns_both_are_gone_and_the_next_one_learns(tmp_path: Path) -> None:
    script = tmp_path / "learning.py"
    script.write_text(LEARNING)
    folder = tmp_path / "clinic"
    here = str(Path(__file__).parent)
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
    with warm.Process(str(script), str(folder), environment=paths, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        learner = int(server.stdout.readline())
        server.kill()
    os.kill(learner, signal.SIGCONT)
    wait_until(lambda: not alive(learner))
    again = AnsweringService(Home(folder), elsewhere=False)
    assert list(folder.glob("next-*")) == []
    assert (again.status().phase, again.status().answered) == (1, 720)
    labels(again.answer([request(again.status().answers_left_in_phase)]))
    again.maintain()
    assert again.status().phase == 2
    again.verify()
    again.close()


def alive(process: int) -> bool:
    """Whether a process runs; one that waits to be taken note of does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ── SIGTERM ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_sigterm_drains(tmp_path: Path) -> None:
    found = run(tmp_path, "drain")
    assert (found["lost"], found["faults"], found["errors"]) == (0, [], [])
    assert found["answered"] > 0


@pytest.mark.slow
def test_without_draining_requests_that_were_taken_are_lost(tmp_path: Path) -> None:
    found = run(tmp_path, "abrupt")
    assert found["lost"] > 0
    assert found["faults"] == []  # and yet nothing was delivered without a record


# ── a disk that is full, or cannot be written ─────────────────────────────────────────────────────────────────────


def full_by_pages(answering: AnsweringService) -> None:
    (pages,) = answering.home.store._db.execute("PRAGMA page_count").fetchone()
    answering.home.store._db.execute(f"PRAGMA max_page_count = {pages}")


def read_only(answering: AnsweringService) -> None:
    answering.home.store._db.execute("PRAGMA query_only = ON")


BROKEN: list[Callable[[AnsweringService], None]] = [full_by_pages, read_only]


class Careless(AnsweringService):
    """A twin: hands out what could not be stored."""

    def __init__(self, home: Home, **options: Any) -> None:
        super().__init__(home, **options)
        real = self._store.write

        def write(batch: Transaction) -> Any:
            try:
                return real(batch)
            except NotStored:
                return []

        self._store.write = write  # type: ignore[method-assign]


def asked(
    answering: AnsweringService, count: int, break_it: Callable[[AnsweringService], None]
) -> tuple[Delivered, int]:
    """Ask under keys, with the disk broken after the third; what was delivered, and what was refused."""
    delivered: Delivered = {}
    refused = 0
    for one in range(count):
        if one == 3:
            break_it(answering)
        for answer in answering.answer([request(100, key=str(one), seed=one)]):
            if isinstance(answer, Answered):
                delivered[str(one)] = bytes(("no", "yes").index(label) for label in answer.labels).hex()
            else:
                assert isinstance(answer, Halted)
                refused += 1
    answering.close()
    return delivered, refused


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_disk_that_refuses_stops_answers_and_loses_none(
    tmp_path: Path, break_it: Callable[[AnsweringService], None]
) -> None:
    delivered, refused = asked(new_answering(tmp_path / "clinic"), 30, break_it)
    assert len(delivered) + refused == 30
    assert 3 <= len(delivered) < 30
    assert faults(tmp_path / "clinic", delivered) == []
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    assert again.status().answered == 100 * len(delivered)
    labels(again.answer([request(100, key=str(one), seed=one) for one in range(30)]))
    assert again.status().answered == 3000, "what was refused is asked again, what was delivered is free"
    again.close()


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_answering_that_does_not_care_is_caught(tmp_path: Path, break_it: Callable[[AnsweringService], None]) -> None:
    new_answering(tmp_path / "clinic").close()
    delivered, _ = asked(Careless(Home(tmp_path / "clinic"), elsewhere=False), 30, break_it)
    found = faults(tmp_path / "clinic", delivered)
    assert found
    assert all("without a record" in one or "damaged" in one or "spent" in one for one in found)


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """As a full disk: writes beyond fail, with an error in place of the signal, which Python ignores."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_for_the_log(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    delivered: Delivered = {}
    log = (tmp_path / "clinic" / "store.sqlite-wal").stat().st_size
    with files_no_longer_than(log + 100_000):
        for one in range(40):
            (answer,) = answering.answer([request(10, key=str(one), seed=one)])
            if isinstance(answer, Answered):
                delivered[str(one)] = bytes(("no", "yes").index(label) for label in answer.labels).hex()
    assert answering.halted is not None
    assert 0 < len(delivered) < 40
    answering.close()
    assert faults(tmp_path / "clinic", delivered) == []
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    assert again.status().answered == 10 * len(delivered)
    again.close()


def test_a_full_disk_for_the_state_of_the_next_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(790)]))

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(answering_module, "save_phase", full)
        assert isinstance(answering.answer([request(20)])[0], Halted)
    answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    assert (again.status().phase, again.status().answered) == (1, 800), "the end of the phase is on record"
    labels(again.answer([request(20)]))
    assert (again.status().phase, again.status().answered) == (2, 820)
    again.verify()
    again.close()


@pytest.mark.slow
def test_a_disk_that_cannot_be_wiped_now_is_wiped_at_the_next_start(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(810)]))
    assert answering.needs_maintenance
    reader = answering.home.store._db.__class__(str(tmp_path / "clinic" / "store.sqlite"))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM ledger").fetchone()  # the log cannot be emptied while someone reads it
    answering.maintain()
    assert answering._store.position.needs_wiping
    assert not answering.needs_maintenance, "it is put off, not tried again at every batch"
    labels(answering.answer([request(1)]))
    reader.close()
    answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    assert not again._store.position.needs_wiping
    again.close()


# ── a clock that jumps ────────────────────────────────────────────────────────────────────────────────────────────

JUMPS: Sequence[float] = (0.0, 4e8, -4e8, 1.0, -1e9, 1e9, 0.0)


def jumping(folder: Path, make: Callable[[Callable[[], float], Callable[[], float]], Callable[[], int]]) -> list[bool]:
    """Ask while the clock of the wall jumps about; for each repeat whether it was one."""
    wall, steady = [1.7e9], [0.0]
    new_answering(folder).close()
    answering = AnsweringService(Home(folder), elsewhere=False, clock=make(lambda: wall[0], lambda: steady[0]))
    repeats = []
    labels(answering.answer([request(5, key="k")]))
    for one, jump in enumerate(JUMPS):
        wall[0], steady[0] = 1.7e9 + jump, steady[0] + 1
        labels(answering.answer([request(1, key=f"other {one}")]))
        (answer,) = answering.answer([request(5, key="k")])
        assert isinstance(answer, Answered)
        repeats.append(answer.replayed)
    times = [row.time for row in answering.tail()]
    assert times == sorted(times)
    assert sum(answering.verify().counted.values()) == answering.status().answered
    answering.close()
    AnsweringService(Home(folder), elsewhere=False).close()
    return repeats


def test_a_clock_that_jumps_doubles_nothing(tmp_path: Path) -> None:
    assert all(jumping(tmp_path / "clinic", Clock))


def test_by_the_clock_of_the_wall_a_repeat_would_be_drawn_again(tmp_path: Path) -> None:
    repeats = jumping(tmp_path / "clinic", lambda wall, _: lambda: int(1000 * wall()))
    assert not all(repeats)


def test_a_clock_set_back_between_two_runs_leaves_times_in_order(tmp_path: Path) -> None:
    new_answering(tmp_path / "clinic").close()
    for now in (2e12, 1e12, 3e12):
        answering = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False, clock=lambda now=now: int(now))  # type: ignore[misc]
        labels(answering.answer([request(1, key=str(now))]))
        answering.close()
    again = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    assert [row.time for row in again.tail()] == [2e12, 2e12, 3e12]
    again.verify()
    again.close()


def test_batches_of_nothing_are_nothing(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    nothing: list[Request] = []
    assert answering.answer(nothing) == []
    assert answering.status().ledger_length == 0
    answering.close()
