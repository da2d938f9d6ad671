"""Requests: what a client asks, what it receives, and how far the answers to a batch of requests have come."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.service.keys import ANONYMOUS
from reticent.service.store.later_labels import TICKET
from reticent.service.store.protocol import Entry, JournalPart, StoredAnswer

Array = NDArray[Any]


class KeyReused(ValueError):
    """An idempotency key came with another body than the first time. Only its owner may learn of it."""


class RowsNeeded(BudgetExhausted):
    """No answers are left until more labelled rows come; the message says how many, which is public."""


class NothingStored(LookupError):
    """No answer is stored for a request that may only have a stored one."""


class Halted(RuntimeError):
    """Nothing is answered until the service is restarted; `soon` if a supervisor can be expected to do that."""

    def __init__(self, message: str = "", *, soon: bool = False) -> None:
        super().__init__(message)
        self.soon = soon


class Request(NamedTuple):
    """What one request asks, already parsed and encoded by public rules.

    With `only_stored` it receives a stored answer or none, and costs nothing. With `probabilities` it receives those
    of all classes as well.
    """

    client: str
    rows: NDArray[np.float64]
    idempotency_key: str | None
    digest: bytes
    only_stored: bool = False
    probabilities: bool = False


class Answered(NamedTuple):
    """The labels for the rows of a request, the phase that gave the first of them, and whether it is a repeat.

    `probabilities` has one row per label and one column per class, in the order of `AnsweringService.classes`; None if
    they were not asked for. `tickets` has one per label, by which the true label can be given later; None if the
    predictor takes no feedback.
    """

    labels: list[Any]
    phase: int
    replayed: bool
    probabilities: NDArray[np.float64] | None = None
    tickets: list[str] | None = None


@dataclass(slots=True)
class PendingRequest:
    """A request within a batch: the rows that had no answer before it, and the answers to those that had, if any.

    `kept` is what is stored of its idempotency key and of its body, None for a request without a key. `phase` gave the
    first answer, if a later phase continues the request, and `tickets` are those of the answers that it had.
    """

    client: str
    rows: NDArray[np.float64]
    kept: tuple[str, bytes] | None
    class_indices: Array | None = None
    phase: int | None = None
    tickets: bytes = b""

    @classmethod
    def interrupted(cls, client: str, key: str, stored: StoredAnswer, columns: int, dtype: Any) -> Self:
        """A request that was interrupted at the end of a phase."""
        rows = np.frombuffer(stored.rest or b"", dtype=np.float64).reshape(-1, columns)
        indices = np.frombuffer(stored.class_indices, dtype=dtype)
        if not 0 < len(rows) < len(indices):
            raise ValueError("an interrupted request must have rows with an answer and rows without one")
        answered = len(indices) - len(rows)
        kept, tickets = (key, stored.digest), stored.tickets[: TICKET * answered]
        return cls(client, rows, kept, indices[:answered], stored.phase, tickets)

    def __len__(self) -> int:
        return len(self.rows) + (0 if self.class_indices is None else len(self.class_indices))


class FinishedRequest(NamedTuple):
    """The answers to all rows of a request, the phase that gave the first of them, and their tickets, if any."""

    class_indices: Array
    phase: int
    tickets: bytes = b""


class Batch:
    """Requests that are answered together: all their rows in order, and how many of them have answers."""

    def __init__(self, requests: Sequence[PendingRequest], runs: list[tuple[str, int]] | None, dtype: Any) -> None:
        self.requests, self.runs = requests, runs
        self.rows = requests[0].rows if len(requests) == 1 else np.concatenate([one.rows for one in requests])
        self.clients = None if runs is None else client_of_each_row(runs)
        self.ends = list(accumulate(len(one.rows) for one in requests))
        self.class_indices = np.empty(len(self.rows), dtype=dtype)
        self.tickets = b""  # of the rows that are answered
        self.answered = 0  # rows
        self.finished = 0  # requests

    @property
    def done(self) -> bool:
        """Whether every row has its answer."""
        return self.answered == len(self.rows)

    def left(self) -> tuple[Array, Array | None]:
        """The rows that have no answer yet, and the client of each."""
        return self.rows[self.answered :], None if self.clients is None else self.clients[self.answered :]

    def take(self, class_indices: Array, tickets: Sequence[str] | None = None) -> slice:
        """Take a phase's answers to the next rows, with their tickets if any; return which rows these are."""
        some = slice(self.answered, self.answered + len(class_indices))
        if tickets:
            self.tickets += bytes.fromhex("".join(tickets))
        self.class_indices[some] = class_indices
        self.answered = some.stop
        return some

    def finish(
        self, some: slice, phase: int
    ) -> tuple[list[Entry], list[FinishedRequest], list[tuple[str, str, StoredAnswer]]]:
        """What these rows of a phase cost each client, the requests that they finish, and what is stored under keys.

        Of a request that continues in the next phase, the answers so far are stored, and the rows that have none.
        Whatever happens to this process, each of its rows is asked once.
        """
        answers: dict[str, int] = {}  # by client, and so are the costs
        costs: dict[str, int] = {}
        found: list[FinishedRequest] = []
        kept: list[tuple[str, str, StoredAnswer]] = []
        for one, end in zip(self.requests[self.finished :], self.ends[self.finished :], strict=True):
            begin, stop = end - len(one.rows), min(end, some.stop)
            if (cost := stop - max(begin, some.start)) <= 0:
                break
            complete, indices, first = stop == end, self.class_indices[begin:stop], one.phase or phase
            tickets = one.tickets + self.tickets[TICKET * begin : TICKET * stop]
            if one.class_indices is not None:
                indices = np.concatenate([one.class_indices, indices])
            # All answers of a request are entered with its last one: it may be refused if there is no next phase.
            answers[one.client] = answers.get(one.client, 0) + (len(indices) if complete else 0)
            costs[one.client] = costs.get(one.client, 0) + cost
            if one.kept is not None:
                key, digest = one.kept
                rest = None if complete else self.rows[stop:end].tobytes()
                written = indices.tobytes() + bytes((end - stop) * indices.itemsize)  # as long as it will be
                padded = tickets + bytes(TICKET * (end - stop)) if tickets else b""
                kept.append((one.client, key, StoredAnswer(digest, written, first, rest, padded)))
            if not complete:
                one.phase = first
                break
            self.finished += 1
            found.append(FinishedRequest(indices, first, tickets))
        return [Entry(one, answers[one], phase, cost) for one, cost in costs.items()], found, kept

    def journal_part(self, some: slice) -> JournalPart | None:
        """These rows and their answers, for the journal."""
        if some.stop == some.start:
            return None
        runs = None if self.runs is None else _some_runs(self.runs, some.start, some.stop)
        tickets = self.tickets[TICKET * some.start : TICKET * some.stop]
        return JournalPart(runs, self.rows[some].tobytes(), self.class_indices[some].tobytes(), tickets)


