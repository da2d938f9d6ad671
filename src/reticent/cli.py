"""The command line: `reticent --help` says what there is.

Everything slow is imported inside the command that needs it.
"""

from __future__ import annotations

import json as json_format
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import version
from inspect import Parameter as SignatureParameter
from inspect import Signature, getdoc, isfunction, signature
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import App, CycloptsError, Parameter, Token

from reticent.service import commands, key_commands
from reticent.service.commands import Flag, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from reticent.audit.report import Row
    from reticent.plan import Plan
    from reticent.plan.advise import Advice

app = App(
    name="reticent",
    help="Private learning and private prediction: answers every question, never tells who taught it.",
    version=lambda: version("reticent"),
)
audit = App(name="audit", help="Attack our own claims.")
app.command(audit)
commands.register(app)
key_commands.register(app)

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
def experiment(
    name: str | None = None,
    *,
    out: Path | None = None,
    data: Path | None = None,
    list: Annotated[bool, Flag] = False,
) -> int:
    """Regenerate the tables and plots of the documentation.

    Parameters
    ----------
    name
        Which experiment, or `all`; without it the experiments are listed.
    out
        A directory to write NAME.md and its plots into.
    data
        A directory with data sets: what experiments measured on these is measured again, and kept in the package.
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
        _run_experiment(each, out, data)
    return 0


def _experiments() -> list[str]:
    folder, others = Path(__file__).parent / "experiments", ("__init__", "drawing", "linear_models", "table")
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in others)


def _run_experiment(name: str, out: Path | None, data: Path | None = None) -> None:
    from rich.table import Table

    console = _console()
    module = import_module(f"reticent.experiments.{name}")
    if data is not None and hasattr(module, "measure"):
        try:
            module.measure(data)
        except (OSError, ValueError) as error:
            raise UsageError(f"--data: {error}") from error
    tables, plots = module.tables(), getattr(module, "plots", dict)
    for table in tables:
        shown = Table(*table.columns)
        for row in table.rows:
            shown.add_row(*row)
        console.print(table.title, shown, sep="\n")
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{name}.md").write_text("\n".join(table.markdown() for table in tables), encoding="utf-8")
            for figure, drawing in plots().items():
                (out / f"{figure}.svg").write_bytes(drawing)
        except OSError as error:
            raise UsageError(f"--out: {error}") from error


@app.command(help_flags=[], version_flags=[])
def plan(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Say how many rows an error takes, or which error a number of rows can promise.

    `reticent plan` lists what can be planned, `reticent plan NAME --help` its parameters.
    """
    plans = _plans()
    if not arguments or arguments[0] in ("--help", "-h"):
        print("Usage: reticent plan NAME [OPTIONS]\n")
        width = max(map(len, plans), default=0)
        for name, function in plans.items():
            print(f"{name:{width}}  {(function.__doc__ or '').partition(chr(10))[0]}")
        print("\nreticent plan NAME --help says what each takes.")
        return 0
    name, *options = arguments[0].replace("-", "_"), *arguments[1:]
    if name not in plans:
        raise UsageError(f"there is no plan {arguments[0]!r}; there are: {', '.join(plans)}")
    objects = _objects(plans[name])
    if objects and not {"--help", "-h"} & set(options):
        raise UsageError(
            f"plan {name} needs a {objects[0]}, which is no text: call reticent.plan.{name} in Python; "
            f"`reticent plan {name} --help` says how"
        )
    command, bound, *_ = _plan_app(name, plans[name]).parse_args(options, exit_on_error=False, print_error=False)
    return command(*bound.args, **bound.kwargs) or 0


def _objects(function: Callable[..., Plan]) -> list[str]:
    """The parameters that must be given and cannot be written as text."""
    hints = get_type_hints(function)
    return [
        name for name, parameter in signature(function).parameters.items()
        if parameter.default is parameter.empty and _from_text(hints[name], help=None) is None
    ]  # fmt: skip


def _plans() -> dict[str, Callable[..., Plan]]:
    """The functions of reticent.plan, by name."""
    return {name: value for name, value in sorted(vars(import_module("reticent.plan")).items()) if isfunction(value)}


