from __future__ import annotations

import datetime
import math
import pickle
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.concepts import Datetimes, Floats, Integers, Interval, Threshold
from reticent.data.points import as_point_table
from reticent.errors import InsufficientData, PrivacyWarning
from reticent.exact import Number
from reticent.noise import Noise, Seeded
from reticent.privacy import Guarantee
from reticent.privacy import epsilon as epsilon_of
from reticent.privacy.events import SeededRelease
from reticent.sanitizers.cells import CountNoise, Level, adjusted, copy_of_cells, two_sided
from reticent.sanitizers.pivots import MedianSearch, Pivots, median_score
from reticent.sanitizers.san_thresholds import SanThresholds, fullest_intervals, overlapping_counts, san_thresholds
from reticent.sanitizers.thresholds import METHODS, Scheme, ThresholdSanitizer
from reticent.sanitizers.trees import Tree

Array = NDArray[Any]
Rows = tuple[int, ...]

TENTH = Fraction(1, 10)
SLACK = 1e-9  # what rounding may add to an exact δ


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────


class Fixed(ThresholdSanitizer):
    """The whole sanitizer with a given scheme, without the price of its event, which draws nothing."""

    def __init__(self, scheme: Scheme, parameters: dict[str, Any]) -> None:
        super().__init__(**parameters)
        self.scheme = scheme

    def _scheme(self, rows: int) -> Scheme:
        return self.scheme

    def copy(self, rows: Rows, noise: Noise) -> Hashable:
        points, weights = self._sanitize(np.array(rows), noise).value
        return tuple(points.tolist()), tuple(weights.tolist())


def transcript(scheme: Scheme, rows: Rows, noise: Noise) -> Hashable:
    """All that a scheme releases: the cells and noisy counts of all levels."""
    levels = scheme.release(np.array(sorted(rows), dtype=np.uint64), noise)
    return tuple((tuple(level.lows.tolist()), tuple(level.counts.tolist())) for level in levels)


Run = Callable[[Rows, Noise], Hashable]


def neighbours(size: int, rows: int) -> Iterator[tuple[Rows, Rows]]:
    """All pairs of data sets that differ in one row, but for the order of the rows."""
    for rest in combinations_with_replacement(range(size), rows - 1):
        for old, new in combinations_with_replacement(range(size), 2):
            if old != new:
                yield (*rest, old), (*rest, new)


def deltas(
    run: Run, pairs: Sequence[tuple[Rows, Rows]], epsilons: Sequence[Number], tail_bits: int
) -> list[tuple[float, float]]:
    """For each ε the worst δ of all pairs: certain, and possible in view of the tails that were not walked."""
    laws: dict[Rows, Law] = {}
    for rows in (rows for pair in pairs for rows in pair):
        if tuple(sorted(rows)) not in laws:
            laws[tuple(sorted(rows))] = law(lambda noise, rows=rows: run(rows, noise), tail_bits=tail_bits)  # type: ignore[misc]
    found = [exact(*(laws[tuple(sorted(rows))] for rows in pair)) for pair in pairs]
    each = [[pair.delta(epsilon) for pair in found] for epsilon in epsilons]
    return [(max(low for low, _ in bounds), max(high for _, high in bounds)) for bounds in each]


def losses(run: Run, pairs: Sequence[tuple[Rows, Rows]], tail_bits: int) -> list[tuple[float, float]]:
    """The least and the greatest privacy loss of each pair, for runs that return all that they draw.

    An output of one data set that the other does not have counts with what may be missing of the other.
    """
    found = []
    for pair in pairs:
        first, second = (law(lambda noise, rows=rows: run(rows, noise), tail_bits=tail_bits) for rows in pair)  # type: ignore[misc]
        logs = []
        for here, there, sign in ((first, second, 1), (second, first, -1)):
            for output, mass in here.low.items():
                other = there.high.get(output, there.missing + 1)
                if output in there.high or mass > other:
                    logs.append(sign * (math.log(mass) - math.log(other)))
        found.append((min(logs), max(logs)))
    return found


def worst(run: Run, pairs: Sequence[tuple[Rows, Rows]], tail_bits: int) -> float:
    return max(max(-low, high) for low, high in losses(run, pairs, tail_bits))


