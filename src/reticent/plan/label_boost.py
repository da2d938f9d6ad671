"""How many rows and labels a private learner needs that labels most of its rows itself."""

from __future__ import annotations

import math
from copy import copy
from fractions import Fraction
from typing import Any, Literal

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.base import ConceptLearner
from reticent.learners.label_boost import LabelBoost
from reticent.learners.relabelling_costs import Variant
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share, rows_needed


def label_boost(
    learner: ConceptLearner,
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    variant: Variant = "max",
    agnostic: bool = False,
    rounds: int | Literal["auto"] = "auto",
) -> Plan:
    """Plan `LabelBoost`: the rows for an error, and how many of them need a label.

    The paper's number is (96000/α)·d·ln(2240/(αβ)) labels and 90000·n rows without, for the VC dimension d and a
    learner that needs n rows at ε = 1 and δ/41; the error is 11α and the failure 2β. For ε < 1 a share of ε/(3 + e) of
    all rows is drawn first. Both plans use the same inner learner. There is no number for agnostic learning, which the
    paper leaves to the reader.

    Source. Beimel, Nissim, Stemmer, *Learning Privately with Labeled and Unlabeled Examples*, Claim 4.9, Lemma 4.12,
    Theorem 4.13 and, for ε < 1, Claim 4.3 and Theorem 4.14.

    Parameters
    ----------
    learner : ConceptLearner
        The private learner that is trained on the relabelled rows.
    concept_class : ConceptClass
        The class that relabels the rows.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows, with and without a label. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released hypothesis.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    variant : str, default "max"
        Variant of the relabelling, as for `LabelBoost`.
    agnostic : bool, default False
        Whether labels may be arbitrary. Then the error is counted from that of the best concept.
    rounds : int or "auto", default "auto"
        Rounds of relabelling.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Thresholds
    >>> from reticent.learners.thresholds import ThresholdLearner
    >>> plan = label_boost(ThresholdLearner(bits=16, epsilon=1), Thresholds(16), error=0.1, epsilon=1)
    >>> plan.labels, plan.rows, plan.paper_rows
    (695, 10098, 643183921)
    """
    public: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "failure": failure}
    estimator = LabelBoost(learner, concept_class, variant=variant, agnostic=agnostic, rounds=rounds, **public)
    estimator.check_parameters()
    exact, exact_delta, beta = check_epsilon(epsilon), check_delta(delta), check_share(failure, "failure")

    def paper(alpha: Fraction) -> int:
        labels, base = printed_labels(concept_class.vc_dimension, alpha / 11, beta / 2), estimator.base_learner(1)
        base.set_params(epsilon=1, **({"delta": exact_delta / 41} if "delta" in base.get_params(deep=False) else {}))
        drawn = labels + 90_000 * rows_needed(base.n_required, alpha / 11, beta / 2)
        return drawn if exact >= 1 else math.ceil(drawn * (3 + math.e) / float(exact))

    def reach(rows: int, goal: Fraction | None) -> None:
        if goal is not None:
            copy(estimator).set_params(error=goal).check_size(rows)

    return make_plan(
        "LabelBoost",
        estimator.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(epsilon, delta),
        why="The given labels select one labelling of a part of the other rows. The inner learner needs the rest.",
        reach=reach,
        paper=None if agnostic else paper,
        labels=estimator.labels_required,
    )


def printed_labels(dimension: int, error: Fraction, failure: Fraction) -> int:
    """Return the labels of Claim 4.9, which promises 11 times this error with twice this failure."""
    return math.ceil(96_000 / error * dimension * math.log(2240 / (error * failure)))
