"""The exact output law of a mechanism, found by running its real code on every outcome of its noise.

A mechanism draws all its randomness from a `Noise`. Here that object is replaced by one that, instead of drawing,
walks through every outcome in turn and keeps the probability of the path. After all paths are walked, the law of the
output is known, up to rounding, which is enclosed, and tails, which are counted as missing. Nothing about the mechanism
is modelled: the code that runs is the code that is audited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, permutations
from math import inf, isqrt, log2, perm
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.exact import exp_fractions, rational
from reticent.noise import Noise
from reticent.privacy.parameters import check_positive

BITS = 256  # probabilities are kept as integer multiples of 2^-BITS, rounded outward
ONE = 1 << BITS
MOST_OUTCOMES = 1_000_000  # of a single draw
MOST_DRAWS = 10_000  # of a single run

Enclosure = tuple[Fraction, Fraction]
Probability = int | Fraction | tuple[int | float | Fraction, int | float | Fraction]  # exact, or bounds that enclose it


@dataclass(frozen=True)
class Law:
    """Enclosure on the probability of each output, in units of 2^-BITS; `missing` bounds what was not walked.

    Every output o has probability at least low[o], and at most high[o] plus its share of `missing`.

    Parameters
    ----------
    low, high : dict
        Bounds by output: integers for a law that was walked, rational numbers for one that was stated.
    missing : int
        Probability that was not walked.
    """

    low: Mapping[Any, int | Fraction]
    high: Mapping[Any, int | Fraction]
    missing: int

    def probability(self, output: Hashable) -> float:
        """Return the probability of an output, as a float."""
        return float(Fraction(self.low.get(output, 0), ONE))

    @classmethod
    def of(cls, probabilities: Mapping[Any, Probability]) -> Law:
        """Make the law that a mapping states.

        Parameters
        ----------
        probabilities : dict
            Output → exact probability, or → (low, high) bounds on it. All outputs must be listed: the probabilities
            sum to 1, or the bounds allow it.

        Examples
        --------
        >>> Law.of({"yes": Fraction(3, 4), "no": (0.2, 0.3)}).probability("yes")
        0.75
        """
        if not isinstance(probabilities, Mapping):
            raise TypeError(f"a law must be a Law or a mapping, got {type(probabilities).__name__}")
        bounds = {output: _stated(value) for output, value in probabilities.items()}
        least, most = (sum((pair[end] for pair in bounds.values()), Fraction(0)) for end in (0, 1))
        if not least <= 1 <= most:
            raise ValueError(f"probabilities must sum to 1, got a sum between {float(least)} and {float(most)}")
        low, high = ({output: pair[end] * ONE for output, pair in bounds.items()} for end in (0, 1))
        return cls(low, high, missing=0)


def _stated(value: Probability) -> Enclosure:
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(end, (Rational, float)) for end in value):
        low, high = (Fraction(end) for end in value)
    elif isinstance(value, Rational):
        low = high = Fraction(value)
    else:
        raise TypeError("a probability must be a Fraction, or a pair (low, high) of numbers that enclose it")
    if not 0 <= low <= high <= 1:
        raise ValueError(f"a probability must have 0 ≤ low ≤ high ≤ 1, got {value}")
    return low, high


def law(run: Callable[[Noise], Hashable], *, tail_bits: int = 80, most_paths: int = 1_000_000) -> Law:
    """Find the exact law of `run(noise)` by walking every outcome of its noise.

    The number of paths is the product of the numbers of outcomes of the draws, so keep the instance small. A draw with
    more than MOST_OUTCOMES outcomes and a run of more than MOST_DRAWS draws are refused. Loops that wait for an outcome
    must be bounded.

    Every path is walked twice. A `run` that draws differently the second time, or returns something else, has
    randomness or memory of its own, and is refused.

    Parameters
    ----------
    run : callable
        Must draw all its randomness from the `Noise` it is given, and return something hashable.
    tail_bits : int, default 80
        An outcome of a single draw that is less likely than 2^-tail_bits, and all but 2^-tail_bits of the mass of
        unbounded noise, is not walked but counted as missing.
    most_paths : int, default 1_000_000
        More paths are refused.

    Returns
    -------
    Law

    Examples
    --------
    >>> coin = law(lambda noise: noise.bernoulli(Fraction(1, 3)))
    >>> round(coin.probability(True), 9), coin.missing
    (0.333333333, 0)
    """
    low: dict[Hashable, int] = {}
    high: dict[Hashable, int] = {}
    walker = _Walker(tail_bits, most_paths)
    for _ in range(most_paths):
        output = walker.replay(run)
        if walker.replay(run, again=True) != output:
            raise RuntimeError("run must return the same output whenever its noise is the same: it has other "
                               "randomness, or remembers earlier runs")
        path_low, path_high = walker.mass()
        low[output] = low.get(output, 0) + path_low
        high[output] = high.get(output, 0) + path_high
        if not walker.advance():
            return Law(low, high, walker.missing)
    raise _too_many(most_paths)


def _too_many(most_paths: int) -> RuntimeError:
    return RuntimeError(f"the noise has more than most_paths={most_paths} paths: audit a smaller instance")


# ── walking ───────────────────────────────────────────────────────────────────────────────────────────────────────

@dataclass(frozen=True, slots=True, eq=False)
class _Draw:
    """The outcomes of one draw: values, and bounds on their probabilities in units of 2^-BITS; `tail` is left out."""

    name: str
    values: tuple[Any, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    tail: int


@dataclass(slots=True)
class _Branch:
    draw: _Draw
    low: int  # bounds on the probability of getting here
    high: int
    position: int = 0

    def mass(self) -> tuple[int, int]:
        low = self.low * self.draw.low[self.position] >> BITS
        return low, -(-self.high * self.draw.high[self.position] >> BITS)


class _Walker(Noise):
    """A `Noise` that replays the outcomes chosen so far and opens a new branch where it runs out of them."""

    def __init__(self, tail_bits: int, most_paths: int) -> None:
        self.tail_bits = tail_bits
        self.most_paths = most_paths
        self.again = False
        self.path: list[_Branch] = []
        self.depth = 0
        self.missing = 0

    def replay(self, run: Callable[[Noise], Hashable], *, again: bool = False) -> Hashable:
        """Walk the path, to its end if it has none yet; `again`, it must be of the same length."""
        self.depth, self.again = 0, again
        output = run(self)
        if self.depth < len(self.path):
            raise RuntimeError(f"run must make the same draws whenever its noise is the same: it stopped before draw "
                               f"{self.depth + 1}, {self.path[self.depth].draw.name}, which it made earlier")
        return output

    def mass(self) -> tuple[int, int]:
        """Enclosure on the probability of the path just walked."""
        return self.path[-1].mass() if self.path else (ONE, ONE)

    def advance(self) -> bool:
        """Turn to the next path; False when all are walked."""
        while self.path and self.path[-1].position + 1 == len(self.path[-1].draw.values):
            self.path.pop()
        if self.path:
            self.path[-1].position += 1
        return bool(self.path)

    def _walk(self, draw: _Draw) -> Any:
        if self.depth == len(self.path):
            if self.again:
                raise RuntimeError(f"run must make the same draws whenever its noise is the same: it had stopped "
                                   f"before draw {self.depth + 1}, {draw.name}")
            if self.depth == MOST_DRAWS:
                raise RuntimeError(f"run makes more than {MOST_DRAWS} draws: bound its loops, or audit a smaller "
                                   f"instance")
            branch = _Branch(draw, *self.mass())
            self.missing += -(-branch.high * draw.tail >> BITS)
            self.path.append(branch)
        branch = self.path[self.depth]
        self.depth += 1
        if branch.draw is not draw and branch.draw.name != draw.name:
            raise RuntimeError(f"run must make the same draws whenever its noise is the same: draw {self.depth} was "
                               f"{branch.draw.name} and then {draw.name}")
        return draw.values[branch.position]

    def _each(self, draw: _Draw, size: int | None, dtype: type) -> Any:
        if size is None:
            return self._walk(draw)
        if len(draw.values) > 1 and size * log2(len(draw.values)) > log2(self.most_paths) + 1:
            raise _too_many(self.most_paths)  # at once, not after that many paths
        return np.array([self._walk(draw) for _ in range(size)], dtype=dtype)

    def random_bytes(self, count: int) -> bytes:
        raise TypeError("a mechanism under audit must draw through the laws of Noise, not raw bytes")

    def uniform(self, bound: int, size: int | None = None) -> Any:
        return self._each(_uniform(int(bound)), size, np.int64)

    def bernoulli(self, probability: Fraction) -> bool:
        return bool(self._walk(_bernoulli(_not_negative(probability, "probability"), self.tail_bits)))

    def coins(self, numerators: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
        flat = [self.bernoulli(Fraction(int(cut), 1 << bits)) for cut in np.ravel(numerators)]
        return np.array(flat, dtype=np.bool_).reshape(np.shape(numerators))

    def bernoulli_exp(self, gamma: Fraction, size: int | None = None) -> Any:
        return self._each(_bernoulli_exp(_not_negative(gamma, "gamma"), self.tail_bits), size, np.bool_)

    def discrete_laplace(self, scale: Fraction, size: int | None = None) -> Any:
        return self._each(_discrete_laplace(_positive(scale, "scale"), self.tail_bits), size, np.int64)

    def discrete_gaussian(self, sigma: Fraction, size: int | None = None) -> Any:
        return self._each(_discrete_gaussian(_positive(sigma, "sigma"), self.tail_bits), size, np.int64)

    def laplace_cell(self, scale: Fraction, cuts: Sequence[int]) -> int:
        return int(self._walk(_laplace_cell(_positive(scale, "scale"), _ascending(cuts), self.tail_bits)))

    def gaussian_cell(self, sigma: Fraction, cuts: Sequence[int]) -> int:
        return int(self._walk(_gaussian_cell(_positive(sigma, "sigma"), _ascending(cuts), self.tail_bits)))

    def permutation(self, n: int) -> NDArray[np.int64]:
        return self.subset(n, n)

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        return np.array(self._walk(_subset(int(n), int(k))), dtype=np.int64)

    def choose(self, scores: ArrayLike, *, rate: Fraction, counts: ArrayLike | None = None) -> int:
        exact = tuple(score if type(score) is int else Fraction(score) for score in _listed(scores))
        weights = None if counts is None else tuple(int(count) for count in _listed(counts))
        return int(self._walk(_choose(exact, _not_negative(rate, "rate"), weights, self.tail_bits)))


def _positive(value: Fraction, name: str) -> Fraction:
    return value if type(value) is Fraction and value > 0 else check_positive(value, name)


def _not_negative(value: Fraction, name: str) -> Fraction:
    number = value if type(value) is Fraction else rational(value, name)
    if number < 0:
        raise ValueError(f"{name} must be a finite number ≥ 0, got {value}")
    return number


def _listed(values: ArrayLike) -> list[Any]:
    """The entries as Python numbers; a list is not made an array, which might round it."""
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)  # type: ignore[arg-type]
    return [item.item() if isinstance(item, np.generic) else item for item in items]


def _ascending(cuts: Sequence[int]) -> tuple[int, ...]:
    exact = tuple(int(cut) for cut in cuts)
    if any(left > right for left, right in pairwise(exact)):
        raise ValueError("cuts must be ascending")
    return exact


# ── the laws of single draws ──────────────────────────────────────────────────────────────────────────────────────

def _enclosed(low: Fraction, high: Fraction) -> tuple[int, int]:
    return low.numerator * ONE // low.denominator, -(-high.numerator * ONE // high.denominator)


def _decay(x: Fraction, size: int = 1) -> Enclosure:
    """Enclosure on size·e^−x; crude ones, without writing down its zeros, where it is far below 2^-BITS."""
    if size == 0 or x > 1000 + size.bit_length():
        return Fraction(0), Fraction(min(size, 1), 1 << 1000)
    low, high = exp_fractions(-x, BITS)
    return size * low, size * high


def _draw(name: str, values: Sequence[Any], bounds: Sequence[Enclosure], tail_bits: int, tail: Fraction) -> _Draw:
    """A draw from the bounds on its outcomes' probabilities; outcomes below 2^-tail_bits join the tail."""
    least = ONE >> tail_bits
    enclosed = [_enclosed(max(low, Fraction(0)), high) for low, high in bounds]
    kept = [i for i, (_, high) in enumerate(enclosed) if high >= least]
    missing = _enclosed(tail, tail)[1] + sum(high for _, high in enclosed if high < least)
    low, high = (tuple(enclosed[i][end] for i in kept) for end in (0, 1))
    return _Draw(name, tuple(values[i] for i in kept), low, high, missing)


