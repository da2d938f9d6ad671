"""JSON as clients write it: what stands in a cell may be no JSON at all, and must not decide whether a query counts."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from reticent.service.problems import Problem

DEEP = 32  # levels; what is nested deeper is in a cell, and no value
_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)


def loosely(body: bytes | memoryview | msgspec.Raw, error: Exception) -> Any:
    """A body of which `error` was said, read as what its writer meant.

    Many clients write NaN, Infinity and numbers beyond all floats, half of a character, control characters in a text,
    or bytes that are not UTF-8. A cell may be nested deeper than a parser goes. None of this is JSON, or can be read,
    but to refuse it would be to refuse a query for its values. What is no JSON for another reason is refused.
    """
    text = str(body, "utf-8", "replace")
    try:
        try:
            return json.loads(text, parse_int=_whole, strict=False)
        except RecursionError:
            return json.loads(shallow(text), parse_int=_whole, strict=False)
    except (ValueError, RecursionError):
        raise Problem("malformed", said(error)) from None


def said(error: Exception) -> str:
    """What msgspec found wrong: it names types and places, and none of our types makes it name a value."""
    return str(error) if isinstance(error, msgspec.DecodeError) else "the body must be JSON in UTF-8"


def shallow(text: str, deep: int = DEEP) -> str:
    """JSON with null for all that is nested deeper; what does not close is left as it is, to be refused.

    >>> shallow('[1, [2, {"]": [3]}], "["]', deep=1)
    '[1, null, "["]'
    """
    kept: list[str] = []
    open_: list[str] = []
    at = 0  # up to where the text is kept, or left out
    for part in _PART.finditer(text):
        one = part[0]
        if one in "[{":
            if len(open_) == deep:
                kept += [text[at : part.start()], "null"]
            open_.append("]" if one == "[" else "}")
        elif one in "]}":
            if not open_ or open_.pop() != one:
                return text
            if len(open_) == deep:
                at = part.end()
    return text if len(open_) > deep else "".join([*kept, text[at:]])


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 300 else float(digits)
