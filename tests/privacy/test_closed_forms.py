"""Closed forms against independent computations: many digits, brute force, and laws that attain them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.privacy import divergences, profiles
from reticent.privacy.events import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    DiscreteGaussian,
    GaussianBit,
    Parallel,
    PureDP,
    Repeated,
    SparseVectorRun,
    Subsampled,
)
from reticent.privacy.survival import survival


def _at(profile: Callable[..., object], *arguments: object) -> float:
    *head, epsilon = arguments
    return float(np.asarray(profile(*head, np.array([float(epsilon)])))[0])  # type: ignore[arg-type]


# ── Gaussian ──────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 60), st.floats(0, 40))
def test_gaussian_is_an_upper_bound_to_thirteen_digits(mu: float, scale: float) -> None:
    epsilon = scale * min(mu, 5)
    with mpmath.workdps(400):
        m, e = mpmath.sqrt(mpmath.mpf(mu) ** 2), mpmath.mpf(epsilon)
        truth = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        value = _at(profiles.gaussian, Fraction(mu) ** 2, epsilon)
        assert value >= truth
        if truth > 1e-30 and mu > 0.5:
            assert value <= truth * (1 + mpmath.mpf(10) ** -12)


def test_gaussian_composition_costs_nothing_in_the_count() -> None:
    assert _at(profiles.gaussian, Fraction(10**30, 10**30), 1.0) == _at(profiles.gaussian, Fraction(1), 1.0)


# ── optimal composition ───────────────────────────────────────────────────────────────────────────────────────────

def _randomized_response_composed(epsilon: float, times: int, at: float) -> float:
    chance = 1 / (1 + math.exp(-epsilon))
    total = 0.0
    for kept in itertools.product((True, False), repeat=times):
        p = math.prod(chance if keep else 1 - chance for keep in kept)
        q = math.prod(1 - chance if keep else chance for keep in kept)
        total += max(0.0, p - math.exp(at) * q)
    return total


@pytest.mark.parametrize("epsilon", ["1/10", "1", "5/2"])
@pytest.mark.parametrize("times", [1, 2, 5, 9])
@pytest.mark.parametrize("share", [0, 0.13, 0.5, 0.9, 0.999])
def test_optimal_composition_is_randomized_response(epsilon: str, times: int, share: float) -> None:
    own = Fraction(epsilon)
    at = share * float(own) * times
    truth = _randomized_response_composed(float(own), times, at)
    value = profiles.optimal_composition(own, times, at)
    assert truth * (1 - 1e-11) - 1e-15 <= value <= truth * (1 + 1e-11) + 1e-15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "times", "at"), [("1/1000", 10**6, 5.0), ("1/100", 10**4, 7.5), ("1/10", 300, 25.0)]
)
def test_optimal_composition_keeps_its_digits_at_large_counts(epsilon: str, times: int, at: float) -> None:
    own = Fraction(epsilon)
    last = math.ceil((times - Fraction(at) / own) / 2) - 1
    with mpmath.workdps(50):
        e = mpmath.mpf(own.numerator) / own.denominator
        p = 1 / (1 + mpmath.exp(-e))
        term = mpmath.exp(
            mpmath.loggamma(times + 1)
            - mpmath.loggamma(last + 1)
            - mpmath.loggamma(times - last + 1)
            + (times - last) * mpmath.log(p)
            + last * mpmath.log(1 - p)
        )
        truth = mpmath.mpf(0)
        for j in range(last, max(-1, last - 12_000), -1):
            truth += term * (1 - mpmath.exp(at - (times - 2 * j) * e))
            term *= mpmath.mpf(j) / (times - j + 1) * mpmath.exp(e)
        value = profiles.optimal_composition(own, times, at)
        assert truth <= value <= truth * (1 + mpmath.mpf(10) ** -9)


def test_optimal_composition_of_a_million_is_quick_and_beats_advanced_composition() -> None:
    epsilon, times, delta = 1e-3, 10**6, 1e-6
    at = 4.886543743759
    assert profiles.optimal_composition(Fraction(1, 1000), times, at) <= delta
    advanced = math.sqrt(2 * times * math.log(1 / delta)) * epsilon + times * epsilon * math.expm1(epsilon)
    assert at < advanced


# ── bounded range ─────────────────────────────────────────────────────────────────────────────────────────────────

def _two_points(epsilon: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """The law of a loss that takes only the ends of [end − ε, end]: chances under P and the losses."""
    low, high = math.exp(-end), math.exp(epsilon - end)
    chance = (high - 1) / (high - low)
    return np.array([chance, 1 - chance]), np.array([end, end - epsilon])


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_bounded_range_is_attained_and_never_exceeded(epsilon: float) -> None:
    own = Fraction(str(epsilon))
    orders = np.array([1.01, 1.5, 2.0, 10.0, 100.0])
    bound = divergences.divergence(BoundedRange(own), orders)[1]
    reached = np.zeros_like(orders)
    for end in np.linspace(0, epsilon, 4001)[1:-1]:
        chances, losses = _two_points(epsilon, end)
        moments = (chances[:, None] * np.exp(losses[:, None] * (orders - 1))).sum(0)
        reached = np.maximum(reached, np.log(moments) / (orders - 1))
        for at in (0.0, epsilon / 3):
            gain = float(chances @ np.maximum(0, -np.expm1(at - losses)))
            assert gain <= _at(profiles.bounded_range, own, at) * (1 + 1e-9)
    assert np.all(reached <= bound * (1 + 1e-9))
    assert np.all(bound <= reached * (1 + 1e-5))
    assert np.all(bound <= orders * epsilon**2 / 8 * (1 + 1e-9))


def test_bounded_range_at_zero_is_the_total_variation_of_the_exponential_mechanism() -> None:
    assert _at(profiles.bounded_range, Fraction(1), 0.0) == pytest.approx(math.tanh(1 / 4), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 30.0])
def test_divergence_of_pure_events_is_that_of_randomized_response(epsilon: float) -> None:
    with mpmath.workdps(60):
        e = mpmath.mpf(str(epsilon))
        p = 1 / (1 + mpmath.exp(-e))
        for order in (1.001, 2.0, 17.0, 400.0):
            a = mpmath.mpf(order)
            truth = mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
            value = divergences.divergence(PureDP(Fraction(str(epsilon))), np.array([order]))[1][0]
            assert truth <= value <= truth * (1 + mpmath.mpf(10) ** -9)


# ── discrete Gaussian ─────────────────────────────────────────────────────────────────────────────────────────────

def _tails(sigma: Fraction, reach: int) -> list[mpmath.mpf]:
    """P(noise ≥ z) for z = −reach … reach, to 60 digits."""
    last = reach + 60 * math.ceil(sigma) + 60
    precision = (mpmath.mpf(sigma.denominator) / sigma.numerator) ** 2
    weights = {z: mpmath.exp(-precision * z * z / 2) for z in range(last)}
    total = weights[0] + 2 * mpmath.fsum(weights[z] for z in range(1, last))
    tails = [mpmath.fsum(weights[abs(z)] for z in range(-reach, last)) / total]
    for z in range(-reach, reach):
        tails.append(tails[-1] - weights[abs(z)] / total)
    return tails


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(2), Fraction(15, 2)])
def test_the_table_of_tails_is_as_exact_as_it_says(sigma: Fraction) -> None:
    table = survival(sigma)
    assert table is not None
    with mpmath.workdps(400):
        for z, truth in enumerate(_tails(sigma, min(12, table.reach))[min(12, table.reach) :]):
            assert abs(table.above[z] - truth) <= table.error * truth


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(3)])
def test_discrete_gaussian_profile_is_exact(sigma: Fraction) -> None:
    reach = 40
    with mpmath.workdps(60):
        tails = _tails(sigma, reach)
        mass = [tails[i] - tails[i + 1] for i in range(2 * reach)]
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            grow = mpmath.exp(epsilon)
            truth = mpmath.fsum(max(mpmath.mpf(0), a - grow * b) for a, b in itertools.pairwise(mass))
            values = profiles.discrete_gaussian(sigma, np.array([epsilon]))
            assert values is not None
            assert truth <= values[0] <= truth * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(10) ** -15


# ── the one-bit answer ────────────────────────────────────────────────────────────────────────────────────────────

def _largest_bit_divergence(sigma: Fraction, voters: int, order: float) -> mpmath.mpf:
    """Over all counts and both directions, straight from the definition."""
    reach = voters // 2 + 2
    tails = _tails(sigma, reach)
    chances = [tails[reach + math.ceil(Fraction(voters, 2) - v)] for v in range(voters + 1)]
    a = mpmath.mpf(order)
    worst = mpmath.mpf(0)
    for p, q in itertools.pairwise(chances):
        for x, y in ((p, q), (q, p)):
            worst = max(worst, mpmath.log(x**a * y ** (1 - a) + (1 - x) ** a * (1 - y) ** (1 - a)) / (a - 1))
    return worst


@pytest.mark.parametrize(("sigma", "voters"), [("1", 1), ("1", 4), ("2", 7), ("3/2", 30), ("5", 61), ("9", 200)])
@pytest.mark.parametrize("order", [1.05, 2.0, 6.0, 25.0])
def test_the_bit_is_priced_at_its_worst_count(sigma: str, voters: int, order: float) -> None:
    own = Fraction(sigma)
    with mpmath.workdps(60):
        truth = _largest_bit_divergence(own, voters, order)
    value = divergences.divergence(GaussianBit(own, voters), np.array([order]))[1][0]
    assert truth <= value * (1 + 1e-12)
    assert value <= float(truth) * (1 + 1e-8)
    assert value <= order / (2 * float(own) ** 2) * (1 + 1e-12)


def test_cutting_off_far_counts_changes_nothing() -> None:
    few = divergences.divergence(GaussianBit(Fraction(20), 1000), np.array([2.0, 20.0]))[1]
    many = divergences.divergence(GaussianBit(Fraction(20), 10**9), np.array([2.0, 20.0]))[1]
    assert np.all(few <= many * (1 + 1e-12))
    assert np.all(many <= few * (1 + 1e-9))


def test_two_thirds_of_the_gaussian_price_at_low_orders_but_not_at_high_ones() -> None:
    """The twin: 2/π of ρ as zCDP would claim 2/π at every order, and is exceeded."""
    sigma = Fraction(10)
    orders = np.array([2.0, 22.0, 100.0])
    shares = divergences.divergence(GaussianBit(sigma, 10_000), orders)[1] / (orders / 200)
    assert shares[0] == pytest.approx(2 / math.pi, abs=0.005)
    assert shares[1] == pytest.approx(0.697, abs=0.005)
    assert shares[2] == pytest.approx(0.956, abs=0.005)
    assert np.all(shares <= 1 + 1e-12)


def test_a_scale_beyond_every_table_costs_what_the_count_would() -> None:
    huge = Fraction(10**7)
    assert divergences.divergence(GaussianBit(huge, 10**9), np.array([3.0]))[1][0] == pytest.approx(3 / 2e14, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "epsilon"), [("0.0554", 170), ("0.1", 60), ("0.1", 260), ("1", 700), ("3", 100)])
def test_no_tail_is_beyond_price(sigma: str, epsilon: int) -> None:
    """Where the table of the noise ends, δ is bounded by what it ends with; cut off there, it would come out as 0."""
    square = Fraction(sigma) ** 2
    with mpmath.workdps(1000):
        weight = [mpmath.exp(-mpmath.mpf(z * z) * square.denominator / (2 * square.numerator)) for z in range(1500)]
        total = 2 * mpmath.fsum(weight) - 1
        t = math.floor(epsilon * square - Fraction(1, 2)) + 1
        truth = (mpmath.fsum(weight[t:]) - mpmath.exp(epsilon) * mpmath.fsum(weight[t + 1 :])) / total
        price = profiles.discrete_gaussian(Fraction(sigma), np.array([float(epsilon)]))
        assert price is not None
        assert truth > 0
        assert mpmath.mpf(float(price[0])) >= truth


@pytest.mark.parametrize("sigma", ["2", "2.3", "5", "60", "3000"])
def test_wide_noise_is_bounded_without_a_table(sigma: str) -> None:
    """The bound for large σ, where σ still has a table. The twin, continuous noise alone, promises too little."""
    own = Fraction(sigma)
    at = np.linspace(0, 8, 4001) / float(own)
    truth, wide = profiles.discrete_gaussian(own, at), profiles.wide_discrete_gaussian(own, at)
    table = survival(own)
    assert truth is not None
    assert table is not None
    assert np.all(wide >= truth - 8 * table.error)  # as much as the table pads
    twin = profiles.gaussian(1 / own**2, at)
    if own <= 60:
        assert np.any(twin < truth * (1 - 1e-6) - 1e-12)
    else:
        assert np.all(wide <= truth * 1.01 + 1e-7)


# ── where floats end ──────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("digits", [100, 150, 160, 162, 165, 200, 310, 400])
@pytest.mark.parametrize("order", [1.001, 2.0, 23.0, 1e6])
def test_no_divergence_is_rounded_down_to_nothing(digits: int, order: float) -> None:
    """The twin takes the formula as floats give it, and falls below the truth, down to zero."""
    own = Fraction(3, 10**digits)
    with mpmath.workdps(1000):
        a, e = mpmath.mpf(order), mpmath.mpf(own.numerator) / own.denominator
        truth = mpmath.log(mpmath.cosh((a - 0.5) * e) / mpmath.cosh(e / 2)) / (a - 1)
        for event, share in (
            (PureDP(own), 1),
            (BoundedRange(own), Fraction(1, 4)),
            (SparseVectorRun(own, 10**100), 10**100),
            (Subsampled(PureDP(own), Fraction(1)), 1),
            (Parallel((PureDP(own),)), 1),
            (Repeated(PureDP(own), 10**30), 10**30),
            (ZCDP(own**2 / 2), 1),
            (DiscreteGaussian(1 / own), 1),
            (GaussianBit(1 / own, 3), Fraction(6, 10)),
        ):
            value = divergences.divergence(event, np.array([order]))[1][0]
            assert mpmath.mpf(float(value)) >= truth * share.numerator / share.denominator * (1 - mpmath.mpf(10) ** -12)
        if digits >= 200:
            with np.errstate(under="ignore"):
                twin = 2 * np.sinh(order * float(own) / 2) * np.sinh((order - 1) * float(own) / 2) / (order - 1)
            assert mpmath.mpf(float(twin)) < truth


def test_total_variation_is_above_that_of_the_noise() -> None:
    for sigma in (Fraction(1), Fraction(7), Fraction(100)):
        table = survival(sigma)
        assert table is not None
        bound = divergences.total_variation(DiscreteGaussian(sigma))
        assert table.mass[0] * (1 - table.error) <= bound <= 1.3 * table.mass[0]
        assert bound**2 < table.mass[0]  # the twin, Pinsker's inequality without its root
    assert divergences.total_variation(ApproximateDP(Fraction(1, 10**9), Fraction(1, 2))) == 1
