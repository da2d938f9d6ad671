"""The choosing mechanism: exact laws under replaced rows, a threshold that cannot be lowered, broken twins."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import BAD_DELTA, BAD_EPSILON, refusal

from counting import calls
from reticent.audit import exact, law, worst_case
from reticent.audit.neighbours import count_vectors
from reticent.mechanisms.choosing import choosing, choosing_threshold
from reticent.noise import Noise, Seeded
from reticent.privacy.events import ApproximateDP, is_seeded

Counts = tuple[int, ...]
Pair = tuple[Counts, Counts]


def moved(first: Counts, falls: tuple[int, ...], rises: tuple[int, ...]) -> Counts:
    return tuple(count - (place in falls) + (place in rises) for place, count in enumerate(first))


def near_the_threshold(epsilon: Fraction, delta: Fraction, growth: int) -> list[Pair]:
    """The pairs that cost most: the highest count around τ, others close below it, at 1 and at 0; all that a replaced
    row can do to whole groups of them, up to `growth` falling and up to `growth` rising."""
    threshold = choosing_threshold(epsilon=epsilon, delta=delta, growth=growth)
    close, ones, zeros = (tuple(range(1 + i * growth, 1 + (i + 1) * growth)) for i in range(3))
    pairs = []
    for top, (drop, crowd) in product(range(1, threshold + 4), ((0, 0), (1, 4), (2, 0), (2, 4))):
        near = max(1, top - drop)
        first = (top, *[near] * growth, *[1] * growth, *[0] * growth, *[near] * crowd)
        for falls in ((), (0,), close, ones, (0, *ones[1:]), (0, *close[1:])):
            for rises in ((), close, zeros, (*close[1:], zeros[0]), (0, *zeros[1:])):
                pairs.append((first, moved(first, falls, rises)))
    return list(dict.fromkeys(pairs))


def real(epsilon: Fraction, delta: Fraction, growth: int = 1) -> Callable[[Noise, Counts], Any]:
    return lambda noise, counts: choosing(
        counts, epsilon=epsilon, delta=delta, growth=growth, unsafe_noise=noise
    ).value


def twin(threshold: int, *, noise_rate: Fraction, choice_rate: Fraction) -> Callable[[Noise, Counts], Any]:
    """The mechanism with its constants laid open."""

    def run(noise: Noise, counts: Counts) -> int | None:
        occurring = [place for place, count in enumerate(counts) if count]
        if not occurring or not noise.laplace_cell(1 / noise_rate, [threshold - max(counts)]):
            return None
        return occurring[noise.choose([counts[place] for place in occurring], rate=choice_rate)]

    return run


# ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "0.3"), (2, "0.05"), (6, "0.001")])
@pytest.mark.parametrize("growth", [1, 2])
def test_exact_law_keeps_the_claim_near_the_threshold(epsilon: Any, delta: Any, growth: int) -> None:
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    pairs = near_the_threshold(epsilon, delta, growth)
    worst = worst_case(real(epsilon, delta, growth), pairs, epsilon=epsilon)
    assert worst.upper <= delta


@pytest.mark.parametrize(("size", "rows"), [(2, 7), (3, 6), (4, 5)])
def test_exact_law_keeps_the_claim_on_all_small_data_sets(size: int, rows: int) -> None:
    epsilon, delta = Fraction(3), Fraction(1, 10)
    assert worst_case(real(epsilon, delta), count_vectors(size, rows), epsilon=epsilon).upper <= delta


@pytest.mark.slow
@pytest.mark.parametrize("growth", [1, 2, 4])
def test_exact_law_keeps_the_claim_on_random_neighbours(growth: int) -> None:
    generator = np.random.default_rng(growth)
    epsilon, delta = Fraction(2), Fraction(1, 20)
    threshold = choosing_threshold(epsilon=epsilon, delta=delta, growth=growth)
    pairs = []
    for _ in range(300):
        first = tuple(np.maximum(0, generator.integers(-3, threshold + 3, 12)).tolist())
        falls = generator.choice([p for p in range(12) if first[p]] or [0], growth) if any(first) else ()
        rises = generator.choice(12, growth, replace=False)
        pairs.append((first, moved(first, tuple(set(map(int, falls))), tuple(set(map(int, rises))))))
    assert worst_case(real(epsilon, delta, growth), pairs, epsilon=epsilon).upper <= delta


@pytest.mark.slow
@pytest.mark.parametrize("growth", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_threshold_cannot_be_lowered(epsilon: Fraction, growth: int) -> None:
    """One count less and the newcomers alone exceed δ: at M = τ they are drawn as often as the proof allows."""
    delta = Fraction(1, 1000)
    threshold = choosing_threshold(epsilon=epsilon, delta=delta, growth=growth)
    rate = epsilon * (growth + 1) / (3 * growth + 1)
    lower = twin(threshold - 1, noise_rate=rate, choice_rate=rate)
    vanishing: list[Pair] = [
        ((top, *[1] * growth, *[0] * growth), (top, *[0] * growth, *[1] * growth)) for top in range(1, threshold)
    ]
    assert worst_case(lower, vanishing, epsilon=epsilon).lower > delta
    assert worst_case(real(epsilon, delta, growth), vanishing, epsilon=epsilon).upper <= delta


# ── twins that must fail ──────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_twins_are_rejected() -> None:
    epsilon, delta = Fraction(2), Fraction(1, 100)
    threshold, rate = choosing_threshold(epsilon=epsilon, delta=delta), epsilon / 2
    pairs = near_the_threshold(epsilon, delta, 1)
    twins = {
        "itself": twin(threshold, noise_rate=rate, choice_rate=rate),
        "threshold halved": twin(threshold // 2, noise_rate=rate, choice_rate=rate),
        "noise × 0.7": twin(threshold, noise_rate=rate / Fraction(7, 10), choice_rate=rate),
        "choice at the full ε": twin(threshold, noise_rate=rate, choice_rate=epsilon),
        "both at 0.7 of the noise": twin(threshold, noise_rate=rate * 10 / 7, choice_rate=rate * 10 / 7),
    }
    worst = {name: worst_case(run, pairs, epsilon=epsilon) for name, run in twins.items()}
    assert worst.pop("itself").upper <= delta
    assert {name: case.lower > delta for name, case in worst.items()} == dict.fromkeys(worst, True)


def test_no_threshold_at_all_is_rejected() -> None:
    pairs = [((5, 1, 0), (5, 0, 1))]
    bare = twin(-(10**6), noise_rate=Fraction(1, 2), choice_rate=Fraction(1, 2))
    assert worst_case(bare, pairs, epsilon=1).lower > 0.1


def test_the_threshold_of_continuous_noise_is_rejected() -> None:
    """½·e^(−c·x) is the tail of Lap(1/c); the discrete tail is e^(−c·x)/(1 + e^−c), up to twice as heavy."""
    epsilon = Fraction(4)
    rate = epsilon / 2
    delta = Fraction(math.exp(-2 * 4) / 2) * (1 + Fraction(1, 10**12))
    continuous = 1 + math.log(1 / (2 * delta)) / rate
    pairs = near_the_threshold(epsilon, delta, 1)
    wrong = twin(math.ceil(continuous), noise_rate=rate, choice_rate=rate)
    assert worst_case(wrong, pairs, epsilon=epsilon).lower > 1.5 * delta
    assert worst_case(real(epsilon, delta), pairs, epsilon=epsilon).upper <= delta


def test_growth_forgotten_is_rejected() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    pairs = [((top, 1, 1, 1, 0, 0, 0), (top, 0, 0, 0, 1, 1, 1)) for top in range(1, 20)]
    assert worst_case(real(epsilon, delta, 1), pairs, epsilon=epsilon).lower > delta
    assert worst_case(real(epsilon, delta, 3), pairs, epsilon=epsilon).upper <= delta


# ── what it returns ───────────────────────────────────────────────────────────────────────────────────────────────

def test_array_and_mapping_agree() -> None:
    epsilon, delta = Fraction(2), Fraction(1, 10)
    by_location = law(lambda noise: choosing([4, 0, 6], epsilon=epsilon, delta=delta, unsafe_noise=noise).value)
    names = {0: "b", 2: "a", None: None}
    for counts in ({"a": 6, "b": 4}, {"b": 4, "a": 6}, {"b": 4, "c": 0, "a": 6}):
        by_name = law(lambda noise, counts=counts: choosing(  # type: ignore[misc]
            counts, epsilon=epsilon, delta=delta, unsafe_noise=noise).value)
        for place, name in names.items():
            assert by_name.probability(name) == pytest.approx(by_location.probability(place), rel=1e-12)
    assert exact(by_location, by_location).delta(0)[1] < 1e-20


def test_seeded_runs_do_not_depend_on_the_order_of_insertion() -> None:
    forth, back = {k: 60 + k % 3 for k in range(50)}, {k: 60 + k % 3 for k in reversed(range(50))}
    for seed in range(20):
        one, two = (
            choosing(counts, epsilon=1, delta=0.01, unsafe_noise=Seeded(unsafe_seed=seed)).value
            for counts in (forth, back)
        )
        assert one == two


def test_what_is_frequent_is_found_and_what_is_rare_is_not() -> None:
    value, event = choosing([0, 3, 500], epsilon=1, delta=1e-6)
    assert value == 2
    assert event == ApproximateDP(Fraction(1), Fraction(1, 10**6))
    assert choosing([0, 0], epsilon=1, delta=1e-6).value is None
    assert choosing([], epsilon=1, delta=1e-6).value is None
    assert choosing({}, epsilon=1, delta=1e-6).value is None
    assert choosing({2**1000: 200}, epsilon=1, delta=1e-6).value == 2**1000
    assert str(choosing({-0.0: 200}, epsilon=1, delta=1e-6).value) == "0.0"  # whoever wrote it with a sign
    assert is_seeded(choosing([9], epsilon=1, delta=0.1, unsafe_noise=Seeded(unsafe_seed=1)).event)


@pytest.mark.parametrize(
    ("epsilon", "delta", "growth", "threshold"), [(1, 1e-6, 1, 28), (0.1, 1e-6, 1, 264), (1, 1e-6, 2, 34)]
)
def test_threshold(epsilon: float, delta: float, growth: int, threshold: int) -> None:
    assert choosing_threshold(epsilon=epsilon, delta=delta, growth=growth) == threshold


def test_a_million_candidates() -> None:
    counts = np.ones(10**6, dtype=np.int64)
    counts[777] = 200
    chosen, work = calls(lambda: choosing(counts, epsilon=1, delta=1e-6).value)
    assert chosen == 777
    assert work < 10**5


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("epsilon", BAD_EPSILON)
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon must be"):
        choosing([1], epsilon=epsilon, delta=0.1)


@pytest.mark.parametrize("delta", BAD_DELTA)
def test_bad_delta(delta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="delta must be"):
        choosing([1], epsilon=1, delta=delta)


@pytest.mark.parametrize("growth", [0, -1, 1.5, None, "2", True])
def test_bad_growth(growth: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="growth must be"):
        choosing([1], epsilon=1, delta=0.1, growth=growth)


@pytest.mark.parametrize(
    "counts", [[-1], [1.5], [[1]], "12", None, 3, [True], [2**64], [None], {"a": -1}, {"a": 1.0}, [[1], [1, 2]]]
)
def test_bad_counts(counts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="counts must be"):
        choosing(counts, epsilon=1, delta=0.1)


@pytest.mark.parametrize("counts", [{"a": 1, 2: 1}, {None: 3}, {1j: 3, 2j: 4}, {1: 2, 2.0: 1}, {Fraction(1, 2): 4}])
def test_bad_candidates(counts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="candidates must"):
        choosing(counts, epsilon=1, delta=0.1)


@pytest.mark.slow
@given(
    st.lists(st.integers() | st.floats() | st.none() | st.text(), max_size=4)
    | st.dictionaries(st.integers() | st.text(), st.integers() | st.floats(), max_size=3),
    st.floats() | st.floats(0, 10),
    st.floats() | st.floats(0, 1),
    st.integers(-2, 10**30),
)
@settings(max_examples=300, deadline=None)
def test_anything_else_is_answered_or_refused_by_name(counts: Any, epsilon: float, delta: float, growth: int) -> None:
    message = refusal(lambda: choosing(counts, epsilon=epsilon, delta=delta, growth=growth))
    assert not message or any(name in message for name in ("counts", "candidates", "epsilon", "delta", "growth"))


def test_no_count_and_no_candidate_is_echoed() -> None:
    listed: list[Any] = [[-918273645], [918273645.5], {"918273645": 1, 2: 1}, {"918273645": -1}]
    for counts in listed:
        message = refusal(lambda counts=counts: choosing(counts, epsilon=1, delta=0.1))  # type: ignore[misc]
        assert message
        assert "918273645" not in message
