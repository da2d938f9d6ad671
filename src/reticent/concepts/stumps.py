"""Decision stumps: a threshold, of either orientation, on one of several features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain, below, declared
from reticent.concepts.interface import MOST_SCORES, Dichotomies, check_concept
from reticent.concepts.order import Line, Ordered, OrderedDichotomies
from reticent.concepts.thresholds import Sign, check_sign
from reticent.concepts.values import Concept, Value, plain_value
from reticent.data.points import Array, Labels, zeros_and_ones
from reticent.exact import integer


@dataclass(frozen=True, repr=False)
class Stump(Concept):
    """The label 1 where one feature lies below `at`, or for the sign ">=" where it does not.

    Parameters
    ----------
    feature : int
        The index of the feature.
    at : int, float or datetime64
        The threshold.
    sign : {"<", ">="}, default "<"
        The orientation.
    """

    feature: int
    at: Value
    sign: Sign = "<"

    def __post_init__(self) -> None:
        check_sign(self.sign)
        object.__setattr__(self, "feature", integer(self.feature, "feature", least=0))
        object.__setattr__(self, "at", plain_value(self.at, "at"))


@dataclass(frozen=True)
class Stumps(Ordered[Stump]):
    """All thresholds, of both orientations, on any one of the features.

    The VC dimension is the largest v with C(v, ⌊v/2⌋) ≤ 2·features, about log2 of the number of features, and less if
    the features have few values. All labellings and all scores take one sort and one cumulative sum per feature.

    The first two dichotomies label all points 0, and 1. Then follow, feature by feature, the cuts in ascending order,
    "<" before ">=". A cut that equals one of an earlier feature is left out.

    Parameters
    ----------
    features : int
        The number of features.
    bits : int or None, default None
        Short for `domain=Integers(bits)`.
    domain : Domain or None, default None
        The domain of each column: `Integers`, `Floats` or `Datetimes`. Without it and `bits`, the type of `X`
        determines the domain.

    Examples
    --------
    >>> stumps = Stumps(features=2, bits=8)
    >>> stumps.erm([[1, 9], [2, 5], [3, 7], [4, 1]], [1, 0, 1, 0])
    Stump(feature=1, at=7, sign='>=')
    >>> Stumps(features=1000).vc_dimension
    13
    """

    features: int
    bits: int | None = None
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.features, "features", least=1)

    @property
    def columns(self) -> int:
        """The number of features."""
        return self.features

    @property
    def vc_dimension(self) -> int:
        """The largest v with C(v, ⌊v/2⌋) ≤ 2·features and 2^(v−1) − 1 ≤ features·(values − 1).

        Up to complement, v points have 2^(v−1) − 1 labellings that are not constant, and a feature gives at most one
        per cut. One of its cuts can divide v points in halves (or 1 off, for odd v), of which there are C(v, ⌊v/2⌋)/2
        up to complement. That this many features suffice, if they have v values, follows from chains of sets: each set
        of at most ⌊v/2⌋ points is matched with one that has a point more, up to the halves, and the halves (for odd v,
        all but at most one of them) pair off as disjoint sets. Each pair orders the points.
        """
        size = 1
        while self._could_shatter(size + 1):
            size += 1
        return size

    def _could_shatter(self, points: int) -> bool:
        enough = self.values is None or 2 ** (points - 1) - 1 <= self.features * (self.values - 1)
        return enough and math.comb(points, points // 2) <= 2 * self.features

    @property
    def vc_dimension_is_exact(self) -> bool:
        """Whether features are Boolean or have at least as many values as the VC dimension."""
        return self.values is None or self.values == 2 or self.values >= self.vc_dimension

    @property
    def size(self) -> int | None:
        """2·features·(N − 1) + 2 for features of N values: the constants are counted once."""
        return None if self.values is None else 2 * self.features * (self.values - 1) + 2

    def predict(self, concept: Stump, X: ArrayLike) -> Labels:
        """Return 1 on the side of the threshold that the sign states."""
        check_concept(concept, Stump)
        if concept.feature >= self.features:
            raise ValueError(f"concept must be on one of the features 0 … {self.features - 1}, got {concept.feature}")
        ranks, domain = self.ranks(X)
        column = ranks[:, concept.feature] if ranks.ndim == 2 else ranks
        return zeros_and_ones(below(column, domain.at_or_above(concept.at)) == (concept.sign == "<"))

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Stump]:
        """Return the cuts of every feature, each counted once."""
        return _FeatureCuts(self, X)

    @property
    def most_labellings(self) -> int:
        """The limit on scores: there are at most twice as many labellings as numbers in the rows."""
        return MOST_SCORES

    def labellings(self, points: int) -> int:
        """Return the constants, and both sides of every cut of every feature."""
        return min(super().labellings(points), 2 + 2 * self.features * max(0, points - 1))

    def concepts(self) -> Iterator[Stump]:
        """Iterate over all stumps on features of a finite domain; the constants are those of the first feature."""
        domain, ranks = self.finite_domain()
        for feature in range(self.features):
            for rank in ranks if feature == 0 else ranks[1:]:
                yield Stump(feature, domain.value(rank), "<")
                yield Stump(feature, domain.value(rank), ">=")

    def example_points(self) -> Array:
        """Return points that enough orders of the features shatter (for up to 9 features), and another one."""
        domain = declared(self.bits, self.domain)
        points = min(self.vc_dimension, 5)
        if self.values == 2:
            columns = [[split >> point & 1 for point in range(points)] for split in range(1, 1 << (points - 1))]
        else:
            columns = [np.argsort(order).tolist() for order in _SHATTERING[points]]
        grid = np.zeros((points + 1, self.features), dtype=np.int64)
        for feature, column in enumerate(columns[: self.features]):
            grid[:, feature] = [*column, max(column) // 2]
        if self.values is not None and self.values < points:
            grid = np.minimum(grid, self.values - 1)
        grid = np.unique(grid, axis=0)
        examples = grid[:, 0] if self.features == 1 else grid
        return examples if domain is None else domain.values(examples)


# Orders of v points, whose first and last few members, over all orders, are all sets of at most v/2 points.
_SHATTERING: dict[int, list[tuple[int, ...]]] = {
    1: [(0,)],
    2: [(0, 1)],
    3: [(0, 1, 2), (1, 0, 2)],
    4: [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)],
    5: [tuple((member + turn) % 5 for member in (0, 1, 3, 2, 4)) for turn in range(5)],
}


class _FeatureCuts(OrderedDichotomies[Stump]):
    """Cut k gives the dichotomies 2k ("<") and 2k + 1 (">="). Cut 0 lies below all points, the others between them."""

    concept_class: Stumps

    def __init__(self, concept_class: Stumps, X: ArrayLike) -> None:
        super().__init__(concept_class, X)
        self._lines = [Line(column) for column in self._features(self._ranks)]
        self._kept = _distinct_cuts(self._lines)  # for every feature the points before which its cuts lie
        self._kept[0] = np.append(0, self._kept[0])
        self._starts = np.cumsum([0, *map(len, self._kept)])

    @staticmethod
    def _features(ranks: Array) -> Array:
        return np.ascontiguousarray(ranks.T) if ranks.ndim == 2 else ranks[None]

    @property
    def count(self) -> int:
        """Two for every cut; one if there are no points."""
        return 2 * int(self._starts[-1]) if len(self.points) else 1

    def _concept(self, index: int) -> Stump:
        if not len(self.points):
            return Stump(0, self._domain.value(self._domain.first or 0), "<")
        cut, upper = divmod(index, 2)
        feature = int(np.searchsorted(self._starts, cut, side="right")) - 1
        point = int(self._kept[feature][cut - self._starts[feature]])
        return Stump(feature, self._domain.value(self._lines[feature].point(point)), ">=" if upper else "<")

    def _sums(self, weights: Array, at: Array | None) -> Array:
        if not len(self.points):
            return super()._sums(weights, at)
        lines = self._lines if at is None else [Line(column) for column in self._features(at)]
        sums = np.empty((int(self._starts[-1]), 2), dtype=weights.dtype)
        for feature, (own, line) in enumerate(zip(self._lines, lines, strict=True)):
            kept = self._kept[feature]
            rows = own.ends[kept] if at is None else line.before(own.points[kept])
            sums[self._starts[feature] : self._starts[feature + 1], 0] = line.cumulative(weights)[rows]
        sums[:, 1] = weights.sum() - sums[:, 0]
        return sums.ravel()


def _distinct_cuts(lines: list[Line]) -> list[Array]:
    """For every feature, in order, the points before which a cut makes a partition that no earlier feature makes.

    Cuts are compared by fingerprints: the sum, modulo 2^64, of a pseudo-random number for each row below the cut, or of
    the rows above it if that is less. Equal partitions have equal fingerprints, so if all fingerprints differ, all cuts
    do. Where fingerprints are equal, the partitions are compared exactly; so the fingerprints affect only the run time.
    """
    rows = len(lines[0].order)
    cuts = [np.arange(1, len(line)) for line in lines]
    keys = _scrambled(rows)
    marks = []
    for line, inner in zip(lines, cuts, strict=True):
        sums = np.cumsum(keys[line.order], dtype=np.uint64)
        lower = sums[line.ends[inner] - 1]
        marks.append(np.minimum(lower, sums[-1:] - lower))
    fingerprints = np.concatenate(marks)
    ascending = np.sort(fingerprints)
    if not bool(np.any(ascending[1:] == ascending[:-1])):
        return cuts
    return _compared(lines, cuts, fingerprints)


def _compared(lines: list[Line], cuts: list[Array], fingerprints: Array) -> list[Array]:
    feature = np.repeat(np.arange(len(lines)), [len(inner) for inner in cuts])
    size = np.concatenate([line.ends[inner] for line, inner in zip(lines, cuts, strict=True)])
    kept = np.ones(len(fingerprints), dtype=bool)
    order = np.argsort(fingerprints, kind="stable")  # groups of one fingerprint, earlier features first
    while len(order) > 1:
        fresh = np.append(True, fingerprints[order[1:]] != fingerprints[order[:-1]])
        leader = order[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
        order, leader = order[~fresh], leader[~fresh]
        same = _same_partition(lines, feature, size, leader, order)
        kept[order[same]] = False
        order = order[~same]  # those with the fingerprint of another partition are compared with each other
    return [inner[kept[feature == f]] for f, inner in enumerate(cuts)]


def _same_partition(lines: list[Line], feature: Array, size: Array, leader: Array, other: Array) -> Array:
    """Whether the cuts `leader[i]` and `other[i]` divide the rows into the same two sets.

    The first s rows in the order of one feature are the first s in that of another iff none of them comes later than
    the s-th there: a running maximum decides it for all s. Against the reversed order it decides the other case.
    """
    rows, same = len(lines[0].order), np.zeros(len(other), dtype=bool)
    pairs = feature[leader] * len(lines) + feature[other]
    for pair in np.unique(pairs):
        first, second = divmod(int(pair), len(lines))
        here = pairs == pair
        position = np.empty(rows, dtype=np.int64)
        position[lines[first].order] = np.arange(rows)
        seen = position[lines[second].order]
        theirs, mine = size[leader[here]], size[other[here]]
        forwards = (mine == theirs) & (np.maximum.accumulate(seen)[mine - 1] == mine - 1)
        backwards = (mine == rows - theirs) & (np.minimum.accumulate(seen)[mine - 1] == rows - mine)
        same[here] = forwards | backwards
    return same


def _scrambled(rows: int) -> Array:
    """A fixed well-mixed 64-bit number for every row (the finaliser of splitmix64)."""
    mixed = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
