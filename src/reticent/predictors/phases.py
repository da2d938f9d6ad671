"""When a phase ends, and its public numbers: rows, answers, teachers; how much noise its answers have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reticent.exact import Number, integer, rational
from reticent.predictors.truth import Truth
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import ContinuousGaussian

MOST_NOISE = 0.25  # of all votes; at this noise the answers of usual teachers lose about one point to their majority
LEAST_NOISE = 0.05  # of all votes; more teachers than this needs would only be weaker teachers
STREAM_SHARE = Fraction(3, 5)  # of the labels of a phase are for a trusted stream, if there is one
NO_END = 1 << 53  # answers of a phase that never ends; the largest number that JSON and metrics hold exactly


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase: it learns from `rows`, gives at most `answers` labels, and hands rows on to the next phase.

    Parameters
    ----------
    number : int
        The number of the phase, from 1 on.
    rows : int
        How many rows the phase learns from.
    answers : int
        The most labels that the phase gives; `NO_END` if it never ends.
    window : int
        How many of its queries, the first ones, may become rows of the next phase. 0 in a last phase.
    stream : int, default 0
        How many of its labels are for rows of a trusted stream. If not 0, `window` is 0.
    teachers : int, default 0
        The number of teachers; 0 if one private model answers.
    reserved : int, default 0
        How many of its labels are for rows that judge the phase, and are shown to nobody.
    labels : int or None, default None
        The public number of its rows that are expected to have a label; None if all have one.
    """

    number: int
    rows: int
    answers: int
    window: int
    stream: int = 0
    teachers: int = 0  # 0 where one private model answers
    reserved: int = 0
    labels: int | None = None

    @property
    def queries(self) -> int:
        """How many queries it answers."""
        return self.answers - self.stream - self.reserved

    def to_json(self) -> dict[str, Any]:
        """Its numbers; those that came later than the format are left out where they have their defaults."""
        later = {name: value for name, value in (("reserved", self.reserved), ("labels", self.labels)) if value}
        first = ("number", "rows", "answers", "window", "stream", "teachers")
        return {name: getattr(self, name) for name in first} | later

    @property
    def handed_on(self) -> int:
        """The most rows that the next phase has."""
        return self.window + self.stream

    @property
    def endless(self) -> bool:
        """Whether the phase never ends."""
        return self.answers == NO_END


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How phases follow each other: a function of public numbers, never of a label, a vote or a query.

    A phase with n rows gives growth·n answers. All but a share `held_back` of its queries are the rows of the next
    phase, which learns while the queries held back are answered.
    """

    growth: Fraction
    held_back: Fraction
    horizon: int | None  # how many queries are answered in total; None if answers are endless
    max_rows: int | None
    trusted: bool
    truth: Truth | None = None
    tested: int = 0  # answers of each phase that a test on old rows takes

    @property
    def handed_on(self) -> Fraction:
        """Rows of the next phase for each row of a phase."""
        return self.growth * (1 - self.held_back) * (STREAM_SHARE if self.trusted else 1)

    def phase(self, number: int, rows: int, answered: int) -> Phase:
        """The phase that learns from these rows, after `answered` queries were answered before it."""
        if self.truth is not None:
            return self._phase_of_truth(self.truth, number, rows, answered)
        answers = max(1, math.floor(self.growth * rows))
        left = None if self.horizon is None else self.horizon - answered
        known = {"number": number, "rows": rows, "reserved": self.tested}
        if left is not None and left <= answers:
            return Phase(**known, answers=left + self.tested, window=0)
        handed_on = math.floor((1 - self.held_back) * answers * (STREAM_SHARE if self.trusted else 1))
        handed_on = max(1, handed_on if self.max_rows is None else min(handed_on, self.max_rows))
        if self.trusted:
            return Phase(**known, answers=answers + self.tested, window=0, stream=handed_on)
        return Phase(**known, answers=answers + self.tested, window=handed_on)

    def _phase_of_truth(self, truth: Truth, number: int, rows: int, answered: int) -> Phase:
        """A phase whose next rows get their labels from outside."""
        left = None if self.horizon is None else self.horizon - answered
        if truth.free_answers:
            queries = truth.rows + truth.wait if truth.takes_feedback else NO_END
        else:
            queries = max(1, math.floor(self.growth * rows))
        reserved = truth.gauge_rows if truth.takes_rows and not truth.free_answers else 0
        last = left is not None and left <= queries
        queries = left if last and left is not None else queries
        window = 0
        if truth.takes_feedback and not last:
            window = queries - truth.wait
            window = window if truth.phase_rows is None else min(window, truth.phase_rows)
            if window < 1:
                raise ValueError(
                    f"wait must be less than the {queries} queries of a phase, got {truth.wait}: none would get a slot"
                )
            queries = window + truth.wait
        answers = NO_END if queries == NO_END else queries + reserved
        return Phase(number=number, rows=rows, answers=answers, window=window, reserved=reserved)

    def phases(self, rows: int) -> Iterator[Phase]:
        """All phases, if every query that may be handed on is."""
        number, answered = 1, 0
        while True:
            phase = self.phase(number, rows, answered)
            if self.truth is not None and number > 1:
                training = math.floor(rows * self.truth.training_share)
                slots = training if self.truth.takes_feedback else 0
                phase = replace(phase, rows=training, labels=self.truth.expected_labels(slots, training - slots))
            yield phase
            answered += phase.queries
            if self.truth is not None:
                if self.horizon is not None and answered >= self.horizon:
                    return
                number, rows = number + 1, self.truth.rows
                continue
            if not phase.handed_on:
                return
            number, rows = number + 1, phase.handed_on


def check_schedule(
    *,
    growth: Number,
    held_back: Number,
    answers: int | str,
    max_rows: int | None,
    training_stream: str,
    truth: Truth | None = None,
) -> Schedule:
    """Make a schedule from the parameters of a caller; an error names the parameter that is wrong."""
    factor, share = rational(growth, "growth"), rational(held_back, "held_back")
    if truth is None and not 1 <= factor <= 1000:
        raise ValueError(f"growth must be from 1 to 1000, got {growth}")
    if not 0 < factor <= 1000:
        raise ValueError(f"growth must be positive and at most 1000, got {growth}")
    if not 0 <= share < 1:
        raise ValueError(f"held_back must be in [0, 1), got {held_back}")
    if training_stream not in ("queries", "trusted"):
        raise ValueError(f"training_stream must be 'queries' or 'trusted', got {training_stream!r}")
    if isinstance(answers, str) and answers != "endless":
        raise ValueError(f"answers must be 'endless' or a whole number, got {answers!r}")
    return Schedule(
        growth=factor,
        held_back=share,
        horizon=None if answers == "endless" else integer(answers, "answers", least=1),
        max_rows=None if max_rows is None else integer(max_rows, "max_rows", least=1),
        trusted=training_stream == "trusted",
        truth=truth,
    )


# ── how much noise there is ───────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def noise_of_one(epsilon: Fraction, delta: Fraction) -> float:
    """1/μ: the noise at which one count of votes is (ε, δ)-DP."""
    return float(calibrate.noise(ContinuousGaussian, epsilon=epsilon, delta=delta))


def relative_noise(teachers: int, answers: int, *, classes: int, epsilon: Fraction, delta: Fraction) -> float:
    """The noise that Gaussian labels would have for this number of answers, as a share of all votes.

    The labeller that is used does not matter much here: this measure follows from public numbers.
    """
    wide = 1.0 if classes == 2 else math.sqrt(2)  # a changed vote moves two counts
    return wide * math.sqrt(answers) * noise_of_one(epsilon, delta) / teachers


def teachers_for(
    rows: int, units: int, answers: int, *, rows_per_teacher: int, classes: int, epsilon: Fraction, delta: Fraction
) -> int:
    """As many teachers as there are rows for, each with at least one unit, but no more than make the noise small."""
    enough = relative_noise(1, answers, classes=classes, epsilon=epsilon, delta=delta) / LEAST_NOISE
    return max(1, min(rows // rows_per_teacher, units, math.ceil(enough)))


def rows_required(
    *,
    answers: int | None,
    growth: Fraction,
    rows_per_teacher: int,
    classes: int,
    epsilon: Fraction,
    delta: Fraction,
    most_noise: float,
) -> int:
    """The fewest rows whose teachers give these answers, or growth·rows answers, with at most this noise."""
    one = relative_noise(1, 1, classes=classes, epsilon=epsilon, delta=delta) / most_noise
    if answers is not None:
        single = math.ceil(one * math.sqrt(answers)) * rows_per_teacher
        if answers <= growth * single:
            return single
    teachers = math.ceil(float(growth) * rows_per_teacher * one**2)  # solves one·√(growth·rows) = teachers
    return teachers * rows_per_teacher


def epsilon_required(teachers: int, answers: int, *, classes: int, delta: Fraction, most_noise: float) -> float:
    """The ε at which these teachers give these answers with at most this noise."""
    wide = 1.0 if classes == 2 else math.sqrt(2)
    sigma = Fraction(most_noise * teachers / (wide * math.sqrt(answers)))
    return accounting.epsilon(ContinuousGaussian(sigma), delta=delta)
