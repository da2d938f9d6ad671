"""The store: one SQLite file that knows every answer that was counted, before anyone has seen it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from reticent.privacy.guard import Guard, Guarded

APPLICATION = 0x72657469  # "reti": in the header of the file, so that no other database is taken for a store
VERSION = 2
TAIL = 1000  # rows of the ledger that are checked whenever a store is opened; `verify` checks all
EXPIRED = 64  # expired answers that a transaction deletes, or twice as many as it adds; `tidy` deletes all
SECRET = 256  # bytes of the clock, always: the room that it takes must not tell what it says
PARTS, LARGEST = 1024, 1 << 22  # so many parts of the journal are made one, if they have no more bytes than this
# Rows of the ledger that count nothing and tell what became of the store. After the first three nothing is answered: a
# backup is to go on in its place, does so, or answers that were given may be missing. The last lets a backup go on.
RETIRED, HANDED_OVER, INCOMPLETE, RESTORED = "retired", "handed over", "incomplete", "restored"
WITNESS = struct.Struct(">8sQ32s16s")  # a name, how many rows, the hash of the last, and a checksum of these
APART = 4096  # bytes from one record of the witness to the other, so that no sector of a disk holds both

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
  expires INTEGER NOT NULL, rest BLOB, PRIMARY KEY (client, key)
) WITHOUT ROWID;
CREATE INDEX answers_by_expiry ON answers (expires) WHERE rest IS NULL;
CREATE TABLE journal (
  number INTEGER PRIMARY KEY, clients TEXT NOT NULL, rows BLOB NOT NULL, codes BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE TABLE position (
  one INTEGER PRIMARY KEY CHECK (one = 1), phase INTEGER NOT NULL, seal TEXT NOT NULL, clock BLOB NOT NULL,
  time INTEGER NOT NULL, untidy INTEGER NOT NULL, length INTEGER NOT NULL, head BLOB NOT NULL, journal BLOB NOT NULL
);
"""

# What turns a store of version v into one of version v + 1. All steps, and the new version, are one transaction.
UPGRADES: dict[int, Callable[[sqlite3.Connection], None]] = {}


def _with_rest(db: sqlite3.Connection) -> None:
    """Version 2 keeps the answers of a request that is not finished; in version 1 all that is kept is finished."""
    db.execute("ALTER TABLE answers ADD COLUMN rest BLOB")
    db.execute("DROP INDEX answers_by_expiry")
    db.execute("CREATE INDEX answers_by_expiry ON answers (expires) WHERE rest IS NULL")


UPGRADES[1] = _with_rest


class Damaged(ValueError):
    """A file is not what was written: it was torn, edited, or put back from elsewhere. Nothing is guessed."""


class NotStored(OSError):
    """A transaction was not written: nothing of it counts, and nothing of it may be handed out."""


class Retired(RuntimeError):
    """Nothing more may be answered from this store; its records can be read."""


class Entry(NamedTuple):
    """What a row of the ledger is about: how many answers a client got in a phase, and how many count."""

    client: str
    answers: int
    phase: int
    cost: int


class LedgerRow(NamedTuple):
    """A row of the ledger. `time` is in milliseconds since 1970, and never runs backwards."""

    number: int
    time: int
    client: str
    answers: int
    phase: int
    cost: int
    previous: bytes
    hash: bytes


class Stored(NamedTuple):
    """What is kept under an idempotency key: digest of the body, codes of all answers, and the phase of the first.

    `rest` holds the rows that have no answer yet, where a phase has ended in the middle of a request. Their codes, the
    last ones, are zeros until they have.
    """

    digest: bytes
    codes: bytes
    phase: int
    rest: bytes | None = None


class Part(NamedTuple):
    """Queries of the window and the codes of their answers; `clients` is a list of [client, rows], None for nobody."""

    clients: list[tuple[str, int]] | None
    rows: bytes
    codes: bytes


@dataclass(frozen=True)
class Opened:
    """A phase that begins: its public numbers, its event as JSON, and the seal of the file with its state."""

    number: int
    rows: int
    answers: int
    event: str
    seal: str


@dataclass(frozen=True)
class Transaction:
    """All that one batch changes."""

    time: int
    clock: Mapping[str, Any]
    entries: Sequence[Entry]
    answers: Sequence[tuple[str, str, Stored]] = ()
    expires: int = 0
    journal: Part | None = None
    passed: Sequence[Opened] = ()  # phases that began in this batch, the last of which is the present one


