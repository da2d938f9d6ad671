"""What the records say of each data set, and whether a charge fits: by `privacy.Ledger`, in exact numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from reticent.errors import BudgetExhausted
from reticent.privacy import Event, Guarantee, Ledger, Spent, event_from_json
from reticent.service.datasets.fingerprint import Fingerprint
from reticent.service.datasets.records import Row
from reticent.service.store.protocol import Damaged

Accounting = Literal["basic", "renyi"]
ROW = "row"  # the unit of a charge that protects single rows; otherwise it is the column that names the groups


@dataclass(frozen=True)
class Charge:
    """What was spent at one time.

    Attributes
    ----------
    time : int
        Milliseconds since 1970.
    purpose : str
        What it was spent on: fit, schema, labels.
    predictor : str or None
        The name of the predictor that was made.
    event : Event
        What it costs.
    unit : str
        "row", or the column whose groups are protected as a whole.
    """

    time: int
    purpose: str
    predictor: str | None
    event: Event
    unit: str


@dataclass(frozen=True)
class DataSet:
    """A data set, or a part of one.

    Attributes
    ----------
    name : str
        Its name.
    part_of : str or None
        The data set of which this is a part. A part has no cap of its own.
    accounting : {"basic", "renyi"}
        How its ledger adds up.
    epsilon, delta : Fraction
        The cap.
    added : int
        When it was added, in milliseconds since 1970.
    tables : tuple of Fingerprint
        The tables that hold its rows.
    charges : tuple of Charge
        What was spent on it as a whole.
    """

    name: str
    part_of: str | None
    accounting: Accounting
    epsilon: Fraction
    delta: Fraction
    added: int
    tables: tuple[Fingerprint, ...] = ()
    charges: tuple[Charge, ...] = ()

    @property
    def cap(self) -> Guarantee:
        """The cap as a guarantee."""
        return Guarantee(epsilon=self.epsilon, delta=self.delta)  # type: ignore[arg-type]  # rounded up, if it must be


def read_records(rows: Iterable[Row], where: object) -> dict[str, DataSet]:
    """All data sets, by name, in the order in which they were added."""
    found: dict[str, DataSet] = {}
    for row in rows:
        try:
            _apply(found, json.loads(row.record), row.time)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise Damaged(f"{where} is damaged: record {row.number} cannot be read ({type(error).__name__})") from None
    return found


def _apply(found: dict[str, DataSet], record: Mapping[str, Any], time: int) -> None:
    name = record["name"]
    match record["kind"]:
        case "add":
            found[name] = DataSet(name, record["part_of"], record["accounting"], *_cap(record), time)
        case "table":
            table = Fingerprint(record["rows"], record["whole"], tuple(record["columns"]), tuple(record["names"]))
            found[name] = replace(found[name], tables=(*found[name].tables, table))
        case "cap":
            epsilon, delta = _cap(record)
            found[name] = replace(found[name], epsilon=epsilon, delta=delta)
        case "charge":
            event = event_from_json(record["event"])
            charge = Charge(time, record["purpose"], record["predictor"], event, record["unit"])
            found[name] = replace(found[name], charges=(*found[name].charges, charge))
        case _:
            raise ValueError("unknown kind")


def _cap(record: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
    return Fraction(record["epsilon"]), Fraction(record["delta"])


# ── whether a charge fits ─────────────────────────────────────────────────────────────────────────────────────────


class _CountedEvents:
    """A `LedgerStore` of events that are recorded elsewhere; what a ledger appends here is a trial."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._counts: dict[str, int] = {}
        for event in events:
            self.append(json.dumps(event.to_json(), sort_keys=True, separators=(",", ":")), 1)

    def transaction(self) -> AbstractContextManager[object]:
        """Return a context that does nothing: the registry is locked."""
        return nullcontext()

    def terms(self) -> str | None:
        """Return None: the cap may have been raised, and the accounting is recorded with the data set."""
        return None

    def agree(self, terms: str) -> None:
        """Do nothing."""

    def counts(self) -> Mapping[str, int]:
        """Return how often each event was recorded."""
        return self._counts

    def append(self, event: str, times: int) -> None:
        """Count an event."""
        self._counts[event] = self._counts.get(event, 0) + times


def parts_of(sets: Mapping[str, DataSet], name: str) -> list[DataSet]:
    """The parts of a data set."""
    return [one for one in sets.values() if one.part_of == name]


def whole_of(sets: Mapping[str, DataSet], name: str) -> DataSet:
    """The data set to which a part belongs, or itself: the one that has the cap."""
    return sets[sets[name].part_of or name]


def ledgers(sets: Mapping[str, DataSet], name: str) -> Iterator[Ledger]:
    """A ledger for each part of the rows that a charge of this data set concerns.

    A row belongs to one part, so it pays what is spent on that part and on the data set as a whole. A charge of a part
    concerns one ledger, a charge of the whole concerns all.
    """
    whole = whole_of(sets, name)
    if sets[name] is not whole:
        concerned: list[DataSet | None] = [sets[name]]
    else:
        concerned = [*parts_of(sets, name)] or [None]
    for part in concerned:
        charges = [*whole.charges, *(part.charges if part else ())]
        store = _CountedEvents(one.event for one in charges)
        yield Ledger(whole.cap, accounting=whole.accounting, store=store)


def check_fits(sets: Mapping[str, DataSet], name: str, *events: Event) -> None:
    """Raise `BudgetExhausted` if these events, one after the other, exceed the cap for some row."""
    for ledger in ledgers(sets, name):
        for event in events:
            ledger.charge(event)


def fits(sets: Mapping[str, DataSet], name: str, *events: Event) -> bool:
    """Whether these events, one after the other, stay within the cap for every row."""
    try:
        check_fits(sets, name, *events)
    except BudgetExhausted:
        return False
    return True


def spent_on(sets: Mapping[str, DataSet], name: str) -> Spent:
    """What a row has paid at most: over parts, the largest ε and the largest δ."""
    readings = [one.spent for one in ledgers(sets, name)]
    return Spent(
        readings[0].measure,
        max(one.used for one in readings),
        readings[0].limit,
        max(one.delta_used for one in readings),
        readings[0].delta_limit,
    )


def unit_of(sets: Mapping[str, DataSet], name: str) -> str:
    """What all charges protect together: groups, if all of them protect the groups of one column; else rows."""
    concerned = [whole_of(sets, name), *(parts_of(sets, name) or [sets[name]])]
    units = {one.unit for each in concerned for one in each.charges}
    return units.pop() if len(units) == 1 else ROW


def unit_in_words(unit: str) -> str:
    """What a charge protects, for messages."""
    return ROW if unit == ROW else f"group of the column {unit!r}"
