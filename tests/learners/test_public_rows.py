from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse

from reticent.learners import PrivateLogisticRegression, public_rows
from reticent.learners.descent import plan_descent
from reticent.learners.lattice import shortened
from reticent.learners.public_rows import directions_for, find_directions

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


def badly_scaled(rows: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Six columns of scales from 1 to 10⁵, all of which matter."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 6)) + 1
    y = (X @ [1, -1, 1, -1, 1, -1] + generator.normal(size=rows) > 0).astype(int)
    return X * 10.0 ** np.arange(6), y


def topics(rows: int, columns: int = 20_000, *, seed: int = 0) -> tuple[Any, Array]:
    """Texts of common words and of words of one of twelve topics, of which the first six make a class."""
    generator = np.random.default_rng(seed)
    topic = generator.integers(0, 12, rows)
    common = generator.zipf(1.5, size=(rows, 30)) % 50
    words = 50 + generator.zipf(1.5, size=(rows, 10)) % (columns // 13) + (topic * (columns // 13))[:, None]
    at = np.repeat(np.arange(rows), 40)
    X = sparse.csr_array((np.ones(rows * 40), (at, np.hstack([common, words]).ravel())), shape=(rows, columns))
    return X, (topic < 6).astype(int)


# ── privacy ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_public_rows_cost_nothing_and_the_descent_has_the_whole_budget() -> None:
    X, y = badly_scaled(2200)
    model = PrivateLogisticRegression(**DP, public=X[2000:]).fit(X[:2000], y[:2000])
    plan = plan_descent(rows=2000, columns=6, classes=2, epsilon=Fraction(1), delta=Fraction(1, 10**6))
    assert model.event_ == plan.event
    assert model.whitening_ is None


def test_the_map_is_a_function_of_public_rows_alone() -> None:
    X, y = badly_scaled(2200)
    other = np.random.default_rng(1).normal(size=(2000, 6)) * 1e9
    maps = [
        PrivateLogisticRegression(**DP, public=X[2000:]).fit(rows, y[:2000]).feature_map_ for rows in (X[:2000], other)
    ]
    assert maps[0].row_norm == maps[1].row_norm
    first, second = (each.directions for each in maps)
    assert first is not None
    assert second is not None
    assert np.array_equal(first.matrix, second.matrix)
    assert np.array_equal(first.centre, second.centre)
    assert first.length == second.length


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_mapped_rows_are_no_longer_than_1(form: Any) -> None:
    X, _ = badly_scaled(500)
    found = find_directions(shortened(form(X), 1e5), 6)
    wild = shortened(form(X * np.random.default_rng(0).choice([1e-9, 1, 1e9], size=(500, 1))), 1e5)
    assert (np.linalg.norm(found.unit_rows(wild), axis=1) <= 1 + 1e-12).all()
    spread = found.unit_rows(shortened(form(X), 1e5))
    assert np.median(np.linalg.norm(spread, axis=1)) == pytest.approx(1)  # most are shortened
    assert np.abs(spread.mean(axis=0)).max() < 0.2


# ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_public_rows_repair_scales() -> None:
    X, y = badly_scaled(4200)
    known, public = {**DP, "unsafe_seed": 0}, X[3000:3200]
    plain, given, taken = (
        PrivateLogisticRegression(**known, **more).fit(X[:3000], y[:3000]).score(X[3200:], y[3200:])
        for more in ({"row_norm": 5e5, "rounds": 0}, {"row_norm": 5e5, "public": public}, {"public": public})
    )
    assert min(given, taken) > plain + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False])
def test_sparse_text_with_20_000_columns(intercept: bool) -> None:
    X, y = topics(2400)
    public, train, test = X[:500], slice(500, 2000), slice(2000, 2400)
    known: dict[str, Any] = {**DP, "row_norm": 20, "unsafe_seed": 0, "fit_intercept": intercept}
    model = PrivateLogisticRegression(**known, public=public).fit(X[train], y[train])
    plain = PrivateLogisticRegression(**known).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > plain.score(X[test], y[test]) + 0.05
    assert model.coef_.shape == (1, directions_for(1500, 500, 0.2207))
    again = PrivateLogisticRegression(**known, public=public).fit(X[train], y[train])
    assert np.array_equal(again.predict_proba(X[test]), model.predict_proba(X[test]))
    unit_rows = model.feature_map_.unit_rows
    among = unit_rows(X[test])
    assert all(np.array_equal(unit_rows(X[[2000 + at]])[0], among[at]) for at in range(0, 400, 9))