@dataclass(frozen=True)
class Position:
    """Where a store stands."""

    phase: int
    seal: str
    clock: dict[str, Any]
    time: int
    untidy: bool
    length: int
    head: bytes
    journal: bytes


@dataclass(frozen=True)
class Verified:
    """What a check of all that there is found: the rows of the ledger, its head, and the answers counted by phase."""

    length: int
    head: str
    counted: dict[int, int] = field(default_factory=dict)


def canonical(number: int, time: int, entry: Entry, previous: bytes) -> bytes:
    """The row as JSON with sorted names and no spaces, in ASCII; its SHA-256 is the hash of the row.

    >>> canonical(1, 5, Entry("a", 2, 1, 2), bytes(2))
    b'{"answers":2,"client":"a","cost":2,"number":1,"phase":1,"previous":"0000","time":5}'
    """
    return (
        f'{{"answers":{entry.answers},"client":{json.dumps(entry.client)},"cost":{entry.cost},"number":{number},'
        f'"phase":{entry.phase},"previous":"{previous.hex()}","time":{time}}}'
    ).encode()


def chained(before: bytes, part: Part) -> bytes:
    """The hash of a part of the journal: over the hash before, the clients, the rows and the codes."""
    digest = hashlib.sha256(before)
    for piece in (json.dumps(part.clients).encode(), part.rows, part.codes):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.digest()


@dataclass(frozen=True)
class Loose:
    """The last parts of the journal, which are to be made one when there are enough, and the hash before them.

    A journal of a million parts would take long to read. One of a thousand takes a second, however many rows it has.
    """

    before: bytes
    parts: tuple[Part, ...] = ()
    size: int = 0

    def add(self, part: Part, end: bytes) -> tuple[Loose, Part, int, bytes]:
        """What is loose now; what is to be written, in place of how many of the last parts; and the new end."""
        after, more = chained(end, part), len(part.rows)
        if more > LARGEST:
            return Loose(after), part, 0, after
        alike = not self.parts or (part.clients is None) == (self.parts[0].clients is None)
        if not alike or self.size + more > LARGEST:  # those before stay as they are
            return Loose(end, (part,), more), part, 0, after
        loose = Loose(self.before, (*self.parts, part), self.size + more)
        if len(loose.parts) < PARTS:
            return loose, part, 0, after
        merged = _merged(loose.parts)
        after = chained(self.before, merged)
        return Loose(after), merged, len(self.parts), after


def _merged(parts: Sequence[Part]) -> Part:
    """Parts as one; a client that comes twice in a row is named once."""
    runs: list[tuple[str, int]] = []
    for part in parts:
        for client, count in part.clients or ():
            before = runs.pop()[1] if runs and runs[-1][0] == client else 0
            runs.append((client, before + count))
    clients = None if parts[0].clients is None else runs
    return Part(clients, b"".join(one.rows for one in parts), b"".join(one.codes for one in parts))


