"""Saving trained teachers as numbers and arrays, and loading them: the same votes to the last bit, and no code."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from reticent.concepts.domains import Datetimes, Domain, Floats, Integers
from reticent.concepts.thresholds import Thresholds
from reticent.data.executor import Executor
from reticent.data.tables import Array
from reticent.teachers.linear_voters import LinearVoters
from reticent.teachers.models import ModelVoters
from reticent.teachers.teachers import Teachers, Voters, as_teacher, report
from reticent.teachers.thresholds import ThresholdVoters
from reticent.teachers.trees import CutVoters, TreeVoters

DOMAINS: dict[str, type[Domain]] = {kind.__name__: kind for kind in (Integers, Floats, Datetimes)}
CUTS = ("column", "cut", "below", "above")
NODES = ("roots", "feature", "threshold", "missing_left", "children", "vote")


def to_arrays(teachers: Teachers) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return trained teachers as a header for JSON, and arrays.

    Linear teachers, thresholds and decision trees are plain numbers. Other teachers are saved by skops if it is
    installed, which loads known types without running code; else by joblib, whose files can run code.

    Parameters
    ----------
    teachers : Teachers
        Fitted teachers.

    Returns
    -------
    header : dict[str, Any]
        Kind and sizes, as values that JSON can hold.
    arrays : dict[str, ndarray]
        The numbers.

    >>> rows = np.random.default_rng(0).normal(size=(1_000, 3))
    >>> teachers = Teachers(shards=20, classes=("no", "yes")).fit(rows, np.where(rows[:, 0] > 0, "yes", "no"))
    >>> header, arrays = to_arrays(teachers)
    >>> header["kind"], sorted(arrays)
    ('linear', ['bias', 'classes', 'weights'])
    >>> bool((from_arrays(header, arrays, None).votes(rows) == teachers.votes(rows)).all())
    True
    """
    check_is_fitted(teachers)
    if teachers.classes_.dtype.kind not in "biufUSMm":
        raise TypeError("classes must be numbers, strings or datetimes to be saved")
    kind, more, arrays = _taken_apart(teachers.voters)
    header = {
        "kind": kind,
        "estimator": _name(as_teacher(teachers.estimator)),
        "shards": teachers.n_teachers_,
        "random_state": int(teachers.random_state),
        "columns": int(teachers.n_features_in_),
        **more,
    }
    arrays["classes"] = teachers.classes_
    if hasattr(teachers, "feature_names_in_"):
        arrays["names"] = np.array(teachers.feature_names_in_, dtype=str)
    return header, arrays


def from_arrays(
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    estimator: Any,
    *,
    trust_models: bool = False,
    n_jobs: int | Executor | None = None,
) -> Teachers:
    """Return the teachers that were saved by `to_arrays`.

    Parameters
    ----------
    header : Mapping[str, Any]
        The header.
    arrays : Mapping[str, ndarray]
        The arrays.
    estimator : classifier, ConceptClass or None
        The estimator that the teachers were made with.
    trust_models : bool, default False
        Whether to load teachers that are not plain numbers, which may run code of whoever wrote the file. Teachers
        saved by skops are loaded without it if skops knows all of their types.
    n_jobs : int, Executor or None, default None
        The `n_jobs` of the teachers.
    """
    try:
        classes, shards, columns, made_with = (
            arrays["classes"], header["shards"], header["columns"], header["estimator"]
        )
        teachers = Teachers(
            estimator, shards=shards, classes=classes.tolist(), random_state=header["random_state"], n_jobs=n_jobs
        )
        if made_with != (mine := _name(as_teacher(estimator))):
            raise ValueError(f"estimator must be the {made_with} that the teachers were made with, got {mine}")
        voters = _put_together(header, arrays, estimator, trust_models)
    except KeyError:
        raise ValueError(_DAMAGED) from None
    names = arrays["names"].astype(object) if "names" in arrays else None
    return teachers.restore(voters, classes=classes, columns=columns, names=names)


def _name(estimator: Any) -> str:
    return f"{type(estimator).__module__}.{type(estimator).__qualname__}"


def _taken_apart(voters: Voters) -> tuple[str, dict[str, Any], dict[str, Array]]:
    if isinstance(voters, LinearVoters):
        if not sparse.issparse(voters.weights):
            return "linear", {}, {"weights": voters.weights, "bias": voters.bias}
        parts = {f"weights.{name}": getattr(voters.weights, name) for name in ("data", "indices", "indptr")}
        return "linear", {}, {**parts, "bias": voters.bias}
    if isinstance(voters, ThresholdVoters):
        domain = {"domain": type(voters.domain).__name__, **asdict(voters.domain)}  # type: ignore[call-overload]
        return "thresholds", {"domain": domain}, _cuts(voters.cuts)
    if isinstance(voters, TreeVoters):
        cuts = {} if voters.cuts is None else _cuts(voters.cuts)
        return "trees", {"depth": int(voters.depth)}, {**{one: getattr(voters, one) for one in NODES}, **cuts}
    assert isinstance(voters, ModelVoters)
    kind, saved = "joblib", io.BytesIO()
    if find_spec("skops") is not None:
        kind, saved = "skops", io.BytesIO(import_module("skops.io").dumps(voters.models))
    else:
        joblib.dump(voters.models, saved)
    return kind, {}, {"models": np.frombuffer(saved.getvalue(), dtype=np.uint8), "constant": voters.constant}


