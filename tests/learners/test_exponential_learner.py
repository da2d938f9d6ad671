from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from common import (
    BAD_DATA,
    BAD_EPSILON,
    BAD_ERROR,
    BAD_FAILURE,
    OTHER_LABELS,
    RANDOM,
    TINY,
    Array,
    Rows,
    allowed,
    learner_law,
    refuses,
    refuses_too_few_rows,
    table,
)
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import law, worst_case
from reticent.audit.neighbours import random_row_replacements, row_replacements
from reticent.concepts import (
    Choice,
    ConceptClass,
    Dichotomies,
    Finite,
    Halfspaces,
    Interval,
    Intervals,
    KPoints,
    Listed,
    Points,
    Rectangles,
    Stumps,
    Threshold,
    Thresholds,
)
from reticent.learners.exponential import ExponentialLearner
from reticent.mechanisms import Release, exponential
from reticent.noise import Noise
from reticent.privacy import Guarantee
from reticent.privacy.events import BoundedRange, SeededRelease

# ── privacy: the exact law of the whole learner ───────────────────────────────────────────────────────────────────


class CountsThrice(ExponentialLearner):
    """A twin: a replaced row moves the scores by 3. (By 2 would still be private where a class has all labellings.)"""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        return super()._learn(np.concatenate([rows] * 3), np.concatenate([labels] * 3), unsafe_noise)


class NetOfTheData(ExponentialLearner):
    """A twin: it draws from the dichotomies of the private points themselves."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        dichotomies = self.concept_class.dichotomies(rows)
        index, event = exponential(-dichotomies.errors(labels), epsilon=self.epsilon, unsafe_noise=unsafe_noise)
        return Release(dichotomies.concept(index), event)


class Parities(ConceptClass[int]):
    """A class of one's own, on two bits read as a number; it says no more than it must."""

    @property
    def vc_dimension(self) -> int:
        return 2

    @property
    def size(self) -> int:
        return 4

    def predict(self, concept: int, X: ArrayLike) -> Any:
        assert np.ndim(X) == 1
        masked = np.asarray(X) & concept
        return (masked & 1) ^ (masked >> 1)

    def concepts(self) -> Iterator[int]:
        return iter(range(4))

    def dichotomies(self, X: ArrayLike) -> Dichotomies[int]:
        return Listed(self, X, range(4))


LINE, PLANE = [(x,) for x in range(4)], [(x, y) for x in range(2) for y in range(2)]
CASES: dict[str, tuple[ConceptClass[Any], Any, list[Any]]] = {
    "counted thresholds": (Thresholds(bits=2), None, LINE),
    "counted thresholds of both orientations": (Thresholds(bits=2, both_orientations=True), None, LINE),
    "counted points": (Points(bits=2), None, LINE),
    "counted pairs of points": (KPoints(2, bits=2), None, LINE),
    "counted intervals": (Intervals(bits=2), None, LINE),
    "counted vectors": (Finite([[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1]]), None, LINE),
    "listed rectangles": (Rectangles(2, bits=1), None, PLANE),
    "listed parities": (Parities(), None, LINE),
    "a net for all integers": (Intervals(), [1, 2], LINE),
    "a net with stumps": (Stumps(2), [[0, 0], [1, 0], [0, 1]], PLANE),
    "a net in a finite class": (Thresholds(bits=2), [2], LINE),
}


def neighbours(points: list[Any], six_rows: int = 15) -> list[tuple[Rows, Rows]]:
    rows = [(point, label) for point in points for label in (0, 1)]
    few = [*row_replacements(rows, 1, ordered=False)]
    return few + list(random_row_replacements(np.random.default_rng(0), six_rows, domain=rows, rows=6))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_exact_law_of_the_learner_and_its_twin(case: str) -> None:
    concept_class, net, points = CASES[case]
    learner = ExponentialLearner(concept_class, epsilon=1, net=net)
    pairs = neighbours(points)
    assert worst_case(learner_law(learner), pairs, epsilon=1).upper < TINY
    twin = CountsThrice(concept_class, epsilon=1, net=net)
    assert worst_case(learner_law(twin), neighbours(points, 0), epsilon=1).lower > 0.01
    fitted = learner.fit(*table(pairs[0][0]))
    assert fitted.guarantee_ == Guarantee(epsilon=1.0)
    assert fitted.event_ == BoundedRange(Fraction(1))


