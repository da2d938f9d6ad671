"""The errors and warnings a caller may want to catch, each saying what would do instead."""

from __future__ import annotations

from functools import partial
from typing import Any


class BudgetExhausted(RuntimeError):
    """A request would cost more privacy than is left. Nothing was spent and no data were touched."""


class InsufficientData(ValueError):
    """There are too few rows for the accuracy asked for; `required` is the number that would do."""

    def __init__(self, message: str, *, required: int) -> None:
        super().__init__(message)
        self.required = required

    def __reduce__(self) -> tuple[Any, ...]:  # from one process to another
        return partial(type(self), required=self.required), self.args


class PrivacyWarning(UserWarning):
    """The guarantee holds as stated, but it promises less than the caller may think."""
