"""Linear models as they are released, and the weights of a descent that they amount to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from reticent.learners.lattice import Floats

HEAVIEST = 1e9  # the largest weight that a descent may start from
FARTHEST = 1e100  # the largest weight of a unit row: columns of small values have large ones


class Linear(NamedTuple):
    """A released linear model: the scores of a row are row · coef + intercept.

    Parameters
    ----------
    coef : array of shape (columns, outputs)
        One column per class, or one column for two classes.
    intercept : array of shape (outputs,)
        The score of the zero row.
    """

    coef: Floats
    intercept: Floats


class Scales(NamedTuple):
    """How the weights of a descent and those of the linear model that they amount to are scaled.

    Parameters
    ----------
    length : float
        The length of the rows that became unit rows.
    reach, constant, radius : int
        The length of a unit row and the value of the constant column on the lattice of the descent, and the length of
        both together. Where the constant is one of the columns that were mapped, all are 1; without it, it is 0.
    """

    length: float
    reach: int
    constant: int
    radius: int


def released_weights(weights: Floats, scales: Scales, columns: int) -> Linear:
    """The linear model that the weights of a descent amount to.

    Parameters
    ----------
    weights : array of shape (columns, outputs), with one more row for the constant column
        The weights of the descent.
    scales : Scales
        How they are scaled.
    columns : int
        The number of columns, without the constant one.
    """
    return Linear(
        coef=weights[:columns] * (scales.reach / (scales.radius * scales.length)),
        intercept=weights[columns:].sum(axis=0) * (scales.constant / scales.radius),
    )


def start_weights(start: Linear, scales: Scales, columns: int, outputs: int) -> Floats:
    """The inverse of `released_weights`: the weights of a descent that give rows the scores of `start`.

    Parameters
    ----------
    start : Linear
        The public weights to start from.
    scales, columns
        As for `released_weights`.
    outputs : int
        The number of scores per row.
    """
    if start.coef.shape != (columns, outputs) or start.intercept.shape != (outputs,):
        raise ValueError(
            f"start must be Linear(coef, intercept) with a coef of shape ({columns}, {outputs}) and an intercept "
            f"of shape ({outputs},), got {start.coef.shape} and {start.intercept.shape}"
        )
    weights = start.coef * (scales.radius * scales.length / scales.reach)
    if scales.constant:
        weights = np.vstack([weights, start.intercept * (scales.radius / scales.constant)])
    elif start.intercept.any():
        raise ValueError("start must have an intercept of 0, as fit_intercept=False")
    if not float(np.abs(weights).max()) < FARTHEST:
        raise ValueError("start must be finite, with scores of rows of full length below 1e100")
    return np.asarray(weights)


def check_heaviest(weights: Floats) -> None:
    """Refuse weights that a descent cannot start from.

    Parameters
    ----------
    weights : array of shape (columns, outputs)
        Weights for the rows that the descent sees.
    """
    if not float(np.abs(weights).max()) < HEAVIEST:
        raise ValueError("start must give rows of full length, as the descent sees them, scores below 1e9")


def checked_start(start: Any) -> Linear:
    """`start` as two arrays of numbers; ValueError if it is anything else."""
    try:
        coef, intercept = (np.asarray(part, dtype=np.float64) for part in start)
    except Exception:
        raise ValueError("start must be Linear(coef, intercept), two arrays of numbers") from None
    return Linear(coef, intercept)
