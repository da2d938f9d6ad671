"""Who answers the streams of `truth`: the predictor itself in several settings, and models that are not private.

Everybody learns the first window, and then answers window after window. What they are told afterwards is decided by
`Labels`. The noise is seeded, so that a measurement can be repeated; a seeded predictor protects nobody, and is
otherwise the same.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.private_linear_data import Integers
from experiments.truth_streams import Stream
from reticent.errors import EndingWarning, OneAnswerWarning, PrivacyWarning
from reticent.learners import PrivateLogisticRegression
from reticent.learners.phase_rules import phase_rows
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.gauge import Quality

DELTA = 1e-6
NONE = -1  # in place of a label that does not come


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Which labels come back, and when.

    Parameters
    ----------
    delay : int, default 0
        How many windows are answered between a query and its label.
    share : float, default 1
        The share of queries whose label comes at all, at random.
    complaints : float or None, default None
        If given, labels come only for wrong answers, each with this probability.
    hostile : float, default 0
        The share of labels that someone hostile gives, at random.
    lie : {"always 0", "the opposite"}, default "the opposite"
        What hostile labels are.
    """

    delay: int = 0
    share: float = 1.0
    complaints: float | None = None
    hostile: float = 0.0
    lie: str = "the opposite"

    def given(self, y: Integers, answers: Integers, generator: np.random.Generator) -> Integers:
        """The labels that come for some queries; −1 where none does.

        Parameters
        ----------
        y, answers : array of int
            The true labels of the queries, and the answers that they got.
        generator : Generator
            Draws which come.
        """
        come = generator.random(len(y)) < (self.share if self.complaints is None else self.complaints)
        if self.complaints is not None:
            come &= answers != y
        lied = generator.random(len(y)) < self.hostile
        told = np.where(lied, 0 if self.lie == "always 0" else 1 - y, y)
        return np.where(come, told, NONE)


@dataclass(frozen=True, eq=False)
class Answered:
    """What came of a stream: the rows of a window, an answer for each row after the first window, and the gauge."""

    rows: int
    got: Integers
    quality: tuple[Quality, ...] = ()


# ── the predictor ─────────────────────────────────────────────────────────────────────────────────────────────────


def predictor(found: Stream, *, seed: int, epsilon: float = 1, learner: Mapping[str, Any], **parameters: Any) -> Any:
    """An everlasting predictor with a linear learner, unfitted.

    Parameters
    ----------
    found : Stream
        What it will be asked.
    seed : int
        Of the noise.
    epsilon : float, default 1
        ε.
    learner : dict
        Parameters of the learner, besides those that are needed.
    **parameters
        Of the predictor.
    """
    linear = PrivateLogisticRegression(
        epsilon=epsilon, delta=DELTA, row_norm=found.row_norm, classes=[0, 1], **learner
    )  # fmt: skip
    return EverlastingPredictor(
        linear, epsilon=epsilon, delta=DELTA, classes=(0, 1), unsafe_seed=seed, **parameters
    )  # fmt: skip


def window(found: Stream, *, epsilon: float = 1, learner: Mapping[str, Any] | None = None) -> int:
    """The labelled rows of a phase, by the rule of the package; all who answer a stream have such windows.

    Parameters
    ----------
    found : Stream
        The stream.
    epsilon, learner
        As for `predictor`.
    """
    linear = predictor(found, seed=0, epsilon=epsilon, learner=learner or {}).learner
    return phase_rows(linear, found.X.shape[1])


def by_rows(found: Stream, rows: int, labels: Labels, *, seed: int, **parameters: Any) -> Answered:
    """A predictor that gets new labelled rows by `add_labelled` after each window, or later.

    Parameters
    ----------
    found : Stream
        The stream.
    rows : int
        The rows of a window, and of the first phase.
    labels : Labels
        Which labels come, and when.
    seed : int
        Of the noise and of the labels.
    **parameters
        Of `predictor`.
    """
    generator = np.random.default_rng(seed)
    model = _started(found, rows, seed=seed, truth="rows", **parameters)
    got, told = np.full(len(found.y), NONE), deque[tuple[Any, Integers]]()
    for some in _windows(found, rows):
        X = found.X[some]
        got[some] = model.predict(X)
        told.append((X, labels.given(found.y[some], got[some], generator)))
        if len(told) > labels.delay:
            late, come = told.popleft()
            model.add_labelled(late[come >= 0], come[come >= 0])
    return Answered(rows, got, tuple(model.quality_))


