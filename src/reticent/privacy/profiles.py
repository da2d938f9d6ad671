"""Privacy profiles: the least δ(ε) in closed form, for one release or for many equal ones.

Every profile takes an array of ε ≥ 0 and returns upper bounds, padded by more than their rounding error.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from reticent.exact import upward
from reticent.privacy.floats import ROUNDING, Floats
from reticent.privacy.survival import survival

_PAD = 1e-14
_MOST_TERMS = 4_000_000
_TINY = 1e-300  # added, since a number that underflows is not zero


def gaussian(squared_mu: Fraction, epsilons: Floats) -> Floats:
    """Bound δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), for Gaussian releases with Σ Δ²/σ² = μ² (Balle and Wang 2018).

    Releases with continuous Gaussian noise compose exactly: the privacy loss stays Gaussian, and the squares add up.
    The form ½e^(−a²/2)·(erfcx(a/√2) − erfcx(b/√2)), a, b = ε/μ ∓ μ/2, does not overflow, and cancels only for small μ;
    the cancelled digits are added back as an error bound.
    """
    from scipy import special

    if squared_mu > 10**200:
        return np.ones_like(epsilons)
    mu = math.sqrt(upward(squared_mu)) * (1 + 2 * ROUNDING)
    epsilons = np.minimum(epsilons, 1e100 * mu)  # no square overflows; δ falls with ε
    a, b = epsilons / mu - mu / 2, epsilons / mu + mu / 2
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        outer = np.exp(-(a**2) / 2) / 2
        right = outer * special.erfcx(b / math.sqrt(2))
        left = np.where(a > 0, outer * special.erfcx(np.maximum(a, 0) / math.sqrt(2)), special.ndtr(-a))
    # the exponent −a²/2 is off by a few roundings of its own size
    pad = 8 * ROUNDING * (left + right) + (left - right) * 4 * ROUNDING * (a**2 + b**2) + _TINY
    return np.asarray(np.clip(left - right + pad, 0.0, 1.0))


def randomized_response(epsilon: Fraction, epsilons: Floats) -> Floats:
    """Bound δ(ε) of an ε₀-DP release: at most (e^ε₀ − e^ε)₊/(1 + e^ε₀)."""
    own = upward(epsilon)
    gap = np.maximum(own - epsilons, 0.0)
    return np.asarray(-np.expm1(-gap) / (1 + math.exp(-own)) * (1 + _PAD))


def bounded_range(epsilon: Fraction, epsilons: Floats) -> Floats:
    """Bound δ(ε) of a privacy loss within an interval of length ε₀: at most (e^(ε₀/2) − e^(ε/2))₊²/(e^ε₀ − 1).

    On an interval that ends at t, the worst law is supported on both ends (see `divergences`) and gives
    (e^ε₀ − e^t)(1 − e^(ε−t))/(e^ε₀ − 1), which is largest at t = (ε₀ + ε)/2. At ε = 0 it is tanh(ε₀/4).
    """
    own = upward(epsilon)
    gap = np.maximum(own - epsilons, 0.0)
    return np.asarray(np.expm1(-gap / 2) ** 2 / -math.expm1(-own) * (1 + _PAD))


def discrete_gaussian(sigma: Fraction, epsilons: Floats, reach: int | None = None) -> Floats | None:
    """Bound δ(ε) of one integer released with discrete Gaussian noise, neighbours one apart; None if there is no table.

    The loss at z is (2z + 1)/2σ², so δ(ε) = P(noise ≥ t) − e^ε·P(noise ≥ t+1) with t = ⌊εσ² − ½⌋ + 1, and every other t
    gives less. If only a threshold in [−reach, reach] is released, t is restricted to that range. Beyond the table,
    δ(ε) ≤ P(noise ≥ t) is at most the last entry of the table.
    """
    table = survival(sigma)
    if table is None:
        return None
    scale = table.sigma**2
    best = np.floor(np.minimum(epsilons * scale - 0.5, 1e15)) + 1
    best = np.minimum(best, math.inf if reach is None else reach)
    t = np.minimum(best, table.reach - 1).astype(np.int64)  # ε ≥ 0, so t ≥ 0
    left, right = table.above[t], np.exp(np.minimum(epsilons, 700.0)) * table.above[t + 1]
    pad = (2 * table.error + 1e-15) * (left + right)
    end = table.above[table.reach] * (1 + table.error) + _TINY
    return np.asarray(np.clip(np.where(best > t, end, left - right + pad), 0.0, 1.0))


def wide_discrete_gaussian(sigma: Fraction, epsilons: Floats) -> Floats:
    """Bound δ(ε) of one integer released with discrete Gaussian noise of σ ≥ 2, without a table.

    δ(ε) is the sum over the integers of f(z) = P(z)·(1 − e^(ε−ℓ(z)))₊, ℓ(z) = (2z + 1)/2σ². By Poisson's summation P(z)
    ≤ φ(z), the Gaussian density, whose integral against the same factor is the δ of continuous noise. φ and the factor
    are log-concave, so the sum exceeds the integral by at most the largest term. With z₀ = max(εσ² − ½, 0), z = z₀ + w
    and 1 − e^(−x) ≤ x, that is at most φ(z₀)·sup (w + ½)e^(−w²/2σ²)/σ² ≤ φ(z₀)·(e^(−½) + 1/2σ)/σ < φ(z₀)/σ.
    """
    scale = float(min(sigma, Fraction(10**100)))  # the largest term falls with σ
    start = np.maximum(np.minimum(epsilons * scale, 1e100) - 0.5 / scale, 0.0) * (1 - 4 * ROUNDING)  # z₀/σ
    largest = np.exp(-(start**2) / 2) / scale / scale / math.sqrt(2 * math.pi) * (1 + _PAD)
    return np.asarray(np.minimum(1.0, gaussian(1 / sigma**2, epsilons) + largest + _TINY))


@lru_cache(maxsize=4096)
def optimal_composition(epsilon: Fraction, times: int, at: float) -> float:
    """Bound δ(ε) of `times` releases that are ε₀-DP each, at ε = `at` (Kairouz, Oh, Viswanath 2015, Theorem 3.3).

    The worst of them is randomized response, whose losses (k − 2j)·ε₀ are binomial: δ = Σ_j C(k, j)·p^(k−j)·(1−p)^j·
    (1 − e^(ε−(k−2j)ε₀))₊ with p = e^ε₀/(1 + e^ε₀). The largest term is computed to 30 digits, the others by ratios of
    neighbours, outwards until they vanish; a geometric series bounds the omitted terms and is added.
    """
    last = math.ceil((times - Fraction(at) / epsilon) / 2) - 1  # the last j with a loss above ε
    if last < 0:
        return 0.0
    own = float(epsilon)
    flip = 1 / (1 + math.exp(min(own, 700.0)))
    top = min(last, int((times + 1) * flip))
    width = math.ceil(16 * math.sqrt(times * flip * (1 - flip))) + 100
    if width > _MOST_TERMS:
        return 1.0
    grow = math.exp(min(own, 700.0))
    down = np.arange(top, max(0, top - width), -1, dtype=np.float64)
    up = np.arange(top, min(last, top + width), dtype=np.float64)
    down_ratios, up_ratios = down / (times - down + 1) * grow, (times - up) / (up + 1) / grow
    with np.errstate(under="ignore"):
        below, above = np.cumprod(down_ratios), np.cumprod(up_ratios)
    terms = np.concatenate((below[::-1], [1.0], above))
    losses = (times - 2 * (top + np.arange(-len(below), len(above) + 1))) * own
    total = float(terms @ -np.expm1(np.minimum(at - losses - 4 * ROUNDING * np.abs(losses), 0.0)))
    for ratios, ends, complete in (
        (down_ratios, below, len(below) == top),
        (up_ratios, above, len(above) == last - top),
    ):
        if not complete:
            total += float(ends[-1] * ratios[-1] / max(1 - ratios[-1], 1e-9))
    pad = 1 + (4 * len(terms) + 100) * ROUNDING
    return min(1.0, math.exp(_log_term(epsilon, times, top)) * total * pad + _TINY)


_local = threading.local()  # a context of mpmath for each thread, as it takes long to make


def _log_term(epsilon: Fraction, times: int, j: int) -> float:
    """ln of C(k, j)·p^(k−j)·(1−p)^j, rounded up."""
    import mpmath

    context = getattr(_local, "context", None)  # threads share the precision of mpmath's own context
    if context is None:
        context = _local.context = mpmath.mp.clone()
    context.dps = 40 + len(str(times))
    own = context.mpf(epsilon.numerator) / epsilon.denominator
    log_choose = context.loggamma(times + 1) - context.loggamma(j + 1) - context.loggamma(times - j + 1)
    value = float(log_choose - j * own - times * context.log1p(context.exp(-own)))
    return value + 2 * ROUNDING * abs(value)


def least_epsilon(profile: Callable[[Floats], Floats], most: float, guess: float) -> float:
    """Return the least ε with profile(ε) ≤ most, from above and to the last few bits; infinity if there is none.

    Parameters
    ----------
    profile : callable
        An upper bound on δ for each ε of an array, falling in ε.
    most : float
        The δ allowed, above 0.
    guess : float
        Where the search starts.
    """

    def excess(value: float) -> float:
        return math.log(max(float(profile(np.array([value]))[0]), 1e-320)) - math.log(most)

    if excess(0.0) <= 0:
        return 0.0
    high = guess if 0 < guess < math.inf else 1.0
    while excess(high) > 0:
        high *= 2
        if high > 1e6:
            return math.inf
    # False position. An end that stays twice loses half its weight, so that both ends converge.
    low, at_low, at_high, stays = 0.0, excess(0.0), excess(high), 0
    while high - low > 4e-16 * high:
        middle = high - at_high * (high - low) / (at_high - at_low)
        if not low < middle < high:
            middle = (low + high) / 2
            if not low < middle < high:
                break
        value = excess(middle)
        if value > 0:
            low, at_low = middle, value
            at_high, stays = (at_high / 2 if stays > 0 else at_high), 1
        else:
            high, at_high = middle, value
            at_low, stays = (at_low / 2 if stays < 0 else at_low), -1
    return high
