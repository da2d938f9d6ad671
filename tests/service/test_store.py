"""The store: what is written is there, what was changed is found, and nothing half is kept."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.service.store import hashing, schema, sqlite, verification
from reticent.service.store import journal as store_journal
from reticent.service.store import witness as store_witness
from reticent.service.store.protocol import (
    Damaged,
    Entry,
    JournalPart,
    NotStored,
    OpenedPhase,
    StoredAnswer,
    Transaction,
    Verified,
)
from reticent.service.store.sqlite import SQLiteStore
from reticent.service.store.verification import verify

FIRST = OpenedPhase(1, 100, 10_000, "{}", "seal-1")


UNUSED = {"asked": 0, "answered": 0, "closed": False, "labeller": None}


def new(folder: Path) -> SQLiteStore:
    return SQLiteStore.create(folder / "store.sqlite", {"id": "x"}, FIRST, UNUSED, time=1000)


def batch(asked: int, *entries: Entry, time: int = 2000, **more: Any) -> Transaction:
    """A batch after which the phase has counted this many answers."""
    after = asked - sum(entry.cost for entry in entries)
    return Transaction(time=time, phase=1, after=after, entries=entries, keep=50, **more)


def filled(folder: Path, rows: int = 5) -> Path:
    with_rows = new(folder)
    for one in range(1, rows + 1):
        part = JournalPart([("ann", 1)], bytes([one] * 8), b"\0")
        with_rows.write(batch(one, Entry("ann", 1, 1, 1), time=2000 + one, journal=part))
    with_rows.close()
    return with_rows.path


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    one = new(tmp_path)
    answer = StoredAnswer(b"d" * 32, b"\0\1", 1)
    made = one.write(batch(3, Entry("ann", 2, 1, 2), Entry("bob", 0, 1, 1), answers=[("ann", "k", answer)]))
    part = JournalPart(None, b"12345678", b"\1")
    one.write(batch(4, Entry("ann", 1, 1, 1), time=2010, journal=part))
    one.close()
    again = SQLiteStore(one.path)
    assert again.position == one.position
    assert again.clients() == {"ann": 3, "bob": 0}
    assert again.stored_answer("ann", "k", 2020) == answer
    assert again.stored_answer("bob", "k", 2020) is None
    assert list(again.journal()) == [part]
    assert again.tail(10)[:2] == made
    assert verify(one.path) == Verified(3, one.position.head.hex(), {1: 4})
    again.close()


def test_it_is_durable_private_and_wipes_what_it_deletes(tmp_path: Path) -> None:
    one = new(tmp_path)
    pragmas = {
        name: one._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("synchronous", "journal_mode", "secure_delete")
    }
    assert pragmas == {"synchronous": 2, "journal_mode": "wal", "secure_delete": 1}
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    one.close()


@given(st.text(max_size=20), st.integers(0, 10**9), st.integers(0, 10**9), st.binary(min_size=32, max_size=32))
def test_hashes_are_of_canonical_json(client: str, number: int, cost: int, previous: bytes) -> None:
    entry = Entry(client, cost, 3, cost)
    row = {"number": number, "time": 7, **entry._asdict(), "previous": previous.hex()}
    expected = json.dumps(row, sort_keys=True, separators=(",", ":")).encode()
    assert hashing.canonical(number, 7, entry, previous) == expected


def test_the_chain_can_be_recomputed_by_anyone(tmp_path: Path) -> None:
    path = filled(tmp_path)
    db = sqlite3.connect(path)
    settings = dict(db.execute("SELECT name, value FROM settings"))
    head = hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).digest()
    names = ("number", "time", "client", "answers", "phase", "cost")
    for row in db.execute("SELECT number, time, client, answers, phase, cost, hash FROM ledger ORDER BY number"):
        plain = dict(zip(names, row[:6], strict=True)) | {"previous": head.hex()}
        head = hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).digest()
        assert row[6] == head
    db.close()
    assert verify(path).head == head.hex()


def test_the_answer_log_refuses_to_be_changed(tmp_path: Path) -> None:
    db = sqlite3.connect(filled(tmp_path))
    for statement in ("UPDATE ledger SET cost = 0", "DELETE FROM ledger WHERE number = 1"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    one = new(tmp_path)
    one.write(batch(1, Entry("ann", 1, 1, 1), answers=[("ann", "a", StoredAnswer(b"d", b"\0", 1))]))
    before, witness = one.position, (tmp_path / "witness").read_bytes()
    (pages,) = one._db.execute("PRAGMA page_count").fetchone()
    one._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(NotStored, match="full"):
        one.write(batch(2, Entry("ann", 1, 1, 1), journal=JournalPart(None, bytes(10**6), b"\0")))
    assert one.position == before
    assert (tmp_path / "witness").read_bytes() == witness
    one.close()
    again = SQLiteStore(one.path)
    assert again.position == before
    assert again.tail(9)[-1].number == 1
    again.close()


def test_time_never_runs_backwards(tmp_path: Path) -> None:
    one = new(tmp_path)
    for asked, time in enumerate((5000, 100, 6000, 0), start=1):
        one.write(batch(asked, Entry("ann", 1, 1, 1), time=time))
    assert [row.time for row in one.tail(9)] == [5000, 5000, 6000, 6000]
    one.close()
    verify(one.path)


def test_answers_expire_by_the_clock_and_are_deleted_some_at_a_time(tmp_path: Path) -> None:
    one = new(tmp_path)
    many = [("ann", f"k{i}", StoredAnswer(b"d", b"\0", 1)) for i in range(2 * sqlite.EXPIRED)]
    one.write(batch(1, Entry("ann", 1, 1, 1), time=2000, answers=many))
    assert one.stored_answer("ann", "k0", 2049) is not None
    assert one.stored_answer("ann", "k0", 2050) is None
    left = []
    for asked in (2, 3, 4):
        one.write(batch(asked, Entry("ann", 1, 1, 1), time=3000))
        left.append(one._db.execute("SELECT COUNT(*) FROM answers").fetchone()[0])
    assert left == [sqlite.EXPIRED, 0, 0]
    one.close()


@pytest.mark.parametrize("nobody", [True, False])
def test_many_small_parts_of_the_journal_become_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nobody: bool
) -> None:
    monkeypatch.setattr(store_journal, "PARTS", 8)
    monkeypatch.setattr(store_journal, "LARGEST", 10_000)
    one = new(tmp_path)
    sizes = [1, 2, 3] * 15 + [300, 2000, 300] + [1] * 20
    clients: list[str] = []
    rows = codes = b""
    asked = 0
    content = random.Random(0)
    for number, size in enumerate(sizes):
        name = "ann" if number % 5 else "bob"
        part = JournalPart(None if nobody else [(name, size)], content.randbytes(8 * size), content.randbytes(size))
        asked += size
        one.write(batch(asked, Entry(name, size, 1, size), journal=part))
        clients, rows, codes = clients + [name] * size, rows + part.rows, codes + part.class_indices
        if number % 11 == 10:
            one.close()
            one = SQLiteStore(one.path)
    parts = [part for part in one.journal() if isinstance(part, JournalPart)]
    assert len(parts) < len(sizes) / 2
    assert (b"".join(part.rows for part in parts), b"".join(part.class_indices for part in parts)) == (rows, codes)
    if not nobody:
        assert [name for part in parts for name, count in part.clients or () for _ in range(count)] == clients
    one.close()
    verify(one.path)


def test_parts_of_nobody_and_of_somebody_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_journal, "PARTS", 3)
    one = new(tmp_path)
    for asked in range(1, 13):
        part = JournalPart(None if asked % 4 == 0 else [("ann", 1)], bytes([asked] * 8), b"\0")
        one.write(batch(asked, Entry("ann", 1, 1, 1), journal=part))
    parts = [part for part in one.journal() if isinstance(part, JournalPart)]
    assert [part.clients for part in parts] == [[("ann", 3)], None] * 3
    assert b"".join(part.rows for part in parts) == b"".join(bytes([asked] * 8) for asked in range(1, 13))
    one.close()


# ── a new phase ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_at_a_new_phase_the_old_rows_leave_the_disk(tmp_path: Path) -> None:
    one = new(tmp_path)
    secret = random.Random(0).randbytes(64)
    one.write(batch(1, Entry("ann", 1, 1, 1), journal=JournalPart(None, secret * 1000, b"\0")))
    there = [file.name for file in tmp_path.iterdir() if secret in file.read_bytes()]
    assert there, "the rows are on the disk while they are needed"
    one.write(batch(2, Entry("ann", 1, 1, 1), time=3000))
    one.begin_phase(OpenedPhase(2, 180, 360, "{}", "seal-2"), time=3000)
    assert one.position.needs_wiping
    assert list(one.journal()) == []
    one.wipe()
    assert not one.position.needs_wiping
    assert [file.name for file in tmp_path.iterdir() if secret in file.read_bytes()] == []
    assert one._db.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert one.path.stat().st_size < 64_000
    one.close()
    assert verify(one.path).counted == {1: 2, 2: 0}


def test_without_wiping_they_would_not(tmp_path: Path) -> None:
    one = new(tmp_path)
    secret = random.Random(0).randbytes(64)
    one.write(batch(1, Entry("ann", 1, 1, 1), journal=JournalPart(None, secret * 1000, b"\0")))
    one.begin_phase(OpenedPhase(2, 180, 360, "{}", "seal-2"), time=3000)
    assert any(secret in file.read_bytes() for file in tmp_path.iterdir())
    one.close()


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────────────

EDITS = {
    "a cost": "UPDATE ledger SET cost = cost - 1 WHERE number = 2",
    "a client": "UPDATE ledger SET client = 'eve' WHERE number = 2",
    "a time": "UPDATE ledger SET time = time + 1 WHERE number = 2",
    "a hash": "UPDATE ledger SET hash = zeroblob(32) WHERE number = 2",
    "a row left out": "DELETE FROM ledger WHERE number = 2",
    "the last row left out": "DELETE FROM ledger WHERE number = 5",
    "a count of a phase": "UPDATE phases SET counted = 1",
    "the clock": "UPDATE position SET clock = replace(CAST(clock AS TEXT), '\"asked\": 5', '\"asked\": 4')",
    "the end": "UPDATE position SET length = 4",
    "a setting": "UPDATE settings SET value = 'y'",
}  # fmt: skip


def edited(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TRIGGER ledger_no_update")
    db.execute("DROP TRIGGER ledger_no_delete")
    assert db.execute(statement).rowcount > 0
    db.commit()
    db.close()


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_store_is_refused(tmp_path: Path, what: str) -> None:
    path = filled(tmp_path)
    edited(path, EDITS[what])
    with pytest.raises(Damaged):
        SQLiteStore(path)
    with pytest.raises(Damaged):
        verify(path)


def test_an_old_row_is_found_by_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "TAIL", 2)
    path = filled(tmp_path)
    edited(path, EDITS["a cost"])
    SQLiteStore(path).close()  # looks at the end only
    with pytest.raises(Damaged, match="row 2"):
        verify(path)


def test_an_edited_journal_is_refused_when_it_is_read(tmp_path: Path) -> None:
    for statement in ("UPDATE journal SET rows = zeroblob(8) WHERE number = 3", "DELETE FROM journal WHERE number = 5"):
        folder = tmp_path / str(len(statement))
        folder.mkdir()
        path = filled(folder)
        edited(path, statement)
        again = SQLiteStore(path)
        with pytest.raises(Damaged, match="journal"):
            list(again.journal())
        again.close()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)


def another(path: Path) -> None:
    path.unlink()
    sqlite3.connect(path).execute("CREATE TABLE a (b)").connection.close()


@pytest.mark.parametrize("damage", [cut, emptied, overwritten, another, Path.unlink])
def test_a_torn_store_is_refused(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    path = filled(tmp_path, 200)
    damage(path)
    with pytest.raises(Damaged):
        SQLiteStore(path)


@pytest.mark.parametrize("damage", [cut, emptied, Path.unlink])
def test_a_log_that_was_lost_is_noticed_by_the_witness(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    one = new(tmp_path)
    for asked in range(1, 30):
        one.write(batch(asked, Entry("ann", 1, 1, 1)))
    log, witness = (tmp_path / "store.sqlite-wal").read_bytes(), (tmp_path / "witness").read_bytes()
    whole = one.path.read_bytes()  # as after `kill -9`: nothing of the log is in the file yet
    one.close()
    again = tmp_path / "again"
    again.mkdir()
    for name, data in (("store.sqlite", whole), ("store.sqlite-wal", log), ("witness", witness)):
        (again / name).write_bytes(data)
    kept = SQLiteStore(again / "store.sqlite")
    assert kept.position.length == 29
    kept.close()
    for name, data in (("store.sqlite", whole), ("store.sqlite-wal", log), ("witness", witness)):
        (again / name).write_bytes(data)
    damage(again / "store.sqlite-wal")
    with pytest.raises(Damaged, match="lost answers"):
        SQLiteStore(again / "store.sqlite")


def after_a_kill(folder: Path, answers: int = 29) -> tuple[bytes, bytes]:
    """The file and the log of a store whose process was killed before anything of the log was in the file."""
    one = new(folder)
    for asked in range(1, answers + 1):
        one.write(batch(asked, Entry("ann", 1, 1, 1), journal=JournalPart(None, bytes(3000), b"\0")))
    file, log = one.path.read_bytes(), one.path.with_name("store.sqlite-wal").read_bytes()
    one.close()
    return file, log


@pytest.mark.slow
def test_a_kill_after_any_page_of_a_checkpoint_loses_nothing(tmp_path: Path) -> None:
    """SQLite writes the pages of the log into the file one by one; page 1, which tells how many there are, comes first.

    The log has all of them until the last one is on the disk.
    """
    file, log = after_a_kill(tmp_path)
    whole = (tmp_path / "store.sqlite").read_bytes()
    assert len(whole) > len(file)
    folder = tmp_path / "again"
    for pages in range(len(whole) // 4096 + 1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "store.sqlite").write_bytes(whole[: 4096 * pages] + file[4096 * pages :])
        (folder / "store.sqlite-wal").write_bytes(log)
        (folder / "witness").write_bytes((tmp_path / "witness").read_bytes())
        assert verify(folder / "store.sqlite").length == 29
        again = SQLiteStore(folder / "store.sqlite")
        assert again.position.length == len(list(again.journal())) == 29
        again.write(batch(30, Entry("ann", 1, 1, 1)))
        again.close()
        assert verify(folder / "store.sqlite").length == 30


def test_what_was_recovered_is_on_the_disk_before_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may die after it wrote to the log and before it forced it; then the next one does, whoever reads."""
    file, log = after_a_kill(tmp_path)
    (tmp_path / "store.sqlite").write_bytes(file)
    (tmp_path / "store.sqlite-wal").write_bytes(log)
    reader = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM ledger").fetchone()
    SQLiteStore(tmp_path / "store.sqlite").close()
    reader.close()
    SQLiteStore(tmp_path / "store.sqlite").close()
    assert not (tmp_path / "store.sqlite-wal").exists()

    (tmp_path / "store.sqlite").write_bytes(file)
    (tmp_path / "store.sqlite-wal").write_bytes(log)
    one = SQLiteStore(tmp_path / "store.sqlite")
    assert len(one.path.read_bytes()) > len(file)  # by a checkpoint, which forces both
    one.close()


