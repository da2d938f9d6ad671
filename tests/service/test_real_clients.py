"""Clients that others wrote, against a real server."""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tritonclient.http as triton
from stand_in import MIXED, FakeAnswering, make_service, running
from tritonclient.utils import InferenceServerException

from reticent.service.http.access import Keyring
from reticent.service.keys import KeyTable, make_key
from waiting import LIMIT

with warnings.catch_warnings():  # importing it warns of itself
    warnings.simplefilter("ignore")
    from mlflow.pyfunc.scoring_server import client as mlflow_client

ScoringServerClient: Any = mlflow_client.ScoringServerClient

ROWS = np.array([[0.1, 2.0], [0.9, 3.0], [0.7, 1.0]])


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running(make_service()) as found:
        yield found


@pytest.fixture(scope="module")
def mixed() -> Iterator[int]:
    with running(make_service(MIXED)) as found:
        yield found


def triton_client(port: int) -> Any:
    return triton.InferenceServerClient(f"127.0.0.1:{port}", connection_timeout=LIMIT, network_timeout=LIMIT)


def tensor(values: Any, datatype: str, name: str, *, binary: bool) -> triton.InferInput:
    made = triton.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("wanted", [True, False, None])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_triton(port: int, binary: bool, wanted: bool | None, compression: str | None) -> None:
    with triton_client(port) as client:
        outputs = None if wanted is None else [triton.InferRequestedOutput("labels", binary_data=wanted)]
        for datatype, dtype in (("FP64", np.float64), ("FP32", np.float32)):
            rows = tensor(ROWS.astype(dtype), datatype, "rows", binary=binary)
            found = client.infer(
                "clinic", [rows], outputs=outputs, request_id="7",
                request_compression_algorithm=compression, response_compression_algorithm=compression,
            )  # fmt: skip
            assert found.as_numpy("labels").tolist() == [0, 1, 1]
            assert found.get_response()["id"] == "7"


def test_triton_metadata_and_health(port: int) -> None:
    with triton_client(port) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("clinic")
        assert client.is_model_ready("clinic", "1")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["name"] == "reticent"
        assert client.get_model_metadata("clinic")["outputs"][0]["name"] == "labels"


@pytest.mark.parametrize("binary", [True, False])
def test_triton_with_categories(mixed: int, binary: bool) -> None:
    with triton_client(mixed) as client:
        sexes = np.array(["f", "m", "?"], dtype=np.object_)
        inputs = [tensor(ROWS[:, 0].copy(), "FP64", "age", binary=binary), tensor(sexes, "BYTES", "sex", binary=binary)]
        found = client.infer("clinic", inputs)
        assert found.as_numpy("labels").tolist() == [b"no", b"yes", b"yes"]


def test_triton_is_told_what_was_wrong(port: int) -> None:
    with triton_client(port) as client:
        with pytest.raises(InferenceServerException, match="shape of the input must be"):
            client.infer("clinic", [tensor(np.zeros((1, 3)), "FP64", "rows", binary=True)])
        with pytest.raises(InferenceServerException, match="no model") as refused:
            client.infer("other", [tensor(np.zeros((1, 2)), "FP64", "rows", binary=True)])
        assert refused.value.status() == "404"
        with pytest.raises(InferenceServerException, match="nothing here"):
            client.get_inference_statistics()


@pytest.mark.slow
def test_mlflow(port: int, mixed: int) -> None:
    client = ScoringServerClient("127.0.0.1", port)
    client.wait_server_ready(timeout=int(LIMIT))
    assert client.get_version()
    # It cannot write down a mapping of columns (it takes the names apart); that form is replayed in test_app.
    for data in (ROWS, pd.DataFrame(ROWS, columns=["age", "weight"])):
        assert client.invoke(data).get_predictions()[0].tolist() == [0, 1, 1]
    with pytest.raises(Exception, match="error code 400"):
        client.invoke(np.zeros((1, 3)))
    frame = pd.DataFrame({"sex": ["f", "m"], "age": [0.9, 0.1]})
    assert ScoringServerClient("127.0.0.1", mixed).invoke(frame).get_predictions()[0].tolist() == ["yes", "no"]


def curl(*arguments: str) -> str:
    return subprocess.run(
        ["curl", "-sS", "--max-time", f"{LIMIT:.0f}", *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_curl(port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{port}"
    body = '{"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [0.9, 1]}]}'
    assert json.loads(curl("-d", body, f"{url}/v2/models/clinic/infer"))["outputs"][0]["data"] == [1]
    table = tmp_path / "new.csv"
    table.write_text("age,weight\n0.9,1\n0.1,2\n")
    csv = curl("-H", "Content-Type: text/csv", "--data-binary", f"@{table}", f"{url}/invocations")
    assert json.loads(csv) == {"predictions": [1, 0]}
    assert curl(f"{url}/guarantee").startswith("Who is protected.")
    assert json.loads(curl("-H", "Accept: application/json", f"{url}/guarantee"))["epsilon"] == 1.0
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "--compressed", f"{url}/metrics") == "200"


@pytest.mark.slow
def test_curl_with_keys(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys")
    token, key = make_key("a", quota=1)
    table.add(key)
    answering = FakeAnswering()
    with running(make_service(answering=answering, keyring=Keyring(table))) as port:
        url = f"http://127.0.0.1:{port}/invocations"
        asked = ["-d", '{"instances": [[0.9, 1]]}', "-H", "Content-Type: application/json", "-w", " %{http_code}", url]
        assert curl(*asked).endswith(" 401")
        assert curl("-H", f"Authorization: Bearer {token}", *asked) == '{"predictions":[1]} 200'
        assert curl("-H", f"Authorization: Bearer {token}", *asked).endswith(" 429")
    assert answering.spent == 1
