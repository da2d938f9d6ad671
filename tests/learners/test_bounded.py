from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from reticent.learners import PrivateLogisticRegression
from reticent.learners.bounded import Bounds, checked_bounds

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


class Untouchable:
    """Rows that fail the test when they are looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the rows were looked at")


def badly_scaled(rows: int, columns: int = 45, *, seed: int = 0) -> tuple[Array, Array, Array]:
    """Uniform columns of scales from 1 to 10⁵, which all matter; and what they are multiplied by."""
    generator = np.random.default_rng(seed)
    X = generator.random(size=(rows, columns))
    y = ((X - 0.5) @ generator.normal(size=columns) > 0).astype(int)
    scales = np.logspace(0, 5, columns)
    return X * scales, y, scales


def test_values_are_clipped_and_mapped_to_0_and_1() -> None:
    bounds = checked_bounds(([0, -10], [2, 10]))
    assert bounds.mapped(np.array([[1.0, 0], [-5, 20], [1e300, -1e300]])).tolist() == [[0.5, 0.5], [0, 1], [1, 0]]
    assert bounds.norm(2) == math.sqrt(2)
    assert checked_bounds((-1, 1)).mapped(np.zeros((1, 3))).tolist() == [[0.5] * 3]


@pytest.mark.parametrize(("lower", "stays"), [(0, True), ([0.0, 0.5, 2], True), (-1, False)])
def test_sparse_rows_stay_sparse_where_0_becomes_0(lower: Any, stays: bool) -> None:
    X = sparse.csr_array(([1.0, 1.0, 9.0, -4.0], [0, 0, 2, 1], [0, 2, 4]), shape=(2, 3))  # one entry stored twice
    mapped = checked_bounds((lower, 4)).mapped(X)
    assert sparse.issparse(mapped) == stays
    dense = checked_bounds((lower, 4)).mapped(X.toarray())
    assert np.array_equal(mapped.toarray() if stays else mapped, dense)
    assert X.nnz == 4


def test_sparse_rows_that_would_fill_the_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="bounds must not be below 0 for 100000 sparse rows of 20000 columns"):
        Bounds(np.array([-1.0]), np.array([1.0])).mapped(sparse.csr_array((100_000, 20_000)))


@pytest.mark.slow
def test_bounds_take_the_place_of_a_row_norm() -> None:
    X, y, scales = badly_scaled(5000)
    model = PrivateLogisticRegression(**DP, bounds=(0, scales), unsafe_seed=0).fit(X[:4000], y[:4000])
    assert model.feature_map_.row_norm == math.sqrt(45)
    plain = PrivateLogisticRegression(**DP, row_norm=3e5, rounds=0, unsafe_seed=0).fit(X[:4000], y[:4000])
    assert model.score(X[4000:], y[4000:]) > 0.75 > plain.score(X[4000:], y[4000:]) + 0.03
    own = PrivateLogisticRegression(**DP, bounds=(0, scales), row_norm=3, unsafe_seed=0).fit(X, y)
    assert own.feature_map_.row_norm == 3


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
@pytest.mark.parametrize("more", [{}, {"rounds": 0}, {"fourier_features": 10, "fourier_seed": 1}])
def test_the_hypothesis_is_a_linear_model_of_mapped_rows(form: Any, more: dict[str, Any]) -> None:
    X, y, scales = badly_scaled(2000, 6)
    model = PrivateLogisticRegression(**DP, bounds=(0, scales / 2), unsafe_seed=0, **more).fit(form(X), y)
    linear = model.feature_map_.mapped_rows(X) @ model.hypothesis_.coef[:, 0] + model.hypothesis_.intercept
    assert np.array_equal(linear > 0, model.predict(form(X)) == 1)
    beyond = np.where(scales / 2 < X, X * 1000, X)
    assert np.array_equal(model.predict_proba(form(beyond)), model.predict_proba(form(X)))


BAD: list[Any] = [
    (1, 0), (0, 0), (0, math.inf), (-math.inf, 0), (math.nan, 1), (0, 1e200), ([0, 5], [1, 5]), ([0, 0], [1, -1]), 3,
    (0,), (0, 1, 2), ("0", "1"), ([[0]], [[1]]), ([], []), ([0, 0], [1, 1, 1]), (None, 1), (True, False), "ab", (0, 1j),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_bounds_are_checked_before_the_rows_are_touched(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^bounds must"):
        PrivateLogisticRegression(**DP, bounds=bad).fit(Untouchable(), Untouchable())


def test_bounds_of_other_columns_are_refused() -> None:
    X, y, _ = badly_scaled(50, 4)
    with pytest.raises(ValueError, match="bounds must have one upper bound, or one for each of 4 columns, got 3"):
        PrivateLogisticRegression(**DP, bounds=(0, [1, 2, 3])).fit(X, y)


def test_something_must_say_how_long_rows_are() -> None:
    with pytest.raises(ValueError, match=r"row_norm must be a number > 0.*bounds and public are all None"):
        PrivateLogisticRegression(**DP).fit(Untouchable(), Untouchable())
