"""Budgets: whether an event may still happen is decided before any data are read.

A ledger holds one `Guarantee` for everything that it admits. It records events, not answers. Each query may be chosen
depending on earlier answers. A ledger adds up by one of three rules, each with a proof:

one event   Only one event is admitted, fixed when the ledger is opened. The list of events is then known in advance
            (the event, a number of times), any accountant may price it, and the ledger only counts.
basic       Σ εᵢ ≤ ε and Σ δᵢ ≤ δ, in exact fractions. Valid for events chosen adaptively.
renyi       Σ D_α(eventᵢ) ≤ B at one public order α, and Σ δᵢ ≤ δ/2. Valid for events chosen adaptively.

Pricing the recorded events by optimal composition would be wrong: an adversary that chooses events by earlier answers
can exceed that price. See docs/ledger.md for proofs and an exact counterexample.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from reticent.errors import BudgetExhausted
from reticent.exact import integer, log_bounds, rational
from reticent.privacy import calibrate, divergences, pairs
from reticent.privacy.events import Event, check_event, event_from_json, is_seeded
from reticent.privacy.floats import Floats
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.guard import Guard, Guarded

Accounting = Literal["one event", "basic", "renyi"]
Cost = tuple[Fraction | int, Fraction | int]


class LedgerStore(Protocol):
    """Where a ledger keeps its records. Events and terms are canonical JSON texts, so any database can store them.

    Records are only appended. `transaction` gives exclusive access among all users of the store, threads and processes.
    Records appended in a transaction are durable when it ends, and absent if it ends with an exception.
    """

    def transaction(self) -> AbstractContextManager[object]:
        """Return a context manager that gives exclusive access."""

    def terms(self) -> str | None:
        """Return the recorded terms, or None."""

    def agree(self, terms: str) -> None:
        """Record the terms, once, within a transaction.

        Parameters
        ----------
        terms : str
            The guarantee and the rule of the ledger, as JSON text.
        """

    def counts(self) -> Mapping[str, int]:
        """Return how often each event was recorded, as seen within the transaction."""

    def append(self, event: str, times: int) -> None:
        """Record an event `times` times, within a transaction.

        Parameters
        ----------
        event : str
            The event, as JSON text.
        times : int
            How often it is recorded.
        """


class MemoryLedgerStore(Guarded):
    """Records in memory, for one process. Threads may share it."""

    def __init__(self) -> None:
        self._guard = Guard(type(self))
        self._lock = threading.RLock()
        self._terms: str | None = None
        self._counts: dict[str, int] = {}
        self._view = MappingProxyType(self._counts)

    def transaction(self) -> AbstractContextManager[object]:
        """Return the lock of the store, which is reentrant."""
        self._guard.check()
        return self._lock

    def terms(self) -> str | None:
        """Return the recorded terms, or None."""
        self._guard.check()
        return self._terms

    def agree(self, terms: str) -> None:
        """Record the terms."""
        self._guard.check()
        self._terms = terms

    def counts(self) -> Mapping[str, int]:
        """Return how often each event was recorded."""
        self._guard.check()
        return self._view

    def append(self, event: str, times: int) -> None:
        """Record an event `times` times."""
        self._guard.check()
        self._counts[event] = self._counts.get(event, 0) + times


class Spent(NamedTuple):
    """How much of a budget is used, exactly.

    Attributes
    ----------
    measure : str
        The unit: ε, a divergence, or answers.
    used, limit : Fraction or int
        The amount used, and the budget.
    delta_used, delta_limit : Fraction or int
        The same for δ.
    """

    measure: str
    used: Fraction | int
    limit: Fraction | int
    delta_used: Fraction | int
    delta_limit: Fraction | int


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a ledger adds up: a cost of two components per event, and a limit on the sum of each."""

    accounting: Accounting
    measure: str
    limit: Cost
    order: float = math.nan
    event: str | None = None

    def cost(self, event: Event, key: str) -> Cost:
        """Return the cost of one `event`; a ValueError states why it has none, and what to do instead."""
        if self.accounting == "one event":
            if key != self.event:
                raise ValueError(f"this ledger admits only {describe(_event(str(self.event)))}, not {describe(event)}")
            return 1, 0
        if self.accounting == "basic":
            price = pairs.pair(event)
            if price is None:
                raise ValueError(
                    f"{describe(event)} has no epsilon and delta of its own, and this ledger adds up epsilons: open it "
                    f"with event=… (for that event alone), or with accounting='renyi'"
                )
            return price
        divergence, slack = _renyi_cost(event, self.order)
        if not math.isfinite(divergence):
            raise ValueError(
                f"{describe(event)} has no Rényi divergence that can be certified: open a ledger for it alone, with "
                f"event=…"
            )
        return Fraction(divergence), slack


