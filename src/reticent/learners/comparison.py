"""A cheap private comparison of private models on held-out rows, and the better one, fitted on all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from reticent.data.classes import sorted_classes
from reticent.data.groups import as_groups, numbered
from reticent.data.labels import ClassLabels, indices_in_declared, observed_labels, refuse_unreadable_labels
from reticent.data.tables import refuse_infinite, refuse_unreadable
from reticent.errors import InsufficientData
from reticent.exact import Number
from reticent.learners.base import clone_with
from reticent.learners.descent import release_variance
from reticent.learners.features import training_rows
from reticent.learners.lattice import Floats, Matrix
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.mechanisms.counts import gaussian_count
from reticent.mechanisms.release import noise_from_seed, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import epsilon as least_epsilon
from reticent.privacy import fits, guarantee, rho
from reticent.privacy.calibrate import sigma_of
from reticent.privacy.events import ZCDP, Composed, DiscreteGaussian, Event, Parallel
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share
from reticent.silence import silent

CLEAR = 2  # standard errors by which a lead must exceed zero to be called clear
SLACK = Fraction(9999, 10000)  # of the share of the last fit, for noise that is rounded to a few digits
UNIT = 1 << 46  # squared sensitivity of a release by which shares of a budget are computed


# ── the plan: all that is fixed before the rows are read ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ComparisonPlan:
    """Who is in which role, what is released, and what it costs. All of it is public.

    Parameters
    ----------
    rows, held_out : int
        The number of rows, and of those on which right answers are counted.
    trials, finals : tuple of estimators
        The estimators, unfitted: with the budget of the comparison, and with what is left for the last fit.
    counts : DiscreteGaussian
        The release of the counts of right answers.
    event : Event
        All releases, whichever estimator is chosen.
    """

    rows: int
    held_out: int
    trials: tuple[PrivateLogisticRegression, ...]
    finals: tuple[PrivateLogisticRegression, ...]
    counts: DiscreteGaussian
    event: Event


def plan_comparison(
    estimators: Sequence[PrivateLogisticRegression],
    *,
    rows: int,
    columns: int,
    classes: NDArray[Any],
    epsilon: Fraction,
    delta: Fraction,
    share: Fraction,
    held_out: Fraction,
) -> ComparisonPlan:
    """Plan a comparison from public numbers.

    Guarantee. `event` fits (ε, δ), whichever estimator is chosen.

    Why. A row that is held out sees the counts, every other row sees all trials, and both see the last fit, which is
    ρ-zCDP for one ρ, whichever estimator it is. The full proof is in `docs/learners/comparison.md`.

    Parameters
    ----------
    estimators : sequence of PrivateLogisticRegression
        The estimators; their ε, δ and classes are set here.
    rows, columns : int
        The size of the table.
    classes : array
        The classes, sorted.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of everything together.
    share : Fraction
        The share of μ² that the comparison may use.
    held_out : Fraction
        The share of the rows that are held out.
    """
    tested = math.floor(rows * held_out)
    if not 0 < tested < rows:
        raise InsufficientData(
            f"held_out={float(held_out):g} of {rows} rows leaves no row to count on, or none to learn from",
            required=math.ceil(1 / min(held_out, 1 - held_out)),
        )
    known: dict[str, Any] = {"delta": delta, "classes": list(classes), "unsafe_seed": None}
    each = share_of_budget(epsilon, delta, share / len(estimators))
    rest = left_for_last_fit(epsilon, delta, share)
    trials = tuple(clone_with(one, epsilon=each, **known) for one in estimators)
    finals = tuple(clone_with(one, epsilon=rest, **known) for one in estimators)
    size: dict[str, int] = {"columns": columns, "classes": len(classes)}
    spent = [planned_event(one, rows=rows - tested, **size) for one in trials]
    last = ZCDP(max(_zcdp(planned_event(one, rows=rows, **size)) for one in finals))
    noise = comparison_noise(len(estimators), epsilon=epsilon, delta=delta, share=share)
    counts = DiscreteGaussian(noise, len(estimators))
    event = Parallel((Composed((*spent, last)), Composed((counts, last))))
    if not fits(event, epsilon=epsilon, delta=delta):
        raise ValueError(f"epsilon={float(epsilon):g} and delta={float(delta):g} cannot be certified for a comparison")
    return ComparisonPlan(rows, tested, trials, finals, counts, event)


def comparison_noise(estimators: int, *, epsilon: Fraction, delta: Fraction, share: Fraction) -> Fraction:
    """The noise of each count of right answers.

    A replaced row may change whether each of the estimators is right about it. So the squared sensitivity of all counts
    is the number of estimators.

    Parameters
    ----------
    estimators : int
        How many are compared.
    epsilon, delta : Fraction
        The whole budget.
    share : Fraction
        The share of μ² for the comparison.
    """
    return sigma_of(estimators, release_variance(epsilon, delta) / share)


def left_for_last_fit(epsilon: Fraction, delta: Fraction, share: Fraction) -> Fraction:
    """The ε of the last fit, after a comparison that used this share of μ²; δ stays the same."""
    return share_of_budget(epsilon, delta, (1 - share) * SLACK)


@lru_cache(maxsize=1024)
def share_of_budget(epsilon: Fraction, delta: Fraction, share: Fraction) -> Fraction:
    """The ε at which one Gaussian release, with the same δ, has this share of the μ² that (ε, δ) allows.

    Parameters
    ----------
    epsilon, delta : Fraction
        The whole budget.
    share : Fraction
        The share, in (0, 1].

    >>> round(float(share_of_budget(Fraction(1), Fraction(1, 10**6), Fraction(1, 4))), 2)
    0.48
    """
    variance = release_variance(epsilon, delta) / share
    found = Fraction(least_epsilon(DiscreteGaussian(sigma_of(UNIT, variance), UNIT), delta=delta))
    return Fraction(math.floor(found * 10**6), 10**6) if found > Fraction(1, 1000) else found


def planned_event(estimator: PrivateLogisticRegression, *, rows: int, columns: int, classes: int) -> Event:
    """What a fit of this estimator will release, from public numbers."""
    settings = estimator.settings()
    directions = settings.row_map(rows=rows, columns=columns).directions  # of public rows
    inputs = columns if directions is None else directions.matrix.shape[1]
    return settings.plan(rows=rows, columns=settings.fourier_features or inputs, classes=classes).event


def _zcdp(event: Event) -> Fraction:
    """The ρ of releases with Gaussian noise, which all have one."""
    found = rho(event)
    assert found is not None
    return found


# ── what comes out ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scores:
    """Noisy counts of right answers on held-out rows, and what they say. All of it is released.

    Parameters
    ----------
    counts : tuple of int
        The noisy count of right answers of each estimator.
    held_out : int
        The number of held-out rows.
    sigma : float
        The noise of each count.
    """

    counts: tuple[int, ...]
    held_out: int
    sigma: float

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The share of right answers of each estimator, within [0, 1]."""
        return tuple(min(1.0, max(0.0, count / self.held_out)) for count in self.counts)

    @property
    def leader(self) -> int:
        """The index of the estimator with the largest count; the first of several."""
        return int(np.argmax(self.counts))

    @property
    def clear(self) -> bool:
        """Whether the leader is ahead of all others by more than `CLEAR` standard errors."""
        leads = [self.lead(self.leader, other) for other in range(len(self.counts)) if other != self.leader]
        return all(lead > CLEAR * error for lead, error in leads)

    def lead(self, ahead: int, behind: int) -> tuple[float, float]:
        """How far one estimator is ahead of another, as a share of all answers, and the standard error of that.

        The error counts the noise of both counts and the choice of the held-out rows. Two estimators disagree at most
        where one of them is wrong, so the variance of the difference on a row is at most the sum of their error rates.

        Parameters
        ----------
        ahead, behind : int
            Indices of estimators.
        """
        first, second = self.accuracies[ahead], self.accuracies[behind]
        wrong = min(1.0, max(2 - first - second, 1 / self.held_out))
        error = math.hypot(math.sqrt(2) * self.sigma / self.held_out, math.sqrt(wrong / self.held_out))
        return (self.counts[ahead] - self.counts[behind]) / self.held_out, error


