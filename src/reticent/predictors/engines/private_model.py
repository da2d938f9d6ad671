"""Private models as engines use them: which learners are private, how they are trained, saved and restored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from reticent.concepts.thresholds import Thresholds
from reticent.concepts.values import Concept
from reticent.data.classes import sorted_classes
from reticent.data.groups import first_of_each
from reticent.data.rows import Rows
from reticent.exact import Number, rational
from reticent.learners.base import ConceptLearner, clone_with
from reticent.learners.bounded import Bounds
from reticent.learners.class_weights import checked_class_weight, weights_by_index
from reticent.learners.comparison import PrivateComparison
from reticent.learners.descent import DescentPlan
from reticent.learners.features import FeatureMap
from reticent.learners.linear import Linear
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.public_rows import Directions
from reticent.learners.whitening import Whitening
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.predictors.engines.engine import Array, EngineSettings, EngineState, Integers
from reticent.predictors.stable import StablePredictor
from reticent.privacy import fits
from reticent.privacy.events import event_from_json
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.silence import silent


def is_private_learner(estimator: object) -> bool:
    """Whether `fit(X, y)` of this estimator releases a model that is private in the rows and their labels.

    True for the learners of this package that need rows and labels alone, and for classes derived from them that leave
    `fit_with_noise` and `fit_class_indices` as they are. An estimator that merely has an `epsilon` is not trusted, nor
    is a pipeline around a private learner: its other steps may have seen the rows. A learner that protects labels only
    is not private here.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from reticent.learners import LabelPrivateLearner, ThresholdLearner
    >>> from reticent.concepts import Thresholds
    >>> is_private_learner(ThresholdLearner(bits=8, epsilon=1)), is_private_learner(LogisticRegression())
    (True, False)
    >>> is_private_learner(LabelPrivateLearner(Thresholds(bits=8), epsilon=1))
    False
    """
    if isinstance(estimator, PrivateLogisticRegression):
        ways = ("fit_with_noise", "fit_class_indices")
        return all(getattr(type(estimator), way) is getattr(PrivateLogisticRegression, way) for way in ways)
    if isinstance(estimator, PrivateComparison):
        return type(estimator).fit_with_noise is PrivateComparison.fit_with_noise
    if not isinstance(estimator, ConceptLearner) or isinstance(estimator, StablePredictor):  # stable is not private
        return False
    return type(estimator).fit_with_noise is ConceptLearner.fit_with_noise and estimator.protects == "rows"


@dataclass(frozen=True, kw_only=True)
class PrivateModels:
    """Trains private models within (ε, δ): what the factories of the chain and of the single model share.

    Parameters
    ----------
    learner : estimator
        A private learner of this package; see `is_private_learner`.
    classes, columns : int
        The number of classes and of columns.
    epsilon, delta : Fraction
        Privacy-loss bound and failure probability of each model.
    """

    learner: Any
    classes: int
    columns: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if not is_private_learner(self.learner):
            raise TypeError(f"learner must be a private learner, got {type(self.learner).__name__}")
        if self.learner.unsafe_seed is not None:
            raise ValueError("learner must have unsafe_seed=None: seed the predictor, not its learner")
        if self.classes != 2 and isinstance(self.learner, ConceptLearner):
            raise ValueError(f"{type(self.learner).__name__} learns two classes, got {self.classes}")
        indexed(self.learner, self.classes)
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> Self:
        """Take the learner and its privacy."""
        return cls(
            learner=settings.learner,
            classes=settings.classes,
            columns=settings.columns,
            epsilon=settings.epsilon,
            delta=settings.delta,
        )

    @property
    def rows_per_group(self) -> int:
        """One: a private learner protects rows, so a group is protected if it has one row."""
        return 1

    def prepared(self) -> Any:
        """The unfitted learner with this ε and δ, and with the classes as class indices."""
        learner = clone(self.learner)
        known: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta}
        known |= indexed(learner, self.classes)
        return learner.set_params(**{name: known[name] for name in known if name in learner.get_params(deep=False)})

    def trained(
        self, learner: Any, rows: Rows, indices: Integers, unsafe_noise: Noise | None, labels: int | None = None
    ) -> Any:
        """Fit the learner to the rows at these indices; refuse one that spends more than (ε, δ).

        `labels` is the public number of rows that are expected to have a label; None if every row has one.
        """
        X, class_indices = rows.X[indices], rows.class_indices[indices]
        if labels is None:
            model = learner.fit_with_noise(X, class_indices, unsafe_noise)
        elif isinstance(learner, PrivateLogisticRegression):
            model = learner.fit_class_indices(X, class_indices, unsafe_noise, labelled_rows=labels)
        else:
            model = learner.fit_with_noise(*with_fixed_points(X, class_indices, learner), unsafe_noise)
        if not fits(model.event_, epsilon=self.epsilon, delta=self.delta):
            raise ValueError(f"{type(learner).__name__} does not keep to the epsilon and delta that it was given")
        return model


def with_fixed_points(X: Array, class_indices: Array, learner: ConceptLearner) -> tuple[Array, Integers]:
    """Rows in which those without a label are one fixed point, labelled 0 and 1 in turn by their index.

    What a row becomes depends on that row and its index alone, so neighbours stay neighbours. Two such rows are one
    error of every concept, so they favour none.
    """
    empty = class_indices < 0
    point = np.asarray(learner.hypothesis_class().example_points()[:1]).reshape(1, -1)
    filled = np.where(empty[:, None], point.astype(X.dtype), X)
    return filled, np.where(empty, np.arange(len(X)) % 2, class_indices).astype(np.int64)


def indexed(learner: Any, classes: int) -> dict[str, Any]:
    """The parameters of a learner that depend on labels, if its labels are class indices.

    Weights by label are looked up in its own `classes`.
    """
    if isinstance(learner, PrivateLogisticRegression):
        weights = _indexed_weights(learner.class_weight, learner.classes, classes)
        return {"classes": list(range(classes)), "class_weight": weights}
    if isinstance(learner, PrivateComparison):
        compared = [
            clone_with(one, class_weight=_indexed_weights(one.class_weight, learner.classes, classes))
            for one in learner.estimators
        ]
        return {"classes": list(range(classes)), "estimators": compared}
    return {}


def _indexed_weights(class_weight: Any, labels: Any, classes: int) -> Any:
    given = checked_class_weight(class_weight)
    if not isinstance(given, Mapping):
        return given
    known = None if labels is None else sorted_classes(labels)
    if known is None or len(known) != classes:
        raise ValueError(
            f"classes of the learner must name its {classes} labels, as those of the predictor do: its class_weight "
            "gives weights by label"
        )
    return weights_by_index(given, known)


class ModelAnswers:
    """What the engines of the chain and of the single model share: a released model answers, at no cost.

    Parameters
    ----------
    model : estimator
        A fitted private learner.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @silent()
    def label(self, X: Array) -> Integers:
        """The class indices that the model gives to the rows."""
        return np.asarray(self.model.predict(X)).astype(np.int64)

    @property
    def one_answer(self) -> int | None:
        """The class index that the model gives to nearly every query, if there is one."""
        return constant_answer(self.model)

    def progress(self) -> None:
        """Answers change nothing."""

    def resume(self, progress: Mapping[str, Any] | None) -> None:
        """There is nothing to continue from."""


