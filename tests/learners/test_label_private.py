from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from common import RANDOM
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom, multinomial
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import law, worst_case
from reticent.audit.neighbours import divergences, random_row_replacements, row_replacements
from reticent.concepts import (
    ConceptClass,
    Finite,
    Halfspaces,
    Intervals,
    KPoints,
    Points,
    Rectangles,
    Stumps,
    Thresholds,
    sauer,
)
from reticent.errors import InsufficientData
from reticent.learners import sample_bounds
from reticent.learners.label_private import LabelPrivateLearner, NetLearner, SemiPrivateLearner
from reticent.noise import Noise
from reticent.privacy import Guarantee
from reticent.privacy.events import BoundedRange, SeededRelease
from reticent.promises import rows_needed

Array = NDArray[Any]
Rows = tuple[tuple[int, int], ...]  # (value, label)

TINY = 1e-60  # what rounding may add to the exact δ of a pure mechanism


def table(rows: Rows) -> tuple[Array, Array]:
    values, labels = zip(*rows, strict=True)
    return np.array(values)[:, None], np.array(labels)


# ── the bounds: on every distribution of a small class they are above the truth ────────────────────────────────────


def drawn_bad(concepts: ConceptClass[Any], weights: dict[int, float], target: Any, rows: int, alpha: float) -> float:
    """The exact probability that ε = 2 draws a bad concept from all labellings of so many rows labelled by a target."""
    values = np.array(list(weights))
    truth = concepts.predict(target, values)
    firsts = product(range(rows + 1), repeat=len(values) - 1)
    counts = np.array([(*first, rows - sum(first)) for first in firsts if sum(first) <= rows])
    chances = multinomial(rows, list(weights.values())).pmf(counts)
    bad = 0.0
    for seen in product((False, True), repeat=len(values)):
        here = np.all((counts > 0) == seen, axis=1)
        found = concepts.dichotomies(values[list(seen)])
        labels = np.array([concepts.predict(found.concept(index), values) for index in range(found.count)])
        odds = np.exp(-counts[here] @ (labels != truth).T)
        off = (labels != truth) @ np.array(list(weights.values())) > alpha
        bad += float(chances[here] @ (odds[:, off].sum(axis=1) / odds.sum(axis=1)))
    return bad


