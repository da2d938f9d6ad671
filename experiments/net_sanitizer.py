"""A private copy for a class of concepts: the rows that either method needs, and the errors they really make."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.table import Table
from reticent.concepts import Intervals, Points, Thresholds
from reticent.concepts.interface import ConceptClass
from reticent.plan.sanitizers import mwem_rows
from reticent.sanitizers.nets import NetSanitizer

DELTA = 1e-6
FAILURE = 0.05
RUNS = 3


def tables() -> list[Table]:
    """Rows for an error of 0.4 and of 0.2, and errors measured beside those promised."""
    return [_rows(), _measured()]


def _rows() -> Table:
    rows = []
    for concepts in (Points(bits=2), Thresholds(bits=3), Intervals(bits=3), Intervals(bits=7), Thresholds(bits=16)):
        net = NetSanitizer(concepts, epsilon=1).query_net()
        for error in (0.4, 0.2):
            rows.append((_name(concepts), f"{len(net.points):,}", f"{net.queries:,}", f"{error:g}",
                         _needed(concepts, error, method="exact"), _needed(concepts, error, method="weights"),
                         _needed(concepts, error, method="weights", delta=DELTA),
                         _printed(error, len(net.points), net.queries)))
    columns = ("class", "points", "queries", "error", "exact", "weights, δ = 0", "weights, δ = 1e-6", "MWEM as printed")
    return Table("Rows for all concepts at once, ε = 1, failure 5 %", columns, tuple(rows))


def _needed(concepts: ConceptClass[Any], error: float, **more: Any) -> str:
    try:
        return f"{NetSanitizer(concepts, epsilon=1, failure=FAILURE, **more).n_required(error):,}"
    except ValueError:
        return "–"


def _printed(error: float, points: int, queries: int) -> str:
    try:
        return f"{mwem_rows(error, points=points, queries=queries, failure=FAILURE, epsilon=1):,}"
    except ValueError:
        return "–"


def _name(concepts: ConceptClass[Any]) -> str:
    return f"{type(concepts).__name__}({concepts.bits} bits)"  # type: ignore[attr-defined]


def _measured() -> Table:
    rows = []
    generator = np.random.default_rng(0)
    for concepts, count, delta in (
        (Intervals(bits=2), 500, 0), (Intervals(bits=7), 20_000, 0), (Intervals(bits=7), 20_000, DELTA),
        (Thresholds(bits=10), 20_000, 0), (Thresholds(bits=10), 20_000, DELTA),
    ):
        column = np.minimum(generator.geometric(0.1, count), 2**concepts.bits - 1)  # type: ignore[operator]
        sanitizer = NetSanitizer(concepts, epsilon=1, delta=delta, failure=FAILURE)
        net = sanitizer.query_net()
        promised = min(scheme.error(count) for scheme in sanitizer._schemes(net, FAILURE))
        truth = net.dichotomies.sums(np.ones(count, dtype=np.int64), at=column) / count
        off = []
        for seed in range(RUNS):
            found = sanitizer.set_params(unsafe_seed=seed).fit(column)
            grains = np.rint(found.weights_ * 2.0**40).astype(np.int64)
            off.append(float(np.abs(net.dichotomies.sums(grains, at=found.points_) / 2.0**40 - truth).max()))
        rows.append((_name(concepts), f"{count:,}", f"{delta:g}", found.method_, f"{promised:.3f}", f"{max(off):.3f}"))
    columns = ("class", "rows", "δ", "method", "error promised", f"worst of {RUNS} runs")
    return Table("The greatest error over all concepts, ε = 1, rows from a geometric law", columns, tuple(rows))
