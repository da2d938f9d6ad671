"""What a store must hold, by the plainest means: `conformance` compares a store with it after each step."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reticent.service.store.hashing import canonical, first_hash
from reticent.service.store.later_labels import (
    TICKET,
    LabelledTransaction,
    SlotLabel,
    StoredReceipt,
    TaughtPart,
    WithdrawalPart,
)
from reticent.service.store.protocol import (
    FINAL_MARKS,
    AnswerStore,
    AnyPart,
    Entry,
    JournalPart,
    NotStored,
    OpenedPhase,
    StoredAnswer,
    Superseded,
    Transaction,
)

SETTINGS = {"format": "conformance", "id": "0" * 32}
CLIENTS, KEYS = ("ann", "bob", "Zoë"), ("k0", "k1", "k2")
NAMELESS = "anonymous"
FIRST = OpenedPhase(1, 10, 12, "{}", "seal-1")
START = 1_000


@dataclass
class Model:
    """What a store must hold, in memory and by the plainest means."""

    time: int = START
    phase: int = 1
    asked: int = 0
    answered: int = 0
    phase_closed: bool = False
    labeller: Any = None
    seal: str = FIRST.seal
    log: list[tuple[int, Entry]] = field(default_factory=list)
    phases: dict[int, list[int]] = field(default_factory=lambda: {1: [FIRST.rows, FIRST.answers, 0]})
    clients: dict[str, int] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[StoredAnswer, int]] = field(default_factory=dict)
    journal: list[tuple[Any, ...]] = field(default_factory=list)  # one item for each row, or withdrawal
    slots: list[tuple[bytes, str | None]] = field(default_factory=list)  # ticket, and who asked
    closed: int = 0
    labels: dict[bytes, int] = field(default_factory=dict)
    labelled: list[tuple[int, str]] = field(default_factory=list)  # of each row: when it came, and from whom
    over: int = 0  # labelled rows that wait no more
    receipts: dict[tuple[str, str], tuple[StoredReceipt, int]] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many answers the phase may still count."""
        return self.phases[self.phase][1] - self.asked

    @property
    def retired(self) -> str | None:
        """The final mark at the end of the log."""
        last = self.log[-1][1] if self.log else None
        return last.client if last is not None and last.cost == 0 and last.client in FINAL_MARKS else None

    def refusal(self, batch: Transaction) -> type[NotStored] | None:
        """The error that a transaction must raise, if any."""
        if self.retired is not None:
            return NotStored
        fits = batch.phase == self.phase and batch.after in (None, self.asked) and batch.cost <= self.left
        return None if fits and all(self._may_keep(batch, *one) for one in batch.answers) else Superseded

    def _may_keep(self, batch: Transaction, client: str, key: str, stored: StoredAnswer) -> bool:
        if (client, key) not in self.answers:
            return True
        before, expires = self.answers[client, key]
        if before.rest is None:
            return expires <= max(batch.time, self.time)
        return before.digest == stored.digest and len(before.rest) > len(stored.rest or b"")

    def write(self, batch: Transaction) -> None:
        """What an accepted transaction changes."""
        self.time = max(self.time, batch.time)
        for entry in batch.entries:
            self._append(entry)
        self.asked, self.answered = self.asked + batch.cost, self.answered + batch.cost
        self.phases[self.phase][2] += batch.cost
        self.phase_closed, self.labeller = batch.closed, batch.labeller
        self.closed = max(self.closed, batch.close_slots)
        for client, key, stored in batch.answers:
            self.answers[client, key] = stored, self.time + batch.keep
        if batch.journal is not None:
            self._append_part(batch.journal)

    def begin(self, opened: OpenedPhase, time: int) -> None:
        """What a new phase changes."""
        self.time, self.phase = max(self.time, time), opened.number
        self.asked, self.phase_closed, self.labeller = 0, False, None
        self.phases[opened.number] = [opened.rows, opened.answers, 0]
        self.seal, self.journal, self.slots, self.labels, self.closed = opened.seal, [], [], {}, 0
        self.over = max(self.over, opened.waiting_from)
        if opened.carried is not None:
            self._append_part(opened.carried)

    def _append_part(self, part: AnyPart) -> None:
        self.journal += rows_of(part)
        if isinstance(part, JournalPart) and part.tickets:
            self.slots += zip(tickets_of(part), names_of(part.clients, len(part.tickets) // TICKET), strict=True)

    def refuses_labelled(self, batch: LabelledTransaction) -> type[NotStored] | None:
        """The error that labelled rows must raise, if any."""
        if self.retired is not None:
            return NotStored
        _, expires = self.receipts.get((batch.client, batch.key or ""), (None, 0))
        taken = batch.key is not None and expires > max(self.time, batch.time)
        fits = batch.phase == self.phase and batch.part.first == len(self.labelled) and not taken
        return None if fits else Superseded

    def write_labelled(self, batch: LabelledTransaction) -> None:
        """What labelled rows change."""
        self.time = max(self.time, batch.time)
        self.labelled += [(self.time, batch.client)] * batch.count
        self._append_part(batch.part)
        if batch.key is not None:
            kept = StoredReceipt(batch.digest, batch.reply)
            self.receipts[batch.client, batch.key] = kept, self.time + batch.keep

    def withdraw(self, numbers: tuple[int, ...], time: int) -> None:
        """What a withdrawal changes."""
        self.time = max(self.time, time)
        if numbers:
            self._append_part(WithdrawalPart(numbers))

    def write_labels(self, labels: Sequence[SlotLabel]) -> list[SlotLabel]:
        """What labels of queries change; those that count, with who asked."""
        found, asked = [], dict(self.slots)
        for ticket, client, label in labels:
            opened = ticket in (one for one, _ in self.slots[self.closed :])
            if opened and (asked[ticket] or NAMELESS).startswith(client or NAMELESS):
                self.labels[ticket] = label
                found.append(SlotLabel(ticket, asked[ticket], label))
        return found

    def mark(self, word: str, time: int) -> None:
        """What a mark changes."""
        self.time = max(self.time, time)
        self._append(Entry(word, 0, self.phase, 0))

    def _append(self, entry: Entry) -> None:
        self.log.append((self.time, entry))
        self.clients[entry.client] = self.clients.get(entry.client, 0) + entry.answers

    def compare(self, store: AnswerStore) -> None:
        """Compare everything that a handle shows with what it must show."""
        now = store.refresh()
        counts = {"asked": self.asked, "answered": self.answered, "closed": self.phase_closed}
        assert now == store.position
        assert dict(store.settings) == SETTINGS
        assert now.progress == {**counts, "labeller": self.labeller}
        assert (now.phase, now.seal, now.time) == (self.phase, self.seal, self.time)
        assert now.answers_in_phase == self.phases[self.phase][1]
        assert store.retired == self.retired
        head = first_hash(SETTINGS)
        found = store.tail(len(self.log) + 1)
        assert [(row.time, Entry(row.client, row.answers, row.phase, row.cost)) for row in found] == self.log
        for number, row in enumerate(found, start=1):
            assert (row.number, row.previous) == (number, head), "numbers and hashes must be one chain"
            head = hashlib.sha256(canonical(number, *self.log[number - 1], head)).digest()
            assert row.hash == head
        assert (now.length, now.head) == (len(self.log), head)
        assert store.clients() == self.clients
        assert store.phases(99) == [(number, one[0], one[2]) for number, one in sorted(self.phases.items())]
        assert [row for part in store.journal() for row in rows_of(part)] == self.journal
        assert (now.labelled, now.slots, now.closed_slots) == (len(self.labelled), len(self.slots), self.closed)
        written = [SlotLabel(one, who, self.labels[one]) for one, who in self.slots if one in self.labels]
        assert store.slot_labels() == written, "labels of queries must be kept, in open slots only"
        assert store.labelled_since(START - 1) == dict(Counter(client for _, client in self.labelled))
        open_requests = {(client, key): kept for client, key, kept in store.unfinished_requests()}
        assert open_requests == {name: kept for name, (kept, _) in self.answers.items() if kept.rest is not None}
        for client in CLIENTS:
            for key in KEYS:
                kept, expires = self.answers.get((client, key), (None, 0))
                hidden = kept is None or kept.rest is not None or expires <= self.time
                assert store.stored_answer(client, key, 0) == (None if hidden else kept)
                receipt, until = self.receipts.get((client, key), (None, 0))
                assert store.stored_receipt(client, key, 0) == (receipt if until > self.time else None)


def rows_of(part: AnyPart) -> list[tuple[Any, ...]]:
    """A part of the journal row by row, however rows are gathered in parts."""
    if isinstance(part, WithdrawalPart):
        return [("withdrawn", *part.numbers)]
    if isinstance(part, TaughtPart):
        count = len(part.labels) // 4
        rows, labels = _pieces(part.rows, count), _pieces(part.labels, count)
        numbers = range(part.first, part.first + count)
        return list(zip(numbers, rows, labels, names_of(part.groups, count), strict=True))
    count = len(part.class_indices)
    if not count:
        return [("carried", one) for one in tickets_of(part)]
    tickets = tickets_of(part) or [b""] * count
    indices = _pieces(part.class_indices, count)
    return list(zip(names_of(part.clients, count), _pieces(part.rows, count), indices, tickets, strict=True))


def tickets_of(part: JournalPart) -> list[bytes]:
    """The tickets of a part."""
    return _pieces(part.tickets, len(part.tickets) // TICKET)


def names_of(runs: list[tuple[str, int]] | None, count: int) -> list[str | None]:
    """The name of each row."""
    return [None] * count if runs is None else [name for name, many in runs for _ in range(many)]


def _pieces(joined: bytes, count: int) -> list[bytes]:
    size = len(joined) // max(1, count)
    return [joined[size * one : size * (one + 1)] for one in range(count)]
