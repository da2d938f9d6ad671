"""The discrete Gaussian and Laplace tables: enclosed cuts, open tails, ties, and the law of what is drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import log2

import numpy as np
import pytest
from goodness import ACCEPT, REJECT, fits, gaussian_exponent, laplace_exponent, probabilities, real, tally
from mpmath import mp, mpf
from numpy.typing import NDArray
from scipy.stats import laplace as continuous_laplace
from scipy.stats import norm
from scripted import Scripted

from reticent.noise import Noise, Seeded, tables
from reticent.noise.tables import OPEN, Table

Family = Callable[[int, int], Table]
GAUSSIAN_SCALES = [Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(10), Fraction(355, 113), Fraction(100)]
LAPLACE_SCALES = [Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(10), Fraction(22, 7)]
TABLES: list[tuple[Family, Fraction]] = [
    *((tables.gaussian, s) for s in GAUSSIAN_SCALES),
    *((tables.laplace, s) for s in LAPLACE_SCALES),
]
WIDE: list[tuple[Family, Fraction]] = [(tables.gaussian, Fraction(5001, 2)), (tables.laplace, Fraction(4000, 3))]


def coarse_gaussian(numerator: int, denominator: int) -> Table:
    return Table(tables.gaussian(numerator, denominator).law, 3)


def coarse_laplace(numerator: int, denominator: int) -> Table:
    return Table(tables.laplace(numerator, denominator).law, 3)


COARSE: list[tuple[Family, Fraction]] = [(coarse_gaussian, Fraction(501, 2)), (coarse_laplace, Fraction(200, 3))]


def make(family: Family, scale: Fraction) -> Table:
    return family(scale.numerator, scale.denominator)


def exponent(family: Family, scale: Fraction) -> Callable[[int], mpf]:
    return gaussian_exponent(scale) if family in (tables.gaussian, coarse_gaussian) else laplace_exponent(scale)


def true_cuts(family: Family, scale: Fraction, shift: int, first: int, extra: int) -> list[mpf]:
    """P(D < d) for d = first + 1, …, −first, summed well beyond the table."""
    g, step = exponent(family, scale), 1 << shift
    weights = [mpf(1)] + [step * mp.exp(-g(1 + c * step)) for c in range(-first + extra)]
    total = weights[0] + 2 * mp.fsum(weights[1:])
    below = mp.fsum(weights[-first:]) / total  # P(D ≤ first)
    result = []
    for d in range(first + 1, -first + 1):
        result.append(below)
        below += weights[abs(d)] / total
    return result


# ── the cuts ──────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(("family", "scale"), TABLES + COARSE)
@pytest.mark.parametrize("bits", [64, 128])
def test_every_cut_lies_within_its_bounds(family: Family, scale: Fraction, bits: int) -> None:
    table = make(family, scale)
    low, high, first = table.cuts(bits)
    extra = 2 * -first + 20  # e^−g there is far below what the bounds can tell apart
    with mp.workprec(300):
        unit = mpf(2) ** bits
        for below, above, cut in zip(low, high, true_cuts(family, scale, table.shift, first, extra), strict=True):
            assert below <= cut * unit <= above
    assert max(above - below for below, above in zip(low, high, strict=True)) <= 2
    assert list(low) == sorted(low)
    assert list(high) == sorted(high)


@pytest.mark.parametrize(("family", "scale"), TABLES + COARSE)
@pytest.mark.parametrize("bits", [64, 128, 192])
def test_the_tails_stay_open_at_every_precision(family: Family, scale: Fraction, bits: int) -> None:
    low, high, _ = make(family, scale).cuts(bits)
    assert (low[0], high[-1]) == (0, 1 << bits)
    assert high[0] >= 1
    assert low[-1] <= (1 << bits) - 1


def test_the_twin_with_an_off_by_one_in_its_cuts_leaves_the_bounds() -> None:
    low, high, first = tables.gaussian(10, 1).cuts(128)
    with mp.workprec(500):
        cuts = [cut * mpf(2) ** 128 for cut in true_cuts(tables.gaussian, Fraction(10), 0, first, 400)]
        shifted = zip(low[1:], high[1:], cuts, strict=False)
        assert not all(below <= cut <= above for below, above, cut in shifted)


@pytest.mark.parametrize(("family", "scale"), TABLES + COARSE)
def test_the_guide_agrees_with_the_cuts(family: Family, scale: Fraction) -> None:
    table = make(family, scale)
    low, high, first = table.cuts(64)
    for bits in [0, 1, 2, 777, 2**15 - 1, 2**15, 2**15 + 1, 50_000, 2**16 - 2, 2**16 - 1]:
        start, end = bits << 48, (bits + 1 << 48) - 1
        reached = sum(above <= start for above in high)
        settled = reached == sum(below <= end for below in low)
        assert table.guide[bits] == (first + reached if settled else OPEN)


# ── the draw is the cell of the number that was read ──────────────────────────────────────────────────────────────

def inverse(family: Family, scale: Fraction, numbers: Sequence[int], bits: int) -> list[int]:
    """The cell of each number/2^bits, found by mpmath alone."""
    edges = true_edges(family, scale, bits)
    return [bisect_right(edges, number) - len(edges) // 2 for number in numbers]


@lru_cache(maxsize=2)
def true_edges(family: Family, scale: Fraction, bits: int) -> list[int]:
    reach = int(60 * scale) + 20
    with mp.workprec(400):
        return [int(mp.ceil(cut * mpf(2) ** bits)) for cut in true_cuts(family, scale, 0, -reach, reach)]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "scale"), TABLES)
def test_draws_invert_the_true_cumulative_law(family: Family, scale: Fraction) -> None:
    """Feed the sampler known bits; what it returns must be the cell that mpmath finds for them."""
    table = make(family, scale)
    feed = Seeded(unsafe_seed=7)
    numbers = [feed.random_bits(64) for _ in range(300)] + [feed.random_bits(48) for _ in range(20)]
    expected = inverse(family, scale, numbers, 64)
    assert [table.one(Scripted([number])) for number in numbers] == expected
    guides = sum(number >> 48 << 16 * i for i, number in enumerate(numbers))
    vague = [number for number in numbers if table.guide[number >> 48] == OPEN]
    rest = sum((number & (1 << 48) - 1) << 16 << 64 * i for i, number in enumerate(vague))
    drawn = table.many(Scripted([guides, rest] if vague else [guides]), len(numbers))
    assert drawn.tolist() == expected


# ── ties ──────────────────────────────────────────────────────────────────────────────────────────────────────────

class IgnoresTheSecondWord(Table):
    """Twin: settles ties by the first word."""

    def _cell(self, noise: Noise) -> int:
        return self.first + int(self.low.searchsorted(np.uint64(noise.random_bits(64)), side="right"))

    def _cells(self, noise: Noise, size: int) -> NDArray[np.int32]:
        words = noise.random_words(np.uint16, size).astype(np.uint64) << np.uint64(48)
        words |= noise.random_words(np.uint64, size) >> np.uint64(16)
        return (self.low.searchsorted(words, side="right") + self.first).astype(np.int32)


def settles_ties(table: Table, family: Family, scale: Fraction) -> bool:
    """Put the first word on the cut below d, the second below and above it; scalar and vector must find d − 1 and d."""
    low, high, first = table.cuts(128)
    right = True
    for d in range(-2 * int(scale), 2 * int(scale) + 1):
        cut = d - first - 1  # the index of P(D < d)
        for number, expected in ((low[cut] - 1, d - 1), (high[cut], d)):
            assert [expected] == inverse(family, scale, [number], 128)
            word, second = number >> 64, number & (1 << 64) - 1
            right &= table.one(Scripted([word, second])) == expected
            right &= table.many(Scripted([word >> 48, (word & (1 << 48) - 1) << 16, second]), 1).tolist() == [expected]
    return right


@pytest.mark.parametrize(("family", "scale"), [(tables.gaussian, Fraction(5)), (tables.laplace, Fraction(3))])
def test_ties_are_settled_by_the_second_word(family: Family, scale: Fraction) -> None:
    real_table = make(family, scale)
    assert settles_ties(real_table, family, scale)
    assert not settles_ties(IgnoresTheSecondWord(real_table.law, real_table.shift), family, scale)


@pytest.mark.parametrize("d", [-20, 0, 1, 15])
def test_a_tie_in_the_second_word_is_settled_by_the_third(d: int) -> None:
    table = tables.gaussian(10, 1)
    (short_low, short_high, short_first), (low, high, first) = table.cuts(128), table.cuts(192)
    cut, short_cut = d - first - 1, d - short_first - 1
    for number, expected in ((low[cut] - 1, d - 1), (high[cut], d)):
        assert short_low[short_cut] <= number >> 64 < short_high[short_cut]
        assert [expected] == inverse(tables.gaussian, Fraction(10), [number], 192)
        words = [number >> 128, number >> 64 & (1 << 64) - 1, number & (1 << 64) - 1]
        assert table.one(Scripted(words)) == expected


def test_the_tails_go_on_beyond_the_table() -> None:
    """Words of zeros lead to draws that no 64-bit table could hold."""
    table = tables.gaussian(1, 1)
    draw = table.one(Scripted([0, 0, 1 << 40]))
    assert draw < table.first
    assert [draw] == inverse(tables.gaussian, Fraction(1), [1 << 40], 192)
    top = (1 << 64) - 1
    assert table.one(Scripted([top, top, top - (1 << 40)])) == -draw
    assert table.many(Scripted([0, 0, 0, 1 << 40]), 1).tolist() == [draw]


# ── total variation ───────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(
    ("sigma", "bound"), [(Fraction(1, 2), -125), (Fraction(1), -125), (Fraction(10), -122), (Fraction(100), -119)]
)
def test_the_first_128_bits_are_almost_the_law(sigma: Fraction, bound: int) -> None:
    table = make(tables.gaussian, sigma)
    stated = table.total_variation()
    assert log2(stated) <= bound
    low, _, first = table.cuts(128)
    with mp.workprec(600):
        cuts = true_cuts(tables.gaussian, sigma, 0, first, 3 * -first + 20)
        drawn = np.diff(np.array([0, *low, 1 << 128], dtype=object))
        true = [b - a for a, b in zip([mpf(0), *cuts], [*cuts, mpf(1)], strict=True)]
        distance = mp.fsum(abs(mpf(int(p)) / mpf(2) ** 128 - q) for p, q in zip(drawn, true, strict=True)) / 2
        assert distance <= real(stated)
        assert real(stated) < 2 * distance


@pytest.mark.slow
def test_the_figures_in_the_docstring() -> None:
    assert tables.gaussian(10, 1).total_variation() < Fraction(1, 2**122)
    assert tables.gaussian(1000, 1).total_variation() < Fraction(1, 2**115)


def test_total_variation_sees_a_table_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: one cut moved by 2^20 units of 2^−128."""
    table = tables.gaussian(10, 1)
    low, high, first = table.cuts(128)
    moved = [*low[:100], low[100] + (1 << 20), *low[101:]]
    monkeypatch.setattr(tables, "cuts", lambda law, shift, bits: (moved, high, first))
    assert table.total_variation() > Fraction(1, 2**109)


