"""One guard for all that must not be used twice; a walk over every class of the package finds those that lack it."""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import inspect
import io
import json
import os
import pickle
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import joblib
import msgspec
import numpy as np
import pytest
from forks import RECIPES, X, Y, whole_state
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression

import experiments
import reticent
import warm
from reticent import PATEClassifier, Teachers, labellers
from reticent.concepts import Thresholds
from reticent.errors import BudgetExhausted
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.mechanisms import AboveThreshold, StableMajority
from reticent.noise import Noise
from reticent.predictors import EverlastingPredictor, StablePredictor
from reticent.privacy import guard
from reticent.privacy.guard import Guarded
from reticent.sanitizers import PointSanitizer, ThresholdSanitizer
from waiting import Crowd

# ── every class of the package ────────────────────────────────────────────────────────────────────────────────────

# Public classes that need no guard, by the reason. A class that is new belongs in `forks.RECIPES`, if using it once
# may make a second use cost more, or if a copy of it would draw the same noise; and else here.
UNGUARDED = {
    "a base of classes that are listed by themselves": [
        "concepts.domains.Domain", "concepts.interface.ColumnDichotomies", "concepts.interface.ConceptClass",
        "concepts.interface.Dichotomies", "concepts.order.LineDichotomies", "concepts.order.Ordered",
        "concepts.order.OrderedDichotomies", "labellers.abstaining.AbstainingLabeller", "labellers.base.Labeller",
        "labellers.base.PollingLabeller", "labellers.noisy.NoisyWinner",
        "learners.base.ConceptLearner", "learners.base.PartlyLabelled", "learners.label_private.NetLearner",
        "mechanisms.above_threshold.Segments", "predictors.engines.private_model.ModelAnswers",
        "predictors.running.RunningPredictor",
        "predictors.state.ResumablePredictor", "privacy.guard.Guarded", "sanitizers.base.Sanitizer",
    ],
    "a concept, or labellings of points: a function, which counts nothing and draws nothing": [
        "concepts.finite.Finite", "concepts.halfspaces.Arrangement", "concepts.interface.Listed",
        "concepts.order.Line", "concepts.values.Concept",
    ],
    "made of public numbers": [
        "noise.tables.Table", "predictors.bbl_schedules.Calibrated", "predictors.bbl_schedules.Printed",
        "privacy.losses.Composition", "service.clock.Clock",
    ],
    "released by `fit`, once: what comes after is post-processing, at no cost": [
        "data.private_schema.PrivateSchema", "learners.pipeline.PrivatePipeline",
        "learners.active.ActiveLearner", "learners.charged.Charged", "learners.comparison.PrivateComparison",
        "learners.exponential.ExponentialLearner", "learners.label_boost.LabelBoost",
        "learners.label_private.LabelPrivateLearner", "learners.label_private.SemiPrivateLearner",
        "learners.logistic.PrivateLogisticRegression", "learners.points.PointLearner",
        "learners.rectangles.RectangleLearner", "learners.sanitized.SanitizedLearner",
        "learners.semi_supervised.SemiSupervisedLearner", "learners.thresholds.ThresholdLearner",
        "predictors.stable.StablePredictor", "sanitizers.nets.NetSanitizer", "sanitizers.nets.QueryNet",
        "sanitizers.points.PointSanitizer",
        "sanitizers.thresholds.ThresholdSanitizer", "teachers.pate.PATEClassifier",
        "teachers.students.Constant", "teachers.students.NoiseAware", "teachers.students.VotingStudents",
    ],
    "not private at all, and says so: it has no budget; whoever makes its votes private has": [
        "teachers.linear.LogisticTeacher", "teachers.linear_voters.LinearVoters", "teachers.models.ModelVoters",
        "teachers.queries.Ridge", "teachers.queries.Transcript", "teachers.space.PublicSpace",
        "teachers.teachers.Teachers", "teachers.thresholds.ConceptTeacher", "teachers.thresholds.ThresholdVoters",
        "teachers.trees.CutVoters", "teachers.trees.TreeVoters",
    ],
    "a number of workers: it keeps nothing between two calls": [
        "data.executor.JoblibExecutor", "data.executor.ThreadExecutor",
    ],
    "the guard itself, which refuses to be copied": ["privacy.guard.Guard"],
    "keeps no bits between two draws; `tests/noise/test_sources.py` forks it": ["noise.samplers.Noise"],
    "for tests, and loudly: it protects nobody": ["noise.samplers.Seeded"],
    "part of a guarded predictor or store, which checks before it gets here": [
        "predictors.admission.Admission", "predictors.bbl_running.RunningPhases",
        "predictors.engines.chain.ChainEngine", "predictors.engines.model.ModelEngine",
        "predictors.engines.votes.VotesEngine", "predictors.machine.PhaseMachine", "data.rows.StoredColumn",
        "predictors.alarms.OldRowsTest", "predictors.intake.OwnAnswers", "predictors.later_labels.LaterLabels",
        "predictors.places.Places", "predictors.places.Slots", "predictors.watch.QualityWatch",
        "service.store.slots.SlotIndex", "service.store.witness.Witness",
    ],
    "holds a guarded service, predictor or store and counts nothing of privacy itself": [
        "cli.answer_file.AnswerFile", "service.http.answer_log.AnswerLogView", "service.http.batching.Batcher",
        "service.http.bodies.BodyReader", "service.http.routes.Endpoint", "service.http.server.Server",
        "service.http.service.Service", "service.http.service.StatusStream", "service.learning.PhaseLearner",
        "service.metrics.Metrics", "service.requests.Batch", "service.requests.PendingRequest",
        "service.http.labels.LabelRoutes", "service.labels.LabelReceiver", "service.status.StatusReporter",
    ],
    "limits of a client, not of privacy: the answering service counts what is spent": [
        "service.http.access.Allowance", "service.http.access.Keyring",
    ],
    "starts a process, or keeps its folder; neither holds a budget": [
        "service.process_executor.ProcessExecutor", "service.processes.Child", "service.processes.Folder",
    ],
    "asks a server, which counts": [
        "service.client.AsyncClient", "service.client.Client", "service.client_base.Attempts",
        "service.client_base.ServiceClient", "service.client_connection.Connection", "cli.sent_rows.SentRows",
    ],
    "tells others of an alarm, which is public": ["service.alarm_hook.AlarmHook"],
    "rows of the demo, which are made up, and its page": ["cli.clinic_months.Months", "cli.clinic_page.Page"],
    "writes the lines of the log": ["service.traces.LocationFormatter"],
    "reads a table": [
        "cli.private_schema.TableSource", "data.frames.Columns", "data.private_schema.FrameSource",
        "service.tables.Arrow", "service.tables.Csv", "service.tables.Parquet", "service.csv_blocks.BlockReader",
        "cli.taught_table.TaughtTable",
    ],
    "used once by a command, which has charged the data set for it": ["cli.private_schema.SchemaPurchase"],
    "a broken twin, or a model of a store, for tests: it protects nobody": [
        "audit.twins.Lengthless", "audit.twins.Stale", "audit.twins.UpperFollows", "audit.twins.Weaker",
        "audit.twins.Wrapped", "service.store.conformance_model.Model",
    ],
    "attacks or measures on made-up rows": [
        "audit.extraction.AccuracyBoost", "audit.extraction.HypothesisLearner", "audit.game_rounds.GameSteps",
        "audit.predictor_states.PredictorStates",
        "experiments.everlasting_streams.Checkers", "experiments.everlasting_streams.Recorded",
        "experiments.everlasting_streams.Retrained", "experiments.everlasting_streams.UntilSpent",
        "experiments.inference.Majority", "experiments.linear_models.OnePass", "experiments.tracing.Walk",
    ],
}  # fmt: skip


