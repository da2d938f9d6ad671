"""One index out of many, with probability exactly proportional to counts[i]·e^(rate·scores[i]).

Let x_i = rate·(best score − scores[i]) ≥ 0, and let the bucket b_i be a whole number that is at most x_i, close to its
floor. A bucket is drawn with probability proportional to N_b·e^−b, where N_b is the sum of its counts; then an item of
the bucket in proportion to the counts. The item is accepted with probability e^−(x_i − b_i); if it is not, the draw
starts again. The accepted index has weight N_b·e^−b · counts[i]/N_b · e^−(x_i − b_i) = counts[i]·e^−x_i.

All three steps are exact: the first by `settle`, the second by a uniform integer below N_b, the third by `exp_coin` on
the exact fraction x_i − b_i. Floating point only chooses b_i, which may be any whole number up to x_i. The cost is one
pass over the items, whatever the counts. A trial succeeds with probability at least 1/e, except in the last bucket,
which holds all items of negligible weight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.exact import exp_bounds
from reticent.noise.bits import WORD, Cuts, exp_coin, settle
from reticent.noise.reading import exact_numbers, whole_numbers

if TYPE_CHECKING:
    from reticent.noise.samplers import Noise

BLOCK = 1 << 16  # items at a time, so that the work stays in the cache
FAR = 200  # items whose total weight is e^−FAR of the best share the last bucket
GUARD = 2.0**-40  # the computed x exceeds the true one by less than 2^−50·x + 2^−48
LEAST_RATE, MOST_RATE = (Fraction(limit) for limit in (np.finfo(np.float64).tiny, np.finfo(np.float64).max))
HALF_WORD = np.uint64(32)


def choose(noise: Noise, scores: ArrayLike, rate: Fraction, counts: ArrayLike | None, *, bits: int = WORD) -> int:
    """Draw an index with probability ∝ counts[i]·e^(rate·scores[i]), as described above.

    Parameters
    ----------
    noise : Noise
        The source of randomness.
    scores : array_like
        The scores.
    rate : Fraction
        The factor of the scores, at least 0.
    counts : array_like or None
        The counts; None is 1 for each.
    bits : int, default 64
        How many random bits are read first. It does not change the law.
    """
    values = exact_numbers(scores, "scores")
    weights = None if counts is None else _counts(counts, len(values))
    normal = rate == 0 or LEAST_RATE <= rate <= MOST_RATE
    exact = values.dtype == object or (weights is not None and weights.dtype == object) or not normal
    pool = _ExactPool(values, rate, weights) if exact else _ArrayPool(values, rate, weights)
    buckets = sorted(pool.totals)
    cuts = lru_cache(maxsize=2)(proportions(buckets, [pool.totals[bucket] for bucket in buckets]))
    while True:
        bucket = buckets[settle(noise, noise.random_bits(bits), bits, cuts)]
        item = pool.draw(noise, bucket)
        gamma = pool.excess(item, bucket)
        if exp_coin(noise, gamma.numerator, gamma.denominator):
            return item


def proportions(buckets: Sequence[int], totals: Sequence[int]) -> Callable[[int], Cuts]:
    """Enclose the cut points between cells of probability proportional to totals[k]·e^−buckets[k]."""
    # totals·e^−bucket < 2^size: log2 e is rounded down
    sizes = [n.bit_length() - b * 14426950408889634 // 10**16 for b, n in zip(buckets, totals, strict=True)]
    largest = max(sizes)

    def cuts(bits: int) -> Cuts:
        work = bits + WORD + len(buckets).bit_length()
        low, high = [], []  # of each weight, in units of 2^(largest − work)
        for bucket, total, size in zip(buckets, totals, sizes, strict=True):
            if size < largest - work:
                low.append(0)
                high.append(1)
                continue
            low_exp, high_exp, exponent = exp_bounds(Fraction(-bucket), work)
            drop = max(0, total.bit_length() - work)
            top = total >> drop
            unit = drop + exponent - largest  # top·low_exp·2^unit is in the units asked for
            low.append(_scaled(top * low_exp, unit))
            high.append(-_scaled(-(top + (drop > 0)) * high_exp, unit))
        low_sums, high_sums = list(accumulate(low)), list(accumulate(high))
        low_total, high_total = low_sums.pop(), high_sums.pop()
        return (
            [(value << bits) // high_total for value in low_sums],
            [-((-value << bits) // low_total) for value in high_sums],
            0,
        )

    return cuts


def _scaled(value: int, exponent: int) -> int:
    """⌊value·2^exponent⌋"""
    return value << exponent if exponent >= 0 else value >> -exponent


class _ArrayPool:
    """Scores and counts in arrays of 64-bit numbers."""

    def __init__(self, scores: NDArray[Any], rate: Fraction, counts: NDArray[np.uint64] | None) -> None:
        self.scores, self.rate, self.counts = scores, rate, counts
        live = scores if counts is None or counts.all() else scores[counts > 0]
        self.top = live.max()
        # e^last is at least e^FAR times the sum of all counts, so the last bucket is practically never drawn
        self.last = FAR + (len(scores).bit_length() + (0 if counts is None else WORD)) * 7 // 10
        self.buckets = np.empty(len(scores), dtype=np.int16)
        sums = np.zeros((2, self.last + 1), dtype=np.uint64)  # of the low and the high halves of the counts
        for begin in range(0, len(scores), BLOCK):
            block = slice(begin, begin + BLOCK)
            buckets = self._buckets(scores[block])
            self.buckets[block] = buckets
            if counts is None:
                sums[0] += np.bincount(buckets, minlength=self.last + 1).astype(np.uint64)
            else:
                for row, half in enumerate(_halves(counts[block])):
                    # exact: BLOCK values below 2^32 add up to less than 2^53
                    sums[row] += np.bincount(buckets, weights=half, minlength=self.last + 1).astype(np.uint64)
        filled = np.flatnonzero(sums.any(axis=0))
        self.totals = {int(bucket): int(sums[0, bucket]) + (int(sums[1, bucket]) << 32) for bucket in filled}

    def _buckets(self, scores: NDArray[Any]) -> NDArray[np.intp]:
        rate = float(self.rate)
        x: NDArray[np.float64]
        with np.errstate(over="ignore", invalid="ignore"):  # an x that overflows is far beyond the last bucket
            if scores.dtype == np.float64:
                x = (self.top - scores) * rate
                if not np.isfinite(x).all():  # unless the difference itself overflowed
                    x = np.where(np.isfinite(x), x, (self.top / 4 - scores / 4) * rate * 4)
            else:
                # modulo 2^64 the difference of two 64-bit integers in order is exact
                x = (self.top.view(np.uint64) - scores.view(np.uint64)) * rate
        x *= 1 - GUARD
        x -= GUARD
        return np.clip(x, 0, self.last, out=x).astype(np.intp)

    def draw(self, noise: Noise, bucket: int) -> int:
        """An item of the bucket, in proportion to the counts."""
        members = np.flatnonzero(self.buckets == bucket)
        target = noise.uniform(self.totals[bucket])
        if self.counts is None:
            return int(members[target])
        low, high = (np.cumsum(half) for half in _halves(self.counts[members]))
        position = bisect_right(range(len(members)), target, key=lambda i: int(low[i]) + (int(high[i]) << 32))
        return int(members[position])

    def excess(self, item: int, bucket: int) -> Fraction:
        """x − b ≥ 0 for an item of bucket b."""
        return self.rate * (Fraction(self.top.item()) - Fraction(self.scores[item].item())) - bucket


def _halves(counts: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return counts & np.uint64(0xFFFFFFFF), counts >> HALF_WORD


class _ExactPool:
    """Scores that are any fractions, counts that are any whole numbers."""

    def __init__(self, scores: NDArray[Any], rate: Fraction, counts: NDArray[Any] | None) -> None:
        self.rate = rate
        self.scores = scores.tolist()
        self.counts = [1] * len(self.scores) if counts is None else counts.tolist()
        live = [(score, count) for score, count in zip(self.scores, self.counts, strict=True) if count]
        self.top = Fraction(max(score for score, _ in live))
        last = FAR + (len(live).bit_length() + max(count.bit_length() for _, count in live)) * 7 // 10
        self.members: dict[int, list[int]] = {}
        self.totals: dict[int, int] = {}
        buckets: dict[Any, int] = {}  # scores are often numbers of rows, and most of them occur more than once
        for item, (score, count) in enumerate(zip(self.scores, self.counts, strict=True)):
            if count:
                bucket = buckets.get(score)
                if bucket is None:
                    bucket = buckets[score] = self._bucket(score, last)
                self.members.setdefault(bucket, []).append(item)
                self.totals[bucket] = self.totals.get(bucket, 0) + count

    def _bucket(self, score: Any, last: int) -> int:
        over, under = score.as_integer_ratio()
        above = self.rate.numerator * (self.top.numerator * under - over * self.top.denominator)
        below = self.rate.denominator * self.top.denominator * under  # x = above/below
        if above.bit_length() > below.bit_length() + last.bit_length():
            return last
        drop = max(0, below.bit_length() - 2 * WORD)  # long division is slow, and a little less than ⌊x⌋ is enough
        return int(min(last, (above >> drop) // ((below >> drop) + (drop > 0))))

    def draw(self, noise: Noise, bucket: int) -> int:
        """An item of the bucket, in proportion to the counts."""
        target = noise.uniform(self.totals[bucket])
        for item in self.members[bucket]:
            target -= self.counts[item]
            if target < 0:
                return item
        raise AssertionError("the counts of a bucket add up to its total")

    def excess(self, item: int, bucket: int) -> Fraction:
        """x − b ≥ 0 for an item of bucket b."""
        return self.rate * (self.top - Fraction(self.scores[item])) - bucket


def _counts(counts: ArrayLike, size: int) -> NDArray[Any]:
    values = whole_numbers(counts, "counts")
    if len(values) != size:
        raise ValueError(f"counts must have one entry per score, got {len(values)} for {size}")
    least, most = int(values.min()), int(values.max())
    if least < 0 or not most:
        raise ValueError("counts must not be negative, and at least one must be positive")
    return values.astype(np.uint64, copy=False) if most < 1 << 64 else values
