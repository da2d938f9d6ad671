"""The record of a table whose rows are taught: no row of it is ever taught twice."""

from __future__ import annotations

import hashlib
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from reticent.cli.sent_rows import SentRows, read_record

if TYPE_CHECKING:
    from reticent.service.client_labels import Taught

REMEMBERED = 23 * 3600  # seconds during which a server certainly knows a request by its idempotency key


class TaughtTable(SentRows):
    """The rows of a table that were taught to a predictor, in a record beside the table that stays.

    A row that is learned from twice costs everything twice. So the record is kept when all rows are taught, with a hash
    of the table, and the same table is refused from then on.

    A server remembers a request for a day. If a run was interrupted longer ago, nobody knows whether its last request
    was received. Its rows are then left out.

    Parameters
    ----------
    table : Path
        The table.
    name : str
        The predictor.
    rows : int
        Number of rows of the table.
    client : str
        Who teaches.
    at_once : int
        Rows of a request.
    """

    def __init__(self, table: Path, name: str, rows: int, client: str, at_once: int) -> None:
        more: dict[str, Any] = {"began": 0.0, "at_once": at_once, "left_out": 0, "kept": 0, "numbers": [], "hash": None}
        size = table.stat().st_size
        super().__init__(record_of(table, name), table, rows=rows, size=size, client=client, **more)
        if self.pending is not None and not 0 <= time.time() - self._page["began"] < REMEMBERED:
            print(
                f"reticent: {self.pending:,} rows of {table}, from row {self.done:,} on, were sent over a day ago, "
                "and nobody knows whether they were received. They are left out, so that none is taught twice",
                file=sys.stderr,
            )
            self._page["left_out"] += self.pending
            self.acknowledge(self.pending)
        self._threads = ThreadPoolExecutor(1)
        self._hash: Future[str] = self._threads.submit(hash_of, table)

    @property
    def at_once(self) -> int:
        """The rows of a request: those of the run that is continued."""
        return int(self._page["at_once"])

    @property
    def kept(self) -> int:
        """How many rows some phase learns from, or is judged by."""
        return int(self._page["kept"])

    @property
    def left_out(self) -> int:
        """How many rows were left out."""
        return int(self._page["left_out"])

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """The numbers that the rows have got, as first and last of each run."""
        return [(first, last) for first, last in self._page["numbers"]]

    def begin(self, rows: int) -> str:
        """Record that this many rows are taught next; returns their idempotency key."""
        self._page["began"] = time.time()
        return super().begin(rows)

    def add(self, taught: Taught) -> None:
        """Note that rows were received."""
        runs, ends = self.numbers, np.flatnonzero(np.diff(taught.numbers, append=-1) != 1)
        starts = [0, *(ends[:-1] + 1)]
        for first, last in taught.numbers[np.column_stack([starts, ends])].tolist():
            if runs and runs[-1][1] + 1 == first:
                runs[-1] = (runs[-1][0], last)
            else:
                runs.append((first, last))
        self.acknowledge(len(taught.numbers), kept=self.kept + taught.kept, numbers=runs)

    def finish(self) -> None:
        """Record that all rows are taught."""
        self._page["hash"] = self._hash.result()
        self._write()

    def leave(self, error: BaseException) -> None:
        """Say how to continue; if certainly nothing was received, leave no record behind."""
        if self.nothing_happened(error):
            self.remove()
        elif self.done < self._rows:
            self._write()
            print(
                f"reticent: {self.done:,} of {self._rows:,} rows are taught; the rest can be taught with --resume",
                file=sys.stderr,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def record_of(table: Path, name: str) -> Path:
    """The record of a table that is taught to a predictor."""
    return table.with_name(f"{table.name}.{name}.taught")


def hash_of(table: Path) -> str:
    """The SHA-256 of a file."""
    with open(table, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_record(table: Path, name: str, *, resume: bool) -> bool:
    """Whether there is anything to teach; refuse a table that was taught, or begun, before anything is sent.

    Parameters
    ----------
    table : Path
        The table.
    name : str
        The predictor.
    resume : bool
        Whether to continue what was begun.
    """
    record = record_of(table, name)
    if not record.exists():
        return True
    page = read_record(record)
    if page is None:
        raise ValueError(f"{record} is damaged, so it is not known which rows of {table} were taught")
    if page.get("hash") is None:
        if not resume:
            raise ValueError(f"some rows of {table} were taught to {name}: continue with --resume")
        return True
    if page["hash"] != hash_of(table):
        record.unlink()  # it is another table under the same name
        return True
    if resume:
        return False
    raise ValueError(
        f"{table} was taught to {name} before, and whoever is in it would pay twice. If you mean that, delete "
        f"{record.name}"
    )
