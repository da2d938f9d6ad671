"""What a sample of labelled rows says about *all* concepts of a class at once, in numbers rather than in O(·).

Let τ(n) be the most labellings that the class gives to n points (Sauer), let n rows be drawn independently and labelled
by a fixed concept, and call a concept *bad* if it mislabels a fresh row with probability above α. For every t ≥ 0 and
every m, the sum of e^(−t·errors) over the labellings of the n rows, each taken with its errors on the rows and counted
if a concept that stands for it is bad, has at most the expectation

    2·τ(n + m)·(1 + (n/m)(1 − e^(−t)))^(−⌊mα⌋).

The proof, by m rows more and a random permutation of all n + m, is in docs/learners/label_private.md.

With t = ∞ this bounds the probability that some bad concept makes no error; times e^(tk), that some bad one makes at
most k; with t = ε/2, that the exponential mechanism over all labellings draws a bad one, since a labelling is drawn
with probability at most e^(−ε·errors/2) if another makes no error.
"""

from __future__ import annotations

import math
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.concepts.labellings import sauer
from reticent.promises import fewest_rows

_LN2 = math.log(2)


def log_growth(concept_class: ConceptClass[Any], points: int) -> float:
    """The logarithm of τ(points), the largest number of labellings that the class can give to this many points."""
    return _log_growth(concept_class.vc_dimension, concept_class.size, points)


def _log_growth(vc_dimension: int, size: int | None, points: int) -> float:
    """`log_growth` of a class with this VC dimension and size, which may take long to count."""
    most = sauer(vc_dimension, points)
    return math.log(most if size is None else min(most, size))


def log_bad(concept_class: ConceptClass[Any], rows: int, error: float, *, rate: float, errors: float = 0) -> float:
    """The logarithm of the bound above on e^(rate·errors) times the sum, for the best number m of further rows.

    For a finite class the union bound size·(1 − error·(1 − e^(−rate)))^rows is used as well.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    rows : int
        n.
    error : float
        α: concepts are bad if they mislabel a fresh row with a larger probability.
    rate : float
        t, perhaps infinite.
    errors : float, default 0
        The number of errors on the sample that a bad concept may make.
    """
    kept = -math.expm1(-rate)
    least = math.inf
    vc_dimension, size = concept_class.vc_dimension, concept_class.size
    if size is not None:
        least = math.log(size) + rows * math.log1p(-error * kept)
    # Powers of 2, whatever the rows: each term falls once the rows suffice, and so does the least of them.
    for power in range(max(0, rows.bit_length() - 3), rows.bit_length() + 11):
        more = 1 << power
        tail = math.floor(more * error) * math.log1p(rows / more * kept)
        least = min(least, _LN2 + _log_growth(vc_dimension, size, rows + more) - tail)
    return least + (rate * errors if errors else 0)


def log_bad_excess(concept_class: ConceptClass[Any], rows: int, excess: float, *, rate: float) -> float:
    """A bound on the logarithm of the probability that the exponential mechanism draws a concept worse by `excess`.

    It is compared with the best concept. The rows are labelled in any way; the draw is from all their labellings,
    at `rate` = ε/2. For a bad concept h let x be its errors less those of the best concept, on a row: −1, 0 or 1, with
    a mean above α = `excess`. h is drawn with probability at most e^(−tΣx), for any t up to the rate. Of m further
    rows, Σx ≥ m(α − v) with probability at least 1/2, if v = √(2 ln(2)/m). As above, and with Hoeffding's lemma, the
    sum over all labellings of n + m permuted rows of e^(−tA + θ(B − m(α − v))), A and B being Σx over the first n and
    the last m, is at most τ(n + m)·e^(−nt(α − v) + nt²(1 + n/m)²/2) for θ = tn/m. Twice this is the bound.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    rows : int
        n.
    excess : float
        α.
    rate : float
        ε/2.
    """
    least = math.inf
    vc_dimension, size = concept_class.vc_dimension, concept_class.size
    for power in range(max(0, rows.bit_length() - 3), rows.bit_length() + 11):
        more = 1 << power
        gap, spread = excess - math.sqrt(2 * _LN2 / more), (1 + rows / more) ** 2
        if gap > 0:
            t = min(rate, gap / spread)
            bound = _LN2 + _log_growth(vc_dimension, size, rows + more) - rows * (t * gap - t * t * spread / 2)
            least = min(least, bound)
    if size is not None:
        least = min(least, math.log(size) + rows * log_step_excess(excess, rate=rate))
    return least


# ── candidates that the rows did not choose ───────────────────────────────────────────────────────────────────────


def log_step(error: float, near: float, *, rate: float) -> float:
    """What one row adds to the logarithm of the probability of drawing a bad candidate rather than a good one.

    The bad one, of error above α, is drawn with probability at most e^(−tΣx), where x is its errors less those of the
    good one, on a row, and t is at most `rate` = ε/2. E[e^(−tx)] is largest if the two never err together:
    1 − α(1 − e^(−t)) + near·(e^t − 1), least at e^(2t) = α/near.

    Parameters
    ----------
    error : float
        α, the error that the bad candidate exceeds.
    near : float
        The error of the good candidate.
    rate : float
        ε/2.
    """
    t = min(rate, math.log(error / near) / 2) if near else rate
    return math.log1p(error * math.expm1(-t) + near * math.expm1(t))


def log_step_excess(excess: float, *, rate: float) -> float:
    """The same for labels of any kind, where the bad candidate errs more often than the good one by `excess`.

    E[e^(−tx)] is largest if every row tells the two apart: cosh t − excess·sinh t, least at tanh t = excess.
    """
    t = min(rate, math.atanh(excess))
    return math.log(math.cosh(t) - excess * math.sinh(t))


# ── nets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def net_rows(concept_class: ConceptClass[Any], error: float, failure: float) -> int:
    """The number of points that make a net.

    Except with probability `failure`, every concept that agrees with a fixed one on all of them differs from it with
    probability at most `error`.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    error, failure : float
        The two probabilities.
    """
    return fewest_rows(lambda rows: log_bad(concept_class, rows, error, rate=math.inf) <= math.log(failure))


def net_error(concept_class: ConceptClass[Any], rows: int, failure: float) -> float:
    """The error of a net of this many points, the inverse of `net_rows`; 1 if they make none.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    rows : int
        The number of points.
    failure : float
        The probability with which the net may be worse.
    """
    low, high = 0.0, 1.0
    for _ in range(64):
        middle = (low + high) / 2
        good = log_bad(concept_class, rows, middle, rate=math.inf) <= math.log(failure)
        low, high = (low, middle) if good else (middle, high)
    return high
