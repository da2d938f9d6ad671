"""Estimators as JSON: what class, of this package or of scikit-learn, and with which plain parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from reticent.concepts.domains import Domain
from reticent.concepts.interface import ConceptClass

HOMES = ("reticent.", "sklearn.")  # nothing else is imported because a file says so


def described(value: Any) -> Any:  # noqa: PLR0911
    """What JSON can hold, from which `built` makes an equal value; a TypeError where that cannot be."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Fraction):
        return {"fraction": [str(value.numerator), str(value.denominator)]}
    if isinstance(value, (list, tuple, range)):
        return {"tuple" if isinstance(value, tuple) else "list": [described(one) for one in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": [[key, described(one)] for key, one in value.items()]}
    kind = type(value)
    if kind.__module__.startswith(HOMES) and not isinstance(value, type):
        if isinstance(value, BaseEstimator):
            return _named(kind, value.get_params(deep=False))
        if isinstance(value, (ConceptClass, Domain)) and dataclasses.is_dataclass(value):
            fields = [field for field in dataclasses.fields(value) if field.init]
            return _named(kind, {field.name: getattr(value, field.name) for field in fields})
    raise TypeError(f"{kind.__name__} cannot be written down without pickle")


def _named(kind: type, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "parameters": {name: described(one) for name, one in parameters.items()},
    }


def built(value: Any) -> Any:  # noqa: PLR0911
    """The value that `described` wrote down."""
    if not isinstance(value, dict):
        return value
    if "fraction" in value:
        return Fraction(*map(int, value["fraction"]))
    if "tuple" in value:
        return tuple(built(one) for one in value["tuple"])
    if "list" in value:
        return [built(one) for one in value["list"]]
    if "array" in value:
        return np.asarray(value["array"], dtype=value["dtype"])
    if "dict" in value:
        return {key: built(one) for key, one in value["dict"]}
    home, _, name = str(value.get("class", "")).partition(":")
    if not home.startswith(HOMES) or "." in name:
        raise ValueError("a saved state must name classes of reticent or scikit-learn only")
    kind = getattr(import_module(home), name, None)
    if not (isinstance(kind, type) and issubclass(kind, (BaseEstimator, ConceptClass, Domain))):
        raise ValueError("a saved state must name estimators and concept classes only")
    return kind(**{key: built(one) for key, one in value["parameters"].items()})


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a predictor; its learner is left out where it cannot be written down."""
    found = {}
    for name, value in given.items():
        try:
            found[name] = described(str(value) if isinstance(value, Path) else value)
        except TypeError:
            if name != "learner":
                raise TypeError(f"{name} cannot be written down: it must be made of plain values") from None
            found[name] = {"missing": type(value).__name__}
    return found


def arguments(written: dict[str, Any], learner: Any) -> dict[str, Any]:
    """The parameters that were written down, with this learner in place of one that could not be."""
    missing = isinstance(written["learner"], dict) and "missing" in written["learner"]
    if missing and learner is None:
        raise ValueError(f"learner must be given: the {written['learner']['missing']} is not part of the saved state")
    found = {name: built(value) for name, value in written.items() if name != "learner"}
    return found | {"learner": built(written["learner"]) if learner is None else learner}
