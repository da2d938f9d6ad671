"""Rows without a label: each adds 0 to every release, and whether a row has a label is protected."""

from __future__ import annotations

from collections.abc import Callable
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

from reticent import noise
from reticent.audit import exact, law
from reticent.learners import (
    PrivateLogisticRegression,
    class_weights,
    column_scales,
    descent,
    logistic_fit,
    second_moments,
)
from reticent.learners.class_weights import release_class_counts, squared_sensitivity
from reticent.learners.descent import class_targets
from reticent.learners.lattice import emptied as emptied_rows
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy import delta, fits
from reticent.privacy.events import DiscreteGaussian

Array = NDArray[Any]
DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
ROWS = 2000
LEARNERS: dict[str, dict[str, Any]] = {
    "auto": {},
    "no rounds": {"rounds": 0},
    "no intercept": {"fit_intercept": False},
    "balanced": {"class_weight": "balanced"},
    "public weights": {"class_weight": {0: 1, 1: 3}, "rounds": 0},
    "bounds": {"row_norm": None, "bounds": (-1, 3)},
    "Fourier features": {"fourier_features": 12, "fourier_seed": 0},
    "public rows": {"row_norm": None, "public": np.random.default_rng(5).normal(size=(60, 4)) + 1},
}


def learner(name: str, classes: int) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**DP | {"row_norm": 4, "steps": 6} | LEARNERS[name], classes=list(range(classes)))


def partly_labelled(classes: int, *, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(ROWS, 4)) * [1, 1, 0.1, 0.01] + 1
    y = generator.integers(0, classes, ROWS)
    return X, np.where(generator.random(ROWS) < 0.5, y, -1)


