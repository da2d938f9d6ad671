"""Follow one value through the package: which module hands it to which."""

from __future__ import annotations

import functools
import struct
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

import numpy as np

import reticent

PACKAGE = Path(reticent.__file__).parent
DEPTH = 4  # of lists and objects within one another
Edge = tuple[str, str]


@dataclass
class Walk:
    """While it is entered, note every call by which a module of the package hands a number to another module.

    The number is looked for in the arguments: as a number, in its decimal digits, and in the eight bytes of a float64;
    within arrays, lists, dictionaries and objects of the package. The number must be one that nothing else has.

    Attributes
    ----------
    edges : list of (str, str)
        From which module to which, in the order in which they came first. Returning is not noted.
    """

    number: float
    edges: list[Edge] = field(default_factory=list)
    _seen: set[FrameType] = field(default_factory=set)
    _carrying: set[FrameType] = field(default_factory=set)
    _last: str | None = None

    def __post_init__(self) -> None:
        self._texts = repr(self.number), repr(self.number).encode(), struct.pack("<d", self.number)

    def __enter__(self) -> Self:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def hops(self, *ends: str) -> list[Edge]:
        """The edges that lead to one of these modules. The others are visits to helpers, which give the value back.

        Parameters
        ----------
        *ends : str
            TODO
        """
        leading = set(ends)
        while more := {source for source, target in self.edges if target in leading} - leading:
            leading |= more
        return [edge for edge in self.edges if edge[1] in leading and edge[0] != edge[1]]

    def visits(self, *ends: str) -> list[Edge]:
        """The edges that are no hops.

        Parameters
        ----------
        *ends : str
            TODO
        """
        hops = self.hops(*ends)
        return [edge for edge in self.edges if edge not in hops]

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame in self._seen or (module := _module(frame.f_code)) is None:
            return
        sys.setprofile(None)
        try:
            self._seen.add(frame)  # a coroutine is entered again and again
            if any(map(self._carries, _arguments(frame))):
                self._note(frame, module)
        finally:
            sys.setprofile(self._profile)

    def _note(self, frame: FrameType, module: str) -> None:
        """Note how the value came here: through the callers since the last one that was given it, if there is one.

        Otherwise the nearest caller has it from what another function returned; without a caller, it came through an
        event loop or a thread pool from the module that was given it last.
        """
        self._carrying.add(frame)
        callers: list[str] = []
        caller = frame.f_back
        while caller is not None and caller not in self._carrying:
            if (name := _module(caller.f_code)) is not None:
                callers.append(name)
            caller = caller.f_back
        if caller is not None:
            callers.append(_module(caller.f_code) or module)
        else:
            callers = callers[:1] or ([] if self._last is None else [self._last])
        self._last = module
        chain = [*reversed(callers), module]
        for edge in pairwise(chain):
            if edge[0] != edge[1] and edge not in self.edges:
                self.edges.append(edge)

    def _carries(self, value: Any, depth: int = DEPTH) -> bool:
        text, digits, eight = self._texts
        if isinstance(value, float):
            return value == self.number
        if isinstance(value, str):
            return text in value
        if isinstance(value, bytes | bytearray):
            return digits in value or eight in value
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
            return bool((value == self.number).any())
        if depth == 0:
            return False
        return any(self._carries(one, depth - 1) for one in _parts(value))


@functools.cache
def _module(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    if PACKAGE not in path.parents:
        return None
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def _arguments(frame: FrameType) -> Iterable[Any]:
    """What a function was given. An object that holds the value and is asked for something else is not handed on."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    known = frame.f_locals
    return [known[name] for name in code.co_varnames[:count] if name in known and name not in ("self", "cls")]


def _parts(value: Any) -> Iterable[Any]:
    """What is within a value, if it is a collection or an object of the package."""
    if isinstance(value, np.ndarray | list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if not type(value).__module__.startswith(reticent.__name__):
        return ()
    names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__struct_fields__", ())]
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    found = (getattr(value, name, None) for name in names if not name.startswith("__"))
    return [one for one in found if not callable(one)]
