"""The greedy labeller and its table, whose entries are as far apart as the budget allows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from reticent.exact import Number
from reticent.labellers.ballots import Ballots, Bought, Floats
from reticent.labellers.base import TableLabeller
from reticent.labellers.budget import check_budget, default_order, share, spendable
from reticent.labellers.chances import right_chances, two_class_chances
from reticent.labellers.search import FURTHEST, LAST, STEP, majority_answers
from reticent.labellers.table import ONE, VoteTable, check_order, check_teachers, excess_moments
from reticent.noise import Noise
from reticent.privacy.events import RenyiDP, Repeated
from reticent.privacy.parameters import check_positive

_SLACK = 1e-9  # share of the budget that is left for the rounding of the certificate


class Greedy(TableLabeller):
    """Answers by `greedy_table`, the most accurate table, with an equal share of the budget for each of R answers.

    Guarantee. For a replaced row, which changes one vote: R answers to adaptive questions have a Rényi divergence of at
    most R times that of the table, at one order. This is `event`, which is within (ε, δ). No question affects the
    answers to others, so questions cost nothing.

    Why. Each answer is a fresh coin whose chance depends on the number of votes, which moves by at most 1. Divergences
    of one order add up over adaptive questions. The number of answers is public, and there is no other state. The
    page "Greedy" of the documentation has the proof.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 1, with the best table in
    place of Gaussian noise.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Number of answers R.
    order : float, Fraction or None, default None
        Order of the Rényi divergence; None for `default_order`.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "greedy"
    scales = True

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: Number,
        delta: Number,
        answers: int,
        order: Number | None = None,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        alpha, most = share(exact_epsilon, exact_delta, count, order)
        table = greedy_table(teachers, order=alpha, divergence=most)
        each = RenyiDP(alpha, table.divergence(alpha))
        super().__init__(table, event=Repeated(each, count), answers=count, unsafe_noise=unsafe_noise)

    @classmethod
    def is_automatic(cls, classes: int) -> bool:
        """For two classes: it is the best stateless labeller."""
        return classes == 2

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield the most answers at this loss; the search starts from what Gaussian noise buys."""
        small, factor = (ballots, 1.0) if exact else ballots.coarse()
        if spendable(epsilon, delta, default_order(epsilon, delta)) is None:  # not a single answer fits
            return

        def lost(power: int) -> float:
            chances = _table_chances(small.teachers, epsilon, delta, max(1, round(STEP**power)))
            return small.loss(right_chances(two_class_chances(chances[small.counts[:, 1]]), small.truth))

        fair = small.loss(np.full(len(small.truth), 0.5))  # the limit as the number of answers grows
        if fair <= loss:
            yield Bought(cls.name, FURTHEST, fair)
            return
        # The Gaussian's answers are close enough to start from. A coarse start lets similar ballots share their tables.
        start, step = majority_answers(small, epsilon, delta, loss)[1], 64
        low = high = math.floor(math.log(max(start, 1), STEP)) // step * step
        while low > 0 and lost(low) > loss:
            low, high = max(0, low - step), low
        while high < LAST and lost(high) <= loss:
            low, high = high, min(high + step, LAST)
        low += bisect_right(range(low + 1, high), loss, key=lost)
        yield Bought(cls.name, min(FURTHEST, int(max(1, round(STEP**low)) * factor**2)), lost(low))


@lru_cache(maxsize=256)
def _table_chances(teachers: int, epsilon: Fraction, delta: Fraction, answers: int) -> Floats:
    return Greedy(teachers=teachers, epsilon=epsilon, delta=delta, answers=answers).table.probabilities


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────


def greedy_table(teachers: int, *, order: Number, divergence: Number) -> VoteTable:
    """Return the table that agrees with the majority as often as a Rényi divergence of one order allows.

    At half of the votes, the answer is a fair coin. Above the middle each entry is as large as allowed: the divergences
    between the entries of v and v + 1 votes, in both directions, are at most `divergence`. Below the middle the table
    is mirrored. The chance of an answer against the majority falls faster and faster as the lead grows.

    Guarantee. Neighbouring entries have a Rényi divergence of at most `divergence` at this order, which
    `VoteTable.divergence` certifies again on the finished table. No symmetric table with that property answers with the
    majority more often, at any number of votes (up to the rounding to 62 bits and one part in 10^9 of the budget).

    Why. The largest entry q that is allowed next to an entry p grows with p, so by induction from the middle outwards
    no allowed table has a larger entry. Each entry is found as an integer, from the integer before it: rounding a
    finished table could break the bound. The page "Greedy" of the documentation has the proof.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    order : float or Fraction
        Order of the Rényi divergence, above 1.
    divergence : float or Fraction
        Largest divergence between neighbouring entries.

    >>> table = greedy_table(100, order=20, divergence=0.002)
    >>> float(table.divergence(20)) <= 0.002, table.probabilities[[50, 60, 70, 80]].round(3)
    (True, array([0.5  , 0.57 , 0.639, 0.703]))
    """
    count, alpha = check_teachers(teachers), check_order(order)
    return _table(count, alpha, float(check_positive(divergence, "divergence")) * (1 - _SLACK / 100))


@lru_cache(maxsize=8)
def _table(count: int, alpha: float, target: float) -> VoteTable:
    budget = math.expm1(min((alpha - 1) * target, 700.0))
    upper = np.empty(count // 2 + 1, dtype=np.int64)  # 2^62 minus the entries at ⌈K/2⌉, ⌈K/2⌉ + 1, …
    upper[0] = ONE // 2 if count % 2 == 0 else _first(alpha, budget)
    for index in range(1, len(upper)):
        if upper[index - 1] == 1:  # as close to 1 as 62 bits allow
            upper[index:] = 1
            break
        upper[index] = _next(int(upper[index - 1]), alpha, budget)
    return VoteTable.symmetric(upper, count)


def _next(start: int, alpha: float, budget: float) -> int:
    """The least complement c' of the next entry for which both divergences from the complement c fit the budget.

    With c' = c·e^(−u) both divergences grow with u. The root u is found first, then the integer above.
    """
    mass, goal = start / ONE, budget * (1 - _SLACK)
    first, last = 1 / start, math.log(start)  # a shorter step moves no integer; the complement is at least 1
    if _worse(mass, last, alpha) <= goal:
        return _certified(start, 1, alpha, budget)
    if goal == 0 or _worse(mass, first, alpha) > goal:
        return start
    high = min(max(math.sqrt(2 * goal * (1 - mass) / (mass * alpha * (alpha - 1))), first), last)
    while _worse(mass, high, alpha) <= goal:
        high = min(2 * high, last)
    u = brentq(lambda u: _worse(mass, u, alpha) / goal - 1, 0.0, high, xtol=1e-13 * high, rtol=1e-14)
    return _certified(start, math.ceil(start * math.exp(-u)), alpha, budget)


def _worse(mass: float, u: float, alpha: float) -> float:
    """The larger of the two moments, less 1, between complements c and c·e^(−u)."""
    step = -mass * math.expm1(-u)
    less = mass * math.exp(-u)
    ups, downs = alpha * math.log1p(step / (1 - mass)), -alpha * u
    if max(ups, -downs) > 600:
        return 1e260
    forward = mass * math.expm1(downs) + (1 - mass) * math.expm1(ups)
    backward = less * math.expm1(alpha * u) + (1 - less) * math.expm1(alpha * math.log1p(-step / (1 - less)))
    return max(forward, backward)


def _first(alpha: float, budget: float) -> int:
    """The least complement of the entry just above the middle, for an odd number of teachers: D(c, 1 − c) fits."""
    low, high = 0, ONE // 2  # complements: `high` fits, `low` does not
    while high - low > 1:
        middle = (low + high) // 2
        fits = middle > 0 and _moment(middle, ONE - middle, alpha) <= budget
        low, high = (low, middle) if fits else (middle, high)
    return high


def _certified(start: int, found: int, alpha: float, budget: float) -> int:
    """The first integer tried from `found` on for which the certificate holds; nearly always `found` itself.

    Steps double, so that few are tried even if the budget is so small that only `start` itself can be certified.
    """
    ends = max(1, found)
    step = 1 + (start - ends >> 30)
    while ends < start and _moment(start, ends, alpha) > budget:
        ends, step = min(start, ends + step), 2 * step
    return ends


def _moment(first: int, second: int, alpha: float) -> float:
    pair = np.array([[first], [second]], dtype=np.int64)
    return float(excess_moments(pair[0], pair[1], alpha)[0])
