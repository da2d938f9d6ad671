"""Private answers a second through `EverlastingPredictor.predict`, beside a loop over teachers of scikit-learn.

1000 linear teachers, 20 columns, batches of 10,000 queries; both in the same run, by the clock (the best of
thirty batches), on a machine that does nothing else. Exits with 1 where a target is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from experiments.everlasting_streams import Halfspace
from reticent.predictors.everlasting import EverlastingPredictor

TEACHERS, ROWS, BATCH, REPEATS = 1000, 20_000, 10_000, 30
EVERY_SECOND, RATIO = 150_000, 30


def seconds(run: Callable[[np.ndarray], object], batches: list[np.ndarray]) -> tuple[float, float]:
    """The least processor time and the least time of the clock for one batch, after one to warm up."""
    run(batches[0])
    processor, clock = [], []
    for batch in batches[1:]:
        start, began = time.process_time(), time.perf_counter()
        run(batch)
        processor.append(time.process_time() - start)
        clock.append(time.perf_counter() - began)
    return min(processor), min(clock)


def compared(dtype: type, table: Table) -> tuple[float, float]:
    """Answers a second by `greedy`, and how many times those of the loop that is; rows and queries of one type."""
    stream, generator = Halfspace(20), np.random.default_rng(0)
    X, y = stream.rows(generator, ROWS)
    X = X.astype(dtype)
    batches: list[np.ndarray] = [stream.rows(generator, BATCH)[0].astype(dtype) for _ in range(REPEATS + 1)]

    def row(name: str, times: tuple[float, float]) -> None:
        rates = (f"{BATCH / each:,.0f}" for each in times)
        table.add_row(np.dtype(dtype).name, name, f"{1000 * times[0]:.1f}", *rates)

    ours: dict[str, tuple[float, float]] = {}
    for labeller, options in (("greedy", {}), ("two-coin", {"steepness": 15}), ("gaussian", {})):
        model = EverlastingPredictor(
            epsilon=8, delta=1e-6, classes=(0, 1), growth=20, rows_per_teacher=ROWS // TEACHERS, labeller=labeller,
            labeller_options=options, most_noise=2,
        ).fit(X, y)  # fmt: skip
        assert model.phase.teachers == TEACHERS
        ours[labeller] = seconds(model.predict, batches)
        assert model.phase_ == 1 or labeller == "two-coin"
        row(f"predict, {labeller}", ours[labeller])

    teachers = [LogisticRegression(C=100).fit(X[place::TEACHERS], y[place::TEACHERS]) for place in range(TEACHERS)]

    def loop(batch: np.ndarray) -> np.ndarray:
        votes = np.zeros(len(batch), dtype=np.int64)
        for teacher in teachers:
            votes += teacher.predict(batch)
        return votes + generator.normal(0, 100, len(batch)) > TEACHERS / 2

    theirs = seconds(loop, batches)
    row("loop over scikit-learn", theirs)
    return BATCH / ours["greedy"][1], theirs[1] / ours["greedy"][1]


def main() -> int:
    console = Console()
    table = Table("numbers", "who answers", "processor ms a batch", "answers/s (processor)", "answers/s (clock)",
                  title=f"{TEACHERS} linear teachers, 20 columns, batches of {BATCH:,}")  # fmt: skip
    found = {dtype: compared(dtype, table) for dtype in (np.float64, np.float32)}
    console.print(table)
    missed = 0
    for dtype, (rate, ratio) in found.items():
        met = rate >= EVERY_SECOND and ratio >= RATIO
        missed += not met
        console.print(
            f"{np.dtype(dtype).name}, greedy: {rate:,.0f} answers/s (target {EVERY_SECOND:,}), "
            f"{ratio:.0f} times the loop (target {RATIO}): {'met' if met else 'MISSED'}"
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