def _check_outcomes(name: str, count: int) -> None:
    if not 1 <= count <= MOST_OUTCOMES:
        raise ValueError(f"{name} has {count} outcomes, between 1 and {MOST_OUTCOMES} can be walked: audit a smaller "
                         f"instance")


def _equally_likely(name: str, count: int, values: Callable[[], Sequence[Any]]) -> _Draw:
    _check_outcomes(name, count)
    low, high = _enclosed(Fraction(1, count), Fraction(1, count))
    return _Draw(name, tuple(values()), (low,) * count, (high,) * count, 0)


@lru_cache(maxsize=4096)
def _uniform(bound: int) -> _Draw:
    return _equally_likely(f"uniform({bound})", bound, lambda: range(bound))


@lru_cache(maxsize=256)
def _subset(n: int, k: int) -> _Draw:
    return _equally_likely(f"subset({n}, {k})", perm(n, k), lambda: tuple(permutations(range(n), k)))


@lru_cache(maxsize=4096)
def _bernoulli(probability: Fraction, tail_bits: int) -> _Draw:
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must be in [0, 1], got {probability}")
    bounds = [(p, p) for p in (1 - probability, probability)]
    return _draw(f"bernoulli({probability})", (False, True), bounds, tail_bits, Fraction(0))


@lru_cache(maxsize=4096)
def _bernoulli_exp(gamma: Fraction, tail_bits: int) -> _Draw:
    low, high = _decay(gamma)
    return _draw(f"bernoulli_exp({gamma})", (False, True), [(1 - high, 1 - low), (low, high)], tail_bits, Fraction(0))