class Store(Guarded):
    """One SQLite file, one connection, used by one thread at a time; every transaction is on the disk when it returns.

    The ledger is append-only: each row holds the hash of the one before, so that a row cannot be changed, left out or
    put in without all later hashes changing. The first `previous` is the hash of the settings that the store was made
    with. Beside the file lies the `Witness`: after each transaction the number of rows and the last hash are written
    to it. A store that is behind its witness has lost transactions (a write-ahead log that was removed or damaged, a
    file put back from a backup), and is refused.

    After a crash SQLite recovers the file by its log: the file alone may be of any length, with any of the pages that
    the log holds. So nothing is concluded from the file alone. What was recovered is checked by hashes, and forced to
    the disk before anyone is told of it: the process that wrote it may have died before it could.

    `retired` says why nothing may be answered from it any more: "retired", "handed over" or "incomplete", or None if
    answers may be given. `upgraded` is the older version that the file had until now, or None.
    """

    _twice = "two processes would write through one connection"
    _instead = "Open it in the process that uses it"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._guard = Guard(type(self))
        self.path = Path(path)
        if not self.path.is_file():
            raise Damaged(f"{self.path} does not exist")
        _check_header(self.path)
        self._witness: Witness | None = None
        with self._refusing():
            self._connection = _connected(self.path)
            try:
                self.upgraded = _check_kind(self._db, self.path)
                _settle(self._db, self.path)
                self.settings = _settings(self._db)
                self.position = _position(self._db)
                self._loose = Loose(self.position.journal)
                self._check_ends()
                self.retired = _retired(self._db)
                self._witness = Witness(self.path)
                self._testify()
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: Mapping[str, str],
        opened: Opened,
        clock: Mapping[str, Any],
        *,
        time: int,
    ) -> Self:
        """A new store; `settings` never change, and start the chain of hashes."""
        place = Path(path)
        if place.exists():
            raise FileExistsError(f"{place} exists")
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = _connected(place)
        start = _start(settings)
        with _transaction(db):
            for statement in _statements(TABLES):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
            _begin(db, opened)
            db.execute(
                "INSERT INTO position VALUES (1, ?, ?, ?, ?, 0, 0, ?, ?)",
                (opened.number, opened.seal, _packed(clock), time, start, start),
            )
        db.close()
        Witness.create(place, 0, start)
        return cls(place)

    def close(self) -> None:
        """Let go of the file; once is enough. A forked process leaves the connection alone, as SQLite asks."""
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

    def write(self, batch: Transaction) -> list[LedgerRow]:
        """Write all that a batch changes, or nothing; when this returns, it is on the disk. The new rows."""
        if self.retired is not None:
            raise NotStored(errno.EROFS, f"nothing is answered from a store that is {self.retired}")
        return self._commit(batch)

    def mark(self, what: str, *, time: int) -> None:
        """Append a row to the ledger that says, in such a word, what became of the store."""
        now = self.position
        self._commit(Transaction(time=time, clock=now.clock, entries=[Entry(what, 0, now.phase, 0)]))
        self.retired = _retired(self._db)

    def _commit(self, batch: Transaction) -> list[LedgerRow]:
        now, time = self.position, max(batch.time, self.position.time)
        made = list(_rows(now.length, now.head, time, batch.entries))
        head = made[-1].hash if made else now.head
        last = batch.passed[-1] if batch.passed else None
        journal = now.journal if last is None else _start(self.settings)
        loose, part, merged = self._loose if last is None else Loose(journal), batch.journal, 0
        if part is not None:
            loose, part, merged, journal = loose.add(part, journal)
        after = Position(
            phase=now.phase if last is None else last.number,
            seal=now.seal if last is None else last.seal,
            clock=dict(batch.clock),
            time=time,
            untidy=now.untidy or last is not None,
            length=now.length + len(made),
            head=head,
            journal=journal,
        )
        try:
            with _transaction(self._db):
                self._write(batch, made, after)
                self._write_part(part, merged, journal)
        except sqlite3.Error as error:
            raise NotStored(f"nothing was stored: {error}") from error
        self.position, self._loose = after, loose
        self._testify()
        return made

    def _testify(self) -> None:
        assert self._witness is not None
        self._witness.write(self.position.length, self.position.head)

    def _write(self, batch: Transaction, made: Sequence[LedgerRow], after: Position) -> None:
        db = self._db
        db.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", made)
        if batch.passed:
            db.execute("DELETE FROM journal")
            for opened in batch.passed:
                _begin(db, opened)
        for entry in batch.entries:
            db.execute("UPDATE phases SET counted = counted + ? WHERE number = ?", (entry.cost, entry.phase))
            db.execute(
                "INSERT INTO clients VALUES (?, ?) ON CONFLICT (client) "
                "DO UPDATE SET answers = answers + excluded.answers",
                (entry.client, entry.answers),
            )
        db.executemany(
            "INSERT OR REPLACE INTO answers (client, key, digest, codes, phase, rest, expires) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(client, key, *stored, batch.expires) for client, key, stored in batch.answers],
        )
        gone = "SELECT client, key FROM answers WHERE rest IS NULL AND expires <= ? ORDER BY expires LIMIT ?"
        most = max(EXPIRED, 2 * len(batch.answers))
        db.execute(f"DELETE FROM answers WHERE (client, key) IN ({gone})", (after.time, most))
        db.execute(
            "UPDATE position SET phase = ?, seal = ?, clock = ?, time = ?, untidy = ?, length = ?, head = ?, "
            "journal = ?",
            (after.phase, after.seal, _packed(after.clock), after.time, after.untidy, after.length, after.head,
             after.journal),
        )  # fmt: skip

    def _write_part(self, part: Part | None, merged: int, end: bytes) -> None:
        if part is None:
            return
        if merged:
            self._db.execute("DELETE FROM journal WHERE number > (SELECT MAX(number) FROM journal) - ?", (merged,))
        clients, rows, codes = part
        self._db.execute(
            "INSERT INTO journal (clients, rows, codes, hash) VALUES (?, ?, ?, ?)",
            (json.dumps(clients), rows, codes, end),
        )

    def forget(self, time: int) -> bool:
        """Delete stored answers that have expired; whether there were any. What is not finished does not expire."""
        try:
            with _transaction(self._db):
                gone = self._db.execute(
                    "DELETE FROM answers WHERE rest IS NULL AND expires <= ?", (max(time, self.position.time),)
                )
        except sqlite3.Error as error:
            raise NotStored(f"what has expired was not deleted: {error}") from error
        return gone.rowcount > 0

    def tidy(self) -> None:
        """Delete for good what was deleted: give its pages back, and empty the log that still holds them.

        Deleted rows were overwritten with zeros (`secure_delete`), so giving pages back is as thorough as rewriting the
        whole file, and takes as long as what was deleted, not as all that is kept.
        """
        try:
            self._db.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after a page
            if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("someone reads the store")
            with _transaction(self._db):
                self._db.execute("UPDATE position SET untidy = 0")
        except sqlite3.Error as error:
            raise NotStored(f"what was deleted is not yet wiped from the disk: {error}") from error
        self.position = Position(**{**self.position.__dict__, "untidy": False})

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def stored(self, client: str, key: str, time: int) -> Stored | None:
        """The whole answer that this client got under this key, unless it has expired."""
        with self._refusing():
            found = self._db.execute(
                "SELECT digest, codes, phase FROM answers "
                "WHERE client = ? AND key = ? AND rest IS NULL AND expires > ?",
                (client, key, max(time, self.position.time)),
            ).fetchone()
        return None if found is None else Stored(*found)

    def unfinished(self) -> list[tuple[str, str, Stored]]:
        """Client, key and what is kept of each request that is not finished; there are few."""
        with self._refusing():
            query = "SELECT client, key, digest, codes, phase, rest FROM answers WHERE rest IS NOT NULL"
            return [(client, key, Stored(*kept)) for client, key, *kept in self._db.execute(query)]

    def journal(self) -> Iterator[Part]:
        """The journal of the present phase, in order; `Damaged` if it is not the one that was written."""
        hash_, number = _start(self.settings), 0
        with self._refusing():
            query = "SELECT number, clients, rows, codes, hash FROM journal ORDER BY number"
            for found, clients, rows, codes, noted in self._db.execute(query):
                named = json.loads(clients)
                part = Part(None if named is None else [(str(one), int(many)) for one, many in named], rows, codes)
                hash_, number = chained(hash_, part), number + 1
                if noted != hash_ or found != number:
                    raise Damaged(f"{self.path} is damaged: part {found} of its journal is not what was written")
                yield part
        if hash_ != self.position.journal:
            raise Damaged(f"{self.path} is damaged: its journal is not whole")

    def clients(self) -> dict[str, int]:
        """How many answers each client has had."""
        with self._refusing():
            return dict(self._db.execute("SELECT client, answers FROM clients"))

    def phases(self, many: int) -> list[tuple[int, int, int]]:
        """The last phases, in order: of each its number, the rows that it learned from and the answers it gave."""
        with self._refusing():
            found = self._db.execute("SELECT number, rows, counted FROM phases ORDER BY number DESC LIMIT ?", (many,))
            return found.fetchall()[::-1]

    def tail(self, rows: int) -> list[LedgerRow]:
        """The last rows of the ledger, in order."""
        with self._refusing():
            return _tail(self._db, rows)

    # ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_ends(self) -> None:
        """Whether the end of the ledger, the counts and the witness agree, in the same time however long it is."""
        now = self.position
        last = _tail(self._db, TAIL)
        (length,) = self._db.execute("SELECT COALESCE(MAX(number), 0) FROM ledger").fetchone()
        start = _start(self.settings) if len(last) == length else last[0].previous
        head, _ = _walked(last, length - len(last), start, self.path)
        if (length, head) != (now.length, now.head):
            raise Damaged(f"{self.path} is damaged: its ledger does not end where it should")
        counted = dict(self._db.execute("SELECT number, counted FROM phases"))
        if counted.get(now.phase) != now.clock["asked"] or sum(counted.values()) != now.clock["answered"]:
            raise Damaged(f"{self.path} is damaged: its phases do not have the counts that they should")
        _check_witness(self._db, self.path, self.settings, length)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        with _refusing(self.path):
            yield


