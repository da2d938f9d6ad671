"""Batches without a timer: whatever came while the last batch was being stored is the next one."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from reticent.exact import integer
from reticent.service.desk import Answered, Request

AT_ONCE = 8  # answers that are handed over in a round of the event loop
ROUNDS = 64  # of the event loop, at most, before a batch is cut
WAITING_ROWS, WAITING_NUMBERS = 1 << 18, 1 << 26  # that may wait: half a gigabyte at most
QUIET = 8  # rounds that bring nothing, before a batch is cut that is smaller than the last


class Overloaded(RuntimeError):
    """Too much is waiting: ask again later. Nothing was spent."""


class Closing(RuntimeError):
    """The service is about to stop: what was taken is answered, nothing more is taken. Nothing was spent."""


class Answering(Protocol):
    """What a batch is handed to: a `Desk`."""

    def answer(self, requests: Sequence[Request]) -> list[Answered | Exception]:
        """What each request gets."""

    @property
    def untidy(self) -> bool:
        """Whether there is something that can wait until the answers are out."""

    def tidy(self) -> None:
        """Do what can wait."""


class Waiting(NamedTuple):
    """A request that waits: `done` is called once with what it gets, unless it is `gone` before its batch is cut."""

    request: Request
    done: Callable[[Answered | Exception], None]
    gone: Callable[[], bool]


class Batcher:
    """Hands requests to the desk, many at a time, from one thread; to be used within one event loop.

    A request that comes while nothing is being stored starts at once. Those that come meanwhile wait, and make up the
    next batch together: the busier it is, the larger the batches. A batch is cut when a round of the event loop has
    brought nothing new, or a few rounds if it would be smaller than the last: whoever was just answered and asks again,
    as many do, comes with it and not after it. Neither
    a client that reads slowly nor one that has gone away holds up others, since the thread hands results to the loop
    and goes on. Batches are cut by arrival and numbers of rows, never by what is in them.

    Clients take turns, so that one who asks much does not hold up the others, and none may fill more than half of the
    room for waiting, once others could want it.

    Parameters
    ----------
    desk : what answers.
    max_rows : the most rows of a batch; a request that has more is a batch of its own.
    waiting, waiting_rows : how many requests, and rows, may wait; beyond them `ask` raises `Overloaded`.
    """

    def __init__(
        self, desk: Answering, *, max_rows: int = 1 << 14, waiting: int = 4096, waiting_rows: int = WAITING_ROWS
    ) -> None:
        self.max_rows = integer(max_rows, "max_rows", least=1)
        self.waiting = integer(waiting, "waiting", least=1)
        self.waiting_rows = integer(waiting_rows, "waiting_rows", least=1)
        self._desk = desk
        self._queues: dict[str, _Queue] = {}  # of the clients that wait, in the order of their turns
        self._count, self._rows = 0, 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reticent-desk")
        self._running: asyncio.Task[None] | None = None
        self._closing = False
        self._last = 0  # requests of the last batch

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return self._count

    async def ask(self, request: Request) -> Answered:
        """The answer, once it is durable; or whatever error the desk has for this request.

        Cancelled while it waits, a request is forgotten; later, it is answered and counted, and nobody sees it.
        """
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self.submit(request, functools.partial(_settle, future), future.cancelled)
        return await future

    def submit(
        self, request: Request, done: Callable[[Answered | Exception], None], gone: Callable[[], bool] = bool
    ) -> None:
        """As `ask`, but within the event loop `done` is called with the answer or the error, and must not raise."""
        if self._closing:
            raise Closing("the service is stopping: ask again when it is back")
        rows = len(request.rows)
        mine = self._queues.get(request.client)
        full = self._count >= self.waiting or (self._count and self._rows + rows > self.waiting_rows)
        if full or (mine is not None and mine.has_its_half(rows, self)):
            raise Overloaded(f"{self._count} requests are waiting: ask again later")
        if mine is None:
            mine = self._queues[request.client] = _Queue()
        mine.waiting.append(Waiting(request, done, gone))
        mine.rows += rows
        self._rows += rows
        self._count += 1
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Take nothing more, and return when all that was taken is answered. The desk stays open."""
        self._closing = True
        if self._running is not None:
            await asyncio.shield(self._running)
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := await self._gathered():
                requests = [one.request for one in batch]
                try:
                    results = await loop.run_in_executor(self._thread, self._desk.answer, requests)
                except Exception as error:
                    results = [error] * len(batch)
                for place, (one, result) in enumerate(zip(batch, results, strict=True), start=1):
                    one.done(result)
                    if place % AT_ONCE == 0:  # so that they leave while the others are made
                        await asyncio.sleep(0)
                if self._desk.untidy:
                    await loop.run_in_executor(self._thread, self._desk.tidy)
        finally:
            self._running = None

    async def _gathered(self) -> list[Waiting]:
        """The next batch, once rounds of the event loop bring nothing new; nothing is waited for by time."""
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
        """The next batch: of each client in turn the request that came first, as long as there is room."""
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


class _Queue:
    """What a client waits for."""

    __slots__ = ("rows", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.rows = 0

    def has_its_half(self, rows: int, batcher: Batcher) -> bool:
        """Whether so many rows more would be more than half of what may wait."""
        return len(self.waiting) >= batcher.waiting // 2 or self.rows + rows > batcher.waiting_rows // 2


def _settle(future: asyncio.Future[Answered], result: Answered | Exception) -> None:
    if future.done():  # cancelled: the client has gone
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
