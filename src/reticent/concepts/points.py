"""Sets of exactly k points: POINT_d and k-POINT_d."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain
from reticent.concepts.interface import MOST_LABELLINGS, MOST_SCORES, Dichotomies, check_concept
from reticent.concepts.order import Line, LineDichotomies, Ordered, last_where
from reticent.concepts.values import Concept, Value, plain_value
from reticent.data.points import Array, Labels, as_weights
from reticent.exact import integer


@dataclass(frozen=True, repr=False)
class Point(Concept):
    """The label 1 for one point, 0 for all others.

    Parameters
    ----------
    at : int, float or datetime64
        The point.
    """

    at: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", plain_value(self.at, "at"))


@dataclass(frozen=True, repr=False)
class PointSet(Concept):
    """The label 1 for the given points, 0 for all others.

    Parameters
    ----------
    points : tuple of int, float or datetime64
        The distinct points, kept in ascending order.
    """

    points: tuple[Value, ...]

    def __post_init__(self) -> None:
        points = sorted(plain_value(point, "points") for point in self.points)
        if any(a == b for a, b in itertools.pairwise(points)):
            raise ValueError("points must be distinct")
        object.__setattr__(self, "points", tuple(points))


P = TypeVar("P", bound=Concept)


class _PointClass(Ordered[P]):
    """Shared by the two classes: a concept is a set of exactly k values of the domain."""

    @property
    def _k(self) -> int:
        raise NotImplementedError

    def _make(self, values: list[Value]) -> P:
        raise NotImplementedError

    def _values(self, concept: P) -> tuple[Value, ...]:
        raise NotImplementedError

    @property
    def vc_dimension(self) -> int:
        """k, or less in a domain of fewer than 2k values: s points are shattered iff s ≤ k ≤ domain − s."""
        return self._k if self.values is None else min(self._k, self.values - self._k)

    @property
    def size(self) -> int | None:
        """The number of sets of k values."""
        return None if self.values is None else math.comb(self.values, self._k)

    def predict(self, concept: P, X: ArrayLike) -> Labels:
        """Return 1 where x is one of the points."""
        values = self._values(concept)
        ranks, domain = self.ranks(X)
        labels = np.zeros(len(ranks), dtype=np.int64)
        for value in values:
            rank = domain.at_or_above(value)
            if isinstance(rank, int) and domain.above(value) != rank and _holds(ranks, rank):
                labels |= ranks == ranks.dtype.type(rank) if ranks.dtype != object else (ranks == rank).astype(bool)
        return labels

    def dichotomies(self, X: ArrayLike) -> Dichotomies[P]:
        """Return all sets of at most k of the points, smaller ones first, that k values of the domain can give."""
        return _Subsets(self, X)

    def lightest(self, X: ArrayLike, weights: ArrayLike) -> P:
        """Return the first dichotomy of least weight, by sorting the points by their weights."""
        subsets = _Subsets(self, X)
        losses = subsets.losses(as_weights(weights, len(subsets.points)))
        gains = np.sort(losses)[: subsets.most]
        totals = np.concatenate([[0], np.cumsum(gains)])[subsets.fewest :]
        chosen = subsets.fewest + int(np.argmin(totals))
        return subsets.representative(np.sort(np.argsort(losses, kind="stable")[:chosen]).tolist())

    def check_erm(self, points: int, *, what: str = "points", remedy: str = "") -> None:
        """No limit: no labellings are listed."""

    @property
    def most_labellings(self) -> int:
        """The limit; for single points that on scores, as there are hardly more than rows."""
        return MOST_SCORES if self._k == 1 else MOST_LABELLINGS

    def concepts(self) -> Iterator[P]:
        """Iterate over all sets of k values of a finite domain."""
        domain, ranks = self.finite_domain()
        for chosen in itertools.combinations(ranks, self._k):
            yield self._make([domain.value(rank) for rank in chosen])


@dataclass(frozen=True)
class KPoints(_PointClass[PointSet]):
    """All sets of exactly k points. With `bits` = d this is k-POINT_d, of VC dimension k (if 2k ≤ 2^d).

    Dichotomies are the sets of at most k of the given points, smaller sets first, and sets of one size in the order of
    their largest members. A representative is completed by the least numbers, from 0 on, that are not given points.

    Parameters
    ----------
    k : int
        The size of the sets.
    bits : int or None, default None
        Short for `domain=Integers(bits)`.
    domain : Domain or None, default None
        The domain of each column: `Integers`, `Floats` or `Datetimes`. Without it and `bits`, the type of `X`
        determines the domain.

    Examples
    --------
    >>> KPoints(k=2, bits=8).erm([0, 7, 7, 9, 200], [0, 1, 1, 0, 1])
    PointSet(points=(7, 200))
    >>> KPoints(k=2, bits=8).erm([0, 7, 7, 9], [0, 1, 1, 0])
    PointSet(points=(1, 7))
    """

    k: int
    bits: int | None = None
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.k, "k", least=1)
        if self.values is not None and self.k > self.values:
            raise ValueError(f"k must be at most the number of points in the domain, {self.values}, got {self.k}")

    @property
    def _k(self) -> int:
        return self.k

    def _make(self, values: list[Value]) -> PointSet:
        return PointSet(tuple(values))

    def _values(self, concept: PointSet) -> tuple[Value, ...]:
        check_concept(concept, PointSet)
        return concept.points


@dataclass(frozen=True)
class Points(_PointClass[Point]):
    """All single points. With `bits` = d this is POINT_d, of VC dimension 1.

    The first dichotomy labels every given point 0. It exists unless they fill the domain, and its representative is the
    least number, from 0 on, that is not a given point. The others select one point each, in ascending order.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Definition 3.1.

    Parameters
    ----------
    bits : int or None, default None
        Short for `domain=Integers(bits)`.
    domain : Domain or None, default None
        The domain of each column: `Integers`, `Floats` or `Datetimes`. Without it and `bits`, the type of `X`
        determines the domain.

    Examples
    --------
    >>> Points(bits=8).erm([3, 3, 5, 6], [1, 0, 1, 0])
    Point(at=5)
    """

    bits: int | None = None
    domain: Domain | None = field(default=None, kw_only=True)

    @property
    def _k(self) -> int:
        return 1

    def _make(self, values: list[Value]) -> Point:
        return Point(*values)

    def _values(self, concept: Point) -> tuple[Value, ...]:
        check_concept(concept, Point)
        return (concept.at,)


class _Subsets(LineDichotomies[P]):
    """Subsets of the distinct points of a line, by size, those of one size in colexicographic order."""

    concept_class: _PointClass[P]

    def __init__(self, concept_class: _PointClass[P], X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        self._k, known = concept_class._k, len(self._line)
        elsewhere = None if self._domain.size is None else self._domain.size - known
        self.fewest = 0 if elsewhere is None else max(0, self._k - elsewhere)
        self.most = min(self._k, known)
        self._counts = [math.comb(known, size) for size in range(self.most + 1)]
        self._counts[: self.fewest] = [0] * self.fewest

    @property
    def count(self) -> int:
        """The number of subsets of sizes `fewest` to `most`."""
        return sum(self._counts)

    def losses(self, weights: Array) -> Array:
        """Return the sum of the weights at each distinct point."""
        return np.diff(self._line.prefixes(weights))

    def representative(self, members: list[int]) -> P:
        """Return the concept of these points (by their index in the order) and the least others."""
        ranks = [self._line.point(index) for index in members]
        return self._concept_of(ranks + self._others(self._k - len(members)).tolist())

    def _concept_of(self, ranks: list[int]) -> P:
        return self.concept_class._make([self._domain.value(rank) for rank in sorted(ranks)])

    def _others(self, number: int) -> Array:
        """The least ranks, from 0 on, that are not among the points."""
        known = self._line.points
        reach = len(known) + number if self._domain.last is None else min(len(known) + number, self._domain.last + 1)
        free = np.ones(reach, dtype=bool)
        free[known[(known >= 0) & (known < reach)].astype(np.int64)] = False
        return np.flatnonzero(free)[:number].astype(known.dtype)  # numpy would convert signed and unsigned to floats

    def _locate(self, index: int) -> list[int]:
        """The members of the subset of an index."""
        size = 0
        while index >= self._counts[size]:
            index -= self._counts[size]
            size += 1
        return _unrank(index, size, len(self._line))

    def _concept(self, index: int) -> P:
        return self.representative(self._locate(index))

    def _sums(self, weights: Array, at: Array | None) -> Array:
        line = self._line if at is None else Line(at)
        cumulative = line.cumulative(weights)
        losses = _at(line, cumulative, self._line.points)
        others = self._others(self._k - self.fewest)
        filling = np.concatenate([np.zeros(1, dtype=weights.dtype), np.cumsum(_at(line, cumulative, others))])
        sums, parts = np.zeros(1, dtype=weights.dtype), []
        for size in range(self.most + 1):
            if size == 1:
                sums = losses
            elif size > 1:  # with the largest member t, any size − 1 of the t points before it: the first subsets
                tops = range(size - 1, len(losses))
                sums = np.concatenate([losses[t] + sums[: math.comb(t, size - 1)] for t in tops])
            if size >= self.fewest:
                parts.append(sums + filling[self._k - size])
        return np.concatenate(parts)

    @property
    def multiplicities(self) -> Array | None:
        """The number of choices of the members that are not among the points."""
        if self.concept_class.size is None or self._domain.size is None:
            return None
        elsewhere = self._domain.size - len(self._line)
        sizes = range(self.fewest, self.most + 1)
        completions = np.array([math.comb(elsewhere, self._k - size) for size in sizes], dtype=object)
        return np.repeat(completions, [self._counts[size] for size in sizes])

    def member(self, index: int, number: int) -> P:
        """Return the concept whose other members are the subset of this number of the values that are not points."""
        index, domain = self._index(index), self._domain
        if self.concept_class.size is None or domain.size is None or domain.first is None:
            return super().member(index, number)
        members = self._locate(index)
        wanted, elsewhere = self._k - len(members), domain.size - len(self._line)
        number = self._number(number, math.comb(elsewhere, wanted))
        # The i-th value that is not a point lies above the points with at most i such values below them.
        gaps = [self._line.point(i) - domain.first - i for i in range(len(self._line))] if wanted else []
        ranks = [self._line.point(i) for i in members]
        chosen = _unrank(number, wanted, elsewhere)
        return self._concept_of(ranks + [domain.first + i + bisect_right(gaps, i) for i in chosen])


def _at(line: Line, cumulative: Array, ranks: Array) -> Array:
    """The sums of the weights of the rows at each of the ranks."""
    return np.asarray(cumulative[line.before(ranks, included=True)] - cumulative[line.before(ranks)])


def _unrank(index: int, size: int, among: int) -> list[int]:
    """The subset of {0, …, among − 1} of an index, in colexicographic order: that of Σ C(c_i, i), c_1 < … < c_size."""
    members = []
    for rest in range(size, 0, -1):
        largest = last_where(rest - 1, among, partial(_starts_by, rest=rest, index=index))
        members.append(largest)
        index -= math.comb(largest, rest)
    return members[::-1]


def _starts_by(member: int, *, rest: int, index: int) -> bool:
    return math.comb(member, rest) <= index


def _holds(ranks: Array, rank: int) -> bool:
    return ranks.dtype == object or np.iinfo(ranks.dtype).min <= rank <= np.iinfo(ranks.dtype).max
