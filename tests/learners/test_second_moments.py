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
from sklearn.linear_model import LogisticRegression

from reticent import noise
from reticent.audit import exact, law
from reticent.learners import PrivateLogisticRegression, logistic_fit, logistic_settings, products, second_moments
from reticent.learners.descent import release_variance
from reticent.learners.lattice import on_lattice, shortened
from reticent.learners.second_moments import (
    MomentsPlan,
    ReleaseSchedule,
    Round,
    chosen_rounds,
    moment_sum,
    plan_moments,
    release_moments,
    schedule,
    symmetric,
    whiten,
)
from reticent.learners.whitening import mapped_blocks
from reticent.noise import Noise
from reticent.privacy import delta, fits
from reticent.privacy.calibrate import sigma_of
from reticent.privacy.events import Composed, DiscreteGaussian, Repeated, SeededRelease

Array = NDArray[Any]
R = 1 << 12
BUDGET: dict[str, Any] = {"epsilon": Fraction(1), "delta": Fraction(1, 10**6)}
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


class Silent(Noise):
    """No noise at all, so that what is released can be looked at."""

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return np.zeros(size or 1, dtype=np.int64)


def badly_scaled(rows: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Six columns of scales from 1 to 10⁵, all of which matter."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 6)) + 1
    y = (X @ [1, -1, 1, -1, 1, -1] + generator.normal(size=rows) > 0).astype(int)
    return X * 10.0 ** np.arange(6), y


# ── privacy: what a replaced row can move ─────────────────────────────────────────────────────────────────────────


def moved(first: Array, second: Array, sums: Callable[[Array], Array] = moment_sum) -> int:
    """The squared distance between what is released of two integer rows, in whole numbers of any size."""
    pairs = zip(sums(first[None]).tolist(), sums(second[None]).tolist(), strict=True)
    return sum((a - b) ** 2 for a, b in pairs)


def weights_7_10(rows: Array) -> Array:
    """The twin whose weights are nearer to 1 : √2, but on the wrong side of it."""
    moments = (rows.T @ rows).astype(np.int64)
    return np.asarray((moments * np.where(np.eye(len(moments)) > 0, 7, 10))[np.triu_indices(len(moments))])


def test_the_bound_of_the_lemma_is_attained() -> None:
    first, second = np.array([R, 0.0, 0.0]), np.array([0.0, R, 0.0])
    assert moved(first, second) == 50 * R**4


@pytest.mark.parametrize(("sums", "bound", "holds"), [(moment_sum, 50, True), (weights_7_10, 98, False)])
def test_no_pair_of_integer_rows_moves_further(sums: Callable[[Array], Array], bound: int, holds: bool) -> None:
    side = math.isqrt(R**2 // 2)
    known = [np.array(row, dtype=float) for row in ([R, 0], [0, R], [side, side], [side, -side], [0, 0], [-R, 0])]
    assert all(row @ row <= R**2 for row in known)
    assert (max(moved(a, b, sums) for a, b in product(known, known)) <= bound * R**4) == holds


@given(st.data(), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_any_two_rows_within_the_radius_keep_the_bound(data: st.DataObject, columns: int) -> None:
    numbers = st.lists(st.floats(-1, 1), min_size=columns, max_size=columns)
    rows = np.array([data.draw(numbers), data.draw(numbers)])
    whole = on_lattice(shortened(rows * data.draw(st.sampled_from([1.0, 5.0])), 1.0) * R, R**2)
    assert ((whole**2).sum(axis=1) <= R**2).all()
    assert moved(whole[0], whole[1]) <= 50 * R**4


def total(rows: Any, matrix: Array, bound: float, *, constant: bool) -> list[int]:
    """What `release_moments` releases, without the noise."""
    released, _ = release_moments(
        rows, matrix, bound, constant=constant, radius=R, sigma=Fraction(1), unsafe_noise=Silent()
    )
    return [int(value) for value in released]


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_replaced_row_moves_the_release_by_no_more_than_is_accounted(seed: int, dense: bool, constant: bool) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = int(generator.integers(1, 40)), int(generator.integers(1, 6))
    X = shortened(generator.normal(size=(rows, columns)) * 10.0 ** generator.integers(-3, 4), 1.0)
    other = X.copy()
    other[0] = shortened(generator.normal(size=(1, columns)) * 10.0 ** generator.integers(-300, 300), 1.0)
    matrix = generator.normal(size=(columns + constant,) * 2) * 10.0 ** generator.integers(-8, 40, columns + constant)
    sums = [
        total(each if dense else sparse.csr_array(each), matrix, 1.7, constant=constant) for each in (X, other)
    ]
    assert sum((a - b) ** 2 for a, b in zip(*sums, strict=True)) <= 50 * R**4


def by_blas(rows: Array, matrix: Array, bound: float) -> Array:
    """The twin that maps all rows by one matrix product."""
    return np.asarray(shortened(rows @ matrix, bound))


def by_columns(rows: Array, matrix: Array, bound: float) -> Array:
    return np.vstack(list(mapped_blocks(rows, matrix, bound, constant=False)))


@pytest.mark.parametrize(("mapped", "alone"), [(by_columns, True), (by_blas, False)])
def test_what_becomes_of_a_row_depends_on_this_row_alone(mapped: Callable[..., Array], alone: bool) -> None:
    generator = np.random.default_rng(0)
    equal = []
    for columns in (3, 8, 21, 55):
        X = shortened(generator.normal(size=(300, columns)), 5.0)
        matrix = generator.normal(size=(columns, columns)) * 10.0 ** generator.integers(0, 6, columns)
        among = mapped(X, matrix, 1.3)
        equal += [np.array_equal(mapped(X[at : at + 1], matrix, 1.3)[0], among[at]) for at in range(300)]
        equal += [np.array_equal(mapped(X[at : at + 7], matrix, 1.3)[3], among[at + 3]) for at in range(0, 290, 10)]
    assert all(equal) == alone


def test_blocks_and_sparse_rows_are_mapped_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    X, matrix = shortened(generator.normal(size=(500, 4)), 3.0), generator.normal(size=(5, 5))
    X[X < 0] = 0
    found = [total(kind(X), matrix, 0.8, constant=True) for kind in (np.array, np.asfortranarray, sparse.csr_array)]
    monkeypatch.setattr(products, "BLOCK", 50)
    found.append(total(X, matrix, 0.8, constant=True))
    assert all(each == found[0] for each in found)


def test_sums_are_exact() -> None:
    generator = np.random.default_rng(2)
    whole = on_lattice(shortened(generator.normal(size=(2000, 3)), 1.0) * R, R**2)
    rows = [[int(value) for value in row] for row in whole]
    expected = [
        (5 if i == j else 7) * sum(row[i] * row[j] for row in rows) for i in range(3) for j in range(i, 3)
    ]
    assert moment_sum(whole).tolist() == expected
    assert np.array_equal(symmetric(moment_sum(whole), 3), whole.T @ whole)


@pytest.mark.parametrize("rows", [1, 10**3, 10**6, 10**8, 10**12])
@pytest.mark.parametrize("columns", [1, 50, 2000])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), Fraction(100)])
def test_sums_stay_where_floating_point_is_exact(rows: int, columns: int, epsilon: Fraction) -> None:
    rounds = chosen_rounds(20, columns).rounds
    plan = plan_moments(rows=rows, columns=columns, epsilon=epsilon, delta=Fraction(1, 10**9), rounds=rounds)
    assert 7 * rows * plan.radius**2 < 2**53
    assert max(plan.sigmas) <= 2**48
    assert plan.squared_sensitivity == 50 * plan.radius**4


