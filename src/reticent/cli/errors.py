"""How a command refuses: a message of one line, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """A request that cannot be met as stated.

    Parameters
    ----------
    message : str
        Names the option, the value it had, and what would be accepted. It never repeats a value of a table.
    code : int, default 2
        Exit code of the process.
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def as_usage_errors(*, serving: bool = False) -> Iterator[None]:
    """Turn every error of the package into a `UsageError`.

    Expected errors keep their message: none of them repeats a value of a table. An unexpected error is reported by
    its type and place in the code, since its message may hold data.

    Parameters
    ----------
    serving : bool, default False
        Choose the exit code for a supervisor, which it tells whether a restart may help.
    """
    import sqlite3

    from reticent.errors import BudgetExhausted, InsufficientData, MissingExtra
    from reticent.service import halting, traces

    expected = (
        ValueError, TypeError, BudgetExhausted, InsufficientData, MissingExtra, OSError, RuntimeError, sqlite3.Error,
    )  # fmt: skip
    try:
        yield
    except expected as error:
        raise UsageError(_message(error), halting.code_of_refusal(error) if serving else 2) from error
    except UsageError:
        raise
    except Exception as error:
        where = traces.rendered(error)
        raise UsageError(f"an unexpected error: {where}", halting.CODES["program"]) from None


def _message(error: Exception) -> str:
    import sqlite3

    from reticent.service import traces

    if getattr(error, "kind", None) in ("no-key", "not-allowed"):  # of a ServiceError
        return "the server requires a key that allows this: set $RETICENT_KEY, or name a file with --key-file"
    if getattr(error, "kind", None) == "key-reused" or type(error).__name__ == "KeyReused":
        return (
            "--resume: the rows of the last question have changed: restore the table, or start over with another --out"
        )
    if isinstance(error, sqlite3.Error):
        return f"the store or the keys cannot be used: {error}"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return traces.message_of(error)
