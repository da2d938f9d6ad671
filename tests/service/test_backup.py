"""Backups and what is restored from them: nothing is answered twice."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shop import MODEL, labels, new_answering, request

from reticent.service import backup, home
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.requests import Halted
from reticent.service.store import schema, verification
from reticent.service.store.protocol import INCOMPLETE, RESTORED, RETIRED, Damaged, Retired


def go_on(folder: Path) -> AnsweringService:
    return AnsweringService(Home(folder), elsewhere=False)


def marks(folder: Path) -> list[str]:
    """The marks in a ledger."""
    with sqlite3.connect(folder / home.STORE) as db:
        found = [one for (one,) in db.execute("SELECT client FROM ledger WHERE cost = 0 ORDER BY number")]
    db.close()
    return found


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
        restored = Home(tmp_path / f"restored-{place}", records=True)
        AnsweringService(restored, elsewhere=False).close()  # the journal is whole, too
        assert (made.length, goes_on) == (lengths[place], False)
        assert verification.verify(tmp_path / f"restored-{place}" / home.STORE).length == made.length + 1


def test_a_backup_is_private_and_overwrites_nothing(tmp_path: Path) -> None:
    new_answering(tmp_path / "clinic").close()
    backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    assert (tmp_path / "a.backup").stat().st_mode & 0o077 == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.backup", "clinic"]
    with pytest.raises(FileExistsError, match="name another file"):
        backup.write(tmp_path / "clinic", tmp_path / "a.backup")


def test_a_backup_that_fails_leaves_nothing_and_retires_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_backup_that_may_lack_answers_gives_records_only(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    labels(answering.answer([request(5, key="k")]))
    made = backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    labels(answering.answer([request(3, seed=1)]))
    answering.close()
    _, goes_on = backup.restore(tmp_path / "a.backup", tmp_path / "old")
    assert not goes_on
    assert marks(tmp_path / "old") == [INCOMPLETE]
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
        with pytest.raises(ValueError, match=r"--head 0+ is not the hash at which this backup ends.*mistyped, or"):
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
    assert marks(tmp_path / "new") == ([RETIRED, RESTORED] if final else [RESTORED])
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
    """The page says that nothing was lost, and the ledger does not."""

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


@pytest.mark.parametrize("final", [False, True])
def test_a_damaged_model_is_not_backed_up(tmp_path: Path, final: bool) -> None:
    new_answering(tmp_path / "clinic").close()
    (tmp_path / "clinic" / "model.toml").write_text(MODEL + "more = 1\n")
    with pytest.raises(Damaged, match=r"clinic/model\.toml is damaged .*restore it from a backup"):
        backup.write(tmp_path / "clinic", tmp_path / "a.backup", final=final)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["clinic"]
    (tmp_path / "clinic" / "model.toml").write_text(MODEL)
    go_on(tmp_path / "clinic").close()  # it was not retired


def test_a_backup_with_another_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an older version wrote it, which did not check."""
    new_answering(tmp_path / "clinic").close()
    (tmp_path / "clinic" / "model.toml").write_text(MODEL + "more = 1\n")
    with monkeypatch.context() as patched:
        patched.setattr(home, "check_model", lambda *_: None)
        backup.write(tmp_path / "clinic", tmp_path / "a.backup")
    shutil.rmtree(tmp_path / "clinic")
    with pytest.raises(Damaged) as refused:
        backup.restore(tmp_path / "a.backup", tmp_path / "new")
    assert str(refused.value) == (
        f"{tmp_path / 'a.backup'} holds a model.toml that is not the one its store was made with"
    )
    assert [one.name for one in tmp_path.iterdir()] == ["a.backup"]
