"""What a plan is: how many rows a promise takes, or what a number of rows can promise, before any data are touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from reticent.exact import integer, rational
from reticent.privacy import Guarantee

Rows = Callable[[Fraction], int]  # the rows needed for an error

_STEPS = 1 << 12  # errors are looked for in steps of 1/_STEPS


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows with which an estimator promises an error, with our constants and with those that its paper prints.

    `paper_rows` is None where no paper states a number, or where what it printed cannot be had at these parameters.
    Where rows were given, `error` is the least that they can promise (None if they can promise nothing), and
    `paper_error` the least by the paper's constants.
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

    def __str__(self) -> str:
        promise = "no error below 1" if self.error is None else f"error ≤ {self.error:.3g}"
        lines = [
            f"{self.estimator}: {self.rows:,} rows promise {promise} with probability {1 - self.failure:g}, "
            f"at ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g} for {self.guarantee.protects}"
        ]
        if self.labels is not None:
            lines.append(f"labels needed: {self.labels:,}")
        if self.paper_rows is not None:
            lines.append(f"with the constants of the paper: {self.paper_rows:,} rows for the same error")
        if self.paper_error is not None:
            lines.append(f"with the constants of the paper, the same rows promise error ≤ {self.paper_error:.3g}")
        return "\n".join([*lines, self.why])


def make_plan(
    estimator: str,
    ours: Rows,
    *,
    error: object,
    rows: object,
    failure: object,
    guarantee: Guarantee,
    why: str,
    paper: Rows | None = None,
    labels: Callable[[Fraction], int] | None = None,
) -> Plan:
    """A plan for an error, or for a number of rows; exactly one of the two is given.

    `ours` and `paper` give the rows that an error needs, and need fewer for a larger error.
    """
    if (error is None) == (rows is None):
        raise ValueError("give either error, to learn how many rows it takes, or rows, to learn which error they reach")
    beta = float(rational(failure, "failure"))
    if error is not None:
        goal = rational(error, "error")
        return Plan(
            estimator=estimator,
            rows=ours(goal),
            error=float(goal),
            failure=beta,
            guarantee=guarantee,
            why=why,
            paper_rows=None if paper is None else paper(goal),
            labels=None if labels is None else labels(goal),
        )
    have = integer(rows, "rows", least=1)
    reached = least_error(ours, have)
    printed = None if paper is None else least_error(paper, have)
    return Plan(
        estimator=estimator,
        rows=have,
        error=None if reached is None else float(reached),
        failure=beta,
        guarantee=guarantee,
        why=why,
        paper_rows=None if paper is None or reached is None else paper(reached),
        paper_error=None if printed is None else float(printed),
        labels=None if labels is None or reached is None else labels(reached),
    )


def least_error(needed: Rows, rows: int) -> Fraction | None:
    """The least error, in steps of 1/4096, that so many rows can promise; None if they cannot promise any."""
    low, high = 0, _STEPS  # an error of 0 is never promised; whether one just below 1 is has to be seen
    while high - low > 1:
        middle = (low + high) // 2
        try:
            enough = needed(Fraction(middle, _STEPS)) <= rows
        except ValueError:  # no number of rows would do
            enough = False
        low, high = (low, middle) if enough else (middle, high)
    return None if high == _STEPS else Fraction(high, _STEPS)
