"""A store of an older version is kept, and upgraded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from shop import WITHOUT_LATER_LABELS, labels, new_answering, request

from reticent.service import home
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.store import schema, verification
from reticent.service.store.protocol import Damaged


def opened(folder: Path) -> AnsweringService:
    return AnsweringService(Home(folder), elsewhere=False)


def columns(path: Path) -> dict[str, set[str]]:
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {one: {column[1] for column in db.execute(f"PRAGMA table_info({one})")} for one in tables}
    db.close()
    return found


def test_a_store_without_later_labels_is_upgraded(tmp_path: Path) -> None:
    """Version 2: the answers, the journal and its hashes stay as they were."""
    folder = tmp_path / "clinic"
    answering = new_answering(folder)
    first = labels(answering.answer([request(5, "k")]))
    before, journal = answering.home.store.position, list(answering.home.store.journal())
    answering.close()
    new = columns(folder / home.STORE)
    with sqlite3.connect(folder / home.STORE) as db:
        db.executescript(WITHOUT_LATER_LABELS)
    db.close()
    assert "tickets" not in columns(folder / home.STORE)["journal"]

    answering = opened(folder)
    assert answering.home.store.upgraded == 2
    assert columns(folder / home.STORE) == new
    assert (answering.home.store.position, list(answering.home.store.journal())) == (before, journal)
    assert labels(answering.answer([request(5, "k")])) == first
    labels(answering.answer([request(3)]))
    answering.close()
    verification.verify(folder / home.STORE)


def test_an_older_store_is_kept_and_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From made-up versions -1 and 0, in which the ledger is called otherwise, and phases know less."""
    folder = tmp_path / "clinic"
    answering = new_answering(folder)
    labels(answering.answer([request(5)]))
    answering.close()
    head = verification.verify(folder / home.STORE).head
    with sqlite3.connect(folder / home.STORE) as db:
        db.executescript(WITHOUT_LATER_LABELS + "ALTER TABLE clients RENAME TO askers")
        db.execute("ALTER TABLE phases DROP COLUMN event")
        db.executescript("DROP INDEX answers_by_expiry; ALTER TABLE answers DROP COLUMN rest;"
                         "CREATE INDEX answers_by_expiry ON answers (expires)")  # fmt: skip
        db.execute("PRAGMA user_version = -1")
    db.close()
    older = (folder / home.STORE).read_bytes()
    with pytest.raises(Damaged, match=f"version -1, which this reticent cannot bring up to {schema.VERSION}"):
        opened(folder)
    monkeypatch.setitem(schema.UPGRADES, -1, lambda db: db.execute("ALTER TABLE askers RENAME TO clients"))
    monkeypatch.setitem(schema.UPGRADES, 0, lambda db: db.execute("SELECT nothing"))
    with pytest.raises(sqlite3.OperationalError):  # the second step fails: the first is undone
        opened(folder)
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
    answering = opened(folder)
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
    answering = opened(folder)
    assert answering.home.store.upgraded is None
    answering.close()
    (folder / home.STORE).write_bytes(older)  # what was kept, put back after answers were given
    with pytest.raises(Damaged, match="lost answers"):
        Home(folder)
