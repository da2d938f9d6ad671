"""Known or guessed votes on questions, for planning."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.exact import Number, integer
from reticent.promises import check_share

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Votes = NDArray[np.int64]

DISAGREEMENT = 0.1  # the share of questions on which teachers are assumed to disagree
WIDEST = 2000  # teachers: more would not make a guess finer


@dataclass(frozen=True)
class Ballots:
    """Votes on some questions, the right classes, and the frequency of each question.

    For planning with public or guessed votes, and for experiments on public data. Nothing that is computed from votes
    of private teachers is private.

    Parameters
    ----------
    counts : ndarray of int, shape (questions, classes)
        Votes for each class.
    truth : ndarray of int, shape (questions,)
        The right class of each question.
    weights : ndarray of float, shape (questions,)
        Frequency of each question, as a share of all.
    """

    counts: Votes
    truth: Labels
    weights: Floats

    @classmethod
    def of(cls, counts: Votes, truth: Labels) -> Ballots:
        """Return ballots in which every question occurs once; equal questions are merged."""
        rows, times = np.unique(np.column_stack([counts, truth]), axis=0, return_counts=True)
        return cls(rows[:, :-1], rows[:, -1], times / times.sum())

    @classmethod
    def guess(
        cls, teachers: int, *, classes: int = 2, disagreement: Number | None = None, margins: ArrayLike | None = None
    ) -> Ballots:
        """Return ballots from a guess of the winner's leads. The winner is right; the runner-up has all other votes.

        Parameters
        ----------
        teachers : int
            Number of teachers that vote.
        classes : int, default 2
            Number of classes they vote on.
        disagreement : float, Fraction or None, default None
            Share of the questions on which teachers disagree, where every lead is equally likely; on all others they
            agree. None for a tenth.
        margins : array-like or None, default None
            The leads, as shares of the teachers, numbers from 0 to 1, in place of a guess.
        """
        if disagreement is not None and margins is not None:
            raise ValueError(f"disagreement={disagreement} must be left out if margins are given, which replace it")
        count, columns = integer(teachers, "teachers", least=1), integer(classes, "classes", least=2)
        if margins is None:
            share = float(check_share(DISAGREEMENT if disagreement is None else disagreement, "disagreement"))
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
        """The votes for the right class minus the votes for each other class."""
        rows = np.arange(len(self.truth))
        others = np.ones(self.counts.shape, dtype=bool)
        others[rows, self.truth] = False
        against = self.counts[others].reshape(len(rows), -1)
        return np.asarray(self.counts[rows, self.truth][:, None] - against)

    @cached_property
    def majority(self) -> float:
        """The share of questions on which the noiseless majority is right; a tie counts half."""
        closest = self.leads.min(axis=1)
        return self.mean((closest > 0) + 0.5 * (closest == 0))

    def mean(self, values: Any) -> float:
        """Return the mean over the questions."""
        return float(self.weights @ np.asarray(values, dtype=np.float64))

    def loss(self, right: Any) -> float:
        """Return how far the expected share of right answers is below that of the noiseless majority."""
        return self.majority - self.mean(right)

    def coarse(self) -> tuple[Ballots, float]:
        """Return ballots of at most `WIDEST` teachers with about the same shares, and how many times fewer."""
        if self.teachers <= WIDEST:
            return self, 1.0
        factor = self.teachers / WIDEST
        counts = np.rint(self.counts / factor).astype(np.int64)
        counts[:, 0] += WIDEST - counts.sum(axis=1)
        return Ballots(counts, self.truth, self.weights), factor


@dataclass(frozen=True)
class Bought:
    """What a budget buys from a labeller: a number of answers at a loss, and the options of the labeller.

    Parameters
    ----------
    labeller : str
        Name of the labeller.
    answers : int
        Number of answers; the expected number if the labeller closes by itself.
    loss : float
        How far the share of right answers is below that of the noiseless majority.
    options : dict, default {}
        Options of the labeller.
    stateless : bool, default True
        Whether no question affects the answers to others.
    """

    labeller: str
    answers: int
    loss: float
    options: dict[str, Any] = field(default_factory=dict)
    stateless: bool = True


def _read_margins(margins: ArrayLike) -> Floats:
    wanted = "margins must be numbers from 0 to 1, leads as shares of the teachers, and at least one"
    try:
        leads = np.atleast_1d(np.asarray(margins, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {reprlib.repr(margins)}") from None
    wrong = leads[~((leads >= 0) & (leads <= 1))]
    if leads.size == 0 or wrong.size:
        raise ValueError(f"{wanted}, got {wrong[0] if wrong.size else 'none'}")
    return leads
