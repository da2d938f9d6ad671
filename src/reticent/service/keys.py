"""Keys: who may ask, teach, observe or administer, how fast, and how much in total."""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import sqlite3
import time
import unicodedata
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reticent.exact import integer
from reticent.privacy.guard import Guard, Guarded

SCOPES = ("ask", "teach", "observe", "admin")
# Whoever may ask or teach may see the public counters as well, and an administrator may do everything.
IMPLIED = {"ask": ("ask", "observe"), "teach": ("teach", "observe"), "observe": ("observe",), "admin": SCOPES}
ANONYMOUS = "anonymous"
LARGEST = 2**63 - 1  # that SQLite holds
UNCHANGED: Any = object()


@dataclass(frozen=True)
class Key:
    """What is stored of a key: its SHA-256, not the key itself.

    A key is 256 random bits, which nobody can guess. A slow hash, as for passwords, would add nothing.
    """

    id: str
    name: str
    digest: bytes
    scopes: tuple[str, ...]
    rate: float | None = None  # answers per second
    burst: int | None = None  # answers at once
    quota: int | None = None  # answers in total
    created: float = 0.0
    revoked: float | None = None
    daily_rows: int | None = None  # labelled rows per day

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
    daily_rows: int | None = None,
) -> tuple[str, Key]:
    """A new key, to be shown once, and what is stored of it.

    Parameters
    ----------
    name : str
        Whom the key is for.
    scopes : iterable of str, default ('ask',)
        What it allows: "ask", "teach", "observe" or "admin".
    rate : float or None, default None
        Answers per second; None for no limit.
    burst : int or None, default None
        Answers at once; None allows as many as in one second.
    quota : int or None, default None
        Answers in total; None for no limit.
    daily_rows : int or None, default None
        Labelled rows per day, by UTC; None for no limit.

    >>> token, key = make_key("ward 3", ["ask"], rate=100, quota=50_000)
    >>> token.startswith(key.id), key.allows("observe"), key.allows("admin")
    (True, True, False)
    """
    check_name(name)
    wanted = tuple(dict.fromkeys(scopes))
    if not wanted or not set(wanted) <= set(SCOPES):
        raise ValueError(f"scopes must be some of {', '.join(SCOPES)}")
    identity = secrets.token_hex(6)
    token = _token(identity)
    limits = _limits(rate, burst, quota)
    return token, Key(identity, name, digest_of(token), wanted, *limits, time.time(), None, _checked_rows(daily_rows))


def check_name(name: str, say: str = "name") -> None:
    """Refuse what cannot be the name of a key; messages call it what `say` is."""
    if not (
        re.fullmatch(r"[\w .@-]{1,64}", name)
        and name[0].isalnum()
        and not name.endswith(" ")
        and not any("FILLER" in unicodedata.name(one, "") for one in name)  # letters that print as nothing
    ):
        raise ValueError(
            f"{say} must be 1 to 64 letters, digits, spaces or any of . @ - _, start with a letter or digit, and not "
            f"end with a space, got {name!r}"
        )


def _limits(rate: float | None, burst: int | None, quota: int | None) -> tuple[float | None, int | None, int | None]:
    """Checked limits. With a rate, the default burst is the number of answers that it allows in one second."""
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be answers per second, above 0, got {rate}")
    if burst is not None:
        integer(burst, "burst", least=1, most=LARGEST)
        if rate is None:
            raise ValueError(f"burst needs a rate, got burst {burst} without one")
    if quota is not None:
        integer(quota, "quota", least=0, most=LARGEST)
    if rate is not None and burst is None:
        burst = max(1, min(LARGEST, math.ceil(rate)))
    return rate, burst, quota


def _checked_rows(daily_rows: int | None) -> int | None:
    return None if daily_rows is None else integer(daily_rows, "daily_rows", least=1, most=LARGEST)


def _token(identity: str) -> str:
    return f"{identity}.{secrets.token_urlsafe(32)}"


