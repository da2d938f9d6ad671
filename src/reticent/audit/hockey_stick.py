"""How far two exact laws are apart: the hockey-stick curve δ(ε), enclosed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction

from reticent.audit.laws import BITS, Law
from reticent.exact import exp_fractions, rational


@dataclass(frozen=True)
class Divergence:
    """The hockey-stick divergence of two laws, in the worse of the two directions, as a function of ε."""

    first: Law
    second: Law

    def delta(self, epsilon: object) -> tuple[float, float]:
        """Certified (lower, upper) bounds on the least δ for which the pair is (ε, δ)-indistinguishable."""
        scale = exp_fractions(rational(epsilon, "epsilon"), BITS)
        forth, back = _one_way(self.first, self.second, scale), _one_way(self.second, self.first, scale)
        return float(max(forth[0], back[0])), float(max(forth[1], back[1]))


def exact(first: Law, second: Law) -> Divergence:
    """The divergence curve of a mechanism's exact laws on two neighbours (see `laws.law`)."""
    return Divergence(first, second)


def _one_way(first: Law, second: Law, scale: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    factor_low, factor_high = (int(bound * (1 << 64)) + offset for bound, offset in zip(scale, (0, 1), strict=True))
    lower = upper = 0
    outputs: set[Hashable] = first.high.keys() | second.high.keys()
    for output in outputs:
        lower += max(0, (first.low.get(output, 0) << 64) - factor_high * second.high.get(output, 0))
        upper += max(0, (first.high.get(output, 0) << 64) - factor_low * second.low.get(output, 0))
    unit = 1 << (BITS + 64)
    lower -= factor_high * second.missing
    upper += first.missing << 64
    return Fraction(max(0, lower), unit), Fraction(min(upper, unit), unit)
