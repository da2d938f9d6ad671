"""The routes. Parse, ask the desk, answer: no algorithm lives here."""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import ipaddress
import logging
import math
import re
import time
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from reticent.errors import BudgetExhausted
from reticent.service import invocations, openapi, protocol, traces
from reticent.service.batching import Closing, Overloaded
from reticent.service.desk import Answered, Halted, KeyReused, NothingStored, Request, Status
from reticent.service.keys import Allowance, Key, Keyring
from reticent.service.metrics import CONTENT_TYPE, REPEAT, Metrics
from reticent.service.problems import KINDS, Problem

log = logging.getLogger("reticent.service")

JSON = "application/json"
LARGE = 1 << 18  # bytes: beyond, a body is read in a thread, so that others go on
SMALL = 1 << 10  # bytes: below, compression is not worth it
AT_ONCE = 2  # large bodies that are unpacked and read at a time: one may take twenty times its length
MEMBERS = 1 << 10  # parts of a body that are compressed one by one
PIECE = 1 << 16  # bytes that are unpacked at a time
HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{0,5})?")
ONCE = (b"host", b"authorization", b"idempotency-key", b"content-type", b"inference-header-content-length")  # headers
REPLAYED = "Idempotent-Replayed"
SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
OK = (
    b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\nvary: Accept-Encoding\r\n"
    b"content-type: application/json\r\ncontent-length: "
)


@dataclass(frozen=True)
class Limits:
    """What one caller may take up."""

    body: int = 16 << 20  # bytes, after decompression
    bodies: int = 256 << 20  # bytes of all bodies that are held at a time
    body_seconds: float = 30.0  # for a body to arrive
    rows: int = 100_000  # a request
    numbers: int = 1 << 25  # a request, in rows as the model sees them, where a category is a number for each value
    streams: int = 64  # of events, at a time
    streams_a_key: int = 16


class Answering(Protocol):
    """What the routes need of the desk."""

    def status(self) -> Status:
        """Public numbers."""

    def interrupt(self) -> None:
        """Wait no longer for what is being learned."""

    def close(self) -> None:
        """Let go of the store."""


class Asking(Protocol):
    """What the routes need of the batcher."""

    def submit(self, request: Request, done: Callable[[Answered | Exception], None], /) -> None:
        """Have `done` called with the answer once it is durable, or with an error."""

    async def ask(self, request: Request) -> Answered:
        """The answer, once it is durable."""

    async def close(self) -> None:
        """Answer what was taken, take nothing more."""