def _laplace_tail(scale: Fraction, cut: int) -> Enclosure:
    """P(Z ≥ cut) = a^cut/(1+a) for cut ≥ 1, where a = e^(−1/scale); the rest by symmetry."""
    if cut <= 0:
        low, high = _laplace_tail(scale, 1 - cut)
        return 1 - high, 1 - low
    base, power = _decay(1 / scale), _decay(cut / scale)
    return power[0] / (1 + base[1]), power[1] / (1 + base[0])


@lru_cache(maxsize=256)
def _discrete_laplace(scale: Fraction, tail_bits: int) -> _Draw:
    reach = int(scale * Fraction(694, 1000) * (tail_bits + 1)) + 1  # 0.694 > ln 2
    _check_outcomes(f"discrete_laplace({scale})", 2 * reach + 1)
    base = _decay(1 / scale)
    centre = (1 - base[1]) / (1 + base[1]), (1 - base[0]) / (1 + base[0])
    powers = [_decay(z / scale) for z in range(reach + 1)]
    weights = [(centre[0] * low, centre[1] * high) for low, high in powers]
    support = range(-reach, reach + 1)
    tail = 2 * _laplace_tail(scale, reach + 1)[1]
    return _draw(f"discrete_laplace({scale})", support, [weights[abs(z)] for z in support], BITS, tail)


