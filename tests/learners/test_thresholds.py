from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from common import (
    BAD_BITS,
    BAD_DELTA,
    BAD_EPSILON,
    BAD_ERROR,
    BAD_FAILURE,
    ONE_COLUMN,
    OTHER_LABELS,
    RANDOM,
    TINY,
    Array,
    FirstColumn,
    Rows,
    allowed,
    learner_law,
    refuses,
    refuses_too_few_rows,
    table,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import worst_case
from reticent.audit.neighbours import divergences, random_row_replacements, row_replacements
from reticent.concepts import Datetimes, Floats, Integers, Threshold
from reticent.errors import PrivacyWarning
from reticent.learners.thresholds import ThresholdLearner, error_counts
from reticent.mechanisms import Pieces, Release, quasi_concave_maximum
from reticent.noise import Noise
from reticent.privacy import Guarantee
from reticent.privacy.events import ApproximateDP, BoundedRange, SeededRelease

# ── the scores ────────────────────────────────────────────────────────────────────────────────────────────────────

BITS = 3
ROWS = st.lists(st.tuples(st.integers(0, 2**BITS - 1), st.integers(0, 1)), min_size=1, max_size=6).map(tuple)


def scores(rows: Rows) -> tuple[list[int], list[int]]:
    """Both scores of all thresholds of three bits: the number of correct rows, and that of the deeper search."""
    X, y = table(rows)
    starts, false_ones, false_zeros = error_counts(X[:, 0], y, Integers(BITS))
    kinds = (false_ones + false_zeros, np.maximum(false_ones, false_zeros))
    correct, deeper = (Pieces.from_breakpoints(starts, len(rows) - errors, last=2**BITS) for errors in kinds)
    return [correct(t) for t in range(2**BITS + 1)], [deeper(t) for t in range(2**BITS + 1)]


def is_quasi_concave(values: list[int]) -> bool:
    return all(
        values[middle] >= min(max(values[: middle + 1]), max(values[middle:])) for middle in range(len(values))
    )


@given(rows=ROWS)
def test_scores_count_errors(rows: Rows) -> None:
    correct, deeper = scores(rows)
    for t in range(2**BITS + 1):
        zeros_below = sum(value < t and label == 0 for value, label in rows)
        ones_above = sum(value >= t and label == 1 for value, label in rows)
        assert correct[t] == len(rows) - zeros_below - ones_above
        assert deeper[t] == len(rows) - max(zeros_below, ones_above)
        assert 2 * deeper[t] <= correct[t] + len(rows)


@given(rows=ROWS, target=st.integers(0, 2**BITS))
def test_the_deeper_score_is_quasi_concave_on_any_data_and_counts_correct_rows_where_a_threshold_fits(
    rows: Rows, target: int
) -> None:
    assert is_quasi_concave(scores(rows)[1])
    fitted = tuple((value, int(value < target)) for value, _ in rows)
    correct, deeper = scores(fitted)
    assert correct == deeper
    assert deeper[target] == len(rows)


def test_the_number_of_correct_rows_is_not_quasi_concave_on_all_data() -> None:
    assert not is_quasi_concave(scores(((0, 1), (3, 0), (5, 1)))[0])


@given(rows=ROWS, replaced=st.tuples(st.integers(0, 2**BITS - 1), st.integers(0, 1)))
def test_both_scores_have_sensitivity_1(rows: Rows, replaced: tuple[int, int]) -> None:
    for before, after in zip(scores(rows), scores((replaced, *rows[1:])), strict=True):
        assert max(abs(a - b) for a, b in zip(before, after, strict=True)) <= 1


# ── privacy: the exact law of the whole learner ───────────────────────────────────────────────────────────────────


class CountsTwice(ThresholdLearner):
    """A twin: correct rows less wrong ones, which a replaced row moves by 2."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(np.append(rows, rows), np.append(labels, labels), unsafe_noise)


ALL_ROWS = [(value, label) for value in range(4) for label in (0, 1)]


def neighbours(six_rows: int = 25) -> list[tuple[Rows, Rows]]:
    few = [*row_replacements(ALL_ROWS, 1, ordered=False), *row_replacements(ALL_ROWS, 2, ordered=False)]
    return few + list(random_row_replacements(np.random.default_rng(0), six_rows, domain=ALL_ROWS, rows=6))


@pytest.mark.slow
def test_exact_law_of_the_plain_learner_and_its_twin() -> None:
    learner = ThresholdLearner(bits=2, epsilon=1)
    pairs = [pair for _, _, pair in divergences(learner_law(learner), neighbours())]
    assert max(pair.delta(1)[1] for pair in pairs) < TINY
    assert max(pair.delta(0.7)[0] for pair in pairs) > 0.01  # ε is not wasted either
    twin = CountsTwice(bits=2, epsilon=1)
    assert worst_case(learner_law(twin), neighbours(0)[:28], epsilon=1).lower > 0.01
    X, y = table(neighbours()[0][0])
    fitted = learner.fit(X, y)
    assert fitted.guarantee_ == Guarantee(epsilon=1.0)
    assert fitted.event_ == BoundedRange(Fraction(1))


def test_exact_law_with_the_other_sign() -> None:
    pairs = neighbours(0)[:28]
    assert worst_case(learner_law(ThresholdLearner(bits=2, epsilon=1, sign=">=")), pairs, epsilon=1).upper < TINY
    twin = CountsTwice(bits=2, epsilon=1, sign=">=")
    assert worst_case(learner_law(twin), pairs, epsilon=1).lower > 0.01


class ReadsTheRange(ThresholdLearner):
    """A twin: it looks for the threshold between the least and the greatest value of the data."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        starts, false_ones, false_zeros = error_counts(rows, labels, Integers(6))
        pieces = Pieces.from_breakpoints(starts, len(rows) - np.maximum(false_ones, false_zeros), last=64)
        low, high = int(rows.min()), int(rows.max())
        rank, event = quasi_concave_maximum(
            pieces.within(low, high + 1),
            promise=len(rows),
            accuracy=Fraction(1, 2),
            epsilon=self.epsilon,
            delta=self.delta,
            depth=2,
            unsafe_noise=unsafe_noise,
        )
        return Release(Threshold(rank), event)


DEEP: dict[str, Any] = {"bits": 6, "epsilon": 3, "delta": Fraction(1, 20), "depth": 2}
DEEP_PAIRS: list[tuple[Rows, Rows]] = [
    (((20, 1),) * 3 + ((21, 0),) * 3, ((20, 1),) * 3 + ((21, 0),) * 2 + ((20, 0),)),
    (((0, 1), (9, 1), (31, 1), (32, 0), (50, 0), (63, 0)), ((63, 1), (9, 1), (31, 1), (32, 0), (50, 0), (63, 0))),
    (((40, 0),) * 6, ((40, 0),) * 5 + ((63, 1),)),
]


@pytest.mark.slow
def test_exact_law_of_the_deeper_learner_and_its_twin() -> None:
    learner = ThresholdLearner(**DEEP)
    assert worst_case(learner_law(learner), DEEP_PAIRS, epsilon=3).upper <= 0.05
    assert worst_case(learner_law(ReadsTheRange(**DEEP)), DEEP_PAIRS, epsilon=3).lower > 0.05
    fitted = learner.fit(*table(DEEP_PAIRS[0][0]))
    assert fitted.guarantee_ == Guarantee(epsilon=3.0, delta=0.05)
    assert fitted.event_ == ApproximateDP(Fraction(3), Fraction(1, 20))


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────


def around(bits: int, target: int, error: float) -> dict[str, dict[str, Any]]:
    """Distributions around the target, with a probability just above the error next to it."""
    top, just_above = (1 << bits) - 1, error * 1.001
    rest = 0.5 - just_above
    distributions: dict[str, tuple[list[int], list[float]]] = {
        "atoms on either side": ([target - 1, target, 0, top], [just_above, just_above, rest, rest]),
        "gaps": ([0, target >> 1, target, top], [rest, just_above, just_above, rest]),
        "two points": ([target - 1, target], [just_above, 1 - just_above]),
        "a staircase": ([target + i for i in range(-20, 20)], [1 / 40] * 40),
    }
    return {
        name: {"values": values, "weights": weights, "target": target}
        for name, (values, weights) in distributions.items()
    }


def true_error(at: int, target: int, values: list[int], weights: list[float]) -> float:
    return sum(weight for value, weight in zip(values, weights, strict=True) if (value < at) != (value < target))


def failures(
    learner: ThresholdLearner,
    *,
    rows: int,
    error: float,
    trials: int,
    values: list[int],
    weights: list[float],
    target: int,
) -> int:
    """In how many of the trials the error is more than `error`."""
    generator = np.random.default_rng(7)
    points = np.array(values, dtype=object)
    bad = 0
    for trial in range(trials):
        sample = points[generator.choice(len(values), size=rows, p=np.array(weights) / sum(weights))]
        learner.set_params(unsafe_seed=trial).fit(sample[:, None], (sample < target).astype(int))
        bad += true_error(int(learner.hypothesis_.at), target, values, weights) > error
    return bad


@pytest.mark.slow
@pytest.mark.parametrize("case", ["atoms on either side", "gaps", "two points", "a staircase"])
def test_promise_of_the_plain_learner(case: str) -> None:
    target = 40_000
    where = around(16, target, 0.1)[case]
    learner = ThresholdLearner(bits=16, epsilon=1, error=0.1, failure=0.1)
    rows = learner.n_required(0.1)
    assert failures(learner, rows=rows, error=0.1, trials=100, **where) <= allowed(100, 0.1)
    assert learner.depth_ == 1


@pytest.mark.parametrize("case", ["atoms on either side", "two points"])
def test_half_of_the_rows_would_not_do(case: str) -> None:
    target = 40_000
    where = around(16, target, 0.1)[case]
    learner = ThresholdLearner(bits=16, epsilon=1, failure=0.1)
    half = learner.n_required(0.1) // 2
    assert failures(learner, rows=half, error=0.1, trials=100, **where) > allowed(100, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["atoms on either side", "gaps"])
def test_promise_of_the_deeper_learner(case: str) -> None:
    target = 3 << 497
    where = around(500, target, 0.2)[case]
    learner = ThresholdLearner(bits=500, epsilon=1, delta=1e-6, error=0.2, failure=0.1)
    rows = learner.n_required(0.2)
    assert failures(learner, rows=rows, error=0.2, trials=25, **where) <= allowed(25, 0.1)
    assert learner.depth_ == 2


def test_promise_on_labels_that_no_threshold_fits() -> None:
    learner = ThresholdLearner(bits=16, epsilon=1, failure=0.1)
    rows, generator, bad = learner.n_required(0.2, agnostic=True), np.random.default_rng(3), 0
    chance = {10: 0.9, 300: 0.4, 301: 0.7, 65_000: 0.3}  # of the label 1, at each of four equally likely values
    values = np.array(list(chance))

    def error_of(at: int) -> float:
        return sum(1 - p if value < at else p for value, p in chance.items()) / 4

    for trial in range(100):
        sample = generator.choice(values, size=rows)
        labels = generator.random(rows) < np.vectorize(chance.get)(sample)
        learner.set_params(unsafe_seed=trial).fit(sample[:, None], labels)
        bad += error_of(int(learner.hypothesis_.at)) > 0.2 + min(map(error_of, [0, *(values + 1)]))
    assert bad <= allowed(100, 0.1)


def test_too_few_rows_for_the_error_asked_for() -> None:
    refuses_too_few_rows(ThresholdLearner(bits=16, epsilon=1, error=0.1))


def test_rows_required_grow_as_they_should() -> None:
    def rows(bits: int, **changed: Any) -> int:
        learner = ThresholdLearner(**{"bits": bits, "epsilon": 1, "delta": 1e-6, **changed})
        return learner.n_required(0.1)

    assert rows(16) < rows(64) < rows(200) < rows(1000)
    assert rows(100_000) < 1.2 * rows(1000) < rows(1000, delta=0) / 2
    assert rows(64, epsilon=0.1) > 8 * rows(64)
    assert rows(64, failure=0.001) > rows(64)
    assert ThresholdLearner(bits=64, epsilon=1).n_required(0.01) > 9 * rows(64)


# ── what it learns from ───────────────────────────────────────────────────────────────────────────────────────────


def test_wide_integers_floats_and_datetimes() -> None:
    wide = [[(i << 900) + 5] for i in range(2000)]
    learner = ThresholdLearner(bits=1000, epsilon=5, delta=1e-6, unsafe_seed=0)
    learner.fit(wide, [int(i < 700) for i in range(2000)])
    assert learner.depth_ == 2
    assert learner.score(wide, [int(i < 700) for i in range(2000)]) > 0.9

    for bits in (63, 64):  # the threshold above all values needs one bit more
        top = np.full((500, 1), 2**bits - 1, dtype=np.uint64)
        ones = ThresholdLearner(bits=bits, epsilon=10).fit(top, np.ones(500))
        assert ones.hypothesis_ == Threshold(at=2**bits)

    generator = np.random.default_rng(0)
    floats = generator.normal(size=(3000, 1))
    above = ThresholdLearner(domain=Floats(), epsilon=2, sign=">=").fit(floats, floats[:, 0] >= -0.5)
    assert above.hypothesis_.at == pytest.approx(-0.5, abs=0.2)
    assert above.score(floats, floats[:, 0] >= -0.5) > 0.95

    days = np.datetime64("2020-01-01") + (np.arange(3000)[:, None] % 700).astype("timedelta64[D]")
    dates = ThresholdLearner(domain=Datetimes("D"), epsilon=2).fit(days, days[:, 0] < np.datetime64("2020-07-01"))
    assert abs(dates.hypothesis_.at - np.datetime64("2020-07-01")) < np.timedelta64(30, "D")


def test_depth() -> None:
    def depth(**changed: Any) -> int:
        learner = ThresholdLearner(**{"bits": 64, "epsilon": 1, "delta": 1e-6, **changed})
        found: int = learner.fit([[0]] * 9 + [[1]] * 9, [1] * 9 + [0] * 9).depth_
        return found

    assert [depth(), depth(depth=2), depth(bits=5, depth=2)] == [1, 2, 1]  # a small range has no deeper search
    assert [depth(bits=1000), depth(bits=1000, delta=0)] == [2, 1]


def test_a_delta_that_is_not_used_is_not_claimed() -> None:
    learner = ThresholdLearner(bits=8, epsilon=0.3, delta=1e-6).fit([[1], [2]], [1, 0])
    assert learner.guarantee_ == Guarantee(epsilon=0.3)
    seeded = clone(learner).set_params(unsafe_seed=1).fit([[1], [2]], [1, 0])
    assert seeded.guarantee_.seeded
    assert seeded.event_ == SeededRelease(BoundedRange(Fraction(3, 10)))


def test_cloned_and_pickled() -> None:
    learner = ThresholdLearner(bits=8, epsilon=1, unsafe_seed=5).fit([[1], [2]], [1, 0])
    again = clone(learner).fit([[1], [2]], [1, 0])
    assert again.hypothesis_ == learner.hypothesis_ == pickle.loads(pickle.dumps(learner)).hypothesis_


def test_a_delta_above_one_over_the_rows_is_warned_of() -> None:
    with pytest.warns(PrivacyWarning, match="not below 1/2"):
        ThresholdLearner(bits=8, epsilon=1, delta=0.6, depth=2).fit([[1], [2]], [1, 0])


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = OTHER_LABELS | {"check_classifiers_train": "no threshold on one column fits the data"}


class OfTheFirstColumn(FirstColumn, ThresholdLearner): ...


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    parameters: dict[str, Any] = {"domain": Floats(), "epsilon": 100, "unsafe_seed": seed}
    check_estimator(ThresholdLearner(**parameters), on_skip=None, expected_failed_checks=EXPECTED | ONE_COLUMN)
    expected = EXPECTED if seed is not None else EXPECTED | RANDOM
    check_estimator(OfTheFirstColumn(**parameters), on_skip=None, expected_failed_checks=expected)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, Any] = {"bits": 8, "epsilon": 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in BAD_EPSILON],
        *[("delta", bad) for bad in BAD_DELTA],
        *[("depth", bad) for bad in [0, -1, 1.5, "deep", None, True]],
        *[("failure", bad) for bad in BAD_FAILURE],
        *[("error", bad) for bad in BAD_ERROR],
        *[("bits", bad) for bad in BAD_BITS],
        *[("domain", bad) for bad in [Floats(), 5]],  # beside bits
        *[("sign", bad) for bad in ["", ">", 1, None]],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        ThresholdLearner(**{**GOOD, name: value}).fit("no data", None)  # type: ignore[arg-type]


