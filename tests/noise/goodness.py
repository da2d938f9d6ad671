"""Whether draws follow a law, and the exact laws to hold them against (computed by mpmath, not by the package)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
from mpmath import mp, mpf
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2_contingency, chisquare

ACCEPT = 1e-6  # what the real sampler must exceed …
REJECT = 1e-12  # … and its twin must not reach


def fits(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """The p-value of a chi-square test of counts against probabilities; thin cells are pooled with their neighbours."""
    counts, expected = np.asarray(observed, dtype=float), np.asarray(probabilities, dtype=float)
    expected = expected / expected.sum() * counts.sum()
    pooled: list[list[float]] = [[0.0, 0.0]]
    for count, mean in zip(counts, expected, strict=True):
        if pooled[-1][1] >= 10:
            pooled.append([0.0, 0.0])
        pooled[-1][0] += count
        pooled[-1][1] += mean
    if len(pooled) > 1 and pooled[-1][1] < 10:
        count, mean = pooled.pop()
        pooled[-1][0] += count
        pooled[-1][1] += mean
    table = np.array(pooled)
    return float(chisquare(table[:, 0], table[:, 1] * (table[:, 0].sum() / table[:, 1].sum())).pvalue)


def same_law(first: NDArray[np.int64], second: NDArray[np.int64], edges: Sequence[int]) -> float:
    """The p-value of a two-sample chi-square test on the bins between `edges`."""
    table = np.array([tally(first, edges), tally(second, edges)])
    thick = table.sum(axis=0) >= 100
    bins = table[:, thick]
    bins[:, 0] += table[:, ~thick].sum(axis=1)  # thin bins would not follow the chi-square law
    return float(chi2_contingency(bins).pvalue)


def tally(draws: NDArray[np.int64], edges: Sequence[int]) -> NDArray[np.int64]:
    """How many draws fall below edges[0], between each two edges, and on or above the last."""
    return np.bincount(np.searchsorted(np.asarray(edges), draws, side="right"), minlength=len(edges) + 1)


# ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────────

def real(value: Fraction | int) -> mpf:
    return mpf(Fraction(value).numerator) / Fraction(value).denominator


def gaussian_exponent(sigma: Fraction) -> Callable[[int], mpf]:
    return lambda z: real(z * z / (2 * sigma * sigma))


def laplace_exponent(scale: Fraction) -> Callable[[int], mpf]:
    return lambda z: real(abs(z) / scale)


def probabilities(exponent: Callable[[int], mpf], edges: Iterable[int], reach: int) -> list[float]:
    """P(Z < edges[0]), P(edges[0] ≤ Z < edges[1]), …, P(Z ≥ edges[-1]), summed over |z| ≤ reach."""
    with mp.workprec(60):
        half = [mp.exp(-exponent(z)) for z in range(reach + 1)]
        below = list(accumulate(half[:0:-1] + half, initial=mpf(0)))  # the weight of {Z < z}, z = −reach, …
        cumulative = [mpf(0), *(below[edge + reach] for edge in edges), below[-1]]
        return [float((high - low) / below[-1]) for low, high in pairwise(cumulative)]
