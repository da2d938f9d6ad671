"""Uniform integers, orders, subsets, coins and cells; what is refused, and how."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from math import exp
from typing import Any

import numpy as np
import pytest
from goodness import ACCEPT, REJECT, fits, gaussian_exponent, laplace_exponent, probabilities
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scripted import Scripted

import reticent.noise
from reticent.noise import Noise, Seeded, system


@pytest.fixture
def noise() -> Noise:
    return Seeded(unsafe_seed=5)


# ── uniform ───────────────────────────────────────────────────────────────────────────────────────────────────────

BOUNDS = [1, 2, 3, 10, 255, 256, 257, 65_537]


@pytest.mark.parametrize("bound", BOUNDS)
def test_uniform_is_uniform(bound: int, noise: Noise) -> None:
    draws = noise.uniform(bound, 200_000)
    assert draws.dtype == np.int64
    if bound == 1:
        assert not draws.any()
        return
    assert fits(np.bincount(draws, minlength=bound), np.full(bound, 1 / bound)) > ACCEPT
    few = [noise.uniform(bound) for _ in range(5_000)]
    assert fits(np.bincount(few, minlength=bound), np.full(bound, 1 / bound)) > ACCEPT


def test_twin_uniform_by_remainder_is_rejected(noise: Noise) -> None:
    twin = noise.random_words(np.uint8, 200_000) % np.uint8(100)
    assert fits(np.bincount(twin, minlength=100), np.full(100, 0.01)) < REJECT
    assert fits(np.bincount(noise.uniform(100, 200_000), minlength=100), np.full(100, 0.01)) > ACCEPT


@pytest.mark.parametrize(
    ("bound", "dtype"),
    [
        (2**31 + 1, np.int64),
        (2**63 - 1, np.int64),
        (2**63, np.int64),
        (2**63 + 1, np.uint64),
        (2**64, np.uint64),
        (2**64 + 1, object),
        (3**200, object),
    ],
)
def test_uniform_of_any_width(bound: int, dtype: type, noise: Noise) -> None:
    draws = noise.uniform(bound, 20_000)
    assert draws.dtype == dtype
    assert all(0 <= draw < bound for draw in draws.tolist())
    for values in (draws.tolist(), [noise.uniform(bound) for _ in range(3_000)]):
        assert fits(np.bincount([value * 50 // bound for value in values], minlength=50), np.full(50, 0.02)) > ACCEPT
        assert fits(np.bincount([value % 7 for value in values], minlength=7), np.full(7, 1 / 7)) > ACCEPT


def test_uniform_draws_again_while_the_bits_are_not_below_the_bound() -> None:
    assert Scripted([0b111 << 5, 0b101 << 5, 0b010 << 5]).uniform(5) == 2
    assert Scripted([int.from_bytes(bytes([7 << 5, 1 << 5])), 4 << 5]).uniform(5, 2).tolist() == [1, 4]


@given(st.integers(1, 2**130), st.integers(0, 40))
def test_uniform_stays_in_range(bound: int, size: int) -> None:
    draws = system.uniform(bound, size)
    assert draws.shape == (size,)
    assert all(0 <= draw < bound for draw in draws.tolist())


# ── orders and subsets ────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(("n", "k"), [(4, 4), (4, 3), (5, 2), (6, 1), (3, 2)])
def test_every_ordered_subset_is_equally_likely(n: int, k: int, noise: Noise) -> None:
    tuples = list(permutations(range(n), k))
    drawn = Counter(tuple(noise.subset(n, k).tolist()) for _ in range(100 * len(tuples)))
    assert set(drawn) <= set(tuples)
    assert fits([drawn[t] for t in tuples], np.full(len(tuples), 1 / len(tuples))) > ACCEPT


def test_twin_a_subset_kept_in_index_order_is_rejected(noise: Noise) -> None:
    tuples = list(permutations(range(5), 2))
    drawn = Counter(tuple(np.sort(noise.subset(5, 2)).tolist()) for _ in range(2_000))
    assert fits([drawn[t] for t in tuples], np.full(len(tuples), 1 / len(tuples))) < REJECT


def test_every_order_is_equally_likely(noise: Noise) -> None:
    orders = list(permutations(range(4)))
    drawn = Counter(tuple(noise.permutation(4).tolist()) for _ in range(4_800))
    assert fits([drawn[order] for order in orders], np.full(24, 1 / 24)) > ACCEPT


def test_keys_that_tie_are_drawn_again() -> None:
    keys = [(5, 9, 5), (3, 1, 2)]
    script = Scripted(sum(key << 64 * i for i, key in enumerate(triple)) for triple in keys)
    assert script.permutation(3).tolist() == [1, 2, 0]
    assert not script.answers


@given(st.integers(0, 300), st.data())
def test_subsets_are_distinct_and_in_range(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    found = system.subset(n, k)
    assert found.dtype == np.int64
    assert len(set(found.tolist())) == k == len(found)
    assert all(0 <= index < n for index in found.tolist())
    assert sorted(system.permutation(n).tolist()) == list(range(n))


def test_large_subsets(noise: Noise) -> None:
    few = noise.subset(10**12, 1000)
    assert fits(np.bincount(few // 10**11, minlength=10), np.full(10, 0.1)) > ACCEPT
    first = noise.subset(200_000, 100_000)
    assert len(np.unique(first)) == 100_000
    assert fits(np.bincount(first // 20_000, minlength=10), np.full(10, 0.1)) > ACCEPT
    assert abs(np.corrcoef(first, np.arange(100_000))[0, 1]) < 0.02


# ── coins ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(1, 3), Fraction(999, 1000), Fraction(1, 10**6)])
def test_bernoulli(probability: Fraction, noise: Noise) -> None:
    heads = sum(noise.bernoulli(probability) for _ in range(10_000))
    assert fits([heads, 10_000 - heads], [float(probability), float(1 - probability)]) > ACCEPT or probability < 1e-5
    assert [noise.bernoulli(Fraction(p)) for p in (0, 1)] == [False, True]


@pytest.mark.parametrize("gamma", [Fraction(1, 1000), Fraction(1, 3), 0.5, 1, 3, Fraction(10)])
def test_bernoulli_exp(gamma: Any, noise: Noise) -> None:
    coins = noise.bernoulli_exp(gamma, 300_000)
    assert coins.dtype == np.bool_
    assert fits([coins.sum(), (~coins).sum()], [exp(-gamma), 1 - exp(-gamma)]) > ACCEPT
    assert isinstance(noise.bernoulli_exp(gamma), bool)


def test_bernoulli_exp_at_the_ends(noise: Noise) -> None:
    assert noise.bernoulli_exp(Fraction(0), 10).all()
    assert not noise.bernoulli_exp(Fraction(10) ** 400, 10).any()
    assert noise.bernoulli_exp(Fraction(1, 10**400), 10).all()
    assert not noise.bernoulli_exp(Fraction(10**400))


def test_bernoulli_exp_settles_ties_by_further_words() -> None:
    """The first word is the one that e^−1 begins with; the second decides."""
    with mp.workprec(300):
        cut = int(mp.floor(mp.exp(-1) * mpf(2) ** 128))
    word, second = cut >> 64, cut & (1 << 64) - 1
    assert Scripted([word, second - 2]).bernoulli_exp(Fraction(1), 1).tolist() == [True]
    assert Scripted([word, second + 2]).bernoulli_exp(Fraction(1), 1).tolist() == [False]


# ── two-sided noise, as the class offers it ───────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("size", [None, 0, 1, 100_000])
@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace"])
def test_shapes_and_types(law: str, size: int | None, noise: Noise) -> None:
    draw = getattr(noise, law)(3, size)
    if size is None:
        assert type(draw) is int
    else:
        assert (draw.dtype, draw.shape) == (np.int64, (size,))


@pytest.mark.parametrize("scale", [2.5, "5/2", np.float64(2.5), Fraction(5, 2)])
def test_scales_are_exact_numbers_however_written(scale: Any) -> None:
    scale = Fraction(scale) if isinstance(scale, str) else scale
    expected = Seeded(unsafe_seed=1).discrete_gaussian(Fraction(5, 2), 1000)
    assert (Seeded(unsafe_seed=1).discrete_gaussian(scale, 1000) == expected).all()


CELL_LAWS: list[tuple[str, Callable[[int], Any]]] = [
    ("laplace_cell", laplace_exponent(Fraction(3))),
    ("gaussian_cell", gaussian_exponent(Fraction(3))),
]


@pytest.mark.parametrize(("method", "exponent"), CELL_LAWS)
@pytest.mark.parametrize("cuts", [[0], [-4, 0, 5], [-2, -2, 3], [], [140]])
def test_a_cell_counts_the_cuts_that_are_reached(
    method: str, exponent: Callable[[int], Any], cuts: list[int], noise: Noise
) -> None:
    cells = [getattr(noise, method)(Fraction(3), cuts) for _ in range(5_000)]
    counts = np.bincount(cells, minlength=len(cuts) + 1)
    law = np.array(probabilities(exponent, cuts, 150) if cuts else [1.0])
    assert (counts[law < 1e-9] == 0).all()
    if (law > 1e-9).sum() > 1:
        assert fits(counts[law > 1e-9], law[law > 1e-9]) > ACCEPT
        # twin: > in place of ≥
        twin = np.array(probabilities(exponent, [cut + 1 for cut in cuts], 150))
        assert fits(100 * counts[law > 1e-9], twin[law > 1e-9]) < REJECT


def test_cells_must_ascend(noise: Noise) -> None:
    with pytest.raises(ValueError, match="cuts must be ascending"):
        noise.laplace_cell(Fraction(1), [3, 2])


def test_the_module_offers_the_system_noise() -> None:
    assert type(system) is Noise
    assert -10_000 < reticent.noise.discrete_gaussian(Fraction(10)) < 10_000
    assert -10_000 < reticent.noise.discrete_laplace(Fraction(10)) < 10_000
    assert reticent.noise.uniform(1) == 0
    assert reticent.noise.bernoulli_exp(Fraction(0)) is True
    assert reticent.noise.choose([1], rate=Fraction(1)) == 0
    assert reticent.noise.permutation(1).tolist() == reticent.noise.subset(1, 1).tolist() == [0]


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

NOT_POSITIVE: st.SearchStrategy[Any] = st.one_of(
    st.just(0), st.integers(max_value=0), st.floats(max_value=0), st.fractions(max_value=0), st.just(-math.inf)
)
NOT_FINITE: st.SearchStrategy[Any] = st.sampled_from([math.nan, math.inf, np.float64("nan"), np.float32("inf")])
NOT_NUMBERS: st.SearchStrategy[Any] = st.sampled_from([None, "1", True, [1], 1j, {}])


@pytest.mark.slow
@given(NOT_POSITIVE | NOT_FINITE | NOT_NUMBERS)
def test_scales_must_be_finite_and_positive(scale: Any) -> None:
    for law, name in ((system.discrete_gaussian, "sigma"), (system.discrete_laplace, "scale")):
        for size in (None, 3):
            with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
                law(scale, size)


@given(st.floats(max_value=-1e-300) | st.fractions(max_value=0).filter(bool) | NOT_FINITE | NOT_NUMBERS)
def test_gamma_and_rate_must_be_finite_and_not_negative(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="gamma must be"):
        system.bernoulli_exp(value)
    with pytest.raises((TypeError, ValueError), match="rate must be"):
        system.choose([1, 2], rate=value)


@given(st.floats(min_value=1.0001) | st.floats(max_value=-1e-300) | NOT_FINITE | NOT_NUMBERS)
def test_probabilities_lie_between_zero_and_one(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="probability must be"):
        system.bernoulli(value)


@given(st.integers(max_value=0) | st.floats() | NOT_NUMBERS)
def test_bounds_are_positive_integers(bound: Any) -> None:
    for size in (None, 2):
        with pytest.raises((TypeError, ValueError), match="bound must be"):
            system.uniform(bound, size)


@given(st.integers(max_value=-1) | st.floats() | st.sampled_from(["1", True, [1], 1j]))
def test_sizes_are_whole_numbers(size: Any) -> None:
    draws: list[Callable[[], Any]] = [
        lambda: system.uniform(2, size),
        lambda: system.bernoulli_exp(Fraction(1), size),
        lambda: system.discrete_gaussian(Fraction(1), size),
        lambda: system.discrete_laplace(Fraction(1), size),
    ]
    for draw in draws:
        with pytest.raises((TypeError, ValueError), match="size must be"):
            draw()
    with pytest.raises((TypeError, ValueError), match="n must be"):
        system.permutation(size)
    with pytest.raises((TypeError, ValueError), match="k must be"):
        system.subset(5, size)


def test_a_subset_has_no_more_than_all() -> None:
    with pytest.raises(ValueError, match="k must be at most 5, got 6"):
        system.subset(5, 6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.fractions(Fraction(1, 10**30), 10**30) | st.floats(1e-300, 1e300))
def test_any_positive_scale_will_do(scale: Any) -> None:
    assert type(system.discrete_gaussian(scale)) is int
    assert type(system.discrete_laplace(scale)) is int
    assert system.discrete_laplace(scale, 2).shape == (2,)
