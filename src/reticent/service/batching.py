"""Batches without a timer: whatever came while the last batch was being stored is the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from reticent.exact import integer
from reticent.service.desk import Answered, Request


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


class Batcher:
    """Hands requests to the desk, many at a time, from one thread; to be used within one event loop.

    A request that comes while nothing is being stored starts at once. Those that come meanwhile wait, and make up the
    next batch together: the busier it is, the larger the batches. Neither a client that reads slowly nor one that has
    gone away holds up others, since the thread hands results to the loop and goes on. Batches are cut by arrival and
    numbers of rows, never by what is in them.

    Parameters
    ----------
    desk : what answers.
    max_rows : the most rows of a batch; a request that has more is a batch of its own.
    waiting, waiting_rows : how many requests, and rows, may wait; beyond them `ask` raises `Overloaded`.
    """

    def __init__(
        self, desk: Answering, *, max_rows: int = 1 << 14, waiting: int = 4096, waiting_rows: int = 1 << 18
    ) -> None:
        self.max_rows = integer(max_rows, "max_rows", least=1)
        self.waiting = integer(waiting, "waiting", least=1)
        self.waiting_rows = integer(waiting_rows, "waiting_rows", least=1)
        self._desk = desk
        self._queue: deque[tuple[Request, asyncio.Future[Answered]]] = deque()
        self._rows = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reticent-desk")
        self._running: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    async def ask(self, request: Request) -> Answered:
        """The answer, once it is durable; or whatever error the desk has for this request.

        Cancelled while it waits, a request is forgotten; later, it is answered and counted, and nobody sees it.
        """
        if self._closing:
            raise Closing("the service is stopping: ask again when it is back")
        rows = len(request.rows)
        if len(self._queue) >= self.waiting or (self._queue and self._rows + rows > self.waiting_rows):
            raise Overloaded(f"{len(self._queue)} requests are waiting: ask again later")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answered] = loop.create_future()
        self._queue.append((request, future))
        self._rows += rows
        if self._running is None:
            self._running = loop.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Take nothing more, and return when all that was taken is answered. The desk stays open."""
        self._closing = True
        if self._running is not None:
            await asyncio.shield(self._running)
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._next():
                requests = [request for request, _ in batch]
                try:
                    results = await loop.run_in_executor(self._thread, self._desk.answer, requests)
                except Exception as error:
                    results = [error] * len(batch)
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():  # cancelled: the client has gone
                        continue
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
                if self._desk.untidy:
                    await loop.run_in_executor(self._thread, self._desk.tidy)
        finally:
            self._running = None

    def _next(self) -> list[tuple[Request, asyncio.Future[Answered]]]:
        """The next batch: what waits, in order of arrival, as long as there is room."""
        batch: list[tuple[Request, asyncio.Future[Answered]]] = []
        rows = 0
        while self._queue:
            request, future = self._queue[0]
            count = len(request.rows)
            if batch and rows + count > self.max_rows:
                break
            self._queue.popleft()
            self._rows -= count
            if not future.cancelled():
                batch.append((request, future))
                rows += count
        return batch
