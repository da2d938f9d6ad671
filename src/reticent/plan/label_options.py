"""The options that learn from labels that come later: how often a phase begins, and what it is expected to lose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from reticent.concepts import Floats
from reticent.errors import InsufficientData
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.phase_rules import phase_rows
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan import expectations
from reticent.plan.everlasting import follow, with_truth
from reticent.plan.expectations import FOURIER
from reticent.plan.options import LABEL_OPTIONS, NO_LABELS, LearningTask, Option, written
from reticent.predictors.phases import MOST_NOISE, Phase, Schedule, check_schedule, relative_noise
from reticent.predictors.truth import DEFAULTS, check_truth

CHAIN, VOTES = LABEL_OPTIONS
SPARE = Fraction(11, 10)  # answers of teachers, in units of those until the next labels are expected
TRAINS = 0.9  # the share of labels that train; the others judge
ROUNDS = 20  # of looking for answers that last as long as labels take


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often phases begin, in queries.

    Parameters
    ----------
    labels : int
        Labels of a phase.
    period : float
        Queries from one phase to the next.
    first : float
        Queries that the model of day one answers.
    age : float
        How long ago, on average, the labels were asked for that an answer is learned from.
    """

    labels: int
    period: float
    first: float
    age: float


def pace(task: LearningTask, labels: int) -> Pace:
    """How often a phase of this many labels begins.

    A label comes `label_delay` queries after its own. Labels of a phase are from as many queries as they come with, and
    its answers are given while those of the next phase come: on average the two are a period apart.
    """
    asked = labels / float(task.later_labels)
    if task.labels_by == "rows":
        return Pace(labels=labels, period=asked, first=asked + task.label_delay, age=asked + task.label_delay)
    period = asked + task.label_delay  # slots stay open for so long
    return Pace(labels=labels, period=period, first=period, age=period + task.label_delay)


def chain_with_labels(task: LearningTask) -> Option:
    """One private model per phase, which learns from true labels and starts from the last one."""
    if not task.later_labels:
        return task.refused(CHAIN, _chain(task, ', truth="rows"'), NO_LABELS)
    enough = phase_rows(_learner(task), task.features, task.classes)
    labels = _labels(task, enough)
    found = pace(task, labels)
    noise, loss = task.model(max(1, math.floor(labels * TRAINS)))
    if not task.thresholds:
        loss -= (1 - expectations.WARM) * min(expectations.HALF, expectations.DROWNED * noise)
    size = "" if labels == enough else f", phase_rows={math.ceil(labels / _share(task))}"
    why = (
        f"one private model per phase of {labels:,} labels, which come with about {found.period:,.0f} queries; it "
        f"starts from the last model{_lateness(task, found)}"
    )
    phases = [_phase(1, task.rows, found.first), *(_phase(number, labels, found.period) for number in (2, 3))]
    estimator = _chain(task, f"{_source(task)}{size}")
    return task.option(CHAIN, _over_time(task, loss, found), noise, estimator, why, phases=phases)


def votes_with_labels(task: LearningTask) -> Option:
    """Teachers that learn again from true labels in every phase, if there are rows and labels enough."""
    if not task.later_labels:
        return task.refused(VOTES, task.voters(', truth="rows"'), NO_LABELS)
    growth, schedule = _answers_until_labels(task)
    estimator = task.voters(f"{_source(task)}, growth={written(growth)}")
    if schedule is None:
        return task.refused(VOTES, estimator, "answers would run out before the labels of the next phase have come")
    try:
        phases, last, sustained = follow(task.recipe, schedule, task.rows, 3)
    except ValueError:  # no query would get a slot
        return task.refused(VOTES, estimator, "labels come too late: slots would stay open for longer than a phase")
    if not sustained:
        return task.refused(VOTES, estimator, _shortage(task, schedule, last))
    assert schedule.truth is not None
    found = pace(task, math.ceil(schedule.truth.rows * _share(task)))
    noise = max(relative_noise(each.teachers, each.answers, **task.size) for each in phases)
    loss = expectations.votes(noise, disputed=task.disputed, black_box=task.black_box)
    why = (
        f"{phases[0].teachers:,} teachers of {task.recipe.rows_per_teacher} rows vote on every query; a phase of "
        f"{found.labels:,} labels begins after about {found.period:,.0f} queries, or with turn_over() once they are "
        f"there{_lateness(task, found)}"
    )
    total = _over_time(task, loss, found)
    return task.option(VOTES, total, noise, estimator, why, phases=phases, teachers=phases[0].teachers)


