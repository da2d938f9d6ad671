"""`reticent ask --resume`: after any kill, what was charged is not charged again."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import command_line
import pytest
from command_line import served

import warm
from reticent import cli
from reticent.cli import ask
from reticent.service import home
from reticent.service.store import verification

KILLED = """
import os, signal, sys
from reticent import cli
from reticent.cli import answer_file, ask

ask.ROWS_PER_REQUEST = {at_once}
calls = 0
real = getattr(answer_file.AnswerFile, {step!r})

def dies(self, *arguments):
    global calls
    calls += 1
    if calls < {nth}:
        return real(self, *arguments)
    {before}
    os.kill(os.getpid(), signal.SIGKILL)

setattr(answer_file.AnswerFile, {step!r}, dies)
sys.exit(cli.main(["ask", "clinic", "--table", "new.csv", "--out", "answers.csv", *sys.argv[1:]]))
"""
HALF = "self._file.write(b'ye'); self._file.flush()"
AFTER = "real(self, *arguments)"

clinic = pytest.fixture(command_line.clinic)


def killed(step: str, before: str, *options: str, nth: int = 3, at_once: int = 10) -> None:
    code = KILLED.format(step=step, before=before, nth=nth, at_once=at_once)
    assert warm.run("-c", code, *options).returncode == -signal.SIGKILL


def answered(clinic: Path) -> int:
    return sum(verification.verify(clinic / "home" / "clinic" / home.STORE).counted.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "before"),
    [("add", "pass"), ("add", HALF), ("add", AFTER), ("begin", "pass"), ("begin", AFTER), ("_write", "pass")],
    ids=["before it is written", "half written", "written", "before it is asked", "on record", "at the record"],
)
def test_what_was_paid_is_not_paid_again(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str, before: str
) -> None:
    monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 10)
    killed(step, before)
    command = ["ask", "clinic", "--table", "new.csv", "--out", "answers.csv"]
    capsys.readouterr()
    assert cli.main(command) == 2
    assert "continue it with --resume" in capsys.readouterr().err
    assert cli.main([*command, "--resume"]) == 0
    assert answered(clinic) == 45
    lines = (clinic / "answers.csv").read_text().splitlines()
    assert (lines[0], len(lines), set(lines[1:]) <= {"no", "yes"}) == ("ill", 46, True)
    assert not (clinic / "answers.csv.asking").exists()


@pytest.mark.slow
def test_what_a_server_was_paid_is_not_paid_again(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server takes 20 rows at once, so that parts become smaller; the reply of the second one is lost."""
    capsys.readouterr()
    assert cli.main(["keys", "add", "clinic", "ward", "--rate", "20"]) == 0
    monkeypatch.setenv("RETICENT_KEY", capsys.readouterr().out.strip())
    resume = ["ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume"]
    with served():
        killed("add", "pass", nth=2, at_once=40)
        assert json.loads((clinic / "answers.csv.asking").read_text())["asked"] == 20
        monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 40)
        assert cli.main(resume) == 0
    assert answered(clinic) == 45
    (clinic / "answers.csv").unlink()
    with served():
        killed("add", "pass", nth=2, at_once=20)
    capsys.readouterr()
    assert cli.main(resume) == 2  # the server is gone: it would be another client that asks, and pays
    assert "sent with another key, or to a server" in capsys.readouterr().err
    assert answered(clinic) == 45 + 40


@pytest.mark.slow
def test_a_new_key_for_what_was_lost_would_pay_twice(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same crash, and a run that has forgotten its number."""
    monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 10)
    killed("add", "pass")
    record = clinic / "answers.csv.asking"
    record.write_text(json.dumps({**json.loads(record.read_text()), "run": "another"}))
    assert cli.main(["ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume"]) == 0
    assert answered(clinic) == 55


@pytest.mark.slow
def test_a_table_that_has_changed_is_not_gone_on_with(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 10)
    killed("add", "pass")
    table = (clinic / "new.csv").read_text()
    resume = ["ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume"]
    for changed, why in (
        (table + "7\n", "the table is not the one"),
        (table.replace("58", "13"), "the rows of the last question have changed"),
    ):
        (clinic / "new.csv").write_text(changed)
        assert cli.main(resume) == 2
        assert why in capsys.readouterr().err
    (clinic / "new.csv").write_text(table)
    assert cli.main(resume) == 0
    assert answered(clinic) == 45
