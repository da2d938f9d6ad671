"""Axis-aligned rectangles: RECTANGLE of any number of dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain
from reticent.concepts.interface import MOST_LABELLINGS, Dichotomies, check_concept
from reticent.concepts.intervals import lightest_run, within
from reticent.concepts.order import Line, Ordered, OrderedDichotomies
from reticent.concepts.values import Concept, Value, plain_value
from reticent.data.points import Array, Labels, as_weights, zeros_and_ones
from reticent.errors import OutOfReach
from reticent.exact import integer

_TABLE = 1 << 25  # the most cells of the table of sums; beyond, boxes are compared with the rows one by one


@dataclass(frozen=True, repr=False)
class Rectangle(Concept):
    """The label 1 for low_i ≤ x_i ≤ high_i in every dimension i; for no point if some low_i > high_i.

    Parameters
    ----------
    low, high : tuple of int, float or datetime64
        The ends in each dimension.
    """

    low: tuple[Value, ...]
    high: tuple[Value, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, tuple(plain_value(value, name) for value in getattr(self, name)))
        if len(self.low) != len(self.high):
            raise ValueError("low and high must have one number per dimension")


@dataclass(frozen=True)
class Rectangles(Ordered[Rectangle]):
    """All axis-aligned rectangles, and the empty one. With `bits` = d this is RECTANGLE_d in `dimensions` dimensions.

    The VC dimension is twice the number of dimensions. With 1 bit, where rectangles are conjunctions of Boolean
    literals, it is the number of dimensions, and 2 for one dimension.

    The first dichotomy is the empty one. The others are the sets of all points in their bounding box, in the order of
    these boxes: by their lower, then their upper end in the first dimension, and so on. There may be
    n^(2·dimensions)/4^dimensions of them; more than 2^24 are not listed. `erm` does not list them: if the labels are
    those of a rectangle it takes one pass, and else it searches the boxes in all dimensions but the last, for which it
    takes one cumulative sum.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Definition 3.20.

    Parameters
    ----------
    dimensions : int
        The number of dimensions.
    bits : int or None, default None
        Short for `domain=Integers(bits)`.
    domain : Domain or None, default None
        The domain of each column: `Integers`, `Floats` or `Datetimes`. Without it and `bits`, the type of `X`
        determines the domain.

    Examples
    --------
    >>> rectangles = Rectangles(dimensions=2, bits=8)
    >>> rectangles.erm([[1, 1], [2, 5], [3, 2], [9, 9]], [0, 1, 1, 0])
    Rectangle(low=(2, 2), high=(3, 5))
    """

    dimensions: int
    bits: int | None = None
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.dimensions, "dimensions", least=1)

    @property
    def columns(self) -> int:
        """The number of dimensions."""
        return self.dimensions

    @property
    def vc_dimension(self) -> int:
        """Twice the number of dimensions if a point can lie between two others; else that of conjunctions."""
        return max(2, self.dimensions) if self.values == 2 else 2 * self.dimensions

    @property
    def size(self) -> int | None:
        """(N(N + 1)/2)^dimensions + 1 for N values per dimension."""
        return None if self.values is None else (self.values * (self.values + 1) // 2) ** self.dimensions + 1

    def predict(self, concept: Rectangle, X: ArrayLike) -> Labels:
        """Return 1 inside, including the border."""
        check_concept(concept, Rectangle)
        if len(concept.low) != self.dimensions:
            raise ValueError(f"concept must have {self.dimensions} dimensions, got {len(concept.low)}")
        ranks, domain = self.ranks(X)
        inside = np.ones(len(ranks), dtype=bool)
        for column, low, high in zip(_columns(ranks), concept.low, concept.high, strict=True):
            inside &= within(column, domain, low, high)
        return zeros_and_ones(inside)

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Rectangle]:
        """Return the sets of points that a rectangle can contain, with their bounding boxes."""
        return _Boxes(self, X)

    def lightest(self, X: ArrayLike, weights: ArrayLike) -> Rectangle:
        """Return the first dichotomy of least weight."""
        boxes = _Boxes(self, X)
        whole = as_weights(weights, len(boxes.points))
        return boxes.lightest(whole) if whole.dtype != object else super().lightest(X, whole)

    def check_erm(self, points: int, *, what: str = "points", remedy: str = "") -> None:
        """No limit: no labellings are listed."""

    def _labellings_of(self, points: Array) -> int:
        """On a grid, at most the number of boxes of its lines."""
        lines = [len(np.unique(column)) for column in _columns(points)]
        boxes = math.prod(count * (count + 1) // 2 for count in lines)
        return min(super()._labellings_of(points), boxes + 1)

    def concepts(self) -> Iterator[Rectangle]:
        """Iterate over all rectangles of a finite domain."""
        domain, ranks = self.finite_domain()
        yield self.nothing(domain)
        sides = [(domain.value(low), domain.value(high)) for low in ranks for high in range(low, ranks.stop)]
        for box in itertools.product(sides, repeat=self.dimensions):
            yield Rectangle(tuple(low for low, _ in box), tuple(high for _, high in box))

    def nothing(self, domain: Domain) -> Rectangle:
        """Return the empty rectangle."""
        low, high = domain.nothing
        return Rectangle((low,) * self.dimensions, (high,) * self.dimensions)


def _columns(ranks: Array) -> Array:
    """One row per dimension."""
    return ranks[None] if ranks.ndim == 1 else ranks.T


class _Boxes(OrderedDichotomies[Rectangle]):
    """Boxes as rows low_1, high_1, low_2, …, by the index of each end among the distinct values of its dimension."""

    concept_class: Rectangles

    def __init__(self, concept_class: Rectangles, X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        self._axes = [Line(column) for column in _columns(self._ranks)]
        self._cells = self._locate(self._ranks)

    def _locate(self, ranks: Array) -> Array:
        """For every row and dimension its position on the axis, as in `Line.positions`."""
        positions = [axis.positions(column) for axis, column in zip(self._axes, _columns(ranks), strict=True)]
        return np.stack(positions, axis=1)

    @cached_property
    def _distinct(self) -> Array:
        return np.unique(self._cells // 2, axis=0)

    @cached_property
    def _list(self) -> Array:
        """All boxes that are the bounding box of the points they contain; `OutOfReach` as soon as they are too many."""
        found, boxes = [np.zeros((0, 2 * self.concept_class.dimensions), dtype=np.int64)], 0
        for outer, held in _outer_boxes(self._distinct, self.concept_class.dimensions - 1):
            inner = _tight_sides(held, outer)
            found.append(np.column_stack([np.tile(outer, (len(inner), 1)), inner]))
            boxes += len(inner)
            if boxes > MOST_LABELLINGS:
                raise OutOfReach("X has too many labellings, more than 2^24; take fewer points")
        return np.concatenate(found)

    @property
    def count(self) -> int:
        """The number of boxes, and 1 for the empty set."""
        return len(self._list) + 1

    def _concept(self, index: int) -> Rectangle:
        return self._rectangle(self._list[index - 1]) if index else self.concept_class.nothing(self._domain)

    def _rectangle(self, box: Array) -> Rectangle:
        ends = [self._domain.value(self._axes[i // 2].point(end)) for i, end in enumerate(box.tolist())]
        return Rectangle(tuple(ends[::2]), tuple(ends[1::2]))

    def lightest(self, weights: Array) -> Rectangle:
        """Return the rectangle of the first dichotomy of least weight."""
        light = self._cells[weights < 0] // 2
        if len(light) and bool(np.all(weights)):
            # If their bounding box contains no row of positive weight, no other set of points is as light.
            low, high, heavy = light.min(axis=0), light.max(axis=0), self._cells[weights > 0] // 2
            if not bool(np.all((heavy >= low) & (heavy <= high), axis=1).any()):
                return self._rectangle(np.column_stack([low, high]).ravel())
        _, index = np.unique(self._cells // 2, axis=0, return_inverse=True)
        totals = np.zeros(len(self._distinct), dtype=np.int64)
        np.add.at(totals, index.ravel(), weights)
        best, lightest = -1, list[tuple[Array, Array]]()
        for outer, held in _outer_boxes(np.column_stack([self._distinct, totals]), self.concept_class.dimensions - 1):
            prefixes = _prefixes(held)
            run = lightest_run(prefixes)
            weight = 0 if run is None else int(prefixes[run[1] + 1] - prefixes[run[0]])
            if weight < best:
                best, lightest = weight, []
            if weight == best:
                lightest.append((outer, held))
        # A box of least weight need not be tight. Find the first one that is, in the order of the dichotomies.
        for outer, held in lightest:
            sides = _tight_sides(held[:, :-1], outer)
            if len(sides):
                axis, prefixes = np.unique(held[:, -2]), _prefixes(held)
                starts, ends = np.searchsorted(axis, sides[:, 0]), np.searchsorted(axis, sides[:, 1])
                hits = np.flatnonzero(prefixes[ends + 1] - prefixes[starts] == best)
                if len(hits):
                    return self._rectangle(np.append(outer, sides[hits[0]]))
        return self.concept_class.nothing(self._domain)

    def _sums(self, weights: Array, at: Array | None) -> Array:
        cells = self._cells if at is None else self._locate(at)
        shape = tuple(2 * len(axis) + 2 for axis in self._axes)
        if float(np.prod(shape, dtype=np.float64)) > _TABLE:
            return super()._sums(weights, at)
        # table[c] is the sum of the weights of the rows whose positions lie below c in every dimension.
        table = np.zeros(shape, dtype=weights.dtype)
        np.add.at(table, tuple(cells.T + 1), weights)
        for dimension in range(len(shape)):
            table = np.cumsum(table, axis=dimension)
        sums = np.zeros(self.count, dtype=weights.dtype)
        for corner in itertools.product((0, 1), repeat=len(shape)):
            ends = tuple(2 * self._list[:, 2 * i + upper] + 1 + upper for i, upper in enumerate(corner))
            sums[1:] += (-1) ** (len(shape) - sum(corner)) * table[ends]
        return sums

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        cells = self._cells if at is None else self._locate(at)
        boxes = self._list[max(start - 1, 0) : stop - 1]
        inside = np.ones((len(boxes), len(cells)), dtype=bool)
        for i in range(cells.shape[1]):
            inside &= (cells[:, i] > 2 * boxes[:, 2 * i, None]) & (cells[:, i] < 2 * boxes[:, 2 * i + 1, None] + 2)
        return inside if start else np.concatenate([np.zeros((1, len(cells)), dtype=bool), inside])


def _outer_boxes(points: Array, dimensions: int, box: tuple[int, ...] = ()) -> Iterator[tuple[Array, Array]]:
    """The boxes in the first dimensions with a point on each side, in order, each with the points it contains.

    A box is dropped as soon as one of its sides has no point: then no smaller box is tight either.
    """
    axis = len(box) // 2
    if axis == dimensions:
        if len(points):
            yield np.array(box, dtype=np.int64), points
        return
    values = np.unique(points[:, axis])
    for i, low in enumerate(values):
        for high in values[i:]:
            held = points[(points[:, axis] >= low) & (points[:, axis] <= high)]
            if all(bool(np.any(held[:, k // 2] == side)) for k, side in enumerate(box)):
                yield from _outer_boxes(held, dimensions, (*box, int(low), int(high)))


def _tight_sides(held: Array, outer: Array) -> Array:
    """The sides (low, high) in the last dimension that leave a point on every side of the outer box, in order."""
    values, index = np.unique(held[:, -1], return_inverse=True)
    tight = np.triu(np.ones((len(values), len(values)), dtype=bool))
    for k, side in enumerate(outer):
        met = np.concatenate([[0], np.cumsum(np.bincount(index[held[:, k // 2] == side], minlength=len(values)))])
        tight &= met[None, 1:] > met[:-1, None]
    low, high = np.nonzero(tight)
    return np.column_stack([values[low], values[high]])


def _prefixes(weighted: Array) -> Array:
    """Cumulative sums of the weights, in the last column, along the dimension before it."""
    values, index = np.unique(weighted[:, -2], return_inverse=True)
    totals = np.zeros(len(values), dtype=np.int64)
    np.add.at(totals, index, weighted[:, -1])
    return np.concatenate([[0], np.cumsum(totals)])
