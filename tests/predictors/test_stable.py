from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from reticent.audit import law, worst_case
from reticent.audit.neighbours import random_row_replacements
from reticent.concepts import ConceptClass, Finite, Halfspaces, Intervals, Points, Thresholds
from reticent.errors import InsufficientData
from reticent.noise import Noise
from reticent.predictors import stable
from reticent.predictors.stable import NetDraw, StablePredictor, keeps, net_draw, stability_of

Array = NDArray[Any]
Rows = tuple[tuple[int, int], ...]  # (value, label)
TINY = 1e-60  # what rounding may add to an exact distance


def table(rows: Rows) -> tuple[Array, Array]:
    values, labels = zip(*rows, strict=True)
    return np.array(values)[:, None], np.array(labels)


def hypothesis(predictor: StablePredictor) -> Callable[[Noise, Rows], Any]:
    """What is drawn, as a function of noise and rows."""
    return lambda noise, rows: predictor.fit_with_noise(*table(rows), noise).hypothesis_


def prediction(predictor: StablePredictor, x: int) -> Callable[[Noise, Rows], Any]:
    """What is said about x, as a function of noise and rows."""
    return lambda noise, rows: int(predictor.fit_with_noise(*table(rows), noise).predict([[x]])[0])


def moved(mechanism: Callable[[Noise, Rows], Any], pairs: list[tuple[Rows, Rows]]) -> tuple[float, float]:
    """Bounds on the largest total variation distance: the δ at ε = 0."""
    worst = worst_case(mechanism, pairs, epsilon=0)
    return worst.lower, worst.upper


# ── stability: the exact law ──────────────────────────────────────────────────────────────────────────────────────

DOMAIN = [(x, y) for x in range(3) for y in (0, 1)]
CASES: dict[str, ConceptClass[Any]] = {
    "thresholds": Thresholds(),
    "both orientations": Thresholds(both_orientations=True),
    "points": Points(bits=2),
    "intervals": Intervals(),
    "all labellings": Finite([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]),
}


def neighbours(rows: int, count: int) -> list[tuple[Rows, Rows]]:
    """Random ones, and ones that are torn: as many errors either way, but for one row."""
    rest = tuple((1, i % 2) for i in range(rows - 1))
    torn: list[tuple[Rows, Rows]] = [((old, *rest), (new, *rest)) for old, new in combinations(DOMAIN, 2)]
    return torn + list(random_row_replacements(np.random.default_rng(0), count, domain=DOMAIN, rows=rows))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stability", [0.45, 0.9])  # nets of one and of two rows
def test_no_row_moves_the_law_by_more_than_the_stability(case: str, stability: float) -> None:
    predictor = StablePredictor(CASES[case], stability=stability)
    pairs = neighbours(4, 0)[::2]
    _, most = moved(hypothesis(predictor), pairs)
    claimed = predictor.fit(*table(pairs[0][0])).stability_
    assert most <= claimed <= stability
    assert most > 0.3 * claimed  # it has power
    assert moved(prediction(predictor, 2), pairs[:2])[1] <= claimed


class Twin(StablePredictor):
    """Draws as if it were asked for a stability twice as large, and claims the one asked for."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        real = stable.net_draw
        with mock.patch.object(stable, "net_draw", lambda count, gamma: real(count, 2 * gamma)):
            return super()._learn(rows, labels, unsafe_noise)


class NetOfAll(StablePredictor):
    """A twin: the net is made of all rows, so that a replaced one is always in it."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        real = stable.net_draw
        with mock.patch.object(stable, "net_draw", lambda count, gamma: NetDraw(count, real(count, gamma).rate)):
            return super()._learn(rows, labels, unsafe_noise)


class LabelledNet(StablePredictor):
    """A twin: the first and the best concept on *all* rows is always among the candidates, and is taken."""

    def _learn(self, rows: Array, labels: Array, unsafe_noise: Noise | None) -> Any:
        found = super()._learn(rows, labels, unsafe_noise)
        return found._replace(value=self.concept_class.erm(rows, labels))


@pytest.mark.slow
@pytest.mark.parametrize("twin", [Twin, NetOfAll, LabelledNet])
def test_the_twins_are_rejected(twin: type[StablePredictor]) -> None:
    pairs = neighbours(4, 0)[::3]
    stability = 0.42
    assert moved(hypothesis(StablePredictor(Thresholds(), stability=stability)), pairs)[1] <= stability
    assert moved(hypothesis(twin(Thresholds(), stability=stability)), pairs)[0] > stability


def test_the_distance_of_the_draw_is_attained() -> None:
    """tanh(ε/4) for the exponential mechanism is no overestimate: two candidates, one of which wins by a row."""
    rate = Fraction(1)

    def run(noise: Noise, errors: tuple[int, int]) -> int:
        return noise.choose(-np.array(errors), rate=rate)

    worst = worst_case(run, [((1, 0), (0, 1))], epsilon=0)
    assert worst.lower == pytest.approx(math.tanh(0.5))  # the rate is ε/2


