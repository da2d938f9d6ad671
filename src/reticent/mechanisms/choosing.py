"""A frequent candidate out of an endless domain: the choosing mechanism."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from reticent.exact import Number, integer
from reticent.mechanisms.counts import Integers, integer_array, laplace_tail
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.mechanisms.stability_histogram import one_representation
from reticent.noise import Noise
from reticent.privacy.events import ApproximateDP
from reticent.privacy.parameters import check_delta, check_epsilon

K = TypeVar("K", bound=Hashable)


@overload
def choosing(
    counts: Mapping[K, int], *, epsilon: Number, delta: Number, growth: int = 1, unsafe_noise: Noise | None = None
) -> Release[K | None]: ...
@overload
def choosing(
    counts: Integers, *, epsilon: Number, delta: Number, growth: int = 1, unsafe_noise: Noise | None = None
) -> Release[int | None]: ...
def choosing(
    counts: Mapping[Any, int] | Integers,
    *,
    epsilon: Number,
    delta: Number,
    growth: int = 1,
    unsafe_noise: Noise | None = None,
) -> Release[Any]:
    """A candidate with a high count, or None if no count is high.

    `counts` holds the count of each candidate, as an array (the answer is an index) or as a mapping from candidates to
    counts (the answer is a candidate; they are of one kind, as in `stability_histogram`). Candidates with count 0 are
    never returned and need not be listed, so the domain may be endless. A row adds 1 to the counts of at most `growth`
    candidates: 1 for how often each value occurs, 2 for two overlapping partitions, and so on.

    With c = ε·(growth + 1)/(3·growth + 1), which is ε/2 at growth 1: the highest count plus discrete Laplace noise of
    rate c must reach `choosing_threshold`; then a candidate is drawn among those that occur, with probability
    ∝ e^(c·count).

    Guarantee. (ε, δ)-differential privacy for a replaced row.

    Why. A replaced row lets at most k = growth counts fall by 1 and at most k rise by 1. Write M for the highest count,
    p(M) for the probability to pass the threshold τ, Z for the sum of the weights e^(c·count). Then p(M) ≤ e^c·p(M−1),
    and k·e^c·p(M)·e^(−cM) ≤ δ by the choice of τ. None costs e^c. A candidate left in place costs
    (p(M)/p(M'))·e^c·(Z'/Z). If the highest count does not fall, p(M) ≤ p(M') and Z' ≤ e^c·Z but for the newcomers. If
    it falls, every candidate at the top falls with it and none close below it rises, so Z' ≤ e^(c(k−1)/(k+1))·Z but
    for the newcomers. Either way the product is at most e^ε but for the newcomers (count 0 → 1) and those who vanish
    (1 → 0): at most k of each, of weight e^c each, against Z, Z' of about e^(cM). Together they are worth no more than
    k·e^c·p(M)·e^(−cM) ≤ δ. The page on this mechanism does the sums.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 8, for scores of bounded growth (Definition 4.2, Example 4.3), with Lemma 4.4 on its privacy and Lemma 4.5 on
    its error. There c = ε/4 and the threshold is αm/2 with m ≥ (16/αε)·ln(16k/(αβεδ)); the mechanism is undefined where
    no candidate occurs (None here). Here the counts that fall and rise are weighed against each other, which raises c,
    and the threshold has neither accuracy nor ε inside its logarithm.

    >>> choosing({"oak": 90, "elm": 3}, epsilon=1, delta=1e-6)
    Release(value='oak', event=ApproximateDP(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000)))
    """
    event = ApproximateDP(check_epsilon(epsilon), check_delta(delta, positive=True))
    threshold = choosing_threshold(epsilon=event.epsilon, delta=event.delta, growth=growth)
    rate = _rate(event.epsilon, growth)
    names, values = _listed(counts)
    occurring = np.flatnonzero(values)
    if not occurring.size:
        return release(None, event, unsafe_noise)
    noise = noise_or_system(unsafe_noise)
    heights = values[occurring]
    if noise.laplace_cell(1 / rate, [threshold - int(heights.max())]) == 0:
        return release(None, event, unsafe_noise)
    chosen = int(occurring[noise.choose(heights, rate=rate)])
    return release(chosen if names is None else names[chosen], event, unsafe_noise)


def choosing_threshold(*, epsilon: Number, delta: Number, growth: int = 1) -> int:
    """τ = 1 + ⌈(1/c)·ln(k/(δ(1 + e^−c)))⌉ with c = ε(k + 1)/(3k + 1): about this high a count is seen.

    A highest count of τ passes with probability above one half, and each 1/c counts more cut the probability
    of None by e. The candidate that is then drawn falls short of the highest count by at most (1/c)·ln(candidates/β)
    with probability 1 − β, where only candidates that occur are counted.

    >>> choosing_threshold(epsilon=1, delta=1e-6)
    28
    """
    budget, share = check_epsilon(epsilon), check_delta(delta, positive=True)
    growth = integer(growth, "growth", least=1)
    return 1 + laplace_tail(rate=_rate(budget, growth), probability=share / growth)


def _rate(epsilon: Fraction, growth: int) -> Fraction:
    return epsilon * Fraction(growth + 1, 3 * growth + 1)


def _listed(counts: Mapping[Any, int] | Integers) -> tuple[list[Any] | None, NDArray[np.int64]]:
    """The counts, and the candidates of a mapping, sorted so that the order of insertion plays no part."""
    names = None
    if isinstance(counts, Mapping):
        listed = dict(zip(one_representation(list(counts), "candidates"), counts.values(), strict=True))
        names = sorted(listed)
        counts = [listed[name] for name in names]
    values = integer_array(counts, "counts", least=0)
    if values.ndim != 1:
        raise ValueError(f"counts must be one-dimensional, got {values.ndim} dimensions")
    return names, values
