"""`reticent audit mechanisms`: attack every mechanism, and see that broken twins are caught."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.cli.console import plain_console
from reticent.cli.errors import UsageError
from reticent.cli.options import Flag, Whole

if TYPE_CHECKING:
    from rich.table import Table

    from reticent.audit.report import AuditRow


def mechanisms(
    *, json: Flag = False, runs: Whole = 5_000, twins: Path | None = None, jobs: Whole = 1, quiet: Flag = False
) -> int:
    """Audit every mechanism, and check that the audit catches a broken twin of each.

    Exit code 1 if a mechanism exceeds its claim or a twin is not caught.

    Parameters
    ----------
    json
        Print a JSON object instead of a table.
    runs
        Runs of each mechanism on each of two inputs, for the empirical lower bound.
    twins
        A Python file with broken copies of the mechanisms, in place of those that come with reticent.
    jobs
        Processes for the empirical runs; -1 uses all cores.
    quiet
        Show no progress.
    """
    from rich.console import Console
    from rich.progress import track

    from reticent.audit import report
    from reticent.audit.catalogue import catalogue
    from reticent.audit.twins import TWINS

    if runs < 8:
        raise UsageError(f"--runs must be at least 8, got {runs}")
    if jobs == 0:
        raise UsageError("--jobs must be a number of processes, or -1 for all cores, got 0")
    entries = catalogue()
    if twins is not None and not twins.is_file():
        raise UsageError(f"--twins: there is no file {twins}")
    errors = Console(stderr=True)
    confidence = 1 - (1 - report.CONFIDENCE) / len(entries)
    try:
        broken = TWINS if twins is None else report.load_twins(twins, entries)
        rows = [
            report.examine(entry, twins=broken, runs=runs, confidence=confidence, jobs=jobs)
            for entry in track(
                entries, "auditing", console=errors, transient=True, disable=quiet or not errors.is_terminal
            )
        ]
    except report.TwinError as error:
        raise UsageError(f"--twins: {error}") from error
    if json:
        print(json_format.dumps(report.to_json(rows, runs=runs, twins=str(twins or "reticent.audit.twins")), indent=2))
    else:
        console = plain_console()
        console.print(_table(rows))
        console.print(f"\nempirical: {runs} runs on either input, {report.CONFIDENCE:.1%} confidence in the column")
    return 0 if all(row.passed for row in rows) else 1


def _table(rows: Sequence[AuditRow]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))  # fits 80 columns
    for heading in ("mechanism", "claim (ε, δ)", "worst exact δ at ε", "empirical ε ≥", "twin rejected", ""):
        table.add_column(heading, no_wrap=heading in ("mechanism", "claim (ε, δ)"))
    for row in rows:
        missed = ", ".join(twin.name for twin in row.twins if not twin.rejected)
        twins = f"no: {missed}" if missed else "yes" if row.twins else "no: there is none"
        table.add_row(
            row.mechanism,
            f"({row.epsilon:.4g}, {row.delta:.4g})",
            ("0" if row.exact_delta < 1e-12 else f"{row.exact_delta:.4g}") + ("" if row.exact_passed else " > δ"),
            f"{row.empirical_epsilon:.3f}" + ("" if row.empirical_passed else " > ε"),
            twins,
            Text("ok", "green") if row.passed else Text("FAILS", "red"),
        )
    return table
