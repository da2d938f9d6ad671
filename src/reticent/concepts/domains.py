"""Ordered domains as ranges of whole numbers, by exactly invertible maps that preserve the order.

Every ordered class works on ranks. The rank of an integer is the integer itself; that of a float is its position among
all floats, counted from 0.0; that of a datetime is its number of ticks since 1970. So the same exact code serves all of
them, and a private mechanism over a range of integers serves floats and datetimes too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.values import Value
from reticent.data.points import Array, as_array, as_rows, compact
from reticent.exact import integer

Position: TypeAlias = int | float  # a rank, or ±inf beyond all of them


class Domain(ABC):
    """An ordered set of values, numbered in order by the integers of [first, last].

    `first` and `last` are None if the domain is unbounded.
    """

    @property
    @abstractmethod
    def first(self) -> int | None:
        """The rank of the least value."""

    @property
    @abstractmethod
    def last(self) -> int | None:
        """The rank of the greatest value."""

    @property
    def size(self) -> int | None:
        """The number of values; None for infinitely many."""
        return None if self.first is None or self.last is None else self.last - self.first + 1

    def ranks(self, values: ArrayLike, name: str = "X") -> Array:
        """Return the ranks of an array of values: int64 or uint64, or Python ints if the domain is wider."""
        return self.ranks_of(as_array(values, name), name)

    @abstractmethod
    def ranks_of(self, array: Array, name: str) -> Array:
        """Return the ranks of values that were already read as an array."""

    @abstractmethod
    def values(self, ranks: ArrayLike) -> Array:
        """Return the values with the given ranks: `domain.values(domain.ranks(x))` equals `x`."""

    @abstractmethod
    def value(self, rank: int) -> Value:
        """Return the value with the given rank; for last + 1, a bound above all values."""

    @abstractmethod
    def at_or_above(self, bound: Value) -> Position:
        """Return the least rank whose value is at least `bound`; ±inf if it is beyond the domain."""

    @abstractmethod
    def above(self, bound: Value) -> Position:
        """Return the least rank whose value is greater than `bound`; ±inf if it is beyond the domain."""

    @property
    def nothing(self) -> tuple[Value, Value]:
        """The ends (low, high) of an empty interval, such as [1, 0]."""
        return self.value(1), self.value(0)


@dataclass(frozen=True)
class Integers(Domain):
    """The integers of [0, 2^bits), or all integers.

    Parameters
    ----------
    bits : int or None, default None
        The width; None for all integers.

    Examples
    --------
    >>> Integers(bits=100).ranks([2**99, 0])
    array([633825300114114700748351602688, 0], dtype=object)
    """

    bits: int | None = None

    def __post_init__(self) -> None:
        if self.bits is not None:
            object.__setattr__(self, "bits", integer(self.bits, "bits", least=1))

    @property
    def first(self) -> int | None:
        """0, or None for all integers."""
        return None if self.bits is None else 0

    @property
    def last(self) -> int | None:
        """2^bits − 1, or None for all integers."""
        return None if self.bits is None else (1 << self.bits) - 1

    def ranks_of(self, array: Array, name: str) -> Array:
        """Return the integers themselves; floats are accepted if they are whole numbers."""
        if array.dtype.kind == "f":
            array = _whole(array, name)
        if array.dtype.kind not in "biuO":
            raise TypeError(f"{name} must hold whole numbers, got {array.dtype}")
        if array.size and self.last is not None and (int(array.min()) < 0 or int(array.max()) > self.last):
            raise ValueError(f"{name} must lie in [0, 2^{self.bits}): a value lies outside")
        if self.bits is None:
            fits = array.dtype.kind in "bi" or (array.dtype.kind == "u" and int(array.max(initial=0)) < 1 << 63)
            return array.astype(np.int64) if fits else compact(array.astype(object))
        return array.astype(np.int64 if self.bits < 64 else np.uint64 if self.bits == 64 else object)

    def values(self, ranks: ArrayLike) -> Array:
        """Return the ranks themselves."""
        return self.ranks(ranks, "ranks")

    def value(self, rank: int) -> Value:
        """Return the rank itself."""
        return rank

    def at_or_above(self, bound: Value) -> Position:
        """Return the least integer that is at least `bound`."""
        number = _number(bound, "integers")
        return number if (isinstance(number, float) and math.isinf(number)) else math.ceil(number)

    def above(self, bound: Value) -> Position:
        """Return the least integer that is greater than `bound`."""
        number = _number(bound, "integers")
        return number if (isinstance(number, float) and math.isinf(number)) else math.floor(number) + 1


_FLOATS: dict[int, tuple[Any, Any]] = {
    16: (np.float16, np.int16),
    32: (np.float32, np.int32),
    64: (np.float64, np.int64),
}


@dataclass(frozen=True)
class Floats(Domain):
    """The finite floats of 16, 32 or 64 bits. 0.0 and −0.0 are one value.

    The bits of a float, read as sign and magnitude, are its position in the order of the floats. Infinities lie above
    and below the domain, so a threshold at infinity is above every point.

    Parameters
    ----------
    bits : {16, 32, 64}, default 64
        The width.

    Examples
    --------
    >>> Floats().ranks([0.0, 5e-324, -0.0, 1.0])
    array([                  0,                   1,                   0,
           4607182418800017408])
    """

    bits: int = 64

    def __post_init__(self) -> None:
        if self.bits not in _FLOATS:
            raise ValueError(f"bits must be 16, 32 or 64, got {self.bits}")

    @property
    def last(self) -> int:
        """The rank of the greatest finite float."""
        kind, word = _FLOATS[self.bits]
        return int(np.array(np.finfo(kind).max, dtype=kind).view(word))

    @property
    def first(self) -> int:
        """The rank of the least finite float."""
        return -self.last

    def ranks_of(self, array: Array, name: str) -> Array:
        """Return positions among the floats, as int64. Whole numbers are accepted if they are floats of this width."""
        if array.dtype.kind not in "biufO":
            raise TypeError(f"{name} must hold floats, got {array.dtype}")
        if array.dtype.kind == "f":
            check_finite(array, name)
        kind, word = _FLOATS[self.bits]
        floats = array if array.dtype == kind else self._rounded(array, name)
        bits = np.ascontiguousarray(floats).view(word).astype(np.int64)
        return np.asarray(np.where(bits < 0, -(bits & ((1 << (self.bits - 1)) - 1)), bits))

    def _rounded(self, array: Array, name: str) -> Array:
        kind = _FLOATS[self.bits][0]
        with np.errstate(over="ignore"):
            try:
                floats: Array = array.astype(kind)
            except OverflowError:
                floats = np.full(array.shape, np.inf, dtype=kind)
        # Compared as Python numbers where numpy would round the integers before it compares.
        exact = floats == array if array.dtype.kind in "bf" else floats.astype(object) == array.astype(object)
        if not bool(np.all(exact & np.isfinite(floats))):
            raise ValueError(f"{name} must hold floats of {self.bits} bits: a value would have to be rounded")
        return floats

    def values(self, ranks: ArrayLike) -> Array:
        """Return the floats at the given positions."""
        positions = Integers().ranks(ranks, "ranks")
        kind, word = _FLOATS[self.bits]
        if positions.size and (int(positions.min()) < self.first or int(positions.max()) > self.last):
            raise ValueError("ranks must be those of finite floats: one lies outside")
        magnitudes = np.abs(positions.astype(np.int64)).astype(word).view(kind)
        return np.asarray(np.where(positions < 0, -magnitudes, magnitudes))

    def value(self, rank: int) -> Value:
        """Return the float at this position."""
        return math.inf if rank == self.last + 1 else float(self.values([rank])[0])

    def at_or_above(self, bound: Value) -> Position:
        """Return the position of the least float that is at least `bound`."""
        return self._rank_of(bound, beyond=False)

    def above(self, bound: Value) -> Position:
        """Return the position of the least float that is greater than `bound`."""
        return self._rank_of(bound, beyond=True)

    def _rank_of(self, bound: Value, *, beyond: bool) -> Position:
        number = _number(bound, "floats")
        greatest = self.value(self.last)
        assert isinstance(greatest, float)
        if number > greatest or number < -greatest:  # exact: Python compares ints with floats without rounding
            return math.inf if number > 0 else -math.inf
        nearest = _FLOATS[self.bits][0](number)
        rank = int(self.ranks(np.array([nearest]))[0])
        return rank + int(float(nearest) < number or (beyond and float(nearest) == number))

    @property
    def nothing(self) -> tuple[Value, Value]:
        """The empty interval [1.0, 0.0]."""
        return 1.0, 0.0


@dataclass(frozen=True)
class Datetimes(Domain):
    """The datetimes that numpy represents in 64 bits in a given unit, without a time zone.

    NaT is refused. The last tick is reserved for the threshold above every point.

    Parameters
    ----------
    unit : str, default "ns"
        The unit, as in numpy.

    Examples
    --------
    >>> Datetimes("D").ranks(np.array(["1970-01-02", "1969-12-31"], dtype="datetime64[D]"))
    array([ 1, -1])
    """

    unit: str = "ns"

    def __post_init__(self) -> None:
        if self.unit not in _UNITS:
            raise ValueError(f"unit must be one of {', '.join(_UNITS)}, got {self.unit!r}")

    @property
    def first(self) -> int:
        """The first tick after that of NaT."""
        return -(1 << 63) + 1

    @property
    def last(self) -> int:
        """The last tick but one."""
        return (1 << 63) - 2

    def ranks_of(self, array: Array, name: str) -> Array:
        """Return ticks since 1970; other units are accepted if they convert without a remainder."""
        if array.dtype.kind != "M" and array.size:
            raise TypeError(f"{name} must hold datetimes, got {array.dtype}")
        if array.size == 0:
            return np.zeros(array.shape, dtype=np.int64)
        if bool(np.isnat(array).any()):
            raise ValueError(f"{name} must not hold NaT")
        try:
            moments = array.astype(f"datetime64[{self.unit}]")
            exact = bool(np.all((moments.astype(array.dtype) == array) & ~np.isnat(moments)))
        except OverflowError:
            exact = False
        if not exact:
            raise ValueError(f"{name} must hold whole numbers of the unit {self.unit!r} within its range")
        ticks = np.ascontiguousarray(moments).view(np.int64)
        if int(ticks.max()) > self.last:
            raise ValueError(f"{name} must not hold the last tick of the unit {self.unit!r}")
        return ticks

    def values(self, ranks: ArrayLike) -> Array:
        """Return the datetimes with the given numbers of ticks since 1970."""
        ticks = Integers().ranks(ranks, "ranks")
        if ticks.size and (int(ticks.min()) < self.first or int(ticks.max()) > self.last):
            raise ValueError("ranks must be those of datetimes: one lies outside")
        return ticks.astype(np.int64).view(f"datetime64[{self.unit}]")

    def value(self, rank: int) -> Value:
        """Return the datetime with the given number of ticks since 1970."""
        moment: np.datetime64 = np.array([rank]).view(f"datetime64[{self.unit}]")[0]
        return moment

    def at_or_above(self, bound: Value) -> Position:
        """Return the least tick that is at or after `bound`."""
        tick, exact = self._tick(bound)
        return tick if exact else tick + 1

    def above(self, bound: Value) -> Position:
        """Return the least tick after `bound`."""
        return self._tick(bound)[0] + 1

    def _tick(self, bound: Value) -> tuple[int, bool]:
        """The last tick at or before `bound`, and whether that is `bound` itself."""
        if not isinstance(bound, np.datetime64):
            raise TypeError(f"the points are datetimes, but the concept is about {type(bound).__name__}")
        unit, step = np.datetime_data(bound.dtype)
        if unit == self.unit and step == 1:
            return int(bound.view(np.int64)), True
        try:
            tick = bound.astype(f"datetime64[{self.unit}]")
            one = np.ones((), dtype=f"timedelta64[{self.unit}]")
            back, after = (moment.astype(bound.dtype) for moment in (tick, tick + one))
            # If numpy overflows silently, `bound` is neither the converted value nor between two ticks.
            within = bool(back == bound or back < bound < after)
        except OverflowError:
            within = False
        if not within:
            raise ValueError(f"the concept's date lies outside the range of the unit {self.unit!r}")
        return int(tick.view(np.int64)), bool(back == bound)


_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")


def _number(bound: Value, of: str) -> int | float:
    if isinstance(bound, np.datetime64):
        raise TypeError(f"the points are {of}, but the concept is about datetimes")
    return bound


def check_finite(array: Array, name: str) -> None:
    """Raise a ValueError if an array of floats holds NaN or infinite values."""
    if not bool(np.isfinite(array).all()):
        raise ValueError(f"{name} must be finite: it holds NaN or infinite values")


def _whole(array: Array, name: str) -> Array:
    check_finite(array, name)
    if not bool(np.all(array == np.rint(array))):
        raise ValueError(f"{name} must hold whole numbers: it holds fractions")
    if array.dtype.itemsize <= 8 and bool(np.all(np.abs(array.astype(np.float64)) < 2.0**63)):
        return array.astype(np.int64)
    return np.fromiter(map(int, array.flat), dtype=object, count=array.size).reshape(array.shape)


def declared(bits: int | None, domain: Domain | None) -> Domain | None:
    """Return the domain that a class was given by `bits` or `domain`, or None.

    Parameters
    ----------
    bits : int or None
        Short for `Integers(bits)`.
    domain : Domain or None
        The domain. At most one of the two is given.
    """
    if domain is not None and not isinstance(domain, Domain):
        raise TypeError(f"domain must be Integers, Floats or Datetimes, got {type(domain).__name__}")
    if bits is None:
        return domain
    if domain is not None:
        raise ValueError("give either bits or a domain, not both: bits=d is short for domain=Integers(d)")
    return Integers(bits)


def required_domain(bits: int | None, domain: Domain | None) -> Domain:
    """Return the domain that is given by `bits` or `domain`, as `declared` does; refuse if neither is given.

    Parameters
    ----------
    bits : int or None
        Short for `Integers(bits)`.
    domain : Domain or None
        The domain. One of the two is given.
    """
    found = declared(bits, domain)
    if found is None:
        raise ValueError("give bits, or a domain such as Floats() or Integers(): which values there are is public")
    return found


def natural(array: Array) -> Domain:
    """Return the domain that the type of an array stands for."""
    if array.dtype.kind == "f":
        return Floats()
    if array.dtype.kind == "M":
        unit, step = np.datetime_data(array.dtype)
        if step != 1 or unit not in _UNITS:
            raise TypeError("X must hold datetimes of a plain unit such as 'ns' or 'D'")
        return Datetimes(unit)
    return Integers()


def read_ranks(X: ArrayLike, columns: int, domain: Domain | None, name: str = "X") -> tuple[Array, Domain]:
    """Return the ranks of the rows of `X`, and the domain they belong to."""
    array = as_rows(X, columns, name)
    domain = domain or natural(array)
    return domain.ranks_of(array, name), domain


def below(ranks: Array, position: Position) -> Array:
    """Return which ranks lie below a position, compared exactly for every width of both."""
    if ranks.dtype == object:
        return np.asarray(ranks < position, dtype=bool)
    info = np.iinfo(ranks.dtype)
    if position > info.max:
        return np.ones(ranks.shape, dtype=bool)
    if position <= info.min:
        return np.zeros(ranks.shape, dtype=bool)
    return np.asarray(ranks < ranks.dtype.type(position))
