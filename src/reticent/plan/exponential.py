"""How many rows the exponential mechanism needs to learn a concept class."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import ArrayLike

from reticent.concepts.interface import ConceptClass
from reticent.concepts.labellings import about
from reticent.exact import Number
from reticent.learners.exponential import ExponentialLearner
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_epsilon
from reticent.promises import check_share


def exponential(
    concept_class: ConceptClass[Any],
    *,
    net: ArrayLike | None = None,
    realizable: bool = False,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
) -> Plan:
    """Plan `ExponentialLearner`: the rows for an error, or the error for a number of rows.

    No paper prints a number for this learner. `paper_rows` combines printed bounds; half of the failure goes to the
    draw and half to the sample. See `generic_rows`.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Proposition A.1,
    Theorem B.5 and Theorem B.6.

    Parameters
    ----------
    concept_class : ConceptClass
        The class that the concept is drawn from.
    net : array-like, optional
        Public points, for an infinite class. The candidates are its labellings of them.
    realizable : bool, default False
        Whether some candidate labels every row correctly. If not, the error is counted from that of the best candidate.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released concept.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Intervals
    >>> plan = exponential(Intervals(bits=16), realizable=True, error=0.1, epsilon=1)
    >>> plan.rows, plan.paper_rows
    (610, 71412)
    """
    learner = ExponentialLearner(concept_class, epsilon=epsilon, net=net, failure=failure, realizable=realizable)
    learner.check_parameters()
    size = learner.n_candidates()
    return make_plan(
        "ExponentialLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(epsilon),
        why=f"The learner draws out of {about(size)} candidates; rows grow with the logarithm of their number. "
        + (
            "One candidate is assumed to make no error: set realizable=True in the learner as well."
            if realizable
            else "Labels may be arbitrary: the error is counted from that of the best candidate."
        ),
        reach=lambda rows, _: learner.check_size(rows),
        paper=lambda alpha: generic_rows(
            size, concept_class.vc_dimension, alpha, failure=failure, epsilon=epsilon, agnostic=not realizable
        ),
    )


def generic_rows(
    size: int, vc_dimension: int, error: Number, *, failure: Number, epsilon: Number, agnostic: bool
) -> int:
    """Return the rows that the exponential mechanism needs by printed bounds.

    The draw is within Δ of the best on m rows, except with probability size·e^(−εΔm/2) (Proposition A.1). If some
    concept makes no error, Δ = α/10 suffices with m ≥ (48/α)·(10·VC·ln(48e/α) + ln(5/β')) rows (Theorem B.5). For
    arbitrary labels, Δ = α/3 and deviations of α/3 suffice with m ≥ 9·(50·VC/α²)·ln(3/(αβ')) rows (Theorem B.6).
    Draw and sample may each fail with probability β' = β/2.

    Parameters
    ----------
    size : int
        Number of concepts.
    vc_dimension : int
        VC dimension of the class.
    error, failure : float or Fraction
        The error α and the probability of failure β.
    epsilon : float or Fraction
        Privacy-loss bound ε.
    agnostic : bool
        Whether labels are arbitrary.
    """
    alpha, share = float(check_share(error, "error")), float(check_share(failure, "failure") / 2)
    if agnostic:
        part, sample = 3, 450 * vc_dimension / alpha**2 * math.log(3 / (alpha * share))
    else:
        part, sample = 10, 48 / alpha * (10 * vc_dimension * math.log(48 * math.e / alpha) + math.log(5 / share))
    draw = 2 * part / (alpha * float(check_epsilon(epsilon))) * (math.log(size) - math.log(share))
    return math.ceil(max(draw, sample))
