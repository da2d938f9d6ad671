"""A test of any concept class by brute force on small sets of points."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.interface import C, ConceptClass, Dichotomies
from reticent.concepts.labellings import sauer
from reticent.data.points import Array, as_array

Labelling = tuple[int, ...]

_CONCEPTS = 5000  # the most concepts of a finite class that are compared with the dichotomies
_POINTS = 12  # the most points, of which all small subsets are tried
_MINIMISED = 32  # sets of points on which erm is tried, each with many labels


class CheckFailed(AssertionError):
    """A class violates its interface; the message contains a counterexample."""


class Checked(NamedTuple):
    """What a check went through.

    Attributes
    ----------
    point_sets, labellings, erm_runs : int
        The numbers of sets of points, of their labellings, and of calls of `erm`.
    """

    point_sets: int
    labellings: int
    erm_runs: int


def check(concept_class: ConceptClass[C], points: ArrayLike | None = None, *, concepts: Iterable[C] = ()) -> Checked:
    """Test a class by brute force, and raise `CheckFailed` with a counterexample if it violates its interface.

    On every set of the points (up to the VC dimension and one more) it checks that

    - `predict` gives one 0 or 1 per row, the same each time, by the row alone, and does not change `X`;
    - `dichotomies` gives each labelling once, with a representative that has it; that no labelling is missing which
      a concept, a representative for other points, or `erm` has; that labellings of more points, restricted to
      fewer, are exactly the labellings of the fewer; that neither the order of the rows nor their repetition matters;
    - there are no more labellings than Sauer's lemma or the size of the class allow;
    - some set as large as `vc_dimension` is shattered, and none that is larger;
    - `errors` counts the errors, and `erm` makes as few as the best dichotomy, for all labels of small sets;
    - `disagreement` counts the rows on which two concepts differ, and `multiplicities` sum to `size`.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    points : array_like or None, default None
        Up to 12 points on which to test it, among them a shattered set as large as the VC dimension. They are public,
        as messages show them. None takes the class's `example_points`.
    concepts : iterable, default ()
        Some concepts of an infinite class; those of a finite class are taken from its own `concepts`, if it has that.

    Returns
    -------
    Checked
        What was tested.

    Examples
    --------
    >>> from reticent.concepts import Thresholds
    >>> check(Thresholds(bits=4))
    Checked(point_sets=22, labellings=64, erm_runs=135)
    """
    return _Check(concept_class, points, concepts).run()


class _Check:
    def __init__(self, concept_class: ConceptClass[Any], points: ArrayLike | None, concepts: Iterable[Any]) -> None:
        self.cls = concept_class
        given = as_array(concept_class.example_points() if points is None else points, "points")
        keys = [_key(point) for point in given]
        self.points = given[[keys.index(key) for key in dict.fromkeys(keys)]]
        if not 1 <= len(self.points) <= _POINTS:
            raise ValueError(f"points must hold 1 to {_POINTS} distinct points, got {len(self.points)}")
        self.concepts = [*concepts, *self._own_concepts()]
        self.vc = concept_class.vc_dimension
        self.labellings: dict[tuple[int, ...], dict[Labelling, Any]] = {}
        self.erm_runs = 0

    def _own_concepts(self) -> list[Any]:
        if self.cls.size is None or self.cls.size > _CONCEPTS:
            return []
        try:
            listed = list(self.cls.concepts())
        except NotImplementedError:
            return []
        if len(listed) != self.cls.size:
            raise CheckFailed(f"size is {self.cls.size}, but concepts() lists {len(listed)}")
        return listed

    def run(self) -> Checked:
        whole = tuple(range(len(self.points)))
        sizes = range(1, min(len(self.points), self.vc + 1) + 1)
        for subset in itertools.chain(*(itertools.combinations(whole, size) for size in sizes), [whole]):
            if subset not in self.labellings:
                self.labellings[subset] = self._dichotomies(subset)
        self._nothing_missing(whole)
        self._shattered()
        subsets = list(self.labellings)
        repeated = (0, *whole)  # one point occurs twice
        for subset in (*subsets[:: len(subsets) // _MINIMISED + 1], whole, repeated):
            self._minimisers(subset)
        self._pairs(whole)
        return Checked(len(self.labellings), sum(map(len, self.labellings.values())), self.erm_runs)

    # ── predictions ───────────────────────────────────────────────────────────────────────────────────────────────

    def _labels(self, concept: Any, rows: tuple[int, ...]) -> Labelling:
        return tuple(int(label) for label in self.cls.predict(concept, self.points[list(rows)]))

    def _pure(self, concept: Any) -> Labelling:
        X = self.points.copy()
        before = X.copy()
        labels = [self.cls.predict(concept, X) for _ in range(2)]
        backwards = self.cls.predict(concept, X[::-1].copy())
        for answer in (*labels, backwards):
            if np.shape(answer) != (len(X),) or not np.isin(answer, (0, 1)).all():
                raise CheckFailed(f"predict must give one label 0 or 1 per row; {concept!r} does not on {_show(X)}")
        if not np.array_equal(X, before):
            raise CheckFailed(f"predict must not change X; {concept!r} changes {_show(before)}")
        if not np.array_equal(labels[0], labels[1]):
            raise CheckFailed(f"predict must give the same labels each time; {concept!r} does not on {_show(X)}")
        if not np.array_equal(labels[0], backwards[::-1]):
            raise CheckFailed(f"predict must label each row by itself; {concept!r} depends on the order of {_show(X)}")
        return tuple(int(label) for label in labels[0])

    # ── dichotomies ───────────────────────────────────────────────────────────────────────────────────────────────

    def _dichotomies(self, subset: tuple[int, ...]) -> dict[Labelling, Any]:
        X = self.points[list(subset)]
        dichotomies = self.cls.dichotomies(X)
        found: dict[Labelling, Any] = {}
        for index in range(len(dichotomies)):
            labels = tuple(int(label) for label in dichotomies.labels(index))
            concept = dichotomies.concept(index)
            hash(concept)
            has = self._labels(concept, subset)
            if has != labels:
                raise CheckFailed(
                    f"representatives must have their labels; for {_show(X)} dichotomy {index} is {list(labels)}, "
                    f"but its concept {concept!r} gives {list(has)}"
                )
            if labels in found:
                raise CheckFailed(f"dichotomies must be distinct; for {_show(X)} {list(labels)} occurs twice")
            found[labels] = concept
        self._counts(X, dichotomies, len(subset))
        # Rows in another order, some of them twice, must give the same concepts in the same order.
        again = self.cls.dichotomies(np.concatenate([X[::-1], X[:1]]))
        if [again.concept(index) for index in range(len(again))] != list(found.values()):
            raise CheckFailed(
                f"representatives must depend on the set of points alone; for {_show(X)} they change when the rows are "
                "reversed and one is repeated"
            )
        return found

    def _counts(self, X: Array, dichotomies: Dichotomies[Any], points: int) -> None:
        size, count = self.cls.size, len(dichotomies)
        if count > sauer(self.vc, points):
            raise CheckFailed(
                f"Sauer's lemma allows {sauer(self.vc, points)} labellings of {points} points for vc_dimension "
                f"{self.vc}, but {_show(X)} has {count}"
            )
        if size is not None and count > size:
            raise CheckFailed(f"there are {size} concepts, but {count} labellings of {_show(X)}")
        multiplicities = dichotomies.multiplicities
        if multiplicities is None:
            return
        if len(multiplicities) != count or sum(multiplicities.tolist()) != size:
            raise CheckFailed(f"multiplicities must sum up to the size {size}; for {_show(X)} they do not")
        for index, number in itertools.product(range(count), (0, -1)):
            member = dichotomies.member(index, number % multiplicities.tolist()[index])
            if not np.array_equal(self.cls.predict(member, X), dichotomies.labels(index)):
                raise CheckFailed(f"members must have the labels of their dichotomy; for {_show(X)} {member!r} has not")

    def _nothing_missing(self, whole: tuple[int, ...]) -> None:
        tried = dict.fromkeys(concept for found in self.labellings.values() for concept in found.values())
        on_all: dict[Labelling, Any] = {}
        for concept in (*tried, *self.concepts):
            on_all.setdefault(self._pure(concept), concept)
        for subset, found in self.labellings.items():
            indices = [whole.index(point) for point in subset]
            for whole_labels, concept in on_all.items():
                if (labels := tuple(whole_labels[i] for i in indices)) not in found:
                    raise CheckFailed(
                        f"dichotomies must not miss any; for {_show(self.points[list(subset)])} {list(labels)} is "
                        f"missing, which {concept!r} has"
                    )

    # ── VC dimension ──────────────────────────────────────────────────────────────────────────────────────────────

    def _shattered(self) -> None:
        sizes = {len(subset): subset for subset, found in self.labellings.items() if len(found) == 2 ** len(subset)}
        largest = max(sizes, default=0)
        if largest > self.vc:
            X = self.points[list(sizes[largest])]
            raise CheckFailed(f"vc_dimension is {self.vc}, but {_show(X)} has all {2**largest} labellings")
        if largest < self.vc and self.cls.vc_dimension_is_exact:
            raise CheckFailed(
                f"vc_dimension is {self.vc}, but no {self.vc} of the points {_show(self.points)} have all labellings; "
                "pass points that do, or correct it"
            )

    # ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _minimisers(self, rows: tuple[int, ...]) -> None:
        X = self.points[list(rows)]
        dichotomies = self.cls.dichotomies(X)
        table = np.array([dichotomies.labels(index) for index in range(len(dichotomies))])
        for y in _labels_to_try(len(rows)):
            errors = (table != y).sum(axis=1)
            if not np.array_equal(dichotomies.errors(y), errors):
                raise CheckFailed(f"errors must count the errors; for {_show(X)} with labels {y.tolist()} it does not")
            concept = self.cls.erm(X, y)
            made = int((np.array(self._labels(concept, rows)) != y).sum())
            if made != errors.min():
                raise CheckFailed(
                    f"erm must make the fewest errors; for {_show(X)} with labels {y.tolist()} {concept!r} makes "
                    f"{made}, while {dichotomies.concept(int(errors.argmin()))!r} makes {errors.min()}"
                )
            if self.cls.erm(X, y) != concept:
                raise CheckFailed(f"erm must give the same concept each time; for {_show(X)}, {y.tolist()} it does not")
            self.erm_runs += 1

    def _pairs(self, whole: tuple[int, ...]) -> None:
        listed = list(self.labellings[whole].items())[:20]
        for (ours, a), (theirs, b) in itertools.product(listed, repeat=2):
            differ = sum(mine != other for mine, other in zip(ours, theirs, strict=True))
            if self.cls.disagreement(a, b, self.points) != differ:
                raise CheckFailed(f"disagreement of {a!r} and {b!r} on {_show(self.points)} must be {differ}")


def _labels_to_try(rows: int) -> Iterator[Array]:
    """All labels of up to four rows, and 19 evenly spaced ones of more."""
    step = 1 if rows <= 4 else 2**rows // 19 | 1
    return (np.array([number >> row & 1 for row in range(rows)]) for number in range(0, 2**rows, step))


def _key(point: Any) -> Any:
    return tuple(np.atleast_1d(point).tolist())


def _show(X: Array) -> str:
    return f"the points {X.tolist()}"
