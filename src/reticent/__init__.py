"""Private learning and private prediction: answers every question, never tells who taught it."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from reticent import audit, mechanisms, noise, privacy
from reticent.errors import (
    BudgetExhausted,
    ClassOrderWarning,
    EndingWarning,
    InsufficientData,
    OneAnswerWarning,
    OutOfReach,
    PrivacyWarning,
)
from reticent.privacy import Guarantee, Ledger

if TYPE_CHECKING:
    from reticent import concepts, labellers, plan
    from reticent.learners import (
        ActiveLearner,
        ExponentialLearner,
        LabelBoost,
        LabelPrivateLearner,
        PointLearner,
        PrivateLogisticRegression,
        RectangleLearner,
        SanitizedLearner,
        SemiPrivateLearner,
        SemiSupervisedLearner,
        ThresholdLearner,
    )
    from reticent.predictors import EverlastingPredictor, GenericBBL, PrivatePredictor, StablePredictor
    from reticent.sanitizers import NetSanitizer, PointSanitizer, ThresholdSanitizer
    from reticent.service.client import AsyncClient, Client
    from reticent.teachers import PATEClassifier, Teachers

__version__ = version("reticent")

__all__ = [
    "ActiveLearner",
    "AsyncClient",
    "BudgetExhausted",
    "ClassOrderWarning",
    "Client",
    "EndingWarning",
    "EverlastingPredictor",
    "ExponentialLearner",
    "GenericBBL",
    "Guarantee",
    "InsufficientData",
    "LabelBoost",
    "LabelPrivateLearner",
    "Ledger",
    "NetSanitizer",
    "OneAnswerWarning",
    "OutOfReach",
    "PATEClassifier",
    "PointLearner",
    "PointSanitizer",
    "PrivacyWarning",
    "PrivateLogisticRegression",
    "PrivatePredictor",
    "RectangleLearner",
    "SanitizedLearner",
    "SemiPrivateLearner",
    "SemiSupervisedLearner",
    "StablePredictor",
    "Teachers",
    "ThresholdLearner",
    "ThresholdSanitizer",
    "audit",
    "concepts",
    "labellers",
    "mechanisms",
    "noise",
    "plan",
    "privacy",
]


def __getattr__(name: str) -> Any:
    # What stands on scikit-learn takes a second to import: only who uses it should wait for it.
    if name not in __all__:
        raise AttributeError(f"module 'reticent' has no attribute {name!r}")
    if name in ("concepts", "labellers", "plan"):
        return import_module(f"reticent.{name}")
    homes = {
        "Sanitizer": "sanitizers",
        "Teachers": "teachers",
        "PATEClassifier": "teachers",
        "Predictor": "predictors",
        "GenericBBL": "predictors",
        "Client": "service.client",
    }
    home = next((module for ending, module in homes.items() if name.endswith(ending)), "learners")
    return getattr(import_module(f"reticent.{home}"), name)