# ── the law of large samples ──────────────────────────────────────────────────────────────────────────────────────

Sampler = Callable[[int], NDArray[np.int64]]


def law_test(draw: Sampler, family: Family, scale: Fraction, size: int = 400_000) -> float:
    """The p-value of draws against the exact law on up to 400 bins."""
    if scale < Fraction(1, 40):  # e^−40 and less: nothing but zeros can be expected
        return float(not draw(size).any())
    edges, law = binned_law(family, scale)
    return fits(tally(draw(size), edges), law)


@lru_cache(maxsize=4)
def binned_law(family: Family, scale: Fraction) -> tuple[range, list[float]]:
    reach = int(9 * scale) + 10 if family is tables.gaussian else int(35 * scale) + 35
    edges = range(-int(5 * scale) - 4, int(5 * scale) + 5, max(1, int(scale) // 25))
    return edges, probabilities(exponent(family, scale), edges, reach)


LAW = [*TABLES, (tables.gaussian, Fraction(1000)), (tables.laplace, Fraction(400)), *WIDE]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "scale"), LAW)
def test_draws_follow_the_law(family: Family, scale: Fraction) -> None:
    table, noise = make(family, scale), Seeded(unsafe_seed=11)
    assert law_test(lambda size: table.many(noise, size), family, scale) > ACCEPT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "scale"), [(tables.gaussian, Fraction(10)), (tables.laplace, Fraction(10)), *WIDE]
)
def test_scalar_draws_follow_the_law(family: Family, scale: Fraction) -> None:
    table, noise = make(family, scale), Seeded(unsafe_seed=12)
    one_by_one = lambda size: np.array([table.one(noise) for _ in range(size)])  # noqa: E731
    assert law_test(one_by_one, family, scale, 20_000) > ACCEPT


