"""Ledgers: exact sums, refusal before anything happens, threads, stores, and adversaries who choose the events."""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting import calls
from reticent.errors import BudgetExhausted
from reticent.privacy import Guarantee, Ledger, LedgerStore, MemoryLedgerStore, calibrate, divergences
from reticent.privacy.events import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Event,
    GaussianBit,
    Grouped,
    Parallel,
    PureDP,
    Repeated,
    SeededRelease,
    SparseVectorRun,
    Subsampled,
)
from reticent.privacy.ledger import _renyi_cost, renyi_budget
from waiting import LIMIT

TENTH = PureDP(Fraction(1, 10))
NOISY = DiscreteGaussian(Fraction(50))
PROMISE = Guarantee(epsilon=1.0, delta=1e-6)


# ── exact sums ────────────────────────────────────────────────────────────────────────────────────────────────────

def test_ten_tenths_spend_exactly_one_and_the_eleventh_is_refused() -> None:
    ledger = Ledger(Guarantee(epsilon=1.0))
    for _ in range(10):
        ledger.charge(TENTH)
    assert ledger.spent.used == ledger.spent.limit == 1
    assert ledger.events == {TENTH: 10}
    assert ledger.accounting == "basic"
    with pytest.raises(BudgetExhausted, match="not one more fits"):
        ledger.charge(TENTH)
    with pytest.raises(BudgetExhausted):
        ledger.charge(PureDP(Fraction(1, 10**17)))
    assert ledger.events == {TENTH: 10}


def test_running_float_sums_err_both_ways() -> None:
    """The twin: what a ledger of floats would do where ours is exact."""
    assert not 0.1 + 0.1 + 0.1 <= 0.3
    Ledger(Guarantee(epsilon=0.3)).charge(TENTH, 3)
    spent = 0.0
    for _ in range(10):
        spent += 0.1
    assert spent + 1e-17 <= 1.0  # more than the budget, and granted
    ledger = Ledger(Guarantee(epsilon=1.0))
    ledger.charge(TENTH, 10)
    with pytest.raises(BudgetExhausted):
        ledger.charge(PureDP(Fraction(1, 10**17)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), max_size=12))
def test_basic_accounting_is_the_exact_sum(charges: list[tuple[int, int]]) -> None:
    ledger = Ledger(Guarantee(epsilon=1.0, delta=0.001))
    total = Fraction(0)
    for share, times in charges:
        event = ApproximateDP(Fraction(share, 100), Fraction(share, 10**6))
        room = math.floor((1 - total) / event.epsilon)
        assert ledger.remaining(event) == room
        if times <= room:
            ledger.charge(event, times)
            total += times * event.epsilon
        else:
            with pytest.raises(BudgetExhausted):
                ledger.charge(event, times)
        assert ledger.spent.used == total
        assert ledger.spent.delta_used == total / 10**4


def test_delta_runs_out_too() -> None:
    ledger = Ledger(PROMISE)
    event = ApproximateDP(Fraction(1, 100), Fraction(4, 10**7))
    ledger.charge(event, 2)
    assert ledger.remaining(event) == 0
    with pytest.raises(BudgetExhausted, match=r"0\.02 of 1 epsilon and 8e-07 of 1e-06 delta spent"):
        ledger.charge(event)


def test_a_refusal_names_what_was_asked_what_is_spent_and_what_would_fit() -> None:
    ledger = Ledger(Guarantee(epsilon=1.0))
    ledger.charge(TENTH, 7)
    with pytest.raises(BudgetExhausted) as refusal:
        ledger.charge(TENTH, 4)
    assert str(refusal.value) == (
        "asked for 4 × PureDP(epsilon=0.1), but 3 more would fit: 0.7 of 1 epsilon spent. Nothing was charged."
    )
    assert ledger.remaining(TENTH) == 3


# ── one event ─────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_one_event_is_sold_as_often_as_any_accountant_allows() -> None:
    event = GaussianBit(Fraction(30), 200)
    ledger = Ledger(PROMISE, event=event)
    limit = calibrate.answers(event, epsilon=1, delta=1e-6)
    assert ledger.accounting == "one event"
    assert ledger.remaining() == limit > 60
    ledger.charge(times=limit - 1)
    ledger.charge(event)
    assert ledger.spent == ("answers", limit, limit, 0, 0)
    with pytest.raises(BudgetExhausted, match=f"not one more fits: {limit} of {limit} answers"):
        ledger.charge()
    with pytest.raises(ValueError, match="admits only GaussianBit"):
        ledger.charge(TENTH)


