"""Labels, as a caller gives them, and the indices of their classes. No message repeats a label.

Labels are read once, here. Inside the package a label is the index of its class in `classes_`; estimators map indices
back to labels when they answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from reticent.data.classes import as_classes, declared_classes
from reticent.data.points import as_array
from reticent.silence import silent

Array = NDArray[Any]
Integers = NDArray[np.int64]

UNLABELLED = -1  # marks a row without a label


class ClassLabels(NamedTuple):
    """Labels that were read: the classes, ascending, and for each row the index of its class."""

    classes: Array
    indices: Integers


def read_labels(y: Any, rows: int, classes: Any) -> ClassLabels:
    """Read the labels of some rows, once.

    Parameters
    ----------
    y : array-like or ClassLabels
        One label per row. `ClassLabels` that were read before are taken as they are, if they have the declared classes.
    rows : int
        The number of rows.
    classes : sequence or "public"
        The declared classes; or "public", if it is public which labels occur in `y`.

    >>> read_labels(["yes", "no", "yes"], 3, ("yes", "no"))
    ClassLabels(classes=array(['no', 'yes'], dtype='<U3'), indices=array([1, 0, 1]))
    """
    if isinstance(y, ClassLabels):
        return _checked(y, rows, declared_classes(classes))
    labels = as_labels(y, rows, classes)
    known = as_classes(classes, labels)
    return ClassLabels(known, as_class_indices(labels, known))


def _checked(labels: ClassLabels, rows: int, declared: Array | None) -> ClassLabels:
    if labels.indices.shape != (rows,) or labels.indices.dtype.kind not in "iu":
        raise ValueError(f"y must have one index per row: {rows} rows, but the shape of y is {labels.indices.shape}")
    if declared is not None and not np.array_equal(declared, labels.classes):
        raise ValueError("y must have been read with the declared classes, in ascending order")
    if rows and not 0 <= int(labels.indices.min()) <= int(labels.indices.max()) < len(labels.classes):
        raise ValueError(f"y must hold only the {len(labels.classes)} declared classes: it holds another label")
    return labels


def as_column(values: Any, rows: int, name: str) -> Array:
    """One value per row, of labels, groups or clients."""
    if values is None:
        raise ValueError(f"{name} must have one value per row, got None")
    column = label_array(values)
    if column.shape == (rows, 1):
        column = column[:, 0]
    if column.shape != (rows,):
        raise ValueError(f"{name} must have one value per row: {rows} rows, but the shape of {name} is {column.shape}")
    return column


def any_labels(y: Any, rows: int) -> Array:
    """One label per row, refused by their number alone, each as it is: no label changes how another is read.

    NumPy would turn all labels of a list into text if one of them is, and then they were none of the classes.

    >>> any_labels([[0, 1], [1, 1]], 2).tolist(), any_labels([1, "x"], 2).tolist()
    ([[0, 1], [1, 1]], [1, 'x'])
    """
    if isinstance(y, (list, tuple)) and len(y) == rows:
        labels = np.empty(rows, dtype=object)
        for index, label in enumerate(y):
            labels[index] = label[()] if isinstance(label, np.ndarray) and label.ndim == 0 else label
        return labels
    return as_column(y, rows, "y")


def as_labels(y: Any, rows: int, classes: Any) -> Array:
    """Labels, one per row. If the classes are public, an error may also say that a label is not one of them."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: y must have one value per row")
    labels = as_column(y, rows, "y")
    if label_array(y).ndim == 2:
        labels = column_or_1d(y, warn=True)
    if isinstance(classes, str) and classes == "public":
        if labels.dtype.kind == "f" and not bool(np.isfinite(labels).all()):
            raise ValueError("y must hold labels only: it contains NaN or infinity")
        check_classification_targets(labels)
    return labels


def as_class_indices(labels: Array, classes: Array) -> Integers:
    """The index of each label among the classes; a label that was never declared is refused."""
    indices = class_indices_of_any(labels, classes)
    if bool((indices < 0).any()):
        raise ValueError(f"y must hold only the {len(classes)} declared classes: it holds another label")
    return indices


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
        for index, label in enumerate(listed):
            found[index] = label
        return found


def class_indices(labels: Array, classes: Array) -> Integers:
    """The index of each label among the classes; −1 for one that is not among them."""
    order = np.argsort(classes, kind="stable")
    found = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    indices: Integers = order[found]
    return np.where(classes[indices] == labels, indices, -1)


def class_indices_of_any(labels: Array, classes: Array) -> Integers:
    """`class_indices` for labels of any kind: what cannot be compared with the classes is not one of them.

    >>> class_indices_of_any(np.array([1, None, {}, 0.0], dtype=object), np.array([0, 1])).tolist()
    [1, -1, -1, 0]
    """
    kinds = {labels.dtype.kind, classes.dtype.kind}
    if kinds <= set("biufc") or (len(kinds) == 1 and kinds <= set("USM")):
        return class_indices(labels, classes)
    known = {label: index for same in (classes, classes.tolist()) for index, label in enumerate(same)}
    return np.array([_index(label, known) for label in labels.ravel().tolist()], dtype=np.int64).reshape(labels.shape)


