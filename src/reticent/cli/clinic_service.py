"""The demo: a made-up clinic that changes, a predictor that learns from its outcomes, and one that learned once."""

from __future__ import annotations

import io
import os
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from cyclopts import App
from rich.console import Console

from reticent.cli.clinic import SCHEMA, clinic, write_csv
from reticent.cli.clinic_months import CLIENTS, NAME, STATIC, Months
from reticent.cli.clinic_page import Page
from reticent.cli.dispatch import run
from reticent.cli.fit import fit
from reticent.cli.status import status
from reticent.service.http.server import HOST, PORT
from reticent.service.processes import Child, Folder, ending_in_good_order

ROWS = 20_000  # of each of the two tables
PRIVACY = ["--epsilon", "1", "--delta", "1e-6"]
FITS = {  # the two predictors: what makes them different
    NAME: ["--truth", "rows", "--alarm-accuracy", "0.7"],
    STATIC: ["--learner", "private-model"],
}
MONTH = 2.0  # seconds, from when the outcomes of the month before are learned
LINES = 5  # of the second fit that are shown: what was made, and what it promises
CLINIC_CHANGES = (
    "Month by month, other patients are readmitted than before. {name} is taught the outcomes of each month when they\n"
    "are known; {static} has learned once. Watch the two part."
)


def show(seconds: float | None = None) -> int:
    """Fit two predictors, serve both, ask and teach, until Ctrl-C or for some seconds. Nothing is left behind.

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
            (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
            for seed, name in enumerate(FITS):  # of different patients: each of them pays once
                write_csv(folder / f"{name}.csv", clinic(ROWS, seed=seed), leave_out=("patient_id",))
        started = time.perf_counter()
        for name, options in FITS.items():
            table, schema = str(folder / f"{name}.csv"), str(folder / "schema.toml")
            command = ("fit", table, "--schema", schema, *PRIVACY, *options, "--name", name)
            if code := _run(console, *command, last=None if name == NAME else LINES):
                return code
        console.print(f"\nThat took {time.perf_counter() - started:.1f} seconds.\n")
        with _Servers(kept) as servers:
            months = Months(servers.urls)
            with Page(months.numbers, HOST) as page:
                print(_invitation(page.url, servers.urls, seconds), flush=True)
                _live(console, months, servers, None if seconds is None else time.monotonic() + seconds)
        console.print(f"\n{months.summary()}\n", highlight=False)
        return _run(console, "status", NAME, "--verify") or months.failed


def _live(console: Console, months: Months, servers: _Servers, deadline: float | None) -> None:
    """Let months pass until Ctrl-C, the deadline, or the end of a server. Then nothing is asked any more."""
    months.start()
    turn = time.monotonic() + MONTH
    try:
        with console.status("asking …") as shown:
            while deadline is None or time.monotonic() < deadline:
                if servers.any_ended or months.failed:
                    months.failed = 1
                    break
                time.sleep(0.25)
                months.look()
                if not months.learned:
                    turn = time.monotonic() + MONTH
                elif time.monotonic() >= turn:
                    console.print(months.turn(), highlight=False)
                    turn = time.monotonic() + MONTH
                shown.update(months.now())
    except KeyboardInterrupt:
        pass
    except OSError:  # a server has gone
        months.failed = 1
    months.stop()


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


def _invitation(page: str, urls: dict[str, str], seconds: float | None) -> str:
    """Where to look, and how to ask as well."""
    row = (
        '{"age": 71, "days": 9, "earlier_stays": 3, "medicines": 11,\n'
        '   "pressure": 140, "haemoglobin": 11.5, "ward": "heart", "emergency": "yes"}'
    )
    return (
        f"\nThe two curves are at {page}/\n"
        f"The dashboard of {NAME} is at {urls[NAME]}/, that of {STATIC} at {urls[STATIC]}/\n\n"
        + CLINIC_CHANGES.format(name=NAME, static=STATIC)
        + f"\n\n{len(CLIENTS)} clients ask now: {', '.join(CLIENTS)}. Ask as well:\n\n"
        f"curl {urls[NAME]}/invocations -H 'Content-Type: application/json' \\\n"
        f"  -d '{{\"dataframe_records\": [\n   {row}]}}'\n\n"
        + ("Ctrl-C ends it.\n" if seconds is None else f"It ends in {seconds:g} seconds.\n")
    )


def _run(console: Console, *arguments: str, last: int | None = None) -> int:
    """Run a command, shown as one would type it; of what it prints all, or the last lines if it succeeds."""
    shown = [Path(word).name if os.sep in word else word for word in arguments]
    console.print(f"[bold]$ reticent {shlex.join(shown)}[/bold]", highlight=False)
    commands = App(name="reticent")
    commands.command(fit)
    commands.command(status)
    if last is None:
        return run(commands, arguments)
    with redirect_stdout(io.StringIO()) as printed:
        code = run(commands, arguments)
    lines = printed.getvalue().splitlines()
    print("\n".join(lines if code else lines[-last:]))
    return code


def _free_ports(count: int) -> list[int]:
    """Free ports, the first of them the usual one if it is free."""
    found: list[int] = []
    with ExitStack() as held:
        for port in (PORT, *[0] * count):
            trial = held.enter_context(socket.socket())
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                trial.bind((HOST, port))
                found.append(int(trial.getsockname()[1]))
    if len(found) < count:
        raise SystemExit("no port is free")
    return found[:count]


class _Servers:
    """`reticent serve` for both predictors, each in a process of its own, which end with this block."""

    def __init__(self, folder: Folder) -> None:
        ports = dict(zip(FITS, _free_ports(len(FITS)), strict=True))
        self.urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
        self._children: list[Child] = []
        try:
            for name, port in ports.items():
                self._children.append(Child("reticent.cli", "serve", name, "--port", str(port), folder=folder))
            for child, url in zip(self._children, self.urls.values(), strict=True):
                _wait_until_ready(child, url)
        except BaseException:
            self._end()
            raise

    @property
    def any_ended(self) -> bool:
        """Whether one of them has ended."""
        return any(one.process.poll() is not None for one in self._children)

    def __enter__(self) -> _Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for one in self._children:
            one.end()


def _wait_until_ready(child: Child, url: str) -> None:
    give_up = time.monotonic() + 60
    while child.process.poll() is None:
        try:
            with urlopen(f"{url}/v2/health/ready", timeout=5):
                return
        except (URLError, OSError):
            if time.monotonic() > give_up:
                raise SystemExit("the server did not start within a minute") from None
            time.sleep(0.05)
    raise SystemExit("the server did not start")
