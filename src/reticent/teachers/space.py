"""The space of the principal axes of public rows."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds

from reticent.data.tables import Table, dense

Floats = NDArray[np.float64]


class PublicSpace:
    """The principal axes of the *public* rows, at most `dimensions` of them.

    Columns are first scaled to deviation 1, unless all public values are in [−1, 1]. Everything is learned from public
    rows, so it costs no privacy: each private row is moved by a fixed map. Axes of the private rows would not be
    private: one row would turn them for every teacher.

    Parameters
    ----------
    dimensions : int, default 100
        Largest number of axes.

    >>> space = PublicSpace(1).fit(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]]))
    >>> np.abs(space.transform(np.array([[1.0, 1.0]])).round(3)).tolist()
    [[0.707]]
    """

    def __init__(self, dimensions: int = 100) -> None:
        self.dimensions = dimensions

    def fit(self, public: Table) -> Self:
        """Learn the axes from public rows, dense or sparse."""
        rows, columns = public.shape
        sized = self._largest(public) <= 1
        mean = np.asarray(public.mean(axis=0)).ravel().astype(np.float64)
        if sized:
            self.scale = np.ones(columns)
        else:
            square = public.multiply(public) if sparse.issparse(public) else np.square(public, dtype=np.float64)
            spread = np.sqrt(np.maximum(np.asarray(square.mean(axis=0)).ravel() - mean**2, 0))
            self.scale = np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, 1)
        self.mean = mean / self.scale
        scaled = public / self.scale if not sparse.issparse(public) else public.multiply(1 / self.scale).tocsr()
        least = min(self.dimensions, rows, columns)
        if sparse.issparse(scaled) and least < min(rows, columns):
            axes = svds(scaled, k=least, random_state=0, return_singular_vectors="vh")[2][::-1]
        else:
            axes = np.linalg.svd(dense(scaled) - self.mean, full_matrices=False)[2][:least]
        self.axes: Floats = np.ascontiguousarray(axes.T)
        return self

    def transform(self, X: Table) -> Floats:
        """Return the coordinates of rows, dense or sparse."""
        weights = self.axes / self.scale[:, None]
        return np.asarray(X @ weights, dtype=np.float64) - self.mean @ self.axes

    @staticmethod
    def _largest(public: Table) -> float:
        values = public.data if sparse.issparse(public) else public
        return float(np.abs(np.asarray(values, dtype=np.float64)).max(initial=0))
