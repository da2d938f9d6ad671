from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.private_linear_data import rows_of
from experiments.private_linear_grid import DATA, EPSILONS, SPLITS, Measured, kept, lost, measured, tables


def test_every_cell_was_measured() -> None:
    (table,) = tables()
    assert len(table.rows) == len(DATA) * len(SPLITS)
    assert len(kept()) == len(DATA) * len(SPLITS) * len(EPSILONS)


def test_a_cell_is_lost_beyond_two_standard_errors() -> None:
    def cell(accuracy: float, auc: float) -> Measured:
        plain = [(0.8, 0.9), (0.81, 0.9), (0.79, 0.9)]
        return Measured("", 1, 1, plain, [(a + accuracy, b + auc) for a, b in plain])

    assert lost(cell(-0.01, 0.0))
    assert lost(cell(0.01, -0.03))
    assert not lost(cell(-0.003, -0.01))


@pytest.mark.slow
def test_what_is_kept_is_what_the_learner_does() -> None:
    X, y = rows_of("synth", Path())
    fresh = measured("synth", X, y, 5000, 1, splits=1)
    old = next(each for each in kept() if (each.data, each.rows, each.epsilon) == ("synth", 5000, 1))
    assert np.mean(fresh.auto) == pytest.approx(np.mean(old.auto), abs=0.03)
