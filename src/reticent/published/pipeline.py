"""A released model as a plain scikit-learn pipeline: only scikit-learn and numpy are needed to load it."""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from reticent.data.schema import Column, Schema
from reticent.published.columns import Scale, is_text, known_values, positions
from reticent.published.model import NotPublic, PublishedModel
from reticent.published.probe import check, probe

Floats = NDArray[np.float64]


def to_pipeline(published: PublishedModel) -> Pipeline:
    """A pipeline that takes a data frame with the columns of the schema; `predict` gives the labels of the service.

    Its `predict_proba` is the logistic function of the scores. The service corrects probabilities for the loss that
    the model was trained with; the pipeline does not.

    Parameters
    ----------
    published : PublishedModel
        The model. One of Fourier features is refused, and one that scales rows of the schema down.
    """
    model, schema = published.model, published.schema
    if model.feature_map_.frequencies is not None:
        raise NotPublic("a scikit-learn pipeline has no random Fourier features: export JSON or ONNX")
    if len(schema.columns) > model.feature_map_.row_norm**2 * (1 + 1e-9):
        raise NotPublic(
            f"row_norm {model.feature_map_.row_norm:g} is below {math.sqrt(len(schema.columns)):g}, the length that an "
            "encoded row can have, and a scikit-learn pipeline cannot scale rows down: export JSON or ONNX"
        )
    if find_spec("pandas") is None:
        raise NotPublic("a scikit-learn pipeline takes data frames: to export one, run: pip install pandas")
    import pandas as pd

    blocks = [_block(column) for column in schema.columns]
    columns = ColumnTransformer(
        [(f"column {index}", block, [column.name]) for index, (column, block) in enumerate(
            zip(schema.columns, blocks, strict=True)
        )]
    )  # fmt: skip
    classifier = LogisticRegression()
    pipeline = Pipeline([("columns", columns), ("model", classifier)])
    # Fitted on rows drawn from the schema, for the bookkeeping of scikit-learn; then every number is replaced.
    table = probe(schema, rows=max(10, 2 * len(published.classes)))
    labels = np.arange(len(next(iter(table.values())))) % len(published.classes)
    pipeline.fit(pd.DataFrame(table), labels)
    for index, column in enumerate(schema.columns):
        _set_scale(columns.named_transformers_[f"column {index}"], column)
    coef, intercept = _folded(schema, model.hypothesis_.coef, model.hypothesis_.intercept)
    classifier.coef_, classifier.intercept_ = coef.T.copy(), intercept
    classifier.classes_ = published.classes
    pipeline.guarantee_ = published.to_json()["guarantee"] | {"words": published.guarantee.explain()}
    check(published, lambda table: pipeline.predict(pd.DataFrame(table)), "a scikit-learn pipeline")
    return pipeline


def _block(column: Column) -> Pipeline:
    """What makes numbers of a column."""
    if (scale := Scale.of(column)) is not None:
        return make_pipeline(
            FunctionTransformer(np.asarray, kw_args={"dtype": np.float64}),
            FunctionTransformer(np.clip, kw_args={"a_min": scale.low, "a_max": scale.high}),
            SimpleImputer(),
            StandardScaler(),
            FunctionTransformer(np.clip, kw_args={"a_min": -1.0, "a_max": 1.0}),
        )
    known = known_values(column) if is_text(column) else sorted(known_values(column))
    encoder = OneHotEncoder(categories=[known], handle_unknown="ignore", sparse_output=False)
    if not is_text(column):
        return make_pipeline(FunctionTransformer(np.asarray, kw_args={"dtype": np.float64}), encoder)
    return make_pipeline(
        FunctionTransformer(np.asarray, kw_args={"dtype": object}),
        SimpleImputer(missing_values=np.nan, strategy="constant", fill_value=""),
        SimpleImputer(missing_values=None, strategy="constant", fill_value=""),
        FunctionTransformer(np.asarray, kw_args={"dtype": str}),
        FunctionTransformer(np.char.strip),
        encoder,
    )


def _set_scale(block: Pipeline, column: Column) -> None:
    """Lay the range of a number onto [-1, 1], by the operations of the schema."""
    if (scale := Scale.of(column)) is not None:
        block.named_steps["simpleimputer"].statistics_ = np.array([scale.missing])
        scaler = block.named_steps["standardscaler"]
        scaler.mean_, scaler.scale_ = np.array([scale.middle]), np.array([scale.half])
        scaler.var_ = scaler.scale_**2


def _folded(schema: Schema, coef: Floats, intercept: Floats) -> tuple[Floats, Floats]:
    """Weights for the columns of the pipeline.

    A one-hot encoder has no column for what was not declared, so the weight of such a column becomes part of the
    intercept and is subtracted from the others: exactly one of them is 1.
    """
    order: list[int] = []
    coef, intercept = coef.copy(), intercept.copy()
    for column in schema.columns:
        at = positions(schema, column)
        if column.other:
            rest = coef[at[-1]].copy()
            intercept += rest
            coef[at[:-1]] -= rest
            at = at[:-1]
        if column.kind == "category" and not is_text(column):
            at = [at[index] for index in np.argsort(known_values(column))]
        order += at
    return coef[order], intercept