class Weaker(Noise):
    """A twin: half the noise."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def uniform(self, bound: int, size: int | None = None) -> Any:
        return self.noise.uniform(bound, size)

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_laplace(scale / 2, size)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return self.noise.discrete_gaussian(sigma / 2, size)

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        return self.noise.laplace_cell(scale / 2, cuts)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        return self.noise.choose(scores, rate=rate * 2, counts=counts)


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────────

TREE = Tree(3, 5, 1, CountNoise(2, Fraction(1, 5), gaussian=False), TENTH)  # ε = 2·2·5
TREE_PAIRS: list[tuple[Rows, Rows]] = [
    ((0, 0, 0, 2, 2), (0, 0, 2, 2, 2)),  # all counts of both levels that can move do
    ((0, 0, 0, 1, 1), (0, 0, 1, 1, 1)),
    ((0, 0, 1, 2, 2), (0, 1, 2, 2, 2)),
    ((2, 2, 2, 2, 2), (0, 2, 2, 2, 2)),
    ((0, 1, 2, 2, 2), (0, 2, 2, 2, 2)),
]


class GrowsByTheTruth(Tree):
    """A twin: the second level is counted where there are two rows, whatever the noisy count is."""

    def release(self, data: Array, noise: Noise) -> list[Level]:
        top = self.counting.added(np.array([np.sum(data < 2), np.sum(data == 2)]), noise)
        first = Level(np.array([0, 2]), np.array([1, 2]), np.zeros(2, dtype=np.int64), top)
        if np.sum(data < 2) < 2:
            return [first]
        counts = self.counting.added(np.array([np.sum(data == 0), np.sum(data == 1)]), noise)
        return [first, Level(np.array([0, 1]), np.array([0, 1]), np.zeros(2, dtype=np.int64), counts)]


@pytest.mark.slow
def test_exact_law_of_the_tree_and_its_twins() -> None:
    assert epsilon_of(TREE.event, delta=0) == 20
    assert worst(lambda rows, noise: transcript(TREE, rows, noise), TREE_PAIRS, 6) == pytest.approx(20, abs=SLACK)
    uncharged = replace(TREE, counting=CountNoise(2, Fraction(1, 10), gaussian=False))  # as if there were one level
    for twin in (
        lambda rows, noise: transcript(TREE, rows, Weaker(noise)),
        lambda rows, noise: transcript(uncharged, rows, noise),
    ):
        assert worst(twin, TREE_PAIRS, 6) > 39
    truthful = GrowsByTheTruth(TREE.size, TREE.rows, TREE.width, TREE.counting, TREE.failure)
    assert deltas(lambda rows, noise: transcript(truthful, rows, noise), TREE_PAIRS[-1:], [20], 34)[0][0] > 0.8


@pytest.mark.slow
def test_exact_law_of_the_whole_sanitizer_with_a_tree() -> None:
    parameters: dict[str, Any] = {"bits": 1, "epsilon": 4, "method": "tree"}
    scheme = ThresholdSanitizer(**parameters)._scheme(4)
    assert scheme.event == CountNoise(1, Fraction(1, 2), gaussian=False).event
    pairs = list(neighbours(2, 4))[:2]
    fixed = Fixed(scheme, parameters)
    ((low, high), (shy, _)) = deltas(fixed.copy, pairs, [4, 3], 20)
    assert low < SLACK
    assert high < 1e-5
    assert shy > 0.001
    assert deltas(lambda rows, noise: fixed.copy(rows, Weaker(noise)), pairs, [4], 20)[0][0] > 0.05


@pytest.mark.slow
def test_exact_law_of_the_whole_sanitizer_with_gaussian_noise() -> None:
    parameters: dict[str, Any] = {"bits": 1, "epsilon": 4, "delta": Fraction(1, 100), "method": "tree"}
    counting = CountNoise(1, Fraction(193, 200), gaussian=True)
    scheme = Tree(2, 4, 1, counting, TENTH)
    assert scheme.calibrated(Fraction(4), Fraction(1, 100)) == scheme  # it has the least noise that will do
    pairs = list(neighbours(2, 4))
    fixed = Fixed(scheme, parameters)
    ((low, high),) = deltas(fixed.copy, pairs, [4], 30)
    assert 0.0095 < low <= high <= 0.01
    assert deltas(lambda rows, noise: fixed.copy(rows, Weaker(noise)), pairs, [4], 30)[0][0] > 0.02


@pytest.mark.slow
def test_exact_law_of_two_levels_with_gaussian_noise() -> None:
    """Each level is charged as two unit moves; the twin is charged for one level."""
    two, one = (CountNoise(levels, Fraction(2, 5), gaussian=True) for levels in (2, 1))
    tree, share = Tree(3, 9, 1, two, TENTH), Fraction(1, 4)
    claimed, single = (epsilon_of(counting.event, delta=share) for counting in (two, one))
    pairs: list[tuple[Rows, Rows]] = [((0, 0, 0, 0, 0, 2, 2, 2, 2), (0, 0, 0, 0, 2, 2, 2, 2, 2))]
    ((_, high), (low, _)) = deltas(lambda rows, noise: transcript(tree, rows, noise), pairs, [claimed, single], 10)
    assert high <= share + Fraction(1, 10**5)  # tails that were not walked
    assert low > 3 * share


# ── medians of medians ────────────────────────────────────────────────────────────────────────────────────────────


def pivots(levels: int, *, size: int = 3, rows: int = 2, epsilon: int = 4, scale: Fraction = Fraction(1, 5)) -> Pivots:
    search = MedianSearch(Fraction(epsilon), Fraction(0), 1)
    return Pivots(size, rows, search, CountNoise(levels, scale, gaussian=False), TENTH)


@pytest.mark.slow
def test_exact_law_of_the_pivots_and_their_twins() -> None:
    plan = pivots(2, rows=3)  # ε = 2·(4 + 2·5)
    pairs = [((0, 0, 1), (0, 1, 1)), ((0, 0, 2), (0, 2, 2)), ((0, 0, 0), (0, 0, 2)), ((0, 1, 2), (1, 1, 2))]
    assert 16 < worst(lambda rows, noise: transcript(plan, rows, noise), pairs, 6) <= 28  # 60 % of ε are used
    assert worst(lambda rows, noise: transcript(plan, rows, Weaker(noise)), pairs, 6) > 30


@pytest.mark.slow
def test_exact_law_of_the_whole_sanitizer_with_pivots() -> None:
    parameters: dict[str, Any] = {"bits": 2, "epsilon": 8, "method": "quantiles"}
    fixed = Fixed(pivots(1, size=4, rows=4, scale=Fraction(1, 2)), parameters)
    pairs: list[tuple[Rows, Rows]] = [((0, 0, 0, 3), (0, 0, 3, 3))]
    assert deltas(fixed.copy, pairs, [8], 9)[0][1] < 0.02  # tails that were not walked
    assert deltas(lambda rows, noise: fixed.copy(rows, Weaker(noise)), pairs, [8], 22)[0][0] > 0.02


def level_of_pivots(rows: Rows, noise: Noise) -> Hashable:
    """One level with two ranges, [0, 3] and [4, 7]."""
    data = np.array(sorted(rows), dtype=np.uint64)
    plan = pivots(1, size=8, rows=len(rows), epsilon=2)
    halves = ((data[data < 4], 0, 3), (data[data >= 4], 4, 7))
    return tuple(plan._pivot(half, low, high, len(rows), noise) for half, low, high in halves)


def level_of_centred_pivots(rows: Rows, noise: Noise) -> Hashable:
    """A twin: Q less half of the rows of the range, twice: #{x ≤ a} − #{x > a}, which both ranges feel in full."""
    found = []
    for low in (0, 4):
        half = [x for x in rows if low <= x < low + 4]
        scores = [-abs(sum(x < a for x in half) - sum(x >= a for x in half)) for a in range(low, low + 4)]
        found.append(low + noise.choose(scores, rate=Fraction(1)))
    return tuple(found)


