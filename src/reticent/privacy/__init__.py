"""Guarantees, events (what happened), accounting (what it costs) and ledgers (what may still be spent)."""

from reticent.privacy import calibrate, events
from reticent.privacy.accounting import delta, epsilon, fits, guarantee, renyi, rho
from reticent.privacy.events import Event, event_from_json, is_seeded
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.ledger import Ledger, LedgerStore, MemoryLedgerStore, Spent
from reticent.privacy.ledger_file import LedgerFile

__all__ = [
    "Event",
    "Guarantee",
    "Ledger",
    "LedgerFile",
    "LedgerStore",
    "MemoryLedgerStore",
    "Spent",
    "calibrate",
    "delta",
    "epsilon",
    "event_from_json",
    "events",
    "fits",
    "guarantee",
    "is_seeded",
    "renyi",
    "rho",
]
