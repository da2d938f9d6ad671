"""The registry of data sets: what may be spent on each, and what was, whatever was made of it and however it failed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self

from reticent.errors import BudgetExhausted
from reticent.exact import Number
from reticent.privacy import Event, Spent
from reticent.privacy.events import stated
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.ledger import as_decimal
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.service import home
from reticent.service.datasets import budgets
from reticent.service.datasets.budgets import ROW, Accounting, DataSet
from reticent.service.datasets.fingerprint import SALT, Fingerprint
from reticent.service.datasets.records import RecordLog
from reticent.service.files import private
from reticent.service.store.protocol import Damaged

FOLDER = "_data"  # no name of a predictor begins with an underscore
LOG, SALT_FILE, LOCK = "records.sqlite", "salt", "lock"


class Price(NamedTuple):
    """What will be charged next.

    Attributes
    ----------
    purpose : str
        What it will be spent on.
    epsilon, delta : float or Fraction
        Its guarantee.
    """

    purpose: str
    epsilon: Number
    delta: Number


class Receipt(NamedTuple):
    """A charge that is on the disk.

    Attributes
    ----------
    name : str
        The data set, or the part of one, that was charged.
    whole : str
        The data set whose cap holds.
    is_new : bool
        Whether the charge registered it.
    raised : bool
        Whether the cap was raised for it.
    spent : Spent
        What is spent now.
    """

    name: str
    whole: str
    is_new: bool
    raised: bool
    spent: Spent


def folder() -> Path:
    """The folder of the registry."""
    return home.root() / FOLDER


class Registry(Guarded):
    """The data sets of this machine, locked as long as this is open.

    | file | what it is |
    |---|---|
    | `records.sqlite`, `-wal`, `-shm` | what may be and was spent, and fingerprints of rows; as secret as the rows |
    | `salt` | random bytes, made once, without which a fingerprint tells nothing; as secret as the rows |
    | `witness` | how many records there are, to detect a file that has lost some |
    | `lock` | held while the registry is open; released by the system when the process ends |

    **Guarantee**: all that was released after a charge to a data set satisfies its cap, for each of its rows, however
    later charges depended on earlier releases, if all of them were charged here and no row is in two parts.

    **Why**: a charge is on the disk before `charge` returns, and so before a row is used. It fits by the basic or the
    Rényi filter of `Ledger`. For parts see docs/service/data-budgets.md.

    Parameters
    ----------
    place : Path or None, default None
        The folder; None for that of `folder`.
    create : bool, default False
        Whether to create the registry if there is none.
    """

    _twice = "two processes would write to one file"
    _instead = "Open it in the process that uses it"

    def __init__(self, place: Path | None = None, *, create: bool = False) -> None:
        self._guard = Guard(type(self))
        self.folder = folder() if place is None else place
        if not self.folder.exists():
            if not create:
                raise FileNotFoundError("there are no data sets yet: reticent data add NAME makes one, and so does fit")
            _create(self.folder)
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # waits: nobody holds it for long
            self._log = RecordLog(self.folder / LOG)
        except BaseException:
            os.close(self._lock)
            raise
        try:
            self.salt = self._read_salt()
            self.sets = budgets.read_records(self._log.rows, self._log.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the registry."""
        self._log.close()
        lock, self._lock = self._lock, -1  # its number may soon be another file's
        if lock >= 0:
            with suppress(OSError):
                os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _read_salt(self) -> bytes:
        """The salt; without the right one, known rows would be taken for new ones."""
        try:
            salt = (self.folder / SALT_FILE).read_bytes()
        except FileNotFoundError:
            salt = b""
        if hashlib.sha256(salt).hexdigest() != self._log.settings["salt"]:
            raise Damaged(f"{self.folder / SALT_FILE} is missing or was changed: known rows cannot be recognised")
        return salt

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def named(self, name: str) -> DataSet:
        """The data set of this name."""
        if name not in self.sets:
            known = f"there are: {', '.join(self.sets)}" if self.sets else "there are none yet"
            raise ValueError(f"there is no data set {home.check_name(name)!r}; {known} (reticent data add makes one)")
        return self.sets[name]

    def known(self, rows: Fingerprint) -> DataSet | None:
        """The data set that has these rows; None if they are not known."""
        found = [one for one in self.sets.values() if any(each.matches(rows) for each in one.tables)]
        whole = (one for one in found if any(each.whole == rows.whole for each in one.tables))
        return next(whole, found[0] if found else None)

    def with_same_columns(self, name: str) -> list[str]:
        """Other data sets, of which this is no part, with columns of the same names, which are public."""
        whole = budgets.whole_of(self.sets, name)
        names = {each.names for each in self.sets[name].tables}
        others = (one for one in self.sets.values() if budgets.whole_of(self.sets, one.name) is not whole)
        return [one.name for one in others if any(each.names in names for each in one.tables)]

    def verify(self) -> tuple[int, str]:
        """Check all of the file; return the number of records and the last hash."""
        self._guard.check()
        self._log.verify()
        return len(self._log.rows), self._log.head.hex()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        name: str,
        rows: Fingerprint | None = None,
        *,
        epsilon: Number | None = None,
        delta: Number = 0,
        part_of: str | None = None,
        accounting: Accounting = "basic",
    ) -> DataSet:
        """Add a data set with a cap, or a part of one.

        Parameters
        ----------
        name : str
            A name that no other data set has.
        rows : Fingerprint or None, default None
            Its rows, if they are to be recognised. Rows of another data set are refused.
        epsilon : float or Fraction or None, default None
            The largest ε that may be spent on a row. A part takes that of its data set.
        delta : float or Fraction, default 0
            The same for δ.
        part_of : str or None, default None
            The data set of which it is a part. No row may be in two parts.
        accounting : {"basic", "renyi"}, default "basic"
            How charges add up: see `Ledger`. A part takes that of its data set.
        """
        self._guard.check()
        home.check_name(name)
        if name in self.sets:
            raise ValueError(f"there is a data set {name!r} already: choose another name, or raise its cap")
        if rows is not None and (other := self.known(rows)) is not None:
            raise ValueError(f"the table has the rows of the data set {other.name!r}: no row may be in two data sets")
        if part_of is None:
            if epsilon is None:
                raise ValueError("cap-epsilon must be given for a data set that is no part of another")
            cap = check_epsilon(epsilon, "cap-epsilon"), check_delta(delta, "cap-delta")
            if accounting == "renyi" and not cap[1]:
                raise ValueError("cap-delta must be above 0 for Rényi accounting, got 0")
        else:
            whole = self.named(part_of)
            if epsilon is not None or delta:
                raise ValueError(f"a part has the cap of its data set, {part_of!r}: leave out the cap")
            if whole.part_of is not None:
                raise ValueError(f"{part_of!r} is itself a part, of {whole.part_of!r}: parts have no parts")
            cap, accounting = (whole.epsilon, whole.delta), whole.accounting
        self._append([_added(name, cap, part_of, accounting), *([] if rows is None else [_table(name, rows)])])
        return self.sets[name]

    def raise_cap(self, name: str, *, epsilon: Number | None = None, delta: Number | None = None) -> DataSet:
        """Raise the cap of a data set. What all its releases together satisfy is then the new cap.

        Parameters
        ----------
        name : str
            The data set.
        epsilon, delta : float or Fraction or None, default None
            The new cap; None leaves it.
        """
        self._guard.check()
        one = self.named(name)
        if one.part_of is not None:
            raise ValueError(f"{name!r} is a part and has the cap of {one.part_of!r}: raise that")
        new = (
            one.epsilon if epsilon is None else check_epsilon(epsilon, "cap-epsilon"),
            one.delta if delta is None else check_delta(delta, "cap-delta"),
        )
        if new[0] < one.epsilon or new[1] < one.delta or new == (one.epsilon, one.delta):
            raise ValueError(
                f"the new cap must be above epsilon={as_decimal(one.epsilon)}, delta={as_decimal(one.delta)}, got "
                f"epsilon={as_decimal(new[0])}, delta={as_decimal(new[1])}: what is spent cannot be taken back"
            )
        self._append([_cap(name, new)])
        return self.sets[name]

    def charge(
        self,
        rows: Fingerprint,
        *,
        purpose: str,
        epsilon: Number,
        delta: Number,
        event: Event | None = None,
        predictor: str | None = None,
        unit: str = ROW,
        data: str | None = None,
        name: str | None = None,
        again: bool = False,
        ahead_of: Price | None = None,
    ) -> Receipt:
        """Charge what is about to be spent on some rows, or refuse. The charge is on the disk when this returns.

        Rows that are not known become a data set of their own, with this charge, and what it is ahead of, as its cap.
        A charge is never taken back: whoever fails later may have used the rows.

        Parameters
        ----------
        rows : Fingerprint
            The rows.
        purpose : str
            What it is spent on: fit, schema, labels.
        epsilon, delta : float or Fraction
            The guarantee of all that will be released.
        event : Event or None, default None
            What it costs, if that is known more closely; used by data sets with Rényi accounting.
        predictor : str or None, default None
            The name of what is made.
        unit : str, default "row"
            "row", or the column whose groups are protected.
        data : str or None, default None
            The data set to charge; None finds it by its rows.
        name : str or None, default None
            What a new data set is called, with a number if that name is taken; None for that of what is made.
        again : bool, default False
            Raise the cap by this price, if it does not fit.
        ahead_of : Price or None, default None
            What will be charged next. If both do not fit together, nothing is charged.

        Raises
        ------
        BudgetExhausted
            If it does not fit. The message states what is left, and the ways out.
        """
        self._guard.check()
        cost, records, raised = stated(epsilon, delta), list[dict[str, Any]](), False
        cap, later = (check_epsilon(epsilon), check_delta(delta)), tuple[Event, ...]()
        if ahead_of is not None:
            later = (stated(ahead_of.epsilon, ahead_of.delta),)
            cap = cap[0] + check_epsilon(ahead_of.epsilon), cap[1] + check_delta(ahead_of.delta)
        target = self._target(rows, data)
        if target is None:
            charged = self._free_name(home.check_name(name or predictor or purpose))
            records += [_added(charged, cap, None, "basic"), _table(charged, rows)]
        else:
            charged, whole = target.name, budgets.whole_of(self.sets, target.name)
            if not any(each.matches(rows) for each in target.tables):
                records.append(_table(charged, rows))
            if whole.accounting == "renyi" and event is not None:
                cost = event
            if not budgets.fits(self.sets, charged, cost, *later):
                new = whole.epsilon + cap[0], whole.delta + cap[1]
                if not again:
                    asked = purpose if ahead_of is None else ahead_of.purpose
                    raise BudgetExhausted(self._refusal(target, asked, cap, new))
                larger = replace(whole, epsilon=new[0], delta=new[1])
                budgets.check_fits({**self.sets, whole.name: larger}, charged, cost, *later)
                records.append(_cap(whole.name, new))
                raised = True
        records.append(
            {"kind": "charge", "name": charged, "event": cost.to_json(), "purpose": purpose, "predictor": predictor,
             "unit": unit}
        )  # fmt: skip
        self._append(records)
        paying, spent = budgets.whole_of(self.sets, charged).name, budgets.spent_on(self.sets, charged)
        return Receipt(charged, paying, target is None, raised, spent)

    def _target(self, rows: Fingerprint, data: str | None) -> DataSet | None:
        """The data set to charge; None for a new one."""
        known = self.known(rows)
        if data is None:
            return known
        target = self.named(data)
        if known is not None and known is not target:
            raise ValueError(f"the table has the rows of the data set {known.name!r}, not of {data!r}")
        return target

    def _free_name(self, wanted: str) -> str:
        names = (wanted, *(f"{wanted[:56]}-{number}" for number in range(2, len(self.sets) + 3)))
        return next(one for one in names if one not in self.sets)

    def _append(self, records: list[dict[str, Any]]) -> None:
        self._log.append(records, time=int(1000 * time.time()))
        self.sets = budgets.read_records(self._log.rows, self._log.path)

    # ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _refusal(
        self, target: DataSet, purpose: str, asked: tuple[Fraction, Fraction], new: tuple[Fraction, Fraction]
    ) -> str:
        whole, spent = budgets.whole_of(self.sets, target.name), budgets.spent_on(self.sets, target.name)
        price = f"epsilon={as_decimal(asked[0])}, delta={as_decimal(asked[1])}"
        raising = shlex.join(
            ["reticent", "data", "raise", whole.name, "--cap-epsilon", typed(new[0]), "--cap-delta", typed(new[1])]
        )
        return (
            f"this {purpose} costs {price}, but of the data set {target.name!r}, which these rows belong to, "
            f"{left(spent)} is left: {words(spent)} is spent. Everyone in these rows pays for each release, also for "
            f"those of predictors that were deleted. Nothing was charged. Ways out: ask for no more than what is left; "
            f"raise the cap ({raising}); do so in one step (--again); or learn from rows that nothing was spent on, "
            f"and declare them a disjoint part (reticent data add PART TABLE --part-of {whole.name})"
        )


