"""Asking a service from Python: rows in, labels out; a question that was lost on the way is repeated, and paid once."""

from __future__ import annotations

import asyncio
import http.client
import random
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_matrix, as_numbers, as_text
from reticent.extras import require

Array = NDArray[Any]

URL = "http://127.0.0.1:8341"
AT_ONCE = 50_000  # rows a request
WRONG_NAME = (62, 63, 64)  # of OpenSSL: the certificate is not for this host, e-mail address or IP address
NUMBERS = {"BOOL": "?", "INT64": "<i8", "FP64": "<f8"}


class ServiceError(RuntimeError):
    """The service refused; `status` is that of HTTP, `kind` the last part of the problem's type."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(f"{detail} ({status})")
        self.status, self.kind = status, kind


class NotSent(ConnectionError):
    """The service could not be reached: nothing was sent, so nothing was answered."""


class UntrustedCertificate(NotSent):
    """The certificate of the service is not one that this machine trusts, or is for another name: nothing was sent."""


class _NoConnection(OSError):
    """No connection could be made, for the reason in `__cause__`."""


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class _Question(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    left_out: tuple[str, ...] = ()  # columns that hold neither numbers, text nor truths


class _Base:
    """What both clients know: how a question is written, an answer read, and when to try again."""

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

    def _get(self, path: str) -> _Question:
        return _Question("GET", self._prefix + path, self._headers({"Accept": "application/json"}), b"")

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers if self._key is None else {**headers, "Authorization": f"Bearer {self._key}"}

    def _questions(self, rows: Any, repeat: str | None) -> Iterator[_Question]:
        """The rows in chunks, one question each, with a key of its own so that it can be repeated."""
        repeat = uuid.uuid4().hex if repeat is None else repeat
        tensors, left_out = _tensors(rows)
        count = len(next(iter(tensors.values()))) if tensors else 0
        if count == 0:
            raise ValueError("rows must have at least one row")
        path = f"{self._prefix}{self._path}/infer"
        for start in range(0, count, AT_ONCE):
            head, data = _written({name: values[start : start + AT_ONCE] for name, values in tensors.items()})
            headers = {
                "Content-Type": "application/octet-stream",
                "Inference-Header-Content-Length": str(len(head)),
                "Idempotency-Key": repeat if start == 0 else f"{repeat}-{start}",
            }
            yield _Question("POST", path, self._headers(headers), head + data, left_out)

    @property
    def _path(self) -> str:
        return f"/v2/models/{quote(self._model, safe='')}"

    def _labels(self, reply: _Reply) -> Array:
        head, data = _split(reply)
        self._check_model(head.get("model_name"))
        return _labels(head, data)

    def _public(self, reply: _Reply, name: str = "model") -> dict[str, Any]:
        """Public numbers; of another model they are refused."""
        found = _object(reply)
        self._check_model(found.get(name))
        return found

    def _check_model(self, served: object) -> None:
        if served != self._model:
            raise ServiceError(404, "wrong-model", f"{self._where} serves the model {served!r}, not {self._model!r}")

    def _failed(self, question: _Question, reply: _Reply | None, lost: Exception | None, sent: bool) -> Exception:
        """The error if trying again does not help; `sent` says whether the request may have arrived."""
        if reply is None:
            kind = ConnectionError if sent else NotSent
            error = kind(f"the service at {self._where} does not answer")
            error.__cause__ = lost.__cause__ if isinstance(lost, _NoConnection) else lost
            return error
        if reply.status == 404:
            return ServiceError(404, "wrong-model", f"{self._where} serves no model named {self._model!r}")
        return _error(reply, question.left_out)

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

    def _wait(self, attempt: int, reply: _Reply | None) -> float | None:
        """How long to wait before trying again; None if that would not help."""
        if attempt >= self._retries:
            return None
        if reply is None:  # it was lost on the way
            return random.uniform(0.5, 1.0) * min(5.0, 0.05 * 2.0**attempt)
        after = reply.headers.get("retry-after", "")
        if reply.status not in (429, 503) or not after.isdigit():
            return None
        return float(after) * random.uniform(1.0, 1.1)


class Client(_Base):
    """Asks a service; may be used by several threads.

    A question that was lost on the way, or came too early, is repeated under the same idempotency key: it is answered
    and paid for once.

    The model is named, by `model` or by a url that ends in its path. A service of another model is refused.

    >>> client = Client("http://127.0.0.1:8341", model="clinic", key="…")
    >>> client.ask([[54.0, 81.5]])  # doctest: +SKIP
    array([1])
    """

    def __init__(self, url: str = URL, **options: Any) -> None:
        super().__init__(url, **options)
        self._local = threading.local()

    def ask(self, rows: Any, *, idempotency_key: str | None = None) -> Array:
        """A label for every row of an array, of a data frame, or of a mapping of columns.

        The same rows under the same `idempotency_key`, which must not be made from the rows, are the same question,
        also if another process asks: it gets the same labels, and they are paid for once. None makes a new one.
        """
        questions = self._questions(rows, idempotency_key)
        return np.concatenate([self._labels(self._answer_to(one)) for one in questions])

    def status(self) -> dict[str, Any]:
        """All public numbers: phase, answers left, length and head of the answer log."""
        return self._public(self._answer_to(self._get("/status")))

    def guarantee(self) -> dict[str, Any]:
        """What is promised, with `words`."""
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

    def _answer_to(self, question: _Question) -> _Reply:
        attempt, sent = 0, False
        while True:
            try:
                reply, lost = self._send(question), None
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise self._untrusted(error, sent) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reply, lost = None, error
            sent = sent or not isinstance(lost, _NoConnection)
            if reply is not None and reply.status == 200:
                return reply
            wait = self._wait(attempt, reply)
            if wait is None:
                raise self._failed(question, reply, lost, sent)
            time.sleep(wait)
            attempt += 1

    def _send(self, question: _Question) -> _Reply:
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
        return _Reply(found.status, {name.lower(): value for name, value in found.getheaders()}, body)


def _connect(connection: http.client.HTTPConnection) -> None:
    try:
        connection.connect()
    except ssl.SSLCertVerificationError:
        raise
    except OSError as error:
        raise _NoConnection from error


class AsyncClient(_Base):
    """Asks a service from asyncio, as many questions at a time as are awaited; otherwise like `Client`."""

    def __init__(self, url: str = URL, **options: Any) -> None:
        super().__init__(url, **options)
        self._idle: list[_Wire] = []

    async def ask(self, rows: Any, *, idempotency_key: str | None = None) -> Array:
        """A label for every row of an array, of a data frame, or of a mapping of columns; see `Client.ask`."""
        questions = self._questions(rows, idempotency_key)
        return np.concatenate([self._labels(await self._answer_to(one)) for one in questions])

    async def status(self) -> dict[str, Any]:
        """All public numbers: phase, answers left, length and head of the answer log."""
        return self._public(await self._answer_to(self._get("/status")))

    async def guarantee(self) -> dict[str, Any]:
        """What is promised, with `words`."""
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

    async def _answer_to(self, question: _Question) -> _Reply:
        import h11

        attempt, sent = 0, False
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    reply, lost = await self._send(question), None
            except ssl.SSLCertVerificationError as error:
                raise await asyncio.to_thread(self._untrusted, error, sent) from None
            except (OSError, h11.ProtocolError) as error:
                reply, lost = None, error
            sent = sent or not isinstance(lost, _NoConnection)
            if reply is not None and reply.status == 200:
                return reply
            wait = self._wait(attempt, reply)
            if wait is None:
                raise self._failed(question, reply, lost, sent)
            await asyncio.sleep(wait)
            attempt += 1

    async def _send(self, question: _Question) -> _Reply:
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


class _Wire:
    """One connection: h11 speaks HTTP, asyncio carries it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        import h11

        self._reader, self._writer, self._host = reader, writer, host
        self._state = h11.Connection(our_role=h11.CLIENT)

    async def send(self, question: _Question) -> _Reply:
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
                return _Reply(status, found, b"".join(parts))
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the connection was closed")

    def usable(self) -> bool:
        """Whether another question can be sent; if so, get ready for it."""
        import h11

        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        return True

    async def close(self) -> None:
        self._writer.close()