class Ledger(Guarded):
    """A budget for one data set that refuses before it would be overspent, and before any data are read.

    If one event recurs, give it as `event`: then any accountant may price it, which allows most answers. Without it,
    events may be chosen adaptively. A store that has records is continued under the same terms.

    Guarantee. Everything that is released after its event was charged satisfies `guarantee`, all together, however the
    queries and (without `event`) the events were chosen depending on earlier releases.

    Why. One event: the list of events is fixed, and stopping early is post-processing. Basic and Rényi: by induction
    from the last event to the first, with a limit that holds on every path. The proofs are in docs/ledger.md.

    Source. Rogers, Roth, Ullman, Vadhan 2016 (filters; the basic one needs no correction for δ); Feldman, Zrnic 2021
    (Rényi filter at a fixed order), here also for events that have a δ.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee of everything that is admitted.
    event : Event or None, default None
        The only event that is admitted, if there is only one.
    accounting : {"basic", "renyi"} or None, default None
        The rule for events chosen adaptively. None fixes the rule by the first event that is charged, when no data
        have been read yet.
    store : LedgerStore or None, default None
        Where the records are kept; None for memory.

    Examples
    --------
    >>> from reticent.privacy.events import PureDP
    >>> ledger = Ledger(Guarantee(epsilon=1.0))
    >>> for _ in range(10):
    ...     ledger.charge(PureDP(0.1))
    >>> ledger.spent.used == 1, ledger.remaining(PureDP(0.1))
    (True, 0)
    """

    _instead = "Open a ledger in the process that uses it, or share a LedgerFile among processes"

    def __init__(
        self,
        guarantee: Guarantee,
        *,
        event: Event | None = None,
        accounting: Literal["basic", "renyi"] | None = None,
        store: LedgerStore | None = None,
    ) -> None:
        if not isinstance(guarantee, Guarantee):
            raise TypeError(f"guarantee must be a Guarantee, got {type(guarantee).__name__}")
        if accounting not in (None, "basic", "renyi"):
            raise ValueError(f"accounting must be 'basic', 'renyi' or None, got {accounting!r}")
        if event is not None and accounting is not None:
            raise ValueError("give either event (which any accountant may price) or accounting, not both")
        self.guarantee = guarantee
        self.event = event
        self._store: LedgerStore = MemoryLedgerStore() if store is None else store
        self._epsilon, self._delta = rational(guarantee.epsilon, "epsilon"), rational(guarantee.delta, "delta")
        self._key = None if event is None else _key(self._checked(event))
        self._rule: _Rule | None = None
        self._agreed = False  # whether the store is known to be kept by this rule
        if event is not None or accounting is not None:
            self._rule = self._make_rule(accounting or "one event")
        with self._store.transaction():
            self._fixed_rule()
        self._guard = Guard(type(self))

    # ── budget ────────────────────────────────────────────────────────────────────────────────────────────────────

    def charge(self, event: Event | None = None, times: int = 1) -> None:
        """Record that `event` is about to happen `times` times, or refuse and record nothing. Call it before data are
        read.

        Parameters
        ----------
        event : Event or None, default None
            The event; None for that of the ledger.
        times : int, default 1
            How often it is about to happen.

        Raises
        ------
        BudgetExhausted
            If it does not fit. The message states how many would.
        """
        self._guard.check()
        event, key = self._asked(event)
        times, store = integer(times, "times", least=1), self._store
        with store.transaction():
            rule = self._fixed_rule() or self._rule_for(event)
            cost, used = rule.cost(event, key), self._used(rule, store.counts())
            if used[0] + times * cost[0] > rule.limit[0] or used[1] + times * cost[1] > rule.limit[1]:
                raise BudgetExhausted(self._refusal(rule, event, times, used, cost))
            if not self._agreed:
                store.agree(self._terms(rule))
            store.append(key, times)
        self._rule, self._agreed = rule, True

    def remaining(self, event: Event | None = None) -> int:
        """Return how many more of `event` (None: that of the ledger) fit.

        Parameters
        ----------
        event : Event or None, default None
            The event; None is the event of the ledger.
        """
        self._guard.check()
        event, key = self._asked(event)
        with self._store.transaction():
            rule = self._fixed_rule() or self._rule_for(event)
            return _more_that_fit(rule, self._used(rule, self._store.counts()), rule.cost(event, key))

    @property
    def accounting(self) -> Accounting | None:
        """The rule of this ledger; None until one is fixed."""
        return None if self._rule is None else self._rule.accounting

    @property
    def events(self) -> dict[Event, int]:
        """The events that were charged, and how often."""
        self._guard.check()
        with self._store.transaction():
            return {_event(key): times for key, times in self._store.counts().items()}

    @property
    def spent(self) -> Spent:
        """How much of the budget is used, in the units of the ledger's rule.

        Use it for planning. It is not a smaller guarantee: when to stop may have depended on answers, so all releases
        together satisfy `guarantee`, and no less.
        """
        self._guard.check()
        with self._store.transaction():
            rule = self._fixed_rule()
            if rule is None:
                return Spent("epsilon", 0, self._epsilon, 0, self._delta)
            used = self._used(rule, self._store.counts())
        return Spent(rule.measure, used[0], rule.limit[0], used[1], rule.limit[1])

    def __repr__(self) -> str:
        if self._guard.elsewhere:
            return f"<Ledger of {self.guarantee}, of another process>"
        spent = self.spent
        used = f"{as_decimal(spent.used)} of {as_decimal(spent.limit)} {spent.measure}"
        return f"<Ledger of {self.guarantee}, accounting={self.accounting!r}: {used} spent>"

    # ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rule_for(self, event: Event) -> _Rule:
        return self._make_rule("renyi" if pairs.pair(event) is None else "basic")

    def _make_rule(self, accounting: Accounting, order: float | None = None) -> _Rule:
        if self.event is not None:
            most = calibrate.answers(self.event, epsilon=self._epsilon, delta=self._delta)
            return _Rule("one event", "answers", (most, 0), event=self._key)
        if accounting == "basic":
            return _Rule("basic", "epsilon", (self._epsilon, self._delta))
        if self._delta == 0:
            raise ValueError("delta must be > 0 for events that have no epsilon of their own, got 0")
        order, budget = renyi_budget(self._epsilon, self._delta / 2, order)
        return _Rule("renyi", f"divergence of order {order:g}", (budget, self._delta / 2), order)

    def _terms(self, rule: _Rule) -> str:
        event = None if rule.event is None else json.loads(rule.event)
        # The order is one of the terms, since another version might find another one.
        order = rule.order if rule.accounting == "renyi" else None
        guarantee = json.loads(self.guarantee.to_json())
        return _canonical({"guarantee": guarantee, "accounting": rule.accounting, "order": order, "event": event})

    def _fixed_rule(self) -> _Rule | None:
        """The rule, if one is fixed, within a transaction. A ledger on other terms may not share the store."""
        agreed = None if self._agreed else self._store.terms()
        if agreed is not None:
            terms = json.loads(agreed)
            kept = None if terms["event"] is None else _canonical(terms["event"])
            if Guarantee.from_json(terms["guarantee"]) != self.guarantee:
                raise ValueError(f"guarantee must be the one this store was opened with: {terms['guarantee']}")
            if kept != self._key:
                raise ValueError(f"event must be the one this store was opened with: {terms['event']}")
            if self._rule is not None and self._rule.accounting != terms["accounting"]:
                raise ValueError(f"accounting must be the one this store was opened with: {terms['accounting']!r}")
            if self._rule is None or terms["order"] is not None:
                self._rule = self._make_rule(terms["accounting"], terms["order"])
            self._agreed = True
        return self._rule

    # ── sums ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _used(self, rule: _Rule, counts: Mapping[str, int]) -> Cost:
        """The sums so far, computed from integer counts and exact costs: no float is accumulated."""
        if rule.accounting == "one event":
            return counts.get(rule.event or "", 0), 0
        first: Fraction | int = 0
        second: Fraction | int = 0
        for key, times in counts.items():
            cost = rule.cost(_event(key), key)
            first, second = first + times * cost[0], second + times * cost[1]
        return first, second

    def _refusal(self, rule: _Rule, event: Event, times: int, used: Cost, cost: Cost) -> str:
        more = _more_that_fit(rule, used, cost)
        spent = f"{as_decimal(used[0])} of {as_decimal(rule.limit[0])} {rule.measure}"
        if rule.limit[1]:
            spent += f" and {as_decimal(used[1])} of {as_decimal(rule.limit[1])} delta"
        fit = f"{more} more would fit" if more else "not one more fits"
        return f"asked for {times} × {describe(event)}, but {fit}: {spent} spent. Nothing was charged."

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, event: Event | None) -> tuple[Event, str]:
        if self.event is not None and self._key is not None and (event is None or event is self.event):
            return self.event, self._key
        if event is None:
            raise TypeError("event must be given: this ledger was opened without one")
        return event, _key(self._checked(event))

    def _checked(self, event: Event) -> Event:
        if is_seeded(check_event(event)) and not self.guarantee.seeded:
            raise ValueError(
                "event was made with seeded noise, which protects nobody: a ledger admits it only under a guarantee "
                "with seeded=True"
            )
        return event


