"""`reticent feedback`: give the outcomes of queries that a predictor has answered."""

from __future__ import annotations

import sys
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
    from reticent.service.client import Client

ROWS_PER_REQUEST = 10_000
ANSWER_ID = "answer_id"  # the column that `reticent ask` writes


def feedback(
    name: str,
    *,
    table: Path,
    url: str | None = None,
    key_file: Path | None = None,
    resume: Flag = False,
    quiet: Flag = False,
    own: Own = None,
) -> int:
    """Give the outcomes of queries that were answered, to a predictor that was fitted with --truth feedback or both.

    Nobody learns whether a label came in time and was used, and neither do you: only how many were sent. A label that
    is given again takes the place of the one before, so that sending a table twice does no harm.

    Parameters
    ----------
    name
        The predictor.
    table
        A CSV, Parquet or Arrow file with the column answer_id, as `reticent ask` wrote it, and the target with the true
        labels. The file of answers has a column of that name too, with what was answered: put the true labels in its
        place. An empty label withdraws one that was given before.
    url
        The address of a server.
    key_file
        A file with the key that asked; by default the key is in $RETICENT_KEY. Labels of others are not used.
    resume
        Continue a table that was not finished.
    quiet
        Show no progress.
    """
    from reticent.cli.sent_rows import SentRows, send_all
    from reticent.service import tables

    with as_usage_errors(), naming_the_key(key_file), ExitStack() as cleanup:
        found = tables.open_table(table)
        record = table.with_name(f"{table.name}.{name}.feedback")
        if record.exists() and not resume:
            raise UsageError(
                f"some labels of {table} were sent to {name}: continue with --resume, or delete {record.name}"
            )
        receiver = cleanup.enter_context(_receiver(name, url, read_key(key_file), own))
        tables.check_columns(found, [ANSWER_ID, receiver.target])
        with progress_bar("counting rows", quiet=quiet) as advance:
            rows = found.count(advance)
        if rows == 0:
            raise UsageError(f"{table} has no rows")
        sent = SentRows(record, table, rows=rows, size=table.stat().st_size, client=receiver.client)

        def send(chunk: dict[str, Any], _: str) -> None:
            receiver.send(texts(chunk[ANSWER_ID]), texts(chunk[receiver.target]))
            sent.acknowledge(len(chunk[ANSWER_ID]))

        advance = cleanup.enter_context(progress_bar("sending", rows, quiet=quiet))
        try:
            chunks = found.chunks([ANSWER_ID, receiver.target], None, ROWS_PER_REQUEST)
            send_all(chunks, sent, send, advance, rows=ROWS_PER_REQUEST)
        except BaseException as error:
            if sent.nothing_happened(error):
                sent.remove()
            else:
                print(f"reticent: {sent.done:,} of {rows:,} labels are sent; --resume continues", file=sys.stderr)
            raise
        sent.remove()
    print(f"{rows:,} label{'s' * (rows != 1)} of {table} {'are' if rows != 1 else 'is'} sent")
    return 0


@dataclass(frozen=True)
class _Receiver:
    """Who gets labels: the target, who sends them, and how ids and labels are sent."""

    target: str
    client: str
    send: Callable[[list[str], list[str]], None]


@contextmanager
def _receiver(name: str, url: str | None, key: str | None, own: OwnParts | None) -> Iterator[_Receiver]:
    import numpy as np

    from reticent.service.client import Client
    from reticent.service.keys import ANONYMOUS
    from reticent.service.labels import FeedbackRequest

    with here_or_served(name, url, key, own) as found:
        if isinstance(found, Client):
            _check_takes_feedback(found.status()["truth"])
            target = KnownColumns.of_server(name, found).target
            assert target is not None
            yield _Receiver(target, who_sends(key), lambda ids, labels: send_to_server(found, ids, labels))
            return
        _check_takes_feedback(found.status().truth)
        schema = schema_of(found.home.folder, found.home.model)

        def send(ids: list[str], labels: list[str]) -> None:
            indices = np.asarray(schema.later_class_indices(labels))
            if (refused := found.feedback([FeedbackRequest(ANONYMOUS, indices, tickets=ids)])) is not None:
                raise refused

        yield _Receiver(schema.target, "here", send)


def _check_takes_feedback(truth: str | None) -> None:
    if truth not in ("feedback", "both"):
        raise UsageError("the predictor takes no feedback: reticent fit makes one with --truth feedback or both")


def send_to_server(client: Client, ids: list[str], labels: list[str]) -> None:
    """Give labels to a server; an empty one withdraws what was given before."""
    client.feedback(ids, [label or None for label in labels])
