"""Guarantees: validation, order, JSON, and words that stay true."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.exact import exp_fractions, rational
from reticent.privacy import Guarantee

guarantees = st.builds(
    Guarantee,
    epsilon=st.floats(1e-6, 1e6) | st.sampled_from([0.5, 1.0]),
    delta=st.floats(0, 0.999) | st.sampled_from([0.0, 1e-6]),
    unit=st.sampled_from(["row", "group"]),
    protects=st.sampled_from(["rows", "labels", "rows and queries"]),
    seeded=st.booleans(),
)


@pytest.mark.parametrize("epsilon", [0, -1, -0.1, math.nan, math.inf, -math.inf, Fraction(-1, 3), 10**400])
def test_epsilon_must_be_finite_and_positive(epsilon: Any) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        Guarantee(epsilon=epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, math.inf, 1 - Fraction(1, 10**30)])
def test_delta_must_be_a_probability_below_one(delta: Any) -> None:
    with pytest.raises(ValueError, match="delta must be"):
        Guarantee(epsilon=1, delta=delta)


@pytest.mark.parametrize(
    "field",
    [{"unit": "person"}, {"protects": "everything"}, {"neighbours": "add-remove"}, {"unit": None}],
)
def test_words_must_be_known(field: dict[str, Any]) -> None:
    (name, value), *_ = field.items()
    with pytest.raises(ValueError, match=f"{name} must be one of .*, got {value!r}"):
        Guarantee(epsilon=1, **field)


@pytest.mark.parametrize("bad", ["1", None, True, [1]])
def test_numbers_must_be_numbers(bad: Any) -> None:
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        Guarantee(epsilon=bad)
    with pytest.raises(TypeError, match="delta must be a real number"):
        Guarantee(epsilon=1, delta=bad)
    if bad is not True:
        with pytest.raises(TypeError, match="seeded must be"):
            Guarantee(epsilon=1, seeded=bad)


def test_fractions_are_rounded_up_and_floats_are_kept() -> None:
    assert Guarantee(epsilon=0.1).epsilon == 0.1
    assert Guarantee(epsilon=Decimal("0.1")).epsilon == 0.1  # type: ignore[arg-type]
    for value in (Fraction(1, 3), Fraction(10**20 + 1, 10**20), Fraction(2, 7)):
        rounded = Guarantee(epsilon=value, delta=value / 2).epsilon  # type: ignore[arg-type]
        assert rational(rounded, "") >= value > rational(math.nextafter(rounded, 0), "")
    assert Guarantee(epsilon=Fraction(3, 10)) == Guarantee(epsilon=0.3)  # type: ignore[arg-type]


def test_a_guarantee_is_frozen_hashable_and_keyword_only() -> None:
    guarantee = Guarantee(epsilon=1)
    assert hash(guarantee) == hash(Guarantee(epsilon=1.0))
    with pytest.raises(AttributeError):
        guarantee.epsilon = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Guarantee(1.0)  # type: ignore[call-arg]


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@given(guarantees, guarantees, guarantees)
def test_order_is_partial(a: Guarantee, b: Guarantee, c: Guarantee) -> None:
    same = Guarantee.from_json(a.to_json())
    assert a <= same
    assert not a < same
    assert (a <= b) == (b >= a)
    assert (a < b) == (b > a) == (a <= b and a != b)
    if a <= b <= a:
        assert a == b
    if a <= b <= c:
        assert a <= c


def test_what_implies_what() -> None:
    base = Guarantee(epsilon=1, delta=1e-6)
    assert Guarantee(epsilon=0.5, delta=1e-6) < base
    assert Guarantee(epsilon=1, delta=1e-6, unit="group") < base
    assert Guarantee(epsilon=1, delta=1e-6, protects="rows and queries") < base
    assert base < Guarantee(epsilon=1, delta=1e-6, protects="labels")
    assert base < Guarantee(epsilon=1, delta=1e-6, seeded=True)
    assert not Guarantee(epsilon=0.1, delta=0, seeded=True) <= base
    incomparable = Guarantee(epsilon=2, delta=0)
    assert not incomparable <= base
    assert not base <= incomparable
    with pytest.raises(TypeError):
        assert base < 1  # type: ignore[operator]


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────

@given(guarantees)
def test_json_round_trip_is_exact(guarantee: Guarantee) -> None:
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
    assert Guarantee.from_json(json.loads(guarantee.to_json())) == guarantee


@pytest.mark.parametrize("text", ["[]", "{}", '{"delta": 0}', '{"epsilon": 1, "rows": 3}', '{"epsilon": -1}'])
def test_json_that_is_no_guarantee_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"guarantee|epsilon"):
        Guarantee.from_json(text)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────

def test_explain_says_who_against_what_and_how_well() -> None:
    words = Guarantee(epsilon=1, delta=1e-6).explain()
    for phrase in (
        "Every single row",
        "at most e^1 = 2.72 times as likely",
        "except with probability at most one in a million",
        "The number of rows, the columns, the classes and every parameter",
        "Facts about the population",
        "differ in the contents of one row",
        "Queries put to what was released are not protected",
    ):
        assert phrase in words
    assert "SEEDED" not in words


def test_explain_follows_the_fields() -> None:
    assert "no exception (delta = 0)" in Guarantee(epsilon=0.1).explain()
    assert "Only the labels" in Guarantee(epsilon=1, protects="labels").explain()
    assert "every query" in Guarantee(epsilon=1, protects="rows and queries").explain()
    assert "group of rows" in Guarantee(epsilon=1, unit="group").explain()
    assert "more than 10^300" in Guarantee(epsilon=1000).explain()
    assert "at most one in 1,230 " in Guarantee(epsilon=1, delta=0.00081).explain()
    assert "at most 71 % " in Guarantee(epsilon=1, delta=0.705).explain()


def test_explain_rounds_up() -> None:
    """The twin, `:g`, says 1 of 1.0000004."""
    assert "e^1.00001 = 2.72 times" in Guarantee(epsilon=1.0000004).explain()
    assert f"{1.0000004:g}" == "1"
    assert "(epsilon = 0.123457;" in Guarantee(epsilon=0.1234561).explain()
    assert "(delta = 1.00001e-06)" in Guarantee(epsilon=1, delta=1.0000004e-6).explain()
    assert "e^1e-09 = 1.0000000011 times" in Guarantee(epsilon=1e-9).explain()
    assert "= 1.000000000000001 times" in Guarantee(epsilon=1e-300).explain()
    assert "e^0.1 = 1.11 times" in Guarantee(epsilon=0.1).explain()
    assert "e^20 = 485,165,196 times" in Guarantee(epsilon=20).explain()


def test_a_seeded_guarantee_says_so_first_and_loudly() -> None:
    words = Guarantee(epsilon=1, seeded=True).explain()
    assert words.startswith("NOBODY IS PROTECTED. This run was SEEDED")


@given(guarantees)
def test_stated_odds_are_never_too_small(guarantee: Guarantee) -> None:
    words = guarantee.explain()
    if guarantee.epsilon < 700:
        factor = Fraction(words.split(" = ")[1].split(" times")[0].replace(",", ""))
        assert factor >= exp_fractions(rational(guarantee.epsilon, "epsilon"), 128)[0]
    if "at most one in " in words and "one in a " not in words:
        odds = words.split("at most one in ")[1].split(" ")[0].replace(",", "").replace("10^", "1e")
        assert rational(guarantee.delta, "delta") <= 1 / Fraction(odds)
