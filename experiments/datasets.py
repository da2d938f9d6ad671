"""Data sets that experiments measure on: read from a folder that the caller names, never fetched, never copied."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from experiments.table import Table
from reticent.exact import integer

FOLDER = "RETICENT_DATA"  # the environment variable that names the folder where no path is given

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class DataSet:
    """Two classes, rows of numbers, and the files that hold them: svmlight text, or the arrays of a CSR matrix."""

    files: tuple[str, ...]
    rows: int
    columns: int
    one: str  # what the label 1 means
    ones: float  # its share
    filled: int  # numbers other than 0 in a row, about
    origin: str

    def read(self, folder: Path) -> tuple[Any, Labels]:
        """The rows as a CSR matrix and their labels, 0 or 1.

        Parameters
        ----------
        folder : Path
            The folder with the files of the data sets.
        """
        from sklearn.datasets import load_svmlight_files

        paths = [folder / name for name in self.files]
        if self.files[0].endswith(".npz"):
            with np.load(paths[0]) as file:
                parts = (file["data"].astype(np.float64), file["indices"].astype(np.int32), file["indptr"])
                rows, y = sparse.csr_matrix(parts, shape=tuple(file["shape"])), file["y"]
        else:
            read = load_svmlight_files([str(path) for path in paths], n_features=self.columns)
            rows, y = sparse.vstack(read[::2]).tocsr(), np.concatenate(read[1::2])
        if rows.shape != (self.rows, self.columns):
            raise ValueError(
                f"{', '.join(self.files)} in {folder} must hold {self.rows:,} rows of {self.columns:,} columns, "
                f"got {rows.shape[0]:,} of {rows.shape[1]:,}: this is another data set"
            )
        return rows, (y == y.max()).astype(np.int64)


DATA_SETS = {
    "a9a": DataSet(
        ("a9a.svm.bz2", "a9a.t.svm.bz2"), 48_842, 123, "an income above $50,000", 0.239, 14,
        "UCI Adult as LIBSVM has it, training and test part",
    ),
    "mushrooms": DataSet(("mushrooms.svm.bz2",), 8_124, 112, "edible", 0.518, 21, "UCI Mushroom as LIBSVM has it"),
    "kdd99": DataSet(
        ("kdd99.npz",), 805_050, 119, "an attack", 0.804, 13,
        "KDD Cup 1999, the tenth and the corrected test part; numbers scaled to [0, 1], categories one-hot",
    ),
    "phishing_urls": DataSet(
        ("phishing_urls.npz",), 73_575, 20_958, "phishing", 0.505, 82, "Ebbu2017; counts of 3- and 4-grams"
    ),
    "enron_spam": DataSet(
        ("enron_spam.npz",), 33_715, 20_958, "spam", 0.509, 108, "Metsis, Androutsopoulos, Paliouras 2006; word counts"
    ),
}  # fmt: skip


def load(name: str, folder: str | Path | None = None) -> tuple[Any, Labels]:
    """The rows of a data set, a CSR matrix, and their labels, 0 or 1.

    `folder` holds its files; without it the environment variable RETICENT_DATA names the folder. Columns, their ranges
    and vocabularies were made from all rows by whoever published the set, and are taken to be public.

    Parameters
    ----------
    name : str
        The name of the data set.
    folder : str, Path or None, default None
        The folder with its files; by default the environment variable RETICENT_DATA names it.
    """
    found = _named(name)
    root = folder if folder is not None else os.environ.get(FOLDER)
    if root is None:
        raise FileNotFoundError(f"{name} is not part of reticent: name the folder that holds it, or set {FOLDER}. "
                                f"{_instead(name)}")  # fmt: skip
    missing = [file for file in found.files if not (Path(root) / file).is_file()]
    if missing:
        raise FileNotFoundError(f"there is no file {' or '.join(missing)} in {root}. {_instead(name)}")
    return found.read(Path(root))


def available(name: str, folder: str | Path | None = None) -> bool:
    """Whether `load` would find the files.

    Parameters
    ----------
    name : str
        The name of the data set.
    folder : str, Path or None, default None
        As for `load`.
    """
    root = folder if folder is not None else os.environ.get(FOLDER)
    return root is not None and all((Path(root) / file).is_file() for file in _named(name).files)


def synthetic(name: str, *, seed: int, rows: int | None = None) -> tuple[Any, Labels]:
    """Made-up rows of the same shape, for where the files are not: columns, numbers in a row, and share of ones agree.

    Column j is 1 with a probability that falls like 1/√j, independently; labels follow the first ten columns,
    added with alternating signs, and noise. It is like the real set in nothing else.

    Parameters
    ----------
    name : str
        The name of the data set.
    seed : int
        The seed of the rows.
    rows : int or None, default None
        The number of rows; by default as many as the data set has.

    >>> X, y = synthetic("a9a", seed=0, rows=1000)
    >>> X.shape, float(y.mean())
    ((1000, 123), 0.239)
    """
    found = _named(name)
    count = found.rows if rows is None else integer(rows, "rows", least=1)
    generator = np.random.default_rng(seed)
    falling = 1 / np.sqrt(np.arange(1, found.columns + 1))
    chance = np.minimum(0.9, falling * found.filled / falling.sum())
    columns = [np.flatnonzero(generator.random(count) < p) for p in chance]
    places = (np.concatenate(columns), np.repeat(np.arange(found.columns), [len(each) for each in columns]))
    X = sparse.csr_matrix((np.ones(len(places[0])), places), shape=(count, found.columns))
    weights = np.where(np.arange(found.columns) < 10, (-1.0) ** np.arange(found.columns), 0)
    score = X @ weights + generator.normal(size=count) / 2
    y = np.zeros(count, dtype=np.int64)
    y[np.argsort(score)[count - round(found.ones * count) :]] = 1
    return X, y


def tables() -> list[Table]:
    """What the data sets are, and in which files they are looked for."""
    return [
        Table(
            "Data sets",
            ("name", "rows", "columns", "label 1", "share of it", "files", "origin"),
            tuple(
                (name, f"{each.rows:,}", f"{each.columns:,}", each.one, f"{each.ones:.1%}",
                 ", ".join(each.files), each.origin)
                for name, each in DATA_SETS.items()
            ),
        )
    ]  # fmt: skip


def _named(name: str) -> DataSet:
    if name not in DATA_SETS:
        raise ValueError(f"name must be one of {', '.join(DATA_SETS)}, got {name!r}")
    return DATA_SETS[name]


def _instead(name: str) -> str:
    return f"Without it, synthetic({name!r}, seed=0) draws rows of the same shape"
