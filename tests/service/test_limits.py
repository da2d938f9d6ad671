"""What one caller may take up, where a service may be reached, and how it stops."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import resource
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import patient
import pytest
from stand_in import (
    Batcher,
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

from reticent.service.client import AsyncClient, Client
from reticent.service.client_base import UntrustedCertificate
from reticent.service.http import bodies, calls, server
from reticent.service.http.access import Keyring
from reticent.service.http.bodies import Limits
from reticent.service.http.calls import is_loopback
from reticent.service.http.problems import Problem
from reticent.service.http.server import Binding, Patience, listening, make_server
from reticent.service.keys import KeyTable, make_key
from reticent.service.requests import Answered, Request
from waiting import LIMIT, wait_until

INFER = "/v2/models/clinic/infer"
ONE = {"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [0.9, 1]}]}


def talk(port: int, data: bytes) -> bytes:
    """Send bytes as they are, and read until the other side hangs up."""
    with reached(port) as wire:
        wire.sendall(data)
        found = b""
        while part := wire.recv(1 << 16):
            found += part
        return found


def is_raw_problem(found: bytes, status: int) -> None:
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d" % status), head
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == status


@pytest.mark.slow
def test_bodies_are_limited_also_when_their_length_is_not_told() -> None:
    service = make_service(limits=Limits(body=1000))

    async def run() -> list[int]:
        async def pieces() -> object:
            for _ in range(20):
                yield b" " * 100

        async with connect(service) as client:
            replies = [
                await client.post(INFER, content=b" " * 1001),
                await client.post(INFER, content=pieces()),  # type: ignore[arg-type]
                await client.post(INFER, content=gzip.compress(b" " * 10**7), headers={"Content-Encoding": "gzip"}),
                await client.post(INFER, json=ONE),
            ]
            return [one.status_code for one in replies]

    assert asyncio.run(run()) == [413, 413, 413, 200]
    assert service.bodies.held == 0


def test_rows_are_limited() -> None:
    async def run() -> tuple[int, int]:
        async with connect(make_service(limits=Limits(rows=2))) as client:
            three = {"inputs": [{**ONE["inputs"][0], "shape": [3, 2], "data": [0] * 6}]}
            table = await client.post("/invocations", json={"instances": [[0, 0]] * 3})
            return (await client.post(INFER, json=three)).status_code, table.status_code

    assert asyncio.run(run()) == (413, 413)


def test_all_bodies_together_are_limited() -> None:
    service = make_service(limits=Limits(bodies=10))

    async def run() -> httpx.Response:
        async with connect(service) as client:
            return await client.post(INFER, json=ONE)

    reply = asyncio.run(run())
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
    assert service.bodies.held == 0


@pytest.mark.slow
def test_headers_must_come_in_time() -> None:
    with running(make_service(), patience=Patience(header_seconds=0.3)) as port:
        is_raw_problem(talk(port, b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "), 408)
        is_raw_problem(talk(port, b""), 408)
        # also those of a second request on the same connection
        first = b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        found = talk(port, first + b"GET /v2 HTTP/1.1\r\n")
        assert found.count(b"HTTP/1.1 200") == 1
        assert found.count(b"HTTP/1.1 408") == 1


@pytest.mark.slow
def test_headers_have_a_size() -> None:
    with running(make_service(), patience=Patience(header_bytes=4096)) as port:
        head = b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
        is_raw_problem(talk(port, head + b"a" * 5000), 413)
        is_raw_problem(talk(port, head + b"a" * 5000 + b"\r\n\r\n"), 413)  # in one piece, and complete
        two = talk(port, head + b"\r\n\r\n" + head + b"a" * 5000 + b"\r\n\r\n")
        assert two.count(b"HTTP/1.1 200") == two.count(b"HTTP/1.1 ") <= 1
        body = b" " * 5000  # which is no part of the headers
        last = b"POST /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        is_raw_problem(talk(port, last + body), 405)


@pytest.mark.slow
def test_bodies_must_come_in_time() -> None:
    with running(make_service(limits=Limits(body_seconds=0.3))) as port:
        head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"
        is_raw_problem(talk(port, head.encode() + b"{"), 408)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
)
def test_what_is_no_http_is_told_so_in_json(data: bytes) -> None:
    with running(make_service()) as port:
        is_raw_problem(talk(port, data), 400)


@pytest.mark.slow
def test_connections_are_limited() -> None:
    with running(make_service(), patience=Patience(connections=3)) as port:
        wires = [reached(port) for _ in range(3)]
        is_raw_problem(talk(port, b""), 503)  # they are taken in the order in which they come
        for wire in wires:
            wire.close()
        wait_until(lambda: patient.get(f"http://127.0.0.1:{port}/v2").status_code == 200)


@pytest.mark.slow
def test_slow_clients_hold_no_one_up() -> None:
    """A hundred who send half a request, and some who do not read their answers: others are served meanwhile.

    None of them is given up before the test is over. So a server that waited for one would serve nobody else.
    """
    service = make_service(limits=Limits(rows=200_000, body_seconds=LIMIT))
    rows = 100_000
    big = json.dumps({"inputs": [{**ONE["inputs"][0], "shape": [rows, 2], "data": [0, 1] * rows}]}).encode()
    with running(service) as port:
        wires = []
        for _ in range(100):
            wire = reached(port)
            wire.sendall(f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50000\r\n\r\n".encode() + b"{")
            wires.append(wire)
        for _ in range(3):
            wire = socket.socket()
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", port))
            head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(big)}\r\n\r\n"
            wire.sendall(head.encode() + big)
            wires.append(wire)
        with Client(f"http://127.0.0.1:{port}", model="clinic", timeout=LIMIT) as client:
            for _ in range(50):
                client.ask([[1, 2]])
        for wire in wires[:100]:
            wire.setblocking(False)
            with pytest.raises(BlockingIOError):  # it is still waited for
                wire.recv(1)
        for wire in wires:
            wire.close()


@pytest.mark.slow
def test_streams_are_limited() -> None:
    with running(make_service(limits=Limits(streams=1))) as port, patient.Client() as client:
        url = f"http://127.0.0.1:{port}/events"
        with client.stream("GET", url) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: status"
            with patient.stream("GET", url) as second:
                assert second.status_code == 503
            assert next(lines).startswith("data:")


@pytest.mark.slow
def test_stopping_drains() -> None:
    """What was taken when the server was told to stop is answered; the answering service is closed after it."""
    answering, release, arrived = FakeAnswering(), threading.Event(), list[Request]()

    class Slow(Batcher):
        async def ask(self, request: Request) -> Answered:
            arrived.append(request)
            await asyncio.to_thread(release.wait)
            assert not answering.closed
            return await super().ask(request)

    service = make_service(answering=answering)
    service.batcher = Slow(answering)
    server = make_server(service, Binding(port=0), Patience(drain_seconds=int(LIMIT)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    port = listening(server)[1]
    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(patient.post, f"http://127.0.0.1:{port}{INFER}", json=ONE) for _ in range(10)]
        wait_until(lambda: len(arrived) == 10)
        server.should_exit = True
        wait_until(service.closing.is_set)
        assert thread.is_alive()
        release.set()
        assert [one.result().status_code for one in asked] == [200] * 10
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert answering.closed
    assert answering.spent == 10


# ── what one connection may take up ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("soft", "hard", "room", "raised"),
    [(256, 256, 128, None), (1024, 4096, 3968, 4096), (1024, 1 << 20, 12_288, 12_416), (65_536, 65_536, 65_408, None),
     (129, 129, 1, None), (1024, resource.RLIM_INFINITY, 12_288, 12_416)],
)  # fmt: skip
def test_connections_leave_connection_capacity_other_files(
    soft: int, hard: int, room: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    config = make_server(make_service()).config
    assert isinstance(config.http, type)
    assert issubclass(config.http, server._Connection)
    assert config.http.limits.connections == min(4096, room)
    assert config.http.limits.connections + 4 * config.backlog <= (raised or soft)
    assert asked == ([] if raised is None else [(raised, hard)])


GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_only_so_many_requests_wait_on_a_connection() -> None:
    async def run() -> None:
        connection, wire = opened(make_service())
        connection.data_received(GET * (server.PIPELINE + 1))
        assert not wire.closed
        assert wire.paused
        await until(lambda: not (wire.paused and connection.pipeline))
        assert not connection.pipeline  # it did not read on before
        await until(lambda: wire.sent.count(b"HTTP/1.1 200") == server.PIPELINE + 1)
        assert not wire.paused
        connection.data_received(GET)  # and goes on
        await until(lambda: wire.sent.count(b"HTTP/1.1 200") == server.PIPELINE + 2)
        connection.data_received(GET * 10_000)
        assert wire.closed
        assert not connection.pipeline

    asyncio.run(run())


@pytest.mark.slow
def test_a_request_that_offers_another_protocol_is_answered_in_this_one() -> None:
    body = json.dumps(ONE).encode()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n"
    first, last = (head % (INFER.encode(), one, len(body)) + body for one in (offer, b"Connection: close\r\n"))
    with running(make_service()) as port:
        assert talk(port, first + GET + first + last).count(b"HTTP/1.1 200") == 4
        with reached(port) as wire:
            for place in range(len(first)):
                wire.sendall(first[place : place + 1])
            assert wire.recv(1 << 16).startswith(b"HTTP/1.1 200")
        is_raw_problem(talk(port, b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"), 400)


@pytest.mark.parametrize("rest", [b"x", b""])
@pytest.mark.parametrize("path", ["GET /v2", "POST /v2/models/other/infer"])
def test_what_is_answered_before_all_was_sent_does_not_stay_open(path: str, rest: bytes) -> None:
    async def run(pass_: Callable[[float], None]) -> None:
        connection, wire = opened(make_service())
        connection.data_received(f"{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode())
        await until(lambda: wire.sent.startswith(b"HTTP/1.1 "))
        connection.data_received(rest)
        pass_(Patience().header_seconds - 1)
        await some_rounds()
        assert not wire.closed
        pass_(1)
        await until(lambda: wire.closed)

    run_with_clock(run)


def test_who_sends_the_rest_goes_on() -> None:
    async def run(pass_: Callable[[float], None]) -> None:
        connection, wire = opened(make_service())
        connection.data_received(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        await until(lambda: wire.sent.count(b"HTTP/1.1 200") == 1)
        connection.data_received(b"x" * 9 + GET)
        await until(lambda: wire.sent.count(b"HTTP/1.1 200") == 2)
        connection.data_received(b"\r\n")  # what is no request does not keep it open
        pass_(Patience().idle_seconds - 1)
        await some_rounds()
        assert not wire.closed
        pass_(1)
        await until(lambda: wire.closed)

    run_with_clock(run)


def reached(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT)


# ── what bodies may take up ───────────────────────────────────────────────────────────────────────────────────────────


def test_compressed_parts() -> None:
    source = random.Random(0)
    plain = [source.randbytes(source.randrange(100_000)) for _ in range(20)]
    body = b"".join(gzip.compress(one, 1) for one in plain)
    assert len(body) > 3 * calls.PIECE
    assert calls.decompressed(body, 1 << 21) == b"".join(plain)
    assert calls.decompressed(gzip.compress(b"a") * calls.MEMBERS, 1 << 21) == b"a" * calls.MEMBERS
    with pytest.raises(Problem) as refused:
        calls.decompressed(gzip.compress(b"") * (calls.MEMBERS + 1), 1 << 21)
    assert refused.value.status == 413
    with pytest.raises(Problem) as refused:
        calls.decompressed(body[:-1], 1 << 21)
    assert refused.value.status == 400


def test_bodies_count_by_what_they_are_when_they_are_decompressed() -> None:
    body = gzip.compress(json.dumps(ONE).encode() + b" " * 100_000)

    async def post(bodies: int) -> httpx.Response:
        service = make_service(limits=Limits(bodies=bodies))
        async with connect(service) as client:
            reply = await client.post(INFER, content=body, headers={"Content-Encoding": "gzip"})
        assert service.bodies.held == 0
        return reply

    refused = asyncio.run(post(100_000))
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert asyncio.run(post(200_000)).status_code == 200


@pytest.mark.parametrize("at_once", [None, 3])
def test_few_large_bodies_are_read_at_a_time(at_once: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for three, three are read at a time: the control."""
    service = make_service()
    if at_once is not None:
        service.bodies.large = asyncio.Semaphore(at_once)
    wanted, come, reading, most = at_once or bodies.AT_ONCE, [0], [0], [0]
    changed, usual, turn = threading.Condition(), service._read_inference, service.bodies.large.acquire

    async def acquire() -> bool:
        with changed:
            come[0] += 1
            changed.notify_all()
        return await turn()

    def read(body: bytes, *, header_length: str | None) -> Any:
        with changed:
            reading[0] += 1
            most[0] = max(most[0], reading[0])
            changed.notify_all()
            # All have come, and as many are being read as may be. Then each goes on.
            assert changed.wait_for(lambda: come[0] == 3 and most[0] >= wanted, LIMIT)
            reading[0] -= 1
        return usual(body, header_length=header_length)

    monkeypatch.setattr(service, "_read_inference", read)
    monkeypatch.setattr(service.bodies.large, "acquire", acquire)

    async def run() -> list[int]:
        async with connect(service) as client:
            body = json.dumps(ONE).encode() + b" " * bodies.LARGE
            return [one.status_code for one in await asyncio.gather(*(client.post(INFER, content=body) for _ in "123"))]

    assert asyncio.run(run()) == [200] * 3
    assert most[0] == wanted


