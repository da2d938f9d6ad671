"""Classes made of other classes: conjunctions over groups of columns, and unions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.interface import ColumnDichotomies, ConceptClass, Dichotomies, check_concept
from reticent.concepts.labellings import most_shattered, packed_rows, sauer
from reticent.concepts.values import Concept
from reticent.data.points import Array, Labels, as_rows
from reticent.exact import integer


@dataclass(frozen=True, repr=False)
class Product(Concept):
    """The label 1 where every part gives its own columns the label 1.

    Parameters
    ----------
    parts : tuple
        A concept for each class of a `Products`.
    """

    parts: tuple[Hashable, ...]


@dataclass(frozen=True, repr=False)
class OneOf(Concept):
    """A concept of one of the classes of a union.

    Parameters
    ----------
    place : int
        The index of the class in the union.
    concept : object
        The concept of that class.
    """

    place: int
    concept: Hashable


@dataclass(frozen=True, init=False)
class _Combined(ConceptClass[Any]):
    """Shared by products and unions: classes, and a VC dimension that is given or bounded by Sauer's lemma."""

    classes: tuple[ConceptClass[Any], ...]
    _given: int | None = field(repr=False)

    def __init__(self, classes: Iterable[ConceptClass[Any]], *, vc_dimension: int | None = None) -> None:
        object.__setattr__(self, "classes", tuple(classes))
        if not self.classes or not all(isinstance(part, ConceptClass) for part in self.classes):
            raise TypeError("classes must be one or more concept classes")
        given = None if vc_dimension is None else integer(vc_dimension, "vc_dimension", least=0)
        object.__setattr__(self, "_given", given)

    @property
    def declares_domain(self) -> bool:
        """Whether all classes know their domains."""
        return all(one.declares_domain for one in self.classes)

    def _labellings(self, points: int) -> int:
        raise NotImplementedError

    @property
    def vc_dimension(self) -> int:
        """As given; else the largest number of points that Sauer's lemma allows to be shattered."""
        if self._given is not None:
            return self._given
        return most_shattered(self._labellings, start=max(part.vc_dimension for part in self.classes))

    @property
    def vc_dimension_is_exact(self) -> bool:
        """False if it is a bound."""
        return self._given is not None


@dataclass(frozen=True, init=False)
class Products(_Combined):
    """Conjunctions: each class labels its own columns, and the label is 1 where all of them say 1.

    The first class takes the first `columns` of `X`, the next one those that follow. Rectangles are the product of
    intervals. The VC dimension is bounded by Sauer's lemma (the numbers of labellings multiply) unless it is given.

    Dichotomies are in the order of those of the first class, then of the second; the first combination that gives a
    labelling represents it.

    Parameters
    ----------
    classes : iterable of ConceptClass
        The classes.
    vc_dimension : int or None, default None
        The exact VC dimension; None for the bound by Sauer's lemma.

    Examples
    --------
    >>> from reticent.concepts import Intervals, Points
    >>> product = Products([Intervals(bits=8), Points(bits=8)])
    >>> product.erm([[1, 7], [5, 7], [6, 7], [5, 3]], [0, 1, 1, 0])
    Product(parts=(Interval(low=5, high=6), Point(at=7)))
    """

    @property
    def columns(self) -> int:
        """The columns of all classes together."""
        return sum(part.columns for part in self.classes)

    @property
    def size(self) -> int | None:
        """The product of the sizes; combinations that agree everywhere are counted separately."""
        sizes = [part.size for part in self.classes]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    def _labellings(self, points: int) -> int:
        return math.prod(sauer(part.vc_dimension, points) for part in self.classes)

    def labellings(self, points: int) -> int:
        """Return at most the product of those of the classes."""
        return min(super().labellings(points), self._pairs(points))

    def labels_kept(self, points: int) -> int:
        """Return those of all conjunctions, before equal ones are merged."""
        return points * self._pairs(points)

    def _pairs(self, points: int) -> int:
        return math.prod(part.labellings(points) for part in self.classes)

    def split(self, X: ArrayLike, name: str = "X") -> list[Array]:
        """Return the columns of each class."""
        array = as_rows(X, self.columns, name)
        array = array.reshape(len(array), self.columns)
        ends = itertools.accumulate(part.columns for part in self.classes)
        parts = [array[:, end - part.columns : end] for part, end in zip(self.classes, ends, strict=True)]
        return [part[:, 0] if part.shape[1] == 1 else part for part in parts]

    def predict(self, concept: Product, X: ArrayLike) -> Labels:
        """Return 1 where all parts say 1."""
        check_concept(concept, Product)
        if len(concept.parts) != len(self.classes):
            raise ValueError(f"concept must have {len(self.classes)} parts, got {len(concept.parts)}")
        trios = zip(self.classes, concept.parts, self.split(X), strict=True)
        return np.asarray(np.min([part.predict(own, columns) for part, own, columns in trios], axis=0))

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Product]:
        """Return the conjunctions of the dichotomies of the classes."""
        return _Conjunctions(self, X)

    def concepts(self) -> Iterator[Product]:
        """Iterate over all combinations of concepts of finite classes."""
        return map(Product, itertools.product(*(part.concepts() for part in self.classes)))

    def example_points(self) -> Array:
        """Return a few combinations of points of the classes."""
        examples = [part.example_points()[:3] for part in self.classes]
        mixed = itertools.product(*(list(points.reshape(len(points), -1)) for points in examples))
        points = np.array([np.concatenate(combination) for combination in mixed])[:8]
        return points[:, 0] if self.columns == 1 else points


