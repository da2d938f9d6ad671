"""Requests: what one asks, what it gets, and how far along a batch of them answers have come."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from reticent.service.store import Entry, Part, Stored

Array = NDArray[Any]


class KeyReused(ValueError):
    """An idempotency key came with another body than the first time: to be told to its owner only."""


class NothingStored(LookupError):
    """No answer is stored for a request that may have nothing else."""


@dataclass(frozen=True)
class Request:
    """What one request asks, already parsed and encoded by public rules.

    With `only_stored` it gets an answer that is stored, and nothing that would cost something.
    """

    client: str
    rows: NDArray[np.float64]
    idempotency_key: str | None
    digest: bytes
    only_stored: bool = False


@dataclass(frozen=True)
class Answered:
    """The labels for the rows of a request, the phase that gave the first of them, and whether it is a repeat."""

    labels: list[Any]
    phase: int
    replayed: bool


@dataclass(slots=True)
class Asked:
    """A request within a batch: the rows that had no answer before it, and the codes of those that had, if any.

    `kept` is what is kept of its idempotency key and of its body, None for a request without a key. `phase` gave the
    first answer, where a later one goes on.
    """

    client: str
    rows: NDArray[np.float64]
    kept: tuple[str, bytes] | None
    codes: Array | None = None
    phase: int | None = None

    @classmethod
    def unfinished(cls, client: str, key: str, stored: Stored, columns: int, width: Any) -> Self:
        """A request that was cut off at the end of a phase."""
        rows = np.frombuffer(stored.rest or b"", dtype=np.float64).reshape(-1, columns)
        codes = np.frombuffer(stored.codes, dtype=width)
        if not 0 < len(rows) < len(codes):
            raise ValueError("a request that is not finished must have rows with an answer, and rows without one")
        return cls(client, rows, (key, stored.digest), codes[: len(codes) - len(rows)], stored.phase)

    def __len__(self) -> int:
        return len(self.rows) + (0 if self.codes is None else len(self.codes))


class Finished(NamedTuple):
    """The codes of all answers to a request, and the phase that gave the first of them."""

    codes: Array
    phase: int


class Batch:
    """Requests that are answered together: their rows in a line, and how far along it answers have come."""

    def __init__(self, asked: Sequence[Asked], named: list[tuple[str, int]] | None, width: Any) -> None:
        self.asked, self.named = asked, named
        self.rows = asked[0].rows if len(asked) == 1 else np.concatenate([one.rows for one in asked])
        self.who = None if named is None else spread(named)
        self.ends = list(accumulate(len(one.rows) for one in asked))
        self.codes = np.empty(len(self.rows), dtype=width)
        self.answered = 0  # rows
        self.finished = 0  # requests

    @property
    def done(self) -> bool:
        """Whether every row has its answer."""
        return self.answered == len(self.rows)

    def left(self) -> tuple[Array, Array | None]:
        """The rows that have no answer yet, and who asks."""
        return self.rows[self.answered :], None if self.who is None else self.who[self.answered :]

    def take(self, codes: Array) -> slice:
        """Answers of a phase to the next rows; which rows these are."""
        some = slice(self.answered, self.answered + len(codes))
        self.codes[some] = codes
        self.answered = some.stop
        return some

    def finish(self, some: slice, phase: int) -> tuple[list[Entry], list[Finished], list[tuple[str, str, Stored]]]:
        """What these rows of a phase cost by client, the requests that they finish, and what is kept under keys.

        Of a request that goes on in the next phase its answers so far are kept, and the rows that are still to be
        asked: whatever happens to this process, each of its rows is asked once.
        """
        entries: dict[str, Entry] = {}
        found: list[Finished] = []
        kept: list[tuple[str, str, Stored]] = []
        for one, end in zip(self.asked[self.finished :], self.ends[self.finished :], strict=True):
            begin, stop = end - len(one.rows), min(end, some.stop)
            if (cost := stop - max(begin, some.start)) <= 0:
                break
            whole, codes, first = stop == end, self.codes[begin:stop], one.phase or phase
            if one.codes is not None:
                codes = np.concatenate([one.codes, codes])
            # Answers are told with the last of them: of a request that goes on in the next phase there may be none.
            _, told, _, before = entries.get(one.client) or (one.client, 0, phase, 0)
            entries[one.client] = Entry(one.client, told + (len(codes) if whole else 0), phase, before + cost)
            if one.kept is not None:
                key, digest = one.kept
                rest = None if whole else self.rows[stop:end].tobytes()
                written = codes.tobytes() + bytes((end - stop) * codes.itemsize)  # as long as it will be
                kept.append((one.client, key, Stored(digest, written, first, rest)))
            if not whole:
                one.phase = first
                break
            self.finished += 1
            found.append(Finished(codes, first))
        return list(entries.values()), found, kept

    def part(self, some: slice) -> Part | None:
        """These rows and their answers, for the journal."""
        if some.stop == some.start:
            return None
        runs = None if self.named is None else _some(self.named, some.start, some.stop)
        return Part(runs, self.rows[some].tobytes(), self.codes[some].tobytes())


def digest(body: bytes) -> bytes:
    """The digest of a body, for `Request`."""
    return hashlib.sha256(body).digest()


def hidden(key: str) -> str:
    """An idempotency key as it is kept."""
    return hashlib.sha256(b"key" + key.encode()).hexdigest()


def mixed(key: str, digest: bytes) -> bytes:
    """The digest of a body as it is kept: without the key, which is not, nobody can try out bodies against it."""
    return hashlib.sha256(b"body" + key.encode() + digest).digest()


def spread(runs: list[tuple[str, int]]) -> Array:
    """The client of each row, from runs of clients."""
    return np.repeat(np.array([client for client, _ in runs]), [count for _, count in runs])


def _some(runs: list[tuple[str, int]], first: int, last: int) -> list[tuple[str, int]]:
    """The runs of some rows."""
    found, place = [], 0
    for client, count in runs:
        if (mine := min(place + count, last) - max(place, first)) > 0:
            found.append((client, mine))
        place += count
    return found
