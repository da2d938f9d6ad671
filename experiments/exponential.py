"""Exact privacy losses of the exponential mechanism, and what floating-point weights would make of them."""

from __future__ import annotations

import math
from fractions import Fraction

from experiments.table import Table
from reticent.audit.laws import Law, law
from reticent.exact import log_bounds
from reticent.mechanisms.exponential import exponential


def tables() -> list[Table]:
    """The tables of the page on the exponential mechanism."""
    return [_losses(), _underflow()]


def _losses() -> Table:
    rows = []
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(2)):
        for others in (1, 10, 300):
            first, second = _law([0] + [1] * others, epsilon), _law([1] + [0] * others, epsilon)
            losses = [_ln(first.low[i]) - _ln(second.low[i]) for i in (0, 1)]  # type: ignore[arg-type]
            distance = sum(max(0.0, first.probability(i) - second.probability(i)) for i in range(others + 1))
            rows.append((
                f"{float(epsilon):g}", str(others + 1), f"{max(map(abs, losses)):.4f}",
                f"{max(losses) - min(losses):.4f}", f"{distance:.5f}", f"{math.tanh(epsilon / 4):.5f}",
            ))  # fmt: skip
    return Table(
        "Exact losses on the worst neighbours: one score rises by 1 while all others fall by 1",
        ("ε", "candidates", "greatest loss", "range of the loss", "total variation", "its bound tanh(ε/4)"),
        tuple(rows),
    )


def _underflow() -> Table:
    rows = []
    for gap in (1400, 1480, 1489, 1490):
        weights = [math.exp(-deficit / 2) for deficit in (gap, gap + 1)]
        naive = f"{math.log(weights[0] / weights[1]):.4f}" if weights[1] else "∞"
        rows.append((str(gap), f"{weights[0]:.3g}", f"{weights[1]:.3g}", naive, "0.5000"))
    return Table(
        "Floating-point weights at ε = 1 of a candidate that is `gap` below the best, or one more on the neighbour",
        ("gap", "weight", "weight on the neighbour", "its loss in floating point", "its exact loss"),
        tuple(rows),
    )


def _law(scores: list[int], epsilon: Fraction) -> Law:
    return law(lambda noise: exponential(scores, epsilon=epsilon, unsafe_noise=noise).value)


def _ln(mass: int) -> float:
    return float(log_bounds(Fraction(mass), 64)[0])