def level_between_rows(rows: Rows, noise: Noise) -> Hashable:
    """A twin: the search runs between the least and the greatest row of the range."""
    data = np.array(sorted(rows), dtype=np.uint64)
    plan = pivots(1, size=8, rows=len(rows), epsilon=2)
    halves = [half for half in (data[data < 4], data[data >= 4]) if len(half)]
    return tuple(plan._pivot(half, int(half[0]), int(half[-1]), len(rows), noise) for half in halves)


def test_a_level_of_pivots_costs_as_much_as_one() -> None:
    pairs = [((0, 1, 3, 4, 6), (0, 1, 7, 4, 6)), ((0, 0, 0, 7, 7), (0, 0, 7, 7, 7)), ((3, 3), (3, 4)), ((1, 2), (2, 2))]
    stay = [((0, 0, 0, 3, 3), (0, 0, 3, 3, 3)), ((0, 3), (3, 3))]
    ranges = [high - low for low, high in losses(level_of_pivots, pairs + stay, 60)]
    assert 2 - SLACK < max(ranges[:4]) < 2 + SLACK  # a row that moves to the other range costs no more than …
    assert 2 - SLACK < max(ranges[4:]) < 2 + SLACK  # … one that stays
    for twin in (level_of_centred_pivots, level_between_rows):
        assert max(high - low for low, high in losses(twin, pairs + stay, 60)) > 3.9


RANGES = ((0, 3), (4, 4), (6, 9))  # 5 lies in none of them


