"""Sparse vector: which counts of a stream reach a threshold. Only those that do are paid for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from reticent.errors import BudgetExhausted
from reticent.exact import Number, integer
from reticent.mechanisms.release import noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import accounting, events
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_delta, check_epsilon

ENOUGH = Fraction(64)  # at this ε a draw is nonzero once in 10^8: a segment gains nothing from a larger ε
LEAST_EPSILON = Fraction(1, 10**12)  # with a smaller ε per segment, only counts beyond 10^12 could be distinguished


def check_segments(epsilon: Number, halts: int) -> tuple[Fraction, int]:
    """Check ε and the number of halts of a mechanism that searches for a width.

    Parameters
    ----------
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of all segments together, at least 10^-12 per segment.
    halts : int
        Number of segments, at least 1.

    Returns
    -------
    epsilon : Fraction
        The exact ε.
    halts : int
        The number of segments.
    """
    exact, times = check_epsilon(epsilon), integer(halts, "halts", least=1)
    if exact < times * LEAST_EPSILON:
        raise ValueError(f"epsilon must be at least {float(times * LEAST_EPSILON):g} for halts={times}, got {epsilon}")
    return exact, times


class Segments(Guarded):
    """Shared state of the sparse-vector mechanisms: the halts left, and the noise of the current segment.

    Threshold noise is drawn at the first query of a segment and stored with the number of halts left at that time. So a
    counted halt invalidates the noise, even if a call is interrupted. The class is `Guarded`: a copy or a forked
    process would answer again on the same budget, with the same noise.

    Parameters
    ----------
    scale : Fraction
        Scale of the threshold noise, a discrete Laplace draw.
    halts : int
        Number of halts after which the mechanism refuses.
    event : Event
        What all answers together cost.
    unsafe_noise : Noise or None
        Noise for tests; None draws from the operating system.

    Attributes
    ----------
    event : Event
        What all answers together cost; marked as `SeededRelease` if `unsafe_noise` is given.
    """

    def __init__(self, *, scale: Fraction, halts: int, event: events.Event, unsafe_noise: Noise | None) -> None:
        self.event = release(None, event, unsafe_noise).event
        self._noise = noise_or_system(unsafe_noise)
        self._scale = scale
        self._halts = self._left = halts
        self._drawn = -1, 0  # the halts left when noise was drawn (−1: no noise yet), and the noise
        self._guard = Guard(type(self))

    @property
    def halts_left(self) -> int:
        """The number of halts before the mechanism closes. It follows from the answers, so it is not private."""
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

    def state(self) -> list[int]:
        """The halts left and the noise of the current segment, which is as secret as the rows.

        Only one object may continue from it: two would answer on the same budget, with the same noise.
        """
        self._guard.check()
        return [self._left, *self._drawn]

    def resume(self, state: Sequence[int]) -> None:
        """Continue from what `state` returned, in place of the object that returned it."""
        with self._guard.claim():
            if len(state) != 3:
                raise ValueError(f"state must have 3 numbers, got {len(state)}")
            left, drawn, noise = (integer(one, "state") for one in state)
            if not 0 <= left <= self._halts:
                raise ValueError(f"state must have 0 to {self._halts} halts left, got {left}")
            self._left, self._drawn = left, (drawn, noise)


class AboveThreshold(Segments):
    """Answer whether each integer of a stream reaches `threshold`, until `halts` of them did.

    `ask(value)` returns True, a *halt*, if value + noise ≥ threshold + noise'. Only halts are counted; answers of False
    are free, in any number. After the last halt, `ask` refuses before it reads a value. Values are whole numbers that
    move by at most 1 when one row is replaced (counts, votes). Each may be chosen depending on earlier answers.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for all answers together, for any number of queries.

    Why. A segment is the answers up to and including a halt. Shifting its threshold noise by 1 keeps every False and
    costs ε1; one True costs 2·ε2 of the noise of its value. Segments draw their own noise, so they compose adaptively.
    The proof is in docs/mechanisms/above_threshold.md.

    Source. Dwork and Roth, *The Algorithmic Foundations of Differential Privacy*, Algorithms 1 and 2, as used by Liu,
    Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 6. Repaired: its loop "while c ≤ T"
    halts once more than it accounts for. Here with integer noise, a better split of ε and optimal composition.

    Parameters
    ----------
    threshold : int
        The threshold. It is public.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of all answers together.
    delta : int, float, Fraction or Decimal, default 0
        Failure probability δ of the guarantee. Above 0, several halts compose at a lower cost.
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
        shared, single = split_segment(segment)
        self._value_scale = 1 / single
        event = events.SparseVectorRun(segment, halts)
        super().__init__(scale=1 / shared, halts=halts, event=event, unsafe_noise=unsafe_noise)

    def ask(self, value: int) -> bool:
        """Return whether a value reaches the threshold, up to noise. True is a halt.

        Parameters
        ----------
        value : int
            A count that one replaced row moves by at most 1.

        Returns
        -------
        bool
            Whether value + noise ≥ threshold + noise'.

        Raises
        ------
        BudgetExhausted
            After the last halt. The value is not read.
        """
        with self._guard.claim():
            self.refuse_if_closed()
            distance = self.threshold - integer(value, "value")
            above = bool(self._noise.laplace_cell(self._value_scale, [distance + self._shared_noise()]))
            if above:
                self._halt()
            return above


def split_segment(segment: Fraction) -> tuple[Fraction, Fraction]:
    """Split the ε of a segment into ε1 (threshold noise) and ε2 (noise of each value): ε1 + 2·ε2 = ε."""
    return segment * 2 / 5, segment * 3 / 10


@lru_cache(maxsize=256)
def segment_epsilon(*, epsilon: Fraction, delta: Fraction, halts: int) -> Fraction:
    """Return the ε of each of `halts` segments that together are (ε, δ)-DP, to a thousandth of ε/halts.

    >>> segment_epsilon(epsilon=Fraction(1), delta=Fraction(0), halts=4)
    Fraction(1, 4)
    """
    basic = min(epsilon / halts, ENOUGH)
    if halts == 1 or delta == 0:
        return basic

    def too_much(thousandths: int) -> bool:
        event = events.SparseVectorRun(basic * (1000 + thousandths) / 1000, halts)
        return not accounting.fits(event, epsilon=epsilon, delta=delta)

    most = min(Fraction(halts), ENOUGH / basic)
    return basic * (1000 + least(lambda extra: extra > 1000 * (most - 1) or too_much(extra)) - 1) / 1000


def least(holds: Callable[[int], bool], *, guess: int = 1) -> int:
    """Return the least integer ≥ 0 from which on `holds` is true. A good guess saves calls.

    Parameters
    ----------
    holds : callable
        A monotone predicate of an integer: false below some number, true from it on.
    guess : int, default 1
        Where the search starts.
    """
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
