"""How many rows a learner needs that learns from a sanitized copy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from sklearn.base import clone

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.sanitized import SanitizedLearner
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, rows_needed
from reticent.sanitizers.base import Sanitizer


def sanitized(
    sanitizer: Sanitizer,
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    realizable: bool = False,
) -> Plan:
    """Plan `SanitizedLearner`: the rows for an error, or the error for a number of rows.

    From an (α, β, ε', m)-sanitizer the paper makes a learner with error 15α + 12β, failure 10β and privacy 6ε', for
    ⌈6/α²⌉·⌈(18/β)·ln(2/(αβ))·(1 + 1/(mε'))⌉·m rows and α, ε' ≤ 1/8. Here β is the lesser of failure/10 and error/24,
    and m is what our sanitizer needs at ε' = ε/6. The paper assumes that some concept makes no error, so there is a
    number only for `realizable=True`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 5.4 and Theorem 5.5.

    Parameters
    ----------
    sanitizer : Sanitizer
        Makes the private copies.
    concept_class : ConceptClass
        The class that is learned.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of everything that is published.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    realizable : bool, default False
        Whether some concept is assumed to make no error. If not, the error is counted from that of the best concept.

    Returns
    -------
    Plan

    Examples
    --------
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
    learner.check_parameters()
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
        guarantee=planned_guarantee(epsilon, delta),
        why="The learner makes a noisy count and a private copy of the rows of each label. Finding the concept with "
        "the fewest errors on the copies costs no privacy. "
        + (
            "Some concept is assumed to make no error: set realizable=True in the learner as well."
            if realizable
            else "Labels may be arbitrary: the error is counted from that of the best concept."
        ),
        reach=lambda rows, _: learner.check_size(rows),
        paper=paper if realizable else None,
    )
