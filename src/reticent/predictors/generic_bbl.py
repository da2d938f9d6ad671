"""Answers for ever by the construction of *Private Everlasting Prediction*: GenericBBL, with what it really costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent import noise
from reticent.concepts.interface import ConceptClass
from reticent.concepts.reading import Array, Labels, as_labels
from reticent.errors import BudgetExhausted, InsufficientData, OutOfReach
from reticent.exact import exp_fractions, integer, log_bounds
from reticent.labellers.budget import best_order
from reticent.learners.base import as_table, as_target, refuse_bad_points
from reticent.learners.label_boost import (
    LabelBoost,
    Variant,
    label_boost,
    largest_share,
    printed_cost,
)
from reticent.mechanisms.above_threshold import LEAST_EPSILON
from reticent.mechanisms.between_thresholds import BetweenThresholds, required_gap
from reticent.mechanisms.release import noise_or_system
from reticent.mechanisms.votes import noisy_majority
from reticent.noise import Noise
from reticent.predictors.answers import Answers
from reticent.predictors.queries import Reader, as_queries
from reticent.privacy import Guarantee, calibrate, fits, renyi
from reticent.privacy import epsilon as price
from reticent.privacy.events import (
    ZCDP,
    ApproximateDP,
    Event,
    GaussianBit,
    Parallel,
    RenyiDP,
    Repeated,
    Seeded,
    Subsampled,
)
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.pairs import amplified
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive, float_above
from reticent.promises import check_memory, check_share, fewest_rows, in_reach
from reticent.silence import silent

BBLLabeller = Literal["between-thresholds", "gaussian"]
Constants = Literal["printed", "calibrated"]

TAU = 11 * 10**9  # "τ > 1.1·10^10"
_LOG4 = log_bounds(Fraction(4), 64)[1]
_SCORED = Fraction(1, 50)  # calibrated: the share of its rows by which a phase labels the next
_GROWTH = 2  # calibrated: how many times as many rows each phase has as the one before
_FEW = 30  # answers that are priced by the exact game
_CHECKED = 40  # phases for which a promise is checked: by then there are 2^40 times as many rows as at first


# ── what a phase is ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, init=False)
class BBLPhase:
    """The public numbers of one phase. Nothing in them may depend on rows, labels, votes or queries.

    `teachers` of `shard` rows each answer `answers` queries; then `scored` of these rows, drawn at random, give labels
    to `drawn` of these queries, drawn at random, by an exponential mechanism of ε = `relabel_epsilon`. Of those, as
    many as the next phase has rows are kept. A last phase has neither: `drawn` = 0.

    All votes together are to cost (`vote_epsilon`, `vote_delta`). From this follows the noise: σ of the labeller
    "gaussian", or the `band` between the thresholds at `halts` of the labeller "between-thresholds". If `sigma` is
    given it is used, and vote_epsilon may be left out: it is then computed.

    >>> BBLPhase(teachers=9, shard=1, answers=5, sigma=2.5, vote_delta=1e-3).vote_delta
    Fraction(1, 1000)
    """

    teachers: int
    shard: int
    answers: int
    vote_delta: Fraction
    vote_epsilon: Fraction | None
    sigma: Fraction | None
    halts: int | None
    band: int | None
    relabel_epsilon: Fraction
    scored: int
    drawn: int

    def __init__(
        self,
        *,
        teachers: int,
        shard: int,
        answers: int,
        vote_delta: object,
        vote_epsilon: object = None,
        sigma: object = None,
        halts: int | None = None,
        band: int | None = None,
        relabel_epsilon: object = 1,
        scored: int = 0,
        drawn: int = 0,
    ) -> None:
        if vote_epsilon is None and sigma is None:
            raise ValueError("a phase must have a vote_epsilon, or a sigma for the labeller 'gaussian'")
        teachers, shard = integer(teachers, "teachers", least=1), integer(shard, "shard", least=1)
        answers = integer(answers, "answers", least=1)
        read = {
            "teachers": teachers,
            "shard": shard,
            "answers": answers,
            "vote_delta": check_delta(vote_delta, "vote_delta", positive=True),
            "vote_epsilon": None if vote_epsilon is None else check_epsilon(vote_epsilon, "vote_epsilon"),
            "sigma": None if sigma is None else check_positive(sigma, "sigma"),
            "halts": None if halts is None else integer(halts, "halts", least=1),
            "band": None if band is None else integer(band, "band", least=1),
            "relabel_epsilon": check_epsilon(relabel_epsilon, "relabel_epsilon"),
            "scored": integer(scored, "scored", least=0, most=teachers * shard),
            "drawn": integer(drawn, "drawn", least=0, most=answers),
        }
        if (read["scored"] == 0) != (read["drawn"] == 0):
            raise ValueError("scored and drawn must both be 0, in a last phase, or both be at least 1")
        for name, value in read.items():
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        """How many labelled rows the phase has."""
        return self.teachers * self.shard


def votes_event(phase: BBLPhase, labeller: BBLLabeller) -> Event:
    """What all votes of a phase cost one of its rows."""
    if labeller == "gaussian":
        return Repeated(GaussianBit(_sigma(phase), phase.teachers), phase.answers)
    return _between(phase, None).event


@lru_cache(maxsize=256)
def vote_epsilon(phase: BBLPhase, labeller: BBLLabeller) -> Fraction:
    """ε_v of the votes that are really cast, at δ_v = phase.vote_delta."""
    event, asked = votes_event(phase, labeller), phase.vote_epsilon
    if asked is not None:
        of_one_order = _of_one_order(event, best_order(asked, phase.vote_delta)) if labeller == "gaussian" else event
        if any(fits(known, epsilon=asked, delta=phase.vote_delta) for known in (of_one_order, event)):
            return asked
    return Fraction(price(event, delta=phase.vote_delta))


def _of_one_order(event: Event, order: Fraction) -> Event:
    """What is known of an event by its divergence of one order."""
    return RenyiDP(order, Fraction(renyi(event, float(order))))


def _sigma(phase: BBLPhase) -> Fraction:
    if phase.sigma is not None:
        return phase.sigma
    assert phase.vote_epsilon is not None
    return _least_sigma(phase.teachers, phase.answers, phase.vote_epsilon, phase.vote_delta)


@lru_cache(maxsize=256)
def _least_sigma(teachers: int, answers: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The least σ that fits; for many answers by their divergence of one order, which is all but as good and fast."""
    order = best_order(epsilon, delta)

    def event(sigma: Fraction) -> Event:
        votes = Repeated(GaussianBit(sigma, teachers), answers)
        return votes if answers <= _FEW else _of_one_order(votes, order)

    return calibrate.noise(event, epsilon=epsilon, delta=delta)