@pytest.mark.parametrize("case", ["counted thresholds", "counted intervals", "a net for all integers"])
def test_the_points_of_the_data_must_not_be_the_net(case: str) -> None:
    concept_class, _, points = CASES[case]
    twin = NetOfTheData(concept_class, epsilon=1, net=[0])  # the net lets it pass the checks; it is not looked at
    assert worst_case(learner_law(twin), neighbours(points, 0), epsilon=50).lower > 0.1


@pytest.mark.parametrize("case", [case for case in CASES if "net" not in case])
def test_the_law_is_that_of_the_whole_class(case: str) -> None:
    concept_class, _, points = CASES[case]
    rows = tuple((point, int(i in (0, 3))) for i, point in enumerate([*points, points[1]]))
    X, y = table(rows)
    flat = X[:, 0] if X.shape[1] == 1 else X
    concepts = list(concept_class.concepts())
    weights: dict[Any, float] = {}
    for concept in concepts:
        errors = np.count_nonzero(concept_class.predict(concept, flat) != y)
        weights[concept] = weights.get(concept, 0) + math.exp(-0.5 * errors)
    found = law(lambda noise: learner_law(ExponentialLearner(concept_class, epsilon=1))(noise, rows))
    assert found.high.keys() == weights.keys()
    for concept, weight in weights.items():
        assert found.probability(concept) == pytest.approx(weight / sum(weights.values()))


def test_a_net_gives_its_dichotomies_only() -> None:
    rows: Rows = (((5,), 1), ((9,), 0), ((200,), 1))
    learner = ExponentialLearner(Intervals(), epsilon=1, net=[10, 20])
    possible = law(lambda noise: learner_law(learner)(noise, rows)).high.keys()
    assert possible == {Intervals().dichotomies([10, 20]).concept(index) for index in range(4)}
    assert Interval(low=10, high=20) in possible


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────


def failures(learner: ExponentialLearner, trials: int, rows: int, chance: dict[int, float], excess: float) -> int:
    """How often the error is more than `excess` above the best, for equally likely values with these chances of 1."""
    values, ones = np.array(list(chance)), np.array(list(chance.values()))
    concepts = learner.concept_class
    best = min(float(np.where(labels, 1 - ones, ones).mean()) for labels, _ in concepts.dichotomies(values))
    generator, bad = np.random.default_rng(11), 0
    for trial in range(trials):
        drawn = generator.integers(len(values), size=rows)
        learner.set_params(unsafe_seed=trial).fit(values[drawn][:, None], generator.random(rows) < ones[drawn])
        labels = concepts.predict(learner.hypothesis_, values)
        bad += float(np.where(labels, 1 - ones, ones).mean()) > best + excess
    return bad


@pytest.mark.parametrize(
    "concept_class", [Thresholds(bits=32), Intervals(bits=16), Points(bits=32), KPoints(2, bits=16)], ids=str
)
@pytest.mark.parametrize(
    "chance",
    [
        {0: 0.9, 7: 0.5, 8: 0.6, 60_000: 0.1},  # no concept fits
        dict.fromkeys(range(100, 108), 0.5),  # every concept is as good as any other
        {3: 1.0, 4: 0.8, 5: 0.0, 65_535: 0.3},
    ],
)
def test_promise(concept_class: ConceptClass[Any], chance: dict[int, float]) -> None:
    learner = ExponentialLearner(concept_class, epsilon=1, error=0.2, failure=0.1)
    rows = learner.n_required(0.2)
    assert failures(learner, 30, rows, chance, 0.2) <= allowed(30, 0.1)


def test_promise_where_a_concept_fits() -> None:
    learner = ExponentialLearner(Intervals(bits=16), epsilon=1, failure=0.1)
    rows = learner.n_required(0.1, realizable=True)
    assert rows < learner.n_required(0.1) / 3
    chance = {0: 0.0, 1: 0.0, 40: 1.0, 41: 1.0, 42: 0.0, 43: 0.0, 44: 0.0, 45: 0.0}
    assert failures(learner, 60, rows, chance, 0.1) <= allowed(60, 0.1)


def test_rows_required_grow_with_the_logarithm_of_the_class() -> None:
    def rows(bits: int, **changed: Any) -> int:
        return ExponentialLearner(Thresholds(bits=bits), **{"epsilon": 1, **changed}).n_required(0.1)

    assert 1.8 < rows(2000) / rows(1000) < 2.1
    assert rows(64, epsilon=0.01) > 8 * rows(64)
    assert rows(64, failure=1e-6) > rows(64)
    assert rows(64, net=[1, 2, 3]) < rows(2)  # four candidates instead of five


