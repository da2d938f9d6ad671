"""Votes: exact laws of bits, winners and whole adaptive runs against their events, broken twins, caps, bad input."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal

from counting import calls
from reticent.audit import Divergence, Law, exact, law
from reticent.errors import BudgetExhausted
from reticent.mechanisms.votes import ConfidentGNMax, gnmax, noisy_majority
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting
from reticent.privacy.events import Composed, DiscreteGaussian, Event, GaussianBit, Repeated, is_seeded
from waiting import Crowd

TAIL = 1e-9  # more than the mass of the noise that is not walked
EPSILONS = [Fraction(1, 20), Fraction(1, 2), Fraction(1)]
Mechanism = Callable[[Noise, Any], Any]


def divergences(mechanism: Mechanism, pairs: Iterable[tuple[Any, Any]]) -> list[Divergence]:
    """How well the exact laws on each pair can be told apart; noise is walked up to a mass of 2^-32."""

    def law_on(data: Any) -> Law:
        return law(lambda noise: mechanism(noise, data), tail_bits=32)

    return [exact(law_on(first), law_on(second)) for first, second in pairs]


def keeps(mechanism: Mechanism, pairs: list[tuple[Any, Any]], event: Event) -> bool:
    """Whether no pair is told apart better than the event's price allows, at any of the ε."""
    found = divergences(mechanism, pairs)
    prices = {epsilon: accounting.delta(event, epsilon=epsilon) for epsilon in EPSILONS}
    return all(pair.delta(epsilon)[1] <= price + TAIL for epsilon, price in prices.items() for pair in found)


def breaks(mechanism: Mechanism, pairs: list[tuple[Any, Any]], event: Event) -> bool:
    """Whether some pair is told apart better than the event's price allows, at some of the ε."""
    found = divergences(mechanism, pairs)
    prices = {epsilon: accounting.delta(event, epsilon=epsilon) for epsilon in EPSILONS}
    return any(pair.delta(epsilon)[0] > price + TAIL for epsilon, price in prices.items() for pair in found)


