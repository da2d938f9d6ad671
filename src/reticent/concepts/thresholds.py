"""Thresholds on a line of integers, floats or datetimes: THRESH_d, with one or both orientations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain, below
from reticent.concepts.interface import MOST_SCORES, Dichotomies, check_concept
from reticent.concepts.labellings import joined
from reticent.concepts.order import Line, LineDichotomies, Ordered
from reticent.concepts.values import Concept, Value, plain_value
from reticent.data.points import Array, Labels, zeros_and_ones

Sign = Literal["<", ">="]


def check_sign(sign: str) -> None:
    """Raise a ValueError for anything but the two orientations."""
    if sign not in ("<", ">="):
        raise ValueError(f"sign must be '<' or '>=', got {sign!r}")


@dataclass(frozen=True, repr=False)
class Threshold(Concept):
    """The label 1 for every point below `at` (sign "<"), or for every other point (sign ">=").

    Parameters
    ----------
    at : int, float or datetime64
        The threshold.
    sign : {"<", ">="}, default "<"
        The orientation.
    """

    at: Value
    sign: Sign = "<"

    def __post_init__(self) -> None:
        check_sign(self.sign)
        object.__setattr__(self, "at", plain_value(self.at, "at"))


@dataclass(frozen=True)
class Thresholds(Ordered[Threshold]):
    """All thresholds on a line. With `bits` = d this is THRESH_d: c_j(x) = 1 iff x < j, for x in [0, 2^d), 0 ≤ j ≤ 2^d.

    The VC dimension is 1, or 2 with both orientations. All n + 1 scores of n points take one sort and one cumulative
    sum. Dichotomies are in ascending order of their threshold, "<" before ">=".

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Definition 3.4.

    Parameters
    ----------
    bits : int or None, default None
        Short for `domain=Integers(bits)`.
    domain : Domain or None, default None
        The domain of each column: `Integers`, `Floats` or `Datetimes`. Without it and `bits`, the type of `X`
        determines the domain. A declared domain of finite size makes the class finite.
    both_orientations : bool, default False
        Whether labels may also be 1 from the threshold on upwards.

    Examples
    --------
    >>> thresholds = Thresholds()
    >>> thresholds.erm([0.5, 1.5, 2.5, 3.5], [1, 1, 0, 0])
    Threshold(at=2.5, sign='<')
    >>> Thresholds(bits=64, both_orientations=True).size == 2**65
    True
    """

    bits: int | None = None
    domain: Domain | None = field(default=None, kw_only=True)
    both_orientations: bool = field(default=False, kw_only=True)

    @property
    def vc_dimension(self) -> int:
        """1, or 2 with both orientations."""
        return 2 if self.both_orientations else 1

    @property
    def size(self) -> int | None:
        """One more than the number of values; with both orientations, twice that number."""
        if self.values is None:
            return None
        return 2 * self.values if self.both_orientations else self.values + 1

    def predict(self, concept: Threshold, X: ArrayLike) -> Labels:
        """Return 1 where x < at, or where x ≥ at for the sign ">="."""
        check_concept(concept, Threshold)
        ranks, domain = self.ranks(X)
        return zeros_and_ones(below(ranks, domain.at_or_above(concept.at)) == (concept.sign == "<"))

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Threshold]:
        """Return the n + 1 prefixes of n distinct points; with both orientations also the suffixes, 2n in all."""
        return _Cuts(self, X)

    @property
    def most_labellings(self) -> int:
        """The limit on scores: there are hardly more labellings than rows."""
        return MOST_SCORES

    def concepts(self) -> Iterator[Threshold]:
        """Iterate over all thresholds of a finite domain."""
        domain, ranks = self.finite_domain()
        upwards = ranks[1:] if self.both_orientations else ()
        yield from (Threshold(domain.value(rank), "<") for rank in range(ranks.start, ranks.stop + 1))
        yield from (Threshold(domain.value(rank), ">=") for rank in upwards)


class _Cuts(LineDichotomies[Threshold]):
    """Cut j, for 0 ≤ j ≤ m, lies between the first j of the m points and the others."""

    concept_class: Thresholds

    @property
    def count(self) -> int:
        """One more than the number of points; with both orientations, twice that number."""
        points = len(self._line)
        return max(1, 2 * points) if self.concept_class.both_orientations else points + 1

    def _concept(self, index: int) -> Threshold:
        points = len(self._line)
        if index > points:
            return Threshold(self._domain.value(self._line.point(index - points)), ">=")
        if index < points:
            return Threshold(self._domain.value(self._line.point(index)), "<")
        return Threshold(self._domain.value(self._line.point(-1) + 1 if points else self._domain.first or 0), "<")

    def _sums(self, weights: Array, at: Array | None) -> Array:
        if at is None:
            prefixes = self._line.prefixes(weights)
        else:
            line, points = Line(at), self._line.points
            rows_below = np.append(line.before(points), line.before(points[-1:], included=True))
            prefixes = line.cumulative(weights)[rows_below if len(points) else line.before(self._start())]
        return self._with_suffixes(prefixes, weights.sum() - prefixes)

    def _start(self) -> Array:
        return np.array([self._domain.first or 0], dtype=self._line.points.dtype)

    def _with_suffixes(self, prefixes: Array, suffixes: Array) -> Array:
        """The scores of the cuts 0 … m of the sign "<", then, with both orientations, of 1 … m − 1 of the other."""
        return np.append(prefixes, suffixes[1:-1]) if self.concept_class.both_orientations else prefixes

    def _least_errors(self, labels: Labels, at: Array) -> Array:
        own = Line(joined(self._line.points, at))
        weights = np.append(np.zeros(len(self._line), dtype=np.int64), 1 - 2 * labels)
        mine = np.append(np.ones(len(self._line), dtype=np.int64), np.zeros(len(labels), dtype=np.int64))
        prefixes = own.prefixes(weights)
        # The cuts of all points, by how many of this line's points they leave below them: runs, in ascending order.
        runs = np.searchsorted(own.prefixes(mine), np.arange(len(self._line) + 1))
        below_cut = np.minimum.reduceat(labels.sum() + prefixes, runs)
        if self.concept_class.both_orientations:
            above_cut = np.minimum.reduceat(labels.sum() + weights.sum() - prefixes, runs)
            # The labellings 0 … 0 and 1 … 1 are possible with either orientation.
            ends = np.minimum(below_cut[[0, -1]], above_cut[[-1, 0]])
            below_cut[[0, -1]] = ends if len(self._line) else ends.min()
            return self._with_suffixes(below_cut, above_cut)
        return below_cut

    # ── how many thresholds there are between two points ──────────────────────────────────────────────────────────

    @property
    def multiplicities(self) -> Array | None:
        """The width of the gap of each threshold; with both orientations, those beyond both ends are merged."""
        size, first, last = self.concept_class.size, self._domain.first, self._domain.last
        if size is None or first is None or last is None:
            return None
        kind: Any = np.int64 if size < 1 << 62 else object
        outside = np.array([first - 1, last + 1], dtype=kind)
        gaps = np.diff(np.concatenate([outside[:1], self._line.points.astype(kind), outside[1:]]))
        if not self.concept_class.both_orientations:
            return gaps
        if len(gaps) == 1:
            return np.array([size], dtype=kind)
        ends = gaps[[0, -1]].sum(keepdims=True) - 1
        return np.concatenate([ends, gaps[1:-1], ends, gaps[1:-1]])

    def member(self, index: int, number: int) -> Threshold:
        """Return the threshold `number` values above the least with this labelling; then those of the sign ">="."""
        index, sizes = self._index(index), self.multiplicities
        if sizes is None:
            return super().member(index, number)
        number = self._number(number, int(sizes[index]))
        points, first, last = len(self._line), self._domain.first or 0, self._domain.last or 0
        cut = index if index <= points else index - points
        low = first if cut == 0 else self._line.point(cut - 1) + 1
        high = last + 1 if cut == points else self._line.point(cut)
        if index > points:
            return Threshold(self._domain.value(low + number), ">=")
        if number <= high - low:
            return Threshold(self._domain.value(low + number), "<")
        # Then follow thresholds of the other sign and end; those that are constant on the domain came before.
        start = first + 1 if points in (0, cut) else self._line.point(-1) + 1
        return Threshold(self._domain.value(start + number - (high - low + 1)), ">=")
