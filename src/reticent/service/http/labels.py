"""Labels that arrive later, over HTTP: labelled rows, their withdrawal, and feedback on answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from reticent.data.cells import as_text
from reticent.service.http import calls, open_inference
from reticent.service.http.access import Allowance
from reticent.service.http.calls import Call
from reticent.service.http.failures import to_problem
from reticent.service.http.json_bodies import decode_loosely, decoding_error
from reticent.service.http.problems import Problem
from reticent.service.http.responses import JSON, SAFE
from reticent.service.http.service import REPLAYED, Service, body_digest
from reticent.service.labels import FeedbackRequest, LabelledRequest, LabelReceipt, RefusedLabels
from reticent.service.requests import NothingStored

Integers = NDArray[np.int64]
Body = TypeVar("Body", bound=msgspec.Struct)


class LabelRules(open_inference.Rules, Protocol):
    """What labels need of a schema besides."""

    @property
    def target(self) -> str:
        """The name of the label."""

    @property
    def group(self) -> str | None:
        """The name of the column that says whose row it is, if rows of a person are protected together."""

    def later_class_indices(self, labels: Any, /) -> Integers:
        """The index of each label among the classes in ascending order; −1 for any other label."""


class TakesLabels(Protocol):
    """What the routes need of the answering service."""

    def add_labelled(self, request: LabelledRequest) -> LabelReceipt | Exception:
        """Take labelled rows."""

    def withdraw_labelled(self, client: str, numbers: Sequence[int]) -> int | Exception:
        """Forget labelled rows."""

    def feedback(self, given: Sequence[FeedbackRequest]) -> Exception | None:
        """Take labels of queries."""


class FeedbackBody(msgspec.Struct):
    """Labels of answers: by their ids, or by the idempotency key of the request and the numbers of its rows."""

    labels: list[Any]
    answer_ids: list[str] | None = None
    idempotency_key: str | None = None
    rows: list[int] | None = None


class WithdrawalBody(msgspec.Struct):
    """The numbers of labelled rows, as receipts have them."""

    rows: list[int]


class _Given(NamedTuple):
    """Feedback as it was sent, with class indices for labels."""

    body: FeedbackBody
    labels: Integers


class LabelRoutes:
    """Takes later labels. What it says follows from the form of a request, and never from what it holds."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rules = cast(LabelRules, service.rules)
        self._answering = cast(TakesLabels, service.answering)

    async def labelled(self, call: Call) -> Response:
        """Take labelled rows, of a key with the scope "teach". They are durable when the receipt is sent."""
        service = self._service
        service.check_model(call)
        key = service.admit_work(call, "teach")
        repeat = calls.idempotency_key(call)
        length = call.header(open_inference.HEADER_LENGTH.encode())
        rules = self._rules

        def parse(body: bytes) -> LabelledRequest:
            found = open_inference.read_labelled(
                body, length, rules, service.most_rows, target=rules.target, group=rules.group
            )
            groups = None if found.groups is None else [as_text(one) for one in found.groups]
            labels = rules.later_class_indices(found.labels)
            digest = body_digest(repeat, call, (length or "").encode(), body)
            return LabelledRequest(key.id, found.rows, labels, groups, repeat, digest)

        request = await service.bodies.read(call, parse)
        found = await self._charged(request, service.keyring.allowance(key))
        reply = {name: value for name, value in found._asdict().items() if name != "replayed"}
        return accepted({"model_name": service.name, **reply}, {REPLAYED: "true"} if found.replayed else {})

    async def _charged(self, request: LabelledRequest, allowance: Allowance) -> LabelReceipt:
        """The receipt for labelled rows, which count on this day unless they are a repeat."""
        count = len(request.rows)
        if (full := allowance.take_labelled(count)) is not None:
            if request.idempotency_key is None:
                raise full
            request = request._replace(only_stored=True)  # a lost receipt can still be fetched again
        kept = False
        try:
            found: LabelReceipt = await self._run(lambda: self._answering.add_labelled(request), count, request.client)
            kept = not found.replayed
        except NothingStored:
            raise full or Problem("internal") from None
        finally:
            if not kept and full is None:
                allowance.give_back_labelled(count)
        return found

    async def withdraw(self, call: Call) -> Response:
        """Withdraw labelled rows of the same key by their numbers, as long as no phase has them."""
        self._service.check_model(call)
        key = self._service.admit_work(call, "teach")
        body = await self._service.bodies.read(call, lambda body: decoded(body, WithdrawalBody))
        self._check_size(len(body.rows))
        numbers = [one for one in body.rows if 0 <= one < 2**63]
        count = await self._run(lambda: self._answering.withdraw_labelled(key.id, numbers), len(numbers), key.id)
        return accepted({"model_name": self._service.name, "received": len(body.rows), "withdrawn": count})

    async def feedback(self, call: Call) -> Response:
        """Take labels of answers that the same key has received.

        The reply counts what was received. It is the same for ids that are unknown, of another key, too late, or good.
        """
        service = self._service
        service.check_model(call)
        key = service.admit_work(call, "ask")

        def parse(body: bytes) -> _Given:
            found = decoded(body, FeedbackBody)
            self._check_size(len(found.labels))
            by_id, by_key = found.answer_ids is not None, found.idempotency_key is not None
            if by_id == by_key or by_key != (found.rows is not None):
                raise Problem("malformed", "the body must have either answer_ids, or idempotency_key and rows")
            if len((found.answer_ids if by_id else found.rows) or ()) != len(found.labels):
                raise Problem("malformed", "there must be one label for each of answer_ids, or of rows")
            return _Given(found, self._rules.later_class_indices(found.labels))

        body, labels = await service.bodies.read(call, parse)
        rows = [one if 0 <= one < 2**31 else 2**31 for one in body.rows or ()]
        given = FeedbackRequest(key.id, labels, body.answer_ids or (), body.idempotency_key, rows)
        await self._run(lambda: self._answering.feedback([given]), len(labels), key.id)
        return accepted({"model_name": service.name, "received": len(labels)})

    def _check_size(self, count: int) -> None:
        if count < 1:
            raise Problem("malformed", "there must be at least one")
        if count > self._service.most_rows:
            raise Problem("too-large", f"there may be at most {self._service.most_rows} in a request")

    async def _run(self, take: Any, rows: int, client: str) -> Any:
        """What the answering service returns, once it is durable."""
        try:
            found = await self._service.batcher.run(take, rows, client)
        except Exception as error:
            raise to_problem(error) or error from None
        if isinstance(found, RefusedLabels):
            raise Problem("malformed", str(found))
        if isinstance(found, Exception):
            raise to_problem(found) or found
        return found


def decoded(body: bytes, kind: type[Body]) -> Body:
    """A body in JSON, whatever its labels hold."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            return msgspec.convert(decode_loosely(body, error), kind)
        except msgspec.ValidationError as wrong:
            raise Problem("malformed", decoding_error(wrong)) from None


def accepted(value: object, headers: dict[str, str] | None = None) -> Response:
    """What is durable, and acted upon later."""
    return Response(msgspec.json.encode(value), 202, {**SAFE, **(headers or {})}, JSON)