def classes_of_the_package() -> Iterator[type]:
    for module in chain(
        pkgutil.walk_packages(reticent.__path__, "reticent."),
        pkgutil.walk_packages(experiments.__path__, "experiments."),
    ):
        if module.name.rpartition(".")[2] != "__main__":
            yield from classes_of(importlib.import_module(module.name))


def classes_of(module: Any) -> Iterator[type]:
    for found in vars(module).values():
        if inspect.isclass(found) and found.__module__ == module.__name__:
            yield found


def cannot_change(kind: type) -> bool:
    """Values: exceptions, tuples, protocols, and records whose fields cannot be set."""
    if issubclass(kind, (BaseException, tuple, enum.Enum)) or getattr(kind, "_is_protocol", False):
        return True
    if issubclass(kind, msgspec.Struct):
        return True
    return dataclasses.is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def short(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}".removeprefix("reticent.")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One of everything that is guarded."""
    folder = tmp_path_factory.mktemp("made")
    things: dict[str, Any] = {}
    for number, (name, recipe) in enumerate(RECIPES.items()):
        (place := folder / str(number)).mkdir()
        things[name] = recipe.make(place)
    yield things
    for thing in things.values():
        if hasattr(thing, "close"):
            thing.close()


def unknown(kinds: Iterator[type], guarded: set[type]) -> list[str]:
    """Public classes that are neither guarded, nor listed with a reason, nor values."""
    known = {name for names in UNGUARDED.values() for name in names}
    return [
        short(kind)
        for kind in kinds
        if not kind.__name__.startswith("_")
        and not cannot_change(kind)
        and kind not in guarded
        and short(kind) not in known
    ]


