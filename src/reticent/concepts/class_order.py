"""Which of two declared classes is label 1 of a concept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from reticent.concepts.halfspaces import Halfspaces
from reticent.concepts.interface import ConceptClass
from reticent.data.classes import declared_classes
from reticent.errors import ClassOrderWarning


def warn_of_order(learner: Any, classes: Any, *, stacklevel: int) -> None:
    """Warn if the class named last is not label 1 of a concept, and the concept class does not contain the complements.

    Parameters
    ----------
    learner : estimator or ConceptClass
        What learns; only concept classes are checked.
    classes : sequence of labels, "public" or None
        The classes as the caller named them.
    stacklevel : int
        The stack level of the warning, as in `warnings.warn`.
    """
    symmetric = isinstance(learner, Halfspaces) or getattr(learner, "both_orientations", False)
    if not isinstance(learner, ConceptClass) or symmetric or not isinstance(classes, (Sequence, np.ndarray)):
        return
    named = declared_classes(classes)
    if named is None or len(named) != 2 or bool(classes[-1] == named[-1]):
        return
    first, last = named.tolist()
    warnings.warn(
        f"classes are sorted, so label 1 of a concept is {last!r}, although {first!r} was named last. If {first!r} "
        "should be label 1, use a class with both orientations, such as Thresholds(both_orientations=True), or name "
        "the classes so that it comes last in sorted order. If not, name the classes in sorted order",
        ClassOrderWarning,
        stacklevel=stacklevel + 1,
    )
