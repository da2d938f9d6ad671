"""The chance of each label at known votes, for planning, and the exponential draw that several labellers share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from reticent.labellers.ballots import Floats, Labels, Votes
from reticent.mechanisms.counts import Integers
from reticent.noise import Noise


def two_class_chances(ones: Floats) -> Floats:
    """Return the chances of the labels 0 and 1, one row per question, from those of the label 1."""
    return np.column_stack([1 - ones, ones])


def exponential_chances(counts: Votes, rate: Fraction) -> Floats:
    """Return the chances of `draw_exponential`, one row per question and one column per class."""
    weights = np.exp(float(rate) * (counts - counts.max(axis=1, keepdims=True)))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def draw_exponential(counts: Votes, rate: Fraction, noise: Noise) -> Labels:
    """Draw a class for each question, with probability ∝ e^(rate·votes), exactly."""
    return np.array([noise.choose(row, rate=rate) for row in counts], dtype=np.int64)


def right_chances(chances: Floats, truth: Integers) -> Floats:
    """Return the chance of the right label of each question."""
    return np.asarray(chances[np.arange(len(chances)), np.asarray(truth, dtype=np.int64)])
