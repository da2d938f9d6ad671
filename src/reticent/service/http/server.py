"""The server: its address, how long it waits for callers, and how it stops."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import re
import socket
from collections.abc import Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reticent.exact import integer
from reticent.service import traces
from reticent.service.http.access import Keyring
from reticent.service.http.calls import is_loopback
from reticent.service.http.problems import Problem
from reticent.service.http.responses import raw
from reticent.service.http.routes import make_app
from reticent.service.http.service import Service
from reticent.service.http.tls import check_files

HOST, PORT = "127.0.0.1", 8341
QUICK = 1 << 14  # bytes: a request with a longer body is answered by a task
GRACE = 0.05  # seconds after its headers in which the body must arrive
RESERVE = 128  # open files that are not connections: the store, rows to learn from, pipes
BACKLOG = 2048  # connections that wait to be accepted
PIPELINE = 64  # pipelined requests of a connection
UNUSUAL = {b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"}  # headers that QUICK requests lack


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The address of the service: by default only this machine can reach it.

    `behind_proxy` says that a proxy in front handles TLS.
    """

    host: str = HOST
    port: int = PORT
    certificate: Path | None = None
    private_key: Path | None = None
    password: str | None = None
    behind_proxy: bool = False

    def check(self, keyring: Keyring, spelled: Mapping[str, str] | None = None) -> None:
        """Refuse what would admit anyone, or send keys unencrypted.

        `spelled` gives the names of the fields for messages.
        """
        say = {field.name: field.name for field in fields(self)} | dict(spelled or {})
        self.check_host(say)
        integer(self.port, say["port"], least=0, most=65535)
        if (self.private_key is not None or self.password is not None) and self.certificate is None:
            raise ValueError(f"{say['certificate']} must be given with {say['private_key']} or {say['password']}")
        for name, path in (("certificate", self.certificate), ("private_key", self.private_key)):
            if path is not None and not path.is_file():
                raise ValueError(f"{say[name]} must be a file, got {path}")
        outside = not is_loopback(self.host)
        host = f"{say['host']} {self.host}"
        if (outside or self.behind_proxy) and keyring.open:
            where = host if outside else say["behind_proxy"]
            raise ValueError(f"{where} lets others ask: make a key first (reticent keys add), or bind to {HOST}")
        if outside and self.certificate is None and not self.behind_proxy:
            raise ValueError(
                f"{host} would have keys and rows travel in the clear: give {say['certificate']} and "
                f"{say['private_key']}, or {say['behind_proxy']} if a proxy in front takes care of TLS"
            )

        if self.certificate is not None:
            check_files(self.certificate, self.private_key, self.password, say)

    def check_host(self, say: Mapping[str, str]) -> None:
        """Refuse what does not have the form of a host; `say` gives the names of "host" and "port" for messages."""
        if not is_address(self.host) and not re.fullmatch(r"[^\s:/\[\]@?#]+", self.host):
            raise ValueError(
                f"{say['host']} must be a name or an address without a port, got {self.host!r}; the port is "
                f"{say['port']}"
            )

    @property
    def address(self) -> str:
        """A URL by which this machine reaches it: by the loopback address if it listens on all addresses."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(_normal(self.host), self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


def is_address(host: str) -> bool:
    """Whether a host is an address, of either version of IP."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _normal(host: str) -> str:
    """An address in its usual form; a name as it is."""
    return str(ipaddress.ip_address(host)) if is_address(host) else host


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Time limits, and the number of connections."""

    header_seconds: float = 10.0  # for the headers of a request to arrive
    header_bytes: int = 64 << 10
    idle_seconds: int = 75  # between two requests of a connection
    connections: int = 4096
    drain_seconds: int = 30  # to send answers when the server stops


class Server(uvicorn.Server):
    """Stops without losing an answer: it accepts no more requests, answers the accepted ones and releases the store."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives, or until the answering service halts."""
        traces.watch(asyncio.get_running_loop())
        await super().serve(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop: also if the answering service has halted, so that a supervisor sees it."""
        return await super().on_tick(counter) or bool(self._service.answering.status().halted)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop. Streams of events end first, since they would not end by themselves.

        Requests that wait for a phase to be learned wait no longer than the time to send answers.
        """
        self._service.closing.set()
        patience = self.config.timeout_graceful_shutdown or 0
        interrupt = asyncio.get_running_loop().call_later(patience, self._service.answering.interrupt)
        try:
            await super().shutdown(sockets)
        finally:
            interrupt.cancel()


def make_server(service: Service, binding: Binding | None = None, patience: Patience | None = None) -> Server:
    """A server that is ready to run, by `run()` or `await serve()`."""
    binding, patience = binding or Binding(), patience or Patience()
    binding.check(service.keyring)
    traces.log_by_location()
    capacity = connection_capacity(patience.connections)
    patience = replace(patience, connections=min(patience.connections, capacity))
    config = uvicorn.Config(
        make_app(service),
        host=binding.host,
        port=binding.port,
        http=_patient(patience, service),
        ws="none",
        # All waiting connections are accepted at once, before any of them is refused.
        backlog=max(16, min(BACKLOG, (capacity + RESERVE - patience.connections) // 4)),
        lifespan="on",
        log_config=None,  # see `traces.log_by_location`
        log_level="warning",
        access_log=False,  # it would record who asked when
        server_header=False,
        date_header=False,
        proxy_headers=False,  # nothing here depends on the address of a caller
        timeout_keep_alive=patience.idle_seconds,
        timeout_graceful_shutdown=patience.drain_seconds,
        ssl_certfile=binding.certificate,
        ssl_keyfile=binding.private_key,
        ssl_keyfile_password=binding.password,
    )
    return Server(config, service)


def connection_capacity(connections: int) -> int:
    """How many connections may be open besides other files. Raises the limit of the process as far as allowed."""
    try:
        import resource
    except ImportError:  # where there is no such limit
        return connections + 4 * BACKLOG
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVE + 4 * BACKLOG
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # not every system allows its own maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return wanted - RESERVE if soft == resource.RLIM_INFINITY else max(1, soft - RESERVE)


def _patient(patience: Patience, service: Service) -> type[HttpToolsProtocol]:
    class Connection(_Connection):
        limits = patience
        asked = service
        path = f"/v2/models/{service.name}/infer"
        target = path.encode()
        most = min(QUICK, service.limits.body)

    return Connection


class _Quick:
    """A request that is answered without a task, in place of uvicorn's own record of a request."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")
    more_body = False
    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self) -> None:
        self.response_complete, self.disconnected, self.keep_alive = False, False, True


class _Flow(FlowControl):
    """Resumes reading only when no request waits, so that the number of waiting requests is bounded."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if self.read_paused and not self._pipeline:
            super().resume_reading()


class _Closed(Exception):
    """Stops the parser after the connection was closed from within it."""


class _Connection(HttpToolsProtocol):
    """A connection whose headers must arrive in time and within a size limit; uvicorn does the rest.

    Most requests are small inferences whose body arrives with the headers or right after them. These go to the service
    without a task and ASGI messages, and come back as bytes.
    """

    limits = Patience()
    asked: Service
    path, target, most = "", b"", 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread, self._heading, self._long = 0, True, False
        self._bytes: bytes | None = None  # the body so far of a request that may be a quick one
        self._grace: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.connections:
            self._refuse(Problem("busy", "", {"Retry-After": "1"}))
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_arrived()
        self._take_bytes()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._long = self._unread + len(data) > self.limits.header_bytes
        if self._heading:
            self._unread += len(data)
        self._parse(data)
        if self._bytes is not None and self._grace is None:  # many send the body after the headers
            self._grace = self.loop.call_later(GRACE, self._use_uvicorn)
        # Whatever part of it was body is no longer counted: they are awaited no more once they are there.
        if self._heading:
            if self._unread > self.limits.header_bytes:
                self._refuse(Problem("too-large", f"the headers may have at most {self.limits.header_bytes} bytes"))
            elif self._deadline is None and not self.transport.is_closing():
                self._expect_headers()
        elif (
            self._bytes is None
            and self.cycle is not None
            and self.cycle.response_complete
            and self.timeout_keep_alive_task is None
            and self._deadline is None
            and not self.transport.is_closing()
        ):  # it was the rest of a request that is answered, or an empty line: the connection is idle as before
            seconds = self.limits.idle_seconds
            self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() == b"CONNECT":
                    self.send_400_response("")
                    return
                data = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("")
                return

    def _without_upgrade(self) -> bytes:
        """The headers of a request without the offer of another protocol, for a new parser."""
        offers = (b"upgrade", b"http2-settings")
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [one for one in value.split(b",") if one.strip().lower() not in offers]
                lines.append(b"%b: %b" % (name, b",".join(kept)))
            elif name not in offers:
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        with suppress(AttributeError):
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._heading:
            self._heading, self._unread = True, 0

    def on_headers_complete(self) -> None:
        self._headers_arrived()
        if self._long:
            self._check_size()
        if self._may_be_quick():
            self._bytes = b""
        elif not self.parser.should_upgrade():
            super().on_headers_complete()
            if len(self.pipeline) > PIPELINE:
                self.pipeline.clear()
                self.transport.close()
                raise _Closed

    def _check_size(self) -> None:
        """Refuse headers that are too long, even if they arrived at once."""
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.header_bytes:
            self._refuse(Problem("too-large", f"the headers may have at most {self.limits.header_bytes} bytes"))
            raise _Closed

    def on_body(self, body: bytes) -> None:
        if self._bytes is None:
            super().on_body(body)
        else:
            self._bytes += body

    def on_message_complete(self) -> None:
        if self._bytes is None:
            if not self.parser.should_upgrade():
                if self._deadline is not None:  # for the rest of a request that is answered
                    self._headers_arrived()
                super().on_message_complete()
            return
        headers = dict(self.headers)
        if len(headers) < len(self.headers):  # some come twice
            self._use_uvicorn()
            super().on_message_complete()
            return
        body = self._take_bytes()
        cycle = self.cycle = _Quick()  # type: ignore[assignment]
        self.asked.quick(self.path, headers, body, functools.partial(self._reply, cycle))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Who was answered before all was sent may send the rest, within a time.
        if self.cycle.more_body and self.cycle.response_complete and not self.transport.is_closing():
            self._headers_arrived()
            self._deadline = self.loop.call_later(self.limits.header_seconds, self.transport.close)

    def _may_be_quick(self) -> bool:
        """Whether it is an inference with a small plain body, and no other request is in progress."""
        if self.url != self.target or not (self.cycle is None or self.cycle.response_complete):
            return False
        size = -1
        for name, value in self.headers:
            if name == b"content-length":
                size = int(value) if value.isdigit() and len(value) < 6 else -1
            elif name in UNUSUAL:
                return False
        return (
            0 <= size <= self.most
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.flow.write_paused  # a caller that does not read must wait
        )

    def shutdown(self) -> None:
        """Stop when requests that have begun to arrive are answered."""
        if self._bytes is not None:
            self._use_uvicorn()
        super().shutdown()

    def _take_bytes(self) -> bytes:
        body, self._bytes = self._bytes or b"", None
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        return body

    def _use_uvicorn(self) -> None:
        """Hand an incomplete request to uvicorn, as if its headers had just arrived."""
        body = self._take_bytes()
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def _reply(self, cycle: Any, response: bytes) -> None:
        cycle.response_complete = True
        if cycle.disconnected or self.transport.is_closing():
            return
        self.transport.write(response if cycle.keep_alive else _with_close(response))
        if not cycle.keep_alive:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP with a problem document like all others."""
        self._refuse(Problem("malformed", "this is not a valid HTTP request"))

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self.limits.header_seconds, self._too_late)

    def _headers_arrived(self) -> None:
        self._heading = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        self._refuse(Problem("too-slow", "the headers did not arrive in time"))

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application, and close the connection."""
        self._headers_arrived()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else another answer is on its way
            self.transport.write(raw(problem.response(), connection="close"))
        self.transport.close()


def _with_close(response: bytes) -> bytes:
    """A response that says that it is the last one of its connection."""
    return response.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)


def serve(service: Service, binding: Binding | None = None, patience: Patience | None = None) -> None:
    """Serve until a signal arrives. After SIGTERM and Ctrl-C accepted requests are still answered."""
    make_server(service, binding, patience).run()


def listening(server: Server) -> tuple[str, int]:
    """Host and port that a running server was given, for port 0."""
    name: Any = server.servers[0].sockets[0].getsockname()
    return str(name[0]), int(name[1])
