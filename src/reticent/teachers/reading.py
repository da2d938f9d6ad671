"""Reading rows, labels and classes for teachers, and refusing what will not do; no message repeats a value."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from enum import IntEnum
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from reticent.classes import codes_of_any, label_array, sorted_classes
from reticent.concepts.halfspaces import Halfspaces
from reticent.concepts.interface import ConceptClass
from reticent.data.cells import is_missing
from reticent.data.lists import as_floats
from reticent.errors import ClassOrderWarning
from reticent.exact import integer
from reticent.teachers.dealing import Array, Integers, Table

SCALERS = (MaxAbsScaler, MinMaxScaler, PowerTransformer, QuantileTransformer, RobustScaler, StandardScaler)


def as_private_table(X: Any, name: str = "X") -> Table:
    """`as_table` for rows whose cells are private: they must not decide the type of the table."""
    return as_table(as_floats(X, name) if isinstance(X, (list, tuple)) else X, name)


def as_table(X: Any, name: str = "X") -> Table:
    """An array, a CSR matrix or a frame, of rows and columns; frames and what they hold are left as they are."""
    if sparse.issparse(X):
        table: Table = X.tocsr()
    elif is_frame(X):
        table = X
    else:
        if isinstance(X, np.ma.MaskedArray):
            raise TypeError(f"{name} must be a plain array, got a masked one; fill or drop what is masked")
        if hasattr(X, "collect_schema"):  # as of polars
            raise TypeError(f"{name} must be a frame in memory, got a {type(X).__name__}: call its .collect()")
        table = _from_array(X, name)
    if len(table.shape) == 1 and table.dtype.kind in "OUST":
        raise ValueError(
            f"{name} must have two dimensions, rows and columns, got 1. Texts make one column, for a pipeline that "
            'takes it: an array of shape (rows, 1) for ColumnTransformer([("text", TfidfVectorizer(), 0)]), or a frame '
            "for one that names the column"
        )
    if len(table.shape) != 2:
        raise ValueError(f"{name} must have two dimensions, rows and columns, got {len(table.shape)}")
    if table.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column")
    if getattr(getattr(table, "dtype", None), "kind", "") == "c":
        raise TypeError(f"{name} must hold real numbers, no complex ones")
    return table


def _from_array(X: Any, name: str) -> Array:
    """What NumPy makes of an array-like: its type is that of the whole column, and public."""
    try:
        return np.asarray(X)
    except Exception:  # its message may hold data
        raise ValueError(f"{name} must have rows of equal length") from None


def is_frame(X: Any) -> bool:
    """Whether `X` is a frame of pandas, polars or their like: a table with names for its columns."""
    return not isinstance(X, np.ndarray) and hasattr(X, "shape") and hasattr(X, "columns")


def as_numbers(X: Table, name: str = "X") -> Table:
    """A table of numbers, for teachers that need them."""
    if sparse.issparse(X):
        return X
    table = np.asarray(X)
    try:
        if table.dtype.kind == "O":  # such as nullable columns, where what is missing is no number
            known = [np.nan if is_missing(value) else value for value in table.flat]
            return np.array(known, dtype=object).reshape(table.shape).astype(np.float64)
    except Exception:  # a number too large for a float, or a cell whose own code fails; its message may hold data
        pass
    if table.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must hold numbers only for these teachers: encode the rest in a pipeline, which each teacher fits "
            "on its own rows"
        )
    return table


def check_missing(X: Table, *, allow_nan: bool, name: str = "X") -> None:
    """Refuse numbers that are infinite, and missing ones unless the teachers take them."""
    values = X.data if sparse.issparse(X) else np.asarray(X)
    kind = values.dtype.kind
    if kind == "f":
        infinite, missing = bool(np.isinf(values).any()), bool(np.isnan(values).any())
    elif kind == "M":
        infinite, missing = False, bool(np.isnat(values).any())
    elif kind == "O":
        infinite, missing = False, any(map(is_missing, values.flat))
    else:
        return
    if infinite or (missing and not allow_nan):
        raise ValueError(f"{name} must be finite: it holds NaN or inf; impute in a pipeline, or fill or drop them")


class Missing(IntEnum):
    """What a step of a pipeline does to missing numbers."""

    REFUSED = 0
    LEFT = 1  # as they are, to the next step
    TAKEN = 2


def takes_nan(estimator: Any) -> bool:
    """Whether a classifier says that it takes missing numbers, or a pipeline does before it comes to scaled ones."""
    return missing_in(estimator) is not Missing.REFUSED


def missing_in(step: Any) -> Missing:
    """What becomes of missing numbers: in a pipeline by the first step that minds, by columns if no part refuses."""
    if step is None or isinstance(step, str):
        return Missing.TAKEN if step == "drop" else Missing.LEFT
    if isinstance(step, Pipeline):
        found = (missing_in(part) for _, part in step.steps)
        return next((one for one in found if one is not Missing.LEFT), Missing.LEFT)
    if isinstance(step, ColumnTransformer):
        return min(missing_in(part) for part in (*(part for _, part, _ in step.transformers), step.remainder))
    if not hasattr(step, "__sklearn_tags__") or not get_tags(step).input_tags.allow_nan:
        return Missing.REFUSED
    return Missing.LEFT if isinstance(step, SCALERS) else Missing.TAKEN


def as_count(
    value: object, name: str, *, least: int | None = None, most: int | None = None, otherwise: str = ""
) -> int:
    """A whole number that is a parameter: unlike data, an error may repeat it. `otherwise` is what else it may be."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        got = repr(value) if value is None or isinstance(value, (Real, str)) else type(value).__name__
        bound = "" if least is None else f" of at least {least}"
        raise TypeError(f"{name} must be a whole number{bound}{otherwise and f' or {otherwise}'}, got {got}")
    return integer(value, name, least=least, most=most)


