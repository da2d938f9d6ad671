"""The gauge: the exact law of its counts on worst neighbours, and what they say of accuracy and recall."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import law
from reticent.mechanisms.counts import laplace_count
from reticent.noise import Noise, Seeded
from reticent.predictors.gauge import noise_variance, quality_of, release_confusion

Pair = tuple[tuple[int, ...], tuple[int, ...]]  # of labels and answers


def real(labels: Any, answers: Any, classes: int, epsilon: Fraction, noise: Noise) -> Any:
    return release_confusion(labels, answers, classes=classes, epsilon=epsilon, unsafe_noise=noise).value


def half_the_noise(labels: Any, answers: Any, classes: int, epsilon: Fraction, noise: Noise) -> Any:
    return real(labels, answers, classes, 2 * epsilon, noise)


def sensitivity_one(labels: Any, answers: Any, classes: int, epsilon: Fraction, noise: Noise) -> Any:
    counts = np.bincount(labels * classes + answers, minlength=classes**2)
    return laplace_count(counts, epsilon=epsilon, sensitivity=1, unsafe_noise=noise).value


def cell_by_cell(release: Any, first: Pair, second: Pair, epsilon: Fraction) -> float:
    """The exact loss: cells have noise of their own, so it is the sum over cells of the worst log-ratios."""
    total = 0.0
    for cell in range(4):
        laws = [
            law(
                lambda noise, pair=pair, cell=cell: int(  # type: ignore[misc]
                    release(np.array(pair[0]), np.array(pair[1]), 2, epsilon, _OneCell(noise, cell)).ravel()[cell]
                ),
                tail_bits=60,
            )
            for pair in (first, second)
        ]
        total += exact(*laws).epsilon(Fraction(1, 2**50))[1]
    return total


class _OneCell(Seeded):
    """Noise that is drawn for one of four counts; the others have none."""

    def __init__(self, noise: Noise, cell: int) -> None:
        super().__init__(unsafe_seed=0)
        self.noise, self.cell = noise, cell

    def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
        drawn = np.zeros(4, dtype=np.int64)
        drawn[self.cell] = int(self.noise.discrete_laplace(scale))
        return drawn


NEIGHBOURS: list[tuple[Pair, Pair]] = [
    (((0, 1), (0, 1)), ((0, 1), (0, 0))),  # the answer changes: a count less, another more
    (((0, 0), (1, 1)), ((0, 1), (1, 0))),  # label and answer
    (((1, 0), (1, 0)), ((1, -1), (1, 0))),  # the label is gone
]


@pytest.mark.parametrize(("first", "second"), NEIGHBOURS)
def test_counts_cost_a_replaced_row_epsilon(first: Pair, second: Pair) -> None:
    found = cell_by_cell(real, first, second, Fraction(1))
    moved = 2 if -1 not in second[0] else 1
    assert found == pytest.approx(moved / 2, abs=1e-3)  # two counts move by 1 each: all of ε


@pytest.mark.parametrize("twin", [half_the_noise, sensitivity_one])
def test_twins_with_less_noise_cost_more(twin: Any) -> None:
    assert cell_by_cell(twin, *NEIGHBOURS[0], Fraction(1)) == pytest.approx(2, abs=1e-3)


def test_the_variance_of_the_noise() -> None:
    for epsilon in (Fraction(1, 2), 1, 3):
        rate = float(epsilon) / 2
        values = np.arange(-3000, 3001)
        weights = np.exp(-rate * np.abs(values))
        assert noise_variance(epsilon) == pytest.approx(float(weights @ values**2 / weights.sum()))
    assert noise_variance(10_000) == 0


def counts_of(right: float, rows: int, classes: int, rng: np.random.Generator, labelled: float = 1) -> Any:
    truth = rng.integers(classes, size=rows)
    wrong = rng.random(rows) >= right
    given = np.where(wrong, (truth + rng.integers(1, classes, size=rows)) % classes, truth)
    return np.where(rng.random(rows) < labelled, truth, -1), given


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("labelled", [1, 0.5])
def test_the_estimate_is_unbiased_and_its_interval_holds(classes: int, labelled: float) -> None:
    """Of 95 % intervals, 19 in 20 hold, give or take what 600 runs allow (four standard deviations: .036)."""
    rng, found, inside = np.random.default_rng(classes), [], 0
    for _ in range(600):
        labels, answers = counts_of(0.8, 250, classes, rng, labelled)
        counts = release_confusion(labels, answers, classes=classes, epsilon=1).value
        quality = quality_of(counts, phase=1, rows=250, epsilon=1, all_labelled=labelled == 1)
        assert quality.right is not None and quality.low is not None and quality.high is not None  # noqa: PT018
        found.append(quality.right)
        inside += quality.low <= 0.8 <= quality.high
    assert abs(inside / 600 - 0.95) < 0.036
    assert np.mean(found) == pytest.approx(0.8, abs=float(4 * np.std(found) / math.sqrt(600)) + 0.002)
    assert labelled < 1 or np.mean(np.abs(np.array(found) - 0.8)) < 0.025


def test_a_noisy_total_would_have_more_noise() -> None:
    """With all rows labelled, their number is public; dividing by a noisy total is the twin."""
    rng = np.random.default_rng(0)
    known, estimated = [], []
    for _ in range(400):
        labels, answers = counts_of(0.7, 60, 3, rng)
        counts = release_confusion(labels, answers, classes=3, epsilon=Fraction(1, 2)).value
        quality = quality_of(counts, phase=1, rows=60, epsilon=Fraction(1, 2), all_labelled=True)
        assert quality.right is not None
        known.append(quality.right)
        estimated.append(np.trace(counts) / counts.sum())
    assert np.std(known) < 0.95 * np.std(estimated)


def test_too_few_labels_say_nothing() -> None:
    few = np.array([[20, 1], [2, 20]])
    assert quality_of(few, phase=1, rows=1000, epsilon=1, all_labelled=False).right is None
    enough = quality_of(few * 2, phase=1, rows=1000, epsilon=1, all_labelled=False)
    assert enough.right == 80 / 86
    assert enough.recall == (40 / 42, 40 / 44)
    assert enough.balanced == pytest.approx((40 / 42 + 40 / 44) / 2)
    rare = quality_of(np.array([[900, 20], [5, 6]]), phase=1, rows=931, epsilon=1, all_labelled=True)
    assert rare.recall[1] is None
    assert rare.balanced is None
    assert rare.deviation is not None


def test_bad_counts_are_refused() -> None:
    for labels, answers in (([0, 2], [0, 1]), ([0, -2], [0, 1]), ([0, 1], [0, -1]), ([0, 1], [0, 2])):
        with pytest.raises(ValueError, match=r"labels|answers"):
            release_confusion(np.array(labels), np.array(answers), classes=2, epsilon=1)
