"""Saving and loading everlasting predictors: their parameters and what they know, as JSON and arrays.

Estimators are described by their class, of this package or of scikit-learn, and their plain parameters. Nothing is
pickled. The file itself is the matter of `state_file`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from reticent.concepts.domains import Domain
from reticent.concepts.interface import ConceptClass
from reticent.data.groups import named_groups
from reticent.data.queries import Reader
from reticent.data.rows import Rows
from reticent.labellers import REGISTRY, Labeller
from reticent.predictors import state_file, truth
from reticent.predictors.alarms import QualityAlarm
from reticent.predictors.engines.engine import EngineState
from reticent.predictors.machine import LabelledPart, PhaseMachine, QueryPart, WithdrawnPart
from reticent.predictors.parameters import CheckedParameters, Fitted, concepts_of
from reticent.predictors.phases import Phase
from reticent.predictors.running import RunningPredictor

Array = NDArray[Any]

KIND = "everlasting"
HOMES = ("reticent.", "sklearn.")  # nothing else is imported because a file says so


def to_json(value: Any) -> Any:  # noqa: PLR0911
    """Describe a value as JSON, from which `from_json` makes an equal one; raise TypeError if that cannot be done."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Fraction):
        return {"fraction": [str(value.numerator), str(value.denominator)]}
    if isinstance(value, (list, tuple, range)):
        return {"tuple" if isinstance(value, tuple) else "list": [to_json(one) for one in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, dict) and all(isinstance(key, (str, int, float, np.generic)) for key in value):
        return {"dict": [[to_json(key), to_json(one)] for key, one in value.items()]}
    if sparse.issparse(value) and value.dtype.kind in "biuf":
        rows = value.tocsr()
        return {"csr": [to_json(part) for part in (rows.data, rows.indices, rows.indptr)], "shape": list(rows.shape)}
    kind = type(value)
    if kind.__module__.startswith(HOMES) and not isinstance(value, type):
        if isinstance(value, BaseEstimator):
            return _named(kind, value.get_params(deep=False))
        if isinstance(value, (ConceptClass, Domain, QualityAlarm)) and dataclasses.is_dataclass(value):
            fields = [field for field in dataclasses.fields(value) if field.init]
            return _named(kind, {field.name: getattr(value, field.name) for field in fields})
    raise TypeError(f"{kind.__name__} cannot be saved without pickle")


def _named(kind: type, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "parameters": {name: to_json(one) for name, one in parameters.items()},
    }


def from_json(value: Any) -> Any:  # noqa: PLR0911
    """The value that `to_json` described."""
    if not isinstance(value, dict):
        return value
    if "fraction" in value:
        return Fraction(*map(int, value["fraction"]))
    if "tuple" in value:
        return tuple(from_json(one) for one in value["tuple"])
    if "list" in value:
        return [from_json(one) for one in value["list"]]
    if "array" in value:
        return np.asarray(value["array"], dtype=value["dtype"])
    if "csr" in value:
        return sparse.csr_array(tuple(from_json(part) for part in value["csr"]), shape=tuple(value["shape"]))
    if "dict" in value:
        return {key: from_json(one) for key, one in value["dict"]}
    home, _, name = str(value.get("class", "")).partition(":")
    if not home.startswith(HOMES) or "." in name:
        raise ValueError("a saved state must name classes of reticent or scikit-learn only")
    kind = getattr(import_module(home), name, None)
    if not (isinstance(kind, type) and issubclass(kind, (BaseEstimator, ConceptClass, Domain, QualityAlarm))):
        raise ValueError("a saved state must name estimators, concept classes and alarms only")
    return kind(**{key: from_json(one) for key, one in value["parameters"].items()})


# ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────────

MAY_BE_MISSING = ("learner", "labeller", "engine")  # if they have no description, the caller of `load` gives them
LATER = {"engine": "auto", "besides": None, **truth.DEFAULTS}  # what older files lack; left out where it is the default


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a predictor as JSON; a learner or engine that cannot be described is noted as missing."""
    found = {}
    for name, value in given.items():
        if name in LATER and type(value) is type(LATER[name]) and value == LATER[name]:
            continue
        try:
            found[name] = to_json(_plain(value))
        except TypeError:
            if name not in MAY_BE_MISSING:
                raise TypeError(f"{name} cannot be saved: it must be made of plain values") from None
            found[name] = {"missing": value.__name__ if isinstance(value, type) else type(value).__name__}
    return found


def _plain(value: Any) -> Any:
    """A path as text, and a labeller of this package by its name."""
    if isinstance(value, type) and issubclass(value, Labeller) and REGISTRY.get(value.name) is value:
        return value.name
    return str(value) if isinstance(value, Path) else value


class MissingPart(ValueError):
    """A state whose predictor has a part of the caller's own, which the caller of `load` must give.

    Parameters
    ----------
    name : str
        The parameter: "learner", "labeller" or "engine".
    kind : str
        The name of its class.
    given : str or None, default None
        The name of another class, if one was given.
    """

    def __init__(self, name: str, kind: str, given: str | None = None) -> None:
        self.name, self.kind = name, kind
        self.wanted = f"{name} must be given" if given is None else f"{name} must be {kind}, got {given}"
        super().__init__(f"{self.wanted}: the {kind} is not part of the saved state")


class NeedlessPart(ValueError):
    """A part that the caller of `load` gave, although it is in the saved state.

    Parameters
    ----------
    name : str
        The parameter: "labeller" or "engine".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} must not be given: it is part of the saved state, and of its guarantee")


