"""`reticent serve`: where it may listen, and what it refuses."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import Reticent

from reticent.cli.errors import UsageError
from reticent.cli.serve import check_free
from reticent.service import home
from reticent.service.store import schema

run, folder = pytest.fixture(command_line.run), pytest.fixture(command_line.folder)
fitted = pytest.fixture(command_line.fitted)


def test_what_cannot_be_opened_is_said_in_one_line(
    run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(schema, "connect", refused)
    outcome = run("serve", "clinic")
    assert (outcome.code, outcome.out) == (75, "")
    assert outcome.err == "reticent: the store or the keys cannot be used: unable to open database file\n"


def test_a_folder_in_place_of_the_model_is_damage(run: Reticent, fitted: Path) -> None:
    """65 and not 75: a supervisor must not start it again."""
    model = home.folder_of("clinic") / home.MODEL
    model.unlink()
    model.mkdir()
    outcome = run("serve", "clinic")
    assert (outcome.code, outcome.out) == (65, "")
    assert f"{model} is damaged (it is a folder): restore it from a backup. Do not fit again" in outcome.err


def help_of(command: str) -> str:
    done = subprocess.run([sys.executable, "-m", "reticent.cli", command, "--help"], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.slow
def test_where_it_may_listen(run: Reticent, fitted: Path) -> None:
    assert "make a key first" in run("serve", "clinic", "--host", "0.0.0.0").err
    assert "--tls-cert must be a file, got x.pem" in run("serve", "clinic", "--tls-cert", "x.pem").err
    assert "--tls-cert must be given with --tls-key" in run("serve", "clinic", "--tls-key", "x.pem").err
    assert "--behind-proxy lets others ask" in run("serve", "clinic", "--behind-proxy").err
    assert "--port must be at most 65535, got 70000" in run("serve", "clinic", "--port", "70000").err
    assert run("keys", "add", "clinic", "ward").code == 0
    refused = run("serve", "clinic", "--host", "0.0.0.0").err
    assert "--host 0.0.0.0 would have keys and rows travel in the clear" in refused
    named = set(re.findall(r"--[a-z-]+", refused))
    assert named == {"--host", "--tls-cert", "--tls-key", "--behind-proxy"}
    assert all(f"{one.upper()}:" not in refused and one in help_of("serve") for one in named)
    assert not re.search(r"\b(certificate|private_key|behind_proxy)\b", refused)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        outcome = run("serve", "clinic", "--port", taken.getsockname()[1])  # steady: it is taken
    assert outcome.code == 2
    assert "choose another --port" in outcome.err
    assert run("status", "clinic").code == 0  # the folder was let go


def test_a_host_that_is_not_here_is_named(run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "add", "clinic", "ward").code == 0
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", unknown)
        for name in ("nonsense.invalid", "192.0.2.1000"):
            outcome = run("serve", "clinic", "--behind-proxy", "--host", name)
            assert outcome.code == 2
            assert f"--host must be a name or an address of this machine, got {name!r}" in outcome.err
    assert "--host must be a name" in run("serve", "clinic", "--behind-proxy", "--host", "a" * 64).err  # no name of DNS
    with pytest.raises(UsageError, match=r"192\.0\.2\.1.*choose another --host") as refused:
        check_free("192.0.2.1", 0)  # of no machine: RFC 5737
    assert refused.value.code == 2


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "http://127.0.0.1", "", "[::1]", "a b", "localhost/x"])
def test_a_host_is_a_name_or_an_address(run: Reticent, fitted: Path, host: str) -> None:
    outcome = run("serve", "clinic", "--host", host)
    assert outcome.code == 2
    expected = f"--host must be a name or an address without a port, got {host!r}; the port is --port"
    assert outcome.err == f"reticent: {expected}\n"


def test_an_unknown_host_is_not_called_unencrypted(
    run: Reticent, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("keys", "add", "clinic", "ward").code == 0
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    outcome = run("serve", "clinic", "--host", "nosuch.invalid")
    assert outcome.code == 2
    assert "--host must be a name or an address of this machine, got 'nosuch.invalid'" in outcome.err


def unknown(*_: Any, **__: Any) -> None:
    """A name service that does not know the name."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
