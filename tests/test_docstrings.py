"""Docstrings that help() shows: they list every parameter, and every attribute of a fitted predictor."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import reticent as rt
from reticent.predictors.running import RunningPredictor


def documented(section: str, thing: Any) -> set[str]:
    """The names that a section of a numpydoc docstring describes."""
    _, _, rest = (inspect.getdoc(thing) or "").partition(f"{section}\n{'-' * len(section)}\n")
    text = re.split(r"\n\n", rest, maxsplit=1)[0]
    return {name for names in re.findall(r"^(\w+(?:, \w+)*) :", text, re.MULTILINE) for name in names.split(", ")}


@pytest.mark.parametrize("thing", [rt.EverlastingPredictor, rt.PrivatePredictor, rt.Client, rt.AsyncClient])
def test_every_parameter_is_listed(thing: Any) -> None:
    assert documented("Parameters", thing) == set(inspect.signature(thing).parameters)


@pytest.mark.parametrize("method", [rt.EverlastingPredictor.fit, rt.EverlastingPredictor.predict])
def test_every_argument_is_listed(method: Any) -> None:
    assert documented("Parameters", method) == set(inspect.signature(method).parameters) - {"self"}


def test_every_attribute_is_listed() -> None:
    shown = {name for name, value in vars(RunningPredictor).items() if name[-1] == "_" != name[0] and value}
    annotated = {name for name in RunningPredictor.__annotations__ if name[-1] == "_" != name[0]}
    assert documented("Attributes", rt.EverlastingPredictor) == shown | annotated
