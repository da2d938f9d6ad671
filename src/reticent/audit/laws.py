"""The exact output law of a mechanism, found by running its real code on every outcome of its noise.

A mechanism draws all its randomness from a `Noise`. Here that object is replaced by one that, instead of drawing,
walks through every outcome in turn and keeps the probability of the path: after all paths are walked, the law of the
output is known, up to rounding that is enclosed and tails that are counted as missing. Nothing about the mechanism is
modelled; the code that runs is the code that is audited.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.exact import exp_fractions
from reticent.noise import Noise

BITS = 256  # probabilities are kept as integer multiples of 2^-BITS, rounded outward


@dataclass(frozen=True)
class Law:
    """Bounds on the probability of each output, in units of 2^-BITS; `missing` bounds what was not walked."""

    low: dict[Hashable, int]
    high: dict[Hashable, int]
    missing: int

    def probability(self, output: Hashable) -> float:
        """The probability of an output, as a float."""
        return float(Fraction(self.low.get(output, 0), 1 << BITS))


Outcomes = tuple[tuple[Any, int, int], ...]  # (value, low, high) in units of 2^-BITS


def law(run: Callable[[Noise], Hashable], *, tail_bits: int = 80) -> Law:
    """The law of `run(noise)`, which must draw all its randomness from `noise` and return something hashable.

    Noise without bound is walked as far as all but 2^-tail_bits of its mass. The number of paths is the product of
    the numbers of outcomes along the way, so keep the instance small.
    """
    low: dict[Hashable, int] = {}
    high: dict[Hashable, int] = {}
    paths: list[_Branch] = []
    walker = _Walker(paths, tail_bits)
    while True:
        walker.depth = 0
        output = run(walker)
        del paths[walker.depth :]
        path_low = path_high = 1 << BITS
        for branch in paths:
            _, branch_low, branch_high = branch.outcomes[branch.position]
            path_low = path_low * branch_low >> BITS
            path_high = -(-path_high * branch_high >> BITS)
        low[output] = low.get(output, 0) + path_low
        high[output] = high.get(output, 0) + path_high
        while paths and paths[-1].position + 1 == len(paths[-1].outcomes):
            paths.pop()
        if not paths:
            return Law(low, high, max(0, (1 << BITS) - sum(low.values())))
        paths[-1].position += 1


@dataclass(slots=True)
class _Branch:
    outcomes: Outcomes
    position: int = 0


class _Walker(Noise):
    """A `Noise` that replays the outcomes chosen so far and opens a new branch where it runs out of them."""

    def __init__(self, paths: list[_Branch], tail_bits: int) -> None:
        self.paths = paths
        self.tail_bits = tail_bits
        self.depth = 0

    def _walk(self, outcomes: Outcomes) -> Any:
        if self.depth == len(self.paths):
            self.paths.append(_Branch(outcomes))
        branch = self.paths[self.depth]
        self.depth += 1
        return branch.outcomes[branch.position][0]

    def _each(self, outcomes: Outcomes, size: int | None, dtype: type) -> Any:
        if size is None:
            return self._walk(outcomes)
        return np.array([self._walk(outcomes) for _ in range(size)], dtype=dtype)

    def random_bytes(self, count: int) -> bytes:
        raise TypeError("a mechanism under audit must draw through the laws of Noise, not raw bytes")

    def uniform(self, bound: int, size: int | None = None) -> Any:
        return self._each(_uniform(bound), size, np.int64)

    def bernoulli(self, probability: Fraction) -> bool:
        return bool(self._walk(_bernoulli(probability)))

    def bernoulli_exp(self, gamma: Fraction, size: int | None = None) -> Any:
        return self._each(_bernoulli_exp(gamma), size, np.bool_)

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return self._each(_discrete_laplace(scale, self.tail_bits), size, np.int64)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return self._each(_discrete_gaussian(sigma), size, np.int64)

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        return int(self._walk(_cells(_discrete_laplace(scale, self.tail_bits), tuple(int(cut) for cut in cuts))))

    def gaussian_cell(self, sigma: Fraction, cuts: Sequence[int]) -> int:
        return int(self._walk(_cells(_discrete_gaussian(sigma), tuple(int(cut) for cut in cuts))))

    def permutation(self, n: int) -> NDArray[np.int64]:
        return self.subset(n, n)

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        return np.array(self._walk(_ordered_subsets(n, k)), dtype=np.int64)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        exact = tuple(Fraction(score) for score in np.asarray(scores).tolist())
        weights = None if counts is None else tuple(int(count) for count in np.asarray(counts).tolist())
        return int(self._walk(_choose(exact, rate, weights)))


# ── the laws, as outcome lists ────────────────────────────────────────────────────────────────────────────────────

def _enclosed(probability: Fraction) -> tuple[int, int]:
    scaled = probability * (1 << BITS)
    return scaled.numerator // scaled.denominator, -(-scaled.numerator // scaled.denominator)


@lru_cache(maxsize=4096)
def _uniform(bound: int) -> Outcomes:
    low, high = _enclosed(Fraction(1, bound))
    return tuple((value, low, high) for value in range(bound))


@lru_cache(maxsize=4096)
def _bernoulli(probability: Fraction) -> Outcomes:
    outcomes = ((False, *_enclosed(1 - probability)), (True, *_enclosed(probability)))
    return tuple(outcome for outcome in outcomes if outcome[2] > 0)


@lru_cache(maxsize=4096)
def _bernoulli_exp(gamma: Fraction) -> Outcomes:
    low, high = exp_fractions(-gamma, BITS)
    return _normalised((False, True), ((1 - high, 1 - low), (low, high)))


@lru_cache(maxsize=256)
def _discrete_laplace(scale: Fraction, tail_bits: int) -> Outcomes:
    reach = int(scale * Fraction(7, 10) * tail_bits) + 2
    low, high = exp_fractions(-1 / scale, BITS)
    weights = [((1 - high) / (1 + high), (1 - low) / (1 + low))]
    for _ in range(reach):
        weights.append((_floor(weights[-1][0] * low), _ceil(weights[-1][1] * high)))
    support = range(-reach, reach + 1)
    return tuple((z, _enclosed(weights[abs(z)][0])[0], _enclosed(weights[abs(z)][1])[1]) for z in support)


@lru_cache(maxsize=256)
def _discrete_gaussian(sigma: Fraction) -> Outcomes:
    reach = int(sigma * 14) + 3  # beyond it lies less than 2^-140 of the mass
    bounds = [exp_fractions(-Fraction(z * z) / (2 * sigma * sigma), BITS) for z in range(reach + 1)]
    tail = 2 * bounds[reach][1] * max(1, int(sigma))  # a generous bound on both tails together
    total_low = bounds[0][0] + 2 * sum(low for low, _ in bounds[1:])
    total_high = bounds[0][1] + 2 * sum(high for _, high in bounds[1:]) + tail
    support = range(-reach, reach + 1)
    return tuple(
        (z, _enclosed(bounds[abs(z)][0] / total_high)[0], _enclosed(bounds[abs(z)][1] / total_low)[1]) for z in support
    )


@lru_cache(maxsize=65536)
def _cells(outcomes: Outcomes, cuts: tuple[int, ...]) -> Outcomes:
    low = [0] * (len(cuts) + 1)
    high = [0] * (len(cuts) + 1)
    for value, value_low, value_high in outcomes:
        cell = sum(value >= cut for cut in cuts)
        low[cell] += value_low
        high[cell] += value_high
    return tuple((cell, low[cell], high[cell]) for cell in range(len(cuts) + 1) if high[cell] > 0)


@lru_cache(maxsize=256)
def _ordered_subsets(n: int, k: int) -> Outcomes:
    subsets = tuple(permutations(range(n), k))
    low, high = _enclosed(Fraction(1, len(subsets)))
    return tuple((subset, low, high) for subset in subsets)


@lru_cache(maxsize=65536)
def _choose(scores: tuple[Fraction, ...], rate: Fraction, counts: tuple[int, ...] | None) -> Outcomes:
    top = max(scores)
    bounds = [exp_fractions(rate * (score - top), BITS) for score in scores]
    if counts is not None:
        bounds = [(count * low, count * high) for count, (low, high) in zip(counts, bounds, strict=True)]
    return _normalised(tuple(range(len(scores))), tuple(bounds))


def _normalised(values: tuple[Any, ...], bounds: tuple[tuple[Fraction, Fraction], ...]) -> Outcomes:
    total_low, total_high = sum(low for low, _ in bounds), sum(high for _, high in bounds)
    return tuple(
        (value, _enclosed(low / total_high)[0], _enclosed(high / total_low)[1])
        for value, (low, high) in zip(values, bounds, strict=True)
        if high > 0
    )


def _floor(value: Fraction) -> Fraction:
    return Fraction(_enclosed(value)[0], 1 << BITS)


def _ceil(value: Fraction) -> Fraction:
    return Fraction(_enclosed(value)[1], 1 << BITS)
