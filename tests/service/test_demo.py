"""The demo: a clinic that is the same in every run, fitted, served and asked."""

from __future__ import annotations

import csv
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from terminal import typed_in

from reticent import cli, demo
from reticent.service import client
from reticent.service.http import open_inference
from reticent.service.schema import Schema
from waiting import reserved_port


def test_the_clinic_is_the_same_for_the_same_seed() -> None:
    one, two, other = demo.clinic(500, seed=3), demo.clinic(500, seed=3), demo.clinic(500, seed=4)
    assert all(np.array_equal(one[name], two[name], equal_nan=name == "haemoglobin") for name in one)
    assert not np.array_equal(one["age"], other["age"])


def test_patients_may_come_several_times() -> None:
    assert len(set(demo.clinic(1_000, seed=0)["patient_id"])) == 1_000
    assert 333 <= len(set(demo.clinic(1_000, seed=0, stays=3)["patient_id"])) < 700


def test_the_schema_is_of_the_clinic() -> None:
    table = demo.clinic(2_000, seed=0)
    assert {one.name for one in demo.SCHEMA.columns} == set(table) - {"patient_id", "readmitted"}
    rows = demo.SCHEMA.encode(table)
    assert np.isfinite(rows).all()
    assert 0.3 < demo.SCHEMA.codes(table["readmitted"]).mean() < 0.7


def test_the_tables_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROWS", 50)
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
    monkeypatch.setattr(demo, "ROWS", 20_000)
    monkeypatch.setattr(demo, "FIT", ["--epsilon", "8", "--delta", "1e-6", "--drift", "slow"])
    monkeypatch.delenv("RETICENT_HOME", raising=False)
    # Its clock stands still until enough was answered, however long that takes.
    now, told = [0.0], demo._Crowd.told

    def told_and_timed(crowd: demo._Crowd) -> str:
        now[0] = 3.0 if crowd.answered > 100 else 0.0
        return told(crowd)

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(demo._Crowd, "told", told_and_timed)
    monkeypatch.setattr(demo, "time", clock)
    assert cli.main(["demo", "--seconds", "3"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"The dashboard is at http://127\.0\.0\.1:\d+/", shown)
    right = re.search(r"([\d,]+) private answers, ([\d.]+)% of them right", shown)
    assert right is not None
    assert int(right[1].replace(",", "")) > 100
    assert float(right[2]) > 75
    assert f"answered: {right[1]} in all" in shown
    assert "are chained without a gap" in shown


# ── the guide ─────────────────────────────────────────────────────────────────────────────────────────────────────

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "five-minutes.md"


def script() -> str:
    """All that the guide has one type, but for the installation; what a second terminal is for runs beside the rest."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    install, *rest = blocks
    assert "pip install" in install
    ready = "until curl -sf http://127.0.0.1:$PORT/v2/health/ready >ready; do kill -0 $!; sleep 0.1; done"
    serve = f"reticent serve clinic --port $PORT &\ntrap 'kill $!' EXIT\n{ready}\n"
    assert rest.count("reticent serve clinic\n") == 1
    typed = "".join(serve if one == "reticent serve clinic\n" else one for one in rest)
    # Another service may run on the usual port of this machine; nothing else is changed.
    return typed.replace("127.0.0.1:8341", "127.0.0.1:$PORT").replace("Client(", 'Client("http://127.0.0.1:@PORT", ')


@pytest.mark.slow
def test_the_guide_as_written(tmp_path: Path) -> None:
    with reserved_port() as port:
        check_guide(tmp_path, str(port))


def check_guide(tmp_path: Path, port: str) -> None:
    code, shown = typed_in(tmp_path, script().replace("@PORT", port), PORT=port)
    assert code == 0, shown
    assert "1,000 answers in answers.csv" in shown
    assert '{"predictions":["yes"]}' in shown
    assert "['yes']" in shown
    assert "answered: 1,002 in all" in shown
    assert "are chained without a gap" in shown
    assert "100/s, 100 at once, 50,000 in all" in shown
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 1_001


def test_the_examples_of_asking_fit_the_clinic_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    clinic = Schema.from_toml(GUIDE.read_text(encoding="utf-8").split("schema.toml <<'END'\n")[1].split("\nEND")[0])
    page = (GUIDE.parents[1] / "service" / "http.md").read_text(encoding="utf-8")
    asked = []

    def ask(_: client.Client, rows: Any) -> None:
        head, data = client._written(client._tensors(rows)[0])
        asked.append(open_inference.read(head + data, str(len(head)), clinic, 100).rows)

    monkeypatch.setattr(client.Client, "ask", ask)
    for public in ("status", "guarantee"):
        monkeypatch.setattr(client.Client, public, lambda _: {})
    exec(re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[0], {})
    (body,) = re.findall(r"^curl -d '(.*?)'", page, flags=re.MULTILINE | re.DOTALL)
    asked.append(open_inference.read(body.encode(), None, clinic, 100).rows)
    assert [len(rows) for rows in asked] == [2, 1]
    assert (asked[0][1] == asked[1][0]).all()  # the same patient
