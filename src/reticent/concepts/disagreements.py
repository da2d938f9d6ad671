"""Where two concepts of a class differ: C⊕C."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.interface import ConceptClass, Dichotomies, check_concept, sauer
from reticent.concepts.values import Concept
from reticent.data.points import Array, Labels, as_rows, zeros_and_ones
from reticent.errors import OutOfReach

MOST_PAIRS = 1 << 22  # of labellings that are compared


@dataclass(frozen=True, repr=False)
class Disagreement(Concept):
    """The label 1 where two concepts give different labels."""

    first: Hashable
    second: Hashable


@dataclass(frozen=True)
class Disagreements(ConceptClass[Disagreement]):
    """C⊕C: for every two concepts of a class, the points to which they give different labels.

    A copy of some rows on which all of these have nearly their share preserves *errors*: how often each concept differs
    from any other. All pairs of labellings are listed, so this is for classes that label the points in few ways.

    With τ labellings of n points there are at most τ(τ − 1)/2 + 1 of C⊕C; the VC dimension is bounded by the last n for
    which this can be 2^n. The labellings stand in the order of the pairs, that of no difference first.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Definition 3.1 and
    Observation 3.2, with the bound itself in place of 10·VC(C).

    >>> from reticent.concepts import Thresholds
    >>> differences = Disagreements(Thresholds(bits=8))
    >>> differences.vc_dimension, len(differences.dichotomies([1, 2, 3]))
    (2, 7)
    """

    concept_class: ConceptClass[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.concept_class, ConceptClass):
            raise TypeError(f"concept_class must be a ConceptClass, got {type(self.concept_class).__name__}")

    @property
    def vc_dimension(self) -> int:
        """The largest number of points whose labellings Sauer's lemma does not show to be too few."""
        own = bound = self.concept_class.vc_dimension
        while _pairs(sauer(own, bound + 1)) >= 2 ** (bound + 1):
            bound += 1
        return bound

    @property
    def vc_dimension_is_exact(self) -> bool:
        """False: it is a bound."""
        return False

    @property
    def size(self) -> int | None:
        """One for every two concepts, and the empty one; those that agree everywhere are counted apart."""
        size = self.concept_class.size
        return None if size is None else _pairs(size)

    @property
    def columns(self) -> int:
        """Those of the class."""
        return self.concept_class.columns

    def predict(self, concept: Disagreement, X: ArrayLike) -> Labels:
        """1 where the two concepts differ."""
        check_concept(concept, Disagreement)
        first, second = (self.concept_class.predict(part, X) for part in (concept.first, concept.second))
        return zeros_and_ones(first != second)

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Disagreement]:
        """The differences of all pairs of labellings, each once."""
        return _Differences(self, X)

    @property
    def most_labellings(self) -> int:
        """All pairs are compared."""
        return MOST_PAIRS

    def labellings(self, points: int) -> int:
        """One for every two labellings of the class, and the empty one."""
        return _pairs(self.concept_class.labellings(points))

    def labels_kept(self, points: int) -> int:
        """Those of all pairs, before equal ones are found."""
        return points * self.labellings(points)

    def concepts(self) -> Iterator[Disagreement]:
        """The empty one, then every pair of concepts of a finite class."""
        first = next(self.concept_class.concepts())
        yield Disagreement(first, first)
        yield from itertools.starmap(Disagreement, itertools.combinations(self.concept_class.concepts(), 2))

    def example_points(self) -> Array:
        """Those of the class."""
        return self.concept_class.example_points()


class _Differences(Dichotomies[Disagreement]):
    concept_class: Disagreements

    def __init__(self, concept_class: Disagreements, X: ArrayLike) -> None:
        super().__init__(concept_class, as_rows(X, concept_class.columns))
        self._own = concept_class.concept_class.dichotomies(self.points)
        if _pairs(self._own.count) > MOST_PAIRS:
            raise OutOfReach("X has too many labellings, more than 2^22 pairs of them; take fewer points")
        table = self._own._table(0, self._own.count, None)
        firsts, seconds = (np.append(0, side) for side in np.triu_indices(len(table), 1))
        _, kept = np.unique(np.packbits(table[firsts] ^ table[seconds], axis=1), axis=0, return_index=True)
        self._firsts, self._seconds = firsts[np.sort(kept)], seconds[np.sort(kept)]

    @property
    def count(self) -> int:
        """How many differences there are."""
        return len(self._firsts)

    def _concept(self, index: int) -> Disagreement:
        return Disagreement(*(self._own.concept(int(side[index])) for side in (self._firsts, self._seconds)))

    def _rows(self, at: ArrayLike | None) -> Array | None:
        return None if at is None else as_rows(at, self.concept_class.columns, "at")

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        table = self._own._table(0, self._own.count, self._own._rows(at))
        return np.asarray(table[self._firsts[start:stop]] ^ table[self._seconds[start:stop]])


def _pairs(number: int) -> int:
    """How many differences so many labellings can have."""
    return number * (number - 1) // 2 + 1
