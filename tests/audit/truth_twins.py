"""Small predictors that learn from later labels, as simple as they can be while the proof applies, and their twins.

A row is (x,), x one of a few integers, and a label 0 or 1. Three teachers of one row each vote; the chance of the
answer 1 is .2, .4, .6 or .8, so one answer costs ln 2 and a phase of three 3·ln 2.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import Any

from everlasting_twins import TwoCoins

from reticent.noise import Noise

Pair = tuple[int, int | None]  # of x and a label, None for an empty place
ANSWERS = 3


class Feedbacks:
    """Queries with slots for labels. A slot closes when the next phase begins, with the query after the last."""

    silence = "drop"

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def fit(self, X: Any, y: Any) -> None:
        self.phase_, self.answers, self.where = 0, [], []  # type: ignore[var-annotated]
        self.begin([(int(x), int(label)) for (x,), label in zip(X, y, strict=True)])

    def begin(self, rows: list[Pair]) -> None:
        self.phase_ += 1
        self.cuts = [9 if label is None else x + (label == 0) for x, label in rows]  # nothing learned: votes for 0
        self.slots: list[list[Any]] = []  # x, answer, label

    @property
    def answers_left_in_phase_(self) -> int:
        return ANSWERS - len(self.slots)

    def predict(self, X: Any) -> list[int]:
        ((x,),) = X
        if self.over():
            self.begin(self.next_rows())
        found = self.label(int(x))
        self.where.append((self.phase_, len(self.slots)))
        self.answers.append(found)
        self.slots.append([int(x), found, None])
        return [found]

    def over(self) -> bool:
        return len(self.slots) == ANSWERS

    def label(self, x: int) -> int:
        return int(self.noise.bernoulli(Fraction(1 + sum(x >= cut for cut in self.cuts), 5)))

    def next_rows(self) -> list[Pair]:
        return [(x, answer if label is None and self.silence == "answer" else label) for x, answer, label in self.slots]

    def answer_to(self, query: int) -> int:
        return int(self.answers[query])

    def feedback_on(self, query: int, label: int, client: Any) -> Hashable:
        phase, place = self.where[query]
        if phase == self.phase_:
            self.slots[place][2] = label
        return "received"


class Complaints(Feedbacks):
    """A slot without a label has the answer as its label."""

    silence = "answer"


class LateAgain(Feedbacks):
    """Twin: feedback for a closed slot is learned from in the next phase, in place of its last row."""

    def fit(self, X: Any, y: Any) -> None:
        self.asked: list[int] = []
        self.late: list[Pair] = []
        super().fit(X, y)

    def predict(self, X: Any) -> list[int]:
        found = super().predict(X)
        self.asked.append(int(X[0][0]))
        return found

    def next_rows(self) -> list[Pair]:
        rows = [*super().next_rows()[: ANSWERS - len(self.late)], *self.late]
        self.late = []
        return rows

    def feedback_on(self, query: int, label: int, client: Any) -> Hashable:
        if self.where[query][0] != self.phase_:
            self.late = [(self.asked[query], label)]
        return super().feedback_on(query, label, client)


class EnoughFeedback(Feedbacks):
    """Twin: a phase begins as soon as there are two labels."""

    def over(self) -> bool:
        return super().over() or sum(label is not None for *_, label in self.slots) == 2


class CountedFeedback(Feedbacks):
    """Twin: feedback takes an answer of the phase, so that its presence moves the clock."""

    taken = 0

    def begin(self, rows: list[Pair]) -> None:
        super().begin((rows * ANSWERS)[:ANSWERS])
        self.taken = 0

    @property
    def answers_left_in_phase_(self) -> int:
        return super().answers_left_in_phase_ - self.taken

    def over(self) -> bool:
        return self.answers_left_in_phase_ <= 0

    def feedback_on(self, query: int, label: int, client: Any) -> Hashable:
        self.taken += 1
        return super().feedback_on(query, label, client)


class SaysWhetherUsed(Feedbacks):
    """Twin: the reply differs for a ticket that was used, or whose slot is closed."""

    def feedback_on(self, query: int, label: int, client: Any) -> Hashable:
        phase, place = self.where[query]
        reply = "no such ticket" if phase != self.phase_ or self.slots[place][2] is not None else "received"
        return (super().feedback_on(query, label, client), reply)


class Thanks(Feedbacks):
    """Twin: the reply says whether the answer was wrong."""

    def feedback_on(self, query: int, label: int, client: Any) -> Hashable:
        super().feedback_on(query, label, client)
        return "thanks, we were wrong" if label != self.answers[query] else "received"


# ── labelled rows ─────────────────────────────────────────────────────────────────────────────────────────────────


class LabelledRows(Feedbacks):
    """Labelled rows in order of arrival; queries are not kept. The reply is how many were received."""

    needed = ANSWERS

    def fit(self, X: Any, y: Any, *groups: Any) -> None:
        self.buffer: list[Pair] = []
        super().fit(X, y)

    def add_labelled(self, X: Any, y: Any, *groups: Any) -> Hashable:
        self.keep((int(X[0][0]), y[0]), str(groups[0][0]) if groups else None)
        return len(self.buffer)

    def keep(self, row: Pair, group: str | None) -> None:
        self.buffer.append(row)

    def over(self) -> bool:
        if super().over() and len(self.buffer) < self.needed:
            raise ValueError(f"{self.needed - len(self.buffer)} more labelled rows are needed")
        return super().over()

    def next_rows(self) -> list[Pair]:
        rows, self.buffer = self.buffer[: self.needed], self.buffer[self.needed :]
        return rows


class WithoutDuplicates(LabelledRows):
    """Twin: a row that is there already is dropped, so the clock tells whether two are equal."""

    def keep(self, row: Pair, group: str | None) -> None:
        if row not in self.buffer:
            super().keep(row, group)


class RefusesNaN(LabelledRows):
    """Twin: a row that cannot be read (x below 0) is refused."""

    def keep(self, row: Pair, group: str | None) -> None:
        if row[0] < 0:
            raise ValueError("X must hold numbers")
        super().keep(row, group)


class Judged(LabelledRows):
    """The first row of four judges the phase, and trains nothing: whether its answer is right, true 3 times in 4."""

    needed = ANSWERS + 1

    def fit(self, X: Any, y: Any, *groups: Any) -> None:
        self.released_: tuple[int, ...] = ()
        super().fit(X, y, *groups)

    def next_rows(self) -> list[Pair]:
        (x, label), *rows = super().next_rows()
        right = self.label(x) == label
        self.released_ += (int(right) ^ int(self.noise.bernoulli(Fraction(1, 4))),)
        return self.training((x, label), rows)

    def training(self, judge: Pair, rows: list[Pair]) -> list[Pair]:
        return rows


class JudgesAndTrains(Judged):
    """Twin: the row that judges trains as well."""

    def training(self, judge: Pair, rows: list[Pair]) -> list[Pair]:
        return [judge, *rows[1:]]


class People(Judged):
    """Of each person the first row is kept, once for ever; the first person of four judges."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> None:
        self.known = set() if groups is None else {str(one) for one in groups}
        super().fit(X, y)

    def keep(self, row: Pair, group: str | None) -> None:
        if group not in self.known:
            self.known |= {str(group)}
            super().keep(row, group)


