"""All labellings of n points, and the exact errors of each, against one np.sort of the same points.

Run it with `python benchmarks/concepts.py [rows …]`. The best of three runs is printed, in milliseconds of processor
time; × is the ratio to the sort, and the last column the growth of the time since the row before, while n doubles.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from reticent.concepts import Intervals, Stumps, Thresholds


def milliseconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def main(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2**63, (max(sizes), 4))
    first = X[:, 0].copy()
    floats = rng.normal(size=max(sizes))
    copied = X.copy()
    copied[:, 2], copied[:, 3] = X[:, 0], 2**63 - 1 - X[:, 1]  # the same cuts twice, once mirrored
    y = rng.integers(0, 2, max(sizes))
    line, stumps = Thresholds(bits=63, both_orientations=True), Stumps(4, bits=63)
    runs: list[tuple[str, Callable[[int], object]]] = [
        ("np.sort", lambda n: np.sort(first[:n])),
        ("thresholds: all errors", lambda n: line.dichotomies(first[:n]).errors(y[:n])),
        ("thresholds on floats", lambda n: Thresholds().dichotomies(floats[:n]).errors(y[:n])),
        ("thresholds: on other rows", lambda n: line.dichotomies(first[:n]).errors(y[:n], at=X[:n, 1])),
        ("intervals: erm", lambda n: Intervals(bits=63).erm(first[:n], y[:n])),
        ("4 stumps: all errors", lambda n: stumps.dichotomies(X[:n]).errors(y[:n])),
        ("4 stumps, 2 of them copies", lambda n: stumps.dichotomies(copied[:n]).errors(y[:n])),
    ]
    sort: dict[int, float] = {}
    print(f"{'':28}{'rows':>10}{'ms':>10}{'× sort':>9}{'growth':>9}")
    for name, run in runs:
        before = None
        for n in sizes:
            taken = milliseconds(lambda n=n, run=run: run(n))  # type: ignore[misc]
            sort.setdefault(n, taken)  # the first of the runs
            growth = f"{taken / before:9.1f}" if before else ""
            print(f"{name:28}{n:>10,}{taken:>10.1f}{taken / sort[n]:>9.1f}{growth}")
            before = taken


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [125_000, 250_000, 500_000, 1_000_000])
