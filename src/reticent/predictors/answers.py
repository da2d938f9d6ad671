"""What a call for answers returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted


class Answers(NamedTuple):
    """Answers to the first queries of a call: to all of them, unless `refused` says why the others have none.

    `refused` is `BudgetExhausted`, or what else kept the next phase from beginning, such as a full disk.
    """

    class_indices: NDArray[np.int64]
    phases: NDArray[np.int64]  # the number of the phase that gave each answer
    refused: Exception | None
    tickets: list[str] | None = None  # by which the label of each query can be given later; None if it cannot


def exhausted(why: object, done: int) -> BudgetExhausted:
    """The error for queries that get no answers, after `done` queries of the same call that got theirs."""
    return BudgetExhausted(f"{why}; {done} queries of this call were answered and count" if done else str(why))
