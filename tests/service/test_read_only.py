"""A folder that can only be read: its answer log is verified, its status shown, and it is left as it is."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shop import labels, new_answering, request

from reticent import cli
from reticent.service import home
from reticent.service.store import verification


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
    assert "is read-only: it is copied to" in printed.err
    assert {one.name: one.read_bytes() for one in (shared / "clinic").iterdir()} == before
    assert list((shared / "tmp").iterdir()) == []
