"""Tables of rows, as a caller gives them: arrays, sparse matrices and frames. No message repeats a value."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from joblib import wrap_non_picklable_objects
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from reticent.data.cells import is_missing
from reticent.data.lists import as_floats
from reticent.silence import silent

Array = NDArray[Any]
Integers = NDArray[np.int64]
Table = Any  # an array or a CSR matrix of two dimensions, or a data frame


def as_private_table(X: Any, name: str = "X") -> Table:
    """`as_table` for rows whose cells are private: they must not decide the type of the table."""
    return as_table(as_floats(X, name) if isinstance(X, (list, tuple)) else X, name)


def as_table(X: Any, name: str = "X") -> Table:
    """An array, a CSR matrix or a frame, of rows and columns; frames and what they hold are left as they are."""
    if sparse.issparse(X):
        table: Table = as_csr(X) if len(X.shape) == 2 else X
    elif is_frame(X):
        table = X
    else:
        refuse_masked(X, name)
        if hasattr(X, "collect_schema"):  # as of polars
            raise TypeError(f"{name} must be a frame in memory, got a {type(X).__name__}: call its .collect()")
        try:
            table = np.asarray(X)
        except Exception:  # its message may hold data
            raise ValueError(f"{name} must have rows of equal length") from None
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
    if kind_of(table) == "c":
        raise TypeError(f"{name} must hold real numbers, no complex ones")
    return table


@silent()
def as_csr(X: Any) -> Any:
    """A CSR matrix of the same rows, with sorted indices, each once: entries that are stored twice are added up.

    What becomes of a row depends on this row alone. SciPy adds such entries in an order that depends on whether *any*
    row has unsorted indices. Floating point rounds by that order, so one row would change all others. Here they are
    added in the order in which they are stored. Where there are none, the arrays of `X` are used as they are.

    Parameters
    ----------
    X : sparse matrix of shape (rows, columns)
        The matrix, in any format. It is not changed.
    """
    kind = sparse.csr_array if isinstance(X, sparse.sparray) else sparse.csr_matrix
    if X.format == "csr":
        found = kind((X.data, X.indices, X.indptr), shape=X.shape)
        if found.has_canonical_format:
            return found
    entries = X.tocoo()
    order = np.lexsort((entries.col, entries.row))  # stable
    rows, columns = entries.row[order], entries.col[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
    data = np.zeros(np.count_nonzero(first), dtype=entries.dtype)
    np.add.at(data, np.cumsum(first) - 1, entries.data[order])
    counts = np.bincount(rows[first], minlength=X.shape[0])
    return kind((data, columns[first], np.concatenate(([0], np.cumsum(counts)))), shape=X.shape)


def as_training_rows(X: Any, *, integers: bool) -> Array:
    """A dense array of finite numbers, at least one row. Whole numbers stay whole if `integers`, else become floats."""
    table = as_numeric_table(as_private_table(X, "X"), "X")
    rows: Array = table.toarray() if sparse.issparse(table) else table
    if len(rows) == 0:
        raise ValueError("X must have at least one row (0 samples are too few)")
    check_missing(rows, allow_nan=False, name="X")
    if integers and rows.dtype.kind in "biu" and rows.dtype != np.uint64:
        return _contiguous(rows, np.int64)
    return _contiguous(rows, rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64)


@silent()
def _contiguous(rows: Array, dtype: DTypeLike) -> Array:
    return np.ascontiguousarray(rows, dtype=dtype)


def kind_of(X: Any) -> str:
    """The letter of NumPy for the type of an array or a sparse matrix; empty for a frame, whose columns have theirs."""
    return str(getattr(getattr(X, "dtype", None), "kind", ""))


def is_frame(X: Any) -> bool:
    """Whether `X` is a frame of pandas, polars or their like: a table with names for its columns."""
    return not isinstance(X, np.ndarray) and hasattr(X, "shape") and hasattr(X, "columns")


def as_numeric_table(X: Table, name: str = "X") -> Table:
    """A table of numbers, for teachers that need them."""
    if sparse.issparse(X):
        return X
    table = np.asarray(X)
    try:
        if table.dtype.kind == "O":  # such as nullable columns, where a missing value is not a number
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


def refuse_masked(X: Any, name: str) -> None:
    """Refuse an array that hides some of its values."""
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a masked one; fill or drop what is masked")


def refuse_complex(X: Any, name: str) -> None:
    """Refuse complex numbers, in the words that scikit-learn checks for."""
    if kind_of(X) == "c":
        raise ValueError(f"Complex data not supported: {name} must hold real numbers")


def check_two_dimensions(array: Any, name: str) -> None:
    """Refuse an array that is not a table, in the words that scikit-learn checks for."""
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, rows and columns, got {array.ndim}. Reshape your data")


def refuse_unreadable(X: Any, name: str = "X") -> None:
    """Refuse rows that scikit-learn would refuse by quoting them, or would read as something else than numbers."""
    try:
        array = X if sparse.issparse(X) else np.asarray(X)
    except Exception:
        raise ValueError(f"{name} must be an array, a data frame or a sparse matrix, with rows of one length") from None
    refuse_complex(array, name)
    if array.dtype.kind in "mMUS":
        kind = "dates or times" if array.dtype.kind in "mM" else "strings"
        raise ValueError(f"{name} must hold numbers, got {kind}; encode them as columns of numbers")
    check_two_dimensions(array, name)
    if array.dtype.kind == "O":
        try:
            array.astype(np.float64)
        except TypeError:
            raise TypeError(f"{name} must hold numbers: each argument must be a string or a real number") from None
        except Exception:
            raise ValueError(f"{name} must hold numbers; encode strings as columns of numbers") from None


def refuse_infinite(X: Table, name: str = "X") -> None:
    """Refuse NaN and infinite numbers by one message, which does not tell which it was."""
    if not bool(np.isfinite(X.data if sparse.issparse(X) else X).all()):
        raise ValueError(f"{name} must be finite: it holds NaN or inf")


def take(X: Table, rows: Integers) -> Table:
    """The rows at these indices. Only this function treats frames differently: pandas counts rows by `iloc`."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def pack_rows(X: Table) -> Table | bytes:
    """A table in a form that can be sent to any worker, for `unpack_rows` to unpack there.

    A table of numbers is sent as it is. Cells of any other kind are pickled here, and unpickled to see that they can
    be. So a cell that cannot be sent raises here, where the caller catches it, and for any number of workers. Left to
    an executor, it would raise only for several workers, and only if its shard happened to be sent.

    Parameters
    ----------
    X : array, CSR matrix or frame
        The rows.

    Returns
    -------
    sent : array, CSR matrix or bytes
        What a worker gets.
    """
    kind = getattr(X, "dtype", None)
    if isinstance(kind, np.dtype) and not kind.hasobject:
        return X
    content = pickle.dumps(wrap_non_picklable_objects(X, keep_wrapper=False), protocol=pickle.HIGHEST_PROTOCOL)
    pickle.loads(content)
    return content


def unpack_rows(sent: Table | bytes) -> Table:
    """A copy of what `pack_rows` returned, to give away: whatever is written into it, nobody else sees.

    A pipeline may work in place, as scalers do with `copy=False`. If two teachers got the same rows, the second would
    find in them what the first made of its private ones. A copy of a frame, or of an array of objects, shares what is
    in the cells; what went through a pickle shares nothing.
    """
    if isinstance(sent, bytes):
        return pickle.loads(sent)
    return sent.copy() if sparse.issparse(sent) else np.array(sent)


@silent()
def dense(X: Table, dtype: type = np.float64) -> Array:
    """An array of numbers, from an array, a sparse matrix or a frame of numbers."""
    return X.toarray().astype(dtype, copy=False) if sparse.issparse(X) else np.asarray(X, dtype=dtype)