def _between(phase: BBLPhase, unsafe_noise: Noise | None) -> BetweenThresholds:
    if phase.halts is None or phase.vote_epsilon is None:
        raise ValueError("a phase must have halts and a vote_epsilon for the labeller 'between-thresholds'")
    if (why := _too_many_halts(phase)) is not None:
        raise ValueError(why)
    public: dict[str, Any] = {"epsilon": phase.vote_epsilon, "delta": phase.vote_delta, "halts": phase.halts}
    band = required_gap(**public) if phase.band is None else phase.band
    lower = (phase.teachers - band) // 2
    return BetweenThresholds(lower, lower + band, **public, unsafe_noise=unsafe_noise)


def _too_many_halts(phase: BBLPhase) -> str | None:
    """Why no `BetweenThresholds` has the halts of the phase, if so: each would get too little of ε."""
    if phase.halts is None or phase.vote_epsilon is None or phase.vote_epsilon >= phase.halts * LEAST_EPSILON:
        return None
    return (
        f"labeller='between-thresholds' takes at most halts={math.floor(phase.vote_epsilon / LEAST_EPSILON)} at "
        f"vote_epsilon={float(phase.vote_epsilon):g}, and a phase has halts={phase.halts}: take labeller='gaussian' or "
        "a larger epsilon"
    )


# ── what it costs ─────────────────────────────────────────────────────────────────────────────────────────────────

Pair = tuple[Fraction, Fraction]


def relabelling_cost(epsilon: Fraction, variant: Variant) -> Fraction:
    """ε_S of a scored row: ε_L, or 2·ln(1 + e^(ε_L/2)) in the variant "printed"."""
    return epsilon if variant == "max" else printed_cost(epsilon)


def phase_cost(votes: Fraction, relabelling: Fraction, scored: Fraction) -> Fraction:
    """ε_v + AMP(ε_S) at the rate scored: what a phase costs one of its rows, all that follows included."""
    return votes + (amplified(relabelling, scored) if scored else 0)


