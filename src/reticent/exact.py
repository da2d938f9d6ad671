"""Exact numbers: how parameters are read, and certified bounds on logarithms and exponentials.

Privacy parameters are read as the decimals that the caller wrote: `0.1` means one tenth, not the nearest binary
fraction. So ten steps of 0.1 make exactly 1, and the law that is sampled is the law that is priced.

Values of `exp` and `log` are integer enclosures of any precision. A decision that depends on such a value (a ceiling, a
comparison with random bits) raises the precision until it is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Rational, Real
from typing import SupportsFloat

Number = int | float | Fraction | Decimal


def rational(value: object, name: str) -> Fraction:
    """Return the exact number that `value` spells; floats are read as their shortest decimal.

    Parameters
    ----------
    value : int, float, Fraction or Decimal
        The number. Other types are refused.
    name : str
        The name of the parameter, for messages.

    Examples
    --------
    >>> rational(0.1, "epsilon")
    Fraction(1, 10)
    """
    if type(value) is Fraction and type(value.numerator) is int and type(value.denominator) is int:
        return value  # parameters are read at every call of a mechanism, and abstract types are slow to check
    if type(value) is int:
        return Fraction(value)
    if type(value) is float and math.isfinite(value):
        return Fraction(Decimal(repr(value)))
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    number = value if isinstance(value, Decimal) else Decimal(repr(float(_as_float(value))))
    if not number.is_finite():
        raise ValueError(f"{name} must be finite, got {value}")
    return Fraction(number)


def _as_float(value: SupportsFloat) -> float:
    return float(value)


def integer(value: object, name: str, *, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int; refuse what is not a whole number in range.

    Parameters
    ----------
    value : int
        The number. Other types, floats and booleans among them, are refused.
    name : str
        The name of the parameter, for messages.
    least, most : int or None, default None
        The range, both ends included.
    """
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}")
    number = int(value)
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def as_count(
    value: object, name: str, *, least: int | None = None, most: int | None = None, otherwise: str = ""
) -> int:
    """Return `value` as an int, as `integer` does, with a message that shows the value.

    Use it for public parameters only: the message contains the value.

    Parameters
    ----------
    value : int
        The number. Other types are refused.
    name : str
        The name of the parameter, for messages.
    least, most : int or None, default None
        The range, both ends included.
    otherwise : str, default ""
        What else is accepted, such as 'None', for the message.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        got = repr(value) if value is None or isinstance(value, (Real, str)) else type(value).__name__
        bound = "" if least is None else f" of at least {least}"
        raise TypeError(f"{name} must be a whole number{bound}{otherwise and f' or {otherwise}'}, got {got}")
    return integer(value, name, least=least, most=most)


def upward(value: Fraction) -> float:
    """Return the least float that is not below `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


# ── certified exp and log ─────────────────────────────────────────────────────────────────────────────────────────

@lru_cache(maxsize=64)
def _ln2(bits: int) -> tuple[int, int]:
    """Integers low ≤ 2^bits·ln 2 ≤ high, by the series Σ 1/(k·2^k)."""
    work = bits + bits.bit_length() + 1
    low = sum((1 << work - k) // k for k in range(1, work + 1))
    high = low + work + 1  # each of `work` terms lost less than 1, and the rest of the series is below 1
    return low >> work - bits, -(-high >> work - bits)


@lru_cache(maxsize=65536)
def exp_bounds(x: Fraction, bits: int) -> tuple[int, int, int]:
    """Return integers (low, high, k) with low·2^(k−bits) ≤ e^x ≤ high·2^(k−bits), where low and high are a few units
    apart.

    `low` has about `bits` bits, and k is about ⌊x/ln 2⌋.

    e^x = 2^k·(e^(r/2^s))^(2^s) with r = x − k·ln 2 ≥ 0. All numbers are positive, so rounding every step of the Taylor
    series and every squaring down (up) gives a lower (upper) bound.
    """
    halvings = 4 + math.isqrt(bits) // 2
    size = max(0, x.numerator.bit_length() - x.denominator.bit_length()) + 2  # k has no more bits
    work = (bits + halvings + size + 16 | 63) + 1  # rounded up to multiples of 64, so that ln 2 is cached
    low2, high2 = _ln2(work)
    scaled = (x.numerator << work) // x.denominator
    k = scaled // (high2 if scaled >= 0 else low2)
    low_r, high_r = scaled - max(k * low2, k * high2), scaled + 1 - min(k * low2, k * high2)
    low_r, high_r = low_r >> halvings, -(-high_r >> halvings)
    low = high = low_term = high_term = 1 << work
    n = 0
    while low_term:
        n += 1
        low_term, high_term = (low_term * low_r >> work) // n, -((-high_term * high_r >> work) // n)
        low += low_term
        high += high_term
    high += high_term  # the rest of the series: each term is below half of the one before
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    drop = work - bits
    return low >> drop, -(-high >> drop), k


@lru_cache(maxsize=4096)
def log_bounds(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds on ln x, for x > 0, that are less than 2^−bits apart.

    x = 2^k·m, and ln m = y + ln(1 + d) with 1 + d = m·e^−y for any y; d − d² ≤ ln(1 + d) ≤ d if |d| ≤ 1/2. The first y
    is a floating-point logarithm, and each next one the middle of the last bounds, so every round doubles the digits.
    """
    if x <= 0:
        raise ValueError("the logarithm needs a positive number")
    k = x.numerator.bit_length() - x.denominator.bit_length()
    mantissa = x / Fraction(2) ** k  # in (1/2, 2)
    work = bits + 16 + abs(k).bit_length()
    one = 1 << work
    y = int(math.log(mantissa) * 2**60) << work >> 60
    while True:
        low, high, exponent = exp_bounds.__wrapped__(Fraction(-y, one), work)
        low_d = _scaled(mantissa.numerator * low, exponent, mantissa.denominator) - one
        high_d = 1 + _scaled(mantissa.numerator * high, exponent, mantissa.denominator) - one
        low, high = y + low_d - (low_d * low_d >> work) - 1, y + high_d
        if high - low < 64:
            break
        y = low + high >> 1
    low2, high2 = _ln2(work)
    return Fraction(low + min(k * low2, k * high2), one), Fraction(high + max(k * low2, k * high2), one)


def _scaled(numerator: int, exponent: int, denominator: int) -> int:
    """⌊2^exponent·numerator/denominator⌋"""
    return (numerator << max(0, exponent)) // (denominator << max(0, -exponent))


def exp_fractions(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds on e^x with a relative width of about 2^−bits."""
    low, high, k = exp_bounds(x, bits)
    scale = Fraction(2) ** (k - bits)
    return low * scale, high * scale


def ceiling(bounds: Callable[[int], tuple[Fraction, Fraction]]) -> int:
    """Return ⌈x⌉ for a real number x that `bounds(bits)` encloses more tightly as `bits` grows.

    A number that is not distinguished from an integer at 4096 bits is rounded up past it: callers take ceilings of
    thresholds, where one more is safe.
    """
    for bits in (64, 256, 1024, 4096):
        low, high = bounds(bits)
        if math.ceil(low) == math.ceil(high):
            break
    return math.ceil(high)
