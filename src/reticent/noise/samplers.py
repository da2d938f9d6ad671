"""Exact random draws from the operating system's entropy, one method per law."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.exact import Number, integer, rational
from reticent.noise import choice, tables
from reticent.noise.bits import WORD, exp_coin, exp_cut, settle

BLOCK = 1 << 16  # draws at a time, so that the work stays in the cache


class Noise:
    """The source of all randomness of the package.

    Each law is sampled exactly: no probability is rounded, and no tail is cut off. All bits come from `os.urandom` when
    they are needed. None are kept between calls, so threads and forked processes never share any.

    Scales, rates and exponents are `Fraction`s, or numbers that `exact.rational` reads. Draws are Python integers if
    `size` is None, else one-dimensional arrays.

    Examples
    --------
    >>> noise = Noise()
    >>> abs(noise.discrete_gaussian(10)) < 1000
    True
    """

    # ── bits ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes. All other draws are computed from these."""
        return os.urandom(count)

    def random_bits(self, count: int) -> int:
        """Return a uniform integer of `count` bits."""
        length = (count + 7) // 8
        return int.from_bytes(self.random_bytes(length), "little") >> (8 * length - count)

    def random_words(self, kind: type[np.unsignedinteger[Any]], count: int) -> NDArray[Any]:
        """Return an array of `count` uniform words of an unsigned type."""
        dtype = np.dtype(kind)
        return np.frombuffer(self.random_bytes(count * dtype.itemsize), dtype=dtype.newbyteorder("<"))

    # ── integers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def uniform(self, bound: int, size: int | None = None) -> Any:
        """Draw uniform integers in [0, bound).

        As many bits are drawn as bound − 1 has, and drawn again until the number is below the bound.

        Parameters
        ----------
        bound : int
            The bound, of any width.
        size : int or None, default None
            The length of the array; None for a single integer.

        Returns
        -------
        int or array
            An array is of int64 for bound ≤ 2^63, of uint64 for bound ≤ 2^64, of Python integers beyond.
        """
        if type(bound) is not int or bound < 1:
            bound = integer(bound, "bound", least=1)
        width = (bound - 1).bit_length()
        if size is None:
            while (value := self.random_bits(width)) >= bound:
                pass
            return value
        size = integer(size, "size", least=0)
        if width > WORD:
            return _objects([self.uniform(bound) for _ in range(size)])
        draws = np.empty(size, dtype=np.int64 if width < WORD else np.uint64)
        done = 0
        while done < size:
            found = self._uniform_words(bound, min(BLOCK, size - done))
            draws[done : done + len(found)] = found
            done += len(found)
        return draws

    def _uniform_words(self, bound: int, count: int) -> NDArray[Any]:
        width = (bound - 1).bit_length()
        kind = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if width <= 8 * kind().itemsize)
        words = self.random_words(kind, count) >> kind(8 * kind().itemsize - width) if width else np.zeros(count, kind)
        return words if bound == 1 << width else words[words < kind(bound)]

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Draw a uniformly random order of 0..n−1.

        It is the order of random 64-bit keys, drawn again if two are equal. Given that they differ, every order of
        independent keys is equally likely.

        Parameters
        ----------
        n : int
            The number of indices.
        """
        n = integer(n, "n", least=0)
        while True:
            keys = self.random_words(np.uint64, n)
            order = np.argsort(keys)
            ordered = keys[order]
            if not (ordered[1:] == ordered[:-1]).any():
                return order.astype(np.int64, copy=False)

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Draw k distinct indices out of n, as a uniformly random *ordered* tuple.

        These are the first k distinct values of a uniform sequence, in order of appearance; if k is more than half of
        n, the first k of a permutation.

        Parameters
        ----------
        n : int
            The number of indices.
        k : int
            How many of them are drawn.
        """
        n = integer(n, "n", least=0, most=1 << 63)
        k = integer(k, "k", least=0, most=n)
        if 2 * k > n:
            return self.permutation(n)[:k]
        found = np.empty(0, dtype=np.int64)
        while len(found) < k:
            missing = k - len(found)
            sequence = np.concatenate([found, self.uniform(n, missing + missing // 2 + 8)])
            _, first = np.unique(sequence, return_index=True)
            found = sequence[np.sort(first)]
        return found[:k]

    # ── coins ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def bernoulli(self, probability: Fraction) -> bool:
        """Return True with exactly the given rational probability.

        Parameters
        ----------
        probability : Fraction
            The probability, in [0, 1].
        """
        p = _rational(probability, "probability")
        if not 0 <= p <= 1:
            raise ValueError(f"probability must be in [0, 1], got {probability}")
        return bool(self.uniform(p.denominator) < p.numerator)

    def coins(self, numerators: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
        """Return, for each whole number m of an array, True with probability exactly m/2^bits.

        Parameters
        ----------
        numerators : array of int64
            Numbers in [0, 2^bits].
        bits : int
            At most 62.
        """
        integer(bits, "bits", least=1, most=62)
        cuts = np.asarray(numerators)
        if cuts.dtype != np.int64 or (cuts.size and not 0 <= int(cuts.min()) <= int(cuts.max()) <= 1 << bits):
            raise ValueError(f"numerators must be an int64 array of whole numbers in [0, 2^{bits}]")
        return np.asarray(self.uniform(1 << bits, cuts.size).reshape(cuts.shape) < cuts)

    def bernoulli_exp(self, gamma: Fraction, size: int | None = None) -> Any:
        """Return True with probability exactly e^−gamma.

        Parameters
        ----------
        gamma : Fraction
            The exponent, at least 0.
        size : int or None, default None
            The length of the array; None for a single bool.
        """
        g = _rational(gamma, "gamma")
        if g < 0:
            raise ValueError(f"gamma must be a finite number ≥ 0, got {gamma}")
        if size is None:
            return exp_coin(self, g.numerator, g.denominator)
        coins = np.ones(integer(size, "size", least=0), dtype=np.bool_)
        if g == 0:
            return coins
        low, high = exp_cut(g, WORD)  # 0 ≤ low < high ≤ 2^64, as e^−g is irrational
        for begin in range(0, len(coins), BLOCK):
            block = coins[begin : begin + BLOCK]
            words = self.random_words(np.uint64, len(block))
            np.less(words, np.uint64(low), out=block)
            for tie in np.flatnonzero((words >= np.uint64(low)) & (words <= np.uint64(high - 1))):
                block[tie] = not settle(self, int(words[tie]), WORD, lambda bits: _pair(exp_cut(g, bits)))
        return coins

    # ── two-sided noise ───────────────────────────────────────────────────────────────────────────────────────────

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        """Draw from P(z) ∝ e^(−|z|/scale).

        Scale 1/ε makes a count of sensitivity 1 ε-DP. The law is exact (see `tables.Table`): pure differential privacy
        bounds ratios of probabilities, which a small total variation distance would not.

        Parameters
        ----------
        scale : Fraction
            The scale, above 0.
        size : int or None, default None
            The length of the array; None for a single integer.

        Returns
        -------
        int or array
            An array is of int64, or of Python integers for scales beyond about 2^50.
        """
        s = _positive(scale, "scale")
        return _draw(self, tables.laplace(s.numerator, s.denominator), size)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        """Draw from P(z) ∝ e^(−z²/2σ²).

        The law is exact (see `tables.Table`). If random numbers were cut off after 128 bits, the total variation
        distance to the law would be below 2^−122 at σ = 10 and below 2^−115 at σ = 1000
        (`tables.Table.total_variation`).

        Parameters
        ----------
        sigma : Fraction
            The scale σ, above 0.
        size : int or None, default None
            The length of the array; None for a single integer.

        Returns
        -------
        int or array
            An array is of int64, or of Python integers for scales beyond about 2^50.
        """
        s = _positive(sigma, "sigma")
        return _draw(self, tables.gaussian(s.numerator, s.denominator), size)

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        """Return how many of the ascending integers `cuts` a discrete Laplace draw reaches (is ≥): 0..len(cuts).

        Mechanisms that only compare their noise use this method, so that the audit can enumerate their law.

        Parameters
        ----------
        scale : Fraction
            The scale of the noise.
        cuts : sequence of int
            Ascending integers.
        """
        return bisect_right(_ascending(cuts), self.discrete_laplace(scale))

    def gaussian_cell(self, sigma: Fraction, cuts: Sequence[int]) -> int:
        """Return how many of the ascending integers `cuts` a discrete Gaussian draw reaches (is ≥).

        Parameters
        ----------
        sigma : Fraction
            The scale σ of the noise.
        cuts : sequence of int
            Ascending integers.
        """
        return bisect_right(_ascending(cuts), self.discrete_gaussian(sigma))

    # ── choice ────────────────────────────────────────────────────────────────────────────────────────────────────

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        """Draw an index i with probability exactly ∝ counts[i]·e^(rate·scores[i]).

        The cost is one pass over the scores, whatever the counts. `noise.choice` explains the method and why it is
        exact.

        Parameters
        ----------
        scores : array_like
            Integers, fractions or floats of any finite size; a float is the binary fraction that it stores.
        rate : Fraction
            The factor of the scores, at least 0.
        counts : array_like or None, default None
            Whole numbers ≥ 0 of any size; None is 1 for each.
        """
        r = _rational(rate, "rate")
        if r < 0:
            raise ValueError(f"rate must be a finite number ≥ 0, got {rate}")
        return choice.choose(self, scores, r, counts)


class Seeded(Noise):
    """Reproducible draws for tests. They protect nobody: anyone who knows the seed can remove the noise.

    Parameters
    ----------
    unsafe_seed : int
        The seed.
    """

    def __init__(self, *, unsafe_seed: int) -> None:
        seed = integer(unsafe_seed, "unsafe_seed", least=0)
        self._generator = np.random.Generator(np.random.Philox(seed))

    def random_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the stream that the seed determines."""
        return self._generator.bytes(count)


system = Noise()


def _rational(value: Number, name: str) -> Fraction:
    return value if type(value) is Fraction else rational(value, name)


def _positive(value: Number, name: str) -> Fraction:
    number = _rational(value, name)
    if number <= 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value}")
    return number


def _draw(noise: Noise, table: tables.Table, size: int | None) -> Any:
    return table.one(noise) if size is None else table.many(noise, integer(size, "size", least=0))


def _ascending(cuts: Sequence[int]) -> Sequence[int]:
    if any(a > b for a, b in pairwise(cuts)):
        raise ValueError("cuts must be ascending")
    return cuts


def _objects(values: list[int]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _pair(bounds: tuple[int, int]) -> tuple[tuple[int], tuple[int], int]:
    return (bounds[0],), (bounds[1],), 0
