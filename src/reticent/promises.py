"""What a promise of an error and a probability of failure needs: its parameters, and the fewest rows that keep it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from reticent.errors import InsufficientData
from reticent.exact import rational


def check_share(value: object, name: str) -> Fraction:
    """A probability strictly between 0 and 1, as an exact number."""
    number = rational(value, name)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
    return number


def fewest_rows(suffices: Callable[[int], bool]) -> int:
    """The least number of rows that suffices, for a condition that goes on to hold once it does."""
    high = 1
    while not suffices(high):
        high *= 2
        if high > 1 << 60:
            raise ValueError("no number of rows below 2^60 would do: ask for a larger error or epsilon")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def check_rows(rows: int, *, required: int, error: object, failure: object) -> None:
    """Refuse to promise an error from fewer rows than that takes."""
    if rows < required:
        raise InsufficientData(
            f"error={error} with failure={failure} can be promised from {required} rows on, "
            f"got {rows}; give more rows, ask for less, or set error=None for a fit without a promise",
            required=required,
        )
