"""The exact cost of adaptive one-bit answers: the value of a game between an adversary and the hidden row.

An answer is a coin: 1 with probability p under the data and p' under its neighbour. In the light of all answers so far,
the adversary picks the next pair from a public set of pairs that is closed under swapping p and p'. With L the
likelihood ratio dQ/dP of the answers so far and n answers to come, δ(ε) of R answers is V_R(1), where

    V_0(L) = (L − e^ε)₊,   V_n(L) = max over pairs of p·V_{n−1}(L·p'/p) + (1 − p)·V_{n−1}(L·(1 − p')/(1 − p)).

By induction V_n(L) is the largest value of E_P[(L·dQ/dP − e^ε)₊] after n more answers. The pairs are closed under
swapping, so it covers both directions. All V_n are convex, V_n(0) = 0 and no slope exceeds 1, as a ratio has mean 1.

One run serves all ε, as V(L) for e^ε is e^ε times V(L·e^−ε) for 1. And L ≤ 1 is enough: with n answers to come,
E_P[(L·ratio − 1)₊] = L − 1 + L·E_Q[(1/L·1/ratio − 1)₊], so V_n(L) = L − 1 + L·V_n(1/L), again by swapping.

All computations are from above. A pair is given by the two ratios that it can multiply L with, e^a and e^−b with
a, b > 0: their mean is 1, which determines their probabilities. Moving either outwards is a mean-preserving spread,
which does not lower a convex function. Hence pairs within others can be dropped, and rounding is outwards. L is kept on
the points e^(kΔ); a ratio between two of them is split between both so that its mean stays, which is such a spread too.
Below the grid, V is at most the chord to V(0) = 0. So no interpolation, end or rounding makes the value smaller.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.privacy.floats import Floats
from reticent.privacy.survival import survival

_OUTWARDS = 1e-11  # more than the error of the given logarithms of ratios
_FEW = 50  # for fewer answers the grid is finer and never cut
_SPREAD = 6.5  # how many standard deviations of the total loss the grid covers
_WHOLE = 1 << 400
_MOST_ANSWERS = 2000  # takes about two seconds
_FARTHEST = 9  # standard deviations of the noise; pairs beyond have a probability below 10^-18


class Coins(NamedTuple):
    """Pairs of coins (p, p'), given by the logarithms of the ratios p'/p and (1 − p')/(1 − p): the larger is `up`, the
    smaller −`down`.

    Attributes
    ----------
    up, down : array
        The logarithms, positive.
    lost : float, default 0
        A bound on the probability, under either data, of the rare answer of any pair that is not listed. Such a pair
        raises V(L) by at most L·lost, as V(L) ≤ L and its slope is at most 1.
    """

    up: Floats
    down: Floats
    lost: float = 0.0


@dataclass(frozen=True, eq=False)
class Profile:
    """Upper bounds on δ(ε) of a number of answers, for every ε ≥ 0.

    Attributes
    ----------
    step : float
        The step Δ of the grid.
    values : array
        V_R(e^(kΔ)) for k = … −2, −1, 0, with ε = 0.
    lost : float
        Added to every bound, for pairs that are not listed.
    """

    step: float
    values: Floats  # V_R(e^(kΔ)) for k = … −2, −1, 0, with ε = 0
    lost: float

    def deltas(self, epsilons: Floats) -> Floats:
        """Return upper bounds on δ at each ε: e^ε·V_R(e^−ε), by the chord between two points, or that to V(0) = 0."""
        last = len(self.values) - 1
        if last == 0:
            return np.ones_like(epsilons)
        position = np.minimum(epsilons / self.step, last)
        far = np.minimum(np.floor(position).astype(np.int64) + 1, last)  # e^(−far·Δ) ≤ e^−ε ≤ e^(Δ − far·Δ)
        depth = np.minimum(epsilons, last * self.step)
        share = np.clip(np.expm1(far * self.step - depth) / math.expm1(self.step), 0.0, 1.0)  # of the point above
        chord = share * self.values[last - far + 1] + (1 - share) * self.values[last - far]
        # share·(V_near − V_far): a bound on the rounding error of the share
        slack = 1e-12 * (self.values[last - far + 1] - self.values[last - far])
        return np.asarray(np.minimum((np.exp(depth) * (chord + np.abs(slack))) * (1 + 1e-14) + self.lost, 1.0))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ at ε."""
        return float(self.deltas(np.array([epsilon]))[0])


def profile(coins: Coins, answers: int) -> Profile:
    """Return a certified upper bound on δ(ε) of adaptive answers by coins from the given pairs or swapped ones.

    It takes about ten milliseconds for ten answers, and seconds for a thousand.

    Parameters
    ----------
    coins : Coins
        The pairs of coins.
    answers : int
        The number of answers.

    Examples
    --------
    >>> coin = Coins(np.array([np.log(3)]), np.array([np.log(3)]))    # randomized response with ε = ln 3
    >>> round(profile(coin, 1).delta(1.0), 6)                         # (3 − e)/4
    0.07043
    """
    up, down = _outline(coins, answers)
    lost = answers * coins.lost * (1 + 1e-15)
    return Profile(*_values(up, down, answers), lost) if len(up) else Profile(1.0, np.zeros(2), lost)


def playable(sigma: Fraction, answers: int) -> bool:
    """Return whether `gaussian_bits` can price this many answers within a few seconds."""
    return Fraction(1, 4) <= sigma <= 2000 and answers <= _MOST_ANSWERS


@lru_cache(maxsize=64)
def gaussian_bits(sigma: Fraction, voters: int, answers: int) -> Profile:
    """Bound δ(ε) of this many answers "v votes plus discrete Gaussian noise reach half of the voters"; see `playable`.

    With S(x) = P(noise ≥ x), the pairs are (S(x), S(x − 1)) for x = 1 … 1 + ⌊voters/2⌋, and mirrored ones.
    """
    table = survival(sigma)
    assert table is not None
    last = 1 + voters // 2
    likely = int(np.searchsorted(-table.above, -1e-60, side="right")) - 1
    far = min(last, likely, math.ceil(_FARTHEST * sigma) + 2)
    below, step = table.above[1 : far + 1], table.mass[:far]  # S(x) and S(x − 1) − S(x), for x = 1 … far
    up = np.log1p(step / below)
    down = up.copy()
    down[1:] = -np.log1p(-step[1:] / (1 - below[1:]))  # at x = 1 it is as `up`, since 1 − S(0) = S(1)
    lost = 0.0 if far == last else float(table.above[far]) * (1 + table.error)
    outwards = 1 + 4 * table.error
    return profile(Coins(up * outwards, down * outwards, lost), answers)


# ── pairs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Point = tuple[int, int]


def _outline(coins: Coins, answers: int) -> tuple[Floats, Floats]:
    """A few pairs that dominate all, as logarithms of ratios: the corners of a polygon around them.

    Write a pair as the point (p, g), g = p' − p > 0, where 1 is the answer that is likelier under the neighbour. The
    value of an answer, p·V(L(1 + g/p)) + (1 − p)·V(L(1 − g/(1 − p))), is jointly convex in (p, g), being a sum of
    perspectives of V. So the worst pairs are corners of the convex hull of all, and any polygon around it has a corner
    that is at least as bad. The polygon consists of some edges of the hull, prolonged until they meet.
    """
    chain = _hull(_points(coins))
    if len(chain) == 2:
        return np.empty(0), np.empty(0)
    positions = [p for p, _ in chain]
    slack = 1 + (5e-4 + 0.03 * (1 - _weight(chain[1:-1], answers))) * min(1.0, answers / 100)
    corners: list[tuple[Fraction, Fraction]] = []
    edge, last = 0, len(chain) - 2  # edge i joins the points i and i + 1
    while edge < last:
        # From one edge to the farthest other, by doubling and halving, that meets it close enough to the hull.
        good, bad, corner = edge + 1, last + 1, _meet(chain, edge, edge + 1)
        while bad - good > 1:
            further = min(2 * good - edge, last) if bad > last else (good + bad) // 2
            found = _meet(chain, edge, further)
            if float(found[1]) <= float(slack[edge:further].min()) * _height(chain, positions, found[0]):
                good, corner = further, found
            else:
                bad = further
        corners.append(corner)
        edge = good
    up = np.log1p([float(g / p) for p, g in corners])
    down = [math.log1p(float(g / (1 - p - g))) for p, g in corners]  # −ln(1 − g/(1 − p))
    return up * (1 + 1e-14), np.array(down) * (1 + 1e-14)


def _weight(points: list[Point], answers: int) -> Floats:
    """The approximate weight of each pair among these answers, 1 for the worst: its moment of a suitable order."""
    p, g = np.array(points, dtype=object).T
    chance = (p / _WHOLE).astype(np.float64)
    rise, fall = (g / p).astype(np.float64), (g / (_WHOLE - p)).astype(np.float64)
    order = 1 + 5 / math.sqrt(float((rise * fall).max()) * answers)
    logs = np.minimum(order * np.log1p(rise), 690.0), order * np.log1p(-np.minimum(fall, 1 - 1e-15))
    moment = chance * np.expm1(logs[0]) + (1 - chance) * np.expm1(logs[1])
    return np.asarray(np.clip(moment / moment.max(), 0.0, 1.0))


def _points(coins: Coins) -> list[Point]:
    """The pairs, in both orders, as (p, g) in units of 2^-400, moved outwards by more than the rounding error."""
    up, down = np.concatenate([coins.up, coins.down]), np.concatenate([coins.down, coins.up])
    some = (up > 0) & (down > 0)
    up, down = up[some] * (1 + _OUTWARDS), down[some] * (1 + _OUTWARDS)
    points = []
    for rise, loss in zip(np.expm1(up).tolist(), np.expm1(down).tolist(), strict=True):
        r, f = Fraction(rise), 1 - 1 / (1 + Fraction(loss))
        p = f / (r + f)
        points.append((int(p * _WHOLE), int(p * r * _WHOLE) + 1))
    return points


def _hull(points: list[Point]) -> list[Point]:
    """The upper hull of the points and of (0, 0) and (1, 0), from left to right."""
    chain: list[Point] = []
    for point in [(0, 0), *sorted(points), (_WHOLE, 0)]:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], point) >= 0:
            chain.pop()
        chain.append(point)
    return chain


