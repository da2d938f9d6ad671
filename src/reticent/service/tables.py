"""Reading tables, a part at a time: CSV by ourselves, Parquet and Arrow by pyarrow."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from itertools import dropwhile, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reticent.data.cells import as_numbers, parsed_numbers
from reticent.errors import MissingExtra
from reticent.extras import require
from reticent.service.csv_blocks import LONGEST, Block, BlockReader

if TYPE_CHECKING:
    from rich.progress import Progress

Array = NDArray[Any]
Chunk = dict[str, Any]  # a column each: a list of text, or an array
Stamp = tuple[int, int, int, int]  # device, number, size and time of change of a file
Advance = Callable[[int], None]  # called with the number of rows that were read

ROWS = 16_384  # in a part
LINES = 1024  # that are read at once by `csv`
BEGINNING = 1 << 16  # bytes of a file that show how its lines end
SEPARATORS = (",", ";", "\t")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how a file in UTF-16 begins
ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
}  # fmt: skip


class TableError(ValueError):
    """A table that cannot be read; the message never repeats what is in it."""


class TableFile(Protocol):
    """A table in a file."""

    path: Path
    names: list[str]
    types: dict[str, str]  # "number" or "category", for the columns whose type the file declares
    unreadable: dict[str, str]  # columns of a declared type that is neither for numbers nor for text, and why not
    stamp: Stamp | None  # of the file when it was opened; None if there is no file

    def count(self, advance: Advance | None = None) -> int:
        """How many rows there are; nothing else is taken from them."""

    def chunks(
        self,
        columns: Sequence[str],
        advance: Advance | None = None,
        rows: int = ROWS,
        numbers: Collection[str] = (),
        *,
        as_floats: bool = False,
    ) -> Iterator[Chunk]:
        """The named columns, some rows at a time; `numbers` are those of them that are to be numbers.

        With `as_floats` these are arrays of floats, as `cells.as_numbers` reads their cells.
        """


def open_table(path: str | Path) -> TableFile:
    """The table in a file, by the ending of its name; only its header is read."""
    place = Path(path)
    kind = ENDINGS.get(place.suffix.lower())
    if kind is None:
        raise TableError(f"{place} must end in one of {', '.join(ENDINGS)}")
    if not place.is_file():
        raise TableError(f"there is no file {place}")
    try:
        table: TableFile = Csv(place) if kind == "csv" else Parquet(place) if kind == "parquet" else Arrow(place)
    except OSError as error:
        raise TableError(f"{place} cannot be read: {error.strerror or 'it is damaged, or of another kind'}") from None
    return table


def check_columns(table: TableFile, columns: Sequence[str]) -> None:
    """Refuse a table without these columns."""
    if missing := [name for name in columns if name not in table.names]:
        none = f"{table.path} has no column {', '.join(map(repr, missing))}"
        if len(missing) == len(columns):  # what it names instead may be a row
            raise TableError(
                f"{none}: its first line must name the columns, as the schema or the options do, separated by commas, "
                "semicolons or tabs"
            )
        raise TableError(f"{none}; there are: {', '.join(table.names)}")


def check_readable(table: TableFile, columns: Sequence[str]) -> None:
    """Refuse a table without these columns, or with one of a type that cannot be read. No row is looked at.

    Parameters
    ----------
    table : TableFile
        The table.
    columns : sequence of str
        The columns that will be read.
    """
    check_columns(table, columns)
    for name in columns:
        if name in table.unreadable:
            raise TableError(f"{table.path}: {table.unreadable[name]}")


def check_unchanged(table: TableFile, rows: int | None = None, counted: int | None = None) -> None:
    """Refuse a table whose file is not the one that was opened, or that has more or fewer rows than were counted.

    It is read several times: to count its rows, to charge for them, and to learn from them. Call this after each
    reading and before anything is released, so that rows in a file that was put in its place are not learned from.

    Parameters
    ----------
    table : TableFile
        The table.
    rows, counted : int or None, default None
        The numbers of rows that were read now, and before.
    """
    if rows != counted or _stamp_of(table.path if table.stamp else None) != table.stamp:
        raise TableError(f"{table.path} has changed while it was read")


def _stamp_of(path: Path | None) -> Stamp | None:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _check_different(path: Path, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name and (earlier := first.setdefault(name, number)) != number:  # not the name: the first line may be a row
            raise TableError(
                f"{path}: two columns have the same name, columns {earlier} and {number}; rename or drop one"
            )


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Csv:
    """Lines of cells, the first of which names the columns, in UTF-8, or UTF-16 if it says so. All cells are text.

    What separates cells is a comma, or a semicolon or tab if that gives the first line more names. Where it is a
    semicolon, numbers may have a decimal comma. A column without a name is not looked at.

    No line is refused for what it holds: cells that a line lacks are empty, those that it has too many are not looked
    at, and bytes that are no text are read as marks for that. An empty line is no row, unless there is one column: then
    it is a row whose cell is empty. Quotes hold cells together, also over several lines; so they, and the ends of
    lines, say how many rows there are.

    It is a file, or a `body` that is called by `path` in messages.
    """

    def __init__(self, path: Path | str, body: bytes | None = None) -> None:
        self.path, self._body = Path(path), body
        self.stamp = _stamp_of(self.path if body is None else None)
        self.types: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        with self._opened() as file:
            start = file.read(BEGINNING)
        self._encoding = "utf-16" if start[:2] in UTF_16 else "utf-8-sig"
        self._in_blocks = self._encoding != "utf-16" and b"\n" in start
        self._header: list[str] = []
        for separator in SEPARATORS:
            with self._lines(separator) as lines:
                header = [name.strip() for name in next(lines, [])]
            if len(header) > len(self._header):
                self._header, self._separator = header, separator
        self.names = [name for name in self._header if name]
        if not self.names:
            raise TableError(f"{self.path} must start with a line that names the columns")
        _check_different(self.path, self._header)

    def count(self, advance: Advance | None = None) -> int:
        """How many rows there are after the first line."""
        total = 0
        with self._reading() as reader:
            for rows in reader.counts() if reader else (block.rows for block in self._blocks_of_records(())):
                total += rows
                if advance is not None:
                    advance(rows)
        return total

    def chunks(
        self,
        columns: Sequence[str],
        advance: Advance | None = None,
        rows: int = ROWS,
        numbers: Collection[str] = (),
        *,
        as_floats: bool = False,
    ) -> Iterator[Chunk]:
        """The named columns as lists of text or, with `as_floats`, the numbers as arrays."""
        check_columns(self, columns)
        indices = [self._header.index(name) for name in columns]
        parts: list[list[Any]] = [[] for _ in columns]  # of each column, not given out yet
        waiting = 0
        with self._reading() as reader:
            for block in reader.blocks(indices) if reader else self._blocks_of_records(indices):
                for index, name in enumerate(columns):
                    parts[index].append(self._read(block, index, as_number=name in numbers, as_floats=as_floats))
                waiting += block.rows
                while waiting >= rows:
                    yield {name: _cut(parts[index], rows) for index, name in enumerate(columns)}
                    waiting -= rows
                    if advance is not None:
                        advance(rows)
        if waiting:
            yield {name: _cut(parts[index], waiting) for index, name in enumerate(columns)}
            if advance is not None:
                advance(waiting)

    def _read(self, block: Block, index: int, *, as_number: bool, as_floats: bool) -> Any:
        cells = block.columns[index]
        if as_number and self._separator == ";":
            cells = [cell if "." in cell else cell.replace(",", ".") for cell in cells]
        return parsed_numbers(cells, plain=block.plain) if as_number and as_floats else cells

    @contextmanager
    def _reading(self) -> Iterator[BlockReader | None]:
        """What reads many lines at once; None for a file whose lines do not end in line feeds, or in UTF-16."""
        if not self._in_blocks:
            yield None
            return
        with self._refusing_long_cells(), self._opened() as file:
            yield BlockReader(file, self._separator, len(self._header))

    def _blocks_of_records(self, indices: Sequence[int]) -> Iterator[Block]:
        """The columns at these indices, read a line at a time."""
        lines = self._rows()
        while part := [line + [""] * (len(self._header) - len(line)) for line in islice(lines, LINES)]:
            yield Block(len(part), [[line[index] for line in part] for index in indices], plain=False)

    def _rows(self) -> Iterator[list[str]]:
        """The lines after the first that are rows."""
        alone = len(self._header) == 1
        with self._lines(self._separator) as lines:
            next(lines)
            yield from (line or [""] for line in lines if line or alone)

    @contextmanager
    def _lines(self, separator: str) -> Iterator[Iterator[list[str]]]:
        """All lines, from the first that is not empty."""
        with self._refusing_long_cells(), self._opened() as file, TextIOWrapper(
            file, encoding=self._encoding, errors="replace", newline=""
        ) as text:
            yield dropwhile(lambda line: not line, csv.reader(_without_nul(text), delimiter=separator))

    @contextmanager
    def _refusing_long_cells(self) -> Iterator[None]:
        _allow_cells_of(LONGEST if self._body is None else len(self._body))
        try:
            yield
        except csv.Error:
            raise TableError(f"{self.path} is no CSV: a cell is longer than {LONGEST} characters") from None

    def _opened(self) -> IO[bytes]:
        return open(self.path, "rb") if self._body is None else BytesIO(self._body)


def _cut(parts: list[Any], rows: int) -> Any:
    """Take so many cells from the parts of a column, which are lists or arrays, and leave the rest."""
    taken, count = [], 0
    while count < rows:
        part = parts.pop(0)
        if count + len(part) > rows:
            parts.insert(0, part[rows - count :])
            part = part[: rows - count]
        taken.append(part)
        count += len(part)
    return np.concatenate(taken) if isinstance(taken[0], np.ndarray) else [cell for part in taken for cell in part]


def _allow_cells_of(length: int) -> None:
    """Let cells be so long, from now on: the limit is one for the whole process, so it is never lowered again."""
    with _limit:
        csv.field_size_limit(max(csv.field_size_limit(), length))


_limit = threading.Lock()


def _without_nul(file: IO[str]) -> Iterator[str]:
    for line in file:
        yield line.replace("\0", "\ufffd") if "\0" in line else line


# ── Parquet and Arrow ─────────────────────────────────────────────────────────────────────────────────────────────


def _pyarrow() -> Any:
    try:
        require("arrow", "read Parquet and Arrow files")
    except MissingExtra as error:
        raise TableError(f"{error}; or write the table as CSV") from None
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet

    return pyarrow


class _Typed:
    """A file whose columns have types. Those that are neither numbers nor text are refused, if they are asked for."""

    path: Path
    stamp: Stamp | None

    def __init__(self, path: Path, schema: Any) -> None:
        self.path, self._schema = path, schema
        self.names: list[str] = list(schema.names)
        self.types = {field.name: kind for field in schema if (kind := _kind(field.type)) is not None}
        self.unreadable = {field.name: _why_not(field) for field in schema if field.name not in self.types}
        _check_different(self.path, self.names)

    def chunks(
        self,
        columns: Sequence[str],
        advance: Advance | None = None,
        rows: int = ROWS,
        numbers: Collection[str] = (),
        *,
        as_floats: bool = False,
    ) -> Iterator[Chunk]:
        """The named columns as arrays; NaN or None for nulls."""
        check_readable(self, columns)
        with _reading(self.path):
            for batch in self._batches(list(columns), rows):
                chunk = {name: _as_array(batch.column(place)) for place, name in enumerate(columns)}
                yield {
                    name: as_numbers(cells) if as_floats and name in numbers else cells for name, cells in chunk.items()
                }
                if advance is not None:
                    advance(batch.num_rows)

    def count(self, advance: Advance | None = None) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        raise NotImplementedError


def _why_not(field: Any) -> str:
    """Why a column of this type cannot be read, and what to do."""
    date = "; write a date as days since a fixed date" if _pyarrow().types.is_temporal(field.type) else ""
    return (
        f"the column {field.name!r} is of type {field.type}: make it a number or text, or leave it out of the schema"
        f"{date}"
    )


class Parquet(_Typed):
    """A Parquet file; pages that are not asked for are not read."""

    def __init__(self, path: Path) -> None:
        arrow = _pyarrow()
        self.stamp = _stamp_of(path)
        with _reading(path):
            self._file = arrow.parquet.ParquetFile(path)
            super().__init__(path, self._file.schema_arrow)

    def count(self, advance: Advance | None = None) -> int:
        """How many rows there are, by the footer."""
        return int(self._file.metadata.num_rows)

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        for batch in self._file.iter_batches(batch_size=rows, columns=columns):
            yield batch.select(columns)


class Arrow(_Typed):
    """An Arrow file, which is mapped, or a stream of Arrow's."""

    def __init__(self, path: Path) -> None:
        self._arrow = _pyarrow()
        self.path, self.stamp = path, _stamp_of(path)
        with _reading(path), self._opened() as batches:
            super().__init__(path, batches.schema)

    def count(self, advance: Advance | None = None) -> int:
        """How many rows there are."""
        with _reading(self.path), self._opened() as batches:
            return sum(one.num_rows for one in _each(batches))

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        with self._opened() as batches:
            for batch in _each(batches):
                chosen = batch.select(columns)
                for start in range(0, batch.num_rows, rows):
                    yield chosen.slice(start, rows)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        ipc = self._arrow.ipc
        with self._arrow.memory_map(str(self.path)) as source:
            try:
                batches = ipc.open_file(source)
            except self._arrow.ArrowInvalid:
                source.seek(0)
                batches = ipc.open_stream(source)
            yield batches


