"""BetweenThresholds: how far apart the thresholds must be, what the sign of μ does, and what a halt tells."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from experiments.table import Table
from reticent.audit import exact, law
from reticent.mechanisms.above_threshold import least
from reticent.mechanisms.between_thresholds import BetweenThresholds, required_gap, segment_failure, segment_split
from reticent.noise import Noise

DELTA = Fraction(1, 10**6)


def tables() -> list[Table]:
    """The tables of the page on BetweenThresholds."""
    return [_gaps(), _halts(), _leak(), _signs(), _queries()]


def _gaps() -> Table:
    rows = []
    for epsilon in (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)):
        shared, single, slack = epsilon / 2, epsilon / 6, epsilon / 6
        windowed = _windowed(float(shared), float(single), float(slack))
        summed = _summed(shared, single, slack)
        here = required_gap(epsilon=epsilon, delta=DELTA)
        chosen, value, _ = segment_split(epsilon=epsilon, delta=DELTA)
        rows.append((
            f"{float(epsilon):g}", f"{_printed(float(epsilon), float(DELTA)):,.0f}", f"{windowed:,}", f"{summed:,}",
            f"{here:,}",
            f"{float(chosen / epsilon):.2f} : {float(2 * value / epsilon):.2f}",
            f"{windowed + 2 * math.log(500) / single:,.0f}", f"{here + 2 * math.log(500) / value:,.0f}",
        ))  # fmt: skip
    columns = (
        "ε", "printed gap", "printed split, exact windows", "printed split, the sum", "here", "split ε1 : 2ε2",
        "doubt, printed split", "doubt, here",
    )  # fmt: skip
    return Table("Required gap in votes, one halt, δ = 1e-6", columns, tuple(rows))


def _printed(epsilon: float, delta: float) -> float:
    return 12 / epsilon * (math.log(10 / epsilon) + math.log(1 / delta) + 1)


def _windowed(shared: float, single: float, slack: float) -> int:
    """The least gap with P(n(μ) < w0) ≤ δ, where windows of w0 integers and more cost at most 2·ε2 + η."""
    w0 = math.log(math.expm1(slack + 2 * single) / math.expm1(slack)) / single
    beyond = next(m for m in range(1, 10**9) if math.exp(-shared * m) / (1 + math.exp(-shared)) <= DELTA)
    return math.ceil(w0) + 2 * beyond - 3  # the window of μ = beyond − 1 has gap + 1 − 2μ integers


def _summed(shared: Fraction, single: Fraction, slack: Fraction) -> int:
    return 2 * least(lambda most: bool(segment_failure(most, shared, single, slack) <= DELTA)) + 1


def _halts() -> Table:
    rows = []
    for halts in (1, 10, 100, 1000):
        per_halt = float(DELTA) / (2 * halts if halts > 1 else 1)
        segment = _printed_segment(halts, per_halt)
        here = required_gap(epsilon=1, delta=DELTA, halts=halts)
        rows.append((str(halts), f"{segment:.4g}", f"{_printed(segment, per_halt):,.0f}", f"{here:,}"))
    columns = ("halts", "ε' by Observation 2", "printed gap", "here")
    return Table("Required gap in votes, several halts, ε = 1, δ = 1e-6", columns, tuple(rows))


def _printed_segment(halts: int, per_halt: float) -> float:
    """The largest ε' that Observation 2, with its root over the logarithm only, takes to ε = 1."""
    if halts == 1:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = math.sqrt(2 * halts * math.log(1 / (halts * per_halt))) * middle + halts * middle * math.expm1(middle)
        low, high = (middle, high) if total <= 1 else (low, middle)
    return low


def _leak() -> Table:
    rows = []
    for epsilon, delta in product((2, 4), (Fraction(1, 1000), DELTA)):
        gap = required_gap(epsilon=epsilon, delta=delta)
        leak, short = (worst_leak(epsilon, delta, shorter=shorter) for shorter in (False, True))
        rows.append((
            str(epsilon), f"{float(delta):g}", str(gap), f"{leak:.2e}", f"{leak / delta:.1%}",
            str(shorter_gap(gap)), f"{short:.2e}", f"{short / delta:.3g}",
        ))  # fmt: skip
    title = "Exact δ of conversations that pin μ by three answers low and three high, then ask for a halt"
    columns = (
        "ε", "δ asked for", "gap", "exact δ at ε", "share", "gap 30 % shorter", "exact δ at ε then", "times δ",
    )  # fmt: skip
    return Table(title, columns, tuple(rows))


