"""Our own clients: what they ask, and that a question lost on the way is paid once."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from stand_in import MIXED, FakeAnswering, Rules, make_service, running

from reticent.service.client import AsyncClient, Client
from reticent.service.client_base import LONGEST_PAUSE, Attempts
from reticent.service.client_messages import Question, Reply, ServiceError
from reticent.service.http.access import Keyring
from reticent.service.http.service import Service
from reticent.service.keys import KeyTable, make_key
from waiting import LIMIT, reserved_port

Ask = Callable[..., Any]


def asked(url: str, rows: Any, kind: str, **options: Any) -> Any:
    options = {"timeout": LIMIT, "model": "clinic", **options}
    if kind == "sync":
        with Client(url, **options) as client:
            return client.ask(rows)

    async def run() -> Any:
        async with AsyncClient(url, **options) as client:
            return await client.ask(rows)

    return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def spent(service: Service) -> int:
    assert isinstance(service.answering, FakeAnswering)
    return service.answering.spent


@pytest.mark.slow
def test_rows_and_columns(kind: str) -> None:
    service = make_service()
    with running(service) as port:
        url = f"http://127.0.0.1:{port}"
        assert asked(url, [[0.1, 2], [0.9, 3]], kind).tolist() == [0, 1]
        assert asked(url, {"weight": [1, 2], "age": [0.9, 0.1]}, kind).tolist() == [1, 0]
        assert asked(url, pd.DataFrame({"weight": [1, 2], "age": [0.9, 0.1]}), kind).tolist() == [1, 0]
        assert asked(url, pl.DataFrame({"weight": [1, 2], "age": [0.9, 0.1]}), kind).tolist() == [1, 0]
    assert spent(service) == 8


@pytest.mark.slow
def test_columns_that_are_not_declared_are_ignored(kind: str) -> None:
    born = np.array(["1970-01-01", "1980-01-01"], dtype="datetime64[D]")
    columns = {"born": born, "name": ["a", None], "more": [[1], {}], "weight": [1, 2], "age": [0.9, 0.1]}
    service = make_service()
    with running(service) as port:
        url = f"http://127.0.0.1:{port}"
        assert asked(url, columns, kind).tolist() == [1, 0]
        assert asked(url, pd.DataFrame(columns), kind).tolist() == [1, 0]
        assert asked(url, pl.DataFrame({**columns, "more": [[1], [2]]}), kind).tolist() == [1, 0]
        with pytest.raises(ServiceError, match=r"none named 'weight'; not sent, .*: 'weight' \(") as refused:
            asked(url, {"age": columns["age"], "weight": born}, kind)
        assert (refused.value.status, refused.value.kind) == (400, "wrong-tensors")
        with pytest.raises(ServiceError, match="there is none named 'age' "):
            asked(url, {"name": ["a"], "weight": [1]}, kind)
    assert spent(service) == 6


@pytest.mark.slow
@pytest.mark.parametrize("classes", [("no", "yes"), (False, True), (0.5, 1.5), (-3, 4)])
def test_labels_keep_their_type(kind: str, classes: tuple[Any, ...]) -> None:
    with running(make_service(Rules(MIXED.columns, classes))) as port:
        found = asked(f"http://127.0.0.1:{port}", {"age": [0.1, 0.9], "sex": ["f", None]}, kind)
    assert found.tolist() == list(classes)


@pytest.mark.slow
def test_many_rows_are_many_requests(kind: str) -> None:
    service = make_service()
    rows = np.column_stack([np.arange(120_001) % 2, np.zeros(120_001)])
    with running(service) as port:
        assert (asked(f"http://127.0.0.1:{port}", rows, kind) == rows[:, 0]).all()
    assert isinstance(service.answering, FakeAnswering)
    assert len(service.answering.asked) == 3


@pytest.mark.parametrize("rows", [[], [1, 2], np.zeros((0, 2)), {}, {"age": [1], "weight": [1, 2]}, {"age": [[1]]},
                                  {"born": np.zeros(1, dtype="datetime64[D]")}])  # fmt: skip
def test_bad_rows_are_refused_at_home(kind: str, rows: Any) -> None:
    with pytest.raises(ValueError, match="rows must"):
        asked("http://127.0.0.1:9", rows, kind, model="clinic")


@pytest.mark.slow
def test_refusals_are_told(kind: str) -> None:
    with running(make_service()) as port, pytest.raises(ServiceError) as refused:
        asked(f"http://127.0.0.1:{port}", [[1.0]], kind)
    assert (refused.value.status, refused.value.kind) == (400, "wrong-tensors")


@pytest.mark.slow
def test_keys_status_and_guarantee(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a")
    table.add(key)
    with running(make_service(keyring=Keyring(table))) as port:
        url = f"http://127.0.0.1:{port}"
        with Client(url, model="clinic", key=token, timeout=LIMIT) as client:
            assert client.status()["phase"] == 1
            assert client.guarantee()["epsilon"] == 1.0
            assert client.ask([[1, 2]]).tolist() == [1]
        with Client(url, model="clinic", timeout=LIMIT) as client, pytest.raises(ServiceError) as refused:
            client.status()
        assert refused.value.status == 401

        async def run() -> None:
            async with AsyncClient(f"{url}/v2/models/clinic/", key=token, timeout=LIMIT) as client:
                assert (await client.status())["answered"] == 1
                found = await asyncio.gather(*(client.ask([[one % 2, 0]]) for one in range(50)))
                assert [one[0] for one in found] == [one % 2 for one in range(50)]

        asyncio.run(run())


@contextmanager
def losing(port: int, lost: int) -> Iterator[int]:
    """A wire that carries requests, and cuts the connection before the first answers come back."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = [lost]

    def carry(outside: socket.socket) -> None:
        asked = threading.Event()

        def there(inside: socket.socket) -> None:
            with suppress(OSError):
                while data := outside.recv(1 << 16):
                    if data.startswith(b"POST"):
                        asked.set()
                    inside.sendall(data)
                inside.shutdown(socket.SHUT_WR)

        with outside, socket.create_connection(("127.0.0.1", port)) as inside, suppress(OSError):
            threading.Thread(target=there, args=(inside,), daemon=True).start()
            while answer := inside.recv(1 << 16):
                if asked.is_set() and left[0]:
                    left[0] -= 1
                    outside.shutdown(socket.SHUT_RDWR)
                    return
                outside.sendall(answer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=carry, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]  # steady: it listens there
    finally:
        listener.close()


