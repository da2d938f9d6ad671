"""How many labels, and how many rows without one, semi-supervised learning takes."""

from __future__ import annotations

from copy import copy
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.semi_supervised import SemiSupervisedLearner
from reticent.plan.plan import Plan, make_plan
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.sanitizers.base import Sanitizer


def semi_supervised(
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    sanitizer: Sanitizer | None = None,
) -> Plan:
    """The rows with which `SemiSupervisedLearner` learns a class, and how many of them need a label.

    `rows` counts both kinds, `labels` those with a label. The paper states no constants for either.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Theorem 3.3.

    Parameters
    ----------
    concept_class : a `concepts.ConceptClass`.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon, delta : the privacy of the rows, labelled or not.
    sanitizer : None for the one made for the class, or that which the learner is given.

    >>> from reticent.concepts import Points
    >>> plans = [semi_supervised(Points(bits=bits), error=0.1, epsilon=1, delta=1e-6) for bits in (64, 4096)]
    >>> [plan.labels for plan in plans], plans[0].rows == plans[1].rows > 10 * plans[0].labels
    ([524, 524], True)
    """
    learner = SemiSupervisedLearner(concept_class, epsilon=epsilon, delta=delta, sanitizer=sanitizer, failure=failure)
    learner._check_parameters()

    return make_plan(
        "SemiSupervisedLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=Guarantee(
            epsilon=float_above(check_epsilon(epsilon)), delta=float_above(check_delta(delta))
        ),
        why="The labels depend on the VC dimension, not on the number of values; the other rows are for the sanitizer. "
        "No row is used by both, so ε and δ are those of one, not their sum. Labels are taken to be a concept's.",
        reach=lambda rows, goal: copy(learner).set_params(error=goal).check_size(rows),
        labels=learner.labels_required,
    )
