"""What an everlasting predictor does with a number of rows: its phases, their noise, and whether they go on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from reticent.concepts import Thresholds
from reticent.errors import InsufficientData
from reticent.exact import Number, integer
from reticent.labellers import LabellerSpec, TwoCoin
from reticent.labellers.answers import bought
from reticent.labellers.ballots import Ballots, Bought
from reticent.labellers.registry import LabellerLike
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.planned_phases import Everlasting, PlannedPhase, PlannedTruth
from reticent.predictors.engines import chain, model, votes
from reticent.predictors.phases import (
    MOST_NOISE,
    Phase,
    Schedule,
    check_schedule,
    epsilon_required,
    relative_noise,
)
from reticent.predictors.truth import check_truth
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_choice, check_delta, check_epsilon, check_positive, float_above
from reticent.promises import check_share

PlannedLearner = Literal["linear", "thresholds", "other", "private", "private-model"]

LOSS = 0.01  # the loss up to which answers of a two-coin labeller are counted


def everlasting(
    rows: int,
    features: int,
    *,
    epsilon: Number,
    delta: Number,
    classes: int = 2,
    answers: int | str = "endless",
    learner: PlannedLearner = "linear",
    growth: Number = 2,
    held_back: Number = 0.1,
    rows_per_teacher: int | str = "auto",
    labeller: LabellerLike = "auto",
    labeller_options: Mapping[str, Any] | None = None,
    most_noise: Number = MOST_NOISE,
    disagreement: Number = 0.1,
    phases: int = 8,
    max_rows: int | None = None,
    training_stream: str = "queries",
    truth: str | None = None,
    phase_rows: int | str = "auto",
    wait: int = 0,
    feedback_share: Number = 1,
    gauge_share: Number = 0.1,
    labels_per_day: Number | None = None,
) -> Everlasting:
    """Plan the phases of `EverlastingPredictor`: rows, teachers, noise, answers and labellers.

    The numbers are those of the predictor, by the same code: a fit with these rows has these phases, if every query
    that may be handed on to the next phase is handed on. Clients that ask too much hand on less.

    What answers lose to the noiseless majority is a guess: all teachers agree except on a share `disagreement` of the
    queries, where every lead is equally likely. The guess affects neither the guarantee nor whether `fit` accepts.

    Nothing here depends on private data, so nothing is spent.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, whose Algorithm GenericBBL fixes such numbers
    for every phase; these are of the phases of `EverlastingPredictor`.

    Parameters
    ----------
    rows : int
        Number of private rows.
    features : int
        Number of columns (features).
    epsilon : float or Fraction
        Privacy-loss bound ε of rows and queries.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded.
    classes : int, default 2
        Number of classes.
    answers : int or "endless", default "endless"
        How many queries to answer: a number, or "endless".
    learner : {"linear", "thresholds", "other", "private", "private-model"}, default "linear"
        What answers. Teachers vote with "linear", "thresholds" and "other", which means slower ones such as trees. With
        "private", one private model answers per phase. With "private-model", a single private model answers without
        end and never learns from queries.
    growth : float or Fraction, default 2
        Answers per phase, as a multiple of its rows.
    held_back : float or Fraction, default 0.1
        Share of the answers in a phase that no phase learns from.
    rows_per_teacher : int or "auto", default "auto"
        Rows per teacher. "auto" takes the number of columns, but at least 10 and at most 50.
    labeller : str, type or LabellerSpec, default "auto"
        How votes become private answers: "auto", "greedy", "poll", "two-coin", "gaussian", "bit", "gumbel" or "gnmax";
        in Python also a class or specification of a labeller.
    labeller_options : dict, optional
        Options of the labeller.
    most_noise : float or Fraction, default 0.25
        Noise, as a share of all votes, above which `fit` refuses.
    disagreement : float or Fraction, default 0.1
        Guessed share of queries on which teachers disagree.
    phases : int, default 8
        Most phases to list.
    max_rows : int, optional
        Most rows of a phase.
    training_stream : {"queries", "trusted"}, default "queries"
        Where the rows of later phases come from: "queries", or a "trusted" stream.
    truth : {None, "rows", "feedback", "both"}, default None
        Where labels come from after day one: new labelled rows, labels for queries that were answered, or both. None if
        phases learn from their own answers.
    phase_rows : int or "auto", default "auto"
        Labelled rows of a phase, or queries of a phase that have a slot for a label.
    wait : int, default 0
        Queries after its window during which a phase takes feedback.
    feedback_share : float or Fraction, default 1
        Share of queries that is expected to get a label.
    gauge_share : float or Fraction, default 0.1
        Share of labelled rows that judge a phase and do not train.
    labels_per_day : float or Fraction, optional
        How many labelled rows (with feedback: queries) arrive per day, to say how often a phase begins.

    Returns
    -------
    Everlasting

    Examples
    --------
    >>> plan = everlasting(20_000, 20, epsilon=1, delta=1e-6)
    >>> plan.sustained, plan.phases, plan.finite < plan.rows < plan.rows_required
    (False, (), True)
    >>> plan = everlasting(plan.rows_required, 20, epsilon=1, delta=1e-6)
    >>> plan.sustained, plan.phases[0].teachers * 20 == plan.rows, plan.phases[1].noise < plan.phases[0].noise
    (True, True, True)
    """
    count, columns = integer(rows, "rows", least=1), integer(features, "features", least=1)
    listed, kinds = integer(phases, "phases", least=1), integer(classes, "classes", least=2)
    private = learner in ("private", "private-model")
    exact_epsilon, exact_delta = check_epsilon(epsilon), check_delta(delta, positive=not private)
    check_share(disagreement, "disagreement")
    later = check_truth(
        {
            "truth": truth, "phase_rows": phase_rows, "wait": wait, "feedback_share": feedback_share, "silence": "drop",
            "gauge_share": gauge_share, "training_stream": training_stream, "retrain": "drift", "max_rows": max_rows,
        }
    )  # fmt: skip
    if labels_per_day is not None and later is None:
        raise ValueError("labels_per_day needs truth: without it phases learn from their own answers")
    schedule = check_schedule(
        growth=growth,
        held_back=held_back,
        answers=answers,
        max_rows=max_rows,
        training_stream=training_stream,
        truth=later,
    )
    check_choice(learner, "learner", get_args(PlannedLearner))
    if learner == "private-model" and schedule.trusted:
        raise ValueError("training_stream must be 'queries' for a single private model, which learns from `fit` alone")
    votes.check_labeller_choice(labeller, labeller_options)
    noisiest = float(check_positive(most_noise, "most_noise"))
    common: dict[str, Any] = {
        "classes": kinds, "columns": columns, "epsilon": exact_epsilon, "delta": exact_delta
    }  # fmt: skip
    promise = Guarantee(
        epsilon=float_above(exact_epsilon),
        delta=float_above(exact_delta),
        protects="rows" if learner == "private-model" else "rows and queries",
    )
    known: dict[str, Any] = {"rows": count, "features": columns, "learner": learner, "guarantee": promise}
    per_day = None if labels_per_day is None else float(check_positive(labels_per_day, "labels_per_day"))
    if private:
        any_learner = ThresholdLearner(bits=1, epsilon=1)  # the phases do not depend on which
        settings = {**common, "learner": any_learner, "classes": 2}
        if learner == "private-model" and later is not None:
            raise ValueError("truth needs phases: learner must be 'private' or one of teachers, got 'private-model'")
        if later is not None:  # here the size of a phase is that of a linear model
            linear = PrivateLogisticRegression(epsilon=exact_epsilon, delta=exact_delta, row_norm=1)
            factory = chain.ChainFactory(**{**common, "learner": linear}, truth=later)
            found = _chain(factory, with_truth(schedule, factory), min(listed, 3), known)
            return replace(found, truth=planned_truth(factory, schedule, per_day))
        if learner == "private":
            return _chain(chain.ChainFactory(**settings), schedule, listed, known)
        return _single_model(model.ModelFactory(**settings), schedule, known)
    recipe = votes.VotesFactory(
        learner={"linear": None, "thresholds": Thresholds(), "other": DecisionTreeClassifier()}[learner],
        rows_per_teacher=votes.rows_for_a_teacher(rows_per_teacher, columns),
        labeller=labeller,
        labeller_options=labeller_options,
        most_noise=noisiest,
        **common,
    )
    if later is not None:
        found = _votes(recipe, with_truth(schedule, recipe), listed, disagreement, known)
        return replace(found, truth=planned_truth(recipe, schedule, per_day))
    return _votes(recipe, schedule, listed, disagreement, known)


def with_truth(schedule: Schedule, factory: chain.ChainFactory | votes.VotesFactory) -> Schedule:
    """The schedule with the size of a phase that the predictor would choose."""
    assert schedule.truth is not None
    rows = schedule.truth.phase_rows or factory.phase_rows(schedule)
    return replace(schedule, truth=schedule.truth.resolved(rows, free_answers=factory.free_answers))


def planned_truth(
    factory: chain.ChainFactory | votes.VotesFactory, schedule: Schedule, labels_per_day: float | None
) -> PlannedTruth:
    """What a phase needs of later labels, by the predictor's own rules."""
    truth = with_truth(schedule, factory).truth
    assert truth is not None
    return PlannedTruth(
        source=truth.source,
        phase_rows=truth.rows,
        gauge_rows=truth.gauge_rows,
        fewest=factory.fewest_labels(),
        labels_per_day=labels_per_day,
        wait=truth.wait,
    )


