"""Labellings of points: how many there can be, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from reticent.data.points import Array, magnitude


def sauer(vc_dimension: int, points: int) -> int:
    """Return the most labellings of a number of points by a class of this VC dimension: Σ_{i ≤ d} C(n, i).

    Source. Sauer's lemma, which Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*,
    Theorem B.2, weaken to (en/d)^d.

    >>> sauer(1, 10), sauer(3, 3)
    (11, 8)
    """
    return sum(math.comb(points, i) for i in range(min(vc_dimension, points) + 1))


def most_shattered(labellings: Callable[[int], int], *, start: int) -> int:
    """Return the largest n, from `start` on, for which n points may have all 2^n labellings.

    It bounds the VC dimension.

    Parameters
    ----------
    labellings : callable
        The most labellings of a number of points.
    start : int
        A number of points that the class shatters.
    """
    while labellings(start + 1) >= 2 ** (start + 1):
        start += 1
    return start


def about(number: int) -> str:
    """Return a number for messages: exact below a million, else as a power of two."""
    return f"{number:,}" if number < 10**6 else f"about 2^{math.log2(number):.4g}"


def distinct(points: Array) -> Array:
    """Return every point once, in ascending order."""
    if points.ndim == 1:
        return np.asarray(np.unique(points))
    if points.dtype != object:
        return np.asarray(np.unique(points, axis=0))
    return np.array(sorted({tuple(point) for point in points.tolist()}), dtype=object).reshape(-1, *points.shape[1:])


def packed_rows(table: Array) -> list[bytes]:
    """Return every row of booleans as bytes."""
    return [row.tobytes() for row in np.packbits(table, axis=1)]


def joined(first: Array, second: Array) -> Array:
    """Return the rows of both arrays, without numpy's rounding of mixed integers to floats."""
    if first.dtype != second.dtype and {first.dtype.kind, second.dtype.kind} <= set("biuO"):
        return np.concatenate([first.astype(object), second.astype(object)])
    return np.concatenate([first, second])


def weigh(table: Array, weights: Array) -> Array:
    """Return table @ weights, exactly: in floating point if all sums are whole numbers that floats represent."""
    if magnitude(weights) < 2.0**53:
        return np.asarray(table.astype(np.float64) @ weights.astype(np.float64)).astype(np.int64)
    if weights.dtype != object:
        return np.asarray(table.astype(np.int64) @ weights)
    return np.array([sum(weights[row].tolist()) for row in table], dtype=object)
