"""The quick way of small inferences gives what the usual one gives."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import patient
import pytest
from stand_in import (
    Column,
    FakeAnswering,
    Rules,
    connect,
    make_service,
    opened,
    run_with_clock,
    running,
    some_rounds,
    until,
)

from reticent.service.http import server
from reticent.service.http.service import Service
from waiting import LIMIT

INFER = "/v2/models/clinic/infer"


def tensor(data: Any, rows: int = 1, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "rows", "shape": [rows, 2], "datatype": "FP64", "data": data}], **more}


BINARY = json.dumps({
    "inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "parameters": {"binary_data_size": 16}}]
}).encode()  # fmt: skip
REQUESTS: list[dict[str, Any]] = [
    {"json": tensor([0.9, 1])},
    {"json": tensor([0.1, 1, 0.9, 1, 0.8, 1], 3)},
    {"json": tensor([0.1, 1] * 70, 70)},
    {"json": tensor([0.9, None], id="mine")},
    {"json": tensor([0.9, 1], parameters={"binary_data_output": True})},
    {"content": BINARY + np.ones(2).tobytes(), "headers": {"Inference-Header-Content-Length": str(len(BINARY))}},
    {"json": tensor([0.9, 1]), "headers": {"Idempotency-Key": "a"}},
    {"json": tensor([0.9, 1]), "headers": {"Idempotency-Key": "a"}},
    {"json": tensor([0.2, 1]), "headers": {"Idempotency-Key": "a"}},
    {"json": tensor([0.2, 1]), "headers": {"Idempotency-Key": "a b"}},
    {"json": tensor([0.2, 1]), "headers": {"Origin": "https://elsewhere.example"}},
    {"json": tensor([0.2])},
    {"json": tensor(["x", "y"])},
    {"content": b"{"},
    {"content": b""},
    {"json": tensor([0.9, 1] * 90, 90)},  # more than are left
]


def seen(reply: httpx.Response) -> tuple[Any, ...]:
    return reply.status_code, sorted(reply.headers.items()), reply.content


def counted(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that went the quick way."""
    bodies: list[bytes] = []
    usual = service.quick

    def quick(path: str, headers: Any, body: bytes, reply: Any) -> None:
        bodies.append(body)
        usual(path, headers, body, reply)

    monkeypatch.setattr(service, "quick", quick)
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize("classes", [(0, 1), ("no", 'y"es'), (False, True), (0.5, 1.5)])
def test_both_ways_say_the_same(classes: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE", LIMIT)  # a client sends the body after the headers, and may be held up
    rules = Rules((Column("age"), Column("weight")), classes)
    usual, quick = (make_service(rules, FakeAnswering(classes, left=100)) for _ in range(2))
    bodies = counted(quick, monkeypatch)

    async def run() -> list[httpx.Response]:
        async with connect(usual) as client:
            return [await client.post(INFER, **request) for request in REQUESTS]

    slow = asyncio.run(run())
    with running(quick) as port, patient.Client(base_url=f"http://127.0.0.1:{port}") as client:
        fast = [client.post(INFER, **request) for request in REQUESTS]
        assert len(bodies) == len(REQUESTS)
        for one, other in zip(slow, fast, strict=True):
            assert seen(one) == seen(other)
        assert {one.status_code for one in fast} == {200, 400, 403, 422, 503}
        text = client.get("/metrics").text
    told = [
        "repeat" if one.status_code == 422 or "idempotent-replayed" in one.headers else one.status_code for one in fast
    ]
    for status in (200, 400, 403, "repeat", 503):
        count = told.count(status)
        assert f'reticent_requests_total{{endpoint="infer",status="{status}"}} {count:.1f}' in text
    assert "reticent_waiting 0.0" in text


@pytest.mark.slow
def test_what_is_not_quick_goes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE", LIMIT)
    service = make_service()
    bodies = counted(service, monkeypatch)
    body = json.dumps(tensor([0.9, 1])).encode()
    with running(service) as port, patient.Client(base_url=f"http://127.0.0.1:{port}") as client:
        replies = [
            client.post(INFER, content=iter([body[:9], body[9:]])),
            client.post(INFER, content=body, headers={"Expect": "100-continue"}),
            client.post(INFER, content=body, headers={"Connection": "close"}),
            client.post(INFER, content=body + b" " * (1 << 15)),
            client.post(INFER + "?x=1", content=body),
            client.post("/v2/models/clinic/versions/1/infer", content=body),
        ]
        assert bodies == []
        assert client.put(INFER, content=body).status_code == 405
        assert client.post(INFER, content=body).status_code == 200
    assert [one.status_code for one in replies] == [200] * 6
    assert bodies == [body]


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 40, 120, 150])
def test_in_pieces_and_one_after_the_other(cut: int) -> None:
    """Three requests on one connection, sent without waiting, and torn at any place."""
    body = json.dumps(tensor([0.9, 1])).encode()
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    wire = f"{head}\r\n".encode() + body
    last = f"{head}Connection: close\r\n\r\n".encode() + body
    with running(make_service()) as port, socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(wire[:cut])
        line.sendall(wire[cut:] + wire + last[:cut])
        line.sendall(last[cut:])
        found = b""
        while part := line.recv(1 << 16):
            found += part
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert found.count(b'"data":[1]') == 3


def test_a_body_that_comes_late_is_still_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    bodies = counted(service, monkeypatch)
    body = json.dumps(tensor([0.9, 1])).encode()
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def run(pass_: Callable[[float], None]) -> None:
        connection, wire = opened(service)
        for part in (head, body[:9], body[9:]):
            connection.data_received(part)
            pass_(2 * server.GRACE)
            await some_rounds()
        await until(lambda: wire.sent.count(b"HTTP/1.1 200 OK") == 1)
        assert bodies == []
        connection.data_received(head + body)
        await until(lambda: wire.sent.count(b"HTTP/1.1 200 OK") == 2)

    run_with_clock(run)
    assert bodies == [body]
