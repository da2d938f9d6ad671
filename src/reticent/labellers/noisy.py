"""Labellers of the literature that add noise to the votes and answer every question."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from reticent.exact import Number, integer
from reticent.labellers.ballots import Ballots, Bought, Floats, Labels, Votes
from reticent.labellers.base import Labeller
from reticent.labellers.budget import check_budget
from reticent.labellers.chances import draw_exponential, exponential_chances, two_class_chances
from reticent.labellers.search import FURTHEST, STEP, four_digits, majority_answers, repeats, widest, winner_right
from reticent.mechanisms.votes import gnmax, noisy_majority
from reticent.noise import Noise
from reticent.privacy import accounting, calibrate
from reticent.privacy.events import BoundedRange, DiscreteGaussian, Event, GaussianBit, Repeated

# ── the event of one answer, and the least noise that fits ────────────────────────────────────────────────────────


@lru_cache(maxsize=64)
def _bit_event(voters: int) -> Callable[[Fraction], Event]:
    """The event of one bit with noise of a given scale; kept, so that `_least_noise` knows it again."""
    return lambda sigma: GaussianBit(sigma, voters)


@lru_cache(maxsize=64)
def _least_noise(event_of: Callable[[Fraction], Event], epsilon: Fraction, delta: Fraction, answers: int) -> Fraction:
    return calibrate.noise(lambda scale: Repeated(event_of(scale), answers), epsilon=epsilon, delta=delta)


class Gaussian(Labeller):
    """The majority of two classes after discrete Gaussian noise; see `noisy_majority`.

    Guarantee. For a replaced row: the event of R noisy counts (`price="count"`) or of R bits (`price="bit"`), within
    (ε, δ). The noise is the least that can be certified. A bit costs less than the count from which it is computed, so
    `price="bit"` needs less noise.

    Why. See `noisy_majority`: only the bit is released, so both prices hold.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 1.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Number of answers R.
    price : {"count", "bit"}, default "count"
        Whether the event accounts for the noisy count or for the released bit.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "gaussian"
    several_classes = False
    scales = True

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: Number,
        delta: Number,
        answers: int,
        price: str = "count",
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        voters = integer(teachers, "teachers", least=1)
        if price not in ("count", "bit"):
            raise ValueError(f"price must be 'count' or 'bit', got {price!r}")
        event_of = DiscreteGaussian if price == "count" else _bit_event(voters)
        self.sigma = _least_noise(event_of, exact_epsilon, exact_delta, count)
        event = Repeated(event_of(self.sigma), count)
        super().__init__(teachers=voters, classes=2, event=event, answers=count, unsafe_noise=unsafe_noise)

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield how many noisy counts fit at the widest noise that loses at most `loss`."""
        _, answers, lost = majority_answers(ballots, epsilon, delta, loss)
        yield Bought(cls.name, answers, lost)

    def _label(self, counts: Votes) -> Labels:
        drawn = noisy_majority(counts[:, 1], voters=self.teachers, sigma=self.sigma, unsafe_noise=self._noise)
        return drawn.value

    def _chances(self, counts: Votes) -> Floats:
        lead = counts[:, 1] - ((self.teachers + 1) // 2 - 0.5)
        return two_class_chances(norm.cdf(lead / float(self.sigma)))


class Bit(Gaussian):
    """The majority of two classes after discrete Gaussian noise, at the price of a bit: `Gaussian(price="bit")`.

    Guarantee. For a replaced row: the event of R bits, within (ε, δ).

    Why. See `noisy_majority`, and for the price the page "Bit" of the documentation.

    Source. As for `Gaussian`.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Number of answers R.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "bit"

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: Number,
        delta: Number,
        answers: int,
        unsafe_noise: Noise | None = None,
    ) -> None:
        super().__init__(
            teachers=teachers, epsilon=epsilon, delta=delta, answers=answers, price="bit", unsafe_noise=unsafe_noise
        )

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield between 1 and π/2 times what the noisy count buys: a bit gains no more."""
        sigma, start, lost = majority_answers(ballots, epsilon, delta, loss)

        def fits(power: int) -> bool:
            answers = math.floor(start * STEP**power)
            event = GaussianBit(four_digits(sigma), ballots.teachers)
            return accounting.fits(Repeated(event, answers), epsilon=epsilon, delta=delta)

        powers = range(1, math.ceil(math.log(math.pi / 2, STEP)) + 1)
        gain = bisect_left(powers, True, key=lambda power: not fits(power)) if 0 < start < FURTHEST else 0
        yield Bought(cls.name, min(FURTHEST, math.floor(start * STEP**gain)), lost)


class NoisyWinner(Labeller):
    """The class that wins after noise on the votes of every class, with the least noise that fits: a base class.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Number of answers R.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.

    Attributes
    ----------
    scale : Fraction
        Scale of the noise.
    """

    scales = True

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: Number,
        delta: Number,
        answers: int,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        self.scale = _least_noise(self.answer_event, exact_epsilon, exact_delta, count)
        event = Repeated(self.answer_event(self.scale), count)
        super().__init__(teachers=teachers, classes=classes, event=event, answers=count, unsafe_noise=unsafe_noise)

    @staticmethod
    @abstractmethod
    def answer_event(scale: Fraction) -> Event:
        """Return the event of one answer with noise of this scale."""

    @classmethod
    def is_automatic(cls, classes: int) -> bool:
        """For more than two classes."""
        return classes > 2


class GNMax(NoisyWinner):
    """The class with the most votes after discrete Gaussian noise on each; see `gnmax`.

    Guarantee. For a replaced row: R answers within (ε, δ), by the event of R noisy histograms of squared sensitivity 2.

    Why. See `gnmax`.

    Source. Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, *Scalable Private Learning with PATE*.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Number of answers R.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "gnmax"

    @staticmethod
    def answer_event(scale: Fraction) -> Event:
        """Return the event of one answer with noise of this scale."""
        return DiscreteGaussian(scale, 2)

    @property
    def sigma(self) -> Fraction:
        """The scale of the noise."""
        return self.scale

    @classmethod
    def is_compared(cls, classes: int) -> bool:
        """For more than two classes: with two classes, noise on one count is enough."""
        return classes > 2

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield how many noisy histograms fit at the widest noise that loses at most `loss`."""
        sigma, lost = widest(ballots, lambda sigma: winner_right(ballots, sigma), loss)
        yield Bought(cls.name, repeats(cls.answer_event, sigma, epsilon, delta, math.sqrt(2)), lost)

    def _label(self, counts: Votes) -> Labels:
        labels: Labels = gnmax(counts, sigma=self.scale, voters=self.teachers, unsafe_noise=self._noise).value
        return labels


class Gumbel(NoisyWinner):
    """A class drawn by the exponential mechanism, with probability ∝ e^(c·votes): the winner under Gumbel noise.

    Guarantee. For a replaced row: R answers with a privacy loss of bounded range 2c each, within (ε, δ).

    Why. A changed vote moves every class's votes by at most 1, so the weights are those of an exponential mechanism of
    sensitivity 1 and ε = 2c. At equal zero-concentrated privacy its noise has 0.82 times the variance of `GNMax`'s.

    Source. The exponential mechanism (see `exponential`) in place of Report-Noisy-Max.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Number of answers R.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "gumbel"

    @staticmethod
    def answer_event(scale: Fraction) -> Event:
        """Return the event of one answer with noise of this scale."""
        return BoundedRange(2 / scale)

    @property
    def rate(self) -> Fraction:
        """The factor c of the votes."""
        return 1 / self.scale

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield how many draws fit at the widest noise that loses at most `loss`."""

        def right(scale: float) -> Floats:
            return np.asarray(1 / (1 + np.exp(np.minimum(-ballots.leads / scale, 700.0)).sum(axis=1)))

        scale, lost = widest(ballots, right, loss)
        yield Bought(cls.name, repeats(cls.answer_event, scale, epsilon, delta), lost)

    def _label(self, counts: Votes) -> Labels:
        return draw_exponential(counts, self.rate, self._noise)

    def _chances(self, counts: Votes) -> Floats:
        return exponential_chances(counts, self.rate)
