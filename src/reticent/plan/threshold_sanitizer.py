"""How many rows a private distribution function needs."""

from __future__ import annotations

import math
from fractions import Fraction

from reticent.concepts.domains import Domain
from reticent.exact import Number
from reticent.plan.plan import Plan, make_plan, planned_guarantee
from reticent.plan.thresholds import iterated_logarithms
from reticent.promises import check_share
from reticent.sanitizers.thresholds import ThresholdMethod, ThresholdSanitizer


def threshold_sanitizer(
    *,
    bits: int | None = None,
    domain: Domain | None = None,
    error: Number | None = None,
    rows: int | None = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    method: ThresholdMethod = "auto",
) -> Plan:
    """Plan `ThresholdSanitizer`: the rows with which every prefix count is right up to an error, or the reverse.

    The paper's number is m = 8^{log*(d)}·(60c/(αε₀))·log*(d)·ln(12·log*(d)/(β₀ε₀δ₀)) with c = 77/α. It is printed for
    the parameters of a single call. Together the calls have ε = √(8c·ln(1/(cδ₀)))·ε₀ + 8cε₀² and δ = 5cδ₀ (Lemma 4.8),
    and fail with probability 3cβ₀ (Lemma 4.12). No number is stated for δ = 0.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 4.8 and Lemma 4.12.

    Parameters
    ----------
    bits : int, optional
        Size of the domain: values are the integers in [0, 2^bits). Give either `bits` or `domain`.
    domain : Domain, optional
        The domain of values, such as floats or datetimes.
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
    method : str, default "auto"
        How the copy is made, as for `ThresholdSanitizer`.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = threshold_sanitizer(bits=64, error=0.05, epsilon=1, delta=1e-6)
    >>> plan.rows < 30_000 < plan.paper_rows
    True
    """
    sanitizer = ThresholdSanitizer(
        bits=bits, domain=domain, epsilon=epsilon, delta=delta, method=method, failure=failure
    )
    guarantee = planned_guarantee(epsilon, delta)
    beta, width = check_share(failure, "failure"), (sanitizer.domain_size() - 1).bit_length()

    def paper(alpha: Fraction) -> int:
        budget = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
        return printed_prefix_rows(alpha, beta=float(beta), bits=width, **budget)

    return make_plan(
        "ThresholdSanitizer",
        sanitizer.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=guarantee,
        why="The error is that of the share of rows below a threshold, for all thresholds at once and any rows; for "
        "intervals it is at most twice as large. In practice it is several times smaller than promised.",
        reach=lambda rows, _: sanitizer.check_size(rows),
        paper=paper if guarantee.delta > 0 else None,
    )


def printed_prefix_rows(alpha: Fraction, *, beta: float, bits: int, epsilon: float, delta: float) -> int:
    """Return the rows of Lemma 4.12, if all calls together are (ε, δ)-private and fail with probability β."""
    calls = 77 / float(alpha)
    lost = delta / (5 * calls)
    root = math.sqrt(8 * calls * math.log(1 / (calls * lost)))
    own = (math.sqrt(root * root + 32 * calls * epsilon) - root) / (16 * calls)  # the ε₀ of one call, if all have ε
    depth = len(iterated_logarithms(max(2, bits)))
    log = math.log(12 * depth / (beta / (3 * calls) * own * lost))
    return math.ceil(8.0**depth * 60 * calls / (float(alpha) * own) * depth * log)
