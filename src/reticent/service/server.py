"""The server: where it may be reached, how long it waits for a caller, and how it stops."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reticent.exact import integer
from reticent.service.app import Service, loopback, make_app
from reticent.service.keys import Keyring
from reticent.service.problems import MEDIA_TYPE, Problem

HOST, PORT = "127.0.0.1", 8341


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Where the service is reached: by this machine only, unless told otherwise.

    `behind_proxy` says that a proxy in front takes care of TLS.
    """

    host: str = HOST
    port: int = PORT
    certificate: Path | None = None
    private_key: Path | None = None
    password: str | None = None
    behind_proxy: bool = False

    def check(self, keyring: Keyring) -> None:
        """Refuse what would let anyone in, or send keys in the clear."""
        integer(self.port, "port", least=0)
        if self.port > 65535:
            raise ValueError(f"port must be at most 65535, got {self.port}")
        if (self.private_key is not None or self.password is not None) and self.certificate is None:
            raise ValueError("certificate must be given with private_key or password")
        for name, path in (("certificate", self.certificate), ("private_key", self.private_key)):
            if path is not None and not path.is_file():
                raise ValueError(f"{name} must be a file, got {path}")
        outside = not loopback(self.host)
        if (outside or self.behind_proxy) and keyring.open:
            where = f"host {self.host}" if outside else "behind_proxy"
            raise ValueError(f"{where} lets others ask: make a key first (reticent keys add), or bind to {HOST}")
        if outside and self.certificate is None and not self.behind_proxy:
            raise ValueError(
                f"host {self.host} would have keys and rows travel in the clear: give certificate and private_key, "
                "or behind_proxy if a proxy in front takes care of it"
            )

    @property
    def address(self) -> str:
        """Its URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long, and for how many, the server waits."""

    header_seconds: float = 10.0  # for the headers of a request to arrive
    header_bytes: int = 64 << 10
    idle_seconds: int = 75  # between two requests of a connection
    connections: int = 4096
    drain_seconds: int = 30  # for answers to leave, when the server stops


class Server(uvicorn.Server):
    """Stops without losing an answer: takes no more, answers what was taken, lets go of the store."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; streams of events end first, as they would never end by themselves."""
        self._service.closing.set()
        await super().shutdown(sockets)


def make_server(service: Service, binding: Binding | None = None, patience: Patience | None = None) -> Server:
    """A server that is ready to run, by `run()` or `await serve()`."""
    binding, patience = binding or Binding(), patience or Patience()
    binding.check(service.keyring)
    config = uvicorn.Config(
        make_app(service),
        host=binding.host,
        port=binding.port,
        http=_patient(patience),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,  # paths and times of callers are nobody's business
        server_header=False,
        date_header=False,
        proxy_headers=False,  # nothing here depends on where a caller is
        timeout_keep_alive=patience.idle_seconds,
        timeout_graceful_shutdown=patience.drain_seconds,
        ssl_certfile=binding.certificate,
        ssl_keyfile=binding.private_key,
        ssl_keyfile_password=binding.password,
    )
    return Server(config, service)


def _patient(patience: Patience) -> type[HttpToolsProtocol]:
    class Connection(_Connection):
        limits = patience

    return Connection


class _Connection(HttpToolsProtocol):
    """A connection whose headers must arrive in time, and within a size; uvicorn sees to the rest."""

    limits = Patience()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread = 0
        if len(self.connections) > self.limits.connections:
            self._refuse(Problem("busy", "", {"Retry-After": "1"}))
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is not None:
            self._unread += len(data)
        super().data_received(data)
        # Whatever part of it was body is no longer counted: the deadline is gone once the headers are there.
        if self._deadline is not None and self._unread > self.limits.header_bytes:
            self._refuse(Problem("too-large", f"the headers may have at most {self.limits.header_bytes} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._deadline is None:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_came()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Tell that this is not HTTP, as a problem document like all others."""
        self._refuse(Problem("malformed", "this is not a valid HTTP request"))

    def _expect_headers(self) -> None:
        self._unread = 0
        self._deadline = self.loop.call_later(self.limits.header_seconds, self._too_late)

    def _headers_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        self._refuse(Problem("too-slow", "the headers did not arrive in time"))

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application, and hang up."""
        self._headers_came()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else another answer is on its way
            self.transport.write(_raw(problem))
        self.transport.close()


def _raw(problem: Problem) -> bytes:
    response = problem.response()
    headers = {**dict(response.headers), "content-type": MEDIA_TYPE, "connection": "close"}
    lines = [f"HTTP/1.1 {problem.status} {problem.title}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + bytes(response.body)


def serve(service: Service, binding: Binding | None = None, patience: Patience | None = None) -> None:
    """Serve until a signal comes; SIGTERM and Ctrl-C let what was taken be answered."""
    make_server(service, binding, patience).run()


def listening(server: Server) -> tuple[str, int]:
    """Host and port that a running server was given, for port 0."""
    name: Any = server.servers[0].sockets[0].getsockname()
    return str(name[0]), int(name[1])
