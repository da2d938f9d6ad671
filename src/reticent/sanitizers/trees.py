"""A tree over the digits of the values, with noisy counts, that grows only where there are rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from reticent.data.points import Array
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import Event
from reticent.sanitizers.cells import BAND, CountNoise, Level, as_offsets, concentrated, counts_in, short

WIDEST_LAPLACE, WIDEST_GAUSSIAN = 6, 4  # bits a digit; what is wider is worse, and would let empty ranges grow


@dataclass(frozen=True)
class Tree:
    """A plan to count the rows in ranges with a common prefix, digit by digit, where a digit has `width` bits.

    All ranges of the first digit are counted, with noise. Where a noisy count exceeds the threshold, the ranges with
    one digit more are counted too, and so on down to the last digit.

    Guarantee. ε-differential privacy for a replaced row with discrete Laplace noise, (ε, δ) with discrete Gaussian
    noise. Public are the number of rows, the size of the domain and every parameter.

    Why. Which ranges of a level are counted is a function of the noisy counts above. They are disjoint, so a replaced
    row moves at most two of their counts, by 1. Over all H levels, each chosen in the light of those above, the counts
    move by at most 2H in sum and by at most 2H in the sum of the squares: for Laplace noise of scale s the privacy loss
    is at most 2H/s = ε, for Gaussian noise the event is H times DiscreteGaussian(σ, 2). Levels that are not reached
    are charged all the same.

    Promise. But for a probability of `failure`, every prefix is right up to `bound` rows. Whether a range is counted
    depends on the noise of the ranges that hold it, not on its own noise nor on that of the ranges beside these. So the
    expected number of counted ranges on which an estimate that uses the latter only (`two_sided`) is off by more than
    t₂ is at most E|V|·P(off by t₂), where V is the set of all ranges that are counted; the same goes for ranges whose
    own noise is below −t₁. At most Hn counted ranges hold rows. Empty ranges exceed the threshold with probability
    p ≤ 1/(4b), b = 2^width, so their expected number E₀ is at most b·(1 + (H − 1)n) + bp·E₀. A cell other than a
    single value holds at most threshold + t₁ rows, half of which may be on the wrong side; and the estimates
    are kept within t₂/2 of the two-sided ones.

    Source. The sparse form of Hay, Rastogi, Miklau, Suciu, *Boosting the Accuracy of Differentially Private Histograms
    Through Consistency*, and Chan, Shi, Song, *Private and Continual Release of Statistics*. New: the promise in spite
    of growth, and the band.
    """

    size: int
    rows: int
    width: int
    counting: CountNoise
    failure: Fraction

    @property
    def event(self) -> Event:
        """What happened, once it has."""
        return self.counting.event

    @property
    def threshold(self) -> int:
        """Noise exceeds it with probability at most 1/(4b)."""
        scale = float(self.counting.scale)
        return math.ceil(3 * scale if self.counting.gaussian else scale * math.log(4 << self.width))

    @cached_property
    def _tails(self) -> tuple[float, float]:
        """t₁ and t₂."""
        levels, parts = self.counting.levels, 1 << self.width
        counted = levels * self.rows + parts * (1 + (levels - 1) * self.rows) * 4 / 3
        share = float(self.failure) / 2 / counted
        return self.counting.reach(share), self.counting.reach(share / 2, (levels * (parts - 1) + 1) / 4)

    @property
    def band(self) -> float:
        """How far the estimates may be from the two-sided ones."""
        return BAND * self._tails[1]

    @property
    def bound(self) -> float:
        """By how many rows a prefix may be off."""
        own, prefix = self._tails
        return (self.threshold + own) / 2 + (1 + BAND) * prefix

    @property
    def expected(self) -> float:
        """By how many rows a prefix was measured to be off, about."""
        return self.bound / max(8.0, 1.5 * math.sqrt((self.size - 1).bit_length()))

    def calibrated(self, epsilon: Fraction, delta: Fraction) -> Tree:
        """The same tree with the least noise that keeps (ε, δ)."""
        if not self.counting.gaussian:
            return self
        return replace(self, counting=_least_noise(self.counting, epsilon, delta))

    def release(self, data: Array, noise: Noise) -> list[Level]:
        """The noisy counts of ascending data."""
        levels, parts = self.counting.levels, 1 << self.width
        bits = (self.size - 1).bit_length()
        top = 1 << (bits - self.width * (levels - 1))
        names, parents = as_offsets(range(top), self.size), np.zeros(top, dtype=np.int64)
        found: list[Level] = []
        for depth in range(levels):
            shift = self.width * (levels - 1 - depth)
            # A domain that is no power of two ends within a range; ranges beyond its end do not exist.
            last = self.size - 1
            inside = names <= names.dtype.type(last >> shift) if names.dtype != object else names <= last >> shift
            names, parents = names[inside], parents[inside]
            lows, highs = _ends(names, shift, last)
            counts = self.counting.added(counts_in(data, lows, highs), noise)
            found.append(Level(lows, highs, parents, counts))
            grown = np.flatnonzero(counts > self.threshold)
            if not len(grown):
                break
            digits = as_offsets(range(parts), self.size)
            factor = parts if names.dtype == object else np.uint64(parts)
            names = names[grown, None] * factor
            names, parents = (names + digits).reshape(-1), np.repeat(grown, parts)
        return found


def _ends(names: Array, shift: int, last: int) -> tuple[Array, Array]:
    """The least and the greatest offset of the ranges that these prefixes name."""
    if names.dtype == object:
        lows = names * (1 << shift)
        return lows, np.minimum(lows + ((1 << shift) - 1), last)
    lows = names << np.uint64(shift) if shift < 64 else np.zeros_like(names)
    return lows, np.minimum(lows | np.uint64((1 << min(shift, 64)) - 1), np.uint64(last))


def best_tree(size: int, rows: int, *, epsilon: Fraction, delta: Fraction, failure: Fraction) -> Tree:
    """The tree with the least bound: the kind of noise, and the bits a digit; not calibrated."""
    bits = max(1, (size - 1).bit_length())

    def tree(width: int, scale: Fraction, *, gaussian: bool) -> Tree:
        return Tree(size, rows, width, CountNoise(-(-bits // width), scale, gaussian), failure)

    widths = range(1, min(WIDEST_LAPLACE, bits) + 1)
    plans = [tree(width, 2 * -(-bits // width) / epsilon, gaussian=False) for width in widths]
    if delta:
        rho = float(concentrated(epsilon, delta))
        for width in widths[:WIDEST_GAUSSIAN]:
            plans.append(tree(width, short(math.sqrt(-(-bits // width) / rho)), gaussian=True))
    return min(plans, key=lambda plan: plan.bound)


@lru_cache(maxsize=256)
def _least_noise(counting: CountNoise, epsilon: Fraction, delta: Fraction) -> CountNoise:
    """The noise scaled to the least that keeps (ε, δ)."""

    def event(scale: Fraction) -> Event:
        return replace(counting, scale=scale).event

    return replace(counting, scale=calibrate.noise(event, epsilon=epsilon, delta=delta, digits=4))