def follow(recipe: votes.VotesFactory, schedule: Schedule, rows: int, listed: int) -> tuple[list[Phase], Phase, bool]:
    """Follow the phases as the predictor makes them.

    Parameters
    ----------
    recipe : VotesFactory
        Decides which phases are accepted.
    schedule : Schedule
        The sizes of phases.
    rows : int
        Rows of the first phase.
    listed : int
        Most phases to return.

    Returns
    -------
    tuple of list of Phase, Phase and bool
        The first phases that are accepted, the last one that was considered, and whether none was refused.
    """
    accepted: list[Phase] = []
    phase = schedule.phase(1, rows, 0)
    for phase in schedule.phases(rows):
        try:
            filled = recipe.complete(phase, phase.rows, schedule)
        except InsufficientData:
            return accepted, phase, False
        if len(accepted) < listed:
            accepted.append(filled)
        no_smaller = phase.handed_on >= phase.rows or phase.handed_on == schedule.max_rows  # nor any later phase
        no_smaller |= schedule.truth is not None
        if (len(accepted) >= listed and no_smaller) or phase.number >= votes.FURTHEST_PHASE:
            break
    return accepted, phase, True


def _votes(
    recipe: votes.VotesFactory, schedule: Schedule, listed: int, disagreement: Number, known: dict[str, Any]
) -> Everlasting:
    """Plan for teachers that vote, by the predictor's own steps from phase to phase."""
    rows: int = known["rows"]
    budget: dict[str, Any] = {"classes": recipe.classes, "delta": recipe.delta}
    accepted, phase, sustained = follow(recipe, schedule, rows, listed)
    first = schedule.phase(1, rows, 0)
    most = max(1, min(rows // recipe.rows_per_teacher, rows))
    one = relative_noise(most, 1, epsilon=recipe.epsilon, **budget)
    finite = math.floor((recipe.most_noise / one) ** 2)
    if not sustained and phase.number == 1:
        why = (
            f"{most:,} teachers of {recipe.rows_per_teacher} rows cannot give {first.answers:,} answers with noise of "
            f"at most {recipe.most_noise:g} of all votes. The rows needed grow with the square of the rows per "
            "teacher and of 1/ε. A private learner needs far fewer rows, if one suits the data."
        )
    elif not sustained:
        why = (
            f"Phase {phase.number} would have {phase.rows:,} rows only: phases that shrink, or are limited by "
            "max_rows, run out of teachers. Increase growth or max_rows."
        )
    elif schedule.truth is not None:
        why = "A phase begins when its labels are there and the answers of the one before are used up."
    elif schedule.horizon is None:
        why = "Every phase hands on enough rows for the next, so answers never end and noise does not grow."
        if schedule.max_rows is not None and phase.handed_on == schedule.max_rows:
            why = "Phases do not grow beyond max_rows: answers never end, but errors of teachers add up over phases."
    else:
        why = "All requested answers are given."
    worst = None
    if recipe.closes_early and accepted:
        worst = recipe.closings(schedule, rows, split=True, listed=listed)
        if sustained and recipe.closings(schedule, rows, split=False).ends:
            sustained = False
            why = (
                "Even if all teachers agree, a later phase has too few rows for its labeller, whose budget is smaller "
                "than that of the first. Take more rows, a smaller steepness or another labeller."
            )
        elif sustained and worst.ends:
            why = "Whether answers end depends on how often teachers disagree, which is not known beforehand."
    return Everlasting(
        **known,
        phases=tuple(_planned(recipe, one, disagreement) for one in accepted),
        sustained=sustained,
        rows_required=recipe.rows_required(schedule),
        epsilon_required=epsilon_required(most, first.answers, most_noise=recipe.most_noise, **budget),
        finite=finite if finite and not (sustained and schedule.horizon is None) else None,
        two_coin=_two_coin(recipe, most, first.answers, disagreement),
        why=why,
        worst=worst,
        disagreement_at_most=None if worst is None else _disagreement_at_most(recipe, schedule, accepted[0]),
    )


def _planned(recipe: votes.VotesFactory, phase: Phase, disagreement: Number) -> PlannedPhase:
    spec, budget = recipe.chosen(phase)
    options = {**budget, **spec.options} if spec.kind.query_share is not None else spec.options
    noise = relative_noise(
        phase.teachers, phase.answers, classes=recipe.classes, epsilon=recipe.epsilon, delta=recipe.delta
    )
    return PlannedPhase(
        number=phase.number,
        rows=phase.rows,
        teachers=phase.teachers,
        answers=phase.answers,
        queries=phase.queries,
        handed_on=phase.handed_on,
        noise=noise,
        labeller=spec.kind.name,
        options={key: float(value) if isinstance(value, Fraction) else value for key, value in options.items()},
        loss=_loss(recipe, spec, budget, phase, disagreement),
    )


def _loss(
    recipe: votes.VotesFactory, spec: LabellerSpec, budget: dict[str, Fraction], phase: Phase, disagreement: Number
) -> float:
    """Return what answers are guessed to lose. Fewer teachers with the same relative noise stand for many."""
    ballots = Ballots.guess(phase.teachers, classes=recipe.classes, disagreement=disagreement)
    answers = phase.answers
    if spec.kind.scales:
        ballots, factor = ballots.coarse()
        answers = max(1, round(answers / factor**2))
    made = spec.make(
        teachers=ballots.teachers,
        classes=recipe.classes,
        answers=answers,
        epsilon=budget["epsilon"],
        delta=budget["delta"],
    )
    each = [
        made.accuracy(ballots.counts[one : one + 1], ballots.truth[one : one + 1]) for one in range(len(ballots.truth))
    ]
    return max(0.0, ballots.loss(each))


def _two_coin(recipe: votes.VotesFactory, teachers: int, answers: int, disagreement: Number) -> Bought | None:
    """Return what a two-coin labeller gives in a first phase, if that is more and the plan is not for one."""
    if recipe.closes_early:
        return None
    ballots = Ballots.guess(teachers, classes=recipe.classes, disagreement=disagreement)
    found = bought(TwoCoin, ballots, epsilon=recipe.epsilon, delta=recipe.delta, loss=LOSS, exact=False)
    return found if found.answers > answers else None


def _disagreement_at_most(recipe: votes.VotesFactory, schedule: Schedule, first: Phase) -> float | None:
    """Return the share of disputed queries up to which a phase hands on as many rows as it has.

    Every lead is equally likely in a disputed query. The budget is that of a second phase and of all later ones. None
    if such a phase would be refused.
    """
    try:
        labeller = recipe.make_labeller(replace(first, number=2), None)
    except votes.NoLabeller:
        return None
    if not isinstance(labeller, TwoCoin) or labeller.closing is None:
        return None
    shape: dict[str, Any] = {"teachers": first.teachers, "classes": recipe.classes}
    agreed, disputed = (
        float(labeller.expected_hits(Ballots.guess(**shape, margins=leads).counts).mean())
        for leads in ([1.0], (np.arange(200) + 0.5) / 200)
    )
    affordable = (labeller.hits - labeller.closing.margin) / first.rows
    return min(1.0, max(0.0, (affordable - agreed) / (disputed - agreed)))


def _chain(recipe: chain.ChainFactory, schedule: Schedule, listed: int, known: dict[str, Any]) -> Everlasting:
    """Plan for one model per phase. Its answers cost nothing, so only a first phase of very few rows is refused."""
    accepted: list[PlannedPhase] = []
    rows: int = known["rows"]
    for phase in schedule.phases(rows):
        if rows < recipe.fewest or len(accepted) == listed:
            break
        accepted.append(_phase_of_model(phase))
    remark = "The next phase trains a new one only if queries drift."
    if recipe.truth is not None:
        remark = "Every phase trains a new one on true labels, and starts from the one before."
    return _without_teachers(accepted, known, rows_required=recipe.fewest, remark=remark)


def _single_model(factory: model.ModelFactory, schedule: Schedule, known: dict[str, Any]) -> Everlasting:
    """Plan for a single phase, which hands on nothing."""
    rows: int = known["rows"]
    only = factory.complete(schedule.phase(1, rows, 0), rows, schedule)
    remark = "It never learns from queries, so it does not follow a drift."
    return _without_teachers([_phase_of_model(only)], known, rows_required=1, remark=remark)


def _without_teachers(
    phases: list[PlannedPhase], known: dict[str, Any], *, rows_required: int, remark: str
) -> Everlasting:
    return Everlasting(
        **known,
        phases=tuple(phases),
        sustained=bool(phases),
        rows_required=rows_required,
        epsilon_required=known["guarantee"].epsilon,
        finite=None,
        two_coin=None,
        why="Answers of a private model cost nothing. Its accuracy depends on the number of rows: see "
        "PrivateLogisticRegression.n_required. "
        + remark,
    )


def _phase_of_model(phase: Phase) -> PlannedPhase:
    return PlannedPhase(
        number=phase.number,
        rows=phase.rows,
        teachers=0,
        answers=phase.answers,
        queries=phase.queries,
        handed_on=phase.handed_on,
        noise=0.0,
        labeller="model",
    )
