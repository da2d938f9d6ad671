"""The `reticent` command, also as `python -m reticent`: says which extra is missing before it loads anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from reticent.errors import MissingExtra
from reticent.extras import require


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 if the command line is not installed."""
    try:
        require("service", "use the reticent command")
    except MissingExtra as error:
        print(f"reticent: {error}", file=sys.stderr)
        return 2
    from reticent import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
