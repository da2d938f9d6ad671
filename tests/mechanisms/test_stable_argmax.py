"""A_dist, repaired: exact laws on all small neighbours, the table's inequalities and optimality, broken twins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import BAD_DELTA, BAD_EPSILON, refusal

from counting import calls
from reticent.audit import worst_case
from reticent.exact import exp_fractions
from reticent.mechanisms.stable_argmax import MOST_ENTRIES, laplace_threshold, release_gap, release_table, stable_argmax
from reticent.noise import Noise, Seeded
from reticent.privacy.events import ApproximateDP, is_seeded

Scores = tuple[Fraction, ...]
Pairs = list[tuple[Scores, Scores]]
BUDGETS = [(Fraction(1), Fraction(1, 100)), (Fraction(1, 2), Fraction(1, 20)), (Fraction(3), Fraction(1, 1000))]


def neighbours(epsilon: Fraction, delta: Fraction, *, candidates: int = 2, step: Fraction = Fraction(1)) -> Pairs:
    """Leads up to where release is certain, in steps, with every move of each score in {−1, …, 1} by steps."""
    entries, _ = release_table(epsilon=epsilon, delta=delta)
    moves = [move * step for move in range(-int(1 / step), int(1 / step) + 1)]

    def pairs() -> Iterator[tuple[Scores, Scores]]:
        for lead in range(int((2 * len(entries) + 4) / step)):
            for place in range(candidates):
                first = [Fraction(0)] * candidates
                first[place] = lead * step
                for change in product(moves, repeat=candidates):
                    yield tuple(first), tuple(score + move for score, move in zip(first, change, strict=True))

    return list(pairs())


def real(method: str, epsilon: Fraction, delta: Fraction) -> Callable[[Noise, Scores], Any]:
    def run(noise: Noise, scores: Scores) -> int | None:
        return stable_argmax(scores, epsilon=epsilon, delta=delta, method=method, unsafe_noise=noise).value  # type: ignore[arg-type]

    return run


def twin(release: Callable[[Noise, Fraction], bool]) -> Callable[[Noise, Scores], Any]:
    """The same argmax with another rule for when to release it."""

    def run(noise: Noise, scores: Scores) -> int | None:
        leader = max(range(len(scores)), key=scores.__getitem__)
        gap = scores[leader] - max(score for place, score in enumerate(scores) if place != leader)
        return leader if release(noise, gap) else None

    return run


# ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("method", ["table", "laplace"])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_exact_law_keeps_the_claim_on_all_integer_neighbours(method: str, epsilon: Fraction, delta: Fraction) -> None:
    worst = worst_case(real(method, epsilon, delta), neighbours(epsilon, delta), epsilon=epsilon)
    assert worst.upper <= delta * (1 + Fraction(1, 10**9))
    if method == "table":  # what is promised is also used up
        assert worst.lower >= delta * (1 - Fraction(1, 10**9))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["table", "laplace"])
def test_exact_law_keeps_the_claim_for_fractional_scores_and_three_candidates(method: str) -> None:
    epsilon, delta = Fraction(2), Fraction(1, 50)
    halves = neighbours(epsilon, delta, step=Fraction(1, 4))
    three = neighbours(epsilon, delta, candidates=3)
    assert worst_case(real(method, epsilon, delta), halves + three, epsilon=epsilon).upper <= delta * (1 + 1e-9)


@pytest.mark.slow
@given(st.fractions(Fraction(1, 50), 20), st.fractions(Fraction(1, 10**9), Fraction(99, 100)))
@settings(max_examples=60, deadline=None)
def test_table_keeps_both_inequalities_and_no_entry_can_be_raised(epsilon: Fraction, delta: Fraction) -> None:
    entries, unit = release_table(epsilon=epsilon, delta=delta)
    low, high = exp_fractions(epsilon, 1024)

    def allowed(before: int, after: int, factor: Fraction) -> bool:
        share = delta * unit
        return after <= factor * before + share and unit - before <= factor * (unit - after) + share

    assert entries[0] == 0
    assert entries[-1] == unit
    for before, after in pairwise(entries):
        assert before < after
        assert allowed(before, after, low)
        assert after == unit or not allowed(before, after + 3, high)


@pytest.mark.parametrize("entry", range(1, 8))
def test_a_table_with_any_entry_raised_is_rejected(entry: int) -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    entries, unit = release_table(epsilon=epsilon, delta=delta)
    assert len(entries) == 10  # the entries 1 … 8 are below 1

    def raised(noise: Noise, gap: Fraction) -> bool:
        index = min(math.ceil(gap / 2), len(entries) - 1)
        probability = Fraction(entries[index], unit)
        return noise.bernoulli(min(Fraction(1), probability * Fraction(101, 100)) if index == entry else probability)

    assert worst_case(twin(raised), neighbours(epsilon, delta), epsilon=epsilon).lower > delta


# ── twins that must fail ──────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(1)])
def test_the_printed_algorithm_is_rejected_whatever_delta_it_was_given(epsilon: Fraction) -> None:
    """Lap(1/ε) on a gap of sensitivity 2; at its worst, half a step off the threshold, δ is 1 − e^(−ε/2)."""
    threshold = round(14 / epsilon) + 0.5
    delta = Fraction(math.exp(-epsilon * threshold))  # so that the printed (1/ε)·ln(1/δ) is the threshold

    def tail(x: float) -> float:
        return 1 - math.exp(x * float(epsilon)) / 2 if x <= 0 else math.exp(-x * float(epsilon)) / 2

    def printed(noise: Noise, gap: Fraction) -> bool:
        return noise.bernoulli(Fraction(tail(threshold - float(gap))))

    pairs = [((Fraction(lead), Fraction(0)), (Fraction(lead - 1), Fraction(1))) for lead in range(3, 160)]
    worst = worst_case(twin(printed), pairs, epsilon=epsilon)
    assert worst.lower == pytest.approx(1 - math.exp(-epsilon / 2), rel=1e-9)
    assert worst.lower > 1000 * delta
    assert worst_case(real("table", epsilon, delta), pairs, epsilon=epsilon).upper <= delta * (1 + 1e-9)


def test_twins_of_the_table_and_of_the_laplace_form_are_rejected() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    entries, unit = release_table(epsilon=epsilon, delta=delta)
    threshold = laplace_threshold(epsilon=epsilon, delta=delta)

    def sensitivity_one(noise: Noise, gap: Fraction) -> bool:
        return noise.bernoulli(Fraction(entries[min(math.ceil(gap), len(entries) - 1)], unit))

    def rounded_to_nearest(noise: Noise, gap: Fraction) -> bool:
        return noise.bernoulli(Fraction(entries[min(round(gap / 2 + Fraction(1, 2)), len(entries) - 1)], unit))

    def less_noise(noise: Noise, gap: Fraction) -> bool:
        return noise.laplace_cell(2 / epsilon * Fraction(7, 10), [threshold - math.floor(gap)]) == 1

    def threshold_without_the_two(noise: Noise, gap: Fraction) -> bool:
        return noise.laplace_cell(2 / epsilon, [threshold - 2 - math.floor(gap)]) == 1

    for broken in (sensitivity_one, rounded_to_nearest, less_noise, threshold_without_the_two):
        assert worst_case(twin(broken), neighbours(epsilon, delta), epsilon=epsilon).lower > delta, broken.__name__


# ── what it returns ───────────────────────────────────────────────────────────────────────────────────────────────

def test_a_clear_leader_is_released_and_a_tie_never() -> None:
    value, event = stable_argmax([0, 0, 1000], epsilon=1, delta=1e-6)
    assert value == 2
    assert event == ApproximateDP(Fraction(1), Fraction(1, 10**6))
    assert stable_argmax([7, 7], epsilon=1, delta=1e-6).value is None
    assert stable_argmax([7, 7], epsilon=1, delta=1e-6, method="laplace").value is None


def test_the_only_candidate_is_released_without_noise() -> None:
    class Silent(Noise):
        def random_bytes(self, count: int) -> bytes:
            raise AssertionError("no noise is needed")

    assert stable_argmax([-5], epsilon=1, delta=1e-6, unsafe_noise=Silent()).value == 0


def test_seeded_noise_marks_the_event() -> None:
    assert is_seeded(stable_argmax([1, 2], epsilon=1, delta=0.1, unsafe_noise=Seeded(unsafe_seed=1)).event)


@pytest.mark.parametrize(
    "scores",
    [
        [2**200, 2**200 - 200, -(2**200)],
        np.array([2**63 + 400, 2**63], dtype=np.uint64),
        [2**63 + 400, -1],
        np.array([1e300, -1e300]),
        [Fraction(1, 3) + 200, Fraction(1, 3)],
        [1e16 + 200, 10**16 - 1],
        np.array([300.5, 0.25], dtype=np.float32),
    ],
)
def test_scores_of_any_exact_kind(scores: Any) -> None:
    assert stable_argmax(scores, epsilon=1, delta=1e-6).value == 0


def test_gap_is_not_rounded() -> None:
    """2^53 and −1 differ by 2^53 + 1, which no float holds; a gap of exactly 2 and one just above it differ too."""

    class Recorder(Noise):
        asked: Fraction

        def bernoulli(self, probability: Fraction) -> bool:
            self.asked = probability
            return True

    entries, unit = release_table(epsilon=Fraction(1), delta=Fraction(1, 100))
    recorder = Recorder()
    for scores, index in [
        ([2.0**53, 2.0**53 - 2], 1),
        ([2.0**53 + 2, 2.0**53 - 1], 2),
        ([2 + 2.0**-51, 0.0], 2),
        ([2.0, -(2.0**-1074)], 2),  # float subtraction would say 2
        ([2.0, 0.0], 1),
    ]:
        stable_argmax(scores, epsilon=1, delta=0.01, unsafe_noise=recorder)
        assert recorder.asked == Fraction(entries[index], unit)


def test_release_gap_follows_the_table() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    entries, _ = release_table(epsilon=epsilon, delta=delta)
    noise = Seeded(unsafe_seed=5)
    assert not any(release_gap(0, epsilon=epsilon, delta=delta, noise=noise) for _ in range(100))
    assert all(release_gap(2 * len(entries), epsilon=epsilon, delta=delta, noise=noise) for _ in range(100))


@pytest.mark.parametrize("method", ["table", "laplace"])
def test_ten_million_scores(method: Any) -> None:
    scores = np.zeros(10**7, dtype=np.int64)
    scores[1234567] = 1000
    chosen, work = calls(lambda: stable_argmax(scores, epsilon=1, delta=1e-6, method=method).value)
    assert chosen == 1234567
    assert work < 10**5


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("epsilon", BAD_EPSILON)
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon must be"):
        stable_argmax([1, 2], epsilon=epsilon, delta=0.1)


@pytest.mark.parametrize("delta", BAD_DELTA)
def test_bad_delta(delta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="delta must be"):
        stable_argmax([1, 2], epsilon=1, delta=delta)


def test_bad_method() -> None:
    with pytest.raises(ValueError, match="method must be"):
        stable_argmax([1, 2], epsilon=1, delta=0.1, method="gauss")  # type: ignore[arg-type]


def test_a_table_too_long_to_build_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=f"more than {MOST_ENTRIES}.*laplace"):
        stable_argmax([1, 2], epsilon=1e-8, delta=1e-12)
    assert stable_argmax([1, 2], epsilon=1e-8, delta=1e-12, method="laplace").value is None


@pytest.mark.parametrize(
    "scores", [[], [[1, 2]], "12", None, 3, [1, "x"], [1, math.nan], [math.inf, 0], [True, False], [1, None], {1: 2}]
)
def test_bad_scores(scores: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="scores must"):
        stable_argmax(scores, epsilon=1, delta=0.1)


@pytest.mark.slow
@given(
    st.lists(
        st.integers() | st.floats() | st.fractions() | st.text() | st.none() | st.booleans() | st.lists(st.integers()),
        max_size=5,
    ),
    st.floats() | st.integers() | st.floats(0, 10),
    st.floats() | st.floats(0, 1),
    st.sampled_from(["table", "laplace"]),
)
@settings(max_examples=300, deadline=None)
def test_anything_else_is_answered_or_refused_by_name(scores: Any, epsilon: Any, delta: float, method: Any) -> None:
    message = refusal(lambda: stable_argmax(scores, epsilon=epsilon, delta=delta, method=method))
    assert not message or any(name in message for name in ("scores", "epsilon", "delta"))


def test_no_score_is_echoed() -> None:
    listed: list[Any] = [[918273645, math.nan], [918273645, "x"], [[918273645]], np.array(["918273645"])]
    for scores in listed:
        message = refusal(lambda scores=scores: stable_argmax(scores, epsilon=1, delta=0.1))  # type: ignore[misc]
        assert message
        assert "918273645" not in message
