"""The Open Inference Protocol: tensors in and out."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from stand_in import MIXED, Column, Rules

from reticent.service.http import metadata, open_inference
from reticent.service.http.problems import Problem


def tensor(
    shape: list[Any], data: Any = None, datatype: str = "FP64", name: str = "rows", **more: Any
) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, **({} if data is None else {"data": data}), **more}


def read(
    *inputs: Any, rules: Rules | None = None, tail: bytes = b"", most: int = 100, **more: Any
) -> open_inference.Asked:
    head = json.dumps({"inputs": list(inputs), **more}).encode()
    return open_inference.read(head + tail, str(len(head)) if tail else None, rules or Rules(), most)


ROWS = np.array([[1.5, 2.0], [3.0, -4.0]])


def test_json_flat_and_nested() -> None:
    assert (read(tensor([2, 2], [1.5, 2, 3, -4])).rows == ROWS).all()
    assert (read(tensor([2, 2], [[1.5, 2], [3, -4]])).rows == ROWS).all()
    assert (read(tensor([2, 2], [1.5, 2, 3, -4], name="anything")).rows == ROWS).all()


def test_null_is_a_missing_number_and_reaches_the_answering() -> None:
    assert np.isnan(read(tensor([1, 2], [None, 2])).rows).tolist() == [[True, False]]


@pytest.mark.parametrize("datatype", [one for one in open_inference.NUMBERS if one != "BF16"])
def test_every_datatype_in_binary(datatype: str) -> None:
    values = np.array([[1, 0], [1, 1]], dtype=open_inference.NUMBERS[datatype])
    data = values.tobytes()
    asked = read(tensor([2, 2], datatype=datatype, parameters={"binary_data_size": len(data)}), tail=data)
    assert asked.rows.dtype == np.float64
    assert (asked.rows == values).all()


def test_bf16_and_odd_truths() -> None:
    data = (np.array([1.5, -2.0], dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes()
    asked = read(tensor([1, 2], datatype="BF16", parameters={"binary_data_size": 4}), tail=data)
    assert asked.rows.tolist() == [[1.5, -2.0]]
    truths = read(tensor([1, 2], datatype="BOOL", parameters={"binary_data_size": 2}), tail=b"\x02\x00")
    assert truths.rows.tolist() == [[1.0, 0.0]]


def test_values_are_never_refused() -> None:
    data = np.array([[np.nan, np.inf], [-np.inf, 1e308]]).tobytes()
    assert read(tensor([2, 2], parameters={"binary_data_size": 32}), tail=data).rows.shape == (2, 2)


BEYOND: list[tuple[str, float]] = [
    ("NaN", np.nan), ("Infinity", np.inf), ("-Infinity", -np.inf), ("1e309", np.inf), ("-1e999", -np.inf),
    ("1" + "0" * 400, np.inf), ("-1" + "0" * 400, -np.inf), ("1" + "0" * 5000, np.inf), ("1" + "0" * 300, 1e300),
]  # fmt: skip


@pytest.mark.parametrize(("number", "value"), BEYOND, ids=[one[0][:9] for one in BEYOND])
@pytest.mark.parametrize("form", ["[%s, 2]", "[[%s, 2]]"])
def test_no_number_is_refused_as_json_either(number: str, value: float, form: str) -> None:
    whole = '{"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": %s}], "id": "x"}'
    asked = open_inference.read((whole % (form % number)).encode(), None, Rules(), 100)
    assert np.array_equal(asked.rows, [[value, 2]], equal_nan=True)
    assert asked.id == "x"


@pytest.mark.parametrize(
    "data",
    ['[NaN, "secret", 1]', '[[NaN, 1, "secret"]]', "[NaN]", "NaN", "[1e309, [1], 2]", '{"secret": [NaN]}', "[NaN, 1"],
)
def test_beside_such_numbers_forms_are_refused_as_ever(data: str) -> None:
    body = '{"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": ' + data + "}]}"
    with pytest.raises(Problem) as refused:
        open_inference.read(body.encode(), None, Rules(), 100)
    assert refused.value.status == 400
    assert "secret" not in refused.value.detail


@pytest.mark.parametrize("id", ['"\\ud800"', "NaN", "1e309"])
def test_beside_such_numbers_an_id_is_text_as_ever(id: str) -> None:
    tensor = '{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [NaN, 1]}'
    with pytest.raises(Problem) as refused:
        open_inference.read(f'{{"inputs": [{tensor}], "id": {id}}}'.encode(), None, Rules(), 100)
    assert refused.value.status == 400


@pytest.mark.parametrize("count", [10, 50_000])
def test_a_list_in_one_column_is_a_cell_however_many_there_are(count: int) -> None:
    rules = Rules((Column("x"),))
    data = [[0.25]] * (count - 1) + [[0.5, 0.6]]
    asked = read(tensor([count, 1], data, name="x"), rules=rules, most=count)
    assert asked.rows.shape == (count, 1)
    assert (asked.rows[:-1] == 0.25).all()
    assert np.isnan(asked.rows[-1, 0])


@pytest.mark.slow
def test_more_values_than_the_shape_says_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reading:
        def decode(self, raw: Any) -> Any:
            raise AssertionError

    monkeypatch.setattr(open_inference, "_flat", Reading())
    with pytest.raises(Problem, match="do not fit"):
        read(tensor([1, 2], [0] * open_inference.LONG))
    with pytest.raises(AssertionError):  # those that it says are
        read(tensor([50_000, 2], [0] * 100_000), most=50_000)
    monkeypatch.undo()
    odd: list[Any] = ["a,b", [1, 2], {"a": [1, 2]}, None]
    for data in ([0] * 100_000, [[0, 0]] * 50_000, odd + [0] * 99_996, [odd[:2], odd[2:]] + [[0, 0]] * 49_998):
        assert read(tensor([50_000, 2], data), most=50_000).rows.shape == (50_000, 2)


def test_a_tensor_a_column() -> None:
    age, sex = tensor([2], [30, 40], name="age"), tensor([2, 1], ["f", "?"], "BYTES", "sex")
    assert np.array_equal(read(sex, age, rules=MIXED).rows, np.array([[30, 0], [40, np.nan]]), equal_nan=True)
    words = b"".join(struct.pack("<I", len(one)) + one for one in (b"m", b"\xc3\xa9"))
    packed = tensor([2], datatype="BYTES", name="sex", parameters={"binary_data_size": len(words)})
    found = read(age, packed, rules=MIXED, tail=words).rows
    assert np.array_equal(found, np.array([[30, 1], [40, np.nan]]), equal_nan=True)
    assert read(tensor([2], [1, 2], name="weight"), tensor([2], [3, 4], name="age")).rows.tolist() == [[3, 1], [4, 2]]


def test_one_column() -> None:
    rules = Rules((Column("age"),))
    assert read(tensor([3], [1, 2, 3], name="age"), rules=rules).rows.shape == (3, 1)
    assert read(tensor([3], [1, 2, 3]), rules=rules).rows.shape == (3, 1)


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("no inputs", (), {}),
    ("shape of another width", (tensor([1, 3], [1, 2, 3]),), {}),
    ("three dimensions", (tensor([1, 1, 2], [1, 2]),), {}),
    ("no dimension", (tensor([], [1, 2]),), {}),
    ("no rows", (tensor([0, 2], []),), {}),
    ("a negative number of rows", (tensor([-1, 2], [1, 2]),), {}),
    ("both negative", (tensor([-1, -2], [1, 2]),), {}),
    ("huge", (tensor([2**62, 2], [1, 2]),), {}),
    ("huger", (tensor([2**200, 2], [1, 2]),), {}),
    ("a dimension that is no integer", (tensor([1.5, 2], [1, 2]),), {}),
    ("a dimension that is a string", (tensor(["1", 2], [1, 2]),), {}),
    ("too few values", (tensor([2, 2], [1, 2, 3]),), {}),
    ("ragged", (tensor([2, 2], [[1, 2, 3], [4]]),), {}),
    ("too many values", (tensor([1, 2], [1, 2, 3]),), {}),
    ("an object", (tensor([1, 2], {"a": 1}),), {}),
    ("a number", (tensor([1, 2], 3),), {}),
    ("deep", (tensor([1, 2], [[[1, 2]]]),), {}),
    ("an unknown datatype", (tensor([1, 2], [1, 2], "FP128"),), {}),
    ("neither data nor size", (tensor([1, 2]),), {}),
    ("both", (tensor([1, 2], [1, 2], parameters={"binary_data_size": 16}),), {"tail": bytes(16)}),
    ("a size too small", (tensor([1, 2], parameters={"binary_data_size": 8}),), {"tail": bytes(8)}),
    ("data left over", (tensor([1, 2], parameters={"binary_data_size": 16}),), {"tail": bytes(17)}),
    ("too few data", (tensor([1, 2], parameters={"binary_data_size": 16}),), {"tail": bytes(15)}),
    ("a negative size", (tensor([1, 2], parameters={"binary_data_size": -16}),), {"tail": bytes(16)}),
    ("a size that is true", (tensor([1, 2], parameters={"binary_data_size": True}),), {"tail": b"1"}),
    ("a size that is no integer", (tensor([1, 2], parameters={"binary_data_size": 16.0}),), {"tail": bytes(16)}),
    ("a column missing", (tensor([1], [1], name="age"),), {}),
    ("a column twice", (tensor([1], [1], name="age"), tensor([1], [1], name="age")), {}),
    ("another column twice", tuple(tensor([1], [1], name=one) for one in ("age", "weight", "more", "more")), {}),
    ("another column alone", (tensor([2], [1, 2], name="more"),), {"rules": Rules((Column("age"),))}),
    ("rows beside another column", (tensor([1, 2], [1, 2]), tensor([1], [1], name="more")), {}),
    ("columns of two lengths", (tensor([1], [1], name="age"), tensor([2], [1, 2], name="weight")), {}),
    ("a column of two dimensions", (tensor([1, 2], [1, 2], name="age"), tensor([1], [1], name="weight")), {}),
    ("another output", (tensor([1, 2], [1, 2]),), {"outputs": [{"name": "votes"}]}),
    ("classification", (tensor([1, 2], [1, 2]),),
     {"outputs": [{"name": "labels", "parameters": {"classification": 2}}]}),
    ("a flag that is none", (tensor([1, 2], [1, 2]),), {"parameters": {"binary_data_output": "yes"}}),
    ("strings cut short", (tensor([1], [1], name="age"),
     tensor([1], datatype="BYTES", name="sex", parameters={"binary_data_size": 5})),
     {"tail": struct.pack("<I", 9) + b"m", "rules": MIXED}),
    ("a matrix for mixed columns", (tensor([1, 2], [1, 2]),), {"rules": MIXED}),
    ("too few strings", (tensor([1, 2], datatype="BYTES", parameters={"binary_data_size": 5}),),
     {"tail": struct.pack("<I", 1) + b"m"}),
    ("rows of another length", (tensor([2, 2], [[1, 2, 3, 4]]),), {}),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "more"), [one[1:] for one in BAD], ids=[one[0] for one in BAD])
def test_refused_by_form(inputs: tuple[Any, ...], more: dict[str, Any]) -> None:
    with pytest.raises(Problem) as refused:
        read(*inputs, **more)
    assert refused.value.status in (400, 413)


UNDECLARED: list[dict[str, Any]] = [
    {"data": ["secret", None]}, {"data": [[1, {"secret": [2]}], "\ud800"]}, {"data": "secret"}, {"data": None},
    {"data": [1] * 1000}, {"data": [float("nan")]}, {"shape": [101]}, {"shape": [-1, 3, 2]}, {"shape": []},
    {"datatype": "FP128"}, {"name": "rows"}, {"name": "secret\n"},
]  # fmt: skip


@pytest.mark.parametrize("more", UNDECLARED)
def test_a_column_that_is_not_declared_is_not_looked_at(more: dict[str, Any]) -> None:
    columns = tensor([2], [1.5, 3], name="age"), tensor([2], [2, -4], name="weight")
    extra = {"name": "more", "shape": [2], "datatype": "BYTES", "data": ["x", "y"], **more}
    for inputs in ((*columns, extra), (extra, *columns)):
        assert (read(*inputs).rows == ROWS).all()
    with pytest.raises(Problem) as refused:
        read(columns[0], extra)
    assert refused.value.detail.endswith("there is none named 'weight'")
    assert "secret" not in refused.value.detail


def test_binary_data_of_a_column_that_is_not_declared_are_passed_over() -> None:
    age, weight = (ROWS[:, place].tobytes() for place in (0, 1))
    size = {"binary_data_size": 16}
    for junk in (b"", b"\xff" * 5, struct.pack("<I", 2**32 - 1)):
        found = read(
            tensor([2], name="age", parameters=size),
            tensor([2], datatype="BYTES", name="more", parameters={"binary_data_size": len(junk)}),
            tensor([2], name="weight", parameters=size),
            tail=age + junk + weight,
        )
        assert (found.rows == ROWS).all()


def test_a_missing_column_is_named() -> None:
    with pytest.raises(Problem) as refused:
        read(tensor([1], [1], name="age"))
    assert refused.value.detail.endswith("named 'age', 'weight'; there is none named 'weight'")


def test_more_rows_than_allowed() -> None:
    with pytest.raises(Problem) as refused:
        read(tensor([101, 2], [0] * 202))
    assert refused.value.status == 413


@pytest.mark.parametrize("length", ["", "-1", "+5", "1e2", "５", " 4", "4_0", "99999999999999999999", "1000"])
def test_header_lengths(length: str) -> None:
    body = json.dumps({"inputs": [tensor([1, 2], [1, 2])]}).encode()
    with pytest.raises(Problem) as refused:
        open_inference.read(body, length, Rules(), 100)
    assert refused.value.status == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"inputs": NaN}', b'{"inputs":[' + b"[" * 9999])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        open_inference.read(body, None, Rules(), 100)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("classes", "datatype"),
    [((0, 1), "INT64"), (("no", "yes"), "BYTES"), ((False, True), "BOOL"), ((0.5, 1.5), "FP64"), ((0, "a"), "BYTES"),
     (tuple(np.array([3, 4])), "INT64"), (tuple(np.array(["a", "b"])), "BYTES")],
)  # fmt: skip
def test_labels_keep_their_type(classes: tuple[Any, ...], datatype: str) -> None:
    answer = open_inference.Answer.of(classes)
    assert answer.datatype == datatype
    body, length = answer.written(list(classes), model="m", id=None, parameters={}, binary=False)
    assert length is None
    expected = [one if datatype != "BYTES" else str(one) for one in classes]
    assert json.loads(body)["outputs"][0]["data"] == expected
    body, length = answer.written(list(classes), model="m", id="x", parameters={}, binary=True)
    assert length is not None
    head = json.loads(body[:length])
    assert head["id"] == "x"
    assert head["outputs"][0]["parameters"]["binary_data_size"] == len(body) - length


def test_metadata_says_what_can_be_sent() -> None:
    assert metadata.metadata("m", Rules())["inputs"] == [{"name": "rows", "datatype": "FP64", "shape": [-1, 2]}]
    assert metadata.metadata("m", MIXED)["inputs"] == [
        {"name": "age", "datatype": "FP64", "shape": [-1]},
        {"name": "sex", "datatype": "BYTES", "shape": [-1]},
    ]