# ── privacy: the exact law ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("scale", "kept"), [(Fraction(1), True), (Fraction(1, 2), False)])
def test_the_exact_law_of_one_moment(scale: Fraction, kept: bool) -> None:
    # With one column the worst pair is a row of full length in place of an empty one: it moves the sum by 5.
    event = DiscreteGaussian(Fraction(6), 50)

    def run(row: float, noise: Noise) -> int:
        released = release_moments(
            np.array([[row], [1.0]]), np.eye(1), 1.0, constant=False, radius=1, sigma=event.sigma * scale,
            unsafe_noise=noise,
        )  # fmt: skip
        return int(released.value[0])

    pair = exact(*(law(partial(run, row), tail_bits=40) for row in (0.0, 1.0)))
    assert all(pair.delta(at)[1] <= delta(event, epsilon=at) + 1e-9 for at in (0, 1, 2, 3, 4)) == kept


# ── privacy: what is composed ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rounds", ["auto", 1, 4, 15, 32])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 8, 50])
@pytest.mark.parametrize("classes", [2, 4])
def test_all_releases_together_fit_the_budget_and_use_it_up(rounds: Any, epsilon: float, classes: int) -> None:
    model = PrivateLogisticRegression(epsilon=epsilon, delta=1e-6, row_norm=1, rounds=rounds)
    public: dict[str, Any] = {"epsilon": Fraction(str(epsilon)), "delta": Fraction(1, 10**6)}
    planned = model.settings().plan(rows=5000, columns=9, classes=classes)
    event = planned.event
    assert fits(event, **public)
    assert not fits(event, epsilon=public["epsilon"] * Fraction(98, 100), delta=public["delta"])


