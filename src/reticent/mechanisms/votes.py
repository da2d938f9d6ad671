"""The majority of voters, privately: noisy majority of two classes, GNMax of several, and Confident-GNMax."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from reticent.errors import BudgetExhausted
from reticent.exact import Number, integer, rational
from reticent.mechanisms.counts import Integers, add_noise, integer_array
from reticent.mechanisms.release import Release, noise_or_system, release
from reticent.noise import Noise
from reticent.privacy.events import Composed, DiscreteGaussian, Event, GaussianBit, Repeated
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_positive

MOST_VOTERS = 1 << 40  # a sum over classes stays far below 2^63


@overload
def noisy_majority(votes: int, *, voters: int, sigma: Number, unsafe_noise: Noise | None = None) -> Release[int]: ...
@overload
def noisy_majority(
    votes: Integers, *, voters: int, sigma: Number, unsafe_noise: Noise | None = None
) -> Release[NDArray[np.int64]]: ...
def noisy_majority(
    votes: int | Integers, *, voters: int, sigma: Number, unsafe_noise: Noise | None = None
) -> Release[Any]:
    """Return 1 if the votes for 1 plus discrete Gaussian noise reach half of the voters, else 0; for each query.

    Each voter is a teacher that learned from its own rows, so a replaced row changes the vote of one voter.

    Guarantee. For a replaced row, the event `GaussianBit(sigma, voters)` for each query: never more than the
    1/(2σ²)-zero-concentrated differential privacy of the noisy count, of which only the sign is released.

    Why. One vote moves the count by at most 1, and the bit is computed from the noisy count (see `gaussian_count`). Its
    cost is that of the worst pair of counts (v, v + 1). Queries may be chosen depending on earlier answers, as their
    noise is independent. See docs/mechanisms/votes.md.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 1 (after Papernot et al.,
    *Scalable Private Learning with PATE*), with discrete noise. The printed conversion to (ε, δ) is correct but loose;
    the accountant prices the bit rather than the count.

    Parameters
    ----------
    votes : int or array of int
        How many of the voters vote for 1: one number, or one per query.
    voters : int
        How many voters there are. It is public.
    sigma : int, float, Fraction or Decimal
        Scale σ of the noise, in votes.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int or array of int64
        The answers, and the event `GaussianBit(sigma, voters)`, repeated once per query for an array.

    Examples
    --------
    >>> noisy_majority(980, voters=1000, sigma=40)
    Release(value=1, event=GaussianBit(sigma=Fraction(40, 1), voters=1000))
    """
    event = GaussianBit(check_positive(sigma, "sigma"), integer(voters, "voters", least=1, most=MOST_VOTERS))
    half = (event.voters + 1) // 2  # v + z ≥ K/2 iff z ≥ ⌈K/2⌉ − v, for integers
    noise = noise_or_system(unsafe_noise)
    counts = integer_array(votes, "votes", least=0, most=event.voters)
    if isinstance(votes, Integral):
        return release(noise.gaussian_cell(event.sigma, [half - int(votes)]), event, unsafe_noise)
    if counts.ndim != 1 or not len(counts):
        raise ValueError("votes must be one number per query, and at least one")
    noisy = add_noise(counts - half, noise.discrete_gaussian, event.sigma)
    return release((noisy >= 0).astype(np.int64), Repeated(event, len(counts)), unsafe_noise)


def gnmax(
    histograms: Integers, *, sigma: Number, voters: int | None = None, unsafe_noise: Noise | None = None
) -> Release[Any]:
    """Return the class with the most votes after discrete Gaussian noise is added to each count; the first of equals.

    Guarantee. For a replaced row, which changes the vote of one voter: the event
    `DiscreteGaussian(sigma, squared_sensitivity=2)` for each histogram, that is (1/σ²)-zero-concentrated differential
    privacy.

    Why. A changed vote takes 1 from one class and adds 1 to another, so the squared L2 distance is 2 and the noisy
    histogram is (2/2σ²)-zCDP (see `gaussian_count`). The class is computed from it by a fixed rule.

    Source. Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, *Scalable Private Learning with PATE* (GNMax),
    with discrete noise.

    Parameters
    ----------
    histograms : array of int
        The votes of each class: one histogram, or one per row. The number of classes is public.
    sigma : int, float, Fraction or Decimal
        Scale σ of the noise, in votes.
    voters : int or None, default None
        If given, every histogram must add up to it.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Returns
    -------
    Release of int or array of int64
        The class of one histogram, or of each; and the event, repeated once per histogram.

    Examples
    --------
    >>> gnmax([3, 950, 47], sigma=40, voters=1000).value
    1
    """
    event = DiscreteGaussian(check_positive(sigma, "sigma"), squared_sensitivity=2)
    counts = _histograms(histograms, "histograms", _voters(voters))
    noisy = add_noise(counts, noise_or_system(unsafe_noise).discrete_gaussian, event.sigma)
    winners = noisy.argmax(axis=-1)
    if counts.ndim == 1:
        return release(int(winners), event, unsafe_noise)
    return release(winners.astype(np.int64), Repeated(event, len(counts)), unsafe_noise)


class ConfidentGNMax(Guarded):
    """GNMax that answers only if the winning class is clearly ahead, and pays for answers only then.

    `ask(histogram)` first tests whether the highest count plus discrete Gaussian noise of scale `sigma_threshold`
    reaches `threshold`. If so it returns the noisy winner, with fresh noise of scale `sigma_answer`; if not, None. Past
    `queries` queries or `answers` answers, `ask` raises `BudgetExhausted` before it reads the votes.

    Guarantee. For a replaced row, which changes the vote of one voter, for all adaptive queries together: the event
    `.event`, known before the first query: (queries/(2σ₁²) + answers/σ₂²)-zero-concentrated differential privacy.

    Why. The highest count moves by at most 1, so each test is 1/(2σ₁²)-zCDP, and is paid for whether or not an answer
    follows. Each answer is 1/σ₂²-zCDP (see `gnmax`). The order of tests and answers is adaptive, but their numbers are
    public, which is enough: see docs/mechanisms/votes.md.

    Source. Papernot et al., *Scalable Private Learning with PATE* (Confident-GNMax), with discrete noise, replace-one
    sensitivities and a public cap on the answers, without which the cost would depend on the data.

    Parameters
    ----------
    threshold : int, float, Fraction or Decimal
        The noisy count that the winner must reach, in votes.
    sigma_threshold, sigma_answer : int, float, Fraction or Decimal
        Scales σ₁ and σ₂ of the noise of tests and of answers, in votes.
    queries, answers : int
        The most queries, and the most answers among them.
    voters : int or None, default None
        If given, every histogram must add up to it.
    unsafe_noise : Noise or None, default None
        For tests only: noise that replaces that of the operating system.

    Attributes
    ----------
    event : Event
        What all queries together cost.

    Examples
    --------
    >>> teachers = ConfidentGNMax(threshold=700, sigma_threshold=40, sigma_answer=20, queries=100, answers=10)
    >>> teachers.ask([3, 950, 47]), teachers.ask([340, 330, 330])
    (1, None)
    """

    def __init__(
        self,
        *,
        threshold: Number,
        sigma_threshold: Number,
        sigma_answer: Number,
        queries: int,
        answers: int,
        voters: int | None = None,
        unsafe_noise: Noise | None = None,
    ) -> None:
        self.threshold = math.ceil(rational(threshold, "threshold"))  # counts and noise are whole numbers
        self.sigma_threshold = check_positive(sigma_threshold, "sigma_threshold")
        self.sigma_answer = check_positive(sigma_answer, "sigma_answer")
        self._queries_left = integer(queries, "queries", least=1)
        self._answers_left = integer(answers, "answers", least=1, most=self._queries_left)
        self.voters = _voters(voters)
        tests = Repeated(DiscreteGaussian(self.sigma_threshold, squared_sensitivity=1), self._queries_left)
        winners = Repeated(DiscreteGaussian(self.sigma_answer, squared_sensitivity=2), self._answers_left)
        self.event: Event = release(None, Composed((tests, winners)), unsafe_noise).event
        self._noise = noise_or_system(unsafe_noise)
        self._unsafe_noise = unsafe_noise
        self._guard = Guard(type(self))

    @property
    def queries_left(self) -> int:
        """The number of queries left."""
        return self._queries_left

    @property
    def answers_left(self) -> int:
        """The number of answers left."""
        return self._answers_left

    def ask(self, histogram: Integers) -> int | None:
        """Return the noisy winner of one histogram of votes, or None if no class is clearly ahead.

        Parameters
        ----------
        histogram : array of int
            The votes of each class.

        Returns
        -------
        int or None
            The winning class.

        Raises
        ------
        BudgetExhausted
            If no queries or no answers are left. The votes are not read.
        """
        with self._guard.claim():
            if not self._queries_left:
                raise BudgetExhausted("all queries have been asked: set a larger queries=")
            if not self._answers_left:
                raise BudgetExhausted("all answers have been given: set a larger answers=")
            counts = _histograms(histogram, "histogram", self.voters)
            if counts.ndim != 1:
                raise ValueError("histogram must be one-dimensional: ask one query at a time")
            self._queries_left -= 1
            if self._noise.gaussian_cell(self.sigma_threshold, [self.threshold - int(counts.max())]) == 0:
                return None
            self._answers_left -= 1
            answer: int = gnmax(counts, sigma=self.sigma_answer, unsafe_noise=self._unsafe_noise).value
            return answer


def _voters(voters: int | None) -> int | None:
    return None if voters is None else integer(voters, "voters", least=1, most=MOST_VOTERS)


def _histograms(histograms: Integers, name: str, voters: int | None) -> NDArray[np.int64]:
    counts = integer_array(histograms, name, least=0, most=MOST_VOTERS)
    if counts.ndim not in (1, 2) or 0 in counts.shape:
        raise ValueError(f"{name} must hold the votes for at least one class: one histogram, or one per row")
    if voters is not None and bool(np.any(counts.sum(axis=-1) != voters)):
        raise ValueError(f"{name} must add up to voters={voters}")
    return counts