class _Conjunctions(ColumnDichotomies[Product]):
    concept_class: Products

    def __init__(self, concept_class: Products, X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        split = concept_class.split(self.points)
        self._parts = [part.dichotomies(columns) for part, columns in zip(concept_class.classes, split, strict=True)]
        tables = [part._table(0, part.count, None) for part in self._parts]
        table, chosen = tables[0], np.arange(len(tables[0]))[:, None]
        for other in tables[1:]:  # conjunctions that are equal so far stay equal, so only the first of each is kept
            pairs = np.indices((len(table), len(other))).reshape(2, -1)
            table, chosen = _first_of_each(
                table[pairs[0]] & other[pairs[1]], np.column_stack([chosen[pairs[0]], pairs[1]])
            )
        self._chosen = chosen

    @property
    def count(self) -> int:
        """The number of conjunctions that differ on the points."""
        return len(self._chosen)

    def _concept(self, index: int) -> Product:
        pairs = zip(self._parts, self._chosen[index].tolist(), strict=True)
        return Product(tuple(part.concept(i) for part, i in pairs))

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        columns = [None] * len(self._parts) if at is None else self.concept_class.split(at)
        table = np.ones((stop - start, len(self.points) if at is None else len(at)), dtype=bool)
        for part, own, chosen in zip(self._parts, columns, self._chosen[start:stop].T, strict=True):
            table &= part._table(0, part.count, part.rows_at(own))[chosen]
        return table


@dataclass(frozen=True, init=False)
class Unions(_Combined):
    """The concepts of several classes on the same points, as one class.

    The VC dimension is bounded by Sauer's lemma (the numbers of labellings add up) unless it is given. Dichotomies are
    in the order of the classes; the first concept that gives a labelling represents it.

    Parameters
    ----------
    classes : iterable of ConceptClass
        The classes, all with the same number of columns.
    vc_dimension : int or None, default None
        The exact VC dimension; None for the bound by Sauer's lemma.

    Examples
    --------
    >>> from reticent.concepts import Intervals, Thresholds
    >>> union = Unions([Thresholds(bits=8), Intervals(bits=8)], vc_dimension=2)
    >>> union.erm([1, 2, 3], [0, 1, 0])
    OneOf(place=1, concept=Interval(low=2, high=2))
    """

    def __init__(self, classes: Iterable[ConceptClass[Any]], *, vc_dimension: int | None = None) -> None:
        super().__init__(classes, vc_dimension=vc_dimension)
        if len({part.columns for part in self.classes}) > 1:
            raise ValueError("classes must all have the same number of columns")

    @property
    def columns(self) -> int:
        """The columns of each class."""
        return self.classes[0].columns

    @property
    def size(self) -> int | None:
        """The sum of the sizes; concepts of different classes that agree everywhere are counted separately."""
        sizes = [part.size for part in self.classes]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def _labellings(self, points: int) -> int:
        return sum(sauer(part.vc_dimension, points) for part in self.classes)

    def labellings(self, points: int) -> int:
        """Return at most the sum of those of the classes."""
        return min(super().labellings(points), sum(part.labellings(points) for part in self.classes))

    def labels_kept(self, points: int) -> int:
        """Return those of all classes, before equal ones are merged."""
        return points * sum(part.labellings(points) for part in self.classes)

    def predict(self, concept: OneOf, X: ArrayLike) -> Labels:
        """Return the labels by the class of the concept."""
        check_concept(concept, OneOf)
        if not 0 <= concept.place < len(self.classes):
            raise ValueError(f"concept must be of one of {len(self.classes)} classes, got place={concept.place}")
        return self.classes[concept.place].predict(concept.concept, X)

    def dichotomies(self, X: ArrayLike) -> Dichotomies[OneOf]:
        """Return the dichotomies of all classes, each once."""
        return _Either(self, X)

    def concepts(self) -> Iterator[OneOf]:
        """Iterate over the concepts of finite classes, one class after the other."""
        return (OneOf(place, concept) for place, part in enumerate(self.classes) for concept in part.concepts())

    def example_points(self) -> Array:
        """Return those of the class with the greatest VC dimension."""
        return max(self.classes, key=lambda part: part.vc_dimension).example_points()


class _Either(ColumnDichotomies[OneOf]):
    concept_class: Unions

    def __init__(self, concept_class: Unions, X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        self._parts = [part.dichotomies(self.points) for part in concept_class.classes]
        tables = [part._table(0, part.count, None) for part in self._parts]
        indices = [np.column_stack([np.full(len(t), place), np.arange(len(t))]) for place, t in enumerate(tables)]
        _, self._chosen = _first_of_each(np.concatenate(tables), np.concatenate(indices))

    @property
    def count(self) -> int:
        """The number of concepts that differ on the points."""
        return len(self._chosen)

    def _concept(self, index: int) -> OneOf:
        place, number = self._chosen[index].tolist()
        return OneOf(place, self._parts[place].concept(number))

    def _sums(self, weights: Array, at: Array | None) -> Array:
        sums = [part._sums(weights, part.rows_at(at)) for part in self._parts]
        starts = np.cumsum([0, *map(len, sums)])
        return np.asarray(np.concatenate(sums)[starts[self._chosen[:, 0]] + self._chosen[:, 1]])


def _first_of_each(table: Array, chosen: Array) -> tuple[Array, Array]:
    """The distinct rows of the table, in order, and the rows of `chosen` that belong to them."""
    first: dict[bytes, int] = {}
    for index, key in enumerate(packed_rows(table)):
        first.setdefault(key, index)
    kept = list(first.values())
    return table[kept], chosen[kept]