def test_the_event_says_what_happened() -> None:
    X, y = badly_scaled(5000)
    model = PrivateLogisticRegression(**DP, row_norm=3e5, rounds="auto").fit(X, y)
    planned = model.settings().plan(rows=5000, columns=6, classes=2)
    moments, plan = planned.moments, planned.descent
    assert planned.counts is not None
    assert planned.scales is not None
    assert isinstance(model.event_, Composed)
    assert model.event_.events == (planned.counts.event, planned.scales.event, *moments.events, plan.event)
    assert len(moments.events) == 10
    assert set(moments.events) == {DiscreteGaussian(sigma_of(50 * R**4, release_variance(**BUDGET) * 50), 50 * R**4)}
    assert isinstance(plan.event, Repeated)
    assert 0.99 < model.guarantee_.epsilon <= 1


def stops_when_flat(rows: Any, plan: MomentsPlan, *, unsafe_noise: Noise | None = None, **rest: Any) -> Any:
    """The twin that looks at noisy moments to decide how many more rounds there are."""
    first, _ = release_moments(
        rows, np.eye(plan.columns), 1.0, constant=True, radius=plan.radius, sigma=plan.sigmas[0],
        unsafe_noise=unsafe_noise,
    )  # fmt: skip
    values = np.linalg.eigvalsh(symmetric(first, plan.columns))
    count = 2 if values[-1] < 15 * abs(values[0]) else len(plan.rounds)
    return whiten(
        rows, replace(plan, rounds=plan.rounds[:count], sigmas=plan.sigmas[:count]), unsafe_noise=unsafe_noise, **rest
    )


@pytest.mark.parametrize(("rounds_of", "fixed"), [(whiten, True), (stops_when_flat, False)])
def test_what_is_released_is_fixed_before_the_rows_are_read(
    rounds_of: Any, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic_fit, "whiten", rounds_of)
    lists = []
    flat = np.random.default_rng(0).choice([-1.0, 1.0], (3000, 6)) * np.sqrt(1 / 6)
    for X in (badly_scaled(3000)[0] / 1e5, flat):
        draws: list[tuple[Fraction, int]] = []

        class Counting(noise.Seeded):
            def discrete_gaussian(
                self, sigma: Fraction, size: int | None = None, draws: list[Any] = draws
            ) -> Any:
                draws.append((sigma, size or 1))
                return super().discrete_gaussian(sigma, size)

        model = PrivateLogisticRegression(**DP, row_norm=1, classes=[0, 1], rounds="auto")
        model.fit_with_noise(X, np.arange(3000) % 2, Counting(unsafe_seed=3))
        assert isinstance(model.event_, SeededRelease)
        lists.append((draws, model.event_))
    assert (lists[0] == lists[1]) == fixed


def test_nothing_is_drawn_for_an_event_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouched(Noise):
        def random_bytes(self, count: int) -> bytes:
            raise AssertionError("noise was drawn")

    def for_half_the_sensitivity(**known: Any) -> MomentsPlan:
        plan = plan_moments(**known)
        return replace(plan, sigmas=tuple(each / 2 for each in plan.sigmas))

    monkeypatch.setattr(logistic_settings, "plan_moments", for_half_the_sensitivity)
    X, y = badly_scaled(3000)
    with pytest.raises(ValueError, match="cannot be certified"):
        PrivateLogisticRegression(**DP, row_norm=3e5, rounds="auto").fit_with_noise(X, y, Untouched())


