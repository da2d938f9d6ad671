"""Open a predictor by its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from reticent.cli.errors import UsageError
from reticent.cli.progress import progress_bar

if TYPE_CHECKING:
    from reticent.cli.own_parts import OwnParts
    from reticent.data.schema import Schema
    from reticent.service.answering import AnsweringService
    from reticent.service.home import Home


def existing_folder(name: str) -> Path:
    """The folder of a predictor, which must exist."""
    from reticent.service import home

    folder = home.folder_of(name)
    if not (folder / home.STORE).is_file():
        known = home.predictor_names()
        there = f"there are: {', '.join(known)}" if known else "there are none yet"
        raise UsageError(f"there is no predictor {name!r}; {there} (reticent fit makes one)")
    return folder


def open_predictor(
    name: str, own: OwnParts | None = None, *, records: bool = False, ahead: bool = True
) -> AnsweringService:
    """Open a predictor in this process, to answer or, with `records`, only to be read.

    Parameters
    ----------
    name : str
        The predictor.
    own : OwnParts, default None
        Parts of it that are not in its folder.
    records : bool, default False
        Open it only to read its records.
    ahead : bool, default True
        Whether a phase is learned as soon as its rows are there.

    Returns
    -------
    AnsweringService
        It must be closed.
    """
    from reticent.service import halting
    from reticent.service.answering import AnsweringService
    from reticent.service.home import Home
    from reticent.service.store.schema import VERSION, kept_path

    folder, parts = existing_folder(name), own.imported() if own else {}
    with progress_bar("opening"):
        home = Home(folder, records=records)
        answering = AnsweringService(home, ahead=ahead, **parts)
    if not records:
        halting.clear(folder)
    if (before := home.store.upgraded) is not None:
        print(
            f"reticent: the store was upgraded from version {before} to {VERSION}; the old one is kept in "
            f"{kept_path(home.store.path, before)} until the phase ends",
            file=sys.stderr,
        )
    return answering


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A temporary copy of a predictor, to be read and not to answer; also of one that is served or read-only."""
    from reticent.service import backup

    with TemporaryDirectory() as scratch:  # mode 0700
        backup.copy(folder, Path(scratch) / folder.name)
        yield Path(scratch) / folder.name


@contextmanager
def open_to_read(name: str) -> Iterator[Home]:
    """The folder of a predictor, or a copy of it if it is served or cannot be written, for its records and its model.

    Parameters
    ----------
    name : str
        The predictor.
    """
    from reticent.service.home import AlreadyServed, Home
    from reticent.service.store.verification import can_be_written

    folder = existing_folder(name)
    if can_be_written(folder):
        try:
            home = Home(folder, records=True)
        except AlreadyServed:
            pass
        else:
            with home:
                yield home
            return
    with copied(folder) as copy, Home(copy, records=True) as home:
        yield home


def schema_of(folder: Path, model: str) -> Schema:
    """The schema in the text of a model.toml; an error names the file."""
    from reticent.data.schema import Schema, SchemaError
    from reticent.service.home import MODEL

    try:
        return Schema.from_toml(model)
    except SchemaError as error:
        raise SchemaError(f"{folder / MODEL}: {error}") from None
