"""BetweenThresholds: clear answers are free, and private for rows, however many; broken copies are found out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import Pair, Segment, Strategy, adaptive, certified, fixed, near

from experiments.between_thresholds import worst_leak
from reticent.audit import law
from reticent.errors import BudgetExhausted
from reticent.mechanisms.above_threshold import LEAST_EPSILON
from reticent.mechanisms.between_thresholds import (
    BetweenThresholds,
    GapCalibration,
    Side,
    calibrate_gap,
    required_gap,
    segment_failure,
)
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting, events
from waiting import Crowd

EPSILON, DELTA = 4, Fraction(1, 10**6)
GAP = required_gap(epsilon=EPSILON, delta=DELTA)


# ── twins: copies with one thing broken ───────────────────────────────────────────────────────────────────────────


class Quiet(BetweenThresholds):
    """All noise 0.7 of what it should be."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._scale, self._value_scale = self._scale * 7 / 10, self._value_scale * 7 / 10


class Halved(BetweenThresholds):
    """Half of the noise of values."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._value_scale /= 2


class Short(BetweenThresholds):
    """A gap 30 % below the required one."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._most = self._most * 7 // 10
        self.upper = self.lower + 2 * self._most + 1


class Plus(BetweenThresholds):
    """The upper threshold moves with the lower one: upper + μ."""

    def ask(self, value: int) -> Side:
        mu = self._shared_noise()
        cuts = [self.lower + mu - value, self.upper + mu + 1 - value]
        sides: tuple[Side, Side, Side] = ("low", "between", "high")
        return sides[self._noise.laplace_cell(self._value_scale, cuts)]


