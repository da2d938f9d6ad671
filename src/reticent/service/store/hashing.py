"""The hash chain of the answer log. It is the same in every store, so anyone can check it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reticent.service.store.protocol import Damaged, Entry, LogRow


def canonical(number: int, time: int, entry: Entry, previous: bytes) -> bytes:
    """A log row as JSON with sorted names and no spaces, in ASCII. Its SHA-256 is the hash of the row.

    >>> canonical(1, 5, Entry("a", 2, 1, 2), bytes(2))
    b'{"answers":2,"client":"a","cost":2,"number":1,"phase":1,"previous":"0000","time":5}'
    """
    return (
        f'{{"answers":{entry.answers},"client":{json.dumps(entry.client)},"cost":{entry.cost},"number":{number},'
        f'"phase":{entry.phase},"previous":"{previous.hex()}","time":{time}}}'
    ).encode()


def first_hash(settings: Mapping[str, str]) -> bytes:
    """The hash that the chains of the answer log and of the journal start from: that of the settings."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True, separators=(",", ":")).encode()).digest()


def log_rows(length: int, head: bytes, time: int, entries: Sequence[Entry]) -> Iterator[LogRow]:
    """The rows that continue a log of this length and last hash."""
    for number, entry in enumerate(entries, start=length + 1):
        made = hashlib.sha256(canonical(number, time, entry, head)).digest()
        yield LogRow(number, time, *entry, head, made)
        head = made


def check_log_rows(rows: Iterable[LogRow], number: int, head: bytes, where: object) -> tuple[bytes, dict[int, int]]:
    """Check rows that follow row `number`, whose hash is `head`; return the last hash and the cost of each phase."""
    counted: dict[int, int] = {}
    time = 0
    for row in rows:
        number += 1
        entry = Entry(row.client, row.answers, row.phase, row.cost)
        right = row.number == number and row.previous == head and row.time >= time
        head = hashlib.sha256(canonical(number, row.time, entry, head)).digest()
        if not right or row.hash != head or entry.answers < 0 or entry.cost < 0:
            raise Damaged(f"{where} is damaged: row {row.number} of its answer log is not the one that was written")
        counted[entry.phase] = counted.get(entry.phase, 0) + entry.cost
        time = row.time
    return head, counted
