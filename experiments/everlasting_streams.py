"""Streams of queries that predictors are followed on: made up, or the rows of a data set in some order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from sklearn.linear_model import LogisticRegression

from experiments import datasets
from experiments.table import Table

Array = NDArray[Any]
Labels = NDArray[np.int64]

BATCH = 1_000_000  # queries in one call of `predict`
SLOPE = 3.0  # of the logistic labels along the direction


class Stream(Protocol):
    """Rows to learn from, and then queries in their order."""

    def rows(self, generator: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """Labelled rows for the first phase.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        """

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        """The next queries and their true labels; `at` says which share of the stream has gone by.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        at : float
            The share of the stream that has gone by, in [0, 1].
        """


@dataclass(frozen=True)
class Line:
    """Uniform points, of 2^bits whole numbers or of [0, 1); the label is 1 below 0.3 of them."""

    bits: int | None = None

    def rows(self, generator: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """Uniform points, and on which side of the threshold they are.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        """
        if self.bits is None:
            X: Array = generator.random((count, 1), dtype=np.float32)
            return X, (X[:, 0] < np.float32(0.3)).astype(np.int64)
        X = generator.integers(0, 1 << self.bits, (count, 1))
        return X, (X[:, 0] < 0.3 * (1 << self.bits)).astype(np.int64)

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        """Points like those of `rows`.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        at : float
            The share of the stream that has gone by, in [0, 1].
        """
        return self.rows(generator, count)


@dataclass(frozen=True)
class Halfspace:
    """Independent normal columns; the label is 1 with probability 1/(1 + e^(−3s)), s along a fixed direction."""

    columns: int = 20

    @property
    def direction(self) -> Array:
        """Of length 1."""
        drawn = np.random.default_rng(self.columns).normal(size=self.columns)
        return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.float32)

    @property
    def best(self) -> float:
        """The accuracy of the best classifier, by the trapezoidal rule."""
        heights = np.linspace(-9, 9, 20_001)
        return float(np.average(expit(SLOPE * np.abs(heights)), weights=np.exp(-(heights**2) / 2)))

    def rows(self, generator: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """Rows, and on which side of a plane they are.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        """
        X = generator.standard_normal((count, self.columns), dtype=np.float32)
        chance = expit(SLOPE * (X @ self.direction))
        return X, (generator.random(count, dtype=np.float32) < chance).astype(np.int64)

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        """Rows like those of `rows`.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        at : float
            The share of the stream that has gone by, in [0, 1].
        """
        return self.rows(generator, count)


@dataclass(frozen=True)
class Clusters:
    """Two round clusters at (cos θ, sin θ) and its opposite; θ goes from 0 to `turn` degrees over the stream."""

    turn: float = 180.0
    spread: float = 0.45

    @property
    def best(self) -> float:
        """The accuracy of the best classifier."""
        return float(ndtr(1 / self.spread))

    def rows(self, generator: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """Rows before anything turns.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        """
        return self._drawn(generator, count, 0.0)

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        """Queries from where the clusters are now.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        at : float
            The share of the stream that has gone by, in [0, 1].
        """
        return self._drawn(generator, count, at)

    def _drawn(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        angle = np.deg2rad(self.turn * at)
        y = generator.integers(0, 2, count)
        centres = (2 * y - 1)[:, None] * np.array([np.cos(angle), np.sin(angle)])
        return (centres + generator.normal(0, self.spread, (count, 2))).astype(np.float32), y


class Checkers:
    """Uniform points of a square of 2 × 2 fields, in 4 columns, of which the last two are noise: no line tells them."""

    best = 0.95

    def rows(self, generator: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """Rows, 5 % of whose labels are wrong.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        """
        X = generator.random((count, 4), dtype=np.float32)
        right = (X[:, 0] > np.float32(0.4)) ^ (X[:, 1] > np.float32(0.6))
        return X, (right ^ (generator.random(count) < 0.05)).astype(np.int64)

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        """Rows like those of `rows`, with their true labels.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        at : float
            The share of the stream that has gone by, in [0, 1].
        """
        return self.rows(generator, count)


class Recorded:
    """The rows of a data set: the first ones to learn from, the others as queries, in order or drawn at random."""

    def __init__(self, X: Array, y: Labels, private: int, *, ordered: bool) -> None:
        self.X, self.y, self.private, self.ordered = X, y, private, ordered
        self._next = private

    @property
    def left(self) -> int:
        """How many rows are no training rows."""
        return len(self.y) - self.private

    def rewind(self) -> None:
        """Begin again with the first query."""
        self._next = self.private

    def rows(self, generator: np.random.Generator, count: int) -> tuple[Array, Labels]:
        """The first rows.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        """
        return self.X[:count], self.y[:count]

    def queries(self, generator: np.random.Generator, count: int, at: float) -> tuple[Array, Labels]:
        """The next rows, or any of the rest with replacement.

        Parameters
        ----------
        generator : numpy.random.Generator
            Draws the rows.
        count : int
            The number of rows.
        at : float
            The share of the stream that has gone by, in [0, 1].
        """
        if self.ordered:
            self._next += count
            return self.X[self._next - count : self._next], self.y[self._next - count : self._next]
        drawn = self.private + generator.integers(0, self.left, count)
        return self.X[drawn], self.y[drawn]


def recorded(name: str, folder: Path, share: float, *, ordered: bool) -> Recorded:
    """A data set of dense rows, each column scaled to [0, 1] by its published range.

    In order they are as the file has them; else they are shuffled first.

    Parameters
    ----------
    name : str
        The name of the data set.
    folder : Path
        The folder with the files of the data sets.
    share : float
        The share of the rows that the first phase may have.
    ordered : bool
        Whether rows come in the order of the file.
    """
    if name in datasets.DATA_SETS:
        sparse_rows, y = datasets.load(name, folder)
        X = sparse_rows.astype(np.float32).toarray()
    else:
        path = folder / f"{name}.npz"
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path.name} in {folder}")
        with np.load(path) as file:
            X, y = file["X"].astype(np.float32), (file["y"] > 0).astype(np.int64)
    low, high = X.min(axis=0), X.max(axis=0)
    X = (X - low) / np.where(high > low, high - low, 1)
    if not ordered:
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    return Recorded(np.ascontiguousarray(X, dtype=np.float32), y, int(share * len(y)), ordered=ordered)


# ── those who answer ──────────────────────────────────────────────────────────────────────────────────────────────


class Retrained:
    """Not private: retrains on the true labels of the last `window` queries, after each `window` of them."""

    def __init__(self, X: Array, y: Labels, window: int) -> None:
        self.window = window
        self.model = LogisticRegression(C=100, max_iter=1000).fit(X, y)
        self._seen: list[tuple[Array, Labels]] = []

    def predict(self, X: Array) -> Labels:
        """The labels that the present model gives.

        Parameters
        ----------
        X : array
            The queries.
        """
        return np.asarray(self.model.predict(X), dtype=np.int64)

    def tell(self, X: Array, y: Labels) -> None:
        """Take the true labels of what was asked.

        Parameters
        ----------
        X : array
            The queries.
        y : array of int
            Their true labels.
        """
        self._seen.append((X, y))
        if sum(len(labels) for _, labels in self._seen) >= self.window:
            rows, labels = (np.concatenate(parts) for parts in zip(*self._seen, strict=True))
            self._seen = []
            if len(np.unique(labels)) == 2:
                self.model = LogisticRegression(C=100, max_iter=1000).fit(rows, labels)


class UntilSpent:
    """Teachers that answer a finite number of queries; after that a student of these answers, which never changes."""

    def __init__(self, predictor: Any, answers: int) -> None:
        self.predictor, self.left = predictor, answers
        self._seen: list[tuple[Array, Labels]] = []
        self.student: LogisticRegression | None = None

    def predict(self, X: Array) -> Labels:
        """Labels of the teachers as long as there are any, then of the student.

        Parameters
        ----------
        X : array
            The queries.
        """
        some = X[: self.left]
        found = np.empty(0, dtype=np.int64)
        if len(some):
            found = np.asarray(self.predictor.predict(some), dtype=np.int64)
            self._seen.append((some, found))
            self.left -= len(some)
        if len(some) == len(X):
            return found
        if self.student is None:
            rows, labels = (np.concatenate(parts) for parts in zip(*self._seen, strict=True))
            self.student = LogisticRegression(C=100, max_iter=1000).fit(rows, labels)
        return np.concatenate([found, np.asarray(self.student.predict(X[len(some) :]), dtype=np.int64)])


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Piece(NamedTuple):
    """What came of queries that one phase answered."""

    phase: int
    rows: int
    teachers: int
    asked: int
    right: int
    reference: int | None  # right by a model that is not private, if there is one


def ask(
    model: Any,
    stream: Stream,
    total: int,
    *,
    seed: int,
    batch: int = BATCH,
    reference: Any = None,
    phases: int | None = None,
    title: str = "",
) -> Iterator[Piece]:
    """Ask a model a number of queries of a stream, or until it has finished some phases; all are answered.

    Parameters
    ----------
    model : object
        The fitted model.
    stream : Stream
        Where queries come from.
    total : int
        The number of queries.
    seed : int
        The seed of the queries.
    batch : int, default BATCH
        The number of queries of a call.
    reference : object, default None
        A model that is not private, asked the same queries.
    phases : int or None, default None
        The number of phases after which to stop.
    title : str, default ''
        What a progress bar shows; no bar if empty.
    """
    generator = np.random.default_rng(seed)
    done = 0
    with _Progress(title, total) as advance:
        while done < total:
            now = getattr(model, "phase", None)
            if phases is not None and now is not None and now.number > phases:
                return
            size = min(batch - done % batch, total - done)
            if now is not None:
                size = min(size, max(1, model.answers_left_in_phase_))  # one more than none says why there is none
            X, y = stream.queries(generator, size, done / total)
            right = np.asarray(model.predict(X)) == y
            other = None if reference is None else reference.predict(X) == y
            if hasattr(model, "tell"):
                model.tell(X, y)
            done += size
            advance(size)
            # A phase that closes early hands the last queries of a call on to the next one.
            late = 0 if now is None or model.phase.number == now.number else _asked(model)
            for phase, part in ((now, slice(size - late)), (getattr(model, "phase", None), slice(size - late, size))):
                if len(right[part]):
                    yield _piece(phase, right[part], None if other is None else other[part])


def _piece(phase: Any, right: Array, other: Array | None) -> Piece:
    number, rows, teachers = (1, 0, 0) if phase is None else (phase.number, phase.rows, phase.teachers)
    return Piece(number, rows, teachers, len(right), int(right.sum()), None if other is None else int(other.sum()))


def _asked(model: Any) -> int:
    """How many queries the present phase has answered."""
    return int(model.phase.queries - model.answers_left_in_phase_)


def by_phase(pieces: Iterator[Piece]) -> list[dict[str, Any]]:
    """The pieces of each phase together.

    Parameters
    ----------
    pieces : iterator of Piece
        The answers of a model, as `ask` yields them.
    """
    found: dict[int, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.phase, []).append(piece)
    return [_summed_up(some) for some in found.values()]


def _summed_up(some: list[Piece]) -> dict[str, Any]:
    asked = sum(piece.asked for piece in some)
    beside = [piece.reference for piece in some if piece.reference is not None]
    found: dict[str, Any] = {
        "phase": some[0].phase,
        "rows": some[0].rows,
        "teachers": some[0].teachers,
        "answered": asked,
        "accuracy": rounded(sum(piece.right for piece in some) / asked),
    }
    return found | ({"non-private": rounded(sum(beside) / asked)} if beside else {})


def by_time(pieces: Iterator[Piece], total: int, steps: int) -> list[float]:
    """Accuracies on each of some equal parts of a stream; calls must not straddle them.

    Parameters
    ----------
    pieces : iterator of Piece
        The answers of a model, as `ask` yields them.
    total : int
        The number of queries.
    steps : int
        The number of parts.
    """
    right, asked = np.zeros(steps), np.zeros(steps)
    done = 0
    for piece in pieces:
        step = min(steps - 1, done * steps // total)
        right[step] += piece.right
        asked[step] += piece.asked
        done += piece.asked
    return [rounded(each) for each in right / np.maximum(asked, 1)]


def rounded(share: float) -> float:
    """A number with five decimals, which is what is kept.

    Parameters
    ----------
    share : float
        The number.
    """
    return round(float(share), 5)


class _Progress:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, title: str, total: int) -> None:
        from rich.progress import Progress

        self._bar = Progress(disable=not os.isatty(2), transient=True)
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> Any:
        self._bar.start()
        return lambda size: self._bar.advance(self._task, size)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def tables() -> list[Table]:
    """What the made-up streams are."""
    half, clusters = Halfspace(), Clusters()
    return [
        Table(
            "Streams",
            ("stream", "rows", "label", "best accuracy"),
            (
                ("line", "uniform, one column", "1 below 0.3", "1"),
                ("half-space", f"independent normal, {half.columns} columns", "1 with probability 1/(1 + e^(−3s)), s "
                 "along a fixed direction", f"{half.best:.4f}"),
                ("clusters", f"two round clusters at ±(cos θ, sin θ), spread {clusters.spread:g}; θ turns", "the "
                 "cluster", f"{clusters.best:.4f}"),
                ("checkers", "uniform, four columns", "whether one of x₁ > 0.4 and x₂ > 0.6 holds but not both, 5 % "
                 "wrong", f"{Checkers.best:.2f}"),
            ),
        )
    ]  # fmt: skip
