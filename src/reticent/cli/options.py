"""Kinds of options that several commands take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated, Any

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


def whole_number(
    *words: str, least: int | None = None, any_word: bool = False
) -> Callable[[Any, Sequence[Token]], Any]:
    """Make the converter of a whole number, the only one: 20000 and 1e6 are whole, 1.6 is refused, never rounded.

    Parameters
    ----------
    *words : str
        What may be written in its place.
    least : int, default None
        The smallest number that is accepted.
    any_word : bool, default False
        Pass on whatever is not a number, for the command to check.

    Returns
    -------
    callable
        A converter for `cyclopts.Parameter`.
    """
    wanted = ", or ".join([f"a whole number{'' if least is None else f' of at least {least}'}", *words])

    def convert(_: object, tokens: Sequence[Token]) -> int | str:
        word = tokens[0].value
        if word in words:
            return word
        try:
            found = Fraction(word)
        except (ValueError, ZeroDivisionError):
            if any_word:
                return word
            found = None
        if found is None or found.denominator != 1 or (least is not None and found < least):
            raise ValueError(f"must be {wanted}, got {word!r}")
        return found.numerator

    return convert


Whole = Annotated[int, Parameter(converter=whole_number())]