def test_every_class_is_guarded_or_listed_with_a_reason(made: dict[str, Any]) -> None:
    guarded = {type(thing) for thing in made.values()}
    assert all(issubclass(kind, Guarded) for kind in guarded)
    assert unknown(classes_of_the_package(), guarded) == []


def test_the_list_has_no_class_that_is_gone_or_guarded(made: dict[str, Any]) -> None:
    listed = [name for names in UNGUARDED.values() for name in names]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= {short(kind) for kind in classes_of_the_package()}
    assert not set(listed) & {short(type(thing)) for thing in made.values()}


def test_every_guarded_class_is_tried(made: dict[str, Any]) -> None:
    bases = set(UNGUARDED["a base of classes that are listed by themselves"])
    every = {kind for kind in classes_of_the_package() if issubclass(kind, Guarded) and short(kind) not in bases}
    assert every == {type(thing) for thing in made.values()}


class Counter:
    """A twin: a budget that nobody guards."""

    def __init__(self) -> None:
        self.left = 3

    def ask(self) -> None:
        self.left -= 1


def test_a_new_class_in_neither_list_is_found(made: dict[str, Any]) -> None:
    guarded = {type(thing) for thing in made.values()}
    assert unknown(iter([Counter, AboveThreshold]), guarded) == [short(Counter)]
    assert unknown(iter([Counter, AboveThreshold]), guarded - {AboveThreshold}) == [
        short(Counter),
        "mechanisms.above_threshold.AboveThreshold",
    ]


# ── every method of what is guarded ───────────────────────────────────────────────────────────────────────────────


