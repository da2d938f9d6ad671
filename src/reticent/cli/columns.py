"""The columns of a table that a predictor knows, and how they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from reticent.cli.opening import schema_of

if TYPE_CHECKING:
    from reticent.data.schema import Schema
    from reticent.service.client import Client


@dataclass(frozen=True)
class KnownColumns:
    """The columns that a predictor knows.

    Attributes
    ----------
    kinds : dict of str to str
        For every column that is learned from, "number" or "category".
    target : str or None
        The column of labels; None if it is not known.
    group : str or None
        The column of groups; None if there is none.
    """

    kinds: dict[str, str]
    target: str | None
    group: str | None = None

    @classmethod
    def of_schema(cls, schema: Schema) -> Self:
        """Those of a schema."""
        return cls({column.name: column.kind for column in schema.columns}, schema.target, schema.group)

    @classmethod
    def of_server(cls, name: str, client: Client) -> Self:
        """From the predictor's folder if it is on this machine, else from its server."""
        from reticent.service import home

        folder = home.folder_of(name)
        if (folder / home.MODEL).is_file():
            return cls.of_schema(schema_of(folder, home.read_model(folder)))
        found = client.metadata()
        text = {tensor["name"] for tensor in found["inputs"] if tensor["datatype"] == "BYTES"}
        known = found["parameters"]
        kinds = {each: "category" if each in text else "number" for each in known["columns"]}
        return cls(kinds, known.get("target"), known.get("group"))

    @property
    def names(self) -> list[str]:
        """The columns that are learned from, in order."""
        return list(self.kinds)

    @property
    def numbers(self) -> set[str]:
        """Those of them that are numbers."""
        return {name for name, kind in self.kinds.items() if kind == "number"}

    def typed(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """These columns as they are sent: a CSV file has text where the service wants numbers."""
        from reticent.data.cells import as_numbers

        return {
            name: as_numbers(chunk[name]) if kind == "number" else texts(chunk[name])
            for name, kind in self.kinds.items()
        }


def texts(cells: Any) -> list[str]:
    """Cells as text, each by itself."""
    from reticent.data.cells import as_text, each

    some = cells.tolist() if hasattr(cells, "tolist") else list(cells)
    return list(each(some, as_text))
