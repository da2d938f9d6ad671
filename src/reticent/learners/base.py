"""What the learners of concept classes share: reading rows, drawing a concept, predicting, and counting rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from reticent import noise
from reticent.concepts.finite import Finite
from reticent.concepts.interface import ConceptClass
from reticent.concepts.reading import Array, Labels, as_array, as_labels, as_rows
from reticent.data.lists import as_floats
from reticent.errors import OutOfReach
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy import fits, guarantee
from reticent.privacy.events import Event
from reticent.privacy.guarantee import Protects
from reticent.promises import check_memory, check_rows, check_share, fewest_rows, rows_needed
from reticent.silence import silent

__all__ = [
    "UNLABELLED",
    "ConceptLearner",
    "PartlyLabelled",
    "as_table",
    "as_target",
    "check_share",
    "fewest_rows",
    "read_as",
    "refuse_bad_points",
]

UNLABELLED = -1  # the label of a row that has none


class ConceptLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose hypothesis is a concept, drawn privately. Labels are 0 and 1, both known beforehand."""

    protects: Protects = "rows"
    epsilon: object
    delta: object = 0
    error: object
    failure: object
    unsafe_seed: int | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from the rows of `X`, of shape (rows, columns), and their labels `y`, 0 or 1."""
        return self._fit(X, y, None if self.unsafe_seed is None else noise.Seeded(unsafe_seed=self.unsafe_seed))

    def predict(self, X: ArrayLike) -> Labels:
        """The label, 0 or 1, that the hypothesis gives to each row of `X`."""
        check_is_fitted(self)
        rows = as_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self._hypotheses().predict(self.hypothesis_, self._points(rows))

    def n_required(self, error: object, failure: object = None) -> int:
        """How many rows make the promise of this learner hold with this error and probability of failure."""
        raise NotImplementedError

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The most errors on so many rows of so many columns, whichever they are, that some concept fits.

        More are made with a probability of at most failure/2. Where nothing can be promised it is all the rows.
        """
        raise NotImplementedError

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows, for lack of memory or too many labellings to list.

        It looks at public numbers alone. `fit` asks it before it reads a row, and so do `n_required` and the plans.
        """
        check_memory(rows, self._hypotheses().columns)

    def _fit(self, X: ArrayLike, y: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """`fit` with any noise, such as that which an audit walks through."""
        self._check_parameters()
        rows = as_table(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        self._check_size(len(rows))
        self._check_rows(len(rows))
        labels = self._labels(y, len(rows))
        with silent():
            return self._keep(self._learn(self._points(rows), labels, unsafe_noise))

    def _keep(self, found: Release[Any]) -> Self:
        """Become fitted: what was found, and what it cost."""
        hypothesis, event = found
        pure = fits(event, epsilon=self.epsilon, delta=0)  # then no δ was used, whichever was allowed
        self.guarantee_ = guarantee(event, delta=0 if pure else self.delta, protects=self.protects)
        self.event_: Event = event
        self.hypothesis_: Any = hypothesis
        self.classes_ = np.array([0, 1])
        return self

    def _labels(self, y: ArrayLike, rows: int) -> Labels:
        """The labels of the rows."""
        return as_labels(as_target(y), rows)

    def _check_size(self, rows: int) -> None:
        """What `fit` asks; a learner that must first know which rows have a label asks later."""
        self.check_size(rows)

    def _check_rows(self, rows: int) -> None:
        if self.error is not None:
            required = rows_needed(self.n_required, self.error)  # whether they can be run was asked before
            check_rows(rows, required=required, error=self.error, failure=self.failure)

    def _points(self, rows: Array) -> Array:
        """The rows as a concept class of one column or of several takes them."""
        return rows[:, 0] if rows.shape[1] == 1 == self._hypotheses().columns else rows

    def _refuse_bad_rows(self, rows: Array) -> None:
        """Read *all* rows as learning would read some of them: which ones are drawn must not show in an error."""
        refuse_bad_points(self._hypotheses(), rows)

    # ── what a learner says ───────────────────────────────────────────────────────────────────────────────────────

    def _check_parameters(self) -> None:
        """Refuse bad parameters before the data are touched."""
        check_share(self.failure, "failure")
        if self.error is not None:
            check_share(self.error, "error")

    def _hypotheses(self) -> ConceptClass[Any]:
        """A class that the fitted hypothesis is of."""
        raise NotImplementedError

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        raise NotImplementedError


class PartlyLabelled(ConceptLearner):
    """A learner that also takes rows without a label, marked by y = −1. Which rows have one is public.

    Labels are 0 and 1. Of labels −1 and 1 the −1 would be taken for no label: turn them into 0 and 1 first.
    """

    def check_size(self, rows: int, *, labels: int | None = None) -> None:
        """So many rows, `labels` of them with a label."""
        super().check_size(rows)

    def _labels(self, y: ArrayLike, rows: int) -> Labels:
        """0, 1, or −1 for a row without a label."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: give 0, 1 or -1 for every row")
        target = as_array(y, "y")
        if target.dtype.kind not in "iuf" or target.shape not in ((rows,), (rows, 1)):
            return super()._labels(y, rows)  # booleans, or what is refused there
        target = column_or_1d(target, warn=True)
        missing = target == UNLABELLED
        labels = super()._labels(np.where(missing, 0, target), rows)
        if bool(missing.all()):
            raise ValueError("y must label some of the rows with 0 or 1: all are -1, which marks a row without a label")
        return np.where(missing, UNLABELLED, labels)


# ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def read_as(name: str) -> Iterator[None]:
    """Say which argument holds the points that a concept class refused."""
    try:
        yield
    except OutOfReach:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error)
        for inner in ("X ", "at "):  # what the methods of a class call their points
            if reason.startswith(inner):
                raise type(error)(f"{name} {reason[len(inner) :]}") from error
        raise type(error)(f"{name} must hold points that the concept class can label: {reason}") from error


def refuse_bad_points(concept_class: ConceptClass[Any], points: ArrayLike, name: str = "X") -> None:
    """Let the class read all points, and refuse those that it cannot label."""
    rows = as_array(points, name)
    if not isinstance(concept_class, Finite):  # its functions may take any number of columns
        rows = as_rows(rows, concept_class.columns, name)
    with read_as(name):
        concept_class.predict(concept_class.dichotomies(rows[:1]).concept(0), rows)


def as_table(X: ArrayLike, name: str = "X", *, domain_declared: bool = True) -> Array:
    """Rows and columns, nothing rounded; at least one of each.

    If the domain is not declared, the type of the rows decides it. Then a list is read as floats: see `data.lists`.
    """
    if not domain_declared and isinstance(X, (list, tuple)):
        X = as_floats(X, name)
    if sparse.issparse(X):
        raise TypeError(f"{name} must be a dense array, got a sparse matrix; call its toarray()")
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ValueError(f"Complex data not supported: {name} must hold real numbers")
    array = as_array(X, name)
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, rows and columns, got {array.ndim}. Reshape your data")
    for count, what in zip(array.shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(f"{name} has 0 {what}(s) (shape={array.shape}) while a minimum of 1 is required.")
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise ValueError(f"{name} must be finite: it holds NaN or inf")
    return array


def as_target(y: Any) -> Array:
    """What may be labels; whether they are 0 and 1, one a row, is for `as_labels` to check."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give a label, 0 or 1, for every row")
    array = as_array(y, "y")
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise ValueError("y must hold only the labels 0 and 1: it holds NaN or inf")
    if array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array.ndim == 1 and not bool(np.all((array == 0) | (array == 1))):
        # One message, whichever the labels are: it must not tell which. Scikit-learn's checks look for its words.
        raise ValueError(
            "Unknown label type: y must hold only the labels 0 and 1. Only binary classification is supported."
        )
    return array
