"""The command line: one module per command. `reticent --help` lists them.

Starting up is light: a command imports what it needs when it runs.
"""

from reticent.cli.app import main

__all__ = ["main"]
