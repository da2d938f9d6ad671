"""A class given by a list of concepts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.interface import ConceptClass, Dichotomies, check_concept
from reticent.concepts.labellings import packed_rows
from reticent.concepts.values import Concept
from reticent.data.labels import as_binary_labels
from reticent.data.points import Array, Labels, as_array, as_rows, zeros_and_ones
from reticent.exact import integer

_SEARCHED = 16  # the most points for which the VC dimension of label vectors is searched


@dataclass(frozen=True, repr=False)
class Choice(Concept):
    """The concept at an index of the list of a `Finite` class.

    Parameters
    ----------
    index : int
        The index.
    """

    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", integer(self.index, "index", least=0))


class Finite(ConceptClass[Choice]):
    """The concepts of a list: either label vectors, or functions from `X` to its labels.

    Vectors label the points 0, 1, … up to their length. Functions must label each row by itself, with the same result
    each time; they define which `X` they accept. Concepts that agree everywhere are counted as often as they are
    listed.

    The VC dimension of vectors on up to 16 points is found by search. Otherwise it is log2 of the number of concepts,
    an upper bound, unless it is given.

    Parameters
    ----------
    concepts : iterable of callables, or array_like
        Functions, or label vectors of one length.
    vc_dimension : int or None, default None
        The exact VC dimension, if known.

    Examples
    --------
    >>> finite = Finite([[0, 0, 1], [0, 1, 1], [1, 1, 1]])
    >>> finite.vc_dimension, finite.erm([0, 1, 1, 2], [0, 1, 1, 0])
    (1, Choice(index=1))
    """

    def __init__(
        self, concepts: Iterable[Callable[[Any], ArrayLike]] | ArrayLike, *, vc_dimension: int | None = None
    ) -> None:
        self._functions: list[Callable[[Any], ArrayLike]] = []
        self._vectors: Array | None = None
        listed: list[Any] = list(concepts)  # type: ignore[arg-type]
        if not listed:
            raise ValueError("concepts must not be empty")
        if all(callable(concept) for concept in listed):
            self._functions = listed
        elif any(callable(concept) for concept in listed):
            raise TypeError("concepts must be all functions or all label vectors")
        else:
            lengths = {np.shape(vector) for vector in listed}
            if len(lengths) > 1 or len(*lengths) != 1:
                raise ValueError("concepts must be label vectors of one length, one label per point")
            vectors = [as_binary_labels(vector, len(vector), "concepts") for vector in listed]
            self._vectors = np.array(vectors, dtype=bool)
        self._size = len(listed)
        self._given = vc_dimension if vc_dimension is None else integer(vc_dimension, "vc_dimension", least=0)
        self._searched = self._given is None and self._vectors is not None and self._vectors.shape[1] <= _SEARCHED
        most = self._size.bit_length() - 1
        if self._given is None:
            self._given = _vc_dimension(self._vectors, most) if self._vectors is not None and self._searched else most
        elif self._given > most:
            raise ValueError(f"vc_dimension must be at most {most}, log2 of the number of concepts, got {self._given}")
        self._exact = vc_dimension is not None or self._searched

    def __repr__(self) -> str:
        return f"Finite({self._size} {'functions' if self._functions else 'label vectors'})"

    @property
    def vc_dimension(self) -> int:
        """As given, as found by search, or ⌊log2 size⌋."""
        assert self._given is not None
        return self._given

    @property
    def vc_dimension_is_exact(self) -> bool:
        """False if it is only the logarithm of the size."""
        return self._exact

    @property
    def size(self) -> int:
        """The length of the list."""
        return self._size

    def predict(self, concept: Choice, X: ArrayLike) -> Labels:
        """Return the labels of the listed concept."""
        check_concept(concept, Choice)
        if concept.index >= self._size:
            raise ValueError(f"concept must be one of the {self._size} listed, got the index {concept.index}")
        return zeros_and_ones(self.table(self.read(X), concept.index, concept.index + 1)[0])

    def read(self, X: ArrayLike, name: str = "X") -> Array:
        """Return the points as an array; for label vectors, as indices."""
        if self._vectors is None:
            return as_array(X, name)
        array, points = as_rows(X, 1, name), self._vectors.shape[1]
        if array.size and (array.dtype.kind not in "biuf" or not bool(np.all(array == np.floor(array)))):
            raise TypeError(f"{name} must hold whole numbers, the indices of the points in the label vectors")
        if array.size and not 0 <= array.min() <= array.max() < points:
            raise ValueError(f"{name} must hold indices in the label vectors, in [0, {points}): one lies outside")
        return array.astype(np.int64)

    def table(self, points: Array, start: int, stop: int) -> Array:
        """Return the labels by the concepts start … stop − 1, one concept per row."""
        if self._vectors is not None:
            return self._vectors[start:stop, points]
        functions, rows = self._functions[start:stop], len(points)
        labels = [as_binary_labels(function(points), rows, "a concept's labels") for function in functions]
        return np.array(labels, dtype=bool).reshape(stop - start, len(points))

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Choice]:
        """Return the labellings in the order of the first concepts that give them."""
        return _Chosen(self, X)

    def labels_kept(self, points: int) -> int:
        """Return one label for every concept and point."""
        return self._size * points

    @property
    def counts_concepts(self) -> bool:
        """True: the concepts are listed."""
        return True

    def concepts(self) -> Iterator[Choice]:
        """Iterate over the concepts in the order of the list."""
        return map(Choice, range(self._size))

    def example_points(self) -> Array:
        """Return up to eight points of label vectors, those with distinct labels; 0, 1, … for functions."""
        if self._vectors is None:
            return super().example_points()
        _, first = np.unique(self._vectors, axis=1, return_index=True)
        return np.sort(first)[:8]


class _Chosen(Dichotomies[Choice]):
    concept_class: Finite

    def __init__(self, concept_class: Finite, X: ArrayLike) -> None:
        super().__init__(concept_class, concept_class.read(X))
        self._groups: dict[bytes, list[int]] = {}
        for index, key in enumerate(packed_rows(concept_class.table(self.points, 0, concept_class.size))):
            self._groups.setdefault(key, []).append(index)
        self._members = list(self._groups.values())

    @property
    def count(self) -> int:
        """The number of concepts that differ on the points."""
        return len(self._members)

    def _concept(self, index: int) -> Choice:
        return Choice(self._members[index][0])

    def rows_at(self, at: ArrayLike | None) -> Array | None:
        """Other points `at` in the form that `_table` reads; None for the points themselves."""
        return None if at is None else self.concept_class.read(at, "at")

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        chosen = [members[0] for members in self._members[start:stop]]
        points = self.points if at is None else at
        rows = [self.concept_class.table(points, index, index + 1) for index in chosen]
        return np.concatenate(rows) if rows else np.zeros((0, len(points)), dtype=bool)

    @property
    def multiplicities(self) -> Array:
        """The number of listed concepts with each labelling."""
        return np.array([len(members) for members in self._members])

    def member(self, index: int, number: int) -> Choice:
        """Return a listed concept with this labelling, in order."""
        members = self._members[self._index(index)]
        return Choice(members[self._number(number, len(members))])


def _vc_dimension(vectors: Array, most: int) -> int:
    """The size of the largest shattered set of columns. Subsets of one are shattered, so sizes grow by one."""
    shattered: list[tuple[int, ...]] = [()]
    for size in itertools.count(1):
        larger = [
            (*columns, column)
            for columns in shattered
            for column in range(columns[-1] + 1 if columns else 0, vectors.shape[1])
            if len(np.unique(vectors[:, [*columns, column]], axis=0)) == 2**size
        ]
        if not larger or size > most:
            return size - 1
        shattered = larger
    raise AssertionError
