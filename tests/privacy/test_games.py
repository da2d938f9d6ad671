from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.privacy import calibrate, delta, divergences, epsilon, games
from reticent.privacy.events import ContinuousGaussian, DiscreteGaussian, GaussianBit, Repeated
from reticent.privacy.games import Coins, profile

Pair = tuple[Fraction, Fraction]


def swapped(chances: list[Fraction]) -> list[Pair]:
    return [pair for here, there in pairwise(chances) for pair in ((here, there), (there, here))]


def coins(pairs: list[Pair]) -> Coins:
    ratios = [sorted((math.log(q / p), math.log((1 - q) / (1 - p)))) for p, q in pairs]
    return Coins(np.array([high for _, high in ratios]), np.array([-low for low, _ in ratios]))


def true_value(pairs: list[Pair], answers: int, at: Fraction) -> Fraction:
    """The most that any adaptive strategy attains at e^ε = `at`, by trying them all, in fractions."""

    @cache
    def best(left: int, ratio: Fraction) -> Fraction:
        if left == 0:
            return max(ratio - at, Fraction(0))
        return max(
            p * best(left - 1, ratio * q / p) + (1 - p) * best(left - 1, ratio * (1 - q) / (1 - p)) for p, q in pairs
        )

    return best(answers, Fraction(1))


chance = st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=50)


@pytest.mark.slow
@given(st.lists(chance, min_size=2, max_size=4), st.integers(1, 4), st.fractions(1, 4, max_denominator=8))
@settings(max_examples=60, deadline=None)
def test_the_value_is_never_below_that_of_the_best_strategy(
    chances: list[Fraction], answers: int, at: Fraction
) -> None:
    pairs = swapped(chances)
    truth = true_value(pairs, answers, at)
    found = profile(coins(pairs), answers).delta(math.log(at))
    assert float(truth) * (1 - 1e-12) <= found <= float(truth) * 1.05 + 0.01


@pytest.mark.parametrize(("teachers", "answers"), [(8, 3), (6, 4), (4, 5), (3, 6), (2, 6)])
def test_a_table_of_votes_against_all_adaptive_strategies(teachers: int, answers: int) -> None:
    """Never below the truth, and within a few parts in a hundred of it."""
    chances = [Fraction(v + 1, teachers + 2) for v in range(teachers + 1)]
    pairs = swapped(chances)
    found = profile(coins(pairs), answers)
    for at in (Fraction(1), Fraction(3, 2), Fraction(3), Fraction(8)):
        truth = float(true_value(pairs, answers, at))
        assert truth * (1 - 1e-12) <= found.delta(math.log(at)) <= truth * 1.02 + 1e-3
    less = profile(coins(swapped([(c + 2) / 5 for c in chances])), answers)  # the twin: coins that are more alike
    assert less.delta(math.log(1.5)) < float(true_value(pairs, answers, Fraction(3, 2)))


def test_a_pair_within_another_changes_nothing_and_one_that_is_left_out_does() -> None:
    wide, narrow = (math.log(2), math.log(3)), (math.log(1.9), math.log(1.5))

    def value(*pairs: tuple[float, float]) -> float:
        return profile(Coins(*np.array(pairs).T), 4).delta(1.0)

    assert value(wide, narrow) == value(wide)
    assert value(narrow) < value(wide)
    assert value(wide, (math.log(4), math.log(1.2))) > value(wide)


def test_the_polygon_around_the_pairs_contains_them() -> None:
    """Convexity in (p, p' − p): with a coarse polygon the value is larger than with all pairs, and not by much."""
    x = np.arange(1, 200)
    p = 1 / (1 + np.exp(x / 30.0))
    q = 1 / (1 + np.exp((x - 1) / 30.0))
    given_ = Coins(np.log(q / p), -np.log((1 - q) / (1 - p)))
    rough, fine = games._outline(given_, 100), games._outline(given_, 1)
    assert len(rough[0]) < len(fine[0]) / 3
    values = [games.Profile(*games._values(*chosen, 60), 0.0).delta(0.3) for chosen in (rough, fine)]
    assert values[1] * (1 - 5e-3) <= values[0] <= values[1] * 1.05  # their grids differ a little
    for up, down in zip(given_.up, given_.down, strict=True):  # under every edge of the polygon
        corners = [(0.0, 0.0), *sorted(point(u, d) for u, d in zip(*rough, strict=True)), (1.0, 0.0)]
        place, height = point(up, down)
        assert height <= float(np.interp(place, *np.array(corners).T)) * (1 + 1e-12)


