from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

from reticent.audit import exact, law
from reticent.learners import PrivateLogisticRegression
from reticent.learners.class_weights import (
    CountsPlan,
    balanced_weights,
    plan_counts,
    public_weights,
    release_class_counts,
    squared_sensitivity,
)
from reticent.learners.descent import (
    DescentPlan,
    class_targets,
    gradient_sum,
    integer_residuals,
    integer_rows,
    plan_descent,
    probabilities,
)
from reticent.learners.lattice import shortened
from reticent.noise import Noise
from reticent.privacy import delta, fits
from reticent.privacy.events import Composed, DiscreteGaussian

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
BUDGET: dict[str, Any] = {"epsilon": Fraction(1), "delta": Fraction(1, 10**6)}


class Silent(Noise):
    """No noise at all, so that what is released can be looked at."""

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return np.zeros(size or 1, dtype=np.int64)


def rare(rows: int, share: float = 0.1, *, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    y = (generator.random(rows) < share).astype(int)
    return generator.normal(size=(rows, 4)) + y[:, None] * [1.0, 0.7, 0, 0], y


# ── privacy: the counts ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_replaced_label_moves_the_counts_by_what_is_accounted_and_not_less(classes: int) -> None:
    def counts(labels: Any) -> Array:
        return release_class_counts(np.array(labels), classes, sigma=Fraction(1), unsafe_noise=Silent()).value

    moves = [
        int(((counts([a, 0, 1]) - counts([b, 0, 1])) ** 2).sum()) for a, b in product(range(classes), repeat=2)
    ]
    assert max(moves) == squared_sensitivity(classes)
    assert release_class_counts(np.array([0, 1]), classes, sigma=Fraction(3)).event == DiscreteGaussian(
        Fraction(3), squared_sensitivity(classes)
    )


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("scale", "kept"), [(Fraction(1), True), (Fraction(1, 2), False)])
def test_the_exact_law_of_the_counts(classes: int, scale: Fraction, kept: bool) -> None:
    event = DiscreteGaussian(Fraction(2), squared_sensitivity(classes))

    def run(labels: Any, noise: Noise) -> tuple[int, ...]:
        released = release_class_counts(
            np.array(labels), classes, sigma=event.sigma * scale, unsafe_noise=_FirstTwo(noise)
        )
        return tuple(int(count) for count in released.value)

    pair = exact(*(law(partial(run, labels), tail_bits=30) for labels in ([0, 0], [1, 0])))
    assert all(pair.delta(at)[1] <= delta(event, epsilon=at) + 1e-6 for at in (0, 0.5, 1, 2)) == kept


