"""The interface of concept classes: predictions, an exact minimiser of errors, and all labellings of given points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.labellings import about, distinct, joined, packed_rows, sauer, weigh
from reticent.data.labels import as_binary_labels
from reticent.data.points import Array, Labels, as_array, as_rows, as_weights
from reticent.errors import OutOfReach
from reticent.exact import integer

C = TypeVar("C", bound=Hashable)

MOST_LABELLINGS = 1 << 24  # the most that are listed, by a class that has more labellings than points
MOST_SCORES = 1 << 32  # the most labellings that are scored at once
MOST_LABELS = 1 << 29  # the most labels, of all points in all labellings, in the table of a class
_BLOCK = 1 << 24  # labels in memory when labellings are scored one by one


class Dichotomy(NamedTuple, Generic[C]):
    """One labelling of the points, and a concept that gives it.

    Attributes
    ----------
    labels : array
        The labels of the points.
    concept : object
        The concept.
    """

    labels: Labels
    concept: C


class ConceptClass(ABC, Generic[C]):
    """A set of functions from points to the labels 0 and 1.

    Your own class defines its `vc_dimension` and `size`, how its concepts `predict`, and its `dichotomies`. The rest
    follows, and `concepts.check` tests it. The points `X` are one-dimensional for a class of one column, and of shape
    (rows, columns) otherwise.
    """

    @property
    @abstractmethod
    def vc_dimension(self) -> int:
        """The size of the largest set of points that has all labellings; an upper bound if it is not exact."""

    @property
    def vc_dimension_is_exact(self) -> bool:
        """Whether `vc_dimension` is attained, and not only an upper bound."""
        return True

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The number of concepts; None for infinitely many."""

    @property
    def columns(self) -> int:
        """The number of coordinates of a point."""
        return 1

    @abstractmethod
    def predict(self, concept: C, X: ArrayLike) -> Labels:
        """Return the labels that a concept gives to points.

        Parameters
        ----------
        concept : object
            A concept of this class.
        X : array_like
            The points, one per row.

        Returns
        -------
        array of int64
            A label, 0 or 1, per row.
        """

    @abstractmethod
    def dichotomies(self, X: ArrayLike) -> Dichotomies[C]:
        """Return every labelling of the rows of `X` by some concept, each once, with a representative concept.

        Labellings, representatives and their order depend only on the *set* of points in `X`: not on the order of the
        rows, nor on repetitions. Proofs of privacy depend on this.
        """

    def erm(self, X: ArrayLike, y: ArrayLike) -> C:
        """Return a concept with the fewest errors on labelled rows; of several, that of the first dichotomy.

        Parameters
        ----------
        X : array_like
            The points, one per row.
        y : array_like
            A label, 0 or 1, per row.
        """
        return self.lightest(X, 1 - 2 * as_binary_labels(y, len(as_array(X, "X"))))

    def lightest(self, X: ArrayLike, weights: ArrayLike) -> C:
        """Return a concept that minimises the sum of the weights of the rows that it labels 1; the first of several.

        Parameters
        ----------
        X : array_like
            The points, one per row.
        weights : array_like of int
            A whole number per row.
        """
        dichotomies = self.dichotomies(X)
        return dichotomies.concept(int(np.argmin(dichotomies.sums(weights))))

    def disagreement(self, a: C, b: C, X: ArrayLike) -> int:
        """Return the number of rows of `X` that two concepts label differently."""
        return int(np.count_nonzero(self.predict(a, X) != self.predict(b, X)))

    def concepts(self) -> Iterator[C]:
        """Iterate over all concepts of a finite class."""
        raise NotImplementedError(f"{type(self).__name__} does not list its concepts")

    def accepts(self, points: Array, *, example: Array) -> bool:
        """Return whether the class can label all of the points.

        Parameters
        ----------
        points : array
            The points.
        example : array
            A point of the same type that the class can label.
        """
        try:
            self.predict(self.dichotomies(example).concept(0), points)
        except (TypeError, ValueError, OverflowError):
            return False
        return True

    # ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def most_labellings(self) -> int:
        """The most labellings of some points that can be listed and scored."""
        return MOST_LABELLINGS

    def labellings(self, points: int) -> int:
        """Return the most labellings that this number of points can have. It is public."""
        most = sauer(self.vc_dimension, points)
        return most if self.size is None else min(most, self.size)

    def labels_kept(self, points: int) -> int:
        """Return the most labels that the dichotomies of this number of points keep; 0 if there is no table."""
        return 0

    @property
    def counts_concepts(self) -> bool:
        """Whether dichotomies count the concepts of a finite class that have each labelling."""
        return self.size is not None and self.dichotomies(self.example_points()[:1]).multiplicities is not None

    def check_points(self, points: int, *, what: str = "points", remedy: str = "take fewer points") -> None:
        """Raise `OutOfReach` if this number of points may have more labellings than can be listed and scored.

        Learners call this before they read a row, and so do planners. It depends on public numbers alone: the actual
        number of labellings of private points would reveal something about them.

        Parameters
        ----------
        points : int
            The number of points.
        what : str, default "points"
            What the points are, for the message.
        remedy : str, default "take fewer points"
            What to do instead, for the message.
        """
        self._check_labellings(points, self.labellings(points), what, remedy)

    def check_public(self, X: ArrayLike, *, what: str = "points", remedy: str = "take fewer points") -> None:
        """Raise `OutOfReach` as `check_points` does, for public points, of which only distinct ones count."""
        points = distinct(as_array(X, "X"))
        self._check_labellings(len(points), self._labellings_of(points), what, remedy)

    def check_erm(self, points: int, *, what: str = "points", remedy: str = "take fewer points") -> None:
        """Raise `OutOfReach` as `check_points` does, if `erm` and `lightest` list labellings; other classes have no
        limit.
        """
        self.check_points(points, what=what, remedy=remedy)

    def _labellings_of(self, points: Array) -> int:
        return self.labellings(len(points))

    def _check_labellings(self, points: int, labellings: int, what: str, remedy: str) -> None:
        kept, named = self.labels_kept(points), f"{type(self).__name__} may label {points:,} {what} in"
        if labellings > self.most_labellings:
            most = self.most_labellings.bit_length() - 1
            raise OutOfReach(f"{named} {about(labellings)} ways, and can list at most 2^{most} of them: {remedy}")
        if kept > MOST_LABELS:
            most = MOST_LABELS.bit_length() - 1
            raise OutOfReach(f"{named} ways of {about(kept)} labels in all, and can hold at most 2^{most}: {remedy}")

    @property
    def declares_domain(self) -> bool:
        """Whether the class knows its domain; if not, the type of the points determines it."""
        return True

    def example_points(self) -> Array:
        """Return a few points, some of them shattered, on which `concepts.check` tests the class."""
        if self.columns == 1:
            return np.arange(6)
        steps = np.eye(self.columns, dtype=np.int64)
        origin = np.zeros((1, self.columns), dtype=np.int64)
        return np.concatenate([1 + steps, 1 - steps, origin, 1 + origin])  # the neighbours of (1, …, 1), two more


