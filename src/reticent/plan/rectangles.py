"""How many rows a private rectangle needs."""

from __future__ import annotations

import math
from fractions import Fraction

from reticent.concepts.domains import Domain
from reticent.exact import Number, integer
from reticent.learners.rectangles import RectangleLearner, RectangleMethod
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_memory, check_share


def rectangle(
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    dimensions: int,
    bits: int | None = None,
    domain: Domain | None = None,
    method: RectangleMethod = "sides",
) -> Plan:
    """Plan `RectangleLearner`: the rows for an error, or the error for a number of rows.

    Some rectangle is assumed to label every row correctly. `paper_rows` is the bound of Beimel, Nissim, Stemmer,
    *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*, Theorem 3.22, for δ > 0. It is
    printed up to a constant factor, which is taken to be 1 (see `printed_rectangle_rows`).

    Parameters
    ----------
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released rectangle.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    dimensions : int
        Number of columns.
    bits : int, optional
        Size of the domain of each column: the integers in [0, 2^bits). Give either `bits` or `domain`.
    domain : Domain, optional
        The domain of each column, such as floats or datetimes.
    method : {"sides", "partition"}, default "sides"
        "sides" searches for each side of the rectangle; "partition" divides every axis into cells and counts rows.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = rectangle(error=0.1, epsilon=1, delta=1e-6, dimensions=2, bits=16)
    >>> plan.rows, plan.paper_rows
    (10981, 1365662546)
    """
    learner = RectangleLearner(
        bits=bits, domain=domain, epsilon=epsilon, delta=delta, method=method, failure=failure
    )
    learner.check_parameters()
    columns = integer(dimensions, "dimensions", least=1)
    exact_epsilon, exact_delta, beta = check_epsilon(epsilon), check_delta(delta), check_share(failure, "failure")
    width = math.ceil(math.log2(learner.domain_size()))

    def paper(alpha: Fraction) -> int:
        return printed_rectangle_rows(
            float(alpha),
            failure=float(beta),
            epsilon=float(exact_epsilon),
            delta=float(exact_delta),
            dimensions=columns,
            bits=width,
        )

    return make_plan(
        "RectangleLearner",
        lambda alpha: learner.n_required(alpha, dimensions=columns),
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(epsilon, delta),
        why=_reason(learner, columns, beta),
        reach=lambda rows, _: check_memory(rows, columns),
        paper=paper if exact_delta else None,
    )


def printed_rectangle_rows(
    error: float, *, failure: float, epsilon: float, delta: float, dimensions: int, bits: int
) -> int:
    """Return the rows of Theorem 3.22 for n dimensions of d bits, with a constant factor of 1.

    That is n³/(α^2.5·ε)·8^(log* d)·log* d·ln(n/(αδ))·ln(n·log* d/(αβεδ)).
    """
    stars = iterated_logarithm(bits)
    first = math.log(dimensions / (error * delta))
    second = math.log(dimensions * stars / (error * failure * epsilon * delta))
    size = dimensions**3 / (math.pow(error, 2.5) * epsilon)
    return math.ceil(size * math.pow(8, stars) * stars * first * second)


def iterated_logarithm(number: float) -> int:
    """Return log*: how often log2 must be taken until the result is at most 1, but at least 1.

    >>> [iterated_logarithm(bits) for bits in (1, 2, 4, 16, 64, 65536)]
    [1, 1, 2, 3, 4, 4]
    """
    times = 0
    while number > 1:
        number, times = math.log2(number), times + 1
    return max(1, times)


def _reason(learner: RectangleLearner, columns: int, failure: Fraction) -> str:
    if learner.method == "partition":
        return "A sanitizer divides every axis into cells of about equal weight; noisy counts find the outermost ones."
    search = learner.side_search(2 * columns, failure)
    return (
        f"Each of the {2 * columns} sides is searched for at depth {search.depth} with ε = "
        f"{float(search.event.epsilon):.3g}, and cuts off at most {search.cut} rows labelled 1."
    )
