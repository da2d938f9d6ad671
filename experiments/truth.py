"""A chain of private models that learns from the truth as it comes: accuracy on streams in order of time.

The first phase trains on m rows. Every next window of m rows is answered by the last model; then its labels arrive, one
row in ten is left for the gauge, and the others train the next model, which starts from the last one. ε = 1, δ = 10⁻⁶
for every row. Accuracy is that of all answers from the third window on. Row norms are those of the longest row of the
whole set, and columns of dense sets are scaled by their range over all rows; both are taken to be public.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone

from experiments.private_linear_data import Integers, longest, rows_of
from reticent.learners import PrivateLogisticRegression
from reticent.learners.phase_rules import continuation, phase_rows

Array = NDArray[Any]

DP: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
GAUGE = 10  # one row of this many is left for the gauge
SETTLED = 2  # windows that are not counted
DRAWN, COLUMNS, SLOPE = 200_000, 10, 3.0  # of streams that are made up
SHIFT = 2.5  # of rare positives
FLIGHTS = 1_000_000
MADE_UP = ("rotate", "flip", "recur", "stationary", "rare")


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in order of time, their labels 0 and 1, and the public length to which longer rows are scaled down."""

    X: Any
    y: Integers
    row_norm: float


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
    X, y = _flights(folder) if name == "flights3m" else rows_of(name, folder)
    return Stream(X, (y == y.max()).astype(np.int64), longest(X))


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


# ── the chain ─────────────────────────────────────────────────────────────────────────────────────────────────────


def answers(learner: PrivateLogisticRegression, found: Stream, rows: int) -> Integers:
    """What a chain of truth answers to each row of a stream; −1 for the rows of the first phase.

    Parameters
    ----------
    learner : PrivateLogisticRegression
        The learner of the first phase, with `classes` 0 and 1.
    found : Stream
        The stream.
    rows : int
        The number of labelled rows of a phase.
    """
    got, training = np.full(len(found.y), -1), np.flatnonzero(np.arange(rows) % GAUGE)
    model = learner.fit_class_indices(found.X[:rows], found.y[:rows], None)
    for phase, first in enumerate(range(rows, len(found.y), rows), 2):
        X, y = found.X[first : first + rows], found.y[first : first + rows]
        got[first : first + rows] = model.predict(X)
        if len(y) == rows:
            changed = continuation(learner, model, phase=phase, rows=len(training), columns=X.shape[1])
            model = clone(learner).set_params(**changed).fit_class_indices(X[training], y[training], None)
    return got


def accuracies(got: Integers, y: Integers, rows: int) -> tuple[float, float]:
    """Accuracy and balanced accuracy of the answers from the third window on."""
    counted = slice((SETTLED + 1) * rows, None)
    right, of = got[counted] == y[counted], y[counted]
    return float(right.mean()), float(np.mean([right[of == each].mean() for each in np.unique(of)]))


def measured(name: str, folder: Path, *, seed: int = 0, **parameters: Any) -> tuple[float, float]:
    """Accuracy and balanced accuracy of a chain of truth on a stream, with the sizes that rules give.

    Parameters
    ----------
    name, folder, seed
        As for `stream`.
    **parameters
        Of the learner.
    """
    found = stream(name, folder, seed=seed)
    learner = PrivateLogisticRegression(**DP | {"row_norm": found.row_norm, "classes": [0, 1]} | parameters)
    rows = phase_rows(learner, found.X.shape[1])
    return accuracies(answers(learner, found, rows), found.y, rows)
