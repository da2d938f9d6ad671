"""Why a service stopped answering, what is recorded of it, and the exit code of its process."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from reticent.service import traces
from reticent.service.files import private
from reticent.service.store.protocol import Damaged, NotStored

FILE = "halted"  # in the folder of a predictor
UNREADABLE = "unknown"  # the type of a halt whose record cannot be read
CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

Kind = Literal["system", "store", "program", "stop"]

# As in sysexits.h: EX_TEMPFAIL, EX_DATAERR, EX_SOFTWARE.
CODES: dict[Kind, int] = {"system": 75, "store": 65, "program": 70, "stop": 0}
WORDS: dict[Kind, str] = {
    "system": "the system refused something",
    "store": "the store is damaged",
    "program": "an error in the program",
    "stop": "it was asked to stop",
}
ADVICE: dict[Kind, str] = {
    "system": "Check the disk, its free space, and the limits of the process; then start it again.",
    "store": "Starting it again does not help. See 'What is refused' in docs/service/store.md.",
    "program": (
        "It does not start again by itself: whether it fails may depend on what was asked or learned, and each start "
        "would show that. Report the type and the locations below, fix the cause, then delete the file {file}."
    ),
    "stop": "",
}


class Interrupted(ChildProcessError):
    """The service stops, and does not wait for what is being learned."""


class StillHalted(RuntimeError):
    """A predictor that halted by an error in the program, and that no operator has allowed to continue."""


@dataclass(frozen=True)
class Halt:
    """Why answering stopped: the kind of the fault, its type and locations, and when."""

    kind: Kind
    type: str
    trace: str  # as by `traces.rendered`
    when: float  # seconds since 1970

    @classmethod
    def of(cls, error: BaseException, clock: Callable[[], float] = time.time) -> Halt:
        """The halt that an error causes."""
        name = error.strerror if isinstance(error, OSError) else None
        if isinstance(error, NotStored):
            name = name or getattr(error.__cause__, "sqlite_errorname", None)
        return cls(kind_of(error), name or type(error).__qualname__, traces.rendered(error), clock())

    @property
    def code(self) -> int:
        """The exit code of the process."""
        return CODES[self.kind]

    @property
    def public(self) -> str:
        """What everyone with a key may know. The type of an error in the program may depend on what was asked."""
        why = self.type if self.kind == "system" else WORDS[self.kind]
        return f"nothing is answered until the service is started again ({why})"

    def words(self, folder: Path) -> str:
        """What the operator may know."""
        if not self.trace and self.type == UNREADABLE:
            return (
                f"it stopped for an unknown reason, since the record of it, {folder / FILE}, cannot be read. It does "
                "not start again by itself: fix the cause, then delete that file."
            )
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.when))
        advice = ADVICE[self.kind].format(file=folder / FILE)
        return f"{when} UTC: {WORDS[self.kind]} ({self.type}). {advice}"


def kind_of(error: BaseException) -> Kind:
    """The kind of a fault; one that is not known is an error in the program.

    >>> kind_of(OSError(28, "No space left on device")), kind_of(KeyError("a secret"))
    ('system', 'program')
    """
    if isinstance(error, Interrupted):
        return "stop"
    if isinstance(error, Damaged):
        return "store"
    if isinstance(error, NotStored) and isinstance(error.__cause__, sqlite3.Error):
        return kind_of(error.__cause__)
    if isinstance(error, sqlite3.Error):
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in CORRUPT:
            return "store"
        return "system" if isinstance(error, sqlite3.OperationalError) else "program"
    return "system" if isinstance(error, OSError | MemoryError) else "program"


def code_of_refusal(error: BaseException) -> int:
    """The exit code of a service that cannot start: 2 if it was called in a wrong way."""
    if isinstance(error, StillHalted):
        return CODES["program"]
    kind = kind_of(error)
    return CODES[kind] if kind in ("system", "store") else 2


def record(folder: Path, halt: Halt) -> None:
    """Record why a service stopped, where the next start finds it, if the disk allows that."""
    if halt.kind == "stop":
        return
    with suppress(OSError):
        unfinished = folder / f".{FILE}"
        with open(unfinished, "w", encoding="utf-8", opener=private) as file:
            json.dump(asdict(halt), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, folder / FILE)


def last(folder: Path) -> Halt | None:
    """Why the service stopped last time, if it has not started since."""
    try:
        return Halt(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):  # it is incomplete, or was written by hand
        return Halt("program", UNREADABLE, "", 0.0)


def check_not_halted(folder: Path) -> None:
    """Refuse to answer from a folder whose service an error in the program has stopped."""
    halt = last(folder)
    if halt is not None and halt.kind == "program":
        raise StillHalted(f"{folder.name} has stopped answering: {halt.words(folder)}\n{halt.trace}".strip())


def clear(folder: Path) -> None:
    """Remove the record of a halt that the system caused, after a successful start."""
    if (halt := last(folder)) is not None and halt.kind != "program":
        with suppress(OSError):
            (folder / FILE).unlink()
