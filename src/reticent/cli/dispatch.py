"""Run one command of an application; a refusal is one line on standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError

from reticent.cli.errors import UsageError


def run(app: App, arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command they name, and return its exit code."""
    try:
        command, bound, *_ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        return command(*bound.args, **bound.kwargs) or 0
    except MissingArgumentError as error:
        print(f"reticent: {_missing(error)}", file=sys.stderr)
        return 2
    except (CycloptsError, UsageError) as error:
        print(f"reticent: {' '.join(str(error).split())}", file=sys.stderr)
        return error.code if isinstance(error, UsageError) else 2
    except KeyboardInterrupt:
        return 130


def _missing(error: MissingArgumentError) -> str:
    """What is missing: an option, its value, or an argument, as the usage names it."""
    if error.keyword is not None or error.argument is None:
        return f"{error.keyword or 'an option'} needs a value"
    name = error.argument.name
    shown = f"{name.removeprefix('--').upper()} (or {name})" if error.argument.field_info.is_positional else name
    suggestion = re.search(r" Did you mean .*\?", str(error))
    return f"{shown} must be given{'' if suggestion is None else f'.{suggestion[0]}'}"
