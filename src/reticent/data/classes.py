"""The classes that a caller declares, in the one order that every estimator gives them, and labels among them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Integers = NDArray[np.int64]


def sorted_classes(classes: Any) -> Array:
    """The declared classes in ascending order, as `np.unique` of labels would give them.

    Scikit-learn takes the last of two `classes_` for the positive class, and expects scores and columns in ascending
    order. So the order in which a caller names classes must not matter. What cannot be sorted is refused.

    >>> [sorted_classes(given).tolist() for given in (("spam", "ham"), [True, False], {2, 1.5})]
    [['ham', 'spam'], [False, True], [1.5, 2.0]]
    """
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Collection):
        raise TypeError(f"classes must be a sequence of labels, got {type(classes).__name__}")
    try:
        declared = list(classes)
        kinds = {(isinstance(one, str), isinstance(one, bytes)) for one in declared}
        found = np.asarray(declared)
    except (TypeError, ValueError):
        raise ValueError("classes must be a sequence of labels, all of one kind") from None
    if len(kinds) > 1:
        raise TypeError("classes must be all strings or all numbers")
    if found.ndim != 1:
        raise ValueError(f"classes must be a sequence of labels, got one of {found.ndim} dimensions")
    try:
        proper = all(bool(one == one) for one in declared)  # noqa: PLR0124  # NaN is not itself
        ascending = np.unique(found)
    except Exception:
        raise TypeError("classes must be labels of one kind: these cannot be sorted") from None
    if not proper or (found.dtype.kind in "fc" and not bool(np.isfinite(found).all())):
        raise ValueError("classes must not hold NaN or inf")
    if len(ascending) < max(2, len(found)):
        got = tuple(found.tolist()) if len(found) <= 2 else f"{len(found)}, of which {len(ascending)} differ"
        raise ValueError(f"classes must be at least 2 different labels, got {got}")
    return ascending


def label_array(labels: Any) -> Array:
    """Labels as NumPy reads them; an array of objects if one of them is itself a list or an array.

    NumPy refuses these by a message of its own. As objects, they are labels that no class is.

    >>> label_array([0, 1, [1]]).tolist()
    [0, 1, [1]]
    """
    try:
        return np.asarray(labels)
    except Exception:  # its message may hold data
        listed = list(labels)
        found = np.empty(len(listed), dtype=object)
        for place, label in enumerate(listed):
            found[place] = label
        return found


def codes_of(labels: Array, classes: Array) -> Integers:
    """The places of labels among the classes; −1 for one that is not among them."""
    order = np.argsort(classes, kind="stable")
    place = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    codes: Integers = order[place]
    return np.where(classes[codes] == labels, codes, -1)


def codes_of_any(labels: Array, classes: Array) -> Integers:
    """`codes_of` for labels of any kind: whatever cannot be compared with the classes is none of them.

    >>> codes_of_any(np.array([1, None, {}, 0.0], dtype=object), np.array([0, 1])).tolist()
    [1, -1, -1, 0]
    """
    kinds = {labels.dtype.kind, classes.dtype.kind}
    if kinds <= set("biufc") or (len(kinds) == 1 and kinds <= set("USM")):
        return codes_of(labels, classes)
    places = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([_place(label, places) for label in labels.ravel().tolist()], dtype=np.int64).reshape(labels.shape)


def _place(label: Any, places: dict[Any, int]) -> int:
    try:
        return places.get(label, -1)
    except Exception:  # it has no hash, or compares by code that fails
        return -1
