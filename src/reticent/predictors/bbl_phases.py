"""The phases of `GenericBBL`: their public numbers, the noise of their votes, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from reticent.exact import Number, integer
from reticent.labellers.budget import default_order
from reticent.learners.relabelling_costs import LOG4, Variant, printed_cost
from reticent.mechanisms.above_threshold import LEAST_EPSILON
from reticent.mechanisms.between_thresholds import BetweenThresholds, required_gap
from reticent.noise import Noise
from reticent.privacy import calibrate, fits, renyi
from reticent.privacy import epsilon as price
from reticent.privacy.events import Event, GaussianBit, RenyiDP, Repeated
from reticent.privacy.pairs import amplified
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive

BBLLabeller = Literal["between-thresholds", "gaussian"]

_FEW = 30  # answers that are priced by the exact game


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
        vote_delta: Number,
        vote_epsilon: Number | None = None,
        sigma: Number | None = None,
        halts: int | None = None,
        band: int | None = None,
        relabel_epsilon: Number = 1,
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
        return Repeated(GaussianBit(vote_sigma(phase), phase.teachers), phase.answers)
    return between_thresholds(phase, None).event


@lru_cache(maxsize=256)
def vote_epsilon(phase: BBLPhase, labeller: BBLLabeller) -> Fraction:
    """ε_v of the votes that are really cast, at δ_v = phase.vote_delta."""
    event, asked = votes_event(phase, labeller), phase.vote_epsilon
    if asked is not None:
        of_one_order = _of_one_order(event, default_order(asked, phase.vote_delta)) if labeller == "gaussian" else event
        if any(fits(known, epsilon=asked, delta=phase.vote_delta) for known in (of_one_order, event)):
            return asked
    return Fraction(price(event, delta=phase.vote_delta))


def _of_one_order(event: Event, order: Fraction) -> Event:
    """What is known of an event by its divergence of one order."""
    return RenyiDP(order, Fraction(renyi(event, float(order))))


def vote_sigma(phase: BBLPhase) -> Fraction:
    """σ of the noise on every count of votes, for the labeller "gaussian"."""
    if phase.sigma is not None:
        return phase.sigma
    assert phase.vote_epsilon is not None
    return least_sigma(phase.teachers, phase.answers, phase.vote_epsilon, phase.vote_delta)


@lru_cache(maxsize=256)
def least_sigma(teachers: int, answers: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The least σ that fits; for many answers by their divergence of one order, which is nearly as good, and fast."""
    order = default_order(epsilon, delta)

    def event(sigma: Fraction) -> Event:
        votes = Repeated(GaussianBit(sigma, teachers), answers)
        return votes if answers <= _FEW else _of_one_order(votes, order)

    return calibrate.noise(event, epsilon=epsilon, delta=delta)


def between_thresholds(phase: BBLPhase, unsafe_noise: Noise | None) -> BetweenThresholds:
    """The labeller "between-thresholds" of a phase; a phase that it cannot have is refused."""
    if phase.halts is None or phase.vote_epsilon is None:
        raise ValueError("a phase must have halts and a vote_epsilon for the labeller 'between-thresholds'")
    if (why := too_many_halts(phase)) is not None:
        raise ValueError(why)
    public: dict[str, Any] = {"epsilon": phase.vote_epsilon, "delta": phase.vote_delta, "halts": phase.halts}
    band = required_gap(**public) if phase.band is None else phase.band
    lower = (phase.teachers - band) // 2
    return BetweenThresholds(lower, lower + band, **public, unsafe_noise=unsafe_noise)


def too_many_halts(phase: BBLPhase) -> str | None:
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
    """(AMP(E_1), q·δ_v): what a training row pays in total, E_1 being the cost of the first phase."""
    return amplified(phase, rate), rate * delta


def query_cost(following: Fraction, delta: Fraction, drawn: Fraction, kept: Fraction) -> Pair:
    """(AMP(ln 4 + AMP(E_{i+1})), q·r·δ_v), at the rates q = drawn and r = kept: what a query pays in total."""
    return amplified(LOG4 + amplified(following, kept), drawn), drawn * kept * delta
