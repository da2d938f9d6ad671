"""`reticent teach`: hand new labelled rows to a predictor; and withdraw those that still wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.cli.columns import KnownColumns, texts
from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.opening import schema_of
from reticent.cli.options import Flag
from reticent.cli.own_parts import Own, OwnParts
from reticent.cli.progress import progress_bar
from reticent.cli.running_server import here_or_served, naming_the_key, read_key, who_sends

if TYPE_CHECKING:
    from reticent.cli.taught_table import TaughtTable
    from reticent.data.schema import Schema
    from reticent.service.answering import AnsweringService
    from reticent.service.client_labels import Taught
    from reticent.service.tables import TableFile

ROWS_PER_REQUEST = 50_000
CELLS_PER_REQUEST = 1_500_000  # which fit into the body that a server takes


def teach(
    name: str,
    *,
    table: Path | None = None,
    withdraw: str | None = None,
    url: str | None = None,
    key_file: Path | None = None,
    resume: Flag = False,
    quiet: Flag = False,
    own: Own = None,
) -> int:
    """Hand new labelled rows to a predictor that was fitted with --truth rows or both.

    If a server of this name runs on this machine, or a URL is given, it gets the rows. Otherwise the predictor is
    opened here. Each row enters one phase, in one role. A record beside the table, TABLE.NAME.taught, sees to it that
    no row is taught twice: keep it.

    Parameters
    ----------
    name
        The predictor.
    table
        A CSV, Parquet or Arrow file with the columns of the schema, the target and, if there are groups, the group.
    withdraw
        Instead of a table: the numbers of rows that were taught and are to be forgotten, such as 120,300-319. Rows of a
        phase that is complete cannot be withdrawn: it learns from them, and then they are deleted.
    url
        The address of a server.
    key_file
        A file with the key to send; by default the key is in $RETICENT_KEY. Teaching needs a key with
        the scope teach (reticent keys add --scope teach).
    resume
        Continue a table that was not finished. The last request is repeated under its idempotency key, so that no row
        is taught twice.
    quiet
        Show no progress.
    """
    if (table is None) == (withdraw is None):
        raise UsageError("give a table with --table, or numbers of rows with --withdraw")
    with as_usage_errors(), naming_the_key(key_file), ExitStack() as cleanup:
        if withdraw is not None:
            numbers = numbers_in(withdraw)
            receiver = cleanup.enter_context(_receiver(name, url, read_key(key_file), own))
            withdrawn = receiver.withdraw(numbers)
            print(f"{withdrawn:,} of {len(numbers):,} rows are withdrawn; only rows that wait for a phase can be")
            return 0
        assert table is not None
        return _teach(name, table, cleanup, (url, read_key(key_file), own), resume=resume, quiet=quiet)


def _teach(
    name: str, path: Path, cleanup: ExitStack, where: tuple[Any, Any, Any], *, resume: bool, quiet: bool
) -> int:
    from reticent.cli.private_schema import group_names
    from reticent.cli.sent_rows import one_ahead, send_all
    from reticent.cli.taught_table import TaughtTable, check_record
    from reticent.service import tables

    table = tables.open_table(path)
    if not check_record(path, name, resume=resume):
        print(f"all rows of {path} are taught already")
        return 0
    receiver = cleanup.enter_context(_receiver(name, *where))
    columns = receiver.columns
    tables.check_columns(table, _columns_read(columns))
    with progress_bar("counting rows", quiet=quiet) as advance:
        rows = table.count(advance)
    if rows == 0:
        raise UsageError(f"{path} has no rows")
    if columns.group is not None:
        with progress_bar("checking groups", rows, quiet=quiet) as advance:
            for chunk in table.chunks([columns.group], advance):
                group_names(chunk[columns.group], table, columns.group)
    at_once = max(1, min(ROWS_PER_REQUEST, CELLS_PER_REQUEST // len(columns.names)))
    taught = cleanup.enter_context(TaughtTable(path, name, rows, receiver.client, at_once))
    last: list[Taught] = []

    def send(chunk: dict[str, Any], key: str) -> None:
        last[:] = [receiver.teach(chunk, key)]
        taught.add(last[0])

    with progress_bar("teaching", rows, quiet=quiet) as advance:
        try:
            chunks = map(receiver.prepare, _checked(table, columns, rows, taught))
            send_all(one_ahead(chunks), taught, send, advance, rows=taught.at_once)
        except BaseException as error:
            taught.leave(error)
            raise
    taught.finish()
    for line in _report(path, rows, taught, last, columns):
        print(line)
    return 0


def _checked(table: TableFile, columns: KnownColumns, rows: int, taught: TaughtTable) -> Iterator[dict[str, Any]]:
    """The columns of a table, some rows at a time; a table that changes meanwhile is refused."""
    from reticent.service.tables import check_unchanged

    read = 0
    for chunk in table.chunks(_columns_read(columns), None, taught.at_once, columns.numbers, as_floats=True):
        read += len(chunk[columns.names[0]])
        check_unchanged(table)
        yield chunk
    check_unchanged(table, read, rows)


def _columns_read(columns: KnownColumns) -> list[str]:
    assert columns.target is not None
    return [*columns.names, columns.target, *([] if columns.group is None else [columns.group])]


def _report(
    path: Path, rows: int, taught: TaughtTable, last: list[Taught], columns: KnownColumns
) -> Iterator[str]:
    """What was taught, and what comes next; all of it is public."""
    received = rows - taught.left_out
    numbers = ", ".join(f"{first:,}–{last:,}" for first, last in taught.numbers)
    yield f"{received:,} rows of {path} are taught; their numbers, by which they can be withdrawn: {numbers}"
    if taught.left_out:
        yield f"{taught.left_out:,} rows were left out, since it is not known whether they were received before"
    if taught.kept < received:
        yield (
            f"{received - taught.kept:,} of them are not learned from: they are of a {columns.group!r} that was in a "
            "phase before, or has enough rows"
        )
    for one in last:
        if one.missing:
            yield f"phase {one.phase} begins after {one.missing:,} more labelled rows"
        else:
            yield f"phase {one.phase} gets the last of them; it begins by the number of queries"


# ── who is taught ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Receiver:
    """Who gets labelled rows: a server, or the predictor itself.

    Attributes
    ----------
    columns : KnownColumns
        The columns of a table.
    client : str
        Who teaches.
    prepare : callable
        Makes what is handed over of columns of the table; it may be cut by rows.
    teach : callable
        Hands that over under an idempotency key.
    withdraw : callable
        Withdraws rows by their numbers; returns how many still waited.
    """

    columns: KnownColumns
    client: str
    prepare: Callable[[dict[str, Any]], dict[str, Any]]
    teach: Callable[[dict[str, Any], str], Taught]
    withdraw: Callable[[list[int]], int]


@contextmanager
def _receiver(name: str, url: str | None, key: str | None, own: OwnParts | None) -> Iterator[Receiver]:
    from reticent.service.client import Client
    from reticent.service.keys import ANONYMOUS

    with here_or_served(name, url, key, own, ahead=False) as found:  # what is learned here would be lost at the end
        if isinstance(found, Client):
            columns = KnownColumns.of_server(name, found)
            _check_takes_rows(found.status()["truth"])
            yield Receiver(
                columns,
                who_sends(key),
                lambda chunk: _typed(columns, chunk),
                lambda chunk, key: found.teach(chunk, idempotency_key=key),
                found.withdraw,
            )
            return
        schema = schema_of(found.home.folder, found.home.model)
        _check_takes_rows(found.status().truth)
        yield Receiver(
            KnownColumns.of_schema(schema),
            "here",
            lambda chunk: encoded(schema, chunk),
            lambda chunk, key: teach_predictor(found, chunk, key),
            lambda numbers: _or_raise(found.withdraw_labelled(ANONYMOUS, numbers)),
        )


def _check_takes_rows(truth: str | None) -> None:
    if truth not in ("rows", "both"):
        raise UsageError("the predictor takes no labelled rows: reticent fit makes one with --truth rows or both")


def encoded(schema: Schema, chunk: dict[str, Any]) -> dict[str, Any]:
    """Columns of a table as rows, labels and groups.

    Parameters
    ----------
    schema : Schema
        How cells become numbers.
    chunk : dict of str to list or array
        Columns of a table.
    """
    found = {"rows": schema.encode(chunk), "labels": schema.later_class_indices(chunk[schema.target])}
    return found if schema.group is None else {**found, "groups": texts(chunk[schema.group])}


def teach_predictor(answering: AnsweringService, chunk: dict[str, Any], key: str) -> Taught:
    """Hand labelled rows to the predictor in this process; it stores them as it does for a server.

    Parameters
    ----------
    answering : AnsweringService
        The predictor.
    chunk : dict of str to list or array
        What `encoded` made.
    key : str
        The idempotency key.
    """
    import numpy as np

    from reticent.service.client_labels import Taught
    from reticent.service.keys import ANONYMOUS
    from reticent.service.labels import LabelledRequest
    from reticent.service.requests import digest

    rows, labels, groups = chunk["rows"], chunk["labels"], chunk.get("groups")
    others = digest(labels.tobytes() + "\0".join(groups or ()).encode("utf-8", "surrogatepass"))
    body = digest(digest(rows.data.cast("B")) + others)
    found = _or_raise(answering.add_labelled(LabelledRequest(ANONYMOUS, rows, labels, groups, key, body)))
    return Taught(found.kept, np.arange(found.first, found.first + found.rows), found.phase, found.missing)


def _typed(columns: KnownColumns, chunk: dict[str, Any]) -> dict[str, Any]:
    assert columns.target is not None
    others = [columns.target, *([] if columns.group is None else [columns.group])]
    return columns.typed(chunk) | {name: texts(chunk[name]) for name in others}


def _or_raise(found: Any) -> Any:
    if isinstance(found, Exception):
        raise found
    return found


def numbers_in(text: str) -> list[int]:
    """The numbers in a list of numbers and ranges.

    >>> numbers_in("3, 10-12")
    [3, 10, 11, 12]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (one.strip() for one in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--withdraw must be numbers of rows such as 120,300-319, got {text!r}")
        if dash and int(last) < int(first):
            raise UsageError(f"--withdraw must have the smaller number of a range first, got {part.strip()!r}")
        found += range(int(first), int(last if dash else first) + 1)
    return found
