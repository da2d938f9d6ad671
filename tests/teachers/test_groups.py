"""No group is ever in two shards, whatever its name is made of; what names no group is refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.data.groups import as_groups, numbered
from reticent.data.shards import deal
from reticent.data.tables import Array
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.predictors.private import PrivatePredictor
from reticent.teachers import PATEClassifier, Teachers

ROWS, SHARDS = 600, 20
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(ROWS, 2))
Y = (X[:, 0] > 0).astype(int)
PEOPLE = RANDOM.integers(0, 60, ROWS)


def sorted_as_before(groups: Array) -> Array:
    """The broken twin: groups told apart by sorting, for which names must have an order."""
    return np.asarray(np.unique(groups, return_inverse=True)[1]).ravel()


def torn(number: Array, groups: Any) -> int:
    """How many groups have several numbers."""
    seen: dict[Any, set[int]] = {}
    for name, one in zip(groups, number.tolist(), strict=True):
        if name == name:  # noqa: PLR0124  # not NaN
            seen.setdefault(name, set()).add(one)
    return sum(len(numbers) > 1 for numbers in seen.values())


def with_gaps() -> Array:
    column = PEOPLE.astype(object)
    column[100:600:100] = np.nan
    return column


def test_a_sort_tears_groups_apart_where_a_name_is_missing() -> None:
    assert torn(sorted_as_before(with_gaps()), with_gaps()) > 0


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, pd.NaT, Decimal("nan"), ("ann", np.nan)], ids=str)
def test_a_missing_name_is_refused_everywhere(missing: Any) -> None:
    for groups in (PEOPLE.astype(object), PEOPLE.astype(str).astype(object)):
        groups[7] = missing
        for column in (groups, groups.tolist(), pd.Series(groups)):
            for refused in (
                lambda column=column: Teachers(shards=SHARDS, classes=(0, 1)).fit(X, Y, groups=column),
                lambda column=column: PATEClassifier(epsilon=1, delta=1e-5, classes=(0, 1)).fit(
                    X, Y, public=X[:50], groups=column
                ),
                lambda column=column: EverlastingPredictor(epsilon=9, delta=1e-5, classes=(0, 1)).fit(
                    X, Y, groups=column
                ),
                lambda column=column: PrivatePredictor(
                    method="votes", epsilon=1, delta=1e-5, queries=9, classes=(0, 1)
                ).fit(X, Y, groups=column),
            ):
                with pytest.raises(ValueError, match="groups must name the group of every row: some are missing"):
                    refused()


@pytest.mark.parametrize(
    "groups",
    [
        np.where(PEOPLE < 5, np.nan, PEOPLE),
        pd.Series(PEOPLE, dtype="Int64").where(PEOPLE > 5),
        pd.Series(PEOPLE).astype(object).where(PEOPLE > 5).astype("category"),
        np.where(PEOPLE < 5, np.datetime64("NaT"), np.datetime64("2026-01-01") + PEOPLE),
    ],
    ids=["float", "Int64", "category", "dates"],
)
def test_columns_with_gaps_are_refused(groups: Any) -> None:
    with pytest.raises(ValueError, match="some are missing"):
        deal(ROWS, SHARDS, as_groups(groups, ROWS))


def test_names_of_two_kinds_are_refused() -> None:
    for groups in ([1, "b"] * 300, np.array([1, "b"] * 300, dtype=object)):
        with pytest.raises(TypeError, match="groups must be all numbers or all strings, got some of both"):
            numbered(as_groups(groups, ROWS))
    with pytest.raises(TypeError, match="groups must be numbers, strings or dates, got an array of"):
        numbered(np.zeros(3, dtype=[("a", float)]))
    with pytest.raises(TypeError, match="groups must be numbers, strings, dates or tuples of these"):
        numbered(np.array([{1}, {2}, {1}], dtype=object))


NAMES = st.one_of(
    st.lists(st.one_of(st.integers(-3, 3), st.booleans(), st.sampled_from([0.0, 1.0, 2.0, Fraction(1), Decimal(2)]))),
    st.lists(st.sampled_from(["", "a", "a ", "A", "é", "é"])),
    st.lists(st.frozensets(st.integers(0, 2))),  # which have no total order
    st.lists(st.tuples(st.sampled_from(["ward", "home"]), st.integers(0, 2))),
    st.lists(st.sampled_from([datetime.date(2026, 1, day) for day in (1, 2, 3)])),
)


@given(names=NAMES)
def test_equal_names_are_one_group_and_others_are_not(names: list[Any]) -> None:
    if not names:
        return
    found = numbered(as_groups(names, len(names))).tolist()
    assert [[a == b for a in names] for b in names] == [[a == b for a in found] for b in found]
    first = list(dict.fromkeys(found))
    assert first == list(range(len(first)))  # numbered as they appear


def test_one_vote_for_a_group_whose_name_is_any_of_these() -> None:
    mine = PEOPLE == 37
    other_X, other_y = X.copy(), Y.copy()
    other_X[mine], other_y[mine] = [50.0, 0.0], 0
    for groups in (
        PEOPLE,
        PEOPLE.astype(str),
        PEOPLE.tolist(),
        [(one, "a") for one in PEOPLE.tolist()],
        PEOPLE.astype(object),
    ):
        before, after = (
            Teachers(shards=SHARDS, classes=(0, 1)).fit(rows, labels, groups=groups).votes([[5.0, 0.0], [-5.0, 1.0]])
            for rows, labels in ((X, Y), (other_X, other_y))
        )
        assert np.abs(before - after).max() <= 1
