"""What arrives for the next phase: the protocol, and queries with the answers of this phase as labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.data.rows import Rows, RowStore
from reticent.predictors.admission import Admission
from reticent.predictors.phases import Phase

Array = NDArray[Any]
Integers = NDArray[np.int64]


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


class GaugeRows(NamedTuple):
    """Rows that judge the present phase and train nothing.

    `labels` are −1 where there is no label. `answers` are those that queries got; −1 for rows that are yet to be asked.
    `all_labelled` says whether every row came with a label, by public numbers.
    """

    X: Array
    labels: Integers
    answers: Integers
    all_labelled: bool


class NextRows(NamedTuple):
    """The rows of the next phase by their roles: those that train, and those that judge the present phase.

    `labels` is the public number of labels that the training rows are taken to have, None if each has one.
    """

    training: Rows
    gauge: GaugeRows | None = None
    labels: int | None = None


class Intake(Protocol):
    """Gathers the rows of the next phase. How many there are follows from the clock, never from what they hold."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    def prepare(self, phase: Phase) -> None:
        """Do all that may fail before `begin`, such as taking space on a disk; `reopen` undoes it."""

    def begin(self, phase: Phase) -> list[Any]:
        """Start to gather for the phase after this one; return what is left of the last phase, to be deleted."""

    def take(self, rows: Array, answers: Integers, clients: Array | None, asked: int) -> list[str] | None:
        """Take queries that were answered after `asked` others; return a ticket for each, if they get feedback."""

    def complete(self, asked: int, closed: bool) -> bool:
        """Whether the next phase may learn, after `asked` queries, or if the phase was `closed` early."""

    def seal(self) -> None:
        """Take no more rows: the next phase learns now."""

    def reopen(self) -> None:
        """Take rows again: the next phase could not begin, and nothing that it learned was released."""

    def forget_judges(self, phase: Phase) -> None:
        """Erase the rows that judge this phase, if they are still here: they may have been read."""

    def missing(self, asked: int, closed: bool) -> str | None:
        """Why there is no next phase yet, by public numbers; None if there is one."""

    def next_rows(self) -> NextRows:
        """The rows, once they are complete."""

    def state(self) -> tuple[dict[str, Any], dict[str, Array], Callable[[], None] | None]:
        """What it holds, as JSON and arrays, and a function that releases the memory of arrays that are mapped."""

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], release: Callable[[], None]) -> None:
        """Continue from what `state` returned, in the same phase."""


class OwnAnswers:
    """The queries of the window with the answers of this phase as labels, or the rows of a trusted stream.

    Parameters
    ----------
    admission : Admission
        Which queries may become rows.
    limits : RowLimits
        The shape of rows, and where they are kept.
    trusted : bool
        Whether rows come from a trusted stream, not from queries.
    free_answers : bool
        Whether a phase may follow one that gathered nothing.
    """

    def __init__(self, admission: Admission, limits: RowLimits, *, trusted: bool, free_answers: bool) -> None:
        self._admission, self._limits, self._trusted, self._free = admission, limits, trusted, free_answers
        self.store: RowStore | None = None
        self._prepared: RowStore | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return 0 if self.store is None else len(self.store)

    def prepare(self, phase: Phase) -> None:
        """Take the space for the rows."""
        self._prepared = self._limits.store(phase.handed_on) if phase.handed_on else None

    def begin(self, phase: Phase) -> list[Any]:
        """Start a phase. Nothing can fail here: a new phase never coexists with rows of the old one."""
        used, self.store, self._prepared, self._phase = self.store, self._prepared, None, phase
        self._admission.begin(window=phase.window)
        self._members: list[Integers] = []  # groups of the rows, if there are groups
        return [] if used is None else [used]

    def take(self, rows: Array, answers: Integers, clients: Array | None, asked: int) -> None:
        """Keep the queries of the window, of each client at most its share."""
        count = min(len(rows), max(0, self._phase.window - asked))
        if count == 0:
            return
        admitted, groups = self._admission.admit(None if clients is None else clients[:count], count)
        if admitted.all():
            self.keep(rows[:count], answers[:count], groups)
        elif admitted.any():
            self.keep(rows[:count][admitted], answers[:count][admitted], groups[admitted])

    def keep(self, rows: Array, answers: Integers, groups: Integers | None = None) -> None:
        """Keep rows with their labels."""
        if self.store is None:
            return
        self.store.append(rows, answers)
        if self._admission.grouped and groups is not None:
            self._members.append(groups)

    @property
    def space(self) -> int:
        """How many more rows of a trusted stream this phase takes."""
        return 0 if self.store is None else self._phase.stream - len(self.store)

    def complete(self, asked: int, closed: bool) -> bool:
        """Whether no more rows will come, by the clock."""
        if self.store is None:
            return False
        return closed or (self.space <= 0 if self._trusted else asked >= self._phase.window)

    def seal(self) -> None:
        """Rows end with the window in any case."""

    def reopen(self) -> None:
        """Give the prepared space back."""
        self._prepared = None

    def forget_judges(self, phase: Phase) -> None:
        """No row judges."""

    def missing(self, asked: int, closed: bool) -> str | None:
        """Why there is no next phase yet."""
        if self.store is None:
            left = self._phase.queries - asked
            return f"the last phase closed with {left} answers left" if left else "all answers have been given"
        if self._trusted and self.space > 0 and not closed:
            return f"the next phase needs {self.space} more rows by add_unlabelled"
        return None if len(self.store) or self._free else "this phase closed before it gathered a row"

    def next_rows(self) -> NextRows:
        """The rows, with their groups if there are any."""
        if self.store is None:
            raise ValueError("this phase gathers no rows")
        rows = self.store.rows()
        if self._admission.grouped:
            rows = rows._replace(groups=np.concatenate([np.empty(0, dtype=np.int64), *self._members]))
        return NextRows(rows)

    def state(self) -> tuple[dict[str, Any], dict[str, Array], Callable[[], None] | None]:
        """Rows, labels and groups."""
        arrays: dict[str, Array] = {}
        if self.store is not None and len(self.store):
            rows = self.store.rows()
            arrays |= {"rows/X": rows.X, "rows/codes": rows.class_indices}
        if self._members:
            arrays["rows/groups"] = np.concatenate(self._members)
        return {}, arrays, None if self.store is None else self.store.release

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], release: Callable[[], None]) -> None:
        """Continue from what `state` returned."""
        if "rows/X" in arrays and self.store is not None:
            self.store.append(arrays["rows/X"], arrays["rows/codes"], release=release)
        if "rows/groups" in arrays:
            self._members = [arrays["rows/groups"]]
