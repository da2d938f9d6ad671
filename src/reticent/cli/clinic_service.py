"""The demo's service: the made-up clinic, fitted and served, and several clients that ask it."""

from __future__ import annotations

import os
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
from cyclopts import App
from rich.console import Console

from reticent.cli.clinic import ROWS, SCHEMA, clinic, write_csv
from reticent.cli.dispatch import run
from reticent.cli.fit import fit
from reticent.cli.status import status
from reticent.service.client import Client
from reticent.service.client_messages import ServiceError
from reticent.service.http.server import HOST, PORT
from reticent.service.processes import Child, Folder, ending_in_good_order

NAME = "clinic"
FIT = ["--epsilon", "1", "--delta", "1e-6", "--drift", "slow"]
CLIENTS = {"ward": (1, 0.02), "surgery": (5, 0.1), "insurer": (2_000, 0.5)}  # rows per request, seconds between two


def show(seconds: float | None = None) -> int:
    """Fit, serve and ask, until Ctrl-C or for some seconds. However it ends, nothing is left behind.

    Parameters
    ----------
    seconds : float, default None
        How long clients ask; None means until Ctrl-C.

    Returns
    -------
    int
        The exit code: 0 if all commands and all clients succeeded.
    """
    console = Console()
    kept = Folder(prefix="reticent-demo-")
    with ending_in_good_order(), kept as folder, _home(folder / "home"):
        with console.status("making up a clinic …"):
            write_csv(folder / "patients.csv", clinic(ROWS, seed=0), leave_out=("patient_id",))
            (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
        started = time.perf_counter()
        table, schema = str(folder / "patients.csv"), str(folder / "schema.toml")
        if code := _run(console, "fit", table, "--schema", schema, *FIT, "--name", NAME):
            return code
        console.print(f"\nThat took {time.perf_counter() - started:.1f} seconds.\n")
        port = _free_port()
        with _Server(port, kept) as server:
            console.print(f"\n[bold]The dashboard is at {server.url}/[/bold]\n")
            print(_invitation(server.url, seconds), flush=True)
            clients = _Clients(server.url)
            clients.ask_until(console, server, None if seconds is None else time.monotonic() + seconds)
        console.print(f"\n{clients.summary()}\n")
        return _run(console, "status", NAME, "--verify") or clients.failed


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Keep predictors in this folder meanwhile."""
    before = os.environ.get("RETICENT_HOME")
    os.environ["RETICENT_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["RETICENT_HOME"]
        else:
            os.environ["RETICENT_HOME"] = before


def _invitation(url: str, seconds: float | None) -> str:
    """How to ask as well."""
    row = (
        '{"age": 71, "days": 9, "earlier_stays": 3, "medicines": 11,\n'
        '   "pressure": 140, "haemoglobin": 11.5, "ward": "heart", "emergency": "yes"}'
    )
    return (
        f"{len(CLIENTS)} clients ask now: {', '.join(CLIENTS)}. Ask as well:\n\n"
        f"curl {url}/invocations -H 'Content-Type: application/json' \\\n"
        f"  -d '{{\"dataframe_records\": [\n   {row}]}}'\n\n"
        + ("Ctrl-C ends it." if seconds is None else f"It ends in {seconds:g} seconds.")
    )


def _run(console: Console, *arguments: str) -> int:
    """Run a command, shown as one would type it."""
    shown = [Path(word).name if os.sep in word else word for word in arguments]
    console.print(f"[bold]$ reticent {shlex.join(shown)}[/bold]", highlight=False)
    commands = App(name="reticent")
    commands.command(fit)
    commands.command(status)
    return run(commands, arguments)


def _free_port() -> int:
    """The usual port or, if it is taken, any other."""
    for port in (PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    raise SystemExit("no port is free")


class _Server(Child):
    """`reticent serve` in a process of its own, which ends with this block."""

    def __init__(self, port: int, folder: Folder) -> None:
        self.url = f"http://{HOST}:{port}"
        super().__init__("reticent.cli", "serve", NAME, "--port", str(port), folder=folder)

    def __enter__(self) -> Self:
        give_up = time.monotonic() + 60
        try:
            while self.process.poll() is None:
                try:
                    with urlopen(f"{self.url}/v2/health/ready", timeout=5):
                        return self
                except (URLError, OSError):
                    if time.monotonic() > give_up:
                        raise SystemExit("the server did not start within a minute") from None
                    time.sleep(0.05)
            raise SystemExit("the server did not start")
        except BaseException:
            self.end()
            raise


class _Clients:
    """Clients that ask, each in a thread, and count how often the answer is the true label."""

    def __init__(self, url: str) -> None:
        self._url, self._over, self._lock = url, threading.Event(), threading.Lock()
        self.answered = self.right = self.failed = 0

    def ask_until(self, console: Console, server: _Server, deadline: float | None) -> None:
        """Let all ask until Ctrl-C, the deadline, or the end of the server."""
        threads = [
            threading.Thread(target=self._ask, args=(seed, *pace), daemon=True)
            for seed, pace in enumerate(CLIENTS.values(), start=10)
        ]
        for thread in threads:
            thread.start()
        try:
            with console.status("asking …") as shown:
                while deadline is None or time.monotonic() < deadline:
                    if server.process.poll() is not None:
                        self.failed = 1
                        break
                    time.sleep(0.25)
                    shown.update(self.summary())
        except KeyboardInterrupt:
            pass
        self._over.set()
        for thread in threads:
            thread.join(timeout=10)

    def _ask(self, seed: int, rows: int, pause: float) -> None:
        new = clinic(20_000, seed=seed)
        at = 0
        with Client(self._url, model=NAME) as client:
            while not self._over.wait(pause):
                part = {name: values[at : at + rows] for name, values in new.items()}
                at = (at + rows) % (20_000 - rows)
                truth = part.pop("readmitted")
                part.pop("patient_id")
                try:
                    answers = client.ask(part)
                except (ServiceError, ConnectionError):
                    if not self._over.is_set():
                        self.failed = 1
                    return
                with self._lock:
                    self.answered += len(answers)
                    self.right += int(np.count_nonzero(answers == truth))

    def summary(self) -> str:
        """How many answers they got, and how many are right."""
        if not self.answered:
            return "nothing was answered yet"
        return f"{self.answered:,} private answers, {self.right / self.answered:.1%} of them right"
