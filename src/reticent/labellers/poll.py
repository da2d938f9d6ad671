"""The poll labeller: it asks a few teachers, drawn in secret."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from reticent.exact import Number, integer, rational
from reticent.labellers.ballots import Ballots, Bought, Floats, Labels, Votes
from reticent.labellers.base import PollingLabeller
from reticent.labellers.budget import check_budget, share
from reticent.labellers.chances import right_chances, two_class_chances
from reticent.labellers.table import MOST_TEACHERS, ONE, VoteTable, check_order, check_teachers, excess_moments
from reticent.mechanisms.counts import Integers, integer_array
from reticent.noise import Noise
from reticent.privacy.events import RenyiDP, Repeated

POLLS = (3, 5, 7, 11, 17, 31)  # sizes and chances that plans try
FLIPS = (0.001, 0.005, 0.01)
_ERROR = 1 << 16  # of an entry, in units of 2^-62: three times the largest that exact sums found, at a poll of 9999


class Poll(PollingLabeller):
    """Asks a few teachers, drawn in secret for every question, and answers with their majority, rarely at random.

    An answer takes `poll` votes, not one from every teacher. `label` takes all votes and draws the poll from them. To
    ask only the teachers that are drawn, call `draw_polls` and pass their votes to `label_polls`.

    Guarantee. As for `Greedy`, with the table of the poll; as many answers as fit (ε, δ), or `answers` if given.

    Why. Drawn with replacement, each polled teacher votes for 1 with probability v/K, independently. So the answer is 1
    with probability η/2 + (1 − η)·P(Bin(m, v/K) > m/2): a table over v (see `VoteTable`). This holds only while the
    polls are secret: a teacher drawn twice is asked twice, every question has its own poll, and no time, log or counter
    shows which teachers were asked. The page "Poll" of the documentation has the proof.

    Source. Of the same shape as the answers of Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    epsilon, delta : float or Fraction
        Privacy-loss bound (ε, δ) for the rows that the teachers learned from.
    answers : int or None, default None
        Number of answers; None for as many as fit.
    poll : int, default 7
        Number of teachers that are asked, an odd number.
    flip : float or Fraction, default 0.005
        Chance of a random answer η.
    order : float, Fraction or None, default None
        Order of the Rényi divergence; None for `default_order`.
    unsafe_noise : Noise or None, default None
        For tests only: replaces the noise of the operating system.
    """

    name = "poll"
    several_classes = False

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: Number,
        delta: Number,
        answers: int | None = None,
        poll: int = 7,
        flip: Number = 0.005,
        order: Number | None = None,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, _ = check_budget(epsilon, delta)
        alpha, spendable = share(exact_epsilon, exact_delta, 1, order)
        self.poll, self.flip = check_poll(poll, flip)
        price = poll_price(teachers, poll=self.poll, flip=self.flip, order=alpha)
        most = int(spendable / price)
        count = most if answers is None else integer(answers, "answers", least=1)
        if most == 0:
            raise ValueError(
                f"epsilon={epsilon}, delta={delta} do not buy a single answer of a poll of {self.poll} of {teachers} "
                f"teachers with flip={float(self.flip):g}: take a larger epsilon, more teachers, or a smaller poll"
            )
        if count > most:
            raise ValueError(
                f"answers must be at most {most}: that many of a poll of {self.poll} of {teachers} teachers with "
                f"flip={float(self.flip):g} fit epsilon={epsilon}, delta={delta}, got {count}"
            )
        event = Repeated(RenyiDP(alpha, price), count)
        super().__init__(teachers=teachers, classes=2, event=event, answers=count, unsafe_noise=unsafe_noise)

    @classmethod
    def offers(
        cls, ballots: Ballots, *, epsilon: Fraction, delta: Fraction, loss: float, exact: bool = True
    ) -> Iterator[Bought]:
        """Yield what each of some polls buys; their settings are fixed before any votes are seen."""
        if ballots.teachers > MOST_TEACHERS:
            return
        for size in POLLS:
            for flip in FLIPS:
                try:
                    labeller = cls(teachers=ballots.teachers, epsilon=epsilon, delta=delta, poll=size, flip=flip)
                except ValueError:  # not a single answer fits
                    continue
                lost = ballots.loss(right_chances(labeller.chances(ballots.counts), ballots.truth))
                yield Bought(cls.name, labeller.answers or 0, lost, {"poll": size, "flip": flip})

    def _label(self, counts: Votes) -> Labels:
        return self._majority((self._drawn(len(counts)) < counts[:, 1:]).sum(axis=1))

    def draw_polls(self, questions: int) -> NDArray[np.int64]:
        """Return which teachers to ask, with one row per question. Secret: with it, answers reveal single votes."""
        self._guard.check()
        return self._drawn(integer(questions, "questions", least=1))

    def _drawn(self, questions: int) -> NDArray[np.int64]:
        return np.asarray(self._noise.uniform(self.teachers, questions * self.poll)).reshape(questions, self.poll)

    def label_polls(self, votes: Integers) -> Labels:
        """Return labels from the votes, 0 or 1, of the teachers that `draw_polls` returned, with one row per question.

        Like `label`, it answers the first questions, as many as may still be asked, and raises `BudgetExhausted` once
        it is closed. Use each poll for one question only.
        """
        return self._answer(votes, self._read_polls, lambda found: self._majority(found.sum(axis=1)))

    def _read_polls(self, votes: Integers) -> Votes:
        found = integer_array(votes, "votes", least=0, most=1)
        if found.ndim != 2 or found.shape[1] != self.poll:
            raise ValueError(f"votes must have one row per question and {self.poll} votes, 0 or 1, in each")
        return found

    def _majority(self, ones: NDArray[np.int64]) -> Labels:
        share_, whole = self.flip.numerator, self.flip.denominator
        coin = np.asarray(self._noise.uniform(2 * whole, len(ones)))  # below 2·share: a random answer, even or odd
        return np.where(coin < 2 * share_, coin % 2, (ones > self.poll // 2).astype(np.int64))

    def _chances(self, counts: Votes) -> Floats:
        table = poll_table(self.teachers, poll=self.poll, flip=self.flip)
        return two_class_chances(table.probabilities[counts[:, 1]])


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────


def poll_table(teachers: int, *, poll: int = 7, flip: Number = 0.005) -> VoteTable:
    """Return the table of a poll: the majority of `poll` teachers drawn with replacement, rarely a random answer.

    Parameters
    ----------
    teachers : int
        Number of teachers that vote.
    poll : int, default 7
        Number of teachers that are asked, an odd number.
    flip : float or Fraction, default 0.005
        Chance that the answer is a fair coin.
    """
    return _table(check_teachers(teachers), *check_poll(poll, flip))


@lru_cache(maxsize=8)
def _table(count: int, size: int, eta: Fraction) -> VoteTable:
    votes = np.arange(count + 1)
    most = binom.sf(size // 2, size, votes / count)
    raw = np.rint((float(eta) / 2 + (1 - float(eta)) * most) * float(ONE)).astype(np.int64)
    upper = np.clip(raw[(count + 1) // 2 :], ONE // 2, ONE - 1)
    if count % 2 == 0:
        upper[0] = ONE // 2
    upper = np.maximum.accumulate(upper)
    return VoteTable.symmetric(ONE - upper, count)


def poll_price(teachers: int, *, poll: int, flip: Number, order: Number) -> Fraction:
    """Return a bound on the Rényi divergence of an answer by poll, which is drawn exactly and not from its table.

    The table is computed in floating point. So neighbouring entries are moved apart by more than the largest error that
    was ever found, which only increases divergences.
    """
    size, eta = check_poll(poll, flip)
    entries, alpha = poll_table(teachers, poll=size, flip=eta).entries, check_order(order)
    low, high = entries[:-1] - _ERROR, entries[1:] + _ERROR
    if int(low.min()) <= 0:
        raise ValueError(f"flip must be at least 1e-13, got {flip}")
    worst = float(excess_moments(low, high, alpha).max())
    if not math.isfinite(worst):
        raise ValueError(
            f"flip={float(eta):g} has no finite price for a poll of {size} of {teachers} teachers: take a "
            "larger flip, more teachers, or a larger epsilon"
        )
    return Fraction(math.log1p(worst) / (alpha - 1) * (1 + 1e-12))


def check_poll(poll: int, flip: Number) -> tuple[int, Fraction]:
    """Return the size of a poll, an odd number, and the chance of a random answer."""
    size = integer(poll, "poll", least=1, most=9999)
    if size % 2 == 0:
        raise ValueError(f"poll must be odd, so that it has a majority, got {size}")
    eta = rational(flip, "flip")
    if not 0 < eta <= 1:
        raise ValueError(f"flip must be in (0, 1], got {flip}: without it an answer can rule a vote out for certain")
    return size, eta
