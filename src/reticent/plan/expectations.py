"""What options are expected to lose, as shares of all answers: rules of thumb, each set by measurement.

No privacy depends on them. `docs/guides/which-one-do-i-need.md` has the rules, and how often they were right elsewhere.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from reticent.concepts import Floats
from reticent.learners.descent import release_variance
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.public_rows import directions_for
from reticent.learners.second_moments import schedule
from reticent.plan.thresholds import threshold

# How teachers and models are set up, both in the measurements and in the advice.
GROWTH, DRIFT_GROWTH = Fraction(2), Fraction(6, 5)  # short phases follow a drift
BLACK_BOX_ROWS = 100  # rows per teacher that is not a linear model
FOURIER = 400  # random features, with which one private model replaces a black box
AXES = 100  # of the public rows, in which the student of PATE learns

# What an option loses.
HALF = 0.5  # nothing is worse than a coin
DROWNED = 0.1  # a private model whose noise weighs as much as all rows that pull in one direction
NEAREST = 0.8  # times the noise, as a share of all votes: how often noise overturns a vote if every lead is as likely
DISPUTED, DISPUTED_THRESHOLDS = 0.5, 0.1  # how often teachers of few rows disagree
UNSCALED, UNSCALED_FEW_ROUNDS, UNSCALED_NO_ROUNDS = 0.0, 0.1, 0.15  # a private model of columns that are not scaled
FEW = 4  # rounds of second moments, which scale columns only in part
PUBLIC, DROPPED = 0.005, 0.02  # a model in directions of public rows; the more, the more directions are left out
STUDENT = 0.05  # a student with as many labels as columns
WORST_PROMISE = 0.25  # of the error that a threshold's promise allows
SMOOTH = 0.02  # random Fourier features, if a black box suits the data
BLACK_BOX_STUDENT = 0.5  # a black box with as many labels as columns; it falls with the root of the labels
WEAK = 0.03  # a black box that has the rows of one teacher
OUTDATED = {"slow": 0.3, "fast": 0.45}  # an option that does not follow a drift
BEHIND = {"slow": 0.1, "fast": 0.4}  # a chain, which notices a drift late
FOLLOWS = {"slow": 0.0, "fast": 0.02}  # votes, which are trained again in every phase


class Expected(NamedTuple):
    """What is expected of an option.

    Parameters
    ----------
    noise : float
        Noise as a share of all votes, or of all rows that pull a model in one direction.
    loss : float
        Loss as a share of all answers.
    """

    noise: float
    loss: float


def drowned(columns: int, *, classes: int, epsilon: Fraction, delta: Fraction) -> int:
    """Return the rows at which the noise of a linear model weighs as much as a tenth of all rows."""
    model = PrivateLogisticRegression(epsilon=epsilon, delta=delta, row_norm=1, rounds=0)
    return model.n_required(0.1, columns=columns, classes=classes)


def linear_model(
    rows: int, columns: int, *, classes: int, epsilon: Fraction, delta: Fraction, scaled: bool, black_box: bool
) -> Expected:
    """What one private linear model is expected to lose; with `black_box`, on random Fourier features.

    Parameters
    ----------
    rows, columns, classes : int
        The size of the problem.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability.
    scaled : bool
        Whether the columns have similar ranges.
    black_box : bool
        Whether the model replaces a black box.
    """
    seen = FOURIER if black_box else columns
    noise = 0.1 * drowned(seen, classes=classes, epsilon=epsilon, delta=delta) / rows
    loss = min(HALF, DROWNED * noise) + (SMOOTH if black_box else 0.0)
    return Expected(noise, loss if scaled else loss + unscaled(rows, columns, epsilon=epsilon, delta=delta))


def unscaled(rows: int, columns: int, *, epsilon: Fraction, delta: Fraction) -> float:
    """What a private linear model loses more if columns are not scaled, which its rounds of second moments repair."""
    rounds = len(schedule(rows, columns + 1, 1 / math.sqrt(release_variance(epsilon, delta))))
    return UNSCALED_NO_ROUNDS if rounds == 0 else UNSCALED_FEW_ROUNDS if rounds <= FEW else UNSCALED


def directions(rows: int, columns: int, public_rows: int, *, epsilon: Fraction, delta: Fraction) -> int:
    """The number of directions of public rows in which a model learns."""
    return min(columns, directions_for(rows, public_rows, 1 / math.sqrt(release_variance(epsilon, delta))))


def public_model(rows: int, columns: int, kept: int, *, classes: int, epsilon: Fraction, delta: Fraction) -> Expected:
    """What one private linear model in directions of public rows is expected to lose.

    Parameters
    ----------
    rows, columns, classes : int
        The size of the problem.
    kept : int
        The number of directions.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability.
    """
    noise = 0.1 * drowned(kept, classes=classes, epsilon=epsilon, delta=delta) / rows
    return Expected(noise, min(HALF, DROWNED * noise + DROPPED * (1 - kept / columns) + PUBLIC))


def threshold_model(rows: int, bits: int | None, *, epsilon: Fraction, delta: Fraction) -> Expected:
    """What a private threshold is expected to lose; its "noise" is the error that is promised, at most 1."""
    domain = Floats() if bits is None else None
    promise = threshold(bits=bits, domain=domain, rows=rows, epsilon=epsilon, delta=delta).error
    worst = 1.0 if promise is None else promise
    return Expected(worst, min(HALF, WORST_PROMISE * worst))


def votes(noise: float, *, disputed: float, black_box: bool) -> float:
    """What votes are expected to lose by noise, a share of all votes, and by teachers with few rows."""
    return min(HALF, NEAREST * disputed * noise) + (WEAK if black_box else 0.0)


def student(noise: float, labels: int, columns: int, *, disputed: float, black_box: bool) -> float:
    """What a student of noisy votes on public rows is expected to lose. It averages out labels wrong at random."""
    few = BLACK_BOX_STUDENT * math.sqrt(columns / labels) if black_box else STUDENT * min(columns, AXES) / labels
    return min(HALF, min(HALF, NEAREST * disputed * noise**2) + few)
