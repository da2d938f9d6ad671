from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from reticent.audit import exact, law
from reticent.errors import BudgetExhausted
from reticent.labellers import TwoCoin, VoteTable
from reticent.labellers.table import BITS, ONE
from reticent.labellers.two_coin import BlurredClosing, blurred_closing, closed_form_price, logistic_table, table_price
from reticent.noise import Noise, Seeded
from reticent.privacy import epsilon

Questions = Sequence[int]


# ── what a hit costs ──────────────────────────────────────────────────────────────────────────────────────────────


def price(p: Any, q: Any, alpha: Any) -> Any:
    """ln((S₁² − S₂)/(1 − S₂)) of two laws of one draw."""
    moments = [b**alpha * a ** (1 - alpha) for a, b in zip(p, q, strict=True)]
    squares = sum(moment**2 for moment in moments)
    return mp.log((sum(moments) ** 2 - squares) / (1 - squares))


def softmax(votes: Any, rate: float) -> list[Any]:
    weights = [mp.exp(mp.mpf(rate) * mp.mpf(count)) for count in votes]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("order", [2, 7.5, 22])
@pytest.mark.parametrize("steepness", [1, 6, 15])
def test_the_price_from_the_integers_is_right_and_below_the_closed_form(order: float, steepness: int) -> None:
    mp.dps = 60
    teachers = 400
    table = logistic_table(teachers, Fraction(steepness, 2 * teachers))
    alpha, worst = mp.mpf(order), mp.mpf(0)
    for pair in pairwise(table.entries.tolist()):
        for first, second in (pair, pair[::-1]):
            p, q = ((mp.mpf(entry) / ONE, 1 - mp.mpf(entry) / ONE) for entry in (first, second))
            worst = max(worst, price(p, q, alpha))
    found = table_price(table.entries, order)
    assert found is not None
    assert worst <= mp.mpf(found.numerator) / found.denominator
    assert float(found) <= float(worst) * (1 + 1e-6)
    bound = closed_form_price(order, steepness / (2 * teachers))
    assert bound is not None
    assert float(worst) <= bound * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_closed_form_covers_all_votes_of_several_classes(classes: int) -> None:
    generator = np.random.default_rng(classes)
    mp.dps = 120
    largest = 0.0
    for _ in range(1000):
        alpha, rate = generator.uniform(1.05, 12), generator.choice([0.003, 0.02, 0.1])
        bound = closed_form_price(alpha, rate)
        if bound is None:
            continue
        votes = generator.integers(0, generator.choice([4, 60, 2000]), size=classes).astype(float)
        a, b = generator.permutation(classes)[:2]
        moved = votes.copy()
        moved[a] -= 1
        moved[b] += 1
        share = float(price(softmax(votes, rate), softmax(moved, rate), mp.mpf(alpha))) / bound
        assert share <= 1 + 1e-6
        largest = max(largest, share)
    assert largest > 0.9  # the bound is all but attained


def test_the_inequality_behind_the_closed_form_holds_for_any_factors() -> None:
    """F ≥ ΣP_i² + 2·Σψ(w_i/w_j)·P_i·P_j; the twin takes ψ of the closest pair for all."""
    generator = np.random.default_rng(0)
    mp.dps = 60
    broken = 0
    for case in range(300):
        alpha, classes = mp.mpf(generator.uniform(1.01, 20)), int(generator.integers(2, 5))
        reach = -mp.log(1 - mp.mpf(generator.uniform(0.05, 0.95)) / alpha)
        factors = sorted(mp.exp(reach * mp.mpf(place)) for place in generator.uniform(0, 1, classes))
        weights = [mp.exp(mp.mpf(power)) for power in generator.uniform(-6, 6, classes) * (case % 3)]
        total, moved = sum(weights), sum(w * x for w, x in zip(factors, weights, strict=True))
        terms = [w**alpha * x for w, x in zip(factors, weights, strict=True)]
        pairs = list(combinations(range(classes), 2))
        psi = {(i, j): (factors[i] / factors[j]) ** -alpha * (1 + alpha * (factors[i] / factors[j] - 1))
               for i, j in pairs}  # fmt: skip
        whole = moved ** (2 * alpha) * total ** (2 - 2 * alpha) - sum(term**2 for term in terms)
        cross = {pair: 2 * terms[pair[0]] * terms[pair[1]] for pair in pairs}
        assert whole >= sum(psi[pair] * cross[pair] for pair in pairs) * (1 - mp.mpf(10) ** -40)
        broken += whole < max(psi.values()) * sum(cross.values()) * (1 - mp.mpf(10) ** -40)
    assert broken > 30


