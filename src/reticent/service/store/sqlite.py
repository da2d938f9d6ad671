"""The SQLite store: one file that contains every counted answer before anyone has seen it."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from reticent.privacy.guard import Guard, Guarded
from reticent.service.files import sync
from reticent.service.store import schema, verification
from reticent.service.store.hashing import check_log_rows, first_hash, log_rows
from reticent.service.store.journal import LooseParts, journal_hash
from reticent.service.store.protocol import (
    Damaged,
    Entry,
    JournalPart,
    LogRow,
    NotStored,
    OpenedPhase,
    Position,
    StoredAnswer,
    Superseded,
    Transaction,
    Verified,
)
from reticent.service.store.schema import packed, read_position, read_retirement, read_tail, transaction
from reticent.service.store.witness import Witness

TAIL = 1000  # rows of the answer log that are checked whenever a store is opened; `verify` checks all
EXPIRED = 64  # expired answers that a transaction deletes, or twice as many as it adds; `delete_expired` deletes all


class SQLiteStore(Guarded):
    """An `AnswerStore` in one SQLite file. Every transaction is on the disk when it returns.

    The answer log is append-only. Each row contains the hash of the row before, so that no row can be changed, removed
    or inserted without changing all later hashes. The first `previous` is the hash of the settings. Beside the file
    is the `Witness`, which records the number of rows and the last hash after each transaction. A store that is
    behind its witness has lost transactions and is refused.

    After a crash SQLite recovers the file from its write-ahead log. Until then the file alone may have any length and
    any of the pages of the log, so nothing is concluded from it. What was recovered is checked by its hashes and
    forced to the disk before it is used: the process that wrote it may have died before it did that.

    Parameters
    ----------
    path : str or path-like
        The file, which must exist. See `create`.

    Attributes
    ----------
    settings : dict
        What the store was created with.
    position : Position
        How far the store had come when this handle last wrote or looked.
    retired : str or None
        The final mark at the end of the log, or None if answers may be counted.
    upgraded : int or None
        The older version that the file had until it was opened, or None.
    """

    _twice = "two processes would write through one connection"
    _instead = "Open it in the process that uses it"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard = Guard(type(self))
        self.path = Path(path)
        if not self.path.is_file():
            raise Damaged(f"{self.path} does not exist")
        schema.check_header(self.path)
        self._witness: Witness | None = None
        with self._refusing_damage():
            self._connection = schema.connect(self.path)
            try:
                self.upgraded = schema.upgrade_in_place(self._db, self.path)
                schema.force_recovered(self._db, self.path)
                self.settings = schema.read_settings(self._db)
                self.position = read_position(self._db)
                self._loose = LooseParts(self.position.journal)
                self._check_ends()
                self.retired = read_retirement(self._db)
                self._witness = Witness(self.path)
                self._update_witness()
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: Mapping[str, str],
        opened: OpenedPhase,
        progress: Mapping[str, Any],
        *,
        time: int,
    ) -> Self:
        """Create a store with its first phase. `settings` never change, and start the chain of hashes."""
        file = Path(path)
        if file.exists():
            raise FileExistsError(f"{file} exists")
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = schema.connect(file)
        start = first_hash(settings)
        with transaction(db):
            schema.create_tables(db)
            db.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
            schema.insert_phase(db, opened)
            db.execute(
                "INSERT INTO position VALUES (1, ?, ?, ?, ?, 0, 0, ?, ?)",
                (opened.number, opened.seal, packed(progress), time, start, start),
            )
        db.close()
        Witness.create(file, 0, start)
        return cls(file)

    def close(self) -> None:
        """Release the file. A forked process leaves the connection alone, as SQLite requires."""
        if self._witness is not None:
            self._witness.close()
        if not self._guard.elsewhere:
            with suppress(sqlite3.Error):
                self._connection.close()

    @property
    def _db(self) -> sqlite3.Connection:
        """The connection, for the process that opened it."""
        self._guard.check()
        return self._connection

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, batch: Transaction, /) -> list[LogRow]:
        """Store what a batch of answers changes; it is on the disk when this returns."""
        self._guard.check()  # before anything else is looked at
        batch.check()
        return self._commit(batch.time, batch)

    def begin_phase(self, opened: OpenedPhase, /, *, time: int, labeller: Any = None) -> None:
        """Make a phase the current one and empty the journal."""
        self._commit(time, opened=opened, labeller=labeller)

    def mark(self, word: str, /, *, time: int) -> None:
        """Append a row to the answer log that counts nothing and has this word in place of a client."""
        self._commit(time, word=word)

    def _commit(
        self,
        time: int,
        batch: Transaction | None = None,
        opened: OpenedPhase | None = None,
        word: str | None = None,
        labeller: Any = None,
    ) -> list[LogRow]:
        """Store one of the three in one transaction, from the position that the store has when it begins."""
        db = self._db
        try:
            with transaction(db):
                now = self._current()
                if word is None:
                    self._check_fits(now, batch, opened)
                time = max(time, now.time)
                entries = [Entry(word, 0, now.phase, 0)] if word is not None else batch.entries if batch else []
                rows = list(log_rows(now.length, now.head, time, entries))
                head = rows[-1].hash if rows else now.head
                log: dict[str, Any] = {"time": time, "length": now.length + len(rows), "head": head}
                loose = self._loose
                if batch is not None:
                    loose, journal = self._append_journal(batch.journal, now.journal)
                    after = replace(now, **log, progress=_advanced(now.progress, batch), journal=journal)
                    self._keep_answers(batch, after.time)
                elif opened is not None:
                    after = _in_phase(replace(now, **log), opened, labeller, first_hash(self.settings))
                    loose = LooseParts(after.journal)
                    db.execute("DELETE FROM journal")
                    schema.insert_phase(db, opened)
                else:
                    after = replace(now, **log)
                self._append_log(rows)
                self._delete_some_expired(after.time, 0 if batch is None else len(batch.answers))
                self._move(after)
        except sqlite3.Error as error:
            raise NotStored(f"nothing was stored: {error}") from error
        self.position, self._loose = after, loose
        if word is not None:
            self.retired = read_retirement(db)
        self._update_witness()
        return rows

    def _current(self) -> Position:
        """The position at the start of a transaction. Another handle may have moved it since this one looked."""
        now = read_position(self._db)
        if now.journal != self.position.journal:
            self._loose = LooseParts(now.journal)
        self.position = now
        self.retired = read_retirement(self._db)
        return now

    def _check_fits(self, now: Position, batch: Transaction | None, opened: OpenedPhase | None) -> None:
        """Refuse what does not follow on the position of the store."""
        if self.retired is not None:
            raise NotStored(errno.EROFS, f"nothing is answered from a store that is {self.retired}")
        if opened is not None and opened.number != now.phase + 1:
            raise Superseded(f"the store is in phase {now.phase}: phase {opened.number} cannot begin")
        if batch is not None:
            asked = now.progress["asked"]
            if batch.phase != now.phase:
                raise Superseded(f"the store is in phase {now.phase}: phase {batch.phase} counts nothing")
            if batch.after is not None and batch.after != asked:
                raise Superseded(f"the phase has counted {asked} answers, not {batch.after}")
            if asked + batch.cost > now.answers_in_phase:
                raise Superseded(f"the phase has {now.answers_in_phase - asked} answers left, not {batch.cost}")

    def _append_log(self, rows: Sequence[LogRow]) -> None:
        db = self._db
        db.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        for row in rows:
            db.execute("UPDATE phases SET counted = counted + ? WHERE number = ?", (row.cost, row.phase))
            db.execute(
                "INSERT INTO clients VALUES (?, ?) ON CONFLICT (client) "
                "DO UPDATE SET answers = answers + excluded.answers",
                (row.client, row.answers),
            )

    def _keep_answers(self, batch: Transaction, time: int) -> None:
        """Keep answers under their keys, unless one of them would replace an answer that must stay."""
        if not batch.answers:
            return
        kept = self._db.executemany(
            "INSERT INTO answers (client, key, digest, codes, phase, rest, expires) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (client, key) DO UPDATE SET digest = excluded.digest, codes = excluded.codes, "
            "phase = excluded.phase, rest = excluded.rest, expires = excluded.expires "
            f"WHERE (answers.rest IS NULL AND answers.expires <= {int(time)}) OR (answers.rest IS NOT NULL "
            "AND answers.digest = excluded.digest AND length(answers.rest) > COALESCE(length(excluded.rest), 0))",
            [(client, key, *stored, time + batch.keep) for client, key, stored in batch.answers],
        )
        if kept.rowcount != len(batch.answers):
            raise Superseded("a request of the batch was answered by another transaction")

    def _delete_some_expired(self, time: int, added: int) -> None:
        expired = "SELECT client, key FROM answers WHERE rest IS NULL AND expires <= ? ORDER BY expires LIMIT ?"
        most = max(EXPIRED, 2 * added)
        self._db.execute(f"DELETE FROM answers WHERE (client, key) IN ({expired})", (time, most))

    def _append_journal(self, part: JournalPart | None, end: bytes) -> tuple[LooseParts, bytes]:
        """Append a part to the journal whose hash is `end`; return what is loose now, and the new hash."""
        if part is None:
            return self._loose, end
        loose, (clients, rows, class_indices), replaced, end = self._loose.add(part, end)
        if replaced:
            self._db.execute("DELETE FROM journal WHERE number > (SELECT MAX(number) FROM journal) - ?", (replaced,))
        self._db.execute(
            "INSERT INTO journal (clients, rows, codes, hash) VALUES (?, ?, ?, ?)",
            (json.dumps(clients), rows, class_indices, end),
        )
        return loose, end

    def _move(self, after: Position) -> None:
        self._db.execute(
            "UPDATE position SET phase = ?, seal = ?, clock = ?, time = ?, untidy = ?, length = ?, head = ?, "
            "journal = ?",
            (after.phase, after.seal, packed(after.progress), after.time, after.needs_wiping, after.length, after.head,
             after.journal),
        )  # fmt: skip

    def _update_witness(self) -> None:
        assert self._witness is not None
        self._witness.write(self.position.length, self.position.head)

    # ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_expired(self, time: int, /) -> bool:
        """Delete stored answers that have expired; return whether there were any."""
        try:
            with transaction(self._db):
                gone = self._db.execute(
                    "DELETE FROM answers WHERE rest IS NULL AND expires <= (SELECT MAX(time, ?) FROM position)", (time,)
                )
        except sqlite3.Error as error:
            raise NotStored(f"expired answers were not deleted: {error}") from error
        return gone.rowcount > 0

    def wipe(self) -> None:
        """Give the pages of deleted rows back, empty the write-ahead log, and remove copies of older versions.

        Deleted rows are overwritten with zeros (`secure_delete`). So giving pages back is as thorough as rewriting the
        whole file, and takes time in proportion to what was deleted, not to what is kept.
        """
        self._guard.check()  # before a file is removed
        for copy in self.path.parent.glob(schema.kept_path(self.path, "*").name):  # they hold queries of past phases
            copy.unlink(missing_ok=True)
        sync(self.path.parent)  # or they could come back after a power failure, unknown to the store
        try:
            self._db.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after a page
            if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("someone reads the store")
            with transaction(self._db):
                self._db.execute("UPDATE position SET untidy = 0")
        except sqlite3.Error as error:
            raise NotStored(f"deleted rows are not wiped from the disk yet: {error}") from error
        self.position = replace(self.position, needs_wiping=False)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def refresh(self) -> Position:
        """Read the current position, which other handles may have moved."""
        with self._refusing_damage():
            return self._current()

    def stored_answer(self, client: str, key: str, time: int, /) -> StoredAnswer | None:
        """The finished answer that this client received under this key, unless it has expired."""
        with self._refusing_damage():
            found = self._db.execute(
                "SELECT digest, codes, phase FROM answers "
                "WHERE client = ? AND key = ? AND rest IS NULL AND expires > (SELECT MAX(time, ?) FROM position)",
                (client, key, time),
            ).fetchone()
        return None if found is None else StoredAnswer(*found)

    def unfinished_requests(self) -> list[tuple[str, str, StoredAnswer]]:
        """Client, key and what is stored of each request that still has rows without an answer; there are few."""
        with self._refusing_damage():
            query = "SELECT client, key, digest, codes, phase, rest FROM answers WHERE rest IS NOT NULL"
            return [(client, key, StoredAnswer(*kept)) for client, key, *kept in self._db.execute(query)]

    def journal(self) -> Iterator[JournalPart]:
        """The journal of the current phase, in order; `Damaged` if it is not the one that was written."""
        found_hash = end = first_hash(self.settings)
        number = 0
        # One statement sees the parts and the end of the same moment, whatever is written meanwhile.
        query = (
            "SELECT position.journal, number, clients, rows, codes, hash "
            "FROM position LEFT JOIN journal ON 1 ORDER BY number"
        )
        with self._refusing_damage():
            for now, found, clients, rows, class_indices, noted in self._db.execute(query):
                end = now
                if found is None:  # there is no part
                    break
                named = json.loads(clients)
                runs = None if named is None else [(str(one), int(many)) for one, many in named]
                part = JournalPart(runs, rows, class_indices)
                found_hash, number = journal_hash(found_hash, part), number + 1
                if noted != found_hash or found != number:
                    raise Damaged(f"{self.path} is damaged: part {found} of its journal is not what was written")
                yield part
        if found_hash != end:
            raise Damaged(f"{self.path} is damaged: its journal is not complete")

    def clients(self) -> dict[str, int]:
        """How many answers each client has received."""
        with self._refusing_damage():
            return dict(self._db.execute("SELECT client, answers FROM clients"))

    def phases(self, limit: int, /) -> list[tuple[int, int, int]]:
        """The last phases in order: number, rows that it learned from, answers that it counted."""
        with self._refusing_damage():
            found = self._db.execute("SELECT number, rows, counted FROM phases ORDER BY number DESC LIMIT ?", (limit,))
            return found.fetchall()[::-1]

    def tail(self, limit: int, /) -> list[LogRow]:
        """The last rows of the answer log, in order."""
        with self._refusing_damage():
            return read_tail(self._db, limit)

    def verify(self) -> Verified:
        """Check all records, while the store is in use. May be called from any thread."""
        return verification.verify(self.path)

    # ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_ends(self) -> None:
        """Check the end of the answer log, the counts and the witness, in the same time however long the log is."""
        now = self.position
        last = read_tail(self._db, TAIL)
        (length,) = self._db.execute("SELECT COALESCE(MAX(number), 0) FROM ledger").fetchone()
        start = first_hash(self.settings) if len(last) == length else last[0].previous
        head, _ = check_log_rows(last, length - len(last), start, self.path)
        if (length, head) != (now.length, now.head):
            raise Damaged(f"{self.path} is damaged: its answer log does not end where it should")
        counted = dict(self._db.execute("SELECT number, counted FROM phases"))
        if counted.get(now.phase) != now.progress["asked"] or sum(counted.values()) != now.progress["answered"]:
            raise Damaged(f"{self.path} is damaged: its phases do not have the counts that they should")
        verification.check_witness(self._db, self.path, self.settings, length)

    def _refusing_damage(self) -> AbstractContextManager[None]:
        return schema.refusing_damage(self.path)


def _advanced(progress: Mapping[str, Any], batch: Transaction) -> dict[str, Any]:
    """The progress after a batch of answers."""
    asked, answered = progress["asked"] + batch.cost, progress["answered"] + batch.cost
    return {**progress, "asked": asked, "answered": answered, "closed": batch.closed, "labeller": batch.labeller}


def _in_phase(now: Position, opened: OpenedPhase, labeller: Any, journal: bytes) -> Position:
    """The position after a phase has begun."""
    return replace(
        now,
        phase=opened.number,
        answers_in_phase=opened.answers,
        seal=opened.seal,
        progress={**now.progress, "asked": 0, "closed": False, "labeller": labeller},
        needs_wiping=True,
        journal=journal,
    )