def point(up: float, down: float) -> tuple[float, float]:
    rise, fall = math.expm1(up), -math.expm1(-down)
    return fall / (rise + fall), rise * fall / (rise + fall)


def test_a_pair_that_is_not_listed_is_paid_for() -> None:
    few = [(Fraction(1, 3), Fraction(1, 2)), (Fraction(1, 2), Fraction(1, 3))]
    rare = (Fraction(1, 1000), Fraction(1, 100))
    pairs = [*few, rare, rare[::-1]]
    for answers in (1, 3, 5):
        truth = float(true_value(pairs, answers, Fraction(2)))
        listed = coins(few)
        assert profile(listed._replace(lost=0.01), answers).delta(math.log(2)) >= truth
        assert profile(listed, answers).delta(math.log(2)) < truth  # the twin: as if it were not there


# ── one-bit answers ───────────────────────────────────────────────────────────────────────────────────────────────


def bit_pairs(sigma: Fraction, voters: int) -> list[Pair]:
    z = np.arange(-400, 401)
    mass = np.exp(-((z / float(sigma)) ** 2) / 2)
    mass /= mass.sum()
    return swapped([Fraction(float(mass[z >= (voters + 1) // 2 - v].sum())) for v in range(voters + 1)])


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "voters", "answers"), [(1, 4, 4), (2, 7, 3), (3, 8, 3), (1, 1, 5), (0.5, 2, 4)])
def test_bits_are_priced_from_above_and_closely(sigma: float, voters: int, answers: int) -> None:
    exact = Fraction(str(sigma))
    event = Repeated(GaussianBit(exact, voters), answers)
    for at in (Fraction(1), Fraction(2), Fraction(5)):
        truth = float(true_value(bit_pairs(exact, voters), answers, at))
        price = delta(event, epsilon=math.log(at))
        assert truth - 1e-12 <= price <= truth * 1.02 + 1e-4
        weaker = Repeated(GaussianBit(exact * Fraction(11, 10), voters), answers)  # the twin: a tenth more noise
        assert delta(weaker, epsilon=math.log(at)) < truth


@pytest.mark.slow
@pytest.mark.parametrize(("answers", "gain"), [(1, 0.99), (10, 1.36), (30, 1.47), (100, 1.52)])
def test_only_the_bit_leaves(answers: int, gain: float) -> None:
    """How many more answers the game allows than the noisy counts; the limit is π/2."""

    def sigma(event: Any) -> float:
        return float(calibrate.noise(event, epsilon=1, delta=1e-6, digits=4))

    bit = sigma(lambda sigma: Repeated(GaussianBit(sigma, 10**6), answers))
    count = sigma(lambda sigma: Repeated(ContinuousGaussian(sigma), answers))
    assert gain <= (count / bit) ** 2 < math.pi / 2


def test_never_dearer_than_divergences_or_the_count() -> None:
    for sigma, answers in ((5, 2), (20, 30), (60, 300), (100, 1000)):
        event = Repeated(GaussianBit(Fraction(sigma), 1000), answers)
        price = epsilon(event, delta=1e-6)
        assert price <= divergences.renyi_epsilon(event, 1e-6)
        assert price <= epsilon(Repeated(DiscreteGaussian(Fraction(sigma)), answers), delta=1e-6) * (1 + 5e-3)
        assert delta(event, epsilon=price) <= 1e-6 * (1 + 1e-9)


@pytest.mark.slow
def test_prices_fall_with_epsilon_and_grow_with_answers() -> None:
    found = [games.gaussian_bits(Fraction(20), 500, answers) for answers in (1, 5, 25, 49, 51, 100)]
    at = np.linspace(0, 6, 200)
    curves = np.array([each.deltas(at) for each in found])
    assert bool((np.diff(curves, axis=1) <= 1e-15).all())
    assert bool((np.diff(curves[:, :60], axis=0) > 0).all())
    assert bool((curves <= 1).all())
    assert bool(np.isfinite(found[0].deltas(np.array([0.0, 50.0, 600.0, 1e300]))).all())


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [Fraction(1, 4), Fraction(1, 3), Fraction(700)])
@pytest.mark.parametrize("voters", [1, 2, 10**9])
def test_the_ends_of_what_is_played(sigma: Fraction, voters: int) -> None:
    for answers in (2, 60):
        values = games.gaussian_bits(sigma, voters, answers).deltas(np.array([0.0, 1.0, 30.0]))
        assert bool(((values >= 0) & (values <= 1)).all())
        alone = delta(GaussianBit(sigma, voters), epsilon=1)
        assert values[1] >= alone * (1 - 1e-9)
