from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reticent import EverlastingPredictor, InsufficientData, PrivateComparison, PrivateLogisticRegression
from reticent.audit import exact, law
from reticent.learners.comparison import (
    ComparisonPlan,
    Scores,
    compare,
    plan_comparison,
    planned_event,
    share_of_budget,
)
from reticent.learners.descent import release_variance
from reticent.mechanisms.counts import gaussian_count
from reticent.noise import Noise
from reticent.privacy import delta, fits, rho
from reticent.privacy.events import DiscreteGaussian, Parallel, SeededRelease

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
BUDGET: dict[str, Any] = {"epsilon": Fraction(1), "delta": Fraction(1, 10**6)}


def pair(features: int = 20, **changes: Any) -> list[PrivateLogisticRegression]:
    known = {**DP, "row_norm": 1.5, **changes}
    return [PrivateLogisticRegression(**known), PrivateLogisticRegression(**known, fourier_features=features)]


def xor(rows: int) -> tuple[Array, Array]:
    X = np.random.default_rng(0).uniform(-1, 1, (rows, 2))
    return X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)


# ── privacy: the exact law of the comparison ──────────────────────────────────────────────────────────────────────

TRIAL, COUNTS = DiscreteGaussian(Fraction(1), 1), DiscreteGaussian(Fraction(3, 2), 2)


class Tiny:
    """A private model that is one noisy sum of labels: it says 1 if that is positive."""

    def __init__(self, peeks_at: Array | None = None) -> None:
        self.peeks_at = peeks_at

    def fit_with_noise(self, X: Array, labels: Array, unsafe_noise: Noise | None) -> Tiny:
        seen = labels if self.peeks_at is None else self.peeks_at
        self.trained_on = tuple(X[:, 0])
        self.value = gaussian_count(int(seen.sum()), sigma=TRIAL.sigma, unsafe_noise=unsafe_noise).value
        return self

    def predict(self, X: Array) -> Array:
        return np.full(len(X), int(self.value > 0))


class Yes(Tiny):
    """A model that always says 1, and is never wrong in the same way."""

    def fit_with_noise(self, X: Array, labels: Array, unsafe_noise: Noise | None) -> Tiny:
        return self

    def predict(self, X: Array) -> Array:
        return np.ones(len(X), dtype=int)


def released(labels: tuple[int, ...], noise: Noise, *, sigma: Fraction, peeks: bool) -> Any:
    """All that one comparison of two rows releases, and which rows were in which role."""
    X, y = np.arange(len(labels), dtype=float)[:, None], np.array(labels)
    trial = Tiny(y if peeks else None)
    trials: Any = (trial, Yes())
    plan = ComparisonPlan(len(labels), 1, trials, (), DiscreteGaussian(sigma, 2), TRIAL)
    counts = compare(plan, X, y, noise).counts
    return trial.trained_on, trial.value, counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "peeks", "kept"),
    [(COUNTS.sigma, False, True), (COUNTS.sigma, True, False), (Fraction(1, 100), False, False)],
    ids=["as it is", "held-out rows are trained on as well", "counts without noise"],
)
def test_the_exact_law_of_a_comparison(sigma: Fraction, peeks: bool, kept: bool) -> None:
    """Whichever role a row has, it pays for that role alone."""
    claimed = Parallel((TRIAL, COUNTS))
    laws = [law(partial(released, labels, sigma=sigma, peeks=peeks), tail_bits=14) for labels in ((0, 0), (1, 0))]
    found = exact(*laws)
    assert all(found.delta(at)[1] <= delta(claimed, epsilon=at) + 1e-3 for at in (0.25, 0.5, 1, 1.5)) == kept


# ── privacy: roles ────────────────────────────────────────────────────────────────────────────────────────────────


