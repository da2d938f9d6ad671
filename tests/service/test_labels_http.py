"""Labels that arrive later, over HTTP and by the clients: what is said is the same, whatever becomes of a label."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from later import answering_of, chain, labels_given, lesson, opened, rows_of, votes
from stand_in import connect, running

from reticent import AsyncClient, Client
from reticent.data.schema import Column, Schema
from reticent.predictors.alarms import QualityAlarm
from reticent.service.answering import AnsweringService
from reticent.service.client_messages import ServiceError
from reticent.service.home import Home
from reticent.service.http.access import DAY, Keyring
from reticent.service.http.batching import Batcher
from reticent.service.http.service import Service
from reticent.service.keys import KeyTable, make_key

PATH = "/v2/models/clinic"
TWO = Schema(
    columns=(Column("age", "number", range=(-1, 1)), Column("days", "number", range=(-1, 1))),
    target="ill",
    classes=("yes", "no"),  # not in ascending order
)
ONE = Schema(columns=(Column("age", "number", range=(-1, 1)),), target="ill", classes=("yes", "no"))
UNKNOWN = "0" * 32


def served(answering: AnsweringService, keyring: Keyring | None = None) -> Service:
    rules = TWO if answering.columns == 2 else ONE
    return Service("clinic", rules, answering, Batcher(answering), keyring=keyring, dashboard=False)


@asynccontextmanager
async def connected(answering: AnsweringService, keyring: Keyring | None = None) -> AsyncIterator[httpx.AsyncClient]:
    service = served(answering, keyring)
    async with connect(service) as client:
        yield client
    await service.batcher.close()
    answering.close()


@contextmanager
def keys(folder: Path, **limits: Any) -> Iterator[tuple[KeyTable, dict[str, dict[str, str]]]]:
    table = KeyTable(folder / "keys.sqlite")
    headers = {}
    for name, scope in (("ann", "ask"), ("bob", "ask"), ("owner", "teach"), ("eve", "observe")):
        token, key = make_key(name, [scope], **(limits if scope == "teach" else {}))
        table.add(key)
        headers[name] = {"Authorization": f"Bearer {token}"}
    yield table, headers
    table.close()


def question(rows: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "rows", "datatype": "FP64", "shape": list(rows.shape), "data": rows.tolist()}]}


def taught(rows: Any, labels: list[Any]) -> dict[str, Any]:
    given = question(rows)
    given["inputs"].append({"name": "ill", "datatype": "BYTES", "shape": [len(labels)], "data": labels})
    return given


def output(reply: dict[str, Any], name: str) -> list[Any]:
    (found,) = [one for one in reply["outputs"] if one["name"] == name]
    return list(found["data"])


# ── answer ids ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_form_of_answer_has_its_ids(tmp_path: Path) -> None:
    async def run() -> None:
        async with connected(answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=40))) as client:
            rows = rows_of(1, 3)
            key = {"Idempotency-Key": "k"}
            first = (await client.post(f"{PATH}/infer", json=question(rows), headers=key)).json()
            ids = output(first, "answer_ids")
            assert len({*ids}) == 3
            assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)
            again = (await client.post(f"{PATH}/infer", json=question(rows), headers=key)).json()
            assert (output(again, "answer_ids"), again["parameters"]["replayed"]) == (ids, True)
            invoked = (await client.post("/invocations", json={"instances": rows.tolist()})).json()
            assert len({*invoked["answer_ids"], *ids}) == 6
            labels_only = {**question(rows), "outputs": [{"name": "labels"}]}
            found = (await client.post(f"{PATH}/infer", json=labels_only)).json()
            assert [one["name"] for one in found["outputs"]] == ["labels"]
            about = (await client.get(PATH)).json()
            assert [one["name"] for one in about["outputs"]] == ["labels", "answer_ids"]
            assert about["parameters"]["target"] == "ill"

    asyncio.run(run())


def test_a_predictor_without_later_labels_says_nothing_of_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with connected(answering_of(tmp_path / "clinic", votes())) as client:
            found = (await client.post(f"{PATH}/infer", json=question(rows_of(1, 2, 1)))).json()
            assert [one["name"] for one in found["outputs"]] == ["labels"]
            assert found["parameters"] == {"phase": 1, "replayed": False}
            assert "target" not in (await client.get(PATH)).json()["parameters"]
            for path in ("labelled", "labelled/withdraw", "feedback"):
                assert (await client.post(f"{PATH}/{path}", json={})).status_code == 404
            assert not any("labelled" in one or "feedback" in one for one in (await client.get("/openapi.json")).json())

    asyncio.run(run())


# ── feedback ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_is_said_and_written_whether_or_not_feedback_counts(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=30, gauge_share=0))
        wal = answering.home.folder / "store.sqlite-wal"
        with keys(tmp_path) as (table, headers):
            async with connected(answering, Keyring(table)) as client:

                async def ask(count: int, who: str = "ann") -> list[str]:
                    body = question(rows_of(count, count))
                    reply = await client.post(f"{PATH}/infer", json=body, headers=headers[who])
                    return output(reply.json(), "answer_ids")

                closed = await ask(30)  # all of phase 1
                mine, theirs = await ask(2), await ask(2, "bob")
                assert answering.status().phase == 2
                seen = []
                for ids in (mine, mine, theirs, closed[:2], [UNKNOWN, "f" * 32], ["no id", ""], mine[:1] * 2):
                    status, before = answering.status(), wal.stat().st_size
                    body = {"answer_ids": ids, "labels": ["no", "yes"]}
                    reply = await client.post(f"{PATH}/feedback", json=body, headers=headers["ann"])
                    seen.append((reply.status_code, reply.content, dict(reply.headers), wal.stat().st_size - before))
                    assert answering.status() == status
                assert all(one == seen[0] for one in seen), seen
                assert seen[0][0] == 202
                assert reply.json() == {"model_name": "clinic", "received": 2}
                assert labels_given(answering) == [1, 1, -1, -1]  # the last one took the place of the first

    asyncio.run(run())


def test_feedback_by_idempotency_key_names_the_same_slots(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=30))
        async with connected(answering) as client:
            key = {"Idempotency-Key": "monday"}
            await client.post(f"{PATH}/infer", json=question(rows_of(1, 4)), headers=key)
            for labels, rows in ((["yes", "no"], [0, 3]), (["no"], [17]), ([None], [0]), (["what"], [1])):
                body = {"idempotency_key": "monday", "rows": rows, "labels": labels}
                assert (await client.post(f"{PATH}/feedback", json=body)).status_code == 202
            assert labels_given(answering) == [-1, -1, -1, 0]

    asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"labels": ["no"]}',
        b'{"labels": [], "answer_ids": []}',
        b'{"labels": ["no"], "answer_ids": "a"}',
        b'{"labels": ["no"], "answer_ids": [1]}',
        b'{"labels": ["no", "yes"], "answer_ids": ["a"]}',
        b'{"labels": ["no"], "answer_ids": ["a"], "idempotency_key": "k"}',
        b'{"labels": ["no"], "idempotency_key": "k"}',
        b'{"labels": ["no"], "idempotency_key": "k", "rows": ["0"]}',
        b'{"labels": ["no"], "idempotency_key": "k", "rows": [0.5]}',
    ],
)
def test_malformed_feedback_is_refused_by_its_shape(tmp_path: Path, body: bytes) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=30))
        async with connected(answering) as client:
            reply = await client.post(f"{PATH}/feedback", content=body)
            assert (reply.status_code, reply.json()["type"]) == (400, "/docs#malformed")

    asyncio.run(run())


@pytest.mark.parametrize("by", [b'"idempotency_key": "\\ud800", "rows": [0]', b'"answer_ids": ["\\ud800"]'])
def test_half_of_a_character_in_a_key_halts_nothing(tmp_path: Path, by: bytes) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="feedback", phase_rows=30))
        async with connected(answering) as client:
            reply = await client.post(f"{PATH}/feedback", content=b'{"labels": ["no"], %b}' % by)
            assert (reply.status_code, answering.halted) == (202, None)

    asyncio.run(run())


@pytest.mark.parametrize("label", [b"NaN", b"null", b'"else"', b"[1, 2]", b'{"a": 1}', b"1e999", b'"\\ud800"', b"true"])
def test_no_label_is_refused_for_what_it_holds(tmp_path: Path, label: bytes) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=30))
        async with connected(answering) as client:
            asked = (await client.post(f"{PATH}/infer", json=question(rows_of(1, 1)))).json()
            ids = output(asked, "answer_ids")[0].encode()
            body = b'{"labels": [%b], "answer_ids": ["%b"]}' % (label, ids)
            told = await client.post(f"{PATH}/feedback", content=body)
            assert (told.status_code, told.json()["received"]) == (202, 1)
            assert labels_given(answering) == [-1]
            given = (
                b'{"inputs": [{"name": "rows", "datatype": "FP64", "shape": [1, 2], "data": [0, 0]},'
                b'{"name": "ill", "datatype": "BYTES", "shape": [1], "data": [%b]}]}' % label
            )
            reply = await client.post(f"{PATH}/labelled", content=given)
            assert (reply.status_code, reply.json()["rows"]) == (202, 1)
            assert answering.status().labelled_received == 1

    asyncio.run(run())


# ── labelled rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_labelled_rows_are_received_once_and_withdrawn(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=30, gauge_share=0))
        async with connected(answering) as client:
            rows, key = rows_of(1, 3), {"Idempotency-Key": "monday"}
            reply = await client.post(f"{PATH}/labelled", json=taught(rows, ["yes", "no", "else"]), headers=key)
            expected = {"model_name": "clinic", "rows": 3, "kept": 3, "first": 0, "phase": 2, "missing": 27}
            assert (reply.status_code, reply.json()) == (202, expected)
            again = await client.post(f"{PATH}/labelled", json=taught(rows, ["yes", "no", "else"]), headers=key)
            assert (again.json(), again.headers["Idempotent-Replayed"]) == (expected, "true")
            other = await client.post(f"{PATH}/labelled", json=taught(rows, ["yes", "no", "no"]), headers=key)
            assert other.status_code == 422
            intake = answering._predictor._machine.intake
            assert intake.next_rows().training.class_indices.tolist() == [1, 0, -1]
            gone = await client.post(f"{PATH}/labelled/withdraw", json={"rows": [1, 99, -1, 10**30]})
            assert (gone.status_code, gone.json()) == (202, {"model_name": "clinic", "received": 4, "withdrawn": 1})
            assert intake.next_rows().training.class_indices.tolist() == [1, -1, -1]

    asyncio.run(run())


def test_labelled_rows_are_refused_by_shape_alone(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=30))
        async with connected(answering) as client:
            rows = rows_of(1, 3)
            bad = [
                question(rows), taught(rows, ["no"] * 2), taught(rows[:, :1], ["no"] * 3), {"inputs": []},
                {"inputs": taught(rows, ["no"] * 3)["inputs"][1:]}, taught(rows[:0], []),
            ]  # fmt: skip
            for body in bad:
                reply = await client.post(f"{PATH}/labelled", json=body)
                assert reply.status_code == 400, reply.text
            wrong: list[Any] = [{}, {"rows": []}, {"rows": ["a"]}, []]
            for one in wrong:
                assert (await client.post(f"{PATH}/labelled/withdraw", json=one)).status_code == 400
            assert answering.status().labelled_received == 0
            assert (await client.post("/v2/models/other/labelled", json=bad[0])).status_code == 404

    asyncio.run(run())


def test_each_scope_allows_what_it_says(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=30))
        with keys(tmp_path) as (table, headers):
            async with connected(answering, Keyring(table)) as client:
                lessons, told = taught(rows_of(1, 1), ["no"]), {"answer_ids": [UNKNOWN], "labels": ["no"]}
                found: dict[str, list[int]] = {}
                for who in ("ann", "owner", "eve"):
                    found[who] = []
                    for path, body in (
                        ("infer", question(rows_of(1, 1))),
                        ("labelled", lessons),
                        ("feedback", told),
                        ("labelled/withdraw", {"rows": [0]}),
                    ):
                        reply = await client.post(f"{PATH}/{path}", json=body, headers=headers[who])
                        found[who].append(reply.status_code)
                assert found == {"ann": [200, 403, 202, 403], "owner": [403, 202, 403, 202], "eve": [403] * 4}
                assert (await client.post(f"{PATH}/labelled", json=lessons)).status_code == 401

    asyncio.run(run())


def test_a_key_may_send_so_many_labelled_rows_a_day(tmp_path: Path) -> None:
    async def run() -> None:
        now = [100.5 * DAY]
        answering = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=300))
        with keys(tmp_path, daily_rows=10) as (table, headers):
            owner = table.all()[2].id
            ring = Keyring(table, wall=lambda: now[0])
            async with connected(answering, ring) as client:

                async def send(count: int, key: str) -> httpx.Response:
                    named = {**headers["owner"], "Idempotency-Key": key}
                    body = taught(rows_of(1, count), ["no"] * count)
                    return await client.post(f"{PATH}/labelled", json=body, headers=named)

                assert (await send(6, "a")).status_code == 202
                assert (await send(6, "a")).status_code == 202  # a repeat, which is not counted
                refused = await send(5, "b")
                assert (refused.status_code, refused.json()["type"]) == (429, "/docs#day-used-up")
                assert "4 of 10" in refused.json()["detail"]
                assert refused.headers["Retry-After"] == str(DAY // 2)
                assert (await send(4, "c")).status_code == 202
                assert (await send(11, "d")).status_code == 413
                now[0] += DAY / 2
                assert (await send(5, "b")).status_code == 202
                assert answering.taught(0) == {owner: 15}
            again = Keyring(table, taught={owner: 8}, wall=lambda: now[0])  # after a restart
            assert again.allowance(table.all()[2])._taught == 8

    asyncio.run(run())


def test_missing_labelled_rows_are_named(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", votes(truth="rows", phase_rows=100, growth=0.2))
        left = answering.status().answers_left_in_phase
        async with connected(answering) as client:
            assert (await client.post(f"{PATH}/infer", json=question(rows_of(1, left, 1)))).status_code == 200
            reply = await client.post(f"{PATH}/infer", json=question(rows_of(1, 1, 1)))
            assert (reply.status_code, reply.json()["type"]) == (503, "/docs#rows-needed")
            assert reply.json()["detail"] == "the next phase needs 100 more labelled rows"
            assert (await client.get("/v2/health/ready")).status_code == 200
            sent = await client.post(f"{PATH}/labelled", json=taught(rows_of(2, 100, 1), ["no", "yes"] * 50))
            assert sent.status_code == 202
            reply = await client.post(f"{PATH}/infer", json=question(rows_of(1, 1, 1)))
            assert (reply.status_code, reply.json()["parameters"]["phase"]) == (200, 2)

    asyncio.run(run())


def test_an_alarm_stands_in_every_answer(tmp_path: Path) -> None:
    async def run() -> None:
        alarm = QualityAlarm(accuracy=0.9)
        predictor = chain(epsilon=50, truth="rows", phase_rows=300, gauge_share=0.5, alarm=alarm)
        answering = answering_of(tmp_path / "clinic", predictor)
        rng = np.random.default_rng(1)
        before = answering.status().guarantee
        for number in range(3):
            wrong = (rng.random(300) < 0.5).astype(np.int64)
            given = lesson(answering, f"{number}", 300)._replace(rows=rng.uniform(-1, 1, (300, 2)), labels=wrong)
            answering.add_labelled(given)
            answering.maintain()
        since = answering.status().alarm_since
        assert since is not None
        async with connected(answering) as client:
            found = (await client.post(f"{PATH}/infer", json=question(rows_of(1, 2)))).json()
            assert found["parameters"]["quality"] == f"alarm since phase {since}"
            invoked = (await client.post("/invocations", json={"instances": rows_of(1, 2).tolist()})).json()
            assert invoked["quality"] == f"alarm since phase {since}"
            assert (await client.get("/v2/health/ready")).json()["ready"] is True
            assert (await client.get("/guarantee", headers={"Accept": "application/json"})).json()["epsilon"] == 50
            status = (await client.get("/status")).json()
            assert (status["alarm_since"], len(status["quality"])) == (since, 3)
        assert answering.status().guarantee == before

    asyncio.run(run())


def test_the_document_describes_the_routes(tmp_path: Path) -> None:
    async def run() -> None:
        async with connected(answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=30))) as client:
            document = (await client.get("/openapi.json")).json()
            scopes = {"labelled": "teach", "labelled/withdraw": "teach", "feedback": "ask"}
            for path, scope in scopes.items():
                about = document["paths"][f"{PATH}/{path}"]["post"]
                assert about["x-scope"] == scope
                for example in about["requestBody"]["content"]["application/json"]["examples"].values():
                    reply = await client.post(f"{PATH}/{path}", json=example["value"])
                    assert reply.status_code == 202, (path, reply.text)

    asyncio.run(run())


# ── the clients ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_teaches_and_gives_feedback(tmp_path: Path) -> None:
    answering = answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=40, gauge_share=0))
    with running(served(answering)) as port, Client(f"http://127.0.0.1:{port}", model="clinic") as client:
        rows = rows_of(1, 5)
        columns = {"age": rows[:, 0], "days": rows[:, 1]}
        first = client.teach(rows, ["no", "yes", "no", "else", None], idempotency_key="monday")
        assert (first.kept, first.numbers.tolist(), first.phase) == (5, [0, 1, 2, 3, 4], 2)
        assert client.teach(rows, ["no", "yes", "no", "else", None], idempotency_key="monday").numbers[0] == 0
        assert client.teach({**columns, "ill": ["no"] * 5}).numbers.tolist() == [5, 6, 7, 8, 9]
        assert client.withdraw([0, 7]) == 2
        asked = client.ask_with_answer_ids(rows, idempotency_key="k")
        assert (len(asked.labels), len({*asked.answer_ids.tolist()})) == (5, 5)
        assert client.ask_with_answer_ids(rows, idempotency_key="k").answer_ids.tolist() == asked.answer_ids.tolist()
        assert client.feedback(asked.answer_ids[:2], ["no", "yes"]) == 2
        assert client.feedback(None, ["yes"], idempotency_key="k", rows=[4]) == 1
        assert client.feedback(asked.answer_ids[:1], [None]) == 1
        assert labels_given(answering) == [-1, 1, -1, -1, 1]
        assert len(client.ask(rows)) == 5
        for wrong in (
            lambda: client.teach(rows),
            lambda: client.teach(rows, ["no"]),
            lambda: client.feedback(None, ["no"]),
            lambda: client.feedback(["no"], asked.answer_ids[:1]),
        ):
            with pytest.raises(ValueError, match="must"):
                wrong()


def test_an_asynchronous_client_does_the_same(tmp_path: Path) -> None:
    answering = answering_of(tmp_path / "clinic", chain(truth="both", phase_rows=40, gauge_share=0))

    async def run(port: int) -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}", model="clinic") as client:
            rows = rows_of(1, 3)
            assert (await client.teach(rows, ["no", "yes", "no"])).numbers.tolist() == [0, 1, 2]
            asked = await client.ask_with_answer_ids(rows)
            assert await client.feedback(asked.answer_ids, ["no", "yes", "no"]) == 3
            assert await client.withdraw([1]) == 1

    with running(served(answering)) as port:
        asyncio.run(run(port))
    assert labels_given(answering) == [0, 1, 0]


def test_a_client_of_a_service_without_later_labels_is_told(tmp_path: Path) -> None:
    service = served(answering_of(tmp_path / "clinic", votes()))
    with running(service) as port, Client(f"http://127.0.0.1:{port}", model="clinic") as client:
        with pytest.raises(ValueError, match="takes no labelled rows"):
            client.teach(rows_of(1, 3, 1), ["no"] * 3)
        with pytest.raises(ServiceError):
            client.feedback([UNKNOWN], ["no"])
        with pytest.raises(ServiceError, match="there is one output"):
            client.ask_with_answer_ids(rows_of(1, 3, 1))


def test_phases_that_are_due_begin_without_a_query(tmp_path: Path) -> None:
    async def run() -> None:
        answering = answering_of(tmp_path / "clinic", chain(truth="rows", phase_rows=30))
        async with connected(answering) as client:
            await client.post(f"{PATH}/labelled", json=taught(rows_of(1, 65), ["no"] * 65))
            async with asyncio.timeout(600):  # after the reply, while nothing else is to be done
                while answering.status().phase < 3:
                    await asyncio.sleep(0)
        assert answering.status().phase == 3

    asyncio.run(run())
    answering = opened(Home(tmp_path / "clinic"))
    assert (answering.status().phase, answering.status().labelled_waiting) == (3, 5)
    answering.close()
