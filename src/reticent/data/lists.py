"""Rows in a list: always read as 64-bit floats.

An array or a frame declares the type of its columns, and that type is public. A list declares none. NumPy would read
one off the cells, and a single private cell would decide it for all rows: one fraction among whole numbers would change
what every teacher learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_matrix, is_missing


def as_floats(X: Sequence[Any], name: str = "X") -> NDArray[Any]:
    """The rows of a list as floats, NaN for a missing cell; what no float holds exactly is refused.

    What is refused is refused for a single cell, whatever the others are. What does not consist of rows is returned as
    NumPy reads it, for the caller to refuse by its shape.

    >>> as_floats([[1], [2.5], [None]]).ravel().tolist()
    [1.0, 2.5, nan]
    """
    cells = as_matrix(X) if X else None
    if cells is None:
        try:
            return np.asarray(X)
        except Exception:  # its message may hold data
            raise ValueError(f"{name} must have rows of equal length") from None
    for place, cell in enumerate(cells.flat):
        if is_missing(cell):
            cells.flat[place] = np.nan
        elif isinstance(cell, (str, bytes)) or (isinstance(cell, Integral) and not _is_a_float(cell)):
            raise _refusal(name)
    try:
        return cells.astype(np.float64)
    except Exception:  # its message may hold data
        raise _refusal(name) from None


def _refusal(name: str) -> TypeError:
    return TypeError(
        f"{name} must hold numbers that floats hold exactly, if it is a list: use an array or a frame for text and for "
        "whole numbers beyond 2**53"
    )


def _is_a_float(number: Integral) -> bool:
    try:
        return int(number) == float(number)
    except Exception:  # too large, or a number whose own code fails
        return False
