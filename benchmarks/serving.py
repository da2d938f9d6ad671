"""Serving: private, recorded answers against FastAPI + scikit-learn without any record; ratios of one run.

    python benchmarks/serving.py [--seconds 5] [--long 60]

Each server runs in a process of its own, and so does the load, which is the same for both. Targets: with one row a
request and 32 connections, at least 5 times the requests a second of FastAPI, with a p99 of at most 4 times FastAPI's
p50; with 10,000 rows a request, at least 100,000 answers a second; 256 connections for a minute without an error or
growing memory; and every answer that was delivered is in the ledger, which is whole. Ends with 1 if one is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reticent.service.processes import Child, Folder, ending_in_good_order

if TYPE_CHECKING:
    from reticent.data.schema import Schema
    from reticent.service.http.service import Service
    from reticent.service.store.protocol import Verified

COLUMNS, TEACHERS, ROWS = 20, 1000, 200_000
GROWTH = 1.1  # of memory that counts as flat
INFER = "/v2/models/bench/infer"


def schema() -> Schema:
    from reticent.data.schema import Column, Schema

    columns = tuple(Column(f"x{one}", "number", range=(-5, 5)) for one in range(COLUMNS))
    return Schema(columns=columns, target="y", classes=(0, 1))


# ── the two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


def data() -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    return X, (X @ rng.standard_normal(COLUMNS) > 0).astype(np.int64)


def make_service(folder: Path) -> Service:
    from reticent import EverlastingPredictor
    from reticent.service.answering import AnsweringService
    from reticent.service.home import Home
    from reticent.service.http.batching import Batcher
    from reticent.service.http.service import Service

    model = EverlastingPredictor(
        None, epsilon=8, delta=1e-6, classes=(0, 1), rows_per_teacher=ROWS // TEACHERS, growth=100, client_share=1,
        most_noise=1e9,
    )  # fmt: skip
    X, y = data()
    rules = schema()
    encoded = rules.encode_numbers(X.copy())
    answering = AnsweringService(Home.create(folder / "bench", model.fit(encoded, y), rules.to_toml()))
    status = answering.status()
    print("teachers", status.teachers, "answers in phase", status.answers_in_phase, file=sys.stderr)
    return Service("bench", rules, answering, Batcher(answering), dashboard=False)


def serve_ours(folder: Path, port: int) -> None:
    from reticent.service.http.server import Binding, make_server

    async def run() -> None:
        await make_server(make_service(folder), Binding(port=port)).serve()

    import uvloop

    uvloop.run(run())


def serve_theirs(port: int) -> None:
    import uvicorn
    from fastapi import FastAPI
    from sklearn.linear_model import LogisticRegression

    X, y = data()
    model = LogisticRegression().fit(X[:10_000], y[:10_000])
    app = FastAPI()

    @app.post("/predict")
    def predict(question: dict[str, list[list[float]]]) -> dict[str, list[int]]:
        return {"labels": model.predict(np.array(question["rows"])).tolist()}

    uvicorn.run(app, port=port, log_level="warning", access_log=False)


# ── the load ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Load:
    """What came of it."""

    seconds: float = 0.0
    answers: int = 0
    errors: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.times, share)) * 1e3


class Caller:
    """One connection that asks again as soon as it has its answer; parses no more than it must."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.request, self.rest, self.buffer, self.needed = request, memoryview(b""), b"", -1

    def ask(self) -> None:
        self.started = time.perf_counter()
        self.rest = memoryview(self.request)
        self.send()

    def send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.rest = self.rest[self.socket.send(self.rest) :]

    def answered(self) -> bool | None:
        """Whether the answer that came is a good one; None if it is not there yet."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError
        self.buffer = data = self.buffer + data if self.buffer else data
        if self.needed < 0:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return None
            # The name of another header ends alike.
            found = data.lower().find(b"\r\ncontent-length:", 0, end + 2) + 17
            self.needed = end + 4 + int(data[found : data.find(b"\r", found)])
        if len(data) < self.needed:
            return None
        good = data.startswith(b"HTTP/1.1 200") and len(data) == self.needed
        self.buffer, self.needed = b"", -1
        return good


def load_here(port: int, request: bytes, connections: int, seconds: float, rows: int) -> Load:
    load = Load()
    ready = select.epoll()
    callers = {one.socket.fileno(): one for one in (Caller(port, request) for _ in range(connections))}
    started = time.perf_counter()
    until = started + seconds
    for number, caller in callers.items():
        caller.ask()
        ready.register(number, select.EPOLLIN | (select.EPOLLOUT if caller.rest else 0))
    while callers:
        for number, event in ready.poll():
            caller = callers[number]
            try:
                if event & select.EPOLLOUT:
                    caller.send()
                good = caller.answered() if event & ~select.EPOLLOUT else None
            except ConnectionError:
                load.errors += 1
                ready.unregister(number)
                callers.pop(number).socket.close()
                continue
            if good is not None:
                now = time.perf_counter()
                if good:
                    load.times.append(now - caller.started)
                    load.answers += rows
                else:
                    load.errors += 1
                if now >= until:
                    ready.unregister(number)
                    callers.pop(number).socket.close()
                    continue
                caller.ask()
            if caller.rest or event & select.EPOLLOUT:
                ready.modify(number, select.EPOLLIN | (select.EPOLLOUT if caller.rest else 0))
    load.seconds = time.perf_counter() - started
    return load


def put_under_load(port: int, request: bytes, connections: int, seconds: float, rows: int = 1) -> Load:
    """The load, from a process of its own."""
    numbers = [str(one) for one in (port, connections, seconds, rows)]
    found = subprocess.run([sys.executable, __file__, "--load", *numbers], input=request, stdout=-1, check=True)
    return Load(**json.loads(found.stdout))


def post(path: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def one_row() -> bytes:
    tensor = {"name": "rows", "shape": [1, COLUMNS], "datatype": "FP64", "data": [0.1] * COLUMNS}
    return post(INFER, json.dumps({"inputs": [tensor]}).encode())


def many_rows(rows: int) -> bytes:
    packed = np.random.default_rng(1).standard_normal((rows, COLUMNS)).tobytes()
    size = {"binary_data_size": len(packed)}
    tensor = {"name": "rows", "shape": [rows, COLUMNS], "datatype": "FP64", "parameters": size}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return post(INFER, head + packed, f"Inference-Header-Content-Length: {len(head)}\r\n")


@contextlib.contextmanager
def server(which: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [__file__, "--serve", which, "--folder", str(folder), "--port", str(port)]
    with Child(*command, environment=environment) as child:
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert child.process.poll() is None
            time.sleep(0.1)
        yield port, child.process.pid


def memory(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def verify(store: Path) -> Verified:
    from reticent.service.store.verification import verify

    return verify(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--long", type=float, default=60)
    parser.add_argument("--serve", choices=["ours", "theirs"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--load", nargs=4, type=float)
    options = parser.parse_args()
    if options.serve == "ours":
        serve_ours(options.folder, options.port)
    elif options.serve == "theirs":
        serve_theirs(options.port)
    elif options.load:
        port, connections, seconds, rows = options.load
        request = sys.stdin.buffer.read()
        json.dump(load_here(int(port), request, int(connections), seconds, int(rows)).__dict__, sys.stdout)
    else:
        sys.exit(measure(options.seconds, options.long, options.folder))


def measure(seconds: float, long: float, where: Path | None) -> int:
    with ending_in_good_order(), Folder("reticent-bench-", where) as folder:
        question = post("/predict", json.dumps({"rows": [[0.1] * COLUMNS]}).encode())
        with server("theirs", folder) as (port, _):
            put_under_load(port, question, 32, 1)
            theirs = put_under_load(port, question, 32, seconds)
        with server("ours", folder) as (port, process):
            warm = put_under_load(port, one_row(), 32, 1)
            ours = put_under_load(port, one_row(), 32, seconds)
            big = put_under_load(port, many_rows(10_000), 4, seconds, 10_000)
            put = [put_under_load(port, one_row(), 256, long / 6)]  # buffers and tables have their size after it
            before = memory(process)
            put.append(put_under_load(port, one_row(), 256, long * 5 / 6))
            after = memory(process)
        delivered = sum(one.answers for one in (warm, ours, big, *put))
        recorded = sum(verify(folder / "bench" / "store.sqlite").counted.values())
    print("one row a request, 32 connections     requests/s   p50 ms   p99 ms   errors")
    for name, load in (("FastAPI + scikit-learn, no record", theirs), ("reticent, recorded", ours)):
        times = f"{load.quantile(0.5):8.2f} {load.quantile(0.99):8.2f} {load.errors:8d}"
        print(f"{name:36s} {load.rate:12.0f} {times}")
    print(f"memory at 256 connections: {before:.0f}, then {after:.0f} MB; ", end="")
    print(", ".join(f"{one.rate:.0f}" for one in put), "requests/s")
    errors = sum(one.errors for one in (warm, ours, big, *put))
    missed = 0
    for what, value, least, most in (
        ("requests/s, ours to theirs", ours.rate / theirs.rate, 5, None),
        ("our p99 to their p50", ours.quantile(0.99) / theirs.quantile(0.5), None, 4),
        ("answers/s at 10,000 rows a request", big.answers / big.seconds, 100_000, None),
        ("errors", errors, None, 0),
        ("growth of memory", after / before, None, GROWTH),
        ("answers recorded less delivered", recorded - delivered, 0, 0),
    ):
        good = (least is None or value >= least) and (most is None or value <= most)
        missed += not good
        target = " and ".join([f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None))
        print(f"{what:36s} {value:12.2f}   target {target}: {'met' if good else 'MISSED'}")
    return int(missed > 0)


if __name__ == "__main__":
    main()
