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
from reticent.audit.laws import Law
from reticent.labellers import Greedy, Poll, VoteTable, greedy, greedy_table, poll_table
from reticent.labellers.poll import _ERROR
from reticent.labellers.table import ONE
from reticent.noise import Noise, Seeded
from reticent.privacy import epsilon
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


@pytest.mark.slow
@given(
    st.lists(st.integers(1 << 45, ONE - (1 << 45)), min_size=2, max_size=5),
    st.fractions(Fraction(11, 10), 40, max_denominator=10),
)
def test_divergence_is_a_tight_bound(entries: list[int], order: Fraction) -> None:
    table = VoteTable(np.array(entries))
    truth, bound = true_divergence(table, order), table.divergence(order)
    assert bound >= truth - mp.mpf(10) ** -50
    widest = max(abs(first - second) for first, second in pairwise(entries)) / ONE
    assert float(bound) <= float(truth) * (1 + 1e-6) + 1e-12 * float(order / (order - 1)) * widest + 1e-50


@pytest.mark.slow
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


def floored_table(teachers: int, order: float, divergence: float) -> VoteTable:
    """A twin: the greedy recursion in floats, on the chances below the middle, rounded down to 62 bits at the end."""

    def fits(p: float, q: float) -> bool:
        moments = (b**order * a ** (1 - order) + (1 - b) ** order * (1 - a) ** (1 - order) for a, b in ((p, q), (q, p)))
        return all(math.log(moment) <= (order - 1) * divergence for moment in moments)

    lower = [0.5]
    while len(lower) <= teachers // 2:
        low, high = lower[-1] * 2.0**-30, lower[-1]  # `high` fits, `low` does not
        while (middle := (low + high) / 2) not in (low, high):
            low, high = (low, middle) if fits(lower[-1], middle) else (middle, high)
        lower.append(high)
    p = [*lower[:0:-1], *(1 - value for value in lower)]
    return VoteTable(np.array([math.floor(value * ONE) for value in p]))


@pytest.mark.parametrize("teachers", [60, 70])
def test_a_table_floored_afterwards_is_rejected(teachers: int) -> None:
    """With fewer teachers it leaks more than it may; with more, without bound, where an entry becomes 0 or 2^62."""
    order, divergence = 8, 0.05
    assert float(greedy_table(teachers, order=order, divergence=divergence).divergence(order)) <= divergence
    twin = floored_table(teachers, order, divergence)
    if teachers == 60:
        assert float(twin.divergence(order)) > divergence * (1 + 1e-6)
    else:
        with pytest.raises(ValueError, match="without bound"):
            twin.divergence(order)


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


class TestThePollStaysSecret:
    """Divergences of order 8 of what is seen of one question, or of two, against the price of an answer."""

    TEACHERS, ORDER = 5, 8
    POLL = Poll(teachers=5, poll=3, flip=Fraction(1, 2), epsilon=40, delta=0.05, answers=2, order=8,
                unsafe_noise=Seeded(unsafe_seed=0))  # fmt: skip

    def label(self, noise: Noise, votes: Any) -> int:
        self.POLL._noise, self.POLL.asked = noise, 0  # the same one for every path: making it takes longer than asking
        return int(self.POLL.label_polls(votes)[0])

    def whole(self, noise: Noise, v: int) -> Any:
        """The labeller itself, from all votes."""
        self.POLL._noise, self.POLL.asked = noise, 0
        return int(self.POLL.label([[self.TEACHERS - v, v]])[0])

    def draw(self, noise: Noise, v: int) -> Any:
        polls = np.asarray(noise.uniform(self.TEACHERS, 3))
        return polls, (polls[None, :] < v).astype(np.int64)

    def secret(self, noise: Noise, v: int) -> Any:
        return self.label(noise, self.draw(noise, v)[1])

    def known(self, noise: Noise, v: int) -> Any:
        polls, votes = self.draw(noise, v)
        return *polls.tolist(), self.label(noise, votes)

    def timed(self, noise: Noise, v: int) -> Any:
        """Teachers drawn twice are asked once, which shows in the time it takes."""
        polls, votes = self.draw(noise, v)
        return len(set(polls.tolist())), self.label(noise, votes)

    def shared(self, noise: Noise, v: int) -> Any:
        """One poll for a batch of two questions, on both of which the same teachers vote for 1."""
        votes = self.draw(noise, v)[1]
        return self.label(noise, votes), self.label(noise, votes)

    def divergence(self, run: Callable[[Noise, int], Any]) -> float:
        laws = [law(lambda noise, v=v: run(noise, v)) for v in (0, 1, 2)]  # type: ignore[misc]
        return max(renyi(*pair, self.ORDER) for here in pairwise(laws) for pair in (here, here[::-1]))

    @pytest.mark.slow
    def test_an_answer_costs_its_price_and_more_where_the_poll_shows(self) -> None:
        event = self.POLL.event.event.event  # type: ignore[attr-defined]
        price = float(event.divergence)
        for real in (self.whole, self.secret):
            assert 0.99 * price < self.divergence(real) <= price
        assert self.divergence(self.known) > price
        assert self.divergence(self.timed) > price
        assert self.divergence(self.shared) > 2 * price


def renyi(p: Law, q: Law, order: float) -> float:
    """D_α(Q‖P) of two laws with the same outputs."""
    moment = sum(q.probability(o) ** order * p.probability(o) ** (1 - order) for o in p.low)
    return math.log(moment) / (order - 1)


