"""Files that an older version wrote are opened, give the same labels, and go on: see make.py for how they were made."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reticent import cli
from reticent.predictors import state_file
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import backup
from reticent.service.answering import AnsweringService
from reticent.service.home import KEYS, Home
from reticent.service.http.access import Keyring
from reticent.service.http.problems import Problem
from reticent.service.keys import KeyTable
from reticent.service.requests import Answered, Request, digest
from reticent.service.store import verification
from reticent.service.store.protocol import Retired

Array = NDArray[Any]

ARCHIVE = Path(__file__).parent / "0.1.0.tar.xz"
NOW = 1_700_000_000  # as in make.py
CERTAIN = 0.8  # of answers that must be right; if two classes were taken for each other, nearly none would be


def expected() -> dict[str, Any]:
    with tarfile.open(ARCHIVE) as archive:
        page = archive.extractfile("expected.json")
        assert page is not None
        return dict(json.load(page))


EXPECTED = expected()
STATES, FOLDERS, COMMANDS = EXPECTED["states"], EXPECTED["folders"], EXPECTED["commands"]


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture
def older(unpacked: Path, tmp_path: Path) -> Path:
    """A copy of all files, to be changed at will."""
    return Path(shutil.copytree(unpacked, tmp_path / "older"))


def column(rows: int, seed: int) -> Array:
    return np.random.default_rng(seed).random((rows, 1))


def right(X: Array, labels: Any) -> float:
    """The share of answers that are what the rows were made with, where it is clear."""
    clear = np.abs(X[:, 0] - 0.5) > 0.05
    return float((np.where(X[:, 0] < 0.5, "no", "yes") == np.asarray(labels))[clear].mean())


def opened(folder: Path) -> AnsweringService:
    return AnsweringService(Home(folder), elsewhere=False, clock=lambda: 1000 * NOW + 1)


def ask(answering: AnsweringService, X: Array, client: str = "new", key: str | None = None) -> Answered:
    (one,) = answering.answer([Request(client, X, key, digest((key or "").encode()))])
    assert isinstance(one, Answered), one
    return one


# ── states ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", sorted(STATES))
def test_a_saved_state_knows_what_it_knew_and_answers(older: Path, name: str) -> None:
    known = STATES[name]
    model = EverlastingPredictor.load(older / "states" / f"{name}.state")
    assert sorted(model.classes_) == sorted(known["classes"])
    assert (model.phase_, model.answers_left_in_phase_, model.answered_) == (
        known["phase"], known["left"], known["answered"],
    )  # fmt: skip
    labels, queries = [str(one) for one in model.classes_], np.array(known["queries"])
    engine: Any = model.engine_
    if hasattr(engine, "teachers"):
        votes = engine.teachers.votes(queries)
        assert [dict(zip(labels, one, strict=True)) for one in votes.tolist()] == known["sayings"]
        most = [max(one, key=one.__getitem__) for one in known["sayings"]]
        sure = np.array([max(one.values()) > 0.95 * sum(one.values()) for one in known["sayings"]])
        told = model.predict(queries, ["new"] * len(queries) if name == "groups" else None)
        assert sure.sum() >= 10
        assert (told == np.array(most))[sure].mean() > CERTAIN
    else:
        assert [labels[one] for one in engine.label(queries)] == known["sayings"]
        assert model.predict(queries).tolist() == known["sayings"]
    if known["gathered"] is not None:
        gathered = model._machine.gathered()
        before = len(known["gathered"]["labels"])
        assert [labels[one] for one in gathered.class_indices[:before]] == known["gathered"]["labels"]
        assert gathered.X[:before].tolist() == known["gathered"]["X"]
    assert model.answered_ == known["answered"] + len(queries)


@pytest.mark.parametrize("name", ["greedy", "two-coin", "linear-second-phase"])
def test_the_phase_after_a_saved_one_learns_the_same_labels(older: Path, name: str) -> None:
    model = EverlastingPredictor.load(older / "states" / f"{name}.state")
    phase, X = model.phase_, column(4000, seed=5)
    done = 0
    while model.phase_ == phase:
        model.predict(X[done : done + 100])
        done += 100
    assert right(X[:100], model.predict(X[:100])) > CERTAIN


def test_classes_that_were_sorted_afterwards_would_be_seen(older: Path) -> None:
    """The control: what the tests above look for, had an index into the classes changed its meaning."""
    model, X = EverlastingPredictor.load(older / "states" / "greedy.state"), column(100, seed=7)
    model.classes_ = np.sort(model.classes_)
    assert right(X, model.predict(X)) < 1 - CERTAIN


def test_a_state_is_still_gone_on_from_once(older: Path) -> None:
    path = older / "states" / "greedy.state"
    EverlastingPredictor.load(path)
    with pytest.raises(ValueError, match="was loaded before"):
        EverlastingPredictor.load(path)
    assert state_file.read(path).header["answered"] == STATES["greedy"]["answered"]


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_a_folder_goes_on_where_it_was(older: Path, name: str) -> None:
    known, folder = FOLDERS[name], older / "folders" / name
    answering = opened(folder)
    now = answering.status()
    if name != "end-of-phase":  # it may have begun the next one
        assert (now.phase, now.answers_left_in_phase) == (known["phase"], known["answers_left_in_phase"])
        assert now.rows_gathered == known["rows_gathered"]
    assert (now.answered, now.ledger_length, now.ledger_head) == (known["answered"], known["length"], known["head"])
    assert sorted(answering.classes) == sorted(known["classes"])
    for one in known["told"]:  # under their keys all get the labels that they got then, and pay nothing
        again = ask(answering, column(one["rows"], one["seed"]), one["client"], one["key"])
        assert (again.labels, again.replayed) == (one["labels"], True)
    assert answering.status().answered == known["answered"]

    X = column(60, seed=6)
    told = ask(answering, X, key="mine")
    assert right(X, told.labels) > CERTAIN
    assert answering.status().answered == known["answered"] + 60
    answering.close()

    found = verification.verify(folder / "store.sqlite")
    assert sum(found.counted.values()) == known["answered"] + 60
    answering = opened(folder)
    assert answering.status().ledger_head == found.head
    assert ask(answering, X, key="mine").labels == told.labels
    rows = answering.tail()
    before = known["length"]
    assert known["length"] == 0 or next(one for one in rows if one.number == before).hash.hex() == known["head"]
    assert rows[before].previous.hex() == known["head"] or known["length"] == 0
    answering.close()


@pytest.mark.parametrize("name", ["mid-phase", "killed", "end-of-phase", "killed-in-next-phase"])
def test_what_a_folder_gathered_is_learned_with_its_labels(older: Path, name: str) -> None:
    answering = opened(older / "folders" / name)
    phase = FOLDERS[name]["phase"]
    done = 0
    while answering.status().phase == phase:
        ask(answering, column(100, seed=10 + done))
        answering.maintain()
        done += 1
    X = column(100, seed=7)
    assert right(X, ask(answering, X).labels) > CERTAIN
    answering.verify()
    answering.close()
    assert not list((older / "folders" / name).glob("store-version-*"))  # it held queries of a phase that is over


# ── what commands made ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_predictor_made_by_commands_answers_by_commands(
    older: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETICENT_HOME", str(older / "commands"))
    monkeypatch.chdir(older)
    ages = range(0, 100, 4)
    (older / "new.csv").write_text("ward,age\n" + "".join(f"{'ab'[one % 2]},{one}\n" for one in ages))
    assert cli.main(["ask", "clinic", "--table", "new.csv", "--out", "again.csv", "--quiet"]) == 0
    told = (older / "again.csv").read_text().split()[1:]
    agreed = [one == other for one, other in zip(told, COMMANDS["answers"].split()[1:], strict=True)]
    assert sum(agreed) > CERTAIN * len(agreed)
    assert cli.main(["status", "clinic", "--verify"]) == 0
    known = COMMANDS["folders"]["clinic"]
    assert verification.verify(older / "commands" / "clinic" / "store.sqlite").length == known["length"] + 1
    capsys.readouterr()


def test_one_that_was_retired_stays_so_and_its_records_can_be_read(older: Path) -> None:
    folder = older / "commands" / "retired"
    with pytest.raises(Retired):
        Home(folder)
    with Home(folder, records=True) as old:
        assert old.store.position.head.hex() == COMMANDS["folders"]["retired"]["head"]
    assert verification.verify(folder / "store.sqlite").head == COMMANDS["folders"]["retired"]["head"]


@pytest.mark.parametrize("name", sorted(COMMANDS["backups"]))
def test_a_backup_is_restored(older: Path, name: str) -> None:
    known, folder = COMMANDS["backups"][name], older / "other" / "clinic"
    made, goes_on = backup.restore(older / "work" / name, folder)
    assert (made.length, goes_on) == (known["length"], known["goes_on"])
    assert verification.verify(folder / "store.sqlite").length == known["length"] + 1
    if goes_on:
        answering = AnsweringService(Home(folder), elsewhere=False)
        assert sorted(answering.classes) == ["no", "yes"]
        answering.close()
    else:
        with pytest.raises(Retired):
            Home(folder)


def test_a_backup_that_goes_on_still_cannot_do_so_twice(older: Path) -> None:
    backup.restore(older / "work" / "clinic-final.backup", older / "other" / "clinic")
    with pytest.raises(Retired):
        backup.restore(older / "work" / "clinic-final.backup", older / "another" / "clinic")


def test_keys_open_what_they_opened(older: Path) -> None:
    for path in (older / "commands" / "clinic" / KEYS, older / "commands" / "retired" / KEYS):
        table = KeyTable(path)
        ring = Keyring(table)
        for name, token in COMMANDS["tokens"]["good"].items():
            assert ring.authenticate(f"Bearer {token}").name == name
        for token in COMMANDS["tokens"]["bad"]:
            with pytest.raises(Problem):
                ring.authenticate(f"Bearer {token}")
        by_name = {one.name: one for one in table.all()}
        assert (by_name["ward 3"].quota, by_name["slow"].rate, by_name["slow"].burst) == (500, 2.5, 9)
        table.rotate("ward 3")
        table.close()


def test_the_files_are_small() -> None:
    assert os.stat(ARCHIVE).st_size < 200_000