@given(
    rows=st.lists(st.integers(0, 9), min_size=1, max_size=7),
    new=st.integers(0, 9),
    floors=st.tuples(*[st.integers(0, 2)] * 3),
)
def test_the_sum_of_the_scores_of_a_level_moves_by_at_most_one(rows: list[int], new: int, floors: Rows) -> None:
    """Ties and atoms included: so the loss of a level has the range of a single draw."""

    def scores(data: list[int]) -> list[Array]:
        inside = [[x for x in data if low <= x <= high] for low, high in RANGES]
        pieces = [
            median_score(np.array(sorted(part), dtype=np.uint64), *ends, floor)
            for part, ends, floor in zip(inside, RANGES, floors, strict=True)
        ]
        return [
            np.array([piece(a) for a in range(low, high + 1)])
            for piece, (low, high) in zip(pieces, RANGES, strict=True)
        ]

    moved = [after - before for before, after in zip(scores(rows), scores([*rows[:-1], new]), strict=True)]
    assert sum(move.max() for move in moved) <= 1
    assert sum(move.min() for move in moved) >= -1


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 200), levels=st.integers(1, 4), depth=st.sampled_from([1, 2]))
def test_what_is_cut_next_is_known_from_what_was_released(seed: int, rows: int, levels: int, depth: int) -> None:
    data = np.sort(np.random.default_rng(seed).integers(0, 1000, rows) // 7 * 7).astype(np.uint64)
    search = MedianSearch(Fraction(1), Fraction(1, 100) if depth == 2 else Fraction(0), depth)
    plan = Pivots(1000, rows, search, CountNoise(levels, Fraction(5), gaussian=False), TENTH)
    found = plan.release(data, Seeded(unsafe_seed=seed))
    assert len(found) <= levels
    cut, ends = [0], [(0, 999)]
    for level in found:
        assert sorted(set(level.parents.tolist())) == cut
        for number in cut:  # the parts of a range tile it
            lows, highs = level.lows[level.parents == number], level.highs[level.parents == number]
            assert (lows[0], highs[-1]) == ends[number]
            assert np.array_equal(lows[1:], highs[:-1] + np.uint64(1))
        ends = list(zip(level.lows.tolist(), level.highs.tolist(), strict=True))
        cut = np.flatnonzero((level.lows < level.highs) & (level.counts > plan.least)).tolist()
    assert not cut or len(found) == levels


@given(data=st.lists(st.integers(3, 12), max_size=9), floor=st.integers(-1, 6))
def test_the_score_of_a_median(data: list[int], floor: int) -> None:
    for kind in (np.uint64, object):
        score = median_score(np.array(sorted(data), dtype=kind), 3, 12, floor)
        for a in range(3, 13):
            assert score(a) == max(floor, 0, min(sum(x <= a for x in data), sum(x >= a for x in data)))


# ── SanThresholds ─────────────────────────────────────────────────────────────────────────────────────────────────


class OneCut(SanThresholds):
    """With one cut only, so that its law can be walked."""

    cuts = 1


class NeverCounts(SanThresholds):
    """A twin: the counter of the ranges that may be cut is never decremented."""

    @property
    def cuts(self) -> int:
        class Endless(int):
            def __sub__(self, other: int) -> Endless:
                return self

        return Endless(1)


class CountsCalls(Seeded):
    """How many mechanisms were called; a choice that is made shows as one draw too many."""

    def __init__(self) -> None:
        super().__init__(unsafe_seed=0)
        self.counts = 0

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        self.counts += 1
        return super().discrete_laplace(scale, size)


SAN = OneCut(2, 3, Fraction(9, 10), Fraction(2), Fraction(1, 20), TENTH)


@pytest.mark.slow
def test_exact_law_of_san_thresholds_and_its_twin() -> None:
    """Of two values, the first count is that of all rows, which is public: four calls of ε = 2 feel the row."""
    pairs = [((0, 0, 0), (0, 0, 1))]
    assert epsilon_of(SAN.event, delta=Fraction(1, 10)) <= 12
    assert deltas(lambda rows, noise: transcript(SAN, rows, noise), pairs, [8], 9)[0][1] <= 0.05
    assert deltas(lambda rows, noise: transcript(SAN, rows, Weaker(noise)), pairs, [8], 20)[0][0] > 0.06


def test_san_thresholds_makes_no_more_calls_than_are_charged() -> None:
    data = np.repeat(np.arange(40, dtype=np.uint64), 50)
    parameters = (64, len(data), Fraction(1, 20), Fraction(5), Fraction(1, 100), TENTH)
    for kind, kept in ((OneCut, True), (NeverCounts, False)):
        noise = CountsCalls()
        kind(*parameters).release(data, noise)
        counts = 3 * 1 + 1 + 1  # of one cut, and the draw by which its choice is made
        assert (noise.counts <= counts) is kept
    plan = SanThresholds(*parameters)
    noise = CountsCalls()
    plan.release(data, noise)
    assert 40 < noise.counts <= 4 * plan.cuts + 1


@given(data=st.lists(st.integers(3, 12), max_size=9).map(sorted))
def test_fullest_intervals_and_overlapping_counts(data: list[int]) -> None:
    for kind in (np.uint64, object):
        rows = np.array(data, dtype=kind)
        fullest = fullest_intervals(rows, 3, 12)
        for j, full in enumerate(fullest):
            assert full == max(sum(a <= x < a + 2**j for x in data) for a in range(3, 13))
        assert fullest[-1] == len(data)
        for width in range(4):
            starts, counts = overlapping_counts(rows, 3, width)
            length = 2 << width if width else 1
            assert counts == [sum(a <= x < a + length for x in data) for a in starts]
            assert sum(counts) >= len(data)


def test_san_thresholds_finds_what_it_promises() -> None:
    plan = san_thresholds(
        1 << 16, 400_000, alpha=Fraction(1, 2), epsilon=Fraction(5), delta=Fraction(1, 10**7), failure=TENTH
    )
    assert plan.bound == 200_000
    rows = np.sort(np.concatenate([np.full(200_000, 777), np.arange(200_000) % 60_000]))
    sanitizer = ThresholdSanitizer(bits=16, epsilon=5, delta=1e-7, method="paper", error=0.5).fit(rows)
    assert sanitizer.method_ == "paper"
    assert worst_error(sanitizer, rows) < 0.25
    assert sanitizer.guarantee_ <= Guarantee(epsilon=5.0, delta=1e-7)


# ── estimates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_estimates_are_the_least_squares_ones() -> None:
    """A tree of two levels: 3 ranges, of which the first has 2 parts and the last 3."""
    generator = np.random.default_rng(0)
    parents = np.array([0, 0, 2, 2, 2])
    counts = [generator.integers(0, 50, 3), generator.integers(0, 50, 5)]
    lows, highs = np.array([0, 2, 3]), np.array([1, 2, 5])
    deep = np.array([0, 1, 3, 4, 5])
    levels = [Level(lows, highs, np.zeros(3, dtype=np.int64), counts[0]), Level(deep, deep, parents, counts[1])]
    # The free unknowns are the five parts and the uncut range; the measurements are all eight counts.
    design = np.array(
        [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 1, 0], *np.eye(6)[:5].tolist()], dtype=float
    )
    measured, total = np.concatenate(counts), 90.0
    ones = np.ones(6)
    inverse = np.linalg.inv(design.T @ design)
    free = inverse @ design.T @ measured
    free -= inverse @ ones * (ones @ free - total) / (ones @ inverse @ ones)
    upper, lower = adjusted(levels, 90)
    assert np.allclose(lower, free[:5])
    assert np.allclose(upper, [free[0] + free[1], free[5], free[2:5].sum()])


