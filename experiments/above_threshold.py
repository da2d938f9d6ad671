"""AboveThreshold: what a halt may cost, and how close long conversations come to the claim."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from experiments.table import Table
from reticent.audit import law
from reticent.mechanisms.above_threshold import AboveThreshold, segment_epsilon, split_segment
from reticent.noise import Noise

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)


def tables() -> list[Table]:
    """The tables of the page on AboveThreshold."""
    return [_segments(), _losses()]


def _segments() -> Table:
    rows = []
    for halts in (1, 3, 10, 30, 100, 1000):
        basic, composed = (segment_epsilon(epsilon=EPSILON, delta=delta, halts=halts) for delta in (Fraction(0), DELTA))
        noise = [_deviation(*split_segment(segment)) for segment in (basic, composed)]
        rows.append((str(halts), f"{float(basic):.4g}", f"{float(composed):.4g}", *(f"{value:.1f}" for value in noise)))
    columns = ("halts", "ε' at δ = 0", "ε' at δ = 1e-6", "noise at δ = 0", "noise at δ = 1e-6")
    return Table("ε = 1: ε' of a segment, and the standard deviation of ν − ρ", columns, tuple(rows))


def _deviation(*rates: Fraction) -> float:
    """Of the sum of discrete Laplace noises of these rates: the variance of each is 1/(cosh(rate) − 1)."""
    return math.sqrt(sum(1 / (math.cosh(rate) - 1) for rate in rates))


def _losses() -> Table:
    rows = []
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)):
        losses = [_loss(epsilon, count) for count in (0, 1, 5, 20)]
        rows.append((f"{float(epsilon):g}", *(f"{loss:.6f}" for loss in losses)))
    title = "Exact loss of so many answers False to −1 (0 on the neighbour), then True to −10 (−11)"
    return Table(title, ("ε", "no answer False", "1", "5", "20"), tuple(rows))


def _loss(epsilon: Fraction, count: int) -> float:
    laws = [law(partial(_said, epsilon, [side - 1] * count + [-10 - side]), tail_bits=60) for side in (0, 1)]
    return math.log(laws[0].probability(True) / laws[1].probability(True))


def _said(epsilon: Fraction, values: list[int], noise: Noise) -> bool:
    """Whether all answers but the last are False, and the last is True."""
    above = AboveThreshold(0, epsilon=epsilon, unsafe_noise=noise)
    return not any(above.ask(value) for value in values[:-1]) and above.ask(values[-1])
