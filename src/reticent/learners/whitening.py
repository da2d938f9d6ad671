"""Linear maps of unit rows, with a constant column, to rows whose directions have similar second moments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.learners.lattice import Floats, Matrix, shortened, squared_lengths
from reticent.learners.products import product_blocks

CONSTANT = 0.3  # what the constant column counts for in a map that whitens partly
SMALLEST = 1e-12  # an eigenvalue, in units of the largest
OUTLYING, LONGEST = 10.0, 10.0  # of weights that a descent in a new map starts from: over their median, and in length
CLEAR = 4  # standard deviations of the noise, above which a direction is seen


@dataclass(frozen=True, eq=False)
class Whitening:
    """A linear map of unit rows, with a constant column, to rows whose directions have similar second moments.

    The map is a function of noisy releases and public numbers, so it may be published. A row is mapped by itself.

    Parameters
    ----------
    matrix : array of shape (columns, columns)
        The map, with the constant column last if there is one.
    length : float
        The length to which mapped rows are shortened; it becomes 1.
    constant : bool
        Whether unit rows get a constant column.
    """

    matrix: Floats
    length: float
    constant: bool

    def unit_rows(self, rows: Matrix) -> Floats:
        """Unit rows as mapped and shortened, of length at most 1 up to rounding.

        Parameters
        ----------
        rows : array or CSR matrix of shape (rows, columns without the constant one)
            Rows of length at most 1.
        """
        return np.vstack(list(mapped_blocks(rows, self.matrix, self.length, constant=self.constant)))

    def factors(self, rows: Matrix) -> Floats:
        """The positive factors, at most 1, by which mapped rows are shortened; for predictions.

        Parameters
        ----------
        rows : array or CSR matrix of shape (rows, columns without the constant one)
            Rows of length at most 1.
        """
        inside, columns = factor_inside(self.constant), rows.shape[1]
        image = np.asarray(rows @ (self.matrix[:columns] * inside)) + self.matrix[columns:].sum(axis=0) * inside
        return np.asarray(1 / np.maximum(1.0, np.sqrt(squared_lengths(image)) / self.length))

    def centre(self) -> Floats | None:
        """The unit row, or nearly one, whose image is shortest: about the mean of the rows. None without a constant.

        With the constant 1, rows have the mean that their second moments say. A map that whitens by them takes rows
        at the mean to the shortest images.
        """
        if not self.constant:
            return None
        moments = self.matrix @ self.matrix.T
        found, *_ = np.linalg.lstsq(moments[:-1, :-1], -moments[:-1, -1], rcond=None)
        return np.asarray(found)

    def pulled_back(self, weights: Floats) -> Floats:
        """The weights for unit rows, and for the constant 1, that have the scores of these weights for mapped rows.

        Rows that are shortened have the same scores up to their factor.

        Parameters
        ----------
        weights : array of shape (columns, outputs)
            Weights for mapped rows.
        """
        return np.asarray(self.matrix @ weights * (factor_inside(self.constant) / self.length))


    def carried_over(self, weights: Floats) -> Floats:
        """The inverse of `pulled_back`: the weights for mapped rows that have the scores of these weights.

        Parameters
        ----------
        weights : array of shape (columns, outputs)
            Weights for unit rows, and for the constant 1.
        """
        # Columns may differ in scale by many orders of magnitude. With lines of one scale, elimination is accurate.
        scales = np.abs(self.matrix).max(axis=1, keepdims=True)
        found = np.linalg.solve(self.matrix / scales, weights / scales)
        return np.asarray(found * (self.length / factor_inside(self.constant)))


def moderate_start(weights: Floats) -> Floats:
    """Weights of an earlier model for rows in a new map, limited to what a descent can correct.

    The earlier model may have large weights in directions in which its rows did not vary. If rows vary there now, such
    weights would drown all others: so weights beyond 10 times the median are cut off. Two maps may also shorten rows
    differently, so that all weights become large together: so longer ones are shortened to length 10.

    Parameters
    ----------
    weights : array of shape (columns, outputs)
        Weights for mapped rows.

    >>> moderate_start(np.array([[0.1], [-0.05], [1e6], [0.0]])).ravel().tolist()
    [0.1, -0.05, 1.0, 0.0]
    """
    sizes = np.abs(weights)
    middle = np.median(sizes[sizes > 0]) if sizes.any() else 0.0
    found = np.clip(weights, -OUTLYING * middle, OUTLYING * middle)
    return np.asarray(found * np.minimum(1.0, LONGEST / np.maximum(np.linalg.norm(found, axis=0), LONGEST)))


def checked_whitening(whitening: Any, *, constant: bool) -> Whitening:
    """`whitening` as it is; TypeError or ValueError if weights cannot be carried over to it.

    Parameters
    ----------
    whitening : Whitening
        The map.
    constant : bool
        Whether unit rows get a constant column.
    """
    if not isinstance(whitening, Whitening):
        raise TypeError(
            f"whitening must be the whitening_ of an earlier private model or None, got {type(whitening).__name__}"
        )
    matrix = np.asarray(whitening.matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise ValueError("whitening must have a square matrix of finite numbers")
    if not 0 < whitening.length < math.inf:
        raise ValueError("whitening must have a length > 0")
    if whitening.constant != constant:
        raise ValueError(f"whitening must have been found with fit_intercept={constant}, as this learner has it")
    scales = np.abs(matrix).max(axis=1, keepdims=True)
    if not scales.all() or np.linalg.matrix_rank(matrix / scales) < len(matrix):
        raise ValueError("whitening must have a matrix that can be inverted")
    return whitening


def mapped_blocks(rows: Matrix, matrix: Floats, bound: float, *, constant: bool) -> Iterator[Floats]:
    """Unit rows times a matrix, divided by `bound` and shortened to length 1: block after block.

    What becomes of a row depends on this row and the matrix alone, to the last bit; see `product_blocks`.

    Parameters
    ----------
    rows : array or CSR matrix of shape (rows, columns)
        Rows of length at most 1.
    matrix : array of shape (columns, columns), with one more of each for the constant column
        The map.
    bound : float
        The length to which mapped rows are shortened.
    constant : bool
        Whether rows get a constant column. Then all is divided by √2.
    """
    inside, columns = factor_inside(constant), rows.shape[1]
    offset = matrix[columns] * inside if constant else None
    for image in product_blocks(rows, matrix[:columns], offset, factor=inside):
        yield shortened(image, bound)


def factor_inside(constant: bool) -> float:
    """The factor that keeps a unit row with the constant 1 within length 1."""
    return math.sqrt(0.5) if constant else 1.0


def partly_whitened(matrix: Floats, factors: Floats, power: float, *, constant: bool) -> tuple[Floats, Floats]:
    """A map that whitens by a power of the second moments, and its inverse.

    `matrix` whitens: in coordinates that are multiplied by `factors`, second moments are the inverse of A·Aᵀ for
    A = matrix / factors. The power 1 whitens fully as well, and 0 multiplies by the factors alone.

    Parameters
    ----------
    matrix : array of shape (columns, columns)
        A map that whitens, with the constant column last if there is one.
    factors : array of shape (columns,)
        Factors of columns.
    power : float
        The power, from 0 to 1.
    constant : bool
        Whether the last column is the constant one.

    >>> found, inverse = partly_whitened(np.diag([4.0, 1.0]), np.ones(2), 0.5, constant=False)
    >>> found.round(9).tolist(), inverse.round(9).tolist()
    ([[2.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 1.0]])
    """
    counted = np.ones(len(factors))
    counted[-1] = 1 / CONSTANT if constant else 1.0
    part = matrix * (counted / factors)[:, None]
    values, vectors = np.linalg.eigh(part @ part.T)
    roots = np.maximum(values, values[-1] * SMALLEST) ** (power / 2)
    found = (vectors * roots) @ vectors.T * (factors / counted)[:, None]
    return np.asarray(found), np.asarray((vectors / roots) @ vectors.T * (counted / factors))


def limited(
    matrix: Floats, factors: Floats, turn: Floats, moments: Floats, noise: float, *, most: float
) -> tuple[Floats, Floats]:
    """A map that stretches no direction very far in which no row is seen to vary, and its inverse.

    Where rows never vary, as in the sum of the columns of a category, nothing is ever seen, and every round stretches
    that direction again. A later row that does differ there, such as one with a missing category, would be hardly
    anything else. So directions in which the last round saw nothing are stretched at most `most` times as much as the
    least stretched direction. Others keep their stretch.

    Parameters
    ----------
    matrix : array of shape (columns, columns)
        A map that whitens.
    factors : array of shape (columns,)
        Factors of columns. The stretch is counted from columns that are multiplied by them.
    turn : array of shape (columns, columns)
        The map from the rows of the last round to those that are mapped by `matrix`.
    moments : array of shape (columns, columns)
        The noisy second moments that the last round released.
    noise : float
        The standard deviation of the noise on their diagonal.
    most : float
        The limit.

    >>> rows_vary = np.diag([1.0, 1.0, 0.0])
    >>> found, inverse = limited(np.diag([1.0, 9.0, 9.0]), np.ones(3), np.eye(3), rows_vary, 0.1, most=2.0)
    >>> found.round(9).diagonal().tolist(), (found @ inverse).round(9).diagonal().tolist()
    ([1.0, 9.0, 2.0], [1.0, 1.0, 1.0])
    """
    left, stretch, right = np.linalg.svd(matrix / factors[:, None])
    turned = turn @ right.T
    clear = (turned * (moments @ turned)).sum(axis=0) > CLEAR * noise * (turned**2).sum(axis=0)
    stretch = np.where(clear, stretch, np.minimum(stretch, most * stretch.min()))
    found = (left * stretch) @ right * factors[:, None]
    return np.asarray(found), np.asarray((right.T / stretch) @ left.T / factors)
