"""The command line: one module per command. `reticent --help` lists them.

Starting up is light: a command imports what it needs when it runs.
"""

from reticent.extras import require

require("service", "use the reticent command")  # before a command imports what may be missing

from reticent.cli.app import main  # noqa: E402

__all__ = ["main"]