def renyi_budget(epsilon: Fraction, delta: Fraction, order: float | None = None) -> tuple[float, Fraction]:
    """Return the order at which (ε, δ) buys most zCDP (or the given one), and the divergence of that order that fits.

    Both depend on the budget alone; the divergence is rounded down. D_α ≤ B gives (ε, δ) for
    B = ε − ln(1/(αδ))/(α−1) − ln(1 − 1/α) (Canonne, Kamath, Steinke 2020, Proposition 12).

    >>> order, budget = renyi_budget(Fraction(1), Fraction(1, 10**6))
    >>> round(order, 1), round(float(budget / Fraction(order)), 5)
    (21.9, 0.02436)
    """
    log_delta = math.log(float(delta))

    def cost(orders: Floats) -> Floats:
        conversion = divergences.epsilon_at(np.zeros_like(orders), orders, log_delta)
        return np.asarray(-(float(epsilon) - conversion) / orders)

    if order is None:
        order = float(f"{divergences.best_order(cost)[0]:.4g}")
    exact = Fraction(order)
    conversion = log_bounds(1 / (exact * delta), 128)[1] / (exact - 1) + log_bounds(1 - 1 / exact, 128)[1]
    return order, max(Fraction(0), epsilon - conversion)


@lru_cache(maxsize=4096)
def _renyi_cost(event: Event, order: float) -> tuple[float, Fraction]:
    """The divergence of one event, and its slack δ."""
    slack, divergence = divergences.divergence(event, np.array([order]))
    return float(divergence[0]), slack