def test_exact_counts_are_left_as_they_are() -> None:
    data = np.sort(np.random.default_rng(1).integers(0, 200, 500)).astype(np.uint64)
    tree = Tree(200, 500, 2, CountNoise(4, Fraction(1, 10**6), gaussian=False), TENTH)
    levels = tree.release(data, Seeded(unsafe_seed=0))
    for level, values, below in zip(levels, adjusted(levels, 500), two_sided(levels, 500), strict=True):
        assert np.allclose(values, level.counts)
        assert np.allclose(below, np.searchsorted(data, level.lows))
    points, weights = copy_of_cells(levels, 500, band=1.0)
    values, counts = np.unique(data, return_counts=True)
    for value, count in zip(values, counts, strict=True):
        if count > tree.threshold:
            assert weights[points == value] == pytest.approx(count / 500)
    assert weights.sum() == pytest.approx(1)
    assert np.all(np.diff(points.astype(np.int64)) > 0)


# ── utility ───────────────────────────────────────────────────────────────────────────────────────────────────────


def worst_error(sanitizer: ThresholdSanitizer, rows: Array) -> float:
    """The greatest error over all thresholds."""
    points, totals = sanitizer.points_, np.append(0, np.cumsum(sanitizer.weights_))
    data = np.sort(rows)
    at = np.concatenate([points, data])
    sides: list[Any] = ["left", "right"]
    return max(
        float(np.abs(np.searchsorted(data, at, side) / len(data) - totals[np.searchsorted(points, at, side)]).max())
        for side in sides
    )