def roles(model: PrivateComparison, monkeypatch: pytest.MonkeyPatch, X: Array, y: Array, **more: Any) -> Any:
    """The rows that each fit of a comparison sees, by the number in their first column."""
    seen: list[set[float]] = []
    tested: list[set[float]] = []
    fit, predict = PrivateLogisticRegression.fit_with_noise, PrivateLogisticRegression.predict

    def spied_fit(self: Any, X: Array, y: Array, noise: Any) -> Any:
        seen.append(set(X[:, 0]))
        return fit(self, X, y, noise)

    def spied_predict(self: Any, X: Array) -> Any:
        tested.append(set(X[:, 0]))
        return predict(self, X)

    monkeypatch.setattr(PrivateLogisticRegression, "fit_with_noise", spied_fit)
    monkeypatch.setattr(PrivateLogisticRegression, "predict", spied_predict)
    model.fit(X, y, **more)
    return seen, tested


def test_each_row_has_one_role_and_all_are_in_the_last_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.column_stack([np.arange(100), np.ones(100)]).astype(float), np.arange(100) % 2
    (first, second, last), tested = roles(PrivateComparison(pair(4), **DP), monkeypatch, X, y)
    assert first == second
    assert tested == [tested[0]] * 2
    assert not first & tested[0]
    assert first | tested[0] == last == set(range(100))
    assert len(tested[0]) == 20


def test_one_row_of_each_group_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.column_stack([np.arange(100), np.ones(100)]).astype(float), np.arange(100) % 2
    model = PrivateComparison(pair(4), **DP)
    seen, _ = roles(model, monkeypatch, X, y, groups=np.arange(100) // 4)
    assert seen[-1] == set(range(0, 100, 4))
    assert model.guarantee_.unit == "group"


# ── privacy: what is composed ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("epsilon", [0.01, 1, 60])
@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("estimators", [pair(), [*pair(), *pair(rounds=0)]], ids=["two", "four"])
def test_everything_together_fits_the_budget_and_uses_it_up(epsilon: float, share: float, estimators: Any) -> None:
    whole = {"epsilon": Fraction(str(epsilon)), "delta": Fraction(1, 10**6)}
    plan = plan_comparison(
        estimators, rows=5000, columns=2, classes=np.array([0, 1]), **whole, share=Fraction(str(share)),
        held_out=Fraction(1, 5),
    )  # fmt: skip
    assert fits(plan.event, **whole)
    assert not fits(plan.event, epsilon=whole["epsilon"] * Fraction(98, 100), delta=whole["delta"])
    # Which estimator is chosen depends on the counts, so the price of the last fit must cover each of them.
    assert isinstance(plan.event, Parallel)
    for member in plan.event.events:
        last: Any = member.events[-1]  # type: ignore[attr-defined]
        assert all(rho(planned_event(one, rows=5000, columns=2, classes=2)) <= last.rho for one in plan.finals)
    assert plan.counts.squared_sensitivity == len(estimators)


@pytest.mark.slow
def test_what_was_planned_is_what_happens() -> None:
    X, y = xor(2_000)
    model = PrivateComparison(pair(), **DP, classes=(0, 1), unsafe_seed=0).fit(X, y)
    plan = plan_comparison(
        pair(), rows=2000, columns=2, classes=np.array([0, 1]), **BUDGET, share=Fraction(1, 10), held_out=Fraction(1, 5)
    )
    assert model.event_ == SeededRelease(plan.event) == model.model_.event_
    for one, rows in ((plan.trials[1], 1600), (plan.finals[0], 2000)):
        fitted = one.fit(X[:rows], y[:rows])
        assert fitted.event_ == planned_event(one, rows=rows, columns=2, classes=2)


@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)])
def test_a_share_of_the_budget_is_a_share_of_mu_squared(share: Fraction) -> None:
    part = share_of_budget(BUDGET["epsilon"], BUDGET["delta"], share)
    ratio = release_variance(**BUDGET) / release_variance(part, BUDGET["delta"])
    assert float(ratio / share) == pytest.approx(1, abs=1e-3)


