from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.private_linear_grid import (
    DATA,
    EPSILONS,
    WITH,
    WITHOUT,
    Scores,
    cell_name,
    keeps_up,
    kept,
    loses,
    measured,
    peer,
    pool,
    tables,
)


def test_every_set_was_measured_at_every_epsilon() -> None:
    cells = kept()
    assert all(cell_name(data, rows, epsilon) in cells for data in DATA for rows in (500, 5000) for epsilon in EPSILONS)
    summary, *by_rows = tables()
    assert len(summary.rows) == 3
    assert [len(table.rows) for table in by_rows[:2]] == [len(DATA)] * 2


def test_a_cell_is_lost_beyond_two_standard_errors() -> None:
    def cell(accuracy: float, auc: float) -> Scores:
        plain = [[0.8, 0.9], [0.81, 0.9], [0.79, 0.9]]
        return {WITHOUT: plain, WITH: [[a + accuracy, b + auc] for a, b in plain], "level 4": [[0.8045, 0.9]]}

    assert loses(cell(-0.01, 0.0))
    assert loses(cell(0.01, -0.03))
    assert not loses(cell(-0.003, -0.01))
    assert peer(cell(0.1, 0.1)) == "level 4"
    assert keeps_up(cell(0.002, 0))
    assert not keeps_up(cell(0.001, 0))


@pytest.mark.slow
def test_what_is_kept_is_what_the_learner_does() -> None:
    fresh = measured(*pool("synth", Path()), 5000, 1, splits=1)
    old = kept()[cell_name("synth", 5000, 1)]
    assert np.mean(fresh[WITH]) == pytest.approx(np.mean(old[WITH]), abs=0.03)
    assert np.mean(fresh[WITHOUT]) == pytest.approx(np.mean(old[WITHOUT]), abs=0.05)
