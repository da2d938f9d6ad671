"""`choose` has exactly the law ∝ counts·e^(rate·scores), for arrays, fractions and integers of any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from goodness import ACCEPT, REJECT, fits, real
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scripted import Scripted

from reticent.noise import Noise, Seeded, choice, system
from reticent.noise.bits import Cuts
from reticent.noise.choice import _ArrayPool, _ExactPool, choose, proportions
from reticent.noise.reading import exact_numbers


def exact_law(scores: Sequence[Any], rate: Fraction, counts: Sequence[int] | None) -> list[float]:
    weights = [1] * len(scores) if counts is None else [int(count) for count in counts]
    top = max(Fraction(score) for score, weight in zip(scores, weights, strict=True) if weight)
    with mp.workprec(200):
        masses = [
            weight * mp.exp(real(rate * (Fraction(score) - top))) if weight else mpf(0)
            for score, weight in zip(scores, weights, strict=True)
        ]
        total = mp.fsum(masses)
        return [float(mass / total) for mass in masses]


def plain(values: Any) -> list[Any]:
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def law_test(scores: Any, rate: Fraction, counts: Any = None, *, size: int = 2000, bits: int = 64) -> float:
    noise = Seeded(unsafe_seed=1)
    drawn = [choose(noise, scores, rate, counts, bits=bits) for _ in range(size)]
    law = np.array(exact_law(plain(scores), rate, None if counts is None else plain(counts)))
    observed = np.bincount(drawn, minlength=len(law))
    assert not observed[law == 0].any()
    return fits(observed[law > 0], law[law > 0]) if (law > 1e-3).sum() > 1 else float(law[observed.argmax()] > 0.9)


BIG = 1 << 5000
CASES: list[tuple[Any, Fraction, Any]] = [
    (np.array([0, 1, 2, 3, 4]), Fraction(1, 2), None),
    (np.array([0, 1, 2, 3, 4]), Fraction(3, 2), np.array([40, 30, 20, 10, 1], dtype=np.uint64)),
    (np.array([5, 0, 0, 9]), Fraction(1, 3), np.array([1, 2, 0, 0])),
    (np.array([0.1, 0.25, -0.3, 1e-300, 2.0]), Fraction(1), None),
    (np.array([0.5, 0.5, 0.5]), Fraction(7), None),
    (np.array([3, 1, 2], dtype=np.uint8), Fraction(1), None),
    (np.array([2**63, 2**63 + 1, 2**64 - 1], dtype=np.uint64), Fraction(1, 2**62), None),
    (np.array([-(2**63), 0, 2**63 - 1]), Fraction(1, 2**63), None),
    (np.array([-1e308, 0, 1e308, 1.5e308]), Fraction(1, 10**308), None),
    (np.array([-1.7e308, 1.7e308]), Fraction(6, 10**308), np.array([2**63, 1], dtype=np.uint64)),
    (np.array([5e-324, 0.0, 2e-323]), Fraction(10) ** 323, None),
    (np.array([1.0, 2.0]), Fraction(1, 10**320), None),
    ([0, 1, 2], Fraction(0), [3, 2, 1]),
    ([Fraction(1, 3), Fraction(1, 2), 0], Fraction(2), None),
    ([0.1, 2**80], Fraction(1, 2**80), None),
    ([2**63, -1, 5], Fraction(1, 2**63), None),
    ([Decimal("0.1"), 0.1, Fraction(1, 10)], Fraction(10), None),
    ([10**30000, 10**30000 - 3, 0], Fraction(1, 4), None),
    ([np.float64(0.1), 1], Fraction(1), None),
    ([0, 3466], Fraction(1), [BIG, 1]),  # 2^5000 = e^3465.7…
    ([0, 3466, 10], Fraction(1), [BIG, 3, 0]),
    ([1, 2, 3], Fraction(1, 2), [BIG, BIG // 3, 7]),
    ([7], Fraction(1), [BIG]),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_law_is_exact(case: int) -> None:
    assert law_test(*CASES[case]) > ACCEPT


@pytest.mark.parametrize("bits", [1, 2, 5])
@pytest.mark.parametrize("case", [0, 1, 3, 8, 13, 19, 21])
def test_few_bits_to_begin_with_do_not_change_the_law(case: int, bits: int) -> None:
    """From 1 to 5 random bits most draws are open, and go through the refinement."""
    assert law_test(*CASES[case], size=1000, bits=bits) > ACCEPT


# ── twins ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SPREAD = np.array([0.0, 0.9, 1.7, 2.5, 3.4])


@pytest.mark.slow
def test_twin_that_accepts_every_item_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert law_test(SPREAD, Fraction(1)) > ACCEPT
    monkeypatch.setattr(choice, "exp_coin", lambda *_: True)
    assert law_test(SPREAD, Fraction(1)) < REJECT


@pytest.mark.slow
def test_twin_that_does_not_refine_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(noise: Noise, word: int, bits: int, cuts: Callable[[int], Cuts]) -> int:
        low, _, _ = cuts(bits)
        return sum(below <= word for below in low)

    assert law_test(SPREAD, Fraction(1), bits=3) > ACCEPT
    monkeypatch.setattr(choice, "settle", hasty)
    assert law_test(SPREAD, Fraction(1), bits=3) < REJECT


@pytest.mark.slow
def test_twin_that_draws_fresh_bits_for_each_refinement_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting over with fresh bits favours the cells that are settled early."""

    def forgetful(noise: Noise, word: int, bits: int, cuts: Callable[[int], Cuts]) -> int:
        while True:
            low, high, first = cuts(bits)
            reached = sum(above <= word for above in high)
            if reached == sum(below <= word for below in low):
                return first + reached
            word, bits = noise.random_bits(bits + 1), bits + 1

    assert law_test(SPREAD, Fraction(1), bits=2) > ACCEPT
    monkeypatch.setattr(choice, "settle", forgetful)
    assert law_test(SPREAD, Fraction(1), bits=2) < REJECT


