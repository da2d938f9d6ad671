"""Published models: every format gives the labels of the predictor, and no format holds anything else."""

from __future__ import annotations

import json
import pickle
import pickletools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit
from some_models import fitted, odd_table, published, some_schema

from reticent.concepts import Thresholds
from reticent.data.schema import Column, Schema
from reticent.learners import ThresholdLearner
from reticent.learners.linear import Linear
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.published import NotPublic, PublishedModel, files, onnx_graph, pipeline
from reticent.published.probe import check, probe

CASES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("no", "yes"), {}),
    (("c", "a", "b"), {}),
    (("no", "yes"), {"rounds": 2}),
    ((3, 1, 2), {"rounds": 1}),
    ((True, False), {"fit_intercept": False}),
    ((0.5, 1.5), {"engine": "chain"}),
]
FOURIER: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("no", "yes"), {"fourier_features": 32}),
    (("c", "a", "b"), {"fourier_features": 16, "rounds": 1}),
    (("no", "yes"), {"row_norm": 1.0}),
]


def session(model: PublishedModel) -> Any:
    import onnxruntime

    made = onnx_graph.to_onnx(model).SerializeToString()
    return onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])


# ── predictions equal ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("classes", "options"), CASES + FOURIER)
def test_json_gives_the_labels_and_probabilities_of_the_predictor(
    classes: tuple[Any, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    predictor, schema = fitted(classes, **options), some_schema(classes)
    files.write(PublishedModel.of(predictor, schema), tmp_path / "model.json", "json")
    model, table = PublishedModel.read(tmp_path / "model.json"), odd_table(schema)
    assert model.classes.tolist() == predictor.classes_.tolist()
    assert model.guarantee == predictor.guarantee_
    assert model.predict(table).tolist() == predictor.predict(schema.encode(table)).tolist()
    assert predictor.model_ is not None
    found = model.predict_proba(table)
    np.testing.assert_array_equal(found, predictor.model_.predict_proba(schema.encode(table)))
    np.testing.assert_array_equal(found.argmax(axis=1), predictor.model_.predict(schema.encode(table)))


@pytest.mark.parametrize(("classes", "options"), CASES + FOURIER)
def test_a_pipeline_gives_the_labels_and_probabilities_of_the_predictor(
    classes: tuple[Any, ...], options: dict[str, Any]
) -> None:
    model, table = published(classes, **options), odd_table(some_schema(classes))
    made = pickle.loads(pickle.dumps(pipeline.to_pipeline(model)))
    assert made.predict(pd.DataFrame(table)).tolist() == model.predict(table).tolist()
    assert made.classes_.tolist() == model.classes.tolist()
    np.testing.assert_allclose(made.predict_proba(pd.DataFrame(table)), model.predict_proba(table), rtol=0, atol=1e-12)
    assert made.guarantee_["epsilon"] == 1


@pytest.mark.parametrize(("classes", "options"), CASES + FOURIER)
def test_onnx_gives_the_labels_and_probabilities_of_the_predictor(
    classes: tuple[Any, ...], options: dict[str, Any]
) -> None:
    model, table = published(classes, **options), odd_table(some_schema(classes))
    labels, probabilities = session(model).run(None, onnx_graph.feeds(model, table))
    assert labels.tolist() == model.predict(table).tolist()
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities, model.predict_proba(table), rtol=0, atol=1e-7)


@pytest.mark.parametrize("classes", [("no", "yes"), ("c", "a", "b")])
def test_ties_go_to_the_first_class_in_every_format(classes: tuple[Any, ...]) -> None:
    model, table = published(classes), odd_table(some_schema(classes))
    coef, intercept = model.model.hypothesis_
    model.model.hypothesis_ = Linear(0 * coef, 0 * intercept)
    assert set(model.predict(table).tolist()) == {min(classes)}
    np.testing.assert_allclose(model.predict_proba(table), 1 / len(classes))
    again = PublishedModel.from_json(json.loads(json.dumps(model.to_json())))
    assert set(again.predict(table).tolist()) == {min(classes)}
    assert set(pipeline.to_pipeline(model).predict(pd.DataFrame(table)).tolist()) == {min(classes)}
    assert set(session(model).run(None, onnx_graph.feeds(model, table))[0].tolist()) == {min(classes)}


@pytest.mark.slow
def test_columns_that_were_always_zero_have_moderate_weights_and_the_same_answers() -> None:
    """Rounds of second moments stretch a column that is 0 in all rows, but not far; every format gives its answers."""
    columns = (Column("x", "number", range=(-1, 1)), Column("ward", "category", categories=("a", "b"), other=True))
    schema = Schema(columns, "y", ("no", "yes"))
    rng = np.random.default_rng(0)
    known = {"x": rng.uniform(-1, 1, 50_000), "ward": np.array(["a", "b"])[rng.integers(2, size=50_000)]}
    learner = PrivateLogisticRegression(epsilon=8, delta=1e-6, row_norm=schema.row_norm, rounds=3)
    predictor = EverlastingPredictor(learner, epsilon=8, delta=1e-6, classes=["no", "yes"], engine="model")
    predictor.fit(schema.encode(known), np.where(known["x"] > 0.2, "yes", "no"))
    x, *wards = np.abs(predictor.model_.coef_[0])
    assert max(wards) < x  # which decides, with a coefficient above 100
    model, table = PublishedModel.of(predictor, schema), probe(schema, 300, seed=2)
    made, numbers = pipeline.to_pipeline(model), model.predict_proba(table)
    np.testing.assert_allclose(made.predict_proba(pd.DataFrame(table)), numbers, rtol=0, atol=1e-12)
    np.testing.assert_allclose(session(model).run(None, onnx_graph.feeds(model, table))[1], numbers, rtol=0, atol=1e-12)


def test_frames_go_in_as_they_are() -> None:
    model = published()
    rows: dict[str, Any] = {
        "age": [1.0, None, 200.0], "ward": [" a", None, "q"], "income": [1, 2, 3], "grade": [1.0, 2.5, None],
        "insured": [True, False, None], "blood": ["AB", "0", None], "unused": ["x", "y", "z"],
    }  # fmt: skip
    expected = model.predict(rows).tolist()
    pandas, polars = pd.DataFrame(rows), pl.DataFrame(rows)
    assert model.predict(pandas).tolist() == model.predict(polars).tolist() == expected
    made = pipeline.to_pipeline(model)
    assert made.predict(pandas).tolist() == made.predict(polars).tolist() == expected
    with pytest.raises(ValueError, match="there is no column 'ward'; the columns must be 'age', 'ward'"):
        model.predict({name: cells for name, cells in rows.items() if name != "ward"})


def test_a_model_of_numbers_only_and_one_of_a_single_category() -> None:
    for column in (Column("x", "number", range=(0, 1)), Column("x", "category", categories=("a", "b"))):
        schema = Schema((column,), "y", ("no", "yes"))
        X = schema.encode(probe(schema, 500))
        predictor = EverlastingPredictor(fitted().learner.set_params(row_norm=1), epsilon=4, delta=1e-6, engine="model")
        predictor = predictor.set_params(classes=["no", "yes"]).fit(X, np.where(X[:, -1] > 0, "yes", "no"))
        model, table = PublishedModel.of(predictor, schema), probe(schema, 100, seed=3)
        assert session(model).run(None, onnx_graph.feeds(model, table))[0].tolist() == model.predict(table).tolist()
        assert pipeline.to_pipeline(model).predict(pd.DataFrame(table)).tolist() == model.predict(table).tolist()


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────


def test_votes_have_no_model() -> None:
    X = np.random.default_rng(0).random((400, 1))
    votes = EverlastingPredictor(Thresholds(), epsilon=20, delta=1e-5, classes=("no", "yes"))
    votes.fit(X, np.where(X[:, 0] < 0.5, "yes", "no"))
    assert votes.model_ is None
    with pytest.raises(NotPublic, match="each teacher is as secret as the rows"):
        PublishedModel.of(votes, some_schema())


def test_models_that_are_not_linear_have_no_format() -> None:
    X = np.arange(2000)[:, None] % 1000
    thresholds = EverlastingPredictor(
        ThresholdLearner(bits=10, epsilon=1), epsilon=1, delta=0, classes=(0, 1), engine="model"
    ).fit(X, X[:, 0] < 400)
    with pytest.raises(NotPublic, match="this one is a ThresholdLearner"):
        PublishedModel.of(thresholds, some_schema())
    with pytest.raises(NotPublic, match="the schema makes 1"):
        PublishedModel.of(fitted(), Schema((Column("x", "number", range=(0, 1)),), "ill", ("no", "yes")))


def test_an_export_that_differs_from_the_service_is_refused() -> None:
    """The twins of an export: one weight has the wrong sign; probabilities are not corrected for the loss."""
    model = published()
    check(model, lambda table: (model.predict(table), model.predict_proba(table)), "itself")
    coef, intercept = model.model.hypothesis_
    wrong = PublishedModel.from_json(model.to_json())
    wrong.model.hypothesis_ = Linear(np.where(np.arange(len(coef))[:, None] == 0, -coef, coef), intercept)
    with pytest.raises(NotPublic, match="a twin cannot hold this model"):
        check(model, lambda table: (wrong.predict(table), model.predict_proba(table)), "a twin")

    def uncorrected(table: dict[str, Any]) -> Any:
        p = expit(model.model.decision_function(model.encoded(table)))
        return np.stack([1 - p, p], axis=1)

    with pytest.raises(NotPublic, match="a twin cannot hold this model"):
        check(model, lambda table: (model.predict(table), uncorrected(table)), "a twin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "no model in the format"),
        ({"version": 2}, "no model in the format"),
        ({"classes": None}, "is incomplete"),
        ({"guarantee": {}}, "is incomplete"),
        ({"event": None}, "an event must be a JSON object"),
        ({"model": {}}, "is incomplete"),
    ],
)
def test_other_json_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PublishedModel.from_json({**published().to_json(), **change})
    with pytest.raises(ValueError, match="no model in the format"):
        PublishedModel.from_json([])  # type: ignore[arg-type]


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("mine")
    with pytest.raises(FileExistsError):
        files.write(published(), tmp_path / "model.json", "json")
    assert [one.name for one in tmp_path.iterdir()] == ["model.json"]
    assert (tmp_path / "model.json").read_text() == "mine"


