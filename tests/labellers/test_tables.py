from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import iv, mp

from reticent.audit import exact, law
from reticent.labellers import Greedy, Poll, VoteTable, greedy_table, poll_table
from reticent.labellers.table import ONE
from reticent.noise import Noise, Seeded
from reticent.privacy import delta, epsilon
from reticent.privacy.events import RenyiDP, Repeated

BUDGET: dict[str, Any] = {"epsilon": 2, "delta": 0.01}


def true_divergence(table: VoteTable, order: Fraction) -> Any:
    """The largest divergence between neighbouring entries, with forty digits."""
    mp.dps = 60
    alpha, worst = mp.mpf(order.numerator) / order.denominator, mp.mpf(0)
    for pair in pairwise(table.entries.tolist()):
        for first, second in (pair, pair[::-1]):
            p, q = (mp.mpf(entry) / ONE for entry in (first, second))
            worst = max(worst, mp.log(q**alpha * p ** (1 - alpha) + (1 - q) ** alpha * (1 - p) ** (1 - alpha)))
    return worst / (alpha - 1)


@given(st.lists(st.integers(1 << 45, ONE - (1 << 45)), min_size=2, max_size=5), st.fractions(Fraction(11, 10), 40, max_denominator=10))
def test_divergence_is_a_tight_bound(entries: list[int], order: Fraction) -> None:
    table = VoteTable(np.array(entries))
    truth, bound = true_divergence(table, order), table.divergence(order)
    assert bound >= truth
    widest = max(abs(first - second) for first, second in pairwise(entries)) / ONE
    assert float(bound) <= float(truth) * (1 + 1e-6) + 1e-12 * float(order) * widest + 1e-200


