"""A uniform real number, read bit by bit and only as far as a decision needs.

All laws with irrational probabilities are drawn by the same method. Let U be uniform in [0, 1) and t₀ ≤ t₁ ≤ … the
points that cut [0, 1) into cells of the wanted probabilities; the draw is the cell that contains U. After `bits` bits,
U lies in [word, word + 1)·2^−bits, and certified arithmetic encloses each t in an interval. If none of these intervals
meets that of U, the cell is known; else both are narrowed by another word. So the cell is always the one that contains
U: rounding costs bits, not accuracy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from reticent.exact import exp_bounds

if TYPE_CHECKING:
    from reticent.noise.samplers import Noise

WORD = 64

Cuts = tuple[Sequence[int], Sequence[int], int]
"""Ascending low and high with low[k] ≤ t_k·2^bits ≤ high[k], and the value of the cell below all of them."""


def settle(noise: Noise, word: int, bits: int, cuts: Callable[[int], Cuts]) -> int:
    """Return the number of the cell that contains U, whose first `bits` bits are `word`.

    Parameters
    ----------
    noise : Noise
        Where more bits come from.
    word, bits : int
        The first bits of U, and their number.
    cuts : callable
        `cuts(bits)` encloses the cut points, more tightly as `bits` grows. New cut points may appear as long as the
        cells that they split were undecided before.
    """
    while True:
        low, high, first = cuts(bits)
        reached = bisect_right(high, word)  # these t_k are ≤ U …
        if reached == bisect_right(low, word):  # … and the others are above it
            return first + reached
        word = word << WORD | noise.random_bits(WORD)
        bits += WORD


def exp_coin(noise: Noise, numerator: int, denominator: int, k: int = 1) -> bool:
    """Return True with probability e^−γ, γ = numerator/denominator ≥ 0, from uniform integers alone.

    Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy*, Algorithm 1. For γ ≤ 1, let k be the
    first failure in trials of probability γ/k; k exceeds j with probability γ^j/j!, so it is odd with probability 1 − γ
    + γ²/2! − … = e^−γ. A caller that has already seen k − 1 successes continues with k.
    """
    while numerator > denominator:
        if not exp_coin(noise, 1, 1):
            return False
        numerator -= denominator
    while noise.uniform(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def exp_cut(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Return integers low ≤ 2^bits·e^−gamma ≤ high, for gamma ≥ 0, that are a few units apart."""
    if gamma >= bits:
        return 0, 1
    low, high, exponent = exp_bounds(-gamma, bits)
    drop = max(0, -exponent)  # e^−gamma ≤ 1, so the exponent is never above zero
    return low >> drop, min(-(-high >> drop), 1 << bits)
