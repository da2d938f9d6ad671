"""`reticent keys`: add, list, set, rotate, revoke."""

from __future__ import annotations

import json
import re
from pathlib import Path

import command_line
import pytest
from command_line import Reticent, check_refused, served

from reticent.cli.running_server import address_of
from reticent.service import home

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
fitted, clinic = pytest.fixture(command_line.fitted), pytest.fixture(command_line.clinic)


def test_keys(run: Reticent, fitted: Path) -> None:
    assert "there are no keys" in run("keys", "list", "clinic").out
    options = ("--scope", "ask", "--scope", "observe", "--rate", "10", "--quota", "99")
    made = run("keys", "add", "clinic", "ward 3", *options)
    assert made.code == 0
    token = made.out.strip()
    assert re.fullmatch(r"[0-9a-f]{12}\.[\w-]{43}", token)
    assert "write it down now" in made.err
    (shown,) = json.loads(run("keys", "list", "clinic", "--json").out)
    assert shown == {
        "id": token[:12], "name": "ward 3", "scopes": ["ask", "observe"], "rate": 10.0, "burst": 10, "quota": 99,
        "daily_rows": None, "revoked": False, "used": 0,
    }  # fmt: skip
    assert "10/s, 10 at once, 99 in all; 0 used\n" in run("keys", "list", "clinic").out
    changed = run("keys", "set", "clinic", "ward 3", "--rate", "20", "--quota", "none")
    assert changed == (0, f"the key of ward 3 ({token[:12]}) now has: 20/s, 20 at once\n", "")
    assert "50 at once" in run("keys", "set", "clinic", token[:12], "--burst", "50").out
    assert "no limits" in run("keys", "set", "clinic", "ward 3", "--rate", "none").out
    assert "give --rate, --burst, --quota or --rows-per-day" in run("keys", "set", "clinic", "ward 3").err
    assert "must be a whole number, or none" in run("keys", "set", "clinic", "ward 3", "--quota", "many").err
    assert "quota must be at least 0, got -1" in run("keys", "set", "clinic", "ward 3", "--quota=-1").err
    assert "there is no key of the name or id 'x'" in run("keys", "set", "clinic", "x", "--quota", "1").err
    assert "burst needs a rate, got burst 3" in run("keys", "add", "clinic", "ward 4", "--burst", "3").err
    for command in (("add", "clinic", "lab", "--scope", "teach"), ("set", "clinic", "ward 3")):
        assert "--rows-per-day must be at least 1, got -5" in run("keys", *command, "--rows-per-day=-5").err
    assert "add --scope teach" in run("keys", "add", "clinic", "lab", "--rows-per-day", "5").err
    for name in (" ", "."):
        assert "WHO, the name of the key, must be 1 to 64 letters" in run("keys", "add", "clinic", name).err
    secret = token.partition(".")[2].encode()
    assert not any(secret in one.read_bytes() for one in home.folder_of("clinic").iterdir())
    assert "nor one that was revoked, got 'ward 3'" in run("keys", "add", "clinic", "ward 3").err
    assert "start with a letter or digit, got '../x'" in run("keys", "list", "../x").err
    rotated = run("keys", "rotate", "clinic", "ward 3")
    assert (rotated.code, rotated.out[:13]) == (0, token[:13])
    assert rotated.out.strip() != token
    assert "the old one is void" in rotated.err
    assert run("keys", "revoke", "clinic", "ward 3").code == 0
    assert "revoked" in run("keys", "list", "clinic").out
    assert "there is no key" in run("keys", "revoke", "clinic", "x").err


@pytest.mark.slow
def test_the_key_that_is_not_accepted_is_named(run: Reticent, clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "add", "clinic", "ward").code == 0
    (clinic / "observer").write_text(run("keys", "add", "clinic", "office", "--scope", "observe").out)
    (clinic / "empty").write_text("\n")
    (clinic / "wrong").write_text("no-such.key\n")
    asking = ("ask", "clinic", "--table", "new.csv", "--out", "a.csv")
    with served():
        for command in (asking, ("status", "clinic")):
            monkeypatch.delenv("RETICENT_KEY", raising=False)
            assert "requires a key that allows this: set $RETICENT_KEY" in run(*command).err
            check_refused(run(*command, "--key-file", "wrong"), "the key in --key-file wrong was not accepted")
            check_refused(run(*command, "--key-file", "empty"), "--key-file: empty holds no key")
            check_refused(run(*command, "--key-file", "none"), "--key-file: none cannot be read: No such file")
            monkeypatch.setenv("RETICENT_KEY", "no-such.key")
            assert run(*command).err == "reticent: the key in $RETICENT_KEY was not accepted\n"
        refused = run(*asking, "--key-file", "observer")
        check_refused(refused, "--key-file observer: The key does not allow this: this needs a key with the scope")


@pytest.mark.slow
def test_the_list_shows_what_a_key_has_used(run: Reticent, clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = run("keys", "add", "clinic", "ward", "--quota", "1000").out.split()[-1]
    monkeypatch.setenv("RETICENT_KEY", token)
    with served():
        assert run("ask", "clinic", "--table", "new.csv", "--out", "answers.csv").code == 0
        assert "1,000 in all; 45 used\n" in run("keys", "list", "clinic").out, "also while a server runs"
        assert run("status").out == f"{'clinic':24} serving at {address_of('clinic')}\n"
    assert [one["used"] for one in json.loads(run("keys", "list", "clinic", "--json").out)] == [45]
    (home.folder_of("clinic") / home.STORE).write_bytes(b"damaged")
    assert run("keys", "list", "clinic").out.endswith("1,000 in all\n"), "keys can be listed without it"
    assert run("status").out == f"{'clinic':24} cannot be read\n"
