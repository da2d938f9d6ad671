"""Which of a stream of counts are clearly low, which clearly high: a budget only for those in between."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from reticent.exact import Number, exp_fractions, integer
from reticent.mechanisms.above_threshold import Segments, check_segments, least, segment_epsilon
from reticent.noise import Noise
from reticent.privacy import events
from reticent.privacy.parameters import check_delta

Side = Literal["low", "between", "high"]
SIDES: tuple[Side, Side, Side] = ("low", "between", "high")


class BetweenThresholds(Segments):
    """Tells of each of a stream of integer values whether it is low, high or between, until `halts` were between.

    `ask(value)` is "low" where value + noise < lower + μ, "high" where value + noise > upper − μ, else "between", a
    *halt*. Answers "low" and "high" are free, in any number: only halts are counted, and μ is drawn afresh after each.
    After the last of them the object is closed and refuses before it looks at a value. Values are whole numbers that
    move by at most 1 when one row is replaced (counts, votes); each may be chosen in the light of the earlier answers.
    The thresholds must lie `required_gap(epsilon=, delta=, halts=)` or more apart.

    Guarantee. (ε, δ)-differential privacy for a replaced *row*, for all answers together, however many are asked for.
    Nothing is claimed about the *queries* that the values come from: a halt can be told from the answers that follow.

    Why. Let a segment, the answers up to and including a halt, have ε' = ε1 + 2·ε2 + η; let its μ be discrete Laplace
    of scale 1/ε1, the noise ν of each value of scale 1/ε2. The required gap is 2M + 1. Where μ > M the answer is
    "between" whatever the value, which tells nothing. Else compare the one data set at μ = M − t with its neighbour at
    μ + 1, which is at least e^(−ε1) times as likely. Both the low and the high side have grown by 1 and values differ
    by at most 1, so "low" and "high" are kept for every ν. The ν's for "between" are a run of n ≥ 2(t + 1) integers,
    of which the neighbour lacks two at the ends. Taking an end off a run of m integers divides its probability by at
    most g(m) = (1 − a^m)/(a − a^m), a = e^(−ε2): as the law of ν is log-concave, the factor grows with the distance of
    the run from zero, and it is g(m) once zero is outside. Two ends cost at most g(n)·g(n − 1), that is at most
    r_t = e^(2·ε2)·(1 − b^(t+1))/(1 − b^t), b = e^(−2·ε2). So P(S | μ) ≤ r_t·P'(S | μ + 1) for any set S of answers, and
    P(S) − e^ε'·P'(S) ≤ Σ_t P(μ = M − t)·(1 − e^(2·ε2 + η)/r_t)⁺, t ≥ 0, r_0 = ∞. M is such that this sum, rounded up,
    is at most the δ' of a segment. Segments have noise of their own: `halts` of them, (ε', δ') each, compose within
    (ε, δ).

    Source. Bun, Steinke, Ullman, *Make Up Your Mind: The Price of Online Queries in Differential Privacy*, as given by
    Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Algorithm BetweenThresholds, Lemma 4.3 and Lemma C.3,
    for a gap of (12/ε)·(ln(10/ε) + ln(1/δ) + 1). Here on integers, with the sum in place of that bound, the bound M on
    μ, and the split of ε that leaves the least doubt. The sign matters: with upper + μ the neighbour's high side
    shrinks, and the loss grows with the number of answers. Observation 2, on several halts, is misprinted. Claim E.6,
    that queries are protected too, does not hold as argued, since halts are visible.

    >>> sides = BetweenThresholds(400, 600, epsilon=1, delta=1e-6)
    >>> sides.ask(30), sides.ask(980), sides.ask(500), sides.halts_left
    ('low', 'high', 'between', 0)
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        *,
        epsilon: Number,
        delta: Number,
        halts: int = 1,
        unsafe_noise: Noise | None = None,
    ) -> None:
        self.lower, self.upper = integer(lower, "lower"), integer(upper, "upper")
        plan = _checked_plan(epsilon, delta, halts)
        if self.upper - self.lower < plan.gap:
            raise ValueError(
                f"upper − lower must be at least {plan.gap} for epsilon={epsilon}, delta={delta}, halts={plan.halts}, "
                f"got {self.upper - self.lower}"
            )
        self._most = plan.most
        self._value_scale = 1 / plan.single
        event = events.SparseVector(plan.segment, plan.halts, plan.failure)
        super().__init__(scale=1 / plan.shared, halts=plan.halts, event=event, unsafe_noise=unsafe_noise)

    def ask(self, value: int) -> Side:
        """On which side of the thresholds a value lies, but for noise. "between" is a halt."""
        with self._guard.claim():
            self.refuse_if_closed()
            value = integer(value, "value")
            mu = self._shared_noise()
            side: Side = "between"
            if mu <= self._most:
                cuts = [self.lower + mu - value, self.upper - mu + 1 - value]
                side = SIDES[self._noise.laplace_cell(self._value_scale, cuts)]
            if side == "between":
                self._halt()
            return side


