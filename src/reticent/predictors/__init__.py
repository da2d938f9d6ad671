"""Prediction without releasing a model: stable, private, and everlasting."""

from __future__ import annotations

from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.generic_bbl import GenericBBL
from reticent.predictors.private import PrivatePredictor
from reticent.predictors.stable import StablePredictor

__all__ = ["EverlastingPredictor", "GenericBBL", "PrivatePredictor", "QualityAlarm", "StablePredictor"]
