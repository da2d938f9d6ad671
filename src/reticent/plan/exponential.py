"""How many rows a private concept out of any class that can be counted takes."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import ArrayLike

from reticent.concepts.interface import ConceptClass, about
from reticent.exact import Number
from reticent.learners.exponential import ExponentialLearner
from reticent.plan.plan import Plan, make_plan
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_epsilon, float_above
from reticent.promises import check_share


def exponential(
    concept_class: ConceptClass[Any],
    *,
    net: ArrayLike | None = None,
    realizable: bool = False,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
) -> Plan:
    """The rows with which `ExponentialLearner` draws a good concept, or the error that rows can promise.

    No paper prints a number for this learner. `paper_rows` is what the bounds that one prints add up to, half of the
    failure going to the draw and half to the sample: see `generic_rows`.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Proposition A.1,
    Theorem B.5 and Theorem B.6.

    Parameters
    ----------
    concept_class : the class that the concept is drawn from.
    net : public points whose dichotomies are the candidates, for a class that is infinite.
    realizable : whether some candidate labels every row correctly; otherwise the error is that above the best's.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon : the privacy of the concept.

    >>> from reticent.concepts import Intervals
    >>> plan = exponential(Intervals(bits=16), realizable=True, error=0.1, epsilon=1)
    >>> plan.rows, plan.paper_rows
    (610, 71412)
    """
    learner = ExponentialLearner(concept_class, epsilon=epsilon, net=net, failure=failure, realizable=realizable)
    learner._check_parameters()
    size = learner._candidates()
    return make_plan(
        "ExponentialLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=Guarantee(epsilon=float_above(check_epsilon(epsilon))),
        why=f"The draw is out of {about(size)} candidates, and the rows grow with the logarithm of their number. "
        + (
            "One of them is taken to make no error: set realizable=True in the learner as well."
            if realizable
            else "The labels may be of any kind: the error is that above the best candidate's."
        ),
        reach=lambda rows, _: learner.check_size(rows),
        paper=lambda alpha: generic_rows(
            size, concept_class.vc_dimension, alpha, failure=failure, epsilon=epsilon, agnostic=not realizable
        ),
    )


def generic_rows(
    size: int, vc_dimension: int, error: Number, *, failure: Number, epsilon: Number, agnostic: bool
) -> int:
    """The rows that the exponential mechanism needs on a class of this size and VC dimension, by printed bounds.

    The draw is within Δ of the best on m rows, except with probability size·e^(−εΔm/2) (Proposition A.1). If some
    concept makes no error, Δ = α/10 will do with m ≥ (48/α)·(10·VC·ln(48e/α) + ln(5/β')) rows (Theorem B.5). For any
    labels, Δ = α/3 and deviations of α/3 do, with m ≥ 9·(50·VC/α²)·ln(3/(αβ')) rows (Theorem B.6). β' = β/2 is what
    either may fail with.
    """
    alpha, share = float(check_share(error, "error")), float(check_share(failure, "failure") / 2)
    if agnostic:
        part, sample = 3, 450 * vc_dimension / alpha**2 * math.log(3 / (alpha * share))
    else:
        part, sample = 10, 48 / alpha * (10 * vc_dimension * math.log(48 * math.e / alpha) + math.log(5 / share))
    draw = 2 * part / (alpha * float(check_epsilon(epsilon))) * (math.log(size) - math.log(share))
    return math.ceil(max(draw, sample))