# ── noisy majority ────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("voters", [1, 4, 7])
@pytest.mark.parametrize("sigma", [Fraction(3, 2), Fraction(3)])
def test_a_noisy_majority_costs_no_more_than_its_event(voters: int, sigma: Fraction) -> None:
    def real(noise: Noise, votes: int) -> int:
        return noisy_majority(votes, voters=voters, sigma=sigma, unsafe_noise=noise).value

    def less_noise(noise: Noise, votes: int) -> int:
        return noise.gaussian_cell(sigma * Fraction(7, 10), [-(-voters // 2) - votes])

    event = noisy_majority(0, voters=voters, sigma=sigma).event
    assert event == GaussianBit(sigma, voters)
    pairs = [(votes, votes + 1) for votes in range(voters)]
    assert keeps(real, pairs, event)
    assert breaks(less_noise, pairs, event)


def test_many_questions_have_independent_noise() -> None:
    sigma = Fraction(2)

    def real(noise: Noise, votes: tuple[int, ...]) -> Any:
        return tuple(noisy_majority(votes, voters=3, sigma=sigma, unsafe_noise=noise).value.tolist())

    def shared(noise: Noise, votes: tuple[int, ...]) -> Any:
        """One draw for all questions: the answers together bracket it."""
        z = noise.discrete_gaussian(sigma)
        return tuple(int(count + z >= 2) for count in votes)

    event = noisy_majority([1, 2], voters=3, sigma=sigma).event
    assert event == Repeated(GaussianBit(sigma, 3), 2)
    assert keeps(real, [((1, 2), (2, 1)), ((1, 1), (2, 2)), ((0, 3), (1, 2))], event)
    spread = [(tuple(range(4)), (0, 0, 2, 2))]
    assert breaks(shared, spread, Repeated(GaussianBit(sigma, 3), 4))


def test_majority_of_many() -> None:
    value, event = noisy_majority(np.array([0, 1000, 499, 501]), voters=1000, sigma=0.1)
    assert value.tolist() == [0, 1, 0, 1]
    assert value.dtype == np.int64
    assert event == Repeated(GaussianBit(Fraction(1, 10), 1000), 4)
    assert noisy_majority(2, voters=3, sigma=0.01).value == 1  # reaches 3/2
    assert noisy_majority(1, voters=3, sigma=0.01).value == 0
    assert noisy_majority(1, voters=2, sigma=0.01).value == 1  # exactly half reaches half
    assert noisy_majority([1], voters=2, sigma=0.01).value.tolist() == [1]
    assert is_seeded(noisy_majority(1, voters=2, sigma=1, unsafe_noise=Seeded(unsafe_seed=1)).event)


def test_scalar_and_array_have_one_law() -> None:
    for votes in range(6):
        one = law(lambda noise, v=votes: noisy_majority(v, voters=5, sigma=2, unsafe_noise=noise).value)  # type: ignore[misc]
        many = law(lambda noise, v=votes: int(noisy_majority([v], voters=5, sigma=2, unsafe_noise=noise).value[0]))  # type: ignore[misc]
        assert exact(one, many).delta(0)[1] < 1e-20


def test_a_million_questions() -> None:
    votes = np.random.default_rng(0).integers(1001, size=10**6)
    answers, work = calls(lambda: noisy_majority(votes, voters=1000, sigma=40).value)
    assert work < 10**5
    assert np.mean(answers == (votes >= 500)) > 0.9


# ── GNMax ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_gnmax_costs_no_more_than_its_event_and_its_twins_do() -> None:
    sigma = Fraction(3, 2)

    def real(noise: Noise, histogram: tuple[int, ...]) -> int:
        answer: int = gnmax(histogram, sigma=sigma, unsafe_noise=noise).value
        return answer

    def less_noise(noise: Noise, histogram: tuple[int, ...]) -> int:
        return int(np.argmax(np.array(histogram) + noise.discrete_gaussian(sigma * Fraction(7, 10), len(histogram))))

    event = gnmax([1, 2], sigma=sigma).event
    assert event == DiscreteGaussian(sigma, squared_sensitivity=2)
    pairs = [((n, 5 - n), (n + 1, 4 - n)) for n in range(5)]
    assert keeps(real, pairs, event)
    assert breaks(less_noise, pairs, event)
    assert breaks(real, pairs, DiscreteGaussian(sigma, squared_sensitivity=1))  # the vote taken for one count


@pytest.mark.slow
def test_gnmax_with_three_classes() -> None:
    sigma = Fraction(1)

    def real(noise: Noise, histogram: tuple[int, ...]) -> int:
        answer: int = gnmax(histogram, sigma=sigma, unsafe_noise=noise).value
        return answer

    pairs = [((1, 2, 0), (2, 1, 0)), ((1, 1, 1), (1, 0, 2))]
    assert keeps(real, pairs, DiscreteGaussian(sigma, squared_sensitivity=2))


def test_winners() -> None:
    value, event = gnmax([[1000, 0, 0], [0, 0, 1000]], sigma=2, voters=1000)
    assert value.tolist() == [0, 2]
    assert event == Repeated(DiscreteGaussian(Fraction(2), squared_sensitivity=2), 2)
    assert gnmax([5, 5, 5], sigma=0.01).value == 0  # the first of equals
    assert type(gnmax([5], sigma=1).value) is int
    winners, work = calls(lambda: gnmax(np.tile([10, 900, 90], (10**5, 1)), sigma=40).value)
    assert work < 10**4
    assert np.all(winners == 1)


# ── Confident-GNMax ───────────────────────────────────────────────────────────────────────────────────────────────

Script = Callable[[tuple[int | None, ...]], tuple[int, ...]]  # the next histogram, given the answers so far


def transcript(ask: Callable[[tuple[int, ...]], int | None], script: Script, rounds: int) -> tuple[Any, ...]:
    """What an adaptive analyst sees."""
    seen: tuple[Any, ...] = ()
    for _ in range(rounds):
        try:
            seen += (ask(script(seen)),)
        except BudgetExhausted:
            return (*seen, "refused")
    return seen


def real_run(queries: int, answers: int, sigma: Fraction, threshold: int = 4) -> Mechanism:
    def run(noise: Noise, script: Script) -> Any:
        mechanism = ConfidentGNMax(
            threshold=threshold, sigma_threshold=sigma, sigma_answer=sigma, queries=queries, answers=answers,
            unsafe_noise=noise,
        )  # fmt: skip
        return transcript(mechanism.ask, script, queries + 1)

    return run


def steady(*histogram: int) -> Script:
    return lambda seen: histogram


@pytest.mark.slow
def test_a_confident_run_costs_no_more_than_its_event() -> None:
    sigma = Fraction(1)
    mechanism = ConfidentGNMax(threshold=4, sigma_threshold=sigma, sigma_answer=sigma, queries=3, answers=1)
    assert mechanism.event == Composed(
        (Repeated(DiscreteGaussian(sigma), 3), Repeated(DiscreteGaussian(sigma, squared_sensitivity=2), 1))
    )

    def adaptive(shift: int) -> Script:
        """Asks about close votes until one test fails, then about clear ones; one teacher's vote differs."""
        return lambda seen: (3 + shift, 3 - shift) if None not in seen else (5 + shift, 1 - shift)

    pairs: list[tuple[Any, Any]] = [
        (steady(4, 2), steady(3, 3)),
        (steady(4, 4), steady(3, 5)),
        (adaptive(0), adaptive(1)),
        (lambda seen: (4, 2) if len(seen) % 2 else (2, 4), lambda seen: (3, 3)),
    ]
    assert keeps(real_run(3, 1, sigma), pairs, mechanism.event)


@pytest.mark.slow
def test_runs_that_do_not_count_tests_or_answers_are_rejected() -> None:
    sigma = Fraction(3, 2)
    only_answers = Repeated(DiscreteGaussian(sigma, squared_sensitivity=2), 1)
    threshold, pairs = 10, [(steady(10, 0), steady(9, 1))]  # close to the threshold: the tests tell, mostly no answers
    assert breaks(real_run(8, 1, sigma, threshold), pairs, only_answers)

    def unlimited(noise: Noise, script: Script) -> Any:
        """Answers every query, though only one answer was announced; each answer has the law of a real one."""
        one = law(lambda inner: gnmax(script(()), sigma=1, unsafe_noise=inner).value, tail_bits=32)
        return tuple(noise.bernoulli(Fraction(one.probability(1))) for _ in range(3))

    wide, narrow = DiscreteGaussian(Fraction(20)), DiscreteGaussian(Fraction(1), squared_sensitivity=2)
    announced = Composed((Repeated(wide, 3), Repeated(narrow, 1)))
    assert breaks(unlimited, [(steady(4, 3), steady(3, 4))], announced)

    def less_noise(noise: Noise, script: Script) -> Any:
        seen: tuple[Any, ...] = ()
        for _ in range(8):
            seen += (noise.gaussian_cell(sigma * Fraction(7, 10), [threshold - max(script(seen))]),)
        return seen

    assert breaks(less_noise, pairs, Repeated(DiscreteGaussian(sigma), 8))


def test_both_caps_are_kept_before_the_votes_are_seen() -> None:
    class Untouchable:
        def __array__(self, *_: Any) -> Any:
            raise AssertionError("the votes were looked at")

        def __len__(self) -> int:
            raise AssertionError("the votes were looked at")

    secret: Any = Untouchable()
    sure = ConfidentGNMax(threshold=0, sigma_threshold=1, sigma_answer=1, queries=5, answers=2)
    assert [sure.ask([100, 0]), sure.ask([0, 100])] == [0, 1]
    with pytest.raises(BudgetExhausted, match="answers"):
        sure.ask(secret)
    assert (sure.queries_left, sure.answers_left) == (3, 0)
    unsure = ConfidentGNMax(threshold=1000, sigma_threshold=1, sigma_answer=1, queries=2, answers=2)
    assert [unsure.ask([100, 0]), unsure.ask([0, 100])] == [None, None]
    with pytest.raises(BudgetExhausted, match="queries"):
        unsure.ask(secret)
    assert (unsure.queries_left, unsure.answers_left) == (0, 2)


def test_a_malformed_histogram_costs_nothing() -> None:
    mechanism = ConfidentGNMax(threshold=0, sigma_threshold=1, sigma_answer=1, queries=1, answers=1, voters=10)
    for histogram in ([1.5], [], [[5, 5], [5, 5]], [-1, 11], [5, 4], "x"):
        with pytest.raises((ValueError, TypeError), match="histogram must"):
            mechanism.ask(histogram)
    assert mechanism.queries_left == 1
    assert mechanism.ask([10, 0]) in (0, 1)
    assert is_seeded(
        ConfidentGNMax(
            threshold=1, sigma_threshold=1, sigma_answer=1, queries=1, answers=1, unsafe_noise=Seeded(unsafe_seed=1)
        ).event
    )


def answered_under_threads(*, locked: bool) -> int:
    crowd = Crowd(8)

    class Confident(Seeded):
        """Every class is far ahead, once all have come to ask for noise or wait for the lock."""

        def gaussian_cell(self, sigma: Fraction, cuts: Sequence[int]) -> int:
            crowd.meet()
            return len(cuts)

    caps: dict[str, Any] = {"threshold": 0, "sigma_threshold": 1, "sigma_answer": 1, "queries": 8, "answers": 3}
    mechanism = ConfidentGNMax(**caps, unsafe_noise=Confident(unsafe_seed=0))
    lock: Any = crowd.lock() if locked else nullcontext()
    mechanism._guard._lock = lock

    def answered() -> bool:
        try:
            return mechanism.ask([100, 0]) == 0
        except BudgetExhausted:
            return False

    return sum(crowd.run(answered))


def test_threads_share_the_caps() -> None:
    assert answered_under_threads(locked=True) == 3
    assert answered_under_threads(locked=False) == 8, "the twin: all of them, at one moment"


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_SIGMA: list[Any] = [0, -1, math.nan, math.inf, None, "1", True]


@pytest.mark.parametrize("bad", BAD_SIGMA)
def test_bad_sigma(bad: Any) -> None:
    assert "sigma must be" in refusal(lambda: noisy_majority(1, voters=2, sigma=bad))
    assert "sigma must be" in refusal(lambda: gnmax([1, 2], sigma=bad))
    caps: dict[str, Any] = {"threshold": 1, "queries": 1, "answers": 1}
    assert "sigma_threshold must be" in refusal(lambda: ConfidentGNMax(sigma_threshold=bad, sigma_answer=1, **caps))
    assert "sigma_answer must be" in refusal(lambda: ConfidentGNMax(sigma_threshold=1, sigma_answer=bad, **caps))


@pytest.mark.parametrize("bad", [0, -1, 1.5, None, "1", True, 2**63])
def test_bad_voters(bad: Any) -> None:
    assert "voters must be" in refusal(lambda: noisy_majority(0, voters=bad, sigma=1))


@pytest.mark.parametrize(
    "bad", [-1, 3, 1.5, None, "1", True, 2**70, [], [-1], [3], [1.5], [True], [[1]], ["1"], [2**70], {1: 1}]
)
def test_bad_votes(bad: Any) -> None:
    assert "votes must" in refusal(lambda: noisy_majority(bad, voters=2, sigma=1))


@pytest.mark.parametrize("bad", [3, -1, None, "12", [], [[]], [-1, 2], [1.5], [True], [[[1]]], [2**70], [[1], [1, 2]]])
def test_bad_histograms(bad: Any) -> None:
    assert "histograms must" in refusal(lambda: gnmax(bad, sigma=1))


def test_histograms_that_do_not_add_up() -> None:
    assert refusal(lambda: gnmax([[3, 1], [2, 3]], sigma=1, voters=4)) == "histograms must add up to voters=4"
    assert "voters must be" in refusal(lambda: gnmax([3, 1], sigma=1, voters=4.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "bad"),
    [("threshold", math.nan), ("threshold", None), ("queries", 0), ("queries", 1.5), ("answers", 0), ("answers", 9)],
)
def test_bad_plan(name: str, bad: Any) -> None:
    plan: dict[str, Any] = {"threshold": 1, "sigma_threshold": 1, "sigma_answer": 1, "queries": 5, "answers": 2}
    assert f"{name} must be" in refusal(lambda: ConfidentGNMax(**plan | {name: bad}))


NUMBERS = st.integers() | st.floats() | st.none() | st.text()


@pytest.mark.slow
@given(NUMBERS | st.lists(NUMBERS | st.lists(NUMBERS, max_size=2), max_size=3), st.floats(), st.integers(-1, 10**30))
@settings(max_examples=300, deadline=None)
def test_anything_else_is_answered_or_refused_by_name(votes: Any, sigma: float, voters: int) -> None:
    for call in (
        lambda: noisy_majority(votes, voters=voters, sigma=sigma),
        lambda: gnmax(votes, sigma=sigma),
        lambda: gnmax(votes, sigma=sigma, voters=voters),
    ):
        message = refusal(call)
        assert not message or any(name in message for name in ("votes", "histograms", "sigma", "voters"))


def test_no_vote_is_echoed() -> None:
    for votes in ([918273645], [918273645.5], ["918273645"], [[918273645]]):
        message = refusal(lambda votes=votes: noisy_majority(votes, voters=10, sigma=1))  # type: ignore[misc]
        assert message
        assert "918273645" not in message


def test_a_copy_would_spend_the_budget_again() -> None:
    teachers = ConfidentGNMax(threshold=5, sigma_threshold=1, sigma_answer=1, queries=1, answers=1)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="ConfidentGNMax cannot be copied or pickled"):
            duplicate(teachers)
    with pytest.raises(AttributeError):
        teachers.queries_left = 9  # type: ignore[misc]


@pytest.mark.parametrize("voters", [0, -1, 2**63, "9", 9.0])
def test_voters_are_checked_before_any_vote(voters: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="voters"):
        ConfidentGNMax(threshold=5, sigma_threshold=1, sigma_answer=1, queries=1, answers=1, voters=voters)
    with pytest.raises((TypeError, ValueError), match="voters"):
        gnmax([3, 6], sigma=1, voters=voters)
