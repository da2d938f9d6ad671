"""Every engine passes the conformance test, and engines that break the contract are rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Thresholds
from reticent.data.rows import Rows
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.noise import Noise
from reticent.predictors.engines import (
    ChainFactory,
    Engine,
    EngineFactory,
    EngineSettings,
    ModelEngine,
    ModelFactory,
    VotesEngine,
    VotesFactory,
    check,
    check_engine,
)
from reticent.predictors.phases import Phase, check_schedule
from reticent.privacy.events import Event, PureDP

Array = NDArray[Any]
LINE = np.random.default_rng(0).random((4000, 1))
WHOLE = (1024 * LINE).astype(np.int64)
LOGISTIC = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=2)


def settings(learner: Any, **options: Any) -> EngineSettings:
    given: dict[str, Any] = {"epsilon": Fraction(8), "delta": Fraction(1, 10**5), "classes": 2, "columns": 1}
    return EngineSettings(learner=learner, **given | options)


def rows(X: Array) -> Rows:
    return Rows(X, (X[:, 0] < np.median(X)).astype(np.int64))


VOTES = settings(Thresholds())
MODEL = settings(ThresholdLearner(bits=10, epsilon=1))
CASES: list[Any] = [
    (VotesFactory, VOTES, LINE),
    (VotesFactory, settings(Thresholds(), labeller="two-coin"), LINE),
    (VotesFactory, settings(Thresholds(), labeller="poll", labeller_options={"poll": 11}), LINE),
    pytest.param(
        VotesFactory,
        settings(None, classes=3, epsilon=Fraction(50), most_noise=1.0),
        LINE[:600],
        marks=pytest.mark.slow,
    ),
    (VotesFactory, settings(DecisionTreeClassifier(max_depth=1), rows_per_teacher=50, most_noise=1.0), LINE),
    *[(ChainFactory, settings(LOGISTIC, retrain=retrain), LINE) for retrain in ("drift", "always", "never")],
    (ChainFactory, MODEL, WHOLE),
    (ModelFactory, MODEL, WHOLE),
    (ModelFactory, settings(LOGISTIC), LINE),
    (ModelFactory, settings(LOGISTIC, classes=3), LINE),
]


@pytest.mark.slow
@pytest.mark.parametrize(("engines", "given", "X"), CASES)
def test_every_engine_passes(engines: Any, given: EngineSettings, X: Array) -> None:
    check_engine(engines, given, rows(X), X[:500])


@pytest.mark.slow
def test_groups_pass() -> None:
    grouped = rows(LINE)._replace(groups=np.arange(len(LINE)) // 2)
    for engines, given in ((VotesFactory, settings(Thresholds(), grouped=True)), (ModelFactory, settings(LOGISTIC))):
        check_engine(engines, given, grouped, LINE[:500])


def test_a_horizon_passes() -> None:
    schedule = check_schedule(growth=2, held_back=0.1, answers=500, max_rows=None, training_stream="queries")
    check_engine(ModelFactory, MODEL, rows(WHOLE), WHOLE[:500], schedule=schedule)


# ── twins ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def model_twin(engine: type[ModelEngine], factory: type[ModelFactory] = ModelFactory) -> type[ModelFactory]:
    """The model engine with another class of engines."""

    class Twin(factory):  # type: ignore[misc, valid-type]
        def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ModelEngine:
            return engine(super().first(phase, rows, unsafe_noise).model)

        def restore(self, *given: Any, **options: Any) -> ModelEngine:
            return engine(super().restore(*given, **options).model)

    return Twin


class Contrary(ModelEngine):
    """Answers the other class."""

    def label(self, X: Array) -> Array:
        return 1 - super().label(X)


class ContraryOnceRestored(ModelFactory):
    """Answers the other class after it was saved and restored."""

    def restore(self, *given: Any, **options: Any) -> ModelEngine:
        self.__dict__["restored"] = self.__dict__.get("restored", 0) + 1
        return (Contrary if self.__dict__["restored"] % 2 else ModelEngine)(super().restore(*given, **options).model)


class Remembers(ModelEngine):
    """Answers by the query before."""

    last: Array | None = None

    def label(self, X: Array) -> Array:
        before = X[:1] if self.last is None else self.last
        self.last = X[-1:].copy() if len(X) else before
        return super().label(np.concatenate([before, X]))[:-1] if len(X) else super().label(X)


class Centres(ModelEngine):
    """Answers by the mean of all queries of a call."""

    def label(self, X: Array) -> Array:
        return super().label(np.full_like(X, X.mean() if len(X) else 0))


class Overspends(ModelEngine):
    """Costs more than it was allowed."""

    @property
    def event(self) -> Event:
        return PureDP(Fraction(100))


class Counts(ModelEngine):
    """Keeps what it was asked, though it says that it does not learn from queries."""

    def progress(self) -> Any:
        return {"asked": 1}


class Warns(ModelEngine):
    """Warns of some queries."""

    def label(self, X: Array) -> Array:
        _ = np.full(len(X), 1e300) * 1e300
        return super().label(X)


class Restarts(ModelEngine):
    """Has a next phase, though it does not learn from queries."""

    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ModelEngine:
        return self


class Gathers(ModelFactory):
    """Gathers rows of queries, though it says that it does not learn from them."""

    def complete(self, phase: Phase, units: int, schedule: Any) -> Phase:
        return phase


class Hoards(VotesEngine):
    """Keeps the rows of its phase, and hands them to the next engine."""

    kept: Any = None


class HoardsFactory(VotesFactory):
    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> VotesEngine:
        engine = Hoards(self, phase, self.train(phase, rows), self.make_labeller(phase, unsafe_noise))
        engine.kept = KEPT.setdefault(phase.number, rows.X)
        return engine


KEPT: dict[int, Array] = {}


class LearnsFromAll(VotesEngine):
    """Adds the queries that it was asked to the rows of the next phase, those that were not handed on too."""

    def label(self, X: Array) -> Array:
        found = super().label(X)
        self.seen = X[: len(found)]
        return found

    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> VotesEngine:
        flipped = rows.class_indices if getattr(self, "seen", None) is None else 1 - rows.class_indices
        return super().next(phase, rows._replace(class_indices=flipped), unsafe_noise)


class LearnsFromAllFactory(VotesFactory):
    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> VotesEngine:
        return LearnsFromAll(self, phase, self.train(phase, rows), self.make_labeller(phase, unsafe_noise))

    def restore(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], phase: Phase, *, trust_models: bool = False
    ) -> VotesEngine:
        found = super().restore(header, arrays, phase, trust_models=trust_models)
        return LearnsFromAll(self, phase, found.teachers, found.labeller)


TWINS: list[tuple[Callable[[], Any], EngineSettings, Array, str]] = [
    (lambda: ContraryOnceRestored, MODEL, WHOLE, "alike"),
    (lambda: model_twin(Remembers), MODEL, WHOLE, "alike"),
    (lambda: model_twin(Centres), MODEL, WHOLE, "alike"),
    (lambda: model_twin(Overspends), MODEL, WHOLE, "event must be within"),
    (lambda: model_twin(Counts), MODEL, WHOLE, "must store nothing"),
    (lambda: model_twin(Restarts), MODEL, WHOLE, "one phase"),
    (lambda: Gathers, MODEL, WHOLE, "must hand on no rows"),
    (lambda: HoardsFactory, VOTES, LINE, "must not be referred to"),
    (lambda: LearnsFromAllFactory, VOTES, LINE, "not on what else was asked"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "given", "X", "why"), TWINS, ids=[one[3] for one in TWINS])
def test_twins_are_rejected(make: Callable[[], Any], given: EngineSettings, X: Array, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_engine(make(), given, rows(X), X[:500])


def test_a_warning_about_a_query_is_an_output() -> None:
    with pytest.raises(RuntimeWarning):
        check_engine(model_twin(Warns), MODEL, rows(WHOLE), WHOLE[:500])


def without(name: str, base: type) -> type:
    """A class like `base` that lacks one member."""

    def missing(self: object) -> Any:
        raise AttributeError(name)

    return type(base.__name__, (base,), {name: property(missing)})


@pytest.mark.parametrize("name", check.FACTORY_MEMBERS)
def test_a_missing_member_of_a_factory_is_named(name: str) -> None:
    with pytest.raises(AssertionError, match=f"^ModelFactory lacks {name}, a member of EngineFactory$"):
        check_engine(without(name, ModelFactory), MODEL, rows(WHOLE), WHOLE[:500])


def test_a_class_that_is_no_factory_is_rejected() -> None:
    with pytest.raises(AssertionError, match=r"^object lacks from_settings, a member of EngineFactory$"):
        check_engine(object, MODEL, rows(WHOLE), WHOLE[:500])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", check.ENGINE_MEMBERS)
def test_a_missing_member_of_an_engine_is_named(name: str) -> None:
    with pytest.raises(AssertionError, match=f"^ModelEngine lacks {name}, a member of Engine$"):
        check_engine(model_twin(without(name, ModelEngine)), MODEL, rows(WHOLE), WHOLE[:500])


def test_the_names_of_members_are_those_of_the_protocols() -> None:
    def members(protocol: type) -> set[str]:
        return {name for name in {*vars(protocol), *protocol.__annotations__} if not name.startswith("_")}

    assert members(EngineFactory) == {"from_settings", *check.FACTORY_MEMBERS}
    assert members(Engine) == set(check.ENGINE_MEMBERS)
