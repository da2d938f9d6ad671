"""Piecewise-constant scores on ranges of up to 2^(10^6) integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.exact import integer
from reticent.noise.reading import Array, exact_numbers, whole_numbers

_WORD = 1 << 64


@dataclass(frozen=True, eq=False, repr=False)
class Pieces:
    """A function on the integers of [first, last] that is constant on each of finitely many contiguous pieces.

    Piece i begins at first + offsets[i], has the value values[i], and ends where the next one begins. Both arrays are
    read-only.

    Parameters
    ----------
    first, last : int
        The ends of the range, both included.
    offsets : array
        Where the pieces begin, ascending from 0: uint64 if the range has at most 2^64 integers, else Python ints in an
        object array.
    values : array
        The values of the pieces: int64, float64 (each float is exactly the binary number that it stores) or exact
        Python numbers.

    Examples
    --------
    >>> score = Pieces.from_triples([(0, 9, 1), (10, 2**100, 5)])
    >>> score(9), score(10), score.size == 2**100 + 1
    (1, 5, True)
    """

    first: int
    last: int
    offsets: Array
    values: Array

    def __post_init__(self) -> None:
        offsets, top = self.offsets, self.last - self.first
        if top < 0 or not len(offsets):
            raise ValueError("the range must not be empty: its last integer lies below its first")
        if len(offsets) != len(self.values):
            raise ValueError("there must be one value per piece: the numbers of starts and of values differ")
        if offsets[0] != 0 or not bool((offsets[1:] > offsets[:-1]).all()):
            raise ValueError("the starts of the pieces must be strictly ascending")
        if int(offsets[-1]) > top:
            raise ValueError("every piece must start inside the range, at or before its last integer")
        offsets.flags.writeable = False
        self.values.flags.writeable = False

    @classmethod
    def from_breakpoints(cls, starts: Iterable[Any], values: Iterable[Any], *, last: int) -> Pieces:
        """Return the function that takes values[i] from starts[i] up to the next start, and the last value up to
        `last`.

        Parameters
        ----------
        starts : iterable of int
            Where the pieces begin, strictly ascending.
        values : iterable of int, float or Fraction
            One value per piece.
        last : int
            The last integer of the range.

        Examples
        --------
        >>> Pieces.from_breakpoints([0, 10, 20], [1, 5, 2], last=2**64 - 1)
        Pieces(a range of 64 bits)
        """
        begin, last = whole_numbers(starts, "starts"), integer(last, "last")
        if begin.size == 0:
            raise ValueError("starts must not be empty: a range of size 0 has no scores")
        # Checked before the shift to zero, where unsigned numbers out of order would wrap around.
        if not bool(np.all(begin[1:] > begin[:-1])):
            raise ValueError("starts must be strictly ascending")
        first = int(begin[0])
        return cls(first, last, _shifted(begin, first, fits=last - first < _WORD), exact_numbers(values, "values"))

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[int, int, Any]]) -> Pieces:
        """Return the function with the given contiguous (start, end, value) pieces, both ends included."""
        listed = list(triples) if isinstance(triples, Iterable) else []
        if not listed or not all(isinstance(triple, Sequence) and len(triple) == 3 for triple in listed):
            raise ValueError("triples must be a non-empty sequence of (start, end, value)")
        starts, ends = (whole_numbers([triple[side] for triple in listed], "triples") for side in (0, 1))
        gaps = starts[1:].astype(object) - ends[:-1].astype(object)
        if bool(np.any(gaps != 1)):
            raise ValueError("the pieces must be contiguous: each must start right after the end of the one before")
        return cls.from_breakpoints(starts, [triple[2] for triple in listed], last=int(ends[-1]))

    @property
    def size(self) -> int:
        """The number of integers in the range."""
        return self.last - self.first + 1

    @property
    def lengths(self) -> Array:
        """The number of integers in each piece."""
        tail = self.size - int(self.offsets[-1])
        if len(self) == 1:  # the length may be 2^64, which no machine type holds
            return np.array([tail], dtype=object)
        return np.concatenate((self.offsets[1:] - self.offsets[:-1], [self._scalar(tail)]))

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        # The pieces depend on private data; the range is public.
        return f"Pieces(a range of {(self.size - 1).bit_length()} bits)"

    def __call__(self, point: int) -> Any:
        """Return the value at a point of the range."""
        if not self.first <= integer(point, "point") <= self.last:
            raise ValueError("the point must lie inside the range")
        index = self.locate(point - self.first)
        return self.values[index : index + 1].tolist()[0]

    def locate(self, offset: int) -> int:
        """Return the index of the piece that contains first + offset."""
        return int(self.offsets.searchsorted(self._scalar(offset), side="right")) - 1

    def within(self, low: int, high: int) -> Pieces:
        """Return the same function on the smaller range [first + low, first + high]."""
        inside = slice(self.locate(low), self.locate(high) + 1)
        offsets = self.offsets[inside] - self._scalar(low)
        offsets[0] = 0
        return Pieces(self.first + low, self.first + high, offsets, self.values[inside])

    def triples(self) -> Iterator[tuple[int, int, Any]]:
        """Iterate over the pieces as (start, end, value), both ends included."""
        starts = [self.first + int(offset) for offset in self.offsets]
        ends = [start - 1 for start in starts[1:]] + [self.last]
        return zip(starts, ends, self.values.tolist(), strict=True)

    def _scalar(self, number: int) -> Any:
        # A bare Python int beside a uint64 array may turn both into floats.
        return self.offsets.dtype.type(number)


def check_pieces(pieces: object) -> None:
    """Refuse a parameter that is not `Pieces`."""
    if not isinstance(pieces, Pieces):
        raise TypeError(f"pieces must be Pieces, got {type(pieces).__name__}")


def window_minima(pieces: Pieces) -> Array:
    """Return L(j) for 0 ≤ j ≤ J = ⌊log2 size⌋: the greatest minimum of the values over a window of 2^j integers.

    L(j) = max over windows of 2^j consecutive integers of the least value in the window. The values must be whole
    numbers. Every window with minimum v lies in a maximal run of pieces with values ≥ v that contains a piece of value
    v. So L(j) is the greatest v whose longest such run has at least 2^j integers.
    """
    floors, begins, ends = _unimodal_runs(pieces.values) or _runs(pieces.values)
    exponents = _log2_lengths(pieces, begins, ends)
    best = np.full(pieces.size.bit_length(), pieces.values.min(), dtype=pieces.values.dtype)
    np.maximum.at(best, exponents, floors)
    return np.maximum.accumulate(best[::-1])[::-1]


Runs = tuple[Array, Array, Array]  # floors, begins, ends: pieces begins[i] … ends[i] − 1 have values ≥ floors[i]


def _runs(values: Array) -> Runs:
    """For every value, the maximal run of pieces with values at least as high."""
    # While there are many local maxima, all are removed at once: one that exceeds both of its neighbours is a run by
    # itself, and for all lower values it can be merged with the higher of the two.
    peeled: list[Runs] = []
    begins, ends = np.arange(len(values)), np.arange(1, len(values) + 1)
    while True:
        new = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
        values, begins, ends = values[new], begins[new], np.concatenate((begins[new[1:]], ends[-1:]))
        rises = values[1:] > values[:-1]
        peaks = np.flatnonzero(np.concatenate(([True], rises)) & np.concatenate((~rises, [True])))
        if len(values) < 1000 or 24 * len(peaks) < len(values):
            break
        peeled.append((values[peaks], begins[peaks], ends[peaks]))
        before, after = np.maximum(peaks - 1, 0), np.minimum(peaks + 1, len(values) - 1)
        before[peaks == 0], after[peaks == len(values) - 1] = 1, len(values) - 2  # at the ends there is one neighbour
        values[peaks] = np.maximum(values[before], values[after])
    rest, first, end = _stacked_runs(values)
    peeled.append((rest, begins[first], ends[end - 1]))
    floors, begins, ends = (np.concatenate(column) for column in zip(*peeled, strict=True))
    return floors, begins, ends


def _stacked_runs(values: Array) -> Runs:
    """For every piece a run around it with values at least as high, in one pass with a stack.

    Of several pieces of one value in a run, at least one gets the whole run.
    """
    listed = values.tolist()
    begins, ends = [0] * len(listed), [len(listed)] * len(listed)
    listed.append(min(listed) - 1)  # found again at index −1: a floor that is never popped
    stack = [-1]  # pieces whose run is still open, with strictly ascending values
    for index, value in enumerate(listed[:-1]):
        while listed[stack[-1]] >= value:
            ends[stack.pop()] = index
        begins[index] = stack[-1] + 1
        stack.append(index)
    return values, np.array(begins), np.array(ends)


def _unimodal_runs(values: Array) -> Runs | None:
    """The same by binary search if the values first rise and then fall; None if they do not."""
    falls = values[1:] < values[:-1]
    peak = int(np.argmax(falls)) if falls.any() else len(falls)
    if bool((values[peak + 1 :] > values[peak:-1]).any()):
        return None
    rising, falling = values[: peak + 1], values[peak + 1 :]
    ends = len(values) - np.searchsorted(falling[::-1], rising)
    begins = np.searchsorted(rising, falling)
    own = np.arange(len(values))
    return values, np.concatenate([own[: peak + 1], begins]), np.concatenate([ends, own[peak + 1 :] + 1])


def _log2_lengths(pieces: Pieces, begins: Array, ends: Array) -> Array:
    """⌊log2⌋ of the number of integers in the pieces begins[i] … ends[i] − 1."""
    if pieces.offsets.dtype == object:
        edges = [*pieces.offsets.tolist(), pieces.size]
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        return np.array([(edges[end] - edges[begin]).bit_length() - 1 for begin, end in spans])
    # One less than the length, so that 2^64 fits; arithmetic modulo 2^64 gives it even from an edge that wrapped to 0.
    edges_modulo = np.concatenate((pieces.offsets, [np.uint64(pieces.size % _WORD)]))
    spans_less_one = edges_modulo[ends] - edges_modulo[begins] - np.uint64(1)
    return np.asarray(np.searchsorted(_POWERS_LESS_ONE, spans_less_one, side="right") - 1)


_POWERS_LESS_ONE = np.array([(1 << j) - 1 for j in range(65)], dtype=np.uint64)


def median_pieces(values: Iterable[Any], *, bits: int) -> Pieces:
    """Return the score whose maximum is a median: Q(a) = min(#{x ≤ a}, #{x ≥ a}) over all a of [0, 2^bits).

    Replacing one of the values moves Q by at most 1 everywhere. Q is quasi-concave, since it is at least v exactly on
    the interval from the v-th smallest to the v-th largest value. Its maximum is at least half the number of values.
    Where Q(a) ≥ 1, a is an interior point: it lies between the least and the greatest value.

    Parameters
    ----------
    values : iterable of int
        The data, in [0, 2^bits).
    bits : int
        The width of the domain.

    Examples
    --------
    >>> list(median_pieces([3, 5, 9], bits=4).triples())
    [(0, 2, 0), (3, 4, 1), (5, 5, 2), (6, 9, 1), (10, 15, 0)]
    """
    bits = integer(bits, "bits", least=1)
    data, last = whole_numbers(values, "values"), (1 << bits) - 1
    data = np.array(sorted(data.tolist()), dtype=object) if data.dtype == object else np.sort(data)
    if data.size and (int(data[0]) < 0 or int(data[-1]) > last):
        raise ValueError("values must lie in [0, 2^bits)")
    data = _shifted(data, 0, fits=bits <= 64)
    levels = int(np.count_nonzero(data <= data[::-1]))  # {Q ≥ v} is not empty for v = 1 … levels
    rising = data[:levels]  # Q reaches v at the v-th smallest value …
    falling = data[len(data) - levels :]  # … and falls below it after the v-th largest
    falling = falling[falling != data.dtype.type(last)] + data.dtype.type(1)
    starts = np.concatenate([np.zeros(1, dtype=data.dtype), rising, falling])
    scores = np.concatenate([np.arange(levels + 1), levels - 1 - np.arange(len(falling))])
    final = np.append(starts[1:] != starts[:-1], True)  # where several steps fall on one point, the last one counts
    return Pieces(0, last, starts[final], scores[final])


def _shifted(numbers: Array, first: int, *, fits: bool) -> Array:
    """numbers − first, as uint64 where that fits."""
    if numbers.dtype == object or not fits:
        shifted = numbers.astype(object) - first if first else numbers.astype(object)
        return shifted.astype(np.uint64) if fits else shifted
    return numbers.astype(np.uint64) - np.uint64(first % _WORD)


def whole_units(values: Array) -> tuple[Array, int]:
    """Return exact numbers as whole multiples of 1/unit: (multiples, unit)."""
    if values.dtype == np.float64:
        if bool(np.all(np.abs(values) < 2.0**53)) and bool(np.all(values == np.rint(values))):
            return values.astype(np.int64), 1
        values = np.fromiter(map(Fraction, values.tolist()), dtype=object, count=len(values))
    if values.dtype != object:
        return values, 1
    unit = math.lcm(*{value.denominator for value in values})
    return np.fromiter((int(value * unit) for value in values), dtype=object, count=len(values)), unit