class _FirstTwo(Noise):
    """Noise for at most two counts: others are equal for both neighbours, and their noise changes no divergence."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        drawn = self.noise.discrete_gaussian(sigma, min(size or 1, 2))
        return np.append(drawn, np.zeros((size or 1) - len(drawn), dtype=np.int64))


# ── privacy: weights in the descent ───────────────────────────────────────────────────────────────────────────────


def plan_for(classes: int) -> DescentPlan:
    return plan_descent(rows=1, columns=3, classes=classes, **BUDGET)


def pull(row: Array, label: int, by: Array, at: Array, plan: DescentPlan, *, twin: bool = False) -> Array:
    """What one row adds to the sum of a step, in whole numbers."""
    whole = integer_rows(shortened(row[None], 1.0), plan)
    residuals = class_targets(np.array([label]), max(2, plan.outputs)) - probabilities(whole, at, plan)
    if twin:  # weights after the length was checked
        return gradient_sum(whole, np.rint(integer_residuals(residuals, plan) * by[label]))
    return gradient_sum(whole, integer_residuals(residuals, plan, by[[label]]))


def farthest(by: Array, classes: int, *, twin: bool = False) -> int:
    plan, moves = plan_for(classes), []
    at = np.zeros((4, plan.outputs))
    for first, second in product(product(([1.0, 0, 0], [-1.0, 0, 0]), range(classes)), repeat=2):
        sums = [pull(np.array(row), label, by, at, plan, twin=twin) for row, label in (first, second)]
        moves.append(sum((int(a) - int(b)) ** 2 for a, b in zip(sums[0].flat, sums[1].flat, strict=True)))
    return max(moves)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0, 1.5, 1e300, math.nan])
def test_no_weight_lets_a_row_pull_harder(classes: int, weight: float) -> None:
    by = np.ones(classes)
    by[1] = weight
    bound = plan_for(classes).squared_sensitivity
    assert farthest(by, classes) <= bound
    if 1 < weight < 2:  # as a twin does that applies it after the check
        assert farthest(by, classes, twin=True) > bound


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]))
@settings(max_examples=100, deadline=None)
def test_weighted_rows_keep_the_bound_anywhere(seed: int, classes: int) -> None:
    generator, plan = np.random.default_rng(seed), plan_for(classes)
    by = generator.random(classes) * 10.0 ** generator.integers(-3, 2)
    at = generator.normal(size=(4, plan.outputs)) * 10.0 ** generator.integers(-2, 3)
    rows = generator.normal(size=(2, 3)) * 10.0 ** generator.integers(-3, 4, (2, 1))
    sums = [pull(row, int(generator.integers(classes)), by, at, plan) for row in rows]
    assert sum((int(a) - int(b)) ** 2 for a, b in zip(sums[0].flat, sums[1].flat, strict=True)) <= (
        plan.squared_sensitivity
    )


# ── privacy: what is composed ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rounds", ["auto", 0])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("epsilon", [0.01, 1, 50])
def test_all_releases_together_fit_the_budget_and_use_it_up(rounds: Any, classes: int, epsilon: float) -> None:
    model = PrivateLogisticRegression(epsilon=epsilon, delta=1e-6, row_norm=1, rounds=rounds, class_weight="balanced")
    plan = model.settings().plan(rows=5000, columns=9, classes=classes)
    assert plan.counts is not None
    scales = [] if plan.scales is None else [plan.scales.event]
    assert plan.event == Composed((plan.counts.event, *scales, *plan.moments.events, plan.descent.event))
    assert fits(plan.event, epsilon=epsilon, delta=1e-6)
    assert not fits(plan.event, epsilon=0.98 * epsilon, delta=1e-6)
    less = plan_counts(rows=5000, classes=classes, epsilon=Fraction(str(epsilon)), delta=Fraction(1, 10**6))
    assert less == plan.counts
    twin = replace(plan, counts=replace(less, sigma=less.sigma / 4))  # noise for a sixteenth of the counts' share
    assert not fits(twin.event, epsilon=epsilon, delta=1e-6)


def test_noise_is_drawn_as_the_event_says(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[tuple[Fraction, int]] = []

    class Counting(Noise):
        def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
            draws.append((sigma, size or 1))
            return super().discrete_gaussian(sigma, size)

    monkeypatch.setattr("reticent.mechanisms.release.system", Counting())
    X, y = rare(300)
    model = PrivateLogisticRegression(**DP, row_norm=4, rounds=0, class_weight="balanced").fit(X, y)
    counts, steps = cast("Any", model.event_).events
    assert draws == [(counts.sigma, 1)] + [(steps.event.sigma, 5)] * steps.times
    draws.clear()
    public = PrivateLogisticRegression(**DP, row_norm=4, rounds=0, class_weight={0: 1, 1: 3}).fit(X, y)
    plain = PrivateLogisticRegression(**DP, row_norm=4, rounds=0).fit(X, y)
    assert public.event_ == plain.event_  # public weights cost nothing


# ── the weights ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_balanced_weights_are_between_a_fifth_and_1() -> None:
    two = CountsPlan(1000, 2, Fraction(5))
    assert balanced_weights(np.array([500]), two).tolist() == [1, 1]
    assert balanced_weights(np.array([20]), two).tolist() == [0.2, 1]
    assert balanced_weights(np.array([800]), two).tolist() == [1, 0.25]
    for released in (-30, 0, 9, 1000, 1030, 10**9, -(10**9)):  # one class is not seen: nothing is made lighter
        assert balanced_weights(np.array([released]), two).tolist() == [1, 1]
    many = CountsPlan(1000, 3, Fraction(5))
    assert balanced_weights(np.array([-4, 250, 750]), many).tolist() == [1, 1, 1 / 3]
    assert balanced_weights(np.array([-4, 2, 3]), many).tolist() == [1, 1, 1]


def test_public_weights_are_divided_by_the_largest() -> None:
    classes = np.array(["a", "b", "c"])
    assert public_weights({"a": Fraction(2), "c": Fraction(4)}, classes).tolist() == [0.5, 0.25, 1]
    X, y = rare(400)
    model, same, plain = (
        PrivateLogisticRegression(**DP, row_norm=4, unsafe_seed=1, class_weight=weights).fit(X, y)
        for weights in ({0: 1, 1: 4}, {0: 0.25}, None)
    )
    assert model.class_weights_ is not None
    assert model.class_weights_.tolist() == [0.25, 1]
    assert np.array_equal(model.coef_, same.coef_)
    assert plain.class_weights_ is None


@pytest.mark.slow
@pytest.mark.parametrize("rounds", ["auto", 0])
def test_balanced_weights_find_more_of_a_rare_class(rounds: Any) -> None:
    X, y = rare(20_000)
    known: dict[str, Any] = {**DP, "row_norm": 5, "rounds": rounds, "unsafe_seed": 0}
    plain, balanced, given = (
        PrivateLogisticRegression(**known, class_weight=weights).fit(X, y)
        for weights in (None, "balanced", {1: 5})
    )
    found = [balanced_accuracy_score(y, model.predict(X)) for model in (plain, balanced, given)]
    assert min(found[1:]) > found[0] + 0.05
    assert balanced.class_weights_ is not None
    assert balanced.class_weights_.tolist() == [0.2, 1]
    for model in (plain, balanced, given):
        assert np.array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


class Untouchable:
    """Rows that fail the test when they are looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the rows were looked at")


@pytest.mark.parametrize(
    "bad", ["even", 3, [1, 2], {0: 0}, {0: -1}, {0: math.inf}, {0: math.nan}, {0: "1"}, {0: None}, {0: True}]
)
def test_weights_are_checked_before_the_rows_are_touched(bad: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^class_weight must"):
        PrivateLogisticRegression(**DP, row_norm=1, class_weight=bad).fit(Untouchable(), Untouchable())


def test_weights_of_labels_that_are_no_class_are_refused() -> None:
    X, y = rare(50, 0.5)
    learner = PrivateLogisticRegression(**DP, row_norm=1, class_weight={0: 1, 7: 1})
    with pytest.raises(ValueError, match="class_weight must name no label but those in classes"):
        learner.fit(X, y)
    with pytest.raises(ValueError, match="class_weight must name no label but those in classes"):
        learner.set_params(classes=[0, 1]).fit(Untouchable(), Untouchable())
