"""How many labelled and unlabelled rows semi-supervised learning needs."""

from __future__ import annotations

from copy import copy
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.semi_supervised import SemiSupervisedLearner
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.sanitizers.base import Sanitizer


def semi_supervised(
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    sanitizer: Sanitizer | None = None,
) -> Plan:
    """Plan `SemiSupervisedLearner`: the rows for an error, and how many of them need a label.

    `rows` counts all rows, `labels` those with a label. The paper states no constants for either.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Theorem 3.3.

    Parameters
    ----------
    concept_class : ConceptClass
        The class that is learned.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows, with and without a label. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of all rows, labelled or not.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    sanitizer : Sanitizer, optional
        Makes the private copy of the unlabelled rows; by default the one made for the class.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Points
    >>> plans = [semi_supervised(Points(bits=bits), error=0.1, epsilon=1, delta=1e-6) for bits in (64, 4096)]
    >>> [plan.labels for plan in plans], plans[0].rows == plans[1].rows > 10 * plans[0].labels
    ([524, 524], True)
    """
    learner = SemiSupervisedLearner(concept_class, epsilon=epsilon, delta=delta, sanitizer=sanitizer, failure=failure)
    learner.check_parameters()

    return make_plan(
        "SemiSupervisedLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(epsilon, delta),
        why="Labels depend on the VC dimension, not on the number of values; the sanitizer needs the other rows. No "
        "row is used twice, so ε and δ are not added up. Some concept of the class is assumed to make no error.",
        reach=lambda rows, goal: copy(learner).set_params(error=goal).check_size(rows),
        labels=learner.labels_required,
    )
