"""How far a descent on whitened rows goes, and how far rows are whitened: rules of public numbers and of a noisy count.

A level is the standard deviation that the noise of all steps gives to the score of a row of full length. The more
columns, the fewer of them tell much, and the sooner the descent should stop. If one of two classes is rare, few rows
pull at the weights: the descent goes further, and rows are whitened less.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.learners.class_weights import CountsPlan, noisy_counts
from reticent.learners.descent import LEVEL
from reticent.learners.second_moments import MARGIN, NARROW

LEAST, MOST = 0.5, 3.0  # levels
COLUMNS = 240  # at which the level is 1
PARTLY, LESS, RARELY = 0.75, 0.5, 0.4  # powers of the second moments: usually, with very many rows, for rare classes
RARE = 0.05  # a class with a share below this is rare


class Reach(NamedTuple):
    """How far a descent goes, and how far rows are whitened before.

    Parameters
    ----------
    level : float
        The standard deviation of the noise in the score of a row of full length.
    power : float, default 1
        The power of the second moments by which rows are whitened; 1 is fully.
    margin : float, default 1.4
        The length to which mapped rows are shortened, in units of their root mean square length.
    """

    level: float
    power: float = 1.0
    margin: float = MARGIN


def usual_reach(columns: int, strength: float, *, scaled: bool) -> Reach:
    """The level, the power and the margin after rounds.

    Parameters
    ----------
    columns : int
        D, the number of columns with the constant one.
    strength : float
        n·μ.
    scaled : bool
        Whether column scales are released before the rounds.

    >>> usual_reach(7, 1000, scaled=True).level, usual_reach(240, 10_000, scaled=True).level
    (3.0, 1.0)
    """
    level = min(max(math.sqrt(COLUMNS / columns), LEAST), MOST)
    if columns <= NARROW:
        return Reach(level if scaled else LEVEL)
    level = min(level, max(1.0, strength / (2 * columns)))
    if not scaled:
        return Reach(level)
    return Reach(
        level,
        PARTLY if strength < 60 * columns else LESS,
        MARGIN if strength < 300 * columns else 2.0,
    )


def plain_level(columns: int) -> float:
    """The level where "auto" chooses no rounds, for this many columns with the constant one: lower for text.

    >>> plain_level(120), plain_level(20_000)
    (2.0, 1.4)
    """
    return min(max(math.sqrt(2 * COLUMNS / columns), 1.4), LEVEL)


def reach_for_counts(usual: Reach, released: NDArray[np.int64], plan: CountsPlan) -> Reach:
    """The level and the power if one of two classes may be rare.

    Parameters
    ----------
    usual : Reach
        Those for classes that are not.
    released : array of int
        The noisy counts of two classes, from `release_class_counts`.
    plan : CountsPlan
        The plan of their release.
    """
    counts = noisy_counts(released, plan)
    total = max(float(counts.sum()), 1.0)
    # A bound on the smaller share from above, very likely.
    most = (max(float(counts.min()), 0.0) + 2 * float(plan.sigma)) / total
    if most >= RARE:
        return usual
    level = min(usual.level * math.sqrt(RARE / most), MOST)
    return usual._replace(level=level, power=min(usual.power, RARELY) if usual.power < 1 else 1.0)
