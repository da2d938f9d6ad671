"""Rows of the streams that advice is measured on: made up, or a data set in the order of its file."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from experiments import truth_streams
from experiments.advise_streams import StreamSetting

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = tuple[Floats, Integers]
SLOPE = 3.0  # of the logistic labels of a boundary: the best model is right for 83 of 100 rows


class StreamData(NamedTuple):
    """Rows of day one, queries with their true labels in order of time, and a public length of rows."""

    X: Any
    y: Integers
    queries: Any
    truth: Integers
    row_norm: float


def made(setting: StreamSetting, folder: Path, seed: int) -> StreamData:
    """The stream of a setting."""
    kind, *numbers = setting.data.split()
    total = setting.rows + setting.asked
    if kind in MADE_UP:
        at = np.maximum(0, np.arange(total) - setting.rows) / setting.asked  # 0 on day one, and then time from 0 to 1
        X, y = MADE_UP[kind](np.random.default_rng(seed), at, setting, *map(float, numbers))
        row_norm = 1.6 * float(np.sqrt(setting.features)) + (2.0 if kind in APART else 0.0)
    else:
        X, y, row_norm = _read(kind, int(numbers[0]), "shuffled" in numbers, folder)
    if len(y) < total or X.shape[1] != setting.features:
        raise ValueError(f"{setting.name} needs {total} rows of {setting.features} columns, got {X.shape}")
    first, later = slice(0, setting.rows), slice(setting.rows, total)
    return StreamData(X[first], y[first], X[later], y[later], row_norm)


@lru_cache(maxsize=1)
def _read(name: str, every: int, shuffled: bool, folder: Path) -> tuple[Any, Integers, float]:
    """Every n-th row of a data set, in the order of its file, with its longest row over all."""
    found = truth_streams.stream(name, folder)
    order = np.arange(len(found.y))
    if shuffled:
        order = np.random.default_rng(0).permutation(order)
    X = found.X[order[::every]]
    return (X.toarray() if sparse.issparse(X) else X).astype(np.float32), found.y[order[::every]], found.row_norm


# ── boundaries that move among classes that overlap ───────────────────────────────────────────────────────────────


def _frame(generator: np.random.Generator, columns: int, count: int) -> Floats:
    """Directions at right angles."""
    return np.asarray(np.linalg.qr(generator.normal(size=(columns, count)))[0].T)


def _labelled(generator: np.random.Generator, X: Floats, directions: Floats) -> Rows:
    return X, (generator.random(len(X)) < expit(SLOPE * (X * directions).sum(axis=1))).astype(np.int64)


def _normal(generator: np.random.Generator, at: Floats, setting: StreamSetting) -> Floats:
    return generator.normal(size=(len(at), setting.features))


def _stationary(generator: np.random.Generator, at: Floats, setting: StreamSetting) -> Rows:
    """A boundary that stays."""
    frame = _frame(generator, setting.features, 1)
    return _labelled(generator, _normal(generator, at, setting), np.repeat(frame, len(at), axis=0))


def _rotate(generator: np.random.Generator, at: Floats, setting: StreamSetting, degrees: float) -> Rows:
    """A boundary that turns by some degrees in all."""
    frame, angle = _frame(generator, setting.features, 2), np.radians(degrees) * at[:, None]
    directions = np.cos(angle) * frame[0] + np.sin(angle) * frame[1]
    return _labelled(generator, _normal(generator, at, setting), directions)


def _flip(generator: np.random.Generator, at: Floats, setting: StreamSetting, when: float) -> Rows:
    """Labels swap at once."""
    frame = _frame(generator, setting.features, 1)
    return _labelled(generator, _normal(generator, at, setting), np.where(at < when, 1, -1)[:, None] * frame)


def _recur(generator: np.random.Generator, at: Floats, setting: StreamSetting, spells: float) -> Rows:
    """Three boundaries in turn."""
    frame = _frame(generator, setting.features, 3)
    return _labelled(generator, _normal(generator, at, setting), frame[(at * spells).astype(np.int64) % 3])


def _redrawn(generator: np.random.Generator, at: Floats, setting: StreamSetting, spells: float) -> Rows:
    """A new boundary in every spell, at random."""
    drawn = generator.normal(size=(int(spells) + 1, setting.features))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return _labelled(generator, _normal(generator, at, setting), drawn[(at * spells).astype(np.int64)])


def _curve(generator: np.random.Generator, at: Floats, setting: StreamSetting) -> Rows:
    """Inputs move along a curved boundary that stays."""
    X = _normal(generator, at, setting)
    X[:, 1] = 0.7 * X[:, 1] + 4 * at - 2
    score = 2 * SLOPE * (X[:, 0] - X[:, 1] ** 2 / 2 + 0.5)
    return X, (generator.random(len(at)) < expit(score)).astype(np.int64)


def _priors(generator: np.random.Generator, at: Floats, setting: StreamSetting) -> Rows:
    """The share of positives grows from a tenth to seven tenths; what they look like stays."""
    y = (generator.random(len(at)) < 0.1 + 0.6 * at).astype(np.int64)
    return _normal(generator, at, setting) + 1.5 * y[:, None] * _frame(generator, setting.features, 1), y


# ── classes that stay well apart ──────────────────────────────────────────────────────────────────────────────────


def _clusters(generator: np.random.Generator, at: Floats, setting: StreamSetting, turn: float) -> Rows:
    """Two clusters that turn around each other, by some degrees while twice as many queries as rows are asked."""
    y = generator.integers(0, 2, len(at))
    angle = np.minimum(np.pi, np.radians(turn) * at * setting.asked / (2 * setting.rows))
    X = _normal(generator, at, setting)
    X[:, :2] += (2 * y - 1)[:, None] * 2 * np.column_stack([np.cos(angle), np.sin(angle)])
    return X, y


def _newcomers(generator: np.random.Generator, at: Floats, setting: StreamSetting) -> Rows:
    """Two clusters; after four tenths, half of the positives come from the other side of the negatives."""
    y = generator.integers(0, 2, len(at))
    new = (at >= 0.4) & (generator.random(len(at)) < 0.5) & (y == 1)
    X = _normal(generator, at, setting)
    X[:, 0] += 2 * (2 * y - 1) * ~new
    X[new, 0] -= 2
    X[new, 1] += 4
    return X, y


APART = ("clusters", "newcomers")
MADE_UP: dict[str, Callable[..., Rows]] = {
    "stationary": _stationary,
    "rotate": _rotate,
    "flip": _flip,
    "recur": _recur,
    "redrawn": _redrawn,
    "curve": _curve,
    "priors": _priors,
    "clusters": _clusters,
    "newcomers": _newcomers,
}