def columns(rows: int, bits: int) -> dict[str, Array]:
    generator = np.random.default_rng(rows)
    top = (1 << bits) - 1
    heavy = np.full(rows, 777, dtype=object)
    heavy[: rows // 2] = [top - 777] * (rows // 2)
    gaps = np.array([(1 << (i % (bits - 1))) + 1 for i in range(rows)], dtype=object)
    ties = np.array([(top // 37) * int(i) for i in generator.integers(0, 37, rows)], dtype=object)
    smooth = np.array([int(x * 2**40) << (bits - 41) if bits > 41 else int(x * top) for x in generator.random(rows)])
    return {"two atoms": heavy, "gaps": gaps, "heavy ties": ties, "smooth": smooth.astype(object)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "error", "trials"),
    [
        ({"bits": 16, "epsilon": 1}, 0.1, 8),
        ({"bits": 64, "epsilon": 1, "delta": 1e-6}, 0.1, 6),
        ({"bits": 64, "epsilon": 1, "delta": 1e-6, "method": "quantiles"}, 0.1, 3),
        ({"bits": 16, "epsilon": 1, "method": "quantiles"}, 0.1, 3),
    ],
)
def test_the_promise_is_kept(parameters: dict[str, Any], error: float, trials: int) -> None:
    sanitizer = ThresholdSanitizer(**parameters, error=error, failure=0.1)
    required = sanitizer.n_required(error)
    bad = 0
    kinds = columns(required, parameters["bits"])
    for data in kinds.values():
        rows = data.astype(np.uint64)
        for seed in range(trials):
            bad += worst_error(sanitizer.set_params(unsafe_seed=seed).fit(rows), rows) > error
            assert sanitizer.error_ <= error
    assert bad <= int(binom.isf(1e-6, trials * len(kinds), 0.1))


@pytest.mark.slow
def test_the_promise_is_kept_for_wide_values() -> None:
    sanitizer = ThresholdSanitizer(bits=1500, epsilon=2, delta=1e-6, error=0.25, failure=0.1)
    required, bad = sanitizer.n_required(0.25), 0
    kinds = columns(required, 1500)
    for data in kinds.values():
        bad += worst_error(sanitizer.set_params(unsafe_seed=3).fit(data), data) > 0.25
    assert sanitizer.method_ == "quantiles"
    assert bad <= int(binom.isf(1e-6, len(kinds), 0.1))


def test_fewer_rows_have_larger_errors() -> None:
    data = columns(400, 64)["heavy ties"].astype(np.uint64)
    sanitizer = ThresholdSanitizer(bits=64, epsilon=1, delta=1e-6, unsafe_seed=0).fit(data)
    assert worst_error(sanitizer, data) > 0.1
    assert sanitizer.error_ > 0.5


def test_rows_required_grow_as_they_should() -> None:
    def rows(bits: int, error: float = 0.1, **changed: Any) -> int:
        return ThresholdSanitizer(**{"bits": bits, "epsilon": 1, "delta": 1e-6, **changed}).n_required(error)

    assert rows(2) < rows(16) < rows(64) < rows(500)
    assert rows(8000) < 1.3 * rows(3000)
    assert rows(64, delta=0) > rows(64)
    assert rows(16, epsilon=0.1) > 8 * rows(16)
    assert rows(16, error=0.01) > 8 * rows(16)
    assert rows(16, failure=0.001) > rows(16)
    assert rows(16, method="paper") > 100 * rows(16)


@pytest.mark.slow
def test_the_method_depends_on_public_numbers_only() -> None:
    def method(bits: int, delta: float) -> str:
        found: str = ThresholdSanitizer(bits=bits, epsilon=1, delta=delta).fit([0] * 1000).method_
        return found

    assert [method(bits, 1e-6) for bits in (8, 64, 256, 5000)] == ["tree", "tree", "tree", "quantiles"]
    assert [method(bits, 0) for bits in (8, 32, 1000)] == ["tree", "tree", "quantiles"]


# ── what it answers ───────────────────────────────────────────────────────────────────────────────────────────────


def test_frequencies_quantiles_and_samples() -> None:
    rows = np.repeat(np.arange(100), 200)
    sanitizer = ThresholdSanitizer(bits=7, epsilon=2, unsafe_seed=0).fit(rows)
    assert sanitizer.cdf(49) == pytest.approx(0.5, abs=0.03)
    assert sanitizer.cdf(49) == pytest.approx(sanitizer.frequency(Threshold(50)))
    assert sanitizer.cdf(49.5) == sanitizer.cdf(49)
    assert sanitizer.cdf([-1, 49, 10**30]) == pytest.approx([0, sanitizer.cdf(49), 1])
    assert sanitizer.frequency(Threshold(50, ">=")) == pytest.approx(1 - sanitizer.cdf(49))
    assert sanitizer.frequency(Interval(20, 29)) == pytest.approx(0.1, abs=0.05)
    assert sanitizer.frequency(Interval(20, 29)) == pytest.approx(sanitizer.cdf(29) - sanitizer.cdf(19))
    assert abs(sanitizer.quantile(0.25) - 25) <= 3
    assert isinstance(sanitizer.quantile(0.25), int)
    found = sanitizer.quantile(np.array([[0, 0.5], [0.9, 1]]))
    assert found.shape == (2, 2)
    assert found[1, 1] == sanitizer.points_[-1]
    assert found[0, 0] == sanitizer.points_[0]
    for q in (0.1, 0.5, 0.77):
        assert sanitizer.cdf(sanitizer.quantile(q)) >= q - 1e-9
    assert abs(np.median(sanitizer.sample(2000, random_state=0)) - 49.5) < 5
    assert np.all(np.diff(sanitizer.points_) > 0)
    assert np.all(sanitizer.weights_ > 0)
    assert sanitizer.weights_.sum() == pytest.approx(1)


def test_edges_of_what_it_answers() -> None:
    sanitizer = ThresholdSanitizer(bits=7, epsilon=1, unsafe_seed=0).fit(np.arange(100))
    assert sanitizer.quantile([]).shape == sanitizer.cdf([]).shape == (0,)
    assert sanitizer.cdf(math.inf) == sanitizer.cdf(127) == 1.0  # exactly
    assert sanitizer.sample(0).shape == (0,)
    for bad in ("1", -1, 1.5, np.random.default_rng(0)):
        with pytest.raises((TypeError, ValueError), match="random_state must be"):
            sanitizer.sample(3, random_state=bad)  # type: ignore[arg-type]
    days = np.datetime64("2020-01-01") + np.arange(5000) % 300
    dates = ThresholdSanitizer(domain=Datetimes("D"), epsilon=1, delta=1e-6, unsafe_seed=0).fit(days)
    moments = [datetime.date(2020, 6, 1), datetime.datetime(2020, 6, 1), np.datetime64("2020-06-01")]
    assert len(set(dates.cdf(moments).tolist())) == 1
    with pytest.raises(TypeError, match="x must be"):
        dates.cdf(datetime.datetime(2020, 6, 1, tzinfo=datetime.UTC))


def test_the_order_of_the_rows_plays_no_part() -> None:
    rows = np.random.default_rng(0).integers(0, 2**40, 3000)
    one, other = (ThresholdSanitizer(bits=40, epsilon=1, unsafe_seed=4).fit(x) for x in (rows, rows[::-1]))
    assert np.array_equal(one.points_, other.points_)
    assert np.array_equal(one.weights_, other.weights_)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tree", "quantiles"])
def test_floats_datetimes_and_wide_integers(method: Any) -> None:
    generator = np.random.default_rng(0)
    common: dict[str, Any] = {"epsilon": 2, "delta": 1e-6, "method": method, "unsafe_seed": 1}
    floats = generator.normal(size=20_000)
    sanitizer = ThresholdSanitizer(domain=Floats(), **common).fit(floats)
    assert sanitizer.quantile([0.1, 0.9]) == pytest.approx([-1.28, 1.28], abs=0.2)
    assert sanitizer.cdf(0.0) == pytest.approx(0.5, abs=0.04)
    assert sanitizer.frequency(Interval(-1, math.inf)) == pytest.approx(0.84, abs=0.05)

    days = np.datetime64("2020-01-01") + generator.integers(0, 700, 20_000)
    dates = ThresholdSanitizer(domain=Datetimes("D"), **common).fit(days)
    assert abs(dates.quantile(0.5) - np.datetime64("2020-12-16")) < np.timedelta64(40, "D")
    assert dates.cdf(np.datetime64("2020-12-16")) == pytest.approx(0.5, abs=0.06)
    assert dates.sample(3).dtype == days.dtype

    wide = [(i << 70) + 5 for i in range(20_000)]
    integers = ThresholdSanitizer(bits=90, **common).fit(wide)
    assert integers.cdf(10_000 << 70) == pytest.approx(0.5, abs=0.05)
    edge = ThresholdSanitizer(bits=64, **common).fit(np.full(5000, 2**64 - 1, dtype=np.uint64))
    assert edge.quantile(0.5) == 2**64 - 1


def test_guarantees_and_events() -> None:
    pure = ThresholdSanitizer(bits=8, epsilon=0.3).fit([1, 2])
    assert pure.guarantee_ == Guarantee(epsilon=0.3)
    small = ThresholdSanitizer(bits=2, epsilon=1, delta=1e-6).fit([1, 2])  # Laplace noise is better here
    assert small.guarantee_ == Guarantee(epsilon=1.0)
    for bits, method in ((64, "tree"), (64, "quantiles"), (2000, "quantiles")):
        fitted = ThresholdSanitizer(bits=bits, epsilon=1, delta=1e-6, method=method).fit([1, 2])  # type: ignore[arg-type]
        assert fitted.guarantee_ <= Guarantee(epsilon=1.0, delta=1e-6)
        assert fitted.guarantee_.epsilon > 0.99
    seeded = ThresholdSanitizer(bits=8, epsilon=1, unsafe_seed=0).fit([1, 2])
    assert seeded.guarantee_.seeded
    assert isinstance(seeded.event_, SeededRelease)


def test_a_delta_that_buys_nothing_is_not_used() -> None:
    for epsilon, delta in ((1, 2.225073858507203e-309), (1, Fraction(1, 10**400)), (1, 1e-299), (1e-5, 1e-20)):
        fitted = ThresholdSanitizer(bits=4, epsilon=epsilon, delta=delta).fit([3, 9, 1])
        assert fitted.guarantee_.epsilon <= epsilon
    with pytest.raises(ValueError, match="delta"):
        ThresholdSanitizer(bits=4, epsilon=1, delta=1e-305, method="paper", error=0.1).n_required(0.1)


def test_one_row_and_one_value() -> None:
    assert ThresholdSanitizer(bits=1, epsilon=1).fit([1]).rows_ == 1
    assert ThresholdSanitizer(bits=64, epsilon=1, delta=1e-6, method="quantiles").fit([1]).rows_ == 1


def test_too_few_rows_for_the_error_asked_for() -> None:
    sanitizer = ThresholdSanitizer(bits=8, epsilon=1, error=0.1)
    required = sanitizer.n_required(0.1)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got 10") as refusal:
        sanitizer.fit([1] * 10)
    assert refusal.value.required == required
    assert sanitizer.fit([1] * required).error_ <= 0.1


def test_cloned_and_pickled() -> None:
    sanitizer = ThresholdSanitizer(bits=8, epsilon=1, unsafe_seed=5).fit([1, 2, 200])
    again = clone(sanitizer).fit([1, 2, 200])
    assert np.array_equal(again.weights_, sanitizer.weights_)
    assert np.array_equal(pickle.loads(pickle.dumps(sanitizer)).points_, sanitizer.points_)


def test_a_delta_above_one_over_the_rows_is_warned_of() -> None:
    with pytest.warns(PrivacyWarning, match="not below 1/2"):
        ThresholdSanitizer(bits=8, epsilon=1, delta=0.6).fit([1, 2])


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, Any] = {"bits": 8, "epsilon": 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in [0, -1, math.nan, math.inf, None, "1", True, 1j]],
        *[("delta", bad) for bad in [-1, 1, 1.5, math.nan, None, "1"]],
        *[("method", bad) for bad in ["", "best", None, 1]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("bits", bad) for bad in [0, -1, 1.5, None, "1", True]],
        *[("domain", bad) for bad in [Floats(), 5]],  # beside bits
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        ThresholdSanitizer(**{**GOOD, name: value}).fit("no data")


def test_too_few_rows_for_a_promise_are_told_of_a_way_out_that_there_is() -> None:
    """With method="paper" an error must be given, so to leave it out is no way out."""
    rows = np.arange(100)
    for method in METHODS:
        sanitizer = ThresholdSanitizer(bits=16, epsilon=1, delta=1e-6, method=method, error=0.01)  # type: ignore[arg-type]
        with pytest.raises(InsufficientData) as refused:
            sanitizer.fit(rows)
        assert ("set error=None" in str(refused.value)) == (method != "paper")
        way_out = {"error": None} if method != "paper" else {"method": "auto", "error": None}
        sanitizer.set_params(**way_out).fit(rows)
    assert 'take method="auto"' in str(refused.value)


def test_what_a_method_needs() -> None:
    with pytest.raises(ValueError, match="delta"):
        ThresholdSanitizer(**GOOD, method="paper", error=0.1).fit("no data")
    with pytest.raises(ValueError, match="error must be given for method=\"paper\""):
        ThresholdSanitizer(**GOOD, method="paper", delta=1e-6).fit("no data")
    with pytest.raises(ValueError, match="bits"):
        ThresholdSanitizer(domain=Integers(), epsilon=1).n_required(0.1)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([777, 1], r"X must lie in \[0, 2\^8\)"),
        ([-777, 1], r"X must lie in \[0, 2\^8\)"),
        ([0.777, 1], "X must hold whole numbers"),
        ([math.nan, 1], "NaN"),
        ([math.inf, 1], "inf"),
        (["777", "1"], "X must hold"),
        ([None, 1], "X must hold"),
        ([[777, 1], [1, 2]], "single column"),
        ([], "at least one row"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "whole numbers"),
        ("777", "X must be"),
        (None, "X must be"),
    ],
)
def test_bad_rows_are_refused_and_not_repeated(X: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words) as refusal:
        ThresholdSanitizer(**GOOD).fit(X)
    assert "777" not in str(refusal.value)