@pytest.mark.slow
@pytest.mark.parametrize(("teachers", "poll"), [(5, 3), (781, 7), (100_000, 17), (10**6, 31), (1000, 9999)])
def test_the_table_of_the_poll_is_right_to_its_margin(teachers: int, poll: int) -> None:
    table = poll_table(teachers, poll=poll, flip=Fraction(1, 200)).entries
    middle = teachers // 2
    places = {0, 1, 2, teachers // 3, middle - 4, middle - 1, (teachers - 1) // 2, (teachers + 1) // 2, teachers}
    for v in sorted(places - set(range(-4, 0))):
        most, term = 0, v**poll  # the term of j = poll, then down to the majority
        for j in range(poll, poll // 2, -1):
            most += term
            term = term * j * (teachers - v) // ((poll - j + 1) * v) if v else 0
        truth = Fraction(1, 400) + Fraction(199, 200) * Fraction(most, teachers**poll)
        assert abs(int(table[v]) - truth * ONE) < _ERROR / 2


# ── what a question costs others ──────────────────────────────────────────────────────────────────────────────────


class CachesForFree(Greedy):
    """A twin: a question with the votes of an earlier one gets the same answer again, and is not counted."""

    def label(self, votes: Any) -> Any:
        known: dict[Any, int] = {}
        for row in map(tuple, votes):
            if row not in known and self.asked < self.answers:  # type: ignore[operator]
                known[row] = int(super().label([row])[0])
        return np.array([known[row] for row in map(tuple, votes) if row in known])


@pytest.mark.parametrize("kind", [Greedy, Poll, CachesForFree])
def test_a_question_does_not_show_in_the_answers_to_others(kind: type[Any]) -> None:
    """Two answers may be given to three questions; the second is not one's own."""
    options: dict[str, Any] = {"flip": Fraction(1, 2), "poll": 1, "order": 8} if kind is Poll else {}

    def run(noise: Noise, challenge: list[int]) -> Any:
        made = kind(teachers=2, epsilon=9, delta=0.1, answers=2, unsafe_noise=noise, **options)
        labels = made.label([[2, 0], challenge, [0, 2]]).tolist()
        return (len(labels), *labels[:1], *labels[2:])

    first, second = (law(lambda noise, votes=votes: run(noise, votes)) for votes in ([2, 0], [1, 1]))  # type: ignore[misc]
    apart = exact(first, second).delta(0)
    assert apart[0] > 0.1 if kind is CachesForFree else apart[1] < 1e-12


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


@pytest.mark.parametrize("answers", [1, 100, 100_000, 10**18])
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


@pytest.mark.parametrize("answers", [1, 10, 100])
def test_one_order_says_nearly_all_there_is_to_say(answers: int) -> None:
    """The exact game on the table of `Greedy`: within the budget, and not far below it."""
    labeller = Greedy(teachers=120, epsilon=1, delta=1e-6, answers=answers)
    played = labeller.table.profile(answers)
    assert played.delta(1.0) <= 1.03e-6  # the grid of the game is a little coarse
    assert played.delta(0.9) > 1e-6
    more = greedy_table(120, order=22, divergence=1.2 * labeller.event.event.divergence)  # type: ignore[attr-defined]
    assert more.profile(answers).delta(1.0) > 1e-6  # the twin: a fifth over the budget


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
        ({"answers": 10**101}, "answers must be at most 10000"),
        ({"answers": 10, "epsilon": 0}, "epsilon must be"),
        ({"answers": 10, "delta": 0}, "delta must be"),
        ({"answers": 10, "teachers": 0}, "teachers must be at least 1"),
        ({"answers": 10, "order": 1}, "can certify nothing"),
        ({"answers": 10, "order": 1.2}, "can certify nothing"),
        ({"answers": 10, "epsilon": 1e-6, "delta": 1e-12}, "epsilon must be above 1.28e-05 at delta=1e-12, got 1e-06"),
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Greedy(**({"teachers": 10, "epsilon": 1, "delta": 1e-6} | arguments))


def test_the_rate_of_one_order_is_what_the_accountant_reads() -> None:
    assert epsilon(Repeated(RenyiDP(Fraction(20), Fraction(1, 1000)), 100), delta=1e-6) == pytest.approx(
        0.1 + (math.log(1e6) - math.log(20)) / 19 + math.log(19 / 20), rel=1e-9
    )


def test_very_high_orders_do_not_overflow() -> None:
    table = Greedy(teachers=2, epsilon=0.01, delta=1e-12, answers=1).table
    assert table.entries[1] == ONE // 2
    assert Greedy(teachers=2, epsilon=1e-6, delta=1e-6, answers=1).table.entries[2] > ONE // 2


@pytest.mark.parametrize("divergence", [1e-15, 1e-18, 1e-25, 1e-40, 1e-300])
def test_a_table_takes_few_steps_however_little_it_may_leak(
    divergence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a budget is too small for the certificate, or for any step, the entries stay what they are."""
    tried: list[int] = []
    real = greedy._moment

    def counted(*arguments: Any) -> float:
        tried.append(1)
        assert len(tried) < 100 * 21  # and not one after the other up to 2^62
        return real(*arguments)

    monkeypatch.setattr(greedy, "_moment", counted)
    table = greedy_table(20, order=22, divergence=divergence)
    assert bool((np.diff(table.entries) >= 0).all())
    assert (0 < table.entries[20] - ONE // 2 < ONE // 10**6) == (divergence > 1e-30)
    assert float(table.divergence(22)) <= divergence


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answers": 1563}, "answers must be at most 1562"),
        ({"teachers": 10}, "do not buy a single answer of a poll of 7 of 10 teachers.*take a larger epsilon"),
        ({"teachers": 10, "epsilon": 1e-6}, "flip=0.005 has no finite price"),
        ({"epsilon": 1e-6, "delta": 1e-12}, "epsilon must be above 1.28e-05"),
    ],
)
def test_polls_that_cannot_be_had_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Poll(**({"teachers": 781, "epsilon": 1, "delta": 1e-6} | arguments))
