"""How long prices take, beside dp-accounting's where it has them, in the same run: CPU time on one core.

    python benchmarks/accounting.py

Exits with 1 where a target is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dp_accounting.pld import common, privacy_loss_distribution
from rich.console import Console
from rich.table import Table

from reticent.privacy import Guarantee, Ledger, accounting, calibrate, divergences, epsilon, profiles
from reticent.privacy.events import Composed, ContinuousGaussian, DiscreteGaussian, GaussianBit, PureDP, Repeated

DELTA = 1e-6
CACHES = (profiles.optimal_composition, accounting._composition, divergences._bit)


def seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    """The least CPU time of a few runs, each with empty caches, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        for cached in CACHES:
            cached.cache_clear()
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times[1:])


def response(own: float, times: int, step: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    parameters = common.DifferentialPrivacyParameters(own, 0)
    single = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=step)
    return single.self_compose(times)


def discrete_gaussian() -> float:
    single = privacy_loss_distribution.from_discrete_gaussian_mechanism(10, value_discretization_interval=0.005)
    return float(single.self_compose(1000).get_epsilon_for_delta(DELTA))


def mixture() -> float:
    return float(response(0.1, 100, 0.05).compose(response(0.2, 100, 0.05)).get_epsilon_for_delta(DELTA))


def charge() -> float:
    """Microseconds a charge."""
    ledger = Ledger(Guarantee(epsilon=1.0, delta=DELTA), event=PureDP(Fraction(1, 10**9)))
    start = time.process_time()
    for _ in range(100_000):
        ledger.charge()
    return (time.process_time() - start) * 10


def main() -> int:
    gaussians = Repeated(ContinuousGaussian(Fraction(10)), 1000)
    counts = Repeated(DiscreteGaussian(Fraction(10)), 1000)
    responses = Repeated(PureDP(Fraction(1, 1000)), 10**6)
    mixed = Composed((Repeated(PureDP(Fraction(1, 10)), 100), Repeated(PureDP(Fraction(1, 5)), 100)))
    bit = GaussianBit(Fraction(100), 1000)
    rows: list[tuple[str, Callable[[], Any], Callable[[], Any] | None, float]] = [
        ("ε of 1000 Gaussian answers", lambda: epsilon(gaussians, delta=DELTA), None, 0.05),
        ("ε of 10⁶ releases of ε = 0.001", lambda: epsilon(responses, delta=DELTA),
         lambda: response(1e-3, 10**6, 1e-3).get_epsilon_for_delta(DELTA), 0.5),
        ("ε of 1000 discrete Gaussian answers", lambda: epsilon(counts, delta=DELTA), discrete_gaussian, 0.5),
        ("ε of a mixture of 200 pure releases", lambda: epsilon(mixed, delta=DELTA), mixture, 0.5),
        ("most one-bit answers, ε = 1", lambda: calibrate.answers(bit, epsilon=1, delta=Fraction(1, 10**6)), None, 1.0),
    ]
    table = Table("what", "ours", "dp-accounting", "target", "met", title="CPU seconds")
    missed = 0
    for what, ours, theirs, target in rows:
        own = seconds(ours)
        missed += own > target
        peer = "–" if theirs is None else f"{seconds(theirs):.4f}"
        table.add_row(what, f"{own:.4f}", peer, f"≤ {target:g}", "yes" if own <= target else "NO")
    cost = min(charge() for _ in range(3))
    missed += cost > 5
    table.add_row("one charge on a ledger (µs)", f"{cost:.2f}", "–", "≤ 5", "yes" if cost <= 5 else "NO")
    Console().print(table)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
