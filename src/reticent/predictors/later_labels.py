"""Labelled rows and queries with slots for labels: what a phase learns from if labels arrive after day one."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.groups import first_of_each
from reticent.data.rows import Rows
from reticent.predictors.admission import Admission
from reticent.predictors.intake import GaugeRows, NextRows, RowLimits
from reticent.predictors.phases import Phase
from reticent.predictors.places import NO_LABEL, Places, Slots
from reticent.predictors.truth import Truth

Array = NDArray[Any]
Integers = NDArray[np.int64]


class Taken(NamedTuple):
    """What became of labelled rows; all of it is public.

    Parameters
    ----------
    rows : int
        How many were kept: all, except rows of groups that have been in a phase, or that have enough rows.
    phase : int
        The phase that the last of them will be in.
    missing : int
        How many more labelled rows that phase needs before it begins; 0 if it begins by the clock of queries.
    first : int
        The number of the first of these rows, in order of arrival from 0 on; `withdraw_labelled` takes such numbers.
    """

    rows: int
    phase: int
    missing: int
    first: int


class LaterLabels:
    """Labelled rows, and queries with slots for labels: no row of the next phase is labelled by this one.

    A labelled row and a query enter one phase in one role. What is received after a phase's rows are complete belongs
    to the next one. Whether, when and with what a slot is filled changes nothing but the row that it completes.

    Parameters
    ----------
    truth : Truth
        Where labels come from.
    admission : Admission
        Which queries and groups may become rows.
    limits : RowLimits
        The shape of rows, and where they are kept.
    random_tickets : bool, default True
        False makes tickets of numbers, for audits, whose states must repeat.
    """

    def __init__(self, truth: Truth, admission: Admission, limits: RowLimits, *, random_tickets: bool = True) -> None:
        self.truth, self._admission, self._limits, self._random = truth, admission, limits, random_tickets
        self._slots: Slots | None = None
        self._held: Slots | None = None  # queries after the window
        self._chunks: deque[Places] = deque()  # of phase_rows labelled rows each, the last one not full
        self._numbers: deque[list[int]] = deque()  # of the rows of each chunk, in order of arrival
        self._phase = Phase(number=0, rows=0, answers=0, window=0)  # before the first
        self._prepared: tuple[Slots | None, Slots | None, int] | None = None  # of the next phase, and its held units
        self._before: tuple[int, dict[str, Any]] | None = None  # the window and state of admission before that
        self._received = self._issued = 0
        self._held_units = 0  # units of the next phase that were queries after the last window
        self.sealed = False  # whether the next phase learns, and takes no more
        self._early = False

    @property
    def count(self) -> int:
        """How many rows and slots there are for the next phase."""
        slots = 0 if self._slots is None else len(self._slots)
        return slots + sum(len(one) for one in self._used())

    def _used(self) -> list[Places]:
        """The labelled rows of the next phase."""
        return list(self._chunks) if self.truth.takes_feedback else list(self._chunks)[:1]

    @property
    def waiting(self) -> int:
        """How many labelled rows are kept for phases to come."""
        return sum(len(one) for one in self._chunks)

    @property
    def oldest(self) -> int:
        """The number of the oldest labelled row that may be kept; the next number if none is."""
        return min((numbers[0] for numbers in self._numbers if numbers), default=self._received)

    @property
    def open_slots(self) -> list[tuple[str, str | None]]:
        """The ticket and the owner of each query that has a slot in the window of this phase, in order."""
        return [] if self._slots is None else list(zip(self._slots.tickets, self._slots.owners, strict=True))

    def prepare(self, phase: Phase) -> None:
        """Take the space for the slots of a phase, and open those of queries after the last window."""
        held, units = self._held, 0
        slots, after = self._empty_slots(phase, 0 if held is None else len(held)) if phase.window else (None, None)
        if self.truth.takes_feedback:
            self._before = self._admission.window, self._admission.state()
            self._admission.begin(window=phase.window)
        if held is not None and slots is not None:
            self._open_slots(slots, held.places.contents()[:3], held.tickets, held.owners)
            units = self._admission.groups if self._admission.grouped else len(slots)
        self._prepared = slots, after, units

    def begin(self, phase: Phase) -> list[Any]:
        """Start a phase: of what was there, queries after the window and labelled rows for later phases remain."""
        assert self._prepared is not None
        used: list[Any] = [] if self._phase.number == 0 else self._used()
        for _ in used:
            self._chunks.popleft()
            self._numbers.popleft()
        used += [one for one in (self._slots, self._held) if one is not None]
        self._phase, (self._slots, self._held, self._held_units) = phase, self._prepared
        self._prepared = self._before = None
        self.sealed = self._early = False
        return used

    def _empty_slots(self, phase: Phase, carried: int) -> tuple[Slots, Slots]:
        """Slots for the window and `carried` queries before it, and for the queries after it."""
        stores = (self._limits.store(size) for size in (phase.window + carried, max(1, phase.queries - phase.window)))
        return tuple(Slots(Places(store)) for store in stores)  # type: ignore[return-value]

    def _open_slots(
        self,
        slots: Slots,
        contents: tuple[Array, Integers, Integers | None],
        tickets: Sequence[str],
        owners: Sequence[str | None],
    ) -> None:
        """Open slots for those queries that may have one, by who asked how often."""
        X, answers, labels = contents
        admitted, groups = np.zeros(len(X), dtype=bool), np.zeros(len(X), dtype=np.int64)
        named = np.array([one is not None for one in owners], dtype=bool)
        for which in (np.flatnonzero(named), np.flatnonzero(~named)):  # without groups, some may name no client
            if len(which):
                clients = np.array([owners[one] for one in which.tolist()]) if named[which[0]] else None
                admitted[which], groups[which] = self._admission.admit(clients, len(which))
        some = np.flatnonzero(admitted)
        chosen = some.tolist()
        slots.append(
            X[some],
            answers[some],
            groups[some],
            tickets=[tickets[one] for one in chosen],
            owners=[owners[one] for one in chosen],
            labels=None if labels is None else labels[some],
        )

    # ── queries and feedback ──────────────────────────────────────────────────────────────────────────────────────

    def take(self, rows: Array, answers: Integers, clients: Array | None, asked: int) -> list[str] | None:
        """Open slots for queries of the window; keep those after it for the next. Every query gets a ticket."""
        if not self.truth.takes_feedback:
            return None
        tickets = self._tickets(len(rows))
        self.take_with_tickets(rows, answers, clients, asked, tickets)
        return tickets

    def take_with_tickets(
        self, rows: Array, answers: Integers, clients: Array | None, asked: int, tickets: Sequence[str]
    ) -> None:
        """As `take`, with tickets that were given out before."""
        if self._slots is None or self._held is None:
            return
        owners: list[str | None] = [None] * len(rows) if clients is None else [str(one) for one in clients]
        count, before = min(len(rows), max(0, self._phase.window - asked)), len(self._slots)
        if count:
            self._open_slots(self._slots, (rows[:count], answers[:count], None), tickets[:count], owners[:count])
        if count < len(rows):
            none = np.full(len(rows) - count, NO_LABEL)
            try:
                self._held.append(rows[count:], answers[count:], none, tickets=tickets[count:], owners=owners[count:])
            except BaseException:  # then none of these queries is answered, and they may be asked again
                self._slots.take_back(before)
                raise

    def _tickets(self, count: int) -> list[str]:
        """A ticket for each of some queries: 128 random bits, as hexadecimal digits."""
        self._issued += count
        if not self._random:
            return [f"{one:032x}" for one in range(self._issued - count, self._issued)]
        digits = secrets.token_hex(16 * count)
        return [digits[one : one + 32] for one in range(0, len(digits), 32)]

    def feedback(self, tickets: Sequence[object], labels: Integers, owners: Sequence[str | None]) -> int:
        """Write labels into slots that are open; how many tickets are those of open slots of their owner."""
        found = 0
        for ticket, label, owner in zip(tickets, labels.tolist(), owners, strict=True):
            for slots in (None if self.sealed else self._slots, self._held):
                if slots is not None and slots.write(ticket, owner, label):
                    found += 1
                    break
        return found

    # ── labelled rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def add_labelled(self, X: Array, labels: Integers, groups: Array | None) -> Taken:
        """Keep labelled rows, in order of arrival; rows of groups that may not enter are counted only."""
        first, done, kept = self._received, 0, 0
        while done < len(X):
            if not self._chunks or self._chunks[-1].space == 0:
                self._chunks.append(Places(self._limits.store(self.truth.rows)))
                self._numbers.append([])
                if not self.truth.takes_feedback:  # each chunk is a phase
                    self._admission.begin(window=self.truth.rows)
            chunk, numbers = self._chunks[-1], self._numbers[-1]
            some = slice(done, len(X))
            admitted, members = self._admission.admit_rows(
                None if groups is None else groups[some], len(X) - done, space=chunk.space
            )
            looked_at = len(admitted)
            places = done + np.flatnonzero(admitted)
            chunk.append(X[places], np.zeros(len(places), dtype=np.int64), labels[places], members[admitted])
            numbers += (first + places).tolist()
            done, kept = done + looked_at, kept + len(places)
        self._received += len(X)
        ahead = max(1, len(self._chunks)) if not self.truth.takes_feedback else 1
        missing = 0 if self.truth.takes_feedback else (self._chunks[-1].space if self._chunks else self.truth.rows)
        return Taken(kept, self._phase.number + ahead, missing, first)

    def withdraw(self, numbers: Sequence[int]) -> int:
        """Forget labelled rows whose phase has not begun and is not complete; their places stay, empty."""
        wanted, found = {int(one) for one in numbers}, 0
        for chunk, known in zip(self._chunks, self._numbers, strict=True):
            if self.sealed if self.truth.takes_feedback else chunk.space == 0:
                continue
            for place in [one for one, number in enumerate(known) if number in wanted]:
                chunk.erase(place)
                found += 1
        return found

    # ── the next phase ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def due(self) -> bool:
        """Whether there are enough labelled rows for the next phase, with `source="rows"`."""
        return not self.truth.takes_feedback and bool(self._chunks) and self._chunks[0].space == 0

    def begin_early(self) -> None:
        """Let the next phase begin with what is there, by a public act."""
        self._early = True

    def seal(self) -> None:
        """Close the slots, and take no more: the next phase learns now."""
        self.sealed = True

    def reopen(self) -> None:
        """Take rows and labels again: the next phase could not begin, and nothing that it learned was released."""
        if self._before is not None:
            window, state = self._before
            self._admission.begin(window=window)
            self._admission.resume(state)
        self._prepared = self._before = None
        self.sealed = self._early = False

    def complete(self, asked: int, closed: bool) -> bool:
        """Whether the next phase may begin, by the clock."""
        if self.truth.takes_feedback:
            return self._slots is not None and (closed or self._early or asked >= self._phase.queries)
        return self.due or self._early

    def missing(self, asked: int, closed: bool) -> str | None:
        """Why there is no next phase yet."""
        if self.truth.takes_feedback and self._slots is None:
            return "all answers have been given"
        if self.complete(asked, closed):
            if self.count or self.truth.free_answers:  # then a model goes on
                return None
            return "no query has a slot, and there is no labelled row"
        if self.truth.takes_feedback:
            return "the window of this phase is open"
        have = len(self._chunks[0]) if self._chunks else 0
        return f"the next phase needs {self.truth.rows - have} more rows by add_labelled"

    def next_rows(self) -> NextRows:
        """The rows by their roles, which follow from the order of arrival alone."""
        truth, grouped = self.truth, self._admission.grouped
        parts = [one.contents() for one in self._parts()]
        X, answers, labels, groups = (np.concatenate([part[one] for part in parts]) for one in range(4))
        units, judging, queries = self._roles(groups)
        firsts = first_of_each(units)
        gauge = firsts[judging[units[firsts]]]
        training = ~judging[units]
        trained = np.where(queries & (labels < 0), answers, labels) if truth.silence == "answer" else labels
        return NextRows(
            Rows(X[training], trained[training], units[training] if grouped else None),
            GaugeRows(X[gauge], labels[gauge], np.where(queries, answers, -1)[gauge], not truth.takes_feedback),
            truth.expected_labels(int((training & queries).sum()), int((training & ~queries).sum())),
        )

    def _parts(self) -> list[Places]:
        """Where the rows of the next phase are: slots first."""
        return ([] if self._slots is None else [self._slots.places]) + self._used()

    def _roles(self, groups: Integers) -> tuple[Integers, NDArray[np.bool_], NDArray[np.bool_]]:
        """The unit of each row, whether each unit judges, and whether each row was a query."""
        queries = np.arange(len(groups)) < (0 if self._slots is None else len(self._slots))
        units = groups if self._admission.grouped else np.arange(len(groups))
        judging = self.truth.judges(int(units.max(initial=-1)) + 1, training_first=self._held_units)
        if not self.truth.free_answers:  # rows that are asked are counted among the answers that are reserved for them
            asked = [one for one in first_of_each(units) if judging[units[one]] and not queries[one]]
            judging[units[asked[self._phase.reserved :]]] = False
        return units, judging, queries

    def forget_judges(self, phase: Phase) -> None:
        """Erase the rows that judge a phase, unless the next has begun. Their places stay, empty."""
        if self._phase.number != phase.number:
            return
        parts = self._parts()
        units, judging, _ = self._roles(np.concatenate([one.contents()[3] for one in parts]))
        start = 0
        for part in parts:
            for place in np.flatnonzero(judging[units[start : start + len(part)]]).tolist():
                part.erase(place)
            start += len(part)

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> tuple[dict[str, Any], dict[str, Array], Callable[[], None] | None]:
        """Rows, labels, tickets and owners; as secret as the rows."""
        arrays: dict[str, Array] = {}
        for number, chunk in enumerate(self._chunks):
            arrays |= chunk.arrays(f"rows/labelled-{number}")
        named = {"slots": self._slots, "held": self._held}
        for name, slots in named.items():
            if slots is not None:
                arrays |= slots.places.arrays(f"rows/{name}")
        header = {
            "received": self._received,
            "issued": self._issued,
            "held_units": self._held_units,
            "numbers": list(self._numbers),
            **{name: None if one is None else [one.tickets, one.owners] for name, one in named.items()},
        }
        return {"truth": header}, arrays, None

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], release: Callable[[], None]) -> None:
        """Continue from what `state` returned."""
        noted = state["truth"]
        self._received, self._issued, self._held_units = (noted[name] for name in ("received", "issued", "held_units"))
        for number, numbers in enumerate(noted["numbers"]):
            chunk = Places(self._limits.store(self.truth.rows))
            chunk.restore(f"rows/labelled-{number}", arrays, release)
            self._chunks.append(chunk)
            self._numbers.append(list(numbers))
        if self._slots is None or self._held is None:
            return
        self._slots, self._held = self._empty_slots(self._phase, len(noted["slots"][0]))
        for name, slots in (("slots", self._slots), ("held", self._held)):
            tickets, owners = noted[name]
            slots.restore(f"rows/{name}", arrays, release, tickets=tickets, owners=owners)