def _more_that_fit(rule: _Rule, used: Cost, cost: Cost) -> int:
    left = ((Fraction(limit) - gone, price) for limit, gone, price in zip(rule.limit, used, cost, strict=True))
    # Events have a positive cost. Of an event without cost, none are admitted rather than all.
    return min((max(0, math.floor(rest / price)) for rest, price in left if price), default=0)


# ── events as text ────────────────────────────────────────────────────────────────────────────────────────────────

def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _key(event: Event) -> str:
    return _canonical(event.to_json())


@lru_cache(maxsize=4096)
def _event(key: str) -> Event:
    return event_from_json(json.loads(key))


def describe(event: Event) -> str:
    """Return an event in one line, with its parameters as they were written.

    >>> from reticent.privacy.events import PureDP
    >>> describe(PureDP(0.1))
    'PureDP(epsilon=0.1)'
    """
    values = ((field.name, getattr(event, field.name)) for field in fields(event))
    return f"{type(event).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in values)})"


def _shown(value: object) -> str:
    if isinstance(value, Event):
        return describe(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return as_decimal(value) if isinstance(value, (int, Fraction)) else str(value)


def as_decimal(value: Fraction | int) -> str:
    """Return a number in at most twelve digits, with a mark if there are more.

    >>> as_decimal(Fraction(1, 10**6)), as_decimal(Fraction(1, 3))
    ('1e-06', '0.333333…')
    """
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    decimal = f"{float(exact):.12g}"
    return decimal if Fraction(decimal) == exact else f"{float(exact):.6g}…"
