"""What training rows pay besides a predictor, such as for a private schema, is part of its guarantee."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reticent as rt
from reticent.concepts import Thresholds
from reticent.predictors.parameters import CheckedParameters
from reticent.privacy import fits


def predictor(**options: Any) -> rt.EverlastingPredictor:
    learner = rt.ThresholdLearner(bits=10, epsilon=1)
    return rt.EverlastingPredictor(learner, epsilon=Fraction(9, 10), delta=0, classes=(0, 1), engine="model", **options)


def test_it_is_added_to_the_guarantee_and_not_to_the_phases(tmp_path: Path) -> None:
    X = np.arange(2000)[:, None] % 1000
    model = predictor(besides=(Fraction(1, 10), Fraction(1, 10**6))).fit(X, X[:, 0] < 400)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 1e-6)
    assert model.epsilon == Fraction(9, 10)
    assert fits(model.event_, epsilon=Fraction(9, 10), delta=0)
    model.save(tmp_path / "state")
    again = rt.EverlastingPredictor.load(tmp_path / "state")
    assert again.besides == (Fraction(1, 10), Fraction(1, 10**6))
    assert again.guarantee_ == model.guarantee_


def test_a_client_pays_for_its_phases_and_the_most_that_anyone_pays_besides() -> None:
    given = rt.EverlastingPredictor(
        Thresholds(), epsilon=1, delta=Fraction(1, 10**6), classes=(0, 1), client_phases=3, besides=(2, 0)
    ).get_params(deep=False)
    promised = CheckedParameters.of(given).guarantee(grouped=True, seeded=False)
    assert (promised.epsilon, promised.delta) == (5.0, 3e-6)


@pytest.mark.parametrize("besides", [1, (1,), (0, 0), (1, 2), (1, -1), ("1", 0)])
def test_what_is_no_price_is_refused(besides: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        predictor(besides=besides).fit(np.zeros((100, 1), dtype=np.int64), np.zeros(100))
