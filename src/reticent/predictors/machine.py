"""From phase to phase: answer, gather rows, learn the next phase ahead of time, and turn over to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.rows import Rows, RowStore
from reticent.errors import BudgetExhausted, InsufficientData
from reticent.noise import Noise
from reticent.predictors.admission import Admission
from reticent.predictors.answers import Answers, exhausted
from reticent.predictors.engines.engine import Engine, EngineFactory, EngineState, NoPhase
from reticent.predictors.phases import Phase, Schedule

Array = NDArray[Any]
Integers = NDArray[np.int64]
LearnElsewhere = Callable[[Phase, Rows], EngineState]


@dataclass(frozen=True, kw_only=True)
class RowLimits:
    """What the rows of a phase look like, and where they are kept."""

    columns: int
    dtype: np.dtype[Any]
    classes: int
    memory_limit: int
    folder: str | PathLike[str] | None

    def store(self, capacity: int) -> RowStore:
        """An empty store for this many rows."""
        return RowStore(
            capacity,
            self.columns,
            dtype=self.dtype,
            classes=self.classes,
            memory_limit=self.memory_limit,
            folder=self.folder,
        )


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
        unsafe_noise: Noise | None = None,
    ) -> None:
        self.schedule, self.factory, self.admission = schedule, factory, admission
        self._limits, self._noise = limits, unsafe_noise
        self.answered = 0
        self.background = False
        self.identity: str | None = None
        self.elsewhere: LearnElsewhere | None = None

    def open(self, phase: Phase, engine: Engine) -> None:
        """Begin a phase. The rows that the last one learned from are not referred to any more."""
        store = self._limits.store(phase.handed_on) if phase.handed_on else None
        # From here on nothing can fail: a new phase never coexists with rows of the old one.
        self._ahead: Future[tuple[Phase, Engine]] | None = None
        self.admission.begin(window=phase.window)
        self._members: list[Integers] = []  # groups of the rows gathered, if there are groups
        self.asked, self.closed = 0, False
        self.phase, self._store = phase, store
        self.engine = engine

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def left(self) -> int:
        """How many more queries this phase answers at most."""
        return 0 if self.closed else self.phase.queries - self.asked

    @property
    def learning(self) -> bool:
        """Whether the next phase is being learned, or was learned ahead."""
        return self._ahead is not None

    def answer(self, rows: Array, clients: Array | None, *, one_phase: bool) -> Answers:
        """Answer queries, over as many phases as it takes, unless `one_phase`.

        Answers that count are returned whatever happens after them; an error is raised only if there are none.
        """
        self._check_left(len(rows))
        self.identity = None  # what was saved before is another state from here on
        refused: Exception | None = None
        class_indices, phases = np.empty((2, len(rows)), dtype=np.int64)
        done = 0
        while done < len(rows):
            if self.left == 0 and one_phase:
                break
            try:
                if self.left == 0:
                    self.turn_over(done)
                some = rows[done : done + self.left]
                found = self.engine.label(some)
                self._gather(some[: len(found)], found, None if clients is None else clients[done : done + len(found)])
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
            done += len(found)
            self.closed = len(found) < len(some)
            with suppress(Exception):  # what cannot be learned ahead is learned when it is needed
                self._learn_ahead()
        if not one_phase and self.left == 0 and self._no_next_phase() is None:
            with suppress(Exception):  # these answers are given; the next call says why there are no more
                self.turn_over(0)
        return Answers(class_indices[:done], phases[:done], refused)

    def label_stream(self, rows: Array) -> int:
        """Label rows of a trusted stream for the next phase; how many of them this phase still takes."""
        self._check_left(0)
        self.identity = None
        some = rows[: self.phase.stream - len(self._store)] if self._store is not None else rows[:0]
        if len(some) and not self.closed:
            found = self.engine.label(some)
            self._keep(some[: len(found)], found)
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

    # ── gathering ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def rows_gathered(self) -> int:
        """How many rows there are for the next phase."""
        return 0 if self._store is None else len(self._store)

    def gathered(self) -> Rows:
        """The rows for the next phase, with their groups if there are any."""
        if self._store is None:
            raise ValueError("this phase gathers no rows")
        rows = self._store.rows()
        if not self.admission.grouped:
            return rows
        return rows._replace(groups=np.concatenate([np.empty(0, dtype=np.int64), *self._members]))

    def _gather(self, rows: Array, class_indices: Integers, clients: Array | None) -> None:
        """Keep the queries of the window as rows for the next phase, of each client at most its share."""
        count = min(len(rows), max(0, self.phase.window - self.asked))
        if count == 0:
            return
        admitted, groups = self.admission.admit(None if clients is None else clients[:count], count)
        if admitted.all():
            self._keep(rows[:count], class_indices[:count], groups)
        elif admitted.any():
            self._keep(rows[:count][admitted], class_indices[:count][admitted], groups[admitted])

    def _keep(self, rows: Array, class_indices: Integers, groups: Integers | None = None) -> None:
        if self._store is None:
            return
        self._store.append(rows, class_indices)
        if self.admission.grouped and groups is not None:
            self._members.append(groups)

    # ── learning the next phase ───────────────────────────────────────────────────────────────────────────────────

    def _ready(self) -> bool:
        """Whether no more rows will come for the next phase: by the clock."""
        if self._store is None:
            return False
        full = len(self._store) >= self.phase.stream if self.schedule.trusted else self.asked >= self.phase.window
        return full or self.closed

    def _learn_ahead(self) -> None:
        """Let the next phase learn in the background, while the queries held back are answered."""
        if self.background and self._ahead is None and self._ready():
            pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reticent-phase")
            self._ahead = pool.submit(self._learn, self.answered + self.left)
            pool.shutdown(wait=False)

    def _learn(self, answered: int) -> tuple[Phase, Engine]:
        """The next phase, which begins after `answered` queries. Nothing that it reads changes: rows are complete."""
        rows = self.gathered()
        units = len(rows.X) if rows.groups is None else self.admission.groups
        size = len(rows.X)
        if self.factory.free_answers:  # then a phase need not be shorter because fewer rows came
            size = max(size, math.ceil(self.phase.answers / self.schedule.growth))
        phase = replace(self.schedule.phase(self.phase.number + 1, size, answered), rows=len(rows.X))
        try:
            phase = self.factory.complete(phase, units, self.schedule)
        except ValueError as error:
            raise _TooFewRows(str(error)) from None
        try:
            if self.elsewhere is None:
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
        return self._learn(self.answered + self.left)

    # ── turning over ──────────────────────────────────────────────────────────────────────────────────────────────

    def turn_over(self, done: int = 0) -> None:
        """Swap to the next phase, all at once, and delete the rows that it learned from.

        `done` answers of the present call count already.
        """
        self.identity = None
        if (why := self._no_next_phase()) is not None or self._store is None:
            raise self._spent(done, str(why))
        store = self._store
        try:
            phase, engine = self._next_phase()
        except _TooFewRows as error:
            raise self._spent(done, f"the rows gathered are too few for another phase: {error}") from None
        self.open(phase, engine)
        store.delete()

    def _no_next_phase(self) -> str | None:
        """Why there is no next phase yet, by public numbers; None if there is one."""
        if self._store is None:
            left = self.phase.queries - self.asked
            return f"the last phase closed with {left} answers left" if left else "all answers have been given"
        if self.schedule.trusted and len(self._store) < self.phase.stream and not self.closed:
            return f"the next phase needs {self.phase.stream - len(self._store)} more rows by add_unlabelled"
        if len(self._store) or self.factory.free_answers:
            return None
        return "this phase closed before it gathered a row"

    def _spent(self, done: int, why: str) -> BudgetExhausted:
        return exhausted(f"{why} (phase {self.phase.number}, {self.answered} queries answered in total)", done)

    # ── saving and replaying ──────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> tuple[dict[str, Any], dict[str, Array], Callable[[], None] | None]:
        """Where the machine is: JSON, arrays, and a function that releases the memory of arrays that are mapped."""
        if self._ahead is not None:
            self._ahead.exception()  # wait
        header, parts = self.engine.state()
        arrays = {f"engine/{name}": array for name, array in parts.items()}
        if self._store is not None and len(self._store):
            rows = self._store.rows()
            arrays |= {"rows/X": rows.X, "rows/codes": rows.class_indices}
        if self._members:
            arrays["rows/groups"] = np.concatenate(self._members)
        written = {
            "phase": self.phase.__dict__,
            "asked": self.asked,
            "answered": self.answered,
            "closed": self.closed,
            **self.admission.state(),
            "engine": header,
        }
        return written, arrays, None if self._store is None else self._store.release

    def restore(
        self, state: dict[str, Any], arrays: Mapping[str, Array], release: Callable[[], None], *, trust_models: bool
    ) -> None:
        """Continue from what `state` returned: the same phase, at the same count, with fresh noise."""
        phase = Phase(**state["phase"])
        parts = {name.removeprefix("engine/"): one for name, one in arrays.items() if name.startswith("engine/")}
        self.open(phase, self.factory.restore(state["engine"], parts, phase, trust_models=trust_models))
        self.admission.resume(state)
        self.asked, self.answered, self.closed = state["asked"], state["answered"], state["closed"]
        if "rows/X" in arrays and self._store is not None:
            self._store.append(arrays["rows/X"], arrays["rows/codes"], release=release)
        if "rows/groups" in arrays:
            self._members = [arrays["rows/groups"]]

    def clock(self) -> dict[str, Any]:
        """How far this phase has come: what `replay` needs besides the rows. The progress of the engine is secret."""
        return {
            "asked": self.asked,
            "answered": self.answered,
            "closed": self.closed,
            "labeller": self.engine.progress(),
        }

    def replay(self, parts: Iterable[tuple[Array, Integers, Array | None]], clock: Mapping[str, Any]) -> None:
        """Continue from this clock. `parts` are the queries of the window since the state was saved, in order."""
        for rows, class_indices, clients in parts:
            if self.asked + len(rows) > min(self.phase.window, clock["asked"]):
                raise ValueError("parts must be of the window of this phase, and no more than the clock counts")
            self._gather(rows, class_indices, clients)
            self.asked += len(rows)
        if clock["asked"] > self.phase.queries or min(self.phase.window, clock["asked"]) > self.asked:
            raise ValueError("parts must be all queries of the window that the clock counts")
        self.asked, self.answered, self.closed = clock["asked"], clock["answered"], clock["closed"]
        self.engine.resume(clock["labeller"])
        self._learn_ahead()


class _TooFewRows(Exception):
    """The rows gathered do not make another phase: by their number, which is public."""
