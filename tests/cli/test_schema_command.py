"""`reticent schema`: a draft from the header alone."""

from __future__ import annotations

from pathlib import Path

import command_line
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from command_line import SECRET, Reticent

from reticent.service import tables

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)


def test_a_schema_is_drafted_from_the_header_alone(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run("schema", "patients.csv", "--target", "ill", "--group", "patient")
    assert (printed.code, printed.err) == (0, "")
    assert SECRET not in printed.out
    assert "yes" not in printed.out.replace('["no", "yes"]', "")
    with open("patients.csv", "rb") as file:
        header = file.readline()
    Path("header.csv").write_bytes(header)
    assert run("schema", "header.csv", "--target", "ill", "--group", "patient").out == printed.out
    for reading in ("count", "chunks"):
        monkeypatch.setattr(tables.Csv, reading, None)
    assert run("schema", "patients.csv", "--target", "ill", "--out", "draft.toml").code == 0
    again = run("schema", "patients.csv", "--out", "draft.toml")
    assert again.code == 2
    assert "draft.toml exists" in again.err


def test_types_come_from_the_schema_of_a_file_that_has_one(run: Reticent, folder: Path) -> None:
    pq.write_table(pyarrow.csv.read_csv("new.csv"), "new.parquet")
    drafted = run("schema", "new.parquet").out
    assert 'name = "ward"\ncategories = []\n\n' in drafted
    assert drafted.endswith('name = "age"\nrange = []\n')
