"""Teachers: one classifier per shard of the private rows, and their votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.concepts.class_order import warn_of_order
from reticent.concepts.interface import ConceptClass
from reticent.concepts.order import Ordered
from reticent.concepts.thresholds import Thresholds
from reticent.data.classes import declared_classes, sorted_classes
from reticent.data.executor import Executor, as_executor
from reticent.data.groups import as_groups
from reticent.data.labels import read_labels
from reticent.data.points import as_array, as_rows
from reticent.data.shards import Shards, check_shards, deal
from reticent.data.tables import (
    Array,
    Integers,
    Table,
    as_numeric_table,
    as_private_table,
    as_table,
    check_missing,
    is_frame,
    kind_of,
    take,
)
from reticent.exact import as_count
from reticent.silence import holders_log, silent
from reticent.teachers.linear import LINEAR, LogisticTeacher, newton, train, unscaled
from reticent.teachers.linear_voters import LinearVoters
from reticent.teachers.missing import takes_nan
from reticent.teachers.models import ModelVoters, fit_models, flattened
from reticent.teachers.thresholds import ConceptTeacher, fit_thresholds, points

QUERIES = 1 << 15  # voted on at a time

log = holders_log("reticent.teachers")


class Voters(Protocol):
    """Trained teachers, in a form that makes their votes fast."""

    def count(self, X: Table, n_jobs: int | Executor | None = None) -> Integers:
        """Return how many teachers vote for each class, one row per query."""

    def ask(self, X: Table, teachers: Integers) -> Integers:
        """Return the votes of the teachers in each row of `teachers`."""


class Teachers(BaseEstimator):  # type: ignore[misc]
    """Splits the rows among `shards` teachers, each of which learns alone, and counts their votes.

    The votes are **not** private, nor is anything else here. They are for a labeller, which turns them into private
    labels, and for the data holder. Labellers rely on this:

    One vote. Replace a row, features and label, or with `groups` all rows of a group. Then the vote of one teacher may
    change, to any class, and the votes of all others stay the same to the last bit, for every query. So in every row of
    `votes` one count may fall by one and another rise by one. The same holds for a row that gets or loses its label, if
    some have none (see `fit_rows`).

    Why. The shard of a row follows from its position, or from the column of groups, so no other row moves. A teacher is
    a copy of the whole pipeline, fitted on its own copy of the rows of its shard, with a seed that is made of public
    numbers. A row without a label keeps its place: shards are dealt, padded and worked on by places, empty or not. A
    shard with labels of one class votes for that class, one without labels for the first. A teacher that fails to learn
    or to answer votes for the first class; the number of failures goes to the logger "reticent.teachers", whose lines
    only reach handlers that are added to it. The estimator must keep no state outside itself, such as in its class: all
    teachers would share it. Public are the number of rows, the columns with their types and categories, the classes,
    `groups`, and every parameter. The page "Teachers" of the documentation has the proof.

    Source. Papernot, Abadi, Erlingsson, Goodfellow, Talwar, *Semi-supervised Knowledge Transfer for Deep Learning from
    Private Training Data*; the splitting and voting of Algorithms 1 and 2 in Liu, Zhu, Chaudhuri, Wang, *Revisiting
    Model-Agnostic Private Learning: Faster Rates and Active Learning*. New are groups, and teachers that are trained at
    once with the same votes to the last bit.

    Parameters
    ----------
    estimator : classifier, ConceptClass or None, default None
        A scikit-learn classifier or pipeline; a concept class, such as `concepts.Thresholds()`, for the concept with
        the fewest errors on each shard; or None for `LogisticTeacher()`, which has little bias: votes average out the
        differences between teachers, but not what they have in common.
    shards : int
        Number of teachers.
    classes : sequence or "public"
        The labels, in any order; or "public", if it is public which labels occur in `y`. They must be given, as labels
        are private.
    random_state : int, default 0
        Public seed. With the number of the shard it sets every `random_state` of the estimator, its parts and its
        splitters that is not a number.
    n_jobs : int, Executor or None, default None
        How many tasks run at the same time, as for joblib; `joblib.parallel_config` may name another backend. Or an
        executor of your own, see `reticent.data.executor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, ascending: the order of the columns of `votes`. A concept's label 1 is the second of them.
    n_teachers_ : int
        Number of teachers.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(5_000, 3))
    >>> teachers = Teachers(shards=100, classes=(0, 1)).fit(rows, rows.sum(axis=1) > 0)
    >>> teachers.votes([[1, 1, 1], [-1, -1, -1]]).tolist()
    [[0, 100], [100, 0]]
    """

    _warned = False  # whether it has warned that names of columns differ
    _floats = False  # whether it has learned from floats; queries in a list are then read as floats

    def __init__(
        self,
        estimator: Any = None,
        *,
        shards: int,
        classes: Sequence[Any] | Array | str | None = None,
        random_state: int = 0,
        n_jobs: int | Executor | None = None,
    ) -> None:
        self.estimator = estimator
        self.shards = shards
        self.classes = classes
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Split the rows into shards and fit a teacher to each.

        Parameters
        ----------
        X : array, sparse matrix or frame
            The private rows.
        y : array-like
            Their labels.
        groups : array-like or None, default None
            For each row the person, or other unit, that is protected as a whole. A group with more rows than two
            average shards is refused: limit the rows of a group, or use fewer shards.
        """
        count, seed = self._numbers()
        estimator = as_teacher(self.estimator)
        declared_classes(self.classes)
        warn_of_order(estimator, self.classes, stacklevel=2)
        table = as_private_table(X)
        rows = table.shape[0]
        shard = self._dealt(rows, count, None if groups is None else as_groups(groups, rows))
        classes, indices = read_labels(y, rows, self.classes)
        if isinstance(estimator, ConceptClass) and len(classes) > 2:
            raise ValueError(f"classes must be 2 for teachers that are concepts, got {len(classes)}")
        table = self._read(table, estimator)
        validate_data(self, X, reset=True, skip_check_array=True)
        self._warned = False
        self._floats = kind_of(table) == "f"
        self._voters = self._train(estimator, Shards(table, indices, shard, count, classes), seed)
        self.classes_, self.n_teachers_ = classes, count
        return self

    def fit_rows(
        self,
        X: Array,
        class_indices: Array,
        *,
        classes: Sequence[Any] | Array,
        groups: Array | None = None,
        release: Callable[[], None] | None = None,
    ) -> Self:
        """Fit to rows that were read and checked before; the teachers are the same as by `fit`, to the last bit.

        The rows and class indices may be views of files larger than memory. They are then read some shards at a time.
        A row may have no label: then its place is empty. It stays in its shard, and nothing is learned from it. Whether
        a place is empty is as private as the label is: to empty, fill or change a place moves one vote.

        Parameters
        ----------
        X : array of shape (rows, columns)
            The private rows: finite numbers.
        class_indices : array of int, shape (rows,)
            The index of each row's class; −1 for an empty place, whatever `X` holds there.
        classes : sequence
            The classes, ascending.
        groups : array or None, default None
            The group of each row, as for `fit`.
        release : Callable[[], None] or None, default None
            Called after every part, to release the pages of memory that it was read from.
        """
        count, seed = self._numbers()
        estimator, labels = as_teacher(self.estimator), sorted_classes(classes)
        if not np.array_equal(labels, np.asarray(list(classes))):
            raise ValueError("classes must be in ascending order: class_indices are indices among them")
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind not in "biufM":
            raise TypeError("X must be an array of numbers with two dimensions, rows and columns")
        whole = isinstance(class_indices, np.ndarray) and class_indices.dtype.kind in "iu"
        if not whole or class_indices.shape != X.shape[:1]:
            raise TypeError("class_indices must be an array of whole numbers, one per row")
        if isinstance(estimator, ConceptClass) and len(labels) > 2:
            raise ValueError(f"classes must be 2 for teachers that are concepts, got {len(labels)}")
        if len(class_indices) and not -1 <= int(class_indices.min()) <= int(class_indices.max()) < len(labels):
            raise ValueError(f"class_indices must be indices among the {len(labels)} classes, or -1 for an empty place")
        shard = self._dealt(len(X), count, groups)
        self._floats = X.dtype.kind == "f"
        voters = self._train(estimator, Shards(X, class_indices, shard, count, labels, release), seed)
        return self.restore(voters, classes=labels, columns=X.shape[1])

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class, one row per query and one column per class. **Not private.**

        Parameters
        ----------
        X : array-like
            The queries.
        """
        return self.count_rows(self._queries(X))

    @silent()
    def count_rows(self, X: Table) -> Integers:
        """Return the votes on rows that were read and checked before, as for `fit_rows`. **Not private.**"""
        if X.shape[0] <= QUERIES:
            return self._voters.count(X, self.n_jobs)
        starts = range(0, X.shape[0], QUERIES)
        return np.concatenate([
            self._voters.count(take(X, np.arange(start, min(start + QUERIES, X.shape[0]))), self.n_jobs)
            for start in starts
        ])  # fmt: skip

    def ask(self, X: Any, teachers: ArrayLike) -> Integers:
        """Return the votes of a few teachers per query, as for a poll. **Not private.**

        Parameters
        ----------
        X : array, sparse matrix or frame
            The queries.
        teachers : array of int, shape (queries, asked)
            The numbers of the teachers that are asked each query. A teacher that occurs twice is asked twice.

        Returns
        -------
        array of int, shape (queries, asked)
            Their votes, as indices in `classes_`.
        """
        table, named = self._queries(X), np.asarray(teachers)
        if named.ndim != 2 or len(named) != table.shape[0] or named.dtype.kind not in "iu":
            raise ValueError(f"teachers must be whole numbers with a row for each of the {table.shape[0]} rows of X")
        if named.size and not 0 <= named.min() <= named.max() < self.n_teachers_:
            raise ValueError(f"teachers must be numbered from 0 to {self.n_teachers_ - 1}")
        return self.ask_rows(table, named.astype(np.int64))

    @silent()
    def ask_rows(self, X: Table, teachers: Integers) -> Integers:
        """Return what `ask` does on rows that were read and checked before, as for `fit_rows`. **Not private.**"""
        return self._voters.ask(X, teachers)

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def voters(self) -> Voters:
        """The trained teachers, in the form in which they vote. **Not private**; for `teachers.saving`."""
        check_is_fitted(self)
        return self._voters

    def restore(self, voters: Voters, *, classes: Array, columns: int, names: Array | None = None) -> Self:
        """Take over trained teachers, as if `fit` had trained them; the inverse of `voters`.

        Parameters
        ----------
        voters : Voters
            As many teachers as `shards`, trained by an equal `Teachers`.
        classes : array of shape (n_classes,)
            The `classes_` of that object.
        columns : int
            Number of columns that the teachers learned from.
        names : array of str or None, default None
            Names of the columns, if they have any.
        """
        self.n_teachers_ = self._numbers()[0]
        self._voters, self.classes_, self.n_features_in_ = voters, classes, columns
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names
        return self

    # ── how they are trained ──────────────────────────────────────────────────────────────────────────────────────

    def _numbers(self) -> tuple[int, int]:
        """The number of shards, and the seed."""
        as_executor(self.n_jobs)
        return as_count(self.shards, "shards", least=1), as_count(self.random_state, "random_state", least=0)

    @staticmethod
    def _dealt(rows: int, count: int, groups: Array | None) -> Integers | None:
        """The shard of each row by its group; None without groups, where it follows from the position."""
        check_shards(rows, count if groups is None else 1)
        return None if groups is None else deal(rows, count, groups)

    @silent()
    def _train(self, estimator: Any, shards: Shards, seed: int) -> Voters:
        if isinstance(estimator, Thresholds) and (
            found := fit_thresholds(estimator, shards, n_jobs=self.n_jobs)
        ) is not None:
            return found
        if (how := newton(estimator, shards)) is not None:
            return self._train_linear(shards, how)
        if isinstance(estimator, ConceptClass):
            estimator = ConceptTeacher(estimator, shards.classes)
        models, failures = fit_models(estimator, shards, random_state=seed, n_jobs=self.n_jobs)
        report(failures, shards.count, "learn")
        voters = flattened(estimator, models, shards)
        if voters is not None:
            return voters
        return ModelVoters(
            models,
            np.where([model is None for model in models], np.maximum(shards.constant, 0), -1),
            shards.classes,
            report=partial(report, teachers=shards.count, what="answer"),
        )

    def _train_linear(self, shards: Shards, how: dict[str, Any]) -> LinearVoters:
        weights, bias = train(shards, **how, n_jobs=self.n_jobs)
        voters = LinearVoters(weights, bias, teachers=shards.count, classes=len(shards.classes))
        failed = voters.failed() & (shards.constant < 0)
        report(["FloatingPointError"] * int(failed.sum()), shards.count, "learn")
        if voters.scored > 1:
            voters.bias[(shards.seen.T == 0).ravel()] = -np.inf  # no votes for a class without rows in the shard
        voters.fix_votes(np.where(failed, 0, shards.constant))
        return voters

    # ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────

    def _read(self, table: Table, estimator: Any) -> Table:
        if isinstance(estimator, ConceptClass):
            check_missing(table, allow_nan=False)
            rows = as_rows(points(table, estimator), estimator.columns)
            if isinstance(estimator, Ordered):
                estimator.ranks(rows)  # refuses values outside the domain
            return as_array(table, "X")  # objects get one type here; read in parts, their types might differ
        if type(unscaled(estimator)[0]) in (*LINEAR, LogisticTeacher, DecisionTreeClassifier):
            table = as_numeric_table(table)
        check_missing(table, allow_nan=takes_nan(estimator))
        return table

    def _queries(self, X: Any) -> Table:
        check_is_fitted(self)
        table = as_private_table(X) if self._floats else as_table(X)
        # Columns with names on one side only are matched by position. Scikit-learn warns each time, we warn once.
        differ = is_frame(X) != hasattr(self, "feature_names_in_")
        with silent() if differ and self._warned else nullcontext():
            validate_data(self, X, reset=False, skip_check_array=True)
        self._warned |= differ
        return self._read(table, as_teacher(self.estimator))


def as_teacher(estimator: Any) -> Any:
    """Return what each teacher is a copy of, or raise a `TypeError` if it cannot teach.

    Parameters
    ----------
    estimator : classifier, ConceptClass or None
        The parameter of `Teachers`. None stands for `LogisticTeacher()`.
    """
    if estimator is None:
        return LogisticTeacher()
    if isinstance(estimator, ConceptClass):
        return estimator
    methods = ("fit", "predict", "get_params", "__sklearn_tags__")
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in methods):
        raise TypeError(
            "estimator must be None, a scikit-learn classifier or a concept class, "
            f"got {getattr(estimator, '__name__', type(estimator).__name__)}"
        )
    if not is_classifier(estimator):
        raise TypeError(f"estimator must be a classifier, got {type(estimator).__name__}")
    return estimator


def report(failures: list[str], teachers: int, what: str) -> None:
    """Log for the data holder alone how many teachers failed, and by which kinds of errors; never a message.

    The number of failures depends on private rows, so the logger reaches only handlers that are added to it.
    """
    if failures:
        kinds = ", ".join(f"{kind} {times}x" for kind, times in sorted(Counter(failures).items()))
        log.warning(
            "%d of %d teachers failed to %s and vote for the first class (%s)", len(failures), teachers, what, kinds
        )
