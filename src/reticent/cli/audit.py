"""`reticent audit mechanisms`: attack every mechanism, and see that broken twins are caught."""

from __future__ import annotations

import json as json_format
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.cli.console import plain_console
from reticent.cli.errors import UsageError
from reticent.cli.options import Flag

if TYPE_CHECKING:
    from rich.table import Table

    from reticent.audit.report import Row


def mechanisms(
    *, json: Flag = False, runs: int = 5_000, twins: Path | None = None, jobs: int = 1, quiet: Flag = False
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
        A Python file with broken copies of the mechanisms; by default, in a checkout of reticent, tests/twins.py.
    jobs
        Processes for the empirical runs; -1 uses all cores.
    quiet
        Show no progress.
    """
    from rich.console import Console
    from rich.progress import track

    from reticent.audit import report
    from reticent.audit.catalogue import catalogue

    if runs < 8:
        raise UsageError(f"--runs must be at least 8, got {runs}")
    if jobs == 0:
        raise UsageError("--jobs must be a number of processes, or -1 for all cores, got 0")
    entries = catalogue()
    path = _twins_path(twins)
    errors = Console(stderr=True)
    confidence = 1 - (1 - report.CONFIDENCE) / len(entries)
    try:
        broken = None if path is None else report.load_twins(path, entries)
        rows = [
            report.examine(entry, twins=broken, runs=runs, confidence=confidence, jobs=jobs)
            for entry in track(
                entries, "auditing", console=errors, transient=True, disable=quiet or not errors.is_terminal
            )
        ]
    except report.TwinError as error:
        raise UsageError(f"--twins: {error}") from error
    if json:
        print(json_format.dumps(report.to_json(rows, runs=runs, twins=path), indent=2))
    else:
        console = plain_console()
        console.print(_table(rows))
        console.print(f"\nempirical: {runs} runs on either input, {report.CONFIDENCE:.1%} confidence in the column")
    if path is None:
        print(
            "reticent: WARNING: no twin was tried, so nothing shows that this audit can fail; name a file of twins "
            "with --twins",
            file=sys.stderr,
        )
    return 0 if all(row.passed for row in rows) else 1


def _twins_path(given: Path | None) -> Path | None:
    if given is not None:
        if not given.is_file():
            raise UsageError(f"--twins: there is no file {given}")
        return given
    usual = Path("tests") / "twins.py"
    return usual if usual.is_file() and _in_checkout() else None


def _in_checkout() -> bool:
    """Whether the current directory is reticent's own: the tests of another project must not run unasked."""
    try:
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "reticent"


def _table(rows: Sequence[Row]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))  # fits 80 columns
    for heading in ("mechanism", "claim (ε, δ)", "worst exact δ at ε", "empirical ε ≥", "twin rejected", ""):
        table.add_column(heading, no_wrap=heading in ("mechanism", "claim (ε, δ)"))
    for row in rows:
        if row.twins is None:
            twins = "not found"
        else:
            twins = ", ".join(twin.name for twin in row.twins if not twin.rejected)
            twins = f"no: {twins}" if twins else "yes" if row.twins else "no: there is none"
        table.add_row(
            row.mechanism,
            f"({row.epsilon:.4g}, {row.delta:.4g})",
            ("0" if row.exact_delta < 1e-12 else f"{row.exact_delta:.4g}") + ("" if row.exact_passed else " > δ"),
            f"{row.empirical_epsilon:.3f}" + ("" if row.empirical_passed else " > ε"),
            twins,
            Text("ok", "green") if row.passed else Text("FAILS", "red"),
        )
    return table
