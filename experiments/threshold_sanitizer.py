"""What a private distribution function promises, how far it is really off, and what a level of medians leaks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.table import Table
from reticent.audit.laws import law
from reticent.noise import Noise, Seeded
from reticent.plan.threshold_sanitizer import threshold_sanitizer
from reticent.privacy import calibrate
from reticent.sanitizers.cells import CountNoise, estimates
from reticent.sanitizers.pivots import MedianSearch, Pivots
from reticent.sanitizers.thresholds import ThresholdSanitizer
from reticent.sanitizers.trees import Tree

Array = NDArray[Any]
SIZES = ((16, 1000), (64, 1000), (64, 20_000))
DELTA = 1e-6


def tables() -> list[Table]:
    """The tables of the page on the threshold sanitizer."""
    return [_rows(), _errors(), _winners(), _estimates(), _laws()]


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


@dataclass(frozen=True)
class Measured:
    """The greatest errors over all thresholds of one column, in rows: a mean of two runs each."""

    bits: int
    rows: int
    kind: str
    errors: dict[str, float]  # by what made the copy


@lru_cache(maxsize=1)
def _measured() -> list[Measured]:
    found = []
    for bits, number in SIZES:
        for kind in ("uniform", "40 atoms", "lognormal", "two far lognormals", "powers of two", "constant"):
            data = column(kind, number, bits)
            errors = {}
            for delta, suffix in ((DELTA, ""), (0.0, ", δ = 0")):
                for method in ("tree", "quantiles"):
                    errors[method + suffix] = _error(data, bits, method, delta)
                plain = [binary_tree(data, bits, delta, Seeded(unsafe_seed=seed)) for seed in range(2)]
                errors["binary tree" + suffix] = float(np.mean([off(*copy, data) for copy in plain]))
            found.append(Measured(bits, number, kind, errors))
    return found


def _errors() -> Table:
    names = list(_measured()[0].errors)
    rows = [
        (str(each.bits), f"{each.rows:,}", each.kind, *(f"{each.errors[name]:.0f}" for name in names))
        for each in _measured()
    ]
    return Table(
        "Greatest error over all thresholds, in rows (ε = 1, δ = 10⁻⁶ unless stated; mean of two runs)",
        ("bits", "rows", "column", *names),
        tuple(rows),
    )


def _winners() -> Table:
    rows = []
    for (bits, number), delta in itertools.product(SIZES, (DELTA, 0.0)):
        suffix = "" if delta else ", δ = 0"
        columns = [each.errors for each in _measured() if (each.bits, each.rows) == (bits, number)]
        tree, medians, plain = (
            np.array([errors[name + suffix] for errors in columns]) for name in ("tree", "quantiles", "binary tree")
        )
        scheme = ThresholdSanitizer(bits=bits, epsilon=1, delta=delta)._scheme(number)
        taken = tree if isinstance(scheme, Tree) else medians
        rows.append(
            (
                str(bits),
                f"{number:,}",
                "10⁻⁶" if delta else "0",
                f"{np.count_nonzero(tree < medians)} of {len(tree)}",
                f"{medians.mean() / tree.mean():.2f}",
                "tree" if isinstance(scheme, Tree) else "quantiles",
                f"{taken.mean() / plain.mean():.2f}",
                f"{scheme.bound / taken.mean():.1f}",
            )
        )
    return Table(
        "Which wins: errors as above, their means over the columns compared (ε = 1)",
        (
            "bits",
            "rows",
            "δ",
            "columns on which the tree wins",
            "quantiles to tree",
            "auto takes",
            "auto to binary tree",
            "promised to measured",
        ),
        tuple(rows),
    )


def _estimates() -> Table:
    """How far the numbers of rows below the cells of a tree are off, before and after least squares."""
    rows = []
    for bits, number in SIZES:
        scheme = ThresholdSanitizer(bits=bits, epsilon=1, delta=DELTA, method="tree")._scheme(number)
        worst = []
        for kind, seed in itertools.product(("uniform", "40 atoms", "lognormal"), range(2)):
            data = np.sort(column(kind, number, bits))
            levels = scheme.release(data, Seeded(unsafe_seed=seed))
            lows, _, below, anchors = estimates(levels, number)
            truth = np.searchsorted(data, lows)
            worst.append([np.abs(anchors - truth).max(), np.abs(below - truth).max()])
        sided, squares = np.mean(worst, axis=0)
        rows.append((str(bits), f"{number:,}", f"{sided:.0f}", f"{squares:.0f}", f"{squares / sided:.2f}"))
    return Table(
        "Greatest error of the number of rows below a cell of the tree (ε = 1, δ = 10⁻⁶; mean over columns and runs)",
        ("bits", "rows", "two-sided", "least squares", "ratio"),
        tuple(rows),
    )


def column(kind: str, rows: int, bits: int) -> Array:
    """A column to measure on.

    Parameters
    ----------
    kind : str
        The name of its distribution.
    rows : int
        The number of rows.
    bits : int
        The number of bits of a value.
    """
    generator, top = np.random.default_rng(rows + bits), (1 << bits) - 1
    if kind == "uniform":
        return generator.integers(0, top, rows, dtype=np.uint64)
    if kind == "40 atoms":
        values = generator.integers(0, top, 40, dtype=np.uint64)
        return np.asarray(generator.choice(values, rows, p=generator.dirichlet(np.full(40, 0.5))))
    if kind == "constant":
        return np.full(rows, top // 3, dtype=np.uint64)
    if kind in ("lognormal", "two far lognormals"):
        place, width = np.full(rows, min(10, bits / 3)), 1.0
        if kind != "lognormal":
            place, width = np.where(generator.random(rows) < 0.5, bits * 0.2, bits * 0.6), 0.5
        return np.minimum(np.exp(generator.normal(place, width)), float(top >> 1)).astype(np.uint64)
    return np.uint64(1) << generator.integers(0, bits, rows).astype(np.uint64)


def off(points: Array, weights: Array, data: Array) -> float:
    """The greatest error of a copy over all thresholds, in rows.

    Parameters
    ----------
    points : array
        The points of the copy.
    weights : array
        Their weights.
    data : array
        The column that was copied.
    """
    ordered, totals = np.sort(data), len(data) * np.append(0, np.cumsum(weights))
    points = points.astype(ordered.dtype)
    at = np.concatenate([points, ordered])
    sides: list[Any] = ["left", "right"]
    errors = [np.searchsorted(ordered, at, side) - totals[np.searchsorted(points, at, side)] for side in sides]
    return float(np.abs(errors).max())


def binary_tree(data: Array, bits: int, delta: float, noise: Noise) -> tuple[Array, Array]:
    """A peer, at ε = 1: one bit a level; what lies below a range is the sum of the counts to the left of it.

    Parameters
    ----------
    data : array
        The column.
    bits : int
        The number of bits of a value.
    delta : float
        The δ; 0 for Laplace noise.
    noise : Noise
        The source of noise.
    """
    counting = CountNoise(bits, Fraction(2 * bits), gaussian=bool(delta))
    if delta:
        counting = replace(counting, scale=_scale(bits, delta))
    levels = Tree(1 << bits, len(data), 1, counting, Fraction(1, 20)).release(np.sort(data), noise)
    lows, below, left = [], [], np.zeros(1)
    for level, deeper in itertools.zip_longest(levels, levels[1:]):
        pairs = level.counts.reshape(-1, 2)
        left = left[level.parents] + np.stack([np.zeros(len(pairs)), pairs[:, 0]], axis=1).reshape(-1)
        cell = np.ones(len(left), dtype=bool)
        if deeper is not None:
            cell[deeper.parents] = False
        lows.append(level.lows[cell])
        below.append(left[cell])
    points, estimated = np.concatenate(lows), np.concatenate(below)
    order = np.argsort(points)
    estimated = np.append(estimated[order][1:], len(data))
    return points[order], np.diff(estimated, prepend=0.0) / len(data)  # all rows of a cell at its lower end


@lru_cache(maxsize=16)
def _scale(bits: int, delta: float) -> Fraction:
    counting = CountNoise(bits, Fraction(1), gaussian=True)
    return calibrate.noise(lambda scale: replace(counting, scale=scale).event, epsilon=1, delta=delta, digits=3)


def _error(data: Array, bits: int, method: Any, delta: float) -> float:
    fits = [
        ThresholdSanitizer(bits=bits, epsilon=1, delta=delta, method=method, unsafe_seed=seed).fit(data)
        for seed in range(2)
    ]
    return float(np.mean([off(fit.points_, fit.weights_, data) for fit in fits]))


def _laws() -> Table:
    """One level of two ranges, [0, 3] and [4, 7], at ε₁ = 2."""
    search, counting = MedianSearch(Fraction(2), Fraction(0), 1), CountNoise(1, Fraction(1), gaussian=False)
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
