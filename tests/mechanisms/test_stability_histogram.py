"""The stability histogram: exact laws on all small data sets, one representation a value, broken twins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import BAD_DELTA, BAD_EPSILON, refusal

from counting import calls
from reticent.audit import Law, exact, law
from reticent.audit.neighbours import row_replacements
from reticent.errors import PrivacyWarning
from reticent.mechanisms.stability_histogram import histogram_threshold, stability_histogram
from reticent.noise import Noise, Seeded
from reticent.privacy.events import ApproximateDP, is_seeded

Rows = tuple[Any, ...]
Mechanism = Callable[[Noise, Rows], Any]

EPSILON, DELTA = Fraction(4), Fraction(22, 10000)  # τ = 4, and P(Z ≥ τ − 1) is within 1 % of δ


def real(noise: Noise, rows: Rows) -> Any:
    return tuple(stability_histogram(rows, epsilon=EPSILON, delta=DELTA, unsafe_noise=noise).value.items())


def twin(
    *, rate: Fraction = EPSILON / 2, threshold: int = 4, order: Callable[[Iterable[Any]], Iterable[Any]] = sorted
) -> Mechanism:
    """The mechanism with its constants, and the order of its output, laid open."""

    def run(noise: Noise, rows: Rows) -> Any:
        counts = Counter(rows)
        noisy = [(value, counts[value] + int(noise.discrete_laplace(1 / rate))) for value in order(counts)]
        return tuple((value, count) for value, count in noisy if count >= threshold)

    return run


def worst(mechanism: Mechanism, pairs: Iterable[tuple[Rows, Rows]]) -> tuple[float, float]:
    """The worst exact δ at ε over the pairs, as certified bounds; noise is walked up to a mass of 2^-20."""
    laws: dict[Rows, Law] = {}

    def law_on(rows: Rows) -> Law:
        if rows not in laws:
            laws[rows] = law(lambda noise: mechanism(noise, rows), tail_bits=20)
        return laws[rows]

    bounds = [exact(law_on(first), law_on(second)).delta(EPSILON) for first, second in pairs]
    return max(lower for lower, _ in bounds), max(upper for _, upper in bounds)


# ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.slow
def test_exact_law_keeps_the_claim_on_all_small_data_sets() -> None:
    assert histogram_threshold(epsilon=EPSILON, delta=DELTA) == 4
    pairs = [pair for rows in (1, 2, 3) for pair in row_replacements("abc", rows, ordered=False)]
    pairs += row_replacements("ab", 5, ordered=False)
    lower, upper = worst(real, pairs)
    assert upper <= DELTA
    assert lower >= Fraction(99, 100) * DELTA


@pytest.mark.slow
def test_exact_law_keeps_the_claim_around_the_threshold() -> None:
    pairs = [(("a",) * n + ("b",) * m + ("a",), ("a",) * n + ("b",) * m + (new,)) for n in (0, 1, 3, 5)
             for m in (0, 1, 4) for new in "bc"]
    assert worst(real, pairs)[1] <= DELTA


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("no threshold", twin(threshold=-(10**6))),
        ("one less", twin(threshold=3)),
        ("noise × 0.7", twin(rate=EPSILON / 2 / Fraction(7, 10))),
        ("sensitivity 1", twin(rate=EPSILON)),
        ("order of appearance", twin(order=list)),
    ],
)
def test_twins_are_rejected(name: str, broken: Mechanism) -> None:
    common = ("a",) * 6 + ("b",) * 6
    pairs: list[tuple[Rows, Rows]] = [(("a", *common), ("b", *common)), (("a", "a"), ("a", "b")), (("a",), ("b",))]
    assert worst(real, pairs)[1] <= DELTA
    assert worst(broken, pairs)[0] > DELTA, name


def test_equal_values_that_look_different_give_a_row_away() -> None:
    """A plain Counter prints whichever of 0.0 and −0.0 (or of 1 and True) came first: one row, seen for certain."""

    def plain(noise: Noise, rows: Rows) -> str:
        return str(dict(twin()(noise, rows)))

    def careful(noise: Noise, rows: Rows) -> str:
        return str(dict(real(noise, rows)))

    first, second = (0.0, *[0.0] * 9), (-0.0, *[0.0] * 9)
    one, two = (law(lambda noise, rows=rows: plain(noise, rows), tail_bits=20) for rows in (first, second))  # type: ignore[misc]
    assert exact(one, two).delta(EPSILON)[0] > 0.9
    one, two = (law(lambda noise, rows=rows: careful(noise, rows), tail_bits=20) for rows in (first, second))  # type: ignore[misc]
    assert exact(one, two).delta(0)[1] < 1e-6
    for mixed in ([1, True], [1, 1.0], [(1, 2), (1.0, 2)], [Decimal("1.0"), Decimal("1.00")], [Fraction(1, 2)]):
        with pytest.raises(TypeError, match="values must be of one type"):
            stability_histogram(mixed, epsilon=1, delta=1e-6)


# ── what it returns ───────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(
    "values",
    [
        [3] * 300 + [1] * 200 + [2**70],
        np.array([3] * 300 + [1] * 200 + [7]),
        np.array([3] * 300 + [1] * 200 + [7], dtype=np.uint8),
        [1.5] * 300 + [-0.5] * 200 + [math.inf],
        np.array([1.5] * 300 + [-0.5] * 200, dtype=np.float32),
        ["b"] * 300 + ["a"] * 200 + ["c"],
        np.array(["b"] * 300 + ["a"] * 200 + ["c"]),
        [b"b"] * 300 + [b"a"] * 200,
        [True] * 300 + [False] * 200,
        np.array([True] * 300 + [False] * 200),
        [(1, "x", 0.5)] * 300 + [(1, "a", -0.0)] * 200,
        list(np.array([3] * 300 + [1] * 200)),
        np.array([3] * 300 + [1] * 200, dtype=object),
    ],
)
def test_values_of_every_kind(values: Any) -> None:
    value, event = stability_histogram(values, epsilon=1, delta=1e-6)
    assert event == ApproximateDP(Fraction(1), Fraction(1, 10**6))
    kept = sorted({value for value in list(values) if list(values).count(value) > 100})
    assert list(value) == kept
    assert not any(isinstance(key, np.generic) for key in value)
    assert [abs(count - truth) < 60 for count, truth in zip(value.values(), (200, 300), strict=True)] == [True, True]


def test_no_rows_no_values() -> None:
    assert stability_histogram([], epsilon=1, delta=1e-6).value == {}
    assert is_seeded(stability_histogram([1], epsilon=1, delta=0.1, unsafe_noise=Seeded(unsafe_seed=1)).event)


def test_a_delta_that_would_publish_rows_is_warned_of() -> None:
    with pytest.warns(PrivacyWarning, match="delta=0.01 is not below 1/100"):
        stability_histogram([1] * 100, epsilon=1, delta=0.01)


@pytest.mark.parametrize(("epsilon", "delta", "threshold"), [(1, 1e-6, 28), (0.1, 1e-6, 264), (1, 0.9, 1)])
def test_threshold(epsilon: float, delta: float, threshold: int) -> None:
    assert histogram_threshold(epsilon=epsilon, delta=delta) == threshold


@pytest.mark.parametrize("kind", [int, str])
def test_a_million_rows(kind: type) -> None:
    numbers = np.random.default_rng(0).integers(1000, size=10**6)
    values: Any = numbers if kind is int else list(map(str, numbers.tolist()))
    found, work = calls(lambda: stability_histogram(values, epsilon=1, delta=1e-7).value)
    assert len(found) == 1000
    assert work < 10**5


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("epsilon", BAD_EPSILON)
def test_bad_epsilon(epsilon: Any) -> None:
    assert "epsilon must be" in refusal(lambda: stability_histogram([1], epsilon=epsilon, delta=0.1))


@pytest.mark.parametrize("delta", BAD_DELTA)
def test_bad_delta(delta: Any) -> None:
    assert "delta must be" in refusal(lambda: stability_histogram([1], epsilon=1, delta=delta))


@pytest.mark.parametrize(
    "values",
    [None, 3, "abc", b"abc", {1: 2}, {1}, [math.nan], np.array([math.nan]), [(math.nan,)], [None], [1, "a"], [[1]],
     [object()], np.zeros((2, 2)), np.array([1j]), np.array(["2020"], dtype="datetime64[Y]"), [(1,), (1, 2)]],
)
def test_bad_values(values: Any) -> None:
    assert "values must" in refusal(lambda: stability_histogram(values, epsilon=1, delta=1e-6))


VALUES = st.integers() | st.floats() | st.text() | st.booleans() | st.none() | st.binary() | st.fractions()


@pytest.mark.slow
@given(st.lists(VALUES | st.tuples(VALUES, VALUES), max_size=4), st.floats() | st.floats(0, 10), st.floats(0, 0.2))
@settings(max_examples=300, deadline=None)
def test_anything_else_is_answered_or_refused_by_name(values: Any, epsilon: float, delta: float) -> None:
    message = refusal(lambda: stability_histogram(values, epsilon=epsilon, delta=delta))
    assert not message or any(name in message for name in ("values", "epsilon", "delta"))


def test_no_value_is_echoed() -> None:
    listed: list[Any] = [["918273645", 1], [918273645.5, math.nan], [(918273645,), (1, 2)], [Fraction(918273645, 2)]]
    for values in listed:
        message = refusal(lambda values=values: stability_histogram(values, epsilon=1, delta=1e-6))  # type: ignore[misc]
        assert message
        assert "918273645" not in message
