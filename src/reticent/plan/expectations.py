"""What options are expected to lose, as shares of all answers: rules of thumb, each set by measurement.

No privacy depends on them. `docs/guides/which-one-do-i-need.md` has the rules, and how often they were right elsewhere.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple

from reticent.concepts import Floats
from reticent.learners.descent import release_variance
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.public_rows import directions_for
from reticent.learners.second_moments import NARROW
from reticent.plan.thresholds import threshold

Drift = Literal["none", "slow", "fast"]

# How teachers and models are set up, both in the measurements and in the advice.
GROWTH, DRIFT_GROWTH = Fraction(2), Fraction(6, 5)  # short phases follow a drift
BLACK_BOX_ROWS = 100  # rows per teacher that is not a linear model
FOURIER = 400  # random features, with which one private model replaces a black box
AXES = 100  # of the public rows, in which the student of PATE learns

# What an option loses.
HALF = 0.5  # nothing is worse than a coin
DROWNED = 0.1  # a private model whose noise weighs as much as all rows that pull in one direction
NEAREST = 0.8  # times the noise, as a share of all votes: how often noise overturns a vote if every lead is as likely
DISPUTED, DISPUTED_APART = 0.5, 0.1  # how often teachers of few rows disagree; of thresholds, or classes far apart
UNSCALED = 0.15  # a private model of columns that are not scaled,
UNSCALED_ROUNDS, UNSCALED_WIDE = 0.1, 0.005  # and one with rounds of second moments at n·μ = D^1.5; above 32 columns
SCALED_BY_ROUNDS = 0.003  # a linear model that has no public rows to scale columns by
UNSCALED_FOURIER = 0.055  # random Fourier features of raw columns, which see little but the largest
PUBLIC_UNSCALED = 0.03  # a model in directions of public rows that were found among raw columns: some stay too small;
PUBLIC_UNSCALED_WIDE = 0.015  # above 32 columns, most of which are codes, or zeros and ones
MANY = 32  # directions, from which on those that are left out tell little
DROPPED, DROPPED_OF_MANY = 0.1, 0.01  # if it leaves out all directions; if it keeps many,
DROPPED_UNKNOWN = 0.03  # but they are known by fewer than two public rows per column
STUDENT = 0.05  # a student with as many labels as columns
SMALL_TEACHER = 0.6  # teachers of linear models, divided by their rows
WORST_PROMISE = 0.25  # of the error that a threshold's promise allows
SMOOTH = 0.02  # random Fourier features, if a black box suits the data
BLACK_BOX_STUDENT = 0.5  # a black box with as many labels as columns; it falls with the root of the labels
WEAK = 0.03  # a black box that has the rows of one teacher
WARM = 0.2  # of the noise of a phase of labels that starts from the last model
SHORTEST, LONGEST = 0.6, 4.0  # phases of labels, in units of those that the learner takes by itself
OUTDATED = {"slow": 0.1, "fast": 0.25}  # an option that does not follow a drift,
RATE = {"slow": 0.01, "fast": 0.05}  # up to that, while as many queries are answered as there are rows
BEHIND = {"slow": 0.05, "fast": 0.1}  # a chain that learns from its own answers, if classes stay well apart,
FOLLOWS = {"slow": 0.0, "fast": 0.02}  # and votes that do
MISLED = 0.02  # more than one that does not follow, if classes overlap: phases learn their own errors
UPKEEP = 0.003  # labels where nothing drifts: they must gain that much to be worth handing over


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
    rows: int,
    columns: int,
    *,
    classes: int,
    epsilon: Fraction,
    delta: Fraction,
    scaled: bool,
    black_box: bool,
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
    loss = min(HALF, DROWNED * noise) + (SMOOTH if black_box else SCALED_BY_ROUNDS)
    if not scaled:
        loss += unscaled(rows, columns, epsilon=epsilon, delta=delta, black_box=black_box)
    return Expected(noise, loss)


def unscaled(rows: int, columns: int, *, epsilon: Fraction, delta: Fraction, black_box: bool) -> float:
    """What a private model loses more if columns are not scaled.

    Rounds of second moments scale them, the better the larger n·μ is against D^1.5, and only in part above 32 columns.
    In Fourier features, which see the rows before any round does, large columns hide the others.

    Parameters
    ----------
    rows, columns : int
        The size of the problem.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability.
    black_box : bool
        Whether the model is one on random Fourier features.
    """
    if black_box:
        return UNSCALED_FOURIER
    width = columns + 1  # with the constant column
    strength = rows / math.sqrt(release_variance(epsilon, delta))
    return min(UNSCALED, UNSCALED_ROUNDS * float(width**1.5) / strength + (0.0 if width <= NARROW else UNSCALED_WIDE))


def directions(rows: int, columns: int, public_rows: int, *, epsilon: Fraction, delta: Fraction) -> int:
    """The number of directions of public rows in which a model learns."""
    return min(columns, directions_for(rows, public_rows, 1 / math.sqrt(release_variance(epsilon, delta))))


def public_model(
    rows: int, columns: int, public_rows: int, *, classes: int, epsilon: Fraction, delta: Fraction, scaled: bool
) -> Expected:
    """What one private linear model in directions of public rows is expected to lose.

    Parameters
    ----------
    rows, columns, public_rows, classes : int
        The size of the problem.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability.
    scaled : bool
        Whether the columns have similar ranges.
    """
    kept = directions(rows, columns, public_rows, epsilon=epsilon, delta=delta)
    noise = 0.1 * drowned(kept, classes=classes, epsilon=epsilon, delta=delta) / rows
    known = public_rows >= 2 * columns
    dropped = DROPPED if kept < MANY else DROPPED_OF_MANY if known else DROPPED_UNKNOWN
    lost = 0.0 if scaled else PUBLIC_UNSCALED if columns < NARROW else PUBLIC_UNSCALED_WIDE
    return Expected(noise, min(HALF, DROWNED * noise + dropped * (1 - kept / columns) + lost))


def threshold_model(rows: int, bits: int | None, *, epsilon: Fraction, delta: Fraction) -> Expected:
    """What a private threshold is expected to lose; its "noise" is the error that is promised, at most 1."""
    domain = Floats() if bits is None else None
    promise = threshold(bits=bits, domain=domain, rows=rows, epsilon=epsilon, delta=delta).error
    worst = 1.0 if promise is None else promise
    return Expected(worst, min(HALF, WORST_PROMISE * worst))


def votes(noise: float, *, disputed: float, black_box: bool) -> float:
    """What votes are expected to lose by noise, a share of all votes, and by teachers with few rows."""
    return min(HALF, NEAREST * disputed * noise) + (WEAK if black_box else 0.0)


def student(
    noise: float, labels: int, columns: int, *, rows_per_teacher: float, disputed: float, black_box: bool
) -> float:
    """What a student of noisy votes on public rows is expected to lose. It averages out labels wrong at random.

    Parameters
    ----------
    noise : float
        Noise as a share of all votes.
    labels, columns : int
        The number of labelled public rows, and of columns.
    rows_per_teacher : float
        The rows that a teacher learns from.
    disputed : float
        The share of queries on which teachers disagree.
    black_box : bool
        Whether teachers and student are no linear models.
    """
    few = BLACK_BOX_STUDENT * math.sqrt(columns / labels) if black_box else STUDENT * min(columns, AXES) / labels
    weak = 0.0 if black_box else min(1.0, SMALL_TEACHER / rows_per_teacher)
    return min(HALF, min(HALF, NEAREST * disputed * noise**2) + few + weak)


def outdated(drift: Drift, age: float | None) -> float:
    """What a model loses by drift, on average, from now until it is `age` times as old as rows take to be asked.

    Parameters
    ----------
    drift : {"none", "slow", "fast"}
        How fast the best model changes.
    age : float or None
        Queries for each row of day one, over which it answers; None for answers without end.
    """
    if drift == "none":
        return 0.0
    return OUTDATED[drift] if age is None else min(OUTDATED[drift], RATE[drift] * age / 2)


def behind(drift: Drift, age: float) -> float:
    """What a model loses by drift whose labels are of queries this old, in units of the rows of day one."""
    return 0.0 if drift == "none" else min(OUTDATED[drift], RATE[drift] * age)


def labels_of_a_phase(
    enough: int, noise: float, *, drift: Literal["slow", "fast"], queries_per_label: float, rows: int
) -> int:
    """The labels of a phase at which noise and the time until the next phase cost least together, in two digits.

    Parameters
    ----------
    enough : int
        The labels that the learner takes by itself. A number near to it is not worth another.
    noise : float
        The noise of a phase of that many.
    drift : {"slow", "fast"}
        How fast the best model changes.
    queries_per_label : float
        Queries that are asked until the next label comes.
    rows : int
        The rows of day one.
    """
    best = math.sqrt(WARM * DROWNED * noise * enough * rows / (RATE[drift] * queries_per_label))
    if 0.8 * enough <= best <= 1.25 * enough:
        return enough
    labels = min(LONGEST * enough, max(SHORTEST * enough, best))
    unit: int = 10 ** max(0, math.floor(math.log10(labels)) - 1)
    return max(1, round(labels / unit) * unit)
