"""Noisy counts: one number or a histogram, with discrete Laplace or discrete Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Integral
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.exact import Number, ceiling, exp_fractions, integer, log_bounds
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import DiscreteGaussian, PureDP
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive

Integers = Sequence[Any] | NDArray[Any]
WIDEST = 1 << 48  # beyond this scale the noise of an array might leave 64 bits; one count may have any scale


@overload
def laplace_count(
    count: int, *, epsilon: Number, sensitivity: int | None = None, unsafe_noise: Noise | None = None
) -> Release[int]: ...
@overload
def laplace_count(
    count: Integers, *, epsilon: Number, sensitivity: int | None = None, unsafe_noise: Noise | None = None
) -> Release[NDArray[np.int64]]: ...
def laplace_count(
    count: int | Integers, *, epsilon: Number, sensitivity: int | None = None, unsafe_noise: Noise | None = None
) -> Release[Any]:
    """Add discrete Laplace noise to a count, or to each of an array of counts: P(z) ∝ e^(−ε|z|/sensitivity).

    Guarantee. ε-differential privacy for a replaced row.

    Why. If the counts move by d_1, d_2, …, the probability of any output changes by a factor of at most
    e^(ε·Σ|d_i|/sensitivity) ≤ e^ε. A sum that leaves 64 bits is clipped, which depends on the output alone. See
    docs/mechanisms/counts.md.

    Source. Ghosh, Roughgarden, Sundararajan, *Universally Utility-Maximizing Privacy Mechanisms* (the geometric
    mechanism), in place of Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate
    Differential Privacy*, Theorem 2.24. Repaired: continuous Laplace noise in floating point reveals the count in its
    low-order bits (Mironov, *On Significance of the Least Significant Bits for Differential Privacy*).

    Parameters
    ----------
    count : int or array of int
        The count, or the counts. A single count may have any size.
    epsilon : int, float, Fraction or Decimal
        Privacy-loss bound ε of the release.
    sensitivity : int or None, default None
        The most that a replaced row moves all counts together (the sum of the absolute changes). None is 1 for a single
        count. For an array it is required: in a histogram it is 2, as a replaced row leaves one bin and enters another.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int or array of int64
        The noisy counts, and the event `PureDP(epsilon)`.

    Examples
    --------
    >>> value, event = laplace_count(1000, epsilon=1)
    >>> abs(value - 1000) < 100, event
    (True, PureDP(epsilon=Fraction(1, 1)))
    """
    event = PureDP(check_epsilon(epsilon))
    counts = _one_or_many(count, "count", sensitivity, "sensitivity")
    scale = integer(1 if sensitivity is None else sensitivity, "sensitivity", least=1) / event.epsilon
    return release(add_noise(counts, noise_or_system(unsafe_noise).discrete_laplace, scale), event, unsafe_noise)


@overload
def gaussian_count(
    count: int,
    *,
    sigma: Number | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    squared_sensitivity: int | None = None,
    unsafe_noise: Noise | None = None,
) -> Release[int]: ...
@overload
def gaussian_count(
    count: Integers,
    *,
    sigma: Number | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    squared_sensitivity: int | None = None,
    unsafe_noise: Noise | None = None,
) -> Release[NDArray[np.int64]]: ...
def gaussian_count(
    count: int | Integers,
    *,
    sigma: Number | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    squared_sensitivity: int | None = None,
    unsafe_noise: Noise | None = None,
) -> Release[Any]:
    """Add discrete Gaussian noise to a count, or to each of an array of counts: P(z) ∝ e^(−z²/2σ²).

    Guarantee. For a replaced row, the event `DiscreteGaussian(sigma, squared_sensitivity)`: (Δ²/2σ²)-zero-concentrated
    differential privacy, where Δ² is the squared sensitivity; and (ε, δ) if these are given.

    Why. For one entry that moves by an integer d, the Rényi divergence of order α is at most αd²/2σ², the value of
    continuous noise. The noise is independent over entries, so their squares add up. The proof is in
    docs/mechanisms/counts.md.

    Source. Canonne, Kamath, Steinke, *The Discrete Gaussian for Differential Privacy*, Theorem 4 and Proposition 5.

    Parameters
    ----------
    count : int or array of int
        The count, or the counts. A single count may have any size.
    sigma : int, float, Fraction, Decimal or None, default None
        Scale σ of the noise. Give either `sigma`, or `epsilon` and `delta`.
    epsilon, delta : int, float, Fraction, Decimal or None, default None
        The guarantee for which σ is the least that suffices.
    squared_sensitivity : int or None, default None
        The most that the squared changes by a replaced row add up to. None is 1 for a single count. For an array it is
        required: in a histogram it is 2, as one bin loses a row and another gains it.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int or array of int64
        The noisy counts, and the event `DiscreteGaussian(sigma, squared_sensitivity)`.

    Examples
    --------
    >>> value, event = gaussian_count(1000, sigma=10)
    >>> abs(value - 1000) < 200, event
    (True, DiscreteGaussian(sigma=Fraction(10, 1), squared_sensitivity=1))
    """
    squared = integer(1 if squared_sensitivity is None else squared_sensitivity, "squared_sensitivity", least=1)
    event = DiscreteGaussian(_sigma(sigma, epsilon, delta, squared), squared)
    counts = _one_or_many(count, "count", squared_sensitivity, "squared_sensitivity")
    noise = noise_or_system(unsafe_noise).discrete_gaussian
    return release(add_noise(counts, noise, event.sigma), event, unsafe_noise)


def _sigma(
    sigma: Number | None, epsilon: Number | None, delta: Number | None, squared_sensitivity: int
) -> Fraction:
    if sigma is not None and epsilon is None and delta is None:
        return check_positive(sigma, "sigma")
    if sigma is None and epsilon is not None and delta is not None:
        return _least_sigma(check_epsilon(epsilon), check_delta(delta, positive=True), squared_sensitivity)
    raise TypeError("give either sigma, or both epsilon and delta")


@lru_cache(maxsize=256)
def _least_sigma(epsilon: Fraction, delta: Fraction, squared_sensitivity: int) -> Fraction:
    return calibrate.noise(lambda sigma: DiscreteGaussian(sigma, squared_sensitivity), epsilon=epsilon, delta=delta)


def _one_or_many(count: int | Integers, name: str, stated: int | None, sensitivity: str) -> int | NDArray[np.int64]:
    if isinstance(count, Integral):
        return integer(count, name)
    counts = integer_array(count, name)
    if stated is None:
        raise TypeError(
            f"{sensitivity} must be stated for an array of counts (a histogram has 2: a replaced row leaves one bin "
            "and enters another)"
        )
    return counts


# ── shared by the mechanisms that count ───────────────────────────────────────────────────────────────────────────

@lru_cache(maxsize=256)
def laplace_tail(*, rate: Fraction, probability: Fraction) -> int:
    """Return the least integer k ≥ 0 that discrete Laplace noise, P(z) ∝ e^(−rate·|z|), reaches with at most
    `probability`.

    P(Z ≥ k) = e^(−rate·k)/(1 + e^(−rate)) for k ≥ 0, so k = ⌈(1/rate)·ln(1/(probability·(1 + e^(−rate))))⌉.
    """
    steep = Fraction(1 << 14)  # e^−steep is far below every precision used here

    def bounds(bits: int) -> tuple[Fraction, Fraction]:
        low, high = exp_fractions(-min(rate, steep), bits)
        low = low if rate <= steep else Fraction(0)
        return (
            -log_bounds(probability * (1 + high), bits)[1] / rate,
            -log_bounds(probability * (1 + low), bits)[0] / rate,
        )

    return max(0, ceiling(bounds))


def integer_array(
    values: ArrayLike, name: str, *, least: int | None = None, most: int | None = None
) -> NDArray[np.int64]:
    """Return `values` as an int64 array of any shape. Messages of errors do not contain the values, which may be
    private.

    Parameters
    ----------
    values : array_like
        The whole numbers to check.
    name : str
        The name of the parameter, for messages.
    least, most : int or None, default None
        The range of the values, both ends included.
    """
    try:
        array = np.asarray(None) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    except Exception:  # ragged, or an object with an array interface of its own
        array = np.asarray(None)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} must be whole numbers of at most 64 bits")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2^63")
    if array.size and ((least is not None and array.min() < least) or (most is not None and array.max() > most)):
        raise ValueError(f"{name} must be at least {least}" if most is None else f"{name} must be in [{least}, {most}]")
    return array.astype(np.int64)


def add_noise(counts: int | NDArray[np.int64], draw: Callable[..., Any], scale: Fraction) -> Any:
    """Return counts + draw(scale), independently for each entry; sums that overflow are clipped to 64 bits.

    Parameters
    ----------
    counts : int or array of int64
        What to add noise to.
    draw : callable
        `draw(scale)` returns one integer, `draw(scale, size)` an array of them.
    scale : Fraction
        Scale of the noise; at most 2^48 for an array.
    """
    if isinstance(counts, int):
        return counts + int(draw(scale))
    if scale > WIDEST:
        raise ValueError("the noise is too wide for 64-bit counts: epsilon must be larger, or sigma at most 2^48")
    noise = np.asarray(draw(scale, counts.size), dtype=np.int64).reshape(counts.shape)
    total = counts + noise
    overflow = (counts ^ total) & (noise ^ total) < 0  # two summands of one sign and a sum of the other
    limits = np.iinfo(np.int64)
    return np.where(overflow, np.where(noise > 0, limits.max, limits.min), total)
