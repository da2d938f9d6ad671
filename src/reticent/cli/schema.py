"""`reticent schema`: draft a schema from the header of a table."""

from __future__ import annotations

from pathlib import Path

from reticent.cli.errors import UsageError, as_usage_errors


def schema(table: Path, *, target: str | None = None, group: str | None = None, out: Path | None = None) -> int:
    """Draft a schema for a table, from its header alone.

    Ranges, categories and classes are left empty: fill them in from what is known about the columns, never from the
    rows. A Parquet or Arrow file also declares the types of its columns.

    Parameters
    ----------
    table
        A CSV, Parquet or Arrow file.
    target
        The column to predict.
    group
        The column that names the person a row belongs to, if one person may have several rows.
    out
        A file to write the draft to; by default it is printed.
    """
    from reticent.data.schema_draft import draft
    from reticent.service import tables

    with as_usage_errors():
        found = tables.open_table(table)
        text = draft(found.names, found.types, target=target, group=group)
    if out is None:
        print(text, end="")
        return 0
    try:
        with open(out, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"--out: {out} exists; delete it, or name another file") from None
    except OSError as error:
        raise UsageError(f"--out: {out}: {error.strerror}") from error
    print(f"Drafted {out} from the names of the {len(found.names)} columns; no row was read.")
    print("Fill in the ranges, categories and classes from what is known about them, then: reticent fit --schema …")
    return 0
