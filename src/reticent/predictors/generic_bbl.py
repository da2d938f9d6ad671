"""The construction of *Private Everlasting Prediction*: GenericBBL, with what it really costs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.concepts.input import check_concept_class, refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.data.labels import as_binary_labels, as_target
from reticent.data.points import Array, Labels, as_point_table, points_of
from reticent.data.queries import Reader, as_queries
from reticent.errors import InsufficientData, OutOfReach
from reticent.exact import Number
from reticent.learners.label_boost import label_boost
from reticent.learners.relabelling_costs import LOG4, Variant
from reticent.mechanisms.release import noise_from_seed, noise_or_system
from reticent.noise import Noise
from reticent.predictors.answers import Answers
from reticent.predictors.bbl_phases import (
    BBLLabeller,
    BBLPhase,
    Pair,
    phase_cost,
    query_cost,
    relabelling_cost,
    too_many_halts,
    training_cost,
    vote_epsilon,
    votes_event,
)
from reticent.predictors.bbl_running import BBLRules, RunningPhases, draw_rows
from reticent.predictors.bbl_schedules import SCORED, TAU, BBLSchedule, Calibrated, Constants, Printed
from reticent.privacy import Guarantee
from reticent.privacy.events import ApproximateDP, Event, Parallel, SeededRelease, Subsampled
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.pairs import amplified
from reticent.privacy.parameters import check_choice, check_delta, check_epsilon, check_positive, float_above
from reticent.promises import check_memory, check_share, in_reach
from reticent.silence import silent

# ── the predictor ─────────────────────────────────────────────────────────────────────────────────────────────────


class GenericBBL(Guarded, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels one query after another, without end, by teachers that learn from the queries: the paper's algorithm.

    It works in phases. A phase has labelled rows S_i. They are dealt to teachers, each of which takes a concept of the
    class with the fewest errors on its shard. A query is answered by the private majority of the teachers. When the
    phase has given its `answers`, a random part of its queries gets labels by a concept that does well on a random part
    of S_i (`label_boost`), and becomes S_{i+1}; S_i is deleted. The labels that were released are not used again. All
    sizes are public numbers, fixed before the first query.

    labeller "between-thresholds" : the paper's. Only *halts*, votes without a clear majority, are paid for, and they
        are answered 1. After the last of them the predictor has failed, and refuses all further queries.
    labeller "gaussian" : discrete Gaussian noise on every count of votes, a fixed number of answers per phase.

    Guarantee. "gaussian": (ε, δ)-differential privacy for a replaced training row *and* for a replaced query, against
    all answers but the one to that query, without end, whatever is asked: `guarantee_` protects "rows and queries".
    "between-thresholds": the same for training rows *alone*. ε and δ in `guarantee_` are computed from the phases that
    run: with ε_v, δ_v of a phase's votes, ε_S of the relabelling, and q_0, q_S, q_D the shares of rows and queries that
    are drawn, E = ε_v + AMP_{q_S}(ε_S), it is (AMP_{q_0}(E), q_0·δ_v) for a training row and the largest of
    (AMP_{q_D}(ln 4 + E), q_D·δ_v) for a query, where AMP_q(ε) = ln(1 + q(e^ε − 1)). Nothing adds up over the phases.

    Why. A row of a phase changes one vote, and the labels that its queries get are drawn privately; all later phases
    are computed from these. With "gaussian", a query changes no other answer of its phase, and one row of the next.
    With "between-thresholds" the same claim for queries is false: a query decides whether a halt is counted, and so
    whether the next query is answered. docs/predictors/generic_bbl.md has the proofs, and the exact δ of this attack.

    Promise. With n ≥ `n_required(error)` rows drawn independently and labelled by a concept of the class, and queries
    from the same distribution, every answer is wrong with probability at most `error`, in all phases at once, except
    with probability `failure`. A given list of `phases` comes without a promise.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*: Algorithm GenericBBL with Algorithm LabelBoost
    and Algorithm BetweenThresholds, Definitions 3.1 and 3.4, Figure 1 (the game), Theorems 5.1, 5.2 and A.2, Claims 2.7
    and 5.3, Lemmas 4.1–4.4 and C.1–C.4, Observations 1 and 2, Claims D.1–D.9, Claims E.1–E.5, Remark E.7. Repaired:
    Claim E.6 (see above) holds for "gaussian" only; the subsets must be *ordered*; the query of step 3(d)ii is an
    average or the thresholds are counts; Claim D.5 bounds the probability of *more* than 64·α_i·R_i halts; step 2 lacks
    a log(1/δ) that the initial input has; Claims D.2 and E.4 use a bound for a fixed concept on labels that depend on
    the points, Claim E.1 the share of a sample for that of the distribution. Sharpened: ln 4 and δ_v for a query, ε_L
    for a row, in place of 3 and 4e·δ. Left out: Remark 5.4 (labels that no concept fits).

    Parameters
    ----------
    concept_class : ConceptClass
        The concept class of the labels.
    epsilon : float or Fraction
        Privacy-loss bound ε of training rows, and of queries where they are protected.
    delta : float or Fraction
        Failure probability δ of the guarantee.
    error, failure : float or Fraction, default 0.1 and 0.05
        What is promised of every answer. As printed, 6α and 4β.
    labeller : {"between-thresholds", "gaussian"}, default "between-thresholds"
        How votes become answers.
    constants : {"printed", "calibrated"}, default "printed"
        "calibrated" takes the constants that a promise needs by our bounds.
    variant : {"max", "printed"}, default "max"
        Of the relabelling, as `label_boost` takes it.
    tau : float or Fraction, default 1.1·10^10
        τ of the printed constants; below its default the promise is void.
    phases : sequence of BBLPhase or None, default None
        The phases, in place of those that follow from error and constants. After them the predictor refuses.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : Guarantee, Event
        What is promised, and what it is computed from.
    phase_, phase_number_, answers_left_in_phase_ : BBLPhase, int, int
        The present phase, its number from 1 on, and how many queries it still answers.

    >>> import numpy as np
    >>> from reticent.predictors.bbl_phases import BBLPhase
    >>> from reticent.concepts import Thresholds
    >>> x = np.arange(1000)[:, None]
    >>> common = {"teachers": 100, "shard": 10, "answers": 2000, "vote_epsilon": 8, "vote_delta": 1e-6}
    >>> first, last = BBLPhase(**common, scored=300, drawn=1000), BBLPhase(**common)
    >>> bbl = GenericBBL(Thresholds(), epsilon=9, delta=1e-6, labeller="gaussian", phases=[first, last])
    >>> bbl.fit(x, x[:, 0] < 400).guarantee_.protects
    'rows and queries'
    >>> answers = bbl.predict(np.tile(x, (3, 1)))
    >>> bool((answers == np.tile(x[:, 0] < 400, 3)).mean() > 0.8), bbl.phase_number_, bbl.answers_left_in_phase_
    (True, 2, 1000)
    """

    _instead = "Fit it in the process that uses it"

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        delta: Number,
        error: Number = 0.1,
        failure: Number = 0.05,
        labeller: BBLLabeller = "between-thresholds",
        constants: Constants = "printed",
        variant: Variant = "max",
        tau: Number = TAU,
        phases: Sequence[BBLPhase] | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.delta = delta
        self.error = error
        self.failure = failure
        self.labeller = labeller
        self.constants = constants
        self.variant = variant
        self.tau = tau
        self.phases = phases
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Begin the first phase, and return the predictor.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            The training rows.
        y : array-like
            Their labels, 0 or 1.
        """
        return self.fit_with_noise(X, y, unsafe_noise=noise_from_seed(self.unsafe_seed))

    def predict(self, X: ArrayLike) -> Labels:
        """A private label, 0 or 1, for each row of `X`, one after another; each is counted, repeated ones too.

        Where the phase ends, the next one begins. Raises `BudgetExhausted` where it cannot: before any query is looked
        at if there are more than a given list of phases answers; and among the queries when the labeller
        "between-thresholds" has halted for the last time. The error says how many were answered: `answer` returns them.

        Parameters
        ----------
        X : array-like
            The queries.
        """
        found = self.answer(X)
        if found.refused is not None:
            raise found.refused
        return found.class_indices

    def answer(self, X: ArrayLike) -> Answers:
        """As `predict`, but with the phase of each answer, and with the answers that were given before there were none.

        Raises `BudgetExhausted` only if there are more queries than a given list of phases answers.
        """
        check_is_fitted(self, "guarantee_")
        with self._guard.claim():
            rows = as_queries(X)
            validate_data(self, X, reset=False, skip_check_array=True)
            with silent():
                return self._running.answer(points_of(self._reader.read(rows), self.concept_class.columns))

    def n_required(self, error: Number | None = None, failure: Number | None = None) -> int:
        """How many rows the constants ask for to promise this error with this probability of failure.

        Raises `OutOfReach` if `fit` cannot run on that many.

        Parameters
        ----------
        error : float, Fraction or None, default None
            The error to promise, in (0, 1); None is the predictor's own.
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the predictor's own.
        """
        self.check_parameters()
        source = self._source(error, failure)
        return in_reach(source.required, lambda rows: self._check_first(rows, source.schedule(rows).first))

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows; by public numbers alone.

        Parameters
        ----------
        rows : int
            The number of rows.
        """
        source = self._source()
        self._check_first(rows, source.schedule(max(rows, source.required)).first)

    def _check_first(self, rows: int, phase: BBLPhase) -> None:
        if why := self._impossible(phase):
            raise OutOfReach(why)
        check_memory(rows, self.concept_class.columns)

    @property
    def phase_(self) -> BBLPhase:
        """The phase under way."""
        check_is_fitted(self, "guarantee_")
        return self._running.phase

    @property
    def phase_number_(self) -> int:
        """Its number, from 1 on."""
        check_is_fitted(self, "guarantee_")
        return self._running.number

    @property
    def answers_left_in_phase_(self) -> int:
        """How many queries it still answers."""
        check_is_fitted(self, "guarantee_")
        return self._running.left

    # ── fitting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fit_with_noise(self, X: ArrayLike, y: ArrayLike, *, unsafe_noise: Noise | None) -> Self:
        """`fit` on a given noise, for audits; unless it is None, the guarantee is marked as seeded."""
        self.check_parameters()
        rows = as_point_table(X, domain_declared=self.concept_class.declares_domain)
        validate_data(self, X, reset=True, skip_check_array=True)
        schedule = self._schedule(len(rows))
        cost = self._cost(schedule, len(rows))
        labels = as_binary_labels(as_target(y), len(rows))
        points = points_of(rows, self.concept_class.columns)
        with silent():
            refuse_bad_points(self.concept_class, points)
            source = noise_or_system(unsafe_noise)
            chosen = draw_rows(source, len(points), schedule.first.rows)
            points, labels = points[chosen], labels[chosen]
            running = self._run(schedule, points, labels, unsafe_noise)
        reader = Reader.of(rows.dtype, rows.shape[1], self.concept_class)
        promised = self._promised(cost, seeded=unsafe_noise is not None)
        # All at once, now that nothing can fail: rows of a fit that failed must not be answered from.
        self._running: RunningPhases = running
        self._guard, self._reader = Guard(type(self)), reader
        self.event_: Event = cost if unsafe_noise is None else SeededRelease(cost)
        self.guarantee_, self.classes_ = promised, np.array([0, 1])
        return self

    def _run(self, schedule: BBLSchedule, points: Array, labels: Labels, unsafe_noise: Noise | None) -> RunningPhases:
        rules = BBLRules(
            concept_class=self.concept_class,
            labeller=self.labeller,
            answers=None if schedule.endless else sum(phase.answers for phase in self.phases or ()),
            relabel=self._relabel,
            obstacle=self._no_successor,
        )
        return RunningPhases(rules, schedule, points, labels, unsafe_noise)

    def _relabel(
        self, rows: Array, labels: Labels, queries: Array, epsilon: Fraction, unsafe_noise: Noise | None
    ) -> Labels:
        """Labels for queries, by some of the rows of the phase."""
        found = label_boost(
            rows, labels, queries, self.concept_class, epsilon=epsilon, variant=self.variant, unsafe_noise=unsafe_noise
        )
        return found.labels[len(found.labels) - len(queries) :]

    # ── sizes and costs ───────────────────────────────────────────────────────────────────────────────────────────

    def _source(self, error: Number | None = None, failure: Number | None = None) -> Printed | Calibrated:
        public: dict[str, Any] = {
            "epsilon": check_epsilon(self.epsilon),
            "delta": check_delta(self.delta, positive=True),
            "error": check_share(self.error if error is None else error, "error"),
            "failure": check_share(self.failure if failure is None else failure, "failure"),
        }
        if self.constants == "printed":
            tau = check_positive(self.tau, "tau")
            return Printed(self.concept_class.vc_dimension, tau=tau, **public)
        return Calibrated(self.concept_class, labeller=self.labeller, variant=self.variant, **public)

    def _schedule(self, rows: int) -> BBLSchedule:
        if self.phases is None:
            source = self._source()
            if rows < (required := source.required):
                why = self._obstacle(required, source.schedule(required).first)
                raise InsufficientData(
                    f"{required} rows are needed by constants={self.constants!r} to promise error={self.error} "
                    f"with failure={self.failure}, got {rows}; take constants='calibrated', a larger error or epsilon, "
                    "or give the phases" + (f". Even that many would not suffice: {why}" if why else ""),
                    required=required,
                )
            schedule = source.schedule(rows)
            self._check_first(rows, schedule.first)
            return schedule
        given = list(self.phases)
        for phase, following in pairwise(given):
            if phase.drawn < following.rows:
                raise ValueError(
                    f"phases must draw as many queries as the next one has rows, {following.rows}, got "
                    f"drawn={phase.drawn}"
                )
            if why := self._too_many_labellings(phase):
                raise OutOfReach(why)
        if rows < given[0].rows:
            raise InsufficientData(
                f"the first of the phases has {given[0].rows} rows, got {rows}", required=given[0].rows
            )
        return BBLSchedule(given[0], iter(given[1:]), Fraction(given[0].rows, rows), given[0].rows, endless=False)

    def _obstacle(self, rows: int, phase: BBLPhase) -> str | None:
        try:
            self._check_first(rows, phase)
        except OutOfReach as refused:
            return str(refused)
        return None

    def _no_successor(self, phase: BBLPhase, following: BBLPhase) -> str | None:
        """Why a phase cannot be followed by another, if so."""
        return self._too_many_labellings(phase) or self._too_many_halts(following)

    def _impossible(self, phase: BBLPhase) -> str | None:
        """Why a phase of these public numbers cannot be had, if so."""
        return self._too_many_halts(phase) or self._too_many_labellings(phase)

    def _too_many_halts(self, phase: BBLPhase) -> str | None:
        return too_many_halts(phase) if self.labeller == "between-thresholds" else None

    def _too_many_labellings(self, phase: BBLPhase) -> str | None:
        remedy = "take a larger error, phases that draw fewer, or a class of fewer concepts"
        try:
            self.concept_class.check_points(
                phase.scored + phase.drawn, what="rows and queries of a phase", remedy=remedy
            )
            self.concept_class.check_erm(phase.shard, what="rows of a teacher", remedy=remedy)
        except OutOfReach as refused:
            return str(refused)
        return None

    def _cost(self, schedule: BBLSchedule, rows: int) -> Event:
        """What all phases cost, from the numbers with which they run; refused if it is more than is allowed."""
        first = schedule.first
        drawn = Fraction(first.rows, rows)
        event: Event = _event(training_cost(self._phase_cost(first), first.vote_delta, Fraction(1)), drawn)
        if self.labeller == "gaussian":
            event = Parallel((event, *self._query_costs(schedule)))
        epsilon, delta = _worst(event)
        if epsilon > check_epsilon(self.epsilon) or delta > check_delta(self.delta):
            raise ValueError(
                f"phases would cost epsilon={float_above(epsilon):.6g}, delta={float_above(delta):.6g}, more than "
                f"epsilon={self.epsilon}, delta={self.delta}: give them less vote_epsilon or vote_delta, or draw "
                "smaller shares of more rows and queries"
            )
        return event

    def _query_costs(self, schedule: BBLSchedule) -> list[Event]:
        """The cost of a query of each of the given phases, or the most that any of endless phases has."""
        if schedule.endless:
            source = self._source()
            first = schedule.first
            share = source.share if isinstance(source, Printed) else source.drawn
            scored = source.share if isinstance(source, Printed) else SCORED
            assert first.vote_epsilon is not None
            spent = relabelling_cost(first.relabel_epsilon, self.variant)
            cost = phase_cost(first.vote_epsilon, spent, scored)
            return [_event((LOG4 + cost, first.vote_delta), share)]
        costs = []
        for phase, following in pairwise(list(self.phases or ())):
            kept = Fraction(following.rows, phase.drawn)
            inner = query_cost(self._phase_cost(following), following.vote_delta, Fraction(1), kept)
            costs.append(_event(inner, Fraction(phase.drawn, phase.answers)))
        return costs

    def _phase_cost(self, phase: BBLPhase) -> Fraction:
        spent = relabelling_cost(phase.relabel_epsilon, self.variant)
        return phase_cost(vote_epsilon(phase, self.labeller), spent, Fraction(phase.scored, phase.rows))

    def _promised(self, event: Event, *, seeded: bool) -> Guarantee:
        epsilon, delta = _worst(event)
        return Guarantee(
            epsilon=float_above(epsilon),
            delta=float_above(delta),
            protects="rows and queries" if self.labeller == "gaussian" else "rows",
            seeded=seeded,
        )

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=True)
        check_share(self.error, "error")
        check_share(self.failure, "failure")
        check_positive(self.tau, "tau")
        check_concept_class(self.concept_class)
        named = (
            ("labeller", ("between-thresholds", "gaussian")),
            ("constants", ("printed", "calibrated")),
            ("variant", ("max", "printed")),
        )
        for name, accepted in named:
            check_choice(getattr(self, name), name, accepted)
        if self.phases is not None:
            given = list(self.phases)
            if not given or not all(isinstance(phase, BBLPhase) for phase in given):
                raise TypeError("phases must be None or a sequence of BBLPhases, at least one")
            for phase in given:
                votes_event(phase, self.labeller)  # refuses a band that is too narrow, or halts that are missing


def _event(cost: Pair, rate: Fraction) -> Event:
    whole = ApproximateDP(*cost)
    return whole if rate == 1 else Subsampled(whole, rate)


def _worst(event: Event) -> Pair:
    """The largest ε and the largest δ of the costs, exactly."""
    members = event.events if isinstance(event, Parallel) else (event,)
    pairs = []
    for member in members:
        inner, rate = (member.event, member.rate) if isinstance(member, Subsampled) else (member, Fraction(1))
        assert isinstance(inner, ApproximateDP)
        pairs.append((amplified(inner.epsilon, rate), rate * inner.delta))
    return max(epsilon for epsilon, _ in pairs), max(delta for _, delta in pairs)
