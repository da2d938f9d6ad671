"""How many rows a private distribution function takes."""

from __future__ import annotations

import math
from fractions import Fraction

from reticent.concepts.domains import Domain
from reticent.exact import Number
from reticent.plan.plan import Plan, make_plan
from reticent.plan.thresholds import iterated_logarithms
from reticent.privacy import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon, float_above
from reticent.promises import check_share
from reticent.sanitizers.thresholds import Method, ThresholdSanitizer


def threshold_sanitizer(
    *,
    bits: int | None = None,
    domain: Domain | None = None,
    error: Number | None = None,
    rows: object = None,
    failure: Number = 0.05,
    epsilon: Number,
    delta: Number = 0,
    method: Method = "auto",
) -> Plan:
    """The rows with which `ThresholdSanitizer` has every prefix right up to an error, or the error for some rows.

    The paper's number is m = 8^{log*(d)}·(60c/(αε₀))·log*(d)·ln(12·log*(d)/(β₀ε₀δ₀)) with c = 77/α. It is printed for
    the parameters of a single call, of which Lemma 4.8 makes ε = √(8c·ln(1/(cδ₀)))·ε₀ + 8cε₀² and δ = 5cδ₀, and Lemma
    4.12 a failure of 3cβ₀. None is stated where δ = 0.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Lemma 4.8 and Lemma 4.12.

    Parameters
    ----------
    bits : values are the integers of [0, 2^bits).
    domain : in place of bits, floats or datetimes.
    error, rows : give one of the two; the other is found.
    failure : the probability with which the promise may fail.
    epsilon, delta : the privacy of the copy; δ = 0 is allowed.
    method : as in `ThresholdSanitizer`.

    >>> plan = threshold_sanitizer(bits=64, error=0.05, epsilon=1, delta=1e-6)
    >>> plan.rows < 30_000 < plan.paper_rows
    True
    """
    sanitizer = ThresholdSanitizer(
        bits=bits, domain=domain, epsilon=epsilon, delta=delta, method=method, failure=failure
    )
    guarantee = Guarantee(epsilon=float_above(check_epsilon(epsilon)), delta=float_above(check_delta(delta)))
    beta, width = check_share(failure, "failure"), (sanitizer._size() - 1).bit_length()

    def paper(alpha: Fraction) -> int:
        return printed_rows(alpha, beta=float(beta), bits=width, epsilon=guarantee.epsilon, delta=guarantee.delta)

    return make_plan(
        "ThresholdSanitizer",
        sanitizer.n_required,
        error=error,
        rows=rows,
        failure=failure,
        guarantee=guarantee,
        why="The error is that of the share of rows below any threshold, for all thresholds at once and any rows; "
        "intervals may be off by twice as much. In practice it is several times smaller than what is promised.",
        reach=lambda rows, _: sanitizer.check_size(rows),
        paper=paper if guarantee.delta > 0 else None,
    )


def printed_rows(alpha: Fraction, *, beta: float, bits: int, epsilon: float, delta: float) -> int:
    """The rows of Lemma 4.12 for the whole of (ε, δ) and a failure of β in all."""
    calls = 77 / float(alpha)
    lost = delta / (5 * calls)
    root = math.sqrt(8 * calls * math.log(1 / (calls * lost)))
    own = (math.sqrt(root * root + 32 * calls * epsilon) - root) / (16 * calls)  # the ε₀ that adds up to ε
    depth = len(iterated_logarithms(max(2, bits)))
    log = math.log(12 * depth / (beta / (3 * calls) * own * lost))
    return math.ceil(8.0**depth * 60 * calls / (float(alpha) * own) * depth * log)
