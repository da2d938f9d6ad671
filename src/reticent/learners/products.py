"""Products of rows and a matrix in which a row's result depends on this row and the matrix alone, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from reticent.learners.lattice import Floats, Matrix

BLOCK = 1 << 16  # entries of a product that are computed at a time


def product(rows: Matrix, matrix: Floats, offset: Floats | None = None) -> Floats:
    """`rows @ matrix + offset`, as `product_blocks` computes it.

    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([5.0])).tolist()
    [[16.0]]
    """
    return np.vstack(list(product_blocks(rows, matrix, offset)))


def product_blocks(
    rows: Matrix, matrix: Floats, offset: Floats | None = None, *, factor: float = 1.0
) -> Iterator[Floats]:
    """`factor * rows @ matrix + offset`, block after block of rows.

    What becomes of a row depends on this row and the matrix alone, to the last bit. The product is computed entry by
    entry, in ascending order of columns. A matrix product of BLAS may round a row differently among other rows.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns)
        The rows. Those of a CSR matrix have sorted indices, each once, as `shortened` leaves them.
    matrix : array of shape (columns, outputs)
        The matrix.
    offset : array of shape (outputs,) or None, default None
        What is added to each row; None is zero.
    factor : float, default 1
        By what entries of rows are multiplied first.
    """
    start = np.zeros(matrix.shape[1]) if offset is None else offset
    size = max(1, BLOCK // max(matrix.shape))
    one_block = _sparse if sparse.issparse(rows) else _dense
    for first in range(0, rows.shape[0], size):
        yield one_block(rows[first : first + size], matrix, start, factor)


def _dense(block: Matrix, matrix: Floats, start: Floats, factor: float) -> Floats:
    columns = np.ascontiguousarray(block.T) * factor
    image = np.empty((matrix.shape[1], columns.shape[1]))
    image[:] = start[:, None]
    term = np.empty_like(image)
    for weights, column in zip(matrix, columns, strict=True):
        np.multiply(weights[:, None], column, out=term)
        image += term
    return np.ascontiguousarray(image.T)


def _sparse(block: Matrix, matrix: Floats, start: Floats, factor: float) -> Floats:
    entries = np.diff(block.indptr)
    order = np.argsort(-entries, kind="stable")  # rows with most entries first, so that those with more are in front
    first, data = block.indptr[:-1][order], block.data * factor
    image = np.empty((block.shape[0], matrix.shape[1]))
    image[:] = start
    for position in range(int(entries.max(initial=0))):
        at = first[: np.count_nonzero(entries > position)] + position
        image[: len(at)] += data[at, None] * matrix[block.indices[at]]
    found = np.empty_like(image)
    found[order] = image
    return found
