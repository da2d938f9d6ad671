"""The folder: made whole or not at all, used by one, and refused if something in it is not what it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shop import MODEL, labels, new_answering, new_home, predictor, request

from reticent.service import home
from reticent.service.answering import AnsweringService
from reticent.service.home import AlreadyServed, Home, folder_of, predictor_names, read_model
from reticent.service.store.protocol import RESTORED, RETIRED, Damaged, Entry, NotStored, Retired, Transaction
from reticent.service.store.sqlite import SQLiteStore


def test_names_are_folders_under_one_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    assert folder_of("clinic") == tmp_path / "clinic"
    assert predictor_names() == []
    new_home(folder_of("clinic")).close()
    assert predictor_names() == ["clinic"]
    monkeypatch.delenv("RETICENT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert folder_of("clinic") == Path("/data/reticent/clinic")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a" * 65, "a b"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name must be"):
        folder_of(name)


def test_a_new_folder_is_private_and_whole(tmp_path: Path) -> None:
    made = new_home(tmp_path / "clinic")
    assert made.model == MODEL
    assert read_model(made.folder) == MODEL
    assert made.folder.stat().st_mode & 0o077 == 0
    made.close()
    with pytest.raises(FileExistsError, match="choose another name"):
        new_home(tmp_path / "clinic")


def test_a_predictor_that_has_answered_is_refused(tmp_path: Path) -> None:
    model = predictor()
    model.predict([[0.5]], ["ann"])
    with pytest.raises(ValueError, match="must be new"):
        Home.create(tmp_path / "clinic", model, MODEL)


def test_a_folder_that_cannot_be_made_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SQLiteStore, "create", full)
    with pytest.raises(OSError, match="No space"):
        new_home(tmp_path / "clinic")
    assert list(tmp_path.iterdir()) == []


def test_no_predictor_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="reticent fit"):
        Home(tmp_path)


def test_a_second_one_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic")
    with pytest.raises(AlreadyServed, match=f"process {os.getpid()}: one server at a time"):
        Home(tmp_path / "clinic")
    code = f"from reticent.service.home import Home; Home({str(tmp_path / 'clinic')!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert "AlreadyServed" in other.stderr
    labels(answering.answer([request()]))
    answering.close()
    Home(tmp_path / "clinic").close()


def test_without_the_lock_two_would_spend_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lock is for: the control that the test above can fail."""
    monkeypatch.setattr(home, "_locked", lambda folder: os.open(folder, os.O_RDONLY))
    answering = new_answering(tmp_path / "clinic")
    second = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    labels(answering.answer([request(3)]))
    assert second.status().answers_left_in_phase == answering.status().answers_left_in_phase + 3
    answering.close()
    second.close()


def test_one_that_is_retired_can_be_read_and_no_more(tmp_path: Path) -> None:
    with new_home(tmp_path / "clinic") as made:
        made.store.mark(RETIRED, time=0)
        assert made.store.retired == RETIRED
    with pytest.raises(Retired, match="only its records can be read"):
        Home(tmp_path / "clinic")
    with Home(tmp_path / "clinic", records=True) as old:
        assert old.store.position.length == 1
        with pytest.raises(NotStored, match="a store that is retired"):
            old.store.write(Transaction(time=0, phase=1, entries=[Entry("ann", 1, 1, 1)]))
        old.store.mark(RESTORED, time=0)
    Home(tmp_path / "clinic").close()


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def changed_model(folder: Path) -> None:
    (folder / "model.toml").write_text(MODEL + "more = 1\n")


def missing_model(folder: Path) -> None:
    (folder / "model.toml").unlink()


def folder_for_model(folder: Path) -> None:
    (folder / "model.toml").unlink()
    (folder / "model.toml").mkdir()


def missing_state(folder: Path) -> None:
    (folder / "phase-1.state").unlink()


def torn_state(folder: Path) -> None:
    os.truncate(folder / "phase-1.state", 1000)


def edited_state(folder: Path) -> None:
    path = folder / "phase-1.state"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # the seal at the end stays
    path.write_bytes(data)


def other_state(folder: Path) -> None:
    predictor(rows=500).save(folder / "phase-1.state")


def old_store(folder: Path) -> None:
    shutil.copy(folder.parent / "old.sqlite", folder / "store.sqlite")


@pytest.mark.parametrize(
    "damage",
    [changed_model, missing_model, folder_for_model, missing_state, torn_state, edited_state, other_state, old_store],
)
def test_damage_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = tmp_path / "clinic"
    answering = new_answering(folder)
    answering.home.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(folder / "store.sqlite", tmp_path / "old.sqlite")
    labels(answering.answer([request(5)]))
    answering.close()
    reopened = AnsweringService(Home(folder), elsewhere=False)
    assert reopened.status().answered == 5
    reopened.close()
    damage(folder)
    with pytest.raises(Damaged):
        AnsweringService(Home(folder), elsewhere=False)
    with pytest.raises(Damaged):  # and the lock was let go
        AnsweringService(Home(folder), elsewhere=False)


def test_what_a_crash_left_behind_is_removed(tmp_path: Path) -> None:
    new_home(tmp_path / "clinic").close()
    for name in (
        "phase-2.state",
        ".phase-2.state.x.part",
        "next-2.ab.X",
        "next-2.ab.learned",
    ):
        (tmp_path / "clinic" / name).write_bytes(b"rows")
    Home(tmp_path / "clinic").close()
    left = {file.name for file in (tmp_path / "clinic").iterdir()}
    assert left == {"model.toml", "store.sqlite", "witness", "lock", "phase-1.state"}