class Transcript:
    """Takes the place of `gaussian_count`: keeps the sums, and releases what was released before where that is given.

    What a release is computed from depends on the releases before it. So two data sets are compared release by release,
    given the same releases before.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, released: list[Array] | None = None) -> None:
        self.sums: list[Array] = []
        self.squared: list[int] = []
        self.given = released
        self.released: list[Array] = []
        self.noise = np.random.default_rng(0)
        for module in (class_weights, column_scales, second_moments, descent):
            monkeypatch.setattr(module, "gaussian_count", self)

    def __call__(self, value: Array, *, sigma: Fraction, squared_sensitivity: int, **rest: Any) -> Release[Array]:
        found = np.asarray(value)
        if self.given is None:
            self.released.append(found + np.rint(self.noise.normal(size=found.shape) * float(sigma)).astype(np.int64))
        else:
            self.released.append(self.given[len(self.sums)])
        self.sums.append(found)
        self.squared.append(squared_sensitivity)
        return Release(self.released[-1], DiscreteGaussian(sigma, squared_sensitivity))


def moves(first: Transcript, second: Transcript) -> list[int]:
    """The squared distances between the sums of two transcripts, in whole numbers of any size."""
    assert first.squared == second.squared
    return [
        sum((int(a) - int(b)) ** 2 for a, b in zip(one.flat, other.flat, strict=True))
        for one, other in zip(first.sums, second.sums, strict=True)
    ]


def run(
    monkeypatch: pytest.MonkeyPatch, model: PrivateLogisticRegression, X: Any, indices: Array, given: Any = None
) -> Transcript:
    found = Transcript(monkeypatch, given)
    model.fit_class_indices(X, indices, noise.Seeded(unsafe_seed=0), labelled_rows=ROWS // 2)
    return found


# ── an empty row adds 0 ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_an_empty_row_adds_nothing_to_any_release_whatever_it_holds(
    name: str, classes: int, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, indices = partly_labelled(classes)
    model = learner(name, classes)
    found = run(monkeypatch, model, form(X), indices)
    others = X.copy()
    anything = np.random.default_rng(1).choice([np.nan, np.inf, 1e300, -7.0, 0.0], X.shape)
    others[indices < 0] = anything[indices < 0]
    again = run(monkeypatch, model, form(others), indices, found.released)
    assert moves(found, again) == [0] * len(found.sums)
    nothing = run(monkeypatch, model, form(X), np.full(ROWS, -1), found.released)
    assert not any(each.any() for each in nothing.sums)
    assert len(found.sums) == len(nothing.sums) > 5


def pulls_by_the_constant_column(indices: Array, weights: Array | None, *, missing: bool = False) -> Array:
    """The twin whose empty row is x = 0, with the label that its target stands for."""
    return np.ones(len(indices))


def last_class(indices: Array, weights: Array | None, *, missing: bool = False) -> Array | None:
    """The twin that takes −1 for the last class, as Python reads it."""
    return None if weights is None else weights[indices]


def empty_as_a_row(*args: Any, empty: Any = None, **rest: Any) -> Any:
    """The twin whose second moments have the constant column of empty rows."""
    return second_moments.whiten(*args, **rest)


def first_class_counted(indices: Array, classes: int, **rest: Any) -> Any:
    """The twin that counts an empty row as one of the first class."""
    return release_class_counts(np.maximum(indices, 0), classes, **rest)


@pytest.mark.parametrize(
    ("broken", "twin", "name", "classes"),
    [
        ("row_weights", pulls_by_the_constant_column, "no rounds", 2),
        ("row_weights", last_class, "no rounds", 3),
        ("row_weights", last_class, "public weights", 2),
        ("whiten", empty_as_a_row, "auto", 2),
        ("release_class_counts", first_class_counted, "balanced", 3),
    ],
)
def test_empty_rows_that_pull_are_noticed(
    broken: str, twin: Callable[..., Any], name: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = learner(name, classes)
    X = np.full((ROWS, 4), 1.0)
    assert not any(each.any() for each in run(monkeypatch, model, X, np.full(ROWS, -1)).sums)
    monkeypatch.setattr(logistic_fit, broken, twin)
    assert any(each.any() for each in run(monkeypatch, model, X, np.full(ROWS, -1)).sums)


def test_sums_are_those_of_the_labelled_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, indices = partly_labelled(2)
    indices = np.where(np.arange(ROWS) % 2, indices % 2, -1)  # half of the rows
    model = learner("auto", 2)
    found = run(monkeypatch, model, X, indices)
    alone = Transcript(monkeypatch, found.released)
    model.fit_class_indices(X[1::2], indices[1::2], None, labelled_rows=ROWS // 2)
    assert moves(found, alone) == [0] * len(found.sums)  # these sizes have the same lattice


def multiplied(X: Any, empty: Array) -> Any:
    """The twin that multiplies empty rows by 0, which leaves what is no number."""
    return X * ~empty[:, None]


@pytest.mark.parametrize(("emptied", "kept"), [(emptied_rows, True), (multiplied, False)])
def test_no_error_tells_what_an_empty_row_holds(emptied: Any, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic_fit, "emptied", emptied)
    X, indices = np.full((ROWS, 4), np.nan), np.full(ROWS, -1)
    if kept:
        assert np.isfinite(learner("auto", 2).fit_class_indices(X, indices, None, labelled_rows=9).coef_).all()
    else:
        with pytest.raises(ValueError, match="X must be finite"):
            learner("auto", 2).fit_class_indices(X, indices, None, labelled_rows=9)


# ── neighbours ────────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.sampled_from(list(LEARNERS)), st.sampled_from([2, 3]), st.integers(-1, 2), st.integers(-1, 2), st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_no_replaced_row_moves_a_release_by_more_than_is_accounted(
    name: str, classes: int, before: int, after: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    X, indices = partly_labelled(classes, seed=seed)
    other = X.copy()
    other[0] = generator.normal(size=4) * 10.0 ** generator.integers(-5, 6)
    pair = [np.append(min(label, classes - 1), indices[1:]) for label in (before, after)]
    with pytest.MonkeyPatch.context() as patch:
        first = run(patch, learner(name, classes), X, pair[0])
        second = run(patch, learner(name, classes), other, pair[1], first.released)
    assert all(move <= bound for move, bound in zip(moves(first, second), first.squared, strict=True))


def always_one(classes: int, *, missing: bool = False) -> int:
    """The twin that accounts for one count of two classes where two are released."""
    return 1


@pytest.mark.parametrize(("squared", "kept"), [(squared_sensitivity, True), (always_one, False)])
def test_the_counts_of_two_classes_move_by_2_if_labels_may_be_missing(
    squared: Any, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_weights, "squared_sensitivity", squared)
    X, indices = partly_labelled(2)
    model, found = learner("balanced", 2), []
    for before, after in product((-1, 0, 1), repeat=2):
        first = run(monkeypatch, model, X, np.append(before, indices[1:]))
        second = run(monkeypatch, model, X, np.append(after, indices[1:]), first.released)
        found.append(moves(first, second)[0] <= first.squared[0])
    assert all(found) == kept


@pytest.mark.parametrize(("scale", "kept"), [(Fraction(1), True), (Fraction(1, 2), False)])
@pytest.mark.parametrize("pair", [(0, 1), (0, -1), (-1, 1)])
def test_the_exact_law_of_the_counts(pair: tuple[int, int], scale: Fraction, kept: bool) -> None:
    event = DiscreteGaussian(Fraction(2), squared_sensitivity(2, missing=True))

    def counts(label: int, source: Noise) -> tuple[int, ...]:
        released = release_class_counts(
            np.array([label, 0]), 2, sigma=event.sigma * scale, missing=True, unsafe_noise=source
        )
        return tuple(int(count) for count in released.value)

    found = exact(*(law(partial(counts, label), tail_bits=30) for label in pair))
    assert all(found.delta(at)[1] <= delta(event, epsilon=at) + 1e-6 for at in (0, 0.5, 1, 2)) == kept


# ── what is public ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["auto", "balanced", "no rounds"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_event_does_not_tell_which_rows_have_a_label(name: str, classes: int) -> None:
    X, indices = partly_labelled(classes)
    model, events = learner(name, classes), set()
    for each in (indices, np.abs(indices), np.full(ROWS, -1)):
        events.add(model.fit_class_indices(X, each, None, labelled_rows=500).event_)
    assert len(events) == 1
    assert fits(events.pop(), **DP)


def test_the_number_of_labels_expected_takes_the_place_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    known = learner("auto", 2).settings()
    size: dict[str, Any] = {"columns": 4, "classes": 2}
    few, alone = known.plan(rows=500, places=10**8, **size), known.plan(rows=500, **size)
    assert (few.descent.rows, few.moments.rows, few.descent.rate) == (500, 500, alone.descent.rate)
    assert few.counts is not None
    assert few.counts.missing
    assert 7 * 10**8 * few.moments.radius**2 < 2**53 <= 7 * 10**8 * alone.moments.radius**2
    many = known.plan(rows=500, places=10**12, **size).descent
    assert many.levels * many.radius * 10**12 < 2**53 <= alone.descent.levels * alone.descent.radius * 10**12
    assert not known.plan(rows=500, places=2**29, **size).moments.rounds  # mapped rows would not fit into memory
    monkeypatch.setattr(logistic_fit, "descend", lambda rows, *_, **__: np.zeros((rows.shape[1], 1)))
    X, indices = partly_labelled(2)
    for expected in (2, 300, ROWS):
        found = learner("auto", 2).fit_class_indices(X, indices, None, labelled_rows=expected)
        assert found.descent_plan_.rows == expected


def test_without_missing_labels_it_is_fit_to_the_last_bit() -> None:
    X, indices = partly_labelled(3)
    y = np.abs(indices)
    models = [learner("auto", 3), learner("auto", 3).set_params(unsafe_seed=2, classes=["a", "b", "c"])]
    models[0].fit_class_indices(X, y, noise.Seeded(unsafe_seed=2))
    models[1].fit(X, np.array(["a", "b", "c"])[y])
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert models[0].event_ == models[1].event_


def test_rows_without_a_label_teach_nothing_and_cost_little() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(20_000, 4))
    y = (X @ [1, -1, 1, 0] > 0).astype(int)
    half = np.where(np.arange(20_000) % 2, y, -1)
    model = PrivateLogisticRegression(**DP, row_norm=4, classes=[0, 1])
    assert model.fit_class_indices(X, half, None, labelled_rows=10_000).score(X, y) > 0.95
    assert model.fit_class_indices(X, half, None, labelled_rows=20_000).score(X, y) > 0.95  # a wrong number


@pytest.mark.parametrize("bad", [[0, 1, 2], [0, -2, 1], [0, 1], [[0], [1], [1]], [0.0, 1.0, 0.5], ["a", "b", "a"]])
def test_indices_of_no_class_are_refused(bad: Any) -> None:
    model = PrivateLogisticRegression(**DP, row_norm=1, classes=[0, 1])
    with pytest.raises(ValueError, match="class_indices must"):
        model.fit_class_indices(np.ones((3, 1)), bad, None, labelled_rows=3)


def test_missing_labels_must_be_announced() -> None:
    model = PrivateLogisticRegression(**DP, row_norm=1, classes=[0, 1])
    with pytest.raises(ValueError, match="class_indices must be from 0 to 1"):
        model.fit_class_indices(np.ones((3, 1)), [0, -1, 1], None)
    for wrong in (0, 4, -1, 1.5):
        with pytest.raises((ValueError, TypeError), match="labelled_rows must"):
            model.fit_class_indices(np.ones((3, 1)), [0, -1, 1], None, labelled_rows=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="classes must be given"):
        PrivateLogisticRegression(**DP, row_norm=1).fit_class_indices(np.ones((3, 1)), [0, 1, 1], None)


def test_targets_of_rows_without_a_label() -> None:
    assert class_targets(np.array([1, 0, -1]), 2).tolist() == [[1], [0], [0]]
    assert class_targets(np.array([1, -1]), 3).tolist() == [[0, 1, 0], [0, 0, 0]]