@pytest.mark.slow
@pytest.mark.parametrize("rate", [Fraction(7, 10), Fraction(2)])
def test_twin_with_another_rate_is_rejected(rate: Fraction) -> None:
    noise = Seeded(unsafe_seed=2)
    drawn = [noise.choose(SPREAD, rate=rate) for _ in range(3000)]
    assert fits(np.bincount(drawn, minlength=5), exact_law(SPREAD.tolist(), Fraction(1), None)) < REJECT


# ── deterministic ─────────────────────────────────────────────────────────────────────────────────────────────────

@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 2**200)), min_size=2, max_size=8, unique_by=lambda p: p[0]),
    st.sampled_from([1, 7, 64, 128]),
)
def test_the_cuts_between_buckets_are_enclosed(pairs: list[tuple[int, int]], bits: int) -> None:
    buckets, totals = zip(*sorted(pairs), strict=True)
    low, high, first = proportions(buckets, totals)(bits)
    with mp.workprec(1500):
        masses = [total * mp.exp(-bucket) for bucket, total in sorted(pairs)]
        whole = mp.fsum(masses)
        for k, (below, above) in enumerate(zip(low, high, strict=True)):
            assert below <= mp.fsum(masses[: k + 1]) / whole * mpf(2) ** bits <= above
            assert above - below <= 3
    assert first == 0
    assert len(low) == len(pairs) - 1


