"""Every mechanism of the package as the audit sees it: what it claims, and the inputs on which to test the claim.

The parameters are chosen for the power of the audit, not for use: a large δ shows in few runs, a large ε makes the
noise small and its outcomes few. The pairs of inputs come close to the claims; if all small pairs can be tried, they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import chain
from typing import Any, Protocol

import numpy as np

from reticent.audit.neighbours import row_replacements, score_vectors
from reticent.data import schema_plan
from reticent.data.frames import Columns
from reticent.data.private_schema import FrameSource
from reticent.data.schema_release import release_columns
from reticent.errors import BudgetExhausted
from reticent.learners.class_weights import release_class_counts
from reticent.learners.column_scales import release_exponents
from reticent.learners.second_moments import release_moments
from reticent.mechanisms.above_threshold import AboveThreshold
from reticent.mechanisms.between_thresholds import BetweenThresholds, required_gap
from reticent.mechanisms.choosing import choosing
from reticent.mechanisms.counts import gaussian_count, laplace_count
from reticent.mechanisms.exponential import exponential, exponential_over_pieces
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import quasi_concave_maximum
from reticent.mechanisms.release import Release
from reticent.mechanisms.sparse_vector import StableMajority
from reticent.mechanisms.stability_histogram import stability_histogram
from reticent.mechanisms.stable_argmax import stable_argmax
from reticent.mechanisms.votes import ConfidentGNMax, gnmax, noisy_majority
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting

Run = Callable[[Noise, Any], Hashable]
InputPair = tuple[Any, Any]


class AuditedMechanism(Protocol):
    """A mechanism with all its parameters set."""

    def __call__(self, data: Any, /, *, unsafe_noise: Noise) -> Release[Any]:
        """Run the real code on `data`."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A mechanism at fixed parameters, and pairs of inputs on which it claims to be (ε, δ)-indistinguishable."""

    name: str
    mechanism: AuditedMechanism
    neighbours: tuple[InputPair, ...]
    epsilon: Fraction
    delta: Fraction

    @property
    def run(self) -> Run:
        """`run(noise, data)`: everything that the mechanism releases, as something hashable."""
        return partial(_output, self.mechanism)


def _output(mechanism: AuditedMechanism, noise: Noise, data: Any) -> Hashable:
    value: Any = mechanism(data, unsafe_noise=noise).value
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


@cache
def catalogue() -> tuple[CatalogueEntry, ...]:
    """Return all entries, one or more per mechanism."""
    return tuple(chain(_selections(), _counts(), _streams(), _votes()))


def _entry(name: str, mechanism: AuditedMechanism, neighbours: Iterable[InputPair], *, epsilon: int) -> CatalogueEntry:
    """Return an entry that claims the least δ at this ε for the event of a run, by the accountant."""
    pairs = tuple(neighbours)
    event = mechanism(pairs[0][0], unsafe_noise=Seeded(unsafe_seed=0)).event
    return CatalogueEntry(name, mechanism, pairs, Fraction(epsilon), Fraction(accounting.delta(event, epsilon=epsilon)))


# ── selections ────────────────────────────────────────────────────────────────────────────────────────────────────

def _selections() -> Iterator[CatalogueEntry]:
    # One score falls and all others rise: with many candidates that costs almost all of ε.
    one_falls = (1, *(0,) * 19), (0, *(1,) * 19)
    scores = [one_falls, *score_vectors(3, range(3))]
    yield _entry("exponential", partial(exponential, epsilon=1), scores, epsilon=1)

    steps = [
        _steps((0, 1), (1, 0), (0, 1), size=20),
        _steps((0, 10), (1, 0), (0, 1), size=20),
        (Pieces.from_triples([(0, 0, 0), (1, 19, 1)]), Pieces.from_triples([(0, 18, 0), (19, 19, 1)])),
    ]
    yield _entry("exponential_over_pieces", partial(exponential_over_pieces, epsilon=1), steps, epsilon=1)

    leads = [*score_vectors(2, range(14)), *score_vectors(3, range(4))]
    argmax = partial(stable_argmax, epsilon=1, delta=0.01)
    yield _entry("stable_argmax, table", argmax, leads, epsilon=1)
    yield _entry("stable_argmax, laplace", partial(argmax, method="laplace"), leads, epsilon=1)

    single = [*_count_changes(2, range(14), growth=1), *_count_changes(3, range(5), growth=1)]
    yield _entry("choosing", partial(choosing, epsilon=1, delta=0.031), single, epsilon=1)
    twofold = [((n, n, 0, 0), (n - 1, n - 1, 1, 1)) for n in range(1, 14)] + _count_changes(2, range(14), growth=2)
    yield _entry("choosing, growth 2", partial(choosing, epsilon=1, delta=0.031, growth=2), twofold, epsilon=1)

    search = partial(quasi_concave_maximum, accuracy=0.5)
    yield _entry("quasi_concave_maximum, depth 1", partial(search, promise=1, epsilon=1, depth=1), steps, epsilon=1)
    deep = [
        # Two lone peaks: which of them leads is all there is to release, and the neighbours disagree about it.
        _steps((0, 4, 5, 36, 37), (-99, 8, -99, 10, -99), (-99, 9, -99, 9, -99), size=48),
        # Found by climbing towards a large privacy loss.
        _steps((0, 3, 21, 29, 31, 35, 37), (19, -5, -14, 4, 7, 2, 6), (20, -6, -14, 5, 6, 3, 6), size=42),
    ]
    twice = partial(search, promise=10, epsilon=4, delta=0.01, depth=2)
    yield _entry("quasi_concave_maximum, depth 2", twice, deep, epsilon=4)


