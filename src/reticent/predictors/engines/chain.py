"""The chain engine: one private model a phase, answers at no cost, and a new model when the queries have drifted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from reticent.concepts.thresholds import Thresholds
from reticent.concepts.values import Concept
from reticent.errors import InsufficientData
from reticent.learners.base import ConceptLearner
from reticent.learners.logistic import Linear, Plan, PrivateLogisticRegression
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.predictors.drift import FALSE_ALARM, Shape, Summary, drift_summary, drifted, unit_features
from reticent.predictors.phases import Phase
from reticent.predictors.rows import Rows
from reticent.predictors.stable import StablePredictor
from reticent.privacy import fits, guarantee
from reticent.privacy.events import Event, Parallel, event_from_json
from reticent.privacy.parameters import check_delta, check_epsilon
from reticent.promises import check_share
from reticent.silence import silent

Array = NDArray[Any]
Integers = NDArray[np.int64]
FOLLOW = 2  # phases after an alarm train again: one training goes part of the way
START, STEPS = 2.0, 20  # the greatest score that a new linear model starts from, and the steps of its descent
Retrain = Literal["drift", "always", "never"]


def is_private_learner(estimator: object) -> bool:
    """Whether what `fit(X, y)` of this estimator leaves behind is private, for rows with their labels.

    True for the learners of this package that need rows and labels alone, and for classes derived from them that leave
    `_fit` as it is. An estimator that merely has an `epsilon`, or a pipeline around a private learner, is not taken
    at its word: its other steps may have seen the rows. What protects labels only is no private learner here.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from reticent.learners import LabelPrivateLearner, ThresholdLearner
    >>> from reticent.concepts import Thresholds
    >>> is_private_learner(ThresholdLearner(bits=8, epsilon=1)), is_private_learner(LogisticRegression())
    (True, False)
    >>> is_private_learner(LabelPrivateLearner(Thresholds(bits=8), epsilon=1))
    False
    """
    if isinstance(estimator, PrivateLogisticRegression):
        return type(estimator)._fit is PrivateLogisticRegression._fit
    if not isinstance(estimator, ConceptLearner) or isinstance(estimator, StablePredictor):  # stable is not private
        return False
    return type(estimator)._fit is ConceptLearner._fit and estimator.protects == "rows"


class Shares(NamedTuple):
    """Places of rows, by what they are for; no row is for two things."""

    test: Integers  # of drift, at the end of the phase
    spare: Integers  # for the next reference, if a new model is trained
    training: Integers


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How every phase of a chain is made; all of it is public.

    `drift_share` of the rows, taken at fixed places, are for the test of drift and never for training; the test raises
    a false alarm with a probability of at most `false_alarm`. With `retrain="always"` there is a new model every phase
    and no test, with "never" the first model answers for ever.
    """

    learner: Any
    classes: int
    columns: int
    epsilon: Fraction
    delta: Fraction
    retrain: Retrain = "drift"
    drift_share: object = Fraction(1, 10)
    false_alarm: object = FALSE_ALARM

    def __post_init__(self) -> None:
        if not is_private_learner(self.learner):
            raise TypeError(f"learner must be a private learner, got {type(self.learner).__name__}")
        if self.learner.unsafe_seed is not None:
            raise ValueError("learner must have unsafe_seed=None: seed the predictor, not its learner")
        if self.classes != 2 and isinstance(self.learner, ConceptLearner):
            raise ValueError(f"{type(self.learner).__name__} learns two classes, got {self.classes}")
        if self.retrain not in get_args(Retrain):
            raise ValueError(f"retrain must be 'drift', 'always' or 'never', got {self.retrain!r}")
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_share(self.false_alarm, "false_alarm")
        if check_share(self.drift_share, "drift_share") > Fraction(1, 2):
            raise ValueError(f"drift_share must be at most 1/2, got {self.drift_share}: the other rows train the model")

    def fill_in(self, phase: Phase, units: int, schedule: object = None) -> Phase:
        """The phase as it is, since answers are free; refused if a first phase has next to no rows (or groups)."""
        if phase.number == 1 and units < self.fewest:
            raise InsufficientData(
                f"a chain of private models needs {self.fewest} rows or groups at the very least, got {units}",
                required=self.fewest,
            )
        return phase

    @property
    def rows_of_a_group(self) -> int:
        """One row of a group is kept, and no more."""
        return 1

    @property
    def fewest(self) -> int:
        """The rows without which nothing is trained or tested."""
        return self.period if self.retrain == "drift" else 1

    @property
    def period(self) -> int:
        """Of so many rows one is for the test and one is spare."""
        return -(-2 // check_share(self.drift_share, "drift_share"))

    def shares(self, rows: int) -> Shares:
        """What each of so many rows is for, by its place alone."""
        place = np.arange(rows) % self.period
        tests, spare = place == 0, place == self.period // 2
        return Shares(np.flatnonzero(tests), np.flatnonzero(spare), np.flatnonzero(~(tests | spare)))

    @silent()
    def first(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ChainEngine:
        """The engine of the first phase: a model, and the reference to which later queries are compared."""
        places = one_a_group(rows)
        self.fill_in(phase, len(places))
        if self.retrain != "drift":
            model = self.train(rows, places, None, unsafe_noise)
            return ChainEngine(self, phase, model, None, model.event_, retrained=True)
        test, spare, training = (places[share] for share in self.shares(len(places)))
        model = self.train(rows, training, None, unsafe_noise)
        reference, event = self.summary(model, rows.X[np.sort(np.append(test, spare))], unsafe_noise)
        return ChainEngine(self, phase, model, reference, Parallel((model.event_, event)), retrained=True)

    def train(self, rows: Rows, places: Integers, previous: Any, unsafe_noise: Noise | None) -> Any:
        """A private model of the rows at these places; it starts from the previous *model*, which was released."""
        learner = self.prepared()
        if isinstance(learner, PrivateLogisticRegression) and previous is not None:
            learner.set_params(start=previous.hypothesis_, fourier_seed=previous.fourier_seed_)
            if self.retrain == "drift":
                learner.set_params(start=shortened_start(previous), steps=learner.steps or STEPS)
        model = learner._fit(rows.X[places], rows.codes[places], unsafe_noise)
        if not fits(model.event_, epsilon=self.epsilon, delta=self.delta):
            raise ValueError(f"{type(learner).__name__} does not keep to the epsilon and delta that it was given")
        return model

    def prepared(self) -> Any:
        """The learner with this ε and δ, and the classes as codes."""
        learner = clone(self.learner)
        known: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta}
        if isinstance(learner, PrivateLogisticRegression):
            known["classes"] = list(range(self.classes))
        return learner.set_params(**{name: known[name] for name in known if name in learner.get_params(deep=False)})

    def summary(self, model: Any, X: Array, unsafe_noise: Noise | None) -> Release[Summary]:
        """The noisy summary of rows with the labels of a model."""
        return drift_summary(
            unit_features(model, X),
            np.asarray(model.predict(X)).astype(np.int64),
            classes=self.classes,
            epsilon=self.epsilon,
            delta=self.delta,
            unsafe_noise=unsafe_noise,
        )

    def restore(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], phase: Phase, *, trust_models: bool = False
    ) -> ChainEngine:
        """The engine that `ChainEngine.state` wrote down."""
        model = restored_model(self.prepared(), header["model"], arrays)
        noted = header["reference"]
        reference = None if noted is None else Summary(
            np.array(arrays["reference"], dtype=np.int64),
            Shape(*noted["shape"]),
            noted["rows"],
            Fraction(noted["scale"]),
            noted["pure"],
        )
        event = event_from_json(header["event"])
        return ChainEngine(
            self, phase, model, reference, event, retrained=header["retrained"], due=header["due"]
        )


