"""`reticent ask`: the labels of all rows of a table, from a running server or from the predictor itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.cli.errors import UsageError, as_usage_errors
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
PROBABILITIES = "probabilities"  # the output of a server that has them


def ask(
    name: str,
    *,
    table: Path,
    out: Path,
    url: str | None = None,
    key_file: Path | None = None,
    resume: Flag = False,
    probabilities: Flag = False,
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
    probabilities
        Write the probability of every class as well, in one column per class. Only one private model has them, and a
        server only if it was started with --probabilities.
    quiet
        Show no progress.
    """
    from reticent.cli.answer_file import AnswerFile, check_out
    from reticent.service import tables

    with as_usage_errors(), naming_the_key(key_file), ExitStack() as cleanup:
        found = tables.open_table(table)
        check_out(out, resume)
        answerer = cleanup.enter_context(_answerer(name, url, read_key(key_file), own, probabilities))
        tables.check_columns(found, answerer.columns)
        with progress_bar("counting rows", quiet=quiet) as advance:
            rows = found.count(advance)
        answers = cleanup.enter_context(AnswerFile(out, answerer.header, rows, table.stat().st_size, answerer.client))
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
    header : list of str
        Headers of the columns of answers: the target and, with probabilities, the classes.
    client : str
        Who asks. Idempotency keys belong to a client.
    ask : callable
        Maps columns and an idempotency key to the cells of each answer.
    """

    kinds: dict[str, str]
    header: list[str]
    client: str
    ask: Callable[[dict[str, Any], str], list[list[Any]]]

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
                cells = answerer.ask({each: values[part] for each, values in chunk.items()}, key)
            except ServiceError as error:
                if error.kind != "too-large" or part.stop - part.start == 1:
                    raise
                size = (part.stop - part.start) // 2  # a request that is refused costs nothing
                answers.pending = None
                continue
            answers.add(cells)
            advance(part.stop - part.start)
            start = part.stop


@contextmanager
def _answerer(
    name: str, url: str | None, key: str | None, own: OwnParts | None, probabilities: bool
) -> Iterator[Answerer]:
    from reticent.service.home import AlreadyServed

    if url is None:
        try:
            answering = open_predictor(name, own)
        except AlreadyServed:
            url = address_of(name)
        else:
            with ExitStack() as cleanup:
                cleanup.callback(answering.close)
                if probabilities and (why := answering.no_probabilities) is not None:
                    raise UsageError(f"--probabilities: {why}")
                schema = schema_of(answering.home.folder, answering.home.model)
                yield Answerer(
                    kinds=_kinds(schema),
                    header=_header(schema.target, schema.classes if probabilities else ()),
                    client="here",
                    ask=lambda chunk, key: ask_predictor(answering, schema, chunk, key, probabilities),
                )
            return
    from reticent.service.client import Client

    with Client(url, model=name, key=key) as client:
        kinds, target = _columns_of_server(name, client)
        header = _header(target, _classes_of_server(client) if probabilities else ())
        who = "nobody" if key is None else key.partition(".")[0]  # the id of the key, which is no secret
        yield Answerer(
            kinds, header, who, lambda chunk, key: _ask_server(client, _typed(chunk, kinds), key, probabilities)
        )


def ask_predictor(
    answering: AnsweringService, schema: Schema, chunk: dict[str, Any], key: str, probabilities: bool = False
) -> list[list[Any]]:
    """Answers from the predictor in this process; it counts and stores them as it does for a server.

    Parameters
    ----------
    answering : AnsweringService
        The predictor.
    schema : Schema
        How cells become numbers.
    chunk : dict of str to list
        Columns of a table.
    key : str
        The idempotency key.
    probabilities : bool, default False
        Whether to ask for probabilities as well.

    Returns
    -------
    list of list
        For each row its label and, if wanted, the probability of every class.
    """
    from reticent.service.keys import ANONYMOUS
    from reticent.service.requests import Request, digest

    rows = schema.encode(chunk)
    request = Request(ANONYMOUS, rows, key, digest(rows.tobytes()), probabilities=probabilities)
    (found,) = answering.answer([request])
    if isinstance(found, Exception):
        raise found
    if found.probabilities is None:
        return _cells(found.labels, None)
    order = [answering.classes.index(one) for one in schema.classes]  # that of a server
    return _cells(found.labels, found.probabilities[:, order])


def _ask_server(client: Client, columns: dict[str, Any], key: str, probabilities: bool) -> list[list[Any]]:
    if not probabilities:
        return _cells(client.ask(columns, idempotency_key=key).tolist(), None)
    found = client.ask_with_probabilities(columns, idempotency_key=key)
    return _cells(found.labels.tolist(), found.probabilities)


def _cells(labels: list[Any], probabilities: Any) -> list[list[Any]]:
    """The cells of each answer."""
    rest = [[]] * len(labels) if probabilities is None else probabilities.tolist()
    return [[label, *others] for label, others in zip(labels, rest, strict=True)]


def _header(target: str, classes: Iterable[Any]) -> list[str]:
    return [target, *(f"P({one})" for one in classes)]


def _classes_of_server(client: Client) -> list[str]:
    """The classes of the probabilities that a server offers."""
    found = client.metadata()
    if all(output["name"] != PROBABILITIES for output in found["outputs"]):
        raise UsageError("--probabilities: the server has none. Serve one private model with --probabilities")
    return list(found["parameters"]["classes"])


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
