"""`reticent restore`: a predictor from a backup."""

from __future__ import annotations

import shlex
from pathlib import Path

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.options import Flag
from reticent.cli.progress import progress_bar


def restore(file: Path, *, name: str, head: str | None = None, quiet: Flag = False) -> int:
    """Restore a predictor from a backup: it continues if no answer is missing, and otherwise holds records only.

    A final backup continues. Any other backup does not know what was answered after it was made; those answers would
    be given a second time, at the cost of the same people.

    Parameters
    ----------
    file
        A file that `reticent backup` wrote.
    name
        The name of the restored predictor.
    head
        The last hash of the answer log when the original predictor stopped for good. If the backup ends with it, no
        answer is missing, and the predictor continues. Nobody can check that it is the last one, so be sure of it.
    quiet
        Show no progress.
    """
    from reticent.service import backup, home

    with as_usage_errors():
        folder = home.folder_of(name)
        if not file.is_file():
            raise UsageError(f"there is no file {file}")
        with progress_bar("restoring", quiet=quiet):
            made, continues = backup.restore(file, folder, head=head)
    print(f"{name} is as {made.name} was, in phase {made.phase}, after {made.length:,} entries of its answer log.")
    if continues:
        print(
            "It continues from there. Keys are as they were, too: revoke again what was revoked since. Next: reticent "
            f"serve {shlex.quote(name)}"
        )
    else:
        print(
            "It holds records only, and answers nothing: the original may have answered since. If you know that it did "
            "not, delete this one and restore with --head, the last hash of its answer log."
        )
    return 0
