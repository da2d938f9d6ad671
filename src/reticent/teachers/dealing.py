"""Who learns from which rows: decided by the place of a row, or by its group, never by what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]
Integers = NDArray[np.int64]
Table = Any  # an array or a CSR matrix of two dimensions, or a data frame

BLOCK = 1 << 18  # numbers worked on at a time: a few MB, which stay in the cache


def deal(rows: int, shards: int, groups: Array | None = None) -> Integers:
    """The shard of each row: its place modulo `shards`, or that of its group among the groups, as they first appear.

    The shard of a row is a function of the number of rows, or of the column of groups, which is public. So whatever
    the rows hold, a replaced row stays in its shard and moves no other, and no group is in two shards. Shards differ by
    at most one in the number of their rows, or of their groups; a group with many rows makes its shard a large one.

    >>> deal(7, 3).tolist()
    [0, 1, 2, 0, 1, 2, 0]
    >>> deal(6, 2, np.array(["ann", "bob", "ann", "eve", "ann", "bob"])).tolist()
    [0, 1, 0, 0, 0, 1]
    """
    if groups is None:
        if rows < shards:
            raise ValueError(f"shards={shards} is more than there are rows: with {rows} rows at most {rows} can be had")
        return np.arange(rows) % shards
    if groups.shape != (rows,):
        raise ValueError(f"groups must have one group a row: {rows} rows, but the shape of groups is {groups.shape}")
    if groups.dtype.kind in "fc" and bool(np.isnan(groups).any()):
        raise ValueError("groups must name the group of every row: some are NaN")
    try:
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    except TypeError:
        raise TypeError("groups must be all numbers or all strings: they could not be compared") from None
    if len(first) < shards:
        raise ValueError(
            f"shards={shards} is more than there are groups: no group is split, so with {len(first)} groups at most "
            f"{len(first)} can be had"
        )
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    dealt: Integers = place[group.ravel()] % shards
    return dealt


def take(X: Table, rows: Integers) -> Table:
    """The rows at these places. Frames are told apart here and nowhere else: pandas counts rows by `iloc`."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


@dataclass(frozen=True)
class Shards:
    """All rows with their labels, and the shard of each: what is private, as it was dealt."""

    X: Table
    codes: Integers  # labels as places among the classes
    shard: Integers
    count: int
    classes: Array

    @cached_property
    def order(self) -> Integers:
        """The rows of the first shard, then of the second, and so on; in a shard as they came."""
        return np.argsort(self.shard, kind="stable")

    @cached_property
    def starts(self) -> Integers:
        """Where each shard starts in `order`, and where the last one ends."""
        return np.append(0, np.cumsum(np.bincount(self.shard, minlength=self.count)))

    @cached_property
    def seen(self) -> Integers:
        """How many rows of each class each shard has."""
        cells = np.bincount(self.shard * len(self.classes) + self.codes, minlength=self.count * len(self.classes))
        return cells.reshape(self.count, len(self.classes))

    @cached_property
    def constant(self) -> Integers:
        """The only class that a shard has, which its teacher votes for always; −1 where there are several."""
        return np.where((self.seen > 0).sum(axis=1) == 1, self.seen.argmax(axis=1), -1)

    def rows(self, shard: int) -> Integers:
        """Which rows are in a shard."""
        return self.order[self.starts[shard] : self.starts[shard + 1]]

    def blocks(self, numbers: int) -> Iterator[Integers]:
        """Shards of like size, some at a time, for work on `numbers` numbers a row.

        Which ones follows from sizes alone: how a shard is padded, and so how its sums are rounded, must not depend on
        what other shards hold.
        """
        sizes = np.diff(self.starts)
        shards = np.argsort(sizes, kind="stable")
        while len(shards):
            largest = int(sizes[shards[min(len(shards), 256) - 1]])
            some = min(256, max(1, BLOCK // (largest * numbers)))
            yield shards[:some]
            shards = shards[some:]


def dense(X: Table, dtype: type = np.float64) -> Array:
    """An array of numbers, from an array, a sparse matrix or a frame of numbers."""
    with np.errstate(over="ignore"):
        return X.toarray().astype(dtype, copy=False) if sparse.issparse(X) else np.asarray(X, dtype=dtype)
