"""`reticent teach`: labelled rows, each at most once, whatever is killed, and bad tables before anything is sent."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
from command_line import SECRET, Outcome, Reticent, check_refused, served

import warm
from reticent import cli
from reticent.cli import taught_table, teach
from reticent.service import home
from reticent.service.home import Home
from waiting import wait_until

run = pytest.fixture(command_line.run)

KILLED = """
import os, signal, sys
from reticent import cli
from reticent.cli import taught_table, teach
from reticent.service import client

teach.ROWS_PER_REQUEST = 10
calls = 0
real = {module}.{what}

def dies(*arguments, **options):
    global calls
    calls += 1
    if calls < {nth}:
        return real(*arguments, **options)
    {before}
    os.kill(os.getpid(), signal.SIGKILL)

{module}.{what} = dies
sys.exit(cli.main(["teach", "clinic", "--table", "later.csv", *sys.argv[1:]]))
"""
AFTER = "real(*arguments, **options)"
SCHEMA = """\
target = "ill"
classes = ["no", "yes"]

[[columns]]
name = "age"
range = [0, 100]
"""


def table(path: Path, count: int, *, seed: int = 1, people: bool = False) -> None:
    age = np.random.default_rng(seed).integers(0, 100, count)
    names = [f",q{seed}-{place}" if people else "" for place in range(count)]
    lines = [f"{one},{'yes' if one > 50 else 'no'}{name}" for one, name in zip(age, names, strict=True)]
    path.write_text("age,ill" + (",person" if people else "") + "\n" + "\n".join(lines) + "\n")


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RETICENT_KEY", raising=False)
    table(tmp_path / "patients.csv", 2_000, seed=0, people="--group" in options)
    table(tmp_path / "later.csv", 45, people="--group" in options)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    fit = ["fit", "patients.csv", "--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-6", "--name", "clinic"]
    assert cli.main([*fit, *options]) == 0
    return tmp_path


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    made = make(tmp_path, monkeypatch, "--truth", "rows", "--phase-rows", "400")
    capsys.readouterr()
    return made


def received() -> int:
    """Labelled rows that are in the store."""
    with Home(home.folder_of("clinic"), records=True) as found:
        return int(found.store.position.labelled)


def test_rows_are_taken_and_counted(run: Reticent, clinic: Path) -> None:
    outcome = run("teach", "clinic", "--table", "later.csv")
    assert outcome.code == 0
    assert "45 rows of later.csv are taught; their numbers, by which they can be withdrawn: 0–44\n" in outcome.out
    assert "phase 2 begins after 355 more labelled rows\n" in outcome.out
    table(clinic / "more.csv", 400, seed=2)
    assert "phase 3 begins after 355 more labelled rows" in run("teach", "clinic", "--table", "more.csv").out
    status = run("status", "clinic").out
    assert "next phase: begins after 400 labelled rows (reticent teach)" in status
    assert "labelled rows: 445 received in all, 445 wait for the next phases" in status
    assert "New labelled rows are protected as the first ones are" in status
    (clinic / "new.csv").write_text("age\n10\n90\n")
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
    assert (clinic / "answers.csv").read_text().splitlines()[0] == "ill"  # without feedback, no ids
    status = run("status", "clinic").out
    assert "phase 2: learned from 360 rows" in status
    assert "quality of phase 1: " in status
    assert "labelled rows: 445 received in all, 45 wait" in status


def test_a_table_is_taught_once(run: Reticent, clinic: Path) -> None:
    assert run("teach", "clinic", "--table", "later.csv").code == 0
    check_refused(run("teach", "clinic", "--table", "later.csv"), "whoever is in it would pay twice")
    again = run("teach", "clinic", "--table", "later.csv", "--resume")
    assert (again.code, again.out) == (0, "all rows of later.csv are taught already\n")
    table(clinic / "later.csv", 45, seed=5)  # next month, under the same name
    assert run("teach", "clinic", "--table", "later.csv").code == 0
    assert received() == 90


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("age\n1\n", "later.csv has no column 'ill'; there are: age"),
        ("ill,years\nyes,1\n", "later.csv has no column 'age'; there are: ill, years"),
        (f"name,years\n{SECRET},1\n", "later.csv has no column 'age', 'ill'"),
        ("age,ill\n", "later.csv has no rows"),
        ("", "must start with a line that names the columns"),
    ],
)
def test_bad_tables_are_refused_before_anything_is_sent(run: Reticent, clinic: Path, content: str, why: str) -> None:
    (clinic / "later.csv").write_text(content)
    outcome = run("teach", "clinic", "--table", "later.csv")
    check_refused(outcome, why)
    assert SECRET not in outcome.err
    assert received() == 0
    assert not list(clinic.glob("*.taught"))


def test_no_row_is_refused_for_what_it_holds(run: Reticent, clinic: Path) -> None:
    (clinic / "later.csv").write_text(f"age,ill,name\n{SECRET},{SECRET},x\n,,\n999,maybe\n1,yes,{SECRET}\n")
    outcome = run("teach", "clinic", "--table", "later.csv")
    assert outcome.code == 0
    assert "4 rows of later.csv are taught" in outcome.out
    assert SECRET not in outcome.out + outcome.err


def test_only_predictors_that_take_rows_are_taught(
    run: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, monkeypatch, "--truth", "feedback", "--phase-rows", "400")
    outcome = run("teach", "clinic", "--table", "later.csv")
    assert outcome.code == 2
    assert "takes no labelled rows" in outcome.err
    assert not list(tmp_path.glob("*.taught"))


def test_people_of_the_table_are_counted_and_not_learned_from(
    run: Reticent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, monkeypatch, "--truth", "rows", "--phase-rows", "400", "--group", "person")
    (made / "later.csv").write_text("person,ill,age\nq0-7,yes,80\nnew,no,3\n")
    outcome = run("teach", "clinic", "--table", "later.csv")
    assert "1 of them are not learned from: they are of a 'person' that was in a phase before" in outcome.out
    (made / "nobody.csv").write_text("person,ill,age\nnewer,yes,80\n ,no,3\n")
    refused = run("teach", "clinic", "--table", "nobody.csv")
    check_refused(refused, "the column 'person' must name the group of every row")
    assert received() == 2


def test_rows_are_withdrawn_by_their_numbers(run: Reticent, clinic: Path) -> None:
    assert run("teach", "clinic", "--table", "later.csv").code == 0
    outcome = run("teach", "clinic", "--withdraw", "3, 10-12, 44-46")
    assert outcome.out == "5 of 7 rows are withdrawn; only rows that wait for a phase can be\n"
    for wrong in ("x", "3-", "", "1.5", "-2"):
        check_refused(run("teach", "clinic", f"--withdraw={wrong}"), "--withdraw must be numbers of rows")
    check_refused(run("teach", "clinic", "--withdraw", "3, 12-10"), "smaller number of a range first, got '12-10'")
    check_refused(run("teach", "clinic"), "give a table with --table, or numbers of rows with --withdraw")


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def killed(module: str, what: str, before: str, *options: str, nth: int = 3) -> None:
    code = KILLED.format(module=module, what=what, before=before, nth=nth)
    assert warm.run("-c", code, *options).returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        ("teach", "teach_predictor", "pass"),
        ("teach", "teach_predictor", AFTER),
        ("taught_table", "TaughtTable.begin", "pass"),
        ("taught_table", "TaughtTable.begin", AFTER),
        ("taught_table", "TaughtTable._write", "pass"),
        ("taught_table", "TaughtTable.add", "pass"),
    ],
    ids=["on record", "received", "before it is recorded", "recorded", "at the record", "before it is noted"],
)
def test_after_a_kill_no_row_is_taught_twice(
    clinic: Path, run: Reticent, monkeypatch: pytest.MonkeyPatch, where: tuple[str, str, str]
) -> None:
    monkeypatch.setattr(teach, "ROWS_PER_REQUEST", 7)  # the run goes on as it began
    killed(*where)
    check_refused(run("teach", "clinic", "--table", "later.csv"), "some rows of later.csv were taught to clinic")
    outcome = run("teach", "clinic", "--table", "later.csv", "--resume")
    assert outcome.code == 0
    assert "45 rows of later.csv are taught; their numbers, by which they can be withdrawn: 0–44" in outcome.out
    assert received() == 45


@pytest.mark.slow
def test_a_kill_at_the_end_teaches_nothing_again(clinic: Path, run: Reticent) -> None:
    killed("taught_table", "TaughtTable.finish", "pass", nth=1)
    assert run("teach", "clinic", "--table", "later.csv", "--resume").code == 0
    killed_after = run("teach", "clinic", "--table", "later.csv", "--resume")
    assert killed_after.out == "all rows of later.csv are taught already\n"
    assert received() == 45


@pytest.mark.slow
def test_a_new_key_for_what_was_lost_would_teach_twice(clinic: Path, run: Reticent) -> None:
    """The control: the same crash, and a run that has forgotten its number."""
    killed("teach", "teach_predictor", AFTER)
    change_record(clinic, run="another")
    assert run("teach", "clinic", "--table", "later.csv", "--resume").code == 0
    assert received() == 55


def change_record(clinic: Path, **changes: Any) -> None:
    record = taught_table.record_of(clinic / "later.csv", "clinic")
    record.write_text(json.dumps({**json.loads(record.read_text()), **changes}))


@pytest.mark.slow
def test_rows_of_a_request_that_nobody_remembers_are_left_out(clinic: Path, run: Reticent) -> None:
    killed("teach", "teach_predictor", AFTER)
    change_record(clinic, began=1.0)
    outcome = run("teach", "clinic", "--table", "later.csv", "--resume")
    assert outcome.code == 0
    assert "10 rows of later.csv, from row 20 on, were sent over a day ago" in outcome.err
    assert "35 rows of later.csv are taught" in outcome.out
    assert "10 rows were left out" in outcome.out
    assert received() == 45  # of which 10 were received before the kill


@pytest.mark.slow
def test_a_table_or_a_record_that_has_changed_is_not_gone_on_with(clinic: Path, run: Reticent) -> None:
    killed("teach", "teach_predictor", AFTER)
    text = (clinic / "later.csv").read_text()
    resume = ("teach", "clinic", "--table", "later.csv", "--resume")
    (clinic / "later.csv").write_text(text + "7,no\n")
    check_refused(run(*resume), "the table is not the one")
    changed = text.splitlines()
    changed[25] = "00,no" if changed[25] != "00,no" else "99,no"  # in the request that was received
    (clinic / "later.csv").write_text("\n".join(changed)[: len(text) - 1].ljust(len(text) - 1) + "\n")
    outcome: Outcome = run(*resume)
    assert outcome.code == 2
    assert received() == 30
    taught_table.record_of(clinic / "later.csv", "clinic").write_text("{")
    check_refused(run(*resume), "is damaged, so it is not known which rows")


# ── a server ──────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_a_server_is_taught_once_by_a_key_that_may_teach(
    clinic: Path, run: Reticent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETICENT_KEY", run("keys", "add", "clinic", "ward").out.strip())
    owner = run("keys", "add", "clinic", "owner", "--scope", "teach").out.strip()
    command = ("teach", "clinic", "--table", "later.csv")
    with served() as url:
        check_refused(run(*command), "$RETICENT_KEY: The key does not allow this: this needs a key with the scope")
        assert not list(clinic.glob("*.taught"))
        monkeypatch.setenv("RETICENT_KEY", owner)
        killed("client", "Client.teach", AFTER)  # the reply is lost
        outcome = run(*command, "--resume")
        assert outcome.code == 0, outcome.err
        assert "45 rows of later.csv are taught; their numbers, by which they can be withdrawn: 0–44" in outcome.out
        assert "phase 2 begins after 355 more labelled rows" in outcome.out
        assert run("teach", "clinic", "--withdraw", "0-4").out.startswith("5 of 5 rows")
        table(clinic / "far.csv", 20, seed=3)
        monkeypatch.setenv("RETICENT_HOME", str(clinic / "elsewhere"))  # another machine, without the folder
        assert run("teach", "clinic", "--table", "far.csv", "--url", url).code == 0
        assert "labelled rows: 65 received in all" in run("status", "clinic", "--url", url).out
        monkeypatch.setenv("RETICENT_HOME", str(clinic / "home"))
    assert received() == 65


@pytest.mark.slow
def test_what_was_sent_to_a_server_is_not_taught_here(clinic: Path, run: Reticent) -> None:
    with served():
        killed("client", "Client.teach", AFTER)
    outcome = run("teach", "clinic", "--table", "later.csv", "--resume")
    check_refused(outcome, "sent with another key, or to a server")
    assert received() == 30


@pytest.mark.slow
def test_an_alarm_calls_the_command_of_the_server(
    tmp_path: Path, run: Reticent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that have nothing to do with the rows: whatever the noise, half of the answers are wrong."""
    options = ("--truth", "rows", "--phase-rows", "400", "--gauge-share", "0.5", "--alarm-accuracy", "0.9")
    made = make(tmp_path, monkeypatch, *options)
    lines = [f"{one % 100},{'yes' if one // 100 % 2 else 'no'}" for one in range(2_000)]
    (made / "later.csv").write_text("age,ill\n" + "\n".join(lines) + "\n")
    (made / "new.csv").write_text("age\n10\n")
    check_refused(run("serve", "clinic", "--on-alarm", "no-such-program"), "--on-alarm must be a URL, or a command")
    writes = f"{sys.executable} -c \"import os; open('told', 'w').write(os.environ['RETICENT_ALARM_PHASE'])\""
    with served("--on-alarm", writes):
        assert run("teach", "clinic", "--table", "later.csv").code == 0
        assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
        wait_until((made / "told").exists)
        shown = run("status", "clinic").out
    assert "ALARM: quality is lost since phase " in shown
    assert "alarms raised: in phase " in shown
    assert (made / "told").read_text().isdecimal()


def test_a_command_for_alarms_needs_a_predictor_that_raises_them(run: Reticent, clinic: Path) -> None:
    check_refused(run("serve", "clinic", "--on-alarm", "true"), "--on-alarm: this predictor raises none")
