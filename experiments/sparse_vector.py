"""StableMajority: how wide the screen must be, as printed and here, and the exact δ that it leaks."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from experiments.table import Table
from reticent.audit import exact, law
from reticent.mechanisms.above_threshold import AboveThreshold, segment_epsilon, split_segment
from reticent.mechanisms.sparse_vector import StableMajority, discrete_difference_tail
from reticent.noise import Noise

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)


def tables() -> list[Table]:
    """The tables of the page on StableMajority."""
    return [_widths(), _leak()]


def _widths() -> Table:
    rows = []
    for halts in (1, 10, 50, 500):
        for votes in (2000, 10**6):
            printed = _printed_scale(halts)
            optimal = 2 / float(segment_epsilon(epsilon=EPSILON, delta=DELTA / 2, halts=halts))
            here = StableMajority(epsilon=EPSILON, delta=DELTA, halts=halts)
            rows.append((
                str(halts), f"{votes:,}", f"{3 * printed * math.log(2 * (votes + halts) / DELTA):,.0f}",
                f"{_union(printed, votes * halts):,.0f}", f"{_union(optimal, votes * halts):,.0f}",
                f"{_union(optimal, halts):,.0f}", f"{here.width:,}",
            ))  # fmt: skip
    columns = (
        "halts T", "votes ℓ", "printed", "union over pairs (ℓT)", "… and optimal λ", "by segments (T)", "here",
    )  # fmt: skip
    return Table("Width of the screen, in votes, at ε = 1 and δ = 1e-6", columns, tuple(rows))


def _printed_scale(halts: int) -> float:
    spread = math.log(2 / DELTA)
    return (math.sqrt(2 * halts * (EPSILON + spread)) + math.sqrt(2 * halts * spread)) / float(EPSILON)


def _union(scale: float, events: int) -> float:
    """w with events·P(Lap(2λ) − Lap(λ) > w) ≤ δ/2, as P ≤ (2/3)·e^(−w/2λ)."""
    return 2 * scale * math.log(4 * events / (3 * DELTA))


def _leak() -> Table:
    rows = []
    for epsilon, halts, delta in ((10, 2, Fraction(75, 10**4)), (8, 2, Fraction(1, 100)), (4, 1, Fraction(1, 50))):
        votes = StableMajority(epsilon=epsilon, delta=delta, halts=halts)
        segment = segment_epsilon(epsilon=Fraction(epsilon), delta=Fraction(0), halts=halts)
        bound = halts * discrete_difference_tail(votes.width + 1, *split_segment(segment))
        leaks = [_exact_leak(epsilon, halts, width) for width in (votes.width, votes.width - 1)]
        rows.append((
            str(epsilon), f"{float(delta):g}", str(halts), str(votes.width), f"{float(bound):.5f}",
            *(f"{value:.5f}" for value in leaks),
        ))  # fmt: skip
    columns = ("ε", "δ asked for", "halts", "width", "T·P(ν − ρ > w)", "exact δ", "exact δ with a width of one less")
    return Table("What the real code leaks where every vote is a tie that one voter decides", columns, tuple(rows))


def _exact_leak(epsilon: int, halts: int, width: int) -> float:
    """The exact δ at ε on 41 voters of whom 20 are for it, or 21: `StableMajority` as it is but for the width."""

    def run(noise: Noise, outcome: int) -> tuple[int | None, ...]:
        screen = AboveThreshold(-width, epsilon=epsilon, halts=halts, unsafe_noise=noise)
        return tuple(None if screen.ask(0) else outcome for _ in range(halts))

    zero, one = (law(partial(run, outcome=outcome), tail_bits=30) for outcome in (0, 1))
    return exact(zero, one).delta(epsilon)[0]
