"""The SQLite store passes the conformance test of `AnswerStore`, and stores that break a promise do not."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reticent.service.store import conformance
from reticent.service.store.later_labels import LabelledTransaction, SlotLabel, TaughtPart
from reticent.service.store.protocol import AnswerStore, LogRow, OpenedPhase, Position, StoredAnswer, Transaction
from reticent.service.store.sqlite import SQLiteStore

MEMORY = "/dev/shm"  # where there is one: what a power failure leaves is the subject of test_every_write
FILES = ("store.sqlite", "store.sqlite-wal", "witness")


class SQLiteHarness:
    """A folder for each life of the store. A crash is a copy of its files at one moment, as `kill -9` leaves them."""

    def __init__(self, root: Path, kind: type[SQLiteStore]) -> None:
        self.root, self.kind, self.lives = root, kind, 0
        self.folder = self.next_folder()
        self.handles: list[SQLiteStore] = []

    def next_folder(self) -> Path:
        self.lives += 1
        (folder := self.root / str(self.lives)).mkdir()
        return folder

    def create(self, settings: dict[str, str], opened: OpenedPhase, progress: dict[str, Any], time: int) -> AnswerStore:
        self.kind.create(self.folder / FILES[0], settings, opened, progress, time=time).close()
        return self.open()

    def open(self) -> AnswerStore:
        self.handles.append(self.kind(self.folder / FILES[0]))
        return self.handles[-1]

    def copy(self) -> Path:
        target = self.next_folder()
        for name in FILES:
            with suppress(FileNotFoundError):
                shutil.copyfile(self.folder / name, target / name)
        return target

    def live_on(self, folder: Path) -> None:
        self.close()
        shutil.rmtree(self.folder)
        self.folder = folder

    def close(self) -> None:
        for one in self.handles:
            one.close()
        self.handles = []

    def crash(self) -> None:
        self.live_on(self.copy())

    def crash_during(self, store: AnswerStore, work: Callable[[], object], moment: int) -> None:
        assert isinstance(store, SQLiteStore)
        left: list[Path] = []
        steps = 0

        def before_a_statement(_: str) -> None:
            nonlocal steps
            if steps == moment:
                left.append(self.copy())
            steps += 1

        witness = (self.folder / "witness").read_bytes()
        store._db.set_trace_callback(before_a_statement)
        work()
        store._db.set_trace_callback(None)
        if not left:
            left.append(self.copy())
            if moment % 2:  # after the commit, before the witness was written
                (left[0] / "witness").write_bytes(witness)
        self.live_on(left[0])


def harness(kind: type[SQLiteStore] = SQLiteStore, maker: type[SQLiteHarness] = SQLiteHarness) -> Callable[[], Any]:
    @contextmanager
    def make() -> Iterator[SQLiteHarness]:
        with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as root:
            made = maker(Path(root), kind)
            try:
                yield made
            finally:
                made.close()

    return make


class Stub:
    """A harness as it is before anything is written: every method returns None."""

    def create(self, *_: Any) -> Any: ...
    def open(self) -> Any: ...
    def crash(self) -> None: ...
    def crash_during(self, *_: Any) -> None: ...


def check_harness(made: Any, left: list[str]) -> None:
    @contextmanager
    def make() -> Iterator[Any]:
        yield made
        left.append("removed")

    conformance.check(make, examples=1, shrink=False)


def test_a_handle_that_is_no_store_is_named() -> None:
    left: list[str] = []
    with pytest.raises(AssertionError, match=r"create\(\) must return a store: NoneType lacks settings"):
        check_harness(Stub(), left)
    assert set(left) == {"removed"}


def test_a_harness_that_lacks_a_method_is_named() -> None:
    with pytest.raises(AssertionError, match="the harness must be a StoreHarness: object lacks create"):
        check_harness(object(), [])


def test_a_second_handle_that_is_no_store_is_named() -> None:
    class OpensNothing(SQLiteHarness):
        def create(self, *given: Any) -> AnswerStore:
            self.handles.append(store := self.kind.create(self.folder / FILES[0], *given[:3], time=given[3]))
            return store

        def open(self) -> Any: ...

    with pytest.raises(AssertionError, match=r"open\(\) must return a store: NoneType lacks settings"):
        conformance.check(harness(maker=OpensNothing), examples=20, shrink=False)


def test_the_names_of_members_are_those_of_the_protocols() -> None:
    def members(protocol: type) -> set[str]:
        return {name for name in vars(protocol) if not name.startswith("_")}

    assert members(AnswerStore) == set(conformance.STORE_MEMBERS)
    assert members(conformance.StoreHarness) == set(conformance.HARNESS_MEMBERS)


@pytest.mark.slow
def test_the_sqlite_store_conforms() -> None:
    conformance.check(harness(), examples=60, shrink=False)


class LosesTheLast(SQLiteHarness):
    """A disk that loses what was written since the store was last opened, and the witness with it."""

    def crash(self) -> None:
        self.live_on(self.before)

    def open(self) -> AnswerStore:
        self.before = self.copy()
        return super().open()


class AloneInTheWorld(SQLiteStore):
    """Believes that nobody else writes, and so repeats numbers."""

    def _current(self) -> Position:
        return self.position


class Replaces(SQLiteStore):
    """Lets a second answer replace the first under one key."""

    def _keep_answers(self, batch: Transaction, time: int) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO answers (client, key, digest, codes, phase, rest, tickets, expires) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(client, key, *stored, time + batch.keep) for client, key, stored in batch.answers],
        )


class Overspends(SQLiteStore):
    """Counts more answers than a phase has."""

    def _check_fits(self, now: Position, batch: Transaction | None, opened: OpenedPhase | None) -> None:
        super()._check_fits(replace(now, answers_in_phase=10**9), batch, opened)


class InTwoSteps(SQLiteStore):
    """Counts answers in one transaction, and keeps them in another."""

    def write(self, batch: Transaction, /) -> list[LogRow]:
        batch.check()
        rows = super().write(replace(batch, answers=()))
        with suppress(sqlite3.Error):
            self._keep_answers(batch, self.position.time)
        return rows


class TimeRunsBack(SQLiteStore):
    """Believes the clock of whoever writes."""

    def _current(self) -> Position:
        return replace(super()._current(), time=0)


class LosesLabelledRows(SQLiteStore):
    """Keeps the receipt, and not the rows."""

    def _append_journal(self, loose: Any, part: Any, end: bytes) -> Any:
        return super()._append_journal(loose, None if isinstance(part, TaughtPart) else part, end)


class LearnsTwice(SQLiteStore):
    """Takes labelled rows again that it has: those of a request that is repeated after a crash."""

    def write_labelled(self, batch: LabelledTransaction, /) -> None:
        first = max(batch.part.first, self.refresh().labelled)
        super().write_labelled(replace(batch, part=batch.part._replace(first=first)))


class Reopens(SQLiteStore):
    """Forgets which slots are closed."""

    def _moved(self, before: Position, after: Position, *others: Any) -> None:
        super()._moved(before, after, *others)
        self._db.execute("UPDATE position SET closed_slots = 0 WHERE closed_slots > 1")


class TakesFromAnyone(SQLiteStore):
    """Takes labels of queries that somebody else has asked."""

    def write_labels(self, labels: Any, /) -> list[SlotLabel]:
        owners = {one: self._slot_index(self.refresh()).owner(place) for place, one in enumerate(self.tickets())}
        return super().write_labels([one._replace(client=owners.get(one.ticket, one.client)) for one in labels])

    def tickets(self) -> list[bytes]:
        return list(self._slot_index(self.refresh()).tickets())


class FeedbackMovesTheTime(SQLiteStore):
    """Notes when feedback came."""

    def write_labels(self, labels: Any, /) -> list[SlotLabel]:
        found = super().write_labels(labels)
        if found:
            self._db.execute("UPDATE position SET time = time + 1")
        return found


class FeedbackMovesTheHead(SQLiteStore):
    """Enters feedback in the answer log."""

    def write_labels(self, labels: Any, /) -> list[SlotLabel]:
        found = super().write_labels(labels)
        if found:
            self.mark("feedback", time=self.position.time)
        return found


class ForgetsTickets(SQLiteStore):
    """A repeat gets the answer without its tickets."""

    def stored_answer(self, client: str, key: str, time: int, /) -> StoredAnswer | None:
        found = super().stored_answer(client, key, time)
        return None if found is None else found._replace(tickets=b"")


BROKEN = [
    AloneInTheWorld, Replaces, Overspends, InTwoSteps, TimeRunsBack, LosesLabelledRows, LearnsTwice, Reopens,
    TakesFromAnyone, FeedbackMovesTheTime, FeedbackMovesTheHead, ForgetsTickets,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN)
def test_a_store_that_breaks_a_promise_is_rejected(kind: type[SQLiteStore]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        conformance.check(harness(kind), examples=300, shrink=False)
    assert not isinstance(caught.value, ImportError)


@pytest.mark.slow
def test_a_store_that_loses_transactions_in_a_crash_is_rejected() -> None:
    with pytest.raises(AssertionError):
        conformance.check(harness(maker=LosesTheLast), examples=300, shrink=False)