def _lateness(task: LearningTask, found: Pace) -> str:
    """What to know if labels come later than a phase."""
    if task.drift == "none" or task.label_delay <= found.labels / float(task.later_labels):
        return ""
    return "; labels come late: of a change that goes back before they come, it learns what is over"


def _labels(task: LearningTask, enough: int) -> int:
    """The labels of a phase: fewer if they take long to come, and as many as rows if nothing drifts."""
    if task.drift == "none":
        return max(enough, task.rows)
    if task.thresholds:
        return enough
    noise = task.model(max(1, math.floor(enough * TRAINS))).noise
    per_label = 1 / float(task.later_labels)
    return expectations.labels_of_a_phase(
        enough, noise, drift=task.drift, queries_per_label=per_label, rows=task.rows
    )


def _over_time(task: LearningTask, loss: float, found: Pace) -> float:
    """The loss of all answers, if those after the first phase lose this much by noise."""
    first = found.first if task.answers is None else min(task.answers, found.first)
    early = 0.0 if task.answers is None else first / task.answers
    before = task.model(task.rows).loss + expectations.outdated(task.drift, first / task.rows)
    after = loss + expectations.behind(task.drift, found.age / task.rows)
    upkeep = expectations.UPKEEP if task.drift == "none" else 0.0
    return early * before + (1 - early) * after + upkeep


def _answers_until_labels(task: LearningTask) -> tuple[Fraction, Schedule | None]:
    """Answers per row that last until the labels of the next phase have come, and the schedule; None if none do."""
    per_row = SPARE / task.later_labels if task.labels_by == "rows" else Fraction(1 if task.label_delay == 0 else 2)
    growth = per_row
    for _ in range(ROUNDS):
        growth = _rounded(growth)
        if growth > 1000:
            break
        schedule = _schedule(task, growth)
        assert schedule.truth is not None
        if task.labels_by == "feedback":
            return growth, schedule
        until = SPARE * (schedule.truth.rows / task.later_labels + task.label_delay) / task.rows
        if until <= growth:
            return growth, schedule
        growth = until
    return _rounded(per_row), None


def _rounded(growth: Fraction) -> Fraction:
    """A number to copy, not smaller than this one."""
    return Fraction(math.ceil(growth * 100), 100)


def _schedule(task: LearningTask, growth: Fraction) -> Schedule:
    fed = task.labels_by == "feedback"
    given: dict[str, Any] = {
        **DEFAULTS, "training_stream": "queries", "retrain": "drift", "max_rows": None, "truth": task.labels_by,
        **({"wait": task.label_delay, "feedback_share": task.later_labels} if fed else {}),
    }  # fmt: skip
    schedule = check_schedule(
        growth=growth, held_back=0, answers="endless", max_rows=None, training_stream="queries",
        truth=check_truth(given),
    )  # fmt: skip
    return with_truth(schedule, task.recipe)


def _shortage(task: LearningTask, schedule: Schedule, phase: Phase) -> str:
    try:
        task.recipe.complete(phase, phase.rows, schedule)
    except InsufficientData as error:
        return f"the noise would exceed {MOST_NOISE:g} of all votes; at least {error.required:,} rows are needed"
    return "a later phase would have too few labels"


def _share(task: LearningTask) -> Fraction:
    """Labels for each labelled row, or slot, of a phase."""
    return task.later_labels if task.labels_by == "feedback" else Fraction(1)


def _phase(number: int, rows: int, queries: float) -> Phase:
    return Phase(number=number, rows=rows, answers=math.ceil(queries), window=0)


def _source(task: LearningTask) -> str:
    """The arguments that say where labels come from."""
    if task.labels_by == "rows":
        return ', truth="rows"'
    share = "" if task.later_labels == 1 else f", feedback_share={written(task.later_labels)}"
    return f', truth="feedback"{share}' + (f", wait={task.label_delay}" if task.label_delay else "")


def _chain(task: LearningTask, arguments: str) -> str:
    return f"EverlastingPredictor({task.learner}, {task.budget}, classes=…{arguments})"


def _learner(task: LearningTask) -> Any:
    """The private learner, by public numbers."""
    budget: dict[str, Any] = {"epsilon": task.epsilon, "delta": task.delta}
    if task.thresholds:
        domain: dict[str, Any] = {"domain": Floats()} if task.bits is None else {"bits": task.bits}
        return ThresholdLearner(**domain, **budget)
    return PrivateLogisticRegression(**budget, row_norm=1, fourier_features=FOURIER if task.black_box else None)
