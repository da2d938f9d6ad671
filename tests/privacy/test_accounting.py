"""Accounting: reference values, and exact laws of small mechanisms that never exceed it, each with a twin that does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy import calibrate, delta, divergences, epsilon, fits, guarantee, renyi, rho
from reticent.privacy.events import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    Composed,
    ContinuousGaussian,
    DiscreteGaussian,
    Event,
    GaussianBit,
    Grouped,
    Parallel,
    PureDP,
    Repeated,
    SeededRelease,
    SparseVectorRun,
    Subsampled,
)

ONE, HALF, TENTH = Fraction(1), Fraction(1, 2), Fraction(1, 10)


# ── reference values ──────────────────────────────────────────────────────────────────────────────────────────────

def test_gaussian_reference() -> None:
    many = Repeated(ContinuousGaussian(Fraction(10)), 1000)
    assert epsilon(many, delta=1e-6) == pytest.approx(19.42365647403105, abs=1e-13)
    assert epsilon(Composed((ContinuousGaussian(Fraction(10)),) * 3), delta=1e-6) == epsilon(
        ContinuousGaussian(Fraction(10), Fraction(3)), delta=1e-6
    )


def test_zcdp_reference() -> None:
    assert epsilon(ZCDP(Fraction(1, 5)), delta=1e-6) == pytest.approx(3.13, abs=0.005)
    assert epsilon(ZCDP(Fraction(1, 5)), delta=1e-6) < 0.2 + 2 * math.sqrt(0.2 * math.log(1e6))
    assert epsilon(DiscreteGaussian(Fraction(10), 40), delta=1e-6) == pytest.approx(3.13, abs=0.005)


def test_ten_tenths_are_exactly_one() -> None:
    assert epsilon(Repeated(PureDP(TENTH), 10), delta=0) == 1.0
    assert epsilon(Composed((PureDP(TENTH),) * 3), delta=0) == 0.3
    assert delta(Repeated(PureDP(TENTH), 10), epsilon=1) == 0.0
    assert epsilon(Repeated(ApproximateDP(TENTH, Fraction(1, 10**7)), 10), delta=1e-6) <= 1.0


def test_small_deltas_are_not_rounded_away() -> None:
    lost = Fraction(1, 10**13)
    event = Repeated(ApproximateDP(TENTH, lost), 7)
    assert Fraction(delta(event, epsilon=0.7)) >= 1 - (1 - lost) ** 7
    assert delta(event, epsilon=0.7) <= 7e-13
    assert epsilon(event, delta=Fraction(7, 10**13)) == 0.7
    assert epsilon(Subsampled(PureDP(Fraction(3, 10)), ONE), delta=1e-9) <= 0.3
    assert epsilon(Subsampled(PureDP(Fraction(3, 10)), HALF), delta=0) >= math.log1p(0.5 * math.expm1(0.3))


def test_events_without_a_pure_price_have_none_at_delta_zero() -> None:
    gaussians = (ContinuousGaussian(ONE), DiscreteGaussian(ONE), GaussianBit(ONE, 5))
    for event in (ZCDP(ONE), *gaussians, ApproximateDP(ONE, TENTH)):
        assert epsilon(event, delta=0) == math.inf
        with pytest.raises(ValueError, match="larger delta"):
            guarantee(event)


def test_a_million_pure_events() -> None:
    value = epsilon(Repeated(PureDP(Fraction(1, 1000)), 10**6), delta=1e-6)
    assert value == pytest.approx(epsilon(ContinuousGaussian(ONE), delta=1e-6), rel=2e-3)


def test_discrete_gaussian_noise_costs_what_continuous_noise_does() -> None:
    """The exact loss on a grid, not the conversion from zCDP, which would lose 6 %."""
    event, continuous = Repeated(DiscreteGaussian(Fraction(10)), 1000), Repeated(ContinuousGaussian(Fraction(10)), 1000)
    assert epsilon(event, delta=1e-6) == pytest.approx(epsilon(continuous, delta=1e-6), rel=1e-5)
    assert divergences.renyi_epsilon(event, 1e-6) > 1.01 * epsilon(event, delta=1e-6)


def test_amplification() -> None:
    assert epsilon(Subsampled(PureDP(ONE), TENTH), delta=0) == pytest.approx(math.log1p(0.1 * math.expm1(1)), rel=1e-12)
    inner = Repeated(DiscreteGaussian(Fraction(5)), 10)
    sampled = epsilon(Subsampled(inner, TENTH), delta=1e-7)
    assert sampled == pytest.approx(math.log1p(0.1 * math.expm1(epsilon(inner, delta=1e-6))), rel=1e-9)
    assert delta(Subsampled(inner, TENTH), epsilon=sampled) == pytest.approx(1e-7, rel=1e-3)
    assert epsilon(Subsampled(inner, Fraction(1, 10**7)), delta=1e-6) == 0.0


def test_sampling_twice_is_sampling_once_at_the_product() -> None:
    inner = ApproximateDP(ONE, Fraction(1, 1000))
    twice, once = Subsampled(Subsampled(inner, HALF), TENTH), Subsampled(inner, Fraction(1, 20))
    assert epsilon(twice, delta=1e-4) == pytest.approx(epsilon(once, delta=1e-4), rel=1e-12)


def test_group_formulas() -> None:
    assert epsilon(Grouped(PureDP(TENTH), 3), delta=0) == 0.3
    assert rho(Grouped(Composed((ZCDP(ONE), DiscreteGaussian(ONE))), 3)) == Fraction(27, 2)
    pair = Grouped(ApproximateDP(ONE, Fraction(1, 10**6)), 2)
    assert delta(pair, epsilon=2) <= 1e-6 * (1 + math.e) * (1 + 1e-12)
    assert epsilon(Grouped(ApproximateDP(ONE, HALF), 9), delta=0.9) == math.inf
    assert epsilon(Grouped(SparseVectorRun(TENTH, 3, Fraction(1, 10**8)), 2), delta=1e-6) <= 0.6


def test_parallel_is_the_largest_member() -> None:
    members = (Repeated(DiscreteGaussian(Fraction(5)), 3), PureDP(HALF), ApproximateDP(TENTH, Fraction(1, 10**9)))
    expected = max(epsilon(member, delta=1e-6) for member in members)
    assert epsilon(Parallel(members), delta=1e-6) == pytest.approx(expected, rel=1e-11)
    assert delta(Parallel(members), epsilon=expected) <= 1e-6 * (1 + 1e-9)
    gaussians = Parallel((ContinuousGaussian(Fraction(3)), ContinuousGaussian(Fraction(4))))
    assert rho(gaussians) == Fraction(1, 18)


def test_groups_inside_a_sample_are_charged_at_the_dearer_reading() -> None:
    event = Subsampled(Grouped(PureDP(ONE), 3), TENTH)
    whole_groups = math.log1p(0.1 * math.expm1(3))
    rows = 3 * math.log1p(0.1 * math.expm1(1))
    assert epsilon(event, delta=0) == pytest.approx(max(whole_groups, rows), rel=1e-12)
    noisy = Subsampled(Grouped(DiscreteGaussian(Fraction(9)), 2), TENTH)
    assert delta(noisy, epsilon=0.1) >= delta(Grouped(Subsampled(DiscreteGaussian(Fraction(9)), TENTH), 2), epsilon=0.1)


def test_several_units_are_several_draws() -> None:
    sigma = Fraction(4)
    assert epsilon(DiscreteGaussian(sigma, 2), delta=1e-6) == epsilon(Repeated(DiscreteGaussian(sigma), 2), delta=1e-6)
    assert epsilon(DiscreteGaussian(sigma, 4), delta=1e-6) == epsilon(ZCDP(Fraction(1, 8)), delta=1e-6)


def test_divergences_are_open_to_all() -> None:
    assert renyi(ZCDP(HALF), 3) == pytest.approx(1.5)
    assert renyi(ApproximateDP(ONE, TENTH), 3) == math.inf
    assert renyi(Subsampled(ContinuousGaussian(ONE), HALF), 3) == math.inf
    assert rho(Subsampled(ContinuousGaussian(ONE), HALF)) is None
    with pytest.raises(ValueError, match="order must be"):
        renyi(ZCDP(ONE), 1)


@pytest.mark.parametrize("bad", [-1e-9, 1, math.nan, math.inf])
def test_bad_delta_is_refused(bad: float) -> None:
    for ask in (lambda: epsilon(PureDP(ONE), delta=bad), lambda: fits(PureDP(ONE), epsilon=1, delta=bad)):
        with pytest.raises(ValueError, match="delta must be"):
            ask()


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf])
def test_bad_epsilon_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        delta(PureDP(ONE), epsilon=bad)


def test_what_is_no_event_is_refused() -> None:
    release: Any = Release(1, PureDP(ONE))
    questions: list[Callable[[Any], object]] = [
        lambda event: epsilon(event, delta=1e-6),
        lambda event: delta(event, epsilon=1),
        lambda event: fits(event, epsilon=1, delta=0),
        lambda event: renyi(event, 2),
        lambda event: calibrate.answers(event, epsilon=1),
        guarantee,
        rho,
    ]
    for ask in questions:
        with pytest.raises(TypeError, match=r"event must be an Event, got Release: pass its \.event"):
            ask(release)
        for bad in (None, "x", 1):
            with pytest.raises(TypeError, match=f"event must be an Event, got {type(bad).__name__}$"):
                ask(bad)


def test_a_promise_about_queries_is_not_handed_out() -> None:
    with pytest.raises(ValueError, match="protects must be 'rows' or 'labels'"):
        guarantee(PureDP(ONE), protects="rows and queries")


@pytest.mark.parametrize(
    "event",
    [
        DiscreteGaussian(Fraction(10)),
        ContinuousGaussian(Fraction(10)),
        ApproximateDP(ONE, Fraction(1, 10**9)),
        SparseVectorRun(ONE, 3),
        Composed((DiscreteGaussian(Fraction(10)), ContinuousGaussian(Fraction(10)))),
    ],
    ids=lambda event: type(event).__name__,
)
def test_numbers_beyond_floats_are_no_error(event: Event) -> None:
    assert delta(event, epsilon=10**400) <= 1e-8
    assert fits(event, epsilon=10**400, delta=1e-6)
    assert epsilon(Repeated(event, 10**420), delta=1e-6) == math.inf
    assert not fits(Repeated(event, 10**420), epsilon=10**6, delta=1e-6)
    assert delta(ContinuousGaussian(Fraction(10**180)), epsilon=1) <= 1e-299
    assert delta(DiscreteGaussian(Fraction(10**400)), epsilon=1) <= 1e-199
    with pytest.raises(ValueError, match="epsilon must be"):
        fits(event, epsilon=-1, delta=1e-6)
    with pytest.raises(ValueError, match="order must be"):
        renyi(event, 10**400)


def test_a_seeded_event_taints_its_guarantee() -> None:
    assert guarantee(Composed((PureDP(ONE), SeededRelease(PureDP(ONE)))), unit="group", protects="labels").seeded
    clean = guarantee(Repeated(DiscreteGaussian(Fraction(20)), 3), delta=1e-6)
    assert not clean.seeded
    assert clean.epsilon == epsilon(Repeated(DiscreteGaussian(Fraction(20)), 3), delta=1e-6)
    assert guarantee(PureDP(Fraction(1, 1000)), delta=0.5).epsilon > 0


# ── consistency on arbitrary events ───────────────────────────────────────────────────────────────────────────────

def _events(low: Fraction, high: Fraction, leaves: int) -> st.SearchStrategy[Event]:
    price = st.fractions(low, high, max_denominator=10**7)
    scale = price.map(lambda value: 1 / value)
    chance = st.sampled_from([Fraction(0), Fraction(1, 10**12), Fraction(1, 10**7), Fraction(1, 100)])
    few = st.integers(1, 4)
    single: st.SearchStrategy[Event] = st.one_of(
        st.builds(PureDP, price),
        st.builds(ApproximateDP, price, chance),
        st.builds(BoundedRange, price),
        st.builds(ZCDP, price),
        st.builds(ContinuousGaussian, scale),
        st.builds(DiscreteGaussian, scale, few),
        st.builds(GaussianBit, scale, st.sampled_from([1, 2, 9, 1000])),
        st.builds(SparseVectorRun, price, few, chance),
    )

    def combined(inner: st.SearchStrategy[Event]) -> st.SearchStrategy[Event]:
        several = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Composed, several),
            st.builds(Parallel, several),
            st.builds(Repeated, inner, st.sampled_from([1, 2, 100])),
            st.builds(Grouped, inner, few),
            st.builds(Subsampled, inner, st.sampled_from([Fraction(1, 1000), Fraction(1, 3), Fraction(1)])),
            st.builds(SeededRelease, inner),
        )

    return st.recursive(single, combined, max_leaves=leaves)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(_events(Fraction(1, 100), Fraction(2), 3))
def test_every_event_has_a_price_and_prices_agree(event: Event) -> None:
    for target in (1e-9, 1e-3):
        price = epsilon(event, delta=target)
        assert price >= 0
        if price < 500:
            assert delta(event, epsilon=price * (1 + 1e-6)) <= target * (1 + 1e-3)
            assert fits(event, epsilon=price * (1 + 1e-6) + 1e-9, delta=target * 1.001)
    assert epsilon(event, delta=1e-3) <= epsilon(event, delta=1e-9) * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True)
@given(_events(Fraction(1, 100), Fraction(2), 2), st.integers(2, 4))
def test_more_costs_more(event: Event, times: int) -> None:
    price = epsilon(event, delta=1e-5)
    assume(price < 100)
    tolerance = 1 + 1e-3  # grids differ
    assert price <= epsilon(Repeated(event, times), delta=1e-5) * tolerance + 1e-9
    assert price <= epsilon(Grouped(event, times), delta=1e-5) * tolerance + 1e-9
    sampled = epsilon(Subsampled(event, HALF), delta=1e-5)
    assert sampled <= epsilon(Subsampled(event, ONE), delta=1e-5) * tolerance + 1e-9


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(_events(Fraction(1, 10**7), Fraction(10**4), 2))
def test_extreme_events_are_priced_or_priceless_but_never_crash(event: Event) -> None:
    price = epsilon(event, delta=1e-6)
    assert price >= 0
    assert 0 <= delta(event, epsilon=1) <= 1
    assert fits(event, epsilon=1, delta=1e-6) <= (price <= 1 + 1e-3)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.sampled_from([0, 1, 50])), min_size=2, max_size=7),
    st.floats(0, 1),
)
def test_mixtures_are_priced_from_above_and_closely(parts: list[tuple[int, int]], share: float) -> None:
    """Every mixture of (ε, δ) events, against all its outcomes."""
    at = share * sum(own for own, _ in parts) / 100
    kept = math.prod(1 - lost / 1000 for _, lost in parts)
    truth = 1 - kept
    for signs in itertools.product((1, -1), repeat=len(parts)):
        loss = sum(sign * own / 100 for sign, (own, _) in zip(signs, parts, strict=True))
        chance = math.prod(1 / (1 + math.exp(-sign * own / 100)) for sign, (own, _) in zip(signs, parts, strict=True))
        truth += kept * chance * max(0.0, -math.expm1(at - loss))
    event = Composed(tuple(ApproximateDP(Fraction(own, 100), Fraction(lost, 1000)) for own, lost in parts))
    assert truth - 1e-14 <= delta(event, epsilon=at) <= truth * 1.01 + 1e-9


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────

Rows = tuple[int, ...]
Run = Callable[[Rows, Noise], Hashable]
EPSILONS = (0, Fraction(1, 4), HALF, ONE, Fraction(3, 2), Fraction(5, 2), 4)


def worst(run: Run, pairs: Iterable[tuple[Rows, Rows]], at: Any) -> float:
    """A lower bound on the exact δ(ε) of a mechanism over the given neighbours."""

    @cache
    def law_of(rows: Rows) -> Law:
        return law(lambda noise: run(rows, noise))

    return max(exact(law_of(a), law_of(b)).delta(at)[0] for a, b in pairs)


def neighbours(size: int, values: int = 2) -> list[tuple[Rows, Rows]]:
    """All pairs that differ in one row; a divergence looks both ways."""
    every = itertools.product(range(values), repeat=size)
    return [(a, b) for a, b in itertools.combinations(every, 2) if sum(x != y for x, y in zip(a, b, strict=True)) == 1]


def covered(run: Run, event: Event, pairs: Sequence[tuple[Rows, Rows]]) -> bool:
    """Whether the exact δ stays within the accountant's at every ε looked at."""
    return all(worst(run, pairs, at) <= delta(event, epsilon=at) + 1e-15 for at in EPSILONS)


