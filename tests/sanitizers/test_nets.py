from __future__ import annotations

import itertools
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
from reticent.concepts import Finite, Floats, Interval, Intervals, Points, Rectangles, Threshold, Thresholds
from reticent.concepts.interface import ConceptClass
from reticent.data.points import as_point_table
from reticent.errors import InsufficientData
from reticent.noise import Noise
from reticent.privacy import epsilon as least_epsilon
from reticent.privacy import fits
from reticent.privacy.events import BoundedRange, SeededRelease
from reticent.sanitizers import nets as module
from reticent.sanitizers.nets import ROUNDS, NetSanitizer, databases, round_noise, rounds_event

Array = NDArray[Any]
Rows = tuple[int, ...]
Found = tuple[tuple[Any, ...], tuple[float, ...]]

TAIL_BITS = 20


# ── privacy: the exact law of the whole sanitizer ─────────────────────────────────────────────────────────────────


def sanitizer_law(sanitizer: NetSanitizer) -> Callable[[Noise, Rows], Found]:
    """All that is published. What `fit_with_noise` does besides is checks and accounting, which draw nothing."""

    def run(noise: Noise, rows: Rows) -> Found:
        (points, weights), _ = sanitizer._sanitize(np.array(rows), noise)
        return tuple(points.tolist()), tuple(weights.tolist())

    return run


def worst(sanitizer: NetSanitizer, pairs: list[tuple[Rows, Rows]], epsilon: Any = None) -> tuple[float, float]:
    at = sanitizer.epsilon if epsilon is None else epsilon
    found = worst_case(sanitizer_law(sanitizer), pairs, epsilon=at, tail_bits=TAIL_BITS)
    return found.lower, found.upper


class Wrapped(Noise):
    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_laplace(scale, size)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_gaussian(sigma, size)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        return self.noise.choose(scores, rate=rate, counts=counts)


class Half(Wrapped):
    """All noise half as wide as it should be."""

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_laplace(scale / 2, size)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_gaussian(sigma / 2, size)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        return self.noise.choose(scores, rate=2 * rate, counts=counts)


class CoarseScores(Wrapped):
    """Scores rounded after the rows have entered them: one row can move a score by 2."""

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        return self.noise.choose(2 * (np.asarray(scores) // 2), rate=rate, counts=counts)


class CountsWithoutNoise(Wrapped):
    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return 0

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return 0


def broken(wrapper: type[Wrapped]) -> type[NetSanitizer]:
    class Twin(NetSanitizer):
        def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
            assert unsafe_noise is not None
            return super()._sanitize(rows, wrapper(unsafe_noise))

    return Twin


class CountsTwice(NetSanitizer):
    """A twin: every row counts twice, so that a replaced one moves a score by 2."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        return super()._sanitize(np.append(rows, rows), unsafe_noise)


class PointsOfTheData(NetSanitizer):
    """A twin: the candidates are the points that occur."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Any:
        return NetSanitizer(**{**self.get_params(deep=False), "points": np.unique(rows)})._sanitize(rows, unsafe_noise)


@pytest.mark.slow
def test_exact_law_of_the_exact_method_and_its_twins() -> None:
    privacy: dict[str, Any] = {"epsilon": 2, "method": "exact", "size": 3}
    pairs = list(row_replacements(range(4), 3, ordered=False))[::2]
    for concepts in (Thresholds(bits=2), Points(bits=2)):
        real = NetSanitizer(concepts, **privacy)
        assert worst(real, pairs)[1] < 1e-12
        assert worst(real, pairs, epsilon=Fraction(6, 5))[0] > 0.001  # 3/5 of ε is really spent
        for twin in (broken(Half), CountsTwice, PointsOfTheData):
            assert worst(twin(concepts, **privacy), pairs)[0] > 0.001, twin
    six = list(row_replacements(range(3), 6, ordered=False))[::3]
    assert worst(NetSanitizer(Intervals(), points=range(3), **privacy), six)[1] < 1e-12
    assert real.fit_with_noise(pairs[0][0], None).event_ == BoundedRange(Fraction(2))


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "most"), [(0, 1e-4), (Fraction(1, 50), 0.02)])
def test_exact_law_of_one_round_and_its_twins(delta: Fraction, most: float) -> None:
    privacy: dict[str, Any] = {"epsilon": 6, "delta": delta, "method": "weights", "rounds": 1}
    pairs = list(row_replacements(range(4), 3, ordered=False))[::4]
    real = NetSanitizer(Thresholds(bits=2), **privacy)
    assert worst(real, pairs)[1] <= most
    assert worst(real, pairs, epsilon=3)[0] > most  # half of ε is really spent
    for twin in (broken(Half), broken(CountsWithoutNoise), CountsTwice):
        assert worst(twin(Thresholds(bits=2), **privacy), pairs)[0] > 2 * most, twin


