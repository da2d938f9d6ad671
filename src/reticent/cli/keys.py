"""`reticent keys`: who may ask, teach, observe or administer a service."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.opening import existing_folder
from reticent.cli.options import Flag, Whole, whole_number

if TYPE_CHECKING:
    from reticent.service.keys import Key, KeyTable

NO_LIMIT = "none"


def _rate(_: object, tokens: Sequence[Token]) -> float | str:
    """Convert a rate: a number, or `none` to remove the limit."""
    word = tokens[0].value
    if word == NO_LIMIT:
        return word
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"must be a number, or {NO_LIMIT} to remove the limit, got {word!r}") from None


Rate = Annotated[float | str | None, Parameter(converter=_rate)]
Count = Annotated[int | str | None, Parameter(converter=whole_number(NO_LIMIT))]


def add(
    name: str,
    who: str,
    *,
    scope: Annotated[list[Literal["ask", "teach", "observe", "admin"]] | None, Parameter(negative="")] = None,
    rate: float | None = None,
    burst: Whole | None = None,
    quota: Whole | None = None,
    rows_per_day: Whole | None = None,
) -> int:
    """Make a key and print it. Only its hash is stored, so the key cannot be shown again.

    Parameters
    ----------
    name
        The predictor.
    who
        Whom the key is for; a name that no other key has.
    scope
        What the key allows: ask (the default), teach, observe, admin. May be given several times.
    rate
        Answers per second.
    burst
        Answers at once; default: the rate, as many as in one second.
    quota
        Answers in total.
    rows_per_day
        Labelled rows per day, by UTC, with the scope teach.
    """
    from reticent.service.keys import check_name, make_key

    _check_rows_per_day(rows_per_day)
    if rows_per_day is not None and not {"teach", "admin"} & set(scope or ()):
        raise UsageError("--rows-per-day limits labelled rows, which this key may not send: add --scope teach")
    with as_usage_errors(), _key_table(name) as table:
        check_name(who, "WHO, the name of the key,")
        limits: dict[str, Any] = {"rate": rate, "burst": burst, "quota": quota, "daily_rows": rows_per_day}
        token, key = make_key(who, scope or ["ask"], **limits)
        table.add(key)
    print(token)
    print(f"A key for {who}, to {' and '.join(key.scopes)}. It is not stored: write it down now.", file=sys.stderr)
    return 0


def list_all(name: str, *, json: Flag = False) -> int:
    """List the keys, with their limits and the answers that each has used.

    Parameters
    ----------
    name
        The predictor.
    json
        Print a JSON object instead of text.
    """
    with as_usage_errors(), _key_table(name) as table:
        found = table.all()
        used = _used(existing_folder(name)) if found else None
    if json:
        listed = [{**_public(key), "used": None if used is None else used.get(key.id, 0)} for key in found]
        print(json_format.dumps(listed, indent=2, ensure_ascii=False))
        return 0
    if not found:
        print(f"there are no keys: anyone on this machine may ask; reticent keys add {name} WHO makes one")
    for key in found:
        state = "revoked" if key.revoked is not None else _limits(key)
        state += "" if used is None else f"; {used.get(key.id, 0):,} used"
        print(f"{key.id}  {key.name:20}  {'+'.join(key.scopes):18}  {state}")
    return 0


def set_limits(
    name: str,
    who: str,
    *,
    rate: Rate = None,
    burst: Count = None,
    quota: Count = None,
    rows_per_day: Count = None,
) -> int:
    """Change the limits of a key, also on a running server. The key itself and what it has used stay as they are.

    Parameters
    ----------
    name
        The predictor.
    who
        The name or id of the key.
    rate
        Answers per second, or none for no limit. Without --burst, as many are allowed at once as in one second.
    burst
        Answers at once, or none for as many as in one second.
    quota
        Answers in total, including those given so far, or none for no limit.
    rows_per_day
        Labelled rows per day, by UTC, or none for no limit.
    """
    given = {"rate": rate, "burst": burst, "quota": quota, "daily_rows": rows_per_day}
    limits: dict[str, Any] = {
        limit: None if value == NO_LIMIT else value for limit, value in given.items() if value is not None
    }
    if not limits:
        raise UsageError("nothing to change: give --rate, --burst, --quota or --rows-per-day")
    _check_rows_per_day(rows_per_day)
    with as_usage_errors(), _key_table(name) as table:
        key = table.change(who, **limits)
    print(f"the key of {key.name} ({key.id}) now has: {_limits(key)}")
    return 0


def rotate(name: str, who: str) -> int:
    """Replace the key of a client and print the new one; the old one stops working. The client stays the same.

    Parameters
    ----------
    name
        The predictor.
    who
        The name or id of the key.
    """
    with as_usage_errors(), _key_table(name) as table:
        token, key = table.rotate(who)
    print(token)
    print(f"A new key for {key.name}; the old one is void. It is not stored: write it down now.", file=sys.stderr)
    return 0


def revoke(name: str, who: str) -> int:
    """Revoke a key, also on a running server; answers that it was given stay counted.

    Parameters
    ----------
    name
        The predictor.
    who
        The name or id of the key.
    """
    with as_usage_errors(), _key_table(name) as table:
        key = table.revoke(who)
    print(f"the key of {key.name} ({key.id}) is revoked")
    return 0


@contextmanager
def _key_table(name: str) -> Iterator[KeyTable]:
    from reticent.service.home import KEYS
    from reticent.service.keys import KeyTable

    table = KeyTable(existing_folder(name) / KEYS)
    try:
        yield table
    finally:
        table.close()


def _used(folder: Path) -> dict[str, int] | None:
    """The answers that each key has used, also while a server runs; None if the store cannot be read."""
    import sqlite3

    from reticent.service.home import STORE
    from reticent.service.store.verification import answers_given

    try:
        return answers_given(folder / STORE)
    except (OSError, ValueError, sqlite3.Error):
        return None


def _public(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "rate": key.rate,
        "burst": key.burst,
        "quota": key.quota,
        "daily_rows": key.daily_rows,
        "revoked": key.revoked is not None,
    }


def _check_rows_per_day(rows: int | str | None) -> None:
    if isinstance(rows, int) and rows < 1:
        raise UsageError(f"--rows-per-day must be at least 1, got {rows}")


def _limits(key: Key) -> str:
    limits = [f"{key.rate:g}/s, {key.burst} at once"] if key.rate else []
    limits += [f"{key.quota:,} in all"] if key.quota is not None else []
    limits += [f"{key.daily_rows:,} labelled rows a day"] if key.daily_rows is not None else []
    return ", ".join(limits) or "no limits"
