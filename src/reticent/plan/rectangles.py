"""How many rows a private rectangle takes."""

from __future__ import annotations

import math
from fractions import Fraction

from reticent.concepts.domains import Domain
from reticent.exact import Number, integer
from reticent.learners.rectangles import Method, RectangleLearner
from reticent.plan.plan import Plan, make_plan
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_memory, check_share


def rectangle(
    *,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    dimensions: int,
    bits: int | None = None,
    domain: Domain | None = None,
    method: Method = "sides",
) -> Plan:
    """A plan for `RectangleLearner` on so many columns, for labels that a rectangle fits.

    Give `error` to learn how many rows it takes, or `rows` to learn which error they can promise. `paper_rows` is the
    bound of Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Theorem 3.22, for δ > 0. It is printed up to a constant factor, which is taken to be 1 (see `printed_rows`).

    Parameters
    ----------
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon, delta : the privacy of the rectangle; δ = 0 is allowed.
    dimensions : the number of columns.
    bits : the values of all columns are the integers of [0, 2^bits).
    domain : in place of bits, floats or datetimes.
    method : "sides" searches for each side of the rectangle; "partition" cuts every axis into cells and counts.

    >>> plan = rectangle(error=0.1, epsilon=1, delta=1e-6, dimensions=2, bits=16)
    >>> plan.rows, plan.paper_rows
    (10981, 1365662546)
    """
    learner = RectangleLearner(
        bits=bits, domain=domain, epsilon=epsilon, delta=delta, method=method, failure=failure
    )
    learner._check_parameters()
    columns = integer(dimensions, "dimensions", least=1)
    exact_epsilon, exact_delta, beta = check_epsilon(epsilon), check_delta(delta), check_share(failure, "failure")
    width = math.ceil(math.log2(learner._values()))

    def paper(alpha: Fraction) -> int:
        return printed_rows(
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
        guarantee=Guarantee(epsilon=float_above(exact_epsilon), delta=float_above(exact_delta)),
        why=_why(learner, columns, beta),
        reach=lambda rows, _: check_memory(rows, columns),
        paper=paper if exact_delta else None,
    )


def printed_rows(
    error: float, *, failure: float, epsilon: float, delta: float, dimensions: int, bits: int
) -> int:
    """n³/(α^2.5·ε)·8^(log* d)·log* d·ln(n/(αδ))·ln(n·log* d/(αβεδ)) for n dimensions of d bits, as in Theorem 3.22."""
    stars = iterated_logarithm(bits)
    first = math.log(dimensions / (error * delta))
    second = math.log(dimensions * stars / (error * failure * epsilon * delta))
    size = dimensions**3 / (math.pow(error, 2.5) * epsilon)
    return math.ceil(size * math.pow(8, stars) * stars * first * second)


def iterated_logarithm(number: float) -> int:
    """log*: how often log2 must be taken until at most 1 is left, and at least 1.

    >>> [iterated_logarithm(bits) for bits in (1, 2, 4, 16, 64, 65536)]
    [1, 1, 2, 3, 4, 4]
    """
    times = 0
    while number > 1:
        number, times = math.log2(number), times + 1
    return max(1, times)


def _why(learner: RectangleLearner, columns: int, failure: Fraction) -> str:
    if learner.method == "partition":
        return "a sanitizer cuts every axis into cells of about equal weight, and noisy counts find the outermost ones"
    search = learner._search(2 * columns, failure)
    return (
        f"each of the {2 * columns} sides is searched for at depth {search.depth} with ε = "
        f"{float(search.event.epsilon):.3g}, and cuts off at most {search.cut} rows labelled 1"
    )
