"""How a private learner goes on from phase to phase where labels keep arriving: rules of public numbers alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from reticent.exact import Number
from reticent.learners.logistic import PrivateLogisticRegression

ERROR = Fraction(1, 5)


def phase_rows(learner: Any, *, columns: int, classes: int, error: Number = ERROR) -> int:
    """The labelled rows of a phase at which noise is small enough."""
    if isinstance(learner, PrivateLogisticRegression):
        return learner.n_required(error, columns=columns, classes=classes)
    return int(learner.n_required(error))


def continuation(
    learner: PrivateLogisticRegression, previous: PrivateLogisticRegression, *, rows: int, columns: int, classes: int
) -> dict[str, Any]:
    """The parameters by which a linear learner continues from a model that was released."""
    return {"start": previous.hypothesis_, "fourier_seed": previous.fourier_seed_, "level": 1}
