"""The least noise, the most answers, or the largest ρ of concentrated privacy, that fit a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from reticent.exact import Number, integer
from reticent.privacy import accounting
from reticent.privacy.events import ZCDP, Event, Repeated, check_event
from reticent.privacy.parameters import check_certifiable, check_delta, check_epsilon

_MOST = 1 << 100


def answers(event: Event, *, epsilon: Number, delta: Number = 0) -> int:
    """Return the most repetitions of `event` that fit (ε, δ); 0 if not even one does.

    Parameters
    ----------
    event : Event
        What each answer costs.
    epsilon : int, float, Fraction or Decimal
        The ε of the budget.
    delta : int, float, Fraction or Decimal, default 0
        The δ of the budget.

    Examples
    --------
    >>> from reticent.privacy.events import PureDP
    >>> answers(PureDP(0.1), epsilon=1)
    10
    """
    exact_epsilon, exact_delta = check_epsilon(epsilon), check_delta(delta)
    check_event(event)

    def good(count: int) -> bool:
        return accounting.fits(Repeated(event, count), epsilon=exact_epsilon, delta=exact_delta)

    if not good(1):
        return 0
    low, high = 1, 16
    while good(high):
        low, high = high, 16 * high
        if high > _MOST:
            raise ValueError("this event costs almost nothing: more than 2^100 repetitions fit the budget")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def noise(
    event_of_sigma: Callable[[Fraction], Event], *, epsilon: Number, delta: Number = 0, digits: int = 5
) -> Fraction:
    """Return the least σ, to `digits` significant digits, for which `event_of_sigma(σ)` fits (ε, δ).

    The result is a short decimal: with one less in its last digit the event is not certified to fit. The search ends at
    10^-30.

    Parameters
    ----------
    event_of_sigma : callable
        Returns the event of a σ, cheaper as σ grows.
    epsilon : int, float, Fraction or Decimal
        The ε of the budget.
    delta : int, float, Fraction or Decimal, default 0
        The δ of the budget. It must be 0 or at least `LEAST_DELTA` if the event has a δ at every ε.
    digits : int, default 5
        Significant digits of the result, at most 12.

    Examples
    --------
    >>> from reticent.privacy.events import ContinuousGaussian, Repeated
    >>> noise(lambda sigma: Repeated(ContinuousGaussian(sigma), 1000), epsilon=1, delta=1e-6)
    Fraction(668, 5)
    """
    exact_epsilon, exact_delta = check_epsilon(epsilon), check_delta(delta)
    integer(digits, "digits", least=1, most=12)

    def good(sigma: Fraction) -> bool:
        return accounting.fits(event_of_sigma(sigma), epsilon=exact_epsilon, delta=exact_delta)

    # First powers of ten, then multiples of the last digit: every σ that is tried is a short decimal.
    power = 0
    while good(Fraction(10) ** power) and power > -30:
        power -= 1
    while not good(Fraction(10) ** (power + 1)):
        power += 1
        if power > 30:
            check_certifiable(exact_delta)
            raise ValueError(
                "no sigma up to 10^30 can be certified to fit this epsilon and delta: the event may not depend on it"
            )
    unit = Fraction(10) ** (power + 1 - digits)
    low, high = 10 ** (digits - 1), 10**digits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle * unit) else (middle, high)
    return Fraction(high * unit)


def rho(*, epsilon: Number, delta: Number) -> Fraction:
    """Return the largest ρ, to 5 significant digits of σ = √(1/2ρ), for which ρ-zero-concentrated privacy fits (ε, δ).

    It is the budget to split where releases are chosen adaptively: each has a fixed share of ρ, and shares add up.

    Parameters
    ----------
    epsilon, delta : int, float, Fraction or Decimal
        The budget.

    Examples
    --------
    >>> round(float(rho(epsilon=1, delta=1e-6)), 5)
    0.02435
    """
    return _rho(check_epsilon(epsilon), check_delta(delta, positive=True))


@lru_cache(maxsize=256)
def _rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    sigma = noise(lambda one: ZCDP(1 / (2 * one**2)), epsilon=epsilon, delta=delta)
    return 1 / (2 * sigma**2)


def sigma_of(squared: int, variance: Fraction) -> Fraction:
    """The noise of a release of this squared sensitivity and variance per squared sensitivity, rounded up to 7 digits.

    >>> float(sigma_of(50 * 4096**4, Fraction(20)))
    530542200.0
    """
    exact = squared * variance
    unit = Fraction(10) ** (math.ceil(math.log10(exact) / 2) - 7)
    root = math.isqrt(exact // unit**2)
    return (root if root**2 * unit**2 >= exact else root + 1) * unit
