"""Alarms: when quality is lost. A rule on released counts where fresh labels come, else a private test on old rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.exact import Number, rational
from reticent.mechanisms.above_threshold import AboveThreshold, split_segment
from reticent.noise import Noise
from reticent.predictors.gauge import NORMAL, Quality
from reticent.privacy.events import Event
from reticent.promises import check_share

Array = NDArray[Any]
Integers = NDArray[np.int64]

RECENT = 3  # phases whose counts an alarm looks at together
TESTS = 10**6  # tests of old rows until the threshold rises for the first time


@dataclass(frozen=True)
class QualityAlarm:
    """When to raise an alarm: accuracy, or the recall of some class, falls below a declared value.

    The value must be declared: known without looking at the rows, or taken from released quality.

    Parameters
    ----------
    accuracy : float or Fraction or None, default None
        The least share of right answers.
    recall : float or Fraction or None, default None
        The least share of the rows of each class that get this class as their answer. Give one of the two.
    false_alarm : float or Fraction, default 0.05
        The largest probability of a false alarm on old rows, over all tests together.

    >>> QualityAlarm(accuracy=0.8)
    QualityAlarm(accuracy=0.8, recall=None, false_alarm=0.05)
    """

    accuracy: Number | None = None
    recall: Number | None = None
    false_alarm: Number = 0.05

    def __post_init__(self) -> None:
        if (self.accuracy is None) == (self.recall is None):
            raise ValueError("give one of accuracy and recall to QualityAlarm")
        for name in ("accuracy", "recall"):
            if (value := getattr(self, name)) is not None:
                check_share(value, name)
        check_share(self.false_alarm, "false_alarm")

    @property
    def least(self) -> Fraction:
        """The declared value, as an exact number."""
        return rational(self.recall if self.accuracy is None else self.accuracy, "accuracy")

    def raised(self, recent: Sequence[Quality]) -> bool:
        """Whether the last qualities together are below the declared value by more than their 95 % interval.

        It looks at released counts alone, so it costs nothing.
        """
        some = [one for one in recent if one.right is not None][-RECENT:]
        if len(some) < RECENT:
            return False
        least = float(self.least)
        if self.recall is None:
            mean = sum(one.right or 0.0 for one in some) / RECENT
            deviation = math.sqrt(sum((one.deviation or 0.0) ** 2 for one in some)) / RECENT
            return mean < least - NORMAL * deviation
        counts = np.sum([one.confusion for one in some], axis=0)
        variance, classes = sum(one.variance for one in some), len(counts)
        for number, line in enumerate(counts):
            rows = int(line.sum())
            if rows < max(1.0, 4 * math.sqrt(classes * variance)):
                continue
            found = min(1.0, max(0.0, line[number] / rows))
            noise = variance * ((1 - found) ** 2 + (classes - 1) * found**2) / rows**2
            if found < least - NORMAL * math.sqrt(found * (1 - found) / rows + noise):
                return True
        return False

    def value(self, labels: Integers, answers: Integers, classes: int) -> int:
        """Wrong answers beyond the declared share, rounded down, in exact numbers. A replaced row moves it by ≤ 1.

        With `recall` it is the largest over the classes. The share of a row is a fixed rational number, so a class's
        term moves by at most 1 whatever the row was and becomes; so do their maximum and its floor.
        """
        wrong = (labels != answers) & (labels >= 0)
        allowed = 1 - self.least
        if self.recall is None:
            return math.floor(int(wrong.sum()) - allowed * int((labels >= 0).sum()))
        of_class = [labels == one for one in range(classes)]
        return math.floor(max(int(wrong[rows].sum()) - allowed * int(rows.sum()) for rows in of_class))


@dataclass(frozen=True)
class RaisedAlarm:
    """An alarm that was raised; everybody may know of it.

    Parameters
    ----------
    phase : int
        The phase whose answers raised it.
    answered : int
        How many queries had been answered in total.
    """

    phase: int
    answered: int


class OldRowsTest:
    """Tests after each phase whether its answers on old rows are too often wrong, with noise, until one is.

    For a predictor that gets no later labels. The rows are kept aside on day one, train nothing, and are deleted with
    the alarm.

    Guarantee. ε-differential privacy for a replaced row of the block, over all tests together, for adaptively chosen
    phases. The event is that of `AboveThreshold` with one halt.

    Why. The value of each test moves by at most 1 if a row is replaced: see `QualityAlarm.value`. If teachers answer,
    each row is asked with noise of its own, so given the answers to the others the same holds. Thresholds are public
    numbers, also where they rise with the number of tests.

    Parameters
    ----------
    X, labels : array
        The rows, and the indices of their classes.
    alarm : QualityAlarm
        What is declared.
    classes : int
        The number of classes.
    epsilon : Fraction
        Privacy-loss bound ε of the rows.
    unsafe_noise : Noise or None
        For tests only.
    """

    def __init__(
        self,
        X: Array,
        labels: Integers,
        alarm: QualityAlarm,
        *,
        classes: int,
        epsilon: Fraction,
        unsafe_noise: Noise | None,
    ) -> None:
        self.X, self.labels, self.alarm, self.classes = X, labels, alarm, classes
        self._epsilon, self._tests = epsilon, 0
        self._above = AboveThreshold(0, epsilon=epsilon, unsafe_noise=unsafe_noise)

    @property
    def event(self) -> Event:
        """What all tests together cost a row of the block."""
        return self._above.event

    def lost(self, answers: Integers) -> bool:
        """Whether the answers to the rows raise the alarm, which ends the tests."""
        self._tests += 1
        self._above.threshold = margin(self._epsilon, rational(self.alarm.false_alarm, "false_alarm"), self._tests)
        return self._above.ask(self.alarm.value(self.labels, answers, self.classes))

    def state(self) -> dict[str, Any]:
        """The number of tests and the noise of the threshold, which is secret; the rows are kept beside it."""
        return {"tests": self._tests, "above": self._above.state()}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._tests = state["tests"]
        self._above.resume(state["above"])


def margin(epsilon: Fraction, false_alarm: Fraction, tests: int) -> int:
    """How many wrong answers beyond the declared share raise an alarm in a given test: a public number.

    All false alarms together have at most the probability `false_alarm`: half of it in the first 10^6 tests, and at
    every doubling of their number the threshold rises so far that the rest falls as a geometric series.
    """
    doublings = max(0, math.ceil(math.log2(max(1, tests) / TESTS)))
    step = math.ceil(math.log(4) / float(split_segment(epsilon)[1]))
    return least_margin(epsilon, float(false_alarm) / 2, TESTS) + doublings * step


@lru_cache(maxsize=64)
def least_margin(epsilon: Fraction, probability: float, tests: int) -> int:
    """The least margin with which all of some tests together raise a false alarm with at most this probability."""
    low, high = -1, 1
    while false_alarms(epsilon, high, tests) > probability:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if false_alarms(epsilon, middle, tests) > probability else (low, middle)
    return high


def false_alarms(epsilon: Fraction, m: int, tests: int) -> float:
    """The probability of a false alarm in some tests with the margin m, if quality is just what was declared.

    It is Σ_r P(ρ = r)·[1 − (1 − P(ν ≥ m + r))^tests], ρ and ν the discrete Laplace noise of threshold and values.
    """
    shared, single = map(float, split_segment(epsilon))
    widest = math.ceil(60 / shared)
    offsets = np.arange(-widest, widest + 1)
    weights = np.exp(-shared * np.abs(offsets)) * math.tanh(shared / 2)
    distance = m + offsets
    beyond = np.exp(-single * np.where(distance > 0, distance, 1 - distance)) / (1 + math.exp(-single))
    tail = np.where(distance > 0, beyond, 1 - beyond)
    return float(weights @ -np.expm1(tests * np.log1p(-np.minimum(tail, 1 - 1e-16))))
