"""How fast the exact samplers draw, beside OpenDP's, in the same run: CPU time on one core.

    python benchmarks/noise.py

Exits with 1 where a target is missed.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
from rich.console import Console
from rich.table import Table

from reticent.noise import system

OURS, THEIRS, CALLS = 5_000_000, 50_000, 2_000


@dataclass
class Row:
    what: str
    ours: str
    peer: str
    ratio: str
    target: str
    met: bool


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """The least CPU time of a few runs, after one to warm up."""
    run()
    gc.disable()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    gc.enable()
    return min(times)


def peer(law: str, scale: float) -> Callable[[list[int]], Any]:
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    make, metric = (dp.m.make_gaussian, dp.l2_distance) if law == "gaussian" else (dp.m.make_laplace, dp.l1_distance)
    measurement: Callable[[list[int]], Any] = make(domain, metric(T="f64"), scale=scale)
    return measurement


def scalar_peer(law: str, scale: float) -> Callable[[int], Any]:
    make = dp.m.make_gaussian if law == "gaussian" else dp.m.make_laplace
    measurement: Callable[[int], Any] = make(dp.atom_domain(T="i64"), dp.absolute_distance(T="f64"), scale=scale)
    return measurement


def vector(law: str, scale: int) -> Row:
    draw = getattr(system, f"discrete_{law}")
    zeros, measure = [0] * THEIRS, peer(law, float(scale))
    ours = OURS / seconds(lambda: draw(Fraction(scale), OURS))
    theirs = THEIRS / seconds(lambda: measure(zeros))
    return Row(
        f"discrete {law}, scale {scale:,}, vector",
        f"{ours:,.0f}/s",
        f"{theirs:,.0f}/s",
        f"{ours / theirs:,.0f} ×",
        "≥ 5,000,000/s, ≥ 50 ×",
        ours >= 5e6 and ours >= 50 * theirs,
    )


def scalar(law: str, scale: int) -> Row:
    draw, measure = getattr(system, f"discrete_{law}"), scalar_peer(law, float(scale))
    exact = Fraction(scale)
    ours = seconds(lambda: [draw(exact) for _ in range(CALLS)]) / CALLS * 1e6
    theirs = seconds(lambda: [measure(0) for _ in range(CALLS)], 3) / CALLS * 1e6
    return Row(
        f"discrete {law}, scale {scale:,}, one call",
        f"{ours:.1f} µs",
        f"{theirs:.1f} µs",
        f"{theirs / ours:,.0f} ×",
        "≤ 20 µs",
        ours <= 20,
    )


def alone(what: str, run: Callable[[], Any], limit: float) -> Row:
    taken = seconds(run, 3)
    return Row(what, f"{taken * 1e3:,.1f} ms", "", "", f"≤ {limit * 1e3:,.0f} ms", taken <= limit)


def choices() -> list[Row]:
    generator = np.random.Generator(np.random.Philox(1))
    integers = generator.integers(-1000, 1000, 10**6)
    counts = generator.integers(0, 2**64, 10**6, dtype=np.uint64)
    floats = generator.normal(size=10**7)
    wide = [int.from_bytes(generator.bytes(125_000)) for _ in range(4000)]
    pieces, scores = np.array(wide, dtype=object), np.arange(4000)
    rate = Fraction(1, 10)
    return [
        alone("choose: 10⁶ integers, 64-bit counts", lambda: system.choose(integers, rate=rate, counts=counts), 0.04),
        alone("choose: 10⁷ floats", lambda: system.choose(floats, rate=rate), 1.0),
        alone("choose: 4000 pieces, 10⁶-bit counts", lambda: system.choose(scores, rate=rate, counts=pieces), 0.5),
        alone("subset: 10³ out of 10⁷", lambda: system.subset(10**7, 10**3), 0.01),
        alone("permutation of 10⁶", lambda: system.permutation(10**6), 0.5),
    ]


def main() -> int:
    dp.enable_features("contrib")
    rows = [vector(law, scale) for law in ("gaussian", "laplace") for scale in (10, 1000)]
    rows += [vector("gaussian", 1_000_000)]
    rows += [scalar(law, scale) for law in ("gaussian", "laplace") for scale in (10, 1000)]
    rows += choices()
    table = Table("what", "ours", "OpenDP", "ratio", "target", "met")
    for row in rows:
        table.add_row(row.what, row.ours, row.peer, row.ratio, row.target, "yes" if row.met else "NO")
    Console(width=130).print(table)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