@pytest.mark.slow
def test_a_lost_answer_is_asked_for_again_and_paid_once(kind: str) -> None:
    service = make_service()
    with running(service) as port, losing(port, 3) as wire:
        assert asked(f"http://127.0.0.1:{wire}", [[1, 2], [0, 0]], kind).tolist() == [1, 0]
    assert spent(service) == 2


@pytest.mark.slow
def test_without_the_same_key_it_would_be_paid_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a client whose repeats carry new keys pays for each."""
    fresh = iter(range(100))
    for client in (Client, AsyncClient):
        send = client._send

        def renewed(self: Any, question: Any, send: Any = send) -> Any:
            headers = {**question.headers, "Idempotency-Key": str(next(fresh))}
            return send(self, question._replace(headers=headers))

        monkeypatch.setattr(client, "_send", renewed)
    service = make_service()
    with running(service) as port, losing(port, 3) as wire:
        asked(f"http://127.0.0.1:{wire}", [[1, 2], [0, 0]], kind)
    assert spent(service) == 8


@pytest.mark.slow
def test_it_gives_up_in_the_end(kind: str) -> None:
    service = make_service()
    with running(service) as port, losing(port, 100) as wire, pytest.raises(ConnectionError):
        asked(f"http://127.0.0.1:{wire}", [[1, 2]], kind, retries=2)
    with reserved_port() as port, pytest.raises(ConnectionError):  # where nobody listens
        asked(f"http://127.0.0.1:{port}", [[1, 2]], kind, retries=1)


@pytest.mark.slow
def test_it_waits_as_long_as_it_is_told(kind: str, tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", rate=2, burst=2)
    table.add(key)
    service = make_service(keyring=Keyring(table))
    with running(service) as port:
        for _ in range(2):
            assert asked(f"http://127.0.0.1:{port}", [[1, 2], [1, 2]], kind, key=token).tolist() == [1, 1]


@pytest.mark.slow
def test_what_waiting_cannot_help_is_told_at_once(kind: str) -> None:
    with running(make_service(answering=FakeAnswering(left=0))) as port, pytest.raises(ServiceError) as refused:
        asked(f"http://127.0.0.1:{port}", [[1, 2]], kind)
    assert refused.value.kind == "no-answers-left"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8341", "ftp://x", "http://"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        Client(url, model="clinic")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "http://127.0.0.1:9/v2/models/", "http://127.0.0.1:9/v2/models/a/b"]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_must_name_its_model(kind: Any, url: str) -> None:
    for wrong in (3, ""):
        with pytest.raises(ValueError, match=f"model must be the name of a model, got {wrong!r}"):
            kind("http://127.0.0.1:9", model=wrong)
    with pytest.raises(ValueError, match=r"url must be http://.*, got 'host:9'"):
        kind("ftp://ann:secret@host:9", model="a")
    with pytest.raises(ValueError, match=r"model must be named.*model=\"clinic\""):
        kind(url)
    with pytest.raises(ValueError, match="model 'a' is not the one that the url names, 'b'"):
        kind("http://127.0.0.1:9/v2/models/b", model="a")


@pytest.mark.slow
def test_another_model_is_refused(kind: str) -> None:
    """Whoever listens there: nothing is answered, and nothing is told of another model."""
    service = make_service()
    with running(service) as port:
        url = f"http://127.0.0.1:{port}"
        for options in ({"url": url, "model": "klinik"}, {"url": f"{url}/v2/models/klinik", "model": None}):
            with pytest.raises(ServiceError, match=f"{url} serves no model named 'klinik'") as refused:
                asked(rows=[[1, 2]], kind=kind, **options)
            assert (refused.value.status, refused.value.kind) == (404, "wrong-model")
        with Client(url, model="klinik", timeout=LIMIT) as client:
            for look in (client.status, client.guarantee):
                with pytest.raises(ServiceError, match=f"{url} serves the model 'clinic', not 'klinik'"):
                    look()
            with pytest.raises(ServiceError, match="serves no model named 'klinik'"):
                client.metadata()
        assert asked(f"{url}/v2/models/clinic", [[1, 2]], kind, model=None).tolist() == [1]
    assert spent(service) == 1


@pytest.mark.slow
def test_a_server_that_answers_for_another_model_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    with running(service) as port:
        monkeypatch.setattr(service, "name", "klinik")  # in its answers; its routes know it as clinic
        with pytest.raises(ServiceError, match="serves the model 'klinik', not 'clinic'"):
            asked(f"http://127.0.0.1:{port}", [[1, 2]], kind)


@pytest.mark.slow
def test_what_there_is_to_know_of_a_model() -> None:
    with running(make_service()) as port, Client(f"http://127.0.0.1:{port}", model="clinic", timeout=LIMIT) as client:
        assert client.metadata()["parameters"]["columns"] == ["age", "weight"]


def test_who_would_wait_for_hours_is_told_so() -> None:
    """As with the labelled rows of the next day."""
    body = b'{"type": "/docs#day-used-up", "error": "More rows than are left today", "status": 429}'
    with Client(model="clinic") as client:
        tries = Attempts(client, Question("POST", "/", {}, b""), retries=5)
        soon = tries.pause(Reply(429, {"retry-after": str(LONGEST_PAUSE)}, body), None)
        assert soon is not None
        assert soon >= LONGEST_PAUSE
        with pytest.raises(ServiceError, match="More rows than are left today"):
            tries.pause(Reply(429, {"retry-after": str(LONGEST_PAUSE + 1)}, body), None)
