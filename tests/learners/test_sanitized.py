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

from reticent.audit import law, worst_case
from reticent.audit.neighbours import divergences, random_row_replacements, row_replacements
from reticent.concepts import Floats, Intervals, KPoints, Point, Points, Rectangles, Threshold, Thresholds
from reticent.concepts.interface import ConceptClass
from reticent.errors import InsufficientData
from reticent.learners.copies import concept_parts
from reticent.learners.sanitized import HalvesBudget, SanitizedLearner, rows_for_halves
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy import Guarantee
from reticent.privacy.events import BoundedRange, Composed, PureDP, Repeated, SeededRelease
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.sanitizers.base import Copy, Sanitizer
from reticent.sanitizers.nets import NetSanitizer
from reticent.sanitizers.points import PointSanitizer
from reticent.sanitizers.thresholds import ThresholdSanitizer

Array = NDArray[Any]
Rows = tuple[tuple[int, int], ...]  # (value, label)

TINY = 1e-20  # what rounding, and noise that is not walked, may add to the exact δ of a pure mechanism


class Above(Sanitizer):
    """A tiny sanitizer: about how many rows are above a cut. It stands for them by one point on either side."""

    def __init__(
        self, *, epsilon: Any, delta: Any = 0, cut: float = 0.5, error: Any = None, failure: Any = 0.05,
        unsafe_seed: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.cut = cut
        self.error = error
        self.failure = failure
        self.unsafe_seed = unsafe_seed

    def n_required(self, error: Any, failure: Any = None) -> int:
        return math.ceil(3 * math.log(3 / float(failure or self.failure)) / (float(self.epsilon) * float(error)))

    def check_parameters(self) -> None:
        super().check_parameters()
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    def query_class(self, concept: Any = None) -> ConceptClass[Any]:
        return Thresholds(domain=Floats())

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        event, count = PureDP(check_epsilon(self.epsilon)), self._count(rows)
        cuts = [k - count for k in range(1, len(rows) + 1)]
        ones = noise_or_system(unsafe_noise).laplace_cell(1 / event.epsilon, cuts)
        points, weights = np.array([self.cut - 1, self.cut]), np.array([len(rows) - ones, ones]) / len(rows)
        return release((points, weights), event, unsafe_noise)

    def _count(self, rows: Array) -> int:
        return int(np.count_nonzero(rows >= self.cut))


class Alternating(Above):
    """As private, but it looks at the order: it counts even values in even places and odd values in odd ones."""

    def _count(self, rows: Array) -> int:
        return int(np.count_nonzero(rows.astype(np.int64) % 2 == np.arange(len(rows)) % 2))


def table(rows: Rows) -> tuple[Array, Array]:
    values, labels = zip(*rows, strict=True)
    return np.array(values, dtype=np.float64)[:, None], np.array(labels)


# ── privacy: the exact law of all that is published ───────────────────────────────────────────────────────────────

EPSILON = Fraction(13, 10)
SHARE = Fraction(5, 13)  # 0.5 for the count and 0.4 for either copy
ALL_ROWS = [(value, label) for value in (0, 1) for label in (0, 1)]


def published(learner: SanitizedLearner) -> Callable[[Noise, Rows], Any]:
    """All that a fit publishes. Most of the time of a fit goes into reading X and y, which the walks leave out."""

    def run(noise: Noise, rows: Rows) -> Any:
        X, y = table(rows)
        return outputs(learner, learner._learn(X[:, 0], y, noise).value)

    return run


def outputs(learner: SanitizedLearner, hypothesis: Any) -> Any:
    copies = [copy and (copy.points_.tolist(), copy.weights_.tolist()) for copy in learner.copies_]
    return hypothesis, learner.sizes_, str(copies)


def fitted(noise: Noise, rows: Rows) -> Any:
    learner = make().fit_with_noise(*table(rows), noise)
    return outputs(learner, learner.hypothesis_)


def make(kind: type[SanitizedLearner] = SanitizedLearner, sanitizer: type[Above] = Above, **more: Any) -> Any:
    settings: dict[str, Any] = {"epsilon": EPSILON, "count_share": SHARE, **more}
    return kind(sanitizer(epsilon=1), Thresholds(domain=Floats(), both_orientations=True), **settings)


def random_neighbours(rows: int, number: int) -> list[tuple[Rows, Rows]]:
    return list(random_row_replacements(np.random.default_rng(0), number, domain=ALL_ROWS, rows=rows))


Pair = tuple[Rows, Rows]
FLIP: Pair = ((1, 0), (0, 1), (0, 0)), ((1, 1), (0, 1), (0, 0))  # a row changes its label
STAY: Pair = ((0, 1), (0, 0), (1, 0)), ((0, 1), (0, 0), (0, 0))  # a row changes its value only
SHIFT: Pair = ((0, 0), (1, 0), (2, 0)), ((1, 1), (1, 0), (2, 0))  # the first of the rows labelled 0 leaves them


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", [Above, Alternating])
def test_exact_law_of_everything_published(sanitizer: type[Above]) -> None:
    pairs = [*row_replacements(ALL_ROWS, 1), *row_replacements(ALL_ROWS, 2), *random_neighbours(3, 3), SHIFT]
    assert worst_case(published(make(sanitizer=sanitizer)), pairs, epsilon=EPSILON).upper < TINY


@pytest.mark.slow
def test_a_flipped_label_costs_the_count_and_both_copies_and_a_kept_one_a_copy_only() -> None:
    flip, stay = (pair for _, _, pair in divergences(fitted, [FLIP, STAY]))
    assert flip.delta(EPSILON)[1] < TINY
    assert flip.delta(EPSILON - Fraction(1, 1000))[0] > 1e-6  # the whole of ε is attained
    assert stay.delta(Fraction(4, 10))[1] < TINY
    assert stay.delta(Fraction(39, 100))[0] > 1e-6


@pytest.mark.slow
def test_exact_law_with_sizes_in_steps() -> None:
    pairs = list(row_replacements(ALL_ROWS, 2))
    assert worst_case(published(make(step=2)), pairs, epsilon=EPSILON).upper < TINY
    assert worst_case(published(make(ExactSizes, step=2)), pairs, epsilon=EPSILON).lower > 1e-3


@pytest.mark.slow
def test_exact_law_with_points() -> None:
    sanitizer = PointSanitizer(bits=1, epsilon=1, delta=0.1)
    learner = SanitizedLearner(sanitizer, Points(bits=1), epsilon=8, delta=0.4, count_share=0.3)
    worst = worst_case(published(learner), row_replacements(ALL_ROWS, 1), epsilon=8, tail_bits=30)
    assert worst.upper <= 0.4


class UnchargedCount(SanitizedLearner):
    """A twin: all of ε goes to the copies, as if the sizes were public."""

    def _budget(self) -> HalvesBudget:
        budget = super()._budget()
        return HalvesBudget(budget.counting, check_epsilon(self.epsilon) / 2, budget.delta)


class Wrapped(Noise):
    """Noise that is changed on the way."""

    def __init__(self, noise: Any) -> None:
        self.noise = noise

    def laplace_cell(self, scale: Fraction, cuts: Any) -> int:
        return int(self.noise.laplace_cell(scale, cuts))

    def permutation(self, n: int) -> Array:
        return np.asarray(self.noise.permutation(n))


class NoFirstNoise(Wrapped):
    """The first draw, that of the count, is 0."""

    first = True

    def laplace_cell(self, scale: Fraction, cuts: Any) -> int:
        first, self.first = self.first, False
        return sum(cut <= 0 for cut in cuts) if first else super().laplace_cell(scale, cuts)


class NoShuffle(Wrapped):
    """Whatever is shuffled stays as it is."""

    def permutation(self, n: int) -> Array:
        return np.arange(n)


class ExactSizes(SanitizedLearner):
    """A twin: either half has as many rows as there are."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(rows, labels, NoFirstNoise(unsafe_noise))


class PadsWithItsRows(SanitizedLearner):
    """A twin: a half is padded with copies of its own last row."""

    def _sanitized(self, half: Array, size: int, padding: Array, error: Any, unsafe_noise: Noise | None) -> Any:
        return super()._sanitized(half, size, half[-1:] if len(half) else padding, error, unsafe_noise)


class Unshuffled(SanitizedLearner):
    """A twin: the sanitizer sees the rows in the order of the data."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(rows, labels, NoShuffle(unsafe_noise))


class Sorted(Unshuffled):
    """A twin: a canonical order in place of a random one."""

    def _sanitized(self, half: Array, size: int, padding: Array, error: Any, unsafe_noise: Noise | None) -> Any:
        padded = np.append(half[:size], np.repeat(padding, max(0, size - len(half))))
        return super()._sanitized(np.sort(padded), size, padding, error, unsafe_noise)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("twin", "sanitizer", "pair", "bound"),
    [
        (UnchargedCount, Above, FLIP, EPSILON),
        (ExactSizes, Above, FLIP, EPSILON),
        (PadsWithItsRows, Above, STAY, Fraction(4, 10)),
        (Unshuffled, Alternating, SHIFT, EPSILON),
        (Sorted, Alternating, SHIFT, EPSILON),
    ],
)
def test_twins_are_rejected(
    twin: type[SanitizedLearner], sanitizer: type[Above], pair: tuple[Rows, Rows], bound: Fraction
) -> None:
    assert worst_case(published(make(twin, sanitizer)), [pair], epsilon=bound).lower > 1e-3


