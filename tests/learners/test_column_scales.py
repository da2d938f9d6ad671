from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from reticent import noise
from reticent.audit import exact, law
from reticent.learners import PrivateLogisticRegression
from reticent.learners.class_weights import CountsPlan
from reticent.learners.column_scales import (
    BINS,
    ScalesPlan,
    column_factors,
    exponent_counts,
    plan_scales,
    release_exponents,
    squared_sensitivity,
)
from reticent.learners.descent import DescentPlan, plan_descent
from reticent.learners.lattice import shortened
from reticent.learners.levels import Reach, plain_level, reach_for_counts, usual_reach
from reticent.noise import Noise
from reticent.privacy import delta, fits
from reticent.privacy.events import DiscreteGaussian

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
BUDGET: dict[str, Any] = {"epsilon": Fraction(1), "delta": Fraction(1, 10**6)}


# ── privacy: what a replaced row can move ─────────────────────────────────────────────────────────────────────────


def with_zeros(rows: Array) -> Array:
    """The twin that also counts in which columns a row has values at all."""
    return np.hstack([exponent_counts(rows), 2 * (rows != 0).sum(axis=0)[:, None]])


def moved(first: Any, second: Any, counts: Callable[[Any], Array] = exponent_counts) -> int:
    return sum((int(a) - int(b)) ** 2 for a, b in zip(counts(first).flat, counts(second).flat, strict=True))


@pytest.mark.slow
def test_the_bound_is_attained_and_not_exceeded() -> None:
    values = [0.0, 1.0, -0.6, 0.3, 1e-3, -1e-3, 1e-9, 1e-300, 5e-324]
    rows = [np.array([pair]) for pair in product(values, repeat=2)]
    assert max(moved(a, b) for a in rows for b in rows) == squared_sensitivity(2) == 4
    assert max(moved(a, b, with_zeros) for a in rows for b in rows) > 4


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_replaced_row_keeps_the_bound(seed: int, is_sparse: bool) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = int(generator.integers(1, 30)), int(generator.integers(1, 8))
    X = generator.normal(size=(rows, columns)) * 10.0 ** generator.integers(-12, 3, columns)
    X[generator.random(X.shape) < 0.3] = 0
    other = X.copy()
    other[0] = generator.normal(size=columns) * 10.0 ** generator.integers(-300, 300)
    form = sparse.csr_array if is_sparse else np.array
    sets = [shortened(form(each), 2.0) for each in (X, other)]
    assert moved(*sets) <= squared_sensitivity(columns)
    released = release_exponents(sets[0], sigma=Fraction(3))
    assert released.event == DiscreteGaussian(Fraction(3), 2 * columns)


def test_zeros_count_for_nothing_whether_they_are_stored_or_not() -> None:
    X = np.array([[0.5, 0.0, 0.001], [0.0, 0.0, -1.0]])
    stored = sparse.csr_array((np.array([0.5, 0.0, 0.001, 0.0, -1.0]), [0, 1, 2, 0, 2], [0, 3, 5]), shape=(2, 3))
    for form in (X, np.asfortranarray(X), sparse.csr_array(X), stored):
        assert np.array_equal(exponent_counts(form), exponent_counts(X))
    assert exponent_counts(X).sum() == 3
    assert exponent_counts(X)[2, [0, 9]].tolist() == [1, 1]
    assert exponent_counts(np.array([[math.nan, math.inf, 1e-40]])).sum() == 0


@pytest.mark.parametrize(("scale", "kept"), [(Fraction(1), True), (Fraction(1, 2), False)])
def test_the_exact_law_of_two_bins(scale: Fraction, kept: bool) -> None:
    event = DiscreteGaussian(Fraction(2), squared_sensitivity(1))

    class FirstTwo(Noise):
        """Noise for the bins that differ; all others are equal, and their noise changes no divergence."""

        def __init__(self, source: Noise) -> None:
            self.source = source

        def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
            return np.append(self.source.discrete_gaussian(sigma, 2), np.zeros((size or 2) - 2, dtype=np.int64))

    def run(value: float, source: Noise) -> tuple[int, ...]:
        released = release_exponents(
            np.array([[value]]), sigma=event.sigma * scale, unsafe_noise=FirstTwo(source)
        )
        return tuple(int(count) for count in released.value[:2])

    pair = exact(*(law(partial(run, value), tail_bits=30) for value in (0.9, 0.4)))
    assert all(pair.delta(at)[1] <= delta(event, epsilon=at) + 1e-6 for at in (0, 0.5, 1, 2)) == kept