def test_numbers_are_limited_as_the_model_sees_them() -> None:
    class Wide(Rules):
        width = 50  # as if the categories of a column were a number each

    async def post(rules: Rules, rows: int) -> int:
        async with connect(make_service(rules, limits=Limits(numbers=100))) as client:
            many = {"inputs": [{**ONE["inputs"][0], "shape": [rows, 2], "data": [0] * (2 * rows)}]}
            return (await client.post(INFER, json=many)).status_code

    assert [asyncio.run(post(Rules(), rows)) for rows in (50, 51)] == [200, 413]
    assert [asyncio.run(post(Wide(), rows)) for rows in (2, 3)] == [200, 413]


@pytest.mark.slow
def test_no_key_can_have_all_streams(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    tokens = []
    for name in "ab":
        token, key = make_key(name, ["observe"])
        table.add(key)
        tokens.append({"Authorization": f"Bearer {token}"})
    service = make_service(keyring=Keyring(table), limits=Limits(streams=2, streams_per_key=1))
    with running(service) as port, patient.Client() as client:
        url = f"http://127.0.0.1:{port}/events"
        with client.stream("GET", url, headers=tokens[0]) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: status"
            for place, status in ((0, 503), (1, 200)):
                with patient.stream("GET", url, headers=tokens[place]) as other:
                    assert other.status_code == status
            assert next(lines).startswith("data:")
    table.close()


# ── where it may be reached ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.168.0.1", False), ("example.org", False), ("localhost.example.org", False), ("", False)],
)  # fmt: skip
def test_what_is_this_machine(host: str, here: bool) -> None:
    assert is_loopback(host) == here