@pytest.mark.parametrize("concepts", [Thresholds(), Points(), Intervals()], ids=str)
@pytest.mark.parametrize("weights", [{1: 0.5, 2: 0.16, 5: 0.34}, {0: 0.84, 4: 0.16}, {1: 0.16, 2: 0.6, 3: 0.24}])
def test_the_bound_is_above_the_exact_chance_of_a_bad_draw(
    concepts: ConceptClass[Any], weights: dict[int, float]
) -> None:
    targets = concepts.dichotomies(list(weights))
    for rows in (5, 150 * concepts.vc_dimension):
        bound = sample_bounds.log_bad(concepts, rows, 0.15, rate=1)
        worst = max(drawn_bad(concepts, weights, targets.concept(i), rows, 0.15) for i in range(targets.count))
        assert math.log(worst) <= bound
    assert bound < math.log(0.05)  # else nothing would be shown
    assert math.log(worst) > 4 * bound


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.5, 4, math.inf])
@pytest.mark.parametrize(("rows", "error"), [(50, 0.1), (400, 0.1), (5000, 0.01)])
def test_the_bound_is_what_its_proof_says(rate: float, rows: int, error: float) -> None:
    """Each step of the proof by exact numbers: the median, and e^(−tJ)·1[K ≥ r] for hypergeometric errors."""
    for more in (rows // 2, rows, 8 * rows):
        least = math.floor(more * error)
        assert binom.sf(least - 1, more, error) >= 0.5
        bound = (1 - rows / more * math.expm1(-rate)) ** -least
        for total in (least, least + 1, 2 * least, 10 * least):
            inside = np.arange(total - least + 1)
            weights = np.where(inside == 0, 1.0, 0.0) if rate == math.inf else np.exp(-rate * inside)
            truth = float(hypergeom.pmf(inside, rows + more, total, rows) @ weights)
            assert truth <= bound * (1 + 1e-9)


def test_the_bound_is_near_the_union_bound_for_a_class_of_as_many_concepts() -> None:
    rows, error, rate = 3000, 0.1, 0.5
    union = math.log(sauer(1, rows)) + rows * math.log1p(error * math.expm1(-rate))
    assert union < sample_bounds.log_bad(Thresholds(), rows, error, rate=rate) < 0.8 * union
    few = Finite([[0, 0, 1], [0, 1, 1]])
    assert sample_bounds.log_bad(few, rows, error, rate=rate) == pytest.approx(
        math.log(2) + rows * math.log1p(error * math.expm1(-rate))
    )


@given(error=st.floats(0.01, 0.9), share=st.floats(0.01, 0.99), rate=st.floats(0.01, 5), both=st.floats(0, 1))
def test_one_row_tells_bad_from_good_at_least_so_well(error: float, share: float, rate: float, both: float) -> None:
    """E[e^(−tx)] at the t of the bound, for all ways in which two candidates may err together."""
    near = error * share
    together = both * near
    t = min(rate, math.log(error / near) / 2)
    mean = (error - together) * math.exp(-t) + (near - together) * math.exp(t) + 1 - error - near + 2 * together
    assert math.log(mean) <= sample_bounds.log_step(error, near, rate=rate) + 1e-12 < 1e-12
    t, excess = min(rate, math.atanh(error)), error
    lower = both * (1 - excess) / 2
    mean = (lower + excess) * math.exp(-t) + lower * math.exp(t) + 1 - excess - 2 * lower
    assert math.log(mean) <= sample_bounds.log_step_excess(excess, rate=rate) + 1e-12 < 1e-12


def test_nets() -> None:
    for concepts in (Thresholds(), Intervals(), Halfspaces(2)):
        points = sample_bounds.net_rows(concepts, 0.05, 0.01)
        assert 0.045 < sample_bounds.net_error(concepts, points, 0.01) <= 0.05
        assert sample_bounds.net_error(concepts, points - 1, 0.01) > 0.05
    assert sample_bounds.net_error(Thresholds(), 1, 0.01) == 1


# ── privacy: the exact law of the whole learner ───────────────────────────────────────────────────────────────────


def label_law(learner: LabelPrivateLearner) -> Callable[[Noise, Rows], Any]:
    return lambda noise, rows: learner.fit_with_noise(*table(rows), noise).hypothesis_


def flipped(points: tuple[int, ...]) -> Iterator[tuple[Rows, Rows]]:
    """All labellings of the points, and all with one label replaced."""
    for labels in product((0, 1), repeat=len(points)):
        for place in range(len(points)):
            if labels[place] == 0:
                others = (*labels[:place], 1, *labels[place + 1 :])
                yield tuple(zip(points, labels, strict=True)), tuple(zip(points, others, strict=True))


class CountsThrice(NetLearner):
    """A twin: a replaced label moves the scores by 3."""

    def _draw(self, net: Array, rows: Array, labels: Array, *rest: Any, **names: Any) -> Any:
        return super()._draw(net, np.concatenate([rows] * 3), np.concatenate([labels] * 3), *rest, **names)


class CountsLabelsThrice(CountsThrice, LabelPrivateLearner):
    pass


class NetOfTheOnes(LabelPrivateLearner):
    """A twin: labels have a part in the choice of the candidates, which are the labellings of the points labelled 1."""

    def _draw(self, net: Array, rows: Array, labels: Array, *rest: Any, **names: Any) -> Any:
        return super()._draw(rows[labels == 1], rows, labels, *rest, **names)


LABEL_CASES: dict[str, tuple[ConceptClass[Any], tuple[int, ...]]] = {
    "thresholds of all integers": (Thresholds(), (3, 1, 7, 7)),
    "thresholds of both orientations": (Thresholds(bits=3, both_orientations=True), (0, 2, 5, 7)),
    "points": (Points(bits=2), (0, 1, 2, 3)),
    "pairs of points": (KPoints(2), (0, 1, 1, 9)),
    "intervals": (Intervals(), (4, 2, 8)),
    "label vectors": (Finite([[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]]), (0, 1, 2, 3)),
}


@pytest.mark.parametrize("case", LABEL_CASES)
@pytest.mark.parametrize("net_rows", [None, 2])
def test_exact_law_where_labels_are_secret(case: str, net_rows: int | None) -> None:
    concepts, points = LABEL_CASES[case]
    learner = LabelPrivateLearner(concepts, epsilon=1, net_rows=net_rows)
    pairs = list(flipped(points))
    assert worst_case(label_law(learner), pairs, epsilon=1).upper < TINY
    twin = CountsLabelsThrice(concepts, epsilon=1, net_rows=net_rows)
    assert worst_case(label_law(twin), pairs, epsilon=1).lower > 0.01
    fitted = learner.fit(*table(pairs[0][0]))
    assert fitted.guarantee_ == Guarantee(epsilon=1.0, protects="labels")
    assert fitted.event_ == BoundedRange(Fraction(1))


def test_epsilon_is_not_wasted_on_labels() -> None:
    pairs = list(flipped((1, 1, 1, 1)))  # the label at hand decides between two thresholds
    found = divergences(label_law(LabelPrivateLearner(Thresholds(), epsilon=1)), pairs)
    assert max(pair.delta(0.49)[0] for _, _, pair in found) > 1e-3
    many = list(flipped((0, 2, 4, 6, 8)))
    assert max(pair.delta(0.7)[0] for _, _, pair in divergences(label_law(_points_learner()), many)) > 1e-3


def _points_learner() -> LabelPrivateLearner:
    return LabelPrivateLearner(Points(), epsilon=1)


@pytest.mark.parametrize("case", ["thresholds of all integers", "points", "intervals"])
def test_labels_must_not_choose_the_candidates(case: str) -> None:
    concepts, points = LABEL_CASES[case]
    assert worst_case(label_law(NetOfTheOnes(concepts, epsilon=1)), flipped(points), epsilon=50).lower > 0.1


def test_points_are_not_protected_and_the_guarantee_says_so() -> None:
    pair: tuple[Rows, Rows] = (((1, 0), (2, 1)), ((1, 0), (9, 1)))
    learner = LabelPrivateLearner(Thresholds(), epsilon=1)
    assert worst_case(label_law(learner), [pair], epsilon=50).lower > 0.1
    words = learner.fit(*table(pair[0])).guarantee_.explain()
    assert "Only the labels are protected" in words


def semi_law(learner: SemiPrivateLearner, public: Any) -> Callable[[Noise, Rows], Any]:
    return lambda noise, rows: learner.fit_with_noise(*table(rows), noise, public=public).hypothesis_


class CountsRowsThrice(CountsThrice, SemiPrivateLearner):
    pass


class NetOfTheRows(SemiPrivateLearner):
    """A twin: it takes the private points for public ones."""

    def _draw(self, net: Array, rows: Array, labels: Array, *rest: Any, **names: Any) -> Any:
        return super()._draw(np.concatenate([net, rows]), rows, labels, *rest, **names)


ALL_ROWS = [(value, label) for value in range(4) for label in (0, 1)]
PUBLIC = [[2], [0], [2]]


def neighbours(six_rows: int = 15) -> list[tuple[Rows, Rows]]:
    few = list(row_replacements(ALL_ROWS, 1, ordered=False))
    return few + list(random_row_replacements(np.random.default_rng(0), six_rows, domain=ALL_ROWS, rows=6))


@pytest.mark.parametrize(
    "concepts", [Thresholds(), Thresholds(bits=2, both_orientations=True), Points(bits=2), Intervals()], ids=str
)
def test_exact_law_where_rows_are_secret_beside_public_points(concepts: ConceptClass[Any]) -> None:
    learner = SemiPrivateLearner(concepts, epsilon=1)
    pairs = [pair for _, _, pair in divergences(semi_law(learner, PUBLIC), neighbours())]
    assert max(pair.delta(1)[1] for pair in pairs) < TINY
    assert max(pair.delta(0.6)[0] for pair in pairs) > 1e-3  # ε is not wasted either
    few = neighbours(0)
    assert worst_case(semi_law(CountsRowsThrice(concepts, epsilon=1), PUBLIC), few, epsilon=1).lower > 0.01
    assert worst_case(semi_law(NetOfTheRows(concepts, epsilon=1), PUBLIC), few, epsilon=50).lower > 0.01
    fitted = learner.fit(*table(few[0][0]), public=PUBLIC)
    assert fitted.guarantee_ == Guarantee(epsilon=1.0)
    assert fitted.event_ == BoundedRange(Fraction(1))


def test_the_candidates_are_the_labellings_of_the_net() -> None:
    rows: Rows = ((5, 1), (9, 0), (200, 1))

    def possible(run: Callable[[Noise, Rows], Any]) -> set[Any]:
        return set(law(lambda noise: run(noise, rows)).high)

    def labellings(points: list[int]) -> set[Any]:
        found = Intervals().dichotomies(points)
        return {found.concept(index) for index in range(found.count)}

    assert possible(semi_law(SemiPrivateLearner(Intervals(), epsilon=1), [[10], [20]])) == labellings([10, 20])
    assert possible(label_law(LabelPrivateLearner(Intervals(), epsilon=1))) == labellings([5, 9, 200])
    assert possible(label_law(LabelPrivateLearner(Intervals(), epsilon=1, net_rows=2))) == labellings([5, 9])
    assert possible(label_law(LabelPrivateLearner(Intervals(), epsilon=1, net_rows=9))) == labellings([5, 9, 200])


# ── utility: what is promised is kept ─────────────────────────────────────────────────────────────────────────────

Sample = Callable[[np.random.Generator, int], Array]


def atoms(values: list[int], weights: list[float]) -> Sample:
    shares = np.array(weights) / sum(weights)
    return lambda generator, rows: np.array(values)[generator.choice(len(values), size=rows, p=shares)]


def spread(generator: np.random.Generator, rows: int) -> Array:
    return generator.integers(0, 2**40, size=rows)


# A distribution, a target and how to tell its true error, which is estimated on 20 000 rows where there are no atoms.
DISTRIBUTIONS: dict[str, Sample] = {
    "atoms": atoms([10, 11, 500, 501, 2**39], [0.101, 0.101, 0.101, 0.101, 0.596]),
    "heavy ties": atoms([10, 11], [0.101, 0.899]),
    "a gap": atoms([0, 1, 2**40 - 1], [0.3, 0.101, 0.599]),
    "no ties": spread,
}


def failures(fit: Callable[[Array, Array, np.random.Generator, int], Any], **case: Any) -> int:
    """In how many of the trials the error is more than `error`; labels are flipped with a probability `noise`."""
    concepts, draw, target, rows = case["concepts"], case["draw"], case["target"], case["rows"]
    generator, bad = np.random.default_rng(5), 0
    fresh = draw(generator, 20_000)
    truth = concepts.predict(target, fresh)
    for trial in range(case["trials"]):
        sample = draw(generator, rows)
        labels = concepts.predict(target, sample) ^ (generator.random(rows) < case.get("noise", 0))
        learner = fit(sample[:, None], labels, generator, trial)
        error = float(np.mean(concepts.predict(learner.hypothesis_, fresh) != truth)) * (1 - 2 * case.get("noise", 0))
        bad += error > case["error"]
    return bad


def allowed(trials: int, failure: float) -> int:
    """More failures than this would have a probability of 1e-6 if each had the promised one."""
    return int(binom.isf(1e-6, trials, failure))


TARGETS: dict[str, tuple[ConceptClass[Any], int]] = {  # a class, and which labelling of three points is the target
    "thresholds": (Thresholds(), 1),
    "points": (Points(), 1),
    "intervals": (Intervals(), 2),
}


def target_of(concepts: ConceptClass[Any], draw: Sample, index: int) -> Any:
    return concepts.dichotomies(np.unique(draw(np.random.default_rng(0), 3))).concept(index)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("where", DISTRIBUTIONS)
def test_promise_where_labels_are_secret(kind: str, where: str) -> None:
    (concepts, index), draw = TARGETS[kind], DISTRIBUTIONS[where]
    learner = LabelPrivateLearner(concepts, epsilon=1, error=0.1, failure=0.1)
    case = {"concepts": concepts, "draw": draw, "target": target_of(concepts, draw, index), "error": 0.1, "trials": 60}

    def fit(X: Array, y: Array, _: Any, seed: int) -> Any:
        return learner.set_params(unsafe_seed=seed).fit(X, y)

    assert failures(fit, rows=learner.n_required(0.1), **case) <= allowed(60, 0.1)


def test_far_fewer_rows_would_not_do() -> None:
    learner = LabelPrivateLearner(Thresholds(), epsilon=0.2, failure=0.1)
    concepts, draw = Thresholds(), DISTRIBUTIONS["no ties"]

    def fit(X: Array, y: Array, _: Any, seed: int) -> Any:
        return learner.set_params(unsafe_seed=seed).fit(X, y)

    middle = concepts.erm([0, 2**39], [1, 0])
    case = {"concepts": concepts, "draw": draw, "target": middle, "error": 0.1, "trials": 100}
    assert failures(fit, rows=learner.n_required(0.1) // 12, **case) > allowed(100, 0.1)


@pytest.mark.parametrize("where", DISTRIBUTIONS)
def test_promise_with_a_net(where: str) -> None:
    concepts, draw = Intervals(), DISTRIBUTIONS[where]
    learner = LabelPrivateLearner(concepts, epsilon=1, net_rows=400, failure=0.1)
    case = {"concepts": concepts, "draw": draw, "target": target_of(concepts, draw, 2), "error": 0.2, "trials": 40}

    def fit(X: Array, y: Array, _: Any, seed: int) -> Any:
        return learner.set_params(unsafe_seed=seed).fit(X, y)

    assert failures(fit, rows=learner.n_required(0.2), **case) <= allowed(40, 0.1)


@pytest.mark.parametrize("where", DISTRIBUTIONS)
@pytest.mark.parametrize("kind", TARGETS)
def test_promise_beside_public_points(kind: str, where: str) -> None:
    (concepts, index), draw = TARGETS[kind], DISTRIBUTIONS[where]
    learner = SemiPrivateLearner(concepts, epsilon=1, error=0.1, failure=0.1)
    public = learner.n_public_required(0.1)
    case = {"concepts": concepts, "draw": draw, "target": target_of(concepts, draw, index), "error": 0.1, "trials": 40}

    def fit(X: Array, y: Array, generator: np.random.Generator, seed: int) -> Any:
        return learner.set_params(unsafe_seed=seed).fit(X, y, public=draw(generator, public)[:, None])

    assert failures(fit, rows=learner.n_required(0.1), **case) <= allowed(40, 0.1)


def test_promises_on_noisy_labels() -> None:
    concepts, draw = Thresholds(), DISTRIBUTIONS["atoms"]
    secret = LabelPrivateLearner(concepts, epsilon=1, failure=0.1)
    semi = SemiPrivateLearner(concepts, epsilon=1, failure=0.1)
    public = semi.n_public_required(0.2)
    target = concepts.erm([11, 500], [1, 0])
    case = {"concepts": concepts, "draw": draw, "target": target, "error": 0.2, "trials": 30, "noise": 0.2}

    def fit(X: Array, y: Array, _: Any, seed: int) -> Any:
        return secret.set_params(unsafe_seed=seed).fit(X, y)

    def fit_semi(X: Array, y: Array, generator: np.random.Generator, seed: int) -> Any:
        return semi.set_params(unsafe_seed=seed).fit(X, y, public=draw(generator, public)[:, None])

    assert failures(fit, rows=secret.n_required(0.2, agnostic=True), **case) <= allowed(30, 0.1)
    assert failures(fit_semi, rows=semi.n_required(0.2, agnostic=True), **case) <= allowed(30, 0.1)


@pytest.mark.parametrize("kind", [LabelPrivateLearner, SemiPrivateLearner])
def test_rows_required_grow_as_they_should(kind: Any) -> None:
    def rows(concepts: ConceptClass[Any] | None = None, error: float = 0.1, **changed: Any) -> int:
        learner = kind(concepts or Thresholds(bits=64), **{"epsilon": 1, "failure": 0.05, **changed})
        return rows_needed(learner.n_required, error)  # also where a fit on so many cannot be run

    assert rows() == rows(Thresholds(bits=4096)) == rows(Thresholds()) == rows(Points(bits=100))
    assert rows() < rows(Intervals()) < rows(Halfspaces(2)) < rows(Stumps(100))
    assert 5 * rows() < rows(epsilon=0.1)
    assert rows(error=0.01) > 9 * rows()
    assert rows(failure=1e-6) > rows()
    assert rows(Thresholds(bits=1)) <= rows()
    agnostic = kind(Thresholds(), epsilon=1)
    assert agnostic.n_required(0.1, agnostic=True) > 5 * agnostic.n_required(0.1)


@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
@pytest.mark.parametrize("error", [0.02, 0.3])
def test_more_rows_than_required_keep_the_promise(epsilon: float, error: float) -> None:
    rate, goal = epsilon / 2, math.log(0.05)
    for concepts in (Thresholds(), Intervals(), Halfspaces(3)):
        learner = LabelPrivateLearner(concepts, epsilon=epsilon)
        least, any_labels = (rows_needed(learner.n_required, error, agnostic=each) for each in (False, True))
        assert sample_bounds.log_bad(concepts, least - 1, error, rate=rate) > goal
        for more in np.geomspace(1, 100, 200):
            assert sample_bounds.log_bad(concepts, int(least * more), error, rate=rate) <= goal
            assert sample_bounds.log_bad_excess(concepts, int(any_labels * more), error, rate=rate) <= goal


def test_more_public_points_than_required() -> None:
    learner = SemiPrivateLearner(Thresholds(), epsilon=1)
    public = learner.n_public_required(0.1)
    assert learner.n_required(0.1, public=public) == learner.n_required(0.1)
    assert learner.n_required(0.1, public=4 * public) < learner.n_required(0.1)
    with pytest.raises(ValueError, match=r"public=20 points are too few for error=0.1"):
        learner.n_required(0.1, public=20)
    with pytest.raises(ValueError, match=r"net_rows=20 points are too few for error=0.1"):
        LabelPrivateLearner(Thresholds(), epsilon=1, net_rows=20).n_required(0.1)
    with pytest.raises(ValueError, match="net_rows must be None"):
        LabelPrivateLearner(Thresholds(), epsilon=1, net_rows=900).n_required(0.1, agnostic=True)


def test_too_few_rows_for_the_error_asked_for() -> None:
    learner = LabelPrivateLearner(Thresholds(), epsilon=1, error=0.1)
    required = learner.n_required(0.1)
    X = np.zeros((required, 1), dtype=int)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got {required - 1}") as refusal:
        learner.fit(X[1:], X[1:, 0])
    assert refusal.value.required == required
    learner.fit(X, X[:, 0])

    semi = SemiPrivateLearner(Thresholds(), epsilon=1, error=0.1)
    required, public = semi.n_required(0.1), semi.n_public_required(0.1)
    X = np.zeros((max(required, public), 1), dtype=int)
    with pytest.raises(InsufficientData, match=f"from {required} rows on, got {required - 1}") as refusal:
        semi.fit(X[: required - 1], X[: required - 1, 0], public=X[:public])
    assert refusal.value.required == required
    with pytest.raises(InsufficientData, match=f"from {public} public points on, got {public - 1}") as refusal:
        semi.fit(X, X[:, 0], public=X[: public - 1])
    assert refusal.value.required == public
    semi.fit(X[:required], X[:required, 0], public=X[:public])


# ── what it learns from ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_floats_datetimes_wide_integers_and_several_columns() -> None:
    generator = np.random.default_rng(0)
    plane = generator.normal(size=(300, 2))
    half = LabelPrivateLearner(Halfspaces(2), epsilon=5, net_rows=60).fit(plane, plane[:, 0] > plane[:, 1])
    assert half.score(plane, plane[:, 0] > plane[:, 1]) > 0.9
    days = np.datetime64("2020-01-01") + np.arange(900)[:, None]
    dates = LabelPrivateLearner(Thresholds(), epsilon=2).fit(days, days[:, 0] < np.datetime64("2020-07-01"))
    assert abs(dates.hypothesis_.at - np.datetime64("2020-07-01")) < np.timedelta64(30, "D")
    wide = [[(i << 900) + 5] for i in range(900)]
    labels = [int(i < 300) for i in range(900)]
    assert LabelPrivateLearner(Thresholds(), epsilon=2).fit(wide, labels).score(wide, labels) > 0.95
    stump = SemiPrivateLearner(Stumps(2), epsilon=5).fit(plane, plane[:, 1] < -1, public=generator.normal(size=(50, 2)))
    assert stump.hypothesis_.feature == 1


def test_a_net_spans_sorted_rows() -> None:
    x = np.arange(10_000)[:, None]
    learner = LabelPrivateLearner(Intervals(), epsilon=5, net_rows=100).fit(x, (x[:, 0] > 8000) & (x[:, 0] < 9000))
    assert abs(int(learner.hypothesis_.low) - 8000) <= 200
    with pytest.raises(ValueError, match="can list at most 2\\^24 of them: set net_rows"):
        LabelPrivateLearner(Intervals(), epsilon=5).fit(x, x[:, 0] > 8000)
    with pytest.raises(ValueError, match="can list at most 2\\^24 of them: give fewer public points"):
        SemiPrivateLearner(Intervals(), epsilon=5).fit(x, x[:, 0] > 8000, public=x.copy())


def test_seeded_cloned_and_pickled() -> None:
    learner = LabelPrivateLearner(Thresholds(), epsilon=1, unsafe_seed=5).fit([[1], [2]], [1, 0])
    assert learner.guarantee_.seeded
    assert learner.event_ == SeededRelease(BoundedRange(Fraction(1)))
    again = clone(learner).fit([[1], [2]], [1, 0])
    assert again.hypothesis_ == learner.hypothesis_ == pickle.loads(pickle.dumps(learner)).hypothesis_
    semi = SemiPrivateLearner(Thresholds(), epsilon=1, unsafe_seed=5).fit([[1], [2]], [1, 0], public=[[1], [3]])
    twice = clone(semi).fit([[1], [2]], [1, 0], public=[[3], [1]])
    assert twice.hypothesis_ == semi.hypothesis_ == pickle.loads(pickle.dumps(semi)).hypothesis_


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = {
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_classifiers_train": "no cut of the first column fits the data",
    "check_dtype_object": "objects that are no numbers are refused in other words",
}


def cut(X: Any, *, at: float, above: bool) -> Array:
    """1 where the first of however many columns lies above `at`, or the reverse."""
    first = np.reshape(np.asarray(X, dtype=np.float64), (len(X), -1))[:, 0]
    return np.asarray((first > at) == above)


CUTS = Finite([partial(cut, at=at, above=above) for at in np.linspace(-3, 3, 25) for above in (True, False)])


class KnowsPoints(SemiPrivateLearner):
    """The learner with public points of its own, since the checks give none."""

    def fit_with_noise(self, X: Any, y: Any, unsafe_noise: Noise | None, public: Any = None) -> Any:
        columns = np.shape(X)[1] if np.ndim(X) == 2 and np.shape(X)[1] else 1
        return super().fit_with_noise(X, y, unsafe_noise, np.repeat(np.linspace(-3, 3, 25)[:, None], columns, axis=1))


@pytest.mark.parametrize("kind", [LabelPrivateLearner, KnowsPoints])
@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(kind: Any, seed: int | None) -> None:
    random = {} if seed is not None else RANDOM
    learner = kind(CUTS, epsilon=100, unsafe_seed=seed)
    check_estimator(learner, on_skip=None, expected_failed_checks=EXPECTED | random)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [LabelPrivateLearner, SemiPrivateLearner])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", bad) for bad in [0, -1, math.nan, math.inf, None, "1", True, 1j]],
        *[("failure", bad) for bad in [0, 1, -1, math.nan, None, "1"]],
        *[("error", bad) for bad in [0, 1, -1, math.nan, "1"]],
        *[("concept_class", bad) for bad in [None, Thresholds, 5]],
        *[("net_rows", bad) for bad in [0, -1, 1.5, "1", True]],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(kind: Any, name: str, value: Any) -> None:
    good: dict[str, Any] = {"concept_class": Thresholds(bits=8), "epsilon": 1}
    with pytest.raises((TypeError, ValueError), match=name):
        kind(**{**good, name: value}).fit("no data", None)


BAD_DATA: list[tuple[Any, Any]] = [
    ([[777], [1]], [0, 1]),
    ([[-777], [1]], [0, 1]),
    ([[0.777], [1]], [0, 1]),
    ([[math.nan], [1]], [0, 1]),
    ([["777"], ["1"]], [0, 1]),
    ([[None], [1]], [0, 1]),
    ([[1, 777], [1, 2]], [0, 1]),
    ([1, 2], [0, 1]),
    (np.zeros((0, 1)), []),
    (np.array([["2020-01-01"], ["2020-01-02"]], dtype="datetime64[D]"), [0, 1]),
    ([[1], [2]], [0, 777]),
    ([[1], [2]], [-1, 1]),
    ([[1], [2]], [0, math.nan]),
    ([[1], [2]], ["no", "777"]),
    ([[1], [2]], [0, 1, 1]),
    ([[1], [2]], None),
]


@pytest.mark.parametrize(("X", "y"), BAD_DATA)
def test_bad_data_are_refused_and_not_repeated(X: Any, y: Any) -> None:
    for run in (
        lambda: LabelPrivateLearner(Thresholds(bits=8), epsilon=1).fit(X, y),
        lambda: SemiPrivateLearner(Thresholds(bits=8), epsilon=1).fit(X, y, public=[[1], [200]]),
    ):
        with pytest.raises((TypeError, ValueError), match=r"X|y") as refusal:
            run()
        assert "777" not in str(refusal.value)


@pytest.mark.parametrize(
    "public", [None, 5, "777", [777], [[777]], [[-1]], [[0.5]], [[math.nan]], [["a"]], [[1, 2]], [], np.zeros((0, 1))]
)
def test_bad_public_points_are_refused_by_name(public: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="public"):
        SemiPrivateLearner(Thresholds(bits=8), epsilon=1).fit([[1], [2]], [1, 0], public=public)
    with pytest.raises(ValueError, match="public must have the columns of X"):
        SemiPrivateLearner(CUTS, epsilon=1).fit([[1], [2]], [1, 0], public=[[1, 2]])


def test_points_of_two_types_are_refused() -> None:
    with pytest.raises(TypeError, match="X must hold points"):
        SemiPrivateLearner(Thresholds(), epsilon=1).fit([[1.5], [2.5]], [1, 0], public=[[1], [2]])


@given(epsilon=st.one_of(st.floats(), st.integers(), st.none()), failure=st.one_of(st.floats(), st.integers()))
def test_any_parameters_are_taken_or_refused(epsilon: Any, failure: Any) -> None:
    learner = LabelPrivateLearner(Thresholds(), epsilon=epsilon, failure=failure)
    if epsilon is not None and 0 < epsilon < 1e300 and 0 < failure < 1:
        assert learner.fit([[3], [9]], [1, 0]).guarantee_ <= Guarantee(epsilon=max(epsilon, 1e-12), protects="labels")
    elif epsilon is None or not 0 < epsilon < math.inf or not 0 < failure < 1:
        with pytest.raises((TypeError, ValueError), match=r"epsilon|failure"):
            learner.fit([[3], [9]], [1, 0])


def test_extreme_parameters_of_the_promise() -> None:
    with pytest.raises(ValueError, match=r"no number of rows|too few"):
        LabelPrivateLearner(Thresholds(), epsilon=1e-30).n_required(0.1)
    with pytest.raises(ValueError, match=r"no number of rows|too few"):
        SemiPrivateLearner(Thresholds(), epsilon=Fraction(1, 10**400)).n_required(0.1)
    assert LabelPrivateLearner(Thresholds(), epsilon=10**400).n_required(0.1) < 120
    assert LabelPrivateLearner(Thresholds(), epsilon=1).n_required(0.99, 0.99) < 30
    assert rows_needed(LabelPrivateLearner(Thresholds(), epsilon=1).n_required, 1e-9, 1e-30) > 1e10


def test_too_many_rectangles_are_refused_before_the_memory_is_full() -> None:
    X = np.random.default_rng(0).integers(0, 1024, (1500, 2))
    with pytest.raises(ValueError, match=r"can list at most 2\^24 of them: set net_rows"):
        LabelPrivateLearner(Rectangles(2, bits=10), epsilon=1).fit(X, X[:, 0] < 300)
    ties = X // 256  # as many rows, and few labellings
    LabelPrivateLearner(Rectangles(2, bits=10), epsilon=1).fit(ties, ties[:, 0] < 2)


def test_the_rows_themselves_are_not_public() -> None:
    x = np.arange(40)[:, None]
    with pytest.raises(ValueError, match="public must not be X itself"):
        SemiPrivateLearner(Thresholds(bits=8), epsilon=1).fit(x, x[:, 0] < 9, public=x)


def test_messages_name_what_the_caller_gave() -> None:
    x = np.arange(40)[:, None]
    with pytest.raises(ValueError, match=r"^X must lie in"):
        SemiPrivateLearner(Thresholds(bits=4), epsilon=1).fit(x, x[:, 0] < 9, public=[[1], [2]])
    with pytest.raises(ValueError, match=r"^public must lie in"):
        SemiPrivateLearner(Thresholds(bits=4), epsilon=1).fit([[1], [2]], [1, 0], public=x)
