"""Private learning and private prediction: answers every question, never tells who taught it.

Importing the package loads nothing else. A name loads the module that defines it when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reticent import (
        audit,
        concepts,
        data,
        errors,
        labellers,
        learners,
        mechanisms,
        noise,
        plan,
        predictors,
        privacy,
        published,
        sanitizers,
        service,
        teachers,
    )
    from reticent.data.private_schema import PrivateSchema
    from reticent.errors import (
        BudgetExhausted,
        ClassOrderWarning,
        EndingWarning,
        InsufficientData,
        OneAnswerWarning,
        OutOfReach,
        PrivacyWarning,
    )
    from reticent.learners import (
        ActiveLearner,
        Charged,
        ExponentialLearner,
        LabelBoost,
        LabelPrivateLearner,
        PointLearner,
        PrivateComparison,
        PrivateLogisticRegression,
        PrivatePipeline,
        RectangleLearner,
        SanitizedLearner,
        SemiPrivateLearner,
        SemiSupervisedLearner,
        ThresholdLearner,
    )
    from reticent.predictors import (
        EverlastingPredictor,
        GenericBBL,
        PrivatePredictor,
        QualityAlarm,
        StablePredictor,
    )
    from reticent.privacy import Guarantee, Ledger, LedgerFile
    from reticent.sanitizers import NetSanitizer, PointSanitizer, ThresholdSanitizer
    from reticent.service.client import AsyncClient, Client
    from reticent.teachers import PATEClassifier, Teachers

    __version__: str

__all__ = [
    "ActiveLearner",
    "AsyncClient",
    "BudgetExhausted",
    "Charged",
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
    "LedgerFile",
    "NetSanitizer",
    "OneAnswerWarning",
    "OutOfReach",
    "PATEClassifier",
    "PointLearner",
    "PointSanitizer",
    "PrivacyWarning",
    "PrivateComparison",
    "PrivateLogisticRegression",
    "PrivatePipeline",
    "PrivatePredictor",
    "PrivateSchema",
    "QualityAlarm",
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
    "data",
    "errors",
    "labellers",
    "learners",
    "mechanisms",
    "noise",
    "plan",
    "predictors",
    "privacy",
    "published",
    "sanitizers",
    "service",
    "teachers",
]

# The module of every public name that is not a module itself. The imports above say the same to type checkers.
_HOMES = {
    name: home
    for home, names in {
        "data.private_schema": ("PrivateSchema",),
        "errors": (
            "BudgetExhausted", "ClassOrderWarning", "EndingWarning", "InsufficientData", "OneAnswerWarning",
            "OutOfReach", "PrivacyWarning",
        ),
        "learners": (
            "ActiveLearner", "Charged", "ExponentialLearner", "LabelBoost", "LabelPrivateLearner", "PointLearner",
            "PrivateComparison", "PrivateLogisticRegression", "PrivatePipeline", "RectangleLearner", "SanitizedLearner",
            "SemiPrivateLearner", "SemiSupervisedLearner", "ThresholdLearner",
        ),
        "predictors": ("EverlastingPredictor", "GenericBBL", "PrivatePredictor", "QualityAlarm", "StablePredictor"),
        "privacy": ("Guarantee", "Ledger", "LedgerFile"),
        "sanitizers": ("NetSanitizer", "PointSanitizer", "ThresholdSanitizer"),
        "service.client": ("AsyncClient", "Client"),
        "teachers": ("PATEClassifier", "Teachers"),
    }.items()
    for name in names
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("reticent")
    elif name in _HOMES:
        value = getattr(import_module(f"reticent.{_HOMES[name]}"), name)
    elif name in __all__:
        value = import_module(f"reticent.{name}")
    else:
        raise AttributeError(f"module 'reticent' has no attribute {name!r}")
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})
