"""The server relies on parts of uvicorn that it does not document: they are there, in the oldest and newest allowed.

`make oldest` runs this with the oldest uvicorn of `pyproject.toml`, `make test` with the newest below its bound.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
OVERRIDDEN = {
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "data_received": ["data"],
    "on_message_begin": [],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "on_response_complete": [],
    "shutdown": [],
    "send_400_response": ["msg"],
}
CALLED: dict[str, list[str]] = {"_unset_keepalive_if_required": [], "timeout_keep_alive_handler": []}
# Set by `__init__` or when a connection or message begins, and used by the server or by what it hands to uvicorn.
ATTRIBUTES = (
    "loop", "connections", "flow", "transport", "timeout_keep_alive_task", "cycle", "pipeline", "parser", "url",
    "headers",
)  # fmt: skip


def arguments(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)[1:]


@pytest.mark.parametrize(("method", "expected"), [*OVERRIDDEN.items(), *CALLED.items()])
def test_methods_have_the_arguments_that_we_give(method: str, expected: list[str]) -> None:
    assert arguments(getattr(HttpToolsProtocol, method)) == expected


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_connection_keeps_what_we_use(name: str) -> None:
    assert re.search(rf"\bself\.{name}\b.*=", inspect.getsource(HttpToolsProtocol))


@pytest.mark.parametrize("name", ["message_event", "response_complete", "disconnected", "keep_alive", "more_body"])
def test_a_request_has_the_fields_of_our_record_of_one(name: str) -> None:
    assert re.search(rf"\bself\.{name}\b.*=", inspect.getsource(RequestResponseCycle))


def test_uvicorn_asks_no_more_of_a_request_than_our_record_has() -> None:
    """Outside of the request's own class, a connection looks at these fields of `self.cycle` only."""
    used = set(re.findall(r"\bself\.cycle\.(\w+)", inspect.getsource(HttpToolsProtocol)))
    assert used <= {"message_event", "response_complete", "disconnected", "keep_alive", "more_body", "body", "run_asgi"}


def test_reading_is_paused_and_resumed_by_flow_control() -> None:
    assert arguments(FlowControl.__init__) == ["transport"]
    assert arguments(FlowControl.resume_reading) == []
    source = inspect.getsource(FlowControl)
    assert all(re.search(rf"\bself\.{name}\b.*=", source) for name in ("read_paused", "write_paused"))


def test_a_server_is_stopped_by_its_ticks_and_shut_down() -> None:
    assert arguments(uvicorn.Server.on_tick) == ["counter"]
    assert arguments(uvicorn.Server.shutdown) == ["sockets"]
    assert arguments(uvicorn.Server.serve) == ["sockets"]
    for method in (uvicorn.Server.on_tick, uvicorn.Server.shutdown, uvicorn.Server.serve):
        assert inspect.iscoroutinefunction(method)


def test_uvicorn_is_bounded_above() -> None:
    service = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]["service"]
    (declared,) = (one for one in service if one.startswith("uvicorn"))
    bounds = re.fullmatch(r"uvicorn>=(\d+)\.(\d+),<(\d+)\.(\d+)", declared)
    assert bounds is not None
    low, high = (tuple(map(int, bounds.groups()[i : i + 2])) for i in (0, 2))
    assert low <= tuple(map(int, uvicorn.__version__.split(".")[:2])) < high