def test_a_table_whose_hits_leak_without_bound_has_no_price() -> None:
    assert table_price(VoteTable(np.array([1, ONE // 2, ONE - 1])).entries, 30) is None


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────


class TestMoments:
    """E[L^α] over the whole of a small run, hits and closing seen or not, against e^(κN)."""

    TEACHERS, ROUNDS, ALPHA = 3, 3, 3.0

    def labeller(self, noise: Noise, kind: type[TwoCoin] = TwoCoin, hits: int = 1) -> TwoCoin:
        made = kind(
            teachers=self.TEACHERS, epsilon=8, delta=0.5, steepness=0.6, tries=1, fallback=0, unsafe_noise=noise
        )
        made.hits = hits
        return made

    def moment(self, kind: type[TwoCoin], first: Questions, second: Questions, shown: bool = False) -> float:
        def run(noise: Noise, votes: Questions) -> tuple[int, ...]:
            made = self.labeller(noise, kind)
            labels = made.label(np.array([[self.TEACHERS - value, value] for value in votes])).tolist()
            return (*labels, made._used) if shown else tuple(labels)

        p, q = (law(lambda noise, votes=votes: run(noise, votes)) for votes in (first, second))  # type: ignore[misc]
        if any(p.probability(o) == 0 for o in q.low):
            return math.inf
        return float(sum(q.probability(o) ** self.ALPHA * p.probability(o) ** (1 - self.ALPHA) for o in p.low))

    def worst(self, kind: type[TwoCoin], shown: bool = False) -> float:
        pairs = []
        for start in (1, 2):
            for sides in product((0, 1), repeat=self.ROUNDS):
                first = [start + side for side in sides]
                pairs.append((first, [2 * start + 1 - value for value in first]))
        return max(self.moment(kind, *pair, shown) for pair in pairs)

    @pytest.mark.slow
    def test_a_run_costs_no_more_than_its_hits(self) -> None:
        table = logistic_table(self.TEACHERS, Fraction(3, 10 * self.TEACHERS))
        kappa = table_price(table.entries, self.ALPHA)
        assert kappa is not None
        bound = math.exp(kappa)
        real = self.worst(TwoCoin)
        assert real <= bound
        assert real > 1 + 0.3 * (bound - 1)
        assert self.worst(TwoCoin, shown=True) <= bound  # the hits, too, may be seen
        for twin in (ForgetsHits, ClosesLate, FallsBackOnVotes, ChoosesByVotes):
            assert self.worst(twin) > bound, twin


class TestSeveralClasses:
    """E[L^α] of one question with three classes, from the real draws, against e^(κ·tries)."""

    ALPHA, TEACHERS = 3.0, 4

    def moment(self, kind: type[TwoCoin], votes: Sequence[int], moved: Sequence[int]) -> float:
        def run(noise: Noise, counts: Sequence[int]) -> tuple[int, ...]:
            made = kind(
                teachers=self.TEACHERS, classes=3, epsilon=9, delta=0.5, steepness=1, tries=1, fallback=0,
                unsafe_noise=noise,
            )  # fmt: skip
            made.hits = 1
            return tuple(made.label(np.array([counts] * 2)).tolist())

        p, q = (law(lambda noise, counts=counts: run(noise, counts)) for counts in (votes, moved))  # type: ignore[misc]
        return float(sum(q.probability(o) ** self.ALPHA * p.probability(o) ** (1 - self.ALPHA) for o in p.low))

    def test_one_hit_costs_what_it_should(self) -> None:
        mp.dps = 40
        rate, kappa = 1 / (2 * self.TEACHERS), mp.mpf(0)
        for votes in product(range(self.TEACHERS + 1), repeat=3):
            if sum(votes) == self.TEACHERS:
                for moved in neighbours(votes):
                    kappa = max(kappa, price(softmax(votes, rate), softmax(moved, rate), mp.mpf(self.ALPHA)))
        bound = closed_form_price(self.ALPHA, rate)
        assert bound is not None
        assert kappa <= bound
        pairs = [((0, 2, 2), (1, 1, 2)), ((1, 1, 2), (0, 2, 2)), ((0, 4, 0), (1, 3, 0))]
        real = max(self.moment(TwoCoin, *pair) for pair in pairs)
        assert 1 + 0.2 * float(mp.expm1(kappa)) < real <= float(mp.exp(kappa))
        assert max(self.moment(TwiceAsSteep, *pair) for pair in pairs) > float(mp.exp(kappa))


class TwiceAsSteep(TwoCoin):
    """A twin: labels are drawn at the rate that the pair of them has, not each."""

    def _draw(self, counts: Any) -> Any:
        return np.array([self._noise.choose(row, rate=2 * self.rate) for row in counts], dtype=np.int64)


def neighbours(votes: Sequence[int]) -> list[list[int]]:
    """All votes after one teacher has changed its mind."""
    found = []
    for a, b in product(range(len(votes)), repeat=2):
        if a != b and votes[a] > 0:
            moved = list(votes)
            moved[a] -= 1
            moved[b] += 1
            found.append(moved)
    return found


class ForgetsHits(TwoCoin):
    """A twin: the last hit of a question, after which comes the fallback, is not counted."""

    def _toss(self, counts: Any) -> Any:
        labels, hits = super()._toss(counts)
        return labels, np.where(hits == self.tries, hits - 1, hits)


class ClosesLate(TwoCoin):
    """A twin: one more question is asked when another hit would not fit."""

    def _label(self, counts: Any) -> Any:
        self.hits += self.tries
        return super()._label(counts)


class FallsBackOnVotes(TwoCoin):
    """A twin: the fallback is the majority of the votes, which is not public."""

    def _toss(self, counts: Any) -> Any:
        labels, hits = super()._toss(counts)
        return np.where(hits == self.tries, counts.argmax(axis=1), labels), hits


class ChoosesByVotes(TwoCoin):
    """A twin: the coins are all but fair where the vote is close, steep elsewhere, and nowhere steeper than priced."""

    def _draw(self, counts: Any) -> Any:
        tables = (logistic_table(self.teachers, rate).entries for rate in (self.rate / 100, self.rate))
        flat, steep = (entries[counts[:, 1]] for entries in tables)
        close = np.abs(counts[:, 1] - counts[:, 0]) <= 1
        return self._noise.coins(np.where(close, flat, steep), BITS).astype(np.int64)


# ── the closing ───────────────────────────────────────────────────────────────────────────────────────────────────


class OneNoisyCap(TwoCoin):
    """A twin: the end is blurred once, and not by fresh noise before every question."""

    def _label(self, counts: Any) -> Any:
        labels, hits = self._toss(counts)
        before = self._used + np.concatenate([[0], np.cumsum(hits)[:-1]])
        ends = before >= self.hits - self.closing.margin + self._threshold  # type: ignore[union-attr]
        return labels[: int(np.argmax(ends)) if bool(ends.any()) else len(counts)]


class ShowsTosses(TwoCoin):
    """A twin: how long a question took is seen, though its answer is not."""

    def _toss(self, counts: Any) -> Any:
        labels, hits = super()._toss(counts)
        self.took = hits.tolist()
        return labels, hits


def small(kind: type[TwoCoin], noise: Noise) -> TwoCoin:
    made = kind(
        teachers=400, epsilon=8, delta=0.01, steepness=2, tries=1, fallback=0, unsafe_noise=noise, query_epsilon=2,
        query_delta=0.05,
    )  # fmt: skip
    made.table = VoteTable(np.array([0 if v < 200 else ONE // 2 for v in range(401)]))  # no doubt, or all doubt
    made.hits = made.closing.margin + 1  # type: ignore[union-attr]
    return made


def seen(kind: type[TwoCoin], votes: Questions) -> Callable[[Noise], tuple[int, ...]]:
    """When it closes and all answers, but not the answer to the first question."""

    def run(noise: Noise) -> tuple[int, ...]:
        made = small(kind, noise)
        labels = made.label(np.array([[400 - value, value] for value in votes])).tolist()
        took = made.took[:1] if isinstance(made, ShowsTosses) else []
        return (len(labels), *labels[1:], *took)

    return run


@pytest.mark.slow
def test_the_closing_hides_a_question_and_its_twins_do_not() -> None:
    """The first question is torn, or clear. "Closes right after it" has probability 0 in one world of one twin."""
    for kind, holds in ((TwoCoin, True), (OneNoisyCap, False), (ShowsTosses, False)):
        laws = [law(seen(kind, votes), tail_bits=10) for votes in ([200, 0], [0, 0])]
        low, high = exact(*laws).delta(2)
        assert high <= 0.05 if holds else low > 0.05, kind
        assert kind is not OneNoisyCap or (laws[1].probability((1,)) == 0 and laws[0].probability((1,)) > 0.149)


Scales = tuple[float, float]  # of the noise drawn once and of the fresh one
FULL: Scales = (1, 1)


class TestClosingTime:
    """The law of the closing time for known numbers of hits, which is what the coins leave of it."""

    REACH = 40

    def law(
        self, hits: Sequence[int], end: int, tries: int, how: BlurredClosing, *, fresh: bool, scales: Scales
    ) -> np.ndarray[Any, Any]:
        """The chances to close before the first question, the second, …, or never; `scales` shrink the two noises."""
        once, a = (math.exp(-1 / (float(how.scale) * share)) for share in scales)
        z = np.arange(-self.REACH * int(how.scale + 1), self.REACH * int(how.scale + 1) + 1)
        mass = (1 - once) / (1 + once) * once ** np.abs(z)
        used = np.concatenate([[0], np.cumsum(hits)])
        alive, chances = mass.copy(), []
        for count in used[:-1]:
            gap = end - how.margin + z - count  # the fresh noise closes where it is at least this
            tail = np.where(gap > 0, a ** np.maximum(gap, 0) / (1 + a), 1 - a ** np.maximum(1 - gap, 1) / (1 + a))
            closes = np.ones_like(tail) if count > end - tries else (tail if fresh else (gap <= 0) * 1.0)
            chances.append(float((alive * closes).sum()))
            alive = alive * (1 - closes)
        return np.array([*chances, float(alive.sum())])

    def worst(
        self, how: BlurredClosing, epsilon: float, tries: int, fresh: bool = True, scales: Scales = FULL
    ) -> float:
        generator = np.random.default_rng(0)
        end, worst = how.margin + 8, 0.0
        for case in range(100):
            before = generator.integers(0, tries + 1, size=generator.integers(0, 12))
            after = generator.choice([0, 1, tries], p=[0.6, 0.2, 0.2] if case % 2 else [0.1, 0.1, 0.8], size=40)
            worlds = [
                self.law([*before, own, *after], end, tries, how, fresh=fresh, scales=scales)
                for own in ((0, tries) if case % 3 or tries == 1 else (1, tries))
            ]
            for p, q in (worlds, worlds[::-1]):
                worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
        return worst

    @pytest.mark.slow
    @pytest.mark.parametrize(("epsilon", "delta", "tries"), [(1, 1e-6, 2), (2, 1e-4, 1), (0.5, 1e-3, 3)])
    def test_it_hides_one_question(self, epsilon: float, delta: float, tries: int) -> None:
        how = blurred_closing(epsilon, delta, tries)
        assert self.worst(how, epsilon, tries) <= delta
        assert self.worst(how, epsilon, tries, fresh=False) > delta  # the twin: one noisy cap
        assert self.worst(how, epsilon, tries, scales=(0.5, 1)) > delta  # the twin: half of the noise drawn once
        assert self.worst(how, epsilon, tries, scales=(1, 0.5)) > delta  # the twin: half of the fresh noise
        assert self.worst(BlurredClosing(how.scale, 0), epsilon, tries) > delta  # the twin: the hard end shows


def test_the_margin_is_the_least_that_the_tail_allows() -> None:
    assert blurred_closing(1, 1e-6, 2) == BlurredClosing(Fraction(2), 34)
    for query_epsilon, query_delta, tries in ((0.5, 1e-4, 1), (1, 1e-6, 3), (4, 1e-9, 2)):
        found = blurred_closing(query_epsilon, query_delta, tries)
        a = math.exp(-query_epsilon / tries)
        z = np.arange(-4000, 4001)
        mass = (1 - a) / (1 + a) * a ** np.abs(z)
        difference = np.convolve(mass, mass)
        middle = len(difference) // 2

        def tail(m: int, difference: Any = difference, middle: int = middle) -> float:
            return float(difference[middle + m :].sum())

        reach = found.margin - tries + 2
        assert math.exp(query_epsilon) * tail(reach) <= query_delta * (1 + 1e-9)
        assert math.exp(query_epsilon) * tail(reach - 1) > query_delta


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_clear_questions_are_answered_for_ever_and_torn_ones_close_it() -> None:
    labeller = TwoCoin(teachers=1000, epsilon=1, delta=1e-6, steepness=15, unsafe_noise=Seeded(unsafe_seed=1))
    clear = np.tile([0, 1000], (50_000, 1))
    assert labeller.label(clear).mean() > 0.999
    assert not labeller.closed
    torn = np.tile([500, 500], (10_000, 1))
    answered = len(labeller.label(torn))
    assert answered < 10_000
    assert labeller.closed
    with pytest.raises(BudgetExhausted):
        labeller.label(clear)


def test_hits_never_exceed_their_number() -> None:
    for seed in range(50):
        noise = Seeded(unsafe_seed=seed)
        labeller = TwoCoin(teachers=300, epsilon=1, delta=1e-6, steepness=6, tries=3, unsafe_noise=noise)
        labeller.label(np.tile([150, 150], (2000, 1)))
        assert labeller.hits - labeller.tries < labeller._used <= labeller.hits


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 4])
def test_labels_and_hits_are_as_frequent_as_they_should(classes: int) -> None:
    labeller = TwoCoin(
        teachers=1000, classes=classes, epsilon=4, delta=1e-6, steepness=6, unsafe_noise=Seeded(unsafe_seed=5)
    )
    row = [400, 600] if classes == 2 else [300, 400, 200, 100]
    questions = np.tile(row, (4000, 1))
    chances, hits = labeller.chances(questions[:1]), labeller.expected_hits(questions[:1])
    labels, drawn = labeller._toss(questions)
    for label in range(classes):
        p = chances[0, label]
        assert abs((labels == label).mean() - p) < 5 * math.sqrt(p * (1 - p) / 4000)
    assert abs(drawn.mean() - hits[0]) < 5 * drawn.std() / math.sqrt(4000)


@pytest.mark.slow
def test_the_event_fits_the_budget_and_uses_it() -> None:
    for budget in ((1, 1e-6), (0.5, 1e-9), (4, 1e-5)):
        labeller = TwoCoin(teachers=5000, epsilon=budget[0], delta=budget[1])
        assert 0.99 * budget[0] < epsilon(labeller.event, delta=budget[1]) <= budget[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"teachers": 10}, "buy 0 hits"),
        ({"steepness": 0}, "steepness must be"),
        ({"tries": 0}, "tries must be at least 1"),
        ({"fallback": 2}, "fallback must be at most 1"),
        ({"teachers": 3}, "buy 0 hits with steepness=6 and 3 teachers.*take steepness of at most 0.2"),
        ({"teachers": 3, "classes": 3}, "buy 0 hits with steepness=6 and 3 teachers.*take steepness of at most 0.1"),
        ({"steepness": 1e300}, "take steepness of at most"),
        ({"epsilon": 1e-6}, "take a larger epsilon or more teachers"),
        ({"query_epsilon": 0, "query_delta": 0.1}, "query_epsilon must be"),
        ({"query_epsilon": 1, "query_delta": 0}, "query_delta must be"),
        ({"query_epsilon": 0.001, "query_delta": 1e-9}, "query_epsilon=0.001.*larger query_epsilon.*fewer tries"),
        ({"query_epsilon": 1}, "given together"),
        ({"query_delta": 1e-6}, "given together"),
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TwoCoin(**({"teachers": 1000, "epsilon": 1, "delta": 1e-6} | arguments))


@pytest.mark.parametrize("teachers", [3, 200])
def test_the_steepness_that_is_advised_is_accepted(teachers: int) -> None:
    budget: dict[str, Any] = {"teachers": teachers, "epsilon": 1, "delta": 1e-6}
    with pytest.raises(ValueError, match="steepness of at most") as refused:
        TwoCoin(steepness=20, **budget)
    found = re.search(r"steepness of at most ([\d.]+\d)", str(refused.value))
    assert found
    TwoCoin(steepness=float(found[1]), **budget)
    with pytest.raises(ValueError, match="are needed"):
        TwoCoin(steepness=1.3 * float(found[1]), **budget)


@pytest.mark.parametrize("query_epsilon", [1e-9, 1e9])
def test_the_closing_is_found_for_any_epsilon(query_epsilon: float) -> None:
    how = blurred_closing(query_epsilon, 1e-6, 2)
    assert how.scale == 2 / min(Fraction(str(query_epsilon)), Fraction(100))


def test_coins_that_are_all_but_fair_cost_all_but_nothing() -> None:
    assert TwoCoin(teachers=10, epsilon=1, delta=1e-6, steepness=1e-300).hits > 10**200
