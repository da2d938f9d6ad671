"""Checks of parameters, above all of privacy parameters. They come before any private data are read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction

from reticent.errors import PrivacyWarning
from reticent.exact import Number, rational, upward

LEAST_DELTA = Fraction(1, 10**299)  # bounds on δ are rounded up by 1e-300, since underflow is not zero


def check_epsilon(epsilon: Number, name: str = "epsilon") -> Fraction:
    """Return ε as an exact number; it must be finite and positive.

    Parameters
    ----------
    epsilon : int, float, Fraction or Decimal
        The ε. Other types are refused.
    name : str, default "epsilon"
        The name of the parameter, for messages.
    """
    value = rational(epsilon, name)
    if value.numerator <= 0:
        raise ValueError(f"{name} must be a finite number > 0, got {epsilon}")
    return value


def check_delta(delta: Number, name: str = "delta", *, positive: bool = False, rows: int | None = None) -> Fraction:
    """Return δ as an exact number in [0, 1), or in (0, 1) if it must be positive.

    Parameters
    ----------
    delta : int, float, Fraction or Decimal
        The δ. Other types are refused.
    name : str, default "delta"
        The name of the parameter, for messages.
    positive : bool, default False
        Whether 0 is refused.
    rows : int or None, default None
        The number of rows, if known. A `PrivacyWarning` is emitted if δ ≥ 1/rows.
    """
    value = rational(delta, name)
    if not 0 <= value.numerator < value.denominator or (positive and not value):
        raise ValueError(f"{name} must be in {'(0, 1)' if positive else '[0, 1)'}, got {delta}")
    if rows and value * rows >= 1:
        warnings.warn(
            f"{name}={upward(value):g} is not below 1/{rows}: a mechanism that publishes one of the {rows} rows, "
            f"picked at random, would meet this guarantee. Choose {name} well below {1 / rows:.1g}.",
            PrivacyWarning,
            stacklevel=3,
        )
    return value


def check_certifiable(delta: Fraction, name: str = "delta") -> None:
    """Refuse a δ > 0 that is too small to be certified in floating point for noise with unbounded tails."""
    if 0 < delta < LEAST_DELTA:
        raise ValueError(
            f"{name}={_decimal(delta)} is too small: for noise with tails no delta below {float(LEAST_DELTA):g} can be "
            f"certified in floating point; choose a larger {name}, or a method that allows {name}=0"
        )


def _decimal(value: Fraction) -> str:
    """A number that may underflow as a float, to one digit."""
    power = len(str(value.numerator)) - len(str(value.denominator))
    power -= value < Fraction(10) ** power
    return f"{float(value / Fraction(10) ** power):.3g}e{power}"


def float_above(value: Fraction) -> float:
    """Return the least float that is not below `value`, where floats are read as the decimals that they print as.

    >>> float_above(Fraction(3, 10)), float_above(Fraction(1, 3))
    (0.3, 0.33333333333333337)
    """
    nearest = float(value)
    return nearest if rational(nearest, "value") >= value else math.nextafter(nearest, math.inf)


def check_positive(value: Number, name: str) -> Fraction:
    """Return a noise scale or another quantity as an exact number; it must be finite and positive."""
    number = rational(value, name)
    if number.numerator <= 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value}")
    return number


def check_choice(value: object, name: str, accepted: Sequence[str]) -> None:
    """Refuse a parameter that is none of these words.

    Parameters
    ----------
    value : object
        What was given.
    name : str
        The name of the parameter, for messages.
    accepted : sequence of str
        The words.
    """
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {value!r}")


def check_flag(value: object, name: str) -> None:
    """Refuse a parameter that is neither True nor False.

    Parameters
    ----------
    value : object
        What was given.
    name : str
        The name of the parameter, for messages.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}")
