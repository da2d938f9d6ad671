"""How far a descent on whitened rows goes, and how far rows are whitened: rules of public numbers and of a noisy count.

A level is the standard deviation that the noise of all steps gives to the score of a row of full length. The more
columns, the fewer of them tell much, and the sooner the descent should stop. If one of two classes is rare, few rows
pull at the weights: the descent goes further, and rows are whitened less.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from reticent.learners.class_weights import CountsPlan
from reticent.learners.second_moments import NARROW

LEAST, MOST = 0.5, 3.0  # levels
COLUMNS = 240  # at which the level is 1
PARTLY, RARELY = 0.75, 0.4  # the power of the second moments by which rows are whitened: usually, and for rare classes
RARE = 0.05  # a class with a share below this is rare


class Reach(NamedTuple):
    """How far a descent goes, and how far rows are whitened before.

    Parameters
    ----------
    level : float
        The standard deviation of the noise in the score of a row of full length.
    power : float
        The power of the second moments by which rows are whitened; 1 is fully.
    """

    level: float
    power: float


def usual_reach(columns: int) -> Reach:
    """The level and the power for this many columns, the constant one included.

    >>> usual_reach(7), usual_reach(241).power, round(usual_reach(240).level, 3)
    (Reach(level=3.0, power=1.0), 0.75, 1.0)
    """
    return Reach(min(max(math.sqrt(COLUMNS / columns), LEAST), MOST), 1.0 if columns <= NARROW else PARTLY)


def reach_for_count(usual: Reach, count: int, plan: CountsPlan) -> Reach:
    """The level and the power if one of two classes may be rare.

    Parameters
    ----------
    usual : Reach
        Those for classes that are not.
    count : int
        The noisy count of one of two classes.
    plan : CountsPlan
        The plan of its release.
    """
    share = count / plan.rows
    most = max(min(share, 1 - share), 0.0) + 2 * float(plan.sigma) / plan.rows  # a bound from above, very likely
    if most >= RARE:
        return usual
    return Reach(min(usual.level * math.sqrt(RARE / most), MOST), min(usual.power, RARELY) if usual.power < 1 else 1.0)
