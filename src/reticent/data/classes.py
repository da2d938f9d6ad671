"""The classes that a caller declares, in the one order that every estimator gives them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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


def declared_classes(classes: Any) -> Array | None:
    """The declared classes in ascending order, whatever order was given; None if those that occur are public."""
    if classes is None:
        raise ValueError(
            'classes must be given, as in classes=(0, 1): labels are private. If it is public which occur in y, '
            'set classes="public"'
        )
    if isinstance(classes, str):
        if classes != "public":
            raise ValueError(f'classes must be a sequence of classes or "public", got {classes!r}')
        return None
    if not isinstance(classes, Collection):
        raise TypeError(f'classes must be a sequence of classes or "public", got {type(classes).__name__}')
    return sorted_classes(classes)


def as_classes(classes: Any, labels: Array) -> Array:
    """`declared_classes`, or, declared public, those that occur, in ascending order too."""
    if (declared := declared_classes(classes)) is not None:
        return declared
    try:
        found = np.unique(labels)
    except TypeError:
        raise TypeError("y must hold labels of one type: they could not be compared") from None
    if len(found) < 2:
        got = "1 class" if len(found) else "none"
        raise ValueError(f"y must hold at least 2 different labels to learn the classes from, got {got}")
    return found
