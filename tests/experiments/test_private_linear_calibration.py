from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.private_linear_calibration import (
    DATA,
    EPSILONS,
    Measured,
    gap,
    kept,
    log_loss,
    measured,
    plots,
    tables,
)
from experiments.private_linear_data import rows_of


def test_every_data_set_was_measured() -> None:
    losses, bins = tables()
    assert len(losses.rows) == len(DATA) * len(EPSILONS)
    assert len(bins.rows) == 10
    assert all(sum(each.tested) == 18_000 for each in kept())


def test_rows_that_are_shortened_have_the_better_probabilities() -> None:
    for each in kept():
        assert each.losses['rounds="auto"'] <= each.losses["not shortened"]
        assert gap(each) < 0.1


@pytest.mark.slow
def test_what_is_kept_is_what_the_learner_does() -> None:
    fresh = measured("synth", *rows_of("synth", Path()), 1, splits=1)
    old = next(each for each in kept() if each.data == "synth" and each.epsilon == 1)
    assert fresh.losses['rounds="auto"'] == pytest.approx(old.losses['rounds="auto"'], abs=0.05)
    assert gap(fresh) < 0.06


def test_log_loss_and_gap() -> None:
    assert log_loss(np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([0, 1])) == pytest.approx(np.log(2) / 2)
    assert gap(Measured("", 1, {}, [2, 2], [0.5, 1.5], [0, 2])) == pytest.approx(0.25)


@pytest.mark.slow
def test_the_reliability_plot_has_a_line_for_each_data_set() -> None:
    (picture,) = plots().values()
    assert all(name in picture.decode() for name in DATA)