def check_jobs(n_jobs: object) -> None:
    """Refuse what joblib cannot take as a number of jobs."""
    if n_jobs is not None and as_count(n_jobs, "n_jobs") == 0:
        raise ValueError("n_jobs must be None, 1 or more, or below 0 to count back from all processors, got 0")


def as_column(values: Any, rows: int, name: str) -> Array:
    """One value a row."""
    if values is None:
        raise ValueError(f"{name} must have one value a row, got None")
    column = label_array(values)
    if column.shape == (rows, 1):
        column = column[:, 0]
    if column.shape != (rows,):
        raise ValueError(f"{name} must have one value a row: {rows} rows, but the shape of {name} is {column.shape}")
    return column


def as_groups(groups: Any, rows: int) -> Array:
    """The name of each row's group, as it was given: NumPy would make strings of all names of a list if one is."""
    if isinstance(groups, (list, tuple)) and 0 < len(groups) == rows and not isinstance(groups[0], list):
        return np.fromiter(groups, dtype=object, count=rows)
    return as_column(groups, rows, "groups")


def as_labels(y: Any, rows: int, classes: Any) -> Array:
    """Labels, one a row; of public classes an error may also say that they are none."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: y must have one value a row")
    labels = as_column(y, rows, "y")
    if label_array(y).ndim == 2:
        labels = column_or_1d(y, warn=True)
    if isinstance(classes, str) and classes == "public":
        if labels.dtype.kind == "f" and not bool(np.isfinite(labels).all()):
            raise ValueError("y must hold labels only: it contains NaN or infinity")
        check_classification_targets(labels)
        if len(np.unique(labels)) == 1:
            raise ValueError("y must hold at least 2 different labels to learn the classes from, got 1 class")
    return labels


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


def warn_of_order(learner: Any, classes: Any, *, stacklevel: int) -> None:
    """Warn if the class named last is not a concept's label 1, and no concept labels the other way round."""
    symmetric = isinstance(learner, Halfspaces) or getattr(learner, "both_orientations", False)
    if not isinstance(learner, ConceptClass) or symmetric or not isinstance(classes, (Sequence, np.ndarray)):
        return
    named = declared_classes(classes)
    if named is None or len(named) != 2 or bool(classes[-1] == named[-1]):
        return
    first, last = named.tolist()
    warnings.warn(
        f"classes are sorted, so label 1 of a concept is {last!r}, although {first!r} was named last. If {first!r} "
        "should be label 1, take a class that labels both ways, such as Thresholds(both_orientations=True), or name "
        "the classes so that it comes last in sorted order. If not, name the classes in sorted order",
        ClassOrderWarning,
        stacklevel=stacklevel + 1,
    )


def as_classes(classes: Any, labels: Array) -> Array:
    """`declared_classes`, or, declared public, those that occur, in ascending order too."""
    if (declared := declared_classes(classes)) is not None:
        return declared
    try:
        found = np.unique(labels)
    except TypeError:
        raise TypeError("y must hold labels of one type: they could not be compared") from None
    if len(found) < 2:
        raise ValueError(f"y must hold at least 2 different labels to learn the classes from, got {len(found)}")
    return found


def as_codes(labels: Array, classes: Array) -> Integers:
    """Labels as places among the classes; one that was never declared is refused."""
    codes = codes_of_any(labels, classes)
    if bool((codes < 0).any()):
        raise ValueError(f"y must hold only the {len(classes)} declared classes: it holds another label")
    return codes
