"""Tables over the number of votes: the probability of the answer 1, and a certified bound on what an answer leaks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from reticent.exact import Number, integer, rational, upward
from reticent.mechanisms.counts import Integers, integer_array
from reticent.noise import Noise
from reticent.privacy import games

BITS = 62  # an entry t stands for the probability t/2^62
ONE = 1 << BITS
MOST_TEACHERS = 1 << 24  # a longer table would take too much memory

Entries = NDArray[np.int64]
Floats = NDArray[np.float64]

# Every elementary operation below has a relative error of a few units of 2^-52. Arguments of expm1 stay below 60 in
# absolute value wherever the result matters. So no term has a relative error above this.
_PAD = 2e-13


@dataclass(frozen=True, eq=False)
class VoteTable:
    """The answer is 1 with probability entries[v]/2^62 if v teachers vote for 1; otherwise it is 0.

    Every labeller whose bit depends on the number of votes alone is such a table: noise added to the count, a poll of
    some teachers, or both. A replaced row moves v by at most 1, so what an answer leaks is decided by neighbouring
    entries. These are integers, and answers are drawn from them exactly. So the price is a fact about the stored table,
    not about the formula that it was computed from.

    Parameters
    ----------
    entries : array of int64, shape (teachers + 1,)
        2^62 times the probability of the answer 1, for each number of votes.
    """

    entries: Entries

    def __post_init__(self) -> None:
        entries = np.array(self.entries)  # a copy: the certificate is about what is stored
        if entries.ndim != 1 or len(entries) < 2 or entries.dtype != np.int64:
            raise TypeError("entries must be an int64 array with one entry for each number of votes from 0 on")
        if int(entries.min()) < 0 or int(entries.max()) > ONE:
            raise ValueError("entries must lie in [0, 2^62]")
        entries.flags.writeable = False
        object.__setattr__(self, "entries", entries)

    @classmethod
    def symmetric(cls, complements: Entries, teachers: int) -> VoteTable:
        """Return the table that treats both classes alike, from 2^62 less its entries at ⌈K/2⌉, …, K of K votes."""
        return cls(np.concatenate([complements[::-1], ONE - complements[1 - teachers % 2 :]]))

    @property
    def teachers(self) -> int:
        """Number of teachers."""
        return len(self.entries) - 1

    @property
    def probabilities(self) -> Floats:
        """The probability of the answer 1 for each number of votes, rounded."""
        return self.entries / ONE

    def draw(self, votes: Integers, noise: Noise) -> NDArray[np.int64]:
        """Draw an answer, 0 or 1, to each question, where `votes` are the numbers of teachers that vote for 1."""
        counts = integer_array(votes, "votes", least=0, most=self.teachers)
        return noise.coins(self.entries[counts], BITS).astype(np.int64)

    def divergence(self, order: Number) -> Fraction:
        """Return a bound on the Rényi divergence between the answers at v and v + 1 votes, in both directions.

        It is the largest over all v, computed from the stored integers and padded by more than the rounding. Raises a
        `ValueError` if it is infinite.

        Parameters
        ----------
        order : float or Fraction
            Order of the divergence, above 1.

        >>> VoteTable(np.array([ONE // 4, ONE // 2, 3 * ONE // 4])).divergence(2) > 0.28
        True
        """
        alpha = check_order(order)
        worst = float(np.max(excess_moments(self.entries[:-1], self.entries[1:], alpha)))
        if not math.isfinite(worst):
            raise ValueError("the table leaks without bound: an entry is too close to 0 or 2^62, the next is not")
        return Fraction(math.log1p(max(worst, 1e-300)) / (alpha - 1) * (1 + _PAD))

    def profile(self, answers: int) -> games.Profile:
        """Return what this number of adaptive answers costs by the exact game: δ(ε) for every ε, from above.

        It is tighter than divergences of one order, but takes seconds for a thousand answers of a thousand teachers.

        >>> table = VoteTable(np.array([ONE // 4, ONE // 2, 3 * ONE // 4]))
        >>> round(table.profile(1).delta(0), 6)
        0.25
        """
        ends = np.sort(np.stack(log_ratios(self.entries[:-1], self.entries[1:])), axis=0)
        if not bool(np.isfinite(ends).all()):
            raise ValueError("the table leaks without bound: an entry is 0 or 2^62 next to one that is not")
        return games.profile(games.Coins(ends[1], -ends[0]), integer(answers, "answers", least=1))


def check_teachers(teachers: int) -> int:
    """Return a number of teachers for which there can be a table."""
    return integer(teachers, "teachers", least=1, most=MOST_TEACHERS)


def check_order(order: Number) -> float:
    """Return an order > 1 as a float not below it: divergences grow with the order, so a bound there is valid."""
    exact = rational(order, "order")
    if not 1 < exact < 10**6:
        raise ValueError(f"order must be above 1 and below 10^6, got {order}")
    return upward(exact)


def excess_moments(first: Entries, second: Entries, alpha: float, *, both: bool = True) -> Floats:
    """Return bounds on E_P[(dQ/dP)^α] − 1 for coins P, Q with the given entries; with `both`, in both directions.

    With P = (p, 1 − p) and Q = (p + d, 1 − p − d) it is p·((1 + d/p)^α − 1) + (1 − p)·((1 − d/(1 − p))^α − 1). The two
    terms nearly cancel; each is computed to its last bits from the integers, so the pad stays far below the sum.
    """
    forward = _excess(first, second, alpha)
    return np.asarray(np.maximum(forward, _excess(second, first, alpha))) if both else forward


def log_ratios(base: Entries, other: Entries) -> tuple[Floats, Floats]:
    """Return ln(q/p) and ln((1 − q)/(1 − p)) for p = base/2^62 and q = other/2^62, to their last bits."""
    step = (other - base).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _log_ratio(base, other, step), _log_ratio(ONE - base, ONE - other, -step)


def _excess(base: Entries, other: Entries, alpha: float) -> Floats:
    logs = log_ratios(base, other)
    with np.errstate(invalid="ignore", over="ignore"):
        ones = base / ONE * np.expm1(alpha * logs[0])
        zeros = (ONE - base) / ONE * np.expm1(alpha * logs[1])
        total = ones + zeros + _PAD * (np.abs(ones) + np.abs(zeros))
    return np.where(base == other, 0.0, np.where(np.isnan(total), np.inf, np.maximum(total, 0.0)))


def _log_ratio(base: Entries, other: Entries, step: Floats) -> Floats:
    ratio = step / base
    near = np.abs(ratio) < 0.5
    return np.where(near, np.log1p(np.where(near, ratio, 0.0)), np.log(other / base))
