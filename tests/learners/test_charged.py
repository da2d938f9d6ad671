"""Every fit of a search is charged to one ledger, before it reads a row, and none beyond its budget."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.linear_model import HuberRegressor, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import reticent as rt
from reticent.privacy.events import PureDP

X = np.arange(320)[:, None] % 16
Y = (X[:, 0] < 7).astype(np.int64)
LEARNER = rt.ThresholdLearner(bits=4, epsilon=1)
ONE = PureDP(Fraction(1))


def ledger(epsilon: float = 5) -> rt.Ledger:
    return rt.Ledger(rt.Guarantee(epsilon=epsilon))


class Reads(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A private classifier of no use, that notes each time it reads rows."""

    read = 0

    def __init__(self, epsilon: float = 1, delta: float = 0, fails: bool = False, found: Any = 0) -> None:
        self.epsilon, self.delta, self.fails, self.found = epsilon, delta, fails, found

    def fit(self, X: Any, y: Any) -> Self:
        type(self).read += 1
        if self.fails:
            raise ValueError("it fails")
        self.classes_ = np.array([0, 1])
        if self.found is not None:
            self.guarantee_ = rt.Guarantee(epsilon=self.found or self.epsilon, delta=self.delta)
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=np.int64)


@pytest.fixture(autouse=True)
def _unread() -> None:
    Reads.read = 0


# ── charges ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fit_is_charged_and_predicts_through() -> None:
    budget = ledger()
    model = rt.Charged(LEARNER, budget).fit(X, Y)
    assert budget.events == {ONE: 1}
    assert model.guarantee_ == model.estimator_.guarantee_
    assert (model.predict(X) == model.estimator_.predict(X)).all()
    assert model.score(X, Y) == model.estimator_.score(X, Y)
    assert list(model.classes_) == [0, 1]
    assert not hasattr(model, "predict_proba")
    assert is_classifier(model)


def test_beyond_the_budget_no_row_is_read() -> None:
    budget = ledger(2)
    for _ in range(2):
        rt.Charged(Reads(), budget).fit(X, Y)
    with pytest.raises(rt.BudgetExhausted, match="not one more fits"):
        rt.Charged(Reads(), budget).fit(X, Y)
    assert Reads.read == 2


def test_the_twin_that_charges_after_the_fit_reads_rows_beyond_the_budget() -> None:
    class Late(rt.Charged):
        def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
            self.estimator_ = clone(self.estimator).fit(X, y, **more)
            self.ledger.charge(ONE)
            return self

    with pytest.raises(rt.BudgetExhausted):
        Late(Reads(), ledger(0.5)).fit(X, Y)
    assert Reads.read == 1  # what the test above would find


def test_a_fit_that_fails_stays_charged() -> None:
    budget = ledger()
    with pytest.raises(ValueError, match="it fails"):
        rt.Charged(Reads(fails=True), budget).fit(X, Y)
    assert budget.events == {ONE: 1}


def test_delta_and_fractions_are_charged_exactly() -> None:
    budget = rt.Ledger(rt.Guarantee(epsilon=1.0, delta=3e-6))
    for _ in range(3):
        rt.Charged(Reads(epsilon=0.1, delta=1e-6), budget).fit(X, Y)
    assert (budget.spent.used, budget.spent.delta_used) == (Fraction(3, 10), Fraction(3, 10**6))
    with pytest.raises(rt.BudgetExhausted):
        rt.Charged(Reads(epsilon=0.1, delta=1e-6), budget).fit(X, Y)


# ── searches ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_clones_share_the_ledger() -> None:
    model = rt.Charged(LEARNER, ledger())
    again = clone(make_pipeline(FunctionTransformer(), model))[-1]
    assert again.ledger is model.ledger
    assert again.estimator is not model.estimator
    assert again.get_params()["estimator__epsilon"] == 1


def test_the_twin_that_clones_its_ledger_never_runs_out() -> None:
    """What would be wrong: a new ledger for each clone. The check of cross-validation below rejects it."""

    class Fresh(rt.Charged):
        def __sklearn_clone__(self) -> Self:
            return type(self)(clone(self.estimator), ledger())

    budget = ledger(5)
    cross_val_score(Fresh(LEARNER, budget), X, Y, cv=5)
    assert budget.spent.used == 0


def test_cross_validation_pays_for_each_fold_in_full() -> None:
    budget = ledger(5)
    scores = cross_val_score(rt.Charged(LEARNER, budget), X, Y, cv=5)
    assert len(scores) == 5
    assert budget.spent.used == 5


def test_cross_validation_beyond_the_budget_is_refused() -> None:
    budget = ledger(3)
    with pytest.raises(rt.BudgetExhausted):
        cross_val_score(rt.Charged(Reads(), budget), X, Y, cv=5, error_score="raise")
    assert Reads.read == 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_scikit_learn_swallows_a_refusal_unless_told_to_raise() -> None:
    """What the guide warns of: scores are missing, but nothing is overspent."""
    scores = cross_val_score(rt.Charged(Reads(), ledger(3)), X, Y, cv=5)
    assert np.isnan(scores).sum() == 2
    assert Reads.read == 3


