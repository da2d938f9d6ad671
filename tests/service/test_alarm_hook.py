"""`reticent serve --on-alarm`: public facts, once for each alarm, and nothing depends on whether it works."""

from __future__ import annotations

import json
import logging
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from later import answering_of, chain

from reticent.service import alarm_hook
from reticent.service.alarm_hook import AlarmHook, facts
from reticent.service.status import Alarm, PhaseQuality, Status
from waiting import LIMIT, wait_until

WRITES = "import os,sys; open(sys.argv[1],'a').write(os.environ['RETICENT_ALARM'] + '\\n')"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Status:
    service = answering_of(tmp_path_factory.mktemp("home") / "clinic", chain(truth="rows"))
    found = service.status()
    service.close()
    return found


def alarmed(calm: Status, phase: int = 4, count: int = 1) -> Status:
    judged = PhaseQuality(phase, 100, 0.61, 0.52, 0.7, (0.9, None))
    alarms = tuple(Alarm(phase - count + 1 + one, 700 + one) for one in range(count))
    return replace(calm, alarms=alarms, alarm_since=phase, quality=(judged,))


def command(out: Path) -> str:
    return f"{sys.executable} -c \"{WRITES}\" {out}"


def test_a_command_gets_public_facts_once_for_each_alarm(calm: Status, tmp_path: Path) -> None:
    now, out = [calm], tmp_path / "out"
    hook = AlarmHook(command(out), "clinic", tmp_path, lambda: now[0])
    hook.look()
    assert not out.exists()
    now[0] = alarmed(calm)
    hook.look()
    hook.look()
    (line,) = out.read_text().splitlines()
    assert json.loads(line) == {
        "model": "clinic", "phase": 4, "answered": 700, "stands": True, "classes": ["no", "yes"],
        "quality": {"phase": 4, "rows": 100, "right": 0.61, "low": 0.52, "high": 0.7, "recall": [0.9, None]},
    }  # fmt: skip
    AlarmHook(command(out), "clinic", tmp_path, lambda: now[0]).look()  # after a restart
    assert len(out.read_text().splitlines()) == 1
    now[0] = alarmed(calm, phase=9, count=2)
    AlarmHook(command(out), "clinic", tmp_path, lambda: now[0]).look()
    assert json.loads(out.read_text().splitlines()[1])["phase"] == 9


def test_an_alarm_that_was_raised_while_no_server_ran_is_told_by_the_next(calm: Status, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with AlarmHook(command(out), "clinic", tmp_path, lambda: alarmed(calm)):
        wait_until(out.exists)


def test_a_url_gets_the_same(calm: Status, tmp_path: Path) -> None:
    bodies: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/alarm"
        AlarmHook(url, "clinic", tmp_path, lambda: alarmed(calm)).look()
        thread.join(LIMIT)
    assert bodies == [facts("clinic", alarmed(calm)) | {"quality": json.loads(json.dumps(bodies[0]["quality"]))}]


@pytest.mark.parametrize("target", [f"{sys.executable} -c 'raise SystemExit(3)'", "http://127.0.0.1:9/nobody"])
def test_that_it_fails_is_logged_and_changes_nothing(
    calm: Status, tmp_path: Path, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    with caplog.at_level(logging.WARNING, "reticent.service"):
        AlarmHook(target, "clinic", tmp_path, lambda: alarmed(calm)).look()
    assert "on-alarm" in caplog.text
    assert target not in caplog.text  # a URL may hold a password


def test_no_command_gets_the_secrets_of_the_server(
    calm: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in alarm_hook.SECRETS:
        monkeypatch.setenv(name, "Xantippe")
    writes = "import os,sys; open(sys.argv[1],'w').write(str(dict(os.environ)))"
    target = f"{sys.executable} -c \"{writes}\" {tmp_path / 'out'}"
    AlarmHook(target, "clinic", tmp_path, lambda: alarmed(calm)).look()
    shown = (tmp_path / "out").read_text()
    assert "'RETICENT_ALARM_PHASE': '4'" in shown
    assert "Xantippe" not in shown


@pytest.mark.parametrize("target", ["", "no-such-program --x", "'unbalanced"])
def test_what_cannot_be_run_is_refused_at_the_start(calm: Status, tmp_path: Path, target: str) -> None:
    with pytest.raises(ValueError, match="--on-alarm must be a"):
        AlarmHook(target, "clinic", tmp_path, lambda: calm)