class Call(NamedTuple):
    """A request as it came."""

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]

    def header(self, name: bytes) -> str | None:
        """A header, by its name in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.scope["path_params"][name])


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(slots=True)
class _Taken:
    """A request that was let in: whose it is, and what was charged for it."""

    key: Key
    repeat: str | None
    allowance: Allowance
    charged: int = 0
    started: float = 0.0


class Service:
    """A desk behind HTTP: its schema, keys and limits."""

    def __init__(
        self,
        name: str,
        rules: protocol.Rules,
        desk: Answering,
        batcher: Asking,
        *,
        keyring: Keyring | None = None,
        limits: Limits | None = None,
        dashboard: bool = True,
    ) -> None:
        self.name, self.rules, self.desk, self.batcher = name, rules, desk, batcher
        self.keyring = Keyring() if keyring is None else keyring
        self.limits = Limits() if limits is None else limits
        self.dashboard = dashboard
        self.metrics = Metrics(desk.status)
        self.closing = asyncio.Event()
        self.version = version("reticent")
        self._answer = protocol.Answer.of(rules.classes)
        self._metadata = protocol.metadata(name, rules)
        width = max(1, getattr(rules, "width", len(rules.columns)))
        self.most_rows = max(1, min(self.limits.rows, self.limits.numbers // width))
        self._prefixes: dict[tuple[int, int], bytes] = {}
        self._held = 0
        self._large = asyncio.Semaphore(AT_ONCE)
        self._streams: Counter[str] = Counter()  # by key
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=8192)  # when, seconds, answers
        self._snapshot: tuple[float, dict[str, Any]] = (-math.inf, {})

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def infer(self, call: Call) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        self._check_model(call)
        length = call.header(protocol.HEADER_LENGTH.encode())
        read = functools.partial(self._read_inference, header_length=length)
        return self._inferred(call, *await self._ask(call, read, (length or "").encode()))

    def _inferred(
        self, call: Call, asked: protocol.Asked, answered: Answered, headers: dict[str, str]
    ) -> Response:
        body, json_length = self._answer.written(
            answered.labels,
            model=self.name,
            id=asked.id,
            parameters={"phase": answered.phase, "replayed": answered.replayed},
            binary=asked.binary,
        )
        if json_length is not None:
            headers["Inference-Header-Content-Length"] = str(json_length)
        return _packed(call, body, headers, JSON if json_length is None else "application/octet-stream")

    def _read_inference(self, body: bytes, *, header_length: str | None) -> protocol.Asked:
        return protocol.read(body, header_length, self.rules, self.most_rows)

    async def invoke(self, call: Call) -> Response:
        """Answer an invocation of MLflow."""
        kind = (call.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind == JSON:
            read = invocations.read_json
        elif kind == "text/csv":
            read = invocations.read_csv
        else:
            raise Problem("wrong-type", f"the Content-Type must be {JSON} or text/csv")
        _, answered, headers = await self._ask(
            call, lambda body: protocol.Asked(read(body, self.rules, self.most_rows), None, False), kind.encode()
        )
        return _packed(call, invocations.written(self._answer.values(answered.labels)), headers, JSON)

    async def _ask(
        self, call: Call, read: Callable[[bytes], protocol.Asked], form: bytes
    ) -> tuple[protocol.Asked, Answered, dict[str, str]]:
        """Answer a request: all that can be refused is refused before the desk sees it, and costs nothing."""
        taken = self._let_in(call)
        asked, digest = await self._read(call, taken, read, form)
        request = self._charge(taken, asked, digest)
        try:
            answered = await self.batcher.ask(request)
        except Exception as error:
            raise self._refund(taken, error) from None
        finally:
            self.metrics.waiting -= 1
        return asked, answered, self._settled(taken, len(asked.rows), answered)

    async def _read(
        self, call: Call, taken: _Taken, read: Callable[[bytes], protocol.Asked], form: bytes
    ) -> tuple[protocol.Asked, bytes]:
        """What is asked, and the digest of the body, which is not held any longer."""
        packed = _is_packed(call)
        body = await self._body(call)
        held = len(body)
        try:
            if not packed and held <= LARGE:
                return read(body), _digest(taken.repeat, call, form, body)
            async with self._large:
                if packed:
                    body = await asyncio.to_thread(_unzipped, body, self.limits.body)
                    self._held += len(body) - held
                    held = len(body)
                    if self._held > self.limits.bodies:
                        raise Problem("busy", "", {"Retry-After": "1"})
                asked = await asyncio.to_thread(read, body)
                return asked, await asyncio.to_thread(_digest, taken.repeat, call, form, body)
        finally:
            self._held -= held

    def quick(self, path: str, headers: Mapping[bytes, bytes], body: bytes, reply: Callable[[bytes], None]) -> None:
        """As `infer` of a small body that is there already, for a server that can do without tasks and messages.

        `reply` is called once, with the whole response as it goes over the wire, now or when the answer is durable.
        """
        call = Call({"path": path}, _nothing, headers)
        started = time.perf_counter()
        try:
            length = call.header(protocol.HEADER_LENGTH.encode())
            taken = self._let_in(call)
            asked = self._read_inference(body, header_length=length)
            digest = _digest(taken.repeat, call, (length or "").encode(), body)
            request = self._charge(taken, asked, digest)
        except Exception as error:
            reply(self._failed(error, started))
            return

        def done(result: Answered | Exception) -> None:
            self.metrics.waiting -= 1
            try:
                if isinstance(result, Exception):
                    raise self._refund(taken, result)
                response = self._wire(call, asked, result, self._settled(taken, len(asked.rows), result))
                self.metrics.count("infer", REPEAT if result.replayed else 200, time.perf_counter() - started)
            except Exception as error:
                response = self._failed(error, started)
            reply(response)

        try:
            self.batcher.submit(request, done)
        except Exception as error:
            done(error)

    def _failed(self, error: Exception, started: float) -> bytes:
        problem = _as_problem(error, "infer")
        self.metrics.count("infer", _counted(problem.status, problem.headers), time.perf_counter() - started)
        return raw(problem.response())

    def _wire(self, call: Call, asked: protocol.Asked, answered: Answered, extra: dict[str, str]) -> bytes:
        """The response of `infer`, as it goes over the wire."""
        if asked.binary or asked.id is not None or extra or len(answered.labels) > 64:
            return raw(self._inferred(call, asked, answered, extra))
        body = self._answer.plain(answered.labels, self._prefix(len(answered.labels), answered.phase))
        return b"%b%d\r\n\r\n%b" % (OK, len(body), body)

    def _prefix(self, count: int, phase: int) -> bytes:
        """What comes before so many labels of a phase: a few are kept, none of which depends on a label."""
        found = self._prefixes.get((count, phase))
        if found is None:
            if len(self._prefixes) >= 256:
                self._prefixes.clear()
            parameters = {"phase": phase, "replayed": False}
            found = self._answer.prefix(count, model=self.name, parameters=parameters)
            self._prefixes[count, phase] = found
        return found

    def _let_in(self, call: Call) -> _Taken:
        """Who asks, if they may; a request that is refused from here on has cost them a token, and no answer."""
        key = self._admit(call, "ask")
        if self.closing.is_set():
            raise Problem("closing", "", {"Retry-After": "5"})
        repeat = _idempotency_key(call)
        allowance = self.keyring.allowance(key)
        allowance.take(1, counted=0)
        return _Taken(key, repeat, allowance)

    def _charge(self, taken: _Taken, asked: protocol.Asked, digest: bytes) -> Request:
        """What the desk is asked; it waits from here on."""
        count = len(asked.rows)
        # All is charged before it is asked, so that no quota is overrun, and given back if it was a repeat. A quota
        # that is used up must not keep a lost answer from being sent again: what is stored may be had, nothing else.
        only_stored = taken.repeat is not None and not taken.allowance.has_left(count)
        taken.charged = 0 if only_stored else count
        taken.allowance.take(count - 1, counted=taken.charged, already=1)
        self.metrics.waiting += 1
        taken.started = time.monotonic()
        return Request(taken.key.id, asked.rows, taken.repeat, digest, only_stored)

    def _refund(self, taken: _Taken, error: Exception) -> Exception:
        """What the caller is told; what they are told of has spent nothing."""
        if isinstance(error, NothingStored):
            return taken.allowance.used_up()
        if (problem := _told(error)) is None:
            return error
        taken.allowance.give_back(taken.charged)
        if isinstance(error, KeyReused):
            self._count_repeat(taken)
        return problem

    def _count_repeat(self, taken: _Taken) -> None:
        """Count a repeat: alike, whether or not its body was the same, in all that others see."""
        now = time.monotonic()
        self._recent.append((now, now - taken.started, 0))
        self.metrics.replayed.inc()

    def _settled(self, taken: _Taken, count: int, answered: Answered) -> dict[str, str]:
        """Count what was spent; the headers that tell of it."""
        if answered.replayed:
            taken.allowance.give_back(taken.charged)
            self._count_repeat(taken)
            return {**taken.allowance.headers(), REPLAYED: "true"}
        now = time.monotonic()
        self._recent.append((now, now - taken.started, count))
        return taken.allowance.headers()

    # ── observing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def server(self, call: Call) -> Response:
        """Tell about the server."""
        return _json(protocol.server_metadata(self.version))

    async def live(self, call: Call) -> Response:
        """Tell that the server is alive: not after it has halted, since only another start helps."""
        if self.desk.status().halted:
            raise Problem("halted")
        return _json({"live": True})

    async def ready(self, call: Call) -> Response:
        """Tell whether questions are answered."""
        if self.closing.is_set():
            raise Problem("closing", "", {"Retry-After": "5"})
        if self.desk.status().halted:
            raise Problem("halted")
        return _json({"ready": True, "name": self.name})

    async def model_ready(self, call: Call) -> Response:
        """Tell whether the model answers."""
        self._check_model(call)
        return await self.ready(call)

    async def model(self, call: Call) -> Response:
        """Tell about the model."""
        self._admit(call, "observe")
        self._check_model(call)
        return _json(self._metadata)

    async def ping(self, call: Call) -> Response:
        """Tell that the server is alive, as MLflow does."""
        await self.ready(call)
        return Response("\n", 200, SAFE, media_type="text/plain")

    async def mlflow_version(self, call: Call) -> Response:
        """Tell the version."""
        return Response(self.version, 200, SAFE, media_type="text/plain")

    async def guarantee(self, call: Call) -> Response:
        """Tell what is promised, in words or as JSON."""
        guarantee = self.desk.status().guarantee
        words = guarantee.explain()
        if JSON in (call.header(b"accept") or ""):
            return _json({"model": self.name, **asdict(guarantee), "words": words})
        return Response(words + "\n", 200, {**SAFE, "Vary": "Accept"}, media_type="text/plain; charset=utf-8")

    async def status(self, call: Call) -> Response:
        """Tell all public numbers; administrators also see who has had how many answers."""
        return _json(self._status_for(self._admit(call, "observe")))

    async def prometheus(self, call: Call) -> Response:
        """Tell the metrics."""
        self._admit(call, "observe")
        return _packed(call, self.metrics.text(), {}, CONTENT_TYPE)

    async def events(self, call: Call) -> Response:
        """Tell the status once a second, for as long as someone listens."""
        key = self._admit(call, "observe")
        soon = {"Retry-After": "10"}
        if self._streams.total() >= self.limits.streams:
            raise Problem("busy", f"there may be at most {self.limits.streams} streams", soon)
        if self._streams[key.id] >= self.limits.streams_a_key:
            raise Problem("busy", f"a key may have at most {self.limits.streams_a_key} streams", soon)
        self._streams[key.id] += 1
        return _Stream(self, key)

    async def stream(self, key: Key, receive: Receive) -> AsyncIterator[bytes]:
        """The status once a second, until the listener is gone, the service closes, or the key is revoked."""
        gone = asyncio.create_task(_gone(receive))
        closing = asyncio.create_task(self.closing.wait())
        try:
            while not (gone.done() or closing.done()):
                yield b"event: status\ndata: " + msgspec.json.encode(self._status_for(key)) + b"\n\n"
                await asyncio.wait({gone, closing}, timeout=1, return_when=asyncio.FIRST_COMPLETED)
                if not self.keyring.still(key):
                    return
        finally:
            gone.cancel()
            closing.cancel()

    def _status_for(self, key: Key) -> dict[str, Any]:
        now = time.monotonic()
        if now - self._snapshot[0] > 0.5:
            self._snapshot = now, self._load(now)
        found = {"model": self.name, **asdict(self.desk.status()), "load": self._snapshot[1]}
        return {**found, "clients": self.keyring.clients()} if key.allows("admin") else found

    def _load(self, now: float) -> dict[str, float | int | None]:
        """Of the last ten seconds; how long an answer takes does not depend on what it is."""
        recent = [one for one in self._recent if now - one[0] <= 10]
        # Where more came than is remembered, the time that is remembered is shorter.
        span = 10.0 if len(recent) < len(self._recent) or len(recent) < 8192 else max(now - recent[0][0], 1e-3)
        times = sorted(one[1] for one in recent)
        return {
            "answers_per_second": sum(one[2] for one in recent) / span,
            "requests_per_second": len(recent) / span,
            "median_seconds": times[len(times) // 2] if times else None,
            "p99_seconds": times[int(len(times) * 0.99)] if times else None,
        }

    # ── who and how much ──────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, call: Call, scope: str) -> Key:
        """The key of a call, if it allows the scope."""
        # Without keys a page of some other site could have the browser ask here, under a name of its own; and so could
        # anyone through a proxy that gives the name of this machine for theirs.
        if self.keyring.open:
            headers = call.headers
            if not _from_here(headers.get(b"host", b""), headers.get(b"origin")):
                raise Problem("foreign-page", "without keys, only this machine may ask, by the name localhost")
            if b"x-forwarded-for" in headers or b"forwarded" in headers or b"via" in headers:
                raise Problem("through-proxy")
        key = self.keyring.authenticate(call.header(b"authorization"))
        if not key.allows(scope):
            raise Problem("not-allowed", f"this needs a key with the scope {scope!r}")
        return key

    def _check_model(self, call: Call) -> None:
        parts = call.scope["path_params"]
        if parts["name"] != self.name or parts.get("version", protocol.VERSION) != protocol.VERSION:
            raise Problem("not-found", "there is no model, or no version, of that name")

    async def _body(self, call: Call) -> bytes:
        """The body as it was sent; `_held` is larger by its length."""
        limit, close = self.limits.body, {"Connection": "close"}
        declared = call.headers.get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 15 or int(declared) > limit):
            raise Problem("too-large", f"the body may have at most {limit} bytes", close)
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                more = True
                while more:
                    message = await call.receive()
                    if message["type"] == "http.disconnect":
                        raise Problem("malformed", "the body is not complete", close)
                    chunk = message.get("body", b"")
                    more = message.get("more_body", False)
                    chunks.append(chunk)
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > limit:
                        raise Problem("too-large", f"the body may have at most {limit} bytes", close)
                    if self._held > self.limits.bodies:
                        raise Problem("busy", "", {"Retry-After": "1", **close})
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except BaseException as error:
            self._held -= size
            if isinstance(error, TimeoutError):
                raise Problem("too-slow", "", close) from None
            raise


class _Stream(Response):
    """Server-sent events."""

    def __init__(self, service: Service, key: Key) -> None:
        super().__init__(None, 200, {**SAFE, "X-Accel-Buffering": "no"}, "text/event-stream")
        del self.headers["content-length"]
        self._service, self._key = service, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async for event in self._service.stream(self._key, receive):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._service._streams[self._key.id] -= 1


class _Endpoint:
    """A handler as an application: problems become responses, every call is counted, nothing else gets out."""

    def __init__(self, service: Service, handler: Handler, name: str) -> None:
        self._service, self._handler, self._name = service, handler, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            response = await self._handler(Call(scope, receive, _headers(scope["headers"])))
        except Exception as error:
            response = _as_problem(error, self._name).response()
        status = _counted(response.status_code, response.headers)
        self._service.metrics.count(self._name, status, time.perf_counter() - started)
        await response(scope, receive, send)


def make_app(service: Service) -> Starlette:
    """The application of a service; it closes the desk when it stops."""
    made = {
        "/v2/models/{name}/infer": ("POST", service.infer),
        "/v2/models/{name}/versions/{version}/infer": ("POST", service.infer),
        "/invocations": ("POST", service.invoke),
        "/v2": ("GET", service.server),
        "/v2/health/live": ("GET", service.live),
        "/v2/health/ready": ("GET", service.ready),
        "/v2/models/{name}": ("GET", service.model),
        "/v2/models/{name}/versions/{version}": ("GET", service.model),
        "/v2/models/{name}/ready": ("GET", service.model_ready),
        "/v2/models/{name}/versions/{version}/ready": ("GET", service.model_ready),
        "/ping": ("GET", service.ping),
        "/health": ("GET", service.ping),
        "/version": ("GET", service.mlflow_version),
        "/guarantee": ("GET", service.guarantee),
        "/status": ("GET", service.status),
        "/events": ("GET", service.events),
        "/metrics": ("GET", service.prometheus),
    }
    routes: list[BaseRoute] = [
        Route(path, _Endpoint(service, handler, handler.__name__), methods=[method])
        for path, (method, handler) in made.items()
    ]
    document = openapi.document(service.name, service.rules, service.most_rows, service.version)
    routes += [*_described(service, document), *_dashboard(service)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.closing.set()
        await service.batcher.close()
        service.desk.close()

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False
    app.state.service = service
    return app


@functools.lru_cache(maxsize=256)  # it is asked for every request
def loopback(host: str) -> bool:
    """Whether a host is this machine, reachable from nowhere else."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _described(service: Service, document: dict[str, Any]) -> list[BaseRoute]:
    # The names of columns are for those who may see the metadata of the model.
    both = document, openapi.without_columns(document)
    encoded, pages_made = [msgspec.json.encode(one) for one in both], [openapi.page(one) for one in both]

    def hidden(call: Call) -> bool:
        try:
            service._admit(call, "observe")
        except Problem:
            return True
        return False

    async def openapi_json(call: Call) -> Response:
        return _packed(call, encoded[hidden(call)], {}, JSON)

    async def docs(call: Call) -> Response:
        page, policy = pages_made[hidden(call)]
        return _packed(call, page, {"Content-Security-Policy": policy}, "text/html; charset=utf-8")

    pages: dict[str, Handler] = {"/openapi.json": openapi_json, "/docs": docs}
    return [Route(path, _Endpoint(service, one, path[1:]), methods=["GET"]) for path, one in pages.items()]


