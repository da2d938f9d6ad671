"""StableMajority: exact majorities for stable votes, at a cost that does not grow with their number."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import Segment, Strategy, adaptive, certified, fixed

from reticent.audit import law
from reticent.errors import BudgetExhausted
from reticent.mechanisms.above_threshold import split_segment
from reticent.mechanisms.sparse_vector import StableMajority, discrete_difference_tail, least_width, stability
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting, events

EPSILON, HALTS = 10, 2
TIGHT, WIDE = Fraction(75, 10**4), Fraction(3, 100)  # just above the δ of width 3, and just below that of width 2
VOTERS = 41  # a vote of 20 and its neighbour of 21 have different majorities


# ── twins: copies with one thing broken ───────────────────────────────────────────────────────────────────────────


class Narrow(StableMajority):
    """Half of the width."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._screen.threshold = -(self.width // 2)


class OneSegment(StableMajority):
    """The width of a run with one halt: the failures of the other segments are forgotten."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        inner = self.event.event if isinstance(self.event, events.SeededRelease) else self.event
        assert isinstance(inner, events.SparseVectorRun)
        self._screen.threshold = -least_width(segment=inner.epsilon, failure=inner.delta)


class Quiet(StableMajority):
    """All noise 0.7 of what it should be, the width computed for it."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._screen._scale *= Fraction(7, 10)
        self._screen._value_scale *= Fraction(7, 10)
        self._screen.threshold = -(self.width * 7 // 10)


class Halved(StableMajority):
    """Half of the noise of votes, the width as it should be."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._screen._value_scale /= 2


class Uncounted(StableMajority):
    """Does not count its first halt."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._screen._left += 1


class Poll:
    """Votes of a fixed number of voters, for the audit's conversations."""

    def __init__(self, votes: StableMajority) -> None:
        self.votes = votes

    def ask(self, value: int) -> int | None:
        return self.votes.ask(value, VOTERS)


# ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────────────


TIES: Strategy = fixed((20, 21), (20, 21), (20, 21))
STABLE_THEN_TIE: Strategy = fixed((26, 27), (20, 21), (20, 21))
HALTING: Strategy = fixed((24, 25), (26, 25), (24, 25))
ADAPTIVE = [adaptive(seed, (15, 20, 21, 26)) for seed in range(3)]


def leak(kind: type[StableMajority], delta: Fraction, *strategies: Strategy) -> tuple[float, float]:
    """Certified bounds on the worst δ at the claimed ε, with three votes and two halts; noise is walked to 2^−24."""

    def make(noise: Noise) -> Poll:
        return Poll(kind(epsilon=EPSILON, delta=delta, halts=HALTS, unsafe_noise=noise))

    return certified(make, strategies, questions=3, epsilon=EPSILON, tail_bits=24)


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "tightness"), [(TIGHT, 0.95), (WIDE, 0.24)])
def test_short_conversations_keep_the_claim(delta: Fraction, tightness: float) -> None:
    lower, upper = leak(StableMajority, delta, TIES, STABLE_THEN_TIE, HALTING, *ADAPTIVE)
    assert tightness * delta < lower <= upper <= delta


@pytest.mark.slow
@pytest.mark.parametrize(("twin", "delta"), [(Narrow, WIDE), (OneSegment, WIDE), (Uncounted, TIGHT)])
def test_twins_answer_ties_too_often(twin: type[StableMajority], delta: Fraction) -> None:
    lower, _ = leak(twin, delta, TIES)
    assert lower > delta


def segment(kind: type[StableMajority], epsilon: int, delta: float) -> Segment:
    return Segment(lambda noise: Poll(kind(epsilon=epsilon, delta=delta, halts=1, unsafe_noise=noise)), halting=None)


def worst_after_stable_votes(kind: type[StableMajority], epsilon: int, delta: float) -> float:
    """The worst δ of conversations that probe the noise of the screen with many votes before they ask a split one."""
    first = segment(kind, epsilon, delta)
    worst = 0.0
    for count, margin in product((0, 1, 3, 30, 3000), range(1, 12)):
        for step in (-1, 1):
            probes = [((20 + margin, 20 + margin + step), 1)] * count
            questions = [(20, 21), (21, 20), (24, 25), (25, 24)]
            worst = max(worst, first.worst_delta(questions, 2, epsilon=epsilon, after=probes))
    return worst


