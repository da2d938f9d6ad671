"""Whether teachers take missing numbers: as a classifier says, or the first step of a pipeline that cares."""

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
    """What a step of a pipeline does to missing numbers."""

    REFUSED = 0
    LEFT = 1  # as they are, to the next step
    TAKEN = 2


def takes_nan(estimator: Any) -> bool:
    """Whether a classifier says that it takes missing numbers, or a pipeline does before it comes to scaled ones."""
    return missing_in(estimator) is not Missing.REFUSED


def missing_in(step: Any) -> Missing:
    """What a step does to missing numbers. In a pipeline the first step that does not leave them decides.

    Of the parts of a `ColumnTransformer` the strictest decides.
    """
    if step is None or isinstance(step, str):
        return Missing.TAKEN if step == "drop" else Missing.LEFT
    if isinstance(step, Pipeline):
        found = (missing_in(part) for _, part in step.steps)
        return next((one for one in found if one is not Missing.LEFT), Missing.LEFT)
    if isinstance(step, ColumnTransformer):
        return min(missing_in(part) for part in (*(part for _, part, _ in step.transformers), step.remainder))
    if not hasattr(step, "__sklearn_tags__") or not get_tags(step).input_tags.allow_nan:
        return Missing.REFUSED
    return Missing.LEFT if isinstance(step, SCALERS) else Missing.TAKEN
