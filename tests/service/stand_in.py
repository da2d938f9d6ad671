"""A schema and an answering service in memory: what the routes need, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import numpy as np
import uvicorn
from numpy.typing import NDArray
from uvicorn.server import ServerState

from reticent import BudgetExhausted, Guarantee
from reticent.service.http import server
from reticent.service.http.access import Keyring
from reticent.service.http.bodies import Limits
from reticent.service.http.routes import make_app
from reticent.service.http.server import Binding, Patience, listening, make_server
from reticent.service.http.service import Service
from reticent.service.requests import Answered, KeyReused, NothingStored, Request
from reticent.service.status import Status
from waiting import LIMIT, wait_until


@dataclass(frozen=True)
class Column:
    name: str
    kind: str = "number"
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    columns: tuple[Column, ...] = (Column("age"), Column("weight"))
    classes: tuple[Any, ...] = (0, 1)

    def encode(self, table: Mapping[str, Any], /) -> NDArray[np.float64]:
        made = []
        for column in self.columns:
            values = table[column.name]
            if column.kind == "category":
                values = [column.categories.index(one) if one in column.categories else np.nan for one in values]
            made.append(np.asarray(values, dtype=np.float64))
        return np.column_stack(made)


MIXED = Rules((Column("age"), Column("sex", "category", ("f", "m"))), ("no", "yes"))


@dataclass
class FakeAnswering:
    """Answers by whether the first column is above 0.5, and remembers what it was asked."""

    classes: Sequence[Any] = (0, 1)
    left: int = 1_000_000
    asked: list[Request] = field(default_factory=list)
    stored: dict[tuple[str, str], tuple[bytes, Answered]] = field(default_factory=dict)
    spent: int = 0
    closed: bool = False
    halted: str | None = None

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Answered | Exception:
        place = (request.client, request.idempotency_key or "")
        if request.idempotency_key is not None and place in self.stored:
            digest, answered = self.stored[place]
            if digest != request.digest:
                return KeyReused()
            return Answered(answered.labels, answered.phase, True)
        if request.only_stored:
            return NothingStored()
        if len(request.rows) > self.left - self.spent:
            return BudgetExhausted("no more")
        self.asked.append(request)
        self.spent += len(request.rows)
        labels = [self.classes[int(one > 0.5)] for one in request.rows[:, 0]]
        answered = Answered(labels, 1, False)
        if request.idempotency_key is not None:
            self.stored[place] = request.digest, answered
        return answered

    def status(self) -> Status:
        return Status(
            guarantee=Guarantee(epsilon=1, delta=1e-6, protects="rows and queries"),
            phase=1, answers_in_phase=self.left,
            answers_left_in_phase=self.left - self.spent, answers_left=None, answered=self.spent, rows=1000,
            teachers=100, rows_gathered=self.spent, rows_wanted=1000, client_cap=10, learning=False,
            drift="not tested", ledger_length=len(self.asked), ledger_head="0" * 64, last_time=None, halted=self.halted,
        )  # fmt: skip

    def clients(self) -> dict[str, int]:
        return {}

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


Done = TypeVar("Done")


class Batcher:
    def __init__(self, answering: Any) -> None:
        self.answering = answering
        self.tasks: set[asyncio.Task[None]] = set()

    def submit(self, request: Request, done: Callable[[Answered | Exception], None]) -> None:
        async def run() -> None:
            try:
                result: Answered | Exception = await self.ask(request)
            except Exception as error:
                result = error
            done(result)

        task = asyncio.get_running_loop().create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def ask(self, request: Request) -> Answered:
        (answered,) = self.answering.answer([request])
        if isinstance(answered, Exception):
            raise answered
        assert isinstance(answered, Answered)
        return answered

    async def run(self, task: Callable[[], Done], rows: int, client: str) -> Done:
        return task()

    async def close(self) -> None:
        pass


def make_service(
    rules: Rules | None = None,
    answering: FakeAnswering | None = None,
    *,
    keyring: Keyring | None = None,
    limits: Limits | None = None,
    dashboard: bool = False,
) -> Service:
    rules = rules or Rules()
    answering = answering or FakeAnswering(rules.classes)
    return Service("clinic", rules, answering, Batcher(answering), keyring=keyring, limits=limits, dashboard=dashboard)


def connect(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(make_app(service)), base_url="http://127.0.0.1")


@contextmanager
def running(service: Service, binding: Binding | None = None, patience: Patience | None = None) -> Iterator[int]:
    """A real server in a thread; its port."""
    made = make_server(service, binding or Binding(port=0), patience)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    wait_until(lambda: made.started or not thread.is_alive())
    assert thread.is_alive()
    try:
        yield listening(made)[1]
    finally:
        made.should_exit = True
        thread.join(LIMIT)
        assert not thread.is_alive()


class PutForward(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward: what it was told to do later is then due."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


T = TypeVar("T")


def run_with_clock(work: Callable[[Callable[[float], None]], Awaitable[T]]) -> T:
    """Run something that is given a way to let seconds pass, which takes no time."""
    with asyncio.Runner(loop_factory=PutForward) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, PutForward)

        def pass_(seconds: float) -> None:
            loop.ahead += seconds

        async def working() -> T:
            return await work(pass_)

        return runner.run(working())


class Wire(asyncio.Transport):
    """A connection in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed, self.paused = b"", False, False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def opened(service: Service) -> tuple[server._Connection, Wire]:
    """A connection as the server makes it, and the wire at its other end."""
    patience = Patience()
    config = uvicorn.Config(
        make_app(service),
        lifespan="off",
        log_config=None,
        log_level="warning",
        timeout_keep_alive=patience.idle_seconds,
    )
    config.load()
    connection: Any = server._patient(patience, service)(config, ServerState(), {})
    wire = Wire()
    connection.connection_made(wire)
    return connection, wire


async def until(holds: Callable[[], object]) -> None:
    """Let the event loop run until something holds."""
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.sleep(0)


async def some_rounds() -> None:
    """Let the event loop do what is due."""
    for _ in range(10):
        await asyncio.sleep(0)
