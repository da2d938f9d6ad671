"""How tests wait: for something that happens, never for some time to pass.

`LIMIT` is how long it may take on the slowest machine. It is there to end a test whose wait would never end, so it is
long, and nothing else depends on it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

LIMIT = 600.0

T = TypeVar("T")


def wait_until(found: Callable[[], T]) -> T:
    """What `found` returns, once that is true."""
    until = time.monotonic() + LIMIT  # steady: only ends what would never end
    while not (result := found()):
        assert time.monotonic() < until, "what was waited for did not happen"  # steady: as above
        time.sleep(0.01)  # steady: looks again, however long it takes
    return result


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of this machine that a server may listen on, and that no one else is given meanwhile."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: so both may have it
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]  # steady: it is held meanwhile


class Crowd:
    """Threads that meet at one place of the code, so that a race is run every time and not by chance.

    Whoever gets to `meet` waits there until all have come: to the same place, or to the door of `lock`. With a lock
    that works, one is inside and all others wait at the door. Without one, all are inside, and none has gone on.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._here: set[int] = set()
        self._changed = threading.Condition()

    def come(self) -> None:
        """Count this thread as one that is there."""
        with self._changed:
            self._here.add(threading.get_ident())
            self._changed.notify_all()

    def meet(self) -> None:
        """Wait for all others."""
        self.come()
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._here) == self.size, LIMIT), "they did not come together"

    def lock(self) -> Door:
        """A lock at whose door the crowd is counted; to be put in the place of the lock of what is tested."""
        return Door(self)

    def run(self, work: Callable[[], T]) -> list[T]:
        """What each of the threads returns."""
        with ThreadPoolExecutor(self.size) as pool:
            start = threading.Barrier(self.size)

            def one(_: int) -> T:
                start.wait(LIMIT)  # a thread each: the pool would let one do the work of several
                return work()

            return list(pool.map(one, range(self.size)))


class Door:
    """A lock that counts who waits for it."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd, self._lock = crowd, threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._crowd.come()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
