"""What the learners of concept classes share: reading rows, drawing a concept, predicting, and counting rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent import noise
from reticent.concepts.input import refuse_bad_points
from reticent.concepts.interface import ConceptClass
from reticent.data.labels import as_binary_labels, as_partial_labels, as_target
from reticent.data.points import Array, Labels, as_point_table, points_of
from reticent.exact import Number
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy import fits, guarantee
from reticent.privacy.events import Event
from reticent.privacy.guarantee import Protects
from reticent.promises import check_memory, check_rows, check_share, rows_needed
from reticent.silence import silent


class ConceptLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose hypothesis is a concept, drawn privately. Labels are 0 and 1, both known beforehand."""

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
        """Learn from the rows of `X`, of shape (rows, columns), and their labels `y`, 0 or 1."""
        return self._fit(X, y, None if self.unsafe_seed is None else noise.Seeded(unsafe_seed=self.unsafe_seed))

    def predict(self, X: ArrayLike) -> Labels:
        """The label, 0 or 1, that the hypothesis gives to each row of `X`."""
        check_is_fitted(self)
        rows = as_point_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self._hypotheses().predict(self.hypothesis_, self._points(rows))

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """How many rows make the promise of this learner hold with this error and probability of failure."""
        raise NotImplementedError

    def sample_errors(self, rows: int, columns: int = 1) -> int:
        """The most errors on this many rows of so many columns, whichever they are, that some concept fits.

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
        rows = as_point_table(X)
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
        return as_binary_labels(as_target(y), rows)

    def _check_size(self, rows: int) -> None:
        """What `fit` asks; a learner that must first know which rows have a label asks later."""
        self.check_size(rows)

    def _check_rows(self, rows: int) -> None:
        if self.error is not None:
            required = rows_needed(self.n_required, self.error)  # whether they can be run was asked before
            check_rows(rows, required=required, error=self.error, failure=self.failure)

    def _points(self, rows: Array) -> Array:
        """The rows as a concept class of one column or of several takes them."""
        return points_of(rows, self._hypotheses().columns)

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
        """This many rows, `labels` of them with a label."""
        super().check_size(rows)

    def _labels(self, y: ArrayLike, rows: int) -> Labels:
        """0, 1, or −1 for a row without a label."""
        return as_partial_labels(y, rows)
