"""What tests of commands share: a clinic's table, a predictor of it, and a server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest

import warm
from reticent import cli
from reticent.cli.running_server import ADDRESS
from reticent.service import home
from waiting import LIMIT, reserved_port, wait_until

SCHEMA = """\
target = "ill"
classes = ["no", "yes"]

[[columns]]
name = "age"
range = [0, 100]

[[columns]]
name = "ward"
categories = ["a", "b"]
"""
SECRET = "Xantippe"  # a value of the table that no message may repeat
FIT = ("fit", "patients.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--name", "clinic")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Reticent = Callable[..., Outcome]


def check_refused(outcome: Outcome, message: str) -> None:
    """A refusal is one line on standard error, and exit code 2."""
    assert outcome.code == 2
    assert outcome.err.startswith("reticent: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


# ── fixtures, which a module takes by `run = pytest.fixture(command_line.run)` ────────────────────────────────────


def run(capsys: pytest.CaptureFixture[str]) -> Reticent:
    def run(*arguments: object) -> Outcome:
        code = cli.main([str(one) for one in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a table of 3,000 patients, some of whose cells are outside of the schema."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RETICENT_KEY", raising=False)
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, size=3_000)
    lines = [f"{one},{'ab'[one % 2]},p{place // 2},{'yes' if one > 50 else 'no'}" for place, one in enumerate(age)]
    lines[:4] = ["999,c,p0,yes", ",,p0,", f"{SECRET},{SECRET},{SECRET},{SECRET}", "nan,,p1"]
    (tmp_path / "patients.csv").write_text("age,ward,patient,ill\n" + "\n".join(lines) + "\n")
    (tmp_path / "new.csv").write_text("ward,age\na,10\nb,90\n,\nz,inf\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def fitted(run: Reticent, folder: Path) -> Path:
    assert run(*FIT).code == 0
    return folder


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


# ── a server ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def served(*options: str) -> Iterator[str]:
    with reserved_port() as port:
        url = f"http://127.0.0.1:{port}"
        words = ("-m", "reticent.cli", "serve", "clinic", "--port", str(port), *options)
        with warm.Process(*words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert url in process.stdout.readline().decode()
            wait_until(lambda: process.poll() is not None or code_of(f"{url}/v2/health/ready") == 200)
            assert process.poll() is None
            yield url
            assert process.end(LIMIT) == 0
            assert not (home.folder_of("clinic") / ADDRESS).exists()


def code_of(url: str, token: str | None = None) -> int:
    """The status that a server answers with; 0 where there is none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, timeout=LIMIT).status_code
    except httpx.TransportError:
        return 0
