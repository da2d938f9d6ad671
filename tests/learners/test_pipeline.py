"""A schema and a model on one budget: what it promises, and who is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import reticent as rt
from reticent.data import private_schema
from reticent.data.schema import Column, Schema
from reticent.data.schema_plan import rest_of
from reticent.errors import InsufficientData
from reticent.learners.pipeline import PrivatePipeline
from reticent.privacy import calibrate, fits, rho
from reticent.privacy.events import ZCDP, Composed

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


def patients(rows: int = 8000) -> tuple[dict[str, Any], list[str]]:
    generator = np.random.default_rng(0)
    age, ward = generator.integers(18, 99, rows), generator.choice(["heart", "surgery"], rows)
    score = (age - 58) / 20 + np.where(ward == "heart", 1.0, -1.0) + generator.normal(size=rows) / 2
    table = {"age": age.astype(str).tolist(), "ward": ward.tolist(), "file": [f"P{place}" for place in range(rows)]}
    return table, ["yes" if one > 0 else "no" for one in score]


def learner_with(**options: Any) -> rt.PrivateLogisticRegression:
    return rt.PrivateLogisticRegression(**BUDGET, row_norm=1, **options)


def fitted(**options: Any) -> PrivatePipeline:
    return PrivatePipeline(**BUDGET, classes=["no", "yes"], unsafe_seed=0, **options).fit(*patients())


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_it_says_that_it_is_not_fitted(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(PrivatePipeline(**BUDGET), method)(patients(10)[0])


def test_it_learns_from_a_table_as_it_comes() -> None:
    table, labels = patients()
    model = fitted()
    assert model.score(table, labels) > 0.85
    assert list(model.unfound_) == ["file"]
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict({"age": ["95", None], "ward": ["heart", 3]}).tolist()[0] == "yes"
    probabilities = model.predict_proba(pd.DataFrame(table))
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert ((model.decision_function(pl.DataFrame(table)) > 0) == (probabilities[:, 1] > 0.5)).all()


def test_schema_and_model_fit_one_budget() -> None:
    model = fitted()
    assert model.guarantee_.epsilon <= 1
    assert model.guarantee_.epsilon > 0.95, "it spends what it may"
    assert model.guarantee_.delta == 1e-6
    assert model.spent_.schema is not None
    assert model.spent_.schema.epsilon + model.spent_.model.epsilon > 1, "together they cost less than their sum"
    assert model.spent_.schema.epsilon < 0.35


@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 2)])
@pytest.mark.parametrize(("epsilon", "delta"), [(Fraction(1, 2), Fraction(1, 10**5)), (8, Fraction(1, 10**9))])
def test_the_model_keeps_to_its_part(share: Fraction, epsilon: Any, delta: Fraction) -> None:
    rest = rest_of(epsilon=Fraction(epsilon), delta=delta, share=share)
    assert rest.rho is not None
    assert calibrate.rho(epsilon=rest.epsilon, delta=rest.delta) <= rest.rho
    table, labels = patients(3000)
    model = PrivatePipeline(epsilon=epsilon, delta=delta, schema_share=share, unsafe_seed=1).fit(table, labels)
    spent = rho(model.model_.event_)
    assert spent is not None
    assert Fraction(98, 100) * rest.rho < spent <= rest.rho
    assert fits(model.event_, epsilon=epsilon, delta=delta)


def test_a_model_with_all_of_the_budget_is_too_much() -> None:
    """A twin: the model is calibrated for (ε, δ), as if there were no schema."""
    model = fitted()
    whole = ZCDP(calibrate.rho(**BUDGET))
    assert not fits(Composed((model.event_.event.events[0], whole)), **BUDGET)  # type: ignore[attr-defined]


def test_a_schema_that_is_given_costs_nothing() -> None:
    first = fitted()
    again = fitted(schema=first.schema_)
    assert again.spent_.schema is None
    assert again.event_ == again.model_.event_
    assert again.spent_.model.epsilon > first.spent_.model.epsilon
    written = Schema((Column("age", "number", range=(18, 98)),))
    assert fitted(schema=written).encode(patients()[0]).shape == (8000, 1)


def test_weights_of_classes_are_given_by_label() -> None:
    table, labels = patients()
    model = fitted(learner=learner_with(class_weight={"yes": 4}))
    assert np.array_equal(np.asarray(model.model_.class_weights_), [0.25, 1.0])
    numbers = np.where(np.array(labels) == "yes", 1, 2)  # an index of one class is the label of another
    model = PrivatePipeline(learner_with(class_weight={1: 4}), **BUDGET, classes=[1, 2]).fit(table, numbers)
    assert np.array_equal(np.asarray(model.model_.class_weights_), [1.0, 0.25])


def test_one_row_of_each_group_is_learned_from() -> None:
    table, labels = patients()
    groups = [f"g{place % 4000}" for place in range(8000)]
    model = PrivatePipeline(**BUDGET, unsafe_seed=0).fit(table, labels, groups=groups)
    assert model.guarantee_.unit == "group"
    assert model.model_.descent_plan_.rows == 4000
    other = {name: [*cells[:4000], *["?"] * 4000] for name, cells in table.items()}
    again = PrivatePipeline(**BUDGET, unsafe_seed=0).fit(other, labels, groups=groups)
    assert again.model_.coef_.tolist() == model.model_.coef_.tolist()


def test_parameters_are_kept() -> None:
    model = PrivatePipeline(rt.PrivateLogisticRegression(epsilon=1, delta=1e-6, row_norm=1), **BUDGET)
    assert clone(model).get_params(deep=False).keys() == model.get_params(deep=False).keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learner": LogisticRegression()}, "a PrivateLogisticRegression"),
        ({"learner": DecisionTreeClassifier()}, "a PrivateLogisticRegression"),
        ({"learner": learner_with(unsafe_seed=1)}, "unsafe_seed=None"),
        ({"learner": learner_with(steps=0)}, "steps"),
        ({"learner": learner_with(class_weight={"never": 2})}, "class_weight must name no label"),
        ({"learner": learner_with(class_weight={0: 2})}, "class_weight must name no label"),
        ({"learner": learner_with(public=np.eye(20))}, "unless schema is given"),
        ({"learner": learner_with(start=(np.zeros((3, 1)), np.zeros(1)))}, "unless schema is given"),
        ({"learner": learner_with(bounds=([0, 0], 1))}, "unless schema is given"),
        ({"schema_share": 0}, "schema_share"),
        ({"schema_share": 1}, "schema_share"),
        ({"delta": 0}, "delta"),
        ({"kinds": {"weight": "number"}}, "'weight'"),
        ({"classes": ["no", "never"]}, "y must hold only"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_spent(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spent(*_: object, **__: object) -> None:
        raise AssertionError("something was released")

    monkeypatch.setattr(private_schema, "release_columns", spent)
    with pytest.raises((TypeError, ValueError), match=message):
        PrivatePipeline(**{**BUDGET, **options}).fit(*patients(2000))


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InsufficientData, match="needs at least"):
        PrivatePipeline(**BUDGET).fit(*patients(50))
    with pytest.raises(ValueError, match="one value per row"):
        PrivatePipeline(**BUDGET).fit(patients(2000)[0], ["no"])