class Uncounted(BetweenThresholds):
    """Does not count its first halt."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._left += 1


class Kept(BetweenThresholds):
    """μ kept from segment to segment."""

    def _halt(self) -> None:
        super()._halt()
        self._drawn = self._left, self._drawn[1]


# ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────────────


def segment(kind: type[BetweenThresholds], *, epsilon: Any = EPSILON, delta: Any = DELTA) -> Segment:
    gap = required_gap(epsilon=epsilon, delta=delta)
    return Segment(lambda noise: kind(0, gap, epsilon=epsilon, delta=delta, unsafe_noise=noise), halting="between")


def pinned(low: int, high: int, count: int) -> list[tuple[Pair, Side]]:
    """So many answers "low" and "high" to values that are one nearer to the thresholds on the neighbour: they pin μ."""
    pair: list[tuple[Pair, Side]] = [((low, low + 1), "low"), ((high, high - 1), "high")]
    return pair * count


def worst_after_pinning(kind: type[BetweenThresholds]) -> float:
    """The worst δ at the claimed ε over conversations that pin μ near its bound and then ask for a halt."""
    first = segment(kind)
    top = kind(0, GAP, epsilon=EPSILON, delta=DELTA).upper
    return max(
        first.worst_delta([(value, value + step)], 1, epsilon=EPSILON, after=pinned(low, top - low, count))
        for count, low in product((0, 1, 2, 3, 5, 20), range(top // 2 + 1))
        for value, step in product(range(-1, top + 2, 2), (-1, 1))
    )


def test_pinning_the_noise_keeps_the_claim() -> None:
    assert 0.05 * DELTA < worst_after_pinning(BetweenThresholds) <= DELTA


@pytest.mark.parametrize("twin", [Quiet, Halved, Short, Plus])
def test_pinning_finds_out_the_twins(twin: type[BetweenThresholds]) -> None:
    assert worst_after_pinning(twin) > 10 * DELTA


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "exceeded"), [(2, Fraction(1, 1000), False), (2, DELTA, True), (4, DELTA, True)]
)
def test_what_the_page_says_of_a_shorter_gap(epsilon: int, delta: Fraction, exceeded: bool) -> None:
    """For δ = 1e-6 the conversations of its table show that the gap must not be 30 % shorter; for ε = 2, 1e-3 not."""
    assert (worst_leak(epsilon, delta, shorter=True) > delta) == exceeded
    assert worst_leak(epsilon, delta, shorter=False) <= delta


@pytest.mark.slow
@pytest.mark.parametrize("delta", [Fraction(1, 20), Fraction(1, 1000)])
def test_all_adaptive_strategies_of_three_questions(delta: Fraction) -> None:
    first = segment(BetweenThresholds, epsilon=3, delta=delta)
    gap = required_gap(epsilon=3, delta=delta)
    assert first.worst_delta(near(-1, 0, gap // 2, gap, gap + 1), 3, epsilon=3) <= delta


@pytest.mark.slow
def test_many_answers_lose_no_more_than_few() -> None:
    # 200 answers "low" and 200 "high", the values of the neighbour all nearer to the thresholds.
    def loss(kind: type[BetweenThresholds]) -> float:
        return segment(kind, epsilon=1, delta=1e-6).loss(pinned(10, 49, 200))

    assert 0 < loss(BetweenThresholds) < 1
    assert loss(Plus) > 40


TWICE = fixed((-1, 0), (0, -1), (-1, 0), (0, -1))
ADAPTIVE: list[Strategy] = [adaptive(seed, (-1, 0, 2, 5)) for seed in range(2)]


def leak(kind: type[BetweenThresholds], *strategies: Strategy, halts: int) -> tuple[float, float]:
    """Certified bounds on the worst δ at the claimed ε = 8, with four questions; noise is walked to 2^−24."""
    gap = required_gap(epsilon=8, delta=0.001, halts=halts)

    def make(noise: Noise) -> BetweenThresholds:
        return kind(0, gap, epsilon=8, delta=0.001, halts=halts, unsafe_noise=noise)

    return certified(make, strategies, questions=4, epsilon=8, tail_bits=24)


@pytest.mark.slow
def test_segments_together_keep_the_claim() -> None:
    _, one = leak(BetweenThresholds, TWICE, *ADAPTIVE, halts=1)
    _, two = leak(BetweenThresholds, TWICE, halts=2)
    assert max(one, two) <= 0.001


def test_a_halt_that_is_not_counted_is_found_out() -> None:
    lower, _ = leak(Uncounted, TWICE, halts=1)
    assert lower > 0.1


def test_keeping_the_noise_is_no_leak() -> None:
    # As with AboveThreshold: μ is then paid for once, each halt for itself.
    _, upper = leak(Kept, TWICE, halts=2)
    assert upper <= 0.001


@pytest.mark.slow
def test_queries_are_not_protected() -> None:
    # With one halt left, whoever sees that it has halted knows that the last vote was a split one.
    gap = required_gap(epsilon=0.1, delta=1e-8)
    lower, upper = 10_000 - gap // 2, 10_000 + gap // 2 + 1

    def halted(votes: int) -> float:
        def run(noise: Noise) -> Side:
            return BetweenThresholds(lower, upper, epsilon=0.1, delta=1e-8, unsafe_noise=noise).ask(votes)

        return law(run, tail_bits=60).probability("between")

    assert halted(10_000) > 0.99
    assert halted(20_000) < 1e-6


# ── the gap ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.5])
def test_two_integers_off_a_run_cost_what_is_proved(rate: float) -> None:
    """All runs, near and far from zero, and the three ways to take two integers off their ends."""

    def chance(start: int, stop: int) -> float:
        return math.fsum(math.exp(-rate * abs(z)) for z in range(start, stop))

    for n in range(3, 30):
        bound = math.exp(2 * rate) * math.expm1(-rate * n) / math.expm1(-rate * (n - 2))
        ratios = [
            chance(start, start + n) / chance(start + left, start + n - 2 + left)
            for start in range(-60, 40)
            for left in (0, 1, 2)
        ]
        assert max(ratios) == pytest.approx(bound, rel=1e-9)  # attained, and never exceeded


def brute_failure(most: int, shared: float, single: float, slack: float) -> float:
    total, decay = 0.0, math.exp(-shared)
    for t in range(most + 4000):
        weight = 1 - math.exp(slack) * math.expm1(-2 * single * t) / math.expm1(-2 * single * (t + 1))
        total += max(0.0, weight) * (1 - decay) / (1 + decay) * decay ** abs(most - t)
    return total


@pytest.mark.parametrize(("epsilon", "excess"), [(Fraction(1, 20), 1.03), (Fraction(1, 2), 1.03), (2, 1 + 1e-9)])
def test_the_failure_of_a_segment_is_summed_from_above(epsilon: Fraction, excess: float) -> None:
    chosen = calibrate_gap(Fraction(epsilon), Fraction(1, 10**6), 1)
    split = chosen.shared, chosen.single, chosen.slack
    brute = brute_failure(chosen.most, *map(float, split))
    assert brute * (1 - 1e-9) <= segment_failure(chosen.most, *split) <= brute * excess
    assert segment_failure(chosen.most, *split) <= Fraction(1, 10**6) < segment_failure(chosen.most - 1, *split)


def test_the_plan_spends_what_there_is() -> None:
    for halts in (1, 5, 80):
        chosen = calibrate_gap(Fraction(1), Fraction(1, 10**6), halts)
        assert chosen.shared + 2 * chosen.single + chosen.slack == chosen.segment
        assert accounting.fits(events.SparseVectorRun(chosen.segment, halts, chosen.failure), epsilon=1, delta=1e-6)
        assert halts * segment_failure(chosen.most, chosen.shared, chosen.single, chosen.slack) <= chosen.failure


@pytest.mark.slow
def test_no_other_split_leaves_less_doubt() -> None:
    def doubt(chosen: GapCalibration) -> float:
        return chosen.gap + 2 * math.log(500) / float(chosen.single)

    best = calibrate_gap(Fraction(1), Fraction(1, 10**6), 1)
    for share in range(16, 43):
        split = Fraction(share, 64), Fraction(63 - share, 128), Fraction(1, 64)
        least = next(most for most in range(5, 100) if segment_failure(most, *split) <= Fraction(1, 10**6))
        other = best._replace(shared=split[0], single=split[1], most=least)
        assert doubt(best) <= doubt(other) + 2


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 8), st.floats(1e-12, 0.2))
def test_the_required_gap_is_below_the_printed_one_and_enough(epsilon: float, delta: float) -> None:
    gap = required_gap(epsilon=epsilon, delta=delta)
    assert gap < 12 / epsilon * (max(0.0, math.log(10 / epsilon)) + math.log(1 / delta) + 1) + 3
    assert BetweenThresholds(-gap, 0, epsilon=epsilon, delta=delta).halts_left == 1
    with pytest.raises(ValueError, match=f"at least {gap} "):
        BetweenThresholds(0, gap - 1, epsilon=epsilon, delta=delta)


def test_more_halts_need_a_wider_gap_but_composition_helps() -> None:
    gaps = [required_gap(epsilon=1, delta=1e-6, halts=halts) for halts in (1, 2, 10, 100)]
    assert gaps == sorted(gaps)
    assert gaps[3] < 60 * gaps[0]


# ── behaviour ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_follow_the_values() -> None:
    sides = BetweenThresholds(1000, 2000, epsilon=1, delta=1e-6, halts=2)
    assert [sides.ask(value) for value in (0, 3000, 1500, -(10**30), 10**30, 1400)] == [
        "low",
        "high",
        "between",
        "low",
        "high",
        "between",
    ]


def test_closed_before_the_value_is_looked_at() -> None:
    sides = BetweenThresholds(1000, 2000, epsilon=1, delta=1e-6)
    assert sides.ask(1500) == "between"
    with pytest.raises(BudgetExhausted, match="halts=1"):
        sides.ask("not even a number")  # type: ignore[arg-type]


def test_threads_share_one_budget() -> None:
    assert halts_under_threads(locked=True) == 3
    assert halts_under_threads(locked=False) == 8, "the twin: all of them, at one moment"


def halts_under_threads(*, locked: bool) -> int:
    crowd = Crowd(8)

    class Halting(Seeded):
        def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
            crowd.meet()
            return 1

    sides = BetweenThresholds(0, 1000, epsilon=1, delta=1e-6, halts=3, unsafe_noise=Halting(unsafe_seed=0))
    lock: Any = crowd.lock() if locked else nullcontext()
    sides._guard._lock = lock

    def halted() -> bool:
        try:
            return sides.ask(500) == "between"
        except BudgetExhausted:
            return False

    return sum(crowd.run(halted))


def test_beyond_its_bound_the_noise_decides_alone() -> None:
    class Far(Seeded):
        def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
            return 10**6

    for value in (-(10**9), 0, 10**9):
        assert BetweenThresholds(0, 100, epsilon=1, delta=1e-6, unsafe_noise=Far(unsafe_seed=0)).ask(value) == "between"


def test_frequencies_follow_the_exact_law() -> None:
    noise = Seeded(unsafe_seed=2)

    def run(noise: Noise) -> Side:
        return BetweenThresholds(0, 59, epsilon=1, delta=1e-6, unsafe_noise=noise).ask(-1)

    expected, runs = law(run).probability("low"), 4000
    found = sum(run(noise) == "low" for _ in range(runs)) / runs
    assert abs(found - expected) < 5 * math.sqrt(expected * (1 - expected) / runs)


def test_seeded_noise_is_marked() -> None:
    sides = BetweenThresholds(0, 59, epsilon=1, delta=1e-6, unsafe_noise=Seeded(unsafe_seed=0))
    assert sides.event == events.SeededRelease(events.SparseVectorRun(Fraction(1), 1, Fraction(1, 10**6)))


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.one_of(st.floats(max_value=0), st.sampled_from([math.nan, math.inf, -math.inf, "1", None, True])))
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        required_gap(epsilon=epsilon, delta=1e-6)


def test_an_epsilon_beyond_all_counts() -> None:
    with pytest.raises(ValueError, match="epsilon must be at least 2e-12 for halts=2"):
        required_gap(epsilon=LEAST_EPSILON, delta=1e-6, halts=2)


@given(st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.sampled_from([math.nan, "0", None])))
def test_bad_delta(delta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="delta"):
        required_gap(epsilon=1, delta=delta)


@given(st.one_of(st.integers(max_value=0), st.floats(), st.sampled_from(["2", None, True])))
def test_bad_halts(halts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="halts"):
        required_gap(epsilon=1, delta=1e-6, halts=halts)


@given(st.one_of(st.floats(), st.sampled_from(["3", None, True, Fraction(7, 2), [3]])))
def test_bad_values_and_thresholds(value: Any) -> None:
    for lower, upper, name in ((value, 9, "lower"), (9, value, "upper")):
        with pytest.raises(TypeError, match=f"{name} must be a whole number"):
            BetweenThresholds(lower, upper, epsilon=1, delta=1e-6)
    sides = BetweenThresholds(0, 1000, epsilon=1, delta=1e-6)
    with pytest.raises(TypeError, match="value must be a whole number") as caught:
        sides.ask(value)
    assert str(caught.value).endswith(f"got {type(value).__name__}")  # the type, not the value


@pytest.mark.slow
@pytest.mark.parametrize("delta", [Fraction(1, 10**400), Fraction(99, 100)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), 1, Fraction(10**30)])
def test_extreme_budgets(epsilon: Fraction, delta: Fraction) -> None:
    gap = required_gap(epsilon=epsilon, delta=delta)
    assert BetweenThresholds(0, gap, epsilon=epsilon, delta=delta).ask(100 * gap + 100) == "high"
