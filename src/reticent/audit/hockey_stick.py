"""The hockey-stick divergence δ(ε) of two exact laws, enclosed by certified bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from reticent.audit.laws import BITS, ONE, Law, Probability
from reticent.exact import Number, exp_fractions, log_bounds, rational, upward
from reticent.privacy.parameters import check_delta

Ratio = Fraction | float  # a float only where it is infinite


@dataclass(frozen=True)
class Divergence:
    """The hockey-stick divergence of two laws, in the worse of the two directions.

    With laws P and Q, δ(ε) = max over events E of P(E) − e^ε·Q(E) and of Q(E) − e^ε·P(E): the least δ for which the
    pair is (ε, δ)-indistinguishable. All bounds are certified: they hold whatever the rounding and the missing tails.

    Parameters
    ----------
    first, second : Law
        The two laws.
    """

    first: Law
    second: Law

    def delta(self, epsilon: Number) -> tuple[float, float]:
        """Return (lower, upper) bounds on the least δ for which the pair is (ε, δ)-indistinguishable.

        Parameters
        ----------
        epsilon : float or Fraction
            The ε.
        """
        exact = rational(epsilon, "epsilon")
        if exact < 0:
            raise ValueError(f"epsilon must be a finite number ≥ 0, got {epsilon}")
        low, high = exp_fractions(exact, BITS)
        scale = math.floor(low * ONE), math.ceil(high * ONE)
        bounds = [_delta(first, second, scale) for first, second in self._directions()]
        return _downward(max(lower for lower, _ in bounds)), upward(max(upper for _, upper in bounds))

    def epsilon(self, delta: Number) -> tuple[float, float]:
        """Return (lower, upper) bounds on the least ε ≥ 0 for which the pair is (ε, δ)-indistinguishable.

        The upper bound is infinite if an event beyond any ε cannot be excluded. At δ = 0 this is the case as soon as
        some of the noise was not walked.

        Parameters
        ----------
        delta : float or Fraction
            The δ.
        """
        exact = check_delta(delta) * ONE
        scales = [_scale(first, second, exact) for first, second in self._directions()]
        lower, upper = max(lower for lower, _ in scales), max(upper for _, upper in scales)
        return _log(lower)[0], _log(upper)[1]

    def curve(self, epsilons: Iterable[Number]) -> list[tuple[float, float]]:
        """Return `delta` at each ε.

        Parameters
        ----------
        epsilons : iterable of float or Fraction
            Values of ε.
        """
        return [self.delta(epsilon) for epsilon in epsilons]

    def _directions(self) -> tuple[tuple[Law, Law], tuple[Law, Law]]:
        return (self.first, self.second), (self.second, self.first)


def exact(first: Law | Mapping[Any, Probability], second: Law | Mapping[Any, Probability]) -> Divergence:
    """Compare the exact laws of a mechanism on two neighbours.

    Parameters
    ----------
    first, second : Law or dict
        The laws. `law(run)` finds one; a mapping states one: output → Fraction, or → (low, high) bounds.

    Returns
    -------
    Divergence

    Examples
    --------
    >>> truth = exact({"yes": Fraction(3, 4), "no": Fraction(1, 4)}, {"yes": Fraction(1, 4), "no": Fraction(3, 4)})
    >>> truth.epsilon(0)    # ln 3
    (1.0986122886681096, 1.0986122886681098)
    >>> truth.delta(1)      # (3 − e)/4
    (0.07042954288523869, 0.0704295428852387)
    """
    first, second = (given if isinstance(given, Law) else Law.of(given) for given in (first, second))
    return Divergence(first, second)


def _delta(first: Law, second: Law, scale: tuple[int, int]) -> tuple[Fraction, Fraction]:
    """Return bounds on max over E of P(E) − s·Q(E), where s = e^ε lies within scale·2^-BITS."""
    lower: int | Fraction = -scale[1] * second.missing
    upper: int | Fraction = first.missing * ONE
    for output in first.high.keys() | second.high.keys():
        lower += max(0, first.low.get(output, 0) * ONE - scale[1] * second.high.get(output, 0))
        upper += max(0, first.high.get(output, 0) * ONE - scale[0] * second.low.get(output, 0))
    return Fraction(max(0, lower), ONE * ONE), Fraction(min(upper, ONE * ONE), ONE * ONE)


def _scale(first: Law, second: Law, delta: Fraction) -> tuple[Ratio, Ratio]:
    """Return bounds on the least s with P(E) − s·Q(E) ≤ δ for all E; `delta` in units of 2^-BITS."""
    outputs = first.high.keys() | second.high.keys()
    surely = [(first.low.get(output, 0), second.high.get(output, 0)) for output in outputs]
    possibly = [(first.high.get(output, 0), second.low.get(output, 0)) for output in outputs]
    return _greatest_ratio(surely, -delta, second.missing), _greatest_ratio(possibly, first.missing - delta, 0)


def _greatest_ratio(pairs: Iterable[tuple[int | Fraction, int | Fraction]], above: Fraction, below: int) -> Ratio:
    """Return the maximum over sets of pairs (a, b) of (Σa + above)/(Σb + below).

    If the maximum is s, the set where a > s·b attains it, so it is enough to try the sets of the highest a/b.
    """
    greatest: Ratio = Fraction(0)
    numerator, denominator = above, Fraction(below)
    for a, b in [(0, 0), *sorted(pairs, key=lambda pair: Fraction(*pair) if pair[1] else math.inf, reverse=True)]:
        numerator, denominator = numerator + a, denominator + b
        if numerator > 0:
            greatest = max(greatest, numerator / denominator if denominator else math.inf)
    return greatest


def _log(ratio: Ratio) -> tuple[float, float]:
    """Return bounds on ln max(1, ratio)."""
    if ratio <= 1 or ratio == math.inf:
        return (math.inf, math.inf) if ratio == math.inf else (0.0, 0.0)
    low, high = log_bounds(Fraction(ratio), 64)
    return max(0.0, _downward(low)), upward(high)


def _downward(value: Fraction) -> float:
    return 0.0 - upward(-value)
