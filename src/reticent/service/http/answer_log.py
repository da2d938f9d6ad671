"""The end of the answer log and its verification, for the dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from reticent.service.http.calls import Call
from reticent.service.http.problems import Problem
from reticent.service.http.responses import json_response
from reticent.service.http.service import Service
from reticent.service.keys import Key
from reticent.service.store.protocol import Damaged

SHOWN = 8  # rows of the answer log


class AnswerLogView:
    """What the dashboard shows of the answer log. The routes keep the older name, ledger."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._verifying = False
        self._verified: dict[str, Any] | None = None

    async def ledger(self, call: Call) -> Response:
        """The last rows, the result of the last verification, what the caller's key allows, and who added rows.

        Administrators see the client of each row. Other callers see their own rows as theirs.
        """
        service = self._service
        key = service.admit(call, "observe")
        admin = key.allows("admin")
        clients = {str(one["id"]) for one in service.keyring.clients()} if admin else {key.id}
        tail = getattr(service.answering, "tail", None)
        shown = {
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
            "verified": self._verified,
            "may_verify": admin and hasattr(service.answering, "verify"),
            "admin": admin,
            "open": service.keyring.open,
            "own": self._own(key),
            "added": self._added(clients),
        }
        return json_response(shown)

    def _own(self, key: Key) -> dict[str, Any]:
        used = self._service.keyring.allowance(key).used
        return {"id": key.id, "name": key.name, "rate": key.rate, "quota": key.quota, "used": used}

    def _added(self, clients: Iterable[str]) -> dict[str, dict[str, int]]:
        """How many rows of the next phase come from each client, and how many may, if clients have a cap."""
        if (added := getattr(self._service.answering, "added", None)) is None:
            return {}
        found = {client: added(client) for client in clients}
        return {client: {"rows": one[0], "cap": one[1]} for client, one in found.items() if one is not None}

    async def verify(self, call: Call) -> Response:
        """Check all of the store, one check at a time. It reads every row, so only administrators may start it."""
        self._service.admit(call, "admin")
        verify = getattr(self._service.answering, "verify", None)
        if verify is None:
            raise Problem("not-found", "this service has no answer log that could be verified")
        if self._verifying:
            raise Problem("busy", "the answer log is being verified", {"Retry-After": "5"})
        self._verifying, began = True, time.monotonic()
        try:
            found = await asyncio.to_thread(verify)
            result = {"intact": True, "length": found.length, "head": found.head}
        except (Damaged, OSError):
            # The error may name paths; `reticent status --verify` shows it to whoever has access to the folder.
            result = {"intact": False}
        finally:
            self._verifying = False
        self._verified = {**result, "time": time.time(), "seconds": time.monotonic() - began}
        return json_response({"verified": self._verified})
