"""The journal: its chain of hashes, and how small parts are merged, so that it can be read quickly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from reticent.service.store.protocol import JournalPart

PARTS = 1024  # this many parts are merged into one,
LARGEST = 1 << 22  # if their rows have at most this many bytes


def journal_hash(before: bytes, part: JournalPart) -> bytes:
    """The hash of a part of the journal: over the hash before it, its clients, rows and class indices."""
    digest = hashlib.sha256(before)
    for piece in (json.dumps(part.clients).encode(), part.rows, part.class_indices):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.digest()


@dataclass(frozen=True)
class LooseParts:
    """The last parts of the journal, which are merged when there are enough of them, and the hash before them.

    Reading a million parts would take long. Reading a thousand takes a second, however many rows they have.
    """

    before: bytes
    parts: tuple[JournalPart, ...] = ()
    size: int = 0

    def add(self, part: JournalPart, end: bytes) -> tuple[LooseParts, JournalPart, int, bytes]:
        """Add a part to a journal whose hash is `end`.

        Returns the parts that are loose now, the part to write, how many of the last parts it replaces, and the new
        hash.
        """
        after, more = journal_hash(end, part), len(part.rows)
        if more > LARGEST:
            return LooseParts(after), part, 0, after
        alike = not self.parts or (part.clients is None) == (self.parts[0].clients is None)
        if not alike or self.size + more > LARGEST:  # the parts before stay as they are
            return LooseParts(end, (part,), more), part, 0, after
        loose = LooseParts(self.before, (*self.parts, part), self.size + more)
        if len(loose.parts) < PARTS:
            return loose, part, 0, after
        merged = _merged(loose.parts)
        after = journal_hash(self.before, merged)
        return LooseParts(after), merged, len(self.parts), after


def _merged(parts: Sequence[JournalPart]) -> JournalPart:
    """Parts as one. Neighbouring runs of the same client become one run."""
    runs: list[tuple[str, int]] = []
    for part in parts:
        for client, count in part.clients or ():
            before = runs.pop()[1] if runs and runs[-1][0] == client else 0
            runs.append((client, before + count))
    clients = None if parts[0].clients is None else runs
    return JournalPart(clients, b"".join(one.rows for one in parts), b"".join(one.class_indices for one in parts))
