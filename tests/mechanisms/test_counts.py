"""Noisy counts: exact laws against the claim, broken twins, sums at the edge of 64 bits, bad input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal

from reticent.audit import exact, law
from reticent.mechanisms.counts import add_noise, gaussian_count, integer_array, laplace_count, laplace_tail
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting
from reticent.privacy.events import DiscreteGaussian, PureDP, is_seeded

TAIL = 1e-9  # more than the mass of the noise that is not walked
Mechanism = Callable[[Noise, Any], Any]


def worst(mechanism: Mechanism, pairs: Iterable[tuple[Any, Any]], epsilon: Any) -> tuple[float, float]:
    """Certified bounds on the worst exact δ at ε over the pairs."""
    bounds = [
        exact(*(law(lambda noise, data=data: mechanism(noise, data), tail_bits=32) for data in pair)).delta(epsilon)  # type: ignore[misc]
        for pair in pairs
    ]
    return max(lower for lower, _ in bounds), max(upper for _, upper in bounds)


# ── Laplace ───────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(1), Fraction(5, 2)])
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_laplace_count_is_pure(epsilon: Fraction, sensitivity: int) -> None:
    def real(noise: Noise, count: int) -> int:
        return laplace_count(count, epsilon=epsilon, sensitivity=sensitivity, unsafe_noise=noise).value

    pairs = [(7, 7 + moved) for moved in range(1, sensitivity + 1)]
    assert worst(real, pairs, epsilon)[1] < TAIL
    assert worst(real, pairs, epsilon * Fraction(99, 100))[0] > TAIL  # and not a bit more private than it says


@pytest.mark.slow
def test_laplace_histogram_is_pure_at_sensitivity_two_and_its_twins_are_not() -> None:
    epsilon = Fraction(3)

    def histogram(scale: Fraction) -> Mechanism:
        return lambda noise, counts: tuple(add_noise(np.array(counts), noise.discrete_laplace, scale).tolist())

    def real(noise: Noise, counts: tuple[int, ...]) -> Any:
        return tuple(laplace_count(counts, epsilon=epsilon, sensitivity=2, unsafe_noise=noise).value.tolist())

    pairs = [((4, 2), (3, 3)), ((0, 0), (1, 0)), ((5, 1), (5, 0))]
    assert worst(real, pairs, epsilon)[1] < TAIL
    assert worst(histogram(2 / epsilon), pairs, epsilon)[1] < TAIL
    assert worst(histogram(2 / epsilon * Fraction(7, 10)), pairs, epsilon)[0] > 0.01  # noise × 0.7
    assert worst(histogram(1 / epsilon), pairs, epsilon)[0] > 0.1  # a histogram taken for a single count


def test_laplace_tail_is_the_least_that_keeps_the_probability() -> None:
    for rate in (Fraction(1, 10), Fraction(1), Fraction(7), Fraction(10**9)):
        for probability in (Fraction(1, 10**6), Fraction(1, 3), Fraction(1, 2), Fraction(999, 1000)):
            reach = laplace_tail(rate=rate, probability=probability)
            over = 1 / (1 + math.exp(-rate))
            assert over * math.exp(-rate * reach) <= probability * (1 + 1e-12)
            assert reach == 0 or over * math.exp(-rate * (reach - 1)) > probability * (1 - 1e-12)


# ── Gaussian ──────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(5, 2)])
def test_gaussian_count_costs_no_more_than_its_event(sigma: Fraction) -> None:
    def real(noise: Noise, count: int) -> int:
        return gaussian_count(count, sigma=sigma, unsafe_noise=noise).value

    event = gaussian_count(0, sigma=sigma).event
    for epsilon in (Fraction(1, 4), Fraction(1), Fraction(2)):
        claim = accounting.delta(event, epsilon=epsilon)
        lower, upper = worst(real, [(5, 6)], epsilon)
        assert upper <= claim + TAIL
        assert lower > claim / 3


def test_gaussian_histogram_and_its_twins() -> None:
    sigma, epsilon = Fraction(3, 2), Fraction(3, 2)
    claim = accounting.delta(DiscreteGaussian(sigma, squared_sensitivity=2), epsilon=epsilon)

    def histogram(sigma: Fraction) -> Mechanism:
        return lambda noise, counts: tuple(add_noise(np.array(counts), noise.discrete_gaussian, sigma).tolist())

    def real(noise: Noise, counts: tuple[int, ...]) -> Any:
        return tuple(gaussian_count(counts, sigma=sigma, squared_sensitivity=2, unsafe_noise=noise).value.tolist())

    pairs = [((4, 2), (3, 3))]
    assert worst(real, pairs, epsilon)[1] <= claim + TAIL
    assert worst(histogram(sigma * Fraction(7, 10)), pairs, epsilon)[0] > claim
    alone = accounting.delta(DiscreteGaussian(sigma, squared_sensitivity=1), epsilon=epsilon)
    assert worst(real, pairs, epsilon)[0] > alone  # a histogram taken for a single count


@pytest.mark.parametrize(("epsilon", "delta", "squared"), [(1, 0.01, 1), (2, 1e-3, 2), (0.5, 0.1, 1)])
def test_gaussian_count_calibrates_itself(epsilon: float, delta: float, squared: int) -> None:
    def run(noise: Noise, count: int) -> int:
        return gaussian_count(
            count, epsilon=epsilon, delta=delta, squared_sensitivity=squared, unsafe_noise=noise
        ).value

    event = gaussian_count(0, epsilon=epsilon, delta=delta, squared_sensitivity=squared).event
    assert isinstance(event, DiscreteGaussian)
    assert event.squared_sensitivity == squared
    assert accounting.delta(event, epsilon=epsilon) <= delta
    assert not accounting.fits(DiscreteGaussian(event.sigma * Fraction(99, 100), squared), epsilon=epsilon, delta=delta)
    assert worst(run, [(5, 5 + math.isqrt(squared))], epsilon)[1] <= delta


# ── what they return ──────────────────────────────────────────────────────────────────────────────────────────────

def test_kinds_of_counts() -> None:
    value, event = laplace_count(10**30, epsilon=1)
    assert type(value) is int
    assert abs(value - 10**30) < 1000
    assert event == PureDP(Fraction(1))
    assert type(gaussian_count(np.int64(5), sigma=2).value) is int  # type: ignore[call-overload]
    table = gaussian_count(np.arange(6).reshape(2, 3), sigma=2, squared_sensitivity=2).value
    assert table.shape == (2, 3)
    assert table.dtype == np.int64
    assert laplace_count([], epsilon=1, sensitivity=2).value.shape == (0,)
    assert laplace_count(np.array([1, 2], dtype=np.uint8), epsilon=1, sensitivity=2).value.dtype == np.int64
    assert is_seeded(laplace_count(1, epsilon=1, unsafe_noise=Seeded(unsafe_seed=1)).event)


def test_sums_stay_inside_64_bits() -> None:
    limits = np.iinfo(np.int64)
    for edge in (limits.max, limits.min):
        value = laplace_count(np.full(1000, edge), epsilon=0.01, sensitivity=2).value
        inward = value < edge if edge > 0 else value > edge
        assert 300 < np.count_nonzero(inward) < 700  # half of the noise points inward, half is stopped at the edge
        assert np.all(np.abs(value[inward].astype(float) - edge) < 1e6)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_NUMBERS: list[Any] = [0, -1, math.nan, math.inf, "1", True, 1j]


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, None])
def test_bad_epsilon(bad: Any) -> None:
    assert "epsilon must be" in refusal(lambda: laplace_count(1, epsilon=bad))


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_bad_sigma_or_budget(bad: Any) -> None:
    assert "sigma must be" in refusal(lambda: gaussian_count(1, sigma=bad))
    assert "epsilon must be" in refusal(lambda: gaussian_count(1, epsilon=bad, delta=0.1))
    assert "delta must be" in refusal(lambda: gaussian_count(1, epsilon=1, delta=1 if bad is True else bad))


def test_sigma_or_epsilon_and_delta() -> None:
    for stated in ({}, {"epsilon": 1}, {"delta": 0.1}, {"sigma": 1, "epsilon": 1}, {"sigma": 1, "delta": 0.1}):
        keywords: dict[str, Any] = stated
        assert "either sigma, or both epsilon and delta" in refusal(lambda k=keywords: gaussian_count(1, **k))  # type: ignore[misc]


@pytest.mark.parametrize("bad", [0, -1, 1.5, "1", True])
def test_bad_sensitivity(bad: Any) -> None:
    assert "sensitivity must be" in refusal(lambda: laplace_count(1, epsilon=1, sensitivity=bad))
    assert "squared_sensitivity must be" in refusal(lambda: gaussian_count(1, sigma=1, squared_sensitivity=bad))


def test_the_sensitivity_of_an_array_must_be_stated() -> None:
    assert "sensitivity must be stated" in refusal(lambda: laplace_count([1, 2], epsilon=1))
    assert "squared_sensitivity must be stated" in refusal(lambda: gaussian_count([1, 2], sigma=1))


@pytest.mark.parametrize("bad", [1.5, True, None, "3", [1.5], [True], [None], ["3"], [2**64], [[1], [1, 2]], {1: 2}])
def test_bad_counts(bad: Any) -> None:
    assert "count must be" in refusal(lambda: laplace_count(bad, epsilon=1, sensitivity=2))
    assert "count must be" in refusal(lambda: gaussian_count(bad, sigma=1, squared_sensitivity=2))


def test_noise_too_wide_for_an_array_is_refused() -> None:
    assert "2^48" in refusal(lambda: laplace_count([1], epsilon=1e-18, sensitivity=2))
    assert isinstance(laplace_count(1, epsilon=1e-30).value, int)


@pytest.mark.slow
@given(
    st.integers() | st.floats() | st.none() | st.lists(st.integers() | st.floats() | st.text(), max_size=3),
    st.floats() | st.floats(0, 10),
    st.integers(-1, 10**40),
)
@settings(max_examples=300, deadline=None)
def test_anything_else_is_answered_or_refused_by_name(count: Any, scale: float, sensitivity: int) -> None:
    for call in (
        lambda: laplace_count(count, epsilon=scale, sensitivity=sensitivity),
        lambda: gaussian_count(count, sigma=scale, squared_sensitivity=sensitivity),
    ):
        message = refusal(call)
        assert not message or any(name in message for name in ("count", "epsilon", "sigma", "sensitivity"))


def test_no_count_is_echoed() -> None:
    for count in (918273645.5, [918273645.5], ["918273645"], [[918273645], [1, 2]]):
        message = refusal(lambda count=count: laplace_count(count, epsilon=1, sensitivity=2))  # type: ignore[misc]
        assert message
        assert "918273645" not in message
    message = refusal(lambda: integer_array([918273645], "votes", least=0, most=5))
    assert message == "votes must be in [0, 5]"


MASKED: Any = np.ma.MaskedArray([1, 2], mask=[True, False])


@pytest.mark.parametrize("count", [3.0, None, "x", [1.5], MASKED])
def test_what_is_no_count_is_called_so(count: Any) -> None:
    with pytest.raises(TypeError, match="count must be whole numbers"):
        laplace_count(count, epsilon=1)
    with pytest.raises(TypeError, match="count must be whole numbers"):
        gaussian_count(count, sigma=1)


def test_a_plain_generator_is_no_noise() -> None:
    with pytest.raises(TypeError, match=r"unsafe_noise must be a Noise, such as noise\.Seeded, got Generator"):
        laplace_count(3, epsilon=1, unsafe_noise=np.random.default_rng(0))  # type: ignore[call-overload]