class Dichotomies(ABC, Generic[C]):
    """The labellings of some points by a class: counted, indexed, and scored all at once.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    X : array_like
        The points, of which a copy is kept.

    Examples
    --------
    >>> from reticent.concepts import Thresholds
    >>> dichotomies = Thresholds(bits=8).dichotomies([10, 20, 20])
    >>> len(dichotomies), dichotomies[1]
    (3, Dichotomy(labels=array([1, 0, 0]), concept=Threshold(at=20, sign='<')))
    >>> dichotomies.errors([1, 1, 0])
    array([2, 1, 1])
    """

    def __init__(self, concept_class: ConceptClass[C], X: ArrayLike) -> None:
        self.concept_class = concept_class
        self.points = np.array(as_array(X, "X"))  # a copy: the caller may reuse X
        self.points.flags.writeable = False

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of labellings: `len`, also for numbers that `len` cannot return."""

    @abstractmethod
    def _concept(self, index: int) -> C:
        """The representative of the labelling at an index in [0, count)."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Dichotomy[C]]:
        return (self[index] for index in range(self.count))

    def __getitem__(self, index: int) -> Dichotomy[C]:
        return Dichotomy(self.labels(index), self.concept(index))

    def concept(self, index: int) -> C:
        """Return the representative of a labelling. It depends on the set of points alone."""
        return self._concept(self._index(index))

    def labels(self, index: int) -> Labels:
        """Return the labels of the rows in a labelling."""
        return self.concept_class.predict(self.concept(index), self.points)

    def errors(self, y: ArrayLike, *, at: ArrayLike | None = None) -> Array:
        """Count the errors of every dichotomy.

        Parameters
        ----------
        y : array_like
            A label, 0 or 1, per row.
        at : array_like or None, default None
            The rows on which the representatives are scored; None for the points themselves.

        Returns
        -------
        array of int
            The number of rows, for each dichotomy, whose label is not that of `y`.
        """
        rows = self.rows_at(at)
        labels = as_binary_labels(y, len(self.points) if rows is None else len(rows))
        errors = self._all_sums(1 - 2 * labels, rows)
        errors += labels.sum()
        return errors

    def sums(self, weights: ArrayLike, *, at: ArrayLike | None = None) -> Array:
        """Return, for every dichotomy, the exact sum of the weights of the rows that are labelled 1.

        Parameters
        ----------
        weights : array_like of int
            A whole number per row.
        at : array_like or None, default None
            The rows on which the representatives are scored; None for the points themselves.
        """
        rows = self.rows_at(at)
        return self._all_sums(as_weights(weights, len(self.points) if rows is None else len(rows)), rows)

    def least_errors(self, y: ArrayLike, *, at: ArrayLike) -> Array:
        """Return, for every dichotomy, the fewest errors on the rows `at` by *any* concept with that labelling.

        `errors(y, at=at)` scores one representative of each labelling; this takes the best of all.

        Parameters
        ----------
        y : array_like
            A label, 0 or 1, per row of `at`.
        at : array_like
            The rows on which concepts are scored.
        """
        rows = self.rows_at(at)
        assert rows is not None
        return self._least_errors(as_binary_labels(y, len(rows)), rows)

    @property
    def multiplicities(self) -> Array | None:
        """The number of concepts of a finite class that have each labelling; None if it is not known.

        They sum to the size of the class. With them, to draw from the whole class by a score that depends on the
        labelling, one draws a dichotomy and then one of its concepts.
        """
        return None

    def member(self, index: int, number: int) -> C:
        """Return one of the `multiplicities[index]` concepts with a labelling.

        Parameters
        ----------
        index : int
            The index of the labelling.
        number : int
            The number of the concept, counted from 0.
        """
        raise NotImplementedError(f"the concepts of {type(self.concept_class).__name__} are not numbered")

    # ── what a class may override ─────────────────────────────────────────────────────────────────────────────────

    def rows_at(self, at: ArrayLike | None) -> Array | None:
        """Other points `at` in the form that `_table` reads; None for the points themselves."""
        return None if at is None else as_array(at, "at")

    def _sums(self, weights: Array, at: Array | None) -> Array:
        """`sums` for checked weights, on the points themselves or on the rows `at`."""
        return np.concatenate([weigh(self._table(*block, at), weights) for block in self._blocks(len(weights))])

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        """The labels by the concepts start … stop − 1, one concept per row, as booleans."""
        rows = self.points if at is None else at
        return np.array([self.concept_class.predict(self.concept(i), rows) for i in range(start, stop)], dtype=bool)

    def _least_errors(self, labels: Labels, at: Array) -> Array:
        """Go through the labellings of all points together, grouped by those of the first points."""
        own = len(self.points)
        together = self.concept_class.dichotomies(joined(self.points, at))
        errors = labels.sum() + together._sums(np.append(np.zeros(own, dtype=np.int64), 1 - 2 * labels), None)
        index_of = {key: index for index, key in enumerate(self._keys(own))}
        least = np.full(self.count, len(labels))
        np.minimum.at(least, [index_of[key] for key in together._keys(own)], errors)
        return least

    def _keys(self, rows: int) -> Iterator[bytes]:
        """The labellings of the first rows, packed."""
        for block in self._blocks(len(self.points)):
            yield from packed_rows(self._table(*block, None)[:, :rows])

    def _blocks(self, rows: int) -> list[tuple[int, int]]:
        step = max(1, _BLOCK // max(1, rows))
        return [(start, min(start + step, self.count)) for start in range(0, self.count, step)]

    def _all_sums(self, weights: Array, at: Array | None) -> Array:
        if self.count > MOST_SCORES:
            raise OutOfReach("there are more than 2^32 labellings, too many to score one by one; use erm")
        return self._sums(weights, at)

    def _index(self, index: int) -> int:
        number = integer(index, "index")
        if not -self.count <= number < self.count:
            # The message does not contain the length, which depends on the data.
            raise IndexError(f"index must be in [0, len(dichotomies)), got {number}")
        return number % self.count

    def _number(self, number: int, multiplicity: int) -> int:
        number = integer(number, "number")
        if not 0 <= number < multiplicity:
            raise IndexError(f"number must be in [0, multiplicities[index]), got {number}")
        return number


class ColumnDichotomies(Dichotomies[C]):
    """Dichotomies of points that must have the columns of the class.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    X : array_like
        The points.
    """

    def __init__(self, concept_class: ConceptClass[C], X: ArrayLike) -> None:
        super().__init__(concept_class, as_rows(X, concept_class.columns))

    def rows_at(self, at: ArrayLike | None) -> Array | None:
        """Other points `at` in the form that `_table` reads; None for the points themselves."""
        return None if at is None else as_rows(at, self.concept_class.columns, "at")


class Listed(Dichotomies[C]):
    """The dichotomies of a list of concepts; where several agree on all points, the first represents them.

    This is the simplest implementation of `dichotomies` for your own class: list concepts, chosen by the points alone,
    among which every labelling occurs.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    X : array_like
        The points.
    concepts : iterable
        The concepts.
    """

    def __init__(self, concept_class: ConceptClass[C], X: ArrayLike, concepts: Iterable[C]) -> None:
        super().__init__(concept_class, X)
        self._kept: dict[bytes, C] = {}
        for concept in concepts:
            labels = np.asarray(concept_class.predict(concept, self.points))
            self._kept.setdefault(packed_rows(labels.astype(bool)[None])[0], concept)
        self._concepts = list(self._kept.values())

    @property
    def count(self) -> int:
        """The number of concepts that differ on the points."""
        return len(self._concepts)

    def _concept(self, index: int) -> C:
        return self._concepts[index]


def check_concept(concept: Any, kind: type) -> None:
    """Raise a TypeError for a concept of another class."""
    if not isinstance(concept, kind):
        raise TypeError(f"concept must be of type {kind.__name__}, got {type(concept).__name__}")
