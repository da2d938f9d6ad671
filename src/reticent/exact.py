"""Numbers without rounding: what a parameter means, and certified bounds on logarithms and exponentials.

Privacy parameters are read as the decimal their caller wrote: `0.1` means one tenth, not the binary fraction
nearest to it. So ten steps of 0.1 make exactly 1, and the law that is sampled is the law that is accounted.

Values of `exp` and `log` come as integer enclosures at any precision asked for. A decision that depends on such a
value (a ceiling, a comparison with random bits) asks for more precision until it is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Rational, Real
from typing import SupportsFloat

Number = int | float | Fraction | Decimal


def rational(value: object, name: str) -> Fraction:
    """The exact number that `value` spells: floats are read as their shortest decimal.

    >>> rational(0.1, "epsilon")
    Fraction(1, 10)
    """
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
    """`value` as an int; anything that is not a whole number in range is refused by name."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}")
    number = int(value)
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def upward(value: Fraction) -> float:
    """The least float that is not below `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


# ── certified exp and log ─────────────────────────────────────────────────────────────────────────────────────────

_LN2_NEARLY = Fraction("0.693147180559945309417232121458176568")  # only to choose a power of two; any value is correct


def _context(bits: int, rounding: str) -> Context:
    return Context(prec=int(bits * 0.30103) + 12, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _bounds(x: Fraction, bits: int) -> tuple[Decimal, Decimal]:
    numerator, denominator = Decimal(x.numerator), Decimal(x.denominator)
    down, up = _context(bits, ROUND_FLOOR), _context(bits, ROUND_CEILING)
    return down.divide(numerator, denominator), up.divide(numerator, denominator)


@lru_cache(maxsize=32)
def _ln2(bits: int) -> tuple[Decimal, Decimal]:
    context = _context(bits, ROUND_FLOOR)
    value = context.ln(Decimal(2))
    return context.next_minus(value), context.next_plus(value)


@lru_cache(maxsize=65536)
def exp_bounds(x: Fraction, bits: int) -> tuple[int, int, int]:
    """Integers (low, high, k) with low·2^(k−bits) ≤ e^x ≤ high·2^(k−bits) and low, high within a few units.

    `low` has about `bits` bits. Decimal's exp and ln are correctly rounded; one unit in the last place is added on
    either side all the same, so that the enclosure does not lean on that.
    """
    k = round(x / _LN2_NEARLY)
    guard = bits + 24 + abs(k).bit_length()
    low2, high2 = _ln2(guard)
    down, up = _context(guard, ROUND_FLOOR), _context(guard, ROUND_CEILING)
    low_x, high_x = _bounds(x, guard)
    # r = x − k·ln 2 lies in [low_r, high_r], about [−0.35, 0.35]
    low_r = down.subtract(low_x, up.multiply(Decimal(k), high2 if k >= 0 else low2))
    high_r = up.subtract(high_x, down.multiply(Decimal(k), low2 if k >= 0 else high2))
    low = down.next_minus(down.exp(low_r))
    high = up.next_plus(up.exp(high_r))
    scale = Decimal(2**bits)
    return (
        int(down.to_integral_value(down.multiply(low, scale))),
        int(up.to_integral_value(up.multiply(high, scale))),
        k,
    )


def log_bounds(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Rational bounds on ln x, for x > 0, that are about 2^−bits apart."""
    if x <= 0:
        raise ValueError("the logarithm needs a positive number")
    k = x.numerator.bit_length() - x.denominator.bit_length()
    mantissa = x / Fraction(2) ** k
    guard = bits + 24 + abs(k).bit_length()
    low2, high2 = _ln2(guard)
    down, up = _context(guard, ROUND_FLOOR), _context(guard, ROUND_CEILING)
    low_m, high_m = _bounds(mantissa, guard)
    low = Fraction(down.next_minus(down.ln(low_m))) + k * Fraction(low2 if k >= 0 else high2)
    high = Fraction(up.next_plus(up.ln(high_m))) + k * Fraction(high2 if k >= 0 else low2)
    return low, high


def exp_fractions(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Rational bounds on e^x with a relative width of about 2^−bits."""
    low, high, k = exp_bounds(x, bits)
    scale = Fraction(2) ** (k - bits)
    return low * scale, high * scale


def ceiling(bounds: Callable[[int], tuple[Fraction, Fraction]]) -> int:
    """⌈x⌉ for the real number x that `bounds(bits)` encloses ever more tightly.

    A number that cannot be told from an integer at 4096 bits is rounded up past it: the callers use ceilings of
    thresholds, where one more is safe.
    """
    for bits in (64, 256, 1024, 4096):
        low, high = bounds(bits)
        if math.ceil(low) == math.ceil(high):
            break
    return math.ceil(high)