def respond(bit: int, rate: Fraction, noise: Noise) -> int:
    """Randomized response: the bit with odds e^rate."""
    return int(noise.choose([1 - bit, bit], rate=rate))


def test_randomized_response_attains_optimal_composition() -> None:
    def run(rows: Rows, noise: Noise, rate: Fraction = HALF) -> Hashable:
        return tuple(respond(rows[0], rate, noise) for _ in range(5))

    event = Repeated(PureDP(HALF), 5)
    assert covered(run, event, neighbours(1))
    for at in EPSILONS:
        assert worst(run, neighbours(1), at) == pytest.approx(delta(event, epsilon=at), rel=1e-10, abs=1e-15)
    assert not covered(lambda rows, noise: run(rows, noise, Fraction(51, 100)), event, neighbours(1))


def test_approximate_events_attain_optimal_composition() -> None:
    lost = Fraction(1, 100)

    def run(rows: Rows, noise: Noise, chance: Fraction = lost) -> Hashable:
        return tuple((rows[0], "lost") if noise.bernoulli(chance) else respond(rows[0], HALF, noise) for _ in range(3))

    event = Repeated(ApproximateDP(HALF, lost), 3)
    assert covered(run, event, neighbours(1))
    assert worst(run, neighbours(1), ONE) == pytest.approx(delta(event, epsilon=1), rel=1e-10)
    assert not covered(lambda rows, noise: run(rows, noise, Fraction(11, 1000)), event, neighbours(1))