def copied(path: str | os.PathLike[str], target: Path) -> Position:
    """Copy a store as it is at one moment, also while a server uses it, without what was deleted; where it stands.

    `target` must be new. It has no witness yet; see `witnessed`.
    """
    with reading(Path(path)) as db:
        vacuumed(db, target)
    with reading(target) as db:
        return _position(db)


def vacuumed(db: sqlite3.Connection, target: Path) -> None:
    """Write all that a database holds, as of one moment, to a new file that only its owner can read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    db.execute("VACUUM INTO ?", (str(target),))
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def witnessed(path: Path) -> None:
    """Write a witness for a copy that has none, as the copy stands: for one that was checked in another way."""
    with reading(path, as_it_is=True) as db:
        now = _position(db)
    Witness.create(path, now.length, now.head)


def origin(path: Path) -> tuple[str, str | None]:
    """The id that a store shares with its copies, and why it answers no more, if so. It may be of any version."""
    with reading(path, as_it_is=True) as db:
        return _settings(db)["id"], _retired(db)


def verify(path: str | os.PathLike[str]) -> Verified:
    """Check all of a store: every page, every hash, that all counts add up, and that nothing is lost.

    A server may be using it. Nothing beside it is written: it may be on a file system that can only be read.
    """
    place = Path(path)
    with _refusing(place):
        seen = Witness.read(place)  # before the store: a server writes the store first
    with reading(place) as db:
        db.execute("BEGIN")  # one view of everything, whatever is written meanwhile
        settings, position = _settings(db), _position(db)
        if (found := db.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise Damaged(f"{place} is damaged: {str(found).splitlines()[0]}")
        rows = (LedgerRow(*one) for one in db.execute("SELECT * FROM ledger ORDER BY number"))
        head, counted = _walked(rows, 0, _start(settings), place)
        (length,) = db.execute("SELECT COUNT(*) FROM ledger").fetchone()
        if (length, head) != (position.length, position.head):
            raise Damaged(f"{place} is damaged: its ledger does not end where it should")
        phases = dict(db.execute("SELECT number, counted FROM phases"))
        if phases != dict.fromkeys(phases, 0) | counted:
            raise Damaged(f"{place} is damaged: its phases do not have the counts of the ledger")
        if phases[position.phase] != position.clock["asked"] or sum(phases.values()) != position.clock["answered"]:
            raise Damaged(f"{place} is damaged: the clock does not have the counts of the ledger")
        given = dict(db.execute("SELECT client, SUM(answers) FROM ledger GROUP BY client"))
        if given != dict(db.execute("SELECT client, answers FROM clients")):
            raise Damaged(f"{place} is damaged: clients do not have the counts of the ledger")
        if db.execute("SELECT 1 FROM ledger GROUP BY client HAVING SUM(answers) > SUM(cost)").fetchone():
            raise Damaged(f"{place} is damaged: a client has had more answers than were counted")
        _check_witness(db, place, settings, length, seen)
    return Verified(length, head.hex(), phases)


@contextmanager
def reading(path: Path, *, as_it_is: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection that reads a store and changes nothing beside it.

    SQLite keeps a file of shared memory beside a store that has a log. Where it can make none, nobody is writing: a
    server would have made it. If the log is empty, the store is then read as a file that does not change. If not, both
    are copied to a private folder of temporary files, and recovered there. A store of an older version is brought up
    to date in such a copy, and one of a newer version refused, unless it is to be read `as_it_is`.
    """
    with _refusing(path), ExitStack() as stack:
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
        if not as_it_is and _version(db, path) < VERSION:
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            older, db = db, sqlite3.connect(copy, isolation_level=None)
            stack.callback(db.close)
            older.backup(db)
            _upgrade(db)
        yield db