def shorter_gap(gap: int) -> int:
    """2M + 1 for an M that is 30 % less.

    Parameters
    ----------
    gap : int
        The required gap between the thresholds, 2M + 1.
    """
    return 2 * (gap // 2 * 7 // 10) + 1


def worst_leak(epsilon: int, delta: Fraction, *, shorter: bool) -> float:
    """The worst δ at ε of such a conversation, at the required gap, or at one 30 % shorter, which is refused.

    Parameters
    ----------
    epsilon : int
        The ε.
    delta : Fraction
        The δ that the gap is computed for.
    shorter : bool
        Whether the gap is 30 % shorter.
    """
    gap = required_gap(epsilon=epsilon, delta=delta)
    used = shorter_gap(gap) if shorter else gap
    return max(_exact_leak(epsilon, delta, gap, used, low) for low in range(max(0, used // 2 - 4), max(1, used // 2)))


def _exact_leak(epsilon: int, delta: Fraction, gap: int, used: int, low: int) -> float:
    """On values `low` inside the gap (on the neighbour one more), then one more (on the neighbour the same)."""

    def run(inside: int, noise: Noise) -> bool:
        sides = BetweenThresholds(0, gap, epsilon=epsilon, delta=delta, unsafe_noise=noise)
        sides.upper, sides._most = used, used // 2
        pinned = all(sides.ask(inside) == "low" and sides.ask(used - inside) == "high" for _ in range(3))
        return pinned and sides.ask(2 * low + 1 - inside) == "between"

    first, second = (law(partial(run, inside), tail_bits=60) for inside in (low, low + 1))
    return exact(first, second).delta(epsilon)[0]


def _signs() -> Table:
    shared, single, _ = map(float, segment_split(epsilon=1, delta=DELTA))
    mu = np.arange(-100, required_gap(epsilon=1, delta=DELTA) // 2 + 1)

    def log_likelihood(count: int, inside: int, sign: int) -> float:
        """Of so many answers low and high to values that lie inside the gap by so much, the upper threshold moving by
        sign·μ."""
        answers = _log_below(mu - inside, single) + _log_below(-sign * mu - inside, single)
        return _log_sum(-shared * np.abs(mu) + count * answers)

    rows = []
    for count in (1, 20, 200):
        losses = [log_likelihood(count, 0, sign) - log_likelihood(count, 1, sign) for sign in (-1, 1)]
        rows.append((str(count), *(f"{loss:.2f}" for loss in losses)))
    columns = ("answers low, and as many high", "loss with upper − μ", "loss with upper + μ")
    return Table("Values on the thresholds, on the neighbour inside them by 1; ε = 1, δ = 1e-6", columns, tuple(rows))


def _log_below(cut: NDArray[np.int64], rate: float) -> NDArray[np.float64]:
    """ln P(ν < cut) for discrete Laplace noise ν of a rate."""
    ratio = math.exp(-rate)
    low = -rate * (1 - np.minimum(cut, 0)) - math.log1p(ratio)
    return np.where(cut <= 0, low, np.log1p(-np.exp(-rate * np.maximum(cut, 0)) / (1 + ratio)))


def _log_sum(terms: NDArray[np.float64]) -> float:
    top = float(terms.max())
    return top + math.log(float(np.exp(terms - top).sum()))


def _queries() -> Table:
    voters, epsilon, delta = 20_000, Fraction(1, 10), Fraction(1, 10**8)
    gap = required_gap(epsilon=epsilon, delta=delta)
    lower = voters // 2 - gap // 2
    rows = []
    for name, votes in (("split", voters // 2), ("unanimous", voters)):

        def run(noise: Noise, votes: int = votes) -> str:
            return BetweenThresholds(lower, lower + gap, epsilon=epsilon, delta=delta, unsafe_noise=noise).ask(votes)

        rows.append((name, f"{votes:,} of {voters:,}", f"{law(run, tail_bits=60).probability('between'):.3g}"))
    title = "One halt is left: whether it comes tells which query was asked"
    return Table(title, ("query", "votes", "P(halt)"), tuple(rows))
