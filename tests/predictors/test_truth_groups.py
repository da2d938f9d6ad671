"""Later labels of people: one phase, one role, one name, over day one, labelled rows and queries together."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest
from truth_models import MAKERS, chain, intake, next_rows, rows_for, spread, votes

from reticent.data.groups import named_groups

DAY_ONE = [f"p{one}" for one in range(40)]


def names(count: int, start: int = 100) -> list[str]:
    return [f"q{one}" for one in range(start, start + count)]


@pytest.mark.parametrize("engine", MAKERS)
def test_day_one_people_are_barred(engine: str) -> None:
    model = MAKERS[engine](groups=DAY_ONE)
    X, y = rows_for(model, 6)
    assert model.add_labelled(X, y, ["p0", "new", "p39", "p7", "other", "p0"]).rows == 2
    assert model.labelled_waiting_ == 2


@pytest.mark.parametrize("engine", MAKERS)
def test_a_person_may_come_back_if_two_phases_are_paid_for(engine: str) -> None:
    model = MAKERS[engine](groups=DAY_ONE, client_phases=2)
    X, y = rows_for(model, 30)
    assert model.guarantee_.epsilon == 16
    assert model.add_labelled(X[:20], y[:20], DAY_ONE[:20]).rows == 20
    model.turn_over()
    assert model.add_labelled(X[:20], y[:20], DAY_ONE[:20]).rows == 0
    assert model.add_labelled(X[:2], y[:2], ["p20", "new"]).rows == 2


@pytest.mark.parametrize("numbered", [[3, 5.0, "eve", True], ["3", "5", "eve", "1"]])
def test_a_name_is_one_however_it_is_written(numbered: list[Any]) -> None:
    model = chain(groups=[str(one) for one in range(40)])
    X, y = rows_for(model, 1)
    for name in numbered:
        strings = isinstance(name, str)
        taken = model.add_labelled(X, y, [name])
        assert taken.rows == (1 if name == "eve" else 0), (name, strings)
    for name in (3.0, np.float32(3), np.int8(3), "3", b"3", np.str_("3")):
        assert model.add_labelled(X, y, [name]).rows == 0
    days = ["2020-01-01", date(2020, 1, 1), np.datetime64("2020-01-01")]
    assert named_groups(days[1:], 2).tolist() == ["2020-01-01T00:00:00.000000"] * 2


def test_what_names_nobody_is_refused_before_anything_is_taken() -> None:
    model = chain(groups=DAY_ONE)
    X, y = rows_for(model, 2)
    for wrong in ([None, "a"], ["a", float("nan")], ["a"], None):
        with pytest.raises((ValueError, TypeError), match="groups"):
            model.add_labelled(X, y, wrong)
    with pytest.raises(ValueError, match="groups must be given if and only if"):
        chain().add_labelled(X, y, ["a", "b"])
    assert model.labelled_waiting_ == 0
    assert model._machine.admission.groups == 0


def test_a_chain_keeps_the_first_row_of_a_person_and_votes_a_shardful() -> None:
    for model, kept in ((chain(groups=DAY_ONE), 1), (votes(groups=DAY_ONE), 2)):
        X, y = rows_for(model, 5)
        assert model.add_labelled(X, y, ["ann"] * 5).rows == kept
        assert model.add_labelled(X, y, ["ann"] * 5).rows == 0


def test_a_person_is_in_one_phase_and_has_one_role() -> None:
    """Rows of one person straddle the end of a phase; the roles go by the number of the person."""
    model = votes(groups=DAY_ONE, phase_rows=6, gauge_share=0.5, rows_per_teacher=2)
    X, y = spread(12, 1)
    who = ["a", "a", "b", "c", "b", "a", "a", "c", "d", "b", "e", "d"]
    taken = model.add_labelled(X, y, who)
    assert (taken.rows, taken.phase, taken.missing) == (9, 3, 3)  # a, b and c are in the first six: no more of them
    rows = next_rows(model)
    assert rows.gauge is not None
    np.testing.assert_array_equal(rows.gauge.X, X[[0, 3]])  # the first rows of a and c
    np.testing.assert_array_equal(rows.training.X, X[[2, 4]])  # all rows of b
    assert rows.training.groups is not None
    assert len(set(rows.training.groups.tolist())) == 1
    model.turn_over()
    np.testing.assert_array_equal(next_rows(model).gauge.X, X[[8]])  # type: ignore[union-attr]
    np.testing.assert_array_equal(next_rows(model).training.X, X[[10]])
    assert model.add_labelled(X[:4], y[:4], ["a", "b", "c", "f"]).rows == 1


@pytest.mark.parametrize("engine", MAKERS)
def test_rows_and_queries_of_one_name_are_one_person(engine: str) -> None:
    model = MAKERS[engine](groups=DAY_ONE, truth="both", gauge_share=0.5, client_share=1, growth=1)
    X, y = rows_for(model, 10)
    model.add_labelled(X[:2], y[:2], ["ann", "bob"])  # Ann judges, Bob trains
    found = model.answer(X[2:6], ["bob", "ann", "cleo", "p3"])
    most = model._machine.factory.rows_per_group
    assert model.rows_gathered_ == (3 if most == 1 else 5)  # p3 was there on day one
    model.feedback(found.tickets, y[2:6], ["bob", "ann", "cleo", "p3"])
    rows = next_rows(model)
    assert rows.gauge is not None
    assert len(rows.gauge.X) == 2  # one row of Ann, and Cleo's
    assert len(rows.training.X) == (1 if most == 1 else 2)


def test_queries_after_the_window_count_against_the_phases_of_a_client() -> None:
    model = chain(groups=DAY_ONE, truth="feedback", phase_rows=4, wait=3, client_share=1)
    X, _ = rows_for(model, 20)
    model.answer(X[:7], ["a", "b", "c", "d", "a", "e", "e"])
    model.answer(X[7:10], ["e", "a", "f"])
    assert model.phase_ == 2
    assert model.rows_gathered_ == 2  # e once, f; a was in the window before
    assert model.rows_of_client("a") == (0, 0)


def test_people_who_all_come_back_do_not_stop_a_chain() -> None:
    model = chain(groups=DAY_ONE, truth="feedback", phase_rows=4, client_share=1)
    X, _ = rows_for(model, 40)
    who = ["a", "b", "c", "d"] * 10
    answers = model.answer(X, who)
    assert answers.refused is None
    assert len(answers.class_indices) == 40
    assert model.phase_ == 10
    assert intake(model).count == 0


def test_labelled_rows_beyond_the_share_of_a_client_stay_counted() -> None:
    model = votes(groups=DAY_ONE, truth="both", rows_per_teacher=3, growth=1, client_share=0.05)
    X, y = rows_for(model, 10)
    assert model.add_labelled(X[:5], y[:5], ["ann"] * 5).rows == 5
    model.answer(X[:1], ["ann"])  # beyond her share of queries, which is 1
    assert model.add_labelled(X[:5], y[:5], ["ann"] * 5).rows == 1  # six, two shards of three
