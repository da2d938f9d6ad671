"""What the exact audit finds on every mechanism of the package, at parameters chosen for its power."""

from __future__ import annotations

from experiments.table import Table
from reticent.audit.catalogue import CatalogueEntry, catalogue
from reticent.audit.neighbours import divergences
from reticent.audit.report import TAIL_BITS


def tables() -> list[Table]:
    """One row for each entry of the catalogue."""
    columns = ("mechanism", "pairs of inputs", "claimed ε", "claimed δ", "worst exact δ at ε", "worst exact ε at δ")
    return [Table("Exact laws of the real code", columns, tuple(_row(entry) for entry in catalogue()))]


def _row(entry: CatalogueEntry) -> tuple[str, ...]:
    pairs = [pair for _, _, pair in divergences(entry.run, entry.neighbours, tail_bits=TAIL_BITS)]
    delta = max(pair.delta(entry.epsilon)[1] for pair in pairs)
    epsilon = max(pair.epsilon(entry.delta)[0] for pair in pairs)
    return (
        entry.name,
        str(len(pairs)),
        f"{float(entry.epsilon):g}",
        f"{float(entry.delta):.4g}",
        f"{delta:.4g}" if delta > 1e-12 else "0",
        f"{epsilon:.3f}",
    )
