"""MLflow's four JSON forms, and CSV."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from stand_in import MIXED, Column, Rules

from reticent.service.http.invocations import read_csv, read_json
from reticent.service.http.problems import Problem

FORMS: list[dict[str, Any]] = [
    {"dataframe_split": {"columns": ["age", "weight"], "data": [[1, 2.5], [3, None]]}},
    {"dataframe_split": {"columns": ["weight", "age"], "index": [0, 1], "data": [[2.5, 1], [None, 3]]}},
    {"dataframe_split": {"columns": [0, 1], "data": [[1, 2.5], [3, None]]}},
    {"dataframe_split": {"columns": ["age", "other", "weight"], "data": [[1, "x", 2.5], [3, "y", None]]}},
    {"dataframe_records": [{"age": 1, "weight": 2.5}, {"weight": None, "age": 3, "more": "x"}]},
    {"instances": [[1, 2.5], [3, None]]},
    {"instances": [{"age": 1, "weight": 2.5}, {"age": 3, "weight": None}]},
    {"inputs": [[1, 2.5], [3, None]]},
    {"inputs": {"age": [1, 3], "weight": [2.5, None]}},
    {"inputs": {"age": [[1], [3]], "weight": [[2.5], [None]]}},
    {"inputs": {"more": ["x"] * 11, "age": [1, 3], "weight": [2.5, None]}},
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(form: dict[str, Any]) -> None:
    rows = read_json(json.dumps(form).encode(), Rules(), 10)
    assert np.array_equal(rows, [[1, 2.5], [3, np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    "text", ["age,weight\n1,2.5\n3,\n", "\ufeffweight,age,more\r\n2.5,1,x\r\n?,3,y", '"age",weight\n1,2.5\n3,1_0\n']
)
def test_csv(text: str) -> None:
    assert np.array_equal(read_csv(text.encode(), Rules(), 10), [[1, 2.5], [3, np.nan]], equal_nan=True)


def test_categories() -> None:
    split = {"dataframe_split": {"columns": ["age", "sex"], "data": [[1, "f"], [2, "?"], [3, 4]]}}
    expected: list[list[float]] = [[1, 0], [2, np.nan], [3, np.nan]]
    assert np.array_equal(read_json(json.dumps(split).encode(), MIXED, 10), expected, equal_nan=True)
    assert np.array_equal(read_csv(b"sex,age\nf,1\n?,2\n4,3", MIXED, 10), expected, equal_nan=True)


def test_one_column_of_plain_numbers() -> None:
    rules = Rules((Column("age"),))
    assert read_json(b'{"instances": [1, 2]}', rules, 10).tolist() == [[1], [2]]
    assert read_json(b'{"inputs": [[1], [2]]}', rules, 10).tolist() == [[1], [2]]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e309", "1" + "0" * 400, "1" + "0" * 5000])
@pytest.mark.parametrize("form", FORMS, ids=[next(iter(one)) for one in FORMS])
def test_no_number_is_refused(form: dict[str, Any], number: str) -> None:
    """What clients write for a missing number, and what is too large for one."""
    text = json.dumps(form).replace("2.5", number)
    value = np.nan if number == "NaN" else np.inf
    assert np.array_equal(read_json(text.encode(), Rules(), 10), [[1, value], [3, np.nan]], equal_nan=True)


@pytest.mark.parametrize("text", ["age\n1\n\n3\n", "\r\nage\r\n1\r\n\r\n3", 'age\n1\n""\n3\n', "age\n1\n \n3\n"])
def test_an_empty_line_is_a_missing_cell_of_a_single_column(text: str) -> None:
    rows = read_csv(text.encode(), Rules((Column("age"),)), 10)
    assert np.array_equal(rows, np.array([[1], [np.nan], [3]]), equal_nan=True)


def test_an_empty_line_is_no_row_of_two_columns() -> None:
    assert read_csv(b"age,weight\n\n1,2\n\n", Rules(), 10).tolist() == [[1, 2]]


BAD: list[Any] = [
    {},
    [],
    None,
    {"instances": [[1, 2]], "inputs": [[1, 2]]},
    {"instances": []},
    {"instances": [[1]]},
    {"instances": [[1, 2], [3]]},
    {"instances": [[1, 2], {"age": 1, "weight": 2}]},
    {"instances": [1, 2]},
    {"instances": "secret"},
    {"inputs": {}},
    {"inputs": {"age": [1]}},
    {"inputs": {"age": [1], "weight": [1, 2]}},
    {"inputs": {"age": [], "weight": []}},
    {"dataframe_split": {"columns": ["age"], "data": [[1]]}},
    {"dataframe_split": {"columns": ["age", "age"], "data": [[1, 2]]}},
    {"dataframe_split": {"columns": ["age", "weight"], "data": [[1]]}},
    {"dataframe_split": {"columns": ["age", "weight"], "data": []}},
    {"dataframe_records": [{"age": 1}]},
    {"dataframe_records": []},
    {"instances": [[1, 2]], "params": {"temperature": 1}},
    {"instances": [[1, 2]] * 11},
]


@pytest.mark.parametrize("body", BAD)
def test_refused_by_form(body: Any) -> None:
    with pytest.raises(Problem) as refused:
        read_json(json.dumps(body).encode(), Rules(), 10)
    assert refused.value.status in (400, 413)
    assert "secret" not in refused.value.detail


@pytest.mark.parametrize(
    "body",
    [b"", b"age,weight", b"age\n1", b"age,age,weight\n1,2,3", b"\xff", b"ag\xe9,weight\n1,2", b"age,weight\n\n"],
)
def test_csv_refused_by_form(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_csv(body, Rules(), 10)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ({"inputs": {"age": [1]}}, "there is no column 'weight'; the columns must be 'age', 'weight'"),
        ({"inputs": {"age": [1], "more": [1, 2]}}, "there is no column 'weight'"),
        ({"dataframe_split": {"columns": ["age"], "data": [[1]]}}, "there is no column 'weight'"),
        ({"dataframe_records": [{"age": 1, "weight": 2}, {"age": 1, "wheight": 2}]}, "every row must have 'weight'"),
        ({"instances": [{"height": 1}]}, "every row must have 'age', 'weight'"),
        (b"height,age\n1,2\n", "there is no column 'weight'"),
    ],
)
def test_a_missing_column_is_named(body: Any, missing: str) -> None:
    with pytest.raises(Problem) as refused:
        read_csv(body, Rules(), 10) if isinstance(body, bytes) else read_json(json.dumps(body).encode(), Rules(), 10)
    assert missing in refused.value.detail
    assert "height'" not in refused.value.detail.replace("weight'", "")


def test_too_many_lines() -> None:
    with pytest.raises(Problem) as refused:
        read_csv(b"age,weight\n" + b"1,2\n" * 11, Rules(), 10)
    assert refused.value.status == 413
