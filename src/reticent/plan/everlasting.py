"""What an everlasting predictor would do with this many rows: its phases, their noise, and whether they go on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from reticent.learners.thresholds import ThresholdLearner
from reticent.predictors.engines import chain, model, votes
from reticent.predictors.phases import (
    MOST_NOISE,
    NO_END,
    Phase,
    Schedule,
    check_schedule,
    epsilon_required,
    relative_noise,
    rows_required,
)
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive, float_above
from reticent.promises import check_share

Learner = Literal["linear", "thresholds", "other", "private", "private-model"]

LOSS = 0.01  # at which the answers of a two-coin labeller are counted


@dataclass(frozen=True, kw_only=True)
class PlannedPhase:
    """A phase as it will be, and what its answers are guessed to lose to the noiseless majority of its teachers."""

    number: int
    rows: int
    teachers: int
    answers: int
    queries: int
    handed_on: int
    noise: float  # as a share of all votes
    labeller: str
    options: dict[str, Any] = field(default_factory=dict)
    loss: float = 0.0

    @property
    def endless(self) -> bool:
        """Whether the phase never ends."""
        return self.answers == NO_END


@dataclass(frozen=True, kw_only=True)
class Everlasting:
    """The phases of an everlasting predictor, whether they go on as long as was asked for, and what else would do.

    `rows_required` are the rows with which `fit` accepts the first phase, and `epsilon_required` the ε at which it
    accepts it with the rows there are. `finite` is the most answers that these rows give in one phase, and then no
    more; `two_coin` is what a two-coin labeller is expected to give in a first phase where teachers agree as guessed,
    if these are more answers than those of the phase, and the plan is not for such a labeller already; else None.

    With a labeller that closes early, such as "two-coin", a phase may hand on fewer rows than planned. Then `sustained`
    is for teachers that always agree, and `phases` are the longest that there can be; `worst` is what follows if
    teachers are evenly split on every query, and `torn_at_most` up to which share of torn queries a phase hands on as
    many rows as it has. For other labellers both are None.
    """

    rows: int
    features: int
    learner: str
    guarantee: Guarantee
    phases: tuple[PlannedPhase, ...]
    sustained: bool
    rows_required: int
    epsilon_required: float
    finite: int | None
    two_coin: Bought | None
    why: str
    worst: votes.Closings | None = None
    torn_at_most: float | None = None

    def __str__(self) -> str:
        promise = f"ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g} for {self.guarantee.protects}"
        models = {"private": "a private model a phase", "private-model": "one private model"}
        kind = models.get(self.learner, f"teachers: {self.learner}")
        lines = [f"{self.rows:,} rows of {self.features:,} column{'s' * (self.features > 1)}, {kind}, {promise}"]
        for each in self.phases:
            setup = "".join(f", {name} {value}" for name, value in each.options.items())
            voted = (
                f"{each.teachers:>9,} teachers  noise {each.noise:.3f}  {each.labeller}{setup}, loses {each.loss:.2%}"
            )
            lines.append(
                f"phase {each.number:<3} {each.rows:>13,} rows  "
                f"{'no end of' if each.endless else f'{each.queries:,}':>13} queries  "
                f"{voted if each.teachers else 'one model'}"
            )
        if any(each.teachers for each in self.phases):
            lines.append("What a phase loses is a guess, against the majority of the same teachers without noise.")
        if self.sustained and self.worst is not None and self.worst.ends:
            lines.append("It can be sustained only as long as teachers agree.")
        else:
            lines.append("It can be sustained." if self.sustained else "It cannot be sustained.")
        if self.phases and self.worst is not None:
            lines.append(self._at_worst(self.worst))
        if not self.phases:
            lines.append(f"What would do: {self.rows_required:,} rows; or ε = {self.epsilon_required:.3g}.")
        if self.finite is not None:
            lines.append(f"In one phase, and then no more, these rows give {self.finite:,} answers.")
        if self.two_coin is not None:
            setup = ", ".join(f"{name} {value}" for name, value in self.two_coin.options.items())
            lines.append(
                f"A two-coin labeller ({setup}) would give about {self.two_coin.answers:,} answers in the first phase, "
                f"if teachers agree as guessed, and lose {self.two_coin.loss:.2%}."
            )
        return "\n".join([*lines, self.why])

    def _at_worst(self, worst: votes.Closings) -> str:
        """What becomes of the phases of a labeller that closes early, in words."""
        name = self.phases[0].labeller
        planned = [(each.rows, each.answers) for each in self.phases]
        if not worst.ends and list(worst.phases) == planned[: len(worst.phases)]:  # later ones are larger
            return (
                f"A {name} labeller closes a phase early where teachers disagree. Even at worst, if they were evenly "
                "split on every query, no phase would close early."
            )
        given = ", then ".join(f"{answers:,}" for _, answers in worst.phases)
        end = ", and then none" if worst.ends else ", and go on"
        held = (
            f" A phase hands on as many rows as it has if teachers disagree on at most {self.torn_at_most:.1%} of the "
            "queries."
            if self.torn_at_most is not None and self.torn_at_most < 1
            else ""
        )
        return (
            f"A {name} labeller closes a phase early where teachers disagree. If they were evenly split on every "
            f"query, phases would give {given} answers{end}.{held}"
        )


def everlasting(
    rows: int,
    features: int,
    *,
    epsilon: Number,
    delta: Number,
    classes: int = 2,
    answers: int | str = "endless",
    learner: Learner = "linear",
    growth: object = 2,
    held_back: object = 0.1,
    rows_per_teacher: int | str = "auto",
    labeller: LabellerLike = "auto",
    labeller_options: Mapping[str, Any] | None = None,
    most_noise: object = MOST_NOISE,
    disagreement: Number = 0.1,
    phases: int = 8,
    max_rows: int | None = None,
    training_stream: str = "queries",
) -> Everlasting:
    """The phases of an `EverlastingPredictor`, before any data are touched: teachers, noise, answers, labellers.

    The numbers are those of the predictor itself, by the same code: a fit with these rows has these phases, if every
    query that may be handed on to the next phase is (clients that ask too much hand on less). What a phase's answers
    lose to the noiseless majority of its teachers is a guess: all teachers agree except on a share `disagreement` of the
    questions, where every lead is equally likely. No guess changes what is guaranteed, or whether `fit` accepts.

    Nothing here depends on private data, so nothing is spent.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, whose Algorithm GenericBBL fixes such numbers
    for every phase; these are of the phases of `EverlastingPredictor`.

    Parameters
    ----------
    rows, features : how many rows there are, and of how many columns.
    epsilon, delta : the privacy of rows and queries.
    classes : how many there are.
    answers : "endless", or how many queries will be answered.
    learner : "linear" or "thresholds" for such teachers, "other" for slower ones such as trees; "private" for a
        private learner, whose model answers a phase by itself; "private-model" for one private model, which answers
        without end and never learns from queries.
    growth, held_back : answers a phase, as a multiple of its rows, and the share of them that no phase learns from.
    rows_per_teacher : "auto" takes as many as there are columns, but 10 at least and 50 at most.
    labeller : "auto", "greedy", "poll", "two-coin", "gaussian", "bit", "gumbel" or "gnmax"; or a class or specification
        of a labeller, as the predictor takes it.
    labeller_options : what the labeller is given.
    most_noise : the noise, as a share of all votes, beyond which `fit` refuses.
    disagreement : the share of the questions on which the teachers do not all agree.
    phases : how many are listed at most.
    max_rows : the most rows of a phase.
    training_stream : "queries", or "trusted".

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
    schedule = check_schedule(
        growth=growth, held_back=held_back, answers=answers, max_rows=max_rows, training_stream=training_stream
    )
    if learner not in get_args(Learner):
        raise ValueError(f"learner must be one of {', '.join(map(repr, get_args(Learner)))}, got {learner!r}")
    if learner == "private-model" and schedule.trusted:
        raise ValueError("training_stream must be 'queries' for a single private model, which learns from `fit` alone")
    votes.check_labeller(labeller, labeller_options)
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
    if private:
        any_learner = ThresholdLearner(bits=1, epsilon=1)  # which one it is does not matter to the phases
        settings = {**common, "learner": any_learner, "classes": 2}
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
    return _votes(recipe, schedule, listed, disagreement, known)


