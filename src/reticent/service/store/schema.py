"""The SQLite file: its tables, its versions and how they are upgraded, connections and transactions."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reticent.service.files import sync
from reticent.service.store.protocol import FINAL_MARKS, Damaged, LogRow, OpenedPhase, Position

APPLICATION = 0x72657469  # "reti", in the header of the file, so that no other database is taken for a store
VERSION = 3
SECRET = 256  # bytes of the progress, always: the space that it takes must not depend on its content

TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE ledger (
  number INTEGER PRIMARY KEY, time INTEGER NOT NULL, client TEXT NOT NULL, answers INTEGER NOT NULL,
  phase INTEGER NOT NULL, cost INTEGER NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TABLE phases (
  number INTEGER PRIMARY KEY, rows INTEGER NOT NULL, answers INTEGER NOT NULL, event TEXT NOT NULL,
  counted INTEGER NOT NULL
);
CREATE TABLE clients (client TEXT PRIMARY KEY, answers INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE answers (
  client TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, codes BLOB NOT NULL, phase INTEGER NOT NULL,
  expires INTEGER NOT NULL, rest BLOB, tickets BLOB NOT NULL DEFAULT x'', PRIMARY KEY (client, key)
) WITHOUT ROWID;
CREATE INDEX answers_by_expiry ON answers (expires) WHERE rest IS NULL;
CREATE TABLE journal (
  number INTEGER PRIMARY KEY, clients TEXT NOT NULL, rows BLOB NOT NULL, codes BLOB NOT NULL, hash BLOB NOT NULL,
  tickets BLOB NOT NULL DEFAULT x''
);
CREATE TABLE position (
  one INTEGER PRIMARY KEY CHECK (one = 1), phase INTEGER NOT NULL, seal TEXT NOT NULL, clock BLOB NOT NULL,
  time INTEGER NOT NULL, untidy INTEGER NOT NULL, length INTEGER NOT NULL, head BLOB NOT NULL, journal BLOB NOT NULL,
  labelled INTEGER NOT NULL DEFAULT 0, slots INTEGER NOT NULL DEFAULT 0, closed_slots INTEGER NOT NULL DEFAULT 0
);
"""
LABELS = """
CREATE TABLE labels (part INTEGER PRIMARY KEY, cells BLOB NOT NULL);
CREATE TABLE labelled (
  first INTEGER PRIMARY KEY, count INTEGER NOT NULL, client TEXT NOT NULL, time INTEGER NOT NULL, key TEXT,
  digest BLOB NOT NULL, reply BLOB NOT NULL, expires INTEGER NOT NULL, waiting INTEGER NOT NULL
);
CREATE UNIQUE INDEX labelled_by_key ON labelled (client, key) WHERE key IS NOT NULL;
"""  # of later labels: the slots of queries, and who sent which labelled rows

# What turns a store of version v into one of version v + 1. All steps, and the new version, are one transaction.
UPGRADES: dict[int, Callable[[sqlite3.Connection], None]] = {}


def _with_rest(db: sqlite3.Connection) -> None:
    """Version 2 also keeps answers of requests that are not finished. In version 1 all that is kept is finished."""
    db.execute("ALTER TABLE answers ADD COLUMN rest BLOB")
    db.execute("DROP INDEX answers_by_expiry")
    db.execute("CREATE INDEX answers_by_expiry ON answers (expires) WHERE rest IS NULL")