def methods(kind: type) -> set[str]:
    """Public methods and properties that the package defines."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("reticent.") or base is kind:
            found |= {
                name
                for name, value in vars(base).items()
                if not name.startswith("_") and (callable(value) or isinstance(value, (property, classmethod)))
            }
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_is_checked_or_open(name: str, made: dict[str, Any]) -> None:
    recipe = RECIPES[name]
    assert methods(type(made[name])) == {*recipe.uses, *recipe.open}
    assert not set(recipe.uses) & set(recipe.open)


def test_a_new_method_is_found(made: dict[str, Any]) -> None:
    class Talkative(AboveThreshold):
        def ask_quietly(self, value: int) -> bool:
            return self.threshold <= value

    assert methods(Talkative) - {*RECIPES["AboveThreshold"].uses, *RECIPES["AboveThreshold"].open} == {"ask_quietly"}


# ── what `fit` has released may be used again and again ───────────────────────────────────────────────────────────

GRID = np.arange(400)[:, None] % 16
RELEASED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "ThresholdLearner": (
        lambda: ThresholdLearner(bits=4, epsilon=4).fit(GRID, GRID[:, 0] < 7),
        lambda model: model.predict(GRID),
    ),
    "PrivateLogisticRegression": (
        lambda: PrivateLogisticRegression(epsilon=4, delta=1e-6, row_norm=1).fit(X, Y),
        lambda model: (model.predict(X), model.predict_proba(X)),
    ),
    "StablePredictor": (
        lambda: StablePredictor(Thresholds(), stability=0.1).fit(X, Y),
        lambda model: model.predict(X),
    ),
    "PATEClassifier": (
        lambda: PATEClassifier(n_teachers=100, classes=(0, 1), epsilon=4, delta=1e-6).fit(X, Y, public=X[:200]),
        lambda model: model.predict(X),
    ),
    "Teachers": (
        lambda: Teachers(LogisticRegression(), shards=20, classes=(0, 1)).fit(X, Y),
        lambda model: model.votes(X[:50]),
    ),
    "PointSanitizer": (
        lambda: PointSanitizer(bits=4, epsilon=4, delta=1e-6).fit(GRID[:, 0]),
        lambda model: model.sample(10),
    ),
    "ThresholdSanitizer": (
        lambda: ThresholdSanitizer(bits=4, epsilon=4).fit(GRID[:, 0]),
        lambda model: model.sample(10),
    ),
}


def uses_change(make: Callable[[], Any], use: Callable[[Any], Any]) -> bool:
    """Whether a second use changes what a thing holds; the first one may fill a cache."""
    thing = make()
    use(thing)
    before = whole_state(thing)
    use(thing)
    return whole_state(thing) != before


@pytest.mark.filterwarnings("ignore::reticent.errors.OneAnswerWarning")
@pytest.mark.parametrize("name", RELEASED)
def test_using_what_was_released_changes_nothing(name: str) -> None:
    assert not uses_change(*RELEASED[name])


def test_using_a_budget_changes_it() -> None:
    assert uses_change(Counter, Counter.ask)
    assert uses_change(lambda: AboveThreshold(0, epsilon=1, halts=2), lambda above: above.ask(10**6))


# ── copies and pickles ────────────────────────────────────────────────────────────────────────────────────────────

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of a list": lambda thing: copy.deepcopy([thing]),
    "deepcopy of the attributes": lambda thing: copy.deepcopy(vars(thing)),
    "joblib": lambda thing: joblib.dump(thing, io.BytesIO()),
    "joblib hash": joblib.hash,
    "__reduce_ex__": lambda thing: thing.__reduce_ex__(4),
    **{f"pickle {one}": partial(pickle.dumps, protocol=one) for one in range(pickle.HIGHEST_PROTOCOL + 1)},
    **({"replace": vars(copy)["replace"]} if "replace" in vars(copy) else {}),
}


def copied(thing: Any) -> list[str]:
    """The ways in which a thing could be copied, or failed in another way than by being refused."""
    found = []
    for name, way in COPIES.items():
        try:
            way(thing)
        except (TypeError, pickle.PicklingError) as error:
            if name != "replace" and "cannot be copied or pickled" not in str(error):
                found.append(f"{name}: {error}")
        else:
            found.append(name)
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_guarded_can_be_copied(name: str, made: dict[str, Any]) -> None:
    assert copied(made[name]) == []


def test_the_unguarded_twin_can_be_copied() -> None:
    assert len(copied(Counter())) >= len(COPIES) - 1


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if "fit" in recipe.open])
def test_estimators_are_cloned_and_unfitted_ones_copied(name: str, made: dict[str, Any]) -> None:
    estimator: BaseEstimator = made[name]
    unfitted = clone(estimator)
    assert not hasattr(unfitted, "guarantee_")
    for again in (copy.copy(unfitted), copy.deepcopy(unfitted), pickle.loads(pickle.dumps(unfitted)), clone(unfitted)):
        assert repr(again.get_params()) == repr(estimator.get_params())


def test_a_failed_fit_leaves_an_estimator_that_can_be_pickled() -> None:
    model = EverlastingPredictor(Thresholds(), epsilon=8, delta=1e-5, classes=(0, 1), folder="/nowhere/to/be/found")
    with pytest.raises(ValueError, match="folder"):
        model.fit(X, Y)
    pickle.dumps(clone(model))


# ── forks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def tried(folder: Path, *arguments: str) -> dict[str, dict[str, list[str]]]:
    """What `forks.py` found, in a process of its own: a fork beside the threads of others is not safe."""
    script = Path(__file__).with_name("forks.py")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    run = warm.run(str(script), str(folder), *arguments, environment=os.environ | {"PYTHONPATH": path})
    assert run.returncode == 0, run.stderr
    return dict(json.loads(line) for line in run.stdout.splitlines())


@needs_fork
@pytest.mark.slow
def test_forked_processes_are_refused_before_anything_is_spent_and_the_parent_goes_on(tmp_path: Path) -> None:
    found = tried(tmp_path)
    assert set(found) == set(RECIPES)
    wrong = {(name, way): what for name, ways in found.items() for way, what in ways.items() if what}
    assert wrong == {}


@needs_fork
@pytest.mark.slow
def test_a_guard_that_sees_no_fork_is_found_out(tmp_path: Path) -> None:
    found = tried(tmp_path, "--blind")
    assert set(found) == set(RECIPES)
    for name, recipe in RECIPES.items():
        allowed = found[name]["child"]
        assert all(any(one.startswith(use) for one in allowed) for use in recipe.uses), name
        assert not recipe.counts or any("changed something" in one for one in allowed), name


def test_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    monkeypatch.setattr(guard, "_forks", guard._forks + 1)
    for name, advice in {
        "AboveThreshold": "Make it in the process that uses it",
        "PrivatePredictor": "Fit it in the process that uses it",
        "EverlastingPredictor": "Save it, load it in the process that continues",
        "Ledger": "Open a ledger in the process that uses it",
        "AnsweringService": "Open the folder in the process that answers",
    }.items():
        use, data = next(iter(RECIPES[name].uses.values()))
        with pytest.raises(RuntimeError, match=f"^{name} cannot be used in a forked process.*{advice}"):
            use(made[name], data)
    assert "of another process" in repr(made["Ledger"])


# ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Meeting(Noise):
    """Noise that is drawn when all threads have come to draw it, or wait for the lock."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd, self.maker = crowd, threading.get_ident()

    def random_bytes(self, count: int) -> bytes:
        if threading.get_ident() != self.maker:
            self.crowd.meet()
        return super().random_bytes(count)


