"""What all learners of concept classes share: reading rows, checking sizes, keeping the hypothesis, predicting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.concepts.input import refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.data.labels import as_binary_labels, as_partial_labels, as_target
from reticent.data.points import Array, Labels, as_point_table, points_of
from reticent.exact import Number
from reticent.mechanisms.release import Release, noise_from_seed
from reticent.noise import Noise
from reticent.privacy import fits, guarantee
from reticent.privacy.events import Event
from reticent.privacy.guarantee import Protects
from reticent.promises import check_memory, check_promise, check_rows, check_share, rows_needed
from reticent.silence import silent

Estimator = TypeVar("Estimator", bound=BaseEstimator)


def clone_with(estimator: Estimator, **settings: object) -> Estimator:
    """An unfitted clone of an estimator, with those of the parameters set that it has.

    Parameters
    ----------
    estimator : estimator
        The template. It is not changed.
    **settings : object
        Values by the name of the parameter; names that the estimator does not have are ignored.
    """
    copy: Estimator = clone(estimator)
    known = copy.get_params(deep=False)
    copy.set_params(**{name: value for name, value in settings.items() if name in known})
    return copy


class ConceptLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of classifiers whose hypothesis is a concept, drawn privately. The labels are 0 and 1.

    A subclass says what its hypotheses are (`hypothesis_class`), how it learns (`_learn`), which parameters it accepts
    (`check_parameters`) and how many rows its promise needs (`n_required`).
    """

    protects: Protects = "rows"
    epsilon: Number
    delta: Number = 0
    error: Number | None
    failure: Number
    unsafe_seed: int | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            The training rows.
        y : array-like of shape (rows,)
            Their labels, 0 or 1.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, y, noise_from_seed(self.unsafe_seed))

    def fit_with_noise(self, X: ArrayLike, y: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """Call `fit` on a given source of noise, as audits and estimators that contain this one do.

        Parameters
        ----------
        X, y : array-like
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.

        Returns
        -------
        self
        """
        self.check_parameters()
        rows = as_point_table(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        self._check_size(len(rows))
        self._check_rows(len(rows))
        labels = self._labels(y, len(rows))
        with silent():
            return self.adopt_release(self._learn(self.as_points(rows), labels, unsafe_noise))

    def predict(self, X: ArrayLike) -> Labels:
        """Label rows by the hypothesis.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            The rows.

        Returns
        -------
        array of shape (rows,)
            The label of each row, 0 or 1.
        """
        check_is_fitted(self)
        rows = as_point_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.hypothesis_class().predict(self.hypothesis_, self.as_points(rows))

    def adopt_release(self, found: Release[Any]) -> Self:
        """Become fitted with a hypothesis that has been released, by `fit` or in an earlier process.

        Parameters
        ----------
        found : Release
            The hypothesis, and the event that describes how it was made.

        Returns
        -------
        self
        """
        hypothesis, event = found
        pure = fits(event, epsilon=self.epsilon, delta=0)  # then no δ was used, whichever was allowed
        self.guarantee_ = guarantee(event, delta=0 if pure else self.delta, protects=self.protects)
        self.event_: Event = event
        self.hypothesis_: Any = hypothesis
        self.classes_ = np.array([0, 1])
        return self

    # ── how many rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows with which the promise of this learner holds.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.

        Raises
        ------
        OutOfReach
            If `fit` cannot run on that many rows; `required` holds their number.
        """
        raise NotImplementedError

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The number of errors on its own training rows that the learner exceeds with probability at most failure/2.

        The rows may be any that some concept labels without error.

        Parameters
        ----------
        rows : int
            The number of training rows.
        columns : int, default 1
            The number of columns.

        Returns
        -------
        int
            The number of errors; all rows if nothing can be promised.
        """
        raise NotImplementedError

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows.

        The reason may be memory, or more labellings than can be listed. Only public numbers are used. `fit` calls it
        before it reads a row, and so do `n_required` and the plans.

        Parameters
        ----------
        rows : int
            The number of training rows.
        """
        check_memory(rows, self.hypothesis_class().columns)

    def _check_size(self, rows: int) -> None:
        """Check the size before the rows are read; a learner that must know the labels first checks it later."""
        self.check_size(rows)

    def _check_rows(self, rows: int) -> None:
        """Raise `InsufficientData` if `error` cannot be promised from this many rows."""
        if self.error is not None:
            required = rows_needed(self.n_required, self.error)  # whether these can be run was checked before
            check_rows(rows, required=required, error=self.error, failure=self.failure)

    def _failure(self, failure: Number | None = None) -> Fraction:
        """The given probability of failure, or the learner's own; checked."""
        return check_share(self.failure if failure is None else failure, "failure")

    # ── what a subclass defines ───────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        check_promise(self.error, self.failure)

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        raise NotImplementedError

    def as_points(self, rows: Array) -> Array:
        """A table of rows in the form that the concept class takes: one-dimensional for a class of one column."""
        return points_of(rows, self.hypothesis_class().columns)

    def refuse_bad_rows(self, rows: Array) -> None:
        """Raise if the concept class cannot read some row.

        Learners that use only some rows call it on *all* of them: an error must not reveal which rows were drawn.
        """
        refuse_bad_points(self.hypothesis_class(), rows)

    def _labels(self, y: ArrayLike, rows: int) -> Labels:
        """The labels of the rows."""
        return as_binary_labels(as_target(y), rows)

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        """Draw a hypothesis."""
        raise NotImplementedError


class PartlyLabelled(ConceptLearner):
    """A learner that also takes rows without a label, marked by y = −1. Which rows have one is public.

    Labels are 0 and 1. If your labels are −1 and 1, map them to 0 and 1 first: −1 means "no label" here.
    """

    def check_size(self, rows: int, *, labels: int | None = None) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows, `labels` of them with a label.

        Parameters
        ----------
        rows : int
            The number of training rows.
        labels : int or None, default None
            How many of them have a label; None if that is not known.
        """
        super().check_size(rows)

    def _labels(self, y: ArrayLike, rows: int) -> Labels:
        """0, 1, or −1 for a row without a label."""
        return as_partial_labels(y, rows)