def _cuts(cuts: CutVoters) -> dict[str, Array]:
    return {name: getattr(cuts, name) for name in CUTS}


def _put_together(header: Mapping[str, Any], arrays: Mapping[str, Array], estimator: Any, trusted: bool) -> Voters:
    kind, count, columns, classes = header["kind"], header["shards"], header["columns"], len(arrays["classes"])
    if kind == "linear":
        bias = np.array(arrays["bias"])
        weights: Any
        if "weights" in arrays:
            weights = np.array(arrays["weights"])
        else:
            parts = tuple(np.array(arrays[f"weights.{name}"]) for name in ("data", "indices", "indptr"))
            weights = sparse.csr_matrix(parts, shape=(len(bias), columns))
            weights.check_format()
        _check(weights.shape == (len(bias), columns) and len(bias) == count * (1 if classes == 2 else classes))
        return LinearVoters(weights, bias, teachers=count, classes=classes)
    if kind in ("thresholds", "trees"):
        cuts = None
        if "cut" in arrays:
            parts = tuple(np.array(arrays[name]) for name in CUTS)
            _check(all(part.shape == (count,) for part in parts))
            _check(_within(parts[0], columns) and _within(parts[2], classes) and _within(parts[3], classes))
            cuts = CutVoters(*parts, classes=classes)
        return _thresholds(header, cuts, estimator) if kind == "thresholds" else _trees(header, arrays, cuts)
    _check(kind in ("skops", "joblib"))
    constant = np.array(arrays["constant"])
    models = _models(kind, arrays["models"].tobytes(), trusted)
    _check(len(models) == len(constant) == count and _within(constant + 1, classes + 1))
    return ModelVoters(
        models, constant, arrays["classes"], report=partial(report, teachers=count, what="answer")
    )


def _thresholds(header: Mapping[str, Any], cuts: CutVoters | None, estimator: Any) -> ThresholdVoters:
    how = dict(header["domain"])
    kind = DOMAINS.get(how.pop("domain"))
    if kind is None or cuts is None or not isinstance(estimator, Thresholds):
        raise ValueError(_DAMAGED)
    return ThresholdVoters(cuts, estimator, kind(**how))


def _trees(header: Mapping[str, Any], arrays: Mapping[str, Array], cuts: CutVoters | None) -> TreeVoters:
    voters = TreeVoters.__new__(TreeVoters)
    vars(voters).update({name: np.array(arrays[name]) for name in NODES})
    voters.classes, voters.depth, voters.cuts = len(arrays["classes"]), header["depth"], cuts
    nodes = len(voters.vote)
    _check(len(voters.roots) == header["shards"] and len(voters.children) == 2 * nodes)
    _check(len(voters.feature) == len(voters.threshold) == len(voters.missing_left) == nodes)
    _check(_within(voters.roots, nodes) and _within(voters.children, nodes))
    _check(_within(voters.feature, header["columns"]) and _within(voters.vote, voters.classes))
    _check((cuts is None) == (voters.depth > 1))
    return voters


def _models(kind: str, saved: bytes, trusted: bool) -> list[Any]:
    if kind == "skops":
        if find_spec("skops") is None:
            raise ValueError("these teachers were saved by skops: install it to load them")
        skops = import_module("skops.io")
        unknown = skops.get_untrusted_types(data=saved)
        if unknown and not trusted:
            raise ValueError(
                "these teachers hold types that skops does not know to be harmless: a file from others can run code. "
                f"If you trust who wrote it, set trust_models=True. The types: {', '.join(map(str, unknown))}"
            )
        if unknown:
            warnings.warn(_RUNS_CODE, UserWarning, stacklevel=5)
        return list(skops.loads(saved, trusted=unknown))
    if not trusted:
        raise ValueError(
            "these teachers were saved by joblib: a file from others can run code when it is loaded. If you trust who "
            "wrote it, set trust_models=True; linear, threshold and tree teachers are saved as plain numbers"
        )
    warnings.warn(_RUNS_CODE, UserWarning, stacklevel=5)
    return list(joblib.load(io.BytesIO(saved)))


_RUNS_CODE = "loading teachers that are not plain numbers: a file from others can run code, as trust_models=True allows"
_DAMAGED = "these are not the arrays of saved teachers, or they are damaged"


def _check(sound: bool) -> None:
    if not sound:
        raise ValueError(_DAMAGED)


def _within(indices: Array, end: int) -> bool:
    """Whether all are whole numbers from 0 to below `end`."""
    return indices.dtype.kind in "iu" and (not len(indices) or bool(0 <= indices.min() <= indices.max() < end))
