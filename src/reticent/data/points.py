"""Reading points, labels and weights exactly, and refusing what cannot be read; no message repeats a value."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from reticent.data.lists import as_floats
from reticent.data.tables import check_two_dimensions, refuse_complex, refuse_masked

Array = NDArray[Any]
Labels = NDArray[np.int64]

_INT64 = np.iinfo(np.int64)


def as_array(values: ArrayLike, name: str) -> Array:
    """An array of machine numbers, datetimes or (where they are wider than 64 bits) Python ints; nothing is rounded.

    Lists are read value by value: numpy by itself would turn [2**63, -1] into floats.
    """
    refuse_masked(values, name)
    if hasattr(values, "__array__"):
        array = np.asarray(values)
    elif isinstance(values, (str, bytes, dict, set)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be an array or a sequence of points, got {type(values).__name__}")
    else:
        array = np.array(list(values), dtype=object)
    if array.ndim == 0:
        raise TypeError(f"{name} must be an array or a sequence of points, got a single {type(values).__name__}")
    if array.dtype == object:
        return _of_one_type(array, name)
    if array.dtype.kind not in "biufM":
        kind = {"U": "strings", "S": "bytes", "c": "complex numbers", "m": "time differences"}.get(array.dtype.kind)
        raise TypeError(f"{name} must hold numbers or datetimes, got {kind or array.dtype}; encode them as numbers")
    return array


def _of_one_type(array: Array, name: str) -> Array:
    """An array of objects as what its objects are; a refusal does not tell what they are."""
    try:
        found = _by_common_kind(array, name)
    except Exception as error:
        if isinstance(error, _RefusedPoints):
            raise TypeError(str(error)) from None
        found = None  # the code of a value fails; its message may hold data
    if found is None:
        raise TypeError(f"{name} must hold whole numbers, floats or datetimes")
    return found


class _RefusedPoints(Exception):
    """A refusal in words of our own."""


def _by_common_kind(array: Array, name: str) -> Array | None:
    """An array of objects as what its objects are; None if they are not all numbers or all datetimes."""
    kinds = set(map(type, array.flat))
    if all(issubclass(kind, (Integral, np.bool_)) for kind in kinds):
        return compact(np.fromiter(map(int, array.flat), dtype=object, count=array.size)).reshape(array.shape)
    if kinds <= {datetime.datetime, datetime.date}:
        if any(getattr(moment, "tzinfo", None) is not None for moment in array.flat):
            raise _RefusedPoints(f"{name} must hold datetimes without a time zone; convert them to UTC and drop it")
        return array.astype("datetime64[us]")
    if all(issubclass(kind, np.datetime64) for kind in kinds):
        return np.array(array.tolist() if array.ndim == 1 else list(array.flat)).reshape(array.shape)
    if all(issubclass(kind, Real) and not issubclass(kind, np.longdouble) for kind in kinds) and any(
        issubclass(kind, (float, np.floating)) for kind in kinds
    ):
        floats = [nearest_float(value) for value in array.flat]
        # Python compares whole numbers with floats exactly; numpy would round them first.
        if all(mine == theirs or math.isnan(mine) for mine, theirs in zip(floats, array.flat, strict=True)):
            return np.array(floats).reshape(array.shape)
        if all(float(mine).is_integer() for mine in floats):  # a list of whole numbers, however each is written
            return compact(np.fromiter(map(int, array.flat), dtype=object, count=array.size)).reshape(array.shape)
        raise _RefusedPoints(
            f"{name} must hold whole numbers or floats alone: it mixes floats with numbers that are no floats, and one "
            "of them would have to be rounded"
        )
    return None


def nearest_float(value: Any) -> float:
    """A number as a float; infinity if it is larger than all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def compact(numbers: Array) -> Array:
    """Python ints as int64 where all of them fit."""
    if all(_INT64.min <= number <= _INT64.max for number in numbers.flat):
        return numbers.astype(np.int64)
    return numbers


def as_rows(X: ArrayLike, columns: int, name: str = "X") -> Array:
    """`X` with the shape (rows,) where there is one column, (rows, columns) where there are more."""
    array = as_array(X, name)
    if columns == 1:
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(f"{name} must be one-dimensional or have a single column, got the shape {array.shape}")
    elif array.ndim != 2 or array.shape[1] != columns:
        raise ValueError(f"{name} must have the shape (rows, {columns}), got {array.shape}")
    return array


def zeros_and_ones(mask: Array) -> Labels:
    """Booleans as labels."""
    labels: Labels = mask.astype(np.int64)
    return labels


def as_weights(weights: ArrayLike, rows: int, name: str = "weights") -> Array:
    """Whole numbers, one per row: int64 where no sum of them can overflow, Python ints elsewhere."""
    array = as_array(weights, name)
    if array.size and array.dtype.kind not in "biuO":
        raise TypeError(f"{name} must be whole numbers, got {array.dtype}")
    if array.shape != (rows,):
        raise ValueError(f"{name} must hold one whole number per row: {rows} rows, but their shape is {array.shape}")
    wide = array.dtype == object or float(np.abs(array.astype(np.float64)).sum()) >= 2.0**62
    return array.astype(object if wide else np.int64)


def magnitude(weights: Array) -> float:
    """An upper bound on the absolute value of every sum of some of the weights, in floating point."""
    return float("inf") if weights.dtype == object else float(np.abs(weights).sum()) * 1.000001


def as_point_table(X: ArrayLike, name: str = "X", *, domain_declared: bool = True) -> Array:
    """Rows and columns, nothing rounded; at least one of each.

    If the domain is not declared, the type of the rows decides it. Then a list is read as floats: see `data.lists`.
    """
    if not domain_declared and isinstance(X, (list, tuple)):
        X = as_floats(X, name)
    if sparse.issparse(X):
        raise TypeError(f"{name} must be a dense array, got a sparse matrix; call its toarray()")
    refuse_complex(X, name)
    array = as_array(X, name)
    check_two_dimensions(array, name)
    for count, what in zip(array.shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(f"{name} has 0 {what}(s) (shape={array.shape}) while a minimum of 1 is required.")
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise ValueError(f"{name} must be finite: it holds NaN or inf")
    return array


def points_of(rows: Array, columns: int) -> Array:
    """Rows of a table as a concept class takes them: if it has a single column, the values of that column."""
    return rows[:, 0] if columns == 1 == rows.shape[1] else rows
