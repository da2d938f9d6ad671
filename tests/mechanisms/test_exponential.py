from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import BITS, Law, law
from reticent.mechanisms.exponential import draw_integer, exponential, exponential_over_pieces
from reticent.mechanisms.pieces import Pieces
from reticent.noise import Noise, Seeded
from reticent.noise.reading import exact_numbers
from reticent.privacy import events

Scores = list[int] | list[Fraction]
Mechanism = Callable[[Scores, Fraction, Noise], int]


def mechanism(scores: Scores, epsilon: Fraction, noise: Noise) -> int:
    return exponential(scores, epsilon=epsilon, unsafe_noise=noise).value


def twin_for_monotone_scores(scores: Scores, epsilon: Fraction, noise: Noise) -> int:
    """Weights e^(ε·score), which are right only if neighbours never move two scores in opposite directions."""
    return noise.choose(exact_numbers(scores, "scores"), rate=epsilon)


def twin_that_forgets_the_sensitivity(scores: Scores, epsilon: Fraction, noise: Noise) -> int:
    """Scores counted in half rows: their sensitivity is 2."""
    return noise.choose(exact_numbers([2 * score for score in scores], "scores"), rate=epsilon / 2)


def twin_that_raises_epsilon_a_little(scores: Scores, epsilon: Fraction, noise: Noise) -> int:
    return noise.choose(exact_numbers(scores, "scores"), rate=epsilon * Fraction(51, 100))


def worst_pair(candidates: int) -> tuple[Scores, Scores]:
    """One candidate rises while all others fall: the loss of the one tends to ε as they grow in number."""
    return [0] + [1] * candidates, [1] + [0] * candidates


def random_pairs(count: int) -> list[tuple[Scores, Scores]]:
    rng = random.Random(5)
    pairs: list[tuple[Scores, Scores]] = []
    for number in range(count):
        size = rng.randint(1, 12)
        if number % 2:
            scores = [rng.randint(-8, 8) for _ in range(size)]
            pairs.append((scores, [score + rng.choice((-1, 0, 1)) for score in scores]))
        else:
            quarters = [Fraction(rng.randint(-30, 30), 4) for _ in range(size)]
            pairs.append((quarters, [score + Fraction(rng.randint(-4, 4), 4) for score in quarters]))
    return pairs


def worst_delta(mechanism: Mechanism, epsilon: Fraction, pairs: list[tuple[Scores, Scores]]) -> tuple[float, float]:
    """Certified bounds on the greatest δ(ε) over the pairs."""
    bounds = []
    for scores, neighbour in pairs:
        laws = [law(lambda noise, s=side: mechanism(s, epsilon, noise)) for side in (scores, neighbour)]  # type: ignore[misc]
        bounds.append(exact(*laws).delta(epsilon))
    return max(low for low, _ in bounds), max(high for _, high in bounds)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_exact_law_is_private(epsilon: Fraction) -> None:
    assert worst_delta(mechanism, epsilon, [*random_pairs(200), worst_pair(60)])[1] < 1e-20


@pytest.mark.parametrize(
    "twin", [twin_for_monotone_scores, twin_that_forgets_the_sensitivity, twin_that_raises_epsilon_a_little]
)
def test_the_same_test_rejects_the_twins(twin: Mechanism) -> None:
    assert worst_delta(twin, Fraction(1, 10), [worst_pair(60)])[0] > 1e-6


def losses(first: Law, second: Law) -> list[float]:
    return [float(mp.log(mpf(first.low[output]) / mpf(second.low[output]))) for output in first.low]


@pytest.mark.slow
def test_the_loss_has_bounded_range_and_nearly_fills_it() -> None:
    epsilon = Fraction(1)
    widest = 0.0
    for scores, neighbour in [*random_pairs(100), worst_pair(400)]:
        laws = [law(lambda noise, s=side: mechanism(s, epsilon, noise)) for side in (scores, neighbour)]  # type: ignore[misc]
        loss = losses(*laws)
        assert max(loss) - min(loss) <= epsilon + 1e-12
        widest = max(widest, *map(abs, loss))
    assert widest > 0.99


@pytest.mark.parametrize(
    ("scores", "shift"),
    [([3, -2, Fraction(7, 3), 0.1, -300], 0), ([10**30 + 3, 10**30 - 2, 10**30 + Fraction(7, 3)], 10**30)],
)
def test_the_law_is_the_softmax_of_the_scores(scores: list[Any], shift: int) -> None:
    found = law(lambda noise: exponential(scores, epsilon=0.3, unsafe_noise=noise).value)
    mp.prec = 300
    above = [Fraction(score) - shift for score in scores]
    weights = [mp.exp(mpf(3) / 20 * mpf(score.numerator) / score.denominator) for score in above]
    total = sum(weights)
    for index, weight in enumerate(weights):
        assert mpf(found.low[index]) <= weight / total * 2**BITS * (1 + mpf(2) ** -280)
        assert mpf(found.high[index]) >= weight / total * 2**BITS * (1 - mpf(2) ** -280)
    assert sum(found.low.values()) <= 1 << BITS <= sum(found.high.values()) + found.missing


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    first=st.sampled_from([0, -3, 2**64 - 2, 10**30]),
    data=st.data(),
)
def test_pieces_have_the_law_of_all_their_points(lengths: list[int], first: int, data: st.DataObject) -> None:
    values = [data.draw(st.integers(-5, 5) | st.just(Fraction(1, 3)) | st.just(0.5)) for _ in lengths]
    starts = [first + sum(lengths[:i]) for i in range(len(lengths))]
    pieces = Pieces.from_breakpoints(starts, values, last=first + sum(lengths) - 1)
    each = [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]
    by_piece = law(lambda noise: exponential_over_pieces(pieces, epsilon=1, unsafe_noise=noise).value)
    by_point = law(lambda noise: first + exponential(each, epsilon=1, unsafe_noise=noise).value)
    assert same_law(by_piece, by_point)


