from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from common import RANDOM
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import worst_case
from reticent.audit.neighbours import divergences, random_row_replacements, row_replacements
from reticent.concepts import Datetimes, Floats, Integers, Rectangle
from reticent.errors import InsufficientData, PrivacyWarning
from reticent.learners.partitions import axis_cells, cell_counts
from reticent.learners.rectangles import RectangleLearner
from reticent.learners.sides import SideSearch, side_scores
from reticent.mechanisms import Pieces, Release
from reticent.noise import Noise
from reticent.privacy import Guarantee, fits
from reticent.privacy.events import ApproximateDP, BoundedRange, Composed, PureDP, Repeated, SeededRelease

Array = NDArray[Any]
Rows = tuple[tuple[tuple[int, ...], int], ...]  # (values, label)

TINY = 1e-60  # what rounding may add to the exact δ of a pure mechanism


def table(rows: Rows) -> tuple[Array, Array]:
    values, labels = zip(*rows, strict=True)
    return np.array(values), np.array(labels)


# ── the score of a side ───────────────────────────────────────────────────────────────────────────────────────────

BITS = 3
EMPTY = 2**BITS  # the integer above all values
POSITIVES = st.lists(st.integers(0, 2**BITS - 1), max_size=9)


def scores(positives: list[int], promise: int) -> list[int]:
    pieces = side_scores(np.array(positives, dtype=np.int64), promise, Integers(BITS))
    return [pieces(a) for a in range(2**BITS + 1)]


@given(positives=POSITIVES, promise=st.integers(1, 12))
def test_the_score_counts_positive_rows(positives: list[int], promise: int) -> None:
    found = scores(positives, promise)
    for a in range(EMPTY):
        enough, spare = sum(x <= a for x in positives), 2 * promise - 1 - sum(x < a for x in positives)
        assert found[a] == min(enough, spare)
    assert found[EMPTY] == 2 * promise - 1 - len(positives)


@given(positives=POSITIVES, promise=st.integers(1, 12))
def test_the_promise_holds_on_any_data_and_every_positive_score_is_good(positives: list[int], promise: int) -> None:
    found = scores(positives, promise)
    assert max(found) >= promise
    for a, score in enumerate(found):
        if score >= 1:
            assert sum(x < a for x in positives) <= 2 * promise - 2  # rows cut off
            assert a == EMPTY or min(positives) <= a  # no end outside the rows


@given(positives=POSITIVES, promise=st.integers(1, 12))
def test_the_score_is_quasi_concave_on_any_data(positives: list[int], promise: int) -> None:
    found = scores(positives, promise)
    assert all(found[b] >= min(max(found[: b + 1]), max(found[b:])) for b in range(len(found)))


@given(
    others=POSITIVES, promise=st.integers(1, 12), moved=st.lists(st.integers(0, 2**BITS - 1), max_size=2)
)
def test_the_score_has_sensitivity_1(others: list[int], promise: int, moved: list[int]) -> None:
    """A replaced row turns one value, or none where its label is 0, into another, or none."""
    before, after = scores(others + moved[:1], promise), scores(others + moved[1:], promise)
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) <= 1


# ── privacy: the exact law of the whole learner ───────────────────────────────────────────────────────────────────


def learner_law(learner: RectangleLearner) -> Callable[[Noise, Rows], Rectangle]:
    def run(noise: Noise, rows: Rows) -> Rectangle:
        found: Rectangle = learner.fit_with_noise(*table(rows), noise).hypothesis_
        return found

    return run


class CountsTwice(RectangleLearner):
    """A twin: every row stands for two."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(np.concatenate([rows, rows]), np.append(labels, labels), unsafe_noise)


class ChargesOneEndAnAxis(RectangleLearner):
    """A twin: it takes the two ends of an axis for one release."""

    def side_search(self, sides: int, failure: Fraction) -> SideSearch:
        return super().side_search(sides // 2, failure)


class KnowsTheBox(RectangleLearner):
    """A twin: it looks for the sides within the bounding box of the positive rows."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        found, event = super()._learn(rows, labels, unsafe_noise)
        inside = rows.reshape(len(rows), -1)[labels == 1]
        if len(inside) == 0:
            return Release(found, event)
        low, high = inside.min(axis=0).tolist(), inside.max(axis=0).tolist()
        clipped = Rectangle(tuple(map(max, found.low, low)), tuple(map(min, found.high, high)))
        return Release(clipped, event)