def test_depth_2_needs_delta_and_the_agnostic_promise_depth_1() -> None:
    with pytest.raises(ValueError, match="delta"):
        ThresholdLearner(bits=64, epsilon=1, depth=2).fit("no data", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="depth=1"):
        ThresholdLearner(bits=64, epsilon=1, delta=1e-6, depth=2).n_required(0.1, agnostic=True)
    with pytest.raises(ValueError, match="bits"):
        ThresholdLearner(domain=Integers(), epsilon=1).n_required(0.1)
    for bad in (0, 1, math.nan):
        with pytest.raises(ValueError, match="error"):
            ThresholdLearner(**GOOD).n_required(bad)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[777], [1]], r"X must lie in \[0, 2\^8\)"),
        ([[-777], [1]], r"X must lie in \[0, 2\^8\)"),
        ([[0.777], [1]], "X must hold whole numbers"),
        ([[math.nan], [1]], "NaN"),
        ([[math.inf], [1]], "inf"),
        ([["777"], ["1"]], "X must hold"),
        ([[None], [1]], "X must hold"),
        ([[777, 1], [1, 2]], "single column|expecting 1 feature"),
        ([777, 1], "Reshape your data"),
        ([], "two dimensions"),
        (np.zeros((0, 1)), "0 sample"),
        (np.zeros((2, 0)), "0 feature"),
        (np.array([["2020-01-01"], ["2020-01-02"]], dtype="datetime64[D]"), "whole numbers"),
        (np.array([[777j], [1]]), "Complex"),
        (sparse.csr_array([[777], [1]]), "sparse"),
        ("777", "X must be"),
        (None, "X must be"),
    ],
)
def test_bad_rows_are_refused_and_not_repeated(X: Any, words: str) -> None:
    learner = ThresholdLearner(**GOOD)
    for run in (lambda: learner.fit(X, [0, 1]), lambda: ThresholdLearner(**GOOD).fit([[1], [2]], [1, 0]).predict(X)):
        refuses(run, words)


@pytest.mark.parametrize(
    "y",
    [[0, 777], [-1, 1], [0.5, 1], [0, math.nan], ["no", "777"], [None, 1], [0], [0, 1, 1], [[0, 1], [1, 0]], None, 777],
)
def test_bad_labels_are_refused_and_not_repeated(y: Any) -> None:
    refuses(lambda: ThresholdLearner(**GOOD).fit([[1], [2]], y), "y")


@given(epsilon=st.one_of(st.floats(), st.integers(), st.none()), delta=st.one_of(st.floats(), st.integers()))
def test_any_parameters_are_taken_or_refused(epsilon: Any, delta: Any) -> None:
    learner = ThresholdLearner(bits=4, epsilon=epsilon, delta=delta)
    if epsilon is not None and 0 < epsilon < 1e6 and 0 <= delta < 1:
        assert learner.fit([[3], [9]], [1, 0]).guarantee_ <= Guarantee(epsilon=max(epsilon, 1e-12))
    elif epsilon is None or not 0 < epsilon < math.inf or not 0 <= delta < 1:
        with pytest.raises((TypeError, ValueError), match=r"epsilon|delta"):
            learner.fit([[3], [9]], [1, 0])
