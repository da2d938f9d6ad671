"""Charges to a registry, made once while every operation on its files is written down: see test_registry_writes.py."""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from pathlib import Path

from reticent.privacy import Guarantee, LedgerFile
from reticent.privacy.events import PureDP
from reticent.service.datasets.fingerprint import Fingerprint
from reticent.service.datasets.registry import Registry

TABLES = {name: Fingerprint(100, name, tuple(f"{name}{place}" for place in range(40))) for name in "abc"}
STEPS = ["a", "a", "b", "a", "c", "c", "b", "a"]  # the rows that pay, one unit each


def charge(registry: Registry, rows: str) -> None:
    registry.charge(TABLES[rows], purpose="fit", epsilon=1, delta=1e-6, predictor=rows, again=True)


def charges(registry: Registry) -> list[str]:
    """The rows that have paid, in any order."""
    return sorted(name for name, one in registry.sets.items() for _ in one.charges)


def live(root: Path) -> None:
    """Two steps with the registry open, then each by itself, as commands do."""
    told = os.open(root / "told", os.O_WRONLY | os.O_APPEND)
    place = root / "home" / "_data"
    with Registry(place, create=True) as registry:
        for rows in STEPS[:2]:
            charge(registry, rows)
            os.write(told, rows.encode())  # from here on its rows are used
    for rows in STEPS[2:]:
        with Registry(place, create=True) as registry:
            charge(registry, rows)
            os.write(told, rows.encode())


def live_by_ledger(root: Path) -> None:
    """The same steps, each a unit of a ledger in a file."""
    told = os.open(root / "told", os.O_WRONLY | os.O_APPEND)
    ledger = LedgerFile.create(root / "home" / "ledger", Guarantee(epsilon=1000.0))
    for number, rows in enumerate(STEPS):
        ledger.charge(PureDP(Fraction(1 + number % 2)))
        os.write(told, rows.encode())


if __name__ == "__main__":
    (live_by_ledger if sys.argv[2] == "ledger" else live)(Path(sys.argv[1]))