def test_exact_law_of_scores_that_are_rounded_after_the_rows_entered_them() -> None:
    """The choice alone. The rounded score of value 0 falls by 2, and that of value 1 rises by 2, for one row."""

    class Choice(Wrapped):
        picked = -1

        def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
            self.picked = self.noise.choose(scores, rate=rate, counts=counts)
            return self.picked

        def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
            return 0

    def choice(kind: type[NetSanitizer]) -> tuple[float, float]:
        def run(noise: Noise, rows: Rows) -> int:
            only = Choice(noise)
            kind(Points(bits=2), epsilon=4, method="weights", rounds=1)._sanitize(np.array(rows), only)
            return only.picked

        rest = (0,) * 5 + (1,) * 7 + (2,) * 2 + (3,)
        found = worst_case(run, [((*rest, 0), (*rest, 1))], epsilon=2)  # the choice has half of ε
        return found.lower, found.upper

    assert choice(NetSanitizer)[1] < 1e-12
    assert choice(broken(CoarseScores))[0] > 0.01


@pytest.mark.slow
def test_exact_law_of_two_rounds_and_its_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    privacy: dict[str, Any] = {"epsilon": 10, "method": "weights", "rounds": 2}
    pairs = list(row_replacements(range(2), 4, ordered=False))[1:2]
    assert worst(NetSanitizer(Thresholds(bits=1), **privacy), pairs)[1] < 1e-4
    assert worst(broken(Half)(Thresholds(bits=1), **privacy), pairs)[0] > 1e-3
    once = round_noise(Fraction(10), Fraction(0), 1)
    monkeypatch.setattr(module, "round_noise", lambda *_: once)  # each round spends the whole budget
    assert worst(NetSanitizer(Thresholds(bits=1), **privacy), pairs)[0] > 1e-3


def test_the_law_of_fit_is_the_law_that_was_audited() -> None:
    sanitizer, rows = NetSanitizer(Thresholds(bits=1), epsilon=6, method="weights", rounds=1), (0, 1, 1)

    def fit(noise: Noise) -> Found:
        fitted = sanitizer.fit_with_noise(rows, noise)
        return tuple(fitted.points_.tolist()), tuple(fitted.weights_.tolist())

    whole = law(fit, tail_bits=TAIL_BITS)
    assert whole == law(lambda noise: sanitizer_law(sanitizer)(noise, rows), tail_bits=TAIL_BITS)
    assert len(whole.high) > 3


def test_the_noise_of_the_rounds_fits_the_budget() -> None:
    for budget in ((1, Fraction(1, 10**6)), (Fraction(1, 10), Fraction(1, 10**9)), (2, Fraction(0))):
        epsilon, delta = Fraction(budget[0]), budget[1]
        for rounds in (1, 2, 16, 17, 100, 1024):
            choice, scale = round_noise(epsilon, delta, rounds)
            event = rounds_event(choice, scale, rounds, gaussian=delta > 0)
            assert fits(event, epsilon=epsilon, delta=delta)
            assert least_epsilon(event, delta=delta) > 0.93 * epsilon


# ── the exact method is what it says ──────────────────────────────────────────────────────────────────────────────


