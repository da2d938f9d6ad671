"""The commands for keys: add, list, set, rotate and revoke."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter, Token

from reticent.service.commands import Flag, UsageError, existing_folder, refusing

if TYPE_CHECKING:
    from reticent.service.keys import Key, KeyTable

NO_LIMIT = "none"


def _limit(kind: type[int] | type[float]) -> Any:
    """A converter for a limit: a number, or `none` to remove the limit."""

    def convert(_: object, tokens: Sequence[Token]) -> int | float | str:
        word = tokens[0].value
        if word == NO_LIMIT:
            return word
        try:
            return kind(word)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise ValueError(f"must be a {what}, or {NO_LIMIT} to remove the limit, got {word!r}") from None

    return convert


Rate = Annotated[float | str | None, Parameter(converter=_limit(float))]
Count = Annotated[int | str | None, Parameter(converter=_limit(int))]


def add_key(
    name: str,
    who: str,
    *,
    scope: Annotated[list[Literal["ask", "observe", "admin"]] | None, Parameter(negative="")] = None,
    rate: float | None = None,
    burst: int | None = None,
    quota: int | None = None,
) -> int:
    """Make a key, and print it: only now, as only its hash is kept.

    Parameters
    ----------
    name
        The predictor.
    who
        Whom the key is for; a name that no other key has.
    scope
        What it may do: ask (the default), observe, admin. May be given several times.
    rate
        Answers per second.
    burst
        Answers at once; by default as many as in a second.
    quota
        Answers in all.
    """
    from reticent.service.keys import make_key

    with refusing(), _keys(name) as table:
        token, key = make_key(who, scope or ["ask"], rate=rate, burst=burst, quota=quota)
        table.add(key)
    print(token)
    print(f"A key for {who}, to {' and '.join(key.scopes)}. It is not kept: write it down now.", file=sys.stderr)
    return 0


def list_keys(name: str, *, json: Annotated[bool, Flag] = False) -> int:
    """List the keys.

    Parameters
    ----------
    name
        The predictor.
    json
        Print a JSON object instead of text.
    """
    with refusing(), _keys(name) as table:
        found = table.all()
    if json:
        print(json_format.dumps([_public(key) for key in found], indent=2, ensure_ascii=False))
        return 0
    if not found:
        print(f"there are no keys: without any, whoever is on this machine may ask; reticent keys add {name} WHO")
    for key in found:
        state = "revoked" if key.revoked is not None else _limits(key)
        print(f"{key.id}  {key.name:20}  {'+'.join(key.scopes):18}  {state}")
    return 0


def set_key(name: str, who: str, *, rate: Rate = None, burst: Count = None, quota: Count = None) -> int:
    """Change the limits of a key, also on a server that runs. The key itself, and what it has used, stay as they are.

    Parameters
    ----------
    name
        The predictor.
    who
        The name or id of the key.
    rate
        Answers per second, or none for no limit. Without --burst, as many are allowed at once as in a second.
    burst
        Answers at once.
    quota
        Answers in all, those that were given included, or none for no limit.
    """
    given = {"rate": rate, "burst": burst, "quota": quota}
    limits: dict[str, Any] = {
        one: None if value == NO_LIMIT else value for one, value in given.items() if value is not None
    }
    if not limits:
        raise UsageError("nothing to change: give --rate, --burst or --quota")
    with refusing(), _keys(name) as table:
        key = table.change(who, **limits)
    print(f"the key of {key.name} ({key.id}) has now: {_limits(key)}")
    return 0


def rotate_key(name: str, who: str) -> int:
    """Give a client a new key, and print it; the old one opens nothing any more. The client stays the same.

    Parameters
    ----------
    name
        The predictor.
    who
        The name or id of the key.
    """
    with refusing(), _keys(name) as table:
        token, key = table.rotate(who)
    print(token)
    print(f"A new key for {key.name}; the old one is void. It is not kept: write it down now.", file=sys.stderr)
    return 0


def revoke_key(name: str, who: str) -> int:
    """Let a key open nothing any more, also on a server that runs; what it was answered stays counted.

    Parameters
    ----------
    name
        The predictor.
    who
        The name or id of the key.
    """
    with refusing(), _keys(name) as table:
        key = table.revoke(who)
    print(f"the key of {key.name} ({key.id}) is revoked")
    return 0


@contextmanager
def _keys(name: str) -> Iterator[KeyTable]:
    from reticent.service.home import KEYS
    from reticent.service.keys import KeyTable

    table = KeyTable(existing_folder(name) / KEYS)
    try:
        yield table
    finally:
        table.close()


def _public(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "rate": key.rate,
        "burst": key.burst,
        "quota": key.quota,
        "revoked": key.revoked is not None,
    }


def _limits(key: Key) -> str:
    limits = [f"{key.rate:g}/s, {key.burst} at once"] if key.rate else []
    limits += [f"{key.quota:,} in all"] if key.quota is not None else []
    return ", ".join(limits) or "no limits"


def register(app: App) -> None:
    """Add the commands to a command line, under `keys`."""
    keys = App(name="keys", help="Who may ask, observe or administer a service.")
    keys.command(add_key, name="add")
    keys.command(list_keys, name="list")
    keys.command(set_key, name="set")
    keys.command(rotate_key, name="rotate")
    keys.command(revoke_key, name="revoke")
    app.command(keys)