def test_any_number_of_votes_keeps_the_claim() -> None:
    assert worst_after_stable_votes(StableMajority, 3, 0.05) <= 0.05


@pytest.mark.parametrize("twin", [Narrow, Quiet, Halved])
def test_twins_after_many_votes(twin: type[StableMajority]) -> None:
    assert worst_after_stable_votes(twin, 3, 0.001) > 0.001


@pytest.mark.slow
def test_a_split_vote_passes_no_more_often_after_many_votes() -> None:
    # The step of the proof that spares the union over all votes.
    first = segment(StableMajority, 2, 0.01)
    width = StableMajority(epsilon=2, delta=0.01, halts=1).width
    limit = float(discrete_difference_tail(width + 1, *split_segment(Fraction(2))))
    for count, margin in product((0, 1, 10, 100, 10_000), range(1, 20)):
        answered = first.weights([*[(20 + margin, 1)] * count, (20, 0)]).sum()
        assert answered <= limit * (1 + 1e-9)


# ── the distance to instability ───────────────────────────────────────────────────────────────────────────────────


def histograms(voters: int, classes: int) -> Iterator[tuple[int, ...]]:
    return (counts for counts in product(range(voters + 1), repeat=classes) if sum(counts) == voters)


def winner(counts: tuple[int, ...]) -> int:
    return max(range(len(counts)), key=lambda j: (counts[j], j))


@pytest.mark.parametrize(("voters", "classes"), [(1, 2), (6, 2), (7, 2), (5, 3), (6, 3), (4, 4)])
def test_the_distance_is_that_of_the_graph_of_votes(voters: int, classes: int) -> None:
    every = list(histograms(voters, classes))
    for counts in every:
        others = [other for other in every if winner(other) != winner(counts)]
        moves = [sum(abs(a - b) for a, b in zip(counts, other, strict=True)) // 2 for other in others]
        assert stability(counts) == (winner(counts), min(moves) - 1)


def test_two_classes_are_a_majority_vote() -> None:
    for voters in (6, 7):
        for votes in range(voters + 1):
            outcome, distance = stability([voters - votes, votes])
            assert outcome == (2 * votes >= voters)
            printed = max(0, math.ceil(abs(2 * votes - voters) / 2) - 1)
            assert distance - printed == (voters % 2 == 0 and 2 * votes > voters)


# ── the width ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("segment_epsilon", [Fraction(1), Fraction(4)])
def test_the_tail_is_that_of_the_two_noises(segment_epsilon: Fraction) -> None:
    shared, single = split_segment(segment_epsilon)

    def run(noise: Noise) -> int:
        return int(noise.discrete_laplace(1 / single)) - int(noise.discrete_laplace(1 / shared))

    difference = law(run, tail_bits=40)
    for k in (1, 2, 5, 11):
        exact = sum(difference.probability(z) for z in difference.low if isinstance(z, int) and z >= k)
        assert float(discrete_difference_tail(k, shared, single)) == pytest.approx(exact, abs=1e-10)
        assert float(discrete_difference_tail(k, shared, single)) > exact - 1e-15


@settings(deadline=None, max_examples=30)
@given(st.fractions(Fraction(1, 10**6), 20), st.fractions(Fraction(1, 10**30), Fraction(1, 2)))
def test_the_width_is_the_least(segment_epsilon: Fraction, failure: Fraction) -> None:
    shared, single = split_segment(segment_epsilon)
    width = least_width(segment=segment_epsilon, failure=failure)
    assert discrete_difference_tail(width + 1, shared, single) <= failure
    assert width == 0 or discrete_difference_tail(width, shared, single) > failure


def test_the_width_is_below_the_printed_one() -> None:
    delta, votes, halts = 1e-6, 2000, 50
    scale = math.sqrt(2 * halts * (1 + math.log(2 / delta))) + math.sqrt(2 * halts * math.log(2 / delta))
    printed = 3 * scale * math.log(2 * (votes + halts) / delta)
    assert StableMajority(epsilon=1, delta=delta, halts=halts).width < printed / 2


@pytest.mark.parametrize("halts", [1, 3, 60])
def test_the_event_fits_the_claim(halts: int) -> None:
    votes = StableMajority(epsilon=1, delta=1e-6, halts=halts)
    assert accounting.fits(votes.event, epsilon=1, delta=1e-6)
    assert isinstance(votes.event, events.SparseVectorRun)
    assert halts * discrete_difference_tail(votes.width + 1, *split_segment(votes.event.epsilon)) <= votes.event.delta


# ── behaviour ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stable_votes_are_answered_exactly_and_for_free() -> None:
    votes = StableMajority(epsilon=1, delta=1e-6, halts=1)
    assert [votes.ask(clear, 10_000) for clear in (9000, 900) * 100] == [1, 0] * 100
    assert votes.ask_counts(np.array([10, 4000, 30, 20])) == 1
    assert votes.halts_left == 1


def test_closed_before_a_vote_is_looked_at() -> None:
    votes = StableMajority(epsilon=1, delta=1e-6, halts=2)
    assert votes.ask(500, 1000) is None
    assert votes.ask_counts([10, 10, 10]) is None
    assert votes.halts_left == 0
    anything: Any = object()
    with pytest.raises(BudgetExhausted, match="halts=2"):
        votes.ask(anything, anything)
    with pytest.raises(BudgetExhausted, match="halts=2"):
        votes.ask_counts(anything)


def test_seeded_noise_is_marked() -> None:
    votes = StableMajority(epsilon=1, delta=0.01, halts=1, unsafe_noise=Seeded(unsafe_seed=0))
    assert votes.event == events.SeededRelease(events.SparseVectorRun(Fraction(1), 1, Fraction(1, 100)))


def test_copies_are_refused() -> None:
    votes = StableMajority(epsilon=1, delta=1e-6, halts=1)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="budget"):
            duplicate(votes)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.one_of(st.floats(max_value=0), st.sampled_from([math.nan, math.inf, -math.inf, "1", None, True])))
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        StableMajority(epsilon=epsilon, delta=1e-6, halts=1)


