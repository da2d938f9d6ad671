"""Run one command of an application; a refusal is one line on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from reticent.cli.errors import UsageError


def run(app: App, arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command they name, and return its exit code."""
    try:
        command, bound, *_ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        return command(*bound.args, **bound.kwargs) or 0
    except (CycloptsError, UsageError) as error:
        print(f"reticent: {' '.join(str(error).split())}", file=sys.stderr)
        return error.code if isinstance(error, UsageError) else 2
    except KeyboardInterrupt:
        return 130
