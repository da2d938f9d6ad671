"""Answers that carry probabilities: of one private model alone, over HTTP and here, and the same in a repeat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from faulty import full
from shop import MODEL, labels, new_answering, request
from stand_in import running
from test_real_clients import ScoringServerClient

from reticent.concepts import Thresholds
from reticent.data.schema import Column, Schema
from reticent.learners import PrivateLogisticRegression, ThresholdLearner
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service.answering import AnsweringService
from reticent.service.client import AsyncClient, Client
from reticent.service.home import Home
from reticent.service.http.batching import Batcher
from reticent.service.http.service import Service
from reticent.service.requests import Answered, Halted, KeyReused, Request
from waiting import LIMIT

LEARNER = PrivateLogisticRegression(epsilon=4, delta=1e-5, row_norm=2)
CLASSES = ("yes", "no", "perhaps")  # not in ascending order
SCHEMA = Schema((Column("x", "number", range=(-1, 1)), Column("y", "number", range=(-1, 1))), "ill", CLASSES)
FRACTIONS = np.random.default_rng(3).uniform(-1, 1, (7, 2))


def asked(request: Request) -> Request:
    return Request(request.client, request.rows, request.idempotency_key, request.digest, probabilities=True)


def answered(found: list[Answered | Exception]) -> list[Answered]:
    labels(found)
    return [one for one in found if isinstance(one, Answered)]


def three_classes() -> EverlastingPredictor:
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    y = np.where(X[:, 0] > 0.3, "yes", np.where(X[:, 1] > 0, "no", "perhaps"))
    return EverlastingPredictor(LEARNER, epsilon=4, delta=1e-5, classes=list(CLASSES), engine="model").fit(X, y)


# ── the predictor and the answering service ───────────────────────────────────────────────────────────────────────


def test_probabilities_are_those_of_the_model_and_count_nothing(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=1000)
    assert answering.no_probabilities is None
    plain, with_them = answered(answering.answer([request(20), asked(request(20))]))
    assert plain.probabilities is None
    assert with_them.probabilities is not None
    assert with_them.labels == plain.labels
    assert with_them.probabilities.shape == (20, 2)
    np.testing.assert_allclose(with_them.probabilities.sum(axis=1), 1)
    chosen = np.array(answering.classes)[with_them.probabilities.argmax(axis=1)]
    assert chosen.tolist() == with_them.labels
    assert answering.status().answered == 40, "labels count, and probabilities do not"
    answering.close()


def test_a_repeat_receives_the_same_numbers_alone_or_among_others_and_after_a_restart(tmp_path: Path) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=1000)
    first = answered(answering.answer([asked(request(33, "key")), request(500, client="bob", seed=1)]))[0]
    again = answered(answering.answer([request(77, client="eve", seed=2), asked(request(33, "key"))]))[1]
    twice = answered(answering.answer([asked(request(5, "new", seed=4)), asked(request(5, "new", seed=4))]))
    np.testing.assert_array_equal(twice[0].probabilities, twice[1].probabilities)
    answering.close()
    restarted = AnsweringService(Home(tmp_path / "clinic"), elsewhere=False)
    last = answered(restarted.answer([asked(request(33, "key"))]))[0]
    for one in (again, last):
        assert (one.labels, one.replayed) == (first.labels, True)
        np.testing.assert_array_equal(one.probabilities, first.probabilities)
    assert restarted.status().answered == 615
    (other,) = restarted.answer([asked(request(33, "key", body=b"another"))])
    assert isinstance(other, KeyReused), "not even probabilities are given for another body"
    restarted.close()


def test_what_is_not_durable_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = new_answering(tmp_path / "clinic", learner=LEARNER, engine="model", rows=1000)
    monkeypatch.setattr(answering._store, "write", full)
    (found,) = answering.answer([asked(request(3, "key"))])
    assert isinstance(found, Halted)
    answering.close()


@pytest.mark.parametrize("learner", [Thresholds(), LEARNER], ids=["votes", "chain"])
def test_votes_and_chains_refuse_and_nothing_is_counted(tmp_path: Path, learner: Any) -> None:
    answering = new_answering(tmp_path / "clinic", learner=learner, rows=1000)
    refused, plain = answering.answer([asked(request(3)), request(2)])
    assert isinstance(refused, ValueError)
    assert "must not carry more than the label" in str(refused)
    assert labels([plain])
    assert (answering.status().answered, answering.status().ledger_length) == (2, 1)
    answering.close()


def test_a_model_without_probabilities_says_so() -> None:
    X = np.arange(2000)[:, None] % 1000
    model = EverlastingPredictor(
        ThresholdLearner(bits=10, epsilon=1), epsilon=1, delta=0, classes=(0, 1), engine="model"
    ).fit(X, X[:, 0] < 400)
    with pytest.raises(ValueError, match="ThresholdLearner has labels only"):
        model.probabilities(X[:3])


def test_odd_queries_are_read_as_predict_reads_them() -> None:
    model = three_classes()
    odd = np.array([[np.nan, np.inf], [1e308, -1e308], [0.1, 0.2]])
    found = model.probabilities(odd)
    assert np.isfinite(found).all()
    assert model.classes_[found.argmax(axis=1)].tolist() == model.predict(odd).tolist()


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Served(NamedTuple):
    url: str
    words: list[str]  # the labels of FRACTIONS
    numbers: Any  # their probabilities, in the order of the schema


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A real server of three classes."""
    predictor = three_classes()
    order = [predictor.classes_.tolist().index(one) for one in CLASSES]
    answering = AnsweringService(Home.create(tmp_path / "clinic", predictor, MODEL), elsewhere=False)
    service = Service("clinic", SCHEMA, answering, Batcher(answering), probabilities=answering.classes)
    words = predictor.classes_[predictor.model_.predict(FRACTIONS)].tolist()
    with running(service) as port:
        yield Served(f"http://127.0.0.1:{port}", words, predictor.probabilities(FRACTIONS)[:, order])


