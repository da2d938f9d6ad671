"""Keys: who may ask, observe or administer, how fast, and how much in all."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import secrets
import sqlite3
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reticent.exact import integer
from reticent.privacy.guard import Guard, Guarded
from reticent.service.problems import Problem

SCOPES = ("ask", "observe", "admin")
# Whoever may ask may see the public counters as well, and an administrator may do everything.
IMPLIED = {"ask": ("ask", "observe"), "observe": ("observe",), "admin": SCOPES}
ANONYMOUS = "anonymous"
RELOAD_SECONDS = 1.0
LARGEST = 2**63 - 1  # that SQLite holds
UNCHANGED: Any = object()


@dataclass(frozen=True)
class Key:
    """What is kept of a key: not the key itself, only its SHA-256.

    A key is 256 random bits, which no one can guess one by one: a slow hash, as for passwords, would add nothing.
    """

    id: str
    name: str
    digest: bytes
    scopes: tuple[str, ...]
    rate: float | None = None  # answers a second
    burst: int | None = None  # answers at once
    quota: int | None = None  # answers in all
    created: float = 0.0
    revoked: float | None = None

    def allows(self, scope: str) -> bool:
        """Whether a scope is among those of the key, or implied by one of them."""
        return any(scope in IMPLIED[own] for own in self.scopes)


NOBODY = Key(id=ANONYMOUS, name=ANONYMOUS, digest=b"", scopes=("admin",))


def make_key(
    name: str,
    scopes: Iterable[str] = ("ask",),
    *,
    rate: float | None = None,
    burst: int | None = None,
    quota: int | None = None,
) -> tuple[str, Key]:
    """A new key, to be shown once, and what is kept of it.

    >>> token, key = make_key("ward 3", ["ask"], rate=100, quota=50_000)
    >>> token.startswith(key.id), key.allows("observe"), key.allows("admin")
    (True, True, False)
    """
    if not (
        re.fullmatch(r"[\w .@-]{1,64}", name)
        and name[0].isalnum()
        and not name.endswith(" ")
        and not any("FILLER" in unicodedata.name(one, "") for one in name)  # letters that print as nothing
    ):
        raise ValueError(
            "name must be 1 to 64 letters, digits, spaces or any of . @ - _, start with a letter or digit, and not end "
            f"with a space, got {name!r}"
        )
    wanted = tuple(dict.fromkeys(scopes))
    if not wanted or not set(wanted) <= set(SCOPES):
        raise ValueError(f"scopes must be some of {', '.join(SCOPES)}")
    identity = secrets.token_hex(6)
    token = _token(identity)
    return token, Key(identity, name, _digest(token), wanted, *_limits(rate, burst, quota), time.time())


def _limits(
    rate: float | None, burst: int | None, quota: int | None
) -> tuple[float | None, int | None, int | None]:
    """Limits that were checked; with a rate, the burst is by default what is allowed in a second."""
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be answers per second, above 0, got {rate}")
    if burst is not None:
        integer(burst, "burst", least=1, most=LARGEST)
        if rate is None:
            raise ValueError("burst needs a rate")
    if quota is not None:
        integer(quota, "quota", least=0, most=LARGEST)
    if rate is not None and burst is None:
        burst = max(1, min(LARGEST, math.ceil(rate)))
    return rate, burst, quota


def _token(identity: str) -> str:
    return f"{identity}.{secrets.token_urlsafe(32)}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class KeyTable(Guarded):
    """Keys in an SQLite file of their own, so that keys can be added and revoked while a service runs.

    It is apart from the ledger, which has one writer only.
    """

    _twice = "two processes would write through one connection"
    _instead = "Open it in the process that uses it"

    def __init__(self, path: Path | str) -> None:
        self._guard = Guard(type(self))
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        # Anyone in the same process may look a key up; the guard keeps them apart.
        self._connection = sqlite3.connect(path, check_same_thread=False, timeout=10, isolation_level=None)
        with self._guard.claim():
            # EXTRA also forces the folder, from which the journal is deleted to commit. With FULL, the journal could
            # be there again after a loss of power, and undo a revocation.
            self._connection.execute("PRAGMA synchronous = EXTRA")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,"
                " scopes TEXT NOT NULL, rate REAL, burst INTEGER, quota INTEGER, created REAL NOT NULL, revoked REAL)"
            )

    def add(self, key: Key) -> None:
        """Keep a key; its name must be new."""
        with self._guard.claim():
            values = (key.id, key.name, key.digest, " ".join(key.scopes), key.rate, key.burst, key.quota, key.created)
            try:
                self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", values)
            except sqlite3.IntegrityError:
                raise ValueError("name must be one that no other key has, nor one that was revoked") from None

    def revoke(self, name_or_id: str) -> Key:
        """Let a key open nothing any more; its answers stay counted."""
        key = self._named(name_or_id)
        with self._guard.claim():
            self._connection.execute(
                "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (time.time(), key.id)
            )
        return key

    def rotate(self, name_or_id: str) -> tuple[str, Key]:
        """A new secret for a client, to be shown once; the old one opens nothing any more.

        The client stays the same: what it was answered, its quota, and its share of the rows of a phase. With another
        key it would be another client, whose queries are protected apart from those of the first.
        """
        key = self._named(name_or_id)
        if key.revoked is not None:
            raise ValueError("this key is revoked: make a new one")
        token = _token(key.id)
        with self._guard.claim():
            self._connection.execute("UPDATE keys SET digest = ? WHERE id = ?", (_digest(token), key.id))
        return token, key

    def change(
        self, name_or_id: str, *, rate: float | None = UNCHANGED, burst: int | None = UNCHANGED,
        quota: int | None = UNCHANGED,
    ) -> Key:
        """Change the limits of a key; None removes one. The client stays the same, and so does what it has used.

        A new rate without a burst allows as many answers at once as in a second.
        """
        key = self._named(name_or_id)
        if key.revoked is not None:
            raise ValueError("this key is revoked: make a new one")
        if burst is UNCHANGED:
            burst = key.burst if rate is UNCHANGED else None
        limits = _limits(
            key.rate if rate is UNCHANGED else rate, burst, key.quota if quota is UNCHANGED else quota
        )
        with self._guard.claim():
            self._connection.execute("UPDATE keys SET rate = ?, burst = ?, quota = ? WHERE id = ?", (*limits, key.id))
        return replace(key, rate=limits[0], burst=limits[1], quota=limits[2])

    def _named(self, name_or_id: str) -> Key:
        keys = self.all()
        found = [key for key in keys if name_or_id in (key.id, key.name)]
        if not found:
            there = f"there are: {', '.join(repr(key.name) for key in keys)}" if keys else "there are none yet"
            raise ValueError(f"there is no key of that name or id; {there}")
        return found[0]

    def all(self) -> list[Key]:
        """Every key there is or was."""
        with self._guard.claim(), closing(self._connection.execute("SELECT * FROM keys ORDER BY created, id")) as found:
            return [Key(one[0], one[1], one[2], tuple(one[3].split()), *one[4:]) for one in found]

    def version(self) -> tuple[int, int]:
        """A value that changes when another connection, or this one, has changed the table."""
        with self._guard.claim(), closing(self._connection.execute("PRAGMA data_version")) as found:
            return int(found.fetchone()[0]), self._connection.total_changes

    def close(self) -> None:
        """Let go of the file. A forked process leaves the connection alone, as SQLite asks."""
        if not self._guard.elsewhere:
            with self._guard.claim():
                self._connection.close()


class Allowance:
    """What a key may still have: a token bucket on a monotonic clock, and a quota in all.

    One answer is one token. Setting the clock of the machine forwards or back changes nothing.
    """

    def __init__(self, key: Key, used: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.used = used
        self._tokens = float(key.burst or 0)
        self._at = clock()
        self.key = key

    def change(self, key: Key) -> None:
        """Go on with the limits that the key has now; what was used stays used, and what was taken stays taken."""
        self._refill()
        self._tokens = float(key.burst or 0) if self.key.rate is None else min(self._tokens, float(key.burst or 0))
        self.key = key

    def take(self, answers: int, counted: int | None = None, already: int = 0) -> None:
        """Take tokens for so many answers, `counted` of which go to the quota; raises if there are too few of either.

        Either all is taken or nothing is. `already` is how many were taken before for the same request.
        """
        key, counted = self.key, answers if counted is None else counted
        if counted and key.quota is not None and self.used + counted > key.quota:
            raise self.used_up()
        if key.rate is not None:
            self._refill()
            if answers + already > (key.burst or 0):  # it would never be enough, however long one waits
                raise Problem("too-large", f"the key allows {key.burst} answers at once", self.headers())
            if answers > self._tokens:
                wait = max(1, math.ceil((answers - self._tokens) / key.rate))
                raise Problem("too-many-requests", "", {**self.headers(), "Retry-After": str(wait)})
            self._tokens -= answers
        self.used += counted

    def has_left(self, answers: int) -> bool:
        """Whether the quota allows so many answers more."""
        return self.key.quota is None or self.used + answers <= self.key.quota

    def used_up(self) -> Problem:
        """What is told when it does not."""
        return Problem("quota-used-up", "the key has fewer answers left than are asked for", self.headers())

    def give_back(self, counted: int) -> None:
        """Answers that were taken but cost nothing: a refusal, or a repeat. Fewer than none are taken after all."""
        self.used -= counted

    def headers(self) -> dict[str, str]:
        """The RateLimit fields, of the limit that is closer."""
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
    """The keys of a running service. Without a single key, and only then, anyone who reaches it may do anything.

    Once there was a key it is never open again, even if all are gone from the table.

    `used` says how many answers each client has had before: quotas outlive a restart.
    """

    def __init__(
        self,
        table: KeyTable | None = None,
        used: Mapping[str, int] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table, self._clock = table, clock
        self._used = dict(used or {})
        self._allowances: dict[str, Allowance] = {}
        self._keys: dict[str, Key] = {}
        self._open = True
        self._version: object = None
        self._looked = -math.inf
        self._reload()

    @property
    def open(self) -> bool:
        """Whether there is no key at all; a key that was revoked counts."""
        self._reload()
        return self._open

    def authenticate(self, authorization: str | None) -> Key:
        """The key of an Authorization header, or a problem that does not say what was wrong."""
        self._reload()
        if self._open:
            return NOBODY
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() == "bearer":
            token = token.strip()
            key = self._keys.get(token.partition(".")[0])
            # One comparison either way, so that the time does not tell which ids there are.
            same = hmac.compare_digest(_digest(token), key.digest if key is not None else bytes(32))
            if key is not None and same and key.revoked is None:
                return key
        raise Problem("no-key", "", {"WWW-Authenticate": 'Bearer realm="reticent"'})

    def still(self, key: Key) -> bool:
        """Whether a key that was good once is still."""
        self._reload()
        return self._open if key is NOBODY else (found := self._keys.get(key.id)) is not None and not found.revoked

    def allowance(self, key: Key) -> Allowance:
        """What a key may still have."""
        found = self._allowances.get(key.id)
        if found is None:
            now = self._keys.get(key.id, key)
            found = self._allowances[key.id] = Allowance(now, self._used.get(key.id, 0), self._clock)
        return found

    def clients(self) -> list[dict[str, object]]:
        """Each key's name, limits and use, for administrators."""
        self._reload()
        return [
            {
                "id": key.id,
                "name": key.name,
                "scopes": list(key.scopes),
                "rate": key.rate,
                "quota": key.quota,
                "used": self.allowance(key).used,
                "revoked": key.revoked is not None,
            }
            for key in ((NOBODY,) if self._open else self._keys.values())
        ]

    def _reload(self) -> None:
        """Take in keys that were added, changed or revoked meanwhile."""
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
