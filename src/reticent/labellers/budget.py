"""One order and what may be spent at it: how an (ε, δ) becomes a Rényi divergence of a single order."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from reticent.exact import integer, rational
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import Gaussian, RenyiDP
from reticent.privacy.parameters import check_delta, check_epsilon

_MOST_ANSWERS = 10**100  # beyond, a share of the budget could no longer be told from nothing
_HIGHEST_ORDER = Fraction(999_999)  # the highest that tables are certified at


@lru_cache(maxsize=1024)
def best_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """An order that serves well for many answers within (ε, δ): 0.95·(1 + √(2 ln(1/δ))/μ), to two decimals.

    μ is the ratio of sensitivity to noise at which a single Gaussian release is (ε, δ)-DP. It depends on nothing else.
    """
    sigma = calibrate.noise(Gaussian, epsilon=epsilon, delta=delta)
    order = 0.95 * (1 + math.sqrt(2 * math.log(1 / float(delta))) * float(sigma))
    return min(max(Fraction(round(order, 2)).limit_denominator(100), Fraction(101, 100)), _HIGHEST_ORDER)


@lru_cache(maxsize=1024)
def spendable(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction | None:
    """The most divergence of this order that is certainly (ε, δ)-DP, but for one part in 10^9; None where none is."""
    most = float(epsilon) - _least_epsilon(delta, order)
    if most <= 0:
        return None
    found = Fraction(most * (1 - 1e-9))
    return found if accounting.fits(RenyiDP(order, found), epsilon=epsilon, delta=delta) else None


def check_budget(epsilon: object, delta: object, answers: object = 1) -> tuple[Fraction, Fraction, int]:
    """The parameters of a labeller, read exactly; δ > 0, as divergences of one order say nothing at δ = 0."""
    count = integer(answers, "answers", least=1, most=_MOST_ANSWERS)
    return check_epsilon(epsilon), check_delta(delta, positive=True), count


def _least_epsilon(delta: Fraction, order: Fraction) -> float:
    """The ε that no divergence at all certifies at this order: only above it is there anything to spend."""
    alpha = float(order)
    return math.log1p(-1 / alpha) - (math.log(float(delta)) + math.log(alpha)) / (alpha - 1)


def share(epsilon: Fraction, delta: Fraction, answers: int, order: object = None) -> tuple[Fraction, Fraction]:
    """An order, `best_order` if none is given, and what each of this many answers may cost at it."""
    alpha = best_order(epsilon, delta) if order is None else rational(order, "order")
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
