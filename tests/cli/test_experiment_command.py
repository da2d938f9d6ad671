"""`reticent experiment`: tables and plots, from a checkout only."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import command_line
import pytest
from command_line import Reticent

import reticent
from experiments.table import Table
from reticent.cli import experiment

run = pytest.fixture(command_line.run)


@pytest.fixture
def two_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        module = ModuleType(f"experiments.{name}")
        tables = [Table(f"The {name} table", ("n", "range"), (("1", "[0, 1]"), ("2", "[b]")))]
        module.tables = lambda tables=tables: tables  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(experiment, "experiments", lambda: ["first", "second"])


@pytest.mark.usefixtures("two_experiments")
@pytest.mark.parametrize("arguments", [(), ("--list",), ("first", "--list")])
def test_experiments_are_listed(run: Reticent, arguments: tuple[str, ...]) -> None:
    assert run("experiment", *arguments) == (0, "first\nsecond\n", "")


@pytest.mark.parametrize("name", experiment.experiments())
def test_every_experiment_has_tables(name: str) -> None:
    assert callable(importlib.import_module(f"experiments.{name}").tables)


@pytest.mark.usefixtures("two_experiments")
def test_an_experiment_is_printed_and_written(run: Reticent, tmp_path: Path) -> None:
    outcome = run("experiment", "first", "--out", str(tmp_path / "new" / "folder"))
    assert outcome.code == 0
    assert "The first table" in outcome.out
    assert "[b]" in outcome.out, "brackets are text, not markup"
    written = (tmp_path / "new" / "folder" / "first.md").read_text(encoding="utf-8")
    assert written == "**The first table**\n\n| n | range |\n| --- | --- |\n| 1 | [0, 1] |\n| 2 | [b] |\n"


@pytest.mark.usefixtures("two_experiments")
def test_all_experiments(run: Reticent, tmp_path: Path) -> None:
    assert run("experiment", "all", "--out", str(tmp_path)).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.md", "second.md"]


def test_the_experiments_of_the_package_are_found() -> None:
    assert {"choosing", "exponential", "stable_argmax"} <= set(experiment.experiments())
    assert not {"__init__", "table"} & set(experiment.experiments())


@pytest.mark.slow
def test_experiments_run_from_a_checkout_only(tmp_path: Path) -> None:
    """A copy of the package that is not in a source tree, as pip installs it."""
    shutil.copytree(Path(reticent.__file__).parent, tmp_path / "reticent", ignore=shutil.ignore_patterns("__pycache__"))
    for arguments in ([], ["choosing"], ["all"]):
        done = subprocess.run(
            [sys.executable, "-m", "reticent.cli", "experiment", *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("reticent: experiments run from a checkout of reticent only")
        assert 'run `pip install -e ".[service]"` in it' in done.stderr
        assert done.stderr.count("\n") == 1
