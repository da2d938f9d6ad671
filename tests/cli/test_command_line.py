"""The program as a whole: help, version, errors of one line, a light start."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import command_line
import pytest
from command_line import Reticent, check_refused

run = pytest.fixture(command_line.run)


def test_version(run: Reticent) -> None:
    assert run("--version") == (0, version("reticent") + "\n", "")


@pytest.mark.parametrize("arguments", [("--help",), (), ("audit",), ("audit", "mechanisms", "--help")])
def test_help(run: Reticent, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 0
    assert "Usage: reticent" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("serve-tea", "serve-tea"),
        ("audit teapots", "teapots"),
        ("experiment teapot", "there is no experiment 'teapot'; there are:"),
        ("fit x.csv --name y", "reticent: --epsilon must be given"),
        ("fit x.csv --name y --epsilon", "reticent: --epsilon needs a value"),
        ("fit x.csv --nam y --epsilon 1 --delta 0", "reticent: --name must be given. Did you mean --name instead"),
        ("serve", "reticent: NAME (or --name) must be given"),
        ("plan advise 20000", "reticent: FEATURES (or --features) must be given"),
        ("experiment choosing --out {folder}/file", "--out"),
    ],
)
def test_errors_are_one_line(run: Reticent, tmp_path: Path, arguments: str, message: str) -> None:
    (tmp_path / "file").touch()
    check_refused(run(*arguments.format(folder=tmp_path).split()), message)


@pytest.mark.slow
def test_as_a_program() -> None:
    """Without the help of pytest: the installed entry point, its exit code, and no traceback."""
    program = [sys.executable, "-m", "reticent.cli"]
    wrong = subprocess.run([*program, "audit", "--nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
    assert subprocess.run([*program, "--version"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["keys", "--help"], ["demo", "--help"]])
def test_help_imports_nothing_slow(arguments: list[str]) -> None:
    """scipy, scikit-learn, joblib and dp-accounting take longer to import than the help takes to print."""
    code = f"import sys, reticent.cli; reticent.cli.main({arguments}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "reticent.cli" in loaded
    assert not {"sklearn", "joblib", "dp_accounting", "scipy.stats", "reticent.audit.catalogue"} & set(loaded)
