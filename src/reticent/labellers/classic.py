"""The labellers of the literature: noise on the votes, and answers only where the vote is clear."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from reticent.exact import Number, integer, rational
from reticent.labellers.base import ABSTAINS, Labeller, Labels, Votes
from reticent.labellers.budget import check_budget
from reticent.mechanisms.counts import Integers
from reticent.mechanisms.sparse_vector import SparseVector as SparseVectorRun
from reticent.mechanisms.votes import ConfidentGNMax, gnmax, noisy_majority
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import BoundedRange, Composed, DiscreteGaussian, Event, GaussianBit, Repeated, Seeded


class Gaussian(Labeller):
    """The majority of two classes after discrete Gaussian noise; see `noisy_majority`.

    Guarantee. For a replaced row: the event of R noisy counts (`price="count"`) or of R bits (`price="bit"`), within
    (ε, δ). The noise is the least for which that can be certified. A bit costs less than the count it is read off, so
    `price="bit"` needs less noise.

    Why. See `noisy_majority`: only the bit leaves, so both prices hold.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 1.
    """

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: object,
        delta: object,
        answers: int,
        price: str = "count",
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        voters = integer(teachers, "teachers", least=1)
        if price not in ("count", "bit"):
            raise ValueError(f"price must be 'count' or 'bit', got {price!r}")

        def event(sigma: Fraction) -> Event:
            return Repeated(DiscreteGaussian(sigma) if price == "count" else GaussianBit(sigma, voters), count)

        self.sigma = calibrate.noise(event, epsilon=exact_epsilon, delta=exact_delta)
        super().__init__(
            teachers=voters, classes=2, event=event(self.sigma), answers=count, unsafe_noise=unsafe_noise
        )

    def _label(self, counts: Votes) -> Labels:
        drawn = noisy_majority(counts[:, 1], voters=self.teachers, sigma=self.sigma, unsafe_noise=self._noise)
        return drawn.value

    def accuracy(self, votes: Integers, truth: Integers) -> float:
        """The expected share of right labels where votes and truth are known. Not private: for planning only."""
        lead = self._read(votes)[:, 1] - ((self.teachers + 1) // 2 - 0.5)
        ones = norm.cdf(lead / float(self.sigma))
        return float(np.where(np.asarray(truth) == 1, ones, 1 - ones).mean())


class GNMax(Labeller):
    """The class with the most votes after discrete Gaussian noise on each; see `gnmax`.

    Guarantee. For a replaced row: R answers within (ε, δ), by the event of R noisy histograms of squared sensitivity 2.

    Why. See `gnmax`.

    Source. Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, *Scalable Private Learning with PATE*.
    """

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: object,
        delta: object,
        answers: int,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)

        def event(sigma: Fraction) -> Event:
            return Repeated(DiscreteGaussian(sigma, 2), count)

        self.sigma = calibrate.noise(event, epsilon=exact_epsilon, delta=exact_delta)
        super().__init__(
            teachers=teachers, classes=classes, event=event(self.sigma), answers=count, unsafe_noise=unsafe_noise
        )

    def _label(self, counts: Votes) -> Labels:
        labels: Labels = gnmax(counts, sigma=self.sigma, voters=self.teachers, unsafe_noise=self._noise).value
        return labels


class Gumbel(Labeller):
    """A class drawn by the exponential mechanism, with probability ∝ e^(c·votes): the winner under Gumbel noise.

    Guarantee. For a replaced row: R answers with a privacy loss of bounded range 2c each, within (ε, δ).

    Why. A changed vote moves every class's votes by at most 1, so the weights are those of an exponential mechanism of
    sensitivity 1 and ε = 2c. At equal zero-concentrated privacy its noise has 0.82 times the variance of `GNMax`'s.

    Source. The exponential mechanism (see `exponential`) in place of Report-Noisy-Max.
    """

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: object,
        delta: object,
        answers: int,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)

        def event(scale: Fraction) -> Event:
            return Repeated(BoundedRange(2 / scale), count)

        scale = calibrate.noise(event, epsilon=exact_epsilon, delta=exact_delta)
        self.rate = 1 / scale
        super().__init__(
            teachers=teachers, classes=classes, event=event(scale), answers=count, unsafe_noise=unsafe_noise
        )

    def _label(self, counts: Votes) -> Labels:
        return np.array([self._noise.choose(row, rate=self.rate) for row in counts], dtype=np.int64)

    def chances(self, votes: Integers) -> NDArray[np.float64]:
        """The chance of every label at known votes. Not private: for planning only."""
        counts = self._read(votes)
        weights = np.exp(float(self.rate) * (counts - counts.max(axis=1, keepdims=True)))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def accuracy(self, votes: Integers, truth: Integers) -> float:
        """The expected share of right labels where votes and truth are known. Not private: for planning only."""
        chances = self.chances(votes)
        return float(chances[np.arange(len(chances)), np.asarray(truth)].mean())


class Confident(Labeller):
    """GNMax where the winner is clearly ahead, and no answer elsewhere; see `ConfidentGNMax`.

    Guarantee. For a replaced row: (ε, δ) over `questions` tests and at most `answers` labels, whichever are answered.

    Why. See `ConfidentGNMax`. `test_share` of the squared budget pays for the tests, the rest for the labels.

    Source. Papernot et al., *Scalable Private Learning with PATE* (Confident-GNMax), with a public cap on the answers.
    """

    stateless = False
    resumable = False

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: object,
        delta: object,
        answers: int,
        questions: int | None = None,
        threshold: int | None = None,
        test_share: object = 0.25,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        asked = count if questions is None else integer(questions, "questions", least=count)
        part = rational(test_share, "test_share")
        if not 0 < part < 1:
            raise ValueError(f"test_share must be in (0, 1), got {test_share}")

        def sigmas(sigma: Fraction) -> tuple[Fraction, Fraction]:
            # Of 1/σ², a share goes to the tests at 1/(2σ₁²) each, the rest to the answers at 1/σ₂² each.
            tests, winners = sigma**2 * asked / part, sigma**2 * 2 * count / (1 - part)
            return _root_above(tests), _root_above(winners)

        def event(sigma: Fraction) -> Event:
            first, second = sigmas(sigma)
            tests = Repeated(DiscreteGaussian(first), asked)
            return Composed((tests, Repeated(DiscreteGaussian(second, 2), count)))

        sigma = calibrate.noise(event, epsilon=exact_epsilon, delta=exact_delta, digits=4)
        self.sigma_test, self.sigma_answer = sigmas(sigma)
        voters = integer(teachers, "teachers", least=1)
        self.threshold = 3 * voters // 4 if threshold is None else integer(threshold, "threshold")
        super().__init__(
            teachers=teachers, classes=classes, event=event(sigma), answers=asked, unsafe_noise=unsafe_noise
        )
        self._run = ConfidentGNMax(
            threshold=self.threshold,
            sigma_threshold=self.sigma_test,
            sigma_answer=self.sigma_answer,
            queries=asked,
            answers=count,
            voters=self.teachers,
            unsafe_noise=unsafe_noise,
        )

    @property
    def closed(self) -> bool:
        """Whether no more questions are answered."""
        return self._run.answers_left == 0 or self._run.queries_left == 0

    def _label(self, counts: Votes) -> Labels:
        labels = []
        for row in counts:
            if self.closed:
                break
            found = self._run.ask(row)
            labels.append(ABSTAINS if found is None else found)
        return np.array(labels, dtype=np.int64)


class SparseVector(Labeller):
    """The exact majority where it is stable, no answer elsewhere, until `halts` questions went unanswered.

    Guarantee. (ε, δ) for a replaced row over all answers, however many.

    Why. See `mechanisms.SparseVector`.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 2, with the repaired
    width.
    """

    stateless = False
    resumable = False

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: Number,
        delta: Number,
        halts: int = 50,
        unsafe_noise: Noise | None = None,
    ) -> None:
        self._run = SparseVectorRun(epsilon=epsilon, delta=delta, halts=halts, unsafe_noise=unsafe_noise)
        event = self._run.event.event if isinstance(self._run.event, Seeded) else self._run.event  # marked below, once
        super().__init__(
            teachers=teachers, classes=classes, event=event, answers=None, unsafe_noise=unsafe_noise
        )

    @property
    def closed(self) -> bool:
        """Whether no more questions are answered."""
        return self._run.halts_left == 0

    def _label(self, counts: Votes) -> Labels:
        labels = []
        for row in counts:
            if self.closed:
                break
            found = self._run.ask_counts(row)
            labels.append(ABSTAINS if found is None else found)
        return np.array(labels, dtype=np.int64)


def _root_above(square: Fraction) -> Fraction:
    """A short fraction not below the square root of `square`, within one part in 10^9."""
    guess = Fraction(float(square) ** 0.5 * (1 + 1e-10)).limit_denominator(10**12)
    while guess**2 < square:
        guess *= 1 + Fraction(1, 10**10)
    return guess
