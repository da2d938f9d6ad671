"""A private copy of a column: the rows that a histogram and SanPoints need, and the errors they really make."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from experiments.table import Table
from reticent.data.points import Array
from reticent.exact import rational
from reticent.plan.sanitizers import sanpoints_rows
from reticent.sanitizers.points import PointSanitizer, calls

EPSILON, DELTA, FAILURE = 1.0, 1e-6, 0.05
RUNS = 40


def tables() -> list[Table]:
    """Rows by error, rows for sets of values, and errors measured at the rows promised."""
    return [_rows(), _sets(), _measured()]


def _sanitizer(**more: object) -> PointSanitizer:
    return PointSanitizer(bits=64, epsilon=EPSILON, delta=DELTA, failure=FAILURE, **more)  # type: ignore[arg-type]


def _rows() -> Table:
    rows = []
    for error in (0.2, 0.1, 0.05, 0.01):
        printed = sanpoints_rows(error, failure=FAILURE, epsilon=EPSILON, delta=DELTA)
        own, _ = calls(*_budget(), math.ceil(2 / error))
        rows.append((f"{error:g}", f"{_sanitizer().n_required(error):,}",
                     f"{_sanitizer(method='choosing').n_required(error):,}", f"{float(own):.4f}", f"{printed:,}"))
    columns = ("error α", "histogram", "SanPoints here", "ε of each of its calls", "SanPoints as printed")
    return Table("Rows for all frequencies at once, ε = 1, δ = 1e-6, failure 5 %", columns, tuple(rows))


def _budget() -> tuple[Fraction, Fraction]:
    return rational(EPSILON, "epsilon"), rational(DELTA, "delta")


def _sets() -> Table:
    rows = []
    for k in (1, 2, 5, 10):
        printed = sanpoints_rows(0.1 / k, failure=FAILURE, epsilon=EPSILON, delta=DELTA)
        rows.append((str(k), f"{_sanitizer().n_required(0.1, k=k):,}", f"{printed:,}"))
    return Table("Rows for sets of k values, error 0.1", ("k", "histogram", "printed"), tuple(rows))


def _measured() -> Table:
    rows = []
    for error in (0.2, 0.05):
        needed = _sanitizer().n_required(error)
        high = math.floor(error * needed) + 1
        columns = {
            "values just above α": np.arange(needed) // high,
            "values just below α": np.arange(needed) // (high - 1),
            "all values different": np.arange(needed),
        }
        for name, column in columns.items():
            off = [_greatest_error(column, seed) for seed in range(RUNS)]
            rows.append((f"{error:g}", f"{needed:,}", name, f"{np.median(off):.4f}", f"{max(off):.4f}",
                         f"{sum(value > error for value in off)} of {RUNS}"))
    names = ("promised error", "rows", "column", "median error", f"worst of {RUNS} runs", "promise broken")
    return Table("The greatest error over all values, at the rows promised", names, tuple(rows))


def _greatest_error(column: Array, seed: int) -> float:
    found = _sanitizer(unsafe_seed=seed).fit(column)
    values, counts = np.unique(column, return_counts=True)
    published = np.zeros(len(values))
    published[np.searchsorted(values, found.points_)] = found.weights_
    return float(np.abs(published - counts / len(column)).max())
