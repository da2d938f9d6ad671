"""Labellers without a memory: a public number of answers, fresh noise for each, nothing carried over to the next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reticent.exact import integer
from reticent.labellers.base import Labeller, Labels, TableLabeller, Votes
from reticent.labellers.budget import check_budget, share
from reticent.labellers.greedy import greedy_table
from reticent.labellers.poll import check_poll, poll_price, poll_table
from reticent.mechanisms.counts import Integers, integer_array
from reticent.noise import Noise
from reticent.privacy.events import RenyiDP, Repeated


class Greedy(TableLabeller):
    """The best that one bit can do: `greedy_table` at the share of the budget that each of R answers has.

    Guarantee. For a replaced row, which changes one vote: R answers to adaptive questions have a Rényi divergence of at
    most R times that of the table, at one order; `.event`, which is within (ε, δ). Nothing of a question shows in the
    answers to others: for the questions it costs nothing.

    Why. Each answer is a fresh coin whose chance depends on the number of votes, which moves by at most 1; divergences
    of one order add up over adaptive questions. The number of answers is public, and there is no state.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 1, with the best table in
    place of Gaussian noise.
    """

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: object,
        delta: object,
        answers: int,
        order: object = None,
        unsafe_noise: Noise | None = None,
    ) -> None:
        exact_epsilon, exact_delta, count = check_budget(epsilon, delta, answers)
        alpha, most = share(exact_epsilon, exact_delta, count, order)
        table = greedy_table(teachers, order=alpha, divergence=most)
        each = RenyiDP(alpha, table.divergence(alpha))
        super().__init__(table, event=Repeated(each, count), answers=count, unsafe_noise=unsafe_noise)


class Poll(Labeller):
    """Ask a few teachers, drawn in secret for every question, and answer what most of them say, sometimes at random.

    An answer takes `poll` votes and not one of every teacher. `label` takes all votes and draws the poll from them.
    To ask the teachers themselves, draw which are asked with `draw_polls` and hand their votes to `label_polls`.

    Guarantee. As for `Greedy`, with the table of the poll; as many answers as fit (ε, δ), or `answers` if given.

    Why. Drawn with replacement, each polled teacher votes for 1 with probability v/K, independently. So the answer is 1
    with probability η/2 + (1 − η)·P(Bin(m, v/K) > m/2): a table over v (see `VoteTable`). This holds only while nobody
    can tell who was asked: the polls stay secret, a teacher drawn twice is asked twice, every question has a poll of
    its own, and no time, log or count of a teacher shows.

    Source. Of the same shape as the answers of Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*.
    """

    def __init__(
        self,
        *,
        teachers: int,
        epsilon: object,
        delta: object,
        answers: int | None = None,
        poll: int = 7,
        flip: object = 0.005,
        order: object = None,
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

    def _label(self, counts: Votes) -> Labels:
        polled = np.asarray(self._noise.uniform(self.teachers, len(counts) * self.poll)).reshape(len(counts), self.poll)
        return self._majority((polled < counts[:, 1:]).sum(axis=1))

    def draw_polls(self, questions: int) -> NDArray[np.int64]:
        """Which teachers to ask, one row a question. Secret: whoever learns it learns their votes."""
        self._guard.check()
        size = integer(questions, "questions", least=1)
        return np.asarray(self._noise.uniform(self.teachers, size * self.poll)).reshape(size, self.poll)

    def label_polls(self, votes: Integers) -> Labels:
        """Labels from the votes, 0 or 1, of the teachers that `draw_polls` named: one row a question.

        As `label` it answers the first questions, as many as may still be asked, and raises once it is closed. Each
        poll must be used for one question only.
        """
        with self._guard.claim():
            self._check_open()
            found = integer_array(votes, "votes", least=0, most=1)
            if found.ndim != 2 or found.shape[1] != self.poll:
                raise ValueError(f"votes must have one row a question and {self.poll} votes, 0 or 1, in each")
            labels = self._majority(found[: self.answers_left].sum(axis=1))
            self.asked += len(labels)
            return labels

    def _majority(self, ones: NDArray[np.int64]) -> Labels:
        share_, whole = self.flip.numerator, self.flip.denominator
        coin = np.asarray(self._noise.uniform(2 * whole, len(ones)))  # below 2·share: a random answer, even or odd
        return np.where(coin < 2 * share_, coin % 2, (ones > self.poll // 2).astype(np.int64))

    def accuracy(self, votes: Integers, truth: Integers) -> float:
        """The expected share of right labels where votes and truth are known. Not private: for planning only."""
        ones = poll_table(self.teachers, poll=self.poll, flip=self.flip).probabilities[self._read(votes)[:, 1]]
        return float(np.where(np.asarray(truth) == 1, ones, 1 - ones).mean())
