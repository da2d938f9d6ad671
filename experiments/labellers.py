"""How many answers an ε buys: greedy, bit and noisy count side by side; hits of two coins; the game against Rényi."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from experiments.table import Table
from reticent.labellers import Gaussian, Greedy, Poll, TwoCoin
from reticent.labellers.two_coin import blurred_closing
from reticent.privacy import divergences
from reticent.privacy.events import GaussianBit, Repeated
from reticent.privacy.games import gaussian_bits

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


def tables() -> list[Table]:
    """The labellers without a memory, the price of bits, polls, and two coins."""
    return [_chances(), _bits(), _polls(), _hits(), _closing()]


def _chances() -> Table:
    rows = []
    for teachers, answers in ((259, 30), (259, 200), (781, 1500)):
        greedy = Greedy(teachers=teachers, answers=answers, **BUDGET)
        count = Gaussian(teachers=teachers, answers=answers, **BUDGET)
        for share in (0.55, 0.65, 0.8, 0.95):
            votes = round(share * teachers)
            row = [[teachers - votes, votes]]
            rows.append((str(teachers), str(answers), f"{votes / teachers:.2f}",
                         *(f"{labeller.accuracy(row, np.array([1])):.4f}" for labeller in (count, greedy))))
    columns = ("teachers", "answers", "share of votes", "noisy count", "greedy")
    return Table("Chance of the majority's answer at ε = 1, δ = 1e-6", columns, tuple(rows))


def _bits() -> Table:
    rows = []
    for sigma, voters, answers in ((12, 129, 10), (35, 259, 100), (60, 259, 300)):
        event = Repeated(GaussianBit(Fraction(sigma), voters), answers)
        game = gaussian_bits(Fraction(sigma), voters, answers).delta(1.0)
        rows.append((str(sigma), str(answers), f"{divergences.deltas(event, np.array([1.0]))[0]:.2e}", f"{game:.2e}"))
    return Table("δ at ε = 1 of bits", ("σ", "answers", "Rényi divergences", "exact game"), tuple(rows))


def _polls() -> Table:
    rows = []
    for teachers in (259, 781, 3220, 12880):
        for poll in (3, 7, 17):
            labeller = Poll(teachers=teachers, poll=poll, **BUDGET)
            rows.append((str(teachers), str(poll), str(labeller.answers)))
    return Table("Answers by poll at ε = 1, δ = 1e-6, flip = 0.005", ("teachers", "poll", "answers"), tuple(rows))


def _hits() -> Table:
    rows = []
    for teachers in (259, 781, 3220, 10000):
        for steepness in (6, 15):
            try:
                hits = str(TwoCoin(teachers=teachers, steepness=steepness, **BUDGET).hits)
            except ValueError:
                hits = "too few"
            rows.append((str(teachers), str(steepness), f"{steepness / (2 * teachers):.5f}", hits))
    columns = ("teachers", "steepness 2sK", "s", "hits N")
    return Table("Hits that ε = 1, δ = 1e-6 buys two coins", columns, tuple(rows))


def _closing() -> Table:
    rows = tuple(
        (f"{epsilon:g}", f"1e{math.log10(delta):.0f}", str(tries), str(blurred_closing(epsilon, delta, tries).margin))
        for epsilon, delta, tries in ((1, 1e-6, 2), (1, 1e-6, 3), (0.5, 1e-6, 2), (0.1, 1e-9, 2))
    )
    columns = ("query ε", "query δ", "tries J", "hits kept back")
    return Table("How much earlier the blurred end comes", columns, rows)
