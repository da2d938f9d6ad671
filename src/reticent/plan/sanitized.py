"""How many rows a learner out of a sanitizer takes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from sklearn.base import clone

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.sanitized import SanitizedLearner
from reticent.plan.plan import Plan, make_plan
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_share, rows_needed
from reticent.sanitizers.base import Sanitizer


def sanitized(
    sanitizer: Sanitizer,
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    realizable: bool = False,
) -> Plan:
    """The rows with which `SanitizedLearner` promises an error, or the error that rows can promise.

    The paper makes, from an (α, β, ε', m)-sanitizer, a learner with error 15α + 12β, failure 10β and privacy 6ε' from
    ⌈6/α²⌉·⌈(18/β)·ln(2/(αβ))·(1 + 1/(mε'))⌉·m rows, for α, ε' ≤ 1/8. Here β is the lesser of failure/10 and error/24,
    and m is what our sanitizer takes at ε' = ε/6. Its learner is for rows that some concept labels without error, so
    there is a number only for `realizable=True`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 5.4 and Theorem 5.5.

    Parameters
    ----------
    sanitizer, concept_class : as `SanitizedLearner` takes them.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon, delta : the privacy of all that is published.
    realizable : whether some concept is taken to make no error; else the error is what comes on top of the best's.

    >>> from reticent.concepts import Points
    >>> from reticent.sanitizers.points import PointSanitizer
    >>> points = PointSanitizer(bits=40, epsilon=1, delta=1e-6)
    >>> plan = sanitized(points, Points(bits=40), error=0.1, epsilon=0.5, delta=1e-6, realizable=True)
    >>> plan.rows < 20_000, plan.paper_rows > 10**12
    (True, True)
    """
    learner = SanitizedLearner(
        sanitizer, concept_class, epsilon=epsilon, delta=delta, failure=failure, realizable=realizable
    )
    learner._check_parameters()
    exact, beta = check_epsilon(epsilon), check_share(failure, "failure")

    def paper(goal: Fraction) -> int:
        own = min(beta / 10, goal / 24)
        alpha = (goal - 12 * own) / 15
        if exact > Fraction(6, 8):
            raise ValueError("the paper's learner is for ε ≤ 6/8")
        share = {"epsilon": exact / 6, "delta": check_delta(delta) / 2}
        known = sanitizer.get_params(deep=False)
        single = clone(sanitizer).set_params(**{name: value for name, value in share.items() if name in known})
        rows = rows_needed(single.n_required, alpha, own)
        blocks = math.ceil(18 / own * math.log(2 / (alpha * own)) * (1 + 6 / (rows * float(exact))))
        return math.ceil(6 / alpha**2) * blocks * rows

    return make_plan(
        "SanitizedLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=Guarantee(epsilon=float_above(exact), delta=float_above(check_delta(delta))),
        why="A noisy count, and a private copy of the rows of either label; the concept with the fewest errors on the "
        "copies is found at no further cost. "
        + (
            "Some concept is taken to make no error: set realizable=True in the learner as well."
            if realizable
            else "The labels may be of any kind: the error is that above the best concept's."
        ),
        reach=lambda rows, _: learner.check_size(rows),
        paper=paper if realizable else None,
    )