@given(st.integers(1, 200), st.sampled_from([2, 8.5, 22]), st.sampled_from([1e-6, 1e-3, 0.1]))
@settings(max_examples=30)
def test_greedy_is_certified_and_as_far_as_it_goes(teachers: int, order: float, divergence: float) -> None:
    table = greedy_table(teachers, order=order, divergence=divergence)
    assert float(table.divergence(order)) <= divergence
    assert true_divergence(table, Fraction(str(order))) <= divergence
    assert bool((table.entries + table.entries[::-1] == ONE).all())
    assert bool((np.diff(table.entries) >= 0).all())
    for place, (first, second) in enumerate(pairwise(table.entries.tolist())):
        if place >= (teachers + 1) // 2 and second < ONE - 1:  # a little further, and it would not fit
            step = max(1, (second - first) // 10**6)
            beyond = VoteTable(np.array([first, min(second + step, ONE - 1)]))
            assert float(beyond.divergence(order)) > divergence * (1 - 1e-5)


def test_no_table_within_the_divergence_answers_better() -> None:
    order, divergence = 8, 0.01
    best = greedy_table(40, order=order, divergence=divergence).probabilities
    for poll, flip in ((3, 0.1), (5, 0.3), (7, 0.5)):
        table = poll_table(40, poll=poll, flip=flip)
        scale = float(table.divergence(order))
        equal = greedy_table(40, order=order, divergence=scale).probabilities
        assert bool((equal[20:] >= table.probabilities[20:] - 1e-9).all())
    assert best[40] > 0.9


def test_a_table_floored_afterwards_is_rejected() -> None:
    """A twin: the greedy recursion in floats, rounded down to few bits at the end."""
    real = greedy_table(60, order=8, divergence=0.05)
    floored = VoteTable((real.entries >> 56) << 56)
    assert float(real.divergence(8)) <= 0.05
    with pytest.raises(ValueError, match="without bound"):
        floored.divergence(8)


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────

Ask = Callable[[Noise, Sequence[int]], tuple[int, ...]]


def worst_delta(run: Ask, starts: Iterable[int], rounds: int, at: float) -> float:
    """The worst δ over all sequences of neighbouring votes v, v + 1 with v out of `starts`."""
    worst = 0.0
    for start in starts:
        for sides in range(1 << rounds):
            first = [start + (sides >> i & 1) for i in range(rounds)]
            second = [2 * start + 1 - value for value in first]
            laws = (law(lambda noise, votes=votes: run(noise, votes)) for votes in (first, second))  # type: ignore[misc]
            worst = max(worst, exact(*laws).delta(at)[0])
    return worst


def asked(make: Callable[[Noise], Any], teachers: int) -> Ask:
    def run(noise: Noise, votes: Sequence[int]) -> tuple[int, ...]:
        counts = np.array([[teachers - value, value] for value in votes])
        return tuple(make(noise).label(counts).tolist())

    return run


def test_exact_law_of_greedy_and_of_a_twin_with_one_answer_too_many() -> None:
    teachers, rounds = 5, 3

    def make(noise: Noise, answers: int = rounds) -> Greedy:
        return Greedy(teachers=teachers, answers=answers, unsafe_noise=noise, **BUDGET)

    real = worst_delta(asked(make, teachers), range(teachers), rounds, 2)
    assert real <= 0.01
    assert real > 1e-4

    def twin(noise: Noise) -> Any:  # a table for one answer that is used three times
        once = make(noise, 1)
        once.answers = rounds
        return once

    assert worst_delta(asked(twin, teachers), [2], rounds, 2) > 0.01


def test_exact_law_of_the_poll_and_of_a_poll_that_is_known() -> None:
    teachers = 5

    def make(noise: Noise) -> Poll:
        options: dict[str, Any] = {"epsilon": 9, "delta": 0.05, "answers": 1, "order": 8}
        return Poll(teachers=teachers, poll=3, flip=0.25, unsafe_noise=noise, **options)

    labeller = make(Seeded(unsafe_seed=0))
    claim = delta(labeller.event, epsilon=1)
    assert worst_delta(asked(make, teachers), [0, 2], 1, 1) <= claim

    def known(noise: Noise, votes: Sequence[int]) -> tuple[int, ...]:
        polls = np.sort(np.asarray(noise.uniform(teachers, 3)))
        ones = int((polls < votes[0]).sum())
        return (*polls.tolist(), int(make(noise).label_polls(np.array([[1] * ones + [0] * (3 - ones)]))[0]))

    assert worst_delta(known, [2], 1, 1) > claim


def test_polling_the_teachers_has_the_law_of_the_votes() -> None:
    labeller = Poll(teachers=40, epsilon=1, delta=1e-6, flip=0.3, poll=3, unsafe_noise=Seeded(unsafe_seed=3), answers=1)
    table = poll_table(40, poll=3, flip=0.3).probabilities
    labeller.answers = 200_000  # the law of the bits is looked at, not their price
    polls = labeller.draw_polls(100_000)
    direct = labeller.label_polls((polls < 28).astype(np.int64)).mean()
    through = labeller.label(np.tile([12, 28], (100_000, 1))).mean()
    for mean in (direct, through):
        assert abs(mean - table[28]) < 6 * math.sqrt(table[28] * (1 - table[28]) / 100_000)


# ── what the answers cost ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answers", [1, 100, 100_000])
@pytest.mark.parametrize("budget", [(1, 1e-6), (0.5, 1e-9), (8, 1e-5)])
def test_the_event_of_greedy_is_within_the_budget(answers: int, budget: tuple[float, float]) -> None:
    labeller = Greedy(teachers=300, epsilon=budget[0], delta=budget[1], answers=answers)
    assert 0.999 * budget[0] < epsilon(labeller.event, delta=budget[1]) <= budget[0]
    assert isinstance(labeller.event, Repeated)
    assert labeller.event.times == answers


def test_the_poll_buys_as_many_answers_as_fit() -> None:
    labeller = Poll(teachers=781, epsilon=1, delta=1e-6)
    assert labeller.answers == 1562
    assert epsilon(labeller.event, delta=1e-6) <= 1
    with pytest.raises(ValueError, match="answers must be at most 1562"):
        Poll(teachers=781, epsilon=1, delta=1e-6, answers=1563)


def test_sampled_bits_follow_the_table() -> None:
    table = greedy_table(30, order=8, divergence=0.01)
    noise = Seeded(unsafe_seed=11)
    for votes in (0, 10, 15, 17, 30):
        share = table.draw(np.full(50_000, votes), noise).mean()
        p = table.probabilities[votes]
        assert abs(share - p) < 6 * math.sqrt(p * (1 - p) / 50_000) + 1e-9


def test_interval_arithmetic_agrees_with_the_certificate() -> None:
    table = greedy_table(21, order=20, divergence=0.003)
    iv.dps = 40
    alpha = iv.mpf(20)
    for first, second in pairwise(table.entries.tolist()):
        p, q = iv.mpf(first) / ONE, iv.mpf(second) / ONE
        for a, b in ((p, q), (q, p)):
            moment = iv.log(b**alpha * a ** (1 - alpha) + (1 - b) ** alpha * (1 - a) ** (1 - alpha)) / (alpha - 1)
            assert moment.b <= 0.003


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answers": 0}, "answers must be at least 1"),
        ({"answers": 10, "epsilon": 0}, "epsilon must be"),
        ({"answers": 10, "delta": 0}, "delta must be"),
        ({"answers": 10, "teachers": 0}, "teachers must be at least 1"),
        ({"answers": 10, "order": 1}, "can certify nothing"),
        ({"answers": 10, "order": 1.2}, "can certify nothing"),
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Greedy(**({"teachers": 10, "epsilon": 1, "delta": 1e-6} | arguments))


def test_the_rate_of_one_order_is_what_the_accountant_reads() -> None:
    assert epsilon(Repeated(RenyiDP(Fraction(20), Fraction(1, 1000)), 100), delta=1e-6) == pytest.approx(
        0.1 + (math.log(1e6) - math.log(20)) / 19 + math.log(19 / 20), rel=1e-9
    )
