"""`reticent experiment`: regenerate the tables and plots of the documentation, in a checkout."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import reticent
from reticent.cli.console import plain_console
from reticent.cli.errors import UsageError
from reticent.cli.options import Flag
from reticent.errors import MissingExtra
from reticent.extras import require

MARK = "\ndef tables("  # what an experiment has, and no other module of the folder


def experiment(
    name: str | None = None,
    *,
    out: Path | None = None,
    data: Path | None = None,
    list: Flag = False,
) -> int:
    """Regenerate the tables and plots of the documentation, in a checkout of reticent.

    Parameters
    ----------
    name
        The experiment, or `all`; without a name, experiments are listed.
    out
        A directory to write NAME.md and its plots to.
    data
        A directory with data sets: repeat the measurements on them, and store the results next to the experiment.
    list
        List the experiments.
    """
    known = experiments()
    if list or name is None:
        print("\n".join(known))
        return 0
    if name != "all" and name not in known:
        raise UsageError(f"there is no experiment {name!r}; there are: {', '.join(known)}")
    for each in known if name == "all" else [name]:
        _run(each, out, data)
    return 0


def experiments() -> list[str]:
    """Names of all experiments. They are next to the package's source tree, and not installed with it."""
    source = Path(reticent.__file__).parents[1]
    folder = source.parent / "experiments"
    if source.name != "src" or not (folder / "__init__.py").is_file():
        raise UsageError(
            "experiments run from a checkout of reticent only, since they and their measurements are not installed "
            "with the package: clone the repository, run `pip install -e \".[service]\"` in it, and try again"
        )
    if str(folder.parent) not in sys.path:
        sys.path.insert(0, str(folder.parent))
    return sorted(path.stem for path in folder.glob("*.py") if MARK in path.read_text(encoding="utf-8"))


def _run(name: str, out: Path | None, data: Path | None) -> None:
    from rich.table import Table

    console = plain_console()
    module = import_module(f"experiments.{name}")
    if out is not None and hasattr(module, "plots"):
        try:
            require("plots", "draw plots")
        except MissingExtra as error:
            raise UsageError(f"--out: {error}") from None
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
