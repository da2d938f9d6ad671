"""The journal: how parts are written, its chain of hashes, and how small parts are merged to be read quickly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from reticent.service.store.later_labels import TaughtPart, WithdrawalPart
from reticent.service.store.protocol import AnyPart, JournalPart

PARTS = 1024  # this many parts are merged into one,
LARGEST = 1 << 22  # if their rows have at most this many bytes

Packed = tuple[str, bytes, bytes, bytes]  # what a part is about as JSON, rows, class indices or labels, tickets


def pack(part: AnyPart) -> Packed:
    """A part as it is stored."""
    if isinstance(part, TaughtPart):
        return json.dumps({"labelled": part.first, "groups": part.groups}), part.rows, part.labels, b""
    if isinstance(part, WithdrawalPart):
        return json.dumps({"withdrawn": part.numbers}), b"", b"", b""
    return json.dumps(part.clients), part.rows, part.class_indices, part.tickets


def unpack(packed: Packed) -> AnyPart:
    """The part that was stored."""
    about, rows, indices, tickets = packed
    found = json.loads(about)
    if not isinstance(found, dict):
        return JournalPart(_runs(found), rows, indices, tickets)
    if "withdrawn" in found:
        return WithdrawalPart(tuple(found["withdrawn"]))
    return TaughtPart(found["labelled"], rows, indices, _runs(found["groups"]))


def _runs(found: list[tuple[str, int]] | None) -> list[tuple[str, int]] | None:
    return None if found is None else [(str(one), int(many)) for one, many in found]


def journal_hash(before: bytes, packed: Packed) -> bytes:
    """The hash of a part of the journal: over the hash before it and all that is stored of it.

    Labels of slots are not part of it, since they are written later. A part without tickets has the hash that it had
    before there were tickets.
    """
    digest = hashlib.sha256(before)
    about, *pieces = packed
    for piece in (about.encode(), *(pieces if pieces[-1] else pieces[:-1])):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.digest()


@dataclass(frozen=True)
class LooseParts:
    """The last parts of the journal, which are merged when there are enough of them, and the hash before them.

    Reading a million parts would take long. Reading a thousand takes a second, however many rows they have. Only
    queries are merged: labelled rows come in large parts.
    """

    before: bytes
    parts: tuple[JournalPart, ...] = ()
    size: int = 0

    def add(self, part: AnyPart, end: bytes) -> tuple[LooseParts, Packed, int, bytes]:
        """Add a part to a journal whose hash is `end`.

        Returns the parts that are loose now, the part to write, how many of the last parts it replaces, and the new
        hash.
        """
        packed = pack(part)
        after, more = journal_hash(end, packed), len(packed[1])
        if not isinstance(part, JournalPart) or not part.class_indices or more > LARGEST:
            return LooseParts(after), packed, 0, after
        if not (self._is_like(part) and self.size + more <= LARGEST):  # the parts before stay as they are
            return LooseParts(end, (part,), more), packed, 0, after
        loose = LooseParts(self.before, (*self.parts, part), self.size + more)
        if len(loose.parts) < PARTS:
            return loose, packed, 0, after
        merged = pack(_merged(loose.parts))
        after = journal_hash(self.before, merged)
        return LooseParts(after), merged, len(self.parts), after

    def _is_like(self, part: JournalPart) -> bool:
        """Whether a part can be merged with those that are loose."""
        first = self.parts[0] if self.parts else part
        return (part.clients is None) == (first.clients is None) and bool(part.tickets) == bool(first.tickets)


def _merged(parts: Sequence[JournalPart]) -> JournalPart:
    """Parts as one. Neighbouring runs of the same client become one run."""
    runs: list[tuple[str, int]] = []
    for part in parts:
        for client, count in part.clients or ():
            before = runs.pop()[1] if runs and runs[-1][0] == client else 0
            runs.append((client, before + count))
    clients = None if parts[0].clients is None else runs
    return JournalPart(
        clients,
        b"".join(one.rows for one in parts),
        b"".join(one.class_indices for one in parts),
        b"".join(one.tickets for one in parts),
    )