def _index(label: Any, known: dict[Any, int]) -> int:
    try:
        return known.get(label, -1)
    except Exception:  # it has no hash, or compares by code that fails
        return -1


def refuse_unreadable_labels(y: Any) -> None:
    """Refuse labels that scikit-learn would refuse by quoting them."""
    try:
        array = y if sparse.issparse(y) else np.asarray(y)
    except Exception:
        raise ValueError("y must be an array, a data frame or a sparse matrix, with rows of one length") from None
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold real numbers")
    if array.dtype.kind == "O" and array.ndim and not all(map(_is_itself, array.flat)):
        raise ValueError("Input y contains NaN: y must hold a label for every row")


def _is_itself(value: Any) -> bool:
    """False for NaN, and for other values that stand for a missing one."""
    try:
        return bool(value == value)  # noqa: PLR0124
    except Exception:
        return False


def indices_in_declared(y: Any, classes: Array) -> Integers:
    """The index of each label among the declared classes. One message refuses all other labels."""
    indices = class_indices_of_any(label_array(y), classes)
    if bool((indices < 0).any()):
        raise ValueError("y must hold no label but those in classes")
    return indices


def observed_labels(y: Array) -> ClassLabels:
    """The labels among the classes that occur, which are public then."""
    with silent():  # it casts to int64, whatever the labels are
        check_classification_targets(y)
    try:
        classes, indices = np.unique(y, return_inverse=True)
    except Exception:
        raise ValueError("y must hold labels of one kind") from None
    if len(classes) < 2:
        raise ValueError("y holds one class only: name all classes by classes= if there are others that no row has")
    return ClassLabels(classes, indices)


def checked_class_indices(class_indices: Any, *, rows: int, classes: int, missing: bool) -> Integers:
    """Class indices that an engine hands over, one per row; ValueError for anything else.

    Parameters
    ----------
    class_indices : array-like of int
        The index of each row's class.
    rows, classes : int
        The numbers of rows and of classes.
    missing : bool
        Whether −1 is allowed, for a row without a label.

    >>> checked_class_indices([1, -1], rows=2, classes=2, missing=True).tolist()
    [1, -1]
    """
    indices = np.asarray(class_indices)
    if indices.shape != (rows,) or indices.dtype.kind not in "iu":
        raise ValueError(f"class_indices must have one whole number per row: {rows} rows, got shape {indices.shape}")
    least = UNLABELLED if missing else 0
    if rows and not least <= int(indices.min()) <= int(indices.max()) < classes:
        raise ValueError(f"class_indices must be from {least} to {classes - 1}")
    return indices.astype(np.int64)


# ── labels 0 and 1 ───────────────────────────────────────────────────────────────────────────────────────────────────


def as_binary_labels(y: ArrayLike, rows: int, name: str = "y") -> Integers:
    """Labels 0 and 1, one per row; booleans and floats that are 0 or 1 are taken as such."""
    array = as_array(y, name)
    if array.shape == (rows, 1):
        array = array[:, 0]
    if array.shape != (rows,):
        raise ValueError(f"{name} must have one label per row: {rows} rows, but the shape of {name} is {array.shape}")
    if array.dtype.kind == "M" or not bool(np.all((array == 0) | (array == 1))):
        raise ValueError(f"{name} must hold only the labels 0 and 1")
    return array.astype(np.int64)


def as_target(y: Any) -> Array:
    """What may be labels; whether they are 0 and 1, one per row, is for `as_binary_labels` to check."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give a label, 0 or 1, for every row")
    array = as_array(y, "y")
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise ValueError("y must hold only the labels 0 and 1: it holds NaN or inf")
    if array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array.ndim == 1 and not bool(np.all((array == 0) | (array == 1))):
        # One message, whichever the labels are: it must not tell which. Scikit-learn's checks look for its words.
        raise ValueError(
            "Unknown label type: y must hold only the labels 0 and 1. Only binary classification is supported."
        )
    return array


def as_partial_labels(y: ArrayLike, rows: int) -> Integers:
    """Labels 0 and 1, and −1 for a row without a label, one per row; some row must have a label."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give 0, 1 or -1 for every row")
    target = as_array(y, "y")
    if target.dtype.kind not in "iuf" or target.shape not in ((rows,), (rows, 1)):
        return as_binary_labels(as_target(y), rows)  # booleans, or what is refused there
    target = column_or_1d(target, warn=True)
    missing = target == UNLABELLED
    labels = as_binary_labels(as_target(np.where(missing, 0, target)), rows)
    if bool(missing.all()):
        raise ValueError("y must label some of the rows with 0 or 1: all are -1, which marks a row without a label")
    return np.where(missing, UNLABELLED, labels)
