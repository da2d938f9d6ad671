"""AboveThreshold: its loss is ε and never more, on every conversation; broken copies are found out."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import Segment, Strategy, adaptive, certified, fixed, near

from reticent.audit import law
from reticent.errors import BudgetExhausted
from reticent.mechanisms.above_threshold import ENOUGH, AboveThreshold, least, segment_epsilon
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting, events
from waiting import Crowd

NOTHING = 1e-4  # above what enumeration leaves out


# ── twins: copies with one thing broken ───────────────────────────────────────────────────────────────────────────


class Quiet(AboveThreshold):
    """All noise 0.7 of what it should be."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._scale, self._value_scale = self._scale * 7 / 10, self._value_scale * 7 / 10


class Halved(AboveThreshold):
    """The noise of values as if they moved both sides of the comparison by one in all, not each by one."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._value_scale /= 2


class Uncounted(AboveThreshold):
    """Does not count its first halt and so closes one too late, like a loop "while c ≤ T"."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._left += 1


class Fresh(AboveThreshold):
    """Noise on the threshold drawn for every question, not for every segment."""

    def _shared_noise(self) -> int:
        self._drawn = -1, 0
        return super()._shared_noise()


class Kept(AboveThreshold):
    """Noise on the threshold kept from segment to segment: at δ = 0 that is no leak, see below."""

    def _halt(self) -> None:
        super()._halt()
        self._drawn = self._left, self._drawn[1]


class Interrupted(AboveThreshold):
    """Is interrupted as soon as a halt is counted."""

    def _halt(self) -> None:
        super()._halt()
        raise KeyboardInterrupt


class Unlocked(AboveThreshold):
    """Reads and writes its state without a lock."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        no_lock: Any = nullcontext()
        self._guard._lock = no_lock


# ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────────────


PINNED = fixed((-1, 0), (-1, 0), (-1, 0), (0, -1))  # three answers "below" pin the noise of the threshold
TWICE = fixed((-1, 0), (0, -1), (-1, 0), (0, -1))
ADAPTIVE = [adaptive(seed, (-2, -1, 0, 1, 3)) for seed in range(12)]


def leak(kind: type[AboveThreshold], *strategies: Strategy, halts: int = 1) -> tuple[float, float]:
    """Certified bounds on the worst δ at the claimed ε, with four questions; noise is walked to 2^−24."""

    def make(noise: Noise) -> AboveThreshold:
        return kind(0, epsilon=6, halts=halts, unsafe_noise=noise)

    return certified(make, strategies, questions=4, epsilon=6, tail_bits=24)


def test_no_conversation_loses_more_than_epsilon() -> None:
    _, upper = leak(AboveThreshold, PINNED, TWICE, *ADAPTIVE)
    assert upper < NOTHING


@pytest.mark.slow
@pytest.mark.parametrize(("twin", "strategy"), [(Quiet, PINNED), (Halved, PINNED), (Uncounted, TWICE)])
def test_twins_lose_more(twin: type[AboveThreshold], strategy: Strategy) -> None:
    lower, _ = leak(twin, strategy)
    assert lower > 0.1


@pytest.mark.slow
def test_two_segments_lose_no_more_than_epsilon_together() -> None:
    _, upper = leak(AboveThreshold, PINNED, TWICE, halts=2)
    assert upper < NOTHING


@pytest.mark.slow
def test_two_segments_of_a_twin_lose_more() -> None:
    lower, _ = leak(Halved, TWICE, halts=2)
    assert lower > 0.05


def test_keeping_the_noise_of_the_threshold_is_no_leak() -> None:
    # The threshold's noise is then paid for once and each halt for itself: ε1 + 2·halts·ε2 < halts·ε'. It is redrawn
    # so that a run is a composition of segments, which optimal composition can price.
    _, upper = leak(Kept, PINNED, TWICE, halts=2)
    assert upper < NOTHING


@pytest.mark.slow
def test_all_adaptive_strategies_of_four_questions() -> None:
    segment = Segment(lambda noise: AboveThreshold(0, epsilon=3, unsafe_noise=noise), halting=True)
    assert segment.worst_delta(near(-3, -1, 0, 1, 4), 4, epsilon=3) < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), 2])
def test_long_conversations_lose_epsilon_and_no_more(epsilon: Fraction) -> None:
    segment = Segment(lambda noise: AboveThreshold(0, epsilon=epsilon, unsafe_noise=noise), halting=True)
    losses = [
        segment.loss([((value, value + step), False)] * count + [((last, last - step), True)])
        for count in (1, 10, 1000)
        for value in (-8, 0, 8)
        for last in (-10, 0)
        for step in (-1, 1)
    ]
    assert float(epsilon) * 0.9999 < max(losses) < float(epsilon) * (1 + 1e-9)
    assert min(losses) > -float(epsilon) * (1 + 1e-9)


def test_noise_for_every_question_makes_every_answer_cost() -> None:
    def below(kind: type[AboveThreshold], value: int) -> float:
        return law(lambda noise: kind(0, epsilon=2, unsafe_noise=noise).ask(value), tail_bits=30).probability(False)

    loss = math.log(below(Fresh, 4) / below(Fresh, 5))
    assert 10 * loss > 2 * 1.5  # ten answers of ten independent draws


@pytest.mark.parametrize("kind", [AboveThreshold, Interrupted])
def test_no_segment_begins_with_the_noise_of_another(kind: type[AboveThreshold]) -> None:
    above = kind(0, epsilon=1, halts=3, unsafe_noise=Seeded(unsafe_seed=0))
    drawn = []
    for _ in range(3):
        with suppress(KeyboardInterrupt):
            while not above.ask(1):
                pass
        drawn.append(above._drawn)
    assert above.halts_left == 0
    assert [left for left, _ in drawn] == [3, 2, 1]
    with pytest.raises(BudgetExhausted):
        above.ask(1)


# ── the budget ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("delta", "halts"), [(0, 1), (0, 7), (Fraction(1, 10**6), 1), (Fraction(1, 10**6), 60)])
def test_the_event_fits_the_claim(delta: Fraction, halts: int) -> None:
    above = AboveThreshold(10, epsilon=1, delta=delta, halts=halts)
    assert accounting.fits(above.event, epsilon=1, delta=delta)


def test_composition_allows_a_larger_share_and_no_larger_one() -> None:
    delta, halts = Fraction(1, 10**6), 100
    segment = segment_epsilon(epsilon=Fraction(1), delta=delta, halts=halts)
    assert segment > Fraction(2, halts)
    larger = events.SparseVectorRun(segment + Fraction(1, 1000 * halts), halts)
    assert not accounting.fits(larger, epsilon=1, delta=delta)


def test_an_enormous_epsilon_is_not_spent() -> None:
    assert AboveThreshold(0, epsilon=1e30, halts=2).event == events.SparseVectorRun(ENOUGH, 2)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_least_finds_the_first_integer_from_any_guess(first: int, guess: int) -> None:
    assert least(lambda number: number >= first, guess=guess) == first


# ── behaviour ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_follow_the_values() -> None:
    above = AboveThreshold(1000, epsilon=1, halts=3)
    assert [above.ask(value) for value in (0, 2000, -(10**30), 10**30, 1200)] == [False, True, False, True, True]


def test_closed_before_the_value_is_looked_at() -> None:
    above = AboveThreshold(0, epsilon=1)
    assert above.ask(10**6)
    assert above.halts_left == 0
    with pytest.raises(BudgetExhausted, match="halts=1"):
        above.ask("not even a number")  # type: ignore[arg-type]


def test_frequencies_follow_the_exact_law() -> None:
    noise = Seeded(unsafe_seed=1)

    def run(noise: Noise) -> bool:
        return AboveThreshold(0, epsilon=1, unsafe_noise=noise).ask(2)

    expected, runs = law(run).probability(True), 4000
    found = sum(run(noise) for _ in range(runs)) / runs
    assert abs(found - expected) < 5 * math.sqrt(expected * (1 - expected) / runs)


def test_seeded_noise_is_marked() -> None:
    above = AboveThreshold(0, epsilon=1, unsafe_noise=Seeded(unsafe_seed=0))
    assert above.event == events.SeededRelease(events.SparseVectorRun(Fraction(1)))


class Halting(Noise):
    """Everything is far above the threshold, once all have come to ask for noise or wait for the lock."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return 0

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        self.crowd.meet()
        return len(cuts)


