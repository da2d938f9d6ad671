"""What one caller may take up, where a service may be reached, and how it stops."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from stand_in import Batcher, Desk, connect, make_service, running

from reticent.service.app import Limits, loopback
from reticent.service.client import Client
from reticent.service.desk import Answered, Request
from reticent.service.keys import Keyring, KeyTable, make_key
from reticent.service.server import Binding, Patience, listening, make_server

INFER = "/v2/models/clinic/infer"
ONE = {"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [0.9, 1]}]}


def talk(port: int, data: bytes, seconds: float = 10) -> bytes:
    """Send bytes as they are, and read until the other side hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as wire:
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
    assert service._held == 0


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
    assert service._held == 0


def test_headers_must_come_in_time() -> None:
    with running(make_service(), patience=Patience(header_seconds=0.3)) as port:
        is_raw_problem(talk(port, b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "), 408)
        is_raw_problem(talk(port, b""), 408)
        # also those of a second request on the same connection
        first = b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        found = talk(port, first + b"GET /v2 HTTP/1.1\r\n")
        assert found.count(b"HTTP/1.1 200") == 1
        assert found.count(b"HTTP/1.1 408") == 1


def test_headers_have_a_size() -> None:
    with running(make_service(), patience=Patience(header_bytes=4096)) as port:
        is_raw_problem(talk(port, b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 5000), 413)


def test_bodies_must_come_in_time() -> None:
    with running(make_service(limits=Limits(body_seconds=0.3))) as port:
        head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"
        is_raw_problem(talk(port, head.encode() + b"{"), 408)


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


def test_connections_are_limited() -> None:
    with running(make_service(), patience=Patience(connections=3)) as port:
        wires = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        time.sleep(0.2)
        is_raw_problem(talk(port, b""), 503)
        for wire in wires:
            wire.close()
        time.sleep(0.2)
        assert httpx.get(f"http://127.0.0.1:{port}/v2").status_code == 200


def test_slow_clients_hold_no_one_up() -> None:
    """A hundred who send half a request, and some who do not read their answers: others are served as ever."""
    service = make_service(limits=Limits(rows=200_000))
    rows = 100_000
    big = json.dumps({"inputs": [{**ONE["inputs"][0], "shape": [rows, 2], "data": [0, 1] * rows}]}).encode()
    with running(service) as port:
        wires = []
        for _ in range(100):
            wire = socket.create_connection(("127.0.0.1", port))
            wire.sendall(f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50000\r\n\r\n".encode() + b"{")
            wires.append(wire)
        for _ in range(3):
            wire = socket.socket()
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", port))
            head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(big)}\r\n\r\n"
            wire.sendall(head.encode() + big)
            wires.append(wire)
        with Client(f"http://127.0.0.1:{port}") as client:
            client.ask([[1, 2]])
            started = time.monotonic()
            for _ in range(50):
                client.ask([[1, 2]])
            assert time.monotonic() - started < 5
        for wire in wires:
            wire.close()


def test_streams_are_limited() -> None:
    with running(make_service(limits=Limits(streams=1))) as port, httpx.Client() as client:
        url = f"http://127.0.0.1:{port}/events"
        with client.stream("GET", url) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: status"
            with httpx.stream("GET", url) as second:
                assert second.status_code == 503
            assert next(lines).startswith("data:")


def test_stopping_drains() -> None:
    """What was taken when the server was told to stop is answered; the desk is closed after it."""
    desk, release, arrived = Desk(), threading.Event(), list[Request]()

    class Slow(Batcher):
        async def ask(self, request: Request) -> Answered:
            arrived.append(request)
            await asyncio.to_thread(release.wait)
            assert not desk.closed
            return await super().ask(request)

    service = make_service(desk=desk)
    service.batcher = Slow(desk)
    server = make_server(service, Binding(port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = listening(server)[1]
    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(httpx.post, f"http://127.0.0.1:{port}{INFER}", json=ONE) for _ in range(10)]
        for _ in range(3000):
            if len(arrived) == 10:
                break
            time.sleep(0.01)
        server.should_exit = True
        time.sleep(0.5)
        assert thread.is_alive()
        release.set()
        assert [one.result().status_code for one in asked] == [200] * 10
    thread.join(10)
    assert not thread.is_alive()
    assert desk.closed
    assert desk.spent == 10


# ── where it may be reached ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.168.0.1", False), ("example.org", False), ("localhost.example.org", False), ("", False)],
)  # fmt: skip
def test_what_is_this_machine(host: str, here: bool) -> None:
    assert loopback(host) == here


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


def test_tls(tmp_path: Path) -> None:
    certificate, private_key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(private_key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    binding = Binding(port=0, certificate=certificate, private_key=private_key)
    with running(make_service(), binding) as port:
        context = ssl.create_default_context(cafile=str(certificate))
        with Client(f"https://localhost:{port}", context=context) as client:
            assert client.ask([[1, 2]]).tolist() == [1]
        with Client(f"https://localhost:{port}", retries=0) as client, pytest.raises(ConnectionError):
            client.ask([[1, 2]])
