"""Labels and other rows that GenericLearner takes, as values get wider."""

from __future__ import annotations

from typing import Any

from experiments.table import Table
from reticent.concepts import ConceptClass, Intervals, Points, Thresholds
from reticent.learners.semi_supervised import SemiSupervisedLearner
from reticent.plan.semi_supervised import semi_supervised

DELTA = 1e-6


def tables() -> list[Table]:
    """Points and thresholds by their bits; points by ε."""
    return [_by_bits(), _by_epsilon()]


def _by_bits() -> Table:
    rows = []
    cases: list[tuple[str, ConceptClass[Any]]] = [
        *((f"points, {bits} bits", Points(bits=bits)) for bits in (16, 64, 4096)),
        *((f"thresholds, {bits} bits", Thresholds(bits=bits)) for bits in (16, 64)),
        *((f"intervals, {bits} bits", Intervals(bits=bits)) for bits in (16, 64)),
    ]
    for name, concepts in cases:
        plan = semi_supervised(concepts, error=0.1, epsilon=1, delta=DELTA)
        assert plan.labels is not None
        rows.append((name, f"{plan.labels:,}", f"{plan.rows - plan.labels:,}"))
    columns = ("class", "labelled rows", "rows without a label")
    return Table("Rows that promise an error of 0.1 with probability 0.95, ε = 1, δ = 1e-6", columns, tuple(rows))


def _by_epsilon() -> Table:
    rows = []
    for epsilon in (0.1, 0.5, 1, 2, 8):
        learner = SemiSupervisedLearner(Points(bits=64), epsilon=epsilon, delta=DELTA)
        rows.append((f"{epsilon:g}", f"{learner.labels_required(0.1):,}",
                     f"{learner.labels_required(0.1, agnostic=True):,}",
                     f"{learner.unlabelled_required(0.1):,}"))
    columns = ("ε", "labelled rows", "labelled rows, any labels", "rows without a label")
    return Table("Points of 64 bits, error 0.1, δ = 1e-6", columns, tuple(rows))
