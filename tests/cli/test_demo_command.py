"""`reticent demo`: a clinic that is the same in every run, fitted, served and asked."""

from __future__ import annotations

import csv
import re
import time
from pathlib import Path
from types import SimpleNamespace

import command_line
import numpy as np
import pytest
from command_line import Reticent

from reticent import cli
from reticent.cli import clinic, clinic_service

run = pytest.fixture(command_line.run)


def test_demo(run: Reticent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clinic_service, "show", lambda seconds: print(f"a clinic, for {seconds} s"))
    assert run("demo", "--seconds", "2") == (0, "a clinic, for 2.0 s\n", "")


def test_the_clinic_is_the_same_for_the_same_seed() -> None:
    one, two, other = clinic.clinic(500, seed=3), clinic.clinic(500, seed=3), clinic.clinic(500, seed=4)
    assert all(np.array_equal(one[name], two[name], equal_nan=name == "haemoglobin") for name in one)
    assert not np.array_equal(one["age"], other["age"])


def test_patients_may_come_several_times() -> None:
    assert len(set(clinic.clinic(1_000, seed=0)["patient_id"])) == 1_000
    assert 333 <= len(set(clinic.clinic(1_000, seed=0, stays=3)["patient_id"])) < 700


def test_the_schema_is_of_the_clinic() -> None:
    table = clinic.clinic(2_000, seed=0)
    assert {one.name for one in clinic.SCHEMA.columns} == set(table) - {"patient_id", "readmitted"}
    rows = clinic.SCHEMA.encode(table)
    assert np.isfinite(rows).all()
    assert 0.3 < clinic.SCHEMA.class_indices(table["readmitted"]).mean() < 0.7


def test_the_tables_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clinic, "ROWS", 50)
    assert cli.main(["demo", "--write", str(tmp_path)]) == 0
    with open(tmp_path / "patients.csv", newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0][0] == "patient_id"
    assert lines[0][-1] == "readmitted"
    assert len(lines) == 51
    with open(tmp_path / "new.csv", newline="") as file:
        assert next(csv.reader(file)) == lines[0][1:-1]
    capsys.readouterr()
    assert cli.main(["demo", "--write", str(tmp_path)]) == 2
    assert "patients.csv: File exists" in capsys.readouterr().err
    assert cli.main(["demo", "--seconds", "0"]) == 2


@pytest.mark.slow
def test_it_fits_serves_asks_and_ends_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clinic_service, "ROWS", 20_000)
    monkeypatch.setattr(clinic_service, "FIT", ["--epsilon", "8", "--delta", "1e-6", "--drift", "slow"])
    monkeypatch.delenv("RETICENT_HOME", raising=False)
    # Its clock stands still until enough was answered, however long that takes.
    now, summary = [0.0], clinic_service._Clients.summary

    def summary_and_time(clients: clinic_service._Clients) -> str:
        now[0] = 3.0 if clients.answered > 100 else 0.0
        return summary(clients)

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(clinic_service._Clients, "summary", summary_and_time)
    monkeypatch.setattr(clinic_service, "time", clock)
    assert cli.main(["demo", "--seconds", "3"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"The dashboard is at http://127\.0\.0\.1:\d+/", shown)
    right = re.search(r"([\d,]+) private answers, ([\d.]+)% of them right", shown)
    assert right is not None
    assert int(right[1].replace(",", "")) > 100
    assert float(right[2]) > 75
    assert f"answered: {right[1]} in all" in shown
    assert "are chained without a gap" in shown