@pytest.mark.slow
@pytest.mark.parametrize(("family", "scale"), [(tables.gaussian, Fraction(10)), (tables.laplace, Fraction(10)), *WIDE])
def test_twins_of_the_law_are_rejected(family: Family, scale: Fraction) -> None:
    noise = Seeded(unsafe_seed=13)
    narrow = make(family, scale * Fraction(7, 10))
    wide = make(family, scale)
    limit = 3 * int(scale)

    def cut_off(size: int) -> NDArray[np.int64]:
        draws: NDArray[np.int64] = wide.many(noise, 2 * size)
        return draws[np.abs(draws) <= limit][:size]

    twins: list[Sampler] = [
        lambda size: narrow.many(noise, size),  # scale × 0.7
        cut_off,  # no tail beyond three scales
        lambda size: wide.many(noise, size) + int(scale) // 10,  # off by one at scale 10
    ]
    for twin in twins:
        assert law_test(twin, family, scale) < REJECT


class AcceptsAll(Table):
    """Twin: uniform inside its cells."""

    def _accepts(self, noise: Noise, word: int, start: int, offset: int) -> bool:
        return True


@pytest.mark.slow
def test_twin_that_never_rejects_within_a_cell_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, noise = Fraction(4), Seeded(unsafe_seed=14)
    monkeypatch.setattr(tables, "LAPLACE_REACH", 1)
    real_table = tables.laplace.__wrapped__(4, 1)
    assert real_table.shift == 2
    assert law_test(lambda size: real_table.many(noise, size), tables.laplace, scale, 100_000) > ACCEPT
    twin = AcceptsAll(real_table.law, real_table.shift)
    assert law_test(lambda size: twin.many(noise, size), tables.laplace, scale, 100_000) < REJECT