def first_of_each_group(rows: Rows) -> Integers:
    """The indices of all rows, or with groups of the first row of each group, in order of arrival."""
    return np.arange(len(rows.X)) if rows.groups is None else first_of_each(rows.groups)


def constant_answer(model: Any) -> int | None:
    """The class index that a released model gives to nearly every row, if that follows from what was released.

    For a linear model, one of two things: one class has the highest score for every row of at most the declared length;
    or only one class stands out of the noisy counts of labels, and a row in the middle of all rows gets it. (The
    second is for models of whitened rows. In directions in which rows hardly vary their weights are mere noise, so some
    *possible* row nearly always gets another class.) For a threshold: both ends of its domain have the same label. For
    other concepts it is None. It is a function of releases alone, so everybody who may see the model may see it.
    """
    if isinstance(model, PrivateLogisticRegression):
        coef, intercept = model.hypothesis_
        coef = coef * model.feature_map_.length
        if coef.shape[1] == 1:  # the score of the second of two classes
            coef, intercept = np.hstack([0 * coef, coef]), np.append(0.0, intercept)
        best = int(np.argmax(intercept))
        others = np.arange(len(intercept)) != best
        reach = np.linalg.norm(coef[:, others] - coef[:, [best]], axis=0)
        if bool((intercept[best] - intercept[others] > reach).all()):
            return best
        return _only_seen_class(model, coef, intercept)
    concepts = model.hypothesis_class()
    if not isinstance(concepts, Thresholds):
        return None
    domain, ranks = concepts.finite_domain()
    ends = np.array([domain.value(ranks[0]), domain.value(ranks[-1])])
    first, last = concepts.predict(model.hypothesis_, ends)
    return int(first) if first == last else None


