from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import law, worst_case
from reticent.audit.neighbours import row_replacements
from reticent.concepts import Datetimes, Floats, Integers, Point, PointSet, Threshold
from reticent.data.points import as_point_table
from reticent.errors import InsufficientData, PrivacyWarning
from reticent.mechanisms import Release
from reticent.mechanisms.counts import add_noise
from reticent.mechanisms.stability_histogram import histogram_threshold
from reticent.noise import Noise
from reticent.privacy import fits
from reticent.privacy.events import ApproximateDP, PureDP, SeededRelease
from reticent.sanitizers import points as module
from reticent.sanitizers.points import PointSanitizer, at_most, calls, points_event

Array = NDArray[Any]
Rows = tuple[int, ...]
Found = tuple[tuple[Any, ...], tuple[float, ...]]

TAIL_BITS = 20


# ── privacy: the exact law of the whole sanitizer ─────────────────────────────────────────────────────────────────


def sanitizer_law(sanitizer: PointSanitizer) -> Callable[[Noise, Rows], Found]:
    """All that is published. What `fit_with_noise` does besides is checks and accounting, which draw nothing."""

    def run(noise: Noise, rows: Rows) -> Found:
        (points, weights), _ = sanitizer._sanitize(np.array(rows), noise)
        return tuple(points.tolist()), tuple(weights.tolist())

    return run


class Half(Noise):
    """Noise half as wide as it should be."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_laplace(scale / 2, size)

    def laplace_cell(self, scale: Fraction, cuts: Any) -> int:
        return self.noise.laplace_cell(scale / 2, cuts)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        return self.noise.choose(scores, rate=2 * rate, counts=counts)


class HalfTheNoise(PointSanitizer):
    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        assert unsafe_noise is not None
        return super()._sanitize(rows, Half(unsafe_noise))


class ComparesWithoutNoise(PointSanitizer):
    """A twin: whether a value is published depends on its count without the noise."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        assert unsafe_noise is not None
        values, counts = np.unique(rows, return_counts=True)
        noisy = add_noise(counts.astype(np.int64), unsafe_noise.discrete_laplace, 2 / Fraction(str(self.epsilon)))
        shown = counts >= min(3, histogram_threshold(epsilon=self.epsilon, delta=self.delta))
        return Release((values[shown], np.maximum(noisy[shown], 0) / len(rows)), PureDP(Fraction(1)))


class CountsWithoutNoise(PointSanitizer):
    """A twin of SanPoints: what is found is counted without noise."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        (points, _), event = super()._sanitize(rows, unsafe_noise)
        return Release((points, np.array([np.mean(rows == point) for point in points])), event)


class InTheOrderOfTheData(PointSanitizer):
    """A twin: values are listed in the order in which they first occur."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        (points, weights), event = super()._sanitize(rows, unsafe_noise)
        order = np.argsort([rows.tolist().index(point) for point in points])
        return Release((points[order], weights[order]), event)


