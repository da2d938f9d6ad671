"""The phases of `GenericBBL` at work: teachers, votes, and relabelled queries from phase to phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.concepts.interface import ConceptClass
from reticent.data.points import Array, Labels
from reticent.errors import BudgetExhausted
from reticent.mechanisms.release import noise_or_system
from reticent.mechanisms.votes import noisy_majority
from reticent.noise import Noise
from reticent.predictors.answers import Answers, exhausted
from reticent.predictors.bbl_phases import BBLLabeller, BBLPhase, between_thresholds, vote_epsilon, vote_sigma
from reticent.predictors.bbl_schedules import BBLSchedule

Relabel = Callable[[Array, Labels, Array, Fraction, Noise | None], Labels]


@dataclass(frozen=True, kw_only=True)
class BBLRules:
    """What all phases share: the concepts, the labeller, and how queries get new labels."""

    concept_class: ConceptClass[Any]
    labeller: BBLLabeller
    answers: int | None  # of all phases together; None if they are endless
    relabel: Relabel
    obstacle: Callable[[BBLPhase, BBLPhase], str | None]  # why a phase cannot be followed by another, if so


class RunningPhases:
    """The phase under way: its rows, its teachers, and the queries it has answered."""

    def __init__(
        self, rules: BBLRules, schedule: BBLSchedule, points: Array, labels: Labels, unsafe_noise: Noise | None
    ) -> None:
        self._rules = rules
        self._later = schedule.later
        self._total = rules.answers
        self._unsafe_noise = unsafe_noise
        self._noise = noise_or_system(unsafe_noise)
        self._following: BBLPhase | None = None
        self.number = 0
        self._begin(schedule.first, points, labels)

    def _begin(self, phase: BBLPhase, points: Array, labels: Labels) -> None:
        """Deal the rows to teachers by their index, and train these."""
        concepts = self._rules.concept_class
        parts = range(0, phase.rows, phase.shard)
        teachers = Counter(concepts.erm(points[i : i + phase.shard], labels[i : i + phase.shard]) for i in parts)
        sides = between_thresholds(phase, self._unsafe_noise) if self._rules.labeller == "between-thresholds" else None
        self.phase, self._points, self._labels = phase, points, labels
        self._teachers, self._sides = teachers, sides
        self._queries: list[Array] = []
        self.left = phase.answers
        self.number += 1

    def answer(self, queries: Array) -> Answers:
        """Labels for the queries, in their order."""
        if self._total is not None and len(queries) > self._total:
            raise BudgetExhausted(
                f"the phases answer {self._total} more queries, got {len(queries)}: give more phases"
            )
        class_indices, phases = np.empty((2, len(queries)), dtype=np.int64)
        done = 0
        refused: Exception | None = None
        while done < len(queries):
            try:
                self._make_ready()
                found = self._label(queries[done : done + self.left])
            except BudgetExhausted as error:
                refused = exhausted(error, done)
                break
            except Exception as error:
                if not done:
                    raise
                refused = error  # answers were given, and count: they are returned
                break
            class_indices[done : done + len(found)], phases[done : done + len(found)] = found, self.number
            done += len(found)
        return Answers(class_indices[:done], phases[:done], refused)

    def _make_ready(self) -> None:
        """Make sure that the next query can be answered."""
        if self._sides is not None:
            self._sides.refuse_if_closed()
        if self.left == 0:
            self._turn_over()

    def _label(self, queries: Array) -> Labels:
        """Labels for the queries, or for the first of them if the labeller closes."""
        votes = np.zeros(len(queries), dtype=np.int64)
        for concept, count in self._teachers.items():
            votes += count * np.asarray(self._rules.concept_class.predict(concept, queries), dtype=np.int64)
        if self._sides is None:
            self._count(queries)  # first: a query that was looked at is never looked at again
            return self._majority(votes)
        labels = []
        for i, count in enumerate(votes.tolist()):
            if self._sides.halts_left == 0:
                break
            self._count(queries[i : i + 1])
            labels.append(self._sides.ask(count) != "low")
        return np.array(labels, dtype=np.int64)

    def _majority(self, votes: Labels) -> Labels:
        public: dict[str, Any] = {"voters": self.phase.teachers, "sigma": vote_sigma(self.phase)}
        public |= {"unsafe_noise": self._unsafe_noise}
        if len(votes) == 1:
            return np.array([noisy_majority(int(votes[0]), **public).value], dtype=np.int64)
        return noisy_majority(votes, **public).value

    def _count(self, queries: Array) -> None:
        self._queries.append(queries)
        self.left -= len(queries)
        if self._total is not None:
            self._total -= len(queries)

    def _turn_over(self) -> None:
        """Label some of the queries by some of the rows, and begin the next phase with them. Order is that of draw."""
        phase = self.phase
        if self._following is None:
            self._following = next(self._later)
        following = self._following
        if self._total is None:  # given phases were checked before the first answer
            self._check(following)
        queries = np.concatenate(self._queries)
        drawn = queries[draw_rows(self._noise, len(queries), phase.drawn)]
        known = draw_rows(self._noise, phase.rows, phase.scored)
        labels = self._rules.relabel(
            self._points[known], self._labels[known], drawn, phase.relabel_epsilon, self._unsafe_noise
        )
        kept = draw_rows(self._noise, phase.drawn, following.rows)
        self._begin(following, drawn[kept], labels[kept])
        self._following = None

    def _check(self, following: BBLPhase) -> None:
        """Refuse a phase, by public numbers, that cannot be had or would cost more than was promised."""
        if why := self._rules.obstacle(self.phase, following):
            raise BudgetExhausted(f"phase {self.number} was the last: {why}")
        if vote_epsilon(following, self._rules.labeller) > (following.vote_epsilon or 0):
            raise BudgetExhausted("the votes of the next phase cannot be certified to cost what was promised")


def draw_rows(source: Noise, among: int, count: int) -> Array:
    """Indices in random order, which decides the teacher. If all are drawn, which gains nothing, they stay in order."""
    return np.arange(among) if count == among else source.subset(among, count)