def _turn(first: Point, second: Point, third: Point) -> int:
    """Positive if the path from the first point by the second to the third turns left."""
    (a, b), (c, d), (e, f) = first, second, third
    return (c - a) * (f - b) - (d - b) * (e - a)


def _meet(chain: list[Point], one: int, other: int) -> tuple[Fraction, Fraction]:
    """Where two edges of the chain meet when prolonged, exactly."""
    (a, b), (c, d) = chain[one : one + 2]
    (e, f), (h, k) = chain[other : other + 2]
    run, climb, far_run, far_climb = c - a, d - b, h - e, k - f
    along = Fraction((e - a) * far_climb - (f - b) * far_run, run * far_climb - climb * far_run)
    return (a + along * run) / _WHOLE, (b + along * climb) / _WHOLE


def _height(chain: list[Point], positions: list[int], at: Fraction) -> float:
    """The height of the chain at p = `at`."""
    right = bisect_left(positions, int(at * _WHOLE), 1, len(chain) - 1)
    (a, b), (c, d) = chain[right - 1 : right + 1]
    return float((b + (at * _WHOLE - a) * (d - b) / (c - a)) / _WHOLE)


# ── the game ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _grid(up: Floats, down: Floats, answers: int) -> tuple[float, NDArray[np.int64]]:
    """The step Δ, of few binary digits so that its multiples are exact, and its depth with n answers to come.

    At the end of the grid, the probability to return is negligible; the bounds hold wherever it ends.
    """
    scale = math.sqrt(float((up * down).max()))
    step = scale / (16 if answers < _FEW else 8)
    digits = 20 - math.frexp(step)[1]
    step = math.ldexp(math.floor(math.ldexp(step, digits)), -digits)
    to_come = np.arange(1, answers + 1, dtype=np.float64)
    depth = _SPREAD * scale * np.sqrt(to_come) + scale * scale * to_come + 12 * scale
    if answers < _FEW or float(up.max()) > 20 * scale:  # single jumps are as large as their sum
        depth[:] = depth[-1] + 12 * scale
    return step, np.ceil(depth / step).astype(np.int64)


