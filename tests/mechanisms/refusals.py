"""Bad parameters, and the words with which they are refused."""

from __future__ import annotations

import math
from collections.abc import Callable

BAD_EPSILON = [0, -1, math.nan, math.inf, -math.inf, None, "1", True, 1j]
BAD_DELTA = [0, 1, -0.1, 1.5, math.nan, math.inf, None, "0.1", False]


def refusal(call: Callable[[], object]) -> str:
    """The message with which the call is refused, empty if it is answered; any other error comes through."""
    try:
        call()
    except (ValueError, TypeError) as error:
        return str(error)
    return ""
