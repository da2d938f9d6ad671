"""Bodies of requests: received within limits, decompressed, and parsed without delaying other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from reticent.service.http import calls
from reticent.service.http.calls import Call
from reticent.service.http.problems import Problem

Parsed = TypeVar("Parsed")

LARGE = 1 << 18  # bytes: a longer body is read in a thread, so that other requests continue
AT_ONCE = 2  # large bodies that are decompressed and read at a time: each may take twenty times its length


@dataclass(frozen=True)
class Limits:
    """What one caller may use."""

    body: int = 16 << 20  # bytes, after decompression
    bodies: int = 256 << 20  # bytes of all bodies that are held at a time
    body_seconds: float = 30.0  # for a body to arrive
    rows: int = 100_000  # per request
    numbers: int = 1 << 25  # per request, in encoded rows, where a category is one number for each value
    streams: int = 64  # of events, at a time
    streams_per_key: int = 16
    status_seconds: float = 1.0  # between two events of a stream


class BodyReader:
    """Reads the bodies of all requests of a server.

    Parameters
    ----------
    limits : Limits
        How long a body may be, and how long it may take to arrive.

    Attributes
    ----------
    held : int
        Bytes of all bodies that are held now.
    large : asyncio.Semaphore
        Admits a few large bodies at a time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0
        self.large = asyncio.Semaphore(AT_ONCE)

    async def read(self, call: Call, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Receive and parse a body. The body itself is not kept in memory.

        Parameters
        ----------
        call : Call
            The request.
        parse : callable
            Maps the decompressed body to what is asked. For a large body it is called in a thread.
        """
        compressed = calls.is_compressed(call)
        body = await self._receive(call)
        held = len(body)
        try:
            if not compressed and held <= LARGE:
                return parse(body)
            async with self.large:
                if compressed:
                    body = await asyncio.to_thread(calls.decompressed, body, self._limits.body)
                    self.held += len(body) - held
                    held = len(body)
                    if self.held > self._limits.bodies:
                        raise Problem("busy", "", {"Retry-After": "1"})
                return await asyncio.to_thread(parse, body)
        finally:
            self.held -= held

    async def _receive(self, call: Call) -> bytes:
        """The body as it was sent. `held` grows by its length."""
        limit, close = self._limits.body, {"Connection": "close"}
        declared = call.headers.get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 15 or int(declared) > limit):
            raise Problem("too-large", f"the body may have at most {limit} bytes", close)
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                more = True
                while more:
                    message = await call.receive()
                    if message["type"] == "http.disconnect":
                        raise Problem("malformed", "the body is not complete", close)
                    chunk = message.get("body", b"")
                    more = message.get("more_body", False)
                    chunks.append(chunk)
                    size += len(chunk)
                    self.held += len(chunk)
                    if size > limit:
                        raise Problem("too-large", f"the body may have at most {limit} bytes", close)
                    if self.held > self._limits.bodies:
                        raise Problem("busy", "", {"Retry-After": "1", **close})
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except BaseException as error:
            self.held -= size
            if isinstance(error, TimeoutError):
                raise Problem("too-slow", "", close) from None
            raise