def gauge_errors(found: Stream, answered: Answered) -> list[float]:
    """How far each released accuracy is from the share of right answers among the other rows of its window.

    It holds if every label comes after its own window, so that phase p answers window p. One row in ten judges.

    Parameters
    ----------
    found : Stream
        The stream.
    answered : Answered
        What `by_rows` returned.
    """
    errors = []
    for one in answered.quality:
        others = np.arange(answered.rows)[np.arange(answered.rows) % 10 != 0] + one.phase * answered.rows
        if one.right is not None:
            errors.append(abs(one.right - float((answered.got[others] == found.y[others]).mean())))
    return errors


def by_feedback(found: Stream, rows: int, labels: Labels, *, seed: int, **parameters: Any) -> Answered:
    """A predictor that gets labels for its own answers by `feedback`, and waits for those that are late.

    Parameters
    ----------
    found, rows, labels, seed, **parameters
        As for `by_rows`.
    """
    generator = np.random.default_rng(seed)
    model = _started(found, rows, seed=seed, truth="feedback", wait=labels.delay * rows, **parameters)
    got, told = np.full(len(found.y), NONE), deque[tuple[list[str], Integers]]()
    for some in _windows(found, rows):
        answered = model.answer(found.X[some])
        if answered.refused is not None:
            raise answered.refused
        got[some] = answered.class_indices
        told.append((answered.tickets, labels.given(found.y[some], got[some], generator)))
        if len(told) > labels.delay:
            tickets, come = told.popleft()
            model.feedback([tickets[one] for one in np.flatnonzero(come >= 0)], come[come >= 0])
    return Answered(rows, got, tuple(model.quality_))


def unlabelled(found: Stream, rows: int, *, seed: int, **parameters: Any) -> Answered:
    """A predictor that gets no labels after the first window.

    Parameters
    ----------
    found, rows, seed, **parameters
        As for `by_rows`.
    """
    model = _started(found, rows, seed=seed, **parameters)
    got = np.full(len(found.y), NONE)
    for some in _windows(found, rows):
        got[some] = model.predict(found.X[some])
    return Answered(rows, got)


def by_votes(found: Stream, rows: int, *, seed: int, epsilon: float, truth: bool) -> Answered:
    """Votes of logistic teachers, one new set of them for each window, with true labels or with their own answers.

    Parameters
    ----------
    found, rows, seed
        As for `by_rows`.
    epsilon : float
        ε.
    truth : bool
        Whether labelled rows come after each window.
    """
    more: dict[str, Any] = {"truth": "rows", "phase_rows": rows, "growth": 1} if truth else {"growth": 1.2,
                                                                                              "held_back": 0}
    known: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "classes": (0, 1), "most_noise": 1.0}
    got = np.full(len(found.y), NONE)
    with _quiet():
        model = EverlastingPredictor(**known, **more, unsafe_seed=seed).fit(found.X[:rows], found.y[:rows])
        for some in _windows(found, rows):
            got[some] = model.predict(found.X[some])
            if truth:
                model.add_labelled(found.X[some], found.y[some])
    return Answered(rows, got)


def _started(found: Stream, rows: int, **parameters: Any) -> Any:
    with _quiet():
        return predictor(found, **parameters).fit(found.X[:rows], found.y[:rows])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of `fit`: of a seed, of one answer for all rows, of phases that end."""
    with warnings.catch_warnings():
        for one in (PrivacyWarning, OneAnswerWarning, EndingWarning):
            warnings.simplefilter("ignore", one)
        yield


def _windows(found: Stream, rows: int) -> Iterator[slice]:
    """The windows after the first; the last one may be shorter."""
    for first in range(rows, len(found.y), rows):
        yield slice(first, min(first + rows, len(found.y)))


# ── not private ───────────────────────────────────────────────────────────────────────────────────────────────────


def not_private(found: Stream, rows: int, *, fresh: bool) -> Answered:
    """Logistic regression of scikit-learn, fitted on the first window, or on the window before each.

    Parameters
    ----------
    found, rows
        As for `by_rows`.
    fresh : bool
        Whether every window is learned from.
    """
    got, start = np.full(len(found.y), NONE), slice(0, rows)
    model = _fitted(found, start, None)
    for some in _windows(found, rows):
        got[some] = model.predict(found.X[some])
        if fresh:
            model = _fitted(found, some, model)
    return Answered(rows, got)


def _fitted(found: Stream, some: slice, last: Any) -> Any:
    """A model of some rows; the last one again if they are of one class. Dense columns are scaled by their spread."""
    y = found.y[some]
    if len(np.unique(y)) == 1:
        return last if last is not None else _Constant(int(y[0]))
    linear = LogisticRegression(max_iter=1000)
    model = linear if sparse.issparse(found.X) else make_pipeline(StandardScaler(), linear)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(found.X[some], y)


@dataclass(frozen=True)
class _Constant:
    """What rows of one class teach."""

    label: int

    def predict(self, X: Any) -> Integers:
        return np.full(X.shape[0], self.label)
