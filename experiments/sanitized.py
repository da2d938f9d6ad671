"""Sanitization implies learning: what the reduction costs as printed, and here."""

from __future__ import annotations

from fractions import Fraction

from experiments.table import Table
from reticent.concepts.points import Points
from reticent.exact import rational
from reticent.learners.sanitized import SanitizedLearner
from reticent.plan.sanitized import sanitized
from reticent.sanitizers.points import PointSanitizer

DELTA = Fraction(1, 10**6)


def tables() -> list[Table]:
    """The privacy of the parts, and the rows that the whole needs."""
    return [_parts(), _rows()]


def _parts() -> Table:
    ways = [
        ("as printed, as the paper adds it up", "2ε (counts) + 2·2ε (copies)", 6),
        ("as printed, a count charged once", "2ε (counts) + 2ε (copies)", 4),
        ("one count", "ε (count) + 2ε (copies)", 3),
        ("one count, a row that keeps its label", "ε (copy)", 1),
    ]
    rows = tuple((name, sum_, f"{factor}ε") for name, sum_, factor in ways)
    return Table("Privacy of Algorithm B if the count and the sanitizer have ε each", ("", "parts", "total"), rows)


def _rows() -> Table:
    rows = []
    for epsilon in (rational(value, "epsilon") for value in (0.75, 0.5, 0.1)):
        for error in (rational(value, "error") for value in (0.2, 0.1, 0.05)):
            sanitizer = PointSanitizer(bits=40, epsilon=epsilon, delta=DELTA)
            learner = SanitizedLearner(sanitizer, Points(bits=40), epsilon=epsilon, delta=DELTA)
            plan = sanitized(
                sanitizer, Points(bits=40), error=error, epsilon=epsilon, delta=DELTA, realizable=True
            )
            rows.append((f"{float(epsilon):g}", f"{float(error):g}", f"{plan.paper_rows or 0:.1e}", f"{plan.rows:,}",
                         f"{learner.n_required(error):,}"))
    columns = ("ε", "error", "rows as printed", "rows here", "rows here, any labels")
    return Table("Points of 40 bits, δ = 1e-6, failure 0.05", columns, tuple(rows))