def test_disjoint_parts_have_the_law_of_their_union() -> None:
    parts = [
        Pieces.from_triples([(0, 2, 1), (3, 3, 4)]),
        Pieces.from_triples([(7, 7, 0), (8, 2**70, -400)]).within(0, 3),
    ]
    found = law(lambda noise: draw_integer(parts, rate=Fraction(1, 2), noise=noise))
    points, scores = [0, 1, 2, 3, 7, 8, 9, 10], [1, 1, 1, 4, 0, -400, -400, -400]
    assert same_law(found, law(lambda noise: points[noise.choose(scores, rate=Fraction(1, 2))]))


def same_law(first: Law, second: Law) -> bool:
    """Whether the enclosures of all probabilities overlap, and are narrow."""
    outputs: set[Hashable] = first.high.keys() | second.high.keys()
    close = 1 << 40
    return all(
        first.low.get(output, 0) <= second.high.get(output, 0) + close
        and second.low.get(output, 0) <= first.high.get(output, 0) + close
        for output in outputs
    ) and max(first.missing, second.missing) < 1 << BITS - 70


@pytest.mark.slow
def test_real_noise_follows_the_law() -> None:
    noise = Seeded(unsafe_seed=3)
    pieces = Pieces.from_triples([(0, 2**80, 0), (2**80 + 1, 2**80 + 2**78, 3), (2**80 + 2**78 + 1, 2**81, 1)])
    weights = [2**80 * math.exp(0), 2**78 * math.exp(1.5), (2**81 - 2**80 - 2**78) * math.exp(0.5)]
    drawn = [exponential_over_pieces(pieces, epsilon=1, unsafe_noise=noise).value for _ in range(3000)]
    counts = np.bincount([pieces.locate(value) for value in drawn], minlength=3)
    expected = 3000 * np.array(weights) / sum(weights)
    assert float(np.sum((counts - expected) ** 2 / expected)) < 24  # chi-square with 2 degrees of freedom: 1e-5
    assert {value % 2 for value in drawn} == {0, 1}
    listed = [exponential([0, 1, 2], epsilon=2, unsafe_noise=noise).value for _ in range(3000)]
    expected = 3000 * np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    assert float(np.sum((np.bincount(listed, minlength=3) - expected) ** 2 / expected)) < 24


def test_events_say_what_happened() -> None:
    pieces = Pieces.from_triples([(0, 9, 1)])
    assert exponential([1], epsilon=0.5) == (0, events.BoundedRange(Fraction(1, 2)))
    assert exponential_over_pieces(pieces, epsilon=2).event == events.BoundedRange(Fraction(2))
    seeded = Seeded(unsafe_seed=0)
    marked = events.SeededRelease(events.BoundedRange(Fraction(1)))
    assert exponential([1], epsilon=1, unsafe_noise=seeded).event == marked


@pytest.mark.parametrize(
    "scores",
    [
        [10**400, 0, -(10**400)],
        [1e308, -1e308, 0.0],
        [Fraction(10**400, 3), 5, 0.25],
        np.array([2**63 - 1, -(2**63)]),
        np.array([2**64 - 1, 0], dtype=np.uint64),
        np.array([30000.0, 1.0], dtype=np.float32),
    ],
)
def test_huge_scores_are_answered(scores: Any) -> None:
    assert exponential(scores, epsilon=1).value == 0


def test_ten_million_scores() -> None:
    scores = np.zeros(10**7, dtype=np.int32)
    scores[7_654_321] = 200
    assert exponential(scores, epsilon=1).value == 7_654_321


def test_a_range_of_a_million_bits() -> None:
    top = 1 << 10**6
    pieces = Pieces.from_triples([(0, top - 2, 0), (top - 1, top - 1, 1_500_000), (top, top, 0)])
    assert exponential_over_pieces(pieces, epsilon=1).value == top - 1


@given(epsilon=st.floats(max_value=0) | st.sampled_from([math.nan, math.inf, "1", None, True, 1j, Decimal("NaN")]))
def test_bad_epsilon_is_refused_by_name(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon must be"):
        exponential([1, 2], epsilon=epsilon)
    with pytest.raises((ValueError, TypeError), match="epsilon must be"):
        exponential_over_pieces(Pieces.from_triples([(0, 9, 1)]), epsilon=epsilon)


@given(
    scores=st.one_of(
        st.just([]),
        st.lists(st.lists(st.integers(), min_size=1, max_size=2), min_size=1, max_size=3),
        st.tuples(st.integers(), st.sampled_from([float("nan"), float("inf"), None, "a", 1j, b"b", [1]])).map(list),
        st.sampled_from([None, 3, "abc", {1, 2}, {"a": 1}, object(), np.zeros((2, 2)), np.array("x")]),
    )
)
def test_bad_scores_are_refused_by_name(scores: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="scores must") as caught:
        exponential(scores, epsilon=1)
    assert caught.value.__cause__ is None


def test_nothing_private_is_echoed() -> None:
    for bad in ([987654321, float("nan")], [987654321, None], [[987654321]]):
        with pytest.raises((ValueError, TypeError)) as caught:
            exponential(bad, epsilon=1)
        assert "987654321" not in str(caught.value)


def test_pieces_must_be_pieces() -> None:
    with pytest.raises(TypeError, match="pieces must be Pieces, got list"):
        exponential_over_pieces([1, 2], epsilon=1)  # type: ignore[arg-type]
