"""Private learning and private prediction: answers every question, never tells who taught it."""

from importlib.metadata import version

from reticent import audit, mechanisms, noise, privacy
from reticent.errors import BudgetExhausted, InsufficientData, PrivacyWarning
from reticent.privacy import Guarantee, Ledger

__version__ = version("reticent")

__all__ = [
    "BudgetExhausted",
    "Guarantee",
    "InsufficientData",
    "Ledger",
    "PrivacyWarning",
    "audit",
    "mechanisms",
    "noise",
    "privacy",
]
