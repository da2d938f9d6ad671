"""The OpenAPI document and its page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import patient
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.result import Ok
from stand_in import MIXED, Rules, connect, make_service, running
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from reticent.service.http import openapi
from reticent.service.http.access import Keyring
from reticent.service.http.bodies import Limits
from reticent.service.http.problems import KINDS, MEDIA_TYPE
from reticent.service.http.routes import make_app
from reticent.service.keys import KeyTable, make_key

DOCUMENT = openapi.document("clinic", MIXED, 100, "1.0")
APART = ["/events", "/openapi.json"]  # a stream without an end, and where the others are read from: tested by hand


def test_routes_and_description_are_the_same() -> None:
    served = set()
    for route in make_app(make_service(dashboard=True)).routes:
        assert isinstance(route, Route)  # nothing is mounted that could have routes of its own
        served |= {(method, route.path) for method in (route.methods or set()) - {"HEAD"}}
    told = set()
    for path, methods in DOCUMENT["paths"].items():
        told |= {(method.upper(), one) for method in methods for one in spelled(path)}
    assert told == served


def spelled(path: str) -> list[str]:
    """The path as routes have it: with the model and its version as parts, and one for each file of the dashboard."""
    path = path.replace("models/clinic", "models/{name}").replace("versions/1", "versions/{version}")
    return [path.replace("{part}", one) for one in openapi.PARTS] if "{part}" in path else [path]


def test_its_examples_are_answered() -> None:
    async def run() -> None:
        async with connect(make_service(MIXED)) as client:
            found = 0
            for path, methods in (await client.get("/openapi.json")).json()["paths"].items():
                for kind, content in methods.get("post", {}).get("requestBody", {}).get("content", {}).items():
                    for example in content.get("examples", {}).values():
                        value = example["value"]
                        body = value if isinstance(value, str) else json.dumps(value)
                        reply = await client.post(path, content=body, headers={"Content-Type": kind})
                        assert reply.status_code == 200, (path, kind, reply.text)
                        found += 1
            assert found == 7

    asyncio.run(run())


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page, policy = openapi.page(DOCUMENT)
    text = page.decode()
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in text
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", text)
    assert all(f"id={kind}>" in text for kind in KINDS)


def test_names_are_escaped() -> None:
    page, _ = openapi.page(openapi.document("<b>&", Rules(), 100, "1.0"))
    assert b"<b>" not in page


# ── the stream ────────────────────────────────────────────────────────────────────────────────────────────────────


def read_events(lines: Iterator[str], wanted: int) -> list[dict[str, Any]]:
    """The next events of a stream, which has no end of its own."""
    found = []
    for _ in range(wanted):
        assert next(lines) == "event: status"
        found.append(json.loads(next(lines).removeprefix("data: ")))
        assert next(lines) == ""
    return found


def check_refused(reply: httpx.Response, status: int) -> None:
    assert reply.status_code == status
    assert reply.headers["content-type"] == MEDIA_TYPE
    assert reply.json()["status"] == status


@pytest.mark.slow
def test_the_stream_of_events() -> None:
    described = DOCUMENT["paths"]["/events"]["get"]["responses"]
    with running(make_service(MIXED, limits=Limits(streams=1, status_seconds=0.05))) as port:
        url = f"http://127.0.0.1:{port}/events"
        with httpx.stream("GET", url, timeout=60) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].partition(";")[0] in described["200"]["content"]
            lines = stream.iter_lines()
            for told in read_events(lines, 2):
                assert (told["model"], told["phase"], told["drift"]) == ("clinic", 1, "not tested")
            check_refused(patient.get(url), 503)  # there may be one at a time
            read_events(lines, 1)
        check_refused(patient.get(url, headers={"Host": "elsewhere.example"}), 403)
        check_refused(patient.post(url), 405)
    assert set(described) == {"200", "401", "403", "503"}


@pytest.mark.slow
def test_the_stream_of_events_needs_a_key(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys.sqlite")
    token, key = make_key("ward 3", ["observe"])
    table.add(key)
    with running(make_service(MIXED, keyring=Keyring(table))) as port:
        url = f"http://127.0.0.1:{port}/events"
        for sent in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": token}):
            check_refused(patient.get(url, headers=sent), 401)
        with httpx.stream("GET", url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as stream:
            (told,) = read_events(stream.iter_lines(), 1)
        assert "clients" not in told  # for administrators
    table.close()


# ── everything else ───────────────────────────────────────────────────────────────────────────────────────────────


app = make_app(make_service(MIXED, dashboard=True))


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """The application, which is not told that it ends after every call."""
    if scope["type"] != "lifespan":
        await app(scope, receive, send)
        return
    for stage in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{stage}.complete"})


schema = schemathesis.openapi.from_asgi("/openapi.json", endless).exclude(path=APART)


def test_all_that_is_described_is_tried() -> None:
    tried = {found.ok().path for found in schema.get_all_operations() if isinstance(found, Ok)}
    assert tried | set(APART) == set(DOCUMENT["paths"])


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=60, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_whatever_is_sent_no_error_is_ours(case: Any) -> None:
    response = case.call(headers={"Host": "127.0.0.1"})
    assert response.status_code < 500, response.text
    if response.status_code >= 400 and case.method.upper() != "HEAD":
        assert response.json()["status"] == response.status_code
        assert response.json()["error"]
