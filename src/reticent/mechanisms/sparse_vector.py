"""Sparse vector on votes: the exact majority, wherever it is too clear for a single voter to change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from numpy.typing import NDArray

from reticent.exact import Number, exp_fractions, integer
from reticent.mechanisms.above_threshold import AboveThreshold, check_segments, least, segment_epsilon, split_segment
from reticent.mechanisms.release import release
from reticent.noise import Noise
from reticent.privacy import events
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_delta


class StableMajority(Guarded):
    """Answer votes by their exact majority if it is stable, by None if it is not, until `halts` were not.

    The *distance* of a vote is the number of voters who can change their votes without changing the outcome. A vote is
    answered if distance + noise > width + noise'; else the answer is None, a *halt*. Stable votes are free, in any
    number, and answered without error. After the last halt, the object refuses before it reads a vote. A replaced row
    may change the vote of one voter in every query; each vote may be chosen depending on earlier answers.

    Guarantee. (ε, δ)-differential privacy for a replaced row, for all answers together, for any number of queries.

    Why. The distance moves by at most 1, and is 0 on both neighbours where their outcomes differ. So the halts are
    those of `AboveThreshold`, and an answer can reveal more only if a vote at distance 0 passes, which `width` makes
    unlikely, once per segment. The proof is in docs/mechanisms/sparse_vector.md.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 2, after Bassily,
    Thakkar, Thakurta. There the width grows with the number of votes, by a union bound over all noise; here it does
    not. Repaired: the printed distance is one too small above an even tie. Composition is optimal, the tail exact, and
    there may be more than two classes.

    Parameters
    ----------
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of all answers together.
    delta : int, float, Fraction or Decimal
        Failure probability δ of the guarantee, above 0.
    halts : int
        Number of halts after which the mechanism refuses.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Attributes
    ----------
    width : int
        The distance above which a vote is answered, up to noise.
    event : Event
        What all answers together cost.

    Examples
    --------
    >>> votes = StableMajority(epsilon=1, delta=1e-6, halts=1)
    >>> votes.ask(990, voters=1000), votes.ask(20, voters=1000), votes.ask_counts([5, 700, 3])
    (1, 0, 1)
    >>> votes.ask(501, voters=1000), votes.halts_left
    (None, 0)
    """

    def __init__(self, *, epsilon: Number, delta: Number, halts: int, unsafe_noise: Noise | None = None) -> None:
        epsilon, halts = check_segments(epsilon, halts)
        delta = check_delta(delta, positive=True)
        segment, self.width, failure = calibrate_width(epsilon, delta, halts)
        self._screen = AboveThreshold(
            -self.width, epsilon=epsilon, delta=delta - failure, halts=halts, unsafe_noise=unsafe_noise
        )
        self.event = release(None, events.SparseVectorRun(segment, halts, failure), unsafe_noise).event
        self._guard = Guard(type(self))

    @property
    def halts_left(self) -> int:
        """The number of halts before the mechanism closes. It follows from the answers, so it is not private."""
        return self._screen.halts_left

    def ask(self, votes: int, voters: int) -> int | None:
        """Return 1 if at least half of the voters vote for 1, else 0; None (a halt) if the outcome is not stable.

        Parameters
        ----------
        votes : int
            How many of the voters vote for 1.
        voters : int
            How many voters there are. It is public.
        """
        self._guard.check()
        self._screen.refuse_if_closed()
        voters = integer(voters, "voters", least=1)
        votes = integer(votes, "votes")
        if not 0 <= votes <= voters:
            raise ValueError(f"votes must be between 0 and voters={voters}")
        return self.ask_counts([voters - votes, votes])

    def ask_counts(self, counts: Sequence[int] | NDArray[Any]) -> int | None:
        """Return the class with the highest count (the last of equals), or None (a halt) if it is not stable.

        Parameters
        ----------
        counts : sequence of int
            The votes of two or more classes. The number of classes and the sum of the counts are public.
        """
        self._guard.check()  # the screen keeps threads apart
        self._screen.refuse_if_closed()
        winner, distance = stability(counts)
        return None if self._screen.ask(-distance) else winner


def stability(counts: Sequence[int] | NDArray[Any]) -> tuple[int, int]:
    """Return the class with the highest count, the last of equals, and how many voters may move before another wins.

    A voter who moves from the winner to class j narrows its lead over j by 2, and nothing narrows it faster. So j wins
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


class WidthCalibration(NamedTuple):
    """The ε of a segment, the width of the screen, and the probability δ_w that an unstable vote passes it."""

    segment: Fraction
    width: int
    failure: Fraction


@lru_cache(maxsize=256)
def calibrate_width(epsilon: Fraction, delta: Fraction, halts: int) -> WidthCalibration:
    """Choose the split of δ, half of it or all of it for failures of the screen, that needs the smaller width."""
    candidates = []
    for failure in (delta, delta / 2):
        segment = segment_epsilon(epsilon=epsilon, delta=delta - failure, halts=halts)
        candidates.append(WidthCalibration(segment, least_width(segment=segment, failure=failure / halts), failure))
    return min(candidates, key=lambda candidate: candidate.width)


@lru_cache(maxsize=256)
def least_width(*, segment: Fraction, failure: Fraction) -> int:
    """The least integer w ≥ 0 with P(ν − ρ > w) ≤ failure, for the noise ν, ρ of a segment of `AboveThreshold`."""
    shared, single = split_segment(segment)
    return least(lambda width: discrete_difference_tail(width + 1, shared, single) <= failure)


def discrete_difference_tail(k: int, first: Fraction, second: Fraction) -> Fraction:
    """Bound P(X − Y ≥ k), k ≥ 1, from above, for discrete Laplace X and Y of rates first > second > 0.

    The bound is tight within a factor of about 1 + 2^−128. With a = e^−first and b = e^−second it is

        ( b^(k+1)·(1 − a)²/(1 + b) − a^(k+1)·(1 − b)²/(1 + a) ) / ( (b − a)·(1 − a·b) ),

    the sum over j ≥ k of the convolution of the two laws.
    """
    bits = 192 + 4 * math.ceil(1 / (first - second)).bit_length()  # the differences of nearby powers cancel
    (a, a_high), (b, b_high) = exp_fractions(-first, bits), exp_fractions(-second, bits)
    power_a, power_b = exp_fractions(-first * (k + 1), bits)[0], exp_fractions(-second * (k + 1), bits)[1]
    numerator = power_b * (1 - a) ** 2 / (1 + b) - power_a * (1 - b_high) ** 2 / (1 + a_high)
    return numerator / ((b - a_high) * (1 - a_high * b_high))
