"""The public protocol of what answers in a phase, and of what makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from reticent.data.executor import Executor
from reticent.data.rows import Rows
from reticent.labellers.registry import LabellerLike
from reticent.noise import Noise
from reticent.predictors.phases import MOST_NOISE, Phase, Schedule
from reticent.predictors.truth import Truth
from reticent.privacy.events import Event

Array = NDArray[Any]
Integers = NDArray[np.int64]
EngineState = tuple[dict[str, Any], dict[str, Array]]  # what JSON can hold, and plain arrays
Drift = Literal["not tested", "none found", "found"]


class NoPhase(ValueError):
    """A phase that cannot be made from these public numbers, such as the number of rows gathered."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What an `EverlastingPredictor` tells the engine that it was given. All of it is public.

    Parameters
    ----------
    learner : estimator, ConceptClass or None
        The learner of the predictor, unfitted.
    classes, columns : int
        The number of classes, which the engine sees as 0, 1, …, classes − 1, and of columns.
    epsilon, delta : Fraction
        The privacy of the rows of a phase.
    grouped : bool, default False
        Whether rows come with groups, which are then protected as a whole.
    trusted : bool, default False
        Whether the rows of the next phase come from a trusted stream, not from queries.
    truth : Truth or None, default None
        How rows get labels from outside after day one; None if phases learn from their own answers.
    keeps_models : bool, default False
        Whether past models are kept, so that an alarm can go back to one of them.
    rows_per_teacher, labeller, labeller_options, most_noise, retrain, random_state, n_jobs
        As given to the predictor. An engine uses those that concern it.
    """

    learner: Any
    classes: int
    columns: int
    epsilon: Fraction
    delta: Fraction
    grouped: bool = False
    trusted: bool = False
    truth: Truth | None = None
    keeps_models: bool = False
    rows_per_teacher: int | str = "auto"
    labeller: LabellerLike = "auto"
    labeller_options: Mapping[str, Any] | None = None
    most_noise: float = MOST_NOISE
    retrain: str = "drift"
    random_state: int = 0
    n_jobs: int | Executor | None = None


@runtime_checkable
class Engine(Protocol):
    """What answers the queries of one phase.

    Guarantee. All labels of a phase together, for queries that are chosen adaptively, are within (ε, δ) for a replaced
    row of the phase (with groups: for all rows of a replaced group). `event` is what they cost. A label does not depend
    on earlier queries. `one_answer`, `drift` and `event` are functions of what the engine has released, so everybody
    may see them.

    Why. `EverlastingPredictor` needs exactly this: see docs/predictors/everlasting.md for the theorem, and
    docs/extending/engine.md for how to write an engine. `check_engine` tests one.
    """

    @property
    def event(self) -> Event:
        """What the phase costs one of its rows."""

    @property
    def one_answer(self) -> int | None:
        """The index of the class that every query gets, if that follows from a released model; else None."""

    @property
    def drift(self) -> Drift:
        """What a private test found out about the queries of the phase before this one."""

    def label(self, X: Array) -> Integers:
        """The class indices of the first rows of `X`, which has at least one: of all, unless the phase closes early."""

    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> Engine:
        """Make the engine of the next phase from its rows; raise `NoPhase` or `InsufficientData` if they are too few.

        It may use the rows, and of this engine what was released. Nothing else of the rows of this phase may stay.
        """

    def state(self) -> EngineState:
        """Everything that `EngineFactory.restore` needs, as JSON and arrays. It is as secret as the rows."""

    def progress(self) -> dict[str, Any] | None:
        """The part of the state that answers change, as JSON; None if they change nothing."""

    def resume(self, progress: Mapping[str, Any] | None) -> None:
        """Continue from this progress, with fresh noise."""


@runtime_checkable
class TruthFactory(Protocol):
    """A factory whose engines can learn from labels that arrive after day one: rows with a class index of −1 have none.

    All of these are functions of public numbers.
    """

    @property
    def gauge_epsilon(self) -> Fraction:
        """The ε that is left for counts of a row that is asked, or was asked, but trains nothing."""

    def phase_rows(self, schedule: Schedule) -> int:
        """The labelled rows, or slots, of a phase if the caller names no number."""

    def fewest_labels(self) -> int:
        """The fewest labelled rows, or slots, from which a phase may begin early."""


def takes_truth(factory: type) -> bool:
    """Whether the engines of a factory can learn from labels that arrive: whether it is a `TruthFactory`."""
    return all(hasattr(factory, name) for name in ("gauge_epsilon", "phase_rows", "fewest_labels"))


class EngineFactory(Protocol):
    """What makes the engines of all phases; a function of public numbers.

    The class itself is what `EverlastingPredictor(engine=…)` takes.
    """

    learns_from_queries: ClassVar[bool]
    """Whether queries become rows of the next phase. If not, there is one phase, and queries are never stored."""

    free_answers: ClassVar[bool]
    """Whether answers cost nothing, so that a phase need not be shorter because fewer rows came."""

    @property
    def closes_early(self) -> bool:
        """Whether private rows decide when a phase closes; that must be paid for."""

    needs_delta: ClassVar[bool]
    """Whether δ must be positive."""

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> Self:
        """Make the factory; refuse settings that this engine cannot have."""

    @property
    def rows_per_group(self) -> int:
        """The most rows of one group in the next phase."""

    def complete(self, phase: Phase, units: int, schedule: Schedule) -> Phase:
        """Fill in the numbers of a phase that the engine decides; raise `InsufficientData` if it cannot be had.

        `units` is the number of rows, or of groups if rows have groups.
        """

    def ending(self, schedule: Schedule, rows: int) -> str | None:
        """Why answers that should be endless may end, as a warning to the caller; None if they do not end."""

    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> Engine:
        """Make the engine of the first phase from the training rows."""

    def restore(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], phase: Phase, *, trust_models: bool = False
    ) -> Engine:
        """Make the engine that `Engine.state` described, with fresh noise."""
