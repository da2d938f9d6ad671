"""The SQLite store: one file that contains every counted answer before anyone has seen it."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from reticent.privacy.guard import Guard, Guarded
from reticent.service.files import sync
from reticent.service.store import schema, slots, verification
from reticent.service.store.hashing import first_hash, log_rows
from reticent.service.store.journal import LooseParts, journal_hash, unpack
from reticent.service.store.later_labels import LabelledTransaction, SlotLabel, StoredReceipt, WithdrawalPart
from reticent.service.store.protocol import (
    AnyPart,
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
from reticent.service.store.slots import SlotIndex
from reticent.service.store.witness import Witness

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
        self._others = -1  # commits of other connections that this handle has seen; none yet
        with self._refusing_damage():
            self._connection = schema.connect(self.path)
            try:
                self.upgraded = schema.upgrade_in_place(self._db, self.path)
                schema.force_recovered(self._db, self.path)
                self.settings = schema.read_settings(self._db)
                self.position = read_position(self._db)
                self._loose = LooseParts(self.position.journal)
                self._index: SlotIndex | None = None  # made when it is needed
                verification.check_ends(self._db, self.path, self.settings, self.position)
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
                "INSERT INTO position VALUES (1, ?, ?, ?, ?, 0, 0, ?, ?, 0, 0, 0)",
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
        """Make a phase the current one; empty the journal and the slots."""
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
                    loose, log["journal"] = self._append_journal(loose, batch.journal, now.journal)
                    if batch.journal is not None and batch.journal.tickets:
                        log["slots"] = slots.open_slots(db, now.slots, batch.journal.tickets)
                    if batch.close_slots > now.closed_slots:
                        log["closed_slots"] = batch.close_slots
                    after = replace(now, **log, progress=_advanced(now.progress, batch))
                    self._keep_answers(batch, after.time)
                elif opened is not None:
                    db.execute("DELETE FROM journal")
                    loose, log["slots"], log["journal"] = self._begin_slots(opened)
                    after = _in_phase(replace(now, **log), opened, labeller)
                    schema.insert_phase(db, opened)
                else:
                    after = replace(now, **log)
                self._append_log(rows)
                self._delete_some_expired(after.time, 0 if batch is None else len(batch.answers))
                self._move(after)
        except sqlite3.Error as error:
            raise NotStored(f"nothing was stored: {error}") from error
        self._moved(now, after, loose, batch.journal if batch else opened.carried if opened else None)
        if word is not None:
            self.retired = read_retirement(db)
        self._update_witness()
        return rows

    def _moved(self, before: Position, after: Position, loose: LooseParts, part: JournalPart | None) -> None:
        """Follow a transaction of this handle, with the index too: the first feedback must not take longer."""
        self.position, self._loose = after, loose
        if self._index is not None and self._index.end == before.journal:
            self._index = self._index if after.phase == before.phase else SlotIndex(after.journal)
            self._index.add(part, after.journal)

    def _current(self) -> Position:
        """The position at the start of a transaction. Another handle may have moved it since this one looked."""
        # SQLite's count of commits by other connections: while it stays the same, this handle has seen all of them.
        (others,) = self._db.execute("PRAGMA data_version").fetchone()
        if others == self._others:
            return self.position
        now = read_position(self._db)
        if now.journal != self.position.journal:
            self._loose = LooseParts(now.journal)
        self.retired = read_retirement(self._db)
        self.position, self._others = now, others
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
            "INSERT INTO answers (client, key, digest, codes, phase, rest, tickets, expires) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (client, key) DO UPDATE SET digest = excluded.digest, codes = excluded.codes, "
            "phase = excluded.phase, rest = excluded.rest, tickets = excluded.tickets, expires = excluded.expires "
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

    def _append_journal(self, loose: LooseParts, part: AnyPart | None, end: bytes) -> tuple[LooseParts, bytes]:
        """Append a part to the journal whose hash is `end`; return what is loose now, and the new hash."""
        if part is None:
            return loose, end
        loose, packed_part, replaced, end = loose.add(part, end)
        if replaced:
            self._db.execute("DELETE FROM journal WHERE number > (SELECT MAX(number) FROM journal) - ?", (replaced,))
        self._db.execute(
            "INSERT INTO journal (clients, rows, codes, tickets, hash) VALUES (?, ?, ?, ?, ?)", (*packed_part, end)
        )
        return loose, end

    def _move(self, after: Position) -> None:
        self._db.execute(
            "UPDATE position SET phase = ?, seal = ?, clock = ?, time = ?, untidy = ?, length = ?, head = ?, "
            "journal = ?, labelled = ?, slots = ?, closed_slots = ?",
            (after.phase, after.seal, packed(after.progress), after.time, after.needs_wiping, after.length, after.head,
             after.journal, after.labelled, after.slots, after.closed_slots),
        )  # fmt: skip

    def _update_witness(self) -> None:
        assert self._witness is not None
        self._witness.write(self.position.length, self.position.head)

    # ── later labels ──────────────────────────────────────────────────────────────────────────────────────────────

    def write_labelled(self, batch: LabelledTransaction, /) -> None:
        """Append labelled rows to the journal, and keep the receipt; it is on the disk when this returns."""
        self._guard.check()
        batch.check()

        def store(now: Position) -> tuple[AnyPart, int]:
            if batch.part.first != now.labelled:
                raise Superseded(f"the store has {now.labelled} labelled rows, not {batch.part.first}")
            slots.keep_receipt(self._db, batch, now.time)
            return batch.part, batch.count

        self._commit_labelled(batch.time, batch.phase, store)

    def withdraw_labelled(self, client: str, numbers: Sequence[int], /, *, phase: int, time: int) -> tuple[int, ...]:
        """Append to the journal which labelled rows a client withdraws; return their numbers."""
        own: list[int] = []

        def store(now: Position) -> tuple[AnyPart | None, int]:
            own.extend(slots.own_numbers(self._db, client, numbers))
            return WithdrawalPart(tuple(own)) if own else None, 0

        self._commit_labelled(time, phase, store)
        return tuple(own)

    def _commit_labelled(self, time: int, phase: int, store: Callable[[Position], tuple[AnyPart | None, int]]) -> None:
        """Append a part that counts no answer to the journal of this phase, in one transaction."""
        try:
            with transaction(self._db):
                now = self._current()
                self._check_fits(now, None, None)
                if phase != now.phase:
                    raise Superseded(f"the store is in phase {now.phase}: phase {phase} takes no labelled rows")
                part, count = store(now)
                loose, journal = self._append_journal(self._loose, part, now.journal)
                after = replace(now, time=max(now.time, time), journal=journal, labelled=now.labelled + count)
                self._move(after)
        except sqlite3.Error as error:
            raise NotStored(f"nothing was stored: {error}") from error
        self._moved(now, after, loose, None)

    def _begin_slots(self, opened: OpenedPhase) -> tuple[LooseParts, int, bytes]:
        """Empty the slots, and open those of queries that were carried over: what is loose, how many, and the hash."""
        db, start = self._db, first_hash(self.settings)
        db.execute("DELETE FROM labels")
        db.execute("UPDATE labelled SET waiting = 0 WHERE first + count <= ?", (opened.waiting_from,))
        if opened.carried is None:
            return LooseParts(start), 0, start
        loose, journal = self._append_journal(LooseParts(start), opened.carried, start)
        return loose, slots.open_slots(db, 0, opened.carried.tickets), journal

    def write_labels(self, labels: Sequence[SlotLabel], /) -> list[SlotLabel]:
        """Write labels of queries into their slots, in place; return those that count."""
        try:
            with transaction(self._db):
                now = self._current()
                self._check_fits(now, None, None)
                index = self._slot_index(now)
                return slots.write_cells(self._db, index, labels, slots=now.slots, closed=now.closed_slots)
        except sqlite3.Error as error:
            raise NotStored(f"nothing was stored: {error}") from error

    def _slot_index(self, now: Position) -> SlotIndex:
        if self._index is None or self._index.end != now.journal:
            self._index = SlotIndex.read(self._db, now.journal)
        return self._index

    def slot_labels(self) -> list[SlotLabel]:
        """The labels that were written in the current phase, in order of slots."""
        with self._refusing_damage(), transaction(self._db):  # one view of both
            return slots.read_labels(self._db, self._slot_index(self._current()))

    def stored_receipt(self, client: str, key: str, time: int, /) -> StoredReceipt | None:
        """The receipt that this client received for labelled rows under this key, unless it has expired."""
        with self._refusing_damage():
            found = self._db.execute(
                "SELECT digest, reply FROM labelled "
                "WHERE client = ? AND key = ? AND expires > (SELECT MAX(time, ?) FROM position)",
                (client, key, time),
            ).fetchone()
        return None if found is None else StoredReceipt(*found)

    def labelled_since(self, time: int, /) -> dict[str, int]:
        """How many labelled rows each client has sent after a time."""
        with self._refusing_damage():
            query = "SELECT client, SUM(count) FROM labelled WHERE time > ? GROUP BY client"
            return dict(self._db.execute(query, (time,)))

    # ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_expired(self, time: int, /) -> bool:
        """Delete stored answers and receipts that have expired; return whether there were any."""
        try:
            with transaction(self._db):
                (now,) = self._db.execute("SELECT MAX(time, ?) FROM position", (time,)).fetchone()
                gone = self._db.execute("DELETE FROM answers WHERE rest IS NULL AND expires <= ?", (now,)).rowcount
                gone += slots.delete_receipts(self._db, now)
        except sqlite3.Error as error:
            raise NotStored(f"expired answers were not deleted: {error}") from error
        return gone > 0

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
        self._others = -1
        with self._refusing_damage():
            return self._current()

    def stored_answer(self, client: str, key: str, time: int, /) -> StoredAnswer | None:
        """The finished answer that this client received under this key, unless it has expired."""
        with self._refusing_damage():
            found = self._db.execute(
                "SELECT digest, codes, phase, rest, tickets FROM answers "
                "WHERE client = ? AND key = ? AND rest IS NULL AND expires > (SELECT MAX(time, ?) FROM position)",
                (client, key, time),
            ).fetchone()
        return None if found is None else StoredAnswer(*found)

    def unfinished_requests(self) -> list[tuple[str, str, StoredAnswer]]:
        """Client, key and what is stored of each request that still has rows without an answer; there are few."""
        with self._refusing_damage():
            query = "SELECT client, key, digest, codes, phase, rest, tickets FROM answers WHERE rest IS NOT NULL"
            return [(client, key, StoredAnswer(*kept)) for client, key, *kept in self._db.execute(query)]

    def journal(self) -> Iterator[AnyPart]:
        """The journal of the current phase, in order; `Damaged` if it is not the one that was written."""
        found_hash = end = first_hash(self.settings)
        number = 0
        # One statement sees the parts and the end of the same moment, whatever is written meanwhile.
        query = (
            "SELECT position.journal, number, hash, clients, rows, codes, tickets "
            "FROM position LEFT JOIN journal ON 1 ORDER BY number"
        )
        with self._refusing_damage():
            for now, found, noted, *stored in self._db.execute(query):
                end = now
                if found is None:  # there is no part
                    break
                about, rows, indices, tickets = stored
                found_hash, number = journal_hash(found_hash, (about, rows, indices, tickets)), number + 1
                if noted != found_hash or found != number:
                    raise Damaged(f"{self.path} is damaged: part {found} of its journal is not what was written")
                yield unpack((about, rows, indices, tickets))
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

    def _refusing_damage(self) -> AbstractContextManager[None]:
        return schema.refusing_damage(self.path)


def _advanced(progress: Mapping[str, Any], batch: Transaction) -> dict[str, Any]:
    """The progress after a batch of answers."""
    asked, answered = progress["asked"] + batch.cost, progress["answered"] + batch.cost
    return {**progress, "asked": asked, "answered": answered, "closed": batch.closed, "labeller": batch.labeller}


def _in_phase(now: Position, opened: OpenedPhase, labeller: Any) -> Position:
    """The position after a phase has begun."""
    numbers: dict[str, Any] = {"phase": opened.number, "answers_in_phase": opened.answers, "seal": opened.seal}
    progress = {**now.progress, "asked": 0, "closed": False, "labeller": labeller}
    return replace(now, **numbers, progress=progress, needs_wiping=True, closed_slots=0)
