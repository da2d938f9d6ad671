"""`reticent data`: what may be spent on the people in a table, and what was."""

from __future__ import annotations

import json as json_format
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.options import Flag, Number

if TYPE_CHECKING:
    from reticent.service.datasets.budgets import Charge, DataSet
    from reticent.service.datasets.registry import Registry

PURPOSES = {"fit": "for the fit", "schema": "for a private schema", "labels": "to check labels, before the fit"}


def add(
    name: str,
    table: Path | None = None,
    *,
    cap_epsilon: Number | None = None,
    cap_delta: Number | None = None,
    part_of: str | None = None,
    accounting: Literal["basic", "renyi"] = "basic",
    quiet: Flag = False,
) -> int:
    """Add a data set: all that is ever released about its rows stays within one cap.

    Parts have the cap of their data set, each for itself. By adding a part you state that each row, and each person, is
    in one part only, and that nothing in a row decides which part it is in.

    Parameters
    ----------
    name
        The name of the data set.
    table
        Its rows, as CSV, Parquet or Arrow file: they are read once, to recognise them under any name. Without a table,
        use `reticent fit --data NAME`.
    cap_epsilon
        The largest epsilon, for all releases together.
    cap_delta
        The largest delta, for all releases together; default: 0.
    part_of
        The data set of which this is a part, disjoint from all other parts.
    accounting
        How charges add up: basic sums epsilon and delta. renyi allows more, if many small charges are known as events.
    quiet
        Show no progress.
    """
    from reticent.cli.charging import read_fingerprint
    from reticent.privacy.parameters import check_delta, check_epsilon
    from reticent.service import home, tables
    from reticent.service.datasets.registry import Registry

    with as_usage_errors():
        home.check_name(name)
        if cap_epsilon is not None:
            check_epsilon(cap_epsilon, "--cap-epsilon")
        if cap_delta is not None:
            check_delta(cap_delta, "--cap-delta")
        if part_of is None and cap_epsilon is None:
            raise UsageError("--cap-epsilon must be given, or --part-of for a part of a data set")
        rows = None if table is None else read_fingerprint(tables.open_table(table), quiet=quiet)
        with Registry(create=True) as registry:
            registry.add(
                name, rows, epsilon=cap_epsilon, delta=cap_delta or 0, part_of=part_of, accounting=accounting
            )
            print(f"added {_line(registry, name)}")
    return 0


def list_all(*, json: Flag = False) -> int:
    """List all data sets, with what is spent of each.

    Parameters
    ----------
    json
        Print a JSON object instead of text.
    """
    with as_usage_errors():
        found = _opened()
        if found is None:
            print("[]" if json else "there are no data sets yet: reticent data add NAME makes one, and so does fit")
            return 0
        with found as registry:
            if json:
                listed = [_described(registry, one) for one in registry.sets.values()]
                print(json_format.dumps(listed, indent=2, ensure_ascii=False))
                return 0
            for name in registry.sets:
                print(_line(registry, name))
    return 0


def show(name: str, *, json: Flag = False) -> int:
    """Show what was spent on a data set, on what and when, and what is left. The whole record is verified.

    Parameters
    ----------
    name
        The data set.
    json
        Print a JSON object instead of text.
    """
    from reticent.service.datasets import budgets
    from reticent.service.datasets.registry import left

    with as_usage_errors():
        found = _opened()
        if found is None:
            raise UsageError(f"there is no data set {name!r}; there are none yet (reticent data add makes one)")
        with found as registry:
            one = registry.named(name)
            length, head = registry.verify()
            if json:
                verified = {"records": length, "head": head}
                print(json_format.dumps({**_described(registry, one), "verified": verified}, indent=2))
                return 0
            spent, unit = budgets.spent_on(registry.sets, name), budgets.unit_of(registry.sets, name)
            whole, parts = budgets.whole_of(registry.sets, name), budgets.parts_of(registry.sets, name)
            print(_line(registry, name))
            print(f"left: {left(spent)}, for each {budgets.unit_in_words(unit)}")
            if parts:
                print(f"parts, of which each row is in one: {', '.join(part.name for part in parts)}")
            if alike := registry.with_same_columns(name):
                print(
                    f"other rows with the same columns: {', '.join(alike)}. If the same people are in both, they pay "
                    "for both, and nothing adds that up: name the data set by reticent fit --data"
                )
            for each_set in dict.fromkeys(part.name for part in (whole, one, *parts)):
                for charge in registry.sets[each_set].charges:
                    print(f"  {_time(charge.time)}  {each_set:20}  {_words(charge, whole.delta)}")
            print(f"verified: {length} records of all data sets are chained without a gap, head {head}")
    return 0


