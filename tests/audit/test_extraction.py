from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reticent.audit.extraction import AccuracyBoost, Extracted, HypothesisLearner, membership
from reticent.audit.inference import most_advantage
from reticent.concepts import Finite, Points, Thresholds
from reticent.errors import BudgetExhausted
from reticent.learners.points import PointLearner
from reticent.learners.thresholds import ThresholdLearner
from reticent.mechanisms.votes import noisy_majority
from reticent.noise import Seeded
from reticent.predictors.bbl_phases import BBLPhase
from reticent.predictors.generic_bbl import GenericBBL

Array = NDArray[Any]
Sample = tuple[Array, Array]

DOMAIN = np.arange(32)[:, None]


class Wavering:
    """Answers by other hypotheses all the time: a threshold that moves, and a share of noise."""

    def __init__(self, at: float, wrong: float, seed: int) -> None:
        self.at, self.wrong = at, wrong
        self.generator = np.random.default_rng(seed)

    def predict(self, X: Array) -> Array:
        truth = X[:, 0] < self.at + self.generator.integers(-1, 2, len(X))
        return np.asarray(truth ^ (self.generator.random(len(X)) < self.wrong)).astype(int)


# ── HypothesisLearner ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_released_model_is_stolen_whole() -> None:
    X = np.tile(DOMAIN, (60, 1))
    models: list[tuple[Any, Any]] = [
        (ThresholdLearner(bits=5, epsilon=1), Thresholds(bits=5)),
        (PointLearner(bits=5, epsilon=1, delta=1e-6), Points(bits=5)),
    ]
    for learner, concepts in models:
        y = X[:, 0] < 11 if isinstance(concepts, Thresholds) else X[:, 0] == 11
        model = learner.fit(X, y)
        stolen = HypothesisLearner(model, DOMAIN, failure=1e-6, unsafe_noise=Seeded(unsafe_seed=1)).hypothesis()
        assert stolen.complete
        assert (stolen.predict(X) == model.predict(X)).all()
        assert (stolen.majority == stolen.labels).all()


def test_error_of_the_result_is_that_of_the_hypotheses_on_average() -> None:
    """Claim B.1: the expected error is no more than α, whichever point the errors are at."""
    alpha, errors = 0.1, []
    truth = DOMAIN[:, 0] < 15
    for seed in range(60):
        attack = HypothesisLearner(Wavering(15, alpha, seed), DOMAIN, unsafe_noise=Seeded(unsafe_seed=seed))
        errors.append(float((attack.hypothesis().labels != truth).mean()))
    expected = alpha * 30 / 32 + (1 / 3 + alpha / 3) * 2 / 32  # two points next to the threshold waver
    assert np.mean(errors) == pytest.approx(expected, abs=0.02)
    assert np.mean(np.array(errors) > 8 * alpha) <= 1 / 8


def test_how_many_queries_reach_every_point() -> None:
    runs, failure = 200, 0.2
    missed = 0
    for seed in range(runs):
        model = Wavering(15, 0, seed)
        attack = HypothesisLearner(model, DOMAIN, failure=failure, unsafe_noise=Seeded(unsafe_seed=seed))
        assert attack.queries == math.ceil(32 * math.log(32 / failure))
        missed += not attack.hypothesis().complete
    assert 0.5 * failure * runs < missed < 1.5 * failure * runs  # so printed numbers are too few where log(1/β) < 1


def test_a_refusal_ends_it() -> None:
    class Refuses:
        left = 2

        def predict(self, X: Array) -> Array:
            if self.left == 0:
                raise BudgetExhausted("spent")
            self.left -= 1
            return np.ones(len(X), dtype=int)

    found = HypothesisLearner(Refuses(), DOMAIN, batch=5).hypothesis()
    assert found.answers.sum() == 10
    assert not found.complete
    assert HypothesisLearner(type("No", (Refuses,), {"left": 0})(), DOMAIN).hypothesis().answers.sum() == 0


