"""What all sanitizers share: reading rows, keeping a private copy of them, counting in it and sampling from it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from reticent.concepts.interface import ConceptClass
from reticent.data.points import Array, as_rows
from reticent.exact import Number, integer
from reticent.mechanisms.release import Release, noise_from_seed
from reticent.noise import Noise
from reticent.privacy import calibrate, fits, guarantee
from reticent.privacy.events import ZCDP, Event
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_memory, check_promise, check_rows, check_share, rows_needed
from reticent.silence import silent

Copy = tuple[Array, NDArray[np.float64]]  # points, and the share of rows that each stands for


def usable_delta(epsilon: Number, delta: Number) -> Fraction:
    """δ, or 0 if it is so small that no Gaussian noise can be calibrated to it: ε-privacy implies (ε, δ)-privacy.

    Parameters
    ----------
    epsilon, delta : float or Fraction
        The privacy parameters.

    Returns
    -------
    Fraction
        The δ that Gaussian noise can use.
    """
    return _usable_delta(check_epsilon(epsilon), check_delta(delta))


@lru_cache(maxsize=256)
def _usable_delta(epsilon: Fraction, delta: Fraction) -> Fraction:
    try:
        if delta:
            calibrate.noise(lambda inverse: ZCDP(1 / inverse), epsilon=epsilon, delta=delta, digits=1)
    except ValueError:  # no noise up to 10^30 can be certified
        return Fraction(0)
    return delta


def public_generator(random_state: int | None) -> np.random.Generator:
    """The generator for samples from a private copy. The copy is public, so this randomness protects nobody.

    Parameters
    ----------
    random_state : int or None
        The seed; None for a fresh one.
    """
    return np.random.default_rng(None if random_state is None else integer(random_state, "random_state", least=0))


class Sanitizer(BaseEstimator):  # type: ignore[misc]
    """Base class of private copies: weighted points on which every concept of a class has about its true frequency.

    Every answer of a fitted sanitizer is computed from the released points and weights, so it costs no privacy. A
    subclass says which concepts it answers (`query_class`), how it makes a copy (`_sanitize`), which parameters it
    accepts (`check_parameters`) and how many rows its promise needs (`n_required`).

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    points_ : array
        The points of the copy, in a canonical order; never in the order of the data.
    weights_ : array of float
        The share of rows that each point stands for: non-negative, with a sum of at most 1.
    rows_ : int
        The number of rows, which is public.
    """

    epsilon: Number
    delta: Number = 0
    error: Number | None
    failure: Number
    unsafe_seed: int | None

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Make a private copy of rows.

        Parameters
        ----------
        X : array-like
            The rows: one value each for a class of one column, else a table.
        y : None
            Ignored; present for scikit-learn.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, noise_from_seed(self.unsafe_seed))

    def fit_with_noise(self, X: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """Call `fit` on a given source of noise, as audits and learners that contain a sanitizer do.

        Parameters
        ----------
        X : array-like
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.

        Returns
        -------
        self
        """
        self.check_parameters()
        rows = as_rows(X, self.query_class().columns)
        if len(rows) == 0:
            raise ValueError("X must hold at least one row, got none")
        self.check_size(len(rows))
        if self.error is not None:
            required = rows_needed(self.n_required, self.error)
            check_rows(
                len(rows), required=required, error=self.error, failure=self.failure, otherwise=self._without_promise()
            )
        with silent():
            (points, weights), event = self._sanitize(rows, unsafe_noise)
        pure = fits(event, epsilon=self.epsilon, delta=0)  # then no δ was used, whichever was allowed
        self.guarantee_ = guarantee(event, delta=0 if pure else self.delta)
        self.event_: Event = event
        self.points_, self.weights_ = points, weights
        self.rows_ = len(rows)
        return self

    def frequency(self, concept: Any) -> float:
        """Estimate the share of rows that a concept labels 1.

        Parameters
        ----------
        concept : Concept
            A concept of `query_class`.
        """
        check_is_fitted(self)
        labels = self.query_class(concept).predict(concept, self.points_)
        return float(self.weights_[labels == 1].sum())

    def sample(self, n: int, *, random_state: int | None = None) -> Array:
        """Draw synthetic rows independently from the private copy.

        Parameters
        ----------
        n : int
            The number of rows.
        random_state : int or None, default None
            The seed of the draw. The copy is public, so a seed is safe here.

        Returns
        -------
        array
            The rows.
        """
        check_is_fitted(self)
        count, source = integer(n, "n", least=0), public_generator(random_state)
        shares = self.weights_ / self.weights_.sum()
        return np.asarray(self.points_[source.choice(len(shares), size=count, p=shares)])

    # ── how many rows ─────────────────────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of rows with which every frequency is correct up to `error`, except with probability `failure`.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the sanitizer's own.

        Raises
        ------
        OutOfReach
            If `fit` cannot run on that many rows; `required` holds their number.
        """
        raise NotImplementedError

    def planner(self, failure: Number | None = None) -> Callable[[Number], int]:
        """Return `n_required` as a function of the error, for callers that try many errors.

        A subclass computes here what does not depend on the error, once.

        Parameters
        ----------
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the sanitizer's own.
        """
        return lambda error: self.n_required(error, failure)

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows. Only public numbers are used.

        Parameters
        ----------
        rows : int
            The number of rows.
        """
        check_memory(rows, self.query_class().columns)

    def _failure(self, failure: Number | None = None) -> Fraction:
        """The given probability of failure, or the sanitizer's own; checked."""
        return check_share(self.failure if failure is None else failure, "failure")

    # ── what a subclass defines ───────────────────────────────────────────────────────────────────────────────────

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        check_promise(self.error, self.failure)

    def query_class(self, concept: Any = None) -> ConceptClass[Any]:
        """The class whose concepts `frequency` accepts, or for a given concept the class that it belongs to.

        Parameters
        ----------
        concept : Concept or None, default None
            A concept to be counted, for sanitizers that answer more than one class.
        """
        raise NotImplementedError

    def _without_promise(self) -> str:
        """How to get a copy for which no error is promised."""
        return "set error=None for a fit without a promise"

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        """Make the copy."""
        raise NotImplementedError
