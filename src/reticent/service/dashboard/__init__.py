"""The dashboard: one page that needs nothing but this service, and shows nothing that is not public.

The page is static, so anyone who reaches the service may load it; all numbers come by requests that carry a key.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from reticent.service.app import Call, Service, _Endpoint, _json
from reticent.service.keys import Key
from reticent.service.problems import Problem
from reticent.service.store import Damaged

HERE = Path(__file__).parent
SHOWN = 8  # rows of the ledger

# Nothing inline is run, nothing is loaded from or sent elsewhere, and no other page may frame this one.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}

# Where a file is served, which it is, and what it is.
FILES = (
    ("/", "index.html", "text/html; charset=utf-8"),
    ("/dashboard/app.js", "app.js", "text/javascript; charset=utf-8"),
    ("/dashboard/style.css", "style.css", "text/css; charset=utf-8"),
    ("/dashboard/icon.svg", "icon.svg", "image/svg+xml"),
    ("/dashboard/uplot.js", "uplot/uplot.js", "text/javascript; charset=utf-8"),
    ("/dashboard/uplot.css", "uplot/uplot.css", "text/css; charset=utf-8"),
)


def dashboard_routes() -> list[BaseRoute]:
    """The page and its files, the end of the ledger, and its verification."""
    return [
        *(Route(path, _static(HERE / name, kind), methods=["GET"]) for path, name, kind in FILES),
        Route("/dashboard/ledger", _Told(_ledger, "dashboard_ledger"), methods=["GET"]),
        Route("/dashboard/verify", _Told(_verify, "dashboard_verify"), methods=["POST"]),
    ]


def _static(path: Path, kind: str) -> Callable[[Request], Awaitable[Response]]:
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'

    async def get(request: Request) -> Response:
        headers = {**HEADERS, "ETag": tag}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, 200, {**headers, "Content-Encoding": "gzip"}, kind)
        return Response(body, 200, headers, kind)

    return get


class _Told:
    """A route that answers by JSON as the others do, for the service of the application that it is part of."""

    def __init__(self, handler: Callable[[Service, Call], Awaitable[dict[str, Any]]], name: str) -> None:
        self._handler, self._name = handler, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service

        async def answer(call: Call) -> Response:
            return _json(await self._handler(service, call))

        await _Endpoint(service, answer, self._name)(scope, receive, send)


async def _ledger(service: Service, call: Call) -> dict[str, Any]:
    """The last rows of the ledger, what the last verification found, what the caller's own key allows, who added rows.

    Who asked is told to administrators, and to clients of themselves.
    """
    key = service._admit(call, "observe")
    admin = key.allows("admin")
    clients = {str(one["id"]) for one in service.keyring.clients()} if admin else {key.id}
    tail = getattr(service.desk, "tail", None)
    return {
        "rows": [
            {
                "number": row.number,
                "time": row.time,
                "client": row.client if admin or row.client == key.id else None,
                "answers": row.answers,
                "phase": row.phase,
                "cost": row.cost,
                "previous": row.previous.hex(),
                "hash": row.hash.hex(),
            }
            for row in (tail()[-SHOWN:] if tail else ())
        ],
        "verified": _found(call),
        "may_verify": admin and hasattr(service.desk, "verify"),
        "admin": admin,
        "open": service.keyring.open,
        "own": _own(service, key),
        "added": _added(service, clients),
    }


def _own(service: Service, key: Key) -> dict[str, Any]:
    used = service.keyring.allowance(key).used
    return {"id": key.id, "name": key.name, "rate": key.rate, "quota": key.quota, "used": used}


def _added(service: Service, clients: Iterable[str]) -> dict[str, dict[str, int]]:
    """How many rows of the next phase are each client's, and how many may be, where clients have a cap."""
    if (added := getattr(service.desk, "added", None)) is None:
        return {}
    told = {client: added(client) for client in clients}
    return {client: {"rows": one[0], "cap": one[1]} for client, one in told.items() if one is not None}


async def _verify(service: Service, call: Call) -> dict[str, Any]:
    """Check all of the store, one check at a time. It reads every row, so only administrators may start it."""
    service._admit(call, "admin")
    state = call.scope["app"].state
    if not hasattr(service.desk, "verify"):
        raise Problem("not-found", "this service keeps no ledger that could be verified")
    if getattr(state, "verifying", False):
        raise Problem("busy", "the ledger is being verified", {"Retry-After": "5"})
    state.verifying, began = True, time.monotonic()
    try:
        found = await asyncio.to_thread(service.desk.verify)
        result = {"intact": True, "length": found.length, "head": found.head}
    except (Damaged, OSError):
        # What exactly is damaged may name paths; `reticent status --verify` says it to whoever holds the folder.
        result = {"intact": False}
    finally:
        state.verifying = False
    state.verified = {**result, "time": time.time(), "seconds": time.monotonic() - began}
    return {"verified": state.verified}


def _found(call: Call) -> dict[str, Any] | None:
    found: dict[str, Any] | None = getattr(call.scope["app"].state, "verified", None)
    return found