def words(spent: Spent) -> str:
    """What is spent, of what may be."""
    measure = spent.measure
    delta = f", delta={as_decimal(spent.delta_used)} of {as_decimal(spent.delta_limit)}" if spent.delta_limit else ""
    return f"{measure}={as_decimal(spent.used)} of {as_decimal(spent.limit)}{delta}"


def left(spent: Spent) -> str:
    """What is left."""
    delta = f", delta={as_decimal(spent.delta_limit - spent.delta_used)}" if spent.delta_limit else ""
    return f"{spent.measure}={as_decimal(spent.limit - spent.used)}{delta}"


def typed(value: Fraction) -> str:
    """A number as one types it on the command line, exactly."""
    decimal = as_decimal(value)
    return str(value) if decimal.endswith("…") else decimal


# ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _added(name: str, cap: tuple[Fraction, Fraction], part_of: str | None, accounting: Accounting) -> dict[str, Any]:
    return {"kind": "add", "name": name, "epsilon": str(cap[0]), "delta": str(cap[1]), "part_of": part_of,
            "accounting": accounting}  # fmt: skip


def _table(name: str, rows: Fingerprint) -> dict[str, Any]:
    return {"kind": "table", "name": name, **rows._asdict()}


def _cap(name: str, cap: tuple[Fraction, Fraction]) -> dict[str, Any]:
    return {"kind": "cap", "name": name, "epsilon": str(cap[0]), "delta": str(cap[1])}


def _create(target: Path) -> None:
    """Create an empty registry, complete or not at all. Of two processes that do so, one finds that of the other."""
    try:
        with home.unfinished(target) as new:
            salt = os.urandom(SALT)
            with open(new / SALT_FILE, "xb", opener=private) as file:
                file.write(salt)
            settings: Mapping[str, str] = {
                "format": "reticent-data-sets",
                "id": os.urandom(16).hex(),
                "salt": hashlib.sha256(salt).hexdigest(),
            }
            RecordLog.create(new / LOG, settings).close()
            home.sync_folder(new)
            home.put_in_place(new, target)
    except OSError:
        if not (target / LOG).is_file():
            raise
