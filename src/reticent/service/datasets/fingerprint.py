"""Recognising rows: a salted digest of a table that does not depend on its name, its format or the order of its rows.

Each column has a digest of its own: of the multiset of its cells. So a table is also recognised in another order of
rows or columns, with columns renamed, left out or added. Another row or cell makes the digests unrelated: a table that
shares only some rows with a known one is not recognised.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_numbers, as_text
from reticent.service.tables import Advance, TableFile

Words = NDArray[np.uint64]

SALT = 32  # bytes
DIGEST = 16  # bytes of the digest of a column
MISSING = "nan"  # how some programs write a cell that is empty


class Fingerprint(NamedTuple):
    """What is kept of the rows of a table, to recognise them. It is as secret as they are.

    Attributes
    ----------
    rows : int
        The number of rows, which is public.
    columns : tuple of str
        The salted digest of each column, in ascending order.
    """

    rows: int
    columns: tuple[str, ...]

    def matches(self, other: Fingerprint) -> bool:
        """Whether two tables have the same rows: equally many, and all columns of one are columns of the other."""
        own, theirs = Counter(self.columns), Counter(other.columns)
        return self.rows == other.rows and (own <= theirs or theirs <= own)


def fingerprint(table: TableFile, salt: bytes, advance: Advance | None = None) -> Fingerprint:
    """Read all rows of a table and return their fingerprint. Nothing else is kept of them.

    **Guarantee**: none. The fingerprint is a function of private rows, so it must stay with the data holder, and so
    must whether it is known.

    **Why** the salt: without it, anyone who sees a fingerprint could compare it with those of tables that they guess.
    The last step is a keyed hash of the sums, so that without the salt a fingerprint tells nothing but which tables of
    this machine are equal.

    Parameters
    ----------
    table : TableFile
        The table. Columns whose type cannot be learned from are not read.
    salt : bytes
        Random bytes, made once for a machine.
    advance : callable, default None
        Called with the number of rows that were read.
    """
    columns = [name for name in table.names if name in table.types] or table.names
    keys = np.frombuffer(hashlib.blake2b(b"cells", key=salt, digest_size=32).digest(), dtype=">u8").astype(np.uint64)
    sums = np.zeros((len(columns), 2), dtype=np.uint64)
    rows = 0
    for chunk in table.chunks(columns, advance, numbers=columns):
        for place, name in enumerate(columns):
            sums[place] += _sum_of(chunk[name], keys, salt)
        rows += len(chunk[columns[0]])
    return Fingerprint(rows, tuple(sorted(_digest(one, rows, salt) for one in sums)))


def _digest(sums: Words, rows: int, salt: bytes) -> str:
    content = rows.to_bytes(8, "big") + sums.astype(">u8").tobytes()
    return hashlib.blake2b(content, key=salt, digest_size=DIGEST).hexdigest()


def _sum_of(cells: Any, keys: Words, salt: bytes) -> Words:
    """The sum of two hashes of each cell, modulo 2^64: the same in any order."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        numbers, counts, texts = as_numbers(cells), np.ones(len(cells), dtype=np.uint64), None
    else:
        each = Counter(cells.tolist() if isinstance(cells, np.ndarray) else cells)
        numbers, counts, texts = as_numbers(list(each)), np.array(list(each.values()), dtype=np.uint64), list(each)
    hashes = _mixed(numbers, keys)
    unknown = np.flatnonzero(np.isnan(numbers))
    if len(unknown):
        found = [_hashed("", salt)] if texts is None else [_hashed(texts[place], salt) for place in unknown]
        hashes[:, unknown] = np.array(found, dtype=np.uint64).T
    return np.asarray((hashes * counts).sum(axis=1, dtype=np.uint64))


def _hashed(cell: object, salt: bytes) -> tuple[int, int]:
    """Two hashes of a cell that is no number; one that is empty is like one that is missing."""
    text = as_text(cell)
    content = "" if text.lower() == MISSING else text
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), key=salt, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def _mixed(numbers: NDArray[np.float64], keys: Words) -> Words:
    """Two hashes of each number, by the bits of its float. They are fast, and end in a keyed hash of their sums."""
    bits = (numbers + 0.0).view(np.uint64)  # −0 and 0 are one number
    return np.stack([_scrambled(bits ^ keys[2 * one], keys[2 * one + 1]) for one in (0, 1)])


def _scrambled(words: Words, key: np.uint64) -> Words:
    """Steele, Lea, Flood 2014 (SplitMix64), twice, with a key between: every bit depends on every bit."""
    for _ in range(2):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words = (words ^ (words >> np.uint64(31))) + key
    return words
