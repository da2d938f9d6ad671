"""Closed intervals on a line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain, below
from reticent.concepts.interface import Dichotomies, check_concept
from reticent.concepts.order import Line, LineDichotomies, Ordered, last_where
from reticent.concepts.values import Concept, Value, plain_value
from reticent.data.points import Array, Labels, as_weights, zeros_and_ones


@dataclass(frozen=True, repr=False)
class Interval(Concept):
    """The label 1 for low ≤ x ≤ high. With low > high, written [1, 0], no point has the label 1.

    Parameters
    ----------
    low, high : int, float or datetime64
        The ends.
    """

    low: Value
    high: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", plain_value(self.low, "low"))
        object.__setattr__(self, "high", plain_value(self.high, "high"))


@dataclass(frozen=True)
class Intervals(Ordered[Interval]):
    """All closed intervals on a line, and the empty one; RECTANGLE_d in one dimension. The VC dimension is 2.

    The first dichotomy is the empty one; the others follow in the order of their lower, then their upper end, each with
    the tightest interval as its representative. `erm` takes one sort.

    Parameters
    ----------
    bits : int or None, default None
        Short for `domain=Integers(bits)`.
    domain : Domain or None, default None
        The domain of each column: `Integers`, `Floats` or `Datetimes`. Without it and `bits`, the type of `X`
        determines the domain.

    Examples
    --------
    >>> Intervals(bits=8).erm([1, 2, 3, 4, 5, 6], [1, 0, 0, 1, 1, 0])
    Interval(low=4, high=5)
    """

    bits: int | None = None
    domain: Domain | None = field(default=None, kw_only=True)

    @property
    def vc_dimension(self) -> int:
        """2."""
        return 2

    @property
    def size(self) -> int | None:
        """N(N + 1)/2 + 1 for a domain of N values."""
        values = self.values
        return None if values is None else values * (values + 1) // 2 + 1

    def predict(self, concept: Interval, X: ArrayLike) -> Labels:
        """Return 1 where low ≤ x ≤ high."""
        check_concept(concept, Interval)
        ranks, domain = self.ranks(X)
        return zeros_and_ones(within(ranks, domain, concept.low, concept.high))

    def dichotomies(self, X: ArrayLike) -> Dichotomies[Interval]:
        """Return the n(n + 1)/2 + 1 runs of n distinct points."""
        return _Runs(self, X)

    def lightest(self, X: ArrayLike, weights: ArrayLike) -> Interval:
        """Return the run of least weight, from cumulative sums."""
        runs = _Runs(self, X)
        return runs.lightest(as_weights(weights, len(runs.points)))

    def check_erm(self, points: int, *, what: str = "points", remedy: str = "") -> None:
        """No limit: no labellings are listed."""

    def concepts(self) -> Iterator[Interval]:
        """Iterate over all intervals of a finite domain."""
        domain, ranks = self.finite_domain()
        yield Interval(*domain.nothing)
        for low in ranks:
            yield from (Interval(domain.value(low), domain.value(high)) for high in range(low, ranks.stop))


def within(ranks: Array, domain: Domain, low: Value, high: Value) -> Array:
    """Return which ranks are those of values in [low, high]."""
    return ~below(ranks, domain.at_or_above(low)) & below(ranks, domain.above(high))


def lightest_run(prefixes: Array) -> tuple[int, int] | None:
    """Return the run i … j of least weight prefixes[j + 1] − prefixes[i], the first of several; None if no weight is
    below 0.

    A run from i is lightest if it ends at the least prefix sum after i: a minimum over a suffix.
    """
    if len(prefixes) < 2:
        return None
    ahead = np.minimum.accumulate(prefixes[:0:-1])[::-1]
    weights = ahead - prefixes[:-1]
    low = int(np.argmin(weights))
    if weights[low] >= 0:
        return None
    return low, low + int(np.argmin(prefixes[low + 1 :]))


class _Runs(LineDichotomies[Interval]):
    """Index 0 is the empty run; then follow the runs i … j of the points, by i, then by j."""

    concept_class: Intervals

    @property
    def count(self) -> int:
        """n(n + 1)/2 + 1 for n distinct points."""
        points = len(self._line)
        return points * (points + 1) // 2 + 1

    def lightest(self, weights: Array) -> Interval:
        """Return the interval of the first run of least weight."""
        run = lightest_run(self._line.prefixes(weights))
        return Interval(*self._domain.nothing) if run is None else self._interval(*run)

    def _interval(self, low: int, high: int) -> Interval:
        return Interval(self._domain.value(self._line.point(low)), self._domain.value(self._line.point(high)))

    def _locate(self, index: int) -> tuple[int, int]:
        """The run of an index > 0: i(2n − i + 1)/2 runs start before i."""
        points = len(self._line)
        low = last_where(0, points, lambda i: i * (2 * points - i + 1) // 2 < index)
        return low, low + index - 1 - low * (2 * points - low + 1) // 2

    def _concept(self, index: int) -> Interval:
        return self._interval(*self._locate(index)) if index else Interval(*self._domain.nothing)

    def _sums(self, weights: Array, at: Array | None) -> Array:
        line = self._line if at is None else Line(at)
        cumulative, points = line.cumulative(weights), self._line.points
        before, through = cumulative[line.before(points)], cumulative[line.before(points, included=True)]
        sums = np.zeros(self.count, dtype=cumulative.dtype)
        done = 1
        for low in range(len(points)):
            sums[done : done + len(points) - low] = through[low:] - before[low]
            done += len(points) - low
        return sums

    # ── how many intervals contain these points ───────────────────────────────────────────────────────────────────

    def _edges(self) -> list[int]:
        assert self._domain.first is not None
        assert self._domain.last is not None
        return [self._domain.first - 1, *map(int, self._line.points), self._domain.last + 1]

    @property
    def multiplicities(self) -> Array | None:
        """The number of positions of the lower end times those of the upper; an empty interval lies in one gap."""
        if self.concept_class.size is None:
            return None
        gaps = np.diff(np.array(self._edges(), dtype=object))
        empty = 1 + sum(gap * (gap - 1) // 2 for gap in gaps)
        return np.array(
            [empty, *(gaps[low] * gap for low in range(len(gaps) - 1) for gap in gaps[low + 1 :])], dtype=object
        )

    def member(self, index: int, number: int) -> Interval:
        """Return the interval of this number among those that contain just these points, in the order of their ends."""
        index, sizes = self._index(index), self.multiplicities
        if sizes is None:
            return super().member(index, number)
        number = self._number(number, int(sizes[index]))
        edges, value = self._edges(), self._domain.value
        if index:
            low, high = self._locate(index)
            width = edges[high + 2] - edges[high + 1]
            return Interval(value(edges[low] + 1 + number // width), value(edges[high + 1] + number % width))
        for left, right in itertools.pairwise(edges):
            free = right - left - 1
            if number < free * (free + 1) // 2:
                break
            number -= free * (free + 1) // 2
        else:
            return Interval(*self._domain.nothing)
        # Counted by the upper end: t + 1 of them end at left + 1 + t.
        end = last_where(0, free, lambda t: t * (t + 1) // 2 <= number)
        return Interval(value(left + 1 + number - end * (end + 1) // 2), value(left + 1 + end))
