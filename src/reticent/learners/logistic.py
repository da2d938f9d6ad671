"""Private logistic regression: gradient descent on whole-number gradients, in exact arithmetic.

What a row contributes to a step is an integer vector, and its length is checked in integers. Floating point only
decides *which* integer vector inside the ball that is. So no rounding, overflow or order of summation can make a row
count for more than the noise was calibrated for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.data.labels import (
    ClassLabels,
    checked_class_indices,
    indices_in_declared,
    observed_labels,
    refuse_unreadable_labels,
)
from reticent.data.tables import refuse_unreadable
from reticent.exact import Number, integer
from reticent.learners.descent import DescentPlan
from reticent.learners.features import FeatureMap, checked_rows, training_rows
from reticent.learners.lattice import Floats, Matrix
from reticent.learners.linear import Linear
from reticent.learners.logistic_fit import fit_rows
from reticent.learners.logistic_settings import LogisticSettings
from reticent.learners.public_rows import check_same_columns
from reticent.learners.whitening import Whitening
from reticent.mechanisms.release import Release, noise_from_seed
from reticent.noise import Noise
from reticent.privacy import guarantee
from reticent.privacy.parameters import check_delta
from reticent.promises import check_share, fewest_rows


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression that may be published: one private model, for any number of predictions.

    Noisy column scales and rounds of noisy second moments, then full-batch gradient descent with momentum and
    averaging. The scale of rows must be public: give `row_norm`, `bounds`, or `public` rows. Each round releases the
    second moments of the rows, with a constant column for the intercept, and whitens the directions that stand out of
    the noise; so accuracy hardly depends on how columns are scaled. In the descent, a row pulls at the weights at most
    as hard as it would at the start, where every class is equally likely: the loss is logistic where the row is
    classified correctly and linear where it is not, and probabilities are corrected for that. All settings follow from
    the numbers of rows, columns and classes, ε and δ, and from noisy releases, by fixed rules. Nothing is tuned on the
    data.

    Guarantee. (ε, δ)-differential privacy for a replaced row, features and label, for everything the fitted estimator
    holds. The event is a list of releases of integer vectors with discrete Gaussian noise: counts of the classes,
    column scales, one per round of second moments, and T = `n_iter_` steps,
    `Repeated(DiscreteGaussian(sigma, squared_sensitivity), T)`. Public are the number of rows, the columns, and the set
    of classes: give `classes`, or the labels that occur in `y` are taken to be public.

    Why. A row becomes an integer vector of length ≤ R, and its residuals in a step an integer vector of length ≤ A;
    both are checked in integers. It adds their outer product to the sum of a step, so a replaced row moves it by at
    most 2AR; it moves the second moments by at most √50·R². Class weights only shorten residuals. Each release depends
    on the rows, on releases before it and on public numbers alone, and the noise is calibrated for all of them. The
    proofs are in `docs/learners/logistic.md` and `docs/learners/second_moments.md`.

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
    row_norm : float, Fraction or None, default None
        The length to which longer rows are scaled down. It must be known without looking at the rows: √k for k one-hot
        columns, 1 for normalised text. None is √columns with `bounds`, else it is taken from `public`.
    bounds : (lower, upper) or None, default None
        Public bounds of the columns, each a number or one number per column. Values are clipped to them and mapped to
        [0, 1] before all else.
    public : array-like or sparse matrix of shape (public rows, columns), or None, default None
        Public rows without labels, at least 20, from about the same population. Rows are projected onto the directions
        in which public rows vary most, and whitened there, at no cost in privacy. Nobody in them is protected.
    classes : sequence of labels or None, default None
        The labels, at least two, in any order; None takes those in `y`. A label in `y` that is not among them is
        refused, so that there is none is treated as public.
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
        `hypothesis_` of an earlier private model, never anything else that was computed from data. After rounds,
        large weights for mapped rows are made smaller.
    whitening : Whitening or None, default None
        A public map of rows for the descent: the `whitening_` of an earlier private model. Then nothing is spent on
        finding one, and all of the budget is for the descent. With `start`, the earlier model's weights are carried
        over exactly.
    rounds : "auto" or int, default "auto"
        The rounds of noisy second moments before the descent. "auto" chooses them from the numbers of rows and columns,
        ε and δ; with few rows, with very many columns, with `public` and with `whitening` it chooses none. 0 leaves all
        of the budget to the descent.
    class_weight : "balanced", dict or None, default None
        Weights of the classes. "balanced" spends 1 % of the budget on noisy counts of the classes, and makes larger
        ones lighter, down to 0.2. A dictionary gives public weights by class, 1 for a class that is not in it; they are
        divided by the largest.
    level : float or Fraction, default 2
        How far the descent goes: with 1 it goes half as far as with 2. Without rounds it is the standard deviation that
        the noise of all steps gives to the score of a row of full length. With rounds that also depends on the number
        of columns, and on whether a class is rare.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    hypothesis_ : Linear
        The released weights: a linear model of `feature_map_.mapped_rows(X)`. These are the rows themselves, scaled
        down to `row_norm`; with `bounds` their values in [0, 1]; with `public` or Fourier features another set of
        columns.
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
        The map that rounds of second moments led to, or that was given; None for none. It is part of what the
        guarantee covers.
    class_weights_ : array or None
        The weight of each class in the descent; None for equal weights. It is part of what the guarantee covers.
    seen_classes_ : array of bool or None
        Whether each class clearly stands out of the noisy counts of the classes; None if the noise would hide a
        class of one row in ten, or if no counts were released.

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
        row_norm: Number | None = None,
        bounds: tuple[Any, Any] | None = None,
        public: Matrix | None = None,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        steps: int | None = None,
        fourier_features: int | None = None,
        gamma: Number | None = None,
        fourier_seed: int | None = None,
        start: Linear | None = None,
        whitening: Whitening | None = None,
        rounds: Literal["auto"] | int = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Number] | None = None,
        level: Number = 2,
        unsafe_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.bounds = bounds
        self.public = public
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.steps = steps
        self.fourier_features = fourier_features
        self.gamma = gamma
        self.fourier_seed = fourier_seed
        self.start = start
        self.whitening = whitening
        self.rounds = rounds
        self.class_weight = class_weight
        self.level = level
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

    def fit(self, X: Matrix, y: ArrayLike, **refused: Any) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The training rows.
        y : array-like of shape (rows,)
            Their labels.
        **refused
            Nothing else is taken. `sample_weight` is refused with the reason.

        Returns
        -------
        self
        """
        refuse_sample_weight(refused)
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
        settings = self.settings()
        refuse_unreadable(X)
        declared = settings.classes
        target: Any = y if declared is None or y is None else indices_in_declared(y, declared)
        refuse_unreadable_labels(target)
        X, target = training_rows(self, X, target)
        labels = observed_labels(target) if declared is None else ClassLabels(declared, target)
        return self._fit(settings, X, labels, unsafe_noise)

    def fit_class_indices(
        self, X: Matrix, class_indices: ArrayLike, unsafe_noise: Noise | None, *, labelled_rows: int | None = None
    ) -> Self:
        """Learn from rows whose labels were read, and of which some may be missing, as engines do.

        A row without a label adds 0 to every release, whatever it holds. Whether a row has a label is protected as the
        label is; that labels may be missing, and `labelled_rows`, are public.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The training rows.
        class_indices : array-like of int, of shape (rows,)
            The index of each row's class in the sorted `classes`, which must be given; −1 for a row without a label.
        unsafe_noise : Noise or None
            As for `fit_with_noise`.
        labelled_rows : int or None, default None
            None if every row has a label; then −1 is refused. Else how many are expected to have one, a number that is
            known without looking at the labels. It takes the place of the number of rows in all rules. A wrong number
            costs accuracy, never privacy.

        Returns
        -------
        self
        """
        settings = self.settings()
        if settings.classes is None:
            raise ValueError("classes must be given, as class_indices are indices of them")
        refuse_unreadable(X)
        X = checked_rows(self, X)
        indices = checked_class_indices(
            class_indices, rows=X.shape[0], classes=len(settings.classes), missing=labelled_rows is not None
        )
        labels = ClassLabels(settings.classes, indices)
        return self._fit(settings, X, labels, unsafe_noise, labelled_rows=labelled_rows)

    def _fit(
        self,
        settings: LogisticSettings,
        X: Matrix,
        labels: ClassLabels,
        unsafe_noise: Noise | None,
        labelled_rows: int | None = None,
    ) -> Self:
        if self.public is not None:
            check_same_columns(self.public, X.shape[1], getattr(self, "feature_names_in_", None))
        check_delta(self.delta, positive=True, rows=X.shape[0])  # for its warning
        parts = fit_rows(settings, X, labels, unsafe_noise, labelled_rows=labelled_rows)
        return self.adopt_release(classes=labels.classes, **parts._asdict())

    def settings(self) -> LogisticSettings:
        """The parameters as checked values; ValueError or TypeError names the first that is out of range."""
        return LogisticSettings.of(self.get_params(deep=False))

    def adopt_release(
        self,
        found: Release[Linear],
        *,
        plan: DescentPlan,
        feature_map: FeatureMap,
        classes: NDArray[Any],
        whitening: Whitening | None = None,
        class_weights: Floats | None = None,
        seen: NDArray[np.bool_] | None = None,
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
        class_weights : array or None, default None
            The weight of each class in the descent; None for equal weights.
        seen : array of bool or None, default None
            Which classes clearly stand out of the noisy counts; None if that is not known.

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
        self.class_weights_, self.seen_classes_ = class_weights, seen
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
        13246
        """
        share, beta = check_share(error, "error"), check_share(failure, "failure")
        settings = self.settings()
        inputs, n_classes = integer(columns, "columns", least=1), integer(classes, "classes", least=2)

        def drowned(rows: int) -> bool:
            seen = settings.seen_columns(rows=rows, columns=inputs)
            plan = settings.plan(rows=rows, columns=seen, classes=n_classes).descent
            entries = (seen + settings.fit_intercept) * plan.outputs
            t = math.log(plan.steps / float(beta))
            length = float(plan.sigma) * math.sqrt(entries + 2 * math.sqrt(entries * t) + 2 * t)
            return length > float(share) * rows * plan.levels * plan.radius

        # Where more rows lead to more rounds, the noise of the steps jumps up: it must be small enough there as well.
        jumps = [rows for rows in settings.jumps(inputs) if drowned(rows)]
        return fewest_rows(lambda rows: rows > max(jumps, default=0) and not drowned(rows))

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
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: Matrix) -> Floats:
        """The logarithm of the probability of each class for each row; see `predict_proba`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.

        Returns
        -------
        array of shape (rows, classes)
            The logarithms, in the order of `classes_`.
        """
        scores = self.decision_function(X)
        two = scores.ndim == 1
        likely = np.stack([log_expit(-scores), log_expit(scores)], axis=1) if two else log_softmax(scores, axis=1)
        p = np.exp(likely)
        squares = (p**2).sum(axis=1, keepdims=True)
        residuals = 1 - p if two else np.sqrt(np.maximum(squares - 2 * p + 1, 0.0))  # |e_y − p| for each label y
        odds = likely + np.log(np.maximum(1.0, residuals / self.descent_plan_.cap))
        return np.asarray(odds - logsumexp(odds, axis=1, keepdims=True))


def refuse_sample_weight(refused: Mapping[str, Any]) -> None:
    """Refuse what `fit` does not take, and say why it takes no weights of rows."""
    for name, value in refused.items():
        if name != "sample_weight":
            raise TypeError(f"fit() takes X and y alone, got {name}")
        if value is not None:
            raise TypeError(
                "sample_weight must be None: a row with a larger weight would need more noise for all rows, and "
                "weights that were computed from the rows would tell of them. Weigh classes with class_weight, whose "
                "weights are public or bought privately"
            )