def test_the_law_is_that_of_the_definition() -> None:
    rows: Rows = ((0, 1), (1, 1), (2, 0), (2, 1))
    X, y = table(rows)
    predictor = StablePredictor(Thresholds(), stability=0.9)
    how = net_draw(4, Fraction(9, 10))
    assert how.subset == 2
    expected: dict[Any, float] = {}
    for first in range(4):
        for second in range(first):
            candidates = [each.concept for each in Thresholds().dichotomies(X[[first, second], 0])]
            errors = [np.count_nonzero(Thresholds().predict(each, X[:, 0]) != y) for each in candidates]
            weights = np.exp(-float(how.rate) * np.array(errors))
            for concept, weight in zip(candidates, weights / weights.sum(), strict=True):
                expected[concept] = expected.get(concept, 0) + weight / 6
    found = law(lambda noise: hypothesis(predictor)(noise, rows))
    assert found.high.keys() == expected.keys()
    for concept, probability in expected.items():
        assert found.probability(concept) == pytest.approx(probability)


@settings(deadline=None)
@given(st.integers(5, 10**7), st.fractions(Fraction(1, 1000), Fraction(999, 1000)))
def test_what_is_spent_is_no_more_than_was_asked_for(rows: int, stability: Fraction) -> None:
    if stable.SHARE * stability * rows < 1:
        with pytest.raises(InsufficientData) as refusal:
            net_draw(rows, stability)
        rows = refusal.value.required
    how = net_draw(rows, stability)
    attained = stability_of(rows, how)
    assert attained <= stability < attained + Fraction(1, 10**12)
    share = how.subset / rows
    assert float(attained) == pytest.approx(share + (1 - share) * math.tanh(float(how.rate) / 2))
    assert attained < Fraction(how.subset, rows) + 4 * how.rate  # what the paper has: q + 2ε


# ── utility ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "chance",
    [
        {0: 0.9, 7: 0.5, 8: 0.6, 60_000: 0.1},  # no concept fits
        dict.fromkeys(range(100, 108), 0.5),
        {3: 1.0, 4: 0.8, 5: 0.0, 65_535: 0.3},
    ],
)
@pytest.mark.parametrize("concept_class", [Thresholds(), Intervals()], ids=str)
def test_promise(concept_class: ConceptClass[Any], chance: dict[int, float]) -> None:
    predictor = StablePredictor(concept_class, stability=0.2, error=0.3, failure=0.1)
    rows, trials = predictor.n_required(0.3), 25
    values, ones = np.array(list(chance)), np.array(list(chance.values()))
    best = min(float(np.where(labels, 1 - ones, ones).mean()) for labels, _ in concept_class.dichotomies(values))
    generator, bad = np.random.default_rng(3), 0
    for trial in range(trials):
        drawn = generator.integers(len(values), size=rows)
        predictor.set_params(unsafe_seed=trial).fit(values[drawn][:, None], generator.random(rows) < ones[drawn])
        bad += float(np.where(predictor.predict(values[:, None]), 1 - ones, ones).mean()) > best + 0.3
    assert bad <= binom.isf(1e-6, trials, 0.1)


