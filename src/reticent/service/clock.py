"""The public clock of a service."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Time that only goes forward: the wall clock when it was made, and a monotonic clock from then on."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._start, self._steady, self._began = wall(), steady, steady()

    def __call__(self) -> int:
        """Milliseconds since 1970."""
        return int(1000 * (self._start + self._steady() - self._began))