def test_the_law_of_the_exact_method_by_hand() -> None:
    rows, size, epsilon = (0, 0, 1, 3), 2, 2.0
    run = sanitizer_law(NetSanitizer(Thresholds(bits=2), epsilon=2, method="exact", size=size))
    found = law(lambda noise: run(noise, rows))

    def off(database: Rows) -> float:
        return max(abs(sum(x < t for x in rows) - 2 * sum(x < t for x in database)) for t in range(5))

    weights = {d: math.exp(-epsilon * off(d) / 2) for d in itertools.combinations_with_replacement(range(4), size)}
    for database, weight in weights.items():
        points = sorted(set(database))
        key = tuple(points), tuple(database.count(point) / size for point in points)
        assert found.probability(key) == pytest.approx(weight / sum(weights.values()))


@pytest.mark.parametrize("concepts", [Thresholds(bits=2), Intervals(bits=2), Points(bits=2)])
@given(shares=st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any), size=st.integers(1, 6))
def test_some_database_lies_within_the_radius(concepts: ConceptClass[Any], shares: list[int], size: int) -> None:
    net = NetSanitizer(concepts, epsilon=1).query_net()
    truth = net.labels @ np.array(shares) / sum(shares)
    members = itertools.combinations_with_replacement(range(4), size)
    best = min(np.abs(truth - net.labels[:, list(database)].mean(axis=1)).max() for database in members)
    assert best <= net.radius(size) + 1e-12


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────


def greatest_error(sanitizer: NetSanitizer, data: Array) -> float:
    dichotomies = sanitizer.query_net().dichotomies
    shares = dichotomies.sums(np.ones(len(data), dtype=int), at=data) / len(data)
    found = dichotomies.sums(np.rint(sanitizer.weights_ * 2**40).astype(int), at=sanitizer.points_) / 2**40
    return float(np.abs(shares - found).max())


