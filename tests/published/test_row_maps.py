"""Models whose rows have marks of missing numbers, bounds or directions of public rows, in every format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_published import session

from reticent.learners import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.published import PublishedModel, files, onnx_graph, pipeline
from reticent.published.probe import probe

schemas: Any = pytest.importorskip("reticent.data.schema")
Column, Schema = schemas.Column, schemas.Schema
COLUMNS = (
    Column("age", "number", range=(0, 100), missing="column"),
    Column("ward", "category", categories=("b", "a"), other=True),
    Column("income", "number", range=(-1e6, 1e6)),
    Column("height", "number", range=(50, 250), missing="column"),
)
PUBLIC = probe(Schema(COLUMNS, "ill", ("no", "yes")), 300, seed=9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rounds": 2},
        {"bounds": (-1.0, 0.5), "row_norm": None},
        {"bounds": (np.full(8, -0.5), np.full(8, 1.0)), "row_norm": 1.5, "fourier_features": 16},
        {"public": True, "row_norm": None},
        {"public": True, "fourier_features": 16, "rounds": 1},
        {"class_weight": "balanced"},
    ],
)
@pytest.mark.parametrize("classes", [("no", "yes"), ("c", "a", "b")])
def test_every_format_gives_the_answers_of_the_predictor(
    options: dict[str, Any], classes: tuple[str, ...], tmp_path: Path
) -> None:
    schema = Schema(COLUMNS, "ill", classes)
    X = schema.encode(probe(schema, 1500, seed=1))
    if options.get("public"):
        options = {**options, "public": schema.encode(PUBLIC)}
    y = schema.ascending_classes[(X[:, 0] > 0.1) * 1 + (X[:, 1] > 0) * (len(classes) > 2)]
    learner = PrivateLogisticRegression(**{"epsilon": 1, "delta": 1e-6, "row_norm": schema.row_norm, **options})
    predictor = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=list(classes), engine="model").fit(X, y)
    model, table = PublishedModel.of(predictor, schema), probe(schema, 400, seed=5)
    expected, numbers = model.predict(table).tolist(), model.predict_proba(table)
    files.write(model, tmp_path / "model.json", "json")
    again = PublishedModel.read(tmp_path / "model.json")
    assert again.predict(table).tolist() == expected
    np.testing.assert_array_equal(again.predict_proba(table), numbers)
    labels, probabilities = session(model).run(None, onnx_graph.feeds(model, table))
    assert labels.tolist() == expected
    np.testing.assert_allclose(probabilities, numbers, rtol=0, atol=1e-7)
    made, frame = pipeline.to_pipeline(model), pd.DataFrame(table)
    assert made.predict(frame).tolist() == expected
    np.testing.assert_allclose(made.predict_proba(frame), numbers, rtol=0, atol=1e-10)
    text = (Path(__file__).parents[2] / "docs" / "guides" / "publish-a-model.md").read_text(encoding="utf-8")
    reader: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)[0], reader)
    page = reader["read"](tmp_path / "model.json")
    rows = [{name: cells[index] for name, cells in table.items()} for index in range(50)]
    assert [reader["predict"](page, row) for row in rows] == expected[:50]
    np.testing.assert_allclose([reader["predict_proba"](page, row) for row in rows], numbers[:50], rtol=0, atol=1e-10)
