"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import reticent.audit.catalogue
from reticent import cli
from reticent.experiments.table import Table


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Reticent = Callable[..., Outcome]


@pytest.fixture
def reticent_command(capsys: pytest.CaptureFixture[str]) -> Reticent:
    def run(*arguments: str) -> Outcome:
        code = cli.main(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entries instead of all, so that the table takes no time."""
    entries = tuple(
        entry for entry in reticent.audit.catalogue.catalogue() if entry.name in ("laplace_count", "noisy_majority")
    )
    monkeypatch.setattr(reticent.audit.catalogue, "catalogue", lambda: entries)


def two_twins(folder: Path, *, broken: bool) -> Path:
    """A file with a twin of each of the two entries; one of them may be no twin at all."""
    source = [
        "from fractions import Fraction",
        "def weak(noise, count): return count + noise.discrete_laplace(Fraction(1, 2))",
        "def told(noise, count): return count",
        "def mute(noise, count): return 0",
        f"TWINS = {{'laplace_count': {{'weak': weak}}, 'noisy_majority': {{'x': {'told' if broken else 'mute'}}}}}",
    ]
    path = folder / "some_twins.py"
    path.write_text("\n".join(source))
    return path


# ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.usefixtures("few")
def test_the_table(reticent_command: Reticent, tmp_path: Path) -> None:
    twins = two_twins(tmp_path, broken=True)
    outcome = reticent_command("audit", "mechanisms", "--runs", "1000", "--twins", str(twins))
    assert outcome.code == 0
    assert outcome.err == ""
    for heading in ("mechanism", "claim (ε, δ)", "worst exact δ at ε", "empirical ε ≥", "twin rejected"):
        assert heading in outcome.out
    line = next(line for line in outcome.out.splitlines() if "laplace_count" in line)
    assert "1000 runs on either input, 99.9% confidence" in outcome.out
    assert "(1, 0)" in line
    assert "yes" in line
    assert "ok" in line


@pytest.mark.usefixtures("few")
def test_a_twin_that_is_not_rejected_fails(reticent_command: Reticent, tmp_path: Path) -> None:
    twins = two_twins(tmp_path, broken=False)
    outcome = reticent_command("audit", "mechanisms", "--runs", "100", "--twins", str(twins), "--quiet")
    assert outcome.code == 1
    assert "no: x" in outcome.out
    assert "FAILS" in outcome.out


@pytest.mark.usefixtures("few")
def test_json(reticent_command: Reticent, tmp_path: Path) -> None:
    twins = two_twins(tmp_path, broken=False)
    outcome = reticent_command("audit", "mechanisms", "--json", "--runs", "1000", "--twins", str(twins))
    assert outcome.code == 1
    report = json.loads(outcome.out)
    rows = {row["mechanism"]: row for row in report["mechanisms"]}
    assert {key: report[key] for key in report if key != "mechanisms"} == {
        "passed": False, "runs": 1000, "confidence": 0.999, "twins": str(twins),
    }  # fmt: skip
    assert set(rows["laplace_count"]) == {
        "mechanism", "epsilon", "delta", "exact_delta", "exact_passed",
        "empirical_epsilon", "empirical_event", "empirical_passed", "twins", "passed",
    }  # fmt: skip
    assert rows["laplace_count"]["passed"] is True
    assert [(twin["name"], twin["rejected"]) for twin in rows["laplace_count"]["twins"]] == [("weak", True)]
    assert rows["noisy_majority"]["twins"] == [{"name": "x", "exact_delta": 0.0, "rejected": False}]
    assert rows["noisy_majority"]["passed"] is False


@pytest.mark.usefixtures("few")
def test_twins_come_with_the_package_and_no_others_are_run_unasked(
    reticent_command: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    two_twins(tmp_path, broken=False).rename(tmp_path / "tests" / "twins.py")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'reticent'")
    monkeypatch.chdir(tmp_path)
    outcome = reticent_command("audit", "mechanisms", "--runs", "100", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert report["twins"] == "reticent.audit.twins"
    for row in report["mechanisms"]:
        assert [(twin["name"], twin["rejected"]) for twin in row["twins"]] == [("noise × 0.7", True)]


@pytest.mark.usefixtures("few")
def test_progress_goes_to_standard_error(
    reticent_command: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    command = ("audit", "mechanisms", "--runs", "8", "--json", "--twins", str(two_twins(tmp_path, broken=True)))
    assert "auditing" in reticent_command(*command).err
    assert reticent_command(*command, "--quiet").err == ""


# ── experiments, demo ─────────────────────────────────────────────────────────────────────────────────────────────

@pytest.fixture
def two_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        module = ModuleType(f"reticent.experiments.{name}")
        tables = [Table(f"The {name} table", ("n", "range"), (("1", "[0, 1]"), ("2", "[b]")))]
        module.tables = lambda tables=tables: tables  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(cli, "_experiments", lambda: ["first", "second"])


@pytest.mark.usefixtures("two_experiments")
@pytest.mark.parametrize("arguments", [(), ("--list",), ("first", "--list")])
def test_experiments_are_listed(reticent_command: Reticent, arguments: tuple[str, ...]) -> None:
    assert reticent_command("experiment", *arguments) == (0, "first\nsecond\n", "")


@pytest.mark.parametrize("name", cli._experiments())
def test_every_experiment_has_tables(name: str) -> None:
    assert callable(importlib.import_module(f"reticent.experiments.{name}").tables)


@pytest.mark.usefixtures("two_experiments")
def test_an_experiment_is_printed_and_written(reticent_command: Reticent, tmp_path: Path) -> None:
    outcome = reticent_command("experiment", "first", "--out", str(tmp_path / "new" / "folder"))
    assert outcome.code == 0
    assert "The first table" in outcome.out
    assert "[b]" in outcome.out, "brackets are text, not markup"
    written = (tmp_path / "new" / "folder" / "first.md").read_text(encoding="utf-8")
    assert written == "**The first table**\n\n| n | range |\n| --- | --- |\n| 1 | [0, 1] |\n| 2 | [b] |\n"


@pytest.mark.usefixtures("two_experiments")
def test_all_experiments(reticent_command: Reticent, tmp_path: Path) -> None:
    assert reticent_command("experiment", "all", "--out", str(tmp_path)).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.md", "second.md"]


def test_the_experiments_of_the_package_are_found() -> None:
    assert {"choosing", "exponential", "stable_argmax"} <= set(cli._experiments())
    assert not {"__init__", "table"} & set(cli._experiments())


def test_demo(reticent_command: Reticent, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("reticent.demo")
    module.main = lambda seconds: print(f"a clinic, for {seconds} s")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reticent.demo", module)
    assert reticent_command("demo", "--seconds", "2") == (0, "a clinic, for 2.0 s\n", "")


# ── help, version, errors ─────────────────────────────────────────────────────────────────────────────────────────

def test_version(reticent_command: Reticent) -> None:
    assert reticent_command("--version") == (0, version("reticent") + "\n", "")


@pytest.mark.parametrize("arguments", [("--help",), (), ("audit",), ("audit", "mechanisms", "--help")])
def test_help(reticent_command: Reticent, arguments: tuple[str, ...]) -> None:
    outcome = reticent_command(*arguments)
    assert outcome.code == 0
    assert "Usage: reticent" in outcome.out


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("serve-tea", "serve-tea"),
        ("audit teapots", "teapots"),
        ("audit mechanisms --runs many", "--runs"),
        ("audit mechanisms --runs 7", "--runs must be at least 8, got 7"),
        ("audit mechanisms --jobs 0", "--jobs must be a number of processes, or -1 for all cores, got 0"),
        ("audit mechanisms --spout", "--spout"),
        ("audit mechanisms --twins nowhere.py", "there is no file nowhere.py"),
        ("audit mechanisms --twins {folder}", "there is no file"),
        ("audit mechanisms --twins {folder}/empty.py", "must define TWINS"),
        ("audit mechanisms --twins {folder}/wrong.py", "--twins"),
        ("audit mechanisms --twins {folder}/raises.py", "raises ZeroDivisionError"),
        ("audit mechanisms --twins {folder}/exits.py", "raises SystemExit"),
        ("audit mechanisms --runs 8 --twins {folder}/late.py", "'x' of laplace_count raises TypeError"),
        ("audit mechanisms --twins {folder}/twins.txt", "must be in a Python file"),
        ("experiment teapot", "there is no experiment 'teapot'; there are:"),
        ("experiment choosing --out {folder}/empty.py", "--out"),
    ],
)
def test_errors_are_one_line(
    reticent_command: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "empty.py": "",
        "wrong.py": "if",
        "twins.txt": "TWINS = {}",
        "raises.py": "1 / 0",
        "exits.py": "raise SystemExit",
        "late.py": "TWINS = {'laplace_count': {'x': lambda: 0}}",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    outcome = reticent_command(*arguments.format(folder=tmp_path).split())
    assert outcome.code == 2
    assert outcome.err.startswith("reticent: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


def test_as_a_program() -> None:
    """Without the help of pytest: the installed entry point, its exit code, and no traceback."""
    program = [sys.executable, "-m", "reticent.cli"]
    wrong = subprocess.run([*program, "audit", "--nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
    assert subprocess.run([*program, "--version"], capture_output=True, check=False).returncode == 0


def test_start_up_imports_nothing_slow() -> None:
    """scipy, scikit-learn, joblib and dp-accounting take longer to import than the help takes to print."""
    code = "import sys, reticent.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "joblib", "dp_accounting", "scipy.stats", "reticent.audit.catalogue"} & set(loaded)
