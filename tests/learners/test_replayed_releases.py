"""What one fit releases is replayed on other rows: nothing else may depend on them, and no release moves too far."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from reticent.learners import class_weights, column_scales, comparison, descent, second_moments
from reticent.learners.comparison import PrivateComparison
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.mechanisms.counts import gaussian_count
from reticent.mechanisms.release import Release
from reticent.privacy import rho
from reticent.privacy.events import DiscreteGaussian

Array = NDArray[Any]
ROWS, COLUMNS = 400, 5
ODD = (0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e-9, 0.5, 1.7e308, -1.7e308)


class Tape:
    """Records what is released of some rows; then releases the same of any others, and records their sums."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released: list[Release[Any]] = []
        self.sums: list[Array] = []
        self.position: int | None = None
        for module in (class_weights, column_scales, comparison, descent, second_moments):
            monkeypatch.setattr(module, "gaussian_count", self.release)

    def release(self, count: Array, **options: Any) -> Release[Any]:
        self.sums.append(np.array(count, dtype=object))
        if self.position is None:
            self.released.append(gaussian_count(count, **options))
            return self.released[-1]
        found = self.released[self.position]
        self.position += 1
        assert self.price(found) == DiscreteGaussian(options["sigma"], options["squared_sensitivity"])
        return found

    @staticmethod
    def price(found: Release[Any]) -> Any:
        return getattr(found.event, "event", found.event)

    def recorded(self, model: Any, X: Any, y: Array) -> bytes:
        """Fit a model, and forget what was recorded before."""
        self.position = None
        self.released.clear()
        self.sums.clear()
        return pickle.dumps(model.fit(X, y))

    def replayed(self, model: Any, X: Any, y: Array) -> bytes:
        """Fit a model on other rows that seem to release the same."""
        self.position = 0
        self.sums.clear()
        found = pickle.dumps(model.fit(X, y))
        assert self.position == len(self.released)
        return found

    def excess(self, model: Any, first: tuple[Any, Array], second: tuple[Any, Array]) -> Fraction:
        """By how much the worst release moves between two tables, in units of its squared sensitivity."""
        self.recorded(model, *first)
        before = list(self.sums)
        self.replayed(model, *second)
        moves = [int(((one - other) ** 2).sum()) for one, other in zip(before, self.sums, strict=True)]
        prices = [self.price(found).squared_sensitivity for found in self.released]
        return max(Fraction(move, price) for move, price in zip(moves, prices, strict=True))


def model_with(**options: Any) -> PrivateLogisticRegression:
    settings: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "row_norm": 1, "classes": [0, 1], "unsafe_seed": 0}
    return PrivateLogisticRegression(**settings | options)


class KeepsAMean(PrivateLogisticRegression):
    """The twin that keeps one number of the rows."""

    def fit(self, X: Any, y: Any, **refused: Any) -> Any:
        self.mean_ = float(np.mean(X))
        return super().fit(X, y, **refused)


def table(kind: str, *, classes: int = 2, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, ROWS)
    if kind == "usual":
        return generator.normal(size=(ROWS, COLUMNS)), labels
    if kind == "zero":
        return np.zeros((ROWS, COLUMNS)), np.zeros(ROWS, dtype=np.int64)
    return generator.choice(ODD, (ROWS, COLUMNS)), np.full(ROWS, classes - 1)


OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {},
    "no rounds": {"rounds": 0},
    "three rounds": {"rounds": 3, "class_weight": "balanced"},
    "three classes": {"rounds": 2, "class_weight": "balanced", "classes": [0, 1, 2]},
    "bounds": {"bounds": (-0.5, 0.5), "rounds": 1},
    "fourier": {"fourier_features": 8, "fourier_seed": 0, "rounds": 1},
    "public": {"public": np.random.default_rng(0).normal(size=(40, COLUMNS))},
}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_a_model_knows_of_rows_what_was_released(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tape, options = Tape(monkeypatch), OPTIONS[name]
    model, classes = model_with(**options), len(options.get("classes", (0, 1)))
    held = tape.recorded(model, *table("usual", classes=classes))
    spent = [rho(each.event) for each in tape.released]
    assert sum(each for each in spent if each is not None) == rho(model.event_)
    for other in ("zero", "odd"):
        assert tape.replayed(model, *table(other, classes=classes)) == held


def test_a_comparison_knows_of_rows_what_was_released(monkeypatch: pytest.MonkeyPatch) -> None:
    tape, pair = Tape(monkeypatch), [model_with(rounds=2), model_with(rounds=0, class_weight="balanced")]
    model = PrivateComparison(pair, epsilon=1, delta=1e-6, classes=[0, 1], unsafe_seed=0)
    held = tape.recorded(model, *table("usual"))
    for other in ("zero", "odd"):
        assert tape.replayed(model, *table(other)) == held


def test_a_model_that_keeps_more_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape(monkeypatch)
    model = KeepsAMean(**model_with().get_params())
    held = tape.recorded(model, *table("usual"))
    assert tape.replayed(model, *table("zero")) != held


def neighbours(seed: int, classes: int) -> tuple[tuple[Any, Array], tuple[Any, Array]]:
    """Tables that differ in one row, dense or sparse, most of them odd."""
    generator = np.random.default_rng(seed)
    X, y = table(("usual", "zero", "odd")[seed % 3], classes=classes, seed=seed)
    place, other, labels = int(generator.integers(ROWS)), X.copy(), y.copy()
    other[place] = -X[place] if seed % 2 else generator.choice(ODD, COLUMNS)
    labels[place] = (y[place] + 1) % classes
    form = sparse.csr_array if generator.random() < 0.3 else np.asarray
    return (form(X), y), (form(other), labels)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_no_release_of_a_fit_moves_by_more_than_it_is_priced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tape, model = Tape(monkeypatch), model_with(**OPTIONS[name])
    classes = len(OPTIONS[name].get("classes", (0, 1)))
    assert max(tape.excess(model, *neighbours(seed, classes)) for seed in range(8)) <= 1


def counted_twice(rows: Any) -> Array:
    """The twin that counts each value in two bins."""
    counts = real_counts(rows)
    return counts + np.roll(counts, 1, axis=1)


def coupled(rows: Any, plan: Any) -> Any:
    """The twin whose rows are scaled by the longest of them."""
    whole = real_rows(rows, plan)
    return np.rint(whole / max(1.0, float(np.abs(whole).max())) * plan.radius / 4)


real_counts, real_rows = column_scales.exponent_counts, descent.integer_rows


@pytest.mark.parametrize(
    ("where", "twin", "rounds"),
    [
        ("reticent.learners.column_scales.exponent_counts", counted_twice, 1),
        ("reticent.learners.logistic_fit.integer_rows", coupled, 0),
    ],
)
def test_a_release_that_moves_too_far_is_found_out(
    where: str, twin: Any, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape(monkeypatch)
    monkeypatch.setattr(where, twin)
    small, y = np.full((ROWS, COLUMNS), 1e-3), np.ones(ROWS, dtype=np.int64)
    other = small.copy()
    other[0] = 1.0
    assert tape.excess(model_with(rounds=rounds), (small, y), (other, y)) > 1
