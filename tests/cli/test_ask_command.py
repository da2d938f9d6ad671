"""`reticent ask`: of the predictor itself, and of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import Reticent, code_of, served
from stand_in import Column, Rules, make_service, running

from reticent.cli import ask
from reticent.service import home
from reticent.service.http.access import Keyring
from reticent.service.keys import KeyTable, make_key
from waiting import wait_until

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
fitted = pytest.fixture(command_line.fitted)


def test_asking_without_a_server_counts_as_much(run: Reticent, fitted: Path) -> None:
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    assert outcome == (0, "4 answers in answers.csv\n", "")
    assert Path("answers.csv").read_text().splitlines()[:3] == ["ill", "no", "yes"]
    shown = json.loads(run("status", "clinic", "--json", "--verify").out)
    assert (shown["answered"], shown["ledger_length"], shown["served"]) == (4, 1, None)
    assert shown["verified"]["counted"] == {"1": 4}
    shown_as_text = run("status", "clinic", "--verify")
    assert shown_as_text.code == 0
    assert "answered: 4 in all" in shown_as_text.out
    assert "verified: 1 entry is chained without a gap, and counts" in shown_as_text.out
    assert "Who is protected." in shown_as_text.out
    again = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    assert again.code == 2
    assert "answers.csv exists" in again.err


def test_asking_goes_on_where_it_was_interrupted(
    run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 2)
    real = ask.ask_predictor
    calls = []

    def broken(*arguments: Any) -> list[Any]:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is full")
        return real(*arguments)

    monkeypatch.setattr(ask, "ask_predictor", broken)
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv")
    assert outcome.code == 2
    assert "2 of 4 rows are answered in answers.csv; the rest can be asked with --resume" in outcome.err
    assert len(Path("answers.csv").read_text().splitlines()) == 3
    assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume").code == 0
    assert len(Path("answers.csv").read_text().splitlines()) == 5
    assert json.loads(run("status", "clinic", "--json").out)["answered"] == 4
    assert not Path("answers.csv.asking").exists()
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv", "--resume")
    assert "is finished" in outcome.err


@pytest.mark.slow
def test_a_server_is_found_asked_and_observed(
    run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as url:
        assert run("ask", "clinic", "--table", "new.csv", "--out", "one.csv").code == 0
        shown = json.loads(run("status", "clinic", "--json", "--verify").out)
        assert (shown["answered"], shown["served"], shown["verified"]["length"]) == (4, url, 1)
        second = run("serve", "clinic", "--port", "0")
        assert second.code == 2
        assert "one server at a time" in second.err
        token = run("keys", "add", "clinic", "ward").out.strip()
        wait_until(lambda: code_of(f"{url}/status") == 401)  # it has seen that there is a key
        refused = run("ask", "clinic", "--table", "new.csv", "--out", "two.csv")
        assert refused.code == 2
        assert "set $RETICENT_KEY, or name a file with --key-file" in refused.err
        assert not Path("two.csv").exists()
        assert "set $RETICENT_KEY" in run("status", "clinic").err
        Path("key").write_text(token + "\n")
        assert run("ask", "clinic", "--table", "new.csv", "--out", "two.csv", "--key-file", "key").code == 0
        monkeypatch.setenv("RETICENT_KEY", token)
        assert f"served at {url}" in run("status", "clinic").out
        slow = run("keys", "add", "clinic", "slow", "--rate", "2").out.strip()  # it takes 2 rows at once, not 4
        Path("slow").write_text(slow)
        wait_until(lambda: code_of(f"{url}/status", slow) == 200)
        assert run("ask", "clinic", "--table", "new.csv", "--out", "slow.csv", "--key-file", "slow").code == 0
        assert len(Path("slow.csv").read_text().splitlines()) == 5
        monkeypatch.setenv("RETICENT_HOME", str(fitted / "elsewhere"))  # as on another machine
        assert run("ask", "clinic", "--table", "new.csv", "--out", "three.csv", "--url", url).code == 0
        assert len(Path("three.csv").read_text().splitlines()) == 5
    monkeypatch.setenv("RETICENT_HOME", str(fitted / "home"))
    assert json.loads(run("status", "clinic", "--json").out)["answered"] == 16


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda text: text.replace(b"range", b"rang[e"), r"is damaged \(line 7 is no TOML\): restore it"),
        (lambda text: text.replace(b'name = "age"', b'name = "\xe4ge"'), "line 5 is not UTF-8"),
        (lambda text: text.replace(b"[0, 100]", b"[0, 99]"), r"is damaged \(it was changed\): restore it"),
    ],
    ids=["no TOML", "not UTF-8", "another"],
)
def test_a_damaged_model_is_named_with_the_line(
    run: Reticent, fitted: Path, damage: Callable[[bytes], bytes], place: str
) -> None:
    path = home.folder_of("clinic") / home.MODEL
    path.write_bytes(damage(path.read_bytes()))
    asking = ("ask", "clinic", "--table", "new.csv", "--out", "o.csv")
    for command, code in ((("serve", "clinic"), 65), (("status", "clinic"), 2), (asking, 2)):
        outcome = run(*command)
        assert (outcome.code, outcome.out) == (code, "")
        assert "from a backup. Do not fit again: that would spend epsilon and delta again" in outcome.err
        assert re.search(rf"{re.escape(str(path))}.*{place}", outcome.err)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda text: text.replace(b"range", b"rang[e"), "this is no TOML: .*line 7"),
        (lambda text: text.replace(b'name = "age"', b'name = "\xe4ge"'), "line 5 is not UTF-8"),
        (lambda text: text.replace(b"[0, 100]", b"[0]"), "column 'age': range must be two numbers"),
    ],
    ids=["no TOML", "not UTF-8", "no schema"],
)
def test_it_is_named_also_where_a_server_is_asked(
    run: Reticent, fitted: Path, damage: Callable[[bytes], bytes], place: str
) -> None:
    path = home.folder_of("clinic") / home.MODEL
    path.write_bytes(damage(path.read_bytes()))
    outcome = run("ask", "clinic", "--table", "new.csv", "--out", "o.csv", "--url", "http://127.0.0.1:9")
    assert outcome.code == 2
    assert re.search(rf"{re.escape(str(path))}.*{place}", outcome.err)


@pytest.mark.slow
def test_another_model_at_an_address_is_not_asked(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(Rules((Column("age"), Column("weight"))))
    (folder / "rows.csv").write_text("weight,age\n1,0.9\n2,0.1\n")
    with running(service) as port:
        url = f"http://127.0.0.1:{port}"
        refused = run("ask", "klinik", "--table", "rows.csv", "--out", "a.csv", "--url", url)
        assert refused.code == 2
        assert f"{url} serves no model named 'klinik'" in refused.err
        assert service.answering.status().answered == 0
        # The one that is there tells the names of its columns, also if all of them are numbers.
        assert run("ask", "clinic", "--table", "rows.csv", "--out", "a.csv", "--url", url).code == 0
        assert (folder / "a.csv").read_text().split() == ["answer", "1", "0"]
        (folder / "rows.csv").write_text("age\n1\n")
        assert "rows.csv has no column 'weight'" in run(
            "ask", "clinic", "--table", "rows.csv", "--out", "b.csv", "--url", url
        ).err


@pytest.mark.slow
def test_a_part_that_the_quota_does_not_cover_is_refused_whole(
    run: Reticent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = KeyTable(folder / "keys.sqlite")
    token, key = make_key("ward", ["ask", "observe"], quota=5)
    table.add(key)
    (folder / "rows.csv").write_text("weight,age\n" + "1,0.9\n" * 6)
    monkeypatch.setenv("RETICENT_KEY", token)
    service = make_service(keyring=Keyring(table))
    with running(service) as port:
        command = ("ask", "clinic", "--table", "rows.csv", "--out", "a.csv", "--url", f"http://127.0.0.1:{port}")
        assert run(*command).code == 2
        assert service.answering.status().answered == 0
        assert not (folder / "a.csv").exists()
        monkeypatch.setattr(ask, "ROWS_PER_REQUEST", 4)
        refused = run(*command)
        assert refused.code == 2
        assert "4 of 6 rows are answered" in refused.err
        assert service.answering.status().answered == 4
    table.close()
