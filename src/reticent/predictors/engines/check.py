"""The conformance test of engines: run it on an engine of your own."""

from __future__ import annotations

import gc
import json
import math
import warnings
import weakref
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from reticent import noise
from reticent.data.rows import Rows
from reticent.predictors.engines.engine import (
    Array,
    Engine,
    EngineFactory,
    EngineSettings,
    EngineState,
    Integers,
    NoPhase,
)
from reticent.predictors.phases import Phase, Schedule, check_schedule
from reticent.predictors.state_file import STORED_KINDS
from reticent.privacy import fits
from reticent.privacy.events import Event

SURE = 1e-9  # the probability with which one comparison of frequencies rejects two engines that answer alike
POINTS = 4  # of the queries are asked many times
FLAGS = ("learns_from_queries", "free_answers", "needs_delta", "closes_early")
FACTORY_MEMBERS = (*FLAGS, "rows_per_group", "complete", "ending", "first", "restore")
ENGINE_MEMBERS = ("event", "one_answer", "drift", "label", "next", "state", "progress", "resume")


def check_engine(
    engines: type[EngineFactory],
    settings: EngineSettings,
    rows: Rows,
    queries: Array,
    *,
    schedule: Schedule | None = None,
) -> None:
    """Raise `AssertionError` if engines break the contract of `Engine` and `EngineFactory` if that can be observed.

    It checks that no member is missing; types and shapes; that events keep to (ε, δ); that a restored engine answers
    alike; that an answer does not depend on earlier queries or on the other queries of a call; that the next engine
    depends on its rows and on what was released, and lets go of the rows before; and that no query makes it warn. Where
    answers are random, their frequencies are compared. It cannot prove privacy: for exact laws see
    `reticent.audit.everlasting_game`.

    Parameters
    ----------
    engines : type of EngineFactory
        The class that makes the engines.
    settings : EngineSettings
        Settings that it accepts.
    rows : Rows
        Training rows, with their class indices. Take a few thousand, so that frequencies tell something.
    queries : array of shape (n, columns)
        Queries of the same type as the rows, at least two of them different.
    schedule : Schedule or None, default None
        The schedule of the phases; None for that of an `EverlastingPredictor` with its defaults.

    >>> from fractions import Fraction
    >>> from reticent.learners import ThresholdLearner
    >>> from reticent.predictors.engines.model import ModelFactory
    >>> X = np.arange(2000)[:, None] % 1000
    >>> settings = EngineSettings(
    ...     learner=ThresholdLearner(bits=10, epsilon=1), classes=2, columns=1, epsilon=Fraction(1), delta=Fraction(0)
    ... )
    >>> check_engine(ModelFactory, settings, Rows(X, (X[:, 0] < 400).astype(int)), X[:100])
    """
    schedule = schedule or check_schedule(
        growth=2, held_back=0.1, answers="endless", max_rows=None, training_stream="queries"
    )
    _check_members(engines, ("from_settings",), "EngineFactory")
    factory = engines.from_settings(settings)
    _check_members(factory, FACTORY_MEMBERS, "EngineFactory")
    points = np.unique(queries, axis=0)[:: max(1, len(np.unique(queries, axis=0)) // POINTS)][:POINTS]
    _require(len(points) >= 2, "queries must have at least two different rows")
    phase = _checked_phase(factory, schedule.phase(1, len(rows.X), 0), schedule)
    rows = Rows(rows.X.copy(), rows.class_indices.copy(), rows.groups)
    watched = weakref.ref(rows.X)
    engine = factory.first(phase, rows, None)
    _check_public(engine, settings)
    _check_labels(engine, queries[: max(1, _budget(phase) // 10)], settings.classes)
    first = _Restorer(factory, phase, engine.state())
    first.check(engine)
    _check_alike(first, points, settings.classes)
    if not factory.learns_from_queries:
        _check_one_phase(engine, phase, rows)
        return
    following = _check_next(first, settings, schedule, queries)
    del engine, rows
    gc.collect()
    _require(watched() is None, "the rows of a phase must not be referred to once the next phase has begun")
    _check_labels(following, queries[:10], settings.classes)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _check_members(found: object, names: tuple[str, ...], protocol: str) -> None:
    """Whether an object has all members of a protocol."""
    owner = found.__name__ if isinstance(found, type) else type(found).__name__
    for name in names:
        _require(hasattr(found, name), f"{owner} lacks {name}, a member of {protocol}")


def _budget(phase: Phase) -> int:
    """How many answers one engine is asked for, at most: a part of what the phase gives."""
    return max(1, min(phase.queries, 20_000) // 4)


# ── public numbers ────────────────────────────────────────────────────────────────────────────────────────────────


def _checked_phase(factory: EngineFactory, planned: Phase, schedule: Schedule) -> Phase:
    for name in FLAGS:
        _require(isinstance(getattr(factory, name), bool), f"{name} must be True or False")
    _require(factory.rows_per_group >= 1, "rows_per_group must be at least 1")
    phase, again = (factory.complete(planned, planned.rows, schedule) for _ in range(2))
    _require(phase == again, "complete must be a function of public numbers")
    _require((phase.number, phase.rows) == (planned.number, planned.rows), "complete must leave number and rows")
    _require(phase.answers >= 1, "a phase must give at least one answer")
    if factory.learns_from_queries:
        _require(phase.handed_on <= planned.handed_on, "complete must not hand on more rows than the schedule")
    else:
        _require(phase.handed_on == 0, "an engine that does not learn from queries must hand on no rows")
    ending = factory.ending(schedule, planned.rows)
    _require(ending is None or isinstance(ending, str), "ending must return None or a warning")
    return phase


def _check_public(engine: Engine, settings: EngineSettings) -> None:
    _check_members(engine, ENGINE_MEMBERS, "Engine")
    _require(isinstance(engine.event, Event), "event must be an Event")
    within = fits(engine.event, epsilon=settings.epsilon, delta=settings.delta)
    _require(within, f"event must be within epsilon={settings.epsilon}, delta={settings.delta}")
    one = engine.one_answer
    _require(one is None or 0 <= one < settings.classes, "one_answer must be None or a class index")
    _require(engine.drift in ("not tested", "none found", "found"), f"drift must be a verdict, got {engine.drift!r}")


def _check_labels(engine: Engine, queries: Array, classes: int) -> None:
    asked = queries.copy()
    asked.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning would reveal something about a query
        found = engine.label(asked)
    _require(found.dtype == np.int64 and found.ndim == 1, "label must return a vector of int64")
    _require(len(found) <= len(asked), "label must give at most one label per query")
    _require(not len(found) or 0 <= found.min() <= found.max() < classes, "label must give class indices")
    if len(found) < len(asked):
        _require(len(engine.label(asked)) == 0, "a phase that closed must stay closed")


# ── saving and restoring ──────────────────────────────────────────────────────────────────────────────────────────


class _Restorer:
    """A saved state, from which any number of engines can be made that answer alike."""

    def __init__(self, factory: EngineFactory, phase: Phase, state: EngineState) -> None:
        header, self.arrays = state
        for name, array in self.arrays.items():
            _require(np.asarray(array).dtype.kind in STORED_KINDS, f"the array {name!r} must hold plain values")
        try:
            self.header = json.loads(json.dumps(header, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise AssertionError(f"the header of a state must be JSON: {error}") from None
        self.factory, self.phase = factory, phase

    def engine(self) -> Engine:
        """Another engine."""
        return self.factory.restore(self.header, self.arrays, self.phase, trust_models=True)

    def check(self, original: Engine) -> None:
        """Whether a restored engine is the original."""
        restored = self.engine()
        for name in ("event", "one_answer", "drift"):
            _require(getattr(restored, name) == getattr(original, name), f"a restored engine must keep its {name}")
        same = _same_state(restored.state(), (self.header, self.arrays))
        _require(same, "a restored engine must have the same state")
        progress = json.loads(json.dumps(original.progress()))
        restored.resume(progress)
        _require(restored.progress() == original.progress(), "resume must restore the progress")


def _same_state(first: EngineState, second: EngineState) -> bool:
    headers = [json.loads(json.dumps(header)) for header, _ in (first, second)]
    return headers[0] == headers[1] and _same_arrays(first[1], second[1])


def _same_arrays(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


# ── answers that depend on their own query alone ──────────────────────────────────────────────────────────────────


def _check_alike(restorer: _Restorer, points: Array, classes: int) -> None:
    """Engines of one state that are asked different things first, or in another order, must answer alike."""
    repeats = max(1, _budget(restorer.phase) // (2 * len(points)))
    mixed = np.repeat(points, repeats, axis=0)
    order = np.random.default_rng(0).permutation(len(mixed))

    def asked(first: Array | None, parts: list[Array]) -> Array:
        """How often each point gets each class, after these first queries."""
        engine = restorer.engine()
        if first is not None:
            engine.label(np.repeat(first, _budget(restorer.phase) // 2, axis=0))
        found = [(part, engine.label(part)) for part in parts]
        return np.array([_counts(point, found, classes) for point in points])

    whole = [mixed[order]]
    one_by_one = np.split(mixed, len(points))
    views = {
        "whatever was asked before": [asked(first, whole) for first in (None, points[:1], points[-1:])],
        "whatever else is asked in the same call": [asked(None, parts) for parts in (whole, one_by_one)],
        "after it was restored": [asked(None, whole), asked(None, whole)],
    }
    for condition, tables in views.items():
        for first, second in pairwise(tables):
            _require(_alike(first, second), f"a query must be answered alike, {condition}")


def _counts(point: Array, found: list[tuple[Array, Integers]], classes: int) -> Integers:
    labels = [given[(part[: len(given)] == point).all(axis=1)] for part, given in found]
    return np.bincount(np.concatenate(labels), minlength=classes)


def _alike(first: Integers, second: Integers) -> bool:
    """Whether two tables of counts may have one law, by Hoeffding's inequality; equal if neither is random."""
    for ours, theirs in zip(first, second, strict=True):
        sizes = ours.sum(), theirs.sum()
        if min(sizes) == 0:
            continue
        width = math.sqrt(math.log(2 * first.size / SURE) / 2 * (1 / sizes[0] + 1 / sizes[1]))
        if np.abs(ours / sizes[0] - theirs / sizes[1]).max() > width:
            return False
    return True


# ── the next phase ────────────────────────────────────────────────────────────────────────────────────────────────


def _check_one_phase(engine: Engine, phase: Phase, rows: Rows) -> None:
    _require(engine.progress() is None, "an engine that does not learn from queries must store nothing of them")
    try:
        engine.next(phase, rows, None)
    except NoPhase:
        return
    raise AssertionError("an engine that does not learn from queries has one phase: next must raise NoPhase")


def _check_next(restorer: _Restorer, settings: EngineSettings, schedule: Schedule, queries: Array) -> Engine:
    """Two engines that were asked different things, and get the same rows, must make the same next engine."""
    factory, phase = restorer.factory, restorer.phase
    asked = np.resize(queries, (max(1, phase.handed_on), queries.shape[1]))
    engines = [restorer.engine() for _ in range(2)]
    given = engines[0].label(asked)
    rows = Rows(asked[: len(given)], given, np.arange(len(given)) if settings.grouped else None)
    planned = schedule.phase(2, len(given), len(given))
    following = factory.complete(planned, len(given), schedule)
    made = [one.next(following, rows, noise.Seeded(unsafe_seed=1)) for one in engines]
    _require(
        _same_state(made[0].state(), made[1].state()),
        "the next engine must depend on its rows and on what was released, not on what else was asked",
    )
    engine = engines[0].next(following, rows, None)
    _check_public(engine, settings)
    _Restorer(factory, following, engine.state()).check(engine)
    return engine
