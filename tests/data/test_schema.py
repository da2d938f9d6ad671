"""The schema: rows become numbers by public rules, each by itself, and none is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.data.cells import as_number, as_numbers
from reticent.data.schema import Column, Schema, SchemaError, toml
from reticent.data.schema_draft import draft

CLINIC = Schema(
    columns=(
        Column("age", "number", range=(0, 100)),
        Column("ward", "category", categories=("a", "b")),
        Column("weight", "number", range=(-50, 150), missing=-50),
        Column("kind", "category", categories=(1, 2.5), other=True),
        Column("smokes", "category", categories=(False, True)),
    ),
    target="readmitted",
    classes=("no", "yes"),
    group="who",
)
WIDTH = 9

cells = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=4),
    st.sampled_from(["a", " b ", "1", "1.0", "2.5", "true", "False", "nan", "inf", "-inf", "1e999", "1_0", "٣", ""]),
    st.sampled_from([10**400, -(10**400)]),
)  # fmt: skip
rows = st.fixed_dictionaries({column.name: cells for column in CLINIC.columns})


def table_of(some: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {column.name: [row[column.name] for row in some] for column in CLINIC.columns}


def encode_by_rows(some: list[dict[str, Any]]) -> list[list[float]]:
    return [CLINIC.encode(table_of([row]))[0].tolist() for row in some]


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rules() -> None:
    table = {
        "age": [25, 1000, None],
        "ward": ["b", " a ", "c"],
        "weight": ["50", "-inf", ""],
        "kind": ["1.0", 2.5, "3"],
        "smokes": ["TRUE", 0, None],
    }
    assert CLINIC.features == [
        "age", "weight", "ward=a", "ward=b", "kind=1", "kind=2.5", "kind=?", "smokes=false", "smokes=true",
    ]  # fmt: skip
    assert CLINIC.encode(table).tolist() == [
        [-0.5, 0.0, 0, 1, 1, 0, 0, 0, 1],
        [1.0, -1.0, 1, 0, 0, 1, 0, 1, 0],
        [0.0, -1.0, 0, 0, 0, 0, 1, 0, 0],
    ]


def test_labels_that_are_none_count_as_the_first_class() -> None:
    assert CLINIC.class_indices(["yes", "no", None, "", "YES", 3, "yes "]).tolist() == [1, 0, 0, 0, 0, 0, 1]
    numbers = replace(CLINIC, classes=(0, 1))
    assert numbers.class_indices(["1", "0", "1.0", "x", ""]).tolist() == [1, 0, 1, 0, 0]
    assert numbers.class_indices(np.array([1.0, np.nan, 0.0])).tolist() == [1, 0, 0]
    truths = replace(CLINIC, classes=(False, True))
    assert truths.class_indices(np.array([True, False])).tolist() == [1, 0]
    assert truths.class_indices(["true", "0"]).tolist() == [1, 0]


def test_class_indices_are_in_ascending_order_however_classes_are_declared() -> None:
    reversed_order = replace(CLINIC, classes=("yes", "no"))
    assert reversed_order.ascending_classes.tolist() == ["no", "yes"]
    assert reversed_order.class_indices(["yes", "no", "perhaps"]).tolist() == [1, 0, 1]  # else the first declared


def test_text_means_what_numbers_mean() -> None:
    values = np.array([1.5, -3.0, 1e300, 77.0])
    text = [repr(float(one)) for one in values]
    assert as_numbers(text).tolist() == as_numbers(values).tolist() == as_numbers(values.astype(object)).tolist()
    assert np.isnan(as_numbers(["1_0", "٣", "1,5", "", None, b"x", "abc"])).all()
    assert as_numbers([10**400, -(10**400), True]).tolist() == [np.inf, -np.inf, 1.0]
    with pytest.raises(TypeError, match="must hold numbers"):
        as_numbers(np.array(["2020-01-01"], dtype="datetime64[D]"))


@given(st.lists(st.floats() | st.booleans() | st.none(), max_size=8))
def test_cells_that_are_read_at_once_are_the_numbers_that_each_is_by_itself(cells: list[Any]) -> None:
    one_by_one = np.array([as_number(one) for one in cells], dtype=np.float64)
    np.testing.assert_array_equal(as_numbers(cells), one_by_one)
    np.testing.assert_array_equal(as_numbers([*cells, "x"])[:-1], one_by_one)  # which reads them one by one


@given(st.lists(rows, min_size=1, max_size=5))
def test_no_row_is_refused_and_every_number_is_in_bounds(some: list[dict[str, Any]]) -> None:
    encoded = CLINIC.encode(table_of(some))
    assert encoded.shape == (len(some), WIDTH)
    assert encoded.dtype == np.float64
    assert (np.abs(encoded) <= 1).all()
    assert (np.linalg.norm(encoded, axis=1) <= CLINIC.row_norm).all()


Encode = Callable[[Mapping[str, list[Any]]], Any]


def moves_one_row_only(encode: Encode, some: list[dict[str, Any]], place: int, other: dict[str, Any]) -> bool:
    """Whether replacing a row leaves the number of rows, and all other encoded rows, as they were."""
    neighbour = [*some[:place], other, *some[place + 1 :]]
    before, after = np.asarray(encode(table_of(some))), np.asarray(encode(table_of(neighbour)))
    return before.shape == after.shape and np.array_equal(np.delete(before, place, 0), np.delete(after, place, 0))


@given(st.lists(rows, min_size=1, max_size=5), st.integers(0, 4), rows)
def test_each_row_is_encoded_by_itself(some: list[dict[str, Any]], place: int, other: dict[str, Any]) -> None:
    assert moves_one_row_only(CLINIC.encode, some, place % len(some), other)
    assert CLINIC.encode(table_of(some)).tolist() == encode_by_rows(some)


def observed_range(table: Mapping[str, list[Any]]) -> Any:
    """A twin: scales by the greatest age of the table."""
    age = np.nan_to_num(as_numbers(table["age"]))
    return np.column_stack([age / max(1.0, np.abs(age).max()), CLINIC.encode(table)[:, 1:]])


def dropped_rows(table: Mapping[str, list[Any]]) -> Any:
    """A twin: leaves out rows of wards that were not declared."""
    encoded = CLINIC.encode(table)
    return encoded[encoded[:, 2:4].any(axis=1)]


def observed_categories(table: Mapping[str, list[Any]]) -> Any:
    """A twin: categories are numbered as they come."""
    seen = {one: place for place, one in enumerate(dict.fromkeys(table["ward"]))}
    return np.array([[seen[one]] for one in table["ward"]])


@pytest.mark.parametrize("twin", [observed_range, dropped_rows, observed_categories])
def test_twins_that_look_at_the_table_are_rejected(twin: Encode) -> None:
    row = {"age": 50, "ward": "a", "weight": 0, "kind": 1, "smokes": True}
    other = {**row, "age": 90, "ward": "z"}
    some = [row, {**row, "ward": "b"}, {**row, "ward": "a"}]
    assert moves_one_row_only(CLINIC.encode, some, 0, other)
    assert not moves_one_row_only(twin, some, 0, other)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="same number of rows"):
        CLINIC.encode({"age": [1], "ward": ["a", "b"], "weight": [1], "kind": [1], "smokes": [True]})


def test_ends_of_a_range_are_exactly_one() -> None:
    for low, high in ((0.1, 0.3), (-1e300, 1e300), (1e-300, 3e-300), (-7.7, 123.4)):
        one = Schema((Column("x", "number", range=(low, high)),), "y", (0, 1))
        encoded = one.encode({"x": [low, high, -np.inf, np.inf, 1.7e308, np.nan]})
        assert encoded[:, 0].tolist() == pytest.approx([-1, 1, -1, 1, 1, 0], abs=1e-12)
        assert np.abs(encoded).max() <= 1


# ── TOML ──────────────────────────────────────────────────────────────────────────────────────────────────────────

names = st.text(min_size=1, max_size=10).filter(str.isprintable)


@given(names, st.lists(st.text(max_size=6), min_size=1, max_size=4, unique_by=str.strip))
def test_round_trip(name: str, categories: list[str]) -> None:
    made = Schema(
        (Column(name, "category", categories=tuple(categories)), Column(name + "2", "number", range=(-1.5, 2))),
        target=name + "3",
        classes=(True, False),
    )
    assert Schema.from_toml(made.to_toml()) == made
    assert Schema.from_toml(made.to_toml() + "\n[model]\nepsilon = 1\n") == made


@pytest.mark.slow
@given(st.recursive(st.one_of(st.text(), st.booleans(), st.integers(-(2**60), 2**60)), st.lists, max_leaves=5))
def test_values_are_toml(value: Any) -> None:
    assert tomllib.loads(f"x = {toml(value)}") == {"x": value}


def test_the_kind_may_be_left_out() -> None:
    text = 'target = "t"\nclasses = [0, 1]\n[[columns]]\nname = "x"\nrange = [0, 1]\ncategories = []\n'
    text += '[[columns]]\nname = "c"\nrange = []\ncategories = ["a"]\n'
    assert [one.kind for one in Schema.from_toml(text).columns] == ["number", "category"]


START = 'target = "t"\nclasses = [0, 1]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x =", "no TOML"),
        (START, "at least one column"),
        (START + "columns = 3", "under .*columns"),
        (START + "colour = 3", "'colour', which is not known"),
        (START + '[[columns]]\nname = "x"\nrange = [0, 1]\ntypo = 1', "'x' has 'typo'"),
        (START + "[[columns]]\nrange = [0, 1]", "name of a column"),
        (START + '[[columns]]\nname = "x"', "'x': range must be two numbers"),
        (START + '[[columns]]\nname = "x"\nrange = [2020-01-01, 2030-01-01]', "; write a date as days since a fixed"),
        (START + '[[columns]]\nname = "x"\nrange = [1, 0]', "'x': range must have the lesser end first"),
        (START + '[[columns]]\nname = "x"\nrange = [0, inf]', "'x': range must be two numbers"),
        (START + '[[columns]]\nname = "x"\nrange = [0, 5e-324]', "'x': range must have .* further apart"),
        (START + '[[columns]]\nname = "x"\nrange = ["a", "b"]', "'x': range must be two numbers"),
        (START + '[[columns]]\nname = "x"\nrange = 3', "'x': range must be a list"),
        (START + '[[columns]]\nname = "x"\nrange = [0, 1]\nmissing = 2', "'x': missing must be a number of the range"),
        (START + '[[columns]]\nname = "x"\nkind = "date"\nrange = [0, 1]', "'x': kind must be"),
        (START + '[[columns]]\nname = "x"\nkind = "number"\ncategories = ["a"]', "'x': a number has a range"),
        (START + '[[columns]]\nname = "x"\ncategories = ["a"]\nrange = [0, 1]', "'x': a category has categories"),
        (START + '[[columns]]\nname = "x"\nkind = "category"\nother = true', "'x': categories must be listed"),
        (START + '[[columns]]\nname = "x"\ncategories = ["a", " a"]', "'x': categories must be different"),
        (START + '[[columns]]\nname = "x"\ncategories = ["a", 1]', "'x': categories must be all text"),
        (START + '[[columns]]\nname = "x"\ncategories = [nan]', "'x': categories must be all text"),
        (START + '[[columns]]\nname = "x"\ncategories = ["a"]\nother = 1', "'x': other must be"),
        (START + 2 * '[[columns]]\nname = "x"\nrange = [0, 1]\n', "two columns have the same name"),
        (START + '[[columns]]\nname = "t"\nrange = [0, 1]', "target 't' must not be learned from"),
        ('group = "x"\n' + START + '[[columns]]\nname = "x"\nrange = [0, 1]', "group 'x' must not be learned from"),
        ('group = "t"\n' + START + '[[columns]]\nname = "x"\nrange = [0, 1]', "different columns"),
        ('target = "t"\nclasses = [0]\n[[columns]]\nname = "x"\nrange = [0, 1]', "at least two labels"),
        ('target = "t"\nclasses = [0, 0.0]\n[[columns]]\nname = "x"\nrange = [0, 1]', "classes must be different"),
        ('target = 3\nclasses = [0, 1]\n[[columns]]\nname = "x"\nrange = [0, 1]', "target must be the name"),
    ],
)  # fmt: skip
def test_what_will_not_do_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_toml(text)


def test_a_file_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(SchemaError, match=r"nothing.toml cannot be read: No such file"):
        Schema.read(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(SchemaError, match=r"bad.toml cannot be read: it must be in UTF-8"):
        Schema.read(tmp_path / "bad.toml")


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_draft_says_what_is_to_be_filled_in() -> None:
    text = draft(["who", "age", "ward", "readmitted"], {"ward": "category"}, target="readmitted", group="who")
    page = tomllib.loads(text)
    assert page == {
        "target": "readmitted",
        "classes": [],
        "group": "who",
        "columns": [{"name": "age", "range": [], "categories": []}, {"name": "ward", "categories": []}],
    }
    assert "must not be" in text
    assert "write a date as a number too: days since a fixed date" in text
    assert "# the person a row belongs to: all rows of one person are protected together" in text
    with pytest.raises(SchemaError, match=r"filled in: classes, range or categories of age, categories of ward$"):
        Schema.from_toml(text)


def test_a_draft_that_is_filled_in_is_a_schema() -> None:
    text = draft(["age", "ward", 'odd "name"'], {'odd "name"': "number"}, target="ward")
    filled = text.replace("classes = []", 'classes = ["a", "b"]').replace("range = []", "range = [0, 120]")
    assert [one.name for one in Schema.from_toml(filled).columns] == ["age", 'odd "name"']


def test_a_draft_for_a_column_that_is_not_there() -> None:
    with pytest.raises(SchemaError, match="target 'x' is no column of the table; there are: a, b"):
        draft(["a", "b"], {}, target="x")


def test_numbers_as_a_whole_are_encoded_as_their_columns_are() -> None:
    schema = Schema(
        columns=(Column("a", "number", range=(0, 3)), Column("b", "number", range=(-7, 0.1), missing=-1)),
        target="y",
        classes=(0, 1),
    )
    numbers = np.random.default_rng(0).normal(0, 5, (1000, 2))
    numbers[::7, 0], numbers[::11, 1], numbers[::13, 1], numbers[::17] = np.nan, np.inf, -np.inf, np.nan
    right = schema.encode({"a": numbers[:, 0], "b": numbers[:, 1]})
    np.testing.assert_array_equal(schema.encode_numbers(numbers.copy()), right)
    np.testing.assert_array_equal(schema.encode_numbers(np.asfortranarray(numbers)), right)
    assert schema.only_numbers
    with pytest.raises(ValueError, match="2 columns"):
        schema.encode_numbers(numbers[:, :1])
