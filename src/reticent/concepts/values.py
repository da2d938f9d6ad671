"""Concepts as plain values: frozen, hashable, readable, and preserved by JSON."""

from __future__ import annotations

import dataclasses
import math
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

Value: TypeAlias = int | float | np.datetime64

_EXACT_IN_JSON = 1 << 53  # many JSON readers round larger integers


class Concept:
    """The base of every concept: a frozen dataclass that can be written as JSON.

    >>> import json
    >>> from reticent.concepts import Threshold
    >>> written = json.dumps(Threshold(at=2**70, sign="<").to_dict())
    >>> written
    '{"kind": "Threshold", "at": {"int": "0x400000000000000000"}, "sign": "<"}'
    >>> Concept.from_dict(json.loads(written)) == Threshold(at=2**70, sign="<")
    True
    """

    _kinds: ClassVar[dict[str, type[Concept]]] = {}

    def __init_subclass__(cls) -> None:
        Concept._kinds[cls._kind()] = cls

    @classmethod
    def _kind(cls) -> str:
        own = cls.__module__.startswith("reticent.concepts.")
        return cls.__qualname__ if own else f"{cls.__module__}.{cls.__qualname__}"

    def __repr__(self) -> str:
        parts = (f"{name}={_text(value)}" for name, value in self._fields())
        return f"{type(self).__name__}({', '.join(parts)})"

    def _fields(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return dictionaries, lists, numbers and strings that `json.dumps` writes and `from_dict` reads back."""
        return {"kind": self._kind()} | {name: _to_plain(value) for name, value in self._fields()}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Concept:
        """Return the concept that `to_dict` wrote."""
        kind = Concept._kinds.get(data.get("kind", ""))
        if kind is None:
            raise ValueError("data must be a dictionary made by to_dict, of a kind of concept that has been imported")
        return kind(**{name: _from_plain(value) for name, value in data.items() if name != "kind"})


def plain_value(value: object, name: str) -> Value:
    """Return a bound of a concept as an int, a float other than NaN, or a datetime64; −0.0 becomes 0.0."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise ValueError(f"{name} must be a date, got NaT")
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a whole number, a float or a datetime64, got {type(value).__name__}")
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    if math.isnan(number):
        raise ValueError(f"{name} must be a number, got NaN")
    return number + 0.0


def _text(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print the widest ones in decimal
        return f"{'-' * (value < 0)}0x{abs(value) >> (value.bit_length() - 32):x}… ({value.bit_length()} bits)"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Concept):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, np.datetime64):
        return {str(value.dtype): str(value)}
    if isinstance(value, int) and abs(value) >= _EXACT_IN_JSON:
        return {"int": hex(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_plain(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "kind" in value:
        return Concept.from_dict(value)
    ((kind, text),) = value.items()
    if kind == "int":
        return int(text, 16)
    if kind == "float":
        return float(text)
    return np.array(text, dtype=kind)[()]