def test_elsewhere_only_with_keys_and_not_in_the_clear(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    none, some = Keyring(), Keyring(table)
    Binding().check(none)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(ValueError, match="make a key first"):
            Binding(host=host).check(none)
    with pytest.raises(ValueError, match="make a key first"):
        Binding(behind_proxy=True).check(some)
    table.add(make_key("a")[1])
    some = Keyring(table)
    with pytest.raises(ValueError, match="in the clear"):
        Binding(host="0.0.0.0").check(some)
    Binding(host="0.0.0.0", behind_proxy=True).check(some)
    with pytest.raises(ValueError, match="certificate"):
        Binding(private_key=tmp_path).check(some)
    with pytest.raises(ValueError, match="certificate must be a file"):
        Binding(certificate=tmp_path / "none").check(some)
    with pytest.raises(ValueError, match="port"):
        Binding(port=70000).check(some)


@pytest.mark.slow
def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, private_key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(private_key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    binding = Binding(port=0, certificate=certificate, private_key=private_key)
    with running(make_service(), binding) as port:
        context = ssl.create_default_context(cafile=str(certificate))
        with Client(f"https://localhost:{port}", model="clinic", context=context, timeout=LIMIT) as client:
            assert client.ask([[1, 2]]).tolist() == [1]
        url = f"https://localhost:{port}"
        untrusted = f"the certificate of {url} is not trusted: .*self-signed.*SSL_CERT_FILE.*cafile="
        with Client(url, model="clinic", timeout=LIMIT) as client, pytest.raises(UntrustedCertificate, match=untrusted):
            client.ask([[1, 2]])

        async def ask() -> None:
            async with AsyncClient(url, model="clinic", timeout=LIMIT) as client:
                await client.ask([[1, 2]])

        with pytest.raises(UntrustedCertificate, match=untrusted):
            asyncio.run(ask())
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # as the message says
        with Client(url, model="clinic", timeout=LIMIT) as client:
            assert client.ask([[1, 2]]).tolist() == [1]
