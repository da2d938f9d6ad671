"""Learners for data whose points need no protection: secret labels, and secret rows with public points."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.input import check_concept_class, read_as
from reticent.concepts.interface import ConceptClass
from reticent.data.points import Array, Labels, as_point_table
from reticent.exact import Number, integer
from reticent.learners import sample_bounds
from reticent.learners.base import ConceptLearner
from reticent.mechanisms.exponential import exponential
from reticent.mechanisms.release import Release, noise_from_seed
from reticent.noise import Noise
from reticent.privacy.parameters import check_epsilon
from reticent.promises import check_memory, check_rows, check_share, fewest_rows, in_reach, rows_needed

_FEWER = "set net_rows of LabelPrivateLearner to the number of points whose labellings are candidates"
_FEWER_PUBLIC = "give fewer public points, or ask for a larger error"


class NetLearner(ConceptLearner):
    """Base class of learners whose candidates are one concept for each labelling of a net by a concept class."""

    concept_class: ConceptClass[Any]
    epsilon: Number

    def _draw(
        self, net: Array, rows: Array, labels: Labels, unsafe_noise: Noise | None, *, name: str, remedy: str
    ) -> Release[Any]:
        """Draw a candidate by its errors on the rows; `remedy` is what an error about too many candidates suggests."""
        with read_as(name):
            self.concept_class.check_public(net, what=f"points of {name}", remedy=remedy)
            candidates = self.concept_class.dichotomies(net)
        with read_as("X"):
            errors = candidates.errors(labels, at=rows)
        index, event = exponential(-errors, epsilon=self.epsilon, unsafe_noise=unsafe_noise)
        return Release(candidates.concept(index), event)

    def _log_failure(self, failure: Number | None) -> float:
        """The logarithm of the given probability of failure, or of the learner's own."""
        return math.log(self._failure(failure))

    def _rate(self) -> float:
        """The rate of the weights e^(−rate·errors)."""
        return float(min(check_epsilon(self.epsilon), Fraction(10**6))) / 2  # any rate up to ε/2 gives a bound

    def _require(self, have: int, required: int, what: str) -> None:
        """Raise `InsufficientData` if there are fewer than the promise needs."""
        check_rows(have, required=required, error=self.error, failure=self.failure, what=what)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_concept_class(self.concept_class)

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.concept_class


