"""A predictor behind HTTP: questions are parsed, asked and answered, and what is public is shown."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reticent.service.http import calls, invocations, metadata, open_inference
from reticent.service.http.access import Allowance, Keyring
from reticent.service.http.bodies import BodyReader, Limits
from reticent.service.http.calls import Call
from reticent.service.http.failures import as_problem, to_problem
from reticent.service.http.problems import KINDS, Problem
from reticent.service.http.responses import JSON, OK, SAFE, compressible, json_response, raw
from reticent.service.keys import Key
from reticent.service.metrics import CONTENT_TYPE, REPEAT, Metrics
from reticent.service.requests import Answered, KeyReused, NothingStored, Request
from reticent.service.status import Status, in_words

REPLAYED = "Idempotent-Replayed"
Done = TypeVar("Done")


class AnsweringBackend(Protocol):
    """What the routes need of the answering service."""

    def status(self) -> Status:
        """The public numbers."""

    def interrupt(self) -> None:
        """Stop waiting for what is being learned."""

    def close(self) -> None:
        """Release the store."""


class RequestQueue(Protocol):
    """What the routes need of the batcher."""

    def submit(self, request: Request, done: Callable[[Answered | Exception], None], /) -> None:
        """Call `done` with the answer once it is durable, or with an error."""

    async def ask(self, request: Request) -> Answered:
        """The answer, once it is durable."""

    async def run(self, task: Callable[[], Done], rows: int, client: str) -> Done:
        """Do something with this many rows in the thread that answers."""

    async def close(self) -> None:
        """Accept nothing more, and answer what was accepted."""


@dataclass(slots=True)
class _Admitted:
    """A request that was admitted: its key, and what was charged for it."""

    key: Key
    repeat: str | None
    allowance: Allowance
    charged: int = 0
    started: float = 0.0


class Service:
    """An answering service behind HTTP, with its schema, keys and limits."""

    def __init__(
        self,
        name: str,
        rules: open_inference.Rules,
        answering: AnsweringBackend,
        batcher: RequestQueue,
        *,
        keyring: Keyring | None = None,
        limits: Limits | None = None,
        dashboard: bool = True,
        probabilities: Sequence[Any] | None = None,
    ) -> None:
        # `probabilities` names the classes in the order that the answering service has; None if they are not offered.
        self.name, self.rules, self.answering, self.batcher = name, rules, answering, batcher
        self.keyring = Keyring() if keyring is None else keyring
        self.limits = Limits() if limits is None else limits
        self.dashboard = dashboard
        self.metrics = Metrics(answering.status)
        self.closing = asyncio.Event()
        self.version = version("reticent")
        self._answer = open_inference.Answer.of(rules.classes)
        self.probabilities = probabilities is not None
        self._order = [list(probabilities or ()).index(one) for one in rules.classes] if self.probabilities else []
        self.truth = answering.status().truth  # where later labels come from, if there are any
        outputs = {
            open_inference.LABELS: True,
            open_inference.PROBABILITIES: self.probabilities,
            open_inference.ANSWER_IDS: self.truth in ("feedback", "both"),
        }
        self.offered = tuple(one for one, there in outputs.items() if there)
        self._metadata = metadata.metadata(name, rules, self.offered, labelled=self.truth in ("rows", "both"))
        width = max(1, getattr(rules, "width", len(rules.columns)), len(self._order))
        self.most_rows = max(1, min(self.limits.rows, self.limits.numbers // width))
        self._prefixes: dict[tuple[int, int], bytes] = {}
        self.bodies = BodyReader(self.limits)
        self._streams: Counter[str] = Counter()  # by key
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=8192)  # when, seconds, answers
        self._snapshot: tuple[float, dict[str, Any]] = (-math.inf, {})

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def infer(self, call: Call) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        self.check_model(call)
        length = call.header(open_inference.HEADER_LENGTH.encode())
        read = functools.partial(self._read_inference, header_length=length)
        return self._inferred(call, *await self._ask(call, read, (length or "").encode()))

    def _inferred(
        self, call: Call, asked: open_inference.Asked, answered: Answered, headers: dict[str, str]
    ) -> Response:
        body, json_length = self._answer.written(
            answered.labels,
            model=self.name,
            id=asked.id,
            parameters=self._parameters(answered.phase, answered.replayed),
            binary=asked.binary,
            probabilities=None if asked.probabilities is None else (self._ordered(answered), asked.probabilities),
            answer_ids=None if asked.answer_ids is None else (answered.tickets or [], asked.answer_ids),
        )
        if json_length is not None:
            headers["Inference-Header-Content-Length"] = str(json_length)
        return compressible(call, body, headers, JSON if json_length is None else "application/octet-stream")

    def _read_inference(self, body: bytes, *, header_length: str | None) -> open_inference.Asked:
        return open_inference.read(body, header_length, self.rules, self.most_rows, self.offered)

    def _parameters(self, phase: int, replayed: bool) -> dict[str, Any]:
        """What an answer says besides labels: its phase, and that an alarm stands, which changes with phases alone."""
        warning = self.answering.status().quality_warning
        found = {"phase": phase, "replayed": replayed}
        return found if warning is None else {**found, "quality": warning}

    def _ordered(self, answered: Answered) -> open_inference.Rows:
        """The probabilities in the order in which the metadata of the model names the classes."""
        assert answered.probabilities is not None
        return answered.probabilities[:, self._order]

    async def invoke(self, call: Call) -> Response:
        """Answer an invocation of MLflow."""
        kind = (call.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind == JSON:
            read = invocations.read_json
        elif kind == "text/csv":
            read = invocations.read_csv
        else:
            raise Problem("wrong-type", f"the Content-Type must be {JSON} or text/csv")

        def asked(body: bytes) -> open_inference.Asked:
            rows = read(body, self.rules, self.most_rows)
            return open_inference.Asked(rows, None, False, False if self.probabilities else None)

        _, answered, headers = await self._ask(call, asked, kind.encode())
        written = invocations.written(
            self._answer.values(answered.labels),
            self._ordered(answered) if self.probabilities else None,
            answered.tickets,
            self.answering.status().quality_warning,
        )
        return compressible(call, written, headers, JSON)

    async def _ask(
        self, call: Call, read: Callable[[bytes], open_inference.Asked], form: bytes
    ) -> tuple[open_inference.Asked, Answered, dict[str, str]]:
        """Answer a request. Everything that can be refused is refused before it is asked, and costs nothing."""
        admitted = self._admit_question(call)

        def parse(body: bytes) -> tuple[open_inference.Asked, bytes]:
            return read(body), body_digest(admitted.repeat, call, form, body)

        asked, digest = await self.bodies.read(call, parse)
        request = self._charge(admitted, asked, digest)
        try:
            answered = await self.batcher.ask(request)
        except Exception as error:
            raise self._refund(admitted, error) from None
        finally:
            self.metrics.waiting -= 1
        return asked, answered, self._charged_headers(admitted, len(asked.rows), answered)

    def quick(self, path: str, headers: Mapping[bytes, bytes], body: bytes, reply: Callable[[bytes], None]) -> None:
        """As `infer`, for a small body that has already arrived, without tasks and ASGI messages.

        `reply` is called once with the complete response as it goes over the wire, now or when the answer is durable.
        """
        call = Call({"path": path}, calls.nothing_more, headers)
        started = time.perf_counter()
        try:
            length = call.header(open_inference.HEADER_LENGTH.encode())
            admitted = self._admit_question(call)
            asked = self._read_inference(body, header_length=length)
            digest = body_digest(admitted.repeat, call, (length or "").encode(), body)
            request = self._charge(admitted, asked, digest)
        except Exception as error:
            reply(self._failed(error, started))
            return

        def done(result: Answered | Exception) -> None:
            self.metrics.waiting -= 1
            try:
                if isinstance(result, Exception):
                    raise self._refund(admitted, result)
                response = self._wire(call, asked, result, self._charged_headers(admitted, len(asked.rows), result))
                self.metrics.count("infer", REPEAT if result.replayed else 200, time.perf_counter() - started)
            except Exception as error:
                response = self._failed(error, started)
            reply(response)

        try:
            self.batcher.submit(request, done)
        except Exception as error:
            done(error)

    def _failed(self, error: Exception, started: float) -> bytes:
        problem = as_problem(error, "infer")
        self.metrics.count("infer", counted_status(problem.status, problem.headers), time.perf_counter() - started)
        return raw(problem.response())

    def _wire(self, call: Call, asked: open_inference.Asked, answered: Answered, extra: dict[str, str]) -> bytes:
        """The response of `infer`, as it goes over the wire."""
        special = asked.binary or asked.id is not None or asked.probabilities is not None or answered.tickets
        if special or extra or len(answered.labels) > 64:
            return raw(self._inferred(call, asked, answered, extra))
        body = self._answer.plain(answered.labels, self._prefix(len(answered.labels), answered.phase))
        return b"%b%d\r\n\r\n%b" % (OK, len(body), body)

    def _prefix(self, count: int, phase: int) -> bytes:
        """What precedes this many labels of a phase. It does not depend on a label, and is cached."""
        found = self._prefixes.get((count, phase))
        if found is None:
            if len(self._prefixes) >= 256:
                self._prefixes.clear()
            found = self._answer.prefix(count, model=self.name, parameters=self._parameters(phase, False))
            self._prefixes[count, phase] = found
        return found

    def _admit_question(self, call: Call) -> _Admitted:
        """The key of a caller who may ask. A request that is refused after this has cost a token, but no answer."""
        key = self.admit(call, "ask")
        if self.closing.is_set():
            raise Problem("closing", "", {"Retry-After": "5"})
        repeat = calls.idempotency_key(call)
        allowance = self.keyring.allowance(key)
        allowance.take(1, counted=0)
        return _Admitted(key, repeat, allowance)

    def admit_work(self, call: Call, scope: str) -> Key:
        """The key of a caller who may send labels. Each request costs a token, whatever becomes of it."""
        key = self.admit(call, scope)
        if self.closing.is_set():
            raise Problem("closing", "", {"Retry-After": "5"})
        self.keyring.allowance(key).take(1, counted=0)
        return key

    def _charge(self, admitted: _Admitted, asked: open_inference.Asked, digest: bytes) -> Request:
        """The question, charged to its key. It waits from here on."""
        count = len(asked.rows)
        # Everything is charged before it is asked, so that no quota is exceeded, and returned if it was a repeat. With
        # a used-up quota a lost answer can still be fetched again: stored answers are given, and nothing else.
        only_stored = admitted.repeat is not None and not admitted.allowance.has_left(count)
        admitted.charged = 0 if only_stored else count
        admitted.allowance.take(count - 1, counted=admitted.charged, already=1)
        self.metrics.waiting += 1
        admitted.started = time.monotonic()
        wanted = asked.probabilities is not None
        return Request(admitted.key.id, asked.rows, admitted.repeat, digest, only_stored, wanted)

    def _refund(self, admitted: _Admitted, error: Exception) -> Exception:
        """The problem that the caller sees. A request that ends in a problem is not charged."""
        if isinstance(error, NothingStored):
            return admitted.allowance.used_up()
        if (problem := to_problem(error)) is None:
            return error
        admitted.allowance.give_back(admitted.charged)
        if isinstance(error, KeyReused):
            self._count_repeat(admitted)
        return problem

    def _count_repeat(self, admitted: _Admitted) -> None:
        """Count a repeat in public numbers, in the same way whether or not its body was the same."""
        now = time.monotonic()
        self._recent.append((now, now - admitted.started, 0))
        self.metrics.replayed.inc()

    def _charged_headers(self, admitted: _Admitted, count: int, answered: Answered) -> dict[str, str]:
        """Count what was spent; return the headers that show it."""
        if answered.replayed:
            admitted.allowance.give_back(admitted.charged)
            self._count_repeat(admitted)
            return {**admitted.allowance.headers(), REPLAYED: "true"}
        now = time.monotonic()
        self._recent.append((now, now - admitted.started, count))
        return admitted.allowance.headers()

    # ── observing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def server(self, call: Call) -> Response:
        """Describe the server."""
        return json_response(metadata.server_metadata(self.version))

    async def live(self, call: Call) -> Response:
        """Say whether the server is alive. After a halt it is not, since only a restart helps."""
        if self.answering.status().halted:
            raise Problem("halted")
        return json_response({"live": True})

    async def ready(self, call: Call) -> Response:
        """Say whether questions are answered."""
        if self.closing.is_set():
            raise Problem("closing", "", {"Retry-After": "5"})
        if self.answering.status().halted:
            raise Problem("halted")
        return json_response({"ready": True, "name": self.name})

    async def model_ready(self, call: Call) -> Response:
        """Say whether the model answers."""
        self.check_model(call)
        return await self.ready(call)

    async def model(self, call: Call) -> Response:
        """Describe the model."""
        self.admit(call, "observe")
        self.check_model(call)
        return json_response(self._metadata)

    async def ping(self, call: Call) -> Response:
        """Say whether the server is alive, as MLflow does."""
        await self.ready(call)
        return Response("\n", 200, SAFE, media_type="text/plain")

    async def mlflow_version(self, call: Call) -> Response:
        """Return the version."""
        return Response(self.version, 200, SAFE, media_type="text/plain")

    async def guarantee(self, call: Call) -> Response:
        """State the guarantee, in words or as JSON."""
        now = self.answering.status()
        guarantee = now.guarantee
        words = in_words(guarantee, public_model=now.public_model, besides=now.besides, truth=now.truth)
        if JSON in (call.header(b"accept") or ""):
            return json_response({"model": self.name, **asdict(guarantee), "words": words})
        return Response(words + "\n", 200, {**SAFE, "Vary": "Accept"}, media_type="text/plain; charset=utf-8")

    async def status(self, call: Call) -> Response:
        """Return all public numbers. Administrators also see how many answers each client has received."""
        return json_response(self._status_for(self.admit(call, "observe")))

    async def prometheus(self, call: Call) -> Response:
        """Return the metrics."""
        self.admit(call, "observe")
        return compressible(call, self.metrics.text(), {}, CONTENT_TYPE)

    async def events(self, call: Call) -> Response:
        """Send the status once a second, as long as someone listens."""
        key = self.admit(call, "observe")
        soon = {"Retry-After": "10"}
        if self._streams.total() >= self.limits.streams:
            raise Problem("busy", f"there may be at most {self.limits.streams} streams", soon)
        if self._streams[key.id] >= self.limits.streams_per_key:
            raise Problem("busy", f"a key may have at most {self.limits.streams_per_key} streams", soon)
        self._streams[key.id] += 1
        return StatusStream(self, key)

    def stream_ended(self, key: Key) -> None:
        """Count one stream less."""
        self._streams[key.id] -= 1

    async def stream(self, key: Key, receive: Receive) -> AsyncIterator[bytes]:
        """The status once a second, until the listener disconnects, the service closes, or the key is revoked."""
        gone = asyncio.create_task(calls.disconnected(receive))
        closing = asyncio.create_task(self.closing.wait())
        try:
            while not (gone.done() or closing.done()):
                yield b"event: status\ndata: " + msgspec.json.encode(self._status_for(key)) + b"\n\n"
                pause = self.limits.status_seconds
                await asyncio.wait({gone, closing}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if not self.keyring.still_valid(key):
                    return
        finally:
            gone.cancel()
            closing.cancel()

    def _status_for(self, key: Key) -> dict[str, Any]:
        now = time.monotonic()
        if now - self._snapshot[0] > 0.5:
            self._snapshot = now, self._load(now)
        found = {"model": self.name, **asdict(self.answering.status()), "load": self._snapshot[1]}
        return {**found, "clients": self.keyring.clients()} if key.allows("admin") else found

    def _load(self, now: float) -> dict[str, float | int | None]:
        """The load of the last ten seconds. How long an answer takes does not depend on the answer."""
        recent = [one for one in self._recent if now - one[0] <= 10]
        # If more came than is remembered, the remembered time is shorter.
        span = 10.0 if len(recent) < len(self._recent) or len(recent) < 8192 else max(now - recent[0][0], 1e-3)
        times = sorted(one[1] for one in recent)
        return {
            "answers_per_second": sum(one[2] for one in recent) / span,
            "requests_per_second": len(recent) / span,
            "median_seconds": times[len(times) // 2] if times else None,
            "p99_seconds": times[int(len(times) * 0.99)] if times else None,
        }

    # ── admission ───────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, call: Call, scope: str) -> Key:
        """The key of a call, if it allows the scope."""
        # Without keys, a page of another site could let the browser ask here under a name of its own. So could anyone
        # through a proxy that replaces the name by that of this machine.
        if self.keyring.open:
            headers = call.headers
            if not calls.is_local(headers.get(b"host", b""), headers.get(b"origin")):
                raise Problem("foreign-page", "without keys, only this machine may ask, by the name localhost")
            if b"x-forwarded-for" in headers or b"forwarded" in headers or b"via" in headers:
                raise Problem("through-proxy")
        key = self.keyring.authenticate(call.header(b"authorization"))
        if not key.allows(scope):
            raise Problem("not-allowed", f"this needs a key with the scope {scope!r}")
        return key

    def check_model(self, call: Call) -> None:
        """Refuse a call for another model, or another version of it."""
        parts = call.scope["path_params"]
        if parts["name"] != self.name or parts.get("version", open_inference.VERSION) != open_inference.VERSION:
            raise Problem("not-found", "there is no model, or no version, of that name")


class StatusStream(Response):
    """The status as server-sent events."""

    def __init__(self, service: Service, key: Key) -> None:
        super().__init__(None, 200, {**SAFE, "X-Accel-Buffering": "no"}, "text/event-stream")
        del self.headers["content-length"]
        self._service, self._key = service, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream ends."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async for event in self._service.stream(self._key, receive):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._service.stream_ended(self._key)


def body_digest(key: str | None, call: Call, form: bytes, body: bytes) -> bytes:
    """A digest of all that determines the question. It is compared only with that of the same client's same key."""
    if key is None:
        return b""
    hashed = hashlib.sha256(b"%b\0%b\0" % (call.scope["path"].encode(), form))
    hashed.update(body)
    return hashed.digest()


def counted_status(status: int, headers: Mapping[str, str]) -> int | str:
    """The status under which a response is counted."""
    return REPEAT if status == KINDS["key-reused"][0] or REPLAYED in headers else status