class ChainEngine:
    """The private model of a phase, and the reference by which the next phases find out whether queries have drifted.

    A model that was released privately answers any number of queries at no cost. At the end of a phase the queries,
    with the labels that the model gave them, are the rows of the next phase. A summary of a tenth of them is compared
    to the reference. If they have drifted, a new model is trained on the others, starting from the old one, and a
    second summary, of rows that neither test nor train, is the new reference. If not, all of them are dropped.

    Guarantee. Over all phases together, and whoever asks adaptively: (ε, δ)-differential privacy for a replaced row of
    the first phase, features and label; and for a replaced query, its own answer not being part of what is seen. With
    groups, the same for all rows (or queries) of one group in one phase. `event` is what the rows of the phase paid.
    Everything the engine holds may be published: the model, the reference, and whether the model is new (`retrained`).

    Why. *Rows of the first phase.* By its place a row either trains or is summed up. If it trains, the model is
    (ε, δ)-DP in it, and the summary, of other rows with the model's labels, is post-processing. If it is summed up, the
    model does not depend on it, and given the model the summary is (ε, δ)-DP in it. Later phases see the model, the
    reference and queries that were chosen in the light of these: post-processing. *A query of phase i.* Answers of
    phase i are a function of its model, so the view up to the end of the phase is the same whatever the query was.
    Then the query is one row, with its own label by that model, among rows that the view determines; by its place it is
    for the test, spare, or for training. If for the test, it is seen by one summary, (ε, δ)-DP. If for training or
    spare, the test does not depend on it; if a new model is trained, exactly one (ε, δ)-DP release sees it, and if not,
    none does. The rest is post-processing: neither the rows of phase i nor those of phase 1 are ever looked at
    again, and a descent that starts from a released model starts from a public point. With groups, one row of each
    group is kept, the first to arrive: a replaced group is a replaced row. See docs/predictors/chain.md.

    Source. Naor, Nissim, Stemmer, Yan, *Private Everlasting Prediction*: the game is that of Figure 1, and the privacy
    of Definition 3.4 holds with the ε and δ of one phase. In place of Algorithm GenericBBL the predictor releases a
    model a phase, which needs far fewer rows where a private learner is known. New: the test of drift.
    """

    def __init__(
        self,
        recipe: Recipe,
        phase: Phase,
        model: Any,
        reference: Summary | None,
        event: Event,
        *,
        retrained: bool,
        due: int = 0,
    ) -> None:
        self.recipe, self.phase, self.model, self.reference = recipe, phase, model, reference
        self.event = event
        self.retrained = retrained
        self.due = due  # so many of the next phases train a new model, whatever the test says

    @silent()
    def label(self, X: Array) -> Integers:
        """The labels that the model gives to the rows."""
        return np.asarray(self.model.predict(X)).astype(np.int64)

    @property
    def one_answer(self) -> int | None:
        """See `one_answer`: a function of the model, which may be published."""
        return one_answer(self.model)

    @silent()
    def next(self, phase: Phase, rows: Rows, unsafe_noise: Noise | None) -> ChainEngine:
        """The engine of the next phase, whose rows are the queries of this one with the labels released."""
        recipe, places = self.recipe, one_a_group(rows)
        if recipe.retrain == "never" or len(places) < recipe.fewest:
            return ChainEngine(recipe, phase, self.model, self.reference, self.event, retrained=False, due=self.due)
        if recipe.retrain == "always":
            model = recipe.train(rows, places, self.model, unsafe_noise)
            return ChainEngine(recipe, phase, model, None, model.event_, retrained=True)
        assert self.reference is not None
        test, spare, training = (places[share] for share in recipe.shares(len(places)))
        current, tested = recipe.summary(self.model, rows.X[test], unsafe_noise)
        alarm = drifted(self.reference, current, false_alarm=recipe.false_alarm)
        if not (alarm or self.due):
            return ChainEngine(recipe, phase, self.model, self.reference, tested, retrained=False)
        model = recipe.train(rows, training, self.model, unsafe_noise)
        reference, summed_up = recipe.summary(model, rows.X[spare], unsafe_noise)
        event = Parallel((tested, model.event_, summed_up))
        due = FOLLOW if alarm else self.due - 1
        return ChainEngine(recipe, phase, model, reference, event, retrained=True, due=due)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What `Recipe.restore` needs: numbers for JSON, and arrays."""
        header, arrays = model_state(self.model)
        noted = None
        if self.reference is not None:
            arrays["reference"] = self.reference.values
            noted = {
                "shape": list(self.reference.shape),
                "rows": self.reference.rows,
                "scale": str(self.reference.scale),
                "pure": self.reference.pure,
            }
        return {
            "model": header,
            "reference": noted,
            "event": self.event.to_json(),
            "retrained": self.retrained,
            "due": self.due,
        }, arrays


def shortened_start(model: PrivateLogisticRegression) -> Linear:
    """The weights of a released model, scaled down until no row has a score beyond `START`, but for the intercept.

    Long weights would only repeat the boundary that the labels come from. From short ones a short descent leans
    towards the difference between the means of the classes, and so follows clusters that have moved.
    """
    coef, intercept = model.hypothesis_
    length = model._row_norm if model.frequencies_ is None else 1.0
    longest = length * float(np.linalg.norm(coef, axis=0).max())
    factor = min(1.0, START / longest) if longest > 0 else 1.0
    return Linear(coef * factor, intercept * factor)


def one_answer(model: Any) -> int | None:
    """The class that a released model gives to every row that there can be, if that follows from it; else None.

    For a linear model: one class has the highest score wherever a row, of the declared length at most, may lie. For a
    threshold: both ends of its domain have one label. Of other concepts nothing is said. It is a function of the
    model alone, so whoever may see the model may see it.
    """
    if isinstance(model, PrivateLogisticRegression):
        coef, intercept = model.hypothesis_
        coef = coef * (model._row_norm if model.frequencies_ is None else 1.0)
        if coef.shape[1] == 1:  # the score of the second of two classes
            coef, intercept = np.hstack([0 * coef, coef]), np.append(0.0, intercept)
        best = int(np.argmax(intercept))
        others = np.arange(len(intercept)) != best
        reach = np.linalg.norm(coef[:, others] - coef[:, [best]], axis=0)
        return best if bool((intercept[best] - intercept[others] > reach).all()) else None
    concepts = model._hypotheses()
    if not isinstance(concepts, Thresholds):
        return None
    domain, ranks = concepts.finite_domain()
    ends = np.array([domain.value(ranks[0]), domain.value(ranks[-1])])
    first, last = concepts.predict(model.hypothesis_, ends)
    return int(first) if first == last else None


def one_a_group(rows: Rows) -> Integers:
    """The places of all rows, or with groups of the first row of each group, in order of arrival."""
    if rows.groups is None:
        return np.arange(len(rows.X))
    return np.sort(np.unique(rows.groups, return_index=True)[1])


# ── models on file ────────────────────────────────────────────────────────────────────────────────────────────────


def model_state(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """A fitted private learner as numbers for JSON and arrays; none of its parameters, which its owner knows."""
    header: dict[str, Any] = {"columns": int(model.n_features_in_), "event": model.event_.to_json()}
    if isinstance(model, PrivateLogisticRegression):
        plan = dataclasses.asdict(model._plan) | {"sigma": str(model._plan.sigma)}
        header |= {"kind": "linear", "plan": plan, "fourier_seed": model.fourier_seed_}
        arrays = {"coef": model.hypothesis_.coef, "intercept": model.hypothesis_.intercept}
        return header, arrays if model.frequencies_ is None else arrays | {"frequencies": model.frequencies_}
    if not isinstance(model.hypothesis_, Concept):
        raise TypeError(
            f"a hypothesis of type {type(model.hypothesis_).__name__} has no file format: linear models and the "
            "concepts of reticent.concepts have"
        )
    return header | {"kind": "concept", "concept": model.hypothesis_.to_dict()}, {}


def restored_model(learner: Any, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """The fitted learner that `model_state` wrote down, on top of an unfitted one with the same parameters."""
    linear = isinstance(learner, PrivateLogisticRegression)
    if header["kind"] != ("linear" if linear else "concept"):
        raise ValueError(f"the model on file is of the kind {header['kind']!r}, which {type(learner).__name__} is not")
    event = event_from_json(header["event"])
    learner.n_features_in_ = header["columns"]
    if not linear:
        return learner._keep(Release(Concept.from_dict(header["concept"]), event))
    learner._plan = Plan(**header["plan"] | {"sigma": Fraction(header["plan"]["sigma"])})
    learner._row_norm = float(learner._checked_norm())
    learner.frequencies_, learner.fourier_seed_ = arrays.get("frequencies"), header["fourier_seed"]
    learner.classes_, learner.n_iter_ = np.array(learner.classes), learner._plan.steps
    learner.event_, learner.guarantee_ = event, guarantee(event, delta=learner.delta)
    learner.hypothesis_ = Linear(np.array(arrays["coef"]), np.array(arrays["intercept"]))
    learner.coef_, learner.intercept_ = learner.hypothesis_.coef.T.copy(), learner.hypothesis_.intercept
    return learner
