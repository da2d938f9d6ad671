"""What a plan is: the rows that an error takes, or the error that a number of rows can promise."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from reticent.errors import OutOfReach
from reticent.exact import Number, integer
from reticent.privacy import Guarantee
from reticent.privacy.guarantee import Protects
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_share, rows_needed

RowsForError = Callable[[Fraction], int]
ReachCheck = Callable[[int, Fraction | None], None]  # of rows, and of the error to promise, if any

_DIGITS = 10_000  # errors are searched for among the numbers of four digits,
_DECADES = 18  # down to 1e-18


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows with which an estimator promises an error, by our constants and by those of its paper.

    Parameters
    ----------
    estimator : str
        Name of the estimator.
    rows : int
        Rows that were given, or that the error needs.
    error : float or None
        The promised error: as given, or the least that the rows can promise. None if they can promise nothing.
    failure : float
        Probability with which the promise may fail.
    guarantee : Guarantee
        The privacy of the estimator.
    why : str
        What decides the number of rows.
    paper_rows : int, optional
        Rows for the same error by the paper's constants. None if no paper states a number for these parameters.
    paper_error : float, optional
        The least error of the same rows by the paper's constants. Only if rows were given.
    labels : int, optional
        How many of the rows need a label. None if all do.
    feasible : bool, default True
        Whether `fit` can run on this many rows.
    obstacle : str, optional
        Why `fit` refuses, and what to do instead.
    """

    estimator: str
    rows: int
    error: float | None
    failure: float
    guarantee: Guarantee
    why: str
    paper_rows: int | None = None
    paper_error: float | None = None
    labels: int | None = None
    feasible: bool = True
    obstacle: str | None = None

    def __str__(self) -> str:
        promise = "no error below 1" if self.error is None else f"an error of at most {self.error:.4g}"
        verb = "promise" if self.feasible else "would promise"
        lines = [
            f"{self.estimator}: {self.rows:,} rows {verb} {promise} with probability {1 - self.failure:g}, "
            f"at ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g} for {self.guarantee.protects}"
        ]
        if self.obstacle is not None:
            lines.append(f"this cannot be run: {self.obstacle}")
        if self.labels is not None:
            lines.append(f"labels needed: {self.labels:,}")
        if self.paper_rows is not None:
            lines.append(f"with the constants of the paper: {self.paper_rows:,} rows for the same error")
        if self.paper_error is not None:
            lines.append(
                f"with the constants of the paper, the same rows promise an error of at most {self.paper_error:.4g}"
            )
        return "\n".join([*lines, self.why])


def make_plan(
    estimator: str,
    ours: RowsForError,
    *,
    error: Number | None,
    rows: int | None,
    failure: Number,
    guarantee: Guarantee,
    why: str,
    reach: ReachCheck,
    paper: RowsForError | None = None,
    labels: RowsForError | None = None,
) -> Plan:
    """Plan for an error, or for a number of rows. Exactly one of the two is given.

    Parameters
    ----------
    estimator : str
        Name of the estimator.
    ours : callable
        From an error to the rows that it needs. A larger error must not need more. Raises `ValueError` if no number of
        rows suffices; it is called first for the easiest error, so that a parameter it refuses is not taken for an
        error out of reach.
    error, rows, failure, guarantee, why
        As in `Plan`.
    reach : callable
        Raises `OutOfReach` if `fit` refuses this many rows to promise this error. It is the estimator's own check, so
        that plan and fit agree.
    paper : callable, optional
        As `ours`, by the constants of the paper.
    labels : callable, optional
        From an error to the number of rows that need a label.

    Returns
    -------
    Plan
    """
    if (error is None) == (rows is None):
        raise ValueError("give either error, to learn how many rows it takes, or rows, to learn which error they reach")
    beta = float(check_share(failure, "failure"))
    paper = None if paper is None else partial(_printed, paper)
    goal: Fraction | None
    printed = None
    if error is not None:
        have = rows_needed(ours, goal := check_share(error, "error"))
    else:
        have = integer(rows, "rows", least=1)
        rows_needed(ours, _error(_DIGITS - 1))
        goal = least_error(ours, have)
        printed = None if paper is None else least_error(paper, have)
    obstacle = None
    try:
        reach(have, goal)
    except OutOfReach as refused:
        obstacle = str(refused)
    return Plan(
        feasible=obstacle is None,
        obstacle=obstacle,
        estimator=estimator,
        rows=have,
        error=None if goal is None else float(goal),
        failure=beta,
        guarantee=guarantee,
        why=why,
        paper_rows=None if paper is None or goal is None else _attempt(paper, goal),
        paper_error=None if printed is None else float(printed),
        labels=None if labels is None or goal is None else labels(goal),
    )


def planned_guarantee(
    epsilon: Number, delta: Number = 0, *, positive: bool = False, protects: Protects = "rows"
) -> Guarantee:
    """Return the guarantee of an estimator with these parameters, which are checked.

    Parameters
    ----------
    epsilon : float or Fraction
        Privacy-loss bound ε.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    positive : bool, default False
        Whether δ must be above 0.
    protects : {"rows", "labels", "rows and queries"}, default "rows"
        What is protected.
    """
    return Guarantee(
        epsilon=float_above(check_epsilon(epsilon)),
        delta=float_above(check_delta(delta, positive=positive)),
        protects=protects,
    )


def least_error(needed: RowsForError, rows: int) -> Fraction | None:
    """Return the least error of four digits that this many rows can promise; None if they promise no error below 1."""

    def reached(error: Fraction) -> bool:
        least = _attempt(needed, error)
        return least is not None and least <= rows

    decade = 0
    while decade < _DECADES and reached(_error(_DIGITS // 10, decade)):
        decade += 1
    digits = bisect_left(range(_DIGITS), True, lo=_DIGITS // 10, key=lambda digits: reached(_error(digits, decade)))
    return None if decade == 0 and digits == _DIGITS else _error(digits, decade)


def _printed(paper: RowsForError, error: Fraction) -> int:
    """Return the paper's number; raise `ValueError` if it is beyond floating point."""
    try:
        return paper(error)
    except ArithmeticError as beyond:
        raise ValueError("the printed number is beyond floating point") from beyond


def _error(digits: int, decade: int = 0) -> Fraction:
    """Return 0.digits divided by a power of ten."""
    return Fraction(digits, _DIGITS * 10**decade)


def _attempt(needed: RowsForError, error: Fraction) -> int | None:
    """Return the rows that an error needs; None if no number of rows suffices."""
    try:
        return rows_needed(needed, error)
    except ValueError:
        return None
