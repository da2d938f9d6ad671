"""`reticent audit mechanisms`: the table, the twins, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import command_line
import pytest
from command_line import Reticent, check_refused

import reticent.audit.catalogue

run = pytest.fixture(command_line.run)


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


@pytest.mark.usefixtures("few")
def test_the_table(run: Reticent, tmp_path: Path) -> None:
    twins = two_twins(tmp_path, broken=True)
    outcome = run("audit", "mechanisms", "--runs", "1000", "--twins", str(twins))
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
def test_a_twin_that_is_not_rejected_fails(run: Reticent, tmp_path: Path) -> None:
    twins = two_twins(tmp_path, broken=False)
    outcome = run("audit", "mechanisms", "--runs", "100", "--twins", str(twins), "--quiet")
    assert outcome.code == 1
    assert "no: x" in outcome.out
    assert "FAILS" in outcome.out


@pytest.mark.usefixtures("few")
def test_json(run: Reticent, tmp_path: Path) -> None:
    twins = two_twins(tmp_path, broken=False)
    outcome = run("audit", "mechanisms", "--json", "--runs", "1000", "--twins", str(twins))
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
def test_twins_come_with_the_package_and_no_others_run_unasked(
    run: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    two_twins(tmp_path, broken=False).rename(tmp_path / "tests" / "twins.py")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'reticent'")
    monkeypatch.chdir(tmp_path)
    outcome = run("audit", "mechanisms", "--runs", "100", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert report["twins"] == "reticent.audit.twins"
    for row in report["mechanisms"]:
        assert [(twin["name"], twin["rejected"]) for twin in row["twins"]] == [("noise × 0.7", True)]


@pytest.mark.usefixtures("few")
def test_progress_goes_to_standard_error(
    run: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    command = ("audit", "mechanisms", "--runs", "8", "--json", "--twins", str(two_twins(tmp_path, broken=True)))
    assert "auditing" in run(*command).err
    assert run(*command, "--quiet").err == ""


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
    ],
)
def test_errors_are_one_line(
    run: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
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
    check_refused(run(*arguments.format(folder=tmp_path).split()), message)
