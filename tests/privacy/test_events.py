"""Events: exact fields, exact JSON, and how they fall apart into parts."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy.events import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    Composed,
    ContinuousGaussian,
    DiscreteGaussian,
    Event,
    GaussianBit,
    Grouped,
    Parallel,
    PureDP,
    RenyiDP,
    Repeated,
    SeededRelease,
    SparseVectorRun,
    Subsampled,
    event_from_json,
    is_seeded,
)
from reticent.privacy.parts import other_reading, parts

positive = st.fractions(Fraction(1, 1000), 1000)
small = st.integers(1, 9)
chances = st.fractions(0, Fraction(99, 100))
single: st.SearchStrategy[Event] = st.one_of(
    st.builds(PureDP, positive),
    st.builds(ApproximateDP, positive, chances),
    st.builds(BoundedRange, positive),
    st.builds(ZCDP, positive),
    st.builds(ContinuousGaussian, positive, positive),
    st.builds(DiscreteGaussian, positive, small),
    st.builds(GaussianBit, positive, small),
    st.builds(SparseVectorRun, positive, small, chances),
)


def _combined(inner: st.SearchStrategy[Event]) -> st.SearchStrategy[Event]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Composed, several),
        st.builds(Parallel, several),
        st.builds(Repeated, inner, small),
        st.builds(Grouped, inner, small),
        st.builds(Subsampled, inner, st.fractions(Fraction(1, 1000), 1)),
        st.builds(SeededRelease, inner),
    )


events = st.recursive(single, _combined, max_leaves=6)


@pytest.mark.slow
@given(events)
def test_json_round_trip_is_exact(event: Event) -> None:
    assert event_from_json(json.loads(json.dumps(event.to_json()))) == event


@pytest.mark.slow
@given(events)
def test_hash_and_equality_agree(event: Event) -> None:
    again = event_from_json(event.to_json())
    assert hash(again) == hash(event)


STORED: list[tuple[Event, str]] = [
    (PureDP(Fraction(1, 3)), '{"kind": "PureDP", "epsilon": "1/3"}'),
    (ApproximateDP(Fraction(1), Fraction(1, 9)), '{"kind": "ApproximateDP", "epsilon": "1", "delta": "1/9"}'),
    (BoundedRange(Fraction(2)), '{"kind": "BoundedRange", "epsilon": "2"}'),
    (ZCDP(Fraction(1, 5)), '{"kind": "ZCDP", "rho": "1/5"}'),
    (RenyiDP(Fraction(3, 2), Fraction(1)), '{"kind": "RenyiDP", "order": "3/2", "divergence": "1"}'),
    (ContinuousGaussian(Fraction(5, 2)), '{"kind": "Gaussian", "sigma": "5/2", "squared_sensitivity": "1"}'),
    (DiscreteGaussian(Fraction(5), 2), '{"kind": "DiscreteGaussian", "sigma": "5", "squared_sensitivity": 2}'),
    (GaussianBit(Fraction(5), 7), '{"kind": "GaussianBit", "sigma": "5", "voters": 7}'),
    (
        SparseVectorRun(Fraction(1, 2), 3, Fraction(1, 9)),
        '{"kind": "SparseVector", "epsilon": "1/2", "halts": 3, "delta": "1/9"}',
    ),
    (Composed((ZCDP(Fraction(1)),)), '{"kind": "Composed", "events": [{"kind": "ZCDP", "rho": "1"}]}'),
    (Repeated(ZCDP(Fraction(1)), 4), '{"kind": "Repeated", "event": {"kind": "ZCDP", "rho": "1"}, "times": 4}'),
    (
        Subsampled(ZCDP(Fraction(1)), Fraction(1, 2)),
        '{"kind": "Subsampled", "event": {"kind": "ZCDP", "rho": "1"}, "rate": "1/2"}',
    ),
    (Grouped(ZCDP(Fraction(1)), 2), '{"kind": "Grouped", "event": {"kind": "ZCDP", "rho": "1"}, "size": 2}'),
    (Parallel((ZCDP(Fraction(1)),)), '{"kind": "Parallel", "events": [{"kind": "ZCDP", "rho": "1"}]}'),
    (SeededRelease(ZCDP(Fraction(1))), '{"kind": "Seeded", "event": {"kind": "ZCDP", "rho": "1"}}'),
]


@pytest.mark.parametrize(("event", "text"), STORED, ids=lambda value: getattr(type(value), "kind", ""))
def test_the_stored_text_of_an_event_never_changes(event: Event, text: str) -> None:
    assert json.dumps(event.to_json()) == text
    assert event_from_json(json.loads(text)) == event


def test_every_event_has_a_stored_text() -> None:
    own = [kind for kind in Event.kinds.values() if kind.__module__ == Event.__module__]
    assert Counter(type(event) for event, _ in STORED) == Counter(own)


def test_a_class_that_is_renamed_without_its_kind_is_stored_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Event, "kinds", dict(Event.kinds))

    @dataclass(frozen=True, slots=True)
    class Renamed(Event):
        epsilon: Fraction

    assert Renamed(Fraction(1, 3)).to_json() != json.loads(STORED[0][1])


@pytest.mark.parametrize(
    "event", [ContinuousGaussian(Fraction(2)), SparseVectorRun(Fraction(1), 3), SeededRelease(ZCDP(Fraction(1)))]
)
def test_a_pickle_with_the_earlier_name_of_a_class_is_read(event: Event) -> None:
    pickled = pickle.dumps(event, protocol=0)
    earlier = pickled.replace(type(event).__name__.encode(), event.kind.encode())
    assert earlier != pickled
    assert pickle.loads(earlier) == event


def test_no_other_name_is_found() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Laplace'"):
        getattr(import_module(Event.__module__), "Laplace")  # noqa: B009


def test_floats_are_read_as_the_decimals_they_spell() -> None:
    assert PureDP(0.1).epsilon == Fraction(1, 10)  # type: ignore[arg-type]
    assert event_from_json({"kind": "PureDP", "epsilon": "1/10"}) == PureDP(Fraction(1, 10))


@pytest.mark.parametrize("kind", [PureDP, BoundedRange, ZCDP, ContinuousGaussian, DiscreteGaussian])
@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_bad_numbers_are_refused_by_name(kind: Any, bad: float) -> None:
    with pytest.raises(ValueError, match=r"(epsilon|rho|sigma) must be"):
        kind(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Repeated(PureDP(Fraction(1)), 0),
        lambda: Grouped(PureDP(Fraction(1)), 0),
        lambda: Subsampled(PureDP(Fraction(1)), Fraction(0)),
        lambda: Subsampled(PureDP(Fraction(1)), Fraction(3, 2)),
        lambda: GaussianBit(Fraction(1), 0),
        lambda: event_from_json({"kind": "Nothing"}),
        lambda: event_from_json({}),
    ],
)
def test_bad_combinations_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()


@pytest.mark.parametrize("events_", [(), [], (1,), "PureDP", None])
def test_a_composition_needs_events(events_: Any) -> None:
    with pytest.raises(TypeError, match="events must be"):
        Composed(events_)
    with pytest.raises(TypeError, match="events must be"):
        Parallel(events_)


def test_a_seeded_part_taints_the_whole() -> None:
    bad = SeededRelease(PureDP(Fraction(1)))
    good = PureDP(Fraction(1))
    assert not is_seeded(Composed((good, Repeated(good, 3))))
    nested = Grouped(Subsampled(bad, Fraction(1)), 2)
    for event in (Composed((good, bad)), Parallel((good, bad)), Repeated(bad, 2), nested):
        assert is_seeded(event)


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

def test_compositions_are_counted_together() -> None:
    one, half = PureDP(Fraction(1)), PureDP(Fraction(1, 2))
    tree = Composed((Repeated(Composed((one, half)), 3), SeededRelease(one), Grouped(half, 2)))
    assert dict(parts(tree)) == {one: 5, half: 3}


def test_groups_are_worked_into_the_parts() -> None:
    sigma = Fraction(3)
    assert parts(Grouped(Grouped(ContinuousGaussian(sigma), 2), 3)) == ((ContinuousGaussian(sigma, Fraction(36)), 1),)
    assert parts(Grouped(Repeated(DiscreteGaussian(sigma, 2), 5), 2)) == ((DiscreteGaussian(sigma, 8), 5),)
    assert parts(Grouped(GaussianBit(sigma, 7), 2)) == ((DiscreteGaussian(sigma, 4), 1),)
    assert parts(Grouped(ZCDP(Fraction(1)), 2)) == ((ZCDP(Fraction(4)), 1),)
    stays = ApproximateDP(Fraction(1), Fraction(1, 100))
    assert parts(Grouped(stays, 2)) == ((Grouped(stays, 2), 1),)


def test_groups_inside_a_sample_have_a_second_reading() -> None:
    rate = Fraction(1, 10)
    inner = Composed((Grouped(PureDP(Fraction(1)), 2), Repeated(Grouped(ZCDP(Fraction(1)), 3), 2)))
    assert other_reading(Subsampled(inner, rate)) == Grouped(
        Subsampled(Composed((PureDP(Fraction(1)), Repeated(ZCDP(Fraction(1)), 2))), rate), 3
    )
    assert other_reading(Subsampled(ZCDP(Fraction(1)), rate)) is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "an event must be a JSON object, got NoneType"),
        ([], "an event must be a JSON object, got list"),
        ({"kind": "PureDP"}, "PureDP must have exactly the fields epsilon"),
        ({"kind": "DiscreteGaussian", "sigma": "5"}, "exactly the fields sigma, squared_sensitivity"),
        ({"kind": "PureDP", "epsilon": "1", "delta": "0"}, "PureDP must have exactly the fields epsilon"),
        ({"kind": "PureDP", "epsilon": "1/0"}, "PureDP cannot be read: a fraction must be"),
        ({"kind": "PureDP", "epsilon": "1e999999999"}, "PureDP cannot be read: a fraction must be"),
        ({"kind": "PureDP", "epsilon": "-1"}, "PureDP cannot be read: epsilon must be"),
        ({"kind": "PureDP", "epsilon": None}, "PureDP cannot be read: epsilon must be"),
        ({"kind": "Composed", "events": [None]}, "Composed cannot be read: events must be"),
        ({"kind": "Repeated", "event": {"kind": "?"}, "times": 2}, "Repeated cannot be read: kind must be one of"),
    ],
)
def test_json_that_is_no_event_is_refused(data: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        event_from_json(data)
