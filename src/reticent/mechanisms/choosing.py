"""The choosing mechanism: a frequent candidate from an infinite domain."""

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
    """Return a candidate with a high count, or None if no count is high.

    With c = ε·(growth + 1)/(3·growth + 1), which is ε/2 for growth=1, the highest count plus discrete Laplace noise of
    rate c must reach `choosing_threshold`. Then one of the candidates that occur is drawn, with probability ∝
    e^(c·count).

    Guarantee. (ε, δ)-differential privacy for a replaced row.

    Why. A replaced row makes at most k = growth counts fall by 1 and at most k rise by 1. Where the highest count
    falls, no weight near the top grows, so both steps together cost ε, except for at most k candidates that appear or
    vanish, which the threshold makes worth at most δ. The proof is in docs/mechanisms/choosing.md.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Figure 8, for scores of bounded growth (Definition 4.2, Example 4.3), with Lemma 4.4 on its privacy and Lemma 4.5 on
    its error. There c = ε/4 and the threshold depends on the accuracy. Repaired: the printed mechanism is undefined
    where no candidate occurs.

    Parameters
    ----------
    counts : array of int, or mapping from candidates to int
        The count of each candidate. Candidates with count 0 are never returned and need not be listed, so the domain
        may be infinite. The candidates of a mapping are of one type, as in `stability_histogram`.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    delta : int, float, Fraction or Decimal
        Failure probability δ of the guarantee, above 0.
    growth : int, default 1
        The most candidates to whose counts one row adds 1: 1 for the frequency of each value, 2 for two overlapping
        partitions, and so on.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release
        The index (for an array) or the candidate (for a mapping), or None; and the event `ApproximateDP(epsilon,
        delta)`.

    Examples
    --------
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
    """Return the threshold τ = 1 + ⌈(1/c)·ln(k/(δ(1 + e^−c)))⌉ with k = growth and c = ε(k + 1)/(3k + 1).

    A highest count of τ passes with probability above one half, and each further 1/c counts divide the probability of
    None by e. With probability 1 − β, the candidate that is then drawn is within (1/c)·ln(candidates/β) of the highest
    count, where only candidates that occur are counted.

    >>> choosing_threshold(epsilon=1, delta=1e-6)
    28
    """
    budget, share = check_epsilon(epsilon), check_delta(delta, positive=True)
    growth = integer(growth, "growth", least=1)
    return 1 + laplace_tail(rate=_rate(budget, growth), probability=share / growth)


def _rate(epsilon: Fraction, growth: int) -> Fraction:
    return epsilon * Fraction(growth + 1, 3 * growth + 1)


def _listed(counts: Mapping[Any, int] | Integers) -> tuple[list[Any] | None, NDArray[np.int64]]:
    """The candidates of a mapping and the counts, sorted so that the order of insertion has no effect."""
    names = None
    if isinstance(counts, Mapping):
        listed = dict(zip(one_representation(list(counts), "candidates"), counts.values(), strict=True))
        names = sorted(listed)
        counts = [listed[name] for name in names]
    values = integer_array(counts, "counts", least=0)
    if values.ndim != 1:
        raise ValueError(f"counts must be one-dimensional, got {values.ndim} dimensions")
    return names, values