def required_gap(*, epsilon: Number, delta: Number, halts: int = 1) -> int:
    """The least upper − lower for which `BetweenThresholds` takes these parameters.

    >>> required_gap(epsilon=1, delta=1e-6)
    59
    """
    return _checked_plan(epsilon, delta, halts).gap


def segment_split(*, epsilon: Number, delta: Number, halts: int = 1) -> tuple[Fraction, Fraction, Fraction]:
    """(ε1, ε2, η) of each segment: what is spent on μ, on each value, and kept back.

    >>> segment_split(epsilon=1, delta=1e-6)
    (Fraction(15, 32), Fraction(33, 128), Fraction(1, 64))
    """
    plan = _checked_plan(epsilon, delta, halts)
    return plan.shared, plan.single, plan.slack


# ── how the budget is spent ───────────────────────────────────────────────────────────────────────────────────────


class Plan(NamedTuple):
    """Each of `halts` segments spends ε' = ε1 + 2·ε2 + η and fails with an equal share of `failure`; M is `most`."""

    segment: Fraction
    shared: Fraction
    single: Fraction
    slack: Fraction
    failure: Fraction
    halts: int
    most: int

    @property
    def gap(self) -> int:
        """The least distance of the thresholds."""
        return 2 * self.most + 1


def _checked_plan(epsilon: Number, delta: Number, halts: object) -> Plan:
    exact, times = check_segments(epsilon, halts)
    return _plan(exact, check_delta(delta, positive=True), times)


@lru_cache(maxsize=256)
def _plan(epsilon: Fraction, delta: Fraction, halts: int) -> Plan:
    """The plan that leaves the least doubt: the gap, and on each side of it the distance over which the noise of a
    value carries once in a thousand times. (The gap alone would be least with endless noise on the values.)

    All of δ goes to the failures, or half of it to composition. Floating point chooses among these and the splits of
    ε' into 64ths; M is then settled by exact numbers.
    """
    plans: list[tuple[float, Plan]] = []
    for failure in {delta, delta if halts == 1 else delta / 2}:
        segment = segment_epsilon(epsilon=epsilon, delta=delta - failure, halts=halts)
        for share in range(16, 44, 2):
            split = segment * share / 64, segment * (63 - share) / 128, segment / 64
            shared, single, slack = map(float, split)
            most = _least_most(shared, single, slack, failure / halts, _rounded)
            plans.append((2 * most + 1 + 2 * math.log(500) / single, Plan(segment, *split, failure, halts, most)))
    best = min(plans)[1]
    most = _least_most(best.shared, best.single, best.slack, best.failure / halts, _enclosed, guess=best.most)
    return best._replace(most=most)


def _least_most(
    shared: Any, single: Any, slack: Any, allowed: Fraction, decay: Decay, *, guess: int | None = None
) -> int:
    """The least M for which a segment fails with at most the probability allowed, and μ > M once in a hundred times.

    The latter is no matter of privacy: it spares halts, and keeps to where the failure falls as M grows.
    """
    roomy: int = math.ceil(math.log(100) / shared)

    def suffices(more: int) -> bool:
        return bool(segment_failure(roomy + more, shared, single, slack, decay) <= allowed)

    return roomy + least(suffices, guess=roomy if guess is None else guess - roomy)


Decay = Callable[[Any], tuple[Any, Any, Any, Any]]  # lower and upper bounds on e^−x, then on 1 − e^−x


def _enclosed(x: Fraction) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    low, high = exp_fractions(-x, 128)
    return low, high, 1 - high, 1 - low


def _rounded(x: float) -> tuple[float, float, float, float]:
    fallen, risen = math.exp(-x), -math.expm1(-x)
    return fallen, fallen, risen, risen


def segment_failure(most: int, shared: Any, single: Any, slack: Any, decay: Decay = _enclosed) -> Any:
    """An upper bound on Σ_t P(μ = M − t)·(1 − e^η·(1 − b^t)/(1 − b^(t+1)))⁺, t ≥ 0, b = e^(−2·ε2): the δ' of a segment
    with M = most, ε1 = shared, ε2 = single, η = slack.

    The weights fall with t, first fast, then slowly. The t's are taken in blocks, the longer the larger they are, and
    weighted like the first in the block, so that a hundred terms or so do for any ε.
    """
    first_low, first_high, _, _ = decay(shared)
    slack_high = decay(slack)[1]

    def beyond(m: int) -> tuple[Any, Any]:
        """Bounds on P(μ ≥ m)."""
        low, high, _, _ = decay(shared * (m if m > 0 else 1 - m))
        low, high = low / (1 + first_high), high / (1 + first_low)
        return (low, high) if m > 0 else (1 - high, 1 - low)

    longest = int(1 / (20 * single))
    t, weight, total = 0, 1, 0
    past = beyond(most + 1)[0]
    while weight > 0:
        t += max(1, min(longest, t // 4))
        low, high = beyond(most + 1 - t)
        total += weight * (high - past)
        past = low
        weight = 1 - decay(2 * single * t)[2] / decay(2 * single * (t + 1))[3] / slack_high
    return total
