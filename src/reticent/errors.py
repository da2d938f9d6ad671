"""Errors and warnings that a caller may want to catch. Each states what is needed instead."""

from __future__ import annotations

from functools import partial
from typing import Any


class BudgetExhausted(RuntimeError):
    """A request would cost more privacy than is left. Nothing was spent and no data were read."""


class MissingExtra(ImportError):
    """Optional packages are not installed.

    Parameters
    ----------
    message : str
        The message.
    extra : str
        The extra of reticent that installs them.
    """

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:  # to be pickled
        return partial(type(self), str(self), extra=self.extra), ()


class InsufficientData(ValueError):
    """There are too few rows for the accuracy asked for.

    Parameters
    ----------
    message : str
        The message.
    required : int
        The number of rows that is needed.
    """

    def __init__(self, message: str, *, required: int) -> None:
        super().__init__(message)
        self.required = required

    def __reduce__(self) -> tuple[Any, ...]:  # to be pickled
        return partial(type(self), required=self.required), self.args


class OutOfReach(ValueError):
    """A size that cannot be computed here, such as more labellings of the rows than can be listed.

    It depends on public numbers alone: numbers of rows, the concept class, parameters. Nothing was spent and no row was
    read.

    Parameters
    ----------
    message : str
        The message.
    required : int or None, default None
        The number of rows that the guarantee of accuracy needs; None if a fit was refused.
    """

    def __init__(self, message: str, *, required: int | None = None) -> None:
        super().__init__(message)
        self.required = required

    def __reduce__(self) -> tuple[Any, ...]:  # to be pickled
        return partial(type(self), required=self.required), self.args


class PrivacyWarning(UserWarning):
    """The guarantee holds as stated, but it is weaker than the caller may think."""


class OneAnswerWarning(UserWarning):
    """The released model gives the same answer to nearly every query.

    Whether it is emitted depends on the released model alone: it is post-processing, and reveals nothing more.
    """


class EndingWarning(UserWarning):
    """Endless answers were asked for, but by public numbers the phases shrink, or may shrink, until answers end."""


class ClassOrderWarning(UserWarning):
    """The class that was named last is not label 1 of a concept, which is the last class in sorted order."""
