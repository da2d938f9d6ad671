"""Serving: private, recorded answers against FastAPI + scikit-learn without any record; ratios of one run.

    python benchmarks/serving.py [--seconds 5] [--long 60]

Each server runs in a process of its own, and this process loads both in turn. Targets: with one row a request and 32
connections, at least 5 times the requests a second of FastAPI, with a p99 of at most 4 times FastAPI's p50; with 10,000
rows a request, at least 100,000 answers a second; 256 connections for a minute without an error or growing memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

COLUMNS, TEACHERS, ROWS = 20, 1000, 200_000
INFER = "/v2/models/bench/infer"


@dataclass(frozen=True)
class Column:
    name: str
    kind: str = "number"


class Rules:
    """A schema of plain numbers."""

    columns = tuple(Column(f"x{one}") for one in range(COLUMNS))
    classes = (0, 1)

    def encode(self, table: object, /) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        assert isinstance(table, dict)
        return np.column_stack([np.asarray(table[column.name], dtype=np.float64) for column in self.columns])


def schema() -> object:
    from reticent.service.schema import Column as Declared
    from reticent.service.schema import Schema

    columns = tuple(Declared(f"x{one}", "number", range=(-5, 5)) for one in range(COLUMNS))
    return Schema(columns=columns, target="y", classes=(0, 1))


# ── the two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


def data() -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    return X, (X @ rng.standard_normal(COLUMNS) > 0).astype(np.int64)


def serve_ours(folder: Path, port: int) -> None:
    from reticent import EverlastingPredictor
    from reticent.service.app import Service
    from reticent.service.batching import Batcher
    from reticent.service.desk import Desk
    from reticent.service.home import Home
    from reticent.service.server import Binding, make_server

    model = EverlastingPredictor(
        None, epsilon=8, delta=1e-6, classes=(0, 1), rows_per_teacher=ROWS // TEACHERS, growth=100, client_share=1,
        most_noise=1e9,
    )  # fmt: skip
    X, y = data()
    desk = Desk(Home.create(folder / "bench", model.fit(X, y), 'name = "bench"\n'))
    print("teachers", desk.status().teachers, "answers in phase", desk.status().answers_in_phase, file=sys.stderr)

    async def run() -> None:
        service = Service("bench", Rules(), desk, Batcher(desk), dashboard=False)
        await make_server(service, Binding(port=port)).serve()

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


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer; parses no more than it must."""

    def __init__(self, request: bytes, load: Load, until: float, rows: int, done: asyncio.Future[None]) -> None:
        self.request, self.load, self.until, self.rows, self.done = request, load, until, rows, done
        self.buffer, self.needed = bytearray(), -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.ask()

    def ask(self) -> None:
        self.started = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.needed < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.buffer[:end]).lower()
            self.needed = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(self.buffer) < self.needed:
            return
        now = time.perf_counter()
        if self.buffer.startswith(b"HTTP/1.1 200"):
            self.load.times.append(now - self.started)
            self.load.answers += self.rows
        else:
            self.load.errors += 1
        self.buffer.clear()
        self.needed = -1
        if now < self.until:
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if time.perf_counter() < self.until:
            self.load.errors += 1
        if not self.done.done():
            self.done.set_result(None)


def put_under_load(port: int, request: bytes, connections: int, seconds: float, rows: int = 1) -> Load:
    load = Load()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        until = time.perf_counter() + seconds
        waits = []
        for _ in range(connections):
            done: asyncio.Future[None] = loop.create_future()
            caller = partial(Caller, request, load, until, rows, done)
            await loop.create_connection(caller, "127.0.0.1", port)
            waits.append(done)
        await asyncio.gather(*waits)

    import uvloop

    started = time.perf_counter()
    uvloop.run(run())
    load.seconds = time.perf_counter() - started
    return load


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
    command = [sys.executable, __file__, "--serve", which, "--folder", str(folder), "--port", str(port)]
    process = subprocess.Popen(command, env=environment)
    try:
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


def memory(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--long", type=float, default=60)
    parser.add_argument("--serve", choices=["ours", "theirs"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.serve == "ours":
        return serve_ours(options.folder, options.port)
    if options.serve == "theirs":
        return serve_theirs(options.port)

    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        body = json.dumps({"rows": [[0.1] * COLUMNS]}).encode()
        with server("theirs", folder) as (port, _):
            put_under_load(port, post("/predict", body), 32, 1)
            theirs = put_under_load(port, post("/predict", body), 32, options.seconds)
        with server("ours", folder) as (port, process):
            put_under_load(port, one_row(), 32, 1)
            ours = put_under_load(port, one_row(), 32, options.seconds)
            print("one row a request, 32 connections     requests/s   p50 ms   p99 ms   errors")
            for name, load in (("FastAPI + scikit-learn, no record", theirs), ("reticent, recorded", ours)):
                times = f"{load.quantile(0.5):8.2f} {load.quantile(0.99):8.2f} {load.errors:8d}"
                print(f"{name:36s} {load.rate:12.0f} {times}")
            print(f"ratio of requests/s: {ours.rate / theirs.rate:.2f} (target 5)")
            print(f"our p99 to their p50: {ours.quantile(0.99) / theirs.quantile(0.5):.2f} (target at most 4)")
            big = put_under_load(port, many_rows(10_000), 4, options.seconds, 10_000)
            rate = big.answers / big.seconds
            print(f"10,000 rows a request: {rate:.0f} answers/s, {big.errors} errors (target 100,000)")
            before = memory(process)
            half = put_under_load(port, one_row(), 256, options.long / 2)
            middle = memory(process)
            rest = put_under_load(port, one_row(), 256, options.long / 2)
            after = memory(process)
            print(
                f"256 connections for {options.long:.0f} s: {half.errors + rest.errors} errors, "
                f"{half.rate:.0f} then {rest.rate:.0f} requests/s, memory {before:.0f}, {middle:.0f}, {after:.0f} MB"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
