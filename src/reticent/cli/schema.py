"""`reticent schema`: draft a schema from the header of a table, or find one privately."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.options import Flag, Number
from reticent.cli.progress import progress_bar
from reticent.privacy.parameters import check_delta, check_epsilon

if TYPE_CHECKING:
    from reticent.service.tables import TableFile

EXISTS = "--out: {out} exists; delete it, or name another file"


def schema(
    table: Path,
    *,
    target: str | None = None,
    group: str | None = None,
    out: Path | None = None,
    private: Flag = False,
    epsilon: Number | None = None,
    delta: Number | None = None,
    classes: str | None = None,
    categories: str | None = None,
    leave_out: str | None = None,
    data: str | None = None,
    again: Flag = False,
    quiet: Flag = False,
) -> int:
    """Draft a schema for a table from its header alone, or find one privately.

    A draft leaves ranges, categories and classes empty: fill them in from what is known about the columns, never from
    the rows. A Parquet or Arrow file also declares the types of its columns. With --private, ranges and categories are
    found in the rows, with epsilon and delta.

    Parameters
    ----------
    table
        A CSV, Parquet or Arrow file.
    target
        The column to predict.
    group
        The column that names the person a row belongs to, if one person may have several rows.
    out
        A file to write the schema to; by default it is printed.
    private
        Find ranges and categories in the rows, privately. Needs epsilon, delta, target and classes.
    epsilon
        With --private: privacy-loss bound ε of the schema, for everyone in the table.
    delta
        With --private: probability δ with which that bound may fail.
    classes
        With --private: the labels, separated by commas.
    categories
        With --private: columns that are categories although they look like numbers, separated by commas.
    leave_out
        With --private: columns that are not looked at, separated by commas.
    data
        With --private: the data set whose budget pays (see `reticent data`); by default the one that has these rows, or
        a new one.
    again
        With --private: pay once more for rows whose budget is spent: its cap is raised by epsilon and delta.
    quiet
        Show no progress.
    """
    from reticent.data.schema_draft import draft
    from reticent.service import tables

    given = {"--epsilon": epsilon, "--delta": delta, "--classes": classes, "--categories": categories,
             "--leave-out": leave_out, "--data": data, "--again": again or None}  # fmt: skip
    if not private and (needless := [name for name, value in given.items() if value is not None]):
        raise UsageError(f"{', '.join(needless)} must come with --private: a draft reads no row")
    with as_usage_errors():
        found = tables.open_table(table)
        if private:
            return _private(
                found, out, epsilon=epsilon, delta=delta, target=target, group=group, classes=classes,
                categories=categories, leave_out=leave_out, data=data, again=again, quiet=quiet,
            )  # fmt: skip
        text = draft(found.names, found.types, target=target, group=group)
    if out is None:
        print(text, end="")
        return 0
    _write(out, text)
    print(f"Drafted {out} from the names of the {len(found.names)} columns; no row was read.")
    print("Fill in the ranges, categories and classes from what is known about them, then: reticent fit --schema …")
    return 0


def _private(
    table: TableFile,
    out: Path | None,
    *,
    epsilon: Any,
    delta: Any,
    data: str | None,
    again: bool,
    quiet: bool,
    **public: str | None,
) -> int:
    """Find a schema privately, print what was found and what was spent, and write it."""
    from reticent.cli.charging import charge, in_words, recognise
    from reticent.cli.private_schema import search
    from reticent.privacy import guarantee

    if epsilon is None or delta is None:
        raise UsageError("--private needs --epsilon and --delta: what the schema may cost the people in the table")
    if out is not None and out.exists():
        raise UsageError(EXISTS.format(out=out))
    if out is not None and not (out.parent.is_dir() and os.access(out.parent, os.W_OK | os.X_OK)):
        raise UsageError(f"--out: {out.parent} is no folder that can be written to")
    with progress_bar("counting rows", quiet=quiet) as advance:
        rows = table.count(advance)
    wanted = search(
        table,
        rows,
        target=public["target"],
        classes=public["classes"],
        group=public["group"],
        categories=public["categories"],
        leave_out=public["leave_out"],
        quiet=quiet,
    )
    plan = wanted.plan(check_epsilon(epsilon), check_delta(delta, positive=True, rows=wanted.source.units))
    receipt = charge(
        table,
        recognise(table, rows=rows, data=data, quiet=quiet),
        purpose="schema",
        epsilon=epsilon,
        delta=delta,
        event=plan.event,
        group=public["group"],
        data=data,
        again=again,
    )
    print(f"\n{in_words(receipt)}", file=sys.stderr, flush=True)
    found = wanted.release(plan)
    report = "\n".join(f"# {line}".rstrip() for line in wanted.report(found))
    spent = guarantee(plan.event, delta=delta)
    cost = f"epsilon = {spent.epsilon:.4g}, delta = {spent.delta:g}"
    head = f"# Found privately in {rows:,} rows, at {cost}. It is public: edit it and use it as often as you like.\n"
    text = head + report + "\n\n" + (wanted.schema(found).to_toml() if found.columns else "")
    if out is None:
        print(text, end="")
        return 0
    _write(out, text)
    print("\n".join(wanted.report(found)))
    print(f"Spent {cost} on {out}. It is public: edit it, and use it for free: reticent fit --schema {out} …")
    print("The fit itself costs its own epsilon and delta. If the cap of the data set leaves too little, add --again.")
    return 0


def _write(out: Path, text: str) -> None:
    try:
        with open(out, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(EXISTS.format(out=out)) from None
    except OSError as error:
        raise UsageError(f"--out: {out}: {error.strerror}") from error
