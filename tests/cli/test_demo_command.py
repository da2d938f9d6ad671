"""`reticent demo`: a clinic that is the same in every run; one predictor learns from its outcomes, one does not."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import command_line
import numpy as np
import pytest
from command_line import Reticent

from reticent import cli
from reticent.cli import clinic, clinic_months, clinic_page, clinic_service
from reticent.cli.clinic_page import Page
from reticent.service import dashboard
from waiting import LIMIT

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


def test_the_clinic_changes_from_month_to_month() -> None:
    first, later = clinic.clinic(4_000, seed=0), clinic.clinic(4_000, seed=0, month=clinic.SPREAD)
    assert all(np.array_equal(first[name], later[name]) for name in ("age", "ward", "emergency"))
    readmitted = [one["readmitted"] == "yes" for one in (first, later)]
    old = first["age"] > 70
    before, after = (float(one[old].mean() - one[~old].mean()) for one in readmitted)
    assert before > 0.2  # the old come back
    assert after < -0.2  # and with aftercare they do not
    assert all(0.3 < one.mean() < 0.7 for one in readmitted)
    over = clinic.clinic(4_000, seed=0, month=10 * clinic.SPREAD)
    assert np.array_equal(over["readmitted"], later["readmitted"])  # it has spread, and stays


def fetched(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=LIMIT) as response:
        found: dict[str, Any] = json.load(response)
        return found


@pytest.mark.slow
def test_two_predictors_part_and_it_ends_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clinic, "SPREAD", 2)
    monkeypatch.delenv("RETICENT_HOME", raising=False)
    pages: list[Page] = []

    class Kept(Page):
        def __enter__(self) -> Kept:
            pages.append(self)
            super().__enter__()
            return self

    # The clock stands still until enough was asked in a month, and all was learned, however long that takes.
    now, seen, look = [0.0], list[dict[str, Any]](), clinic_months.Months.look

    def look_and_let_time_pass(months: clinic_months.Months) -> None:
        look(months)
        if months.learned and months._asked[clinic_months.STATIC, months.month] >= 300:
            seen.append(fetched(f"{pages[0].url}/numbers"))
            now[0] = 1_000.0 if months.month == 4 else now[0] + clinic_service.MONTH

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(clinic_service, "Page", Kept)
    monkeypatch.setattr(clinic_months.Months, "look", look_and_let_time_pass)
    monkeypatch.setattr(clinic_service, "time", clock)
    assert cli.main(["demo", "--seconds", "900"]) == 0
    shown = capsys.readouterr().out
    assert f"The two curves are at {pages[0].url}/" in shown
    assert re.search(r"The dashboard of clinic is at http://127\.0\.0\.1:\d+/, that of day-one at http://127\.0", shown)
    for month in range(4):
        assert re.search(rf"month {month}: +\d+% right where outcomes are learned from, +\d+% where not", shown)
    last = seen[-1]
    assert [one["month"] for one in last["months"]] == [0, 1, 2, 3, 4]
    first, end = last["months"][0], last["months"][-1]
    assert min(first["clinic"], first["day_one"]) > 0.85  # on day one both are good
    assert end["clinic"] > end["day_one"] + 0.2  # and then they part
    assert [one["month"] for one in last["judged"]] == [0, 1, 2, 3]
    assert all(one["low"] < one["right"] < one["high"] for one in last["judged"])
    assert last["clinic"]["phase"] == 5
    answers = re.search(r"clinic: ([\d,]+) private answers, ([\d.]+)% of them right", shown)
    assert answers is not None
    assert f"answered: {answers[1]} in all" in shown
    assert "are chained without a gap" in shown
    assert "labelled rows: " in shown
    with pytest.raises(URLError):
        fetched(f"{pages[0].url}/numbers")  # nothing is left behind


NUMBERS: dict[str, Any] = {
    "month": 3,
    "months": [{"month": one, "clinic": 0.95 - one / 50, "day_one": 0.95 - one / 10} for one in range(4)],
    "judged": [{"month": 0, "right": 0.93, "low": 0.88, "high": 1.02}],
    "clinic": {"url": "http://127.0.0.1:1/", "answered": 3_000, "phase": 3, "labelled": 4_938},
    "day_one": {"url": "http://127.0.0.1:2/", "answered": 3_001},
}


def test_the_page_has_its_files_and_nothing_else() -> None:
    with Page(lambda: NUMBERS, "127.0.0.1") as page:
        assert fetched(f"{page.url}/numbers") == NUMBERS
        for path, (file, kind) in clinic_page.FILES.items():
            with urlopen(page.url + path, timeout=LIMIT) as response:
                assert (response.headers["Content-Type"], response.read()) == (kind, file.read_bytes())
                assert response.headers["Content-Security-Policy"] == dashboard.POLICY
        for path in ("/nothing", "/../clinic.py", "/dashboard/"):
            with pytest.raises(HTTPError, match="404"):
                fetched(page.url + path)
