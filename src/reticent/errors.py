"""The errors and warnings a caller may want to catch, each saying what would do instead."""

from __future__ import annotations

from functools import partial
from typing import Any


class BudgetExhausted(RuntimeError):
    """A request would cost more privacy than is left. Nothing was spent and no data were touched."""


class MissingExtra(ImportError):
    """Optional packages are not installed; `extra` is the extra of reticent that brings them."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:  # from one process to another
        return partial(type(self), str(self), extra=self.extra), ()


class InsufficientData(ValueError):
    """There are too few rows for the accuracy asked for; `required` is the number that would do."""

    def __init__(self, message: str, *, required: int) -> None:
        super().__init__(message)
        self.required = required

    def __reduce__(self) -> tuple[Any, ...]:  # from one process to another
        return partial(type(self), required=self.required), self.args


class OutOfReach(ValueError):
    """A size that cannot be run here, such as rows that a class labels in more ways than can be listed.

    Public numbers alone decide it: numbers of rows, the concept class, parameters. Nothing was spent and no row was
    read. `required` is the number of rows that the promise in question takes; None where a fit was refused.
    """

    def __init__(self, message: str, *, required: int | None = None) -> None:
        super().__init__(message)
        self.required = required

    def __reduce__(self) -> tuple[Any, ...]:  # from one process to another
        return partial(type(self), required=self.required), self.args


class PrivacyWarning(UserWarning):
    """The guarantee holds as stated, but it promises less than the caller may think."""


class OneAnswerWarning(UserWarning):
    """What was released gives the same answer to everybody, so it is of no use.

    Whether it is emitted is a function of what was released, and of nothing else: it is post-processing, and tells
    nothing that the release does not tell.
    """


class EndingWarning(UserWarning):
    """Answers without end were asked for, and public numbers say that phases shrink, or may shrink, to their end."""


class ClassOrderWarning(UserWarning):
    """The class that was named last is not the one that concepts label 1: that is the last in sorted order."""
