"""Private logistic regression: gradient descent on whole-number gradients, in exact arithmetic.

What a row contributes to a step is an integer vector, and its length is checked in integers. Floating point only
decides *which* integer vector inside the ball that is. So no rounding, overflow or order of summation can make a row
count for more than the noise was calibrated for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.data.classes import sorted_classes
from reticent.data.labels import ClassLabels, indices_in_declared, observed_labels, refuse_unreadable_labels
from reticent.data.tables import refuse_infinite, refuse_unreadable
from reticent.exact import Number, integer
from reticent.learners.descent import DescentPlan, class_targets, descend, integer_rows, plan_descent
from reticent.learners.features import FeatureMap, fourier_map
from reticent.learners.lattice import Floats, Matrix
from reticent.learners.linear import Linear, Scales, checked_start, released_weights, start_weights
from reticent.learners.second_moments import MomentsPlan, Whitening, check_rounds, plan_moments, whiten
from reticent.mechanisms.release import Release, noise_from_seed, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import fits, guarantee
from reticent.privacy.events import Composed, Event
from reticent.privacy.parameters import check_delta, check_epsilon, check_positive
from reticent.promises import check_share, fewest_rows
from reticent.silence import silent


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression that may be published: one private model, for any number of predictions.

    Rounds of noisy second moments, then full-batch gradient descent with momentum and averaging. Rows longer than
    `row_norm` are scaled down to it. Each round releases the second moments of the rows, with a constant column for the
    intercept, and whitens the directions that stand out of the noise; so accuracy hardly depends on how columns are
    scaled. In the descent, a row pulls at the weights at most as hard as it would at the start, where every class is
    equally likely: the loss is logistic where the row is classified correctly and linear where it is not, and
    probabilities are corrected for that. All settings follow from the numbers of rows, columns and classes, ε and δ by
    fixed rules. Nothing is tuned on the data.

    Guarantee. (ε, δ)-differential privacy for a replaced row, features and label, for everything the fitted estimator
    holds. The event is a list of releases of integer vectors with discrete Gaussian noise: one per round of second
    moments, and T = `n_iter_` steps, `Repeated(DiscreteGaussian(sigma, squared_sensitivity), T)`. Public are the number
    of rows, the columns, and the set of classes: give `classes`, or the labels that occur in `y` are taken to be
    public.

    Why. A row becomes an integer vector of length ≤ R, and its residuals in a step an integer vector of length ≤ A;
    both are checked in integers. It adds their outer product to the sum of a step, so a replaced row moves it by at
    most 2AR; it moves the second moments by at most √50·R². Each release depends on the rows, on releases before it and
    on public numbers alone, and the noise is calibrated for all of them. The proofs are in `docs/learners/logistic.md`
    and `docs/learners/second_moments.md`.

    Source. Bassily, Smith, Thakurta, *Private Empirical Risk Minimization: Efficient Algorithms and Tight Error
    Bounds*, and Song, Chaudhuri, Sarwate, *Stochastic Gradient Descent with Differentially Private Updates*, with the
    whole batch in every step. Clipped gradients of linear models belong to a convex loss: Song, Steinke, Thakkar,
    Thakurta, *Evading the Curse of Dimensionality in Unconstrained Private GLMs*. New are the integer gradients, which
    repair what Mironov, *On Significance of the Least Significant Bits for Differential Privacy*, showed for noise in
    floating point, and Casacuberta, Shoemate, Vadhan, Wagaman, *Widespread Underestimation of Sensitivity in
    Differentially Private Libraries*, for sums in floating point.

    Parameters
    ----------
    epsilon : float or Fraction
        Privacy-loss bound ε of the released model.
    delta : float or Fraction
        Failure probability δ of the privacy bound; positive, and well below one over the number of rows.
    row_norm : float or Fraction
        The length to which longer rows are scaled down. It must be known without looking at the rows: √k for k one-hot
        columns, 1 for normalised text.
    classes : sequence of labels or None, default None
        The labels, at least two, in any order; None takes those in `y`.
    fit_intercept : bool, default True
        Whether a constant column is added.
    steps : int or None, default None
        The number of steps; None chooses it from public numbers. More steps take longer, cost no privacy, and are not
        more accurate: the noise of each step grows with their number, and the noise of the weights stays the same.
    fourier_features : int or None, default None
        An even number maps rows to that many random Fourier features of the kernel exp(−gamma·|x − x'|²), after they
        are scaled down to `row_norm`. The map is random but public.
    gamma : float, Fraction or None, default None
        The width of the kernel; None is 2 / row_norm².
    fourier_seed : int or None, default None
        The seed of the map, which is published with the model as `fourier_seed_`; None draws one.
    start : Linear or None, default None
        The weights from which the descent starts; None is zero. They must be public: known without the rows, or the
        `hypothesis_` of an earlier private model, never anything else that was computed from data.
    rounds : "auto" or int, default 0
        The rounds of noisy second moments before the descent. "auto" chooses them from the numbers of rows and columns,
        ε and δ; with few rows or very many columns it chooses none. 0 leaves all of the budget to the descent, which is
        better for rare classes on one-hot columns.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    hypothesis_ : Linear
        The released weights.
    coef_, intercept_ : array
        The same weights in the shapes of scikit-learn.
    classes_ : array
        The classes, sorted.
    n_features_in_, n_iter_ : int
        The numbers of columns and of steps.
    feature_map_ : FeatureMap
        The public map from rows to unit rows.
    descent_plan_ : DescentPlan
        The public settings of the descent.
    whitening_ : Whitening or None
        The map that rounds of second moments led to; None without rounds. It is part of what the guarantee covers.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(20_000, n_features=20, class_sep=2, random_state=0)
    >>> model = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=5).fit(X, y)
    >>> bool(model.score(X, y) > 0.95), model.guarantee_.epsilon <= 1
    (True, True)
    """

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        row_norm: Number,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        steps: int | None = None,
        fourier_features: int | None = None,
        gamma: Number | None = None,
        fourier_seed: int | None = None,
        start: Linear | None = None,
        rounds: Literal["auto"] | int = 0,
        unsafe_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.steps = steps
        self.fourier_features = fourier_features
        self.gamma = gamma
        self.fourier_seed = fourier_seed
        self.start = start
        self.rounds = rounds
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    @property
    def fourier_seed_(self) -> int | None:
        """The public seed of the Fourier features; None without them."""
        return self.feature_map_.seed

    # ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fit(self, X: Matrix, y: ArrayLike) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The training rows.
        y : array-like of shape (rows,)
            Their labels.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, y, noise_from_seed(self.unsafe_seed))

    def fit_with_noise(self, X: Matrix, y: ArrayLike, unsafe_noise: Noise | None) -> Self:
        """Call `fit` on a given source of noise, as audits and engines do.

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
        epsilon, row_norm = check_epsilon(self.epsilon), self.checked_row_norm()
        check_delta(self.delta, positive=True)
        features = self._checked_features()
        self._checked_counts()
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, got {type(self.fit_intercept).__name__}")
        declared = None if self.classes is None else sorted_classes(self.classes)
        start = None if self.start is None else checked_start(self.start)

        refuse_unreadable(X)
        target: Any = y if declared is None or y is None else indices_in_declared(y, declared)
        refuse_unreadable_labels(target)
        X, target = validate_data(self, X, target, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        refuse_infinite(X)
        delta = check_delta(self.delta, positive=True, rows=X.shape[0])
        classes, class_indices = observed_labels(target) if declared is None else ClassLabels(declared, target)
        columns = features or X.shape[1]
        moments, plan = self.plans(rows=X.shape[0], columns=columns, classes=len(classes), epsilon=epsilon, delta=delta)
        event = composed(moments, plan)
        if not fits(event, epsilon=epsilon, delta=delta):
            raise ValueError(f"epsilon={self.epsilon} and delta={self.delta} cannot be certified for these releases")
        length = float(row_norm) if features is None else 1.0  # of the rows that the descent sees as unit rows
        scales = Scales(length, plan.reach, plan.constant, plan.radius)
        if moments.rounds:
            scales = Scales(length, 1, int(self.fit_intercept), 1)
        first = None if start is None else start_weights(start, scales, columns, plan.outputs)
        feature_map = self._draw_map(features, row_norm, X.shape[1], noise_or_system(unsafe_noise))
        with silent():
            rows, whitening = feature_map.unit_rows(X), None
            if moments.rounds:
                whitening, first = whiten(
                    rows, moments, constant=bool(self.fit_intercept), start=first, unsafe_noise=unsafe_noise
                )
                rows = whitening.unit_rows(rows)
            weights = descend(
                integer_rows(rows, plan), class_targets(class_indices, len(classes)), plan, unsafe_noise, first
            )
            weights = weights if whitening is None else whitening.pulled_back(weights)
        found = release(released_weights(weights, scales, columns), event, unsafe_noise)
        return self.adopt_release(found, plan=plan, feature_map=feature_map, classes=classes, whitening=whitening)

    def plans(
        self, *, rows: int, columns: int, classes: int, epsilon: Fraction, delta: Fraction
    ) -> tuple[MomentsPlan, DescentPlan]:
        """The settings of the rounds and of the descent, from public numbers.

        Parameters
        ----------
        rows, columns, classes : int
            The size of the problem, without a constant column.
        epsilon, delta : Fraction
            Privacy-loss bound and failure probability of both together.
        """
        constant = bool(self.fit_intercept)
        moments = plan_moments(
            rows=rows, columns=columns + constant, epsilon=epsilon, delta=delta, rounds=check_rounds(self.rounds)
        )
        mapped = bool(moments.rounds)  # then the constant column is one of those that are mapped
        plan = plan_descent(
            rows=rows,
            columns=columns + (constant and mapped),
            classes=classes,
            epsilon=epsilon,
            delta=delta,
            intercept=constant and not mapped,
            steps=None if self.steps is None else int(self.steps),
            share=1 - moments.share,
        )
        return moments, plan

    def adopt_release(
        self,
        found: Release[Linear],
        *,
        plan: DescentPlan,
        feature_map: FeatureMap,
        classes: NDArray[Any],
        whitening: Whitening | None = None,
    ) -> Self:
        """Become fitted with weights that have been released, by `fit` or in an earlier process.

        Parameters
        ----------
        found : Release of Linear
            The weights, and the event that describes how they were made.
        plan : DescentPlan
            The settings of the descent.
        feature_map : FeatureMap
            The map from rows to unit rows.
        classes : array
            The classes, sorted.
        whitening : Whitening or None, default None
            The map that rounds of second moments led to; None without rounds.

        Returns
        -------
        self
        """
        self.classes_ = classes
        self.n_iter_ = plan.steps
        self.hypothesis_, self.event_ = found.value, found.event
        self.guarantee_ = guarantee(found.event, delta=self.delta)
        self.coef_, self.intercept_ = self.hypothesis_.coef.T.copy(), self.hypothesis_.intercept
        self.descent_plan_, self.feature_map_, self.whitening_ = plan, feature_map, whitening
        return self

    def n_required(self, error: Number, failure: Number = 0.05, *, columns: int, classes: int = 2) -> int:
        """The number of rows with which the noise of every step is at most `error`, except with probability `failure`.

        The unit is the hardest pull of a row on the average gradient: with error=0.1 the noise weighs as much as a
        tenth of all rows that pull in one direction. It says from which size on noise does not drown the rows. The
        accuracy at that size depends on the rows, and none is promised. Rounds of second moments leave less of the
        budget to the steps; that is counted. Computed in floating point, for planning.

        Why. Discrete Gaussian noise is sub-Gaussian with its σ, so the length of D independent coordinates exceeds
        σ·√(D + 2√(Dt) + 2t) with probability at most e^(−t) (Hsu, Kakade, Zhang, *A tail inequality for quadratic forms
        of subgaussian random vectors*); t = ln(steps/failure) covers all steps.

        Parameters
        ----------
        error : float or Fraction
            The length of the noise, in (0, 1).
        failure : float or Fraction, default 0.05
            The probability with which some step may have more noise.
        columns : int
            The number of columns of the rows.
        classes : int, default 2
            The number of classes.

        >>> PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1).n_required(0.1, columns=100)
        10232
        """
        share, beta = check_share(error, "error"), check_share(failure, "failure")
        features = self._checked_features()
        inputs = integer(columns, "columns", least=1) if features is None else features
        epsilon, delta = check_epsilon(self.epsilon), check_delta(self.delta, positive=True)
        n_classes = integer(classes, "classes", least=2)

        def drowned(rows: int) -> bool:
            _, plan = self.plans(rows=rows, columns=inputs, classes=n_classes, epsilon=epsilon, delta=delta)
            entries = (inputs + bool(self.fit_intercept)) * plan.outputs
            t = math.log(plan.steps / float(beta))
            length = float(plan.sigma) * math.sqrt(entries + 2 * math.sqrt(entries * t) + 2 * t)
            return length > float(share) * rows * plan.levels * plan.radius

        return fewest_rows(lambda rows: not drowned(rows))

    # ── predicting ────────────────────────────────────────────────────────────────────────────────────────────────

    def decision_function(self, X: Matrix) -> Floats:
        """The scores of rows.

        They are those of `hypothesis_` for rows scaled down to `row_norm`. With rounds of second moments, the scores of
        a row whose image is longer than `whitening_.length` are scaled down by one factor, as in the descent. No
        decision depends on this factor; probabilities do.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.

        Returns
        -------
        array of shape (rows,) or (rows, classes)
            One score per row for two classes, positive for the second; else one score per class.
        """
        check_is_fitted(self)
        refuse_unreadable(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        coef, intercept = self.hypothesis_
        rows = self.feature_map_.unit_rows(X)
        scores = np.asarray(rows @ (coef * self.feature_map_.length) + intercept)
        if self.whitening_ is not None:
            scores = scores * self.whitening_.factors(rows)[:, None]
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Matrix) -> NDArray[Any]:
        """The most likely class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.
        """
        scores = self.decision_function(X)
        winners = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[winners])

    def predict_proba(self, X: Matrix) -> Floats:
        """The probability of each class for each row.

        The descent converges where Σ_y P(y)·s_y·(e_y − p) = 0. Here p is the softmax of the scores, e_y the target of
        label y, and s_y ≤ 1 the factor by which that residual is shortened. So P(y) ∝ p_y/s_y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.

        Returns
        -------
        array of shape (rows, classes)
            The probabilities, in the order of `classes_`.
        """
        scores = self.decision_function(X)
        two = scores.ndim == 1
        p = np.stack([expit(-scores), expit(scores)], axis=1) if two else softmax(scores, axis=1)
        squares = (p**2).sum(axis=1, keepdims=True)
        residuals = 1 - p if two else np.sqrt(np.maximum(squares - 2 * p + 1, 0.0))  # |e_y − p| for each label y
        odds = p * np.maximum(1.0, residuals / self.descent_plan_.cap)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def checked_row_norm(self) -> Fraction:
        """`row_norm` as an exact number; ValueError if it is out of range."""
        row_norm = check_positive(self.row_norm, "row_norm")
        if not Fraction(1, 10**100) <= row_norm <= 10**100:
            raise ValueError("row_norm must be between 1e-100 and 1e100")
        return row_norm

    def _checked_counts(self) -> None:
        if self.steps is not None:
            integer(self.steps, "steps", least=1)
        check_rounds(self.rounds)

    def _checked_features(self) -> int | None:
        if self.gamma is not None:
            check_positive(self.gamma, "gamma")
        if self.fourier_seed is not None:
            integer(self.fourier_seed, "fourier_seed", least=0)
        if self.fourier_features is None:
            return None
        features = integer(self.fourier_features, "fourier_features", least=2)
        if features % 2:
            raise ValueError(f"fourier_features must be even, a cosine and a sine each, got {features}")
        return features

    def _draw_map(self, features: int | None, row_norm: Fraction, columns: int, source: Noise) -> FeatureMap:
        if features is None:
            return FeatureMap(float(row_norm))
        return fourier_map(
            row_norm=row_norm,
            columns=columns,
            features=features,
            gamma=None if self.gamma is None else check_positive(self.gamma, "gamma"),
            seed=source.uniform(1 << 63) if self.fourier_seed is None else int(self.fourier_seed),
        )


def composed(moments: MomentsPlan, plan: DescentPlan) -> Event:
    """The event of the rounds and the descent after them; that of the descent if there are no rounds."""
    return Composed((*moments.events, plan.event)) if moments.rounds else plan.event