@given(st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.sampled_from([math.nan, "0", None])))
def test_bad_delta(delta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="delta"):
        StableMajority(epsilon=1, delta=delta, halts=1)


@given(st.one_of(st.integers(max_value=0), st.floats(), st.sampled_from(["2", None, True])))
def test_bad_halts(halts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="halts"):
        StableMajority(epsilon=1, delta=1e-6, halts=halts)


@pytest.mark.parametrize(
    ("votes", "voters", "message"),
    [
        (-77, 100, "votes must be between 0 and voters=100$"),
        (177, 100, "votes must be between 0 and voters=100$"),
        (7.0, 100, "votes must be a whole number, got float"),
        (0, 0, "voters must be at least 1"),
        (1, 2.5, "voters must be a whole number"),
    ],
)
def test_bad_votes(votes: Any, voters: Any, message: str) -> None:
    poll = StableMajority(epsilon=1, delta=1e-6, halts=1)
    with pytest.raises((ValueError, TypeError), match=message):
        poll.ask(votes, voters)
    assert poll.halts_left == 1


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([], "at least two classes"),
        ([500], "at least two classes, got 1$"),
        ([5, -77], "counts must not be negative$"),
        ([5.5, 2], "whole number, got float"),
        (["5", 2], "whole number, got str"),
        (np.array([1.5, 2.0]), "whole number, got float"),
        (np.array([[1, 2], [3, 4]]), "whole number, got ndarray"),
        (np.array(7), "counts must be a sequence of whole numbers"),
        (7, "counts must be a sequence of whole numbers"),
        (None, "counts must be a sequence of whole numbers"),
    ],
)
def test_bad_counts(counts: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        StableMajority(epsilon=1, delta=1e-6, halts=1).ask_counts(counts)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(0, 10**40), min_size=2, max_size=6), st.floats(1e-6, 1e6))
def test_any_counts_will_do(counts: list[int], epsilon: float) -> None:
    answer = StableMajority(epsilon=epsilon, delta=1e-6, halts=1).ask_counts(counts)
    assert answer in (None, winner(tuple(counts)))


def test_an_epsilon_too_small_for_any_width_is_refused() -> None:
    with pytest.raises(ValueError, match="epsilon must be at least 2e-12 for halts=2"):
        StableMajority(epsilon=1e-300, delta=1e-6, halts=2)