def test_one_event_that_never_fits() -> None:
    ledger = Ledger(Guarantee(epsilon=0.1), event=PureDP(Fraction(1)))
    assert ledger.remaining() == 0
    with pytest.raises(BudgetExhausted):
        ledger.charge()


def test_one_event_buys_more_than_a_filter() -> None:
    fixed, adaptive = Ledger(PROMISE, event=NOISY), Ledger(PROMISE)
    assert fixed.remaining() > 1.2 * adaptive.remaining(NOISY) > 0


def test_a_charge_is_quick() -> None:
    """A few calls, however many charges were made before."""
    ledger = Ledger(PROMISE, event=PureDP(Fraction(1, 10**9)))
    ledger.charge()  # what is made once is made now

    def charge(times: int) -> None:
        for _ in range(times):
            ledger.charge()

    for times in (1, 1000):
        assert calls(partial(charge, times))[1] < 30 * (times + 1)


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (PureDP(Fraction(1, 100)), "basic"),
        (ApproximateDP(Fraction(1, 100), Fraction(1, 10**9)), "basic"),
        (BoundedRange(Fraction(1, 100)), "basic"),
        (SparseVectorRun(Fraction(1, 100), 3, Fraction(1, 10**9)), "basic"),
        (Composed((TENTH, Grouped(TENTH, 2))), "basic"),
        (Subsampled(TENTH, Fraction(1, 2)), "basic"),
        (DiscreteGaussian(Fraction(100)), "renyi"),
        (GaussianBit(Fraction(100), 9), "renyi"),
        (ZCDP(Fraction(1, 10**4)), "renyi"),
        (Composed((TENTH, ZCDP(Fraction(1, 10**4)))), "renyi"),
        (Parallel((TENTH, ZCDP(Fraction(1, 10**4)))), "renyi"),
    ],
    ids=repr,
)
def test_the_first_event_fixes_the_rule(event: Event, rule: str) -> None:
    ledger = Ledger(PROMISE)
    assert ledger.accounting is None
    assert ledger.spent.used == 0
    ledger.charge(event)
    assert ledger.accounting == rule
    assert Fraction(ledger.spent.used) > 0


def test_a_refused_first_event_fixes_nothing() -> None:
    ledger = Ledger(PROMISE)
    with pytest.raises(BudgetExhausted):
        ledger.charge(PureDP(Fraction(2)))
    assert ledger.accounting is None
    ledger.charge(NOISY)
    assert ledger.accounting == "renyi"


def test_renyi_prices_every_kind_it_can() -> None:
    ledger = Ledger(PROMISE, accounting="renyi")
    for event in (TENTH, ApproximateDP(Fraction(1, 100), Fraction(1, 10**8)), BoundedRange(Fraction(1, 10)), NOISY):
        before = ledger.spent
        room = ledger.remaining(event)
        ledger.charge(event, min(3, room))
        assert ledger.spent.used > before.used
        assert ledger.remaining(event) == room - min(3, room)
    spent = ledger.spent
    assert spent.measure.startswith("divergence of order")
    assert spent.delta_used == pytest.approx(3e-8)
    assert spent.delta_limit == Fraction(1, 2 * 10**6)
    sampled = Subsampled(NOISY, Fraction(1, 10))
    with pytest.raises(ValueError, match="open a ledger for it alone, with event="):
        ledger.charge(sampled)
    assert sampled not in ledger.events


def test_basic_refuses_what_it_cannot_price_and_says_the_way_out() -> None:
    ledger = Ledger(PROMISE)
    ledger.charge(TENTH)
    with pytest.raises(ValueError, match=r"event=… .* accounting='renyi'"):
        ledger.charge(NOISY)
    with pytest.raises(ValueError, match="delta must be > 0"):
        Ledger(Guarantee(epsilon=1.0)).charge(NOISY)


def test_the_renyi_budget_depends_on_the_promise_alone_and_converts_back() -> None:
    order, budget = renyi_budget(Fraction(1), Fraction(1, 10**6))
    converted = float(budget) + (math.log(1e6) - math.log(order)) / (order - 1) + math.log1p(-1 / order)
    assert converted <= 1
    assert converted == pytest.approx(1, abs=1e-12)


# ── adversaries who choose the events ─────────────────────────────────────────────────────────────────────────────

