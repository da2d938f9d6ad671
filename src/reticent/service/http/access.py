"""Who may ask, and how much: the keys of a running service, and what each may still use."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Mapping

from reticent.service.http.problems import Problem
from reticent.service.keys import NOBODY, Key, KeyTable, digest_of

RELOAD_SECONDS = 1.0


DAY = 24 * 3600  # seconds


class Allowance:
    """What a key may still use: a token bucket on a monotonic clock, a total quota, and labelled rows per day.

    One answer is one token. Changing the wall clock of the machine has no effect on answers. Days are those of UTC.
    """

    def __init__(
        self,
        key: Key,
        used: int,
        clock: Callable[[], float],
        *,
        taught: tuple[int, int] = (0, 0),
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._day, self._taught = taught  # labelled rows on this day
        self.used = used
        self._tokens = float(key.burst or 0)
        self._at = clock()
        self.key = key

    def change(self, key: Key) -> None:
        """Use the current limits of the key from now on. What was used stays used, and taken tokens stay taken."""
        self._refill()
        self._tokens = float(key.burst or 0) if self.key.rate is None else min(self._tokens, float(key.burst or 0))
        self.key = key

    def take(self, answers: int, counted: int | None = None, already: int = 0) -> None:
        """Take tokens for this many answers and charge `counted` of them to the quota; raise if either has too few.

        Everything is taken or nothing. `already` is how many tokens the same request took before.
        """
        key, counted = self.key, answers if counted is None else counted
        if counted and key.quota is not None and self.used + counted > key.quota:
            raise self.used_up()
        if key.rate is not None:
            self._refill()
            if answers + already > (key.burst or 0):  # waiting would not help
                raise Problem("too-large", f"the key allows {key.burst} answers at once", self.headers())
            if answers > self._tokens:
                wait = max(1, math.ceil((answers - self._tokens) / key.rate))
                raise Problem("too-many-requests", "", {**self.headers(), "Retry-After": str(wait)})
            self._tokens -= answers
        self.used += counted

    def take_labelled(self, rows: int) -> Problem | None:
        """Count labelled rows on this day; the problem if the key may send no more of them."""
        now, most = self._wall(), self.key.daily_rows
        if (day := int(now // DAY)) != self._day:
            self._day, self._taught = day, 0
        if most is not None and self._taught + rows > most:
            if rows > most:
                return Problem("too-large", f"the key allows {most} labelled rows a day")
            wait = {"Retry-After": str(max(1, math.ceil((day + 1) * DAY - now)))}
            return Problem("day-used-up", f"the key has {most - self._taught} of {most} labelled rows left today", wait)
        self._taught += rows
        return None

    def give_back_labelled(self, rows: int) -> None:
        """Return labelled rows that were not taken, after a refusal or a repeat."""
        self._taught -= rows

    def has_left(self, answers: int) -> bool:
        """Whether the quota allows this many more answers."""
        return self.key.quota is None or self.used + answers <= self.key.quota

    def used_up(self) -> Problem:
        """The problem if it does not."""
        return Problem("quota-used-up", "the key has fewer answers left than are asked for", self.headers())

    def give_back(self, counted: int) -> None:
        """Return answers to the quota that cost nothing in the end, after a refusal or a repeat."""
        self.used -= counted

    def headers(self) -> dict[str, str]:
        """The RateLimit fields of the limit that is reached first."""
        key = self.key
        left = math.inf if key.quota is None else max(0, key.quota - self.used)
        if key.rate is None:
            return {} if key.quota is None else _fields(key.quota, int(left), 0)
        self._refill()
        if key.quota is not None and left < self._tokens:
            return _fields(key.quota, int(left), 0)
        burst = key.burst or 0
        return _fields(burst, int(self._tokens), math.ceil((burst - self._tokens) / key.rate))

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self.key.burst or 0), self._tokens + (now - self._at) * (self.key.rate or 0))
        self._at = now


def _fields(limit: int, remaining: int, reset: int) -> dict[str, str]:
    return {"RateLimit-Limit": str(limit), "RateLimit-Remaining": str(remaining), "RateLimit-Reset": str(reset)}


class Keyring:
    """The keys of a running service. Only if no key was ever made, anyone who reaches it may do anything.

    Once there was a key, the service is never open again, even if all keys are removed from the table.

    `used` says how many answers each client has received before, and `taught` how many labelled rows it has sent today,
    so that limits survive a restart.
    """

    def __init__(
        self,
        table: KeyTable | None = None,
        used: Mapping[str, int] | None = None,
        *,
        taught: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._table, self._clock, self._wall = table, clock, wall
        self._used, self._taught = dict(used or {}), dict(taught or {})
        self._today = int(wall() // DAY)
        self._allowances: dict[str, Allowance] = {}
        self._keys: dict[str, Key] = {}
        self._open = True
        self._version: object = None
        self._looked = -math.inf
        self._reload()

    @property
    def open(self) -> bool:
        """Whether there is no key at all. A revoked key counts as a key."""
        self._reload()
        return self._open

    def authenticate(self, authorization: str | None) -> Key:
        """The key of an Authorization header. The problem does not say what was wrong with it."""
        self._reload()
        if self._open:
            return NOBODY
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() == "bearer":
            token = token.strip()
            key = self._keys.get(token.partition(".")[0])
            # One comparison in any case, so that the time does not show which ids exist.
            same = hmac.compare_digest(digest_of(token), key.digest if key is not None else bytes(32))
            if key is not None and same and key.revoked is None:
                return key
        raise Problem("no-key", "", {"WWW-Authenticate": 'Bearer realm="reticent"'})

    def still_valid(self, key: Key) -> bool:
        """Whether a key that was accepted before is still valid."""
        self._reload()
        return self._open if key is NOBODY else (found := self._keys.get(key.id)) is not None and not found.revoked

    def allowance(self, key: Key) -> Allowance:
        """What a key may still use."""
        found = self._allowances.get(key.id)
        if found is None:
            now = self._keys.get(key.id, key)
            taught = self._today, self._taught.get(key.id, 0)
            used = self._used.get(key.id, 0)
            found = self._allowances[key.id] = Allowance(now, used, self._clock, taught=taught, wall=self._wall)
        return found

    def clients(self) -> list[dict[str, object]]:
        """The name, limits and use of each key, for administrators."""
        self._reload()
        return [
            {
                "id": key.id,
                "name": key.name,
                "scopes": list(key.scopes),
                "rate": key.rate,
                "quota": key.quota,
                "daily_rows": key.daily_rows,
                "used": self.allowance(key).used,
                "revoked": key.revoked is not None,
            }
            for key in ((NOBODY,) if self._open else self._keys.values())
        ]

    def _reload(self) -> None:
        """Load keys that were added, changed or revoked meanwhile."""
        now = self._clock()
        if self._table is None or now - self._looked < RELOAD_SECONDS:
            return
        self._looked = now
        version = self._table.version()
        if version != self._version:
            self._keys, self._version = {key.id: key for key in self._table.all()}, version
            self._open = self._open and not self._keys
            for key in self._keys.values():
                if (allowance := self._allowances.get(key.id)) is not None and allowance.key != key:
                    allowance.change(key)
