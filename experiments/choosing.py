"""The choosing mechanism: how high a count must be, as printed and here, and the exact δ that it leaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from experiments.table import Table
from reticent.audit import worst_case
from reticent.exact import rational
from reticent.mechanisms.choosing import choosing, choosing_threshold
from reticent.mechanisms.counts import laplace_tail
from reticent.mechanisms.stability_histogram import histogram_threshold
from reticent.noise import Noise

DELTA = Fraction(1, 10**6)
ACCURACY = CONFIDENCE = 0.1


def tables() -> list[Table]:
    """The thresholds side by side, and the exact leak of the one that is built."""
    return [_thresholds(), _leak()]


def _thresholds() -> Table:
    rows = []
    for growth in (1, 2, 10):
        for epsilon in (rational(value, "epsilon") for value in (0.1, 0.5, 1, 2)):
            here = choosing_threshold(epsilon=epsilon, delta=DELTA, growth=growth)
            histogram = str(histogram_threshold(epsilon=epsilon, delta=DELTA)) if growth == 1 else ""
            rows.append((str(growth), f"{float(epsilon):g}", f"{_printed(epsilon, growth):.0f}",
                         str(_factor_by_factor(epsilon, growth)), str(here), histogram))
    columns = ("growth", "ε", "printed (α = β = 0.1)", "factor by factor", "here", "stability histogram")
    return Table("Threshold on the highest count, δ = 1e-6", columns, tuple(rows))


def _printed(epsilon: Fraction, growth: int) -> float:
    """αm/2 at the least m of Lemma 4.4."""
    return 8 / float(epsilon) * math.log(16 * growth / (ACCURACY * CONFIDENCE * float(epsilon) * float(DELTA)))


def _factor_by_factor(epsilon: Fraction, growth: int) -> int:
    """The paper's proof with its constants tuned: rates c = 0.3ε for each of three factors and 0.1ε for newcomers."""
    rate, slack = epsilon * Fraction(3, 10), epsilon / 10
    newcomers = Fraction(max(math.exp(rate), 1 / math.expm1(slack)))
    return laplace_tail(rate=rate, probability=DELTA / (growth * newcomers))


def _leak() -> Table:
    rows = []
    for growth in (1, 2, 5):
        for epsilon, delta in ((Fraction(1, 2), Fraction(1, 100)), (Fraction(1), Fraction(1, 1000)),
                               (Fraction(4), Fraction(1, 1000))):
            threshold = choosing_threshold(epsilon=epsilon, delta=delta, growth=growth)
            pairs = [((top, *[1] * growth, *[0] * growth), (top, *[0] * growth, *[1] * growth))
                     for top in range(1, threshold + 2)]
            rate = epsilon * Fraction(growth + 1, 3 * growth + 1)
            here, less = (worst_case(run, pairs, epsilon=epsilon).lower
                          for run in (_real(epsilon, delta, growth), _with_threshold(threshold - 1, rate)))
            rows.append((str(growth), f"{float(epsilon):g}", f"{float(delta):g}", str(threshold),
                         f"{here:.2e}", f"{less:.2e}"))
    columns = ("growth", "ε", "δ asked for", "threshold τ", "exact δ at τ", "exact δ at τ − 1")
    return Table("Exact δ of the real code where one row's candidates vanish and others appear", columns, tuple(rows))


Mechanism = Callable[[Noise, tuple[int, ...]], int | None]


def _real(epsilon: Fraction, delta: Fraction, growth: int) -> Mechanism:
    return lambda noise, counts: choosing(
        counts, epsilon=epsilon, delta=delta, growth=growth, unsafe_noise=noise
    ).value


def _with_threshold(threshold: int, rate: Fraction) -> Mechanism:
    """The mechanism with a threshold of one's own, to see that the real one cannot be lowered."""

    def run(noise: Noise, counts: tuple[int, ...]) -> int | None:
        occurring = [index for index, count in enumerate(counts) if count]
        if not noise.laplace_cell(1 / rate, [threshold - max(counts)]):
            return None
        return occurring[noise.choose([counts[index] for index in occurring], rate=rate)]

    return run