def halts_under_threads(kind: type[AboveThreshold]) -> int:
    crowd = Crowd(8)
    above: Any = kind(0, epsilon=1, halts=3, unsafe_noise=Halting(crowd))
    if kind is not Unlocked:
        above._guard._lock = crowd.lock()

    def ask() -> bool:
        try:
            return bool(above.ask(5))
        except BudgetExhausted:
            return False

    return sum(crowd.run(ask))


def test_threads_share_one_budget() -> None:
    assert halts_under_threads(AboveThreshold) == 3
    assert halts_under_threads(Unlocked) == 8  # all of them, at one moment


def test_copies_are_refused() -> None:
    above = AboveThreshold(0, epsilon=1)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="budget"):
            duplicate(above)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.one_of(st.floats(max_value=0), st.sampled_from([math.nan, math.inf, -math.inf, "1", None, True, 1j, [1.0]])),
)
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        AboveThreshold(0, epsilon=epsilon)


@given(st.one_of(st.floats(max_value=-1e-300), st.floats(min_value=1), st.sampled_from([math.nan, "0", None])))
def test_bad_delta(delta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="delta"):
        AboveThreshold(0, epsilon=1, delta=delta)


@given(st.one_of(st.integers(max_value=0), st.floats(), st.sampled_from(["2", None, True])))
def test_bad_halts(halts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="halts"):
        AboveThreshold(0, epsilon=1, halts=halts)


@given(st.one_of(st.floats(), st.sampled_from(["3", None, True, Fraction(7, 2), [3]])))
def test_bad_values_and_thresholds(value: Any) -> None:
    with pytest.raises(TypeError, match="threshold must be a whole number"):
        AboveThreshold(value, epsilon=1)
    above = AboveThreshold(0, epsilon=1)
    with pytest.raises(TypeError, match="value must be a whole number") as caught:
        above.ask(value)
    assert str(caught.value).endswith(f"got {type(value).__name__}")  # the type, not the value


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(-(10**60), 10**60), st.integers(-(10**60), 10**60), st.floats(1e-9, 1e9))
def test_any_whole_numbers_will_do(threshold: int, value: int, epsilon: float) -> None:
    assert AboveThreshold(threshold, epsilon=epsilon).ask(value) in (True, False)
