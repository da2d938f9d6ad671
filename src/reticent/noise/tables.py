"""Tables of the two-sided laws P(z) ∝ e^−g(|z|): discrete Gaussian and discrete Laplace, at any scale."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.noise.bits import WORD, Cuts, exp_coin, exp_cut, settle

if TYPE_CHECKING:
    from reticent.noise.samplers import Noise

BLOCK = 1 << 16  # draws at a time, so that the work stays in the cache
GUIDE = 16  # bits that decide most draws
OPEN = np.iinfo(np.int32).min  # in the guide: these bits do not decide the draw
GAUSSIAN_REACH = 1 << 11  # larger scales are drawn in steps of a power of two
LAPLACE_REACH = 1 << 9
WIDEST = 40  # steps up to 2^WIDEST keep the draws within 64 bits


class Exponent(NamedTuple):
    """g(z) = (linear·z + square·z²) / unit for z ≥ 0, in whole numbers."""

    linear: int
    square: int
    unit: int

    def __call__(self, z: int) -> Fraction:
        """Return g(z)."""
        return Fraction(z * (self.linear + self.square * z), self.unit)


@lru_cache(maxsize=32)
def gaussian(numerator: int, denominator: int) -> Table:
    """Return the table of P(z) ∝ e^(−z²/2σ²) with σ = numerator/denominator."""
    return Table(Exponent(0, denominator**2, 2 * numerator**2), _shift(numerator, denominator * GAUSSIAN_REACH))


@lru_cache(maxsize=32)
def laplace(numerator: int, denominator: int) -> Table:
    """Return the table of P(z) ∝ e^(−|z|/scale) with scale = numerator/denominator."""
    return Table(Exponent(denominator, 0, numerator), _shift(numerator, denominator * LAPLACE_REACH))


def _shift(numerator: int, denominator: int) -> int:
    """The least j ≥ 0 with numerator ≤ denominator·2^j."""
    return (-(-numerator // denominator) - 1).bit_length()


class Table:
    """Draws from P(z) ∝ e^−g(|z|), exactly.

    What is tabulated. With step 2^shift, D is 0 if z = 0, and ±(c + 1) if |z| lies in [1 + c·2^shift, (c + 1)·2^shift].
    D is drawn by `settle` on the cumulative law that gives each of these cells the weight 2^shift·e^−g(1 + c·2^shift).
    Then |z| is drawn uniformly from the cell, and accepted with probability e^−(g(|z|) − g(1 + c·2^shift)); if it is
    not, the draw starts again. Up to the reach of the table the shift is 0: D is z, and nothing is ever rejected.

    Why it is exact. The accepted z has weight 2^shift·e^−g(start) · 2^−shift · e^−(g(z) − g(start)) = e^−g(z). `settle`
    reads its uniform number for as long as the cell is undecided, and the two outermost cells, which stand for the
    infinite tails, are undecided at every precision (see `cuts`): so the support is not cut off either.

    How it is fast. 16 bits are looked up in a guide. If these leave the cell undecided, 48 more bits are compared with
    the cut points by binary search; only if they equal the first bits of a cut point does `settle` read more.

    Source. The laws are those of Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy* (2020),
    who draw them by rejection from uniform integers. Here inversion replaces rejection; their Algorithm 1 remains for
    the acceptance step.

    Parameters
    ----------
    law : Exponent
        The exponent g.
    shift : int
        The logarithm of the step.
    """

    def __init__(self, law: Exponent, shift: int) -> None:
        self.law = law
        self.shift = shift
        low, high, first = cuts(law, shift, WORD)
        self.first = first
        self.low = np.array(low, dtype=np.uint64)
        self.open_to = np.array([word - 1 for word in high], dtype=np.uint64)  # words low..open_to are open

    def cuts(self, bits: int) -> Cuts:
        """Enclose the cut points between the cells of D, in units of 2^−bits."""
        return cuts(self.law, self.shift, bits)

    # ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def guide(self) -> NDArray[np.int32]:
        """The cell of all numbers that begin with the given 16 bits, or OPEN."""
        start = np.arange(1 << GUIDE, dtype=np.uint64) << np.uint64(WORD - GUIDE)
        end = start | np.uint64((1 << WORD - GUIDE) - 1)
        surely = np.searchsorted(self.open_to, start, side="left")
        maybe = np.searchsorted(self.low, end, side="right")
        return np.where(surely == maybe, surely + self.first, OPEN).astype(np.int32)

    def _cell(self, noise: Noise) -> int:
        word = np.uint64(noise.random_bits(WORD))
        reached = int(self.low.searchsorted(word, side="right"))
        if self.open_to[reached - 1] < word:
            return self.first + reached
        return settle(noise, int(word), WORD, self.cuts)

    def _cells(self, noise: Noise, size: int) -> NDArray[np.int32]:
        bits = noise.random_words(np.uint16, size)
        cells: NDArray[np.int32] = self.guide[bits]
        vague = np.flatnonzero(cells == OPEN)
        if vague.size:
            words = bits[vague].astype(np.uint64) << np.uint64(WORD - GUIDE)
            words |= noise.random_words(np.uint64, vague.size) >> np.uint64(GUIDE)
            reached = self.low.searchsorted(words, side="right")
            cells[vague] = reached + self.first
            for tie in np.flatnonzero(self.open_to[reached - 1] >= words):
                cells[vague[tie]] = settle(noise, int(words[tie]), WORD, self.cuts)
        return cells

    # ── draws ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def one(self, noise: Noise) -> int:
        """Return one draw, of any size."""
        if not self.shift:
            return self._cell(noise)
        while True:
            cell = self._cell(noise)
            if not cell:
                return 0
            offset = noise.random_bits(self.shift)
            if self._accepts(noise, noise.random_bits(WORD), abs(cell) - 1, offset):
                magnitude = 1 + ((abs(cell) - 1) << self.shift) + offset
                return magnitude if cell > 0 else -magnitude

    def many(self, noise: Noise, size: int) -> NDArray[Any]:
        """Return an array of draws: of int64, or of Python integers for scales beyond about 2^50."""
        if self.shift > WIDEST:
            return np.array([self.one(noise) for _ in range(size)], dtype=object)
        draws = np.empty(size, dtype=np.int64)
        done = 0
        while done < size:
            block = min(BLOCK, size - done)
            found = self._wide(noise, block) if self.shift else self._cells(noise, block)
            draws[done : done + len(found)] = found
            done += len(found)
        return draws

    def _wide(self, noise: Noise, size: int) -> NDArray[np.int64]:
        cells = self._cells(noise, size).astype(np.int64)
        starts = np.maximum(np.abs(cells) - 1, 0)
        offsets: NDArray[np.int64] = noise.uniform(1 << self.shift, size)
        words = noise.random_words(np.uint64, size)
        accepted: NDArray[np.bool_] = (words > self._slack[np.minimum(starts, len(self._slack) - 1)]) | (cells == 0)
        for i in np.flatnonzero(~accepted):
            accepted[i] = self._accepts(noise, int(words[i]), int(starts[i]), int(offsets[i]))
        draws: NDArray[np.int64] = np.sign(cells) * (1 + (starts << self.shift) + offsets)
        return draws[accepted]

    @cached_property
    def _slack(self) -> NDArray[np.uint64]:
        """The words that may stand for a rejection in cell c + 1: those up to 2^64·(the largest γ in the cell).

        The last entry stands for the cells beyond the table; there every word may.
        """
        end, most = (1 << self.shift) - 1, (1 << WORD) - 1
        largest = [(self._gamma(start, end) << WORD) // self.law.unit for start in range(-self.first - 1)]
        return np.array([*(min(most, word) for word in largest), most], dtype=np.uint64)

    def _gamma(self, start: int, offset: int) -> int:
        """g(z) − g(first z of the cell), times the unit of g, where z is the first plus `offset`."""
        first = 1 + (start << self.shift)
        return offset * (self.law.linear + self.law.square * (2 * first + offset))

    def _accepts(self, noise: Noise, word: int, start: int, offset: int) -> bool:
        """True with probability e^−γ, γ = g(z) − g(first z of the cell), by a number that begins with `word`.

        The first step of Canonne, Kamath and Steinke's Algorithm 1 accepts where U ≥ γ; `word` opens that U.
        """
        gamma, unit = self._gamma(start, offset), self.law.unit
        if gamma > unit:
            return exp_coin(noise, gamma, unit)
        above = settle(noise, word, WORD, lambda bits: _rational_cut(gamma, unit, bits))
        return bool(above) or exp_coin(noise, gamma, unit, 2)

    # ── how far the first bits go ─────────────────────────────────────────────────────────────────────────────────

    def total_variation(self, bits: int = 2 * WORD) -> Fraction:
        """Bound the distance from the true law of D if U were cut off after `bits` bits.

        The draws are *not* cut off there, so their own distance is 0. The number shows how much depends on the words
        after the first two. It is computed independently of the table, from one exponential per point at twice the
        precision.
        """
        edges, _, first = self.cuts(bits)
        edges = [0, *edges, 1 << bits]
        step, one = 1 << self.shift, 1 << 2 * bits
        starts = [1 + c * step for c in range(1 - first)]
        exponentials = [exp_cut(self.law(start), 2 * bits) for start in starts]
        low = [one, *(step * low for low, _ in exponentials)]  # of the weights of D = 0, ±1, …, ±(1 − first)
        high = [one, *(step * high for _, high in exponentials)]
        _, ratio = exp_cut(self.law(starts[-1]) - self.law(starts[-2]), 2 * bits)  # of neighbours, from here on
        tail = 2 * high.pop() * one // (one - ratio) + 1
        low_total = low[0] + 2 * sum(low[1:-1])
        high_total = high[0] + 2 * sum(high[1:]) + tail
        distance = -(-(tail << 2 * bits) // low_total)
        for cell in range(first, 1 - first):
            drawn = edges[cell - first + 1] - edges[cell - first] << bits
            least = (low[abs(cell)] << 2 * bits) // high_total
            most = -((-high[abs(cell)] << 2 * bits) // low_total)
            distance += max(drawn - least, most - drawn)
        return Fraction(distance, 2 * one)


@lru_cache(maxsize=4)
def cuts(law: Exponent, shift: int, bits: int) -> Cuts:
    """Bound 2^bits·P(D < d), for d from −m + 1 to m, where P(|D| > m − 1) < 2^−bits; the last value is −m.

    So [0, 1] encloses the first cut and [2^bits − 1, 2^bits] the last: the words 0 and 2^bits − 1, the only ones that
    could stand for |D| ≥ m, are undecided.

    The weights follow u(c+1) = u(c)·r(c), r(c+1) = r(c)·q, since g is quadratic. Every product is rounded down for the
    lower bound and up for the upper one.
    """
    work = bits + WORD
    one, step = 1 << work, 1 << shift
    low_u, high_u = exp_cut(law(1), work)
    low_r, high_r = exp_cut(law(1 + step) - law(1), work)
    low_q, high_q = exp_cut(Fraction(2 * law.square * step * step, law.unit), work)
    low_mass, high_mass = [one], [one]  # the mass of {|D| < d}, d = 1, 2, …
    while True:
        if high_u << bits + shift + 1 < low_mass[-1]:
            tail = (high_u << work + shift + 1) // (one - high_r) + 1  # r falls: the rest is below a geometric series
            if tail << bits < low_mass[-1]:
                break
        low_mass.append(low_mass[-1] + (low_u << shift + 1))
        high_mass.append(high_mass[-1] + (high_u << shift + 1))
        low_u, high_u = low_u * low_r >> work, -(-high_u * high_r >> work)
        low_r, high_r = low_r * low_q >> work, -(-high_r * high_q >> work)
    low_total, high_total = 2 * low_mass[-1], 2 * (high_mass[-1] + tail)
    half = 1 << bits - 1
    low_half = [(mass << bits) // high_total for mass in low_mass]
    high_half = [min(half, -((-mass << bits) // low_total)) for mass in high_mass]
    low = [half - above for above in reversed(high_half)] + [half + above for above in low_half]
    high = [half - above for above in reversed(low_half)] + [half + above for above in high_half]
    return low, high, -len(low_mass)


def _rational_cut(numerator: int, denominator: int, bits: int) -> Cuts:
    scaled = numerator << bits
    return (scaled // denominator,), (-(-scaled // denominator),), 0
