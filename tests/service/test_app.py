"""The routes, as a caller sees them."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest
from stand_in import MIXED, Batcher, Desk, connect, make_service, running

from reticent.service.app import Service
from reticent.service.batching import Closing, Overloaded
from reticent.service.desk import Answered, Halted, Request

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
        {"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [sentinel, 1]}]},
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
        assert service.desk.status().answered == 2

    with_client(service, run)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(Overloaded(), 503, "busy"), (Closing(), 503, "closing"), (Halted(), 503, "busy"),
     (RuntimeError("s3cr3t"), 500, "internal"), (ValueError("s3cr3t"), 500, "internal")],
)  # fmt: skip
def test_errors_of_the_desk(
    error: Exception, status: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Batcher):
        async def ask(self, request: Request) -> Answered:
            raise error

    service = make_service()
    service.batcher = Broken(service.desk)
    with caplog.at_level(logging.DEBUG):
        is_problem(call("POST", INFER, service, json=ONE), status, kind)
    assert "s3cr3t" not in caplog.text
    assert any(one.name == "reticent.service" for one in caplog.records) == (status == 500)


def test_no_answers_left() -> None:
    desk = Desk(left=1)
    is_problem(call("POST", INFER, make_service(desk=desk), json=ONE), 503, "no-answers-left")
    assert desk.spent == 0


def test_halted_is_not_ready_but_alive() -> None:
    service = make_service(desk=Desk(halted="the disk is full"))
    is_problem(call("GET", "/v2/health/ready", service), 503, "busy")
    is_problem(call("GET", "/ping", make_service(desk=Desk(halted="x"))), 503, "busy")
    assert call("GET", "/v2/health/live", make_service(desk=Desk(halted="x"))).status_code == 200


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_pages_of_other_sites_cannot_ask_through_a_browser(headers: dict[str, str]) -> None:
    is_problem(call("POST", INFER, json=ONE, headers=headers), 403, "foreign-page")
    is_problem(call("GET", "/status", headers=headers), 403, "foreign-page")


def test_own_pages_can() -> None:
    for host in ("127.0.0.1:8341", "localhost:8341", "[::1]:8341"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert call("GET", "/status", headers=headers).status_code == 200


def test_events_come_once_a_second_and_end_with_the_server() -> None:
    service = make_service()
    with running(service) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
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
    assert isinstance(service.desk, Desk)
    assert service.desk.closed


def test_large_bodies_are_read_beside_the_loop() -> None:
    rows = 30_000
    data = np.tile([0.9, 1.0], rows).tobytes()
    tensor = {"name": "rows", "shape": [rows, 2], "datatype": "FP64", "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Idempotency-Key": "x"}
    response = call("POST", INFER, content=head + data, headers=headers)
    assert response.json()["outputs"][0]["shape"] == [rows]