def _with_later_labels(db: sqlite3.Connection) -> None:
    """Version 3 also keeps tickets, labelled rows and labels of queries. No predictor of version 2 takes them."""
    for table in ("answers", "journal"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN tickets BLOB NOT NULL DEFAULT x''")
    for column in ("labelled", "slots", "closed_slots"):
        db.execute(f"ALTER TABLE position ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    for statement in statements(LABELS):
        db.execute(statement)


UPGRADES[1] = _with_rest
UPGRADES[2] = _with_later_labels


# ── connections and transactions ──────────────────────────────────────────────────────────────────────────────────


def connect(path: Path) -> sqlite3.Connection:
    """A connection that writes: durable at every commit, and overwriting what it deletes."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file; must come before all else
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise sqlite3.OperationalError("the file system cannot hold a write-ahead log")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -65536")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; on the disk when this ends without an error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a failed COMMIT may have rolled back by itself
            db.execute("ROLLBACK")
        raise


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Whatever SQLite finds wrong with the bytes of a file, it is refused as damaged; what the disk refuses is not."""
    try:
        yield
    except (sqlite3.OperationalError, Damaged):
        raise
    except (sqlite3.Error, json.JSONDecodeError, TypeError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise Damaged(f"{path} is damaged, or is not a store ({type(error).__name__})") from error


def force_recovered(db: sqlite3.Connection, path: Path) -> None:
    """Force what SQLite recovered after a crash to the disk.

    The process that wrote it may have died before it did that, or may have failed to. A checkpoint writes it once
    more, to another file, and forces that. If someone reads the store, the checkpoint may stop early. Then the log
    itself is forced.
    """
    busy, frames, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    log = path.with_name(f"{path.name}-wal")
    for one in (log, path.parent) if busy or frames != moved else ():
        sync(one)


def vacuum_into(db: sqlite3.Connection, target: Path) -> None:
    """Write all that a database holds, as of one moment, to a new file that only its owner can read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    db.execute("VACUUM INTO ?", (str(target),))
    sync(target)


def create_tables(db: sqlite3.Connection) -> None:
    """The tables of a new store, within a transaction."""
    for statement in statements(TABLES + LABELS):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def statements(script: str) -> Iterator[str]:
    """The statements of a script one at a time, since running it as a whole would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def check_header(path: Path) -> None:
    """Refuse what is not a database, before SQLite makes one of an empty file."""
    with open(path, "rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            raise Damaged(f"{path} is damaged, or is not a store")


def version_of(db: sqlite3.Connection, path: Path) -> int:
    """The version of a store, if it is one that can be read."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise Damaged(f"{path} is not a store of reticent")
    if version > VERSION:
        raise Damaged(f"{path} is a store of version {version}; this reticent knows up to {VERSION}: use a newer one")
    if not all(one in UPGRADES for one in range(version, VERSION)):
        raise Damaged(f"{path} is a store of version {version}, which this reticent cannot bring up to {VERSION}")
    return int(version)


def upgrade_in_place(db: sqlite3.Connection, path: Path) -> int | None:
    """Upgrade a store of an older version; return the version that it had, or None if it was the current one.

    A copy of the older version is kept next to it: see `kept_path`.
    """
    if (version := version_of(db, path)) == VERSION:
        return None
    kept = kept_path(path, version)
    kept.unlink(missing_ok=True)  # of an upgrade that did not finish
    vacuum_into(db, kept)
    upgrade(db)
    return version


def upgrade(db: sqlite3.Connection) -> None:
    """Upgrade the tables to the current version, in one transaction."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    with transaction(db):
        for one in range(version, VERSION):
            UPGRADES[one](db)
        db.execute(f"PRAGMA user_version = {VERSION}")


def kept_path(path: Path, version: int | str) -> Path:
    """Where a store is kept as it was before an upgrade, until the phase is over."""
    return path.with_name(f"{path.stem}-version-{version}{path.suffix}")


# ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def read_settings(db: sqlite3.Connection) -> dict[str, str]:
    """The settings that a store was created with."""
    return dict(db.execute("SELECT name, value FROM settings"))


def read_position(db: sqlite3.Connection) -> Position:
    """How far a store has come."""
    phase, answers, seal, progress, time, untidy, *others = db.execute(
        "SELECT phase, answers, seal, clock, time, untidy, length, head, journal, labelled, slots, closed_slots "
        "FROM position LEFT JOIN phases ON phases.number = position.phase"
    ).fetchone()
    return Position(phase, answers, seal, json.loads(progress), time, bool(untidy), *others)


def read_tail(db: sqlite3.Connection, limit: int) -> list[LogRow]:
    """The last rows of the answer log, in order."""
    found = db.execute("SELECT * FROM ledger ORDER BY number DESC LIMIT ?", (limit,)).fetchall()
    return [LogRow(*one) for one in reversed(found)]


def read_retirement(db: sqlite3.Connection) -> str | None:
    """The final mark at the end of the answer log, or None. Rows of clients have a cost, marks have none."""
    for last in read_tail(db, 1):
        if last.cost == 0 and last.client in FINAL_MARKS:
            return last.client
    return None


def insert_phase(db: sqlite3.Connection, opened: OpenedPhase) -> None:
    """Add a phase that has counted nothing yet."""
    db.execute("INSERT INTO phases VALUES (?, ?, ?, ?, 0)", (opened.number, opened.rows, opened.answers, opened.event))


def packed(progress: Mapping[str, Any]) -> bytes:
    """The progress in a fixed number of bytes."""
    found = json.dumps(dict(progress)).encode().ljust(SECRET)
    if len(found) != SECRET:
        raise ValueError(f"the progress takes {len(found)} bytes, more than {SECRET}")
    return found
