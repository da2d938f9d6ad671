"""`reticent feedback`: outcomes by the ids of answers; nobody sees which of them count."""

from __future__ import annotations

import csv
import signal
from pathlib import Path
from typing import Any, cast

import command_line
import pytest
from command_line import Reticent, check_refused, served
from test_teach_command import make, table

import warm
from reticent.cli import feedback
from reticent.cli.opening import open_predictor

run = pytest.fixture(command_line.run)

KILLED = """
import os, signal, sys
from reticent import cli
from reticent.cli import feedback
from reticent.service.answering import AnsweringService

feedback.ROWS_PER_REQUEST = 10
calls = 0
real = AnsweringService.feedback

def dies(*arguments):
    global calls
    calls += 1
    found = real(*arguments)
    if calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

AnsweringService.feedback = dies
sys.exit(cli.main(["feedback", "clinic", "--table", "answers.csv"]))
"""


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    made = make(tmp_path, monkeypatch, "--truth", "feedback", "--phase-rows", "400", "--feedback-share", "0.5")
    table(made / "new.csv", 45)
    capsys.readouterr()
    return made


def answers(clinic: Path) -> list[dict[str, str]]:
    with open(clinic / "answers.csv", newline="") as file:
        return list(csv.DictReader(file))


def write(clinic: Path, rows: list[dict[str, str]]) -> None:
    with open(clinic / "answers.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["ill", "answer_id"])
        writer.writeheader()
        writer.writerows(rows)


def labels_given() -> list[int]:
    """The labels of all open slots; −1 for none."""
    service = open_predictor("clinic")
    try:
        slots = cast(Any, service._predictor._machine.intake)._slots
        return [int(one) for one in slots.places.contents()[2]]
    finally:
        service.close()


def test_answers_have_ids_and_outcomes_find_their_slots(run: Reticent, clinic: Path) -> None:
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
    found = answers(clinic)
    assert {len(one["answer_id"]) for one in found} == {32}
    assert len({one["answer_id"] for one in found}) == 45
    truth = [{**one, "ill": "yes"} for one in found]
    write(clinic, [*truth[:10], {"ill": "maybe", "answer_id": found[10]["answer_id"]}])
    outcome = run("feedback", "clinic", "--table", "answers.csv")
    assert (outcome.code, outcome.out) == (0, "11 labels of answers.csv are sent\n")
    assert labels_given() == [1] * 10 + [-1] * 35
    write(clinic, [{**truth[0], "ill": "no"}, {**truth[1], "ill": ""}])  # corrected, and withdrawn
    assert run("feedback", "clinic", "--table", "answers.csv").code == 0
    assert labels_given() == [0, -1] + [1] * 8 + [-1] * 35


def test_what_is_printed_does_not_say_which_labels_count(run: Reticent, clinic: Path) -> None:
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
    good = run("feedback", "clinic", "--table", "answers.csv")
    status = run("status", "clinic").out
    write(clinic, [{"ill": "yes", "answer_id": f"{one:032x}"} for one in range(44)] + [{"ill": "x", "answer_id": "?"}])
    assert run("feedback", "clinic", "--table", "answers.csv") == good
    assert run("status", "clinic").out == status
    assert "feedback); there are 45 rows" in status
    assert "labelled rows:" not in status


def test_bad_tables_are_refused_before_anything_is_sent(run: Reticent, clinic: Path) -> None:
    for text, why in (
        ("ill\nyes\n", "has no column 'answer_id'"),
        ("answer_id\nyes\n", "has no column 'ill'"),
        ("answer_id,ill\n", "has no rows"),
    ):
        (clinic / "answers.csv").write_text(text)
        check_refused(run("feedback", "clinic", "--table", "answers.csv"), why)
    assert not list(clinic.glob("*.feedback"))


def test_only_predictors_that_take_feedback_get_it(
    run: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, monkeypatch, "--truth", "rows", "--phase-rows", "400")
    (made / "answers.csv").write_text("answer_id,ill\nx,yes\n")
    assert "takes no feedback" in run("feedback", "clinic", "--table", "answers.csv").err


@pytest.mark.slow
def test_after_a_kill_the_rest_is_sent(run: Reticent, clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "ROWS_PER_REQUEST", 10)
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
    write(clinic, [{**one, "ill": "yes"} for one in answers(clinic)])
    assert warm.run("-c", KILLED).returncode == -signal.SIGKILL
    assert labels_given() == [1] * 30 + [-1] * 15
    check_refused(run("feedback", "clinic", "--table", "answers.csv"), "continue with --resume")
    assert run("feedback", "clinic", "--table", "answers.csv", "--resume").out == "45 labels of answers.csv are sent\n"
    assert labels_given() == [1] * 45
    assert not list(clinic.glob("*.feedback"))


@pytest.mark.slow
def test_outcomes_reach_a_server_from_the_key_that_asked(
    run: Reticent, clinic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [run("keys", "add", "clinic", who).out.strip() for who in ("ward", "thief")]
    monkeypatch.setenv("RETICENT_KEY", keys[0])
    with served():
        assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
        write(clinic, [{**one, "ill": "yes"} for one in answers(clinic)[:20]])
        sent = run("feedback", "clinic", "--table", "answers.csv")
        assert (sent.code, sent.out) == (0, "20 labels of answers.csv are sent\n")
        monkeypatch.setenv("RETICENT_KEY", keys[1])
        write(clinic, [{**one, "ill": "no"} for one in answers(clinic)])
        assert run("feedback", "clinic", "--table", "answers.csv") == sent
    assert labels_given() == [1] * 20 + [-1] * 25