# ── what it finds ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_better_model_is_taken() -> None:
    wide = np.random.default_rng(0).normal(size=(4_000, 20))
    for X, y, best in ((*xor(4_000), 1), (wide, (wide.sum(axis=1) > 0).astype(int), 0)):
        estimators = pair(60, row_norm=np.sqrt(X.shape[1]))
        model = PrivateComparison(estimators, epsilon=4, delta=1e-6, unsafe_seed=0).fit(X, y)
        assert (model.best_, model.scores_.leader, model.scores_.clear) == (best, best, True)
        assert model.score(X, y) > 0.9
        assert model.guarantee_.epsilon <= 4


def test_a_lead_has_the_error_of_noise_and_sampling() -> None:
    scores = Scores((900, 800), 1000, 10.0)
    lead, error = scores.lead(0, 1)
    assert (lead, scores.leader, scores.clear) == (0.1, 0, True)
    assert error == pytest.approx(np.sqrt(2 * 10**2 / 1000**2 + 0.3 / 1000))
    assert scores.lead(1, 0) == pytest.approx((-lead, error))
    assert not Scores((900, 880), 1000, 10.0).clear
    assert Scores((-50, 2000), 1000, 10.0).accuracies == (0.0, 1.0)


def test_labels_may_be_words() -> None:
    X, y = xor(400)
    model = PrivateComparison(pair(4), **DP).fit(X, np.array(["no", "yes"])[y])
    assert set(model.predict(X)) <= {"no", "yes"}
    assert model.predict_proba(X[:3]).shape == (3, 2)
    assert model.decision_function(X[:3]).shape == (3,)


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"epsilon": 0}, ValueError, "epsilon"),
        ({"delta": 0}, ValueError, "delta"),
        ({"share": 1}, ValueError, "share"),
        ({"share": 0}, ValueError, "share"),
        ({"held_out": 1.5}, ValueError, "held_out"),
        ({"estimators": pair()[:1]}, ValueError, "estimators"),
        ({"estimators": [1, 2]}, TypeError, "estimators"),
        ({"held_out": 0.001}, InsufficientData, "held_out"),
    ],
)
def test_bad_parameters_are_refused_by_name(changes: dict[str, Any], error: Any, named: str) -> None:
    X, y = xor(100)
    with pytest.raises(error, match=named):
        PrivateComparison(**{"estimators": pair(4), **DP, **changes}).fit(X, y)


# ── served ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore::reticent.PrivacyWarning", "ignore::reticent.OneAnswerWarning")
def test_a_predictor_keeps_the_model_and_what_was_found(tmp_path: Path) -> None:
    X, y = xor(1_000)
    predictor = EverlastingPredictor(
        PrivateComparison(pair(), **DP), epsilon=8, delta=1e-6, classes=(0, 1), engine="model", unsafe_seed=0
    ).fit(X, y)
    assert predictor.comparison_ is not None
    assert predictor.guarantee_.epsilon == 8
    assert fits(predictor.event_, epsilon=8, delta=1e-6)
    predictor.save(tmp_path / "state")
    again = EverlastingPredictor.load(tmp_path / "state")
    assert again.comparison_ == predictor.comparison_
    assert again.event_ == predictor.event_
    assert (again.predict(X) == predictor.predict(X)).all()


@pytest.mark.filterwarnings("ignore::reticent.OneAnswerWarning")  # no line separates these classes
def test_other_engines_have_no_comparison() -> None:
    X, y = xor(1_000)
    model = EverlastingPredictor(pair()[0], epsilon=1, delta=1e-6, classes=(0, 1), engine="model").fit(X, y)
    assert model.comparison_ is None
    with pytest.raises(TypeError, match="engine='model' takes a comparison"):
        EverlastingPredictor(PrivateComparison(pair(), **DP), epsilon=1, delta=1e-6, classes=(0, 1)).fit(X, y)