def can_be_written(folder: Path) -> bool:
    """Whether files can be made in a folder: not on a file system that can only be read, nor in someone else's."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _read_only(path: Path, stack: ExitStack, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{how}", uri=True, isolation_level=None)
    stack.callback(db.close)
    db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()  # it is opened now
    return db


# ── the witness ───────────────────────────────────────────────────────────────────────────────────────────────────


class Witness:
    """How long the ledger of a store is, and its last hash: a file beside the store, written after each transaction.

    It has two records, each with a checksum, which take turns. One that is being written when the process or the
    machine dies may be torn; the other, of the transaction before, is then whole. It is not forced to the disk. The
    store is, before it is written: so after a loss of power it may be behind the store, but never ahead.
    """

    def __init__(self, store: Path) -> None:
        *self._last, place = _records(store)[-1]
        self._next = 1 - place
        self._file = os.open(_witness_path(store), os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(self._file).st_size != APART + WITNESS.size:  # that of an older version has one record
            os.ftruncate(self._file, APART + WITNESS.size)

    @staticmethod
    def create(store: Path, length: int, head: bytes) -> None:
        """A new one; it is on the disk when this returns."""
        descriptor = os.open(_witness_path(store), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, _testimony(length, head), 0)
            os.ftruncate(descriptor, APART + WITNESS.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def read(store: Path) -> tuple[int, bytes]:
        """What it saw last: how many rows, and the hash of the last of them."""
        return _records(store)[-1][:2]

    def write(self, length: int, head: bytes) -> None:
        """Note down where the store stands."""
        if self._last != [length, head]:
            os.pwrite(self._file, _testimony(length, head), APART * self._next)
            self._last, self._next = [length, head], 1 - self._next

    def close(self) -> None:
        """Let go of the file; once is enough."""
        file, self._file = self._file, -1  # its number may soon be another file's
        if file >= 0:
            with suppress(OSError):
                os.close(file)


def _witness_path(store: Path) -> Path:
    return store.with_name("witness")


def _testimony(length: int, head: bytes) -> bytes:
    seen = WITNESS.pack(b"reticent", length, head, bytes(16))
    return seen[:-16] + hashlib.sha256(seen).digest()[:16]


def _records(store: Path) -> list[tuple[int, bytes, int]]:
    """The records of a witness that are whole, the last one last: rows, hash, and which of the two it is."""
    try:
        data = _witness_path(store).read_bytes()
    except FileNotFoundError:
        raise Damaged(f"the witness beside {store} is missing: the store may not be whole") from None
    whole = []
    for place in (0, 1):
        record = data[APART * place :][: WITNESS.size]
        if len(record) == WITNESS.size:
            _, length, head, _ = WITNESS.unpack(record)
            if record == _testimony(length, head):
                whole.append((length, head, place))
    if not whole or len(data) not in (WITNESS.size, APART + WITNESS.size):
        raise Damaged(f"the witness beside {store} is damaged")
    return sorted(whole)


def _check_witness(
    db: sqlite3.Connection,
    path: Path,
    settings: Mapping[str, str],
    length: int,
    seen: tuple[int, bytes] | None = None,
) -> None:
    """Refuse a ledger that does not have the row that the witness saw last."""
    rows, head = seen or Witness.read(path)
    found = db.execute("SELECT hash FROM ledger WHERE number = ?", (rows,)).fetchone()
    if (_start(settings) if rows == 0 else found and found[0]) != head:
        raise Damaged(
            f"{path} has lost answers that were counted: {length} rows of the ledger, while the witness saw "
            f"{rows}. It was put back from a backup, or its log was removed; going on would count them twice"
        )


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _connected(path: Path) -> sqlite3.Connection:
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


def _check_header(path: Path) -> None:
    """Refuse what is no database, before SQLite makes one of an empty file."""
    with open(path, "rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            raise Damaged(f"{path} is damaged, or is no store")


def _settle(db: sqlite3.Connection, path: Path) -> None:
    """Force what was recovered to the disk.

    Who wrote it may have died before that was done, or have been told that it could not be done. A checkpoint writes it
    once more, to another file, and forces that. If someone reads, it may stop early; then the log itself is forced.
    """
    busy, frames, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    log = path.with_name(f"{path.name}-wal")
    for one in (log, path.parent) if busy or frames != moved else ():
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The version of a store, if it is one that can be read."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise Damaged(f"{path} is no store of reticent")
    if version > VERSION:
        raise Damaged(f"{path} is a store of version {version}; this reticent knows up to {VERSION}: use a newer one")
    if not all(one in UPGRADES for one in range(version, VERSION)):
        raise Damaged(f"{path} is a store of version {version}, which this reticent cannot bring up to {VERSION}")
    return int(version)


def _check_kind(db: sqlite3.Connection, path: Path) -> int | None:
    """Refuse what is no store, or one of a version that is not known; bring an older one up to date.

    The version that it had, if that was an older one. As it was, it is kept beside: `kept_path`.
    """
    if (version := _version(db, path)) == VERSION:
        return None
    kept = kept_path(path, version)
    kept.unlink(missing_ok=True)  # of an upgrade that came to no end
    vacuumed(db, kept)
    _upgrade(db)
    return version


def _upgrade(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    with _transaction(db):
        for one in range(version, VERSION):
            UPGRADES[one](db)
        db.execute(f"PRAGMA user_version = {VERSION}")


def kept_path(path: Path, version: int | str) -> Path:
    """Where a store is kept as it was before an upgrade, until the phase is over."""
    return path.with_name(f"{path.stem}-version-{version}{path.suffix}")


def _retired(db: sqlite3.Connection) -> str | None:
    """What the last row of the ledger says, if it counts nothing and is such a word; rows of clients count."""
    for last in _tail(db, 1):
        if last.cost == 0 and last.client in (RETIRED, HANDED_OVER, INCOMPLETE):
            return last.client
    return None


def _settings(db: sqlite3.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, value FROM settings"))


def _start(settings: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True, separators=(",", ":")).encode()).digest()


def _position(db: sqlite3.Connection) -> Position:
    phase, seal, clock, time, untidy, length, head, journal = db.execute(
        "SELECT phase, seal, clock, time, untidy, length, head, journal FROM position"
    ).fetchone()
    return Position(phase, seal, json.loads(clock), time, bool(untidy), length, head, journal)


def _packed(clock: Mapping[str, Any]) -> bytes:
    packed = json.dumps(dict(clock)).encode().ljust(SECRET)
    if len(packed) != SECRET:
        raise ValueError(f"the clock takes {len(packed)} bytes, more than {SECRET}")
    return packed


def _begin(db: sqlite3.Connection, opened: Opened) -> None:
    db.execute("INSERT INTO phases VALUES (?, ?, ?, ?, 0)", (opened.number, opened.rows, opened.answers, opened.event))


def _rows(length: int, head: bytes, time: int, entries: Sequence[Entry]) -> Iterator[LedgerRow]:
    for number, entry in enumerate(entries, start=length + 1):
        made = hashlib.sha256(canonical(number, time, entry, head)).digest()
        yield LedgerRow(number, time, *entry, head, made)
        head = made


def _tail(db: sqlite3.Connection, rows: int) -> list[LedgerRow]:
    found = db.execute("SELECT * FROM ledger ORDER BY number DESC LIMIT ?", (rows,)).fetchall()
    return [LedgerRow(*one) for one in reversed(found)]


def _walked(rows: Any, number: int, head: bytes, path: Path) -> tuple[bytes, dict[int, int]]:
    """Follow the chain from a row on: the last hash, and what was counted by phase."""
    counted: dict[int, int] = {}
    time = 0
    for row in rows:
        number += 1
        entry = Entry(row.client, row.answers, row.phase, row.cost)
        right = row.number == number and row.previous == head and row.time >= time
        head = hashlib.sha256(canonical(number, row.time, entry, head)).digest()
        if not right or row.hash != head or entry.answers < 0 or entry.cost < 0:
            raise Damaged(f"{path} is damaged: row {row.number} of its ledger is not the one that was written")
        counted[entry.phase] = counted.get(entry.phase, 0) + entry.cost
        time = row.time
    return head, counted


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one at a time, since running it as a whole would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a failed COMMIT may have rolled back by itself
            db.execute("ROLLBACK")
        raise


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Whatever SQLite finds wrong with the bytes of a file, it is refused as damaged; what the disk refuses is not."""
    try:
        yield
    except (sqlite3.OperationalError, Damaged):
        raise
    except (sqlite3.Error, json.JSONDecodeError, TypeError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise Damaged(f"{path} is damaged, or is no store ({type(error).__name__})") from error
