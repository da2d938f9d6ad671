"""Exact prices as fractions: the (ε, δ) of basic composition, the ε of pure events, and the ρ of zCDP.

If a price is irrational (sampling, groups with δ > 0), the fraction is an upper bound, tight to about 128 bits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from reticent.exact import exp_fractions, log_bounds
from reticent.privacy import events
from reticent.privacy.events import Event
from reticent.privacy.parts import other_reading, parts

Pair = tuple[Fraction, Fraction]
_BITS = 128


def amplified(epsilon: Fraction, rate: Fraction) -> Fraction:
    """Return ln(1 + rate·(e^ε − 1)), rounded up: the ε on a random subset (Balle, Barthe, Gaboardi 2018).

    >>> round(float(amplified(Fraction(1), Fraction(1, 10))), 6)
    0.158565
    """
    if rate == 1:
        return epsilon
    grown = 1 + rate * (exp_fractions(epsilon, _BITS)[1] - 1)
    return min(epsilon, _up(log_bounds(grown, _BITS)[1]))


def grouped(pair: Pair, size: int) -> Pair | None:
    """Return (kε, δ·(e^(kε) − 1)/(e^ε − 1)), what a group of k rows sees of an (ε, δ); None if that δ reaches 1."""
    epsilon, delta = pair
    if delta == 0:
        return size * epsilon, delta
    if size * epsilon > 1000:
        return None
    bits = _BITS + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())
    wide = _up(delta * (exp_fractions(size * epsilon, bits)[1] - 1) / (exp_fractions(epsilon, bits)[0] - 1))
    return (size * epsilon, wide) if wide < 1 else None


@lru_cache(maxsize=4096)
def pair(event: Event) -> Pair | None:
    """Return the (ε, δ) of an event by basic composition, exactly; None if it has no (ε, δ) of its own.

    >>> from reticent.privacy.events import SparseVectorRun
    >>> pair(SparseVectorRun(epsilon=0.5, halts=3, delta=1e-6))
    (Fraction(3, 2), Fraction(1, 1000000))
    """
    epsilon = delta = Fraction(0)
    for part, times in parts(event):
        price = _pair(part)
        if price is None:
            return None
        epsilon += times * price[0]
        delta += times * price[1]
    return (epsilon, delta) if delta < 1 else None


def _pair(part: Event) -> Pair | None:  # noqa: PLR0911 (one case per event)
    match part:
        case events.PureDP(epsilon=epsilon) | events.BoundedRange(epsilon=epsilon):
            return epsilon, Fraction(0)
        case events.ApproximateDP(epsilon=epsilon, delta=delta):
            return epsilon, delta
        case events.SparseVectorRun(epsilon=epsilon, halts=halts, delta=delta):
            return halts * epsilon, delta
        case events.Subsampled(event=inner, rate=rate):
            price, other = pair(inner), other_reading(part)
            own = None if price is None else (amplified(price[0], rate), rate * price[1])
            return own if other is None else _larger([own, pair(other)])
        case events.Grouped(event=inner, size=size):
            price = pair(inner)
            return None if price is None else grouped(price, size)
        case events.Parallel(events=members):
            return _larger([pair(member) for member in members])
    return None


def pure(event: Event) -> Fraction | None:
    """Return the ε of an event that is ε-DP with δ = 0, exactly; None for others.

    >>> from reticent.privacy.events import PureDP, Repeated
    >>> pure(Repeated(PureDP(0.1), 10))
    Fraction(1, 1)
    """
    price = pair(event)
    return price[0] if price is not None and price[1] == 0 else None


@lru_cache(maxsize=4096)
def rho(event: Event) -> Fraction | None:
    """Return the ρ for which the event is ρ-zCDP; None if it has none.

    >>> from reticent.privacy.events import BoundedRange
    >>> rho(BoundedRange(epsilon=2))
    Fraction(1, 2)
    """
    total = Fraction(0)
    for part, times in parts(event):
        price = _rho(part)
        if price is None:
            return None
        total += times * price
    return total


def _rho(part: Event) -> Fraction | None:  # noqa: PLR0911 (one case per event)
    match part:
        case events.BoundedRange(epsilon=epsilon):  # Dong, Durfee, Rogers 2020; Cesar, Rogers 2021
            return epsilon**2 / 8
        case events.SparseVectorRun(epsilon=epsilon, halts=halts, delta=delta) if delta == 0:
            return halts * epsilon**2 / 2
        case events.ZCDP(rho=value):
            return value
        case events.ContinuousGaussian(sigma=sigma, squared_sensitivity=square) | events.DiscreteGaussian(
            sigma=sigma, squared_sensitivity=square
        ):
            return Fraction(square) / (2 * sigma**2)
        case events.GaussianBit(sigma=sigma):
            return 1 / (2 * sigma**2)
        case events.Grouped(event=inner, size=size):
            price = rho(inner)
            return None if price is None else size**2 * price
        case events.Parallel(events=members):
            prices = [rho(member) for member in members]
            known = [price for price in prices if price is not None]
            return max(known) if len(known) == len(prices) else None
    epsilon_ = pure(part)  # Bun and Steinke 2016, Proposition 1.4
    return None if epsilon_ is None else epsilon_**2 / 2


def _larger(prices: list[Pair | None]) -> Pair | None:
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None
    return max(epsilon for epsilon, _ in known), max(delta for _, delta in known)


def _up(value: Fraction) -> Fraction:
    """A fraction of _BITS significant bits that is not below `value` ≥ 0, so that repeated prices stay short."""
    shift = value.denominator.bit_length() - value.numerator.bit_length() + _BITS
    scale = Fraction(2) ** shift
    return math.ceil(value * scale) / scale
