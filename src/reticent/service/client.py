"""Clients of the service in Python: rows in, labels out. A lost request is repeated, and charged once."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from reticent.service.client_base import BOTH, WITH_IDS, Attempts, NoConnection, ServiceClient
from reticent.service.client_connection import Connection
from reticent.service.client_labels import IdentifiedAnswers, Taught, taught
from reticent.service.client_messages import Prediction, Question, Reply, json_object

Array = NDArray[Any]


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
        return Prediction(*_joined([self._outputs(self._answer_to(one), *BOTH) for one in questions]))

    def ask_with_answer_ids(self, rows: Any, *, idempotency_key: str | None = None) -> IdentifiedAnswers:
        """Ask for the label of every row, and for ids by which `feedback` gives the true labels later.

        The service must take feedback: its predictor was fitted with truth="feedback" or "both".

        Parameters
        ----------
        rows, idempotency_key
            As for `ask`.
        """
        questions = self._questions(rows, idempotency_key, WITH_IDS)
        return IdentifiedAnswers(*_joined([self._outputs(self._answer_to(one), *WITH_IDS) for one in questions]))

    def feedback(
        self,
        answer_ids: Any,
        labels: Any,
        *,
        idempotency_key: str | None = None,
        rows: Any = None,
    ) -> int:
        """Give the true labels of answers that this key received; return how many were received, used or not.

        Parameters
        ----------
        answer_ids : sequence of str or None
            The answers, as `ask_with_answer_ids` identified them; None with `idempotency_key`.
        labels : array-like
            One label per answer. None withdraws a label.
        idempotency_key, rows : str and array-like of int, default None
            Instead of ids: the key of the call that asked, and the numbers of its rows; None for all of them.
        """
        questions = self._feedback(labels, answer_ids, idempotency_key, rows)
        return sum(json_object(self._answer_to(one))["received"] for one in questions)

    def teach(self, rows: Any, labels: Any = None, groups: Any = None, *, idempotency_key: str | None = None) -> Taught:
        """Send labelled rows, for the phases to come. A request that is repeated is taken once.

        Parameters
        ----------
        rows : array-like, data frame or mapping of columns
            The rows. They may hold the label and the group, by the names that the schema has.
        labels, groups : array-like, default None
            The label of each row, and whose it is, if `rows` do not hold them.
        idempotency_key : str, default None
            As for `ask`.
        """
        questions = self._lessons(rows, labels, groups, idempotency_key, self.metadata())
        return taught([json_object(self._answer_to(one)) for one in questions])

    def withdraw(self, numbers: Any) -> int:
        """Withdraw labelled rows by the numbers that `teach` returned; return how many still waited."""
        body = {"rows": [int(one) for one in numbers]}
        return int(json_object(self._answer_to(self._post("/labelled/withdraw", body)))["withdrawn"])

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
        attempts = Attempts(self, question, self._retries)
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
        raise NoConnection from error


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
        self._idle: list[Connection] = []

    async def ask(self, rows: Any, *, idempotency_key: str | None = None) -> Array:
        """Ask for the label of every row; see `Client.ask`."""
        questions = self._questions(rows, idempotency_key)
        return np.concatenate([self._labels(await self._answer_to(one)) for one in questions])

    async def ask_with_probabilities(self, rows: Any, *, idempotency_key: str | None = None) -> Prediction:
        """Ask for the label of every row, and for the probabilities; see `Client.ask_with_probabilities`."""
        questions = self._questions(rows, idempotency_key, BOTH)
        return Prediction(*_joined([self._outputs(await self._answer_to(one), *BOTH) for one in questions]))

    async def ask_with_answer_ids(self, rows: Any, *, idempotency_key: str | None = None) -> IdentifiedAnswers:
        """Ask for the label of every row, and for the ids of answers; see `Client.ask_with_answer_ids`."""
        questions = self._questions(rows, idempotency_key, WITH_IDS)
        return IdentifiedAnswers(*_joined([self._outputs(await self._answer_to(one), *WITH_IDS) for one in questions]))

    async def feedback(
        self, answer_ids: Any, labels: Any, *, idempotency_key: str | None = None, rows: Any = None
    ) -> int:
        """Give the true labels of answers that this key received; see `Client.feedback`."""
        received = 0
        for question in self._feedback(labels, answer_ids, idempotency_key, rows):
            received += json_object(await self._answer_to(question))["received"]
        return received

    async def teach(
        self, rows: Any, labels: Any = None, groups: Any = None, *, idempotency_key: str | None = None
    ) -> Taught:
        """Send labelled rows; see `Client.teach`."""
        questions = self._lessons(rows, labels, groups, idempotency_key, await self.metadata())
        return taught([json_object(await self._answer_to(one)) for one in questions])

    async def withdraw(self, numbers: Any) -> int:
        """Withdraw labelled rows by their numbers; see `Client.withdraw`."""
        body = {"rows": [int(one) for one in numbers]}
        return int(json_object(await self._answer_to(self._post("/labelled/withdraw", body)))["withdrawn"])

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

        attempts = Attempts(self, question, self._retries)
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
                    raise NoConnection from error
                wire = Connection(*streams, f"{self._host}:{self._port}")
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


def _joined(parts: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.concatenate(one) for one in zip(*parts, strict=True)]
