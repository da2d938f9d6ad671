from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from common import (
    BAD_BITS,
    BAD_DATA,
    BAD_DELTA,
    BAD_EPSILON,
    BAD_ERROR,
    BAD_FAILURE,
    ONE_COLUMN,
    OTHER_LABELS,
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
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import law, worst_case
from reticent.audit.neighbours import random_row_replacements, row_replacements
from reticent.concepts import Datetimes, Floats, Integers, Point, PointSet
from reticent.errors import PrivacyWarning
from reticent.learners.points import PointLearner
from reticent.mechanisms import Release
from reticent.mechanisms.stable_argmax import release_table
from reticent.noise import Noise
from reticent.privacy import Guarantee
from reticent.privacy.events import ApproximateDP, SeededRelease

NO_POINT = PointSet(())


# ── privacy: the exact law of the whole learner ───────────────────────────────────────────────────────────────────


class CountsTwice(PointLearner):
    """A twin: every row counts twice, so that a replaced row moves the gap by 4."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(np.append(rows, rows), np.append(labels, labels), unsafe_noise)


class FallsBackOnARow(PointLearner):
    """A twin: where no point stands out it names the first that occurs with label 1."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        found, event = super()._learn(rows, labels, unsafe_noise)
        ones = rows[labels == 1]
        return Release(Point(int(ones[0])) if found == NO_POINT and len(ones) else found, event)


PRIVACY: dict[str, Any] = {"bits": 2, "epsilon": 1, "delta": Fraction(1, 10)}
ALL_ROWS = [(value, label) for value in range(3) for label in (0, 1)]


def neighbours() -> list[tuple[Rows, Rows]]:
    """All neighbours of up to 3 rows, and of 6 rows: random ones, and those with many rows of label 1 at a point."""
    few = [pair for rows in (1, 2, 3) for pair in row_replacements(ALL_ROWS, rows, ordered=False)]
    crowded: list[tuple[Rows, Rows]] = [
        (((0, 1),) * ones + ((1, 0),) * (5 - ones) + (old,), ((0, 1),) * ones + ((1, 0),) * (5 - ones) + (new,))
        for ones in range(6)
        for old in ALL_ROWS
        for new in ALL_ROWS
    ]
    return few + crowded + list(random_row_replacements(np.random.default_rng(0), 40, domain=ALL_ROWS, rows=6))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_exact_law_of_the_learner_and_its_twins() -> None:
    learner = PointLearner(**PRIVACY)
    worst = worst_case(learner_law(learner), neighbours(), epsilon=1)
    assert worst.upper <= 0.1
    assert worst.lower > 0.099  # nothing of δ is wasted
    for twin in (CountsTwice(**PRIVACY), FallsBackOnARow(**PRIVACY)):
        assert worst_case(learner_law(twin), neighbours(), epsilon=1).lower > 0.11
    fitted = learner.fit(*table(neighbours()[0][0]))
    assert fitted.guarantee_ == Guarantee(epsilon=1.0, delta=0.1)
    assert fitted.event_ == ApproximateDP(Fraction(1), Fraction(1, 10))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_exact_law_where_the_points_fill_the_domain() -> None:
    rows = [(value, label) for value in range(2) for label in (0, 1)]
    pairs = list(row_replacements(rows, 5, ordered=False))
    assert worst_case(learner_law(PointLearner(**{**PRIVACY, "bits": 1})), pairs, epsilon=1).upper <= 0.1
    assert worst_case(learner_law(CountsTwice(**{**PRIVACY, "bits": 1})), pairs, epsilon=1).lower > 0.11


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=6).map(tuple))
@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_only_the_most_frequent_point_with_label_1_is_ever_named(rows: Rows) -> None:
    outcomes = law(lambda noise: learner_law(PointLearner(**PRIVACY))(noise, rows)).high.keys()
    counts = [sum(row == (value, 1) for row in rows) for value in range(4)]
    named = {found.at for found in outcomes if isinstance(found, Point)}
    alone = counts.count(max(counts)) == 1
    assert named == ({counts.index(max(counts))} if alone else set())
    assert outcomes - {Point(at) for at in named} <= {NO_POINT}


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────

TARGET = 2**70 + 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "weights"),
    [
        ([TARGET, 0], [0.1001, 0.8999]),  # just heavy enough to matter
        ([TARGET, TARGET + 1, TARGET - 1], [0.15, 0.45, 0.4]),
        ([TARGET, *range(50)], [0.5, *[0.01] * 50]),
        ([TARGET, 3], [0.05, 0.95]),  # too light to matter: either answer is good, another point is not
        ([0, 3], [0.5, 0.5]),  # no point at all
    ],
)
def test_promise(values: list[int], weights: list[float]) -> None:
    trials, failure, error = 200, 0.1, 0.1
    learner = PointLearner(bits=80, epsilon=1, delta=1e-6, error=error, failure=failure)
    rows, generator, bad = learner.n_required(error), np.random.default_rng(1), 0
    points = np.array(values, dtype=object)
    for trial in range(trials):
        sample = points[generator.choice(len(values), size=rows, p=weights)]
        found = learner.set_params(unsafe_seed=trial).fit(sample[:, None], (sample == TARGET).astype(int)).hypothesis_
        wrong = {TARGET} if found == NO_POINT else {TARGET} ^ {found.at}
        bad += sum(weight for value, weight in zip(values, weights, strict=True) if value in wrong) > error
    assert bad <= allowed(trials, failure)


