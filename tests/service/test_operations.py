"""What an operator does: backup, restore, upgrade, rotation of keys; and asking that goes on after it was killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shop import MODEL, labels, new_answering, request
from terminal import typed_in
from test_commands import served

from reticent import cli
from reticent.service import backup, commands, home
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http.access import Keyring
from reticent.service.http.problems import Problem
from reticent.service.keys import KeyTable, make_key
from reticent.service.requests import Halted
from reticent.service.store import schema, verification
from reticent.service.store.protocol import INCOMPLETE, RESTORED, RETIRED, Damaged, Retired
from waiting import reserved_port

DOCS = Path(__file__).parents[2] / "docs"


def go_on(folder: Path) -> AnsweringService:
    return AnsweringService(Home(folder), elsewhere=False)


def words(folder: Path) -> list[str]:
    """The marks in an answer log."""
    with sqlite3.connect(folder / home.STORE) as db:
        found = [one for (one,) in db.execute("SELECT client FROM ledger WHERE cost = 0 ORDER BY number")]
    db.close()
    return found


# ── backup ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backup_is_of_one_moment_while_answers_are_given(tmp_path: Path) -> None:
    """Made again and again under load, over the ends of phases: each is whole and verifies."""
    answering = new_answering(tmp_path / "clinic")
    stop = threading.Event()

    def load() -> None:
        place = 0
        while not stop.is_set():
            labels(answering.answer([request(37, seed=place)]))
            place += 1

    thread = threading.Thread(target=load)
    thread.start()
    lengths: list[int] = []
    try:
        while len(lengths) < 6 or answering.status().phase == 1:
            made = backup.write(tmp_path / "clinic", tmp_path / f"{len(lengths)}.backup")
            lengths.append(made.length)
    finally:
        stop.set()
        thread.join()
    answering.close()
    assert lengths == sorted(lengths)
    for place in (0, 1, 2, len(lengths) - 1):
        made, goes_on = backup.restore(tmp_path / f"{place}.backup", tmp_path / f"restored-{place}")
        AnsweringService(
            Home(tmp_path / f"restored-{place}", records=True), elsewhere=False
        ).close()  # the journal is whole, too
        assert (made.length, goes_on) == (lengths[place], False)
        assert verification.verify(tmp_path / f"restored-{place}" / home.STORE).length == made.length + 1


def test_a_backup_is_private_and_overwrites_nothing(tmp_path: Path) -> None:
    new_answering(tmp_path / "clinic").close()
    backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    assert (tmp_path / "a.backup").stat().st_mode & 0o077 == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.backup", "clinic"]
    with pytest.raises(FileExistsError, match="name another file"):
        backup.write(tmp_path / "clinic", tmp_path / "a.backup")


def test_a_backup_that_fails_leaves_nothing_and_retires_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_answering(tmp_path / "clinic").close()
    with pytest.raises(FileNotFoundError):
        backup.write(tmp_path / "clinic", tmp_path / "no folder" / "a.backup", final=True)
    go_on(tmp_path / "clinic").close()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_pack", full)
    with pytest.raises(OSError, match="No space"):
        backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=True)
    assert [one.name for one in tmp_path.iterdir()] == ["clinic"]
    monkeypatch.undo()
    backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=True)  # retired already; tried again
    assert backup.restore(tmp_path / "a.backup", tmp_path / "new")[1]


def test_only_one_backup_of_a_predictor_that_is_retired_goes_on(tmp_path: Path) -> None:
    new_answering(tmp_path / "clinic").close()
    backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=True)
    with pytest.raises(Retired, match="which continues in its place"):
        backup.write(tmp_path / "clinic", tmp_path / "b.backup", final=True)
    backup.write(tmp_path / "clinic", tmp_path / "b.backup")
    assert backup.restore(tmp_path / "a.backup", tmp_path / "one" / "clinic")[1]
    assert not backup.restore(tmp_path / "b.backup", tmp_path / "two" / "clinic")[1]


# ── restore ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backup_that_may_lack_answers_gives_records_only(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(5, key="k")]))
    made = backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    labels(answering.answer([request(3, seed=1)]))
    answering.close()
    _, goes_on = backup.restore(tmp_path / "a.backup", tmp_path / "old")
    assert not goes_on
    assert words(tmp_path / "old") == [INCOMPLETE]
    with pytest.raises(Retired, match="may have answered since"):
        go_on(tmp_path / "old")
    records = AnsweringService(Home(tmp_path / "old", records=True), elsewhere=False)  # as `reticent status` opens it
    assert (records.status().answered, records.status().ledger_length) == (5, made.length + 1)
    before = records.status().ledger_head
    (refused,) = records.answer([request(1, seed=2)])  # even where the refusal above was passed over
    assert isinstance(refused, Halted)
    records.close()
    assert verification.verify(tmp_path / "old" / home.STORE).head == before
    with pytest.raises(Retired, match="cannot have a final backup"):  # which would let it go on
        backup.write(tmp_path / "old", tmp_path / "b.backup", final=True)
    again = backup.write(tmp_path / "old", tmp_path / "b.backup")
    assert not backup.restore(tmp_path / "b.backup", tmp_path / "older", head=again.head)[1]


def test_going_on_from_an_older_copy_would_overspend(tmp_path: Path) -> None:
    """What the rule is for, and the control: a folder that is copied by hand spends the answers of a phase twice."""
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(5)]))
    answering.close()
    shutil.copytree(tmp_path / "clinic", tmp_path / "copy")
    given = 0
    for name in ("clinic", "copy"):
        answering = go_on(tmp_path / name)
        promised, left = answering.status().answers_in_phase, answering.status().answers_left_in_phase
        labels(answering.answer([request(left, seed=3)]))
        given += left
        answering.close()
    assert given + 5 > promised


@pytest.mark.parametrize("final", [True, False])
def test_nothing_lost_goes_on_at_the_same_count(tmp_path: Path, final: bool) -> None:
    answering = new_answering(tmp_path / "clinic")
    (first,) = labels(answering.answer([request(5, key="k", body=b"b")]))
    left = answering.status().answers_left_in_phase
    answering.close()
    made = backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=final)
    if not final:
        with pytest.raises(ValueError, match="head is not the last hash"):
            backup.restore(tmp_path / "a.backup", tmp_path / "new", head="00" * 32)
        with pytest.raises(Retired, match="clinic has the same origin"):
            backup.restore(tmp_path / "a.backup", tmp_path / "new", head=made.head)
        shutil.rmtree(tmp_path / "clinic")
    else:
        with pytest.raises(Retired, match="retired by a final backup"):
            go_on(tmp_path / "clinic")
    assert not (tmp_path / "new").exists()
    _, goes_on = backup.restore(tmp_path / "a.backup", tmp_path / "new", head=None if final else made.head)
    assert goes_on
    answering = go_on(tmp_path / "new")
    assert answering.status().answers_left_in_phase == left
    assert answering.status().rows_gathered == 5
    (answer,) = answering.answer([request(5, key="k", body=b"b")])
    assert not isinstance(answer, Exception)
    assert (answer.labels, answer.replayed) == (first, True)
    labels(answering.answer([request(left + 10, seed=4)]))  # into the next phase
    assert answering.status().phase == 2
    answering.close()
    assert words(tmp_path / "new") == ([RETIRED, RESTORED] if final else [RESTORED])
    shutil.rmtree(tmp_path / "new")
    with pytest.raises(Retired, match="restored before"):
        backup.restore(tmp_path / "a.backup", tmp_path / "newer", head=None if final else made.head)
    assert not (tmp_path / "newer").exists()


def test_a_client_of_that_name_retires_nobody(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(1, client=RETIRED), request(1, client=INCOMPLETE)]))
    answering.close()
    go_on(tmp_path / "clinic").close()


def test_a_server_that_runs_cannot_be_retired(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    with pytest.raises(home.AlreadyServed):
        backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=True)
    labels(answering.answer([request()]))
    answering.close()


def test_the_state_of_the_same_phase_mends_a_damaged_one(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    labels(answering.answer([request(5)]))
    answering.close()
    (tmp_path / "clinic" / "phase-1.state").unlink()
    with pytest.raises(Damaged, match="is missing"):
        go_on(tmp_path / "clinic")
    subprocess.run(["tar", "-xf", tmp_path / "a.backup", "-C", tmp_path / "clinic", "phase-1.state"], check=True)
    answering = go_on(tmp_path / "clinic")
    assert answering.status().answered == 5
    answering.close()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with tarfile.open(path) as archive:
        files = {one.name: getattr(archive.extractfile(one), "read", bytes)() for one in archive}
    change(files)
    scratch = path.with_name("scratch")
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            scratch.write_bytes(content)
            archive.add(scratch, arcname=name)
    scratch.unlink()


def more(path: Path) -> None:
    rewritten(path, lambda files: files.update({"../outside": b"x"}))


def less(path: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        del files["phase-1.state"]

    rewritten(path, change)


def called_final(path: Path) -> None:
    """The page says that nothing was lost, and the answer log does not."""

    def change(files: dict[str, bytes]) -> None:
        files["backup.json"] = files["backup.json"].replace(b'"retired": null', b'"retired": "retired"')

    rewritten(path, change)


def newer(path: Path) -> None:
    rewritten(path, lambda files: files.update({"backup.json": b'{"format": "reticent-backup", "version": 2}'}))


def other(path: Path) -> None:
    path.write_bytes(b"PK\3\4" + bytes(2000))


@pytest.mark.parametrize("damage", [cut, emptied, flipped, more, less, called_final, newer, other])
def test_a_damaged_backup_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    new_answering(tmp_path / "clinic").close()
    backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    damage(tmp_path / "a.backup")
    with pytest.raises(Damaged, match="newer one" if damage is newer else "damaged|no backup"):
        backup.restore(tmp_path / "a.backup", tmp_path / "home" / "new")
    assert list((tmp_path / "home").iterdir()) == []
    assert not (tmp_path / "outside").exists()


# ── upgrade ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_older_store_is_kept_and_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From made-up versions -1 and 0, in which the answer log is called otherwise, and phases know less."""
    folder = tmp_path / "clinic"
    answering = new_answering(folder)
    labels(answering.answer([request(5)]))
    answering.close()
    head = verification.verify(folder / home.STORE).head
    with sqlite3.connect(folder / home.STORE) as db:
        db.execute("ALTER TABLE clients RENAME TO askers")
        db.execute("ALTER TABLE phases DROP COLUMN event")
        db.executescript("DROP INDEX answers_by_expiry; ALTER TABLE answers DROP COLUMN rest;"
                         "CREATE INDEX answers_by_expiry ON answers (expires)")  # fmt: skip
        db.execute("PRAGMA user_version = -1")
    db.close()
    older = (folder / home.STORE).read_bytes()
    with pytest.raises(Damaged, match=f"version -1, which this reticent cannot bring up to {schema.VERSION}"):
        go_on(folder)
    monkeypatch.setitem(schema.UPGRADES, -1, lambda db: db.execute("ALTER TABLE askers RENAME TO clients"))
    monkeypatch.setitem(schema.UPGRADES, 0, lambda db: db.execute("SELECT nothing"))
    with pytest.raises(sqlite3.OperationalError):  # the second step fails: the first is undone
        go_on(folder)
    with sqlite3.connect(folder / home.STORE) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (-1,)
        assert db.execute("SELECT COUNT(*) FROM askers").fetchone() == (1,)
    db.close()
    step = "ALTER TABLE phases ADD COLUMN event TEXT NOT NULL DEFAULT 'null'"

    def last(db: sqlite3.Connection) -> None:
        db.execute(step)
        rows = db.execute("SELECT number, rows, answers, event, counted FROM phases").fetchall()
        db.execute("DROP TABLE phases")
        for statement in schema.statements(schema.TABLES):
            if "CREATE TABLE phases" in statement:
                db.execute(statement)
        db.executemany("INSERT INTO phases VALUES (?, ?, ?, ?, ?)", rows)

    monkeypatch.setitem(schema.UPGRADES, 0, last)
    answering = go_on(folder)
    assert answering.home.store.upgraded == -1
    assert verification.verify(folder / home.STORE).head == head
    kept = folder / "store-version--1.sqlite"
    assert kept.stat().st_mode & 0o077 == 0
    with sqlite3.connect(kept) as db:
        assert db.execute("SELECT COUNT(*) FROM askers").fetchone() == (1,)
    db.close()
    labels(answering.answer([request(answering.status().answers_left_in_phase + 1)]))
    answering.maintain()
    assert not kept.exists()  # it held queries of a phase that is over
    answering.close()
    answering = go_on(folder)
    assert answering.home.store.upgraded is None
    answering.close()
    (folder / home.STORE).write_bytes(older)  # what was kept, put back after answers were given
    with pytest.raises(Damaged, match="lost answers"):
        Home(folder)


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rotated_key_is_the_same_client(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys.sqlite")
    with pytest.raises(ValueError, match="no key of that name or id; there are none yet"):
        table.rotate("ward 3")
    old, key = make_key("ward 3", ["ask"], quota=10)
    table.add(key)
    now = [0.0]
    ring = Keyring(table, used={key.id: 4}, clock=lambda: now[0])
    ring.allowance(ring.authenticate(f"Bearer {old}")).take(3)
    new, _ = table.rotate("ward 3")
    now[0] += 2
    with pytest.raises(Problem):
        ring.authenticate(f"Bearer {old}")
    same = ring.authenticate(f"Bearer {new}")
    assert (same.id, same.quota, ring.allowance(same).used) == (key.id, 10, 7)
    table.revoke("ward 3")
    for who, why in (("ward 3", "revoked"), ("ward 4", "no key of that name or id; there are: 'ward 3'")):
        with pytest.raises(ValueError, match=why):
            table.rotate(who)
    table.close()


# ── asking goes on ────────────────────────────────────────────────────────────────────────────────────────────────

KILLED = """
import os, signal, sys
from reticent import cli
from reticent.service import answer_file, commands

commands.AT_ONCE = {at_once}
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


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a small predictor, and a table of 45 rows to ask."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RETICENT_KEY", raising=False)
    lines = [f"{place % 100},{'yes' if place % 100 > 50 else 'no'}" for place in range(2_000)]
    (tmp_path / "patients.csv").write_text("age,ill\n" + "\n".join(lines) + "\n")
    (tmp_path / "new.csv").write_text("age\n" + "\n".join(str(2 * one) for one in range(45)) + "\n")
    (tmp_path / "schema.toml").write_text(
        'target = "ill"\nclasses = ["no", "yes"]\n\n[[columns]]\nname = "age"\nrange = [0, 100]\n'
    )
    fit = ["fit", "patients.csv", "--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-6", "--name", "clinic"]
    assert cli.main(fit) == 0
    return tmp_path


def killed(step: str, before: str, *options: str, nth: int = 3, at_once: int = 10) -> None:
    code = KILLED.format(step=step, before=before, nth=nth, at_once=at_once)
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL


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
    monkeypatch.setattr(commands, "AT_ONCE", 10)
    killed(step, before)
    ask = ["ask", "clinic", "--table", "new.csv", "--out", "answers.csv"]
    capsys.readouterr()
    assert cli.main(ask) == 2
    assert "go on with it by --resume" in capsys.readouterr().err
    assert cli.main([*ask, "--resume"]) == 0
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
        monkeypatch.setattr(commands, "AT_ONCE", 40)
        assert cli.main(resume) == 0
    assert answered(clinic) == 45
    (clinic / "answers.csv").unlink()
    with served():
        killed("add", "pass", nth=2, at_once=20)
    capsys.readouterr()
    assert cli.main(resume) == 2  # the server is gone: it would be another client that asks, and pays
    assert "asked with another key, or of a server" in capsys.readouterr().err
    assert answered(clinic) == 45 + 40


def test_a_new_key_for_what_was_lost_would_pay_twice(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same crash, and a run that has forgotten its number."""
    monkeypatch.setattr(commands, "AT_ONCE", 10)
    killed("add", "pass")
    record = clinic / "answers.csv.asking"
    record.write_text(json.dumps({**json.loads(record.read_text()), "run": "another"}))
    assert cli.main(["ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume"]) == 0
    assert answered(clinic) == 55


def test_a_table_that_has_changed_is_not_gone_on_with(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "AT_ONCE", 10)
    killed("add", "pass")
    table = (clinic / "new.csv").read_text()
    resume = ["ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume"]
    for changed, why in (
        (table + "7\n", "the table is not the one"),
        (table.replace("58", "13"), "put the table back as it was"),
    ):
        (clinic / "new.csv").write_text(changed)
        assert cli.main(resume) == 2
        assert why in capsys.readouterr().err
    (clinic / "new.csv").write_text(table)
    assert cli.main(resume) == 0
    assert answered(clinic) == 45


# ── as it is written ──────────────────────────────────────────────────────────────────────────────────────────────


def typed(page: Path) -> str:
    """All that a page has an operator type."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    return "".join(blocks)


@pytest.mark.slow
def test_the_procedures_as_written(clinic: Path) -> None:
    with reserved_port() as port:
        check_procedures(clinic, port)


def check_procedures(clinic: Path, port: int) -> None:
    ready = f"until curl -sf http://127.0.0.1:{port}/v2/health/ready >ready; do kill -0 $server; sleep 0.1; done"
    serve = f"reticent serve clinic --port {port} &\nserver=$!\ntrap 'kill $server' EXIT\n{ready}\n"
    asked = "reticent ask clinic --table new.csv --out answers.csv\n"
    text = typed(DOCS / "service" / "operations.md").replace("127.0.0.1:8341", f"127.0.0.1:{port}")
    text = text.replace("systemctl --user stop reticent@clinic", "kill $server; wait $server; trap - EXIT")
    text = text.replace("systemctl --user start reticent@clinic\n", serve)
    before = f"reticent keys add clinic 'ward 3' >key\n{serve}export RETICENT_KEY=$(cat key)\n{asked}"
    code, shown = typed_in(clinic, before + text)
    assert code == 0, shown
    assert "It holds records only" in shown
    assert "It goes on from there" in shown
    assert "RECORDS ONLY" in shown
    assert home.names() == ["clinic", "clinic-moved", "clinic-records"]
    assert words(home.folder_of("clinic-moved")) == [RETIRED, RESTORED]


def test_marks_are_in_no_way_of_the_model(tmp_path: Path) -> None:
    """The public page of a restored predictor is the one that it was made with."""
    new_answering(tmp_path / "clinic").close()
    backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=True)
    backup.restore(tmp_path / "a.backup", tmp_path / "new")
    assert home.read_model(tmp_path / "new") == MODEL


def test_one_of_a_newer_version_in_the_same_place_may_answer_too(tmp_path: Path) -> None:
    new_answering(tmp_path / "clinic").close()
    shutil.copytree(tmp_path / "clinic", tmp_path / "copy")
    backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=True)
    with sqlite3.connect(tmp_path / "copy" / home.STORE) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    with pytest.raises(Retired, match="copy has the same origin and may still answer"):
        backup.restore(tmp_path / "a.backup", tmp_path / "moved")


def test_what_a_killed_fit_or_backup_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    new_answering(tmp_path / "clinic").close()
    for name in (".other.abc", ".a.backup.copies"):
        (tmp_path / name).mkdir()
    (tmp_path / ".other.abc" / home.UNFINISHED).touch()  # its lock is gone with its process
    (tmp_path / ".a.backup.unfinished").write_bytes(b"half")
    backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    with home.unfinished(tmp_path / "next") as first:  # this one lives
        with home.unfinished(tmp_path / "other") as second:
            assert first.is_dir()
        shutil.rmtree(second)
        assert sorted(one.name for one in tmp_path.iterdir()) == sorted([first.name, "a.backup", "clinic"])


# ── a folder that can only be read ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], Any]]:
    """Lets a folder be read, and no more: as on a file system that is mounted so. Root loses its rights meanwhile."""
    root, changed = os.geteuid() == 0, []

    def lock(folder: Path) -> None:
        for one in (folder, *folder.iterdir()):
            if root:
                os.chown(one, 65534, 65534)
            one.chmod(0o500 if one.is_dir() else 0o400)
        changed.append(folder)
        if root:
            os.seteuid(65534)

    try:
        yield lock
    finally:
        if root:
            os.seteuid(0)
        for folder in changed:
            folder.chmod(0o700)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user may enter, with a folder of temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/tmp")
        os.chmod(f"{folder}/tmp", 0o777)
        yield Path(folder)


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_that_can_only_be_read_is_verified_and_left_as_it_is(
    shared: Path, read_only: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    answering = new_answering(shared / "clinic")
    labels(answering.answer([request(3)]))
    copy = shared / "copy"
    if killed:  # the last answers are in the log
        shutil.copytree(answering.home.folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        answering.close()
        assert (copy / f"{home.STORE}-wal").stat().st_size
    else:
        answering.close()
        shutil.copytree(answering.home.folder, copy)
    before = {one.name: one.read_bytes() for one in copy.iterdir()}
    monkeypatch.setattr(tempfile, "tempdir", str(shared / "tmp"))
    read_only(copy)
    with pytest.raises(PermissionError):
        (copy / "new").touch()
    assert verification.verify(copy / home.STORE).counted == {1: 3}
    assert {one.name: one.read_bytes() for one in copy.iterdir()} == before
    assert list((shared / "tmp").iterdir()) == []


def test_status_of_a_copy_that_can_only_be_read(
    shared: Path,
    read_only: Callable[[Path], Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering = new_answering(shared / "clinic")
    labels(answering.answer([request(3)]))
    answering.close()
    monkeypatch.setenv("RETICENT_HOME", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(shared / "tmp"))
    assert cli.main(["status", "clinic", "--verify", "--json"]) == 0
    writable = json.loads(capsys.readouterr().out)
    before = {one.name: one.read_bytes() for one in (shared / "clinic").iterdir()}
    read_only(shared / "clinic")
    assert cli.main(["status", "clinic", "--verify", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == writable
    assert "can only be read: it is copied to" in printed.err
    assert {one.name: one.read_bytes() for one in (shared / "clinic").iterdir()} == before
    assert list((shared / "tmp").iterdir()) == []
