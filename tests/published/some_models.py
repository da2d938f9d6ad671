"""Predictors on a table with columns of every kind, for tests of published models."""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.data.schema import Column, Schema
from reticent.learners import PrivateLogisticRegression
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.published import PublishedModel
from reticent.published.probe import probe

COLUMNS = (
    Column("age", "number", range=(0, 100)),
    Column("ward", "category", categories=("b", " a"), other=True),
    Column("income", "number", range=(-1e6, 1e6), missing=5.0),
    Column("grade", "category", categories=(3, 1, 2.5)),
    Column("insured", "category", categories=(True, False), other=True),
    Column("blood", "category", categories=("0", "A", "B", "AB")),
)


def some_schema(classes: tuple[Any, ...] = ("no", "yes")) -> Schema:
    return Schema(COLUMNS, "ill", classes)


def fitted(
    classes: tuple[Any, ...] = ("no", "yes"), *, rows: int = 2000, engine: Any = "model", **options: Any
) -> EverlastingPredictor:
    schema = some_schema(classes)
    X = schema.encode(probe(schema, rows, seed=1))
    thirds = (X[:, 0] > 0.1).astype(int) + (X[:, 2] > 0) * (len(classes) > 2)
    learner = PrivateLogisticRegression(
        **{"epsilon": 1, "delta": 1e-6, "row_norm": schema.row_norm, **options},
    )
    predictor = EverlastingPredictor(learner, epsilon=1, delta=1e-6, classes=list(classes), engine=engine)
    return predictor.fit(X, schema.ascending_classes[thirds])


def published(classes: tuple[Any, ...] = ("no", "yes"), **options: Any) -> PublishedModel:
    return PublishedModel.of(fitted(classes, **options), some_schema(classes))


def odd_table(schema: Schema, rows: int = 1000, seed: int = 5) -> dict[str, Any]:
    """Rows with missing, unknown, huge and infinite cells."""
    table = probe(schema, rows, seed)
    table["income"][:6] = [np.inf, -np.inf, 1e308, -1e308, np.nan, 1e6]
    table["age"][:3] = [np.inf, -0.0, np.nan]
    table["ward"][:3] = ["  a ", "A", "no such ward"]
    return table
