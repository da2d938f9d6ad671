"""Directions found in public rows, onto which private rows are projected before the descent.

Public rows cost no privacy: the map is a function of them and of public numbers. It keeps the directions in which
public rows vary most, whitens them, and drops all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from reticent.data.tables import is_frame, refuse_infinite, refuse_unreadable
from reticent.learners.lattice import Floats, Matrix, shortened, squared_lengths
from reticent.learners.linear import Linear
from reticent.learners.products import product_blocks

FEWEST = 20  # public rows
FEWEST_DIRECTIONS = 5
PER_ROW = 16  # how many rows, in units of 1/μ, pay for a direction
PER_DIRECTION = 4  # public rows by which a direction must be known
FLOOR = 0.3  # added to all variances, in units of their median
MARGIN = 0.8  # the length to which mapped rows are shortened, in units of the median length of mapped public rows
SMALL = 1 << 22  # entries of public rows that are decomposed as a dense matrix


@dataclass(frozen=True, eq=False)
class Directions:
    """A public affine map of rows to a few whitened directions. A row is mapped by itself, to the last bit.

    Parameters
    ----------
    matrix : array of shape (columns, directions)
        The map.
    centre : array of shape (directions,)
        The image of the mean of public rows, which is subtracted.
    length : float
        The length to which mapped rows are shortened; it becomes 1.
    """

    matrix: Floats
    centre: Floats
    length: float

    def unit_rows(self, rows: Matrix) -> Floats:
        """Rows as mapped and shortened, of length at most 1 up to rounding.

        Parameters
        ----------
        rows : array or CSR matrix of shape (rows, columns)
            Rows of length at most 1, from `shortened`.
        """
        return np.vstack([shortened(block, self.length) for block in product_blocks(rows, self.matrix, -self.centre)])


def directions_for(rows: int, public: int, mu: float) -> int:
    """The number of directions, by a fixed rule of public numbers: μ·rows/16, but at least 5 and at most public/4.

    One more is the direction of the mean, which is subtracted.

    Parameters
    ----------
    rows, public : int
        The numbers of private and of public rows.
    mu : float
        μ, sensitivity over noise of a single release that uses up (ε, δ).

    >>> directions_for(1500, 1000, 0.22), directions_for(100, 1000, 0.22), directions_for(10**6, 1000, 0.22)
    (21, 6, 251)
    """
    return 1 + min(max(FEWEST_DIRECTIONS, int(mu * rows / PER_ROW)), public // PER_DIRECTION)


def find_directions(rows: Matrix, count: int) -> Directions:
    """The directions of public rows.

    Parameters
    ----------
    rows : array or CSR matrix of shape (public rows, columns)
        Public rows of length at most 1, from `shortened`.
    count : int
        The number of directions; fewer if public rows do not have that many.
    """
    vectors = _leading(rows, count)
    image = np.asarray(rows @ vectors)
    centre = image.mean(axis=0)
    values, rotation = np.linalg.eigh(np.cov(image, rowvar=False).reshape(len(centre), -1))
    floor = FLOOR * float(np.median(values))
    if not floor > 0:
        raise ValueError("public must have rows that differ from each other")
    whitening = rotation / np.sqrt(np.maximum(values, 0.0) + floor) @ rotation.T
    matrix, centre = vectors @ whitening, centre @ whitening
    middle = float(np.median(squared_lengths(image @ whitening - centre)))
    return Directions(matrix, centre, MARGIN * math.sqrt(middle) if middle > 0 else 1.0)


def turned_start(start: Linear, before: Directions, after: Directions) -> Linear:
    """The linear model of rows in one set of directions that is nearest to a model of rows in another.

    Where the new directions span the old ones, it has the same scores, but for rows that are shortened.

    Parameters
    ----------
    start : Linear
        A model of rows that are mapped by `before`.
    before, after : Directions
        The directions.
    """
    weights = start.coef / before.length
    turned = np.linalg.lstsq(after.matrix, before.matrix @ weights, rcond=None)[0]
    return Linear(np.asarray(turned * after.length), start.intercept - before.centre @ weights + after.centre @ turned)


def _leading(rows: Matrix, count: int) -> Floats:
    """The leading right singular vectors, in order, as columns."""
    if math.prod(rows.shape) <= SMALL or count >= min(rows.shape):
        dense = rows.toarray() if sparse.issparse(rows) else rows
        _, values, vectors = np.linalg.svd(dense, full_matrices=False)
        rank = np.count_nonzero(values > values[0] * max(rows.shape) * np.finfo(np.float64).eps)
        return np.asarray(vectors[: min(count, rank)].T)
    start = np.ones(min(rows.shape))  # a fixed start makes the result repeatable
    _, values, vectors = svds(rows, k=count, v0=start, return_singular_vectors="vh")
    kept = values > values.max() * max(rows.shape) * np.finfo(np.float64).eps
    return np.asarray(vectors[kept][::-1].T)


def checked_public(public: Any) -> Matrix:
    """Public rows as an array or a CSR matrix of float64; ValueError or TypeError if they are anything else."""
    refuse_unreadable(public, "public")
    table = sparse.csr_array(public) if sparse.issparse(public) else np.asarray(public)
    table = table.astype(np.float64)
    refuse_infinite(table, "public")
    if table.shape[0] < FEWEST:
        raise ValueError(f"public must have at least {FEWEST} rows, got {table.shape[0]}")
    return table


def check_same_columns(public: Any, columns: int, names: Any) -> None:
    """Refuse public rows with other columns than the private ones.

    Parameters
    ----------
    public : array, CSR matrix or frame
        The public rows, as they were given.
    columns : int
        The number of columns of the private rows.
    names : sequence or None
        Their names, if they have any.
    """
    found = np.shape(public)[1] if not sparse.issparse(public) else public.shape[1]
    if found != columns:
        raise ValueError(f"public must have the columns of X: X has {columns}, public has {found}")
    if names is not None and is_frame(public) and list(map(str, public.columns)) != list(map(str, names)):
        raise ValueError("public must have the columns of X, with the same names in the same order")
