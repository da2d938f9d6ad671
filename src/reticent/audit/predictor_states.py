"""Predictors as bytes, so that an audit can continue from a state of one as often as it likes."""

from __future__ import annotations

import hashlib
import io
import mmap
import pickle
import threading
import types
from typing import Any

import numpy as np

from reticent.noise import Noise
from reticent.privacy.guard import Guard, Guarded

_LOCKS = {type(make()): make for make in (threading.Lock, threading.RLock)}
_REFERRED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class PredictorStates:
    """Stores states of predictors, and makes predictors from them.

    Noise is left out. Locks and guards are made new. Functions and classes are kept by reference.

    Parameters
    ----------
    share_arrays : bool, default False
        Keep arrays by reference too. This is right for predictors that do not write to them while they answer.
    """

    def __init__(self, *, share_arrays: bool = False) -> None:
        self.referred = (*_REFERRED, np.ndarray) if share_arrays else _REFERRED
        self.positions: dict[int, int] = {}
        self.shared: list[Any] = []
        self.bodies: dict[bytes, bytes] = {}

    def keep(self, predictor: Any, noise: Noise) -> bytes:
        """Store the state of a predictor that draws from `noise`; return its name. Equal states have equal names."""
        body = io.BytesIO()
        _Pickler(body, self, noise).dump(predictor)
        digest = hashlib.blake2b(body.getvalue(), digest_size=32).digest()
        self.bodies[digest] = body.getvalue()
        return digest

    def restore(self, state: bytes, noise: Noise) -> Any:
        """Return a predictor in the named state that draws from `noise`."""
        return _Unpickler(io.BytesIO(self.bodies[state]), self, noise).load()

    def reference(self, thing: Any) -> int:
        """Return the position in `shared` of a thing that is kept by reference."""
        if id(thing) not in self.positions:
            self.positions[id(thing)] = len(self.shared)
            self.shared.append(thing)
        return self.positions[id(thing)]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, states: PredictorStates, noise: Noise) -> None:
        super().__init__(file, protocol=5)
        self.states, self.noise = states, noise

    def persistent_id(self, thing: Any) -> Any:
        if thing is self.noise:
            return ("noise",)
        if type(thing) in _LOCKS:
            return "lock", self.states.reference(type(thing))
        if isinstance(thing, Guard):
            return "guard", self.states.reference(thing.kind)
        return ("shared", self.states.reference(thing)) if isinstance(thing, self.states.referred) else None

    def reducer_override(self, thing: Any) -> Any:
        """Copy what refuses to be copied: in a game its answers reach nobody, so nothing is spent twice."""
        if isinstance(thing, mmap.mmap):  # memory of a store of rows; arrays over it are kept by themselves
            return _memory, (thing[:],)
        guarded = isinstance(thing, Guarded)
        return (_blank, (type(thing),), vars(thing), None, None, _fill) if guarded else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, states: PredictorStates, noise: Noise) -> None:
        super().__init__(file)
        self.states, self.noise = states, noise

    def persistent_load(self, pid: Any) -> Any:
        kind, *position = pid
        if kind == "noise":
            return self.noise
        thing = self.states.shared[position[0]]
        if kind == "lock":
            return _LOCKS[thing]()
        return Guard(thing) if kind == "guard" else thing


def _memory(content: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, len(content))
    memory[:] = content
    return memory


def _blank(kind: type) -> Any:
    return object.__new__(kind)


def _fill(thing: Any, attributes: dict[str, Any]) -> None:
    thing.__dict__.update(attributes)
