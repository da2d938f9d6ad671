"""`reticent demo`: a made-up clinic, a private predictor of its readmissions, and several clients that ask it."""

from __future__ import annotations

import csv
import os
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from reticent import cli
from reticent.service.client import Client, ServiceError
from reticent.service.http.server import HOST, PORT
from reticent.service.processes import Child, Folder, ending_in_good_order
from reticent.service.schema import Column, Schema

Array = NDArray[Any]

ROWS = 200_000
NAME = "clinic"
FIT = ["--epsilon", "1", "--delta", "1e-6", "--drift", "slow"]
CLIENTS = {"ward": (1, 0.02), "surgery": (5, 0.1), "insurer": (2_000, 0.5)}  # rows a question, seconds between two
WARDS = ("internal", "surgery", "heart")

SCHEMA = Schema(
    columns=(
        Column("age", "number", range=(18, 98)),
        Column("days", "number", range=(0, 14)),
        Column("earlier_stays", "number", range=(0, 4)),
        Column("medicines", "number", range=(0, 14)),
        Column("pressure", "number", range=(80, 180)),
        Column("haemoglobin", "number", range=(9, 18)),
        Column("ward", "category", categories=WARDS),
        Column("emergency", "category", categories=("no", "yes")),
    ),
    target="readmitted",
    classes=("no", "yes"),
)


def clinic(rows: int, *, seed: int, stays: int = 1) -> dict[str, Array]:
    """Made-up stays in a clinic, the same for the same seed; a patient has up to `stays` of them.

    Who is older, stayed longer or oftener, takes more medicines, or came as an emergency is readmitted more often. One
    in twenty is readmitted, or not, by mere chance; and a few cells are missing or beyond what the schema declares, as
    they are in any clinic.

    >>> table = clinic(3, seed=0)
    >>> list(table)[:3], len(table["age"])
    (['patient_id', 'age', 'days'], 3)
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(rows), rng.integers(1, stays + 1, size=rows))[:rows]
    age = rng.normal(58, 19, size=rows).clip(0, 109).round()[owner]
    days = (1 + rng.gamma(1.6, 3.5, size=rows)).round().clip(1, 60)
    earlier = rng.poisson(1.2, size=rows).clip(0, 10)
    medicines = rng.poisson(3 + age / 14).clip(0, 30)
    pressure = rng.normal(112 + age / 3, 17).round()
    haemoglobin = rng.normal(13.4, 1.8, size=rows).round(1)
    ward = rng.integers(0, len(WARDS), size=rows)
    emergency = rng.random(rows) < 0.4
    score = (
        (age - 58) / 24 + (days - 6) / 6 + 0.8 * (earlier - 1.2) + (medicines - 7) / 5 - (haemoglobin - 13.4) / 3
        + np.array([0.0, -0.5, 0.6])[ward] + 1.1 * (emergency - 0.4)
    )  # fmt: skip
    readmitted = np.where(rng.random(rows) < 0.05, rng.random(rows) < 0.5, score > 0.3)
    pressure[rng.random(rows) < 0.01] = 999  # a sensor that fell off
    haemoglobin[rng.random(rows) < 0.02] = np.nan
    return {
        "patient_id": np.char.add("p", owner.astype(str)),
        "age": age.astype(int),
        "days": days.astype(int),
        "earlier_stays": earlier,
        "medicines": medicines,
        "pressure": pressure.astype(int),
        "haemoglobin": haemoglobin,
        "ward": np.array(WARDS)[ward],
        "emergency": np.where(emergency, "yes", "no"),
        "readmitted": np.where(readmitted, "yes", "no"),
    }


def write_csv(path: Path, table: Mapping[str, Array], *, leave_out: tuple[str, ...] = ()) -> None:
    """A table as CSV; what is missing is empty."""
    columns = {name: values.tolist() for name, values in table.items() if name not in leave_out}
    with open(path, "x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            ["" if isinstance(one, float) and one != one else one for one in row]  # noqa: PLR0124  # NaN
            for row in zip(*columns.values(), strict=True)
        )


def write_example(folder: Path) -> None:
    """The tables of the guide: stays of patients, some of whom came several times, and new ones to ask about."""
    write_csv(folder / "patients.csv", clinic(ROWS, seed=1, stays=3))
    write_csv(folder / "new.csv", clinic(1_000, seed=2), leave_out=("patient_id", "readmitted"))


def main(seconds: float | None = None) -> int:
    """Make the clinic, fit, serve, ask; until Ctrl-C, or for some seconds. However it ends, nothing is left behind."""
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
        with _Served(port, kept) as server:
            console.print(f"\n[bold]The dashboard is at {server.url}/[/bold]\n")
            print(_invitation(server.url, seconds), flush=True)
            crowd = _Crowd(server.url)
            crowd.ask_until(console, server, None if seconds is None else time.monotonic() + seconds)
        console.print(f"\n{crowd.told()}\n")
        return _run(console, "status", NAME, "--verify") or crowd.failed


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Predictors live in this folder meanwhile."""
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
    """A command, shown as one would type it."""
    shown = [Path(one).name if os.sep in one else one for one in arguments]
    console.print(f"[bold]$ reticent {shlex.join(shown)}[/bold]", highlight=False)
    return cli.main(arguments)


def _free_port() -> int:
    """The usual port, or if that is taken any other."""
    for port in (PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    raise SystemExit("no port is free")


class _Served(Child):
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


class _Crowd:
    """Clients that ask, each in a thread, and count how often the answer is what really happened."""

    def __init__(self, url: str) -> None:
        self._url, self._over, self._lock = url, threading.Event(), threading.Lock()
        self.answered = self.right = self.failed = 0

    def ask_until(self, console: Console, server: _Served, deadline: float | None) -> None:
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
                    shown.update(self.told())
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

    def told(self) -> str:
        """What they got."""
        if not self.answered:
            return "nothing was answered yet"
        return f"{self.answered:,} private answers, {self.right / self.answered:.1%} of them right"
