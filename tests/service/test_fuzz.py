"""Whatever is sent as tensors: it is answered, or refused by a 4xx that costs nothing. Never anything else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in import MIXED, FakeAnswering, connect, make_service

from reticent.service.http import open_inference
from reticent.service.http.service import Service

INFER = "/v2/models/clinic/infer"

dimensions = st.one_of(
    st.integers(-3, 5), st.sampled_from([2**31, 2**32, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(allow_nan=True), st.none(), st.booleans(), st.text(max_size=3),
)  # fmt: skip
shapes = st.one_of(st.lists(dimensions, max_size=4), st.lists(st.integers(0, 4), min_size=1, max_size=2), dimensions)
datatypes = st.one_of(
    st.sampled_from([*open_inference.NUMBERS, open_inference.BYTES]), st.text(max_size=5), st.integers()
)
names = st.sampled_from(["rows", "age", "weight", "sex", "", "labels", "é"])
numbers = st.one_of(st.floats(allow_nan=True), st.integers(), st.none(), st.booleans(), st.text(max_size=3))
data = st.recursive(numbers, lambda inner: st.lists(inner, max_size=5), max_leaves=12)
sizes = st.one_of(st.integers(-2, 40), st.sampled_from([2**31, 2**63, -(2**63), 1.5, "8", None, True]))
tensors = st.fixed_dictionaries(
    {"name": names, "shape": shapes, "datatype": datatypes},
    optional={"data": data, "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": sizes})},
)
requests = st.fixed_dictionaries(
    {"inputs": st.one_of(st.lists(tensors, max_size=3), data)},
    optional={
        "id": st.one_of(st.text(max_size=3), st.integers()),
        "outputs": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["labels", "x"])}), max_size=2),
        "parameters": st.one_of(st.fixed_dictionaries({"binary_data_output": st.sampled_from([True, 1, "x"])}), data),
    },
)
sides = st.integers(-2, 4)
lengths = st.one_of(st.none(), st.integers(-5, 400).map(str), st.text("0123456789+-_. xeE", max_size=22))


@pytest.fixture(scope="module", params=["numbers", "mixed"])
def service(request: pytest.FixtureRequest) -> Service:
    return make_service(MIXED if request.param == "mixed" else None)


def send(service: Service, body: bytes, headers: dict[str, str]) -> httpx.Response:
    async def run() -> httpx.Response:
        async with connect(service) as client:
            return await client.post(INFER, content=body, headers=headers)

    return asyncio.run(run())


def check(service: Service, body: bytes, headers: dict[str, str]) -> int:
    """Answered and counted, or refused and not counted."""
    assert isinstance(service.answering, FakeAnswering)
    before = service.answering.spent
    reply = send(service, body, headers)
    if reply.status_code == 200:
        assert service.answering.spent > before
        assert service.answering.asked[-1].rows.dtype == np.float64
        assert service.answering.asked[-1].rows.shape[1] == 2
    else:
        assert reply.status_code in (400, 413), reply.text
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["error"]
        assert service.answering.spent == before
    return reply.status_code


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(asked=requests, tail=st.binary(max_size=40), length=lengths, exact=st.booleans())
def test_tensors(service: Service, asked: Any, tail: bytes, length: str | None, exact: bool) -> None:
    head = json.dumps(asked).encode()
    told = str(len(head)) if exact else length
    check(service, head + tail, {} if told is None else {"Inference-Header-Content-Length": told})


@settings(max_examples=80, deadline=None)
@given(shape=st.lists(sides, min_size=2, max_size=2), datatype=datatypes, size=sizes, tail=st.binary(max_size=70))
def test_binary(service: Service, shape: list[int], datatype: Any, size: Any, tail: bytes) -> None:
    tensor = {"name": "rows", "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor]}).encode()
    check(service, head + tail, {"Inference-Header-Content-Length": str(len(head))})


@settings(max_examples=80, deadline=None)
@given(body=st.binary(max_size=200), length=lengths)
def test_bytes(service: Service, body: bytes, length: str | None) -> None:
    assert check(service, body, {} if length is None else {"Inference-Header-Content-Length": length}) != 200


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(width=64), min_size=2, max_size=8).filter(lambda one: len(one) % 2 == 0))
def test_no_value_is_refused(values: list[float]) -> None:
    """Whether a query is answered must not depend on its numbers: NaN and infinities count like any other."""
    packed = np.array(values).tobytes()
    size = {"binary_data_size": len(packed)}
    tensor = {"name": "rows", "shape": [len(values) // 2, 2], "datatype": "FP64", "parameters": size}
    head = json.dumps({"inputs": [tensor]}).encode()
    assert check(make_service(), head + packed, {"Inference-Header-Content-Length": str(len(head))}) == 200


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.one_of(st.floats(), st.integers(-(10**400), 10**400)), min_size=2, max_size=2))
def test_no_value_is_refused_as_json(values: list[float]) -> None:
    tensor = {"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": values}
    assert check(make_service(), json.dumps({"inputs": [tensor]}).encode(), {}) == 200


def test_a_parser_that_trusts_shapes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without the check of sizes, a tensor that lies about its shape is an error of ours."""
    monkeypatch.setattr(open_inference, "_checked_rows", lambda rows, most: rows)
    tensor = {"name": "rows", "shape": [-1, 2], "datatype": "FP64", "parameters": {"binary_data_size": 0}}
    head = json.dumps({"inputs": [{**tensor, "shape": [0, 2]}]}).encode()
    with pytest.raises(AssertionError):
        check(make_service(), head, {"Inference-Header-Content-Length": str(len(head))})