def digest(body: bytes) -> bytes:
    """The digest of a body, for `Request`."""
    return hashlib.sha256(body).digest()


def hashed_key(key: str) -> str:
    """An idempotency key as it is stored; of any text, also of half of a character, which has no UTF-8."""
    return hashlib.sha256(b"key" + key.encode("utf-8", "surrogatepass")).hexdigest()


def keyed_digest(key: str, digest: bytes) -> bytes:
    """The digest of a body as it is stored. Without the key, which is not stored, nobody can test bodies against it."""
    return hashlib.sha256(b"body" + key.encode("utf-8", "surrogatepass") + digest).digest()


def repeated(request: Request, digest: bytes, first: Answered) -> Answered | KeyReused:
    """What a repeat receives: the answer to the first request, if its body is the same."""
    if keyed_digest(str(request.idempotency_key), request.digest) != digest:
        return KeyReused("this idempotency key was used before, with another body")
    return first


def with_probabilities(
    request: Request, found: Answered | Exception, probabilities: Callable[[Array], NDArray[np.float64]]
) -> Answered | Exception:
    """Add the probabilities to an answer if they were asked for.

    They are computed from the rows of this request alone, in one call: what else is in a batch does not even change how
    they are rounded, and a repeat receives the same numbers.
    """
    if not request.probabilities or isinstance(found, Exception):
        return found
    return found._replace(probabilities=probabilities(request.rows))


def client_runs(requests: Sequence[PendingRequest], *, first: int, grouped: bool) -> list[tuple[str, int]]:
    """Who asks each row, as runs. Unless there are groups, each query without a name is a client of its own.

    Parameters
    ----------
    requests : sequence of PendingRequest
        The requests.
    first : int
        The number of the first row.
    grouped : bool
        Whether all queries of a client are protected together.
    """
    runs: list[tuple[str, int]] = []
    number = first
    for request in requests:
        count = len(request.rows)
        if request.client == ANONYMOUS and not grouped:
            runs += [(f"{ANONYMOUS} {number + one}", 1) for one in range(count)]
        else:
            runs.append((request.client, count))
        number += count
    return runs


def client_of_each_row(runs: list[tuple[str, int]]) -> Array:
    """The client of each row, from runs of clients."""
    return np.repeat(np.array([client for client, _ in runs]), [count for _, count in runs])


def runs_of(names: Iterable[str]) -> list[tuple[str, int]]:
    """Names as runs.

    >>> runs_of(["ann", "ann", "bob"])
    [('ann', 2), ('bob', 1)]
    """
    return [(name, sum(1 for _ in same)) for name, same in groupby(names)]


def ticket_names(tickets: bytes) -> list[str] | None:
    """Tickets as they are handed out; None if there are none."""
    digits = tickets.hex()
    return [digits[one : one + 2 * TICKET] for one in range(0, len(digits), 2 * TICKET)] or None


def _some_runs(runs: list[tuple[str, int]], first: int, last: int) -> list[tuple[str, int]]:
    """The runs of some rows."""
    found, start = [], 0
    for client, count in runs:
        if (inside := min(start + count, last) - max(start, first)) > 0:
            found.append((client, inside))
        start += count
    return found