def test_rows_required() -> None:
    def rows(error: float = 0.1, **changed: Any) -> int:
        return StablePredictor(Thresholds(), **{"stability": 0.1, **changed}).n_required(error)

    assert rows(0.05) > rows() > rows(0.2)
    assert rows(stability=0.01) > 5 * rows()  # d/(γα) is what counts then
    assert rows(stability=0.9) > 1000  # and here d/α²
    assert rows(failure=1e-6) > rows()
    assert StablePredictor(Thresholds(both_orientations=True), stability=0.1).n_required(0.1) > rows()
    needed = rows()
    assert keeps(Thresholds(), needed, net_draw(needed, Fraction(1, 10)), error=0.1, failure=0.05)
    assert not keeps(Thresholds(), needed // 2, net_draw(needed // 2, Fraction(1, 10)), error=0.1, failure=0.05)


def test_too_few_rows() -> None:
    with pytest.raises(InsufficientData, match="takes 17 rows at least, got 16") as refusal:
        StablePredictor(Thresholds(), stability=0.1).fit(np.zeros((16, 1), dtype=int), [0, 1] * 8)
    assert refusal.value.required == 17
    predictor = StablePredictor(Thresholds(), stability=0.5, error=0.4)
    required = predictor.n_required(0.4)
    X = np.zeros((required, 1), dtype=int)
    with pytest.raises(InsufficientData, match=f"from {required} rows on"):
        predictor.fit(X[1:], X[1:, 0])
    predictor.fit(X, X[:, 0])


# ── scikit-learn ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_seeded_cloned_and_pickled() -> None:
    x = np.arange(100)[:, None]
    predictor = StablePredictor(Thresholds(), stability=0.3, unsafe_seed=4).fit(x, x[:, 0] < 40)
    again = clone(predictor).fit(x, x[:, 0] < 40)
    assert again.hypothesis_ == predictor.hypothesis_ == pickle.loads(pickle.dumps(predictor)).hypothesis_
    assert not hasattr(predictor, "guarantee_")  # stability is not privacy
    assert not hasattr(predictor, "event_")


EXPECTED = {
    "check_estimators_dtypes": "labels other than 0 and 1",
    "check_classifier_data_not_an_array": "labels other than 0 and 1",
    "check_classifiers_classes": "labels other than 0 and 1",
    "check_fit2d_1feature": "labels other than 0 and 1",
    "check_dtype_object": "objects that are no numbers are refused in other words",
    "check_classifiers_train": "no cut of the first column fits the data",
    "check_fit2d_1sample": "a single row is too few for any stability, which is said in other words",
}
RANDOM = {
    "check_fit_idempotent": "two fits draw differently",
    "check_supervised_y_2d": "two fits draw differently",
    "check_classifiers_one_label": "the draw may give a few points the label that no row has",
    "check_fit_score_takes_y": "two fits draw differently",
}


def cut(X: Any, at: float, above: bool) -> Array:
    first = np.reshape(np.asarray(X, dtype=np.float64), (len(X), -1))[:, 0]
    return np.asarray((first > at) == above)


@pytest.mark.parametrize("seed", [0, None])
def test_scikit_learn_accepts_the_estimator(seed: int | None) -> None:
    cuts = Finite([partial(cut, at=at, above=above) for at in np.linspace(-3, 3, 25) for above in (True, False)])
    predictor = StablePredictor(cuts, stability=0.999, unsafe_seed=seed)
    check_estimator(predictor, on_skip=None, expected_failed_checks=EXPECTED if seed == 0 else EXPECTED | RANDOM)


# ── bad input; 777 and 7.77 are data, which no message may repeat ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("stability", bad) for bad in (0, 1, -1, 2, math.nan, math.inf, None, "1", True, 1j)],
        *[("failure", bad) for bad in (0, 1, math.nan, None, "1")],
        *[("error", bad) for bad in (0, 1, -1, math.nan, "1")],
        *[("concept_class", bad) for bad in (None, Thresholds, 5)],
    ],
)
def test_bad_parameters_are_refused_by_name_before_the_data_are_read(name: str, value: Any) -> None:
    good: dict[str, Any] = {"concept_class": Thresholds(), "stability": 0.5}
    with pytest.raises((TypeError, ValueError), match=name):
        StablePredictor(**{**good, name: value}).fit("no data", None)  # type: ignore[arg-type]


BAD_DATA: list[tuple[Any, Any]] = [
    ([[777]] * 8, [0, 1] * 4),
    ([[7.77]] * 8, [0, 1] * 4),
    ([[math.nan]] * 8, [0, 1] * 4),
    ([["777"]] * 8, [0, 1] * 4),
    (np.array([["2020-01-01"]] * 8, dtype="datetime64[D]"), [0, 1] * 4),
    ([[1, 777]] * 8, [0, 1] * 4),
    ([1] * 8, [0, 1] * 4),
    (np.zeros((0, 1)), []),
    ([[1]] * 8, [0, 777] * 4),
    ([[1]] * 8, [-1, 1] * 4),
    ([[1]] * 8, [0, math.nan] * 4),
    ([[1]] * 8, ["no", "777"] * 4),
    ([[1]] * 8, [0] * 7),
    ([[1]] * 8, None),
]


@pytest.mark.parametrize(("X", "y"), BAD_DATA)
def test_bad_data_are_refused_and_not_repeated(X: Any, y: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"X|y|at") as refusal:
        StablePredictor(Thresholds(bits=8), stability=0.5).fit(X, y)
    assert "777" not in str(refusal.value)
    assert "7.77" not in str(refusal.value)


def test_a_bad_row_is_refused_whether_it_is_drawn_or_not() -> None:
    X = np.array([[1]] * 99 + [[777]])
    for seed in range(5):
        with pytest.raises(ValueError, match="X"):
            StablePredictor(Thresholds(bits=8), stability=0.1, unsafe_seed=seed).fit(X, X[:, 0] > 0)


def test_a_net_that_may_be_labelled_in_too_many_ways_is_refused_by_public_numbers() -> None:
    with pytest.raises(ValueError, match="Halfspaces may label 240 rows of the net in"):
        StablePredictor(Halfspaces(3), stability=0.4).fit(np.zeros((1000, 3)), np.arange(1000) % 2)
