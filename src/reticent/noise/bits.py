"""A uniform real number, read bit by bit and only as far as a decision needs.

Every law of this package that has irrational probabilities is drawn in one way. Let U be uniform in [0, 1) and
t₀ ≤ t₁ ≤ … the points that cut [0, 1) into cells of the wanted probabilities; the draw is the cell that holds U.
After `bits` bits U is known to lie in [word, word + 1)·2^−bits, and each t is known to lie in an interval of certified
arithmetic. If no such interval meets U's, the cell is known; else both are narrowed by another word. Whatever is
computed along the way, the cell is the one that holds U: rounding costs bits, never accuracy.
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
    """The value of the cell that holds U, whose first `bits` bits are `word`.

    Cells count upwards from the first. `cuts(bits)` encloses ever more tightly; the cut points may grow in number as
    long as the cells that were split stay undecided until then.
    """
    while True:
        low, high, first = cuts(bits)
        reached = bisect_right(high, word)  # these t_k are ≤ U …
        if reached == bisect_right(low, word):  # … and the others are above it
            return first + reached
        word = word << WORD | noise.random_bits(WORD)
        bits += WORD


def exp_coin(noise: Noise, numerator: int, denominator: int, k: int = 1) -> bool:
    """True with probability e^−γ, γ = numerator/denominator ≥ 0, from uniform integers alone.

    Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy*, Algorithm 1. For γ ≤ 1 let k be the
    first with no success in a trial of probability γ/k; k exceeds j with probability γ^j/j!, so it is odd with
    probability 1 − γ + γ²/2! − … = e^−γ. A caller who has already seen k − 1 successes goes on from k.
    """
    while numerator > denominator:
        if not exp_coin(noise, 1, 1):
            return False
        numerator -= denominator
    while noise.uniform(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def exp_cut(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Integers low ≤ 2^bits·e^−gamma ≤ high, for gamma ≥ 0, that differ by a few units at most."""
    if gamma >= bits:
        return 0, 1
    low, high, exponent = exp_bounds(-gamma, bits)
    drop = max(0, -exponent)  # e^−gamma ≤ 1, so the exponent is never above zero
    return low >> drop, min(-(-high >> drop), 1 << bits)
