"""The registry of data sets: exact sums, refusals, parts, damage, two processes at once."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import reticent
from reticent.errors import BudgetExhausted
from reticent.privacy.events import ZCDP, PureDP
from reticent.service.datasets import budgets
from reticent.service.datasets.fingerprint import Fingerprint
from reticent.service.datasets.registry import LOG, SALT_FILE, Price, Receipt, Registry, words
from reticent.service.store.protocol import Damaged

ROWS = Fingerprint(100, "whole", ("a", "b"))
OTHER = Fingerprint(100, "other", ("a", "c"))
THIRD = Fingerprint(50, "third", ("d",))
FIT: dict[str, Any] = {"purpose": "fit", "epsilon": 1, "delta": 1e-6}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home" / "_data"


@pytest.fixture
def registry(place: Path) -> Iterator[Registry]:
    with Registry(place, create=True) as opened:
        yield opened


def again(registry: Registry) -> Registry:
    """The registry as another process finds it."""
    registry.close()
    return Registry(registry.folder)


# ── charges ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_fit_registers_its_rows_with_its_own_price_as_cap(registry: Registry) -> None:
    receipt = registry.charge(ROWS, **FIT, predictor="clinic")
    assert receipt[:4] == ("clinic", "clinic", True, False)
    assert words(receipt.spent) == "epsilon=1 of 1, delta=1e-06 of 1e-06"
    with again(registry) as later:
        (charge,) = later.named("clinic").charges
        assert (charge.purpose, charge.predictor, charge.unit) == ("fit", "clinic", "row")
        assert (later.named("clinic").epsilon, later.named("clinic").delta) == (Fraction(1), Fraction(1, 10**6))


def test_a_second_fit_is_refused_with_the_ways_out(registry: Registry) -> None:
    registry.charge(ROWS, **FIT, predictor="clinic")
    with pytest.raises(BudgetExhausted) as refused:
        registry.charge(ROWS, **FIT, predictor="again")
    message = str(refused.value)
    assert "costs epsilon=1, delta=1e-06" in message
    assert "epsilon=0, delta=0 is left" in message
    assert "reticent data raise clinic --cap-epsilon 2 --cap-delta 2e-06" in message
    assert "--again" in message
    assert "--part-of clinic" in message
    with again(registry) as later:
        assert len(later.named("clinic").charges) == 1


def test_what_comes_ahead_of_a_price_is_charged_only_if_both_fit(registry: Registry) -> None:
    """The cap of a new data set is both, and --again raises by both."""
    ahead: dict[str, Any] = {"purpose": "labels", "epsilon": Fraction(1, 50), "delta": 0}
    rest = Price("fit", Fraction(49, 50), 1e-6)
    receipt = registry.charge(ROWS, **ahead, ahead_of=rest, predictor="clinic")
    assert words(receipt.spent) == "epsilon=0.02 of 1, delta=0 of 1e-06"
    with pytest.raises(BudgetExhausted, match="this fit costs epsilon=1, delta=1e-06"):
        registry.charge(ROWS, **ahead, ahead_of=rest)
    assert len(registry.named("clinic").charges) == 1
    assert words(registry.charge(ROWS, **rest._asdict()).spent) == "epsilon=1 of 1, delta=1e-06 of 1e-06"
    raised = registry.charge(ROWS, **ahead, ahead_of=rest, again=True)
    assert (raised.raised, words(raised.spent)) == (True, "epsilon=1.02 of 2, delta=1e-06 of 2e-06")


def test_again_raises_the_cap_by_the_price(registry: Registry) -> None:
    registry.charge(ROWS, **FIT, predictor="clinic")
    receipt = registry.charge(ROWS, **FIT, predictor="more", again=True)
    assert receipt.raised
    assert words(receipt.spent) == "epsilon=2 of 2, delta=2e-06 of 2e-06"
    registry.raise_cap("clinic", epsilon=5, delta=Fraction(5, 10**6))
    assert not registry.charge(ROWS, **FIT, again=True).raised  # it fits


def test_sums_are_exact(registry: Registry) -> None:
    registry.add("clinic", ROWS, epsilon=1)
    for _ in range(10):
        registry.charge(ROWS, purpose="schema", epsilon=0.1, delta=0)
    assert budgets.spent_on(registry.sets, "clinic").used == 1
    with pytest.raises(BudgetExhausted):
        registry.charge(ROWS, purpose="schema", epsilon=Fraction(1, 10**17), delta=0)


def test_a_third_is_spent_three_times(registry: Registry) -> None:
    registry.charge(ROWS, purpose="fit", epsilon=Fraction(1, 3), delta=0, predictor="clinic")
    for _ in range(2):
        registry.charge(ROWS, purpose="fit", epsilon=Fraction(1, 3), delta=0, again=True)
    assert budgets.spent_on(registry.sets, "clinic").used == 1
    with pytest.raises(BudgetExhausted, match=r"--cap-epsilon 4/3 "):
        registry.charge(ROWS, purpose="fit", epsilon=Fraction(1, 3), delta=0)


def test_delta_runs_out_too(registry: Registry) -> None:
    registry.add("clinic", ROWS, epsilon=10, delta=1e-6)
    registry.charge(ROWS, **FIT)
    with pytest.raises(BudgetExhausted, match="epsilon=9, delta=0 is left"):
        registry.charge(ROWS, **FIT)
    registry.charge(ROWS, purpose="fit", epsilon=1, delta=0)


def test_events_compose_better_than_pairs(registry: Registry) -> None:
    """Each of these is 1-DP. As what they are, twenty of them cost less than as pairs."""
    registry.add("clinic", ROWS, epsilon=4, delta=1e-6, accounting="renyi")
    for _ in range(20):
        registry.charge(ROWS, purpose="schema", epsilon=1, delta=1e-6, event=ZCDP(Fraction(1, 100)))
    assert budgets.spent_on(registry.sets, "clinic").measure.startswith("divergence")
    registry.add("site", THIRD, epsilon=4, delta=1e-6)
    for _ in range(4):
        registry.charge(THIRD, purpose="schema", epsilon=1, delta=0, event=ZCDP(Fraction(1, 100)))
    with pytest.raises(BudgetExhausted):
        registry.charge(THIRD, purpose="schema", epsilon=1, delta=0, event=ZCDP(Fraction(1, 100)))


def test_rows_are_charged_to_the_data_set_that_is_named(registry: Registry) -> None:
    registry.add("clinic", epsilon=3)
    registry.charge(ROWS, purpose="fit", epsilon=1, delta=0, data="clinic")
    assert registry.charge(ROWS, purpose="fit", epsilon=1, delta=0).name == "clinic"  # they are known from now on
    registry.charge(THIRD, purpose="fit", epsilon=1, delta=0, data="clinic")  # the table has grown
    with pytest.raises(BudgetExhausted):
        registry.charge(THIRD, purpose="fit", epsilon=1, delta=0)


def test_known_rows_are_not_charged_elsewhere(registry: Registry) -> None:
    registry.charge(ROWS, **FIT, predictor="clinic")
    registry.add("other", epsilon=9)
    with pytest.raises(ValueError, match="has the rows of the data set 'clinic', not of 'other'"):
        registry.charge(ROWS, purpose="fit", epsilon=1, delta=0, data="other")
    with pytest.raises(ValueError, match="has the rows of the data set 'clinic'"):
        registry.add("copy", ROWS, epsilon=9)


def test_a_name_that_is_taken(registry: Registry) -> None:
    assert registry.charge(ROWS, **FIT, predictor="clinic").name == "clinic"
    assert registry.charge(OTHER, **FIT, predictor="clinic").name == "clinic-2"
    assert registry.charge(THIRD, **FIT, predictor="clinic").name == "clinic-3"
    long = "x" * 64
    registry.add(long, epsilon=1)
    assert registry.charge(Fingerprint(1, "e", ("e",)), **FIT, predictor=long).name == "x" * 56 + "-2"


def test_units(registry: Registry) -> None:
    registry.add("clinic", ROWS, epsilon=3)
    registry.charge(ROWS, purpose="fit", epsilon=1, delta=0, unit="patient")
    assert budgets.unit_of(registry.sets, "clinic") == "patient"
    registry.charge(ROWS, purpose="fit", epsilon=1, delta=0)
    assert budgets.unit_of(registry.sets, "clinic") == "row"


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_parts(registry: Registry) -> None:
    registry.add("clinic", epsilon=2)
    registry.add("jan", OTHER, part_of="clinic")
    registry.add("feb", THIRD, part_of="clinic")


def spend(registry: Registry, rows: Fingerprint, epsilon: Any = 1, **more: Any) -> Receipt:
    return registry.charge(rows, purpose="fit", epsilon=epsilon, delta=0, **more)


def test_parts_pay_each_for_itself(registry: Registry) -> None:
    with_parts(registry)
    for rows in (OTHER, OTHER, THIRD):
        spend(registry, rows)
    assert budgets.spent_on(registry.sets, "clinic").used == 2  # the larger one, not 3
    assert budgets.spent_on(registry.sets, "feb").used == 1
    with pytest.raises(BudgetExhausted, match="'jan'"):
        spend(registry, OTHER)
    spend(registry, THIRD)


def test_the_whole_is_paid_by_all_parts(registry: Registry) -> None:
    with_parts(registry)
    spend(registry, OTHER)
    spend(registry, ROWS, data="clinic")
    assert budgets.spent_on(registry.sets, "jan").used == 2
    assert budgets.spent_on(registry.sets, "feb").used == 1
    with pytest.raises(BudgetExhausted):
        spend(registry, ROWS)  # one of its parts has nothing left
    spend(registry, THIRD)
    assert not any(budgets.fits(registry.sets, name, PureDP(Fraction(1, 100))) for name in ("clinic", "jan", "feb"))


def test_the_twin_that_adds_only_the_largest_part_is_too_generous(registry: Registry) -> None:
    """What would be wrong: to let a part pay for itself alone, although the whole was charged."""
    with_parts(registry)
    spend(registry, ROWS, 2, data="clinic")
    own = sum(one.event.epsilon for one in registry.named("jan").charges if isinstance(one.event, PureDP))
    assert own + 1 <= 2  # the twin would admit it
    with pytest.raises(BudgetExhausted):
        spend(registry, OTHER)


def test_again_of_a_part_raises_the_cap_of_all(registry: Registry) -> None:
    with_parts(registry)
    receipt = spend(registry, OTHER, 3, again=True)
    assert (receipt.name, receipt.whole, receipt.raised) == ("jan", "clinic", True)
    assert registry.named("clinic").epsilon == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"part_of": "nowhere"}, "there is no data set 'nowhere'; there are: clinic, jan, feb"),
        ({"part_of": "jan"}, "'jan' is itself a part, of 'clinic'"),
        ({"part_of": "clinic", "epsilon": 1}, "has the cap of its data set"),
    ],
)
def test_parts_that_cannot_be(registry: Registry, given: dict[str, Any], message: str) -> None:
    with_parts(registry)
    with pytest.raises(ValueError, match=message):
        registry.add("mar", **given)
    with pytest.raises(ValueError, match="is a part and has the cap of 'clinic'"):
        registry.raise_cap("jan", epsilon=3)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", "a b", "../a", "_data", ".a", "a/b", "a\nb", "é", "x" * 65])
def test_odd_names(registry: Registry, name: str) -> None:
    with pytest.raises(ValueError, match="name must be letters, digits"):
        registry.add(name, epsilon=1)
    with pytest.raises(ValueError, match="name must be letters, digits"):
        registry.charge(ROWS, **FIT, data=name)


@pytest.mark.parametrize(
    "cap", [{"epsilon": -1}, {"epsilon": 0}, {"epsilon": float("nan")}, {"epsilon": float("inf")}, {},
            {"epsilon": 1, "delta": -1e-6}, {"epsilon": 1, "delta": 1}, {"epsilon": 1, "delta": float("nan")},
            {"epsilon": 1, "accounting": "renyi"}],
)  # fmt: skip
def test_odd_caps(registry: Registry, cap: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cap-"):
        registry.add("clinic", **cap)
    assert registry.sets == {}


@pytest.mark.parametrize("price", [(-1, 0), (0, 0), (float("nan"), 0), (1, 1), (1, -1)])
def test_odd_prices(registry: Registry, price: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        registry.charge(ROWS, purpose="fit", epsilon=price[0], delta=price[1])
    assert registry.sets == {}


@pytest.mark.parametrize("new", [{"epsilon": 1}, {"epsilon": 0.5}, {"delta": 0}, {"epsilon": 2, "delta": 0}])
def test_a_cap_is_not_lowered(registry: Registry, new: dict[str, Any]) -> None:
    registry.charge(ROWS, **FIT, predictor="clinic")
    with pytest.raises(ValueError, match="what is spent cannot be taken back"):
        registry.raise_cap("clinic", **new)


def test_a_cap_that_would_reach_a_delta_of_one(registry: Registry) -> None:
    registry.charge(ROWS, purpose="fit", epsilon=1, delta=0.6, predictor="clinic")
    with pytest.raises(ValueError, match="delta must be in"):
        registry.charge(ROWS, purpose="fit", epsilon=1, delta=0.6, again=True)
    assert len(registry.named("clinic").charges) == 1


# ── the files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_owner_may_read_them_and_salts_differ(tmp_path: Path) -> None:
    salts = set()
    for home in ("one", "two"):
        with Registry(tmp_path / home / "_data", create=True) as registry:
            registry.charge(ROWS, **FIT)
            salts.add(registry.salt)
        for file in (tmp_path / home / "_data").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(salts) == 2


def spoiled(registry: Registry, statement: str) -> None:
    registry.close()
    with sqlite3.connect(registry.folder / LOG) as db:
        db.executescript(f"DROP TRIGGER records_no_update; DROP TRIGGER records_no_delete; {statement}")
    db.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE records SET record = replace(record, '\"1\"', '\"9\"') WHERE number = 1", "record 1 is not the one"),
        ("UPDATE records SET time = time - 1 WHERE number = 2", "record 2 is not the one"),
        ("DELETE FROM records WHERE number = 2", "record 2 is not the one"),
        ("DELETE FROM records WHERE number > 2", "has lost records: it has 2, but the witness saw 4"),
        ("DELETE FROM records", "has lost records"),
        ("UPDATE settings SET value = 'x' WHERE name = 'id'", "record 1 is not the one"),
    ],
)
def test_what_was_changed_is_refused(registry: Registry, statement: str, message: str) -> None:
    registry.charge(ROWS, **FIT, predictor="clinic")
    registry.raise_cap("clinic", epsilon=2)
    spoiled(registry, statement)
    with pytest.raises(Damaged, match=message):
        Registry(registry.folder)


def test_a_copy_from_before_is_refused(registry: Registry) -> None:
    registry.charge(ROWS, **FIT, predictor="clinic")
    registry.close()
    before = (registry.folder / LOG).read_bytes()
    with Registry(registry.folder) as later:
        later.charge(ROWS, **FIT, again=True)
    (registry.folder / LOG).write_bytes(before)
    with pytest.raises(Damaged, match="has lost records"):
        Registry(registry.folder)


@pytest.mark.parametrize("file", [LOG, SALT_FILE, "witness"])
@pytest.mark.parametrize("content", [None, b"", b"x" * 4096])
def test_files_that_are_gone_or_something_else(registry: Registry, file: str, content: bytes | None) -> None:
    """In particular no new salt is made, by which known rows would be taken for new ones."""
    registry.charge(ROWS, **FIT)
    registry.close()
    if content is None:
        (registry.folder / file).unlink()
    else:
        (registry.folder / file).write_bytes(content)
    with pytest.raises(Damaged):
        Registry(registry.folder, create=True)


def test_a_whole_chain_that_was_written_by_another_program_is_checked_too(registry: Registry) -> None:
    """Hashes that fit do not make a record that can be read."""
    registry._log.append([{"kind": "refund", "name": "clinic"}], time=0)
    with pytest.raises(Damaged, match="record 1 cannot be read"):
        again(registry)


def test_there_is_no_registry_before_it_is_made(place: Path) -> None:
    with pytest.raises(FileNotFoundError, match="reticent data add"):
        Registry(place)
    assert not place.exists()


# ── two processes ─────────────────────────────────────────────────────────────────────────────────────────────────

RIVAL = """
import json, sys
from pathlib import Path
from reticent.errors import BudgetExhausted
from reticent.service.datasets.fingerprint import Fingerprint
from reticent.service.datasets.registry import Registry
won = 0
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    try:
        with Registry(Path(sys.argv[1]), create=True) as registry:
            rows = Fingerprint(100, "whole", ("a", "b"))
            registry.charge(rows, purpose="fit", epsilon=1, delta=0, predictor="clinic")
        won += 1
    except BudgetExhausted:
        pass