@lru_cache(maxsize=65536)
def _laplace_cell(scale: Fraction, cuts: tuple[int, ...], tail_bits: int) -> _Draw:
    reached = [(Fraction(1), Fraction(1)), *(_laplace_tail(scale, cut) for cut in cuts), (Fraction(0), Fraction(0))]
    bounds = [(here[0] - there[1], here[1] - there[0]) for here, there in pairwise(reached)]
    return _draw(f"laplace_cell({scale}, {cuts})", range(len(cuts) + 1), bounds, tail_bits, Fraction(0))


@lru_cache(maxsize=256)
def _discrete_gaussian(sigma: Fraction, tail_bits: int) -> _Draw:
    # e^(−reach²/2σ²) ≤ 2^−tail_bits, and beyond reach ≥ σ lies at most ∫ e^(−x²/2σ²) dx ≤ (σ²/reach)·e^(−reach²/2σ²)
    squared = sigma * sigma
    reach = max(isqrt(int(2 * squared * Fraction(694, 1000) * tail_bits)), int(sigma)) + 1
    _check_outcomes(f"discrete_gaussian({sigma})", 2 * reach + 1)
    weights = [_decay(z * z / (2 * squared)) for z in range(reach + 1)]
    beyond = 2 * squared / reach * weights[reach][1]
    total_low, total_high = (weights[0][end] + 2 * sum(pair[end] for pair in weights[1:]) for end in (0, 1))
    support = range(-reach, reach + 1)
    bounds = [(weights[abs(z)][0] / (total_high + beyond), weights[abs(z)][1] / total_low) for z in support]
    return _draw(f"discrete_gaussian({sigma})", support, bounds, BITS, beyond / total_low)


