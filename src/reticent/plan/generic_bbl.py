"""How many rows the everlasting predictor of the paper needs, by printed and by calibrated constants."""

from __future__ import annotations

from copy import copy
from fractions import Fraction
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.relabelling_costs import Variant
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.predictors.bbl_phases import BBLLabeller
from reticent.predictors.generic_bbl import GenericBBL
from reticent.promises import rows_needed


def generic_bbl(
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number,
    labeller: BBLLabeller = "between-thresholds",
    variant: Variant = "max",
) -> Plan:
    """Plan `GenericBBL` with calibrated constants: the rows that promise an error in every answer.

    The paper's number is n of Algorithm GenericBBL with τ = 1.1·10^10, at α = error/6 and β = failure/4. There is none
    for ε ≥ 1, nor for α, β or δ ≥ 1/16.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Theorem 5.1 and Algorithm GenericBBL.

    Parameters
    ----------
    concept_class : ConceptClass
        The class that is learned.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail, in all phases together.
    epsilon : float or Fraction
        Privacy-loss bound ε of training rows, and with labeller="gaussian" of queries too.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded.
    labeller : {"between-thresholds", "gaussian"}, default "between-thresholds"
        How votes become private answers.
    variant : str, default "max"
        Variant of the relabelling, as for `GenericBBL`.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Thresholds
    >>> plan = generic_bbl(Thresholds(), error=0.1, epsilon=0.5, delta=1e-6, labeller="gaussian")
    >>> f"{plan.rows:.1e}", f"{plan.paper_rows:.1e}"
    ('7.3e+11', '4.7e+27')
    """
    public: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "failure": failure, "variant": variant}
    ours = GenericBBL(concept_class, constants="calibrated", labeller=labeller, **public)
    paper = GenericBBL(concept_class, constants="printed", labeller=labeller, **public)
    ours.check_parameters()

    def needed(alpha: Fraction) -> int:
        return ours.n_required(alpha)

    def printed(alpha: Fraction) -> int:
        return rows_needed(paper.n_required, alpha)

    return make_plan(
        "GenericBBL",
        needed,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=planned_guarantee(
            epsilon, delta, protects="rows and queries" if labeller == "gaussian" else "rows"
        ),
        why="Teachers on small shards vote on each query. The next teachers learn from a random part of the queries, "
        "which is relabelled.",
        reach=lambda rows, goal: copy(ours).set_params(error=goal or 0.999).check_size(rows),
        paper=printed,
    )
