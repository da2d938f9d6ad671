"""The OpenAPI document and its page."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from stand_in import MIXED, Rules, connect, make_service
from starlette.types import Receive, Scope, Send

from reticent.service import openapi
from reticent.service.app import make_app
from reticent.service.problems import KINDS

DOCUMENT = openapi.document("clinic", MIXED, 100, "1.0")


def test_every_route_is_described() -> None:
    paths = {getattr(route, "path", "") for route in make_app(make_service()).routes}
    told = (path.replace("clinic", "{name}") for path in DOCUMENT["paths"])
    written = {path.replace("versions/1", "versions/{version}") for path in told}
    assert written == paths - {"/", "/docs", "/openapi.json"}


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


app = make_app(make_service(MIXED))


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """The application, which is not told that it ends after every call."""
    if scope["type"] != "lifespan":
        await app(scope, receive, send)
        return
    for stage in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{stage}.complete"})


schema = schemathesis.openapi.from_asgi("/openapi.json", endless).exclude(path="/events")


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