def test_a_grid_search_pays_for_all_candidates_and_the_refit() -> None:
    budget = ledger(100)
    search = GridSearchCV(rt.Charged(LEARNER, budget), {"estimator__epsilon": [1, 2]}, cv=3, error_score="raise")
    search.fit(X, Y)
    best = search.best_params_["estimator__epsilon"]
    assert budget.spent.used == 3 * (1 + 2) + best
    assert search.best_estimator_.guarantee_.epsilon == best


def test_threads_share_a_ledger_in_memory() -> None:
    budget = ledger(4)
    with joblib.parallel_config(backend="threading"), pytest.raises(rt.BudgetExhausted):
        cross_val_score(rt.Charged(Reads(), budget), X, Y, cv=5, n_jobs=2, error_score="raise")
    assert budget.spent.used == 4


@pytest.mark.slow
def test_processes_share_a_ledger_in_a_file(tmp_path: Path) -> None:
    budget = rt.LedgerFile.create(tmp_path / "tuning.ledger", rt.Guarantee(epsilon=4.0))
    with joblib.parallel_config(backend="loky"), pytest.raises(rt.BudgetExhausted):
        cross_val_score(rt.Charged(LEARNER, budget), X, Y, cv=5, n_jobs=2, error_score="raise")
    assert budget.spent.used == 4


@pytest.mark.slow
def test_processes_do_not_get_a_ledger_in_memory() -> None:
    budget = ledger(4)
    with joblib.parallel_config(backend="loky"), pytest.raises(Exception, match="pickle") as refused:
        cross_val_score(rt.Charged(LEARNER, budget), X, Y, cv=5, n_jobs=2, error_score="raise")
    causes = [refused.value, refused.value.__cause__, refused.value.__context__]
    assert any("share a LedgerFile among processes" in str(one) for one in causes)
    assert budget.spent.used == 0


def test_an_unfitted_one_is_pickled_with_a_file_only(tmp_path: Path) -> None:
    budget = rt.LedgerFile.create(tmp_path / "tuning.ledger", rt.Guarantee(epsilon=4.0))
    pickle.loads(pickle.dumps(rt.Charged(LEARNER, budget))).fit(X, Y)
    assert budget.spent.used == 1
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(rt.Charged(LEARNER, ledger()))


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("estimator", [LogisticRegression(), make_pipeline(LEARNER), None, "votes"])
def test_estimators_that_state_no_price(estimator: Any) -> None:
    budget = ledger()
    with pytest.raises(TypeError, match="estimator must be private, with the parameter epsilon"):
        rt.Charged(estimator, budget).fit(X, Y)
    assert budget.events == {}


@pytest.mark.parametrize("estimator", [HuberRegressor(epsilon=1.5), Reads(found=2), Reads(found=None)])
def test_what_guarantees_less_than_was_charged_is_discarded(estimator: Any) -> None:
    """An epsilon may mean something else. The charge stays, since rows were read."""
    budget = ledger()
    model = rt.Charged(estimator, budget)
    with pytest.raises(TypeError, match=r"guarantee.*the model is discarded"):
        model.fit(X, Y)
    assert sum(budget.events.values()) == 1
    assert not hasattr(model, "estimator_")


def test_a_learner_that_protects_labels_only() -> None:
    from reticent.concepts import Thresholds

    learner = rt.LabelPrivateLearner(Thresholds(bits=4), epsilon=1)
    budget = ledger()
    with pytest.raises(ValueError, match="protects labels only"):
        rt.Charged(learner, budget).fit(X, Y)
    assert budget.events == {}
    rt.Charged(learner, rt.Ledger(rt.Guarantee(epsilon=1.0, protects="labels"))).fit(X, Y)


def test_seeded_noise_needs_a_seeded_ledger() -> None:
    learner = rt.ThresholdLearner(bits=4, epsilon=1, unsafe_seed=0)
    with pytest.raises(ValueError, match="seeded"):
        rt.Charged(learner, ledger()).fit(X, Y)
    rt.Charged(learner, rt.Ledger(rt.Guarantee(epsilon=1.0, seeded=True))).fit(X, Y)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf")])
def test_a_bad_epsilon_is_refused_before_a_row_is_read(epsilon: float) -> None:
    budget = ledger()
    with pytest.raises(ValueError, match="epsilon"):
        rt.Charged(Reads(epsilon=epsilon), budget).fit(X, Y)
    assert (budget.events, Reads.read) == ({}, 0)


def test_a_ledger_by_groups_does_not_take_a_fit_by_rows() -> None:
    budget = rt.Ledger(rt.Guarantee(epsilon=2.0, unit="group"))
    with pytest.raises(TypeError, match="the model is discarded"):
        rt.Charged(LEARNER, budget).fit(X, Y)


def test_it_stores_only_and_repeats_nothing() -> None:
    budget = ledger()
    model = rt.Charged(LEARNER, budget)
    assert vars(model) == {"estimator": LEARNER, "ledger": budget}
    assert "Ledger" in repr(model)


@pytest.mark.slow
def test_scikit_learn_accepts_it_with_a_ledger_in_a_file(tmp_path: Path) -> None:
    seeded = rt.Guarantee(epsilon=1e6, delta=0.5, seeded=True)
    budget = rt.LedgerFile.create(tmp_path / "checks.ledger", seeded)
    learner = rt.PrivateLogisticRegression(epsilon=20, delta=1e-6, row_norm=5, unsafe_seed=0)
    check_estimator(rt.Charged(learner, budget), on_skip=None)
    assert budget.spent.used > 0
