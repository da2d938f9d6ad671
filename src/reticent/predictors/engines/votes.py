"""The votes engine: teachers learn from the rows of a phase, and a labeller makes their votes private answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from reticent.concepts.thresholds import Thresholds
from reticent.data.executor import Executor
from reticent.data.rows import Rows
from reticent.errors import InsufficientData
from reticent.exact import integer
from reticent.labellers import Greedy, Gumbel, Labeller, LabellerSpec, Poll, PollingLabeller
from reticent.labellers.base import OF_QUERIES, SHARED
from reticent.labellers.registry import REGISTRY, LabellerLike, find, names
from reticent.noise import Noise
from reticent.predictors.engines.engine import Array, Drift, EngineSettings, EngineState, Integers, NoPhase
from reticent.predictors.phases import (
    MOST_NOISE,
    Phase,
    Schedule,
    epsilon_required,
    relative_noise,
    rows_required,
    teachers_for,
)
from reticent.privacy import fits
from reticent.privacy.events import Event
from reticent.silence import silent
from reticent.teachers import Teachers
from reticent.teachers import saving as teachers_saving
from reticent.teachers.linear import LINEAR, LogisticTeacher, unscaled

MANY, SLOW = 1 << 17, 200  # teachers; with more, asking some of them is much faster than asking all
POLLS, FLIPS = (301, 101, 31), (0.001, 0.005)  # from the most accurate on
FURTHEST_PHASE = 10_000  # if phases neither grow nor are refused until here, they go on


@dataclass(frozen=True, kw_only=True)
class Closings:
    """The rows and answers of the first phases, where some may close early.

    `ends` says that there are no more phases after some of them, though more answers were asked for.
    """

    phases: tuple[tuple[int, int], ...]
    ends: bool


class NoLabeller(NoPhase):
    """A labeller that cannot be had for this number of teachers or answers, by public numbers."""


@dataclass(frozen=True, kw_only=True)
class VotesFactory:
    """Makes the engines of teachers that vote. All of it is public.

    Parameters
    ----------
    learner : estimator, ConceptClass or None
        What a teacher is; None for `LogisticTeacher`.
    classes, columns : int
        The number of classes and of columns.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of all answers of a phase.
    rows_per_teacher : int
        How many rows a teacher learns from; there are fewer teachers if fewer keep the noise small.
    labeller, labeller_options, most_noise, random_state, n_jobs
        As in `EverlastingPredictor`.
    """

    learner: Any
    classes: int
    columns: int
    epsilon: Fraction
    delta: Fraction
    rows_per_teacher: int
    labeller: LabellerLike = "auto"
    labeller_options: Mapping[str, Any] | None = None
    most_noise: float = MOST_NOISE
    random_state: int = 0
    n_jobs: int | Executor | None = None

    learns_from_queries: ClassVar[bool] = True
    free_answers: ClassVar[bool] = False
    needs_delta: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> Self:
        """Take what concerns votes."""
        if settings.grouped:
            check_groups(settings.labeller)
        return cls(
            learner=settings.learner,
            classes=settings.classes,
            columns=settings.columns,
            epsilon=settings.epsilon,
            delta=settings.delta,
            rows_per_teacher=rows_for_a_teacher(settings.rows_per_teacher, settings.columns),
            labeller=settings.labeller,
            labeller_options=dict(settings.labeller_options or {}),
            most_noise=settings.most_noise,
            random_state=settings.random_state,
            n_jobs=settings.n_jobs,
        )

    def __post_init__(self) -> None:
        check_labeller_choice(self.labeller, self.labeller_options)

    @property
    def rows_per_group(self) -> int:
        """The rows of one group that fit into a shard, however many shards there are."""
        return 2 * self.rows_per_teacher

    def complete(self, phase: Phase, units: int, schedule: Schedule) -> Phase:
        """The phase with its number of teachers; refused if its answers would have too much noise."""
        known: dict[str, Any] = {"classes": self.classes, "delta": self.delta}
        if phase.rows == 0:  # all of them judge
            raise InsufficientData("0 rows make no teacher", required=self.rows_required(schedule))
        places = self.rows_per_teacher  # of a teacher: more of them if only some are expected to have a label
        if phase.labels is not None:
            places = -(-places * phase.rows // phase.labels)
        teachers = teachers_for(
            phase.rows, units, phase.answers, rows_per_teacher=places, epsilon=self.epsilon, **known
        )
        noise = relative_noise(teachers, phase.answers, epsilon=self.epsilon, **known)
        if noise > self.most_noise:
            required = self.rows_required(schedule)
            epsilon = epsilon_required(teachers, phase.answers, most_noise=self.most_noise, **known)
            few = int(phase.answers * (self.most_noise / noise) ** 2)
            raise InsufficientData(
                f"{phase.rows} rows make {teachers} teachers, whose {phase.answers} answers would have noise of "
                f"{noise:.2f} of all votes; at most {self.most_noise:g} can be sustained. You need at least "
                f"{required} rows; or epsilon={epsilon:.3g}; or answers={few}; or a private learner in place of this "
                "one, which needs far fewer rows where it suits the data",
                required=required,
            )
        return Phase(**{**phase.__dict__, "teachers": teachers})

    @property
    def gauge_epsilon(self) -> Fraction:
        """What a labeller with a memory leaves: a row that is asked pays for its closing."""
        share = None if self.labeller == "auto" else find(self.labeller).kind.query_share
        return self.epsilon if share is None else (1 - share) * self.epsilon

    def phase_rows(self, schedule: Schedule) -> int:
        """The labelled rows, or slots, whose teachers answer `growth` queries per row, and the rows that judge."""
        truth = schedule.truth
        assert truth is not None
        asked = schedule.growth + (1 - truth.training_share if truth.takes_rows else 0)
        places = -(-self.rows_per_teacher // truth.feedback_share)
        known: dict[str, Any] = {"classes": self.classes, "epsilon": self.epsilon, "delta": self.delta}
        one = relative_noise(1, 1, **known) / self.most_noise
        rows = math.ceil(float(asked) * (places * one / float(truth.training_share)) ** 2)
        # Whole teachers and answers: a few more rows may be needed.
        while (teachers := math.floor(rows * truth.training_share) // places) == 0 or (
            relative_noise(teachers, math.ceil(asked * rows), **known) > self.most_noise
        ):
            rows += places
        return rows

    def fewest_labels(self) -> int:
        """One row for each of two teachers: too few for the answers of a phase are refused by their noise."""
        return 2 * self.rows_per_teacher

    def rows_required(self, schedule: Schedule) -> int:
        """The fewest rows of a first phase whose answers have little enough noise."""
        return rows_required(
            answers=schedule.horizon,
            growth=schedule.growth,
            classes=self.classes,
            rows_per_teacher=self.rows_per_teacher,
            epsilon=self.epsilon,
            delta=self.delta,
            most_noise=self.most_noise,
        )

    def make_labeller(self, phase: Phase, unsafe_noise: Noise | None) -> Labeller:
        """The labeller of a phase, within (ε, δ) for the rows, and for the queries whose rows they are."""
        spec, budget = self.chosen(phase)
        try:
            labeller = spec.make(
                teachers=phase.teachers,
                classes=self.classes,
                answers=phase.answers,
                unsafe_noise=unsafe_noise,
                epsilon=budget["epsilon"],
                delta=budget["delta"],
            )
        except ValueError as error:
            raise NoLabeller(str(error)) from None
        if not fits(labeller.event, epsilon=self.epsilon, delta=self.delta):
            raise ValueError(f"the labeller {spec.kind.name!r} exceeds the epsilon and delta that it was given")
        return labeller

    def chosen(self, phase: Phase) -> tuple[LabellerSpec, dict[str, Fraction]]:
        """The labeller of a phase, and the (ε, δ) of its rows: from public numbers alone."""
        spec, budget = self._spec(phase), {"epsilon": self.epsilon, "delta": self.delta}
        share = spec.kind.query_share
        if share is None:
            return spec, budget
        # A query pays for what the labeller of its own phase remembers, and as a row of the next: together (ε, δ).
        paid = share if phase.number > 1 else Fraction(0)  # rows of the first phase were no queries
        of_queries = dict(zip(OF_QUERIES, (share * self.epsilon, share * self.delta), strict=True))
        spec = LabellerSpec(spec.kind, {**of_queries, **spec.options})
        return spec, {name: (1 - paid) * value for name, value in budget.items()}

    @property
    def closes_early(self) -> bool:
        """Whether votes decide when a phase closes. No labeller that is chosen automatically closes early."""
        return self.labeller != "auto" and find(self.labeller).kind.closes_early

    def _spec(self, phase: Phase) -> LabellerSpec:
        options = self.labeller_options
        if self.labeller != "auto":
            return find(self.labeller, options)
        if self.classes > 2:
            return find(Gumbel, options)
        if not isinstance(self.learner, Thresholds) and phase.teachers > (MANY if self.fast else SLOW):
            for poll in POLLS:
                for flip in FLIPS:
                    found = Poll(
                        teachers=phase.teachers, epsilon=self.epsilon, delta=self.delta, poll=poll, flip=flip
                    )
                    if (found.answers or 0) >= phase.answers:
                        return Poll.spec(poll=poll, flip=flip)
        return find(Greedy, options)

    def closings(self, schedule: Schedule, rows: int, *, split: bool, listed: int = 8) -> Closings:
        """The phases that follow each other if teachers are evenly `split` on every query, or else always agree.

        It differs from the schedule only for a labeller that may close a phase early; see `Labeller.expected_answers`.
        All of it is public.
        """
        found: list[tuple[int, int]] = []
        size, answered = rows, 0
        for number in range(1, FURTHEST_PHASE + 1):
            try:
                phase = self.complete(schedule.phase(number, size, answered), size, schedule)
                labeller = self.make_labeller(phase, None)
            except (InsufficientData, NoLabeller):
                return Closings(phases=tuple(found), ends=True)
            answers = labeller.expected_answers(phase.answers, split=split)
            if len(found) < listed:
                found.append((size, answers))
            if not phase.handed_on:  # the last, as was asked for
                return Closings(phases=tuple(found), ends=answers < phase.answers)
            handed_on = min(phase.handed_on, answers)
            # No phase will be smaller: hits grow with the square of the rows, and all but the first have one budget.
            if number > 1 and (handed_on >= size or handed_on == schedule.max_rows):
                break
            size, answered = handed_on, answered + answers - min(phase.stream, answers)
        return Closings(phases=tuple(found), ends=False)

    def ending(self, schedule: Schedule, rows: int) -> str | None:
        """Why answers may end: phases shrink, or a labeller closes early. A small max_rows is refused."""
        if schedule.truth is not None:
            if schedule.truth.takes_rows or schedule.growth >= 1:  # phases do not feed each other, or do not shrink
                return None
            return (
                f"answers will not be endless: growth={float(schedule.growth):g} with truth='feedback' gives phases "
                "fewer slots than they have rows, so phases shrink and end; take growth of at least 1"
            )
        found = None
        if schedule.handed_on < 1:
            found = (
                f"answers will not be endless: growth={float(schedule.growth):g} with "
                f"held_back={float(schedule.held_back):g} hands on {float(schedule.handed_on):.2g} rows for each row "
                "of a phase, so phases shrink and end; plan.everlasting says when"
            )
        elif self.closes_early:
            worst = self.closings(schedule, rows, split=True)
            if worst.phases and worst.ends:  # without a phase it is refused anyway
                shown = ", then ".join(f"{answers:,}" for _, answers in worst.phases)
                found = (
                    f"answers may not be endless: a {find(self.labeller).kind.name} labeller closes a phase early "
                    "where teachers disagree. If they were evenly split on every query, phases would give about "
                    f"{shown} answers, and then none. "
                    "Take more rows, a larger epsilon or another labeller; plan.everlasting says more"
                )
        if schedule.max_rows is not None:
            self.complete(schedule.phase(2, schedule.max_rows, 0), schedule.max_rows, schedule)
        return found

    @silent()
    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> VotesEngine:
        """The engine of a phase, from its rows. Everything that is refused is refused before the teachers learn."""
        labeller = self.make_labeller(phase, unsafe_noise)
        return VotesEngine(self, phase, self.train(phase, rows), labeller)

    def restore(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], phase: Phase, *, trust_models: bool = False
    ) -> VotesEngine:
        """The engine that `VotesEngine.state` described, at the same count, with fresh noise."""
        labeller = self.make_labeller(phase, None)
        labeller.resume(header["labeller"])
        teachers = teachers_saving.from_arrays(
            header["teachers"], arrays, self.learner, trust_models=trust_models, n_jobs=self.n_jobs
        )
        return VotesEngine(self, phase, teachers, labeller)

    @property
    def fast(self) -> bool:
        """Whether all teachers together answer as fast as a few."""
        return isinstance(unscaled(self.learner)[0], (type(None), LogisticTeacher, Thresholds, *LINEAR))

    def train(self, phase: Phase, rows: Rows) -> Teachers:
        """The teachers of a phase. They know nothing of earlier teachers: each learns from its own rows alone."""
        teachers = Teachers(
            self.learner,
            shards=phase.teachers,
            classes=range(self.classes),
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )
        classes = np.arange(self.classes)
        return teachers.fit_rows(rows.X, rows.class_indices, classes=classes, groups=rows.groups, release=rows.release)


class VotesEngine:
    """The teachers of one phase and the labeller of their votes.

    Guarantee. For a replaced row of the phase (with groups: all rows of one group), over all labels of the phase, for
    adaptive queries: `event`, which is within (ε, δ).

    Why. A row moves the vote of one teacher (see `Teachers`), whatever is asked; the rest is the labeller's guarantee.
    """

    one_answer = None  # no model is released, and nothing may be said about all answers of a phase together
    drift: Drift = "not tested"

    def __init__(self, factory: VotesFactory, phase: Phase, teachers: Teachers, labeller: Labeller) -> None:
        self.factory, self.phase, self.teachers, self.labeller = factory, phase, teachers, labeller
        self.event: Event = labeller.event

    @silent()
    def label(self, X: Array) -> Integers:
        """Class indices for the first rows: for all of them, unless the labeller closes."""
        if self.labeller.closed:
            return np.empty(0, dtype=np.int64)
        if isinstance(self.labeller, PollingLabeller):
            return self.labeller.label_polls(self.teachers.ask_rows(X, self.labeller.draw_polls(len(X))))
        return self.labeller.label(self.teachers.count_rows(X))

    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> VotesEngine:
        """The engine of the next phase, from its rows alone."""
        return self.factory.first(phase, rows, unsafe_noise)

    def state(self) -> EngineState:
        """The teachers, and the count of the labeller."""
        header, arrays = teachers_saving.to_arrays(self.teachers)
        return {"teachers": header, "labeller": self.labeller.state()}, arrays

    def progress(self) -> dict[str, Any]:
        """The count of the labeller, which is secret."""
        return self.labeller.state()

    def resume(self, progress: Mapping[str, Any] | None) -> None:
        """Make the labeller again, at this count, with fresh noise."""
        if progress is None:
            raise ValueError("progress must be the count of a labeller, got None")
        self.labeller = self.factory.make_labeller(self.phase, None)
        self.labeller.resume(progress)


def rows_for_a_teacher(rows_per_teacher: int | str, columns: int) -> int:
    """As given, or as many as there are columns, but at least 10 and at most 50.

    Fewer rows make weaker teachers, but more of them: their majority is hardly worse, and the noise is much smaller.
    """
    if rows_per_teacher != "auto":
        return integer(rows_per_teacher, "rows_per_teacher", least=1)
    return min(50, max(10, columns))


def check_labeller_choice(labeller: LabellerLike, options: Mapping[str, Any] | None) -> None:
    """Refuse a labeller that declines queries, cannot be saved, or exposes queries."""
    if taken := sorted({*SHARED, *OF_QUERIES} & set(options or {})):
        raise ValueError(f"labeller_options must not set {', '.join(taken)}: the predictor does")
    if labeller == "auto":
        return
    suited = f"labeller must be 'auto', one of {', '.join(names(serves))}, or a Labeller like these"
    if isinstance(labeller, str) and labeller not in REGISTRY:
        raise ValueError(f"{suited}, got {labeller!r}")
    spec = find(labeller, options)
    kind = spec.kind
    if taken := sorted(set(OF_QUERIES) & set(spec.options)):
        raise ValueError(f"labeller_options must not set {', '.join(taken)}: the predictor does")
    if not serves(kind):
        lacks = (
            "may decline a query" if kind.abstains
            else "cannot be saved and resumed" if not kind.resumable
            else "remembers queries, and has no query_share to pay for that"
        )  # fmt: skip
        raise ValueError(f"{suited}: {kind.name!r} {lacks}")


def check_groups(labeller: LabellerLike) -> None:
    """Refuse a labeller that cannot hide all queries of one client: one with a memory."""
    if labeller != "auto" and not (kind := find(labeller).kind).stateless:
        raise ValueError(
            f"labeller must not be {kind.name!r} with groups: the queries of one client would move its memory, and so "
            "its closing, by more than one query does, for which it is blurred"
        )


def serves(kind: type[Labeller]) -> bool:
    """Whether a labeller answers every query, can be saved, and protects queries."""
    return not kind.abstains and kind.resumable and kind.protects_queries()
