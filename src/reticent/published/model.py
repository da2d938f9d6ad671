"""A released linear model with the schema of its table, and its file in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from reticent.data.schema import Column, Schema
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.predictors.engines.private_model import model_state, restored_model
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.privacy.events import Event, event_from_json
from reticent.privacy.guarantee import Guarantee
from reticent.published.columns import Scale

Array = NDArray[Any]
Floats = NDArray[np.float64]

FORMAT, VERSION = "reticent-model", 1
VOTES = (
    "it has no model to publish: its answers are noisy votes of teachers, and each teacher is as secret as the rows. "
    "reticent fit --learner private-model makes one model that may be published"
)


class NotPublic(ValueError):
    """A predictor that has no model to publish, or one that a format cannot hold."""


@dataclass(frozen=True, eq=False)
class PublishedModel:
    """What a released linear model makes of a table: a label and probabilities for each row.

    Guarantee. That of the predictor, which the file states. A file, and everything that is computed from it, adds
    nothing to what the model has cost.

    Why. A private model is released by `fit`; so are all models of a chain, since its theorem gives the adversary every
    one of them (docs/predictors/chain.md). The schema, the classes and all parameters are public. The rest is
    post-processing.

    Parameters
    ----------
    schema : Schema
        How a row of the table becomes numbers.
    classes : array
        The labels, in the order of the class indices of the model and of the columns of `predict_proba`.
    guarantee : Guarantee
        What was promised to the people in the rows, and perhaps in the queries.
    event : Event
        What the rows that the model was made from have paid for it and for a comparison. A schema that was bought
        before is counted in `guarantee` only.
    model : PrivateLogisticRegression
        The released model of encoded rows. Its labels are class indices.

    Examples
    --------
    >>> from reticent.published import PublishedModel
    >>> model = PublishedModel.read("clinic.json")  # doctest: +SKIP
    >>> model.predict({"age": [71], "ward": ["heart"]})  # doctest: +SKIP
    array(['yes'], dtype='<U3')
    """

    schema: Schema
    classes: Array
    guarantee: Guarantee
    event: Event
    model: PrivateLogisticRegression

    @classmethod
    def of(cls, predictor: EverlastingPredictor, schema: Schema) -> Self:
        """The model that answers now; `NotPublic` if votes answer, or if it is not linear.

        Parameters
        ----------
        predictor : EverlastingPredictor
            A fitted predictor.
        schema : Schema
            The schema by which its rows were encoded.
        """
        model = predictor.model_
        if model is None:
            raise NotPublic(VOTES)
        model = getattr(model, "model_", model)  # of a learner that chooses a model: the one that it chose
        if not isinstance(model, PrivateLogisticRegression):
            raise NotPublic(f"there are formats for linear models, and this one is a {type(model).__name__}")
        if schema.width != model.n_features_in_:
            raise NotPublic(f"the model has {model.n_features_in_} columns, and the schema makes {schema.width}")
        return cls(schema, predictor.classes_, predictor.guarantee_, predictor.event_, model)

    # ── predicting ────────────────────────────────────────────────────────────────────────────────────────────────

    def predict(self, table: Any) -> Array:
        """The label of each row.

        Parameters
        ----------
        table : mapping of columns, or data frame
            The columns of the schema, by name. Others are ignored, and no cell is refused.
        """
        return np.asarray(self.classes[self.model.predict(self.encoded(table))])

    def predict_proba(self, table: Any) -> Floats:
        """The probability of each class for each row, in the order of `classes`.

        Parameters
        ----------
        table : mapping of columns, or data frame
            As for `predict`.
        """
        return self.model.predict_proba(self.encoded(table))

    def encoded(self, table: Any) -> Floats:
        """The rows as numbers, by the rules of the schema."""
        names = [column.name for column in self.schema.columns]
        if missing := [name for name in names if name not in getattr(table, "columns", table)]:
            raise ValueError(f"there is no column {missing[0]!r}; the columns must be {', '.join(map(repr, names))}")
        columns = {name: table[name] for name in names}
        return self.schema.encode({n: c.to_numpy() if hasattr(c, "to_numpy") else c for n, c in columns.items()})

    # ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON; docs/guides/publish-a-model.md describes the fields."""
        header, arrays = model_state(self.model)
        return {
            "format": FORMAT,
            "version": VERSION,
            "reticent": version("reticent"),
            "guarantee": asdict(self.guarantee),
            "words": self.guarantee.explain(),
            "event": self.event.to_json(),
            "schema": {"target": self.schema.target, "columns": [_described(one) for one in self.schema.columns]},
            "features": list(self.schema.features),
            "classes": self.classes.tolist(),
            "row_norm": self.model.feature_map_.row_norm,
            "cap": self.model.descent_plan_.cap,
            "model": {**header, "arrays": {name: values.tolist() for name, values in arrays.items()}},
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Self:
        """The model that `to_json` described."""
        if not isinstance(page, Mapping) or page.get("format") != FORMAT or page.get("version") != VERSION:
            raise ValueError(f"this is no model in the format {FORMAT!r}, version {VERSION}")
        try:
            classes, guarantee = np.asarray(page["classes"]), Guarantee(**page["guarantee"])
            columns = [{key: _tuple(value) for key, value in one.items()} for one in page["schema"]["columns"]]
            schema = Schema(tuple(Column(**one) for one in columns), page["schema"]["target"], tuple(page["classes"]))
            learner = PrivateLogisticRegression(
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                row_norm=page["row_norm"],
                classes=list(range(len(classes))),
            )
            arrays = {name: np.asarray(values, np.float64) for name, values in page["model"]["arrays"].items()}
            event, model = event_from_json(page["event"]), restored_model(learner, page["model"], arrays)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this model in the format {FORMAT!r} is incomplete: {type(error).__name__}") from None
        return cls(schema, classes, guarantee, event, model)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """The model in a JSON file.

        Parameters
        ----------
        path : str or path-like
            A file that `reticent export` wrote.
        """
        try:
            page = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError):
            raise ValueError(f"{path} is no JSON") from None
        return cls.from_json(page)


def _described(column: Column) -> dict[str, Any]:
    """A column without the fields that have their default. What stands for a missing number is always named."""
    described = {
        field.name: getattr(column, field.name)
        for field in fields(column)
        if field.default is MISSING or getattr(column, field.name) != field.default
    }
    if (scale := Scale.of(column)) is not None and column.missing is None:
        described["missing"] = scale.missing
    return described


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
