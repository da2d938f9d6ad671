"""How many rows and labels a private active learner needs."""

from __future__ import annotations

import math
from copy import copy
from fractions import Fraction
from typing import Literal

from reticent.exact import Number
from reticent.learners.active import ActiveLearner
from reticent.learners.base import ConceptLearner
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import rows_needed


def active(
    learner: ConceptLearner,
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    transcript: Literal["hidden", "private"] = "hidden",
) -> Plan:
    """Plan `ActiveLearner`: the rows of the pool, and the labels to ask for.

    If the transcript is hidden, the inner learner runs with ε* ≥ 1, so the number of labels does not grow with 1/ε. The
    paper's number is (n/ε)(3 + e^(2ε*)) rows of which n are drawn, at ε* = max(1, ε), with the same inner learner. A
    private transcript gains nothing by drawing, so the paper's plan and ours are those of the inner learner at ε.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Claim 5.7 and Theorem
    5.8 for "hidden", Theorem 5.5 for "private".

    Parameters
    ----------
    learner : ConceptLearner
        The inner learner, as for `ActiveLearner`.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of what is published.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    transcript : {"hidden", "private"}, default "hidden"
        Whether the questions and their answers stay hidden, or are published.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.learners.thresholds import ThresholdLearner
    >>> plan = active(ThresholdLearner(bits=16, epsilon=1), error=0.1, epsilon=0.1)
    >>> plan.rows, plan.labels, plan.paper_rows
    (7039, 441, 45816)
    """
    estimator = ActiveLearner(learner, epsilon=epsilon, delta=delta, failure=failure, transcript=transcript)
    exact = check_epsilon(epsilon)
    estimator.check_parameters()
    inside = max(exact, Fraction(1)) if transcript == "hidden" else exact
    inner = estimator.inner_learner(inside, check_delta(delta))

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
        guarantee=planned_guarantee(epsilon, delta, protects=estimator.protects),
        why="The inner learner decides the labels, at its own ε*. The pool is so large that ε* amounts to ε."
        if transcript == "hidden"
        else "The questions are published, so the inner learner must itself be private at ε.",
        reach=reach,
        paper=paper,
        labels=estimator.labels_required,
    )
