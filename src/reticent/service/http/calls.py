"""Calls: what a request's headers say, where it comes from, and its body as it was sent."""

from __future__ import annotations

import functools
import ipaddress
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.types import Message, Receive, Scope

from reticent.service.http.problems import Problem

MEMBERS = 1 << 10  # parts of a body that are compressed one by one
PIECE = 1 << 16  # bytes that are decompressed at a time
HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{0,5})?")
ONCE = (b"host", b"authorization", b"idempotency-key", b"content-type", b"inference-header-content-length")  # headers


class Call(NamedTuple):
    """A request as it arrived."""

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]

    def header(self, name: bytes) -> str | None:
        """A header, by its name in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.scope["path_params"][name])


def headers_by_name(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; the last value of those that may come more than once."""
    found = dict(headers)
    if len(found) < len(headers):
        names = [name for name, _ in headers]
        for name in ONCE:
            if names.count(name) > 1:
                raise Problem("malformed", f"the header {name.decode().title()} must come once")
    return found


def idempotency_key(call: Call) -> str | None:
    """The Idempotency-Key of a call."""
    key = call.headers.get(b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or any(not 0x21 <= byte <= 0x7E for byte in key):
        raise Problem("malformed", "Idempotency-Key must be 1 to 255 visible ASCII characters")
    return key.decode("ascii")


def is_compressed(call: Call) -> bool:
    """Whether the body is compressed, in a format that is known."""
    encoding = (call.header(b"content-encoding") or "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        headers = {"Accept-Encoding": "gzip, deflate"}
        raise Problem("wrong-type", "the Content-Encoding must be gzip or deflate", headers)
    return encoding != "identity"


def decompressed(body: bytes, limit: int) -> bytes:
    """A body of one or more compressed parts; a piece at a time, since zlib copies what a part leaves over."""
    parts: list[bytes] = []
    size = at = members = 0
    reader: Any = None
    while at < len(body):
        if reader is None or reader.eof:
            members += 1
            if members > MEMBERS:
                raise Problem("too-large", f"the body may have at most {MEMBERS} compressed parts")
            reader = zlib.decompressobj(wbits=47)  # gzip or zlib, as its first bytes say
        piece = body[at : at + PIECE]
        try:
            parts.append(reader.decompress(piece, limit - size + 1))
        except zlib.error:
            raise Problem("malformed", "the body is not what its Content-Encoding says") from None
        at += len(piece) - len(reader.unused_data)
        size += len(parts[-1])
        if size > limit:
            raise Problem("too-large", f"the body may have at most {limit} bytes when it is decompressed")
    if reader is not None and not reader.eof:
        raise Problem("malformed", "the body is not what its Content-Encoding says")
    return b"".join(parts)


@functools.lru_cache(maxsize=256)  # it is needed for every request
def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which cannot be reached from elsewhere under this name."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=256)
def is_local(host: bytes, origin: bytes | None) -> bool:
    """Whether a request names this machine in its Host header, and comes from no page of another site."""
    return is_loopback(_hostname(host.decode("latin-1"))) and (origin is None or origin.partition(b"://")[2] == host)


def _hostname(host: str) -> str:
    """The name or address in a Host header; empty if it is not a host with or without a port."""
    found = HOST.fullmatch(host)
    return "" if found is None else found["address"] or found["name"]


async def nothing_more() -> Message:
    """The `receive` of a call whose body is already there."""
    return {"type": "http.disconnect"}


async def disconnected(receive: Receive) -> None:
    """Wait until the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
