"""Rows to try an exported model on: drawn from the schema alone, with cells that are missing, unknown or too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.schema import Column, Schema
from reticent.published.columns import Scale, is_text
from reticent.published.model import NotPublic, PublishedModel

Array = NDArray[Any]

ROWS = 200
TOLERANCE = 1e-4  # of probabilities: rounds of second moments stretch some directions by 1e11, and rounding with them
CLOSE = 1e-9  # scores closer than this are a tie, which rounding may decide either way


def probe(schema: Schema, rows: int = ROWS, seed: int = 0) -> dict[str, Array]:
    """A table that fits the schema, with cells of every kind that its rules treat differently.

    Parameters
    ----------
    schema : Schema
        The schema. Nothing else decides the table.
    rows : int, default 200
        The number of rows.
    seed : int, default 0
        The seed; the rows are public and protect nobody.
    """
    rng = np.random.default_rng(seed)
    return {column.name: _cells(column, rows, rng) for column in schema.columns}


def _cells(column: Column, rows: int, rng: np.random.Generator) -> Array:
    odd = rng.random(rows)
    if (scale := Scale.of(column)) is not None:
        cells = scale.middle + scale.half * rng.uniform(-1.5, 1.5, rows)
        return np.where(odd < 0.1, np.nan, np.where(odd < 0.15, scale.low, np.where(odd < 0.2, scale.high, cells)))
    known = np.array(column.categories, dtype=object)[rng.integers(len(column.categories), size=rows)]
    if is_text(column):
        return np.where(odd < 0.1, "", np.where(odd < 0.2, "no such category", known))
    return np.where(odd < 0.1, np.nan, np.where(odd < 0.2, 0.123, known.astype(np.float64)))


def check(
    published: PublishedModel, predict: Callable[[dict[str, Array]], tuple[Array, Array]], where: str
) -> None:
    """Refuse an exported model that gives another label or other probabilities than the service to a row of `probe`.

    Parameters
    ----------
    published : PublishedModel
        The model, whose labels are those of the service.
    predict : callable
        Maps a table to the labels and the probabilities of the exported model.
    where : str
        What was exported, for the message.
    """
    table = probe(published.schema)
    scores = published.model.decision_function(published.encoded(table))
    ordered = np.sort(np.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores, axis=1)
    sure = ordered[:, -1] - ordered[:, -2] > CLOSE
    labels, probabilities = predict(table)
    same = np.array_equal(labels[sure], published.predict(table)[sure])
    if not same or not np.abs(probabilities - published.predict_proba(table)).max() <= TOLERANCE:
        raise NotPublic(f"{where} cannot hold this model: it would give other answers than the service. Export JSON")