# ── privacy: what is composed ─────────────────────────────────────────────────────────────────────────────────────


def steps_of_the_level(**known: Any) -> DescentPlan:
    """The twin that plans as many steps as the level needs that a noisy count led to."""
    return plan_descent(**known | {"most_level": None})


@pytest.mark.parametrize("columns", [9, 60])
@pytest.mark.parametrize(("planned", "fixed"), [(plan_descent, True), (steps_of_the_level, False)])
def test_no_event_depends_on_the_noisy_count(
    columns: int, planned: Any, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.learners.logistic_settings.plan_descent", planned)
    known = PrivateLogisticRegression(**DP, row_norm=1).settings()
    size: dict[str, Any] = {"rows": 5000, "columns": columns, "classes": 2}
    plan = known.plan(**size)
    assert plan.counts is not None
    counts = (-500, 0, 20, 100, 2500, 4990, 9999)
    reaches = [reach_for_counts(plan.reach, np.array([count]), plan.counts) for count in counts]
    found = [known.plan(**size, reach=reach) for reach in reaches]
    if columns > 32:  # with few columns the level is the greatest anyway
        assert len({each.descent.rate for each in found}) > 1
        assert ({each.event for each in found} == {plan.event}) == fixed
    assert fits(plan.event, **BUDGET)


def test_what_is_drawn_is_fixed_before_rows_and_labels_are_read() -> None:
    lists = []
    for seed, share in ((0, 0.5), (1, 0.01), (2, 0.0)):
        generator = np.random.default_rng(seed)
        draws: list[tuple[Fraction, int]] = []

        class Counting(noise.Seeded):
            def discrete_gaussian(
                self, sigma: Fraction, size: int | None = None, draws: list[Any] = draws
            ) -> Any:
                draws.append((sigma, size or 1))
                return super().discrete_gaussian(sigma, size)

        X = generator.normal(size=(3000, 40)) * 10.0 ** generator.integers(-6, 1, 40)
        y = (generator.random(3000) < share).astype(int)
        model = PrivateLogisticRegression(**DP, row_norm=7, classes=[0, 1])
        model.fit_with_noise(X, y, Counting(unsafe_seed=3))
        lists.append((draws, model.event_))
    assert lists[0] == lists[1] == lists[2]


# ── the factors ───────────────────────────────────────────────────────────────────────────────────────────────────


def plan_of(rows: int, columns: int) -> ScalesPlan:
    return plan_scales(rows=rows, columns=columns, share=Fraction(8, 100), **BUDGET)


def test_columns_of_one_scale_stay_and_small_ones_are_raised() -> None:
    generator = np.random.default_rng(0)
    plan = plan_of(50_000, 3)
    even = shortened(generator.choice([0.0, 1.0], size=(50_000, 3)), 2.0)
    factors = column_factors(exponent_counts(even).ravel(), plan)
    assert len(set(factors.tolist())) == 1
    uneven = even * [1.0, 2.0**-10, 2.0**-3]
    factors = column_factors(exponent_counts(uneven).ravel(), plan)
    assert (factors / factors[0]).tolist() == [1, 2.0**9, 2.0**2]  # up to the factor of 2 that is left alone
    lengths = np.linalg.norm(uneven * factors, axis=1)
    assert 0.3 < math.sqrt(float((lengths**2).mean())) < 3


def test_columns_that_show_nothing_are_not_raised() -> None:
    plan = plan_of(5000, 4)
    assert column_factors(np.zeros(4 * BINS, dtype=np.int64), plan).tolist() == [1.0] * 4
    counts = np.zeros((4, BINS), dtype=np.int64)
    counts[0, 3], counts[1, 9] = 5000, 5000
    factors = column_factors(counts.ravel(), plan)
    assert factors[0] == factors[2] == factors[3] < factors[1]
    rough = np.random.default_rng(0).normal(size=4 * BINS) * float(plan.sigma)
    assert np.isfinite(column_factors(rough.astype(np.int64), plan)).all()


def test_the_level_falls_with_columns_and_rises_for_rare_classes() -> None:
    assert usual_reach(10, 1000, scaled=True) == Reach(3.0, 1.0, 1.4)
    assert usual_reach(10, 50, scaled=False) == Reach(2.0, 1.0, 1.4)
    assert usual_reach(480, 2000, scaled=True) == Reach(math.sqrt(0.5), 0.75, 1.4)
    assert usual_reach(60, 120, scaled=False) == Reach(1.0, 1.0, 1.4)
    assert usual_reach(60, 60 * 60, scaled=True) == Reach(2.0, 0.5, 1.4)
    assert usual_reach(60, 60 * 300, scaled=True) == Reach(2.0, 0.5, 2.0)
    assert plain_level(50) == 2 > plain_level(200) > plain_level(10**5) == 1.4
    counts = CountsPlan(10_000, 2, Fraction(10))
    usual = usual_reach(240, 2000, scaled=True)

    def reach(*released: int, missing: bool = False) -> Reach:
        return reach_for_counts(usual, np.array(released), replace(counts, missing=missing))

    assert reach(5000) == reach(500) == usual
    for count in (105, 9895):
        found = reach(count)
        assert found.level == pytest.approx(math.sqrt(4), rel=1e-9)
        assert found.power == 0.4
    assert reach(-(10**9)).level == 3
    # Where labels may be missing, both counts are known, and fewer labels than expected make no class rare.
    assert reach(9895, 105, missing=True) == reach(105)
    assert reach(500, 500, missing=True) == reach(0, 0, missing=True) == reach(-50, 40, missing=True) == usual
    assert reach(5000, 10, missing=True).power == 0.4
    assert reach_for_counts(usual_reach(10, 2000, scaled=True), np.array([0]), counts).power == 1


# ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_forty_columns_of_very_different_scales_are_repaired() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(7000, 40))
    y = (X @ generator.normal(size=40) > 0).astype(int)
    X *= np.logspace(0, 5, 40)
    known: dict[str, Any] = {**DP, "row_norm": 3e5, "unsafe_seed": 1}
    model, plain = (
        PrivateLogisticRegression(**known, rounds=rounds).fit(X[:5000], y[:5000]).score(X[5000:], y[5000:])
        for rounds in ("auto", 0)
    )
    assert model > 0.9
    assert plain < 0.8


@pytest.mark.slow
def test_a_rare_class_on_one_hot_columns_is_ranked_no_worse_than_by_the_plain_descent() -> None:
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, 10, size=(26_000, 12)) + 10 * np.arange(12)
    parts = (np.ones(chosen.size), chosen.ravel(), np.arange(0, chosen.size + 1, 12))
    X = sparse.csr_matrix(parts, shape=(26_000, 120))
    scores = X @ generator.normal(size=120) + generator.normal(size=26_000)
    y = (scores > np.quantile(scores, 0.99)).astype(int)
    train, test = slice(0, 20_000), slice(20_000, 26_000)
    found = {}
    for rounds in ("auto", 0):
        learner = PrivateLogisticRegression(**DP, row_norm=math.sqrt(12), rounds=rounds)
        models = [clone(learner).set_params(unsafe_seed=seed).fit(X[train], y[train]) for seed in range(3)]
        found[rounds] = np.mean([roc_auc_score(y[test], model.decision_function(X[test])) for model in models])
    assert found["auto"] > found[0] - 0.03


def test_nothing_is_drawn_for_scales_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouched(Noise):
        def random_bytes(self, count: int) -> bytes:
            raise AssertionError("noise was drawn")

    def for_half_the_sensitivity(**known: Any) -> ScalesPlan:
        plan = plan_scales(**known)
        return ScalesPlan(plan.rows, plan.columns, plan.share, plan.sigma / 4)

    monkeypatch.setattr("reticent.learners.logistic_settings.plan_scales", for_half_the_sensitivity)
    X = np.random.default_rng(0).normal(size=(3000, 5))
    with pytest.raises(ValueError, match="cannot be certified"):
        PrivateLogisticRegression(**DP, row_norm=3, classes=[0, 1]).fit_with_noise(X, np.arange(3000) % 2, Untouched())