@lru_cache(maxsize=65536)
def _gaussian_cell(sigma: Fraction, cuts: tuple[int, ...], tail_bits: int) -> _Draw:
    whole = _discrete_gaussian(sigma, tail_bits)
    low, high = [0] * (len(cuts) + 1), [0] * (len(cuts) + 1)
    for value, value_low, value_high in zip(whole.values, whole.low, whole.high, strict=True):
        cell = bisect_right(cuts, value)
        low[cell] += value_low
        high[cell] += value_high
    reach = whole.values[-1]
    for cell, (start, stop) in enumerate(pairwise((-inf, *cuts, inf))):
        if start < stop and (start < -reach or stop > reach + 1):
            high[cell] += whole.tail  # which is then not missing
    bounds = [(Fraction(down, ONE), Fraction(up, ONE)) for down, up in zip(low, high, strict=True)]
    return _draw(f"gaussian_cell({sigma}, {cuts})", range(len(cuts) + 1), bounds, tail_bits, Fraction(0))


@lru_cache(maxsize=65536)
def _choose(
    scores: tuple[int | Fraction, ...], rate: Fraction, counts: tuple[int, ...] | None, tail_bits: int
) -> _Draw:
    sizes = (1,) * len(scores) if counts is None else counts
    if not any(sizes):
        raise ValueError("scores must not be empty, and some count must be positive")
    top = max(score for score, size in zip(scores, sizes, strict=True) if size)
    weights = [_decay(rate * (top - score), size) for score, size in zip(scores, sizes, strict=True)]
    total_low, total_high = (sum(pair[end] for pair in weights) for end in (0, 1))
    bounds = [(low / total_high, high / total_low) for low, high in weights]
    name = f"choose({[str(score) for score in scores]}, rate={rate}, counts={counts})"
    return _draw(name, range(len(scores)), bounds, tail_bits, Fraction(0))
