"""Standard output for tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console() -> Console:
    """Standard output on which brackets are text, and which is wide enough for a table if it is not a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 120
    return console
