"""The command line: `reticent --help` says what there is.

Everything slow is imported inside the command that needs it.
"""

from __future__ import annotations

import json as json_format
import sys
import tomllib
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from reticent.audit.report import Row

app = App(
    name="reticent",
    help="Private learning and private prediction: answers every question, never tells who taught it.",
    version=lambda: version("reticent"),
)
audit = App(name="audit", help="Attack our own claims.")
app.command(audit)

Flag = Parameter(negative="")


class UsageError(Exception):
    """A request that cannot be met as it was put; the message says what would do."""


@audit.command
def mechanisms(
    *,
    json: Annotated[bool, Flag] = False,
    runs: int = 5_000,
    twins: Path | None = None,
    jobs: int = 1,
    quiet: Annotated[bool, Flag] = False,
) -> int:
    """Audit every mechanism, and see that the audit catches a broken twin of each.

    Exit code 1 if a mechanism exceeds its claim or a twin is not caught.

    Parameters
    ----------
    json
        Print a JSON object instead of a table.
    runs
        Runs of each mechanism on either input, for the empirical lower bound.
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
        console = _console()
        console.print(_audit_table(rows))
        console.print(f"\nempirical: {runs} runs on either input, {report.CONFIDENCE:.1%} confidence in the column")
    if path is None:
        print("reticent: WARNING: no twin was tried, so nothing shows that this audit can fail; name a file of twins "
              "with --twins", file=sys.stderr)
    return 0 if all(row.passed for row in rows) else 1


def _console() -> Console:
    """Standard output, where brackets are text and pipes are wide enough for a table."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 120
    return console


def _twins_path(given: Path | None) -> Path | None:
    if given is not None:
        if not given.is_file():
            raise UsageError(f"--twins: there is no file {given}")
        return given
    usual = Path("tests") / "twins.py"
    return usual if usual.is_file() and _in_checkout() else None


def _in_checkout() -> bool:
    """Whether the current directory is reticent's own: the tests of another project are not run unasked."""
    try:
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "reticent"


def _audit_table(rows: Sequence[Row]) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))  # 80 columns will do
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


@app.command
def experiment(name: str | None = None, *, out: Path | None = None, list: Annotated[bool, Flag] = False) -> int:
    """Regenerate the tables of the documentation.

    Parameters
    ----------
    name
        Which experiment, or `all`; without it the experiments are listed.
    out
        A directory to write NAME.md into.
    list
        List the experiments.
    """
    known = _experiments()
    if list or name is None:
        print("\n".join(known))
        return 0
    if name != "all" and name not in known:
        raise UsageError(f"there is no experiment {name!r}; there are: {', '.join(known)}")
    for each in known if name == "all" else [name]:
        _run_experiment(each, out)
    return 0


def _experiments() -> list[str]:
    folder = Path(__file__).parent / "experiments"
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "table"))


def _run_experiment(name: str, out: Path | None) -> None:
    from rich.table import Table

    console = _console()
    tables = import_module(f"reticent.experiments.{name}").tables()
    for table in tables:
        shown = Table(*table.columns)
        for row in table.rows:
            shown.add_row(*row)
        console.print(table.title, shown, sep="\n")
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{name}.md").write_text("\n".join(table.markdown() for table in tables), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out: {error}") from error


@app.command
def demo() -> int:
    """Learn a private threshold over 64-bit integers, explain its guarantee and audit it."""
    import_module("reticent.demo").main()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for a failed audit, or 2 with one line on standard error."""
    try:
        command, bound, *_ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        return command(*bound.args, **bound.kwargs) or 0
    except (CycloptsError, UsageError) as error:
        print(f"reticent: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
