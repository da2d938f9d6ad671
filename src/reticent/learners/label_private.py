"""Where points need no protection: learners for secret labels, and for secret rows beside public points."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from reticent.concepts.input import read_as
from reticent.concepts.interface import ConceptClass
from reticent.data.points import Array, Labels, as_point_table
from reticent.errors import InsufficientData
from reticent.exact import Number, integer
from reticent.learners import sample_bounds
from reticent.learners.base import ConceptLearner
from reticent.mechanisms.exponential import exponential
from reticent.mechanisms.release import Release, noise_from_seed
from reticent.noise import Noise
from reticent.privacy.parameters import check_epsilon
from reticent.promises import check_memory, check_share, fewest_rows, in_reach, rows_needed

_FEWER = "set net_rows to how many points are to be labelled"
_FEWER_PUBLIC = "give fewer public points, or ask for a larger error"


class NetLearner(ConceptLearner):
    """What the learners share that draw from one concept for each way in which a class labels the points of a net."""

    concept_class: ConceptClass[Any]
    epsilon: Number

    def _draw(
        self, net: Array, rows: Array, labels: Labels, unsafe_noise: Noise | None, *, name: str, remedy: str
    ) -> Release[Any]:
        """Draw by the errors on the rows; where there are too many candidates, `remedy` says what else to do."""
        with read_as(name):
            self.concept_class.check_public(net, what=f"points of {name}", remedy=remedy)
            candidates = self.concept_class.dichotomies(net)
        with read_as("X"):
            errors = candidates.errors(labels, at=rows)
        index, event = exponential(-errors, epsilon=self.epsilon, unsafe_noise=unsafe_noise)
        return Release(candidates.concept(index), event)

    def _log_failure(self, failure: Number | None) -> float:
        return math.log(check_share(self.failure if failure is None else failure, "failure"))

    def _rate(self) -> float:
        """Of the weights e^(−rate·errors)."""
        return float(min(check_epsilon(self.epsilon), Fraction(10**6))) / 2  # any rate up to ε/2 gives a bound

    def _require(self, have: int, required: int, what: str) -> None:
        if have < required:
            raise InsufficientData(
                f"error={self.error} with failure={self.failure} can be promised from {required} {what} on, "
                f"got {have}; give more of them, ask for less, or set error=None for a fit without a promise",
                required=required,
            )

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid. It reads no data."""
        super().check_parameters()
        check_epsilon(self.epsilon)
        if not isinstance(self.concept_class, ConceptClass):
            raise TypeError(f"concept_class must be a ConceptClass, got {type(self.concept_class).__name__}")

    def hypothesis_class(self) -> ConceptClass[Any]:
        """The concept class that the hypothesis belongs to."""
        return self.concept_class


