"""The model engine: one private model answers every query, and no query is ever stored or learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from reticent.data.rows import Rows
from reticent.errors import InsufficientData
from reticent.learners.comparison import PrivateComparison, Scores
from reticent.noise import Noise
from reticent.predictors.engines.engine import Array, Drift, Engine, EngineSettings, EngineState, NoPhase
from reticent.predictors.engines.private_model import (
    ModelAnswers,
    PrivateModels,
    first_of_each_group,
    model_state,
    restored_model,
)
from reticent.predictors.phases import NO_END, Phase, Schedule
from reticent.privacy.events import Event
from reticent.silence import silent


@dataclass(frozen=True, kw_only=True)
class ModelFactory(PrivateModels):
    """Makes the engine of a single private model. There is one phase, which ends after `answers`, or never.

    >>> from fractions import Fraction
    >>> import numpy as np
    >>> from reticent.learners import ThresholdLearner
    >>> factory = ModelFactory(
    ...     learner=ThresholdLearner(bits=10, epsilon=1), classes=2, columns=1, epsilon=Fraction(1), delta=Fraction(0)
    ... )
    >>> X = np.arange(3000)[:, None] % 1000
    >>> phase = Phase(number=1, rows=3000, answers=NO_END, window=0)
    >>> engine = factory.first(phase, Rows(X, (X[:, 0] < 400).astype(int), None), None)
    >>> bool((engine.label(X) == (X[:, 0] < 400)).mean() > 0.95), engine.progress()
    (True, None)
    """

    learns_from_queries: ClassVar[bool] = False
    free_answers: ClassVar[bool] = True
    closes_early = False
    needs_delta: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> Self:
        """Take what concerns a private model."""
        if settings.trusted:
            raise ValueError("training_stream must be 'queries' for engine='model', which learns from `fit` alone")
        return super().from_settings(settings)

    def complete(self, phase: Phase, units: int, schedule: Schedule) -> Phase:
        """The only phase: as many answers as were asked for, and no rows for another."""
        if units < 1:
            raise InsufficientData("a private model needs at least one row", required=1)
        return replace(phase, answers=schedule.horizon or NO_END, window=0, stream=0)

    def ending(self, schedule: Schedule, rows: int) -> str | None:
        """A released model answers without end."""
        return None

    @silent()
    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ModelEngine:
        """Train the model."""
        model = self.trained(self.prepared(), rows, first_of_each_group(rows), unsafe_noise)
        return ModelEngine(model.model_, model.scores_) if isinstance(model, PrivateComparison) else ModelEngine(model)

    def restore(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], phase: Phase, *, trust_models: bool = False
    ) -> ModelEngine:
        """The engine that `ModelEngine.state` described."""
        learner, noted = self.prepared(), header.get("comparison")
        scores = None if noted is None else Scores(**noted | {"counts": tuple(noted["counts"])})
        if scores is not None:
            learner = learner.estimator_of(scores)
        return ModelEngine(restored_model(learner, header["model"], arrays), scores)


class ModelEngine(ModelAnswers):
    """One private model, which never learns from queries.

    Guarantee. (ε, δ)-differential privacy for a replaced training row, features and label (with groups: for all rows
    of a replaced group), whatever is asked and however often. Queries are not released, stored or learned from.

    Why. The model is (ε, δ)-DP in the rows, and answers are a function of the model and the query: post-processing.
    With groups, the model sees one row of each group. An answer depends on its own query and on no other query.

    Parameters
    ----------
    model : estimator
        A fitted private learner.
    scores : Scores or None, default None
        What a private comparison found before the model was trained; None without one.
    """

    def __init__(self, model: Any, scores: Scores | None = None) -> None:
        super().__init__(model)
        self.scores = scores

    @property
    def event(self) -> Event:
        """What the learner spent, and the comparison before it."""
        event: Event = self.model.event_
        return event

    @property
    def drift(self) -> Drift:
        """Queries are not looked at, so drift is never tested."""
        return "not tested"

    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> Engine:
        """There is no next phase."""
        raise NoPhase("engine='model' has one phase")

    def state(self) -> EngineState:
        """The model, and what a comparison found."""
        header, arrays = model_state(self.model)
        noted = {} if self.scores is None else {"comparison": asdict(self.scores)}
        return {"model": header, **noted}, arrays