LINE = [((value,), label) for value in range(4) for label in (0, 1)]
SQUARE = [((a, b), label) for a in (0, 1) for b in (0, 1) for label in (0, 1)]


def neighbours(domain: list[Any], six_rows: int = 0) -> list[tuple[Rows, Rows]]:
    """All pairs of one row, and random ones of six."""
    few = list(row_replacements(domain, 1))
    return few + list(random_row_replacements(np.random.default_rng(0), six_rows, domain=domain, rows=6))


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "bits", "calls", "epsilon"), [(LINE, 2, 2, 1), (SQUARE, 1, 4, 4)])
def test_exact_law_of_the_pure_learner_and_its_twins(domain: list[Any], bits: int, calls: int, epsilon: int) -> None:
    public: dict[str, Any] = {"bits": bits, "epsilon": epsilon, "failure": 0.9}
    learner = RectangleLearner(**public)
    found = [pair for _, _, pair in divergences(learner_law(learner), neighbours(domain, 5))]
    assert max(pair.delta(epsilon)[1] for pair in found) < TINY
    assert max(pair.delta(Fraction(95, 100) * epsilon)[0] for pair in found) > 1e-15  # ε is not wasted either
    for twin in (CountsTwice, ChargesOneEndAnAxis, KnowsTheBox):
        assert worst_case(learner_law(twin(**public)), neighbours(domain), epsilon=epsilon).lower > 1e-15
    fitted = learner.fit(*table((domain[0],) * 6))
    assert fitted.guarantee_ == Guarantee(epsilon=epsilon)
    assert fitted.event_ == Repeated(BoundedRange(Fraction(epsilon, calls)), calls)


@pytest.mark.slow
def test_exact_law_of_the_learner_that_spends_delta_on_the_composition_and_its_twins() -> None:
    public: dict[str, Any] = {"bits": 1, "epsilon": 4, "delta": 0.05, "failure": 0.9}
    three: Rows = (((0, 1), 1), ((0, 1), 1), ((1, 1), 1))
    pairs: list[tuple[Rows, Rows]] = [
        (three, (*three[:2], ((1, 1), 0))),
        ((((0, 1), 1), ((0, 0), 0)), (((0, 1), 1), ((1, 1), 1))),
        ((((1, 0), 1), ((0, 0), 0)), (((1, 0), 1), ((1, 0), 1))),
    ]
    learner = RectangleLearner(**public)
    assert 0.005 < worst_case(learner_law(learner), pairs, epsilon=4).upper <= 0.05
    for twin in (CountsTwice, ChargesOneEndAnAxis):
        assert worst_case(learner_law(twin(**public)), pairs, epsilon=4).lower > 0.05
    fitted = learner.fit(*table(three))
    assert fits(fitted.event_, epsilon=4, delta=0.05)
    assert not fits(fitted.event_, epsilon=4, delta=0)
    assert Guarantee(epsilon=0.999 * 4) <= fitted.guarantee_ <= Guarantee(epsilon=4, delta=0.05)  # all of ε is used


@pytest.mark.slow
def test_exact_law_of_a_deeper_search_for_one_side_and_its_twin() -> None:
    """The whole learner makes two of these, too many paths to walk; its event is theirs, twice."""
    learner = RectangleLearner(bits=6, epsilon=6, delta=1e-9, depth=2, failure=0.9)
    search = learner.side_search(2, Fraction(9, 10))
    each = search.event
    assert isinstance(each, ApproximateDP)
    assert learner.fit([[9], [30], [31]], [1, 1, 0]).event_ == Repeated(each, 2)
    assert search.depth == learner.depth_ == 2

    def scored(positives: tuple[int, ...]) -> Pieces:
        return side_scores(np.array(positives, dtype=np.int64), search.promise, Integers(6))

    def one_side(noise: Noise, positives: tuple[int, ...]) -> int:
        return search.run(scored(positives), noise)

    def knows_the_least(noise: Noise, positives: tuple[int, ...]) -> int:  # a twin
        return search.run(scored(positives).within(min(positives), 64), noise)

    pairs = [((0, *(40,) * 40), (40,) * 41)]
    assert worst_case(one_side, pairs, epsilon=each.epsilon).upper <= each.delta
    assert worst_case(knows_the_least, pairs, epsilon=each.epsilon).lower > each.delta


