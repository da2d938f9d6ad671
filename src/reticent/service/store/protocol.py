"""What the answering service needs of a store: its records, its transactions and what they promise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from reticent.service.store.later_labels import (
    LabelledTransaction,
    SlotLabel,
    StoredReceipt,
    TaughtPart,
    WithdrawalPart,
)

# Rows of the answer log that count nothing and record what became of the store, in place of a client. After the first
# three nothing is answered: a backup is to continue in its place, a backup does, or answers may be missing. The last
# one lets a restored backup continue.
RETIRED, HANDED_OVER, INCOMPLETE, RESTORED = "retired", "handed over", "incomplete", "restored"
FINAL_MARKS = (RETIRED, HANDED_OVER, INCOMPLETE)


class Damaged(ValueError):
    """The records are not the ones that were written: they are incomplete, edited or restored from elsewhere."""


class NotStored(OSError):
    """A transaction was not written. Nothing of it may be handed out, and the handle must not be used again."""


class Superseded(NotStored):
    """A transaction does not fit the store any more, usually because another process wrote first.

    Nothing of it is stored, now or later. The handle stays usable; `AnswerStore.position` is the current one.
    """


class Retired(RuntimeError):
    """Nothing more may be answered from this store. Its records can be read."""


class Entry(NamedTuple):
    """The content of a row of the answer log: how many answers a client received in a phase, and how many count."""

    client: str
    answers: int
    phase: int
    cost: int


class LogRow(NamedTuple):
    """A row of the answer log. `time` is in milliseconds since 1970 and never decreases from row to row."""

    number: int
    time: int
    client: str
    answers: int
    phase: int
    cost: int
    previous: bytes
    hash: bytes


class StoredAnswer(NamedTuple):
    """What is kept under an idempotency key.

    `digest` identifies the body, `class_indices` are the answers to all its rows, `phase` gave the first of them.
    `rest` holds the rows that have no answer yet, if a phase ended in the middle of the request. The last class
    indices are then zeros, one for each of these rows. None means that the request is finished. `tickets` are those of
    the answers, `TICKET` bytes each, in the same way; empty if the predictor takes no feedback.
    """

    digest: bytes
    class_indices: bytes
    phase: int
    rest: bytes | None = None
    tickets: bytes = b""


class JournalPart(NamedTuple):
    """Queries that the next phase learns from, with their answers.

    `clients` is a list of runs `[client, number of rows]`, or None if all queries are anonymous. If queries get
    feedback, `tickets` has one of `TICKET` bytes for each of them, and each has a slot for a label. A part of tickets
    alone is of queries of the phase before, which are in the saved state of this one.
    """

    clients: list[tuple[str, int]] | None
    rows: bytes
    class_indices: bytes
    tickets: bytes = b""


AnyPart = JournalPart | TaughtPart | WithdrawalPart


@dataclass(frozen=True)
class OpenedPhase:
    """A phase that begins: its public numbers, its event as JSON, and the seal of the file that holds its state.

    `carried` has the tickets and clients of queries in that file that get feedback in this phase. Labelled rows before
    number `waiting_from` wait no more: a phase has learned from them.
    """

    number: int
    rows: int
    answers: int
    event: str
    seal: str
    carried: JournalPart | None = None
    waiting_from: int = 0


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """Everything that one batch of answers changes.

    Parameters
    ----------
    time : int
        Milliseconds since 1970. The store uses the time of its last transaction instead if that is later.
    phase : int
        The phase that gave the answers. Every entry names the same one.
    entries : sequence of Entry
        One row of the answer log each, in this order.
    after : int or None, default None
        How many answers the phase must have counted before this transaction. None accepts any number. Required with
        a `journal`: which queries the next phase learns from depends on how many came before them.
    closed : bool, default False
        Whether the phase gives no more answers.
    labeller : JSON value, default None
        State of the labeller. It may depend on votes, so it is secret and takes a fixed number of bytes.
    answers : sequence of (client, key, StoredAnswer), default ()
        What to keep under idempotency keys.
    keep : int, default 0
        For how many milliseconds to keep them.
    journal : JournalPart or None, default None
        Those of the queries that the next phase learns from.
    close_slots : int, default 0
        How many slots of the phase, the first ones, take no more labels from now on.
    """

    time: int
    phase: int
    entries: Sequence[Entry] = ()
    after: int | None = None
    closed: bool = False
    labeller: Any = None
    answers: Sequence[tuple[str, str, StoredAnswer]] = ()
    keep: int = 0
    journal: JournalPart | None = None
    close_slots: int = 0

    @property
    def cost(self) -> int:
        """How many answers it counts."""
        return sum(entry.cost for entry in self.entries)

    def check(self) -> None:
        """Refuse a transaction that no store can accept, whatever it holds."""
        if any(entry.phase != self.phase for entry in self.entries):
            raise ValueError("every entry must name the phase of its transaction")
        if any(entry.answers < 0 or entry.cost < 0 for entry in self.entries):
            raise ValueError("answers and cost must not be negative")
        if self.journal is not None and self.after is None:
            raise ValueError("a transaction with a journal must say how many answers came before it: after")


@dataclass(frozen=True)
class Position:
    """How far a store has come.

    `progress` has the answers counted in this phase (`asked`) and in all (`answered`), whether the phase is `closed`,
    and the state of the `labeller`. `length` and `head` are the number of rows and the last hash of the answer log,
    `journal` is the hash of the journal. `needs_wiping` says that deleted rows of a phase may still be on the disk.
    `labelled` counts the labelled rows of all phases, `slots` those of this one, of which the first `closed_slots` take
    no more labels.
    """

    phase: int
    answers_in_phase: int
    seal: str
    progress: dict[str, Any]
    time: int
    needs_wiping: bool
    length: int
    head: bytes
    journal: bytes
    labelled: int = 0
    slots: int = 0
    closed_slots: int = 0


@dataclass(frozen=True)
class Verified:
    """The result of a complete check: rows of the answer log, its last hash, and the answers counted in each phase."""

    length: int
    head: str
    counted: dict[int, int] = field(default_factory=dict)


class AnswerStore(Protocol):
    """What the answering service needs of a store.

    A handle belongs to one process and is used by one thread at a time, except where a method says otherwise. Any
    number of handles may write to one store, in any number of processes. These properties hold for all of them
    together. `reticent.service.store.conformance` tests them.

    *Order.* Transactions are totally ordered. The store, not the caller, assigns everything that depends on the
    order: the numbers, times and hashes of log rows, the counts of a phase, the numbers of labelled rows, and the
    positions of queries and labelled rows in the journal, which is one order of both. Row numbers are 1, 2, 3, …
    without a gap, and each row contains the hash of the row before. Times never decrease.

    *All or nothing.* A transaction is stored as a whole or not at all, in every view that anyone has of the store.

    *Durable before return.* When `write`, `write_labelled`, `withdraw_labelled`, `write_labels`, `begin_phase` or
    `mark` returns, no crash of the process or of the machine can undo the transaction. What a read returns is durable
    as well.

    *Crashes.* A transaction during which the process is killed, or that raises any other exception than
    `Superseded` and `ValueError`, is found as a whole by the next `open`, or not at all. Nobody may have seen its
    answers.

    *Counts.* A phase never counts more answers than it was opened with. Only the current phase counts answers, and
    only `begin_phase` ends it. A transaction that does not fit raises `Superseded` and changes nothing.

    *One answer for a key.* A stored answer that is finished and has not expired is never replaced. One that is not
    finished is replaced only by one with the same digest and fewer rows left, and it does not expire. A transaction
    that would do anything else raises `Superseded`, so that two processes that answer the same request at the same
    time count it once.

    *One receipt for a key.* The same holds for labelled rows: under a key of a client they are stored once, until the
    receipt expires.

    *Slots.* Each ticket of the journal has a slot for a label. `write_labels` writes it in place: another label takes
    the place of the first, until the slot is closed by `Transaction.close_slots` or `begin_phase`. No slot is opened
    again. Only the client that asked may write it; of those without a name, each may write all. Nothing else changes,
    whatever `write_labels` is given: not the log, its head, the time, the position, the hash of the journal, or the
    space that is used. So nobody sees whether a query has a label.

    *Failures tell nothing.* Whether a transaction succeeds, how long it takes and how much space it uses depend on
    sizes, times, clients and keys. They do not depend on rows, class indices or the state of the labeller.

    *After a final mark* (`FINAL_MARKS`) nothing is counted any more.

    *Loss is detected.* A store that was restored from an older copy, or that lost transactions in another way, is
    refused with `Damaged` as far as anything outside of it still shows the loss.
    """

    @property
    def settings(self) -> Mapping[str, str]:
        """What the store was created with. It never changes, and its hash is the first `previous` of the log."""

    @property
    def position(self) -> Position:
        """How far the store had come when this handle last wrote, was refused, or called `refresh`."""

    @property
    def retired(self) -> str | None:
        """The final mark at the end of the log, or None if answers may be counted."""

    def refresh(self) -> Position:
        """Read the current position, which other handles may have moved."""

    def write(self, transaction: Transaction, /) -> list[LogRow]:
        """Store what a batch of answers changes, and return the new rows of the answer log.

        Parameters
        ----------
        transaction : Transaction
            What a batch of answers changes.
        """

    def write_labelled(self, batch: LabelledTransaction, /) -> None:
        """Append labelled rows to the journal, and keep the receipt. `Superseded` if others came first.

        Parameters
        ----------
        batch : LabelledTransaction
            The rows, who sent them, and the reply.
        """

    def withdraw_labelled(self, client: str, numbers: Sequence[int], /, *, phase: int, time: int) -> tuple[int, ...]:
        """Append to the journal which labelled rows a client withdraws; return their numbers.

        Numbers of rows of other clients are left out, and of requests that no phase to come can have. `Superseded` in
        another phase.

        Parameters
        ----------
        client : str
            Who withdraws.
        numbers : sequence of int
            The numbers of the rows.
        phase : int
            The phase that is expected.
        time : int
            The time of the service, in milliseconds since 1970.
        """

    def write_labels(self, labels: Sequence[SlotLabel], /) -> list[SlotLabel]:
        """Write labels of queries into their slots; return those that count, with the client that asked.

        A ticket that is not known, of another client, or of a slot that is closed takes as long, and changes nothing.
        What is returned is as secret as the labels.

        Parameters
        ----------
        labels : sequence of SlotLabel
            Tickets, who gives the labels, and the labels. Later ones take the place of earlier ones.
        """

    def slot_labels(self) -> list[SlotLabel]:
        """The labels that were written in the current phase, in order of slots, each with the client that asked."""

    def stored_receipt(self, client: str, key: str, time: int, /) -> StoredReceipt | None:
        """The receipt that this client received for labelled rows under this key, unless it has expired.

        Parameters
        ----------
        client : str
            The id of the client.
        key : str
            The hash of its idempotency key.
        time : int
            The time of the service, in milliseconds since 1970.
        """

    def labelled_since(self, time: int, /) -> dict[str, int]:
        """How many labelled rows each client has sent after a time, which is at most a day ago.

        Parameters
        ----------
        time : int
            Milliseconds since 1970.
        """

    def begin_phase(self, opened: OpenedPhase, /, *, time: int, labeller: Any = None) -> None:
        """Make a phase the current one; empty the journal and the slots. `Superseded` unless it is the next phase.

        Parameters
        ----------
        opened : OpenedPhase
            The phase that begins.
        time : int
            The time of the service, in milliseconds since 1970.
        labeller : array-like, default None
            The state of its labeller, which is secret.
        """

    def mark(self, word: str, /, *, time: int) -> None:
        """Append a row to the answer log that counts nothing and has this word in place of a client.

        Parameters
        ----------
        word : str
            One of the words of the protocol, such as "retired".
        time : int
            The time of the service, in milliseconds since 1970.
        """

    def delete_expired(self, time: int, /) -> bool:
        """Delete stored answers and receipts that have expired; return whether there were any.

        Parameters
        ----------
        time : int
            The time of the service, in milliseconds since 1970.
        """

    def wipe(self) -> None:
        """Remove deleted rows from the disk as far as the system allows, so that `needs_wiping` becomes false."""

    def stored_answer(self, client: str, key: str, time: int, /) -> StoredAnswer | None:
        """The finished answer that this client received under this key, unless it has expired.

        Parameters
        ----------
        client : str
            The id of the client.
        key : str
            The hash of its idempotency key.
        time : int
            The time of the service, in milliseconds since 1970.
        """

    def unfinished_requests(self) -> list[tuple[str, str, StoredAnswer]]:
        """Client, key and what is stored of each request that still has rows without an answer."""

    def journal(self) -> Iterator[AnyPart]:
        """The journal of the current phase, in order. `Damaged` if it is not the one that was written."""

    def clients(self) -> dict[str, int]:
        """How many answers each client has received."""

    def phases(self, limit: int, /) -> list[tuple[int, int, int]]:
        """The last phases in order: number, rows that it learned from, answers that it counted.

        Parameters
        ----------
        limit : int
            The largest number of phases.
        """

    def tail(self, limit: int, /) -> list[LogRow]:
        """The last rows of the answer log, in order.

        Parameters
        ----------
        limit : int
            The largest number of rows.
        """

    def verify(self) -> Verified:
        """Check all records, while the store is in use. May be called from any thread."""

    def close(self) -> None:
        """Release the handle. Calling it again does nothing."""


class StoreType(Protocol):
    """How a `Home` opens and creates a store: a class of stores has both.

    `path` is a file in the folder of the predictor, which says where the records are if it does not hold them. A new
    folder is filled under another name, so a store must not rely on the path that it was created with.
    """

    def __call__(self, path: str | os.PathLike[str], /) -> AnswerStore:
        """Open the store. `Damaged` if its records are not the ones that were written."""

    def create(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, str],
        opened: OpenedPhase,
        progress: Mapping[str, Any],
        /,
        *,
        time: int,
    ) -> AnswerStore:
        """Create the store with its first phase; it is durable when this returns.

        Parameters
        ----------
        path : str or PathLike
            A file in the folder of the predictor.
        settings : Mapping of str to str
            What never changes; the chain of hashes starts from it.
        opened : OpenedPhase
            The first phase.
        progress : Mapping
            How far the phase has come.
        time : int
            The time of the service, in milliseconds since 1970.
        """
