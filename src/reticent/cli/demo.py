"""`reticent demo`: serve two predictors of a made-up clinic, one of which learns its outcomes as they come."""

from __future__ import annotations

from pathlib import Path

from reticent.cli.errors import UsageError


def demo(*, seconds: float | None = None, write: Path | None = None) -> int:
    """Make up a clinic that changes, and serve two private predictors of it. Ctrl-C ends it.

    One learns from outcomes as they become known, the other has learned once. Clients ask both about the same
    patients, and a page shows month by month how often each is right. Each of the two has its dashboard.

    Parameters
    ----------
    seconds
        End after this many seconds of asking.
    write
        Only write the tables of the guide, patients.csv and new.csv, to this folder.
    """
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--seconds must be above 0, got {seconds:g}")
    if write is None:
        from reticent.cli.clinic_service import show

        return show(seconds)
    from reticent.cli.clinic import write_example

    try:
        write_example(write)
    except OSError as error:
        raise UsageError(f"--write: {error.filename}: {error.strerror}") from error
    print(f"wrote {write / 'patients.csv'} and {write / 'new.csv'}")
    return 0