def _dashboard(service: Service) -> list[BaseRoute]:
    """The routes of the dashboard, which finds the service at `request.app.state.service`."""
    if not service.dashboard or find_spec("reticent.service.dashboard") is None:

        async def to_docs(request: StarletteRequest) -> Response:
            return RedirectResponse("/docs", 307)

        return [Route("/", to_docs, methods=["GET"])]
    routes: list[BaseRoute] = import_module("reticent.service.dashboard").dashboard_routes()
    return routes


async def _no_route(request: StarletteRequest, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    return Problem({404: "not-found", 405: "wrong-method"}.get(status, "internal"), "", headers).response()


def _as_problem(error: Exception, name: str) -> Problem:
    """What is told of an error, and of one that nobody thought of only that there was one."""
    if isinstance(error, Problem):
        return error
    log.error("in %s: %s", name, traces.rendered(error))
    return Problem("internal")


def _told(error: Exception) -> Problem | None:
    """What the caller is told of an error of the desk."""
    soon = {"Retry-After": "1"}
    if isinstance(error, KeyReused):
        return Problem("key-reused")
    if isinstance(error, BudgetExhausted):
        return Problem("no-answers-left")
    if isinstance(error, Overloaded):
        return Problem("busy", "", soon)
    if isinstance(error, Closing):
        return Problem("closing", "", {"Retry-After": "5"})
    if isinstance(error, Halted):
        return Problem("halted", "", {"Retry-After": "5"} if error.soon else {})
    return None


def _counted(status: int, headers: Mapping[str, str]) -> int | str:
    """What a response is counted as."""
    return REPEAT if status == KINDS["key-reused"][0] or REPLAYED in headers else status


def _headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; the last of those that may come more than once."""
    found = dict(headers)
    if len(found) < len(headers):
        names = [name for name, _ in headers]
        for name in ONCE:
            if names.count(name) > 1:
                raise Problem("malformed", f"the header {name.decode().title()} must come once")
    return found


def _is_packed(call: Call) -> bool:
    encoding = (call.header(b"content-encoding") or "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        headers = {"Accept-Encoding": "gzip, deflate"}
        raise Problem("wrong-type", "the Content-Encoding must be gzip or deflate", headers)
    return encoding != "identity"


def _idempotency_key(call: Call) -> str | None:
    key = call.headers.get(b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or any(not 0x21 <= byte <= 0x7E for byte in key):
        raise Problem("malformed", "Idempotency-Key must be 1 to 255 visible ASCII characters")
    return key.decode("ascii")


def _digest(repeat: str | None, call: Call, form: bytes, body: bytes) -> bytes:
    """Of all that says what is asked; it is only ever compared with that of the same client's same key."""
    if repeat is None:
        return b""
    hashed = hashlib.sha256(b"%b\0%b\0" % (call.scope["path"].encode(), form))
    hashed.update(body)
    return hashed.digest()


def _unzipped(body: bytes, limit: int) -> bytes:
    """A body of one compressed part, or of several; a piece at a time, since what a part leaves over is copied."""
    parts: list[bytes] = []
    size = at = members = 0
    reader: Any = None
    while at < len(body):
        if reader is None or reader.eof:
            members += 1
            if members > MEMBERS:
                raise Problem("too-large", f"the body may have at most {MEMBERS} compressed parts")
            reader = zlib.decompressobj(wbits=47)  # gzip or zlib, as its first bytes say
        piece = body[at : at + PIECE]
        try:
            parts.append(reader.decompress(piece, limit - size + 1))
        except zlib.error:
            raise Problem("malformed", "the body is not what its Content-Encoding says") from None
        at += len(piece) - len(reader.unused_data)
        size += len(parts[-1])
        if size > limit:
            raise Problem("too-large", f"the body may have at most {limit} bytes when it is decompressed")
    if reader is not None and not reader.eof:
        raise Problem("malformed", "the body is not what its Content-Encoding says")
    return b"".join(parts)


def _packed(call: Call, body: bytes, headers: Mapping[str, str], media_type: str) -> Response:
    """A response, compressed if it is long and the caller takes that."""
    sent = {**SAFE, **headers, "Vary": "Accept-Encoding"}
    if len(body) > SMALL and _takes_gzip(call.headers.get(b"accept-encoding", b"")):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        sent["Content-Encoding"] = "gzip"
    return Response(body, 200, sent, media_type)


@functools.lru_cache(maxsize=256)
def _takes_gzip(accepted: bytes) -> bool:
    """Whether an Accept-Encoding allows gzip, which "gzip;q=0" does not; "*" speaks for those that it does not name."""
    weights: dict[bytes, bool] = {}
    for one in accepted.lower().split(b","):
        name, *parameters = (part.strip() for part in one.split(b";"))
        weights[name] = not any(re.fullmatch(rb"q\s*=\s*0(\.0*)?", part) for part in parameters)
    return weights.get(b"gzip", weights.get(b"*", False))


def raw(response: Response, **headers: str) -> bytes:
    """A response as it goes over the wire."""
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}"]
    lines += [f"{name}: {value}" for name, value in {**dict(response.headers), **headers}.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + bytes(response.body)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), 200, SAFE, JSON)


@functools.lru_cache(maxsize=256)
def _from_here(host: bytes, origin: bytes | None) -> bool:
    """Whether this machine is asked by its own name, and by no page of another site."""
    return loopback(_hostname(host.decode("latin-1"))) and (origin is None or origin.partition(b"://")[2] == host)


def _hostname(host: str) -> str:
    """The name or address in a Host header; empty if it is not one, with or without a port, and nothing else."""
    found = HOST.fullmatch(host)
    return "" if found is None else found["address"] or found["name"]


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

