from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from reticent import noise
from reticent.audit import exact, law
from reticent.concepts import Datetimes, Floats
from reticent.learners import PrivateLogisticRegression, RectangleLearner, ThresholdLearner
from reticent.noise import Noise
from reticent.predictors import drift
from reticent.predictors.drift import Shape, Summary, drift_summary, drifted, exact_sums, tolerance, unit_features
from reticent.privacy import delta, fits
from reticent.privacy.events import DiscreteGaussian, PureDP, SeededRelease

Array = NDArray[Any]

# ── privacy: what a replaced row can move ─────────────────────────────────────────────────────────────────────────

LARGEST = float(np.finfo(np.float64).max)
NUMBERS = st.one_of(st.floats(), st.floats(-2, 2), st.sampled_from([0.0, 1.0, -1.0, 5e-324, LARGEST, -LARGEST]))


def moved(first: tuple[Array, Array], second: tuple[Array, Array], shape: Shape) -> tuple[int, int]:
    """The squared distance between two sums, and the sum of the distances of their entries."""
    a, b = (exact_sums(rows, labels, shape).tolist() for rows, labels in (first, second))
    steps = [x - y for x, y in zip(a, b, strict=True)]
    return sum(step**2 for step in steps), sum(map(abs, steps))


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[tuple[Array, Array], tuple[Array, Array], Shape]:
    rows, columns, classes = draw(st.integers(1, 4)), draw(st.integers(0, 5)), draw(st.integers(2, 4))
    one = st.lists(NUMBERS, min_size=columns, max_size=columns)
    X = np.array(draw(st.lists(one, min_size=rows, max_size=rows)), dtype=np.float64).reshape(rows, columns)
    y = np.array(draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)))
    X2, y2, place = X.copy(), y.copy(), draw(st.integers(0, rows - 1))
    X2[place], y2[place] = draw(one), draw(st.integers(0, classes - 1))
    return (X, y), (X2, y2), Shape(classes, columns)


@given(neighbours())
@settings(max_examples=150, deadline=None)
def test_no_row_moves_a_summary_by_more_than_is_accounted(case: Any) -> None:
    squared, absolute = moved(*case)
    assert squared <= case[2].squared_sensitivity
    assert absolute <= case[2].sensitivity


@pytest.mark.parametrize(("classes", "columns"), [(2, 0), (3, 0), (2, 1), (2, 4), (3, 4)])
def test_the_sensitivity_is_not_padded_either(classes: int, columns: int) -> None:
    shape = Shape(classes, columns)
    row = np.full((1, columns), 1 / math.sqrt(max(1, columns)))
    changes = [(sign * row, np.array([label])) for sign in (1, -1) for label in (1, classes - 1, 0)]
    moves = [moved((row, np.array([1])), change, shape) for change in changes]
    assert max(squared for squared, _ in moves) == shape.squared_sensitivity
    assert max(absolute for _, absolute in moves) >= 0.7 * shape.sensitivity


@pytest.mark.parametrize("rounding", ["integers", "floats"])
def test_rows_that_rounding_lengthens(rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The twin rounds to the nearest integers and does not look at the length again.
    if rounding == "floats":
        monkeypatch.setattr(drift, "on_lattice", lambda vectors, limit: np.rint(vectors))
    worst = 0.0
    for columns in range(2, 60):
        row, shape = np.full((1, columns), 1 / math.sqrt(columns)), Shape(2, columns)
        worst = max(worst, moved((row, np.array([0])), (-row, np.array([0])), shape)[0] / shape.squared_sensitivity)
    assert (worst <= 1) == (rounding == "integers")


def summary_law(
    X: list[list[float]], y: list[int], epsilon: float, chance: float, *, twice: bool = False, tail_bits: int = 30
) -> Any:
    rows, labels = np.array(X, dtype=np.float64).reshape(len(y), -1), np.array(y)
    if twice:
        rows, labels = np.concatenate([rows, rows]), np.concatenate([labels, labels])

    def run(source: Noise) -> tuple[int, ...]:
        released = drift_summary(rows, labels, classes=2, epsilon=epsilon, delta=chance, unsafe_noise=source)
        return tuple(released.value.values.tolist())

    return law(run, tail_bits=tail_bits)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("chance", [0, 0.05])
def test_exact_law_of_counts_and_of_the_twin_that_counts_twice(chance: float, twice: bool) -> None:
    first, second = (summary_law([[], []], labels, 1, chance, twice=twice) for labels in ([0, 1], [1, 1]))
    event = PureDP(Fraction(1)) if chance == 0 else DiscreteGaussian(_sigma(1, chance, Shape(2, 0)))
    pair = exact(first, second)
    kept = all(pair.delta(at)[1] <= delta(event, epsilon=at) + 1e-7 for at in (0, 0.5, 1, 2))
    assert kept != twice


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0, 0.05])
def test_exact_law_of_sums(chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "LEVELS", 1)
    epsilon = 8 if chance == 0 else 6
    base = summary_law([[1.0]], [1], epsilon, chance, tail_bits=10)
    for other in (([[-1.0]], [1]), ([[1.0]], [0])):
        pair = exact(base, summary_law(*other, epsilon, chance, tail_bits=10))
        event = PureDP(Fraction(epsilon)) if chance == 0 else DiscreteGaussian(_sigma(epsilon, chance, Shape(2, 1)), 4)
        for at in (0, 1, 2, 4, 6, 8):
            assert pair.delta(at)[1] <= delta(event, epsilon=at) + pair.delta(at)[1] - pair.delta(at)[0]


