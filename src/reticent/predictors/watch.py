"""Watching quality from phase to phase: the gauge on fresh rows, the test on old rows, alarms and what follows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from reticent.data.groups import first_of_each
from reticent.data.rows import Rows
from reticent.mechanisms.exponential import exponential
from reticent.noise import Noise
from reticent.predictors.alarms import OldRowsTest, QualityAlarm, RaisedAlarm
from reticent.predictors.engines.engine import Engine
from reticent.predictors.gauge import Quality, quality_from_json, quality_of, release_confusion
from reticent.predictors.intake import GaugeRows
from reticent.predictors.phases import Phase
from reticent.predictors.truth import Truth
from reticent.privacy.events import Event, event_from_json

Array = NDArray[Any]

KEPT = 1000  # qualities that are kept, the last ones


@runtime_checkable
class PastModels(Protocol):
    """An engine whose models are released, so that older ones may answer again."""

    @property
    def models(self) -> tuple[tuple[int, Any], ...]:
        """The last models, each with the phase that it was trained in."""

    def answered_by(self, index: int) -> Engine:
        """The engine with one of `models` answering. It still learns from the last one."""

    def frozen_at(self, phase: int) -> Engine:
        """The engine with the last model that answered in this phase or before; it learns no more."""


class QualityWatch:
    """Judges each phase when it ends. Everything it shows is released and paid for.

    Guarantee. For a replaced row that judges (with groups: for a group, of which one row judges), (ε, 0)-differential
    privacy: a row is read by one release of counts, by one choice among models, or by the tests of one block of old
    rows. Alarms are functions of these.

    Why. Rows that judge train nothing, and the models and teachers that they judge do not depend on them. The proof is
    in docs/predictors/truth.md.

    Parameters
    ----------
    classes : int
        The number of classes.
    epsilon : Fraction
        Privacy-loss bound ε of a row that judges.
    alarm : QualityAlarm or None
        When to raise an alarm.
    unsafe_noise : Noise or None
        For tests only.

    Attributes
    ----------
    qualities, alarms : list
        What was released of the last phases, and the alarms that were raised.
    since : int or None
        The phase that raised the alarm that stands; None if none does.
    event : Event or None
        What the rows paid that judged the last phase; in the first phase, what the block of old rows pays.
    refusal : str or None
        Why no next phase may begin; None if one may.
    """

    def __init__(
        self, *, classes: int, epsilon: Fraction, alarm: QualityAlarm | None, unsafe_noise: Noise | None
    ) -> None:
        self._classes, self._epsilon, self._alarm, self._noise = classes, epsilon, alarm, unsafe_noise
        self.qualities: list[Quality] = []
        self.alarms: list[RaisedAlarm] = []
        self.since: int | None = None
        self.event: Event | None = None
        self.refusal: str | None = None
        self._fresh = 0  # qualities since the last choice among models
        self._choosing = False
        self._passed = 1  # the last phase that passed the test on old rows
        self._test: OldRowsTest | None = None

    def keep_aside(self, rows: Rows, every: int) -> Rows:
        """Keep one row in `every` (with groups: the first row of one group in `every`) for tests; return the others."""
        if self._alarm is None:
            return rows
        units = np.arange(len(rows.X)) if rows.groups is None else rows.groups
        aside = units % every == 0
        block = first_of_each(units)
        block = block[aside[block]]
        self._test = self._make_test(rows.X[block], rows.class_indices[block].astype(np.int64))
        self.event = self._test.event
        groups = None if rows.groups is None else rows.groups[~aside]
        return Rows(rows.X[~aside], rows.class_indices[~aside], groups)

    def _make_test(self, X: Array, labels: NDArray[np.int64]) -> OldRowsTest:
        assert self._alarm is not None
        return OldRowsTest(
            X, labels, self._alarm, classes=self._classes, epsilon=self._epsilon, unsafe_noise=self._noise
        )

    @property
    def reserved(self) -> int:
        """How many answers of each phase the test on old rows takes."""
        return 0 if self._test is None else len(self._test.X)

    def judge(self, phase: Phase, engine: Engine, following: Engine, gauge: GaugeRows | None, answered: int) -> Engine:
        """Judge a phase that ends; return the engine of the next one, which an alarm may change.

        `engine` answered in the phase, `following` has learned for the next one.
        """
        self.event = None
        if self._test is not None:
            return self._test_old_rows(phase, engine, following, answered)
        if gauge is None or not len(gauge.X):
            return following
        if self._choosing and isinstance(following, PastModels):
            self._choosing = False
            return self._chosen(following, gauge)
        answers = gauge.answers.copy()
        ask = np.flatnonzero(answers < 0)
        if len(ask):
            found = engine.label(gauge.X[ask])
            if len(found) < len(ask):  # a labeller has closed the phase: it is not judged
                return following
            answers[ask] = found
        counts, self.event = release_confusion(
            gauge.labels, answers, classes=self._classes, epsilon=self._epsilon, unsafe_noise=self._noise
        )
        found_quality = quality_of(
            counts, phase=phase.number, rows=len(gauge.X), epsilon=self._epsilon, all_labelled=gauge.all_labelled
        )
        self.qualities = [*self.qualities, found_quality][-KEPT:]
        self._fresh += 1
        self._look(phase.number, answered, following)
        return following

    def _look(self, phase: int, answered: int, following: Engine) -> None:
        """Raise an alarm, or end it, by released counts alone."""
        if self._alarm is None:
            return
        recent = self.qualities[-self._fresh :]
        if self._alarm.raised(recent):
            if self.since is None:
                self.since = phase
                self.alarms.append(RaisedAlarm(phase, answered))
            self._choosing, self._fresh = isinstance(following, PastModels), 0
        elif len([one for one in recent if one.right is not None]) >= 3:
            self.since = None

    def _chosen(self, following: PastModels, gauge: GaugeRows) -> Engine:
        """The model that is right on most of the rows, chosen privately: their whole ε goes into the choice."""
        scores = []
        for index in range(len(following.models)):
            labels = following.answered_by(index).label(gauge.X)
            scores.append(int((labels == gauge.labels).sum()))
        index, self.event = exponential(scores, epsilon=self._epsilon, unsafe_noise=self._noise)
        return following.answered_by(index)

    def _test_old_rows(self, phase: Phase, engine: Engine, following: Engine, answered: int) -> Engine:
        assert self._test is not None
        answers = engine.label(self._test.X)
        if len(answers) < len(self._test.X):
            return following
        if not self._test.lost(answers):
            self._passed = phase.number
            return following
        self._test = None  # its rows are spent
        self.since = phase.number
        self.alarms.append(RaisedAlarm(phase.number, answered))
        if isinstance(following, PastModels):
            return following.frozen_at(self._passed)
        self.refusal = (
            f"quality fell below what was declared in phase {phase.number}, so no phase learns from these answers: fit "
            "again with newer labelled rows"
        )
        return following

    def retire_test(self) -> None:
        """Test the old rows no more: a copy of this state may have tested them with the same noise."""
        self._test = None

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What was released, and the block of old rows with its secret noise; nothing if nothing is watched."""
        if not (self.qualities or self.alarms or self._test or self.event or self._choosing):
            return {}, {}
        header = {
            "qualities": [dataclasses.asdict(one) for one in self.qualities],
            "alarms": [dataclasses.asdict(one) for one in self.alarms],
            "since": self.since,
            "event": None if self.event is None else self.event.to_json(),
            "refusal": self.refusal,
            "fresh": self._fresh,
            "choosing": self._choosing,
            "passed": self._passed,
            "test": None if self._test is None else self._test.state(),
        }
        block = {} if self._test is None else {"watch/X": self._test.X, "watch/labels": self._test.labels}
        return {"watch": header}, block

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Continue from what `state` returned."""
        if (noted := state.get("watch")) is None:
            return
        self.qualities = [quality_from_json(one) for one in noted["qualities"]]
        self.alarms = [RaisedAlarm(**one) for one in noted["alarms"]]
        self.since, self.refusal = noted["since"], noted["refusal"]
        self.event = None if noted["event"] is None else event_from_json(noted["event"])
        self._fresh, self._choosing, self._passed = noted["fresh"], noted["choosing"], noted["passed"]
        if noted["test"] is not None:
            self._test = self._make_test(np.array(arrays["watch/X"]), np.array(arrays["watch/labels"]))
            self._test.resume(noted["test"])


def gauge_every(truth: Truth | None, gauge_share: Fraction, alarm: QualityAlarm | None) -> int | None:
    """One row in how many of day one is kept aside for tests; None where later labels come, or without an alarm."""
    if alarm is None:
        return None
    if gauge_share == 0:
        raise ValueError("gauge_share must be positive with alarm: without rows that judge, none can be raised")
    return None if truth is not None else round(1 / gauge_share)
