"""A record of which rows of a table were sent to a predictor, so that a command can continue after any interruption."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reticent.errors import BudgetExhausted
from reticent.service.client_base import NotSent
from reticent.service.client_messages import ServiceError


class SentRows:
    """The rows of a table that were sent, in a file that is on disk before the next ones are sent.

    It holds a random id of the run, how many rows are done, and how many are in the request under way. Id and rows make
    the idempotency key. So whenever a run ends, `--resume` repeats the same request under the same key, gets the same
    reply, and the request counts once.

    Parameters
    ----------
    record : Path
        The file.
    subject : Path
        What messages call the thing that is continued.
    rows, size : int
        Number of rows and of bytes of the table. A table of other numbers is refused.
    client : str
        Who sends them. Idempotency keys belong to a client.
    **more
        What else is kept in the record, at the beginning.
    """

    def __init__(self, record: Path, subject: Path, *, rows: int, size: int, client: str, **more: Any) -> None:
        self._record, self._subject, self._rows = record, subject, rows
        self._page: dict[str, Any] = {
            "run": secrets.token_hex(16), "table": [rows, size], "who": client, "done": 0, "asked": 0, **more,
        }  # fmt: skip
        self.continued = record.exists()
        if self.continued:
            self._page = self._continued()
        else:
            self._write()
        self.pending: int | None = self._page["asked"] or None

    def _continued(self) -> dict[str, Any]:
        """The record, if it is of this table and this client."""
        page = read_record(self._record)
        if page is None or page.keys() != self._page.keys():
            raise ValueError(f"--resume: {self._record} is damaged; delete it and {self._subject} to start over")
        if page["table"] != self._page["table"]:
            raise ValueError(f"--resume: the table is not the one that {self._subject} was started with")
        if page["asked"] and page["who"] != self._page["who"]:  # an idempotency key belongs to a client
            raise ValueError(
                "--resume: the last rows were sent with another key, or to a server that does not run now, and would "
                "count again: send them as before"
            )
        return {**page, "who": self._page["who"]}

    @property
    def done(self) -> int:
        """How many rows are done."""
        return int(self._page["done"])

    def begin(self, rows: int) -> str:
        """Record that this many rows are sent next; returns their idempotency key."""
        self._page["asked"] = rows
        self._write()
        return f"{self._page['run']}-{self.done}-{rows}"

    def acknowledge(self, rows: int, **more: Any) -> None:
        """Note that this number of rows is done. It is written with the next rows that are sent, or at the end."""
        self._page |= {"done": self.done + rows, "asked": 0, **more}
        self.pending = None

    def nothing_happened(self, error: BaseException) -> bool:
        """Whether an error came before any row was done, and certainly nothing that was sent counts."""
        refused = isinstance(error, BudgetExhausted | NotSent) or (
            isinstance(error, ServiceError) and (error.status < 500 or error.kind == "no-answers-left")
        )
        sent = self._page["asked"] > 0
        return self.done == 0 and self.pending is None and (refused or not sent)

    def remove(self) -> None:
        """Remove the record."""
        self._record.unlink()

    def _write(self) -> None:
        unfinished = self._record.with_name(f"{self._record.name}.part")
        with open(unfinished, "w", encoding="ascii") as file:
            json.dump(self._page, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self._record)


def send_all(
    chunks: Iterable[dict[str, Any]],
    sent: SentRows,
    send: Callable[[dict[str, Any], str], None],
    advance: Callable[[int], None],
    *,
    rows: int,
) -> None:
    """Send all rows that are not done, in requests that are halved while the server finds them too large.

    Parameters
    ----------
    chunks : iterable of dict
        Columns of the table, some rows at a time, from its first row on.
    sent : SentRows
        What was sent.
    send : callable
        Sends columns under an idempotency key, and tells `sent` that they are done.
    advance : callable
        Called with the number of rows that are done.
    rows : int
        The most rows of a request.
    """
    size, skip = rows, sent.done
    advance(skip)
    for chunk in chunks:
        left = len(next(iter(chunk.values())))
        start, skip = min(left, skip), max(0, skip - left)
        while start < left:
            part = slice(start, min(left, start + (sent.pending or size)))
            key = sent.begin(part.stop - part.start)
            try:
                send({each: values[part] for each, values in chunk.items()}, key)
            except ServiceError as error:
                if error.kind != "too-large" or part.stop - part.start == 1:
                    raise
                size = (part.stop - part.start) // 2  # a request that is refused costs nothing
                sent.pending = None
                continue
            advance(part.stop - part.start)
            start = part.stop


def one_ahead(chunks: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same chunks; while one is sent, the next one is read, in a thread."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, chunks, None)
        while (chunk := following.result()) is not None:
            following = thread.submit(next, chunks, None)
            yield chunk


def read_record(record: Path) -> dict[str, Any] | None:
    """What a record holds; None if it is damaged."""
    try:
        page = json.loads(record.read_text(encoding="ascii"))
    except ValueError:
        return None
    return page if isinstance(page, dict) and isinstance(page.get("asked"), int) else None
