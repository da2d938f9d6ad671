"""How (ε, δ) becomes a Rényi divergence of one order, and how much of it each answer may cost."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from reticent.exact import Number, integer, rational
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import ContinuousGaussian, RenyiDP
from reticent.privacy.parameters import check_delta, check_epsilon

_MOST_ANSWERS = 10**100  # with more, the share of one answer could not be distinguished from 0
_HIGHEST_ORDER = Fraction(999_999)  # tables are certified up to here


@lru_cache(maxsize=1024)
def default_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return an order that suits many answers within (ε, δ): 0.95·(1 + √(2 ln(1/δ))/μ), to two decimals.

    μ is the ratio of sensitivity to noise at which a single Gaussian release is (ε, δ)-DP.
    """
    sigma = calibrate.noise(ContinuousGaussian, epsilon=epsilon, delta=delta)
    order = 0.95 * (1 + math.sqrt(2 * math.log(1 / float(delta))) * float(sigma))
    return min(max(Fraction(round(order, 2)).limit_denominator(100), Fraction(101, 100)), _HIGHEST_ORDER)


@lru_cache(maxsize=1024)
def spendable(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction | None:
    """Return the largest divergence of this order that is certified (ε, δ)-DP, to one part in 10^9; None if none is."""
    most = float(epsilon) - _least_epsilon(delta, order)
    if most <= 0:
        return None
    found = Fraction(most * (1 - 1e-9))
    return found if accounting.fits(RenyiDP(order, found), epsilon=epsilon, delta=delta) else None


def check_budget(epsilon: Number, delta: Number, answers: int = 1) -> tuple[Fraction, Fraction, int]:
    """Return the parameters of a labeller as exact numbers. δ must be positive: divergences of one order need it."""
    count = integer(answers, "answers", least=1, most=_MOST_ANSWERS)
    return check_epsilon(epsilon), check_delta(delta, positive=True), count


def _least_epsilon(delta: Fraction, order: Fraction) -> float:
    """The ε that a divergence of 0 certifies at this order: only a larger ε leaves anything to spend."""
    alpha = float(order)
    return math.log1p(-1 / alpha) - (math.log(float(delta)) + math.log(alpha)) / (alpha - 1)


def share(epsilon: Fraction, delta: Fraction, answers: int, order: Number | None = None) -> tuple[Fraction, Fraction]:
    """Return an order, `default_order` if none is given, and how much divergence each answer may cost at it."""
    alpha = default_order(epsilon, delta) if order is None else rational(order, "order")
    most = spendable(epsilon, delta, alpha) if alpha > 1 else None
    if most is None and order is None:
        raise ValueError(
            f"epsilon must be above {_least_epsilon(delta, alpha):.3g} at delta={float(delta):g}, got "
            f"{float(epsilon):g}: no answer fits"
        )
    if most is None:
        raise ValueError(
            f"order={float(alpha):g} can certify nothing at epsilon={float(epsilon):g}, delta={float(delta):g}: "
            "take a higher order, or a larger epsilon or delta"
        )
    return alpha, most / answers
