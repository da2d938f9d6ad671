"""Neighbouring inputs to audit on, all of them or random ones, and the worst pair among them.

Each pair is listed once: the divergence looks at it in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product
from typing import Generic, TypeVar

import numpy as np

from reticent.audit.hockey_stick import Divergence, exact
from reticent.audit.laws import Law, law
from reticent.exact import Number
from reticent.noise import Noise

T = TypeVar("T")
Vector = tuple[int, ...]


@dataclass(frozen=True)
class WorstCase(Generic[T]):
    """The pair of neighbours with the largest δ, and certified bounds on the largest δ over all pairs.

    Parameters
    ----------
    first, second : object
        The pair.
    lower, upper : float
        The bounds.
    """

    first: T
    second: T
    lower: float
    upper: float


def worst_case(
    mechanism: Callable[[Noise, T], Hashable],
    neighbours: Iterable[tuple[T, T]],
    *,
    epsilon: Number,
    tail_bits: int = 80,
) -> WorstCase[T]:
    """Find the largest δ at ε of a mechanism's exact laws on pairs of inputs.

    Parameters
    ----------
    mechanism : callable
        `mechanism(noise, input)` draws all its randomness from `noise`.
    neighbours : iterable of pairs
        Neighbouring inputs.
    epsilon : float or Fraction
        The ε at which δ is compared.
    tail_bits : int, default 80
        Of unbounded noise all but 2^-tail_bits is walked: see `law`.

    Returns
    -------
    WorstCase

    Examples
    --------
    >>> from fractions import Fraction
    >>> noisy = lambda noise, count: count + noise.discrete_laplace(Fraction(1))
    >>> worst = worst_case(noisy, [(3, 3), (3, 4)], epsilon=1)
    >>> worst.second, worst.upper < 1e-20
    (4, True)
    """
    pairs = divergences(mechanism, neighbours, tail_bits=tail_bits)
    found = [(pair.delta(epsilon), first, second) for first, second, pair in pairs]
    if not found:
        raise ValueError("neighbours must hold at least one pair")
    (lower, _), first, second = max(found, key=lambda item: item[0])
    return WorstCase(first, second, lower, max(upper for (_, upper), _, _ in found))


def divergences(
    mechanism: Callable[[Noise, T], Hashable], neighbours: Iterable[tuple[T, T]], *, tail_bits: int = 80
) -> list[tuple[T, T, Divergence]]:
    """Return each pair with the divergence of its exact laws; the law on each input is found once.

    Parameters are those of `worst_case`.
    """
    pairs = list(neighbours)
    laws: dict[object, Law] = {}

    def law_on(data: T) -> Law:
        key = data if isinstance(data, Hashable) else id(data)  # `pairs` keeps the data alive, and ids apart
        if key not in laws:
            laws[key] = law(lambda noise: mechanism(noise, data), tail_bits=tail_bits)
        return laws[key]

    return [(first, second, exact(law_on(first), law_on(second))) for first, second in pairs]


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────

def score_vectors(size: int, values: Sequence[int]) -> Iterator[tuple[Vector, Vector]]:
    """Yield all pairs of `size` scores out of `values` in which every score moves by at most 1.

    >>> list(score_vectors(1, range(3)))
    [((0,), (1,)), ((1,), (2,))]
    """
    for first in product(sorted(values), repeat=size):
        for second in product(*((score - 1, score, score + 1) for score in first)):
            if first < second and all(score in values for score in second):
                yield first, second


def row_replacements(
    domain: Sequence[T], rows: int, *, ordered: bool = True
) -> Iterator[tuple[tuple[T, ...], tuple[T, ...]]]:
    """Yield all pairs of data sets of `rows` rows from `domain` that differ in one row.

    With `ordered=False`, for mechanisms that ignore the order, the row that changes comes last and the others come in
    one order only.

    >>> list(row_replacements("ab", 2, ordered=False))
    [(('a', 'a'), ('a', 'b')), (('b', 'a'), ('b', 'b'))]
    """
    rest = product(domain, repeat=rows - 1) if ordered else combinations_with_replacement(domain, rows - 1)
    for others in rest:
        for index in range(rows) if ordered else (rows - 1,):
            for old, new in combinations(domain, 2):
                yield (*others[:index], old, *others[index:]), (*others[:index], new, *others[index:])


def count_vectors(size: int, rows: int) -> Iterator[tuple[Vector, Vector]]:
    """Yield all pairs of `size` counts of `rows` rows in which one row moves from one count to another.

    >>> list(count_vectors(2, 2))
    [((2, 0), (1, 1)), ((1, 1), (0, 2))]
    """
    for first, second in row_replacements(range(size), rows, ordered=False):
        yield _counts(first, size), _counts(second, size)


# ── random ones ───────────────────────────────────────────────────────────────────────────────────────────────────

def random_score_vectors(
    generator: np.random.Generator, number: int, *, size: int, values: Sequence[int]
) -> Iterator[tuple[Vector, Vector]]:
    """Yield `number` random pairs of `size` scores out of `values`; each score moves by −1, 0 or 1."""
    for _ in range(number):
        first = generator.choice(list(values), size)
        yield tuple(first.tolist()), tuple((first + generator.integers(-1, 2, size)).tolist())


def random_row_replacements(
    generator: np.random.Generator, number: int, *, domain: Sequence[T], rows: int
) -> Iterator[tuple[tuple[T, ...], tuple[T, ...]]]:
    """Yield `number` random pairs of data sets of `rows` rows from `domain` that differ in one row."""
    for _ in range(number):
        first = [domain[i] for i in generator.integers(len(domain), size=rows)]
        second = first.copy()
        second[int(generator.integers(rows))] = domain[int(generator.integers(len(domain)))]
        yield tuple(first), tuple(second)


def _counts(rows: Iterable[int], size: int) -> Vector:
    counts = [0] * size
    for row in rows:
        counts[row] += 1
    return tuple(counts)
