from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import truth
from reticent.learners import PrivateLogisticRegression

NOWHERE = Path("no such folder")


@pytest.mark.parametrize("name", truth.MADE_UP)
def test_streams_are_drawn_by_their_seed(name: str) -> None:
    first, again, other = (truth.stream(name, NOWHERE, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.X, again.X)
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
    assert set(first.y.tolist()) == {0, 1}
    share = float(first.y.mean())
    assert 0.02 < share < 0.05 if name == "rare" else 0.48 < share < 0.52


def test_a_chain_answers_each_window_before_it_learns_from_it() -> None:
    drawn = truth.stream("flip", NOWHERE)
    known = truth.Stream(drawn.X[:6000], drawn.y[:6000], drawn.row_norm)
    turned = truth.Stream(known.X, np.where(np.arange(6000) < 4000, known.y, 1 - known.y), known.row_norm)
    first, second = (
        truth.answers(PrivateLogisticRegression(**truth.DP, row_norm=5, classes=[0, 1]), each, 1000)
        for each in (known, turned)
    )
    assert (first[:1000] == -1).all()
    assert (first[1000:] >= 0).all()
    assert (second[4000:5000] == turned.y[4000:5000]).mean() < 0.3  # answered by what came before
    assert truth.accuracies(first, known.y, 1000)[0] > 0.75
    assert truth.accuracies(first, known.y, 1000)[1] > 0.75
