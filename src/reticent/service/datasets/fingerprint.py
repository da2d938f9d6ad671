"""Recognising rows: a salted digest of a table that does not depend on its name, its format or the order of its rows.

There is a digest of all rows, and one of the cells of each column. So a table is also recognised with columns in
another order, renamed, left out or added. One other row makes all digests unrelated: a table that shares only some rows
with a known one is not recognised.
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
DIGEST = 16  # bytes
SEVERAL = 64  # cells that are looked at, to see whether many are alike
MISSING = "nan"  # how some programs write a cell that is empty


class Fingerprint(NamedTuple):
    """What is kept of the rows of a table, to recognise them. It is as secret as they are.

    Attributes
    ----------
    rows : int
        The number of rows, which is public.
    whole : str
        The salted digest of all rows.
    columns : tuple of str
        The salted digest of the cells of each column, in ascending order.
    names : tuple of str, default ()
        The names of the columns, which are public, in ascending order.
    """

    rows: int
    whole: str
    columns: tuple[str, ...]
    names: tuple[str, ...] = ()

    def matches(self, other: Fingerprint) -> bool:
        """Whether two tables have the same rows.

        Tables with as many columns must have the same rows. If one of them has fewer, the cells of each of its columns
        must be those of a column of the other.
        """
        if self.rows != other.rows or len(self.columns) == len(other.columns):
            return self.whole == other.whole
        own, theirs = Counter(self.columns), Counter(other.columns)
        return own <= theirs or theirs <= own


def fingerprint(table: TableFile, salt: bytes, advance: Advance | None = None) -> Fingerprint:
    """Read all rows of a table and return their fingerprint. Nothing else is kept of them.

    **Guarantee**: none. The fingerprint is a function of private rows, so it must stay with the data holder, and so
    must whether it is known.

    **Why** the salt: without it, anyone who sees a fingerprint could compare it with those of tables that they guess.
    The last step is a keyed hash, so without the salt a fingerprint tells no more than which tables of this machine are
    equal.

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
    sums = np.zeros((len(columns) + 1, 2), dtype=np.uint64)  # of each column, and of all rows; modulo 2^64
    rows = 0
    for chunk in table.chunks(columns, advance, numbers=columns):
        of_rows = np.zeros((2, len(chunk[columns[0]])), dtype=np.uint64)
        for place, name in enumerate(columns):
            hashes = _hashes(chunk[name], keys, salt)
            sums[place] += hashes.sum(axis=1, dtype=np.uint64)
            of_rows += hashes
        sums[-1] += _mixed(of_rows, keys).sum(axis=1, dtype=np.uint64)
        rows += of_rows.shape[1]
    *each, whole = (_digest(one, rows, salt) for one in sums)
    return Fingerprint(rows, whole, tuple(sorted(each)), tuple(sorted(columns)))


def _digest(sums: Words, rows: int, salt: bytes) -> str:
    content = rows.to_bytes(8, "big") + sums.astype(">u8").tobytes()
    return hashlib.blake2b(content, key=salt, digest_size=DIGEST).hexdigest()


def _hashes(cells: Any, keys: Words, salt: bytes) -> Words:
    """Two hashes of each cell, of 64 bits. A number has the same ones in every format."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        numbers = as_numbers(cells)
        found, empty = _of_numbers(numbers, keys), np.isnan(numbers)
        if empty.any():
            found[:, empty] = np.array([_of_text("", salt)], dtype=np.uint64).T
        return found
    listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
    if 2 * len(set(listed[:SEVERAL])) > SEVERAL:  # few cells are alike, so each is read
        return _of_cells(listed, keys, salt)
    places = {cell: place for place, cell in enumerate(dict.fromkeys(listed))}
    return _of_cells(list(places), keys, salt)[
        :, np.fromiter(map(places.__getitem__, listed), dtype=np.intp, count=len(listed))
    ]


def _of_cells(cells: list[Any], keys: Words, salt: bytes) -> Words:
    numbers = as_numbers(cells)
    texts = {int(place): as_text(cells[place]).replace(",", ".") for place in np.flatnonzero(np.isnan(numbers))}
    numbers[list(texts)] = as_numbers(list(texts.values()))  # numbers may have decimal commas
    found = _of_numbers(numbers, keys)
    for place in np.flatnonzero(np.isnan(numbers)):
        found[:, place] = _of_text(texts[int(place)], salt)
    return found


def _of_text(text: str, salt: bytes) -> tuple[int, int]:
    """The hashes of a cell that is no number. One that is empty is like one that is missing."""
    content = "" if text.lower() == MISSING else text
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), key=salt, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def _of_numbers(numbers: NDArray[np.float64], keys: Words) -> Words:
    """The hashes of numbers to about seven digits: 32-bit floats that were written as text are other 64-bit floats."""
    with np.errstate(over="ignore", under="ignore"):
        short = numbers.astype(np.float32).astype(np.float64)
    bits = (short + 0.0).view(np.uint64)  # −0 and 0 are one number
    return _mixed(np.stack([bits, bits]), keys)


def _mixed(words: Words, keys: Words) -> Words:
    """Mix the two rows of words by SplitMix64 (Steele, Lea, Flood 2014), twice, each with keys of its own.

    It is fast, and no cryptography: only the data holder chooses rows, and what is kept is a keyed hash of sums.
    """
    first, second = keys.reshape(2, 2, 1)
    words = words ^ first
    for _ in range(2):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words = (words ^ (words >> np.uint64(31))) + second
    return words