class LabelPrivateLearner(NetLearner):
    """A concept drawn with probability ∝ e^(−ε·errors/2), where only the labels are secret and all points are public.

    The candidates are one concept for each labelling of the points of `X` by the class: at most Σ C(n, i), i ≤ VC, of
    them, however large the class is. Infinite classes are allowed. One candidate is as good on the data as any concept
    of the class. If there are too many to be scored, `net_rows` uses the labellings of that many points only, evenly
    spaced; errors are still counted on all rows.

    Guarantee. ε-differential privacy for a replaced *label*, for the published concept, with a privacy loss of bounded
    range ε. The points `X` are public: nothing is promised about which points they are. Public are also the number of
    rows, the concept class and every parameter.

    Why. The candidates depend on `X` alone, in which neighbours agree. A replaced label moves the number of errors of
    every candidate by 1: this is the exponential mechanism with the score −errors. No label may have a part in the
    choice of the candidates.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by a concept of
    the class, then with probability 1 − failure a fresh row is mislabelled with probability at most `error`. The proof
    is in `docs/learners/label_private.md`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Definition 6.1, the generic label-private learner (Figure 13) and Theorem 6.2. Improved: the paper spends a first
    part of the rows on the net and ignores their labels; if points are public, the net may be all of them. Sharpened:
    the bounds of `sample_bounds`, in place of (768/(α²ε))·(VC·ln(64/α) + 2·ln(8/β)) rows, about a thousand times as
    many. New: labels that no concept fits (`agnostic=True`).

    Parameters
    ----------
    concept_class : ConceptClass
        The class that the hypothesis is taken from.
    epsilon : float or Fraction
        Privacy-loss bound ε of the labels.
    net_rows : int or None, default None
        The number of points whose labellings are the candidates; None is all points.
    error : float, Fraction or None, default None
        The error that `fit` must be able to promise; otherwise it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised; `protects` is "labels".
    event_ : Event
        What happened.
    hypothesis_ : Concept
        The released concept, a value of the class.

    >>> import numpy as np
    >>> from reticent.concepts import Intervals
    >>> x = np.linspace(0, 1, 3000)[:, None]
    >>> learner = LabelPrivateLearner(Intervals(), epsilon=1).fit(x, (x[:, 0] > 0.3) & (x[:, 0] < 0.6))
    >>> bool(abs(learner.hypothesis_.low - 0.3) < 0.02), learner.guarantee_.protects
    (True, 'labels')
    >>> LabelPrivateLearner(Intervals(), epsilon=1).n_required(0.1)
    492
    """

    protects = "labels"

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        net_rows: int | None = None,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.net_rows = net_rows
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Number, failure: Number | None = None, *, agnostic: bool = False) -> int:
        """The number of rows with which a fresh row is mislabelled with probability at most `error`.

        Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        agnostic : bool, default False
            False: the rows are labelled by a concept of the class. True: they are labelled in any way, and `error` is
            the excess over the best concept's; this needs `net_rows=None`.
        """
        self.check_parameters()
        alpha, log_beta, rate = float(check_share(error, "error")), self._log_failure(failure), self._rate()
        if agnostic and self.net_rows is not None:
            raise ValueError("net_rows must be None for agnostic=True: that promise needs the labellings of all points")
        if agnostic:
            needed = fewest_rows(
                lambda rows: sample_bounds.log_bad_excess(self.concept_class, rows, alpha, rate=rate) <= log_beta
            )
        elif self.net_rows is None:
            needed = fewest_rows(
                lambda rows: sample_bounds.log_bad(self.concept_class, rows, alpha, rate=rate) <= log_beta
            )
        else:
            needed = self.net_rows + rows_beside_net(
                self.concept_class, self.net_rows, alpha, log_beta=log_beta, rate=rate, name="net_rows"
            )
        return in_reach(needed, self.check_size)

    def check_size(self, rows: int) -> None:
        """Raise `OutOfReach` if the labellings of the net cannot be listed.

        If points repeat, `fit` may run even so: it counts the labellings of the points themselves.

        Parameters
        ----------
        rows : int
            The number of training rows.
        """
        super().check_size(rows)
        self.concept_class.check_points(self._net_size(rows), what="points of X", remedy=_FEWER)

    def _net_size(self, rows: int) -> int:
        return rows if self.net_rows is None else min(rows, self.net_rows)

    def _check_size(self, rows: int) -> None:
        """Check memory only: the points are public, and their labellings are counted once they are read."""
        check_memory(rows, self.concept_class.columns)

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        size = self._net_size(len(rows))
        net = rows[np.arange(size) * len(rows) // size]
        return self._draw(net, rows, labels, unsafe_noise, name="X", remedy=_FEWER)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        if self.net_rows is not None:
            integer(self.net_rows, "net_rows", least=1)


class SemiPrivateLearner(NetLearner):
    """A concept drawn with probability ∝ e^(−ε·errors/2) from the labellings of *public* points; the rows are secret.

    `fit(X, y, public=X0)`: the points of `X0` have no label and need no protection, such as points from a published
    survey or drawn from a known distribution. The candidates are one concept for each labelling of them by the class.
    The rows of (X, y) are private, and only score the candidates. No private row may have had a part in the choice of
    the public points. A person among the public points is not protected *as one of them*.

    Guarantee. ε-differential privacy for a replaced row of (X, y), value and label, for the published concept, with a
    privacy loss of bounded range ε. Public are `X0`, the number of rows, the concept class and every parameter.

    Why. Neighbours have the same public points, so the same candidates. A replaced row moves the number of errors of
    each by at most 1: this is the exponential mechanism with the score −errors.

    Promise. If at least `n_public_required(error)` public points and n ≥ `n_required(error)` rows are drawn
    independently from the same distribution, and the rows are labelled by a concept of the class, then with probability
    1 − failure a fresh row is mislabelled with probability at most `error`. More bits do not need more rows. The proof
    is in `docs/learners/label_private.md`.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    §6.2 and Example 6.3, the semi-private learner. Sharpened: the bounds of `sample_bounds`, in place of the numbers of
    Figure 13. New: labels that no concept fits (`agnostic=True`).

    Parameters
    ----------
    concept_class : ConceptClass
        The class that the hypothesis is taken from.
    epsilon : float or Fraction
        Privacy-loss bound ε of the released concept.
    error : float, Fraction or None, default None
        The error that `fit` must be able to promise; otherwise it raises `InsufficientData`.
    failure : float or Fraction, default 0.05
        The probability with which the promise may fail.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    hypothesis_ : Concept
        The released concept, a value of the class.

    >>> import numpy as np
    >>> from reticent.concepts import Thresholds
    >>> generator = np.random.default_rng(0)
    >>> public, secret = generator.normal(size=(600, 1)), generator.normal(size=(3000, 1))
    >>> learner = SemiPrivateLearner(Thresholds(), epsilon=1).fit(secret, secret[:, 0] < 0.5, public=public)
    >>> bool(abs(learner.hypothesis_.at - 0.5) < 0.2), learner.guarantee_.protects
    (True, 'rows')
    >>> learner.n_required(0.1), learner.n_public_required(0.1)
    (427, 549)
    """

    def __init__(
        self,
        concept_class: ConceptClass[Any],
        *,
        epsilon: Number,
        error: Number | None = None,
        failure: Number = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:
        self.concept_class = concept_class
        self.epsilon = epsilon
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def fit(self, X: ArrayLike, y: ArrayLike, *, public: ArrayLike | None = None) -> Self:
        """Learn from private rows, with public points.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            The private rows.
        y : array-like of shape (rows,)
            Their labels, 0 or 1.
        public : array-like of shape (points, columns)
            Public points; required, and never `X` itself.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, y, noise_from_seed(self.unsafe_seed), public=public)

    def n_required(
        self, error: Number, failure: Number | None = None, *, public: int | None = None, agnostic: bool = False
    ) -> int:
        """The number of private rows with which a fresh row is mislabelled with probability at most `error`.

        Rows and public points are drawn from the same distribution. Computed in floating point, for planning.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        public : int or None, default None
            The number of public points; None is `n_public_required(error)`.
        agnostic : bool, default False
            False: the rows are labelled by a concept of the class. True: they are labelled in any way, and `error` is
            the excess over the best concept's.
        """
        self.check_parameters()
        if public is None:
            public = rows_needed(self.n_public_required, error, failure)
        needed = rows_beside_net(
            self.concept_class,
            integer(public, "public", least=1),
            float(check_share(error, "error")),
            log_beta=self._log_failure(failure),
            rate=self._rate(),
            name="public",
            agnostic=agnostic,
        )
        return in_reach(needed, lambda rows: self.check_size(rows, public=public))

    def check_size(self, rows: int, *, public: int | None = None) -> None:
        """Raise `OutOfReach` if the labellings of the public points cannot be listed.

        Parameters
        ----------
        rows : int
            The number of private rows.
        public : int or None, default None
            The number of public points; `fit` counts repeated ones once. None checks the rows only.
        """
        super().check_size(rows)
        if public is not None:
            self.concept_class.check_points(public, what="points of public", remedy=_FEWER_PUBLIC)

    def n_public_required(self, error: Number, failure: Number | None = None) -> int:
        """The number of public points that are a net for a quarter of the error, except with half of the failure.

        Parameters
        ----------
        error : float or Fraction
            The error to promise, in (0, 1).
        failure : float, Fraction or None, default None
            The probability with which the promise may fail; None is the learner's own.
        """
        self.check_parameters()
        alpha = float(check_share(error, "error"))
        needed = sample_bounds.net_rows(self.concept_class, alpha / 4, math.exp(self._log_failure(failure)) / 2)
        return in_reach(needed, lambda public: self.check_size(1, public=public))

    def fit_with_noise(
        self, X: ArrayLike, y: ArrayLike, unsafe_noise: Noise | None, public: ArrayLike | None = None
    ) -> Self:
        """Call `fit` on a given source of noise, as audits and estimators that contain this one do.

        Parameters
        ----------
        X, y, public
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.

        Returns
        -------
        self
        """
        self.check_parameters()
        if public is None:
            raise ValueError(
                "public must be given: points without labels that need no protection; "
                "where there are none, ExponentialLearner draws from a whole class"
            )
        if public is X:
            raise ValueError("public must not be X itself: the rows of X are secret, and public points are not")
        self._public = self.as_points(as_point_table(public, "public"))
        return super().fit_with_noise(X, y, unsafe_noise)

    def _check_rows(self, rows: int) -> None:
        if self.error is not None:
            self.concept_class.check_public(self._public, what="points of public", remedy=_FEWER_PUBLIC)
            points = len(self._public)
            self._require(points, rows_needed(self.n_public_required, self.error), "public points")
            self._require(rows, rows_needed(self.n_required, self.error, public=points), "rows")

    def _learn(self, rows: Array, labels: Labels, unsafe_noise: Noise | None) -> Release[Any]:
        if rows.shape[1:] != self._public.shape[1:]:
            raise ValueError("public must have the columns of X")
        return self._draw(self._public, rows, labels, unsafe_noise, name="public", remedy=_FEWER_PUBLIC)


def rows_beside_net(
    concept_class: ConceptClass[Any],
    points: int,
    error: float,
    *,
    log_beta: float,
    rate: float,
    name: str,
    agnostic: bool = False,
) -> int:
    """The number of rows, with a net, with which the draw is good except with probability β.

    The net and the draw get half of the failure each.

    Parameters
    ----------
    concept_class : ConceptClass
        The class.
    points : int
        The number of points of the net.
    error : float
        The error to promise.
    log_beta : float
        ln β.
    rate : float
        The rate ε/2 of the draw.
    name : str
        The parameter that an error names if the net has too few points.
    agnostic : bool, default False
        Whether the rows are labelled in any way.
    """
    half = log_beta - math.log(2)
    near = sample_bounds.net_error(concept_class, points, math.exp(half))
    step = 0.0
    if near < error and agnostic:
        step = sample_bounds.log_step_excess(error - near, rate=rate)
    elif near < error:
        step = sample_bounds.log_step(error, near, rate=rate)
    if step >= 0:
        raise ValueError(f"{name}={points} points are too few for error={error:g}, whatever the rows; give more")
    return math.ceil((sample_bounds.log_growth(concept_class, points) - half) / -step)
