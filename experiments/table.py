"""A table that an experiment regenerates: printed on the terminal, written into the docs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of ready-made text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table as the docs include it."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
