"""What a promise of an error and a probability of failure needs: its parameters, and the fewest rows that keep it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from reticent.errors import InsufficientData, OutOfReach
from reticent.exact import rational


def check_share(value: object, name: str) -> Fraction:
    """A probability strictly between 0 and 1, as an exact number."""
    number = rational(value, name)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
    return number


def check_promise(error: object, failure: object) -> None:
    """Refuse an error or a probability of failure that is not strictly between 0 and 1; None promises no error."""
    check_share(failure, "failure")
    if error is not None:
        check_share(error, "error")


def none_suffices() -> ValueError:
    """The error for a promise that no number of rows keeps."""
    return ValueError("no number of rows below 2^60 is enough: ask for a larger error or epsilon")


def fewest_rows(suffices: Callable[[int], bool]) -> int:
    """The least number of rows that suffices, for a condition that stays true once it is true."""
    high = 1
    while not suffices(high):
        high *= 2
        if high > 1 << 60:
            raise none_suffices()
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


MOST_BYTES = 1 << 40  # that rows may take, at eight bytes a number


def check_memory(rows: int, columns: int) -> None:
    """Raise `OutOfReach` for more rows than the memory of any machine would hold."""
    if 8 * rows * columns > MOST_BYTES:
        raise OutOfReach(
            f"{rows:,} rows of {columns:,} columns take more than 2^{MOST_BYTES.bit_length() - 1} bytes of memory: "
            "take a larger error or epsilon"
        )


def in_reach(rows: int, check: Callable[[int], None]) -> int:
    """The rows that a promise takes, if `check` lets a fit have them; else `OutOfReach`, which names them.

    So `n_required` never gives a number that `fit` would refuse, and gives the reason of `fit`.
    """
    try:
        check(rows)
    except OutOfReach as refused:
        raise OutOfReach(str(refused), required=rows) from None
    return rows


def rows_needed(needed: Callable[..., int], *arguments: object, **options: object) -> int:
    """The rows that a promise takes, whether or not they can be run."""
    try:
        return needed(*arguments, **options)
    except OutOfReach as refused:
        if refused.required is None:
            raise
        return refused.required


def check_rows(
    rows: int,
    *,
    required: int,
    error: object,
    failure: object,
    what: str = "rows",
    otherwise: str = "set error=None for a fit without a promise",
) -> None:
    """Refuse to promise an error from fewer rows than that takes; `otherwise` is a way out that the estimator has."""
    if rows < required:
        raise InsufficientData(
            f"error={error} with failure={failure} can be promised from {required} {what} on, "
            f"got {rows}; give more {what}, ask for less, or {otherwise}",
            required=required,
        )