def training_cost(phase: Fraction, delta: Fraction, rate: Fraction) -> Pair:
    """(AMP(E_1), q·δ_v): what a training row pays for ever, E_1 being the cost of the first phase."""
    return amplified(phase, rate), rate * delta


def query_cost(following: Fraction, delta: Fraction, drawn: Fraction, kept: Fraction) -> Pair:
    """(AMP(ln 4 + AMP(E_{i+1})), q·r·δ_v), at the rates q = drawn and r = kept: what a query pays for ever."""
    return amplified(_LOG4 + amplified(following, kept), drawn), drawn * kept * delta


# ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Schedule(NamedTuple):
    """Phases without end, or a given list of them, and the largest rates and costs that occur in any of them."""

    first: BBLPhase
    later: Iterator[BBLPhase]
    rate: Fraction  # of the rows that the first phase may have
    required: int  # rows for that
    endless: bool


class Printed:
    """The schedule as the paper prints it, for an error of 6α and a failure of 4β; its "log" is to the base 2."""

    def __init__(
        self, dimension: int, *, epsilon: Fraction, delta: Fraction, error: Fraction, failure: Fraction, tau: Fraction
    ) -> None:
        self.dimension, self.epsilon, self.delta, self.tau = dimension, epsilon, delta, tau
        self.alpha, self.beta = error / 6, failure / 4
        sixteenth = Fraction(1, 16)
        if epsilon >= 1:
            raise ValueError(f"epsilon must be below 1 for constants='printed', got {float(epsilon):g}")
        for value, name, times in ((error, "error", 6), (failure, "failure", 4), (delta, "delta", 1)):
            if value / times >= sixteenth:
                raise ValueError(f"{name} must be below {times}/16 for constants='printed', got {float(value):g}")
        self.share = epsilon / (3 + exp_fractions(epsilon + 4, 64)[1])

    def shard(self, i: int) -> int:
        """λ_i, i = 1, 2, …: enough for a consistent concept to be α_i-good but for β_i."""
        alpha, beta = self._alpha_beta(i)
        return math.ceil((8 * self.dimension * math.log2(13 / alpha) + 4 * math.log2(2 / beta)) / alpha)

    def teachers(self, i: int) -> int:
        """T_i."""
        alpha, beta = self._alpha_beta(i)
        epsilon, delta, shard = float(self.epsilon), float(self.delta), self.shard(i)
        squared = math.log2(shard / (epsilon * alpha * beta * delta)) ** 2
        return math.ceil(float(self.tau) * shard * math.log2(1 / delta) * squared / (alpha * epsilon))

    def phase(self, i: int) -> BBLPhase:
        """S_i, R_i, c_i and the thresholds at 1/2 ± α_i."""
        alpha, _ = self._alpha_beta(i)
        teachers, shard = self.teachers(i), self.shard(i)
        answers = math.ceil(25600 * teachers * shard / self.epsilon)
        return BBLPhase(
            teachers=teachers,
            shard=shard,
            answers=answers,
            vote_epsilon=1,
            vote_delta=self.delta,
            halts=math.ceil(64 * Fraction(alpha) * answers),
            band=max(1, math.floor(2 * Fraction(alpha) * teachers)),
            scored=math.floor(self.share * teachers * shard),
            drawn=math.floor(self.share * answers),
        )

    @property
    def required(self) -> int:
        """n of the initial input."""
        return math.ceil(self.teachers(1) * self.shard(1) / self.share)

    def schedule(self, rows: int) -> Schedule:
        """What happens to so many rows: the sizes are fixed, whatever there is beyond what is required."""
        phases = (self.phase(i) for i in _naturals())
        return Schedule(next(phases), phases, self.share, self.required, endless=True)

    def _alpha_beta(self, i: int) -> tuple[float, float]:
        return float(self.alpha) / 2**i, float(self.beta) / 2**i


