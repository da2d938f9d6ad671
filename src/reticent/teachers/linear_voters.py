"""Linear teachers that vote: all of them by one product of matrices."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import ThreadpoolController

from reticent.data.executor import Executor, as_executor
from reticent.data.shards import BLOCK
from reticent.data.tables import Array, Integers, Table, dense, take
from reticent.silence import silent

Floats = NDArray[np.float64]

KEPT = 1 << 22  # weights: up to this many are cached in the form that products need
SCORES = 1 << 20  # computed at a time: a few MB, which fit into the CPU cache
PART = 2048  # least number of queries for a task of their own
WIDE = 1e4  # a row with a larger number is voted on in double precision


class LinearVoters:
    """Linear teachers. Two classes: they vote by the sign of a score; more: for the first class with the highest score.

    Parameters
    ----------
    weights : array or sparse matrix
        One row per teacher for two classes, else one per class and teacher; the rows of a class are together.
    bias : array of float
        The intercepts, in the same order.
    teachers : int
        Number of teachers.
    classes : int
        Number of classes.
    """

    def __init__(self, weights: Any, bias: Floats, *, teachers: int, classes: int) -> None:
        self.weights, self.bias = weights, bias
        self.teachers, self.classes = teachers, classes
        self.scored = len(bias) // teachers
        self._kept: dict[tuple[int, type], list[Array]] = {}

    def fix_votes(self, constant: Integers) -> None:
        """Make each teacher whose entry of `constant` is not negative always vote for that class."""
        fixed = np.flatnonzero(constant >= 0)
        if not len(fixed):
            return
        self._kept.clear()
        everywhere = (fixed + self.teachers * np.arange(self.scored)[:, None]).ravel()
        if sparse.issparse(self.weights):
            keep = np.ones(self.weights.shape[0])
            keep[everywhere] = 0
            self.weights.data[np.repeat(keep, np.diff(self.weights.indptr)) == 0] = 0
        else:
            self.weights[everywhere] = 0
        bias = self.bias.reshape(self.scored, self.teachers)
        votes = constant[fixed]
        bias[:, fixed] = 2 * votes - 1 if self.scored == 1 else np.where(votes == np.arange(self.scored)[:, None], 1, 0)

    @silent()
    def failed(self) -> Array:
        """Return which teachers have a weight that is not finite, or an intercept that is NaN."""
        finite = np.isfinite(np.asarray(abs(self.weights).sum(axis=1)).ravel())
        failed: Array = ~(finite & ~np.isnan(self.bias)).reshape(self.scored, self.teachers).all(axis=0)
        return failed

    @silent()
    def count(self, X: Table, n_jobs: int | Executor | None = None) -> Integers:
        """Return how many teachers vote for each class, one row per query."""
        single = X.astype(np.float32, copy=False)
        # Threads inside a product of few columns gain nothing; threads for parts of the queries do.
        with _blas().limit(limits=1):
            counts = self._count_parts(single, as_executor(n_jobs, in_threads=True))
        # Rows that single precision cannot hold are done again, each by a product of its own: a product of matrices may
        # round a row differently by the shape of the whole, and so show how many rows there are.
        if X.shape[0] and not max(single.max(), -single.min()) <= WIDE:
            largest = abs(single).max(axis=1)
            wide = np.flatnonzero((largest.toarray().ravel() if sparse.issparse(single) else largest) > WIDE)
            counts[wide] = self._count(X[wide].astype(np.float64), np.float64)
        return counts

    def _count_parts(self, X: Any, executor: Executor) -> Integers:
        """Count votes on parts of the queries at the same time. The parts depend only on the number of queries."""
        parts = X.shape[0] // PART
        parts = min(parts, executor.workers) if parts > 1 else 1  # most batches are small, and counting workers is slow
        bounds = [X.shape[0] * part // parts for part in range(parts + 1)]
        counted = executor.map(self._count, ((X[first:last], np.float32) for first, last in pairwise(bounds)))
        return np.concatenate(list(counted))

    @silent()  # again: it may run in another thread
    def _count(self, X: Any, precision: type) -> Integers:
        queries, some = X.shape[0], min(255, self.teachers)  # the votes of 255 teachers fit into a byte
        batch = max(1, min(SCORES // some, queries))
        counts = np.zeros((queries, self.classes), dtype=np.int64)
        ones = np.ones((queries, 1), dtype=precision)
        X = sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.hstack([X, ones])
        # Allocated once: allocating memory for every product takes nearly as long as the product.
        scratch = np.empty((self.scored, some * batch), dtype=precision)
        above = np.empty(some * batch, dtype=bool)
        for first in range(0, self.teachers, some):
            last = min(first + some, self.teachers)
            weights = self._weights_of(first, last, precision)
            for start in range(0, queries, batch):
                part = X[start : start + batch]
                shape = (last - first, part.shape[0])
                size = shape[0] * shape[1]
                outs = [one[:size].reshape(shape) for one in scratch]
                scores = [_product(one, part, out) for one, out in zip(weights, outs, strict=True)]
                yes = above[:size].reshape(shape)
                tally = counts[start : start + batch]
                if self.scored == 1:
                    tally[:, 1] += _votes(np.greater(scores[0], 0, out=yes))
                    continue
                best, winner = scores[0], np.zeros(shape, dtype=np.uint16)
                for index, score in enumerate(scores[1:], 1):
                    np.greater(score, best, out=yes)
                    np.copyto(best, score, where=yes)
                    winner[yes] = index
                for index in range(1, self.scored):
                    tally[:, index] += _votes(np.equal(winner, index, out=yes))
        counts[:, 0] = self.teachers - counts[:, 1:].sum(axis=1)
        return counts

    def _weights_of(self, first: int, last: int, precision: type) -> list[Array]:
        """Weights and biases of some teachers, for each class that is scored; cached if small."""
        if (kept := self._kept.get((first, precision))) is not None:
            return kept
        found = []
        for shift in range(0, len(self.bias), self.teachers):
            some = slice(first + shift, last + shift)
            found.append(np.column_stack([dense(self.weights[some], precision), self.bias[some].astype(precision)]))
        if math.prod(self.weights.shape) <= KEPT:
            self._kept[first, precision] = found
        return found

    @silent()
    def ask(self, X: Table, teachers: Integers) -> Integers:
        """Return the votes of the teachers in each row of `teachers`; a teacher that occurs twice is asked twice."""
        answers = np.empty(teachers.shape, dtype=np.int64)
        batch = max(1, 4 * BLOCK // (teachers.shape[1] * self.scored * X.shape[1] + 1))
        for start in range(0, len(teachers), batch):
            some = teachers[start : start + batch]
            rows = dense(take(X, np.arange(start, start + len(some))))
            rows_of = some[:, None, :] + self.teachers * np.arange(self.scored)[:, None]
            weights = dense(self.weights[rows_of.ravel()]).reshape(len(some), -1, X.shape[1])
            scores = (weights @ rows[:, :, None])[:, :, 0].reshape(rows_of.shape) + self.bias[rows_of]
            answers[start : start + batch] = scores[:, 0] > 0 if self.scored == 1 else scores.argmax(axis=1)
        return answers


@lru_cache(maxsize=1)
def _blas() -> Any:
    """A controller for the number of threads of the linear algebra library below NumPy."""
    return ThreadpoolController().select(user_api="blas")


def _product(weights: Array, rows: Any, out: Array) -> Array:
    """Compute scores, one row per teacher and one column per query; in double precision by one product per query."""
    if sparse.issparse(rows):
        out[:] = (rows @ weights.T).T
    elif rows.dtype == np.float64:
        out[:] = (weights @ rows[:, :, None])[:, :, 0].T
    else:
        np.matmul(weights, rows.T, out=out)
    return out


def _votes(yes: Array) -> Integers:
    """For each query, how many of at most 255 teachers vote for a class."""
    votes: Integers = np.add.reduce(yes.view(np.uint8), axis=0, dtype=np.uint8).astype(np.int64)
    return votes
