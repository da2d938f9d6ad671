"""`check` passes the classes of the package and fails their broken twins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from reticent.concepts import (
    CheckFailed,
    Concept,
    ConceptClass,
    Datetimes,
    Dichotomies,
    Finite,
    Floats,
    Halfspaces,
    Intervals,
    KPoints,
    Listed,
    Points,
    Products,
    Rectangles,
    Stumps,
    Threshold,
    Thresholds,
    Unions,
    check,
)
from reticent.data.points import Array, Labels

SHIPPED: list[ConceptClass[Any]] = [
    Thresholds(),
    Thresholds(bits=1),
    Thresholds(bits=64),
    Thresholds(bits=3, both_orientations=True),
    Thresholds(domain=Floats(32), both_orientations=True),
    Thresholds(domain=Datetimes("D")),
    Points(bits=2),
    Points(),
    KPoints(2, bits=2),
    KPoints(3, bits=2),
    KPoints(2, bits=5),
    KPoints(3),
    Intervals(),
    Intervals(bits=3),
    Rectangles(1, bits=1),
    Rectangles(2, bits=1),
    Rectangles(2, bits=2),
    Rectangles(2, domain=Floats()),
    Stumps(1),
    Stumps(2),
    Stumps(3, bits=1),
    Stumps(3),
    Stumps(4, bits=3),
    Stumps(5, bits=2),  # fewer values than the bound on the VC dimension
    Halfspaces(1),
    Halfspaces(2),
    Finite([[0, 0, 1], [0, 1, 1], [1, 1, 1]]),
    Finite([lambda x: x > 2, lambda x: x < 1, lambda x: x == 1]),
    Products([Thresholds(), Thresholds()], vc_dimension=2),
    Products([Thresholds(bits=2), Points(bits=2)]),
    Unions([Thresholds(), Intervals()]),
    Unions([Thresholds(bits=3), Intervals(bits=3)], vc_dimension=2),
]


@pytest.mark.slow
@pytest.mark.parametrize("concept_class", SHIPPED, ids=repr)
def test_every_class_passes(concept_class: ConceptClass[Any]) -> None:
    assert check(concept_class).erm_runs > 10


@pytest.mark.parametrize("concept_class", [Rectangles(3), Halfspaces(3), Stumps(5)], ids=repr)
@pytest.mark.slow
def test_larger_classes_pass(concept_class: ConceptClass[Any]) -> None:
    assert check(concept_class).point_sets > 30


def test_points_of_any_kind() -> None:
    check(Thresholds(), [0.5, -3.25, 1e300, 5e-324])
    check(Thresholds(), np.array(["2024-01-01", "1960-01-01"], dtype="datetime64[D]"))
    check(Intervals(), [2**100, -(2**100), 0, 2**100])
    check(Halfspaces(2), [[0.1, 0.2], [0.1, 0.7], [1e10, 3.0], [2.0, 2.0]])


# ── a class of one's own, and what can go wrong with it ───────────────────────────────────────────────────────────


@dataclass(frozen=True, repr=False)
class Residue(Concept):
    modulus: int
    residue: int


class Residues(ConceptClass[Residue]):
    """x ≡ residue modulo 2 or 3, or no x at all (modulus 0): as one would write it by the guide."""

    all = tuple(Residue(m, r) for m, r in [(0, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])

    @property
    def vc_dimension(self) -> int:
        return 2

    @property
    def size(self) -> int | None:
        return 6

    def predict(self, concept: Residue, X: ArrayLike) -> Labels:
        x = np.asarray(X)
        return np.where((concept.modulus > 0) & (x % max(concept.modulus, 1) == concept.residue), 1, 0)

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        return Listed(self, X, self.all)

    def concepts(self) -> Iterator[Residue]:
        return iter(self.all)


def test_a_class_of_ones_own_passes() -> None:
    assert check(Residues()).labellings > 30
    assert check(Residues(), [4, 9, 7, 12, 5]).point_sets == 26


class OneMissing(Residues):
    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        return Listed(self, X, [concept for concept in self.all if concept != Residue(3, 1)])


class OneMissingAtErm(OneMissing):
    """The missing concept is only ever seen as an answer of erm."""

    def concepts(self) -> Iterator[Residue]:
        raise NotImplementedError

    def erm(self, X: ArrayLike, y: ArrayLike) -> Residue:
        return min(self.all, key=lambda concept: int((self.predict(concept, X) != np.asarray(y)).sum()))


class Doubled(Residues):
    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        listed = Listed(self, X, self.all)
        listed._concepts.append(listed._concepts[0])
        return listed


class WrongRepresentative(Residues):
    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        class Swapped(Listed[Residue]):
            def labels(self, index: int) -> Labels:
                return super().labels(self.count - 1 - index)

        return Swapped(self, X, self.all)


class MindsTheOrder(Residues):
    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        ascending = len(np.asarray(X)) and np.asarray(X)[0] <= np.asarray(X)[-1]
        return Listed(self, X, self.all if ascending else self.all[::-1])


class PoorMinimiser(Residues):
    def erm(self, X: ArrayLike, y: ArrayLike) -> Residue:
        return min(self.all[:4], key=lambda concept: int((self.predict(concept, X) != np.asarray(y)).sum()))


class FickleMinimiser(Residues):
    turn = 0

    def erm(self, X: ArrayLike, y: ArrayLike) -> Residue:
        dichotomies = self.dichotomies(X)
        errors = dichotomies.errors(y)
        self.turn += 1
        best = np.flatnonzero(errors == errors.min())
        return dichotomies.concept(int(best[self.turn % len(best)]))


class SmallVC(Residues):
    vc_dimension = 1


class LargeVC(Residues):
    vc_dimension = 3


class WrongSize(Residues):
    size = 7


class TooFew(Residues):
    size = 3

    def concepts(self) -> Iterator[Residue]:
        raise NotImplementedError


class Scribbles(Residues):
    def predict(self, concept: Residue, X: ArrayLike) -> Labels:
        labels = super().predict(concept, X)
        if isinstance(X, np.ndarray) and X.flags.writeable:
            X += 6
        return labels


class Forgetful(Residues):
    calls = 0

    def predict(self, concept: Residue, X: ArrayLike) -> Labels:
        self.calls += 1
        return super().predict(concept, X) ^ int(self.calls % 97 == 0)


class LooksAround(Residues):
    def predict(self, concept: Residue, X: ArrayLike) -> Labels:
        return super().predict(concept, np.asarray(X) + (np.asarray(X)[:1] == 0))


class NoLabels(Residues):
    def predict(self, concept: Residue, X: ArrayLike) -> Labels:
        return 2 * super().predict(concept, X) - 1


class Miscounts(Residues):
    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        class Off(Listed[Residue]):
            def errors(self, y: ArrayLike, *, at: ArrayLike | None = None) -> Array:
                return super().errors(y, at=at) // 2

        return Off(self, X, self.all)


class Disagreeable(Residues):
    def disagreement(self, a: Residue, b: Residue, X: ArrayLike) -> int:
        return min(2, super().disagreement(a, b, X))


class Multiplied(Residues):
    def dichotomies(self, X: ArrayLike) -> Dichotomies[Residue]:
        class Counted(Listed[Residue]):
            @property
            def multiplicities(self) -> Array:
                return np.ones(self.count, dtype=np.int64)

        return Counted(self, X, self.all)


TWINS = [
    (OneMissing, "must not miss any"),
    (OneMissingAtErm, "must make the fewest errors|must not miss any"),
    (Doubled, "must be distinct"),
    (WrongRepresentative, "representatives must have their labels"),
    (MindsTheOrder, "set of points alone"),
    (PoorMinimiser, "must make the fewest errors"),
    (FickleMinimiser, "must give the same concept each time"),
    (SmallVC, "Sauer's lemma|has all"),
    (LargeVC, "vc_dimension is 3, but no 3 of"),
    (WrongSize, "size is 7, but concepts"),
    (TooFew, "there are 3 concepts"),
    (Scribbles, "must not change X"),
    (Forgetful, "the same labels each time|have their labels|must be distinct|set of points alone"),
    (LooksAround, "by itself|set of points alone"),
    (NoLabels, "one label 0 or 1"),
    (Miscounts, "errors must count"),
    (Disagreeable, "disagreement of"),
    (Multiplied, "sum up to the size"),
]


@pytest.mark.parametrize(("twin", "message"), TWINS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_twin_fails(twin: type[Residues], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check(twin())


def test_the_counter_example_is_shown() -> None:
    with pytest.raises(CheckFailed) as failure:
        check(OneMissing(), [4, 9, 7])
    assert "for the points [4, 7] [1, 1] is missing, which Residue(modulus=3, residue=1) has" in str(failure.value)


# ── broken twins of shipped classes ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class WithoutTop(Thresholds):
    """Forgets the threshold above all points."""

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Threshold]:
        whole = super().dichotomies(X)
        return Listed(self, X, [whole.concept(i) for i in range(max(1, len(whole) - 1))])


@dataclass(frozen=True)
class OffByOne(Thresholds):
    """x ≤ at instead of x < at in predictions alone."""

    def predict(self, concept: Threshold, X: ArrayLike) -> Labels:
        assert isinstance(concept.at, int)
        return super().predict(Threshold(concept.at + 1), X)


@dataclass(frozen=True)
class GreedyRectangles(Rectangles):
    """Takes the bounding box of the ones, which is best only if no zero lies in it."""

    def erm(self, X: ArrayLike, y: ArrayLike) -> Any:
        ones = np.asarray(X)[np.asarray(y) == 1]
        return super().erm(ones, [1] * len(ones)) if len(ones) else super().erm(X, y)


@dataclass(frozen=True)
class SteepHalfspaces(Halfspaces):
    """Forgets the lines between points of equal first coordinates."""

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Any]:
        whole = super().dichotomies(X)
        concepts = [whole.concept(i) for i in range(len(whole))]
        return Listed(self, X, [concept for concept in concepts if concept.normal[0] or not any(concept.normal)])


@pytest.mark.parametrize(
    "twin", [WithoutTop(bits=4), OffByOne(bits=4), GreedyRectangles(2), SteepHalfspaces(2)], ids=repr
)
def test_broken_twins_of_shipped_classes_fail(twin: ConceptClass[Any]) -> None:
    with pytest.raises(CheckFailed):
        check(twin)


def test_what_check_refuses() -> None:
    with pytest.raises(ValueError, match="1 to 12 distinct points, got 13"):
        check(Thresholds(), np.arange(13))
    with pytest.raises(ValueError, match="got 0"):
        check(Thresholds(), [])
