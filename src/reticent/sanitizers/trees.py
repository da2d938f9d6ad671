"""A tree over the digits of the values, with noisy counts, that grows only where there are many rows."""

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
from reticent.sanitizers.cells import BAND, CountNoise, Level, as_offsets, concentrated, counts_in, short_decimal

WIDEST_LAPLACE, WIDEST_GAUSSIAN = 6, 4  # bits per digit; wider digits are worse, and would let empty ranges grow


@dataclass(frozen=True)
class Tree:
    """A plan to count the rows in ranges with a common prefix, digit by digit, where a digit has `width` bits.

    All ranges of the first digit are counted, with noise. Where a noisy count exceeds the threshold, the ranges with
    one more digit are counted too, and so on down to the last digit.

    Guarantee. ε-differential privacy for a replaced row with discrete Laplace noise, (ε, δ) with discrete Gaussian
    noise. Public are the number of rows, the size of the domain and every parameter.

    Why. Which ranges of a level are counted is a function of the noisy counts above. They are disjoint, so a replaced
    row moves at most two of their counts, by 1. H levels are composed; levels that are not reached are charged as well.
    The proof is in `docs/sanitizers/thresholds.md`.

    Promise. Except with probability `failure`, every prefix is correct up to `bound` rows.

    Source. The sparse form of Hay, Rastogi, Miklau, Suciu, *Boosting the Accuracy of Differentially Private Histograms
    Through Consistency*, and Chan, Shi, Song, *Private and Continual Release of Statistics*. New: the promise in spite
    of growth, and the band.

    Parameters
    ----------
    size : int
        The number of values of the domain.
    rows : int
        The number of rows.
    width : int
        Bits per digit.
    counting : CountNoise
        The noise of the counts.
    failure : Fraction
        The probability with which the promise may fail.
    """

    size: int
    rows: int
    width: int
    counting: CountNoise
    failure: Fraction

    @property
    def event(self) -> Event:
        """The event of a release."""
        return self.counting.event

    @property
    def threshold(self) -> int:
        """The count above which a range is cut: noise exceeds it with probability at most 1/(4·2^width)."""
        scale = float(self.counting.scale)
        return math.ceil(3 * scale if self.counting.gaussian else scale * math.log(4 << self.width))

    @cached_property
    def _tails(self) -> tuple[float, float]:
        """t₁ of a single count, and t₂ of a two-sided estimate."""
        levels, parts = self.counting.levels, 1 << self.width
        counted = levels * self.rows + parts * (1 + (levels - 1) * self.rows) * 4 / 3
        share = float(self.failure) / 2 / counted
        return self.counting.reach(share), self.counting.reach(share / 2, (levels * (parts - 1) + 1) / 4)

    @property
    def band(self) -> float:
        """How far the published estimates may be from the two-sided ones, in rows."""
        return BAND * self._tails[1]

    @property
    def bound(self) -> float:
        """The error of a prefix that is promised, in rows."""
        own, prefix = self._tails
        return (self.threshold + own) / 2 + (1 + BAND) * prefix

    @property
    def expected(self) -> float:
        """The error of a prefix that was measured, roughly, in rows."""
        return self.bound / max(8.0, 1.5 * math.sqrt((self.size - 1).bit_length()))

    def calibrated(self, epsilon: Fraction, delta: Fraction) -> Tree:
        """The same tree with the least noise that fits (ε, δ)."""
        if not self.counting.gaussian:
            return self
        return replace(self, counting=_least_noise(self.counting, epsilon, delta))

    def release(self, data: Array, noise: Noise) -> list[Level]:
        """Release the noisy counts.

        Parameters
        ----------
        data : array
            The rows as offsets in the domain, ascending.
        noise : Noise
            Where the noise is drawn from.

        Returns
        -------
        list of Level
            The counted ranges, level by level.
        """
        levels, parts = self.counting.levels, 1 << self.width
        bits = (self.size - 1).bit_length()
        top = 1 << (bits - self.width * (levels - 1))
        names, parents = as_offsets(range(top), self.size), np.zeros(top, dtype=np.int64)
        found: list[Level] = []
        for depth in range(levels):
            shift = self.width * (levels - 1 - depth)
            # A domain whose size is not a power of two ends within a range; ranges beyond its end do not exist.
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
    """The tree with the least bound, over the kinds of noise and the bits per digit; not calibrated.

    Parameters
    ----------
    size, rows : int
        The number of values of the domain, and of rows.
    epsilon, delta : Fraction
        The privacy of the counts.
    failure : Fraction
        The probability with which the bound may fail.
    """
    bits = max(1, (size - 1).bit_length())

    def tree(width: int, scale: Fraction, *, gaussian: bool) -> Tree:
        return Tree(size, rows, width, CountNoise(-(-bits // width), scale, gaussian), failure)

    widths = range(1, min(WIDEST_LAPLACE, bits) + 1)
    plans = [tree(width, 2 * -(-bits // width) / epsilon, gaussian=False) for width in widths]
    if delta:
        rho = float(concentrated(epsilon, delta))
        for width in widths[:WIDEST_GAUSSIAN]:
            plans.append(tree(width, short_decimal(math.sqrt(-(-bits // width) / rho)), gaussian=True))
    return min(plans, key=lambda plan: plan.bound)


@lru_cache(maxsize=256)
def _least_noise(counting: CountNoise, epsilon: Fraction, delta: Fraction) -> CountNoise:
    """The noise scaled down to the least that fits (ε, δ)."""

    def event(scale: Fraction) -> Event:
        return replace(counting, scale=scale).event

    return replace(counting, scale=calibrate.noise(event, epsilon=epsilon, delta=delta, digits=4))
