"""How many rows a private point takes."""

from __future__ import annotations

import math
from fractions import Fraction

from reticent.concepts.domains import Domain
from reticent.concepts.points import Points
from reticent.exact import Number
from reticent.learners.points import PointLearner
from reticent.plan.plan import Plan, make_plan
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_share


def point(
    *,
    bits: int | None = None,
    domain: Domain | None = None,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number,
) -> Plan:
    """The rows with which `PointLearner` finds the one point that is labelled 1, or the error that rows can promise.

    The paper's number is max{(8/(αε))·ln(4/(βδ)), (8/α)·ln(2/β)}, where 2^bits ≥ 1/(αβ); it has none for fewer bits.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 3.2, with the numbers of its proof.

    Parameters
    ----------
    bits : values are the integers of [0, 2^bits).
    domain : in place of bits, floats, datetimes or integers.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon, delta : the privacy of the point; δ > 0.

    >>> plan = point(bits=100, error=0.1, epsilon=1, delta=1e-6)
    >>> plan.rows, plan.paper_rows
    (370, 1456)
    >>> point(bits=100, rows=370, epsilon=1, delta=1e-6).error
    0.09978
    """
    learner = PointLearner(bits=bits, domain=domain, epsilon=epsilon, delta=delta, failure=failure)
    guarantee = Guarantee(
        epsilon=float_above(check_epsilon(epsilon)), delta=float_above(check_delta(delta, positive=True))
    )
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
        why="The rows do not depend on the number of values: only the point itself, if enough rows with label 1 have "
        "it, can be released. They are taken to be labelled by one point, or all 0.",
        reach=lambda rows, _: learner.check_size(rows),
        paper=paper,
    )
