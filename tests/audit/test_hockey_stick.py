"""The divergence against brute force over all events, and against closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import BITS, ONE, Law, law
from reticent.exact import exp_fractions

weights = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any)
epsilons = st.fractions(0, 3, max_denominator=10)
OUTPUTS = "abcd"


def normalised(numbers: list[int]) -> dict[str, Fraction]:
    return {output: Fraction(number, sum(numbers)) for output, number in zip(OUTPUTS, numbers, strict=True)}


def brute_force(p: dict[str, Fraction], q: dict[str, Fraction], factor: Fraction) -> Fraction:
    """The definition: the worst event, in either direction."""
    events = chain.from_iterable(combinations(OUTPUTS, size) for size in range(len(OUTPUTS) + 1))
    sums = [(sum(p[o] for o in event), sum(q[o] for o in event)) for event in events]
    return max(max(a - factor * b, b - factor * a) for a, b in sums)


@given(weights, weights, epsilons)
def test_delta_is_the_worst_event(first: list[int], second: list[int], epsilon: Fraction) -> None:
    p, q = normalised(first), normalised(second)
    lower, upper = exact(p, q).delta(epsilon)
    low, high = exp_fractions(epsilon, 300)
    assert Fraction(lower) <= brute_force(p, q, low)
    assert Fraction(upper) >= brute_force(p, q, high)
    assert upper - lower < 1e-15


@given(weights, weights, st.fractions(0, 1, max_denominator=50).filter(lambda delta: delta < 1))
def test_epsilon_is_the_inverse_of_delta(first: list[int], second: list[int], delta: Fraction) -> None:
    pair = exact(normalised(first), normalised(second))
    lower, upper = pair.epsilon(delta)
    assert lower <= upper
    if upper < math.inf:
        assert upper - lower < 1e-12
        assert pair.delta(upper + 1e-12)[0] <= delta
    else:
        assert pair.delta(50)[1] > delta
    if 1e-9 < lower < math.inf:
        assert pair.delta(lower - 1e-9)[1] > delta


def test_randomized_response_has_the_closed_form() -> None:
    truth, lie = Fraction(3, 4), Fraction(1, 4)
    pair = exact({0: truth, 1: lie}, {0: lie, 1: truth})
    assert pair.epsilon(0) == pytest.approx((math.log(3), math.log(3)))
    assert pair.delta(1)[1] == pytest.approx(0.75 - math.e / 4)
    assert pair.curve([0, 1, 2]) == [pair.delta(0), pair.delta(1), pair.delta(2)]
    assert pair.curve([2])[0] == (0.0, 0.0)


def test_both_directions_count() -> None:
    p, q = {"common": Fraction(1)}, {"common": Fraction(9, 10), "never": Fraction(1, 10)}
    assert exact(p, q).delta(5) == exact(q, p).delta(5) == pytest.approx((0.1, 0.1))
    assert exact(p, q).epsilon(Fraction(1, 10)) == (0.0, 0.0)
    assert exact(p, q).epsilon(Fraction(1, 20))[1] == math.inf


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(3)])
def test_discrete_laplace_is_pure(scale: Fraction) -> None:
    first, second = (law(lambda noise, n=n: n + noise.discrete_laplace(scale)) for n in (0, 1))  # type: ignore[misc]
    pair = exact(first, second)
    assert pair.delta(1 / scale)[1] < 2**-78
    assert pair.epsilon(0)[0] == pytest.approx(float(1 / scale))
    assert pair.epsilon(0)[1] == math.inf, "what was not walked might be anything"
    a = math.exp(-1 / scale)
    assert pair.delta(0)[1] == pytest.approx((1 - a) / (1 + a)), "the total variation distance is P(Z = 0)"
    at_delta = pair.epsilon(Fraction(1, 10**9))
    assert at_delta[1] - at_delta[0] < 1e-12


def test_the_discrete_gaussian_has_a_curve() -> None:
    """The loss of output z is (2z − 1)/2σ², so δ(ε) sums P(z) − e^ε·P(z − 1) over z > εσ² + 1/2."""
    first, second = (law(lambda noise, n=n: n + noise.discrete_gaussian(Fraction(2))) for n in (0, 1))  # type: ignore[misc]
    weight = [math.exp(-z * z / 8) for z in range(-60, 61)]
    p = [w / sum(weight) for w in weight]
    for epsilon in (0.1, 0.5, 1.0):
        expected = sum(max(0.0, p[i] - math.exp(epsilon) * p[i - 1]) for i in range(1, 121))
        expected = max(expected, sum(max(0.0, p[i - 1] - math.exp(epsilon) * p[i]) for i in range(1, 121)))
        assert exact(first, second).delta(epsilon) == pytest.approx((expected, expected), rel=1e-9)


@pytest.mark.slow
@given(weights, weights, weights, weights, epsilons)
def test_intervals_enclose_every_law_within_them(
    first: list[int], second: list[int], other_first: list[int], other_second: list[int], epsilon: Fraction
) -> None:
    """Bounds that hold two laws each: the divergence of all four pairs lies in the enclosure."""
    ps, qs = [normalised(first), normalised(other_first)], [normalised(second), normalised(other_second)]
    p, q = ({o: (min(a[o], b[o]), max(a[o], b[o])) for o in OUTPUTS} for a, b in (ps, qs))
    lower, upper = exact(p, q).delta(epsilon)
    for pair in (exact(a, b) for a in ps for b in qs):
        assert lower <= pair.delta(epsilon)[1]
        assert pair.delta(epsilon)[0] <= upper
        assert exact(p, q).epsilon(Fraction(1, 10))[0] <= pair.epsilon(Fraction(1, 10))[1]
        assert pair.epsilon(Fraction(1, 10))[0] <= exact(p, q).epsilon(Fraction(1, 10))[1]


@pytest.mark.slow
@given(weights, weights, st.integers(0, 3), st.integers(0, 3), epsilons)
def test_missing_mass_may_be_anywhere(
    first: list[int], second: list[int], here: int, there: int, epsilon: Fraction
) -> None:
    """Hide a tenth of each law: wherever it is put back, the divergence lies in the enclosure."""
    p, q = normalised(first), normalised(second)
    hidden = []
    for stated in (p, q):
        units = {output: int(probability * 9 / 10 * ONE) for output, probability in stated.items()}
        hidden.append(Law(dict(units), {o: u + 1 for o, u in units.items()}, ONE // 10 + 5))
    lower, upper = exact(*hidden).delta(epsilon)
    full = [{o: p * 9 / 10 for o, p in stated.items()} for stated in (p, q)]
    full[0][OUTPUTS[here]] += Fraction(1, 10)
    full[1][OUTPUTS[there]] += Fraction(1, 10)
    restored = exact(*full)
    assert lower <= restored.delta(epsilon)[1]
    assert restored.delta(epsilon)[0] <= upper
    assert exact(*hidden).epsilon(Fraction(1, 5))[0] <= restored.epsilon(Fraction(1, 5))[1]
    assert restored.epsilon(Fraction(1, 5))[0] <= exact(*hidden).epsilon(Fraction(1, 5))[1]


def test_rounding_is_outward() -> None:
    third = exact({0: Fraction(1, 3), 1: Fraction(2, 3)}, {0: Fraction(0), 1: Fraction(1)})
    lower, upper = third.delta(1)
    assert Fraction(lower) < Fraction(1, 3) < Fraction(upper)
    assert upper - lower < 1e-15
    assert BITS == 256


@pytest.mark.parametrize("epsilon", [-1, math.nan, math.inf, "1", None])
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="epsilon must be"):
        exact({0: Fraction(1)}, {0: Fraction(1)}).delta(epsilon)


@pytest.mark.parametrize("delta", [-1, 1, math.nan, "0"])
def test_bad_delta(delta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="delta must be"):
        exact({0: Fraction(1)}, {0: Fraction(1)}).epsilon(delta)