def follow(recipe: votes.VotesFactory, schedule: Schedule, rows: int, listed: int) -> tuple[list[Phase], Phase, bool]:
    """The first phases as the predictor makes them; the last that was looked at; and whether none was refused."""
    accepted: list[Phase] = []
    phase = schedule.phase(1, rows, 0)
    for phase in schedule.phases(rows):
        try:
            filled = recipe.complete(phase, phase.rows, schedule)
        except InsufficientData:
            return accepted, phase, False
        if len(accepted) < listed:
            accepted.append(filled)
        settled = phase.handed_on >= phase.rows or phase.handed_on == schedule.max_rows  # no phase will be smaller
        if (len(accepted) >= listed and settled) or phase.number >= votes.FURTHEST_PHASE:
            break
    return accepted, phase, True


def _votes(
    recipe: votes.VotesFactory, schedule: Schedule, listed: int, disagreement: Number, known: dict[str, Any]
) -> Everlasting:
    """By the predictor's own steps, from phase to phase."""
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
            f"at most {recipe.most_noise:g} of all votes. Rows needed grow with the square of the rows per teacher "
            "and of 1/ε. A private learner in place of these teachers needs far fewer rows, where one suits the data."
        )
    elif not sustained:
        why = (
            f"Phase {phase.number} would have {phase.rows:,} rows only: phases that shrink, or are held to max_rows, "
            "run out of teachers. Let growth be larger, or max_rows."
        )
    elif schedule.horizon is None:
        why = "Every phase hands on enough rows for the next, so answers never end and noise does not grow."
        if schedule.max_rows is not None and phase.handed_on == schedule.max_rows:
            why = "Phases stay as they are at max_rows: answers never end, but errors of teachers add up over phases."
    else:
        why = "All answers asked for are given."
    worst = None
    if recipe.closes_early and accepted:
        worst = recipe.closings(schedule, rows, split=True, listed=listed)
        if sustained and recipe.closings(schedule, rows, split=False).ends:
            sustained = False
            why = (
                "Even where all teachers agree, a later phase has too few rows for its labeller, whose budget is "
                "smaller than that of the first. Take more rows, a smaller steepness or another labeller."
            )
        elif sustained and worst.ends:
            why = "Whether answers end depends on how often teachers disagree, which nobody knows beforehand."
    return Everlasting(
        **known,
        phases=tuple(_planned(recipe, one, disagreement) for one in accepted),
        sustained=sustained,
        rows_required=rows_required(
            answers=schedule.horizon,
            growth=schedule.growth,
            rows_per_teacher=recipe.rows_per_teacher,
            epsilon=recipe.epsilon,
            most_noise=recipe.most_noise,
            **budget,
        ),
        epsilon_required=epsilon_required(most, first.answers, most_noise=recipe.most_noise, **budget),
        finite=finite if finite and not (sustained and schedule.horizon is None) else None,
        two_coin=_two_coin(recipe, most, first.answers, disagreement),
        why=why,
        worst=worst,
        torn_at_most=None if worst is None else _torn_at_most(recipe, schedule, accepted[0]),
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
    """What the labeller's answers are guessed to lose; many teachers are replaced by fewer, with as much noise."""
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
    """What a two-coin labeller buys in a first phase, if that is more, and if the plan is not for one already."""
    if recipe.closes_early:
        return None
    ballots = Ballots.guess(teachers, classes=recipe.classes, disagreement=disagreement)
    found = bought(TwoCoin, ballots, epsilon=recipe.epsilon, delta=recipe.delta, loss=LOSS, exact=False)
    return found if found.answers > answers else None


def _torn_at_most(recipe: votes.VotesFactory, schedule: Schedule, first: Phase) -> float | None:
    """The share of torn queries, where every lead is equally likely, with which a phase hands on the rows that it has.

    By the budget of a second phase, which is that of all later ones. None where such a phase would be refused.
    """
    try:
        labeller = recipe.make_labeller(replace(first, number=2), None)
    except votes.NoLabeller:
        return None
    if not isinstance(labeller, TwoCoin) or labeller.closing is None:
        return None
    shape: dict[str, Any] = {"teachers": first.teachers, "classes": recipe.classes}
    agreed, torn = (
        float(labeller.expected_hits(Ballots.guess(**shape, margins=leads).counts).mean())
        for leads in ([1.0], (np.arange(200) + 0.5) / 200)
    )
    affordable = (labeller.hits - labeller.closing.margin) / first.rows
    return min(1.0, max(0.0, (affordable - agreed) / (torn - agreed)))


def _chain(recipe: chain.ChainFactory, schedule: Schedule, listed: int, known: dict[str, Any]) -> Everlasting:
    """A model answers at no cost: every phase is accepted, but for a first one of next to no rows."""
    accepted: list[PlannedPhase] = []
    rows: int = known["rows"]
    enough = rows >= recipe.fewest
    for phase in schedule.phases(rows):
        if not enough or len(accepted) == listed:
            break
        accepted.append(_phase_of_model(phase))
    return Everlasting(
        **known,
        phases=tuple(accepted),
        sustained=enough,
        rows_required=recipe.fewest,
        epsilon_required=known["guarantee"].epsilon,
        finite=None,
        two_coin=None,
        why=(
            "Answers of a private model cost nothing; how good it is depends on the rows (see n_required of the "
            "learner). The next phase learns a new one only if the queries have drifted."
        ),
    )


def _single_model(factory: model.ModelFactory, schedule: Schedule, known: dict[str, Any]) -> Everlasting:
    """One phase, which hands on nothing."""
    rows: int = known["rows"]
    only = factory.complete(schedule.phase(1, rows, 0), rows, schedule)
    return Everlasting(
        **known,
        phases=(_phase_of_model(only),),
        sustained=True,
        rows_required=1,
        epsilon_required=known["guarantee"].epsilon,
        finite=None,
        two_coin=None,
        why=(
            "Answers of a private model cost nothing; how good it is depends on the rows (see n_required of the "
            "learner). It never learns from queries, so it does not follow a drift."
        ),
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
