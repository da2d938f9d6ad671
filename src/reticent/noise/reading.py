"""Read scores and counts without rounding. Messages do not contain the values, which may be private."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]  # a machine type where all numbers fit, objects (Python ints, Fractions) where they do not


def whole_numbers(values: ArrayLike | Iterable[Any], name: str) -> Array:
    """Return a one-dimensional array of whole numbers: int64 or uint64 if given as such, else Python ints."""
    array = _one_dimensional(values, name)
    if array.dtype.kind in "iu" or array.size == 0:
        return array.astype(np.uint64 if array.dtype == np.uint64 else np.int64)
    kinds = set(map(type, array))
    if array.dtype != object or bool in kinds or not all(issubclass(kind, Integral) for kind in kinds):
        raise TypeError(f"{name} must be whole numbers")
    return np.fromiter(map(int, array), dtype=object, count=len(array))


def exact_numbers(values: ArrayLike | Iterable[Any], name: str) -> Array:
    """Return a one-dimensional, non-empty array of finite numbers, none of them rounded.

    The type is int64, float64, or object (Python ints and Fractions).
    """
    array = _one_dimensional(values, name)
    if array.size == 0:
        raise ValueError(f"{name} must not be empty")
    if array.dtype == object or array.dtype.kind == "f":
        return _exact_reals(array, name)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be real numbers")
    return array.astype(object if array.dtype == np.uint64 and int(array.max()) >= 1 << 63 else np.int64)


def _exact_reals(array: Array, name: str) -> Array:
    kinds = set(map(type, array)) if array.dtype == object else {float}
    if kinds == {float} and array.dtype.itemsize <= 8:
        floats = array.astype(np.float64)
        if not bool(np.isfinite(floats).all()):
            raise ValueError(f"{name} must be finite: one of them is NaN or infinite")
        return floats
    exact = array if kinds == {int} else np.fromiter((_exact(x, name) for x in array), dtype=object, count=len(array))
    try:
        return exact.astype(np.int64) if all(issubclass(kind, Integral) for kind in kinds) else exact
    except OverflowError:
        return exact.copy()


def _one_dimensional(values: ArrayLike | Iterable[Any], name: str) -> Array:
    if not hasattr(values, "__array__"):
        if isinstance(values, (str, bytes, dict, set)) or not isinstance(values, Iterable):
            raise TypeError(f"{name} must be a one-dimensional sequence of numbers, got {type(values).__name__}")
        values = np.array(list(values), dtype=object)
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got {array.ndim} dimensions")
    return array


def _exact(value: object, name: str) -> int | Fraction:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{name} must be real numbers, got {type(value).__name__}")
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite: one of them is NaN or infinite")
    return Fraction(*value.as_integer_ratio())  # type: ignore[union-attr]
