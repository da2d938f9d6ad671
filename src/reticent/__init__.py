"""Private learning and private prediction: answers every question, never tells who taught it."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from reticent import audit, mechanisms, noise, privacy
from reticent.errors import BudgetExhausted, InsufficientData, PrivacyWarning
from reticent.privacy import Guarantee, Ledger

if TYPE_CHECKING:
    from reticent.learners import ExponentialLearner, PointLearner, PrivateLogisticRegression, ThresholdLearner

__version__ = version("reticent")

__all__ = [
    "BudgetExhausted",
    "ExponentialLearner",
    "Guarantee",
    "InsufficientData",
    "Ledger",
    "PointLearner",
    "PrivacyWarning",
    "PrivateLogisticRegression",
    "ThresholdLearner",
    "audit",
    "mechanisms",
    "noise",
    "privacy",
]


def __getattr__(name: str) -> Any:
    # The learners stand on scikit-learn, which takes a second to import: only who uses them should wait for it.
    if name in __all__:
        return getattr(import_module("reticent.learners"), name)
    raise AttributeError(f"module 'reticent' has no attribute {name!r}")
