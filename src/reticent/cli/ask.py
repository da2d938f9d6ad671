"""`reticent ask`: the labels of all rows of a table, from a running server or from the predictor itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.cli.errors import as_usage_errors
from reticent.cli.opening import open_predictor, schema_of
from reticent.cli.options import Flag
from reticent.cli.own_parts import Own, OwnParts
from reticent.cli.progress import progress_bar
from reticent.cli.running_server import address_of, naming_the_key, read_key

if TYPE_CHECKING:
    from reticent.cli.answer_file import AnswerFile
    from reticent.data.schema import Schema
    from reticent.service.answering import AnsweringService
    from reticent.service.client import Client
    from reticent.service.tables import TableFile

ROWS_PER_REQUEST = 10_000


def ask(
    name: str,
    *,
    table: Path,
    out: Path,
    url: str | None = None,
    key_file: Path | None = None,
    resume: Flag = False,
    quiet: Flag = False,
    own: Own = None,
) -> int:
    """Ask for the labels of all rows of a table.

    If a server of this name runs on this machine, or a URL is given, it is asked. Otherwise the predictor is opened
    and asked here, with the same counts and records. A request whose reply is lost is repeated, and counts once.

    Parameters
    ----------
    name
        The predictor.
    table
        A CSV, Parquet or Arrow file with the columns of the schema.
    out
        A CSV file to write the answers to, one per row, in the order of the table.
    url
        The address of a server.
    key_file
        A file with the key to ask with; by default the key is in $RETICENT_KEY.
    resume
        Continue an --out that was not finished. The last request is repeated under its idempotency key, so that it is
        not charged twice if this is done within a day.
    quiet
        Show no progress.
    """
    from reticent.cli.answer_file import AnswerFile, check_out
    from reticent.service import tables

    with as_usage_errors(), naming_the_key(key_file), ExitStack() as cleanup:
        found = tables.open_table(table)
        check_out(out, resume)
        answerer = cleanup.enter_context(_answerer(name, url, read_key(key_file), own))
        tables.check_columns(found, answerer.columns)
        with progress_bar("counting rows", quiet=quiet) as advance:
            rows = found.count(advance)
        answers = cleanup.enter_context(AnswerFile(out, answerer.target, rows, table.stat().st_size, answerer.client))
        advance = cleanup.enter_context(progress_bar("asking", rows, quiet=quiet))
        try:
            _ask_all(found, answerer, answers, advance)
        except BaseException as error:
            answers.leave(error)
            raise
        answers.finish()
    print(f"{rows:,} answers in {out}")
    return 0


@dataclass(frozen=True)
class Answerer:
    """Who answers: a server, or the predictor itself.

    Attributes
    ----------
    kinds : dict of str to str
        For every column, "number" or "category".
    target : str
        Header of the column of answers.
    client : str
        Who asks. Idempotency keys belong to a client.
    ask : callable
        Maps columns and an idempotency key to labels.
    """

    kinds: dict[str, str]
    target: str
    client: str
    ask: Callable[[dict[str, Any], str], list[Any]]

    @property
    def columns(self) -> list[str]:
        """The columns to ask with, in order."""
        return list(self.kinds)

    @property
    def numbers(self) -> set[str]:
        """The columns that are numbers."""
        return {name for name, kind in self.kinds.items() if kind == "number"}


def _ask_all(table: TableFile, answerer: Answerer, answers: AnswerFile, advance: Callable[[int], None]) -> None:
    """Ask for all rows without an answer, in requests that are halved while the server finds them too large."""
    from reticent.service.client_messages import ServiceError

    columns, size, skip = answerer.columns, ROWS_PER_REQUEST, answers.done
    advance(skip)
    for chunk in table.chunks(columns, None, rows=ROWS_PER_REQUEST, numbers=answerer.numbers):
        left = len(chunk[columns[0]])
        start, skip = min(left, skip), max(0, skip - left)
        while start < left:
            part = slice(start, min(left, start + (answers.pending or size)))
            key = answers.begin(part.stop - part.start)
            try:
                labels = answerer.ask({each: values[part] for each, values in chunk.items()}, key)
            except ServiceError as error:
                if error.kind != "too-large" or part.stop - part.start == 1:
                    raise
                size = (part.stop - part.start) // 2  # a request that is refused costs nothing
                answers.pending = None
                continue
            answers.add(labels)
            advance(part.stop - part.start)
            start = part.stop


@contextmanager
def _answerer(name: str, url: str | None, key: str | None, own: OwnParts | None) -> Iterator[Answerer]:
    from reticent.service.home import AlreadyServed

    if url is None:
        try:
            answering = open_predictor(name, own)
        except AlreadyServed:
            url = address_of(name)
        else:
            with ExitStack() as cleanup:
                cleanup.callback(answering.close)
                schema = schema_of(answering.home.folder, answering.home.model)
                yield Answerer(
                    kinds=_kinds(schema),
                    target=schema.target,
                    client="here",
                    ask=lambda chunk, key: ask_predictor(answering, schema, chunk, key),
                )
            return
    from reticent.service.client import Client

    with Client(url, model=name, key=key) as client:
        kinds, target = _columns_of_server(name, client)
        who = "nobody" if key is None else key.partition(".")[0]  # the id of the key, which is no secret
        yield Answerer(kinds, target, who, lambda chunk, key: _ask_server(client, _typed(chunk, kinds), key))


def ask_predictor(answering: AnsweringService, schema: Schema, chunk: dict[str, Any], key: str) -> list[Any]:
    """Labels from the predictor in this process; it counts and stores them as it does for a server."""
    from reticent.service.keys import ANONYMOUS
    from reticent.service.requests import Request, digest

    rows = schema.encode(chunk)
    (found,) = answering.answer([Request(ANONYMOUS, rows, key, digest(rows.tobytes()))])
    if isinstance(found, Exception):
        raise found
    return found.labels


def _ask_server(client: Client, columns: dict[str, Any], key: str) -> list[Any]:
    return list(client.ask(columns, idempotency_key=key).tolist())


def _typed(chunk: dict[str, Any], kinds: dict[str, str]) -> dict[str, Any]:
    """Columns as they are sent: a CSV file has text where the service wants numbers."""
    from reticent.data.cells import as_numbers, as_text

    return {
        name: as_numbers(chunk[name]) if kind == "number" else [as_text(cell) for cell in chunk[name]]
        for name, kind in kinds.items()
    }


def _columns_of_server(name: str, client: Client) -> tuple[dict[str, str], str]:
    """The columns and the target: from the predictor's folder if it is on this machine, else from the server."""
    from reticent.service import home

    folder = home.folder_of(name)
    if (folder / home.MODEL).is_file():
        schema = schema_of(folder, home.read_model(folder))
        return _kinds(schema), schema.target
    found = client.metadata()
    text = {tensor["name"] for tensor in found["inputs"] if tensor["datatype"] == "BYTES"}
    return {each: "category" if each in text else "number" for each in found["parameters"]["columns"]}, "answer"


def _kinds(schema: Schema) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}
