"""Teachers of any kind: each is a fitted copy of a scikit-learn classifier."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from joblib import Memory, wrap_non_picklable_objects
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

from reticent.data.executor import Executor, as_executor
from reticent.data.labels import class_indices
from reticent.data.shards import Shards
from reticent.data.tables import Array, Integers, Table, pack_rows, take, unpack_rows
from reticent.silence import silent
from reticent.teachers.linear import LINEAR, LogisticTeacher
from reticent.teachers.linear_voters import LinearVoters
from reticent.teachers.trees import TreeVoters

CHUNKS = 8  # per worker
LARGEST = 1 << 27  # weights: more are not kept as one dense array


def seeded(estimator: Any, *seed: int) -> Any:
    """Return a copy of an estimator that shares nothing with others, with its randomness set by a public seed.

    The seed also sets the splitters of the estimator, such as `StratifiedKFold(shuffle=True)`. `clone` alone would
    share frozen parts. Caches are removed: they would keep results of private rows on disk. Every `verbose` is turned
    off: what a teacher prints while it learns is a function of its private rows.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn classifier or pipeline.
    *seed : int
        Public numbers, such as the `random_state` and the number of the shard.
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
    """Whether this value of `verbose` prints nothing; some estimators print less at −1 than at 0."""
    return isinstance(verbose, (int, float, np.bool_, np.number)) and bool(verbose <= 0)


def fit_models(
    estimator: Any, shards: Shards, *, random_state: int, n_jobs: int | Executor | None
) -> tuple[list[Any], list[str]]:
    """Return a model for each shard, None for one whose vote is settled or that failed; and the kinds of failures.

    Settled are shards without two classes. They are read with the others of their chunk but not handed to a learner:
    how many tasks there are, and which rows each reads, follows from the number of shards and places, not from labels.
    """
    executor = as_executor(n_jobs)
    models: list[Any] = [None] * shards.count
    failures: list[str] = []
    number = min(shards.count, max(CHUNKS * executor.workers, shards.portions))
    chunks = np.array_split(np.arange(shards.count), number)
    learns = shards.constant < 0

    def parts() -> Iterator[tuple[Any, ...]]:
        for chunk in chunks:
            # The caller's estimator may depend on labels, as by `class_weight`: here indices become labels.
            some = [
                (_sent(rows), shards.classes[indices])
                for one, (rows, indices) in zip(chunk, shards.parts(chunk), strict=True)
                if learns[one]
            ]
            yield estimator, some, [(random_state, int(one)) for one in chunk[learns[chunk]]], sent

    sent = executor.workers > 1
    if sent:
        _check_sent(estimator)
    with silent():
        for chunk, (fitted, failed) in zip(chunks, executor.map(_fit_some, parts()), strict=True):
            failures += failed
            for one, model in zip(chunk[learns[chunk]], fitted, strict=True):
                models[one] = pickle.loads(model) if isinstance(model, bytes) else model
    return models, failures


class Unsent(NamedTuple):
    """In place of rows that cannot be sent to a worker: the kind of the error. Their teacher has failed."""

    kind: str


def _sent(rows: Table) -> Table | bytes | Unsent:
    """Rows as a worker gets them, whether it is another process or not: what fails must not depend on `n_jobs`."""
    try:
        return pack_rows(rows)
    except BaseException as error:  # its message may hold data
        return Unsent(failure(error))


def _check_sent(estimator: Any) -> None:
    """Refuse, whatever the rows are, an estimator that cannot be sent to workers."""
    try:
        _packed(estimator)
    except Exception:
        raise TypeError(
            f"estimator must be one that can be pickled for n_jobs above 1, {type(estimator).__name__} cannot: set "
            "n_jobs=1"
        ) from None


@silent()  # again: it may run in another process
def _fit_some(
    estimator: Any, parts: list[Any], seeds: list[tuple[int, int]], pack: bool
) -> tuple[list[Any], list[str]]:
    """Fit a model to each part, None if it fails. With `pack` a model is bytes, ready to be sent to another process.

    A model that cannot be sent counts as failed, like one that cannot be fitted. In joblib it would raise an error. But
    there is a model only where a shard has two classes, so the error would depend on labels.
    """
    models: list[Any] = []
    failures: list[str] = []
    for (rows, labels), seed in zip(parts, seeds, strict=True):
        if isinstance(rows, Unsent):
            failures.append(rows.kind)
            models.append(None)
            continue
        try:
            model = seeded(estimator, *seed).fit(unpack_rows(rows), unpack_rows(pack_rows(labels)))
            models.append(_packed(model) if pack else model)
        except BaseException as error:  # its message may hold data
            failures.append(failure(error))
            models.append(None)
    return models, failures


def _packed(model: Any) -> bytes:
    """A model as bytes that can be loaded again. Both are tried here, where an error is caught."""
    packed = pickle.dumps(wrap_non_picklable_objects(model, keep_wrapper=False))
    pickle.loads(packed)
    return packed


def failure(error: BaseException) -> str:
    """Return the kind of a failure, for the log. An interrupt by the caller is raised again, without its traceback."""
    if isinstance(error, KeyboardInterrupt):
        raise KeyboardInterrupt from None
    return type(error).__name__