def _each(batches: Any) -> Iterator[Any]:
    if hasattr(batches, "num_record_batches"):
        for place in range(batches.num_record_batches):
            yield batches.get_batch(place)
    else:
        yield from batches


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What pyarrow says of a file that it cannot read may repeat what is in it: so it is not repeated."""
    arrow = _pyarrow()
    try:
        yield
    except arrow.ArrowException:
        raise TableError(f"{path} is damaged, or of another kind than its name says") from None


def _kind(type_: Any) -> str | None:
    """Whether a type of Arrow's is for numbers or for categories; None if it is for neither."""
    types = _pyarrow().types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_boolean(type_) or types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "category"
    return None


def _as_array(column: Any) -> Array:
    arrow = _pyarrow()
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.types.is_decimal(column.type):
        return np.array([None if one is None else float(one) for one in column.to_pylist()], dtype=object)
    if arrow.types.is_integer(column.type) and column.null_count:
        # As floats, whether or not a part has nulls, whole numbers beyond 2^53 would be rounded in some parts only.
        return np.array(column.to_pylist(), dtype=object)
    if arrow.types.is_floating(column.type) or arrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:  # nothing sees to it that text in a file is text: its cells are read by themselves
        values = column.cast(arrow.large_binary()).to_pylist()
    found = np.empty(len(column), dtype=object)
    found[:] = values
    return found


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────


def progress(*, quiet: bool = False) -> Progress:
    """Bars on standard error, removed when done; nothing if that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