def _steps(starts: Sequence[int], *heights: Sequence[int], size: int) -> InputPair:
    """Return two scores on [0, size) with steps at the same positions."""
    first, second = (Pieces.from_breakpoints(starts, values, last=size - 1) for values in heights)
    return first, second


def _count_changes(size: int, values: Sequence[int], *, growth: int) -> list[InputPair]:
    """All pairs of counts of which a replaced row lets at most `growth` fall and at most `growth` rise."""

    def possible(first: Sequence[int], second: Sequence[int]) -> bool:
        moves = [after - before for before, after in zip(first, second, strict=True)]
        return moves.count(-1) <= growth and moves.count(1) <= growth

    return [pair for pair in score_vectors(size, values) if possible(*pair)]


# ── counts ────────────────────────────────────────────────────────────────────────────────────────────────────────

def _counts() -> Iterator[CatalogueEntry]:
    one, two = [(3, 4)], [((3, 1), (2, 2))]
    yield _entry("laplace_count", partial(laplace_count, epsilon=1), one, epsilon=1)
    yield _entry("laplace_count, histogram", partial(laplace_count, epsilon=2, sensitivity=2), two, epsilon=2)
    yield _entry("gaussian_count", partial(gaussian_count, sigma=2), one, epsilon=1)
    yield _entry("gaussian_count, histogram", partial(gaussian_count, sigma=2, squared_sensitivity=2), two, epsilon=1)
    rows = [*row_replacements("ab", 2, ordered=False), (("a",) * 9 + ("b",) * 3, ("a",) * 8 + ("b",) * 4)]
    yield _entry("stability_histogram", partial(stability_histogram, epsilon=2, delta=0.0134), rows, epsilon=2)
    # Two rows of full length at right angles move the second moments farthest; the others are as long when rounded.
    units = [(((1, 0),), ((0, 1),)), (((0.7, 0.7),), ((0.7, -0.7),)), (((1, 0), (0, 9)), ((0, -5), (0, 9)))]
    yield _entry("second_moments", partial(_second_moments, sigma=Fraction(2)), units, epsilon=14)
    labels = [((0, 0), (1, 0)), ((0, 1, 1), (1, 1, 1))]
    counted = partial(_class_counts, sigma=Fraction(2))
    yield _entry("class_counts, 2 classes", partial(counted, classes=2), labels, epsilon=1)
    yield _entry("class_counts, 3 classes", partial(counted, classes=3), labels, epsilon=2)
    missing = [*labels, ((-1, 0), (1, 0)), ((0, 1), (-1, 1))]
    yield _entry("class_counts, labels may be missing", partial(counted, classes=2, missing=True), missing, epsilon=2)
    # A category of one row, and counts about the threshold, which is 3.
    wards = [(("a",) * k + ("b",) * m, ("a",) * (k + 1) + ("b",) * (m - 1)) for k in range(4) for m in range(1, 6)]
    yield _entry("private_schema", partial(_private_schema, sigma=Fraction(1)), wards, epsilon=5)
    values = [(((1.0,),), ((0.4,),)), (((0.9,), (0.3,)), ((0.3,), (0.3,)))]
    yield _entry("column_scales", partial(_column_scales, sigma=Fraction(2)), values, epsilon=2)


def _class_counts(
    labels: Sequence[int], *, classes: int, sigma: Fraction, unsafe_noise: Noise, missing: bool = False
) -> Release[Any]:
    """The counts of the classes of a few labels, of which no one is the third."""
    indices, noise = np.array(labels, dtype=np.int64), _NoiseOfTheFirstTwo(unsafe_noise)
    return release_class_counts(indices, classes, sigma=sigma, missing=missing, unsafe_noise=noise)


def _column_scales(rows: Sequence[Sequence[float]], *, sigma: Fraction, unsafe_noise: Noise) -> Release[Any]:
    """The first two bins of the exponents of one column; all others are empty."""
    noise = _NoiseOfTheFirstTwo(unsafe_noise)
    released, event = release_exponents(np.array(rows), sigma=sigma, unsafe_noise=noise)
    return Release(released[:2], event)