def _only_seen_class(model: PrivateLogisticRegression, coef: Array, intercept: Array) -> int | None:
    """The only class that stands out of the noisy counts, if the middle of the rows gets it."""
    seen = model.seen_classes_
    centre = None if model.whitening_ is None else model.whitening_.centre()
    if seen is None or centre is None or np.count_nonzero(seen) != 1:
        return None
    answer = int(np.argmax(centre @ coef + intercept))
    return answer if seen[answer] else None


# ── models on file ────────────────────────────────────────────────────────────────────────────────────────────────


def model_state(model: Any) -> EngineState:
    """A fitted private learner as JSON and arrays, without its parameters, which the predictor saves itself."""
    header: dict[str, Any] = {"columns": int(model.n_features_in_), "event": model.event_.to_json()}
    if isinstance(model, PrivateLogisticRegression):
        return _linear_state(header, model)
    if not isinstance(model.hypothesis_, Concept):
        raise TypeError(
            f"a hypothesis of type {type(model.hypothesis_).__name__} has no file format: linear models and the "
            "concepts of reticent.concepts have"
        )
    return header | {"kind": "concept", "concept": model.hypothesis_.to_dict()}, {}


def _linear_state(header: dict[str, Any], model: PrivateLogisticRegression) -> EngineState:
    """A file has only the parts that the model has. So files of models with none are as they were in version 0.1.0."""
    plan = dataclasses.asdict(model.descent_plan_) | {"sigma": str(model.descent_plan_.sigma)}
    header |= {"kind": "linear", "plan": plan, "fourier_seed": model.fourier_seed_}
    arrays = {"coef": model.hypothesis_.coef, "intercept": model.hypothesis_.intercept}
    rows = model.feature_map_
    if model.row_norm is None or float(rational(model.row_norm, "row_norm")) != rows.row_norm:
        header["row_norm"] = rows.row_norm
    if rows.frequencies is not None:
        arrays["frequencies"] = rows.frequencies
    if rows.bounds is not None:
        arrays |= {"lower": rows.bounds.lower, "upper": rows.bounds.upper}
    if rows.directions is not None:
        header["directions"] = {"length": rows.directions.length}
        arrays |= {"directions": rows.directions.matrix, "centre": rows.directions.centre}
    if model.whitening_ is not None:
        header["whitening"] = {"length": model.whitening_.length, "constant": model.whitening_.constant}
        arrays["whitening"] = model.whitening_.matrix
    if model.class_weights_ is not None:
        arrays["class_weights"] = model.class_weights_
    if model.seen_classes_ is not None:
        header["seen_classes"] = model.seen_classes_.tolist()
    return header, arrays


def _restored_map(row_norm: Number, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
    bounds, directions = "lower" in arrays, header.get("directions")
    return FeatureMap(
        float(rational(header.get("row_norm", row_norm), "row_norm")),
        np.array(arrays["frequencies"]) if "frequencies" in arrays else None,
        header["fourier_seed"],
        Bounds(np.array(arrays["lower"]), np.array(arrays["upper"])) if bounds else None,
        None
        if directions is None
        else Directions(np.array(arrays["directions"]), np.array(arrays["centre"]), **directions),
    )


def restored_model(learner: Any, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """The fitted learner that `model_state` described, from an unfitted one with the same parameters."""
    linear = isinstance(learner, PrivateLogisticRegression)
    if header["kind"] != ("linear" if linear else "concept"):
        raise ValueError(f"the model on file is of the kind {header['kind']!r}, which {type(learner).__name__} is not")
    event = event_from_json(header["event"])
    learner.n_features_in_ = header["columns"]
    if not linear:
        return learner.adopt_release(Release(Concept.from_dict(header["concept"]), event))
    noted, seen = header.get("whitening"), header.get("seen_classes")
    return learner.adopt_release(
        Release(Linear(np.array(arrays["coef"]), np.array(arrays["intercept"])), event),
        plan=DescentPlan(**header["plan"] | {"sigma": Fraction(header["plan"]["sigma"])}),
        feature_map=_restored_map(learner.row_norm, header, arrays),
        classes=np.array(learner.classes),
        whitening=None if noted is None else Whitening(np.array(arrays["whitening"]), **noted),
        class_weights=np.array(arrays["class_weights"]) if "class_weights" in arrays else None,
        seen=None if seen is None else np.array(seen, dtype=np.bool_),
    )