class PrivateComparison(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Compare private models on held-out rows, then fit the better one on all rows: all within one (ε, δ).

    A small share of the budget pays for the comparison. Part of the rows is held out. Each estimator is fitted
    privately on the others, and its right answers on the held-out rows are counted with noise. The estimator with more
    of them is fitted again, on all rows, with the rest of the budget. `scores_` says whether its lead is clear.

    Guarantee. (ε, δ)-differential privacy for a replaced row, features and label, for the trials, the counts and the
    model together (with groups: for a replaced group, of which one row is used).

    Why. Each row is in one role of the comparison, by a rule that does not look at the rows. A held-out row moves each
    of the k counts by at most one, so their squared sensitivity is k; it has no part in the trials. Another row has
    part in the trials; given these, it has none in the counts. Both have part in the last fit, which is ρ-zCDP for one
    ρ fixed beforehand, whichever estimator is chosen. The proof is in `docs/learners/comparison.md`.

    Source. The parallel and adaptive composition of zero-concentrated differential privacy: Bun, Steinke,
    *Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds*.

    Parameters
    ----------
    estimators : sequence of PrivateLogisticRegression
        The estimators to compare, at least two. Their `epsilon`, `delta`, `classes` and `unsafe_seed` are replaced.
    epsilon : float or Fraction
        Privacy-loss bound ε of everything together.
    delta : float or Fraction
        Failure probability δ of that bound; positive.
    share : float or Fraction, default 1/10
        The share of the budget that the comparison uses, as a share of μ²: noise of the last fit grows by
        1/√(1 − share).
    held_out : float or Fraction, default 1/5
        The share of the rows on which right answers are counted.
    classes : sequence of labels or None, default None
        The labels, at least two, in any order; None takes those in `y`.
    unsafe_seed : int or None, default None
        For tests only: makes the noise repeatable and the guarantee void.

    Attributes
    ----------
    guarantee_ : Guarantee
        What is promised.
    event_ : Event
        What happened.
    scores_ : Scores
        Noisy counts of right answers on the held-out rows.
    best_ : int
        The index of the estimator that was fitted on all rows: `scores_.leader`.
    model_ : PrivateLogisticRegression
        The chosen estimator, fitted on all rows. Its event and guarantee count the comparison as well.
    classes_ : array
        The classes, sorted.

    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20_000, 2))
    >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    >>> linear = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1.5)
    >>> fourier = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1.5, fourier_features=100)
    >>> model = PrivateComparison([linear, fourier], epsilon=1, delta=1e-6).fit(X, y)
    >>> model.best_, model.scores_.clear, bool(model.score(X, y) > 0.8), model.guarantee_.epsilon <= 1
    (1, True, True, True)
    """

    def __init__(
        self,
        estimators: Sequence[PrivateLogisticRegression],
        *,
        epsilon: Number,
        delta: Number,
        share: Number = Fraction(1, 10),
        held_out: Number = Fraction(1, 5),
        classes: ArrayLike | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.estimators = estimators
        self.epsilon = epsilon
        self.delta = delta
        self.share = share
        self.held_out = held_out
        self.classes = classes
        self.unsafe_seed = unsafe_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.unsafe_seed is None
        return tags

    def fit(self, X: Matrix, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Compare the estimators, and fit the better one.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The training rows.
        y : array-like of shape (rows,)
            Their labels.
        groups : array-like of shape (rows,) or None, default None
            The group, such as a person, of each row. Only the first row of each group is used.

        Returns
        -------
        self
        """
        return self.fit_with_noise(X, y, noise_from_seed(self.unsafe_seed), groups=groups)

    def fit_with_noise(
        self, X: Matrix, y: ArrayLike, unsafe_noise: Noise | None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Call `fit` on a given source of noise, as audits and engines do.

        Parameters
        ----------
        X, y, groups : array-like
            As for `fit`.
        unsafe_noise : Noise or None
            None draws from the operating system. Any other noise makes the guarantee void.

        Returns
        -------
        self
        """
        estimators = self._checked_estimators()
        epsilon, share = check_epsilon(self.epsilon), check_share(self.share, "share")
        held_out = check_share(self.held_out, "held_out")
        check_delta(self.delta, positive=True)
        declared = None if self.classes is None else sorted_classes(self.classes)

        refuse_unreadable(X)
        target: Any = y if declared is None or y is None else indices_in_declared(y, declared)
        refuse_unreadable_labels(target)
        X, target = training_rows(self, X, target)
        refuse_infinite(X)
        classes, class_indices = observed_labels(target) if declared is None else ClassLabels(declared, target)
        if groups is not None:
            first = np.unique(numbered(as_groups(groups, X.shape[0])), return_index=True)[1]
            X, class_indices = X[first], class_indices[first]
        labels = classes[class_indices]
        plan = plan_comparison(
            estimators,
            rows=X.shape[0],
            columns=X.shape[1],
            classes=classes,
            epsilon=epsilon,
            delta=check_delta(self.delta, positive=True, rows=X.shape[0]),
            share=share,
            held_out=held_out,
        )
        with silent():
            scores = compare(plan, X, labels, unsafe_noise)
            model = plan.finals[scores.leader].fit_with_noise(X, labels, unsafe_noise)
        self.scores_, self.best_, self.model_, self.classes_ = scores, scores.leader, model, classes
        self.event_ = release(None, plan.event, unsafe_noise).event
        self.guarantee_ = guarantee(self.event_, delta=self.delta, unit="row" if groups is None else "group")
        model.event_, model.guarantee_ = self.event_, self.guarantee_
        return self

    def estimator_of(self, scores: Scores) -> PrivateLogisticRegression:
        """The unfitted estimator that leads, as it is fitted on all rows.

        Parameters
        ----------
        scores : Scores
            What a comparison found.
        """
        rest = left_for_last_fit(
            check_epsilon(self.epsilon), check_delta(self.delta, positive=True), check_share(self.share, "share")
        )
        return clone_with(self.estimators[scores.leader], epsilon=rest, delta=self.delta, classes=self.classes)

    def predict(self, X: Matrix) -> NDArray[Any]:
        """The most likely class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.
        """
        return self.model_.predict(self._rows(X))

    def decision_function(self, X: Matrix) -> Floats:
        """The scores of rows; see `PrivateLogisticRegression.decision_function`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.
        """
        return self.model_.decision_function(self._rows(X))

    def predict_proba(self, X: Matrix) -> Floats:
        """The probability of each class for each row, in the order of `classes_`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            The rows.
        """
        return self.model_.predict_proba(self._rows(X))

    def _rows(self, X: Matrix) -> Matrix:
        """Rows as the model reads them; it was fitted on an array, without the names of columns."""
        check_is_fitted(self)
        refuse_unreadable(X)
        rows: Matrix = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return rows

    def _checked_estimators(self) -> tuple[PrivateLogisticRegression, ...]:
        found = tuple(self.estimators)
        if len(found) < 2:
            raise ValueError(f"estimators must be at least two to compare, got {len(found)}")
        for one in found:
            if type(one) is not PrivateLogisticRegression:
                raise TypeError(f"estimators must be PrivateLogisticRegression, got {type(one).__name__}")
        return found


def compare(plan: ComparisonPlan, X: Matrix, labels: NDArray[Any], unsafe_noise: Noise | None = None) -> Scores:
    """Fit the trials on the rows that are not held out, and count their right answers on the others.

    Guarantee. For a row that is held out `plan.counts`, for any other row the events of all trials.

    Why. Which rows are held out is drawn without looking at them. Each count moves by at most one if a held-out row is
    replaced. If another row is replaced, the counts are a function of the trials and of rows that stay the same.

    Parameters
    ----------
    plan : ComparisonPlan
        The plan.
    X : array or CSR matrix of shape (rows, columns)
        The rows.
    labels : array of shape (rows,)
        Their labels.
    unsafe_noise : Noise or None, default None
        For tests only; None draws from the operating system.
    """
    order = noise_or_system(unsafe_noise).permutation(plan.rows)
    tested, others = np.sort(order[: plan.held_out]), np.sort(order[plan.held_out :])
    models = [trial.fit_with_noise(X[others], labels[others], unsafe_noise) for trial in plan.trials]
    right = [int(np.count_nonzero(model.predict(X[tested]) == labels[tested])) for model in models]
    noisy, _ = gaussian_count(
        np.array(right),
        sigma=plan.counts.sigma,
        squared_sensitivity=plan.counts.squared_sensitivity,
        unsafe_noise=unsafe_noise,
    )
    return Scores(tuple(int(count) for count in noisy), plan.held_out, float(plan.counts.sigma))
