"""Clients of the service in Python: rows in, labels out. A lost request is repeated, and charged once."""

from __future__ import annotations

import asyncio
import http.client
import random
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from reticent.extras import require
from reticent.service.client_messages import (
    LABELS,
    PROBABILITIES,
    Prediction,
    Question,
    Reply,
    ServiceError,
    decoded,
    encode_request,
    error_in,
    json_object,
    tensor_in,
    tensors_of,
)

Array = NDArray[Any]

URL = "http://127.0.0.1:8341"
ROWS_PER_REQUEST = 50_000
BOTH = (LABELS, PROBABILITIES)
WRONG_NAME = (62, 63, 64)  # of OpenSSL: the certificate is not for this host, e-mail address or IP address


class NotSent(ConnectionError):
    """The service could not be reached: nothing was sent, so nothing was answered."""


class UntrustedCertificate(NotSent):
    """The certificate of the service is not one that this machine trusts, or is for another name: nothing was sent."""


class _NoConnection(OSError):
    """No connection could be made, for the reason in `__cause__`."""


class ServiceClient:
    """What both clients share: how a request is written, a response read, and when to try again."""

    def __init__(
        self,
        url: str = URL,
        *,
        model: str | None = None,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        context: ssl.SSLContext | None = None,
    ) -> None:
        require("service", "ask a service")  # h11 and msgspec, which are imported where they are used
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be http://host:port or https://host:port, got {url.rpartition('@')[2]!r}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        before, found, named = parts.path.rstrip("/").rpartition("/v2/models/")
        if model is not None and not (isinstance(model, str) and model):
            raise ValueError(f"model must be the name of a model, got {model!r}")
        if model is None and not (found and named and "/" not in named):
            raise ValueError(
                'model must be named, since any service may listen at the url: Client(url, model="clinic"), or a url '
                "that ends in /v2/models/clinic"
            )
        if found and model not in (None, unquote(named)):
            raise ValueError(f"model {model!r} is not the one that the url names, {unquote(named)!r}")
        self._host, self._prefix = parts.hostname, before if found else parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._model = unquote(named) if model is None else model
        self._key, self._timeout, self._retries = key, timeout, retries
        self._where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._prepare()

    def _prepare(self) -> None:
        """Set up what keeps connections."""
        raise NotImplementedError

    def _get(self, path: str) -> Question:
        return Question("GET", self._prefix + path, self._headers({"Accept": "application/json"}), b"")

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers if self._key is None else {**headers, "Authorization": f"Bearer {self._key}"}

    def _questions(self, rows: Any, repeat: str | None, outputs: Sequence[str] = (LABELS,)) -> Iterator[Question]:
        """The rows in chunks, one request each, with a key of its own so that it can be repeated."""
        repeat = uuid.uuid4().hex if repeat is None else repeat
        tensors, left_out = tensors_of(rows)
        count = len(next(iter(tensors.values()))) if tensors else 0
        if count == 0:
            raise ValueError("rows must have at least one row")
        path = f"{self._prefix}{self._path}/infer"
        for start in range(0, count, ROWS_PER_REQUEST):
            part = {name: values[start : start + ROWS_PER_REQUEST] for name, values in tensors.items()}
            head, data = encode_request(part, outputs)
            headers = {
                "Content-Type": "application/octet-stream",
                "Inference-Header-Content-Length": str(len(head)),
                "Idempotency-Key": repeat if start == 0 else f"{repeat}-{start}",
            }
            yield Question("POST", path, self._headers(headers), head + data, left_out)

    @property
    def _path(self) -> str:
        return f"/v2/models/{quote(self._model, safe='')}"

    def _labels(self, reply: Reply) -> Array:
        return self._outputs(reply, LABELS)[0]

    def _outputs(self, reply: Reply, *outputs: str) -> list[Array]:
        head, data = decoded(reply)
        self._check_model(head.get("model_name"))
        return [tensor_in(head, data, name) for name in outputs]

    def _public(self, reply: Reply, name: str = "model") -> dict[str, Any]:
        """Public numbers; of another model they are refused."""
        found = json_object(reply)
        self._check_model(found.get(name))
        return found

    def _check_model(self, served: object) -> None:
        if served != self._model:
            raise ServiceError(404, "wrong-model", f"{self._where} serves the model {served!r}, not {self._model!r}")

    def failure(self, question: Question, reply: Reply | None, lost: Exception | None, sent: bool) -> Exception:
        """The error if trying again does not help; `sent` says whether the request may have arrived."""
        if reply is None:
            kind = ConnectionError if sent else NotSent
            error = kind(f"the service at {self._where} does not answer")
            error.__cause__ = lost.__cause__ if isinstance(lost, _NoConnection) else lost
            return error
        if reply.status == 404:
            return ServiceError(404, "wrong-model", f"{self._where} serves no model named {self._model!r}")
        return error_in(reply, question.left_out)

    def _untrusted(self, error: ssl.SSLCertVerificationError, sent: bool) -> ConnectionError:
        """The error if the certificate is refused; `sent` says whether an earlier try may have arrived."""
        kind = ConnectionError if sent else UntrustedCertificate
        if error.verify_code in WRONG_NAME:
            names = self._names()
            return kind(
                f"the certificate of {self._where} is for {', '.join(names) or 'another name'}: ask by "
                f"{'one of these names' if names else 'the name that it is for'} (--url)"
            )
        return kind(
            f"the certificate of {self._where} is not trusted: {error.verify_message.rstrip('.')}. To trust it, name a "
            "file with the certificate, or with that of its issuer, in $SSL_CERT_FILE, or by "
            "context=ssl.create_default_context(cafile=…)"
        )

    def _names(self) -> list[str]:
        """The names that a trusted certificate is for. The connection is closed before anything is sent over it."""
        context = ssl.create_default_context()
        context.check_hostname = False
        with suppress(OSError), socket.create_connection((self._host, self._port), self._timeout) as plain, (
            context.wrap_socket(plain, server_hostname=self._host)
        ) as secure:
            found: Any = secure.getpeercert() or {}
            return [name for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
        return []


class _Attempts:
    """Counts the tries of one request, and decides after each what follows."""

    def __init__(self, client: ServiceClient, question: Question, retries: int) -> None:
        self._client, self._question, self._left = client, question, retries
        self._tried = 0
        self.sent = False  # whether a try may have arrived

    def pause(self, reply: Reply | None, lost: Exception | None) -> float | None:
        """Seconds to wait before the next try; None if the reply is the answer. Raises if no try would help."""
        self.sent = self.sent or not isinstance(lost, _NoConnection)
        if reply is not None and reply.status == 200:
            return None
        seconds = self._seconds(reply)
        if seconds is None or self._left == 0:
            raise self._client.failure(self._question, reply, lost, self.sent)
        self._left -= 1
        self._tried += 1
        return seconds

    def _seconds(self, reply: Reply | None) -> float | None:
        if reply is None:  # it was lost on the way
            return random.uniform(0.5, 1.0) * min(5.0, 0.05 * 2.0**self._tried)
        after = reply.headers.get("retry-after", "")
        if reply.status not in (429, 503) or not after.isdigit():
            return None
        return float(after) * random.uniform(1.0, 1.1)


class Client(ServiceClient):
    """Asks a service. Several threads may use one client.

    A request that was lost, or came too early, is repeated under the same idempotency key: it is answered and charged
    once.

    Parameters
    ----------
    url : str, default "http://127.0.0.1:8341"
        Address of the service. It may end in the path of the model, /v2/models/NAME.
    model : str, default None
        The name of the model, if the url does not name it. A service of another model is refused.
    key : str, default None
        The key to ask with.
    timeout : float, default 30.0
        Seconds that one try may take.
    retries : int, default 5
        How often a request is repeated that was lost, or came too early.
    context : ssl.SSLContext, default None
        Which certificates are trusted. None means those that the system trusts.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8341", model="clinic", key="…")
    >>> row = {"age": [71], "days": [9], "earlier_stays": [3], "medicines": [11], "haemoglobin": [11.5]}
    >>> client.ask({**row, "ward": ["heart"], "emergency": ["yes"]})  # doctest: +SKIP
    array(['yes'], dtype='<U3')
    """

    def _prepare(self) -> None:
        self._local = threading.local()

    def ask(self, rows: Any, *, idempotency_key: str | None = None) -> Array:
        """Ask for the label of every row.

        Parameters
        ----------
        rows : array-like, data frame or mapping of columns
            The rows.
        idempotency_key : str, default None
            The same rows under the same key are the same request, also if another process sends it: it gets the same
            labels, and they are charged once. The key must not be made from the rows. None makes a new one.

        Returns
        -------
        array
            One label per row.
        """
        questions = self._questions(rows, idempotency_key)
        return np.concatenate([self._labels(self._answer_to(one)) for one in questions])

    def ask_with_probabilities(self, rows: Any, *, idempotency_key: str | None = None) -> Prediction:
        """Ask for the label of every row, and for the probabilities of all classes.

        The service must have been started with --probabilities. The labels count as those of `ask` do.

        Parameters
        ----------
        rows, idempotency_key
            As for `ask`.

        Returns
        -------
        Prediction
            `labels`, and `probabilities` with one column per class, in the order of `metadata()["parameters"]`.
        """
        questions = self._questions(rows, idempotency_key, BOTH)
        return _joined([self._outputs(self._answer_to(one), *BOTH) for one in questions])

    def status(self) -> dict[str, Any]:
        """All public numbers: phase, answers left, length and head of the answer log."""
        return self._public(self._answer_to(self._get("/status")))

    def guarantee(self) -> dict[str, Any]:
        """The guarantee: its numbers, and `words` that state it."""
        return self._public(self._answer_to(self._get("/guarantee")))

    def metadata(self) -> dict[str, Any]:
        """Inputs, outputs, columns and classes of the model."""
        return self._public(self._answer_to(self._get(self._path)), "name")

    def close(self) -> None:
        """Close the connection of this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _answer_to(self, question: Question) -> Reply:
        attempts = _Attempts(self, question, self._retries)
        while True:
            reply, lost = None, None
            try:
                reply = self._send(question)
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise self._untrusted(error, attempts.sent) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                lost = error
            pause = attempts.pause(reply, lost)
            if pause is None:
                assert reply is not None
                return reply
            time.sleep(pause)

    def _send(self, question: Question) -> Reply:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            made: dict[str, Any] = {"timeout": self._timeout}
            if self._context is None:
                connection = http.client.HTTPConnection(self._host, self._port, **made)
            else:
                connection = http.client.HTTPSConnection(self._host, self._port, context=self._context, **made)
            _connect(connection)
            self._local.connection = connection
        connection.request(question.method, question.path, question.body or None, question.headers)
        found = connection.getresponse()
        body = found.read()
        return Reply(found.status, {name.lower(): value for name, value in found.getheaders()}, body)


def _connect(connection: http.client.HTTPConnection) -> None:
    try:
        connection.connect()
    except ssl.SSLCertVerificationError:
        raise
    except OSError as error:
        raise _NoConnection from error


class AsyncClient(ServiceClient):
    """Asks a service from asyncio. Calls that are awaited together are sent together; otherwise like `Client`.

    Parameters
    ----------
    url : str, default "http://127.0.0.1:8341"
        Address of the service. It may end in the path of the model, /v2/models/NAME.
    model : str, default None
        The name of the model, if the url does not name it. A service of another model is refused.
    key : str, default None
        The key to ask with.
    timeout : float, default 30.0
        Seconds that one try may take.
    retries : int, default 5
        How often a request is repeated that was lost, or came too early.
    context : ssl.SSLContext, default None
        Which certificates are trusted. None means those that the system trusts.
    """

    def _prepare(self) -> None:
        self._idle: list[_Wire] = []

    async def ask(self, rows: Any, *, idempotency_key: str | None = None) -> Array:
        """Ask for the label of every row; see `Client.ask`."""
        questions = self._questions(rows, idempotency_key)
        return np.concatenate([self._labels(await self._answer_to(one)) for one in questions])

    async def ask_with_probabilities(self, rows: Any, *, idempotency_key: str | None = None) -> Prediction:
        """Ask for the label of every row, and for the probabilities; see `Client.ask_with_probabilities`."""
        questions = self._questions(rows, idempotency_key, BOTH)
        return _joined([self._outputs(await self._answer_to(one), *BOTH) for one in questions])

    async def status(self) -> dict[str, Any]:
        """All public numbers: phase, answers left, length and head of the answer log."""
        return self._public(await self._answer_to(self._get("/status")))

    async def guarantee(self) -> dict[str, Any]:
        """The guarantee: its numbers, and `words` that state it."""
        return self._public(await self._answer_to(self._get("/guarantee")))

    async def metadata(self) -> dict[str, Any]:
        """Inputs, outputs, columns and classes of the model."""
        return self._public(await self._answer_to(self._get(self._path)), "name")

    async def close(self) -> None:
        """Close all connections that are idle."""
        while self._idle:
            await self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _answer_to(self, question: Question) -> Reply:
        import h11

        attempts = _Attempts(self, question, self._retries)
        while True:
            reply, lost = None, None
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await self._send(question)
            except ssl.SSLCertVerificationError as error:
                raise await asyncio.to_thread(self._untrusted, error, attempts.sent) from None
            except (OSError, h11.ProtocolError) as error:
                lost = error
            pause = attempts.pause(reply, lost)
            if pause is None:
                assert reply is not None
                return reply
            await asyncio.sleep(pause)

    async def _send(self, question: Question) -> Reply:
        wire = self._idle.pop() if self._idle else None
        try:
            if wire is None:
                try:
                    streams = await asyncio.open_connection(self._host, self._port, ssl=self._context)
                except ssl.SSLCertVerificationError:
                    raise
                except OSError as error:
                    raise _NoConnection from error
                wire = _Wire(*streams, f"{self._host}:{self._port}")
            reply = await wire.send(question)
        except BaseException:
            if wire is not None:
                await wire.close()
            raise
        if wire.usable():
            self._idle.append(wire)
        else:
            await wire.close()
        return reply


def _joined(parts: Sequence[Sequence[Array]]) -> Prediction:
    return Prediction(*(np.concatenate(one) for one in zip(*parts, strict=True)))


class _Wire:
    """One connection: h11 speaks HTTP, asyncio carries it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        import h11

        self._reader, self._writer, self._host = reader, writer, host
        self._state = h11.Connection(our_role=h11.CLIENT)

    async def send(self, question: Question) -> Reply:
        import h11

        headers = {**question.headers, "Host": self._host, "Content-Length": str(len(question.body))}
        request = h11.Request(method=question.method, target=question.path, headers=list(headers.items()))
        events = (request, h11.Data(data=question.body), h11.EndOfMessage())
        self._writer.write(b"".join(self._state.send(event) or b"" for event in events))
        await self._writer.drain()
        status, found, parts = 0, {}, []
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(1 << 16)
                if not data and self._state.their_state is h11.SEND_RESPONSE:
                    raise ConnectionResetError("the connection was closed")
                self._state.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                found = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return Reply(status, found, b"".join(parts))
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the connection was closed")

    def usable(self) -> bool:
        """Whether another request can be sent; if so, get ready for it."""
        import h11

        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        return True

    async def close(self) -> None:
        self._writer.close()
