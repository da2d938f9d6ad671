"""`settle` finds the cell of a number that it reads lazily; `exp_coin` and `exp_cut` agree with e^−γ."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import exp

import pytest
from goodness import ACCEPT, REJECT, fits, real
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scripted import Scripted

from reticent.noise import Seeded
from reticent.noise.bits import Cuts, exp_coin, exp_cut, settle


def cuts_at(*points: Fraction, slack: int = 0) -> Callable[[int], Cuts]:
    """Enclosures of the given points, `slack` units wider than they need be."""

    def cuts(precision: int) -> Cuts:
        scaled = [point * (1 << precision) for point in points]
        return [int(s // 1) - slack for s in scaled], [int(-(-s // 1)) + slack for s in scaled], 0

    return cuts


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.fractions(0, 1, max_denominator=10**6), min_size=1, max_size=6).map(sorted),
    st.integers(0, 2**20 - 1),
    st.integers(1, 20),
    st.integers(0, 3),
)
def test_settle_finds_the_cell_whatever_the_precision(
    points: list[Fraction], number: int, precision: int, slack: int
) -> None:
    """U = number/2^20 is dealt out as `precision` bits first, the rest in the next word, and the cell is U's."""
    rest = 20 - precision
    later = [(number & ((1 << rest) - 1)) << (64 - rest), *(1 << 63 for _ in range(8))]  # ends in 1000…, off every cut
    found = settle(Scripted(later), number >> rest, precision, cuts_at(*points, slack=slack))
    reached = sum(point <= Fraction(number, 2**20) for point in points)
    just_above = sum(point <= Fraction(number, 2**20) + Fraction(1, 2 ** (21 + 44)) for point in points)
    assert reached <= found <= just_above


def test_settle_reads_on_only_while_the_cell_is_open() -> None:
    third = cuts_at(Fraction(1, 3))
    assert settle(Scripted([]), 0b00, 2, third) == 0
    assert settle(Scripted([]), 0b10, 2, third) == 1
    opening = int("01" * 4, 2)  # 1/3 = 0.0101…
    tail = int("01" * 32, 2)
    assert settle(Scripted([tail - 1]), opening, 8, third) == 0
    assert settle(Scripted([tail + 1]), opening, 8, third) == 1
    assert settle(Scripted([tail, tail, tail + 1]), opening, 8, third) == 1
    assert settle(Scripted([tail, tail, tail - 1]), opening, 8, third) == 0


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.fractions(0, 500, max_denominator=10**6), st.sampled_from([1, 8, 64, 128, 256]))
@example(Fraction(0), 64)
@example(Fraction(10**400), 64)
@example(Fraction(1, 10**400), 64)
@example(Fraction(64), 64)
def test_exp_cut_encloses(gamma: Fraction, precision: int) -> None:
    low, high = exp_cut(gamma, precision)
    with mp.workprec(3000):
        assert low <= mp.exp(-real(gamma)) * mpf(2) ** precision <= high
    assert 0 <= low <= high <= 1 << precision
    assert high - low <= 3


GAMMAS = [Fraction(0), Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(5)]


@pytest.mark.parametrize("gamma", GAMMAS)
def test_exp_coin_has_probability_e_to_the_minus_gamma(gamma: Fraction) -> None:
    noise = Seeded(unsafe_seed=1)
    heads = sum(exp_coin(noise, gamma.numerator, gamma.denominator) for _ in range(10_000))
    assert heads == 10_000 if gamma == 0 else fits([heads, 10_000 - heads], [exp(-gamma), 1 - exp(-gamma)]) > ACCEPT


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1)])
def test_a_coin_that_goes_on_from_a_first_success(gamma: Fraction) -> None:
    """P(odd | first trial succeeded) = (e^−γ − (1 − γ))/γ."""
    noise = Seeded(unsafe_seed=2)
    heads = sum(exp_coin(noise, gamma.numerator, gamma.denominator, 2) for _ in range(10_000))
    share = (exp(-gamma) - (1 - float(gamma))) / float(gamma)
    assert fits([heads, 10_000 - heads], [share, 1 - share]) > ACCEPT


def test_twin_a_coin_that_stops_its_series_early_is_rejected() -> None:
    """Twin: 1 − γ + γ²/2 at γ = 1."""
    noise = Seeded(unsafe_seed=3)
    heads = sum(noise.bernoulli(Fraction(1, 2)) for _ in range(10_000))
    assert fits([heads, 10_000 - heads], [exp(-1), 1 - exp(-1)]) < REJECT
