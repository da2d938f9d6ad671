"""Which of a stream of counts reach a threshold: a budget for the few that do, nothing for the many that do not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from reticent.errors import BudgetExhausted
from reticent.exact import Number, integer
from reticent.mechanisms.release import noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import accounting, events
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_delta, check_epsilon

ENOUGH = Fraction(64)  # a segment's noise is then zero but for one draw in 10^8: a larger ε would buy nothing


LEAST_EPSILON = Fraction(1, 10**12)  # a segment with less would need counts beyond 10^12 to say anything


def check_segments(epsilon: object, halts: object) -> tuple[Fraction, int]:
    """ε and the number of halts, for mechanisms that search for a width: it must be within reach."""
    exact, times = check_epsilon(epsilon), integer(halts, "halts", least=1)
    if exact < times * LEAST_EPSILON:
        raise ValueError(f"epsilon must be at least {float(times * LEAST_EPSILON):g} for halts={times}, got {epsilon}")
    return exact, times


class Segments(Guarded):
    """What the sparse-vector mechanisms share: the halts that are left, and the noise of the segment under way.

    A segment's noise is drawn at its first question and kept with the number of halts that were left then. So counting
    a halt is what makes it void, and no interrupted call leaves old noise behind a new segment. It is `Guarded`: a copy
    or a forked process would answer again on the same budget, with the same noise.
    """

    def __init__(self, *, scale: Fraction, halts: int, event: events.Event, unsafe_noise: Noise | None) -> None:
        self.event = release(None, event, unsafe_noise).event
        self._noise = noise_or_system(unsafe_noise)
        self._scale = scale
        self._halts = self._left = halts
        self._drawn = -1, 0  # how many halts were left when noise was drawn, never as few as at first; and the noise
        self._guard = Guard(type(self))

    @property
    def halts_left(self) -> int:
        """How many halts are still to come before it is closed. Whoever saw the answers knows this number."""
        return self._left

    def refuse_if_closed(self) -> None:
        """Raise `BudgetExhausted` after the last halt."""
        if self._left == 0:
            raise BudgetExhausted(f"closed after halts={self._halts}: its privacy budget is spent, start a new one")

    def _shared_noise(self) -> int:
        if self._drawn[0] != self._left:
            self._drawn = self._left, int(self._noise.discrete_laplace(self._scale))
        return self._drawn[1]

    def _halt(self) -> None:
        self._left -= 1


class AboveThreshold(Segments):
    """Tells whether each of a stream of integer values reaches `threshold`, until that was so `halts` times.

    `ask(value)` is True where value + noise ≥ threshold + noise', a *halt*. Answers of False are free, in any number:
    only halts are counted. After the last of them the object is closed and refuses before it looks at a value. Values
    are whole numbers that move by at most 1 when one row is replaced (counts, votes); each may be chosen in the light
    of the earlier answers.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for all answers together, however many are asked for.

    Why. Let every segment, the answers up to and including a halt, have ε' = ε1 + 2·ε2 with ε1 = 2ε'/5, ε2 = 3ε'/10;
    let its threshold noise ρ be discrete Laplace of scale 1/ε1, that of each value ν of scale 1/ε2. Compare the one
    data set at ρ with its neighbour at ρ + 1, which is at least e^(−ε1) times as likely. The values v, v' differ by at
    most 1. False is kept for every ν, as v + ν < t + ρ implies v' + ν < t + ρ + 1. True is kept if ν grows by 2, as
    v + ν ≥ t + ρ implies v' + (ν + 2) ≥ t + ρ + 1, and P(ν ≥ x) ≤ e^(2·ε2)·P(ν ≥ x + 2) for integers x. A segment
    has one True, so any sequence of answers loses at most ε1 + 2·ε2, in either direction. Given the answers, the next
    question is fixed: asking adaptively changes nothing. Segments have noise of their own, so `halts` of them are the
    adaptive composition of as many ε'-DP mechanisms: ε' = ε/halts, or the largest that optimal composition allows
    within (ε, δ). The split 2 : 3 all but attains the least variance of ν − ρ, (1 + 2^(2/3))³·2/ε'².

    Source. Dwork and Roth, *The Algorithmic Foundations of Differential Privacy*, Algorithms 1 and 2, as used by Liu,
    Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 6, whose loop "while c ≤ T" halts once
    more than is accounted for. Here on integers with exact noise, the split of ε chosen, composition optimal.

    >>> above = AboveThreshold(1000, epsilon=1, halts=2)
    >>> [above.ask(count) for count in (10, 700, 2000, 30)], above.halts_left
    ([False, False, True, False], 1)
    """

    def __init__(
        self,
        threshold: int,
        *,
        epsilon: Number,
        delta: Number = 0,
        halts: int = 1,
        unsafe_noise: Noise | None = None,
    ) -> None:
        self.threshold = integer(threshold, "threshold")
        halts = integer(halts, "halts", least=1)
        segment = segment_epsilon(epsilon=check_epsilon(epsilon), delta=check_delta(delta), halts=halts)
        shared, single = split(segment)
        self._value_scale = 1 / single
        event = events.SparseVector(segment, halts)
        super().__init__(scale=1 / shared, halts=halts, event=event, unsafe_noise=unsafe_noise)

    def ask(self, value: int) -> bool:
        """Whether a value reaches the threshold, but for noise. True is a halt."""
        with self._guard.claim():
            self.refuse_if_closed()
            distance = self.threshold - integer(value, "value")
            above = bool(self._noise.laplace_cell(self._value_scale, [distance + self._shared_noise()]))
            if above:
                self._halt()
            return above


def split(segment: Fraction) -> tuple[Fraction, Fraction]:
    """How a segment's ε is spent: ε1 on the threshold's noise, ε2 on each value's, with ε1 + 2·ε2 = ε."""
    return segment * 2 / 5, segment * 3 / 10


@lru_cache(maxsize=256)
def segment_epsilon(*, epsilon: Fraction, delta: Fraction, halts: int) -> Fraction:
    """The ε that each of `halts` segments may have so that together they are (ε, δ)-DP, to a thousandth of ε/halts.

    >>> segment_epsilon(epsilon=Fraction(1), delta=Fraction(0), halts=4)
    Fraction(1, 4)
    """
    basic = min(epsilon / halts, ENOUGH)
    if halts == 1 or delta == 0:
        return basic

    def too_much(thousandths: int) -> bool:
        event = events.SparseVector(basic * (1000 + thousandths) / 1000, halts)
        return not accounting.fits(event, epsilon=epsilon, delta=delta)

    most = min(Fraction(halts), ENOUGH / basic)
    return basic * (1000 + least(lambda extra: extra > 1000 * (most - 1) or too_much(extra)) - 1) / 1000


def least(holds: Callable[[int], bool], *, guess: int = 1) -> int:
    """The least integer ≥ 0 from which on `holds` is true; few calls if it is near the guess."""
    low = high = guess
    step = 1
    if holds(guess):
        while low >= 0 and holds(low):
            low, high, step = low - step, low, 2 * step
        low = max(low, -1)
    else:
        while not holds(high):
            low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
