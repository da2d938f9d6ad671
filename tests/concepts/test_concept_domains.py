"""The order-preserving maps, and concepts as values."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.concepts import (
    Choice,
    Concept,
    Datetimes,
    Domain,
    Floats,
    Halfspace,
    Integers,
    Interval,
    OneOf,
    Point,
    PointSet,
    Product,
    Rectangle,
    Stump,
    Threshold,
    Thresholds,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
moments = st.integers(-(2**63) + 1, 2**63 - 2)


def test_half_floats_are_numbered_without_gaps() -> None:
    domain = Floats(16)
    values = domain.values(np.arange(domain.first, domain.last + 1))
    assert values.dtype == np.float16
    assert np.all(np.diff(values.astype(np.float64)) > 0)
    assert np.array_equal(domain.ranks(values), np.arange(domain.first, domain.last + 1))
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    assert set(every[np.isfinite(every)].tolist()) == set(values.tolist())
    assert domain.value(domain.last + 1) == math.inf
    assert domain.size == 63487


@given(st.lists(finite, min_size=1))
def test_floats_keep_their_order_and_come_back(numbers: list[float]) -> None:
    domain = Floats()
    ranks = domain.ranks(numbers)
    assert np.array_equal(domain.values(ranks), numbers)
    assert [domain.value(int(rank)) for rank in ranks] == numbers
    assert np.array_equal(np.array(numbers)[np.argsort(ranks)], np.sort(numbers))
    assert len(set(ranks.tolist())) == len(set(numbers))


@given(st.lists(moments, min_size=1), st.sampled_from(["ns", "s", "D", "M"]))
def test_datetimes_keep_their_order_and_come_back(ticks: list[int], unit: str) -> None:
    domain = Datetimes(unit)
    values = np.array(ticks).view(f"datetime64[{unit}]")
    assert np.array_equal(domain.ranks(values), ticks)
    assert np.array_equal(domain.values(ticks), values)
    assert domain.value(ticks[0]) == values[0]


@given(st.lists(st.integers(), min_size=1))
def test_integers_of_any_width_come_back(numbers: list[int]) -> None:
    ranks = Integers().ranks(numbers)
    assert [int(rank) for rank in ranks] == numbers
    assert ranks.dtype == (np.int64 if all(-(2**63) <= number < 2**63 for number in numbers) else object)
    width = max(1, *(number.bit_length() for number in numbers))
    declared = Integers(width).ranks([abs(number) for number in numbers])
    assert declared.dtype == (np.int64 if width < 64 else np.uint64 if width == 64 else object)
    assert [int(rank) for rank in declared] == [abs(number) for number in numbers]


@given(finite | st.integers() | st.sampled_from([math.inf, -math.inf]), finite, st.integers())
def test_bounds_of_one_kind_cut_points_of_another(bound: float, number: float, whole: int) -> None:
    cases: list[tuple[Domain, float]] = [(Floats(), number), (Integers(), whole), (Integers(), math.floor(number))]
    for domain, value in cases:
        rank = int(domain.ranks([value])[0])
        assert (rank < domain.at_or_above(bound)) == (value < bound)
        assert (rank < domain.above(bound)) == (value <= bound)
        labels = Thresholds(domain=domain).predict(Threshold(bound), [value])
        assert labels.tolist() == [int(value < bound)]


@given(moments, st.integers(-(10**9), 10**9), st.sampled_from(["h", "D", "ms"]))
def test_dates_of_one_unit_cut_those_of_another(tick: int, bound: int, unit: str) -> None:
    moment: Any = np.array(tick).view("datetime64[s]")[()]
    cut: Any = np.array(bound).view(f"datetime64[{unit}]")[()]
    if abs(tick) < 10**15:
        domain = Datetimes("s")
        assert (tick < domain.at_or_above(cut)) == bool(moment < cut)
        assert (tick < domain.above(cut)) == bool(moment <= cut)


def test_dates_that_a_unit_cannot_hold() -> None:
    for unit in ("ns", "ps", "fs", "as"):
        with pytest.raises(ValueError, match="outside the range"):
            Datetimes(unit).at_or_above(np.datetime64("9999-01-01", "D"))
    for day in range(1, 40):
        with pytest.raises(ValueError, match="outside the range"):
            Datetimes("as").above(np.datetime64(day, "D"))
        with pytest.raises(ValueError, match="whole numbers of the unit"):
            Datetimes("as").ranks(np.array([day]).view("datetime64[D]"))
    with pytest.raises(ValueError, match="whole numbers of the unit"):
        Datetimes("ns").ranks(np.array(["9999-01-01"], dtype="datetime64[D]"))
    with pytest.raises(ValueError, match="whole numbers of the unit"):
        Datetimes("D").ranks(np.array(["2020-01-01T12"], dtype="datetime64[h]"))
    assert Datetimes("ns").ranks(np.array(["1970-01-02"], dtype="datetime64[D]")).tolist() == [86400 * 10**9]
    with pytest.raises(TypeError, match="about int"):
        Thresholds().predict(Threshold(3), np.array(["2020-01-01"], dtype="datetime64[D]"))
    with pytest.raises(TypeError, match="about datetimes"):
        Thresholds().predict(Threshold(np.datetime64("2020-01-01")), [1, 2])


def test_python_datetimes_are_taken_and_time_zones_refused() -> None:
    days: Any = [datetime.datetime(2024, 5, day) for day in (1, 2, 3)]
    concept = Thresholds().erm(days, [1, 0, 0])
    assert concept == Threshold(np.datetime64("2024-05-02", "us"))
    assert Thresholds().predict(concept, [day.date() for day in days]).tolist() == [1, 0, 0]
    days[0] = days[0].replace(tzinfo=datetime.UTC)
    with pytest.raises(TypeError, match="time zone"):
        Thresholds().dichotomies(days)


def test_thresholds_at_the_ends_of_floats_and_dates() -> None:
    largest = np.finfo(np.float64).max
    everything = Thresholds(domain=Floats()).erm([-largest, largest], [1, 1])
    assert everything == Threshold(math.inf)
    assert Thresholds(domain=Floats()).predict(everything, [-largest, largest]).tolist() == [1, 1]
    last = Datetimes("s").value(Datetimes("s").last)
    above: Any = np.array(2**63 - 1).view("datetime64[s]")[()]
    assert Thresholds().erm(np.array([last]), [1]) == Threshold(above)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────

CONCEPTS: list[Concept] = [
    Threshold(3),
    Threshold(2**4000, ">="),
    Threshold(-(2**100000)),
    Threshold(0.1),
    Threshold(math.inf),
    Threshold(np.datetime64("2024-05-01T12", "h")),
    Point(7),
    PointSet((5, 2, 2**60)),
    Interval(1, 0),
    Interval(-0.5, 1e300),
    Rectangle((1, 2.5), (3, math.inf)),
    Stump(2, 5, ">="),
    Halfspace((3, -(2**80)), 5),
    Choice(4),
    Product((Threshold(3), Rectangle((1,), (2,)))),
    OneOf(1, PointSet((1, 2))),
]


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda concept: repr(concept)[:50])
def test_concepts_survive_json(concept: Concept) -> None:
    again = Concept.from_dict(json.loads(json.dumps(concept.to_dict(), allow_nan=False)))
    assert again == concept
    assert hash(again) == hash(concept)
    assert type(again) is type(concept)
    assert len(repr(concept)) < 200
    with pytest.raises(AttributeError):
        concept.at = 3  # type: ignore[attr-defined]


def test_concepts_hold_plain_values() -> None:
    assert repr(Threshold(np.int64(5))) == "Threshold(at=5, sign='<')"  # type: ignore[arg-type]
    assert repr(Threshold(np.float32(0.5))) == "Threshold(at=0.5, sign='<')"  # type: ignore[arg-type]
    assert math.copysign(1, float(Threshold(-0.0).at)) == 1
    assert repr(PointSet((9, 3))) == "PointSet(points=(3, 9))"
    assert eval(repr(Rectangle((1,), (2,)))) == Rectangle((1,), (2,))
    assert repr(Threshold(2**4000)) == "Threshold(at=0x80000000… (4001 bits), sign='<')"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Threshold(math.nan), ValueError),
        (lambda: Threshold(np.datetime64("NaT", "D")), ValueError),
        (lambda: Threshold("3"), TypeError),  # type: ignore[arg-type]
        (lambda: Threshold(True), TypeError),
        (lambda: Threshold(3, ">"), ValueError),  # type: ignore[arg-type]
        (lambda: PointSet((3, 3)), ValueError),
        (lambda: Rectangle((1,), (1, 2)), ValueError),
        (lambda: Stump(-1, 3), ValueError),
        (lambda: Halfspace((0.5, 1), 0), TypeError),  # type: ignore[arg-type]
        (lambda: Choice(-1), ValueError),
        (lambda: Concept.from_dict({"kind": "Nonsense"}), ValueError),
        (lambda: Concept.from_dict({}), ValueError),
    ],
)
def test_values_that_are_no_concepts(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
