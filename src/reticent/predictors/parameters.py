"""The parameters of an everlasting predictor: checked before the data are touched, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self, get_args

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from reticent.concepts.interface import ConceptClass
from reticent.data.queries import Reader
from reticent.exact import integer, rational
from reticent.labellers import LabellerSpec
from reticent.learners.base import ConceptLearner
from reticent.noise import Noise
from reticent.predictors.admission import Admission
from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.engines import chain, votes
from reticent.predictors.engines.choice import engine_factory
from reticent.predictors.engines.engine import EngineFactory, EngineSettings, TruthFactory, takes_truth
from reticent.predictors.intake import RowLimits
from reticent.predictors.machine import PhaseMachine
from reticent.predictors.phases import Schedule, check_schedule
from reticent.predictors.truth import check_truth
from reticent.predictors.watch import QualityWatch, gauge_every
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, check_flag, float_above

Array = NDArray[Any]


def concepts_of(learner: object) -> ConceptClass[Any] | None:
    """The concept class that a learner learns, if it learns one."""
    if isinstance(learner, ConceptLearner):
        return learner.hypothesis_class()
    return learner if isinstance(learner, ConceptClass) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """What `fit` fixes for all phases of a predictor.

    Parameters
    ----------
    parameters : Mapping
        The parameters of the predictor, as they were when it was fitted.
    classes : array
        The labels, in the order of the class indices.
    columns : int
        The number of columns.
    names : list of str or None
        The names of the columns, if they have names.
    reader : Reader
        How queries are read.
    grouped : bool
        Whether groups are protected.
    """

    parameters: Mapping[str, Any]
    classes: Array
    columns: int
    names: list[str] | None
    reader: Reader
    grouped: bool


@dataclass(frozen=True, kw_only=True)
class CheckedParameters:
    """Parameters that `EverlastingPredictor` accepts, the schedule of its phases, and the class of its engines."""

    given: Mapping[str, Any]
    schedule: Schedule
    engines: type[EngineFactory]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Refuse bad parameters, by name; nothing is changed when the caller changes what it gave."""
        engines = engine_factory(given["engine"], given["learner"])
        check_epsilon(given["epsilon"])
        check_delta(given["delta"], positive=engines.needs_delta)
        integer(given["random_state"], "random_state", least=0)
        integer(given["client_phases"], "client_phases", least=1)
        integer(given["memory_limit"], "memory_limit", least=0)
        _spent(given.get("besides"))
        if not 0 < rational(given["client_share"], "client_share") <= 1:
            raise ValueError(f"client_share must be in (0, 1], got {given['client_share']}")
        if not float(rational(given["most_noise"], "most_noise")) > 0:
            raise ValueError(f"most_noise must be positive, got {given['most_noise']}")
        check_flag(given["background"], "background")
        if given["retrain"] not in get_args(chain.Retrain):
            raise ValueError(f"retrain must be 'drift', 'always' or 'never', got {given['retrain']!r}")
        votes.check_labeller_choice(given["labeller"], given["labeller_options"])
        truth, alarm = check_truth(given), given["alarm"]
        if not (alarm is None or isinstance(alarm, QualityAlarm)):
            raise TypeError(f"alarm must be None or a QualityAlarm, got {type(alarm).__name__}")
        if truth is not None and not takes_truth(engines):
            raise ValueError("truth needs an engine that learns from labels that arrive: 'chain' or 'votes'")
        if alarm is not None and not engines.learns_from_queries:
            raise ValueError("alarm must be None for engine='model': one model answers for ever, so test it once")
        gauge_every(truth, rational(given["gauge_share"], "gauge_share"), alarm)
        schedule = check_schedule(
            **{name: given[name] for name in ("growth", "held_back", "answers", "max_rows", "training_stream")},
            truth=truth,
        )
        kept = {**given, "labeller_options": dict(given["labeller_options"] or {}) or None}
        if isinstance(labeller := given["labeller"], LabellerSpec):
            kept |= {"labeller": labeller.kind, "labeller_options": dict(labeller.options) or None}
        return cls(given=kept, schedule=schedule, engines=engines)

    def factory(self, *, columns: int, classes: int, grouped: bool) -> EngineFactory:
        """What makes the engines, for rows of this shape."""
        given = self.given
        if grouped and self.schedule.trusted:
            raise ValueError("training_stream must be 'queries' with groups: rows of a stream name no group")
        return self.engines.from_settings(
            EngineSettings(
                learner=clone(given["learner"]) if isinstance(given["learner"], BaseEstimator) else given["learner"],
                classes=classes,
                columns=columns,
                epsilon=check_epsilon(given["epsilon"]),
                delta=check_delta(given["delta"]),
                grouped=grouped,
                trusted=self.schedule.trusted,
                truth=self.schedule.truth,
                keeps_models=given["alarm"] is not None,
                rows_per_teacher=given["rows_per_teacher"],
                labeller=given["labeller"],
                labeller_options=given["labeller_options"],
                most_noise=float(given["most_noise"]),
                retrain=given["retrain"],
                random_state=given["random_state"],
                n_jobs=given["n_jobs"],
            )
        )

    def machine(self, fitted: Fitted, factory: EngineFactory, unsafe_noise: Noise | None) -> PhaseMachine:
        """What runs the phases; its first phase is not open yet."""
        return PhaseMachine(
            schedule=self.resolved(factory),
            factory=factory,
            watch=self.watch(factory, len(fitted.classes), unsafe_noise),
            admission=Admission(
                client_share=rational(self.given["client_share"], "client_share"),
                client_phases=self.given["client_phases"],
                rows_per_group=factory.rows_per_group if fitted.grouped else None,
            ),
            limits=RowLimits(
                columns=fitted.columns,
                dtype=fitted.reader.dtype,
                classes=len(fitted.classes),
                memory_limit=self.given["memory_limit"],
                folder=self.given["folder"],
            ),
            unsafe_noise=unsafe_noise,
        )

    def resolved(self, factory: EngineFactory) -> Schedule:
        """The schedule, with the size of phases that the engine suggests."""
        truth = self.schedule.truth
        if truth is None or not isinstance(factory, TruthFactory):
            return self.schedule
        rows = truth.phase_rows or factory.phase_rows(self.schedule)
        return replace(self.schedule, truth=truth.resolved(rows, free_answers=factory.free_answers))

    def watch(self, factory: EngineFactory, classes: int, unsafe_noise: Noise | None) -> QualityWatch:
        """What judges the phases."""
        if self.kept_aside is not None and factory.closes_early:
            raise ValueError(
                "alarm needs truth with a labeller that closes phases early: rows that are asked in every phase would "
                "move each closing"
            )
        epsilon = factory.gauge_epsilon if isinstance(factory, TruthFactory) else check_epsilon(self.given["epsilon"])
        return QualityWatch(classes=classes, epsilon=epsilon, alarm=self.given["alarm"], unsafe_noise=unsafe_noise)

    @property
    def kept_aside(self) -> int | None:
        """One row in how many of day one is kept for tests of old rows; None for none."""
        share = rational(self.given["gauge_share"], "gauge_share")
        return gauge_every(self.schedule.truth, share, self.given["alarm"])

    def guarantee(self, *, grouped: bool, seeded: bool) -> Guarantee:
        """What is promised for all phases together."""
        learns = self.engines.learns_from_queries
        times = self.given["client_phases"] if grouped and learns else 1
        epsilon, delta = _spent(self.given.get("besides"))
        return Guarantee(
            epsilon=float_above(epsilon + times * check_epsilon(self.given["epsilon"])),
            delta=float_above(delta + times * check_delta(self.given["delta"])),
            unit="group" if grouped else "row",
            protects="rows and queries" if learns else "rows",
            seeded=seeded,
        )


def _spent(besides: Any) -> tuple[Fraction, Fraction]:
    """What training rows pay besides, as exact numbers; 0 and 0 for nothing."""
    if besides is None:
        return Fraction(0), Fraction(0)
    if not isinstance(besides, (tuple, list)) or len(besides) != 2:
        raise TypeError("besides must be None, or ε and δ as a tuple of two numbers")
    epsilon, delta = besides
    return check_epsilon(epsilon, "the ε of besides"), check_delta(delta)