# Each has one answer left, and counts it after the draw.
LAST: dict[str, tuple[Callable[[Noise], Any], Callable[[Any], Any]]] = {
    "AboveThreshold": (
        lambda noise: AboveThreshold(0, epsilon=1, halts=1, unsafe_noise=noise),
        lambda above: above.ask(10**6),
    ),
    "StableMajority": (
        lambda noise: StableMajority(epsilon=1, delta=1e-6, halts=1, unsafe_noise=noise),
        lambda votes: votes.ask(500, 1000),
    ),
    "Greedy": (
        lambda noise: labellers.Greedy(teachers=100, epsilon=1, delta=1e-6, answers=1, unsafe_noise=noise),
        lambda labeller: labeller.label([[50, 50]]),
    ),
    "Gumbel": (
        lambda noise: labellers.Gumbel(teachers=100, epsilon=1, delta=1e-6, answers=1, unsafe_noise=noise),
        lambda labeller: labeller.label([[50, 50]]),
    ),
    "Poll": (
        lambda noise: labellers.Poll(teachers=100, epsilon=4, delta=1e-6, answers=1, unsafe_noise=noise),
        lambda labeller: labeller.label_polls([[1] * 7]),
    ),
}


def answered_by_threads(name: str, *, locked: bool) -> int:
    crowd = Crowd(4)
    make, use = LAST[name]
    thing = make(Meeting(crowd))
    counting = thing._screen if name == "StableMajority" else thing
    counting._guard._lock = crowd.lock() if locked else nullcontext()

    def answered() -> bool:
        try:
            use(thing)
        except BudgetExhausted:
            return False
        return True

    return sum(crowd.run(answered))


@pytest.mark.parametrize("name", LAST)
def test_threads_share_the_last_answer(name: str) -> None:
    assert answered_by_threads(name, locked=True) == 1
    assert answered_by_threads(name, locked=False) == 4, "the twin: all of them, at one moment"