class ModelVoters:
    """Teachers that are asked one by one. A teacher that cannot answer a query votes for the first class.

    Parameters
    ----------
    models : list
        A fitted classifier for each teacher; None for one that always votes for one class.
    constant : array of int
        The index of that class, or −1.
    classes : array
        The classes.
    report : Callable[[list[str]], None]
        Receives the kinds of failures of a count.
    """

    def __init__(
        self,
        models: list[Any],
        constant: Integers,
        classes: Array,
        *,
        report: Callable[[list[str]], None],
    ) -> None:
        self.models, self.constant, self.classes = models, constant, classes
        self.report = report

    def count(self, X: Table, n_jobs: int | Executor | None = None) -> Integers:
        """Return how many teachers vote for each class, one row per query."""
        executor = as_executor(n_jobs)
        fixed = np.bincount(self.constant[self.constant >= 0], minlength=len(self.classes))
        counts = np.tile(fixed, (X.shape[0], 1))
        models = [model for model in self.models if model is not None]
        chunks = max(1, min(len(self.models), CHUNKS * executor.workers))
        parts = [[one for one in self.models[start::chunks] if one is not None] for start in range(chunks)]
        failures: list[str] = []
        with silent():
            sent, rows, unsent = _sent_queries(X)
            counts[np.setdiff1d(np.arange(X.shape[0]), rows), 0] += len(models)  # as if every model failed on them
            failures += unsent * len(models)
            for votes, failed in executor.map(_count, ((part, sent, self.classes) for part in parts)):
                counts[rows] += votes
                failures += failed
        self.report(failures)
        return counts

    @silent()
    def ask(self, X: Table, teachers: Integers) -> Integers:
        """Return the votes of the teachers in each row of `teachers`, each asked by itself."""
        answers = np.maximum(self.constant, 0)[teachers]
        failures: list[str] = []  # not reported: a log of who failed would reveal who was asked
        for query, named in enumerate(teachers):
            row = take(X, np.array([query]))
            for column, teacher in enumerate(named):
                if (model := self.models[teacher]) is not None:
                    answers[query, column] = _answer(model, row, self.classes, failures)[0]
        return answers


def _sent_queries(X: Table) -> tuple[Table | bytes, Integers, list[str]]:
    """The queries that can be sent, as workers get them; their indices; and the kind of error of the first other one.

    A query that cannot be sent is left out by itself, so that the others of its batch do not reveal it.
    """
    if not isinstance(found := _sent(X), Unsent):
        return found, np.arange(X.shape[0]), []
    each = [_sent(take(X, np.array([row]))) for row in range(X.shape[0])]
    rows = np.array([row for row, one in enumerate(each) if not isinstance(one, Unsent)], dtype=np.int64)
    return pack_rows(take(X, rows)), rows, [one.kind for one in each if isinstance(one, Unsent)][:1]


@silent()
def _count(models: list[Any], sent: Table | bytes, classes: Array) -> tuple[Integers, list[str]]:
    X = unpack_rows(sent)
    counts = np.zeros((X.shape[0], len(classes)), dtype=np.int64)
    rows, failures = np.arange(X.shape[0]), list[str]()
    for model in models:
        failed: list[str] = []
        counts[rows, _answer(model, X, classes, failed)] += 1
        failures += failed[:1]
    return counts, failures


def _answer(model: Any, X: Table, classes: Array, failures: list[str]) -> Integers:
    """The answers of a model; the first class for each row that it cannot answer, and for no other row.

    If a query that makes a model fail changed the answers to the rest of its batch, they would reveal it.
    """
    try:
        found = np.asarray(model.predict(unpack_rows(pack_rows(X)))).reshape(X.shape[0])
        return np.maximum(class_indices(found, classes), 0)
    except BaseException as error:  # its message may hold data
        kind = failure(error)
    if X.shape[0] <= 1:
        failures.append(kind)
        return np.zeros(X.shape[0], dtype=np.int64)
    single = [_answer(model, take(X, np.array([row])), classes, failures) for row in range(X.shape[0])]
    return np.concatenate(single)


# ── the same votes, faster ────────────────────────────────────────────────────────────────────────────────────────


def flattened(estimator: Any, models: list[Any], shards: Shards) -> LinearVoters | TreeVoters | None:
    """Return all models as arrays, including those that always vote for one class; None for an unknown kind."""
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
        indices = class_indices(model.classes_, shards.classes)
        rows = np.atleast_2d(model.coef_)
        heights = np.broadcast_to(model.intercept_, len(rows))
        if scored == 1:
            sign = 1 if indices[1] == 1 else -1
            weights[0, teacher], bias[0, teacher] = sign * rows[0], sign * heights[0]
        elif len(indices) == 2:
            bias[indices[0], teacher] = 0
            weights[indices[1], teacher], bias[indices[1], teacher] = rows[0], heights[0]
        else:
            weights[indices, teacher], bias[indices, teacher] = rows, heights
    voters = LinearVoters(weights.reshape(-1, columns), bias.ravel(), teachers=teachers, classes=classes)
    voters.fix_votes(np.where([model is None for model in models], np.maximum(shards.constant, 0), -1))
    return voters


def _trees(models: list[Any], shards: Shards) -> TreeVoters:
    stub = DecisionTreeClassifier().fit(np.zeros((1, shards.X.shape[1])), [0])
    indices = [
        np.maximum(shards.constant[teacher : teacher + 1], 0)
        if model is None
        else class_indices(model.classes_, shards.classes)
        for teacher, model in enumerate(models)
    ]
    return TreeVoters([stub if model is None else model for model in models], indices, classes=len(shards.classes))