def _values(up: Floats, down: Floats, answers: int) -> tuple[float, Floats]:
    """Δ, and bounds on V_R at L = e^(kΔ) for k = … −2, −1, 0, for ε = 0."""
    step, depths = _grid(up, down, answers)
    i, j = np.floor(up / step).astype(np.int64), np.floor(down / step).astype(np.int64)
    zero, above = int(depths.max()) + int(j.max()) + 1, int(i.max()) + 1
    where = np.arange(-max(zero, above), above + 1) * step
    zero = max(zero, above)
    if max(-where[0], where[-1]) > 700:
        return step, np.ones(1)
    moves = _moves(up, down, i, j, step)
    ratios = np.exp(where)
    gains = np.expm1(where[zero + 1 :])  # L − 1
    value = np.concatenate([np.zeros(zero + 1), gains])
    best, term, sums = (np.empty(zero + 1) for _ in range(3))
    for depth in depths.tolist():
        start, size = zero - depth, depth + 1
        target, one, total = best[:size], term[:size], sums[:size]
        target.fill(0.0)
        for (shift, weight), *others in moves:
            np.multiply(value[start + shift : start + shift + size], weight, out=total)
            for begin, share in others:
                np.multiply(value[start + begin : start + begin + size], share, out=one)
                np.add(total, one, out=total)
            np.maximum(target, total, out=target)
        value[start : zero + 1] = target
        np.multiply(ratios[:start], target[0] / ratios[start], out=value[:start])
        np.multiply(ratios[zero + 1 :], value[zero - above : zero][::-1], out=value[zero + 1 :])
        value[zero + 1 :] += gains
    # every term is positive, with an error of a few units in the last digit per answer
    return step, value[: zero + 1] * (1 + 1e-14 * (answers + 10)) + 1e-300


def _moves(
    up: Floats, down: Floats, i: NDArray[np.int64], j: NDArray[np.int64], step: float
) -> list[list[tuple[int, float]]]:
    """The grid points that each pair leads to, with probabilities: two above, two below, with mean 1."""
    rise, fall = np.expm1(up), -np.expm1(-down)
    beyond, short = up - i * step, down - j * step
    far_up = np.expm1(beyond) / math.expm1(step)
    near_up = np.expm1(step - beyond) * np.exp(beyond) / math.expm1(step)
    far_down = np.expm1(-short) / math.expm1(-step)
    near_down = np.expm1(short - step) * np.exp(-short) / math.expm1(-step)
    shares = np.stack([fall * near_up, fall * far_up, rise * near_down, rise * far_down]) / (rise + fall)
    shifts = (i, i + 1, -j, -j - 1)
    return [
        [(int(shift[pair]), float(share[pair])) for shift, share in zip(shifts, shares, strict=True) if share[pair] > 0]
        for pair in range(len(up))
    ]
