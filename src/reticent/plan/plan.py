"""What a plan is: how many rows a promise takes, or what a number of rows can promise, before any data are touched."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from reticent.errors import OutOfReach
from reticent.exact import Number, integer
from reticent.privacy import Guarantee
from reticent.promises import check_share, rows_needed

Rows = Callable[[Fraction], int]  # the rows needed for an error
Reach = Callable[[int, Fraction | None], None]  # whether this many rows can be run, to promise an error if any

_DIGITS = 10_000  # errors are looked for among the numbers of four digits,
_DECADES = 18  # and down to 1e-18


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows with which an estimator promises an error, with our constants and with those that its paper prints.

    `paper_rows` is None where no paper states a number, or where what it printed cannot be had at these parameters.
    Where rows were given, `error` is the least that they can promise (None if they can promise nothing), and
    `paper_error` the least by the paper's constants. A plan is `feasible` unless `fit` would refuse this many rows
    because it cannot run on them; then `obstacle` is the reason that `fit` gives, and what can be done instead.
    """

    estimator: str
    rows: int
    error: float | None
    failure: float
    guarantee: Guarantee
    why: str
    paper_rows: int | None = None
    paper_error: float | None = None
    labels: int | None = None  # how many of the rows need a label, where not all do
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
    ours: Rows,
    *,
    error: Number | None,
    rows: object,
    failure: Number,
    guarantee: Guarantee,
    why: str,
    reach: Reach,
    paper: Rows | None = None,
    labels: Callable[[Fraction], int] | None = None,
) -> Plan:
    """A plan for an error, or for a number of rows; exactly one of the two is given.

    `ours` and `paper` give the rows that an error needs, and need no more for a larger error. They raise ValueError
    where no number of rows would do; so `ours` is asked first for the easiest error, which tells a parameter that it
    refuses from an error out of reach. `reach` raises `OutOfReach` for rows, and the error they are to promise, that
    `fit` refuses: it is the estimator's own check, so that plan and fit cannot differ.
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


def least_error(needed: Rows, rows: int) -> Fraction | None:
    """The least error of four digits that this many rows can promise; None if they cannot promise any below 1."""

    def reached(error: Fraction) -> bool:
        least = _attempt(needed, error)
        return least is not None and least <= rows

    decade = 0
    while decade < _DECADES and reached(_error(_DIGITS // 10, decade)):
        decade += 1
    digits = bisect_left(range(_DIGITS), True, lo=_DIGITS // 10, key=lambda digits: reached(_error(digits, decade)))
    return None if decade == 0 and digits == _DIGITS else _error(digits, decade)


def _printed(paper: Rows, error: Fraction) -> int:
    """A printed number, which may be beyond floating point: then there is none."""
    try:
        return paper(error)
    except ArithmeticError as beyond:
        raise ValueError("the printed number is beyond floating point") from beyond


def _error(digits: int, decade: int = 0) -> Fraction:
    """0.digits, moved to the right by a number of decades."""
    return Fraction(digits, _DIGITS * 10**decade)


def _attempt(needed: Rows, error: Fraction) -> int | None:
    """The rows needed, or None where no number of rows would do."""
    try:
        return rows_needed(needed, error)
    except ValueError:
        return None
