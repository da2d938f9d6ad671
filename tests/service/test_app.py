"""The routes, as a caller sees them."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import patient
import pytest
from shop import new_home
from stand_in import MIXED, Batcher, Column, FakeAnswering, Rules, connect, make_service, running

from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.http import batching
from reticent.service.http import service as service_module
from reticent.service.http.access import Keyring
from reticent.service.http.batching import Overloaded, Stopping
from reticent.service.http.problems import KINDS
from reticent.service.http.responses import accepts_gzip
from reticent.service.http.service import Service
from reticent.service.keys import KeyTable, make_key
from reticent.service.requests import Answered, Halted, Request

INFER = "/v2/models/clinic/infer"
ONE = {"inputs": [{"name": "rows", "shape": [2, 2], "datatype": "FP64", "data": [0.1, 1, 0.9, 1]}]}


def with_client(service: Service, run: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        async with connect(service) as client:
            return await run(client)

    return asyncio.run(go())


def call(method: str, path: str, service: Service | None = None, **options: Any) -> httpx.Response:
    response: httpx.Response = with_client(
        service or make_service(), lambda client: client.request(method, path, **options)
    )
    return response


def is_problem(response: httpx.Response, status: int, kind: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail", "error"}
    assert body["type"] == f"/docs#{kind}"
    assert body["status"] == status


def test_an_answer() -> None:
    response = call("POST", INFER, json={**ONE, "id": "x1"})
    assert response.json() == {
        "model_name": "clinic",
        "model_version": "1",
        "id": "x1",
        "parameters": {"phase": 1, "replayed": False},
        "outputs": [{"name": "labels", "datatype": "INT64", "shape": [2], "data": [0, 1]}],
    }
    assert response.headers["cache-control"] == "no-store"


def test_by_version_and_by_name() -> None:
    assert call("POST", "/v2/models/clinic/versions/1/infer", json=ONE).status_code == 200
    assert call("GET", "/v2/models/clinic/versions/1").json()["name"] == "clinic"
    assert call("GET", "/v2/models/clinic/versions/1/ready").status_code == 200
    for path in ("/v2/models/other", "/v2/models/clinic/versions/2", "/v2/models/other/ready"):
        is_problem(call("GET", path), 404, "not-found")
    is_problem(call("POST", "/v2/models/clinic/versions/2/infer", json=ONE), 404, "not-found")


def test_binary_in_and_out() -> None:
    data = np.array([[0.1, 1], [0.9, 1]]).tobytes()
    tensor = {"name": "rows", "shape": [2, 2], "datatype": "FP64", "parameters": {"binary_data_size": len(data)}}
    outputs = [{"name": "labels", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    response = call("POST", INFER, content=head + data, headers=headers)
    length = int(response.headers["Inference-Header-Content-Length"])
    assert json.loads(response.content[:length])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert np.frombuffer(response.content[length:], "<i8").tolist() == [0, 1]


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_bodies(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    body = json.dumps(ONE).encode()
    assert call("POST", INFER, content=pack(body), headers={"Content-Encoding": encoding}).status_code == 200
    for bad in (body, pack(body)[:-5], pack(body)[:10], pack(body) + b"more"):
        is_problem(call("POST", INFER, content=bad, headers={"Content-Encoding": encoding}), 400, "malformed")
    is_problem(call("POST", INFER, content=body, headers={"Content-Encoding": "br"}), 415, "wrong-type")


def test_long_answers_are_compressed_if_wanted() -> None:
    many = {"inputs": [{"name": "rows", "shape": [1000, 2], "datatype": "FP64", "data": [0.9, 1] * 1000}]}
    packed = call("POST", INFER, json=many, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    plain = call("POST", INFER, json=many, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.json()["outputs"] == plain.json()["outputs"]


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_split": {"columns": ["age", "sex"], "data": [[0.9, "f"]]}},
        {"dataframe_records": [{"age": 0.9, "sex": "f"}]},
        {"instances": [[0.9, "m"]]},
        {"inputs": {"age": [0.9], "sex": ["m"]}},
    ],
)
def test_invocations(body: dict[str, Any]) -> None:
    assert call("POST", "/invocations", make_service(MIXED), json=body).json() == {"predictions": ["yes"]}


def test_invocations_by_csv() -> None:
    headers = {"Content-Type": "text/csv; charset=utf-8"}
    response = call("POST", "/invocations", make_service(MIXED), content="sex,age\nf,0.9\n,x\n", headers=headers)
    assert response.json() == {"predictions": ["yes", "no"]}
    is_problem(call("POST", "/invocations", content="{}", headers={"Content-Type": "text/xml"}), 415, "wrong-type")


def test_what_is_told_to_all() -> None:
    assert call("GET", "/v2").json()["extensions"] == ["binary_tensor_data"]
    assert call("GET", "/v2/health/live").json() == {"live": True}
    assert call("GET", "/v2/health/ready").json() == {"ready": True, "name": "clinic"}
    assert call("GET", "/ping").status_code == 200
    assert call("GET", "/version").text
    assert call("GET", "/status").json()["answers_left_in_phase"] == 1_000_000


def test_the_guarantee_in_words_and_in_json() -> None:
    words = call("GET", "/guarantee")
    assert words.headers["content-type"] == "text/plain; charset=utf-8"
    assert "How well." in words.text
    told = call("GET", "/guarantee", headers={"Accept": "application/json"}).json()
    assert (told["epsilon"], told["delta"], told["model"]) == (1.0, 1e-6, "clinic")
    assert told["words"] + "\n" == words.text


def test_metrics_are_public_numbers() -> None:
    service = make_service()

    async def run(client: httpx.AsyncClient) -> str:
        await client.post(INFER, json=ONE)
        await client.get("/nothing")
        return (await client.get("/metrics")).text

    text = with_client(service, run)
    assert 'reticent_requests_total{endpoint="infer",status="200"} 1.0' in text
    assert "reticent_answered_total 2.0" in text
    assert "reticent_epsilon 1.0" in text
    assert "vote" not in text


def test_problems_are_json_everywhere() -> None:
    is_problem(call("GET", "/nothing"), 404, "not-found")
    wrong = call("GET", INFER)
    is_problem(wrong, 405, "wrong-method")
    assert wrong.headers["allow"] == "POST"
    is_problem(call("DELETE", "/v2"), 405, "wrong-method")
    is_problem(call("POST", INFER, content=b"{"), 400, "malformed")


def test_nothing_sent_is_repeated() -> None:
    sentinel = "s3cr3t-4242"
    bodies: list[Any] = [
        {"inputs": [{"name": sentinel, "shape": [1, 3], "datatype": sentinel, "data": [sentinel]}]},
        {"inputs": [{"name": "rows", "shape": [sentinel], "datatype": "FP64", "data": []}]},
        {"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [sentinel, 1, 2]}]},
        {sentinel: 1},
        {"inputs": sentinel, "id": sentinel},
        {"inputs": [], "outputs": [{"name": sentinel}]},
        {"inputs": [{"name": "age", "shape": [1], "datatype": "FP64", "data": [1], "parameters": {sentinel: 1}}]},
    ]
    for body in bodies:
        for path in (INFER, "/invocations"):
            response = call("POST", path, json=body)
            assert 400 <= response.status_code < 500
            assert sentinel not in response.text + str(response.headers)
    for path in (f"/{sentinel}", f"/v2/models/{sentinel}", f"/v2/models/clinic/versions/{sentinel}"):
        assert sentinel not in call("GET", path).text


def test_a_repeat_gets_the_stored_answer_and_another_body_is_refused() -> None:
    service = make_service()

    async def run(client: httpx.AsyncClient) -> None:
        first = await client.post(INFER, json=ONE, headers={"Idempotency-Key": "k"})
        again = await client.post(INFER, json=ONE, headers={"Idempotency-Key": "k"})
        assert first.json()["outputs"] == again.json()["outputs"]
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        other = await client.post(INFER, json={**ONE, "id": "y"}, headers={"Idempotency-Key": "k"})
        is_problem(other, 422, "key-reused")
        for key in ("", "x" * 256, "a b", "\x7f"):
            is_problem(await client.post(INFER, json=ONE, headers={"Idempotency-Key": key}), 400, "malformed")
        assert service.answering.status().answered == 2

    with_client(service, run)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(Overloaded(), 503, "busy"), (Stopping(), 503, "closing"), (Halted(), 503, "halted"),
     (RuntimeError("s3cr3t"), 500, "internal"), (ValueError("s3cr3t"), 500, "internal")],
)  # fmt: skip
def test_errors_of_the_answering(error: Exception, status: int, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Batcher):
        async def ask(self, request: Request) -> Answered:
            raise error

    service = make_service()
    service.batcher = Broken(service.answering)
    with caplog.at_level(logging.DEBUG):
        is_problem(call("POST", INFER, service, json=ONE), status, kind)
    assert "s3cr3t" not in caplog.text
    assert any(one.name == "reticent.service" for one in caplog.records) == (status == 500)


def test_no_answers_left() -> None:
    answering = FakeAnswering(left=1)
    is_problem(call("POST", INFER, make_service(answering=answering), json=ONE), 503, "no-answers-left")
    assert answering.spent == 0


def test_halted_is_neither_ready_nor_alive() -> None:
    service = make_service(answering=FakeAnswering(halted="the disk is full"))
    is_problem(call("GET", "/v2/health/ready", service), 503, "halted")
    is_problem(call("GET", "/ping", make_service(answering=FakeAnswering(halted="x"))), 503, "halted")
    is_problem(call("GET", "/v2/health/live", make_service(answering=FakeAnswering(halted="x"))), 503, "halted")


HOSTILE = [
    "[::1].evil.com", "[::1]evil.com", "[::1]:80.evil.com", "[::1]:80@evil.com", "[::1", "::1]", "[::1]]", "[[::1]]",
    "::1", "[::1%lo]", "[127.0.0.1]", "[localhost]", "localhost:80@evil.com", "localhost:evil.com",
    "localhost:80.evil.com",
    "localhost:80:evil.com", "localhost.evil.com", "localhost,evil.com", "localhost/evil.com", "localhost\\.evil.com",
    "localhost#evil.com", "a@localhost", "127.0.0.1.evil.com", "127.0.0.1:80.evil.com", "127.0.0.1 evil.com", "127.1",
    "0.0.0.0", "2130706433", "0x7f.1", "localhost:123456", "",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTILE)
def test_no_other_host_is_taken_for_this_machine(host: str) -> None:
    service = make_service()
    is_problem(call("POST", INFER, service, json=ONE, headers={"Host": host}), 403, "foreign-page")
    assert service.answering.status().answered == 0


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:65535", "[::1]", "[::1]:8341"])
def test_this_machine_may_be_named_so(host: str) -> None:
    assert call("POST", INFER, json=ONE, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_pages_of_other_sites_cannot_ask_through_a_browser(headers: dict[str, str]) -> None:
    is_problem(call("POST", INFER, json=ONE, headers=headers), 403, "foreign-page")
    is_problem(call("GET", "/status", headers=headers), 403, "foreign-page")


def test_own_pages_can() -> None:
    for host in ("127.0.0.1:8341", "localhost:8341", "[::1]:8341"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert call("GET", "/status", headers=headers).status_code == 200


@pytest.mark.slow
def test_events_come_once_a_second_and_end_with_the_server() -> None:
    service = make_service()
    with running(service) as port, patient.Client(base_url=f"http://127.0.0.1:{port}") as client:
        client.post(INFER, json=ONE)
        with client.stream("GET", "/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            found = [next(lines) for _ in range(6)]
    assert found[::3] == ["event: status"] * 2
    status = json.loads(found[1].removeprefix("data: "))
    assert status["answered"] == 2
    assert status["load"]["requests_per_second"] > 0
    assert status["clients"][0]["id"] == "anonymous"
    # leaving `running` asserts that the server ended although a stream had been open
    assert isinstance(service.answering, FakeAnswering)
    assert service.answering.closed


@pytest.mark.slow
def test_a_server_closes_no_log_of_the_process_it_runs_in() -> None:
    class ClosesItsStream(logging.StreamHandler[io.StringIO]):
        def close(self) -> None:  # as some libraries do, which then closes what everybody prints to
            self.stream.close()
            super().close()

    stream = io.StringIO()
    log = logging.getLogger("of the process")
    handler = ClosesItsStream(stream)
    log.addHandler(handler)
    try:
        with running(make_service()) as port:
            assert patient.get(f"http://127.0.0.1:{port}/v2/health/live").status_code == 200
        log.error("still written")
        assert stream.getvalue() == "still written\n"
    finally:
        log.removeHandler(handler)


def test_large_bodies_are_read_beside_the_loop() -> None:
    rows = 30_000
    data = np.tile([0.9, 1.0], rows).tobytes()
    tensor = {"name": "rows", "shape": [rows, 2], "datatype": "FP64", "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Idempotency-Key": "x"}
    response = call("POST", INFER, content=head + data, headers=headers)
    assert response.json()["outputs"][0]["shape"] == [rows]


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [(b"gzip", True), (b"br, GZIP;q=0.5", True), (b"gzip;q=0", False), (b"gzip; q=0.000, *", False), (b"*", True),
     (b"*;q=0", False), (b"", False), (b"br", False), (b"xgzip", False), (b"*;q=0, gzip", True)],
)  # fmt: skip
def test_who_takes_gzip(accepted: bytes, taken: bool) -> None:
    assert accepts_gzip(accepted) == taken


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Idempotency-Key", "Authorization", "Inference-Header-Content-Length"])
def test_headers_that_must_come_once(name: str) -> None:
    headers = [(name, "1"), (name, "2")]
    is_problem(call("POST", INFER, json=ONE, headers=headers), 400, "malformed")
    with running(make_service()) as port:  # which has a way of its own for small requests
        is_problem(patient.post(f"http://127.0.0.1:{port}{INFER}", json=ONE, headers=headers), 400, "malformed")
        twice = [("X-Other", "1"), ("X-Other", "2")]
        assert patient.post(f"http://127.0.0.1:{port}{INFER}", json=ONE, headers=twice).status_code == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via"])
def test_without_keys_no_proxy_may_pass_requests_on(name: str, tmp_path: Path) -> None:
    sent = {name: "203.0.113.9"}
    is_problem(call("POST", INFER, json=ONE, headers=sent), 403, "through-proxy")
    is_problem(call("GET", "/status", headers=sent), 403, "through-proxy")
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a")
    table.add(key)
    sent["Authorization"] = f"Bearer {token}"
    assert call("GET", "/status", make_service(keyring=Keyring(table)), headers=sent).status_code == 200


def test_columns_are_named_to_those_who_may_see_them(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", ["observe"])
    table.add(key)
    for path in ("/openapi.json", "/docs"):
        names = {}
        for who, sent in (("nobody", {}), ("wrong", {"Authorization": "Bearer x"}), ("key", bearer(token))):
            reply = call("GET", path, make_service(MIXED, keyring=Keyring(table)), headers=sent)
            assert reply.status_code == 200
            names[who] = "sex" in reply.text
        assert names == {"nobody": False, "wrong": False, "key": True}
        assert "sex" in call("GET", path, make_service(MIXED)).text  # without keys, to all on this machine
    public = call("GET", "/openapi.json", make_service(MIXED, keyring=Keyring(table))).json()
    assert public["paths"].keys() == call("GET", "/openapi.json", make_service(MIXED)).json()["paths"].keys()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_what_is_told_to_wait_is_told_how_long(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", quota=1)
    table.add(key)
    used_up = call("POST", INFER, make_service(keyring=Keyring(table)), json=ONE, headers=bearer(token))
    is_problem(used_up, 429, "quota-used-up")
    halted = call("GET", "/ping", make_service(answering=FakeAnswering(halted="x")))
    for reply in (used_up, halted):
        assert "Retry-After" not in str(reply.headers) + reply.text
    assert "waiting" not in halted.json()["title"]
    assert "waiting" in KINDS["busy"][1]


# ── repeats and quotas ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("quick", [False, True])
def test_others_cannot_tell_whether_a_repeat_had_the_same_body(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 1000.0, perf_counter=lambda: 1000.0)  # loads are of the last ten seconds
    monkeypatch.setattr(service_module, "time", clock)

    def world(second: float) -> list[str]:
        service = make_service()
        bodies = [{"inputs": [{**ONE["inputs"][0], "data": [one, 1, 1, 1]}]} for one in (0.3, second)]
        with running(service) as port, patient.Client(base_url=f"http://127.0.0.1:{port}") as client:
            path = INFER if quick else INFER.replace("infer", "versions/1/infer")
            replies = [client.post(path, json=one, headers={"Idempotency-Key": "k"}) for one in bodies]
            assert replies[1].status_code == (200 if second == 0.3 else 422)
            text, status = client.get("/metrics").text, client.get("/status").json()
        shown = [one for one in text.splitlines() if "_seconds_bucket" not in one and "_seconds_sum" not in one]
        shown = [one for one in shown if "_created" not in one]
        return [*shown, str(status["load"]["requests_per_second"]), str(status["load"]["answers_per_second"])]

    same, other = world(0.3), world(0.4)
    assert same == other
    assert 'reticent_requests_total{endpoint="infer",status="repeat"} 1.0' in same


def answered(service: Service, token: str, *asked: tuple[str | None, int]) -> list[tuple[int, bool]]:
    """Ask for so many rows under a key, one after the other: the status, and whether it was a repeat."""

    async def run(client: httpx.AsyncClient) -> list[tuple[int, bool]]:
        found = []
        for key, rows in asked:
            data = {"name": "rows", "shape": [rows, 1], "datatype": "FP64", "data": [0.3] * rows}
            headers = bearer(token) | ({} if key is None else {"Idempotency-Key": key})
            reply = await client.post("/v2/models/c/infer", json={"inputs": [data]}, headers=headers)
            found.append((reply.status_code, "Idempotent-Replayed" in reply.headers))
        return found

    found: list[tuple[int, bool]] = with_client(service, run)
    return found


def test_a_used_up_quota_gives_what_is_stored_and_nothing_else(tmp_path: Path) -> None:
    """Also after a restart, which forgets who asked, and when the answer has expired, which lets a key be used anew."""
    new_home(tmp_path / "home").close()
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", quota=3)
    table.add(key)
    now = [10**13]

    def ask(*asked: tuple[str | None, int]) -> list[tuple[int, bool]]:
        made = AnsweringService(Home(tmp_path / "home"), elsewhere=False, expiry=10, clock=lambda: now[0])
        try:
            ring = Keyring(table, used=made.clients())
            service = Service("c", Rules((Column("x"),), ("no", "yes")), made, batching.Batcher(made), keyring=ring)
            found = answered(service, token, *asked)
            assert ring.allowance(key).used == made.clients()[key.id] <= 3
            asyncio.run(service.batcher.close())
            return found
        finally:
            made.close()

    assert ask(("k", 2), ("k", 2), ("l", 1), ("l", 1)) == [(200, False), (200, True), (200, False), (200, True)]
    assert ask(("k", 2), ("m", 1), ("k", 1), (None, 1)) == [(200, True), (429, False), (422, False), (429, False)]
    now[0] += 11_000
    assert ask(("k", 60), ("l", 1), (None, 1)) == [(429, False)] * 3


def test_no_quota_is_overrun_by_asking_at_once(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", quota=3)
    table.add(key)
    service = make_service(keyring=Keyring(table))

    class Slow(Batcher):
        """Answers when all have asked."""

        def __init__(self, answering: Any, wanted: int) -> None:
            super().__init__(answering)
            self.wanted, self.all = wanted, asyncio.Event()

        async def ask(self, request: Request) -> Answered:
            self.wanted -= 1
            if not self.wanted:
                self.all.set()
            await self.all.wait()
            return await super().ask(request)

    async def run(client: httpx.AsyncClient) -> list[int]:
        body = {"inputs": [{**ONE["inputs"][0], "shape": [1, 2], "data": [0.9, 1]}]}
        keys = ["a", "a", "b", "a", "c", "d", "d", "b", "e"]
        service.batcher = Slow(service.answering, len(keys))
        asked = [client.post(INFER, json=body, headers={**bearer(token), "Idempotency-Key": one}) for one in keys]
        return [one.status_code for one in await asyncio.gather(*asked)]

    # a, a and b were charged; the second a is given back; of the others, a and b are stored when they are answered.
    assert with_client(service, run) == [200, 200, 200, 200, 429, 429, 429, 200, 429]
    assert service.keyring.allowance(key).used == service.answering.status().answered == 2
