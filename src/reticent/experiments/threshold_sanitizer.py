"""What a private distribution function promises, how far it is really off, and what a level of medians leaks."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.audit.laws import law
from reticent.experiments.table import Table
from reticent.noise import Noise
from reticent.plan.threshold_sanitizer import threshold_sanitizer
from reticent.sanitizers.cells import CountNoise
from reticent.sanitizers.pivots import Pivots, Search
from reticent.sanitizers.thresholds import ThresholdSanitizer

Array = NDArray[Any]


def tables() -> list[Table]:
    """The tables of the page on the threshold sanitizer."""
    return [_rows(), _errors(), _laws()]


def _rows() -> Table:
    rows = []
    for bits in (8, 16, 64, 256, 1000):
        needed = [
            ThresholdSanitizer(bits=bits, epsilon=1, delta=delta, method=method).n_required(0.1)  # type: ignore[arg-type]
            for method, delta in (("tree", 1e-6), ("quantiles", 1e-6), ("paper", 1e-6), ("auto", 0))
        ]
        printed = threshold_sanitizer(bits=bits, error=0.1, epsilon=1, delta=1e-6).paper_rows
        rows.append((str(bits), *(f"{each:,}" for each in needed), f"{printed:.1e}"))
    return Table(
        "Rows with which an error of 0.1 is promised (ε = 1, δ = 10⁻⁶ unless stated, failure 0.05)",
        ("bits", "tree", "quantiles", "paper, our constants", "auto, δ = 0", "paper as printed"),
        tuple(rows),
    )


def _errors() -> Table:
    rows = []
    for bits, number in ((16, 1000), (64, 1000), (64, 50_000)):
        for kind in ("uniform", "40 atoms", "lognormal", "powers of two"):
            data = column(kind, number, bits)
            cells = [_off(data, bits, method, 1e-6) for method in ("tree", "quantiles")]
            pure = [_off(data, bits, method, 0) for method in ("tree", "quantiles")]
            promised = ThresholdSanitizer(bits=bits, epsilon=1, delta=1e-6, unsafe_seed=0).fit(data).error_
            promise = f"{promised * number:.0f}"
            rows.append((str(bits), f"{number:,}", kind, *(f"{each:.0f}" for each in (*cells, *pure)), promise))
    return Table(
        "Greatest error over all thresholds, in rows (ε = 1, δ = 10⁻⁶, and δ = 0; mean of two runs)",
        ("bits", "rows", "column", "tree", "quantiles", "tree, δ = 0", "quantiles, δ = 0", "promised by auto"),
        tuple(rows),
    )


def column(kind: str, rows: int, bits: int) -> Array:
    """A column to measure on."""
    generator, top = np.random.default_rng(rows + bits), (1 << bits) - 1
    if kind == "uniform":
        return generator.integers(0, top, rows, dtype=np.uint64)
    if kind == "40 atoms":
        values = generator.integers(0, top, 40, dtype=np.uint64)
        return np.asarray(generator.choice(values, rows, p=generator.dirichlet(np.full(40, 0.5))))
    if kind == "lognormal":
        return np.minimum(np.exp(generator.normal(min(10, bits / 3), 1.0, rows)), top >> 1).astype(np.uint64)
    return np.uint64(1) << generator.integers(0, bits, rows).astype(np.uint64)


def _off(data: Array, bits: int, method: Any, delta: float) -> float:
    found = []
    ordered = np.sort(data)
    for seed in range(2):
        copy = ThresholdSanitizer(bits=bits, epsilon=1, delta=delta, method=method, unsafe_seed=seed).fit(data)
        totals, at = len(data) * np.append(0, np.cumsum(copy.weights_)), np.concatenate([ordered, copy.points_])
        points = copy.points_.astype(np.uint64)
        sides: list[Any] = ["left", "right"]
        found.append(
            max(
                float(np.abs(np.searchsorted(ordered, at, side) - totals[np.searchsorted(points, at, side)]).max())
                for side in sides
            )
        )
    return float(np.mean(found))


def _laws() -> Table:
    """One level of two ranges, [0, 3] and [4, 7], at ε₁ = 2."""
    search, counting = Search(Fraction(2), Fraction(0), 1), CountNoise(1, Fraction(1), gaussian=False)
    plan = Pivots(8, 5, search, counting, Fraction(1, 10))

    def run(rows: list[int], noise: Noise) -> tuple[int, int]:
        data = np.array(sorted(rows), dtype=np.uint64)
        low, high = data[data < 4], data[data >= 4]
        return plan._pivot(low, 0, 3, 5, noise), plan._pivot(high, 4, 7, 5, noise)

    rows = []
    for name, first, second in (
        ("a row moves within a range", [0, 0, 0, 3, 3], [0, 0, 3, 3, 3]),
        ("a row moves to the other range", [0, 0, 0, 7, 7], [0, 0, 7, 7, 7]),
        ("a row moves to the other range", [0, 1, 3, 4, 6], [0, 1, 7, 4, 6]),
    ):
        one, other = (law(lambda noise, data=data: run(data, noise)) for data in (first, second))  # type: ignore[misc]
        losses = [math.log(one.low[output] / other.low[output]) for output in one.low]
        rows.append((name, f"{max(map(abs, losses)):.3f}", f"{max(losses) - min(losses):.3f}"))
    return Table(
        "Exact privacy loss of one level of medians with ε₁ = 2",
        ("neighbours", "largest loss", "range of the loss"),
        tuple(rows),
    )
