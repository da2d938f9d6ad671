"""Rows of a CSV file, many lines at once: plain lines are split together, and all others are read by `csv`.

A block is some lines of a file. If it has no quotes and every line has as many cells as the header, then its cells are
what separators and line feeds part. Any other block is read by `csv`, a line at a time. Both ways read the same cells.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from io import BytesIO, StringIO
from typing import IO, NamedTuple

import numpy as np

BLOCK = 1 << 17  # bytes: so few that the cells of a block stay in the cache of a processor
LONGEST = 1 << 24  # characters of a cell
LINE_FEED = 10
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Block(NamedTuple):
    """Columns of some rows, as text. `plain` if there are only ASCII characters, and no underscore, in any cell."""

    rows: int
    columns: list[list[str]]
    plain: bool


class BlockReader:
    """The rows after the header of a CSV file in UTF-8 whose lines end in line feeds.

    Parameters
    ----------
    file : binary file
        The file, at its beginning.
    separator : str
        What separates cells: one ASCII character.
    width : int
        The number of cells in the header.
    """

    def __init__(self, file: IO[bytes], separator: str, width: int) -> None:
        self._lines, self._separator, self._width = _Lines(file), separator, width
        for header in csv.reader(self._lines, delimiter=separator):
            if header:
                break

    def blocks(self, indices: Sequence[int]) -> Iterator[Block]:
        """The columns at these indices, some rows at a time. Cells that a line lacks are empty."""
        for block, records in self._parts():
            found = None if block is None else self._split(block, indices)
            if found is not None:
                yield found
                continue
            rows = self._records(block) if records is None else records
            full = [line + [""] * (self._width - len(line)) for line in rows]
            if full:
                yield Block(len(full), [[line[index] for line in full] for index in indices], plain=False)

    def counts(self) -> Iterator[int]:
        """The number of rows of each block."""
        for block, records in self._parts():
            if block is not None and (self._width == 1 or not (block.startswith(b"\n") or b"\n\n" in block)):
                yield block.count(b"\n")
            else:
                yield len(self._records(block) if records is None else records)

    def _parts(self) -> Iterator[tuple[bytes | None, list[list[str]] | None]]:
        """Blocks without quotes, and the records of all others."""
        while True:
            if self._lines.pending:
                yield None, self._records()
                continue
            block = self._lines.block()
            if not block:
                return
            without_quotes = _without_quotes(block)
            if without_quotes is not None:
                yield without_quotes, None
            else:
                yield None, self._records(block)

    def _records(self, block: bytes | None = None) -> list[list[str]]:
        """The rows of a block, and of what a quoted cell in it reaches into."""
        if block is not None:
            self._lines.put_back(block)
        found = []
        for line in csv.reader(self._lines, delimiter=self._separator):
            if line or self._width == 1:
                found.append(line or [""])
            if not self._lines.pending:
                break
        return found

    def _split(self, block: bytes, indices: Sequence[int]) -> Block | None:
        """The columns of lines that all have the width of the header; None if one has not."""
        characters = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero((characters == ord(self._separator)) | (characters == LINE_FEED))
        rows, rest = divmod(len(ends), self._width)
        if rest or block.count(b"\n") != rows or (characters[ends[self._width - 1 :: self._width]] != LINE_FEED).any():
            return None
        cells = block.decode("utf-8", "replace").replace("\n", self._separator).split(self._separator)
        cells.pop()
        return Block(rows, [cells[index :: self._width] for index in indices], block.isascii() and b"_" not in block)


def _without_quotes(block: bytes) -> bytes | None:
    """A block of lines that end in line feeds alone; None if it holds what only `csv` can read."""
    if b'"' in block or b"\0" in block or len(block) > LONGEST:
        return None
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        if b"\r" in block:
            return None
    return block if block.endswith(b"\n") else block + b"\n"


class _Lines:
    """The lines of a file as text, for `csv`, one at a time; or many at once, as bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._again = BytesIO()  # what was put back
        self._parts: deque[str] = deque()  # of a line, between carriage returns
        if (start := file.read(len(BYTE_ORDER_MARK))) != BYTE_ORDER_MARK:
            self.put_back(start + file.readline())

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._parts:
            line = self._again.readline() or self._file.readline()
            if not line:
                raise StopIteration
            text = line.decode("utf-8", "replace").replace("\0", "\ufffd")
            if "\r" not in text.removesuffix("\r\n"):
                return text
            self._parts.extend(StringIO(text, newline=""))
        return self._parts.popleft()

    @property
    def pending(self) -> bool:
        """Whether some lines were read ahead of those that were given out."""
        return bool(self._parts) or self._again.tell() < len(self._again.getbuffer())

    def put_back(self, block: bytes) -> None:
        """Give these lines out again; nothing must be pending."""
        self._again = BytesIO(block)

    def block(self) -> bytes:
        """Some whole lines; nothing must be pending. Empty at the end of the file."""
        block = self._file.read(BLOCK)
        return block if block.endswith(b"\n") else block + self._file.readline()
