"""Halfspaces in one to three dimensions, decided exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import check_finite
from reticent.concepts.interface import ConceptClass, Dichotomies, check_concept
from reticent.concepts.labellings import sauer
from reticent.concepts.values import Concept
from reticent.data.points import Array, Labels, as_rows, nearest_float, zeros_and_ones
from reticent.exact import integer

MOST_PARTITIONS = 1 << 20  # the most that are listed
_SMALL = 1 << 18  # for coordinates below B, heights are below 48·B³, which then fits 64 bits


@dataclass(frozen=True, repr=False)
class Halfspace(Concept):
    """The label 1 where normal · x > offset.

    Parameters
    ----------
    normal : tuple of int
        The normal. With the normal 0, all points, or none, have the label 1.
    offset : int
        The offset.
    """

    normal: tuple[int, ...]
    offset: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "normal", tuple(integer(number, "normal") for number in self.normal))
        object.__setattr__(self, "offset", integer(self.offset, "offset"))


@dataclass(frozen=True)
class Halfspaces(ConceptClass[Halfspace]):
    """All open halfspaces in one, two or three dimensions; on finitely many points, closed ones label the same.

    The VC dimension is one more than the number of dimensions. Coordinates are integers of any width, or floats, each
    exactly the binary number that it stores. Whether points lie on one line or plane is decided exactly.

    n points have at most 2·Σ_{i ≤ dimensions} C(n − 1, i) dichotomies, and exactly as many if no more than `dimensions`
    of them lie on a hyperplane. They are in the order of their labels, read as a binary number whose highest digit is
    the label of the last point (the points being sorted): the empty set first, all points last.

    Parameters
    ----------
    dimensions : {1, 2, 3}
        The number of dimensions.

    Examples
    --------
    >>> halfspaces = Halfspaces(dimensions=2)
    >>> len(halfspaces.dichotomies([[0, 0], [1, 0], [0, 1], [1, 1]]))
    14
    >>> halfspace = halfspaces.erm([[0, 0], [1, 0], [0, 1], [1, 1]], [0, 1, 1, 1])
    >>> halfspaces.predict(halfspace, [[0, 0], [1, 0], [0, 1], [1, 1]])
    array([0, 1, 1, 1])
    """

    dimensions: int

    def __post_init__(self) -> None:
        integer(self.dimensions, "dimensions", least=1, most=3)

    @property
    def columns(self) -> int:
        """The number of dimensions."""
        return self.dimensions

    @property
    def vc_dimension(self) -> int:
        """One more than the number of dimensions."""
        return self.dimensions + 1

    @property
    def size(self) -> int | None:
        """None: there are infinitely many."""
        return None

    def predict(self, concept: Halfspace, X: ArrayLike) -> Labels:
        """Return 1 where normal · x > offset, exactly."""
        check_concept(concept, Halfspace)
        if len(concept.normal) != self.dimensions:
            raise ValueError(f"concept must have {self.dimensions} dimensions, got {len(concept.normal)}")
        return zeros_and_ones(_sides([concept], self.read(X))[0])

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Halfspace]:
        """Return the partitions of the points by a line or plane."""
        return _Partitions(self, X)

    @property
    def most_labellings(self) -> int:
        """The most that are listed: each is kept with a witness, in some hundred bytes."""
        return MOST_PARTITIONS

    def labellings(self, points: int) -> int:
        """Return 2·Σ_{i ≤ dimensions} C(n − 1, i), the number for points in general position."""
        return 2 * sauer(self.dimensions, points - 1) if points else 1

    def read(self, X: ArrayLike, name: str = "X") -> Array:
        """Return the points as an array of shape (rows, dimensions), without rounding."""
        array = as_rows(X, self.dimensions, name)
        if array.dtype.kind not in "biufO" or array.dtype.itemsize > 8:
            raise TypeError(f"{name} must hold whole numbers or floats of at most 64 bits, got {array.dtype}")
        if array.dtype.kind == "f":
            check_finite(array, name)
        return array.reshape(len(array), self.dimensions)


def _sides(concepts: list[Halfspace], points: Array) -> Array:
    """Which points lie on the side labelled 1, one concept per row.

    Floating-point numbers decide if their rounding error, which is bounded, cannot change the sign; exact numbers
    decide the rest.
    """
    if not len(concepts) or not len(points):
        return np.zeros((len(concepts), len(points)), dtype=bool)
    normals = np.array([[nearest_float(one) for one in (*concept.normal, concept.offset)] for concept in concepts])
    near = np.append(_nearly_all(points), np.full((len(points), 1), -1.0), axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        values = normals @ near.T
        bound = np.abs(normals) @ np.abs(near).T * 2.0**-48 + 2.0**-1000
        sides: Array = values > bound
        unsure = ~(sides | (values < -bound)) | ~np.isfinite(bound)
    for row, column in np.argwhere(unsure).tolist():
        exact = (Fraction(_exact(x)) * n for x, n in zip(points[column], concepts[row].normal, strict=True))
        sides[row, column] = sum(exact) > concepts[row].offset
    return sides


def _nearly_all(points: Array) -> Array:
    if points.dtype != object:
        return points.astype(np.float64)
    return np.array([nearest_float(number) for number in points.flat]).reshape(points.shape)


def _exact(number: Any) -> int | Fraction:
    return Fraction(*number.as_integer_ratio()) if isinstance(number, (float, np.floating)) else int(number)


def _whole(points: Array) -> tuple[list[tuple[int, ...]], int]:
    """The distinct points in ascending order, as whole multiples of 1/unit."""
    exact = sorted({tuple(map(_exact, point)) for point in points.tolist()})
    unit = math.lcm(*(Fraction(number).denominator for point in exact for number in point))
    return [tuple(int(number * unit) for number in point) for point in exact], unit


class _Partitions(Dichotomies[Halfspace]):
    concept_class: Halfspaces

    def __init__(self, concept_class: Halfspaces, X: ArrayLike) -> None:
        super().__init__(concept_class, concept_class.read(X))
        self._whole, self._unit = _whole(self.points)
        index_of = {point: index for index, point in enumerate(self._whole)}
        rows = (tuple(int(_exact(number) * self._unit) for number in point) for point in self.points.tolist())
        self._indices = np.array([index_of[row] for row in rows], dtype=np.int64)

    @cached_property
    def _arrangement(self) -> Arrangement:
        return Arrangement(self._whole)

    @property
    def count(self) -> int:
        """The number of regions of the arrangement."""
        return len(self._arrangement.masks)

    def _concept(self, index: int) -> Halfspace:
        arrangement = self._arrangement
        normal, offset = arrangement.witness(arrangement.masks[index])
        normal = tuple(number * self._unit for number in normal) or (0,) * self.concept_class.dimensions
        common = math.gcd(*normal, offset)
        return Halfspace(tuple(number // common for number in normal), offset // common)

    def rows_at(self, at: ArrayLike | None) -> Array | None:
        """Other points `at` in the form that `_table` reads; None for the points themselves."""
        return None if at is None else self.concept_class.read(at, "at")

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        if at is not None:
            return _sides([self.concept(index) for index in range(start, stop)], at)
        masks, width = self._arrangement.masks[start:stop], (len(self._whole) + 7) // 8
        packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), dtype=np.uint8)
        bits = np.unpackbits(packed.reshape(len(masks), width), axis=1, bitorder="little")
        return bits[:, self._indices].astype(bool)


class Arrangement:
    """All partitions of distinct whole points by a hyperplane that meets none of them.

    A partition is a bit mask (bit i for point i) with a witness (normal, offset): normal · p > offset for the points of
    the mask, < offset for the others.

    Why these are all. The pairs (normal, offset) of one partition form an open cone. If the points do not all lie on
    one hyperplane, the cone contains no line, so it has an edge: a hyperplane v, spanned by some of the points, that an
    arbitrarily small tilt moves into the cone. So the points off v have the labels that v gives them. Those on v are
    partitioned by the tilt, which acts on them as a hyperplane of v itself: all of their partitions occur, and are
    found by the same method one dimension lower. Points that all lie on one hyperplane are first projected along an
    axis that keeps them distinct.

    Parameters
    ----------
    points : list of tuple of int
        The distinct points.
    """

    def __init__(self, points: list[tuple[int, ...]]) -> None:
        self.all = (1 << len(points)) - 1
        self._axes, self._points = _independent_axes(points)
        self._dimensions = len(points[0]) if points else 0
        self._found: dict[int, tuple[tuple[int, ...], int, tuple[int, ...], int]] = {}
        if len(self._axes) > 1:
            for normal, offset, heights in _hyperplanes(self._points, len(self._axes)):
                self._tilt(normal, offset, heights)
        elif self._axes:  # a line: cut after the first one, two, … points
            for cut in range(1, len(points)):
                lower = self._mask(i for i in self._along()[:cut])
                self._found[lower] = self._found[self.all ^ lower] = ((), 0, (), 0)
        self._found[0] = self._found[self.all] = ((), 0, (), 0)

    @cached_property
    def masks(self) -> list[int]:
        """Every partition, in ascending order."""
        return sorted(self._found)

    @staticmethod
    def _mask(indices: Iterator[int]) -> int:
        return sum(1 << index for index in indices)

    def _along(self) -> list[int]:
        return sorted(range(len(self._points)), key=lambda i: self._points[i])

    def _tilt(self, normal: tuple[int, ...], offset: int, heights: list[int]) -> None:
        on = tuple(i for i, height in enumerate(heights) if height == 0)
        above = self._mask(i for i, height in enumerate(heights) if height > 0)
        below = self._mask(i for i, height in enumerate(heights) if height < 0)
        if len(on) == len(self._axes):  # a simplex has all partitions
            tilts: Iterator[int] | list[int] = iter(range(1 << len(on)))
        else:
            tilts = Arrangement([self._points[i] for i in on]).masks
        for tilt in tilts:
            raised = self._mask(i for bit, i in enumerate(on) if tilt >> bit & 1)
            self._found.setdefault(above | raised, (normal, offset, on, tilt))
            self._found.setdefault(below | raised, (tuple(-n for n in normal), -offset, on, tilt))

    def witness(self, mask: int) -> tuple[tuple[int, ...], int]:
        """Return a normal and an offset of this partition."""
        normal, offset = self._witness(mask)
        full = [0] * self._dimensions
        for axis, number in zip(self._axes, normal, strict=True):
            full[axis] = number
        return tuple(full), offset

    def _witness(self, mask: int) -> tuple[tuple[int, ...], int]:
        if mask in (0, self.all):
            return (0,) * len(self._axes), 1 if mask == 0 else -1
        if len(self._axes) == 1:
            order = self._along()
            rising = not mask >> order[0] & 1
            cut = next(index for index, i in enumerate(order) if bool(mask >> i & 1) == rising)
            middle = self._points[order[cut - 1]][0] + self._points[order[cut]][0]
            return ((2,), middle) if rising else ((-2,), -middle)
        normal, offset, on, raised = self._found[mask]
        tilt, lift = Arrangement([self._points[i] for i in on]).witness(raised)
        steep = 1
        for point in self._points:
            height = abs(_dot(normal, point) - offset)
            if height:
                steep = max(steep, abs(_dot(tilt, point) - lift) // height + 1)
        return tuple(steep * n + t for n, t in zip(normal, tilt, strict=True)), steep * offset + lift


def _dot(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _independent_axes(points: list[tuple[int, ...]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """The first axes that keep the points distinct on the flat they span, and the coordinates on these."""
    axes: list[int] = []
    if points:
        # Echelon form of the differences, column by column; the pivots are the axes.
        vectors = [[Fraction(x - o) for x, o in zip(point, points[0], strict=True)] for point in points[1:]]
        for axis in range(len(points[0])):
            pivot = next((vector for vector in vectors if vector[axis]), None)
            if pivot is None:
                continue
            axes.append(axis)
            vectors = [
                [x - vector[axis] / pivot[axis] * p for x, p in zip(vector, pivot, strict=True)] for vector in vectors
            ]
    return axes, [tuple(point[axis] for axis in axes) for point in points]


def _hyperplanes(points: list[tuple[int, ...]], dimensions: int) -> Iterator[tuple[tuple[int, ...], int, list[int]]]:
    """Every line (or plane) through two (or three) of the points, once, with the height of each point above it."""
    small = max(abs(x) for point in points for x in point) < _SMALL
    coordinates = np.array(points, dtype=np.int64 if small else object)
    chosen = np.array(list(itertools.combinations(range(len(points)), dimensions)))
    base, *others = (coordinates[column] for column in chosen.T)
    if dimensions == 2:
        along = others[0] - base
        normals = np.column_stack([-along[:, 1], along[:, 0]])
    else:
        (a1, a2, a3), (b1, b2, b3) = (others[0] - base).T, (others[1] - base).T
        normals = np.column_stack([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1])
    offsets = (normals * base).sum(axis=1)
    seen: set[tuple[int, ...]] = set()
    for normal, offset in zip(normals, offsets, strict=True):
        if not np.any(normal):
            continue
        heights = (coordinates @ normal - offset).tolist()
        on = tuple(i for i, height in enumerate(heights) if height == 0)
        if len(on) > dimensions:  # the same hyperplane comes from every other choice of its points
            if on in seen:
                continue
            seen.add(on)
        yield tuple(normal.tolist()), int(offset), heights
