"""What answers in a phase: votes of teachers, a chain of private models, or one private model."""

from __future__ import annotations

from reticent.predictors.engines.chain import ChainEngine, ChainFactory
from reticent.predictors.engines.check import check_engine
from reticent.predictors.engines.choice import ENGINES, EngineChoice, engine_factory
from reticent.predictors.engines.engine import Drift, Engine, EngineFactory, EngineSettings, EngineState, NoPhase
from reticent.predictors.engines.model import ModelEngine, ModelFactory
from reticent.predictors.engines.votes import VotesEngine, VotesFactory

__all__ = [
    "ENGINES",
    "ChainEngine",
    "ChainFactory",
    "Drift",
    "Engine",
    "EngineChoice",
    "EngineFactory",
    "EngineSettings",
    "EngineState",
    "ModelEngine",
    "ModelFactory",
    "NoPhase",
    "VotesEngine",
    "VotesFactory",
    "check_engine",
    "engine_factory",
]
