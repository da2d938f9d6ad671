"""The exact majority of a vote, whenever it is so clear that no single voter could change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from numpy.typing import NDArray

from reticent.exact import Number, exp_fractions, integer
from reticent.mechanisms.above_threshold import AboveThreshold, check_segments, least, segment_epsilon, split
from reticent.mechanisms.release import release
from reticent.noise import Noise
from reticent.privacy import events
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_delta


class SparseVector(Guarded):
    """Answers votes by their exact majority where it is stable, by None where it is not, until `halts` were not.

    The *distance* of a vote is the number of voters who can change their minds without changing the outcome. A vote is
    answered where distance + noise > width + noise'; else the answer is None, a *halt*. Stable votes are free, in any
    number, and answered without error. After the last halt the object is closed and refuses before it looks at a vote.
    A replaced row may change one voter's mind in every vote; each vote may be chosen in the light of earlier answers.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for all answers together, however many are asked for.

    Why. The distance to the nearest vote of another outcome moves by at most 1 when one voter does, and where two
    neighbours have different outcomes it is 0 on both. Call such a vote *split*. Print "*" for every answer to a split
    vote: what is left follows from the halts alone, which `AboveThreshold` announces within (ε, δ − δ_w). And "*" is
    printed with probability at most δ_w, on either data set: in each segment only the first split vote matters, since
    it is answered or ends the segment. Its own noise ν is fresh, so whatever was asked before, it is asked and answered
    with probability Σ_r P(ρ = r, it is asked)·P(ν > width + r) ≤ P(ν − ρ > width); `width` is the least integer with
    halts·P(ν − ρ > width) ≤ δ_w. So any set S of answers, S* those of it without "*", has
    P(S) ≤ P(S*) + δ_w ≤ e^ε·P'(S*) + (δ − δ_w) + δ_w ≤ e^ε·P'(S) + δ. Of δ, half or all goes to δ_w, whichever
    leaves the smaller width.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 2, after Bassily,
    Thakkar, Thakurta. Printed with w = 3λ·ln(2(ℓ + T)/δ) for ℓ votes and T halts, by a union bound over all noise. The
    argument by segments needs no ℓ: the width does not grow with the number of votes, and none is too many. The
    printed distance is one too small above an even tie. Composition is optimal, the tail exact, and there may be more
    than two classes.

    >>> votes = SparseVector(epsilon=1, delta=1e-6, halts=1)
    >>> votes.ask(990, voters=1000), votes.ask(20, voters=1000), votes.ask_counts([5, 700, 3])
    (1, 0, 1)
    >>> votes.ask(501, voters=1000), votes.halts_left
    (None, 0)
    """

    def __init__(self, *, epsilon: Number, delta: Number, halts: int, unsafe_noise: Noise | None = None) -> None:
        epsilon, halts = check_segments(epsilon, halts)
        delta = check_delta(delta, positive=True)
        plan = _plan(epsilon, delta, halts)
        self.width = plan.width
        self._screen = AboveThreshold(
            -plan.width, epsilon=epsilon, delta=delta - plan.failure, halts=halts, unsafe_noise=unsafe_noise
        )
        self.event = release(None, events.SparseVector(plan.segment, halts, plan.failure), unsafe_noise).event
        self._guard = Guard(type(self))

    @property
    def halts_left(self) -> int:
        """How many halts are still to come before it is closed. Whoever saw the answers knows this number."""
        return self._screen.halts_left

    def ask(self, votes: int, voters: int) -> int | None:
        """Whether at least half of the voters are for it: 1 or 0, or None (a halt) where that is not stable."""
        self._guard.check()
        self._screen.refuse_if_closed()
        voters = integer(voters, "voters", least=1)
        votes = integer(votes, "votes")
        if not 0 <= votes <= voters:
            raise ValueError(f"votes must be between 0 and voters={voters}")
        return self.ask_counts([voters - votes, votes])

    def ask_counts(self, counts: Sequence[int] | NDArray[Any]) -> int | None:
        """The class with the highest of two or more counts (the last of equals), or None (a halt) where it is not
        stable. The number of classes and the sum of the counts are public."""
        self._guard.check()  # the screen keeps threads apart
        self._screen.refuse_if_closed()
        winner, distance = stability(counts)
        return None if self._screen.ask(-distance) else winner


def stability(counts: Sequence[int] | NDArray[Any]) -> tuple[int, int]:
    """The class with the highest count, the last of equals, and how many voters may move before another wins.

    A voter who leaves the winner for class j narrows its lead over j by 2, and nothing narrows it faster. So j wins
    after ⌊lead/2⌋ + 1 moves if it comes before the winner, ⌊(lead − 1)/2⌋ + 1 if it comes after and so wins ties.

    >>> stability([4, 4]), stability([3, 5]), stability([5, 3])
    ((1, 0), (1, 1), (0, 0))
    """
    try:
        entries = list(counts)
    except TypeError:
        raise TypeError(f"counts must be a sequence of whole numbers, got {type(counts).__name__}") from None
    numbers = [integer(count, "each of counts") for count in entries]
    if len(numbers) < 2:
        raise ValueError(f"counts must hold at least two classes, got {len(numbers)}")
    if min(numbers) < 0:
        raise ValueError("counts must not be negative")
    winner = max(range(len(numbers)), key=lambda j: (numbers[j], j))
    leads = [numbers[winner] - count - (j > winner) for j, count in enumerate(numbers) if j != winner]
    return winner, min(leads) // 2


class Plan(NamedTuple):
    """The ε of a segment, the width of the screen, and the probability δ_w that it fails."""

    segment: Fraction
    width: int
    failure: Fraction


@lru_cache(maxsize=256)
def _plan(epsilon: Fraction, delta: Fraction, halts: int) -> Plan:
    plans = []
    for failure in (delta, delta / 2):
        segment = segment_epsilon(epsilon=epsilon, delta=delta - failure, halts=halts)
        plans.append(Plan(segment, least_width(segment=segment, failure=failure / halts), failure))
    return min(plans, key=lambda plan: plan.width)


@lru_cache(maxsize=256)
def least_width(*, segment: Fraction, failure: Fraction) -> int:
    """The least integer w ≥ 0 with P(ν − ρ > w) ≤ failure, for the noise of a segment of `AboveThreshold`."""
    shared, single = split(segment)
    return least(lambda width: difference_tail(width + 1, shared, single) <= failure)


def difference_tail(k: int, first: Fraction, second: Fraction) -> Fraction:
    """An upper bound, within a factor of about 1 + 2^−128, on P(X − Y ≥ k), k ≥ 1, for discrete Laplace X and Y of
    rates first > second > 0. With a = e^−first and b = e^−second it is

        ( b^(k+1)·(1 − a)²/(1 + b) − a^(k+1)·(1 − b)²/(1 + a) ) / ( (b − a)·(1 − a·b) ),

    the sum over j ≥ k of the convolution of the two laws.
    """
    bits = 192 + 4 * math.ceil(1 / (first - second)).bit_length()  # the differences of nearby powers cancel
    (a, a_high), (b, b_high) = exp_fractions(-first, bits), exp_fractions(-second, bits)
    power_a, power_b = exp_fractions(-first * (k + 1), bits)[0], exp_fractions(-second * (k + 1), bits)[1]
    numerator = power_b * (1 - a) ** 2 / (1 + b) - power_a * (1 - b_high) ** 2 / (1 + a_high)
    return numerator / ((b - a_high) * (1 - a_high * b_high))
