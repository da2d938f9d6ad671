"""Rows and queries of the settings that advice is measured on: made up, or read from a folder of data sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from experiments import advise_made_up, datasets
from experiments.advise_settings import BITS, Setting
from experiments.advise_tables import READERS, cells, csr, folded, from_0_to_1, numbers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Data(NamedTuple):
    """Private rows, public rows without labels, and queries in the order in which they are asked."""

    X: Any
    y: Integers
    public: Any
    queries: Any
    truth: Integers


def made(setting: Setting, folder: Path, seed: int) -> Data:
    """Rows and queries of a setting; queries of a data set are drawn, again and again, from the rows left over."""
    generator = np.random.default_rng(seed)
    kind, _, turn = setting.data.partition(" ")
    if kind in MADE_UP:
        total = setting.rows + setting.public_rows + setting.asked
        X, y = MADE_UP[kind](generator, total, setting, float(turn or 0))
        order: Any = np.arange(total)
    else:
        X, y = _read(setting.data, folder)
        order = np.arange(len(y)) if setting.in_order else generator.permutation(len(y))
        left = order[setting.rows + setting.public_rows :]
        if not setting.in_order:
            left = left[generator.integers(0, len(left), setting.asked)]
        order = np.concatenate([order[: setting.rows + setting.public_rows], left[: setting.asked]])
    private, public, asked = np.split(order, [setting.rows, setting.rows + setting.public_rows])
    return Data(X[private], y[private], X[public], X[asked], y[asked])


def _linear(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> tuple[Floats, Integers]:
    """Gaussian rows, and labels that follow a linear score but for a tenth of them or so."""
    X = generator.normal(size=(rows, setting.features))
    direction = np.random.default_rng(0).normal(size=setting.features)
    score = 4 * X @ direction / np.linalg.norm(direction)
    return X, (generator.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)


def _thresholds(generator: np.random.Generator, rows: int, _: Setting, __: float) -> tuple[Integers, Integers]:
    X = generator.integers(0, 1 << BITS, size=(rows, 1))
    return X, (X[:, 0] < 0.3 * (1 << BITS)).astype(np.int64)


def turning_clusters(
    generator: np.random.Generator, rows: int, setting: Setting, turn: float
) -> tuple[Floats, Integers]:
    """Clusters in two columns that turn by some degrees while twice as many queries as rows are asked."""
    y = generator.integers(0, 2, rows)
    answered = np.maximum(0, np.arange(rows) - setting.rows)
    angle = np.minimum(np.pi, np.radians(turn) * answered / (2 * setting.rows))
    centre = 2 * np.column_stack([np.cos(angle), np.sin(angle)])
    X = generator.normal(size=(rows, setting.features))
    X[:, :2] += (2 * y - 1)[:, None] * centre
    return X, y


def _rings(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> tuple[Floats, Integers]:
    """The label says whether the first two columns are in every other ring."""
    X = generator.uniform(-2, 2, size=(rows, setting.features))
    return X, (np.floor(2 * np.hypot(X[:, 0], X[:, 1])) % 2).astype(np.int64)


def _boxes(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> tuple[Floats, Integers]:
    """Rows of a cube, in which every box of half the edge in the first four columns has a label of its own."""
    X = generator.random((rows, setting.features))
    return X, np.random.default_rng(0).integers(0, 2, 16)[(X[:, :4] > 0.5) @ (1 << np.arange(4))]


def _waves(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> tuple[Floats, Integers]:
    """The label says on which side of a wave a row lies."""
    X = generator.uniform(-2, 2, size=(rows, setting.features))
    return X, (X[:, 0] > np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] / 2).astype(np.int64)


def _scales(generator: np.random.Generator, rows: int, setting: Setting, _: float) -> tuple[Floats, Integers]:
    """The same as linear, but the scales of the columns go from 1 to a million."""
    X, y = _linear(generator, rows, setting, 0)
    return X * np.geomspace(1, 1e6, setting.features), y


MADE_UP: dict[str, Callable[..., tuple[Any, Integers]]] = {
    "linear": _linear,
    "scales": _scales,
    "thresholds": _thresholds,
    "clusters": turning_clusters,
    "rings": _rings,
    "boxes": _boxes,
    "waves": _waves,
    **advise_made_up.MADE_UP,
}


@lru_cache(maxsize=1)
def _read(name: str, folder: Path) -> tuple[Any, Integers]:  # noqa: PLR0911 (one case per kind of file)
    """A data set, with columns scaled by ranges that are taken to be public unless they are raw."""
    if name in READERS:
        return READERS[name](folder)
    kind, _, part = name.partition(" ")
    if kind in TARGETS:
        table, (target, one) = cells(kind, folder), TARGETS[kind]
        return numbers(table, (target, *NO_FEATURES)), np.array([each == one for each in table[target]], dtype=np.int64)
    if kind == "flights3m":
        with np.load(folder / "flights3m.npz") as file:
            columns = [file[each][::20] for each in ("month", "dow", "day", "hour", "minute", "distance")]
            return np.column_stack(columns).astype(np.float64), (file["y"][::20] > 0).astype(np.int64)
    if kind in ("covtype", "donors", "elec2", "mnist_parity", "skin"):
        with np.load(folder / ("skin_nonskin.npz" if kind == "skin" else f"{kind}.npz")) as file:
            X, y = file["X"].astype(np.float64), (file["y"] > 0).astype(np.int64)
        if part:
            return X[:, :10] if part == "numbers" else X, y
        return from_0_to_1(X), y
    if kind in ("phishing", "w8a"):
        rows, y = load_svmlight_file(str(folder / f"{kind}.svm.bz2"), n_features=68 if kind == "phishing" else 300)
        return rows.toarray(), (y > 0).astype(np.int64)
    if kind in ("bank_additional", "nycflights13"):
        rows, y = _csr(kind, folder)
        return rows.toarray(), y
    if kind in WORDS:
        rows, y = _csr(kind, folder)
        return folded(rows, 256), y
    rows, y = datasets.load(kind, folder)
    if part == "rare":  # one positive in a hundred
        positives, negatives = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        some = np.sort(np.concatenate([negatives, positives[: len(negatives) // 99]]))
        rows, y = rows[some], y[some]
    return rows.toarray().astype(np.float32), y


WORDS = ("agnews_sports", "enron_spam", "imdb", "phishing_urls", "spamassassin")
TARGETS = {"adult": ("income", ">50K"), "bank": ("y", "yes"), "meps": ("HIGH_USE", "yes")}  # of raw tables, and label 1
NO_FEATURES = ("FAMILY",)


def _csr(name: str, folder: Path) -> tuple[Any, Integers]:
    with np.load(folder / f"{name}.npz") as file:
        return csr(file), (file["y"] > 0).astype(np.int64)
