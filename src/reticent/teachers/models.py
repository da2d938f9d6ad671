"""Teachers of any kind: each fitted by its own copy of a scikit-learn classifier, through joblib."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from joblib import Memory, Parallel, delayed, effective_n_jobs, wrap_non_picklable_objects
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

from reticent.classes import codes_of
from reticent.silence import silent
from reticent.teachers.dealing import Array, Integers, Shards, Table, own, take
from reticent.teachers.linear import LINEAR, LinearVoters, LogisticTeacher
from reticent.teachers.trees import TreeVoters

CHUNKS = 8  # for each worker
LARGEST = 1 << 27  # weights that are kept as one dense array


def seeded(estimator: Any, *seed: int) -> Any:
    """A copy that shares nothing with others, its randomness set by public numbers.

    So it draws nothing that others drew from before it, and neither does what it splits its rows by, such as
    `StratifiedKFold(shuffle=True)`. `clone` alone would share what is frozen. Caches are left out: they would keep on
    disk what was made of private rows, and no two teachers have the same. Every `verbose` is turned off: what a teacher
    prints while it learns is a function of its private rows.
    """
    copy = deepcopy(clone(estimator))
    parameters = copy.get_params(deep=True)
    cached = [name for name, value in parameters.items() if _is_cache(name, value, {**parameters, "": copy})]
    printing = {
        name: False if isinstance(value, (bool, np.bool_)) else 0
        for name, value in parameters.items()
        if (name == "verbose" or name.endswith("__verbose")) and not _is_off(value)
    }
    loose = sorted(
        name
        for name, value in parameters.items()
        if (name == "random_state" or name.endswith("__random_state")) and not isinstance(value, (int, np.integer))
    )
    splitters = sorted(
        name
        for name, value in parameters.items()
        if hasattr(value, "get_n_splits") and not isinstance(getattr(value, "random_state", 0), (int, np.integer))
    )
    seeds = map(int, np.random.SeedSequence(seed).generate_state(len(loose) + len(splitters)))
    copy.set_params(**dict.fromkeys(cached), **printing, **dict(zip(loose, seeds, strict=False)))
    for name, one in zip(splitters, seeds, strict=True):
        parameters[name].random_state = one
    return copy


def _is_cache(name: str, value: Any, parameters: dict[str, Any]) -> bool:
    owner, _, last = name.rpartition("__")
    return last == "memory" and (isinstance(value, Memory) or isinstance(parameters[owner], Pipeline))


def _is_off(verbose: Any) -> bool:
    """Whether this prints nothing already; some estimators print less at −1 than at 0."""
    return isinstance(verbose, (int, float, np.bool_, np.number)) and bool(verbose <= 0)


def fit_models(estimator: Any, shards: Shards, *, random_state: int, n_jobs: int | None) -> tuple[list[Any], list[str]]:
    """A model for each shard, None for one that has a single class or failed; and the kinds of the failures."""
    tasks = np.flatnonzero(shards.constant < 0)
    models: list[Any] = [None] * shards.count
    failures: list[str] = []
    chunks = np.array_split(tasks, max(1, min(len(tasks), max(CHUNKS * effective_n_jobs(n_jobs), shards.portions))))

    def jobs() -> Iterator[Any]:
        for chunk in chunks:
            parts = [(rows, shards.classes[codes]) for rows, codes in shards.parts(chunk)]
            yield delayed(_fit_some)(estimator, parts, [(random_state, int(one)) for one in chunk], pack=sent)

    sent = effective_n_jobs(n_jobs) > 1
    with silent():
        for chunk, (fitted, failed) in zip(chunks, Parallel(n_jobs=n_jobs)(jobs()), strict=True):
            failures += failed
            for one, model in zip(chunk, fitted, strict=True):
                models[one] = pickle.loads(model) if isinstance(model, bytes) else model
    return models, failures


@silent()  # here too: it may run in another process
def _fit_some(
    estimator: Any, parts: list[Any], seeds: list[tuple[int, int]], *, pack: bool
) -> tuple[list[Any], list[str]]:
    """A model for each part, None for one that failed. With `pack` a model is bytes, ready to be sent.

    A model that cannot be sent has failed, like one that cannot be fitted. Left to joblib, it would raise an error: but
    there is a model only where a shard has two classes, so the error would tell of labels.
    """
    models: list[Any] = []
    failures: list[str] = []
    for (rows, labels), seed in zip(parts, seeds, strict=True):
        try:
            model = seeded(estimator, *seed).fit(own(rows), own(labels))
            models.append(_packed(model) if pack else model)
        except BaseException as error:  # its message may hold data
            failures.append(failure(error))
            models.append(None)
    return models, failures


def _packed(model: Any) -> bytes:
    """A model as bytes that can be read again: both are tried here, where an error is caught."""
    packed = pickle.dumps(wrap_non_picklable_objects(model, keep_wrapper=False))
    pickle.loads(packed)
    return packed


def failure(error: BaseException) -> str:
    """What kind of failure it is, for the log; the caller who interrupts is heard, and told nothing else."""
    if isinstance(error, KeyboardInterrupt):
        raise KeyboardInterrupt from None
    return type(error).__name__


class ModelVoters:
    """Teachers that are asked one by one. One that cannot answer a query votes for the first class."""

    def __init__(
        self,
        models: list[Any],
        constant: Integers,
        classes: Array,
        *,
        n_jobs: int | None,
        report: Callable[[list[str]], None],
    ) -> None:
        self.models, self.constant, self.classes = models, constant, classes
        self.n_jobs, self.report = n_jobs, report

    def count(self, X: Table) -> Integers:
        """How many teachers vote for each class, a row a query."""
        fixed = np.bincount(self.constant[self.constant >= 0], minlength=len(self.classes))
        counts = np.tile(fixed, (X.shape[0], 1))
        models = [model for model in self.models if model is not None]
        chunks = max(1, min(len(models), CHUNKS * effective_n_jobs(self.n_jobs)))
        parts = [models[start::chunks] for start in range(chunks)]
        failures: list[str] = []
        with silent():
            for votes, failed in Parallel(n_jobs=self.n_jobs)(delayed(_count)(part, X, self.classes) for part in parts):
                counts += votes
                failures += failed
        self.report(failures)
        return counts

    @silent()
    def ask(self, X: Table, teachers: Integers) -> Integers:
        """The class that each of the teachers named in a row votes for, every one asked by itself."""
        answers = np.maximum(self.constant, 0)[teachers]
        failures: list[str] = []  # not reported: a log of who failed would tell who was asked
        for query, named in enumerate(teachers):
            row = take(X, np.array([query]))
            for place, teacher in enumerate(named):
                if (model := self.models[teacher]) is not None:
                    answers[query, place] = _answer(model, row, self.classes, failures)[0]
        return answers


@silent()
def _count(models: list[Any], X: Table, classes: Array) -> tuple[Integers, list[str]]:
    counts = np.zeros((X.shape[0], len(classes)), dtype=np.int64)
    rows, failures = np.arange(X.shape[0]), list[str]()
    for model in models:
        own: list[str] = []
        counts[rows, _answer(model, X, classes, own)] += 1
        failures += own[:1]
    return counts, failures


def _answer(model: Any, X: Table, classes: Array, failures: list[str]) -> Integers:
    """What a model answers; the first class to a row that it cannot answer, and to that row alone.

    Were a query that makes a model fail to take the others of its batch with it, they would tell of it.
    """
    try:
        return np.maximum(codes_of(np.asarray(model.predict(own(X))).reshape(X.shape[0]), classes), 0)
    except BaseException as error:  # its message may hold data
        kind = failure(error)
    if X.shape[0] <= 1:
        failures.append(kind)
        return np.zeros(X.shape[0], dtype=np.int64)
    single = [_answer(model, take(X, np.array([row])), classes, failures) for row in range(X.shape[0])]
    return np.concatenate(single)


# ── the same votes, faster ────────────────────────────────────────────────────────────────────────────────────────


def flattened(estimator: Any, models: list[Any], shards: Shards) -> LinearVoters | TreeVoters | None:
    """All models as arrays, those that vote for one class always among them; None for a kind that is not known."""
    if type(estimator) in (*LINEAR, LogisticTeacher):
        small = shards.count * len(shards.classes) * shards.X.shape[1] <= LARGEST
        return _linear(models, shards) if small else None
    if type(estimator) is DecisionTreeClassifier:
        return _trees(models, shards)
    return None


def _linear(models: list[Any], shards: Shards) -> LinearVoters:
    teachers, classes, columns = len(models), len(shards.classes), shards.X.shape[1]
    scored = 1 if classes == 2 else classes
    weights = np.zeros((scored, teachers, columns))
    bias = np.full((scored, teachers), 0.0 if scored == 1 else -np.inf)
    for teacher, model in enumerate(models):
        if model is None:
            continue
        codes = codes_of(model.classes_, shards.classes)
        rows = np.atleast_2d(model.coef_)
        heights = np.broadcast_to(model.intercept_, len(rows))
        if scored == 1:
            sign = 1 if codes[1] == 1 else -1
            weights[0, teacher], bias[0, teacher] = sign * rows[0], sign * heights[0]
        elif len(codes) == 2:
            bias[codes[0], teacher] = 0
            weights[codes[1], teacher], bias[codes[1], teacher] = rows[0], heights[0]
        else:
            weights[codes, teacher], bias[codes, teacher] = rows, heights
    voters = LinearVoters(weights.reshape(-1, columns), bias.ravel(), teachers=teachers, classes=classes)
    voters.settle(np.where([model is None for model in models], np.maximum(shards.constant, 0), -1))
    return voters


def _trees(models: list[Any], shards: Shards) -> TreeVoters:
    stub = DecisionTreeClassifier().fit(np.zeros((1, shards.X.shape[1])), [0])
    codes = [
        np.maximum(shards.constant[teacher : teacher + 1], 0)
        if model is None
        else codes_of(model.classes_, shards.classes)
        for teacher, model in enumerate(models)
    ]
    return TreeVoters([stub if model is None else model for model in models], codes, classes=len(shards.classes))
