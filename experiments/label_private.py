"""Rows for secret labels, and for secret rows beside public points: with the paper's constants and with ours."""

from __future__ import annotations

from typing import Any

from experiments.table import Table
from reticent.concepts import ConceptClass, Halfspaces, Intervals, Stumps, Thresholds
from reticent.learners.exponential import ExponentialLearner
from reticent.learners.label_private import LabelPrivateLearner, SemiPrivateLearner
from reticent.learners.thresholds import ThresholdLearner
from reticent.plan.label_private import label_private, semi_private
from reticent.promises import rows_needed

CLASSES: tuple[tuple[str, ConceptClass[Any]], ...] = (
    ("thresholds", Thresholds()),
    ("intervals", Intervals()),
    ("halfspaces in the plane", Halfspaces(2)),
    ("stumps on 100 columns", Stumps(100)),
)


def tables() -> list[Table]:
    """By class, by ε, and by the number of bits."""
    return [_by_class(), _by_epsilon(), _by_bits()]


def _by_class() -> Table:
    rows = []
    for name, concepts in CLASSES:
        for error in (0.1, 0.01):
            secret = label_private(concepts, error=error, epsilon=1)
            semi = semi_private(concepts, error=error, epsilon=1)
            points = rows_needed(SemiPrivateLearner(concepts, epsilon=1).n_public_required, error)
            rows.append(
                (name, str(concepts.vc_dimension), f"{error:g}", f"{secret.paper_rows:,}", f"{secret.rows:,}",
                 f"{semi.rows:,}", f"{points:,}")
            )
    columns = ("class", "VC", "error", "labels secret, paper", "labels secret", "rows secret", "public points")
    return Table("Rows that promise an error with probability 0.95, ε = 1", columns, tuple(rows))


def _by_epsilon() -> Table:
    rows = []
    for epsilon in (0.1, 0.5, 1, 2, 8):
        learner = LabelPrivateLearner(Thresholds(), epsilon=epsilon)
        semi = semi_private(Thresholds(), error=0.1, epsilon=epsilon)
        rows.append((f"{epsilon:g}", f"{learner.n_required(0.1):,}", f"{semi.rows:,}",
                     f"{learner.n_required(0.1, agnostic=True):,}"))
    columns = ("ε", "labels secret", "rows secret, points public", "labels secret, any labels")
    return Table("Rows for thresholds, error 0.1", columns, tuple(rows))


def _by_bits() -> Table:
    rows = []
    for bits in (16, 64, 256, 4096):
        concepts = Thresholds(bits=bits)
        whole = ExponentialLearner(concepts, epsilon=1).n_required(0.1, realizable=True)
        rows.append((str(bits), f"{label_private(concepts, error=0.1, epsilon=1).rows:,}",
                     f"{semi_private(concepts, error=0.1, epsilon=1).rows:,}",
                     f"{ThresholdLearner(bits=bits, epsilon=1).n_required(0.1):,}", f"{whole:,}"))
    columns = ("bits", "labels secret", "rows secret, points public", "ThresholdLearner, δ = 0", "ExponentialLearner")
    return Table("Rows for thresholds as values get wider, error 0.1, ε = 1", columns, tuple(rows))
