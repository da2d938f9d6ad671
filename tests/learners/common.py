"""What the tests of the learners share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from reticent.errors import InsufficientData
from reticent.learners.base import ConceptLearner
from reticent.noise import Noise

Array = NDArray[Any]
Rows = tuple[tuple[Any, int], ...]  # (value or values, label)

TINY = 1e-60  # what rounding may add to the exact δ of a pure mechanism


def table(rows: Rows) -> tuple[Array, Array]:
    points, labels = zip(*rows, strict=True)
    return np.array(points).reshape(len(rows), -1), np.array(labels)


def learner_law(learner: ConceptLearner) -> Callable[[Noise, Rows], Any]:
    """The whole learner as a function of its noise and its rows."""
    return lambda noise, rows: learner.fit_with_noise(*table(rows), noise).hypothesis_


def allowed(trials: int, failure: float) -> int:
    """More failures than this would have a probability of 1e-6 if each had the promised one."""
    return int(binom.isf(1e-6, trials, failure))


def refuses_too_few_rows(learner: ConceptLearner) -> None:
    """A learner of one column that asks for an error says how many rows it needs, and needs no more."""
    assert learner.error is not None
    required = learner.n_required(learner.error)
    X = np.zeros((required, 1), dtype=int)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got {required - 1}") as refusal:
        learner.fit(X[1:], X[1:, 0])
    assert refusal.value.required == required
    learner.fit(X, X[:, 0])


# ── scikit-learn: the checks that a learner of concepts fails, and why ────────────────────────────────────────────

OTHER_LABELS = {
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}
RANDOM = {  # without a seed; most often these pass all the same
    "check_fit_idempotent": "two fits draw differently",
    "check_supervised_y_2d": "two fits draw differently",
    "check_classifiers_one_label": "noise may give a few points the label that no row has",
}
ONE_COLUMN = dict.fromkeys(
    [
        "check_fit_score_takes_y",
        "check_estimators_overwrite_params",
        "check_dont_overwrite_parameters",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_n_features_in_after_fitting",
        "check_positive_only_tag_during_fit",
        "check_pipeline_consistency",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_classifiers_one_label",
        "check_supervised_y_2d",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit2d_1sample",
        "check_dict_unchanged",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
        "check_fit2d_predict1d",
    ],
    "several columns",
)


class FirstColumn:
    """Put before a learner of one column: it takes the first of several, since most of the checks use several."""

    def as_points(self, rows: Array) -> Array:
        return rows[:, 0]


# ── bad input; 777 and 7.77 are data, which no message may repeat ─────────────────────────────────────────────────

BAD_EPSILON: list[Any] = [0, -1, math.nan, math.inf, None, "1", True, 1j]
BAD_DELTA: list[Any] = [-1, 1, 1.5, math.nan, None, "1"]
BAD_ERROR: list[Any] = [0, 1, -1, math.nan, "1"]
BAD_FAILURE: list[Any] = [*BAD_ERROR, None]
BAD_BITS: list[Any] = [0, -1, 1.5, None, "1", True]
BAD_DATA: list[tuple[Any, Any]] = [  # for a learner of one column of 8 bits
    ([[777], [1]], [0, 1]),
    ([[-777], [1]], [0, 1]),
    ([[7.77], [1]], [0, 1]),
    ([[math.nan], [1]], [0, 1]),
    ([[math.inf], [1]], [0, 1]),
    ([["777"], ["1"]], [0, 1]),
    ([[1, 777], [1, 2]], [0, 1]),
    ([1, 2], [0, 1]),
    (np.zeros((0, 1)), []),
    ([[1], [2]], [0, 777]),
    ([[1], [2]], [-1, 1]),
    ([[1], [2]], [0, math.nan]),
    ([[1], [2]], ["no", "777"]),
    ([[1], [2]], [0, 1, 1]),
    ([[1], [2]], None),
]


def refuses(call: Callable[[], object], words: str) -> None:
    """The call is refused in these words, and the message repeats no data."""
    with pytest.raises((TypeError, ValueError), match=words) as refusal:
        call()
    assert "777" not in str(refusal.value)
    assert "7.77" not in str(refusal.value)