def hard_columns(rows: int, last: int) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    return {
        "one value": np.full(rows, last),
        "both ends": np.where(np.arange(rows) % 2 == 0, 0, last),
        "heavy ties": np.minimum(generator.geometric(0.5, rows) - 1, last),
        "uniform": np.arange(rows) % (last + 1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(hard_columns(2, 1)))
@pytest.mark.parametrize(
    ("concepts", "last", "privacy"),
    [
        (Intervals(bits=2), 3, {"method": "exact"}),
        (Thresholds(bits=3), 7, {"method": "weights"}),
        (Intervals(bits=3), 7, {"method": "weights", "delta": 1e-5}),
    ],
)
def test_promise(concepts: ConceptClass[Any], last: int, privacy: dict[str, Any], kind: str) -> None:
    trials, failure, error = 20, 0.1, 0.3
    sanitizer = NetSanitizer(concepts, epsilon=1, error=error, failure=failure, **privacy)
    data = hard_columns(sanitizer.n_required(error), last)[kind]
    off = [greatest_error(sanitizer.set_params(unsafe_seed=seed).fit(data), data) for seed in range(trials)]
    assert np.count_nonzero(np.array(off) > error) <= binom.isf(1e-6, trials, failure)


def test_each_round_lowers_the_relative_entropy_as_promised() -> None:
    """2(e² − ν²) for every error and every noise: the step that the promise rests on."""
    generator = np.random.default_rng(3)
    for _ in range(300):
        truth, weights = generator.dirichlet(np.full(5, 0.5)), generator.dirichlet(np.ones(5))
        labels, noise = generator.integers(0, 2, 5), generator.normal(0, 0.2)
        off = float((truth - weights) @ labels)
        after = weights * np.exp(4 * (off + noise) * labels)
        after /= after.sum()
        assert float(truth @ np.log(after / weights)) >= 2 * (off**2 - noise**2) - 1e-12


def test_rows_required() -> None:
    def rows(concepts: ConceptClass[Any], error: Any = 0.2, **changed: Any) -> int:
        return NetSanitizer(concepts, **{"epsilon": 1, **changed}).n_required(error)

    small, large = Intervals(bits=3), Thresholds(bits=12)
    assert rows(small) == min(rows(small, method="exact"), rows(small, method="weights"))
    assert rows(large) == rows(large, method="weights") > 5 * rows(large, delta=1e-6)
    assert rows(small, epsilon=0.1) == pytest.approx(10 * rows(small), rel=0.02)
    assert rows(small, error=0.1) > rows(small) < rows(small, failure=0.001)
    assert rows(large, rounds=ROUNDS[3], method="weights", error=0.9) >= rows(large, error=0.9)
    with pytest.raises(ValueError, match="no number of rows"):
        rows(small, method="exact", size=1, error=0.1)


def test_auto_takes_the_method_that_promises_more() -> None:
    data = np.arange(100) % 8
    assert NetSanitizer(Intervals(bits=3), epsilon=1).fit(data).method_ == "exact"
    assert NetSanitizer(Intervals(bits=10), epsilon=1).fit(data).method_ == "weights"


def test_too_few_rows_for_the_error_asked_for() -> None:
    sanitizer = NetSanitizer(Thresholds(bits=2), epsilon=1, error=0.2)
    required = sanitizer.n_required(0.2)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got {required - 1}") as refusal:
        sanitizer.fit(np.zeros(required - 1, dtype=int))
    assert refusal.value.required == required
    assert sanitizer.fit(np.zeros(required, dtype=int)).frequency(Threshold(1)) > 0.7


# ── what it copies ────────────────────────────────────────────────────────────────────────────────────────────────


def test_rectangles_floats_and_a_class_of_ones_own() -> None:
    rows = np.random.default_rng(1).integers(0, 3, (4000, 2))
    table = NetSanitizer(Rectangles(2, bits=2), epsilon=4, unsafe_seed=0).fit(rows)
    assert table.points_.shape == (16, 2)
    assert greatest_error(table, rows) < 0.2
    assert table.sample(7, random_state=0).shape == (7, 2)
    floats = np.random.default_rng(1).normal(size=5000)
    grid = NetSanitizer(
        Thresholds(domain=Floats()), epsilon=2, points=np.linspace(-4, 4, 81), method="weights", unsafe_seed=0
    )
    assert abs(grid.fit(floats).frequency(Threshold(0.0)) - 0.5) < 0.15  # rows need not be among the points
    own = NetSanitizer(Finite([[0, 0, 1], [1, 0, 1], [0, 1, 1]]), epsilon=3, points=range(3)).fit([0, 2, 2] * 100)
    assert abs(own.weights_ @ np.isin(own.points_, [0, 2]) - 1) < 0.2


@pytest.mark.slow
@given(order=st.permutations(range(8)))
def test_points_may_come_in_any_order_and_more_than_once(order: list[int]) -> None:
    def weights(points: list[int]) -> list[float]:
        found = NetSanitizer(Thresholds(bits=3), epsilon=1, points=points, method="weights", rounds=4, unsafe_seed=1)
        return found.fit([1, 1, 2, 5] * 50).weights_.tolist()  # type: ignore[no-any-return]

    assert weights([*order, *order[:3]]) == weights(list(range(8)))


@pytest.mark.slow
def test_weights_sum_to_one_and_follow_the_rows() -> None:
    sanitizer = NetSanitizer(Intervals(bits=6), epsilon=2, delta=1e-6, unsafe_seed=1).fit(np.arange(20_000) % 20)
    assert sanitizer.weights_.sum() == pytest.approx(1)
    assert sanitizer.points_.tolist() == list(range(64))
    assert abs(sanitizer.frequency(Interval(low=0, high=19)) - 1) < 0.1 > sanitizer.frequency(Interval(low=20, high=63))
    assert sanitizer.sample(2000, random_state=1).mean() < 15
    assert sanitizer.guarantee_.delta == 1e-6


def test_seeded_cloned_and_pickled() -> None:
    sanitizer = NetSanitizer(Thresholds(bits=2), epsilon=1, delta=1e-6, unsafe_seed=5).fit([1] * 50)
    assert sanitizer.guarantee_.seeded
    assert sanitizer.event_ == SeededRelease(BoundedRange(Fraction(1)))
    assert sanitizer.guarantee_.delta == 0  # the exact method uses none
    assert clone(sanitizer).fit([1] * 50).weights_.tolist() == pickle.loads(pickle.dumps(sanitizer)).weights_.tolist()


EXPECTED = {
    "check_n_features_in": "what is sanitized is a column, which need not be a table with features",
    "check_n_features_in_after_fitting": "what is sanitized is a column, which need not be a table with features",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}


class FirstColumn(NetSanitizer):
    """The sanitizer on the first of several columns, since the checks use several."""

    def fit_with_noise(self, X: ArrayLike, unsafe_noise: Noise | None) -> Self:
        return super().fit_with_noise(as_point_table(X)[:, :1], unsafe_noise)


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    grid = np.linspace(-5, 5, 21)
    sanitizer = FirstColumn(Thresholds(domain=Floats()), points=grid, epsilon=9, method="weights", rounds=2)
    check_estimator(sanitizer.set_params(unsafe_seed=seed), on_skip=None, expected_failed_checks=EXPECTED)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in [0, -1, math.nan, math.inf, None, "1", True, 1j]],
        *[("delta", bad) for bad in [-1, 1, 1.5, math.nan, None, "1"]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("method", bad) for bad in ["blr", None, 1]],
        *[("size", bad) for bad in [0, 1.5, "2", 3]],  # and 3 beside method="auto"
        *[("rounds", bad) for bad in [0, 1.5, "2", 3, 10**9]],
        *[("points", bad) for bad in [[], [99], [math.nan], ["1"], [[1, 2]], "12", 5]],
        *[("concept_class", bad) for bad in [None, 3, Thresholds]],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    good: dict[str, Any] = {"concept_class": Thresholds(bits=3), "epsilon": 1}
    with pytest.raises((TypeError, ValueError), match=name):
        NetSanitizer(**{**good, name: value}).fit("no data")


