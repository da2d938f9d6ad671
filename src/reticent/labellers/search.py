"""Searches for the number of answers that a budget buys, which several labellers share."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from reticent.labellers.ballots import Ballots, Floats
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import ContinuousGaussian, DiscreteGaussian, Event, Repeated

STEP = 1.01  # numbers of answers are searched among the powers of this
FURTHEST = 10**15  # answers: the search stops here
LAST = math.floor(math.log(FURTHEST, STEP))  # the power of `STEP` with about this many answers


def most_answers(lost: Callable[[int], float | None], loss: float) -> tuple[int, float] | None:
    """Return the most answers, a power of `STEP`, that lose at most `loss`, and their loss; None if one loses more.

    Parameters
    ----------
    lost : Callable[[int], float or None]
        The loss of a number of answers, which should never fall; None if this many cannot be given.
    loss : float
        Largest acceptable loss.
    """

    def at(power: int) -> tuple[int, float] | None:
        answers = max(1, round(STEP**power))
        found = lost(answers)
        return None if found is None or found > loss else (answers, found)

    best = at(0)
    low, high = 0, LAST + 1
    while best is not None and high - low > 1:
        middle = (low + high) // 2
        if (found := at(middle)) is None:
            high = middle
        else:
            low, best = middle, found
    return best


def majority_answers(ballots: Ballots, epsilon: Fraction, delta: Fraction, loss: float) -> tuple[float, int, float]:
    """Return the widest Gaussian noise on the votes for 1 at this loss, how many noisy counts fit, and their loss."""
    sigma, lost = widest(ballots, lambda sigma: majority_right(ballots, sigma), loss)
    return sigma, repeats(DiscreteGaussian, sigma, epsilon, delta), lost


@lru_cache(maxsize=256)
def repeats(
    event_of: Callable[[Fraction], Event], scale: float, epsilon: Fraction, delta: Fraction, ratio: float = 1.0
) -> int:
    """Return how many times an event fits, to a thousandth, from below; at most `FURTHEST`.

    Parameters
    ----------
    event_of : Callable[[Fraction], Event]
        The event for a scale of the noise.
    scale : float
        The scale; it may be infinite.
    epsilon, delta : Fraction
        Privacy-loss bound of all events together.
    ratio : float, default 1.0
        The event costs about as much as a count with Gaussian noise of scale/ratio.
    """
    guess = (scale / ratio / float(single_noise(epsilon, delta))) ** 2
    if guess >= 4 * FURTHEST:  # events cost up to about 1/0.8 times as much as the count
        return FURTHEST
    event = event_of(four_digits(scale))
    if guess < 1000:
        return calibrate.answers(event, epsilon=epsilon, delta=delta)

    def fits(power: int) -> bool:
        return accounting.fits(Repeated(event, math.floor(guess * 1.001**power)), epsilon=epsilon, delta=delta)

    low, high = -8, 8
    while not fits(low):
        if low < -4096:
            return 0
        low, high = 2 * low, low
    while high < 4096 and fits(high):
        low, high = high, 2 * high
    low += bisect_left(range(low + 1, high), True, key=lambda power: not fits(power))
    return min(FURTHEST, math.floor(guess * 1.001**low))


@lru_cache(maxsize=64)
def single_noise(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the least noise at which one count with Gaussian noise fits, to four digits."""
    return calibrate.noise(ContinuousGaussian, epsilon=epsilon, delta=delta, digits=4)


def majority_right(ballots: Ballots, sigma: float) -> Floats:
    """Return the chances of right answers with two classes and Gaussian noise on the votes for 1. Ties go to 1."""
    lead = ballots.counts[:, 1] - ((ballots.teachers + 1) // 2 - 0.5)
    return np.asarray(norm.cdf(np.where(ballots.truth == 1, lead, -lead) / sigma))


def winner_right(ballots: Ballots, sigma: float) -> Floats:
    """Return the chances that the right class wins under Gaussian noise; lower bounds with more than two classes."""
    wrong = norm.cdf(-ballots.leads / (sigma * math.sqrt(2))).sum(axis=1)
    return np.asarray(np.maximum(0.0, 1 - wrong))


def widest(ballots: Ballots, right: Callable[[float], Floats], most: float) -> tuple[float, float]:
    """Return the widest noise, to four digits, with a loss of at most `most`, and that loss. It may be infinite."""

    def over(log_scale: float) -> float:
        return ballots.loss(right(math.exp(log_scale))) - most

    if over(math.inf) <= 0:
        return math.inf, over(math.inf) + most
    low, high = math.log(1e-2), math.log(1e3 * ballots.teachers)
    if over(high) <= 0:
        return math.exp(high), over(high) + most
    if over(low) > 0:
        return math.exp(low), over(low) + most
    scale = float(four_digits(math.exp(brentq(over, low, high, xtol=1e-6))))
    return scale, min(over(math.log(scale)) + most, most)


def four_digits(value: float) -> Fraction:
    """Return a number rounded down to four digits, as an exact decimal."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 3)
    return math.floor(Fraction(value) / unit + Fraction(1, 10**6)) * unit


def laplace_difference_tail(reach: NDArray[np.int64], fast: float, slow: float) -> Floats:
    """Return P(X − Y ≥ k) for each k of `reach` and Laplace variables X and Y of two rates, `fast` > `slow`."""

    def tail(k: Floats) -> Floats:
        return np.asarray((fast**2 * np.exp(-slow * k) - slow**2 * np.exp(-fast * k)) / (2 * (fast**2 - slow**2)))

    distance = np.abs(reach).astype(np.float64)
    return np.where(reach >= 0, tail(distance), 1 - tail(distance))
