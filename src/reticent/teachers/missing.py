"""Whether teachers accept missing numbers: the tags of a classifier, or of the deciding step of a pipeline."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags

SCALERS = (MaxAbsScaler, MinMaxScaler, PowerTransformer, QuantileTransformer, RobustScaler, StandardScaler)


class Missing(IntEnum):
    """What a step of a pipeline does with missing numbers."""

    REFUSED = 0
    PASSED_ON = 1  # unchanged, to the next step
    ACCEPTED = 2


def takes_nan(estimator: Any) -> bool:
    """Return whether a classifier or pipeline accepts missing numbers."""
    return missing_in(estimator) is not Missing.REFUSED


def missing_in(step: Any) -> Missing:
    """Return what a step does with missing numbers.

    In a pipeline, the first step that does not pass them on decides. In a `ColumnTransformer`, the strictest part does.
    """
    if step is None or isinstance(step, str):
        return Missing.ACCEPTED if step == "drop" else Missing.PASSED_ON
    if isinstance(step, Pipeline):
        found = (missing_in(part) for _, part in step.steps)
        return next((one for one in found if one is not Missing.PASSED_ON), Missing.PASSED_ON)
    if isinstance(step, ColumnTransformer):
        return min(missing_in(part) for part in (*(part for _, part, _ in step.transformers), step.remainder))
    if not hasattr(step, "__sklearn_tags__") or not get_tags(step).input_tags.allow_nan:
        return Missing.REFUSED
    return Missing.PASSED_ON if isinstance(step, SCALERS) else Missing.ACCEPTED
