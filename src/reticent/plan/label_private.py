"""How many rows a learner needs if only labels are private, or if public points are at hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.label_private import LabelPrivateLearner, SemiPrivateLearner
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_epsilon
from reticent.promises import check_share, rows_needed


def label_private(
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
) -> Plan:
    """Plan `LabelPrivateLearner`, which protects labels only: the rows for an error, or the reverse.

    The paper's number is (768/(α²ε))·(VC·ln(64/α) + 2·ln(8/β)).

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 13 and Theorem 6.2.

    Parameters
    ----------
    concept_class : ConceptClass
        The class that is learned.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the labels.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Thresholds
    >>> plan = label_private(Thresholds(bits=64), error=0.1, epsilon=1)
    >>> plan.rows, plan.paper_rows, plan.guarantee.protects
    (293, 1275788, 'labels')
    """
    learner = LabelPrivateLearner(concept_class, epsilon=epsilon, failure=failure)
    learner.check_parameters()
    return make_plan(
        "LabelPrivateLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(epsilon, protects="labels"),
        why="Rows depend on the VC dimension, not on the number of values: all points are public, and the candidates "
        "are the labellings of them by the class. Some concept of the class is assumed to make no error.",
        reach=lambda rows, _: learner.check_size(rows),
        paper=lambda alpha: _printed_rows(concept_class, alpha, failure, epsilon),
    )


def semi_private(
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
) -> Plan:
    """Plan `SemiPrivateLearner`, which also has public points: the private rows for an error, or the reverse.

    `why` says how many public points are needed. The paper's number is that of its label-private learner, less the
    (32/α)·(VC·ln(64/α) + ln(8/β)) rows that give the candidates there and are public here.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    §6.2 and Example 6.3, with the numbers of Figure 13.

    Parameters
    ----------
    concept_class : ConceptClass
        The class that is learned.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of private rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the private rows.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Thresholds
    >>> plan = semi_private(Thresholds(bits=64), error=0.1, epsilon=1)
    >>> plan.rows, plan.paper_rows, "549 public points" in plan.why
    (427, 1272096, True)
    """
    learner = SemiPrivateLearner(concept_class, epsilon=epsilon, failure=failure)
    learner.check_parameters()

    def public(alpha: Number) -> int:
        return rows_needed(learner.n_public_required, alpha)

    plan = make_plan(
        "SemiPrivateLearner",
        learner.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(epsilon),
        why="Rows depend on the VC dimension, not on the number of values: the candidates are the labellings of public "
        "points by the class. Some concept of the class is assumed to make no error.",
        reach=lambda rows, goal: learner.check_size(rows, public=None if goal is None else public(goal)),
        paper=lambda alpha: (
            _printed_rows(concept_class, alpha, failure, epsilon) - _printed_points(concept_class, alpha, failure)
        ),
    )
    if plan.error is None:
        return plan
    points = public(plan.error)
    return replace(plan, why=f"{plan.why} {points} public points from the distribution of the rows are needed.")


def _printed_rows(concept_class: ConceptClass[Any], alpha: Fraction, failure: Number, epsilon: Number) -> int:
    logs = _shatter(concept_class, alpha) + 2 * math.log(8 / check_share(failure, "failure"))
    return math.ceil(Fraction(768) / (alpha**2 * check_epsilon(epsilon)) * Fraction(logs))


def _printed_points(concept_class: ConceptClass[Any], alpha: Fraction, failure: Number) -> int:
    logs = _shatter(concept_class, alpha) + math.log(8 / check_share(failure, "failure"))
    return math.ceil(Fraction(32) / alpha * Fraction(logs))


def _shatter(concept_class: ConceptClass[Any], alpha: Fraction) -> float:
    return concept_class.vc_dimension * math.log(64 / alpha)
