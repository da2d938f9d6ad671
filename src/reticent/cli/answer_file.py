"""A file of answers that `reticent ask` can continue after any interruption, without being charged twice."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from reticent.errors import BudgetExhausted
from reticent.service.client_base import NotSent
from reticent.service.client_messages import ServiceError


class AnswerFile:
    """A file of answers and, until it is finished, a record beside it of the request under way.

    The record holds a random id of the run, the rows of the request, and the length of the file before it. It is on
    disk before the request is sent. Id and rows make the idempotency key. So whenever a run ends, `--resume` repeats
    the same request under the same key, gets the same answers, and is charged once.

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
        self.out, self._record, self._rows = out, record_of(out), rows
        first = _line(header)
        self._page: dict[str, Any] = {
            "run": secrets.token_hex(16), "table": [rows, size], "who": client,
            "done": 0, "asked": 0, "length": len(first),
        }  # fmt: skip
        if self._record.exists():
            self._continue(first)
        else:
            self._write()
            with open(out, "xb") as file:
                file.write(first)
        self.pending: int | None = self._page["asked"] or None
        self._file = open(out, "r+b")  # noqa: SIM115  # closed on leaving
        self._file.truncate(self._page["length"])  # drop answers of a request that was not recorded as done
        self._file.seek(0, os.SEEK_END)

    def _continue(self, header: bytes) -> None:
        try:
            page = json.loads(self._record.read_text(encoding="ascii"))
            same = page.keys() == self._page.keys() and page["table"] == self._page["table"]
        except (ValueError, AttributeError):
            raise ValueError(f"--resume: {self._record} is damaged; delete it and {self.out} to start over") from None
        if not same:
            raise ValueError(f"--resume: the table is not the one that {self.out} was started with")
        if page["asked"] and page["who"] != self._page["who"]:  # an idempotency key belongs to a client
            raise ValueError(
                "--resume: the last rows were asked with another key, or of a server that does not run now, and would "
                "be charged again: ask as before"
            )
        if page["done"] == 0 and (not self.out.exists() or self.out.stat().st_size == 0):
            self.out.write_bytes(header)
        with open(self.out, "rb") as file:
            if file.read(len(header)) != header or file.seek(0, os.SEEK_END) < page["length"]:
                raise ValueError(f"--resume: {self.out} no longer holds the answers that were written to it")
        self._page = {**page, "who": self._page["who"]}

    @property
    def done(self) -> int:
        """How many rows are answered."""
        return int(self._page["done"])

    def begin(self, rows: int) -> str:
        """Record that this many rows are asked next; returns their idempotency key."""
        self._page["asked"] = rows
        self._write()
        return f"{self._page['run']}-{self.done}-{rows}"

    def add(self, answers: Sequence[Sequence[Any]]) -> None:
        """Write the cells of answers to disk."""
        self._file.write(b"".join(map(_line, answers)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._page |= {"done": self.done + len(answers), "asked": 0, "length": self._file.tell()}
        self.pending = None
        self._write()

    def finish(self) -> None:
        """Remove the record, when all rows are answered."""
        self._record.unlink()

    def leave(self, error: BaseException) -> None:
        """Say how to continue; if certainly nothing was answered, leave no files behind."""
        refused = isinstance(error, BudgetExhausted | NotSent) or (
            isinstance(error, ServiceError) and (error.status < 500 or error.kind == "no-answers-left")
        )
        if refused and self.done == 0 and self.pending is None:
            self._record.unlink()
            self.out.unlink()
        elif self.done < self._rows:
            print(
                f"reticent: {self.done:,} of {self._rows:,} rows are answered in {self.out}; the rest can be asked "
                "with --resume",
                file=sys.stderr,
            )

    def _write(self) -> None:
        unfinished = self._record.with_name(f"{self._record.name}.part")
        with open(unfinished, "w", encoding="ascii") as file:
            json.dump(self._page, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self._record)

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
