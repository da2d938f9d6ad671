"""Privacy losses on a grid never fall below the truth, at any count and at any δ; and what would."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.privacy import profiles
from reticent.privacy.floats import Floats
from reticent.privacy.losses import Composition, Losses, dominating, spread_on_grid


def _response(epsilon: float, step: float) -> Losses:
    chance = 1 / (1 + math.exp(-epsilon))
    return spread_on_grid(np.array([epsilon, -epsilon]), np.array([chance, math.exp(-epsilon) * chance]), step)


def _gaussian(sigma: int, step: float) -> Losses:
    def profile(at: Floats) -> Floats:
        return profiles.gaussian(Fraction(1, sigma**2), at)

    return dominating(profile, step, math.ceil((16 / sigma + 1 / sigma**2) / step))


def _curve(losses: Losses, epsilon: float) -> float:
    gains = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses.grid, 0.0)))
    return losses.infinite + float(losses.masses @ gains)


# ── onto the grid ─────────────────────────────────────────────────────────────────────────────────────────────────

@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 1)), min_size=1, max_size=6),
    st.floats(0.01, 1),
    st.floats(-4, 4),
)
def test_spreading_only_raises_the_curve(atoms: list[tuple[float, float]], step: float, epsilon: float) -> None:
    losses, weights = np.array([loss for loss, _ in atoms]), np.array([weight for _, weight in atoms])
    truth = float(weights @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0))))
    on_grid = spread_on_grid(losses, weights, step)
    assert _curve(on_grid, epsilon) >= truth * (1 - 1e-13)
    assert on_grid.masses.sum() == pytest.approx(weights.sum(), rel=1e-12)


def test_rounding_losses_down_is_caught() -> None:
    """The twin: masses moved to the grid point below lower the curve."""
    losses, weights, step = np.array([0.95, -0.95]), np.array([0.72, 0.28]), 0.25
    cells = np.floor(losses / step).astype(int)
    down = Losses(step, int(cells.min()), np.bincount(cells - cells.min(), weights).astype(np.float64))
    truth = float(weights @ np.maximum(0.0, -np.expm1(np.minimum(0.1 - losses, 0.0))))
    assert _curve(down, 0.1) < truth <= _curve(spread_on_grid(losses, weights, step), 0.1)


@pytest.mark.parametrize("step", [0.3, 0.05, 0.004])
def test_a_dominating_measure_lies_over_the_profile_on_both_sides(step: float) -> None:
    losses = _gaussian(2, step)
    for epsilon in np.linspace(0, 4, 83):
        truth = float(profiles.gaussian(Fraction(1, 4), np.array([epsilon]))[0])
        mirrored = -math.expm1(-epsilon) + math.exp(-epsilon) * truth
        assert _curve(losses, epsilon) >= truth * (1 - 1e-14)
        assert _curve(losses, -epsilon) >= mirrored * (1 - 1e-13)


def test_a_profile_that_is_not_convex_is_still_dominated() -> None:
    def profile(at: Floats) -> Floats:
        return np.minimum(0.3 * np.exp(-at), np.where(at > 1, 0.05, 0.25))

    losses = dominating(profile, 0.01, 400)
    for epsilon in np.linspace(0, 4, 401):
        assert _curve(losses, float(epsilon)) >= 0.999999999 * profile(np.array([epsilon]))[0]


# ── composed ──────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(
    ("epsilon", "times"), [("1", 2), ("1/2", 10), ("1/10", 100), ("1/100", 10**4), ("1/1000", 10**6)]
)
def test_pure_compositions_match_the_binomial_sum(epsilon: str, times: int) -> None:
    own = Fraction(epsilon)
    composition = Composition([(_response(float(own), float(own) / 2), times)])
    for at in (0.1, 1.0, 3.0, 5.0, 7.5, 9.0):
        truth = profiles.optimal_composition(own, times, at)
        if 1e-30 < truth < 0.5:
            value = float(composition.deltas(np.array([at]))[0])
            assert truth * (1 - 1e-12) <= value <= truth * (1 + 1e-4)


@pytest.mark.parametrize(("sigma", "times"), [(1, 2), (10, 100), (10, 1000), (100, 10**4)])
def test_gaussian_compositions_match_the_closed_form(sigma: int, times: int) -> None:
    composition = Composition([(_gaussian(sigma, 1 / (20 * sigma)), times)])
    for at in (0.1, 1.0, 3.0, 5.0, 8.0, 20.0, 29.0):
        truth = float(profiles.gaussian(Fraction(times, sigma**2), np.array([at]))[0])
        if 1e-30 < truth < 0.5:
            value = float(composition.deltas(np.array([at]))[0])
            assert truth * (1 - 1e-12) <= value <= truth * 1.03


def test_many_epsilons_at_once_and_the_inverse() -> None:
    composition = Composition([(_response(0.1, 0.05), 10), (_response(0.2, 0.05), 10)])
    points = np.linspace(0, 3, 31)
    together = composition.deltas(points)
    for at, value in zip(points, together, strict=True):
        alone = float(composition.deltas(np.array([at]))[0])
        assert alone * (1 - 1e-9) <= value <= alone * (1 + 1e-6) + 1e-15
    for delta in (1e-2, 1e-6, 1e-10):
        epsilon = composition.epsilon(delta, 1.0)
        assert composition.deltas(np.array([epsilon * (1 + 1e-9)]))[0] <= delta * (1 + 1e-6)
        assert composition.deltas(np.array([epsilon * (1 - 1e-6)]))[0] > delta


def test_mass_at_infinity_is_never_forgiven() -> None:
    lossy = Losses(0.1, -1, np.array([0.5, 0.0, 0.499]), infinite=1e-3)
    composition = Composition([(lossy, 10)])
    assert composition.infinite == pytest.approx(1 - (1 - 1e-3) ** 10, rel=1e-3)
    assert composition.epsilon(5e-3, 1.0) == math.inf
    assert composition.deltas(np.array([50.0]))[0] >= 1 - (1 - 1e-3) ** 10


# ── against the oracle, and where it errs ─────────────────────────────────────────────────────────────────────────

def _oracle(epsilon: float, times: int, step: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    parameters = common.DifferentialPrivacyParameters(epsilon, 0)
    single = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=step)
    return single.self_compose(times)


def test_mixtures_agree_with_dp_accounting() -> None:
    ours = Composition([(_response(0.1, 0.05), 10), (_response(0.2, 0.05), 10)])
    theirs = _oracle(0.1, 10, 0.05).compose(_oracle(0.2, 10, 0.05))
    for at in (0.5, 1.0, 2.0, 2.5):
        assert ours.deltas(np.array([at]))[0] == pytest.approx(theirs.get_delta_for_epsilon(at), rel=1e-7)
    assert ours.epsilon(1e-6, 1.0) == pytest.approx(theirs.get_epsilon_for_delta(1e-6), abs=1e-9)


def test_an_untilted_transform_without_padding_falls_below_the_truth() -> None:
    """The twin is dp-accounting's estimate, called pessimistic: at δ near 1e-13 its rounding even makes it negative."""
    own, times, points = Fraction(1, 100), 10**4, np.linspace(7.5, 9, 40)
    truth = np.array([profiles.optimal_composition(own, times, float(at)) for at in points])
    theirs = np.array([_oracle(0.01, times, 0.01).get_delta_for_epsilon(at) for at in points.tolist()])
    assert np.any(theirs < truth)
    ours = np.array([Composition([(_response(0.01, 0.01), times)]).deltas(points[[i]])[0] for i in range(len(points))])
    assert np.all(truth <= ours)
    assert np.all(ours <= truth * (1 + 1e-6))
