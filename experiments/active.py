"""Active learning: the pool that hides which rows were asked for, and what it costs to let them be known."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from experiments.table import Table
from reticent.audit import law
from reticent.audit.hockey_stick import exact
from reticent.exact import rational
from reticent.learners.active import ActiveLearner, inner_epsilon
from reticent.learners.thresholds import ThresholdLearner
from reticent.noise import Noise

BITS, ERROR = 16, 0.1


def tables() -> list[Table]:
    """Pools and labels as ε falls, and the exact loss of four ways to hand over a subset."""
    return [_pools(), _leaks()]


def _pools() -> Table:
    rows = []
    for epsilon in (rational(value, "epsilon") for value in (1, 0.3, 0.1, 0.03, 0.01)):
        learner = ActiveLearner(ThresholdLearner(bits=BITS, epsilon=1), epsilon=epsilon)
        labels = learner.labels_required(ERROR)
        printed = math.ceil(labels * (3 + math.exp(2)) / float(epsilon))
        alone = ThresholdLearner(bits=BITS, epsilon=epsilon).n_required(ERROR)
        rows.append((f"{float(epsilon):g}", f"{labels:,}", f"{learner.n_required(ERROR):,}", f"{printed:,}",
                     f"{alone:,}"))
    columns = ("ε", "labels, hidden", "pool, hidden", "pool as printed, hidden", "labels and rows, private transcript")
    return Table(f"Thresholds on {BITS} bits, error {ERROR:g}, failure 0.05; ε* = 1 inside", columns, tuple(rows))


# ── what an order gives away ──────────────────────────────────────────────────────────────────────────────────────

Rows = tuple[int, ...]
EPSILON = Fraction(1, 2)


def _leaks() -> Table:
    """The loss on the worst pair of all neighbouring data sets of four bits, of which three are drawn."""
    inside = inner_epsilon(EPSILON, Fraction(3, 4))
    ways = [
        ("in the order of draw", lambda order: order, False, _places),
        ("in the order of the data", np.sort, False, _places),
        ("first drawn are labelled", lambda order: order, False, _roles),
        ("smallest indices are labelled", np.sort, False, _roles),
        ("in the order of draw, which is shown", lambda order: order, True, _places),
    ]
    rows = tuple((name, f"{_worst(inside, arrange, shown, count):.3f}") for name, arrange, shown, count in ways)
    return Table(
        f"Exact privacy loss; ε = {float(EPSILON):g} asked for, ε* = {float(inside):.3f} inside",
        ("the three rows out of four", "loss"),
        rows,
    )


def _worst(inside: Fraction, arrange: Any, shown: bool, count: Any) -> float:
    def run(noise: Noise, data: Rows) -> Any:
        order = arrange(noise.subset(4, 3))
        found = noise.laplace_cell(1 / inside, [k - count(np.array(data)[order]) for k in (1, 2, 3)])
        return (found, *order.tolist()) if shown else found

    data = [tuple(number >> bit & 1 for bit in range(4)) for number in range(16)]
    laws = {rows: law(lambda noise, rows=rows: run(noise, rows)) for rows in data}  # type: ignore[misc]
    pairs = [
        exact(laws[a], laws[b]) for a in data for b in data if sum(x != y for x, y in zip(a, b, strict=True)) == 1
    ]
    low, high = 0.0, 4.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if any(pair.delta(middle)[0] > 1e-12 for pair in pairs) else (low, middle)
    return high


def _places(bits: Any) -> int:
    """Ones in even places and zeros in odd ones."""
    return int(np.count_nonzero(bits == np.array([1, 0, 1])))


def _roles(bits: Any) -> int:
    """Each bit is the value of a row whose label is the opposite: labelled, it counts as 1 − bit; else as bit."""
    return int(1 - bits[0] + bits[1] + bits[2])