class Calibrated:
    """A schedule that promises the error by constants that were worked out, not bounded.

    Every phase has twice the rows of the one before. Let e be the error and β the failure. The labels of phase i + 1
    are off those of phase i by at most a_i = e/(4i(i + 1)), which adds up to e/4; the votes of a phase are off its
    labels by at most 3e/4 more. In phase i, β_i = β/(i(i + 1)) is for what may go wrong.

    *Teachers.* But for 1/32, the points of a shard are such that any two concepts which agree on them differ by at
    most t = 7e/50 (so it does not matter that the labels depend on the points). At most 1/16 of the shards are not
    such, but for β_i/4 if T ≥ 512·ln(4/β_i). A quarter of the teachers or more are wrong only where 1/4 − 1/16 of them
    are that are t-good: for at most (15/16)·t/(3/16) = 7e/10 of the points. *Noise.* Elsewhere the votes are T/4 away
    from half. "gaussian": the noise of an answer is larger with probability at most e/20. "between-thresholds": so are
    half the band, the noise of the thresholds (but for β_i/4, in all segments) and that of an answer (but for e/20)
    together; halts are as many as 3e/4 of R, and what Chernoff's bound adds for β_i/4. *Labels.* By `LabelBoost`'s
    bound, for labels that a concept gave which itself depends on the points, but for β_i/4.
    """

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Fraction,
        delta: Fraction,
        error: Fraction,
        failure: Fraction,
        labeller: BBLLabeller,
        variant: Variant,
    ) -> None:
        self.concept_class, self.labeller = concept_class, labeller
        self.error, self.failure = float(error), float(failure)
        self.relabel = Fraction(1)
        spent = amplified(relabelling_cost(self.relabel, variant), _SCORED)
        self.votes = _best_votes(epsilon, spent)
        inner = self.votes + spent
        self.first, self.drawn = largest_share(epsilon, inner), largest_share(epsilon, inner + _LOG4)
        self.delta = min(delta / self.first, Fraction(1, 2))
        self._bounds = LabelBoost(cast("Any", None), concept_class, epsilon=1)  # for its bounds on errors
        good = 0.14 * self.error
        self.shard = fewest_rows(lambda rows: self._bounds._log_far(0, rows, good) <= -math.log(32))
        self.unit = _unit_noise(self.votes, self.delta)

    def phase(self, i: int, first: int) -> BBLPhase:
        """Phase i = 1, 2, … of a schedule that begins with so many teachers."""
        teachers = first * _GROWTH ** (i - 1)
        drawn = self.shard * teachers * _GROWTH
        answers = math.ceil(drawn / self.drawn)
        return BBLPhase(
            teachers=teachers,
            shard=self.shard,
            answers=answers,
            vote_epsilon=self.votes,
            vote_delta=self.delta,
            halts=self._halts(i, answers) if self.labeller == "between-thresholds" else None,
            relabel_epsilon=self.relabel,
            scored=max(1, math.floor(_SCORED * self.shard * teachers)),
            drawn=drawn,
        )

    @property
    def required(self) -> int:
        """How many rows make the promise hold in every phase."""
        return math.ceil(self._least_teachers() * self.shard / self.first)

    def schedule(self, rows: int) -> Schedule:
        """As many teachers as the rows allow."""
        first = max(math.floor(self.first * rows) // self.shard, self._least_teachers())
        phases = (self.phase(i, first) for i in _naturals())
        return Schedule(next(phases), phases, self.first, self.required, endless=True)

    def _least_teachers(self) -> int:
        most = math.ceil(1 / (_SCORED * self.shard))  # so that at least one row is scored
        return max(most, fewest_rows(lambda first: all(self._keeps(i, first) for i in range(1, _CHECKED + 1))))

    def _keeps(self, i: int, first: int) -> bool:
        """Whether phase i keeps its part of the promise."""
        teachers = first * _GROWTH ** (i - 1)
        scored, drawn = math.floor(_SCORED * self.shard * teachers), self.shard * teachers * _GROWTH
        answers, log_part = math.ceil(drawn / self.drawn), math.log(self._part(i))
        if teachers < -512 * log_part or scored == 0:
            return False
        if self.labeller == "gaussian":
            if (teachers / 4) ** 2 < 2 * self.unit**2 * answers * math.log(20 / self.error):
                return False
        elif teachers / 4 < self._doubt(i, answers):
            return False
        off = self.error / (4 * i * (i + 1))
        rate = float(self.relabel) / 2
        return self._bounds._log_bad(scored, labelled=drawn, error=off, rate=rate, targets=1) <= log_part

    def _part(self, i: int) -> float:
        return self.failure / (4 * i * (i + 1))

    def _halts(self, i: int, answers: int) -> int:
        expected = 0.75 * self.error * answers
        return math.ceil(expected + math.sqrt(3 * expected * -math.log(self._part(i))))

    def _doubt(self, i: int, answers: int) -> float:
        """A bound on half the band and the noise about it, by zCDP and the plain split of ε' among the noises."""
        halts, log_part = self._halts(i, answers), math.log(self._part(i))
        if 3 * -log_part > 0.75 * self.error * answers:
            return math.inf  # where Chernoff's bound needs another form
        segment = 1 / (_unit_noise(self.votes, self.delta / 2) * math.sqrt(halts))
        gap = 6 / segment * math.log(1 + math.exp(segment / 6) + math.exp(segment / 3))
        gap += 4 / segment * math.log(2 * halts / float(self.delta))
        single, shared = segment * 21 / 128, segment / 4  # the least that `BetweenThresholds` may choose
        about = math.log(40 / self.error) / single + (math.log(2 * halts) - log_part) / shared
        return gap / 2 + about + 2


@lru_cache(maxsize=256)
def _unit_noise(epsilon: Fraction, delta: Fraction) -> float:
    """s for which σ = s·√R makes R votes cost (ε, δ), by the zCDP of the noisy counts: not less than is needed."""
    return 1.01 * float(calibrate.noise(lambda s: ZCDP(1 / (2 * s * s)), epsilon=epsilon, delta=delta))


@lru_cache(maxsize=256)
def _best_votes(epsilon: Fraction, relabelling: Fraction) -> Fraction:
    """ε_v, in hundredths, for which the fewest rows do: they are as 1/(ε_v²·q_0·q_D)."""

    def rows(votes: Fraction) -> Fraction:
        cost = votes + relabelling
        return 1 / (votes**2 * largest_share(epsilon, cost) * largest_share(epsilon, cost + _LOG4))

    whole = Fraction(math.floor(100 * (epsilon - relabelling)), 100)  # then no training row need be left out
    return min([Fraction(i, 100) for i in range(10, 301, 10)] + ([whole] if whole > 0 else []), key=rows)


def _naturals() -> Iterator[int]:
    i = 0
    while True:
        yield (i := i + 1)


# ── the predictor ─────────────────────────────────────────────────────────────────────────────────────────────────


class GenericBBL(Guarded, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels one query after another, for ever, by teachers that are retrained on the queries: the paper's own way.

    In phases. A phase has labelled rows S_i. They are dealt out to teachers, each of which takes a concept of the class
    with the fewest errors on its shard. A query is answered by the private majority of the teachers. When the phase has
    given its `answers`, a random part of its queries gets labels by a concept that does well on a random part of S_i
    (`label_boost`), and becomes S_{i+1}; S_i is deleted. The labels that were released are not used again. All sizes
    are public numbers, fixed before the first query.

    labeller "between-thresholds" : the paper's. Only *halts*, votes without a clear majority, are paid for, and they
        are answered 1. After the last of them the predictor has failed, and refuses for ever.
    labeller "gaussian" : discrete Gaussian noise on every count of votes, a fixed number of answers a phase.

    Guarantee. "gaussian": (ε, δ)-differential privacy for a replaced training row *and* for a replaced query, against
    all answers but the one to that query, for ever, whatever is asked: `guarantee_` protects "rows and queries".
    "between-thresholds": the same for training rows *alone*. ε and δ in `guarantee_` are computed from the phases that
    run: with ε_v, δ_v of a phase's votes, ε_S of the relabelling, and q_0, q_S, q_D the shares of rows and queries that
    are drawn, E = ε_v + AMP_{q_S}(ε_S), it is (AMP_{q_0}(E), q_0·δ_v) for a training row and the largest of
    (AMP_{q_D}(ln 4 + E), q_D·δ_v) for a query, where AMP_q(ε) = ln(1 + q(e^ε − 1)). Nothing adds up over the phases.

    Why. *Training row.* S_1 is an ordered random part of the training rows, place in it decides the teacher, so AMP
    holds. A row of S_1 changes one vote: all answers of phase 1 are (ε_v, δ_v)-private. The queries of phase 1 are the
    adversary's; which labels a part of them gets is a draw that a row of S_1 meets with probability q_S and that is
    ε_S-private: ε_L in the variant "max", 2·ln(1 + e^(ε_L/2)) in the variant "printed", of which only the queries are
    kept. So the answers of phase 1 together with S_2 are (E, δ_v)-private, and all that follows is computed from them.
    *Query, "gaussian".* Let query j of phase i be replaced. The answers to the others, and their number, do not depend
    on it: noise is fresh for each, a phase ends after a fixed number, and its label is not kept. So the answers of the
    phases up to i, together with S_i, have the same law. Given these, the queries of phase i differ in one place.
    It is drawn with probability q_D. By the lemma of `label_boost` the labels of the others then change by a factor of
    at most 4, and given these, S_{i+1} differs in one row. Answers of phase i + 1 and S_{i+2} are (E, δ_v)-private for
    it, as above; the rest is computed from them. *Query, "between-thresholds".* There is no such proof, and the claim
    is false: the replaced query decides whether a halt is counted, hence whether the *next* query is answered. With
    one halt left, a query on which the teachers are split closes the predictor and one on which they agree does not:
    whoever asks next learns which it was (`docs/predictors/generic_bbl.md` has the exact δ).

    Promise. With n ≥ `n_required(error)` rows drawn independently and labelled by a concept of the class, and queries
    from the same distribution, every answer is wrong with probability at most `error`, in all phases at once but for a
    probability of `failure`. A given list of `phases` comes without a promise.

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
    concept_class : the `concepts.ConceptClass` of the labels.
    epsilon, delta : the privacy of training rows, and of queries where they are protected.
    error, failure : what is promised of every answer. As printed, 6α and 4β.
    labeller : "between-thresholds" or "gaussian".
    constants : "printed", or "calibrated" for those that a promise needs by our bounds.
    variant : of the relabelling, "max" or "printed", as `label_boost` takes it.
    tau : τ of the printed constants, if it is to be another than 1.1·10^10; the promise is void below.
    phases : None, or the phases themselves, as `BBLPhase`s, in place of those that follow from error and constants.
        When they are over the predictor refuses.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what it is computed from.
    phase_, phase_number_, answers_left_in_phase_ : the phase under way, its number from 1 on, and what is left of it.

    >>> import numpy as np
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
        epsilon: object,
        delta: object,
        error: object = 0.1,
        failure: object = 0.05,
        labeller: BBLLabeller = "between-thresholds",
        constants: Constants = "printed",
        variant: Variant = "max",
        tau: object = TAU,
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
        """Begin the first phase from the rows of `X`, of shape (rows, columns), and their labels `y`, 0 or 1."""
        return self._fit(X, y, None if self.unsafe_seed is None else noise.Seeded(unsafe_seed=self.unsafe_seed))

    def predict(self, X: ArrayLike) -> Labels:
        """A private label, 0 or 1, for each row of `X`, one after another; each is counted, repeated ones too.

        Where the phase ends, the next one begins. Raises `BudgetExhausted` where it cannot: before any query is looked
        at if there are more than a given list of phases answers; and among the queries when the labeller
        "between-thresholds" has halted for the last time. The error says how many were answered: `answer` returns them.
        """
        labels, _, refused = self.answer(X)
        if refused is not None:
            raise refused
        return labels

    def answer(self, X: ArrayLike) -> Answers:
        """As `predict`, but with the phase of each answer, and with the answers that were given before there were none.

        Raises `BudgetExhausted` only if there are more queries than a given list of phases answers.
        """
        check_is_fitted(self, "guarantee_")
        with self._guard.claim():
            rows = as_queries(X)
            validate_data(self, X, reset=False, skip_check_array=True)
            with silent():
                return self._running.answer(self._points(self._reader.read(rows)))

    def n_required(self, error: object = None, failure: object = None) -> int:
        """How many rows the constants ask for to promise this error with this probability of failure.

        `OutOfReach` where `fit` cannot run on so many.
        """
        self._check_parameters()
        source = self._source(error, failure)
        return in_reach(source.required, lambda rows: self._check_first(rows, source.schedule(rows).first))

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows; by public numbers alone."""
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

    def _fit(self, X: ArrayLike, y: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """`fit` with any noise, such as that which an audit walks through."""
        self._check_parameters()
        rows = as_table(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        schedule = self._schedule(len(rows))
        cost = self._cost(schedule, len(rows))
        labels = as_labels(as_target(y), len(rows))
        points = self._points(rows)
        with silent():
            refuse_bad_points(self.concept_class, points)
            source = noise_or_system(unsafe_noise)
            chosen = _draw(source, len(points), schedule.first.rows)
            points, labels = points[chosen], labels[chosen]
            running = self._run(schedule, points, labels, unsafe_noise)
        reader = Reader.of(rows, self.concept_class)
        promised = self._promised(cost, seeded=unsafe_noise is not None)
        # All at once, now that nothing can fail: rows of a fit that failed must not be answered from.
        self._running: _Running = running
        self._guard, self._reader = Guard(type(self)), reader
        self.event_: Event = cost if unsafe_noise is None else Seeded(cost)
        self.guarantee_, self.classes_ = promised, np.array([0, 1])
        return self

    def _run(self, schedule: Schedule, points: Array, labels: Labels, unsafe_noise: Noise | None) -> _Running:
        return _Running(self, schedule, points, labels, unsafe_noise)

    def _relabel(
        self, rows: Array, labels: Labels, queries: Array, epsilon: Fraction, unsafe_noise: Noise | None
    ) -> Labels:
        """Labels for queries, by some of the rows of the phase."""
        found = label_boost(
            rows, labels, queries, self.concept_class, epsilon=epsilon, variant=self.variant, unsafe_noise=unsafe_noise
        )
        return found.labels[len(found.labels) - len(queries) :]

    def _points(self, rows: Array) -> Array:
        return rows[:, 0] if rows.shape[1] == 1 == self.concept_class.columns else rows

    # ── sizes and costs ───────────────────────────────────────────────────────────────────────────────────────────

    def _source(self, error: object = None, failure: object = None) -> Printed | Calibrated:
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

    def _schedule(self, rows: int) -> Schedule:
        if self.phases is None:
            source = self._source()
            if rows < (required := source.required):
                why = self._obstacle(required, source.schedule(required).first)
                raise InsufficientData(
                    f"{required} rows are needed by constants={self.constants!r} to promise error={self.error} "
                    f"with failure={self.failure}, got {rows}; take constants='calibrated', a larger error or epsilon, "
                    "or give the phases" + (f". Even so many would not do: {why}" if why else ""),
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
        return Schedule(given[0], iter(given[1:]), Fraction(given[0].rows, rows), given[0].rows, endless=False)

    def _obstacle(self, rows: int, phase: BBLPhase) -> str | None:
        try:
            self._check_first(rows, phase)
        except OutOfReach as refused:
            return str(refused)
        return None

    def _impossible(self, phase: BBLPhase) -> str | None:
        """Why a phase of these public numbers cannot be had, if so."""
        return self._too_many_halts(phase) or self._too_many_labellings(phase)

    def _too_many_halts(self, phase: BBLPhase) -> str | None:
        return _too_many_halts(phase) if self.labeller == "between-thresholds" else None

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

    def _cost(self, schedule: Schedule, rows: int) -> Event:
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

    def _query_costs(self, schedule: Schedule) -> list[Event]:
        """The cost of a query of each of the given phases, or the most that any of endless phases has."""
        if schedule.endless:
            source = self._source()
            first = schedule.first
            share = source.share if isinstance(source, Printed) else source.drawn
            scored = source.share if isinstance(source, Printed) else _SCORED
            assert first.vote_epsilon is not None
            spent = relabelling_cost(first.relabel_epsilon, self.variant)
            cost = phase_cost(first.vote_epsilon, spent, scored)
            return [_event((_LOG4 + cost, first.vote_delta), share)]
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

    def _check_parameters(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=True)
        check_share(self.error, "error")
        check_share(self.failure, "failure")
        check_positive(self.tau, "tau")
        if not isinstance(self.concept_class, ConceptClass):
            raise TypeError(f"concept_class must be a ConceptClass, got {type(self.concept_class).__name__}")
        named = (
            ("labeller", ("between-thresholds", "gaussian")),
            ("constants", ("printed", "calibrated")),
            ("variant", ("max", "printed")),
        )
        for name, accepted in named:
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {getattr(self, name)!r}")
        if self.phases is not None:
            given = list(self.phases)
            if not given or not all(isinstance(phase, BBLPhase) for phase in given):
                raise TypeError("phases must be None or a sequence of BBLPhases, at least one")
            for phase in given:
                votes_event(phase, self.labeller)  # refuses a band that is too narrow, or halts that are missing


class _Running:
    """The phase under way: its rows, its teachers, and the queries it has answered."""

    def __init__(
        self, bbl: GenericBBL, schedule: Schedule, points: Array, labels: Labels, unsafe_noise: Noise | None
    ) -> None:
        self._bbl = bbl
        self._later = schedule.later
        self._total = None if schedule.endless else sum(phase.answers for phase in bbl.phases or ())
        self._unsafe_noise = unsafe_noise
        self._noise = noise_or_system(unsafe_noise)
        self._following: BBLPhase | None = None
        self.number = 0
        self._begin(schedule.first, points, labels)

    def _begin(self, phase: BBLPhase, points: Array, labels: Labels) -> None:
        """Deal the rows out to teachers by their place, and train these."""
        concepts = self._bbl.concept_class
        parts = range(0, phase.rows, phase.shard)
        teachers = Counter(concepts.erm(points[i : i + phase.shard], labels[i : i + phase.shard]) for i in parts)
        sides = _between(phase, self._unsafe_noise) if self._bbl.labeller == "between-thresholds" else None
        self.phase, self._points, self._labels = phase, points, labels
        self._teachers, self._sides = teachers, sides
        self._queries: list[Array] = []
        self.left = phase.answers
        self.number += 1

    def answer(self, queries: Array) -> Answers:
        """Labels for the queries, in their order."""
        if self._total is not None and len(queries) > self._total:
            raise BudgetExhausted(
                f"the phases answer {self._total} more queries, got {len(queries)}: give more phases"
            )
        codes, phases = np.empty((2, len(queries)), dtype=np.int64)
        done = 0
        refused: Exception | None = None
        while done < len(queries):
            try:
                self._make_ready()
                found = self._label(queries[done : done + self.left])
            except BudgetExhausted as error:
                also = f"; {done} queries of this call were answered and count" if done else ""
                refused = BudgetExhausted(f"{error}{also}")
                break
            except Exception as error:
                if not done:
                    raise
                refused = error  # answers were given, and count: they are returned
                break
            codes[done : done + len(found)], phases[done : done + len(found)] = found, self.number
            done += len(found)
        return Answers(codes[:done], phases[:done], refused)

    def _make_ready(self) -> None:
        """See to it that the next query can be answered."""
        if self._sides is not None:
            self._sides.refuse_if_closed()
        if self.left == 0:
            self._turn_over()

    def _label(self, queries: Array) -> Labels:
        """Labels for the queries, or for the first of them if the labeller closes."""
        votes = np.zeros(len(queries), dtype=np.int64)
        for concept, count in self._teachers.items():
            votes += count * np.asarray(self._bbl.concept_class.predict(concept, queries), dtype=np.int64)
        if self._sides is None:
            self._count(queries)  # first: a query that was looked at is never looked at again
            return self._majority(votes)
        labels = []
        for i, count in enumerate(votes.tolist()):
            if self._sides.halts_left == 0:
                break
            self._count(queries[i : i + 1])
            labels.append(self._sides.ask(count) != "low")
        return np.array(labels, dtype=np.int64)

    def _majority(self, votes: Labels) -> Labels:
        public: dict[str, Any] = {"voters": self.phase.teachers, "sigma": _sigma(self.phase)}
        public |= {"unsafe_noise": self._unsafe_noise}
        if len(votes) == 1:
            return np.array([noisy_majority(int(votes[0]), **public).value], dtype=np.int64)
        return noisy_majority(votes, **public).value

    def _count(self, queries: Array) -> None:
        self._queries.append(queries)
        self.left -= len(queries)
        if self._total is not None:
            self._total -= len(queries)

    def _turn_over(self) -> None:
        """Label some of the queries by some of the rows, and begin the next phase with them. Order is that of draw."""
        phase = self.phase
        if self._following is None:
            self._following = next(self._later)
        following = self._following
        if self._total is None:  # given phases were checked before the first answer
            self._check(following)
        queries = np.concatenate(self._queries)
        drawn = queries[_draw(self._noise, len(queries), phase.drawn)]
        known = _draw(self._noise, phase.rows, phase.scored)
        labels = self._bbl._relabel(
            self._points[known], self._labels[known], drawn, phase.relabel_epsilon, self._unsafe_noise
        )
        kept = _draw(self._noise, phase.drawn, following.rows)
        self._begin(following, drawn[kept], labels[kept])
        self._following = None

    def _check(self, following: BBLPhase) -> None:
        """Refuse a phase, by public numbers, that cannot be had or would cost more than was promised."""
        bbl = self._bbl
        if why := bbl._too_many_labellings(self.phase) or bbl._too_many_halts(following):
            raise BudgetExhausted(f"phase {self.number} was the last: {why}")
        if vote_epsilon(following, bbl.labeller) > (following.vote_epsilon or 0):
            raise BudgetExhausted("the votes of the next phase cannot be certified to cost what was promised")


def _draw(source: Noise, among: int, count: int) -> Array:
    """Places, in random order: it decides the teacher. All of them, which gains nothing, stay in the order they are."""
    return np.arange(among) if count == among else source.subset(among, count)


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
