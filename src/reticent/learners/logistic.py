"""Private logistic regression: gradient descent on whole-number gradients, in exact arithmetic.

What a row contributes to a step is an integer vector, and its length is checked in integers. Floating point only
decides *which* integer vector inside the ball that is; so no rounding, overflow or order of summation can make a row
count for more than the noise was made for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent import noise
from reticent.data.classes import sorted_classes
from reticent.data.labels import Labels, indices_in_declared, observed_labels, refuse_unreadable_labels
from reticent.data.tables import refuse_infinite, refuse_unreadable
from reticent.exact import Number, integer
from reticent.mechanisms.counts import WIDEST, gaussian_count
from reticent.mechanisms.release import noise_from_seed
from reticent.noise import Noise
from reticent.privacy import calibrate, fits, guarantee
from reticent.privacy.events import DiscreteGaussian, Event, Repeated, Seeded
from reticent.privacy.parameters import check_certifiable, check_delta, check_epsilon, check_positive
from reticent.promises import check_share, fewest_rows
from reticent.silence import silent

Floats = NDArray[np.float64]
Matrix = Any  # Floats of two dimensions, or a CSR matrix of them

LEVELS = 1 << 10  # the largest whole-number residual of a row of full length
LEAST_BITS, MOST_BITS, SPREAD = 12, 20, 8  # of the length of a row: at least, at most, and in each column
INTERCEPT = 0.3  # the constant column, as a share of the row norm
NOISE = 2.0  # the standard deviation that the noise gives to the score of a row, all steps together
FEWEST, MOST = 20, 500  # steps
MEMORY = 10  # momentum forgets after a tenth of the steps
HEAVIEST = 1e9  # of the weights that a descent may start from
WHOLE = 1 << 53  # floating point adds and multiplies whole numbers up to here without rounding


class Linear(NamedTuple):
    """What is released: class scores are row · coef + intercept, a column a class (or one column for two classes)."""

    coef: Floats
    intercept: Floats


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression that may be published: one private model, for any number of predictions.

    Full-batch gradient descent with momentum and averaging. Rows longer than `row_norm` are scaled down to it; a
    constant column, 0.3 of that length, stands for the intercept. A row pulls at the weights at most as hard as it
    would at the start, where every class is equally likely: the loss is logistic where the row is classified
    correctly and linear where it is not, and probabilities are corrected for that. All that steers the descent follows
    from the numbers of rows, columns and classes, ε and δ by fixed rules; nothing is tuned on the data.

    Guarantee. (ε, δ)-differential privacy for a replaced row, features and label, for everything the fitted estimator
    holds; the event is T = `n_iter_` releases of an integer vector with discrete Gaussian noise,
    `Repeated(DiscreteGaussian(sigma, squared_sensitivity), T)`. Public are the number of rows, the columns, and the
    set of classes: give `classes`, or the labels that occur in `y` are taken to be public.

    Why. With A = 1024 and a public integer R, a row becomes an integer vector X of length ≤ R, and its residuals in a
    step (label minus probability, one number for two classes, else one a class) become an integer vector a of length
    ≤ A; both are checked in integers, and what fails the check counts as 0. The row adds the outer product a·Xᵀ to the
    sum, whose length is |a|·|X| ≤ AR. A replaced row thus moves the sum by at most 2AR, whatever it held before and
    after: the squared sensitivity is 4A²R². The integers of a row depend on this row and on the public weights only;
    the sums are sums of whole numbers below 2⁵³, exact in any order. The weights of the next step are computed from
    noisy sums and the public `start` alone, and σ is calibrated for T such releases.

    Source. Bassily, Smith, Thakurta, *Private Empirical Risk Minimization: Efficient Algorithms and Tight Error
    Bounds*, and Song, Chaudhuri, Sarwate, *Stochastic Gradient Descent with Differentially Private Updates*, with the
    whole batch in every step. Clipped gradients of linear models belong to a convex loss: Song, Steinke, Thakkar,
    Thakurta, *Evading the Curse of Dimensionality in Unconstrained Private GLMs*. New are the integer gradients, which
    repair what Mironov, *On Significance of the Least Significant Bits for Differential Privacy*, showed for noise in
    floating point, and Casacuberta, Shoemate, Vadhan, Wagaman, *Widespread Underestimation of Sensitivity in
    Differentially Private Libraries*, for sums in floating point.

    Parameters
    ----------
    epsilon, delta : the privacy of the model; δ should be well below one over the number of rows.
    row_norm : the length to which longer rows are scaled down, known without looking at the rows: √k for k one-hot
        columns, 1 for normalised text.
    classes : the labels, at least two, in any order; None takes those in `y`.
    fit_intercept : whether a constant column is added.
    steps : the number of steps; None chooses it from public numbers. More steps take longer, cost no privacy, and are
        not more accurate: the noise of each step grows with their number, and the noise of the weights stays the same.
    fourier_features : None, or an even number: rows are mapped to that many random Fourier features of the kernel
        exp(−gamma·|x − x'|²), after they are scaled down to `row_norm`. The map is random but public.
    gamma : the kernel's width; None is 2 / row_norm².
    fourier_seed : the seed of the map, which is published with the model as `fourier_seed_`; None draws one.
    start : None, or the weights `Linear(coef, intercept)` from which the descent starts. They must be public: known
        without the rows, or the `hypothesis_` of an earlier private model, never anything else that was read off data.
    unsafe_seed : for tests only: makes the noise repeatable, and the guarantee void.

    Attributes
    ----------
    guarantee_, event_ : what is promised, and what happened.
    hypothesis_ : the released weights, `Linear(coef, intercept)`; also as `coef_` and `intercept_`, as scikit-learn
        has them.
    classes_, n_features_in_, n_iter_ : as in scikit-learn.

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
        classes: Any = None,
        fit_intercept: bool = True,
        steps: int | None = None,
        fourier_features: int | None = None,
        gamma: Number | None = None,
        fourier_seed: int | None = None,
        start: Linear | None = None,
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
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    # ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fit(self, X: Any, y: Any) -> PrivateLogisticRegression:
        """Learn from rows `X`, dense or sparse, and their labels `y`."""
        return self.fit_with_noise(X, y, noise_from_seed(self.unsafe_seed))

    def fit_with_noise(self, X: Any, y: Any, unsafe_noise: Noise | None) -> PrivateLogisticRegression:
        """`fit` with any noise, such as that which an audit walks through."""
        epsilon, row_norm = check_epsilon(self.epsilon), self._checked_norm()
        check_delta(self.delta, positive=True)
        steps = None if self.steps is None else integer(self.steps, "steps", least=1)
        features = self._checked_features()
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, got {type(self.fit_intercept).__name__}")
        named = None if self.classes is None else sorted_classes(self.classes)
        start = None if self.start is None else _checked_start(self.start)

        refuse_unreadable(X)
        if named is not None and y is not None:
            y = indices_in_declared(y, named)
        refuse_unreadable_labels(y)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        refuse_infinite(X)
        delta = check_delta(self.delta, positive=True, rows=X.shape[0])
        classes, labels = observed_labels(y) if named is None else Labels(named, y)
        columns = features or X.shape[1]
        plan = make_plan(
            rows=X.shape[0],
            columns=columns,
            classes=len(classes),
            epsilon=epsilon,
            delta=delta,
            intercept=bool(self.fit_intercept),
            steps=steps,
        )
        length = float(row_norm) if features is None else 1.0  # of the rows that the descent sees as unit rows
        first = None if start is None else start_weights(start, plan, columns, length)
        self._draw_map(features, row_norm, X.shape[1], unsafe_noise or noise.system)
        with silent():
            rows = integer_rows(self._unit_rows(X), plan)
            weights = descend(rows, _targets(labels, len(classes)), plan, unsafe_noise, first)

        self.classes_ = classes
        self.n_iter_ = plan.steps
        self.event_: Event = plan.event if unsafe_noise is None else Seeded(plan.event)
        self.guarantee_ = guarantee(self.event_, delta=delta)
        self.hypothesis_ = Linear(
            coef=weights[:columns] * (plan.reach / (plan.radius * length)),
            intercept=weights[columns:].sum(axis=0) * (plan.constant / plan.radius),
        )
        self.coef_, self.intercept_ = self.hypothesis_.coef.T.copy(), self.hypothesis_.intercept
        self._plan = plan
        return self

    # ── predicting ────────────────────────────────────────────────────────────────────────────────────────────────

    def n_required(self, error: Number, failure: Number = 0.05, *, columns: int, classes: int = 2) -> int:
        """The rows with which the noise of every step is at most `error`, but for a probability of `failure`.

        The unit is the hardest pull of a row on the average gradient: with error=0.1 the noise weighs as much as a
        tenth of all rows that pull the same way. It says from which size on noise does not drown the rows; which
        accuracy that gives depends on the rows, and none is promised. Planning, in floating point.

        Why. Discrete Gaussian noise is sub-Gaussian with its σ, so the length of D independent coordinates exceeds
        σ·√(D + 2√(Dt) + 2t) with probability at most e^(−t) (Hsu, Kakade, Zhang, *A tail inequality for quadratic forms
        of subgaussian random vectors*); t = ln(steps/failure) covers all steps.

        >>> PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1).n_required(0.1, columns=100)
        10232
        """
        share, beta = check_share(error, "error"), check_share(failure, "failure")
        features = self._checked_features()
        inputs = integer(columns, "columns", least=1) if features is None else features
        epsilon, delta = check_epsilon(self.epsilon), check_delta(self.delta, positive=True)
        kinds = integer(classes, "classes", least=2)

        def drowned(rows: int) -> bool:
            plan = make_plan(
                rows=rows,
                columns=inputs,
                classes=kinds,
                epsilon=epsilon,
                delta=delta,
                intercept=self.fit_intercept,
                steps=self.steps,
            )
            entries = (inputs + bool(self.fit_intercept)) * plan.outputs
            t = math.log(plan.steps / float(beta))
            length = float(plan.sigma) * math.sqrt(entries + 2 * math.sqrt(entries * t) + 2 * t)
            return length > float(share) * rows * plan.levels * plan.radius

        return fewest_rows(lambda rows: not drowned(rows))

    def decision_function(self, X: Any) -> Floats:
        """The score of each row: one for two classes (positive for the second), else one a class."""
        check_is_fitted(self)
        refuse_unreadable(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        coef, intercept = self.hypothesis_
        scale = self._row_norm if self.frequencies_ is None else 1.0
        scores = np.asarray(self._unit_rows(X) @ (coef * scale) + intercept)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        winners = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[winners])

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class for each row.

        The descent rests where Σ_y P(y)·s_y·(e_y − p) = 0, with p the softmax of the scores, e_y the residuals' target
        for label y and s_y ≤ 1 the factor by which that residual is shortened. So P(y) ∝ p_y/s_y.
        """
        scores = self.decision_function(X)
        two = scores.ndim == 1
        p = np.stack([expit(-scores), expit(scores)], axis=1) if two else softmax(scores, axis=1)
        squares = (p**2).sum(axis=1, keepdims=True)
        residuals = 1 - p if two else np.sqrt(np.maximum(squares - 2 * p + 1, 0.0))  # |e_y − p| for each label y
        odds = p * np.maximum(1.0, residuals / self._plan.cap)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    # ── features ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _checked_norm(self) -> Fraction:
        row_norm = check_positive(self.row_norm, "row_norm")
        if not Fraction(1, 10**100) <= row_norm <= 10**100:
            raise ValueError("row_norm must be between 1e-100 and 1e100")
        return row_norm

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

    def _draw_map(self, features: int | None, row_norm: Fraction, columns: int, source: Noise) -> None:
        self._row_norm = float(row_norm)
        self.frequencies_: Floats | None = None
        self.fourier_seed_: int | None = None
        if features is not None:
            self.fourier_seed_ = source.uniform(1 << 63) if self.fourier_seed is None else int(self.fourier_seed)
            gamma = float(2 / row_norm**2 if self.gamma is None else check_positive(self.gamma, "gamma"))
            # The projection is public: it is drawn without a look at the data, and protects nobody.
            public = np.random.default_rng(self.fourier_seed_)
            self.frequencies_ = math.sqrt(2 * gamma) * public.standard_normal((columns, features // 2))

    def _unit_rows(self, X: Matrix) -> Matrix:
        """The rows as the descent sees them, none longer than 1 but for rounding."""
        rows = shortened(X, self._row_norm)
        if self.frequencies_ is None:
            return rows
        phases = np.asarray(rows @ (self.frequencies_ * self._row_norm))
        return np.hstack([np.cos(phases), np.sin(phases)]) / math.sqrt(phases.shape[1])


# ── the plan: all that is fixed before the rows are looked at ─────────────────────────────────────────────────────

@dataclass(frozen=True)
class Plan:
    """The lattice, the noise and the steps of a descent, all public."""

    rows: int
    outputs: int  # residuals a row: 1 for two classes, else one a class
    radius: int  # R, the greatest length of an integer row with its constant column
    constant: int  # the constant column; 0 where there is none
    levels: int  # A, the greatest length of the residuals of a row of length R
    sigma: Fraction
    steps: int
    rate: float
    momentum: float

    @property
    def reach(self) -> int:
        """The greatest length of an integer row without its constant column, rounded down."""
        return math.isqrt(self.radius**2 - self.constant**2)

    @property
    def squared_sensitivity(self) -> int:
        """4A²R²: how far a replaced row moves the sum of a step, squared."""
        return (2 * self.levels * self.radius) ** 2

    @property
    def event(self) -> Event:
        """All steps together."""
        return Repeated(DiscreteGaussian(self.sigma, self.squared_sensitivity), self.steps)

    @property
    def cap(self) -> float:
        """The residuals' length at weights zero, which A stands for: 1/2, or √(1 − 1/K) for K > 2 classes."""
        return 0.5 if self.outputs == 1 else math.sqrt(1 - 1 / self.outputs)


def make_plan(
    *,
    rows: int,
    columns: int,
    classes: int,
    epsilon: Fraction,
    delta: Fraction,
    intercept: bool = True,
    steps: int | None = None,
) -> Plan:
    """The plan for this many rows, columns and classes at (ε, δ).

    In units of the row norm, steps of total length τ (rate × steps, momentum included) add noise of standard deviation
    τ·2·cap/(μn) to every weight, where μ is the sensitivity over σ of a single release that uses up (ε, δ): the number
    of steps drops out. So τ is set to give the score of a row the noise `NOISE`, and the number of steps grows as √τ,
    which is as fast as momentum needs, up to `MOST`.
    """
    outputs = 1 if classes == 2 else classes
    # The entries of an evenly spread row are 2^SPREAD or more; what all rows may add up to stays below 2^53.
    bits = max(LEAST_BITS, min(SPREAD + (columns.bit_length() + 1) // 2, MOST_BITS))
    radius = 1 << min(bits, 52 - (LEVELS * rows).bit_length())
    constant = round(radius * INTERCEPT / math.hypot(1, INTERCEPT)) if intercept else 0
    plan = Plan(rows, outputs, radius, constant, LEVELS, Fraction(1), 1, 0.0, 0.0)
    squared = plan.squared_sensitivity

    sigma = partial(_sigma, squared=squared, epsilon=epsilon, delta=delta)
    steepest = 4.0 if outputs > 1 else 8.0  # twice the inverse of the greatest curvature of a unit row's loss
    share = 1.0 if outputs == 1 else 1 / math.sqrt(2)  # the difference of two scores has the noise of both
    travel = share * NOISE * rows * math.sqrt(squared) / float(sigma(1)) / (2 * plan.cap)
    if steps is None:
        steps = round(min(max(math.sqrt(MEMORY * travel / steepest), FEWEST), MOST))
    forget = min(1.0, MEMORY / steps)
    return Plan(
        rows=rows,
        outputs=outputs,
        radius=radius,
        constant=constant,
        levels=LEVELS,
        sigma=sigma(steps),
        steps=steps,
        rate=min(forget * travel / steps, steepest),
        momentum=1 - forget,
    )


@lru_cache(maxsize=4096)
def _sigma(times: int, *, squared: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The least noise for so many releases of this squared sensitivity."""

    # T releases cost what one of T times the squared sensitivity costs, and that is faster to look up.
    def all_steps(each: Fraction) -> Event:
        return Repeated(DiscreteGaussian(each, squared), times)

    check_certifiable(delta)
    with suppress(ValueError):
        least = calibrate.noise(lambda one: DiscreteGaussian(one, times * squared), epsilon=epsilon, delta=delta)
        if not fits(all_steps(least), epsilon=epsilon, delta=delta):
            least = calibrate.noise(all_steps, epsilon=epsilon, delta=delta)
        if least <= WIDEST:
            return least
    raise ValueError(
        f"epsilon={float(epsilon):g} and delta={float(delta):g} are too small together: the noise would not fit "
        "into 64 bits; ask for a larger one of them"
    )


# ── rows and residuals as integers ────────────────────────────────────────────────────────────────────────────────

def integer_rows(unit_rows: Matrix, plan: Plan) -> Matrix:
    """Rows of length ≤ 1 as integer rows of length ≤ R, the constant column last, held as floating-point numbers."""
    rows = on_lattice(unit_rows * plan.reach, plan.radius**2 - plan.constant**2)
    if not plan.constant:
        return rows
    column = np.full((rows.shape[0], 1), float(plan.constant))
    return sparse.hstack([rows, column], format="csr") if sparse.issparse(rows) else np.hstack([rows, column])


def integer_residuals(residuals: Floats, plan: Plan) -> Floats:
    """Residuals as integer vectors of length ≤ A, which stands for `plan.cap`; longer ones are shortened to it."""
    lengths = np.sqrt(_squared_lengths(residuals))
    return np.asarray(on_lattice(residuals * (plan.levels / np.maximum(lengths, plan.cap))[:, None], plan.levels**2))


def descend(
    rows: Matrix, targets: Floats, plan: Plan, unsafe_noise: Noise | None = None, start: Floats | None = None
) -> Floats:
    """The weights for unit rows, a column an output: the average of the last half of the steps from `start`, or 0."""
    shape = (rows.shape[1], plan.outputs)
    weights, velocity, total = (np.zeros(shape, dtype=np.float64) for _ in range(3))
    if start is not None:
        weights = start
    unit = plan.rate * plan.cap / (plan.levels * plan.radius * plan.rows)
    half = (plan.steps + 1) // 2
    for step in range(plan.steps):
        residuals = integer_residuals(targets - probabilities(rows, weights, plan), plan)
        noisy, _ = gaussian_count(
            pull(rows, residuals),
            sigma=plan.sigma,
            squared_sensitivity=plan.squared_sensitivity,
            unsafe_noise=unsafe_noise,
        )
        velocity = plan.momentum * velocity + unit * noisy
        weights = weights + velocity
        if step >= plan.steps - half:
            total += weights
    return np.asarray(total / half)


def start_weights(start: Linear, plan: Plan, columns: int, length: float) -> Floats:
    """The weights for unit rows by which rows of the given length have the scores of `start`."""
    if start.coef.shape != (columns, plan.outputs) or start.intercept.shape != (plan.outputs,):
        raise ValueError(
            f"start must be Linear(coef, intercept) with a coef of shape ({columns}, {plan.outputs}) and an intercept "
            f"of shape ({plan.outputs},), got {start.coef.shape} and {start.intercept.shape}"
        )
    weights = start.coef * (plan.radius * length / plan.reach)
    if plan.constant:
        weights = np.vstack([weights, start.intercept * (plan.radius / plan.constant)])
    elif start.intercept.any():
        raise ValueError("start must have an intercept of 0, as fit_intercept=False")
    if not float(np.abs(weights).max()) < HEAVIEST:
        raise ValueError("start must be finite, with scores of rows of full length below 1e9")
    return np.asarray(weights)


def pull(rows: Matrix, residuals: Floats) -> NDArray[np.int64]:
    """Σ row ⊗ residuals over all rows: exact, as the absolute values of all terms add up to less than 2⁵³."""
    return np.asarray(rows.T @ residuals).astype(np.int64)


def probabilities(rows: Matrix, weights: Floats, plan: Plan) -> Floats:
    """The probability of the second of two classes, or of each of several, at the given weights.

    The weights are rounded to a public lattice, so fine that row · weights is a whole number below 2⁵³: it comes out
    the same whatever order a matrix product adds in.
    """
    room = WHOLE / (4 * plan.radius * max(1.0, float(np.linalg.norm(weights))))
    fine = 2.0 ** min(30, math.floor(math.log2(room)))
    scores = np.asarray(rows @ np.rint(weights * fine)) / (fine * plan.radius)
    return np.asarray(expit(scores) if plan.outputs == 1 else softmax(scores, axis=1))


# ── matrices, dense or sparse ─────────────────────────────────────────────────────────────────────────────────────

@silent()
def on_lattice(vectors: Matrix, limit: int) -> Matrix:
    """Each row as an integer vector whose squared length is at most `limit` < 2⁵³.

    The nearest; where that is too long, the one rounded towards zero; where even that is too long, or no number, zero.

    The check is exact in floating point: squares of whole numbers are added, which is exact up to 2⁵³, and a sum that
    has passed 2⁵³ never falls below it again, as rounding is monotone.
    """
    whole = _map(np.rint, vectors)
    for rounding in (np.trunc, np.zeros_like):
        outside = ~(_squared_lengths(whole) <= limit)  # so that NaN is outside
        if not outside.any():
            break
        if sparse.issparse(whole):
            entries = np.repeat(outside, np.diff(whole.indptr))
            whole.data[entries] = rounding(vectors.data[entries])
        else:
            whole[outside] = rounding(vectors[outside])
    return whole


@silent()
def shortened(X: Matrix, bound: float) -> Matrix:
    """X / bound, with rows longer than the bound scaled down to length 1, whatever their magnitude."""
    if sparse.issparse(X):
        # Entries that are stored twice must be added up before they are rounded; the caller's arrays are left alone.
        X = sparse.csr_array((X.data.copy(), X.indices.copy(), X.indptr.copy()), shape=X.shape)
        X.sum_duplicates()
        largest = np.zeros(X.shape[0])
        np.maximum.at(largest, _row_of_entry(X), np.abs(X.data))
    else:
        largest = np.abs(X).max(axis=1)
    largest[largest < 1e-300] = 1.0
    scaled = _scaled(X, 1 / largest)  # so that squares neither overflow nor vanish
    return _scaled(scaled, 1 / np.maximum(bound / largest, np.sqrt(_squared_lengths(scaled))))


def _row_of_entry(X: Matrix) -> NDArray[np.int64]:
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def _squared_lengths(X: Matrix) -> Floats:
    if sparse.issparse(X):
        return np.bincount(_row_of_entry(X), weights=X.data * X.data, minlength=X.shape[0]).astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _map(function: Callable[[Floats], Floats], X: Matrix) -> Matrix:
    if sparse.issparse(X):
        return sparse.csr_array((function(X.data), X.indices, X.indptr), shape=X.shape)
    return function(X)


def _scaled(X: Matrix, factors: Floats) -> Matrix:
    if sparse.issparse(X):
        return _map(lambda data: data * np.repeat(factors, np.diff(X.indptr)), X)
    return X * factors[:, None]


# ── reading what the caller gave ──────────────────────────────────────────────────────────────────────────────────

def _checked_start(start: Any) -> Linear:
    try:
        coef, intercept = (np.asarray(part, dtype=np.float64) for part in start)
    except Exception:
        raise ValueError("start must be Linear(coef, intercept), two arrays of numbers") from None
    return Linear(coef, intercept)


def _targets(labels: NDArray[np.int64], classes: int) -> Floats:
    """What residuals are the distance to: 0 or 1 for two classes, else the unit vector of the label."""
    return labels[:, None].astype(np.float64) if classes == 2 else np.eye(classes)[labels]
