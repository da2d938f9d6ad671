"""The witness: a file next to a store that shows whether the store has lost transactions."""

from __future__ import annotations

import hashlib
import os
import struct
from contextlib import suppress
from pathlib import Path

from reticent.service.store.protocol import Damaged

RECORD = struct.Struct(">8sQ32s16s")  # a name, the number of rows, the hash of the last one, a checksum of these
APART = 4096  # bytes from one record to the other, so that no sector of a disk holds both


class Witness:
    """How long the answer log of a store is, and its last hash, written after each transaction.

    It has two records, each with a checksum, and writes them in turn. A record that is being written during a crash
    may be incomplete. The other one, of the transaction before, is then intact. The witness is not forced to the
    disk, but the store is, before the witness is written. So after a power failure the witness may be behind the
    store, but never ahead of it.
    """

    def __init__(self, store: Path) -> None:
        *self._last, index = _records(store)[-1]
        self._next = 1 - index
        self._file = os.open(witness_path(store), os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(self._file).st_size != APART + RECORD.size:  # an older version had one record
            os.ftruncate(self._file, APART + RECORD.size)

    @staticmethod
    def create(store: Path, length: int, head: bytes) -> None:
        """Create a witness that is on the disk when this returns."""
        descriptor = os.open(witness_path(store), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, record_bytes(length, head), 0)
            os.ftruncate(descriptor, APART + RECORD.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def read(store: Path) -> tuple[int, bytes]:
        """What it saw last: the number of rows and the hash of the last one."""
        return _records(store)[-1][:2]

    def write(self, length: int, head: bytes) -> None:
        """Record how long the log is."""
        if self._last != [length, head]:
            os.pwrite(self._file, record_bytes(length, head), APART * self._next)
            self._last, self._next = [length, head], 1 - self._next

    def close(self) -> None:
        """Release the file. Calling it again does nothing."""
        file, self._file = self._file, -1  # its number may soon be another file's
        if file >= 0:
            with suppress(OSError):
                os.close(file)


def witness_path(store: Path) -> Path:
    """The witness of a store."""
    return store.with_name("witness")


def record_bytes(length: int, head: bytes) -> bytes:
    """A record, with its checksum."""
    content = RECORD.pack(b"reticent", length, head, bytes(16))
    return content[:-16] + hashlib.sha256(content).digest()[:16]


def _records(store: Path) -> list[tuple[int, bytes, int]]:
    """The intact records, the latest one last: rows, hash, and which of the two it is."""
    try:
        data = witness_path(store).read_bytes()
    except FileNotFoundError:
        raise Damaged(f"the witness of {store} is missing: the store may not be complete") from None
    intact = []
    for index in (0, 1):
        found = data[APART * index :][: RECORD.size]
        if len(found) == RECORD.size:
            _, length, head, _ = RECORD.unpack(found)
            if found == record_bytes(length, head):
                intact.append((length, head, index))
    if not intact or len(data) not in (RECORD.size, APART + RECORD.size):
        raise Damaged(f"the witness of {store} is damaged")
    return sorted(intact)