def _sigma(epsilon: float, chance: float, shape: Shape) -> Fraction:
    rows, labels = np.zeros((1, shape.columns)), np.zeros(1, dtype=int)
    return drift_summary(rows, labels, classes=shape.classes, epsilon=epsilon, delta=chance).value.scale


def test_the_event_says_what_happened() -> None:
    rows, labels = np.zeros((50, 3)), np.arange(50) % 3
    summary, event = drift_summary(rows, labels, classes=3, epsilon=1, delta=1e-6)
    assert event == DiscreteGaussian(summary.scale, 4 * drift.LEVELS**2)
    assert fits(event, epsilon=1, delta=1e-6)
    assert drift_summary(rows, labels, classes=3, epsilon=1, delta=0).event == PureDP(Fraction(1))
    seeded = drift_summary(rows, labels, classes=3, epsilon=1, delta=1e-6, unsafe_noise=noise.Seeded(unsafe_seed=0))
    assert seeded.event == SeededRelease(event)


# ── false alarms, and drift that is found ─────────────────────────────────────────────────────────────────────────


def summary_of(rows: Array, labels: Array, source: Noise, chance: float = 1e-6) -> Summary:
    return drift_summary(rows, labels, classes=2, epsilon=1, delta=chance, unsafe_noise=source).value


def lines(generator: np.random.Generator, n: int) -> tuple[Array, Array]:
    """All variance in one direction: the worst there is."""
    labels = generator.integers(0, 2, n)
    return np.where(generator.random(n) < 0.5, 1.0, -1.0)[:, None] * np.eye(4)[:1], labels


def balls(generator: np.random.Generator, n: int) -> tuple[Array, Array]:
    rows = generator.normal(size=(n, 4)) / 4
    return rows, (rows[:, 0] > 0).astype(int)


def labels_only(generator: np.random.Generator, n: int) -> tuple[Array, Array]:
    return np.empty((n, 0)), generator.integers(0, 2, n)


@pytest.mark.parametrize("draw", [lines, balls, labels_only])
@pytest.mark.parametrize(("n", "m"), [(300, 300), (100, 2000)])
@pytest.mark.parametrize("chance", [0, 1e-6])
def test_false_alarms_are_as_rare_as_stated(draw: Any, n: int, m: int, chance: float) -> None:
    generator, source, runs, rate = np.random.default_rng(0), noise.Seeded(unsafe_seed=0), 100, 0.05
    alarms = 0
    for _ in range(runs):
        (rows, labels), (others, theirs) = draw(generator, n), draw(generator, m)
        first, second = summary_of(rows, labels, source, chance), summary_of(others, theirs, source, chance)
        alarms += drifted(first, second, false_alarm=rate)
    assert alarms <= binom.isf(1e-6, runs, rate)


def test_without_the_share_of_chance_alarms_would_be_many() -> None:
    generator, source = np.random.default_rng(0), noise.Seeded(unsafe_seed=0)
    far = 0
    for _ in range(150):
        first, second = (summary_of(*lines(generator, 3000), source) for _ in range(2))
        only_noise = math.sqrt((first.variance + second.variance) * 20)  # the twin: rows' own variance forgotten
        far += bool(np.linalg.norm(first.means - second.means) > only_noise)
    assert far > binom.isf(1e-6, 150, 0.05)