class ListsWhatItHides(PointSanitizer):
    """A twin: values below the threshold are listed too, with weight 0."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        (points, weights), event = super()._sanitize(rows, unsafe_noise)
        every = np.unique(rows)
        found = dict(zip(points.tolist(), weights.tolist(), strict=True))
        return Release((every, np.array([found.get(value, 0.0) for value in every.tolist()])), event)


HISTOGRAM: dict[str, Any] = {"bits": 2, "epsilon": 5, "delta": Fraction(8, 100)}
CHOOSING: dict[str, Any] = {"bits": 2, "epsilon": 8, "delta": Fraction(1, 500), "method": "choosing"}


def neighbours() -> list[tuple[Rows, Rows]]:
    """All neighbours of 1 and 6 rows with two values, some of 3 rows with three, and one in which the order changes."""
    two = [pair for rows in (1, 6) for pair in row_replacements(range(2), rows, ordered=False)]
    three = list(row_replacements(range(3), 3, ordered=False))[::7]
    return [*two, *three, ((0, 0, 0, 1, 1, 1), (1, 0, 0, 1, 1, 1))]


def worst(sanitizer: PointSanitizer, pairs: list[tuple[Rows, Rows]], tail_bits: int = TAIL_BITS) -> tuple[float, float]:
    found = worst_case(sanitizer_law(sanitizer), pairs, epsilon=sanitizer.epsilon, tail_bits=tail_bits)
    return found.lower, found.upper


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_exact_law_of_the_histogram_and_its_twins() -> None:
    lower, upper = worst(PointSanitizer(**HISTOGRAM), neighbours())
    assert upper <= 0.08
    assert lower > 0.94 * 0.08  # nearly all of δ is used
    for twin in (HalfTheNoise, ComparesWithoutNoise, InTheOrderOfTheData, ListsWhatItHides):
        assert worst(twin(**HISTOGRAM), neighbours())[0] > 0.09, twin


@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_exact_law_of_sanpoints_and_its_twins() -> None:
    pairs = list(row_replacements(range(2), 6, ordered=False))
    real = PointSanitizer(**CHOOSING, rounds=1)
    assert worst(real, pairs)[1] <= 0.002
    three_quarters = worst_case(sanitizer_law(real), pairs, epsilon=5.9, tail_bits=TAIL_BITS)
    assert three_quarters.lower > 0.002  # a choice and a count cost at least 3/4 of what is charged for them
    for twin in (HalfTheNoise, CountsWithoutNoise):
        assert worst(twin(**CHOOSING, rounds=1), pairs)[0] > 0.01, twin


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_exact_law_of_two_rounds_of_sanpoints_and_their_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[tuple[Rows, Rows]] = [((0,) * 6, (0,) * 5 + (1,)), ((0, 0, 0, 1, 1, 1), (1, 0, 0, 1, 1, 1))]
    privacy = {**CHOOSING, "epsilon": 16, "rounds": 2}
    bits = 50  # e^ε times what is not walked must be little
    assert worst(PointSanitizer(**privacy), pairs, bits)[1] <= 0.002
    monkeypatch.setattr(module, "calls", lambda *_: (Fraction(16), Fraction(1, 1000)))  # for each call the whole budget
    assert worst(PointSanitizer(**privacy), pairs, bits)[0] > 0.1


@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
def test_the_law_of_fit_is_the_law_that_was_audited() -> None:
    sanitizer, rows = PointSanitizer(**HISTOGRAM), (2, 2, 2)

    def fit(noise: Noise) -> Found:
        fitted = sanitizer.fit_with_noise(np.array(rows), noise)
        return tuple(fitted.points_.tolist()), tuple(fitted.weights_.tolist())

    whole = law(fit, tail_bits=TAIL_BITS)
    assert whole == law(lambda noise: sanitizer_law(sanitizer)(noise, rows), tail_bits=TAIL_BITS)
    assert len(whole.high) == 3  # nothing, 2/3, and 1, to which all that is higher was cut


@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
@given(rows=st.lists(st.integers(0, 3), min_size=1, max_size=8).map(tuple), seed=st.integers(0, 10**6))
def test_fit_publishes_what_was_audited(rows: Rows, seed: int) -> None:
    fitted = PointSanitizer(**HISTOGRAM, unsafe_seed=seed).fit(rows)
    again = PointSanitizer(**HISTOGRAM, unsafe_seed=seed).fit(sorted(rows))
    assert fitted.points_.tolist() == again.points_.tolist()  # the order of the rows plays no part
    assert fitted.weights_.tolist() == again.weights_.tolist()
    assert set(fitted.points_.tolist()) <= set(rows)
    assert (np.diff(fitted.points_) > 0).all()
    assert (fitted.weights_ >= 0).all()
    assert fitted.weights_.sum() <= 1 + 1e-12
    assert fitted.event_ == SeededRelease(ApproximateDP(Fraction(5), Fraction(8, 100)))
    assert fitted.rows_ == len(rows)


def test_the_calls_of_sanpoints_fit_the_budget_and_no_more_do() -> None:
    for rounds in (1, 2, 20, 200):
        own, lost = calls(Fraction(1), Fraction(1, 10**6), rounds)
        assert fits(points_event(own, lost, rounds), epsilon=1, delta=1e-6)
        assert not fits(points_event(own * Fraction(1001, 1000), lost, rounds), epsilon=1, delta=1e-6)
    printed = 1 / math.sqrt(32 * 10 * math.log(5e6))
    assert calls(Fraction(1), Fraction(1, 10**6), 20)[0] > 2 * printed


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────


def errors(sanitizer: PointSanitizer, data: Array) -> Array:
    """How far each frequency is off, for all values that occur or are published."""
    values = sorted({*data.tolist(), *sanitizer.points_.tolist()})
    shares = [float(np.mean(data == value)) for value in values]
    found = dict(zip(sanitizer.points_.tolist(), sanitizer.weights_.tolist(), strict=True))
    return np.array([found.get(value, 0.0) - share for value, share in zip(values, shares, strict=True)])


def hard_columns(rows: int, error: float) -> dict[str, Array]:
    """Columns that the proof fears: counts just above error·rows, all rows different, one value, a mixture."""
    high = math.floor(error * rows) + 1
    return {
        "just too frequent to miss": np.arange(rows) // high,
        "just rare enough to miss": np.arange(rows) // (high - 1),
        "all different": np.arange(rows),
        "one value": np.zeros(rows, dtype=np.int64),
        "half of it one value": np.where(np.arange(rows) % 2 == 0, 7, np.arange(rows) // high),
    }


@pytest.mark.parametrize("kind", list(hard_columns(100, 0.1)))
def test_promise(kind: str) -> None:
    trials, failure, error = 100, 0.1, 0.1
    sanitizer = PointSanitizer(bits=40, epsilon=1, delta=1e-5, error=error, failure=failure)
    data = hard_columns(sanitizer.n_required(error), error)[kind]
    off = [np.abs(errors(sanitizer.set_params(unsafe_seed=seed).fit(data), data)).max() for seed in range(trials)]
    assert np.count_nonzero(np.array(off) > error) <= binom.isf(1e-6, trials, failure)
    sets = [np.sort(np.abs(errors(sanitizer.set_params(unsafe_seed=1).fit(data), data)))[-3:].sum()]
    assert max(sets) <= 3 * error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["just too frequent to miss", "all different", "one value"])
def test_promise_of_sanpoints(kind: str) -> None:
    trials, failure, error = 30, 0.1, 0.25
    sanitizer = PointSanitizer(bits=40, epsilon=1, delta=1e-5, method="choosing", error=error, failure=failure)
    data = hard_columns(sanitizer.n_required(error), error)[kind]
    off = [np.abs(errors(sanitizer.set_params(unsafe_seed=seed).fit(data), data)).max() for seed in range(trials)]
    assert np.count_nonzero(np.array(off) > error) <= binom.isf(1e-6, trials, failure)


def test_the_rows_promised_are_hardly_more_than_the_worst_column_needs() -> None:
    """With a tenth fewer rows, the exact probability that one of the values just above the error stays unseen."""
    error, failure = 0.1, 0.05
    rows = PointSanitizer(bits=40, epsilon=1, delta=1e-6).n_required(error, failure) * 9 // 10
    count, threshold = math.floor(error * rows) + 1, histogram_threshold(epsilon=1, delta=1e-6)
    unseen = math.exp(-(count - threshold + 1) / 2) / (1 + math.exp(-1 / 2))  # P(Z ≤ τ − 1 − count)
    assert 1 - (1 - unseen) ** (rows // count) > failure


def test_rows_required() -> None:
    def rows(error: Any = 0.1, k: int = 1, **changed: Any) -> int:
        return PointSanitizer(**{"bits": 64, "epsilon": 1, "delta": 1e-6, **changed}).n_required(error, k=k)

    assert rows() == rows(bits=1) == rows(bits=10_000) == rows(bits=None, domain=Integers())
    assert rows(epsilon=0.1) > 5 * rows() > 5 * rows(delta=1e-4)
    assert rows(failure=0.001) > rows()
    assert rows(error=0.3, k=3) == rows(error=0.1)
    assert rows(method="choosing") > 30 * rows()
    with pytest.raises(ValueError, match="rounds must be at least 20"):
        rows(method="choosing", rounds=5)
    assert rows(method="choosing", rounds=20) == rows(method="choosing")


def test_the_condition_on_the_rows_goes_on_to_hold() -> None:
    for epsilon, delta in ((1, 1e-6), (1, 0.01), (0.1, 0.1), (20, 1e-9)):
        fails = PointSanitizer(bits=8, epsilon=epsilon, delta=delta)._histogram_fails()
        good = [fails(rows, 0.05) <= 0.05 for rows in range(1, 12_000)]
        assert all(good[good.index(True) :])


def test_too_few_rows_for_the_error_asked_for() -> None:
    sanitizer = PointSanitizer(bits=16, epsilon=1, delta=1e-6, error=0.1)
    required = sanitizer.n_required(0.1)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got {required - 1}") as refusal:
        sanitizer.fit(np.zeros(required - 1, dtype=int))
    assert refusal.value.required == required
    assert sanitizer.fit(np.zeros(required, dtype=int)).points_.tolist() == [0]


# ── frequencies and samples ───────────────────────────────────────────────────────────────────────────────────────


def test_frequencies_of_points_and_sets() -> None:
    sanitizer = PointSanitizer(bits=100, epsilon=1, delta=1e-6).fit([7] * 500 + [2**90] * 400 + list(range(1000, 1100)))
    at_seven, at_wide = sanitizer.frequency(Point(7)), sanitizer.frequency(Point(2**90))
    assert abs(at_seven - 0.5) < 0.1 > abs(at_wide - 0.4)
    assert sanitizer.frequency(PointSet((7, 2**90))) == pytest.approx(at_seven + at_wide)
    assert all(sanitizer.frequency(concept) == 0 for concept in (PointSet(()), Point(1000), Point(2**99)))
    with pytest.raises(TypeError, match="concept must be a Point or a PointSet, got Threshold"):
        sanitizer.frequency(Threshold(3))


def test_wide_integers_floats_and_datetimes() -> None:
    privacy: dict[str, Any] = {"epsilon": 2, "delta": 1e-6}
    floats = PointSanitizer(domain=Floats(), **privacy).fit([0.5] * 60 + [-0.0] * 40)
    assert floats.points_.tolist() == [0.0, 0.5]
    assert floats.sample(50, random_state=1).dtype == np.float64
    day = np.datetime64("2020-02-29")
    days = PointSanitizer(domain=Datetimes("D"), **privacy).fit(np.array([day] * 60 + [day + 1] * 40))
    assert days.points_.tolist() == [day.item(), (day + 1).item()]
    assert days.frequency(Point(day)) > 0.3
    assert days.sample(5).dtype == np.dtype("datetime64[D]")


def test_what_was_not_published_is_sampled_from_elsewhere() -> None:
    data = [3] * 500 + list(range(500))
    sanitizer = PointSanitizer(bits=10, epsilon=1, delta=1e-6, unsafe_seed=1).fit(data)
    assert sanitizer.points_.tolist() == [3]
    drawn = sanitizer.sample(20_000, random_state=5)
    assert abs(np.mean(drawn == 3) - sanitizer.weights_[0]) < 0.02
    rest = drawn[drawn != 3]
    assert set(rest.tolist()) == set(range(1024)) - {3}
    assert abs(rest.mean() - 1023 / 2) < 15
    assert (sanitizer.sample(100, random_state=5) == sanitizer.sample(100, random_state=5)).all()
    assert len(sanitizer.sample(0)) == 0


def test_samples_of_nothing_of_everything_and_of_the_endless() -> None:
    privacy: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
    nothing = PointSanitizer(bits=1000, **privacy).fit([5, 6, 7])
    assert nothing.points_.tolist() == []
    assert nothing.frequency(Point(5)) == 0
    assert max(nothing.sample(20).tolist()) > 2**900
    full = PointSanitizer(bits=1, **privacy).fit([0] * 100 + [1] * 100)
    assert set(full.sample(200, random_state=0).tolist()) == {0, 1}
    endless = PointSanitizer(domain=Integers(), **privacy).fit([1] * 100 + list(range(100)))
    with pytest.raises(ValueError, match="infinite domain has no uniform draw"):
        endless.sample(3)
    full.weights_ = np.zeros(2)  # as SanPoints may have it, if noise cancels all counts
    assert set(full.sample(200, random_state=0).tolist()) == {0, 1}
    for bad in ("1", -1, np.random.default_rng(0)):
        with pytest.raises((TypeError, ValueError), match="random_state must be"):
            full.sample(3, random_state=bad)  # type: ignore[arg-type]


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=8), total=st.integers(1, 100))
def test_the_nearest_counts_that_sum_to_at_most_the_rows(counts: list[int], total: int) -> None:
    given_counts = np.array(counts, dtype=np.float64)
    nearest = at_most(given_counts, total)
    assert (nearest >= 0).all()
    assert nearest.sum() <= max(total, 0) + 1e-9
    if sum(counts) <= total:
        assert nearest.tolist() == counts
    else:  # the nearest point of a convex set: no way into the set leads towards the given counts
        assert nearest.sum() == pytest.approx(total)
        corners = [np.zeros(len(counts)), *(total * np.eye(len(counts)))]
        assert all((given_counts - nearest) @ (corner - nearest) <= 1e-6 for corner in corners)


def test_seeded_cloned_and_pickled() -> None:
    sanitizer = PointSanitizer(bits=8, epsilon=1, delta=1e-6, unsafe_seed=5).fit([1] * 50)
    assert sanitizer.guarantee_.seeded
    assert clone(sanitizer).fit([1] * 50).weights_.tolist() == pickle.loads(pickle.dumps(sanitizer)).weights_.tolist()
    unseeded = PointSanitizer(bits=8, epsilon=1, delta=1e-6).fit([1] * 50).guarantee_
    assert (unseeded.epsilon, unseeded.delta, unseeded.seeded) == (1.0, 1e-6, False)


def test_a_delta_above_one_over_the_rows_is_warned_of() -> None:
    for method in ("histogram", "choosing"):
        rounds = {"rounds": 2} if method == "choosing" else {}
        with pytest.warns(PrivacyWarning, match="not below 1/2"):
            PointSanitizer(bits=8, epsilon=1, delta=0.6, method=method, **rounds).fit([1, 2])  # type: ignore[arg-type]


EXPECTED = {
    "check_n_features_in": "what is sanitized is a column, which need not be a table with features",
    "check_n_features_in_after_fitting": "what is sanitized is a column, which need not be a table with features",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}


class FirstColumn(PointSanitizer):
    """The sanitizer on the first of several columns, since the checks use several."""

    def fit_with_noise(self, X: ArrayLike, unsafe_noise: Noise | None) -> Self:
        return super().fit_with_noise(as_point_table(X)[:, :1], unsafe_noise)


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    sanitizer = FirstColumn(domain=Floats(), epsilon=100, delta=1e-3, unsafe_seed=seed)
    check_estimator(sanitizer, on_skip=None, expected_failed_checks=EXPECTED)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, Any] = {"bits": 8, "epsilon": 1, "delta": 1e-6}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in [0, -1, math.nan, math.inf, None, "1", True, 1j]],
        *[("delta", bad) for bad in [0, -1, 1, 1.5, math.nan, None, "1"]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("bits", bad) for bad in [0, -1, 1.5, None, "1", True]],
        *[("domain", bad) for bad in [Floats(), 5]],  # beside bits
        *[("method", bad) for bad in ["choice", None, 1]],
        *[("rounds", bad) for bad in [0, 1.5, "2", 3]],  # and 3 beside method="histogram"
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        PointSanitizer(**{**GOOD, name: value}).fit("no data")


@given(value=st.one_of(st.floats(max_value=0), st.sampled_from([math.nan, math.inf, -1, 0]), st.text()))
def test_no_other_epsilon_passes(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="epsilon"):
        PointSanitizer(**{**GOOD, "epsilon": value}).fit("no data")


@given(column=st.lists(st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.dates()), max_size=4))
def test_any_column_is_copied_or_refused_by_name(column: list[Any]) -> None:
    try:
        fitted = PointSanitizer(**GOOD).fit(column)
    except (TypeError, ValueError) as refusal:
        assert "X" in str(refusal)  # noqa: PT017
    else:
        assert fitted.rows_ == len(column)


def test_empty_copies_of_every_kind_of_column() -> None:
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    for domain, column in ((Floats(), [0.5, 1.5]), (Datetimes("D"), days), (Integers(64), [1, 2**63])):
        nothing = PointSanitizer(domain=domain, epsilon=1, delta=1e-6).fit(column)
        assert nothing.points_.size == 0
        assert nothing.frequency(Point(column[0])) == 0
        assert len(nothing.sample(10)) == 10


def test_sanpoints_must_know_how_many_values_to_look_for() -> None:
    with pytest.raises(ValueError, match="needs error or rounds"):
        PointSanitizer(**GOOD, method="choosing").fit("no data")


@pytest.mark.parametrize(
    "X",
    [[777, 1], [-777, 1], [7.77, 1], [math.nan, 1], [math.inf, 1], ["777", "1"], [[1, 777]], [], [None, 777],
     np.array([777, "x"], dtype=object), np.array(["2020-07-07"], dtype="datetime64[D]"), 777],
)  # fmt: skip
def test_bad_data_are_refused_and_not_repeated(X: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="X") as refusal:
        PointSanitizer(**GOOD).fit(X)
    assert "777" not in str(refusal.value)
    assert "7.77" not in str(refusal.value)
