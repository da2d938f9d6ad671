"""Votes on questions, known or guessed, for planning: how far teachers agree, and what a labeller buys on them."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.exact import integer
from reticent.promises import check_share

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Votes = NDArray[np.int64]

TORN = 0.1  # the share of questions on which teachers are assumed to disagree
WIDEST = 2000  # beyond this many teachers, a guess need not be finer


@dataclass(frozen=True)
class Ballots:
    """Votes on some questions, the right classes, and how often each question comes.

    For planning from public or guessed votes, or for measuring where votes may be seen. Nothing computed from the votes
    of private teachers is private.

    Parameters
    ----------
    counts : ndarray of int, shape (questions, classes)
        Votes for each class.
    truth : ndarray of int, shape (questions,)
        The right class of each question.
    weights : ndarray of float, shape (questions,)
        How often each question comes, as a share of all.
    """

    counts: Votes
    truth: Labels
    weights: Floats

    @classmethod
    def of(cls, counts: Votes, truth: Labels) -> Ballots:
        """Ballots in which every question comes once; equal questions are merged."""
        rows, times = np.unique(np.column_stack([counts, truth]), axis=0, return_counts=True)
        return cls(rows[:, :-1], rows[:, -1], times / times.sum())

    @classmethod
    def guess(cls, teachers: int, *, classes: int = 2, torn: object = None, margins: object = None) -> Ballots:
        """Ballots from a guess of how far the winner leads, as a share of the teachers. The winner is right.

        All teachers agree, except on a share `torn` of the questions, a tenth by default, where every lead is equally
        likely. Or the leads are those given as `margins`, numbers from 0 to 1. The runner-up has all other votes.
        """
        if torn is not None and margins is not None:
            raise ValueError(f"torn={torn} must be left out where margins are given: they say how far teachers agree")
        count, columns = integer(teachers, "teachers", least=1), integer(classes, "classes", least=2)
        if margins is None:
            share = float(check_share(TORN if torn is None else torn, "torn"))
            leads = np.append((np.arange(200) + 0.5) / 200, 1.0)
            weights = np.append(np.full(200, share / 200), 1 - share)
        else:
            leads = _read_margins(margins)
            weights = np.full(len(leads), 1 / len(leads))
        counts = np.zeros((len(leads), columns), dtype=np.int64)
        counts[:, 1] = np.rint((1 + leads) / 2 * count)
        counts[:, 0] = count - counts[:, 1]
        return cls(counts, np.ones(len(leads), dtype=np.int64), weights)

    @property
    def teachers(self) -> int:
        """Number of teachers."""
        return int(self.counts[0].sum())

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.counts.shape[1])

    @cached_property
    def leads(self) -> NDArray[np.int64]:
        """Votes for the right class less the votes for each of the others."""
        rows = np.arange(len(self.truth))
        others = np.ones(self.counts.shape, dtype=bool)
        others[rows, self.truth] = False
        against = self.counts[others].reshape(len(rows), -1)
        return np.asarray(self.counts[rows, self.truth][:, None] - against)

    @cached_property
    def majority(self) -> float:
        """How often the noiseless majority is right, a tie counting half."""
        closest = self.leads.min(axis=1)
        return self.mean((closest > 0) + 0.5 * (closest == 0))

    def mean(self, values: Any) -> float:
        """The mean over the questions."""
        return float(self.weights @ np.asarray(values, dtype=np.float64))

    def loss(self, right: Any) -> float:
        """How far an expected share of right answers is below that of the noiseless majority."""
        return self.majority - self.mean(right)

    def coarse(self) -> tuple[Ballots, float]:
        """At most `WIDEST` teachers with about the same shares of votes, and the factor by which there are fewer."""
        if self.teachers <= WIDEST:
            return self, 1.0
        factor = self.teachers / WIDEST
        counts = np.rint(self.counts / factor).astype(np.int64)
        counts[:, 0] += WIDEST - counts.sum(axis=1)
        return Ballots(counts, self.truth, self.weights), factor


@dataclass(frozen=True)
class Bought:
    """What a labeller buys: a number of answers at a loss, and the options it is made with.

    Parameters
    ----------
    labeller : str
        Its name.
    answers : int
        How many it gives; an expected number where none is set beforehand.
    loss : float
        How far the share of right answers is below that of the noiseless majority.
    options : dict
        Its options.
    stateless : bool, default=True
        Whether no question shows in the answers to others.
    """

    labeller: str
    answers: int
    loss: float
    options: dict[str, Any] = field(default_factory=dict)
    stateless: bool = True


def _read_margins(margins: object) -> Floats:
    wanted = "margins must be numbers from 0 to 1, leads as shares of the teachers, and at least one"
    try:
        leads = np.atleast_1d(np.asarray(margins, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {reprlib.repr(margins)}") from None
    wrong = leads[~((leads >= 0) & (leads <= 1))]
    if leads.size == 0 or wrong.size:
        raise ValueError(f"{wanted}, got {wrong[0] if wrong.size else 'none'}")
    return leads
