"""Reading training rows and queries of an everlasting predictor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from reticent.concepts.interface import ConceptClass
from reticent.data.labels import as_column
from reticent.data.tables import as_numeric_table, as_private_table, check_missing
from reticent.learners.base import ConceptLearner
from reticent.silence import silent

Array = NDArray[Any]


def concepts_of(learner: object) -> ConceptClass[Any] | None:
    """The concept class that a learner learns, if it learns one."""
    if isinstance(learner, ConceptLearner):
        return learner.hypothesis_class()
    return learner if isinstance(learner, ConceptClass) else None


def training_table(X: Any, concepts: ConceptClass[Any] | None) -> Array:
    """A dense array of finite numbers; for concepts, integers stay integers."""
    table = as_numeric_table(as_private_table(X, "X"), "X")
    rows: Array = table.toarray() if sparse.issparse(table) else table
    if len(rows) == 0:
        raise ValueError("X must have at least one row (0 samples are too few)")
    check_missing(rows, allow_nan=False, name="X")
    whole = concepts is not None and rows.dtype.kind in "biu" and rows.dtype != np.uint64
    if whole:
        return _contiguous(rows, np.int64)
    return _contiguous(rows, rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64)


@silent()
def _contiguous(rows: Array, dtype: DTypeLike) -> Array:
    return np.ascontiguousarray(rows, dtype=dtype)


def client_names(clients: Any, rows: int) -> Array | None:
    """Who asks each query, as strings: a number and its string are one client."""
    if clients is None:
        return None
    column = as_column(clients, rows, "clients")
    if column.dtype.kind not in "iuU":
        raise TypeError("clients must be strings or whole numbers")
    return column.astype(str)
