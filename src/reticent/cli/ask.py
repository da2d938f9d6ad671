"""`reticent ask`: the labels of all rows of a table, from a running server or from the predictor itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.cli.columns import KnownColumns
from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.feedback import ANSWER_ID
from reticent.cli.opening import schema_of
from reticent.cli.options import Flag
from reticent.cli.own_parts import Own, OwnParts
from reticent.cli.progress import progress_bar
from reticent.cli.running_server import here_or_served, naming_the_key, read_key, who_sends

if TYPE_CHECKING:
    from reticent.data.schema import Schema
    from reticent.service.answering import AnsweringService
    from reticent.service.client import Client

ROWS_PER_REQUEST = 10_000
PROBABILITIES, ANSWER_IDS = "probabilities", "answer_ids"  # outputs of a server that has them


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
        A CSV file to write the answers to, one per row, in the order of the table. If the predictor takes feedback, it
        also has the column answer_id, by which `reticent feedback` gives the true labels later.
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
    from reticent.cli.sent_rows import send_all
    from reticent.service import tables

    with as_usage_errors(), naming_the_key(key_file), ExitStack() as cleanup:
        found = tables.open_table(table)
        check_out(out, resume)
        answerer = cleanup.enter_context(_answerer(name, url, read_key(key_file), own, probabilities))
        tables.check_columns(found, answerer.columns.names)
        with progress_bar("counting rows", quiet=quiet) as advance:
            rows = found.count(advance)
        answers = cleanup.enter_context(AnswerFile(out, answerer.header, rows, table.stat().st_size, answerer.client))
        known = answerer.columns
        advance = cleanup.enter_context(progress_bar("asking", rows, quiet=quiet))
        chunks = found.chunks(known.names, None, ROWS_PER_REQUEST, known.numbers, as_floats=True)
        try:
            send_all(
                chunks, answers, lambda chunk, key: answers.add(answerer.ask(chunk, key)), advance,
                rows=ROWS_PER_REQUEST,
            )  # fmt: skip
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
    columns : KnownColumns
        The columns to ask with.
    header : list of str
        Headers of the columns of answers: the target and, with feedback, answer_id; with probabilities, the classes.
    client : str
        Who asks. Idempotency keys belong to a client.
    ask : callable
        Maps columns and an idempotency key to the cells of each answer.
    """

    columns: KnownColumns
    header: list[str]
    client: str
    ask: Callable[[dict[str, Any], str], list[list[Any]]]


@contextmanager
def _answerer(
    name: str, url: str | None, key: str | None, own: OwnParts | None, probabilities: bool
) -> Iterator[Answerer]:
    from reticent.service.client import Client

    with here_or_served(name, url, key, own) as found:
        if not isinstance(found, Client):
            if probabilities and (why := found.no_probabilities) is not None:
                raise UsageError(f"--probabilities: {why}")
            schema = schema_of(found.home.folder, found.home.model)
            yield Answerer(
                columns=KnownColumns.of_schema(schema),
                header=_header(schema.target, schema.classes if probabilities else (), ids=_gives_ids(found)),
                client="here",
                ask=lambda chunk, key: ask_predictor(found, schema, chunk, key, probabilities),
            )
            return
        columns = KnownColumns.of_server(name, found)
        outputs = {output["name"] for output in found.metadata()["outputs"]}
        classes = _classes_of_server(found) if probabilities else ()
        header = _header(columns.target or "answer", classes, ids=ANSWER_IDS in outputs)
        yield Answerer(
            columns,
            header,
            who_sends(key),
            lambda chunk, key: _ask_server(found, columns.typed(chunk), key, probabilities, ids=ANSWER_ID in header),
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
        For each row its label and, if the predictor takes feedback, its answer_id, or if wanted, the probability of
        every class.
    """
    from reticent.service.keys import ANONYMOUS
    from reticent.service.requests import Request, digest

    rows = schema.encode(chunk)
    request = Request(ANONYMOUS, rows, key, digest(rows.tobytes()), probabilities=probabilities)
    (found,) = answering.answer([request])
    if isinstance(found, Exception):
        raise found
    if found.probabilities is None:
        return _cells(found.labels, found.tickets, None)
    order = [answering.classes.index(one) for one in schema.classes]  # that of a server
    return _cells(found.labels, None, found.probabilities[:, order])


def _ask_server(
    client: Client, columns: dict[str, Any], key: str, probabilities: bool, *, ids: bool
) -> list[list[Any]]:
    if ids:
        answers = client.ask_with_answer_ids(columns, idempotency_key=key)
        return _cells(answers.labels.tolist(), answers.answer_ids.tolist(), None)
    if not probabilities:
        return _cells(client.ask(columns, idempotency_key=key).tolist(), None, None)
    found = client.ask_with_probabilities(columns, idempotency_key=key)
    return _cells(found.labels.tolist(), None, found.probabilities)


def _cells(labels: list[Any], ids: Sequence[str] | None, probabilities: Any) -> list[list[Any]]:
    """The cells of each answer."""
    if ids is not None:  # one private model takes no feedback, and nothing else has probabilities
        return [[label, one] for label, one in zip(labels, ids, strict=True)]
    rest = [[]] * len(labels) if probabilities is None else probabilities.tolist()
    return [[label, *others] for label, others in zip(labels, rest, strict=True)]


def _header(target: str, classes: Iterable[Any], *, ids: bool) -> list[str]:
    return [target, *([ANSWER_ID] if ids else []), *(f"P({one})" for one in classes)]


def _gives_ids(answering: AnsweringService) -> bool:
    """Whether labels can be given later, by the ids of answers."""
    return answering.status().truth in ("feedback", "both")


def _classes_of_server(client: Client) -> list[str]:
    """The classes of the probabilities that a server offers."""
    found = client.metadata()
    if all(output["name"] != PROBABILITIES for output in found["outputs"]):
        raise UsageError("--probabilities: the server has none. Serve one private model with --probabilities")
    return list(found["parameters"]["classes"])
