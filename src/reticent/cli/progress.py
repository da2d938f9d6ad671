"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(description: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar while a step runs; it is gone when the step is done.

    Nothing is shown if standard error is not a terminal.

    Parameters
    ----------
    description : str
        What the step does.
    total : int, default None
        Number of rows to process; None if it is unknown.
    quiet : bool, default False
        Show nothing.

    Yields
    ------
    callable
        Advances the bar by a number of rows.
    """
    from reticent.service.tables import progress

    with progress(quiet=quiet) as bars:
        task = bars.add_task(description, total=total)
        yield lambda rows: bars.advance(task, rows)