def tensor(**more: Any) -> dict[str, Any]:
    rows = {"name": "rows", "shape": list(FRACTIONS.shape), "datatype": "FP64", "data": FRACTIONS.ravel().tolist()}
    return {"inputs": [rows], **more}


def test_a_server_gives_a_second_tensor(served: Served) -> None:
    url, words, numbers = served
    infer = f"{url}/v2/models/clinic/infer"
    metadata = httpx.get(f"{url}/v2/models/clinic", timeout=LIMIT).json()
    assert metadata["outputs"] == [
        {"name": "labels", "datatype": "BYTES", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP64", "shape": [-1, 3]},
    ]
    assert metadata["parameters"]["classes"] == list(CLASSES)
    found = httpx.post(infer, json=tensor(), timeout=LIMIT).json()["outputs"]
    assert [one["name"] for one in found] == ["labels", "probabilities"]
    assert found[0]["data"] == words
    assert found[1]["shape"] == [7, 3]
    np.testing.assert_allclose(np.reshape(found[1]["data"], (7, 3)), numbers)
    only = httpx.post(infer, json=tensor(outputs=[{"name": "labels"}]), timeout=LIMIT).json()["outputs"]
    assert [one["name"] for one in only] == ["labels"]
    unknown = httpx.post(infer, json=tensor(outputs=[{"name": "x"}]), timeout=LIMIT)
    assert "the outputs are labels and probabilities" in unknown.text
    half = tensor(outputs=[{"name": "labels"}, {"name": "probabilities", "parameters": {"binary_data": True}}])
    mixed = httpx.post(infer, json=half, timeout=LIMIT)
    length = int(mixed.headers["Inference-Header-Content-Length"])
    head = json.loads(mixed.content[:length])["outputs"]
    assert head[0]["data"] == words
    assert head[1]["parameters"] == {"binary_data_size": 7 * 3 * 8}
    np.testing.assert_allclose(np.frombuffer(mixed.content[length:]).reshape(7, 3), numbers)


def test_mlflow_and_the_description(served: Served) -> None:
    url, words, numbers = served
    found = httpx.post(f"{url}/invocations", json={"instances": FRACTIONS.tolist()}, timeout=LIMIT).json()
    assert found["predictions"] == words
    np.testing.assert_allclose(found["probabilities"], numbers)
    document = httpx.get(f"{url}/openapi.json", timeout=LIMIT).json()
    about = document["paths"]["/v2/models/clinic/infer"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert about["properties"]["outputs"]["items"]["properties"]["name"] == {"enum": ["labels", "probabilities"]}


def test_a_repeat_over_http_gives_the_same_and_costs_nothing(served: Served) -> None:
    url = served.url
    infer, headers = f"{url}/v2/models/clinic/infer", {"Idempotency-Key": "a"}
    first = httpx.post(infer, json=tensor(), headers=headers, timeout=LIMIT)
    again = httpx.post(infer, json=tensor(), headers=headers, timeout=LIMIT)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json()["outputs"] == first.json()["outputs"]
    assert httpx.get(f"{url}/status", timeout=LIMIT).json()["answered"] == len(FRACTIONS)


def test_the_clients(served: Served) -> None:
    url, words, numbers = served
    with Client(url, model="clinic") as client:
        assert client.ask(FRACTIONS).tolist() == words
        found = client.ask_with_probabilities(FRACTIONS, idempotency_key="k")
        again = client.ask_with_probabilities(FRACTIONS, idempotency_key="k")
    assert found.labels.tolist() == words
    np.testing.assert_allclose(found.probabilities, numbers)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)

    async def ask() -> Any:
        async with AsyncClient(url, model="clinic") as client:
            return await client.ask_with_probabilities(FRACTIONS)

    np.testing.assert_array_equal(asyncio.run(ask()).probabilities, found.probabilities)


def test_clients_that_others_wrote(served: Served) -> None:
    url, words, numbers = served
    address = url.removeprefix("http://")
    with triton.InferenceServerClient(address, connection_timeout=LIMIT, network_timeout=LIMIT) as client:
        rows = triton.InferInput("rows", list(FRACTIONS.shape), "FP64")
        rows.set_data_from_numpy(FRACTIONS, binary_data=True)
        for binary in (True, False, None):
            names = ("labels", "probabilities")
            wanted = None if binary is None else [triton.InferRequestedOutput(one, binary_data=binary) for one in names]
            found = client.infer("clinic", [rows], outputs=wanted)
            assert found.as_numpy("labels").astype(str).tolist() == words
            np.testing.assert_allclose(found.as_numpy("probabilities"), numbers)
    host, _, port = address.partition(":")
    predictions = ScoringServerClient(host, port).invoke(FRACTIONS).get_predictions()
    assert predictions[0].tolist() == words