def test_sparse_vector_runs_lose_their_delta_once() -> None:
    lost = Fraction(1, 100)

    def run(rows: Rows, noise: Noise, chance: Fraction = lost) -> Hashable:
        if noise.bernoulli(chance):
            return rows
        return tuple(respond(rows[0], HALF, noise) for _ in range(3))

    assert covered(run, SparseVectorRun(HALF, 3, lost), neighbours(1))
    assert not covered(lambda rows, noise: run(rows, noise, 2 * lost), SparseVectorRun(HALF, 3, lost), neighbours(1))


def test_discrete_gaussian_counts_composed_twice() -> None:
    def run(rows: Rows, noise: Noise, sigma: Fraction = ONE) -> Hashable:
        first = rows[0] + noise.discrete_gaussian(sigma)
        # the second query depends on the first answer: the count or its negative
        return first, (rows[0] if first > 0 else -rows[0]) + noise.discrete_gaussian(sigma)

    event = Repeated(DiscreteGaussian(ONE), 2)
    assert covered(run, event, neighbours(1))
    at_one = worst(run, neighbours(1), ONE)
    assert at_one == pytest.approx(delta(event, epsilon=1), rel=1e-3)
    assert not covered(lambda rows, noise: run(rows, noise, Fraction(9, 10)), event, neighbours(1))


