"""How many rows a private copy needs: of frequent values, or for any concept class."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from numpy.typing import ArrayLike

from reticent.concepts.domains import Domain
from reticent.concepts.interface import ConceptClass
from reticent.exact import Number, integer
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.promises import check_share
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer


def point_sanitizer(
    *,
    bits: int | None = None,
    domain: Domain | None = None,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number,
    method: Literal["histogram", "choosing"] = "histogram",
    k: int = 1,
) -> Plan:
    """Plan `PointSanitizer`: the rows with which all frequencies are right up to an error, or the reverse.

    The paper's number is that of SanPoints at accuracy α/k, the larger of what its noisy counts and what its choices
    need: (6/(α^1.5·ε))·ln(4/(αβ))·√ln(5/δ), and (16/(α'ε'))·ln(16/(α'β'ε'δ')) at α' = α/2, β' = αβ/4,
    ε' = ε/√((32/α)·ln(5/δ)), δ' = αδ/5.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Theorem 4.6 with the numbers of its proof, Lemma 4.5 for the choices, Theorem 4.7 for sets of k.

    Parameters
    ----------
    bits : int, optional
        Size of the domain: values are the integers in [0, 2^bits). Give either `bits` or `domain`.
    domain : Domain, optional
        The domain of values, such as floats, datetimes or integers.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released copy.
    delta : float or Fraction
        Probability δ with which the bound may be exceeded; above 0.
    method : {"histogram", "choosing"}, default "histogram"
        "choosing" is the paper's SanPoints.
    k : int, default 1
        Size of the sets of values whose frequencies are promised.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = point_sanitizer(bits=100, error=0.1, epsilon=1, delta=1e-6)
    >>> plan.rows, plan.paper_rows
    (360, 774118)
    """
    sanitizer = PointSanitizer(bits=bits, domain=domain, epsilon=epsilon, delta=delta, method=method, failure=failure)
    members = integer(k, "k", least=1)
    guarantee = planned_guarantee(epsilon, delta, positive=True)
    beta = float(check_share(failure, "failure"))

    def paper(error: Fraction) -> int:
        return sanpoints_rows(
            float(error) / members, failure=beta, epsilon=guarantee.epsilon, delta=guarantee.delta
        )

    return make_plan(
        "PointSanitizer",
        lambda alpha: sanitizer.n_required(alpha, k=members),
        error=error,
        rows=rows,
        failure=failure,
        guarantee=guarantee,
        why="Rows do not depend on the number of values. Values with a share above the error must be published; the "
        "others may be left out and count as 0. The errors of the values in a set add up.",
        reach=lambda rows, _: sanitizer.check_size(rows),
        paper=paper,
    )


def sanpoints_rows(error: float, *, failure: float, epsilon: float, delta: float) -> int:
    """Return the rows of Theorem 4.6, with the constants of its proof."""
    counts = 6 / (error * math.sqrt(error) * epsilon) * math.log(4 / (error * failure)) * math.sqrt(math.log(5 / delta))
    own, lost = epsilon / math.sqrt(32 / error * math.log(5 / delta)), error * delta / 5
    choices = 16 / (error / 2 * own) * math.log(16 / (error / 2 * (error * failure / 4) * own * lost))
    return math.ceil(max(counts, choices))


def net_sanitizer(
    concept_class: ConceptClass[Any],
    *,
    points: ArrayLike | None = None,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    method: Literal["auto", "exact", "weights"] = "auto",
) -> Plan:
    """Plan `NetSanitizer`: the rows with which every concept's frequency is right up to an error, or the reverse.

    The theorem of Blum, Ligett and Roth is stated up to a constant, so it gives no number. The paper's number is that
    of multiplicative weights with pure privacy: the least over T of (10·T·ln Q/ε)/(α − 2·√(ln N/T)) for N points and
    Q queries, if the probability of failure, 2T/Q, is at most β. There is none if no T satisfies this.

    Source. Hardt, Ligett, McSherry, *A Simple and Practical Algorithm for Differentially Private Data Release*,
    Theorem 2.2; Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential
    Privacy*, Theorem 2.19 (the constant Γ is not given).

    Parameters
    ----------
    concept_class : ConceptClass
        The class whose frequencies are promised.
    points : array-like, optional
        Public points that rows are assumed to be among; by default the whole domain of the class.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released copy.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded.
    method : {"auto", "exact", "weights"}, default "auto"
        How the copy is drawn, as for `NetSanitizer`.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from reticent.concepts import Intervals
    >>> net_sanitizer(Intervals(bits=3), error=0.2, epsilon=1).rows
    223
    """
    sanitizer = NetSanitizer(
        concept_class, points=points, epsilon=epsilon, delta=delta, method=method, failure=failure
    )
    guarantee = planned_guarantee(epsilon, delta)
    beta = float(check_share(failure, "failure"))
    sanitizer.check_parameters()
    net = sanitizer.query_net()

    def paper(error: Fraction) -> int:
        return mwem_rows(
            float(error), points=len(net.points), queries=net.queries, failure=beta, epsilon=guarantee.epsilon
        )

    return make_plan(
        "NetSanitizer",
        sanitizer.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=guarantee,
        why=f"The class has {net.queries:,} labellings of {len(net.points):,} public points; all are answered at once. "
        "Rows are assumed to be among the points.",
        reach=lambda rows, _: sanitizer.check_size(rows),
        paper=paper,
    )


def mwem_rows(error: float, *, points: int, queries: int, failure: float, epsilon: float) -> int:
    """Return the rows of the theorem on MWEM, at the best number of rounds."""
    fewest, most = math.floor(4 * math.log(points) / error**2) + 1, math.floor(failure * queries / 2)
    if fewest > most:
        raise ValueError("the theorem has no number of rounds for this error and probability of failure")
    best = fewest if points == 1 else min(max(fewest, math.ceil(9 * math.log(points) / error**2)), most)

    def rows(rounds: int) -> float:
        return 10 * rounds * math.log(queries) / epsilon / (error - 2 * math.sqrt(math.log(points) / rounds))

    return math.ceil(rows(best))
