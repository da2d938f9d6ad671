"""Exact random draws from the operating system's entropy, one law a method."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Noise:
    """Every random draw of the package goes through an instance of this class.

    Nothing is buffered between calls, so threads and forked processes never share a bit.

    (INTERFACE: the docstrings below are the contract.)
    """

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, bound: int, size: int | None = None) -> Any:
        """Uniform integers in [0, bound). A Python int for `size=None` (bound of any width); else an int64/uint64
        array (object array where bound > 2^64)."""
        raise NotImplementedError

    def bernoulli(self, probability: Fraction) -> bool:
        """True with exactly the given rational probability."""
        raise NotImplementedError

    def bernoulli_exp(self, gamma: Fraction, size: int | None = None) -> Any:
        """True with probability exactly e^−gamma, gamma ≥ 0 rational."""
        raise NotImplementedError

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        """P(z) ∝ e^(−|z|/scale). int, or int64 array. So the spec's DL(e^−ε) is `discrete_laplace(1/ε)`."""
        raise NotImplementedError

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        """P(z) ∝ e^(−z²/2σ²). int, or int64 array."""
        raise NotImplementedError

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        """How many of the ascending integer `cuts` a discrete Laplace draw reaches (is ≥): 0..len(cuts).

        Mechanisms that only compare their noise draw through this, so that the audit can enumerate their law."""
        raise NotImplementedError

    def gaussian_cell(self, sigma: Fraction, cuts: Sequence[int]) -> int:
        """The same for a discrete Gaussian draw."""
        raise NotImplementedError

    def permutation(self, n: int) -> NDArray[np.int64]:
        """A uniformly random order of 0..n−1."""
        raise NotImplementedError

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """k distinct indices out of n as a uniformly random *ordered* tuple."""
        raise NotImplementedError

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        """Index i with probability exactly ∝ counts[i]·e^(rate·scores[i]); see the helper's brief."""
        raise NotImplementedError


class Seeded(Noise):
    """Reproducible draws for tests. They protect nobody."""

    def __init__(self, *, unsafe_seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(unsafe_seed))

    def random_bytes(self, count: int) -> bytes:
        return self._generator.bytes(count)


system = Noise()