def test_noise_of_squared_sensitivity_two_is_two_units() -> None:
    def run(rows: Rows, noise: Noise) -> Hashable:
        return rows[0] + noise.discrete_gaussian(ONE), 1 - rows[0] + noise.discrete_gaussian(ONE)

    assert covered(run, DiscreteGaussian(ONE, 2), neighbours(1))
    assert not covered(run, DiscreteGaussian(ONE, 1), neighbours(1))


def test_exponential_mechanism_composed() -> None:
    def run(rows: Rows, noise: Noise, rate: Fraction = HALF) -> Hashable:
        # scores of sensitivity 1 (counts of the candidates), weights e^(ε·score/2) with ε = 1, three times, adaptively
        outcomes: list[int] = []
        for _ in range(3):
            shift = sum(outcomes)
            scores = [sum(row == (candidate + shift) % 3 for row in rows) for candidate in range(3)]
            outcomes.append(int(noise.choose(scores, rate=rate)))
        return tuple(outcomes)

    event = Repeated(BoundedRange(ONE), 3)
    pairs = neighbours(2, values=3)
    assert covered(run, event, pairs)
    assert not covered(lambda rows, noise: run(rows, noise, ONE), event, pairs)


def test_bounded_range_is_cheaper_than_pure() -> None:
    """At equal ε the range is what is bounded: twice randomized response has range 2ε, and exceeds it."""

    def run(rows: Rows, noise: Noise) -> Hashable:
        return tuple(respond(rows[0], ONE, noise) for _ in range(3))

    assert covered(run, Repeated(PureDP(ONE), 3), neighbours(1))
    assert not covered(run, Repeated(BoundedRange(ONE), 3), neighbours(1))


