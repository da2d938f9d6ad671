"""What the sanitizers share: reading a column, keeping a private copy of it, counting in it, sampling from it."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from reticent import noise
from reticent.concepts.interface import ConceptClass
from reticent.data.points import Array, as_rows
from reticent.exact import Number, integer
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy import calibrate, fits, guarantee
from reticent.privacy.events import ZCDP, Event
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_memory, check_rows, check_share, rows_needed
from reticent.silence import silent

Copy = tuple[Array, NDArray[np.float64]]  # points, and the share of rows that each stands for


def usable_delta(epsilon: Number, delta: Number) -> Fraction:
    """δ, or 0 where it is so small that no Gaussian noise can be calibrated to it: what keeps ε alone keeps (ε, δ)."""
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
    """What samples are drawn with from a copy that is public: this randomness protects nobody."""
    return np.random.default_rng(None if random_state is None else integer(random_state, "random_state", least=0))


class Sanitizer(BaseEstimator):  # type: ignore[misc]
    """A private copy of some rows: weighted points on which every concept of a class has about the share it had.

    All that is asked of a fitted sanitizer is computed from the released points and weights, so it costs nothing.

    Attributes of a fitted sanitizer
    --------------------------------
    guarantee_, event_ : what is promised, and what happened.
    points_ : the points of the copy, in a canonical order; never in the order of the data.
    weights_ : the share of rows that each point stands for: non-negative, and summing to at most 1.
    rows_ : how many rows were sanitized, which is public.
    """

    epsilon: Number
    delta: Number = 0
    error: Number | None
    failure: Number
    unsafe_seed: int | None

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Make a private copy of the rows of `X`; `y` is not looked at."""
        return self._fit(X, None if self.unsafe_seed is None else noise.Seeded(unsafe_seed=self.unsafe_seed))

    def frequency(self, concept: Any) -> float:
        """About which share of the rows the concept labels 1, from the private copy."""
        check_is_fitted(self)
        labels = self._queries(concept).predict(concept, self.points_)
        return float(self.weights_[labels == 1].sum())

    def sample(self, n: int, *, random_state: int | None = None) -> Array:
        """`n` synthetic rows, drawn independently from the private copy."""
        check_is_fitted(self)
        count, source = integer(n, "n", least=0), public_generator(random_state)
        shares = self.weights_ / self.weights_.sum()
        return np.asarray(self.points_[source.choice(len(shares), size=count, p=shares)])

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if `fit` cannot run on this many rows; by public numbers alone."""
        check_memory(rows, self._queries().columns)

    def _fit(self, X: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """`fit` with any noise, such as that which an audit walks through."""
        self._check_parameters()
        rows = as_rows(X, self._queries().columns)
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

    # ── what a sanitizer says ─────────────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number | None = None) -> int:
        """How many rows make every frequency right up to `error`, but for a probability of failure."""
        raise NotImplementedError

    def _without_promise(self) -> str:
        """How to have a copy for which no error is promised."""
        return "set error=None for a fit without a promise"

    def _check_parameters(self) -> None:
        """Refuse bad parameters before the data are touched."""
        check_share(self.failure, "failure")
        if self.error is not None:
            check_share(self.error, "error")

    def _queries(self, concept: Any = None) -> ConceptClass[Any]:
        """The class whose concepts may be asked for, or of several that of this concept."""
        raise NotImplementedError

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        raise NotImplementedError
