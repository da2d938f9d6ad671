"""Reading a store that may be in use or read-only: complete checks, copies, and where it comes from."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from reticent.service.store import schema
from reticent.service.store.hashing import check_log_rows, first_hash
from reticent.service.store.protocol import Damaged, LogRow, Position, Verified
from reticent.service.store.schema import read_position, read_retirement, read_settings, refusing_damage
from reticent.service.store.witness import Witness

TAIL = 1000  # rows of the answer log that are checked whenever a store is opened; `verify` checks all


def verify(path: str | os.PathLike[str]) -> Verified:
    """Check all of a store: every page, every hash, that all counts add up, and that nothing is lost.

    A server may be using it. Nothing is written next to it, so it may be on a read-only file system.
    """
    where = Path(path)
    with refusing_damage(where):
        seen = Witness.read(where)  # before the store: a server writes the store first
    with reading(where) as db:
        db.execute("BEGIN")  # one view of everything, whatever is written meanwhile
        settings, position = read_settings(db), read_position(db)
        if (found := db.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise Damaged(f"{where} is damaged: {str(found).splitlines()[0]}")
        rows = (LogRow(*one) for one in db.execute("SELECT * FROM ledger ORDER BY number"))
        head, counted = check_log_rows(rows, 0, first_hash(settings), where)
        (length,) = db.execute("SELECT COUNT(*) FROM ledger").fetchone()
        if (length, head) != (position.length, position.head):
            raise Damaged(f"{where} is damaged: its answer log does not end where it should")
        phases = dict(db.execute("SELECT number, counted FROM phases"))
        if phases != dict.fromkeys(phases, 0) | counted:
            raise Damaged(f"{where} is damaged: its phases do not have the counts of the answer log")
        progress = position.progress
        if phases[position.phase] != progress["asked"] or sum(phases.values()) != progress["answered"]:
            raise Damaged(f"{where} is damaged: the progress does not have the counts of the answer log")
        given = dict(db.execute("SELECT client, SUM(answers) FROM ledger GROUP BY client"))
        if given != dict(db.execute("SELECT client, answers FROM clients")):
            raise Damaged(f"{where} is damaged: clients do not have the counts of the answer log")
        if db.execute("SELECT 1 FROM ledger GROUP BY client HAVING SUM(answers) > SUM(cost)").fetchone():
            raise Damaged(f"{where} is damaged: a client has received more answers than were counted")
        check_witness(db, where, settings, length, seen)
    return Verified(length, head.hex(), phases)


def check_ends(db: sqlite3.Connection, path: Path, settings: Mapping[str, str], now: Position) -> None:
    """Check the end of the answer log, the counts and the witness, in the same time however long the log is."""
    last = schema.read_tail(db, TAIL)
    (length,) = db.execute("SELECT COALESCE(MAX(number), 0) FROM ledger").fetchone()
    start = first_hash(settings) if len(last) == length else last[0].previous
    head, _ = check_log_rows(last, length - len(last), start, path)
    if (length, head) != (now.length, now.head):
        raise Damaged(f"{path} is damaged: its answer log does not end where it should")
    counted = dict(db.execute("SELECT number, counted FROM phases"))
    if counted.get(now.phase) != now.progress["asked"] or sum(counted.values()) != now.progress["answered"]:
        raise Damaged(f"{path} is damaged: its phases do not have the counts that they should")
    check_witness(db, path, settings, length)


def check_witness(
    db: sqlite3.Connection,
    path: Path,
    settings: Mapping[str, str],
    length: int,
    seen: tuple[int, bytes] | None = None,
) -> None:
    """Refuse an answer log that does not have the row that the witness saw last."""
    rows, head = seen or Witness.read(path)
    found = db.execute("SELECT hash FROM ledger WHERE number = ?", (rows,)).fetchone()
    if (first_hash(settings) if rows == 0 else found and found[0]) != head:
        raise Damaged(
            f"{path} has lost answers that were counted: its answer log has {length} rows, but the witness saw {rows}. "
            "It was restored from a copy, or its write-ahead log was removed. Continuing would count answers twice"
        )


def copy_store(path: str | os.PathLike[str], target: Path) -> Position:
    """Copy a store as of one moment, also while a server uses it, without what was deleted; return its position.

    `target` must be new. It has no witness yet; see `create_witness`.
    """
    with reading(Path(path)) as db:
        schema.vacuum_into(db, target)
    with reading(target) as db:
        return read_position(db)


def create_witness(path: Path) -> None:
    """Create the witness of a copy that has none. The copy must have been checked in another way."""
    with reading(path, any_version=True) as db:
        length, head = db.execute("SELECT length, head FROM position").fetchone()
    Witness.create(path, length, head)


def origin(path: Path) -> tuple[str, str | None]:
    """The id that a store shares with its copies, and its final mark, if any. It may be of any version."""
    with reading(path, any_version=True) as db:
        return read_settings(db)["id"], read_retirement(db)


def settings_of(path: Path) -> dict[str, str]:
    """The settings that a store was made with. It may be of any version."""
    with reading(path, any_version=True) as db:
        return read_settings(db)


@contextmanager
def reading(path: Path, *, any_version: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection that reads a store and changes nothing next to it.

    SQLite keeps a file of shared memory next to a store that has a write-ahead log. Where it cannot create one, nobody
    is writing: a server would have created it. If the log is empty, the store is then read as a file that does not
    change. If not, both are copied to a private temporary folder and recovered there. A store of an older version is
    upgraded in such a copy, and a newer version is refused, unless `any_version` is given.
    """
    with refusing_damage(path), ExitStack() as stack:
        try:
            db = _read_only(path, stack, "")
        except sqlite3.OperationalError:
            log = path.with_name(f"{path.name}-wal")
            if can_be_written(path.parent):
                raise
            if not log.exists() or log.stat().st_size == 0:
                db = _read_only(path, stack, "&immutable=1")
            else:
                copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name  # mode 0700
                shutil.copyfile(path, copy)
                shutil.copyfile(log, copy.with_name(log.name))
                db = _read_only(copy, stack, "")
        if not any_version and schema.version_of(db, path) < schema.VERSION:
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            older, db = db, sqlite3.connect(copy, isolation_level=None)
            stack.callback(db.close)
            older.backup(db)
            schema.upgrade(db)
        yield db


def retirement(path: Path) -> str | None:
    """The final mark of a store, also while a server runs; None if it has none."""
    with reading(path, any_version=True) as db:
        return schema.read_retirement(db)


def answers_given(path: Path) -> dict[str, int]:
    """How many answers each client has received, also while a server runs."""
    with reading(path) as db:
        return dict(db.execute("SELECT client, answers FROM clients"))


def can_be_written(folder: Path) -> bool:
    """Whether files can be created in a folder."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _read_only(path: Path, stack: ExitStack, options: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{options}", uri=True, isolation_level=None)
    stack.callback(db.close)
    db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()  # it is opened now
    return db
