"""How many rows, and how many labels, a private active learner takes."""

from __future__ import annotations

import math
from copy import copy
from fractions import Fraction
from typing import Literal

from reticent.exact import Number
from reticent.learners.active import ActiveLearner
from reticent.learners.base import ConceptLearner
from reticent.plan.plan import Plan, make_plan
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import rows_needed


def active(
    learner: ConceptLearner,
    *,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    transcript: Literal["hidden", "private"] = "hidden",
) -> Plan:
    """The rows of the pool, and the labels asked for, with which `ActiveLearner` keeps the promise of a learner.

    Where the questions stay hidden, the learner inside runs with ε* ≥ 1, so that the labels do not grow with 1/ε. The
    paper's number is (n/ε)(3 + e^(2ε*)) rows of which n are drawn, at ε* = max(1, ε); the learner inside is ours in
    both. A private transcript gains nothing by drawing: the paper and we ask the learner inside, at ε.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Claim 5.7 and Theorem
    5.8 for "hidden", Theorem 5.5 for "private".

    Parameters
    ----------
    learner : the learner inside, as `ActiveLearner` takes it.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon, delta : the privacy of what is published.
    transcript : "hidden" or "private".

    >>> from reticent.learners.thresholds import ThresholdLearner
    >>> plan = active(ThresholdLearner(bits=16, epsilon=1), error=0.1, epsilon=0.1)
    >>> plan.rows, plan.labels, plan.paper_rows
    (7039, 441, 45816)
    """
    estimator = ActiveLearner(learner, epsilon=epsilon, delta=delta, failure=failure, transcript=transcript)
    exact = check_epsilon(epsilon)
    estimator._check_parameters()
    inside = max(exact, Fraction(1)) if transcript == "hidden" else exact
    inner = estimator._inner(inside, check_delta(delta))

    def paper(alpha: Fraction) -> int:
        drawn = rows_needed(inner.n_required, alpha, failure)
        return drawn if transcript == "private" else math.ceil(drawn * (3 + math.exp(2 * inside)) / float(exact))

    def reach(rows: int, goal: Fraction | None) -> None:
        labels = min(rows, estimator.labels_required(goal)) if goal is not None else None
        copy(estimator).set_params(error=goal).check_size(rows, n_labels=labels)

    return make_plan(
        "ActiveLearner",
        estimator.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=Guarantee(
            epsilon=float_above(exact), delta=float_above(check_delta(delta)), protects=estimator.protects
        ),
        why="The labels are those that the learner inside needs at its own ε*; the pool is as large as makes ε* an ε."
        if transcript == "hidden"
        else "Which rows are asked for is published, so the learner inside has to keep ε by itself.",
        reach=reach,
        paper=paper,
        labels=estimator.labels_required,
    )