# ── what a file holds ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", sorted(files.FORMATS))
def test_a_file_is_a_function_of_the_released_model_alone(kind: str) -> None:
    """The same release, adopted by a predictor of other rows, gives the same bytes."""
    model, other = published(), published(rows=1999)
    plain = files.FORMATS[kind].encoded(model)
    assert files.FORMATS[kind].encoded(other) != plain
    theirs = model.model
    assert files.FORMATS[kind].encoded(replace(other, model=theirs)) == plain
    assert files.FORMATS[kind].encoded(PublishedModel.from_json(model.to_json())) == plain


def test_the_guarantee_is_in_every_file() -> None:
    model = published()
    page = model.to_json()
    assert page["guarantee"]["protects"] == "rows"
    assert page["words"] == model.guarantee.explain()
    assert page["event"] == page["model"]["event"] == model.model.event_.to_json()
    made = onnx_graph.to_onnx(model)
    assert made.doc_string == model.guarantee.explain()
    assert {one.key: one.value for one in made.metadata_props}["guarantee.epsilon"] == "1.0"


@pytest.mark.slow
def test_a_pipeline_needs_only_scikit_learn_and_what_it_needs(tmp_path: Path) -> None:
    content = files.FORMATS["sklearn"].encoded(published())
    words = {str(word) for _, word, _ in pickletools.genops(content)}
    assert not [word for word in words if word.startswith(("reticent", "pandas"))]
    (tmp_path / "model.pkl").write_bytes(content)
    code = (
        "import sys; sys.modules['reticent'] = None; import joblib, pickle\n"
        f"joblib.load({str(tmp_path / 'model.pkl')!r})\n"
        f"print(pickle.load(open({str(tmp_path / 'model.pkl')!r}, 'rb')).guarantee_['epsilon'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("1.0\n", 0), found.stderr


# ── the reader of the docs ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("classes", "options"), CASES + FOURIER)
def test_the_reader_of_the_docs(classes: tuple[Any, ...], options: dict[str, Any], tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "publish-a-model.md").read_text(encoding="utf-8")
    reader: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)[0], reader)
    model = published(classes, **options)
    files.write(model, tmp_path / "model.json", "json")
    page, table = reader["read"](tmp_path / "model.json"), odd_table(model.schema, rows=60)
    table["ward"] = [cell.strip() for cell in table["ward"]]
    rows = [{name: cells[index] for name, cells in table.items()} for index in range(60)]
    assert [reader["predict"](page, row) for row in rows] == model.predict(table).tolist()
    found = [reader["predict_proba"](page, row) for row in rows]
    np.testing.assert_allclose(found, model.predict_proba(table), rtol=0, atol=1e-12)
