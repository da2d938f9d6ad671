"""The gauge: noisy counts of right and wrong answers on rows that train nothing, and what they say of quality."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.exact import Number
from reticent.mechanisms.counts import integer_array, laplace_count
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.parameters import check_epsilon

Integers = NDArray[np.int64]

NORMAL = 1.96  # standard deviations to each side of a 95 % interval
FEWEST = 50  # labels, by their noisy number: with fewer, an accuracy from feedback says nothing


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How well a phase answered, from noisy counts: everything here is released and may be shown.

    Parameters
    ----------
    phase : int
        The phase that is judged.
    rows : int
        How many rows judged it: rows with a label, or slots that may have none.
    right, low, high : float or None
        The share of right answers, and a 95 % interval of it. None if too few slots have a label.
    recall : tuple of float or None
        For each class, the share of its rows that got it as an answer; None if it has too few rows.
    confusion : tuple of tuples of int
        The noisy counts: one row for each true class, one column for each answer. They may be negative.
    variance : float
        The variance of the noise of each count.
    """

    phase: int
    rows: int
    right: float | None
    low: float | None
    high: float | None
    recall: tuple[float | None, ...]
    confusion: tuple[tuple[int, ...], ...]
    variance: float

    @property
    def balanced(self) -> float | None:
        """The mean recall of all classes; None if one of them has too few rows."""
        known = [one for one in self.recall if one is not None]
        return sum(known) / len(known) if len(known) == len(self.recall) else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of `right`, by chance in the rows and by noise."""
        return None if self.right is None or self.high is None or self.low is None else (self.high - self.low) / (
            2 * NORMAL
        )


def release_confusion(
    labels: Integers, answers: Integers, *, classes: int, epsilon: Number, unsafe_noise: Noise | None = None
) -> Release[Integers]:
    """Release how often each class got each answer, with discrete Laplace noise in every count.

    Guarantee. ε-differential privacy for a replaced row (its label, its answer, or that it has a label). The numbers of
    rows and of classes are public. The event is `PureDP(ε)`.

    Why. A row adds 1 to one count, or to none if it has no label. So replacing it changes the counts by at most 2 in
    total, and the noise has the scale 2/ε. If teachers answer, their votes do not depend on the row, and each answer
    has noise of its own; given all other answers the same holds. See docs/predictors/truth.md.

    Source. New; the noise is that of `laplace_count`.

    Parameters
    ----------
    labels : array of int
        The true class of each row; −1 for a row without a label.
    answers : array of int
        The class that each row got.
    classes : int
        The number of classes.
    epsilon : float or Fraction
        Privacy-loss bound ε of the release.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    >>> truth, given = np.repeat([0, 1, -1], 100), np.repeat([0, 0, 1], 100)
    >>> counts, event = release_confusion(truth, given, classes=2, epsilon=1)
    >>> bool(np.abs(counts - [[100, 0], [100, 0]]).max() < 60), event
    (True, PureDP(epsilon=Fraction(1, 1)))
    """
    truth = integer_array(labels, "labels", least=-1, most=classes - 1)
    given = integer_array(answers, "answers", least=0, most=classes - 1)
    known = truth >= 0
    counts = np.bincount(truth[known] * classes + given[known], minlength=classes * classes)
    value, event = laplace_count(counts, epsilon=epsilon, sensitivity=2, unsafe_noise=unsafe_noise)
    return Release(value.reshape(classes, classes), event)


def noise_variance(epsilon: Number) -> float:
    """The variance of the noise of one count of `release_confusion`."""
    rate = float(check_epsilon(epsilon)) / 2
    return 2 * math.exp(-rate) / (1 - math.exp(-rate)) ** 2 if rate < 700 else 0.0


def quality_of(confusion: Integers, *, phase: int, rows: int, epsilon: Number, all_labelled: bool) -> Quality:
    """What noisy counts say. It looks at released counts and public numbers alone, so it costs nothing.

    If all rows have labels, their number is public: of all unbiased weightings of the counts on and off the diagonal
    the one with the least noise is taken. Else the number of labels is secret, and estimated from the counts.

    Parameters
    ----------
    confusion : array of int
        The counts of `release_confusion`.
    phase, rows : int
        The phase that is judged, and the number of rows that judge it.
    epsilon : float or Fraction
        The ε of the release.
    all_labelled : bool
        Whether every row has a label.
    """
    classes, v = len(confusion), noise_variance(epsilon)
    diagonal = float(np.trace(confusion))
    off = float(confusion.sum()) - diagonal
    right = low = high = None
    if all_labelled:
        right = ((classes - 1) * diagonal + rows - off) / (classes * rows)
        noise, count = (classes - 1) * v / rows**2, float(rows)
    else:
        count = diagonal + off
        if count >= max(FEWEST, 4 * classes * math.sqrt(v)):
            right = diagonal / count
            noise = v * (classes * (1 - right) ** 2 + (classes**2 - classes) * right**2) / count**2
    if right is not None:
        inside = min(1.0, max(0.0, right))
        reach = NORMAL * math.sqrt(inside * (1 - inside) / count + noise)
        low, high = right - reach, right + reach
    of_class = confusion.sum(axis=1)
    recall = tuple(
        min(1.0, max(0.0, float(confusion[one, one] / of_class[one])))
        if of_class[one] >= max(1, 4 * math.sqrt(classes * v))
        else None
        for one in range(classes)
    )
    counts = tuple(tuple(int(one) for one in line) for line in confusion)
    return Quality(
        phase=phase, rows=rows, right=right, low=low, high=high, recall=recall, confusion=counts, variance=v
    )


def quality_from_json(state: dict[str, Any]) -> Quality:
    """The quality whose `dataclasses.asdict` was kept as JSON."""
    return Quality(
        **state | {"recall": tuple(state["recall"]), "confusion": tuple(map(tuple, state["confusion"]))}
    )
