"""Small predictors that learn from later labels, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.concepts import Thresholds
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.intake import NextRows
from reticent.predictors.later_labels import LaterLabels

Array = np.ndarray[Any, Any]
COMMON: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "classes": (0, 1), "truth": "rows", "phase_rows": 20}


def whole(rows: int, seed: int = 0) -> tuple[Array, Array]:
    """Whole numbers below 16, and whether they are below 7."""
    X = np.random.default_rng(seed).integers(0, 16, (rows, 1))
    return X, (X[:, 0] < 7).astype(np.int64)


def spread(rows: int, seed: int = 0, columns: int = 1) -> tuple[Array, Array]:
    """Numbers in [0, 1), and whether the first is below 0.5."""
    X = np.random.default_rng(seed).random((rows, columns))
    return X, (X[:, 0] < 0.5).astype(np.int64)


def chain(groups: Any = None, **given: Any) -> EverlastingPredictor:
    """Thresholds, each learned privately."""
    options = {**COMMON, "learner": ThresholdLearner(bits=4, epsilon=8), **given}
    return EverlastingPredictor(**options).fit(*whole(60 if groups is None else len(groups)), groups=groups)


def linear(rows: int = 400, columns: int = 2, **given: Any) -> EverlastingPredictor:
    """Private linear models."""
    learner = PrivateLogisticRegression(epsilon=8, delta=1e-5, row_norm=2)
    return EverlastingPredictor(**{**COMMON, "learner": learner, **given}).fit(*spread(rows, columns=columns))


def votes(groups: Any = None, **given: Any) -> EverlastingPredictor:
    """Teachers of one row each; noise is no reason to refuse."""
    options = {
        **COMMON, "learner": Thresholds(), "rows_per_teacher": 1, "most_noise": 1e9, "growth": 0.5,
        "labeller": "greedy", **given,
    }  # fmt: skip
    return EverlastingPredictor(**options).fit(*spread(40 if groups is None else len(groups)), groups=groups)


MAKERS = {"chain": chain, "votes": votes}


def rows_for(model: EverlastingPredictor, count: int, seed: int = 1) -> tuple[Array, Array]:
    """Rows that a model takes, with labels."""
    return (whole if model.dtype_.kind in "iu" else spread)(count, seed)


def intake(model: EverlastingPredictor) -> LaterLabels:
    found = model._machine.intake
    assert isinstance(found, LaterLabels)
    return found


def next_rows(model: EverlastingPredictor) -> NextRows:
    """What the next phase would learn from, by its roles."""
    return intake(model).next_rows()
