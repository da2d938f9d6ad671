"""Which public rows to ask about: a function of the public rows and the labels released so far.

Each chooser is a generator. It sees the public rows and a `Transcript`, and yields the indices of the rows to ask about
next. `ask_all` has them labelled and writes the labels into the transcript. A chooser never holds a private row or a
vote. So what it computes is post-processing, and its queries are adaptive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from reticent.concepts.interface import ConceptClass, Dichotomies
from reticent.data.tables import Array, Integers, Table, take
from reticent.labellers import ABSTAINS, Labeller
from reticent.silence import silent

Floats = NDArray[np.float64]
Chooser = Iterator[Integers]

FIRST = 10  # rows asked at random before there is a model to choose by
BATCHES = 15  # in which the other rows are asked
CAUTION = 1.0
MOST_DICHOTOMIES = 1 << 20
RIDGE = 1.0


class Transcript:
    """All that was released: the rows that were asked, in order, and their labels; −1 for a declined one.

    Parameters
    ----------
    rows : int
        Number of public rows.
    limit : int
        Largest number of rows that may be asked.

    Attributes
    ----------
    asked : array of int
        Indices of the rows that were asked.
    labels : array of int
        Their labels.
    implied : array of int
        For each public row the label that all plausible models give, if it was not asked for that reason; else −1.
    closed : bool
        Whether there will be no more answers.
    """

    def __init__(self, rows: int, limit: int) -> None:
        self.rows, self.limit = rows, min(limit, rows)
        self.asked: Integers = np.empty(0, dtype=np.int64)
        self.labels: Integers = np.empty(0, dtype=np.int64)
        self.implied: Integers = np.full(rows, ABSTAINS)
        self.closed = False

    @property
    def left(self) -> int:
        """Number of rows that may still be asked."""
        return 0 if self.closed else self.limit - len(self.asked)

    def add(self, asked: Integers, labels: Integers, *, closed: bool = False) -> None:
        """Add answers: one per row asked. If there are fewer, there will be no more."""
        self.closed = closed or len(labels) < len(asked)
        self.asked = np.append(self.asked, asked[: len(labels)])
        self.labels = np.append(self.labels, labels)

    @property
    def known(self) -> tuple[Integers, Integers]:
        """The rows that got a label, and their labels."""
        given = self.labels != ABSTAINS
        return self.asked[given], self.labels[given]

    @property
    def unasked(self) -> Integers:
        """The rows that were not asked."""
        return np.setdiff1d(np.arange(self.rows), self.asked)


def ask_all(
    chooser: Chooser, transcript: Transcript, votes: Callable[[Integers], Integers], labeller: Labeller
) -> Transcript:
    """Ask the rows that the chooser yields, until it stops or there are no more answers."""
    for asked in chooser:
        some = asked[: transcript.left]
        if len(some):
            transcript.add(some, labeller.label(votes(some)), closed=labeller.closed)
    return transcript


def passive(transcript: Transcript) -> Chooser:
    """Ask the first rows, as many as may be asked.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 3 (PATE-PSQ).
    """
    yield np.arange(transcript.limit)


def by_margin(transcript: Transcript, points: Floats, *, classes: int, random_state: int = 0) -> Chooser:
    """Ask a few random rows, then in batches those with the smallest margin under a ridge fit to the labels so far.

    Source. Margin-based active learning, as the active learner of PATE-ASQ (Liu, Zhu, Chaudhuri, Wang, *Revisiting
    Model-Agnostic Private Learning*, Algorithm 5).
    """
    order = np.random.default_rng(random_state).permutation(transcript.rows)
    batch = max(1, -(-transcript.limit // BATCHES))
    yield order[: min(FIRST, transcript.left)]
    while transcript.left > 0:
        rest = order[np.isin(order, transcript.asked, invert=True)]
        known, labels = transcript.known
        if len(np.unique(labels)) > 1:
            scores = Ridge(points[known], labels, classes).scores(points[rest])
            rest = rest[np.argsort(lead(scores), kind="stable")]
        yield rest[: min(batch, transcript.left)]


# ── disagreement ──────────────────────────────────────────────────────────────────────────────────────────────────


def slack(seen: int, least: float, *, dimension: int = 1, caution: float = CAUTION) -> float:
    """Return how many errors more than the fewest a concept may make on the labels so far and still be plausible.

    It is s + √(s·least) with s = caution·(d·ln(1 + j/d) + ln(1/γ_j)) after j rows, γ_j = 1/(2·log₂(2j)²). It has the
    form of U(j, γ_j)·j in Algorithm 4, with observed errors in place of expected ones. With the proved constants almost
    nothing would be ruled out, so `caution` replaces them.

    Parameters
    ----------
    seen : int
        Number j of rows so far.
    least : float
        Fewest errors of a concept.
    dimension : int, default 1
        VC dimension d.
    caution : float, default 1.0
        Factor of the bound; 0 keeps only the best concepts.
    """
    complexity = dimension * math.log1p(seen / dimension) + math.log(2 * math.log2(2 * seen) ** 2)
    share = caution * complexity
    return share + math.sqrt(share * least)


def blocks(transcript: Transcript, random_state: int) -> Iterator[Integers]:
    """Yield the rows in random order, in blocks that end after 1, 2, 4, … rows. Models are ruled out between blocks."""
    order = np.random.default_rng(random_state).permutation(transcript.rows)
    start, stop = 0, 1
    while start < transcript.rows:
        yield order[start:stop]
        start, stop = stop, 2 * stop


def by_version_space(
    transcript: Transcript,
    points: Array,
    concept_class: ConceptClass[Any],
    *,
    caution: float = CAUTION,
    random_state: int = 0,
) -> Chooser:
    """Ask only rows on which plausible concepts disagree. A concept is dropped once it makes too many errors.

    The candidates are the dichotomies of the public rows. All concepts with the same dichotomy make the same errors on
    these rows, so this is the version space of the whole class, restricted to them. Rows that all plausible concepts
    label alike are not asked; they get that label (`Transcript.implied`).

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 4 (disagreement-based
    active learning, from Hanneke, *Theory of Disagreement-Based Active Learning*), in the role that Algorithm 5 gives
    it. The version space shrinks after 1, 2, 4, … rows, as printed, so the rows in between are asked at once.
    """
    dichotomies = concept_class.dichotomies(points)
    if _count(dichotomies) > MOST_DICHOTOMIES:
        raise ValueError(
            f"public must have fewer rows: its {len(points)} have more than {MOST_DICHOTOMIES} labellings, too many to "
            'list; give fewer public rows, or queries="passive"'
        )
    return _by_version_space(transcript, points, dichotomies, caution=caution, random_state=random_state)


def _count(dichotomies: Dichotomies[Any]) -> float:
    try:
        return dichotomies.count
    except ValueError:  # too many to count
        return math.inf


def _by_version_space(
    transcript: Transcript, points: Array, dichotomies: Dichotomies[Any], *, caution: float, random_state: int
) -> Chooser:
    alive, seen = np.arange(dichotomies.count), 0
    dimension = dichotomies.concept_class.vc_dimension

    def votes(block: Integers) -> tuple[Array, Array]:
        """For each row, whether any plausible concept gives it 0, and whether any gives it 1."""
        ones = np.array([dichotomies.sums([1], at=points[row : row + 1])[alive] for row in block])
        return (ones == 0).any(axis=1), (ones == 1).any(axis=1)

    for block in blocks(transcript, random_state):
        zero, one = votes(block)
        disputed = zero & one
        transcript.implied[block[~disputed]] = one[~disputed]
        if bool(disputed.any()) and transcript.left > 0:
            yield block[disputed][: transcript.left]
            known, labels = transcript.known
            if len(known):
                errors = dichotomies.errors(labels, at=points[known])[alive]
                allowed = slack(seen + len(block), errors.min(), dimension=dimension, caution=caution)
                alive = alive[errors <= errors.min() + allowed]
        seen += len(block)


def by_ridge_disagreement(
    transcript: Transcript, points: Floats, *, classes: int, caution: float = CAUTION, random_state: int = 0
) -> Chooser:
    """Ask rows to which a linear model that fits nearly as well gives another label; squared loss, in closed form.

    With A = Σxxᵀ + ridge and scores f, the least extra loss of a model that swaps the two highest classes at x is
    (f₁ − f₂)²/(2·xᵀA⁻¹x). It fits nearly as well if that is at most `slack` times the average loss of a row.

    Source. Liu, Zhu, Chaudhuri, Wang, *Revisiting Model-Agnostic Private Learning*, Algorithm 4, by the reduction to
    an oracle that minimises errors (Beygelzimer, Hsu, Langford, Zhang, *Agnostic Active Learning Without Constraints*),
    here with squared errors.
    """
    seen = 0
    for block in blocks(transcript, random_state):
        known, labels = transcript.known
        disputed = np.ones(len(block), dtype=bool)
        if len(np.unique(labels)) > 1:
            model = Ridge(points[known], labels, classes)
            scores = model.scores(points[block])
            extra = lead(scores) ** 2 / (2 * model.leverage(points[block]))
            disputed = extra <= slack(seen, 0.0, caution=caution) * model.loss / len(known)
            transcript.implied[block[~disputed]] = scores[~disputed].argmax(axis=1)
        if bool(disputed.any()) and transcript.left > 0:
            yield block[disputed][: transcript.left]
        seen += len(block)


def by_oracle(
    transcript: Transcript,
    rows: Table,
    student: Any,
    *,
    classes: int,
    caution: float = CAUTION,
    random_state: int = 0,
) -> Chooser:
    """Ask rows to which a model that makes nearly as few errors gives another label; the student searches for it.

    The student is fitted to the labels so far. Then it is fitted again for each other label of the row in question,
    which has the weight of all labels together. If one of these fits gives the other label and makes at most `slack`
    more errors, the row is asked; otherwise it gets the label of the first fit. This takes one fit for every row and
    other class. While a student cannot learn from the labels so far, as nearest neighbours from too few rows, every row
    is asked.

    Source. As `by_ridge_disagreement`, for any student.
    """
    seen = 0
    for block in blocks(transcript, random_state):
        known, labels = transcript.known
        disputed = np.ones(len(block), dtype=bool)
        if len(np.unique(labels)) > 1:
            with suppress(Exception), silent():
                allowed = partial(slack, seen, caution=caution)
                disputed, answers = _disputed(student, rows, (known, labels), block, classes=classes, allowed=allowed)
                transcript.implied[block[~disputed]] = answers[~disputed]
        if bool(disputed.any()) and transcript.left > 0:
            yield block[disputed][: transcript.left]
        seen += len(block)


def _disputed(
    student: Any,
    rows: Table,
    given: tuple[Integers, Integers],
    block: Integers,
    *,
    classes: int,
    allowed: Callable[[float], float],
) -> tuple[Array, Integers]:
    """Which rows are disputed: a model that is nearly as good gives another label; and the labels of the best model."""
    known, labels = given
    first = clone(student).fit(take(rows, known), labels)
    answers = np.asarray(first.predict(take(rows, block)), dtype=np.int64)
    errors = int((first.predict(take(rows, known)) != labels).sum())  # a new copy: a step may work in place
    most = errors + allowed(errors)
    disputed = [
        any(_another(student, rows, given, row, other) <= most for other in range(classes) if other != answer)
        for row, answer in zip(block, answers, strict=True)
    ]
    return np.array(disputed), answers


def _another(student: Any, rows: Table, given: tuple[Integers, Integers], row: int, other: int) -> float:
    """The errors on known labels of a fit that is pushed to give `other` to a row; infinite if it does not."""
    known, labels = given
    times = len(known)
    if has_fit_parameter(student, "sample_weight"):
        indices, targets = np.append(known, row), np.append(labels, other)
        weights = np.append(np.ones(times), float(times))
        model = clone(student).fit(take(rows, indices), targets, sample_weight=weights)
    else:
        indices, targets = np.append(known, np.repeat(row, times)), np.append(labels, np.repeat(other, times))
        model = clone(student).fit(take(rows, indices), targets)
    if model.predict(take(rows, np.array([row])))[0] != other:
        return math.inf
    return float((model.predict(take(rows, known)) != labels).sum())


# ── a linear model to choose by ───────────────────────────────────────────────────────────────────────────────────


class Ridge:
    """Ridge regression on ±1 for every class, with a free intercept."""

    def __init__(self, points: Floats, labels: Integers, classes: int) -> None:
        rows = _with_constant(points)
        targets = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
        gram = rows.T @ rows + np.diag([*[RIDGE] * points.shape[1], 1e-9])
        self._inverse = np.linalg.inv(gram)
        self._weights = self._inverse @ (rows.T @ targets)
        self.loss = float(((rows @ self._weights - targets) ** 2).sum())

    def scores(self, points: Floats) -> Floats:
        """Return a score for every class, one row per point."""
        return np.asarray(_with_constant(points) @ self._weights)

    def leverage(self, points: Floats) -> Floats:
        """Return xᵀA⁻¹x: how much the score of a point moves per unit of squared loss."""
        rows = _with_constant(points)
        return np.asarray(np.maximum(((rows @ self._inverse) * rows).sum(axis=1), 1e-12))


def _with_constant(points: Floats) -> Floats:
    return np.column_stack([points, np.ones(len(points))])


def lead(scores: Floats) -> Floats:
    """Return by how much the highest score of each row leads the second highest."""
    top = np.partition(scores, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])
