"""Which engine a predictor answers by."""

from __future__ import annotations

from typing import Literal

from reticent.predictors.engines.chain import ChainFactory
from reticent.predictors.engines.engine import EngineFactory
from reticent.predictors.engines.model import ModelFactory
from reticent.predictors.engines.private_model import is_private_learner
from reticent.predictors.engines.votes import VotesFactory

EngineName = Literal["auto", "votes", "chain", "model"]
EngineChoice = EngineName | type[EngineFactory]

ENGINES: dict[str, type[EngineFactory]] = {"votes": VotesFactory, "chain": ChainFactory, "model": ModelFactory}


def engine_factory(engine: EngineChoice, learner: object) -> type[EngineFactory]:
    """The class that makes the engines of a predictor; refuse a learner that it cannot use.

    "auto" is "chain" for a private learner of this package, and "votes" for every other learner. A class of your own
    is taken as it is: see docs/extending/engine.md.
    """
    if isinstance(engine, type):
        if not hasattr(engine, "from_settings"):
            raise TypeError(f"engine must be a class of engines with from_settings, got {engine.__name__}")
        return engine
    private = is_private_learner(learner)
    if engine == "auto":
        return ENGINES["chain" if private else "votes"]
    if not isinstance(engine, str) or engine not in ENGINES:
        named = ", ".join(repr(name) for name in ("auto", *ENGINES))
        raise ValueError(f"engine must be one of {named}, or a class that makes engines, got {engine!r}")
    if engine == "votes" and private:
        raise TypeError(
            f"learner must not be private for engine='votes', got {type(learner).__name__}: votes of teachers are made "
            "private by a labeller"
        )
    if engine != "votes" and not private:
        raise TypeError(f"learner must be a private learner for engine={engine!r}, got {type(learner).__name__}")
    return ENGINES[engine]