@pytest.mark.slow
def test_a_mixture_of_kinds() -> None:
    def run(rows: Rows, noise: Noise, sigma: Fraction = Fraction(3, 2)) -> Hashable:
        answer = respond(rows[0], HALF, noise)
        count = rows[0] + noise.discrete_gaussian(sigma)
        pick = int(noise.choose([rows[0], 1 - rows[0]], rate=HALF))
        lost = rows if noise.bernoulli(Fraction(1, 50)) else respond(rows[0], TENTH, noise)
        return answer, count, pick, lost

    event = Composed(
        (PureDP(HALF), DiscreteGaussian(Fraction(3, 2)), PureDP(HALF), ApproximateDP(TENTH, Fraction(1, 50)))
    )
    assert covered(run, event, neighbours(1))
    assert worst(run, neighbours(1), ONE) == pytest.approx(delta(event, epsilon=1), rel=0.02)
    assert not covered(lambda rows, noise: run(rows, noise, Fraction(5, 4)), event, neighbours(1))


def test_a_subset_in_random_order_is_amplified_and_one_in_index_order_is_not() -> None:
    """Three rows, two drawn, each answered by itself. Kept in index order, dropping a row moves the others."""
    size, drawn = 3, 2

    def run(rows: Rows, noise: Noise) -> Hashable:
        return tuple(respond(rows[i], ONE, noise) for i in noise.subset(size, drawn))

    def in_index_order(rows: Rows, noise: Noise) -> Hashable:
        return tuple(respond(rows[i], ONE, noise) for i in sorted(noise.subset(size, drawn)))

    def exposing_the_indices(rows: Rows, noise: Noise) -> Hashable:
        return tuple((int(i), respond(rows[i], ONE, noise)) for i in noise.subset(size, drawn))

    event = Subsampled(PureDP(ONE), Fraction(drawn, size))
    amplified = epsilon(event, delta=0)
    pairs = neighbours(size)
    assert covered(run, event, pairs)
    assert worst(run, pairs, amplified) == 0.0
    assert worst(run, pairs, amplified - 0.01) > 0  # attained
    assert worst(in_index_order, pairs, amplified) > 0.005
    assert worst(exposing_the_indices, pairs, amplified) > 0.01