# ── privacy of the partition ──────────────────────────────────────────────────────────────────────────────────────


class Known:
    """In place of a sanitizer: a copy that is the same whatever the rows are, and costs nothing."""

    points_ = np.array([0, 1, 2, 3])
    weights_ = np.array([0.25] * 4)

    def fit_with_noise(self, column: Array, noise: Noise) -> Known:
        return self


class Partition(RectangleLearner):
    """The partition with a known copy: all of its privacy loss is that of the histograms."""

    def _sanitizer(self, columns: int, failure: Fraction) -> Any:
        return Known()


class PartitionCountsTwice(Partition):
    """A twin."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(np.concatenate([rows, rows]), np.append(labels, labels), unsafe_noise)


@pytest.mark.slow
def test_exact_law_of_the_histograms_of_a_partition_and_its_twin() -> None:
    public: dict[str, Any] = {"bits": 2, "epsilon": 8, "delta": 0.01, "method": "partition", "failure": 0.9}
    learner = Partition(**public)
    rows: Rows = (((0,), 1), ((1,), 1), ((3,), 1))
    pairs = [*neighbours(LINE), ((*rows, ((0,), 1)), (*rows, ((3,), 1))), ((*rows, ((0,), 1)), (*rows, ((1,), 0)))]
    share = learner._share(1)
    assert worst_case(learner_law(learner), pairs, epsilon=share).upper < 1e-20
    assert worst_case(learner_law(learner), pairs, epsilon=share / 3).lower > 1e-3
    assert worst_case(learner_law(PartitionCountsTwice(**public)), pairs, epsilon=share).lower > 1e-3
    fitted = learner.fit(*table(rows))
    assert fitted.event_ == Composed(
        (Repeated(ApproximateDP(share, Fraction(1, 200)), 1), Repeated(PureDP(share), 1))
    )
    assert fits(fitted.event_, epsilon=8, delta=0.01)
    assert Guarantee(epsilon=0.999 * 8) <= fitted.guarantee_ <= Guarantee(epsilon=8, delta=0.01)  # all of ε is used


class TheRows(Known):
    """In place of a sanitizer: the rows themselves."""

    def fit_with_noise(self, column: Array, noise: Noise) -> Known:
        self.points_, counts = np.unique(column, return_counts=True)
        self.weights_ = counts / len(column)
        return self


class TrustsTheRows(RectangleLearner):
    """A twin: it cuts the axes by the rows, not by a private copy of them."""

    def _sanitizer(self, columns: int, failure: Fraction) -> Any:
        return TheRows()


@pytest.mark.slow
def test_exact_law_of_the_whole_partition_and_its_twin() -> None:
    """The noise of the sanitizer is without bound, so a little is left unwalked and counted as δ."""
    public: dict[str, Any] = {"bits": 2, "epsilon": 16, "method": "partition", "failure": 0.9}
    pairs: list[tuple[Rows, Rows]] = [((((1,), 1),), (((2,), 1),))]
    learner = RectangleLearner(**public)
    assert worst_case(learner_law(learner), pairs, epsilon=16, tail_bits=10).upper < 1e-4
    assert worst_case(learner_law(TrustsTheRows(**public)), pairs, epsilon=16, tail_bits=10).lower > 1e-4
    assert learner.fit(*table(pairs[0][0])).guarantee_ == Guarantee(epsilon=16)


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_the_copies_of_a_partition_cost_what_is_charged_for_them(delta: float) -> None:
    learner = RectangleLearner(bits=8, epsilon=2, delta=delta, method="partition")
    copy = learner._sanitizer(3, Fraction(1, 20)).fit(np.arange(500) % 256)
    assert fits(copy.event_, epsilon=learner._share(3), delta=Fraction(delta).limit_denominator(10**6) / 6)


@given(
    weights=st.dictionaries(st.integers(0, 15), st.integers(1, 20), max_size=16),
    most=st.sampled_from([0.5, 0.25, 0.125, 1 / 64]),
)
def test_cells_fill_the_domain_and_are_single_points_or_light(weights: dict[int, int], most: float) -> None:
    total = sum(weights.values())
    shares = {point: weight / total for point, weight in sorted(weights.items())}
    cells = axis_cells(list(shares), list(shares.values()), most, Integers(4))
    assert [point for low, high in cells for point in range(low, high + 1)] == list(range(16))
    for low, high in cells:
        assert low == high or sum(shares.get(point, 0) for point in range(low, high + 1)) <= most * (1 + 1e-9)
    assert len(cells) <= 2 / most + 1


def test_counts_of_cells_of_wide_integers() -> None:
    cells = [(0, 2**99), (2**99 + 1, 2**99 + 1), (2**99 + 2, 2**100 - 1)]
    ranks = np.array([0, 2**99, 2**99 + 1, 2**99 + 1, 2**100 - 1], dtype=object)
    assert cell_counts(ranks, cells, Integers(100)) == [2, 2, 1]
    assert cell_counts(ranks[:0], cells, Integers(100)) == [0, 0, 0]


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────

Law = tuple[Array, Array, Rectangle]  # points, their probabilities, and the rectangle that labels them


def around(bits: int, columns: int, error: float) -> dict[str, Law]:
    """Distributions that put a probability just above the error, in all, at the sides of the rectangle."""
    top, low, high = (1 << bits) - 1, 1 << (bits - 2), 3 << (bits - 2)
    box = Rectangle((low,) * columns, (high,) * columns)
    middle = np.full(columns, low + 5)
    edges = [_with(middle, i, end) for i in range(columns) for end in (low, high)]
    outside = [_with(middle, i, end) for i in range(columns) for end in (low - 1, high + 1, 0, top)]
    share = error * 1.001 / len(edges)
    rest = 1 - error * 1.001

    def law(points: list[Array], weights: list[float], target: Rectangle = box) -> Law:
        return np.array(points), np.array(weights) / sum(weights), target

    stairs = [_with(middle, i, end) for i in range(columns) for k in range(20) for end in (low + k, high - k)]
    corner = np.full(columns, top)
    return {
        "atoms at the sides": law([*edges, *outside], [share] * len(edges) + [rest / len(outside)] * len(outside)),
        "all positive": law([*edges, middle], [share] * len(edges) + [rest]),
        "stairs": law([*stairs, *outside], [1 / 2 / len(stairs)] * len(stairs) + [1 / 2 / len(outside)] * len(outside)),
        "one corner": law([middle, corner], [error * 1.001, rest]),
        "a single point": law([middle, middle + 1, middle - 1], [0.4, 0.3, 0.3], _point(middle)),
        "a rare point": law([middle, middle + 1, middle - 1], [error * 1.001, rest / 2, rest / 2], _point(middle)),
        "all negative": law([*outside, middle], [1.0] * (len(outside) + 1), Rectangle((1,) * columns, (0,) * columns)),
    }


def _with(point: Array, column: int, value: int) -> Array:
    moved = point.copy()
    moved[column] = value
    return moved


def _point(point: Array) -> Rectangle:
    return Rectangle(tuple(point.tolist()), tuple(point.tolist()))


def inside(rectangle: Rectangle, points: Array) -> Array:
    held = (np.array(rectangle.low) <= points) & (points <= np.array(rectangle.high))
    return np.asarray(held.all(axis=1))


def failures(learner: RectangleLearner, law: Law, *, rows: int, error: float, trials: int) -> int:
    """In how many of the trials the error is more than `error`."""
    points, weights, target = law
    generator, labels, bad = np.random.default_rng(7), inside(target, points), 0
    for trial in range(trials):
        drawn = generator.choice(len(points), size=rows, p=weights)
        learner.set_params(unsafe_seed=trial).fit(points[drawn], labels[drawn])
        bad += weights[inside(learner.hypothesis_, points) != labels].sum() > error
    return bad


def allowed(trials: int, failure: float) -> int:
    """More failures than this would have a probability of 1e-6 if each had the promised one."""
    return int(binom.isf(1e-6, trials, failure))


CASES = list(around(16, 2, 0.1))


@pytest.mark.parametrize("case", CASES)
def test_promise_of_the_sides(case: str) -> None:
    learner = RectangleLearner(bits=16, epsilon=2, error=0.2, failure=0.1)
    rows = learner.n_required(0.2, dimensions=2)
    law = around(16, 2, 0.2)[case]
    assert failures(learner, law, rows=rows, error=0.2, trials=30) <= allowed(30, 0.1)
    assert learner.depth_ == 1


@pytest.mark.parametrize("case", ["all positive", "one corner", "a rare point"])
def test_a_quarter_of_the_rows_would_not_do(case: str) -> None:
    learner = RectangleLearner(bits=16, epsilon=2, failure=0.1)
    rows = learner.n_required(0.2, dimensions=1) // 4
    assert failures(learner, around(16, 1, 0.2)[case], rows=rows, error=0.2, trials=40) > allowed(40, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["atoms at the sides", "a rare point"])
def test_promise_of_the_deeper_search(case: str) -> None:
    """On 300 bits, with the small values of the cases."""
    learner = RectangleLearner(bits=300, epsilon=4, delta=1e-6, depth=2, error=0.3, failure=0.1)
    rows = learner.n_required(0.3, dimensions=1)
    assert failures(learner, around(16, 1, 0.3)[case], rows=rows, error=0.3, trials=20) <= allowed(20, 0.1)
    assert learner.depth_ == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "delta"), [("atoms at the sides", 0), ("stairs", 1e-6), ("a rare point", 1e-6), ("all negative", 0)]
)
def test_promise_of_the_partition(case: str, delta: float) -> None:
    learner = RectangleLearner(bits=16, epsilon=10, delta=delta, method="partition", error=0.4, failure=0.2)
    rows = learner.n_required(0.4, dimensions=1)
    assert failures(learner, around(16, 1, 0.4)[case], rows=rows, error=0.4, trials=10) <= allowed(10, 0.2)


def test_too_few_rows_for_the_error_asked_for() -> None:
    learner = RectangleLearner(bits=4, epsilon=5, error=0.3)
    required = learner.n_required(0.3, dimensions=2)
    X = np.zeros((required - 1, 2), dtype=int)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got {required - 1}") as refusal:
        learner.fit(X, X[:, 0])
    assert refusal.value.required == required
    learner.fit(np.zeros((required, 2), dtype=int), np.zeros(required))
    assert learner.n_required(0.3) == required  # the dimensions of the rows it was fitted to


@pytest.mark.slow
def test_rows_required_grow_as_they_should() -> None:
    def rows(bits: int, dimensions: int = 2, **changed: Any) -> int:
        learner = RectangleLearner(**{"bits": bits, "epsilon": 1, "delta": 1e-6, **changed})
        return learner.n_required(0.1, dimensions=dimensions)

    assert rows(16) < rows(64) < rows(200) < rows(1000)
    assert rows(100_000) < 1.3 * rows(1000) < rows(1000, delta=0) / 2
    assert rows(16, 1) < rows(16, 2) < rows(16, 10)
    assert rows(16, 10) < 0.6 * rows(16, 10, delta=0)  # δ pays for the composition of the sides
    assert rows(16, epsilon=0.1) > 8 * rows(16)
    assert rows(16, failure=0.001) > rows(16)
    with pytest.raises(ValueError, match="dimensions"):
        RectangleLearner(bits=8, epsilon=1).n_required(0.1)


# ── what it learns from ───────────────────────────────────────────────────────────────────────────────────────────


def test_wide_integers_floats_and_datetimes() -> None:
    generator = np.random.default_rng(0)
    steps = generator.integers(0, 1000, size=(3000, 2))
    labels = ((steps >= 200) & (steps < 800)).all(axis=1)

    wide = steps.astype(object) << 290
    deep = RectangleLearner(bits=300, epsilon=40, delta=1e-6, depth=2, unsafe_seed=0).fit(wide, labels)
    assert deep.score(wide, labels) > 0.9
    assert deep.depth_ == 2

    for bits in (63, 64):  # the end above all values needs one bit more
        top = np.full((500, 1), 2**bits - 1, dtype=np.uint64)
        ones = RectangleLearner(bits=bits, epsilon=10).fit(top, np.ones(500))
        assert ones.hypothesis_ == Rectangle((2**bits - 1,), (2**bits - 1,))
        assert RectangleLearner(bits=bits, epsilon=10).fit(top, np.zeros(500)).predict(top).sum() == 0

    floats = steps / 7 - 70
    found = RectangleLearner(domain=Floats(), epsilon=10, unsafe_seed=0).fit(floats, labels)
    assert found.score(floats, labels) > 0.9

    days = np.datetime64("2020-01-01") + steps
    dates = RectangleLearner(domain=Datetimes("D"), epsilon=10, unsafe_seed=0).fit(days, labels)
    assert dates.score(days, labels) > 0.9


def test_equal_columns_do_no_harm() -> None:
    column = np.arange(6000) % 256
    X, y = np.stack([column, column], axis=1), (column >= 50) & (column < 200)
    assert RectangleLearner(bits=8, epsilon=4, unsafe_seed=0).fit(X, y).score(X, y) > 0.95


def test_a_delta_that_is_not_used_is_not_claimed() -> None:
    X, y = [[1, 2], [2, 3]], [1, 0]
    assert RectangleLearner(bits=8, epsilon=0.3).fit(X, y).guarantee_ == Guarantee(epsilon=0.3)
    seeded = RectangleLearner(bits=8, epsilon=0.3, delta=1e-6, unsafe_seed=1).fit(X, y)
    assert seeded.guarantee_ == Guarantee(epsilon=seeded.guarantee_.epsilon, delta=1e-6, seeded=True)
    assert 0.2999 < seeded.guarantee_.epsilon <= 0.3
    assert isinstance(seeded.event_, SeededRelease)


def test_cloned_and_pickled() -> None:
    learner = RectangleLearner(bits=8, epsilon=1, unsafe_seed=5).fit([[1, 2], [2, 3]], [1, 0])
    again = clone(learner).fit([[1, 2], [2, 3]], [1, 0])
    assert again.hypothesis_ == learner.hypothesis_ == pickle.loads(pickle.dumps(learner)).hypothesis_


def test_a_delta_above_one_over_the_rows_is_warned_of() -> None:
    with pytest.warns(PrivacyWarning, match="not below 1/2"):
        RectangleLearner(bits=8, epsilon=1, delta=0.6).fit([[1, 2], [2, 3]], [1, 0])


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = {
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_classifiers_train": "no rectangle fits the data",
    "check_classifiers_one_label": "points beyond those learned from, or few of them, may get the label 0",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    random = {} if seed is not None else RANDOM
    learner = RectangleLearner(domain=Floats(), epsilon=100, unsafe_seed=seed)
    check_estimator(learner, on_skip=None, expected_failed_checks=EXPECTED | random)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, Any] = {"bits": 8, "epsilon": 1}
BAD_NUMBERS: list[Any] = [0, -1, math.nan, math.inf, None, "1", True, 1j]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in BAD_NUMBERS],
        *[("delta", bad) for bad in [-1, 1, 1.5, math.nan, None, "1"]],
        *[("depth", bad) for bad in [0, -1, 1.5, "deep", None, True]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("bits", bad) for bad in [0, -1, 1.5, None, "1", True]],
        *[("domain", bad) for bad in [Floats(), 5]],  # beside bits
        *[("method", bad) for bad in ["", "side", 1, None]],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        RectangleLearner(**{**GOOD, name: value}).fit("no data", None)  # type: ignore[arg-type]


def test_depth_2_needs_delta_and_a_plan_the_dimensions() -> None:
    with pytest.raises(ValueError, match="delta"):
        RectangleLearner(bits=64, epsilon=1, depth=2).fit("no data", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bits"):
        RectangleLearner(domain=Integers(), epsilon=1).n_required(0.1, dimensions=1)
    for bad in (0, -1, 1.5, "2", True):
        with pytest.raises((TypeError, ValueError), match="dimensions"):
            RectangleLearner(**GOOD).n_required(0.1, dimensions=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[777, 1], [1, 1]], r"X must lie in \[0, 2\^8\)"),
        ([[-777, 1], [1, 1]], r"X must lie in \[0, 2\^8\)"),
        ([[0.777, 1], [1, 1]], "X must hold whole numbers"),
        ([[math.nan, 1], [1, 1]], "NaN"),
        ([[math.inf, 1], [1, 1]], "inf"),
        ([["777", "1"], ["1", "1"]], "X must hold"),
        ([[None, 1], [1, 1]], "X must hold"),
        ([777, 1], "Reshape your data"),
        ([], "two dimensions"),
        (np.zeros((0, 2)), "0 sample"),
        (np.zeros((2, 0)), "0 feature"),
        (np.array([["2020-01-01"] * 2] * 2, dtype="datetime64[D]"), "whole numbers"),
        (np.array([[777j, 1], [1, 1]]), "Complex"),
        (sparse.csr_array([[777, 1], [1, 1]]), "sparse"),
        ("777", "X must be"),
        (None, "X must be"),
    ],
)
def test_bad_rows_are_refused_and_not_repeated(X: Any, words: str) -> None:
    learner = RectangleLearner(**GOOD)
    fitted = RectangleLearner(**GOOD).fit([[1, 1], [2, 2]], [1, 0])
    for run in (lambda: learner.fit(X, [0, 1]), lambda: fitted.predict(X)):
        with pytest.raises((TypeError, ValueError), match=words) as refusal:
            run()
        assert "777" not in str(refusal.value)


def test_another_number_of_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 features.*expecting 2"):
        RectangleLearner(**GOOD).fit([[1, 1], [2, 2]], [1, 0]).predict([[1, 2, 3]])


@pytest.mark.parametrize(
    "y",
    [[0, 777], [-1, 1], [0.5, 1], [0, math.nan], ["no", "777"], [None, 1], [0], [0, 1, 1], [[0, 1], [1, 0]], None, 777],
)
def test_bad_labels_are_refused_and_not_repeated(y: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as refusal:
        RectangleLearner(**GOOD).fit([[1, 1], [2, 2]], y)
    assert "777" not in str(refusal.value)


@settings(max_examples=50, deadline=None)
@given(epsilon=st.one_of(st.floats(), st.integers(), st.none()), delta=st.one_of(st.floats(), st.integers()))
def test_any_parameters_are_taken_or_refused(epsilon: Any, delta: Any) -> None:
    learner = RectangleLearner(bits=4, epsilon=epsilon, delta=delta)
    if epsilon is not None and 0 < epsilon < 1e6 and 0 <= delta < 0.5:
        promised = learner.fit([[3, 3], [9, 9]], [1, 0]).guarantee_
        assert promised <= Guarantee(epsilon=max(epsilon, 1e-12), delta=delta)
    elif epsilon is None or not 0 < epsilon < math.inf or not 0 <= delta < 1:
        with pytest.raises((TypeError, ValueError), match=r"epsilon|delta"):
            learner.fit([[3, 3], [9, 9]], [1, 0])


@pytest.mark.slow
def test_sample_errors_are_kept() -> None:
    learner = RectangleLearner(bits=8, dimensions=2, epsilon=1, failure=0.2)
    rows, runs = 4000, 40
    most = learner.sample_errors(rows, 2)
    assert most < rows / 2
    assert RectangleLearner(bits=8, epsilon=1, method="partition").sample_errors(rows, 2) == rows
    generator = np.random.default_rng(8)
    points = generator.integers(0, 256, size=(rows, 2))
    inside = ((points >= 50) & (points < 200)).all(axis=1)
    made = [learner.set_params(unsafe_seed=seed).fit(points, inside).predict(points) for seed in range(runs)]
    assert sum(np.count_nonzero(labels != inside) > most for labels in made) <= binom.ppf(1 - 1e-6, runs, 0.1)


def test_the_number_of_columns_must_be_that_which_was_declared() -> None:
    with pytest.raises(ValueError, match=r"X must have the shape \(rows, 3\)"):
        RectangleLearner(bits=8, dimensions=3, epsilon=1).fit([[1, 2]], [1])
