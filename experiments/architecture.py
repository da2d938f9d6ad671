"""The way of a training row to a vote, and of a query to the answer log: from module to module, as traced."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.table import Table
from experiments.tracing import Walk
from reticent.cli import main
from reticent.data.schema import Schema
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http.batching import Batcher
from reticent.service.http.server import Binding, listening, make_server
from reticent.service.http.service import Service

VALUE = 0.123456789  # of a cell: encoding by the range [-1, 1] leaves it as it is
SCHEMA = """
target = "ill"
classes = ["no", "yes"]
columns = [{name = "a", range = [-1, 1]}, {name = "b", range = [-1, 1]}]
"""
ROWS = 500
BEFORE = Path(__file__).with_suffix(".json")  # the same, traced before the restructuring
TITLES = {"row": "A row: from its file to a teacher", "query": "A query: from its request to the answer log"}
ENDS = {"row": ("teachers.linear",), "query": ("teachers.linear_voters", "service.store.sqlite")}


def walks() -> dict[str, Walk]:
    """Fit a predictor by the command line and ask it over HTTP; the walk of one cell of a row, and of a query."""
    with tempfile.TemporaryDirectory() as folder, _home(Path(folder)):
        row = _row(Path(folder))
        return {"row": row, "query": _query(Path(folder))}


@contextlib.contextmanager
def _home(folder: Path) -> Iterator[None]:
    before = os.environ.get("RETICENT_HOME")
    os.environ["RETICENT_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("RETICENT_HOME")
        if before is not None:
            os.environ["RETICENT_HOME"] = before


def _row(folder: Path) -> Walk:
    rows = np.random.default_rng(0).uniform(-1, 1, (ROWS, 2))
    rows[7, 1] = VALUE
    lines = [f"{a!r},{b!r},{'yes' if a > 0 else 'no'}" for a, b in rows.tolist()]
    (folder / "patients.csv").write_text("\n".join(["a,b,ill", *lines]))
    (folder / "schema.toml").write_text(SCHEMA)
    command = ["fit", str(folder / "patients.csv"), "--schema", str(folder / "schema.toml"), "--name", "clinic"]
    options = ["--epsilon", "20", "--delta", "1e-5", "--learner", "linear", "--yes", "--quiet"]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), Walk(VALUE) as walk:
        warnings.simplefilter("ignore")
        if main([*command, *options]):
            raise RuntimeError("the predictor was not made")
    return walk


def _query(folder: Path) -> Walk:
    answering = AnsweringService(Home(folder / "clinic"), elsewhere=False)
    schema = Schema.from_toml(SCHEMA)
    with Walk(VALUE) as walk:  # before the threads of the server start
        server = make_server(Service("clinic", schema, answering, Batcher(answering)), Binding(port=0))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                thread.join(0.01)
            _ask(listening(server)[1])
        finally:
            server.should_exit = True
            thread.join()
    return walk


def _ask(port: int) -> None:
    """Ask one question, with a header that makes its answer be stored, as most clients send it: in one packet."""
    tensor = {"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [0.5, VALUE]}
    body = json.dumps({"inputs": [tensor]})
    head = [
        "POST /v2/models/clinic/infer HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json",
        f"Content-Length: {len(body)}", "Idempotency-Key: first",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join([*head, "", body]).encode())
        status = connection.makefile("rb").readline()
    if not status.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError("the question was not answered")


def tables() -> list[Table]:
    """The tables of the page on architecture."""
    found = walks()
    return [_summary(found), *(_steps(name, walk) for name, walk in found.items())]


def _summary(found: dict[str, Walk]) -> Table:
    before = json.loads(BEFORE.read_text(encoding="utf-8"))
    rows = []
    for name, walk in found.items():
        now = {
            "modules": len({module for edge in walk.edges for module in edge}),
            "hops": len(walk.hops(*ENDS[name])),
            "visits": len(walk.visits(*ENDS[name])),
        }
        rows.append((TITLES[name], *(f"{before[name][kind]} → {count}" for kind, count in now.items())))
    return Table(f"{before['version']} → now", ("walk", "modules", "hops", "visits to helpers"), tuple(rows))


def _steps(name: str, walk: Walk) -> Table:
    hops = walk.hops(*ENDS[name])
    numbers = {edge: str(number) for number, edge in enumerate(hops, start=1)}
    rows = tuple((numbers.get(edge, "visit"), f"`{edge[0]}`", f"`{edge[1]}`") for edge in walk.edges)
    return Table(TITLES[name], ("hop", "from", "to"), rows)
