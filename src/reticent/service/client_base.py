"""What both clients of the service share: how a request is written, a response read, and when to try again."""

from __future__ import annotations

import random
import socket
import ssl
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from numpy.typing import NDArray

from reticent.extras import require
from reticent.service.client_labels import ANSWER_IDS, feedback_bodies, json_body, labelled_tensors
from reticent.service.client_messages import (
    LABELS,
    PROBABILITIES,
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
LONGEST_PAUSE = 600  # seconds: who is to wait longer, as for the labelled rows of the next day, is told so
BOTH = (LABELS, PROBABILITIES)
WITH_IDS = (LABELS, ANSWER_IDS)
WRONG_NAME = (62, 63, 64)  # of OpenSSL: the certificate is not for this host, e-mail address or IP address


class NotSent(ConnectionError):
    """The service could not be reached: nothing was sent, so nothing was answered."""


class UntrustedCertificate(NotSent):
    """The certificate of the service is not one that this machine trusts, or is for another name: nothing was sent."""


class NoConnection(OSError):
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

    def _lessons(
        self, rows: Any, labels: Any, groups: Any, repeat: str | None, about: dict[str, Any]
    ) -> Iterator[Question]:
        """Labelled rows in chunks, one request each, under keys as those of questions."""
        repeat = uuid.uuid4().hex if repeat is None else repeat
        tensors, left_out = labelled_tensors(rows, labels, groups, about["parameters"])
        for start in range(0, len(next(iter(tensors.values()))), ROWS_PER_REQUEST):
            part = {name: values[start : start + ROWS_PER_REQUEST] for name, values in tensors.items()}
            head, data = encode_request(part, ())
            headers = {
                "Content-Type": "application/octet-stream",
                "Inference-Header-Content-Length": str(len(head)),
                "Idempotency-Key": repeat if start == 0 else f"{repeat}-{start}",
            }
            path = f"{self._prefix}{self._path}/labelled"
            yield Question("POST", path, self._headers(headers), head + data, left_out)

    def _feedback(self, labels: Any, answer_ids: Any, repeat: str | None, rows: Any) -> Iterator[Question]:
        """Labels of answers in chunks, by their ids, or by the keys of the requests that asked."""
        for body in feedback_bodies(labels, answer_ids, repeat, rows, ROWS_PER_REQUEST):
            yield self._post("/feedback", body)

    def _post(self, path: str, body: dict[str, Any]) -> Question:
        headers = self._headers({"Content-Type": "application/json"})
        return Question("POST", f"{self._prefix}{self._path}{path}", headers, json_body(body))

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
            error.__cause__ = lost.__cause__ if isinstance(lost, NoConnection) else lost
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


class Attempts:
    """Counts the tries of one request, and decides after each what follows."""

    def __init__(self, client: ServiceClient, question: Question, retries: int) -> None:
        self._client, self._question, self._left = client, question, retries
        self._tried = 0
        self.sent = False  # whether a try may have arrived

    def pause(self, reply: Reply | None, lost: Exception | None) -> float | None:
        """Seconds to wait before the next try; None if the reply is the answer. Raises if no try would help."""
        self.sent = self.sent or not isinstance(lost, NoConnection)
        if reply is not None and reply.status in (200, 202):
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
        return float(after) * random.uniform(1.0, 1.1) if float(after) <= LONGEST_PAUSE else None
