from __future__ import annotations

import random
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.mechanisms import pieces as module
from reticent.mechanisms.pieces import (
    Pieces,
    median_pieces,
    whole_units,
    window_minima,
)

FIRSTS = (0, -5, 2**63 - 3, 2**64 - 2, -(2**63), 10**40)  # where machine integers would wrap or overflow


def pieces_of(scores: list[int], first: int = 0) -> Pieces:
    """The pieces of a score that is listed point by point."""
    starts = [0] + [i for i in range(1, len(scores)) if scores[i] != scores[i - 1]]
    last = first + len(scores) - 1
    return Pieces.from_breakpoints([first + i for i in starts], [scores[i] for i in starts], last=last)


def as_objects(pieces: Pieces) -> Pieces:
    """The same pieces, kept the way a range of more than 2^64 integers is."""
    return Pieces(pieces.first, pieces.last, pieces.offsets.astype(object), pieces.values.astype(object))


def random_scores(rng: random.Random, size: int) -> list[int]:
    """Plateaus of random heights, every other time first rising and then falling."""
    heights = [rng.randint(-6, 6) for _ in range(rng.randint(1, 9))]
    if rng.random() < 0.5:
        top = rng.randint(0, len(heights))
        heights = sorted(heights[:top]) + sorted(heights[top:], reverse=True)
    return [heights[i * len(heights) // size] for i in range(size)]


@given(
    first=st.integers(-(2**200), 2**200) | st.sampled_from(FIRSTS),
    lengths=st.lists(st.integers(1, 5) | st.integers(1, 2**70), min_size=1, max_size=8),
    data=st.data(),
)
def test_triples_round_trip_at_any_magnitude(first: int, lengths: list[int], data: st.DataObject) -> None:
    triples = []
    start = first
    for length in lengths:
        triples.append((start, start + length - 1, data.draw(st.integers(-(2**80), 2**80))))
        start += length
    score = Pieces.from_triples(triples)
    assert list(score.triples()) == triples
    assert score.lengths.tolist() == lengths
    assert (score.size, len(score)) == (sum(lengths), len(lengths))
    assert score.offsets.dtype == (np.uint64 if sum(lengths) <= 2**64 else object)
    point = data.draw(st.integers(first, score.last))
    assert score(point) == next(value for low, high, value in triples if low <= point <= high)
    low, high = sorted(data.draw(st.tuples(*[st.integers(first, score.last)] * 2)))
    cut = [(max(start, low), min(end, high), value) for start, end, value in triples if end >= low and start <= high]
    assert list(score.within(low - first, high - first).triples()) == cut


def test_whole_word_ranges_do_not_overflow() -> None:
    for first in (0, -(2**63)):
        one = Pieces.from_breakpoints([first], [7], last=first + 2**64 - 1)
        assert one.lengths.tolist() == [2**64]
        two = Pieces.from_breakpoints(np.array([first, first + 1]), [7, 8], last=first + 2**64 - 1)
        assert two.lengths.tolist() == [1, 2**64 - 1]
        assert two(first) == 7
        assert two(first + 2**64 - 1) == 8
        assert window_minima(two).tolist() == [8] * 64 + [7]
    edge = Pieces.from_breakpoints(np.array([2**64 - 2, 2**64 - 1], dtype=np.uint64), [1, 2], last=2**64 - 1)
    assert list(edge.triples()) == [(2**64 - 2, 2**64 - 2, 1), (2**64 - 1, 2**64 - 1, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_window_minima_are_those_of_all_windows(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        scores = random_scores(rng, rng.randint(1, 90))
        windows = [2**j for j in range(len(scores).bit_length())]
        expected = [max(min(scores[a : a + w]) for a in range(len(scores) - w + 1)) for w in windows]
        pieces = pieces_of(scores, rng.choice(FIRSTS))
        assert window_minima(pieces).tolist() == expected
        assert window_minima(as_objects(pieces)).tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_fast_path_and_the_general_one_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**64, 3000, dtype=np.uint64) >> np.uint64(rng.integers(0, 60))
    pieces = median_pieces(values, bits=64)
    fast = window_minima(pieces)
    assert module._unimodal_runs(pieces.values) is not None
    monkeypatch.setattr(module, "_unimodal_runs", lambda values: None)
    np.testing.assert_array_equal(fast, window_minima(pieces))


@pytest.mark.parametrize("seed", range(12))
def test_peeling_off_local_maxima_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    size = 3000
    values = [
        np.cumsum(rng.choice([-1, 1], size)),
        rng.integers(-(2**63), 2**63, size),
        rng.integers(0, 4, size),
        np.where(np.arange(size) % 2, np.arange(size), 0),
    ][seed % 4]
    starts = np.unique(rng.integers(0, 2**62, 2 * size) >> rng.integers(0, 60, 2 * size))[:size]
    pieces = Pieces.from_breakpoints(starts, values[: len(starts)], last=2**62)
    peeled = window_minima(pieces)
    np.testing.assert_array_equal(peeled, window_minima(as_objects(pieces)))
    monkeypatch.setattr(module, "_runs", module._stacked_runs)
    np.testing.assert_array_equal(peeled, window_minima(pieces))


def test_scores_that_are_not_unimodal_take_the_general_path() -> None:
    assert module._unimodal_runs(np.array([0, 2, 1, 2])) is None
    assert module._unimodal_runs(np.array([0, 2, 2, 1, 1])) is not None


@given(bits=st.integers(1, 6), data=st.data())
def test_median_score_counts_both_sides(bits: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=12))
    expected = [min(sum(x <= a for x in rows), sum(x >= a for x in rows)) for a in range(2**bits)]
    for values in (rows, np.array(rows, dtype=np.int64), np.array(rows, dtype=np.uint64)):
        score = median_pieces(values, bits=bits)
        assert [score(a) for a in range(2**bits)] == expected
        assert max(expected) * 2 >= len(rows)
        steps = score.values.tolist()
        assert all(step != following for step, following in pairwise(steps))  # no needless piece
        assert module._unimodal_runs(score.values) is not None


@pytest.mark.parametrize("bits", [64, 65, 1000])
def test_median_score_at_the_edges_of_wide_ranges(bits: int) -> None:
    top = 2**bits - 1
    score = median_pieces([0, 0, top, top, top], bits=bits)
    assert list(score.triples()) == [(0, top - 1, 2), (top, top, 3)]
    assert list(median_pieces([], bits=bits).triples()) == [(0, top, 0)]
    if bits == 64:
        machine = median_pieces(np.array([0, top, top, 0, top], dtype=np.uint64), bits=64)
        assert list(machine.triples()) == list(score.triples())


def test_replacing_a_row_moves_the_median_score_by_at_most_one() -> None:
    rng = random.Random(0)
    for _ in range(200):
        rows = [rng.randrange(32) for _ in range(rng.randint(1, 9))]
        other = [rng.randrange(32), *rows[1:]]
        score, neighbour = median_pieces(rows, bits=5), median_pieces(other, bits=5)
        assert all(abs(score(a) - neighbour(a)) <= 1 for a in range(32))


def test_pieces_are_frozen_and_do_not_tell_the_data() -> None:
    starts, values = np.array([0, 5]), np.array([1, 2])
    score = Pieces.from_breakpoints(starts, values, last=1000)
    starts[1] = values[1] = 77
    assert list(score.triples()) == [(0, 4, 1), (5, 1000, 2)]
    with pytest.raises(FrozenInstanceError):
        score.last = 7  # type: ignore[misc]
    for array in (score.offsets, score.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert repr(score) == "Pieces(a range of 10 bits)"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pieces.from_breakpoints([], [], last=3), "a range of size 0"),
        (lambda: Pieces.from_breakpoints([5], [1], last=4), "the range must not be empty"),
        (lambda: Pieces.from_breakpoints([0, 5], [1], last=9), "one value per piece"),
        (lambda: Pieces.from_breakpoints([0, 5, 5], [1, 2, 3], last=9), "strictly ascending"),
        (lambda: Pieces.from_breakpoints([0, 2**80, 7], [1, 2, 3], last=2**90), "strictly ascending"),
        (lambda: Pieces.from_breakpoints([0, 12], [1, 2], last=9), "inside the range"),
        (lambda: Pieces.from_breakpoints([0, 1.5], [1, 2], last=9), "starts must be whole numbers"),
        (lambda: Pieces.from_breakpoints([0, True], [1, 2], last=9), "starts must be whole numbers"),
        (lambda: Pieces.from_breakpoints(np.array([0.0, 2.0]), [1, 2], last=9), "starts must be whole numbers"),
        (lambda: Pieces.from_breakpoints([[0, 1]], [1, 2], last=9), "starts must be one-dimensional"),
        (lambda: Pieces.from_breakpoints(7, [1], last=9), "starts must be a one-dimensional sequence"),  # type: ignore[arg-type]
        (lambda: Pieces.from_breakpoints([0], [1], last=9.5), "last must be a whole number"),  # type: ignore[arg-type]
        (lambda: Pieces.from_breakpoints([0], [float("nan")], last=9), "values must be finite"),
        (lambda: Pieces.from_triples([]), "non-empty"),
        (lambda: Pieces.from_triples([(0, 1)]), "non-empty"),  # type: ignore[list-item]
        (lambda: Pieces.from_triples([(0, 1, 5), (3, 4, 6)]), "contiguous"),
        (lambda: Pieces.from_triples([(0, -1, 5)]), "the range must not be empty"),
        (lambda: median_pieces([1, 16], bits=4), r"values must lie in \[0, 2\^bits\)"),
        (lambda: median_pieces([-1, 2], bits=4), r"values must lie in \[0, 2\^bits\)"),
        (lambda: median_pieces(np.array([-1, 2]), bits=64), r"values must lie in \[0, 2\^bits\)"),
        (lambda: median_pieces(["1"], bits=4), "values must be whole numbers"),
        (lambda: median_pieces([1], bits=0), "bits must be at least 1"),
        (lambda: pieces_of([1, 2])(2), "inside the range"),
    ],
)
def test_bad_pieces_are_refused_clearly(build: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        build()


@pytest.mark.parametrize(
    "numbers",
    [
        np.array([1, -2]),
        np.array([0.1, 2.0**-1074, 1e300]),
        np.array([4.0, 2.0**60]),
        np.array([2**63, Fraction(1, 3), Fraction(5, 4)], dtype=object),
    ],
)
def test_scores_are_whole_multiples_of_a_unit(numbers: Any) -> None:
    multiples, unit = whole_units(numbers)
    assert [Fraction(int(multiple), unit) for multiple in multiples] == list(map(Fraction, numbers.tolist()))


@pytest.mark.parametrize("triples", [None, [], [1, 2], [(0, 1)], [(0, 1, 2, 3)]])
def test_what_are_no_triples_is_refused(triples: Any) -> None:
    with pytest.raises(ValueError, match="triples must be a non-empty sequence"):
        Pieces.from_triples(triples)


def test_no_pieces_make_no_range() -> None:
    with pytest.raises(ValueError, match="the range must not be empty"):
        Pieces(0, 9, np.array([], dtype=np.uint64), np.array([]))