def arguments(written: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """The parameters that were saved, with the parts that are given and not None.

    A given learner takes the place of the saved one. A labeller or an engine is part of the guarantee: it is taken only
    if the state has none.
    """
    found = {}
    for name, value in {**LATER, **written}.items():
        missing = value["missing"] if isinstance(value, dict) and "missing" in value else None
        if (part := given.get(name)) is not None:
            if missing is None and name != "learner":
                raise NeedlessPart(name)
            kind = part if isinstance(part, type) else type(part)
            if missing is not None and name != "learner" and kind.__name__ != missing:
                raise MissingPart(name, missing, kind.__name__)
            found[name] = part
        elif missing is not None:
            raise MissingPart(name, missing)
        else:
            found[name] = from_json(value)
    return found


# ── predictors ────────────────────────────────────────────────────────────────────────────────────────────────────


class Saved(NamedTuple):
    """A state that was read: the arguments of the predictor, and the state of its phase."""

    arguments: dict[str, Any]
    header: dict[str, Any]
    arrays: dict[str, Array]
    release: Callable[[], None]
    identity: str

    def fitted(self, given: Mapping[str, Any], concepts: ConceptClass[Any] | None) -> Fitted:
        """What `fit` fixed, for a predictor with these parameters."""
        return Fitted(
            parameters=given,
            classes=from_json(self.header["classes"]),
            columns=self.header["columns"],
            names=self.header["names"],
            reader=Reader(np.dtype(self.header["dtype"]), self.arrays["point"], concepts),
            grouped=self.header["grouped"],
        )


def save(path: str | PathLike[str], fitted: Fitted, machine: PhaseMachine) -> None:
    """Write a predictor to a file; see `ResumablePredictor.save`."""
    header, arrays, release = machine.state()
    machine.identity = machine.identity or state_file.new_identity()
    fixed = {
        "kind": KIND,
        "parameters": parameters(fitted.parameters),
        "classes": to_json(fitted.classes),
        "columns": fitted.columns,
        "names": fitted.names,
        "dtype": fitted.reader.dtype.str,
        "grouped": fitted.grouped,
    }
    arrays["point"] = fitted.reader.point
    state_file.write(path, fixed | header, arrays, identity=machine.identity, release=release)


def read(path: str | PathLike[str], *, learner: Any = None, labeller: Any = None, engine: Any = None) -> Saved:
    """Read a predictor from a file, without claiming it."""
    header, arrays, release, identity = state_file.read(path)
    if header.get("kind") != KIND:
        raise ValueError(f"path must be a state of an EverlastingPredictor, got one of {header.get('kind')!r}")
    given = arguments(header["parameters"], learner=learner, labeller=labeller, engine=engine)
    return Saved(given, header, arrays, release, identity)


class ResumablePredictor(RunningPredictor):
    """A running predictor that can be saved, loaded, and replayed to any moment of its phase."""

    @classmethod
    def learned(
        cls,
        path: str | Path,
        phase: Phase,
        rows: Rows,
        *,
        learner: Any = None,
        labeller: type[Labeller] | None = None,
        engine: Any = None,
        trust_models: bool = False,
    ) -> EngineState:
        """What the phase after the one saved at `path` learns from these rows: for `learn_elsewhere`; no answers."""
        saved = read(path, learner=learner, labeller=labeller, engine=engine)
        model = cls(**saved.arguments)._continue(saved, trust_models=trust_models)
        return model.engine_.next(phase, rows, None).state()

    def save(self, path: str | Path) -> None:
        """Write everything that is needed to continue elsewhere. The file is as secret as the rows.

        Answer nothing by this predictor after the last `save` that is loaded: a restored one would not count it. The
        format is in docs/predictors/saved_states.md.
        """
        with self._claimed() as machine:
            save(path, dataclasses.replace(self._fitted, classes=self.classes_), machine)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        learner: Any = None,
        labeller: type[Labeller] | None = None,
        engine: Any = None,
        again: bool = False,
        continues: bool = False,
        trust_models: bool = False,
    ) -> Self:
        """The predictor that `save` wrote; it continues in the same phase, at the same count, with fresh noise.

        Parameters
        ----------
        path : path
            The file.
        learner, labeller, engine : estimator, type of Labeller, type of EngineFactory, default None
            Needed if they are not part of the file: a learner that is not of this package or of scikit-learn, or that
            has parameters that are not plain values; a labeller or an engine of your own, by its class.
        again : bool, default False
            A state can be loaded once: two copies would spend the same answers. True loads it all the same. Rows that
            were kept aside for tests of quality are then tested no more, since the other copy may have tested them with
            the same noise.
        continues : bool, default False
            With `again`, whether you know that nothing has continued from this state since, as the service does. Then
            tests go on.
        trust_models : bool, default False
            Whether teachers may be loaded whose file could run code.
        """
        saved = read(path, learner=learner, labeller=labeller, engine=engine)
        model = cls(**saved.arguments)._continue(saved, trust_models=trust_models, tests=continues or not again)
        state_file.claim(path, saved.identity, again=again)  # last, so that a load that fails can be tried again
        return model

    def _continue(self, saved: Saved, *, trust_models: bool, tests: bool = True) -> Self:
        """Become the predictor that was saved, whose parameters this one has; `tests`: old rows are still tested."""
        checked = CheckedParameters.of(self.get_params(deep=False))
        fitted = saved.fitted(checked.given, concepts_of(self.learner))
        factory = checked.factory(columns=fitted.columns, classes=len(fitted.classes), grouped=fitted.grouped)
        machine = checked.machine(fitted, factory, None)
        machine.restore(saved.header, saved.arrays, saved.release, trust_models=trust_models)
        if not tests:
            machine.watch.retire_test()
        if fitted.names is not None:
            self.feature_names_in_ = np.asarray(fitted.names, dtype=object)
        self._begin(checked, fitted, machine, seeded=False)
        return self

    def clock(self) -> dict[str, Any]:
        """How far this phase has come: what `replay` needs besides the rows. The part "labeller" is secret."""
        self._guard.check()
        return self._machine.clock()

    def replay(
        self,
        parts: Iterable[tuple[Any, ...] | LabelledPart | WithdrawnPart],
        clock: Mapping[str, Any],
        feedback: Sequence[tuple[str, int, str | None]] = (),
    ) -> None:
        """Continue from this `clock`, after `load` of a state saved earlier in the phase.

        `parts` are what arrived since then, in order. For the queries that are kept (those of the window; with
        feedback all): the rows, the class indices of the answers, the clients, and with feedback the tickets. For
        labelled rows: a `LabelledPart`, with class indices as labels, −1 for none. For those that were withdrawn: a
        `WithdrawnPart`. `feedback` has the ticket, the class
        index and the client of every slot that was filled. All is kept as it was. No noise is drawn or used again.
        """
        with self._claimed() as machine:
            machine.replay(map(self._part, parts), clock, feedback)

    def _part(self, part: tuple[Any, ...]) -> QueryPart | LabelledPart | WithdrawnPart:
        if isinstance(part, WithdrawnPart):
            return part
        if isinstance(part, LabelledPart):
            names = None if part.groups is None else named_groups(part.groups, len(part.labels))
            return LabelledPart(self._read(part.rows), np.asarray(part.labels, dtype=np.int64), names)
        X, class_indices, clients, *tickets = part
        rows, who = self._queries(X, clients)
        return QueryPart(rows, np.asarray(class_indices, dtype=np.int64), who, *tickets)
