"""The stability histogram: its threshold and its error, beside a sanitizer that makes many private choices."""

from __future__ import annotations

import math
from fractions import Fraction

from experiments.table import Table
from reticent.exact import rational
from reticent.mechanisms.choosing import choosing_threshold
from reticent.mechanisms.counts import laplace_tail
from reticent.mechanisms.stability_histogram import histogram_threshold
from reticent.privacy import accounting
from reticent.privacy.events import ApproximateDP, Composed, PureDP, Repeated

VALUES = 100
CONFIDENCE = Fraction(1, 20)
ACCURACY = Fraction(1, 10)


def tables() -> list[Table]:
    """Threshold and error of one histogram, and the counts below which SanPoints sees nothing."""
    return [_errors(), _beside_sanpoints()]


def _errors() -> Table:
    rows = []
    for epsilon in (rational(value, "epsilon") for value in (0.1, 0.5, 1, 2)):
        for delta in (Fraction(1, 10**6), Fraction(1, 10**9)):
            threshold = histogram_threshold(epsilon=epsilon, delta=delta)
            rows.append((f"{float(epsilon):g}", f"{float(delta):g}", str(threshold),
                         str(_reach(epsilon)), str(threshold - 1 + _reach(epsilon))))
    columns = ("ε", "δ", "threshold τ", "error of a published count", "highest count that may go unseen")
    return Table(f"{VALUES} values that occur, all bounds together with probability 95 %", columns, tuple(rows))


def _reach(epsilon: Fraction) -> int:
    """The noise of none of the values exceeds this, in either direction, with the stated confidence."""
    return laplace_tail(rate=epsilon / 2, probability=CONFIDENCE / (2 * VALUES)) - 1


def _beside_sanpoints() -> Table:
    epsilon, delta, calls = Fraction(1), Fraction(1, 10**6), int(2 / ACCURACY)
    printed = Fraction(1 / math.sqrt(float(32 / ACCURACY) * math.log(5 / delta)))
    share = ACCURACY * delta / 5
    inside = 16 / (float(ACCURACY) / 2 * float(ACCURACY * CONFIDENCE) / 4 * float(printed) * float(share))
    composed = _largest_share(epsilon, delta, calls)
    rows = (
        ("SanPoints as printed", f"{float(printed):.4f}", f"{8 / float(printed) * math.log(inside):.0f}"),
        ("SanPoints, optimal composition", f"{float(composed):.4f}",
         str(choosing_threshold(epsilon=composed, delta=delta / (2 * calls)))),
        ("one stability histogram", f"{float(epsilon):g}", str(histogram_threshold(epsilon=epsilon, delta=delta))),
    )
    columns = ("", "ε of each call", "threshold on a count")
    return Table("Which values are seen at all: ε = 1, δ = 1e-6, accuracy α = 0.1", columns, rows)


def _largest_share(epsilon: Fraction, delta: Fraction, calls: int) -> Fraction:
    """The most ε, in steps of 1e-4, that each of `calls` choices and as many noisy counts may have."""

    def fits(step: int) -> bool:
        share = Fraction(step, 10**4)
        choices = Repeated(ApproximateDP(share, delta / (2 * calls)), calls)
        counts = Repeated(PureDP(share), calls)
        return accounting.fits(Composed((choices, counts)), epsilon=epsilon, delta=delta)

    low, high = 1, 10**4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Fraction(low, 10**4)
