"""Charge every fit of an estimator to one ledger: in a loop, in cross-validation, in a grid search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from reticent.privacy.events import Event, SeededRelease, stated
from reticent.privacy.guarantee import Guarantee
from reticent.privacy.parameters import check_delta, check_epsilon

FITTED = ("classes_", "n_features_in_", "feature_names_in_", "guarantee_")  # taken over from the fitted estimator

Method = TypeVar("Method", bound=Callable[..., Any])


class Budget(Protocol):
    """What pays for fits: a `Ledger` or a `LedgerFile`."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all that is admitted."""

    def charge(self, event: Event, times: int = 1) -> None:
        """Record what is about to happen, or refuse."""


def _has(method: str) -> Callable[[Method], Method]:
    """Make a method available where the estimator has it."""
    decorated: Callable[[Method], Method] = available_if(
        lambda self: hasattr(getattr(self, "estimator_", self.estimator), method)
    )
    return decorated


class Charged(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A private estimator each of whose fits is charged to a ledger before it reads a row.

    Clones share the ledger, so `cross_val_score`, `GridSearchCV` and loops spend one budget. Beyond it, `fit` raises
    `BudgetExhausted`. Each fit is charged in full: the training rows of two folds overlap, so no less is claimed. A fit
    that fails later stays charged.

    A `Ledger` in memory serves threads (`joblib.parallel_config(backend="threading")`). It cannot be sent to other
    processes: `n_jobs` with processes needs a `LedgerFile`.

    Guarantee. All fitted models together satisfy `ledger.guarantee`, if all rows are of one data set, and nothing else
    is released. Scores of held-out private rows are releases that nothing here pays for: see
    docs/guides/tuning-privately.md.

    Why. Each fit is (ε, δ)-private and is recorded before it begins; `Ledger` adds up what was recorded, also if the
    next fit is chosen by looking at earlier models.

    Parameters
    ----------
    estimator : estimator
        A private estimator with the parameter `epsilon`, and with `guarantee_` once it is fitted.
    ledger : Ledger or LedgerFile
        What pays.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone of the estimator.
    guarantee_ : Guarantee
        That of the fitted clone.

    Examples
    --------
    >>> import numpy as np
    >>> import reticent as rt
    >>> X = np.arange(400)[:, None] % 16
    >>> ledger = rt.Ledger(rt.Guarantee(epsilon=2.0))
    >>> model = rt.Charged(rt.ThresholdLearner(bits=4, epsilon=1), ledger).fit(X, X[:, 0] < 7)
    >>> ledger.spent.used
    Fraction(1, 1)
    """

    def __init__(self, estimator: Any, ledger: Budget) -> None:
        self.estimator = estimator
        self.ledger = ledger

    def __sklearn_clone__(self) -> Self:
        """Return a clone that spends the same budget."""
        return type(self)(clone(self.estimator), self.ledger)

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.estimator)

    def fit(self, X: Any, y: Any = None, **fit_parameters: Any) -> Self:
        """Charge the ledger, then fit a clone of the estimator.

        Parameters
        ----------
        X, y : array-like
            The training rows and their labels.
        **fit_parameters : object
            Passed on to the `fit` of the estimator.

        Returns
        -------
        self

        Raises
        ------
        BudgetExhausted
            If too little is left. No row was read then.
        """
        event, promised = self._price()
        self.ledger.charge(event)
        fitted = clone(self.estimator).fit(X, y, **fit_parameters)
        kept = getattr(fitted, "guarantee_", None)
        if not isinstance(kept, Guarantee) or not kept <= promised:
            found = "has no guarantee_" if kept is None else f"has the guarantee {kept}"
            raise TypeError(f"estimator {found}, but the ledger was charged for {promised}: the model is discarded")
        self.estimator_ = fitted
        for name in FITTED:
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def _price(self) -> tuple[Event, Guarantee]:
        """What a fit costs, and what it must guarantee, from parameters alone."""
        parameters = self.estimator.get_params(deep=False) if hasattr(self.estimator, "get_params") else {}
        if "epsilon" not in parameters:
            raise TypeError(
                f"estimator must be private, with the parameter epsilon, got {type(self.estimator).__name__}"
            )
        allowed = self.ledger.guarantee
        protects = getattr(self.estimator, "protects", "rows")
        if protects == "labels" and allowed.protects != "labels":
            raise ValueError(f"estimator protects labels only, and the ledger is for {allowed.protects}")
        epsilon, delta = check_epsilon(parameters["epsilon"]), check_delta(parameters.get("delta") or 0)
        event = stated(epsilon, delta)
        seeded = parameters.get("unsafe_seed") is not None
        promised = Guarantee(
            epsilon=epsilon,  # type: ignore[arg-type]  # rounded up, if it must be
            delta=delta,  # type: ignore[arg-type]
            unit=allowed.unit,
            protects=allowed.protects,
            seeded=seeded,
        )
        return SeededRelease(event) if seeded else event, promised

    # ── what the fitted estimator does ────────────────────────────────────────────────────────────────────────────

    @_has("predict")
    def predict(self, X: Any) -> Any:
        """Predict by the fitted estimator."""
        return self._fitted().predict(X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities of classes, by the fitted estimator."""
        return self._fitted().predict_proba(X)

    @_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Return logarithms of probabilities, by the fitted estimator."""
        return self._fitted().predict_log_proba(X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return the decision function of the fitted estimator."""
        return self._fitted().decision_function(X)

    @_has("transform")
    def transform(self, X: Any) -> Any:
        """Transform rows by the fitted estimator."""
        return self._fitted().transform(X)

    @_has("score")
    def score(self, X: Any, y: Any = None) -> float:
        """Return the score of the fitted estimator. On private rows this is a release that nothing pays for."""
        return float(self._fitted().score(X, y))

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_
