"""SanThresholds: intervals that hold neither too many nor too few rows are split off one by one, and counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from reticent.data.points import Array
from reticent.mechanisms.choosing import choosing, choosing_threshold
from reticent.mechanisms.counts import laplace_count
from reticent.mechanisms.pieces import Pieces
from reticent.mechanisms.quasi_concave import choose_depth, quasi_concave_maximum, required_promise
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import ApproximateDP, Composed, Event, PureDP, Repeated
from reticent.sanitizers.cells import CountNoise, Level, as_offsets

QUARTER = Fraction(1, 4)


@dataclass(frozen=True)
class SanThresholds:
    """A plan to find ⌈25.6/α⌉ intervals, each with about αm/16 rows or more, and to count the rows in and between them.

    A range with few rows is a cell. In any other, RecConcave finds a length 2^z at which some interval has more than
    αm/32 rows while none of half the length has 3αm/32; the choosing mechanism finds such an interval [a, b]; this is a
    cell, and what is left of the range on either side is treated in the same way.

    Guarantee. (ε, δ)-differential privacy for a replaced row. Public are the number of rows, the size of the domain and
    every parameter.

    Why. Every call is private by itself for the scores that it gets: counts have sensitivity 1; so has I(j), the
    largest number of rows in an interval of 2^j values, hence Q(j) = min(I(j) − αm/32, 3αm/32 − I(j − 1)); a row lies
    in one interval of either of the two overlapping cuts, so the choosing mechanism's growth is 2. Ranges are
    functions of earlier results. The calls are counted, hard: at most I = ⌈25.6/α⌉ ranges are cut, a counter being
    decremented before anything of such a range is looked at but its count; once it is at 0, all ranges are cells. A
    cut range has at most two others in its place, so at most I + 1 ranges are not cut. This makes 3I + 1 counts, I
    searches and I choices. Which comes when depends on the data; but all have the same ε, so their optimal composition
    is that of a fixed list.

    Promise. But for a probability of `failure`, every prefix is right up to αm rows. Let all noise of counts be at most
    τ ≤ 3αm/(8(2I + 1)), all searches succeed, and all choices find an interval within αm/64 of the largest count. Then
    every cut range has αm/16 rows or more, its interval at least 5αm/128, and no more than I are cut. The interval is a
    single value or has at most 36αm/128 rows; a range that is not cut has at most αm/8 + τ. So cells of several values
    have at most αm/2 rows, half of which may be on the wrong side, and the noise of at most 2I + 1 cells adds
    (2I + 1)τ, at most twice that once they are made to sum to m.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm SanThresholds (Figure 11), Lemma 4.8, Claims 4.9, 4.10 and 4.11, Lemma 4.12, Theorem 4.13. Repaired: two
    hard counters in place of one (5I + 1 ≈ 128/α calls, not 308/α); where the choosing mechanism gives ⊥, which the
    paper leaves open, the range is a cell; counts are integers and never below 0; Lap, A_dist inside RecConcave and the
    choosing mechanism are the repaired ones. Sharpened: optimal composition in place of Theorem 2.5; half of the rows
    of a cell at either end of it in place of all at its upper end.
    """

    size: int
    rows: int
    alpha: Fraction
    own: Fraction  # ε of every call
    lost: Fraction  # δ of every search and choice
    failure: Fraction

    band = None

    @property
    def cuts(self) -> int:
        """I, how many ranges may be cut."""
        return most_cuts(self.alpha)

    @property
    def event(self) -> Event:
        """What happened, once it has."""
        return _calls(self.own, self.lost, self.cuts)

    @property
    def bound(self) -> float:
        """By how many rows a prefix may be off; infinite where nothing is promised."""
        return float(self.alpha) * self.rows if self._promises() else math.inf

    def _promises(self) -> bool:
        share, cuts = float(self.failure) / 3, self.cuts
        alpha_rows = float(self.alpha) * self.rows
        noise = CountNoise(1, 1 / self.own, gaussian=False).reach(share / (2 * (3 * cuts + 1)))
        if noise * (2 * cuts + 1) > 3 / 8 * alpha_rows:
            return False
        widths = (self.size - 1).bit_length() + 1
        promise = required_promise(
            widths,
            accuracy=QUARTER,
            epsilon=self.own,
            delta=self.lost,
            failure=self.failure / (3 * cuts),
            depth=_depth(widths, self.own, self.lost),
        )
        rate = float(self.own) * 3 / 7
        spare = 7 / 128 * alpha_rows - choosing_threshold(epsilon=self.own, delta=self.lost, growth=2)
        missed = math.exp(-rate * spare) + 2 * self.rows * math.exp(-rate * alpha_rows / 64) if spare > 0 else 1.0
        return promise <= alpha_rows / 32 and missed * cuts <= share

    @property
    def expected(self) -> float:
        """It is compared with no other."""
        return self.bound

    def calibrated(self, epsilon: Fraction, delta: Fraction) -> SanThresholds:
        """The same plan with the least noise that keeps (ε, δ)."""
        return self

    def release(self, data: Array, noise: Noise) -> list[Level]:
        """The cells of ascending data, and their noisy counts."""
        cells = sorted(self._cells(data, noise))
        lows, highs, counts = zip(*cells, strict=True)
        parents = np.zeros(len(cells), dtype=np.int64)
        ends = as_offsets(lows, self.size), as_offsets(highs, self.size)
        return [Level(*ends, parents, np.array(counts, dtype=np.int64))]

    def _cells(self, data: Array, noise: Noise) -> Iterator[tuple[int, int, int]]:
        left, ranges = self.cuts, [(0, self.size - 1)]
        while ranges:
            low, high = ranges.pop()
            begin, end = _slice(data, low, high, self.size)
            count = self._count(end - begin, noise)
            if low == high or left == 0 or 8 * count < self.alpha * self.rows:
                yield low, high, count
                continue
            left -= 1
            found = self._interval(data[begin:end], low, high, noise)
            if found is None:
                yield low, high, count
                continue
            begin, end = _slice(data, *found, self.size)
            yield *found, self._count(end - begin, noise)
            sides = ((low, found[0] - 1), (found[1] + 1, high))
            ranges += [side for side in sides if side[0] <= side[1]]

    def _count(self, rows: int, noise: Noise) -> int:
        return max(0, laplace_count(rows, epsilon=self.own, unsafe_noise=noise).value)

    def _interval(self, data: Array, low: int, high: int, noise: Noise) -> tuple[int, int] | None:
        goal = self.alpha * self.rows / 32
        fullest = fullest_intervals(data, low, high)
        scores = [min(full - goal, 3 * goal - half) for full, half in zip(fullest, [0, *fullest], strict=False)]
        width = quasi_concave_maximum(
            Pieces.from_breakpoints(range(len(scores)), scores, last=len(scores) - 1),
            promise=goal,
            accuracy=QUARTER,
            epsilon=self.own,
            delta=self.lost,
            depth=_depth(len(scores), self.own, self.lost),
            failure=self.failure / (3 * self.cuts),
            unsafe_noise=noise,
        ).value
        starts, counts = overlapping_counts(data, low, width)
        growth = 2 if width else 1
        best = choosing(counts, epsilon=self.own, delta=self.lost, growth=growth, unsafe_noise=noise).value
        if best is None:
            return None
        return starts[best], min(starts[best] + ((2 << width) if width else 1) - 1, high)


def fullest_intervals(data: Array, low: int, high: int) -> list[int]:
    """I(j): the largest number of rows in an interval of 2^j values of [low, high], for 0 ≤ j ≤ ⌈log2 length⌉."""
    own = np.arange(len(data))
    number = int if data.dtype == object else data.dtype.type
    found = []
    for j in range((high - low).bit_length() + 1):
        reach = min((1 << j) - 1, high - low)
        far = np.where(data > number(high - reach), number(high), data + number(reach))
        found.append(int((np.searchsorted(data, far, side="right") - own).max(initial=0)))
    return found


def overlapping_counts(data: Array, low: int, width: int) -> tuple[list[int], list[int]]:
    """Where intervals begin that hold rows, and how many they hold; of 2·2^width values, in two cuts, one shifted.

    At width 0 they are single values.
    """
    number = int if data.dtype == object else data.dtype.type
    starts, counts = [], []
    length = width + 1 if width else 0
    for shift in (0, 1 << width) if width else (0,):
        inside = data[data >= number(low + shift)] - number(low + shift)
        names, found = np.unique(inside >> number(length), return_counts=True)
        starts += [low + shift + (int(name) << length) for name in names]
        counts += found.tolist()
    return starts, counts


def _slice(data: Array, low: int, high: int, size: int) -> tuple[int, int]:
    ends = as_offsets([low, high], size)
    return int(np.searchsorted(data, ends[0])), int(np.searchsorted(data, ends[1], side="right"))


def _depth(widths: int, own: Fraction, lost: Fraction) -> int:
    return choose_depth(widths, accuracy=QUARTER, epsilon=own, delta=lost)


# ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────────


def most_cuts(alpha: Fraction) -> int:
    """I = ⌈25.6/α⌉."""
    return math.ceil(Fraction(128, 5) / alpha)


def _calls(own: Fraction, lost: Fraction, cuts: int) -> Event:
    return Composed((Repeated(ApproximateDP(own, lost), 2 * cuts), Repeated(PureDP(own), 3 * cuts + 1)))


@lru_cache(maxsize=256)
def _own(epsilon: Fraction, delta: Fraction, cuts: int) -> Fraction:
    lost = delta / (4 * cuts)
    return 1 / calibrate.noise(lambda scale: _calls(1 / scale, lost, cuts), epsilon=epsilon, delta=delta, digits=4)


def san_thresholds(
    size: int, rows: int, *, alpha: Fraction, epsilon: Fraction, delta: Fraction, failure: Fraction
) -> SanThresholds:
    """The plan: half of δ is for the searches and choices, the other half for the composition."""
    cuts = most_cuts(alpha)
    return SanThresholds(size, rows, alpha, _own(epsilon, delta, cuts), delta / (4 * cuts), failure)
