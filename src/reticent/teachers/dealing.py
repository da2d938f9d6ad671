"""Who learns from which rows: decided by the place of a row, or by its group, never by what it holds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reticent.data.cells import is_missing
from reticent.silence import silent

Array = NDArray[Any]
Integers = NDArray[np.int64]
Table = Any  # an array or a CSR matrix of two dimensions, or a data frame

BLOCK = 1 << 18  # numbers worked on at a time: a few MB, which stay in the cache
LOAD = 1 << 26  # bytes of rows read at a time from what may be larger than memory
COPY = 1 << 23  # bytes of rows copied at a time
RESIDENT = 1 << 27  # bytes of a file that may become resident before they are let go
AROUND = 1 << 21  # bytes that may become resident around one that is read: systems map files by large pages
LARGEST = 2  # average shards: a group with more rows than these is refused


def deal(rows: int, shards: int, groups: Array | None = None) -> Integers:
    """The shard of each row: its place modulo `shards`, or that of its group among the groups, as they first appear.

    The shard of a row is a function of the number of rows, or of the column of groups, which is public. So whatever
    the rows hold, a replaced row stays in its shard and moves no other, and no group is in two shards. Shards differ by
    at most one in the number of their rows, or of their groups. A group with more rows than two average shards have is
    more than a shard can hold: it would leave too few rows for the others, so it is refused.

    >>> deal(7, 3).tolist()
    [0, 1, 2, 0, 1, 2, 0]
    >>> deal(6, 2, np.array(["ann", "bob", "ann", "eve", "ann", "bob"])).tolist()
    [0, 1, 0, 0, 0, 1]
    """
    check_shards(rows, shards if groups is None else 1)
    if groups is None:
        return np.arange(rows) % shards
    if groups.shape != (rows,):
        raise ValueError(f"groups must have one group a row: {rows} rows, but the shape of groups is {groups.shape}")
    group = numbered(groups)
    sizes = np.bincount(group)
    if len(sizes) < shards:
        raise ValueError(
            f"shards={shards} is more than there are groups: no group is split, so with {len(sizes)} groups at most "
            f"{len(sizes)} can be had"
        )
    check_sizes(sizes, shards)
    return group % shards


def numbered(groups: Array) -> Integers:
    """The number of each row's group, as groups first appear; `np.bincount` of it gives their sizes.

    Objects are compared, not sorted: one that has no place in an order, such as NaN, would leave equal names apart, and
    so a group in two shards. What names no group is refused.

    >>> numbered(np.array(["eve", "ann", "eve"])).tolist()
    [0, 1, 0]
    >>> numbered(np.array([3, True, 1.0, 3.0], dtype=object)).tolist()
    [0, 1, 1, 0]
    """
    kind = groups.dtype.kind
    if kind not in "biufSUMO":
        raise TypeError(f"groups must be numbers, strings or dates, got an array of {groups.dtype}")
    missing = any(map(is_missing, groups)) if kind == "O" else kind in "fM" and bool((groups != groups).any())  # noqa: PLR0124
    if missing:
        raise ValueError("groups must name the group of every row: some are missing")
    if kind != "O":
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
        place = np.empty(len(first), dtype=np.int64)
        place[np.argsort(first)] = np.arange(len(first))
        return np.asarray(place[group.ravel()])
    if len({isinstance(name, (str, bytes)) for name in groups}) > 1:
        raise TypeError("groups must be all numbers or all strings, got some of both")
    known: dict[Any, int] = {}
    try:
        return np.fromiter((known.setdefault(name, len(known)) for name in groups), dtype=np.int64, count=len(groups))
    except TypeError:
        raise TypeError("groups must be numbers, strings, dates or tuples of these") from None


def check_shards(rows: int, shards: int) -> None:
    """Refuse more shards than rows."""
    if rows == 0:
        raise ValueError("X must have at least one row, got 0")
    if rows < shards:
        raise ValueError(f"shards={shards} is more than there are rows: with {rows} rows at most {rows} can be had")


def most_shards(sizes: Integers) -> int:
    """The most shards to which groups of these sizes can be dealt: one a group, and none too large for its shard.

    >>> most_shards(np.array([21, *[1] * 79])), most_shards(np.array([2, 2, 2]))
    (9, 3)
    """
    half = -(-int(sizes.max()) // LARGEST)  # rows of an average shard: ⌈rows/k⌉ ≥ half if k·(half − 1) < rows
    return len(sizes) if half == 1 else min(len(sizes), (int(sizes.sum()) - 1) // (half - 1))


def check_sizes(sizes: Integers, shards: int) -> None:
    """Refuse a group with more rows than a shard can hold: twice those of an average shard, rounded up.

    The sizes of groups are public, so the error may tell of them, and of a cap that would do; names it does not tell.

    >>> check_sizes(np.array([20, *[1] * 80]), shards=10)
    >>> check_sizes(np.array([21, *[1] * 79]), shards=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: groups must have at most 20 rows each...: cap the rows of a group at 20, or take at most 9 teachers
    """

    def holds(rows: int) -> int:
        return LARGEST * -(-rows // shards)

    rows, largest = int(sizes.sum()), int(sizes.max())
    if largest <= holds(rows):
        return
    cap = holds(rows)
    while (less := holds(int(np.minimum(sizes, cap).sum()))) < cap:  # what is cut off makes the average smaller
        cap = less
    raise ValueError(
        f"groups must have at most {holds(rows)} rows each, those of two average shards, as no group is split and "
        f"{rows} rows are dealt to {shards} teachers; the largest has {largest}: cap the rows of a group at {cap}, or "
        f"take at most {most_shards(sizes)} teachers"
    )


def take(X: Table, rows: Integers) -> Table:
    """The rows at these places. Frames are told apart here and nowhere else: pandas counts rows by `iloc`."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def own(X: Table) -> Table:
    """A copy to give away: whatever is written into it, nobody else sees.

    A pipeline may work in place, as scalers do with `copy=False`. Were two teachers to get the same rows, the second
    would find in them what the first made of its private ones. A copy of a frame, or of an array of objects, shares
    what is in the cells; what went through a pickle shares nothing.
    """
    kind = getattr(X, "dtype", None)
    if isinstance(kind, np.dtype) and not kind.hasobject:
        return X.copy() if sparse.issparse(X) else np.array(X)
    return pickle.loads(pickle.dumps(X, protocol=pickle.HIGHEST_PROTOCOL))


@dataclass(frozen=True)
class Shards:
    """All rows with their labels, and the shard of each: what is private, as it was dealt.

    Teachers get their rows from `gather` and from nowhere else, whatever the rows are: an array in memory, views of a
    file that is larger than memory, a sparse matrix or a frame. So teachers of the same rows are the same, and the same
    lines gather none, one or all of the shards. Few rows are held at a time, and `release` is called as they are read,
    so that the pages they came from need not stay resident.
    """

    X: Table
    codes: Array  # labels as places among the classes
    shard: Integers | None  # None: row i is in shard i modulo `count`, and nothing is kept for each row
    count: int
    classes: Array
    release: Callable[[], None] | None = None

    @cached_property
    def sizes(self) -> Integers:
        """How many rows each shard has."""
        if self.shard is not None:
            return np.bincount(self.shard, minlength=self.count)
        whole, more = divmod(len(self.codes), self.count)
        return whole + (np.arange(self.count) < more)

    @cached_property
    def order(self) -> Integers:
        """The rows of the first shard, then of the second, and so on; in a shard as they came."""
        return np.argsort(self._dealt(0, len(self.codes)), kind="stable")

    @cached_property
    def starts(self) -> Integers:
        """Where each shard starts in `order`, and where the last one ends."""
        return np.append(0, np.cumsum(self.sizes))

    @cached_property
    def seen(self) -> Integers:
        """How many rows of each class each shard has."""
        cells = np.zeros(self.count * len(self.classes), dtype=np.int64)
        some = max(len(cells), LOAD // 64)
        for start in range(0, len(self.codes), some):
            codes = self.codes[start : start + some]
            cells += np.bincount(
                self._dealt(start, start + len(codes)) * len(self.classes) + codes, minlength=len(cells)
            )
            self._let_go()
        return cells.reshape(self.count, len(self.classes))

    @cached_property
    def constant(self) -> Integers:
        """The only class that a shard has, which its teacher votes for always; −1 where there are several."""
        return np.where((self.seen > 0).sum(axis=1) == 1, self.seen.argmax(axis=1), -1)

    def blocks(self, numbers: int) -> Iterator[Integers]:
        """Shards of like size, some at a time, for work on `numbers` numbers a row.

        Which ones follows from sizes alone: how a shard is padded, and so how its sums are rounded, must not depend on
        what other shards hold.
        """
        shards = np.argsort(self.sizes, kind="stable")
        while len(shards):
            largest = int(self.sizes[shards[min(len(shards), 256) - 1]])
            some = min(256, max(1, BLOCK // (largest * numbers)))
            yield shards[:some]
            shards = shards[some:]

    # ── how rows reach teachers: some shards at a time ────────────────────────────────────────────────────────────

    def gather(self, some: Integers) -> Shards:
        """Some shards alone, numbered by their places in `some`, their rows in memory; each shard's as they came.

        Rows are read in the order in which they lie, each once: dealt by place, shards that follow each other are read
        in runs of rows that follow each other.
        """
        rows, shard = self._rows_of(some)
        codes = np.empty(len(rows), dtype=np.int64)
        array = isinstance(self.X, np.ndarray)
        X = np.empty((len(rows), self.X.shape[1]), dtype=self.X.dtype) if array else take(self.X, rows)
        for part in self._copied_at_once(rows):
            codes[part] = self.codes[rows[part]]
            if array:
                X[part] = self.X[rows[part]]
            self._let_go()
        return Shards(X, codes, shard, len(some), self.classes)

    def parts(self, some: Integers) -> list[tuple[Table, Array]]:
        """The rows and codes of each of some shards."""
        held = self.gather(some)
        places = np.split(held.order, held.starts[1:-1]) if held.count else []
        return [(take(held.X, rows), held.codes[rows]) for rows in places]

    def loads(self, numbers: int) -> Iterator[tuple[Integers, Shards, list[Integers]]]:
        """All shards, as many at a time as are held in memory at once: their numbers, they alone, and their blocks.

        Blocks are those of `blocks`, whatever is held at once, so that results are the same to the last bit.
        """
        held: list[Integers] = []
        most, rows = max(1, LOAD // self._bytes), 0
        for block in self.blocks(numbers):
            more = int(self.sizes[block].sum())
            if held and rows + more > most:
                yield self._load(held)
                held, rows = [], 0
            held.append(block)
            rows += more
        if held:
            yield self._load(held)

    def _load(self, blocks: list[Integers]) -> tuple[Integers, Shards, list[Integers]]:
        names, ends = np.concatenate(blocks), np.cumsum([len(block) for block in blocks])
        local = [np.arange(end - len(block), end) for block, end in zip(blocks, ends, strict=True)]
        return names, self.gather(names), local

    def _rows_of(self, some: Integers) -> tuple[Integers, Integers]:
        """The rows of some shards, ascending, and for each the place of its shard in `some`."""
        if self.shard is None:
            places = np.argsort(some)
            deals = np.arange(0, len(self.codes), self.count)
            rows, shard = np.add.outer(deals, some[places]).ravel(), np.tile(places, len(deals))
            there = int(np.searchsorted(rows, len(self.codes)))  # the last deal may lack rows
            return rows[:there], shard[:there]
        sizes = self.sizes[some]
        shard = np.repeat(np.arange(len(some)), sizes)
        place = np.arange(len(shard)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in its shard
        rows = self.order[self.starts[some][shard] + place]
        ascending = np.argsort(rows)
        return rows[ascending], shard[ascending]

    def _copied_at_once(self, rows: Integers) -> list[slice]:
        """Parts of ascending rows: few enough to be copied, and to be resident, at once."""
        resident = np.cumsum(np.minimum(np.diff(rows, prepend=0) * self._bytes, self._bytes + AROUND)) // RESIDENT
        copied = np.arange(len(rows)) * self._bytes // COPY
        cuts = np.flatnonzero((np.diff(resident) > 0) | (np.diff(copied) > 0)) + 1
        return [slice(first, last) for first, last in pairwise([0, *cuts.tolist(), len(rows)])]

    @property
    def portions(self) -> int:
        """Into how many parts the rows must be split for each to be held in memory; 1 for rows that are there."""
        return 1 if self.release is None else -(-len(self.codes) * self._bytes // LOAD)

    @property
    def _bytes(self) -> int:
        """What a row takes while it is worked on: itself, and some whole numbers of 64 bits about it."""
        values = self.X.itemsize * self.X.shape[1] if isinstance(self.X, np.ndarray) else 0
        return values + 64

    def _dealt(self, start: int, stop: int) -> Integers:
        """The shards of some rows."""
        return np.arange(start, stop) % self.count if self.shard is None else self.shard[start:stop]

    def _let_go(self) -> None:
        if self.release is not None:
            self.release()


@silent()
def dense(X: Table, dtype: type = np.float64) -> Array:
    """An array of numbers, from an array, a sparse matrix or a frame of numbers."""
    return X.toarray().astype(dtype, copy=False) if sparse.issparse(X) else np.asarray(X, dtype=dtype)