@pytest.mark.parametrize(
    "more",
    [{"bounds": (0, 10.0 ** np.arange(1, 7))}, {"fourier_features": 20, "fourier_seed": 1}, {"rounds": 4},
     {"class_weight": "balanced"}],
)  # fmt: skip
def test_public_rows_with_other_parts(more: dict[str, Any]) -> None:
    X, y = badly_scaled(4000)
    y = y + (X[:, 1] > 20)
    model = PrivateLogisticRegression(epsilon=4, delta=1e-6, public=X[3500:], unsafe_seed=0, **more)
    model.fit(X[:3500], y[:3500])
    assert model.score(X, y) > 0.5
    linear = model.feature_map_.mapped_rows(X) @ model.hypothesis_.coef + model.hypothesis_.intercept
    assert np.array_equal(model.classes_[linear.argmax(axis=1)], model.predict(X))


def test_directions_are_counted_by_public_numbers_and_no_more_than_there_are() -> None:
    assert directions_for(10, 20, 0.2) == directions_for(400, 10**6, 0.2) == 6
    assert directions_for(8000, 10**6, 0.2) == 101
    assert directions_for(10**6, 100, 0.2) == 26
    twice = np.random.default_rng(0).normal(size=(50, 3)) @ np.ones((3, 8)) + np.arange(8.0)
    assert find_directions(shortened(twice, 9.0), 6).matrix.shape == (8, 2)
    required = PrivateLogisticRegression(**DP, public=np.eye(100)).n_required(0.1, columns=100)
    assert required < PrivateLogisticRegression(**DP, row_norm=1, rounds=0).n_required(0.1, columns=100)


def test_large_public_rows_are_decomposed_in_sparse_form(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = topics(300, 2400)
    dense = find_directions(shortened(X, 4.0), 12)
    monkeypatch.setattr(public_rows, "SMALL", 0)
    found = find_directions(shortened(X, 4.0), 12)
    rows = shortened(X, 4.0)
    lengths = [np.linalg.norm(each.unit_rows(rows), axis=1) for each in (dense, found)]
    assert np.allclose(lengths[0], lengths[1])


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Untouchable:
    """Rows that fail the test when they are looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the rows were looked at")


BAD: list[Any] = [
    np.ones((19, 6)), np.where(np.eye(30, 6) > 0, math.nan, 1.0), np.where(np.eye(30, 6) > 0, math.inf, 1.0),
    np.ones(30), [["a", "b"]] * 30, np.ones((30, 6)) * 1j, 3, np.empty((0, 6)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD)))
def test_public_rows_are_checked_before_the_private_ones_are_touched(case: int) -> None:
    with pytest.raises((ValueError, TypeError), match="public must"):
        PrivateLogisticRegression(**DP, public=BAD[case]).fit(Untouchable(), Untouchable())


@pytest.mark.parametrize("public", [np.ones((30, 5)), sparse.csr_array((30, 7)), pd.DataFrame(np.ones((30, 5)))])
def test_public_rows_with_other_columns_are_refused(public: Any) -> None:
    X, y = badly_scaled(50)
    with pytest.raises(ValueError, match=r"public must have the columns of X: X has 6, public has [57]"):
        PrivateLogisticRegression(**DP, row_norm=1, public=public).fit(X, y)


def test_public_frames_must_have_the_names_of_the_private_one() -> None:
    X, y = badly_scaled(200)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    learner = PrivateLogisticRegression(**DP, public=frame[list("bacdef")])
    with pytest.raises(ValueError, match="the same names in the same order"):
        learner.fit(frame, y)
    assert learner.set_params(public=frame).fit(frame, y).n_features_in_ == 6


@pytest.mark.parametrize("public", [np.zeros((30, 6)), np.ones((30, 6))])
def test_public_rows_that_do_not_vary_are_refused(public: Array) -> None:
    X, y = badly_scaled(50)
    with pytest.raises(ValueError, match="public must have rows"):
        PrivateLogisticRegression(**DP, public=public).fit(X, y)
