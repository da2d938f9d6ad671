"""`reticent backup`: copy a predictor into one file."""

from __future__ import annotations

import shlex
from pathlib import Path

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.opening import existing_folder
from reticent.cli.options import Flag
from reticent.cli.progress import progress_bar


def backup(name: str, file: Path, *, final: Flag = False, quiet: Flag = False) -> int:
    """Copy a predictor into one file, also while it is served. The file is as secret as the table.

    Parameters
    ----------
    name
        The predictor.
    file
        A new file.
    final
        Retire the predictor first: it stops answering, and the backup can be restored to replace it. Stop its server
        before.
    quiet
        Show no progress.
    """
    from reticent.service import backup

    with as_usage_errors():
        folder = existing_folder(name)
        if not file.parent.is_dir():
            raise UsageError(f"there is no folder {file.parent}")
        with progress_bar("copying", quiet=quiet):
            made = backup.write(folder, file, final=final)
    print(f"{name} is in {file}: phase {made.phase}, {made.length:,} entries of its answer log, head {made.head}.")
    if final:
        print(f"{name} answers no more. To continue, once: reticent restore {shlex.quote(str(file))} --name …")
    else:
        print("Restored, it can answer only if nothing is answered after this; otherwise it holds records only.")
    return 0
