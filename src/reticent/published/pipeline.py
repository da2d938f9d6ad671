"""A released model as a scikit-learn pipeline, which loads without reticent."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

from reticent.data.schema import Column, Schema
from reticent.learners.features import FeatureMap
from reticent.learners.whitening import factor_inside
from reticent.published.columns import Scale, encoded_bound, is_text, known_values, positions
from reticent.published.model import NotPublic, PublishedModel
from reticent.published.probe import check, probe

Floats = NDArray[np.float64]


def to_pipeline(published: PublishedModel) -> Pipeline:
    """A pipeline that takes a data frame with the columns of the schema, checked against the model itself.

    Its steps are classes of scikit-learn and functions of numpy and scipy: `columns` encodes rows as the schema does,
    `scores` are those of the model, `corrections` belong to the loss that it was trained with, and `model` turns both
    into labels and probabilities.

    Parameters
    ----------
    published : PublishedModel
        The model.
    """
    if find_spec("pandas") is None:
        raise NotPublic("a scikit-learn pipeline takes data frames: to export one, run: pip install pandas")
    import pandas as pd

    schema, classes = published.schema, published.classes
    blocks = [(f"column {index}", _block(one), [one.name]) for index, one in enumerate(schema.columns)]
    columns, classifier = ColumnTransformer(blocks), LogisticRegression()
    steps = [("columns", columns), *_scores(published), ("corrections", _corrections(len(classes)))]
    pipeline = Pipeline([*steps, ("model", classifier)])
    # Fitted on rows drawn from the schema, for the bookkeeping of scikit-learn; then every number is replaced.
    table = probe(schema, rows=max(10, 2 * len(classes)))
    pipeline.fit(pd.DataFrame(table), np.arange(max(10, 2 * len(classes))) % len(classes))
    for index, column in enumerate(schema.columns):
        _set_scale(columns.named_transformers_[f"column {index}"], column)
    both = np.hstack([np.eye(len(classes))] * 2)
    classifier.coef_ = both[1:] - both[:1] if len(classes) == 2 else both
    classifier.intercept_ = np.zeros(len(classifier.coef_))
    classifier.classes_ = classes
    pipeline.guarantee_ = published.to_json()["guarantee"] | {"words": published.guarantee.explain()}

    def predict(table: dict[str, Any]) -> tuple[Any, Any]:
        frame = pd.DataFrame(table)
        return pipeline.predict(frame), pipeline.predict_proba(frame)

    check(published, predict, "a scikit-learn pipeline")
    return pipeline


# ── from columns to encoded rows ──────────────────────────────────────────────────────────────────────────────────


def _block(column: Column) -> Pipeline:
    """What makes numbers of a column."""
    if (scale := Scale.of(column)) is not None:
        value = make_pipeline(
            _function(np.clip, a_min=scale.low, a_max=scale.high),
            SimpleImputer(keep_empty_features=True),
            StandardScaler(),
            _function(np.clip, a_min=-1.0, a_max=1.0),
        )
        parts = [("value", value), *([("missing", _function(np.isnan))] if scale.marked else [])]
        return make_pipeline(_function(np.asarray, dtype=np.float64), FeatureUnion(parts))
    known = known_values(column) if is_text(column) else sorted(known_values(column))
    encoder = OneHotEncoder(categories=[known], handle_unknown="ignore", sparse_output=False)
    if not is_text(column):
        return make_pipeline(_function(np.asarray, dtype=np.float64), encoder)
    return make_pipeline(
        _function(np.asarray, dtype=object),
        SimpleImputer(missing_values=np.nan, strategy="constant", fill_value=""),
        SimpleImputer(missing_values=None, strategy="constant", fill_value=""),
        _function(np.asarray, dtype=str),
        _function(np.char.strip),
        encoder,
    )


def _set_scale(block: Pipeline, column: Column) -> None:
    """Lay the range of a number onto [-1, 1], by the operations of the schema."""
    if (scale := Scale.of(column)) is not None:
        value = block.named_steps["featureunion"].named_transformers["value"]
        value.named_steps["simpleimputer"].statistics_ = np.array([scale.missing])
        scaler = value.named_steps["standardscaler"]
        scaler.mean_, scaler.scale_ = np.array([scale.middle]), np.array([scale.half])
        scaler.var_ = scaler.scale_**2


def _arrangement(schema: Schema) -> tuple[Floats, Floats]:
    """The affine map from the columns of the pipeline to encoded rows of the schema.

    A one-hot encoder has numeric categories in ascending order, and no column for what was not declared: that is 1 less
    all the others.
    """
    rows: list[Floats] = []
    constant = np.zeros(schema.width)
    unit = np.eye(schema.width)
    for column in schema.columns:
        at = positions(schema, column)
        others = np.zeros(schema.width)
        if column.other:
            others = unit[at.pop()]
            constant += others
        if column.kind == "category" and not is_text(column):
            at = [at[index] for index in np.argsort(known_values(column))]
        rows += [unit[index] - others for index in at]
    return np.array(rows), constant


# ── from encoded rows to scores ───────────────────────────────────────────────────────────────────────────────────


def _scores(published: PublishedModel) -> list[tuple[str, Any]]:
    """Steps from the columns of the pipeline to one score per class, as the model computes them."""
    model = published.model
    coef, intercept = model.hypothesis_
    if coef.shape[1] == 1:  # the score of the second of two classes
        coef, intercept = np.hstack([0 * coef, coef]), np.append(0.0, intercept)
    steps, matrix, shift = _unit_rows(model.feature_map_, published.schema)
    weights = coef * model.feature_map_.length
    scores, whitening = _affine(matrix @ weights, shift @ weights + intercept), model.whitening_
    if whitening is None:
        return [*steps, ("scores", scores)]
    inside = whitening.matrix * factor_inside(whitening.constant)
    image = _affine(matrix @ inside[: len(coef)], shift @ inside[: len(coef)] + inside[len(coef) :].sum(axis=0))
    largest = float((np.linalg.norm(weights, axis=0) + np.abs(intercept)).max())
    return [*steps, ("scores", _divided(scores, image, whitening.length, largest, len(intercept)))]


def _unit_rows(feature_map: FeatureMap, schema: Schema) -> tuple[list[tuple[str, Any]], Floats, Floats]:
    """Steps to rows that are an affine map away from the rows that the model sees, of length at most 1; and the map.

    The arrangement of columns is a step of its own, in which whole numbers are exact. Weights of a column that was
    always 0 can be huge, and would not cancel if they were added to those of other columns.
    """
    width = schema.width
    matrix, shift = np.eye(width), np.zeros(width)
    steps: list[tuple[str, Any]] = [("arranged", _affine(*_arrangement(schema)))]
    bounds, directions = getattr(feature_map, "bounds", None), getattr(feature_map, "directions", None)
    longest = encoded_bound(schema)
    if bounds is not None:
        lower, upper = np.broadcast_to(bounds.lower, width), np.broadcast_to(bounds.upper, width)
        clipped = make_pipeline(_affine(matrix, shift), _function(np.clip, a_min=lower.copy(), a_max=upper.copy()))
        steps.append(("bounded", clipped))
        matrix, shift, longest = np.diag(1 / (upper - lower)), -lower / (upper - lower), math.sqrt(width)
    if longest > feature_map.row_norm * (1 + 1e-9):
        rows = _affine(matrix, shift)
        steps.append(("shortened", _divided(rows, rows, feature_map.row_norm, 1.0, width)))
        matrix, shift = np.eye(width), np.zeros(width)
    matrix, shift, length = matrix / feature_map.row_norm, shift / feature_map.row_norm, feature_map.row_norm
    if directions is not None:
        image = _affine(matrix @ directions.matrix, shift @ directions.matrix - directions.centre)
        largest = float((np.linalg.norm(directions.matrix, axis=0) + np.abs(directions.centre)).max())
        steps.append(("projected", _divided(image, image, directions.length, largest, len(directions.centre))))
        matrix, shift = np.eye(len(directions.centre)) / directions.length, np.zeros(len(directions.centre))
        length = 1.0
    if feature_map.frequencies is not None:
        frequencies = feature_map.frequencies * length
        phases = _affine(matrix @ frequencies, shift @ frequencies)
        waves = [(wave.__name__, make_pipeline(phases, _function(wave))) for wave in (np.cos, np.sin)]
        steps.append(("fourier", FeatureUnion(waves)))
        features = 2 * frequencies.shape[1]
        matrix, shift = np.eye(features) / math.sqrt(features // 2), np.zeros(features)
    return steps, matrix, shift


def _function(function: Any, **options: Any) -> FunctionTransformer:
    return FunctionTransformer(function, kw_args=options)


def _affine(weights: Floats, shift: Floats) -> Pipeline:
    """Rows times weights, plus a shift."""
    constant = _function(np.pad, pad_width=((0, 0), (0, 1)), constant_values=1.0)
    return make_pipeline(constant, _function(np.dot, b=np.vstack([weights, shift])))


def _divided(rows: Pipeline, images: Pipeline, length: float, largest: float, width: int) -> Pipeline:
    """Rows divided by max(1, |image| / length), where no entry of a row exceeds `largest`.

    `Normalizer` divides a row by its largest entry. So the divisor times `largest` is added as an entry.
    """
    scale = largest or 1.0
    divisors = make_pipeline(
        images, _function(np.linalg.norm, axis=1, keepdims=True), _function(np.clip, a_min=length, a_max=None)
    )
    added = np.diag([*np.ones(width), 1.01 * scale / length])  # a little more, since lengths are rounded
    return make_pipeline(
        FeatureUnion([("rows", rows), ("divisors", divisors)]),
        _function(np.dot, b=added),
        Normalizer(norm="max"),
        _function(np.dot, b=np.vstack([1.01 * scale * np.eye(width), np.zeros(width)])),
    )


# ── from scores to labels and probabilities ───────────────────────────────────────────────────────────────────────


def _corrections(classes: int) -> FeatureUnion:
    """The scores z, and ln max(cap, |e_y − softmax(z)|) for each class y.

    `PrivateLogisticRegression.predict_proba` has P(y) ∝ p_y · max(1, |e_y − p| / cap) with p = softmax(z). So P is the
    softmax of the sum of both. For two classes, |e_y − p| is √2 (1 − p_y), and the cap is √2 / 2 in place of 1/2.
    """
    corrected = make_pipeline(
        _function(softmax, axis=1),
        _function(euclidean_distances, Y=np.eye(classes)),
        _function(np.clip, a_min=math.sqrt(1 - 1 / classes), a_max=None),
        _function(np.log),
    )
    return FeatureUnion([("scores", "passthrough"), ("residuals", corrected)])
