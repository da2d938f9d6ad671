"""How many rows a private threshold needs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from reticent.concepts.domains import Domain
from reticent.concepts.labellings import about
from reticent.exact import Number
from reticent.learners.thresholds import ThresholdLearner
from reticent.mechanisms.quasi_concave import SMALL, required_promise
from reticent.plan.exponential import generic_rows
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share


def threshold(
    *,
    bits: int | None = None,
    domain: Domain | None = None,
    depth: int | Literal["auto"] = "auto",
    agnostic: bool = False,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
) -> Plan:
    """Plan `ThresholdLearner`: the rows for an error, or the error for a number of rows.

    For δ > 0 and rows that a threshold labels, the paper's number is the least, over the depths N ≤ log*(2^bits), of
    max{(200/α²)·ln(4/(αβ)), 8^N·72N/(αε)·(ln(12N/(βδ)) + ln^(N)(2^bits))}, where ln^(N) is the natural logarithm
    taken N times. If a depth is given, it is the only N. For δ = 0 or `agnostic`, it is that of the exponential
    mechanism: see `plan.exponential`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Theorem 3.18, with the numbers of its proof, which come from Theorem 3.15 and Theorem 2.14.

    Parameters
    ----------
    bits : int, optional
        Size of the domain: values are the integers in [0, 2^bits). Give either `bits` or `domain`.
    domain : Domain, optional
        The domain of values, such as floats or datetimes.
    depth : int or "auto", default "auto"
        Depth of the search. "auto" takes the one that needs the fewest rows; 1 is the exponential mechanism.
    agnostic : bool, default False
        Whether labels may be arbitrary. Then the depth is 1, and the error is counted from that of the best threshold.
    error : float or Fraction, optional
        Error to promise. Give either `error` or `rows`; the other is computed.
    rows : int, optional
        Number of rows. Give either `error` or `rows`; the other is computed.
    failure : float or Fraction, default 0.05
        Probability with which the promise may fail.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released threshold.
    delta : float or Fraction, default 0
        Probability δ with which the bound may be exceeded; 0 implies depth 1.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = threshold(bits=1000, error=0.1, epsilon=1, delta=1e-6)
    >>> plan.rows, plan.paper_rows
    (4701, 2445055)
    >>> threshold(bits=64, rows=1203, epsilon=1).error
    0.09997
    """
    if agnostic and depth == "auto":
        depth = 1
    learner = ThresholdLearner(bits=bits, domain=domain, epsilon=epsilon, delta=delta, depth=depth, failure=failure)
    learner.check_parameters()
    size, used, beta = learner.n_thresholds(), learner.search_depth(), check_share(failure, "failure")
    allowed = check_delta(delta)

    def paper(alpha: Fraction) -> int:
        if agnostic or allowed == 0:
            return generic_rows(size, 1, alpha, failure=beta, epsilon=epsilon, agnostic=agnostic)
        logs = iterated_logarithms(size - 1)
        depths = range(1, len(logs) + 1) if depth == "auto" else [min(used, len(logs))]
        search: float = min(8**n * 72 * n * (math.log(12 * n / (beta * allowed)) + logs[n - 1]) for n in depths)
        sample = 200 / float(alpha) ** 2 * math.log(4 / (alpha * beta))
        return math.ceil(max(sample, search / float(alpha * check_epsilon(epsilon))))

    # At depth 1 the exponential mechanism draws, which spends no δ.
    guarantee = planned_guarantee(epsilon, 0 if used == 1 else allowed)
    return make_plan(
        "ThresholdLearner",
        lambda alpha: learner.n_required(alpha, agnostic=agnostic),
        error=error,
        rows=rows,
        failure=failure,
        guarantee=guarantee,
        why=_reason(size, used, agnostic=agnostic, epsilon=epsilon, delta=delta, failure=beta / 2),
        reach=lambda rows, _: learner.check_size(rows),
        paper=paper,
    )


def iterated_logarithms(number: int) -> list[float]:
    """Return ln x, ln ln x, …, down to the first that is at most 1.

    >>> [round(each, 2) for each in iterated_logarithms(2**1000)]
    [693.15, 6.54, 1.88, 0.63]
    """
    logs = [math.log(number)]
    while logs[-1] > 1:
        logs.append(math.log(logs[-1]))
    return logs


def _reason(size: int, depth: int, *, agnostic: bool, epsilon: Number, delta: Number, failure: Fraction) -> str:
    search = {1: "the exponential mechanism"}.get(depth, "RecConcave")
    words = [f"Depth {depth}: {search}, over {about(size)} thresholds."]
    if agnostic:
        words.append("Labels may be arbitrary; the error is counted from that of the best threshold.")
    else:
        words.append("Some threshold is assumed to make no error.")
    if check_delta(delta) == 0:
        words.append("Without a δ there is no deeper search, and rows grow with the bits.")
    elif not agnostic and size > SMALL + 1:
        # Promises of all depths are inversely proportional to the accuracy: any one gives their ratio.
        tenth = Fraction(1, 10)
        promise = {
            n: required_promise(size, accuracy=tenth, epsilon=epsilon, delta=delta, failure=failure, depth=n)
            for n in {depth, 2 if depth == 1 else 1}
        }
        other = min(promise.keys() - {depth})
        words.append(f"Depth {other} would need {promise[other] / promise[depth]:.2g} times as many rows.")
    return " ".join(words)
