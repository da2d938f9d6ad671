"""Calibration: what it returns fits, and the next step does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from reticent.privacy import calibrate, fits
from reticent.privacy.events import (
    ApproximateDP,
    BoundedRange,
    Composed,
    ContinuousGaussian,
    DiscreteGaussian,
    Event,
    GaussianBit,
    Grouped,
    PureDP,
    Repeated,
    SparseVectorRun,
    Subsampled,
)
from reticent.privacy.parameters import LEAST_DELTA

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        PureDP(Fraction(1, 100)),
        ApproximateDP(Fraction(1, 100), Fraction(1, 10**9)),
        BoundedRange(Fraction(1, 50)),
        ContinuousGaussian(Fraction(100)),
        DiscreteGaussian(Fraction(60)),
        GaussianBit(Fraction(100), 1000),
        SparseVectorRun(Fraction(1, 100), 10, Fraction(1, 10**8)),
        Subsampled(DiscreteGaussian(Fraction(10)), Fraction(1, 10)),
        Composed((PureDP(Fraction(1, 100)), DiscreteGaussian(Fraction(100)))),
        Grouped(GaussianBit(Fraction(100), 1000), 2),
    ],
    ids=lambda event: type(event).__name__,
)
def test_the_most_answers_fit_and_one_more_does_not(event: Event) -> None:
    most = calibrate.answers(event, **BUDGET)
    assert most >= 2
    assert fits(Repeated(event, most), **BUDGET)
    assert not fits(Repeated(event, most + 1), **BUDGET)


@pytest.mark.slow
def test_answers_of_known_size() -> None:
    assert calibrate.answers(PureDP(Fraction(1, 10)), epsilon=1) == 10
    assert calibrate.answers(PureDP(Fraction(1, 3)), epsilon=1) == 3
    assert calibrate.answers(PureDP(Fraction(2)), epsilon=1) == 0
    assert calibrate.answers(DiscreteGaussian(Fraction(10)), epsilon=1) == 0
    leaky = ApproximateDP(Fraction(1, 10**9), Fraction(1, 4000))
    assert calibrate.answers(leaky, epsilon=1, delta=Fraction(1, 1000)) == 4
    # μ at ε = 1, δ = 1e-6 is .2367: answers of continuous noise are (σμ)²
    assert calibrate.answers(ContinuousGaussian(Fraction(1000)), **BUDGET) == pytest.approx(0.2367**2 * 10**6, rel=1e-3)
    bit, count = GaussianBit(Fraction(100), 1000), ContinuousGaussian(Fraction(100))
    assert calibrate.answers(bit, **BUDGET) > 1.35 * calibrate.answers(count, **BUDGET)


def test_an_event_that_costs_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="costs almost nothing"):
        calibrate.answers(PureDP(Fraction(1, 10**40)), epsilon=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event_of_sigma", "digits"),
    [
        (lambda sigma: Repeated(ContinuousGaussian(sigma), 1000), 6),
        (lambda sigma: Repeated(DiscreteGaussian(sigma), 1000), 4),
        (lambda sigma: Repeated(GaussianBit(sigma, 1000), 1000), 3),
        (lambda sigma: DiscreteGaussian(sigma, 2), 4),
    ],
)
def test_the_least_noise_fits_and_less_does_not(event_of_sigma: Callable[[Fraction], Event], digits: int) -> None:
    sigma = calibrate.noise(event_of_sigma, **BUDGET, digits=digits)
    unit = Fraction(10) ** (math.floor(math.log10(sigma)) + 1 - digits)
    assert (sigma / unit).denominator == 1
    assert fits(event_of_sigma(sigma), **BUDGET)
    assert not fits(event_of_sigma(sigma - unit), **BUDGET)


def test_noise_of_known_size() -> None:
    assert calibrate.noise(ContinuousGaussian, **BUDGET) == pytest.approx(1 / 0.2367, rel=1e-3)
    assert calibrate.noise(lambda scale: PureDP(1 / scale), epsilon=Fraction(1, 20)) == 20
    assert calibrate.noise(lambda scale: PureDP(1 / scale), epsilon=1000) == Fraction(1, 1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "event_of_sigma",
    [
        DiscreteGaussian,
        lambda sigma: GaussianBit(sigma, 9),
        lambda sigma: DiscreteGaussian(sigma, 5),
        lambda sigma: Repeated(DiscreteGaussian(sigma), 3),
    ],
)
def test_tiny_budgets_have_a_noise_that_fits(event_of_sigma: Callable[[Fraction], Event]) -> None:
    tiny: dict[str, Any] = {"epsilon": 1e-6, "delta": 1e-9}
    assert fits(event_of_sigma(Fraction(10**30)), **tiny)
    sigma = calibrate.noise(event_of_sigma, **tiny, digits=3)
    assert sigma >= calibrate.noise(ContinuousGaussian, **tiny, digits=3)
    assert fits(event_of_sigma(sigma), **tiny)


def test_huge_budgets_are_no_error() -> None:
    assert calibrate.noise(DiscreteGaussian, epsilon=10**400, delta=1e-9) < Fraction(1, 10**29)
    with pytest.raises(ValueError, match="costs almost nothing"):
        calibrate.answers(DiscreteGaussian(Fraction(10)), epsilon=10**400, delta=1e-9)


@pytest.mark.parametrize("event_of_sigma", [ContinuousGaussian, DiscreteGaussian])
@pytest.mark.parametrize("small", [1e-300, 1e-310, Fraction(1, 10**400)])
def test_a_delta_too_small_to_be_certified_is_named(event_of_sigma: Callable[[Fraction], Event], small: Any) -> None:
    """Not the event, which depends on sigma very well."""
    power = {1e-300: "1e-300", 1e-310: "1e-310"}.get(small, "1e-400")
    with pytest.raises(ValueError, match=f"delta={power} is too small: .* no delta below 1e-299 can be certified"):
        calibrate.noise(event_of_sigma, epsilon=1, delta=small)
    assert calibrate.noise(event_of_sigma, epsilon=1, delta=LEAST_DELTA) > 30


def test_noise_that_cannot_help_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no sigma up to 10\^30 can be certified"):
        calibrate.noise(lambda sigma: PureDP(Fraction(2)), epsilon=1)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_bad_budgets_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        calibrate.answers(PureDP(Fraction(1)), epsilon=bad)
    with pytest.raises(ValueError, match="epsilon must be"):
        calibrate.noise(ContinuousGaussian, epsilon=bad)
    with pytest.raises(ValueError, match="delta must be"):
        calibrate.answers(PureDP(Fraction(1)), epsilon=1, delta=1 if bad == 0 else bad)
