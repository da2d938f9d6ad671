"""How many rows a private point needs."""

from __future__ import annotations

import math
from fractions import Fraction

from reticent.concepts.domains import Domain
from reticent.concepts.points import Points
from reticent.exact import Number
from reticent.learners.points import PointLearner
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.promises import check_share


def point(
    *,
    bits: int | None = None,
    domain: Domain | None = None,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number,
) -> Plan:
    """Plan `PointLearner`: the rows for an error, or the error for a number of rows.

    The paper's number is max{(8/(αε))·ln(4/(βδ)), (8/α)·ln(2/β)} if 2^bits ≥ 1/(αβ). There is none for fewer bits.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 3.2, with the numbers of its proof.

    Parameters
    ----------
    bits : int, optional
        Size of the domain: values are the integers in [0, 2^bits). Give either `bits` or `domain`.
    domain : Domain, optional
        The domain of values, such as floats, datetimes or integers.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released point.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded; above 0.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = point(bits=100, error=0.1, epsilon=1, delta=1e-6)
    >>> plan.rows, plan.paper_rows
    (370, 1456)
    >>> point(bits=100, rows=370, epsilon=1, delta=1e-6).error
    0.09978
    """
    learner = PointLearner(bits=bits, domain=domain, epsilon=epsilon, delta=delta, failure=failure)
    guarantee = planned_guarantee(epsilon, delta, positive=True)
    beta = check_share(failure, "failure")
    values = Points(bits, domain=domain).values

    def paper(alpha: Fraction) -> int:
        if values is not None and values * alpha * beta < 1:
            raise ValueError("the paper's learner draws a random point, which needs 2^bits ≥ 1/(error·failure)")
        released = 8 / (alpha * guarantee.epsilon) * math.log(4 / (beta * guarantee.delta))
        return math.ceil(max(released, 8 / alpha * math.log(2 / beta)))

    return make_plan(
        "PointLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=guarantee,
        why="Rows do not depend on the number of values: only the point itself can be released, if enough rows with "
        "label 1 have it. Labels are assumed to be 1 at one point, or 0 everywhere.",
        reach=lambda rows, _: learner.check_size(rows),
        paper=paper,
    )
