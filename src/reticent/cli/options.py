"""Kinds of options that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from cyclopts import Parameter, Token

Flag = Annotated[bool, Parameter(negative="")]


def exact_number(_: object, tokens: Sequence[Token]) -> Fraction | int:
    """Convert a number exactly as it is written: 0.1, 1e-6, 1/3."""
    try:
        found = Fraction(tokens[0].value)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"must be a number such as 10, 0.1 or 1e-6, got {tokens[0].value!r}") from None
    return found.numerator if found.denominator == 1 else found


Number = Annotated[float, Parameter(converter=exact_number)]  # the command gets an int or a Fraction