def _plan_app(name: str, function: Callable[..., Plan]) -> App:
    """A command with the parameters of a function that plans, for those that can be written as text."""
    hints = get_type_hints(function)
    described = _parameter_help(function)
    objects, parameters = _objects(function), []
    for parameter in [] if objects else signature(function).parameters.values():
        kind = _from_text(hints[parameter.name], help=described.get(parameter.name))
        if kind is not None:
            parameters.append(parameter.replace(annotation=kind))
    flag = Annotated[bool, Parameter(negative="", help="Print a JSON object instead of text.")]
    json = SignatureParameter("json", SignatureParameter.KEYWORD_ONLY, default=False, annotation=flag)

    def run(*args: object, **options: object) -> int:
        as_text = not options.pop("json", False)
        try:
            found = function(*args, **options)
        except (TypeError, ValueError) as error:
            raise UsageError(f"plan {name}: {error}") from error
        print(_in_words(found) if as_text else json_format.dumps(asdict(found), indent=2, ensure_ascii=False))
        return 0

    run.__signature__ = Signature([] if objects else [*parameters, json])  # type: ignore[attr-defined]
    summary = (function.__doc__ or "").partition("\n")[0]
    if objects:
        needed = "\n\n".join(f"{each}: {described.get(each, 'an object')}" for each in signature(function).parameters)
        summary += (
            f"\n\nThis plan cannot be made on the command line, since it needs objects of Python. In Python, call "
            f"reticent.plan.{name}({', '.join(objects)}, …) with:\n\n{needed}"
        )
    run.__doc__ = summary
    command = App(name=f"reticent plan {name}", version_flags=[])
    command.default(run)
    return command


def _in_words(found: Plan | Advice) -> str:
    """A plan or advice as text, which names options in place of parameters."""
    return found.text(black_box="--black-box") if hasattr(found, "text") else str(found)


def _parameter_help(function: Callable[..., object]) -> dict[str, str]:
    """What the docstring says of each parameter, in lines such as `epsilon, delta : the privacy of the threshold`."""
    _, _, section = (getdoc(function) or "").partition("Parameters\n----------\n")
    lines = re.findall(r"^(\w[\w, ]*) : (.*(?:\n +.*)*)", section.partition("\n\n")[0], flags=re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in lines for name in names.split(", ")}


def _from_text(hint: Any, *, help: str | None) -> Any:
    """How cyclopts reads a parameter of this type; None if it cannot be written as text."""
    from reticent.concepts import ConceptClass, Domain

    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = [kind for kind in kinds if kind in (int, str, bool, type(None)) or get_origin(kind) is Literal]
    if bool in kinds:
        return Annotated[bool, Parameter(negative="", help=help)]
    if object in kinds:
        return Annotated[float | None, Parameter(converter=commands.number, help=help)]  # an exact number, in truth
    examples: dict[type, str] = {ConceptClass: "thresholds:64 or rectangles:2:16", Domain: "floats or datetimes:s"}
    for base, example in examples.items():
        if any(base in (kind, get_origin(kind)) for kind in kinds):
            text = f"{help or ''} Written as {example}."
            return Annotated[base | None, Parameter(converter=partial(_of_concepts, base=base), help=text)]
    if len(plain) < len(kinds):  # a name may stand for an object
        return Annotated[str, Parameter(help=help)] if str in kinds else None
    return Annotated[hint, Parameter(help=help)]


def _of_concepts(_: object, tokens: Sequence[Token], *, base: type) -> object:
    """A concept class or domain: its name in reticent.concepts, in any case, and its arguments, parted by colons."""
    concepts = import_module("reticent.concepts")
    known = {
        name.lower(): value
        for name, value in vars(concepts).items()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }
    name, *arguments = tokens[0].value.split(":")
    if name.lower() not in known:
        raise ValueError(f"there is no {name!r} in reticent.concepts; there are: {', '.join(sorted(known))}")
    try:
        return known[name.lower()](*(int(each) if each.isdecimal() else each for each in arguments))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{tokens[0].value!r} cannot be made: {error}") from error


@app.command
def demo(*, seconds: float | None = None, write: Path | None = None) -> int:
    """Make up a clinic, fit a private predictor, serve it, and let several clients ask; Ctrl-C ends it.

    Parameters
    ----------
    seconds
        End by itself after so many seconds of asking.
    write
        Only write the tables patients.csv and new.csv of the guide into this folder.
    """
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--seconds must be above 0, got {seconds:g}")
    made = import_module("reticent.demo")
    if write is None:
        return made.main(seconds) or 0
    try:
        made.write_example(write)
    except OSError as error:
        raise UsageError(f"--write: {error.filename}: {error.strerror}") from error
    print(f"{write / 'patients.csv'} and {write / 'new.csv'} are there")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for a failed audit, or that of a refusal, which is told in one line."""
    try:
        command, bound, *_ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        return command(*bound.args, **bound.kwargs) or 0
    except (CycloptsError, UsageError) as error:
        print(f"reticent: {' '.join(str(error).split())}", file=sys.stderr)
        return error.code if isinstance(error, UsageError) else 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
