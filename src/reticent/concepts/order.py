"""Shared by the classes on ordered domains: declared domains, and points sorted once for cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain, declared, read_ranks
from reticent.concepts.interface import C, ConceptClass, Dichotomies
from reticent.data.points import Array, Labels, as_rows


@lru_cache(maxsize=256)  # plans ask for it again and again
def _size(bits: int | None, domain: Domain | None) -> int | None:
    found = declared(bits, domain)
    return None if found is None else found.size


class Ordered(ConceptClass[C]):
    """A class whose columns hold values of one ordered domain, given by `bits` or `domain`, or by the type of X."""

    bits: int | None
    domain: Domain | None

    def __post_init__(self) -> None:
        declared(self.bits, self.domain)

    @property
    def values(self) -> int | None:
        """The number of values of a column; None for infinitely many."""
        return _size(self.bits, self.domain)

    def ranks(self, X: ArrayLike, name: str = "X") -> tuple[Array, Domain]:
        """Return the ranks of the rows of `X`, and the domain they belong to."""
        return read_ranks(X, self.columns, declared(self.bits, self.domain), name)

    @property
    def declares_domain(self) -> bool:
        """Whether `bits` or `domain` is given; if not, the type of the points determines the domain."""
        return declared(self.bits, self.domain) is not None

    def accepts(self, points: Array, *, example: Array) -> bool:
        """Return whether all of these points are in the domain."""
        try:
            self.ranks(points)
        except (TypeError, ValueError, OverflowError):
            return False
        return True

    def finite_domain(self) -> tuple[Domain, range]:
        """Return the declared domain and its ranks; raise NotImplementedError if it is infinite or not declared."""
        domain = declared(self.bits, self.domain)
        if domain is None or domain.first is None or domain.last is None:
            raise NotImplementedError(f"{type(self).__name__} is infinite unless bits or a finite domain is declared")
        return domain, range(domain.first, domain.last + 1)

    def example_points(self) -> Array:
        """Return the first few values from 0 on; in several columns, those nearest to the middle of a grid."""
        examples, domain = super().example_points(), declared(self.bits, self.domain)
        if domain is None:
            return examples
        if domain.last is not None and domain.last < examples.max():
            examples = np.unique(np.minimum(examples, domain.last), axis=0)
        return domain.values(examples)


class OrderedDichotomies(Dichotomies[C]):
    """Dichotomies that work on ranks."""

    concept_class: Ordered[C]

    def __init__(self, concept_class: Ordered[C], X: ArrayLike) -> None:
        super().__init__(concept_class, as_rows(X, concept_class.columns))
        self._ranks, self._domain = concept_class.ranks(self.points)

    def rows_at(self, at: ArrayLike | None) -> Array | None:
        """Other points `at` in the form that `_table` reads; None for the points themselves."""
        if at is None:
            return None
        ranks, domain = self.concept_class.ranks(at, "at")
        if domain != self._domain:
            raise TypeError("at must hold points of the same type as X; declare a domain to mix types")
        return ranks

    def _table(self, start: int, stop: int, at: Array | None) -> Array:
        return super()._table(start, stop, None if at is None else self._domain.values(at))

    def _least_errors(self, labels: Labels, at: Array) -> Array:
        return super()._least_errors(labels, self._domain.values(at))


class LineDichotomies(OrderedDichotomies[C]):
    """Dichotomies of points on one line, which is sorted once."""

    def __init__(self, concept_class: Ordered[C], X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        self._line = Line(self._ranks)


class Line:
    """The ranks of some rows in ascending order; rows of equal rank form one point of the line.

    Parameters
    ----------
    ranks : array
        The ranks of the rows.
    """

    def __init__(self, ranks: Array) -> None:
        self.order = np.argsort(ranks)
        self.sorted = ranks[self.order]
        last = np.append(self.sorted[1:] != self.sorted[:-1], True) if len(ranks) else np.zeros(0, dtype=bool)
        self.ends = np.append(0, np.flatnonzero(last) + 1)  # the number of rows at the first j points, j = 0 … points
        self.points = self.sorted[self.ends[:-1]]

    def __len__(self) -> int:
        return len(self.points)

    def point(self, index: int) -> int:
        """Return the rank of a point as a Python int."""
        return int(self.points[index])

    def cumulative(self, weights: Array) -> Array:
        """Return the sums of the weights of the first 0, 1, … sorted rows."""
        return np.concatenate([np.zeros(1, dtype=weights.dtype), np.cumsum(weights[self.order])])

    def prefixes(self, weights: Array) -> Array:
        """Return the sums of the weights at the first 0, 1, … points."""
        return np.asarray(self.cumulative(weights)[self.ends])

    def before(self, cuts: Array, *, included: bool = False) -> Any:
        """Return how many rows lie below each cut, or up to it if `included`."""
        return np.searchsorted(self.sorted, cuts, side="right" if included else "left")

    def positions(self, ranks: Array) -> Array:
        """Return 2j + 1 for a rank equal to the j-th point, 2j for one between it and the point before."""
        left, right = np.searchsorted(self.points, ranks), np.searchsorted(self.points, ranks, side="right")
        return np.asarray(left + right)


def last_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the greatest integer of [low, high) for which `holds` is true.

    Parameters
    ----------
    low, high : int
        The range. `holds(low)` is true.
    holds : callable
        A monotone predicate: true up to some integer, false beyond it.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
