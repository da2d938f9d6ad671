"""Schemas that a person fills in: drafts from the header of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reticent.data.schema import SchemaError, toml


def draft(
    names: Sequence[str], types: Mapping[str, str], *, target: str | None = None, group: str | None = None
) -> str:
    """A schema to be filled in: what the names of columns, and the types of a file that declares them, can tell.

    It never holds a value of the table: ranges, categories and classes found in the rows would tell of single ones.

    >>> print(draft(["age", "readmitted"], {}, target="readmitted").partition("[[columns]]")[2].strip())
    name = "age"
    range = []
    categories = []
    """
    for which, name in (("target", target), ("group", group)):
        if name is not None and name not in names:
            raise SchemaError(f"the {which} {name!r} is no column of the table; there are: {', '.join(names)}")
    lines = [
        "# What is public about this table. Fill it in from what is known about the columns without looking at the",
        "# rows: a code book, the law, common sense. Ranges, categories and classes that are copied from the rows give",
        "# single people away; so they were not read, and must not be.",
        "#",
        "# For each column, fill in one of the two, and delete the other:",
        "#   range = [0, 120]          if it is a number: its least and greatest value; values outside are clipped",
        "#                             write a date as a number too: days since a fixed date",
        '#   categories = ["a", "b"]   if it is a category: all that it can be; anything else counts as none of them',
        "# Delete the columns that are not to be learned from.",
        "",
        f"target = {toml(target or '')}  # the column to be predicted",
        'classes = []  # every label that it can have, as in ["no", "yes"]; anything else counts as the first',
        '# group = ""  # the column that names the person a row belongs to, if one may have several rows'
        if group is None
        else f"group = {toml(group)}  # the person a row belongs to: all rows of one person are protected together",
    ]
    for name in names:
        if name not in (target, group):
            lines += ["", "[[columns]]", f"name = {toml(name)}"]
            lines += [] if types.get(name) == "category" else ["range = []"]
            lines += [] if types.get(name) == "number" else ["categories = []"]
    return "\n".join(lines) + "\n"
