"""What a fit of PATE settles before it uses private rows: everything here follows from public numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from reticent.data.groups import most_shards
from reticent.data.tables import Integers
from reticent.exact import as_count
from reticent.labellers import Labeller
from reticent.privacy import calibrate, events
from reticent.privacy.events import Repeated, SeededRelease
from reticent.privacy.ledger import Spent, describe

ROWS_PER_TEACHER = 20  # at least
ACTIVE_SHARE = 0.3  # share of the public rows that an active learner asks


class PATESettings(NamedTuple):
    """Numbers of teachers and queries, and the name of the labeller: as public as the parameters.

    Parameters
    ----------
    n_teachers : int
        Number of teachers.
    n_queries : int
        Largest number of labels that are asked for.
    labeller : str
        Name of the labeller.
    """

    n_teachers: int
    n_queries: int
    labeller: str


def active_queries(public_rows: int) -> int:
    """Return how many of the public rows an active learner asks by default.

    >>> active_queries(500)
    150
    """
    return max(1, math.ceil(ACTIVE_SHARE * public_rows))


def count_queries(n_queries: int | None, *, passive: bool, public_rows: int) -> int:
    """Return the number of queries: `n_queries` if it is given, else the default of passive or active learning."""
    if n_queries is not None:
        return as_count(n_queries, "n_queries", least=1, most=public_rows, otherwise="None")
    return public_rows if passive else active_queries(public_rows)


def count_teachers(
    n_teachers: int | str,
    *,
    rows: int,
    group_sizes: Integers | None,
    queries: int,
    classes: int,
    epsilon: Fraction,
    delta: Fraction,
) -> int:
    """Return the number of teachers: `n_teachers`, or for "auto" that of `auto_teachers`, as far as groups allow.

    Parameters
    ----------
    n_teachers : int or "auto"
        The parameter of `PATEClassifier`.
    rows : int
        Number of private rows.
    group_sizes : array of int or None
        Number of rows of each group; None if rows are protected one by one.
    queries, classes : int
        Numbers of queries and classes.
    epsilon, delta : Fraction
        Privacy-loss bound of all answers.
    """
    units = rows if group_sizes is None else len(group_sizes)
    if n_teachers == "auto":
        most = rows if group_sizes is None else most_shards(group_sizes)
        return min(most, auto_teachers(rows, units, queries=queries, classes=classes, epsilon=epsilon, delta=delta))
    teachers = as_count(n_teachers, "n_teachers", least=1, otherwise="'auto'")
    if teachers > units:
        what = "rows" if group_sizes is None else "groups, none of which is split"
        raise ValueError(f"n_teachers={teachers} is more than there are {what}: at most {units} are possible")
    return teachers


def auto_teachers(rows: int, units: int, *, queries: int, classes: int, epsilon: Fraction, delta: Fraction) -> int:
    """Return 6 times the noise of all answers, but no more teachers than have 20 rows, or one unit, each.

    More teachers would each be worse; the votes of fewer would drown in the noise.

    Parameters
    ----------
    rows : int
        Number of private rows.
    units : int
        Number of protected units: of rows, or of groups.
    queries, classes : int
        Numbers of queries and classes.
    epsilon, delta : Fraction
        Privacy-loss bound of all answers.

    >>> auto_teachers(40_000, 40_000, queries=290, classes=2, epsilon=Fraction(1), delta=Fraction(1, 10**6))
    432
    """
    wide = 1.0 if classes == 2 else math.sqrt(2)  # a changed vote moves two counts
    needed = 6 * wide * math.sqrt(queries) * _noise_of_one(epsilon, delta)
    return max(1, min(rows // ROWS_PER_TEACHER, units, math.ceil(needed)))


@lru_cache(maxsize=256)
def _noise_of_one(epsilon: Fraction, delta: Fraction) -> float:
    """1/μ: the noise at which one Gaussian count is (ε, δ)-DP."""
    return float(calibrate.noise(events.ContinuousGaussian, epsilon=epsilon, delta=delta))


def most_questions(labeller: Labeller, n_queries: int, *, public_rows: int) -> int:
    """Return how many rows may be asked: `n_queries`, or more if the labeller pays for questions that it declines."""
    asked = n_queries if labeller.answers is None else labeller.answers
    if asked > public_rows:
        raise ValueError(
            f"questions in labeller_options must be at most {public_rows}, the number of public rows, got {asked}: "
            "questions that are never asked would be paid for"
        )
    return asked


def spent(labeller: Labeller) -> Spent | None:
    """Return how much of the budget was used, or None where that is a secret of the labeller.

    A stateless labeller repeats one event. How often it did so shows in the released labels, and if it stops early, for
    whatever reason, the other repetitions can still be used. This is a filter with one event (see `Ledger`): it bounds
    everything by the whole budget, and makes no smaller claim for what was used so far.
    """
    event = labeller.event.event if isinstance(labeller.event, SeededRelease) else labeller.event
    if not labeller.stateless or not isinstance(event, Repeated):
        return None
    return Spent(f"answers of {describe(event.event)}", labeller.asked, event.times, 0, 0)
