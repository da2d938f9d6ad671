"""Where two concepts of a class differ: C⊕C."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.interface import ColumnDichotomies, ConceptClass, Dichotomies, check_concept
from reticent.concepts.labellings import most_shattered, sauer
from reticent.concepts.values import Concept
from reticent.data.points import Array, Labels, zeros_and_ones
from reticent.errors import OutOfReach

MOST_PAIRS = 1 << 22  # the most pairs of labellings that are compared


@dataclass(frozen=True, repr=False)
class Disagreement(Concept):
    """The label 1 where two concepts give different labels.

    Parameters
    ----------
    first, second : object
        The concepts.
    """

    first: Hashable
    second: Hashable


@dataclass(frozen=True)
class Disagreements(ConceptClass[Disagreement]):
    """C⊕C: for every two concepts of a class, the points to which they give different labels.

    A copy of some rows that nearly preserves the share of each of these sets preserves *errors*: how often each concept
    differs from any other. All pairs of labellings are listed, so this is for classes with few labellings.

    With τ labellings of n points there are at most τ(τ − 1)/2 + 1 of C⊕C; the VC dimension is bounded by the last n for
    which this can be 2^n. Labellings are in the order of the pairs, starting with that of no difference.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Definition 3.1 and
    Observation 3.2, with the bound itself in place of 10·VC(C).

    Parameters
    ----------
    concept_class : ConceptClass
        The class C.

    Examples
    --------
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
        """The largest number of points that Sauer's lemma allows to be shattered."""
        own = self.concept_class.vc_dimension
        return most_shattered(lambda points: _pairs(sauer(own, points)), start=own)

    @property
    def vc_dimension_is_exact(self) -> bool:
        """False: it is a bound."""
        return False

    @property
    def size(self) -> int | None:
        """One for every two concepts, and the empty one; those that agree everywhere are counted separately."""
        size = self.concept_class.size
        return None if size is None else _pairs(size)

    @property
    def columns(self) -> int:
        """The columns of the class."""
        return self.concept_class.columns

    def predict(self, concept: Disagreement, X: ArrayLike) -> Labels:
        """Return 1 where the two concepts differ."""
        check_concept(concept, Disagreement)
        first, second = (self.concept_class.predict(part, X) for part in (concept.first, concept.second))
        return zeros_and_ones(first != second)

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Disagreement]:
        """Return the differences of all pairs of labellings, each once."""
        return _Differences(self, X)

    @property
    def most_labellings(self) -> int:
        """The limit on the pairs that are compared."""
        return MOST_PAIRS

    def labellings(self, points: int) -> int:
        """Return one for every two labellings of the class, and the empty one."""
        return _pairs(self.concept_class.labellings(points))

    def labels_kept(self, points: int) -> int:
        """Return those of all pairs, before equal ones are merged."""
        return points * self.labellings(points)

    def concepts(self) -> Iterator[Disagreement]:
        """Iterate over the empty one, then every pair of concepts of a finite class."""
        first = next(self.concept_class.concepts())
        yield Disagreement(first, first)
        yield from itertools.starmap(Disagreement, itertools.combinations(self.concept_class.concepts(), 2))

    def example_points(self) -> Array:
        """Return those of the class."""
        return self.concept_class.example_points()


class _Differences(ColumnDichotomies[Disagreement]):
    concept_class: Disagreements

    def __init__(self, concept_class: Disagreements, X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        self._own = concept_class.concept_class.dichotomies(self.points)
        if _pairs(self._own.count) > MOST_PAIRS:
            raise OutOfReach("X has too many labellings, more than 2^22 pairs of them; take fewer points")
        table = self._own._table(0, self._own.count, None)
        firsts, seconds = (np.append(0, side) for side in np.triu_indices(len(table), 1))
        _, kept = np.unique(np.packbits(table[firsts] ^ table[seconds], axis=1), axis=0, return_index=True)
        self._firsts, self._seconds = firsts[np.sort(kept)], seconds[np.sort(kept)]

    @property
    def count(self) -> int:
        """The number of differences."""
        return len(self._firsts)

    def _concept(self, index: int) -> Disagreement:
        return Disagreement(*(self._own.concept(int(side[index])) for side in (self._firsts, self._seconds)))

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        table = self._own._table(0, self._own.count, self._own.rows_at(at))
        return np.asarray(table[self._firsts[start:stop]] ^ table[self._seconds[start:stop]])


def _pairs(number: int) -> int:
    """The most differences of a number of labellings."""
    return number * (number - 1) // 2 + 1