Menu = tuple[Fraction, ...]


def optimal(menu: Menu, at: float) -> float:
    """δ(ε) of randomized responses with these ε, composed optimally."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(menu)):
        loss = sum(sign * float(own) for sign, own in zip(signs, menu, strict=True))
        chance = math.prod(1 / (1 + math.exp(-sign * float(own))) for sign, own in zip(signs, menu, strict=True))
        total += chance * max(0.0, -math.expm1(at - loss))
    return total


def game(menu: Menu, at: float, allowed: Callable[[Menu], bool], most: int = 4) -> float:
    """The δ of the best adversary who picks each ε in the light of the answers, as long as the rule allows it."""
    permitted = cache(allowed)

    @cache
    def value(spent: Menu, loss: Fraction) -> float:
        best = max(0.0, -math.expm1(at - float(loss)))
        for own in menu if len(spent) < most else ():
            after = tuple(sorted((*spent, own)))
            if permitted(after):
                chance = 1 / (1 + math.exp(-float(own)))
                best = max(best, chance * value(after, loss + own) + (1 - chance) * value(after, loss - own))
        return best

    return value((), Fraction(0))


def by_ledger(promise: Guarantee, accounting: Any) -> Callable[[Menu], bool]:
    """Whether a ledger lets these events through."""

    def allowed(spent: Menu) -> bool:
        ledger = Ledger(promise, accounting=accounting)
        try:
            for own in spent:
                ledger.charge(PureDP(own))
        except BudgetExhausted:
            return False
        return True

    return allowed


def test_pricing_whatever_happened_by_optimal_composition_is_broken() -> None:
    """The twin: a natural-looking filter that composes the list so far optimally; the same game rejects it.

    Events of ε = 1/2 and ε = 1 are for sale, the budget is ε = 1/2 with the δ that one event of ε = 1 has. By optimal
    composition that budget allows the lists (1/2, 1) and (1/2, 1/2, 1/2, 1/2), either of them. Who asks for 1/2 first,
    then for 1 if the answer was in favour, and for three more halves if not, gets 12 % more than was promised.
    """
    half, one = Fraction(1, 2), Fraction(1)
    menu, at = (half, one), 0.5
    promised = optimal((one,), at)
    assert optimal((half, one), at) == pytest.approx(promised, rel=1e-12)
    assert optimal((half,) * 4, at) < promised
    likely = {own: 1 / (1 + math.exp(-own)) for own in menu}
    strategy = likely[half] * likely[one] * -math.expm1(-1) + (1 - likely[half]) * likely[half] ** 3 * -math.expm1(-0.5)
    value = game(menu, at, lambda spent: optimal(spent, at) <= promised * (1 + 1e-12))
    assert value == pytest.approx(strategy, rel=1e-12)
    assert value > 1.12 * promised
    promise = Guarantee(epsilon=at, delta=promised)
    for accounting in ("basic", "renyi"):
        assert game(menu, at, by_ledger(promise, accounting)) <= promised


@pytest.mark.parametrize("accounting", ["basic", "renyi"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.1), (1.0, 0.05), (1.5, 0.2)])
def test_no_choice_of_events_beats_a_ledger(accounting: str, epsilon: float, delta: float) -> None:
    menu = (Fraction(1, 5), Fraction(1, 2), Fraction(1))
    allowed = by_ledger(Guarantee(epsilon=epsilon, delta=delta), accounting)
    assert game(menu, epsilon, allowed, most=5) <= delta


def test_one_order_lets_through_no_more_than_a_fixed_list_could_have() -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-6)
    small, large = DiscreteGaussian(Fraction(200)), DiscreteGaussian(Fraction(8))
    for event in (small, large):
        hindsight = calibrate.answers(event, epsilon=1, delta=5e-7)
        assert 0 < Ledger(promise).remaining(event) <= hindsight


# ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────

def _hammer(ledger: Ledger, event: Event, threads: int, tries: int) -> int:
    granted: list[int] = []
    start = threading.Barrier(threads)

    def work() -> None:
        start.wait()
        count = 0
        for _ in range(tries):
            try:
                ledger.charge(event)
                count += 1
            except BudgetExhausted:
                pass
        granted.append(count)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(granted)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("fixed", [True, False])
def test_threads_never_overspend_and_get_exactly_the_limit(fixed: bool) -> None:
    event = PureDP(Fraction(1, 300))
    ledger = Ledger(Guarantee(epsilon=1.0), event=event if fixed else None)
    assert _hammer(ledger, event, threads=8, tries=60) == 300
    assert ledger.events == {event: 300}
    assert ledger.remaining(event) == 0


class Unlocked(MemoryLedgerStore):
    """The twin: the count is checked outside of any lock, here by two threads at the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.both_have_looked = threading.Barrier(2, timeout=LIMIT)

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def counts(self) -> Mapping[str, int]:
        seen = dict(super().counts())
        self.both_have_looked.wait()
        return seen


