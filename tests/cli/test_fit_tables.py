"""Tables that `reticent fit` reads: as other programs write them, with groups, and while they change."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import command_line
import pytest
from command_line import FIT, SCHEMA, SECRET, Reticent

from reticent.cli.fit import read_rows
from reticent.data.schema import Schema
from reticent.service import home, tables

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)


def test_fit_takes_every_row_whatever_it_holds(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT)
    assert (outcome.code, outcome.err) == (0, "")
    assert SECRET not in outcome.out
    assert "\nProtects: each row of the table, and not queries, with ε = 1, δ = 1e-06\n" in outcome.out
    made = home.read_model(home.folder_of("clinic"))
    assert Schema.from_toml(made) == Schema.from_toml(SCHEMA)
    assert "rows = 3000" in made
    assert 'delta = "1/1000000"' in made
    again = run(*FIT)
    assert again.code == 2
    assert "there is a predictor 'clinic' already" in again.err


def test_labels_are_read_once(run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They reach the predictor as class indices: none is turned back into text, to be read again."""

    def read_again(*_: object) -> None:
        raise AssertionError("labels were read a second time")

    monkeypatch.setattr("reticent.data.labels.as_labels", read_again)
    assert run(*FIT).code == 0


def test_what_fit_would_do_does_not_depend_on_what_rows_hold(run: Reticent, folder: Path) -> None:
    """All that `fit` prints, and the public file, are the same for tables whose rows share nothing but their number.

    Only what the released model is like may differ, as that is a function of the release.
    """
    first = run(*FIT)
    public = home.read_model(home.folder_of("clinic"))
    (folder / "patients.csv").write_text(
        "age,ward,patient,ill\n" + "".join(f"{SECRET},é,{SECRET},no\n" for _ in range(3_000))
    )
    second = run(*FIT[:-1], "klinik")
    out, _, told = second.out.partition("ONE ANSWER: ")
    assert out.replace("klinik", "clinic") == first.out
    assert told.startswith("the model of this phase answers 'no' to nearly every query.")
    assert first.err == second.err == ""
    assert home.read_model(home.folder_of("klinik")) == public


def test_groups_are_protected_together(run: Reticent, folder: Path) -> None:
    outcome = run(*FIT, "--group", "patient")
    assert outcome.code == 0
    assert "\nProtects: all rows of one 'patient' together, and not queries, with ε = 1, δ = 1e-06\n" in outcome.out
    assert Schema.from_toml(home.read_model(home.folder_of("clinic"))).group == "patient"


@pytest.mark.parametrize("cell", ["", "  "])
def test_a_row_without_a_group_is_refused(run: Reticent, folder: Path, cell: str) -> None:
    table = folder / "patients.csv"
    table.write_text(table.read_text().replace(",p7,", f",{cell},"))
    outcome = run(*FIT, "--group", "patient")
    assert outcome.code == 2
    assert "patients.csv: the column 'patient' must name the group of every row: some are missing\n" in outcome.err
    assert not re.search(r"row \d", outcome.err), "no message says which row it was"
    assert not (folder / "home" / "clinic").exists()
    assert run(*FIT, "--again").code == 0  # without groups nobody needs to know


def test_a_group_is_the_same_with_and_without_blanks_around_its_name(folder: Path) -> None:
    table = folder / "patients.csv"
    table.write_text(table.read_text().replace(",p7,", ", p7 ,", 1))
    schema = replace(Schema.from_toml(SCHEMA), group="patient")
    groups = read_rows(tables.open_table(table), schema, 3_000).groups
    assert groups is not None
    assert groups[14] == groups[15]
    assert len(set(groups.tolist())) == 1_501  # one of them the secret


def test_a_table_without_rows(run: Reticent, folder: Path) -> None:
    (folder / "patients.csv").write_text("age,ward,patient,ill\n")
    assert "has no rows" in run(*FIT).err


@pytest.mark.slow
def test_a_table_that_grows_while_it_is_read(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in (2_999, 3_001):
        monkeypatch.setattr(tables.Csv, "count", lambda *_, count=count: count)
        assert "has changed while it was read" in run(*FIT).err


SEPARATED = {
    "semicolons.csv": lambda text: text.replace(",", ";").encode(),
    "tabs.tsv": lambda text: text.replace(",", "\t").encode(),
    "bom.csv": lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
    "utf16.csv": lambda text: text.encode("utf-16"),
    "gaps.csv": lambda text: text.replace("\n", "\n\n").encode(),
    "quotes.csv": lambda text: text.replace(",ill", ',"no\nte",ill').replace(",yes", ',"a,\nb",yes').encode(),
}


@pytest.mark.parametrize("name", SEPARATED)
def test_tables_as_other_programs_write_them(run: Reticent, folder: Path, name: str) -> None:
    text = (folder / "patients.csv").read_text()
    if name == "quotes.csv":
        text = text.replace(",no", ",,no")
    (folder / name).write_bytes(SEPARATED[name](text))
    outcome = run(FIT[0], name, *FIT[2:])
    assert (outcome.code, outcome.err) == (0, "")
    assert "3,000 rows of 3 columns" in outcome.out


def test_a_decimal_comma_is_read_between_semicolons_only(folder: Path) -> None:
    (folder / "a.csv").write_text("age;ward\n1,5;1,5\n1.5;x\n1.000,5;x\n")
    (folder / "b.csv").write_text('age,ward\n"1,5",x\n')
    (one,) = tables.open_table("a.csv").chunks(["age", "ward"], numbers={"age"})
    assert one == {"age": ["1.5", "1.5", "1.000,5"], "ward": ["1,5", "x", "x"]}
    (two,) = tables.open_table("b.csv").chunks(["age", "ward"], numbers={"age"})
    assert two["age"] == ["1,5"]


def test_a_first_line_that_is_a_row_is_not_repeated(run: Reticent, folder: Path) -> None:
    (folder / "patients.csv").write_text(f"{SECRET},a,p1,yes\n" * 100)
    outcome = run(*FIT)
    assert outcome.code == 2
    assert SECRET not in outcome.out + outcome.err
    assert "its first line must name the columns" in outcome.err
