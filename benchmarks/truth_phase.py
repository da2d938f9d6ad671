"""What a phase with later labels costs, in units of one fit: `python -m benchmarks.truth_phase`.

A phase reads its rows, asks the last model about the tenth of them that judges, and trains on the others; there is no
second fit for the gauge. Beside it, in the same run, one fit of the same learner on all rows of the phase: from the
last model on, as a phase does, and from nothing. Processor time, the best of nine. Copying rows, the gauge's noise and
swapping models take about 2 ms whatever the size. Exits with 1 if a phase takes longer than one fit from the last model
on by a tenth of it, and by 5 ms: a second fit takes longer than that in every line.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.base import clone

from reticent.errors import PrivacyWarning
from reticent.learners import PrivateLogisticRegression
from reticent.learners.phase_rules import continuation
from reticent.predictors.everlasting import EverlastingPredictor

SIZES: tuple[tuple[int, int | str], ...] = ((10, "auto"), (54, "auto"), (163, "auto"), (20, 20_000), (54, 20_000))
REPEATS, FACTOR, FIXED = 9, 1.1, 0.005


def seconds(run: Callable[[], object]) -> float:
    """The processor time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def compared(columns: int, phase_rows: int | str) -> tuple[int, float, float, float]:
    """The rows of a phase, and the least times of a phase, of a fit from the last model on, and of a first fit."""
    generator = np.random.default_rng(0)

    def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
        X = generator.normal(size=(rows, columns)) / np.sqrt(columns)
        return X, (X[:, 0] + generator.normal(size=rows) / 10 > 0).astype(np.int64)

    learner = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1.5, classes=[0, 1])
    model = EverlastingPredictor(
        learner, epsilon=1, delta=1e-6, classes=(0, 1), truth="rows", phase_rows=phase_rows
    ).fit(*drawn(20_000))  # fmt: skip
    rows = model.phase_rows_
    assert rows is not None

    def learned(X: np.ndarray, y: np.ndarray) -> None:
        model.add_labelled(X, y)
        model.turn_over()

    times = []
    for _ in range(REPEATS):
        X, y = drawn(rows)
        last = model.models_[-1][1]
        later = clone(learner).set_params(**continuation(learner, last, phase=2, rows=rows, columns=columns))
        first = clone(learner)
        fits = [seconds(partial(one.fit, X, y)) for one in (later, first)]
        times.append((seconds(partial(learned, X, y)), *fits))
    return rows, *np.min(times, axis=0).tolist()


def main() -> int:
    """Print the ratios."""
    warnings.simplefilter("ignore", PrivacyWarning)
    table = Table("columns", "rows of a phase", "a phase, ms", "a fit from the last model on, ms", "a first fit, ms",
                  "phase / fit")  # fmt: skip
    missed = False
    for columns, phase_rows in SIZES:
        rows, phase, later, first = compared(columns, phase_rows)
        missed |= phase > max(FACTOR * later, later + FIXED)
        shown = (f"{1000 * one:.1f}" for one in (phase, later, first))
        table.add_row(str(columns), f"{rows:,}", *shown, f"{phase / later:.2f}")
    Console().print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
