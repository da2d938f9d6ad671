"""Labellers of the literature that answer only where the vote is clear, and decline other questions."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from reticent.exact import Number, integer, rational
from reticent.labellers.ballots import Ballots, Bought, Labels, Votes
from reticent.labellers.base import ABSTAINS, Labeller
from reticent.labellers.budget import check_budget
from reticent.labellers.search import FURTHEST, LAST, STEP, laplace_difference_tail, single_noise, winner_right
from reticent.mechanisms.above_threshold import split_segment
from reticent.mechanisms.sparse_vector import StableMajority, stability
from reticent.mechanisms.votes import ConfidentGNMax
from reticent.noise import Noise
from reticent.privacy import calibrate
from reticent.privacy.events import Composed, DiscreteGaussian, Event, Repeated, SeededRelease

HALTS = (1, 10, 50, 200)  # values that plans try


class AbstainingLabeller(Labeller):
    """A labeller that decides question by question whether to answer, and closes by what it decided: a base class."""

    closes_early = True
    abstains = True
    stateless = False
    resumable = False

    def _label(self, counts: Votes) -> Labels:
        labels: list[int] = []
        for row in counts:
            if self.closed:
                break
            found = self._ask(row)
            labels.append(ABSTAINS if found is None else found)
        return np.array(labels, dtype=np.int64)

    @abstractmethod
    def _ask(self, counts: Votes) -> int | None:
        """Return the label of one question, or None to decline it."""


class Confident(AbstainingLabeller):
    """GNMax on questions where the winner is clearly ahead; it declines all others. See `ConfidentGNMax`.

    Guarantee. For a replaced row: (ε, δ) over `questions` tests and at most `answers` labels, for any questions.

    Why. See `ConfidentGNMax`. `test_share` of the squared budget pays for the tests, the rest for the labels.

    Source. Papernot et al., *Scalable Private Learning with PATE* (Confident-GNMax), with a public cap on the answers.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int
        Largest number of labels.
    questions : int or None, default None
        Largest number of questions, at least `answers`; None for `answers`.
    threshold : int or None, default None
        Number of votes that the winner needs; None for three quarters of the teachers.
    test_share : float or Fraction, default 0.25
        Share of the squared budget that pays for the tests.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "confident"

    def __init__(
        self,
        *,
        teachers: int,
        classes: int = 2,
        epsilon: Number,
        delta: Number,
        answers: int,
        questions: int | None = None,
        threshold: int | None = None,
        test_share: Number = 0.25,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        asked = count if questions is None else integer(questions, "questions", least=count)
        part = rational(test_share, "test_share")
        if not 0 < part < 1:
            raise ValueError(f"test_share must be in (0, 1), got {test_share}")
        self.sigma_test, self.sigma_answer = _sigmas(exact_epsilon, exact_delta, asked, count, part)
        voters = integer(teachers, "teachers", least=1)
        self.threshold = 3 * voters // 4 if threshold is None else integer(threshold, "threshold")
        super().__init__(
            teachers=teachers,
            classes=classes,
            event=_tests_and_answers(self.sigma_test, self.sigma_answer, asked, count),
            answers=asked,
            unsafe_noise=unsafe_noise,
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

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield the most questions whose answers lose at most `loss`, with the default threshold and test share."""
        sigma = float(single_noise(epsilon, delta))
        ahead = ballots.counts.max(axis=1) - 3 * ballots.teachers // 4

        def answered(questions: float) -> tuple[float, float]:
            """The expected number of answers, and the loss on these."""
            passes = norm.cdf(ahead / (2 * sigma * math.sqrt(questions)))
            share = max(ballots.mean(passes), 1e-12)
            spread = sigma * math.sqrt(2 * max(1.0, questions * share) / 0.75)
            closest = ballots.leads.min(axis=1)
            lost = passes * ((closest > 0) + 0.5 * (closest == 0) - winner_right(ballots, spread))
            return questions * share, ballots.mean(lost) / share

        power = bisect_right(range(1, LAST + 1), loss, key=lambda power: answered(STEP**power)[1])
        answers, lost = answered(STEP**power)
        count, questions = int(answers), math.floor(STEP**power)
        yield Bought(cls.name, count if lost <= loss else 0, min(lost, loss), {"questions": questions}, cls.stateless)

    @property
    def closed(self) -> bool:
        """Whether all questions are refused from now on."""
        return self._run.answers_left == 0 or self._run.queries_left == 0

    def _ask(self, counts: Votes) -> int | None:
        return self._run.ask(counts)


class SparseVector(AbstainingLabeller):
    """The exact majority on questions where it is stable; it declines others, and closes after `halts` of these.

    Guarantee. For a replaced row: (ε, δ) over all answers, however many.

    Why. See `mechanisms.StableMajority`.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 2, with the repaired
    width.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    halts : int, default 50
        Number of declined questions after which it closes.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.

    Examples
    --------
    900 of 1,000 teachers agree. The chance that the noise leads to another answer is below 10⁻⁴⁰.

    >>> labeller = SparseVector(teachers=1000, epsilon=1, delta=1e-6, halts=1)
    >>> labeller.label([[100, 900], [900, 100]]).tolist()
    [1, 0]
    """

    name = "sparse-vector"
    counted = False

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
        self._run = StableMajority(epsilon=epsilon, delta=delta, halts=halts, unsafe_noise=unsafe_noise)
        run_event = self._run.event  # the base class marks it as seeded, once
        event = run_event.event if isinstance(run_event, SeededRelease) else run_event
        super().__init__(teachers=teachers, classes=classes, event=event, answers=None, unsafe_noise=unsafe_noise)

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield the expected number of answers for some numbers of halts. Answers are the noiseless majority."""
        distances = np.array([stability(row)[1] for row in ballots.counts])
        for halts in HALTS:
            run = cls(teachers=ballots.teachers, epsilon=epsilon, delta=delta, halts=halts)._run
            slow, fast = sorted(float(rate) for rate in split_segment(run.event.epsilon))  # type: ignore[attr-defined]
            halting = ballots.mean(laplace_difference_tail(distances - run.width, fast, slow))
            answers = int(min(FURTHEST, halts * (1 - halting) / halting))
            yield Bought(cls.name, answers, 0.0, {"halts": halts}, cls.stateless)

    @property
    def closed(self) -> bool:
        """Whether all questions are refused from now on."""
        return self._run.halts_left == 0

    def _ask(self, counts: Votes) -> int | None:
        return self._run.ask_counts(counts)


# ── the least noise that fits ─────────────────────────────────────────────────────────────────────────────────────


def _tests_and_answers(sigma_test: Fraction, sigma_answer: Fraction, questions: int, answers: int) -> Event:
    tests = Repeated(DiscreteGaussian(sigma_test), questions)
    return Composed((tests, Repeated(DiscreteGaussian(sigma_answer, 2), answers)))


@lru_cache(maxsize=64)
def _sigmas(
    epsilon: Fraction, delta: Fraction, questions: int, answers: int, test_share: Fraction
) -> tuple[Fraction, Fraction]:
    """The least noise of the tests and of the answers within (ε, δ)."""

    def sigmas(sigma: Fraction) -> tuple[Fraction, Fraction]:
        # Of 1/σ², a share goes to the tests at 1/(2σ₁²) each, the rest to the answers at 1/σ₂² each.
        tests, winners = sigma**2 * questions / test_share, sigma**2 * 2 * answers / (1 - test_share)
        return _root_above(tests), _root_above(winners)

    def event(sigma: Fraction) -> Event:
        return _tests_and_answers(*sigmas(sigma), questions, answers)

    return sigmas(calibrate.noise(event, epsilon=epsilon, delta=delta, digits=4))


def _root_above(square: Fraction) -> Fraction:
    """A short fraction not below the square root of `square`, within one part in 10^9."""
    guess = Fraction(float(square) ** 0.5 * (1 + 1e-10)).limit_denominator(10**12)
    while guess**2 < square:
        guess *= 1 + Fraction(1, 10**10)
    return guess
