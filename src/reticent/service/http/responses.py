"""Responses: JSON, compression, and the bytes that go over the wire."""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from reticent.service.http.calls import Call

JSON = "application/json"
SMALL = 1 << 10  # bytes: shorter bodies are not compressed
SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
OK = (
    b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\nvary: Accept-Encoding\r\n"
    b"content-type: application/json\r\ncontent-length: "
)


def json_response(value: object) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), 200, SAFE, JSON)


def compressible(call: Call, body: bytes, headers: Mapping[str, str], media_type: str) -> Response:
    """A response, compressed if it is long and the caller accepts that."""
    sent = {**SAFE, **headers, "Vary": "Accept-Encoding"}
    if len(body) > SMALL and accepts_gzip(call.headers.get(b"accept-encoding", b"")):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        sent["Content-Encoding"] = "gzip"
    return Response(body, 200, sent, media_type)


@functools.lru_cache(maxsize=256)
def accepts_gzip(accepted: bytes) -> bool:
    """Whether an Accept-Encoding allows gzip, which "gzip;q=0" does not; "*" stands for all that it does not name."""
    weights: dict[bytes, bool] = {}
    for one in accepted.lower().split(b","):
        name, *parameters = (part.strip() for part in one.split(b";"))
        weights[name] = not any(re.fullmatch(rb"q\s*=\s*0(\.0*)?", part) for part in parameters)
    return weights.get(b"gzip", weights.get(b"*", False))


def raw(response: Response, **headers: str) -> bytes:
    """A response as it goes over the wire."""
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}"]
    lines += [f"{name}: {value}" for name, value in {**dict(response.headers), **headers}.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + bytes(response.body)
