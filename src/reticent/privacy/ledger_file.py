"""A budget in a file, which several processes and several runs share."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from reticent.privacy.events import Event
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.ledger import Ledger, Spent

APPLICATION = 0x7265746C  # "retl", in the header of the file
WAIT = 600  # seconds for which a process waits for another; a charge takes milliseconds


@dataclass(frozen=True)
class LedgerFile:
    """The address of a budget that is kept in a file: a `Ledger` that processes may share.

    A copy of this object, in any process, is the same address and so the same budget. Each charge opens the file,
    locks it, and is on the disk when it returns. A file that is gone or damaged is refused: nothing is charged then.

    **Guarantee**: that of `Ledger`, for all charges of all processes together.

    **Why**: each charge reads all earlier ones in the transaction in which it is recorded, and SQLite runs such
    transactions one at a time. The object holds no budget, so nothing is gained by copying it. A copy of the *file* is
    another budget, which nothing can detect.

    Parameters
    ----------
    path : str
        The file; see `create`. It must be on a local disk.

    Examples
    --------
    >>> import tempfile
    >>> from reticent.privacy.events import PureDP
    >>> folder = tempfile.mkdtemp()
    >>> ledger = LedgerFile.create(f"{folder}/tuning.ledger", Guarantee(epsilon=1.0))
    >>> ledger.charge(PureDP(0.1), 7)
    >>> LedgerFile(f"{folder}/tuning.ledger").remaining(PureDP(0.1))
    3
    """

    path: str

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        guarantee: Guarantee,
        *,
        accounting: Literal["basic", "renyi"] | None = None,
    ) -> Self:
        """Create a file with a new budget. An existing file is refused: its budget may be spent.

        Parameters
        ----------
        path : str or path-like
            The file, which must not exist.
        guarantee : Guarantee
            The guarantee of everything that is admitted.
        accounting : {"basic", "renyi"} or None, default None
            The rule by which events are added up: see `Ledger`.
        """
        Ledger(guarantee, accounting=accounting)  # or the parameters are refused, before there is a file
        file = Path(path).absolute()
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        store = _FileStore(file)
        with store.transaction(create=True):  # a file that is left empty by a kill is refused
            store.begin(guarantee, accounting)
        return cls(str(file))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that is admitted."""
        return self._opened().guarantee

    def charge(self, event: Event, times: int = 1) -> None:
        """Record that `event` is about to happen `times` times, or refuse: see `Ledger.charge`.

        Parameters
        ----------
        event : Event
            The event.
        times : int, default 1
            How often it is about to happen.

        Raises
        ------
        BudgetExhausted
            If it does not fit. The message states how many would.
        """
        self._opened().charge(event, times)

    def remaining(self, event: Event) -> int:
        """Return how many more of `event` fit."""
        return self._opened().remaining(event)

    @property
    def events(self) -> dict[Event, int]:
        """The events that were charged, and how often."""
        return self._opened().events

    @property
    def spent(self) -> Spent:
        """How much of the budget is used: see `Ledger.spent`."""
        return self._opened().spent

    def _opened(self) -> Ledger:
        store = _FileStore(Path(self.path))
        with store.transaction():
            guarantee, accounting = store.settings()
        return Ledger(guarantee, accounting=accounting, store=store)


class _FileStore:
    """A `LedgerStore` in an SQLite file, which is open during a transaction only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: sqlite3.Connection | None = None

    @property
    def _db(self) -> sqlite3.Connection:
        if self._open is None:
            raise RuntimeError("a ledger file is used within a transaction only")
        return self._open

    @contextmanager
    def transaction(self, *, create: bool = False) -> Iterator[None]:
        """Exclusive access, among all processes; what is recorded is on the disk when it ends."""
        if not self._path.is_file():
            raise FileNotFoundError(f"there is no ledger file {self._path}: LedgerFile.create makes a new one")
        db = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=WAIT)
        try:
            db.execute("PRAGMA synchronous = EXTRA")  # also the folder, or a removed journal could come back
            db.execute("BEGIN IMMEDIATE")
            if not create and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise ValueError(f"{self._path} is no ledger file")
            self._open = db
            yield
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        finally:
            self._open = None
            db.close()

    def begin(self, guarantee: Guarantee, accounting: str | None) -> None:
        """Make the tables."""
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute("CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT)")
        self._db.execute("CREATE TABLE events (event TEXT PRIMARY KEY, times INTEGER NOT NULL)")
        settings = {"guarantee": guarantee.to_json(), "accounting": accounting, "terms": None}
        self._db.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())

    def settings(self) -> tuple[Guarantee, Literal["basic", "renyi"] | None]:
        """What the file was created with."""
        found = dict(self._db.execute("SELECT name, value FROM settings"))
        return Guarantee.from_json(found["guarantee"]), found["accounting"]

    def terms(self) -> str | None:
        """Return the recorded terms, or None."""
        (found,) = self._db.execute("SELECT value FROM settings WHERE name = 'terms'").fetchone()
        return None if found is None else str(found)

    def agree(self, terms: str) -> None:
        """Record the terms."""
        self._db.execute("UPDATE settings SET value = ? WHERE name = 'terms'", (terms,))

    def counts(self) -> Mapping[str, int]:
        """Return how often each event was recorded."""
        return dict(self._db.execute("SELECT event, times FROM events"))

    def append(self, event: str, times: int) -> None:
        """Record an event `times` times."""
        self._db.execute(
            "INSERT INTO events VALUES (?, ?) ON CONFLICT (event) DO UPDATE SET times = times + excluded.times",
            (event, times),
        )
