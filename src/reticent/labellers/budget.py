"""One order and what may be spent at it: how an (ε, δ) becomes a Rényi divergence of a single order."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from reticent.exact import integer
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import Gaussian, RenyiDP
from reticent.privacy.parameters import check_delta, check_epsilon


@lru_cache(maxsize=1024)
def best_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """An order that serves well for many answers within (ε, δ): 0.95·(1 + √(2 ln(1/δ))/μ), to two decimals.

    μ is the ratio of sensitivity to noise at which a single Gaussian release is (ε, δ)-DP. It depends on nothing else.
    """
    sigma = calibrate.noise(Gaussian, epsilon=epsilon, delta=delta)
    order = 0.95 * (1 + math.sqrt(2 * math.log(1 / float(delta))) * float(sigma))
    return max(Fraction(round(order, 2)).limit_denominator(100), Fraction(101, 100))


@lru_cache(maxsize=1024)
def spendable(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction | None:
    """The most divergence of this order that is certainly (ε, δ)-DP, but for one part in 10^9; None where none is."""
    alpha = float(order)
    most = float(epsilon) - math.log1p(-1 / alpha) + (math.log(float(delta)) + math.log(alpha)) / (alpha - 1)
    if most <= 0:
        return None
    found = Fraction(most * (1 - 1e-9))
    return found if accounting.fits(RenyiDP(order, found), epsilon=epsilon, delta=delta) else None


def check_budget(epsilon: object, delta: object, answers: object = 1) -> tuple[Fraction, Fraction, int]:
    """The parameters of a labeller, read exactly; δ > 0, as divergences of one order say nothing at δ = 0."""
    return check_epsilon(epsilon), check_delta(delta, positive=True), integer(answers, "answers", least=1)


def share(epsilon: Fraction, delta: Fraction, order: Fraction, answers: int) -> Fraction:
    """What each of so many answers may cost at this order."""
    most = spendable(epsilon, delta, order) if order > 1 else None
    if most is None:
        raise ValueError(
            f"order={float(order):g} can certify nothing at epsilon={float(epsilon):g}, delta={float(delta):g}: "
            "take a higher order, or a larger epsilon or delta"
        )
    return most / answers