def test_the_rows_promised_are_the_fewest_for_the_worst_distribution() -> None:
    """The exact probability to miss a point of probability α, from the exact law at every count."""
    learner, error, failure = PointLearner(bits=8, epsilon=1, delta=Fraction(1, 100)), 0.25, 0.05

    def withheld(count: int) -> float:
        rows = ((7, 1),) * count + ((1, 0),)
        return 1 - law(lambda noise: learner_law(learner)(noise, rows)).probability(Point(7))

    withheld_at = [withheld(count) for count in range(40)]

    def missed(rows: int) -> float:
        return float(binom.pmf(range(40), rows, error) @ withheld_at)

    required = learner.n_required(error, failure)
    assert missed(required) <= failure < missed(required - 1)


@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_rows_required_do_not_depend_on_the_domain_but_on_the_rest() -> None:
    def rows(**changed: Any) -> int:
        return PointLearner(**{"bits": 64, "epsilon": 1, "delta": 1e-6, **changed}).n_required(0.1)

    assert rows() == rows(bits=1) == rows(bits=10_000) == rows(bits=None, domain=Integers())
    assert rows(epsilon=0.1) > 5 * rows() > 5 * rows(delta=1e-3)
    assert rows(failure=0.001) > rows()
    printed = 8 / 0.1 * math.log(4 / (0.05 * 1e-6))
    assert rows() < printed / 3


def test_too_few_rows_for_the_error_asked_for() -> None:
    refuses_too_few_rows(PointLearner(bits=16, epsilon=1, delta=1e-6, error=0.1))


# ── what it learns from ───────────────────────────────────────────────────────────────────────────────────────────


def test_wide_integers_floats_and_datetimes() -> None:
    privacy: dict[str, Any] = {"epsilon": 2, "delta": 1e-6}
    y = [1] * 60 + [0] * 40
    wide = PointLearner(bits=1000, **privacy).fit([[2**999 + 1]] * 60 + [[2**999]] * 40, y)
    assert wide.hypothesis_ == Point(2**999 + 1)
    assert wide.predict([[2**999 + 1], [2**999]]).tolist() == [1, 0]
    floats = PointLearner(domain=Floats(), **privacy).fit([[0.1]] * 30 + [[0.1]] * 30 + [[-0.0]] * 40, y)
    assert floats.hypothesis_ == Point(0.1)
    day = np.datetime64("2020-02-29")
    days = np.array([[day]] * 60 + [[day + np.timedelta64(1, "D")]] * 40)
    assert PointLearner(domain=Datetimes("D"), **privacy).fit(days, y).hypothesis_ == Point(day)


def test_no_point_labels_everything_0() -> None:
    learner = PointLearner(bits=8, epsilon=1, delta=1e-9).fit([[3], [4]], [0, 0])
    assert learner.hypothesis_ == NO_POINT
    assert learner.predict([[3], [4], [255]]).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="X must lie in"):
        learner.predict([[256]])


def test_seeded_cloned_and_pickled() -> None:
    learner = PointLearner(bits=8, epsilon=1, delta=1e-6, unsafe_seed=5).fit([[1]] * 50, [1] * 50)
    assert learner.guarantee_.seeded
    assert learner.event_ == SeededRelease(ApproximateDP(Fraction(1), Fraction(1, 10**6)))
    again = clone(learner).fit([[1]] * 50, [1] * 50)
    assert again.hypothesis_ == learner.hypothesis_ == pickle.loads(pickle.dumps(learner)).hypothesis_ == Point(1)


def test_a_delta_above_one_over_the_rows_is_warned_of() -> None:
    with pytest.warns(PrivacyWarning, match="not below 1/2"):
        PointLearner(bits=8, epsilon=1, delta=0.6).fit([[1], [2]], [1, 0])


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = OTHER_LABELS | {
    "check_classifiers_train": "no point fits the data",
    "check_classifiers_one_label": "all rows have label 1, but no two the same value: no point stands out",
}


class OfTheFirstColumn(FirstColumn, PointLearner): ...


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    parameters: dict[str, Any] = {"domain": Floats(), "epsilon": 100, "delta": 1e-3, "unsafe_seed": seed}
    check_estimator(PointLearner(**parameters), on_skip=None, expected_failed_checks=EXPECTED | ONE_COLUMN)
    check_estimator(OfTheFirstColumn(**parameters), on_skip=None, expected_failed_checks=EXPECTED)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, Any] = {"bits": 8, "epsilon": 1, "delta": 1e-6}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in [*BAD_EPSILON, 1e-9]],
        *[("delta", bad) for bad in [*BAD_DELTA, 0]],
        *[("failure", bad) for bad in BAD_FAILURE],
        *[("error", bad) for bad in BAD_ERROR],
        *[("bits", bad) for bad in BAD_BITS],
        *[("domain", bad) for bad in [Floats(), 5]],  # beside bits
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        PointLearner(**{**GOOD, name: value}).fit("no data", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("X", "y"), BAD_DATA)
def test_bad_data_are_refused_and_not_repeated(X: Any, y: Any) -> None:
    refuses(lambda: PointLearner(**GOOD).fit(X, y), r"X|y")


@pytest.mark.parametrize("failure", [0.5, 0.05, 1e-4])
def test_sample_errors_are_the_counts_that_may_be_withheld(failure: float) -> None:
    learner = PointLearner(bits=8, epsilon=1, delta=1e-6, failure=failure)
    most = learner.sample_errors(10**6)
    entries, unit = release_table(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    released = [Fraction(entries[(count + 1) // 2], unit) for count in range(2 * len(entries) - 1)]
    assert 1 - released[most] > failure / 2 >= 1 - released[most + 1]
    assert learner.sample_errors(10) == 10