def test_a_scripted_draw_of_buckets() -> None:
    """Two scores one apart, at rate 1: the better one's cell ends at 1/(1 + e^−1) = 0.7310585786…

    Each has a bucket to itself and x − b = 0, so that no further bits are read.
    """
    with mp.workprec(300):
        cut = int(mp.floor(mpf(2) ** 128 / (1 + mp.exp(-1))))
    word, second = cut >> 64, cut & (1 << 64) - 1
    scores: Any = [Fraction(1, 2), Fraction(-1, 2)]
    assert choose(Scripted([0]), scores, Fraction(1), None) == 0
    assert choose(Scripted([(1 << 64) - 1]), scores, Fraction(1), None) == 1
    assert choose(Scripted([word - 1]), scores, Fraction(1), None) == 0
    assert choose(Scripted([word + 1]), scores, Fraction(1), None) == 1
    assert choose(Scripted([word, second - 2]), scores, Fraction(1), None) == 0
    assert choose(Scripted([word, second + 2]), scores, Fraction(1), None) == 1
    # from a single bit: 1 leaves it open, and the next word decides
    rest = cut >> 63 & (1 << 64) - 1
    assert choose(Scripted([0]), scores, Fraction(1), None, bits=1) == 0
    assert choose(Scripted([0x80, rest - 1]), scores, Fraction(1), None, bits=1) == 0
    assert choose(Scripted([0x80, rest + 1]), scores, Fraction(1), None, bits=1) == 1