class Careless(Above):
    """A sanitizer that spends twice what it is given."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        return Release(super()._sanitize(rows, unsafe_noise).value, PureDP(2 * check_epsilon(self.epsilon)))


def test_a_sanitizer_that_spends_more_than_it_was_given_is_refused() -> None:
    with pytest.raises(ValueError, match="sanitizer must keep to the epsilon"):
        make(sanitizer=Careless).fit([[0.0], [1.0]], [0, 1])


# ── errors come before the count, and tell nothing of it ──────────────────────────────────────────────────────────


def tried(noise: Noise, rows: Rows, learner: SanitizedLearner) -> Any:
    """What a fit publishes; a refusal is published too."""
    X, y = np.array([[value] for value, _ in rows]), np.array([label for _, label in rows])
    try:
        learner.fit_with_noise(X, y, noise)
    except (TypeError, ValueError) as refusal:
        assert not {"sizes_", "copies_"} & learner.__dict__.keys()
        return str(refusal)
    return outputs(learner, learner.hypothesis_)


TINY_NET = NetSanitizer(Thresholds(bits=1), epsilon=1, method="exact", size=1)


@pytest.mark.parametrize(
    ("learner", "rows", "words"),
    [
        (
            SanitizedLearner(TINY_NET, Thresholds(bits=1), epsilon=1, padding=[5]),
            ((0, 0), (1, 1), (1, 0)),
            "padding must lie in [0, 2^1): a value lies outside",
        ),
        (
            SanitizedLearner(TINY_NET, Thresholds(bits=1), epsilon=1, padding=[0.0]),
            ((0, 0), (1, 1), (1, 0)),
            "padding must be a row of the same kind as those of X, whole numbers, got floats",
        ),
        (
            SanitizedLearner(TINY_NET, Thresholds(bits=2), epsilon=1),
            ((0, 0), (1, 1), (3, 1)),
            "sanitizer must have the domain of concept_class, Integers(bits=2), got Integers(bits=1)",
        ),
        (
            SanitizedLearner(TINY_NET, Thresholds(), epsilon=1),
            ((0, 0), (1, 1), (3, 1)),
            "X must lie in [0, 2^1): a value lies outside",
        ),
    ],
)
def test_whether_a_fit_is_refused_does_not_depend_on_the_count(
    learner: SanitizedLearner, rows: Rows, words: str
) -> None:
    """Were the padding read only where a half needs it, the fits that succeed would be those with the true count."""
    assert set(law(lambda noise: tried(noise, rows, learner)).high) == {words}


def test_a_fit_that_fails_leaves_nothing() -> None:
    learner = make(sanitizer=Careless)
    with pytest.raises(ValueError, match="sanitizer must keep to the epsilon"):
        learner.fit([[0.0], [1.0]], [0, 1])
    assert not {"sizes_", "copies_"} & learner.__dict__.keys()


def test_a_sanitizer_that_would_need_an_error_is_refused_before_the_count() -> None:
    settings: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
    choosing = PointSanitizer(bits=7, method="choosing", error=0.2, **settings)
    with pytest.raises(ValueError, match="sanitizer must have rounds"):
        SanitizedLearner(choosing, Points(bits=7), **settings).fit("no data", None)  # type: ignore[arg-type]
    rounds = PointSanitizer(bits=7, method="choosing", rounds=3, **settings)
    SanitizedLearner(rounds, Points(bits=7), **settings).fit([[1]] * 20, [0, 1] * 10)


class Composing(Above):
    """A sanitizer that spends (ε, δ) in parts, which at δ = 0 would add up to more than ε."""

    def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
        return Release(super()._sanitize(rows, unsafe_noise).value, Repeated(BoundedRange(Fraction(3, 10)), 4))


def test_the_guarantee_of_a_sanitizer_is_at_the_delta_that_it_used() -> None:
    found = Composing(epsilon=1, delta=1e-2).fit([0.0, 1.0]).guarantee_
    assert found <= Guarantee(epsilon=1, delta=1e-2)


# ── what it publishes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_guarantee_event_and_what_is_set_in_the_sanitizer() -> None:
    learner = SanitizedLearner(Above(epsilon=99), Thresholds(domain=Floats()), epsilon=1).fit([[0.0], [1.0]], [0, 1])
    assert learner.guarantee_ == Guarantee(epsilon=1.0)
    assert learner.event_ == Composed((PureDP(Fraction(1, 10)), Repeated(PureDP(Fraction(9, 20)), 2)))
    copies = [copy for copy in learner.copies_ if copy is not None]
    assert {copy.epsilon for copy in copies} == {Fraction(9, 20)}
    assert learner.sanitizer.epsilon == 99
    seeded = clone(learner).set_params(unsafe_seed=3).fit([[0.0], [1.0]], [0, 1])
    assert seeded.guarantee_.seeded
    assert isinstance(seeded.event_, SeededRelease)
    points = PointSanitizer(bits=4, epsilon=1, delta=1e-6)
    learner = SanitizedLearner(points, Points(bits=4), epsilon=1, delta=1e-6).fit([[3]] * 9, [1] * 9)
    assert learner.guarantee_ <= Guarantee(epsilon=1, delta=1e-6)


def test_the_concept_is_the_best_on_the_copies() -> None:
    generator = np.random.default_rng(0)
    for seed in range(20):
        X, y = generator.integers(0, 2, (30, 1)).astype(float), generator.integers(0, 2, 30)
        learner = make(epsilon=3, unsafe_seed=seed).fit(X, y)

        def errors(concept: Any, learner: SanitizedLearner = learner) -> float:
            zeros, ones = learner.copies_
            wrong = 0.0 if zeros is None else learner.sizes_[0] * zeros.frequency(concept)
            return wrong + (0.0 if ones is None else learner.sizes_[1] * (1 - ones.frequency(concept)))

        concepts = [Threshold(at, sign) for at in (-1.0, 0.2, 2.0) for sign in ("<", ">=")]
        assert errors(learner.hypothesis_) == pytest.approx(min(map(errors, concepts)))
        assert sum(learner.sizes_) == 30


@pytest.mark.slow
def test_with_other_sanitizers() -> None:
    x = np.random.default_rng(0).integers(0, 256, (20_000, 1))
    settings: dict[str, Any] = {"epsilon": 2, "unsafe_seed": 1}
    learner = SanitizedLearner(ThresholdSanitizer(bits=8, epsilon=1), Thresholds(bits=8), **settings)
    learner.fit(x, x[:, 0] < 90)
    assert learner.score(x, x[:, 0] < 90) > 0.97
    assert learner.guarantee_.epsilon == 2
    net = NetSanitizer(Thresholds(bits=3), epsilon=1)
    learner = SanitizedLearner(net, Thresholds(bits=3), **settings).fit(x[:2000] // 32, x[:2000, 0] < 96)
    assert learner.score(x // 32, x[:, 0] < 96) > 0.9


def test_sizes_are_multiples_of_the_step_and_halves_are_padded_and_cut() -> None:
    X, y = np.array([[1.0]] * 5 + [[0.0]] * 15), np.array([1] * 5 + [0] * 15)
    seen = {make(step=5, unsafe_seed=seed).fit(X, y).sizes_ for seed in range(60)}
    assert seen <= {(5 * k, 20 - 5 * k) for k in range(5)}
    assert len(seen) >= 3
    one = make(epsilon=0.01, unsafe_seed=2).fit([[1.0]], [1])
    assert None in one.copies_  # a half of size 0 is not sanitized


def test_padding() -> None:
    class Exact(Above):
        def _sanitize(self, rows: Array, unsafe_noise: Noise | None) -> Release[Copy]:
            points, counts = np.unique(rows, return_counts=True)
            return release((points, counts / len(rows)), PureDP(check_epsilon(self.epsilon)), unsafe_noise)

    for padding, shown in ((None, 0.0), (7.0, 7.0), ([7.0], 7.0)):
        learner = make(sanitizer=Exact, epsilon=0.1, padding=padding)
        found = [learner.set_params(unsafe_seed=seed).fit([[3.0]] * 20, [0] * 10 + [1] * 10) for seed in range(3)]
        assert all({*copy.points_.tolist()} <= {3.0, shown} for one in found for copy in one.copies_ if copy)
    with pytest.raises(TypeError, match="padding must be a row of the same kind"):
        make(padding=np.datetime64("2020-01-01")).fit([[3.0]], [0])
    for bad in ([1.0, 2.0], [], "x"):
        with pytest.raises((TypeError, ValueError), match="padding"):
            make(padding=bad).fit([[3.0]], [0])


def test_cloned_and_pickled() -> None:
    learner = make(unsafe_seed=5).fit([[1.0], [0.0]], [1, 0])
    again = clone(learner).fit([[1.0], [0.0]], [1, 0])
    assert again.hypothesis_ == learner.hypothesis_ == pickle.loads(pickle.dumps(learner)).hypothesis_


# ── the promise ───────────────────────────────────────────────────────────────────────────────────────────────────


def assert_mostly(failures: list[bool], failure: float) -> None:
    assert sum(failures) <= binom.ppf(1 - 1e-6, len(failures), failure)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.301, 0.5, 0.95])
def test_promise_for_a_point_among_others(share: float) -> None:
    """The target holds little more than `error`, half, or nearly all of the rows; the others are one tie, or differ."""
    settings: dict[str, Any] = {"epsilon": 2, "delta": 1e-6, "error": 0.3, "failure": 0.1}
    learner = SanitizedLearner(PointSanitizer(bits=20, epsilon=1, delta=1e-6), Points(bits=20), **settings)
    rows, generator, failures = learner.n_required(0.3), np.random.default_rng(0), []
    for seed in range(40):
        ties = seed % 2 == 0
        hit = generator.random(rows) < share
        x = np.where(hit, 5, 0 if ties else generator.integers(6, 1 << 20, rows))
        found = learner.set_params(unsafe_seed=seed).fit(x[:, None], hit).hypothesis_
        failures.append(share > 0.3 and found != Point(5))
    assert_mostly(failures, 0.1)


def test_too_few_rows_are_refused() -> None:
    learner = make(error=0.2)
    required = learner.n_required(0.2)
    with pytest.raises(InsufficientData, match="error") as refusal:
        learner.fit(np.zeros((required - 1, 1)), np.zeros(required - 1))
    assert refusal.value.required == required
    assert make(step=7).n_required(0.2) % 7 == 0


@pytest.mark.slow
def test_rows_required_grow_as_they_should() -> None:
    def rows(error: float = 0.2, **changed: Any) -> int:
        return int(make(**{"epsilon": 1, "count_share": 0.1, **changed}).n_required(error))

    found = [rows(error) for error in np.linspace(0.1, 0.5, 9).round(3).tolist()]
    assert found == sorted(found, reverse=True)
    assert found[0] > 2 * rows()
    assert rows(epsilon=0.01) > 20 * rows()
    assert rows(failure=0.001) > rows()
    assert make().n_required(0.05, realizable=True) < make().n_required(0.05) / 2
    assert make().n_required(0.2, 0.001) > make().n_required(0.2)


def test_a_half_of_any_size_is_accurate_enough() -> None:
    for sanitizer in (Above(epsilon=1), PointSanitizer(bits=40, epsilon=1, delta=1e-6)):
        accuracy = Fraction(1, 50)
        rows = rows_for_halves(sanitizer.n_required, accuracy)
        for size in range(1, rows + 1, max(1, rows // 300)):
            assert size <= accuracy * rows or sanitizer.n_required(accuracy * rows / size) <= size


@pytest.mark.slow
def test_the_copies_are_made_for_what_was_counted() -> None:
    """A sanitizer takes as many rows as it says if it is made for that error and that failure."""
    x = np.arange(1 << 16)[:, None] % 256
    sanitizer = ThresholdSanitizer(bits=8, epsilon=1, failure=0.9)
    learner = SanitizedLearner(sanitizer, Thresholds(bits=8), epsilon=2, error=0.3)
    learner.fit(x, x[:, 0] < 50)
    for copy, size in zip(learner.copies_, learner.sizes_, strict=True):
        assert isinstance(copy, ThresholdSanitizer)
        assert copy.failure == Fraction(5, 800)
        assert isinstance(copy.error, Fraction)
        assert copy.n_required(copy.error) <= size
        assert copy.error * size <= learner._accuracy(0.3).share * len(x)
    few = SanitizedLearner(sanitizer, Thresholds(bits=8), epsilon=2, error=0.3).fit(x, x[:, 0] < 0)
    assert few.copies_[1] is None or few.copies_[1].error is None  # nothing is asked of a half that small


PARTS: list[tuple[ConceptClass[Any], ConceptClass[Any]]] = [
    (Thresholds(bits=3), Thresholds(bits=3)),
    (Thresholds(bits=3, both_orientations=True), Thresholds(bits=3)),
    (Points(bits=3), Points(bits=3)),
    (KPoints(2, bits=3), Points(bits=3)),
    (Intervals(bits=3), Thresholds(bits=3)),
]


@pytest.mark.parametrize(("of", "queries"), PARTS, ids=str)
def test_a_copy_right_for_the_queries_is_right_for_the_concepts(
    of: ConceptClass[Any], queries: ConceptClass[Any]
) -> None:
    """For random errors of the shares: how far off a concept is, against how far off the worst query is."""
    generator, points = np.random.default_rng(0), np.arange(8)
    asked, concepts = (np.array([labels for labels, _ in kind.dichotomies(points)]) for kind in (queries, of))
    off = generator.normal(size=(8, 300))
    ratios = np.abs(concepts @ off).max(axis=0) / np.abs(asked @ off).max(axis=0)
    assert 0.6 * concept_parts(of, queries) < ratios.max() <= concept_parts(of, queries) + 1e-9


@pytest.mark.slow
def test_concepts_of_several_queries_take_more_rows() -> None:
    def rows(sanitizer: Sanitizer, concept_class: ConceptClass[Any]) -> int:
        return SanitizedLearner(sanitizer, concept_class, epsilon=1, delta=1e-6).n_required(0.2)

    points = PointSanitizer(bits=20, epsilon=1, delta=1e-6)
    assert rows(points, KPoints(8, bits=20)) > 4 * rows(points, KPoints(1, bits=20))
    thresholds = ThresholdSanitizer(bits=8, epsilon=1)
    assert rows(thresholds, Intervals(bits=8)) > 1.5 * rows(thresholds, Thresholds(bits=8))


@pytest.mark.parametrize(
    ("sanitizer", "concept_class", "words"),
    [
        (PointSanitizer(bits=8, epsilon=1, delta=1e-6), Thresholds(bits=8), "nothing can be promised"),
        (NetSanitizer(Thresholds(bits=8), points=[0, 255], epsilon=1), Thresholds(bits=8), "all values of the domain"),
        (NetSanitizer(Thresholds(), points=[0, 255], epsilon=1), Thresholds(), "X must hold only points"),
    ],
)
def test_pairs_that_cannot_keep_a_promise_are_refused_it(
    sanitizer: Sanitizer, concept_class: ConceptClass[Any], words: str
) -> None:
    x = np.arange(20_000)[:, None] % 256
    learner = SanitizedLearner(sanitizer, concept_class, epsilon=1, delta=1e-6)
    learner.fit(x, x[:, 0] < 90)
    with pytest.raises(ValueError, match=words):
        learner.set_params(error=0.4).fit(x, x[:, 0] < 90)


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

OTHER_LABELS = {
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_classifiers_train": "the copy has two points, and no threshold fits the data",
    "check_dtype_object": "objects that are no numbers are refused in other words",
    "check_classifiers_one_label": "a copy with noise may hold rows of the other label",
}


class FirstColumn(SanitizedLearner):
    """The learner on the first of several columns, since most of the checks use several."""

    def as_points(self, rows: Array) -> Array:
        return rows[:, 0]


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    random = {} if seed is not None else RANDOM
    estimator = make(FirstColumn, epsilon=100, unsafe_seed=seed)
    check_estimator(estimator, on_skip=None, expected_failed_checks=OTHER_LABELS | random)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_NUMBERS: list[Any] = [0, -1, math.nan, math.inf, None, "1", True, 1j]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in BAD_NUMBERS],
        *[("delta", bad) for bad in [-1, 1, 1.5, math.nan, None, "1"]],
        *[("count_share", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("step", bad) for bad in [0, -1, 1.5, None, "1", True]],
        *[("sanitizer", bad) for bad in [None, 5, Above]],
        *[("concept_class", bad) for bad in [None, 5, Thresholds]],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        make().set_params(**{name: value}).fit("no data", None)


def test_a_sanitizer_must_fit_the_class_and_the_delta() -> None:
    with pytest.raises(ValueError, match="as many columns"):
        SanitizedLearner(Above(epsilon=1), Rectangles(2), epsilon=1).fit([[1.0, 2.0]], [1])
    points = PointSanitizer(bits=4, epsilon=1, delta=1e-6)
    with pytest.raises(ValueError, match="delta"):
        SanitizedLearner(points, Points(bits=4), epsilon=1).fit("no data", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step must divide"):
        make(step=2).fit([[1.0]], [1])


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[777], [1]], r"X must lie in \[0, 2\^8\)"),
        ([[0.777], [1]], "X must hold whole numbers"),
        ([[math.nan], [1]], "NaN"),
        ([[math.inf], [1]], "inf"),
        ([["777"], ["1"]], "X must hold"),
        ([[None], [1]], "X must hold"),
        ([[777, 1], [1, 2]], "single column|expecting 1 feature"),
        ([777, 1], "Reshape your data"),
        ([], "two dimensions"),
        (np.zeros((0, 1)), "0 sample"),
        (np.array([["2020-01-01"], ["2020-01-02"]], dtype="datetime64[D]"), "whole numbers"),
        (np.array([[777j], [1]]), "Complex"),
        (sparse.csr_array([[777], [1]]), "sparse"),
        ("777", "X must be"),
        (None, "X must be"),
    ],
)
def test_bad_rows_are_refused_and_not_repeated(X: Any, words: str) -> None:
    def new() -> SanitizedLearner:
        sanitizer = PointSanitizer(bits=8, epsilon=1, delta=1e-3)
        return SanitizedLearner(sanitizer, Points(bits=8), epsilon=500, delta=1e-3)

    for run in (lambda: new().fit(X, [0, 1]), lambda: new().fit([[1], [2]], [1, 0]).predict(X)):
        with pytest.raises((TypeError, ValueError), match=words) as refusal:
            run()
        assert "777" not in str(refusal.value)


@pytest.mark.parametrize("y", [[0, 777], [-1, 1], [0.5, 1], [0, math.nan], ["no", "777"], [0], [[0, 1], [1, 0]], None])
def test_bad_labels_are_refused_and_not_repeated(y: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as refusal:
        make().fit([[1.0], [2.0]], y)
    assert "777" not in str(refusal.value)


@pytest.mark.slow
@settings(max_examples=30)
@given(epsilon=st.one_of(st.floats(), st.integers(), st.none()), delta=st.one_of(st.floats(), st.integers()))
def test_any_parameters_are_taken_or_refused(epsilon: Any, delta: Any) -> None:
    learner = make(epsilon=epsilon, delta=delta)
    if epsilon is not None and 1e-9 < epsilon < 1e6 and 0 <= delta < 1:
        assert learner.fit([[3.0], [9.0]], [1, 0]).guarantee_ <= Guarantee(epsilon=max(epsilon, 1e-12), delta=delta)
    elif epsilon is None or not 0 < epsilon < math.inf or not 0 <= delta < 1:
        with pytest.raises((TypeError, ValueError), match=r"epsilon|delta"):
            learner.fit([[3.0], [9.0]], [1, 0])
