"""Charge a data set for what a command is about to release. It comes before the command uses a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from reticent.cli.errors import UsageError
from reticent.cli.progress import progress_bar

if TYPE_CHECKING:
    from reticent.exact import Number
    from reticent.privacy.events import Event
    from reticent.service.datasets.fingerprint import Fingerprint
    from reticent.service.datasets.registry import Price, Receipt
    from reticent.service.tables import TableFile

Purpose = Literal["fit", "schema", "labels"]


def recognise(table: TableFile, *, rows: int, data: str | None = None, quiet: bool = False) -> Fingerprint:
    """Read the rows of a table once, to find the data set that has them. The only thing that this decides is who pays.

    Parameters
    ----------
    table : TableFile
        The table.
    rows : int
        The number of rows that were counted; a table that has changed since is refused.
    data : str or None, default None
        A data set that must exist, or no row is read.
    quiet : bool, default False
        Show no progress.
    """
    from reticent.service.tables import check_unchanged

    found = read_fingerprint(table, data=data, quiet=quiet)
    check_unchanged(table, found.rows, rows)
    return found


def charge(
    table: TableFile,
    found: Fingerprint,
    *,
    purpose: Purpose,
    epsilon: Number,
    delta: Number,
    event: Event | None = None,
    predictor: str | None = None,
    group: str | None = None,
    data: str | None = None,
    again: bool = False,
    ahead_of: Price | None = None,
) -> Receipt:
    """Charge the data set that has the rows of a table, or refuse.

    Call it when everything that does not depend on the rows has been checked, and before they are used.

    Parameters
    ----------
    table : TableFile
        The table.
    found : Fingerprint
        Its rows, as `recognise` found them.
    purpose : {"fit", "schema", "labels"}
        What is released: a predictor, a private schema, or the number of labels that are not among the classes.
    epsilon, delta : float or Fraction
        The guarantee of all that will be released.
    event : Event or None, default None
        What it costs, if that is known more closely than by (ε, δ).
    predictor : str or None, default None
        The name of what is made.
    group : str or None, default None
        The column whose groups the guarantee protects; None if it protects rows.
    data : str or None, default None
        The data set that pays; None for the one that has these rows, or a new one.
    again : bool, default False
        Raise the cap if there is too little left.
    ahead_of : Price or None, default None
        What will be charged next. If both do not fit together, nothing is charged.

    Returns
    -------
    Receipt
        What was charged. It is on the disk, and stays there whatever happens next.

    Raises
    ------
    BudgetExhausted
        If less than this is left. Nothing was charged then.
    """
    from reticent.service.datasets import budgets
    from reticent.service.datasets.registry import Registry

    with Registry(create=True) as registry:
        return registry.charge(
            found,
            purpose=purpose,
            epsilon=epsilon,
            delta=delta,
            event=event,
            predictor=predictor,
            unit=group or budgets.ROW,
            data=data,
            name=predictor or _name_of(table),
            again=again,
            ahead_of=ahead_of,
        )


def _name_of(table: TableFile) -> str | None:
    """What to call a table: as its file, if that can be a name."""
    from reticent.service.home import NAME

    return table.path.stem if NAME.fullmatch(table.path.stem) else None


def in_words(receipt: Receipt) -> str:
    """Who pays, and what is spent now.

    Parameters
    ----------
    receipt : Receipt
        The last charge of a command.
    """
    from reticent.service.datasets.registry import words

    what = "a new data set" if receipt.is_new else "the data set"
    raised = ", whose cap was raised for it" if receipt.raised else ""
    of = "" if receipt.whole == receipt.name else f", a part of {receipt.whole!r}"
    return f"Charged to {what} {receipt.name!r}{of}{raised}: {words(receipt.spent)} is spent now."


def read_fingerprint(table: TableFile, *, data: str | None = None, quiet: bool = False) -> Fingerprint:
    """Read the rows of a table once, to recognise them.

    Parameters
    ----------
    table : TableFile
        The table, which must have rows.
    data : str or None, default None
        A data set that must exist, or no row is read.
    quiet : bool, default False
        Show no progress.
    """
    from reticent.service.datasets.fingerprint import fingerprint
    from reticent.service.datasets.registry import Registry

    with Registry(create=True) as registry:
        salt = registry.salt
        if data is not None:
            registry.named(data)
    with progress_bar("recognising rows", quiet=quiet) as advance:
        found = fingerprint(table, salt, advance)
    if not found.rows:
        raise UsageError(f"{table.path} has no rows")
    return found
