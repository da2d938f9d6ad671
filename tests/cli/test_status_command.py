"""`reticent status`: what a predictor guarantees, and what is wrong with it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import Reticent

from reticent.cli.status import _as_text
from reticent.service import home
from reticent.service.store import protocol, schema, verification

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
fitted = pytest.fixture(command_line.fitted)


def test_a_broken_ledger_does_not_verify(run: Reticent, fitted: Path) -> None:
    run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    with sqlite3.connect(home.folder_of("clinic") / home.STORE) as db:
        db.execute("DROP TRIGGER ledger_no_update")
        db.execute("UPDATE ledger SET answers = 3, cost = 3")
    db.close()
    outcome = run("status", "clinic", "--verify")
    assert outcome.code == 2
    assert "damaged" in outcome.err
    with pytest.raises(protocol.Damaged):
        verification.verify(home.folder_of("clinic") / home.STORE)


def test_with_a_group_a_model_learns_from_one_row_of_each(run: Reticent, folder: Path) -> None:
    assert run(*command_line.FIT, "--group", "patient", "--learner", "private").code == 0
    shown = run("status", "clinic").out
    assert "phase 1: made from 3,000 rows; with a group, its model learned from the first row of each" in shown
    assert "learned from 3,000 rows" not in shown


def test_a_record_of_a_halt_that_cannot_be_read(run: Reticent, fitted: Path) -> None:
    (home.folder_of("clinic") / "halted").write_text("{")
    outcome = run("serve", "clinic")
    assert outcome.code == 70
    for text in (outcome.err, run("status", "clinic").out):
        assert f"the record of it, {home.folder_of('clinic') / 'halted'}, cannot be read" in text
        assert "1970" not in text
        assert "below" not in text


def test_an_upgrade_is_told(run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setitem(schema.UPGRADES, schema.VERSION - 1, lambda db: None)
    outcome = run("status", "clinic", "--verify")
    assert outcome.code == 0
    assert f"the store was upgraded from version {schema.VERSION - 1} to {schema.VERSION}" in outcome.err
    assert run("status", "clinic").err == ""


def test_names(run: Reticent, folder: Path) -> None:
    assert "there are no predictors yet" in run("status").out
    asking = ("ask", "x", "--table", "new.csv", "--out", "o")
    for command in (("serve", "x"), ("status", "x"), asking, ("keys", "list", "x")):
        outcome = run(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert "there is no predictor 'x'; there are none yet" in outcome.err


def test_the_list_shows_the_state_of_each(run: Reticent, fitted: Path) -> None:
    place = home.folder_of("clinic")

    def kept() -> dict[str, bytes]:
        """All files but those that SQLite keeps beside a store for whoever reads it."""
        return {one.name: one.read_bytes() for one in place.iterdir() if not one.name.endswith(("-wal", "-shm"))}

    def states() -> list[list[str]]:
        before = kept()
        listed = [line.split(maxsplit=1) for line in run("status").out.splitlines()]
        assert kept() == before, "nothing is changed"
        return listed

    run("status")  # what fit printed is not part of the list

    assert states() == [["clinic", "stopped"]]
    (place / "address").write_text("http://127.0.0.1:1")  # of a server that was killed
    (place / home.LOCK).write_text(f"{2**22 + 1:<20}")  # no process can have this number
    assert states() == [["clinic", "stopped"]]
    (place / "halted").write_text("{")
    assert states() == [["clinic", "halted"]]
    for left in ("halted", "address"):
        (place / left).unlink()
    assert run("backup", "clinic", "monday.backup").code == 0
    assert run("backup", "clinic", "final.backup", "--final").code == 0
    assert run("restore", "monday.backup", "--name", "records").code == 0
    assert states() == [["clinic", "retired"], ["records", "records only"]]


def test_only_the_last_phases_are_listed() -> None:
    past = [{"number": number, "rows": 30, "answers": 10 * number} for number in range(1, 8)]
    found: dict[str, Any] = {
        "served": None, "words": "", "phase": 8, "rows": 30, "teachers": 0, "answered": 280, "answers_left": None,
        "answers_in_phase": 100, "answers_left_in_phase": 100, "phase_never_ends": True, "truth": "rows",
        "phase_rows": 40, "labelled_received": 280, "labelled_waiting": 0, "classes": ["no", "yes"],
        "ledger_length": 7, "ledger_head": "6c1f", "halted": None,
        "retired": None, "guarantee": {"unit": "row", "protects": "rows and queries"},
    }  # fmt: skip
    (shown,) = (line for line in _as_text("clinic", found | {"past": past}).splitlines() if " phases: " in line)
    assert shown.startswith("answers in the last phases: 30 in phase 3 (from 30 rows), ")
    assert "answers in earlier phases: 10 in phase 1" in _as_text("clinic", found | {"past": past[:2]})