@given(value=st.one_of(st.floats(max_value=0), st.sampled_from([math.nan, math.inf, -1, 0]), st.text()))
def test_no_other_epsilon_passes(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="epsilon"):
        NetSanitizer(Thresholds(bits=3), epsilon=value).fit("no data")


@given(column=st.lists(st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.dates()), max_size=4))
def test_any_column_is_copied_or_refused_by_name(column: list[Any]) -> None:
    try:
        fitted = NetSanitizer(Thresholds(bits=3), epsilon=1, method="weights", rounds=1).fit(column)
    except (TypeError, ValueError) as refusal:
        assert "X" in str(refusal)  # noqa: PT017
    else:
        assert fitted.rows_ == len(column)


def test_too_large_for_the_exact_method_is_said_in_numbers() -> None:
    with pytest.raises(ValueError, match=f"size=40 makes {databases(8, 40)} databases"):
        NetSanitizer(Thresholds(bits=3), epsilon=1, method="exact", size=40).fit("no data")
    with pytest.raises(ValueError, match="4096 points with 4097 queries are more than"):
        NetSanitizer(Thresholds(bits=12), epsilon=1, method="exact").fit("no data")
    with pytest.raises(ValueError, match=r"points must .* no declared domain of at most 1048576"):
        NetSanitizer(Thresholds(), epsilon=1).fit("no data")
    with pytest.raises(ValueError, match=r"labels the points in .* ways"):
        NetSanitizer(Intervals(bits=12), epsilon=1).fit("no data")


def test_a_delta_that_buys_nothing_is_not_used() -> None:
    sanitizer = NetSanitizer(Thresholds(bits=3), epsilon=1, delta=1e-305, method="weights").fit([1, 2])
    assert sanitizer.guarantee_.epsilon == 1
    assert sanitizer.guarantee_.delta == 0


@pytest.mark.parametrize(
    "X", [[777, 1], [-777, 1], [7.77, 1], [math.nan, 1], ["777", "1"], [[1, 777]], [], [None, 777], 777]
)
def test_bad_data_are_refused_and_not_repeated(X: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^X must") as refusal:
        NetSanitizer(Thresholds(bits=3), epsilon=1).fit(X)
    assert "777" not in str(refusal.value)
    assert "7.77" not in str(refusal.value)
