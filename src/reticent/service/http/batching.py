"""Batches without a timer: what arrives while a batch is being stored makes up the next one."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

from reticent.exact import integer
from reticent.service.requests import Answered, Request

Done = TypeVar("Done")

AT_ONCE = 8  # answers that are handed over in one round of the event loop
ROUNDS = 64  # of the event loop, at most, before a batch starts
WAITING_ROWS, WAITING_NUMBERS = 1 << 18, 1 << 26  # that may wait: at most half a gigabyte
QUIET = 8  # rounds without a new request before a batch starts that is smaller than the last one


class Overloaded(RuntimeError):
    """Too many requests are waiting: ask again later. Nothing was spent."""


class Stopping(RuntimeError):
    """The service is about to stop and accepts no more requests. Nothing was spent."""


class Answering(Protocol):
    """What answers a batch: an `AnsweringService`."""

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        """What each request receives."""

    @property
    def needs_maintenance(self) -> bool:
        """Whether there is work that can wait until the answers are handed out."""

    def wait_until_learned(self) -> None:
        """Wait for what is being learned. Any thread may."""

    def maintain(self) -> None:
        """Do that work."""


class Waiting(NamedTuple):
    """A waiting request: `done` is called once with what it receives, unless it is `gone` when its batch starts."""

    request: Request
    done: Callable[[Answered | Exception], None]
    gone: Callable[[], bool]


class Batcher:
    """Hands requests to the answering service, many at a time, from one thread. Use it within one event loop.

    A request that arrives while nothing is being stored starts at once. Those that arrive meanwhile wait and make up
    the next batch: the higher the load, the larger the batches. A batch starts when a round of the event loop has
    brought no new request, or a few rounds if it would be smaller than the last one, so that clients who were just
    answered and ask again take part in it. Neither a client that reads slowly nor one that has disconnected delays
    others, since the thread hands results to the loop and continues. Batches depend on arrival times and numbers of
    rows, never on the content of rows.

    Clients take turns, so that one who asks much does not delay the others. No client may fill more than half of the
    waiting capacity, so that there is always some left for others.

    Parameters
    ----------
    answering : Answering
        What answers.
    max_rows : int, default 16384
        The most rows of a batch. A request with more rows is a batch of its own.
    waiting, waiting_rows : int, default 4096 and 262144
        How many requests and rows may wait. Beyond that `ask` raises `Overloaded`.
    """

    def __init__(
        self, answering: Answering, *, max_rows: int = 1 << 14, waiting: int = 4096, waiting_rows: int = WAITING_ROWS
    ) -> None:
        self.max_rows = integer(max_rows, "max_rows", least=1)
        self.waiting = integer(waiting, "waiting", least=1)
        self.waiting_rows = integer(waiting_rows, "waiting_rows", least=1)
        self._answering = answering
        self._queues: dict[str, _Queue] = {}  # of the waiting clients, in the order of their turns
        self._count, self._rows = 0, 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reticent-answering")
        self._running: asyncio.Task[None] | None = None
        self._closing = False
        self._last = 0  # requests of the last batch
        self._tasks: dict[str, _Tasks] = {}  # that wait beside the requests, by client
        self._turn = asyncio.Lock()  # of the client whose task is done: one at a time, so that answers do not wait
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return self._count

    async def ask(self, request: Request) -> Answered:
        """The answer, once it is durable; or the error of this request.

        A request that is cancelled while it waits costs nothing. If it is cancelled later, it is answered and counted.

        Parameters
        ----------
        request : Request
            The request.
        """
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self.submit(request, functools.partial(_set_result, future), future.cancelled)
        return await future

    def submit(
        self, request: Request, done: Callable[[Answered | Exception], None], gone: Callable[[], bool] = bool
    ) -> None:
        """As `ask`, but call `done` in the event loop with the answer or the error. `done` must not raise.

        Parameters
        ----------
        request : Request
            The request.
        done : callable
            Called once with the answer or the error.
        gone : callable, default bool
            Whether nobody waits for the answer any more.
        """
        self._check_open()
        rows = len(request.rows)
        mine = self._queues.get(request.client)
        full = self._count >= self.waiting or (self._count and self._rows + rows > self.waiting_rows)
        if full or (mine is not None and mine.would_fill_half(rows, self)):
            raise Overloaded(f"{self._count} requests are waiting: ask again later")
        if mine is None:
            mine = self._queues[request.client] = _Queue()
        mine.waiting.append(Waiting(request, done, gone))
        mine.rows += rows
        self._rows += rows
        self._count += 1
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def run(self, task: Callable[[], Done], rows: int, client: str) -> Done:
        """Do something else in the thread that answers, such as taking labels: between two batches.

        Clients take turns here as well: one task at a time is handed to the thread, so a batch of answers waits for one
        at most, whoever sends many. What a task makes necessary is done after it, while nothing else is to be done:
        labelled rows may be enough for many phases, each of which takes a while to learn.

        Parameters
        ----------
        task : callable
            What to do.
        rows : int
            How many rows it holds while it waits.
        client : str
            Who wants it.
        """
        self._check_open()
        count, held = (sum(getattr(one, what) for one in self._tasks.values()) for what in ("count", "rows"))
        mine = self._tasks.get(client) or _Tasks()
        full = count >= self.waiting or (count and held + rows > self.waiting_rows)
        half = mine.count and (mine.count >= self.waiting // 2 or mine.rows + rows > self.waiting_rows // 2)
        if full or half:
            raise Overloaded(f"{count} requests are waiting: ask again later")
        self._tasks[client] = mine
        mine.count, mine.rows = mine.count + 1, mine.rows + rows
        loop = asyncio.get_running_loop()
        try:
            async with mine.turn, self._turn:
                self._check_open()
                return await loop.run_in_executor(self._thread, task)
        finally:
            mine.count, mine.rows = mine.count - 1, mine.rows - rows
            if not mine.count:
                del self._tasks[client]
            if self._upkeep is None:
                self._upkeep = loop.create_task(self._keep_up())

    async def _keep_up(self) -> None:
        """Do what nobody waits for, a step at a time, and let others go first, also while a phase is learned."""
        loop = asyncio.get_running_loop()
        try:
            while self._answering.needs_maintenance and not (self._closing or self._count):
                await loop.run_in_executor(None, self._answering.wait_until_learned)
                await loop.run_in_executor(self._thread, self._answering.maintain)
        finally:
            self._upkeep = None

    def _check_open(self) -> None:
        if self._closing:
            raise Stopping("the service is stopping: ask again when it is back")

    async def close(self) -> None:
        """Accept nothing more, and return when all accepted requests are answered. The answering service stays open."""
        self._closing = True
        for task in (self._running, self._upkeep):
            if task is not None:
                await asyncio.shield(task)
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := await self._gathered():
                requests = [one.request for one in batch]
                try:
                    results = await loop.run_in_executor(self._thread, self._answering.answer, requests)
                except Exception as error:
                    results = [error] * len(batch)
                for number, (one, result) in enumerate(zip(batch, results, strict=True), start=1):
                    one.done(result)
                    if number % AT_ONCE == 0:  # so that they are sent while the others are being written
                        await asyncio.sleep(0)
                if self._answering.needs_maintenance:
                    await loop.run_in_executor(self._thread, self._answering.maintain)
        finally:
            self._running = None

    async def _gathered(self) -> list[Waiting]:
        """The next batch, when rounds of the event loop bring nothing new. There is no timer."""
        quiet = 0
        for _ in range(ROUNDS):
            before = self._count
            await asyncio.sleep(0)
            quiet = 0 if self._count > before else quiet + 1
            enough = 1 if self._count >= self._last else QUIET
            if quiet >= enough or self._rows >= self.max_rows:
                break
        batch = self._next()
        self._last = len(batch)
        return batch

    def _next(self) -> list[Waiting]:
        """The next batch: the oldest request of each client in turn, up to `max_rows`."""
        batch: list[Waiting] = []
        rows = 0
        while self._queues:
            client = next(iter(self._queues))
            mine = self._queues[client]
            count = len(mine.waiting[0].request.rows)
            if batch and rows + count > self.max_rows:
                break
            one = mine.waiting.popleft()
            mine.rows -= count
            self._rows -= count
            self._count -= 1
            del self._queues[client]
            if mine.waiting:
                self._queues[client] = mine  # after the others
            if not one.gone():
                batch.append(one)
                rows += count
        return batch


class _Tasks:
    """What a client wants beside answers. `turn` lets one of them at a time wait among those of other clients."""

    __slots__ = ("count", "rows", "turn")

    def __init__(self) -> None:
        self.count, self.rows = 0, 0
        self.turn = asyncio.Lock()


class _Queue:
    """The waiting requests of a client."""

    __slots__ = ("rows", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.rows = 0

    def would_fill_half(self, rows: int, batcher: Batcher) -> bool:
        """Whether this many more rows would exceed half of what may wait."""
        return len(self.waiting) >= batcher.waiting // 2 or self.rows + rows > batcher.waiting_rows // 2


def _set_result(future: asyncio.Future[Answered], result: Answered | Exception) -> None:
    if future.done():  # cancelled: the client has disconnected
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
