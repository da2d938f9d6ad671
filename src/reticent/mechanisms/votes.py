"""What most of the voters say, privately: noisy majority of two, GNMax of several, and GNMax when it is sure."""

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
from reticent.privacy.events import Composed, DiscreteGaussian, Event, GaussianBit, Repeated, Seeded
from reticent.privacy.guard import Guard, Guarded
from reticent.privacy.parameters import check_positive

MOST_VOTERS = 1 << 40  # far from where a sum over classes might wrap around


@overload
def noisy_majority(votes: int, *, voters: int, sigma: Number, unsafe_noise: Noise | None = None) -> Release[int]: ...
@overload
def noisy_majority(
    votes: Integers, *, voters: int, sigma: Number, unsafe_noise: Noise | None = None
) -> Release[NDArray[np.int64]]: ...
def noisy_majority(
    votes: int | Integers, *, voters: int, sigma: Number, unsafe_noise: Noise | None = None
) -> Release[Any]:
    """1 if the votes for 1 plus discrete Gaussian noise reach half of the voters, else 0; for each of `votes`.

    `votes` is how many of the `voters` vote for 1: one number, or an array with one number a question. Each voter is a
    teacher that learned from rows of its own, so a replaced row changes the vote of one voter.

    Guarantee. For a replaced row, the event `GaussianBit(sigma, voters)` for each question: never more than the
    1/(2σ²)-zero-concentrated differential privacy of the noisy count, of which only the sign leaves.

    Why. One vote moves the count by at most 1, the noisy count is 1/(2σ²)-zCDP (see `gaussian_count`), and the bit is
    computed from it. Since only the bit leaves, its cost is that of the worst of the pairs of counts (v, v + 1). The
    questions may be chosen in the light of earlier answers: their noise is independent.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 1 (after Papernot et al.,
    *Scalable Private Learning with PATE*), with discrete noise. The conversion to (ε, δ) that is printed there is
    correct but loose; the accountant has a better one, and prices the bit rather than the count.

    >>> noisy_majority(980, voters=1000, sigma=40)
    Release(value=1, event=GaussianBit(sigma=Fraction(40, 1), voters=1000))
    """
    event = GaussianBit(check_positive(sigma, "sigma"), integer(voters, "voters", least=1, most=MOST_VOTERS))
    half = (event.voters + 1) // 2  # v + z ≥ K/2 iff z ≥ ⌈K/2⌉ − v, for integers
    noise = noise_or_system(unsafe_noise)
    counts = integer_array(votes, "votes", least=0, most=event.voters)
    if isinstance(votes, Integral):
        return release(noise.gaussian_cell(event.sigma, [half - int(votes)]), event, unsafe_noise)
    questions = _one_a_question(counts, "votes", 1)
    noisy = add_noise(counts - half, noise.discrete_gaussian, event.sigma)
    return release((noisy >= 0).astype(np.int64), Repeated(event, questions), unsafe_noise)


def gnmax(
    histograms: Integers, *, sigma: Number, voters: int | None = None, unsafe_noise: Noise | None = None
) -> Release[Any]:
    """The class with the most votes after discrete Gaussian noise is added to each class; the first of equals.

    `histograms` holds the votes for each class: one histogram (the answer is an int), or one a row (the answer is an
    array). The number of classes is public. If `voters` is given, every histogram must add up to it.

    Guarantee. For a replaced row, which changes the vote of one voter: the event
    `DiscreteGaussian(sigma, squared_sensitivity=2)` for each histogram, that is (1/σ²)-zero-concentrated differential
    privacy.

    Why. A changed vote takes 1 from one class and adds 1 to another: the squared L2 distance is 2. The noisy histogram
    is (2/2σ²)-zCDP (see `gaussian_count`), and the class is computed from it by a fixed rule.

    Source. Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, *Scalable Private Learning with PATE* (GNMax),
    with discrete noise.

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
    """GNMax that answers only where the winning class is clearly ahead, and pays for answers only there.

    `ask(histogram)` first tests whether the highest count plus discrete Gaussian noise of scale `sigma_threshold`
    reaches `threshold`. If so it returns the noisy winner, with fresh noise of scale `sigma_answer`; if not, None. At
    most `queries` may be asked and at most `answers` answered; past either, `ask` raises `BudgetExhausted` before it
    looks at the votes.

    Guarantee. For a replaced row, which changes the vote of one voter, over all that is ever asked, adaptively: the
    event `.event`, known beforehand: (queries/(2σ₁²) + answers/σ₂²)-zero-concentrated differential privacy.

    Why. The highest count moves by at most 1, so each test is 1/(2σ₁²)-zCDP, and it is paid for whether or not an
    answer follows. Each answer is 1/σ₂²-zCDP (see `gnmax`). Which of the two comes next depends on earlier outputs, but
    how many there are of each does not; and the divergence of an adaptive composition is bounded by that of the product
    of all its parts in any order: by induction from the last step, whichever part is taken first, what may follow is
    bounded by the product of the others.

    Source. Papernot et al., *Scalable Private Learning with PATE* (Confident-GNMax), with discrete noise, replace-one
    sensitivities and a public cap on the answers, without which the cost would depend on the data.

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
        event = Composed((tests, winners))
        self.event: Event = event if unsafe_noise is None else Seeded(event)
        self._noise = noise_or_system(unsafe_noise)
        self._unsafe_noise = unsafe_noise
        self._guard = Guard(type(self))

    @property
    def queries_left(self) -> int:
        """How many more may be asked."""
        return self._queries_left

    @property
    def answers_left(self) -> int:
        """How many more may be answered."""
        return self._answers_left

    def ask(self, histogram: Integers) -> int | None:
        """The noisy winner of one histogram of votes, or None where no class is clearly ahead."""
        with self._guard.claim():
            if not self._queries_left:
                raise BudgetExhausted("all queries have been asked: plan for more with queries=")
            if not self._answers_left:
                raise BudgetExhausted("all answers have been given: plan for more with answers=")
            counts = _histograms(histogram, "histogram", self.voters)
            if counts.ndim != 1:
                raise ValueError("histogram must be one-dimensional: ask one question at a time")
            self._queries_left -= 1
            if self._noise.gaussian_cell(self.sigma_threshold, [self.threshold - int(counts.max())]) == 0:
                return None
            self._answers_left -= 1
            answer: int = gnmax(counts, sigma=self.sigma_answer, unsafe_noise=self._unsafe_noise).value
            return answer


def _voters(voters: object) -> int | None:
    return None if voters is None else integer(voters, "voters", least=1, most=MOST_VOTERS)


def _one_a_question(counts: NDArray[np.int64], name: str, ndim: int) -> int:
    if counts.ndim != ndim or not len(counts):
        raise ValueError(f"{name} must have one entry a question, and at least one")
    return len(counts)


def _histograms(histograms: Integers, name: str, voters: int | None) -> NDArray[np.int64]:
    counts = integer_array(histograms, name, least=0, most=MOST_VOTERS)
    if counts.ndim not in (1, 2) or 0 in counts.shape:
        raise ValueError(f"{name} must hold the votes for at least one class, one histogram or one a row")
    if voters is not None and bool(np.any(counts.sum(axis=-1) != voters)):
        raise ValueError(f"{name} must add up to voters={voters}")
    return counts
