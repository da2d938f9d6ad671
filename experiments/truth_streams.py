"""Streams in order of time for `truth`: rows, true labels, and how often answers to them are right.

Row norms are those of the longest row of the whole set, and columns of dense sets are scaled by their range over all
rows; both are taken to be public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

from experiments.private_linear_data import Integers, longest, rows_of

SETTLED = 2  # windows that are not counted
DRAWN, COLUMNS, SLOPE = 200_000, 10, 3.0  # of streams that are made up
SHIFT = 2.5  # of rare positives
FLIGHTS, CONNECTIONS = 1_000_000, 494_021  # rows of flights3m and of kdd99
STEPS = 40  # parts of a stream whose accuracy is plotted
REAL = ("elec2", "covtype", "nycflights13", "flights3m")
MADE_UP = ("rotate", "flip", "recur", "stationary", "rare")
HELD_OUT = ("kdd99", "bank_additional")  # nothing was set on them


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in order of time, their labels 0 and 1, and the public length to which longer rows are scaled down."""

    X: Any
    y: Integers
    row_norm: float

    def first(self, rows: int | None) -> Stream:
        """The first rows of it, or all."""
        return self if rows is None else replace(self, X=self.X[:rows], y=self.y[:rows])


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=1)
def stream(name: str, folder: Path, *, seed: int = 0) -> Stream:
    """A stream by its name: made up, or a data set in the order of its file.

    Parameters
    ----------
    name : str
        One of `MADE_UP`, or a data set.
    folder : Path
        The folder with the data sets.
    seed : int, default 0
        Draws what is made up.
    """
    if name in MADE_UP:
        return _rare(seed) if name == "rare" else _turning(name, seed)
    if not (folder / f"{name}.npz").is_file():
        raise FileNotFoundError(f"there is no file {name}.npz in {folder}")
    X, y = _flights(folder) if name == "flights3m" else rows_of(name, folder)
    found = Stream(X, (y == y.max()).astype(np.int64), longest(X))
    return found.first(CONNECTIONS) if name == "kdd99" else found


def _turning(name: str, seed: int) -> Stream:
    """Normal columns, and logistic labels along a direction that moves."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(DRAWN, COLUMNS))
    frame = np.linalg.qr(generator.normal(size=(COLUMNS, 3)))[0].T  # three directions at right angles
    at = np.arange(DRAWN) / DRAWN
    directions = np.repeat(frame[:1], DRAWN, axis=0)
    if name == "rotate":
        directions = np.cos(np.pi * at)[:, None] * frame[0] + np.sin(np.pi * at)[:, None] * frame[1]
    elif name == "flip":
        directions[at >= 0.4] *= -1
    elif name == "recur":
        directions = frame[(at * 12).astype(np.int64) % 3]
    score = SLOPE * (X * directions).sum(axis=1)
    return Stream(X, (generator.random(DRAWN) < expit(score)).astype(np.int64), 5.0)


def _rare(seed: int) -> Stream:
    """Few positives, which are shifted; after 40 % of the stream there are more, shifted otherwise."""
    generator = np.random.default_rng(seed)
    late = np.arange(DRAWN) >= 0.4 * DRAWN
    y = (generator.random(DRAWN) < np.where(late, 0.05, 0.005)).astype(np.int64)
    frame = np.linalg.qr(generator.normal(size=(COLUMNS, 2)))[0].T
    X = generator.normal(size=(DRAWN, COLUMNS)) + SHIFT * y[:, None] * frame[late.astype(np.int64)]
    return Stream(X, y, 5.0)


def _flights(folder: Path) -> tuple[Any, Integers]:
    """The first flights by time: one-hot month, weekday, hour, origin and destination; distance."""
    with np.load(folder / "flights3m.npz") as file:
        time = np.lexsort([file[name] for name in ("minute", "hour", "day", "month")])[:FLIGHTS]
        parts: list[Any] = []
        for column in ("month", "dow", "hour", "origin", "dest"):
            values = file[column].astype(np.int64)
            values -= values.min()
            size = (len(time), int(values.max()) + 1)
            parts.append(sparse.csr_matrix((np.ones(len(time)), (np.arange(len(time)), values[time])), shape=size))
        parts.append(sparse.csr_matrix(file["distance"][time].astype(np.float64)[:, None] / 5000))
        return sparse.hstack(parts).tocsr(), file["y"][time].astype(np.int64)


# ── how often answers are right ───────────────────────────────────────────────────────────────────────────────────


def counted(rows: int) -> slice:
    """The places that count: from the third window on, after the window that is learned from first.

    Parameters
    ----------
    rows : int
        The rows of a window.
    """
    return slice((SETTLED + 1) * rows, None)


def scores(got: Integers, y: Integers, rows: int) -> list[float]:
    """Accuracy and balanced accuracy of the answers from the third window on.

    Parameters
    ----------
    got, y : array of int
        The answers, and the true labels.
    rows : int
        The rows of a window.
    """
    right, of = got[counted(rows)] == y[counted(rows)], y[counted(rows)]
    return [round(float(right.mean()), 5), round(float(np.mean([right[of == one].mean() for one in np.unique(of)])), 5)]


def curve(got: Integers, y: Integers, rows: int) -> list[float]:
    """Accuracies on equal parts of what counts.

    Parameters
    ----------
    got, y, rows
        As for `scores`.
    """
    right = got[counted(rows)] == y[counted(rows)]
    return [float(part.mean()) for part in np.array_split(right, STEPS)]
