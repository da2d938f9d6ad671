"""How far labels that `LabelBoost` makes up may be off, as logarithms of probabilities. Planning, in floating point."""

from __future__ import annotations

import math
from typing import Any

from reticent.concepts.interface import ConceptClass
from reticent.learners.sample_bounds import log_growth

_LN2 = math.log(2)


def log_error(
    concept_class: ConceptClass[Any], rows: int, *, labelled: int, error: float, rate: float, targets: int
) -> float:
    """Bound the probability that a round draws labels that are off by more than `error`, where some concept fits.

    Parameters
    ----------
    concept_class : ConceptClass
        The concepts that labels are drawn from.
    rows : int
        The number n of labelled rows that the draw looks at.
    labelled : int
        The number of rows that get a label.
    error : float
        The probability with which a label may be wrong.
    rate : float
        The rate t of the draw: a labelling is drawn with probability ∝ e^(−t·errors).
    targets : {0, 1}
        1 if the n rows are labelled by a concept that was itself chosen by them, 0 if by a fixed one.

    Returns
    -------
    bound : float
        The logarithm of the bound.

    Notes
    -----
    A labelling z is drawn with probability at most e^(−t·J), where J is the errors on the n rows of the best concept c
    with that labelling. Draw m rows more. If c is bad, it errs on at least ⌊m·error⌋ of them with probability at least
    1/2, a median. So the probability is at most twice the expected sum of e^(−t·J)·1[K ≥ ⌊m·error⌋] over all labellings
    of the n + m rows and of those that get a label, K being the errors on the m. Permuting the n + m rows bounds each
    term by (1 + (n/m)(1 − e^(−t)))^−⌊m·error⌋, as for `sample_bounds`. If `targets` = 1, the sum is over all
    concepts that may have labelled the rows, too.
    """
    kept = -math.expm1(-rate)
    size = concept_class.size
    least = math.inf if size is None else (1 + targets) * math.log(size) + rows * math.log1p(-error * kept)
    for more in _further(rows):
        tail = math.floor(more * error) * math.log1p(rows / more * kept)
        least = min(least, _LN2 + (1 + targets) * log_growth(concept_class, rows + more + labelled) - tail)
    return least


def log_excess(concept_class: ConceptClass[Any], rows: int, *, labelled: int, error: float, rate: float) -> float:
    """Bound the same for labels of any kind: a concept is bad if it errs more often than the best one by `error`.

    With x the errors of a concept less those of the best, on a row, a labelling is drawn with probability at most
    e^(−tΣx), for every t up to the rate. The rest is the proof of `sample_bounds.log_bad_excess`, with the rows that
    get a label among the points.
    """
    least = math.inf
    for more in _further(rows):
        gap, spread = error - math.sqrt(2 * _LN2 / more), (1 + rows / more) ** 2
        if gap > 0:
            t = min(rate, gap / spread)
            labellings = log_growth(concept_class, rows + more + labelled)
            least = min(least, _LN2 + labellings - rows * (t * gap - t * t * spread / 2))
    return least


def log_distance(concept_class: ConceptClass[Any], rows: int, *, wrong: int, error: float) -> float:
    """Bound the probability that two concepts which differ on at most `wrong` of `rows` rows differ by > `error`.

    It holds for all pairs at once. Draw m rows more. A set that is too large is hit by at least a = ⌊m·error⌋ of
    them with probability at least 1/2. So the probability is at most twice that of some pair's difference being hit
    ≤ k times by the first n rows and ≥ a times by the others. With all rows in random order, a difference that
    holds r of them does so with a probability that rises in r up to a + k and falls from there on: it is at most
    P(Hypergeometric(n + m, a + k, n) ≤ k). There are at most τ²/2 differences.
    """
    least = math.inf
    for more in _further(rows):
        hits = math.floor(more * error) + wrong
        if wrong < rows and hits <= more:
            tail = log_hypergeometric(wrong, rows + more, hits, rows)
            least = min(least, 2 * log_growth(concept_class, rows + more) + tail)
    return least


def log_hypergeometric(most: int, points: int, marked: int, drawn: int) -> float:
    """Bound the probability that at most `most` of the marked points are drawn.

    Going down from k = `most`, each probability is at most the share s of the one before that the next one is of the
    first: they sum to at most P(k)/(1 − s).
    """
    share = most * (points - marked - drawn + most) / ((marked - most + 1) * (drawn - most + 1))
    if share >= 1:
        return 0.0
    choices = _log_choose(marked, most) + _log_choose(points - marked, drawn - most) - _log_choose(points, drawn)
    return min(0.0, choices - math.log1p(-share))


def _further(rows: int) -> list[int]:
    """Numbers of further rows to try in a bound that holds for any."""
    return [1 << power for power in range(max(0, rows.bit_length() - 2), rows.bit_length() + 5)]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