@pytest.mark.parametrize("record", [0, 1])
def test_a_record_of_the_witness_that_is_torn_leaves_the_other(tmp_path: Path, record: int) -> None:
    path = filled(tmp_path)
    witness = bytearray((tmp_path / "witness").read_bytes())
    witness[store_witness.APART * record + 20] ^= 1
    (tmp_path / "witness").write_bytes(witness)
    one = SQLiteStore(path)
    one.write(batch(6, Entry("ann", 1, 1, 1)))
    assert store_witness.Witness.read(path) == (6, one.position.head)
    one.close()
    assert verify(path).length == 6


def test_a_witness_of_an_older_version_has_one_record(tmp_path: Path) -> None:
    path = filled(tmp_path)
    (tmp_path / "witness").write_bytes(store_witness.record_bytes(5, bytes.fromhex(verify(path).head)))
    one = SQLiteStore(path)
    one.write(batch(6, Entry("ann", 1, 1, 1)))
    one.close()
    assert verify(path).length == 6
    SQLiteStore(path).close()


def test_verify_asks_the_witness_too(tmp_path: Path) -> None:
    path = filled(tmp_path)
    before = path.read_bytes()
    one = SQLiteStore(path)
    one.write(batch(6, Entry("ann", 1, 1, 1)))
    one.close()
    path.write_bytes(before)
    with pytest.raises(Damaged, match="has 5 rows, but the witness saw 6"):
        verify(path)


@pytest.mark.parametrize("damage", [cut, emptied, Path.unlink])
def test_a_damaged_witness_is_refused(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    path = filled(tmp_path)
    damage(tmp_path / "witness")
    with pytest.raises(Damaged, match="witness"):
        SQLiteStore(path)


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    with pytest.raises(Damaged, match="use a newer one"):
        SQLiteStore(path)


def test_an_older_version_is_upgraded_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)
    head = verify(path).head

    def fails(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE phases ADD COLUMN note TEXT")
        raise sqlite3.OperationalError("database or disk is full")

    def works(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE phases ADD COLUMN note TEXT")

    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 1)
    monkeypatch.setitem(schema.UPGRADES, now, fails)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        SQLiteStore(path)
    monkeypatch.setitem(schema.UPGRADES, now, works)
    before = path.read_bytes()
    assert verify(path).head == head  # in a copy that is upgraded
    assert path.read_bytes() == before
    SQLiteStore(path).close()
    assert verify(path).head == head
    SQLiteStore(path).close()