def test_bad_questions_are_refused() -> None:
    sanitizer = ThresholdSanitizer(**GOOD).fit([1, 2])
    for bad in (-0.1, 1.1, math.nan, "1", None):
        with pytest.raises((TypeError, ValueError), match="q must be"):
            sanitizer.quantile(bad)
    for worse in (math.nan, "1", None, [math.nan]):
        with pytest.raises((TypeError, ValueError), match="x "):
            sanitizer.cdf(worse)
    with pytest.raises(TypeError, match="datetimes"):
        sanitizer.cdf(np.datetime64("2020-01-01"))
    with pytest.raises(TypeError, match="Threshold or an Interval"):
        sanitizer.frequency(5)


@given(epsilon=st.one_of(st.floats(), st.integers(), st.none()), delta=st.one_of(st.floats(), st.integers()))
def test_any_parameters_are_taken_or_refused(epsilon: Any, delta: Any) -> None:
    sanitizer = ThresholdSanitizer(bits=4, epsilon=epsilon, delta=delta)
    if epsilon is not None and 1e-6 < epsilon < 1e6 and 0 <= delta < 0.5:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # for a delta that is large for three rows
            assert sanitizer.fit([3, 9, 1]).guarantee_.epsilon <= epsilon
    elif epsilon is None or not 0 < epsilon < math.inf or not 0 <= delta < 1:
        with pytest.raises((TypeError, ValueError), match=r"epsilon|delta"):
            sanitizer.fit([3, 9])


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────


EXPECTED = {
    "check_n_features_in": "what is sanitized is a column, which need not be a table with features",
    "check_n_features_in_after_fitting": "what is sanitized is a column, which need not be a table with features",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}


class FirstColumn(ThresholdSanitizer):
    """The sanitizer of the first of several columns, since most of the checks use several."""

    def fit_with_noise(self, X: ArrayLike, unsafe_noise: Noise | None) -> Self:
        return super().fit_with_noise(as_point_table(X)[:, :1], unsafe_noise)


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    sanitizer = FirstColumn(domain=Floats(), epsilon=100, unsafe_seed=seed)
    check_estimator(sanitizer, on_skip=None, expected_failed_checks=EXPECTED)