def test_too_few_rows_for_the_error_asked_for() -> None:
    refuses_too_few_rows(ExponentialLearner(Thresholds(bits=8), epsilon=1, error=0.2))


# ── what it learns from ───────────────────────────────────────────────────────────────────────────────────────────


def test_huge_and_many_dimensional_classes() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 2**40, size=(5000, 1))
    huge = ExponentialLearner(Thresholds(bits=64), epsilon=1).fit(x, x[:, 0] < 2**39)
    assert huge.score(x, x[:, 0] < 2**39) > 0.95
    plane = generator.normal(size=(5000, 2))
    grid = np.array([[a, b] for a in (-2, -1, 0, 1.0) for b in (-2, -1, 0, 1.0)])
    half = ExponentialLearner(Halfspaces(2), epsilon=1, net=grid).fit(plane, plane[:, 0] > 0.5)
    assert half.score(plane, plane[:, 0] > 0.5) > 0.8
    stump = ExponentialLearner(Stumps(2), epsilon=1, net=grid).fit(plane, plane[:, 1] < -1)
    assert (stump.hypothesis_.feature, stump.hypothesis_.at) == (1, -1.0)


def test_seeded_cloned_and_pickled() -> None:
    learner = ExponentialLearner(Thresholds(bits=8), epsilon=1, unsafe_seed=5).fit([[1], [2]], [1, 0])
    assert learner.guarantee_.seeded
    assert learner.event_ == SeededRelease(BoundedRange(Fraction(1)))
    again = clone(learner).fit([[1], [2]], [1, 0])
    assert again.hypothesis_ == learner.hypothesis_ == pickle.loads(pickle.dumps(learner)).hypothesis_
    assert isinstance(again.hypothesis_, Threshold)


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = OTHER_LABELS | {"check_classifiers_train": "no cut of the first column fits the data"}


def cut(X: Any, *, at: float, above: bool) -> Array:
    """1 where the first of however many columns lies above `at`, or the reverse."""
    first = np.reshape(np.asarray(X, dtype=np.float64), (len(X), -1))[:, 0]
    return np.asarray((first > at) == above)


CUTS = Finite([partial(cut, at=at, above=above) for at in np.linspace(-3, 3, 25) for above in (True, False)])


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    learner = ExponentialLearner(CUTS, epsilon=100, unsafe_seed=seed)
    check_estimator(learner, on_skip=None, expected_failed_checks=EXPECTED if seed is not None else EXPECTED | RANDOM)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in BAD_EPSILON],
        *[("failure", bad) for bad in BAD_FAILURE],
        *[("error", bad) for bad in BAD_ERROR],
        *[("concept_class", bad) for bad in [None, Thresholds, 5, Choice(0)]],
        *[("net", bad) for bad in [5, "net", [1.5], [-1], [[1, 2]], [math.nan]]],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    good: dict[str, Any] = {"concept_class": Thresholds(bits=8), "epsilon": 1}
    with pytest.raises((TypeError, ValueError), match=name):
        ExponentialLearner(**{**good, name: value}).fit("no data", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("concept_class", [Thresholds(), Intervals(), Stumps(2), Halfspaces(2)], ids=str)
def test_an_infinite_class_needs_a_net(concept_class: ConceptClass[Any]) -> None:
    with pytest.raises(ValueError, match="net must be given"):
        ExponentialLearner(concept_class, epsilon=1).fit("no data", None)  # type: ignore[arg-type]


class Unlisted(Parities):
    def concepts(self) -> Iterator[int]:
        raise NotImplementedError


def test_a_class_that_is_not_listed_needs_a_net() -> None:
    with pytest.raises(ValueError, match="net of ExponentialLearner must be given"):
        ExponentialLearner(Unlisted(), epsilon=1).fit([[1], [3]], [0, 1])


def test_a_class_too_large_to_be_listed_needs_a_net() -> None:
    with pytest.raises(ValueError, match="net of ExponentialLearner must be given"):
        ExponentialLearner(Rectangles(2, bits=20), epsilon=1).fit([[1, 2], [3, 4]], [0, 1])


@pytest.mark.parametrize(("X", "y"), BAD_DATA)
@pytest.mark.parametrize("net", [None, [3, 5]])
def test_bad_data_are_refused_and_not_repeated(net: Any, X: Any, y: Any) -> None:
    refuses(lambda: ExponentialLearner(Thresholds(bits=8), epsilon=1, net=net).fit(X, y), r"X|y|at")
