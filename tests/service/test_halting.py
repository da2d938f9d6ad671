"""A service that halts: what it exits with, what it writes down, and that no message of an error gets out.

Each fault is tried in the real process: `reticent serve`, with uvicorn and the process that learns.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from faulty import MARKER
from shop import predictor

import warm
from reticent import cli
from reticent.data.schema import Column, Schema
from reticent.service import halting, traces
from reticent.service.answering import AnsweringService
from reticent.service.client import Client
from reticent.service.halting import Halt, Interrupted, StillHalted, kind_of
from reticent.service.home import STORE, Home
from reticent.service.store.protocol import Damaged, NotStored
from reticent.service.store.verification import verify
from waiting import LIMIT, reserved_port, wait_until

SCHEMA = Schema((Column("x", "number", range=(0, 1)),), "y", ("no", "yes"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path))
    Home.create(tmp_path / "clinic", predictor(rows=60, rows_per_teacher=2), SCHEMA.to_toml()).close()
    return tmp_path / "clinic"


class Reply(NamedTuple):
    status: int
    headers: Any
    body: dict[str, Any]


class Running:
    """A server in a process of its own."""

    def __init__(self, process: warm.Process, url: str) -> None:
        self.process, self.url = process, url
        self.written = ""  # all that it wrote, once it has ended

    def get(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> Reply:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.url + path, data, headers or {}), timeout=LIMIT) as found:
                return Reply(found.status, found.headers, json.load(found))
        except HTTPError as error:
            with error:
                text = error.read()
            return Reply(error.code, error.headers, json.loads(text) if text.startswith(b"{") else {})

    def answers(self) -> bool:
        try:
            return self.get("/v2/health/ready").status == 200
        except OSError:
            return False

    def ask(self, rows: int, key: str = "k") -> Reply:
        values = [(0.5 + one) / rows for one in range(rows)]
        body = {"inputs": [{"name": "rows", "shape": [rows, 1], "datatype": "FP64", "data": values}]}
        return self.get("/v2/models/clinic/infer", body, {"Idempotency-Key": key})

    def ended(self) -> int:
        """Its exit code, when it has ended by itself."""
        out, err = self.process.communicate(timeout=LIMIT)
        self.written += out + err
        return self.process.wait()


@contextmanager
def serving(*faults: str, **environment: str) -> Iterator[Running]:
    with reserved_port() as port:
        words = (str(Path(__file__).with_name("faulty.py")), "serve", "clinic", "--port", str(port))
        made = os.environ | {"FAULTS": ",".join(faults), "OPENBLAS_NUM_THREADS": "1"} | environment
        with warm.Process(*words, environment=made, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            running = Running(process, f"http://127.0.0.1:{port}")
            assert process.stdout is not None
            running.written = process.stdout.readline().decode()
            wait_until(lambda: process.poll() is not None or running.answers())
            yield running


def status(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(["status", name]) == 0
    return capsys.readouterr().out


# ── no message gets out ───────────────────────────────────────────────────────────────────────────────────────────

EVERYWHERE = ("app", "asgi", "answering", "lifespan")


def failed_everywhere(running: Running) -> int:
    assert running.get("/v2").status == 500
    assert running.get("/v2/health/live").status == 500
    assert running.ask(1).status == 503
    return running.ended()


@pytest.mark.slow
def test_no_message_of_an_error_gets_out_of_the_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(*EVERYWHERE) as running:
        assert failed_everywhere(running) == 70
    assert MARKER not in running.written
    for place in ("in_task", "in_callback", "in_thread", "Dying.__del__", "everywhere", "only_live", "_answer"):
        assert f" in {place}" in running.written or f".{place}" in running.written, place
    assert "UserWarning at" in running.written
    assert "someone.else: faulty:" in running.written
    assert running.written.count("caused by KeyError") >= 6, "chains are followed"
    assert running.written.count("| ValueError") >= 6, "and groups"
    assert MARKER not in (folder / halting.FILE).read_text()
    told = status("clinic", capsys)
    assert MARKER not in told
    assert "an error in the program (ExceptionGroup)" in told
    assert "at __main__:" in told
    assert "delete the file" in told


@pytest.mark.slow
def test_as_python_and_its_libraries_write_errors_down_the_message_gets_out(folder: Path) -> None:
    """The negative control of the test above."""
    with serving(*EVERYWHERE, TWIN="1") as running:
        assert failed_everywhere(running) == 70
    assert running.written.count(MARKER) > 20


@pytest.mark.slow
def test_an_error_before_anything_is_served_is_told_by_its_place(folder: Path) -> None:
    with serving("open") as running:
        assert running.ended() == 70
    assert MARKER not in running.written
    assert "an unexpected error: ExceptionGroup at reticent" in running.written
    assert "caused by KeyError" in running.written


def test_an_error_is_rendered_with_its_chain_and_its_group_and_no_message() -> None:
    def fails() -> None:
        try:
            raise KeyError(MARKER)
        except KeyError:
            raise OSError(5, MARKER, f"/{MARKER}")  # noqa: B904  # it has a context, and no cause

    with pytest.raises(OSError, match=MARKER) as first:
        fails()
    inner = ExceptionGroup(MARKER, [ZeroDivisionError(MARKER)])
    with pytest.raises(ExceptionGroup) as second:
        raise ExceptionGroup(MARKER, [first.value, inner]) from first.value
    setattr(first.value, traces.ELSEWHERE, "TypeError\n  at there:1 in f")
    found = traces.rendered(second.value)
    assert MARKER not in found
    for line in ("ExceptionGroup", "  | OSError", "  | while handling KeyError", "  |   | ZeroDivisionError"):
        assert line in found.splitlines()
    assert "  |     TypeError" in found.splitlines(), "what was said of it in another process"
    assert f"at {__name__}:" in found


def test_only_a_message_that_was_written_here_is_repeated() -> None:
    with pytest.raises(ValueError, match="two dimensions") as ours:
        Client(model="clinic")._questions([1.0], None).__next__()
    assert traces.message_of(ours.value) == "rows must have two dimensions, got 1"
    with pytest.raises(ValueError, match=MARKER) as theirs:
        Client(f"http://localhost:{MARKER}", model="clinic")
    assert MARKER not in traces.message_of(theirs.value)
    assert "reticent.service.client_base:" in traces.message_of(theirs.value)


def test_errors_that_cause_each_other_are_rendered_once() -> None:
    one, two = ValueError(MARKER), KeyError(MARKER)
    one.__cause__, two.__cause__ = two, one
    assert traces.rendered(one) == "ValueError\ncaused by KeyError"


# ── what each fault does ──────────────────────────────────────────────────────────────────────────────────────────

FAULTS = {  # what happens, and how many rows are asked: 130 are of two phases
    "full": (1, 75, "No space left on device"),
    "descriptors": (130, 75, "Too many open files"),
    "killed": (130, 75, "ChildProcessError"),
    "torn": (1, 65, "Damaged"),
    "learner": (130, 70, "WorkerCrashed"),
    "crash": (130, 70, "WorkerCrashed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [one for one in FAULTS if one != "descriptors"])
def test_the_process_ends_with_a_code_that_tells_whether_a_restart_helps(
    folder: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_halted(folder, fault, capsys)
    answering = AnsweringService(Home(folder), elsewhere=False)
    assert sum(answering.verify().counted.values()) in (0, 120)
    answering.close()


def check_halted(folder: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows, code, kind = FAULTS[fault]
    with serving(fault) as running:
        assert running.get("/v2/health/live").status == 200
        refused = running.ask(rows)
        assert (refused.status, refused.body["type"]) == (503, "/docs#halted")
        assert (refused.headers["Retry-After"] is not None) == (code == 75)
        assert running.ended() == code
    assert MARKER not in running.written
    assert "has stopped answering" in running.written
    halt = halting.last(folder)
    assert halt is not None
    assert (halt.code, halt.type) == (code, kind)
    assert MARKER not in status("clinic", capsys)
    if code == 70:
        with pytest.raises(StillHalted, match="does not start again by itself"):
            Home(folder)
        assert cli.main(["serve", "clinic", "--port", "0"]) == 70
        assert str(folder / halting.FILE) in capsys.readouterr().err
        (folder / halting.FILE).unlink()
    else:
        assert "HALTED: 2" in status("clinic", capsys)


@pytest.mark.slow
def test_after_a_fault_of_the_system_a_supervisor_can_start_it_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_halted(folder, "descriptors", capsys)
    assert sum(verify(folder / STORE).counted.values()) in (0, 120)
    with serving() as running:
        again = running.ask(130)
        assert (again.status, again.body["parameters"]["replayed"]) == (200, True)
        assert len(again.body["outputs"][0]["data"]) == 130
        assert not (folder / halting.FILE).exists()
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0
    home = Home(folder)
    assert home.store.position.progress["answered"] == 130, "each row was counted once"
    home.close()


def test_a_store_that_is_damaged_does_not_start_and_says_so_by_its_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "store.sqlite").write_bytes(b"x" * 8192)
    assert cli.main(["serve", "clinic", "--port", "0"]) == 65
    assert "damaged" in capsys.readouterr().err


def test_a_missing_model_is_to_be_restored_rather_than_fitted_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "model.toml").unlink()
    assert cli.main(["serve", "clinic", "--port", "0"]) == 65
    said = capsys.readouterr().err
    assert f"{folder / 'model.toml'} is missing" in said
    assert "restore it from a backup. Do not fit again" in said


def test_kinds() -> None:
    def not_stored(cause: sqlite3.Error, code: int = 0) -> NotStored:
        cause.sqlite_errorcode = code
        error = NotStored("nothing was stored")
        error.__cause__ = cause
        return error

    full = not_stored(sqlite3.OperationalError("database or disk is full"), sqlite3.SQLITE_FULL)
    torn = not_stored(sqlite3.DatabaseError("database disk image is malformed"), sqlite3.SQLITE_CORRUPT)
    assert [kind_of(one) for one in (full, MemoryError(), OSError(5, "x"))] == ["system"] * 3
    assert [kind_of(one) for one in (torn, Damaged("x"))] == ["store"] * 2
    wrong = not_stored(sqlite3.IntegrityError("x"), sqlite3.SQLITE_CONSTRAINT)
    assert [kind_of(one) for one in (wrong, ValueError(), RuntimeError(), ExceptionGroup("x", [OSError()]))] == [
        "program"
    ] * 4
    assert kind_of(Interrupted()) == "stop"


def test_everyone_is_told_the_error_of_the_system_and_nothing_of_one_in_the_program() -> None:
    assert "(Too many open files)" in Halt.of(OSError(24, "Too many open files", f"/{MARKER}")).public
    assert "(an error in the program)" in Halt.of(ZeroDivisionError(MARKER)).public


def test_a_record_of_a_halt_that_cannot_be_read_counts_as_one(folder: Path) -> None:
    (folder / halting.FILE).write_text("{")
    with pytest.raises(StillHalted, match="unknown"):
        Home(folder)
    Home(folder, records=True).close()


def test_what_is_stopped_while_it_learns_has_not_failed(folder: Path) -> None:
    answering = AnsweringService(Home(folder))
    answering.interrupt()
    answering._halt(Interrupted("the service stops"))
    answering.close()
    assert (answering.halt is not None and answering.halt.code) == 0
    assert halting.last(folder) is None
