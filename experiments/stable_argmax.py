"""A_dist as printed and as repaired: what it leaks, and how large a lead it takes to be released."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction

from experiments.table import Table
from reticent.audit import exact
from reticent.exact import rational
from reticent.mechanisms.stable_argmax import laplace_threshold, release_table

DELTA = Fraction(1, 10**6)
EPSILONS = tuple(rational(epsilon, "epsilon") for epsilon in (0.1, 0.5, 1, 2))
STEPS = 2  # leads are tried in steps of 1/STEPS, and half-way around the printed threshold


def tables() -> list[Table]:
    """What was printed leaks; the lead that the repaired forms need."""
    return [_leak(), _leads()]


def _leak() -> Table:
    rows = []
    for epsilon in EPSILONS:
        printed, laplace, table = (
            _worst(rule(epsilon), epsilon) for rule in (_printed_rule, _laplace_rule, _table_rule)
        )
        rows.append((f"{float(epsilon):g}", f"{printed:.4f}", f"{1 - math.exp(-epsilon / 2):.4f}",
                     f"{laplace:.2e}", f"{table:.2e}"))
    columns = ("ε", "as printed", "1 − e^(−ε/2)", 'method="laplace"', 'method="table"')
    return Table("Exact δ at ε, where δ = 1e-6 was asked for", columns, tuple(rows))


def _leads() -> Table:
    rows = []
    for epsilon in EPSILONS:
        cells = [f"{float(epsilon):g}"]
        for share in (Fraction(1, 2), Fraction(99, 100)):
            for rule in (_laplace_rule, _table_rule):
                release = rule(epsilon)
                cells.append(str(bisect_left(range(10**5), share, key=lambda lead: release(Fraction(lead)))))
        rows.append((*cells, str(2 * len(release_table(epsilon=epsilon, delta=DELTA)[0]) - 3)))
    columns = ("ε", "50 %, laplace", "50 %, table", "99 %, laplace", "99 %, table", "always, table")
    return Table("Least whole lead that is released so often, δ = 1e-6", columns, tuple(rows))


Rule = Callable[[Fraction], Fraction]  # the probability to release the leader, given its lead


def _printed_rule(epsilon: Fraction) -> Rule:
    threshold = math.log(1 / DELTA) / epsilon

    def release(lead: Fraction) -> Fraction:
        short = float(epsilon) * (threshold - float(lead))
        return Fraction(math.exp(-short) / 2 if short >= 0 else 1 - math.exp(short) / 2)

    return release


def _laplace_rule(epsilon: Fraction) -> Rule:
    threshold = laplace_threshold(epsilon=epsilon, delta=DELTA)
    ratio = math.exp(-epsilon / 2)

    def release(lead: Fraction) -> Fraction:
        short = threshold - math.floor(lead)
        return Fraction(ratio**short / (1 + ratio) if short >= 0 else 1 - ratio ** (1 - short) / (1 + ratio))

    return release


def _table_rule(epsilon: Fraction) -> Rule:
    entries, unit = release_table(epsilon=epsilon, delta=DELTA)
    return lambda lead: Fraction(entries[min(math.ceil(lead / 2), len(entries) - 1)], unit)


def _worst(release: Rule, epsilon: Fraction) -> float:
    """The worst δ at ε over neighbours with one leader and leads 2 apart, or with two leaders."""
    most = 2 * len(release_table(epsilon=epsilon, delta=DELTA)[0]) + 20
    worst = 0.0
    leads = [Fraction(step, STEPS) for step in range(most * STEPS)]
    for lead in [*leads, Fraction(math.log(1 / DELTA) / epsilon) - Fraction(3, 2)]:
        first, second = release(lead), release(lead + 2)
        pair = exact({"leader": first, None: 1 - first}, {"leader": second, None: 1 - second})
        worst = max(worst, pair.delta(epsilon)[0])
        if lead <= 2:
            other = release(2 - lead)
            pair = exact({"leader": first, None: 1 - first}, {"other": other, None: 1 - other})
            worst = max(worst, pair.delta(epsilon)[0])
    return worst