def test_without_the_lock_threads_overspend() -> None:
    event = PureDP(Fraction(1))
    assert _hammer(Ledger(Guarantee(epsilon=1.0), event=event), event, threads=2, tries=1) == 1
    assert _hammer(Ledger(Guarantee(epsilon=1.0), event=event, store=Unlocked()), event, threads=2, tries=1) == 2


# ── stores ────────────────────────────────────────────────────────────────────────────────────────────────────────

class Sqlite:
    """The protocol in thirty lines of SQL: append-only rows, exclusive transactions, nothing but text and integers."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=LIMIT, check_same_thread=False)
        self.connection.execute("CREATE TABLE IF NOT EXISTS terms (terms TEXT NOT NULL)")
        self.connection.execute("CREATE TABLE IF NOT EXISTS charges (event TEXT NOT NULL, times INTEGER NOT NULL)")
        self.inside = threading.RLock()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.inside:
            self.connection.execute("BEGIN EXCLUSIVE")
            try:
                yield
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def terms(self) -> str | None:
        row = self.connection.execute("SELECT terms FROM terms").fetchone()
        return None if row is None else str(row[0])

    def agree(self, terms: str) -> None:
        self.connection.execute("INSERT INTO terms VALUES (?)", (terms,))

    def counts(self) -> Mapping[str, int]:
        return dict(self.connection.execute("SELECT event, SUM(times) FROM charges GROUP BY event"))

    def append(self, event: str, times: int) -> None:
        self.connection.execute("INSERT INTO charges VALUES (?, ?)", (event, times))


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], LedgerStore]]:
    """Opens the same store again and again."""
    if request.param == "memory":
        store = MemoryLedgerStore()
        yield lambda: store
        return
    opened: list[Sqlite] = []

    def connect() -> LedgerStore:
        opened.append(Sqlite(tmp_path / "ledger.db"))
        return opened[-1]

    yield connect
    for each in opened:
        each.connection.close()


def test_what_was_stored_before_is_honoured(reopen: Callable[[], LedgerStore]) -> None:
    Ledger(PROMISE, store=reopen()).charge(NOISY, 3)
    again = Ledger(PROMISE, store=reopen())
    assert again.accounting == "renyi"
    assert again.events == {NOISY: 3}
    assert again.remaining(NOISY) == Ledger(PROMISE).remaining(NOISY) - 3
    with pytest.raises(ValueError, match="guarantee must be the one"):
        Ledger(Guarantee(epsilon=2.0, delta=1e-6), store=reopen())
    with pytest.raises(ValueError, match="event must be the one"):
        Ledger(PROMISE, event=NOISY, store=reopen())


def test_two_ledgers_on_one_store_share_one_budget(reopen: Callable[[], LedgerStore]) -> None:
    one, two = (Ledger(Guarantee(epsilon=1.0), store=reopen()) for _ in range(2))
    one.charge(TENTH, 6)
    two.charge(TENTH, 4)
    assert two.accounting == "basic"
    for ledger in (one, two):
        with pytest.raises(BudgetExhausted):
            ledger.charge(TENTH)
        assert ledger.events == {TENTH: 10}


def test_ledgers_on_other_terms_may_not_share_a_store(reopen: Callable[[], LedgerStore]) -> None:
    """Whoever charges first fixes the terms, also for those who opened the store while it was empty."""
    others = [
        Ledger(Guarantee(epsilon=2.0, delta=1e-6), store=reopen()),
        Ledger(PROMISE, accounting="renyi", store=reopen()),
        Ledger(PROMISE, event=TENTH, store=reopen()),
    ]
    first = Ledger(PROMISE, accounting="basic", store=reopen())
    first.charge(TENTH)
    for other in others:
        for ask in (other.charge, other.remaining):
            with pytest.raises(ValueError, match="must be the one this store was opened with"):
                ask(TENTH)
    assert first.events == {TENTH: 1}


def test_one_event_continues_too(reopen: Callable[[], LedgerStore]) -> None:
    Ledger(PROMISE, event=TENTH, store=reopen()).charge(times=4)
    again = Ledger(PROMISE, event=TENTH, store=reopen())
    assert again.spent.used == 4
    with pytest.raises(ValueError, match="event must be the one"):
        Ledger(PROMISE, store=reopen())


def test_a_refusal_leaves_no_trace(reopen: Callable[[], LedgerStore]) -> None:
    store = reopen()
    ledger = Ledger(Guarantee(epsilon=1.0), store=store)
    with pytest.raises(BudgetExhausted):
        ledger.charge(TENTH, 11)
    with store.transaction():
        assert store.terms() is None
        assert not store.counts()


def test_records_are_json(reopen: Callable[[], LedgerStore]) -> None:
    store = reopen()
    Ledger(PROMISE, store=store).charge(Grouped(Repeated(TENTH, 2), 3))
    with store.transaction():
        (text,) = store.counts()
        terms = store.terms()
    assert json.loads(text)["event"]["event"] == {"kind": "PureDP", "epsilon": "1/10"}
    assert terms is not None
    assert json.loads(terms)["accounting"] == "basic"


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

def test_seeded_events_need_a_seeded_promise() -> None:
    seeded = Repeated(SeededRelease(TENTH), 2)
    with pytest.raises(ValueError, match="protects nobody"):
        Ledger(PROMISE).charge(seeded)
    with pytest.raises(ValueError, match="protects nobody"):
        Ledger(PROMISE, event=seeded)
    Ledger(Guarantee(epsilon=1.0, seeded=True)).charge(seeded)


@pytest.mark.parametrize("times", [0, -1, 1.5, True, "3", None])
def test_times_must_be_a_positive_count(times: Any) -> None:
    ledger = Ledger(PROMISE)
    with pytest.raises((TypeError, ValueError), match="times must be"):
        ledger.charge(TENTH, times)
    assert ledger.events == {}


def test_arguments_are_checked_by_name() -> None:
    with pytest.raises(TypeError, match="guarantee must be a Guarantee"):
        Ledger(1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="event must be given"):
        Ledger(PROMISE).charge()
    with pytest.raises(TypeError, match="event must be an Event"):
        Ledger(PROMISE).charge(0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accounting must be"):
        Ledger(PROMISE, accounting="optimal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not both"):
        Ledger(PROMISE, accounting="basic", event=TENTH)


# ── where floats end ──────────────────────────────────────────────────────────────────────────────────────────────

def test_nothing_is_free_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin lets divergences underflow to zero, and then sells 10^220 epsilons for nothing."""
    tiny, many = PureDP(Fraction(1, 10**200)), 10**420
    ledger = Ledger(PROMISE, accounting="renyi")
    with pytest.raises(BudgetExhausted):
        ledger.charge(tiny, many)
    assert 0 < ledger.remaining(tiny) < 10**300
    ledger.charge(tiny)
    assert ledger.spent.used > 0

    monkeypatch.setattr(divergences, "_TINY", 0.0)
    _renyi_cost.cache_clear()
    twin = Ledger(PROMISE, accounting="renyi")
    twin.charge(tiny, many)
    assert twin.spent.used == 0
    assert twin.remaining(tiny) == 0  # what seems to cost nothing cannot be counted
    _renyi_cost.cache_clear()


def test_a_ledger_shows_what_it_promises_and_what_is_spent() -> None:
    ledger = Ledger(Guarantee(epsilon=1.0))
    assert "accounting=None: 0 of 1 epsilon spent" in repr(ledger)
    ledger.charge(TENTH, 3)
    assert repr(ledger) == f"<Ledger of {ledger.guarantee}, accounting='basic': 0.3 of 1 epsilon spent>"


def test_a_store_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter's proof needs one order for all that a store ever admits, also where another would be found today."""
    guarantee, store = Guarantee(epsilon=1.0, delta=1e-6), MemoryLedgerStore()
    first = Ledger(guarantee, accounting="renyi", store=store)
    first.charge(DiscreteGaussian(Fraction(100)))
    monkeypatch.setattr(divergences, "best_order", lambda *_: (7.0, 0.0))
    assert Ledger(guarantee, accounting="renyi", store=store).spent == first.spent
    assert Ledger(guarantee, store=store).spent == first.spent
    assert Ledger(guarantee, accounting="renyi").spent != Ledger(guarantee, store=store).spent
