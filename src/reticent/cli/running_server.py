"""The server of a predictor that runs on this machine: its address, and the key to ask it with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.cli.errors import UsageError
from reticent.cli.opening import existing_folder, open_predictor

if TYPE_CHECKING:
    from reticent.cli.own_parts import OwnParts
    from reticent.service.answering import AnsweringService
    from reticent.service.client import Client

ADDRESS = "address"  # a file in the predictor's folder, written by `serve` while it runs


def address_of(name: str) -> str:
    """The address that the running server has written down."""
    from reticent.service.http.server import HOST, PORT

    with suppress(OSError):
        return (existing_folder(name) / ADDRESS).read_text(encoding="utf-8").strip()
    return f"http://{HOST}:{PORT}"


def served_at(folder: Path) -> str | None:
    """The address of the server of this folder; None if none runs. A server that was killed has left its address."""
    from reticent.service.home import LOCK

    try:
        address = (folder / ADDRESS).read_text(encoding="utf-8").strip()
        process = int((folder / LOCK).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    with suppress(PermissionError):  # the server of another user
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return None
    return address


@contextmanager
def here_or_served(
    name: str, url: str | None, key: str | None, own: OwnParts | None, *, ahead: bool = True
) -> Iterator[AnsweringService | Client]:
    """The predictor itself, opened here; or a client of its server, if one runs or a URL is given.

    Parameters
    ----------
    name : str
        The predictor.
    url : str or None
        The address of a server.
    key : str or None
        The key to send.
    own : OwnParts or None
        Parts of the predictor that are not in its folder.
    ahead : bool, default True
        Whether a predictor that is opened here learns a phase as soon as its rows are there.
    """
    from reticent.service.client import Client
    from reticent.service.home import AlreadyServed

    if url is None:
        try:
            answering = open_predictor(name, own, ahead=ahead)
        except AlreadyServed:
            url = address_of(name)
        else:
            with closing(answering):
                yield answering
            return
    with Client(url, model=name, key=key) as client:
        yield client


def who_sends(key: str | None) -> str:
    """Who a client is, for records: the id of its key, which is no secret."""
    return "nobody" if key is None else key.partition(".")[0]


def read_key(key_file: Path | None) -> str | None:
    """The key in a file, or in $RETICENT_KEY if no file is named; None without either."""
    if key_file is None:
        return os.environ.get("RETICENT_KEY") or None
    try:
        key = key_file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UsageError(f"--key-file: {key_file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        key = ""
    if not key:
        raise UsageError(f"--key-file: {key_file} holds no key")
    return key


@contextmanager
def naming_the_key(key_file: Path | None) -> Iterator[None]:
    """Say which key a server has not accepted, or which does not allow a request, if one was sent."""
    from reticent.service.client_messages import ServiceError

    try:
        yield
    except ServiceError as error:
        sent = f"--key-file {key_file}" if key_file is not None else "$RETICENT_KEY"
        if error.kind not in ("no-key", "not-allowed") or (key_file is None and not os.environ.get("RETICENT_KEY")):
            raise
        if error.kind == "not-allowed":
            raise UsageError(f"{sent}: {error}") from None
        raise UsageError(f"the key in {sent} was not accepted") from None