# ── what is sent and what comes back ──────────────────────────────────────────────────────────────────────────────────


def _tensors(rows: Any) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Columns by name, or all in one array; and the columns that cannot be sent, such as dates.

    Only the service knows which columns are declared. It ignores those that are not, and names those that are missing.
    """
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):  # a data frame, of pandas or polars
        rows = {str(name): rows[name].to_numpy() for name in rows.columns}
    if not isinstance(rows, Mapping):
        return {"rows": _matrix(rows)}, ()
    tensors = {str(name): _column(values) for name, values in rows.items()}
    if len({values.shape for values in tensors.values()}) > 1 or any(one.ndim != 1 for one in tensors.values()):
        raise ValueError("rows must be columns of one length")
    left_out = tuple(name for name, values in tensors.items() if values.dtype.kind in "cmMV")
    if tensors and len(left_out) == len(tensors):
        raise ValueError(f"rows must have a column of numbers, text or truths, got {', '.join(map(repr, left_out))}")
    return {name: values for name, values in tensors.items() if name not in left_out}, left_out


def _matrix(rows: Any) -> Array:
    """Rows of numbers. A cell that is none is a missing one for the service; only the shape is refused."""
    table: Array | None = None
    with suppress(Exception):  # a cell may be a list, or an object that raises what it likes
        table = np.asarray(rows)
    if (table is None or table.dtype.kind not in "biuf") and not isinstance(rows, np.ndarray):
        table = as_matrix(rows)
    if table is None:
        raise ValueError("rows must be rows of cells, all of one length")
    if table.ndim != 2:
        raise ValueError(f"rows must have two dimensions, got {table.ndim}")
    return as_numbers(table.ravel()).reshape(table.shape)


def _column(values: Any) -> Array:
    """A column of numbers, or of cells."""
    if isinstance(values, np.ndarray):
        return values
    column: Array | None = None
    with suppress(Exception):
        column = np.asarray(values)
    kind = "" if column is None else column.dtype.kind
    # An array of strings would cut NULs off, and one of numbers would make 1 of a truth among them.
    if column is None or kind not in "biuf" or (kind != "b" and bool in set(map(type, values))):
        some = list(values)
        column = np.empty(len(some), dtype=object)
        column[:] = some
    return column


def _written(tensors: Mapping[str, Array]) -> tuple[bytes, bytes]:
    """The JSON of a question, and its binary data."""
    import msgspec

    inputs, data = [], []
    for name, values in tensors.items():
        if values.dtype.kind == "b":
            datatype, packed = "BOOL", values.tobytes()
        elif values.dtype.kind in "iuf":
            datatype, packed = "FP64", np.ascontiguousarray(values, dtype="<f8").tobytes()
        else:
            words = [as_text(one).encode("utf-8", "surrogatepass") for one in values.tolist()]
            datatype, packed = "BYTES", b"".join(map(_with_length, words))
        shape, size = list(values.shape), {"binary_data_size": len(packed)}
        inputs.append({"name": name, "shape": shape, "datatype": datatype, "parameters": size})
        data.append(packed)
    head = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    return msgspec.json.encode(head), b"".join(data)


def _with_length(word: bytes) -> bytes:
    return struct.pack("<I", len(word)) + word


def _split(reply: _Reply) -> tuple[dict[str, Any], memoryview]:
    """The JSON of an answer, and its binary data."""
    import msgspec

    length = int(reply.headers["inference-header-content-length"])
    return msgspec.json.decode(reply.body[:length], type=dict[str, Any]), memoryview(reply.body)[length:]


def _labels(head: Mapping[str, Any], data: memoryview) -> Array:
    (output,) = head["outputs"]
    if output["datatype"] in NUMBERS:
        return np.frombuffer(data, dtype=NUMBERS[output["datatype"]]).copy()
    words, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        words.append(str(data[at + 4 : at + 4 + size], "utf-8"))
        at += 4 + size
    return np.array(words)


def _object(reply: _Reply) -> dict[str, Any]:
    import msgspec

    return msgspec.json.decode(reply.body, type=dict[str, Any])


def _error(reply: _Reply, left_out: tuple[str, ...]) -> ServiceError:
    import msgspec

    try:
        found = _object(reply)
    except msgspec.DecodeError:
        return ServiceError(reply.status, "unknown", "the service refused")
    kind = str(found.get("type", "")).rpartition("#")[2]
    detail = str(found.get("error", "the service refused"))
    if kind == "wrong-tensors" and left_out:
        detail += f"; not sent, as they hold neither numbers, text nor truths: {', '.join(map(repr, left_out))}"
    return ServiceError(reply.status, kind, detail)
