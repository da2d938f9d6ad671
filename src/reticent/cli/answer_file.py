"""A file of answers that `reticent ask` can continue after any interruption, without being charged twice."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from reticent.cli.sent_rows import SentRows


class AnswerFile(SentRows):
    """A file of answers and, until it is finished, a record beside it of the request under way.

    The record also holds the length of the file before the request: `--resume` cuts off what was written after it.

    Parameters
    ----------
    out : Path
        The file of answers; it is created, or continued if there is a record beside it.
    header : sequence of str
        Headers of its columns.
    rows, size : int
        Number of rows and of bytes of the table. A table of other numbers is refused.
    client : str
        Who asks. Idempotency keys belong to a client.
    """

    def __init__(self, out: Path, header: Sequence[str], rows: int, size: int, client: str) -> None:
        first = _line(header)
        super().__init__(record_of(out), out, rows=rows, size=size, client=client, length=len(first))
        self.out = out
        if not self.continued or (self.done == 0 and (not out.exists() or out.stat().st_size == 0)):
            with open(out, "wb" if self.continued else "xb") as file:
                file.write(first)
        self._file = open(out, "r+b")  # noqa: SIM115  # closed on leaving
        if self._file.read(len(first)) != first or self._file.seek(0, os.SEEK_END) < self._page["length"]:
            self._file.close()
            raise ValueError(f"--resume: {out} no longer holds the answers that were written to it")
        self._file.truncate(self._page["length"])  # drop answers of a request that was not recorded as done
        self._file.seek(0, os.SEEK_END)

    def add(self, answers: Sequence[Sequence[Any]]) -> None:
        """Write the cells of answers to disk."""
        self._file.write(b"".join(map(_line, answers)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.acknowledge(len(answers), length=self._file.tell())
        self._write()

    def finish(self) -> None:
        """Remove the record, when all rows are answered."""
        self.remove()

    def leave(self, error: BaseException) -> None:
        """Say how to continue; if certainly nothing was answered, leave no files behind."""
        if self.nothing_happened(error):
            self.remove()
            self.out.unlink()
        elif self.done < self._rows:
            print(
                f"reticent: {self.done:,} of {self._rows:,} rows are answered in {self.out}; the rest can be asked "
                "with --resume",
                file=sys.stderr,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def record_of(out: Path) -> Path:
    """The record of a file of answers, until that is finished."""
    return out.with_name(f"{out.name}.asking")


def check_out(out: Path, resume: bool) -> None:
    """Refuse a file that would be overwritten, or that cannot be continued, before anything is asked."""
    begun = record_of(out).exists()
    if not resume and (begun or out.exists()):
        there = out if out.exists() else record_of(out)
        options = "name another file, or continue it with --resume" if begun else "or name another file"
        raise ValueError(f"--out: {there} exists; delete it, {options}")
    if resume and out.exists() and not begun:
        raise ValueError(f"--resume: {out} is finished, or was not started by reticent ask; name another file")
    if not out.parent.is_dir():
        raise ValueError(f"--out: there is no folder {out.parent}")


def _line(cells: Sequence[Any]) -> bytes:
    """A line of a CSV file; booleans as TOML and JSON write them."""
    text = io.StringIO()
    written = [("false", "true")[cell] if isinstance(cell, bool) else cell for cell in cells]
    csv.writer(text, lineterminator="\n").writerow(written)
    return text.getvalue().encode()
