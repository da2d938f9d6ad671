"""The chain engine: one private model per phase, and a new model when the queries have drifted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast, get_args

import numpy as np

from reticent.data.rows import Rows
from reticent.errors import InsufficientData
from reticent.exact import Number
from reticent.learners import phase_rules
from reticent.learners.comparison import PrivateComparison
from reticent.learners.linear import Linear
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.predictors.drift import FALSE_ALARM, Shape, Summary, drift_summary, drifted, unit_features
from reticent.predictors.engines.engine import Array, Drift, EngineSettings, EngineState, Integers
from reticent.predictors.engines.private_model import (
    ModelAnswers,
    PrivateModels,
    first_of_each_group,
    model_state,
    restored_model,
)
from reticent.predictors.phases import Phase, Schedule
from reticent.predictors.truth import Truth
from reticent.privacy.events import Event, Parallel, event_from_json
from reticent.promises import check_share
from reticent.silence import silent

FOLLOW = 2  # phases after an alarm that train again: one training follows part of the drift
MODELS = 8  # that are kept, the last ones
START, STEPS = 2.0, 20  # the largest score that a new linear model starts from, and the steps of its descent
Retrain = Literal["drift", "always", "never"]


class Shares(NamedTuple):
    """Indices of rows, by what they are used for; no row is used for two things."""

    test: Integers  # of drift, at the end of the phase
    spare: Integers  # for the next reference, if a new model is trained
    training: Integers


@dataclass(frozen=True, kw_only=True)
class ChainFactory(PrivateModels):
    """Makes the engines of a chain of private models; all of it is public.

    Parameters
    ----------
    learner, classes, columns, epsilon, delta
        As in `PrivateModels`.
    retrain : {"drift", "always", "never"}, default "drift"
        Whether a phase trains a new model only after its queries have drifted, or always. With "never" the first model
        answers all phases.
    truth : Truth or None, default None
        How rows get labels from outside. With it every phase trains, on all of its rows, and drift is not tested.
    keeps_models : bool, default False
        Whether past models are kept.
    drift_share : float or Fraction, default 1/10
        The share of the rows that are used for the test of drift, and never for training. Which rows these are depends
        on their index alone.
    false_alarm : float or Fraction, default 1/100
        The largest probability of an alarm without drift.
    """

    retrain: Retrain = "drift"
    truth: Truth | None = None
    keeps_models: bool = False
    drift_share: Number = Fraction(1, 10)
    false_alarm: Number = FALSE_ALARM

    learns_from_queries: ClassVar[bool] = True
    free_answers: ClassVar[bool] = True
    closes_early = False
    needs_delta: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> Self:
        """Take what concerns a chain."""
        return replace(
            super().from_settings(settings),
            retrain=cast(Retrain, settings.retrain),
            truth=settings.truth,
            keeps_models=settings.keeps_models or settings.truth is not None,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.learner, PrivateComparison):
            raise TypeError("learner must be one private learner for engine='chain': engine='model' takes a comparison")
        if self.retrain not in get_args(Retrain):
            raise ValueError(f"retrain must be 'drift', 'always' or 'never', got {self.retrain!r}")
        check_share(self.false_alarm, "false_alarm")
        if check_share(self.drift_share, "drift_share") > Fraction(1, 2):
            raise ValueError(f"drift_share must be at most 1/2, got {self.drift_share}: the other rows train the model")

    def complete(self, phase: Phase, units: int, schedule: Schedule | None = None) -> Phase:
        """The phase as it is, since answers are free; a first phase with too few rows (or groups) is refused."""
        if phase.number == 1 and units < self.fewest:
            raise InsufficientData(
                f"a chain of private models needs at least {self.fewest} rows or groups, got {units}",
                required=self.fewest,
            )
        return phase

    def ending(self, schedule: Schedule, rows: int) -> str | None:
        """A phase with few rows keeps the model of the phase before, so answers do not end."""
        return None

    @property
    def fewest(self) -> int:
        """The fewest rows from which a phase trains or tests."""
        return self.period if self.tests_drift else 1

    @property
    def tests_drift(self) -> bool:
        """Whether some rows of a phase test whether queries have drifted. Where labels arrive, they train."""
        return self.retrain == "drift" and self.truth is None

    @property
    def gauge_epsilon(self) -> Fraction:
        """All of ε: a row that judges is read by nothing else."""
        return self.epsilon

    def phase_rows(self, schedule: Schedule) -> int:
        """As many as the learner needs for little noise; more slots if only some of them get a label."""
        assert schedule.truth is not None
        rows = phase_rules.phase_rows(self.prepared(), self.columns, self.classes)
        return math.ceil(rows / (schedule.truth.feedback_share if schedule.truth.source == "feedback" else 1))

    def fewest_labels(self) -> int:
        """The rows at which noise is not larger than what half of them pull."""
        rows = phase_rules.phase_rows(self.prepared(), self.columns, self.classes, early=True)
        return math.ceil(rows / (self.truth.feedback_share if self.truth and self.truth.takes_feedback else 1))

    @property
    def fewest_to_train(self) -> int:
        """With later labels: the fewest rows or slots that a phase trains from; with fewer, it keeps the model.

        So a phase in which few queries got a slot does not replace a good model by noise.
        """
        assert self.truth is not None
        fewest = Fraction(self.fewest_labels())
        if self.truth.phase_rows is not None:
            fewest = min(fewest, Fraction(self.truth.phase_rows, 2))
        return max(1, math.ceil(self.truth.training_share * fewest))

    @property
    def period(self) -> int:
        """Of this many rows, one is used for the test and one is spare."""
        return -(-2 // check_share(self.drift_share, "drift_share"))

    def shares(self, rows: int) -> Shares:
        """What each row is used for, by its index alone."""
        position = np.arange(rows) % self.period
        tests, spare = position == 0, position == self.period // 2
        return Shares(np.flatnonzero(tests), np.flatnonzero(spare), np.flatnonzero(~(tests | spare)))

    @silent()
    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ChainEngine:
        """The engine of the first phase: a model, and the reference to which later queries are compared."""
        indices = first_of_each_group(rows)
        self.complete(phase, len(indices))
        if not self.tests_drift:
            model = self.train(rows, indices, None, unsafe_noise)
            return ChainEngine(self, phase, model, None, model.event_, retrained=True)
        test, spare, training = (indices[share] for share in self.shares(len(indices)))
        model = self.train(rows, training, None, unsafe_noise)
        reference, event = self.summary(model, rows.X[np.sort(np.append(test, spare))], unsafe_noise)
        return ChainEngine(self, phase, model, reference, Parallel((model.event_, event)), retrained=True)

    def train(
        self,
        rows: Rows,
        indices: Integers,
        previous: Any,
        unsafe_noise: Noise | None,
        phase: Phase | None = None,
    ) -> Any:
        """A private model of the rows at these indices; it starts from the previous *model*, which was released.

        `phase` is given for a phase whose rows have true labels, or none.
        """
        learner = self.prepared()
        if isinstance(learner, PrivateLogisticRegression) and previous is not None:
            if phase is not None:
                changed = phase_rules.continuation(
                    learner, previous, phase=phase.number, rows=phase.labels or len(indices), columns=self.columns
                )
            else:
                changed = self.continuation(learner, previous)
            learner.set_params(**changed)
        return self.trained(learner, rows, indices, unsafe_noise, None if phase is None else phase.labels)

    def continuation(self, learner: PrivateLogisticRegression, previous: PrivateLogisticRegression) -> dict[str, Any]:
        """The parameters by which a linear learner continues from a released model, on rows with its own labels."""
        changed: dict[str, Any] = {"start": previous.hypothesis_, "fourier_seed": previous.fourier_seed_}
        if self.retrain == "drift":
            changed |= {"start": shortened_start(previous), "steps": learner.steps or STEPS}
            if learner.rounds == "auto":
                # A descent on whitened rows would lead back to the boundary that the labels come from, not to clusters
                # that have moved; see `shortened_start`.
                changed["rounds"] = 0
        if learner.public is not None:  # what weights apply to depends on the number of rows: start from zero
            changed["start"] = None
        return changed

    def summary(self, model: Any, X: Array, unsafe_noise: Noise | None) -> Release[Summary]:
        """The noisy summary of rows with the labels of a model."""
        return drift_summary(
            unit_features(model, X),
            np.asarray(model.predict(X)).astype(np.int64),
            classes=self.classes,
            epsilon=self.epsilon,
            delta=self.delta,
            unsafe_noise=unsafe_noise,
        )

    def restore(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], phase: Phase, *, trust_models: bool = False
    ) -> ChainEngine:
        """The engine that `ChainEngine.state` described."""
        model = restored_model(self.prepared(), header["model"], arrays)
        noted = header["reference"]
        reference = None if noted is None else Summary(
            np.array(arrays["reference"], dtype=np.int64),
            Shape(*noted["shape"]),
            noted["rows"],
            Fraction(noted["scale"]),
            noted["pure"],
        )
        event = event_from_json(header["event"])
        past = tuple(
            (number, restored_model(self.prepared(), described, with_prefix(arrays, f"models/{index}/")))
            for index, (number, described) in enumerate(header.get("models", ()))
        )
        return ChainEngine(
            self,
            phase,
            model,
            reference,
            event,
            retrained=header["retrained"],
            due=header["due"],
            models=past,
            frozen=header.get("frozen", False),
        )


class ChainEngine(ModelAnswers):
    """The private model of a phase, and the reference by which later phases find out whether queries have drifted.

    A released private model answers any number of queries at no cost. At the end of a phase its queries, with the
    labels that the model gave them, are the rows of the next phase. A summary of some of them is compared to the
    reference. After drift, a new model is trained on the others, starting from the old model, and a second summary, of
    rows that neither test nor train, is the new reference. Without drift, all rows are dropped.

    Guarantee. Over all phases together, and for adaptive queries: (ε, δ)-differential privacy for a replaced row of the
    first phase, features and label; and for a replaced query, if its own answer is not seen. With groups, the same for
    all rows (or queries) of one group in one phase. `event` is what the rows of the phase cost. Everything that the
    engine holds may be published: the model, the reference, and whether the model is new (`retrained`).

    Why. The index of a row decides whether it tests, trains or is spare, so exactly one (ε, δ)-DP release sees it, and
    everything after is post-processing. A query does not change the answers of its own phase, which are a function of
    the model; it is one row of the next phase. The full proof is in docs/predictors/chain.md.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*: the game is that of Figure 1, and the privacy
    of Definition 3.4 holds with the ε and δ of one phase. In place of Algorithm GenericBBL the predictor releases one
    model per phase, which needs far fewer rows where a private learner is known. New: the test of drift.
    """

    def __init__(
        self,
        factory: ChainFactory,
        phase: Phase,
        model: Any,
        reference: Summary | None,
        event: Event,
        *,
        retrained: bool,
        due: int = 0,
        models: tuple[tuple[int, Any], ...] = (),
        frozen: bool = False,
    ) -> None:
        super().__init__(model)
        self.factory, self.phase, self.reference = factory, phase, reference
        self.event = event
        self.retrained = retrained
        self.due = due  # how many of the next phases train a new model, whatever the test says
        self.frozen = frozen  # whether it learns no more
        if factory.keeps_models and retrained and not frozen and (not models or models[-1][0] != phase.number):
            models = (*models, (phase.number, model))[-MODELS:]
        self.models = models

    @property
    def drift(self) -> Drift:
        """What the private test found at the end of the phase before this one.

        It is a function of summaries that were released, and that the event of the phase counts.
        """
        if self.phase.number == 1 or not self.factory.tests_drift or self.frozen:
            return "not tested"
        if self.due == FOLLOW:  # as it is after an alarm, and only then
            return "found"
        return "none found" if self.phase.rows >= self.factory.fewest else "not tested"

    @silent()
    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ChainEngine:
        """The engine of the next phase, whose rows are the queries of this one with the labels released."""
        factory, indices = self.factory, first_of_each_group(rows)
        if factory.truth is not None:
            if len(indices) < factory.fewest_to_train:  # clients were barred, or had more queries than their share
                return self._followed_by(phase, self.model, None, self.event, retrained=False)
            last = self.models[-1][1]  # not the model that answers, if an older one was chosen
            model = factory.train(rows, indices, last, unsafe_noise, phase)
            return self._followed_by(phase, model, None, model.event_, retrained=True)
        if factory.retrain == "never" or len(indices) < factory.fewest or self.frozen:
            return self._followed_by(phase, self.model, self.reference, self.event, retrained=False, due=self.due)
        if factory.retrain == "always":
            model = factory.train(rows, indices, self.model, unsafe_noise)
            return self._followed_by(phase, model, None, model.event_, retrained=True)
        assert self.reference is not None
        test, spare, training = (indices[share] for share in factory.shares(len(indices)))
        current, tested = factory.summary(self.model, rows.X[test], unsafe_noise)
        alarm = drifted(self.reference, current, false_alarm=factory.false_alarm)
        if not (alarm or self.due):
            return self._followed_by(phase, self.model, self.reference, tested, retrained=False)
        model = factory.train(rows, training, self.model, unsafe_noise)
        reference, summed_up = factory.summary(model, rows.X[spare], unsafe_noise)
        event = Parallel((tested, model.event_, summed_up))
        due = FOLLOW if alarm else self.due - 1
        return self._followed_by(phase, model, reference, event, retrained=True, due=due)

    def _followed_by(
        self, phase: Phase, model: Any, reference: Summary | None, event: Event, *, retrained: bool, due: int = 0
    ) -> ChainEngine:
        return ChainEngine(
            self.factory,
            phase,
            model,
            reference,
            event,
            retrained=retrained,
            due=due,
            models=self.models,
            frozen=self.frozen,
        )

    def answered_by(self, index: int) -> ChainEngine:
        """The engine with one of its past models answering; the next phase starts from the last one all the same."""
        return self._with_model(self.models[index][1], frozen=self.frozen)

    def frozen_at(self, phase: int) -> ChainEngine:
        """The engine with the last model that was trained in this phase or before; it learns no more."""
        earlier = [model for number, model in self.models if number <= phase]
        return self._with_model(earlier[-1] if earlier else self.models[0][1], frozen=True)

    def _with_model(self, model: Any, *, frozen: bool) -> ChainEngine:
        return ChainEngine(
            self.factory,
            self.phase,
            model,
            self.reference,
            self.event,
            retrained=self.retrained,
            due=self.due,
            models=self.models,
            frozen=frozen,
        )

    def state(self) -> EngineState:
        """The model, the reference, and what follows from earlier alarms."""
        header, arrays = model_state(self.model)
        noted = None
        if self.reference is not None:
            arrays["reference"] = self.reference.values
            noted = {
                "shape": list(self.reference.shape),
                "rows": self.reference.rows,
                "scale": str(self.reference.scale),
                "pure": self.reference.pure,
            }
        written: dict[str, Any] = {
            "model": header,
            "reference": noted,
            "event": self.event.to_json(),
            "retrained": self.retrained,
            "due": self.due,
        }
        if self.factory.keeps_models:
            past = [(number, *model_state(model)) for number, model in self.models]
            written |= {"models": [[number, described] for number, described, _ in past], "frozen": self.frozen}
            for index, (_, _, parts) in enumerate(past):
                arrays |= {f"models/{index}/{name}": part for name, part in parts.items()}
        return written, arrays


def with_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names start with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}


def shortened_start(model: PrivateLogisticRegression) -> Linear:
    """The weights of a released model, scaled down until no row has a score beyond `START`, apart from the intercept.

    Long weights would only repeat the boundary that the labels come from. From short weights, a short descent moves
    towards the difference between the means of the classes, and so follows clusters that have moved.
    """
    coef, intercept = model.hypothesis_
    longest = model.feature_map_.length * float(np.linalg.norm(coef, axis=0).max())
    factor = min(1.0, START / longest) if longest > 0 else 1.0
    return Linear(coef * factor, intercept * factor)