SCORES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20).map(lambda v: np.array(v, dtype=np.int64)),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20).map(lambda v: np.array(v, dtype=np.uint64)),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20).map(np.array),
    st.lists(st.integers() | st.fractions() | st.floats(-1e9, 1e9), min_size=1, max_size=20),
)
RATES = st.one_of(
    st.fractions(0, 100), st.floats(0, 1e300).map(Fraction), st.integers(-1000, 1000).map(lambda e: Fraction(2) ** e)
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(SCORES, RATES)
def test_no_bucket_lies_above_its_items(scores: Any, rate: Fraction) -> None:
    """b ≤ x is all that exactness needs of the floating point; x − b < 1 + 2^−20 makes it quick."""
    values = exact_numbers(scores, "scores")
    exact = [Fraction(value) for value in values.tolist()]
    pools: list[_ArrayPool | _ExactPool] = [_ExactPool(values, rate, None)]
    if values.dtype != object and (rate == 0 or choice.LEAST_RATE <= rate <= choice.MOST_RATE):
        pools.append(_ArrayPool(values, rate, None))
    for pool in pools:
        for item, score in enumerate(exact):
            if isinstance(pool, _ArrayPool):
                bucket, last = int(pool.buckets[item]), pool.last
            else:
                bucket = next(b for b, members in pool.members.items() if item in members)
                last = choice.FAR
            x = rate * (max(exact) - score)
            assert pool.excess(item, bucket) == x - bucket >= 0
            assert bucket >= last or x - bucket < 1 + Fraction(1, 2**20)
        assert sum(pool.totals.values()) == len(exact)


@settings(max_examples=60, deadline=None)
@given(SCORES, RATES, st.data())
def test_a_choice_is_an_index_with_a_positive_count(scores: Any, rate: Fraction, data: st.DataObject) -> None:
    counts = data.draw(
        st.lists(st.integers(0, 3) | st.integers(0, 2**70), min_size=len(scores), max_size=len(scores)).filter(any)
    )
    found = system.choose(scores, rate=rate, counts=counts)
    assert type(found) is int
    assert counts[found] > 0


def test_sums_beyond_64_bits_are_exact() -> None:
    """Counts near 2^64 add up without rounding, and items are found by their exact share."""
    counts = np.array([2**64 - 1, 1, 2**64 - 1, 2**63 + 1], dtype=np.uint64)
    pool = _ArrayPool(np.zeros(4), Fraction(1), counts)
    assert pool.totals == {0: sum(int(count) for count in counts)}
    edges = np.cumsum(counts.astype(object))
    for item, edge in enumerate(edges):
        width = (int(edges[-1]) - 1).bit_length()
        for target, expected in ((edge - 1, item), (edge, item + 1)):
            if expected < 4:
                padded = int(target) << (-width % 8)
                assert pool.draw(Scripted([padded]), 0) == expected


# ── size ──────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_ten_million_scores() -> None:
    noise = Seeded(unsafe_seed=8)
    scores = np.zeros(10**7)
    scores[1234567] = 30.0  # e^30 is a million times 10^7
    assert noise.choose(scores, rate=Fraction(1)) == 1234567
    scores[1234567] = math.log(10**7)
    drawn = [noise.choose(scores, rate=Fraction(1)) == 1234567 for _ in range(12)]
    assert 1 <= sum(drawn) <= 11  # an even chance


def test_counts_of_a_million_bits() -> None:
    """2^(10^6) = e^693147.18…: two pieces a million bits apart are nearly in balance."""
    noise = Seeded(unsafe_seed=9)
    drawn = [noise.choose([0, 693147], rate=Fraction(1), counts=[1 << 10**6, 1]) for _ in range(60)]
    share = 1 / (1 + math.exp(693147 - 10**6 * math.log(2)))
    assert fits([drawn.count(0), drawn.count(1)], [share, 1 - share]) > ACCEPT


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(
    ("scores", "counts", "error", "message"),
    [
        ([], None, ValueError, "scores must not be empty"),
        (np.empty(0), None, ValueError, "scores must not be empty"),
        ([1.0, math.nan], None, ValueError, "scores must be finite"),
        ([1, math.inf], None, ValueError, "scores must be finite"),
        (np.array([1.0, -math.inf]), None, ValueError, "scores must be finite"),
        (np.array([np.nan, 1.0], dtype=np.float32), None, ValueError, "scores must be finite"),
        ([Decimal("NaN"), 1], None, ValueError, "scores must be finite"),
        ([[1, 2], [3, 4]], None, ValueError, "scores must be one-dimensional"),
        ([[1, 2], [3]], None, (TypeError, ValueError), "scores must be"),
        (np.zeros((2, 2)), None, ValueError, "scores must be one-dimensional"),
        (5, None, TypeError, "scores must be a one-dimensional sequence"),
        (["secret"], None, TypeError, "scores must be real numbers"),
        ([None, 1], None, TypeError, "scores must be real numbers"),
        (np.array([1j]), None, TypeError, "scores must be real numbers"),
        (np.array(["secret"]), None, TypeError, "scores must be real numbers"),
        ([True, False], None, TypeError, "scores must be real numbers"),
        ([1, 2], [1], ValueError, "counts must have one entry per score, got 1 for 2"),
        ([1, 2], [], ValueError, "counts must have one entry per score, got 0 for 2"),
        ([1, 2], [0, 0], ValueError, "one must be positive"),
        ([1, 2], [-1, 5], ValueError, "counts must not be negative"),
        ([1, 2], [-(2**70), 2**70], ValueError, "counts must not be negative"),
        ([1, 2], [0.5, 1], TypeError, "counts must be whole numbers"),
        ([1, 2], [1.0, 2.0], TypeError, "counts must be whole numbers"),
        ([1, 2], np.array([1.0, 2.0]), TypeError, "counts must be whole numbers"),
        ([1, 2], [Fraction(1, 2), 1], TypeError, "counts must be whole numbers"),
        ([1, 2], [[1], [2]], ValueError, "counts must be one-dimensional"),
        ([1, 2], ["1", "2"], TypeError, "counts must be whole numbers"),
    ],
)
def test_what_is_refused(scores: Any, counts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        system.choose(scores, rate=Fraction(1), counts=counts)
    assert "secret" not in str(caught.value)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.none() | st.text(), min_size=1, max_size=5))
def test_nothing_but_clear_errors(scores: list[Any]) -> None:
    try:
        assert 0 <= system.choose(scores, rate=Fraction(1)) < len(scores)
    except (TypeError, ValueError) as refusal:
        assert str(refusal).startswith(("scores must be finite", "scores must be real numbers"))  # noqa: PT017


def test_a_rate_of_zero_forgets_scores_however_far_apart() -> None:
    scores = np.array([1.79769313e308, -9.9e291])
    drawn = {Seeded(unsafe_seed=seed).choose(scores, rate=Fraction(0)) for seed in range(40)}
    assert drawn == {0, 1}
