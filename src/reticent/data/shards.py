"""Shards: which teacher learns from which rows. The index of a row, or its group, decides, never what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from reticent.data.groups import check_sizes, numbered
from reticent.data.tables import Array, Integers, Table, take

BLOCK = 1 << 18  # numbers worked on at a time: a few MB, which stay in the cache
LOAD = 1 << 26  # bytes of rows read at a time from what may be larger than memory
WORTH = 1 << 23  # bytes of rows that are worth a worker of their own
COPY = 1 << 23  # bytes of rows copied at a time
RESIDENT = 1 << 27  # bytes of a file that may become resident before they are released
AROUND = 1 << 21  # bytes that may become resident around one that is read: systems map files by large pages


def deal(rows: int, shards: int, groups: Array | None = None) -> Integers:
    """The shard of each row: its index modulo `shards`, or that of its group, as groups first appear.

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
        raise ValueError(f"groups must have one group per row: {rows} rows, but the shape of groups is {groups.shape}")
    group = numbered(groups)
    sizes = np.bincount(group)
    if len(sizes) < shards:
        raise ValueError(
            f"shards={shards} is more than there are groups: no group is split, so with {len(sizes)} groups at most "
            f"{len(sizes)} can be had"
        )
    check_sizes(sizes, shards)
    return group % shards


def check_shards(rows: int, shards: int) -> None:
    """Refuse more shards than rows."""
    if rows == 0:
        raise ValueError("X must have at least one row, got 0")
    if rows < shards:
        raise ValueError(f"shards={shards} is more than there are rows: with {rows} rows at most {rows} can be had")


@dataclass(frozen=True)
class Shards:
    """All rows with their labels, and the shard of each: what is private, as it was dealt.

    A row without a label is an *empty place*: it has a shard and counts in its size, but nothing is learned from it. So
    sizes, and with them blocks, loads and portions, follow from the number of places. Were empty places left out, one
    label more or less would move the rows of other shards, or change how their sums are padded and rounded.

    Teachers get their rows from `gather` and from nowhere else, whatever the rows are: an array in memory, views of a
    file that is larger than memory, a sparse matrix or a frame. So teachers of the same rows are the same, and the same
    lines gather none, one or all of the shards. Few rows are held at a time, and `release` is called as they are read,
    so that the pages they came from need not stay resident.
    """

    X: Table
    class_indices: Array  # the class of each row, as an index among `classes`; −1 for an empty place
    shard: Integers | None  # None: row i is in shard i modulo `count`, and nothing is kept for each row
    count: int
    classes: Array
    release: Callable[[], None] | None = None

    @cached_property
    def sizes(self) -> Integers:
        """How many places each shard has, empty ones included."""
        if self.shard is not None:
            return np.bincount(self.shard, minlength=self.count)
        whole, more = divmod(len(self.class_indices), self.count)
        return whole + (np.arange(self.count) < more)

    @cached_property
    def order(self) -> Integers:
        """The rows of the first shard, then of the second, and so on; in a shard as they came."""
        return np.argsort(self._dealt(0, len(self.class_indices)), kind="stable")

    @cached_property
    def starts(self) -> Integers:
        """Where each shard starts in `order`, and where the last one ends."""
        return np.append(0, np.cumsum(self.sizes))

    @cached_property
    def seen(self) -> Integers:
        """How many rows of each class each shard has."""
        cells = np.zeros(self.count * len(self.classes), dtype=np.int64)
        some = max(len(cells), LOAD // 64)
        for start in range(0, len(self.class_indices), some):
            indices = self.class_indices[start : start + some]
            cell = self._dealt(start, start + len(indices)) * len(self.classes) + indices
            cells += np.bincount(cell[indices >= 0], minlength=len(cells))
            self._let_go()
        return cells.reshape(self.count, len(self.classes))

    @cached_property
    def constant(self) -> Integers:
        """The only class that a shard has, which its teacher votes for always; −1 where there are several.

        A shard without labels has the first class.
        """
        return np.where((self.seen > 0).sum(axis=1) <= 1, self.seen.argmax(axis=1), -1)

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
        """Some shards alone, numbered as in `some`, with their rows in memory; the rows of a shard keep their order.

        Rows are read in the order in which they lie, each once: dealt by place, shards that follow each other are read
        in runs of rows that follow each other.
        """
        rows, shard = self._rows_of(some)
        indices = np.empty(len(rows), dtype=np.int64)
        array = isinstance(self.X, np.ndarray)
        X = np.empty((len(rows), self.X.shape[1]), dtype=self.X.dtype) if array else take(self.X, rows)
        for part in self._copied_at_once(rows):
            indices[part] = self.class_indices[rows[part]]
            if array:
                X[part] = self.X[rows[part]]
            self._let_go()
        return Shards(X, indices, shard, len(some), self.classes)

    def parts(self, some: Integers) -> list[tuple[Table, Array]]:
        """The labelled rows of each of some shards, and the indices of their classes."""
        held = self.gather(some)
        places = np.split(held.order, held.starts[1:-1]) if held.count else []
        labelled = [rows[held.class_indices[rows] >= 0] for rows in places]
        return [(take(held.X, rows), held.class_indices[rows]) for rows in labelled]

    def loads(self, numbers: int, workers: int = 1) -> Iterator[tuple[Integers, Shards, list[Integers]]]:
        """All shards, as many at a time as are held in memory at once: their numbers, they alone, and their blocks.

        Several workers get a load each, if the rows are many enough to be worth it. Blocks are those of `blocks`,
        however rows are loaded, so that results are the same to the last bit.
        """
        held: list[Integers] = []
        share = max(WORTH, -(-len(self.class_indices) * self._bytes // workers)) if workers > 1 else LOAD
        most, rows = max(1, min(LOAD, share) // self._bytes), 0
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
        """The rows of some shards, ascending, and for each the index of its shard in `some`."""
        if self.shard is None:
            ascending = np.argsort(some)
            deals = np.arange(0, len(self.class_indices), self.count)
            rows, shard = np.add.outer(deals, some[ascending]).ravel(), np.tile(ascending, len(deals))
            there = int(np.searchsorted(rows, len(self.class_indices)))  # the last deal may lack rows
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
        return 1 if self.release is None else -(-len(self.class_indices) * self._bytes // LOAD)

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
