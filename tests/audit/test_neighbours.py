"""The enumerations list what they say, and the worst pair is found."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from reticent.audit.neighbours import (
    count_vectors,
    random_row_replacements,
    random_score_vectors,
    row_replacements,
    score_vectors,
    worst_case,
)
from reticent.noise import Noise


def test_score_vectors_are_all_pairs_at_distance_one() -> None:
    everything = list(product(range(-1, 3), repeat=2))
    expected = {
        (a, b) for a in everything for b in everything
        if a < b and max(abs(x - y) for x, y in zip(a, b, strict=True)) == 1
    }  # fmt: skip
    listed = list(score_vectors(2, range(-1, 3)))
    assert len(listed) == len(set(listed))
    assert set(listed) == expected


def test_row_replacements_are_all_pairs_at_hamming_distance_one() -> None:
    everything = list(product("xyz", repeat=3))
    expected = {
        (a, b) for a in everything for b in everything if a < b and sum(x != y for x, y in zip(a, b, strict=True)) == 1
    }
    listed = list(row_replacements("xyz", 3))
    assert len(listed) == len(set(listed))
    assert set(listed) == expected


def test_unordered_replacements_cover_all_multisets() -> None:
    def multisets(ordered: bool) -> set[frozenset[tuple[int, ...]]]:
        pairs = row_replacements(range(3), 3, ordered=ordered)
        return {frozenset(tuple(sorted(rows)) for rows in pair) for pair in pairs}

    assert multisets(ordered=False) == multisets(ordered=True)


def test_count_vectors_move_one_row() -> None:
    listed = set(count_vectors(3, 4))
    everything = [c for c in product(range(5), repeat=3) if sum(c) == 4]
    expected = {
        frozenset((a, b)) for a in everything for b in everything
        if sorted(x - y for x, y in zip(a, b, strict=True)) == [-1, 0, 1]
    }  # fmt: skip
    assert {frozenset(pair) for pair in listed} == expected


def test_random_neighbours_are_neighbours_and_reproducible() -> None:
    scores = list(random_score_vectors(np.random.default_rng(1), 200, size=3, values=range(5)))
    assert scores == list(random_score_vectors(np.random.default_rng(1), 200, size=3, values=range(5)))
    assert all(abs(x - y) <= 1 for first, second in scores for x, y in zip(first, second, strict=True))
    assert len(set(scores)) > 150
    rows = list(random_row_replacements(np.random.default_rng(1), 200, domain="ab", rows=4))
    assert all(sum(x != y for x, y in zip(first, second, strict=True)) <= 1 for first, second in rows)
    assert any(first != second for first, second in rows)


def leaks_at_seven(noise: Noise, count: int) -> int:
    """Private but for one input."""
    return 7 if count == 7 else count + int(noise.discrete_laplace(Fraction(1)))


def test_the_worst_pair_is_found() -> None:
    worst = worst_case(leaks_at_seven, [(n, n + 1) for n in range(10)], epsilon=1)
    assert {worst.first, worst.second} in ({6, 7}, {7, 8})
    assert 0.5 < worst.lower <= worst.upper < 1
    fine = worst_case(leaks_at_seven, [(n, n + 1) for n in range(6)], epsilon=1)
    assert fine.lower == 0
    assert fine.upper < 1e-20


def test_inputs_need_not_be_hashable() -> None:
    def noisy(noise: Noise, counts: list[int]) -> int:
        return counts[0] + int(noise.uniform(2))

    assert worst_case(noisy, [([0], [1]), ([0], [2])], epsilon=1).second == [2]


def test_each_law_is_found_once() -> None:
    calls: list[int] = []

    def counted(noise: Noise, data: int) -> int:
        calls.append(data)
        return int(noise.uniform(2))

    worst_case(counted, [(0, 1), (1, 2), (0, 2)], epsilon=1)
    assert len(calls) == 3 * 4, "two outcomes each, walked twice"


def test_no_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        worst_case(leaks_at_seven, [], epsilon=1)