def test_input() -> None:
    model = Wavering(1, 0, 0)
    with pytest.raises(TypeError, match="predictor must have a method predict"):
        HypothesisLearner(3, DOMAIN)  # type: ignore[arg-type]
    for points in ([], [1, 2], np.zeros((0, 1))):
        with pytest.raises(ValueError, match="points"):
            HypothesisLearner(model, points)
    for wrong in ({"failure": 0}, {"failure": 1}, {"queries": 0}, {"batch": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            HypothesisLearner(model, DOMAIN, **wrong)  # type: ignore[arg-type]
    found = HypothesisLearner(model, DOMAIN).hypothesis()
    with pytest.raises(ValueError, match="X must hold points"):
        found.predict([[99]])
    with pytest.raises(TypeError, match="train"):
        AccuracyBoost(3, DOMAIN)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples"):
        AccuracyBoost(lambda _: model, DOMAIN).hypothesis([])


# ── AccuracyBoost ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_majority_of_extracted_hypotheses() -> None:
    """A quarter of the predictors are useless; the majority errs less than 24α."""
    truth = DOMAIN[:, 0] < 15
    boost: AccuracyBoost[int] = AccuracyBoost(
        lambda seed: Wavering(15, 1.0 if seed % 4 == 0 else 0.03, seed),
        DOMAIN,
        queries=500,
        unsafe_noise=Seeded(unsafe_seed=5),
    )
    assert boost.copies == math.ceil(104 * math.log(20))
    found = boost.hypothesis(range(60))
    assert isinstance(found, Extracted)
    assert found.complete
    assert (found.labels != truth).mean() <= 2 / 32


def test_a_private_learner_out_of_private_predictors() -> None:
    """Theorem 3.3: samples of their own, answers that are post-processing: the majority is as private as each."""
    generator = np.random.default_rng(7)

    def sample() -> Sample:
        X = generator.integers(0, 32, (300, 1))
        return X, X[:, 0] < 15

    boost: AccuracyBoost[Sample] = AccuracyBoost(
        lambda data: ThresholdLearner(bits=5, epsilon=1).fit(*data), DOMAIN, unsafe_noise=Seeded(unsafe_seed=6)
    )
    found = boost.hypothesis([sample() for _ in range(15)])
    assert (found.labels != (DOMAIN[:, 0] < 15)).mean() <= 1 / 32


def test_constants_of_the_repaired_claim() -> None:
    bad = Fraction(1, 8) + Fraction(1, 36) + Fraction(1, 36)
    assert 2 * 104 * (Fraction(1, 4) - bad) ** 2 > 1
    assert Fraction(3, 4) * 8 / Fraction(1, 4) == 24
    printed = Fraction(1, 8) + Fraction(1, 8) + Fraction(1, 8)  # with β = 1/8, as printed
    assert printed > Fraction(1, 8)  # of which no concentration makes 1/8


# ── what it gives away ────────────────────────────────────────────────────────────────────────────────────────────

TEACHERS, SIGMA = 20, 8
TWO = Finite([[0, 0], [0, 1]])


class Static:
    """Private in each answer, by fresh noise, and not in all of them: the same teachers answer for ever."""

    def __init__(self, rows: Sample, noise: Seeded) -> None:
        self.ones = int(rows[1].sum())
        self.noise = noise

    def predict(self, X: Array) -> Array:
        votes = np.where(X[:, 0] == 1, self.ones, 0)
        return np.asarray(noisy_majority(votes, voters=TEACHERS, sigma=SIGMA, unsafe_noise=self.noise).value)


def rows(ones: int) -> Sample:
    return np.ones((TEACHERS, 1), dtype=int), (np.arange(TEACHERS) < ones).astype(int)


@pytest.mark.slow
def test_a_static_predictor_gives_a_row_away_and_phases_do_not() -> None:
    points = np.array([[0], [1]])
    noise = Seeded(unsafe_seed=11)
    attack: dict[str, Any] = {"points": points, "runs": 80, "queries": 4096, "unsafe_noise": noise}
    static = membership(lambda data: Static(data, noise), rows(9), rows(10), **attack)
    allowed = most_advantage(epsilon=1, delta=1e-3)
    assert static.exceeds(allowed)

    answers = 2048
    phase: dict[str, Any] = {"teachers": TEACHERS, "shard": 1, "answers": answers, "vote_delta": 1e-3}
    turned = BBLPhase(**phase, vote_epsilon=Fraction(9, 10), scored=1, drawn=TEACHERS)
    last = BBLPhase(**phase, vote_epsilon=Fraction(9, 10))
    bbl = GenericBBL(TWO, epsilon=1, delta=1e-3, labeller="gaussian", phases=[turned, last])

    def train(data: Sample) -> GenericBBL:
        fitted: GenericBBL = GenericBBL(**bbl.get_params(deep=False)).fit_with_noise(*data, unsafe_noise=noise)
        assert fitted.guarantee_.epsilon <= 1
        return fitted

    everlasting = membership(train, rows(9), rows(10), **attack)
    assert not everlasting.exceeds(allowed, deviations=0)
