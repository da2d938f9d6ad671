"""What a planner or an `n_required` promises, `fit` runs at exactly that size; else both refuse for one reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import reticent
from reticent import concepts, plan
from reticent.concepts import (
    ConceptClass,
    Finite,
    Halfspaces,
    Intervals,
    KPoints,
    Points,
    Products,
    Rectangles,
    Stumps,
    Thresholds,
    Unions,
)
from reticent.concepts.order import Ordered
from reticent.errors import OutOfReach
from reticent.plan import Plan
from reticent.promises import rows_needed

pytestmark = pytest.mark.slow

CLASSES: dict[type, list[ConceptClass[Any]]] = {
    Finite: [Finite(np.eye(8, dtype=int))],
    Halfspaces: [Halfspaces(1), Halfspaces(2), Halfspaces(3)],
    Intervals: [Intervals(bits=4), Intervals(bits=40), Intervals()],
    KPoints: [KPoints(2, bits=4), KPoints(3, bits=40)],
    Points: [Points(bits=4), Points(bits=64)],
    Products: [Products([Points(bits=2), Thresholds(bits=2)]), Products([Intervals(bits=16), Intervals(bits=16)])],
    Rectangles: [Rectangles(2, bits=2), Rectangles(2, bits=16), Rectangles(3, bits=16), Rectangles(2)],
    Stumps: [Stumps(3, bits=3), Stumps(40, bits=16)],
    Thresholds: [Thresholds(bits=4), Thresholds(bits=64), Thresholds()],
    Unions: [Unions([Thresholds(bits=3), Points(bits=3)]), Unions([Intervals(bits=30), Points(bits=30)])],
}
WORK = 1 << 22  # labels of all rows in all labellings: what takes more is checked, and run for a larger error
ERRORS = (0.3, 0.7)

Estimator = Any
Make = Callable[[ConceptClass[Any], float], Estimator]


class Case(NamedTuple):
    """How an estimator is made for a class, what plans for it, and how it is fitted to so many rows."""

    make: Make
    planned: Callable[[Estimator, float], Plan] | None = None
    fit: Callable[[Estimator, int], object] | None = None


def own_learner(concept_class: ConceptClass[Any]) -> Estimator:
    """The learner made for a class."""
    match concept_class:
        case Thresholds(bits=bits, both_orientations=False) if bits:
            return reticent.ThresholdLearner(bits=bits, epsilon=1)
        case Points(bits=bits) if bits:
            return reticent.PointLearner(bits=bits, epsilon=1, delta=1e-6)
        case Rectangles(dimensions=dimensions, bits=bits) if bits:
            return reticent.RectangleLearner(bits=bits, dimensions=dimensions, epsilon=1, delta=1e-6)
        case _:
            return reticent.ExponentialLearner(concept_class, epsilon=1)


def own_sanitizer(concept_class: ConceptClass[Any]) -> Estimator:
    match concept_class:
        case Thresholds(bits=bits) | Intervals(bits=bits) if bits:
            return reticent.ThresholdSanitizer(bits=bits, epsilon=1, delta=1e-6)
        case Points(bits=bits) | KPoints(bits=bits):
            return reticent.PointSanitizer(bits=bits, epsilon=1, delta=1e-6)
        case _:
            return reticent.NetSanitizer(concept_class, epsilon=1, points=public_points(concept_class))


def public_points(concept_class: ConceptClass[Any]) -> Any:
    """None where the class has a small domain of its own; else a few points, or all that a list of concepts labels."""
    small = isinstance(concept_class, Ordered) and (concept_class.values or 1 << 60) ** concept_class.columns < 1 << 10
    return None if small else concept_class.example_points()


def net(concept_class: ConceptClass[Any]) -> Any:
    return concept_class.example_points() if concept_class.size is None else None


def refuse(reason: str) -> Estimator:
    raise TypeError(reason)


def threshold(concept_class: ConceptClass[Any], error: float) -> Estimator:
    if not isinstance(concept_class, Thresholds) or concept_class.bits is None:
        return refuse("for thresholds")
    return reticent.ThresholdLearner(bits=concept_class.bits, epsilon=2, delta=1e-6, error=error)


def point(concept_class: ConceptClass[Any], error: float) -> Estimator:
    if not isinstance(concept_class, Points):
        return refuse("for points")
    return reticent.PointLearner(bits=concept_class.bits, epsilon=2, delta=1e-6, error=error)


def rectangle(concept_class: ConceptClass[Any], error: float) -> Estimator:
    if not isinstance(concept_class, Rectangles) or concept_class.bits is None:
        return refuse("for rectangles")
    return reticent.RectangleLearner(
        bits=concept_class.bits, dimensions=concept_class.dimensions, epsilon=2, delta=1e-6, error=error
    )


def threshold_sanitizer(concept_class: ConceptClass[Any], error: float) -> Estimator:
    if not isinstance(concept_class, Thresholds) or concept_class.bits is None:
        return refuse("for thresholds")
    return reticent.ThresholdSanitizer(bits=concept_class.bits, epsilon=2, error=error)


def point_sanitizer(concept_class: ConceptClass[Any], error: float) -> Estimator:
    if not isinstance(concept_class, Points):
        return refuse("for points")
    return reticent.PointSanitizer(bits=concept_class.bits, epsilon=2, delta=1e-6, error=error)


def common(estimator: Estimator, *names: str) -> dict[str, Any]:
    return {name: getattr(estimator, name) for name in names}


def fit_all(estimator: Estimator, rows: int) -> object:
    X, y = labelled(class_of(estimator), rows)
    return estimator.fit(X, y)


def fit_on_points(estimator: Estimator, rows: int) -> object:
    """A sanitizer that is given its points promises nothing for others."""
    points = getattr(estimator.sanitizer, "points", None)
    if points is None:
        return fit_all(estimator, rows)
    drawn = np.asarray(points)[np.random.default_rng(0).integers(len(points), size=rows)]
    return estimator.fit(drawn.reshape(rows, -1), labels_of(estimator.concept_class, drawn))


def fit_beside_public(estimator: Estimator, rows: int) -> object:
    points = rows_needed(estimator.n_public_required, estimator.error)
    X, y = labelled(estimator.concept_class, rows)
    return estimator.fit(X, y, public=labelled(estimator.concept_class, points, seed=1)[0])


def fit_some_labels(estimator: Estimator, rows: int) -> object:
    X, y = labelled(class_of(estimator), rows)
    return estimator.fit(X, np.where(np.arange(rows) < estimator.labels_required(estimator.error), y, -1))


def fit_asking(estimator: Estimator, rows: int) -> object:
    X, y = labelled(class_of(estimator), rows)
    return estimator.fit(X, y, n_labels=estimator.labels_required(estimator.error))


def fit_and_ask(estimator: Estimator, rows: int) -> object:
    X, y = labelled(estimator.learner, rows)
    return estimator.fit(X, y).predict(X[:1])


def private(method: str) -> Case:
    return Case(
        lambda c, e: reticent.PrivatePredictor(c, epsilon=2, method=method, error=e), None, fit_and_ask
    )


CASES: dict[str, Case] = {
    "ActiveLearner": Case(
        lambda c, e: reticent.ActiveLearner(own_learner(c), epsilon=0.5, delta=1e-6, error=e),
        lambda x, e: plan.active(x.learner, error=e, **common(x, "epsilon", "delta")),
        fit_asking,
    ),
    "ActiveLearner, semi-supervised": Case(
        lambda c, e: reticent.ActiveLearner(
            reticent.SemiSupervisedLearner(c, epsilon=1, delta=1e-6), epsilon=0.5, delta=1e-6, error=e
        ),
        lambda x, e: plan.active(x.learner, error=e, **common(x, "epsilon", "delta")),
        fit_asking,
    ),
    "ExponentialLearner": Case(
        lambda c, e: reticent.ExponentialLearner(c, epsilon=2, net=net(c), error=e),
        lambda x, e: plan.exponential(x.concept_class, error=e, **common(x, "epsilon", "net")),
    ),
    "ExponentialLearner, realizable": Case(
        lambda c, e: reticent.ExponentialLearner(c, epsilon=2, net=net(c), error=e, realizable=True),
        lambda x, e: plan.exponential(x.concept_class, error=e, realizable=True, **common(x, "epsilon", "net")),
    ),
    "GenericBBL": Case(
        lambda c, e: reticent.GenericBBL(
            c, epsilon=0.5, delta=1e-6, constants="calibrated", labeller="gaussian", error=e
        ),
        lambda x, e: plan.generic_bbl(x.concept_class, error=e, **common(x, "epsilon", "delta", "labeller")),
    ),
    "LabelBoost": Case(
        lambda c, e: reticent.LabelBoost(own_learner(c), c, epsilon=2, delta=1e-6, rounds=1, error=e),
        lambda x, e: plan.label_boost(x.learner, x.concept_class, error=e, **common(x, "epsilon", "delta", "rounds")),
        fit_some_labels,
    ),
    "LabelPrivateLearner": Case(
        lambda c, e: reticent.LabelPrivateLearner(c, epsilon=2, error=e),
        lambda x, e: plan.label_private(x.concept_class, error=e, **common(x, "epsilon")),
    ),
    "NetSanitizer": Case(
        lambda c, e: reticent.NetSanitizer(c, epsilon=2, error=e, points=public_points(c)),
        lambda x, e: plan.net_sanitizer(x.concept_class, error=e, **common(x, "epsilon", "points")),
    ),
    "NetSanitizer, the whole domain": Case(
        lambda c, e: reticent.NetSanitizer(c, epsilon=2, error=e),
        lambda x, e: plan.net_sanitizer(x.concept_class, error=e, **common(x, "epsilon")),
    ),
    "PointLearner": Case(point, lambda x, e: plan.point(error=e, **common(x, "bits", "epsilon", "delta"))),
    "PointSanitizer": Case(
        point_sanitizer, lambda x, e: plan.point_sanitizer(error=e, **common(x, "bits", "epsilon", "delta"))
    ),
    "PrivatePredictor, flip": private("flip"),
    "PrivatePredictor, net": private("net"),
    "PrivatePredictor, votes": private("votes"),
    "RectangleLearner": Case(
        rectangle, lambda x, e: plan.rectangle(error=e, **common(x, "bits", "dimensions", "epsilon", "delta"))
    ),
    "SanitizedLearner": Case(
        lambda c, e: reticent.SanitizedLearner(own_sanitizer(c), c, epsilon=4, delta=1e-6, error=e),
        lambda x, e: plan.sanitized(x.sanitizer, x.concept_class, error=e, **common(x, "epsilon", "delta")),
        fit_on_points,
    ),
    "SanitizedLearner, realizable": Case(
        lambda c, e: reticent.SanitizedLearner(
            own_sanitizer(c), c, epsilon=4, delta=1e-6, error=e, realizable=True
        ),
        lambda x, e: plan.sanitized(
            x.sanitizer, x.concept_class, error=e, realizable=True, **common(x, "epsilon", "delta")
        ),
        fit_on_points,
    ),
    "SemiPrivateLearner": Case(
        lambda c, e: reticent.SemiPrivateLearner(c, epsilon=2, error=e),
        lambda x, e: plan.semi_private(x.concept_class, error=e, **common(x, "epsilon")),
        fit_beside_public,
    ),
    "SemiSupervisedLearner": Case(
        lambda c, e: reticent.SemiSupervisedLearner(c, epsilon=4, delta=1e-6, error=e),
        lambda x, e: plan.semi_supervised(x.concept_class, error=e, **common(x, "epsilon", "delta")),
        fit_some_labels,
    ),
    "StablePredictor": Case(lambda c, e: reticent.StablePredictor(c, stability=0.3, error=e)),
    "ThresholdLearner": Case(
        threshold, lambda x, e: plan.threshold(error=e, **common(x, "bits", "epsilon", "delta"))
    ),
    "ThresholdSanitizer": Case(
        threshold_sanitizer, lambda x, e: plan.threshold_sanitizer(error=e, **common(x, "bits", "epsilon"))
    ),
}
NO_CLASS = {"PrivateLogisticRegression": "a linear model, of no concept class; see below"}
OTHER_PLANNERS = {
    "advise": "compares estimators, and plans none",
    "everlasting": "see below",
    "pate": "counts the answers of teachers that there are already",
    "pate_bounds": "evaluates theorems; no estimator is planned",
}

SLOW = (  # to plan
    "ActiveLearner",
    "ActiveLearner, semi-supervised",
    "GenericBBL",
    "PrivatePredictor, net",
    "SanitizedLearner, realizable",
)
PAIRS = [
    pytest.param(name, one, id=f"{name}-{one!r}"[:90])
    for name in CASES
    for kind in CLASSES.values()
    for one in (kind[:2][-1:] if name in SLOW else kind)
]


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def class_of(estimator: Estimator) -> ConceptClass[Any]:
    queries = getattr(estimator, "query_class", None)
    found = queries() if queries else getattr(estimator, "concept_class", None)
    if found is None:
        learner = getattr(estimator, "learner", None)
        found = estimator.hypothesis_class() if learner is None else class_of(learner)
    assert isinstance(found, ConceptClass)
    return found


def points_of(concept_class: ConceptClass[Any], rows: int, generator: np.random.Generator) -> NDArray[Any]:
    """Rows of shape (rows, columns) in general position, as far as the domain has room."""
    match concept_class:
        case Finite():
            return generator.integers(0, 8, size=(rows, 1))
        case Halfspaces(dimensions=columns):
            return generator.integers(-(10**4), 10**4, size=(rows, columns))
        case Products(classes=classes):
            return np.column_stack([points_of(part, rows, generator) for part in classes])
        case Unions(classes=classes):
            return points_of(classes[0], rows, generator)
        case Ordered(values=None):
            return generator.integers(-(10**6), 10**6, size=(rows, concept_class.columns))
    assert isinstance(concept_class, Ordered)
    assert concept_class.values is not None
    return generator.integers(0, min(concept_class.values, 2**62), size=(rows, concept_class.columns))


def labelled(concept_class: ConceptClass[Any], rows: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    X = points_of(concept_class, rows, np.random.default_rng(seed))
    return X, labels_of(concept_class, X[:, 0] if concept_class.columns == 1 else X)


def labels_of(concept_class: ConceptClass[Any], points: NDArray[Any]) -> NDArray[np.int64]:
    """What some concept says of points."""
    found = concept_class.dichotomies(points[:2])
    return np.asarray(concept_class.predict(found.concept(found.count - 1), points))


# ── the test ──────────────────────────────────────────────────────────────────────────────────────────────────────


def fit(name: str, estimator: Estimator, rows: int) -> object:
    return (CASES[name].fit or fit_all)(estimator, rows)


UNLISTED = ("PointLearner", "PointSanitizer", "RectangleLearner", "ThresholdLearner", "ThresholdSanitizer")


def work(name: str, concept_class: ConceptClass[Any], rows: int) -> int:
    """About how many labels are computed."""
    if name in UNLISTED or (name == "ActiveLearner" and not isinstance(concept_class, Finite | Halfspaces)):
        return 20 * rows
    heavy = 1000 if isinstance(concept_class, Halfspaces) else 1
    return rows * min(concept_class.labellings(min(rows, 2000)), 1 << 30) * heavy


@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
@pytest.mark.parametrize(("name", "concept_class"), PAIRS)
def test_a_planned_size_is_run_or_refused_by_both(name: str, concept_class: ConceptClass[Any]) -> None:
    case = CASES[name]
    for error in ERRORS:
        try:
            estimator = case.make(concept_class, error)
            required, why = needs(estimator, error)
        except OutOfReach as refused:
            reason = str(refused)
            assert case.planned is not None
            with pytest.raises(OutOfReach) as planned:
                case.planned(estimator, error)
            with pytest.raises(OutOfReach) as fitted:
                fit(name, estimator, 10)
            assert str(planned.value) == str(fitted.value) == reason
            return
        except (TypeError, ValueError, NotImplementedError):
            if case.planned is None:
                return
            with pytest.raises((TypeError, ValueError, NotImplementedError)):  # the class is accepted by neither
                case.planned(case.make(concept_class, error), error)
            return
        if case.planned is not None:
            planned_ = case.planned(estimator, error)
            assert (planned_.rows, planned_.obstacle) == (required, why)
            assert planned_.feasible == (why is None)
            if why is not None:
                assert why in str(planned_)
        if why is not None:
            refuses(name, estimator, required, why)
            return
        if work(name, concept_class, required) <= WORK:
            fit(name, estimator, required)
            return
        # Too long for a test: no check refuses it, and a larger error takes fewer rows.


def needs(estimator: Estimator, error: float) -> tuple[int, str | None]:
    """The rows that a promise takes, and why `fit` cannot run on them, if so; `OutOfReach` where no number would do."""
    try:
        return estimator.n_required(error), None
    except OutOfReach as refused:
        if refused.required is None:
            raise
        return refused.required, str(refused)


def refuses(name: str, estimator: Estimator, rows: int, reason: str) -> None:
    """`fit` says why it cannot run on so many rows, in the same words; where they are too many to make, its check."""
    run = estimator.check_size if rows > 10**6 else partial(fit, name, estimator)
    with pytest.raises(OutOfReach) as refused:
        run(rows)
    assert str(refused.value) == reason
    assert refused.value.required in (None, rows)


@pytest.mark.parametrize("error", [0.5])
def test_linear_models_run_at_the_planned_size(error: float) -> None:
    model = reticent.PrivateLogisticRegression(epsilon=2, delta=1e-6, row_norm=1)
    rows = model.n_required(error, columns=3)
    X = np.random.default_rng(0).normal(size=(rows, 3))
    model.fit(X, X[:, 0] > 0)


@pytest.mark.filterwarnings("ignore::reticent.errors.PrivacyWarning")
@pytest.mark.parametrize("learner", ["linear", "thresholds", "other"])
def test_everlasting_predictors_run_at_the_planned_size(learner: str) -> None:
    """By a large ε: a few thousand rows."""
    public: dict[str, Any] = {"epsilon": 200, "delta": 1e-3}
    rows = plan.everlasting(10, 1, learner=learner, **public).rows_required  # type: ignore[arg-type]
    assert plan.everlasting(rows, 1, learner=learner, **public).phases  # type: ignore[arg-type]
    assert rows < 20_000
    X = np.random.default_rng(0).normal(size=(rows, 1))
    from sklearn.tree import DecisionTreeClassifier

    chosen = {"linear": None, "thresholds": Thresholds(), "other": DecisionTreeClassifier()}[learner]
    reticent.EverlastingPredictor(chosen, classes=(0, 1), **public).fit(X, X[:, 0] > 0)
    with pytest.raises(reticent.InsufficientData):
        reticent.EverlastingPredictor(chosen, classes=(0, 1), **public).fit(X[:-1], X[:-1, 0] > 0)


def test_a_realizable_plan_says_what_the_learner_is_told_and_fit_takes_exactly_its_rows() -> None:
    concept_class = Intervals(bits=16)
    planned = plan.exponential(concept_class, error=0.1, epsilon=1, realizable=True)
    assert "set realizable=True in the learner as well" in str(planned)
    assert planned.rows == 610
    X, y = labelled(concept_class, planned.rows)
    learner = reticent.ExponentialLearner(concept_class, epsilon=1, error=0.1, realizable=True)
    learner.fit(X, y)
    with pytest.raises(reticent.InsufficientData, match=f"from {planned.rows} rows on"):
        learner.fit(X[1:], y[1:])
    with pytest.raises(reticent.InsufficientData, match="from 4873 rows on"):  # for labels of any kind
        learner.set_params(realizable=False).fit(X, y)
    with pytest.raises(TypeError, match="realizable must be True or False, got str"):
        learner.set_params(realizable="yes").fit(X, y)


# ── nothing is left out ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_concept_class_is_tried() -> None:
    public = {value for value in vars(concepts).values() if isinstance(value, type) and issubclass(value, ConceptClass)}
    assert public - {ConceptClass} == set(CLASSES)


def test_every_estimator_that_counts_rows_is_tried() -> None:
    public = {name for name in reticent.__all__ if hasattr(getattr(reticent, name), "n_required")}
    assert public == {name.partition(",")[0] for name in CASES} | set(NO_CLASS)
    for name in public - set(NO_CLASS):
        assert hasattr(getattr(reticent, name), "check_size"), name


def test_every_planner_is_tried() -> None:
    planners = {name for name in plan.__all__ if inspect.isfunction(getattr(plan, name))}
    source = inspect.getsource(inspect.getmodule(test_every_planner_is_tried))  # type: ignore[arg-type]
    assert planners == {name for name in planners if f"plan.{name}(" in source} | set(OTHER_PLANNERS)


def test_both_outcomes_occur() -> None:
    """Or the test above would be empty."""
    wide, narrow = Rectangles(2, bits=16), Rectangles(2, bits=2)
    for make in (CASES[name].make for name in ("ExponentialLearner", "LabelPrivateLearner", "StablePredictor")):
        assert needs(make(wide, 0.1), 0.1)[1] is not None
        assert needs(make(narrow, 0.3), 0.3)[1] is None


# ── what was promised and refused ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("planned", "rows"),
    [
        (lambda c: plan.exponential(c, realizable=True, error=0.1, epsilon=1), 1146),
        (lambda c: plan.label_private(c, error=0.1, epsilon=1), 898),
        (lambda c: plan.label_boost(own_learner(c), c, error=0.1, epsilon=1, delta=1e-6), 374_877),
    ],
)
def test_plans_of_wide_rectangles_say_that_they_cannot_be_run(
    planned: Callable[[ConceptClass[Any]], Plan], rows: int
) -> None:
    found = planned(Rectangles(2, bits=16))
    assert (found.rows, found.feasible) == (rows, False)
    assert "this cannot be run: " in str(found)
    assert "would promise" in str(found)


def test_rows_may_be_given_to_a_plan_that_cannot_be_run() -> None:
    found = plan.label_private(Rectangles(2, bits=16), rows=898, epsilon=1)
    assert found.error is not None
    assert found.error <= 0.1
    assert not found.feasible
    assert plan.label_private(Rectangles(2, bits=16), rows=100, epsilon=1).feasible


def test_the_reason_goes_from_one_process_to_another() -> None:
    import pickle

    with pytest.raises(OutOfReach) as refused:
        reticent.StablePredictor(Rectangles(2, bits=16), stability=0.1).n_required(0.1)
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), copy.required) == (str(refused.value), 20_367)
