"""Sparse vector with two thresholds: which counts are clearly low or high. Only those in between are paid for."""

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
    """Answer whether each integer of a stream is low, high or between two thresholds, until `halts` were between.

    `ask(value)` returns "low" if value + noise < lower + μ, "high" if value + noise > upper − μ, and else "between", a
    *halt*. Only halts are counted, and μ is redrawn after each; answers "low" and "high" are free, in any number. After
    the last halt, `ask` refuses before it reads a value. Values are whole numbers that move by at most 1 when one row
    is replaced (counts, votes). Each may be chosen depending on earlier answers.

    Guarantee. (ε, δ)-differential privacy for a replaced *row*, for all answers together, for any number of queries.
    Nothing is claimed about the *queries* that the values come from: later answers reveal whether a query was a halt.

    Why. Shifting μ by 1 moves both thresholds inwards: "low" and "high" are kept, and the noise values of a "between"
    lose two integers at the ends of their run, which costs little if the run is long. The gap makes it long, except
    with probability δ' per segment. The proof is in docs/mechanisms/between_thresholds.md.

    Source. Bun, Steinke, Ullman, *Make Up Your Mind: The Price of Online Queries in Differential Privacy*, as given by
    Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Algorithm BetweenThresholds, Lemma 4.3 and Lemma C.3.
    Here on integers, with an exact sum in place of the printed gap. Repaired: with upper + μ the loss would grow with
    the number of answers; Observation 2, on several halts, is misprinted; Claim E.6, that queries are protected too,
    fails.

    Parameters
    ----------
    lower, upper : int
        The thresholds, at least `required_gap(epsilon=, delta=, halts=)` apart. They are public.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of all answers together.
    delta : int, float, Fraction or Decimal
        Failure probability δ of the guarantee, above 0.
    halts : int, default 1
        Number of halts after which the mechanism refuses.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Attributes
    ----------
    event : Event
        What all answers together cost.

    Examples
    --------
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
        chosen = _calibration(epsilon, delta, halts)
        if self.upper - self.lower < chosen.gap:
            raise ValueError(
                f"upper − lower must be at least {chosen.gap} for epsilon={epsilon}, delta={delta}, "
                f"halts={chosen.halts}, got {self.upper - self.lower}"
            )
        self._most = chosen.most
        self._value_scale = 1 / chosen.single
        event = events.SparseVectorRun(chosen.segment, chosen.halts, chosen.failure)
        super().__init__(scale=1 / chosen.shared, halts=chosen.halts, event=event, unsafe_noise=unsafe_noise)

    def ask(self, value: int) -> Side:
        """Return on which side of the thresholds a value lies, up to noise. "between" is a halt.

        Parameters
        ----------
        value : int
            A count that one replaced row moves by at most 1.

        Returns
        -------
        {"low", "between", "high"}
            The side.

        Raises
        ------
        BudgetExhausted
            After the last halt. The value is not read.
        """
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
    """Return the least upper − lower that `BetweenThresholds` accepts with these parameters.

    >>> required_gap(epsilon=1, delta=1e-6)
    59
    """
    return _calibration(epsilon, delta, halts).gap


def segment_split(*, epsilon: Number, delta: Number, halts: int = 1) -> tuple[Fraction, Fraction, Fraction]:
    """Return (ε1, ε2, η) of each segment: what it spends on μ, on each value, and keeps as slack.

    >>> segment_split(epsilon=1, delta=1e-6)
    (Fraction(15, 32), Fraction(33, 128), Fraction(1, 64))
    """
    chosen = _calibration(epsilon, delta, halts)
    return chosen.shared, chosen.single, chosen.slack


# ── how the budget is spent ───────────────────────────────────────────────────────────────────────────────────────


class GapCalibration(NamedTuple):
    """How `BetweenThresholds` spends its budget, with the gap that follows.

    Each of `halts` segments spends ε' = ε1 + 2·ε2 + η and fails with an equal share of `failure`.

    Attributes
    ----------
    segment : Fraction
        ε' of each segment.
    shared, single, slack : Fraction
        ε1 of μ, ε2 of each value, and η.
    failure : Fraction
        The part of δ that all segments together fail with.
    halts : int
        Number of segments.
    most : int
        M, the largest μ at which values are compared.
    """

    segment: Fraction
    shared: Fraction
    single: Fraction
    slack: Fraction
    failure: Fraction
    halts: int
    most: int

    @property
    def gap(self) -> int:
        """The least distance of the thresholds, 2M + 1."""
        return 2 * self.most + 1


def _calibration(epsilon: Number, delta: Number, halts: int) -> GapCalibration:
    exact, times = check_segments(epsilon, halts)
    return calibrate_gap(exact, check_delta(delta, positive=True), times)


@lru_cache(maxsize=256)
def calibrate_gap(epsilon: Fraction, delta: Fraction, halts: int) -> GapCalibration:
    """Choose the split of ε and δ that leaves the least doubt.

    The doubt is the gap plus, on each side of it, the distance that the noise of a value exceeds once in a thousand
    times. (The gap alone would be least with unbounded noise on the values.) Either all of δ pays for failures, or half
    of it pays for composition. Floating point chooses among these and the splits of ε' into 64ths; exact numbers then
    determine M.
    """
    candidates: list[tuple[float, GapCalibration]] = []
    for failure in {delta, delta if halts == 1 else delta / 2}:
        segment = segment_epsilon(epsilon=epsilon, delta=delta - failure, halts=halts)
        for share in range(16, 44, 2):
            split = segment * share / 64, segment * (63 - share) / 128, segment / 64
            shared, single, slack = map(float, split)
            most = _least_most(shared, single, slack, failure / halts, _rounded)
            candidate = GapCalibration(segment, *split, failure, halts, most)
            candidates.append((candidate.gap + 2 * math.log(500) / single, candidate))
    best = min(candidates)[1]
    most = _least_most(best.shared, best.single, best.slack, best.failure / halts, _enclosed, guess=best.most)
    return best._replace(most=most)


def _least_most(
    shared: Any, single: Any, slack: Any, allowed: Fraction, decay: Decay, *, guess: int | None = None
) -> int:
    """The least M for which a segment fails with at most the allowed probability, and μ > M at most once in a hundred
    times.

    The second condition does not affect privacy: it saves halts, and keeps M where the failure falls as M grows.
    """
    start: int = math.ceil(math.log(100) / shared)

    def suffices(more: int) -> bool:
        return bool(segment_failure(start + more, shared, single, slack, decay) <= allowed)

    return start + least(suffices, guess=start if guess is None else guess - start)


Decay = Callable[[Any], tuple[Any, Any, Any, Any]]  # lower and upper bounds on e^−x, then on 1 − e^−x


def _enclosed(x: Fraction) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    low, high = exp_fractions(-x, 128)
    return low, high, 1 - high, 1 - low


def _rounded(x: float) -> tuple[float, float, float, float]:
    fallen, risen = math.exp(-x), -math.expm1(-x)
    return fallen, fallen, risen, risen


def segment_failure(most: int, shared: Any, single: Any, slack: Any, decay: Decay = _enclosed) -> Any:
    """Bound the δ' of a segment from above: Σ_t P(μ = M − t)·(1 − e^η·(1 − b^t)/(1 − b^(t+1)))⁺, t ≥ 0, b = e^(−2·ε2).

    The terms fall with t, first fast, then slowly. They are summed in blocks that grow with t, each weighted like its
    first term, so that about a hundred terms are enough for any ε.

    Parameters
    ----------
    most : int
        M.
    shared, single, slack : Fraction or float
        ε1, ε2 and η.
    decay : callable, default certified bounds
        Bounds on e^−x and 1 − e^−x. Floats give an estimate, fractions a certified bound.

    Returns
    -------
    Fraction or float
        The sum, of the type of the parameters.
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
