"""From phase to phase: answer, gather rows, learn the next phase ahead of time, and turn over to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.rows import Rows
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.noise import Noise
from reticent.predictors.admission import Admission
from reticent.predictors.answers import Answers, exhausted
from reticent.predictors.engines.engine import Engine, EngineFactory, EngineState, NoPhase, TruthFactory
from reticent.predictors.intake import OwnAnswers, RowLimits
from reticent.predictors.later_labels import LaterLabels, Taken
from reticent.predictors.phases import Phase, Schedule
from reticent.predictors.watch import QualityWatch
from reticent.privacy.events import Event, Parallel

Array = NDArray[Any]
Integers = NDArray[np.int64]
LearnElsewhere = Callable[[Phase, Rows], EngineState]

SOON = 1 << 20  # numbers of rows from which a model is trained sooner than another process starts


class QueryPart(NamedTuple):
    """Queries that were answered, to be replayed; tickets if they have slots for labels."""

    rows: Array
    class_indices: Integers
    clients: Array | None
    tickets: Sequence[str] | None = None


class LabelledPart(NamedTuple):
    """Labelled rows that were received, to be replayed. A label of −1 is none."""

    rows: Array
    labels: Integers
    groups: Array | None = None


class WithdrawnPart(NamedTuple):
    """The numbers of labelled rows that were withdrawn, to be replayed."""

    numbers: Sequence[int]


class PhaseMachine:
    """Runs the phases of an everlasting predictor: it holds the engine, the clock and the rows gathered.

    It trusts its caller: queries are read and of the right type, one thread calls it at a time, and in one process.
    When a phase ends and how many rows are gathered follows from the clock and from `Admission`, never from a query.

    Parameters
    ----------
    schedule : Schedule
        How many answers a phase gives, and how many of its queries become rows.
    factory : EngineFactory
        What makes the engines.
    admission : Admission
        Which queries may become rows.
    limits : RowLimits
        The shape of rows, and where they are kept.
    watch : QualityWatch
        What judges phases, and raises alarms.
    unsafe_noise : Noise or None
        For tests and audits: the noise of the engines. None for the noise of the system.

    Attributes
    ----------
    phase : Phase
        The present phase.
    engine : Engine
        What answers in it.
    asked, answered : int
        Queries of this phase, and of all phases.
    closed : bool
        Whether the engine has closed the phase early.
    background : bool
        Whether the next phase learns in a thread, as soon as its rows are complete.
    identity : str or None
        By which a saved state is known; None as soon as something changes.
    """

    def __init__(
        self,
        *,
        schedule: Schedule,
        factory: EngineFactory,
        admission: Admission,
        limits: RowLimits,
        watch: QualityWatch,
        unsafe_noise: Noise | None = None,
    ) -> None:
        self.schedule, self.factory, self.admission, self.watch = schedule, factory, admission, watch
        self._noise = unsafe_noise
        self.intake: OwnAnswers | LaterLabels = (
            OwnAnswers(admission, limits, trusted=schedule.trusted, free_answers=factory.free_answers)
            if schedule.truth is None
            else LaterLabels(schedule.truth, admission, limits, random_tickets=unsafe_noise is None)
        )
        self.answered = 0
        self.background = False
        self.identity: str | None = None
        self.elsewhere: LearnElsewhere | None = None

    def first_phase(self, rows: int, units: int) -> Phase:
        """The numbers of the first phase; refused if there are too few rows for it.

        Parameters
        ----------
        rows, units : int
            The training rows without those that are kept aside for tests, and their groups, or rows again.
        """
        self.schedule = replace(self.schedule, tested=0 if self.factory.free_answers else self.watch.reserved)
        return self.factory.complete(self.schedule.phase(1, rows, 0), units, self.schedule)

    def open(self, phase: Phase, engine: Engine) -> None:
        """Begin a phase of which nothing was prepared: the first, or a restored one."""
        self.intake.prepare(phase)
        self._begin(phase, engine)

    def _begin(self, phase: Phase, engine: Engine) -> None:
        """Begin a phase. The rows that the last one learned from are deleted."""
        used = self.intake.begin(phase)
        self._ahead: Future[tuple[Phase, Engine]] | None = None
        self.asked, self.closed = 0, False
        self.phase, self.engine = phase, engine
        for one in used:
            one.delete()

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def left(self) -> int:
        """How many more queries this phase answers at most."""
        return 0 if self.closed or self._due else self.phase.queries - self.asked

    @property
    def _due(self) -> bool:
        """Whether labelled rows are there for a next phase that does not wait for the answers of this one."""
        return self.factory.free_answers and self.rows_are_there

    @property
    def rows_are_there(self) -> bool:
        """Whether the next phase could begin now although this one has answers left: its labelled rows are there."""
        return isinstance(self.intake, LaterLabels) and self.intake.due

    @property
    def event(self) -> Event:
        """What the phase costs one of its rows: one that trains, or one that judged the phase before."""
        judged = self.watch.event
        return self.engine.event if judged is None else Parallel((self.engine.event, judged))

    @property
    def learning(self) -> bool:
        """Whether the next phase is being learned, or was learned ahead."""
        return self._ahead is not None

    def wait_until_learned(self) -> None:
        """Wait for what is being learned in the background, and nothing else. Any thread may."""
        if (ahead := self._ahead) is not None:
            ahead.exception()

    def answer(self, rows: Array, clients: Array | None, *, one_phase: bool) -> Answers:
        """Answer queries, over as many phases as it takes, unless `one_phase`.

        Answers that count are returned whatever happens after them; an error is raised only if there are none.
        """
        self._check_left(len(rows))
        self.identity = None  # what was saved before is another state from here on
        refused: Exception | None = None
        class_indices, phases = np.empty((2, len(rows)), dtype=np.int64)
        truth = self.schedule.truth
        tickets: list[str] | None = None if truth is None or not truth.takes_feedback else []
        done = 0
        while done < len(rows):
            if self.left == 0 and one_phase:
                break
            try:
                while self.left == 0:  # labelled rows may be there for several phases
                    self.turn_over(done)
                some = rows[done : done + self.left]
                found = self.engine.label(some)
                who = None if clients is None else clients[done : done + len(found)]
                given = self.intake.take(some[: len(found)], found, who, self.asked)
            except BudgetExhausted as error:
                refused = error
                break
            except Exception as error:
                if not done:
                    raise
                refused = error
                break
            self.asked += len(found)
            self.answered += len(found)
            class_indices[done : done + len(found)], phases[done : done + len(found)] = found, self.phase.number
            if tickets is not None and given is not None:
                tickets += given
            done += len(found)
            self.closed = len(found) < len(some)
            with suppress(Exception):  # what cannot be learned ahead is learned when it is needed
                self._learn_ahead()
        lazy = isinstance(self.intake, LaterLabels)  # then labels may come until the next query
        if not (one_phase or lazy) and self.left == 0 and self._no_next_phase() is None:
            with suppress(Exception):  # these answers are given; the next call says why there are no more
                self.turn_over(0)
        return Answers(class_indices[:done], phases[:done], refused, tickets)

    def label_stream(self, rows: Array) -> int:
        """Label rows of a trusted stream for the next phase; how many of them this phase still takes."""
        self._check_left(0)
        self.identity = None
        assert isinstance(self.intake, OwnAnswers)
        some = rows[: self.intake.space]
        if len(some) and not self.closed:
            found = self.engine.label(some)
            self.intake.keep(some[: len(found)], found)
            self.closed = len(found) < len(some)
            some = some[: len(found)]
            self._learn_ahead()
        return len(some)

    def _check_left(self, asked: int) -> None:
        horizon = self.schedule.horizon
        if horizon is not None and self.answered + asked > horizon:
            raise BudgetExhausted(
                f"{asked} queries were asked and {horizon - self.answered} of answers={horizon} are left: none was "
                "answered; ask fewer, or fit again with more answers"
            )

    # ── later labels ──────────────────────────────────────────────────────────────────────────────────────────────

    def later_labels(self, what: str) -> LaterLabels:
        """Where later labels go; an error if there are none of this kind."""
        truth = self.schedule.truth
        takes = truth is not None and (truth.takes_feedback if what == "feedback" else truth.takes_rows)
        if not takes or not isinstance(self.intake, LaterLabels):
            name, source = "feedback" if what == "feedback" else "rows", None if truth is None else truth.source
            raise ValueError(f"{what} needs truth={name!r} or truth='both', got truth={source!r}")
        return self.intake

    def add_labelled(self, X: Array, labels: Integers, groups: Array | None) -> Taken:
        """Keep labelled rows for phases to come."""
        intake = self.later_labels("add_labelled")
        self.identity = None
        if intake.truth.takes_feedback and intake.sealed:
            with suppress(BudgetExhausted):  # too few rows: then these belong to the phase that could not begin
                self.turn_over()  # what arrives now belongs to the phase after the one that learns
        taken = intake.add_labelled(X, labels, groups)
        with suppress(Exception):  # what cannot be learned ahead is learned when it is needed
            self._learn_ahead()
        return taken

    def withdraw_labelled(self, numbers: Sequence[int]) -> int:
        """Forget labelled rows, if their phase is not complete yet."""
        intake = self.later_labels("withdraw_labelled")
        self.identity = None
        return intake.withdraw(numbers)

    def feedback(self, tickets: Sequence[object], labels: Integers, owners: Sequence[str | None]) -> int:
        """Write labels into the slots of queries; how many slots were open."""
        intake = self.later_labels("feedback")
        self.identity = None
        return intake.feedback(tickets, labels, owners)

    @property
    def rows_gathered(self) -> int:
        """How many rows there are for the next phase."""
        return self.intake.count

    def gathered(self) -> Rows:
        """The rows that the next phase trains on, with their groups if there are any."""
        return self.intake.next_rows().training

    # ── learning the next phase ───────────────────────────────────────────────────────────────────────────────────

    def _learn_ahead(self) -> None:
        """Let the next phase learn in the background, while the queries held back are answered."""
        if self.background and self._ahead is None and self.intake.complete(self.asked, self.closed):
            self.intake.seal()
            pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reticent-phase")
            self._ahead = pool.submit(self._learn, self._answered_then())
            pool.shutdown(wait=False)

    def _learn(self, answered: int) -> tuple[Phase, Engine]:
        """The next phase, which begins after `answered` queries. Nothing that it reads changes: rows are complete."""
        rows, _, labels = self.intake.next_rows()
        units = len(rows.X) if rows.groups is None else len(np.unique(rows.groups))
        size = self.intake.count
        if self.factory.free_answers:  # then a phase need not be shorter because fewer rows came
            size = max(size, math.ceil(self.phase.answers / self.schedule.growth))
        try:  # with few rows even the numbers of a phase may be refused
            phase = self.schedule.phase(self.phase.number + 1, size, answered)
            phase = replace(phase, rows=len(rows.X), labels=labels)
            phase = self.factory.complete(phase, units, self.schedule)
        except ValueError as error:
            raise _TooFewRows(str(error)) from None
        try:
            if self.elsewhere is None or (self._due and rows.X.size <= SOON):
                return phase, self.engine.next(phase, rows, self._noise)
            header, arrays = self.elsewhere(phase, rows)
        except (InsufficientData, NoPhase) as error:
            raise _TooFewRows(str(error)) from None
        return phase, self.factory.restore(header, arrays, phase, trust_models=True)  # our own, not someone's file

    def _next_phase(self) -> tuple[Phase, Engine]:
        """The next phase, as it was learned ahead, or learned now."""
        if self._ahead is not None:
            try:
                return self._ahead.result()
            except OSError:  # of a disk or another process, and perhaps gone; nobody saw what was drawn then
                self._ahead = None
        return self._learn(self._answered_then())

    def _answered_then(self) -> int:
        """How many queries will have been answered when the next phase begins, if its rows are complete."""
        return self.answered if self.schedule.truth is not None else self.answered + self.left

    # ── turning over ──────────────────────────────────────────────────────────────────────────────────────────────

    def turn_over(self, done: int = 0, *, early: bool = False) -> None:
        """Swap to the next phase, all at once, and delete the rows that it learned from.

        `done` answers of the present call count already. `early` takes what has arrived of later labels as all.
        """
        self.identity = None
        if early:
            self._close_early()
        if (why := self._no_next_phase()) is not None:
            raise self._spent(done, why)
        self.intake.seal()
        judging = False
        try:
            phase, engine = self._next_phase()
            self.intake.prepare(phase)
            gauge = self.intake.next_rows().gauge
            judging = True
            engine = self.watch.judge(self.phase, self.engine, engine, gauge, self.answered)
            if self.watch.refusal is not None:  # an alarm: nothing learns from these answers
                raise self._spent(done, self.watch.refusal)
            self._begin(phase, engine)
        except BaseException as error:
            if judging:  # whoever interrupts this may have seen the counts
                self.intake.forget_judges(self.phase)
            self._ahead = None
            self.intake.reopen()
            if isinstance(error, _TooFewRows):
                raise self._spent(done, f"the rows gathered are too few for another phase: {error}") from None
            raise

    def _close_early(self) -> None:
        """Take no more rows for the next phase, if there are enough for one: a public act, by public numbers."""
        intake = self.intake
        if not isinstance(intake, LaterLabels) or not isinstance(self.factory, TruthFactory):
            raise ValueError("early must be False without truth: a phase ends after its answers")
        fewest = self.factory.fewest_labels()
        if intake.count < fewest:
            raise InsufficientData(
                f"a phase needs at least {fewest} labelled rows or slots, and there are {intake.count}", required=fewest
            )
        intake.begin_early()

    def _no_next_phase(self) -> str | None:
        """Why there is no next phase yet, by public numbers; None if there is one."""
        horizon = self.schedule.horizon
        if self.schedule.truth is not None and horizon is not None and self.answered >= horizon:
            return "all answers have been given"
        return self.watch.refusal or self.intake.missing(self.asked, self.closed)

    def _spent(self, done: int, why: str) -> BudgetExhausted:
        return exhausted(f"{why} (phase {self.phase.number}, {self.answered} queries answered in total)", done)

    # ── saving and replaying ──────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> tuple[dict[str, Any], dict[str, Array], Callable[[], None] | None]:
        """Where the machine is: JSON, arrays, and a function that releases the memory of arrays that are mapped."""
        if self._ahead is not None:
            self._ahead.exception()  # wait
        header, parts = self.engine.state()
        gathered, rows, release = self.intake.state()
        watch, block = self.watch.state()
        arrays = {f"engine/{name}": array for name, array in parts.items()} | rows | block
        written = {
            "phase": self.phase.to_json(),
            "asked": self.asked,
            "answered": self.answered,
            "closed": self.closed,
            **self.admission.state(),
            **gathered,
            **watch,
            "engine": header,
        }
        return written, arrays, release

    def restore(
        self, state: dict[str, Any], arrays: Mapping[str, Array], release: Callable[[], None], *, trust_models: bool
    ) -> None:
        """Continue from what `state` returned: the same phase, at the same count, with fresh noise."""
        phase = Phase(**state["phase"])
        parts = {name.removeprefix("engine/"): one for name, one in arrays.items() if name.startswith("engine/")}
        self.open(phase, self.factory.restore(state["engine"], parts, phase, trust_models=trust_models))
        self.asked, self.answered, self.closed = state["asked"], state["answered"], state["closed"]
        self.intake.restore(state, arrays, release)
        self.admission.resume(state)
        self.watch.restore(state, arrays)
        if self.schedule.truth is None:
            self.schedule = replace(self.schedule, tested=phase.reserved)

    def clock(self) -> dict[str, Any]:
        """How far this phase has come: what `replay` needs besides the rows. The progress of the engine is secret."""
        return {
            "asked": self.asked,
            "answered": self.answered,
            "closed": self.closed,
            "labeller": self.engine.progress(),
        }

    def replay(
        self,
        parts: Iterable[QueryPart | LabelledPart | WithdrawnPart],
        clock: Mapping[str, Any],
        feedback: Sequence[tuple[str, int, str | None]] = (),
    ) -> None:
        """Continue from this clock. `parts` are what arrived since the state was saved, in order.

        They are the queries that are kept, labelled rows, and those that were withdrawn. `feedback` has ticket, label
        and owner of each slot that was filled.
        """
        truth = self.schedule.truth
        window = self.phase.window
        kept = self.phase.queries if window and truth is not None and truth.takes_feedback else window
        for part in parts:
            if isinstance(part, LabelledPart):
                self.later_labels("add_labelled").add_labelled(*part)
                continue
            if isinstance(part, WithdrawnPart):
                self.later_labels("withdraw_labelled").withdraw(part.numbers)
                continue
            if self.asked + len(part.rows) > min(kept, clock["asked"]):
                raise ValueError("parts must be of the window of this phase, and no more than the clock counts")
            if isinstance(self.intake, LaterLabels):
                self.intake.take_with_tickets(*part[:3], self.asked, part.tickets or [])
            else:
                self.intake.take(*part[:3], self.asked)
            self.asked += len(part.rows)
        if clock["asked"] > self.phase.queries or min(kept, clock["asked"]) > self.asked:
            raise ValueError("parts must be all queries of the window that the clock counts")
        self.asked, self.answered, self.closed = clock["asked"], clock["answered"], clock["closed"]
        self.engine.resume(clock["labeller"])
        if feedback:
            tickets, labels, owners = zip(*feedback, strict=True)
            self.later_labels("feedback").feedback(tickets, np.array(labels), owners)
        self._learn_ahead()


class _TooFewRows(Exception):
    """The rows gathered do not make another phase: by their number, which is public."""