def raise_cap(name: str, *, cap_epsilon: Number | None = None, cap_delta: Number | None = None) -> int:
    """Raise the cap of a data set. Everyone in it is then protected by the new cap only.

    Parameters
    ----------
    name
        The data set.
    cap_epsilon
        The new cap; by default it stays as it is.
    cap_delta
        The new cap; by default it stays as it is.
    """
    if cap_epsilon is None and cap_delta is None:
        raise UsageError("nothing to change: give --cap-epsilon or --cap-delta")
    with as_usage_errors():
        found = _opened()
        if found is None:
            raise UsageError(f"there is no data set {name!r}; there are none yet (reticent data add makes one)")
        with found as registry:
            registry.raise_cap(name, epsilon=cap_epsilon, delta=cap_delta)
            print(f"raised: {_line(registry, name)}")
    return 0


def _opened() -> Registry | None:
    """The registry; None if there is none yet."""
    from reticent.service.datasets.registry import Registry, folder

    return Registry() if folder().exists() else None


def _line(registry: Registry, name: str) -> str:
    from reticent.service.datasets import budgets
    from reticent.service.datasets.registry import words

    part_of = registry.sets[name].part_of
    of = "" if part_of is None else f" (a part of {part_of})"
    return f"{name + of:24}  {words(budgets.spent_on(registry.sets, name))} spent"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _words(charge: Charge, delta: Fraction) -> str:
    """A charge in plain words; `delta` is what to count at if the charge has no ε of its own."""
    from reticent.privacy import epsilon
    from reticent.privacy.ledger import as_decimal
    from reticent.privacy.pairs import pair
    from reticent.service.datasets import budgets

    price = pair(charge.event)
    if price is None:  # of a data set with Rényi accounting
        least = epsilon(charge.event, delta=delta)
        cost = f"noise that alone is worth epsilon={least:.4g} at delta={as_decimal(delta)}"
    else:
        cost = f"epsilon={as_decimal(price[0])}" + (f", delta={as_decimal(price[1])}" if price[1] else "")
    of = "" if charge.predictor is None else f" of {charge.predictor}"
    return f"{cost} {PURPOSES.get(charge.purpose, charge.purpose)}{of}, for each {budgets.unit_in_words(charge.unit)}"


def _described(registry: Registry, one: DataSet) -> dict[str, Any]:
    """A data set as JSON. Numbers are exact, as text; what was read from rows is left out."""
    from reticent.service.datasets import budgets

    spent = budgets.spent_on(registry.sets, one.name)
    return {
        "name": one.name,
        "part_of": one.part_of,
        "accounting": one.accounting,
        "measure": spent.measure,
        "spent": str(spent.used),
        "limit": str(spent.limit),
        "delta_spent": str(spent.delta_used),
        "delta_limit": str(spent.delta_limit),
        "unit": budgets.unit_of(registry.sets, one.name),
        "added": _time(one.added),
        "charges": [
            {"time": _time(each.time), "purpose": each.purpose, "predictor": each.predictor, "unit": each.unit,
             "event": each.event.to_json()}
            for each in one.charges
        ],
    }  # fmt: skip
