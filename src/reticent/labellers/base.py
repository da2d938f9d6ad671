"""What a labeller is: votes of teachers in, private labels out, and one event for all it will ever answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.exact import integer
from reticent.labellers.table import VoteTable
from reticent.mechanisms.counts import Integers, integer_array
from reticent.mechanisms.release import noise_or_system
from reticent.mechanisms.votes import MOST_VOTERS
from reticent.noise import Noise
from reticent.privacy.events import Event, Seeded
from reticent.privacy.guard import Guard, Guarded

Labels = NDArray[np.int64]
Votes = NDArray[np.int64]

ABSTAINS = -1  # the label of a question that a labeller declines to answer


class Labeller(Guarded, ABC):
    """Private labels from the votes of `teachers`, each of which learned from rows of its own.

    A replaced row changes the vote of one teacher, to any class. `event` says what all answers together cost that row;
    it is known before the first question, and no question makes it larger. `answers` is how many questions may be
    asked, a public number; None where no number is set beforehand and `closed` says when it is over.

    `stateless` labellers treat every question alike, with fresh noise and a public count: what one question was does
    not show in the answers to others. For the others their guarantee says what does.
    """

    stateless: bool = True
    resumable: bool = True

    def __init__(
        self, *, teachers: int, classes: int, event: Event, answers: int | None, unsafe_noise: Noise | None
    ) -> None:
        self.teachers = integer(teachers, "teachers", least=1, most=MOST_VOTERS)
        self.classes = integer(classes, "classes", least=2)
        self.answers = None if answers is None else integer(answers, "answers", least=1)
        self.event = event if unsafe_noise is None else Seeded(event)
        self.asked = 0
        self._noise = noise_or_system(unsafe_noise)
        self._guard = Guard(type(self))

    @property
    def answers_left(self) -> int | None:
        """How many more questions may be asked; None where no number is set."""
        return None if self.answers is None else self.answers - self.asked

    @property
    def closed(self) -> bool:
        """Whether no more questions are answered."""
        return self.answers_left == 0

    def label(self, votes: Integers) -> Labels:
        """Labels for the questions whose votes are given, one row a question with the votes for each class.

        Answered are the first questions, as many as may still be asked: there may be fewer labels than rows. −1 marks a
        question that the labeller declines to answer. Raises `BudgetExhausted` if it is closed.
        """
        with self._guard.claim():
            self._check_open()
            counts = self._read(votes)[: self.answers_left]
            labels = self._label(counts) if len(counts) else np.empty(0, dtype=np.int64)
            self.asked += len(labels)
            return labels

    def state(self) -> dict[str, int | bool]:
        """What another labeller made alike needs to go on from here. As secret as the votes, for some labellers."""
        if not self.resumable:
            raise NotImplementedError(f"{type(self).__name__} cannot be stopped and resumed")
        with self._guard.claim():  # not while answers are under way that it would leave out
            return {"asked": self.asked, **self._secrets()}

    def _secrets(self) -> dict[str, int | bool]:
        """What else another labeller needs."""
        return {}

    def resume(self, state: Mapping[str, int | bool]) -> None:
        """Go on where a labeller made alike was when it told its `state`; it must give no answers after that."""
        with self._guard.claim():
            asked = integer(state["asked"], "asked", least=0, most=self.answers)
            if self.asked:
                raise ValueError("resume must come before the first answer")
            self._take_secrets(state)
            self.asked = asked

    def _take_secrets(self, state: Mapping[str, int | bool]) -> None:
        """What `_secrets` of the other one told."""

    def _check_open(self) -> None:
        if self.closed:
            raise BudgetExhausted("all answers have been given: plan for more with answers=")

    @abstractmethod
    def _label(self, counts: Votes) -> Labels:
        """Labels for the first of the questions, as many as are answered."""

    def accuracy(self, votes: Integers, truth: Integers) -> float:
        """The expected share of right labels where votes and truth are known. Not private: for planning only."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form for the chance of a right label")

    def _read(self, votes: Integers) -> Votes:
        counts = integer_array(votes, "votes", least=0, most=self.teachers)
        if counts.ndim != 2 or counts.shape[1] != self.classes:
            raise ValueError(f"votes must have one row a question and one column for each of {self.classes} classes")
        if bool(np.any(counts.sum(axis=1) != self.teachers)):
            raise ValueError(f"votes must add up to teachers={self.teachers} in every row")
        return counts


class TableLabeller(Labeller):
    """A labeller of two classes that looks up the chance of the answer 1 in a table, with a fresh coin each time."""

    def __init__(
        self, table: VoteTable, *, event: Event, answers: int | None, unsafe_noise: Noise | None = None
    ) -> None:
        super().__init__(teachers=table.teachers, classes=2, event=event, answers=answers, unsafe_noise=unsafe_noise)
        self.table = table

    def _label(self, counts: Votes) -> Labels:
        return self.table.draw(counts[:, 1], self._noise)

    def accuracy(self, votes: Integers, truth: Integers) -> float:
        """The expected share of right labels where votes and truth are known. Not private: for planning only."""
        ones = self.table.probabilities[self._read(votes)[:, 1]]
        return float(np.where(np.asarray(truth) == 1, ones, 1 - ones).mean())
