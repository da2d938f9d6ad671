"""Later labels in the SQLite store: slots of queries, written in place, and receipts for labelled rows."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from reticent.service.keys import ANONYMOUS
from reticent.service.store.later_labels import NO_LABEL, TICKET, LabelledTransaction, SlotLabel
from reticent.service.store.protocol import JournalPart, Superseded

DAY = 24 * 3600 * 1000  # milliseconds
CELL = 4  # bytes of a label: 0 if none was written, else the class index and 2
CELLS = 1000  # of a part, which fits into one page


def owns(client: str | None, owner: str | None) -> bool:
    """Whether a client may give the label of a query that was asked under a name.

    Each anonymous query has a name of its own, or none. Whoever has no key may give the labels of all of them.

    >>> owns("ann", "ann"), owns("ann", "bob"), owns("anonymous", "anonymous 7"), owns("ann", None)
    (True, False, True, False)
    """
    if client is not None and client != ANONYMOUS:
        return client == owner
    return owner is None or owner == ANONYMOUS or owner.startswith(f"{ANONYMOUS} ")


class SlotIndex:
    """The place of each ticket of a phase, and who asked it. It is read from the journal when it is first needed.

    Parameters
    ----------
    end : bytes
        The hash of the journal that it was made for.
    """

    def __init__(self, end: bytes) -> None:
        self.end = end
        self._places: dict[bytes, int] = {}
        self._starts: list[int] = []  # of runs of one client
        self._owners: list[str | None] = []

    @classmethod
    def read(cls, db: sqlite3.Connection, end: bytes) -> SlotIndex:
        """The index of the journal as it is now, whose hash is `end`."""
        made = cls(end)
        for clients, tickets in db.execute("SELECT clients, tickets FROM journal WHERE tickets != x'' ORDER BY number"):
            made._add(json.loads(clients), tickets)
        return made

    def add(self, part: JournalPart | None, end: bytes) -> None:
        """Add a part that was appended to the journal, whose hash is now `end`."""
        if part is not None and part.tickets:
            self._add(part.clients, part.tickets)
        self.end = end

    def _add(self, clients: Sequence[tuple[str, int]] | None, tickets: bytes) -> None:
        start = len(self._places)
        count = len(tickets) // TICKET
        self._places.update((tickets[TICKET * one : TICKET * (one + 1)], start + one) for one in range(count))
        for client, many in [(None, count)] if clients is None else clients:
            self._starts.append(start)
            self._owners.append(client)
            start += many

    def place(self, ticket: bytes) -> int | None:
        """The place of a ticket; None if it is not one of this phase."""
        return self._places.get(ticket)

    def owner(self, place: int) -> str | None:
        """Who asked the query at a place."""
        return self._owners[bisect_right(self._starts, place) - 1]

    def tickets(self) -> Iterator[bytes]:
        """All tickets, by place."""
        return iter(self._places)


def open_slots(db: sqlite3.Connection, before: int, tickets: bytes) -> int:
    """Make space for the labels of some tickets, after `before` others; return how many slots there are then."""
    after = before + len(tickets) // TICKET
    for part in range(-(-before // CELLS), -(-after // CELLS)):
        db.execute("INSERT INTO labels VALUES (?, zeroblob(?))", (part, CELL * CELLS))
    return after


def write_cells(
    db: sqlite3.Connection, index: SlotIndex, labels: Sequence[SlotLabel], *, slots: int, closed: int
) -> list[SlotLabel]:
    """Write labels into their cells; return those that count, with the client that asked.

    A label that does not count writes a cell as well: that of its ticket, or of any other, with what it holds. So what
    is written to the disk is the same.
    """
    if not slots:
        db.execute("UPDATE position SET one = 1")  # as much work
        return []
    counted: list[SlotLabel] = []
    cells: dict[int, bytes | None] = {}  # what to write, by place; None for what is there
    for ticket, client, label in labels:
        place = index.place(ticket)
        if place is None:
            cells.setdefault(int.from_bytes(ticket, "big") % slots, None)
            continue
        owner = index.owner(place)
        if place < closed or not owns(client, owner):
            cells.setdefault(place, None)
            continue
        cells[place] = (label + 2).to_bytes(CELL, "little")
        counted.append(SlotLabel(ticket, owner, label))
    for place in sorted(cells):
        part, cell = divmod(place, CELLS)
        with db.blobopen("labels", "cells", part) as blob:
            blob.seek(CELL * cell)
            value = cells[place] or blob.read(CELL)
            blob.seek(CELL * cell)
            blob.write(value)
    return counted


def read_labels(db: sqlite3.Connection, index: SlotIndex) -> list[SlotLabel]:
    """The labels that were written, by place."""
    cells = b"".join(one for (one,) in db.execute("SELECT cells FROM labels ORDER BY part"))
    found = []
    for place, ticket in enumerate(index.tickets()):
        value = int.from_bytes(cells[CELL * place : CELL * (place + 1)], "little")
        if value:
            found.append(SlotLabel(ticket, index.owner(place), max(NO_LABEL, value - 2)))
    return found


# ── receipts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def keep_receipt(db: sqlite3.Connection, batch: LabelledTransaction, time: int) -> None:
    """Note who sent labelled rows, and keep the reply under its key, unless one is kept that has not expired."""
    now = max(time, batch.time)
    db.execute(
        "UPDATE labelled SET key = NULL WHERE client = ? AND key = ? AND expires <= ?", (batch.client, batch.key, now)
    )
    try:
        db.execute(
            "INSERT INTO labelled VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)",
            (batch.part.first, batch.count, batch.client, now, batch.key, batch.digest, batch.reply, now + batch.keep),
        )
    except sqlite3.IntegrityError:
        raise Superseded("labelled rows were stored under the same key by another transaction") from None


def own_numbers(db: sqlite3.Connection, client: str, numbers: Sequence[int]) -> list[int]:
    """Those of the numbers that are labelled rows of a client, and may still wait."""
    known = db.execute(
        "SELECT first, first + count FROM labelled WHERE client = ? AND waiting ORDER BY first", (client,)
    ).fetchall()
    starts = [first for first, _ in known]
    found = ((one, bisect_right(starts, one) - 1) for one in numbers)
    return [one for one, run in found if run >= 0 and one < known[run][1]]


def delete_receipts(db: sqlite3.Connection, now: int) -> int:
    """Delete receipts that have expired, of rows that wait no more; return how many."""
    old = "NOT waiting AND expires <= ? AND time <= ?"
    return db.execute(f"DELETE FROM labelled WHERE {old}", (now, now - DAY)).rowcount