class LabelPrivateLearner(NetLearner):
    """A concept drawn with probability ∝ e^(−ε·errors/2), where only the labels are secret and all points are public.

    The candidates are the labellings of the points of `X`, one concept for each: at most Σ C(n, i), i ≤ VC, of them,
    however large the class is, and infinite classes are welcome. One of them is as good on the data as any concept of
    the class. Where they are too many to be scored, `net_rows` takes the labellings of so many of the points only, at
    even distances; labels are counted on all rows all the same.

    Guarantee. ε-differential privacy for a replaced *label*, for the published concept, with a privacy loss of
    bounded range ε. The points `X` are public, all of them: nothing is promised about which points they are. Public
    are also the number of rows, the concept class and every parameter.

    Why. The candidates depend on `X` alone, in which neighbours agree. A replaced label moves the number of errors of
    every candidate by 1, up or down: this is the exponential mechanism (see `exponential`) with the score −errors. If
    a label had any part in the choice of the candidates, an outcome possible for one data set could be impossible
    for its neighbour.

    Promise. If n ≥ `n_required(error)` rows are drawn independently from any distribution and labelled by a concept of
    the class, then with probability 1 − failure a fresh row is mislabelled with probability at most α = `error`. For
    one labelling makes no error, so each other one is drawn with probability at most e^(−ε·errors/2); that all bad ones
    together are drawn with probability at most 2τ(n + m)·(1 + (n/m)(1 − e^(−ε/2)))^(−⌊mα⌋), for any m, is proved in
    `sample_bounds`. With a net of n₀ points the labelling that agrees with the concept on the net is wrong with
    probability at most α' but for a failure of β/2 (the same bound for ε = ∞); it makes no error on the net, and each
    of the other n − n₀ rows multiplies the chance of a bad one by 1 − α(1 − e^(−t)) + α'(e^t − 1) at most.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Definition 6.1, the generic label-private learner (Figure 13) and Theorem 6.2. Improved: the paper spends a first
    part of the rows on the net and ignores their labels; where points are public, the net may be all of them.
    Sharpened: the bounds above, in place of (768/(α²ε))·(VC·ln(64/α) + 2·ln(8/β)) rows, some thousand times as many.
    New: labels that no concept fits (`agnostic=True`).

    Parameters
    ----------
    concept_class : a `concepts.ConceptClass`.
    epsilon : the privacy of the labels.
    net_rows : None for the labellings of all points, or of how many points.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised (`guarantee_.protects` is "labels"), and what happened.
    hypothesis_ : the released concept, a value of the class.

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
        """The rows with which a fresh row is mislabelled with probability at most `error`, but for a `failure`.

        The rows are drawn from any distribution and labelled by a concept of the class. With `agnostic=True` they are
        labelled in any way, and the error is what comes on top of the best concept's; this needs `net_rows=None`.
        `failure` is the learner's own unless it is given. Planning, in floating point.
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
        """The labellings of the net are listed; where points are not distinct, `fit` may run all the same."""
        super().check_size(rows)
        self.concept_class.check_points(self._net_size(rows), what="points of X", remedy=_FEWER)

    def _net_size(self, rows: int) -> int:
        return rows if self.net_rows is None else min(rows, self.net_rows)

    def _check_size(self, rows: int) -> None:
        """The points are public: their labellings are counted by what they are, once they are read."""
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
    """A concept drawn with probability ∝ e^(−ε·errors/2) out of the labellings of *public* points; rows are secret.

    `fit(X, y, public=X0)`: the points of `X0` carry no label and need no protection, such as points from a published
    survey or drawn from a known distribution. They give the candidates, one concept for each way in which the class
    labels them. The rows of (X, y) are private in full and only score the candidates. Nobody's private row may have had
    a part in the choice of the public points; a person who is among them is not protected *as one of them*.

    Guarantee. ε-differential privacy for a replaced row of (X, y), value and label, for the published concept, with a
    privacy loss of bounded range ε. Public are `X0`, the number of rows, the concept class and every parameter.

    Why. Neighbours have the same public points, so the same candidates. A replaced row moves the number of errors of
    each by at most 1: this is the exponential mechanism (see `exponential`) with the score −errors.

    Promise. If at least `n_public_required(error)` public points and n ≥ `n_required(error)` rows are drawn
    independently from the same distribution, and the rows are labelled by a concept c of the class, then with
    probability 1 − failure a fresh row is mislabelled with probability at most α = `error`. The public points
    are a net but for a failure of β/2 (see `sample_bounds`): the candidate that agrees with c on them errs with
    probability at most α' (α/4 for the number required). The candidates H do not depend on the rows. A bad one is
    drawn with probability at most e^(−tΣx), where x is its errors less those of the good one on a row, and t ≤ ε/2; so
    bad ones are drawn with probability at most |H|·(1 − α(1 − e^(−t)) + α'(e^t − 1))^n, which is to be β/2. More bits
    do not make for more rows.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    §6.2 and Example 6.3, the semi-private learner. Sharpened: the bounds above, in place of the numbers of Figure 13.
    New: labels that no concept fits (`agnostic=True`).

    Parameters
    ----------
    concept_class : a `concepts.ConceptClass`.
    epsilon : the privacy of the rows.
    error : None, or the error that `fit` must be able to promise; else it raises `InsufficientData`.
    failure : the probability with which the promise may fail.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released concept, a value of the class.

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
        """Learn from the private rows of `X` and their labels `y`, 0 or 1, beside points that are `public`.

        `public` has the columns of `X`, must be given, and must not be `X`.
        """
        return self.fit_with_noise(X, y, noise_from_seed(self.unsafe_seed), public=public)

    def n_required(
        self, error: Number, failure: Number | None = None, *, public: int | None = None, agnostic: bool = False
    ) -> int:
        """The private rows with which a fresh row is mislabelled with probability at most `error`, but for a `failure`.

        There are so many `public` points; None means those of `n_public_required(error)`. Both kinds are drawn from the
        same distribution, and the rows labelled by a concept of the class. With `agnostic=True` they are labelled in
        any way, and the error is what comes on top of the best concept's. `failure` is the learner's own unless it is
        given. Planning, in floating point.
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
        """The labellings of so many public points are listed; of repeated ones `fit` counts each once."""
        super().check_size(rows)
        if public is not None:
            self.concept_class.check_points(public, what="points of public", remedy=_FEWER_PUBLIC)

    def n_public_required(self, error: Number, failure: Number | None = None) -> int:
        """The public points that are a net for a quarter of the error, but for half of the failure."""
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
    """The rows that, beside those of a net of so many points, make the draw good but for a failure of β.

    Half of the failure is the net's, half the draw's.
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
