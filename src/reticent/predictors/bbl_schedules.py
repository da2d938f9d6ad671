"""The schedules of `GenericBBL`: the sizes of all its phases, as printed or with calibrated constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from reticent.concepts.interface import ConceptClass
from reticent.exact import exp_fractions
from reticent.learners.relabelling_bounds import log_distance, log_error
from reticent.learners.relabelling_costs import LOG4, Variant, largest_share
from reticent.predictors.bbl_phases import BBLLabeller, BBLPhase, relabelling_cost
from reticent.privacy import calibrate
from reticent.privacy.events import ZCDP
from reticent.privacy.pairs import amplified
from reticent.promises import fewest_rows

Constants = Literal["printed", "calibrated"]

TAU = 11 * 10**9  # "τ > 1.1·10^10"
SCORED = Fraction(1, 50)  # calibrated: the share of its rows by which a phase labels the next
_GROWTH = 2  # calibrated: how many times as many rows each phase has as the one before
_CHECKED = 40  # phases for which a promise is checked: by then there are 2^40 times as many rows as at first


# ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────


class BBLSchedule(NamedTuple):
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
        """λ_i, i = 1, 2, …: enough for a consistent concept to be α_i-good, except with probability β_i."""
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

    def schedule(self, rows: int) -> BBLSchedule:
        """What happens to this many rows: the sizes are fixed, whatever there is beyond what is required."""
        phases = (self.phase(i) for i in _naturals())
        return BBLSchedule(next(phases), phases, self.share, self.required, endless=True)

    def _alpha_beta(self, i: int) -> tuple[float, float]:
        return float(self.alpha) / 2**i, float(self.beta) / 2**i


class Calibrated:
    """A schedule that promises the error by constants that were worked out, not bounded.

    Every phase has twice the rows of the one before. Let e be the error and β the failure. The labels of phase i + 1
    are off those of phase i by at most a_i = e/(4i(i + 1)), which adds up to e/4; the votes of a phase are off its
    labels by at most 3e/4 more. In phase i, β_i = β/(i(i + 1)) is for what may go wrong.

    *Teachers.* Except with probability 1/32, the points of a shard are such that any two concepts which agree on them
    differ by at most t = 7e/50 (so it does not matter that the labels depend on the points). Except with probability
    β_i/4, at most 1/16 of the shards are not such if T ≥ 512·ln(4/β_i). A quarter of the teachers or more are wrong
    only where 1/4 − 1/16 of them are that are t-good: for at most (15/16)·t/(3/16) = 7e/10 of the points. *Noise.*
    Elsewhere the votes are T/4 away from half. "gaussian": the noise of an answer is larger with probability at most
    e/20. "between-thresholds": so are half the band, the noise of the thresholds (except with probability β_i/4, in all
    segments) and that of an answer (except with probability e/20) together; halts are as many as 3e/4 of R, and what
    Chernoff's bound adds for β_i/4. *Labels.* By the bound of `log_error`, for labels that a concept gave which itself
    depends on the points, except with probability β_i/4.
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
        spent = amplified(relabelling_cost(self.relabel, variant), SCORED)
        self.votes = _best_votes(epsilon, spent)
        inner = self.votes + spent
        self.first, self.drawn = largest_share(epsilon, inner), largest_share(epsilon, inner + LOG4)
        self.delta = min(delta / self.first, Fraction(1, 2))
        good = 0.14 * self.error
        self.shard = fewest_rows(lambda rows: log_distance(concept_class, rows, wrong=0, error=good) <= -math.log(32))
        self.unit = _unit_noise(self.votes, self.delta)

    def phase(self, i: int, first: int) -> BBLPhase:
        """Phase i = 1, 2, … of a schedule that begins with this many teachers."""
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
            scored=max(1, math.floor(SCORED * self.shard * teachers)),
            drawn=drawn,
        )

    @property
    def required(self) -> int:
        """How many rows make the promise hold in every phase."""
        return math.ceil(self._least_teachers * self.shard / self.first)

    def schedule(self, rows: int) -> BBLSchedule:
        """As many teachers as the rows allow."""
        first = max(math.floor(self.first * rows) // self.shard, self._least_teachers)
        phases = (self.phase(i, first) for i in _naturals())
        return BBLSchedule(next(phases), phases, self.first, self.required, endless=True)

    @cached_property
    def _least_teachers(self) -> int:
        most = math.ceil(1 / (SCORED * self.shard))  # so that at least one row is scored
        return max(most, fewest_rows(lambda first: all(self._keeps(i, first) for i in range(1, _CHECKED + 1))))

    def _keeps(self, i: int, first: int) -> bool:
        """Whether phase i keeps its part of the promise."""
        teachers = first * _GROWTH ** (i - 1)
        scored, drawn = math.floor(SCORED * self.shard * teachers), self.shard * teachers * _GROWTH
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
        return log_error(self.concept_class, scored, labelled=drawn, error=off, rate=rate, targets=1) <= log_part

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
        return 1 / (votes**2 * largest_share(epsilon, cost) * largest_share(epsilon, cost + LOG4))

    whole = Fraction(math.floor(100 * (epsilon - relabelling)), 100)  # then no training row need be left out
    return min([Fraction(i, 100) for i in range(10, 301, 10)] + ([whole] if whole > 0 else []), key=rows)


def _naturals() -> Iterator[int]:
    i = 0
    while True:
        yield (i := i + 1)
