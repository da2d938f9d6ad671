"""Rényi divergences of events, and the ε and δ that they certify.

All values are upper bounds, computed in floats and padded by far more than their rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from reticent.exact import upward
from reticent.privacy.events import (
    ApproximateDP,
    BoundedRange,
    Event,
    GaussianBit,
    Parallel,
    PureDP,
    RenyiDP,
    SparseVectorRun,
)
from reticent.privacy.floats import Floats, upward_or_infinite
from reticent.privacy.pairs import pair, rho
from reticent.privacy.parts import parts
from reticent.privacy.survival import Survival, survival

Cost = Callable[[Floats], Floats]
_PAD = 1e-13
_TINY = 1e-290  # added, so that underflow never rounds a divergence down to zero
_FINEST = 100  # orders per decade: the best of them is within 10⁻⁴ of the best of all
_INDICES = range(-3 * _FINEST, 6 * _FINEST + 1)


def order(index: int | NDArray[np.int64]) -> Floats:
    """Return the orders at which divergences are computed: 1 + 10^(index/100)."""
    return np.atleast_1d(1.0 + 10.0 ** (np.asarray(index) / _FINEST))


# ── from divergences to ε and δ ───────────────────────────────────────────────────────────────────────────────────

def epsilon_at(divergences: Floats, orders: Floats, log_delta: float) -> Floats:
    """Return the ε that a divergence of each order certifies at δ (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    with np.errstate(invalid="ignore"):
        terms = (-log_delta - np.log(orders)) / (orders - 1), np.log1p(-1 / orders)
        value = divergences + terms[0] + terms[1]
        pad = _PAD * (divergences + np.abs(terms[0]) + np.abs(terms[1]))
    return np.maximum(np.where(np.isnan(value), np.inf, value + pad), 0.0)


def log_delta_at(divergences: Floats, orders: Floats, epsilons: Floats) -> Floats:
    """Return ln δ that a divergence of each order certifies at each ε: one row per order, one column per ε."""
    gap = (divergences[:, None] - epsilons[None, :]) * (orders - 1)[:, None]
    shape = ((orders - 1) * np.log1p(-1 / orders) - np.log(orders))[:, None]
    return np.asarray(gap + shape + _PAD * (np.abs(gap) + np.abs(shape) + (orders - 1)[:, None] * divergences[:, None]))


def best_order(cost: Cost, rough: Cost | None = None) -> tuple[float, float]:
    """Return the order of the lattice with the least cost, and that cost, by a search that narrows down twice.

    Every order gives a valid bound, so a search that misses the best one is looser, not wrong. So the first rounds may
    use a `rough` cost.

    Parameters
    ----------
    cost : callable
        The cost of each order of an array.
    rough : callable or None, default None
        A faster approximation of it.
    """
    low, high = _INDICES[0], _INDICES[-1]
    for step in (40, 6):
        indices = np.arange(low, high + 1, step)
        best = int(indices[int(np.argmin((rough or cost)(order(indices))))])
        low, high = max(_INDICES[0], best - step), min(_INDICES[-1], best + step)
    while True:
        indices = np.arange(low, high + 1)
        costs = cost(order(indices))
        best = int(indices[int(np.argmin(costs))])
        if _INDICES[0] < best == low:  # the best lies beyond the bracket: move it, and keep one worse order inside
            low, high = max(_INDICES[0], best - (high - low)), best + 1
        elif _INDICES[-1] > best == high:
            low, high = best - 1, min(_INDICES[-1], best + (high - low))
        else:
            return float(order(best)[0]), float(np.min(costs))


def renyi_epsilon(event: Event, delta: float) -> float:
    """Return the least ε that the divergences of an event certify at δ; infinity if they certify none."""
    if total_variation(event) <= delta:
        return 0.0
    left = -upward_or_infinite(divergence(event, order(0))[0] - Fraction(delta))
    if left <= 0:
        return math.inf
    log_delta = math.log(left * (1 - _PAD))

    def cost(orders: Floats, rough: bool = False) -> Floats:
        return epsilon_at(divergence(event, orders, rough=rough)[1], orders, log_delta)

    own = stated_orders(event)
    return min(best_order(cost, partial(cost, rough=True))[1], float(np.min(cost(own), initial=math.inf)))


def deltas(event: Event, epsilons: Floats) -> Floats:
    """Return the least δ that the divergences of an event certify at each ε."""

    def cost(orders: Floats, rough: bool = False) -> Floats:
        return log_delta_at(divergence(event, orders, rough=rough)[1], orders, epsilons)[:, 0]

    stated = stated_orders(event)
    if epsilons.size == 1:
        least = np.array([min(best_order(cost, partial(cost, rough=True))[1], np.min(cost(stated), initial=math.inf))])
    else:
        orders = np.append(order(np.arange(_INDICES[0], _INDICES[-1] + 1, 6)), stated)
        own = divergence(event, orders)[1]
        least = np.concatenate([log_delta_at(own, orders, block).min(0) for block in _blocks(epsilons)])
    slack = upward_or_infinite(divergence(event, order(0))[0])
    values = (slack + np.exp(np.clip(least, -690.0, 0.0))) * (1 + _PAD)
    return np.asarray(np.minimum(total_variation(event), values))


def stated_orders(event: Event) -> Floats:
    """Return the orders at which parts of the event were stated, rounded down: there they certify most."""
    stated = {part.order for part, _ in parts(event) if isinstance(part, RenyiDP)}
    return np.array(sorted(max(-upward(-value), math.nextafter(1.0, 2.0)) for value in stated))


def total_variation(event: Event) -> float:
    """Bound δ(0), hence every δ(ε): √(D/2) by Pinsker's inequality, as D_α is at least the relative entropy.

    The conversions above never certify an ε below ln(1/δ)/α, about 10⁻⁵ at the largest order of the lattice. This bound
    certifies any ε if the noise is large enough. Events with a δ of their own have 1.
    """
    slack, own = divergence(event, order(_INDICES[0]))
    return min(1.0, math.sqrt(float(own[0]) / 2) * (1 + _PAD)) if slack == 0 else 1.0


def _blocks(values: Floats) -> list[Floats]:
    return np.array_split(values, values.size // 2048 + 1)


# ── divergences of events ─────────────────────────────────────────────────────────────────────────────────────────

def divergence(event: Event, orders: Floats, *, rough: bool = False) -> tuple[Fraction, Floats]:
    """Return a slack δ₀ and bounds on D_α: with probability 1 − δ₀ the event behaves like one with these divergences.

    The slack is zero for events that have divergences of their own. Composition adds slacks, and divergences order by
    order (Mironov 2017, Proposition 1), also for adaptive queries.

    Parameters
    ----------
    event : Event
        What happened.
    orders : array
        The orders α > 1.
    rough : bool, default False
        Whether fast approximations are enough; these are not bounds.
    """
    slack, total = Fraction(0), np.zeros_like(orders)
    for part, times in parts(event):
        own_slack, own = _divergence(part, orders, rough)
        slack += times * own_slack
        total = total + upward_or_infinite(Fraction(times)) * (own + _TINY)
    return slack, total * (1 + _PAD)


def _divergence(part: Event, orders: Floats, rough: bool) -> tuple[Fraction, Floats]:  # noqa: PLR0911 (one case per event)
    match part:
        case PureDP(epsilon=value):
            return Fraction(0), _randomized_response(value, orders)
        case ApproximateDP(epsilon=value, delta=delta):
            return delta, _randomized_response(value, orders)
        case SparseVectorRun(epsilon=value, halts=halts, delta=delta):
            return delta, upward_or_infinite(Fraction(halts)) * (_randomized_response(value, orders) + _TINY)
        case BoundedRange(epsilon=value):
            return Fraction(0), _bounded_range(value, orders)
        case RenyiDP(order=stated, divergence=value):  # divergences do not fall with the order
            return Fraction(0), np.where(orders <= -upward(-stated), upward_or_infinite(value), np.inf)
        case GaussianBit(sigma=sigma, voters=voters):
            if rough:
                return Fraction(0), _rough_bit(sigma, voters, orders)
            return Fraction(0), np.array([_bit(sigma, voters, float(alpha)) for alpha in np.ravel(orders)])
        case Parallel(events=members):
            prices = [divergence(member, orders, rough=rough) for member in members]
            return max(slack for slack, _ in prices), np.max([own for _, own in prices], axis=0)
    concentrated, price = rho(part), pair(part)
    if concentrated is not None:
        own = upward_or_infinite(concentrated) * orders
        if price is not None and price[1] == 0:
            own = np.minimum(own, _randomized_response(price[0], orders))
        return Fraction(0), own
    if price is not None:
        return price[1], _randomized_response(price[0], orders)
    return Fraction(0), np.full_like(orders, np.inf)


def _randomized_response(value: Fraction, orders: Floats) -> Floats:
    """D_α of randomized response, the largest that ε-DP allows: ln(cosh((α−½)ε)/cosh(ε/2))/(α−1)."""
    epsilon_ = upward_or_infinite(value)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = 2 * np.sinh(orders * epsilon_ / 2) * np.sinh((orders - 1) * epsilon_ / 2) / np.cosh(epsilon_ / 2)
        exact = np.log1p(ratio) / (orders - 1)
    return np.where(np.isfinite(exact), np.minimum(exact * (1 + _PAD), epsilon_), epsilon_)


def _bounded_range(value: Fraction, orders: Floats) -> Floats:
    """The largest D_α of a loss within an interval of length ε.

    With y = e^(−loss), E[y] = 1 and E[y^(1−α)] is convex in y, so the worst law is supported on both ends of the
    interval; the worst position of the interval has a closed form. In terms of h(s) = ln(sinh(sε/2)/(sε/2)) it comes to
    (α−1)·D_α = α·h(α) − (α−1)·h(α−1) − h(1), which is at most α(α−1)ε²/8.
    """
    epsilon_ = upward_or_infinite(value)
    (h0, e0), (h1, e1), (h2, e2) = (_log_sinhc(s * epsilon_ / 2) for s in (orders, orders - 1, np.ones_like(orders)))
    exact = (orders * h0 - (orders - 1) * h1 - h2 + orders * e0 + (orders - 1) * e1 + e2) / (orders - 1)
    return np.minimum(np.minimum(exact, epsilon_), orders * epsilon_ * epsilon_ / 8 * (1 + _PAD))


def _log_sinhc(y: Floats) -> tuple[Floats, Floats]:
    """ln(sinh(y)/y) for y > 0, and a bound on its error: relative for small y, where it is a series."""
    square = np.minimum(y, 0.1) ** 2
    series = square / 6 * (1 - square / 30 * (1 - square * 4 / 63 * (1 - square * 3 / 40 * (1 - square * 8 / 99))))
    large = np.maximum(y, 0.1)
    direct = large + np.log1p(-np.exp(-2 * large)) - np.log(2 * large)
    return np.where(y < 0.1, series, direct), np.where(y < 0.1, 2e-15 * series, 4e-15 * (1 + large))


# ── the one-bit answer ────────────────────────────────────────────────────────────────────────────────────────────

@lru_cache(maxsize=65536)
def _bit(sigma: Fraction, voters: int, alpha: float) -> float:
    """The largest D_α between the bits at neighbouring counts v, v + 1, in either direction.

    With S(x) = P(noise ≥ x), the bit at a count that lacks x votes is 1 with probability S(x). By the symmetry of the
    noise a pair with x ≤ 0 mirrors the pair with 2 − x, so x runs from 1 to 1 + ⌊voters/2⌋ only. The bit is
    post-processing of the noisy count, so α/2σ² is always a bound; where a table of S would be too long it is the one.
    """
    gaussian = upward_or_infinite(_unit_rho(sigma)) * alpha
    table = survival(sigma)
    if table is None:
        return gaussian
    last = 1 + voters // 2
    far = min(last, table.reach)
    beyond = 0.0 if last <= table.reach else math.inf
    for width in range(8, 36, 2):
        cut = math.ceil(width * sigma) + 2
        if cut >= far:
            break
        bound = _bit_beyond(table, cut, alpha)
        if bound < 1e-13 * alpha * (alpha - 1) * float(_unit_rho(sigma)):  # far below what the pairs before it reach
            far, beyond = cut, bound
            break
    low, step = table.above[1 : far + 1], table.mass[:far]  # S(x) and S(x−1) − S(x), for x = 1 … far
    high = low + step
    rest_low, rest_high = 1 - low, 1 - high
    rest_high[0] = table.above[1]  # 1 − S(0) = S(1), without cancellation
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        moment = max(
            beyond,
            _moment(low, rest_low, step, alpha),
            _moment(rest_high, high, step, alpha),
        )
        value = math.log1p(moment) / (alpha - 1) if math.isfinite(moment) else math.inf
    return min(gaussian, value * (1 + 2 * table.error))


def _rough_bit(sigma: Fraction, voters: int, orders: Floats) -> Floats:
    """Approximately `_bit`: 2/π of the price of the noisy count, but no more than the largest loss."""
    table, last = survival(sigma), 1 + voters // 2
    largest = math.inf
    if table is not None and last <= table.reach and table.above[last] > 0:
        largest = math.log(table.above[last - 1] / table.above[last])
    return np.minimum(2 / math.pi * float(_unit_rho(sigma)) * orders, largest)


def _moment(gains: Floats, loses: Floats, step: Floats, alpha: float) -> float:
    """max of E[(dP/dQ)^α] − 1 for Q = (gains, loses) and P = (gains + step, loses − step), rounded up."""
    first = gains * np.expm1(alpha * np.log1p(step / gains))
    second = loses * np.expm1(alpha * np.log1p(-step / loses))
    padded = first + second + 1e-14 * (np.abs(first) + np.abs(second))
    return math.inf if np.isnan(padded).any() else max(0.0, float(padded.max()))


def _bit_beyond(table: Survival, cut: int, alpha: float) -> float:
    """A bound on E[(dP/dQ)^α] − 1 for every pair x ≥ cut, in both directions; infinite where it cannot be shown.

    Upwards it is at most S(x−1)·(S(x−1)/S(x))^(α−1). For every m ≥ 1, S(x) ≥ m·P(noise = x+m−1), hence S(x−1)/S(x) ≤
    1 + e^(m(2x+m−2)/2σ²)/m, whose logarithm grows by at most m/σ² a step, while ln S(x−1) is at most
    −(x−1)²/2σ² − ln(1 − e^(−(2x−1)/2σ²)) and that falls by at least (x−1)/σ² a step: for x − 1 ≥ (α−1)m the largest
    bound is the one at x = cut. Downwards it is at most S(x) + (1−S(x−1))·((1 + s)^α − 1), s = P(x−1)/(1−S(x−1)).
    """
    variance = table.sigma**2
    m = max(1, int(variance / cut))
    if cut - 1 < (alpha - 1) * m:
        return math.inf
    fall = -((cut - 1) ** 2) / (2 * variance) - math.log(-math.expm1(-(2 * cut - 1) / (2 * variance)))
    rise = float(np.logaddexp(0.0, m * (2 * cut + m - 2) / (2 * variance) - math.log(m)))
    up = fall + (alpha - 1) * rise
    down = table.above[cut] + math.expm1(min(700.0, 2 * alpha * table.mass[cut - 1]))
    return max(math.exp(min(700.0, up)), float(down)) * (1 + 1e-9)


def _unit_rho(sigma: Fraction) -> Fraction:
    return 1 / (2 * sigma**2)