# ── the schedule ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_schedule_by_public_numbers() -> None:
    def shape(rows: int, columns: int) -> tuple[list[int], float]:
        scales, rounds = schedule(rows, columns, 0.2207)
        counts = [sum(each.stretch == k for each in rounds) for k in (1, 2)]
        return counts, float(scales + sum(each.share for each in rounds))

    assert shape(5000, 7) == shape(500, 7) == ([7, 3], 0.26)
    assert shape(180, 7) == shape(500, 40) == shape(5000, 600) == ([4, 0], 0.10)  # too few rows for scales, or too wide
    assert shape(5000, 55) == ([5, 1], 0.20)
    assert shape(5000, 2001) == shape(500, 100) == shape(2**29, 2) == ([0, 0], 0)
    assert chosen_rounds(0, 7) == ReleaseSchedule(Fraction(0), ())
    assert chosen_rounds(1, 40) == ReleaseSchedule(Fraction(8, 100), (Round(Fraction(2, 100), 1),))


def test_no_rounds_are_the_learner_without_them_to_the_last_bit() -> None:
    X, y = badly_scaled(40)  # so few that "auto" chooses none
    models = [
        PrivateLogisticRegression(**DP, row_norm=2e5, unsafe_seed=1, rounds=rounds).fit(X, y) for rounds in (0, "auto")
    ]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert models[0].event_ == models[1].event_
    assert models[0].whitening_ is models[1].whitening_ is None


# ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_badly_scaled_columns_teach_as_much_as_without_privacy(form: Any) -> None:
    X, y = badly_scaled(8000)
    plain = LogisticRegression().fit(X[:5000] / 10.0 ** np.arange(6), y[:5000])
    ceiling = plain.score(X[5000:] / 10.0 ** np.arange(6), y[5000:])
    known: dict[str, Any] = {**DP, "row_norm": 5e5}
    scores = [
        PrivateLogisticRegression(**known, rounds=rounds).fit(form(X[:5000]), y[:5000]).score(form(X[5000:]), y[5000:])
        for rounds in (0, "auto")
    ]
    assert scores[1] > ceiling - 0.03
    assert scores[1] > scores[0] + 0.05


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("features", [None, 12])
def test_decisions_are_those_of_the_linear_model(classes: int, intercept: bool, features: int | None) -> None:
    X, y = badly_scaled(3000)
    y = y + (X[:, 0] > 2) if classes == 3 else y
    model = PrivateLogisticRegression(
        **DP, row_norm=5e5, unsafe_seed=1, fit_intercept=intercept, fourier_features=features, fourier_seed=0,
        rounds="auto",
    ).fit(X, y)
    assert model.whitening_ is not None
    rows = model.feature_map_.unit_rows(X) * model.feature_map_.length
    linear = rows @ model.hypothesis_.coef + model.hypothesis_.intercept
    indices = (linear[:, 0] > 0).astype(int) if classes == 2 else linear.argmax(axis=1)
    assert np.array_equal(model.classes_[indices], model.predict(X))
    assert np.array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))
    factors = model.whitening_.factors(model.feature_map_.unit_rows(X))
    assert (factors > 0).all()
    assert (factors <= 1).all()
    assert np.allclose(model.decision_function(X), (linear * factors[:, None]).squeeze())
    assert intercept or not model.intercept_.any()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("power", [1.0, 0.75, 0.4])
