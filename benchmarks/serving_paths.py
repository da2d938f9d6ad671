"""What the fast path of the server is worth: the same service behind several servers, requests/s in one run.

    python benchmarks/serving_paths.py [--seconds 4] [--rounds 5] [--connections 32]

- *fast path*: `reticent serve` as it is. Small inferences go from the parser to the service without an ASGI task.
- *no fast path*: the same server with all requests on the ASGI path.
- *uvicorn*: plain uvicorn with uvloop and httptools, and the same ASGI app; no deadlines or limits on connections.
- *granian, ASGI* and *granian, RSGI*: the same app, and a handler that calls the service as the fast path does. They
  run only if granian is installed, which no extra of reticent brings.

Each server is a process of its own with one worker. Servers take turns in every round, so that whatever else the
machine does slows all alike; the table shows medians. The CPU time of a request, of all processes and threads of its
server, hardly depends on what else runs. Exit code 1 if the fast path is below 1.5 × the ASGI path.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from serving import INFER, make_service, one_row, put_under_load

from reticent.service.processes import Child, Folder, ending_in_good_order

WORTH = 1.5
FOLDER = "RETICENT_BENCH_FOLDER"
OURS = ("fast path", "no fast path", "uvicorn")
GRANIAN = ("granian, ASGI", "granian, RSGI")


# ── the servers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(which: str, port: int) -> None:
    if which in GRANIAN:
        serve_granian(which, port)
        return
    import uvicorn
    import uvloop

    from reticent.service.http import server
    from reticent.service.http.routes import make_app

    async def run() -> None:
        service = make_service(Path(os.environ[FOLDER]))
        if which == "uvicorn":
            config = uvicorn.Config(
                make_app(service), port=port, http="httptools", ws="none", log_level="warning", access_log=False,
                server_header=False, date_header=False,
            )  # fmt: skip
            await uvicorn.Server(config).serve()
            return
        if which == "no fast path":
            server.QUICK = -1  # no body is small enough
        await server.make_server(service, server.Binding(port=port)).serve()

    uvloop.run(run())


def serve_granian(which: str, port: int) -> None:
    import granian  # in no extra

    interface = which.rpartition(" ")[2].lower()
    granian.Granian(
        f"serving_paths:{interface}", factory=True, interface=interface, address="127.0.0.1", port=port, workers=1,
        loop="uvloop", log_access=False, log_level="warning", websockets=False,
    ).serve()  # fmt: skip


def asgi() -> Any:
    from reticent.service.http.routes import make_app

    return make_app(make_service(Path(os.environ[FOLDER])))


def rsgi() -> Any:
    service = make_service(Path(os.environ[FOLDER]))

    async def handle(scope: Any, protocol: Any) -> None:
        headers = {name.encode(): value.encode() for name, value in scope.headers.items()}
        body = await protocol()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        service.quick(INFER, headers, body, answer.set_result)
        head, _, content = (await answer).partition(b"\r\n\r\n")
        protocol.response_bytes(*parsed(head), content)

    return handle


@functools.lru_cache(maxsize=256)
def parsed(head: bytes) -> tuple[int, list[tuple[str, str]]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split()[1]), [(name, value) for name, value in pairs if name.lower() != "content-length"]


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def started(which: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A server that answers: its port and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    here = str(Path(__file__).parent)
    environment = {
        **os.environ,
        FOLDER: str(folder / which.replace(", ", "-").replace(" ", "-")),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
    }
    Path(environment[FOLDER]).mkdir()
    with Child(__file__, "--serve", which, "--port", str(port), environment=environment) as child:
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert child.process.poll() is None
            time.sleep(0.1)
        else:
            raise TimeoutError(f"{which} does not listen")
        yield port, child.process.pid


def cpu_seconds(process: int) -> float:
    """CPU time of a process and of those that it started."""
    fields = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            values = stat.read_text().rpartition(")")[2].split()
            fields[int(stat.parent.name)] = (int(values[1]), int(values[11]) + int(values[12]))
    family = {process}
    while more := {one for one, (parent, _) in fields.items() if parent in family} - family:
        family |= more
    return sum(fields[one][1] for one in family if one in fields) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float, rounds: int, connections: int) -> int:
    servers = [*OURS, *(GRANIAN if find_spec("granian") else ())]
    rates: dict[str, list[float]] = {which: [] for which in servers}
    costs: dict[str, list[float]] = {which: [] for which in servers}
    errors = dict.fromkeys(servers, 0)
    with ending_in_good_order(), Folder("reticent-paths-", None) as folder, ExitStack() as stack:
        places = {which: stack.enter_context(started(which, folder)) for which in servers}
        for which in servers:
            put_under_load(places[which][0], one_row(), connections, 1)
        for number in range(rounds):
            for which in servers if number % 2 else servers[::-1]:
                port, process = places[which]
                before = cpu_seconds(process)
                load = put_under_load(port, one_row(), connections, seconds)
                rates[which].append(load.rate)
                costs[which].append((cpu_seconds(process) - before) / len(load.times))
                errors[which] += load.errors
    cpu = {which: statistics.median(found) for which, found in costs.items()}
    medians = {which: statistics.median(found) for which, found in rates.items()}
    print(f"one row per request, {connections} connections: medians of {rounds} rounds of {seconds:g} s")
    print("server           requests/s  × ASGI path  least … most   CPU µs/request  × less  errors")
    for which, rate in medians.items():
        least, most = min(rates[which]), max(rates[which])
        ratio = rate / medians["no fast path"]
        less = cpu["no fast path"] / cpu[which]
        print(
            f"{which:15s} {rate:11.0f} {ratio:12.2f}  {least:5.0f} … {most:5.0f} {1e6 * cpu[which]:15.0f} {less:7.2f} "
            f"{errors[which]:7d}"
        )
    worth = medians["fast path"] / medians["no fast path"]
    print(f"fast path against plain uvicorn: {medians['fast path'] / medians['uvicorn']:.2f}")
    good = worth >= WORTH and not any(errors.values())
    print(f"fast path against the ASGI path: {worth:.2f}, target at least {WORTH}: {'met' if good else 'MISSED'}")
    return int(not good)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--serve", choices=[*OURS, *GRANIAN])
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.serve is None:
        return measure(options.seconds, options.rounds, options.connections)
    serve(options.serve, options.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