@pytest.mark.slow
def test_sampling_a_mechanism_with_delta() -> None:
    def run(rows: Rows, noise: Noise, drawn: int = 1) -> Hashable:
        chosen = [rows[i] for i in noise.subset(3, drawn)]
        total: int = sum(chosen) + noise.discrete_gaussian(ONE)
        return total

    event = Subsampled(DiscreteGaussian(ONE), Fraction(1, 3))
    pairs = [((0, 0, 0), (1, 0, 0)), ((0, 1, 1), (1, 1, 1))]
    assert covered(run, event, pairs)
    assert not covered(lambda rows, noise: run(rows, noise, 2), event, pairs)
    twice = Repeated(event, 2)
    assert covered(lambda rows, noise: (run(rows, noise), run(rows, noise)), twice, pairs)
    assert not covered(lambda rows, noise: (run(rows, noise), run(rows, noise, 2)), twice, pairs)


@pytest.mark.slow
def test_groups_see_more() -> None:
    def run(rows: Rows, noise: Noise) -> Hashable:
        return tuple(respond(row, HALF, noise) for row in rows), sum(rows) + noise.discrete_gaussian(Fraction(2))

    event = Composed((PureDP(HALF), DiscreteGaussian(Fraction(2))))
    pair_of_rows = [((0, 0), (1, 1)), ((1, 1), (0, 0)), ((0, 1), (1, 0))]
    assert covered(run, event, neighbours(2))
    assert covered(run, Grouped(event, 2), pair_of_rows)
    assert not covered(run, event, pair_of_rows)


