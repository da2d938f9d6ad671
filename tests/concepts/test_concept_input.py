"""What the classes refuse, and that no message repeats the data."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.concepts import (
    ConceptClass,
    Datetimes,
    Domain,
    Finite,
    Floats,
    Halfspaces,
    Integers,
    Interval,
    Intervals,
    KPoints,
    Points,
    Products,
    Rectangle,
    Rectangles,
    Stump,
    Stumps,
    Threshold,
    Thresholds,
    Unions,
)

SECRET = 987654321  # stands in the data; no message may show it

LINES: list[ConceptClass[Any]] = [Thresholds(bits=8), Points(bits=8), KPoints(2, bits=8), Intervals(bits=8)]
PLANES: list[ConceptClass[Any]] = [Rectangles(2, bits=8), Stumps(2, bits=8), Halfspaces(2)]


def refused(run: Callable[[], object]) -> str:
    with pytest.raises((ValueError, TypeError)) as failure:
        run()
    message = str(failure.value)
    assert str(SECRET)[:6] not in message
    assert "secret" not in message
    return message


BAD_LINES: list[tuple[str, Any, str]] = [
    ("too large", [1, SECRET], r"\[0, 2^8)"),
    ("negative", [1, -SECRET], r"\[0, 2^8)"),
    ("wider than 64 bits", [1, SECRET << 70], "2^8"),
    ("NaN", [1.0, float("nan")], "finite"),
    ("infinite", [1.0, float("inf")], "finite"),
    ("fractions", [1.0, SECRET + 0.5], "whole numbers"),
    ("strings", ["secret"], "must hold whole numbers, floats or datetimes"),
    ("an array of strings", np.array(["secret"]), "strings"),
    ("a string", "secret", "got str"),
    ("nothing", None, "NoneType"),
    ("a number", SECRET, "got int"),
    ("an array without dimensions", np.array(SECRET), "single"),
    ("Fractions", [Fraction(SECRET, 7)], "must hold whole numbers, floats or datetimes"),
    ("Decimals", [Decimal(SECRET)], "must hold whole numbers, floats or datetimes"),
    ("None inside", [SECRET, None], "must hold whole numbers, floats or datetimes"),
    ("complex", np.array([1j]), "complex"),
    ("datetimes", np.array(["2024-01-01"], dtype="datetime64[D]"), "whole numbers"),
    ("time differences", np.array([3], dtype="timedelta64[D]"), "time differences"),
    ("two columns", [[1, 2], [3, 4]], "one-dimensional"),
    ("ragged rows", [[1, 2], [3]], "must hold whole numbers, floats or datetimes"),
    ("a dictionary", {1: 2}, "got dict"),
]


@pytest.mark.parametrize(("X", "words"), [case[1:] for case in BAD_LINES], ids=[case[0] for case in BAD_LINES])
@pytest.mark.parametrize("concept_class", LINES, ids=lambda value: type(value).__name__)
def test_bad_points_on_a_line(concept_class: ConceptClass[Any], X: Any, words: str) -> None:
    concept = concept_class.erm([1, 2], [0, 1])
    dichotomies = concept_class.dichotomies([1, 2])
    rows = len(X) if isinstance(X, list) else 1
    for run in (
        lambda: concept_class.dichotomies(X),
        lambda: concept_class.erm(X, [0] * rows),
        lambda: concept_class.predict(concept, X),
        lambda: concept_class.disagreement(concept, concept, X),
        *([lambda: dichotomies.errors([0] * rows, at=X)] if X is not None else []),
    ):
        assert words.replace("\\", "") in refused(run)


BAD_PLANES: list[tuple[str, Any, str]] = [
    ("one column", [[1], [2]], "(rows, 2)"),
    ("one dimension", [1, 2], "(rows, 2)"),
    ("three columns", [[1, 2, SECRET]], "(rows, 2)"),
    ("NaN", [[1.0, float("nan")]], "finite"),
    ("strings", [["secret", "b"]], "must hold whole numbers, floats or datetimes"),
    ("objects", np.array([[SECRET, object()]], dtype=object), "must hold whole numbers, floats or datetimes"),
    ("datetimes", np.array([["2024-01-01", "2024-01-01"]], dtype="datetime64[D]"), "whole numbers"),
]


@pytest.mark.parametrize(("X", "words"), [case[1:] for case in BAD_PLANES], ids=[case[0] for case in BAD_PLANES])
@pytest.mark.parametrize("concept_class", PLANES, ids=lambda value: type(value).__name__)
def test_bad_points_in_a_plane(concept_class: ConceptClass[Any], X: Any, words: str) -> None:
    concept = concept_class.erm([[1, 2], [3, 4]], [0, 1])
    for run in (
        lambda: concept_class.dichotomies(X),
        lambda: concept_class.erm(X, [0] * len(X)),
        lambda: concept_class.predict(concept, X),
        lambda: concept_class.dichotomies([[1, 2]]).errors([0] * len(X), at=X),
    ):
        assert words in refused(run)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([0, 2], "labels 0 and 1"),
        ([0, -1], "labels 0 and 1"),
        ([0.0, float("nan")], "labels 0 and 1"),
        ([0, 0.5], "labels 0 and 1"),
        ([0, SECRET], "labels 0 and 1"),
        (["secret", "no"], "must hold whole numbers, floats or datetimes"),
        ([0], "one label per row"),
        ([0, 1, 1], "one label per row"),
        ([[0, 1]], "one label per row"),
        (1, "got int"),
        (np.array(["2024-01-01", "2024-01-01"], dtype="datetime64[D]"), "labels 0 and 1"),
        ([None, 1], "must hold whole numbers, floats or datetimes"),
    ],
)
@pytest.mark.parametrize("concept_class", [*LINES, Finite([[0] * 9, [1] * 9])], ids=lambda value: type(value).__name__)
def test_bad_labels(concept_class: ConceptClass[Any], y: Any, words: str) -> None:
    assert words in refused(lambda: concept_class.erm([1, 2], y))
    assert words in refused(lambda: concept_class.dichotomies([1, 2]).errors(y))


def test_labels_may_be_booleans_floats_or_a_column() -> None:
    for y in ([True, False], np.array([True, False]), [1.0, 0.0], [[1], [0]], np.array([1, 0], dtype=np.uint8)):
        assert Thresholds(bits=8).erm([1, 2], y) == Threshold(2)
        assert Thresholds(bits=8).erm([[1], [2]], y) == Threshold(2)


def test_points_may_be_booleans_whole_floats_or_narrow_integers() -> None:
    for X in ([1.0, 2.0], np.array([1, 2], dtype=np.int8), np.array([1, 2], dtype=np.uint64), [[1], [2]]):
        assert Thresholds(bits=8).erm(X, [1, 0]) == Threshold(2)
    assert Stumps(2, bits=1).erm(np.array([[True, False], [False, True]]), [1, 0]) == Stump(0, 1, ">=")
    assert Thresholds(bits=8).erm(np.array([1, 2], dtype=">i4"), [1, 0]) == Threshold(2)
    assert Thresholds().erm(np.array([1.5, 2.5], dtype=">f4"), [1, 0]) == Threshold(2.5)
    assert Thresholds().erm([2**63, -1], [0, 1]) == Threshold(2**63)  # numpy alone would make floats of these
    assert Thresholds().erm([1, 2.5], [1, 0]) == Threshold(2.5)
    assert "rounded" in refused(lambda: Thresholds().dichotomies([2**53 + 1, 2.5]))
    assert "rounded" in refused(lambda: Thresholds(domain=Floats()).dichotomies([2**53 + 1]))
    assert "rounded" in refused(lambda: Thresholds(domain=Floats(32)).dichotomies([0.1]))
    assert "rounded" in refused(lambda: Thresholds(domain=Floats(16)).dichotomies([10**400]))


def test_a_caller_may_reuse_its_array() -> None:
    X = np.array([1, 2, 3])
    for concept_class in LINES:
        dichotomies = concept_class.dichotomies(X)
        expected = [dichotomy.labels.tolist() for dichotomy in dichotomies]
        X[:] = 200
        assert [dichotomy.labels.tolist() for dichotomy in dichotomies] == expected
        X[:] = [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Thresholds(bits=0), "bits must be at least 1, got 0"),
        (lambda: Thresholds(bits=1.5), "bits must be a whole number"),  # type: ignore[arg-type]
        (lambda: Thresholds(bits=True), "bits must be a whole number"),
        (lambda: Thresholds(bits=8, domain=Floats()), "either bits or a domain"),
        (lambda: Thresholds(domain="float"), "got str"),  # type: ignore[arg-type]
        (lambda: KPoints(0, bits=8), "k must be at least 1, got 0"),
        (lambda: KPoints(5, bits=2), "at most the number of points in the domain, 4, got 5"),
        (lambda: Rectangles(0), "dimensions must be at least 1"),
        (lambda: Stumps(0), "features must be at least 1"),
        (lambda: Halfspaces(4), "dimensions must be at most 3, got 4"),
        (lambda: Floats(80), "16, 32 or 64, got 80"),
        (lambda: Datetimes("fortnight"), "got 'fortnight'"),
        (lambda: Finite([]), "must not be empty"),
        (lambda: Finite([[0, 1], [0]]), "of one length"),
        (lambda: Finite([[0, 2]]), "labels 0 and 1"),
        (lambda: Finite([abs, [0, 1]]), "all functions or all label vectors"),  # type: ignore[arg-type]
        (lambda: Finite([[0, 1], [1, 1]], vc_dimension=2), "at most 1"),
        (lambda: Products([]), "one or more"),
        (lambda: Unions([Thresholds]), "one or more"),  # type: ignore[list-item]
        (lambda: Unions([Thresholds(), Stumps(2)]), "same number of columns"),
    ],
)
def test_bad_parameters(make: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, TypeError)) as failure:
        make()
    assert words in str(failure.value)


def test_concepts_of_another_class() -> None:
    assert "must be of type Threshold, got Interval" in refused(lambda: Thresholds().predict(Interval(1, 2), [1]))  # type: ignore[arg-type]
    assert "2 dimensions, got 1" in refused(lambda: Rectangles(2).predict(Rectangle((1,), (2,)), [[1, 2]]))
    assert "features 0 … 1, got 5" in refused(lambda: Stumps(2).predict(Stump(5, 1), [[1, 2]]))


def test_indices_and_weights() -> None:
    dichotomies = Thresholds(bits=8).dichotomies([1, 2])
    assert dichotomies.concept(-1) == dichotomies.concept(2) == Threshold(3)
    for index in (3, -4):
        with pytest.raises(IndexError, match="must be in"):
            dichotomies[index]
    assert "whole number" in refused(lambda: dichotomies.concept(0.5))  # type: ignore[arg-type]
    assert "whole numbers" in refused(lambda: dichotomies.sums([0.5, SECRET]))
    assert "one whole number per row" in refused(lambda: dichotomies.sums([1, 2, SECRET]))
    assert dichotomies.sums([2**63 - 1, 2**63 - 1]).tolist() == [0, 2**63 - 1, 2**64 - 2]
    for number in (-1, 1):
        with pytest.raises(IndexError, match="number must be in"):
            dichotomies.member(1, number)
    assert "masked" in refused(lambda: Thresholds().dichotomies(np.ma.masked_equal([1, SECRET], 1)))
    assert "same type" in refused(lambda: Thresholds().dichotomies([1, 2]).errors([0], at=[0.5]))


junk = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.integers(),
    st.floats(),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=2), st.none(), st.lists(st.integers()))),
    st.binary(max_size=3),
    st.lists(st.complex_numbers()).map(np.array),
)
CLASSES: list[ConceptClass[Any]] = [
    *LINES,
    *PLANES,
    Thresholds(),
    Points(),
    Intervals(),
    Rectangles(1),
    Stumps(1),
    Halfspaces(1),
    Finite([[0, 1], [1, 0]]),
    Products([Thresholds(), Points()]),
    Unions([Thresholds(), Points()]),
]


@given(junk, junk, st.sampled_from(CLASSES))
def test_junk_is_read_or_refused_by_name(X: Any, y: Any, concept_class: ConceptClass[Any]) -> None:
    """Nothing but a TypeError or ValueError of our own, which names what was wrong."""
    message = "X "
    try:
        concept_class.erm(X, y)
    except (TypeError, ValueError) as error:
        message = str(error)
    assert message.startswith(("X ", "y "))


@given(st.lists(st.floats(), min_size=1), st.sampled_from([Integers(8), Floats(16), Floats(), Datetimes("s")]))
def test_floats_are_read_exactly_or_refused(values: list[float], domain: Domain) -> None:
    try:
        ranks = domain.ranks(values)
    except (TypeError, ValueError):
        return
    assert domain.values(ranks).tolist() == values


def test_lists_of_numpy_booleans_are_labels() -> None:
    lists: list[Any] = [[np.True_, np.False_], [np.True_, 0], np.array([True, False], dtype=object)]
    for labels in lists:
        assert Thresholds(bits=4).erm([1, 9], labels) == Thresholds(bits=4).erm([1, 9], [1, 0])
