"""Decision trees as flat arrays: all are evaluated together, and those with a single cut by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.data.executor import Executor
from reticent.data.shards import BLOCK
from reticent.data.tables import Array, Integers, Table, dense


class CutVoters:
    """Teachers with one cut each: the class `below` where the number in `column` is at most `cut`, else `above`.

    The cuts in a column are sorted once. The number of cuts that a value exceeds then gives all their votes. So an
    answer takes one search per column with a cut, however many teachers there are.
    """

    def __init__(self, column: Integers, cut: Array, below: Integers, above: Integers, *, classes: int) -> None:
        self.column, self.cut, self.below, self.above = column, cut, below, above
        self.classes = classes
        self.tables = {}
        for one in np.unique(column):
            mine = np.flatnonzero(column == one)
            mine = mine[np.argsort(cut[mine], kind="stable")]
            # Row i holds the votes when the value exceeds the first i cuts. Each cut that is passed moves one vote.
            table = np.zeros((len(mine) + 1, classes), dtype=np.int64)
            table[0] = np.bincount(below[mine], minlength=classes)
            passed = np.arange(1, len(mine) + 1)
            table[passed, below[mine]] -= 1
            table[passed, above[mine]] += 1
            self.tables[int(one)] = cut[mine], np.cumsum(table, axis=0)

    def count(self, X: Array) -> Integers:
        """Return how many teachers vote for each class, one row per query."""
        counts = np.zeros((len(X), self.classes), dtype=np.int64)
        for column, (cuts, table) in self.tables.items():
            counts += table[np.searchsorted(cuts, X[:, column], side="left")]
        return counts

    def ask(self, X: Array, teachers: Integers) -> Integers:
        """Return the votes of the teachers in each row of `teachers`."""
        values = np.take_along_axis(X, self.column[teachers], axis=1)
        return np.where(values <= self.cut[teachers], self.below[teachers], self.above[teachers])


class TreeVoters:
    """Decision trees of scikit-learn, concatenated in flat arrays. The children of a leaf are the leaf itself.

    As in scikit-learn, numbers are rounded to single precision, a number up to the threshold goes left, and a missing
    number goes where the tree sends it.
    """

    def __init__(self, models: list[Any], indices: list[Integers], *, classes: int) -> None:
        trees = [model.tree_ for model in models]
        self.classes, self.depth = classes, max(tree.max_depth for tree in trees)
        self.roots = np.append(0, np.cumsum([tree.node_count for tree in trees]))[:-1]
        start = np.repeat(self.roots, [tree.node_count for tree in trees])
        left, right, feature = (
            np.concatenate([getattr(tree, name) for tree in trees]).astype(np.int64)
            for name in ("children_left", "children_right", "feature")
        )
        leaf = left < 0
        self.feature = np.where(leaf, 0, feature)
        self.threshold = np.concatenate([tree.threshold for tree in trees])
        self.missing_left = np.concatenate([tree.missing_go_to_left for tree in trees]).astype(bool)
        node = np.arange(len(left))
        left, right = (np.where(leaf, node, start + child) for child in (left, right))
        self.children = np.column_stack([right, left]).ravel()
        self.vote = np.concatenate(
            [known[tree.value[:, 0, :].argmax(axis=1)] for tree, known in zip(trees, indices, strict=True)]
        )
        self.cuts = None
        if self.depth <= 1:
            self.cuts = CutVoters(
                self.feature[self.roots],
                np.where(leaf[self.roots], 0.0, self.threshold[self.roots]),
                self.vote[left[self.roots]],
                self.vote[right[self.roots]],
                classes=classes,
            )

    def count(self, X: Table, n_jobs: int | Executor | None = None) -> Integers:  # fast without jobs
        """Return how many teachers vote for each class, one row per query."""
        rows = dense(X, np.float32)
        counts = np.zeros((len(rows), self.classes), dtype=np.int64)
        walked = np.asarray(np.isnan(rows).any(axis=1))  # depends on the row alone, not on the others
        if self.cuts is None:
            walked[:] = True
        else:
            counts[~walked] = self.cuts.count(rows[~walked])
        queries, everyone = np.flatnonzero(walked), np.arange(len(self.roots))[None, :]
        batch = max(1, BLOCK // len(self.roots))
        for start in range(0, len(queries), batch):
            some = queries[start : start + batch]
            votes = self._walk(rows[some], np.broadcast_to(everyone, (len(some), len(self.roots))))
            for index in range(self.classes):
                counts[some, index] = np.count_nonzero(votes == index, axis=1)
        return counts

    def ask(self, X: Table, teachers: Integers) -> Integers:
        """Return the votes of the teachers in each row of `teachers`."""
        return self._walk(dense(X, np.float32), teachers)

    def _walk(self, rows: Array, teachers: Integers) -> Integers:
        node, numbers = self.roots[teachers], np.ascontiguousarray(rows).ravel()
        start, missing = np.arange(len(rows))[:, None] * rows.shape[1], bool(np.isnan(numbers).any())
        for _ in range(self.depth):
            number = numbers.take(start + self.feature.take(node))
            goes_left = number <= self.threshold.take(node)
            if missing:
                goes_left |= np.isnan(number) & self.missing_left.take(node)
            node = self.children.take(2 * node + goes_left)
        return self.vote.take(node)