def digest_of(token: str) -> bytes:
    """What is stored of the secret part of a key."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class KeyTable(Guarded):
    """Keys in an SQLite file of their own, so that keys can be added and revoked while a service runs."""

    _twice = "two processes would write through one connection"
    _instead = "Open it in the process that uses it"

    def __init__(self, path: Path | str) -> None:
        self._guard = Guard(type(self))
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        # Any thread of this process may look up a key, one at a time by the guard.
        self._connection = sqlite3.connect(path, check_same_thread=False, timeout=10, isolation_level=None)
        with self._guard.claim():
            # EXTRA also forces the folder, from which a commit deletes the journal. With FULL, the journal could
            # come back after a power failure and undo a revocation.
            self._connection.execute("PRAGMA synchronous = EXTRA")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,"
                " scopes TEXT NOT NULL, rate REAL, burst INTEGER, quota INTEGER, created REAL NOT NULL, revoked REAL,"
                " daily_rows INTEGER)"
            )
            known = {one[1] for one in self._connection.execute("PRAGMA table_info(keys)")}
            if "daily_rows" not in known:  # a table of an older version
                with suppress(sqlite3.OperationalError):  # another process may have added it meanwhile
                    self._connection.execute("ALTER TABLE keys ADD COLUMN daily_rows INTEGER")

    def add(self, key: Key) -> None:
        """Store a key. Its name must be new.

        Parameters
        ----------
        key : Key
            What is stored of the key.
        """
        with self._guard.claim():
            limits = (key.rate, key.burst, key.quota, key.created, key.daily_rows)
            values = (key.id, key.name, key.digest, " ".join(key.scopes), *limits)
            try:
                self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)", values)
            except sqlite3.IntegrityError:
                raise ValueError(
                    f"the name of a key must be one that no other key has, nor one that was revoked, got {key.name!r}"
                ) from None

    def revoke(self, name_or_id: str) -> Key:
        """Revoke a key. Its answers stay counted.

        Parameters
        ----------
        name_or_id : str
            The name or id of the key.
        """
        key = self._named(name_or_id)
        with self._guard.claim():
            self._connection.execute(
                "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (time.time(), key.id)
            )
        return key

    def rotate(self, name_or_id: str) -> tuple[str, Key]:
        """A new secret for a client, to be shown once. The old one is no longer valid.

        The client stays the same: its answers, its quota, and its share of the rows of a phase. With another key it
        would be another client, whose queries are protected separately.

        Parameters
        ----------
        name_or_id : str
            The name or id of the key.
        """
        key = self._valid(name_or_id)
        token = _token(key.id)
        with self._guard.claim():
            self._connection.execute("UPDATE keys SET digest = ? WHERE id = ?", (digest_of(token), key.id))
        return token, key

    def change(
        self,
        name_or_id: str,
        *,
        rate: float | None = UNCHANGED,
        burst: int | None = UNCHANGED,
        quota: int | None = UNCHANGED,
        daily_rows: int | None = UNCHANGED,
    ) -> Key:
        """Change the limits of a key; None removes one. The client and what it has used stay the same.

        A new rate without a burst allows as many answers at once as in one second.

        Parameters
        ----------
        name_or_id : str
            The name or id of the key.
        rate : float or None, default UNCHANGED
            Answers per second.
        burst : int or None, default UNCHANGED
            Answers at once.
        quota : int or None, default UNCHANGED
            Answers in total.
        daily_rows : int or None, default UNCHANGED
            Labelled rows per day.
        """
        key = self._valid(name_or_id)
        if burst is UNCHANGED:
            burst = key.burst if rate is UNCHANGED else None
        limits = _limits(key.rate if rate is UNCHANGED else rate, burst, key.quota if quota is UNCHANGED else quota)
        daily = key.daily_rows if daily_rows is UNCHANGED else _checked_rows(daily_rows)
        with self._guard.claim():
            self._connection.execute(
                "UPDATE keys SET rate = ?, burst = ?, quota = ?, daily_rows = ? WHERE id = ?", (*limits, daily, key.id)
            )
        return replace(key, rate=limits[0], burst=limits[1], quota=limits[2], daily_rows=daily)

    def _valid(self, name_or_id: str) -> Key:
        """A key that can be used, by its name or id."""
        key = self._named(name_or_id)
        if key.revoked is not None:
            raise ValueError(f"the key of {key.name} is revoked: make a new one")
        return key

    def _named(self, name_or_id: str) -> Key:
        keys = self.all()
        found = [key for key in keys if name_or_id in (key.id, key.name)]
        if not found:
            there = f"there are: {', '.join(repr(key.name) for key in keys)}" if keys else "there are none yet"
            raise ValueError(f"there is no key of the name or id {name_or_id!r}; {there}")
        return found[0]

    def all(self) -> list[Key]:
        """All keys, including revoked ones."""
        with self._guard.claim(), closing(self._connection.execute("SELECT * FROM keys ORDER BY created, id")) as found:
            return [Key(one[0], one[1], one[2], tuple(one[3].split()), *one[4:]) for one in found]

    def version(self) -> tuple[int, int]:
        """A value that changes whenever a connection has changed the table."""
        with self._guard.claim(), closing(self._connection.execute("PRAGMA data_version")) as found:
            return int(found.fetchone()[0]), self._connection.total_changes

    def close(self) -> None:
        """Release the file. A forked process leaves the connection alone, as SQLite requires."""
        if not self._guard.elsewhere:
            with self._guard.claim():
                self._connection.close()
