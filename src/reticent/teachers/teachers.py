"""Teachers: a classifier for each shard of the private rows, and the votes of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
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
    as_numbers,
    as_private_table,
    as_table,
    check_missing,
    is_frame,
    take,
)
from reticent.exact import as_count
from reticent.silence import holders_log, silent
from reticent.teachers.linear import LINEAR, LogisticTeacher, newton, train, unscaled
from reticent.teachers.linear_voters import LinearVoters
from reticent.teachers.missing import takes_nan
from reticent.teachers.models import ModelVoters, fit_models, flattened
from reticent.teachers.thresholds import ConceptTeacher, fit_thresholds, points

QUERIES = 1 << 15  # read at a time

log = holders_log("reticent.teachers")


class Voters(Protocol):
    """Teachers in whatever form makes them fast."""

    def count(self, X: Table, n_jobs: int | Executor | None = None) -> Integers:
        """How many teachers vote for each class, one row per query."""

    def ask(self, X: Table, teachers: Integers) -> Integers:
        """The class that each of the teachers named in a row votes for."""


class Teachers(BaseEstimator):  # type: ignore[misc]
    """Deals the rows to `shards` teachers, each of which learns alone, and counts their votes.

    The votes are **not** private, nor is anything else here: they are for a labeller, which makes private labels of
    them, and for the eyes of the data holder. What the labellers need of them is this.

    One vote. Replace a row, features and label, or with `groups` all rows of a group: then the vote of one teacher may
    change, to any class, and the votes of all others stay the same, to the last bit, whatever is asked. So in every
    row of `votes` one count may fall by one and another rise by one.

    Why. Row i is dealt to shard i mod `shards`; with `groups`, the j-th group in order of first appearance to shard
    j mod `shards`. Neither looks at what a row holds, so the replaced row stays where it was and no other moves. A
    teacher is a copy of the estimator, with scalers, encoders and whatever else is in the pipeline, and is fitted on
    the rows of its shard, the public `classes`, and a seed made of the public `random_state` and its number. Rows and
    queries are its own copies: what it writes into them, no other sees. The estimator must keep nothing outside of
    itself, such as in its class: that, all teachers would share. When all teachers are trained at once, no sum runs
    over two shards, and each stops by its own rows. A shard with rows of one class votes for that class; a teacher that
    fails to learn or to answer votes for the first class, and no caller learns of it: how many failed goes to the log
    "reticent.teachers" of the data holder, which only handlers added to it see. Public are the number of rows, the
    columns with their types and categories, the classes, `groups`, and every parameter.

    Source. Papernot, Abadi, Erlingsson, Goodfellow, Talwar, *Semi-supervised Knowledge Transfer for Deep Learning from
    Private Training Data*; the splitting and voting of Algorithms 1 and 2 in Liu, Zhu, Chaudhuri, Wang, *Revisiting
    Model-Agnostic Private Learning: Faster Rates and Active Learning*. New: that it holds to the last bit when all are
    trained at once, and groups.

    Parameters
    ----------
    estimator : classifier, ConceptClass or None, default=None
        A scikit-learn classifier or pipeline; a concept class, such as `concepts.Thresholds()`, for the concept with
        the fewest errors on each shard; or None for `LogisticTeacher()`, which has little bias: votes average away
        what differs between teachers, never what all have in common.
    shards : int
        The number of teachers.
    classes : sequence or "public"
        The labels, in any order; or "public", if it is public which labels occur in `y`. They must be given, as labels
        are private.
    random_state : int, default=0
        Every `random_state` of the estimator, its parts and its splitters that is not a number is set by it and by the
        number of the shard.
    n_jobs : int, Executor or None, default=None
        How many tasks run at the same time, as for joblib; `joblib.parallel_config` may name another backend. Or an
        executor of your own, see `reticent.data.executor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, ascending: the order of the columns of `votes`. A concept's label 1 is the second of them.
    n_teachers_ : int
        The number of teachers.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(5_000, 3))
    >>> teachers = Teachers(shards=100, classes=(0, 1)).fit(rows, rows.sum(axis=1) > 0)
    >>> teachers.votes([[1, 1, 1], [-1, -1, -1]]).tolist()
    [[0, 100], [100, 0]]
    """

    _warned = False  # that names of columns differ

    _floats = False  # whether it has learned from floats, which queries in a list are then read as

    def __init__(
        self,
        estimator: Any = None,
        *,
        shards: int,
        classes: Any = None,
        random_state: int = 0,
        n_jobs: int | Executor | None = None,
    ) -> None:
        self.estimator = estimator
        self.shards = shards
        self.classes = classes
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Deal the rows of `X`, dense, sparse or a frame, with their labels `y`, and fit a teacher on each shard.

        `groups` names for each row the person, or whatever else is to be protected as a whole, that it belongs to. A
        group with more rows than two average shards is refused: cap the rows of a group, or take fewer shards.
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
        self._floats = getattr(getattr(table, "dtype", None), "kind", "") == "f"
        self._voters = self._train(estimator, Shards(table, indices, shard, count, classes), seed)
        self.classes_, self.n_teachers_ = classes, count
        return self

    def fit_rows(
        self,
        X: Array,
        codes: Array,
        *,
        classes: Any,
        groups: Array | None = None,
        release: Callable[[], None] | None = None,
    ) -> Self:
        """As `fit`, from rows that were read before: finite numbers, and the index of each row's class.

        `X` and `codes` may be views of files larger than memory. They are then read some shards at a time, and
        `release` is called after every part, to release the pages that it was read from. A row is dealt as by `fit`,
        and the teachers are the same to the last bit.
        """
        count, seed = self._numbers()
        estimator, labels = as_teacher(self.estimator), sorted_classes(classes)
        if not np.array_equal(labels, np.asarray(list(classes))):
            raise ValueError("classes must be in ascending order: codes are indices among them")
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind not in "biufM":
            raise TypeError("X must be an array of numbers with two dimensions, rows and columns")
        if not isinstance(codes, np.ndarray) or codes.shape != X.shape[:1] or codes.dtype.kind not in "iu":
            raise TypeError("codes must be an array of whole numbers, one per row")
        if isinstance(estimator, ConceptClass) and len(labels) > 2:
            raise ValueError(f"classes must be 2 for teachers that are concepts, got {len(labels)}")
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(labels):
            raise ValueError(f"codes must be indices among the {len(labels)} classes")
        shard = self._dealt(len(X), count, groups)
        self._floats = X.dtype.kind == "f"
        voters = self._train(estimator, Shards(X, codes, shard, count, labels, release), seed)
        return self.restore(voters, classes=labels, columns=X.shape[1])

    def votes(self, X: Any) -> Integers:
        """How many teachers vote for each class: a row for each row of `X`, a column a class, whole numbers."""
        return self.count_rows(self._queries(X))

    @silent()
    def count_rows(self, X: Table) -> Integers:
        """`votes` on rows that were read before, as for `fit_rows`."""
        if X.shape[0] <= QUERIES:
            return self._voters.count(X, self.n_jobs)
        starts = range(0, X.shape[0], QUERIES)
        return np.concatenate([
            self._voters.count(take(X, np.arange(start, min(start + QUERIES, X.shape[0]))), self.n_jobs)
            for start in starts
        ])  # fmt: skip

    def ask(self, X: Any, teachers: Any) -> Integers:
        """What the teachers named in each row of `teachers` vote for at each row of `X`: indices of classes.

        For a poll, which asks few teachers per query. A teacher that is named twice is asked twice.
        """
        table, named = self._queries(X), np.asarray(teachers)
        if named.ndim != 2 or len(named) != table.shape[0] or named.dtype.kind not in "iu":
            raise ValueError(f"teachers must be whole numbers with a row for each of the {table.shape[0]} rows of X")
        if named.size and not 0 <= named.min() <= named.max() < self.n_teachers_:
            raise ValueError(f"teachers must be numbered from 0 to {self.n_teachers_ - 1}")
        return self.ask_rows(table, named.astype(np.int64))

    @silent()
    def ask_rows(self, X: Table, teachers: Integers) -> Integers:
        """`ask` on rows that were read before, as for `fit_rows`."""
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
        names : array of str or None, default=None
            Names of the columns, if they have any.
        """
        self.n_teachers_ = self._numbers()[0]
        self._voters, self.classes_, self.n_features_in_ = voters, classes, columns
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
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
        """The shard of each row, with groups; None where its place says it."""
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
            voters.bias[(shards.seen.T == 0).ravel()] = -np.inf  # no votes for a class that was never seen
        voters.fix_votes(np.where(failed, 0, shards.constant))
        return voters

    # ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────

    def _read(self, table: Table, estimator: Any) -> Table:
        if isinstance(estimator, ConceptClass):
            check_missing(table, allow_nan=False)
            rows = as_rows(points(table, estimator), estimator.columns)
            if isinstance(estimator, Ordered):
                estimator.ranks(rows)  # refuses what is not in the domain
            return as_array(table, "X")  # objects are settled here: read some at a time, their types might differ
        if type(unscaled(estimator)[0]) in (*LINEAR, LogisticTeacher, DecisionTreeClassifier):
            table = as_numbers(table)
        check_missing(table, allow_nan=takes_nan(estimator))
        return table

    def _queries(self, X: Any) -> Table:
        check_is_fitted(self)
        table = as_private_table(X) if self._floats else as_table(X)
        # Columns with names on one side only are taken by their place. Scikit-learn warns of it, here once.
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
    """To the data holder's log, and nowhere else: how many failed, and by what kind of error; never its message.

    How many fail depends on the data, so the log is one that only the handlers added to it see.
    """
    if failures:
        kinds = ", ".join(f"{kind} {times}x" for kind, times in sorted(Counter(failures).items()))
        log.warning(
            "%d of %d teachers failed to %s and vote for the first class (%s)", len(failures), teachers, what, kinds
        )
