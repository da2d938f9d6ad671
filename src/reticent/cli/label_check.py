"""The check of labels that `reticent fit` makes before it learns: a misspelled class would waste the whole budget."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from reticent.cli.errors import UsageError
from reticent.data.label_check import LabelCheck
from reticent.exact import rational

if TYPE_CHECKING:
    from reticent.cli.private_schema import TableSource
    from reticent.data.schema import Schema
    from reticent.service.datasets.registry import Receipt

MOST_NAMED = 10  # classes that a message names


def checked_label_share(share: Any) -> Fraction:
    """The value of `--label-share`.

    Parameters
    ----------
    share : number
        What was given.
    """
    exact = rational(share, "--label-share")
    if not 0 <= exact < 1:
        raise UsageError(f"--label-share must be at least 0 and below 1, got {float(share):g}")
    return exact


def price_of_labels(rows: int, *, epsilon: Any, share: Fraction) -> Fraction:
    """The ε of the check: a share of the whole, or nothing where the noise would hide half of the rows.

    Parameters
    ----------
    rows : int
        The number of rows.
    epsilon : number
        The whole.
    share : Fraction
        The value of `--label-share`.
    """
    price = rational(epsilon, "epsilon") * share
    return price if price > 0 and LabelCheck(epsilon=price, rows=rows).useful else Fraction(0)


def check_labels(
    source: TableSource, schema: Schema, receipt: Receipt, *, epsilon: Fraction, whole: Fraction
) -> str | None:
    """Count the labels that are not among the classes, with noise; stop if they are many. The count was paid for.

    Parameters
    ----------
    source : TableSource
        The rows; with groups, the first of each.
    schema : Schema
        The target and its classes.
    receipt : Receipt
        The charge of this count.
    epsilon : Fraction
        What was charged.
    whole : Fraction
        The ε that was asked for everything.

    Returns
    -------
    str or None
        A sentence, if there are some such labels, but not so many that something is wrong with the list.
    """
    check = LabelCheck(epsilon=epsilon, rows=source.units)
    noisy, _ = check.release(schema, _labels(source, schema.target))
    if noisy <= check.visible:
        return None
    about = min(noisy, source.units)
    rows = "rows" if schema.group is None else f"first rows of a {schema.group!r}"
    found = f"about {about:,} of {source.units:,} {rows} have a label that is not among the classes"
    if not check.too_many(noisy):
        return f"{found[0].upper()}{found[1:]}: they count as {schema.classes[0]!r}."
    raise UsageError(f"{found} {_named(schema.classes)}, so nothing was learned. {_ways_out(schema, receipt, whole)}")


def _labels(source: TableSource, target: str) -> Iterator[Any]:
    return (chunk[target] for chunk in source.read([target], numbers=False))


def _named(classes: tuple[Any, ...]) -> str:
    more = ", …" if len(classes) > MOST_NAMED else ""
    return f"({', '.join(map(str, classes[:MOST_NAMED]))}{more})"


def _ways_out(schema: Schema, receipt: Receipt, whole: Fraction) -> str:
    from reticent.service.datasets.registry import left, typed

    spent = receipt.spent
    rest = ""
    if spent.measure == "epsilon" and 0 < (less := Fraction(spent.limit) - spent.used) < whole:
        rest = f" with --epsilon {typed(less)}, or"
    shown = shlex.quote(str(schema.classes[0]))
    return (
        f"Only this count was paid for: {left(spent)} is left of the data set {receipt.name!r}. Compare the classes "
        f"with what the column {schema.target!r} may hold by its documentation: spelling, upper and lower case, a "
        f"class that is missing, rows without a label. Then fit again{rest} with --again, which raises the cap. If "
        f"every other label is meant to count as {shown}, add --label-share 0"
    )
