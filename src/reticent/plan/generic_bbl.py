"""How many rows the everlasting predictor of the paper takes: by its printed constants, and by worked-out ones."""

from __future__ import annotations

from copy import copy
from fractions import Fraction
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.exact import Number
from reticent.learners.label_boost import Variant
from reticent.plan.plan import Plan, make_plan
from reticent.predictors.bbl_phases import BBLLabeller
from reticent.predictors.generic_bbl import GenericBBL
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import rows_needed


def generic_bbl(
    concept_class: ConceptClass[Any],
    *,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number,
    labeller: BBLLabeller = "between-thresholds",
    variant: Variant = "max",
) -> Plan:
    """The rows with which `GenericBBL(constants="calibrated")` promises an error in every answer, for ever.

    The paper's number is n of Algorithm GenericBBL with τ = 1.1·10^10, at α = error/6 and β = failure/4; there is none
    for ε ≥ 1 and for α, β or δ ≥ 1/16.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*, Theorem 5.1 and Algorithm GenericBBL.

    Parameters
    ----------
    concept_class, labeller, variant : as `GenericBBL` takes them.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail, in all phases together.
    epsilon, delta : the privacy of training rows, and with labeller="gaussian" of queries.

    >>> from reticent.concepts import Thresholds
    >>> plan = generic_bbl(Thresholds(), error=0.1, epsilon=0.5, delta=1e-6, labeller="gaussian")
    >>> f"{plan.rows:.1e}", f"{plan.paper_rows:.1e}"
    ('7.3e+11', '4.7e+27')
    """
    public: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "failure": failure, "variant": variant}
    ours = GenericBBL(concept_class, constants="calibrated", labeller=labeller, **public)
    paper = GenericBBL(concept_class, constants="printed", labeller=labeller, **public)
    ours._check_parameters()

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
        guarantee=Guarantee(
            epsilon=float_above(check_epsilon(epsilon)),
            delta=float_above(check_delta(delta)),
            protects="rows and queries" if labeller == "gaussian" else "rows",
        ),
        why="Teachers on small shards vote on each query; a random part of the queries, relabelled, teaches the next.",
        reach=lambda rows, goal: copy(ours).set_params(error=goal or 0.999).check_size(rows),
        paper=printed,
    )
