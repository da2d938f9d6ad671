"""How long a private median takes, next to sorting the same rows: `python benchmarks/quasi_concave.py`.

Targets: a million rows of 64 bits in at most ten times the time of `np.sort`; 2000 rows of a million bits in at most
three seconds. The time includes building the scores from unsorted rows.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.mechanisms.pieces import Pieces, median_pieces
from reticent.mechanisms.quasi_concave import quasi_concave_maximum

ROWS = 10**6
REPEATS = 7


def seconds(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The best of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def median(rows: Any, *, bits: int, depth: Any = "auto") -> int:
    score = median_pieces(rows, bits=bits)
    return quasi_concave_maximum(
        score, promise=len(rows) // 2, accuracy=0.1, epsilon=1, delta=1e-6, depth=depth
    ).value  # fmt: skip


def bumpy(rows: NDArray[np.uint64]) -> Pieces:
    """A score that rises and falls at random: not quasi-concave, as of labels that no threshold explains."""
    starts = np.append(np.uint64(0), np.sort(rows))
    scores = np.append(0, np.cumsum(np.where(rows & np.uint64(1), 1, -1)))
    return Pieces.from_breakpoints(starts, scores, last=2**64 - 1)


def main() -> int:
    generator = np.random.default_rng(0)
    uniform = generator.integers(0, 2**64, ROWS, dtype=np.uint64)
    clustered = uniform >> np.uint64(48)
    print(f"{ROWS} rows of 64 bits, best of {REPEATS}\n")
    print(f"{'':34}{'ours':>10}{'np.sort':>10}{'ratio':>8}")
    worst = 0.0
    for name, rows in (("uniform", uniform), ("65536 distinct values", clustered)):
        peer = seconds(lambda rows=rows: np.sort(rows))  # type: ignore[misc]
        for depth in ("auto", 2):
            ours = seconds(lambda rows=rows, depth=depth: median(rows, bits=64, depth=depth))  # type: ignore[misc]
            worst = max(worst, ours / peer) if name == "uniform" else worst
            print(f"{f'{name}, depth {depth}':34}{ours * 1e3:7.1f} ms{peer * 1e3:7.1f} ms{ours / peer:8.1f}")
    distinct = generator.permutation(np.unique(uniform | np.uint64(2)))
    peer = seconds(lambda: np.sort(distinct))
    for depth in ("auto", 2):
        ours = seconds(
            lambda depth=depth: quasi_concave_maximum(  # type: ignore[misc]
                bumpy(distinct), promise=500, accuracy=0.1, epsilon=1, delta=1e-6, depth=depth
            ),
            repeats=3,
        )
        print(f"{f'not quasi-concave, depth {depth}':34}{ours * 1e3:7.1f} ms{peer * 1e3:7.1f} ms{ours / peer:8.1f}")
    rng = random.Random(0)
    wide = [rng.getrandbits(10**6) for _ in range(2000)]
    ours = seconds(lambda: median(wide, bits=10**6), repeats=3)
    peer = seconds(lambda: sorted(wide), repeats=3)
    print(f"\n2000 rows of 10^6 bits: {ours:.2f} s (sorted(): {peer * 1e3:.1f} ms)")
    met = worst <= 10 and ours <= 3
    print("targets met" if met else "TARGETS MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
