"""Labels that arrive later: labelled rows and feedback, durable before anyone is told that they were received."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.groups import named_groups
from reticent.predictors import machine
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service.requests import (
    KeyReused,
    NothingStored,
    RowsNeeded,
    client_of_each_row,
    hashed_key,
    keyed_digest,
    runs_of,
    ticket_names,
)
from reticent.service.status import answers_left
from reticent.service.store.later_labels import (
    NO_LABEL,
    TICKET,
    LabelledTransaction,
    SlotLabel,
    TaughtPart,
    WithdrawalPart,
)
from reticent.service.store.protocol import AnswerStore

Array = NDArray[Any]
Integers = NDArray[np.int64]

NO_ROWS = "this predictor takes no labelled rows: it was not fitted with truth='rows' or truth='both'"
NO_FEEDBACK = "this predictor takes no feedback: it was not fitted with truth='feedback' or truth='both'"
LABEL = np.dtype("<i4")  # of a labelled row in the store


class RefusedLabels(ValueError):
    """Labels were refused by public rules, before anything was changed."""


class LabelledRequest(NamedTuple):
    """Labelled rows as they were sent, already parsed and encoded by public rules.

    `labels` are class indices in the order of `AnsweringService.classes`, −1 for what is not one of them. `groups` has
    one name per row if the predictor protects groups, else it is None. With `only_stored` it receives a stored receipt
    or none.
    """

    client: str
    rows: NDArray[np.float64]
    labels: Integers
    groups: Sequence[Any] | None
    idempotency_key: str | None
    digest: bytes
    only_stored: bool = False


class LabelReceipt(NamedTuple):
    """What the sender of labelled rows receives; all of it follows from numbers of rows and names of groups.

    Parameters
    ----------
    rows : int
        How many rows were received.
    kept : int
        How many of them a phase will have: all, unless their groups may not enter one.
    first : int
        The number of the first of them; the others follow. They can be withdrawn by these numbers.
    phase : int
        The phase that the last of them will be in.
    missing : int
        How many more rows that phase needs before it begins; 0 if it begins by the clock of queries.
    replayed : bool, default False
        Whether this is the reply to an earlier request, which was repeated.
    """

    rows: int
    kept: int
    first: int
    phase: int
    missing: int
    replayed: bool = False


class FeedbackRequest(NamedTuple):
    """Labels of queries that were answered, by their tickets, or by idempotency key and numbers of rows.

    `labels` are class indices as for `LabelledRequest`; −1 withdraws the label of a slot that has one.
    """

    client: str
    labels: Integers
    tickets: Sequence[str] = ()
    idempotency_key: str | None = None
    numbers: Sequence[int] = ()


class LabelReceiver:
    """Hands later labels to the predictor and its store, in the order that answers have.

    Guarantee. Each label is learned from at most once, and what was acknowledged is not lost, however often the process
    is killed. Nothing that is returned or stored elsewhere depends on whether feedback counted.

    Why. Labelled rows take their place in the journal in one transaction, before they are acknowledged. A phase begins
    in one transaction that empties the journal. A slot takes labels until the transaction that closes it.

    Parameters
    ----------
    predictor : EverlastingPredictor
        The predictor.
    store : AnswerStore
        Its store.
    expiry : int
        For how many milliseconds a repeat receives the same receipt.
    """

    def __init__(self, predictor: EverlastingPredictor, store: AnswerStore, expiry: int) -> None:
        self._predictor, self._store, self._expiry = predictor, store, expiry
        self._columns = int(predictor.n_features_in_)
        self._grouped = predictor.guarantee_.unit == "group"
        self.dtype = np.min_scalar_type(len(predictor.classes_) - 1)  # of class indices in the store

    def replay(self) -> None:
        """Let the predictor continue from what the store holds of its phase."""
        labels = self._store.slot_labels() if self._predictor.takes_feedback_ else ()
        feedback = [(one.ticket.hex(), one.label, one.client) for one in labels]
        self._predictor.replay(self._parts(), self._store.position.progress, feedback)

    def _parts(self) -> Iterator[Any]:
        for part in self._store.journal():
            if isinstance(part, WithdrawalPart):
                yield machine.WithdrawnPart(part.numbers)
            elif isinstance(part, TaughtPart):
                groups = None if part.groups is None else client_of_each_row(part.groups)
                yield machine.LabelledPart(self._rows(part.rows), np.frombuffer(part.labels, LABEL), groups)
            elif part.class_indices:  # the others are in the saved state
                indices = np.frombuffer(part.class_indices, dtype=self.dtype)
                clients = None if part.clients is None else client_of_each_row(part.clients)
                yield self._rows(part.rows), indices, clients, ticket_names(part.tickets)

    def _rows(self, rows: bytes) -> Array:
        return np.frombuffer(rows, dtype=np.float64).reshape(-1, self._columns)

    # ── labelled rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def add_labelled(self, request: LabelledRequest, now: int, begin_due: Callable[[], object]) -> LabelReceipt:
        """Take labelled rows; `begin_due` begins the next phase before, if this one is over."""
        self._check(request)
        name = None if request.idempotency_key is None else hashed_key(request.idempotency_key)
        digest = b"" if request.idempotency_key is None else keyed_digest(request.idempotency_key, request.digest)
        if name is not None and (found := self._store.stored_receipt(request.client, name, now)) is not None:
            if found.digest != digest:
                raise KeyReused("this idempotency key was used before, with another body")
            return LabelReceipt(**json.loads(found.reply), replayed=True)
        if request.only_stored:
            raise NothingStored("no receipt is stored for this request")
        names = self._names(request)
        if self._predictor.takes_feedback_:
            begin_due()  # what arrives after the last answer of a phase is for the next one
        phase = self._predictor.phase_
        taken = self._predictor.add_labelled(request.rows, self._labels(request.labels), names)
        receipt = LabelReceipt(len(request.rows), taken.rows, taken.first, taken.phase, taken.missing)
        reply = {name: value for name, value in receipt._asdict().items() if name != "replayed"}
        labels = np.asarray(request.labels, dtype=LABEL).tobytes()
        runs = None if names is None else runs_of(names)
        self._store.write_labelled(
            LabelledTransaction(
                time=now,
                phase=phase,
                client=request.client,
                part=TaughtPart(taken.first, request.rows.tobytes(), labels, runs),
                count=len(request.rows),
                reply=json.dumps(reply).encode(),
                key=name,
                digest=digest,
                keep=self._expiry,
            )
        )
        return receipt

    def rows_needed(self) -> RowsNeeded | None:
        """The error while a phase without answers waits for labelled rows alone; None if it waits for nothing."""
        predictor = self._predictor
        missing = (predictor.phase_rows_ or 0) - predictor.labelled_waiting_
        if predictor.takes_feedback_ or missing <= 0 or answers_left(predictor) == 0:
            return None
        return RowsNeeded(f"the next phase needs {missing} more labelled rows")

    def _check(self, request: LabelledRequest) -> None:
        """Refuse a request by public rules, before anything is changed."""
        rows, labels = request.rows, request.labels
        if not self._predictor.takes_labelled_:
            raise RefusedLabels(NO_ROWS)
        if not (isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.ndim == 2):
            raise RefusedLabels("rows must be an array of float64 with two dimensions")
        if rows.shape[1] != self._columns or len(rows) == 0:
            raise RefusedLabels(f"rows must be at least one, each of {self._columns} numbers")
        if len(labels) != len(rows) or (request.groups is not None and len(request.groups) != len(rows)):
            raise RefusedLabels("there must be one label per row, and one group if there are groups")
        if (request.groups is not None) != self._grouped:
            raise RefusedLabels("groups must be given if and only if the predictor was fitted with groups")

    def _names(self, request: LabelledRequest) -> list[str] | None:
        try:
            return None if request.groups is None else named_groups(list(request.groups), len(request.rows)).tolist()
        except (TypeError, ValueError) as error:  # names of groups are public
            raise RefusedLabels(str(error)) from None

    def withdraw_labelled(self, client: str, numbers: Sequence[int], now: int) -> int:
        """Forget labelled rows of a client that still wait; return how many."""
        if not self._predictor.takes_labelled_:
            raise RefusedLabels(NO_ROWS)
        own = self._store.withdraw_labelled(client, list(numbers), phase=self._predictor.phase_, time=now)
        return self._predictor.withdraw_labelled(own) if own else 0

    # ── feedback ──────────────────────────────────────────────────────────────────────────────────────────────────

    def feedback(self, given: Sequence[FeedbackRequest], now: int) -> None:
        """Write labels into the slots of queries, for all callers in one transaction."""
        if not self._predictor.takes_feedback_:
            raise RefusedLabels(NO_FEEDBACK)
        labels = [
            SlotLabel(ticket, one.client, label)
            for one in given
            for ticket, label in zip(self._tickets(one, now), one.labels.tolist(), strict=True)
        ]
        written = self._store.write_labels(labels)
        if written:
            indices = np.array([one.label for one in written])
            tickets, clients = [one.ticket.hex() for one in written], [str(one.client) for one in written]
            self._predictor.feedback(tickets, self._labels(indices), clients)

    def _tickets(self, given: FeedbackRequest, now: int) -> list[bytes]:
        """The tickets of feedback. What is not a ticket becomes one that nobody has."""
        if given.idempotency_key is None:
            return [_ticket(one) for one in given.tickets]
        found = self._store.stored_answer(given.client, hashed_key(given.idempotency_key), now)
        known = b"" if found is None else found.tickets
        own = (known[TICKET * one : TICKET * (one + 1)] for one in given.numbers)
        return [one or _nobody_has(f"{given.idempotency_key} {place}") for place, one in enumerate(own)]

    def _labels(self, class_indices: Integers) -> Any:
        """Labels for the predictor; None where there is none."""
        classes = self._predictor.classes_
        if (class_indices >= 0).all():
            return classes[class_indices]
        known = classes.tolist()
        return [None if one == NO_LABEL else known[one] for one in class_indices.tolist()]


def _ticket(given: str) -> bytes:
    try:
        found = bytes.fromhex(given)
    except ValueError:
        found = b""
    return found if len(found) == TICKET else _nobody_has(given)


def _nobody_has(given: str) -> bytes:
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest()[:TICKET]
