"""The record of data sets: an append-only, hash-chained log in one SQLite file, as the answer log is."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from reticent.privacy.guard import Guard, Guarded
from reticent.service.store import schema
from reticent.service.store.hashing import first_hash
from reticent.service.store.protocol import Damaged, NotStored
from reticent.service.store.witness import Witness

APPLICATION = 0x72657464  # "retd", in the header of the file
VERSION = 1
TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
  number INTEGER PRIMARY KEY, time INTEGER NOT NULL, record TEXT NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE TRIGGER records_no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER records_no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
"""


class Row(NamedTuple):
    """A record of the log, with its place in the chain of hashes."""

    number: int
    time: int
    record: str
    previous: bytes
    hash: bytes


def row_hash(number: int, time: int, record: str, previous: bytes) -> bytes:
    """The SHA-256 of a row as JSON with sorted names and no spaces, in ASCII."""
    content = {"number": number, "previous": previous.hex(), "record": record, "time": time}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).digest()


def check_chain(rows: Iterable[Row], start: bytes, where: object) -> bytes:
    """Check all rows; return the last hash."""
    head, time = start, 0
    for number, row in enumerate(rows, start=1):
        right = (row.number, row.previous) == (number, head) and row.time >= time
        head, time = row_hash(row.number, row.time, row.record, row.previous), row.time
        if not right or row.hash != head:
            raise Damaged(f"{where} is damaged: record {number} is not the one that was written")
    return head


class RecordLog(Guarded):
    """Records of data sets. Each is on the disk when `append` returns, and none can be changed unnoticed.

    Each row contains the hash of the row before, and the first one that of the settings. Beside the file is a
    `Witness` of the last row: a file that is behind it has lost records, and is refused. All rows are checked whenever
    the file is opened.

    Parameters
    ----------
    path : Path
        The file, which must exist; see `create`. The caller sees to it that one process at a time has it open.

    Attributes
    ----------
    settings : dict
        What the log was created with.
    rows : list of Row
        All rows, in order.
    """

    _twice = "two processes would write through one connection"
    _instead = "Open it in the process that uses it"

    def __init__(self, path: Path) -> None:
        self._guard = Guard(type(self))
        self.path = path
        if not path.is_file():
            raise Damaged(f"{path} does not exist, although there is a folder for it: restore it from a backup")
        schema.check_header(path)
        self._witness: Witness | None = None
        with schema.refusing_damage(path):
            self._db = schema.connect(path)
            try:
                self._check_version()
                schema.force_recovered(self._db, path)
                self.settings = schema.read_settings(self._db)
                self.rows = [Row(*one) for one in self._db.execute("SELECT * FROM records ORDER BY number")]
                self.head = check_chain(self.rows, first_hash(self.settings), path)
                self._check_witness()
                self._witness = Witness(path)
                self._witness.write(len(self.rows), self.head)
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(cls, path: Path, settings: Mapping[str, str]) -> Self:
        """Create an empty log. Its settings never change, and start the chain of hashes."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = schema.connect(path)
        with schema.transaction(db):
            for statement in schema.statements(TABLES):
                db.execute(statement)
            db.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.close()
        Witness.create(path, 0, first_hash(settings))
        return cls(path)

    def append(self, records: Sequence[Mapping[str, Any]], *, time: int) -> None:
        """Append records in one transaction: all of them are on the disk when this returns, or none is."""
        self._guard.check()
        time = max(time, self.rows[-1].time if self.rows else 0)
        head, rows = self.head, []
        for number, record in enumerate(records, start=len(self.rows) + 1):
            text = json.dumps(record, sort_keys=True, separators=(",", ":"))
            rows.append(Row(number, time, text, head, row_hash(number, time, text, head)))
            head = rows[-1].hash
        try:
            with schema.transaction(self._db):
                self._db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise NotStored(f"nothing was recorded in {self.path}: {error}") from error
        self.rows, self.head = [*self.rows, *rows], head
        assert self._witness is not None
        self._witness.write(len(self.rows), head)

    def verify(self) -> None:
        """Check every page of the file. The chain of hashes was checked when it was opened."""
        self._guard.check()
        with schema.refusing_damage(self.path):
            if (found := self._db.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                raise Damaged(f"{self.path} is damaged: {str(found).splitlines()[0]}")

    def close(self) -> None:
        """Release the file. A forked process leaves the connection alone, as SQLite requires."""
        if self._witness is not None:
            self._witness.close()
        if not self._guard.elsewhere:
            with suppress(sqlite3.Error):
                self._db.close()

    def _check_version(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise Damaged(f"{self.path} is no record of data sets")
        if version != VERSION:
            raise Damaged(f"{self.path} is of version {version}; this reticent knows {VERSION}: use a newer one")

    def _check_witness(self) -> None:
        """Refuse a log that does not have the row that the witness saw last."""
        seen, head = Witness.read(self.path)
        found = first_hash(self.settings) if seen == 0 else self.rows[seen - 1].hash if seen <= len(self.rows) else None
        if found != head:
            raise Damaged(
                f"{self.path} has lost records: it has {len(self.rows)}, but the witness saw {seen}. It was restored "
                "from a copy, or its write-ahead log was removed. What was spent on data sets would be spent again"
            )