class TwoBuffers(People):
    """Twin: people are known within a phase only."""

    def begin(self, rows: list[Pair]) -> None:
        super().begin(rows)
        self.known = set()


class RolesByRow(People):
    """Twin: all rows of a person are kept, and the role goes by the row."""

    def keep(self, row: Pair, group: str | None) -> None:
        self.buffer.append(row)


# ── two coins ─────────────────────────────────────────────────────────────────────────────────────────────────────


class JudgedByCoins(TwoCoins):
    """A labelled row judges: it is asked in one phase, of which three hits are used, and can move its closing.

    Query 9 asks it, at the end of the phase; query 10 begins the next phase, with a closing of its own.
    """

    delta, used_before, asked_in = Fraction(1, 5), 3, 1

    def fit(self, X: Any, y: Any) -> None:
        self.number = 0
        self.next_phase()

    def next_phase(self) -> None:
        self.number += 1
        super().fit(None, None)
        self.used = self.used_before

    def add_labelled(self, X: Any, y: Any) -> Hashable:
        self.row = Fraction(int(X[0][0]), 8)
        return "received"

    def predict(self, X: Any) -> list[Any]:
        ((x,),) = X
        if x == 9:
            if self.number <= self.asked_in:
                self.answer(self.row)
            return ["judged"]
        if x == 10:
            self.next_phase()
            return ["next"]
        return super().predict(X)


class JudgesTwoPhases(JudgedByCoins):
    """Twin: the row judges the next phase as well, and can move two closings."""

    asked_in = 2
