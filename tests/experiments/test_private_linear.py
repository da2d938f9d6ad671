from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import private_linear, private_linear_data
from experiments.private_linear import CELLS, Cell, Measured, measured, reached, tables
from experiments.private_linear_data import rows_of


def test_every_cell_was_measured_and_its_aim_is_judged_by_the_mean() -> None:
    (table,) = tables()
    assert len(table.rows) == len(CELLS)
    assert {line[6] for line in table.rows} <= {"yes", "no"}
    found = Measured("a9a", 10, "row norm", [0.8, 0.9], [0.84, 0.85], [0.1, 0.2])
    assert reached(Cell("a9a", 10, 0.845), found)
    assert not reached(Cell("a9a", 10, 0.846), found)
    assert not reached(Cell("a9a", 10), found)  # .005 below the mean without rounds


def test_what_is_kept_is_what_the_learner_does_on_columns_of_very_different_scales() -> None:
    cell = Cell("synth", 5000)
    fresh = measured(cell, *rows_of("synth", Path()), splits=2)
    kept = next(each for each in private_linear.kept() if each.data == "synth")
    assert np.mean(fresh.accuracies) == pytest.approx(np.mean(kept.accuracies), abs=0.03)
    assert np.mean(fresh.without) == pytest.approx(np.mean(kept.without), abs=0.05)
    assert np.mean(fresh.accuracies) > np.mean(fresh.without) + 0.05


def test_columns_of_one_value_become_zero() -> None:
    assert private_linear_data.from_0_to_1(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist() == [[0, 0], [1, 0]]
