"""What a server does when an alarm is raised: it runs a command, or posts to a URL. Both get public facts only."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

from reticent.service.status import Status

log = logging.getLogger("reticent.service")

TOLD = "alarms_told"  # a file in the folder of the predictor: how many alarms the hook was called for
SECRETS = ("RETICENT_KEY", "RETICENT_TLS_PASSWORD")  # of the server's environment, which no command gets
PERIOD = 1.0  # seconds between two looks
LONGEST = 10.0  # seconds that a command or a URL may take


class AlarmHook:
    """Calls a command or a URL for each alarm, in a thread of its own. That it fails is logged and changes nothing.

    An alarm is noted as told before the hook is called: after a crash it is not told twice. One that was raised while
    no server ran, or before a crash, is told by the next one.

    Parameters
    ----------
    target : str
        A URL that starts with http:// or https://, or a command, which is split as a shell would and not run by one.
    name : str
        The predictor.
    folder : Path
        Its folder.
    status : callable
        Returns the public numbers. What they say is durable.
    """

    def __init__(self, target: str, name: str, folder: Path, status: Callable[[], Status]) -> None:
        self._url = target if target.startswith(("http://", "https://")) else None
        self._command = [] if self._url else _command(target)
        self._name, self._file, self._status = name, folder / TOLD, status
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="alarms", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD):
            self.look()
        self.look()

    def look(self) -> None:
        """Tell of the last alarm, if it was not told."""
        try:
            now = self._status()
            if len(now.alarms) <= self._told():
                return
            self._note(len(now.alarms))
            self._tell(now)
        except Exception as error:  # whatever happens here must not end the service
            log.warning("the alarm was raised, but --on-alarm failed: %s", type(error).__name__)

    def _told(self) -> int:
        try:
            return int(self._file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def _note(self, alarms: int) -> None:
        unfinished = self._file.with_name(f"{self._file.name}.part")
        unfinished.write_text(str(alarms), encoding="ascii")
        os.replace(unfinished, self._file)

    def _tell(self, now: Status) -> None:
        page = facts(self._name, now)
        if self._url is not None:
            body = json.dumps(page).encode()
            with urlopen(  # the scheme was checked
                Request(self._url, body, {"Content-Type": "application/json"}),
                timeout=LONGEST,
            ):
                return
        known = {name: value for name, value in os.environ.items() if name not in SECRETS}
        added = {
            "RETICENT_MODEL": self._name, "RETICENT_ALARM_PHASE": str(page["phase"]),
            "RETICENT_ALARM_ANSWERED": str(page["answered"]), "RETICENT_ALARM": json.dumps(page),
        }  # fmt: skip
        ended = subprocess.run(  # the operator's own command
            self._command, env=known | added, stdin=subprocess.DEVNULL, timeout=LONGEST, check=False
        )
        if ended.returncode:
            log.warning("the alarm was raised, but the command of --on-alarm ended with %d", ended.returncode)


def facts(name: str, now: Status) -> dict[str, Any]:
    """What is said of the last alarm: public numbers only.

    Parameters
    ----------
    name : str
        The predictor.
    now : Status
        Its public numbers.
    """
    last = now.alarms[-1]
    judged = [asdict(one) for one in now.quality if one.phase <= last.phase]
    return {
        "model": name, "phase": last.phase, "answered": last.answered, "stands": now.alarm_since is not None,
        "classes": list(now.classes), "quality": judged[-1] if judged else None,
    }  # fmt: skip


def _command(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"--on-alarm must be a command or a URL: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise ValueError(f"--on-alarm must be a URL, or a command that can be run, got {text!r}")
    return words