print(won)
"""


def rivals(place: Path, many: int, each: int) -> list[int]:
    """How often each of several processes could charge the same rows, all of them at once."""
    environment = os.environ | {"PYTHONPATH": str(Path(reticent.__file__).parents[1])}
    command = [sys.executable, "-c", RIVAL, str(place), str(each)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(many)
    ]
    return [int(one.communicate("go\n")[0]) for one in started]


@pytest.mark.slow
def test_of_two_processes_exactly_one_registers_and_charges(place: Path) -> None:
    assert sorted(rivals(place, 2, 1)) == [0, 1]
    with Registry(place) as registry:
        assert list(registry.sets) == ["clinic"]
        assert len(registry.named("clinic").charges) == 1


@pytest.mark.slow
def test_processes_together_spend_exactly_the_cap(place: Path) -> None:
    with Registry(place, create=True) as registry:
        registry.add("clinic", ROWS, epsilon=7)
    assert sum(rivals(place, 3, 5)) == 7
    with Registry(place) as registry:
        assert budgets.spent_on(registry.sets, "clinic").used == 7
        assert registry.verify()[0] == 9


def test_records_can_be_checked_by_anyone(registry: Registry) -> None:
    """The chain is plain JSON and SHA-256, as docs/service/data-budgets.md describes it."""
    registry.charge(ROWS, **FIT)
    registry.close()
    with sqlite3.connect(registry.folder / LOG) as db:
        settings = dict(db.execute("SELECT name, value FROM settings"))
        rows = db.execute("SELECT * FROM records ORDER BY number").fetchall()
    db.close()

    def sha(content: Any) -> bytes:
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).digest()

    head = sha(settings)
    for number, time, record, previous, found in rows:
        assert previous == head
        head = sha({"number": number, "time": time, "record": record, "previous": head.hex()})
        assert found == head