class _NoiseOfTheFirstTwo(Noise):
    """Noise for at most two counts. Any other is equal for both inputs, as with `_NoiseOnTheDiagonal`."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        drawn = self.noise.discrete_gaussian(sigma, min(size or 1, 2))
        return np.append(drawn, np.zeros((size or 1) - len(drawn), dtype=np.int64))


def _private_schema(cells: Sequence[str], *, sigma: Fraction, unsafe_noise: Noise) -> Release[Any]:
    """The schema of a table with one column of categories."""
    slack = Fraction(47, 10_000)  # P(N ≥ 3) is within 2 % of it
    plan = schema_plan.SchemaPlan(
        rows=len(cells),
        columns=1,
        undecided=0,
        kinds_sigma=None,
        sigma=sigma,
        threshold=schema_plan.category_threshold(sigma=sigma, probability=slack),
        slack=slack,
    )
    table = FrameSource(Columns({"ward": list(cells)}))
    found = release_columns(table, {"ward": "category"}, plan, unsafe_noise)
    return Release(tuple(column.categories for column in found.columns), plan.event)


def _second_moments(rows: Sequence[Sequence[float]], *, sigma: Fraction, unsafe_noise: Noise) -> Release[Any]:
    """The second moments of a few rows of two columns, on the coarsest lattice."""
    data, noise = np.array(rows, dtype=np.float64), _NoiseOnTheDiagonal(unsafe_noise)
    return release_moments(data, np.eye(2), 1.0, constant=False, radius=1, sigma=sigma, unsafe_noise=noise)


class _NoiseOnTheDiagonal(Noise):
    """Noise for the two moments on the diagonal.

    The moment off the diagonal is equal for both inputs of each pair. So its noise changes no divergence, and without
    it laws have far fewer paths.
    """

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        first, second = self.noise.discrete_gaussian(sigma, 2)
        return np.array([first, 0, second])


# ── streams of questions ──────────────────────────────────────────────────────────────────────────────────────────

def _streams() -> Iterator[CatalogueEntry]:
    # Answers "below" pin the noise of the threshold, then one "above" pays for its own.
    crossing = [((-1, -1, -1, 0), (0, 0, 0, -1)), ((-1, 0, -1, 0), (0, -1, 0, -1))]
    yield _entry("AboveThreshold", partial(_stream, partial(AboveThreshold, 0, epsilon=6)), crossing, epsilon=6)

    # The majority of 21 changes between 10 and 11 votes; at 17 it is about as often stable as not.
    votes = [((10,), (11,)), ((17, 17, 17, 10), (18, 18, 18, 11)), ((17, 17, 17, 16), (16, 16, 16, 17))]
    split = [tuple(tuple((21 - count, count) for count in side) for side in pair) for pair in votes]
    sparse = partial(_stream, partial(StableMajority, epsilon=2, delta=0.04, halts=1), ask="ask_counts")
    yield _entry("StableMajority", sparse, [(first, second) for first, second in split], epsilon=2)

    # Low and high answers in turn pin the noise of the thresholds: by values that lie beyond a threshold on the one
    # side and on it on the other, which costs almost all of ε; by values inside the gap, which costs δ.
    budget: dict[str, Any] = {"epsilon": 8, "delta": 0.001}
    gap = required_gap(**budget)
    pinning = [
        ((-1, gap + 1, -1, gap + 1, 0), (0, gap, 0, gap, -1)),
        ((1, gap - 1, 1, gap - 1, gap // 2 + 1), (2, gap - 2, 2, gap - 2, gap // 2 + 2)),
    ]
    between = partial(_stream, partial(BetweenThresholds, 0, gap, **budget))
    yield _entry("BetweenThresholds", between, pinning, epsilon=8)


def _stream(
    make: Callable[..., Any], questions: Sequence[Any], *, unsafe_noise: Noise, ask: str = "ask"
) -> Release[tuple[Hashable, ...]]:
    """The answers of a mechanism with a memory, until it is closed."""
    stream = make(unsafe_noise=unsafe_noise)
    answers: list[Hashable] = []
    try:
        for question in questions:
            answers.append(getattr(stream, ask)(question))
    except BudgetExhausted:
        answers.append("closed")
    return Release(tuple(answers), stream.event)


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

def _votes() -> Iterator[CatalogueEntry]:
    votes = [(count, count + 1) for count in range(9)]
    yield _entry("noisy_majority", partial(noisy_majority, voters=9, sigma=1.5), votes, epsilon=1)
    histograms = [((count, 9 - count), (count - 1, 10 - count)) for count in range(5, 10)]
    yield _entry("gnmax", partial(gnmax, sigma=2), histograms, epsilon=1)
    questions = [(((6, 3), (6, 3)), ((5, 4), (5, 4))), (((8, 1), (5, 4)), ((7, 2), (6, 3)))]
    confident = partial(ConfidentGNMax, threshold=7, sigma_threshold=1, sigma_answer=2, queries=2, answers=1)
    yield _entry("ConfidentGNMax", partial(_stream, confident), questions, epsilon=2)