def test_scores_of_mapped_rows_and_a_start_from_them(constant: bool, power: float) -> None:
    generator = np.random.default_rng(0)
    X = shortened(badly_scaled(3000)[0], 5e5)
    plan = plan_moments(rows=3000, columns=6 + constant, rounds=chosen_rounds(10, 7).rounds, **BUDGET)
    start = generator.normal(size=(6 + constant, 2))
    found, weights = whiten(
        X, plan, constant=constant, factors=np.exp2(np.arange(6.0 + constant))[::-1], power=power, start=start,
        unsafe_noise=noise.Seeded(unsafe_seed=1),
    )  # fmt: skip
    scores = X @ start[:6] + (start[6] if constant else 0)
    assert weights is not None
    assert np.allclose(found.pulled_back(weights), start)
    assert np.allclose(found.unit_rows(X) @ weights, scores * found.factors(X)[:, None])
    assert np.allclose(np.linalg.norm(found.unit_rows(X), axis=1).max(), 1)


def test_a_private_model_is_a_start_for_the_next() -> None:
    X, y = badly_scaled(6000)
    known: dict[str, Any] = {**DP, "row_norm": 5e5, "classes": [0, 1], "rounds": "auto"}
    first = PrivateLogisticRegression(**known).fit(X[:5000], y[:5000])
    second = PrivateLogisticRegression(**known, start=first.hypothesis_, steps=1).fit(X[:5000], y[:5000])
    cold = PrivateLogisticRegression(**known, steps=1).fit(X[:5000], y[:5000])
    assert second.score(X[5000:], y[5000:]) > first.score(X[5000:], y[5000:]) - 0.03
    assert cold.n_iter_ == 1


@pytest.mark.slow
def test_probabilities_are_calibrated() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(40_000, 3))
    truth = 1 / (1 + np.exp(-X @ [1.0, -2, 1]))
    y = (generator.random(40_000) < truth).astype(int)
    model = PrivateLogisticRegression(**DP, row_norm=600, unsafe_seed=0, rounds="auto").fit(X * [1, 10, 100], y)
    assert np.abs(model.predict_proba(X * [1, 10, 100])[:, 1] - truth).mean() < 0.03


@pytest.mark.parametrize("columns", [3, 20, 31, 100])
def test_with_more_rows_than_required_the_noise_is_no_larger(columns: int) -> None:
    model = PrivateLogisticRegression(**DP, row_norm=1)
    for error in (0.8, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1):
        required = model.n_required(error, columns=columns)
        for rows in [required + more for more in range(0, required, max(1, required // 40))]:
            plan = model.settings().plan(rows=rows, columns=columns, classes=2).descent
            entries, t = columns + 1, math.log(plan.steps / 0.05)
            noise_of_all = float(plan.sigma) * math.sqrt(entries + 2 * math.sqrt(entries * t) + 2 * t)
            # One step more, of some twenty or more, has up to 2.5 % more noise.
            assert noise_of_all <= 1.025 * error * rows * plan.levels * plan.radius


def test_rows_required_leave_room_for_the_rounds() -> None:
    required = [
        PrivateLogisticRegression(**DP, row_norm=1, rounds=rounds).n_required(0.1, columns=100) for rounds in (0, 4)
    ]
    # Scales, a count and four rounds, and as many steps as a rare class would need.
    steps = [
        PrivateLogisticRegression(**DP, row_norm=1, rounds=rounds).settings().plan(rows=n, columns=100, classes=2)
        for rounds, n in zip((0, 4), required, strict=True)
    ]
    more = steps[1].descent.steps / steps[0].descent.steps
    assert required[1] / required[0] == pytest.approx(math.sqrt(more / (1 - 0.08 - 0.005 - 0.08)), rel=0.02)


def test_a_category_that_never_occurred_does_not_decide_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns sum to one in every training row. Without a limit, every round stretches that direction again."""
    generator = np.random.default_rng(0)
    numbers, ward = generator.uniform(-1, 1, (20_000, 4)), np.eye(3)[generator.integers(0, 3, 20_000)]
    y = (numbers @ [2, 1, -1, 0.5] + 0.4 * ward[:, 2] > 0).astype(int)
    X, missing = np.hstack([numbers, ward]), np.hstack([numbers, 0 * ward])

    def scores() -> tuple[float, float]:
        model = PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=2, classes=[0, 1]).fit(X, y)
        return model.score(X, y), model.score(missing, y)

    known, unknown = scores()
    assert known > 0.93
    assert unknown > 0.8
    monkeypatch.setattr(second_moments, "NEAR", 1e30)  # the twin
    assert scores()[1] < 0.7