def clusters(generator: np.random.Generator, n: int, degrees: float, boundary: bool = True) -> tuple[Array, Array]:
    side, angle = generator.choice([-1.0, 1.0], n), math.radians(degrees)
    rows = (side[:, None] * [2 * math.cos(angle), 2 * math.sin(angle)] + generator.normal(size=(n, 2))) / 6
    return rows, (rows[:, 0] > 0).astype(int) if boundary else np.zeros(n, dtype=int)


def test_clusters_that_turn_are_found_class_by_class_and_not_by_plain_means() -> None:
    generator, source = np.random.default_rng(0), noise.Seeded(unsafe_seed=0)
    for boundary in (True, False):
        before, after = (summary_of(*clusters(generator, 5000, degrees, boundary), source) for degrees in (0, 30))
        assert drifted(before, after) == boundary


def test_tolerance_shrinks_with_rows_and_grows_with_caution() -> None:
    source, generator = noise.Seeded(unsafe_seed=0), np.random.default_rng(0)
    small, large = (summary_of(*balls(generator, n), source) for n in (200, 20_000))
    assert tolerance(small, small) > tolerance(small, large) > tolerance(large, large)
    assert tolerance(small, small, 1e-6) > tolerance(small, small, 0.1)
    with pytest.raises(ValueError, match="current must have the shape"):
        drifted(small, summary_of(*labels_only(generator, 20), source))


# ── rows as vectors ───────────────────────────────────────────────────────────────────────────────────────────────


def fitted(learner: Any, X: Array, y: Array) -> Any:
    return learner.fit(X, y)


def test_features_stay_within_the_unit_ball() -> None:
    generator = np.random.default_rng(0)
    y = np.array([0, 1] * 10)
    cases: list[tuple[Any, Array, int]] = [
        (PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=2), generator.normal(size=(20, 3)) * 9, 3),
        (ThresholdLearner(bits=8, epsilon=1), generator.integers(0, 256, (20, 1)), 1),
        (ThresholdLearner(bits=64, epsilon=1), np.array([[2**64 - 1], [0]] * 10, dtype=np.uint64), 1),
        (ThresholdLearner(bits=2000, epsilon=1), np.array([[2**2000 - 1], [0]] * 10, dtype=object), 1),
        (ThresholdLearner(domain=Floats(), epsilon=1), np.array([[LARGEST], [-LARGEST]] * 10), 1),
        (ThresholdLearner(domain=Datetimes("s"), epsilon=1), np.array([["2020"], ["1970"]] * 10, "datetime64[s]"), 1),
        (RectangleLearner(bits=4, epsilon=1), generator.integers(0, 16, (20, 2)), 2),
    ]
    for learner, X, columns in cases:
        features = unit_features(fitted(learner, X, y), X)
        assert features.shape == (20, columns)
        assert np.sqrt((features**2).sum(axis=1)).max() <= 1 + 1e-12
        assert np.unique(features, axis=0).shape[0] > 1


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS, LABELS = np.zeros((4, 2)), np.array([0, 1, 0, 1])
BAD: list[tuple[str, Any]] = [
    *[("epsilon", bad) for bad in (0, -1, math.nan, math.inf, None, "1")],
    *[("delta", bad) for bad in (-1, 1, math.nan, None, "1")],
    *[("classes", bad) for bad in (1, 0, -1, 2.5, None)],
    ("features", np.zeros(4)),
    ("features", np.zeros((0, 2))),
    ("labels", np.array([0, 1, 0])),
    ("labels", np.array([0, 1, 0, 777])),
    ("labels", np.array([0, 1, 0, -1])),
    ("labels", np.array([0.5, 1, 0, 1])),
]


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_bad_input_is_refused_by_name_and_without_quoting_data(name: str, bad: Any) -> None:
    good: dict[str, Any] = {"features": ROWS, "labels": LABELS, "classes": 2, "epsilon": 1, "delta": 1e-6}
    with pytest.raises((TypeError, ValueError), match=name) as refusal:
        drift_summary(**good | {name: bad})
    assert "777" not in str(refusal.value)


@pytest.mark.parametrize("bad", [0, 1, -1, math.nan, "1"])
def test_false_alarm_must_be_a_share(bad: Any) -> None:
    summary = summary_of(ROWS, LABELS, noise.Seeded(unsafe_seed=0))
    with pytest.raises((TypeError, ValueError), match="false_alarm"):
        tolerance(summary, summary, bad)