def test_groups_of_approximate_events() -> None:
    lost = Fraction(1, 50)

    def run(rows: Rows, noise: Noise) -> Hashable:
        return tuple((row, "lost") if noise.bernoulli(lost) else respond(row, HALF, noise) for row in rows)

    event = ApproximateDP(HALF, lost)
    assert covered(run, event, neighbours(2))
    assert covered(run, Grouped(event, 2), [((0, 0), (1, 1)), ((1, 1), (0, 0))])
    assert covered(run, Grouped(SparseVectorRun(HALF, 1, lost), 2), [((0, 0), (1, 1)), ((1, 1), (0, 0))])
    assert not covered(run, event, [((0, 0), (1, 1))])


def test_disjoint_rows_cost_the_most_of_their_events() -> None:
    def run(rows: Rows, noise: Noise) -> Hashable:
        return respond(rows[0], ONE, noise), rows[1] + noise.discrete_gaussian(ONE)

    def overlapping(rows: Rows, noise: Noise) -> Hashable:
        return respond(rows[0], ONE, noise), rows[0] + noise.discrete_gaussian(ONE)

    event = Parallel((PureDP(ONE), DiscreteGaussian(ONE)))
    assert covered(run, event, neighbours(2))
    assert not covered(overlapping, event, neighbours(2))


# ── the one-bit answer, against the best adversary there is ───────────────────────────────────────────────────────

def bit_chances(sigma: Fraction, voters: int) -> list[float]:
    """P(answer 1) at every count of votes, from the real comparison of the real noise."""
    half = Fraction(voters, 2)
    return [
        law(lambda noise, v=v: noise.gaussian_cell(sigma, [math.ceil(half - v)]) == 1).probability(True)  # type: ignore[misc]
        for v in range(voters + 1)
    ]


def game_value(chances: list[float], answers: int, at: float) -> float:
    """The δ that the best adversary gets who picks every query in the light of the answers: backward induction."""
    moves = [pair for a, b in itertools.pairwise(chances) for pair in ((a, b), (b, a))]

    @cache
    def value(left: int, ratio: float) -> float:
        if left == 0:
            return max(0.0, ratio - math.exp(at))
        best = value(left - 1, ratio)
        for p, q in moves:
            gain = p * value(left - 1, ratio * q / p) + (1 - p) * value(left - 1, ratio * (1 - q) / (1 - p))
            best = max(best, gain)
        return best

    return value(answers, 1.0)


@pytest.mark.parametrize(("halves", "voters", "answers"), [(2, 2, 4), (2, 3, 3), (4, 4, 3), (3, 6, 2), (2, 5, 1)])
def test_no_adversary_beats_the_price_of_bits(halves: int, voters: int, answers: int) -> None:
    own = Fraction(halves, 2)
    chances = bit_chances(own, voters)
    event = Repeated(GaussianBit(own, voters), answers)
    weaker = Repeated(GaussianBit(own * Fraction(3, 2), voters), answers)
    for at in (0.0, 0.5, 1.0, 2.0):
        value = game_value(chances, answers, at)
        assert value <= delta(event, epsilon=at) + 1e-12
        assert value > delta(weaker, epsilon=at)  # the twin: the price of more noise than there was


def test_bits_are_not_two_over_pi_zcdp() -> None:
    """The twin: (2/π)·ρ as zCDP would promise less δ than a single bit at its worst count has."""
    sigma, voters, at = ONE, 12, 3.0
    value = game_value(bit_chances(sigma, voters), 1, at)
    claimed = float(divergences.deltas(ZCDP(Fraction(2 / math.pi) * HALF), np.array([at]))[0])
    assert claimed < value <= delta(GaussianBit(sigma, voters), epsilon=at) + 1e-12


@pytest.mark.slow
def test_many_bits_are_cheaper_than_their_counts() -> None:
    sigma = Fraction(100)
    bits, counts = (Repeated(event, 1000) for event in (GaussianBit(sigma, 1000), DiscreteGaussian(sigma)))
    assert epsilon(bits, delta=1e-6) < 0.86 * epsilon(counts, delta=1e-6)
