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
    """A plan to find ⌈25.6/α⌉ intervals with about αm/16 rows or more each, and to count the rows in and between them.

    A range with few rows is a cell. In any other, RecConcave finds a length 2^z at which some interval has more than
    αm/32 rows while none of half the length has 3αm/32. The choosing mechanism finds such an interval [a, b]. It is a
    cell, and what is left of the range on either side is treated in the same way.

    Guarantee. (ε, δ)-differential privacy for a replaced row. Public are the number of rows, the size of the domain and
    every parameter.

    Why. Counts and the scores of the search have sensitivity 1, and the choosing mechanism's growth is 2. The calls are
    counted, hard: at most I = ⌈25.6/α⌉ ranges are cut, which makes 3I + 1 counts, I searches and I choices. All have
    the same ε, so their composition does not depend on their order. The proof is in `docs/sanitizers/thresholds.md`.

    Promise. Except with probability `failure`, every prefix is correct up to αm rows.

    Source. Beimel, Nissim, Stemmer, *Private Learning and Sanitization: Pure vs. Approximate Differential Privacy*,
    Algorithm SanThresholds (Figure 11), Lemma 4.8, Claims 4.9, 4.10 and 4.11, Lemma 4.12, Theorem 4.13. Repaired: two
    hard counters in place of one (5I + 1 ≈ 128/α calls, not 308/α); where the choosing mechanism gives ⊥, which the
    paper leaves open, the range is a cell; counts are integers and never below 0; Lap, A_dist inside RecConcave and the
    choosing mechanism are the repaired ones. Sharpened: optimal composition in place of Theorem 2.5; half of the rows
    of a cell at either end of it in place of all at its upper end.

    Parameters
    ----------
    size : int
        The number of values of the domain.
    rows : int
        m, the number of rows.
    alpha : Fraction
        α, the error.
    own : Fraction
        ε of every call.
    lost : Fraction
        δ of every search and choice.
    failure : Fraction
        The probability with which the promise may fail.
    """

    size: int
    rows: int
    alpha: Fraction
    own: Fraction
    lost: Fraction
    failure: Fraction

    band = None

    @property
    def cuts(self) -> int:
        """I, the largest number of ranges that are cut."""
        return most_cuts(self.alpha)

    @property
    def event(self) -> Event:
        """The event of a release."""
        return _calls(self.own, self.lost, self.cuts)

    @property
    def bound(self) -> float:
        """The error of a prefix that is promised, in rows; infinite if nothing is promised."""
        return float(self.alpha) * self.rows if self._promises() else math.inf

    def _promises(self) -> bool:
        """Whether the rows are enough for the promise."""
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
        """The same as `bound`; this plan is compared with no other."""
        return self.bound

    def calibrated(self, epsilon: Fraction, delta: Fraction) -> SanThresholds:
        """The same plan: its noise is calibrated when it is made."""
        return self

    def release(self, data: Array, noise: Noise) -> list[Level]:
        """Release the cells and their noisy counts.

        Parameters
        ----------
        data : array
            The rows as offsets in the domain, ascending.
        noise : Noise
            Where the noise is drawn from.

        Returns
        -------
        list of Level
            One level, with all cells.
        """
        cells = sorted(self._cells(data, noise))
        lows, highs, counts = zip(*cells, strict=True)
        parents = np.zeros(len(cells), dtype=np.int64)
        ends = as_offsets(lows, self.size), as_offsets(highs, self.size)
        return [Level(*ends, parents, np.array(counts, dtype=np.int64))]

    def _cells(self, data: Array, noise: Noise) -> Iterator[tuple[int, int, int]]:
        """The ends of each cell and its noisy count, in no order."""
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
        """The ends of a full interval of the range; None if none was found."""
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
    """I(j): the largest number of rows in an interval of 2^j values of [low, high], for 0 ≤ j ≤ ⌈log2 length⌉.

    Parameters
    ----------
    data : array
        The rows of the range, ascending.
    low, high : int
        The ends of the range.
    """
    own = np.arange(len(data))
    number = int if data.dtype == object else data.dtype.type
    found = []
    for j in range((high - low).bit_length() + 1):
        reach = min((1 << j) - 1, high - low)
        far = np.where(data > number(high - reach), number(high), data + number(reach))
        found.append(int((np.searchsorted(data, far, side="right") - own).max(initial=0)))
    return found


def overlapping_counts(data: Array, low: int, width: int) -> tuple[list[int], list[int]]:
    """The starts of intervals that hold rows, and how many they hold.

    The intervals have 2·2^width values and come from two cuts of the range, one of them shifted by half an interval. At
    width 0 they are single values.

    Parameters
    ----------
    data : array
        The rows of the range, ascending.
    low : int
        The lower end of the range.
    width : int
        The logarithm of half the length.
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
    """I = ⌈25.6/α⌉, the largest number of ranges that are cut."""
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
    """Plan SanThresholds. Half of δ is for the searches and choices, the other half for the composition.

    Parameters
    ----------
    size, rows : int
        The number of values of the domain, and of rows.
    alpha : Fraction
        The error.
    epsilon, delta : Fraction
        The privacy of all calls together.
    failure : Fraction
        The probability with which the promise may fail.
    """
    cuts = most_cuts(alpha)
    return SanThresholds(size, rows, alpha, _own(epsilon, delta, cuts), delta / (4 * cuts), failure)
