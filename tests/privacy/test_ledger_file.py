"""A budget in a file: processes share it, a copy of the object is no copy of the budget, damage is refused."""

from __future__ import annotations

import copy
import os
import pickle
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

import reticent
from reticent.errors import BudgetExhausted
from reticent.privacy import Guarantee, Ledger, LedgerFile, LedgerStore, MemoryLedgerStore, ledger_file
from reticent.privacy.events import DiscreteGaussian, PureDP

TENTH = PureDP(Fraction(1, 10))
ONE = Guarantee(epsilon=1.0)


@pytest.fixture
def ledger(tmp_path: Path) -> LedgerFile:
    return LedgerFile.create(tmp_path / "tuning.ledger", ONE)


def test_it_continues_where_it_was(ledger: LedgerFile) -> None:
    ledger.charge(TENTH, 7)
    other = LedgerFile(ledger.path)
    assert (other.guarantee, other.events, other.spent.used) == (ONE, {TENTH: 7}, Fraction(7, 10))
    with pytest.raises(BudgetExhausted, match="3 more would fit"):
        other.charge(TENTH, 4)
    other.charge(TENTH, 3)
    assert ledger.remaining(TENTH) == 0


def test_copies_are_the_same_budget(ledger: LedgerFile) -> None:
    for same in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        same.charge(TENTH, 3)
    assert ledger.remaining(TENTH) == 1


def test_the_twin_that_copies_its_counts_spends_twice() -> None:
    """What would be wrong: a ledger in memory that could be copied. Its counts in two places are two budgets."""
    first, second = MemoryLedgerStore(), MemoryLedgerStore()
    for store in (first, second):
        Ledger(ONE, store=store).charge(TENTH, 10)
    with pytest.raises(TypeError, match="share a LedgerFile among processes"):
        pickle.dumps(Ledger(ONE))


def test_the_rule_stays_the_same(tmp_path: Path) -> None:
    mixed = LedgerFile.create(tmp_path / "mixed", Guarantee(epsilon=1.0, delta=1e-6))
    mixed.charge(DiscreteGaussian(Fraction(50)), 20)
    assert mixed.spent.measure.startswith("divergence")
    mixed.charge(PureDP(Fraction(1, 100)))
    fixed = LedgerFile.create(tmp_path / "fixed", Guarantee(epsilon=1.0, delta=1e-6), accounting="basic")
    with pytest.raises(ValueError, match="has no epsilon and delta of its own"):
        fixed.charge(DiscreteGaussian(Fraction(50)))


def test_only_its_owner_can_read_it_and_none_is_overwritten(ledger: LedgerFile) -> None:
    assert stat.S_IMODE(Path(ledger.path).stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        LedgerFile.create(ledger.path, Guarantee(epsilon=9.0))
    assert ledger.guarantee == ONE


def test_a_bad_guarantee_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="delta must be > 0"):
        LedgerFile.create(tmp_path / "none", ONE, accounting="renyi")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", [None, b"", b"no database" * 100])
def test_a_file_that_is_gone_or_damaged_admits_nothing(ledger: LedgerFile, content: bytes | None) -> None:
    ledger.charge(TENTH)
    path = Path(ledger.path)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Exception, match=r"there is no ledger file|is no ledger file|not a database"):
        ledger.charge(TENTH)


def test_threads_together_spend_exactly_the_budget(ledger: LedgerFile) -> None:
    def charges() -> int:
        try:
            ledger.charge(TENTH)
        except BudgetExhausted:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(charges) for _ in range(16)]
    assert sum(one.result() for one in found) == 10


RIVAL = """
import sys
from fractions import Fraction
from reticent.errors import BudgetExhausted
from reticent.privacy import LedgerFile
from reticent.privacy.events import PureDP
won = 0
sys.stdin.readline()
for _ in range(8):
    try:
        LedgerFile(sys.argv[1]).charge(PureDP(Fraction(1, 10)))
        won += 1
    except BudgetExhausted:
        pass
print(won)
"""


@pytest.mark.slow
def test_processes_together_spend_exactly_the_budget(ledger: LedgerFile) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(reticent.__file__).parents[1])}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, ledger.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert sum(int(one.communicate("go\n")[0]) for one in started) == 10


def test_what_is_recorded_in_a_transaction_that_fails_is_gone(
    ledger: LedgerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(ledger_file._FileStore, "append", fail)
    with pytest.raises(OSError, match="the disk is full"):
        ledger.charge(TENTH)
    monkeypatch.undo()
    assert ledger.events == {}


def test_its_store_is_a_ledger_store(ledger: LedgerFile) -> None:
    store: LedgerStore = ledger_file._FileStore(Path(ledger.path))
    with store.transaction():
        assert store.terms() is None
    with pytest.raises(RuntimeError, match="within a transaction"):
        store.counts()
