"""What Table 4 of *Revisiting Model-Agnostic Private Learning* prints, and how far a measurement is from it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PSQ, ASQ = "PSQ", "ASQ"

# What the paper prints at ε = 0.5, 1, 2 and without noise: accuracy, ±; and the mean number of rows that ASQ asked.
PRINTED = {
    "mushrooms": {
        PSQ: ((0.6416, 0.0036), (0.7534, 0.0045), (0.8974, 0.0027), (0.9773, 0.0006)),
        ASQ: ((0.6418, 0.0091), (0.7727, 0.0098), (0.8858, 0.0059), (0.9146, 0.0036)),
    },
    "a9a": {
        PSQ: ((0.5040, 0.0034), (0.5171, 0.0050), (0.5176, 0.0070), (0.5555, 0.0157)),
        ASQ: ((0.5212, 0.0088), (0.5369, 0.0103), (0.5543, 0.0089), (0.5461, 0.0160)),
    },
}
PRINTED_ASKED = {"mushrooms": (40.1, 42.9, 46.5, 47.3), "a9a": (293.0, 290.8, 290.3, 225.6)}
PRINTED_SPLITS = 30


def half_width(accuracies: Floats) -> Floats:
    """1.96 standard errors of the mean over the splits, for each ε.

    Parameters
    ----------
    accuracies : array of float
        The accuracies, one row per split and one column per ε.
    """
    return np.asarray(1.96 * np.std(accuracies, axis=0, ddof=1) / math.sqrt(len(accuracies)))


def standard_errors_apart(again: Floats, mean: float, printed: float) -> float:
    """How far a printed mean is from what was measured again, in standard errors of their difference.

    The printed ± is 1.96 standard errors, divided once too often by the root of the number of splits: it is
    multiplied by that root.

    Parameters
    ----------
    again : array of float
        The accuracies that were measured again, one per split.
    mean : float
        The printed mean.
    printed : float
        The printed ±.
    """
    theirs = printed * math.sqrt(PRINTED_SPLITS) / 1.96
    ours = np.std(again, ddof=1) / math.sqrt(len(again))
    return float((again.mean() - mean) / math.hypot(theirs, ours))