@pytest.mark.slow
@pytest.mark.parametrize("reach", [1, 2, 8])
def test_coarse_cells_do_not_change_the_law(reach: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With cells as wide as the scale most draws are decided by the acceptance step, also where γ > 1."""
    monkeypatch.setattr(tables, "GAUSSIAN_REACH", reach)
    table, noise = tables.gaussian.__wrapped__(8, 1), Seeded(unsafe_seed=15)
    assert table.shift == {1: 3, 2: 2, 8: 0}[reach]
    assert law_test(lambda size: table.many(noise, size), tables.gaussian, Fraction(8), 50_000) > ACCEPT


@pytest.mark.slow
@pytest.mark.parametrize("scale", [10**6, 10**12, 10**17, 10**30])
def test_scales_without_end(scale: int) -> None:
    """At such scales the continuous law is within 1/scale."""
    noise, size = Seeded(unsafe_seed=16), 10_000 if scale > 10**15 else 200_000
    for family, continuous in ((tables.gaussian, norm), (tables.laplace, continuous_laplace)):
        draws = family(scale, 1).many(noise, size)
        assert draws.dtype == (np.int64 if scale < 10**15 else object)
        points = continuous.ppf(np.arange(1, 100) / 100)
        counts = np.bincount(np.searchsorted(points, draws.astype(float) / scale), minlength=100)
        assert fits(counts, np.full(100, 0.01)) > ACCEPT
        assert len(set((draws % 2).tolist())) == 2


def test_a_table_is_quick_to_build_and_kept() -> None:
    assert tables.gaussian(1000, 1) is tables.gaussian(1000, 1)
    assert len(tables.gaussian(1000, 1).low) < 20_000
    assert len(tables.laplace(10**9, 7).low) < 50_000
